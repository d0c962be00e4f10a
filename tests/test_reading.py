"""Many nodes read by several processes: the same as one by one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcadmin import reading, records
from hpcadmin.cli import _documents_text, run
from hpcadmin.errors import HpcadminError
from hpcadmin.model import Gpu, Nic, Node
from hpcadmin.reading import read_paths
from hpcadmin.sharing import Packer, Pool

LSCPU = """Architecture: x86_64
CPU(s): {cpus}
On-line CPU(s) list: 0-{last}
Thread(s) per core: 1
Core(s) per socket: {cpus}
Socket(s): 1
Model name: Some CPU
NUMA node(s): 1
NUMA node0 CPU(s): 0-{last}
"""
GPUS = "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-{number:08x}-1111-2222-3333-444444444444)\n"


def nodes_in(folder: Path, count: int = 70) -> Path:
    for number in range(count):
        cpus = 4 if number == 13 else 8
        (folder / f"n{number:03d}.lscpu.txt").write_text(LSCPU.format(cpus=cpus, last=cpus - 1))
        (folder / f"n{number:03d}.smi.txt").write_text(GPUS.format(number=number) if number != 7 else "")
    return folder


def test_several_processes_say_what_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = nodes_in(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found, statements = read_paths([str(folder)])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    alone, others = read_paths([str(folder)])
    assert found.nodes == alone.nodes and found.groups == alone.groups and found.odd == alone.odd
    assert len({node.gpus[0].uuid for node in found.nodes if node.gpus}) == 69
    told = [(one.node, one.file, one.errors, [r.known for r in one.readings]) for one in statements]
    assert told == [(one.node, one.file, one.errors, [r.known for r in one.readings]) for one in others]
    assert len(statements) == 70 and len(told) == 140


def test_equal_parts_are_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found, _ = read_paths([str(nodes_in(tmp_path))])
    assert len({id(node.cpu) for node in found.nodes}) == 2


def test_a_process_that_is_killed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(reading, "read_one", lambda taken: os._exit(9))
    with pytest.raises(HpcadminError, match="killed"):
        read_paths([str(nodes_in(tmp_path))])


def test_parcels() -> None:
    """What was sent before is only named; what is unpacked is equal."""
    nodes = [Node(f"n{number}", gpus=(Gpu("nvidia", 0, uuid=f"GPU-{number}"),), nics=(Nic("eth0", model="x" * 40),),
                  settings={"SMT": "on"}) for number in range(3)]
    packer, pool = Packer(), Pool()
    parcels = [packer.pack(node) for node in nodes]
    assert [len(parcel.new) for parcel in parcels] == [3, 1, 1]
    made = [pool.unpack(parcel) for parcel in parcels]
    assert made == nodes and made[0].nics is made[2].nics and made[0].settings is made[1].settings
    again = [pool.node(node) for node in made]
    assert again == nodes and again[0].nics is made[0].nics


def discover(args: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = run(["discover", "--from", *args])
    return status, capfd.readouterr().out


def test_many_nodes_say_once_what_they_have_in_common(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out = discover([str(nodes_in(tmp_path, 30))], capfd)
    assert "n[000-029]: lscpu (" in out
    lines = out.split("\n")
    assert "  all but n013: cpus: 8" in lines and "  n013: cpus: 4" in lines
    assert sum("sockets: 1" in line for line in lines) == 1
    refused = [line for line in lines if line.startswith("refused: ")]
    assert refused == [f"refused: n007: {tmp_path}/n007.smi.txt: is empty"]
    assert "  n007: " not in out.partition("Odd ones out")[0]


def test_what_each_node_has_of_its_own_is_not_listed_for_ever(tmp_path: Path,
                                                              capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(40):
        (tmp_path / f"n{number:02d}.txt").write_text(LSCPU.format(cpus=number + 1, last=number))
    _, out = discover([str(tmp_path)], capfd)
    assert "  online: 20 others (--json has all)" in out.split("\n")


@pytest.mark.parametrize("count", [3, 70])
def test_json_of_few_and_of_many(tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int) -> None:
    folder = nodes_in(tmp_path, count)
    _, out = discover([str(folder), "--json"], capfd)
    data = json.loads(out)
    found, statements = read_paths([str(folder)])
    plain = records.to_plain(found)
    plain["created"] = data["created"]
    assert {key: data[key] for key in plain} == plain
    assert data["order"] is None and len(data["documents"]) == 2 * count
    assert data["documents"][0] == _documents_text.plain(next(iter(statements)))


def test_json_of_many_that_all_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(70):
        (tmp_path / f"n{number:02d}.txt").write_text("words\n")
    status, out = discover([str(tmp_path), "--json"], capfd)
    data = json.loads(out)
    assert status == 3 and data["nodes"] == [] and len(data["failed"]) == len(data["documents"]) == 70


TOPO_TEXT = ("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-7\t0\nGPU1\tNV4\t X \t8-15\t1\n\n"
             "Legend:\n\n  X    = Self\n")
LSPCI_TEXT = ("00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]\n"
              "17:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)\n"
              "ca:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 SXM4 80GB] [10de:20b2] (rev a1)\n")
CSV_TEXT = ("index, name, pci.bus_id, uuid\n"
            "0, NVIDIA A100-SXM4-80GB, 00000000:17:00.0, GPU-11111111-1111-1111-1111-111111111111\n"
            "1, NVIDIA A100-SXM4-80GB, 00000000:CA:00.0, GPU-22222222-2222-2222-2222-222222222222\n")


def test_texts_of_one_node_join_in_any_order(tmp_path: Path) -> None:
    from itertools import permutations
    names = {"topo": TOPO_TEXT, "lspci": LSPCI_TEXT, "smi": CSV_TEXT}
    for name, text in names.items():
        (tmp_path / f"{name}.txt").write_text(text)
    for order in permutations(names):
        found, _ = read_paths([str(tmp_path / f"{name}.txt") for name in order], "n1")
        node, = found.nodes
        assert [(gpu.index, gpu.pci) for gpu in node.gpus] == [(0, "0000:17:00.0"), (1, "0000:ca:00.0")], order
        assert node.gpu_links == (("X", "NV4"), ("NV4", "X"))


def test_what_nothing_joins_is_not_added_up(tmp_path: Path) -> None:
    for name, text in (("topo", TOPO_TEXT), ("lspci", LSPCI_TEXT)):
        (tmp_path / f"{name}.txt").write_text(text)
    found, _ = read_paths([str(tmp_path / "topo.txt"), str(tmp_path / "lspci.txt")], "n1")
    node, = found.nodes
    assert len(node.gpus) == 2
    assert any("share no name, address or number" in problem for problem in node.problems)
