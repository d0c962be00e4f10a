"""Which line is behind a Reason, what the node has, and the line that would be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.check import fleet
from hpcadmin.conf.check.finding import LiveNode, Situation
from hpcadmin.conf.check.fleet import Alike
from hpcadmin.conf.check.rules._hosts import (
    Hosts,
    gone,
    gpu_name,
    layout_of,
    odd_of,
    part_line,
    right_memory,
    without_file,
)
from hpcadmin.conf.check.rules._reasons import About, Told, explained
from hpcadmin.conf.check.rules._running import equal
from hpcadmin.conf.existing.parts import GresLine, NodeLine, Place
from hpcadmin.conf.live import indexed, reason_of
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.sockets import Layout, fits, near_cores
from hpcadmin.errors import ParseError
from hpcadmin.facts._slurm_gres import core_ids, threads
from hpcadmin.facts._slurm_rules import gres_wanted
from hpcadmin.model import Node
from hpcadmin.text import fold_ids, plural


@dataclass(frozen=True)
class Cause:
    says: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Causes:
    situation: Situation

    @cached_property
    def hosts(self) -> Hosts:
        return Hosts(self.situation)

    @cached_property
    def reported(self) -> dict[Place, int]:
        """The least memory that nodes of each line registered with, of those that are refused for it."""
        found: dict[Place, int] = {}
        for node in self.situation.live.values():
            line = self.hosts.lines.get(node.name)
            for told in explained(reason_of(node).text) if line else ():
                if told.about is About.MEMORY and line and told.values.get("got", "").isdigit():
                    got = int(told.values["got"])
                    found[line.place] = min(got, found.get(line.place, got))
        return found

    def of(self, node: LiveNode, told: Told) -> Cause:
        kinds: dict[About, Callable[[LiveNode, Told], Cause]] = {
            About.GRES: self._gres, About.MEMORY: self._memory, About.CPUS: self._cpus, About.CORES: self._cores,
            About.SETTING: self._settings}
        handler = kinds.get(told.about)
        return handler(node, told) if handler else Cause()

    def times(self, node: LiveNode) -> list[str]:
        """When slurmd started and the node booted: what is older than both is not their doing."""
        told = [f"{word} {node.values[key]}" for key, word in (("slurmdstarttime", "slurmd started"),
                                                               ("boottime", "the node booted"))
                if node.values.get(key, "None") not in ("None", "Unknown", "")]
        return [", ".join(told)] if told else []

    # --- devices ---------------------------------------------------------------------------------------------------

    def _gres(self, node: LiveNode, told: Told) -> Cause:
        group, known = self.hosts.groups.get(node.name), self.hosts.nodes.get(node.name)
        line = self.hosts.lines.get(node.name)
        if group is None or line is None:
            return Cause(("slurm.conf here has no line for it",))
        lines = group.of("gpu")
        place = line.values["gres"].place if "gres" in line.values else line.place
        mismatch = _types(group)
        if told.values.get("got") == "0" and mismatch:
            return Cause((mismatch,), _typed(group, line), lines[0].place if lines else place)
        says, at = self._lost(node.name, lines, known)
        got, want = told.values.get("got", ""), told.values.get("want", "")
        right: tuple[str, ...] = ()
        if got.isdigit() and want.isdigit() and int(got) < int(want):
            right = _fewer(line, node.name, int(want) - int(got), told.values.get("name", ""))
            says = [*says, "repair it and restart slurmd there" + (", or give the node a line of its own" if right else
                                                                   "")]
        return Cause(tuple(says), right, at or place)

    def _lost(self, name: str, lines: Sequence[GresLine], known: Node | None) -> tuple[list[str], Place | None]:
        """Which GPU is gone: files of gres.conf that the node does not have any more."""
        if known is None:
            return ["the inventory does not have the node: which GPU is gone is not known here"], None
        odd = [text for text in odd_of(self.situation, [name]).get(name, []) if "GPU" in text]
        missing = gone(lines, known)
        when = f" (inventory of {known.captured})" if known.captured else ""
        if missing:
            files = ", ".join(f"{file} ({line.place}{f', {which}' if which else ''})" for line, file in missing[:8]
                              for which in [without_file(file, known)])
            says = [f"{files} {'is' if len(missing) == 1 else 'are'} not on the node any more{when}", *odd]
            says += [p for p in known.problems if "GPU" in p][:4]
            return says, missing[0][0].place
        if odd:
            return odd, None
        if known.gpus and "gpus" not in known.unknown:
            have = ", ".join(gpu_name(gpu) for gpu in known.gpus[:16])
            return [f"the inventory still has {plural(len(known.gpus), 'GPU')}{when}: it is older than the fault, or "
                    f"slurmd started before the driver was ready; discover again and compare: {have}"], None
        return ["the inventory knows no GPU of the node"], None

    # --- memory and CPUs -------------------------------------------------------------------------------------------

    def _memory(self, node: LiveNode, told: Told) -> Cause:
        line, known = self.hosts.lines.get(node.name), self.hosts.nodes.get(node.name)
        if line is None:
            return Cause(("slurm.conf here has no line for it",))
        value = line.values.get("realmemory")
        others = [self.hosts.nodes[host] for host in line.hosts if host in self.hosts.nodes]
        least = self.reported.get(line.place)
        right = right_memory(others or ([known] if known else []), self.situation.site,
                             [least] if least is not None else [])
        says = [text for text in odd_of(self.situation, [node.name]).get(node.name, []) if "emory" in text or
                "DIMM" in text or "module" in text]
        if value is not None and told.values.get("want", value.text) != value.text:
            says.append(f"slurm.conf now says {value.text}: not yet read by slurmctld")
        if right is None or value is None:
            return Cause(tuple(says), (), value.place if value else line.place)
        return Cause(tuple(says), (fleet.node_line(line, {"RealMemory": str(right)}),), value.place)

    def _cpus(self, node: LiveNode, told: Told) -> Cause:
        line, known = self.hosts.lines.get(node.name), self.hosts.nodes.get(node.name)
        if line is None:
            return Cause(("slurm.conf here has no line for it",))
        if known is None:
            return Cause(("compare the line with slurmd -C on the node",), (), line.place)
        found = layout_of(self.situation, line, known)
        if isinstance(found, str):
            return Cause((f"what the node has is not known here: {found}",), (), line.place)
        has = f"{found.sockets} x {found.cores_per_socket} x {found.threads_per_core}"
        return Cause((f"configured is {_text(fleet.shape(line))}, the node has {has} (sockets, cores, threads)",),
                     (fleet.node_line(line, cpus_of(found)),), line.place)

    # --- cores -----------------------------------------------------------------------------------------------------

    def _cores(self, node: LiveNode, told: Told) -> Cause:
        group = self.hosts.groups.get(node.name)
        if group is None or group.node is None:
            return Cause(("slurm.conf here has no line for it",))
        wanted = told.values.get("cores", "")
        lines = [line for line in group.of("gpu") if line.get("cores")]
        wrong = [line for line in lines if _same(line.get("cores"), wanted)] or lines
        return self._right_cores(node.name, group, wrong)

    def _right_cores(self, name: str, group: Alike, wrong: Sequence[GresLine]) -> Cause:
        known = self.hosts.nodes.get(name)
        place = wrong[0].place if wrong else None
        if not wrong or known is None or group.node is None:
            return Cause(("Cores= counts cores in the order of hwloc, and must be exactly one socket from 25.11 on",),
                         (), place)
        found = layout_of(self.situation, group.node, known)
        if isinstance(found, str):
            return Cause((f"the node's sockets are not known here: {found}",), (), place)
        right = []
        for line in wrong[:16]:
            cores = cores_of(known, line, found)
            right.append(fleet.gres_line(line, {"Cores": cores or None}, _named(line)))
        return Cause((f"sockets have {found.cores_per_socket} cores",), tuple(right), place)

    def without_reason(self, node: LiveNode) -> Cause:
        """INVAL with an empty Reason: slurmctld could not use Cores= of the node, and says so in its log only."""
        start = "INVAL without a reason is what Slurm makes of Cores= that are no cores of the node"
        group = self.hosts.groups.get(node.name)
        shape = group.shape if group else None
        if group is None or shape is None:
            return Cause((start, "slurm.conf here has no line for it"))
        beyond = [line for line in group.of("gpu") if line.get("cores") and _beyond(line.get("cores"), shape.total)]
        if not beyond:
            return Cause((start, "the lines here name only cores that the node has: are they what slurmd reads there? "
                          "slurmctld's log has the error line"), (), None)
        halves = [threads(line.get("cores")) for line in beyond]
        says = [start, f"the node has cores 0-{shape.total - 1}; Cores={beyond[0].get('cores')} are CPU ids of the OS"]
        cause = self._right_cores(node.name, group, beyond)
        if cause.right:
            return Cause((*says, *cause.says), cause.right, cause.place)
        right = tuple(fleet.gres_line(line, {"Cores": half}, _named(line))
                      for line, half in zip(beyond, halves, strict=True) if half)
        return Cause(tuple(says), right, beyond[0].place)

    # --- settings --------------------------------------------------------------------------------------------------

    def _settings(self, node: LiveNode, told: Told) -> Cause:
        parts, place = [], None
        for key in told.settings:
            value = self.situation.conf.settings.get(key)
            running = indexed(self.situation.running, key)
            if value is not None:
                other = f" (slurmctld has {running})" if running and not equal(value.text, running) else ""
                parts.append(f"{value.key}={value.text}{other}")
                place = place or value.place
            elif running and running != "(null)":
                parts.append(f"{key} is {running}")
        return Cause((", ".join(parts),) if parts else (), (), place)


def cpus_of(found: Layout) -> dict[str, str | None]:
    """The counts as a node line is to have them."""
    return {"CPUs": str(found.cpus), "Boards": None, "SocketsPerBoard": None, "Sockets": str(found.sockets),
            "CoresPerSocket": str(found.cores_per_socket), "ThreadsPerCore": str(found.threads_per_core)}


def _text(shape: fleet.Shape) -> str:
    return f"{shape.sockets} x {shape.cores} x {shape.threads}"


def _named(line: GresLine) -> str:
    return slurm_list(line.hosts) if line.hosts else ""


def cores_of(node: Node, line: GresLine, found: Layout) -> str:
    """Cores= that render would write for the GPU of the line's file; "" where it would write none."""
    order = bus_order(node.gpus)
    gpu = next((g for g in order if g.device_file in line.files), None) if not isinstance(order, str) else None
    if gpu is None:
        return ""
    near = near_cores(node.cpu, gpu)
    if near.cores is None or not found.spans or not fits(found, near) or len(near.cores) == found.cores:
        return ""
    return fold_ids(near.cores)


def _same(one: str, other: str) -> bool:
    try:
        return core_ids(one) == core_ids(other)
    except ParseError:
        return one == other


def _beyond(cores: str, total: int) -> bool:
    try:
        ids = core_ids(cores)
    except ParseError:
        return True
    return bool(ids) and ids[-1] >= total


def _types(group: Alike) -> str:
    """Why none of the GPUs is of the configured type."""
    want = {item.type for item in group.wants()}
    have = {line.get("type") for line in group.of("gpu")}
    if not want or not have or group.autodetect is not None or {w.casefold() for w in want} & {
            h.casefold() for h in have}:
        return ""
    said = ", ".join(sorted(filter(None, have))) or "no Type="
    return f"Gres= wants type {', '.join(sorted(want)) or '(none)'}, gres.conf has {said}"


def _typed(group: Alike, line: NodeLine) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for each in group.of("gpu"):
        counts[each.get("type")] = counts.get(each.get("type"), 0) + max(len(each.files), 1)
    if "" in counts:
        kinds = [item.type for item in group.wants() if item.type]
        return tuple(fleet.gres_line(each, {"Type": kinds[0]}, _named(each)) for each in group.of("gpu")) if len(
            kinds) == 1 else ()
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())
    return (fleet.node_line(line, {"Gres": gres}),)


def _fewer(line: NodeLine, name: str, lost: int, what: str) -> tuple[str, ...]:
    """The node on a line of its own, with as many devices less; () where it cannot be told which count is meant."""
    kind = what.partition(":")[2] if what.startswith(("gpu:", "gres/gpu:")) else ""
    items = gres_wanted(line.get("gres") or "")
    mine = [i for i in items if i.name == "gpu" and (not kind or i.type == kind)]
    if len(mine) != 1 or mine[0].count <= lost or "gpu" not in what:
        return ()
    parts = [f"{i.name}{f':{i.type}' if i.type else ''}:{i.count - (lost if i is mine[0] else 0)}" for i in items]
    return (part_line(line, [name], {"Gres": ",".join(parts)}),)
