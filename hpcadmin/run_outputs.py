"""All outputs that a run's jobs have left, each with what is known of it: what was started, where, when, its end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.check import Check, Step
from hpcadmin.errors import SiteError, StoreError
from hpcadmin.files import read_bounded
from hpcadmin.frames import Frame, scan
from hpcadmin.plan_facts import HARDWARE
from hpcadmin.plan_work import Stepped
from hpcadmin.registry import load_checks
from hpcadmin.run_folder import RunFolder
from hpcadmin.run_job import READ_BYTES
from hpcadmin.run_kept import read_ground, slurm_job
from hpcadmin.rundata import PlannedTest, Run, ToolFound


@dataclass(frozen=True)
class OutputRecord:
    """One output. started, ended: seconds since 1970 by the clock of the host that kept it. status None: it did not end
    by itself. versions: of the tools that its check needs, on these nodes."""

    test: str
    check: str
    subject: str
    attempt: int
    job: int
    slurm_job: int | None
    step: int
    role: str
    node: str
    host: str
    nodes: tuple[str, ...]
    argv: tuple[str, ...]
    status: int | None
    started: float | None
    ended: float | None
    flags: tuple[str, ...]
    size: int
    file: str
    versions: tuple[str, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long it took; None where the clock was set back meanwhile."""
        if self.started is None or self.ended is None or self.ended < self.started:
            return None
        return self.ended - self.started


def outputs(run: Run, problems: list[str], test: str = "", *, checks_dir: str = "",
            ) -> Iterator[tuple[OutputRecord, bytes]]:
    """Those of the plan's tests, in the order of jobs and logs; test: only of this one. What cannot be read is said in
    `problems`. checks_dir: the site's own checks, as the site says it today: the run may come from elsewhere, and no
    code is loaded from where a run says. Of a check that is not known here, commands are not."""
    if run.plan is None:
        return
    checks = known_checks(checks_dir, problems)
    known: Mapping[str, PlannedTest] = {t.id: t for t in run.plan.tests if not test or t.id == test}
    tools: Sequence[ToolFound] = ()
    stepped = known             # what older versions started is in the plan
    try:
        ground = read_ground(run.path)
        stepped, tools = Stepped(known, checks, ground.facts, ground.env), ground.tools
    except StoreError as exc:
        problems.append(str(exc))
    for folder in RunFolder(run.path, run.manifest).jobs():
        number = slurm_job(folder)
        for frame in frames_of(folder, problems):
            if frame.id in known:
                named = known[frame.id].check in checks
                yield _record(frame, (stepped if named else known)[frame.id], number, tools, checks), frame.body


def known_checks(checks_dir: str, problems: list[str]) -> Mapping[str, Check]:
    """The checks that there are here; ours alone where the site's cannot be used."""
    try:
        return load_checks(checks_dir)
    except SiteError as exc:
        problems.append(f"the site's own checks are not known: {exc}")
        return load_checks()


def frames_of(folder: Path, problems: list[str], only: Collection[str] = ()) -> Iterator[Frame]:
    """All outputs in a job's logs. only: in the logs of these nodes, or "driver"."""
    for path in sorted(folder.glob("*.log")):
        if only and path.stem not in only:
            continue
        offset, name = 0, f"jobs/{folder.name}/{path.name}"
        while True:
            try:
                data = read_bounded(path, limit=READ_BYTES, offset=offset)
            except StoreError as exc:
                problems.append(str(exc))
                break
            found = scan(data, name)
            yield from found.frames
            offset += found.consumed
            if found.problem or not found.consumed:
                problems += [f"{name}: {found.problem or 'its last output is cut off'}"] if data else []
                break


def _record(frame: Frame, test: PlannedTest, number: int | None, tools: Sequence[ToolFound],
            checks: Mapping[str, Check]) -> OutputRecord:
    step = test.steps[frame.step] if frame.step < len(test.steps) else Step(())
    check = checks.get(test.check)
    needs = [tool for tool in check.needs if tool not in HARDWARE] if check else []
    versions = tuple(dict.fromkeys(f"{t.tool}: {t.version}" for t in tools if t.tool in needs and t.version
                                   and set(t.nodes) & set(step.nodes or test.subject.nodes)))
    return OutputRecord(
        test=test.id, check=test.check, subject=str(test.subject), attempt=test.attempt, job=test.job,
        slurm_job=number, step=frame.step, role=frame.role, node=frame.node, host=frame.host,
        nodes=step.nodes or test.subject.nodes, argv=step.argv, status=frame.status, started=frame.start,
        ended=frame.end, flags=tuple(sorted(frame.flags)), size=len(frame.body), file=frame.file, versions=versions)
