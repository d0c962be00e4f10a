"""Processes: /proc/PID/stat of each, once. Everything else only of those that a check asks about."""

import os

from hpcadmin.health.node.api import NoAnswer

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door

MAX_PROCESSES = 200000
MAX_LINE = 65536
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """One process. name is cut to 15 characters by the kernel, line() is the whole command line (it may hang)."""

    __slots__ = ("_door", "_fields", "_line", "_raw", "_uid", "name", "pid")

    def __init__(self, door: "Door", pid: int, raw: bytes) -> None:
        self._door, self.pid, self._raw = door, pid, raw
        self._fields, self._line, self._uid = None, None, None  # type: list[bytes] | None, str | None, int | None
        self.name = raw[raw.find(b"(") + 1:raw.rfind(b")")].decode("utf-8", "replace")

    def _field(self, number: int) -> bytes:
        """As proc(5) counts, from 3 (state) on."""
        if self._fields is None:
            self._fields = self._raw[self._raw.rfind(b")") + 2:].split()
        return self._fields[number - 3]

    @property
    def state(self) -> str:
        return self._field(3).decode("ascii", "replace")

    @property
    def parent(self) -> int:
        return int(self._field(4))

    @property
    def cpu_s(self) -> float:
        """Time on a CPU, user and system."""
        return (int(self._field(14)) + int(self._field(15))) / TICKS

    @property
    def start_ticks(self) -> int:
        return int(self._field(22))

    @property
    def start_s(self) -> float:
        """Seconds after boot."""
        return int(self._field(22)) / TICKS

    @property
    def virtual_kib(self) -> int:
        return int(self._field(23)) // 1024

    @property
    def resident_kib(self) -> int:
        return int(self._field(24)) * PAGE // 1024

    @property
    def kernel(self) -> bool:
        """A thread of the kernel (PF_KTHREAD)."""
        return bool(int(self._field(9)) & 0x00200000)

    @property
    def uid(self) -> int:
        """Its effective user; -1 if it is gone by now."""
        if self._uid is None:
            try:
                self._uid = self._door.proc_owner(self.pid)
            except OSError:
                self._uid = -1
        return self._uid

    def line(self) -> str:
        """The command line, words joined by blanks; the name in brackets if it has none. Gone: empty."""
        if self._line is None:
            self._door.at("command line of process %d (%s)" % (self.pid, self.name))
            try:
                data = self._door.data("/proc/%d/cmdline" % self.pid, MAX_LINE)
            except OSError:
                data = b""
            words = data.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
            self._line = words or "[%s]" % self.name
        return self._line

    def cgroup(self) -> str:
        try:
            return self._door.data("/proc/%d/cgroup" % self.pid).decode("utf-8", "replace")
        except OSError:
            return ""


def read(door: "Door") -> "list[Process]":
    """All processes; those that end meanwhile are left out."""
    folder = os.open(door.root + "/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = []  # type: list[Process]
    try:
        for name in os.listdir(door.root + "/proc"):
            if not name.isdecimal():
                continue
            if len(found) >= MAX_PROCESSES:
                raise NoAnswer("more than %d processes" % MAX_PROCESSES)
            try:
                fd = os.open(name + "/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            except OSError:
                continue
            try:
                raw = os.read(fd, 4096)
            except OSError:
                continue
            finally:
                os.close(fd)
            if raw.count(b" ") >= 40:
                found.append(Process(door, int(name), raw))
    finally:
        os.close(folder)
    if not found:
        raise NoAnswer("no process in /proc")
    return found


def one(door: "Door", pid: int) -> "Process | None":
    """One process as it is now; None if it is not there."""
    try:
        raw = door.data("/proc/%d/stat" % pid, 4096)
    except OSError:
        return None
    return Process(door, pid, raw) if raw.count(b" ") >= 40 else None


def same(pid: int, start_ticks: int) -> bool:
    """Whether this very process is still there, and no other with its number."""
    return start_of(pid) == start_ticks


def start_of(pid: int) -> int:
    """When it began, in ticks after boot; -1 if there is no such process, or only its remains."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return -1
