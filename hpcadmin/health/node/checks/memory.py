"""Memory: how much there is."""

from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good, percent

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


# The kernel keeps some memory to itself (crashkernel, page structures), more or less of it from version to version:
# less than this is no module that was lost (one of 64; of 4 GiB, or where all are smaller, a tenth).
LEAST_LOSS, LEAST_MIB = 0.015, 3584
NODES = "/sys/devices/system/node/"


def lost(was_mib: float, now_mib: float) -> bool:
    """Whether so much is lacking that it is a module."""
    return was_mib - now_mib >= max(was_mib * LEAST_LOSS, min(LEAST_MIB, was_mib / 10))


def of_devices(door: "Door") -> bool:
    """Whether memory that is no module of the board's may be among it.

    NUMA nodes without a CPU are a GPU's (Grace Hopper: as long as its driver is loaded), or of CXL.
    """
    online, with_cpus = (door.word(NODES + name) for name in ("online", "has_cpu"))
    return bool(with_cpus) and online != with_cpus


def sizes(what: str, total_kib: int, p: "Params", own: bool = False) -> "list[Finding]":
    """The size against min_mib and max_mib; swap is judged by the same words. own: what is lacking is hardware."""
    total, slack = total_kib / 1024.0, p.tolerance_percent / 100.0
    found = [good(total_mib=int(total))]
    if p.min_mib is not None and total < p.min_mib * (1 - slack):
        own = own and lost(p.min_mib, total)
        found.append((fault if own else bad)("%s is %d MiB, expected at least %g" % (what, total, p.min_mib)))
    if p.max_mib is not None and total > p.max_mib * (1 + slack):
        found.append(bad("%s is %d MiB, expected at most %g" % (what, total, p.max_mib)))
    return found


def frees(what: str, total_kib: int, free_kib: int, p: "Params") -> "list[Finding]":
    """What is free against min_free_mib and min_free_percent."""
    total, free = total_kib / 1024.0, free_kib / 1024.0
    share = percent(free, total)
    found = [good(total_mib=int(total), free_mib=int(free))]
    if p.min_free_mib is not None and free < p.min_free_mib:
        found.append(bad("%s: %d MiB free of %d, expected %g" % (what, free, total, p.min_free_mib)))
    if p.min_free_percent is not None and total and share < p.min_free_percent:
        found.append(bad("%s: %.1f %% free of %d MiB, expected %g %%" % (what, share, total, p.min_free_percent)))
    return found


def free_kib(info: "dict[str, int]", counts: str) -> int:
    """What counts as free: what the kernel says can be had, or what is free, in buffers or in the cache."""
    if counts == "available" and "MemAvailable" in info:
        return info["MemAvailable"]
    if counts == "free":
        return told(info, "MemFree")
    return told(info, "MemFree") + told(info, "Buffers") + told(info, "Cached")


def told(info: "dict[str, int]", name: str) -> int:
    """A line of /proc/meminfo; one that is not there is not 0."""
    if name not in info:
        raise NoAnswer("/proc/meminfo has no %s" % name)
    return info[name]


def whole(door: "Door", swap: bool, counts: str = "free") -> "tuple[int, int]":
    """KiB in all and free, of the memory or of memory and swap."""
    info = door.meminfo()
    total, free = info["MemTotal"], free_kib(info, counts)
    if swap:
        total, free = total + told(info, "SwapTotal"), free + told(info, "SwapFree")
    return total, free


def run(door: "Door", p: "Params") -> "list[Finding]":
    total, _ = whole(door, p.swap)
    return sizes("memory and swap" if p.swap else "memory", total, p, own=not p.swap and not of_devices(door))


CHECK = Check("memory", "Memory: how much there is", run, hardware=True, params=(
    Param("min_mib", "number", None, "at least this much"),
    Param("max_mib", "number", None, "at most this much"),
    Param("tolerance_percent", "number", 0, "by which the size may be off"),
    Param("swap", "flag", False, "memory and swap together"),
))
