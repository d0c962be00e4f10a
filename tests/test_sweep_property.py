"""Random clusters, nights, admins and kills: what a sweep never does, and that it always finds its way back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_models import BOOT, DAY_S, FREE, NIGHT, FakeNodes, KilledError, Ledger, acts, health, night, pair

from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.client import NoAnswerError
from hpcadmin.sweep.budget import limit
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.model import Look, Result
from hpcadmin.sweep.states import FLAGS, hands_off

pytestmark = pytest.mark.deep

NAMES = [f"n{i}" for i in range(6)]
STATES = ["IDLE", "MIXED", "ALLOCATED", "IDLE+DRAIN", "MIXED+DRAIN", "DOWN", "DOWN+DRAIN", "UNKNOWN", "FUTURE",
          "IDLE+CLOUD", *(f"IDLE+{flag}" for flag in FLAGS)]
CHECKS = ["mount", "gpu"]


@dataclass
class World:
    """What is true, whatever the ledger says: whose drains stand, and what was measured since."""

    slurm: FakeNodes
    policy: SweepSite
    ours: dict[str, str] = field(default_factory=dict)              # node -> our reason that stands
    given: dict[str, set[str]] = field(default_factory=dict)        # node -> every reason that we gave it
    since: dict[str, float] = field(default_factory=dict)
    good: dict[tuple[str, str], float] = field(default_factory=dict)    # node, check -> when it was good last
    now: float = NIGHT
    drains: int = 0             # tonight
    calls: int = 0
    asked: int = 0              # of them of Slurm
    kill_at: int = -1
    lost: int = -1              # the call to which there is no answer
    meddle: Callable[[str], None] = lambda what: None

    def at(self, what: str) -> None:
        verb, _, node = what.partition(" ")
        if verb == "one":
            self.meddle(node)
        self._check(verb, node)
        self.calls += 1
        self.asked += verb != "ledger"
        if self.calls == self.kill_at:
            raise KilledError
        if verb != "ledger" and self.asked == self.lost:
            raise NoAnswerError("did not answer", where="scontrol")

    def _check(self, verb: str, node: str) -> None:
        record = self.slurm.nodes.get(node)
        if verb == "drain":
            assert record is not None
            assert hands_off(record, self.given.get(node, set())) == "", (node, record)
        elif verb == "undrain":
            assert record is not None
            assert self.ours.get(node) == record.reason and record.reason, (node, record)
            assert record.state.base == "IDLE" and record.state.flags - {"CLOUD"} == {"DRAIN"}
            assert any(self.good.get((node, check), 0) > self.since[node] for check in CHECKS)
        elif what_is_after(verb, node, "undrain"):
            self.ours.pop(node.partition(" ")[2])
        elif what_is_after(verb, node, "drain"):
            name = node.partition(" ")[2]
            self.ours[name] = self.slurm.nodes[name].reason
            self.given.setdefault(name, set()).add(self.ours[name])
            self.since[name] = self.now
            self.drains += 1
            everyone = len(self.slurm.nodes)
            assert self.drains <= limit(self.policy.night_nodes, self.policy.night_percent, everyone)
            assert len(self.ours) <= limit(self.policy.total_nodes, self.policy.total_percent, everyone)

    def other(self, node: str, state: str | None, **more: object) -> None:
        """Somebody else changes a node."""
        self.slurm.set(node, state, **more)
        record = self.slurm.nodes[node]
        if "DRAIN" not in record.state.flags or record.reason != self.ours.get(node):
            self.ours.pop(node, None)


def what_is_after(verb: str, rest: str, what: str) -> bool:
    return verb == "after" and rest.startswith(f"{what} ")


@st.composite
def looks_of_a_night(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    results = st.sampled_from(["good", "bad", "bad", "unknown"])
    return draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(CHECKS), results), max_size=10))


# A node of ours that only gets another reason is what a sweep could take for its own.
states = st.one_of(st.just("IDLE"), st.just(""), st.sampled_from(STATES))
events = st.lists(st.tuples(st.sampled_from(NAMES), states,
                            st.sampled_from(["", "", "Anna: new board", "Not responding"])), max_size=2)
policies = st.builds(lambda night, total, passes, resume: replace(
    FREE, night_nodes=night, total_nodes=total, passes=passes, resume=resume, again=50),
    st.integers(0, 4), st.integers(0, 5), st.integers(1, 2), st.booleans())


@given(st.data(), policies)
@settings(max_examples=250)
def test_what_a_sweep_never_does(data: st.DataObject, policy: SweepSite) -> None:
    world = World(FakeNodes.of(*NAMES), policy)
    world.slurm.keeps_reason = data.draw(st.booleans())
    world.slurm.at = world.at
    ledger = Ledger()
    for number in range(data.draw(st.integers(1, 5))):
        world.now, world.drains = NIGHT + number * DAY_S, 0
        for node, state, reason in data.draw(events):
            world.other(node, state or None, reason=reason, boot_time=BOOT + number * DAY_S)
        looks = looks_at(data, world.now - 60)
        meddled = dict(data.draw(st.lists(st.tuples(st.sampled_from(NAMES), states), max_size=1)))

        def meddle(node: str, meddled: dict[str, str] = meddled) -> None:
            if node in meddled:
                world.other(node, meddled.pop(node) or None, reason="Anna")
        world.meddle, world.calls, world.asked = meddle, 0, 0
        world.kill_at = data.draw(st.integers(0, 12))
        world.lost = data.draw(st.sampled_from([-1, -1, 2, 3, 4, 5]))
        ledger.at = lambda what: world.at(f"ledger {what}")
        note_good(world, looks)
        with suppress(KilledError):
            night(world.slurm, ledger, looks, now=world.now, policy=policy)
        world.kill_at = world.lost = -1
        world.meddle = lambda what: None
        looks += looks_at(data, world.now + 5)
        note_good(world, looks)
        again = night(world.slurm, ledger, looks, now=world.now + 10, policy=policy)
        assert again.plan is not None
        assert_known(world, ledger)
        if "resume" in acts(again).values():        # there is room in the budget now
            night(world.slurm, ledger, looks, now=world.now + 20, policy=policy)
        asked = len(world.slurm.asked)
        night(world.slurm, ledger, looks, now=world.now + 30, policy=policy)
        assert len(world.slurm.asked) == asked, "once more there is nothing left to do"
        assert_known(world, ledger)
        if data.draw(st.booleans()):
            world.slurm.settle()


def looks_at(data: st.DataObject, time: float) -> list[Look]:
    told = data.draw(looks_of_a_night())
    return [look for node, check, word in told for look in health(node, time, **{check: f"{word}: x"})]


def note_good(world: World, looks: list[Look]) -> None:
    for look in looks:
        if look.result is Result.GOOD:
            world.good[look.node, look.check.partition("/")[2]] = look.time


def assert_known(world: World, ledger: Ledger) -> None:
    """The ledger knows exactly the drains of ours that stand, and nothing is pending."""
    history = fold(ledger.entries)
    assert {node: s.intent.reason for node, s in history.ours.items()} == world.ours
    assert not history.pending


@given(st.integers(1, 60), st.booleans())
@settings(max_examples=80)
def test_killed_anywhere_the_next_sweep_is_where_the_other_would_be(place: int, second: bool) -> None:
    """The same two nights, once undisturbed and once killed at any call of the ledger or of Slurm, and begun again."""
    looks = [look for n in ("n1", "n2", "n3") for look in health(n, NIGHT - 60, mount="bad: away")]
    later = [*health("n1", NIGHT + DAY_S - 60, mount="good"), *health("n2", NIGHT + DAY_S - 60, mount="bad"),
             *health("n4", NIGHT + DAY_S - 60, gpu="bad: lost")]
    plain_slurm, plain = FakeNodes.of(*NAMES), Ledger()
    night(plain_slurm, plain, looks)
    night(plain_slurm, plain, later, now=NIGHT + DAY_S)
    slurm, ledger = FakeNodes.of(*NAMES), Ledger()
    calls = 0

    def at(what: str) -> None:
        nonlocal calls
        calls += 1
        if calls == place:
            raise KilledError
    for number, told in enumerate((looks, later)):
        now = NIGHT + number * DAY_S
        if number == int(second):
            slurm.at = ledger.at = at
            with suppress(KilledError):
                night(slurm, ledger, told, now=now)
            slurm.at = ledger.at = lambda what: None
        night(slurm, ledger, told, now=now + 5)
    assert {n: (r.state.flags, r.reason[:20]) for n, r in slurm.nodes.items()} == {
        n: (r.state.flags, r.reason[:20]) for n, r in plain_slurm.nodes.items()}
    assert set(fold(ledger.entries).ours) == set(fold(plain.entries).ours) == {"n2", "n3", "n4"}
    assert not fold(ledger.entries).pending


meetings = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(["good", "bad"]))


@given(st.lists(meetings, max_size=25), st.integers(2, 4))
@settings(max_examples=200)
def test_the_network_drains_only_with_so_many_partners(met: list[tuple[str, str, str]], strikes: int) -> None:
    looks = [pair(a, b, word, NIGHT + i) for i, (a, b, word) in enumerate(met) if a != b]
    slurm = FakeNodes.of(*NAMES)
    report = night(slurm, Ledger(), looks, now=NIGHT + 100, policy=replace(FREE, strikes=strikes))
    last = {look.pair: look for look in looks}
    for node, act in acts(report).items():
        partners = {other for pair_, look in last.items() if node in pair_ and look.result is Result.BAD
                    for other in pair_ - {node}}
        if act == "drain":
            assert len(partners) >= strikes
        assert partners, "nobody is spoken of who did not fail"
