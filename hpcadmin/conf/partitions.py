"""Partitions: the site's, or one for each kind of node; what a job is billed and gets by default, from the hardware."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.conf.keys import Version
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.options import Options, Own, for_version
from hpcadmin.conf.parts import Entry, Kind, Line, Problem
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.site import Site

_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_NO_END = ("infinite", "unlimited", "-1")
_MEMORY_KEYS = ("defmempercpu", "defmempergpu", "defmempernode")
# A partition has its own default memory where its nodes have that much more than the least of the cluster.
_MORE_MEMORY = 1.05


@dataclass(frozen=True)
class Hardware:
    """The nodes of one NodeName line. mib: what Slurm may hand out on each."""

    names: tuple[str, ...]
    cpus: int
    mib: int
    gpus: int


@dataclass(frozen=True)
class Policy:
    """What else decides a partition's line."""

    billing: bool                # TRESBillingWeights mean something
    mib_per_cpu: int | None      # the cluster's DefMemPerCPU where it is ours; None: no default memory is ours to give


@dataclass(frozen=True)
class Partitions:
    lines: tuple[Line, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    longest_minutes: int | None  # None: some partition's jobs have no end


_Table = Mapping[str, Own]       # the site's keys by their small letters, as the version wants them


def partitions(site: Site, hardware: Sequence[Hardware], policy: Policy,
               version: Version | None = None) -> Partitions:
    everything = [name for h in hardware for name in h.names]
    if not everything:
        return Partitions((), (), (), None)              # that no node can be written has been said
    tables, problems, notes = _tables(site, version)
    common = tables.pop("DEFAULT", {})
    own = tables
    lines = []
    if common:
        lines.append(_default_line(common))
    described = ([_own(name, own[name], common, everything) for name in sorted(own)] if own
                 else _by_kind(site, hardware))
    covered: set[str] = set()
    for entries, table, nodes, wrong in described:
        problems += wrong
        covered |= nodes
        keys = {*table, *common}
        lines.append(Line((*entries, *_from_hardware(keys, _part(hardware, nodes), policy))))
    outside = set(everything) - covered
    if outside and not problems:
        notes.append(f"{slurm_list(outside)}: in no partition of site.toml, so no job can run there")
    longest, more = _longest(common, [own[name] for name in sorted(own)] or [{}])
    problems += [*more, *_contradictions(common, own)]
    if longest is None and not more:
        notes.append("partitions without MaxTime: their jobs may run for ever, and the scheduler cannot plan around "
                     "them ([partitions.DEFAULT] MaxTime)")
    if own and not any("default" in table and _yes(table["default"]) for table in own.values()):
        notes.append("no partition of site.toml has Default = true: a job that names none is refused")
    return Partitions(tuple(lines), tuple(problems), tuple(notes), longest)


_Described = tuple[list[Entry], _Table, set[str], list[Problem]]


def _tables(site: Site, version: Version | None) -> tuple[dict[str, _Table], list[Problem], list[str]]:
    tables: dict[str, _Table] = {}
    problems: list[Problem] = []
    notes: list[str] = []
    for name, table in site.partitions.items():
        options = Options(f"partitions.{name}", table)
        notes += for_version(options, "PartitionName", version)
        problems += options.problems
        named = options.own.get("partitionname")
        if named is not None:
            problems.append(Problem(Kind.SITE, f"[partitions.{name}] {named.key}: the table's name is the partition's",
                                    key=named.path, hint="leave it out"))
        key = "DEFAULT" if name.upper() == "DEFAULT" else name
        if key in tables:
            problems.append(Problem(Kind.SITE, f"[partitions.{name}]: there is another table for all partitions",
                                    key=f"partitions.{name}", hint="make one of them"))
        tables[key] = options.own
    return tables, problems, notes


def _default_line(common: _Table) -> Line:
    why = "for every partition below that does not say otherwise"
    source = "site.toml [partitions.DEFAULT]"
    return Line((Entry("PartitionName", "DEFAULT", why, source, "partitions.DEFAULT"),
                 *(Entry(common[key].key, common[key].value, _why(common[key], f", {why}"), source, common[key].path)
                   for key in sorted(common))))


def _why(own: Own, more: str = "") -> str:
    return f"the site's own{more}{f'; {own.why}' if own.why else ''}"


def _by_kind(site: Site, hardware: Sequence[Hardware]) -> list[_Described]:
    """gpu and cpu where there are both kinds of nodes, else one; and the one that site.toml submits to."""
    kinds = {"gpu": [n for h in hardware if h.gpus for n in h.names],
             "cpu": [n for h in hardware if not h.gpus for n in h.names]}
    everything = [name for h in hardware for name in h.names]
    named = site.slurm.partition
    why = "site.toml has no [partitions.NAME]: "
    if not all(kinds.values()):
        return [_derived(named or "main", everything, f"{why}one partition with all nodes, which are of one kind",
                         named=bool(named), default=True)]
    found = [_derived("cpu", kinds["cpu"], f"{why}one for each kind of node; jobs that name none run where no GPU is",
                      named=named == "cpu", default=True),
             _derived("gpu", kinds["gpu"], f"{why}one for each kind of node", named=named == "gpu")]
    if named and named not in kinds:
        found.append(_derived(named, everything, "all nodes: where validate submits", named=True))
    return found


def _derived(name: str, nodes: list[str], why: str, *, named: bool, default: bool = False) -> _Described:
    first = Entry("PartitionName", name, why)
    if named:
        first = Entry("PartitionName", name, why, "site.toml [slurm] partition", "slurm.partition")
    entries = [first, Entry("Nodes", slurm_list(nodes), why, "inventory")]
    if default:
        entries.append(Entry("Default", "YES", why))
    return entries, {}, set(nodes), []


def _own(name: str, table: _Table, common: _Table, everything: list[str]) -> _Described:
    source = f"site.toml [partitions.{name}]"
    entries = [Entry("PartitionName", name, "the site's own", source, f"partitions.{name}")]
    nodes = set(everything)
    problems: list[Problem] = []
    named = table.get("nodes") or common.get("nodes")
    if named is None:
        entries.append(Entry("Nodes", slurm_list(everything), "all nodes, since the site names none", "inventory"))
    else:
        nodes, problems = _nodes(named, everything)
    for key in sorted(table, key=lambda k: (k != "nodes", k)):
        entries.append(Entry(table[key].key, table[key].value, _why(table[key]), source, table[key].path))
    return entries, table, nodes, problems


def _nodes(named: Own, everything: list[str]) -> tuple[set[str], list[Problem]]:
    if named.value.casefold() == "all":
        return set(everything), []
    key = named.path
    table = key.rpartition(".")[0]
    try:
        found = set(expand(named.value))
    except UsageError as exc:
        return set(), [Problem(Kind.SITE, f"[{table}] {exc}", key=key)]
    unknown = found - set(everything)
    if not unknown:
        return found, []
    return found, [Problem(Kind.SITE, f"[{table}] names {slurm_list(unknown)}, which the inventory does not have",
                           key=key, hint="discover these nodes too, or take them out")]


def _part(hardware: Sequence[Hardware], nodes: set[str]) -> list[tuple[Hardware, int]]:
    counted = [(h, sum(name in nodes for name in h.names)) for h in hardware]
    return [(h, count) for h, count in counted if count]


def _from_hardware(keys: set[str], part: Sequence[tuple[Hardware, int]], policy: Policy) -> list[Entry]:
    """What the site did not say: GPUs' share of CPUs, default memory, billing."""
    entries = []
    with_gpus = [(h, count) for h, count in part if h.gpus and h.cpus]
    if with_gpus and "defcpupergpu" not in keys:
        share = min(h.cpus // h.gpus for h, _ in with_gpus)
        if share:
            entries.append(Entry("DefCpuPerGPU", str(share), "a job that names no CPUs gets its GPUs' share of the "
                                 "node's (the smallest here), and with them its share of memory", "inventory"))
    least = min((h.mib // h.cpus for h, _ in part if h.cpus), default=0)
    if policy.mib_per_cpu and least > policy.mib_per_cpu * _MORE_MEMORY and not keys & set(_MEMORY_KEYS):
        entries.append(Entry("DefMemPerCPU", str(least), "its nodes have more memory for each CPU than the cluster's "
                             "least", "inventory"))
    if policy.billing and part and "tresbillingweights" not in keys:
        entries.append(_billing(part, with_gpus))
    return entries


def _billing(part: Sequence[tuple[Hardware, int]], with_gpus: Sequence[tuple[Hardware, int]]) -> Entry:
    """Each resource weighs as many CPUs as come with it on the nodes."""
    cpus = sum(h.cpus * count for h, count in part)
    gib = sum(h.mib * count for h, count in part) / 1024
    weights = ["CPU=1.0", f"Mem={cpus / gib:.4f}G" if gib else ""]
    why = f"a CPU is 1; its share of the nodes' memory is {gib / cpus:.1f} GiB" if cpus else "a CPU is 1"
    if with_gpus:
        gpus = sum(h.gpus * count for h, count in with_gpus)
        each = sum(h.cpus * count for h, count in with_gpus) / gpus
        weights.append(f"GRES/gpu={each:.1f}")
        why += f"; a GPU weighs the {each:.1f} CPUs that come with it"
    return Entry("TRESBillingWeights", ",".join(weight for weight in weights if weight), why, "inventory")


def _longest(common: _Table, own: Sequence[_Table]) -> tuple[int | None, list[Problem]]:
    """The MaxTime of the most patient partition in minutes; None where one has none."""
    found: list[int | None] = []
    problems = []
    for table in own:
        said = table.get("maxtime") or common.get("maxtime")
        if said is None or said.value.casefold() in _NO_END:
            found.append(None)
            continue
        minutes = slurm_minutes(said.value)
        if minutes is None:
            problems.append(Problem(Kind.SITE, f"MaxTime={said.value[:40]} is no time", key=said.path,
                                    hint="minutes, hours:minutes:seconds or days-hours:minutes:seconds"))
        found.append(minutes)
    times = [minutes for minutes in found if minutes is not None]
    return (max(times) if len(times) == len(found) and times else None), problems


def _contradictions(common: _Table, own: Mapping[str, _Table]) -> list[Problem]:
    """Two partitions for jobs that name none; a DefaultTime beyond MaxTime, with which slurmctld drops the first."""
    problems = []
    default = [name for name in sorted(own) if "default" in own[name] and _yes(own[name]["default"])]
    if len(default) > 1:
        problems.append(Problem(Kind.SITE, f"partitions {' and '.join(default)} are both the default: Slurm takes the "
                                "last of them", key=own[default[1]]["default"].path, hint="leave one"))
    for table in own.values() or [common]:
        usual, most = (table.get(key) or common.get(key) for key in ("defaulttime", "maxtime"))
        if usual is None or most is None or most.value.casefold() in _NO_END:
            continue
        one, other = slurm_minutes(usual.value), slurm_minutes(most.value)
        if one is not None and other is not None and one > other:
            problems.append(Problem(Kind.SITE, f"DefaultTime={usual.value} is more than MaxTime={most.value}",
                                    key=usual.path))
    return problems


def _yes(own: Own) -> bool:
    return own.value.casefold() in ("yes", "true")


def slurm_minutes(text: str) -> int | None:
    """A time limit in minutes, rounded up: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (slurm.conf(5)); None for others."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1] is not None or match[4] is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    return (days * 24 + hours) * 60 + minutes + (seconds > 0) * -(-seconds // 60)
