"""Processes of users who have nothing to do here."""

from hpcadmin.health.node import jobs, masks
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


# Users that systemd makes for a service, and nobody: large numbers, and the system's.
SYSTEM = frozenset(range(61184, 65520)) | {65533, 65534}


def run(door: "Door", p: "Params") -> "list[Finding]":
    everything = door.processes()
    by_pid = {one.pid: one for one in everything}
    strange = [one for one in everything if not one.kernel and one.uid >= p.min_uid and one.uid not in SYSTEM
               and one.state not in ("Z", "X")]
    strange = [one for one in strange if not (p.allowed and masks.any_matches(p.allowed, door.user(one.uid)))]
    if p.jobs or p.stray:
        inside = {one.pid for one in strange if jobs.in_job(one, by_pid)}
        with_job = {one.uid for one in strange if one.pid in inside}
        strange = [one for one in strange if one.pid not in inside and not (p.jobs and one.uid in with_job)]
    if len(strange) <= p.max:
        return [good(count=len(strange))]
    names = sorted({door.user(one.uid) for one in strange})
    first = strange[0]
    return [bad("%d process%s of %s without a job, as %s (%d)" % (
        len(strange), "" if len(strange) == 1 else "es", ", ".join(names[:5]), first.name, first.pid),
        count=len(strange), pids=[one.pid for one in strange[:50]], users=names[:50])]


CHECK = Check("users", "Processes of users who have nothing to do here", run, params=(
    Param("allowed", "masks", [], "users who may always"),
    Param("min_uid", "number", 1000, "users with smaller numbers are the system's"),
    Param("jobs", "flag", True, "users with a process in a job may have others beside it"),
    Param("stray", "flag", True, "a process in a job may be there"),
    Param("max", "number", 0, "so many are let pass"),
))
