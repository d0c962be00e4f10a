"""The seal that a run gets at its end, and what becomes of it where a complete run is judged once more."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable

from hpcadmin.errors import HpcadminError
from hpcadmin.files import read_whole
from hpcadmin.report.summary import summarise
from hpcadmin.run_folder import RunFolder, iso_now
from hpcadmin.rundata import Run, read_run
from hpcadmin.seal import (
    MAX_SEAL_BYTES,
    SEAL,
    SIGNATURE,
    is_sealed,
    look,
    parse_seal,
    read_seal,
    verify,
    write_seal,
)

_JOB_FILE = re.compile(r"jobs/\d+/[^/]+\.log")


def damage(run: Run) -> list[str]:
    """What is missing or damaged in a run's folder, raw outputs that its verdicts stand on included."""
    files = {place.partition("#")[0] for v in run.verdicts for place in v.outputs}
    return [*summarise(run).problems, *(f"{name} is missing" for name in sorted(files)
                             if _JOB_FILE.fullmatch(name) and not os.path.lexists(run.path / name))]


def seal_at_end(folder: RunFolder) -> str:
    """Seal a run that is complete. Why that could not be, "" when it was: no verdict depends on it."""
    try:
        write_seal(folder.path, folder.run_id, iso_now())
    except HpcadminError as exc:
        return f"the run is not sealed: {exc}"
    return ""


def sealed_again(folder: RunFolder, change: Callable[[], None]) -> None:
    """Change a complete run's files. A seal that fitted before fits again, and a run that was killed before it got one
    gets it if it is whole; what was signed is left as it is; where a seal does not fit any more, it stays: damage is to
    be seen."""
    if (folder.path / SIGNATURE).exists():
        return
    # Named as a file that is half written, which is no part of a seal: who is killed meanwhile leaves a run without a
    # seal, and none that looks damaged.
    aside = folder.path / f".{SEAL}.{os.getpid()}.tmp"
    try:
        if is_sealed(folder.path):
            fitted = verify(read_seal(folder.path), look(folder.path)).sound
            if fitted:
                (folder.path / SEAL).rename(aside)
        else:
            fitted = not damage(read_run(folder.path))
    except (HpcadminError, OSError):
        fitted = False
    try:
        change()
    except HpcadminError:
        with contextlib.suppress(HpcadminError, OSError):       # nothing was changed: as on a full disk
            if verify(parse_seal(read_whole(aside, limit=MAX_SEAL_BYTES)), look(folder.path)).sound:
                aside.rename(folder.path / SEAL)
        raise
    if fitted:
        seal_at_end(folder)
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
