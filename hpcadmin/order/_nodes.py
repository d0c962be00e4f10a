"""One node against its group's order; which nodes are of a group that is ordered by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from hpcadmin.model import Dimm, Node
from hpcadmin.order import _devices
from hpcadmin.order._records import GroupOrder
from hpcadmin.order._result import Result, at_least, has_words, kind_of

# What firmware and kernel keep: of 2 TiB some 1.6 %; of little memory, more. A missing DIMM of 32 is 3 %.
_KERNEL_KEEPS = 0.03
_KERNEL_KEEPS_OF_LITTLE = 0.07
_LITTLE_GIB = 64


def compare(result: Result, node: Node, group: GroupOrder) -> None:
    name = node.name
    result.words(name, "vendor", group.vendor, node.vendor)
    result.words(name, "product", group.product, node.product)
    result.floor(name, "BIOS", group.bios, node.bios)
    result.words(name, "CPU model", group.cpu.model, node.cpu.model)
    result.count(name, "sockets", group.cpu.sockets, node.cpu.sockets)
    result.count(name, "cores per socket", group.cpu.cores_per_socket, node.cpu.cores_per_socket)
    result.count(name, "threads per core", group.cpu.threads_per_core, node.cpu.threads_per_core)
    _memory(result, node, group)
    driver = max((entry.driver for entry in group.gpus or ()), key=len, default="")
    for entry in group.gpus or ():
        if entry.driver and at_least(entry.driver, driver):
            driver = entry.driver
    if driver:
        result.floor(name, "GPU driver", driver, node.gpu_driver)
    _devices.compare(result, node, group)


def _memory(result: Result, node: Node, group: GroupOrder) -> None:
    ordered = group.memory
    populated = [dimm for dimm in node.dimms if dimm.size_mib]
    known = bool(populated) and not node.lacks("dimms") and not any(_size_unknown(dimm) for dimm in node.dimms)
    result.count(node.name, "DIMMs", ordered.dimms, len(populated) if known else None)
    if ordered.size_gib is not None:
        _total(result, node, ordered.size_gib, sum(dimm.size_mib or 0 for dimm in populated) if known else None)
    if ordered.dimm_gib is not None:
        wanted_mib = ordered.dimm_gib * 1024
        _each_dimm(result, node, "size of DIMMs", f"{ordered.dimm_gib:g} GiB", populated if known else [],
                   agrees=lambda dimm: dimm.size_mib == wanted_mib,
                   show=lambda dimm: f"{(dimm.size_mib or 0) / 1024:g} GiB")
    if ordered.dimm_mts is not None:
        speeds = populated if known and all(dimm.speed_mts for dimm in populated) else []
        _each_dimm(result, node, "speed of DIMMs", f"{ordered.dimm_mts} MT/s", speeds,
                   agrees=lambda dimm: dimm.speed_mts == ordered.dimm_mts, show=lambda dimm: f"{dimm.speed_mts} MT/s")


def _size_unknown(dimm: Dimm) -> bool:
    return dimm.size_mib is None and dimm.kind == "unknown"


def _total(result: Result, node: Node, ordered_gib: float, dimms_mib: int | None) -> None:
    """What the DIMMs add up to, and what the kernel has of it."""
    if dimms_mib is not None:
        agrees = dimms_mib == ordered_gib * 1024
        result.judge(node.name, "memory in DIMMs", f"{ordered_gib:g} GiB", f"{dimms_mib / 1024:g} GiB", agrees,
                     kind=kind_of(ordered_gib * 1024, dimms_mib))
        if not agrees:
            return
    if node.memory_mib is None:
        result.judge(node.name, "memory", "", "", None)
        return
    keeps = _KERNEL_KEEPS if ordered_gib > _LITTLE_GIB else _KERNEL_KEEPS_OF_LITTLE
    found = node.memory_mib / 1024
    agrees = found >= ordered_gib * (1 - keeps) and (dimms_mib is not None or found <= ordered_gib * 1.005)
    result.judge(node.name, "memory", f"{ordered_gib:g} GiB", f"{found:.1f} GiB", agrees,
                 kind=kind_of(ordered_gib, found))


def _each_dimm(result: Result, node: Node, item: str, ordered: str, dimms: list[Dimm], *,
               agrees: Callable[[Dimm], bool], show: Callable[[Dimm], str]) -> None:
    if not dimms:
        result.judge(node.name, item, ordered, "", None)
        return
    bad = [dimm for dimm in dimms if not agrees(dimm)]
    counts = Counter(show(dimm) for dimm in bad)
    found = ", ".join(f"{value} in {count} of {len(dimms)}" for value, count in sorted(counts.items()))
    if 0 < len(bad) <= 4:
        found += f" ({', '.join(dimm.slot for dimm in bad)})"
    result.judge(node.name, item, ordered, found, not bad)


class Places:
    """Which group a node is of: by its name, else by what it looks like."""

    def __init__(self, groups: Iterable[GroupOrder]) -> None:
        self.named = {host: group for group in groups for host in group.hosts}
        self.by_count = [group for group in groups if not group.hosts]
        self._seen: dict[tuple[object, ...], GroupOrder | None] = {}

    def group(self, node: Node) -> GroupOrder | None:
        if node.name in self.named:
            return self.named[node.name]
        key = (node.product, node.cpu.model, tuple(gpu.model for gpu in node.gpus), node.lacks("gpus"))
        if key not in self._seen:
            self._seen[key] = self._alike(node)
        return self._seen[key]

    def _alike(self, node: Node) -> GroupOrder | None:
        """The group that the node has most in common with; None where it has nothing in common with any."""
        best: tuple[int, GroupOrder | None] = (0, None)
        for group in self.by_count:
            told = _likeness(node, group)
            score = sum(told) if told else 1          # nothing by which to tell: every node will do
            if score > best[0]:
                best = (score, group)
        return best[1]


def _likeness(node: Node, group: GroupOrder) -> list[bool]:
    told: list[bool] = []
    for ordered, found in ((group.product, node.product), (group.cpu.model, node.cpu.model)):
        if ordered and found:
            told.append(has_words(found, ordered))
    if group.gpus is not None and not node.lacks("gpus"):
        told.append(len(node.gpus) == sum(entry.count for entry in group.gpus))
        told += [any(has_words(gpu.model, entry.model) for gpu in node.gpus) for entry in group.gpus if entry.model]
    return told
