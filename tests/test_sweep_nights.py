"""The tests of a night with stand-ins: which nodes and pairs, what drained nodes are tested again, killed at each
point, what is told of the testing itself and of trends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from history_models import condition, node
from sweep_models import NIGHT, FakeNodes, KilledError, Ledger, no_answer

from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.errors import SlurmError, StoreError
from hpcadmin.history import Change
from hpcadmin.history_trend import Drift
from hpcadmin.run_session import Request
from hpcadmin.rundata import Manifest, Run
from hpcadmin.site import Site
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.client import Partition, SlurmNode
from hpcadmin.store_marks import read_marks
from hpcadmin.sweep import sources
from hpcadmin.sweep.faults import policy_of
from hpcadmin.sweep.guard import Guard, Retest, open_guards, to_retest
from hpcadmin.sweep.model import Act, Entry, Kind
from hpcadmin.sweep.night import Diary
from hpcadmin.sweep.nightly import NightLooks, Nightly, Ran
from hpcadmin.sweep.rotate import rotation
from hpcadmin.sweep.sources import Said, gather
from hpcadmin.sweep.trend import Trend, baseline_problem, drift_problem

REASON = "hpcadmin: wire: bad with n2, n3 [s1]"
NAMES = ["n1", "n2", "n3", "n4"]


@dataclass
class Reserving(FakeNodes):
    """Nodes that can be reserved."""

    reservations: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def reserve(self, name: str, nodes: Sequence[str], user: str, minutes: int) -> None:
        self.at("reserve")
        self.reservations[name] = tuple(nodes)
        self.at("after reserve")

    def unreserve(self, name: str) -> None:
        self.at("unreserve")
        self.reservations.pop(name, None)
        self.at("after unreserve")

    def reserved(self, name: str) -> bool:
        self.at("reserved")
        return name in self.reservations

    def shut(self, name: str) -> bool:
        """No user's job can begin there."""
        return "DRAIN" in self.nodes[name].state.flags or any(name in of for of in self.reservations.values())


def drained(check: str = "test/wire", partners: tuple[str, ...] = ("n2", "n3")) -> list[Entry]:
    return [Entry("intent", NIGHT, "s1", 1, "s1/1", "n1", "drain", (check,), ("network",), {check: partners}, REASON),
            Entry("outcome", NIGHT, "s1", id="s1/1", node="n1", act="drain", result="done")]


def cluster() -> Reserving:
    nodes = Reserving(FakeNodes.of(*NAMES).nodes)
    nodes.drain("n1", REASON)
    return nodes


def again(nodes: Reserving, entries: list[Entry], idle: Sequence[str] = ("n2", "n3", "n4")) -> Retest | None:
    return to_retest(Diary(entries, None).history(), nodes.all_nodes(), idle)


# --- which drained nodes are tested again ---------------------------------------------------------------------------

def test_a_drained_node_is_tested_with_its_idle_partners() -> None:
    found = again(cluster(), drained(), ["n3", "n4"])
    assert found == Retest({"n1": REASON}, ("wire",), (("n1", "n3"),))
    assert found.nodes == ("n1", "n3")
    alone = again(cluster(), drained(partners=()))
    assert alone is not None
    assert (alone.nodes, alone.pairs) == (("n1",), ())


@pytest.mark.parametrize("change", [
    lambda nodes: nodes.set("n1", reason="Anna: mine"), lambda nodes: nodes.set("n1", "IDLE"),
    lambda nodes: nodes.set("n1", "MIXED+DRAIN"), lambda nodes: nodes.set("n1", "IDLE+DRAIN+NOT_RESPONDING"),
    lambda nodes: nodes.set("n1", "DOWN+DRAIN"), lambda nodes: nodes.set("n1", "IDLE+DRAIN+MAINT"),
    lambda nodes: nodes.set("n1", reservation="Annas"), lambda nodes: nodes.nodes.pop("n1")])
def test_what_is_not_as_we_left_it_is_not_tested(change: Callable[[Reserving], None]) -> None:
    nodes = cluster()
    change(nodes)
    assert again(nodes, drained()) is None


def test_faults_of_health_are_not_tested_and_nobody_without_a_partner() -> None:
    assert again(cluster(), drained("health/mount", ())) is None
    assert again(cluster(), drained(), ["n4"]) is None


# --- held, and always put back --------------------------------------------------------------------------------------

def guard(nodes: Reserving, diary: Diary) -> Guard:
    return Guard(nodes, diary, "root", clock=lambda: NIGHT, sleep=lambda seconds: nodes.settle())


def test_held_and_put_back() -> None:
    nodes, diary = cluster(), Diary(drained(), None)
    retest = again(nodes, drained())
    assert retest is not None
    with guard(nodes, diary).held(retest, "s2") as name:
        assert nodes.reservations == {name: ("n1", "n2", "n3")}
        assert nodes.nodes["n1"].state.flags == frozenset()
    assert (nodes.reservations, nodes.nodes["n1"].reason) == ({}, REASON)
    assert "DRAIN" in nodes.nodes["n1"].state.flags
    assert open_guards(diary.entries) == []


POINTS = ["write guard", "written guard", "reserve", "after reserve", "undrain n1", "after undrain n1", "tests",
          "drain n1", "after drain n1", "unreserve", "after unreserve"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("time", [1, 2])
def test_killed_at_each_point_it_stays_shut_and_the_next_sweep_puts_it_right(point: str, time: int) -> None:
    nodes, book = cluster(), Ledger()
    diary = Diary(drained(), book)
    retest = again(nodes, drained())
    assert retest is not None
    seen: list[str] = []
    dead: list[bool] = []

    def at(what: str) -> None:
        seen.append(what)
        assert nodes.shut("n1"), f"open to users at {what}"
        if dead or (what == point and seen.count(point) == time):
            dead.append(True)
            raise KilledError
    nodes.at = book.at = at
    killed = False
    try:
        with guard(nodes, diary).held(retest, "s2"):
            at("tests")
    except KilledError:
        killed = True
    assert nodes.shut("n1")
    assert killed or time == 2
    nodes.at = book.at = lambda what: None
    nodes.settle()
    later = Diary([*drained(), *book.entries], Ledger())
    guard(nodes, later).put_right()
    assert (nodes.reservations, nodes.nodes["n1"].reason) == ({}, REASON)
    assert "DRAIN" in nodes.nodes["n1"].state.flags
    assert open_guards(later.entries) == []


def test_what_somebody_has_released_meanwhile_is_theirs() -> None:
    nodes = cluster()
    nodes.undrain("n1")
    diary = Diary([*drained(), Entry("guard", NIGHT, "s2", id="hpcadmin_s2", act="open", checks=("n1",), text="n1 n2")],
                  None)
    guard(nodes, diary).put_right()
    assert "DRAIN" not in nodes.nodes["n1"].state.flags
    assert open_guards(diary.entries) == []


def test_a_node_that_another_took_over_keeps_its_reason() -> None:
    nodes, diary = cluster(), Diary(drained(), None)
    retest = again(nodes, drained())
    assert retest is not None
    with guard(nodes, diary).held(retest, "s2"):
        nodes.drain("n1", "Anna: burning")
    assert (nodes.nodes["n1"].reason, nodes.reservations) == ("Anna: burning", {})


# --- the night ------------------------------------------------------------------------------------------------------

@dataclass
class Slurm:
    states: dict[str, str]

    def nodes(self) -> tuple[SlurmNode, ...]:
        from hpcadmin.slurm.states import node_state
        return tuple(SlurmNode(name, node_state(state), partitions=("p",)) for name, state in self.states.items())

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition("p", "UP", default=True),)


@dataclass
class Night:
    """The tests of one night; asked: the requests."""

    folder: Path
    nodes: Reserving
    states: dict[str, str]
    policy: SweepSite = field(default_factory=lambda: SweepSite(suite="nightly", qos="low", suite_minutes=7))
    asked: list[Request] = field(default_factory=list)
    fails: str = ""
    status: int = 0
    full: bool = False

    def validate(self, request: Request) -> tuple[Path, int]:
        if self.full:
            raise StoreError("cannot be written: No space left on device", where="run")
        if self.fails:
            raise SlurmError(self.fails)
        self.asked.append(request)
        self.nodes.settle()
        path = self.folder / f"run{len(self.asked)}"
        path.mkdir()
        return path, self.status

    def go(self, diary: Diary, night: int = 700_000) -> Ran:
        slurm = Slurm(self.states)
        made = Nightly(Site(sweep=self.policy), lambda: slurm, self.nodes, self.validate, "root",   # type: ignore[arg-type, return-value]
                       lambda seconds: self.nodes.settle(), 1000)
        return made.go(diary, "s9", night, NIGHT)


IDLE = dict.fromkeys(NAMES, "IDLE")


def test_idle_nodes_and_the_pairs_of_the_night(tmp_path: Path) -> None:
    night = Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), IDLE)
    found = night.go(Diary([], None))
    request, = night.asked
    assert request.meet == rotation(NAMES).pairs_of(700_000)
    assert (request.hostlist, request.nice, request.qos, request.time_limit_min, request.suite, request.allow_root) == (
        "n[1-4]", 10000, "low", 7, "nightly", False)
    assert found.problems == ()
    assert read_marks(found.runs[0]).tags == ("sweep",)


def test_in_so_many_nights_every_pair_is_asked_for(tmp_path: Path) -> None:
    night = Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), IDLE)
    for number in range(rotation(NAMES).pair_nights):
        night.go(Diary([], None), 700_000 + number)
    assert len({pair for request in night.asked for pair in request.meet}) == 6


def test_a_pair_of_which_one_is_busy_is_left(tmp_path: Path) -> None:
    pairs = rotation(NAMES).pairs_of(700_000)
    night = Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), {**IDLE, pairs[0][0]: "ALLOCATED"})
    night.go(Diary([], None))
    assert night.asked[0].meet == (pairs[1],)
    assert pairs[0][0] not in night.asked[0].hostlist
    lonely = Night(tmp_path / "x", Reserving(FakeNodes.of(*NAMES).nodes),
                   {**dict.fromkeys(NAMES, "MIXED"), "n2": "IDLE"})
    lonely.folder.mkdir()
    lonely.go(Diary([], None))
    assert (lonely.asked[0].hostlist, lonely.asked[0].meet) == ("n2", ())


def test_nobody_is_idle(tmp_path: Path) -> None:
    night = Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), dict.fromkeys(NAMES, "ALLOCATED"))
    found = night.go(Diary([], None))
    assert (night.asked, found.notes, found.problems) == ([], ("no node is idle: nothing is tested",), ())
    assert found.unknown == ("suite",)              # whether it would have run


def test_without_a_suite_slurm_is_not_asked(tmp_path: Path) -> None:
    nodes = Reserving(FakeNodes.of(*NAMES).nodes, no_answer(""))
    assert Night(tmp_path, nodes, IDLE, SweepSite()).go(Diary([], None)) == Ran()


def test_no_answer_no_test(tmp_path: Path) -> None:
    nodes = cluster()
    nodes.at = no_answer("all")
    night = Night(tmp_path, nodes, IDLE)
    found = night.go(Diary(drained(), None))
    assert night.asked == []
    assert found.notes[0].startswith("nothing was tested")
    assert found.unknown == ("suite",)


def test_a_drained_node_is_tested_in_its_reservation(tmp_path: Path) -> None:
    night = Night(tmp_path, cluster(), {**IDLE, "n1": "IDLE+DRAIN"})
    entries = [replace(entry, checks=("test/mpi_pingpong",), partners={"test/mpi_pingpong": ("n2",)})
               if entry.kind == "intent" else entry for entry in drained()]
    night.go(Diary(entries, None))
    first, second = night.asked
    assert (first.hostlist, first.only, first.meet, first.reservation) == (
        "n[1-2]", ("mpi_pingpong",), (("n1", "n2"),), "hpcadmin_s9")
    assert (second.reservation, second.only) == ("", ())
    assert "n1" not in second.hostlist.replace("n[2-4]", "")


def test_a_check_that_the_suite_lacks_is_left_to_a_person(tmp_path: Path) -> None:
    night = Night(tmp_path, cluster(), {**IDLE, "n1": "IDLE+DRAIN"})
    found = night.go(Diary(drained(), None))
    assert "n1 cannot be tested again: wire is not in suite nightly" in found.notes
    assert len(night.asked) == 1


def test_that_it_cannot_be_run_is_told(tmp_path: Path) -> None:
    found = Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), IDLE, fails="root may not").go(Diary([], None))
    assert [(p.key, p.text) for p in found.problems] == [("suite", "suite nightly was not run: root may not")]


def test_a_run_that_cannot_be_written_is_told_and_the_sweep_goes_on(tmp_path: Path) -> None:
    nodes = cluster()
    nodes.reservations.clear()
    night = Night(tmp_path, nodes, IDLE, full=True)
    entries = [replace(entry, checks=("test/mpi_pingpong",), partners={"test/mpi_pingpong": ("n2",)})
               if entry.kind == "intent" else entry for entry in drained()]
    diary = Diary(entries, None)
    found = night.go(diary)
    assert [(p.key, p.text) for p in found.problems] == [
        ("suite", "suite nightly was not run: run: cannot be written: No space left on device")]
    assert any("n1 could not be tested again: run: cannot be written" in note for note in found.notes)
    assert open_guards(diary.entries) == [] and nodes.reservations == {} and "DRAIN" in nodes.nodes["n1"].state.flags


def test_nodes_that_cannot_be_released_are_told(tmp_path: Path) -> None:
    nodes = cluster()
    nodes.reservations["hpcadmin_s2"] = ("n1", "n2")

    def at(what: str) -> None:
        if what == "unreserve":
            raise SlurmError("Requested reservation is in use")
    nodes.at = at
    diary = Diary([*drained(), Entry("guard", NIGHT, "s2", id="hpcadmin_s2", act="open", checks=("n1",), text="n1 n2")],
                  None)
    found = Night(tmp_path, nodes, IDLE).go(diary)
    assert [(p.key, p.signature) for p in found.problems] == [("guard", "n[1-2]")]
    assert "in use" in found.problems[0].text
    assert len(open_guards(diary.entries)) == 1


def test_an_interrupted_night_ends_the_sweep(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Night(tmp_path, Reserving(FakeNodes.of(*NAMES).nodes), IDLE, status=130).go(Diary([], None))


# --- what they say --------------------------------------------------------------------------------------------------

def test_what_was_not_run_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what failed on the way is not known."""
    def verdict(status: Status, name: str) -> Verdict:
        return Verdict("c", Subject((name,)), status, "why")
    run = Run(Path("r"), Manifest("r1", "nightly", (), "complete", "2027-01-15T07:00:00+00:00"), verdicts=(
        verdict(Status.NOT_RUN, "n1"), verdict(Status.UNJUDGED, "n2"), verdict(Status.ERROR, "n3"),
        verdict(Status.FAIL, "n4"), verdict(Status.PASS, "n5")))
    monkeypatch.setattr(sources, "read_run", lambda folder, without: run)
    found = NightLooks(Ran((Path("r"),)), 14).looks(["n1", "n2", "n3", "n4", "n5"], NIGHT)
    assert {look.node: look.result.value for look in found.looks} == {"n3": "unknown", "n4": "bad", "n5": "good"}


def test_notes_alone_are_no_look() -> None:
    assert not gather([Said("x"), NightLooks(Ran(notes=("y",)), 14)], ["n1"], NIGHT).looked
    assert not gather([Trend(Path("/nonexistent"), "nightly")], ["n1"], NIGHT).looked


def test_drift_is_told_unless_the_site_says_otherwise() -> None:
    assert policy_of(SweepSite(), "health/drift", Kind.NODE) is Act.TELL
    assert policy_of(SweepSite(drift="drain"), "health/drift:gpu", Kind.NODE) is Act.DRAIN
    assert policy_of(SweepSite(checks={"drift": "comment"}), "health/drift", Kind.NODE) is Act.COMMENT
    assert policy_of(SweepSite(), "health/mount", Kind.NODE) is Act.DRAIN


def test_a_trend_is_the_same_problem_whatever_its_number() -> None:
    drift = Drift("osu_bw", "bandwidth", "MB/s", node(1), None, True, -1.0, -6.0, 0.5, 9, "a", "b", 0.01)
    one, two = drift_problem(drift, NIGHT), drift_problem(replace(drift, percent=-7.0, points=10), NIGHT)
    assert (one.key, one.signature, one.node) == (two.key, two.signature, "gpu001")
    assert one.text == "gpu001: osu_bw bandwidth is -6.0 % over 9 runs, -1.0 % a week"
    step = drift_problem(replace(drift, entity=None, step=("r1", "r2")), NIGHT)
    assert (step.text, step.node) == ("all nodes: osu_bw bandwidth is -6.0 % in a step between r1 and r2", "")
    change = Change("osu_bw", "bandwidth", "MB/s", node(1), True, -9.0, 1, 1, condition(3), 100.0, 91.0)
    assert baseline_problem(change, "r0", "r9", NIGHT).text == (
        "gpu001: osu_bw bandwidth is -9.0 % against the baseline r0 (run r9)")
