"""NHC's checks of file systems (lbnl_fs): mounts, sizes, inodes. Nothing is mounted, made or run."""

from hpcadmin.health.node.nhc_base import Died, Nhc

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door


def _mounts(door: "Door") -> "dict[str, tuple[str, str, str]]":
    """Mount point -> source, type, options; of several on one place the last. An escaped blank stays 040, as in NHC."""
    def read() -> "dict[str, tuple[str, str, str]]":
        found = {}
        for line in door.text("/proc/mounts").replace("\\", "").split("\n"):
            words = line.split()
            if len(words) > 1:
                words += ["", ""]
                found[words[1]] = (words[0], words[2], words[3])
        return found
    return door.once("nhc mounts", read)  # type: ignore[no-any-return]


def check_fs_mount(nhc: Nhc, args: "list[str]", mode: str = "") -> None:
    wanted = {"f": [], "F": [], "s": [], "t": [], "o": [], "mode": [mode] if mode else []}  # type: dict[str, list[str]]
    harmless = False
    if (args + [""])[0].startswith("/"):
        for key, value in zip(("f", "s", "t") if mode else ("f", "s", "t", "o"), args):
            if value:
                wanted[key].append(value)
    else:
        given, rest = nhc.options("0rE:F:O:e:f:o:s:t:", args)
        for key, value in given:
            if key in wanted:
                wanted[key].append(value)
            elif key in "reE":
                nhc.notice("the action of -%s is not run" % key)
            harmless = harmless or key == "0"
        wanted["f"] += rest[:rest.index("")] if "" in rest else rest
    for path in wanted["F"]:
        _wake(nhc, path)
    if not wanted["f"] + wanted["F"]:
        nhc.notice("no file system is named: nothing is tested")
    for path in wanted["f"] + wanted["F"]:
        wrong = _mount_fault(nhc, path, wanted)
        if wrong and harmless:
            nhc.notice("%s (not fatal by -0)" % wrong)
        elif wrong:
            raise Died(wrong)


def _wake(nhc: Nhc, path: str) -> None:
    """A look into an automounted file system, so that it gets mounted."""
    try:
        nhc.door.stat(path.rstrip("/") + "/.", follow=True)
    except OSError:
        return


def _mount_fault(nhc: Nhc, path: str, wanted: "dict[str, list[str]]") -> str:
    mounts = _mounts(nhc.door)
    if path not in mounts:
        return "%s is not mounted" % path
    for word in wanted["mode"]:
        if word not in mounts[path][2].split(","):
            return "%s is not mounted %s: %s" % (path, word, mounts[path][2])
    for value, key, what in zip(mounts[path], "sto", ("source", "type", "options")):
        for expression in wanted[key]:
            if not nhc.matches(value, expression):
                return "%s of %s: %s does not match %s" % (what, path, value, expression)
    return ""


def check_fs_mount_rw(nhc: Nhc, args: "list[str]") -> None:
    check_fs_mount(nhc, args, "rw")


def check_fs_mount_ro(nhc: Nhc, args: "list[str]") -> None:
    check_fs_mount(nhc, args, "ro")


class _Use:
    """Size, used, free (kB or inodes) and percent used, as df rounds them."""

    def __init__(self, size: int, used: int, free: int, used_of: int, whole: int) -> None:
        self.size, self.used, self.free = str(size), str(used), str(free)
        self.percent = -(-used_of * 100 // whole) if whole > 0 else 0


def _use(nhc: Nhc, path: str, inodes: bool) -> "_Use | None":
    if not any(mount.path == path for mount in nhc.door.mounts()):
        nhc.notice("%s is no mount point: NHC passes over it" % path)
        return None
    seen = nhc.door.statvfs(path)
    if inodes:
        total, free = seen.f_files, seen.f_ffree
        use = _Use(total, total - free, free, total - free, total)
    else:
        unit = seen.f_frsize or seen.f_bsize
        used, free = seen.f_blocks - seen.f_bfree, seen.f_bavail
        size_kb, used_kb, free_kb = (-(-count * unit // 1024) for count in (seen.f_blocks, used, free))
        use = _Use(size_kb, used_kb, free_kb, used, used + free)
    if use.size == "0":
        nhc.notice("%s has no %s: NHC passes over it" % (path, "inodes" if inodes else "size"))
        return None
    return use


def _range(nhc: Nhc, args: "list[str]", inodes: bool) -> None:
    path, low, high = (args + ["", "", ""])[:3]
    parse = nhc.numbers.count if inodes else nhc.numbers.size
    low, high = parse(low), parse(high)
    use = _use(nhc, path, inodes)
    if use is None:
        return
    unit = "inodes" if inodes else "kB"
    if low and nhc.numbers.test(low, "gt", use.size):
        raise Died("%s has %s %s, less than %s" % (path, use.size, unit, low))
    if high and nhc.numbers.test(high, "lt", use.size):
        raise Died("%s has %s %s, more than %s" % (path, use.size, unit, high))


def _limit(nhc: Nhc, args: "list[str]", inodes: bool, free: bool) -> None:
    path, limit = (args + ["", ""])[:2]
    use = _use(nhc, path, inodes)
    if use is None or not limit:
        return
    unit = "inodes" if inodes else "kB"
    if limit.endswith("%"):
        actual, unit, limit = str(100 - use.percent if free else use.percent), "%", limit[:-1]
    else:
        actual = use.free if free else use.used
        limit = (nhc.numbers.count if inodes else nhc.numbers.size)(limit)
    if nhc.numbers.test(actual, "lt" if free else "ge", limit):
        raise Died("%s has %s %s %s, limit %s" % (path, actual, unit, "free" if free else "used", limit))


def check_fs_size(nhc: Nhc, args: "list[str]") -> None:
    _range(nhc, args, inodes=False)


def check_fs_inodes(nhc: Nhc, args: "list[str]") -> None:
    _range(nhc, args, inodes=True)


def check_fs_free(nhc: Nhc, args: "list[str]") -> None:
    _limit(nhc, args, inodes=False, free=True)


def check_fs_used(nhc: Nhc, args: "list[str]") -> None:
    _limit(nhc, args, inodes=False, free=False)


def check_fs_ifree(nhc: Nhc, args: "list[str]") -> None:
    _limit(nhc, args, inodes=True, free=True)


def check_fs_iused(nhc: Nhc, args: "list[str]") -> None:
    _limit(nhc, args, inodes=True, free=False)
