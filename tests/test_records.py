"""Reading records is strict, also where equal values are shared; the inventory's file in each layout."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin import inventory, records
from hpcadmin.check import Direction, Measurement, Subject
from hpcadmin.errors import StoreError
from hpcadmin.model import Bmc, Core, Cpu, Dimm, Gpu, Inventory, Mount, Nic, Node, NumaNode, PciDevice, SwitchPort

words = st.text(max_size=8)
small = st.integers(-3, 70000)
gpus = st.builds(Gpu, vendor=words, index=st.none() | small, local_cpus=st.lists(small, max_size=3).map(tuple),
                 power_limit_w=st.none() | st.integers(0, 900) | st.floats(0, 900))
devices = st.builds(PciDevice, address=words, class_id=words, vendor_id=words, device_id=words, numa=st.none() | small)
nodes = st.builds(
    Node, name=words, gpus=st.lists(gpus, max_size=2).map(tuple), pci=st.lists(devices, max_size=3).map(tuple),
    gpu_links=st.lists(st.lists(words, max_size=2).map(tuple), max_size=2).map(tuple),
    cpu=st.builds(Cpu, model=words, cores=st.lists(st.builds(Core, socket=small, numa=st.none() | small,
                                                            cpus=st.tuples(small)), max_size=2).map(tuple)),
    nics=st.lists(st.builds(Nic, name=words, virtual=st.booleans()), max_size=2).map(tuple),
    tools=st.dictionaries(words, words, max_size=2), bmc=st.builds(Bmc, settings=st.dictionaries(words, words)),
    neighbours=st.lists(st.tuples(words, words, words), max_size=2).map(tuple),
    mounts=st.lists(st.builds(Mount, target=words, source=words, kind=words), max_size=2).map(tuple))
SHARE = (Cpu, tuple[PciDevice, ...], tuple[int, ...], tuple[tuple[str, ...], ...])


@pytest.mark.deep
@given(st.lists(nodes, max_size=3).map(tuple))
def test_every_way_of_writing_reads_back_the_same(members: tuple[Node, ...]) -> None:
    made = Inventory(members)
    for reader in (records.Reader(), records.Reader(SHARE)):
        for sparse in (False, True):
            text = records.dumps(made, sparse=sparse)
            assert reader.loads(Inventory, text, where="x") == made


@settings(max_examples=30)
@given(nodes, st.booleans())
def test_a_line_is_what_json_makes_of_the_plain_value(node: Node, sparse: bool) -> None:
    where = Subject(("n", "é\x01\u2028"))
    value = Measurement("x", 1.5, "us", None, Direction.BOTH, where, expected=True, warnings=('"',))
    every: tuple[object, ...] = (node, value, (node, value), {"a": value, "b": None}, [], 2, "\ud800")
    for made in every:
        plain = json.dumps(records.to_plain(made, sparse=sparse), ensure_ascii=False, separators=(",", ":"))
        assert records.dumps(made, sparse=sparse) == plain.encode("utf-8", "backslashreplace").decode()


@pytest.mark.parametrize(("change", "said"), [
    ('"socket":true', "cpu.cores[1].socket is bool, expected int"),
    ('"socket":1.0', "cpu.cores[1].socket is float, expected int"),
    ('"socket":null', "cpu.cores[1].socket is NoneType, expected int"),
    ('"socket":1,"x":2', "cpu.cores[1] has unknown fields: x"),
])
def test_sharing_accepts_nothing_that_is_not_accepted_alone(change: str, said: str) -> None:
    """1, true and 1.0 are equal in Python, and are not the same in a file."""
    text = records.dumps(Node("n", cpu=Cpu(cores=(Core(1, None, (0,)), Core(1, None, (1,))))))
    bad = change.join(text.rsplit('"socket":1', 1))
    for reader in (records.Reader(), records.Reader((*SHARE, Core))):
        with pytest.raises(StoreError, match=r"n\.json") as info:
            reader.loads(Node, bad, where="n.json")
        assert said in str(info.value)


def test_equal_values_are_one_object() -> None:
    made = Inventory(tuple(Node(f"n{i}", cpu=Cpu(sockets=2), os="Rocky Linux 9.4") for i in range(2)))
    one, two = records.Reader(SHARE).loads(Inventory, records.dumps(made), where="x").nodes
    assert one.cpu is two.cpu
    assert one.os is two.os


def test_paths_name_the_field() -> None:
    for text, said in (('{"name":"a","gpus":[{"vendor":"nvidia"},{"vendor":"nvidia","index":"x"}]}', "gpus[1].index"),
                       ('{"name":"a","tools":{"x":1}}', "tools.x"), ('{"name":"a","memory_mib":[]}', "memory_mib"),
                       ('{"name":"a","neighbours":[["a"]]}', "neighbours[0]"), ("3", "Node is not a table"),
                       ('{"name":"a","bmc":{"settings":3}}', "bmc.settings"), ('{"hostname":"a"}', "lacks 'name'")):
        with pytest.raises(StoreError) as info:
            records.loads(Node, text, where="x")
        assert said in info.value.what


def full() -> Inventory:
    node = Node("node01", cpu=Cpu(sockets=1, numa=(NumaNode(0, (0,)),)), dimms=(Dimm("A1", 65536),))
    return inventory.build([node, replace(node, name="node02")], created="2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize("lay_out", [
    lambda made: records.dumps(made, indent=1), records.dumps,
    lambda made: json.dumps(records.to_plain(made), indent=4, sort_keys=True),
])
def test_any_layout_of_the_file_is_read(tmp_path: Path, lay_out: object) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(lay_out(full()))  # type: ignore[operator]
    assert inventory.load(path) == full()


@pytest.mark.parametrize("change", [
    lambda lines: lines[:2], lambda lines: lines[:-1], lambda lines: [lines[0], lines[1].rstrip(","), *lines[2:]],
    lambda lines: [*lines, "x"], lambda lines: [lines[0], lines[1].replace("node01", "\x01"), *lines[2:]],
    lambda lines: [*lines[:2], lines[2] + ",", *lines[3:]], lambda lines: [lines[0], *lines[2:], lines[1]],
    lambda lines: [lines[0], lines[1].replace('"sockets":1', '"sockets":true'), *lines[2:]],
])
def test_a_damaged_line_is_refused(tmp_path: Path, change: object) -> None:
    path = tmp_path / "inventory.json"
    inventory.save(path, full())
    lines = path.read_text().rstrip("\n").split("\n")
    path.write_text("\n".join(change(lines)) + "\n")  # type: ignore[operator]
    with pytest.raises(StoreError, match=r"inventory\.json"):
        inventory.load(path)


def test_another_schema_is_said_before_anything_else(tmp_path: Path) -> None:
    path = tmp_path / "inventory.json"
    inventory.save(path, replace(full(), schema=2))
    path.write_text(path.read_text().replace('"name"', '"title"'))
    with pytest.raises(StoreError, match="schema 2"):
        inventory.load(path)


def test_a_file_that_is_empty_of_nodes(tmp_path: Path) -> None:
    inventory.save(tmp_path / "x.json", Inventory(()))
    assert inventory.load(tmp_path / "x.json") == Inventory(())


def test_slots_and_the_rest() -> None:
    assert records.to_plain(SwitchPort(3), sparse=True) == {"number": 3}


@given(st.lists(st.sampled_from(["a", "b", 'q"', "ü"]), min_size=1, max_size=6))
def test_a_writer_writes_what_dumps_does(words: list[str]) -> None:
    """Also when it has no room to keep texts."""
    shared = {word: tuple(PciDevice(word, "030200", "10de", word) for _ in range(2)) for word in words}
    nodes = [Node(f"n{n}", pci=shared[word], memory_mib=n, vendor=word) for n, word in enumerate(words)]
    for limit in (0, 200, 1 << 20):
        writer = records.Writer(limit)
        assert [writer.dumps(node) for node in nodes] == [records.dumps(node, sparse=True) for node in nodes]
