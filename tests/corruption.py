"""Damage to sound outputs, kind by kind, and the verdict that a run would give: one frame for every family of tools.

A family says what its rows, its head and its ranks look like (corruption_families.py); the kinds of damage are the same
for all. `python tests/corruption_report.py` counts mutations by kind and verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from hpcadmin.check import Check, Context, Limit, Measurement, Output, ParseError, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.peers import lower_is_better
from hpcadmin.rundata import PlannedTest, TestResult

Texts = Iterator[str]

# What is no number where one must be. "-": the number that is there, below zero.
NO_NUMBERS = {"NaN": "nan", "inf": "inf", "minus inf": "-inf", "negative": "-", "zero": "0", "comma": "1,024.5",
              "hexadecimal": "0x10", "overflow": "1e999", "dashes": "--", "number lost": ""}
ERRORS = {
    "srun": (
        "srun: error: node01: task 0: Segmentation fault (core dumped)",
        "slurmstepd: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."),
    "MPI": (
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
        "mpirun noticed that process rank 5 with PID 1 on node gpu02 exited on signal 9 (Killed).",
        "Abort(1091215) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Init: Other MPI error"),
    "NCCL": (
        "gpu02: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '",
        "gpu02:4711:4720 [3] transport/net_ib.cc:2006 NCCL WARN NET/IB : Got completion from peer 192.0.2.1 with "
        "status=12", " .. gpu02 pid 4711: Test failure common.cu:915"),
    "kernel": (
        "[Mon Nov 30 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
        "[   71.2] Out of memory: Killed process 4711 ({program})",
        "[  812.1] {program}[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so.6"),
}
ENDS: tuple[dict[str, Any], ...] = (
    {"exit_status": 1}, {"exit_status": 137}, {"exit_status": 139}, {"exit_status": None}, {"timed_out": True},
    {"truncated": True})
# Each of these must be there for each family, or the family says why it cannot be.
KINDS = ("cut at a line", "cut within a number", "row dropped", "row doubled", "rows swapped",
         *(f"number: {kind}" for kind in NO_NUMBERS), "column removed", "column renamed", "unit changed",
         "marked wrong",
         *(f"error line of {who}" for who in ERRORS), "two runs joined", "two runs, one failed", "rank missing",
         "host missing", "end changed", "transport changed")
NOISE = ("CRLF", "ANSI colours", "invalid UTF-8", "10 MB of noise")


@dataclass(frozen=True)
class Damage:
    """One mutation: another text, or the same one that ended otherwise."""

    kind: str
    text: str
    end: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """A sound output with its run. place: which of its outputs is damaged."""

    name: str
    check: Check
    outputs: tuple[Output, ...]
    context: Context
    place: int = -1

    @property
    def text(self) -> str:
        return self.outputs[self.place].text

    @cached_property
    def measured(self) -> list[Measurement]:
        return self.check.parse(self.outputs, self.context)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        told = dict.fromkeys(n for m in self.measured for n in m.subject.nodes)
        return tuple(n.name for n in self.context.nodes) or tuple(told) or ("n1", "n2")

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Bounds that the sound output just reaches, so that it passes and what is slower fails."""
        found = []
        for m in self.measured:
            if m.key and m.expected is None and isinstance(m.value, float | int):
                low, high = (None, m.value * 1.02 + 1e-6) if lower_is_better(m) else (m.value * 0.98, None)
                high = max(high or 0.0, 1.0) if m.name == "clock_offset" else high
                found.append(Limit(self.check.name, m.name, m.unit, min=low, max=high, size_bytes=m.size_bytes,
                                   simulated=bool(self.context.simulated), source="the sample"))
        return tuple(found)

    def verdict(self, text: str | None = None, **end: Any) -> Status:
        """What a user would see of it."""
        outputs = list(self.outputs)
        outputs[self.place] = replace(outputs[self.place], text=self.text if text is None else text, **end)
        test = PlannedTest("t0001", self.check.name, Subject(self.nodes), (), 1)
        try:
            found, error = tuple(self.check.parse(outputs, self.context)), ""
        except ParseError as exc:
            found, error = (), str(exc)
        result = TestResult(test, found, error, simulated=self.context.simulated)
        return max((v.status for v in judge([result], self.limits)), key=lambda status: status.rank)


@dataclass(frozen=True)
class Family:
    """What outputs of a kind look like. The functions take a case; what they give must never pass.

    row: a line of the table, as a pattern; cell: a number in it. needed: lines up to the last of which nothing may be
    cut. lacks: kind of damage -> why this family cannot have it.
    """

    name: str
    cases: Callable[[], Sequence[Case]]
    row: re.Pattern[str]
    cell: re.Pattern[str] = re.compile(r"(?<!\S)[-+]?\d[\d.e+-]*(?!\S)")
    needed: re.Pattern[str] = re.compile(r".*\S")
    columns: Callable[[Case], Iterator[tuple[str, str]]] = lambda _: iter(())      # (removed or renamed, text)
    units: Callable[[Case], Texts] = lambda _: iter(())
    wrong: Callable[[Case], Texts] = lambda _: iter(())
    ranks: Callable[[Case], Texts] = lambda _: iter(())
    hosts: Callable[[Case], Texts] = lambda _: iter(())
    transports: Callable[[Case], Texts] = lambda _: iter(())
    failed: Callable[[Case], str] = lambda case: case.text[:len(case.text) // 2]
    more: Callable[[Case], Iterator[tuple[str, str]]] = lambda _: iter(())          # (kind of its own, text)
    lacks: dict[str, str] = field(default_factory=dict)
    free: Callable[[str, str, str, re.Match[str]], bool] = lambda *_: False   # (kind, text, row, cell): no damage
    alone: bool = False             # lines of other programs are no part of such an output: with them it is an ERROR
    without: tuple[str, ...] = ()   # kinds of the frame's own that are no damage here: each with its reason in `lacks`


def spread(items: Sequence[Any], most: int) -> Sequence[Any]:
    return items[:: max(1, -(-len(items) // most))]


def structural(family: Family, case: Case) -> Iterator[Damage]:
    """Damage after which nothing may pass, without repetitions."""
    seen: set[str] = {case.text}
    for kind, text in _texts(family, case):
        if text not in seen and kind not in family.without:
            seen.add(text)
            yield Damage(kind, text)
    for end in ENDS:
        yield Damage("end changed", case.text, end)


def _texts(family: Family, case: Case) -> Iterator[tuple[str, str]]:
    yield from _cuts(family, case.text)
    yield from _rows(family, case.text)
    yield from _numbers(family, case.text)
    yield from ((f"column {how}", text) for how, text in family.columns(case))
    for kind, texts in (("unit changed", family.units), ("marked wrong", family.wrong), ("rank missing", family.ranks),
                        ("host missing", family.hosts), ("transport changed", family.transports)):
        yield from ((kind, text) for text in texts(case))
    yield from _errors(family, case)
    yield from _joined(family, case)
    yield from family.more(case)


def rows_of(family: Family, lines: Sequence[str]) -> list[int]:
    return [n for n, line in enumerate(lines) if family.row.match(line.rstrip("\r\n"))]


def _cuts(family: Family, text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if family.needed.match(line))
    yield from (("cut at a line", "".join(lines[:n])) for n in spread(range(last + 1), 400))
    table, at = set(rows_of(family, lines)), 0
    within = []
    for n, line in enumerate(lines[:last + 1]):
        if n in table or n == last:
            within += [at + m.start() for m in re.finditer(r"(?<=[\d.])[\d.]|(?<=\d) (?=\S)", line)]
        at += len(line)
    end = sum(map(len, lines[:last + 1]))
    yield from (("cut within a number", text[:n]) for n in spread(within, 240))
    yield from (("cut within a line", text[:n]) for n in range(1, end - 2, max(1, end // 120)))
    yield from (("cut within a line", text[:n]) for n in range(max(0, end - 40), end - 2))


def _rows(family: Family, text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    rows = rows_of(family, lines)
    for n in spread(rows, 60):
        yield "row dropped", "".join(lines[:n] + lines[n + 1:])
        yield "row doubled", "".join([*lines[:n + 1], *lines[n:]])
        yield "row torn", "".join([*lines[:n], lines[n].split()[0] + "\n", *lines[n + 1:]])
    for a, b in spread(list(pairwise(rows)), 60):
        if lines[a].split()[0] != lines[b].split()[0]:          # two rows of one size have no order
            yield "rows swapped", "".join([*lines[:a], lines[b], *lines[a + 1:b], lines[a], *lines[b + 1:]])


def _numbers(family: Family, text: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    rows = rows_of(family, lines)
    chosen = spread(rows, 12)
    for n in chosen:
        for place in family.cell.finditer(lines[n].rstrip("\r\n")):
            a, b = begins[n] + place.start(), begins[n] + place.end()
            for kind, bad in NO_NUMBERS.items():
                new = {"-": f"-{place[0].lstrip('+-')}", "0": re.sub("[1-9]", "0", place[0])}.get(bad, bad)
                nothing = kind in ("zero", "negative") and not re.search(r"[1-9]", place[0])
                if nothing or family.free(kind, text, lines[n], place):
                    continue
                yield f"number: {kind}", text[:a] + new + text[b:]


def _errors(family: Family, case: Case) -> Iterator[tuple[str, str]]:
    lines = case.text.splitlines(keepends=True)
    rows = rows_of(family, lines)
    places = sorted({0, rows[len(rows) // 2] if rows else len(lines) // 2, len(lines)})
    for who, told in ERRORS.items():
        for line in told:
            for at in places:
                before = "".join(lines[:at])
                before += "\n" if before and not before.endswith("\n") else ""
                yield f"error line of {who}", before + line.format(program=case.check.name) + "\n" + "".join(lines[at:])


def _joined(family: Family, case: Case) -> Iterator[tuple[str, str]]:
    text, failed = case.text, family.failed(case)
    lines = text.splitlines(keepends=True)
    half = "".join(lines[:len(lines) * 2 // 3])
    yield "two runs joined", text + text
    for one, two in ((text, failed), (failed, text), (text, half), (half, text)):
        yield "two runs, one failed", one + two


def noise(case: Case) -> Iterator[Damage]:
    """What changes nothing that was measured; the 10 MB are added apart, since they take time."""
    text = case.text.replace("\r\n", "\n")
    yield Damage("CRLF", text.replace("\n", "\r\n"))
    yield Damage("ANSI colours", "".join(
        f"\x1b[1m{line}\x1b[0m\n" if line.strip() else line + "\n" for line in text.rstrip("\n").split("\n")))
    bad = b"\xff\xfe noise \x80\n".decode("utf-8", "replace") * 200
    yield Damage("invalid UTF-8", bad + text + bad)


def ten_megabytes(case: Case) -> Iterator[Damage]:
    lines = "a line of another program, 17 of 23, 0x1f, 3.5 GB/s\n" * 200_000
    yield Damage("10 MB of noise", lines + case.text)
    yield Damage("10 MB of noise", case.text + lines)


Counts = Counter[tuple[str, str]]


def tally(family: Family, case: Case, every: int = 1, first: int = 0) -> tuple[Counts, list[Damage]]:
    """(mutations by kind and verdict, those that passed). every: of the mutations of a kind the first, and each so
    many-th from `first` on."""
    counts: Counts = Counter()
    passed = []
    kinds: Counter[str] = Counter()
    for damage in structural(family, case):
        kinds[damage.kind] += 1
        if kinds[damage.kind] > 1 and (kinds[damage.kind] - first) % every:
            continue
        status = case.verdict(damage.text, **damage.end)
        counts[damage.kind, status.value] += 1
        if status is Status.PASS:
            passed.append(damage)
    return counts, passed
