"""The suite's job of a run where other jobs hold some of its nodes: waves, with plan and results kept by the phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.check import Check
from hpcadmin.errors import SlurmError
from hpcadmin.run_job import JobRun
from hpcadmin.run_kept import Ground
from hpcadmin.run_nodes import free_now, nodes_now
from hpcadmin.run_plan import usual_here
from hpcadmin.run_progress import Progress
from hpcadmin.run_rest import next_number
from hpcadmin.run_submit import Desk
from hpcadmin.run_waves import Waves
from hpcadmin.rundata import Plan, PlannedJob, PlannedTest
from hpcadmin.text import plural
from hpcadmin.waves import Schedule, Wave, duration, with_wave

JUST_NOW_S = 60.0       # after nodes have been waited for in vain, nobody else's are waited for once more


@dataclass(frozen=True)
class Keeper:
    """What is needed of a run's phases. remember: the job's outputs may be needed by tests of a later one.

    took: check -> seconds of a test so far.
    """

    desk: Desk
    progress: Progress
    ground: Ground
    plan: Callable[[], Plan]
    tests: Callable[[], Mapping[str, PlannedTest]]
    done: Callable[[], Collection[str]]
    save: Callable[[Plan], None]
    result: Callable[[JobRun, str], None]
    cut_off: Callable[[JobRun], bool]
    remember: Callable[[JobRun], None]
    took: Callable[[], Mapping[str, float]]

    def planned(self, ids: Collection[str]) -> dict[str, PlannedTest]:
        known = self.tests()
        return {i: known[i] for i in ids}


def busy_nodes(desk: Desk, ground: Ground, job: PlannedJob) -> frozenset[str]:
    """Nodes of the job on which nothing can begin now; none where Slurm does not tell."""
    try:
        nodes = nodes_now(desk.client)
    except SlurmError:
        return frozenset()
    return frozenset(job.nodes) - free_now(nodes, set(job.nodes), reserved=reserved(desk, ground))


def reserved(desk: Desk, ground: Ground) -> bool:
    return bool(desk.request.reservation or ground.facts.site.slurm.reservation)


def run_in_waves(keeper: Keeper, job: PlannedJob, checks: Mapping[str, Check],
                 busy: frozenset[str]) -> Mapping[str, str]:
    """All of the job's tests, each once. Returns test -> why it was not run."""
    desk, request = keeper.desk, keeper.desk.request
    tests = keeper.planned([i for stage in job.stages for i in stage.tests])
    facts = keeper.ground.facts
    usual = {**{check.name: check.seconds for check in checks.values()},
             **usual_here(facts.site, facts, len(job.nodes))}
    just_now = time.monotonic() - desk.waited_out < JUST_NOW_S
    others = "the others have been waited for" if just_now else (
        f"waiting up to {duration(request.wait_for_s)} for the others")
    keeper.progress.line(f"{plural(len(busy), 'node')} of {len(job.nodes)} in use: testing those that are free, "
                         f"{others}")
    waves = Waves(Schedule(job, tests, usual, request.max_jobs), desk.client, keeper.progress, _Books(keeper),
                  wait_for_s=request.wait_for_s, reserved=reserved(desk, keeper.ground),
                  free=frozenset(job.nodes) - busy, waited_s=request.wait_for_s + 1.0 if just_now else 0.0)
    missing = waves.go()
    if missing and waves.late:
        desk.waited_out = time.monotonic()
    return missing


class _Books:
    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self._before = frozenset(t.before for t in keeper.plan().tests if t.before)

    def settled(self) -> Collection[str]:
        return self.keeper.done()

    def next_number(self) -> int:
        return next_number(self.keeper.plan(), self.keeper.desk.number)

    def begin(self, wave: Wave) -> JobRun:
        keeper, desk = self.keeper, self.keeper.desk
        keeper.save(with_wave(keeper.plan(), wave, keeper.done()))
        run = desk.make(wave.job, keeper.planned(wave.tests), keeper.ground)
        run.keep = self._before
        run.on_test = lambda test: keeper.result(run, test)
        run.submit()
        assert run.id is not None  # noqa: S101
        desk.ids.append(run.id)
        return run

    def take(self, run: JobRun, test: str) -> None:
        self.keeper.result(run, test)

    def cut_off(self, run: JobRun) -> bool:
        return self.keeper.cut_off(run)

    def watch(self, runs: Sequence[JobRun]) -> bool:
        self.keeper.desk.watch(runs)
        return self.keeper.desk.stop.asked

    def close(self, run: JobRun) -> None:
        desk = self.keeper.desk
        desk.end(run)
        if run.id in desk.ids:
            desk.ids.remove(run.id)
        self.keeper.remember(run)

    def took(self) -> Mapping[str, float]:
        return self.keeper.took()
