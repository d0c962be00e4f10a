"""Features= and Weight= of a node line from its hardware: what jobs may ask for with --constraint, and which nodes are
taken first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hpcadmin.model import Nic

# The generation that a port's rate text names: "400 Gb/sec (4X NDR)".
_GENERATION = re.compile(r"\b(?:\d{1,2}X )?(XDR|NDR|HDR|EDR|FDR|QDR|DDR|SDR)(?:200|100|10)?\b", re.IGNORECASE)
_CPU_NOISE = re.compile(r"\((?:r|tm)\)|@.*|\b(?:cpu|processor|[0-9]{1,3}-cores?|with radeon graphics)\b", re.IGNORECASE)
_FAMILIES = ("epyc", "xeon", "threadripper", "ryzen", "opteron", "core", "neoverse", "altra", "a64fx", "thunderx2",
             "kunpeng")
_TIERS = frozenset({"platinum", "gold", "silver", "bronze", "max", "pro", "intel", "amd", "genuine"})
MIB_PER_STEP = 64 * 1024
_LONGEST = 24                    # of a word in a CPU's name


def automatic(types: Iterable[str], cpu_model: str, nics: Sequence[Nic]) -> tuple[str, ...]:
    """GPU types, the CPU, the fabric; what is not known is left out."""
    return tuple(dict.fromkeys([*types, *cpu(cpu_model), *network(nics)]))


@lru_cache(maxsize=1024)
def cpu(model: str) -> tuple[str, ...]:
    """epyc9654, xeon8480, neoversev2; () for a model whose family is not known."""
    words = [w for w in re.split(r"[^a-z0-9]+", _CPU_NOISE.sub(" ", model.casefold())) if w]
    power = next((w for w in words if re.fullmatch(r"power\d{1,2}", w)), "")
    family = next((family for family in _FAMILIES if family in words), "")
    if any(len(word) > _LONGEST for word in words):
        return ()
    if power or not family:
        return (power,) if power else ()
    rest = [w for w in words[words.index(family) + 1:] if w not in _TIERS][:3]
    if rest and re.fullmatch(r"[ewi]\d", rest[0]):        # Xeon E5-2698 v4, Core i9-13900K
        return ("".join((family, *rest[:2], *(w for w in rest[2:] if re.fullmatch(r"v\d", w)))),)
    return (family + (rest[0] if rest else ""),)


def network(nics: Sequence[Nic]) -> tuple[str, ...]:
    """ndr for InfiniBand; roce and 200g for RDMA over Ethernet; 25g for the wired network of a node without RDMA: of
    the fastest ports that are up."""
    real = [n for n in nics if not n.virtual and n.rate_gbps]
    rdma = [n for n in real if n.rdma and n.state.upper() == "ACTIVE" and n.link_layer in ("InfiniBand", "Ethernet")]
    if rdma:
        best = max(rdma, key=lambda n: (n.rate_gbps or 0.0, n.link_layer))
        if best.link_layer == "Ethernet":
            return "roce", f"{best.rate_gbps:g}g"
        match = _GENERATION.search(best.rate_text)
        return (match[1].casefold() if match else f"ib{best.rate_gbps:g}",)
    wired = [n for n in real if not n.rdma and n.state.casefold() == "up" and n.link_layer in ("", "Ethernet")]
    rate = max((n.rate_gbps or 0.0 for n in wired), default=0.0)
    return (f"{rate:g}g",) if rate >= 1 else ()


def weight(gpus: int, memory_mib: int) -> int:
    """A node with fewer GPUs, and then with less memory, is lighter: Slurm takes light nodes first."""
    return 1 + 100 * gpus + min(memory_mib // MIB_PER_STEP, 99)
