"""Our verdicts over the table of configurations are those of NHC 1.4.3; where not, the table says why."""

import os
from pathlib import Path

import nhc_machine
import pytest

from hpcadmin.health.node import nhc, nhc_hw, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN
from hpcadmin.health.node.checks.nhc import CHECK

ROWS = [line.split("\t", 6) for line in (nhc_machine.SAMPLES / "table.tsv").read_text().split("\n")
        if line and line[0] != "#"]
MACHINES = sorted({row[0] for row in ROWS})
SLOW = ("compute", "netstat", "squeuefails", "moabold")
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the machine has files of several owners and devices")


def verdict(door: nhc_machine.TableDoor, host: str, conf: str) -> tuple[str, str, list[str]]:
    """(good, bad or unknown; the first check of that status; what was said)."""
    status, failed, said = GOOD, "", []
    for entry in nhc.entries(conf, host, lambda: nhc_hw.counts(door)):
        if not entry.here(host, "health"):
            continue
        one, reason, facts = watch.judged(watch.look(CHECK, door, CHECK.take(entry.params)))
        said += [reason, *(text for fact in facts for text in fact.get("notices", []))]
        if one == BAD:
            return BAD, str(entry.params["name"]), said
        if one == UNKNOWN and status != UNKNOWN:
            status, failed = UNKNOWN, str(entry.params["name"])
    return status, failed, said


def differing(rows: list[list[str]], root: Path) -> list[str]:
    wrong = []
    for _, host, status, failed, ours, _why, cell in rows:
        (root / "proc/sys/kernel/hostname").write_text(host + "\n")
        got, check, said = verdict(nhc_machine.TableDoor(root), host, nhc_machine.conf_text(cell))
        expected = ours or (GOOD if status == "0" else BAD)
        named = failed if "NHC_CHECK_ALL" not in cell else check   # of several NHC names the last
        if got != expected or (got == BAD and not ours and failed and check != named):
            wrong.append(f"{cell}\n    NHC {status} {failed}, wanted {expected}; ours {got} {check} {said}")
    return wrong


@ROOT
@pytest.mark.parametrize("machine", [
    pytest.param(name, marks=pytest.mark.deep) if name in SLOW else name for name in MACHINES])
def test_verdicts_are_those_of_nhc(machine: str, tmp_path: Path) -> None:
    nhc_machine.build(machine, tmp_path / "root")
    wrong = differing([row for row in ROWS if row[0] == machine], tmp_path / "root")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:40])


@ROOT
def test_some_verdicts_are_those_of_nhc(tmp_path: Path) -> None:
    nhc_machine.build("compute", tmp_path / "root")
    rows = [row for row in ROWS if row[0] == "compute" and " slow" not in row[6]][::37]
    assert not differing(rows, tmp_path / "root")


def test_the_table_is_whole() -> None:
    """Every check of NHC's has rows that pass and rows that fail; every difference has its reason."""
    assert all(row[2].isdigit() for row in ROWS)
    assert all(bool(row[4]) == bool(row[5]) and row[4] in ("", GOOD, BAD, UNKNOWN) for row in ROWS)
    for name in nhc.KNOWN:
        statuses = {row[2] != "0" for row in ROWS if f"|| {name}" in row[6]}
        assert statuses == {True, False}, name
