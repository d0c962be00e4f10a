"""Puts what `install` says into place: only over what is ours, whole or not at all; of others' files a copy stays."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import HpcadminError, StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.health.node import trust
from hpcadmin.health.node.api import BadConfig
from hpcadmin.remote.local import Local
from hpcadmin.sweep import install, install_slurm

MAX_BYTES = 16 * 1024 * 1024
SYSTEMCTL_S = 90.0


@dataclass(frozen=True)
class Change:
    """One file or folder. None is none; kept: it is somebody else's, a copy of it stays."""

    path: Path
    old: str | None
    new: str | None
    mode: int = 0o644
    owner: tuple[int, int] | None = None
    kept: bool = False
    folder: bool = False

    @property
    def what(self) -> str:
        if self.new is None:
            return "remove"
        return "create" if self.old is None else "change"


def account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"there is no user {name}", where="--user") from None


def trusted(path: str, what: str, uid: int) -> None:
    """Raises UsageError where another than root or that user could change what is run every night, or what it obeys."""
    try:
        trust.check(str(Path(path).parent), uid)        # where a link stands, not only what it leads to
        trust.check(path, uid)
    except (BadConfig, OSError) as exc:
        why = f"{path}: {exc.strerror}" if isinstance(exc, OSError) else str(exc)
        raise UsageError(why, where=what, hint="it would be obeyed every night") from exc


def plan_files(root: Path, files: Mapping[str, str | None]) -> list[Change]:
    """What differs from what is there. StoreError for a file in our place that is not ours."""
    found = []
    for name, new in files.items():
        path = below(root, name)
        old = _own_text(path, wanted=new is not None)
        if new != old and (new is not None or old is not None):
            found.append(Change(path, old, new))
    return found


def _own_text(path: Path, *, wanted: bool) -> str | None:
    try:
        seen = path.lstat()
    except FileNotFoundError:
        if wanted and not path.parent.is_dir():
            raise StoreError("no such folder", where=str(path.parent), hint="is what it is for installed?") from None
        return None
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    text = read_bounded(path, limit=MAX_BYTES).decode("utf-8", "surrogateescape") if stat.S_ISREG(seen.st_mode) else ""
    if install.is_ours(text):
        return text
    if wanted:
        raise StoreError("is not of hpcadmin", where=str(path),
                         hint="move it away; a link to /dev/null is a masked unit")
    return None


def plan_folders(root: Path, folders: Mapping[str, int], user: pwd.struct_passwd) -> list[Change]:
    found = []
    for name, mode in folders.items():
        path = below(root, name)
        if path.is_dir():
            if path.stat().st_uid != user.pw_uid:
                raise UsageError(f"belongs to user {path.stat().st_uid}, not to {user.pw_name}", where=str(path),
                                 hint="--user names who runs the sweep")
            continue
        found.append(Change(path, None, "", mode, (user.pw_uid, user.pw_gid), folder=True))
    return found


def plan_slurm(path: Path, wanted: install_slurm.Lines | None, *, replace: bool) -> list[Change]:
    """wanted None: as it was before us. Links are followed, as Slurm does."""
    from hpcadmin.conf_files import read_text  # noqa: PLC0415  (the parsers of Slurm's files, for this alone)
    old = read_text(path)
    if wanted is None:
        new = install_slurm.taken_back(old)
    else:
        edited = install_slurm.edit(old, wanted, lambda name: read_text(Path(name)), str(path.parent), replace=replace)
        if edited.generated:
            raise UsageError("is written by hpcadmin conf render", where=str(path),
                             hint=f'in site.toml: [hooks] health = "{dict(wanted)["HealthCheckProgram"]}"')
        if edited.foreign:
            raise UsageError(f"has {'; '.join(edited.foreign)}", where=str(path), hint="--replace puts another "
                             "HealthCheck line out of use; docs/install-nodes.md: what a prolog of yours calls")
        new = edited.text
    if new == old:
        return []
    real = path.resolve()
    seen = real.stat()
    return [Change(real, old, new, stat.S_IMODE(seen.st_mode), (seen.st_uid, seen.st_gid), kept=True)]


def below(root: Path, name: str) -> Path:
    return root / name.lstrip("/")


def write(changes: Sequence[Change], now: float | None = None) -> list[Path]:
    """All of them, each whole or not at all. The copies that were made of others' files."""
    copies = []
    for change in changes:
        try:
            if change.folder:
                _make(change)
            elif change.new is None:
                change.path.unlink()
            else:
                if change.kept:
                    copies.append(_copy(change, time.time() if now is None else now))
                _replace(change, change.new)
        except OSError as exc:
            raise StoreError(f"cannot be written: {exc.strerror}", where=str(change.path)) from exc
    return copies


def _make(change: Change) -> None:
    change.path.parent.mkdir(parents=True, exist_ok=True)
    change.path.mkdir(mode=change.mode)
    if change.owner is not None and change.owner != (os.geteuid(), os.getegid()):
        os.chown(change.path, *change.owner, follow_symlinks=False)


def _copy(change: Change, now: float) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    target = change.path.with_name(f"{change.path.name}.before-hpcadmin-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = change.path.with_name(f"{change.path.name}.before-hpcadmin-{stamp}-{number}")
    _put(target, read_bounded(change.path, limit=MAX_BYTES), change)
    return target


def _replace(change: Change, text: str) -> None:
    fresh = change.path.with_name(f".{change.path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    try:
        _put(fresh, text.encode("utf-8", "surrogateescape"), change)
        fresh.rename(change.path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _put(path: Path, data: bytes, change: Change) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as stream:
        if change.owner is not None:
            os.fchown(fd, *change.owner)
        os.fchmod(fd, change.mode)
        stream.write(data)
        stream.flush()
        os.fsync(fd)


def has_systemd(root: Path) -> bool:
    return (root / "run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def timers_on(timers: Sequence[str]) -> bool:
    """Whether systemd will start them, as far as it says so. Of several at once it would say yes for one of them."""
    return all(Local().run("", ["systemctl", verb, timer], timeout_s=SYSTEMCTL_S).exit_status == 0
               for timer in timers for verb in ("is-enabled", "is-active"))


def ask_systemd(commands: Sequence[Sequence[str]]) -> None:
    for argv in commands:
        done = Local().run("", list(argv), timeout_s=SYSTEMCTL_S)
        if done.error or done.exit_status != 0:
            said = done.error or next((line for line in done.text.splitlines() if line.strip()), "failed")
            raise SystemdError(f"{' '.join(argv)}: {said}", hint="the files are written; try that by hand")


class SystemdError(HpcadminError):
    """systemd did not take what was written."""

    exit_status = 4
