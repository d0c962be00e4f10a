"""Inventory and site to {file name: text} with the reason of every line; a pure function of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin.conf.grammar import check
from hpcadmin.conf.keys import NODE_PARAMETERS, VERSIONS, Version, show
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.nodelines import classes, gres_sections, node_line, partitions
from hpcadmin.conf.notes import remarks
from hpcadmin.conf.output import explain, fill
from hpcadmin.conf.parts import Line, Problem, Rendering, Section
from hpcadmin.conf.settings import (
    Cluster,
    Options,
    cgroup_sections,
    constrains_devices,
    misplaced,
    refused,
    slurm_sections,
)
from hpcadmin.conf.survey import Survey, survey
from hpcadmin.model import Inventory
from hpcadmin.site import Site


@dataclass(frozen=True)
class RenderOptions:
    """as_is: write nodes that deviate by a fault as they are. comments: every line's reason above it."""

    slurm_version: str = ""
    as_is: bool = False
    comments: bool = False


@dataclass(frozen=True)
class Contents:
    """The lines of all files, section by section."""

    slurm: tuple[Section, ...]
    nodes: tuple[Line, ...]
    partitions: tuple[Line, ...]
    gres: tuple[Section, ...]
    cgroup: tuple[Section, ...]

    def lines(self) -> dict[str, list[Line]]:
        def flat(sections: Sequence[Section]) -> list[Line]:
            return [item for section in sections for item in section.lines]
        return {"cgroup.conf": flat(self.cgroup), "gres.conf": flat(self.gres),
                "slurm.conf": [*flat(self.slurm), *self.nodes, *self.partitions]}

    def values(self, name: str) -> dict[str, Any]:
        if name == "slurm.conf":
            return {"sections": self.slurm, "nodes": self.nodes, "partitions": self.partitions}
        return {"sections": self.gres if name == "gres.conf" else self.cgroup}


def render(inventory: Inventory, site: Site, options: RenderOptions) -> Rendering:
    """All files, or every problem that keeps them from being written."""
    found = survey(inventory, site, slurm_version=options.slurm_version, as_is=options.as_is)
    slurm = Options("slurm.options", site.slurm.options)
    cgroup = Options("slurm.cgroup", site.slurm.cgroup)
    contents, problems = _contents(site, found, slurm, cgroup)
    problems = [*found.problems, *misplaced(slurm), *misplaced(cgroup), *problems]
    notes, more = remarks(found.written, devices_constrained=constrains_devices(slurm, cgroup))
    problems += more
    for file, lines in contents.lines().items():
        problems += check(lines)
        wrong, told = refused(file, lines, found.version)
        problems += wrong
        notes += told
    notes = list(dict.fromkeys([*found.notes, *notes]))
    if problems:
        return Rendering({}, (), tuple(notes), tuple(dict.fromkeys(problems)))
    head = _head(inventory, site, found.version, as_is=options.as_is)
    files, explained = {}, []
    for name, lines in contents.lines().items():
        about = [f"{name} of {head[0]}", *head[1:]]
        files[name] = fill(name, {**contents.values(name), "head": about, "comments": options.comments})
        explained += explain(name, files[name], lines)
    return Rendering(files, tuple(explained), tuple(notes))


def _contents(site: Site, found: Survey, slurm: Options, cgroup: Options) -> tuple[Contents, list[Problem]]:
    problems: list[Problem] = []
    nodes, shares = [], []
    for shape, memory, members in classes(found.written):
        item, more = node_line(shape, memory, members, site)
        nodes.append(item)
        problems += more
        real = next((e.value for e in item.entries if e.key.casefold() == "realmemory"), "")
        shares.append(int(real) // shape.layout.cpus if real.isdigit() else 0)
    lines, more = partitions(site, [w.machine.name for w in found.written])
    problems += more
    types = tuple(sorted({d.type for w in found.written for d in w.devices}))
    on_nodes = found.version is not None and found.version >= NODE_PARAMETERS
    cluster = Cluster(types, "" if on_nodes else found.parameters, min(shares, default=0) or None)
    sections, more = slurm_sections(site, cluster, slurm)
    problems += more
    return Contents(sections, tuple(nodes), tuple(lines), gres_sections(found.written),
                    cgroup_sections(slurm, cgroup, found.version)), problems


def _head(inventory: Inventory, site: Site, version: Version | None, *, as_is: bool) -> list[str]:
    target = f"Slurm {show(version)}" if version else f"Slurm {show(VERSIONS[0])} to {show(VERSIONS[-1])}"
    lines = [f"cluster {site.cluster.name}, for {target}. Written by hpcadmin conf render.",
             "Change the inventory or site.toml, not this file. Why each line: hpcadmin conf render --explain"]
    profiles: dict[str, list[str]] = {}
    for node in inventory.nodes:
        if node.simulated:
            profiles.setdefault(node.simulated, []).append(node.name)
    lines += [f"SIMULATED hardware: {slurm_list(names)} only pretend to be {profile}; not for real nodes."
              for profile, names in sorted(profiles.items())]
    if as_is:
        lines.append("Written with --as-is: nodes with faults are described as they were found.")
        lines += [f"Left out, could not be discovered: {f.node} ({f.reason})"
                  for f in sorted(inventory.failed, key=lambda f: f.node)]
    return lines
