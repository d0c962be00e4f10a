"""Times as people read them. Text that is no time is shown as it is."""

from __future__ import annotations

from datetime import datetime


def parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None


def local_time(text: str) -> str:
    """2026-07-30 10:15:00 +0200, in the zone it was written in."""
    when = parse_time(text)
    return when.strftime("%Y-%m-%d %H:%M:%S %z").rstrip() if when else text


def duration(start: str, end: str) -> str:
    """12 s, 3 min 20 s, 2 h 5 min; "" when either is unknown."""
    first, last = parse_time(start), parse_time(end)
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return ""
    seconds = round((last - first).total_seconds())
    if seconds < 0:
        return ""
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
