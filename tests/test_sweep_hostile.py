"""Ledger, lock and Slurm's answer as somebody else has left them; all of Slurm's states in all forms."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_models import DAY_S, FREE, NIGHT, FakeNodes, Given, Ledger, acts, health, night, no_answer, pair

from hpcadmin.errors import SlurmError, StoreError, UsageError
from hpcadmin.slurm.node_records import NodeRecord, parse_json, parse_text
from hpcadmin.sweep.ledger import History, fold
from hpcadmin.sweep.ledger_file import LEDGER, LOCK, LedgerFile, SweepLock, read_ledger
from hpcadmin.sweep.model import Entry
from hpcadmin.sweep.night import Diary, sweep
from hpcadmin.sweep.states import BASES, FLAGS, HARMLESS, SERVICE, hands_off
from hpcadmin.sweep.undo import find_sweep, undo

BAD = "bad: not mounted"


# --- the lock -------------------------------------------------------------------------------------------------------

def test_a_lock_that_was_removed_lets_no_second_sweep_in(tmp_path: Path) -> None:
    lock, book = SweepLock(tmp_path), LedgerFile(tmp_path)
    (tmp_path / LOCK).unlink()
    with pytest.raises(UsageError, match="another sweep writes to it"):
        sweep(tmp_path, FREE, FakeNodes.of("n1"), [], clock=lambda: NIGHT)
    book.close()
    lock.release()
    assert sweep(tmp_path, FREE, FakeNodes.of("n1"), [], clock=lambda: NIGHT).exit_status == 3


def test_a_sweep_that_was_stopped_is_told_of_when_it_has_been_so_for_long(tmp_path: Path) -> None:
    code = ("import signal, sys; from pathlib import Path; from hpcadmin.sweep.ledger_file import SweepLock\n"
            f"SweepLock(Path({str(tmp_path)!r})); print('held', flush=True); signal.pause()")
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(UsageError, match=f"another sweep runs: process {holder.pid} on "):
            SweepLock(tmp_path)
        long_ago = time.time() - 30 * 3600
        os.utime(tmp_path / LOCK, (long_ago, long_ago))
        with pytest.raises(StoreError, match=f"has held it for 30 hours: process {holder.pid} on "):
            SweepLock(tmp_path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()       # type: ignore[union-attr]
    assert SweepLock(tmp_path).stale.startswith(f"process {holder.pid} on ")


# --- the ledger -----------------------------------------------------------------------------------------------------

def begun(folder: Path) -> FakeNodes:
    slurm = FakeNodes.of("n1", "n2", "n3")
    sweep(folder, FREE, slurm, [Given([*health("n1", mount=BAD), *health("n2", mount=BAD)])], clock=lambda: NIGHT)
    return slurm


def test_a_line_that_is_there_twice_changes_nothing(tmp_path: Path) -> None:
    begun(tmp_path)
    once = fold(read_ledger(tmp_path))
    raw = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(raw + raw)
    twice = fold(read_ledger(tmp_path))
    assert (twice.ours, twice.pending, twice.problems, twice.drains) == (
        once.ours, once.pending, once.problems, once.drains)


@pytest.mark.parametrize("tail", [b"\0" * 4096, b'{"kind": "intent", "ti', b"\xff\xfe", b"\0"])
def test_what_a_crash_leaves_at_the_end_is_taken_away(tmp_path: Path, tail: bytes) -> None:
    slurm = begun(tmp_path)
    raw = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(raw + tail)
    now = NIGHT + DAY_S
    report = sweep(tmp_path, FREE, slurm, [Given(health("n1", now, mount="good"))], clock=lambda: now)
    assert acts(report) == {"n1": "resume", "n2": "keep"}
    assert (tmp_path / LEDGER).read_bytes().startswith(raw + b'{"kind"')


def test_every_length_of_the_ledger_is_read_and_acts_on_nothing_twice(tmp_path: Path) -> None:
    """Cut off at any byte, as by a power cut on a disk that lied: what Slurm says puts it right."""
    slurm = begun(tmp_path)
    raw = (tmp_path / LEDGER).read_bytes()
    asked = len(slurm.asked)
    for place in range(0, len(raw), 37):
        (tmp_path / LEDGER).write_bytes(raw[:place])
        report = sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT + 60)
        assert set(acts(report).values()) <= {"keep", "hold"}
        assert len(slurm.asked) == asked


@given(st.lists(st.integers(0, 40), max_size=6))
def test_folded_as_it_grows_it_is_the_same(cuts: list[int]) -> None:
    slurm, ledger = FakeNodes.of("n1", "n2", "n3"), Ledger()
    for number, words in enumerate((BAD, "good", BAD)):
        now = NIGHT + number * DAY_S
        night(slurm, ledger, [*health("n1", now, mount=words), pair("n2", "n3", words.partition(":")[0], now)], now=now)
    diary = Diary([], None)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(ledger.entries)], strict=True):
        diary.write(*ledger.entries[start:end])
        diary.history()
    whole, grown = fold(ledger.entries), diary.history()
    assert all(getattr(whole, item.name) == getattr(grown, item.name) for item in fields(History))


def test_an_empty_name_undoes_nothing(tmp_path: Path) -> None:
    slurm = begun(tmp_path)
    with pytest.raises(UsageError, match="no sweep is named"):
        undo(tmp_path, FREE, slurm, "", clock=lambda: NIGHT)
    assert find_sweep(fold(read_ledger(tmp_path)), "s2")


def test_the_last_sweep_is_read_also_where_it_did_nothing(tmp_path: Path) -> None:
    """What is undone is the last that did something."""
    with pytest.raises(UsageError, match="there was no sweep yet"):
        find_sweep(fold([]), "last", to_read=True)
    slurm = begun(tmp_path)
    quiet = sweep(tmp_path, FREE, slurm, [Given([])], clock=lambda: NIGHT + 60).run
    history = fold(read_ledger(tmp_path))
    assert find_sweep(history, "last", to_read=True) == quiet != find_sweep(history, "last")


def test_an_undo_that_slurm_ends_says_what_was_not_tried(tmp_path: Path) -> None:
    slurm = begun(tmp_path)
    slurm.at = no_answer("undrain n1")
    report = undo(tmp_path, FREE, slurm, "last", clock=lambda: NIGHT + 60)
    assert report.exit_status == 4
    assert {name: done.result for name, done in report.done.items()} == {"n1": "pending", "n2": "not tried"}


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_ledger_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / LEDGER).mkdir()
    slurm = FakeNodes.of("n1")
    with pytest.raises(StoreError):
        sweep(tmp_path, FREE, slurm, [Given(health("n1", mount=BAD))], clock=lambda: NIGHT)
    assert slurm.asked == []


# --- Slurm's answers ------------------------------------------------------------------------------------------------

def test_an_answer_with_errors_is_none() -> None:
    text = json.dumps({"nodes": [{"name": "n1", "state": ["IDLE"]}], "errors": [{"description": "Unable to contact"}]})
    with pytest.raises(SlurmError, match="Unable to contact"):
        parse_json(text)
    assert len(parse_json(text.replace("errors", "warnings"))) == 1


def test_a_node_that_is_missing_in_the_answer_is_not_acted_on() -> None:
    slurm, ledger = FakeNodes.of("n1", "n2"), Ledger()
    del slurm.nodes["n1"]
    assert acts(night(slurm, ledger, health("n1", mount=BAD))) == {}
    assert slurm.asked == []


def forms(base: str, flags: tuple[str, ...]) -> dict[str, NodeRecord]:
    """The same state as scontrol prints it, in JSON of 23.02 and later, and in that before."""
    told = {"name": "n1", "reason": "", "comment": ""}
    return {
        "text": parse_text(f"NodeName=n1 Arch=x86_64 State={'+'.join([base, *flags])} ThreadsPerCore=1\n")[0],
        "list": parse_json(json.dumps({"nodes": [{**told, "state": [base, *flags]}]}))[0],
        "flags": parse_json(json.dumps({"nodes": [{**told, "state": base.lower(), "state_flags": list(flags)}]}))[0],
    }


EVERY = sorted({*FLAGS, *HARMLESS, "UNDRAIN", "RESUME", "NEVER_HEARD_OF"})


@pytest.mark.parametrize("base", [*SERVICE, *BASES])
def test_every_state_with_every_two_flags_in_every_form(base: str) -> None:
    for count in range(3):
        for flags in combinations(EVERY, count):
            fit = base in SERVICE and set(flags) <= HARMLESS
            for form, record in forms(base, flags).items():
                assert (hands_off(record) == "") == fit, (base, flags, form)


@pytest.mark.parametrize("state", [
    "DOWN*+DRAIN+INVALID_REG", "MIXED+PLANNED", "IDLE+DRAIN", "IDLE+MAINTENANCE+RESERVED", "IDLE+CLOUD+POWERED_DOWN",
    "IDLE*+CLOUD", "MIXED-", "IDLE~", "ALLOCATED+DRAIN", "MIXED+DRAIN", "UNKNOWN+INVALID_REG", "IDLE+REBOOT_REQUESTED",
    "IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED", "IDLE+CLOUD+POWER_DOWN+POWERING_DOWN", "", "+", "DRAIN"])
def test_states_of_several_words_are_left_alone(state: str) -> None:
    assert hands_off(parse_text(f"NodeName=n1 State={state} Reason=x\n")[0], {"x": None})


def test_each_entry_has_its_place_in_the_ledger() -> None:
    """What is not known there is for readers of a later version, and changes nothing."""
    assert fold([Entry("something", 1.0)]) == History()
