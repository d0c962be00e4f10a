"""The JSON Schema of the report, made of the records that it holds, so that it says what they are."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hpcadmin.acceptance_model import Acceptance
from hpcadmin.check import Limit, Scope, Status, Verdict
from hpcadmin.model import Inventory
from hpcadmin.report.json import REPORT_SCHEMA
from hpcadmin.report.summary import NodeRow
from hpcadmin.rundata import Covered, Finding, Manifest, Measured, Plan

_SCALARS: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema(*, strict: bool = False) -> dict[str, Any]:
    made = Definitions()
    counts = {"type": "object", "propertyNames": made.of(Status), "additionalProperties": {"type": "integer"}}
    result = table({"word": {"enum": ["PASSED", "FAILED", "INCOMPLETE"]}, "exit_status": {"enum": [0, 1, 3]},
                     "text": {"type": "string"}, "counts": counts})
    values = table({"name": {"type": "string"}, "unit": {"type": "string"}, "count": {"type": "integer"},
                     "median": {"type": "number"}, "worst": {"type": "number"}, "best": {"type": "number"},
                     "limits": made.of(tuple[Limit, ...])})
    check = table({"check": {"type": "string"}, "title": {"type": "string"}, "scope": made.of(Union[Scope, None]),
                    "status": made.of(Status), "reason": {"type": "string"}, "tests": {"type": "integer"},
                    "passed": {"type": "integer"}, "counts": counts, "nodes_failed_by_peers": {"type": "integer"},
                    "values": {"type": "array", "items": values}})
    texts = {"type": "array", "items": {"type": "string"}}
    document = table({
        "schema": {"const": REPORT_SCHEMA}, "kind": {"const": "hpcadmin-report"}, "run": {"type": "string"},
        "folder": {"type": "string"}, "result": result, "simulated": {"type": "string"}, "notes": texts,
        "problems": texts, "findings": made.of(tuple[Finding, ...]), "checks": {"type": "array", "items": check},
        "nodes": made.of(tuple[NodeRow, ...]), "coverage": made.of(tuple[Covered, ...]),
        "verdicts": made.of(tuple[Verdict, ...]), "measurements": made.of(tuple[Measured, ...]),
        "limits": made.of(tuple[Limit, ...]), "manifest": made.of(Manifest), "plan": made.of(Union[Plan, None]),
        "inventory": made.of(Union[Inventory, None]), "acceptance": made.of(Union[Acceptance, None])})
    return published("hpcadmin report", "What `hpcadmin report --json` prints.", document, made, strict=strict)


def table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def lenient(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: lenient(value) for key, value in part.items() if (key, value) != ("additionalProperties", False)}
    return [lenient(item) for item in part] if isinstance(part, list) else part


class Definitions:
    """Forms of types. What is a record (a dataclass, a tuple with names) has one definition, under its name."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._names: dict[type, str] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        origin, args = get_origin(hint), get_args(hint)
        if hint is Any:
            return {}
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        if origin in (Union, types.UnionType):
            options = [self.of(arg) for arg in args]
            if all(option.keys() == {"type"} for option in options):
                return {"type": [option["type"] for option in options]}
            return {"anyOf": options}
        if origin is tuple:
            return self._tuple(args)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [member.value for member in hint]}
        if is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")):
            return self._record(hint)
        raise TypeError(f"{hint} has no form in JSON Schema here")

    def _tuple(self, args: tuple[Any, ...]) -> dict[str, Any]:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self.of(args[0])}
        return {"type": "array", "prefixItems": [self.of(arg) for arg in args], "minItems": len(args),
                "maxItems": len(args)}

    def _record(self, record: Any) -> dict[str, Any]:
        name = self._names.get(record)
        if name is None:
            name = record.__name__ if record.__name__ not in self.definitions else (
                record.__module__.rpartition(".")[2].title().replace("_", "") + record.__name__)
            self._names[record] = name
            self.definitions[name] = {}                  # a record may hold records of its own kind
            hints = get_type_hints(record)
            names = [item.name for item in fields(record)] if is_dataclass(record) else record._fields
            self.definitions[name] = table({field: self.of(hints[field]) for field in names})
        return {"$ref": f"#/$defs/{name}"}


def published(title: str, description: str, document: dict[str, Any], made: Definitions, *, strict: bool,
              ) -> dict[str, Any]:
    """strict: fields that it does not know are wrong. Readers must bear them: within one number fields are added."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title,
             "description": f"{description} Another number in `schema` is another form; within one, fields are only "
                            "added.", **document, "$defs": dict(sorted(made.definitions.items()))}
    return whole if strict else lenient(whole)


def text() -> str:
    """As it is published: python -m hpcadmin.report.schema > docs/report.schema.json"""
    import json  # noqa: PLC0415
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    import sys
    sys.stdout.write(text())
