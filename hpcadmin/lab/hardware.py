"""Simulated hardware for nodes of the lab: the files of one node, its device list, and Slurm's lines for it.

Memory is the machine's own: slurmd asks the kernel for it, and no file can change that answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
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
    port_values,
    write_cpuinfo,
    write_cpus,
    write_dmi,
    write_driver,
    write_hcas,
    write_nodes,
)
from hpcadmin.lab.hardware_tree import Tree

__all__ = ["FAULTS", "PORT_FAULTS", "Profile", "apply_faults", "build", "known_profiles", "load_profile", "slurm_lines"]

FAULTS = ("lost", "slow")
PORT_FAULTS = ("down", "slow", "errors")
ERRORS_AT_ONCE = {"symbol_error": 1000, "link_downed": 1, "port_rcv_errors": 50}
_FAULT_LINE = re.compile(r"gpu (\d{1,3}) (lost|slow)")
_PORT_LINE = re.compile(r"port ([a-z0-9_]{1,20}) (down|slow|errors)")


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
    """Make sysfs of a built node agree with its faults ("gpu 5 lost", "port mlx5_3 down"): a lost GPU stays listed, but
    its configuration space reads as all ones; a slow one has a link of eight lanes. The error counters of a port with
    errors go on with every call. No lines: all are healthy."""
    lines = list(lines)
    faults = parse_faults([line for line in lines if not line.startswith("port ")], len(profile.gpus))
    _apply_port_faults(profile, dest, parse_port_faults(lines, [nic.name for nic in profile.nics]))
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


def _apply_port_faults(profile: Profile, dest: Path, faults: Mapping[str, str]) -> None:
    for nic in profile.nics:
        port = dest / "sys/class/infiniband" / nic.name / "ports/1"
        fault = faults.get(nic.name, "")
        for name, value in port_values(profile.nic.rate_text, fault).items():
            write_atomic(port / name, f"{value}\n", mode=0o444)
        for name, more in ERRORS_AT_ONCE.items():
            before = int((port / "counters" / name).read_text())
            count = before + more if fault == "errors" else before if fault else 0
            write_atomic(port / "counters" / name, f"{count}\n", mode=0o444)


def parse_port_faults(lines: Iterable[str], ports: Collection[str]) -> dict[str, str]:
    """RDMA device -> fault, of the lines that are about ports."""
    faults: dict[str, str] = {}
    for line in lines:
        if line.startswith("port "):
            match = _PORT_LINE.fullmatch(line.strip())
            if match is None or match[1] not in ports:
                raise LabError(f"{line.strip()!r} is no fault of this node",
                               hint=f"{', '.join(ports)}: {', '.join(PORT_FAULTS)}")
            faults[match[1]] = match[2]
    return faults


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
