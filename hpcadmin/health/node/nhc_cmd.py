"""NHC's checks that run a named program (lbnl_cmd, lbnl_moab, lbnl_nv, csc_nvidia_smi, ping): no shell takes part."""

from hpcadmin.health.node.nhc_arith import ArithError, evaluate
from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_match import compile_regex, regex_groups
from hpcadmin.health.node.nhc_words import NotRun

SHELL_ONLY = frozenset((
    ".", ":", "alias", "bg", "bind", "builtin", "caller", "cd", "command", "compgen", "complete", "declare",
    "disown", "enable", "eval", "exec", "exit", "export", "fc", "fg", "getopts", "hash", "help", "history", "jobs",
    "let", "local", "logout", "mapfile", "popd", "pushd", "read", "readarray", "readonly", "return", "set", "shift",
    "shopt", "source", "suspend", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset",
    "wait"))
NVIDIA_SMI = {2: "invalid argument", 4: "permission denied", 8: "power cables not attached",
              9: "the driver is not loaded", 10: "interrupt trouble with a GPU", 12: "NVML is missing",
              14: "the InfoROM is corrupt", 15: "a GPU has fallen off the bus"}


def _timeout(nhc: Nhc, text: str) -> float:
    """Seconds for a command; more than NHC's own TIMEOUT is refused, as NHC does; what is no number is 0."""
    if text and nhc.numbers.test(text, "gt", nhc.setting("TIMEOUT", "30")):
        raise Died("the time-out %s of the command exceeds that of the run" % text)
    try:
        return min(float(evaluate(text, nhc.names)), 40.0)
    except ArithError:
        return 0.0


def check_cmd_output(nhc: Nhc, args: "list[str]") -> None:
    output_of(nhc, args)


def output_of(nhc: Nhc, args: "list[str]") -> "list[str]":
    """Runs the command, looks at each line and at the exit status; gives the lines."""
    given, rest = nhc.options("C:M:O:e:m:r:t:", args)
    one = dict(given)
    command = one.get("e", "").split() or rest
    command = command[1:] if command[:1] == [""] else command
    if not [word for word in command if word]:
        raise Died("no command is named")
    seconds = _timeout(nhc, one.get("t", "5"))
    if seconds <= 0:
        raise Died("%s gets no time at all" % command[0])
    status, out, _ = nhc.run(command, seconds)
    lines = nhc.lines(out)
    open_ones = [value for key, value in given if key == "m" and value[:1] != "!"]
    refused = [value for key, value in given if key == "m" and value[:1] == "!"]
    for line in lines + [""] if open_ones or refused else []:
        for expression in refused:
            if nhc.matches(line, expression[1:]):
                raise Died("%s matches a line of %s" % (expression[1:], " ".join(command)))
        open_ones = [expression for expression in open_ones if not nhc.matches(line, expression)]
    wanted = one.get("r") or "0"
    if nhc.numbers.test(str(status), "ne", wanted):
        raise Died("%s ended with %d%s" % (" ".join(command), status, ", not %s" % wanted if wanted != "0" else ""))
    if open_ones:
        raise Died("%s matches no line of %s" % (open_ones[0], " ".join(command)))
    return lines


def check_cmd_status(nhc: Nhc, args: "list[str]") -> None:
    given, command = nhc.options("C:r:t:", args)
    one = dict(given)
    seconds = _timeout(nhc, one.get("t", "5"))
    status = 0
    if command:
        if command[0] in SHELL_ONLY or command[0].startswith("check_"):
            raise NotRun("%s is built into the shell" % command[0])
        status = nhc.run(command, seconds if seconds > 0 else 5.0)[0]
    else:
        nhc.notice("no command is named: nothing is tested")
    wanted = one.get("r") or "0"
    if nhc.numbers.test(str(status), "ne", wanted):
        raise Died("%s ended with %d%s" % (" ".join(command), status, ", not %s" % wanted if wanted != "0" else ""))


def check_cmd_dmesg(nhc: Nhc, args: "list[str]") -> None:
    given, _ = nhc.options("M:e:m:r:t:", args)
    words = []  # type: list[str]
    command = "dmesg"
    for key, value in given:
        if key == "e":
            command = value
        elif key == "m":
            words += ["-m", value]
        elif key in "rt" and value:
            words += ["-" + key] + value.split()
    output_of(nhc, words + ["-e", command])


# Moab and TORQUE

def _moab(nhc: Nhc, args: "list[str]", wanted: str, command: "list[str]") -> "tuple[dict[str, str], list[str]]":
    """The lines of Moab's or TORQUE's tool. NHC puts each -m into quotes that stay part of it: so it never matches."""
    given, _ = nhc.options(wanted, args)
    matches = []  # type: list[str]
    for key, value in given:
        if key == "m":
            matches += ('-m "%s"' % value).split()
            nhc.notice("-m never matches here: NHC keeps quotes around it")
    words = ["-t", dict(given).get("t") or "5", "-C", nhc.check, "-O", "OUTPUT"] + matches + command
    return dict(given), output_of(nhc, words)


def check_moab_sched(nhc: Nhc, args: "list[str]") -> None:
    one, lines = _moab(nhc, args, "a:m:t:v:", nhc.setting("MDIAG_CMD", "mdiag").split() + ["-S", "-v"])
    for line in lines:
        version = _group(r"Version:[[:space:]]+([0-9]+\.[0-9]+\.[0-9])[[:space:]]+", line)
        if one.get("v") and version is not None:
            if not nhc.matches(version, one["v"]):
                raise Died("Moab is %s, not %s" % (version, one["v"]))
            continue
        alert = _group("ALERT:[[:space:]]+(.*)$", line)
        if alert is not None and nhc.matches(alert, one.get("a", "")):
            raise Died("alert of Moab: %s" % alert)


def check_moab_rm(nhc: Nhc, args: "list[str]") -> None:
    _moab(nhc, args, "m:t:", nhc.setting("MDIAG_CMD", "mdiag").split() + ["-R", "-v"])
    nhc.notice("NHC looks at no state of a resource manager: its expression for that is no regular expression")


def check_moab_torque(nhc: Nhc, args: "list[str]") -> None:
    _, lines = _moab(nhc, args, "m:t:", ["qmgr", "-c", "print server"])
    for line in lines:
        state = _group("set server scheduling = ([A-Za-z0-9]+)", line)
        if state is not None and state != "True":
            raise Died("TORQUE does not schedule: %s" % state)


def _group(pattern: str, line: str) -> "str | None":
    groups = regex_groups(compile_regex(pattern), line)
    return groups[1] if groups else None


# NVIDIA

def check_nvsmi_healthmon(nhc: Nhc, args: "list[str]") -> None:
    _tool_status(nhc, nhc.setting("NVIDIA_SMI_HEALTHMON", "nvidia-smi"), nhc.setting("NVIDIA_SMI_HEALTHMON_ARGS", ""),
                 NVIDIA_SMI)


def check_nv_healthmon(nhc: Nhc, args: "list[str]") -> None:
    command = nhc.setting("NVIDIA_HEALTHMON", "nvidia-healthmon")
    if command == "nvidia-healthmon":
        nhc.notice("nvidia-healthmon is no longer made: check_nvsmi_healthmon takes its place")
    _tool_status(nhc, command, nhc.setting("NVIDIA_HEALTHMON_ARGS", "-e -v"), {})


def _tool_status(nhc: Nhc, command: str, args: str, meanings: "dict[int, str]") -> None:
    words = command.split() + args.split()
    status = nhc.run(words)[0] if words else 0
    if status:
        meaning = meanings.get(status, "not found" if status == 127 else "exit status %d" % status)
        raise Died("%s: %s" % (words[0], meaning))


# ping

def check_net_ping(nhc: Nhc, args: "list[str]") -> None:
    given, targets = nhc.options("I:W:c:i:s:t:w:", args)
    one = dict({"t": "2", "c": "1", "w": "1"}, **dict(given))
    if not [target for target in targets if target]:
        raise Died("no target is named")
    words = []  # type: list[str]
    for key in "Iistcw" + "W":
        if one.get(key):
            words += ["-" + key] + one[key].split()
    for target in targets:
        if nhc.run(["ping", "-q", "-n"] + words + [target])[0] != 0:
            raise Died("%s does not answer" % target)
