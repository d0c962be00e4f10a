"""Run folders: made before anything is submitted, with a manifest that always says how far the run came."""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import secrets
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcadmin import __version__, records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole
from hpcadmin.rundata import Manifest, write_record
from hpcadmin.state import make_private
from hpcadmin.text import whole_number


def iso_now() -> str:
    return datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds")


def user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@dataclass
class RunFolder:
    """A run's folder and its manifest, which is written at every change."""

    path: Path
    manifest: Manifest

    def update(self, **changes: Any) -> None:
        self.manifest = replace(self.manifest, **changes)
        write_record(self.path, "manifest.json", self.manifest)

    def jobs(self) -> list[Path]:
        """The folders of the jobs that there are, by number."""
        try:
            found = [path for path in (self.path / "jobs").iterdir() if whole_number(path.name) is not None]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise StoreError(f"cannot be read: {exc.strerror}", where=str(self.path / "jobs")) from exc
        return sorted(found, key=lambda path: int(path.name))

    def job_dir(self, number: int) -> Path:
        path = self.path / "jobs" / str(number)
        if path.is_symlink():
            raise StoreError("is a link, and no folder that a run has made", where=str(path))
        return make_private(path)

    @property
    def run_id(self) -> str:
        return self.manifest.run_id


def create_run(runs: Path, *, suite: str, nodes: tuple[str, ...], command: tuple[str, ...], cluster: str = "",
               slurm_version: str = "", site: str = "", request: object = None, retest_of: str = "",
               apart: bool = False) -> RunFolder:
    """A new folder under `runs`, with a manifest that says the run is running, and before that what was asked for.
    apart: this is not where all runs are, so that one of this second may be elsewhere; jobs are known by the name.

    Raises StoreError in one line when the place cannot be written (no permission, disk full).
    """
    make_private(runs)
    _require_writable(runs)
    path = _new_folder(runs, f"{datetime.now():%Y%m%d-%H%M%S}-{_word(suite)}"
                       f"{'-' + secrets.token_hex(2) if apart else ''}")
    folder = RunFolder(path, Manifest(
        run_id=path.name, suite=suite, nodes=nodes, state="running", started=iso_now(), cluster=cluster,
        user=user_name(), host=platform.node(), command=command, version=__version__, slurm_version=slurm_version,
        site=site, retest_of=retest_of, folder=str(path)))
    if request is not None:
        write_record(path, "request.json", request)
    folder.update()
    return folder


def _word(suite: str) -> str:
    return "".join(c for c in suite if c.isascii() and (c.isalnum() or c in "-_"))[:40] or "suite"


def _new_folder(runs: Path, name: str) -> Path:
    for number in range(1, 1000):
        path = runs / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as exc:
            raise StoreError(f"cannot be created: {exc.strerror}", where=str(path)) from exc
        return path
    raise StoreError("has a thousand runs of this second", where=str(runs))


def _require_writable(runs: Path) -> None:
    """Write and read back some real bytes: a full disk still lets folders be made."""
    try:
        with tempfile.NamedTemporaryFile(dir=runs, prefix=".space-") as probe:
            probe.write(b"\0" * 262144)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(runs),
                         hint="runs need a writable folder on a file system that the nodes share: --run-dir, or "
                         "[run] dir in site.toml") from exc


def moved(path: Path, manifest: Manifest) -> bool:
    """Whether the run was made in another folder than this one, which is not there any more. Raises UsageError where
    that one is still there: this is a copy, and the jobs are not its own."""
    if not manifest.folder:
        return False
    home = Path(manifest.folder)
    with contextlib.suppress(OSError, StoreError):
        if home.samefile(path):
            return False
        if read_record(home / "manifest.json", Manifest).run_id == manifest.run_id:
            raise UsageError(f"{path} is a copy of {home}: the run's jobs write there, and nothing is changed here",
                             hint=f"name that one: {home}")
    return True


def read_record(path: Path, cls: Any) -> Any:
    """The record in a JSON file of ours; raises StoreError."""
    return records.loads(cls, read_whole(path).decode("utf-8", "replace"), where=str(path))
