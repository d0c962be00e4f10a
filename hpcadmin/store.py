"""The index over run folders: SQLite, so that a thousand runs are looked through at once.

It holds nothing that the folders do not: it is brought up to date by their files' times and sizes whenever it is
opened, and made anew where it is damaged. It lies beside the runs, one for each host: SQLite's write-ahead log needs
memory that all its processes share, and hosts share none. Where it cannot be written, it is made in memory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from hpcadmin import records
from hpcadmin.errors import StoreError
from hpcadmin.files import read_whole
from hpcadmin.hosts import fold
from hpcadmin.rundata import Manifest
from hpcadmin.store_marks import MARKS, Marks, read_marks

BUSY_S = 10.0
_MANIFEST_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"\d{8}-\d{6}-")
_HALF = re.compile("[\ud800-\udfff]")      # of a sign: no text that can be written
T = TypeVar("T")

# Each step leads from the version of its place to the next one; what is out is never changed.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        name TEXT PRIMARY KEY, stamp TEXT NOT NULL, problem TEXT NOT NULL, manifest TEXT NOT NULL,
        suite TEXT NOT NULL, state TEXT NOT NULL, exit_status INTEGER, started TEXT NOT NULL, started_at REAL,
        ended TEXT NOT NULL, cluster TEXT NOT NULL, simulated TEXT NOT NULL, nodes TEXT NOT NULL, folded TEXT NOT NULL,
        tags TEXT NOT NULL, baseline TEXT NOT NULL) WITHOUT ROWID;
    CREATE INDEX runs_started ON runs (started_at);
    """,
    """
    CREATE TABLE sampled (run TEXT NOT NULL, check_name TEXT NOT NULL, stamp TEXT NOT NULL, samples BLOB NOT NULL,
        PRIMARY KEY (run, check_name)) WITHOUT ROWID;
    """,
)
SCHEMA = len(MIGRATIONS)
_COLUMNS = ("name", "stamp", "problem", "manifest", "suite", "state", "exit_status", "started", "started_at", "ended",
            "cluster", "simulated", "nodes", "folded", "tags", "baseline")
_SHOWN = ("name", "problem", "manifest", "suite", "state", "exit_status", "started", "ended", "cluster", "simulated",
          "folded", "tags", "baseline")


class DamagedError(Exception):
    """The index file is none, or not whole."""


class UnusableError(Exception):
    """The index file cannot be used here and now: read-only, no locks, disk full, of a newer version."""


@dataclass(frozen=True)
class Entry:
    """A run as the index knows it. problem: why its manifest cannot be read; most else is empty then."""

    name: str
    path: Path
    problem: str
    manifest_text: str
    suite: str
    state: str
    exit_status: int | None
    started: str
    ended: str
    cluster: str
    simulated: str
    nodes: str                  # folded
    tags: tuple[str, ...]
    baseline: str

    @property
    def manifest(self) -> Manifest | None:
        if self.problem:
            return None
        found: Manifest = records.loads(Manifest, self.manifest_text, where=str(self.path / "manifest.json"))
        return found


@dataclass(frozen=True)
class Wanted:
    """Which runs: all that is said must hold. suite: a name, or a pattern with * and ?. nodes: one of them at least."""

    suite: str = ""
    nodes: tuple[str, ...] = ()
    state: str = ""
    tag: str = ""
    since: float | None = None
    cluster: str | None = None
    baseline: bool = False


def index_file(runs: Path) -> Path:
    host = re.sub(r"[^A-Za-z0-9.-]", "_", platform.node())[:64] or "host"
    return runs / f".index-{host}.sqlite"


def with_index(runs: Path, work: Callable[[Index], T], say: Callable[[str], None] = lambda _text: None, *,
               anew: bool = False) -> T:
    """What `work` gives for the index, which is up to date. anew: make it from the folders alone.

    A damaged file is replaced, and `say` told so; one that cannot be used is left, and the index made in memory.
    """
    path = index_file(runs)
    if not runs.is_dir():
        return _in_memory(runs, work)
    if anew:
        _remove(path, None)
    for again in (False, True):
        seen = _inode(path)
        try:
            with _opened(runs, path) as index:
                return work(index)
        except DamagedError as exc:
            if again or not _remove(path, seen):
                break
            say(f"{path} was damaged ({exc}): made anew from the run folders")
        except UnusableError as exc:
            if exc.args[0]:
                say(f"{path} is not used: {exc}")
            break
    return _in_memory(runs, work)


def _in_memory(runs: Path, work: Callable[[Index], T]) -> T:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        index = Index(runs, base)
        index.migrate()
        index.update()
        return work(index)


@contextlib.contextmanager
def _opened(runs: Path, path: Path) -> Iterator[Index]:
    lock = _lock(path, fcntl.LOCK_SH)
    try:
        with _told_apart():
            _require_locks(path)
            base = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        with contextlib.closing(base), _told_apart():
            base.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")
            index = Index(runs, base)
            index.migrate()
            index.update()
            yield index
    finally:
        os.close(lock)


def _require_locks(path: Path) -> None:
    """SQLite takes a file system without its kind of locks (fcntl) for one where somebody else has them, and waits."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1)
    except OSError as exc:
        if exc.errno not in (errno.EAGAIN, errno.EACCES):           # somebody has it: there are locks
            raise UnusableError(f"its file system has no locks ({exc.strerror})") from exc
    finally:
        os.close(fd)


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    """SQLite's errors as what can be done about them."""
    try:
        yield
    except OSError as exc:
        raise UnusableError("" if exc.errno in (13, 30) else exc.strerror) from exc     # EACCES, EROFS
    except sqlite3.OperationalError as exc:
        if any(words in str(exc) for words in ("no such", "has no column", "Could not decode")):
            raise DamagedError(str(exc)) from exc
        raise UnusableError("" if "readonly" in str(exc) else str(exc)) from exc
    except sqlite3.DatabaseError as exc:
        raise DamagedError(str(exc)) from exc


def _lock(path: Path, kind: int) -> int:
    """Shared while the index is open, exclusive while its files are removed: a log that is left over must not meet a
    new file."""
    name = path.with_suffix(".lock")
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise UnusableError("") from exc
    end = time.monotonic() + BUSY_S
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return fd
        except OSError as exc:
            if not isinstance(exc, BlockingIOError) or time.monotonic() > end:
                os.close(fd)
                raise UnusableError(f"its lock cannot be had: {exc.strerror}") from exc
            time.sleep(0.02)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _remove(path: Path, seen: int | None) -> bool:
    """Remove the index, unless it is another one than that which was seen (None: any) by now."""
    try:
        lock = _lock(path, fcntl.LOCK_EX)
    except UnusableError:
        return False
    try:
        if seen is None or _inode(path) == seen:
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


class Index:
    """An open index."""

    def __init__(self, runs: Path, base: sqlite3.Connection) -> None:
        self.runs = runs
        self.base = base

    def migrate(self) -> None:
        version = self.base.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise UnusableError(f"it is of a newer hpcadmin (version {version}, this one knows {SCHEMA})")
        if version == SCHEMA:
            return
        with self.writing():
            # Another process may have done it while this one waited.
            version = self.base.execute("PRAGMA user_version").fetchone()[0]
            for number in range(version, SCHEMA):
                for statement in filter(str.strip, MIGRATIONS[number].split(";")):
                    self.base.execute(statement)
                self.base.execute(f"PRAGMA user_version = {number + 1}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing, also where the process is killed in it."""
        self.base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.base.execute("ROLLBACK")
            raise
        self.base.execute("COMMIT")

    def update(self) -> int:
        """Bring it up to date with the folders; how many of them had changed, were new or gone."""
        there = dict(_stamps(self.runs))
        known = dict(self.base.execute("SELECT name, stamp FROM runs"))
        gone = [name for name in known if name not in there]
        rows = [_row(self.runs, name, stamp) for name, stamp in there.items() if known.get(name) != stamp]
        if gone or rows:
            with self.writing():
                self.base.executemany("DELETE FROM runs WHERE name = ?", [(name,) for name in gone])
                self.base.executemany("DELETE FROM sampled WHERE run = ?", [(name,) for name in gone])
                self.base.executemany(f"INSERT OR REPLACE INTO runs ({', '.join(_COLUMNS)}) "  # noqa: S608  (constants)
                                      f"VALUES ({', '.join('?' * len(_COLUMNS))})", rows)
        return len(gone) + len(rows)

    def find(self, wanted: Wanted = Wanted()) -> list[Entry]:
        """The runs that fit, in the order of their names, which begin with their time."""
        where, values = _where(wanted)
        sql = f"SELECT {', '.join(_SHOWN)} FROM runs{where}"  # noqa: S608  (constants; all values are bound)
        cells = self.base.execute(sql, values).fetchall()
        if not all(isinstance(cell, (int, type(None)) if column == "exit_status" else str)
                   for row in cells for column, cell in zip(_SHOWN, row, strict=True)):
            raise DamagedError("it has values of another kind")
        found = [Entry(name, self.runs / name, problem, manifest, suite, state, status, started, ended, cluster,
                       simulated, folded, tuple(tags.split()), baseline)
                 for (name, problem, manifest, suite, state, status, started, ended, cluster, simulated, folded, tags,
                      baseline) in cells]
        return sorted(found, key=lambda entry: _natural(entry.name))

    def kept(self, run: str, check: str, stamp: str) -> bytes | None:
        """What was kept of a run's measurements of a check, as they are now."""
        row = self.base.execute("SELECT samples FROM sampled WHERE run = ? AND check_name = ? AND stamp = ?",
                                (run, _clean(check), stamp)).fetchone()
        return bytes(row[0]) if row else None

    def keep(self, rows: Iterable[tuple[str, str, str, bytes]]) -> None:
        """Keep (run, check, stamp of its measurements, samples)."""
        with self.writing():
            self.base.executemany("INSERT OR REPLACE INTO sampled (run, check_name, stamp, samples) "
                                  "VALUES (?, ?, ?, ?)", [(run, _clean(check), *rest) for run, check, *rest in rows])


def _where(wanted: Wanted) -> tuple[str, list[object]]:
    parts: list[str] = []
    values: list[object] = []
    for condition, value in (("suite GLOB ?", wanted.suite or None), ("state = ?", wanted.state or None),
                             ("started_at >= ?", wanted.since), ("cluster = ?", wanted.cluster),
                             ("instr(' ' || tags || ' ', ' ' || ? || ' ')", wanted.tag or None)):
        if value is not None:
            parts.append(condition)
            values.append(_clean(value) if isinstance(value, str) else value)
    if wanted.baseline:
        parts.append("baseline <> ''")
    if wanted.nodes:
        parts.append(f"({' OR '.join(['instr(nodes, ?)'] * len(wanted.nodes))})")
        values += [f" {_clean(node)} " for node in wanted.nodes]
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values


def file_stamp(path: Path) -> str:
    """Time, size and number of a file, "" where there is none: a file that is replaced has another number."""
    try:
        found = path.lstat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


def _stamps(runs: Path) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(runs) as scan:
            names = [e.name for e in scan if not e.name.startswith(".") and _clean(e.name) == e.name]
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(runs)) from exc
    for name in names:
        stamp = file_stamp(runs / name / "manifest.json")
        if stamp or (_NAME.match(name) and (runs / name).is_dir()):
            yield name, f"{stamp}|{file_stamp(runs / name / MARKS)}"


def _row(runs: Path, name: str, stamp: str) -> tuple[object, ...]:
    path = runs / name / "manifest.json"
    problem, text, marks = "", "", Marks()
    found: Manifest | None = None
    try:
        text = read_whole(path, limit=_MANIFEST_BYTES).decode("utf-8", "replace")
        found = records.loads(Manifest, text, where=str(path))
        marks = read_marks(runs / name)
    except StoreError as exc:
        if found is None:
            problem, text = str(exc), ""
    if found is None:
        return (name, stamp, _clean(problem), "", "", "unreadable", None, "", None, "", "", "", "", "", "", "")
    m = found
    cells = (name, stamp, "", text, m.suite, m.state, m.exit_status, m.started, epoch(m.started), m.ended, m.cluster,
             m.simulated, f" {' '.join(m.nodes)} ", fold(m.nodes), " ".join(marks.tags), marks.baseline)
    return tuple(_clean(cell) if isinstance(cell, str) else cell for cell in cells)


def _clean(text: str) -> str:
    """SQLite takes UTF-8 only, and a name on disk may be none; nor may what JSON calls a text."""
    return text if text.isascii() else _HALF.sub(_told, text)


def _told(half: re.Match[str]) -> str:
    code = ord(half[0])
    return f"\\x{code - 0xdc00:02x}" if 0xdc80 <= code < 0xdd00 else f"\\u{code:04x}"


def epoch(text: str) -> float | None:
    """Seconds since 1970 of an ISO time; one without a zone is of here."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(t), "") if t.isdecimal() and len(t) < 20 else (-1, t) for t in re.split(r"(\d+)", name)]
