"""Clocks of nodes that differ from ours are told, where an output proves it."""

import pytest

from hpcadmin.frames import Frame
from hpcadmin.run_clocks import Clocks

NOW, SENT = 100_000.0, 99_900.0


def frame(start: float | None, end: float | None, role: str = "each") -> Frame:
    return Frame("t0001", 0, role, "n1", "n1", 0, start, end, frozenset(), b"")


@pytest.mark.parametrize(("start", "end", "words"), [
    (NOW - 10, NOW - 1, ""), (NOW + 60, NOW + 100, ""),
    (NOW + 3590, NOW + 3600, "at least 60 min ahead of this host's"),
    (SENT - 7300, SENT - 7200, "at least 2.0 h behind this host's"), (SENT - 100, SENT - 90, ""),
    (NOW, NOW - 7200, "set back by 2.0 h while a step ran"), (None, None, "")])
def test_what_an_output_proves(start: float | None, end: float | None, words: str) -> None:
    assert Clocks().look(frame(start, end), SENT, NOW) == words


def test_a_run_that_is_resumed_may_see_old_outputs() -> None:
    assert Clocks().look(frame(10.0, 20.0), None, NOW) == ""


def test_each_node_is_told_once_and_only_by_its_own_output() -> None:
    clocks = Clocks()
    assert clocks.look(frame(NOW, NOW + 999, "ranks"), SENT, NOW) == ""     # of the node that the script ran on
    assert clocks.look(frame(NOW, NOW + 999), SENT, NOW) and not clocks.look(frame(NOW, NOW + 999), SENT, NOW)
    note = "n1: its clock is at least 17 min ahead of this host's: times in its outputs are wrong"
    assert clocks.notes(["other", note]) == ("other", note)
