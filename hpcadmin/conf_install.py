"""What conf render would change in a folder, where it never writes unasked, and the password of slurmdbd.conf."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hpcadmin.conf.passwords import hidden_lines
from hpcadmin.conf_write import Change, Plan
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.site import Site
from hpcadmin.text import printable

MAX_PASSWORD = 1024
MAX_LINES = 20_000                   # of one side of a difference that is shown line by line
# Folders that Slurm's daemons read where nothing else is said, and where configless slurmd keep their copies.
_LIVE = ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc/slurm", "/opt/slurm/etc", "/run/slurm/conf")


def live_folders(site: Site) -> tuple[Path, ...]:
    """Where a Slurm on this machine, or the site's, reads its files."""
    named = os.environ.get("SLURM_CONF", "")
    own = [Path(named).parent] if named.startswith("/") else []
    return tuple(dict.fromkeys([*(Path(path) for path in _LIVE), Path(site.slurm.conf_dir), *own]))


def refuse_live(folder: Path, site: Site) -> None:
    """Raises UsageError where the folder is a live one or lies in one, whatever links or mounts lead there."""
    real = Path(os.path.realpath(folder))
    for live in live_folders(site):
        there = Path(os.path.realpath(live))
        same = any(_same(place, there) for place in (real, *real.parents))
        if same or real == there or there in real.parents:
            raise UsageError(f"conf render does not write to {live}, which Slurm reads", where="-o",
                             hint="--install writes there, and shows the difference first")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one folder (bind mounts)."""
    try:
        a, b = one.stat(), other.stat()
    except OSError:
        return False
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) and other != Path("/")


def difference(planned: Plan) -> Iterator[str]:
    """The lines of a unified diff of the files that are there, passwords left out; every one fit for a terminal."""
    for change in planned.changes:
        if change.old is None:
            continue
        before = f"{planned.folder}/{change.name}"
        after = change.name if change.new is not None else "/dev/null"
        for text in _lines(change, before, after):
            yield printable(text, limit=4000)


def _lines(change: Change, before: str, after: str) -> Iterator[str]:
    texts = ((side or b"").decode("utf-8", "replace") for side in (change.old, change.new))
    old, new = (hidden_lines(text).splitlines() for text in texts)
    if max(len(old), len(new)) > MAX_LINES:
        yield f"--- {before}"
        yield f"+++ {after}"
        yield f"{len(old)} lines become {len(new)}"
    else:
        yield from difflib.unified_diff(old, new, before, after, lineterm="")


def with_password(text: str, path: Path) -> str:
    """slurmdbd.conf with StoragePass= from the site's password file. Raises StoreError; the password is in no message.

    The file: one line, no more than MAX_PASSWORD characters, readable by its owner alone.
    """
    raw = read_bounded(path, limit=MAX_PASSWORD + 2)
    mode = path.stat().st_mode & 0o077
    if mode:
        raise StoreError("can be read by others than its owner", where=str(path), hint=f"chmod 600 {path}")
    secret = raw.decode("utf-8", "replace").rstrip("\r\n")
    if not secret or "\n" in secret or len(secret) > MAX_PASSWORD:
        raise StoreError("must be one line with the password", where=str(path))
    if not re.fullmatch(r"[!-~]+", secret) or set(secret) & set("#\"'\\"):
        raise StoreError("the password has a character that slurmdbd.conf cannot hold: white space, #, quotes, "
                         "backslashes or non-ASCII", where=str(path))
    lines = text.splitlines()
    place = next((n for n, line in enumerate(lines) if line.startswith("StorageUser=")), len(lines) - 1)
    return "\n".join([*lines[:place + 1], f"StoragePass={secret}", *lines[place + 1:]]) + "\n"
