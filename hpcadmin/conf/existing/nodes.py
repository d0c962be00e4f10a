"""NodeName=, PartitionName= and NodeSet= lines with what their DEFAULT lines add (slurm.conf(5), read_config.c)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.parts import Fault, NodeLine, NodeSetLine, PartitionLine, Statement, Value
from hpcadmin.conf.passwords import secret
from hpcadmin.errors import UsageError

# (in force, older name): Slurm looks for the first on the line and on DEFAULT before it looks for the second at all.
_NODE_ALIASES = (("cpus", "procs"),)
_PARTITION_ALIASES = (("oversubscribe", "shared"),)
_NOT_ON_DEFAULT = ("nodehostname", "bcastaddr", "nodeaddr")
# Taken from the line itself only, whatever DEFAULT says.
_NODE_OWN = frozenset({"nodehostname", "bcastaddr", "nodeaddr", "gresconf"})
_PARTITION_OWN = frozenset({"disablerootjobs", "exclusiveuser", "exclusivetopo"})
MAX_NAMES = 1_000_000                    # names of all lines together: partitions name the same nodes again
ALL = "ALL"


class Lines:
    """The statements of one configuration in their order; a DEFAULT line is for the lines after it."""

    def __init__(self) -> None:
        self.nodes: list[NodeLine] = []
        self.sets: list[Statement] = []
        self.partitions: list[Statement] = []
        self.faults: list[Fault] = []
        self._node: dict[str, Value] = {}
        self._partition: dict[str, Value] = {}
        self._values: dict[int, dict[str, Value]] = {}
        self._names = 0

    def node(self, statement: Statement) -> None:
        own = values(statement, self.faults)
        name = statement.values[0].text
        if name.casefold() == "default":
            wrong = [own[key].key for key in _NOT_ON_DEFAULT if key in own]
            if wrong:
                self.faults.append(Fault(statement.place, f"{wrong[0]}= cannot stand on a NodeName=DEFAULT line"))
            self._node.update(_defaults(own, "nodename"))
            return
        if name.casefold() == "all":
            self.faults.append(Fault(statement.place, f"NodeName={name}: the name is taken, Slurm refuses it"))
            return
        merged = _inherit(own, self._node, _NODE_ALIASES, _NODE_OWN)
        merged.pop("feature", None)
        features = [part[key] for part in (own, self._node) for key in ("feature", "features") if key in part]
        if features:
            merged["features"] = features[0]
        hosts = self.hosts(name, statement)
        line = NodeLine(hosts, name, merged, statement.place)
        self.nodes.append(line)
        self.faults += _counts(line)

    def node_set(self, statement: Statement) -> None:
        self.sets.append(statement)

    def partition(self, statement: Statement) -> None:
        own = values(statement, self.faults)
        if statement.values[0].text.casefold() == "default":
            self._partition.update(_defaults(own, "partitionname"))
            return
        self._values[len(self.partitions)] = _inherit(own, self._partition, _PARTITION_ALIASES, _PARTITION_OWN)
        self.partitions.append(statement)

    def hosts(self, text: str, statement: Statement) -> tuple[str, ...]:
        """The names; () with a fault where they cannot be told."""
        try:
            found = hostlist.expand(text)
        except UsageError as exc:
            self.faults.append(Fault(statement.place, exc.what))
            return ()
        if hostlist.has_suffix(text):
            self.faults.append(Fault(statement.place, f"{text[:60]!r}: up to Slurm 23.02 a name has to end with its "
                             "brackets, 23.11 takes it", fatal=False))
        before, self._names = self._names, self._names + len(found)
        if self._names <= MAX_NAMES:
            return found
        if before <= MAX_NAMES:
            self.faults.append(Fault(statement.place, f"more than {MAX_NAMES} names of nodes in all lines together: "
                                     "the nodes of this line and of those after it are not read"))
        return ()

    def finish(self) -> tuple[tuple[NodeSetLine, ...], tuple[PartitionLine, ...]]:
        """Node sets and partitions, whose nodes may stand anywhere in the files."""
        every = tuple(dict.fromkeys(host for line in self.nodes for host in line.hosts))
        sets: dict[str, NodeSetLine] = {}
        for statement in self.sets:
            own = values(statement, self.faults)
            found = list(self._featured(own["feature"].text)) if "feature" in own else []
            found += self._listed(own["nodes"].text, statement, every, {}) if "nodes" in own else ()
            name = statement.values[0].text
            if name in sets:
                self.faults.append(Fault(statement.place, f"NodeSet={name} stands twice, first at {sets[name].place}",
                                         fatal=False))
                continue
            sets[name] = NodeSetLine(name, tuple(dict.fromkeys(found)), own, statement.place)
        partitions = []
        for number, statement in enumerate(self.partitions):
            merged = self._values[number]
            hosts = self._listed(merged["nodes"].text, statement, every, sets) if "nodes" in merged else ()
            partitions.append(PartitionLine(statement.values[0].text, tuple(dict.fromkeys(hosts)), merged,
                                            statement.place))
        return tuple(sets.values()), tuple(partitions)

    def _featured(self, feature: str) -> Iterator[str]:
        for line in self.nodes:
            if feature in (line.get("features") or "").split(","):
                yield from line.hosts

    def _listed(self, text: str, statement: Statement, every: Sequence[str], sets: Mapping[str, NodeSetLine],
                ) -> Sequence[str]:
        if text.casefold() == "all":
            return every
        if "{" in text:
            self.faults.append(Fault(statement.place, f"Nodes={text[:60]}: a node list function, which only slurmctld "
                                     "can resolve", fatal=False))
            return ()
        found: list[str] = []
        for name in self.hosts(text, statement):
            found += sets[name].hosts if name in sets else (name,)
        return found


def values(statement: Statement, faults: list[Fault]) -> dict[str, Value]:
    """By key in small letters, without the first; of a key that stands twice Slurm takes the last."""
    found: dict[str, Value] = {}
    for value in statement.values[1:]:
        key = value.key.casefold()
        if key in found:
            faults.append(again(value, found[key], f"stands twice on the line of {statement.values[0].key}="
                                f"{statement.values[0].text[:60]}"))
        found[key] = value
    return found


def again(value: Value, before: Value, where: str) -> Fault:
    """Of a key that stands twice."""
    if secret(value.key):
        return Fault(value.place, f"{value.key}= {where}: Slurm takes the last", fatal=False)
    if value.text == before.text:
        return Fault(value.place, f"{value.key}={value.text[:60]} {where}, with the same value", fatal=False,
                     harmless=True)
    return Fault(value.place, f"{value.key}= {where}: Slurm takes the last, {value.text[:60]!r}, not "
                 f"{before.text[:60]!r}", fatal=False)


def _defaults(own: Mapping[str, Value], but: str) -> dict[str, Value]:
    return {key: replace(value, default=True) for key, value in own.items() if key != but}


def _inherit(own: Mapping[str, Value], default: Mapping[str, Value], aliases: Iterable[tuple[str, str]],
             not_inherited: frozenset[str]) -> dict[str, Value]:
    merged = {key: value for key, value in default.items() if key not in not_inherited}
    merged.update(own)
    for key, alias in aliases:
        older = merged.pop(alias, None)
        if older is not None and key not in merged:
            merged[key] = older
    return merged


def _counts(line: NodeLine) -> Iterator[Fault]:
    """NodeAddr and NodeHostname: one, or as many as there are names."""
    for key in ("nodeaddr", "nodehostname", "bcastaddr", "port"):
        value = line.values.get(key)
        if value is None or not line.hosts:
            continue
        text = f"[{value.text}]" if key == "port" and not value.text.startswith("[") else value.text
        try:
            count = len(hostlist.expand(text))
        except UsageError as exc:
            yield Fault(value.place, f"{value.key}=: {exc.what}")
            continue
        if count not in (1, len(line.hosts)):
            yield Fault(value.place, f"{value.key}= has {count} names for the {len(line.hosts)} of NodeName="
                        f"{line.text[:60]}: as many or one")
