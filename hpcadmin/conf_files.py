"""Existing configuration from disk: a folder such as /etc/slurm, or files that are named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hpcadmin.conf.existing.lines import MAX_CHARACTERS
from hpcadmin.conf.existing.parts import Configuration
from hpcadmin.conf.existing.read import KNOWN, configure
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded

# Where slurmd keeps what slurmctld sent it, on nodes without files of their own (configless).
CONFIGLESS = Path("/run/slurm/conf")


def read_folder(folder: Path) -> Configuration:
    """The folder's files, with those that they include.

    Raises StoreError where there is no such folder or it has no slurm.conf; a file in it that cannot be read is among
    Configuration.missing.
    """
    if not folder.is_dir():
        raise StoreError("no such folder", where=str(folder), hint=_elsewhere(folder))
    texts: dict[str, str] = {}
    missing = []
    for name in KNOWN:
        path = folder / name
        if not path.is_symlink() and not path.exists():
            continue
        try:
            texts[name] = read_text(path)
        except StoreError as exc:
            missing.append(str(exc))
    if "slurm.conf" not in texts and not missing:
        raise StoreError("has no slurm.conf", where=str(folder), hint=_elsewhere(folder, texts))
    return _configured(texts, str(folder), missing)


def read_paths(paths: Iterable[Path]) -> Configuration:
    """Files that are named one by one; what they are is told by their names (gres.conf, old.gres.conf, gres.conf.new).

    Includes are looked for beside slurm.conf, else beside the first file. Raises StoreError, and UsageError for a name
    that does not tell which file it is and for two of a kind.
    """
    texts: dict[str, str] = {}
    folders = {}
    for path in paths:
        name = kind_of(path.name)
        if name in texts:
            raise UsageError(f"{path}: a second {name}", hint="name one of each kind")
        texts[name] = read_text(path)
        folders[name] = path.parent
    folder = folders.get("slurm.conf") or next(iter(folders.values()), Path())
    return _configured(texts, "" if str(folder) == "." else str(folder), [])


def kind_of(name: str) -> str:
    """Which of Slurm's files a name stands for. Raises UsageError where it is none of them."""
    found = next((known for known in KNOWN if name == known), "") or next(
        (known for known in KNOWN if name.endswith((f".{known}", f"-{known}", f"_{known}"))
         or name.startswith((f"{known}.", f"{known}-", f"{known}_"))), "")
    if not found:
        raise UsageError(f"{name}: which of Slurm's files is this?", hint="its name has to be like gres.conf or "
                         "gres.conf.new")
    return found


def unread(folder: Path, conf: Configuration) -> tuple[str, ...]:
    """Files of the folder that look like Slurm's and that nothing reads or includes."""
    read = {Path(file.path).name for file in conf.files}
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix in (".conf", ".yaml"))
    except OSError:
        return ()
    return tuple(name for name in names if name not in read and name not in KNOWN)


def read_text(path: Path) -> str:
    """UTF-8, other bytes as surrogates. Links are followed, as Slurm does; only a regular file of a bounded size."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "links in a circle"
        raise StoreError(f"cannot be read: {reason}", where=str(path)) from exc
    try:
        data = read_bounded(real, limit=MAX_CHARACTERS + 1)
    except StoreError as exc:
        raise StoreError(exc.what, where=str(path)) from exc
    if len(data) > MAX_CHARACTERS:
        raise StoreError(f"has more than {MAX_CHARACTERS >> 20} MiB, more than a configuration file may have",
                         where=str(path))
    return data.decode("utf-8", "surrogateescape")


def _configured(texts: dict[str, str], folder: str, missing: list[str]) -> Configuration:
    conf = configure(texts, open_file=lambda path: read_text(Path(path)), folder=folder)
    own = [text for text in conf.missing if not (missing and text.endswith("slurm.conf: there is none"))]
    return replace(conf, missing=(*missing, *own))


def _elsewhere(folder: Path, there: Iterable[str] = ()) -> str:
    """there: what the folder has instead."""
    alone = [str(folder / name) for name in there]
    if folder != CONFIGLESS and (CONFIGLESS / "slurm.conf").is_file():
        return f"this node gets its files from slurmctld: name {CONFIGLESS}"
    return f"to judge them alone, name {' '.join(alone)}" if alone else "name the folder that has slurm.conf"
