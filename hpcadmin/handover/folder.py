"""Writes the document: one folder with the page and the raw outputs that it rests on, to be zipped and kept."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from dataclasses import replace
from pathlib import Path

from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded, read_whole, write_atomic
from hpcadmin.handover import again, book
from hpcadmin.handover.build import NOTHING, RAW, Beside, build, conf_changes
from hpcadmin.handover.criteria import Terms
from hpcadmin.handover.evidence import chunks, read_outputs, safe, wanted
from hpcadmin.handover.model import Handover
from hpcadmin.handover.page import render
from hpcadmin.records import without_gc
from hpcadmin.rundata import Run

PAGE = "index.html"
BOOK = "handover.xlsx"
_OURS = b'<meta name="generator" content="hpcadmin">'
_MOST_RAW = 256 * 1024 * 1024          # of one file; larger ones stay in the run folder, their hash is told
_MOST_CONF = 4 * 1024 * 1024


def write(run: Run, terms: Terms, today: datetime.date, folder: Path, *, language: str = "en",
          beside: Beside = NOTHING) -> Handover:
    """Make the folder anew and return what the document says. Only a folder that is such a document is replaced."""
    refs = dict.fromkeys((*(ref for found in wanted(run).values() for ref in found), *again.refs(run)))
    outputs = read_outputs(run, refs)
    _clear(folder)
    copied = frozenset(path for path, raw in outputs.files.items()
                       if not raw.problem and raw.size <= _MOST_RAW and _copy(run.file(path), folder / RAW / path))
    with without_gc():
        doc = build(run, terms, today, replace(beside, outputs=outputs, copied=copied))
    with contextlib.suppress(UsageError):              # without XlsxWriter the document is the page alone
        write_atomic(folder / BOOK, book.render(doc, language))
    write_atomic(folder / PAGE, render(doc, language).encode("utf-8", "backslashreplace"))
    return doc


def _clear(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder")
    try:
        if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
            raise UsageError(f"{folder} is not empty and holds no document of this kind",
                             hint="-o names another folder")
        shutil.rmtree(folder / RAW, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"cannot be made: {exc.strerror}", where=str(folder)) from exc


def _is_ours(folder: Path) -> bool:
    """Any web server's folder has an index.html; and what lies behind a link is none of a document."""
    try:
        return _OURS in read_bounded(folder / PAGE, limit=4096) and not (folder / RAW).is_symlink()
    except StoreError:
        return False


def _copy(source: Path, target: Path) -> bool:
    """False where it could not be copied: the document then names the file without a link."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as stream:
            for data in chunks(source):
                stream.write(data)
    except (OSError, StoreError):
        return False
    return True


def read_conf(rendered: Path, live: Path | None) -> Beside:
    """The configuration files that were handed over, beside those in the live folder."""
    found: dict[str, tuple[bytes, bytes | None]] = {}
    try:
        names = sorted(e.name for e in os.scandir(rendered) if e.is_file(follow_symlinks=False)
                       and not e.name.startswith(".") and safe(e.name))
    except OSError as exc:
        raise UsageError(f"{rendered} cannot be read: {exc.strerror}") from exc
    for name in names:
        text = read_whole(rendered / name, limit=_MOST_CONF)
        other = None
        if live is not None and (live / name).exists():
            other = read_whole((live / name).resolve(), limit=_MOST_CONF)
        found[name] = text, other
    files = conf_changes(found)
    return Beside(conf=files if live is not None else tuple(replace(f, diff=None) for f in files))
