"""NHC's checks of users' processes: whether their owners have a job here, and whether they belong to one."""

from hpcadmin.health.node.api import NoAnswer
from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_ps import Proc, fatal, table

DAEMONS = {"pbs": r"/\bpbs_mom\b/", "slurm": r"/\bslurmstepd\b/", "sge": r"/\bsge_(execd|shepherd)\b/",
           "lsf": r"/\bres\b/"}


def _ignored(nhc: Nhc, args: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """What is passed over, as texts that are searched for the process's own (so user 1 is passed over by -u 1001)."""
    given, rest = nhc.options("c:u:n:p:", args)
    lists = {"c": "", "u": "", "n": "", "p": ""}
    for key, value in given:
        lists[key] += " " + value
    return lists, rest


def _passed_over(proc: Proc, name: str, lists: "dict[str, str]") -> bool:
    own = {"c": proc.program, "u": str(proc.uid), "n": name, "p": str(proc.pid)}
    return any(own[key] in listed for key, listed in lists.items())


def check_ps_unauth_users(nhc: Nhc, args: "list[str]") -> None:
    lists, actions = _ignored(nhc, args)
    if not fatal(nhc, actions):
        nhc.notice("not looked at: without die NHC never fails it")
        return
    system = nhc.max_system_uid()
    for proc in table(nhc):
        name = proc.user or str(proc.uid)
        if _passed_over(proc, name, lists) or not nhc.numbers.test(str(proc.uid), "gt", system):
            continue
        if name not in _users_with_jobs(nhc):
            raise Died("process %d (%s) of %s, who has no job here" % (proc.pid, proc.program, name))


def _users_with_jobs(nhc: Nhc) -> "list[str]":
    allowed = nhc.setting("NHC_AUTH_USERS", "root nobody").split()
    manager = nhc.manager()
    if manager == "pbs":
        return allowed + _torque_users(nhc)
    if manager != "slurm":
        nhc.notice("no resource manager that NHC asks for users of jobs")
        return allowed
    command = nhc.setting("SQUEUE_CMD", "") or "squeue"
    node = nhc.setting("SQUEUE_NODE", "") or "-w %s" % nhc.names.get("HOSTNAME_S", "")
    shape = nhc.setting("SQUEUE_FMT_ARGS", "") or "--noheader -o %u"
    status, out, err = nhc.run(command.split() + node.split() + shape.split())
    if status != 0:
        raise NoAnswer("squeue: exit status %d: %s" % (status, err.strip()[:100]))
    return allowed + [line.strip() for line in nhc.lines(out)]


def _torque_users(nhc: Nhc) -> "list[str]":
    home = nhc.setting("PBS_SERVER_HOME", "") or "/var/spool/torque"
    folder = nhc.setting("JOBFILE_PATH", "") or home + "/mom_priv/jobs"
    users = []
    for name in nhc.door.names(folder):
        if not name.endswith(".JB"):
            continue
        text = nhc.door.text("%s/%s" % (folder, name))
        if "<?xml" in text:
            users += [piece.rpartition(">")[2].strip() for piece in text.split("</euser>")[:1] if "</euser>" in text]
        else:
            users += [line.strip()[len("PBS_O_LOGNAME="):] for line in text.split("\n")
                      if line.strip().startswith("PBS_O_LOGNAME=")][:1]
    return users


def check_ps_userproc_lineage(nhc: Nhc, args: "list[str]") -> None:
    """Each process of a user must be, or come from, the resource manager's daemon."""
    lists, actions = _ignored(nhc, args)
    manager = nhc.manager()
    if manager in ("", "none"):
        raise Died("no resource manager is known here")
    daemon = nhc.names.get("RM_DAEMON_MATCH") or DAEMONS.get(manager, "")
    if not fatal(nhc, actions):
        nhc.notice("not looked at: without die NHC never fails it")
        return
    system, allowed = nhc.max_system_uid(), nhc.setting("NHC_AUTH_USERS", "root nobody")
    by_pid = {proc.pid: proc for proc in table(nhc)}
    for proc in table(nhc):
        name = proc.user or str(proc.uid)
        if _passed_over(proc, name, lists) or not nhc.numbers.test(str(proc.uid), "gt", system):
            continue
        if nhc.matches(allowed, "/(^|[^A-Za-z0-9])%s($|[^A-Za-z0-9])/" % name) or nhc.matches(proc.program, daemon):
            continue
        if not _descends(nhc, proc, daemon, by_pid):
            raise Died("process %d (%s) of %s belongs to no job" % (proc.pid, proc.program, name))


def _descends(nhc: Nhc, proc: Proc, daemon: str, by_pid: "dict[int, Proc]") -> bool:
    if not daemon:
        return False
    seen = set()  # type: set[int]
    pid = proc.pid
    while pid != 1 and pid not in seen:
        seen.add(pid)
        pid = by_pid[pid].raw.parent if pid in by_pid else 0
        if nhc.matches(by_pid[pid].line if pid in by_pid else "", daemon):
            return True
        if pid == 0:
            return False
    return False
