"""Which of the machine's CPUs are not in hwloc's tree and why: off line, or outside the cpuset of whoever made it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.facts._hwloc import Machine, Tree, count, fold

# What batch systems and container runtimes call their control groups; elsewhere (/, /user.slice, /boot) all is seen.
_JOB = re.compile(
    r"(?:^|/)(?:slurm(?:_[^/]{1,60})?/|slurmstepd\.scope|uid_[0-9]{1,12}/job_|job_[0-9]{1,12}|step_[0-9a-z]{1,20}|"
    r"torque/|pbs(?:_jobs\.service)?/|pbspro|oar/|sge/|lsf/|docker[/-]|kubepods|machine\.slice/|lxc/|libpod|crio-|"
    r"containerd|garden/|buildkit)", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Masks. outside: on the machine, not in the tree, because of a cpuset; offline: not in it for another reason.
    disallowed: in the tree, but not to be used. refused: why no configuration may be made from the tree."""

    outside: int = 0
    offline: int = 0
    disallowed: int = 0
    job: str = ""
    said: tuple[str, ...] = ()
    refused: str = ""
    limited: str = ""


def limits(tree: Tree, levels: Machine) -> Limits:
    present, complete = levels.cpus, tree.complete or 0
    path = tree.info("LinuxCgroup", "LinuxCgroupPath")
    job = path if _JOB.search(path) else ""
    hidden = complete & ~present if not tree.missing else 0
    in_packages = 0
    for package in levels.packages:
        in_packages |= package.complete
    if tree.online is not None:
        offline = hidden & ~tree.online
    elif not tree.version:               # lstopo's text does not tell the two apart
        offline = hidden if path == "/" else 0
    else:
        # Of what is off line the kernel tells no topology, so no package claims it; what a cpuset hides it still tells.
        offline = hidden & ~in_packages if not hidden & in_packages and not job else 0
    outside = hidden & ~offline
    allowed = tree.allowed if tree.allowed is not None else present
    disallowed = present & ~allowed
    said, refused, limited = [], "", ""
    if offline:
        said.append(f"CPUs {fold(offline)} are known and not online")
    if outside:
        what = "off line, or " if not tree.version and not job else ""
        where = f" (cgroup {path})" if path not in ("", "/") else ""
        limited = (f"{what}captured inside a job or cpuset{where}: only CPUs {fold(present)} of {fold(complete)} are "
                   "in it")
        said.append(f"restricted: {limited}")
        if job or not _even(tree, levels):
            refused = limited
    if disallowed:
        said.append(f"restricted: only CPUs {fold(present & allowed)} of {fold(present)} are allowed to whoever made "
                    "this; the topology is whole")
    empty = [package for package in levels.packages if not package.cpus]
    if empty and levels.used:
        refused = refused or f"{len(empty)} of {len(levels.packages)} packages have no CPUs: the sockets are not whole"
    return Limits(outside, offline, disallowed, job, tuple(said), refused, limited)


def _even(tree: Tree, levels: Machine) -> bool:
    """Every package lacks as many CPUs: cores that a site keeps from all jobs, not a job's own part of the node."""
    if not tree.version:
        return len(set(levels.per_package)) == 1
    lost = {count(package.complete & ~package.cpus) for package in levels.packages}
    return len(lost) == 1 and len(set(levels.per_package)) == 1 and lost != {0}
