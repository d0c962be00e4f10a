"""The node's clock when it was captured."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import lines_of, quote

NAME = "time"
ORDER = 1
COMMAND = "date '+%s %Y-%m-%dT%H:%M:%S%z'"
_LINE = re.compile(r"([0-9]{1,12}) ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})([+-][0-9]{2})([0-9]{2})\Z")


def parse(text: str) -> str:
    """ISO time with zone."""
    lines = lines_of(text, "date")
    match = _LINE.match(lines[0].strip())
    if not match or len(lines) != 1:
        raise ParseError(f"{quote(text)} is not a time")
    return f"{match[2]}{match[3]}:{match[4]}"
