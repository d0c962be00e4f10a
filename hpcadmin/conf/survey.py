"""From inventory and site to nodes with their place in the files, and everything that keeps them from being written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.conf import autodetect, gres
from hpcadmin.conf.gpus import Terms
from hpcadmin.conf.keys import VERSIONS, Version, parse_version, show
from hpcadmin.conf.machines import REPAIR, Machine, Written, groups_by_node, place, read, same_hosts
from hpcadmin.conf.modes import PARTS_UNTIL, Modes
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.nodelines import classes
from hpcadmin.conf.notes import about_gres, cut_and_shared
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.typenames import types_of
from hpcadmin.errors import UsageError
from hpcadmin.model import Inventory
from hpcadmin.site import Site


@dataclass(frozen=True)
class Survey:
    """written: the nodes in order. parameters: what SlurmdParameters must have for their Sockets to be right."""

    version: Version | None
    written: tuple[Written, ...]
    parameters: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def survey(inventory: Inventory, site: Site, *, slurm_version: str = "", as_is: bool = False) -> Survey:
    version, note, problems = find_version(inventory, site, slurm_version)
    machines, found, notes = _machines(inventory, site, as_is=as_is)
    problems += found
    if not inventory.nodes and not inventory.failed:
        problems.append(Problem(Kind.UNKNOWN, "the inventory has no node", hint="run hpcadmin discover"))
    problems += [*autodetect.refused(site, version), *gres.refused(site), *_partial(site, version)]
    types = types_of((gpu for node in inventory.nodes for gpu in node.gpus), site.slurm.gpu_types)
    terms = Terms(types, site, version, site.slurm.partial_cores)
    written, modes, found = _place(machines, terms)
    problems += [*found, *cut_and_shared(written, terms)]
    if not as_is:
        problems += _deviating(inventory, written)
    notes += [*types.notes, *modes.notes(), *about_gres(written, terms)]
    return Survey(version, tuple(written), modes.parameters, tuple(problems), (note, *notes) if note else tuple(notes))


def _partial(site: Site, version: Version | None) -> list[Problem]:
    """Cores= that are a part of a socket: only where the version takes them."""
    if not site.slurm.partial_cores or (version is not None and version <= PARTS_UNTIL):
        return []
    which = show(version) if version else f"{show(VERSIONS[0])} to {show(VERSIONS[-1])}"
    return [Problem(Kind.SITE, f"partial_cores: Slurm {show(PARTS_UNTIL)} is the last that takes Cores= that are part "
                    f"of a socket, these files are for {which}", key="slurm.partial_cores")]


def find_version(inventory: Inventory, site: Site, named: str) -> tuple[Version | None, str, list[Problem]]:
    """(version, note, problems): the one named, the site's, or the one all nodes have; None is for 22.05 to 26.05."""
    text = named or site.slurm.version
    if text:
        try:
            return parse_version(text), "", []
        except UsageError as exc:
            return None, "", [Problem(Kind.SITE, exc.what, key="" if named else "slurm.version", hint=exc.hint or "")]
    on_nodes: dict[str, list[str]] = {}
    for node in inventory.nodes:
        if node.slurm_version:
            on_nodes.setdefault(".".join(node.slurm_version.split(".")[:2]), []).append(node.name)
    if not inventory.nodes:
        return None, "", []
    if not on_nodes:
        return None, (f"no node told its Slurm version and none was named (--slurm-version): only what every version "
                      f"from {show(VERSIONS[0])} to {show(VERSIONS[-1])} has is written"), []
    if len(on_nodes) > 1:
        which = "; ".join(f"{v} on {slurm_list(names)}" for v, names in sorted(on_nodes.items()))
        return None, "", [Problem(Kind.SITE, f"nodes have different Slurm versions: {which}", key="slurm.version",
                                  hint="name the controller's with --slurm-version or [slurm] version")]
    try:
        return parse_version(next(iter(on_nodes))), "", []
    except UsageError as exc:
        return None, "", [Problem(Kind.SITE, f"the nodes' Slurm: {exc.what}", hint=exc.hint or "")]


def _machines(inventory: Inventory, site: Site, *, as_is: bool) -> tuple[list[Machine], list[Problem], list[str]]:
    try:
        groups, problems = groups_by_node(site)
    except UsageError as exc:
        return [], [Problem(Kind.SITE, f"[nodes]: {exc}", key="nodes")], []
    notes, machines = [], []
    for node in sorted(inventory.nodes, key=lambda n: natural(n.name)):
        machine, found = read(node, groups, as_is=as_is)
        problems += found
        if machine is not None:
            machines.append(machine)
    names = [n.name for n in inventory.nodes]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            problems.append(Problem(Kind.UNKNOWN, "is in the inventory twice", name,
                                    hint="discover again; --node NAME where a text of another node was taken for it"))
        seen.add(name)
    if len(seen) == len(names) and not as_is:
        problems += same_hosts([machine.node for machine in machines])
    if as_is:
        notes += [f"{slurm_list(left)}: left out, could not be discovered ({reason})"
                  for reason, left in left_out(inventory)]
        if not inventory.nodes and inventory.failed:
            problems.append(Problem(Kind.UNKNOWN, "no node of the inventory could be discovered: there is nothing to "
                                    "write", hint="discover again"))
    else:
        problems += [Problem(Kind.UNKNOWN, f"could not be discovered: {failed.reason}", failed.node,
                             hint="discover it again, or --as-is to leave it out")
                     for failed in sorted(inventory.failed, key=lambda f: natural(f.node))]
    unseen = set(groups) - seen - {f.node for f in inventory.failed}
    if unseen:
        notes.append(f"site.toml [nodes] names {slurm_list(unseen)}, which the inventory does not have: no line for it")
    return machines, problems, notes


def left_out(inventory: Inventory) -> list[tuple[str, list[str]]]:
    """(reason, nodes) of those that could not be discovered."""
    reasons: dict[str, list[str]] = {}
    for failed in sorted(inventory.failed, key=lambda f: natural(f.node)):
        reasons.setdefault(failed.reason, []).append(failed.node)
    return list(reasons.items())


def _place(machines: Sequence[Machine], terms: Terms) -> tuple[list[Written], Modes, list[Problem]]:
    """Every machine with its sockets: one choice for all nodes, or from 25.11 on one for each kind of node."""
    modes = Modes(machines, terms)
    problems = list(modes.problems)
    written = []
    for machine in machines:
        choice = modes.of(machine)
        result, found = place(machine, choice.mode, terms, choice.why, on_node_line=modes.per_node)
        problems += found
        if result is not None:
            written.append(result)
    return written, modes, problems


def _deviating(inventory: Inventory, written: Sequence[Written]) -> list[Problem]:
    """Odd ones out whose lines would be like no sound node's: a fault must not become configuration."""
    odd: dict[str, list[str]] = {}
    for item in (item for item in inventory.odd if not item.soft):
        odd.setdefault(item.node, []).append(item.what)
    if not odd:
        return []
    sound = {_essence(w) for w in written if w.machine.name not in odd}
    lines = {w.machine.name: (shape, memory) for shape, memory, members in classes(written) for w in members}
    sound_lines = {lines[w.machine.name] for w in written if w.machine.name not in odd}
    return [Problem(Kind.FAULT, what.removeprefix(f"{name}: "), name, hint=REPAIR)
            for w in written for name in [w.machine.name] if name in odd
            and (lines[name] not in sound_lines or _essence(w) not in sound) for what in odd[name]]


def _essence(w: Written) -> tuple[object, ...]:
    """A node's devices without their files: minors may differ between sound nodes."""
    return tuple((d.type, d.cores, d.links, d.flags) for d in w.devices)
