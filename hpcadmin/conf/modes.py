"""What slurmd takes for a socket on each node: chosen for the GPUs, or the site's word; for all nodes at once before
Slurm 25.11, where only SlurmdParameters has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hpcadmin.conf.gpus import Terms
from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.keys import NODE_PARAMETERS, Version, show
from hpcadmin.conf.machines import Machine
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.sockets import WORDS, Choice, Mode, Place, choose, choose_common, lost, places

# The last release that takes Cores= which are a part of a socket.
PARTS_UNTIL: Version = (24, 5)
_OPTION = "slurm.options.SlurmdParameters"


class Modes:
    """per_node: the mode stands on the node lines. parameters: what SlurmdParameters must have otherwise."""

    def __init__(self, machines: Sequence[Machine], terms: Terms) -> None:
        self.machines, self.terms = machines, terms
        self.problems: list[Problem] = []
        self._where: dict[str, tuple[Place, ...]] = {m.name: places(m.gpus) for m in machines}
        self._chosen: dict[tuple[int, tuple[Place, ...]], Choice] = {}
        for_all, self._words = self._for_all(), self._named()
        has_lines = terms.version is not None and terms.version >= NODE_PARAMETERS
        self.per_node = has_lines and for_all is None
        self._common = Choice(Mode.PACKAGE, "")
        if not self.per_node:
            self._common = self._one(for_all)

    @property
    def parameters(self) -> str:
        return "" if self.per_node else self._common.mode.value

    def of(self, machine: Machine) -> Choice:
        if not self.per_node:
            return self._common
        word = _word(machine, self.terms)
        if word in WORDS:
            return Choice(WORDS[word], "the site's own choice")
        return self._best(machine)

    def _best(self, machine: Machine) -> Choice:
        """For this node alone."""
        if self.terms.partial:
            return Choice(Mode.PACKAGE, "")
        where = self._where[machine.name]
        key = (id(machine.node.cpu), where)
        if key not in self._chosen:
            self._chosen[key] = choose(machine.node.cpu, where)
        return self._chosen[key]

    def _for_all(self) -> Mode | None:
        """What the site's SlurmdParameters say."""
        options = self.terms.site.slurm.options
        named = next((scalar(v) for k, v in options.items() if k.casefold() == "slurmdparameters"), "").casefold()
        found = [mode for mode in (Mode.NUMA, Mode.L3) if mode.value in named]
        if len(found) > 1:
            self.problems.append(Problem(Kind.SITE, "numa_node_as_socket and l3cache_as_socket: Slurm takes one of "
                                         "them", key=_OPTION))
        return found[0] if found else None

    def _named(self) -> dict[Mode, str]:
        """Each mode that the site names, with the key that does; a word that is none is a problem."""
        site, found = self.terms.site, dict[Mode, str]()
        groups = {m.group.name for m in self.machines if m.group}
        named = [("slurm.sockets", site.slurm.sockets)]
        named += [(f"nodes.{group.name}.sockets", group.sockets) for group in site.nodes]
        for key, word in named:
            if word and word.casefold() not in WORDS:
                self.problems.append(Problem(Kind.SITE, f"sockets = {word[:40]!r} is not known", key=key,
                                             hint=f"one of {', '.join(WORDS)}, or leave it out"))
            elif word and (key == "slurm.sockets" or key.split(".")[1] in groups):
                found.setdefault(WORDS[word.casefold()], key)
        return found

    def _one(self, for_all: Mode | None) -> Choice:
        """The mode of all nodes."""
        words = dict(self._words)
        if for_all is not None:
            words.setdefault(for_all, _OPTION)
        if len(words) > 1:
            what = " and ".join(f"{mode.noun}s ({key})" for mode, key in words.items())
            self.problems.append(Problem(
                Kind.SITE, f"{what}: before Slurm {show(NODE_PARAMETERS)}, or with SlurmdParameters, it is one for all "
                "nodes", key=next(iter(words.values()))))
        if words:
            return Choice(next(iter(words)), "the site's own choice")
        if self.terms.partial:
            return Choice(Mode.PACKAGE, "")
        cpus = {id(m.node.cpu): m.node.cpu for m in self.machines}
        counts = Counter((id(m.node.cpu), self._where[m.name]) for m in self.machines)
        return choose_common([(cpus[key], where, count) for (key, where), count in counts.items()])

    def notes(self) -> list[str]:
        """Nodes that another choice would suit, and what a later Slurm changes."""
        notes = []
        if not self.per_node:
            notes += self._odd_ones()
        if self.terms.partial:
            notes.append("partial_cores: Slurm 24.11 and later make nodes INVAL whose Cores= are a part of a socket; "
                         "take it out before that upgrade")
        if self.parameters and self.terms.version is not None and self.terms.version < NODE_PARAMETERS:
            notes.append(f"SlurmdParameters={self.parameters} is for all nodes; for Slurm {show(NODE_PARAMETERS)} and "
                         "later it is written on the node lines that need it, and Sockets of the others are packages")
        return notes

    def _odd_ones(self) -> list[str]:
        better: dict[Mode, list[str]] = {}
        for machine in self.machines:
            where = self._where[machine.name]
            if where and not self.terms.partial and lost(machine.node.cpu, where, self._common.mode):
                own = self._best(machine)
                if own.mode is not self._common.mode and not own.lost:
                    better.setdefault(own.mode, []).append(machine.name)
        return [f"{slurm_list(names)}: Cores are left out; {mode.value or 'packages as sockets'} would suit these, but "
                f"before Slurm {show(NODE_PARAMETERS)} all nodes of one slurm.conf have one choice"
                for mode, names in better.items()]


def _word(machine: Machine, terms: Terms) -> str:
    return ((machine.group.sockets if machine.group else "") or terms.site.slurm.sockets).casefold()
