"""The hardware of the oracle's cases as an inventory has it."""

from __future__ import annotations

import conf_models as m
from digest_models import EPYC
from oracle_cases import A100, H100, L3, NODE, SMALL, Case

from hpcadmin.model import Gpu, Inventory, Node

CPUS = {A100: m.NPS4_CPU, H100: m.H100_CPU, L3: EPYC, SMALL: m.cpu(2, 4, 1), "pack:2 core:64 pu:2": m.cpu(2, 64),
        "pack:2 numa:1 core:4 pu:1": m.cpu(2, 4, 1)}
MEMORY_MIB = 1024                        # RealMemory=1000 of the cases, and some more


def inventory(case: Case) -> Inventory:
    """Which cores are near its GPUs is not known: the files are judged for what they say themselves."""
    gpus = tuple(Gpu("nvidia", n, "", f"GPU-{n}", "", f"0000:{0x10 + n:02x}:00.0", n, f"/dev/nvidia{n}")
                 for n in range(case.gpus))
    node = Node(NODE, cpu=CPUS[case.cpus], memory_mib=MEMORY_MIB, real_memory_mib=MEMORY_MIB, gpus=gpus)
    return Inventory((node,))
