"""JSON: everything that is in the run folder, with the result worked out, under a schema number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hpcadmin.records import dumps, to_plain
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.rundata import Run

REPORT_SCHEMA = 1


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    return "".join(parts(run, options))


def parts(run: Run, options: Options = Options()) -> Iterator[str]:  # noqa: B008
    """Non-ASCII characters are escaped, so that no text of a node can act on a terminal that shows this.

    A record a line where there are many: half a million of them are never in memory as one text.
    """
    lead = "{\n "
    for name, value in _document(run).items():
        yield f"{lead}{json.dumps(name)}: "
        lead = ",\n "
        if isinstance(value, tuple):
            for number, item in enumerate(value):
                yield f"{',' if number else '['}\n  {_line(item)}"
            yield "\n ]" if value else "[]"
        else:
            yield json.dumps(value, indent=1, allow_nan=False).replace("\n", "\n ")
    yield "\n}\n"


def _line(record: object) -> str:
    text = dumps(record)
    return text if text.isascii() else json.dumps(to_plain(record), allow_nan=False)


def _document(run: Run) -> dict[str, Any]:
    """Plain values, but for tuples of records."""
    summary = summarise(run)
    return {
        "schema": REPORT_SCHEMA, "kind": "hpcadmin-report", "run": run.manifest.run_id, "folder": str(run.path),
        "result": {"word": summary.word, "exit_status": summary.status, "text": summary.text,
                   "counts": {status.value: count for status, count in summary.counts.items()}},
        "simulated": summary.simulated, "notes": list(summary.notes), "problems": list(summary.problems),
        "findings": to_plain(summary.findings), "checks": [_check(summary, i) for i in range(len(summary.checks))],
        "nodes": summary.nodes, "coverage": to_plain(run.coverage), "verdicts": summary.verdicts,
        "measurements": run.measured, "limits": run.limits, "manifest": to_plain(run.manifest),
        "plan": to_plain(run.plan), "inventory": to_plain(run.inventory), "acceptance": to_plain(run.acceptance),
    }


def _check(summary: Summary, index: int) -> dict[str, Any]:
    row = summary.checks[index]
    return {
        "check": row.check, "title": row.title, "scope": row.scope.value if row.scope else None,
        "status": row.status.value, "reason": row.reason, "tests": row.tests, "passed": row.passed,
        "counts": {status.value: count for status, count in row.counts.items()}, "nodes_failed_by_peers": row.by_peers,
        "values": [{"name": v.name, "unit": v.unit, "count": len(v.values), "median": v.median, "worst": v.worst,
                    "best": v.best, "limits": to_plain(v.limits)} for v in row.values],
    }


FORMAT = ReportFormat("json", ".json", render, parts=parts)
