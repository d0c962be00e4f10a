"""cgroup.conf for what slurm.conf uses. Which cgroup version a node has, slurmd finds out by itself."""

from __future__ import annotations

from hpcadmin.conf.keys import Version
from hpcadmin.conf.options import Options
from hpcadmin.conf.parts import Line, Section
from hpcadmin.conf.settings import accounting
from hpcadmin.site import Site

CAN_DISABLE: Version = (24, 5)                   # CgroupPlugin=disabled


def cgroup_sections(site: Site, options: Options, own: Options, version: Version | None) -> tuple[Section, ...]:
    """own: the site's cgroup.conf keys."""
    used = options.has("TaskPlugin", "task/cgroup", "task/cgroup,task/affinity")
    lines: list[Line] = []
    if used:
        lines = [own.take("ConstrainCores", "yes", "a task sees only its cores"),
                 own.take("ConstrainRAMSpace", "yes", "a job that uses more memory than it asked for ends"),
                 own.take("ConstrainDevices", "yes", "a job cannot open GPUs that it was not given")]
    elif not _any_cgroup(site, options) and version is not None and version >= CAN_DISABLE:
        lines = [own.take("CgroupPlugin", "disabled",
                          "no plug-in of slurm.conf uses cgroups, and slurmd looks for them otherwise")]
    sections = [Section("What a job may touch" if used else "Cgroups", tuple(lines)),
                Section("The site's own settings", own.rest())]
    return tuple(s for s in sections if s.lines)


def _any_cgroup(site: Site, options: Options) -> bool:
    defaults = {"ProctrackType": "proctrack/cgroup", "TaskPlugin": "task/cgroup,task/affinity",
                "JobAcctGatherType": "jobacct_gather/cgroup" if accounting(site, options) else ""}
    return any("/cgroup" in options.value(key, value).casefold() for key, value in defaults.items())


def constrains_devices(options: Options, own: Options) -> bool:
    return (options.has("TaskPlugin", "task/cgroup", "task/cgroup,task/affinity")
            and own.value("ConstrainDevices", "yes").casefold() in ("yes", "true", "up", "y", "t", "1"))
