"""Settings of slurm.conf beside nodes and partitions: what a production cluster needs, the site's own over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.conf.keys import Version
from hpcadmin.conf.options import Options
from hpcadmin.conf.parts import Entry, Kind, Line, Problem, Section
from hpcadmin.site import Site

__all__ = ["Cluster", "Options", "accounting", "slurm_sections", "tracks_by_cgroup"]

STATE_DIR = "/var/lib/slurm/slurmctld"
# From here on the plug-ins that schedule GPUs and weigh priorities are Slurm's own defaults; messages fan out by 16.
NEW_DEFAULTS: Version = (23, 11)
BACKFILL_DAY = 1440                   # minutes that the backfill scheduler plans ahead by itself
BACKFILL_MOST = 43200


@dataclass(frozen=True)
class Cluster:
    """What settings depend on beside the site's file."""

    gres: tuple[str, ...] = ()                   # the names that GresTypes must have
    tres: tuple[str, ...] = ()                   # gres/gpu and each of its types
    slurmd_parameters: str = ""
    mib_per_cpu: int | None = None               # the least of all nodes
    nodes: int = 0
    rdma: bool = False                           # some node has an active RDMA port
    longest_minutes: int | None = None           # MaxTime of the most patient partition; None: none has an end
    topology: tuple[Line, ...] = ()              # TopologyPlugin, TopologyParam
    version: Version | None = None


def slurm_sections(site: Site, cluster: Cluster, options: Options) -> tuple[tuple[Section, ...], list[Problem]]:
    """slurm.conf up to the nodes, in the order in which an admin reads it."""
    from hpcadmin.conf.accounting import accounting_lines, priority_lines  # noqa: PLC0415  (they read settings as well)
    from hpcadmin.conf.hooks import hook_lines, private_tmp_lines  # noqa: PLC0415
    identity, problems = _identity(site)
    problems += _select_problems(options)
    health, hooks, more = hook_lines(site, options, cluster.version)
    problems += more
    private, more = private_tmp_lines(site, options, cluster.version)
    problems += more
    money, more = accounting_lines(site, cluster, options)
    problems += more
    sections = [
        Section("Cluster and controllers", tuple(identity)),
        Section("Daemons", _daemons(site, options, cluster)),
        Section("Scheduling", (*_scheduling(options, cluster), *priority_lines(site, cluster, options))),
        Section("Jobs on the nodes", (*_jobs(options, cluster), *private, *hooks)),
        Section("Health of the nodes", health),
        Section("Accounting", money),
    ]
    own = options.rest()
    if own:
        sections.append(Section("The site's own settings", own))
    return tuple(s for s in sections if s.lines), [*problems, *options.problems]


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
    named = [host.partition("(")[0].casefold() for host in site.cluster.controllers]
    problems += [Problem(Kind.SITE, f"controller {host[:60]} is named twice", key="cluster.controllers")
                 for host in dict.fromkeys(named) if named.count(host) > 1]
    for place, host in enumerate(site.cluster.controllers):
        reason = "the primary controller" if place == 0 else f"backup controller {place}"
        lines.append(Line((Entry("SlurmctldHost", host, reason, "site.toml [cluster] controllers",
                                 "cluster.controllers"),)))
    return lines, problems


def _daemons(site: Site, options: Options, cluster: Cluster) -> tuple[Line, ...]:
    take = options.take
    lines = [
        take("SlurmUser", "slurm", "slurmctld needs no root; the packages make this user"),
        take("StateSaveLocation", STATE_DIR, "queue and job state; shared with backup controllers"),
        take("SlurmdSpoolDir", "/var/lib/slurm/slurmd", "local to each node, survives a reboot"),
        take("SlurmctldLogFile", "/var/log/slurm/slurmctld.log", "else only syslog has it"),
        take("SlurmdLogFile", "/var/log/slurm/slurmd.log", "else only syslog has it"),
        take("ReturnToService", "1", "a DOWN node that registers well comes back by itself; a drained one does not"),
    ]
    if site.slurm.configless:
        lines.append(options.add("SlurmctldParameters", "enable_configless",
                                 "slurmd and commands fetch these files from slurmctld", "site.toml [slurm] configless",
                                 "slurm.configless"))
    width = tree_width(cluster.nodes, cluster.version)
    if width:
        lines.append(take("TreeWidth", str(width), f"three hops reach {cluster.nodes} nodes; Slurm's own width does "
                          "not", "inventory"))
    return tuple(lines)


def tree_width(nodes: int, version: Version | None) -> int:
    """The least width with which three hops reach every node, where Slurm's own (50, 16 from 23.11 on) does not; or 0.
    Width w reaches w + w*w + w*w*w nodes (slurm.conf(5))."""
    def reach(width: int) -> int:
        return width + width ** 2 + width ** 3
    own = 50 if version is not None and version < NEW_DEFAULTS else 16
    if nodes <= reach(own):
        return 0
    return next(width for width in range(own, 65534) if reach(width) >= nodes)


def _scheduling(options: Options, cluster: Cluster) -> tuple[Line, ...]:
    lines = [
        options.take("SelectType", "select/cons_tres", "the only plug-in that schedules GPUs; before 23.11 "
                     "whole nodes are handed out otherwise"),
        options.take("SelectTypeParameters", *select_parameters(options)),
    ]
    if cluster.gres:
        lines.append(_gres_types(options, cluster.gres))
    by_memory = "memory" in options.value("SelectTypeParameters", select_parameters(options)[0]).casefold()
    if by_memory and cluster.mib_per_cpu and not (options.find("DefMemPerNode") or options.find("DefMemPerGPU")):
        lines.append(options.take("DefMemPerCPU", str(cluster.mib_per_cpu),
                                  "a job that names no memory gets its CPUs' share (the smallest of all nodes); "
                                  "without it, it takes the whole node's", "inventory"))
    lines.append(options.take("SchedulerParameters", *_backfill(cluster.longest_minutes)))
    lines.append(options.take("EnforcePartLimits", "ALL", "a job that no partition it names can ever run is refused "
                              "at once; else it waits for ever"))
    return (*lines, *cluster.topology)


def select_parameters(options: Options) -> tuple[str, str]:
    """(value, reason) that suit the plug-in: with select/linear slurmctld ends where cores are to be
    handed out (tried on 22.05, 24.11 and 26.05)."""
    if options.value("SelectType", "select/cons_tres").casefold() == "select/linear":
        return "CR_Memory", "memory is handed out to one job each, beside whole nodes"
    return "CR_Core_Memory", "cores and memory are handed out, to one job each"


def _select_problems(options: Options) -> list[Problem]:
    """Words that slurmctld does not start with."""
    text = options.value("SelectTypeParameters")
    if not text:
        return []
    unit = [word for word in text.casefold().split(",") if word.startswith(("cr_cpu", "cr_core", "cr_socket"))
            and word != "cr_core_default_dist_block"]
    named = [*unit, *(word for word in text.casefold().split(",") if word == "cr_memory")]
    linear = options.value("SelectType", "select/cons_tres").casefold() == "select/linear"
    why = ("one of CR_CPU, CR_Core, CR_Socket, CR_Memory and their like" if len(named) > 1 else
           "select/linear hands out no cores" if linear and unit else
           "select/cons_tres needs CR_CPU, CR_Core or CR_Socket" if not linear and not unit else "")
    return [Problem(Kind.SITE, f"SelectTypeParameters={text[:80]}: {why}; slurmctld would not start",
                    key=options.own["selecttypeparameters"].path,
                    hint=f"{select_parameters(options)[0]}, or leave it out")] if why else []


def _gres_types(options: Options, gres: Sequence[str]) -> Line:
    """Every name that nodes have; the site's own list is made complete."""
    why = "nodes have them; without it gres.conf is not read"
    if not options.find("GresTypes"):
        return options.take("GresTypes", ",".join(gres), why, "inventory")
    lacking = [name for name in gres if not options.has("GresTypes", name)]
    return options.add("GresTypes", ",".join(lacking), why, "inventory") if lacking else options.take(
        "GresTypes", ",".join(gres), why)


def _backfill(longest: int | None) -> tuple[str, str]:
    """(value, reason) of SchedulerParameters: the plan must reach as far as jobs may last (slurm.conf(5))."""
    why = "backfill goes on with its list where it was interrupted, so that a long queue's end is planned too"
    if longest is None or longest <= BACKFILL_DAY:
        return "bf_continue", why
    window = min(longest, BACKFILL_MOST)
    coarse = min(600, 60 * -(-window // BACKFILL_DAY))
    return (f"bf_continue,bf_window={window},bf_resolution={coarse}",
            f"{why}; it plans {window} minutes ahead, as long as jobs may last (a day otherwise, and large jobs "
            f"starve), in steps of {coarse} s to keep that quick")


def _jobs(options: Options, cluster: Cluster) -> tuple[Line, ...]:
    lines = [
        options.take("ProctrackType", "proctrack/cgroup", "no process of a job escapes its end"),
        options.take("TaskPlugin", "task/cgroup,task/affinity", "tasks keep to their cores, memory and GPUs"),
    ]
    if tracks_by_cgroup(options) or options.find("PrologFlags"):
        lines.append(options.take("PrologFlags", "Contain", "a job has its container on every node from its start: "
                                  "Prolog runs before it, and ssh sessions of its owner are put into it "
                                  "(pam_slurm_adopt)"))
    lines.append(options.take("LaunchParameters", "use_interactive_step", "salloc's shell runs on the job's first "
                              "node, within its limits; else on the login node, which has neither GPUs nor limits"))
    lines.append(_unkillable(options))
    if cluster.rdma:
        lines.append(options.take("PropagateResourceLimitsExcept", "MEMLOCK", "RDMA pins memory: a login node's limit "
                                  "must not follow a job to nodes where slurmd has none", "inventory"))
    if cluster.slurmd_parameters:
        lines.append(options.add("SlurmdParameters", cluster.slurmd_parameters, "Sockets and Cores below count NUMA "
                                 "nodes or caches, which is what the GPUs are local to", "inventory"))
    return tuple(lines)


def _unkillable(options: Options) -> Line:
    message = options.value("MessageTimeout", "10")
    value = max(180, 5 * int(message)) if message.isdigit() else 180
    return options.take("UnkillableStepTimeout", str(value), "freeing GPU memory or writing to a slow file system can "
                        "take more than the usual 60 s, after which the node is drained (Kill task failed)")


def tracks_by_cgroup(options: Options) -> bool:
    return options.value("ProctrackType", "proctrack/cgroup").casefold() == "proctrack/cgroup"


def accounting(site: Site, options: Options) -> bool:
    """Whether slurm.conf has slurmdbd keep what jobs used."""
    plugin = options.value("AccountingStorageType").casefold()
    return bool(site.accounting.host) or plugin.rpartition("/")[2] == "slurmdbd"


def own_line(key: str, value: str, reason: str, path: str) -> Line:
    table, _, name = path.rpartition(".")
    return Line((Entry(key, value, reason, f"site.toml [{table}] {name}", path),))
