"""Network and Unix sockets that must be there, or must not."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import BadConfig, Check, NoAnswer, Param, bad, good
from hpcadmin.health.node.checks.process import is_called

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


LISTEN, CONNECTED = "0A", "01"


class Socket:
    """One line of /proc/net/*."""

    __slots__ = ("inode", "local", "local_port", "path", "remote", "remote_port", "state", "uid")

    def __init__(self, state: str, uid: int, inode: str) -> None:
        self.state, self.uid, self.inode = state, uid, inode
        self.local, self.local_port, self.remote, self.remote_port, self.path = "", 0, "", 0, ""


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = [one for one in read(door, p.protocol) if p.state in ("any", one.state) and fits(one, p)]
    if p.user is not None:
        if p.protocol == "unix":
            raise BadConfig("Linux does not tell whose a Unix socket is: user has no meaning")
        found = [one for one in found if one.uid >= 0 and masks.matches(p.user, door.user(one.uid))]
    if p.process is not None:
        mine = inodes(door, p.process)
        found = [one for one in found if one.inode in mine]
    count, what = len(found), described(p)
    result = [good(count=count)]
    if p.min is not None and count < p.min:
        result.append(bad("no %s" % what if not count else "%d of %s, expected %g" % (count, what, p.min)))
    if p.max is not None and count > p.max:
        result.append(bad("%d of %s, more than %g" % (count, what, p.max)))
    return result


def fits(one: Socket, p: "Params") -> bool:
    for mask, value in ((p.local, one.local), (p.remote, one.remote), (p.path, one.path)):
        if mask is not None and not masks.matches(mask, value):
            return False
    return (p.local_port is None or one.local_port == p.local_port) and (
        p.remote_port is None or one.remote_port == p.remote_port)


def described(p: "Params") -> str:
    kind = "socket" if p.protocol == "any" else p.protocol + " socket"
    words = [kind] + ([{"listen": "that listens", "connected": "that is connected"}[p.state]]
                                        if p.state != "any" else [])
    for name in ("local", "local_port", "remote", "remote_port", "path", "user", "process"):
        value = getattr(p, name)
        if value is not None:
            words.append("%s %s" % (name.replace("_", " "), "%g" % value if isinstance(value, float) else value))
    return " ".join(words)


def read(door: "Door", protocol: str) -> "list[Socket]":
    if protocol == "any":
        return [one for which in ("tcp", "udp", "unix") for one in read(door, which)]
    if protocol == "unix":
        return unix(door.text("/proc/net/unix"))
    return [one for name in (protocol, protocol + "6") for one in inet(door.word("/proc/net/" + name), protocol)]


def hexadecimal(text: str, what: str) -> int:
    try:
        return int(text, 16)
    except ValueError as exc:
        raise NoAnswer("/proc/net has no line of sockets where %s is %s" % (what, text[:40])) from exc


def inet(text: str, protocol: str) -> "list[Socket]":
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 10:
            continue
        # UDP has no listening: a socket without a peer takes from anybody.
        state = "listen" if words[3] == (LISTEN if protocol == "tcp" else "07") else (
            "connected" if words[3] == CONNECTED else "")
        if not words[7].isdecimal():
            raise NoAnswer("/proc/net has no line of sockets where the user is %s" % words[7][:40])
        one = Socket(state, int(words[7]), words[9])
        one.local, one.local_port = address(words[1])
        one.remote, one.remote_port = address(words[2])
        found.append(one)
    return found


def unix(text: str) -> "list[Socket]":
    found = []
    for line in text.splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) < 7:
            continue
        listening = hexadecimal(words[3], "the flags") & 0x10000     # __SO_ACCEPTCON
        one = Socket("listen" if listening else "connected" if words[5] == "03" else "", -1, words[6])
        one.path = words[7] if len(words) > 7 else ""
        found.append(one)
    return found


def address(text: str) -> "tuple[str, int]":
    """0100007F:1F90: words of 32 bits as this machine writes them."""
    import socket
    import struct
    digits, _, port = text.partition(":")
    if len(digits) not in (8, 32):
        raise NoAnswer("/proc/net has no line of sockets where the address is %s" % text[:40])
    words = [abs(hexadecimal(digits[at:at + 8], "the address")) for at in range(0, len(digits), 8)]
    data = struct.pack("=%dI" % len(words), *words)
    name = socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, data)
    if name.startswith("::ffff:") and "." in name:
        name = name[7:]                         # an IPv4 peer of an IPv6 socket
    return name, hexadecimal(port, "the port")


def inodes(door: "Door", mask: str) -> "set[str]":
    """The sockets of processes that are called so."""
    found = set()
    for one in door.processes():
        if not is_called(one, mask, "name"):
            continue
        folder = "/proc/%d/fd" % one.pid
        try:
            names = door.names(folder)
        except OSError:
            continue
        for name in names:
            link = door.link("%s/%s" % (folder, name))
            if link.startswith("socket:["):
                found.add(link[8:-1])
    return found


CHECK = Check("socket", "Network and Unix sockets that must be there, or must not", run, params=(
    Param("protocol", "text", "tcp", "which", choices=("tcp", "udp", "unix", "any")),
    Param("state", "text", "listen", "which", choices=("listen", "connected", "any")),
    Param("local", "mask", None, "own address"),
    Param("local_port", "number", None, "own port"),
    Param("remote", "mask", None, "the peer's address"),
    Param("remote_port", "number", None, "the peer's port"),
    Param("path", "mask", None, "of a Unix socket"),
    Param("user", "mask", None, "whose"),
    Param("process", "mask", None, "of a process that is called so"),
    Param("min", "number", 1, "at least so many"),
    Param("max", "number", None, "at most so many"),
))
