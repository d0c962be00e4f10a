"""What a node's GPUs and network ports must be, from the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcadmin.health.genconf_want import Want
from hpcadmin.model import Gpu, Nic, Node

BOTH = ["health", "prolog"]


def wants(node: Node) -> Iterator[Want]:
    nvidia = [gpu for gpu in node.gpus if gpu.vendor == "nvidia"]
    if nvidia and "gpus" not in node.unknown:
        yield from _gpus(node, nvidia)
    amd = [gpu for gpu in node.gpus if gpu.vendor == "amd"]
    if amd and "gpus" not in node.unknown:
        yield Want.of("gpu_amd", f"{len(amd)}", count=len(amd), vbios=_all(amd, "vbios"),
                      width=_same(amd, "pcie_width_max"), when=BOTH)
    yield from _rdma(node)
    yield from _ethernet(node)


def _same(gpus: Sequence[Gpu], name: str) -> int | None:
    """The number that all of them have."""
    values = {getattr(gpu, name) for gpu in gpus}
    return values.pop() if len(values) == 1 else None


def _gpus(node: Node, gpus: Sequence[Gpu]) -> Iterator[Want]:
    models = sorted({gpu.model for gpu in gpus if gpu.model})
    label = f"{len(gpus)}x{models[0].removeprefix('NVIDIA ')}" if len(models) == 1 else f"{len(gpus)}"
    memory = [gpu.memory_mib for gpu in gpus if gpu.memory_mib]
    yield Want.of("gpu", label, count=len(gpus), model=one_of(models) if models else None,
                  min_memory_mib=min(memory) if len(memory) == len(gpus) else None, when=BOTH)
    yield Want.of("gpu_driver", label, driver=node.gpu_driver or None, vbios=_all(gpus, "vbios"),
                  ecc=_all(gpus, "ecc"), persistence=_all(gpus, "persistence"), mig=_all(gpus, "mig"),
                  compute=_all(gpus, "compute_mode"))
    yield Want.of("gpu_pcie", label, width=_same(gpus, "pcie_width_max"), gen=_same(gpus, "pcie_gen_max"))
    links = _same(gpus, "nvlinks_active")
    if links and not any(gpu.nvlinks_inactive for gpu in gpus):
        yield Want.of("gpu_nvlink", f"{links}", links=links)
        yield Want.of("gpu_nvlink_errors", "")
    if all(gpu.fabric_state == "Completed" for gpu in gpus):
        yield Want.of("gpu_fabric", "", required=True,
                      clique=True if all(gpu.fabric_clique not in ("", "0", "N/A") for gpu in gpus) else None)
    for use in ("gpu_ecc", "gpu_xid", "gpu_temperature", "gpu_throttle", "gpu_processes"):
        yield Want.of(use, "")


def _all(gpus: Sequence[Gpu], name: str) -> str | None:
    """The values of all GPUs as one mask, if each has one that means something."""
    values = {str(getattr(gpu, name)) for gpu in gpus}
    return None if values & {"", "N/A", "[N/A]", "Not Supported"} else one_of(sorted(values))


def one_of(texts: Sequence[str]) -> str:
    """A mask that matches each of these texts and nothing else."""
    if len(texts) == 1 and not set(texts[0]) & set("*?[]\\") and texts[0][:1] not in ("!", "{") and (
            texts[0][:1] != "/" or len(texts[0]) == 1 or texts[0][-1:] != "/"):
        return texts[0]
    return "/^(" + "|".join(re.escape(text).replace("\\ ", " ").replace("\\-", "-") for text in texts) + ")$/"


def _rdma(node: Node) -> Iterator[Want]:
    """Each port that was active must be active, at its rate; what was not active then is let be, and named."""
    ports = [nic for nic in node.nics if nic.rdma and not nic.virtual]
    for layer in ("InfiniBand", "Ethernet"):
        mine = [nic for nic in ports if nic.link_layer == layer]
        active = [nic for nic in mine if nic.state.upper() in ("ACTIVE", "UP") and not nic.pf]
        idle = sorted(_port(nic) for nic in mine if nic not in active)
        rates = {nic.rate_gbps for nic in active}
        for rate in sorted(rates, key=lambda value: value or 0):
            same = [nic for nic in active if nic.rate_gbps == rate]
            whole = len(rates) == 1
            yield Want.of("ib", f"{len(same)}x{rate or 0:g}" + ("" if layer == "InfiniBand" else "-roce"),
                          device="*" if whole else one_of(sorted(_port(nic) for nic in same)), ports=len(same),
                          min_gbps=rate, layer=layer.lower() if layer == "Ethernet" else None,
                          ignore=idle if whole else None, when=BOTH,
                          notes=(f"not active when it was discovered: {', '.join(idle)}",) if idle and whole else ())


def _port(nic: Nic) -> str:
    return f"{nic.rdma}:{nic.port}" if nic.port else nic.rdma


def _ethernet(node: Node) -> Iterator[Want]:
    """Interfaces with hardware behind them that were up."""
    for nic in node.nics:
        name = nic.netdev or nic.name
        if nic.virtual or nic.pf or nic.link_layer == "InfiniBand" or nic.state.lower() not in ("up", "active") or (
                nic.rdma and not nic.netdev) or not name:
            continue
        yield Want.of("link", name, name=one_of([name]), min_mbps=nic.rate_gbps * 1000 if nic.rate_gbps else None,
                      mtu=nic.mtu)
