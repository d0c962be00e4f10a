"""The look at nodes of which some are busy: one job for those that are free, and a small one for each of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hpcadmin.errors import SlurmError
from hpcadmin.hosts import fold
from hpcadmin.inventory import build
from hpcadmin.run_folder import iso_now
from hpcadmin.run_job import (
    FIRST_LOOK_S,
    FIRST_POLL_S,
    SLOWEST_LOOK_S,
    JobRun,
    cancel_given_up,
    poll_all,
    slowest_poll_s,
)
from hpcadmin.run_look import Seen, Wanted, take
from hpcadmin.run_submit import Desk
from hpcadmin.rundata import ToolFound
from hpcadmin.text import plural
from hpcadmin.tools import fold_found
from hpcadmin.waves import duration


def parts(names: Sequence[str], busy: Sequence[str]) -> list[tuple[str, ...]]:
    """Those that are free together, the others each by itself."""
    waiting = set(busy)
    free = tuple(n for n in names if n not in waiting)
    return [part for part in (free, *((n,) for n in names if n in waiting)) if part]


def look_side_by_side(desk: Desk, make: Callable[[Sequence[str], Wanted], JobRun], names: Sequence[str],
                      busy: Sequence[str], *, want: Wanted, known: Sequence[ToolFound]) -> Seen:
    """Look at all these nodes. make: the look job of some of them. Our programs are built by the first."""
    places = parts(names, busy)
    nothing = replace(want, programs={}, sources={})
    wait_for_s, most = desk.request.wait_for_s, desk.request.max_jobs
    desk.progress.line(f"{plural(len(busy), 'node')} of {len(names)} in use: looked at when free, within "
                       f"{duration(wait_for_s)}")
    jobs = [partial(make, nodes, want if place == 0 else nothing) for place, nodes in enumerate(places)]
    runs = side_by_side(desk, jobs, most=most, wait_for_s=wait_for_s)
    seen = merged([take(run, want if place == 0 else nothing, iso_now(), known=known)
                   for place, run in enumerate(runs)], iso_now())
    late = {n: f"not free within {duration(wait_for_s)}" if run.dropped else run.ending
            for run in runs if run.dropped or run.id is None for n in run.job.nodes}
    return replace(seen, silent={**seen.silent, **late})


def side_by_side(desk: Desk, make: Sequence[Callable[[], JobRun]], *, most: int, wait_for_s: float) -> list[JobRun]:
    """Run these jobs, at most so many in the queue at once, each made when it is its turn. Whatever has not begun when
    the time is over is withdrawn, and says so."""
    todo = list(make)
    found: list[JobRun] = []
    begun = time.monotonic()
    end = begun + wait_for_s
    pause, poll = FIRST_LOOK_S, FIRST_POLL_S
    next_poll = time.monotonic() + poll
    while True:
        open_runs = [run for run in found if not run.finished or run.doomed]
        while todo and len(open_runs) < most and (time.monotonic() < end or not found):
            desk.stop.between()
            open_runs.append(_begin(desk, todo.pop(0)()))
            found.append(open_runs[-1])
            begun = time.monotonic()
            poll, next_poll = FIRST_POLL_S, begun + FIRST_POLL_S
        if not open_runs and (not todo or time.monotonic() >= end):
            return [*found, *(_late(one(), wait_for_s) for one in todo)]
        desk.watch(open_runs)
        if time.monotonic() >= next_poll:
            ending = poll_all(open_runs, desk.client, desk.progress)
            most_s = slowest_poll_s(len(open_runs), open_runs[0].id or 0, time.monotonic() - begun)
            poll = FIRST_POLL_S if ending else min(poll * 2, most_s)
            next_poll = time.monotonic() + poll
        for run in open_runs:
            pause = FIRST_LOOK_S if run.look() else pause
            run.late()
            if run.waits and time.monotonic() >= end:
                _late(run, wait_for_s)
                cancel_given_up([run], desk.client, desk.progress)
            if run.finished and not run.doomed:
                desk.end(run)
                if run.id in desk.ids:
                    desk.ids.remove(run.id)
        time.sleep(pause)
        pause = min(pause * 1.2, SLOWEST_LOOK_S)


def _begin(desk: Desk, run: JobRun) -> JobRun:
    run.part = True
    try:
        run.submit()
        assert run.id is not None  # noqa: S101
        desk.ids.append(run.id)
    except SlurmError as exc:
        if not desk.ids and len(run.job.nodes) > 1:
            raise
        run.ending, run.finished = f"was refused: {exc}", True
    return run


def _late(run: JobRun, wait_for_s: float) -> JobRun:
    """Not free in time."""
    run.give_up(f"was withdrawn: {fold(run.job.nodes)} not free within {duration(wait_for_s)}", dropped=True)
    run.dropped, run.finished = True, True
    return run


def merged(seen: Sequence[Seen], created: str) -> Seen:
    """What several looks have found, as if it were one."""
    nodes = [node for one in seen if one.inventory is not None for node in one.inventory.nodes]
    failed = [bad for one in seen if one.inventory is not None for bad in one.inventory.failed]
    first = seen[0]
    captured = any(one.inventory is not None for one in seen)
    return Seen(build(nodes, failed, created) if captured else None, first.programs, first.unbuilt,
                {node: why for one in seen for node, why in one.silent.items()},
                fold_found([tool for one in seen for tool in one.tools]))
