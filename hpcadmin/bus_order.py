"""The order of a node's GPUs on its PCI bus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hpcadmin.model import Gpu

_PCI = re.compile(r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


def bus_order(gpus: Sequence[Gpu]) -> tuple[Gpu, ...] | str:
    """The GPUs in PCI bus order, which is the index that jobs see; or why it cannot be told. Partitions of one AMD GPU
    are at one address, and in the order of their render devices."""
    places = []
    for gpu in gpus:
        match = _PCI.fullmatch(gpu.pci)
        if not match:
            return "the PCI address of " + (f"GPU {gpu.index}" if gpu.index is not None else "a GPU") + " is not known"
        places.append((*(int(part, 16) for part in match.groups()), gpu.minor if gpu.vendor == "amd" else None))
    order = sorted(zip(places, gpus, strict=True), key=lambda pair: (pair[0][:4], pair[0][4] or 0))
    for (one, first), (other, second) in pairwise(order):
        if one[:4] == other[:4] and (one == other or None in (one[4], other[4])):
            return f"two GPUs have the same PCI address {first.pci}" + (
                ", and their render devices are not known" if first.vendor == second.vendor == "amd" else "")
    return tuple(gpu for _, gpu in order)
