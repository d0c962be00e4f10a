"""Processes that are left on GPUs."""

from hpcadmin.health.node import jobs, masks, nvidia, procs
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door
    from hpcadmin.health.node.procs import Process  # noqa: F401 - in a comment for mypy


ALLOWED = ["*Xorg*", "*nvidia-persistenced*", "*nv-hostengine*", "*dcgm*", "*nvidia-smi*", "*gnome-shell*",
           "*nvidia-cuda-mps*"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    """Those that belong to a job are none of these: on a shared node another job's may run on."""
    by_pid = {one.pid: one for one in door.processes()}
    left, gone = [], []  # type: list[tuple[str, int, str, Process | None]], list[int]
    for gpu in nvidia.gpus(door):
        for told in gpu.processes():
            pid = int(told.get("pid", "0")) if told.get("pid", "").isdecimal() else 0
            name = told.get("process_name", "")
            if any(masks.matches(mask, name) for mask in p.allowed):
                continue
            process = by_pid.get(pid) or procs.one(door, pid)
            if process is None and pid:
                gone.append(pid)                # it has ended by now, or is of another container
                continue
            if p.jobs and process is not None and jobs.in_job(process, by_pid):
                continue
            left.append((gpu.address, pid, process.name if process else name or "?", process))
    if len(left) <= p.max:
        return [good(count=len(left), gone=gone)]
    address, pid, name, process = left[0]
    whose = " of %s" % door.user(process.uid) if process else ""
    return [bad("%d process%s left on GPUs: %s (%d)%s on %s" % (
        len(left), "" if len(left) == 1 else "es", name, pid, whose, address),
        processes=[{"gpu": one[0], "pid": one[1], "name": one[2]} for one in left[:50]])]


CHECK = Check("gpu_processes", "Processes that are left on GPUs", run, timeout_s=25, params=(
    Param("allowed", "masks", ALLOWED, "programs that may be there"),
    Param("jobs", "flag", True, "processes of a job may be there"),
    Param("max", "number", 0, "so many are let pass"),
))
