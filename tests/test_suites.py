"""Our suites on clusters of several kinds: what runs, what is not applicable, how long it takes."""

from __future__ import annotations

import pytest
from stepped import make_plan

from hpcadmin.check import NodeView, PortView, Status
from hpcadmin.plan_facts import HARDWARE, Facts
from hpcadmin.registry import load_checks, load_suite, suite_names
from hpcadmin.rundata import Plan
from hpcadmin.site import Site

CHECKS = load_checks()
PLAIN = {"iperf3", "ping"}
TOOLS = {tool for check in CHECKS.values() for tool in check.needs if tool not in HARDWARE}
OURS = {program for check in CHECKS.values() for program in check.builds}


def cluster(count: int, tools: set[str], *, gpus: int = 0, layer: str = "") -> Facts:
    """count equal nodes; layer: of eight ports for RDMA, "" for none."""
    ports = tuple(PortView(f"mlx5_{n}", 1, layer, 400.0, "ACTIVE", rail=n, gpu=n if gpus else None)
                  for n in range(8 if layer else 0))
    names = [f"n{n:04d}" for n in range(1, count + 1)]
    views = {n: NodeView(n, gpus=gpus, ports=ports, rdma_devices=tuple(p.device for p in ports)) for n in names}
    has = {"gpu": gpus > 0, "rdma": bool(layer), "infiniband": layer == "InfiniBand", "roce": layer == "Ethernet",
           "topology": False}
    return Facts(views, {word: dict.fromkeys(names, there) for word, there in has.items()},
                 tools={n: {t: f"/usr/bin/{t}" if t in tools else "" for t in TOOLS} for n in names},
                 programs={program: f"/shared/{program}" for program in OURS})


def plan(suite: str, facts: Facts) -> Plan:
    return make_plan(load_suite(suite, Site(), CHECKS), CHECKS, facts, tuple(facts.views))


def outcome(made: Plan) -> dict[str, Status | None]:
    return {e.check: e.status for e in made.entries}


@pytest.mark.parametrize("suite", [name for name in suite_names() if name != "conf"])
def test_plain_ethernet_without_gpus(suite: str) -> None:
    made = plan(suite, cluster(4, PLAIN))
    told = outcome(made)
    for name, status in told.items():
        hardware = [word for word in CHECKS[name].needs if word in HARDWARE]
        tools = [tool for tool in CHECKS[name].needs if tool not in {*HARDWARE, *PLAIN}]
        if hardware:
            assert status is Status.NOT_APPLICABLE, name
        elif name in ("osu_latency", "osu_bw"):
            assert status is Status.NOT_NEEDED, name        # our own ping-pong is there instead
        else:
            assert status is (Status.NOT_RUN if tools else None), name
    assert "mpi_hello" in told and ("mpi_pingpong" in told) is (suite != "smoke")
    if suite != "network-full":
        assert not [v for v in made.verdicts if v.status is Status.NOT_RUN]      # nothing is incomplete


@pytest.mark.parametrize(("layer", "not_there"), [
    ("InfiniBand", {"roce_config"}), ("Ethernet", {"subnet_manager", "ibdiagnet"})])
def test_everything_is_there(layer: str, not_there: set[str]) -> None:
    for suite in ("smoke", "network", "network-full"):
        made = plan(suite, cluster(4, TOOLS, gpus=8, layer=layer))
        told = outcome(made)
        assert {name for name, status in told.items() if status is Status.NOT_APPLICABLE} == not_there & set(told)
        assert {name for name, status in told.items() if status is Status.NOT_NEEDED} == (
            {"mpi_pingpong"} if suite != "smoke" else set())
        assert all(e.tests for e in made.entries if e.status is None)
        assert not made.verdicts, made.verdicts[:3]


def test_entries_stand_in_reports_as_the_suite_has_them() -> None:
    made = plan("network", cluster(4, TOOLS, gpus=8, layer="InfiniBand"))
    order = ["ib_links", "mpi_hello", "ib_write_bw", "ib_write_lat", "osu_latency", "osu_bw", "nccl_allreduce"]
    assert [e.check for e in made.entries if e.status is None] == order


def test_each_port_of_each_node_is_in_the_network_suite() -> None:
    facts = cluster(5, TOOLS, gpus=8, layer="InfiniBand")
    used = {(n, port) for t in plan("network", facts).tests if t.check == "ib_write_bw"
            for s in t.steps for n in s.nodes for port in s.argv if port.startswith("mlx5_")}
    assert used == {(n, p.device) for n, view in facts.views.items() for p in view.ports}


@pytest.mark.deep
def test_the_whole_is_possible_on_a_thousand_nodes() -> None:
    made = plan("network-full", cluster(1000, TOOLS))
    assert {e.check for e in made.entries if e.status is None} == {
        "mpi_hello", "ethernet", "osu_latency", "osu_bw", "osu_bibw", "osu_mbw_mr", "osu_allreduce", "osu_alltoall"}
    everything = plan("network-full", cluster(128, TOOLS, gpus=8, layer="InfiniBand"))
    assert sum(job.seconds for job in everything.jobs) < 3 * 3600
    assert len(everything.tests) * 1000 / 128 < 250_000      # they grow with the nodes, and no suite may have more


@pytest.mark.deep
def test_network_takes_minutes_on_a_thousand_nodes() -> None:
    made = plan("network", cluster(1000, TOOLS, gpus=8, layer="InfiniBand"))
    assert sum(job.seconds for job in made.jobs) < 15 * 60
    partners: dict[str, set[str]] = {}
    for test in made.tests:
        if test.check == "osu_bw":
            for node in test.subject.nodes:
                partners.setdefault(node, set()).update(set(test.subject.nodes) - {node})
    assert {len(found) for found in partners.values()} == {8}
