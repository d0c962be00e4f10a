"""PartitionName= and NodeSet= lines: nodes that they name, defaults, memory, weights (partition_mgr.c)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import rewritten, shape
from hpcadmin.conf.check.force import memory_consumed, truth
from hpcadmin.conf.existing.parts import PartitionLine, Place, Value
from hpcadmin.conf.keys import Version
from hpcadmin.conf.names import slurm_list

# TRES that every cluster has (read_config.h); others are named in AccountingStorageTRES.
_TRES = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})
_NO_OVERLAP: Version = (24, 11)          # from here on a NodeSet must not have the name of a node
_QOS_MUST_EXIST: Version = (25, 11)
_DATABASES = ("accounting_storage/slurmdbd", "accounting_storage/ctld_relay")
_WEIGHT = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,3})?([A-Za-z]?)\Z")
_UNITS = frozenset("kmgtp")


def unknown_nodes(situation: Situation) -> Iterator[Finding]:
    defined = {host for line in situation.conf.nodes for host in line.hosts}
    for partition in situation.conf.partitions:
        lost = tuple(host for host in partition.hosts if host not in defined)
        if not lost:
            continue
        left = [host for host in partition.hosts if host in defined]
        sure = situation.whole
        right = rewritten(partition.values, f"PartitionName={partition.name}", {"Nodes": slurm_list(left)})
        yield Finding(Severity.FATAL if sure else Severity.NOTE,
                      f"partition {partition.name} names {slurm_list(lost)}, which no NodeName line or NodeSet defines",
                      "invalid node names in partition: slurmctld does not start" if sure else
                      "they may be defined in what was not given",
                      (right,) if left and sure else (),
                      _place(partition, "nodes"), lost)


def twice(situation: Situation) -> Iterator[Finding]:
    first: dict[str, PartitionLine] = {}
    for partition in situation.conf.partitions:
        if partition.name in first:
            yield Finding(Severity.FATAL, f"PartitionName={partition.name} stands twice, first at "
                          f"{first[partition.name].place}", "duplicate entry: slurmctld does not start", (),
                          partition.place)
        first.setdefault(partition.name, partition)


def defaults(situation: Situation) -> Iterator[Finding]:
    found = [p for p in situation.conf.partitions if "default" in p.values and truth(p.values["default"].text)]
    if len(found) > 1:
        yield Finding(Severity.WRONG, f"partitions {', '.join(p.name for p in found)} are all Default=YES",
                      f"the last one wins: {found[-1].name}", (), _place(found[0], "default"))
    elif not found and situation.whole and situation.conf.partitions:
        yield Finding(Severity.NOTE, "no partition is Default=YES", "jobs must name one", (),
                      situation.conf.partitions[0].place)


def empty(situation: Situation) -> Iterator[Finding]:
    for partition in situation.conf.partitions:
        nodes = partition.values.get("nodes")
        if partition.hosts or (nodes is not None and "{" in nodes.text) or situation.fragment:
            continue
        yield Finding(Severity.NOTE if nodes is not None else Severity.WRONG,
                      f"partition {partition.name} has no nodes", "no job runs in it",
                      (f"PartitionName={partition.name} Nodes=ALL",) if nodes is None else (), partition.place)


def memory(situation: Situation) -> Iterator[Finding]:
    """DefMemPerCPU and its like, of partitions."""
    by_host = {host: line for line in situation.conf.nodes for host in line.hosts}
    for partition in situation.conf.partitions:
        for a, b in (("defmempercpu", "defmempernode"), ("maxmempercpu", "maxmempernode")):
            if a in partition.values and b in partition.values:
                yield Finding(Severity.WRONG, f"{partition.values[a].key} and {partition.values[b].key} for partition "
                              f"{partition.name}", f"an error line, and Slurm ignores {partition.values[a].key}", (),
                              partition.values[a].place)
        value = partition.values.get("defmempercpu")
        each = int(value.text) if value is not None and re.fullmatch(r"[0-9]{1,12}", value.text) else 0
        lines = dict.fromkeys(id(by_host[host]) for host in partition.hosts if host in by_host) if each else {}
        for line in situation.conf.nodes if lines and situation.whole and memory_consumed(situation) else ():
            real = line.number("realmemory")
            cpus = shape(line).cpus
            if value is not None and id(line) in lines and real and each * cpus > real:
                idle = ", and GPUs stay idle" if "gpu" in (line.get("gres") or "").casefold() else ""
                yield Finding(Severity.WRONG, f"DefMemPerCPU={each} of partition {partition.name} times the {cpus} CPUs"
                              f" of {line.text[:60]} is {each * cpus} MiB, and RealMemory={real}",
                              f"a job that asks for all CPUs of a node, and for no memory, never starts{idle}",
                              (f"DefMemPerCPU={real // cpus}",), value.place, line.hosts)


def weights(situation: Situation) -> Iterator[Finding]:
    """TRESBillingWeights of partitions, TRESWeights of nodes."""
    lines: list[tuple[Mapping[str, Value], str, tuple[str, ...]]] = [
        *((p.values, "tresbillingweights", ()) for p in situation.conf.partitions),
        *((line.values, "tresweights", line.hosts) for line in situation.conf.nodes)]
    for values, key, hosts in lines:
        value = values.get(key)
        wrong = wrong_weights(value.text, known_tres(situation)) if value is not None else ""
        if value is not None and wrong:
            yield Finding(Severity.FATAL, f"{value.key}={value.text[:100]}: {wrong}",
                          "failed to parse tres weights: slurmctld does not start",
                          (f'{value.key}="CPU=1.0,Mem=0.25G,GRES/gpu=16.0"',), value.place, hosts)


def known_tres(situation: Situation) -> frozenset[str] | None:
    """In small letters; None where the setting is not in what was given."""
    if not situation.whole:
        return None
    own = situation.conf.setting("accountingstoragetres").casefold().split(",")
    return _TRES | {word.strip() for word in own if word.strip()}


def wrong_weights(text: str, known: frozenset[str] | None) -> str:
    """Why slurmctld refuses the weights, "" where it takes them."""
    for item in text.split(","):
        if not item:
            continue
        name, equals, number = item.partition("=")
        if not name.strip() or not equals or not number:
            return f"{item[:40]!r} is no TRES=weight"
        match = _WEIGHT.match(number)
        unit = match[1].casefold() if match else ""
        if not match or (unit and unit not in _UNITS):
            return f"{number[:40]!r} is no number"
        if unit and name.strip().casefold() not in ("mem", "vmem", "fs/disk") and not name.casefold().startswith("bb/"):
            return f"{item[:40]!r}: only memory and storage have units"
        if known is not None and name.strip().casefold() not in known:
            return (f"{name.strip()[:40]} is no TRES of this cluster" + (
                ": AccountingStorageTRES does not name it" if "/" in name else ""))
    return ""


def qos(situation: Situation) -> Iterator[Finding]:
    """QOS are kept by slurmdbd: without it there is none."""
    storage = situation.conf.setting("AccountingStorageType")
    if not situation.whole or storage.casefold() in _DATABASES:
        return
    for partition in situation.conf.partitions:
        value = next((partition.values[key] for key in ("qos", "allowqos", "denyqos") if key in partition.values
                      and partition.values[key].text.casefold() not in ("", "all")), None)
        for severity, versions, means in (
                (Severity.FATAL, situation.among(lambda v: v >= _QOS_MUST_EXIST), "slurmctld does not start"),
                (Severity.WRONG, situation.among(lambda v: v < _QOS_MUST_EXIST), "it does nothing")):
            if value is not None and versions is not None:
                yield Finding(severity, f"{value.key}={value.text[:60]} of partition {partition.name}, and "
                              f"AccountingStorageType is {storage or 'not set'}", f"without slurmdbd no QOS exists: "
                              f"{means}", ("AccountingStorageType=accounting_storage/slurmdbd",
                                           rewritten(partition.values, "", {value.key: None})), value.place, (),
                              versions)


def accounts(situation: Situation) -> Iterator[Finding]:
    for partition in situation.conf.partitions:
        for allow, deny in (("allowaccounts", "denyaccounts"), ("allowqos", "denyqos")):
            if allow in partition.values and deny in partition.values:
                yield Finding(Severity.WRONG, f"{partition.values[allow].key} and {partition.values[deny].key} for "
                              f"partition {partition.name}", f"an error line, and {partition.values[deny].key} is "
                              "ignored", (), partition.values[deny].place)


def node_sets(situation: Situation) -> Iterator[Finding]:
    names = {host for line in situation.conf.nodes for host in line.hosts}
    used = " ".join(p.values["nodes"].text for p in situation.conf.partitions if "nodes" in p.values)
    for line in situation.conf.node_sets:
        if line.name in names:
            for severity, versions, means in (
                    (Severity.FATAL, situation.among(lambda v: v >= _NO_OVERLAP),
                     "overlaps with an existing NodeName: no daemon starts"),
                    (Severity.WRONG, situation.among(lambda v: v < _NO_OVERLAP),
                     "partitions that name the node get the set")):
                if versions is not None:
                    yield Finding(severity, f"NodeSet={line.name} is the name of a node", means, (), line.place, (),
                                  versions)
        elif "nodes" not in line.values and "feature" not in line.values:
            yield Finding(Severity.WRONG, f"NodeSet={line.name} has neither Nodes= nor Feature=", "it is empty", (),
                          line.place)
        elif not line.hosts and not situation.fragment:
            feature = line.values.get("feature")
            what = f"no node has Feature={feature.text[:60]}" if feature is not None else "it names no node"
            dynamic = feature is not None and situation.dynamic
            yield Finding(Severity.NOTE if dynamic else Severity.WRONG, f"NodeSet={line.name}: {what}",
                          "partitions with it get the nodes that register with this feature" if dynamic else
                          "partitions with it get no nodes", (), line.place)
        elif situation.whole and line.name not in used:
            yield Finding(Severity.NOTE, f"NodeSet={line.name} is in no partition", "", (), line.place)


def _place(partition: PartitionLine, key: str) -> Place:
    return partition.values[key].place if key in partition.values else partition.place


RULES: tuple[Rule, ...] = (unknown_nodes, twice, defaults, empty, memory, weights, qos, accounts, node_sets)
