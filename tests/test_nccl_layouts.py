"""Outputs of nccl-tests as people have them: tags, prefixes, rows in pieces, other builds, lines that were lost."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hpcadmin.check import Context, Output, ParseError, Reading
from hpcadmin.checklib import nccl
from hpcadmin.checklib.nccl_run import COLLECTIVES

OF = COLLECTIVES["nccl_allreduce"]
SIZES = [1 << n for n in range(20, 26)]
LATENCY, RATE = 30.0, 200e3       # us, bytes a us


def half(size: int, ranks: int, wrong: str) -> tuple[str, float]:
    time = round(LATENCY + size / RATE, 1)
    bus = round(size / time / 1e3 * 2 * (ranks - 1) / ranks, 2)
    return f"{time:7.1f}  {size / time / 1e3:6.2f}  {bus:6.2f}  {wrong:>5}", bus


def row(size: int, ranks: int = 4, wrong: str = "0", kind: str = "float", width: int = 4) -> tuple[str, str, str]:
    """The cells before the time, then each half."""
    cells, _ = half(size, ranks, wrong)
    return f"{size:12d}  {size // width:12d}  {kind:>8}  {'sum':>6}  {'-1':>6}", cells, cells


def output(hosts: tuple[str, ...] = ("gpu01",), *, name: str = "all_reduce_perf", each: int = 4, end: str = "#\n",
           rows: Callable[[int, int], str] = lambda size, ranks: "  ".join(row(size, ranks)),
           after_rank: str = "") -> str:
    ranks = len(hosts) * each
    lines = ["# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22809", f"# Collective test starting: {name}",
             f"# nThread 1 nGpus 1 minBytes {SIZES[0]} maxBytes {SIZES[-1]} step: 2(factor) warmup iters: 1 iters: 20 "
             "agg iters: 1 validation: 1 graph: 0 unalign: 0", "#", "# Using devices"]
    lines += [f"#  Rank {n:2d} Group  0 Pid {4000 + n:6d} on {hosts[n // each]:>10} device {n % each:2d} "
              f"[0000:{n % each + 1:02x}:00] NVIDIA H100" for n in range(ranks)]
    lines += [*after_rank.splitlines(), "#", "#" + " " * 60 + "out-of-place" + " " * 23 + "in-place",
              "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
              "     time   algbw   busbw  #wrong",
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
              "             (us)  (GB/s)  (GB/s)"]
    lines += [rows(size, ranks) for size in SIZES]
    mean = sum(half(size, ranks, "0")[1] for size in SIZES) / len(SIZES)
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:g} "]
    return "\n".join(lines) + "\n" + end + f"# Collective test concluded: {name}\n{end}"


def read(text: str) -> Reading:
    return nccl.examine(text, OF).reading


def whole(text: str, ranks: int = 4, hosts: int = 1) -> None:
    reading = read(text)
    assert reading.sound, reading.problems
    assert (reading.ranks, reading.hosts, reading.validated, reading.wrong_values) == (ranks, hosts, True, 0)
    last = [m.value for m in reading.measurements if m.name == "busbw" and m.size_bytes == SIZES[-1]]
    assert set(last) == {half(SIZES[-1], ranks, "0")[1]}


def each_line(text: str, prefix: Callable[[int], str]) -> str:
    return "\n".join(prefix(n) + line for n, line in enumerate(text.splitlines())) + "\n"


@pytest.mark.parametrize("prefix", [
    lambda n: "",
    lambda n: "> ",
    lambda n: "[pod/nccl-launcher-x7k2p/launcher] ",
    lambda n: "(head, rank=0, pid=3808) ",
    lambda n: "(head, rank=0, pid=3808) [1,0]<stdout>:",
    lambda n: f"Jul  4 10:00:{n:02d} gpu01 slurmstepd[811]: ",
    lambda n: f"2026-01-02T10:00:{n:02d}.5Z [1,0]<stdout>: ",
    lambda n: " 0: ",
    lambda n: "[1,0]&lt;stdout&gt;:",
    lambda n: "[0] ",
], ids=["none", "quoted", "kubectl", "ray", "ray and mpirun", "syslog", "time and mpirun", "srun", "HTML", "MPICH"])
def test_prefixes(prefix: Callable[[int], str]) -> None:
    whole(each_line(output(), prefix))


def test_builds_and_pastes() -> None:
    """A name with _mpi is of the same test; a blank that was lost changes nothing."""
    text = output(("gpu01", "gpu02"))
    whole(text, 8, 2)
    whole(output(("gpu01", "gpu02"), name="/usr/local/bin/all_reduce_perf_mpi"), 8, 2)
    whole(text.replace("# nThread", "#nThread").replace("# Using", "#Using").replace("#  Rank", "#Rank"), 8, 2)
    rccl = ("# nThread: 1 nGpus: 1 minBytes:", "# nThreads: 1 nGpus: 1 nRanks: 8 minBytes:")
    for head in rccl:
        whole(text.replace("# nThread 1 nGpus 1 minBytes", head).replace(" maxBytes ", " maxBytes: "), 8, 2)
    whole(text.replace("#", ""), 8, 2)
    whole(re.sub(" +", "\t", text), 8, 2)
    whole(re.sub(" +", " ", text), 8, 2)
    assert not read(output(name="all_gather_perf_mpi")).sound
    assert not read(text.replace("minBytes", "minBites")).sound


def test_a_row_in_pieces_of_one_rank() -> None:
    """Open MPI repeats its tag where a line came in several writes."""
    tag = "[1,0]<stdout>:"
    text = each_line(output(rows=lambda size, ranks: tag.join(row(size, ranks))), lambda n: tag)
    whole(text)
    assert not read(text.replace("-1[1,0]<stdout>:", "-1[1,3]<stdout>:", 1)).sound
    joined = text.replace("0\n[1,0]<stdout>:# Out of bounds", "0[1,0]<stdout>:# Out of bounds")
    assert not read(joined).sound


MESSAGE = "gpu01:4000:4061 [0] NCCL INFO Connected NVLS tree"


def broken(size: int, ranks: int) -> str:
    head, out, into = row(size, ranks)
    return (f"{head}{MESSAGE}\n  {out}{MESSAGE}\ngpu01:4001:4062 [1] NCCL INFO Init COMPLETE\n  {into}"
            if size == SIZES[1] else f"{head}  {out}  {into}")


def test_a_row_in_pieces_between_messages_of_nccl() -> None:
    whole(output(rows=broken))
    out = "  " + row(SIZES[1])[1]
    for before, after in ((out, ""), (out, "  7.7" + out), (out, out + "  0"), (f"-1{MESSAGE}", f"-1x{MESSAGE}"),
                          (f"-1{MESSAGE}", "-1gpu09:4000:4061 [0] NCCL INFO Connected NVLS tree")):
        text = output(rows=broken)
        assert before in text
        assert not read(text.replace(before, after, 1)).sound, (before, after)


def test_a_row_without_its_beginning() -> None:
    """What is there is usable, and never whole."""
    text = output(rows=lambda size, ranks: "  ".join(row(size, ranks)[1 if size == SIZES[0] else 0:]))
    reading = read(text)
    assert not reading.sound
    assert any("rows were left out" in p for p in reading.problems)
    assert reading.usable
    assert {m.size_bytes for m in reading.measurements if m.name == "busbw"} == set(SIZES[1:])


def test_hosts_of_a_list_with_gaps() -> None:
    """As many as are listed only where no other can be among the ranks left out."""
    def cut(hosts: int, keep: set[int]) -> Reading:
        lines = output(tuple(f"gpu{n:02d}" for n in range(hosts))).splitlines()
        return read("\n".join("..." if "Rank" in line and int(line.split()[2]) not in keep else line for line in lines))
    assert (cut(2, {0, 1, 6, 7}).ranks, cut(2, {0, 1, 6, 7}).hosts) == (8, 2)
    many = cut(16, {0, 1, 62, 63})
    assert (many.ranks, many.hosts, many.sound) == (64, None, False)
    assert (cut(1, {2, 3}).ranks, cut(1, {2, 3}).hosts) == (4, 1)


def test_without_the_last_line() -> None:
    """Sound, since all numbers are there; and no run of ours, since it may have been cut."""
    text = output(end="")
    assert read(text).sound
    found = nccl.parse([Output(text)], Context(), OF)
    assert all("cut off after the average" in " ".join(m.warnings) for m in found if m.name == "busbw")


def test_cycles() -> None:
    """-N repeats all sizes: each is a whole series, or the rows are doubled."""
    lines = output().splitlines(keepends=True)
    rows = [n for n, line in enumerate(lines) if line.lstrip()[:1].isdigit()]
    first, last = rows[0], rows[-1] + 1
    whole("".join([*lines[:last], "# Testing 2 cycle.\n", *lines[first:]]))
    found = nccl.parse([Output("".join([*lines[:last], *lines[first:]]))], Context(), OF)
    assert all("the rows are of several cycles" in m.warnings for m in found if m.name == "busbw")
    for torn in ([*lines[:last], *lines[first + 1:]], [*lines[:last - 1], *lines[first:]],
                 [*lines[:last], *lines[first:first + 1], *lines[last:]], [*lines[:first + 1], *lines[first:]]):
        assert not read("".join(torn)).sound


def test_two_ranks_on_one_gpu_are_a_defect_of_usable_values() -> None:
    reading = read(output().replace("device  1 [0000:02:00]", "device  0 [0000:01:00]"))
    assert (reading.sound, reading.usable) == (False, True)
    assert "two ranks use one GPU" in reading.problems[0]


def test_json_beside_a_table() -> None:
    """A line of a launcher in braces is no report; a report and a table are two outputs."""
    whole("{'MPI_HOME': '/opt/mpi', 'NUM_GPUS': 4}\n" + output() + "{}\n")
    whole('{"level": "info", "msg": "started"}\n' + output())
    report = '{"version": 3, "config": {"minimum_bytes": 8}, "results": []}'
    assert not read(report + "\n" + output()).sound
    with pytest.raises(ParseError):
        nccl.parse([Output(report + "\n" + output())], Context(), OF)


def test_warnings_with_a_time_are_of_nccl() -> None:
    message = "[2026-06-12 16:57:52] gpu01:4000:4043 [0] misc/nvmlwrap.cc:74 NCCL WARN Could not find NVML"
    found = nccl.examine(output(after_rank=message), OF)
    assert found.reading.sound
    assert found.warnings == (f"NCCL warns: {message}",)


def test_units_behind_the_average() -> None:
    text = output()
    line = next(line for line in text.splitlines() if "Avg bus" in line)
    whole(text.replace(line, line.rstrip() + " GB/s"))
    assert not read(text.replace(line, line.rstrip() + " GB")).sound
    assert not read(text.replace(line, line.rstrip() + " MB/s")).sound


def older(of: str, ranks: int, moved: float, listed: int | None = None) -> str:
    """As before June 2020: what a rank has already is no part of algbw, and busbw is the same."""
    lines = [f"# nThread 1 nGpus {ranks} minBytes {SIZES[0] * ranks} maxBytes {SIZES[-1] * ranks} step: 2(factor) "
             "warmup iters: 5 iters: 20 validation: 1", "#", "# Using devices"]
    lines += [f"#   Rank {n:2d} Pid  88618 on    gpu01 device {n:2d} [0x{n + 1:02x}] Tesla V100-SXM3-32GB"
              for n in range(ranks if listed is None else listed)]
    middle = "   redop" if of == "nccl_reducescatter" else ""
    lines += ["#", f"#       size         count    type{middle}{'     time   algbw   busbw  error' * 2}",
              "#        (B)    (elements)               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"]
    total = 0.0
    for size in SIZES:
        time = round(LATENCY + size * ranks / RATE, 1)
        rate = round(size * ranks / time / 1e3 * moved, 2)
        total += rate
        cells = f"{time:7.1f}  {rate:6.2f}  {rate:6.2f}  2e-07"
        lines.append(f"{size * ranks:12d}  {size // 4:12d}   float  {'sum  ' if middle else ''}{cells}  {cells}")
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {total / len(SIZES):g}", "#"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("of", ["nccl_allgather", "nccl_reducescatter"])
def test_bandwidths_of_older_versions(of: str) -> None:
    reading = nccl.examine(older(of, 12, 11 / 12), COLLECTIVES[of]).reading
    assert reading.sound, reading.problems
    assert (reading.ranks, reading.hosts, reading.wrong_values) == (12, 1, 0)
    assert not nccl.examine(older(of, 12, 10 / 12), COLLECTIVES[of]).reading.sound
    newer = older(of, 12, 11 / 12).replace("error", "#wrong").replace("2e-07", "0")
    assert not nccl.examine(newer, COLLECTIVES[of]).reading.sound


def test_a_list_that_is_shorter_than_a_process_has_gpus() -> None:
    reading = nccl.examine(older("nccl_allgather", 12, 11 / 12, listed=11), COLLECTIVES["nccl_allgather"]).reading
    assert not reading.sound
    assert "the list of devices is not complete: 11 ranks" in reading.problems[0]


def test_one_rank_without_a_list() -> None:
    lines = output(each=1, rows=lambda size, ranks: "  ".join(row(size, ranks))).splitlines()
    reading = read("\n".join(line for line in lines if "Rank" not in line and "Using" not in line))
    assert not reading.usable
    assert "busbw is 0 in all rows: one rank sends nothing" in reading.problems


def test_what_is_there_instead_of_an_output() -> None:
    reading = read("invalid size specified for 'minbytes'\n")
    assert not reading.sound
    assert "invalid size specified for 'minbytes'" in reading.problems[0]


@pytest.mark.parametrize(("lines", "transport"), [
    (["NET/gIB/0/GDRDMA/Shared"], "RoCE (NET/gIB) with GPUDirect RDMA"),
    (["NET/FasTrak/3(3)/GDRDMA"], "FasTrak (NET/FasTrak) with GPUDirect RDMA"),
    (["NET/IBext_v8/0"], "IB (NET/IB)"),
    (["NET/Libfabric/0/GDRDMA"], "OFI (NET/Libfabric) with GPUDirect RDMA"),
    (["NET/IB/0/GDRDMA", "NET/Socket/0"], "TCP (NET/Socket); IB (NET/IB) with GPUDirect RDMA"),
])
def test_transports(lines: list[str], transport: str) -> None:
    said = "\n".join(f"gpu01:4000:4061 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via {way}" for way in lines)
    assert read(output(("gpu01", "gpu02"), after_rank=said)).transport == transport


@pytest.mark.parametrize("line", [
    "Killed", "/opt/run.sh: line 12: 81234 Aborted                 all_reduce_perf -g 8",
    "Memory access fault by GPU node-2 (Agent handle: 0x560f8742a5e0) on address 0x150c73c10000. Reason: Unknown.",
    "terminate called after throwing an instance of 'std::runtime_error'", "*** Process received signal ***",
    "mpirun was unable to launch the specified application as it could not access",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!"])
def test_who_died_beside_a_whole_table(line: str) -> None:
    found = nccl.examine(output(after_rank=line), OF)
    assert not found.reading.sound
    assert found.problems[0].text == f"the run broke: {line}"


@pytest.mark.parametrize("line", [
    "srun: job 123 queued and waiting for resources", "Authorization required, but no authorization protocol specified",
    "[gpu01:384] 15 more processes have sent help message help-mpi-btl-openib.txt / error in device init",
    "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)",
    "gpu01:4000:4061 [0] NCCL INFO Call to connect returned Connection refused, retrying"])
def test_what_is_no_failure(line: str) -> None:
    whole(output(after_rank=line))
