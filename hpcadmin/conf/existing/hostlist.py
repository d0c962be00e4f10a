"""Host lists in Slurm's files: n[01-10], n[1-3,5]-ib, r[1-2]n[1-4]; the order and names that stand twice are kept.

Not ClusterShell's lists, in which !, &, ^, @ and /2 mean something that they do not mean to Slurm.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hpcadmin.errors import UsageError
from hpcadmin.hosts import MAX_HOSTS

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_SUFFIX = re.compile(r"\][^,\[\]]+(?:,|\Z)")
MAX_BRACKETS = 8
MAX_RANGE = 65_536                       # Slurm's own limit for one range


@lru_cache(maxsize=256)
def expand(text: str) -> tuple[str, ...]:
    """The names in the order of the list. Raises UsageError on a malformed list or more than MAX_HOSTS names."""
    names: list[str] = []
    for part in split(text):
        names += _part(part, text, MAX_HOSTS - len(names))
    return tuple(names)


def split(text: str) -> list[str]:
    """At the commas outside brackets."""
    if "[" not in text and "]" not in text:
        return [part for part in text.split(",") if part]
    parts, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[begin:i])
            begin = i + 1
        if depth not in (0, 1):
            raise _malformed(text, "brackets that do not pair")
    if depth:
        raise _malformed(text, "brackets that do not pair")
    parts.append(text[begin:])
    return [part for part in parts if part]


def has_suffix(text: str) -> bool:
    """Whether a name goes on behind its last bracket, which Slurm takes from 23.11 on."""
    return "]" in text and bool(_SUFFIX.search(text))


def _part(part: str, whole: str, room: int) -> list[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", part)
    if len(pieces) // 2 > MAX_BRACKETS:
        raise _malformed(whole, f"more than {MAX_BRACKETS} brackets in one name")
    names = [pieces[0]]
    for ranges, after in zip(pieces[1::2], pieces[2::2], strict=True):
        numbers = _numbers(ranges, whole, room)
        if len(names) * len(numbers) > room:
            raise UsageError(f"host list {_short(whole)} has more than {MAX_HOSTS} names")
        names = [f"{name}{number}{after}" for name in names for number in numbers]
    if len(names) > room:
        raise UsageError(f"host list {_short(whole)} has more than {MAX_HOSTS} names")
    return names


def _numbers(ranges: str, whole: str, room: int) -> list[str]:
    found: list[str] = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item)
        if not match:
            raise _malformed(whole, f"[{item[:40]}] is no range of numbers")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise _malformed(whole, f"[{item[:40]}] runs backwards")
        if high - low >= MAX_RANGE:
            raise UsageError(f"host list {_short(whole)}: [{item[:40]}] is more than {MAX_RANGE} names, which Slurm "
                             "does not take")
        if high - low + len(found) >= room:
            raise UsageError(f"host list {_short(whole)} has more than {MAX_HOSTS} names")
        width = len(match[1])
        found += [f"{n:0{width}d}" for n in range(low, high + 1)]
    return found


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(f"malformed host list {_short(text)}: {why}", hint="for example node[01-04,07]")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
