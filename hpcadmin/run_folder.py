"""Run folders: made before anything is submitted, with a manifest that always says how far the run came."""

from __future__ import annotations

import os
import platform
import pwd
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcadmin import __version__, records
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.rundata import Manifest, write_record
from hpcadmin.state import make_private


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

    def job_dir(self, number: int) -> Path:
        return make_private(self.path / "jobs" / str(number))

    @property
    def run_id(self) -> str:
        return self.manifest.run_id


def create_run(runs: Path, *, suite: str, nodes: tuple[str, ...], command: tuple[str, ...], cluster: str = "",
               slurm_version: str = "", site: str = "") -> RunFolder:
    """A new folder under `runs`, with a manifest that says the run is running.

    Raises StoreError in one line when the place cannot be written (no permission, disk full).
    """
    make_private(runs)
    _require_writable(runs)
    path = _new_folder(runs, f"{datetime.now():%Y%m%d-%H%M%S}-{_word(suite)}")
    folder = RunFolder(path, Manifest(
        run_id=path.name, suite=suite, nodes=nodes, state="running", started=iso_now(), cluster=cluster,
        user=user_name(), host=platform.node(), command=command, version=__version__, slurm_version=slurm_version,
        site=site))
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


def read_record(path: Path, cls: Any) -> Any:
    """The record in a JSON file of ours; raises StoreError."""
    return records.loads(cls, read_bounded(path).decode("utf-8", "replace"), where=str(path))
