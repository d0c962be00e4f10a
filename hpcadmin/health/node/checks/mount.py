"""File systems: mounted, from where, read-write, answering."""

import errno
import time

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import REQUIRED, Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    seen = {mount.path: mount for mount in door.mounts() if masks.matches(p.path, mount.path)}  # the last one is seen
    if p.missing:
        return [bad("%s is mounted" % path) for path in sorted(seen)]
    if not seen:
        return [bad("%s is not mounted" % p.path)]
    found = []  # type: list[Finding]
    for path, mount in sorted(seen.items()):
        said, took = answers(door, path) if p.answers else ([], None)
        found.append(good(path=path, source=mount.source, type=mount.type, options=mount.options, answer_ms=took))
        for what, mask, value in (("source", p.source, mount.source), ("type", p.type, mount.type)):
            if mask is not None and not masks.matches(mask, value):
                found.append(bad("%s has %s %s, expected %s" % (path, what, value, mask)))
        # as written in one word, or one by one: both are in use
        found += [bad("%s is mounted with %s, expected %s" % (path, ",".join(mount.options), mask))
                  for mask in p.options if not _has(mask, mount.options)]
        if p.mode != "any" and p.mode not in mount.options:
            found.append(bad("%s is mounted %s" % (path, "read-only" if p.mode == "rw" else "read-write")))
        found += said
    return found


def _has(mask: str, options: "list[str]") -> bool:
    if mask[:1] == "!":
        return not _has(mask[1:], options)
    return any(masks.matches(mask, option) for option in [",".join(options), *options])


def answers(door: "Door", path: str) -> "tuple[list[Finding], float | None]":
    """Whether it says anything at all, and after how many milliseconds. A hang is dealt with by who called us."""
    begun = time.monotonic()
    try:
        door.statvfs(path)
        door.stat(path)
    except OSError as exc:
        if exc.errno in (errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.ESHUTDOWN, errno.EHOSTDOWN):
            return [bad("%s does not answer: %s" % (path, exc.strerror))], None
        raise
    return [], round((time.monotonic() - begun) * 1000, 3)


CHECK = Check("mount", "File systems: mounted, from where, read-write, answering", run, timeout_s=5, params=(
    Param("path", "mask", REQUIRED, "where it is mounted"),
    Param("source", "mask", None, "what is mounted"),
    Param("type", "mask", None, "type of file system"),
    Param("options", "masks", [], "each must match an option, or all in one word"),
    Param("mode", "text", "any", "how it must be mounted", choices=("any", "rw", "ro")),
    Param("missing", "flag", False, "must not be mounted"),
    Param("answers", "flag", True, "must answer to stat and statvfs"),
))
