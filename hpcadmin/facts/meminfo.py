"""Memory from /proc/meminfo."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import integer, lines_of, pairs, quote

NAME = "meminfo"
COMMAND = r"""
while read -r k v u; do case $k in MemTotal:|HugePages_Total:|Hugepagesize:|SwapTotal:) echo "$k $v $u";; esac
done </proc/meminfo
"""


def parse(text: str) -> int:
    """MemTotal in MiB, rounded down."""
    found = dict(pairs(lines_of(text, "/proc/meminfo")))
    if "MemTotal" not in found:
        raise ParseError("/proc/meminfo has no MemTotal")
    number, _, unit = found["MemTotal"].partition(" ")
    if unit.strip() != "kB":
        raise ParseError(f"MemTotal: {quote(found['MemTotal'])} is not in kB")
    return integer(number, "MemTotal", low=1) // 1024
