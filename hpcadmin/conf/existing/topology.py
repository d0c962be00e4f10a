"""topology.conf and topology.yaml: switches and blocks as they are written (topology.conf(5), topology.yaml(5))."""

from __future__ import annotations

from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.nodes import values
from hpcadmin.conf.existing.parts import BlockLine, Fault, Place, SourceFile, Statement, SwitchLine, Topology, Value
from hpcadmin.errors import UsageError
from hpcadmin.facts import _slurm_yaml
from hpcadmin.facts._reading import Finding

_FIRST = ("switchname", "blockname", "blocksizes", "blocklevels")


class Conf:
    """The statements of a topology.conf, one after the other."""

    def __init__(self) -> None:
        self.switches: list[SwitchLine] = []
        self.blocks: list[BlockLine] = []
        self.sizes: tuple[int, ...] = ()
        self.faults: list[Fault] = []
        self.place: Place | None = None

    def take(self, statement: Statement) -> None:
        self.place = self.place or statement.place
        first, kind = statement.values[0], statement.kind
        if kind not in _FIRST:
            self.faults.append(Fault(statement.place, "a line of topology.conf begins with SwitchName=, BlockName= or "
                                     f"BlockSizes=, not with {first.key}="))
            return
        if kind == "blocklevels":
            return                       # 23.11 alone: levels above blocks that are all of one size
        if kind == "blocksizes":
            self.sizes = sizes(first.text, statement.place, self.faults)
            return
        own = values(statement, self.faults)
        nodes = _names(own.get("nodes"), self.faults)
        if kind == "blockname":
            self.blocks.append(BlockLine(first.text, nodes, statement.place))
        else:
            self.switches.append(SwitchLine(first.text, _names(own.get("switches"), self.faults), nodes,
                                            statement.place))

    def topology(self) -> Topology:
        kind = "tree" if self.switches else "block" if self.blocks or self.sizes else ""
        return Topology("", kind, True, tuple(self.switches), tuple(self.blocks), self.sizes, self.place)


def from_yaml(file: SourceFile, faults: list[Fault]) -> tuple[Topology, ...]:
    """The topologies of a topology.yaml; a fault for each line that is not understood."""
    findings: list[Finding] = []
    unread: list[int] = []
    found = []
    for each in _slurm_yaml.topologies(file.lines, findings, unread):
        place = Place(file.path, each.line)
        switches = tuple(SwitchLine(s.name, s.children, s.nodes, Place(file.path, s.line))
                         for s in each.switches.values())
        blocks = tuple(BlockLine(b.name, b.nodes, Place(file.path, b.line)) for b in each.blocks.values())
        own = sizes(",".join(each.sizes), place, faults) if each.sizes else ()
        found.append(Topology(each.name, each.kind, each.default == "true", switches, blocks, own, place))
    for number in unread[:20]:
        faults.append(Fault(Place(file.path, number), f"{file.lines[number - 1].strip()[:60]!r} is not understood: "
                            "write it as topology.yaml(5) does", fatal=False))
    if not found:
        faults.append(Fault(Place(file.path, 1), "has no topology"))
    return tuple(found)


def sizes(text: str, place: Place, faults: list[Fault]) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not (part.isascii() and part.isdigit() and len(part) <= 9)]
    if wrong:
        faults.append(Fault(place, f"BlockSizes: {wrong[0][:40]!r} is no size of a block"))
        return ()
    return tuple(int(part) for part in parts)


def _names(value: Value | None, faults: list[Fault]) -> tuple[str, ...]:
    if value is None:
        return ()
    try:
        return hostlist.expand(value.text)
    except UsageError as exc:
        faults.append(Fault(value.place, f"{value.key}=: {exc.what}"))
        return ()
