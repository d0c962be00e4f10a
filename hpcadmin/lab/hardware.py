"""Simulated hardware for nodes of the lab: the files of one node, its device list, and Slurm's lines for it.

Memory is the machine's own: slurmd asks the kernel for it, and no file can change that answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from hpcadmin.errors import LabError
from hpcadmin.files import write_atomic
from hpcadmin.lab import hardware_standins
from hpcadmin.lab.hardware_hwloc import hwloc_xml
from hpcadmin.lab.hardware_pci import SPEEDS, config_space, fallen_config, pci_nodes, write_pci
from hpcadmin.lab.hardware_profile import Profile, id_list, known_profiles, load_profile
from hpcadmin.lab.hardware_smi import write_smi
from hpcadmin.lab.hardware_sys import (
    device_list,
    gpu_table,
    write_cpuinfo,
    write_cpus,
    write_dmi,
    write_driver,
    write_hcas,
    write_nodes,
)
from hpcadmin.lab.hardware_tree import Tree

__all__ = ["FAULTS", "Profile", "apply_faults", "build", "known_profiles", "load_profile", "slurm_lines"]

FAULTS = ("lost", "slow")
_FAULT_LINE = re.compile(r"gpu (\d{1,3}) (lost|slow)")


def build(profile: Profile, dest: Path, seed: str) -> None:
    """Write the files of one node to `dest`, a new or empty folder; serials and UUIDs follow from `seed`."""
    if dest.exists() and any(dest.iterdir()):
        raise LabError("the folder for a node's simulated hardware is not empty", where=str(dest))
    memory_kib = os.sysconf("SC_PHYS_PAGES") * (os.sysconf("SC_PAGE_SIZE") // 1024)
    pci = pci_nodes(profile)
    tree = Tree(dest)
    write_cpus(tree, profile.cpu)
    write_nodes(tree, profile.cpu, memory_kib)
    write_pci(tree, profile)
    write_hcas(tree, profile, seed)
    write_dmi(tree, profile, seed)
    write_cpuinfo(tree, profile.cpu)
    write_driver(tree, profile, seed)
    write_smi(tree, profile, seed)
    tree.file("hwloc.xml", hwloc_xml(profile, pci, memory_kib))
    tree.file("gpus.tsv", gpu_table(profile, seed))
    tree.file("dev.list", device_list(profile, pci))
    tree.value("simulated", profile.name)
    hardware_standins.install(dest / "bin")


def slurm_lines(profile: Profile) -> tuple[str, str]:
    """What the node's line in slurm.conf gets, and its lines of gres.conf with {node} for its name."""
    cpu, gpu = profile.cpu, profile.gpu
    count = len(profile.gpus)
    node = (f"Sockets={cpu.sockets} CoresPerSocket={cpu.cores_per_socket} ThreadsPerCore={cpu.threads_per_core} "
            f"Gres=gpu:{gpu.type}:{count}")
    lines = []
    for one in profile.gpus:
        first = one.numa * cpu.cores_per_socket
        cores = id_list(tuple(range(first, first + cpu.cores_per_socket)))
        links = ",".join("-1" if other.index == one.index else str(profile.nvlink(one.index, other.index))
                         for other in profile.gpus)
        lines.append(f"NodeName={{node}} AutoDetect=off Name=gpu Type={gpu.type} File=/dev/nvidia{one.minor} "
                     f"Cores={cores} Links={links} Flags=nvidia_gpu_env\n")
    return node, "".join(lines)


def apply_faults(profile: Profile, dest: Path, lines: Iterable[str]) -> None:
    """Make sysfs of a built node agree with the lines of its fault file ("gpu 5 lost"): a lost GPU stays listed, but
    its configuration space reads as all ones; a slow one has a link of eight lanes. No lines: all are healthy."""
    faults = parse_faults(lines, len(profile.gpus))
    nodes = {node.address: node for node in pci_nodes(profile)}
    for gpu in profile.gpus:
        node = nodes[gpu.pci]
        fault = faults.get(gpu.index, "")
        width = min(gpu.width, 8) if fault == "slow" else gpu.width
        folder = dest / "sys/bus/pci/devices/.tree" / node.path
        lost = fault == "lost"
        write_atomic(folder / "config", fallen_config() if lost else config_space(node, width=width), mode=0o444)
        write_atomic(folder / "current_link_width", f"{63 if lost else width}\n", mode=0o444)
        write_atomic(folder / "current_link_speed", "Unknown\n" if lost else f"{SPEEDS[node.gen]}\n", mode=0o444)


def parse_faults(lines: Iterable[str], gpus: int) -> dict[int, str]:
    """GPU index -> fault. Raises LabError for a line that is none, or a GPU that the node has not."""
    faults: dict[int, str] = {}
    for line in lines:
        if not line.strip():
            continue
        match = _FAULT_LINE.fullmatch(line.strip())
        if match is None or int(match[1]) >= gpus:
            raise LabError(f"{line.strip()!r} is no fault of this node",
                           hint=f"gpu 0 to {gpus - 1}, {' or '.join(FAULTS)}")
        faults[int(match[1])] = match[2]
    return faults
