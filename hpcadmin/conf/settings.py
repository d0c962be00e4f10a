"""Settings of slurm.conf and cgroup.conf beside nodes and partitions: production defaults, the site's over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.keys import Effect, Version, effects, show
from hpcadmin.conf.parts import DEFAULT, Entry, Kind, Line, Problem, Section, line
from hpcadmin.site import Scalar, Site

# Keys that are not simple settings, and where in site.toml they belong.
_ELSEWHERE = {
    "nodename": "[nodes.NAME.options]", "nodeset": "", "partitionname": "[partitions.NAME]", "downnodes": "",
    "include": "", "clustername": "[cluster] name", "slurmctldhost": "[cluster] controllers",
    "controlmachine": "[cluster] controllers", "controladdr": "[cluster] controllers",
    "backupcontroller": "[cluster] controllers", "backupaddr": "[cluster] controllers", "frontendname": "",
}


@dataclass
class Options:
    """The site's own settings of one file; `take` marks what has found its place."""

    table: str                                   # "slurm.options"
    values: Mapping[str, Scalar]
    taken: set[str] = field(default_factory=set)

    def find(self, key: str) -> str | None:
        return next((name for name in self.values if name.casefold() == key.casefold()), None)

    def value(self, key: str, default: str = "") -> str:
        """The value that will be in force, for decisions that depend on it."""
        name = self.find(key)
        return default if name is None else scalar(self.values[name])

    def take(self, key: str, value: str, reason: str, source: str = DEFAULT) -> Line:
        """The line for `key`: ours, or the site's where it has one."""
        name = self.find(key)
        if name is None:
            return line(key, value, reason, source)
        self.taken.add(name)
        return self._own(name, f"the site's own; {value} otherwise: {reason}" if value else "the site's own")

    def rest(self) -> tuple[Line, ...]:
        return tuple(self._own(name, "the site's own") for name in sorted(self.values, key=str.casefold)
                     if name not in self.taken)

    def _own(self, name: str, reason: str) -> Line:
        path = f"{self.table}.{name}"
        return Line((Entry(name, scalar(self.values[name]), reason, f"site.toml [{self.table}]", path),))


@dataclass(frozen=True)
class Cluster:
    """What settings depend on beside the site's file."""

    gpu_types: tuple[str, ...]
    slurmd_parameters: str
    mib_per_cpu: int | None


def slurm_sections(site: Site, cluster: Cluster, options: Options) -> tuple[tuple[Section, ...], list[Problem]]:
    """slurm.conf up to the nodes, in the order in which an admin reads it."""
    identity, problems = _identity(site)
    sections = [
        Section("Cluster and controllers", tuple(identity)),
        Section("Daemons", _daemons(options)),
        Section("Scheduling", _scheduling(options, cluster)),
        Section("Jobs on the nodes", _jobs(options, cluster)),
        Section("Accounting", _accounting(options, cluster)),
    ]
    own = options.rest()
    if own:
        sections.append(Section("The site's own settings", own))
    return tuple(s for s in sections if s.lines), problems


def _identity(site: Site) -> tuple[list[Line], list[Problem]]:
    problems = []
    if not site.cluster.name:
        problems.append(Problem(Kind.SITE, "no cluster name", key="cluster.name",
                                hint='site.toml: [cluster] name = "mycluster"'))
    if not site.cluster.controllers:
        problems.append(Problem(Kind.SITE, "no controller: where does slurmctld run?", key="cluster.controllers",
                                hint='site.toml: [cluster] controllers = ["head"] or ["head(10.0.0.1)"]'))
    lines = [Line((Entry("ClusterName", site.cluster.name, "the cluster's name", "site.toml [cluster] name",
                         "cluster.name"),))] if site.cluster.name else []
    for place, host in enumerate(site.cluster.controllers):
        reason = "the primary controller" if place == 0 else f"backup controller {place}"
        lines.append(Line((Entry("SlurmctldHost", host, reason, "site.toml [cluster] controllers",
                                 "cluster.controllers"),)))
    return lines, problems


def _daemons(options: Options) -> tuple[Line, ...]:
    take = options.take
    return (
        take("SlurmUser", "slurm", "slurmctld needs no root; the packages make this user"),
        take("AuthType", "auth/munge", "every host has munge"),
        take("StateSaveLocation", "/var/lib/slurm/slurmctld", "queue and job state; shared with backup controllers"),
        take("SlurmdSpoolDir", "/var/lib/slurm/slurmd", "local to each node, survives a reboot"),
        take("SlurmctldPidFile", "/run/slurmctld.pid", "as the packages' service files expect"),
        take("SlurmdPidFile", "/run/slurmd.pid", "as the packages' service files expect"),
        take("SlurmctldLogFile", "/var/log/slurm/slurmctld.log", "else only syslog has it"),
        take("SlurmdLogFile", "/var/log/slurm/slurmd.log", "else only syslog has it"),
        take("ReturnToService", "1", "a DOWN node that registers well comes back by itself; a drained one does not"),
    )


def _scheduling(options: Options, cluster: Cluster) -> tuple[Line, ...]:
    lines = [
        options.take("SelectType", "select/cons_tres", "the only plug-in that schedules GPUs"),
        options.take("SelectTypeParameters", "CR_Core_Memory", "cores and memory are handed out, to one job each"),
    ]
    if cluster.gpu_types:
        lines.append(options.take("GresTypes", "gpu", "nodes have GPUs; without it gres.conf is not read"))
    by_memory = "memory" in options.value("SelectTypeParameters", "CR_Core_Memory").casefold()
    if by_memory and cluster.mib_per_cpu and not (options.find("DefMemPerNode") or options.find("DefMemPerGPU")):
        lines.append(options.take("DefMemPerCPU", str(cluster.mib_per_cpu),
                                  "a job that names no memory gets its CPUs' share (the smallest of all nodes); "
                                  "without it, it takes the whole node's", "inventory"))
    return tuple(lines)


def _jobs(options: Options, cluster: Cluster) -> tuple[Line, ...]:
    lines = [
        options.take("ProctrackType", "proctrack/cgroup", "no process of a job escapes its end"),
        options.take("TaskPlugin", "task/cgroup,task/affinity", "tasks keep to their cores, memory and GPUs"),
    ]
    if _tracks_by_cgroup(options) or options.find("PrologFlags"):
        lines.append(options.take("PrologFlags", "Contain", "ssh sessions of a job's owner can be put into the job"))
    if cluster.slurmd_parameters or options.find("SlurmdParameters"):
        lines.append(_slurmd_parameters(options, cluster.slurmd_parameters))
    return tuple(lines)


def _slurmd_parameters(options: Options, ours: str) -> Line:
    """The site's parameters, and the one that the node lines' Sockets are written for."""
    reason = "Sockets and Cores below count NUMA nodes, which is what the GPUs are local to"
    name = options.find("SlurmdParameters")
    if name is None:
        return line("SlurmdParameters", ours, reason, "inventory")
    own = options.take("SlurmdParameters", ours, reason)
    words = own.entries[0].value.split(",")
    if not ours or ours in words:
        return own
    entry = own.entries[0]
    return Line((Entry(name, ",".join([*words, ours]), f"the site's own, and {ours}: {reason}", entry.source,
                       entry.site_key),))


def _tracks_by_cgroup(options: Options) -> bool:
    return options.value("ProctrackType", "proctrack/cgroup").casefold() == "proctrack/cgroup"


def accounting(options: Options) -> bool:
    return options.value("AccountingStorageType").casefold() not in ("", "accounting_storage/none")


def _accounting(options: Options, cluster: Cluster) -> tuple[Line, ...]:
    lines = []
    if options.find("AccountingStorageType"):
        lines.append(options.take("AccountingStorageType", "", ""))
    if not accounting(options):
        return tuple(lines)
    gather = "cgroup" if _tracks_by_cgroup(options) else "linux"
    lines.append(options.take("JobAcctGatherType", f"jobacct_gather/{gather}",
                              "memory and CPU time of each step"))
    if cluster.gpu_types:
        wanted = ",".join(["gres/gpu", *(f"gres/gpu:{kind}" for kind in cluster.gpu_types)])
        lines.append(options.take("AccountingStorageTRES", wanted,
                                  "GPUs are accounted, each type by itself; without it AllocTRES has no GPU",
                                  "inventory"))
    return tuple(lines)


def cgroup_sections(options: Options, own: Options, version: Version | None) -> tuple[Section, ...]:
    """cgroup.conf for what slurm.conf uses. own: the site's cgroup.conf keys."""
    tasks = options.value("TaskPlugin", "task/cgroup,task/affinity").casefold()
    used = "task/cgroup" in tasks
    lines = []
    if used:
        lines = [own.take("ConstrainCores", "yes", "a task sees only its cores"),
                 own.take("ConstrainRAMSpace", "yes", "a job that uses more memory than it asked for ends"),
                 own.take("ConstrainDevices", "yes", "a job cannot open GPUs that it was not given")]
    elif not _any_cgroup(options) and version is not None and version >= (24, 5):
        lines = [own.take("CgroupPlugin", "disabled",
                          "no plug-in of slurm.conf uses cgroups, and slurmd looks for them otherwise")]
    sections = [Section("What a job may touch" if used else "Cgroups", tuple(lines)),
                Section("The site's own settings", own.rest())]
    return tuple(s for s in sections if s.lines)


def _any_cgroup(options: Options) -> bool:
    defaults = {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup,task/affinity",
                "JobAcctGatherType": "jobacct_gather/cgroup" if accounting(options) else ""}
    return any("/cgroup" in options.value(key, value).casefold() for key, value in defaults.items())


def constrains_devices(options: Options, own: Options) -> bool:
    tasks = options.value("TaskPlugin", "task/cgroup,task/affinity").casefold()
    return "task/cgroup" in tasks and own.value("ConstrainDevices", "yes").casefold() in ("yes", "true")


def misplaced(options: Options) -> list[Problem]:
    """Options that are no simple settings, or come twice in different case."""
    problems = []
    seen: set[str] = set()
    for name in options.values:
        key, path = name.casefold(), f"{options.table}.{name}"
        if key in seen:
            problems.append(Problem(Kind.SITE, f"{name} comes twice (Slurm's keys are the same in capitals)", key=path))
        seen.add(key)
        if options.table == "slurm.options" and key in _ELSEWHERE:
            place = _ELSEWHERE[key]
            hint = f"write it as {place} in site.toml" if place else "conf render does not write it"
            problems.append(Problem(Kind.SITE, f"{name} is not a setting of this kind", key=path, hint=hint))
    return problems


def refused(file: str, lines: Sequence[Line], version: Version | None) -> tuple[list[Problem], list[str]]:
    """(problems, notes): keys and values that the version, or where none is known some version, does not have."""
    problems, notes = [], []
    for item in lines:
        kind = "NodeName" if item.entries[0].key == "NodeName" and file == "slurm.conf" else file
        for e in item.entries:
            for rule, where, effect in effects(kind, e.key, e.value, version):
                instead = f"{rule.instead} instead" if rule.instead else ""
                text = f"{file}: {e.key}={e.value} in Slurm {show(where)}: {effect.value}"
                if effect is Effect.FATAL and version is not None:
                    problems.append(Problem(Kind.SITE, text, key=e.site_key, hint=instead))
                else:
                    notes.append(f"{text}{f'; {instead}' if instead else ''}")
    return problems, notes
