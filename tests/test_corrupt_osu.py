"""Why an output of OSU is not sound, and what stands around its tables. Damage of all kinds: test_corruption.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcadmin.check import Context, Reading
from hpcadmin.registry import load_checks


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


@pytest.mark.parametrize("label", [
    "0: ", "[0] ", "[1,0]<stdout>:", "Mon Jan  6 10:00:00 2025[1,0]<stdout>:", "[prterun-n1-77@1,0]<stdout>: ",
    "2025-01-06T10:00:00.123456Z ", "2025-01-06 10:00:00,123 process DEBUG| [stdout] ", "> ", "n1.cluster: ",
    "2025-01-06T10:00:00Z [1,0]<stdout>:"])
def test_labels_of_launchers(label: str) -> None:
    assert read("a line of srun\n" + "".join(f"{label}{line}\n" for line in LATENCY.splitlines())).sound


def test_the_label_of_a_host_is_of_that_host_only() -> None:
    text = "".join(f"n1: {line}\n" for line in LATENCY.splitlines())
    assert not read(text + "srun: error: n2: task 1: Exited with exit code 1\n").usable


def test_one_sided_titles_of_old_versions() -> None:
    text = of("osu_bw", "ok_v5")
    for title in ("# OSU MPI One Sided MPI_Get Bandwidth Test v4.2", "# OSU One Sided MPI_Get Bandwidth Test v4.0.1"):
        found = read(text.replace(text.splitlines()[0], title), "osu_get_bw")
        assert found.sound and found.measurements, found.problems


@pytest.mark.parametrize(("end", "usable"), [("4194304", True), ("4194304 90", True), ("7 ranks are left", False)])
def test_a_text_that_ends_within_a_row(end: str, usable: bool) -> None:
    whole = LATENCY.rstrip().rsplit("\n", 1)[0]
    for close in ("", "\n"):
        found = read(f"{whole}\n{end}{close}")
        assert not found.sound and found.usable is usable, found.problems


@pytest.mark.parametrize("line", [
    "[osu_bw.c:149] MPI call failed with 15", "Could Not Allocate Memory [rank 7]",
    "[n1:9] *** An error occurred in MPI_Recv", "open_fabric(27): OFI fi_getinfo() failed (x.c:1: No data available)",
    "[u.c:9] ROCM call 'hipFree(p)' failed with 1: invalid argument", "SKIPPED: No validations were performed!",
    "rdma_open_hca(575)..............: No IB device found"])
def test_lines_after_which_no_value_counts(line: str) -> None:
    found = read(f"{LATENCY}{line}\n")
    assert not found.usable and line in found.problems


def test_another_transport_than_the_fast_one_is_a_doubt() -> None:
    found = read(f"n1: unable to find any relevant network interfaces\nAnother transport will be used instead, although"
                 f"\n{LATENCY}")
    assert found.usable and not found.sound


@pytest.mark.parametrize("line", ["Usage: osu_latency [options]", "MPI init: GPU support is asked for and not linked",
                                  "./osu_latency: version `GLIBC_2.34' not found"])
def test_an_output_without_a_table_is_quoted(line: str) -> None:
    assert any(line in why for why in read(f"{line}\n").problems)


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
