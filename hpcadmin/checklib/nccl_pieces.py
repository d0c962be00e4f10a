"""Rows of nccl-tests in pieces: NCCL of the same process wrote its own lines between their cells."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_MESSAGE = re.compile(r"(\S{1,300}):\d{1,9}:\d{1,9} \[\d{1,5}\] ")
_CELL = re.compile(r"-?\d{1,18}(?:\.\d{1,6})?(?:e[+-]?\d{1,3})?\*?|N/A")


def parted(text: str, hosts: Collection[str]) -> tuple[str, str] | None:
    """The beginning of a line that is of a row, and the message of NCCL that follows without a blank."""
    if not text[:1].isdigit() or " NCCL " not in text:
        return None
    match = _MESSAGE.search(text[:2000])
    if match is None:
        return None
    word = match[1]
    at = next((n for n in range(len(word)) if word[n:] in hosts), 0)
    start = match.start() + at
    return (text[:start].strip(), text[start:]) if start and word[at:] in hosts else None


def cells(words: Sequence[str]) -> bool:
    """Whether a line has nothing but numbers: the rest of a row."""
    return all(map(_CELL.fullmatch, words))
