"""A file: what it is, whose, how old."""

import os
import stat

from hpcadmin.health.node.api import REQUIRED, Check, NoAnswer, Param, bad, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


TYPES = (("file", stat.S_ISREG), ("folder", stat.S_ISDIR), ("link", stat.S_ISLNK), ("block", stat.S_ISBLK),
         ("char", stat.S_ISCHR), ("fifo", stat.S_ISFIFO), ("socket", stat.S_ISSOCK))

FUTURE_S = 60


def run(door: "Door", p: "Params") -> "list[Finding]":
    try:
        seen = door.stat(p.path, follow=p.type != "link" and p.target is None)
    except FileNotFoundError:
        return [bad("%s is not there" % p.path)] if p.present else [good(path=p.path)]
    if not p.present:
        return [bad("%s is there" % p.path)]
    kind = next((name for name, test in TYPES if test(seen.st_mode)), "?")
    mode, age = stat.S_IMODE(seen.st_mode), door.now() - seen.st_mtime
    found = [good(path=p.path, type=kind, mode="%04o" % mode, uid=seen.st_uid, gid=seen.st_gid, bytes=seen.st_size,
                  age_s=int(age))]
    if p.max_age_s is not None and age < -FUTURE_S:     # a clock that jumped: it would be young for ever
        found.append(unknown("%s was written %d s in the future" % (p.path, -age)))
    reasons = []
    if p.type is not None and kind != p.type:
        reasons.append("is a %s, expected a %s" % (kind, p.type))
    reasons += _numbers(seen, p, age) + _rights(door, p, mode) + _people(door, p, seen) + _others(door, p, seen)
    return found + [bad("%s %s" % (p.path, reason)) for reason in reasons]


def _numbers(seen: os.stat_result, p: "Params", age: float) -> "list[str]":
    found = []
    for value, least, most, what in ((seen.st_size, p.min_bytes, p.max_bytes, "bytes long"),
                                     (age, p.min_age_s, p.max_age_s, "seconds old"),
                                     (seen.st_nlink, p.links, p.links, "links")):
        if least is not None and value < least:
            found.append("is %d %s, expected at least %g" % (value, what, least))
        if most is not None and value > most:
            found.append("is %d %s, expected at most %g" % (value, what, most))
    if p.empty is not None and (seen.st_size == 0) != p.empty:
        found.append("is empty" if not p.empty else "is not empty")
    for value, expected, what in ((seen.st_uid, p.uid, "user"), (seen.st_gid, p.gid, "group"),
                                  (os.major(seen.st_rdev), p.major, "major number"),
                                  (os.minor(seen.st_rdev), p.minor, "minor number")):
        if expected is not None and value != expected:
            found.append("has %s %d, expected %g" % (what, value, expected))
    return found


def _rights(door: "Door", p: "Params", mode: int) -> "list[str]":
    found = []
    if p.mode is not None and mode != octal(p.mode):
        found.append("has mode %04o, expected %04o" % (mode, octal(p.mode)))
    if p.mode_with is not None and mode & octal(p.mode_with) != octal(p.mode_with):
        found.append("has mode %04o, expected all bits of %04o" % (mode, octal(p.mode_with)))
    if p.mode_without is not None and mode & octal(p.mode_without):
        found.append("has mode %04o, expected none of the bits %04o" % (mode, octal(p.mode_without)))
    for wanted, way, what in ((p.readable, os.R_OK, "readable"), (p.writable, os.W_OK, "writable"),
                              (p.executable, os.X_OK, "executable")):
        if wanted is not None and door.access(p.path, way) != wanted:
            found.append("is %s%s" % ("not " if wanted else "", what))
    return found


def _people(door: "Door", p: "Params", seen: os.stat_result) -> "list[str]":
    found = []
    if p.owner is not None and door.user(seen.st_uid) != p.owner:
        found.append("belongs to %s, expected %s" % (door.user(seen.st_uid), p.owner))
    if p.group is not None and door.group(seen.st_gid) != p.group:
        found.append("belongs to the group %s, expected %s" % (door.group(seen.st_gid), p.group))
    return found


def _others(door: "Door", p: "Params", seen: os.stat_result) -> "list[str]":
    found = []
    if p.newer_than is not None and seen.st_mtime <= door.stat(p.newer_than).st_mtime:
        found.append("is not newer than %s" % p.newer_than)
    if p.older_than is not None and seen.st_mtime >= door.stat(p.older_than).st_mtime:
        found.append("is not older than %s" % p.older_than)
    if p.same_as is not None:
        other = door.stat(p.same_as)
        if (other.st_dev, other.st_ino) != (seen.st_dev, seen.st_ino):
            found.append("is not the same as %s" % p.same_as)
    if p.target is not None and door.link(p.path) != p.target:
        found.append("leads to %s, expected %s" % (door.link(p.path) or "nothing", p.target))
    return found


def octal(text: str) -> int:
    try:
        return int(text, 8)
    except ValueError as exc:
        raise NoAnswer("configuration: %s is no mode like 0644" % text) from exc


CHECK = Check("file", "A file: what it is, whose, how old", run, timeout_s=5, params=(
    Param("path", "text", REQUIRED, "the file"),
    Param("present", "flag", True, "it must be there, or must not"),
    Param("type", "text", None, "what it must be", choices=tuple(name for name, _ in TYPES)),
    Param("readable", "flag", None, "for who runs the checks"),
    Param("writable", "flag", None, "for who runs the checks, on a file system that can be written"),
    Param("executable", "flag", None, "for who runs the checks"),
    Param("empty", "flag", None, "has no bytes"),
    Param("owner", "text", None, "name of the user"),
    Param("group", "text", None, "name of the group"),
    Param("uid", "number", None, "number of the user"),
    Param("gid", "number", None, "number of the group"),
    Param("mode", "text", None, "like 0644, exactly"),
    Param("mode_with", "text", None, "all of these bits"),
    Param("mode_without", "text", None, "none of these bits"),
    Param("min_bytes", "number", None, "size"),
    Param("max_bytes", "number", None, "size"),
    Param("min_age_s", "number", None, "time since it was written"),
    Param("max_age_s", "number", None, "time since it was written"),
    Param("newer_than", "text", None, "another file"),
    Param("older_than", "text", None, "another file"),
    Param("same_as", "text", None, "another name of the same file"),
    Param("target", "text", None, "where the symbolic link leads"),
    Param("major", "number", None, "of a device"),
    Param("minor", "number", None, "of a device"),
    Param("links", "number", None, "hard links"),
))
