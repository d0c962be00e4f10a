"""Rendered files read by an independent reader give back what the inventory says, whatever the cluster is like."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import conf_models as m
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Gpu, Inventory, Node

pytestmark = pytest.mark.deep

MODELS = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4090", "Tesla T4"]


def hosts(text: str) -> list[str]:
    """A hostlist with one pair of brackets at most in each name, as Slurm reads it."""
    found = []
    for prefix, ranges, plain in re.findall(r"([^,\[\]]+)\[([^\]]+)\]|([^,\[\]]+)", text):
        if plain:
            found.append(plain)
        for part in ranges.split(",") if ranges else []:
            low, _, high = part.partition("-")
            found += [f"{prefix}{n:0{len(low)}d}" for n in range(int(low), int(high or low) + 1)]
    return found


@dataclass
class Read:
    nodes: dict[str, dict[str, str]]
    gres: dict[str, list[dict[str, str]]]
    keys: dict[str, str]


def read(files: dict[str, str]) -> Read:
    out = Read({}, {}, {})
    for name in ("slurm.conf", "gres.conf"):
        for line in files[name].splitlines():
            words = dict(word.split("=", 1) for word in line.split("#")[0].split())
            if "NodeName" in words:
                for host in hosts(words["NodeName"]):
                    if name == "gres.conf":
                        out.gres.setdefault(host, []).append(words)
                    else:
                        assert host not in out.nodes, f"{host} twice"
                        out.nodes[host] = words
            elif "PartitionName" not in words:
                out.keys.update(words)
    return out


@st.composite
def machines(draw: st.DrawFn) -> Node:
    sockets, cores = draw(st.integers(1, 2)), draw(st.sampled_from([2, 4, 8, 12]))
    numa = draw(st.sampled_from([1, 2]))
    cpu = m.cpu(sockets, cores, draw(st.integers(1, 2)), numa)
    count = draw(st.integers(0, 8))
    minors = draw(st.permutations(range(count)))
    model = draw(st.sampled_from(MODELS))
    gpus = []
    for i in range(count):
        where = draw(st.one_of(st.none(), st.sets(st.integers(0, sockets * numa - 1), min_size=1)))
        gpus.append(Gpu("nvidia", i, model, pci=f"0000:{i + 16:02x}:00.0", minor=minors[i],
                        device_file=f"/dev/nvidia{minors[i]}", local_cpus=m.near(cpu, *where) if where else ()))
    label = draw(st.sampled_from(["SYS", "NV1", "NV18"]))
    links = tuple(tuple("X" if i == j else label for j in range(count)) for i in range(count))
    return Node("", cpu=cpu, memory_mib=draw(st.integers(600, 3_000_000)), gpus=tuple(gpus), gpu_links=links)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    kinds = draw(st.lists(machines(), min_size=1, max_size=3))
    nodes = []
    names = draw(st.sets(st.from_regex(r"[a-z]{1,2}[0-9]{0,3}(-[a-z])?", fullmatch=True), min_size=1, max_size=12))
    for place, name in enumerate(sorted(names)):
        nodes.append(replace(kinds[place % len(kinds)], name=name, hostname=name, slurm_version="22.05.8"))
    return Inventory(tuple(nodes))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inventories(), st.sampled_from(["22.05", "24.11", "25.11", "26.05"]))
def test_what_is_written_is_what_there_is(inventory: Inventory, version: str) -> None:
    result = render(inventory, m.SITE, RenderOptions(slurm_version=version))
    assert result.problems == ()
    found = read(dict(result.files))
    assert set(found.nodes) == {n.name for n in inventory.nodes}
    for node in inventory.nodes:
        line, devices = found.nodes[node.name], found.gres.get(node.name, [])
        sockets, cores, threads = (int(line[k]) for k in ("Sockets", "CoresPerSocket", "ThreadsPerCore"))
        assert int(line["CPUs"]) == sockets * cores * threads == node.cpu.cpus
        assert threads == node.cpu.threads_per_core
        assert 0 < int(line["RealMemory"]) <= (node.memory_mib or 0) - 16
        numa = "numa_node_as_socket" in (found.keys.get("SlurmdParameters", ""), line.get("Parameters", ""))
        assert sockets == (len(node.cpu.numa) if numa else node.cpu.sockets)
        check_devices(node, devices, line.get("Gres", ""), cores)


def check_devices(node: Node, devices: list[dict[str, str]], gres: str, cores_per_socket: int) -> None:
    assert len(devices) == len(node.gpus)
    assert gres == (f"gpu:{devices[0]['Type']}:{len(devices)}" if devices else "")
    for place, (device, gpu) in enumerate(zip(devices, node.gpus, strict=True)):
        assert device["File"] == gpu.device_file
        if "Links" in device:
            links = device["Links"].split(",")
            assert [i for i, text in enumerate(links) if text == "-1"] == [place]
            assert len(links) == len(devices)
        if "Cores" not in device:
            continue
        ends = [int(n) for n in device["Cores"].split("-")]
        low, high = ends[0], ends[-1]
        if (low, high) == (0, len(node.cpu.cores) - 1):      # all cores, beside GPUs that are near one socket
            assert len({d.get("Cores") for d in devices}) > 1 or cores_per_socket == len(node.cpu.cores)
            continue
        assert low % cores_per_socket == 0
        assert high - low + 1 == cores_per_socket
        assert {c for core in node.cpu.cores[low:high + 1] for c in core.cpus} == set(gpu.local_cpus)


@settings(max_examples=200, deadline=None)
@given(st.sets(st.from_regex(r"[a-z0-9.-]{0,3}[0-9]{0,5}", fullmatch=True).filter(bool), min_size=1, max_size=30))
def test_hostlists_read_back(names: set[str]) -> None:
    text = slurm_list(names)
    assert sorted(hosts(text)) == sorted(names)
    assert text == slurm_list(sorted(names, key=natural, reverse=True))
