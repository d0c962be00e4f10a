"""Damaged outputs of perftest: what is damaged never passes, a changed digit gives what the row then says.

    python tests/test_corrupt_perftest.py        # how many of which damage got which verdict
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from check_samples import sound_samples

from hpcadmin.check import Check, Context, Limit, Output, ParseError, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs" / "perftest"
CAPTURED = {"atomic_bw_roce_rdmacm_client.txt": "ib_atomic_bw", "read_bw_roce_rdmacm_client.txt": "ib_read_bw",
            "send_bw_roce_rdmacm_client.txt": "ib_send_bw", "read_lat_roce_rdmacm_client.txt": "ib_read_lat",
            "send_lat_roce_rdmacm_client.txt": "ib_send_lat", "atomic_lat_roce_rdmacm_client.txt": "ib_atomic_lat"}
REMARK = re.compile(r".*CPU Frequency is not max\.\n")
NEEDED = re.compile(r" ?(?:Device|Number of qps|Connection type|Mtu|Link type| *(?:Send|RDMA|Atomic)\S*.* Test$"
                    r"| *Dual-port|(?:local|remote) address|GID:)")
ERRORS = (
    " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n",
    "srun: error: node01: task 0: Segmentation fault (core dumped)\n",
    "slurmstepd: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***\n",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n", " Failed to modify QP 15 to RTR\n",
    "mpirun noticed that process rank 1 with PID 7 on node n2 exited on signal 9 (Killed).\n",
    "Couldn't connect to n1:18515\n", "[  71.2] Out of memory: Killed process 4711 (ib_write_bw)\n")


@dataclass(frozen=True)
class Case:
    """A sound output with its run, and the bound that its value reaches just so."""

    name: str
    check: Check
    outputs: tuple[Output, ...]
    context: Context
    limit: Limit

    @property
    def text(self) -> str:
        return self.outputs[-1].text

    def verdict(self, text: str | None = None, **end: object) -> Status:
        """Of the damaged text, or of the whole one that ended otherwise."""
        last = replace(self.outputs[-1], text=self.text if text is None else text, **end)
        test = PlannedTest("t1", self.check.name, Subject(("n1", "n2")), (), 1)
        try:
            result = TestResult(test, tuple(self.check.parse([*self.outputs[:-1], last], self.context)))
        except ParseError as exc:
            result = TestResult(test, (), str(exc))
        return max((v.status for v in judge([result], [self.limit])), key=lambda status: status.rank)


def case_of(name: str, check: str, outputs: Sequence[Output], context: Context) -> Case:
    one = load_checks()[check]
    key = next(m for m in one.parse(outputs, context) if m.key)
    worst = {"max": float(key.value) * 1.02} if key.unit == "us" else {"min": float(key.value) * 0.98}
    limit = Limit(check, key.name, key.unit, size_bytes=key.size_bytes, source="the sample", date="2026-11-30", **worst)
    return Case(name, one, tuple(outputs), context, limit)


@cache
def cases() -> tuple[Case, ...]:
    found = [case_of(f"{s.check}/{s.path.stem}", s.check, s.outputs(), s.context) for s in sound_samples()
             if s.check.startswith("ib_") and "links" not in s.check]
    for name, check in CAPTURED.items():
        if (CORPUS / name).is_file():
            text = REMARK.sub("", (CORPUS / name).read_text())       # of a clock that is not at its highest: a WARN
            found.append(case_of(name, check, [Output(text)], Context()))
    return tuple(found)


def rows(lines: Sequence[str]) -> list[int]:
    head = max((n for n, line in enumerate(lines) if line.strip().startswith("#bytes")), default=len(lines))
    return [n for n, line in enumerate(lines) if n > head and re.match(r" *\d+ +\d+ ", line)]


def structural(text: str) -> Iterator[tuple[str, str]]:
    """(what was done, the damaged text). None of them may pass."""
    lines = text.rstrip("\n").splitlines(keepends=True)
    table = rows(lines)
    yield from (("cut at a line", "".join(lines[:n])) for n in range(len(lines)))
    begin = sum(map(len, lines[:table[0]]))
    yield from (("cut within a row", text[:n]) for n in range(begin, begin + 2500) if n < len(text.rstrip()) - 1)
    yield from (("cut within a line", text[:n]) for n in range(0, begin, max(1, begin // 60)))
    yield from (("line lost", "".join(lines[:n] + lines[n + 1:])) for n in range(len(lines))
                if NEEDED.match(lines[n]) or n in table or lines[n].strip().startswith("#bytes"))
    for n in table:
        yield "row doubled", "".join([*lines[:n + 1], *lines[n:]])
        yield "row of another run", "".join([*lines[:n + 1], *rewritten(lines[n]), *lines[n + 1:]])
        for place in list(re.finditer(r"\S+", lines[n]))[:9]:
            for bad in ("nan", "inf", "-inf", f"-{place[0]}", "1,024.5", "0x10", "1e999", "--", ""):
                yield f"number is {'negative' if bad[1:] == place[0] else bad or 'lost'}", "".join(
                    [*lines[:n], lines[n][:place.start()] + bad + lines[n][place.end():], *lines[n + 1:]])
    for a, b in pairwise(table):
        yield "rows swapped", "".join([*lines[:a], lines[b], *lines[a + 1:b], lines[a], *lines[b + 1:]])
    yield from of_head(text)
    for error in ERRORS:
        yield from (("error line", "".join([*lines[:n], error, *lines[n:]])) for n in (0, 5, table[0], len(lines)))
    half = "".join(lines[:len(lines) // 2])
    yield from (("two runs", joined) for joined in (text + text, text + half, half + text, text + ERRORS[0]))


def rewritten(row: str) -> tuple[str, ...]:
    words = row.split()
    return (row.replace(words[1], str(int(words[1]) + 7), 1),)


def of_head(text: str) -> Iterator[tuple[str, str]]:
    """Damage to the names of columns, to units, to the link."""
    head = next(line for line in text.splitlines() if line.strip().startswith("#bytes"))
    for column in re.findall(r"#\w+|BW \w+\[\S+\]|MsgRate\S+|t_\w+\[\S+\]|99\.?9?% percentile\S+|tps average", head):
        yield "column lost", text.replace(head, head.replace(column, "", 1))
        yield "column renamed", text.replace(head, head.replace(column, "Another[x]", 1))
        unit = {"Gb/sec": "MB/sec", "MB/sec": "Gb/sec", "MiB/sec": "Gb/sec", "usec": "nsec"}
        for old, new in unit.items():
            if old in column and column.startswith(("BW average", "t_")):
                yield "unit changed", text.replace(head, head.replace(column, column.replace(old, new), 1))
                yield "unit changed", text.replace(head, head.replace(old, new))
    other = "Ethernet" if re.search(r"Link type +: IB", text) else "IB"
    for link in (other, "Unknown"):
        yield "link changed", re.sub(r"(Link type +: )\w+", rf"\g<1>{link}", text)
    yield "test changed", re.sub(r"(?m)^ +\S.* Test$", " " * 20 + "Recv BW Test", text)
    yield "host lost", re.sub(r"remote address.*\n", "\n", text)
    yield "port lost", re.sub(r"(local address: LID )\S+", r"\g<1>0xffff", text, count=1) if other == "IB" else ""


def by_hand(text: str) -> bool:
    """Whether each row of the text agrees with itself: its own few lines, apart from what is tested."""
    lines = text.splitlines()
    table = [[float(word) for word in lines[n].split()] for n in rows(lines)]
    if "t_avg[usec]    tps" in text:
        return all(abs(r[2] - 5e5 / r[3]) <= 0.0051 + 0.002 * 5e5 / r[3] for r in table)
    if "t_min" in text:
        return all(r[2] <= r[4] <= r[7] <= r[8] <= r[3] and r[2] <= r[5] <= r[3] and r[6] <= r[3] for r in table)
    factor = 8e-3 if "average[Gb/sec]" in text else 1e6 / 2 ** 20
    near = all(abs(r[4] * r[0] * factor - r[3]) <= 0.0051 + 5.1e-7 * r[0] * factor + 0.002 * r[3] for r in table)
    return near and all(not r[2] or r[2] >= r[3] - 0.0051 for r in table)


def digits(case: Case) -> Iterator[tuple[str, bool]]:
    """(a text with one digit of the table changed, whether it then still reaches the bound by hand)."""
    text, limit = case.text, case.limit
    lines = text.splitlines(keepends=True)
    names = re.findall(r"#\w+|BW \w+\[|MsgRate|t_\w+\[|99\.?9?% perc|tps average",
                       next(line for line in lines if line.strip().startswith("#bytes")))
    column = names.index("BW average[" if limit.min else f"{limit.measurement}[")
    factor = 8 * 2 ** 20 / 1e9 if "B/sec" in text and "Gb/sec" not in text else 1.0
    for n in rows(lines)[:3] + rows(lines)[-1:]:
        for place in re.finditer(r"\d", lines[n]):
            for new in {"1", "9", str((int(place[0]) + 1) % 10)} - {place[0]}:
                row = lines[n][:place.start()] + new + lines[n][place.end():]
                changed = "".join([*lines[:n], row, *lines[n + 1:]])
                table = [[float(w) for w in (row if at == n else lines[at]).split()] for at in rows(lines)]
                sizes = [r[0] for r in table]
                right = next((r for r in table if r[0] == limit.size_bytes), None)
                good = right is not None and min(min(r[:2]) for r in table) >= 1 and all(
                    b == 2 * a for a, b in pairwise(sizes)) and by_hand(changed)
                if right and limit.min:
                    good = good and right[column] * factor >= limit.min
                elif right and limit.max:
                    good = good and 0 < right[column] <= limit.max and all(min(r[2:6]) > 0 for r in table)
                yield changed, good


NAMES = [case.name for case in cases()]
pytestmark = pytest.mark.deep


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_whole(case: Case) -> None:
    assert case.verdict() is Status.PASS


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_structural_damage_never_passes(case: Case) -> None:
    done = list(structural(case.text))
    assert len(done) >= 200
    for what, text in done:
        assert case.verdict(text) is not Status.PASS, (what, text)


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_a_changed_digit_gives_what_the_row_then_says(case: Case) -> None:
    for text, good in digits(case):
        assert (case.verdict(text) is Status.PASS) is good, text[text.find("#bytes"):]


@pytest.mark.parametrize("case", cases(), ids=NAMES)
@pytest.mark.parametrize("end", [{"exit_status": 1}, {"exit_status": None}, {"exit_status": 137}, {"timed_out": True},
                                 {"truncated": True}], ids=str)
def test_a_bad_end_never_passes(case: Case, end: dict) -> None:
    assert case.verdict(**end) is not Status.PASS


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_noise_changes_nothing(case: Case) -> None:
    text = case.text
    coloured = "".join(f"\x1b[1m{line}\x1b[0m\n" for line in text.split("\n"))
    noise = b"\xff\xfe noise \x80\n".decode("utf-8", "replace") * 200
    for other in (text.replace("\n", "\r\n"), coloured, noise + text + noise, text.rstrip("\n")):
        assert case.verdict(other) is Status.PASS


def test_ten_megabytes_of_noise() -> None:
    case = cases()[0]
    assert case.verdict("a line of another program, 17 of 23\n" * 280_000 + case.text) is Status.PASS


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases():
        counts.update((what, case.verdict(text).value) for what, text in structural(case.text))
        counts.update(("digit changed" + ("" if good else ", bad by hand"), case.verdict(text).value)
                      for text, good in digits(case))
    for (what, status), count in sorted(counts.items()):
        sys.stdout.write(f"{what:<28} {status:<10} {count:>7}\n")


if __name__ == "__main__":
    main()
