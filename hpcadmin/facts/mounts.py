"""Mounted network and parallel file systems from /proc/self/mounts alone: none of them is touched, one may hang."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import lines_of, quote
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.model import Mount
from hpcadmin.text import printable

NAME = "mounts"
LIMIT = 1024 * 1024
KINDS = frozenset({
    "lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "wekafs", "nfs", "nfs4", "ceph", "cifs", "smb3", "panfs",
    "pvfs2", "glusterfs", "fuse.glusterfs", "fuse.daos", "fuse.dfuse", "fuse.beeond", "fuse.juicefs", "fuse.ceph",
    "fuse.sshfs", "9p", "afs", "orangefs", "vastfs", "quobyte", "fuse.quobyte",
})
_ALTERNATIVES = "|".join(sorted(KINDS)).replace(".", "[.]")
COMMAND = rf"""
[ -r /proc/self/mounts ] || return 127
grep -E '^[^ ]+ [^ ]+ ({_ALTERNATIVES}) ' </proc/self/mounts
echo end=mounts
"""
FORMS = ("text",)
MARKS = (" /",)
_ESCAPE = re.compile(r"\\([0-7]{3})")
_WORD = r"([^\s]{1,4096})"
_PROC = re.compile(rf"\s{{0,40}}{_WORD} (/[^\s]{{0,4095}}) ([a-z0-9_.]{{1,40}}) {_WORD} [0-9] [0-9]\s*\Z")
_MOUNT = re.compile(r"\s{0,40}([^\s]{1,4096}) on (/[^\s]{0,4096}) type ([a-z0-9_.]{1,40}) \(([^)]{0,8192})\)")


def parse(text: str) -> tuple[Mount, ...]:
    lines = lines_of(text, "/proc/self/mounts")
    if lines[-1] != "end=mounts":
        raise ParseError("the list of mounts is cut off")
    found = []
    for line in lines[:-1]:
        mount = _from_line(line)
        if mount is None:
            raise ParseError(f"{quote(line)} is no line of /proc/self/mounts")
        found.append(mount)
    return _sorted(found)


def opens(line: str) -> bool:
    return " /" in line and len(line) <= 20_000 and (_MOUNT.match(line) or _from_line(line)) is not None


def read(document: Document) -> tuple[Reading, ...]:
    """The network file systems in an output of `mount` or a copy of /proc/mounts; what is local is left out."""
    at: list[int] = []
    found: list[Mount] = []
    kind = "mount"
    for number, line in enumerate(document.lines, 1):
        if len(line) > 20_000 or " /" not in line:
            continue
        match = _MOUNT.match(line)
        mount = Mount(_plain(match[2]), _plain(match[1]), match[3], printable(match[4])) if match else _from_line(line)
        if mount is None:
            continue
        kind = kind if match else "/proc/mounts"
        at.append(number)
        if mount.kind in KINDS:
            found.append(mount)
    if not at:
        return ()
    mounts = _sorted(found)
    known = {"mounts": [{"target": m.target, "source": m.source, "kind": m.kind} for m in mounts]}
    return (Reading(kind, at[0], at[-1], mounts, known),)


def _from_line(line: str) -> Mount | None:
    match = _PROC.match(line) if len(line) < 20_000 else None
    if not match:
        return None
    return Mount(target=_plain(match[2]), source=_plain(match[1]), kind=match[3], options=printable(match[4]))


def _plain(text: str) -> str:
    return printable(_ESCAPE.sub(lambda match: chr(int(match[1], 8) & 0xff), text))


def _sorted(found: list[Mount]) -> tuple[Mount, ...]:
    return tuple(sorted(dict.fromkeys(found), key=lambda mount: (mount.target, mount.source)))
