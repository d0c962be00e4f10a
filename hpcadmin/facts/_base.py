"""What all facts share: numbers, CPU lists and text read strictly and within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hpcadmin.errors import ParseError
from hpcadmin.text import printable

MAX_CPU = 65535          # an OS CPU id above this is garbage, not a machine
MAX_NUMBER_DIGITS = 19
_DECIMAL = re.compile(r"-?[0-9]{1,19}\Z")
_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\Z")
_NATURAL = re.compile(r"([0-9]{1,18})")


def clean(text: str, limit: int = 200) -> str:
    """Free text of a node as one printable line."""
    return printable(" ".join(text.split()), limit=limit)


def quote(text: str) -> str:
    """A piece of unreadable input for an error message."""
    return f"'{printable(text.strip(), limit=60)}'"


def integer(text: str, what: str, *, low: int = 0, high: int = 10 ** 18) -> int:
    """A decimal number within bounds; ParseError naming `what` otherwise."""
    stripped = text.strip()
    if not _DECIMAL.match(stripped) or not low <= int(stripped) <= high:
        raise ParseError(f"{what}: {quote(text)} is not a number from {low} to {high}")
    return int(stripped)


def maybe_integer(text: str | None) -> int | None:
    """A number of at least zero, None for "", "-", "N/A" and whatever else says nothing."""
    stripped = (text or "").strip()
    return int(stripped) if _DECIMAL.match(stripped) and int(stripped) >= 0 else None


def leading_float(text: str | None) -> float | None:
    """The number a text such as "700.00 W" begins with."""
    match = re.match(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)(?![0-9])", text or "")
    return float(match[1]) if match else None


def leading_int(text: str | None) -> int | None:
    value = leading_float(text)
    return None if value is None else int(value)


def cpu_list(text: str, what: str) -> tuple[int, ...]:
    """The ids in a list such as 0-3,8 or 0-62:2 (every second one, as lscpu prints); () for an empty one."""
    stripped = text.strip()
    if not stripped:
        return ()
    ids: set[int] = set()
    for part in stripped.split(","):
        span, colon, stride = part.partition(":")
        first, dash, last = span.partition("-")
        low = integer(first, what, high=MAX_CPU)
        high = integer(last, what, high=MAX_CPU) if dash else low
        if high < low:
            raise ParseError(f"{what}: {quote(part)} runs backwards")
        ids.update(range(low, high + 1, integer(stride, what, low=1, high=MAX_CPU) if colon else 1))
        if len(ids) > MAX_CPU:
            raise ParseError(f"{what}: more than {MAX_CPU} ids")
    return tuple(sorted(ids))


def pci_address(text: str) -> str:
    """0000:1b:00.0 for 00000000:1B:00.0 and 1b:00.0; "" when it is no PCI address."""
    match = _PCI.match(text.strip())
    if not match:
        return ""
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4]}"


def pci_key(address: str) -> tuple[int, str]:
    """Sorts PCI addresses in bus order."""
    domain, _, rest = address.partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return 1 << 32, address


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts mlx5_2 before mlx5_10."""
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part)
                 for part in _NATURAL.split(name) if part)


def lines_of(text: str, what: str) -> list[str]:
    """The lines that are not blank; ParseError when there are none."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise ParseError(f"{what} printed nothing")
    return lines


def pairs(lines: Iterable[str], separator: str = ":") -> Iterator[tuple[str, str]]:
    """(key, value) of the lines that have the separator."""
    for line in lines:
        key, found, value = line.partition(separator)
        if found:
            yield key.strip(), value.strip()


def fields_of(line: str) -> dict[str, str]:
    """The key=value words of a line of ours; a value ends at the next TAB."""
    return dict(pairs((word for word in line.split("\t") if word), "="))
