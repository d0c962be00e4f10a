"""NHC's check of sockets (lbnl_net), as netstat lists them, or ss where there is no netstat."""

from hpcadmin.health.node.nhc_base import Died, Nhc

FIELDS = (("p", "proto"), ("l", "local"), ("r", "remote"), ("s", "state"), ("t", "type"), ("u", "user"),
          ("d", "program"))
UNIX_TYPES = ("DGRAM", "STREAM", "RAW", "RDM", "SEQPACKET", "PACKET", "UNKNOWN")


def check_net_socket(nhc: Nhc, args: "list[str]") -> None:
    given, rest = nhc.options("!0ad:l:n:p:r:s:t:u:e:E:", args)
    one = dict(given)
    if " ".join(rest):
        raise Died("nothing may follow the options: %s" % " ".join(rest))
    wanted = [(name, one[key]) for key, name in FIELDS if one.get(key)]
    if not wanted:
        raise Died("nothing to look for is named")
    for key in "eE":
        if key in one:
            nhc.notice("the action of -%s is not run" % key)
    found = any(all(nhc.matches(socket.get(name, ""), expression) for name, expression in wanted)
                for socket in sockets(nhc))
    if found != ("!" in one):
        return
    wrong = "%s socket with %s" % ("a" if found else "no", ", ".join("%s %s" % pair for pair in wanted))
    if "0" not in one:
        raise Died(wrong)
    nhc.notice("%s (not fatal by -0)" % wrong)


def sockets(nhc: Nhc) -> "list[dict[str, str]]":
    netstat, ss = nhc.setting("NETSTAT_CMD", "netstat"), nhc.setting("SS_CMD", "ss")
    if netstat and nhc.door.has(nhc.place(netstat)):
        words = nhc.setting("NETSTAT_ARGS", "-Tanpee -A inet,inet6,unix").split()
        return [_of_netstat(nhc, line.split()) for line in nhc.lines(nhc.run([netstat] + words)[1])
                if line.split()[:1] not in ([], ["Active"], ["Proto"])]
    if ss and nhc.door.has(nhc.place(ss)):
        words = nhc.setting("SS_ARGS", "-anpee -A inet,unix").split()
        return [_of_ss(nhc, line.split()) for line in nhc.lines(nhc.run([ss] + words)[1])
                if line.split()[:1] not in ([], ["Netid"])]
    nhc.notice("neither %s nor %s is there: NHC sees no socket" % (netstat, ss))
    return []


def _of_netstat(nhc: Nhc, words: "list[str]") -> "dict[str, str]":
    def word(number: int) -> str:
        return words[number] if number < len(words) else ""

    socket = {"proto": words[0]}
    program = ""
    if words[0] == "udp":
        socket.update(local=word(3), remote=word(4))
        uid, program = word(5), word(7)
    elif words[0] == "unix":
        uid = ""
        kinds = [at for at in range(4, len(words)) if words[at] in UNIX_TYPES]
        if kinds:
            socket["type"], after = words[kinds[0]], kinds[0] + 1
            if word(after).strip("0123456789"):
                socket["state"] = word(after)
                after += 1
            program, socket["local"] = word(after + 1), word(after + 2)
    else:
        socket.update(local=word(3), remote=word(4), state=word(5))
        uid, program = word(6), word(8)
    socket["user"] = _user(nhc, uid)
    socket["program"] = program.rpartition("/")[2] if "/" in program else "unknown"
    return socket


def _of_ss(nhc: Nhc, words: "list[str]") -> "dict[str, str]":
    def word(number: int) -> str:
        return words[number] if number < len(words) else ""

    state = word(1)
    socket = {"proto": words[0], "state": "ESTABLISHED" if state == "ESTAB" else state, "local": word(4)}
    program = uid = ""
    if words[0] in ("u_str", "u_dgr"):
        socket.update(proto="unix", type="STREAM" if words[0] == "u_str" else "DGRAM")
        program = word(8)
    else:
        socket["remote"] = word(5)
        for text in words[6:]:
            if text.startswith("users:"):
                program = text
            elif text.startswith(("uid:", "uid=")):
                uid = text[4:]
    if program.startswith('users:(("'):
        program = program[len('users:(("'):]
    head, mark, _ = program.partition('",')
    socket["program"] = head if mark else program or "unknown"
    socket["user"] = _user(nhc, uid)
    return socket


def _user(nhc: Nhc, uid: str) -> str:
    return nhc.user_named(uid) if uid else ""
