"""NUMA nodes from /sys/devices/system/node: their CPUs, their memory and their distances."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import cpu_list, integer, lines_of, quote
from hpcadmin.model import NumaNode

NAME = "numa"
# node ID MEMTOTAL-KB; then grep's lines with the CPUs (none for a node without CPUs) and the distances.
COMMAND = r"""
n=/sys/devices/system/node
[ -d $n ] || return 127
for d in $n/node[0-9]*; do
  [ -d "$d" ] || continue
  m=-
  { while read -r a b k v u; do case $k in MemTotal:) m=$v; break;; esac; done <$d/meminfo; } 2>/dev/null
  echo "node ${d##*/node} $m"
done
cd $n && grep -s . node[0-9]*/cpulist node[0-9]*/distance /dev/null
echo end=numa
"""
_DISTANCES = re.compile(r"node([0-9]{1,5})/distance:([0-9 ]{1,20000})\Z")
_CPUS = re.compile(r"node([0-9]{1,5})/cpulist:([0-9,-]{1,100000})\Z")


def parse(text: str) -> tuple[NumaNode, ...]:
    lines = lines_of(text, "/sys/devices/system/node")
    if lines[-1] != "end=numa":
        raise ParseError("the list of NUMA nodes is cut off")
    memory: dict[int, int | None] = {}
    cpus: dict[int, tuple[int, ...]] = {}
    distances: dict[int, tuple[int, ...]] = {}
    for line in lines[:-1]:
        words, match = line.split(), _CPUS.match(line)
        if match:
            cpus[int(match[1])] = cpu_list(match[2], "cpulist")
        elif far := _DISTANCES.match(line):
            distances[int(far[1])] = tuple(integer(word, "distance", high=1 << 16) for word in far[2].split())
        elif words[0] == "node" and len(words) == 3:
            number = integer(words[1], "NUMA node", high=65535)
            memory[number] = None if words[2] == "-" else integer(words[2], "MemTotal") // 1024
        else:
            raise ParseError(f"{quote(line)} is not a line about a NUMA node")
    if not cpus or cpus.keys() - memory.keys():
        raise ParseError("no NUMA node has a list of CPUs" if not cpus else "a NUMA node with CPUs is missing")
    seen: set[int] = set()
    for number, own in cpus.items():
        if not seen.isdisjoint(own):
            raise ParseError(f"a CPU of node {number} is in two NUMA nodes")
        seen.update(own)
    sound = all(len(distances.get(number, ())) == len(memory) for number in memory)
    return tuple(NumaNode(number, cpus.get(number, ()), memory[number], distances[number] if sound else ())
                 for number in sorted(memory))
