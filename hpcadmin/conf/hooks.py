"""Programs that Slurm runs on nodes and controllers, and directories that every job gets for itself."""

from __future__ import annotations

import json
import re

from hpcadmin.conf.keys import Version
from hpcadmin.conf.options import Options
from hpcadmin.conf.parts import Document, Entry, Kind, Line, Problem, Section
from hpcadmin.conf.settings import own_line, tracks_by_cgroup
from hpcadmin.site import HookSite, PrivateTmp, Site

NAMESPACES: Version = (25, 11)                   # NamespaceType and namespace.yaml; JobContainerType before
OWN_TIMEOUT: Version = (26, 5)                   # HealthCheckTimeout; 60 s before
# Absolute, and nothing that the file's grammar, a glob or a shell would take for something else.
_PATH = re.compile(r"/[A-Za-z0-9_.+%/-]*[A-Za-z0-9_.+-]")
_HOOKS = (
    ("prolog", "Prolog", "runs as root on each node of a job before its first task; a failure drains the node"),
    ("epilog", "Epilog", "runs as root on each node of a job after its last task; a failure drains the node"),
    ("prolog_slurmctld", "PrologSlurmctld", "runs on the controller, as SlurmUser, before a job starts"),
    ("epilog_slurmctld", "EpilogSlurmctld", "runs on the controller, as SlurmUser, after a job's end"),
    ("task_prolog", "TaskProlog", "runs as the user before each task"),
    ("task_epilog", "TaskEpilog", "runs as the user after each task"),
    ("unkillable", "UnkillableStepProgram", "runs on the node when a step's processes cannot be killed"),
    ("reboot", "RebootProgram", "what scontrol reboot runs on a node"),
)


def hook_lines(site: Site, options: Options,
               version: Version | None) -> tuple[tuple[Line, ...], tuple[Line, ...], list[Problem]]:
    """(health lines, other lines, problems)."""
    problems, lines = [], []
    for name, key, reason in _HOOKS:
        path = getattr(site.hooks, name)
        if path:
            problems += _wrong_path(path, f"hooks.{name}")
            lines.append(options.put(key, path, reason, f"hooks.{name}"))
    if not site.hooks.health:
        return (), tuple(lines), problems
    health, more = _health(site, options, version)
    return health, tuple(lines), [*problems, *more]


def _health(site: Site, options: Options, version: Version | None) -> tuple[tuple[Line, ...], list[Problem]]:
    own = site.hooks
    problems = _wrong_path(own.health, "hooks.health")
    if not 0 < own.health_interval_s <= 65535:
        problems.append(Problem(Kind.SITE, f"[hooks] health_interval_s = {own.health_interval_s} is not between 1 and "
                                "65535", key="hooks.health_interval_s"))
    lines = [
        options.put("HealthCheckProgram", own.health, "looks at the node and drains it where it must; its exit status "
                    "does nothing, and slurmd kills it when its time is up", "hooks.health"),
        options.put("HealthCheckInterval", str(own.health_interval_s), "seconds; 0 otherwise, which is never",
                    "hooks.health_interval_s") if own.health_interval_s != HookSite.health_interval_s
        else options.take("HealthCheckInterval", "300", "seconds; 0 otherwise, which is never"),
        options.put("HealthCheckNodeState", ",".join(own.health_states), "the nodes on which it runs",
                    "hooks.health_states") if own.health_states != HookSite.health_states
        else options.take("HealthCheckNodeState", "ANY,CYCLE", "in any state, and not on all nodes at the same time"),
    ]
    timeout = own.health_timeout_s
    if timeout is not None and (version is None or version >= OWN_TIMEOUT):
        if not 0 < timeout < own.health_interval_s:
            problems.append(Problem(Kind.SITE, f"[hooks] health_timeout_s = {timeout} is not below health_interval_s",
                                    key="hooks.health_timeout_s"))
        if version is not None:
            lines.append(options.put("HealthCheckTimeout", str(timeout), "seconds until slurmd kills it",
                                     "hooks.health_timeout_s"))
    return tuple(lines), problems


def hook_notes(site: Site, version: Version | None) -> list[str]:
    """What must exist for these lines to work."""
    own = site.hooks
    notes = []
    on_nodes = [path for path in (own.health, own.prolog, own.epilog, own.task_prolog, own.task_epilog, own.unkillable,
                                  own.reboot) if path]
    if on_nodes:
        notes.append(f"[hooks]: {', '.join(dict.fromkeys(on_nodes))} must be on every node, executable, root's and "
                     "writable by root alone")
    on_controllers = [path for path in (own.prolog_slurmctld, own.epilog_slurmctld) if path]
    if on_controllers:
        notes.append(f"[hooks]: {', '.join(dict.fromkeys(on_controllers))} must be on every controller, executable")
    idle = [name for name in ("health_interval_s", "health_states", "health_timeout_s")
            if getattr(own, name) != getattr(HookSite, name)]
    if idle and not own.health:
        notes.append(f"[hooks] {', '.join(idle)}: nothing is written, since [hooks] health names no program")
    if own.health and own.health_timeout_s is not None and (version is None or version < OWN_TIMEOUT):
        notes.append("[hooks] health_timeout_s is left out: HealthCheckTimeout is of Slurm 26.05; before it is 60 s")
    return notes


def _wrong_path(path: str, key: str) -> list[Problem]:
    if _PATH.fullmatch(path) and ".." not in path.split("/") and "//" not in path:
        return []
    table, _, name = key.rpartition(".")
    return [Problem(Kind.SITE, f"[{table}] {name} = {path[:80]!r} is not an absolute path of plain characters",
                    key=key)]


def private_tmp_lines(site: Site, options: Options,
                      version: Version | None) -> tuple[tuple[Line, ...], list[Problem]]:
    """slurm.conf's line for directories that every job gets for itself."""
    own = site.private_tmp
    if not own.base_path:
        return (), ([] if own == PrivateTmp() else [Problem(
            Kind.SITE, "[private_tmp] has no base_path: where on the nodes shall the jobs' directories be?",
            key="private_tmp", hint='base_path = "/local/jobs"')])
    problems = _private_tmp_problems(site, options)
    if version is None:
        return (), [*problems, Problem(Kind.SITE, "[private_tmp]: Slurm 25.11 changed its file and its key, and the "
                                       "version is not known", key="private_tmp", hint="--slurm-version names it")]
    why = f"every job has its own {' and '.join(own.dirs)}, gone at its end"
    if version >= NAMESPACES:
        return (options.put("NamespaceType", "namespace/linux", f"{why}; namespace.yaml says where",
                            "private_tmp.base_path"),), problems
    return (options.put("JobContainerType", "job_container/tmpfs", f"{why}; job_container.conf says where",
                        "private_tmp.base_path"),), problems


def _private_tmp_problems(site: Site, options: Options) -> list[Problem]:
    own = site.private_tmp
    problems = _wrong_path(own.base_path, "private_tmp.base_path")
    if own.init_script:
        problems += _wrong_path(own.init_script, "private_tmp.init_script")
    if not own.dirs:
        problems.append(Problem(Kind.SITE, "[private_tmp] dirs names no directory", key="private_tmp.dirs"))
    for folder in own.dirs:
        problems += _wrong_path(folder, "private_tmp.dirs")
        if f"{own.base_path}/".startswith(f"{folder.rstrip('/')}/") or f"{folder}/".startswith(f"{own.base_path}/"):
            problems.append(Problem(Kind.SITE, f"[private_tmp] base_path {own.base_path} and {folder} lie in each "
                                    "other, which is fatal", key="private_tmp.base_path",
                                    hint="a local file system that is none of dirs"))
    contained = any(options.has("PrologFlags", word, "Contain") for word in ("contain", "x11", "runinjob"))
    if not contained or not (tracks_by_cgroup(options) or options.find("PrologFlags")):
        problems.append(Problem(Kind.SITE, "[private_tmp] needs PrologFlags=Contain",
                                key="slurm.options.PrologFlags" if options.find("PrologFlags") else "private_tmp"))
    return problems


def private_tmp(site: Site, version: Version | None) -> Document | None:
    """job_container.conf, or from 25.11 on namespace.yaml."""
    own = site.private_tmp
    if not own.base_path or version is None:
        return None
    if version >= NAMESPACES:
        return Document("namespace.yaml", (Section("All nodes", tuple(_yaml(site))),))
    lines = []
    if own.create:
        lines.append(own_line("AutoBasePath", "true", "slurmd makes BasePath where it is missing",
                              "private_tmp.create"))
    if own.shared:
        lines.append(own_line("Shared", "true", "mounts made later (autofs) are seen inside", "private_tmp.shared"))
    source = "site.toml [private_tmp]"
    entries = [Entry("BasePath", own.base_path, "where the jobs' directories are, on each node's own file system",
                     f"{source} base_path", "private_tmp.base_path"),
               *((Entry("Dirs", ",".join(own.dirs), "what a job has for itself; /dev/shm is in memory",
                        f"{source} dirs", "private_tmp.dirs"),) if own.dirs != PrivateTmp.dirs else ())]
    if own.init_script:
        entries.append(Entry("InitScript", own.init_script, "runs before a job's directories are made",
                             f"{source} init_script", "private_tmp.init_script"))
    return Document("job_container.conf", (Section("All nodes", (*lines, Line(tuple(entries)))),))


def _yaml(site: Site) -> list[Line]:
    own = site.private_tmp
    lines = [_yaml_line("defaults:", "defaults", "", "for all nodes", "")]
    def add(key: str, value: str, reason: str, name: str) -> None:
        lines.append(_yaml_line(f"  {key}: {value}", key, value, reason, f"private_tmp.{name}"))
    if own.create:
        add("auto_base_path", "true", "slurmd makes base_path where it is missing", "create")
    add("base_path", json.dumps(own.base_path), "where the jobs' directories are, on each node's own file system",
        "base_path")
    if own.dirs != PrivateTmp.dirs:
        add("dirs", json.dumps(",".join(own.dirs)), "what a job has for itself; /dev/shm is in memory", "dirs")
    if own.init_script:
        add("init_script", json.dumps(own.init_script), "runs before a job's directories are made", "init_script")
    if own.shared:
        add("shared", "true", "mounts made later (autofs) are seen inside", "shared")
    return lines


def _yaml_line(raw: str, key: str, value: str, reason: str, path: str) -> Line:
    source = f"site.toml [private_tmp] {path.rpartition('.')[2]}" if path else "hpcadmin default"
    return Line((Entry(key, value, reason, source, path),), raw)
