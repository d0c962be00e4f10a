"""The look at nodes of which some are busy: together what is free, one by one the others, and nobody for ever."""

from typing import Any, cast

import pytest
from test_run_waves import Run, World, suite_job

from hpcadmin import run_look_many
from hpcadmin.run_look import Seen
from hpcadmin.run_look_many import merged, parts, side_by_side
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import PlannedJob, ToolFound


class Desk:
    def __init__(self, world: World) -> None:
        self.client = world
        self.progress = Progress(quiet=True)
        self.ids: list[int] = []
        self.stop = self
        self.most = 0

    def between(self) -> None:
        return None

    def watch(self, runs: "list[Run]") -> None:
        self.client.watch([])
        self.most = max(self.most, len([r for r in self.client.runs if not r.finished]))

    def end(self, run: Run) -> None:
        assert run.finished


class Look(Run):
    world: World

    def submit(self) -> None:
        self.world.runs.append(self)

    @property
    def waits(self) -> bool:
        return not self.begun and not self.finished


def looks(world: World, *places: "tuple[str, ...]") -> "list[Any]":
    _, tests = suite_job(4)

    def one(number: int, nodes: "tuple[str, ...]") -> Look:
        run = Look(number, PlannedJob(number, "look", nodes), tests)
        run.world = world
        return run
    return [lambda n=n, p=p: one(n, p) for n, p in enumerate(places, 1)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_look_many, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(run_look_many, "SLOWEST_LOOK_S", 0.02)


def test_free_nodes_together_and_the_others_one_by_one() -> None:
    assert parts(["a", "b", "c", "d"], ["c", "b"]) == [("a", "d"), ("b",), ("c",)]
    assert parts(["a"], ["a"]) == [("a",)]
    assert parts(["a", "b"], []) == [("a", "b")]


def test_all_are_looked_at_and_never_too_many_wait() -> None:
    world = World({"n00": 0.0, "n01": 0.1, "n02": 0.2, "n03": 0.3})
    desk = Desk(world)
    runs = side_by_side(cast(Any, desk), looks(world, ("n00",), ("n01",), ("n02",), ("n03",)), most=2, wait_for_s=5.0)
    assert [r.job.nodes for r in runs] == [("n00",), ("n01",), ("n02",), ("n03",)]
    assert not any(r.dropped for r in runs)
    assert desk.most == 2
    assert desk.ids == []


def test_what_is_not_free_in_time_is_withdrawn_or_never_submitted() -> None:
    world = World({"n00": 0.0, "n01": 1e9, "n02": 1e9})
    desk = Desk(world)
    runs = side_by_side(cast(Any, desk), looks(world, ("n00",), ("n01",), ("n02",)), most=1, wait_for_s=0.2)
    assert [r.dropped for r in runs] == [False, True, True]
    assert len(world.runs) == 2
    assert desk.ids == []


def test_several_looks_are_one() -> None:
    tool = ToolFound("osu_bw", ("a",), "/bin/osu_bw")
    other = ToolFound("osu_bw", ("b",), "/bin/osu_bw")
    both = merged([Seen(None, {"p": "/p"}, {}, {}, (tool,)), Seen(None, {}, {}, {"b": "mute"}, (other,))], "now")
    assert both.tools == (ToolFound("osu_bw", ("a", "b"), "/bin/osu_bw"),)
    assert (both.programs, both.silent, both.inventory) == ({"p": "/p"}, {"b": "mute"}, None)
