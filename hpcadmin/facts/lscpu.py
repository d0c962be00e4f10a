"""`lscpu`, as text: model and architecture, and counts to check the kernel's topology against."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, cpu_list, lines_of, maybe_integer, pairs

NAME = "lscpu"
COMMAND = "run 20 lscpu"


@dataclass(frozen=True)
class Lscpu:
    """None where lscpu says nothing (it leaves lines out, and prints "-" for what does not apply)."""

    architecture: str = ""
    model: str = ""
    cpus: int | None = None
    online: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    numa: dict[int, tuple[int, ...]] | None = None
    hypervisor: str = ""


def parse(text: str) -> Lscpu:
    found: dict[str, str] = {}
    differs: set[str] = set()
    for key, value in pairs(lines_of(text, "lscpu")):
        if found.setdefault(key, value) != value:
            differs.add(key)              # hybrid machines have a block for each kind of core
    if "CPU(s)" not in found or not found.keys() & {"Thread(s) per core", "Socket(s)", "NUMA node(s)"}:
        raise ParseError("not the output of lscpu, or cut off: no line CPU(s), or nothing about threads and sockets")
    numa = {number: cpu_list(value, key) for key, value in found.items() if (number := _numa_id(key)) is not None}
    count = maybe_integer(found.get("NUMA node(s)"))
    if count is not None and count != len(numa):
        raise ParseError(f"lscpu counts {count} NUMA nodes and lists {len(numa)}: cut off")

    def told(key: str) -> int | None:
        return None if key in differs else maybe_integer(found.get(key))

    return Lscpu(
        architecture=clean(found.get("Architecture", "")), model=clean(found.get("Model name", "")),
        cpus=maybe_integer(found["CPU(s)"]),
        online=cpu_list(found.get("On-line CPU(s) list", ""), "On-line CPU(s) list"),
        offline=cpu_list(found.get("Off-line CPU(s) list", ""), "Off-line CPU(s) list"),
        sockets=told("Socket(s)"),
        # With books and drawers (s390) the counts are of another hierarchy.
        cores_per_socket=told("Core(s) per socket") if "Socket(s)" in found else None,
        threads_per_core=told("Thread(s) per core"),
        numa=numa or None, hypervisor=clean(found.get("Hypervisor vendor", "")),
    )


def _numa_id(key: str) -> int | None:
    """3 for "NUMA node3 CPU(s)"."""
    words = key.split()
    if len(words) == 3 and words[0] == "NUMA" and words[1].startswith("node") and words[2] == "CPU(s)":
        return maybe_integer(words[1][4:])
    return None
