"""The CPUs this very process may use: fewer than the node has when a capture was made inside a job or container."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import cpu_list, lines_of, pairs

NAME = "cpuset"
COMMAND = r"""
while read -r k v; do case $k in Cpus_allowed_list:) echo "$k $v";; esac; done </proc/self/status
"""


def parse(text: str) -> tuple[int, ...]:
    found = dict(pairs(lines_of(text, "/proc/self/status")))
    cpus = cpu_list(found.get("Cpus_allowed_list", ""), "Cpus_allowed_list")
    if not cpus:
        raise ParseError("/proc/self/status has no Cpus_allowed_list")
    return cpus
