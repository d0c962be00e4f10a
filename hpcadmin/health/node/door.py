"""The one door to the node: everything that checks read, each once. A folder may stand for the node."""

import errno
import os
import time

from hpcadmin.health.node import cpus, kernel, procs
from hpcadmin.health.node import tool as tools
from hpcadmin.health.node.api import NoAnswer

MYPY = False
if MYPY:
    from typing import Any, Callable

MAX_TEXT = 8 << 20
MAX_NAMES = 1000000
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.ENXIO, errno.EIO)


class Mount:
    """One line of /proc/mounts."""

    __slots__ = ("options", "path", "source", "type")

    def __init__(self, source: str, path: str, kind: str, options: "list[str]") -> None:
        self.source, self.path, self.type, self.options = source, path, kind, options


class Door:
    """What a check may ask. Nothing is written, nothing is asked twice."""

    def __init__(self, root: str = "", folders: "tuple[str, ...]" = tools.PATH,
                 say: "Callable[..., None] | None" = None, last: "dict[str, Any] | None" = None,
                 hung: "dict[str, Any] | None" = None) -> None:
        self.root = root.rstrip("/")
        self.folders = folders
        self.kept = {}  # type: dict[str, Any]
        self.node = ""                          # as the caller calls this node, if that is not the host's name
        self.forgetful = ""                     # why nothing is remembered from run to run
        self.entry = ""                         # whose turn it is: what is kept belongs to one entry
        self._say = say or (lambda *words: None)
        self._last = last or {}
        self._hung = hung or {}
        self._texts = {}  # type: dict[str, str]
        self._names = {}  # type: dict[str, list[str]]
        self._once = {}  # type: dict[str, Any]
        self._silent = set()  # type: set[str]

    # files

    def data(self, path: str, limit: int = MAX_TEXT) -> bytes:
        """The file's bytes, up to the limit."""
        fd = os.open(self.root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            piece = os.read(fd, 65536)
            if len(piece) < 4096:               # most files of /proc and /sys end here
                more = os.read(fd, 65536) if piece else b""
                if not more:
                    return piece
                piece += more
            pieces, size = [piece], len(piece)
            while size < limit:
                piece = os.read(fd, min(1 << 20, limit - size))
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
            return b"".join(pieces)
        finally:
            os.close(fd)

    def text(self, path: str) -> str:
        """The file's text. OSError if it cannot be read, NoAnswer if there is more of it than is read."""
        if path not in self._texts:
            data = self.data(path, MAX_TEXT + 1)
            if len(data) > MAX_TEXT:
                raise NoAnswer("%s is larger than %d MiB" % (path, MAX_TEXT >> 20))
            self._texts[path] = data.decode("utf-8", "replace")
        return self._texts[path]

    def lines(self, path: str) -> "list[str]":
        return self.text(path).splitlines()

    def word(self, path: str) -> str:
        """The text without blanks around it, "" if there is no such file."""
        try:
            return self.text(path).strip()
        except OSError as exc:
            if exc.errno in ABSENT:
                return ""
            raise

    def number(self, path: str) -> "int | None":
        """The number at the text's beginning, None if there is no such file or no number in it."""
        words = self.word(path).split(None, 1)
        word = words[0] if words else ""
        try:
            return int(word, 16 if word[:2].lower() == "0x" else 10)
        except ValueError:
            return None

    def names(self, folder: str) -> "list[str]":
        """The names in a folder, sorted; none if there is no such folder."""
        if folder not in self._names:
            try:
                self._names[folder] = sorted(os.listdir(self.root + folder or "/"))[:MAX_NAMES]
            except OSError as exc:
                if exc.errno not in ABSENT:
                    raise
                self._names[folder] = []
        return self._names[folder]

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.root + path)

    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        """May hang on a dead file system: tells what it is about to do, so that the hung path gets named."""
        self.at("stat of " + path)
        return os.stat(self.root + path) if follow else os.lstat(self.root + path)

    def statvfs(self, path: str) -> os.statvfs_result:
        self.at("statvfs of " + path)
        return os.statvfs(self.root + path)

    def link(self, path: str) -> str:
        """Where a symbolic link leads, "" if it is none."""
        try:
            return os.readlink(self.root + path)
        except OSError as exc:
            if exc.errno in ABSENT:
                return ""
            raise

    def real(self, path: str) -> str:
        """The path without links, as seen from the root."""
        return os.path.realpath(self.root + path)[len(os.path.realpath(self.root or "/").rstrip("/")):] or "/"

    # what several checks ask

    def once(self, key: str, make: "Callable[[], Any]") -> "Any":
        """What make() gives, made once in a run; a check module shares its own readings by this."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def meminfo(self) -> "dict[str, int]":
        """/proc/meminfo: name -> KiB."""
        def read() -> "dict[str, int]":
            found = {}
            for line in self.lines("/proc/meminfo"):
                name, _, rest = line.partition(":")
                words = rest.split()
                if words and words[0].isdecimal():
                    found[name] = int(words[0])
            if "MemTotal" not in found:
                raise NoAnswer("/proc/meminfo has no MemTotal")
            return found
        return self.once("meminfo", read)  # type: ignore[no-any-return]

    def mounts(self) -> "list[Mount]":
        """What is mounted, in order: of several on one path the last is seen."""
        return self.once("mounts", lambda: read_mounts(self.text("/proc/mounts")))  # type: ignore[no-any-return]

    def cpus(self) -> cpus.Cpus:
        return self.once("cpus", lambda: cpus.read(self))  # type: ignore[no-any-return]

    def processes(self) -> "list[procs.Process]":
        return self.once("processes", lambda: procs.read(self))  # type: ignore[no-any-return]

    def kernel_log(self) -> "list[kernel.Record]":
        """The kernel's ring buffer since boot, as far as it reaches back."""
        return self.once("kernel", lambda: kernel.read(self.root + "/dev/kmsg"))  # type: ignore[no-any-return]

    def uptime(self) -> float:
        return float(self.text("/proc/uptime").split()[0])

    def boot_id(self) -> str:
        return self.word("/proc/sys/kernel/random/boot_id")

    def host(self) -> str:
        return self.word("/proc/sys/kernel/hostname").split(".")[0]

    def now(self) -> float:
        return time.time()

    def user(self, uid: int) -> str:
        """The user's name; the number if nobody knows it. Asks NSS, which may hang."""
        def ask() -> str:
            import pwd
            self.at("name of user %d" % uid)
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
        return self.once("user %d" % uid, ask)  # type: ignore[no-any-return]

    def group(self, gid: int) -> str:
        """The group's name; the number if nobody knows it."""
        def ask() -> str:
            import grp
            self.at("name of group %d" % gid)
            try:
                return grp.getgrgid(gid).gr_name
            except KeyError:
                return str(gid)
        return self.once("group %d" % gid, ask)  # type: ignore[no-any-return]

    def access(self, path: str, way: int) -> bool:
        """Whether we may read, write or execute it."""
        self.at("access to " + path)
        return os.access(self.root + path, way)

    def proc_owner(self, pid: int) -> int:
        return os.stat("%s/proc/%d" % (self.root, pid)).st_uid

    # tools

    def has(self, name: str) -> bool:
        return tools.find(name, self.folders, self.root) is not None

    def tool(self, argv: "list[str]", timeout_s: float = 8) -> tools.Ran:
        """Runs a tool, once for the same words. NoAnswer if it is missing or did not end in time."""
        key = "tool " + "\0".join(argv)
        if key not in self._once:
            self._once[key] = self._run(argv, timeout_s)
        ran = self._once[key]
        if isinstance(ran, NoAnswer):
            raise ran
        return ran  # type: ignore[no-any-return]

    def _run(self, argv: "list[str]", timeout_s: float) -> "tools.Ran | NoAnswer":
        program = tools.find(argv[0], self.folders, self.root)
        if program is None:
            return NoAnswer("%s is not installed" % argv[0])
        if argv[0] in self._silent:             # its other questions would hang as well
            return NoAnswer("%s did not answer before" % argv[0])
        stuck = self._hung.get("tool " + argv[0])
        if stuck:
            return NoAnswer("%s hangs since %s (process %d)" % (argv[0], stuck["since"], stuck["pid"]))
        try:
            ran = tools.run(program, argv, timeout_s, self.folders, lambda pid: self._say("tool", pid, argv[0]))
        except OSError as exc:
            return NoAnswer("%s: %s" % (argv[0], exc.strerror))
        self._say("tool", 0, argv[0])
        if ran.status is None:
            self._silent.add(argv[0])
            if ran.stuck:
                self._say("stuck", ran.stuck, "tool " + argv[0])
            return NoAnswer("%s did not answer in %g s" % (argv[0], timeout_s))
        return ran

    # what was, and what is about to be

    def at(self, what: str) -> None:
        """What is about to be done, if it may hang: it is named if it does."""
        self._say("at", what)

    def last(self, key: str) -> "Any":
        """What was kept under this key at the last run, None if nothing was."""
        return self._last.get("%s %s" % (self.entry, key))

    def keep(self, key: str, value: "Any") -> None:
        """Plain values only."""
        self.kept["%s %s" % (self.entry, key)] = value


def read_mounts(text: str) -> "list[Mount]":
    found = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) >= 4:
            source, path, kind = (unescaped(word) for word in words[:3])
            found.append(Mount(source, path, kind, words[3].split(",")))
    return found


def unescaped(word: str) -> str:
    """Blank, tab, newline and backslash are written in octal."""
    if "\\" not in word:
        return word
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, char)
    return word
