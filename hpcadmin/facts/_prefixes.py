"""Lines of a log whose every line begins with a time, a rank or the like: the same without that."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Whatever stands there, as long as it is of that form in every line.
_TIMES = re.compile(
    r"\[?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?\]?"
    r"(?: (?:stdout|stderr) [FP])?(?: \[?(?:DEBUG|INFO|WARNING|ERROR)\]?)?(?: ?:)?(?: |\Z)"
    r"|[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [A-Za-z0-9_.-]{1,64} [A-Za-z0-9_./@-]{1,64}"
    r"(?:\[[0-9]{1,10}\])?:(?: |\Z)"
    r"|\[[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?\](?: |\Z)|#[0-9]{1,4} [0-9]{1,6}\.[0-9]{1,4}(?: |\Z)")
# One and the same in every line: otherwise lines of several processes are mixed.
_SAME = re.compile(
    r"\[?(?:[Rr]ank|RANK)[ =:]?[0-9]{1,6}\]?(?: ?:)?(?: |\Z)|\[[0-9]{1,6},[0-9]{1,6}\]<std(?:out|err)>:|"
    r"\([A-Za-z][A-Za-z0-9_]{0,60}(?: [a-z]{2,12}=[^ ()]{1,60}){1,4}\)(?: |\Z)|[0-9]{1,5}:(?: |\Z)|"
    r"[A-Za-z][A-Za-z0-9_.-]{0,60} {0,30}\|(?: |\Z)")
_LEAST = 3


def without_prefixes(lines: Sequence[str]) -> list[str] | None:
    """None when no run of lines has such a beginning. Lines keep their places."""
    found = list(lines)
    changed = False
    least = min(_LEAST, sum(bool(line.strip()) for line in lines))
    start, kind = 0, ""
    ends = [0] * len(lines)
    for number in range(len(lines) + 1):
        own, ends_at = _beginning(lines[number]) if number < len(lines) else ("", 0)
        if number < len(lines):
            ends[number] = ends_at
        if own == kind or (number < len(lines) and not lines[number].strip()):
            continue
        if kind and number - start >= least:
            changed = True
            for place in range(start, number):
                found[place] = lines[place][ends[place]:]
        start, kind = number, own
    return found if changed else None


def has_prefix(line: str) -> bool:
    return bool(_beginning(line)[0])


def _beginning(line: str) -> tuple[str, int]:
    """(of which kind, where the rest begins)."""
    head = line[:200].lstrip()
    indent = len(line[:200]) - len(head)
    match = _TIMES.match(head)
    if match:
        return "time", indent + match.end()
    match = _SAME.match(head)
    return (match[0].strip(), indent + match.end()) if match else ("", 0)
