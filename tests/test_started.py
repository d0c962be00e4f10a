"""How tests are started over their layouts, and what an output must show of it: port, GPU, NUMA node, transport."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcadmin.check import Context, Layout, Measurement, NodeView, Output, ParseError, PortView, Role, Step
from hpcadmin.checklib import mpi_start, nccl_start
from hpcadmin.checklib.mpi_text import look
from hpcadmin.checklib.nccl_run import Rank
from hpcadmin.registry import load_checks
from hpcadmin.report.summary import measurement_name

CHECKS = load_checks()
SAMPLES = Path(__file__).parent / "samples"
PORTS = tuple(PortView(f"mlx5_{i}", 1, "InfiniBand", state="ACTIVE", numa=i // 2, rail=i, gpu=i) for i in range(4))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def node(name: str, ports: Sequence[PortView] = PORTS, **more: object) -> NodeView:
    return NodeView(name, f"10.0.0.{name[-1]}", name, gpus=4, gpu_model="NVIDIA H100 80GB HBM3",
                    rdma_devices=tuple(p.device for p in ports), ports=tuple(ports), **more)  # type: ignore[arg-type]


PAIR = (node("node01"), node("node02"))


def context(check: str, nodes: Sequence[NodeView] = PAIR, tools: Sequence[str] = ("numactl",),
            params: dict[str, str | int] | None = None, **more: object) -> Context:
    return Context(tuple(nodes), {**CHECKS[check].params, **(params or {})},
                   {t: f"/usr/bin/{t}" for t in (*CHECKS[check].needs, *tools)}, "Version: 6.06",
                   **more)  # type: ignore[arg-type]


def steps(check: str, **more: object) -> Sequence[Step]:
    return CHECKS[check].steps(context(check, **more))  # type: ignore[arg-type]


def rail(number: int) -> dict[str, object]:
    return {"layout": Layout.RAILS, "rail": number, "ports": (PORTS[number],) * 2, "device": f"rail {number}"}


# --- perftest


def test_both_sides_are_bound_to_the_numa_node_of_their_port() -> None:
    server, client = steps("ib_write_bw", **rail(3))
    assert server.under == client.under == ("/usr/bin/numactl", "--cpunodebind=1", "--membind=1")
    assert server.argv[:3] == ("/usr/bin/ib_write_bw", "-d", "mlx5_3")
    assert steps("ib_write_bw")[0].under[1] == "--cpunodebind=0"
    assert steps("ib_write_bw", tools=())[0].under == ()
    assert steps("ib_write_bw", nodes=[replace(n, simulated="8xH100") for n in PAIR])[0].under == ()
    far = [node("node01", [replace(PORTS[0], numa=None)]), node("node02")]
    assert [s.under[1:2] for s in steps("ib_write_bw", nodes=far)] == [(), ("--cpunodebind=0",)]


def test_the_first_port_that_is_up_is_taken_and_its_gid() -> None:
    ports = [replace(PORTS[0], state="DOWN"), replace(PORTS[2], link_layer="Ethernet", gid_index=3), PORTS[1]]
    server, client = steps("ib_write_bw", nodes=[node("node01", ports), node("node02", ports)])
    assert server.argv[1:3] == ("-d", "mlx5_1") and "-x" not in server.argv       # rail 1 before rail 2
    (server, client) = steps("ib_write_bw", nodes=[node("node01", ports[:2]), node("node02", ports[:2])])
    assert server.argv[1:5] == client.argv[1:5] == ("-d", "mlx5_2", "-x", "3")
    assert steps("ib_write_bw", nodes=[node("node01", ports[:2])] * 2, params={"gid_index": "5"})[0].argv[4] == "5"


def test_memory_of_the_gpu_at_the_port() -> None:
    server, client = steps("ib_write_bw", params={"gpu": "near"}, **rail(2))
    assert "--use_cuda=2" in server.argv and "--use_cuda=2" in client.argv
    assert (server.gpus_per_task, client.gpus_per_task) == (4, 4)
    amd = [replace(n, gpu_model="AMD Instinct MI300X") for n in PAIR]
    assert "--use_rocm=2" in steps("ib_write_bw", nodes=amd, params={"gpu": "near"}, **rail(2))[0].argv
    unknown = [node(n.name, [replace(PORTS[0], gpu=None)]) for n in PAIR]
    with pytest.raises(ParseError, match="which GPU of node01 is near mlx5_0/1 is not known"):
        steps("ib_write_bw", nodes=unknown, params={"gpu": "near"})


def perftest(client: str, server: str, **more: object) -> list[Measurement]:
    outputs = [Output(server, role=Role.SERVER), Output(client, role=Role.CLIENT)]
    return CHECKS["ib_send_bw"].parse(outputs, context("ib_send_bw", **more))  # type: ignore[arg-type]


def test_what_perftest_must_show() -> None:
    client, server = sample("ib_send_bw/ok_ib.out"), sample("ib_send_bw/ok_ib.server.txt")
    m = next(m for m in perftest(client, server, **rail(0)) if m.key)
    assert (str(m.subject), m.rail, m.binding, m.transport) == (
        "node01 - node02 rail 0", "mlx5_0", "NUMA node 0", "InfiniBand RC")
    with pytest.raises(ParseError, match="used mlx5_0, not mlx5_1"):
        perftest(client, server, **rail(1))
    roce = [node(n.name, [replace(PORTS[0], link_layer="Ethernet")]) for n in PAIR]
    with pytest.raises(ParseError, match="is IB, the inventory has it as Ethernet"):
        perftest(client, server, nodes=roce)
    with pytest.raises(ParseError, match="GPUDirect is not proven"):
        perftest(client, server, params={"gpu": "near"}, **rail(0))


def test_gpudirect_is_proven_with_the_gpu_that_was_asked_for() -> None:
    client, server = (sample(f"ib_send_bw/ok_gpu_memory_8_qps.{kind}") for kind in ("out", "server.txt"))
    asked: dict[str, str | int] = {"gpu": "near", "qps": 8}
    m = next(m for m in perftest(client, server, params=asked, **rail(0)) if m.key)
    assert m.binding == "NUMA node 0, GPU memory (NVIDIA H100 80GB HBM3)"
    with pytest.raises(ParseError, match="used memory of GPU 0, not of GPU 3"):
        perftest(client, server, params={**asked, "gpu": "cuda:3"}, **rail(0))


def test_a_loopback_is_wanted_in_a_loopback_only() -> None:
    client = sample("ib_send_bw/ok_ib.out").replace("LID 0x2b", "LID 0x1a")
    server = sample("ib_send_bw/ok_ib.server.txt").replace("LID 0x2b", "LID 0x1a")
    with pytest.raises(ParseError, match="both ends are one port"):
        perftest(client, server, nodes=PAIR[:1], layout=Layout.NODE, ports=PORTS[:1] * 2)
    m = next(m for m in perftest(client, server, nodes=PAIR[:1], layout=Layout.LOOPBACK, ports=PORTS[:1],
                                 device="mlx5_0/1") if m.key)
    assert (str(m.subject), m.nodes, m.warnings) == ("node01 mlx5_0/1", 1, ())


# --- NCCL

H200 = tuple(NodeView(n, hostname=n, gpus=8, rdma_devices=("mlx5_0", "mlx5_3"),
                      gpu_pci=tuple(f"0000:{0x18 + 9 * i:02x}:00.0" for i in range(8)),
                      ports=(PortView("mlx5_0", rail=0, gpu=0), PortView("mlx5_3", rail=1, gpu=1)))
             for n in ("gpu01", "gpu02"))
SIZES: dict[str, str | int] = {"min_bytes": 1048576, "max_bytes": 1073741824}
GATHER = sample("nccl_allgather/ok_2x8_h200_ib.out")


def gather(text: str, nodes: Sequence[NodeView] = H200, **more: object) -> list[Measurement]:
    return CHECKS["nccl_allgather"].parse(
        [Output(text, role=Role.RANKS)], context("nccl_allgather", nodes, params=SIZES, **more))  # type: ignore[arg-type]


def test_sockets_where_rdma_is_expected_and_where_it_is_not() -> None:
    sockets = re.sub(r"via NET/IB/\d/GDRDMA", "via NET/Socket/0", GATHER).replace("network IB", "network Socket")
    told = [m for m in gather(sockets) if m.name == "transport"]
    assert [(m.value, m.expected) for m in told] == [("TCP (NET/Socket)", "RDMA")]
    assert [(m.value, m.expected) for m in gather(GATHER) if m.name == "transport"] == [("RDMA", "RDMA")]
    plain = [replace(n, ports=(), rdma_devices=()) for n in H200]
    down = [H200[0], replace(H200[1], ports=tuple(replace(p, state="DOWN") for p in H200[1].ports))]
    for nodes in (plain, down):
        assert not any(m.name == "transport" for m in gather(sockets, nodes))
        key = next(m for m in gather(sockets, nodes) if m.name == "busbw" and m.key)
        assert key.transport.startswith("TCP") and not key.warnings


def test_a_transport_that_nobody_tells_is_a_warning() -> None:
    silent = "".join(line for line in GATHER.splitlines(keepends=True) if "NCCL INFO" not in line)
    key = next(m for m in gather(silent) if m.name == "busbw" and m.key)
    assert nccl_start.UNPROVEN in key.warnings
    assert not next(m for m in gather(silent, [replace(n, ports=(), rdma_devices=()) for n in H200]) if m.key).warnings


def test_a_rail_is_run_with_its_own_port_and_gpu() -> None:
    own = context("nccl_allgather", H200, layout=Layout.RAILS, rail=1, ports=(H200[0].ports[1],) * 2, gpu=1)
    rank = Rank(0, "gpu01", 0, "0000:21:00", "NVIDIA H200")
    nccl_start.as_planned([rank, replace(rank, number=1, host="gpu02")], "NET/IB : Using [0]mlx5_3:1/IB [RO]", own)
    with pytest.raises(ParseError, match=r"gpu02 used the GPU at 0000:18:00, not GPU 1 at 0000:21:00\.0"):
        nccl_start.as_planned([rank, replace(rank, host="gpu02", pci="0000:18:00")], "", own)
    with pytest.raises(ParseError, match="NCCL used port mlx5_0/1, not only mlx5_3/1"):
        nccl_start.as_planned([rank], "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB", own)
    assert [nccl_start.bus(a) for a in ("0x1b", "0000:1b:00", "0000:1b:00.0", "1b", "")] == [27, 27, 27, 27, None]


# --- MPI


def test_mpi_is_asked_for_its_transport_and_bound() -> None:
    (one,) = steps("osu_bw", **rail(3))
    assert one.env == {"UCX_LOG_LEVEL": "info", "OMPI_MCA_btl_base_verbose": "5", "OMPI_MCA_pml_base_verbose": "10",
                       "OMPI_MCA_mtl_base_verbose": "1", "OMPI_MCA_opal_common_ofi_verbose": "1",
                       "I_MPI_DEBUG": "5", "UCX_NET_DEVICES": "mlx5_3:1"}
    assert one.under == ("/usr/bin/numactl", "--cpunodebind=1", "--membind=1")
    assert steps("osu_mbw_mr", params={"tasks_per_node": 8})[0].under == ()
    uneven = [node("node01"), node("node02", [replace(p, numa=1) for p in PORTS])]
    assert steps("osu_bw", nodes=uneven)[0].under == ()
    many = steps("osu_allreduce", nodes=[node(f"node{i:02d}") for i in range(65)])[0]
    assert many.env == {"UCX_LOG_LEVEL": "info"}       # a line a kind of connection, not one a peer


def osu(text: str, nodes: object = PAIR, **more: object) -> list[Measurement]:
    given = context("osu_bw", nodes, **more)  # type: ignore[arg-type]
    return CHECKS["osu_bw"].parse([Output(text, role=Role.RANKS)], given)


BW = sample("osu_bw/ok_v7_validated.out")
UCX = "[1733000000.1] [node01:4001:0]      ucp_worker.c:1855 UCX  INFO  ep_cfg[1]: tag({})\n"


@pytest.mark.parametrize(("told", "value", "warned"), [
    (UCX.format("rc_mlx5/mlx5_0:1"), "RDMA", False), (UCX.format("tcp/eth0"), "TCP (UCX: tcp/eth0)", False),
    (UCX.format("rc_mlx5/mlx5_0:1") + UCX.format("tcp/eth0"), "TCP (UCX: tcp/eth0)", False),
    (UCX.format("rc_mlx5/mlx5_0:1") + UCX.format("sysv/memory cma/memory tcp/eth0"), "RDMA", False),
    ("[node01:7] mca: bml: Using tcp btl for send to [[1,1],1] on node node02\n", "TCP (Open MPI: btl tcp)", False),
    ("[node01:7] mca: bml: Using openib btl for send to [[1,1],1] on node node02\n", "RDMA", False),
    ("[node01:7] mca: bml: Using self btl for send to [[1,1],0] on node node01\n", None, True), ("", None, True)])
def test_what_mpi_tells_of_its_transport(told: str, value: str | None, warned: bool) -> None:
    found = osu(told + BW)
    assert [(m.value, m.expected) for m in found if m.name == "transport"] == ([(value, "RDMA")] if value else [])
    key = next(m for m in found if m.key and m.name == "bandwidth")
    assert (mpi_start.UNPROVEN in key.warnings) is warned and key.binding == "NUMA node 0, DEVICE"
    plain = osu(told + BW, [replace(n, ports=(), rdma_devices=()) for n in PAIR])
    assert not any(m.name == "transport" or m.warnings for m in plain)


def test_a_rail_of_mpi_is_its_own_port() -> None:
    found = osu(UCX.format("rc_mlx5/mlx5_2:1") + BW, **rail(2))
    key = next(m for m in found if m.key and m.name == "bandwidth")
    assert (str(key.subject), key.rail) == ("node01 - node02 rail 2", "mlx5_2")
    with pytest.raises(ParseError, match="used port mlx5_0/1, not only mlx5_2/1"):
        osu(UCX.format("rc_mlx5/mlx5_0:1") + BW, **rail(2))


def test_device_buffers_are_asked_for_and_must_be_shown() -> None:
    (one,) = steps("osu_bw", params={"buffers": "device"}, **rail(2))
    assert one.argv[-4:] == ("-d", "cuda", "D", "D") and one.gpus_per_task == 4
    assert one.env["CUDA_VISIBLE_DEVICES"] == "2"
    lanes = UCX.format("rc_mlx5/mlx5_0:1")
    assert next(m for m in osu(lanes + BW, params={"buffers": "device"}) if m.key and not m.expected).binding.endswith(
        "DEVICE")
    host = BW.replace("on DEVICE (D)", "on HOST (H)")
    with pytest.raises(ParseError, match="buffers in GPU memory were asked for"):
        osu(lanes + host, params={"buffers": "device"})


def test_open_mpi_names_the_component_of_each_peer() -> None:
    lines = [f"[n1:7] mca: bml: Using {btl} btl for send to [[24990,1],{n}] on node n{n}"
             for n, btl in enumerate(("self", "vader", "openib", "tcp"))]
    assert look(lines).transport == "TCP (Open MPI: btl tcp)"
    assert look(lines[:3]).transport == "RDMA (Open MPI: btl openib)"
    assert look(lines[:2]).transport is None


@pytest.mark.parametrize(("provider", "transport"), [
    ("efa", "EFA (Open MPI: mtl ofi efa)"), ("tcp;ofi_rxm", "TCP (Open MPI: mtl ofi tcp;ofi_rxm)"),
    ("verbs;ofi_rxm", "RDMA (Open MPI: mtl ofi verbs;ofi_rxm)"), ("unknown", None)])
def test_open_mpi_over_libfabric(provider: str, transport: str | None) -> None:
    lines = [f"[n1:7] mtl_ofi_component.c:337: mtl:ofi:prov: {provider}", "[n1:7] select: component cm selected"]
    assert look(lines).transport == transport and not look(lines).faults and not look(lines).doubts
    assert look(lines[:1]).transport is None        # looked at, and another component taken


@pytest.mark.parametrize(("more", "name"), [
    ({}, "busbw at 8 GiB"), ({"nodes": 2, "ranks": 2}, "busbw at 8 GiB"), ({"nodes": 1, "ranks": 8}, "within a node"),
    ({"nodes": 2, "ranks": 16}, "over 2 nodes"), ({"nodes": 64, "ranks": 512}, "over 64 nodes"),
    ({"rail": "mlx5_3", "nodes": 4, "ranks": 4}, "on rail mlx5_3 over 4 nodes"),
    ({"binding": "NUMA node 0, GPU memory (NVIDIA H200)"}, "in GPU memory"), ({"binding": "DEVICE"}, "in GPU memory"),
    ({"binding": "HOST"}, "busbw at 8 GiB")])
def test_values_of_different_layouts_have_different_names(more: dict[str, object], name: str) -> None:
    found = measurement_name(Measurement("busbw", 1.0, "GB/s", 1 << 33, **more))  # type: ignore[arg-type]
    assert found.endswith(name) and found.startswith("busbw at 8 GiB")
