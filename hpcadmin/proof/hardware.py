"""A node of the inventory as slurmd would find it: CPUs for hwloc, device nodes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from hpcadmin.model import Core, Cpu, Gpu, Node
from hpcadmin.proof.parts import Device, Hardware

# Majors as the kernel has them; of drivers that get theirs at run time, one of the range for such drivers.
NVIDIA, DRM, LOCAL = 195, 226, 240
_NVIDIA_FILE = re.compile(r"/dev/nvidia(\d{1,3})")
_RENDER_FILE = re.compile(r"/dev/dri/(?:renderD|card)(\d{1,3})")
_LAST_NUMBER = re.compile(r"(\d{1,6})\D*\Z")


def of_node(node: Node, *, more_files: Iterable[str] = ()) -> Hardware | str:
    """What slurmd finds on this node, or why that is not known. more_files: device files beside those of its GPUs."""
    made = synthetic(node.cpu)
    text = "" if made else xml(node.cpu)
    if not made and not text:
        return "its sockets, cores and threads are not known"
    files = [g.device_file or _file(g) for g in node.gpus]
    files += [path for g in node.gpus for path in _mig_files(g)]
    return Hardware(made, text, devices([*files, *more_files]))


def _file(gpu: Gpu) -> str:
    if gpu.minor is None:
        return ""
    return f"/dev/nvidia{gpu.minor}" if gpu.vendor == "nvidia" else f"/dev/dri/renderD{gpu.minor}"


def _mig_files(gpu: Gpu) -> Iterable[str]:
    """The driver numbers these by its own table; what gres.conf names is added by the caller."""
    return ["/dev/nvidiactl", "/dev/nvidia-uvm"] if gpu.mig_devices else []


def devices(files: Iterable[str]) -> tuple[Device, ...]:
    """A device for each path below /dev, with the major that its driver has; other paths are left out."""
    found: list[Device] = []
    for path in dict.fromkeys(files):
        if not path.startswith("/dev/") or posixpath.normpath(path) != path:
            continue
        nvidia, render, last = _NVIDIA_FILE.fullmatch(path), _RENDER_FILE.fullmatch(path), _LAST_NUMBER.search(path)
        major = NVIDIA if nvidia else DRM if render else LOCAL + len(path.split("/")) % 10
        match = nvidia or render or last
        found.append(Device(path, major, int(match[1]) if match else len(found)))
    return tuple(found)


# --- CPUs ----------------------------------------------------------------------------------------------------------


def _l3_of(cpu: Cpu) -> dict[int, int]:
    return {cpu_id: place for place, cpus in enumerate(cpu.l3) for cpu_id in cpus}


def synthetic(cpu: Cpu) -> str:
    """HWLOC_SYNTHETIC for CPUs whose levels are even: "pack:2 numa:4 core:16 pu:2", cores in the order of cpu.cores;
    "" where there is no such text."""
    if not cpu.cores:
        counts = (cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core)
        if any(n is None or n < 1 for n in counts):
            return ""
        return f"pack:{counts[0]} core:{counts[1]} pu:{counts[2]}"
    if any(not n.cpus for n in cpu.numa):
        return ""                            # memory without CPUs: only XML has it
    threads = {len(core.cpus) for core in cpu.cores}
    if len(threads) != 1 or 0 in threads:
        return ""
    levels: list[tuple[int, int, str, list[tuple[int, int]]]] = []
    for rank, (name, keys) in enumerate(_keys(cpu)):
        runs = _runs(keys)
        if not runs or len({end - start for start, end in runs}) != 1:
            return ""
        levels.append((-(runs[0][1] - runs[0][0]), rank, name, runs))
    words, above = [], len(cpu.cores)
    for size, _, name, _ in sorted(levels, key=lambda level: level[:2]):
        if above % -size:
            return ""
        words.append(f"{name}:{above // -size}")
        above = -size
    return " ".join([*words, f"core:{above}", f"pu:{threads.pop()}"])


def _keys(cpu: Cpu) -> list[tuple[str, list[int]]]:
    """For each level that is known, which of its objects each core is in."""
    found = [("pack", [core.socket for core in cpu.cores])]
    numa = [core.numa for core in cpu.cores]
    if all(n is not None for n in numa):
        found.append(("numa", [n for n in numa if n is not None]))
    l3 = _l3_of(cpu)
    if l3 and all(core.cpus[0] in l3 for core in cpu.cores):
        found.append(("l3", [l3[core.cpus[0]] for core in cpu.cores]))
    return found


def _runs(keys: Sequence[int]) -> list[tuple[int, int]]:
    """(start, end) of each run of equal keys; [] where one key has two runs."""
    runs: list[tuple[int, int]] = []
    seen: set[int] = set()
    for place, key in enumerate(keys):
        if place and keys[place - 1] == key:
            runs[-1] = (runs[-1][0], place + 1)
        elif key in seen:
            return []
        else:
            seen.add(key)
            runs.append((place, place + 1))
    return runs


def xml(cpu: Cpu) -> str:
    """The same as hwloc XML, for levels that are not even; "" where the cores are not known one by one."""
    if not cpu.cores or any(not core.cpus for core in cpu.cores):
        return ""
    keys = dict(_keys(cpu))
    if not _runs(keys["pack"]):
        return ""
    everything = [c for core in cpu.cores for c in core.cpus]
    nodes = [n.id for n in cpu.numa] or [0]
    memory = {n.id: n.memory_mib or 1024 for n in cpu.numa}
    inner = "".join(_package(cpu, keys, run, memory) for run in _runs(keys["pack"]))
    apart = "".join(_memory(n.id, (), n.memory_mib or 1024) for n in cpu.numa if not n.cpus)
    if "numa" not in keys and not cpu.numa:
        apart += _memory(0, everything, 1024)
    elif "numa" not in keys:
        apart += "".join(_memory(n.id, n.cpus, memory[n.id]) for n in cpu.numa if n.cpus)
    sets = _sets(everything, nodes)
    allowed = f' allowed_cpuset="{mask(everything)}" allowed_nodeset="{mask(nodes)}"'
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
            '<topology version="2.0">\n'
            f'<object type="Machine" os_index="0"{sets}{allowed}>\n{apart}{inner}</object>\n</topology>\n')


def _package(cpu: Cpu, keys: dict[str, list[int]], run: tuple[int, int], memory: dict[int, int]) -> str:
    start, end = run
    cores = cpu.cores[start:end]
    numa = keys.get("numa")
    own = list(dict.fromkeys(numa[start:end])) if numa else [0]
    cpus = [c for core in cores for c in core.cpus]
    if numa is None or len(own) == 1:
        mem = _memory(own[0], cpus, memory.get(own[0], 1024)) if numa else ""
        inner = mem + _cores(cpu, keys, start, end, own)
    else:
        inner = ""
        for first, last in _runs(numa[start:end]) or [(0, end - start)]:
            number = numa[start + first]
            part = [c for core in cpu.cores[start + first:start + last] for c in core.cpus]
            inner += (f'<object type="Group"{_sets(part, [number])} kind="0" subkind="0">\n'
                      f"{_memory(number, part, memory.get(number, 1024))}"
                      f"{_cores(cpu, keys, start + first, start + last, [number])}</object>\n")
    return f'<object type="Package" os_index="{cores[0].socket}"{_sets(cpus, own)}>\n{inner}</object>\n'


def _cores(cpu: Cpu, keys: dict[str, list[int]], start: int, end: int, nodes: Sequence[int]) -> str:
    """The cores, in their L3 caches where these lie inside."""
    l3 = keys.get("l3")
    if l3 is None:
        return "".join(_core(place, cpu.cores[place], nodes) for place in range(start, end))
    text = ""
    for first, last in _runs(l3[start:end]) or []:
        cores = range(start + first, start + last)
        cpus = [c for place in cores for c in cpu.cores[place].cpus]
        text += (f'<object type="L3Cache"{_sets(cpus, nodes)} cache_size="33554432" depth="3" cache_linesize="64" '
                 'cache_associativity="16" cache_type="0">\n'
                 f'{"".join(_core(place, cpu.cores[place], nodes) for place in cores)}</object>\n')
    return text or _cores(cpu, {}, start, end, nodes)


def _core(place: int, core: Core, nodes: Sequence[int]) -> str:
    pus = "".join(f'<object type="PU" os_index="{c}"{_sets([c], nodes)}/>' for c in core.cpus)
    return f'<object type="Core" os_index="{place}"{_sets(core.cpus, nodes)}>{pus}</object>\n'


def _memory(number: int, cpus: Iterable[int], mib: int) -> str:
    return (f'<object type="NUMANode" os_index="{number}"{_sets(cpus, [number])} '
            f'local_memory="{mib * 2 ** 20}"><page_type size="4096" count="{mib * 256}"/></object>\n')


def _sets(cpus: Iterable[int], nodes: Iterable[int]) -> str:
    cpu_mask, node_mask = mask(cpus), mask(nodes)
    return (f' cpuset="{cpu_mask}" complete_cpuset="{cpu_mask}" nodeset="{node_mask}" '
            f'complete_nodeset="{node_mask}"')


def mask(ids: Iterable[int]) -> str:
    """hwloc's text of a bitmap: words of 32 bits, the highest first."""
    number = sum(1 << i for i in set(ids))
    words = []
    while number:
        words.append(f"0x{number & 0xffffffff:08x}")
        number >>= 32
    return ",".join(reversed(words)) or "0x0"
