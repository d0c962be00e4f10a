"""The sweep's ledger on disk, its lock, its sources of looks, undo, rotation, and the readers of Slurm's nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_models import DAY_S, FREE, NIGHT, FakeNodes, Given, acts, health, pair

from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.errors import SiteError, SlurmError, StoreError, UsageError
from hpcadmin.rundata import Manifest, Run
from hpcadmin.site import parse_site
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.command_line import parse_nodes
from hpcadmin.slurm.node_records import parse_json, parse_text
from hpcadmin.sweep.budget import budget, limit
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.ledger_file import LEDGER, LedgerFile, SweepLock, read_ledger
from hpcadmin.sweep.model import Entry, Kind, Result
from hpcadmin.sweep.night import Report, sweep
from hpcadmin.sweep.rotate import circle, rotation
from hpcadmin.sweep.sources import HealthFolder, parse_health, verdict_looks
from hpcadmin.sweep.undo import undo

BAD = "bad: /home is not mounted"


# --- the ledger on disk ---------------------------------------------------------------------------------------------

def write(folder: Path, *entries: Entry) -> None:
    book = LedgerFile(folder)
    for entry in entries:
        book.write(entry)
    book.close()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    one = Entry("intent", NIGHT, "s1", 3, "s1/1", "n1", "drain", ("health/x",), ("node",), {"health/x": ("a", "b")},
                "hpcadmin: x [s1]", boot_time=1.5, text="ü\n\x1b")
    write(tmp_path, one, Entry("outcome", NIGHT, "s1", id="s1/1", result="done"))
    assert read_ledger(tmp_path)[0] == one
    assert (tmp_path / LEDGER).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", ["{", '{"kind":"intent","time":1', "x" * 200_000])
def test_a_line_that_was_cut_off_is_none_and_is_taken_away(tmp_path: Path, torn: str) -> None:
    write(tmp_path, Entry("begin", NIGHT, "s1"))
    with (tmp_path / LEDGER).open("a") as file:
        file.write(torn)
    assert [e.run for e in read_ledger(tmp_path)] == ["s1"]
    write(tmp_path, Entry("begin", NIGHT, "s2"))
    assert [e.run for e in read_ledger(tmp_path)] == ["s1", "s2"]


@pytest.mark.parametrize("line", ["garbage", "{}", '{"kind":1,"time":2}', '{"kind":"begin","time":1,"new":2}', "[]"])
def test_a_damaged_line_stops_everything(tmp_path: Path, line: str) -> None:
    write(tmp_path, Entry("begin", NIGHT, "s1"))
    with (tmp_path / LEDGER).open("a") as file:
        file.write(f"{line}\n")
    slurm = FakeNodes.of("n1")
    with pytest.raises(StoreError, match=r"ledger\.jsonl:2"):
        sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert slurm.asked == []


def test_a_ledger_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    (tmp_path / LEDGER).symlink_to(tmp_path / "other")
    with pytest.raises(StoreError):
        sweep(tmp_path, FREE, FakeNodes.of("n1"), [], clock=lambda: NIGHT)


def test_a_full_disk_touches_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeNodes.of("n1")

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("hpcadmin.sweep.ledger_file.os.write", full)
    with pytest.raises(StoreError, match="No space left"):
        sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert slurm.asked == []


def test_the_intent_is_on_disk_before_slurm_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    slurm, fsync = FakeNodes.of("n1"), os.fsync

    def synced(fd: int) -> None:
        fsync(fd)
        told.append(read_ledger(tmp_path)[-1].kind if (tmp_path / LEDGER).read_bytes() else "folder")
    monkeypatch.setattr("hpcadmin.sweep.ledger_file.os.fsync", synced)
    slurm.at = told.append
    sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert told == ["folder", "begin", "all", "intent", "one n1", "drain n1", "after drain n1", "one n1", "outcome",
                    "problem", "end"]


def test_two_sweeps_never_run_at_once(tmp_path: Path) -> None:
    lock = SweepLock(tmp_path)
    slurm = FakeNodes.of("n1")
    with pytest.raises(UsageError, match=f"another sweep runs: process {os.getpid()} on "):
        sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert slurm.asked == []
    lock.release()
    assert sweep(tmp_path, FREE, slurm, [], clock=lambda: NIGHT).exit_status == 3


def test_the_lock_of_a_sweep_that_was_killed_is_known_as_such(tmp_path: Path) -> None:
    code = ("import os, sys; from pathlib import Path; from hpcadmin.sweep.ledger_file import SweepLock\n"
            f"SweepLock(Path({str(tmp_path)!r})); os._exit(9)")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=False, env=env)
    report = sweep(tmp_path, FREE, FakeNodes.of("n1"), [], clock=lambda: NIGHT)
    assert any("was killed: process " in note for note in report.notes)
    assert not sweep(tmp_path, FREE, FakeNodes.of("n1"), [], clock=lambda: NIGHT).notes[:-1]


def test_a_dry_run_makes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    looks = [Given(health("n1", mount=BAD))]
    report = sweep(folder, FREE, FakeNodes.of("n1"), looks, dry_run=True, clock=lambda: NIGHT)
    assert acts(report) == {"n1": "drain"}
    assert not folder.exists()


# --- undo -----------------------------------------------------------------------------------------------------------

def begun(folder: Path) -> tuple[FakeNodes, Report]:
    slurm = FakeNodes.of("n1", "n2", "n3")
    looks = [*health("n1", mount=BAD), *health("n2", mount=BAD)]
    return slurm, sweep(folder, FREE, slurm, [Given(looks)], clock=lambda: NIGHT)


def test_undo_takes_back_what_is_still_as_it_was_left(tmp_path: Path) -> None:
    slurm, first = begun(tmp_path)
    slurm.set("n2", reason="mine, Anna")
    report = undo(tmp_path, FREE, slurm, first.run, clock=lambda: NIGHT + 60)
    assert slurm.asked[2:] == ["undrain n1"]
    assert report.exit_status == 1
    assert slurm.nodes["n2"].reason == "mine, Anna"
    assert undo(tmp_path, FREE, slurm, first.run, clock=lambda: NIGHT + 90).exit_status == 1
    assert len(slurm.asked) == 3


def test_what_was_undone_is_left_alone_until_it_has_passed(tmp_path: Path) -> None:
    slurm, first = begun(tmp_path)
    undo(tmp_path, FREE, slurm, "last", clock=lambda: NIGHT + 60)
    slurm.settle()

    def on(day: int, word: str) -> dict[str, str]:
        now = NIGHT + day * DAY_S
        return acts(sweep(tmp_path, FREE, slurm, [Given(health("n1", now, mount=word))], clock=lambda: now))
    assert on(1, BAD) == {"n1": "tell"}
    assert on(2, "good") == {}
    assert on(3, BAD) == {"n1": "drain"}
    assert first.run in {e.undoes for e in read_ledger(tmp_path) if e.kind == "begin"}


def test_undo_lets_a_node_go_on_which_jobs_run(tmp_path: Path) -> None:
    slurm, first = begun(tmp_path)
    slurm.set("n1", "MIXED+DRAIN")
    undo(tmp_path, FREE, slurm, first.run, clock=lambda: NIGHT + 60)
    assert "undrain n1" in slurm.asked


def test_undo_of_a_resume_and_of_an_undo_drain_again(tmp_path: Path) -> None:
    slurm, _ = begun(tmp_path)
    now = NIGHT + DAY_S
    second = sweep(tmp_path, FREE, slurm, [Given(health("n1", now, mount="good"))], clock=lambda: now)
    assert acts(second)["n1"] == "resume"
    slurm.settle()
    report = undo(tmp_path, FREE, slurm, second.run, clock=lambda: now + 60)
    assert (slurm.asked[-1], report.exit_status) == ("drain n1", 0)
    assert set(fold(read_ledger(tmp_path)).ours) == {"n1", "n2"}


def test_undo_in_a_dry_run(tmp_path: Path) -> None:
    slurm, first = begun(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()
    report = undo(tmp_path, FREE, slurm, first.run, dry_run=True, clock=lambda: NIGHT + 60)
    assert acts(report) == {"n1": "resume", "n2": "resume"}
    assert (tmp_path / LEDGER).read_bytes() == before
    assert slurm.asked == ["drain n1", "drain n2"]


def test_undo_of_a_comment(tmp_path: Path) -> None:
    slurm, policy = FakeNodes.of("n1"), replace(FREE, node="comment")
    first = sweep(tmp_path, policy, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert slurm.nodes["n1"].comment
    undo(tmp_path, policy, slurm, first.run, clock=lambda: NIGHT + 60)
    assert slurm.nodes["n1"].comment == ""


def test_undo_of_strikes_makes_them_void(tmp_path: Path) -> None:
    slurm = FakeNodes.of("n1", "n2", "n3")
    strikes = [pair("n1", "n2", "bad"), pair("n1", "n3", "bad")]
    sweep(tmp_path, FREE, slurm, [Given(strikes)], clock=lambda: NIGHT)
    undo(tmp_path, FREE, slurm, "last", clock=lambda: NIGHT + 60)
    slurm.settle()
    assert acts(sweep(tmp_path, FREE, slurm, [Given(strikes)], clock=lambda: NIGHT + DAY_S)) == {}


@pytest.mark.parametrize(("name", "message"), [("nonsense", "there is no sweep"),
                                               ("s2", "is the beginning of 2 sweeps")])
def test_undo_of_what_is_not_there(tmp_path: Path, name: str, message: str) -> None:
    begun(tmp_path)
    begun(tmp_path)
    with pytest.raises(UsageError, match=message):
        undo(tmp_path, FREE, FakeNodes.of("n1"), name, clock=lambda: NIGHT)


def test_a_drain_of_which_nothing_is_known_counts_for_the_budget() -> None:
    history = fold([Entry("intent", NIGHT, "s1", 1, "s1/1", "n1", "drain", reason="r")])
    told = budget(replace(FREE, total_nodes=1), history, 9, all_nodes=10, faulty=1, drains=1, comments=0)
    assert told.drains
    assert not budget(replace(FREE, total_nodes=2), history, 9, all_nodes=10, faulty=1, drains=1, comments=0).drains


@pytest.mark.parametrize(("nodes", "percent", "everyone", "most"), [
    (5, 5.0, 1000, 5), (5, 5.0, 40, 2), (5, 5.0, 10, 1), (5, 0.0, 10, 0), (0, 50.0, 10, 0), (5, 100.0, 3, 3)])
def test_limits_of_the_budget(nodes: int, percent: float, everyone: int, most: int) -> None:
    assert limit(nodes, percent, everyone) == most


# --- looks ----------------------------------------------------------------------------------------------------------

TREE = {"status": "bad", "node": "n1", "time": NIGHT - 60, "boot": "abc", "mode": "health", "results": [
    {"check": "mount:home", "status": "bad", "reason": "not mounted", "facts": [], "hardware": False, "seconds": 0.1},
    {"check": "gpu", "status": "good", "reason": "", "facts": [], "hardware": True, "seconds": 0.1}]}


def test_health_is_read() -> None:
    one, two = parse_health(json.dumps(TREE), "n1", NIGHT, 3600)
    assert (one.check, one.result, one.kind, one.text, one.boot) == (
        "health/mount:home", Result.BAD, Kind.NODE, "not mounted", "abc")
    assert (two.result, two.kind) == (Result.GOOD, Kind.HARDWARE)


def test_simulated_hardware_is_said_wherever_its_faults_go() -> None:
    lost = {**TREE["results"][1], "status": "bad", "reason": "7 of 8 GPUs"}
    tree = {**TREE, "simulated": "8xH100", "results": [TREE["results"][0], lost, TREE["results"][1]]}
    assert [look.text for look in parse_health(json.dumps(tree), "n1", NIGHT, 3600)] == [
        "not mounted", "simulated 8xH100: 7 of 8 GPUs", ""]
    tree["simulated"] = {"no": "text"}
    assert parse_health(json.dumps(tree), "n1", NIGHT, 3600)[1].text == "7 of 8 GPUs"


@pytest.mark.parametrize(("change", "why"), [
    ({"node": "n2"}, "is of 'n2'"), ({"time": NIGHT - 9000}, "hours old"), ({"time": NIGHT + 9000}, "future"),
    ({"time": "x"}, "no time"), ({"time": True}, "no time"), ({"time": 10 ** 400}, "no time"),
    ({"time": -10 ** 400}, "no time"), ({"time": float("nan")}, "no time"),
    ({"results": []}, "0 checks"), ({"results": 1}, "not of"),
    ({"results": [1]}, "none"), ({"results": [{"check": "x", "status": []}]}, "without"),
    ({"results": [{"check": "", "status": "bad"}]}, "without"),
    ({"results": [{"check": "x", "status": "fine"}]}, "without"),
])
def test_what_is_not_sound_is_unknown(change: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_health(json.dumps({**TREE, **change}), "n1", NIGHT, 3600)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "[" * 100_000, '{"results":'])
def test_no_json_is_unknown(text: str) -> None:
    with pytest.raises(ValueError, match="result is"):
        parse_health(text, "n1", NIGHT, 3600)


def test_a_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text(json.dumps(TREE))
    (tmp_path / "n2.json").write_text("{")
    (tmp_path / "n4.json").symlink_to(tmp_path / "n1.json")
    found = HealthFolder(tmp_path, 1).looks(["n1", "n2", "n3", "n4"], NIGHT)
    assert {look.node for look in found.looks} == {"n1"}
    assert set(found.unmeasured) == {"n2", "n3", "n4"}
    assert found.unmeasured["n3"] == "no result"


def test_verdicts_of_a_run() -> None:
    def verdict(check: str, status: Status, *nodes: str) -> Verdict:
        return Verdict(check, Subject(nodes), status, f"{check} is {status.value}")
    manifest = Manifest("r1", "quick", (), "complete", "2027-01-15T07:00:00+00:00", "2027-01-15T07:30:00+00:00")
    run = Run(Path("r"), manifest,
              verdicts=(verdict("copy", Status.PASS, "n1"), verdict("copy", Status.FAIL, "n1"),
                        verdict("copy", Status.ERROR, "n2"), verdict("ib", Status.FAIL, "n2", "n1"),
                        verdict("ib", Status.PASS, "n1", "n3"), verdict("all", Status.FAIL, "n1", "n2", "n3"),
                        verdict("x", Status.NOT_APPLICABLE, "n1"), verdict("copy", Status.FAIL, "n9")))
    found = verdict_looks(run, {"n1", "n2", "n3"}, NIGHT, DAY_S)
    assert [(k.check, k.node, k.partner, k.result.value, k.kind.value) for k in found.looks] == [
        ("test/copy", "n1", "", "bad", "test"), ("test/copy", "n2", "", "unknown", "test"),
        ("test/ib", "n1", "n2", "bad", "network"), ("test/ib", "n1", "n3", "good", "network")]
    assert "days old" in verdict_looks(run, {"n1"}, NIGHT + 9 * DAY_S, DAY_S).notes[0]
    assert found.notes == ("all failed on 3 nodes together in run r1: all is FAIL",)


# --- the rotation ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("count", range(1, 71))
def test_in_so_many_nights_each_pair_has_met(count: int) -> None:
    names = [f"n{i}" for i in range(count)]
    plan = rotation(names)
    assert plan.pair_nights == (0 if count == 1 else count - 1 if count % 2 == 0 else count)
    for first in (0, 739_000 + count // 2):
        met = [p for night in range(first, first + plan.pair_nights) for p in plan.pairs_of(night)]
        assert len(met) == len(set(met)) == count * (count - 1) // 2


@given(st.integers(0, 40), st.integers(0, 25), st.integers(0, 45), st.integers(0, 800_000))
@settings(max_examples=40)
def test_rotation(count: int, most_pairs: int, most_nodes: int, first: int) -> None:
    names = [f"n{i}" for i in range(count)]
    plan = rotation(reversed(names), pairs=most_pairs, nodes=most_nodes)
    met, alone = set(), set()
    for night in range(first, first + plan.pair_nights):
        pairs = plan.pairs_of(night)
        assert pairs == plan.pairs_of(night)
        assert len({n for p in pairs for n in p}) == 2 * len(pairs), "nobody has two partners"
        assert not most_pairs or len(pairs) <= most_pairs
        met |= set(pairs)
    for night in range(first, first + plan.node_nights):
        assert not most_nodes or len(plan.nodes_of(night)) <= most_nodes
        alone |= set(plan.nodes_of(night))
    assert len(met) == count * (count - 1) // 2
    assert alone == set(names)


def test_a_round_of_many_nodes_is_quick() -> None:
    assert len(circle(10_000, 1234)) == 5000


# --- Slurm's nodes --------------------------------------------------------------------------------------------------

LINE = ("NodeName=n01 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUTot=4 OS=Linux 6.18 #1 SMP @0  RealMemory=1000 "
        "State=IDLE+DRAIN ThreadsPerCore=1 Partitions=val  BootTime=2026-11-30T03:12:39 "
        "SlurmdStartTime=2026-11-30T21:18:51 ExtSensorsTemp=n/s ")
WHO = "[root@2026-11-30T21:18:53]"


@pytest.mark.parametrize(("rest", "reason", "comment"), [
    ("", "", ""),
    (f"Reason=hpcadmin: mount:home: away (+1 more) [s2026-3fa2] {WHO}",
     "hpcadmin: mount:home: away (+1 more) [s2026-3fa2]", ""),
    (f"Reason=a [x] {WHO} Comment=hello [x] a@b Reason=foo Extra=ext ra", "a [x]", "hello [x] a@b Reason=foo"),
    (f"Comment=x Reason=hpcadmin: forged [s1] {WHO}", "", f"x Reason=hpcadmin: forged [s1] {WHO}"),
    ("Extra=x Reason=forged Comment=y", "", ""),
    (f"Reason=a {WHO}        NodeName=n02 State=IDLE           Comment=x Comment=com Extra=xt ReservationName=m",
     "a        NodeName=n02 State=IDLE", "x Comment=com"),
    ("Reason=Not responding [slurm@2026-01-02T03:04:05]", "Not responding", ""),
])
def test_reason_and_comment_in_text(rest: str, reason: str, comment: str) -> None:
    (node,) = parse_text(LINE + rest)
    assert (node.reason, node.comment) == (reason, comment)
    assert node.state.flags == {"DRAIN"}
    assert node.boot_time is not None
    assert node.reservation == ("m" if "ReservationName" in rest else "")


def test_a_node_that_a_comment_tells_of_makes_both_unclear() -> None:
    two = LINE.replace("n01", "n02")
    nodes = {n.name: n for n in parse_text(f"{LINE}Comment=x\nNodeName=n02 State=IDLE\n{two}\n")}
    assert nodes["n02"].unclear
    assert not nodes["n01"].unclear


@pytest.mark.parametrize("text", ["garbage\n", "slurm_load_node error\n"])
def test_text_that_is_something_else(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_text(text)
    assert parse_text("") == parse_text("No nodes in the system\n") == ()


def test_json_of_several_versions() -> None:
    new = {"name": "n01", "state": ["IDLE", "RESERVED", "DRAIN"], "reason": "a\nNodeName=n02 State=IDLE",
           "comment": "c", "boot_time": {"set": True, "infinite": False, "number": 1796008360},
           "reason_set_by_user": "root", "reason_changed_at": {"set": True, "infinite": False, "number": 5},
           "reservation": "m"}
    old = {"name": "n02", "state": "idle", "state_flags": ["MAINTENANCE"], "reason": "", "boot_time": 0,
           "comment": None}
    one, two = parse_json(json.dumps({"nodes": [new, old]}))
    assert (one.reason, one.reason_by, one.boot_time, one.reservation) == (
        "a\nNodeName=n02 State=IDLE", "root", 1796008360.0, "m")
    assert one.state.flags == {"RESERVED", "DRAIN"}
    assert (two.state.flags, two.boot_time, two.comment) == ({"MAINTENANCE"}, None, "")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 1}', '{"nodes": [1]}', '{"nodes": [{"name": "x"}]}',
                                  '{"nodes": [{"name": 1, "state": "IDLE"}]}', "[" * 100_000])
def test_json_that_is_something_else(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_json(text)


# --- the site -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("table", "message"), [
    ({"hardware": "reboot"}, "sweep.hardware must be one of drain, comment, tell"),
    ({"checks": {"x": "off"}}, "sweep.checks.x must be one of"), ({"strikes": 1}, "sweep.strikes must be at least 2"),
    ({"night_nodes": -1}, "sweep.night_nodes must be at least 0"), ({"night_percent": 101.0}, "percentage"),
    ({"passes": 0}, "at least 1"), ({"answer_s": 0.0}, "more than 0"), ({"stop": 1}, "is not known"),
    ({"resume": "yes"}, "resume"),
])
def test_a_policy_that_cannot_be_followed(table: dict, message: str) -> None:
    with pytest.raises(SiteError, match=message):
        parse_site({"sweep": table}, "site.toml")


def test_the_policy_of_a_site_that_says_nothing() -> None:
    assert parse_site({}, "site.toml").sweep == SweepSite()


def test_what_the_node_part_really_writes_is_read(tmp_path: Path) -> None:
    """The JSON of hpcadmin-health, run here on a node of ordinary values, as the sweep's source takes it."""
    root, out = tmp_path / "root", tmp_path / "results"
    (root / "proc").mkdir(parents=True)
    out.mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 500 kB\nSwapTotal: 2048 kB\n"
                                       "SwapFree: 2048 kB\n")
    done = subprocess.run([sys.executable, "-m", "hpcadmin.health.node", "--root", str(root), "--node", "n1", "--json",
                           str(out / "n1.json"), "swap", "nosuch"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=60)
    assert done.returncode == 3, done.stderr
    found = HealthFolder(out, 1).looks(["n1"], time.time())
    assert found.unmeasured == {}
    assert {look.check: look.result for look in found.looks} == {
        "health/swap": Result.GOOD, "health/nosuch": Result.UNKNOWN}


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "samples/slurm").glob("*.json")), ids=lambda p: p.stem)
def test_recorded_nodes_are_read_as_the_back_end_reads_them(path: Path) -> None:
    (text,) = {call["out"] for call in json.loads(path.read_text())["calls"]
               if call["argv"][0] == "scontrol" and call["argv"][-1] == "nodes" and "--oneliner" in call["argv"]}
    told = parse_text(text)
    assert [(n.name, n.state, n.reason) for n in told] == [(n.name, n.state, n.reason) for n in parse_nodes(text)]
    assert {n.reason for n in told if n.reason}
    assert not any(n.unclear for n in told)
