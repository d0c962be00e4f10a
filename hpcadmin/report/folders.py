"""Finding run folders: the last one, one by its id or path, a list of all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole
from hpcadmin.rundata import Manifest

_MANIFEST_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"\d{8}-\d{6}-")


@dataclass(frozen=True)
class RunEntry:
    """A folder among the runs. problem: why its manifest cannot be read; manifest is None then."""

    run_id: str
    path: Path
    manifest: Manifest | None
    problem: str = ""


def list_runs(runs: Path) -> list[RunEntry]:
    """All runs in a folder, oldest first; also what only has the name of one: its beginning was cut off."""
    return [read_entry(path) for path in _folders(runs, named=True)]


def read_entry(path: Path) -> RunEntry:
    file = path / "manifest.json"
    try:
        text = read_whole(file, limit=_MANIFEST_BYTES).decode("utf-8", "replace")
        return RunEntry(path.name, path, records.loads(Manifest, text, where=str(file)))
    except StoreError as exc:
        return RunEntry(path.name, path, None, str(exc))


def find_run(runs: Path, name: str | None) -> Path:
    """The folder of a run: the last for None or "last", else by id, by the unambiguous beginning of one, or by path."""
    known = _folders(runs)
    if name in (None, "last"):
        named, known = _dated(_folders(runs, named=True)), _dated(known)
        if not named:
            raise UsageError("there is no run yet", where=str(runs), hint="hpcadmin validate makes one")
        if named[-1:] != known[-1:]:            # an older one must not be taken for it
            raise UsageError(f"the last run, {named[-1].name}, has no manifest.json: it is not whole, or just begins",
                             hint=f"another one must be named: {known[-1].name}, say" if known else None)
        return known[-1]
    assert name is not None  # noqa: S101
    path = Path(name).expanduser()
    if "/" in name or name in (".", ".."):
        if not (path / "manifest.json").is_file():
            raise UsageError(f"{name} is not a run folder: it has no manifest.json")
        return path.resolve()
    exact = [p for p in known if p.name == name]
    begun = exact or [p for p in known if p.name.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise UsageError(f"{name!r} is the beginning of {len(begun)} runs: {', '.join(p.name for p in begun[-3:])}")
    last = ", ".join(p.name for p in known[-3:])
    raise UsageError(f"no run {name!r} in {runs}", hint=f"the last ones are {last}" if last else "there is none yet")


def _dated(found: list[Path]) -> list[Path]:
    """A folder that is called "zzz", by whoever gave it away, is not for ever the last run."""
    return [p for p in found if _NAME.match(p.name)] or found


def _folders(runs: Path, *, named: bool = False) -> list[Path]:
    """Folders with a manifest, in the order of their names, which begin with their time; also those that have such a
    name and no manifest that can be read."""
    try:
        found = [p for p in runs.iterdir() if not p.name.startswith(".")
                 and ((p / "manifest.json").is_file() or (named and _NAME.match(p.name) and p.is_dir()))]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(runs)) from exc
    return sorted(found, key=lambda p: [(int(t), "") if t.isdecimal() else (-1, t) for t in re.split(r"(\d+)", p.name)])
