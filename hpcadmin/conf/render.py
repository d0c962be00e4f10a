"""Inventory and site to {file name: text} with the reason of every line; a pure function of its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.accounting import gather, slurmdbd, slurmdbd_problems
from hpcadmin.conf.cgroup import cgroup_sections, constrains_devices
from hpcadmin.conf.combinations import clashes
from hpcadmin.conf.grammar import check
from hpcadmin.conf.greslines import gres_sections
from hpcadmin.conf.hooks import hook_notes, private_tmp
from hpcadmin.conf.keys import NODE_PARAMETERS, VERSIONS, Version, show
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.nodelines import classes, node_line, weighed
from hpcadmin.conf.notes import remarks
from hpcadmin.conf.options import Options, for_version, refused
from hpcadmin.conf.output import explain, fill
from hpcadmin.conf.partitions import Hardware, Partitions, Policy, partitions
from hpcadmin.conf.parts import Document, Kind, Line, Problem, Rendering, Section
from hpcadmin.conf.settings import STATE_DIR, Cluster, accounting, slurm_sections
from hpcadmin.conf.survey import Survey, left_out, survey
from hpcadmin.conf.topology import topology_files
from hpcadmin.conf.topology_choice import TopologyFiles, partition_lines
from hpcadmin.model import Inventory
from hpcadmin.site import Site

_GRES = re.compile(r"([A-Za-z0-9_.-]+)(?::([A-Za-z][A-Za-z0-9_.-]*))?(?::(\d+)([KMGTP]?))?(?:[:(].*)?")


@dataclass(frozen=True)
class RenderOptions:
    """as_is: write nodes that deviate by a fault as they are. comments: every line's reason above it."""

    slurm_version: str = ""
    as_is: bool = False
    comments: bool = False


@dataclass
class Own:
    """The site's own keys of each file, as the version wants them."""

    slurm: Options
    cgroup: Options
    slurmdbd: Options
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, site: Site, version: Version | None) -> Own:
        own = cls(Options("slurm.options", site.slurm.options), Options("slurm.cgroup", site.slurm.cgroup),
                  Options("accounting.options", site.accounting.options))
        for options, file in ((own.slurm, "slurm.conf"), (own.cgroup, "cgroup.conf"), (own.slurmdbd, "slurmdbd.conf")):
            own.notes += for_version(options, file, version)
        return own


def render(inventory: Inventory, site: Site, options: RenderOptions) -> Rendering:
    """All files, or every problem that keeps them from being written."""
    found = survey(inventory, site, slurm_version=options.slurm_version, as_is=options.as_is)
    own = Own.of(site, found.version)
    network = topology_files(inventory, site, [w.machine.name for w in found.written], found.version,
                             as_is=options.as_is)
    documents, problems, more_notes = _documents(site, found, own, network)
    problems = [*found.problems, *problems, *own.cgroup.problems, *own.slurmdbd.problems]
    notes, more = remarks(found.written, devices_constrained=constrains_devices(own.slurm, own.cgroup))
    problems += more
    notes = [*more_notes, *notes, *hook_notes(site, found.version)]
    for document in documents:
        # Of what comes from the inventory alone, whatever is wrong has been said by then.
        problems += [p for p in check(document.lines) if p.key or not found.problems]
        wrong, told = refused(document.name, document.lines, found.version)
        known = {p.key for p in problems} - {""}
        problems += [p for p in wrong if p.key not in known]     # one fault of the site is one line
        notes += told
        if document.name == "slurm.conf":
            wrong, told = _clashes(document.lines, found.version)
            problems += wrong
            notes += told
    notes = list(dict.fromkeys([*found.notes, *own.notes, *notes]))
    if problems:
        return Rendering({}, (), tuple(notes), tuple(dict.fromkeys(problems)))
    head = _head(inventory, site, found.version, as_is=options.as_is)
    files, explained = {}, []
    for document in sorted(documents, key=lambda d: d.name):
        about = [f"{document.name} of {head[0]}", *head[1:]]
        text = fill(document.name, {"sections": document.sections, "empty": document.empty, "head": about,
                                    "comments": options.comments})
        files[document.name] = text
        explained += explain(document.name, text, document.lines)
    return Rendering(files, tuple(explained), tuple(notes), secret=tuple(d.name for d in documents if d.secret),
                     owner=own.slurm.value("SlurmUser", "slurm"), version=found.version)


def _clashes(lines: Sequence[Line], version: Version | None) -> tuple[list[Problem], list[str]]:
    """(problems, notes): settings that do not go together."""
    settings = {e.key.casefold(): e for item in lines if len(item.entries) == 1 for e in item.entries}
    problems, notes = [], []
    for clash in clashes({key: e.value for key, e in settings.items()}, version):
        if clash.fatal:
            problems.append(Problem(Kind.SITE, f"{clash.what}: slurmctld would not start", hint=clash.right,
                                    key=settings[clash.key].site_key))
        else:
            notes.append(f"{clash.what}: an error line in each log ({clash.right})")
    return problems, notes


def _documents(site: Site, found: Survey, own: Own,
               network: TopologyFiles) -> tuple[list[Document], list[Problem], list[str]]:
    problems: list[Problem] = []
    nodes, hardware, weights = [], [], weighed(found.written, site)
    for shape, memory, members in classes(found.written):
        item, more = node_line(shape, memory, members, site, weights=weights)
        nodes.append(item)
        problems += more
        hardware.append(_hardware(item, tuple(w.machine.name for w in members)))
    least = _least_memory(own.slurm, hardware)
    parts = partitions(site, hardware, Policy(site.accounting.billing and accounting(site, own.slurm), least),
                       found.version)
    in_partitions, more = partition_lines(network, parts.lines)
    problems += [*network.problems, *more]
    cluster = replace(_cluster(found, own.slurm, nodes, hardware, parts),
                      topology=tuple(Line((entry,)) for entry in network.settings))
    sections, more = slurm_sections(site, cluster, own.slurm)
    problems += [*parts.problems, *more, *slurmdbd_problems(site, own.slurmdbd)]
    measured, more = gather(site)
    problems += more
    slurm = Document("slurm.conf", tuple(s for s in (*sections, Section("Nodes", tuple(nodes)),
                                                     Section("Partitions", in_partitions)) if s.lines))
    documents = [
        slurm,
        Document("gres.conf", gres_sections(found.written, site), "No node has a GPU."),
        Document("cgroup.conf", cgroup_sections(site, own.slurm, own.cgroup, found.version),
                 "No plug-in of slurm.conf constrains jobs by cgroups."),
        *(Document(name, sections) for name, sections in network.files.items()),
        *(d for d in (measured, private_tmp(site, found.version), slurmdbd(site, own.slurm, own.slurmdbd)) if d),
    ]
    return documents, problems, [*parts.notes, *network.notes, *_notes(site, own.slurm)]


def _hardware(line: Line, names: tuple[str, ...]) -> Hardware:
    values = {e.key.casefold(): e.value for e in line.entries}

    def number(key: str) -> int:
        text = values.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else 0
    gpus = sum(count for name, _, count in gres_counts([line]) if name == "gpu")
    return Hardware(names, number("cpus"), number("realmemory"), gpus)


def gres_counts(lines: Iterable[Line]) -> list[tuple[str, str, int]]:
    """(name, type or "", count) of each gres of NodeName lines."""
    found = []
    for item in lines:
        for e in item.entries:
            if e.key.casefold() == "gres":
                for match in map(_GRES.fullmatch, e.value.split(",")):
                    if match is not None:
                        scale = 1024 ** ("KMGTP".index(match[4]) + 1) if match[4] else 1
                        found.append((match[1], match[2] or "", int(match[3] or 1) * scale))
    return found


def _least_memory(options: Options, hardware: Sequence[Hardware]) -> int | None:
    """The least memory per CPU of all nodes; None where the site says itself what a job gets by default."""
    if any(options.find(key) for key in ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")):
        return None
    return min((h.mib // h.cpus if h.cpus else 0 for h in hardware), default=0) or None


def _cluster(found: Survey, options: Options, nodes: Sequence[Line], hardware: Sequence[Hardware],
             parts: Partitions) -> Cluster:
    gres = gres_counts(nodes)
    names = sorted({name for name, _, _ in gres}, key=lambda name: (name != "gpu", name))
    kinds = sorted({(name, kind) for name, kind, _ in gres if kind})
    tres = [part for name in names
            for part in (f"gres/{name}", *(f"gres/{n}:{kind}" for n, kind in kinds if n == name))]
    on_nodes = found.version is not None and found.version >= NODE_PARAMETERS
    return Cluster(
        gres=tuple(names), tres=tuple(tres), slurmd_parameters="" if on_nodes else found.parameters,
        mib_per_cpu=min((h.mib // h.cpus if h.cpus else 0 for h in hardware), default=0) or None,
        nodes=sum(len(h.names) for h in hardware),
        rdma=any(n.rdma and n.state.upper() == "ACTIVE" for w in found.written for n in w.machine.node.nics),
        longest_minutes=parts.longest_minutes, version=found.version)


def _notes(site: Site, options: Options) -> list[str]:
    notes = []
    if len(site.cluster.controllers) > 1:
        notes.append(f"{len(site.cluster.controllers)} controllers: StateSaveLocation "
                     f"({options.value('StateSaveLocation', STATE_DIR)}) must be a folder that all of them share")
    if site.accounting.slurmdbd and not site.accounting.password_file:
        notes.append("slurmdbd.conf has no StoragePass: [accounting] password_file names the file that --install reads "
                     "it from")
    return notes


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
        lines += [f"Left out, could not be discovered: {slurm_list(names)} ({reason})"
                  for reason, names in left_out(inventory)]
    return lines
