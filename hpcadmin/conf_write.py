"""Configuration files into a folder: all of them or none, and what was there is kept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded

# What conf render can write; of these, an old one of ours that is no longer written is taken away.
OURS = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "topology.yaml", "acct_gather.conf",
        "job_container.conf", "namespace.yaml", "slurmdbd.conf")
_HEAD = re.compile(rb"# \S+ of cluster [^\n]*Written by hpcadmin conf render\.\n")
MAX_BYTES = 64 * 1024 * 1024
MODE, SECRET_MODE = 0o644, 0o600
MANIFEST, UNFINISHED = "MANIFEST.json", "UNFINISHED"


@dataclass(frozen=True)
class Change:
    """One file: what is there and what it is to be; None is no file."""

    name: str
    old: bytes | None
    new: bytes | None


@dataclass(frozen=True)
class Plan:
    """What writing would do to a folder. foreign: files that are not ours, stay, and that Slurm would read."""

    folder: Path
    changes: tuple[Change, ...]
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """names: what changed. backup: where the files that were there lie now."""

    names: tuple[str, ...]
    backup: Path | None = None
    restored: tuple[str, ...] = ()       # of an earlier write that had been cut off


def plan(folder: Path, files: Mapping[str, str], *, stale: bool = True) -> Plan:
    """What would change. Raises StoreError for what stands in the way: links, folders, files that cannot be read."""
    changes, foreign = [], []
    for name in sorted({*files, *OURS}):
        old = _read(folder / name, wanted=name in files)
        new = files[name].encode("utf-8", "surrogateescape") if name in files else None
        if new is None and old is not None and not (stale and _HEAD.match(old)):
            foreign.append(name)
        elif old != new:
            changes.append(Change(name, old, new))
    return Plan(folder, tuple(changes), tuple(foreign))


def _read(path: Path, *, wanted: bool) -> bytes | None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    if stat.S_ISREG(kind):
        return read_bounded(path, limit=MAX_BYTES)
    if not wanted:
        return b""
    what = f"is a link to {path.readlink()}" if stat.S_ISLNK(kind) else "is no regular file"
    raise StoreError(what, where=str(path), hint="write to the folder in which the file is, or take the link away")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else writes with this program into the folder meanwhile. Raises StoreError where somebody does."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot be opened: {exc.strerror}", where=str(folder)) from exc
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN):
                raise StoreError("another hpcadmin writes there at this moment", where=str(folder),
                                 hint="wait for it") from exc
            # Some network file systems lock no folders: there the last one wins, file by file.
        yield
    finally:
        os.close(fd)


def write(planned: Plan, *, secret: Sequence[str] = (), owner: str = "", program: str = "hpcadmin") -> Written:
    """Does what was planned, all of it or nothing. Raises StoreError, also where the folder is no longer as planned.

    secret: names of files that only their owner may read. owner: the user whom new secret files belong to, where this
    runs as root.
    """
    folder = planned.folder
    _make(folder)
    with locked(folder):
        restored = recover(folder)
        if restored:
            raise StoreError(f"an earlier write was cut off; what was there before is back: {', '.join(restored)}",
                             where=str(folder), hint="do it again")
        for change in planned.changes:
            if _read(folder / change.name, wanted=change.new is not None) != change.old:
                raise StoreError("has changed meanwhile", where=str(folder / change.name), hint="do it again")
        if not planned.changes:
            return Written(())
        staged: dict[str, Path] = {}
        backup: Path | None = None
        try:
            for change in planned.changes:
                if change.new is not None:
                    staged[change.name] = _stage(folder, change, secret=change.name in secret, owner=owner)
            backup = _keep(folder, planned.changes, program)
            _commit(folder, planned.changes, staged, backup)
        except BaseException as exc:
            for path in staged.values():
                path.unlink(missing_ok=True)
            if backup is not None and (backup / UNFINISHED).exists():
                shutil.rmtree(backup, ignore_errors=True)
            if isinstance(exc, OSError):
                raise StoreError(f"cannot be written: {exc.strerror}; nothing was changed", where=str(folder)) from exc
            raise
    return Written(tuple(change.name for change in planned.changes), backup)


def may_write(folder: Path, changes: Sequence[Change]) -> None:
    """Raises StoreError where `write` could not, as far as that can be known without writing: said before anybody is
    asked."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        # Root on a file system that is read-only, too.
        raise StoreError("cannot be written: no permission, or a read-only file system; nothing was changed",
                         where=str(folder), hint="run it as root" if os.geteuid() else None)
    for change in changes:
        with contextlib.suppress(FileNotFoundError):
            owner = (folder / change.name).lstat()
            if os.geteuid() not in (0, owner.st_uid):
                raise StoreError(f"belongs to {_user(owner.st_uid)}:{_group(owner.st_gid)} and must stay so",
                                 where=str(folder / change.name), hint="run it as root")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"cannot be created: {exc.strerror}", where=str(folder)) from exc


def _stage(folder: Path, change: Change, *, secret: bool, owner: str) -> Path:
    """The new file under another name, with the owner and mode that it will have."""
    path, target = folder / f".{change.name}.hpcadmin-{os.getpid()}", folder / change.name
    mode, uid, gid = SECRET_MODE if secret else MODE, -1, -1
    with contextlib.suppress(FileNotFoundError):
        found = target.lstat()
        mode, uid, gid = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
        if secret and mode not in (0o600, 0o640, 0o400):
            mode = SECRET_MODE
    if uid < 0 and secret and owner and os.geteuid() == 0:
        uid, gid = _account(owner)
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, SECRET_MODE)
    try:
        with os.fdopen(fd, "wb") as stream:
            if uid >= 0 and (uid, gid) != (os.geteuid(), os.getegid()):
                _own(fd, path, uid, gid)
            os.fchmod(fd, mode)
            _labels(target, path)
            stream.write(change.new or b"")
            stream.flush()
            os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _own(fd: int, path: Path, uid: int, gid: int) -> None:
    try:
        os.fchown(fd, uid, gid)
    except PermissionError as exc:
        raise StoreError(f"belongs to {_user(uid)}:{_group(gid)} and must stay so", where=str(path.parent),
                         hint="run it as root") from exc


def _labels(source: Path, target: Path) -> None:
    """Security labels and access lists of the file that is replaced, where there are any."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _account(name: str) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise StoreError(f"user {name} is not known here, and slurmdbd.conf must belong to SlurmUser",
                         where="slurmdbd.conf", hint="install it on the host where slurmdbd runs") from None
    return found.pw_uid, found.pw_gid


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _keep(folder: Path, changes: Sequence[Change], program: str) -> Path | None:
    """A folder with the files that will be replaced and what each was; None where there are none.

    They are linked, not copied: putting them back needs no room on a full disk.
    """
    if all(change.old is None for change in changes):
        return None
    backup = _backup_folder(folder)
    try:
        about = {}
        for change in changes:
            source = folder / change.name
            about[change.name] = {"was": _sum(change.old), "is": _sum(change.new)}
            if change.old is None:
                continue
            found = source.stat()
            about[change.name] |= {"mode": oct(stat.S_IMODE(found.st_mode)), "owner": _user(found.st_uid),
                                   "group": _group(found.st_gid)}
            try:
                os.link(source, backup / change.name, follow_symlinks=False)
            except OSError:
                shutil.copy2(source, backup / change.name, follow_symlinks=False)
                os.chown(backup / change.name, found.st_uid, found.st_gid)
        _put(backup / MANIFEST, json.dumps({"program": program, "time": int(time.time()), "files": about}, indent=2))
        _put(backup / UNFINISHED, "")
    except BaseException:
        shutil.rmtree(backup, ignore_errors=True)
        raise
    return backup


def _backup_folder(folder: Path) -> Path:
    """A new one, named after the time; never one that is there."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, 1000):
        backup = folder / (f".old-{stamp}" if number == 1 else f".old-{stamp}-{number}")
        try:
            backup.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return backup
    raise StoreError("has a thousand backups of this second", where=str(folder))


def _put(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _sum(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Signals are raised when it is done. Blocking them is not enough: another thread of the process can take them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number))
              for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)


def _commit(folder: Path, changes: Sequence[Change], staged: Mapping[str, Path], backup: Path | None) -> None:
    """Every file to its name; what was there comes back if one cannot. Signals wait until it is done."""
    done: list[Change] = []
    with _signals_wait():
        try:
            for change in changes:
                if change.new is None:
                    (folder / change.name).unlink()
                else:
                    staged[change.name].rename(folder / change.name)
                done.append(change)
            _sync(folder)
        except OSError:
            for change in reversed(done):
                _back(folder, change.name, backup if change.old is not None else None)
            raise
        if backup is not None:
            (backup / UNFINISHED).unlink()


def _back(folder: Path, name: str, backup: Path | None) -> None:
    """The file as it was: linked beside and renamed, which needs no room."""
    if backup is None:
        (folder / name).unlink(missing_ok=True)
        return
    beside = folder / f".{name}.hpcadmin-back"
    beside.unlink(missing_ok=True)
    try:
        os.link(backup / name, beside)
    except OSError:
        shutil.copy2(backup / name, beside)
    beside.rename(folder / name)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):       # not every file system can
            os.fsync(fd)
    finally:
        os.close(fd)


def tidy(folder: Path) -> tuple[str, ...]:
    """`recover`, where there is such a folder."""
    if not folder.is_dir():
        return ()
    with locked(folder):
        return recover(folder)


def _unfinished(backup: Path) -> bool:
    try:
        return not backup.is_symlink() and stat.S_ISREG((backup / UNFINISHED).lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise StoreError(f"cannot be looked into, so whether an earlier write was cut off is not known: {exc.strerror}",
                         where=str(backup), hint="run it as root") from exc


def recover(folder: Path) -> tuple[str, ...]:
    """Puts back what a write that was killed had begun to replace. The names; call it with the lock held."""
    back: list[str] = []
    for backup in sorted(folder.glob(".old-*"), reverse=True):
        if not _unfinished(backup):
            continue
        try:
            about = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))["files"]
            for name, item in about.items():
                if name not in OURS or not isinstance(item, dict):
                    continue
                now = _sum(_read(folder / name, wanted=False))
                if now == item.get("is") and now != item.get("was"):
                    _back(folder, name, backup if item.get("was") is not None else None)
                    back.append(name)
            (backup / UNFINISHED).unlink()
            shutil.rmtree(backup, ignore_errors=True)
        except (OSError, ValueError, KeyError, AttributeError) as exc:
            raise StoreError("an earlier write was cut off and cannot be put back", where=str(backup),
                             hint=f"compare with {folder} yourself, then remove {backup / UNFINISHED}") from exc
    for left in folder.glob(".*.hpcadmin-*"):
        with contextlib.suppress(OSError):
            left.unlink()
    return tuple(dict.fromkeys(back))
