"""Texts out of logs: times, ranks and the like before every line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from looped import looped

from hpcadmin.facts import Document, read_document
from hpcadmin.facts._prefixes import without_prefixes

LIST = ("GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)",
        "GPU 1: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000001)")


@looped("prefix", [
    "2026-03-01T12:00:00Z ", "2026-03-01T12:00:00.123456+01:00 stdout F ", "[2026-03-01 12:00:00,123] ",
    "2026-03-01 12:00:00 INFO ", "[12:00:01] ", "Mar  1 12:00:00 gpu01 collect.sh[812]: ", "#12 0.345 ", "[rank0]: ",
    "[1,0]<stdout>:", "0: ", "(RayWorkerWrapper pid=17) ", "gpu-info-1  | ",
])
def test_the_same_with_a_beginning_on_every_line(prefix: str) -> None:
    outcome = read_document(Document("log", lines=tuple(prefix + line for line in LIST)))
    (reading,) = outcome.readings
    assert (reading.kind, reading.known["gpu_count"], reading.first, reading.last) == ("nvidia-smi -L", 2, 1, 2)
    assert not outcome.errors


def test_lines_of_several_ranks_are_mixed_and_stay() -> None:
    mixed = [f"[rank{n % 2}]: {line}" for n, line in enumerate((*LIST, *LIST, *LIST))]
    assert without_prefixes(mixed) is None


def test_other_lines_around_them_stay() -> None:
    lines = ["start", *(f"2026-03-01T12:00:00Z {word}" for word in "abcd"), "end"]
    assert without_prefixes(lines) == ["start", *"abcd", "end"]
    assert without_prefixes(["no", "beginnings", "here", "at all"]) is None


def test_a_log_of_the_kernel_is_read_with_its_times() -> None:
    lines = tuple(f"Mar  1 12:00:0{n} gpu01 kernel: NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus."
                  for n in range(4))
    (reading,) = read_document(Document("log", lines=lines)).readings
    assert (reading.kind, reading.known["errors"][0]["pci"]) == ("dmesg", "0000:44:00.0")


@given(st.lists(st.text(alphabet="[]0123456789-T:Z. ranksdout<>|#()=,a", max_size=60), max_size=20))
def test_lines_keep_their_places(lines: list[str]) -> None:
    found = without_prefixes(lines)
    assert found is None or len(found) == len(lines)
