"""A message in words: a subject of one line and a body, bounded; text of nodes stays text. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

from hpcadmin.sweep.alarms.model import BEGINS, CHANGES, ENDS, LASTS, Message
from hpcadmin.sweep.model import Change
from hpcadmin.text import plural, printable

LINE = 300
_WORDS = {BEGINS: "new", CHANGES: "changed", ENDS: "over", LASTS: "lasts"}
_ORDER = (BEGINS, CHANGES, ENDS, LASTS)


def subject(message: Message) -> str:
    """hpcadmin CLUSTER: 2 problems begin, 1 ends"""
    head = f"hpcadmin {printable(message.cluster, limit=60)}".rstrip()
    if message.kind == "test":
        return f"{head}: test of this channel"
    counts = Counter(item.what for item in message.items)
    if message.kind == "digest":
        return f"{head}: {plural(counts[LASTS], 'problem') if counts[LASTS] else 'no problem'} now"
    words = []
    for what in _ORDER:
        if counts[what]:
            verb = what if counts[what] == 1 else what.removesuffix("s")
            words.append(f"{plural(counts[what], 'problem')} {verb}")
    if len(message.items) == 1:
        return printable(f"{head}: {what_of(message.items[0])}: {message.items[0].problem.text}", limit=120)
    return f"{head}: {', '.join(words) or 'a note'}"


def what_of(item: Change) -> str:
    return _WORDS.get(item.what, item.what)


def line_of(item: Change) -> str:
    """new: n01: drained: mount:home is not mounted (health/mount:home)"""
    since = ""
    if item.what in (LASTS, ENDS) and item.problem.since:
        since = f" (since {minute(item.problem.since)})"
    return f"{what_of(item)}: {printable(item.problem.text, limit=LINE)}{since}"


def lines_of(message: Message) -> list[str]:
    items = sorted(message.items, key=lambda item: (_ORDER.index(item.what) if item.what in _ORDER else 9,
                                                    item.problem.key))
    return [*(printable(note, limit=LINE) for note in message.notes), *map(line_of, items)]


def body(message: Message, limit: int) -> str:
    """All lines, of at most `limit` bytes together; what does not fit is counted."""
    lines = lines_of(message)
    kept: list[str] = []
    left = limit - 60
    for number, line in enumerate(lines):
        left -= len(line.encode("utf-8", "replace")) + 1
        if left < 0:
            more = plural(len(lines) - number, "more line")
            kept.append(f"... and {more}: hpcadmin sweep show {message.run or 'last'}")
            break
        kept.append(line)
    return "\n".join(kept)


def whole(message: Message, limit: int) -> str:
    """Subject and body as one text."""
    head = subject(message)
    rest = body(message, limit - len(head.encode()) - 1)
    return f"{head}\n{rest}" if rest else head


def minute(moment: float) -> str:
    return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")


def utc(moment: float) -> str:
    """RFC 3339 in milliseconds, as RFC 5424 and Alertmanager want it."""
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
