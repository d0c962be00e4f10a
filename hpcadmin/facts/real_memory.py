"""RealMemory as slurmd would count it: physical pages times the page size, as a float of 32 bits."""

from __future__ import annotations

import struct

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import integer, lines_of, pairs

NAME = "real_memory"
COMMAND = r"""
p=; while read -r k v u; do case $k in KernelPageSize:) p=$v; break;; esac; done </proc/self/smaps
while read -r k v u; do case $k in MemTotal:) echo "total_kib=$v"; break;; esac; done </proc/meminfo
[ -n "$p" ] || { p=$(getconf PAGESIZE) && p=$((p / 1024)); }
echo "page_kib=$p"
"""


def real_memory_mib(total_kib: int, page_kib: int) -> int:
    """slurmd: (float) pages * (page size / 1048576.0), as a whole number. Above 64 GiB it may be 1 more than MemTotal
    rounded down; never less."""
    pages = _float32(float(total_kib // page_kib))
    return int(_float32(pages * _float32(page_kib / 1024)))


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def parse(text: str) -> int:
    found = dict(pairs(lines_of(text, "/proc/meminfo"), "="))
    if not found.keys() >= {"total_kib", "page_kib"}:
        raise ParseError("the memory or the page size is missing")
    page = integer(found["page_kib"], "page size", low=1, high=65536)
    if page & (page - 1):
        raise ParseError(f"a page size of {page} KiB")
    return real_memory_mib(integer(found["total_kib"], "MemTotal", low=1024, high=1 << 44), page)
