"""What is wanted of a node: comparable, so that nodes that share it are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Want:
    """One entry without its nodes. label: what tells it from others of the same check."""

    use: str
    label: str = field(compare=False)
    items: tuple[tuple[str, Any], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, use: str, label: str, *, notes: tuple[str, ...] = (), **values: Any) -> Want:
        items = tuple((key, tuple(value) if isinstance(value, list) else value)
                      for key, value in values.items() if value not in (None, []))
        return cls(use, label, items, notes)

    @property
    def values(self) -> Mapping[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.items}
