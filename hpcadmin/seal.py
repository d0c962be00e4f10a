"""The seal of a run folder: the SHA-256 of every file in it, as a text that `sha256sum -c` reads as well.

A seal by itself shows damage, not tampering: whoever changes a file can write a new one. Its signature (seal_sign)
shows both. Links are never followed, and only files that a walk through the folder finds are opened: what is written
in a seal is never used as a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.text import printable

SEAL = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
SEAL_VERSION = 1
MAX_FILES = 500_000
MAX_DEPTH = 16
MAX_SEAL_BYTES = 256 * 1024 * 1024
_CHUNK = 1 << 20
# What changes after a run's end without a change of what was measured.
_LIVING = frozenset({SEAL, SIGNATURE, "lock", "cancel", "validate.log", "marks.json"})
_MADE = re.compile(r"(?:report|handover|vendor)(?:[.-].*)?", re.DOTALL)     # from the run, at any time
# Any of these half written: whoever wrote it was killed.
_HALF = re.compile(r"\.(?:SHA256SUMS(?:\.sig)?|marks\.json|(?:report|handover|vendor)(?:[.-].*)?)\.\d+\.tmp", re.DOTALL)
# What Slurm's own daemons write around a job, also when it is long over; no value is read from it.
_AROUND = re.compile(r"jobs/\d+/(?:slurm|srun)\.out")
_LINE = re.compile(rb"(\\?)([0-9a-f]{64})  (.+)", re.DOTALL)
# What is no file and stays as it is: how a seal says it.
_ODD = {"is a link": b"link", "is not a regular file": b"special", "is nested too deeply": b"deep"}
_ODD_LINE = re.compile(rb"# odd (link|special|deep)  (.+)", re.DOTALL)
_PROBLEM = b"# problem "
_HEAD = re.compile(rb"# (hpcadmin seal|run|sealed) (.{1,4096})", re.DOTALL)


@dataclass(frozen=True)
class Seal:
    """files: path -> SHA-256 in hex. digest: of the seal's own text, which a signature and a sign-off stand for. odd:
    links and the like that lay there, each with what it is; nobody reads them, and they may go. problems: what was
    known to be missing or damaged when it was sealed all the same."""

    run_id: str
    sealed: str
    files: Mapping[str, str]
    digest: str = ""
    odd: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What lies in a folder. odd: links, devices, pipes, and what cannot be read, each with what it is. made: reports,
    which are no part of a seal."""

    files: Mapping[str, str]
    odd: Mapping[str, str] = field(default_factory=dict)
    made: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """What is not as it was sealed, paths in order. other: the run that the seal is of, where the folder is called
    otherwise."""

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()           # "jobs/1/x is a link"
    other: str = ""

    @property
    def sound(self) -> bool:
        return not (self.changed or self.missing or self.added or self.odd or self.other)


def is_sealed(folder: Path) -> bool:
    return (folder / SEAL).exists() or (folder / SEAL).is_symlink()


def make_seal(folder: Path, run_id: str, when: str, problems: Sequence[str] = ()) -> tuple[Seal, bytes]:
    """The seal of what lies in the folder now, and its text. StoreError names what cannot be sealed."""
    found = look(folder)
    for path, what in found.odd.items():
        if what not in _ODD:
            raise StoreError(f"{what}: a run with such a file cannot be sealed", where=str(folder / path))
    seal = Seal(run_id, when, found.files, "", found.odd, tuple(printable(p, limit=1000) for p in problems))
    text = seal_text(seal)
    return replace(seal, digest=hashlib.sha256(text).hexdigest()), text


def write_seal(folder: Path, run_id: str, when: str, problems: Sequence[str] = ()) -> Seal:
    """Seal the folder anew; a signature of an earlier seal goes, as it is none of this one."""
    seal, text = make_seal(folder, run_id, when, problems)
    try:
        (folder / SIGNATURE).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"cannot be removed: {exc.strerror}", where=str(folder / SIGNATURE)) from exc
    write_atomic(folder / SEAL, text)
    return seal


def read_seal(folder: Path) -> Seal:
    """The seal of a folder. UsageError where it has none, StoreError where its text is not whole."""
    if not is_sealed(folder):
        raise UsageError(f"run {folder.name} is not sealed", hint=f"hpcadmin runs seal {folder.name} does it: from "
                         "then on damage is seen")
    return parse_seal(read_whole(folder / SEAL, limit=MAX_SEAL_BYTES), where=str(folder / SEAL))


def verify(seal: Seal, found: Found, name: str = "") -> Difference:
    """name: of the folder, where it is to be that of the run which was sealed: a good run in the place of a bad one is
    no damage to any file."""
    return Difference(
        other=seal.run_id if name and name != seal.run_id else "",
        changed=tuple(sorted(p for p, digest in found.files.items() if seal.files.get(p, digest) != digest)),
        missing=tuple(sorted(p for p in seal.files if p not in found.files and p not in found.odd)),
        added=tuple(sorted(p for p in found.files if p not in seal.files)),
        odd=tuple(f"{p} {what}" for p, what in sorted(found.odd.items()) if seal.odd.get(p) != what))


# --- the text -----------------------------------------------------------------------------------------------------


def seal_text(seal: Seal) -> bytes:
    head = [f"# hpcadmin seal {SEAL_VERSION}", f"# run {seal.run_id}", f"# sealed {seal.sealed}"]
    lines = [line.encode("utf-8", "surrogateescape") for line in head]
    lines += [f"# problem {text}".encode("utf-8", "backslashreplace") for text in seal.problems]
    lines += [b"# odd " + _ODD[what] + b"  " + _escaped(path) for path, what in sorted(seal.odd.items())]
    lines += [_line(path, digest) for path, digest in sorted(seal.files.items())]
    return b"\n".join(lines) + b"\n"


def _line(path: str, digest: str) -> bytes:
    """As sha256sum writes it: a name with a line end or a backslash is escaped, and the line begins with one."""
    safe = _escaped(path)
    return (b"\\" if safe != os.fsencode(path) else b"") + digest.encode() + b"  " + safe


def _escaped(path: str) -> bytes:
    return os.fsencode(path).replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def parse_seal(text: bytes, *, where: str = SEAL) -> Seal:
    """Strict: a line that does not fit, a name twice or a missing end is a StoreError with its line."""
    if not text.endswith(b"\n"):
        raise StoreError("is cut off: its last line has no end", where=where)
    head: dict[bytes, str] = {}
    files: dict[str, str] = {}
    odd: dict[str, str] = {}
    problems: list[str] = []
    kinds = {word: what for what, word in _ODD.items()}
    for number, line in enumerate(text[:-1].split(b"\n"), 1):
        if match := _HEAD.fullmatch(line) if number <= 3 else None:
            head[match[1]] = match[2].decode("utf-8", "surrogateescape")
            continue
        if line.startswith(_PROBLEM):
            problems.append(line[len(_PROBLEM):].decode("utf-8", "replace"))
            continue
        if match := _ODD_LINE.fullmatch(line):
            odd[_path(match[2], escaped=True) or ""] = kinds[match[1]]
            continue
        match = _LINE.fullmatch(line)
        path = _path(match[3], escaped=bool(match[1])) if match else None
        if match is None or path is None or path in files:
            raise StoreError("is not a line of a seal" if path not in files else "names a file twice",
                             where=f"{where}:{number}")
        files[path] = match[2].decode()
    if head.get(b"hpcadmin seal") != str(SEAL_VERSION) or len(head) != 3 or "" in odd:
        raise StoreError(f"is not a seal of version {SEAL_VERSION}, which this hpcadmin reads", where=where)
    return Seal(head[b"run"], head[b"sealed"], files, hashlib.sha256(text).hexdigest(), odd, tuple(problems))


def _path(raw: bytes, *, escaped: bool) -> str | None:
    if escaped:
        if re.fullmatch(rb"(?:[^\\]|\\[\\nr])+", raw, re.DOTALL) is None:
            return None
        raw = re.sub(rb"\\(.)", lambda m: {b"n": b"\n", b"r": b"\r"}.get(m[1], m[1]), raw)
    return os.fsdecode(raw)


# --- the folder ---------------------------------------------------------------------------------------------------


def look(folder: Path) -> Found:
    """The hash of every file that a seal is about."""
    files: dict[str, str] = {}
    odd: dict[str, str] = {}
    made: list[str] = []
    for count, (path, entry_odd) in enumerate(walk(folder, made=made)):
        if count >= MAX_FILES:
            raise StoreError(f"has more than {MAX_FILES} files", where=str(folder))
        if entry_odd:
            odd[path] = entry_odd
            continue
        try:
            files[path] = file_digest(folder / path)
        except StoreError as exc:
            odd[path] = exc.what
    return Found(files, odd, tuple(sorted(made)))


def walk(folder: Path, *, made: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """(path, "") of each regular file, (path, what it is) of all else but folders; sorted. made: gets the reports."""
    yield from _walk(folder, "", 0, made if made is not None else [])


def _walk(folder: Path, prefix: str, depth: int, made: list[str]) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda e: e.name)
    except OSError as exc:
        if not prefix:
            raise StoreError(f"cannot be read: {exc.strerror}", where=str(folder)) from exc
        yield prefix.rstrip("/"), f"cannot be read: {exc.strerror}"
        return
    for entry in entries:
        path = prefix + entry.name
        if _AROUND.fullmatch(path) or (not prefix and entry.name in _LIVING):
            continue
        if not prefix and (_MADE.fullmatch(entry.name) or _HALF.fullmatch(entry.name)):
            made.append(entry.name)
            continue
        kind = _kind(entry)
        if kind == "folder" and depth < MAX_DEPTH:
            yield from _walk(folder / entry.name, f"{path}/", depth + 1, made)
        else:
            yield path, {"file": "", "folder": "is nested too deeply"}.get(kind, kind)


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    if stat.S_ISLNK(mode):
        return "is a link"
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "is not a regular file"


def file_digest(path: Path) -> str:
    """SHA-256 of a regular file, a piece at a time. StoreError where it is none, or changes meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise StoreError("is not a regular file", where=str(path))
        digest, left = hashlib.sha256(), before.st_size + 1      # one more: a file that grows has no end
        while left > 0 and (piece := os.read(fd, min(_CHUNK, left))):
            digest.update(piece)
            left -= len(piece)
        if left != 1 or os.fstat(fd).st_mtime_ns != before.st_mtime_ns:
            raise StoreError("changes while it is read", where=str(path))
        return digest.hexdigest()
    except OSError as exc:
        raise StoreError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    finally:
        os.close(fd)
