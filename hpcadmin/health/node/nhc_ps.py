"""NHC's checks of processes (lbnl_ps): what runs, for whom, and what it uses. Nothing is killed, reniced or started."""

from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_match import glob_matches

MYPY = False
if MYPY:
    from hpcadmin.health.node import procs

WIDTH = 1024     # as wide as the table that NHC asks ps for


class Proc:
    """A process as ps would print it."""

    __slots__ = ("_nhc", "line", "pid", "raw", "uid")

    def __init__(self, nhc: Nhc, raw: "procs.Process") -> None:
        self._nhc, self.raw, self.pid, self.uid = nhc, raw, raw.pid, raw.uid
        words = raw.line().split() if raw.state != "Z" else ["[%s]" % raw.name, "<defunct>"]
        self.line = "".join(char if char.isprintable() else "?" for char in " ".join(words))[:WIDTH]

    @property
    def user(self) -> str:
        name = self._nhc.passwd().get(self.uid) or self._nhc.door.user(self.uid)
        return "" if name == str(self.uid) else name

    @property
    def program(self) -> str:
        return self.line.split(" ")[0]

    @property
    def cpu_percent(self) -> int:
        """Over its whole life, as ps has it."""
        seconds = int(self._nhc.door.uptime() - self.raw.start_s)
        return int(self.raw.cpu_s * 100 / seconds) if seconds > 0 else 0

    @property
    def memory_percent(self) -> int:
        return min(self.raw.resident_kib * 100 // self._nhc.door.meminfo()["MemTotal"], 99)


def table(nhc: Nhc) -> "list[Proc]":
    def read() -> "list[Proc]":
        return [Proc(nhc, raw) for raw in sorted(nhc.door.processes(), key=lambda raw: raw.pid)]
    return nhc.door.once("nhc processes", read)  # type: ignore[no-any-return]


def _resources(nhc: Nhc, args: "list[str]", kind: str) -> None:
    given, rest = nhc.options("0Kfalskr:u:m:e:", args)
    one = dict(given)
    for key in "Kkre":
        if key in one:
            nhc.notice("the action of -%s is not run" % key)
    field, limit = _threshold(nhc, kind, rest[0] if rest else "")
    owner = nhc.user_named(one.get("u", "")) if one.get("u") else ""
    hits = []
    for proc in table(nhc):
        subject = proc.line if "f" in one else proc.program
        if not nhc.matches(subject, one.get("m") or "*") or (owner and not nhc.matches(proc.user, owner)):
            continue
        actual = _actual(proc, field)
        if not nhc.numbers.test(str(actual), "lt", limit):
            hits.append("%s (%d) of %s uses %d %s, limit %s"
                        % (proc.program, proc.pid, proc.user, actual, field, limit))
    if hits and "0" in one:
        nhc.notice("%s (not fatal by -0)" % hits[0])
    elif hits:
        raise Died(hits[0] + (" (and %d more)" % (len(hits) - 1) if len(hits) > 1 else ""))


def _threshold(nhc: Nhc, kind: str, limit: str) -> "tuple[str, str]":
    """(what is measured, its limit as a number); wrong ones fail."""
    bare = limit[:-1] if limit.endswith("%") else limit
    if kind == "cpu":
        if not bare or set(bare) - set("0123456789"):
            raise Died("the limit must be a number of percent, not %r" % limit)
        return "% CPU", bare
    if not limit:
        raise Died("a limit must be named")
    if kind == "time":
        if set(limit) - set("0123456789MmSs"):
            raise Died("the limit must be minutes and seconds as 10m30s, not %r" % limit)
        limit = limit.replace("s", "")
        for mark in "mM":
            if mark in limit:
                minutes, _, seconds = limit.replace("M", "m").partition("m")
                seconds = seconds.rpartition("m")[2]
                return "s CPU", str(nhc.numbers.expand("(%s)*60+(%s)" % (minutes or "0", seconds or "0")))
        return "s CPU", limit
    if kind == "mem":
        if bare != limit:
            raise Died("a percentage is not possible here")
        return "kB virtual", nhc.numbers.size(limit)
    return ("% memory", bare) if bare != limit else ("kB resident", nhc.numbers.size(limit))


def _actual(proc: Proc, field: str) -> int:
    if field == "% CPU":
        return proc.cpu_percent
    if field == "% memory":
        return proc.memory_percent
    if field == "s CPU":
        return int(proc.raw.cpu_s)
    return proc.raw.virtual_kib if field == "kB virtual" else proc.raw.resident_kib


def check_ps_cpu(nhc: Nhc, args: "list[str]") -> None:
    _resources(nhc, args, "cpu")


def check_ps_mem(nhc: Nhc, args: "list[str]") -> None:
    _resources(nhc, args, "mem")


def check_ps_physmem(nhc: Nhc, args: "list[str]") -> None:
    _resources(nhc, args, "physmem")


def check_ps_time(nhc: Nhc, args: "list[str]") -> None:
    _resources(nhc, args, "time")


def _daemon(nhc: Nhc, args: "list[str]", exact_owner: bool) -> "Proc | None":
    """The first process whose command line contains the name (a glob) and whose owner fits."""
    name, owner, words = (args + ["", "", ""])[:3]
    name = "%s %s" % (name, words) if words else name
    for proc in table(nhc):
        if not name or not proc.line or not glob_matches(proc.line, "*%s*" % name):
            continue
        if not owner or (proc.user == owner if exact_owner else nhc.matches(proc.user, owner)):
            return proc
    return None


def check_ps_daemon(nhc: Nhc, args: "list[str]") -> None:
    if _daemon(nhc, args, exact_owner=True) is None:
        raise Died("%s does not run" % " ".join(args))


def check_ps_blacklist(nhc: Nhc, args: "list[str]") -> None:
    proc = _daemon(nhc, args, exact_owner=False)
    if proc is not None:
        raise Died("%s (%d) of %s runs" % (proc.program, proc.pid, proc.user))


def check_ps_service(nhc: Nhc, args: "list[str]") -> None:
    given, rest = nhc.options("0E:SVcd:e:fkm:rsu:v", args)
    one = dict(given)
    service = " ".join(rest)
    if not service:
        raise Died("a service must be named")
    for key in "EScekrs":
        if key in one:
            nhc.notice("the action of -%s is not run" % key)
    expression = one.get("m") or "*" + (one.get("d") or service)
    owner = nhc.user_named(one["u"]) if one.get("u") else ""
    found = None
    for proc in table(nhc):
        if nhc.matches(proc.line if "f" in one else proc.program, expression) and (
                not owner or nhc.matches(proc.user, owner)):
            found = proc
            break
    unwanted = "s" in one or "k" in one or bool(one.get("E"))
    if (found is not None) != unwanted:
        return
    wrong = "service %s runs (%d)" % (service, found.pid) if found else "service %s does not run" % service
    if "0" not in one:
        raise Died(wrong)
    nhc.notice("%s (not fatal by -0)" % wrong)


def check_ps_kswapd(nhc: Nhc, args: "list[str]") -> None:
    """CPU time of the kernel's swap daemons: none over the limit, none far from the others."""
    limit, ratio = (args + ["", ""])[:2]
    times = [int(proc.raw.cpu_s) for proc in table(nhc) if "kswapd" in proc.line]
    if len(times) == 1 or not times:
        return
    over = any(nhc.numbers.test(str(seconds), "gt", limit) for seconds in times)
    compared = times if not over else _before_first_over(nhc, times, limit)
    low, high = (min(compared), max(compared)) if compared else (0, 0)
    half = nhc.numbers.expand("(%s)/2" % (limit or "0"))
    uneven = high > half if low == 0 else nhc.numbers.test(str(high // low), "gt", ratio)
    if (over or uneven) and fatal(nhc, args[2:]):
        raise Died("kswapd has used %s s of CPU" % ", ".join(str(seconds) for seconds in times))


def _before_first_over(nhc: Nhc, times: "list[int]", limit: str) -> "list[int]":
    for place, seconds in enumerate(times):
        if nhc.numbers.test(str(seconds), "gt", limit):
            return times[:place]
    return times


def fatal(nhc: Nhc, actions: "list[str]") -> bool:
    """Whether the actions that NHC would take make the check fail; "kill" is never done."""
    for action in " ".join(actions).split() or ["die"]:
        if action == "kill":
            nhc.notice("kill is not done")
        if action == "die":
            return True
        if action == "ignore":
            return False
    return False


def check_ps_loadavg(nhc: Nhc, args: "list[str]") -> None:
    for name, actual, limit in zip(("1", "5", "15"), nhc.door.text("/proc/loadavg").split(), args):
        whole = actual.partition(".")[0]
        if limit and nhc.numbers.test(whole, "ge", limit):
            raise Died("load of %s min is %s, limit %s" % (name, actual, limit))
