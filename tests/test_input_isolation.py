"""A fault in one input never changes what is found out about another node."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest
import sim_node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcadmin.discovery import How, discover
from hpcadmin.facts import split_capture
from hpcadmin.model import Failed, Inventory, Node
from hpcadmin.reading import read_paths
from hpcadmin.remote import CommandResult

Found = dict[str, Node | Failed]


def of_nodes(found: Inventory) -> Found:
    return {**{node.name: node for node in found.nodes}, **{item.node: item for item in found.failed}}


@dataclass(frozen=True)
class Given:
    """A folder, how the names of the nodes begin that each entry of it is about, and what is found out about them when
    nothing is wrong."""

    folder: Path
    nodes: dict[str, tuple[str, ...]]
    found: Found

    def others(self, entry: str, found: Found) -> Found:
        return {name: one for name, one in found.items() if not name.startswith(self.nodes[entry])}


@pytest.fixture(scope="module")
def given_texts(tmp_path_factory: pytest.TempPathFactory) -> Given:
    folder = tmp_path_factory.mktemp("texts") / "all"
    folder.mkdir()
    text = sim_node.capture("4xA100-pcie")
    own = {name: section.text for name, section in split_capture(text, "here").sections.items()}
    topo, lscpu, smi = own["nvidia_topo"], own["lscpu"], own["nvidia_smi"]
    (folder / "n1.txt").write_text(text)
    (folder / "n2.txt").write_text(text.replace("NVIDIA A100", "NVIDIA A30"))
    (folder / "n3").mkdir()
    (folder / "n3" / "topo.txt").write_text(topo)
    (folder / "n3" / "lscpu.txt").write_text(lscpu)
    (folder / "n4.xml").write_text(smi)
    with tarfile.open(folder / "n5.tar.gz", "w:gz") as packed:
        for name, content in (("topo.txt", topo), ("lscpu.txt", lscpu)):
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            packed.addfile(member, io.BytesIO(content.encode()))
    (folder / "n6.topo.txt").write_text(topo)
    (folder / "n6.lscpu.txt").write_text(lscpu)
    (folder / "all.txt").write_text("".join(f"m{node}: {line}\n" for line in topo.splitlines() for node in (1, 2, 3)))
    nodes = {entry.name: (entry.name.partition(".")[0],) for entry in folder.iterdir()}
    nodes["all.txt"] = ("m", "all")
    found = of_nodes(read_paths([str(folder)])[0])
    assert sorted(found) == ["m1", "m2", "m3", "n1", "n2", "n3", "n4", "n5", "n6"]
    assert not any(isinstance(one, Failed) for one in found.values())
    return Given(folder, nodes, found)


def cut(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    return data[:draw.draw(st.integers(0, len(data)))]


def hole(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    begin = draw.draw(st.integers(0, len(data)))
    return data[:begin] + data[begin + draw.draw(st.integers(1, 5000)):]


def changed(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    made = bytearray(data)
    for place in draw.draw(st.lists(st.integers(0, max(len(data) - 1, 0)), min_size=1, max_size=20)):
        made[place:place + 1] = draw.draw(st.binary(min_size=0, max_size=3))
    return bytes(made)


def inserted(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    place = draw.draw(st.integers(0, len(data)))
    begin = draw.draw(st.integers(0, len(other)))
    return data[:place] + draw.draw(st.sampled_from([other[begin:begin + 3000], other, data])) + data[place:]


def replaced(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    return draw.draw(st.sampled_from([other, b"", b"\0" * 3000, b"n1: x\n" * 9, b"---\nn1\n---\nGPU0 X\n", b"\x1f\x8b",
                                      b"{", b"<topology>", b"Segmentation fault\n"]))


def shuffled(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    lines = data.split(b"\n")
    draw.draw(st.randoms(use_true_random=False)).shuffle(lines)
    return b"\n".join(lines)


def said_by(data: bytes, other: bytes, draw: st.DataObject) -> bytes:
    """As if each line came from another node."""
    name = draw.draw(st.sampled_from([b"n1", b"n2", b"n[1-6]", b"n9", b"localhost"]))
    return b"\n".join(name + b": " + line for line in (other if draw.draw(st.booleans()) else data).split(b"\n"))


DAMAGES: list[Callable[[bytes, bytes, st.DataObject], bytes]] = [
    cut, hole, changed, shuffled, inserted, replaced, said_by]
OF_MANY = DAMAGES[:4]            # a text of many nodes is about whom its lines name


@pytest.mark.deep
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_damaged_file_changes_no_other_node(given_texts: Given, draw: st.DataObject) -> None:
    files = sorted(path for path in given_texts.folder.rglob("*") if path.is_file())
    path, other = draw.draw(st.sampled_from(files)), draw.draw(st.sampled_from(files))
    before = path.read_bytes()
    damages = OF_MANY if path.name == "all.txt" else DAMAGES
    damaged = draw.draw(st.sampled_from(damages))(before, other.read_bytes(), draw)
    try:
        path.write_bytes(damaged)
        found = of_nodes(read_paths([str(given_texts.folder)])[0])
    finally:
        path.write_bytes(before)
    entry = path.relative_to(given_texts.folder).parts[0]
    assert given_texts.others(entry, found) == given_texts.others(entry, given_texts.found)


def gone(path: Path, other: Path) -> None:
    path.unlink()


def a_link(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(other)


def a_pipe(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "n1.txt").write_bytes(other.read_bytes())


@pytest.mark.parametrize("name", ["n2.txt", "n3/topo.txt", "n6.lscpu.txt", "all.txt"])
def test_what_is_no_file_changes_no_other_node(given_texts: Given, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "all"
    shutil.copytree(given_texts.folder, folder)
    before = of_nodes(read_paths([str(folder)])[0])
    for fault in (gone, a_link, a_pipe, a_folder):
        shutil.rmtree(folder)
        shutil.copytree(given_texts.folder, folder)
        isolated(given_texts, folder, before, fault, name)


def isolated(given_texts: Given, folder: Path, before: Found, fault: Callable[[Path, Path], None], name: str) -> None:
    fault(folder / name, folder / "n1.txt")
    found = of_nodes(read_paths([str(folder)])[0])
    entry = name.partition("/")[0]
    assert given_texts.others(entry, found) == given_texts.others(entry, before), fault.__name__


@cache
def whole() -> str:
    text = sim_node.capture("4xA100-pcie")
    return text.replace(text.partition("HPCADMIN-CAPTURE 1 ")[2].partition("\n")[0], "TOKEN")


@dataclass(frozen=True)
class Answers:
    """Nodes over some remote: what each of them prints, with the token that it was sent."""

    bad: bytes

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = 0) -> CommandResult:
        text = self.bad if host == "n2" else whole().encode()
        return CommandResult(host, text.replace(b"TOKEN", argv[-1].encode()), 0)


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(draw=st.data())
def test_an_answer_changes_no_other_node(draw: st.DataObject) -> None:
    data = whole().encode()
    damaged = draw.draw(st.sampled_from(DAMAGES))(data, data.replace(b"A100", b"A30"), draw)
    ask = partial(discover, nodes={f"n{n}": f"n{n}" for n in (1, 2, 3)}, how=How())
    good, found = (of_nodes(ask(Answers(bad))) for bad in (data, damaged))
    assert {name: found[name] for name in ("n1", "n3")} == {name: good[name] for name in ("n1", "n3")}
    assert "n2" in found
