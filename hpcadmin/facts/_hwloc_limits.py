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
    nodes: int = 0                       # NUMA nodes that the machine has and the tree has not


def limits(tree: Tree, levels: Machine) -> Limits:
    present, complete = levels.cpus, tree.complete or 0
    path = tree.info("LinuxCgroup", "LinuxCgroupPath")
    job = path if _JOB.search(path) else ""
    hidden = complete & ~present if not tree.missing else 0
    nodes = 0
    if tree.nodes is not None and not tree.missing:
        nodes = (tree.nodes_complete or 0) & ~tree.nodes & ~sum(1 << number for number in levels.node_ids)
    if tree.online is not None:
        # Whoever restricts a tree restricts that set, too.
        offline = hidden & ~tree.online & ~(_claimed(tree) if path not in ("", "/") else 0)
    elif not tree.version:               # lstopo's text does not tell the two apart
        offline = hidden if _in_no_group(tree, path) and not _most(hidden, present) else 0
    else:
        # Of what is off line the kernel tells no topology, so nothing claims it; what a cpuset hides it still tells.
        # A cpuset hides NUMA nodes as well; those without memory are hidden from everybody.
        restricted = job or nodes or hidden & _claimed(tree) or _most(hidden, present)
        offline = 0 if restricted else hidden
    outside = hidden & ~offline
    allowed = tree.allowed if tree.allowed is not None else present
    disallowed = present & ~allowed
    said, refused, limited = [], "", ""
    if offline:
        said.append(f"CPUs {fold(offline)} are known and not online")
    if outside:
        unsure = not job and (not tree.version or (not nodes and not path))
        what = "off line, or " if unsure else ""
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
    return Limits(outside, offline, disallowed, job, tuple(said), refused, limited, nodes)


def _in_no_group(tree: Tree, path: str) -> bool:
    """hwloc on Linux names the control group that it was in; none is named where it was in none."""
    return path == "/" or (not path and tree.info("Backend") == "Linux")


def _most(hidden: int, present: int) -> bool:
    """More than the second threads of all cores: nobody takes so many off line, a container hides them."""
    return count(hidden) > count(present)


def _claimed(tree: Tree) -> int:
    """CPUs that are said to be somewhere in the machine. What the only NUMA node says is what the machine says."""
    found, several = 0, sum(here.kind == "NUMANode" for here in tree.root.walk()) > 1
    for here in tree.root.walk():
        if here is not tree.root and here.complete is not None and (several or here.kind != "NUMANode"):
            found |= here.complete
    return found


def _even(tree: Tree, levels: Machine) -> bool:
    """Every package lacks as many CPUs: cores that a site keeps from all jobs, not a job's own part of the node."""
    if not tree.version:
        return len(set(levels.per_package)) == 1
    lost = {count(package.complete & ~package.cpus) for package in levels.packages}
    return len(lost) == 1 and len(set(levels.per_package)) == 1 and lost != {0}
