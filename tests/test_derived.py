"""Limits that are derived from the hardware, and values that it forbids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Direction, Limit, Measurement, Status, Subject, Verdict
from hpcadmin.judge import doubtful, judge
from hpcadmin.model import Cpu, Gpu, Inventory, Nic, Node
from hpcadmin.node_links import links_of
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

A100_PCIE = "NVIDIA A100 80GB PCIe"
H100 = "NVIDIA H100 80GB HBM3"
GIB = 1 << 30


def port(name: str, gbps: float = 400.0, layer: str = "InfiniBand", **more: object) -> Nic:
    kind = {100.0: "EDR", 200.0: "HDR", 400.0: "NDR", 800.0: "XDR"}.get(gbps, "")
    text = f"{gbps:g} Gb/sec (4X {kind})" if layer == "InfiniBand" else f"{gbps:g} Gb/sec"
    return Nic(name, name, 1, link_layer=layer, state="ACTIVE", rate_gbps=gbps, rate_text=text,
               **{"active_mtu": 4096, **more})  # type: ignore[arg-type]


def node(name: str, gpu: str = "", gpus: int = 0, label: str = "", ports: Sequence[Nic] = (), *, gen: int | None = 5,
         bridges: int = 0, **more: object) -> Node:
    """label: of topo -m between any two GPUs; bridges: NVLinks between each GPU and its neighbour."""
    def link(i: int, j: int) -> str:
        return "X" if i == j else f"NV{bridges}" if bridges and i // 2 == j // 2 else label
    return Node(name, name, cpu=Cpu("Xeon", "x86_64", 2, 56, 1), nics=tuple(ports),
                gpus=tuple(Gpu("nvidia", i, gpu, pcie_gen_max=gen, pcie_width_max=16) for i in range(gpus)),
                gpu_links=tuple(tuple(link(i, j) for j in range(gpus)) for i in range(gpus)) if label else (),
                **more)  # type: ignore[arg-type]


def h100(name: str, **more: object) -> Node:
    return node(name, H100, 8, "NV18", [port(f"mlx5_{i}", pcie_gen=5, pcie_width=16) for i in range(8)],
                **more)  # type: ignore[arg-type]


def a100_pcie(name: str) -> Node:
    return node(name, A100_PCIE, 4, "SYS", [port("mlx5_0", 200.0)], gen=4)


def roce(name: str) -> Node:
    return node(name, ports=[port("mlx5_0", 100.0, "Ethernet", active_mtu=1024),
                             port("mlx5_1", 100.0, "Ethernet", active_mtu=1024)])


def busbw(value: float, nodes: int = 1, ranks: int = 8, size: int = GIB) -> Measurement:
    return Measurement("busbw", value, "GB/s", size, ranks=ranks, nodes=nodes)


def rdma(value: float, rail: str = "mlx5_0", size: int = 65536, way: Direction = Direction.ONE_WAY) -> Measurement:
    return Measurement("bandwidth", value, "Gb/s", size, way, ranks=2, nodes=2, rail=rail)


def mpi(value: float, size: int = 4 << 20) -> Measurement:
    return Measurement("bandwidth", value, "MB/s", size, Direction.ONE_WAY, ranks=2, nodes=2)


def one(check: str, m: Measurement, nodes: Sequence[Node], limits: Sequence[Limit] = (), **more: object) -> Verdict:
    test = PlannedTest("t0001", check, Subject(tuple(n.name for n in nodes)), (), 1)
    [verdict] = judge([TestResult(test, (m,), **more)], limits, Inventory(tuple(nodes)))  # type: ignore[arg-type]
    return verdict


def least(verdict: Verdict) -> float | None:
    assert verdict.basis in ("derived", "")
    return verdict.limit.min if verdict.limit else None


def two(make: object) -> list[Node]:
    assert callable(make)
    return [make("a"), make("b")]


# --- what is derived

@looped(("check", "m", "nodes", "expected", "words"), [
    # 8 x H100 with NDR: 18 NVLinks of 25 GB/s; 8 ports of 50 GB/s
    ("nccl_allreduce", busbw(480), [h100("a")], 0.65 * 450, "18 x NVLink 4"),
    ("nccl_alltoall", busbw(330), [h100("a")], 0.55 * 450, "NVLink"),
    ("nccl_allreduce", busbw(470, 2, 16), two(h100), 0.6 * 400, "8 ports of 400 Gb/s InfiniBand a node"),
    ("nccl_allgather", busbw(370, 4, 32), [h100(n) for n in "abcd"], 0.55 * 400, "8 ports"),
    ("nccl_alltoall", busbw(60, 2, 16), two(h100), 0.4 * 400 * 15 / 16 * 2 / 8, "8 ports"),
    ("nccl_sendrecv", busbw(45, 2, 16), two(h100), 0.6 * 50, "1 port of 400"),
    ("nccl_allreduce", busbw(48, 2, 2), two(h100), 0.6 * 50, "1 port of 400"),
    ("ib_write_bw", rdma(395), two(h100), 0.9 * 400 * 4096 / 4122, "port mlx5_0 of 400 Gb/s InfiniBand"),
    ("ib_write_bw", replace(rdma(380), binding="GPU memory"), two(h100), 0.75 * 400 * 4096 / 4122, "GPU memory"),
    ("ib_read_bw", rdma(760, way=Direction.BOTH), two(h100), 0.8 * 800 * 4096 / 4122, "both ways"),
    ("osu_bw", mpi(49000), two(h100), 0.85 * 50000 * 4096 / 4122, "400 Gb/s"),
    ("osu_bibw", replace(mpi(90000), direction=Direction.BOTH), two(h100), 0.7 * 100000 * 4096 / 4122, "both ways"),
    ("mpi_pingpong", mpi(20000, 262144), two(h100), 0.25 * 50000 * 4096 / 4122, "one message at a time"),
    # 4 x A100 PCIe with one HDR port
    ("nccl_allreduce", busbw(20, ranks=4), [a100_pcie("a")], 0.2 * 31.504, "PCIe 4.0 x16 of NVIDIA A100 80GB PCIe"),
    ("nccl_allreduce", busbw(12, 2, 8), two(a100_pcie), 0.2 * 31.504, "no NVLink"),
    ("ib_write_bw", rdma(195), two(a100_pcie), 0.9 * 200 * 4096 / 4122, "200 Gb/s"),
    # two ports of RoCE 100 with small packets
    ("ib_write_bw", rdma(92, "mlx5_1"), two(roce), 0.9 * 100 * 1024 / 1106, "RoCE (packets of 1024 B"),
    ("osu_bw", mpi(11500), two(roce), 0.85 * 12500 * 1024 / 1106, "100 Gb/s RoCE"),
    # L40S has no NVLink
    ("nccl_allreduce", busbw(20), [node("a", "NVIDIA L40S", 8, gen=4)], 0.2 * 31.504, "no NVLink"),
])
def test_what_is_derived(check: str, m: Measurement, nodes: Sequence[Node], expected: float, words: str) -> None:
    verdict = one(check, m, nodes)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.basis == "derived"
    assert verdict.limit is not None
    assert verdict.limit.min == pytest.approx(expected, rel=1e-3)
    assert verdict.limit.derived and verdict.limit.text().endswith("(derived)")
    assert words in verdict.limit.source
    assert verdict.limit.source.startswith("derived: ")
    slow = one(check, replace(m, value=expected * 0.98), nodes)
    assert (slow.status, slow.basis) == (Status.FAIL, "derived")
    assert "derived" in slow.reason


@looped(("check", "m", "nodes"), [
    ("nccl_allreduce", busbw(300, size=GIB >> 3), [h100("a")]),                           # too small a message
    ("nccl_allreduce", busbw(300), [replace(h100("a"), gpu_links=())]),                     # how many NVLinks?
    ("nccl_allreduce", busbw(90, ranks=2), [node("a", "Tesla V100-SXM2-32GB", 4, "NV2")]),    # half of a mesh
    ("nccl_allreduce", busbw(30), [node("a", "NVIDIA X900", 8, "NV18")]),                   # which generation?
    ("nccl_allreduce", busbw(20), [node("a", "NVIDIA L40S", 8, gen=None)]),                 # which PCIe?
    ("nccl_allreduce", busbw(300, 2, 16), [h100("a"), replace(h100("b"), nics=())]),          # one side has no port
    ("nccl_allreduce", busbw(300, 2, 16), two(lambda n: replace(h100(n), nics=(Nic("mlx5_0", "mlx5_0"),)))),
    ("nccl_hypercube", busbw(300), [h100("a")]),
    ("ib_write_bw", rdma(90, "mlx5_9"), two(roce)),                                         # a port that nobody knows
    ("ib_write_bw", rdma(90, size=4096), two(roce)),
    ("ib_write_bw", rdma(3, "rxe0"), two(lambda n: node(n, ports=[port("rxe0", 2.5)]))),
    ("ib_write_bw", rdma(90), [roce("a"), replace(roce("b"), hostname="a")]),               # two names of one machine
    ("osu_latency", Measurement("latency", 2.0, "us", 8, ranks=2, nodes=2), two(roce)),
    ("osu_bw", mpi(1000), two(node)),
    ("osu_bw", replace(mpi(1000), unit="GB/s", value=1.0), two(roce)),
    ("stream", Measurement("triad", 400.0, "GB/s"), [h100("a")]),
])
def test_nothing_is_guessed(check: str, m: Measurement, nodes: Sequence[Node]) -> None:
    verdict = one(check, m, nodes)
    assert (verdict.status, verdict.limit, verdict.basis) == (Status.UNJUDGED, None, "")


def test_a_node_that_is_not_in_the_inventory_and_no_inventory_at_all() -> None:
    test = PlannedTest("t0001", "ib_write_bw", Subject(("a", "x")), (), 1)
    for inventory in (Inventory((roce("a"),)), None):
        [verdict] = judge([TestResult(test, (rdma(90),))], [], inventory)
        assert verdict.status is Status.UNJUDGED


def test_a_known_limit_is_not_replaced() -> None:
    verdict = one("nccl_allreduce", busbw(440, size=8 * GIB), [h100("a")], load_limits(Site()))
    assert (verdict.status, verdict.basis) == (Status.FAIL, "limit")        # derived it would pass
    own = Limit("ib_write_bw", "bandwidth", "Gb/s", min=50.0, size_bytes=65536, source="site.toml", site=True)
    verdict = one("ib_write_bw", rdma(60), two(roce), [own])
    assert (verdict.status, verdict.limit) == (Status.PASS, own)


def test_simulated_hardware_is_neither_derived_from_nor_a_ceiling() -> None:
    nodes = two(lambda n: replace(h100(n), simulated="8xH100"))
    for value in (1.0, 1e6):
        assert one("ib_write_bw", rdma(value), nodes).status is Status.UNJUDGED
    assert one("osu_latency", Measurement("latency", 0.2, "us", 8, nodes=2), nodes).status is Status.UNJUDGED


def test_a_slot_that_holds_its_port_down_is_said() -> None:
    def made(name: str) -> Node:
        return node(name, ports=[port("mlx5_0", pcie_gen=4, pcie_width=16, pcie_gen_max=5, pcie_width_max=16)])
    verdict = one("ib_write_bw", rdma(205), two(made))
    assert (verdict.status, verdict.basis) == (Status.WARN, "derived")
    assert "mlx5_0 runs PCIe 4.0 x16, which holds its port down, and could do PCIe 5.0 x16" in verdict.reason
    fits = two(lambda n: node(n, ports=[port("mlx5_0", pcie_gen=4, pcie_width=16, pcie_gen_max=4, pcie_width_max=16)]))
    assert one("ib_write_bw", rdma(205), fits).status is Status.PASS
    assert one("ib_write_bw", rdma(120), fits).status is Status.FAIL


def test_storage_ports_are_no_part_of_what_collectives_use() -> None:
    def made(name: str) -> Node:
        return replace(h100(name), nics=(*h100(name).nics, port("mlx5_8", 200.0, "Ethernet"), port("mlx5_9", 400.0)))
    assert least(one("nccl_allreduce", busbw(470, 2, 16), two(made))) == pytest.approx(240)


def test_the_slower_side_decides() -> None:
    pair = [h100("a"), node("b", ports=[port("mlx5_0", 200.0)])]
    assert least(one("ib_write_bw", rdma(190), pair)) == pytest.approx(0.9 * 200 * 4096 / 4122, rel=1e-3)


def test_nvlinks_that_reach_other_nodes() -> None:
    def tray(name: str, clique: str = "32766") -> Node:
        made = node(name, "NVIDIA GB200", 4, "NV18", [port(f"mlx5_{i}") for i in range(4)])
        uuid = "9f1a0c63-0000-4d1e-8e3b-1b2c3d4e5f60"
        return replace(made, gpus=tuple(replace(g, fabric_cluster_uuid=uuid, fabric_clique=clique) for g in made.gpus))
    assert least(one("nccl_allreduce", busbw(800, 2, 8), [tray("a"), tray("b")])) == pytest.approx(0.65 * 900)
    assert least(one("nccl_allreduce", busbw(190, 2, 8), [tray("a"), tray("b", "5")])) == pytest.approx(0.6 * 200)


def test_tcp_over_ethernet() -> None:
    def made(name: str) -> Node:
        return node(name, ports=[Nic("eth0", rate_gbps=25.0, rate_text="25 Gb/s", state="up")])
    m = Measurement("bandwidth", 23.4, "Gb/s", 131072, Direction.ONE_WAY, nodes=2, transport="TCP 25 Gb/s")
    assert least(one("ethernet", m, two(made))) == 20.0
    assert one("ethernet", replace(m, value=9.4), two(made)).status is Status.FAIL
    for transport in ("", "TCP", "TCP 10 Gb/s", "TCP one thread"):
        assert one("ethernet", replace(m, transport=transport), two(made)).status is Status.UNJUDGED


@pytest.mark.parametrize(("made", "links", "switched"), [
    (h100("a"), 450.0, True),
    (node("a", "Tesla V100-SXM2-32GB", 4, "NV2"), 150.0, False),
    (node("a", "Tesla V100-SXM3-32GB", 16, "NV6"), 150.0, True),
    (node("a", "NVIDIA H800", 8, "NV8"), 200.0, True),
    (node("a", "NVIDIA A100-SXM4-80GB", 4, "NV4"), 300.0, False),
    (node("a", A100_PCIE, 4, "SYS", bridges=12), 300.0, False),
    (node("a", A100_PCIE, 4, "SYS"), 0.0, False),
    (node("a", "NVIDIA L40S", 8), 0.0, False),
    (node("a", "NVIDIA A40", 4, "SYS", bridges=4), None, False),
    (node("a", "AMD Instinct MI300X", 8), None, False),
    (node("a"), None, False),
])
def test_nvlink(made: Node, links: float | None, switched: bool) -> None:
    found = links_of(made)
    assert (found.nvlink_gbs, found.switched) == (links, switched)


def test_a_dead_nvlink_does_not_lower_what_is_expected() -> None:
    made = h100("a")
    rows = [["X" if i == j else "NV17" if 3 in (i, j) else "NV18" for j in range(8)] for i in range(8)]
    found = links_of(replace(made, gpu_links=tuple(map(tuple, rows))))
    assert found.nvlink_gbs == 450.0


def test_a_derived_failure_is_measured_again() -> None:
    nodes = two(roce)
    test = PlannedTest("t0001", "ib_write_bw", Subject(("a", "b")), (), 1)
    first = TestResult(test, (rdma(40),))
    assert doubtful([first], judge([first], [], Inventory(tuple(nodes)))) == ["t0001"]
    again = TestResult(replace(test, id="t0002", repeats="t0001", attempt=2, alone=True), (rdma(90),))
    [verdict] = judge([first, again], [], Inventory(tuple(nodes)))
    assert (verdict.status, verdict.reason) == (Status.PASS, "first 40 Gb/s, again 90")
    assert verdict.measurement is not None and verdict.measurement.value == 40
    slow = replace(again, measurements=(rdma(41),))
    [verdict] = judge([first, slow], [], Inventory(tuple(nodes)))
    assert verdict.status is Status.FAIL
    assert verdict.reason.endswith("again 41")


def test_a_uniformly_slow_cluster_is_found_though_its_peers_are_alike() -> None:
    nodes = [roce(f"n{i}") for i in range(8)]
    results = [TestResult(PlannedTest(f"t{i}", "ib_write_bw", Subject((f"n{i}", f"n{i + 1}")), (), 1), (rdma(46.0),))
               for i in range(0, 8, 2)]
    verdicts = judge(results, [], Inventory(tuple(nodes)))
    assert {(v.status, v.basis) for v in verdicts} == {(Status.FAIL, "derived")}


# --- what is impossible

GENEROUS = Limit("", "", min=0.001, source="a limit that passes anything")


@looped(("check", "m", "nodes", "words"), [
    ("nccl_allreduce", busbw(900), [h100("a")], "above 787.5 GB/s"),
    ("nccl_allgather", busbw(460), [h100("a")], "450 GB/s to other GPUs"),
    ("nccl_allreduce", busbw(60, 2, 16), two(lambda n: replace(h100(n), nics=(port("mlx5_0", 200.0),))), "46.88 GB/s"),
    ("nccl_allreduce", busbw(60, 2, 8), two(a100_pcie), "31.504 GB/s to other GPUs"),
    ("nccl_allgather", busbw(40, ranks=4), [a100_pcie("a")], "31.504 GB/s to other GPUs"),
    ("nccl_allreduce", busbw(40), [node("a", "NVIDIA L40S", 8, gen=4)], "L40S"),
    ("nccl_allreduce", busbw(1e5), [node("a")], "impossible"),
    ("nccl_allreduce", busbw(2000), [node("a", "NVIDIA X900", 8)], "impossible"),
    ("ib_write_bw", rdma(408), two(h100), "port mlx5_0 of 400 Gb/s"),
    ("ib_write_bw", rdma(110, "mlx5_1"), two(roce), "port mlx5_1 of 100 Gb/s"),
    ("ib_write_bw", rdma(820, way=Direction.BOTH), two(h100), "both ways"),
    ("ib_write_bw", rdma(260), two(lambda n: node(n, ports=[port("mlx5_0", pcie_gen=4, pcie_width=16)])),
     "PCIe 4.0 x16"),
    ("ib_write_bw", rdma(820), two(node), "the fastest port"),
    ("nccl_allgather", replace(busbw(920, ranks=2), name="algbw"), [h100("a")], "above 900"),
    ("nccl_allreduce", busbw(10, size=1024), [h100("a")], "an operation takes 1 us"),
    ("osu_bw", mpi(26000), two(roce), "all ports of a node"),
    ("osu_bw", mpi(1e9), [node("a")], "the fastest memory"),
    ("osu_latency", Measurement("latency", 0.1, "us", 8, nodes=2), two(roce), "below 0.4 us"),
    ("osu_latency", Measurement("latency", 0.001, "us", 8), [node("a")], "below 0.02 us"),
    ("ib_write_lat", Measurement("t_typical", 0.2, "us", 2, nodes=2), two(node), "below 0.4 us"),
    ("ib_write_lat", Measurement("t_typical", 20.0, "us", 1 << 20, nodes=2), two(roce), "below 41.9 us"),
])
def test_what_is_impossible_is_an_error_whatever_the_limit(check: str, m: Measurement, nodes: Sequence[Node],
                                                           words: str) -> None:
    generous = replace(GENEROUS, check=check, measurement=m.name, unit=m.unit)
    for limits in ([], [generous]):
        verdict = one(check, m, nodes, limits)
        assert (verdict.status, verdict.basis) == (Status.ERROR, "output"), verdict.reason
        assert "is impossible" in verdict.reason
        assert words in verdict.reason


@looped(("check", "m", "nodes"), [
    ("nccl_allreduce", busbw(480), [h100("a")]),                    # NVLS is above the links
    ("nccl_allreduce", busbw(489, 2, 16), two(h100)),               # above the ports: in the network and by trees
    ("nccl_allreduce", busbw(78, 2, 16), two(lambda n: replace(h100(n), nics=(port("efa_0", 400.0),)))),
    ("ib_write_bw", rdma(399.9), two(h100)),
    ("ib_write_bw", rdma(195, "mlx5_bond_0"), two(lambda n: node(n, ports=[port("mlx5_bond_0", 100.0)]))),
    ("osu_bw", mpi(24000), two(roce)),                              # two ports at once
    ("osu_bw", replace(mpi(200000), nodes=1), [h100("a")]),
    ("osu_latency", Measurement("latency", 0.6, "us", 8, nodes=2), two(roce)),
    ("osu_latency", Measurement("latency", 0.1, "us", 8, nodes=1), [roce("a")]),
    ("nccl_allgather", replace(busbw(700, ranks=2), name="algbw"), [h100("a")]),
    ("nccl_allreduce", replace(busbw(818401, ranks=1), name="algbw"), [h100("a")]),
    ("ib_write_bw", replace(rdma(900), name="bw_peak"), two(h100)),
    ("osu_bcast", Measurement("avg_latency", 0.2, "us", 8, nodes=2), two(roce)),
    ("mpi_hello", Measurement("clock_offset", 0.0, "s"), [h100("a")]),
])
def test_what_was_measured_elsewhere_is_possible(check: str, m: Measurement, nodes: Sequence[Node]) -> None:
    assert one(check, m, nodes).status is not Status.ERROR


def test_an_impossible_point_beside_a_good_value_is_an_error_too() -> None:
    side = replace(busbw(5000, size=1 << 20), key=False)
    test = PlannedTest("t0001", "nccl_allreduce", Subject(("a",)), (), 1)
    verdicts = judge([TestResult(test, (busbw(480), side))], [], Inventory((h100("a"),)))
    assert [v.status for v in verdicts] == [Status.PASS, Status.ERROR]
    assert "busbw at 1 MiB" in verdicts[1].reason


def test_no_published_figure_is_impossible() -> None:
    from hpcadmin.catalogue import load_known
    from hpcadmin.derived import bounds, impossible
    for known in load_known():
        m = Measurement(known.measurement, known.value, known.unit, known.size_bytes, known.direction,
                        ranks=known.ranks, nodes=known.nodes)
        assert impossible(m, bounds(known.check, m, (), apart=(known.nodes or 2) > 1)) == "", known


VALUES = st.one_of(st.floats(), st.integers(-10, 10 ** 9), st.sampled_from(["", "nan", None, True]))


@settings(deadline=None, max_examples=60)
@given(VALUES, st.sampled_from(["nccl_allreduce", "ib_write_bw", "osu_bw", "osu_latency", "ethernet"]),
       st.sampled_from(["busbw", "bandwidth", "latency"]), st.sampled_from(["GB/s", "Gb/s", "MB/s", "us", ""]),
       st.sampled_from([None, 8, 65536, GIB]), st.sampled_from([None, 1, 2, 16]), st.sampled_from([None, 1, 2]))
def test_whatever_is_asked_nothing_false_passes(value: object, check: str, name: str, unit: str,  # noqa: PLR0917
                                                size: int | None, ranks: int | None, nodes: int | None) -> None:
    m = Measurement(name, value, unit, size, ranks=ranks, nodes=nodes)  # type: ignore[arg-type]
    verdict = one(check, m, two(h100))
    if verdict.status in (Status.PASS, Status.WARN):
        assert isinstance(value, (int, float))
        assert verdict.limit and verdict.limit.min and verdict.limit.min <= value


def test_no_figure_of_a_good_machine_would_fail_what_is_derived() -> None:
    from hpcadmin import ceilings
    from hpcadmin.catalogue import MEASURED, load_known
    from hpcadmin.derived import derive
    judged = 0
    for known in load_known():
        found = ceilings.gpus(known.hardware) if known.check.startswith("nccl_") else ()
        if known.kind != MEASURED or not known.ranks or not known.nodes or not found or known.transport == "EFA":
            continue                     # of EFA those nodes have other ports than are made here
        gpu = found[0]
        links = links_of(node("a", gpu.name, known.ranks // known.nodes, {"A100": "NV12"}.get(gpu.family, "NV18"),
                              [port(f"mlx5_{i}", gpu.port_gbps) for i in range(gpu.ports)]))
        m = busbw(known.value, known.nodes, known.ranks, known.size_bytes or GIB)
        made = derive(known.check, m, (links,), apart=known.nodes > 1)
        if made.limit and made.limit.min:
            judged += 1
            assert known.value >= made.limit.min, (known, made.limit)
    assert judged > 20


def test_no_figure_of_a_good_port_would_fail_what_is_derived() -> None:
    from hpcadmin import ceilings
    from hpcadmin.catalogue import MEASURED, load_known
    judged = 0
    for known in load_known():
        rate = ceilings.port_gbps(known.hardware)
        if known.kind != MEASURED or rate is None or not known.check.startswith(("ib_", "osu_")):
            continue
        layer = "Unspecified" if known.transport == "EFA" else "InfiniBand" if "4X" in known.hardware else "Ethernet"
        size = known.size_bytes or (8 if known.unit == "us" else 4 << 20)
        m = Measurement(known.measurement, known.value, known.unit, size, known.direction, nodes=2)
        verdict = one(known.check, m, two(lambda n, r=rate, x=layer: node(n, ports=[port("mlx5_0", r, x)])))
        judged += verdict.basis == "derived"
        assert verdict.status in (Status.PASS, Status.UNJUDGED), (known, verdict.reason)
    assert judged >= 4


def test_the_numbers_are_documented() -> None:
    from pathlib import Path

    from hpcadmin import derived, peers
    text = (Path(__file__).parent.parent / "docs" / "judging.md").read_text()
    rules = [getattr(derived, name) for name in dir(derived) if isinstance(getattr(derived, name), derived.Rule)]
    groups = (derived.NVLINK, derived.NVSWITCH, derived.BRIDGE, derived.PCIE, derived.NETWORK)
    tables = [rule for group in groups for rule in group.values()]
    for rule in [*rules, *tables]:
        assert f"{rule.share:.2f}" in text, rule
    assert f"at least {peers.MIN_NODES} nodes, and {peers.MIN_NODES} values" in text
    assert f"at least {peers.MIN_DISTANCE:.0%} from the median".replace("%", " %") in text
    assert f"at least {peers.MIN_SPREADS:g} standard deviations, as {peers.MAD_TO_SIGMA} times" in text


# --- facts that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, -400.0, float("nan"), float("inf"), 1e9])
def test_nothing_is_derived_of_a_rate_that_no_port_has(rate: float) -> None:
    odd = [replace(n, nics=tuple(replace(nic, rate_gbps=rate) for nic in n.nics)) for n in (h100("a"), h100("b"))]
    for check, m in (("ib_write_bw", rdma(390)), ("osu_bw", mpi(40000)), ("nccl_allreduce", busbw(300, 2, 16))):
        assert one(check, m, odd).status is Status.UNJUDGED, check


@pytest.mark.parametrize("width", [-16, 0, 3, 33, 10 ** 9])
def test_a_slot_of_a_width_that_there_is_not_forbids_nothing(width: int) -> None:
    odd = [replace(n, nics=tuple(replace(nic, pcie_width=width) for nic in n.nics)) for n in (h100("a"), h100("b"))]
    assert one("ib_write_bw", rdma(390), odd).status is Status.PASS


@pytest.mark.parametrize("label", ["NV9999999999", "NV99", "NV-1", "NVx", "NV\uff11\uff18", "ERR!"])
def test_nothing_is_derived_of_labels_that_are_none(label: str) -> None:
    assert one("nccl_allreduce", busbw(15), [node("a", H100, 8, label)]).status is Status.UNJUDGED
