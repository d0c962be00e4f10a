"""Collects what a comparison finds; how words, sizes and versions are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcadmin.order._records import Difference, NotCompared

_WORD = re.compile(r"[a-z0-9]+")
_VERSION_PART = re.compile(r"[0-9]{1,18}|[a-z]+")
_HEX_VERSION = re.compile(r"[0-9a-f]{2}(?:\.[0-9a-f]{2}){2,8}\Z")
UNKNOWN = "unknown on the node"


@dataclass
class Result:
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    agreed: int = 0

    def judge(self, node: str, item: str, ordered: str, found: str, agrees: bool | None, *,
              kind: str = "different", reason: str = UNKNOWN) -> None:
        """agrees None: there is nothing to compare with, and `reason` says why."""
        if agrees is None:
            self.not_compared.append(NotCompared(node, item, reason))
        elif agrees:
            self.agreed += 1
        else:
            self.differences.append(Difference(node, item, ordered, found, kind))

    def count(self, node: str, item: str, ordered: int | None, found: int | None) -> None:
        """A number that was ordered; None: it was not."""
        if ordered is not None:
            self.judge(node, item, str(ordered), str(found), None if found is None else found == ordered,
                       kind=kind_of(ordered, found))

    def words(self, node: str, item: str, ordered: str, found: str) -> None:
        if ordered:
            self.judge(node, item, ordered, found, has_words(found, ordered) if found else None)

    def floor(self, node: str, item: str, ordered: str, found: str) -> None:
        if ordered:
            self.judge(node, item, f"{ordered} or later", found, at_least(found, ordered) if found else None,
                       reason=f"{found} and {ordered} are not numbered alike" if found else UNKNOWN)


def kind_of(ordered: float, found: float | None) -> str:
    if found is None or found == ordered:
        return "different"
    return "missing" if found < ordered else "extra"


def words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def has_words(found: str, ordered: str) -> bool:
    """Every word of the order is in what the node says: "H100 80GB" in "NVIDIA H100 80GB HBM3"."""
    return words_of(ordered) <= words_of(found)


def at_least(found: str, floor: str) -> bool | None:
    """Versions compared number by number (VBIOS numbers are hexadecimal); None where their words differ."""
    a, b = found.strip().casefold(), floor.strip().casefold()
    if _HEX_VERSION.match(a) and _HEX_VERSION.match(b):
        return [int(part, 16) for part in a.split(".")] >= [int(part, 16) for part in b.split(".")]
    ours, theirs = _VERSION_PART.findall(a), _VERSION_PART.findall(b)
    if not ours or not theirs:
        return None
    for one, other in zip(ours, theirs, strict=False):
        if one.isdigit() and other.isdigit():
            if int(one) != int(other):
                return int(one) > int(other)
        elif one != other:
            return None
    rest = theirs[len(ours):]
    return all(part.isdigit() and int(part) == 0 for part in rest)
