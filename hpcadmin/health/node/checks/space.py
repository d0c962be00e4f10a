"""File systems: size, free and used space and inodes."""

from hpcadmin.health.node.api import REQUIRED, Check, NoAnswer, Param, bad, good, percent

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    if p.mounted and not any(mount.path == (p.path.rstrip("/") or "/") for mount in door.mounts()):
        return [bad("%s is not mounted" % p.path)]
    seen = door.statvfs(p.path)
    mib = seen.f_frsize / 1048576.0
    used = seen.f_blocks - seen.f_bfree
    free = seen.f_bfree if p.reserved else seen.f_bavail
    measured = {"mib": seen.f_blocks * mib, "free_mib": free * mib, "used_mib": used * mib,
                "free_percent": percent(free, used + free), "used_percent": percent(used, used + free)}
    if seen.f_files:                            # some file systems have no fixed number of inodes, and say 0
        inodes_used, inodes_free = seen.f_files - seen.f_ffree, seen.f_ffree
        measured.update({"inodes": seen.f_files, "free_inodes": inodes_free, "used_inodes": inodes_used,
                         "free_inodes_percent": percent(inodes_free, seen.f_files),
                         "used_inodes_percent": percent(inodes_used, seen.f_files)})
    elif any(getattr(p, name) is not None for name in LIMITS if "inodes" in name):
        raise NoAnswer("%s has no fixed number of inodes" % p.path)
    if not seen.f_blocks:
        raise NoAnswer("%s does not tell its size" % p.path)
    found = [good(path=p.path, **{name: round(value, 2) for name, value in measured.items()})]
    for limit in LIMITS:
        most, bound = limit.startswith("max_"), getattr(p, limit)
        value = measured.get(limit[4:])
        if bound is not None and value is not None and (value > bound if most else value < bound):
            found.append(bad("%s: %s is %s, %s %g" % (
                p.path, limit[4:].replace("_", " "), shown(value), "more than" if most else "less than", bound)))
    return found


def shown(value: float) -> str:
    return "%d" % value if value >= 1000 else "%.4g" % value


LIMITS = ("min_mib", "max_mib", "min_free_mib", "min_free_percent", "max_used_mib", "max_used_percent", "min_inodes",
          "max_inodes", "min_free_inodes", "min_free_inodes_percent", "max_used_inodes", "max_used_inodes_percent")
CHECK = Check("space", "File systems: size, free and used space and inodes", run, timeout_s=5, params=(
    Param("path", "text", REQUIRED, "where it is mounted"),
    Param("mounted", "flag", True, "something must be mounted there: else the numbers are those of the folder above"),
    Param("reserved", "flag", False, "what is root's alone counts as free"),
    *(Param(name, "number", None, "limit") for name in LIMITS),
))
