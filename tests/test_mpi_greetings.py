"""What "hello" programs other than ours print: which ranks came up, and where."""

from __future__ import annotations

import pytest

from hpcadmin.check import Context, NodeView, Output, ParseError, Reading
from hpcadmin.registry import load_checks

CHECK = load_checks()["mpi_hello"]


def read(text: str) -> Reading:
    assert CHECK.read is not None
    return CHECK.read(text, Context())


@pytest.mark.parametrize(("line", "hosts"), [
    ("Hello world from processor n{h}.cluster, rank {r} out of 4 processors", 2),
    ("Hello, World! from from processor n{h}, rank {r} out of 4 processors", 2),
    ("[1,{r}]<stdout>:Hello world from processor n{h}, rank {r} out of 4 processors", 2),
    ("Hello, world, I am {r} of 4, (Open MPI v4.1.0, package: Open MPI x@build Distribution, 127)", None),
    ("Hello from proc {r} of 4", None), ("Hello from rank {r} of 4 on n{h}", 2),
    ("Hello World from process {r} of 4 running on node n{h}", 2),
    ("Hello from n{h}: rank {r} of 4", 2), ("Hello world from n{h}, rank {r} out of 4", 2),
    ("process           {r} of           4 is alive", None),
    ("Process {r} of 4 is on n{h}", 2)])
def test_all_ranks_in_any_order(line: str, hosts: int | None) -> None:
    lines = [line.format(r=rank, h=rank // 2) for rank in (2, 0, 3, 1)]
    found = read("\n".join(["srun: job 7 has been allocated resources", *lines, ""]))
    assert found.sound and found.usable and (found.ranks, found.hosts) == (4, hosts), found
    assert not read("\n".join(lines[1:])).usable and not read("\n".join([*lines, lines[0]])).usable
    assert not read("\n".join([*lines, "srun: error: n1: task 3: Segmentation fault"])).usable


def test_ranks_that_did_not_find_each_other() -> None:
    found = read("No PMIx server was reachable, but a PMI1/2 was detected.\nIf srun is being used to launch "
                 "application, 4 singletons will be started.\n" + "Hello from proc 0 of 1\n" * 4)
    assert not found.usable and found.ranks is None
    assert any("did not find each other" in why for why in found.problems)
    assert any("4 singletons" in why for why in found.problems)
    assert not read("Hello from proc 0 of 1\nHello from proc 0 of 2\nHello from proc 1 of 2\n").usable


def test_it_is_no_result_of_a_run_of_ours() -> None:
    text = "".join(f"Hello from rank {rank} of 2 on n{rank}\n" for rank in (0, 1))
    with pytest.raises(ParseError):
        CHECK.parse([Output(text)], Context(nodes=(NodeView("n0"), NodeView("n1")), ranks=2))
    alone = CHECK.parse([Output(text)], Context())
    assert [(m.name, m.value, m.key) for m in alone] == [("ranks", 2, False)]
