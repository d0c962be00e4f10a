"""GPUs as AutoDetect would find them on a node, for slurmd's own test file fake_gpus.conf (interfaces/gpu.c)."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.conf.gpus import FLAGS, bus_order, device_file
from hpcadmin.conf.sockets import near_cores
from hpcadmin.gpu_types import autodetected
from hpcadmin.model import Gpu, Node
from hpcadmin.text import fold_ids

FILE = "fake_gpus.conf"
MAX_LINE = 250


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
