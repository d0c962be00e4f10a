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
