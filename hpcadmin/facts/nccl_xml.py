"""NCCL's and RCCL's topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE): NUMA nodes, PCI tree, GPUs, links and NICs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _links
from hpcadmin.facts._base import MAX_CPU, clean, maybe_integer, pci_address, pci_key, quote
from hpcadmin.facts._elements import Element, blocks, elements
from hpcadmin.facts._nccl import (
    NcclCpu,
    NcclGpu,
    NcclLink,
    NcclNic,
    NcclTopology,
    nearest,
    vendor_of,
    width_fault,
)
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.text import fold_ids

FORMS = ("xml", "text")
MARKS = ("<system",)
_WORD = re.compile(r"[0-9a-fA-F]{1,8}\Z")
_ONE_WORD = re.compile(r"(?:0x)?([0-9a-fA-F]{1,4096})\Z")
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
_FAMILY_X86 = 15


def read(document: Document) -> tuple[Reading, ...]:
    return tuple(reading for first, text in blocks(document.lines, "system")
                 for reading in _readings(text, first, document.name))


def parse(text: str) -> NcclTopology:
    """The first node's topology in a text."""
    for first, block in blocks(text.split("\n"), "system"):
        root, _, _ = elements(block, first)
        return _topologies(root)[0]
    raise ParseError("no <system> element: not a topology file of NCCL")


def _readings(text: str, first: int, name: str) -> Iterator[Reading]:
    try:
        root, broken, why = elements(text, first)
        if not any("numaid" in child.attributes for child in root.children if child.tag == "cpu") and \
                root.attributes.keys() != {"version"}:
            return                       # another program's <system>
        found = _topologies(root)
    except ParseError as exc:
        raise ParseError(exc.what, where=exc.where or f"{name}:{first}") from exc
    last = first + text.count("\n")
    for topology in found:
        yield _reading(topology, first, last, (broken, why))


@dataclass
class _Walk:
    """What is collected on the way down one host's elements."""

    cpus: list[NcclCpu] = field(default_factory=list)
    gpus: list[NcclGpu] = field(default_factory=list)
    nics: list[NcclNic] = field(default_factory=list)
    unclassed: list[tuple[str, int | None]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    number: int = 0

    def cpu(self, element: Element) -> None:
        get = element.attributes.get
        cpu = NcclCpu(
            numa=_number(get("numaid"), low=-1), affinity=clean(get("affinity", ""), 10_000).lower(),
            cpus=affinity_cpus(get("affinity", "")), architecture=clean(get("arch", "")),
            vendor=clean(get("vendor", "")), family=_number(get("familyid")), model=_number(get("modelid")),
            line=element.line)
        self.cpus.append(cpu)
        self.number += 1
        self.below(element, cpu, (self.number,))

    def below(self, element: Element, cpu: NcclCpu, path: tuple[int, ...]) -> None:
        for child in element.children:
            if child.tag == "pci":
                self.pci(child, cpu, path)
            elif child.tag == "nic":
                self.nets(child, None, cpu, path)

    def pci(self, element: Element, cpu: NcclCpu, path: tuple[int, ...]) -> None:
        address = pci_address(element.attributes.get("busid", ""))
        if not address:
            raise ParseError(f"the <pci> in line {element.line} has no PCI address: "
                             f"{quote(element.attributes.get('busid', ''))}")
        self.addresses.append(address)
        kind = element.attributes.get("class", "").strip().lower()
        inner = {child.tag: child for child in element.children}
        if "gpu" in inner or kind.startswith(_GPU_CLASSES):
            self.gpus.append(_gpu(element, inner.get("gpu"), address, cpu, path))
        elif any(child.tag == "nic" and child.children for child in element.children):
            for child in element.children:
                self.nets(child, element, cpu, path)
        elif kind.startswith("0x02"):
            self.nics.append(_nic(Element("net", {}, element.line), element, cpu, path))
        elif not kind and "pci" not in inner:
            self.unclassed.append((address, cpu.numa))
        self.number += 1
        self.below(Element("", {}, 0, [c for c in element.children if c.tag == "pci"]), cpu, (*path, self.number))

    def nets(self, nic: Element, pci: Element | None, cpu: NcclCpu, path: tuple[int, ...]) -> None:
        for net in nic.children:
            if net.tag == "net":
                self.nics.append(_nic(net, pci, cpu, path))


def _topologies(root: Element) -> tuple[NcclTopology, ...]:
    """One for each host: a file of several (multi-node NVLink) tells them by their hash."""
    if root.tag != "system":
        raise ParseError(f"<{clean(root.tag, 40)}> is not the <system> of a NCCL topology")
    version = clean(root.attributes.get("version", ""))
    hosts = list(dict.fromkeys(child.attributes.get("host_hash", "") for child in root.children if child.tag == "cpu"))
    found = []
    for host in hosts or [""]:
        walk = _Walk()
        for child in root.children:
            if child.tag == "cpu" and child.attributes.get("host_hash", "") == host:
                walk.cpu(child)
        twice = {address for address, count in Counter(walk.addresses).items() if count > 1}
        found.append(NcclTopology(
            version=version, cpus=tuple(walk.cpus), gpus=tuple(walk.gpus), nics=tuple(walk.nics),
            unclassed=tuple(walk.unclassed), duplicates=tuple(sorted(twice, key=pci_key)), host=clean(host)))
    return tuple(found)


def _gpu(pci: Element, gpu: Element | None, address: str, cpu: NcclCpu, path: tuple[int, ...]) -> NcclGpu:
    told = gpu.attributes if gpu else {}
    links = tuple(
        NcclLink(pci_address(child.attributes.get("target", "")) or clean(child.attributes.get("target", "")),
                 _number(child.attributes.get("count")), clean(child.attributes.get("tclass", "")).lower(), child.line)
        for child in (gpu.children if gpu else ()) if child.tag in ("nvlink", "xgmi"))
    c2c = [_number(child.attributes.get("count")) for child in (gpu.children if gpu else ()) if child.tag == "c2c"]
    return NcclGpu(
        pci=address, class_id=clean(pci.attributes.get("class", "")).lower(), numa=cpu.numa, path=path,
        pci_id=_pci_id(pci), cpus=cpu.cpus, dev=_number(told.get("dev")), sm=_number(told.get("sm")),
        rank=_number(told.get("rank")),
        gcn=clean(told.get("gcn", "")), gdr=_number(told.get("gdr")), speed=clean(pci.attributes.get("link_speed", "")),
        width=_number(pci.attributes.get("link_width")), links=links,
        c2c=sum(count or 0 for count in c2c) if c2c and None not in c2c else None, line=pci.line)


def _nic(net: Element, pci: Element | None, cpu: NcclCpu, path: tuple[int, ...]) -> NcclNic:
    get = net.attributes.get
    device = pci.attributes if pci else {}
    return NcclNic(
        name=clean(get("name", "")), pci=pci_address(device.get("busid", "")), numa=cpu.numa, path=path,
        class_id=clean(device.get("class", "")).lower(), pci_id=_pci_id(pci) if pci else "",
        speed_mbps=_number(get("speed")), port=_number(get("port")), guid=clean(get("guid", "")),
        gdr=_number(get("gdr")), line=net.line)


def _pci_id(pci: Element) -> str:
    ids = [pci.attributes.get(key, "").strip().lower().removeprefix("0x") for key in ("vendor", "device")]
    return ":".join(ids) if all(re.match(r"[0-9a-f]{4}\Z", part) for part in ids) else ""


def _number(text: str | None, low: int = 0) -> int | None:
    value = maybe_integer(text)
    return value if value is not None else -1 if low < 0 and (text or "").strip() == "-1" else None


def affinity_cpus(text: str) -> tuple[int, ...] | None:
    """OS CPUs of a mask of 32-bit words, the highest first; one long word is taken as it stands. None: no mask."""
    words = text.strip().split(",")
    single = _ONE_WORD.match(words[0]) if len(words) == 1 else None
    if single:
        value = int(single[1], 16)
    elif len(words) > 1 and len(words) <= MAX_CPU // 32 and all(_WORD.match(word) for word in words):
        value = int("".join(word.rjust(8, "0") for word in words), 16)
    else:
        return None
    bits = bin(value)[:1:-1]
    return tuple(index for index, bit in enumerate(bits) if bit == "1")


def _reading(topology: NcclTopology, first: int, last: int, broken: tuple[int | None, str]) -> Reading:
    links = topology.links()
    refused = _refused(topology)
    findings = [*refused, *_findings(topology, links if broken[0] is None else None)]
    missing = [] if broken[0] is None else [f"the XML breaks off in line {broken[0]} ({broken[1]}): what follows is "
                                            "missing"]
    missing += [f"GPU {link.target} is not in the file, {gpu.pci} has a link to it"
                for gpu, link in topology.absent()[:20]]
    masks = [cpu for cpu in topology.cpus if cpu.cpus is None]
    if masks:
        missing.append("no CPU affinity for NUMA " + ", ".join(str(cpu.numa) for cpu in masks) +
                       ": which CPUs they have is unknown")
    if topology.unclassed and not topology.gpus:
        missing.append(f"no class for {len(topology.unclassed)} PCI devices: GPUs and NICs cannot be told apart, only "
                       "their NUMA nodes are known")
    return Reading(
        kind="NCCL topology XML", first=first, last=last, value=topology, known=_known(topology, links),
        findings=tuple(findings), missing=tuple(dict.fromkeys(missing)),
        refused="; ".join(finding.what for finding in refused))


def _refused(topology: NcclTopology) -> list[Finding]:
    found = []
    if topology.self_linked:
        found.append(Finding(f"{', '.join(gpu.pci for gpu in topology.self_linked)}: a GPU names itself as the target "
                             "of its links", topology.self_linked[0].line))
    overlaps = topology.overlaps()
    if overlaps:
        masks = {cpu.numa: cpu for cpu in topology.cpus}
        one, other = masks[overlaps[0][0]], masks[overlaps[0][1]]
        how = "are identical" if one.cpus == other.cpus else "overlap"
        numas = sorted({numa for pair in overlaps for numa in pair}, key=lambda numa: -1 if numa is None else numa)
        found.append(Finding(f"the affinity masks of NUMA {', '.join(map(str, numas))} {how} "
                             f"({one.affinity}: CPUs {fold_ids(one.cpus or ())})", one.line))
    if len({cpu.numa for cpu in topology.cpus}) != len(topology.cpus):
        found.append(Finding("a NUMA node is described twice", topology.cpus[0].line))
    seen = Counter(gpu.pci for gpu in topology.gpus)
    twice = sorted((address for address, count in seen.items() if count > 1), key=pci_key)
    if twice:
        found.append(Finding(f"GPU {', '.join(twice)} is described more than once"))
    if not topology.gpus:
        found.append(Finding("no device can be told to be a GPU: no class, no <gpu> element"
                             if topology.unclassed else "there is no GPU in the topology"))
    return found


def _findings(topology: NcclTopology, links: list[list[int | None]] | None) -> Iterator[Finding]:
    for cpu, what in width_fault(topology):
        yield Finding(what, cpu.line)
    names = [f"GPU {gpu.pci}" for gpu in topology.gpus]
    if links and not topology.self_linked:
        vendors = {vendor_of(gpu) for gpu in topology.gpus}
        for what in _links.faults(links, names, "XGMI" if vendors == {"amd"} else "NVLink"):
            yield Finding(what)
    counts = topology.other_links() if links else {}
    if counts and len({counts.get(gpu.pci, 0) for gpu in topology.gpus}) > 1:
        told = ", ".join(f"{gpu.pci}: {counts.get(gpu.pci, 0)}" for gpu in topology.gpus)
        yield Finding(f"the GPUs have different numbers of links to switches: {told}")
    yield from _notes(topology)


def _notes(topology: NcclTopology) -> Iterator[Finding]:
    order = _devs(topology)
    if order is not None and order != sorted(order):
        yield Finding("dev order and PCI order differ: in PCI order dev is " + ", ".join(map(str, order)), note=True)
    if topology.duplicates:
        yield Finding("duplicate bus ids: " + ", ".join(topology.duplicates), note=True)
    if len(topology.cpus) == 1 and len(topology.gpus) > 4:
        cpu = topology.cpus[0]
        yield Finding(f"one cpu element with {len(cpu.cpus or ())} CPUs for {len(topology.gpus)} GPUs and "
                      f"{len(topology.nics)} NICs: other CPUs may be missing in the file", cpu.line, note=True)
    if not any(gpu.links for gpu in topology.gpus) and topology.gpus:
        yield Finding("no NVLink or XGMI elements: links between the GPUs are unknown", note=True)
    lowest = [(min(cpu.cpus), cpu) for cpu in topology.cpus if cpu.cpus and cpu.numa is not None]
    by_numa = sorted(lowest, key=lambda item: item[1].numa or 0)
    if len(lowest) > 1 and not topology.overlaps() and [at for at, _ in by_numa] != sorted(at for at, _ in by_numa):
        at = max(by_numa, key=lambda item: item[0])[1]
        yield Finding(f"NUMA {at.numa} holds the upper CPUs {fold_ids(at.cpus or ())}: unusual order, check against "
                      "the node", at.line, note=True)
    for family, model in sorted({(cpu.family, cpu.model) for cpu in topology.cpus
                                 if cpu.family is not None and cpu.model is not None}):
        if family & _FAMILY_X86 == _FAMILY_X86 and family > _FAMILY_X86:
            yield Finding(f"familyid {family}, modelid {model} as given: CPU family {_FAMILY_X86 + (family >> 4)}",
                          note=True)


def _devs(topology: NcclTopology) -> list[int] | None:
    """dev of the GPUs in bus order."""
    ordered = sorted(topology.gpus, key=lambda gpu: pci_key(gpu.pci))
    found = [gpu.dev for gpu in ordered if gpu.dev is not None]
    return found if found and len(found) == len(ordered) else None


def _known(topology: NcclTopology, links: list[list[int | None]] | None) -> dict[str, Any]:
    masks = [cpu.cpus for cpu in topology.cpus]
    known: dict[str, Any] = {
        "system_version": topology.version,
        "numa_order": [cpu.numa for cpu in topology.cpus],
        "numa_nodes": {str(cpu.numa): None if cpu.cpus is None else fold_ids(cpu.cpus) for cpu in topology.cpus},
        "affinity_raw": {str(cpu.numa): cpu.affinity or None for cpu in topology.cpus},
        "cpus_total": len(set().union(*(mask for mask in masks if mask is not None))) if masks and None not in masks
        else None,
        "cpu_arch": sorted({cpu.architecture for cpu in topology.cpus if cpu.architecture}),
        "cpu_vendor": sorted({cpu.vendor for cpu in topology.cpus if cpu.vendor}),
        "gpus": [_known_gpu(topology, gpu) for gpu in topology.gpus] or None,
        "nics": [_known_nic(topology, nic) for nic in topology.nics] or ([] if topology.gpus else None),
        "links": links, "sockets": None, "threads_per_core": None, "cores_if_determined": None,
        "duplicate_busids": list(topology.duplicates), "overlapping_numa": topology.overlaps(),
        "affinity_word_width_odd": topology.odd_words(), "self_links": [gpu.pci for gpu in topology.self_linked],
        "devs_in_pci_order": _devs(topology),
        "gpu_numa_in_pci_order": [g.numa for g in sorted(topology.gpus, key=lambda g: pci_key(g.pci))] or None,
    }
    if topology.unclassed:
        by_numa: dict[str, list[str]] = {}
        for address, numa in topology.unclassed:
            by_numa.setdefault(str(numa), []).append(address)
        known["pci_by_numa"] = by_numa
    if topology.self_linked or topology.overlaps() or list(width_fault(topology)):
        known["wrong"] = True
    if links is not None:
        known.update(_known_links(topology, links))
    return known


def _known_links(topology: NcclTopology, links: list[list[int | None]]) -> dict[str, Any]:
    others = topology.other_links()
    targets = sorted({(link.target, link.target_class) for gpu in topology.gpus for link in gpu.links
                      if topology.is_other(link)})
    counts = set(others.values())
    return {
        "links_matrix_order": [gpu.pci for gpu in topology.gpus], "links_symmetric": _links.symmetric(links),
        "links_to_other_targets": others, "link_targets": targets,
        "nvlinks_per_gpu": counts.pop() if len(counts) == 1 and len(others) == len(topology.gpus) else None,
        "hives": [list(hive) for hive in _links.hives(links)], "rings": [list(ring) for ring in _links.rings(links)],
    }


def _known_gpu(topology: NcclTopology, gpu: NcclGpu) -> dict[str, Any]:
    near, relation = nearest(gpu.path, [(nic.label, nic.path) for nic in topology.nics])
    known: dict[str, Any] = {
        "pci": gpu.pci, "class": gpu.class_id or None, "numa": gpu.numa if (gpu.numa or 0) >= 0 else None,
        "local_cpus": None if gpu.cpus is None else fold_ids(gpu.cpus), "nearest_nics": near,
        "nearest_nics_relation": relation, "dev": gpu.dev, "sm": gpu.sm, "rank": gpu.rank, "gcn": gpu.gcn or None,
        "id": gpu.pci_id or None, "c2c": gpu.c2c,
    }
    return {key: value for key, value in known.items() if value is not None or key in ("numa", "local_cpus")}


def _known_nic(topology: NcclTopology, nic: NcclNic) -> dict[str, Any]:
    near, relation = nearest(nic.path, [(gpu.pci, gpu.path) for gpu in topology.gpus])
    known: dict[str, Any] = {
        "name": nic.name or None, "pci": nic.pci or None, "numa": nic.numa if (nic.numa or 0) >= 0 else None,
        "class": nic.class_id or None, "speed_mbps": nic.speed_mbps, "gdr": nic.gdr, "relation": relation,
        "nearest_gpus": near, "id": nic.pci_id or None,
    }
    return {key: value for key, value in known.items() if value is not None or key == "numa"}
