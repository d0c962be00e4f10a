"""Availability over a period: classes sum to the period, both bounds, what is planned, absent and not known."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timezone
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcadmin.availability.account import Account, Availability, Line, account, percent, target_text
from hpcadmin.availability.document import Share
from hpcadmin.availability.forms import _Book
from hpcadmin.availability.gather import load_answers, months_of
from hpcadmin.availability.incidents import by_length, by_reason
from hpcadmin.availability.period import Period, period_of, quarter_of, this_quarter
from hpcadmin.availability.rules import Rules, all_nodes, claims_of, kind_of
from hpcadmin.availability.timeline import Claim, Kind, Segment, timeline
from hpcadmin.errors import HpcadminError, ParseError, UsageError
from hpcadmin.slurm import events
from hpcadmin.slurm.events import Accounting, Answers, Members, NodeEvent, Outage, Reservation, read

SAMPLES = Path(__file__).parent / "samples" / "slurm_events"
START, END = 1_000_000, 1_100_000
PERIOD = Period("p", START, END, END, timezone.utc)
TARGET = Fraction(9995, 10000)
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | timezone = timezone.utc) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


BY_DEFAULT = Rules()


def made(slurm: Accounting, rules: Rules = BY_DEFAULT, now: int = END, period: Period = PERIOD) -> Availability:
    nodes = all_nodes(slurm, period.start, period.end, now) or sorted(rules.owed)
    claims = claims_of(slurm, rules, now, nodes)
    return account(period, {n: timeline(period.start, period.end, of) for n, of in claims.items()}, rules.target)


def node(found: Availability, name: str) -> Account:
    return next(n for n in found.nodes if n.name == name)


def cluster(*found: NodeEvent, names: str = "n1 n2", **more: object) -> Accounting:
    return replace(Accounting(events=found, members=(Members(START - 500, None, frozenset(names.split())),)),
                   **more)


def down(name: str, start: int, end: int | None, reason: str = "dead", *state: object) -> NodeEvent:
    return NodeEvent(name, start, end, *(state or ("DOWN", 1)), "root(0)", reason)      # type: ignore[arg-type]


# --- the timeline --------------------------------------------------------------------------------------------------

claims = st.lists(st.builds(
    Claim, st.integers(-50, 150), st.integers(-50, 150), st.integers(1, 7), st.sampled_from(list(Kind)),
    st.sampled_from(["a", "b"]), st.sampled_from(["x", ""])), max_size=12)


def second_by_second(start: int, end: int, given_: list[Claim]) -> list[Kind]:
    """What it should be, worked out the slow way."""
    found = []
    for second in range(start, end):
        here = [c for c in given_ if c.start <= second < c.end]
        best = max(here, key=lambda c: (c.rank, c.start), default=None)
        ties = {c.kind for c in here if best and (c.rank, c.start) == (best.rank, best.start)}
        found.append(best.kind if best and len(ties) == 1 else Kind.UNKNOWN if best is None else None)
    return found            # type: ignore[return-value]


@given(claims)
def test_every_second_is_of_the_heaviest_claim(given_: list[Claim]) -> None:
    found = timeline(0, 100, given_)
    assert found[0].start == 0
    assert found[-1].end == 100
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(s.start < s.end for s in found)
    each = [s.kind for s in found for _ in range(s.seconds)]
    assert all(want in (None, got) for want, got in zip(second_by_second(0, 100, given_), each, strict=True))


@given(claims, st.randoms(use_true_random=False))
def test_the_order_of_claims_does_not_matter(given_: list[Claim], rng: random.Random) -> None:
    other = list(given_)
    rng.shuffle(other)
    assert timeline(0, 100, given_) == timeline(0, 100, other)


@given(claims, st.integers(1, 99))
def test_two_halves_are_the_whole(given_: list[Claim], cut: int) -> None:
    whole = [s.kind for s in timeline(0, 100, given_) for _ in range(s.seconds)]
    parts = [s.kind for a, b in ((0, cut), (cut, 100)) for s in timeline(a, b, given_) for _ in range(s.seconds)]
    assert whole == parts


# --- the account ---------------------------------------------------------------------------------------------------

times = st.integers(START - 5000, END + 5000)
node_events = st.lists(st.builds(
    lambda name, start, long, state, reason: NodeEvent(
        name, start, None if long is None else start + long, *state, "root(0)", reason),
    st.sampled_from(["n1", "n2", "n3"]), times, st.none() | st.integers(0, 60000),
    st.sampled_from([("DOWN*", 2049), ("DRAIN", 514), ("FAIL", 8193), ("MAINT", 40994), ("UNK", 0), ("IDLE~", 4098),
                     ("ODD", 77), ("DRAIN$", 33314)]),
    st.sampled_from(["dead", "maintenance: fan", "", None])), max_size=12)
slurms = st.builds(
    lambda of, members, outages, reservations, since: Accounting(
        events=tuple(of), members=tuple(members), outages=tuple(outages), reservations=tuple(reservations),
        known_since=since),
    node_events,
    st.lists(st.builds(Members, times, st.none() | times, st.frozensets(st.sampled_from(["n1", "n2", "n3"]),
                                                                       min_size=1)), max_size=4),
    st.lists(st.builds(lambda a, n: Outage(a, a + n), times, st.integers(0, 9000)), max_size=3),
    st.lists(st.builds(lambda a, n, flags: Reservation("1", a, a + n, frozenset(flags), frozenset(["n1", "n3"])), times,
                       st.integers(0, 9000), st.sampled_from([["MAINT"], ["DAILY"]])), max_size=3),
    st.none() | times)
rules = st.builds(lambda owed, planned, drain, controller, power: Rules(
    owed=frozenset(owed), planned=planned, drain=drain, controller=controller, power_saving=power),
    st.sampled_from([(), ("n1",), ("n9",)]), st.sampled_from([(), ("maintenance*",)]), st.sampled_from(["down", "up"]),
    st.sampled_from(["down", "unknown", "up"]), st.sampled_from(["up", "down"]))


@given(slurms, rules, st.randoms(use_true_random=False))
def test_the_kinds_of_each_node_are_the_period_and_the_bounds_hold(slurm: Accounting, by: Rules,
                                                                   rng: random.Random) -> None:
    found = made(slurm, by)
    for one in (*found.nodes, found.whole):
        assert one.total == (END - START) * (1 if one is not found.whole else len(found.nodes))
        if one.counted:
            assert one.least is not None
            assert one.most is not None
            assert 0 <= one.least <= one.most <= 1
            assert (one.line(TARGET) is Line.MET) == (one.least >= TARGET)
            assert (one.line(TARGET) is Line.NOT_MET) == (one.most < TARGET)
        else:
            assert one.line(TARGET) is Line.NOT_SHOWN
    for kind, of in ((Kind.DOWN, found.incidents), (Kind.PLANNED, found.planned), (Kind.UNKNOWN, found.unknown)):
        assert sum(i.node_seconds for i in of) == found.whole.of(kind)
    assert sum(r.node_seconds for r in by_reason(found.incidents)) == found.whole.of(Kind.DOWN)
    assert sum(seconds for _, _, seconds in by_length(found.incidents)) == found.whole.of(Kind.DOWN)
    assert sum(n.incidents for n in found.nodes) == sum(len(i.nodes) for i in found.incidents)
    months = months_of(found)
    assert {kind: sum(one.of(kind) for _, one in months) for kind in Kind} == dict(found.whole.seconds)
    other = [list(slurm.events), list(slurm.members), list(slurm.reservations)]
    for of in other:
        rng.shuffle(of)             # type: ignore[arg-type]
    assert made(replace(slurm, events=tuple(other[0]), members=tuple(other[1]), reservations=tuple(other[2])),
                by).nodes == found.nodes


@given(slurms)
def test_nothing_is_up_before_the_first_record_or_what_may_be_purged(slurm: Accounting) -> None:
    first = min((m.start for m in slurm.members), default=END)
    for one in made(slurm).nodes:
        for s in one.segments:
            if s.kind is Kind.UP:
                assert s.start >= max(first, slurm.known_since or 0)


@given(slurms, st.sampled_from(["n1", "n2", "n3"]), times, st.integers(1, 9000))
def test_a_failure_more_never_makes_it_better(slurm: Accounting, name: str, start: int, long: int) -> None:
    """Nor does a day less that is known."""
    before = made(slurm)
    after = made(replace(slurm, events=(*slurm.events, down(name, start, start + long))))
    for one in before.nodes:
        other = node(after, one.name)
        assert other.of(Kind.UP) <= one.of(Kind.UP)
        assert other.of(Kind.DOWN) >= one.of(Kind.DOWN)
    less = made(replace(slurm, known_since=max(slurm.known_since or 0, start)))
    assert all(node(less, one.name).of(Kind.UP) <= one.of(Kind.UP) for one in before.nodes)


def test_the_line_is_met_only_where_it_holds_at_least() -> None:
    hour = made(cluster(down("n1", START, START + 100)))
    assert (hour.whole.least, hour.line) == (1 - Fraction(100, 200000), Line.MET)           # exactly 99.95 %
    assert made(cluster(down("n1", START, START + 101))).line is Line.NOT_MET
    unknown = made(cluster(NodeEvent("n1", START, START + 101, "UNK", 0)))
    assert (unknown.line, percent(unknown.whole.least), percent(unknown.whole.most)) == (
        Line.NOT_SHOWN, "99.949", "100.000")
    assert percent(Fraction(999999, 1000000)) == "99.999"
    assert percent(Fraction(1)) == "100.000"
    assert hour.whole.allowed(TARGET) == 100
    assert (hour.status, unknown.status, made(cluster(down("n1", START, None))).status) == (0, 3, 1)


def test_a_little_below_the_line_looks_like_it_in_no_form() -> None:
    written: list[float] = []

    class Sheet:
        def write_number(self, row: int, at: int, value: float, style: object) -> None:
            written.append(value)
    book = _Book.__new__(_Book)
    book.percent = None
    book._cell(Sheet(), 1, 1, Share(Fraction(99949999, 100000000)))
    assert [f"{value:.3%}" for value in written] == ["99.949%"]
    assert target_text(Fraction("99.949999999") / 100) == "99.949999999 %"


def test_planned_maintenance_is_taken_out_and_shown() -> None:
    by = Rules(planned=("Maintenance*",))
    told = made(cluster(down("n1", START, START + 5000, "maintenance: fans", "DRAIN", 514)), by)
    assert (node(told, "n1").of(Kind.PLANNED), told.whole.of(Kind.DOWN), told.line) == (5000, 0, Line.MET)
    assert made(cluster(down("n1", START, START + 5000, "maintenance: fans", "DRAIN", 514))).line is Line.NOT_MET
    both = made(cluster(down("n1", START, START + 5000, "maintenance"), down("n1", START + 4000, START + 4500)), by)
    assert node(both, "n1").of(Kind.DOWN) == 500                    # what contradicts itself is not planned
    flagged = made(cluster(down("n1", START, START + 5000, "disk", "MAINT", 40994)))
    assert node(flagged, "n1").of(Kind.PLANNED) == 5000
    window = Reservation("7", START, START + 3000, frozenset(["MAINT", "SPEC_NODES"]), frozenset(["n1"]), "power")
    reserved = made(cluster(down("n1", START + 2000, START + 4000), reservations=(window,)))
    assert (node(reserved, "n1").of(Kind.PLANNED), node(reserved, "n1").of(Kind.DOWN)) == (3000, 1000)
    assert reserved.planned[0].reason == "reservation power"
    other = window._replace(flags=frozenset(["DAILY"]))
    assert made(cluster(reservations=(other,))).whole.of(Kind.PLANNED) == 0
    assert made(cluster(reservations=(window,)), Rules(reservations=False)).whole.of(Kind.PLANNED) == 0


def test_a_reason_that_could_not_be_told_is_never_planned() -> None:
    by = Rules(planned=("?*",))
    found = made(cluster(NodeEvent("n1", START, START + 10, "DRAIN", 514, "root(0)", None)), by)
    assert found.whole.of(Kind.DOWN) == 10


def test_nodes_that_come_and_go() -> None:
    members = (Members(START - 9, START + 1000, frozenset(["n1", "n2"])),
               Members(START + 1000, None, frozenset(["n1", "n3"])))
    slurm = Accounting(events=(down("n2", START + 900, None),), members=members)
    found = made(slurm)
    assert dict(node(found, "n2").seconds)[Kind.ABSENT] == END - START - 1000
    assert node(found, "n2").of(Kind.DOWN) == 100           # an event that nobody ended ends with the node
    assert node(found, "n3").of(Kind.ABSENT) == 1000
    owed = made(slurm, Rules(owed=frozenset(["n2"])))
    assert node(owed, "n2").of(Kind.DOWN) == END - START - 900
    assert owed.line is Line.NOT_MET
    left_open = (Members(START - 9, None, frozenset(["n1", "n2"])), Members(START + 1000, None, frozenset(["n1"])))
    assert node(made(Accounting(members=left_open)), "n2").of(Kind.ABSENT) == END - START - 1000


def test_of_two_lists_of_one_moment_the_order_does_not_matter() -> None:
    two = [Members(START, None, frozenset(["n1"])), Members(START, START + 10, frozenset(["n1"]))]
    assert made(Accounting(members=tuple(two))).nodes == made(Accounting(members=tuple(two[::-1]))).nodes


def test_time_without_slurmctld_is_what_the_contract_says() -> None:
    slurm = cluster(down("n1", START + 50, START + 150), outages=(Outage(START + 100, START + 200),))
    assert made(slurm).whole.of(Kind.DOWN) == 150 + 100
    assert made(slurm, Rules(controller="unknown")).whole.of(Kind.UNKNOWN) == 50 + 100
    assert made(slurm, Rules(controller="up")).whole.of(Kind.DOWN) == 100
    still = cluster(outages=(Outage(START + 100, None),))
    assert made(still, now=START + 400, period=replace(PERIOD, end=START + 400)).whole.of(Kind.DOWN) == 600


def test_a_node_that_a_fresh_slurmctld_has_not_missed_yet_is_not_known() -> None:
    slurm = cluster(down("n1", START + 50, START + 200, "Not responding", "DOWN*", 2049),
                    down("n1", START + 260, START + 300, "Not responding", "DOWN*", 2049),
                    outages=(Outage(START + 100, START + 200),))
    one = node(made(slurm), "n1")
    assert (one.of(Kind.DOWN), one.of(Kind.UNKNOWN)) == (150 + 40, 60)
    later = slurm.events[1]._replace(start=START + 5000, end=START + 5001)
    assert node(made(replace(slurm, events=(slurm.events[0], later))), "n1").of(Kind.UNKNOWN) == 0


@pytest.mark.parametrize(("state", "raw", "kind"), [
    ("DOWN", 1, Kind.DOWN), ("DOWN*", 2049, Kind.DOWN), ("DRAIN", 514, Kind.DOWN), ("DRNG", 515, Kind.DOWN),
    ("FAIL", 8193, Kind.DOWN), ("FAILG", 8195, Kind.DOWN), ("IDLE*", 2050, Kind.DOWN), ("INVAL", 2, Kind.DOWN),
    ("REBOOT^", 2, Kind.DOWN), ("ERROR", 4, Kind.DOWN), ("IDLE~", 4098, Kind.UP), ("POW_UP", 2, Kind.UP),
    ("DOWN~", 4097, Kind.DOWN), ("MAINT", 40994, Kind.PLANNED), ("DRAIN$", 33314, Kind.PLANNED),
    ("UNK", 0, Kind.UNKNOWN), ("FUTR", 6, Kind.UNKNOWN), ("IDLE", 2, Kind.UNKNOWN), ("", 0, Kind.UNKNOWN),
    ("WHATEVER", 99, Kind.UNKNOWN)])
def test_states(state: str, raw: int, kind: Kind) -> None:
    assert kind_of(state, raw, Rules())[0] is kind


def test_a_drained_node_that_is_down_is_down_whatever_the_contract_says_of_drained_ones() -> None:
    assert kind_of("DRAIN", 514, Rules(drain="up"))[0] is Kind.UP
    assert kind_of("DRAIN", 513, Rules(drain="up"))[0] is Kind.DOWN
    assert kind_of("IDLE~", 4098, Rules(power_saving="down"))[0] is Kind.DOWN


def test_an_incident_is_one_time_without_a_break_and_nodes_are_folded() -> None:
    found = made(cluster(down("n1", START, START + 10), down("n1", START + 10, START + 30, "dead : Not responding"),
                         down("n2", START, START + 30, "fan"), down("n2", START + 40, START + 50, "fan")))
    assert [(i.nodes, i.seconds, i.reasons) for i in found.incidents] == [
        (("n1",), 30, ("dead", "dead : Not responding")), (("n2",), 30, ("fan",)), (("n2",), 10, ("fan",))]
    assert [(r.reason, r.incidents, r.node_seconds, r.longest) for r in by_reason(found.incidents)] == [
        ("fan", 2, 40, 30), ("dead", 1, 30, 30)]
    together = made(cluster(down("n1", START, START + 30, "fan"), down("n2", START, START + 30, "fan")))
    assert [i.nodes for i in together.incidents] == [("n1", "n2")]


# --- periods -------------------------------------------------------------------------------------------------------

NOW = at("2027-02-01T00:00:00")


@pytest.mark.parametrize(("text", "start", "end"), [
    ("2026-Q3", "2026-07-01", "2026-10-01"), ("2026q4", "2026-10-01", "2027-01-01"), ("2026-10", "2026-10-01",
                                                                                    "2026-11-01"),
    ("2026", "2026-01-01", "2027-01-01"), ("2026-07-01..2026-07-02", "2026-07-01", "2026-07-02"),
    ("2026-07-01T06:00..2026-07-02", "2026-07-01T06:00", "2026-07-02")])
def test_periods(text: str, start: str, end: str) -> None:
    found = period_of(text, NOW, BERLIN)
    assert (found.start, found.end, found.over) == (at(start, BERLIN), at(end, BERLIN), True)


def test_the_change_of_the_clock_is_an_hour_more_or_less() -> None:
    assert period_of("2026-10", NOW, BERLIN).seconds == 31 * 86400 + 3600
    assert period_of("2026-03", NOW, BERLIN).seconds == 31 * 86400 - 3600
    assert period_of("2026", NOW, BERLIN).seconds == 365 * 86400
    assert period_of("2026-07-01T00:00+02:00..2026-07-01T00:00Z", NOW, timezone.utc).seconds == 7200


def test_a_period_that_is_not_over_is_counted_up_to_now() -> None:
    now = at("2026-11-15T12:00:00")
    found = period_of("2026-Q4", now, timezone.utc)
    assert (found.end, found.over, found.whole_end) == (now, False, at("2027-01-01"))
    assert this_quarter(now, timezone.utc) == "2026-Q4"
    assert quarter_of("last", now, timezone.utc).name == "2026-Q3"
    assert quarter_of("last", at("2026-02-01"), timezone.utc).name == "2025-Q4"


@pytest.mark.parametrize("text", ["", "2026-Q5", "2026-13", "26", "..", "2026-07-01..", "2026-07-02..2026-07-01",
                                  "x..y", "2026-07-01..2026-07-01", "2027-Q4", "9999", "0000",
                                  "2026-02-30..2026-03-01"])
def test_what_is_no_period_is_one_line(text: str) -> None:
    with pytest.raises(UsageError):
        period_of(text, NOW, timezone.utc)
    with pytest.raises(UsageError):
        quarter_of(text, NOW, timezone.utc)


# --- what sacctmgr prints ------------------------------------------------------------------------------------------

def answers(nodes: str = "", reasons: str = "", *, clusters: str = "", config: str = "PurgeEventAfter = NONE\n",
            reservations: str = "", registered: str = "c||2026-07-01T00:00:00|Unknown||0||n[1-2]\n") -> Answers:
    return Answers(at("2026-10-01"), "22.05.8", f"{events.EVENT_HEAD}\n{registered}", f"{events.EVENT_HEAD}\n{nodes}",
                   f"NodeName|TimeStart|Reason\n{reasons}", f"ID|TimeStart|TimeEnd|Flags|NodeName\n{reservations}",
                   "ID|TimeStart|Name\n", f"SlurmDBD configuration:\n{config}",
                   f"Cluster|ControlHost|ControlPort\n{clusters}", 0, at("2026-10-01"))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda p: p.stem)
def test_recorded_answers_of_real_slurms(path: Path) -> None:
    kept = load_answers(path)
    slurm = read(kept)
    assert slurm.problems == ()
    assert slurm.cluster == "loopback"
    assert slurm.tracked is True
    assert slurm.purge == "24 months"
    assert slurm.known_until is None
    assert [sorted(m.nodes)[-1] for m in slurm.members] == ["n05", "n04"]
    assert len(slurm.outages) == 1
    hostile = next(e for e in slurm.events if e.node == "n01" and e.state.startswith("DRAIN"))
    assert hostile.reason is not None
    assert hostile.reason.endswith("\nn02|2020-01-01T00:00:00|pwned")
    assert {e.reason for e in slurm.events if e.node == "n02"} == {"cold-start", "maintenance: fan"}
    assert [r.name for r in slurm.reservations if r.maintenance] == ["power"]
    first = slurm.members[0].start
    period = Period("p", first - 60, kept.asked, kept.asked, timezone.utc)
    found = made(slurm, Rules(planned=("maintenance*",)), kept.asked, period)
    assert [n.name for n in found.nodes if n.of(Kind.ABSENT)] == ["n05"]
    assert node(found, "n02").of(Kind.PLANNED) > 0
    assert node(found, "n04").of(Kind.PLANNED) > 0
    assert all(n.of(Kind.UNKNOWN) >= 60 for n in found.nodes)
    assert {n.total for n in found.nodes} == {kept.asked - first + 60}


@given(st.lists(st.text(st.sampled_from("ab|\n\t\x1b\u202e,=n12"), max_size=30), min_size=1, max_size=5))
def test_no_reason_passes_for_a_row(texts: list[str]) -> None:
    rows, reasons = [], []
    for number, text in enumerate(texts):
        start = f"2026-07-01T00:00:{number:02d}"
        rows.append(f"c|n1|{start}|Unknown|DRAIN|514|root(0)|\n")
        reasons.append(f"n1|{start}|{text}\n")
    found = read(answers("".join(rows), "".join(reasons)))
    assert [e.start for e in found.events] == [at("2026-07-01") + n for n in range(len(texts))]
    assert [e.reason for e in found.events] == [text.rstrip("\n") for text in texts]


def test_a_reason_that_came_between_two_queries_is_not_known() -> None:
    found = read(answers("c|n1|2026-07-01T00:00:01|Unknown|DRAIN|514|root(0)|\n"
                         "c|n2|2026-07-01T00:00:02|Unknown|DRAIN|514|root(0)|\n", "n1|2026-07-01T00:00:01|x\n"))
    assert [e.reason for e in found.events] == ["x", None]


def test_rows_that_cannot_be_read_are_told_and_nothing_is_raised() -> None:
    found = read(answers("c|n1|soon|Unknown|DOWN|1||\nc|n1|2026-07-02T00:00:00|2026-07-01T00:00:00|DOWN|1||\nc|n1\n"
                         "c|n1|2026-07-01T25:61:00|Unknown|DOWN|x||\n", registered=""))
    assert len(found.problems) == 4
    assert found.events == ()
    with pytest.raises(ParseError):
        read(answers(registered="a||2026-07-01T00:00:00|Unknown||0||n1\nb||2026-07-01T00:00:00|Unknown||0||n1\n"))
    with pytest.raises(ParseError):
        read(replace(answers(), node_events="slurmdbd: error: no\n"))


def test_purged_and_not_connected() -> None:
    assert read(answers()).known_since is None
    months = read(answers(config="PurgeEventAfter = 2 months*\n"))
    assert (months.purge, months.known_since) == ("2 months*", at("2026-08-02"))
    assert read(answers(config="PurgeEventAfter = 30 days\n")).known_since == at("2026-09-01")
    assert read(answers(config="PurgeEventAfter = some day\n")).known_since == at("2026-10-01")
    assert "purges" in read(answers(config="")).problems[0]
    gone = read(answers("c|n1|2026-08-01T00:00:00|2026-08-02T00:00:00|DOWN|1||\n", clusters="c||0\n"))
    assert gone.known_until == at("2026-08-02")
    quarter = period_of("2026-Q3", at("2026-10-01"), timezone.utc)
    found = made(gone, now=at("2026-10-01"), period=quarter)
    assert found.whole.of(Kind.UNKNOWN) == 2 * (at("2026-10-01") - at("2026-08-02"))
    assert read(answers(clusters="c|10.0.0.1|6817\n")).known_until is None
    away = "c||2026-07-01T00:00:00|Unknown||0||n[1-2]\nc||2026-09-01T00:00:00|Unknown||1||\n"
    assert read(answers(clusters="c||0\n", registered=away)).known_until is None


@given(st.binary(max_size=200))
def test_a_file_of_kept_events_is_read_or_refused(raw: bytes) -> None:
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_bytes(raw)
        with pytest.raises(HpcadminError):
            load_answers(path)


def test_segments_are_tuples_of_their_parts() -> None:
    assert timeline(0, 2, []) == (Segment(0, 2, Kind.UNKNOWN, "nothing is known", ""),)
