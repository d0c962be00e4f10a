"""The JSON Schemas of comparisons and trends, made of the records that these hold."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any, get_type_hints

from hpcadmin.history_runs import COMPARE_SCHEMA, Comparison
from hpcadmin.history_trend import TREND_SCHEMA, Drift
from hpcadmin.report.schema import Definitions, published, table

_TEXTS = {"type": "array", "items": {"type": "string"}}


def comparison(*, strict: bool = False) -> dict[str, Any]:
    made = Definitions()
    document = table({"schema": {"const": COMPARE_SCHEMA}, "kind": {"const": "hpcadmin-comparison"},
                      "exit_status": {"enum": [0, 1, 3]}, **_fields(made, Comparison)})
    return published("hpcadmin comparison", "What `hpcadmin report --compare RUN --json` prints.", document, made,
                     strict=strict)


def trend(*, strict: bool = False) -> dict[str, Any]:
    made = Definitions()
    point = table({"run": {"type": "string"}, "time": {"type": "number"}, "value": {"type": "number"}})
    values = table({"condition": {"type": "string"}, "unit": {"type": "string"},
                    "size_bytes": {"type": ["integer", "null"]}, "node": {"type": "string"},
                    "device": {"type": "string"}, "points": {"type": "array", "items": point}})
    document = table({"schema": {"const": TREND_SCHEMA}, "kind": {"const": "hpcadmin-trend"},
                      "exit_status": {"enum": [0, 1, 3]}, "runs": _TEXTS, "series": {"type": "integer"},
                      "too_short": {"type": "integer"}, "drifts": made.of(tuple[Drift, ...]),
                      "values": {"type": "array", "items": values}, "problems": _TEXTS})
    return published("hpcadmin trend", "What `hpcadmin runs trend CHECK --json` prints.", document, made,
                     strict=strict)


def _fields(made: Definitions, record: Any) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {item.name: made.of(hints[item.name]) for item in fields(record)}


def text(name: str) -> str:
    """As it is published: python -m hpcadmin.history_schema comparison > docs/comparison.schema.json, and trend."""
    made = {"comparison": comparison, "trend": trend}[name]()
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1]))
