"""Reads the raw outputs that findings rest on: an excerpt of each, and the SHA-256 of its file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hpcadmin.check import Status
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.frames import Frame, scan
from hpcadmin.rundata import Run

_CHUNK = 8 * 1024 * 1024
_MOST_BYTES = 512 * 1024 * 1024        # of one file; more is not looked for excerpts
_LINES, _WIDTH = 12, 160
_PER_FINDING = 3


@dataclass(frozen=True)
class Raw:
    """A file of the run folder. problem: why it could not be read."""

    path: str
    sha256: str = ""
    size: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Excerpt:
    text: str
    status: str


@dataclass(frozen=True)
class Outputs:
    """What was read: files by path, excerpts by reference ("jobs/2/driver.log#t0003")."""

    files: Mapping[str, Raw] = field(default_factory=dict)
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict)


def wanted(run: Run) -> dict[int, tuple[str, ...]]:
    """By the place of a finding: the outputs that it rests on, those of its worst verdicts first."""
    named = {t for f in run.findings for t in f.tests}
    by_test: dict[str, list[str]] = {}
    for v in sorted((v for v in run.verdicts if v.test in named), key=lambda v: -v.status.rank):
        by_test.setdefault(v.test, []).extend(v.outputs)
    rank = {t: i for i, t in enumerate(by_test)}
    of_peers = [v for v in run.verdicts if not v.test and v.status in (Status.FAIL, Status.ERROR)]
    found = {}
    for place, finding in enumerate(run.findings):
        outputs = [o for t in sorted(finding.tests, key=lambda t: rank.get(t, len(rank))) for o in by_test.get(t, ())]
        outputs += [o for v in of_peers if set(v.subject.nodes) <= set(finding.nodes) and v.check in finding.checks
                    for o in v.outputs]                  # what only the peers say is no test, and has outputs
        found[place] = tuple(dict.fromkeys(outputs))[:_PER_FINDING]
    return found


def read_outputs(run: Run, refs: Iterable[str]) -> Outputs:
    """Damaged and missing files are values, with the reason."""
    by_file: dict[str, set[str]] = {}
    for ref in refs:
        path, _, test = ref.partition("#")
        by_file.setdefault(path, set()).add(test)
    files: dict[str, Raw] = {}
    excerpts: dict[str, Excerpt] = {}
    for path, tests in sorted(by_file.items()):
        files[path] = _hash(run, path)
        if not files[path].problem and files[path].size <= _MOST_BYTES:
            for frame in _frames(run.file(path)):
                key = f"{path}#{frame.id}"
                if frame.id in tests and (key not in excerpts or _end(frame) != "exit status 0"):
                    excerpts[key] = Excerpt(_tail(frame), _end(frame))
    return Outputs(files, excerpts)


def safe(path: str) -> bool:
    """Whether it stays in the run folder."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and path.isprintable()


def chunks(file: Path) -> Iterator[bytes]:
    offset = 0
    while data := read_bounded(file, limit=_CHUNK, offset=offset):
        yield data
        offset += len(data)


def _hash(run: Run, path: str) -> Raw:
    if not safe(path):
        return Raw(path, problem="is no path in the run folder")
    digest, size = hashlib.sha256(), 0
    try:
        for data in chunks(run.file(path)):
            digest.update(data)
            size += len(data)
    except StoreError as exc:
        return Raw(path, problem=exc.what)
    return Raw(path, digest.hexdigest(), size)


def _frames(file: Path) -> Iterator[Frame]:
    offset = 0
    while True:
        try:
            data = read_bounded(file, limit=_CHUNK * 9, offset=offset)
        except StoreError:
            return
        found = scan(data, file.name) if data else None
        if found is None:
            return
        yield from found.frames
        offset += found.consumed
        if found.problem or not found.consumed:
            return


def _tail(frame: Frame) -> str:
    text = frame.body[-65536:].decode("utf-8", "replace")
    lines = [line[:_WIDTH] + ("…" if len(line) > _WIDTH else "") for line in text.rstrip().split("\n")]
    return "\n".join((["…"] if len(lines) > _LINES or len(frame.body) > 65536 else []) + lines[-_LINES:])


def _end(frame: Frame) -> str:
    words = [f"exit status {frame.status}" if frame.status is not None else "did not end", *sorted(frame.flags)]
    return ", ".join(words)
