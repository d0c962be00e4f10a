"""The outputs, captures and kernel logs of one node that go to a vendor: regular files only, bounded."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hpcadmin.errors import HpcadminError, StoreError
from hpcadmin.files import read_whole
from hpcadmin.frames import Frame
from hpcadmin.plan_work import Stepped
from hpcadmin.run_folder import RunFolder
from hpcadmin.run_kept import read_ground
from hpcadmin.run_outputs import frames_of, known_checks
from hpcadmin.rundata import Run
from hpcadmin.vendor import Case

MOST_OF_ONE = 1024 * 1024          # of one output; its middle is left out
MOST_OF_ALL = 48 * 1024 * 1024
MOST_FILES = 1000
_KERNEL = ("dmesg", "journalctl")
_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass
class Found:
    """Texts by file name, and what was left out and why."""

    texts: dict[str, str]
    left: list[str]
    size: int = 0

    def add(self, name: str, text: str) -> None:
        if len(self.texts) >= MOST_FILES or self.size >= MOST_OF_ALL:
            self.left.append(f"{name}: the bundle holds {MOST_FILES} outputs or {MOST_OF_ALL >> 20} MiB at most")
            return
        if len(text) > MOST_OF_ONE:
            self.left.append(f"{name}: {len(text) - MOST_OF_ONE} characters of its middle")
            half = MOST_OF_ONE // 2
            text = f"{text[:half]}\n[… {len(text) - MOST_OF_ONE} characters are left out here …]\n{text[-half:]}"
        while name in self.texts:
            name = f"{name.removesuffix('.txt')}+.txt"
        self.texts[name] = text
        self.size += len(text)


def collect(case: Case, *, checks_dir: str = "") -> Found:
    """checks_dir: the site's own checks, as of today; no code is loaded from where a run says."""
    found = Found({}, [])
    argv = _Commands(case.run, case.node, checks_dir)
    # A node's log may speak of that node only: those of most others need not be read.
    pairs = [t.subject.nodes for t in case.tests.values() if len(t.subject.nodes) == 2]
    logs = {"driver", case.node, *(n for pair in pairs for n in pair)}
    for folder in RunFolder(case.run.path, case.run.manifest).jobs():
        problems: list[str] = []
        for frame in frames_of(folder, problems, logs):
            if Path(frame.file).stem not in ("driver", frame.node):
                continue
            kernel = frame.node == case.node and any(tool in word for word in argv(frame)[:3] for tool in _KERNEL)
            if kernel or (frame.id in case.tests and _about(case, frame)):
                kind = "kernel" if kernel else "outputs"
                name = f"{kind}/{frame.id}-{frame.step}-{frame.role}-{_NAME.sub('_', frame.node)}.txt"
                found.add(name, _head(case, frame, argv(frame)) + frame.body.decode("utf-8", "backslashreplace"))
        found.left += problems
    _sources(case, found)
    return found


def _about(case: Case, frame: Frame) -> bool:
    """The node's own outputs; both sides of a pair; of a program over many nodes what it printed as a whole."""
    return frame.node == case.node or frame.role == "ranks" or len(case.tests[frame.id].subject.nodes) == 2


def _head(case: Case, frame: Frame, argv: tuple[str, ...]) -> str:
    test = case.tests.get(frame.id)
    status = "none, it was ended" if frame.status is None else frame.status
    flags = f", {' '.join(sorted(frame.flags))}" if frame.flags else ""
    where = f"{frame.node} (host {frame.host})" if frame.host != frame.node else frame.node
    return (f"# {test.check if test else 'kernel log'}, test {frame.id}, step {frame.step}, {frame.role} on {where}, "
            f"exit status {status}{flags}, {_time(frame.start)} to {_time(frame.end)}\n"
            + (f"# {' '.join(argv)}\n" if argv else ""))


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


class _Commands:
    """What each output was the output of, where the run still says so; () else."""

    def __init__(self, run: Run, node: str, checks_dir: str) -> None:
        self._tests: Mapping[str, object] = {}
        try:
            ground = read_ground(run.path)
        except HpcadminError:
            return
        checks = known_checks(checks_dir, [])
        known = {t.id: t for t in (run.plan.tests if run.plan else ()) if t.check in checks and node in t.subject.nodes}
        self._stepped = Stepped(known, checks, ground.facts, ground.env)
        self._tests = known

    def __call__(self, frame: Frame) -> tuple[str, ...]:
        if frame.id not in self._tests:
            return ()
        try:
            steps = self._stepped[frame.id].steps
        except HpcadminError:
            return ()
        return steps[frame.step].argv if frame.step < len(steps) else ()


def _sources(case: Case, found: Found) -> None:
    """Texts that the inventory was read from, where they are of this node alone and still what they were."""
    if case.facts is None or case.run.inventory is None:
        return
    others = {s.path for n in case.run.inventory.nodes if n.name != case.node for s in n.sources}
    for source in case.facts.sources:
        if source.path in others:
            found.left.append(f"{Path(source.path).name}: tells of other nodes too")
            continue
        try:
            raw = read_whole(Path(source.path), limit=MOST_OF_ALL)
        except StoreError as exc:
            found.left.append(f"{Path(source.path).name}: {exc}")
            continue
        if source.sha256 != hashlib.sha256(raw).hexdigest():
            found.left.append(f"{Path(source.path).name}: is not what the run's inventory was read from any more")
            continue
        kind = "kernel" if "dmesg" in source.kinds else "captures"
        found.add(f"{kind}/{_NAME.sub('_', Path(source.path).name)}", raw.decode("utf-8", "backslashreplace"))


def every_name(run: Run) -> Iterator[str]:
    """All names of machines that the run knows, for whoever hides them."""
    m = run.manifest
    yield from (*m.nodes, m.host, m.cluster)
    for node in run.inventory.nodes if run.inventory else ():
        yield from (node.name, node.hostname, *(neighbour for _, neighbour, _ in node.neighbours))
    yield from (run.plan.leaves.values() if run.plan else ())
    yield from (n for t in (run.plan.tests if run.plan else ()) for n in t.subject.nodes)
