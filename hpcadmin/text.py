"""Text from nodes, logs and files made safe for a terminal, and numbers made readable."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterable

# Format characters that reorder or hide text on a terminal (bidirectional marks, zero width), and all controls.
_BAD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: str, *, limit: int = 2000, newlines: bool = False) -> str:
    """`text` with control and direction characters written as \\xNN or \\uNNNN, cut after `limit` characters.

    newlines: keep line ends and tabs (for blocks of raw output).
    """
    if len(text) <= limit and text.isascii() and text.isprintable():        # as nearly all
        return text
    cut = text[:limit]
    if not cut.isascii() or not cut.isprintable():
        cut = cut.translate(_IN_A_BLOCK if newlines else _ON_A_LINE)
    return cut if len(text) <= limit else f"{cut}… ({len(text)} characters)"


class _Shown(dict[int, str]):
    """What is written for a character, by its number: found once, and kept for the characters that most text is of."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shown = _escape(char) if unicodedata.category(char) in _BAD_CATEGORIES else char
        if code < 0x10000:
            self[code] = shown
        return shown


_ON_A_LINE = _Shown()
_IN_A_BLOCK = _Shown({ord(c): c for c in "\n\t"})


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def whole_number(text: str) -> int | None:
    """Of ASCII digits alone: what nodes write may hold digits that int() refuses, as "²", or thousands of them."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def number(value: float | int | str | None, digits: int = 4) -> str:
    """A value as people read it: at most `digits` significant digits, no exponent below a million."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool) or value == int(value):
        return str(int(value))
    if abs(value) >= 10 ** digits:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def byte_size(count: int) -> str:
    """256 KiB, 1 GiB, 1000 B: only exact multiples get a larger unit."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} B"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """"1 node", "4 nodes"."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def did_you_mean(name: str, known: Iterable[str], command: str) -> str:
    """A hint that fits a line: the names that look like it, and what shows all of them."""
    close = difflib.get_close_matches(name[:100], known, n=3)
    return f"did you mean {', '.join(close)}? {command} shows all" if close else f"{command} shows all"


def fold_ids(ids: Iterable[int]) -> str:
    """0-3,8 for (0, 1, 2, 3, 8)."""
    parts: list[list[int]] = []
    for number in sorted(set(ids)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def told_words(text: str) -> set[str]:
    """Names of nodes are among them, where a reason names nodes."""
    return set("".join(c if c.isalnum() or c in "-_." else " " for c in text).replace(". ", " ").split())
