"""What nobody has looked at is neither healthy nor over: exit status 3, and problems that go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from looped import looped
from sweep_models import DAY_S, FREE, NIGHT, FakeNodes, Given, Ledger, health, night, pair

from hpcadmin.errors import StoreError
from hpcadmin.rundata import Manifest, Run
from hpcadmin.sweep import sources
from hpcadmin.sweep.model import Entry, Problem
from hpcadmin.sweep.night import Diary, Report, Terms, sweep_with
from hpcadmin.sweep.sources import Looks, RunVerdicts, Said, Source, gather
from hpcadmin.sweep.trend import Trend

HUNG = "unknown: statvfs did not answer"
NEXT = NIGHT + DAY_S


@dataclass(frozen=True)
class Says:
    """A source with any Looks."""

    found: Looks

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        return self.found


def swept(slurm: FakeNodes, ledger: Ledger, *given: Source, now: float = NEXT) -> Report:
    return sweep_with(Diary(ledger.entries, ledger), FREE, slurm, given, Terms("s2", lambda: now))


def told(report: Report) -> list[tuple[str, str]]:
    return [(change.what, change.problem.key) for change in report.changes]


def after_a_hung_check() -> tuple[FakeNodes, Ledger]:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    report = night(slurm, ledger, [*health("n1", mount=HUNG), *health("n2", mount=HUNG)])
    assert told(report) == [("begins", "unknown/mount")]
    return slurm, ledger


# --- what was told goes on ------------------------------------------------------------------------------------------

def test_a_check_without_an_answer_is_not_over_because_nobody_asked() -> None:
    slurm, ledger = after_a_hung_check()
    assert told(swept(slurm, ledger, Said("nothing is started in a dry run"))) == []
    assert told(night(slurm, ledger, [], now=NEXT, unmeasured=("n1", "n2"))) == [("begins", "unmeasured")]
    assert told(night(slurm, ledger, health("n1", NEXT, mount="good"), now=NEXT, unmeasured=("n2",))) == [
        ("changes", "unmeasured")]
    both = [*health("n1", NEXT, mount="good"), *health("n2", NEXT, mount="good")]
    assert told(night(slurm, ledger, both, now=NEXT)) == [("ends", "unknown/mount"), ("ends", "unmeasured")]


def test_it_is_over_when_the_check_is_no_more_and_when_others_have_the_node() -> None:
    slurm, ledger = after_a_hung_check()
    both = [*health("n1", NEXT, load="good"), *health("n2", NEXT, load="good")]
    assert told(night(slurm, Ledger(ledger.entries), both, now=NEXT)) == [("ends", "unknown/mount")]
    slurm.set("n1", "DOWN")
    slurm.set("n2", "IDLE+DRAIN")
    assert told(night(slurm, ledger, [], now=NEXT)) == [("ends", "unknown/mount")]


def test_unmeasured_nodes_are_not_measured_by_looking_at_nothing() -> None:
    slurm, ledger = FakeNodes.of("n1"), Ledger()
    assert told(night(slurm, ledger, [], unmeasured=("n1",))) == [("begins", "unmeasured")]
    assert told(swept(slurm, ledger)) == []
    assert told(swept(slurm, ledger, Given(health("n1", NEXT, load="good")))) == [("ends", "unmeasured")]


def test_a_budget_is_not_kept_because_the_nodes_are_silent() -> None:
    names = ("n1", "n2", "n3")
    slurm, ledger = FakeNodes.of(*names), Ledger()
    policy = replace(FREE, night_nodes=1)
    bad = [look for name in names for look in health(name, mount="bad: gone")]
    assert ("begins", "budget") in told(night(slurm, ledger, bad, policy=policy))
    assert told(night(slurm, ledger, [], now=NEXT, policy=policy, unmeasured=names)) == [("begins", "unmeasured")]
    good = [look for name in names for look in health(name, NEXT, mount="good")]
    ended = told(night(slurm, ledger, good, now=NEXT, policy=policy))
    assert ended == [("ends", key) for key in ("budget", "node/n1", "node/n2", "node/n3", "unmeasured")]


@looped("key", ["suite", "guard", "trend/n1/ib/rate"])
def test_what_a_source_cannot_tell_of_goes_on(key: str) -> None:
    slurm = FakeNodes.of("n1")
    ledger = Ledger([Entry("problem", NIGHT, "s1", result="begins", text="x", key=key, signature="x")])
    unknown = (key.partition("/")[0],)
    good = health("n1", NEXT, load="good")
    assert told(swept(slurm, ledger, Says(Looks(tuple(good), unknown=unknown)))) == []
    assert told(swept(slurm, ledger, Says(Looks(tuple(good))))) == [("ends", key)]


def test_trends_that_cannot_be_had_are_not_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trend(tmp_path / "none", "nightly").looks([], NIGHT).unknown == ("trend/",)

    def broken(*_: object) -> None:
        raise StoreError("cannot be read", where="index")
    monkeypatch.setattr("hpcadmin.sweep.trend.with_index", broken)
    assert Trend(tmp_path, "nightly").looks([], NIGHT).unknown == ("trend/",)
    assert gather([Trend(tmp_path, "nightly"), Said("x", ("suite",))], [], NIGHT).unknown == ("trend/", "suite")


def test_a_signature_that_was_cut_off_may_name_any_node() -> None:
    slurm = FakeNodes.of("n1")
    ledger = Ledger([Entry("problem", NIGHT, "s1", result="begins", text="x", key="unknown/mount", signature="n[1-")])
    assert told(swept(slurm, ledger)) == []
    assert told(swept(slurm, ledger, Given(health("n1", NEXT, load="good")))) == [("ends", "unknown/mount")]


# --- what nobody has looked at is not healthy -----------------------------------------------------------------------

def test_nodes_that_no_test_has_met_are_not_known() -> None:
    slurm = FakeNodes.of("n1", "n2", "n3", "n4", n4="DOWN")
    report = swept(slurm, Ledger(), Given([pair("n1", "n2", "good", NEXT)]))
    assert report.exit_status == 3
    assert report.notes == ("nothing is known of 1 node in service: n3",)
    more = [pair("n1", "n2", "good", NEXT), *health("n3", NEXT, load="good")]
    assert swept(slurm, Ledger(), Given(more)).exit_status == 0


def test_tests_tell_nothing_of_a_busy_node_nor_of_one_whose_turn_it_is_not() -> None:
    some = Given([pair("n1", "n2", "good", NEXT)])
    for state in ("ALLOCATED", "MIXED"):
        report = swept(FakeNodes.of("n1", "n2", "n3", n3=state), Ledger(), some)
        assert (report.exit_status, report.notes) == (0, ("nothing is known of 1 node in service: n3",))
    policy, ledger = replace(FREE, suite_nodes=2), Ledger()
    report = sweep_with(Diary(ledger.entries, ledger), policy, FakeNodes.of("n1", "n2", "n3"), [some],
                        Terms("s2", lambda: NEXT))
    assert report.exit_status == 0


def test_a_node_that_slurm_tells_twice_is_not_known() -> None:
    slurm = FakeNodes.of("n1", "n2")
    slurm.set("n2", unclear="Slurm's answer tells it twice")
    report = swept(slurm, Ledger(), Given(health("n1", NEXT, load="good")))
    assert report.exit_status == 3
    assert report.problems["unmeasured"] == Problem(
        "unmeasured", "n2", "the health of 1 node is not known: n2: Slurm's answer tells it twice", since=NEXT)


def run_of(ended: str) -> Run:
    return Run(Path("r1"), Manifest("r1", "s", ("n1",), "complete", ended, ended))


@looped("why", ["unreadable", "old", "no time"])
def test_a_run_that_says_nothing_is_no_look(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def read(*_: object, **__: object) -> Run:
        if why == "unreadable":
            raise StoreError("is not JSON", where="manifest.json")
        return run_of("2020-01-01T00:00:00+00:00" if why == "old" else "soon")
    monkeypatch.setattr(sources, "read_run", read)
    report = swept(FakeNodes.of("n1"), Ledger(), RunVerdicts(Path("r1"), 14))
    assert report.exit_status == 3
    assert any("no results were looked at" in note for note in report.notes)
