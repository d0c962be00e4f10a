"""Files, commands, processes and sockets of an nhc.conf as entries of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hpcadmin.health.genconf_devices import one_of
from hpcadmin.health.genconf_nhc_checks import Args, Carried, NotCarriedOver, mask, mib, number, parsed, whole

_TYPES = {"d": "folder", "f": "file", "h": "link", "L": "link", "b": "block", "c": "char", "p": "fifo", "S": "socket"}
_BITS = {"k": 0o1000, "u": 0o4000, "g": 0o2000}
MOST_WAIT_S = 30
_CLOSE = "the limit itself is good here, and bad in NHC"


def _contents(args: Args) -> Iterator[Carried]:
    expressions = [mask(one) for one in args[1:]]
    if not args or not expressions:
        raise NotCarriedOver("it tests nothing")
    yield Carried("contents", {"path": args[0], "lines": [one for one in expressions if one[:1] != "!"],
                               "without": [one[1:] for one in expressions if one[:1] == "!"]},
                  ("a missing file is unknown here, in NHC it is an empty one; blanks around a line count here",))


def _file_test(args: Args) -> Iterator[Carried]:
    tests = [word[1] for word in args if len(word) == 2 and word[0] == "-" and word[1] != "!"]
    paths = [word for word in args if word[:1] != "-"]
    if "-!" in args:
        raise NotCarriedOver("-! : write which of the tests must fail")
    strange = [test for test in tests if test not in "rwxse" + "akug" + "".join(_TYPES)]
    if strange:
        raise NotCarriedOver(f"there is no counterpart of -{strange[0]}")
    if not tests or not paths:
        raise NotCarriedOver("NHC fails it always")
    values: dict[str, Any] = {"type": next((_TYPES[test] for test in tests if test in _TYPES), None)}
    for test, name in (("r", "readable"), ("w", "writable"), ("x", "executable")):
        values[name] = True if test in tests else None
    values["empty"] = False if "s" in tests else None
    bits = sum(_BITS[test] for test in set(tests) if test in _BITS)
    values["mode_with"] = f"{bits:04o}" if bits else None
    for path in paths:
        if not path or set(path) & set("$`\\;|&<>'\"#*?[ "):
            raise NotCarriedOver(f"NHC has the shell read {path!r} once more: write the path as it is")
        yield Carried("file", {"path": path, **values})


def _file_stat(args: Args) -> Iterator[Carried]:
    given, paths = parsed("D:G:M:N:O:T:U:d:g:m:n:o:t:u:", args)
    one = {key: value for key, value in given if value}
    strange = [key for key in one if key in "DdNO"]
    if strange:
        raise NotCarriedOver(f"there is no counterpart of -{strange[0]} (device number, age of the status)")
    if any(not one[key].isdigit() for key in "ug" if key in one):
        raise NotCarriedOver("NHC fails it always: -u and -g are numbers, -U and -G names")
    if "UNKNOWN" in (one.get("U"), one.get("G")):
        raise NotCarriedOver("UNKNOWN stands for owners without a name: write their numbers (-u, -g)")
    if not one or not paths:
        raise NotCarriedOver("it tests nothing")
    mode = {key: f"{number(one[key]) or 0:04o}" for key in "mM" if key in one}
    values = {"owner": one.get("U"), "group": one.get("G"), "mode": mode.get("m"), "mode_with": mode.get("M"),
              **{name: number(one.get(key, "")) for key, name in (
                  ("u", "uid"), ("g", "gid"), ("t", "major"), ("T", "minor"), ("n", "max_age_s"), ("o", "min_age_s"))}}
    for path in paths:
        yield Carried("file", {"path": path, **values},
                      ("of a symbolic link NHC looks at the link itself, here at what it points to",))


def _command(args: Args, wanted: str) -> Iterator[Carried]:
    given, rest = parsed(wanted, args)
    one = dict(given)
    argv = one.get("e", "").split() or rest
    if not argv or not argv[0]:
        raise NotCarriedOver("no command is named")
    if argv[0].startswith("check_"):
        raise NotCarriedOver("it runs a function of the shell")
    matches = [mask(value) for key, value in given if key == "m" and value != "*"]
    if "!*" in matches:
        raise NotCarriedOver("NHC fails it always: any output is too much, and none as well")
    wait = one.get("t", "5")
    if not wait.isdigit():
        raise NotCarriedOver(f"-t {wait} is no number of seconds")
    if int(wait) > MOST_WAIT_S:
        raise NotCarriedOver(f"NHC fails it always: it ends itself before -t {wait}")
    status = number(one.get("r", "")) or 0
    yield Carried("command", {"argv": argv, "status": [status] if status else None,
                              "output": [value for value in matches if value[:1] != "!"],
                              "without": [value[1:] for value in matches if value[:1] == "!"],
                              "wait_s": int(wait)},
                  ("a command that is not there or does not end in time is unknown here, and bad in NHC",))


def _dmesg(args: Args) -> Iterator[Carried]:
    given, _ = parsed("M:e:m:r:t:", args)
    matches = [value for key, value in given if key == "m"]
    if any(key in ("e", "r") for key, _ in given) or any(value[:1] != "!" for value in matches) or not matches:
        words = [word for key, value in given if key in "mrt" for word in (f"-{key}", value)]
        yield from _command([*words, "-e", dict(given).get("e", "dmesg")], "e:m:r:t:")
        return
    yield Carried("kernel_log", {"lines": [mask(value[1:]) for value in matches], "window_h": None},
                  ("only of the last 24 hours: window_h says otherwise",))


def _dmi(args: Args) -> Iterator[Carried]:
    given, rest = parsed("!h:nt:", args)
    one = dict(given)
    negative = bool({"!", "n"} & set(one)) or rest[:1] == ["!"]
    expression = mask(" ".join(rest[1:] if rest[:1] == ["!"] else rest))
    if "h" in one or one.get("t", "").isdigit():
        raise NotCarriedOver("by handle or number of the type: write the section's title into the expression")
    if "t" in one and expression[:1] not in ("/", "!", "*"):
        expression = f"{one['t']}: {expression}"
    notes = (f"looked for in every section, not only in {one['t']}",) if "t" in one else ()
    yield Carried("dmi", {"without" if negative else "lines": [expression]}, notes)


def _dmi_raw(args: Args) -> Iterator[Carried]:
    if args[:1] == ["!"]:
        raise NotCarriedOver("! : write it with check_dmi_data_match")
    if not args:
        raise NotCarriedOver("NHC fails it always: no expression is named")
    yield Carried("dmi", {"raw": [mask(" ".join(args))]})


def _nvidia(args: Args) -> Iterator[Carried]:
    yield Carried("gpu", {"min": 1}, ("all that are on the PCI bus, at least one; count = 8 asks for so many",))


def _daemon(args: Args) -> Iterator[Carried]:
    name, owner, words = whole(args, 3)
    if not name:
        raise NotCarriedOver("NHC fails it always: no process is named")
    yield Carried("process", {"name": mask(f"*{name}{' ' + words if words else ''}*"), "match": "line",
                              "user": one_of([owner]) if owner else None}, _process_notes(name, words))


def _blacklist(args: Args) -> Iterator[Carried]:
    name, owner, words = whole(args, 3)
    if not name:
        raise NotCarriedOver("it tests nothing")
    yield Carried("process", {"name": mask(f"*{name}{' ' + words if words else ''}*"), "match": "line",
                              "user": mask(owner) if owner else None, "min": 0, "max": 0},
                  _process_notes(name, words))


def _service(args: Args) -> Iterator[Carried]:
    given, rest = parsed("0E:SVcd:e:fkm:rsu:v", args)
    one = dict(given)
    if not rest:
        raise NotCarriedOver("NHC fails it always: no service is named")
    if "0" in one:
        raise NotCarriedOver("-0: NHC never fails it")
    _no_number(one)
    unwanted = bool({"s", "k"} & set(one)) or bool(one.get("E"))
    daemon = one.get("d") or " ".join(rest)
    if daemon[:1] == "[" and daemon[-1:] == "]":
        daemon = daemon[1:-1]                   # as ps writes threads of the kernel
    name = mask(one.get("m") or ("*" + daemon if "f" in one or "/" in daemon else daemon))
    values: dict[str, Any] = {"name": name, "match": "line" if "f" in one else "command",
                              "user": mask(one["u"]) if one.get("u") else None}
    if unwanted:
        values.update(min=0, max=0)
    acts = sorted(set(one) & set("EScekrs"))
    notes = _process_notes(daemon, one.get("m", "") if "f" in one else "")
    notes += () if "f" in one else ("the kernel's name of the process will do; NHC knows the command line's first word "
                                    "alone",)
    yield Carried("process", values, (*notes, f"nothing is started, stopped or killed (-{acts[0]})") if acts else notes)


def _process_notes(*words: str) -> tuple[str, ...]:
    blanks = ("each blank counts; in NHC several are one",) if " " in " ".join(words).strip() else ()
    return ("a process that has ended (a zombie) does not run here", *blanks)


def _no_number(one: Mapping[str, str]) -> None:
    if one.get("u", "").isdigit():
        raise NotCarriedOver(f"-u {one['u']} is a number: write the user's name")


def _usage(kind: str) -> Callable[[Args], Iterator[Carried]]:
    def make(args: Args) -> Iterator[Carried]:
        given, rest = parsed("0Kfalskr:u:m:e:", args)
        one = dict(given)
        limit = rest[0] if rest else ""
        if "0" in one:
            raise NotCarriedOver("-0: NHC never fails it")
        if not limit:
            raise NotCarriedOver("NHC fails it always: no limit is named")
        _no_number(one)
        what, most = _limit(kind, limit)
        name = one.get("m")
        if name and "f" not in one and "/" in name.strip("!/"):
            raise NotCarriedOver(f"-m {name} is of a program with its folder: write the program's name")
        yield Carried("usage", {"what": what, "max": most, "name": mask(name) if name else None,
                                "match": ("line" if "f" in one else "command") if name else None,
                                "users": [mask(one["u"])] if one.get("u") else None}, (_CLOSE,))
    return make


def _limit(kind: str, limit: str) -> tuple[str, float | None]:
    percent = limit.endswith("%")
    if kind == "cpu":
        return "cpu_percent", number(limit.rstrip("%"))
    if kind == "time":
        minutes, mark, seconds = limit.lower().replace("s", "").partition("m")
        return "cpu_time_s", (number(minutes) or 0) * 60 + (number(seconds) or 0) if mark else number(minutes)
    if kind == "physmem" and percent:
        return "memory_percent", number(limit.rstrip("%"))
    if percent:
        raise NotCarriedOver("NHC fails it always: no percentage is possible here")
    return ("virtual_mib" if kind == "mem" else "resident_mib"), mib(limit)


def _users(lineage: bool) -> Callable[[Args], Iterator[Carried]]:
    def make(args: Args) -> Iterator[Carried]:
        given, rest = parsed("c:u:n:p:", args)
        if any(key != "n" for key, _ in given):
            raise NotCarriedOver("processes let pass by command or number: name their users (-n)")
        words = " ".join(rest).split()
        if words and ("die" not in words or "ignore" in words):
            raise NotCarriedOver(f"NHC never fails it: it only does {' '.join(words)}")
        allowed = ["nobody", *(one_of([name]) for _, value in given for name in value.split())]
        yield Carried("users", {"allowed": allowed,
                                "jobs": False if lineage else None},
                      ("who has a job is seen by Slurm's cgroups and daemons, not by squeue; nothing is killed",))
    return make


def _loadavg(args: Args) -> Iterator[Carried]:
    one, five, fifteen = whole(args, 3)
    values = {"max_1m": number(one), "max_5m": number(five), "max_15m": number(fifteen)}
    if not any(value is not None for value in values.values()):
        raise NotCarriedOver("it tests nothing")
    yield Carried("load", values, (_CLOSE,))


def _kswapd(args: Args) -> Iterator[Carried]:
    seconds, _ratio, *actions = [*args, "", ""]
    if any(actions) and ("die" not in actions or "ignore" in actions):
        raise NotCarriedOver(f"NHC never fails it: it only does {' '.join(actions).strip()}")
    if not seconds:
        raise NotCarriedOver("NHC fails it always: no time is named")
    yield Carried("kswapd", {"max_time_s": number(seconds)},
                  ("the ratio between NUMA nodes is not compared; max_percent tells of what goes on now",))


def _ping(args: Args) -> Iterator[Carried]:
    given, targets = parsed("I:W:c:i:s:t:w:", args)
    one = dict(given)
    if set(one) & set("Iist"):
        raise NotCarriedOver("-I, -i, -s, -t have no counterpart: write it as a command")
    if not targets:
        raise NotCarriedOver("NHC fails it always: no target is named")
    for target in targets:
        if not target:
            raise NotCarriedOver("NHC fails it always: a target has no name")
        yield Carried("ping", {"host": target, "count": number(one.get("c", "")), "wait_s": number(one.get("W", ""))})


def _socket(args: Args) -> Iterator[Carried]:
    given, rest = parsed("!0ad:l:n:p:r:s:t:u:e:E:", args)
    one = dict(given)
    protocol, state = one.get("p", "any"), one.get("s", "")
    states = {"": "any", "LISTEN": "listen", "LISTENING": "listen", "ESTABLISHED": "connected",
              "CONNECTED": "connected"}
    if "0" in one or rest:
        raise NotCarriedOver("-0: NHC never fails it" if "0" in one else "NHC fails it always: words after the options")
    if protocol not in ("tcp", "udp", "unix") or state not in states or "t" in one:
        raise NotCarriedOver("by expressions for protocol, state or type: write them out")
    if not any(one.get(key) for key in "dlprsu"):
        raise NotCarriedOver("NHC fails it always: it says nothing of the socket")
    if protocol == "unix" and one.get("u"):
        raise NotCarriedOver("the kernel does not tell whose a Unix socket is: name its process (-d) or path (-l)")
    values: dict[str, Any] = {"protocol": protocol, "state": states[state],
                              "user": mask(one["u"]) if one.get("u") else None,
                              "process": mask(one["d"]) if one.get("d") else None}
    for key, name in (("l", "local"), ("r", "remote")):
        if one.get(key):
            values.update(_address(one[key], name, protocol))
    if "!" in one:
        values.update(min=0, max=0)
    yield Carried("socket", values)


def _address(text: str, name: str, protocol: str) -> dict[str, Any]:
    """10.0.0.1:22 or *:22: the port is a number of its own."""
    if protocol == "unix":
        return {"path": mask(text)}
    host, mark, port = text.rpartition(":")
    if text[:1] in ("/", "!", "{") or not mark or not port.isdigit():
        raise NotCarriedOver(f"the address {text} is an expression: write address and port")
    return {f"{name}_port": int(port), name: None if host in ("*", "") else mask(host)}


TABLE: Mapping[str, Callable[[Args], Iterator[Carried]]] = {
    "check_file_contents": _contents, "check_file_test": _file_test, "check_file_stat": _file_stat,
    "check_cmd_output": lambda args: _command(args, "C:M:O:e:m:r:t:"),
    "check_cmd_status": lambda args: _command(args, "C:r:t:"), "check_cmd_dmesg": _dmesg,
    "check_dmi_data_match": _dmi, "check_dmi_raw_data_match": _dmi_raw,
    "check_nvsmi_healthmon": _nvidia, "check_nv_healthmon": _nvidia,
    "check_ps_daemon": _daemon, "check_ps_blacklist": _blacklist, "check_ps_service": _service,
    "check_ps_cpu": _usage("cpu"), "check_ps_mem": _usage("mem"), "check_ps_physmem": _usage("physmem"),
    "check_ps_time": _usage("time"), "check_ps_unauth_users": _users(False), "check_ps_userproc_lineage": _users(True),
    "check_ps_loadavg": _loadavg, "check_ps_kswapd": _kswapd, "check_net_ping": _ping, "check_net_socket": _socket,
}
