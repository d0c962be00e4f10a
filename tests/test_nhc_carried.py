"""Entries that were carried over from nhc.conf judge as NHC 1.4.3 does; where not, a line above the entry says so."""

import os
import re
from collections import Counter
from pathlib import Path

import nhc_machine
import nhc_ours
import pytest
from test_nhc_table import ROWS

from hpcadmin.health.compile import compile_text
from hpcadmin.health.genconf_nhc import from_nhc
from hpcadmin.health.node import config, load, watch
from hpcadmin.health.node.api import BAD, GOOD, UNKNOWN

pytestmark = [pytest.mark.deep, pytest.mark.skipif(
    os.geteuid() != 0, reason="the machine has files of several owners and devices")]

# What a line above an entry says -> (NHC's verdict, ours) that it stands for.
TOLD = {
    "the last line has no newline": {(GOOD, BAD)},
    "NHC does not understand": {(GOOD, BAD)},
    "NHC without a maximum always fails": {(BAD, GOOD)},
    "names no sockets on ARM": {(GOOD, BAD), (BAD, GOOD)},
    "NHC is content with one port": {(GOOD, BAD)},
    "instead of mcelog's answer": {(BAD, GOOD)},
    "NHC compares with all options as one text": {(BAD, GOOD)},
    "NHC does not see a mount whose name has a blank": {(BAD, GOOD), (GOOD, BAD)},
    "the limit itself is good here": {(BAD, GOOD)},
    "mounted = true would fail it where nothing is mounted": {(GOOD, UNKNOWN)},
    "a missing file is unknown here": {(GOOD, BAD), (BAD, GOOD), (GOOD, UNKNOWN), (BAD, UNKNOWN)},
    "of a symbolic link NHC looks at the link itself": {(GOOD, BAD), (BAD, GOOD)},
    "a command that is not there": {(GOOD, UNKNOWN), (BAD, UNKNOWN)},
    "only of the last 24 hours": {(BAD, GOOD)},
    "looked for in every section": {(BAD, GOOD)},
    "all that are on the PCI bus, at least one": {(GOOD, BAD)},
    "a process that has ended": {(GOOD, BAD)},
    "each blank counts": {(GOOD, BAD)},
    "the kernel's name of the process will do": {(BAD, GOOD), (GOOD, BAD)},
    "the ratio between NUMA nodes is not compared": {(BAD, GOOD)},
    "who has a job is seen by Slurm's cgroups": {(GOOD, BAD), (BAD, GOOD)},
}
# The machine of folders lacks these altogether, or prints too little: unknown is right, whatever NHC makes of it.
ABSENT = re.compile(r"^(dmidecode did not answer|ping [\d.]+ said: |\S*/(proc|sys)/\S*: No such file)")
# Said of lines that are left out -> NHC's verdicts; where NHC answers otherwise, it is for the words that follow.
ALWAYS = {"NHC fails it always": BAD, "NHC never fails it": GOOD, "it tests nothing": GOOD}
ODD = {"* || check_hw_cpuinfo two", "* || check_fs_used /tmp 0%", "* || check_fs_used /tmp abc",
       "* || check_fs_iused /tmp 0%", "* || check_fs_iused /tmp abc", "* || check_file_stat /data/nothere",
       "* || check_ps_time -a -0 10"}


def judged(text: str, machine: Path, host: str) -> tuple[str, list[str]] | None:
    """Our verdict on the machine and the reasons; None where the file has no entry."""
    compiled = compile_text(text, "health.toml")
    faults = [problem.what for problem in compiled.problems if not problem.warning]
    if any("no [[check]]" in what for what in faults):
        return None
    assert not faults, faults
    (machine / "proc/sys/kernel/hostname").write_text(host + "\n")
    door, status, reasons = nhc_ours.OursDoor(machine), GOOD, []
    for entry in config.parse(dict(compiled.tree)).entries:
        if entry.here(host, "health"):
            check = load.named(entry.use)
            one, reason, _ = watch.judged(watch.look(check, door, check.take(entry.params)))
            reasons += [reason] if one != GOOD else []
            status = BAD if BAD in (one, status) else UNKNOWN if UNKNOWN in (one, status) else GOOD
    return status, reasons


def test_what_is_carried_over_judges_as_nhc_or_says_why_not(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    silent = []
    for machine, host, code, _failed, _ours, _why, cell in ROWS:
        text = from_nhc(nhc_machine.conf_text(cell), "nhc.conf")
        left = [why for why in re.findall(r"not carried over: (.*)", text)
                if "NHC's own behaviour" not in why and "used in the lines below" not in why]
        root = tmp_path / machine
        if not root.exists():
            nhc_machine.build(machine, root)
            nhc_ours.complete(root)
        wanted = GOOD if code == "0" else BAD
        found = judged(text, root, host)
        if found is None or left:
            counts["left out"] += 1
            silent += [f"{cell}\n    NHC {wanted}, left out: {why}" for why in left for said, verdict in ALWAYS.items()
                       if found is None and len(left) == 1 and said in why and verdict != wanted and cell not in ODD]
            continue
        got, reasons = found
        if got == wanted:
            counts["the same"] += 1
        elif got == UNKNOWN and all(ABSENT.match(reason) for reason in reasons):
            counts["absent"] += 1
        elif any(said in text and (wanted, got) in pairs for said, pairs in TOLD.items()):
            counts["told"] += 1
        else:
            silent.append(f"{cell}\n    on {machine} NHC {wanted}, ours {got} {reasons}\n{text}")
    assert not silent, f"{len(silent)} differ and do not say so\n" + "\n".join(silent[:30])
    assert counts["the same"] > 1500 and counts["told"] < 160 and counts["absent"] < 30, counts


def test_what_is_always_or_never_failed_is_an_exception_only_where_it_is_known() -> None:
    assert {row[6] for row in ROWS} >= ODD
