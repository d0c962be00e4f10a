"""Damaged outputs of nccl-tests: what lacks or contradicts something never passes; a changed digit is judged rightly.

    python tests/test_corrupt_nccl.py        # counts by mutation and verdict
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from check_samples import sound_samples

from hpcadmin.check import Check, Context, Limit, Measurement, Output, ParseError, Role, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.model import Inventory, Node
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs"
ROW = re.compile(r"(?m)^(?:\S*<stdout>: ?)? *\d+ +\d+ +[a-z]\w+ .*$")
CELL = re.compile(r"(?<![\w.:@,-])\d[\d.e+-]*(?![\w.:,@-])")
BAD_CELLS = ("nan", "inf", "-inf", "-7", "1,024.5", "0x10", "1e999", "--", "")
ERRORS = (
    "gpu02: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '",
    "gpu02: Test CUDA failure common.cu:422 'uncorrectable ECC error encountered'",
    " .. gpu02 pid 4711: Test failure common.cu:915",
    "gpu02:4711:4720 [3] transport/net_ib.cc:2006 NCCL WARN NET/IB : Got completion from peer 192.0.2.1 with status=12",
    "gpu02:4711:4720 [3] misc/socket.cc:72 NCCL WARN socketProgress: Connection reset by peer",
    "srun: error: gpu02: task 9: Segmentation fault (core dumped)",
    "slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "mpirun noticed that process rank 5 with PID 1 on node gpu02 exited on signal 9 (Killed).",
    "[Mon Nov 30 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
    "[  812.1] all_reduce_perf[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2",
)

Mutation = tuple[str, str, dict[str, Any]]       # kind, text, how the program ended


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    check: Check
    text: str
    context: Context = field(default_factory=Context)

    def measurements(self, text: str, **outcome: Any) -> list[Measurement]:
        return self.check.parse([Output(text, role=Role.RANKS, **outcome)], self.context)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Nine tenths of what the sound output has, so that it passes."""
        return tuple(Limit(self.check.name, m.name, m.unit, min=0.9 * float(m.value), size_bytes=m.size_bytes,
                           simulated=bool(self.context.simulated), source="test")
                     for m in self.measurements(self.text) if m.key and m.unit)

    def verdict(self, text: str, **outcome: Any) -> Status:
        """What a user would see of it."""
        try:
            found = self.measurements(text, **outcome)
        except ParseError:
            return Status.ERROR
        nodes = tuple(dict.fromkeys(n for m in found for n in m.subject.nodes)) or ("file",)
        test = PlannedTest("t0001", self.check.name, Subject(nodes), (), 1)
        result = TestResult(test, tuple(found), simulated=self.context.simulated)
        inventory = Inventory(tuple(Node(n, simulated=self.context.simulated) for n in nodes))
        return max((v.status for v in judge([result], self.limits, inventory)), key=lambda s: s.rank)


@cache
def cases() -> tuple[Case, ...]:
    checks = load_checks()
    found = [Case(f"{s.check}/{s.path.stem}", checks[s.check], s.text, s.context) for s in sound_samples()
             if s.check.startswith("nccl_")]
    if CORPUS.is_dir():
        answers = json.loads((CORPUS / "expected-network.json").read_text())
        found += [Case(file, checks[a["check"]], (CORPUS / file).read_text()) for file, a in answers.items()
                  if file.startswith("nccl/") and a["sound"] and a["check"] in checks]
    return tuple(found)


def with_rows() -> list[Case]:
    return [case for case in cases() if ROW.search(case.text)]


def spread(items: list[Any], most: int) -> list[Any]:
    return items[:: max(1, -(-len(items) // most))]


def structural(case: Case) -> Iterator[Mutation]:
    """Damage after which nothing may pass."""
    yield from cuts(case.text)
    yield from rows_moved(case.text)
    yield from cells_changed(case.text)
    yield from heads_changed(case.text)
    yield from marked_wrong(case.text)
    yield from said_beside(case.text)
    yield from ranks_lost(case)
    for outcome in ({"exit_status": 1}, {"exit_status": 137}, {"exit_status": 139}, {"exit_status": None},
                    {"timed_out": True}, {"truncated": True}):
        yield f"ended: {next(iter(outcome))}", case.text, outcome


def cuts(text: str) -> Iterator[Mutation]:
    lines = text.rstrip().splitlines(keepends=True)
    for n in range(len(lines)):
        yield "cut after a line", "".join(lines[:n]), {}
    for row in spread([m.end() for m in ROW.finditer(text)], 30):
        for back in (1, 3, 9, 40):
            yield "cut within a row", text[:row - back], {}


def rows_moved(text: str) -> Iterator[Mutation]:
    lines = text.splitlines(keepends=True)
    rows = [n for n, line in enumerate(lines) if ROW.match(line.rstrip())]
    for n in rows:
        yield "row dropped", "".join(lines[:n] + lines[n + 1:]), {}
        yield "row doubled", "".join([*lines[:n + 1], *lines[n:]]), {}
    for a, b in pairwise(rows):
        if lines[a].split()[0] != lines[b].split()[0]:          # two rows of size 0 have no order
            yield "rows swapped", "".join([*lines[:a], lines[b], lines[a], *lines[b + 1:]]), {}


def cells_changed(text: str) -> Iterator[Mutation]:
    places = [(row.start() + n.start(), row.start() + n.end()) for row in ROW.finditer(text)
              for n in CELL.finditer(row[0])]
    for begin, end in spread(places, 24):
        for bad in BAD_CELLS:
            yield f"cell {bad or 'lost'}", text[:begin] + bad + text[end:], {}
    for row in spread(list(ROW.finditer(text)), 8):
        words = row[0].split()
        for n in (2, 3, len(words) - 1):
            torn = " ".join([*words[:n], *words[n + 1:]])
            yield "cell dropped", text[:row.start()] + torn + text[row.end():], {}
        yield "cells added", text[:row.end()] + "  12.5" + text[row.end():], {}


def heads_changed(text: str) -> Iterator[Mutation]:
    header = next(re.finditer(r"(?m)# +((?:size|bytes) .*busbw.*)$", text))
    for word in re.finditer(r"#?[A-Za-z]+", header[1]):
        at = header.start(1) + word.start()
        for new in ("", "other"):
            if word[0] not in ("redop", "root", "timestamp"):
                yield f"column {'renamed' if new else 'removed'}", text[:at] + new + text[at + len(word[0]):], {}
    for old, new in (("(us)", "(ms)"), ("(GB/s)", "(Gb/s)"), ("(GB/s)", "(MB/s)"), ("(B)", "(KB)"), ("(us)", "")):
        yield "unit changed", text.replace(old, new, 1), {}
        yield "unit changed", text.replace(old, new), {}
    for words in ("# nThread", "# Using devices", "# Out of bounds", "# Avg bus"):
        yield "line dropped", re.sub(rf"(?m)^.*{words}.*\n", "", text), {}
    yield "line damaged", re.sub(r"(?m)maxBytes (\d+)", "maxBytes", text), {}


def marked_wrong(text: str) -> Iterator[Mutation]:
    """Wrong data, as the table or the end tells it."""
    for row in spread(list(ROW.finditer(text)), 12):
        cells = [n for n in CELL.finditer(row[0]) if n[0] in ("0", "0e+00", "5e-07") and n.start() > 60]
        for cell in cells:
            at = row.start() + cell.start()
            for wrong in ("1", "2.68435e+08", "N/A"):
                yield f"#wrong {wrong}", text[:at] + wrong + text[row.start() + cell.end():], {}
    for new in ("1 FAILED", "108 FAILED", "0 FAILED", "3 OK", "FAILED"):
        yield "out of bounds", re.sub(r"(values\s*: )0 OK", rf"\g<1>{new}", text), {}
    yield "validation off", text.replace("validation: 1", "validation: 0"), {}


def said_beside(text: str) -> Iterator[Mutation]:
    lines = text.splitlines(keepends=True)
    for line in ERRORS:
        for at in (0, len(lines) // 2, len(lines)):
            yield "error line", "".join([*lines[:at], line + "\n", *lines[at:]]), {}
    failed = text.replace("0 OK", "4 FAILED")
    half = "".join(lines[:len(lines) * 2 // 3])
    for one, two in ((text, failed), (failed, text), (text, half), (half, text), (text, text)):
        yield "two runs", one + two, {}


def ranks_lost(case: Case) -> Iterator[Mutation]:
    lines = case.text.splitlines(keepends=True)
    ranks = [n for n, line in enumerate(lines) if re.search(r"# +Rank +\d", line)]
    for n in ranks:
        yield "rank dropped", "".join(lines[:n] + lines[n + 1:]), {}
        yield "rank doubled", "".join([*lines[:n + 1], *lines[n:]]), {}
    if case.context.nodes and ranks:
        host = re.search(r" on +(\S+) device", lines[ranks[-1]])
        assert host is not None
        yield "host renamed", case.text.replace(f"{host[1]} device", "stranger device"), {}
        yield "host missing", "".join(line for n, line in enumerate(lines) if n not in ranks or host[1] not in line), {}


def harmless(case: Case) -> Iterator[Mutation]:
    """What changes nothing that was measured."""
    text = case.text
    yield "CRLF", text.replace("\r\n", "\n").replace("\n", "\r\n"), {}
    lines = text.splitlines(keepends=True)
    yield "ANSI", "".join(f"\x1b[1m{line}\x1b[0m" if line.strip() else line for line in lines), {}
    yield "invalid UTF-8", "\ufffd\ufffd noise \ufffd\n" + text, {}
    yield "warning before", "libibverbs: Warning: no driver for mlx4\n" + text, {}
    yield "warning behind", text + "\nsome other program says hello\n", {}


def tally(case: Case, mutations: Iterator[Mutation]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """(count by kind and verdict, those that passed)."""
    counts: Counter[tuple[str, str]] = Counter()
    passed = []
    for kind, text, outcome in mutations:
        status = case.verdict(text, **outcome)
        counts[kind, status.value] += 1
        if status is Status.PASS and (text != case.text or outcome):
            passed.append(f"{kind}: {text[-300:]!r}")
    return counts, passed


def one_of_each_kind(case: Case) -> Iterator[Mutation]:
    seen: Counter[str] = Counter()
    for kind, text, outcome in structural(case):
        seen[kind] += 1
        if seen[kind] <= 2:
            yield kind, text, outcome


def test_sound_outputs_pass() -> None:
    for case in cases():
        assert case.verdict(case.text) is (Status.PASS if "ok" in case.name or "tagged" in case.name else case.verdict(
            case.text)), case.name
    assert sum(case.verdict(case.text) is Status.PASS for case in cases()) >= 12


@pytest.mark.parametrize("name", ["nccl_allgather/ok_2x8_h200_ib", "nccl_allreduce/ok_without_context"])
def test_a_few_of_each_kind_do_not_pass(name: str) -> None:
    case = next(c for c in cases() if c.name == name)
    assert not tally(case, one_of_each_kind(case))[1]


@pytest.mark.deep
@pytest.mark.parametrize("case", with_rows(), ids=lambda c: c.name)
def test_structural_damage_never_passes(case: Case) -> None:
    counts, passed = tally(case, structural(case))
    assert sum(counts.values()) >= 200
    assert not passed, passed[:3]


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_harmless_changes_change_nothing(case: Case) -> None:
    wanted = case.verdict(case.text)
    for kind, text, outcome in harmless(case):
        assert case.verdict(text, **outcome) is wanted, kind


def test_json_reports() -> None:
    """Cut anywhere, or with a value that is none, a key twice or two reports, nothing passes."""
    case = next(c for c in cases() if c.name.endswith("json_report"))
    text = case.text.rstrip()
    for end in range(0, len(text), 37):
        assert case.verdict(text[:end]) is Status.ERROR
    numbers = list(re.finditer(r'"(?:size|count|time|alg_bw|bus_bw|nwrong|rank|bandwidth)":([\d.]+)', text))
    for match in spread(numbers, 60):
        for bad in ("NaN", '"nan"', "Infinity", "-1.5", "null", "true", '"1.0"', "1e999", "{}", "77777.25"):
            assert case.verdict(text[:match.start(1)] + bad + text[match.end(1):]) is not Status.PASS, (match[0], bad)
    for changed in (text + text, text + "\n" + text, text.replace('"results"', '"result"'), "{" + text,
                    text.replace('"okay":"true"', '"okay":"false"'), text.replace('"errors":[""]', '"errors":["bad"]'),
                    text.replace('"validation":1', '"validation":0'), text.replace('"count":0', '"count":3'),
                    text.replace('"version":3', '"version":3,"config":{}'), text.replace("all_reduce", "reduce")):
        assert case.verdict(changed) is not Status.PASS, changed[:80]


def oracle(row: str, factor: float, limit: float) -> Status | None:
    """An independent reader of a row's out-of-place half. None: too close to say whether it agrees."""
    words = row.split()
    size, time, algbw, busbw = (float(words[n]) for n in (0, 5, 6, 7))
    off = max(abs(size / time / 1e3 / max(algbw, 1e-9) - 1), abs(algbw * factor / max(busbw, 1e-9) - 1))
    if off > 0.02:
        return Status.ERROR
    return None if off > 0.0005 else Status.PASS if busbw >= limit else Status.FAIL


@pytest.mark.deep
def test_a_changed_digit_is_judged_as_an_independent_reader_does() -> None:
    case = next(c for c in cases() if c.name == "nccl_allreduce/ok_2x8_h100")
    limit = case.limits[0].min
    assert limit is not None
    row = list(ROW.finditer(case.text))[-1]
    told: Counter[str] = Counter()
    for n, char in enumerate(row[0]):
        if char.isdigit() and 60 < n < 80:
            for digit in "0123456789":
                changed = row[0][:n] + digit + row[0][n + 1:]
                wanted = oracle(changed, 1.875, limit)
                got = case.verdict(case.text[:row.start()] + changed + case.text[row.end():])
                told[got.value] += 1
                assert got is wanted or wanted is None or got is Status.ERROR, (changed, got, wanted)
                assert got is not Status.PASS or wanted in (None, Status.PASS), changed
    assert told["PASS"] >= 10 and told["ERROR"] >= 50


def test_a_slow_run_that_agrees_with_itself_fails() -> None:
    case = next(c for c in cases() if c.name == "nccl_allreduce/ok_2x8_h100")
    row = list(ROW.finditer(case.text))[-1]
    slow = "8589934592 2147483648 float sum -1  69199.4  124.13  232.75  0  34738.1  247.28  463.64  0"
    text = case.text[:row.start()] + slow + case.text[row.end():]
    rows = [float(w) for r in ROW.finditer(text) for w in (r[0].split()[7], r[0].split()[11])]
    text = re.sub(r"bandwidth    : [\d.]+", f"bandwidth    : {sum(rows) / len(rows):g}", text)
    assert case.verdict(text) is Status.FAIL


@pytest.mark.deep
def test_ten_megabytes_of_noise_change_nothing() -> None:
    case = next(c for c in cases() if c.name == "nccl_allgather/ok_2x8_h200_ib")
    noise = "".join(f"gpu01:41200:41233 [0] NCCL INFO comm 0x55 rank {n} says nothing of use, {n:x}\n"
                    for n in range(140_000))
    lines = case.text.splitlines(keepends=True)
    assert len(noise) > 9_000_000
    assert case.verdict(noise + case.text) is Status.PASS
    assert case.verdict("".join(lines[:30]) + noise + "".join(lines[30:])) is Status.PASS


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in with_rows():
        counts += tally(case, structural(case))[0]
    statuses = sorted({status for _, status in counts})
    sys.stdout.write(f"| mutation | {' | '.join(statuses)} |\n|---|{'---|' * len(statuses)}\n")
    for kind in dict.fromkeys(kind for kind, _ in counts):
        sys.stdout.write(f"| {kind} | {' | '.join(str(counts[kind, s]) for s in statuses)} |\n")


if __name__ == "__main__":
    main()
