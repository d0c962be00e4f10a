"""Which processes belong to a Slurm job: by their cgroup, or by an ancestor that is slurmstepd.

Users name processes, and cgroups below their own slice, as they like: neither makes a job of theirs.
"""

import os

MYPY = False
if MYPY:
    from hpcadmin.health.node.procs import Process

DEPTH = 200


def in_job(process: "Process", by_pid: "dict[int, Process]") -> bool:
    """By ancestors first: that costs no further read."""
    one, depth = process, 0  # type: Process | None, int
    while one is not None and one.pid > 1 and depth < DEPTH:
        if one.name == "slurmstepd" and one.uid in (0, os.geteuid()):
            return True
        one, depth = by_pid.get(one.parent), depth + 1
    return any("slurm" in line and "/job_" in line and "/user.slice/" not in line
               for line in process.cgroup().splitlines())
