"""A run as one file, and back: a tar.gz with the hashes of all that is in it, which are checked before it is a run."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from hpcadmin import records
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.run_folder import iso_now
from hpcadmin.run_seal import damage
from hpcadmin.rundata import Manifest, read_run
from hpcadmin.seal import (
    MAX_DEPTH,
    MAX_FILES,
    MAX_SEAL_BYTES,
    SEAL,
    SIGNATURE,
    Seal,
    is_sealed,
    look,
    make_seal,
    parse_seal,
    read_seal,
    verify,
    walk,
)
from hpcadmin.store_marks import MARKS, Marks, read_marks, with_tags

MAX_BYTES = 64 * 1024 ** 3          # of all files together, unpacked
_CHUNK = 1 << 20
_COMING = ".import-"


def export(folder: Path, target: Path, when: str) -> Seal:
    """Write the run as a tar.gz. Its seal goes with it; one that has none gets one in the archive alone."""
    manifest: Manifest = records.loads(Manifest, read_whole(folder / "manifest.json").decode("utf-8", "replace"),
                                       where=str(folder / "manifest.json"))
    if manifest.state == "running":
        raise UsageError(f"run {folder.name} is not over: its files still change")
    if not _is_name(folder.name):
        raise UsageError(f"{folder.name!r} is no name of a run: no import would take it", where=str(folder))
    if is_sealed(folder):
        seal, text = read_seal(folder), read_whole(folder / SEAL, limit=MAX_SEAL_BYTES)
        wrong = verify(seal, look(folder), folder.name)
        if not wrong.sound:
            raise StoreError("is damaged, and not given away as if it were whole", where=str(folder),
                             hint=f"hpcadmin runs verify {folder.name} names the files")
    else:
        if problems := damage(read_run(folder)):
            raise StoreError(f"is damaged, and not given away as if it were whole: {problems[0]}", where=str(folder))
        seal, text = make_seal(folder, manifest.run_id, when)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
            _write(tar, folder, text)
        temporary.rename(target)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(target)) from exc
    return seal


def _write(tar: tarfile.TarFile, folder: Path, seal: bytes) -> None:
    """The seal first: whoever unpacks it knows what must come."""
    _member(tar, f"{folder.name}/{SEAL}", len(seal), io.BytesIO(seal))
    names = [n for n in (SIGNATURE, MARKS) if (folder / n).is_file() and not (folder / n).is_symlink()]
    for path in [*names, *(path for path, odd in walk(folder) if not odd)]:
        fd = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                _member(tar, f"{folder.name}/{path}", found.st_size, stream, found.st_mtime)


def _member(tar: tarfile.TarFile, name: str, size: int, stream: io.BufferedIOBase, mtime: float = 0.0) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, int(mtime), 0o600
    tar.addfile(info, stream)


def take_in(archive: Path, runs: Path) -> tuple[Path, Seal]:
    """Unpack an archive of a run among the runs. Nothing of it is a run before all hashes fit.

    Only regular files of one folder come out of it: no link, device, absolute name or "..", and no more than MAX_BYTES.
    """
    _tidy(runs)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=_COMING, dir=runs))
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(runs)) from exc
    try:
        name, files = _unpack(archive, temporary / "run")
        seal = _checked(temporary / "run", archive, files, name)
        target = runs / name
        if target.exists() or target.is_symlink():
            raise UsageError(f"run {name} is there already", where=str(archive), hint=f"{target}")
        _plain_marks(temporary / "run", archive)
        (temporary / "run").rename(target)
        return target, seal
    except OSError as exc:
        raise StoreError(f"cannot be unpacked: {exc.strerror or exc}", where=str(archive)) from exc
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Member(tarfile.TarInfo):
    """Headers of headers (long names, times) are read into memory whole: a large one is none.

    _proc_member is where tarfile lets a subclass look at each header before what follows it is read; frombuf is not
    called for it by every Python (3.11.2-6+deb12u9)."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and self.size > _CHUNK):
            raise tarfile.ReadError("a header is too large")
        return super()._proc_member(tar)  # type: ignore[misc, no-any-return]


def _tidy(runs: Path) -> None:
    """What imports have left that were killed more than a day ago."""
    for path in runs.glob(f"{_COMING}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > 86400 and not path.is_symlink():
                shutil.rmtree(path)


def _unpack(archive: Path, target: Path) -> tuple[str, set[str]]:
    """The name of the run in it, and of all files."""
    target.mkdir(mode=0o700)
    top, left, files = "", MAX_BYTES, set()
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|gz", tarinfo=_Member) as tar:
            for count, member in enumerate(tar):
                parts = _parts(member, archive)
                top = top or parts[0]
                left -= max(member.size, 0)
                if parts[0] != top or count > MAX_FILES or left < 0:
                    raise _refused(archive, "holds more than one run" if parts[0] != top else "is too large")
                if member.isdir():
                    continue
                stream = tar.extractfile(member)
                assert stream is not None  # noqa: S101  (a regular file)
                _put(target.joinpath(*parts[1:]), stream, member)
                files.add("/".join(parts[1:]))
    except (tarfile.TarError, EOFError, zlib.error, UnicodeError, ValueError, RecursionError) as exc:
        raise StoreError(f"is not a whole tar.gz: {exc}", where=str(archive)) from exc
    return top, files


def _put(path: Path, stream: IO[bytes], member: tarfile.TarInfo) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("xb") as out:                # a name twice is refused
        path.chmod(0o600)
        shutil.copyfileobj(stream, out, _CHUNK)
    mtime = min(max(float(member.mtime), 0.0), 4e9)
    os.utime(path, (mtime, mtime))


def _is_name(folder: str) -> bool:
    """Of a run: no control or direction characters, nothing that a command would take for an option."""
    return folder.isprintable() and not folder.startswith((".", "-", " "))


def _parts(member: tarfile.TarInfo, archive: Path) -> tuple[str, ...]:
    name = member.name
    parts = PurePosixPath(name).parts
    if not (member.isreg() or member.isdir()) or member.sparse is not None:
        raise _refused(archive, f"holds {name[:100]!r}, which is no plain file")
    plain = parts and not name.startswith("/") and ".." not in parts and "\0" not in name
    fits = len(parts) <= MAX_DEPTH + 2 and all(len(os.fsencode(p)) <= 255 for p in parts)
    if not plain or not fits or not _is_name(parts[0]) or (len(parts) < 2 and not member.isdir()):
        raise _refused(archive, f"holds {name[:100]!r}, which lies outside of a run")
    return parts


def _refused(archive: Path, why: str) -> StoreError:
    return StoreError(f"{why}: not taken in", where=str(archive))


def _plain_marks(folder: Path, archive: Path) -> None:
    """Tags come along; what later runs are compared with is said here, and not elsewhere. That it came is said too: its
    scripts are others'."""
    try:
        marks = read_marks(folder)
    except StoreError as exc:
        raise _refused(archive, f"has tags that cannot be read ({exc.what})") from exc
    marks = with_tags(Marks(imported=iso_now()), marks.tags, ())
    write_atomic(folder / MARKS, records.dumps(marks, indent=1) + "\n")


def _checked(folder: Path, archive: Path, files: set[str], name: str) -> Seal:
    try:
        seal = parse_seal(read_whole(folder / SEAL, limit=MAX_SEAL_BYTES), where=f"{archive}: {SEAL}")
    except StoreError as exc:
        of_vendor = {"README.txt", "verdicts.json", SEAL} <= files
        raise _refused(archive, "is what runs vendor made, no run" if of_vendor else
                       f"has no hashes ({exc.what})") from exc
    beside = sorted(files - seal.files.keys() - {SEAL, SIGNATURE, MARKS})
    if beside:
        raise _refused(archive, f"holds {beside[0][:100]!r}, for which there is no hash")
    wrong = verify(seal, look(folder))
    if seal.run_id != name:
        raise _refused(archive, f"holds {name}, and the hashes of {seal.run_id[:100]!r}")
    for what, paths in (("changed", wrong.changed), ("missing", wrong.missing), ("added", wrong.added)):
        if paths:
            raise _refused(archive, f"does not fit its hashes: {what}: {', '.join(paths[:3])}")
    records.loads(Manifest, read_whole(folder / "manifest.json").decode("utf-8", "replace"),
                  where=f"{archive}: manifest.json")
    return seal
