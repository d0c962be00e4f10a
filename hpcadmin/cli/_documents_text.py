"""What `discover --from` made of each text: known, not known, refused; for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcadmin import records
from hpcadmin.text import printable

if TYPE_CHECKING:
    from hpcadmin.facts import Reading
    from hpcadmin.reading import Statement

SHOWN = 400


def plain(statements: Iterable[Statement]) -> list[dict[str, Any]]:
    """A table for each document."""
    return [{"file": s.file, "node": s.node, "errors": list(s.errors), "readings": [_plain(r) for r in s.readings]}
            for s in statements]


def _plain(reading: Reading) -> dict[str, Any]:
    return {"kind": reading.kind, "lines": [reading.first, reading.last], "known": records.to_plain(reading.known),
            "missing": list(reading.missing), "refused": reading.refused,
            "findings": [records.to_plain(finding) for finding in reading.findings],
            "assumed": records.to_plain(list(reading.assumed))}


def text(statements: Sequence[Statement]) -> str:
    return "\n".join(line for statement in statements for line in _statement(statement))


def _statement(statement: Statement) -> Iterator[str]:
    for error in statement.errors:
        yield f"refused: {printable(error, limit=SHOWN)}"
    for reading in statement.readings:
        lines = f"{reading.first}-{reading.last}" if reading.last > reading.first else str(reading.first)
        yield f"{printable(statement.file)}:{lines}: {printable(reading.kind)}"
        for key, value in reading.known.items():
            if value is not None:
                yield f"  {printable(key.replace('_', ' '))}: {_value(value)}"
        unknown = [key.replace("_", " ") for key, value in reading.known.items() if value is None]
        if unknown:
            yield f"  not told: {printable(', '.join(unknown), limit=SHOWN)}"
        yield from (f"  not in it: {printable(what, limit=SHOWN)}" for what in reading.missing)
        for finding in reading.findings:
            at = f"line {finding.line}: " if finding.line else ""
            yield f"  {'note' if finding.note else 'finding'}: {at}{printable(finding.what, limit=SHOWN)}"
        yield from (f"  only if {_assumption(item)}" for item in reading.assumed)
        if reading.refused:
            yield f"  refused: {printable(reading.refused, limit=SHOWN)}"


def _assumption(item: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in item.items() if key not in ("if", "assumption")}
    what = ", ".join(f"{key} {_value(value)}" for key, value in rest.items())
    return f"{printable(str(item.get('if') or item.get('assumption', '?')))}: {what}"


def _value(value: Any) -> str:
    """A value on one line; lists of devices are counted, their places are in the table of the node."""
    if isinstance(value, str | int | float):
        return printable(str(value), limit=SHOWN)
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        names = [str(item.get("name") or item.get("pci") or item.get("index", "?")) for item in value]
        return printable(f"{len(value)} ({', '.join(names)})", limit=SHOWN)
    return printable(json.dumps(records.to_plain(value), ensure_ascii=False), limit=SHOWN)
