"""What people say of a run, in its folder's marks.json: tags, and that it is what later runs are compared with."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole, write_atomic

MARKS = "marks.json"
_LOCK = ".marks.lock"           # among the runs, one for all: a run's folder is not littered
_MAX_BYTES = 64 * 1024
_MAX_TAGS = 32
SWEEP_TAG = "sweep"     # of runs that a nightly sweep made
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}")


@dataclass(frozen=True)
class Marks:
    """baseline: when it was made one, in ISO form; the latest of a suite and cluster is it. imported: when it was taken
    in from elsewhere: what its folder says was not all written here."""

    tags: tuple[str, ...] = ()
    baseline: str = ""
    imported: str = ""


def read_marks(folder: Path) -> Marks:
    """StoreError where the file is not what it must be; no file is no mark."""
    path = folder / MARKS
    try:
        text = read_whole(path, limit=_MAX_BYTES)
    except StoreError:
        if not path.exists() and not path.is_symlink():
            return Marks()
        raise
    found: Marks = records.loads(Marks, text.decode("utf-8", "replace"), where=str(path))
    return found


def change_marks(folder: Path, change: Callable[[Marks], Marks]) -> Marks:
    """Write what `change` makes of a run's marks; two processes at once lose nothing of each other's."""
    with _locked(folder.parent):
        before = read_marks(folder)
        after = change(before)
        if after != before:
            write_atomic(folder / MARKS, records.dumps(after, indent=1) + "\n")
    return after


@contextlib.contextmanager
def _locked(runs: Path) -> Iterator[None]:
    try:
        fd = os.open(runs / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(runs / _LOCK)) from exc
    try:
        with contextlib.suppress(OSError):      # a file system without locks: as well as can be
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def with_tags(marks: Marks, add: tuple[str, ...], remove: tuple[str, ...]) -> Marks:
    for tag in (*add, *remove):
        if not _TAG.fullmatch(tag):
            raise UsageError(f"{tag!r} is no tag", hint="letters, digits and . _ : + -, at most 64, the first a letter "
                             "or a digit")
    absent = [tag for tag in remove if tag not in marks.tags]
    if absent:
        raise UsageError(f"the run has no tag {absent[0]!r}", hint=f"it has {', '.join(marks.tags) or 'none'}")
    tags = tuple(sorted({*marks.tags, *add} - {*remove}))
    if len(tags) > _MAX_TAGS:
        raise UsageError(f"a run has at most {_MAX_TAGS} tags")
    return replace(marks, tags=tags)
