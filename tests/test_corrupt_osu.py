"""Damaged outputs of OSU and of our own MPI programs: what is damaged never passes, a changed digit gives what it says.

    python tests/test_corrupt_osu.py        # how many of which damage got which verdict
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

from hpcadmin.check import Check, Context, Limit, Output, ParseError, Reading, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs" / "osu"
CAPTURED = {
    "osu_latency_alaska_ib-gcc9-impi-verbs.out": "osu_latency", "osu_bw_alaska_ib-gcc9-openmpi4-ucx.out": "osu_bw",
    "osu_bibw_alaska_roce-gcc9-openmpi4-ucx.out": "osu_bibw",
    "osu_mbw_mr_16_alaska_ib-gcc9-impi-verbs.out": "osu_mbw_mr",
    "osu_allreduce_csd3_cclake-ib-gcc9-ompi3-ucx.out": "osu_allreduce", "barrier_pkb_v571_impi.txt": "osu_barrier",
    "osu_alltoall_csd3_cclake-roce-gcc9-ompi3-ucx.out": "osu_alltoall", "ibarrier_pkb_v571_impi.txt": "osu_ibarrier",
    "osu_allgather_alaska_roce-gcc9-impi-verbs.out": "osu_allgather"}
# Lines without which an output is not whole. Others (how often, which data type) may be missing.
NEEDED = re.compile(r"# OSU |# Size|# \[ pairs|# Avg|\W*Overall\(us\)|\[0\] MPI startup\(\): \d|rank \d|# ring|# sum|"
                    r"# end|# rank|# hpcadmin|# bytes| *\d+(\.\d\d)? +[\d.]")
ROW = re.compile(r" *\d+(?:\.\d\d)? +[\d.]")
ERRORS = (
    "srun: error: node01: task 0: Segmentation fault (core dumped)\n",
    "slurmstepd: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***\n",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n", "MPI_ABORT was invoked on rank 1\n",
    "[1733000000.1] [n2:42:0]   ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB\n",
    "[n1:4711] pml_ucx.c:424  Error: ucp_ep_create(proc=1) failed: Destination is unreachable\n",
    "mpirun noticed that process rank 1 with PID 7 on node n2 exited on signal 9 (Killed).\n",
    "libfabric:42:1701770603::cxi:mr:cxip_do_map():90<warn> nid001001: cxil_map() failed: -22\n",
    "Abort(1091215) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Init: Other MPI error\n",
    "[  71.2] Out of memory: Killed process 4711 (osu_bw)\n", "ORTE has lost communication with a remote daemon.\n",
    "DATA VALIDATION ERROR: ./osu_bw exited with status 1 on message size 2048.\n")


@dataclass(frozen=True)
class Case:
    """A sound output with its run, and the bounds that its key values reach just so."""

    name: str
    check: Check
    output: Output
    context: Context
    limits: tuple[Limit, ...]
    names: tuple[str, ...]      # of the nodes that its values are about

    def verdict(self, text: str | None = None, **end: object) -> Status:
        """Of the damaged text, or of the whole one that ended otherwise."""
        output = replace(self.output, text=self.output.text if text is None else text, **end)
        names = tuple(n.name for n in self.context.nodes) or self.names
        test = PlannedTest("t1", self.check.name, Subject(names), (), 1)
        try:
            result = TestResult(test, tuple(self.check.parse([output], self.context)))
        except ParseError as exc:
            result = TestResult(test, (), str(exc))
        return max((v.status for v in judge([result], self.limits)), key=lambda status: status.rank)


def case_of(name: str, check: str, output: Output, context: Context) -> Case:
    one = load_checks()[check]
    limits = []
    measured = one.parse([output], context)
    for m in measured:
        if m.key and m.expected is None:
            value = float(m.value)
            worst = {"min": value * 0.98} if m.unit in ("MB/s", "msg/s") else {"max": value * 1.02 + 1e-6}
            limits.append(Limit(check, m.name, m.unit, size_bytes=m.size_bytes, source="the sample", **worst))
    if check == "mpi_hello":
        limits = [Limit(check, "clock_offset", "s", max=1.0, source="the sample")]
    names = tuple(dict.fromkeys(n for m in measured for n in m.subject.nodes)) or ("n1", "n2")
    return Case(name, one, output, context, tuple(limits), names)


@cache
def cases() -> tuple[Case, ...]:
    """Each sample as it ran, and by itself, without its run."""
    found = []
    for s in sound_samples():
        if s.check.startswith(("osu_", "mpi_")) and s.path.stem.startswith("ok") and "warnings" not in s.path.stem:
            name = f"{s.check}/{s.path.stem}"
            found.append(case_of(name, s.check, s.outputs()[0], s.context))
            if s.check.startswith("osu_") and "limited" not in name:
                found.append(case_of(f"{name} alone", s.check, s.outputs()[0], Context()))
    for name, check in CAPTURED.items():
        if (CORPUS / name).is_file():
            found.append(case_of(name, check, Output((CORPUS / name).read_text()), Context()))
    return tuple(found)


def structural(text: str) -> Iterator[tuple[str, str]]:
    """(what was done, the damaged text). None of them may pass."""
    lines = text.rstrip("\n").splitlines(keepends=True)
    table = [n for n, line in enumerate(lines) if ROW.match(line)]
    needed = [n for n, line in enumerate(lines) if NEEDED.match(line)]
    yield from (("cut at a line", "".join(lines[:n])) for n in range(needed[-1] + 1))
    end = sum(map(len, lines[:needed[-1] + 1])) - 2
    yield from (("cut within a line", text[:n]) for n in range(0, end, max(1, end // 400)))
    yield from (("end cut", text[:n]) for n in range(max(0, end - 60), end))
    yield from (("line lost", "".join(lines[:n] + lines[n + 1:])) for n in needed)
    for n in table:
        yield "row doubled", "".join([*lines[:n + 1], *lines[n:]])
        yield "row torn", "".join([*lines[:n], lines[n].split()[0] + "\n", *lines[n + 1:]])
    for n in table[::6] + table[-1:]:
        for place in list(re.finditer(r"\S+", lines[n]))[:9]:
            for bad in ("nan", "inf", "-inf", f"-{place[0]}", "1,024.5", "0x10", "1e999", "--", ""):
                yield f"number is {'negative' if bad[1:] == place[0] else bad or 'lost'}", "".join(
                    [*lines[:n], lines[n][:place.start()] + bad + lines[n][place.end():], *lines[n + 1:]])
    for a, b in pairwise(table):
        yield "rows swapped", "".join([*lines[:a], lines[b], *lines[a + 1:b], lines[a], *lines[b + 1:]])
    yield from of_head(text)
    for error in ERRORS:
        yield from (("error line", "".join([*lines[:n], error, *lines[n:]]))
                    for n in sorted({0, needed[0], needed[-1], len(lines)}))
    half = "".join(lines[:needed[-1]])
    yield from (("two runs", joined) for joined in (text + text, text + half, half + text, text + ERRORS[0]))


def of_head(text: str) -> Iterator[tuple[str, str]]:
    """Damage to the title, to the names of columns and to units."""
    head = next((line for line in text.splitlines() if re.match(r"# Size|# Avg|\W*Overall\(us\)", line)), "")
    for column in re.findall(r"\w+ Latency ?\(us\)|Latency \(us\)|Bandwidth \(MB/s\)|MB/s|Messages/s|[\w. ]+\(us\)|"
                             r"Overlap\(%\)|Validation|Iterations|Size", head):
        yield "column lost", text.replace(head, head.replace(column, "", 1))
        yield "column renamed", text.replace(head, head.replace(column, "Another", 1))
        for old, new in (("(us)", "(ms)"), ("(us)", "(s)"), ("MB/s", "GB/s"), ("MB/s", "MiB/s"), ("MB/s", "Mb/s")):
            if old in column:
                yield "unit changed", text.replace(head, head.replace(column, column.replace(old, new), 1))
    title = next((line for line in text.splitlines() if line.startswith("# OSU")), "")
    for other in ("Reduce Latency", "Put Bandwidth", "Latency Multi") if title else ():
        yield "title changed", text.replace(title, f"# OSU MPI {other} Test v5.9")
    if title:
        yield "version changed", text.replace(title, re.sub(r"v[\d.]+$", "v31.0", title))
    if " Pass" in text:
        yield from (("validation failed", text[:m.start()] + "Fail" + text[m.end():])
                    for m in re.finditer(r"Pass", text))


def by_hand(text: str, limits: Sequence[Limit]) -> bool:
    """Whether the rows of a table of OSU are whole, agree with themselves and reach the bounds: a reader of its own."""
    head = next(line for line in text.splitlines() if re.match(r"# Size|# Avg|\W*Overall\(us\)", line))
    names = [n.strip() for n in re.split(r"\s{2,}", head.lstrip("# ").strip())]
    rows = [dict(zip(names, line.split(), strict=False)) for line in text.splitlines() if ROW.match(line)]
    values = [{n: float(w) for n, w in row.items() if n not in ("Size", "Validation")} for row in rows]
    good = all(v["Messages/s"] > 0 and abs(v["MB/s"] * 1e6 / int(r["Size"]) - v["Messages/s"]) <= 0.006 + (
        6e3 / int(r["Size"]) + v["MB/s"] / int(r["Size"]))
               for v, r in zip(values, rows, strict=True) if "Messages/s" in v)
    for kind, of in (("Avg Latency(us)", "Latency(us)"), ("Pure Comm.(us)", "Comm.(us)")):
        good = good and all(v[f"Min {of}"] <= v[kind] <= v[f"Max {of}"] for v in values if f"Max {of}" in v)
    good = good and all(v.get("Overlap(%)", 0) <= 100 for v in values)
    main = {"msg_rate": "Messages/s", "pure_comm": "Pure Comm.(us)"}
    for limit in limits:
        name = main.get(limit.measurement) or next(n for n in names if n not in ("Size", "Validation"))
        at = [v[name] for v, r in zip(values, rows, strict=True)
              if limit.size_bytes is None or int(r["Size"]) == limit.size_bytes]
        good = good and bool(at) and (at[0] >= limit.min if limit.min else 0 < at[0] <= (limit.max or 0))
    return good


def digits(case: Case) -> Iterator[tuple[str, bool]]:
    """(a text with one digit of the table changed, whether it then is still good by hand)."""
    lines = case.output.text.splitlines(keepends=True)
    table = [n for n, line in enumerate(lines) if ROW.match(line)]
    for n in sorted({*table[:5], *table[-2:]}):
        words = list(re.finditer(r"\S+", lines[n]))
        sized = "." not in words[0][0]
        for place in re.finditer(r"\d", lines[n]):
            for new in {"1", "9", str((int(place[0]) + 1) % 10)} - {place[0]}:
                row = lines[n][:place.start()] + new + lines[n][place.end():]
                changed = "".join([*lines[:n], row, *lines[n + 1:]])
                of_size = sized and place.start() < words[0].end()
                zero = any(float(w) == 0 and float(v[0]) != 0 for w, v in zip(row.split(), words, strict=True)
                           if w != "Pass")
                yield changed, not of_size and not zero and by_hand(changed, case.limits)


CASES = cases()
NAMES = [case.name for case in CASES]
TABLES = [case for case in CASES if case.check.name.startswith("osu_")]
pytestmark = pytest.mark.deep


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_whole(case: Case) -> None:
    assert case.verdict() is Status.PASS


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_structural_damage_never_passes(case: Case) -> None:
    done = list(structural(case.output.text))
    assert len(done) >= 200
    for what, text in done:
        assert case.verdict(text) is not Status.PASS, (what, text)


@pytest.mark.parametrize("case", TABLES, ids=[case.name for case in TABLES])
def test_a_changed_digit_gives_what_the_row_then_says(case: Case) -> None:
    for text, good in digits(case):
        assert (case.verdict(text) is Status.PASS) is good, text


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("end", [{"exit_status": 1}, {"exit_status": None}, {"exit_status": 137}, {"timed_out": True},
                                 {"truncated": True}], ids=str)
def test_a_bad_end_never_passes(case: Case, end: dict) -> None:
    assert case.verdict(**end) is not Status.PASS


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_noise_changes_nothing(case: Case) -> None:
    text = case.output.text
    coloured = "".join(f"\x1b[1m{line}\x1b[0m\n" for line in text.split("\n"))
    noise = b"\xff\xfe noise \x80\n".decode("utf-8", "replace") * 200
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.split("\n"))
    for other in (text.replace("\n", "\r\n"), coloured, noise + text + noise, tagged):
        assert case.verdict(other) is Status.PASS


def test_ten_megabytes_of_noise() -> None:
    case = TABLES[0]
    assert case.verdict("a line of another program, 17 of 23\n" * 280_000 + case.output.text) is Status.PASS


def of(name: str, case: str) -> str:
    return (Path(__file__).parent / "samples" / name / f"{case}.out").read_text()


def read(text: str, name: str = "osu_latency") -> Reading:
    check = load_checks()[name]
    assert check.read is not None
    return check.read(text, Context())


LATENCY, SUMS = of("osu_latency", "ok_v5"), of("osu_allreduce", "ok_v7_4_captured")
UCX = "[1.2] [n1:7:0]   ucp_worker.c:1783 UCX  INFO  ep_cfg[2]: tag({lane}); \n"
BOUND = "[n1:9] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]\n[n2:9] MCW rank 1 is not bound (or bound to all)\n"


@pytest.mark.parametrize(("before", "transport", "ranks", "hosts"), [
    (UCX.format(lane="rc_mlx5/mlx5_0:1"), "RDMA (UCX: rc_mlx5/mlx5_0:1)", None, None),
    (UCX.format(lane="tcp/eth0"), "TCP (UCX: tcp/eth0)", None, None),
    ("[0] MPI startup(): libfabric provider: verbs;ofi_rxm\n",
     'RDMA (Intel MPI: "libfabric provider: verbs;ofi_rxm")', None, None),
    ("[n1:9] SET UCX_NET_DEVICES=mlx5_2:1\n", None, None, None),      # a setting proves nothing
    (BOUND, None, 2, 2),
    ("Data for node: a\tNum slots: 64\tNum procs: 1\nData for node: b\tNum slots: 64\tNum procs: 1\n", None, 2, 2),
    ("Point-to-point pairwise experiments for nodes n1 n2\n", None, 2, 2),
])
def test_what_stands_around(before: str, transport: str | None, ranks: int | None, hosts: int | None) -> None:
    found = read(before + LATENCY)
    assert found.sound, found.problems
    assert (found.transport, found.ranks, found.hosts) == (transport, ranks, hosts)


@pytest.mark.parametrize("label", ["0: ", "[0] ", "[1,0]<stdout>:"])
def test_labels_of_launchers(label: str) -> None:
    assert read("a line of srun\n" + "".join(f"{label}{line}\n" for line in LATENCY.splitlines())).sound


def test_runs_are_kept_apart() -> None:
    text = f"Allreduce iteration 2\n{SUMS}Allreduce iteration 3\nAllreduce iteration 4\n{SUMS.replace('4.', '5.')}"
    found = read(text, "osu_allreduce")
    assert {m.run for m in found.measurements} == {2, 4} and found.runs == 3 and found.usable
    assert "no result of Allreduce iteration 3" in found.problems
    warning = "[1.2] [n2:7:0]  ucp.c:9 UCX  WARN  network device 'mlx5_0:1' is not available\n"
    failed = read(f"Allreduce iteration 1\n{SUMS}Allreduce iteration 2\n{warning}", "osu_allreduce")
    assert not failed.usable and any("network device" in p for p in failed.problems)


@pytest.mark.parametrize(("text", "why", "usable"), [
    ("This test requires exactly two processes\n" * 2, "requires exactly two", False),
    (of("osu_bw", "ok_v5"), "not one output of the OSU Latency test: osu_bw", False),
    (LATENCY.replace("Latency (us)", "Bandwidth (MB/s)"), "has no column of latency", False),
    (LATENCY.rstrip()[:-1], "ends within a row", True),
    (LATENCY + SUMS, "2 titles", True),
    (LATENCY.replace("# OSU MPI Latency Test v5.6.3\n", ""), "no title", True),
    ("\n".join(LATENCY.splitlines()[2:]), "no title", False),
    ("# OSU NCCL Latency Test v7.4\n" + LATENCY, "no known program", False),
    (BOUND.splitlines()[0] + "\n" + LATENCY, "1 ranks are told", False),
    ("# OSU MPI Latency Test v5.8\n# Size          Latency (us)\n8                       1.92\n", "one row only", True),
])
def test_why_an_output_is_not_sound(text: str, why: str, usable: bool) -> None:
    found = read(text)
    assert why in "; ".join(found.problems) and found.usable is usable


def test_options_only_where_they_are_known() -> None:
    tools = {name: f"/opt/{name}" for name in ("osu_latency", "osu_allreduce", "osu_barrier")}
    for version, options in (("", ([], [], [])), ("OSU MPI Latency Test v5.6.2", ([], ["-f"], ["-f"])),
                             ("v3.1.1", ([], [], [])), ("# OSU MPI Latency Test v7.4", (["-c"], ["-c", "-f"], ["-f"])),
                             ("v9.0", ([], [], []))):
        context = Context(tools=tools, tool_version=version)
        for name, wanted in zip(tools, options, strict=True):
            assert list(load_checks()[name].steps(context)[0].argv[1:]) == wanted, (name, version)


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in CASES:
        counts.update((what, case.verdict(text).value) for what, text in structural(case.output.text))
        if case in TABLES:
            counts.update(("digit changed" + ("" if good else ", bad by hand"), case.verdict(text).value)
                          for text, good in digits(case))
    for (what, status), count in sorted(counts.items()):
        sys.stdout.write(f"{what:<28} {status:<10} {count:>7}\n")


if __name__ == "__main__":
    main()
