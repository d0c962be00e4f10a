"""GPUs as AutoDetect finds them on a node: what the driver shows, or slurmd's own test file fake_gpus.conf where a
library would be asked (interfaces/gpu.c)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.gpus import FLAGS, device_file
from hpcadmin.conf.sockets import near_cores
from hpcadmin.gpu_types import autodetected
from hpcadmin.model import Gpu, Node
from hpcadmin.text import fold_ids

MAX_LINE = 250
BY_DRIVER = ("nvidia", "full")           # of AutoDetect=: needs no library, only /proc and /sys
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")


def driver(node: Node) -> tuple[tuple[str, str, str], ...]:
    """For each NVIDIA GPU its PCI address, and what the driver tells; () where the inventory lacks some of it."""
    found = []
    for gpu in node.gpus:
        if gpu.vendor != "nvidia" or gpu.minor is None or not _ADDRESS.match(gpu.pci):
            return ()
        cpus = fold_ids(gpu.local_cpus or (c for core in node.cpu.cores for c in core.cpus))
        information = (f"Model: \t\t {_one_line(gpu.model)}\nIRQ:   \t\t 0\nGPU UUID: \t {_one_line(gpu.uuid)}\n"
                       f"Bus Type: \t PCIe\nBus Location: \t {gpu.pci}\nDevice Minor: \t {gpu.minor}\n")
        found.append((gpu.pci, information, cpus))
    return tuple(found)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def fake_gpus(node: Node) -> tuple[str, str]:
    """(text, ""), or ("", why there is none). Types are the tools' names; links are only each GPU's own place."""
    order = bus_order(node.gpus)
    if isinstance(order, str):
        return "", order
    if any(gpu.mig_devices or gpu.mig.casefold() == "enabled" for gpu in order):
        return "", "MIG devices under AutoDetect: there is no test file for them"
    lines = [_line(node, order, place) for place in range(len(order))]
    wrong = next((line for line in lines if len(line) > MAX_LINE or "|" in line.replace("|", "", 6)), "")
    return ("", f"a detected GPU cannot be written down: {wrong[:80]}") if wrong else ("\n".join(lines) + "\n", "")


def _line(node: Node, gpus: Sequence[Gpu], place: int) -> str:
    gpu = gpus[place]
    near = near_cores(node.cpu, gpu).cores
    cores = fold_ids(near) if near else f"0-{max(len(node.cpu.cores), (node.cpu.cpus or 1) // _threads(node)) - 1}"
    links = ",".join("-1" if other == place else "0" for other in range(len(gpus)))
    return "|".join([autodetected(gpu.model) or "(null)", str(node.cpu.cpus or 0), cores, links, device_file(gpu)[0],
                     "(null)", FLAGS.get(gpu.vendor, "(null)")])


def _threads(node: Node) -> int:
    return node.cpu.threads_per_core or 1
