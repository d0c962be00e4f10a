"""topology.conf and topology.yaml: what slurmctld refuses, takes otherwise than meant, and how the nodes are cabled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.rules._blocks import BLOCKS
from hpcadmin.conf.check.rules._cabling import CABLING
from hpcadmin.conf.check.rules._topology_words import YAML, from_yaml, only, told, topologies, where
from hpcadmin.conf.check.rules._trees import TREES
from hpcadmin.conf.existing.parts import BlockLine, Place, SwitchLine, Topology
from hpcadmin.conf.keys import Version, show

_TREE_OR_BLOCK = {"topology/tree": "tree", "topology/block": "block"}
_WORDS: dict[str, Version] = {
    "Dragonfly": (22, 5), "TopoOptional": (22, 5), "SwitchAsNodeRank": (23, 2), "RouteTree": (23, 11),
    "RoutePart": (23, 11), "TopoMaxSizeUnroll": (24, 11), "BlockAsNodeRank": (25, 11),
}


# --- which file is read ------------------------------------------------------------------------------------------


def files(situation: Situation) -> Iterator[Finding]:
    conf = situation.conf
    plugin = conf.setting("TopologyPlugin", "topology/none").casefold()
    setting = conf.settings.get("topologyplugin")
    has_yaml, plain = conf.has("topology.yaml"), conf.has("topology.conf")
    young, old = where(situation, lambda v: v >= YAML), where(situation, lambda v: v < YAML)
    first, young_file = (Place(found.path if (found := conf.file(name)) else name, 1)
                         for name in ("topology.conf", "topology.yaml"))
    if has_yaml and old:
        severity = Severity.WRONG if situation.versions else Severity.NOTE
        yield Finding(severity, "topology.yaml is not read", f"{told(old)}: there is only topology.conf, with "
                      "TopologyPlugin= in slurm.conf", place=young_file, versions=only(situation, old))
    if has_yaml and plain and young:
        yield Finding(Severity.NOTE if old else Severity.WRONG, "topology.conf stands beside topology.yaml",
                      f"{told(young)}: topology.yaml is read, topology.conf and TopologyPlugin= are not",
                      place=first, versions=only(situation, young))
    elif has_yaml and young and setting is not None and plugin in _TREE_OR_BLOCK:
        yield Finding(Severity.NOTE, f"TopologyPlugin={setting.text} beside topology.yaml",
                      f"{told(young)}: topology.yaml says which plug-ins are used, TopologyPlugin= is not read",
                      place=setting.place, versions=only(situation, young))
    reads = young if not has_yaml else ()
    reading = tuple(v for v in situation.asked if v in old or v in reads)
    if not reading or not situation.whole:
        return
    kind = _TREE_OR_BLOCK.get(plugin, "")
    if plain and not kind and plugin != "topology/3d_torus":
        yield Finding(Severity.WRONG, "topology.conf is not read" + (f": TopologyPlugin={setting.text}" if setting else
                                                                     ": slurm.conf has no TopologyPlugin="),
                      "all nodes are equally near to slurmctld", place=setting.place if setting else first,
                      right=(f"TopologyPlugin=topology/{_kind_of(conf.topologies) or 'tree'}",),
                      versions=only(situation, reading))
    elif kind and not plain and situation.lacks("topology.conf"):
        yield Finding(Severity.FATAL, f"TopologyPlugin={setting.text if setting else plugin}, and there is no "
                      "topology.conf", "slurmctld cannot read it and does not start (older ones wait a minute for it)",
                      place=setting.place if setting else None, versions=only(situation, reading))
    elif kind and plain and not has_yaml:      # beside a topology.yaml its lines are not read here
        yield from _contents(situation, kind, reading)


def _kind_of(topologies: Sequence[Topology]) -> str:
    return next((t.kind for t in topologies if not from_yaml(t) and t.kind), "")


def _contents(situation: Situation, kind: str, reading: tuple[Version, ...]) -> Iterator[Finding]:
    """The lines of topology.conf against the plug-in that reads them."""
    topology = next((t for t in situation.conf.topologies if not from_yaml(t)), Topology("", "", True))
    lines: Sequence[SwitchLine | BlockLine] = topology.blocks if kind == "tree" else topology.switches
    mine: Sequence[SwitchLine | BlockLine] = topology.switches if kind == "tree" else topology.blocks
    noun = ("switches", "BlockName") if kind == "tree" else ("blocks", "SwitchName")
    if lines:
        yield Finding(Severity.FATAL, f"{noun[1]}= lines with TopologyPlugin=topology/{kind}",
                      "an unrecognised key for this plug-in: slurmctld does not start", place=lines[0].place,
                      right=() if mine else (f"TopologyPlugin=topology/{'block' if kind == 'tree' else 'tree'}",),
                      versions=only(situation, reading))
    if mine or lines:
        return
    place = topology.place or Place("topology.conf", 1)
    fatal = tuple(v for v in reading if v >= ((25, 5) if kind == "tree" else (25, 11)))
    silent = tuple(v for v in reading if v not in fatal)
    if fatal:
        yield Finding(Severity.FATAL, f"topology.conf has no {noun[0]}, with TopologyPlugin=topology/{kind}",
                      f"{told(fatal)}: slurmctld ends while it starts", place=place, versions=only(situation, fatal))
    if silent:
        yield Finding(Severity.WRONG, f"topology.conf has no {noun[0]}, with TopologyPlugin=topology/{kind}",
                      f"{told(silent)}: an error line, and no topology at all", place=place,
                      versions=only(situation, silent))


# --- names and words -----------------------------------------------------------------------------------------------


def yaml(situation: Situation) -> Iterator[Finding]:
    own = [t for t in topologies(situation) if from_yaml(t)]
    seen: dict[str, Topology] = {}
    for topology in own:
        if topology.name in seen:
            yield Finding(Severity.WRONG, f"topology {topology.name} is defined twice "
                          f"(first {seen[topology.name].place})", "partitions and nodes that name it get the first one",
                          place=topology.place)
        seen.setdefault(topology.name, topology)
        if not topology.kind:
            yield Finding(Severity.FATAL, f"topology {topology.name} has neither tree: nor block: nor flat:",
                          "slurmctld has no plug-in for it and does not start", place=topology.place)
    default = [t for t in own if t.default]
    if len(default) > 1:
        yield Finding(Severity.WRONG, f"{', '.join(t.name for t in default[:6])} are all cluster_default",
                      "which one is taken is left open: one must be it", place=default[1].place)
    elif own and not default:
        yield Finding(Severity.WRONG, "no topology is the cluster_default", "the first one is taken for whatever names "
                      "none: one must say cluster_default: true", ("  cluster_default: true",), own[0].place)


def named(situation: Situation) -> Iterator[Finding]:
    """Topology= of nodes and partitions: names that exist, and of a node's unit as well."""
    there = {t.name or "default": t for t in topologies(situation)}
    if not there:
        return
    told_of: set[tuple[str, str]] = set()
    for line in situation.conf.nodes:
        value = line.values.get("topology")
        for part in value.text.split(",") if value else ():
            name, _, unit = part.partition(":")
            if value is None or (str(value.place), part) in told_of:
                continue
            told_of.add((str(value.place), part))
            if name not in there:
                yield Finding(Severity.FATAL, f"Topology={value.text[:100]} of {line.text}: there is no topology "
                              f"{name}", f"an error of slurmctld while it starts; there {_are(there)}",
                              place=value.place,
                              nodes=line.hosts)
            elif unit and unit.split(":")[-1] not in _units(there[name]) and there[name].kind != "flat":
                yield Finding(Severity.FATAL, f"Topology={value.text[:100]} of {line.text}: topology {name} has no "
                              f"{unit.split(':')[-1]}", "slurmctld does not know where to put the node",
                              place=value.place, nodes=line.hosts)
    for part_line in situation.conf.partitions:
        value = part_line.values.get("topology")
        if value and value.text not in there:
            yield Finding(Severity.FATAL, f"Topology={value.text[:100]} of partition {part_line.name}: there is "
                          "none of that name", f"slurmctld does not start; there {_are(there)}", place=value.place)


def _are(topologies: dict[str, Topology]) -> str:
    names = ", ".join(list(topologies)[:8])
    return f"is {names}" if len(topologies) == 1 else f"are {names}"


def _units(topology: Topology) -> set[str]:
    return {line.name for line in topology.switches} | {line.name for line in topology.blocks}


def param(situation: Situation) -> Iterator[Finding]:
    value = situation.conf.settings.get("topologyparam")
    known = {name.casefold(): name for name in _WORDS}
    for word in value.text.split(",") if value else ():
        name = word.partition("=")[0].strip().casefold()
        if value is None or not name:
            continue
        if name not in known:
            near = get_close_matches(name, known, 1)
            yield Finding(Severity.WRONG, f"TopologyParam={word[:60]}: Slurm has no such word",
                          "it is ignored in silence", (f"TopologyParam={known[near[0]]}",) if near else (), value.place)
            continue
        since = _WORDS[known[name]]
        old = tuple(v for v in situation.versions if v < since)
        if old:
            yield Finding(Severity.WRONG, f"TopologyParam={word[:60]}: from {show(since)} on",
                          f"{told(old)}: it is ignored in silence", place=value.place, versions=only(situation, old))


RULES: tuple[Rule, ...] = (files, *TREES, *BLOCKS, yaml, named, param, *CABLING)
