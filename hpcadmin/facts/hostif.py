"""Lists of network interfaces with their NUMA node and CPUs, as site scripts print them: one interface a line, in
words such as `if:eno1 pciaddr:c3:00.0 numanode:1 cpulist:0-15`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, cpu_list, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.text import fold_ids

FORMS = ("text",)
MARKS = ("numa", "cpulist", "local_cpus")
KIND = "NICs with NUMA lists"
_WORD = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,30})[:=](\"[^\"]{0,300}\"|[^\s\"]{0,4000})(?=\s|\Z)")
_KEYS = {
    "if": "name", "ifname": "name", "iface": "name", "interface": "name", "dev": "name", "device": "name",
    "netdev": "name", "nic": "name", "pciaddr": "pci", "pci": "pci", "bdf": "pci", "businfo": "pci", "bus-info": "pci",
    "bus_info": "pci", "numanode": "numa", "numa_node": "numa", "numa-node": "numa", "numa": "numa",
    "cpulist": "cpus", "local_cpulist": "cpus", "local_cpus": "cpus", "cpus": "cpus", "link": "link", "mtu": "mtu",
    "ipaddr": "ip", "pcilnkspd": "speed", "pcilnkwdth": "width", "pciinfo": "info", "driver": "driver", "mac": "mac",
}


@dataclass(frozen=True)
class Interface:
    """numa None: not told, also where the firmware says -1."""

    name: str
    pci: str = ""
    numa: int | None = None
    local_cpus: tuple[int, ...] = ()
    driver: str = ""
    mac: str = ""
    model: str = ""


def read(document: Document) -> tuple[Reading, ...]:
    found: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(document.lines, 1):
        if len(line) < 20_000 and ("numa" in line or "cpulist" in line or "local_cpus" in line):
            words: dict[str, str] = {}
            for match in _WORD.finditer(line):
                key = _KEYS.get(match[1].lower())
                if key:
                    words.setdefault(key, match[2].strip('"'))
            if "name" in words and ("numa" in words or "cpus" in words) and pci_address(words.get("pci", "")):
                found.append((number, words))
    return (_reading(found),) if found else ()


def _reading(found: list[tuple[int, dict[str, str]]]) -> Reading:
    findings: list[Finding] = []
    missing = ["no CPU topology in the text: cores, threads and the other NUMA nodes are unknown"]
    interfaces, shown = [], []
    nodes: dict[int, tuple[int, ...]] = {}
    for line, words in found:
        cpus: tuple[int, ...] = ()
        try:
            cpus = cpu_list(words.get("cpus", ""), "CPUs")
        except ParseError as exc:
            missing.append(f"the CPUs of {clean(words['name'], 60)} are unreadable: {exc.what}")
        node = int(words["numa"]) if re.fullmatch("[0-9]{1,5}", words.get("numa", "")) else None
        if node is not None and cpus and nodes.setdefault(node, cpus) != cpus:
            findings.append(Finding(f"contradictory: NUMA node {node} has CPUs {fold_ids(nodes[node])} by one "
                                    f"interface, {fold_ids(cpus)} by {clean(words['name'], 60)}", line))
        if words.get("numa") == "-1":
            findings.append(Finding(f"{clean(words['name'], 60)}: the firmware names no NUMA node (-1)", line))
        kind, _, model = clean(words.get("info", "")).partition(" controller: ")
        interfaces.append(Interface(clean(words["name"], 60), pci_address(words["pci"]), node, cpus,
                                    clean(words.get("driver", "")), clean(words.get("mac", "")), _model(model)))
        shown.append(_shown(words, interfaces[-1], kind if model else ""))
    known: dict[str, Any] = {
        "nics": shown, "numa_nodes": {str(node): fold_ids(cpus) for node, cpus in sorted(nodes.items())} or None,
        "cpus": None, "sockets": None, "threads_per_core": None,
    }
    return Reading(KIND, found[0][0], found[-1][0], value=tuple(interfaces), known=known, findings=tuple(findings),
                   missing=tuple(missing))


def _model(text: str) -> str:
    """Without the vendor, where the device's own name follows it in the usual way."""
    return re.sub(r"^(?:Mellanox Technologies|Intel Corporation|Broadcom Inc\. and subsidiaries|"
                  r"NVIDIA Corporation) ", "", text)


def _shown(words: dict[str, str], interface: Interface, kind: str) -> dict[str, Any]:
    speed, width = words.get("speed", "").removesuffix(" PCIe"), words.get("width", "")
    shown: dict[str, Any] = {
        "name": interface.name, "pci": words["pci"], "numa": interface.numa,
        "local_cpus": fold_ids(interface.local_cpus) or None, "speed": clean(f"{speed} x{width}") if speed and width
        else None, "link": clean(words.get("link", "")) or None,
        "mtu": int(words["mtu"]) if re.fullmatch("[0-9]{1,6}", words.get("mtu", "")) else None,
        "ip": clean(words.get("ip", "")) or None, "model": interface.model or None, "class": kind or None,
    }
    return {key: value for key, value in shown.items() if value is not None}
