"""Drained nodes that are tested again: held while another looks, taken over, rebooted; everybody's turn comes."""

from __future__ import annotations

import pytest
from sweep_models import DAY_S, NIGHT, FakeNodes, Ledger, acts, health, night
from test_sweep_nights import REASON, Reserving, again, cluster, drained, guard

from hpcadmin.slurm.node_records import NodeRecord, parse_text
from hpcadmin.slurm.states import node_state
from hpcadmin.sweep.guard import MOST_NODES, MOST_PARTNERS, to_retest
from hpcadmin.sweep.letgo import stands
from hpcadmin.sweep.model import Entry
from hpcadmin.sweep.night import Diary

# --- what the next sweep, or an undo, does while a node is held -----------------------------------------------------

HELD = Entry("guard", NIGHT, "s2", id="hpcadmin_s2", act="open", checks=("n1",), text="n1 n2")


def test_a_node_that_is_still_held_for_a_test_stays_ours() -> None:
    """A sweep that was killed has undrained it, and the next one (or an undo) comes to look before that is put right:
    taken for one that a person has resumed it would be released, bad as it is."""
    nodes, ledger = cluster(), Ledger([*drained(), HELD])
    nodes.reservations["hpcadmin_s2"] = ("n1", "n2")
    nodes.undrain("n1")
    nodes.settle()
    assert acts(night(nodes, ledger, [], now=NIGHT + 10)) == {"n1": "keep"}
    diary = Diary(ledger.entries, ledger)
    assert guard(nodes, diary).put_right()
    assert "DRAIN" in nodes.nodes["n1"].state.flags
    assert nodes.nodes["n1"].reason == REASON
    assert set(diary.history().ours) == {"n1"}


@pytest.mark.parametrize(("state", "reason", "again_ours"), [
    ("DOWN", "Anna: burning", False), ("IDLE", "Anna: look here", False), ("DOWN", "Not responding", True),
    ("DOWN", "Node unexpectedly rebooted", True), ("IDLE", "", True), ("IDLE", REASON, True)])
def test_who_takes_a_node_over_while_it_is_tested_keeps_it(state: str, reason: str, again_ours: bool) -> None:
    nodes, diary = cluster(), Diary(drained(), None)
    retest = again(nodes, drained())
    assert retest is not None
    with guard(nodes, diary).held(retest, "s2"):
        nodes.set("n1", state, reason=reason)
    assert nodes.reservations == {}
    assert nodes.nodes["n1"].reason == (REASON if again_ours else reason)
    assert ("DRAIN" in nodes.nodes["n1"].state.flags) == again_ours


# --- everybody's turn comes -----------------------------------------------------------------------------------------

def test_more_partners_than_a_night_takes_all_have_their_turn() -> None:
    partners = tuple(f"p{i}" for i in range(11))
    nodes = Reserving(FakeNodes.of("n1", *partners).nodes)
    nodes.drain("n1", REASON)
    entries, met = drained(partners=partners), set()
    for number in range(1, 4):
        found = to_retest(Diary(entries, None).history(), nodes.all_nodes(), partners, number)
        assert found is not None
        assert len(found.pairs) <= MOST_PARTNERS
        met |= {partner for _, partner in found.pairs}
        entries += [Entry("look", NIGHT, node=a, partner=b, checks=("test/wire",), kinds=("network",), result="good",
                          measured=NIGHT + number * DAY_S) for a, b in found.pairs]
    assert met == set(partners)


@pytest.mark.parametrize("count", [9, 16, 17, 30])
def test_more_nodes_than_a_night_takes_all_have_their_turn(count: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    nodes, entries = Reserving(FakeNodes.of(*names).nodes), []
    for i, name in enumerate(names):
        nodes.drain(name, f"{REASON}{i}")
        entries += [Entry("intent", NIGHT, "s1", 1, f"s1/{i}", name, "drain", ("test/disk",), ("test",),
                          reason=f"{REASON}{i}"),
                    Entry("outcome", NIGHT, "s1", id=f"s1/{i}", node=name, act="drain", result="done")]
    met: set[str] = set()
    for number in range(700, 700 + -(-count // MOST_NODES) + 1):
        found = to_retest(Diary(entries, None).history(), nodes.all_nodes(), [], number)
        assert found is not None
        assert len(found.reasons) == MOST_NODES
        met |= set(found.reasons)
    assert met == set(names)


# --- rebooted by scontrol: Slurm writes behind the reason -----------------------------------------------------------

REBOOTED = ("NodeName=n1 Arch=x86_64 State=IDLE+DRAIN BootTime=2027-01-16T08:00:00 Reason=%s : reboot issued : reboot "
            "complete [root@2027-01-16T08:00:00]")


def test_what_slurm_writes_behind_our_reason_at_a_reboot_takes_nothing_over() -> None:
    record = parse_text(REBOOTED % REASON)[0]
    assert record.reason == f"{REASON} : reboot issued : reboot complete"
    assert stands(record, REASON)


@pytest.mark.parametrize("more", [" : Anna", " : reboot issued by Anna", ": reboot issued", " : reboot issued : Anna"])
def test_what_people_write_behind_our_reason_takes_it_over(more: str) -> None:
    assert not stands(NodeRecord("n1", node_state("IDLE+DRAIN"), REASON + more), REASON)


def test_drained_rebooted_and_back_after_two_passes() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    night(slurm, ledger, health("n1", gpu="bad: lost"))
    slurm.set("n1", reason=f"{slurm.nodes['n1'].reason} : reboot issued", state="DOWN+DRAIN+REBOOT_ISSUED")
    now = NIGHT + DAY_S
    assert acts(night(slurm, ledger, health("n1", now, boot="b2", gpu="good"), now=now)) == {"n1": "keep"}
    slurm.set("n1", reason=f"{slurm.nodes['n1'].reason} : reboot complete", state="IDLE+DRAIN", boot_time=now + 60)
    found = []
    for number in (2, 3):
        now = NIGHT + number * DAY_S
        found.append(acts(night(slurm, ledger, health("n1", now, boot="b2", gpu="good"), now=now)))
    assert found == [{"n1": "keep"}, {"n1": "resume"}]


# --- two that failed with each other --------------------------------------------------------------------------------

def both_drained(one: tuple[str, ...], two: tuple[str, ...]) -> tuple[Reserving, list[Entry]]:
    nodes, entries = Reserving(FakeNodes.of("n1", "n2", "n3", "n4").nodes), []
    for name, partners in (("n1", one), ("n2", two)):
        nodes.drain(name, f"{REASON} {name}")
        entries += [Entry("intent", NIGHT, "s1", 1, f"s1/{name}", name, "drain", ("test/wire",), ("network",),
                          {"test/wire": partners}, f"{REASON} {name}"),
                    Entry("outcome", NIGHT, "s1", id=f"s1/{name}", node=name, act="drain", result="done")]
    return nodes, entries


@pytest.mark.parametrize(("one", "two", "pairs"), [
    (("n2", "n3"), ("n4", "n3"), {("n1", "n2"), ("n1", "n3"), ("n2", "n3"), ("n2", "n4")}),
    (("n2",), ("n3",), {("n1", "n2"), ("n2", "n3")}), (("n2",), ("n1",), {("n1", "n2")}),
    (("n9",), ("n3",), {("n2", "n3")}), (("n3",), ("n1",), {("n1", "n3"), ("n1", "n2")})])
def test_two_that_are_both_drained_are_each_others_partner(
        one: tuple[str, ...], two: tuple[str, ...], pairs: set[tuple[str, str]]) -> None:
    """Else each waits for ever for the other to be idle."""
    nodes, entries = both_drained(one, two)
    found: set[tuple[str, str]] = set()
    for number in range(2):
        retest = to_retest(Diary(entries, None).history(), nodes.all_nodes(), ["n3", "n4"], number)
        assert retest is not None
        assert set(retest.reasons) == {"n1", "n2"} - ({"n1"} if one == ("n9",) else set())
        found |= set(retest.pairs)
    assert found == pairs


def test_nobody_is_undrained_who_has_nobody_to_be_tested_with() -> None:
    nodes, entries = both_drained(("n3",), ("n4",))
    assert to_retest(Diary(entries, None).history(), nodes.all_nodes(), []) is None
    nodes, entries = both_drained(("n9",), ("n1",))
    retest = to_retest(Diary(entries, None).history(), nodes.all_nodes(), [])
    assert retest is not None
    assert (set(retest.reasons), retest.pairs) == ({"n1", "n2"}, (("n1", "n2"),))
