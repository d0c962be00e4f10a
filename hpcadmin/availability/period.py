"""A period of the calendar: 2026-Q3, 2026-10, 2026, FROM..TO. Half-open, with the zone whose midnight begins it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo

from hpcadmin.errors import UsageError

_HINT = "2026-Q3, 2026-10, 2026, or FROM..TO as 2026-07-01..2026-08-15 (TO is not in it)"


@dataclass(frozen=True)
class Period:
    """Seconds since 1970; `end` is not in it. end: of what is counted; whole_end: of the period that was asked for."""

    name: str
    start: int
    end: int
    whole_end: int
    zone: tzinfo | None = None              # None: this machine's

    @property
    def over(self) -> bool:
        return self.end == self.whole_end

    @property
    def seconds(self) -> int:
        return self.end - self.start

    def time(self, seconds: int) -> str:
        return datetime.fromtimestamp(seconds, timezone.utc).astimezone(self.zone).strftime("%Y-%m-%d %H:%M:%S %z")


def zone_of(name: str, where: str = "") -> tzinfo | None:
    """None for this machine's zone."""
    if not name:
        return None
    from zoneinfo import ZoneInfo  # noqa: PLC0415
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise UsageError(f"there is no time zone {name!r} here", where=where or None,
                         hint="names are as Europe/Berlin; the package tzdata has them") from exc


def period_of(text: str, now: int, zone: tzinfo | None = None) -> Period:
    """What of the period is over is counted. Raises UsageError."""
    first, last = _ends(text.strip(), zone)
    start, end = int(first.timestamp()), int(last.timestamp())
    if start >= end:
        raise UsageError(f"period {text!r} ends before it begins", hint=_HINT)
    if start >= now:
        raise UsageError(f"period {text!r} has not begun yet")
    return Period(text.strip(), start, min(end, now), end, zone)


def quarter_of(text: str, now: int, zone: tzinfo | None = None) -> Period:
    """2026-Q3; "last": the last one that is over."""
    if text.strip().lower() == "last":
        here = datetime.fromtimestamp(now, timezone.utc).astimezone(zone)
        year, number = divmod(here.year * 4 + (here.month - 1) // 3 - 1, 4)
        text = f"{year}-Q{number + 1}"
    if not re.fullmatch(r"\d{4}-?[Qq][1-4]", text.strip()):
        raise UsageError(f"{text!r} is no quarter", hint="2026-Q3, or last")
    return period_of(text, now, zone)


def this_quarter(now: int, zone: tzinfo | None = None) -> str:
    here = datetime.fromtimestamp(now, timezone.utc).astimezone(zone)
    return f"{here.year}-Q{(here.month - 1) // 3 + 1}"


def _ends(text: str, zone: tzinfo | None) -> tuple[datetime, datetime]:
    quarter = re.fullmatch(r"(\d{4})-?[Qq]([1-4])", text)
    month = re.fullmatch(r"(\d{4})-(\d{2})", text)
    try:
        if quarter:
            return _months(int(quarter[1]), int(quarter[2]) * 3 - 2, 3, zone)
        if month:
            return _months(int(month[1]), int(month[2]), 1, zone)
        if re.fullmatch(r"\d{4}", text):
            return _months(int(text), 1, 12, zone)
        first, dots, last = text.partition("..")
        if dots and first and last:
            return _moment(first, zone), _moment(last, zone)
    except (ValueError, OverflowError, OSError) as exc:
        raise UsageError(f"{text!r} is no period: {exc}", hint=_HINT) from exc
    raise UsageError(f"{text!r} is no period", hint=_HINT)


def _months(year: int, month: int, count: int, zone: tzinfo | None) -> tuple[datetime, datetime]:
    after = year * 12 + month - 1 + count
    return _midnight(datetime(year, month, 1), zone), _midnight(datetime(after // 12, after % 12 + 1, 1), zone)


def _midnight(naive: datetime, zone: tzinfo | None) -> datetime:
    """With the offset that holds there on that day."""
    return naive.replace(tzinfo=zone) if zone is not None else naive.astimezone()


def _moment(text: str, zone: tzinfo | None) -> datetime:
    found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return found if found.tzinfo is not None else _midnight(found, zone)
