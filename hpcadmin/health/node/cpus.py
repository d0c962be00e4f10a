"""Sockets, cores and threads: read once for each core, not for each thread, and without /proc/cpuinfo.

The kernel makes /proc/cpuinfo anew for each reader and may ask every CPU for its clock.
"""

from hpcadmin.health.node.api import NoAnswer

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door

FOLDER = "/sys/devices/system/cpu"
MAX_CPUS = 65536


class Cpus:
    """sockets, cores and threads (CPUs) that are online; offline and isolated CPUs by number."""

    __slots__ = ("cores", "offline", "sockets", "threads")

    def __init__(self, sockets: int, cores: int, threads: int, offline: "list[int]") -> None:
        self.sockets, self.cores, self.threads, self.offline = sockets, cores, threads, offline


def numbers(text: str) -> "list[int]":
    """0-3,8: as the kernel writes lists of CPUs."""
    found = []  # type: list[int]
    for part in text.strip().split(","):
        low, dash, high = part.strip().partition("-")
        high = high if dash else low
        if not part.strip():
            continue
        if not (low.isdecimal() and high.isdecimal()) or int(high) > MAX_CPUS:
            raise NoAnswer("a list of CPUs has the part %s" % part[:40])
        found.extend(range(int(low), int(high) + 1))
    return found


def limited(door: "Door") -> bool:
    """Whether somebody told the kernel to use fewer: those are neither online nor offline."""
    words = door.word("/proc/cmdline").split()
    return any(word.startswith(("nr_cpus=", "maxcpus=", "possible_cpus=")) for word in words)


def read(door: "Door") -> Cpus:
    online = numbers(door.text(FOLDER + "/online"))
    if not online:
        raise NoAnswer("%s/online names no CPU" % FOLDER)
    present = numbers(door.word(FOLDER + "/present"))
    here = set(online)
    sockets = _groups(door, online, ("package_cpus_list", "core_siblings_list"))
    cores = _groups(door, online, ("core_cpus_list", "thread_siblings_list"))
    return Cpus(sockets, cores, len(online), [cpu for cpu in present if cpu not in here])


def _groups(door: "Door", online: "list[int]", files: "tuple[str, str]") -> int:
    """How many groups the CPUs fall into; older kernels know the second file alone."""
    seen = set()  # type: set[int]
    count = 0
    name = files[0] if door.exists("%s/cpu%d/topology/%s" % (FOLDER, online[0], files[0])) else files[1]
    for cpu in online:
        if cpu in seen:
            continue
        members = numbers(door.text("%s/cpu%d/topology/%s" % (FOLDER, cpu, name)))
        if cpu not in members:                  # cut off, or of another machine: no number of cores comes of that
            raise NoAnswer("%s/cpu%d/topology/%s does not name CPU %d" % (FOLDER, cpu, name, cpu))
        count += 1
        seen.add(cpu)
        seen.update(members)
    return count
