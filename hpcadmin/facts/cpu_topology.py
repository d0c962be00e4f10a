"""CPU topology as the kernel tells it in /sys, without a process for each CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import MAX_CPU, cpu_list, integer, lines_of, quote

NAME = "cpu_topology"
LIMIT = 4 * 1024 * 1024
# cpu ID PACKAGE DIE CLUSTER CORE L3-CPUS; "-" where the kernel has no such file. The siblings come from grep: a shell's
# `read` takes a byte at a time, and the kernel (5.15 and later) answers a read of one byte of these files with nothing.
COMMAND = r"""
c=/sys/devices/system/cpu
[ -d $c ] || return 127
for k in online offline possible; do
  v=-; { read -r v <$c/$k; } 2>/dev/null; echo "$k ${v:--}"
done
for d in $c/cpu[0-9]*; do
  [ -d "$d" ] || continue
  p=-; i=-; u=-; o=-; l=; v=-
  { read -r p <$d/topology/physical_package_id; } 2>/dev/null
  { read -r i <$d/topology/die_id; } 2>/dev/null
  { read -r u <$d/topology/cluster_id; } 2>/dev/null
  { read -r o <$d/topology/core_id; } 2>/dev/null
  { read -r l <$d/cache/index3/level; } 2>/dev/null
  [ "$l" = 3 ] && { read -r v <$d/cache/index3/shared_cpu_list; } 2>/dev/null
  echo "cpu ${d##*/cpu} ${p:--} ${i:--} ${u:--} ${o:--} ${v:--}"
done
cd $c && grep -s . cpu[0-9]*/topology/thread_siblings_list /dev/null
echo end=cpu
"""
MAX_IDS = 4_000_000      # in all lists of one node together
_SIBLINGS = re.compile(r"cpu([0-9]{1,5})/topology/thread_siblings_list:([0-9,-]{1,4000})\Z")


@dataclass(frozen=True)
class CpuLine:
    """One CPU as the kernel describes it; None where it does not say."""

    cpu: int
    package: int | None
    die: int | None
    cluster: int | None
    core: int | None
    siblings: tuple[int, ...] = ()
    l3: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()     # CPUs under further caches, where a source names them


@dataclass(frozen=True)
class CpuTopology:
    online: tuple[int, ...]
    offline: tuple[int, ...]
    cpus: tuple[CpuLine, ...]       # those online, by id


def parse(text: str) -> CpuTopology:
    """Raises ParseError unless every online CPU has its line and its siblings."""
    lines = lines_of(text, "/sys/devices/system/cpu")
    if lines[-1] != "end=cpu":
        raise ParseError("the CPU topology is cut off")
    lists: dict[str, tuple[int, ...]] = {}
    found: dict[int, CpuLine] = {}
    siblings: dict[int, tuple[int, ...]] = {}
    total = 0
    known: dict[str, tuple[int, ...]] = {}           # lists by their text: many CPUs share one
    for line in lines[:-1]:
        words = line.split()
        match = _SIBLINGS.match(line)
        if match:
            siblings[integer(match[1], "CPU id", high=MAX_CPU)] = cpu_list(match[2], "thread_siblings_list")
            total += len(siblings[int(match[1])])
        elif words[0] in ("online", "offline", "possible") and len(words) == 2:
            lists[words[0]] = () if words[1] == "-" else cpu_list(words[1], words[0])
        elif words[0] == "cpu" and len(words) == 7:
            before = len(known)
            entry = _cpu(words, known)
            total += len(entry.l3) if len(known) > before else 0
            found[entry.cpu] = entry
        else:
            raise ParseError(f"{quote(line)} is not a line of the CPU topology")
        if total > MAX_IDS:
            raise ParseError("the lists of CPUs are longer than those of any machine")
    online = lists.get("online") or tuple(sorted(found.keys() & siblings.keys()))
    if not online:
        raise ParseError("no CPU is online")
    missing = [cpu for cpu in online if cpu not in found or cpu not in siblings]
    if missing:
        raise ParseError(f"CPU {missing[0]} is online but its topology is missing")
    offline = tuple(cpu for cpu in lists.get("offline", ()) if cpu in found)
    return CpuTopology(online, offline, tuple(replace(found[cpu], siblings=siblings[cpu]) for cpu in online))


def _cpu(words: list[str], known: dict[str, tuple[int, ...]]) -> CpuLine:
    package, die, cluster, core = (_id(word) for word in words[2:6])
    l3 = known.get(words[6])
    if l3 is None:
        l3 = known[words[6]] = () if words[6] == "-" else cpu_list(words[6], "shared_cpu_list")
    return CpuLine(integer(words[1], "CPU id", high=MAX_CPU), package, die, cluster, core, l3=l3)


def _id(word: str) -> int | None:
    if word == "-":
        return None
    number = integer(word, "topology id", low=-1, high=1 << 32)
    # -1, and 65535 for clusters, is the kernel's "unknown".
    return None if number in (-1, 65535) else number
