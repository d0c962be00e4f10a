"""Which nodes the files and the inventory have, their addresses, and features that say other hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import node_line
from hpcadmin.conf.check.rules._hosts import Hosts
from hpcadmin.conf.existing.parts import Value
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.model import Node

_RATE = re.compile(r"(ib|roce|eth)(\d{1,4})(?:g|gb|gbe)?\Z", re.IGNORECASE)
_SPEEDS = {"sdr": 10.0, "ddr": 20.0, "qdr": 40.0, "fdr": 56.0, "edr": 100.0, "hdr": 200.0, "ndr": 400.0, "xdr": 800.0}
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z|[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}\Z", re.IGNORECASE)
_MODEL = re.compile(r"[a-z]{1,3}\d{2,4}[a-z]{0,2}")


def unknown_nodes(situation: Situation) -> Iterator[Finding]:
    """Nodes that only the files, or only the inventory, have."""
    inventory = situation.inventory
    if inventory is None or not situation.whole:
        return
    hosts = Hosts(situation)
    failed = {item.node: item.reason for item in inventory.failed}
    found: dict[tuple[str, int], list[str]] = {}
    for host, line in hosts.lines.items():
        if host not in hosts.nodes and not (line.get("state") or "").upper().startswith(("FUTURE", "CLOUD")):
            found.setdefault((failed.get(host, ""), id(line)), []).append(host)
    for (reason, _), names in found.items():
        line = hosts.lines[names[0]]
        verb = "is" if len(names) == 1 else "are"
        what = f"{slurm_list(names)} {verb} not in the inventory" + (f": {reason}" if reason else "")
        yield Finding(Severity.NOTE, what, "what is written of them was compared with nothing: discover them", (),
                      line.place, tuple(names))
    taken = {node.name for host in hosts.lines if (node := hosts.nodes.get(host)) is not None}
    left = sorted((name for name in situation.machines if name not in taken), key=natural)
    if left and hosts.lines:
        yield Finding(Severity.DRIFT, f"{slurm_list(left)} {'is' if len(left) == 1 else 'are'} in the inventory and in "
                      "no NodeName= line", "Slurm does not know them: hpcadmin conf render writes their lines",
                      nodes=tuple(left))


def addresses(situation: Situation) -> Iterator[Finding]:
    """NodeAddr= that is none of the node's addresses. Names are left to whoever resolves them."""
    if situation.inventory is None:
        return
    hosts = Hosts(situation)
    for line in situation.conf.nodes:
        wrong = []
        for host, address in hosts.paired(line, "nodeaddr"):
            node = hosts.nodes.get(host)
            if node is not None and node.addresses and _ADDRESS.match(address) and address not in node.addresses:
                wrong.append((host, address, node))
        if not wrong:
            continue
        host, address, node = wrong[0]
        more = f" (and {len(wrong) - 1} more nodes of the line)" if len(wrong) > 1 else ""
        right: tuple[str, ...] = ()
        if len(line.hosts) == 1 and len(node.addresses) == 1:
            right = (node_line(line, {"NodeAddr": node.addresses[0]}),)
        yield Finding(Severity.DRIFT, f"NodeAddr={address} of {host} but its addresses are "
                      f"{', '.join(node.addresses[:6])}{more}", "slurmctld talks to another host, or to none", right,
                      line.values["nodeaddr"].place, tuple(name for name, _, _ in wrong))


def features(situation: Situation) -> Iterator[Finding]:
    """Features that name a GPU or a network rate that the node does not have."""
    if situation.inventory is None:
        return
    hosts = Hosts(situation)
    models = {word for node in situation.inventory.nodes for gpu in node.gpus for word in _words(gpu.model)}
    found: dict[tuple[Value, str], list[str]] = {}
    for line in situation.conf.nodes:
        value = line.values.get("features")
        wanted = [word for word in (value.text.split(",") if value else ()) if word]
        interesting = [word for word in wanted if word.casefold() in models or _rate(word) is not None]
        if value is None or not interesting:
            continue
        for host in line.hosts:
            node = hosts.nodes.get(host)
            for word in interesting if node is not None else ():
                why = _contradicts(word, node, models) if node is not None else ""
                if why:
                    found.setdefault((value, f"{word}: {why}"), []).append(host)
    for (value, text), names in found.items():
        word, _, why = text.partition(": ")
        yield Finding(Severity.DRIFT, f"feature {word} of {slurm_list(sorted(names, key=natural))}: {why}",
                      "jobs that ask for it with --constraint do not get what they mean", (), value.place, tuple(names))


def _words(model: str) -> set[str]:
    return {word for word in re.split(r"[\s_/-]+", model.casefold()) if _MODEL.fullmatch(word)}


def _rate(word: str) -> tuple[str, float] | None:
    """(ib, roce, eth or "", Gb/s) of a feature that is a network rate."""
    match = _RATE.match(word)
    if match:
        return match[1].casefold(), float(match[2])
    speed = _SPEEDS.get(word.casefold())
    return ("ib", speed) if speed is not None else None


def _contradicts(word: str, node: Node, models: set[str]) -> str:
    """Why the node is none that the feature says; "" where it is, or nothing is known against it."""
    rate = _rate(word)
    if rate is not None:
        return _other_rate(rate, node)
    small = word.casefold()
    if small not in models or node.lacks("gpus"):
        return ""
    own = {w for gpu in node.gpus for w in _words(gpu.model)}
    if small in own:
        return ""
    return f"its GPUs are {', '.join(sorted({gpu.model for gpu in node.gpus}))}" if node.gpus else "it has no GPU"


def _other_rate(rate: tuple[str, float], node: Node) -> str:
    kind, wanted = rate
    layers = {"ib": ("InfiniBand",), "roce": ("Ethernet",), "eth": ("", "Ethernet")}[kind]
    ports = [nic for nic in node.nics if not nic.virtual and nic.rate_gbps and nic.link_layer in layers
             and (bool(nic.rdma) or kind == "eth")]
    if not ports or node.lacks("nics"):
        return ""
    rates = sorted({nic.rate_gbps or 0.0 for nic in ports})
    return "" if wanted in rates else f"its ports run at {', '.join(f'{r:g}' for r in rates)} Gb/s"


LABELS: tuple[Rule, ...] = (unknown_nodes, addresses, features)
