"""What conf makes of each file of the corpus, read to a node: cores near GPUs, which sockets those are, links, layout.

Where a file does not determine something, nothing is written; where it does, it is what the file's answer says.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import corpus_topo as corpus
import pytest
from looped import looped

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.gpus import links
from hpcadmin.conf.machines import placed
from hpcadmin.conf.sockets import Layout, Mode, choose, layout, near_cores, places
from hpcadmin.model import Gpu, Node
from hpcadmin.reading import read_paths
from hpcadmin.text import fold_ids

pytestmark = pytest.mark.skipif(not corpus.CORPUS.is_dir(), reason="the corpus is not here")
KINDS = {"package": Mode.PACKAGE, "numa": Mode.NUMA, "l3": Mode.L3}
_PRINTED = re.compile(r"(Boards|SocketsPerBoard|CoresPerSocket|ThreadsPerCore)=(\d+)")


def having(*fields: str) -> list[str]:
    if not corpus.CORPUS.is_dir():
        return []
    return [file for file in sorted(corpus.expected()) if any(corpus.answer(file).get(f) is not None for f in fields)]


@cache
def node(file: str) -> Node | None:
    """None where nothing may be configured from the file."""
    inventory, _ = read_paths([str(corpus.CORPUS / file)], "node")
    return inventory.nodes[0] if inventory.nodes else None


def refused(file: str) -> bool:
    answer = corpus.answer(file)
    return bool(answer["must_refuse"] or answer["incomplete"])


def hidden(found: Node) -> bool:
    """Whether the file shows a part of the node only; then its CPUs are not used, and the node is a problem."""
    return any("restricted" in problem for problem in found.problems) and not found.cpu.cores


def counts(found: Layout | str) -> tuple[int, int, int] | None:
    return (found.sockets, found.cores_per_socket, found.threads_per_core) if isinstance(found, Layout) else None


@pytest.mark.deep
@pytest.mark.parametrize("file", having("sockets"))
def test_layout(file: str) -> None:
    found, answer = node(file), corpus.answer(file)
    wanted = tuple(answer.get(key) for key in ("sockets", "cores_per_socket", "threads_per_core"))
    if found is None or hidden(found):
        assert refused(file) or answer.get("restricted")
        return
    ours = counts(layout(found.cpu, Mode.PACKAGE))
    if not all(isinstance(number, int) for number in wanted):
        assert ours is None or None in (answer.get("cores_per_socket"), answer.get("threads_per_core")), (ours, wanted)
        return
    assert ours == wanted


@pytest.mark.deep
@looped("file", having("slurmd_C_22_05"))
def test_layout_is_what_slurmd_prints(file: str) -> None:
    """Of a real slurmd 22.05 on the file; where sockets are even, its product is the number of CPUs."""
    found, printed = node(file), dict(_PRINTED.findall(str(corpus.answer(file)["slurmd_C_22_05"])))
    ours = counts(layout(found.cpu, Mode.PACKAGE)) if found else None
    if ours is None or len(printed) < 4 or any(core.cpus == () for core in found.cpu.cores if found):
        return
    boards, per_board, cores, threads = (int(printed[key]) for key in (
        "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"))
    if boards * per_board * cores * threads == ours[0] * ours[1] * ours[2]:
        assert ours == (boards * per_board, cores, threads)


def told_gpus(file: str) -> list[dict[str, Any]]:
    gpus = corpus.answer(file).get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict) and gpu.get("pci")] if isinstance(gpus, list) else []


def files_with(key: str) -> list[str]:
    if not corpus.CORPUS.is_dir():
        return []
    return [file for file in sorted(corpus.expected()) if any(gpu.get(key) for gpu in told_gpus(file))]


def find(found: Node, pci: str) -> Gpu | None:
    return next((gpu for gpu in placed(found) if gpu.pci.endswith(pci.lower())), None)


@looped("file", files_with("local_cores"))
def test_cores_near_gpus(file: str) -> None:
    found = node(file)
    if found is None or hidden(found):
        assert refused(file) or corpus.answer(file).get("restricted")
        return
    for told in told_gpus(file):
        gpu = find(found, told["pci"])
        if gpu is None or told.get("local_cores") is None:
            continue
        near = near_cores(found.cpu, gpu)
        assert near.cores is not None, near.why
        assert fold_ids(near.cores) == told["local_cores"], told["pci"]


@looped("file", files_with("local_set_is"))
def test_which_sockets_they_are(file: str) -> None:
    found = node(file)
    if found is None or hidden(found):
        assert refused(file) or corpus.answer(file).get("restricted")
        return
    for told in told_gpus(file):
        gpu, kinds = find(found, told["pci"]), told.get("local_set_is") or []
        if gpu is None:
            continue
        cores = near_cores(found.cpu, gpu).cores
        for kind, mode in KINDS.items():
            lay = layout(found.cpu, mode)
            if isinstance(lay, Layout):
                assert (cores in lay.spans) is (kind in kinds), (told["pci"], kind, kinds)
    sets = [set(gpu.get("local_set_is") or ()) for gpu in told_gpus(file)]
    chosen = choose(found.cpu, places(placed(found)))
    if sets and all("package" in one for one in sets):
        assert chosen.mode is Mode.PACKAGE
    elif sets and all("numa" in one for one in sets) and isinstance(layout(found.cpu, Mode.NUMA), Layout):
        assert chosen.mode is Mode.NUMA


@looped("file", [file for file in having("kind") if "cores_if_determined" in corpus.answer(file)])
def test_no_cores_from_a_file_that_does_not_determine_them(file: str) -> None:
    """A matrix of topo -m names OS CPUs, and nothing says which core each is."""
    found, wanted = node(file), corpus.answer(file)["cores_if_determined"]
    if found is not None:
        ours = [near_cores(found.cpu, gpu).cores for gpu in found.gpus]
        assert [None if cores is None else fold_ids(cores) for cores in ours] == (wanted or [None] * len(ours))


def matrix(file: str) -> list[list[int]] | None:
    rows = corpus.answer(file).get("links")
    square = isinstance(rows, list) and rows and all(isinstance(row, list) and len(row) == len(rows) for row in rows)
    return rows if square else None


@looped("file", [file for file in having("links") if matrix(file)])
def test_links(file: str) -> None:
    found, wanted = node(file), matrix(file) or []
    if found is None:
        assert refused(file)
        return
    order = bus_order(found.gpus)
    ours, why = links(found, order if not isinstance(order, str) else found.gpus)
    if ours:
        assert isinstance(order, tuple) or all(gpu.pci == "" for gpu in found.gpus)
        assert [[int(number) for number in row.split(",")] for row in ours] == wanted
    elif any(number > 0 for row in wanted for number in row if number is not None):
        # NCCL's files number no GPU as the driver does, so that no line can be written from them alone.
        unnumbered = any(gpu.index is None for gpu in found.gpus)
        assert unnumbered or corpus.answer(file).get("links_must_not_be_used") or refused(file), why
    else:
        assert "no Links" in why


def test_something_was_compared() -> None:
    assert len(having("sockets")) >= 70
    assert len(files_with("local_cores")) > 10
    assert sum(links(n, n.gpus)[0] != () for file in having("links") if matrix(file) and (n := node(file))) > 10
