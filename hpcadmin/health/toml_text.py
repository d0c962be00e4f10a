"""Writes [[check]] tables of health.toml, with what is to be said about them as comments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ORDER = ("use", "id", "nodes", "when", "timeout_s")


@dataclass(frozen=True)
class Table:
    """One entry, or (without use) a comment alone."""

    use: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def document(head: Sequence[str], tables: Iterable[Table]) -> str:
    parts = ["".join(comment(line) for line in head)]
    parts += [table_text(table) for table in tables]
    return "\n".join(parts)


def table_text(table: Table) -> str:
    text = "".join(comment(note) for note in table.notes)
    if not table.use:
        return text
    rows = ["[[check]]"]
    values = {"use": table.use, **table.values}
    for key in (*ORDER, *(key for key in values if key not in ORDER)):
        if key in values and values[key] not in (None, []):
            rows.append(f"{key} = {value_text(values[key])}")
    return text + "".join(f"{row}\n" for row in rows)


def comment(text: str) -> str:
    """A comment of whatever text, each of its lines."""
    clean = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
    return "".join(f"# {line}".rstrip() + "\n" for line in clean.split("\n"))


def value_text(value: Any) -> str:
    """TOML of texts, numbers, flags and lists of them; JSON's texts are TOML's too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2 ** 53:
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    return "[" + ", ".join(value_text(item) for item in value) + "]"
