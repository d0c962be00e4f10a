"""nvidia_smi twice, before the load and after it: what has grown in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcadmin.check import Context, Measurement, NodeView, Output
from hpcadmin.registry import load_checks

FOLDER = Path(__file__).parent / "samples" / "nvidia_smi"
ANSWER, LINKS, ERRORS = (
    (FOLDER / f"ok_8_h100.{kind}").read_text(encoding="utf-8") for kind in ("out", "links", "errors"))
NODE = NodeView("n1", gpus=8, gpu_model="NVIDIA H100 80GB HBM3")
NAMES = ("-q -x", "nvlink -s", "nvlink -e")


def outputs(when: str, *texts: str) -> list[Output]:
    return [Output(text, node="n1", step=name, when=when) for text, name in zip(texts, NAMES, strict=True)]


def grown(before: Sequence[str], after: Sequence[str]) -> list[Measurement]:
    both = [*outputs("before", *before), *outputs("after", *after)]
    found = load_checks()["nvidia_smi"].parse(both, Context((NODE,)))
    return [m for m in found if m.name == "grown_under_load"]


def test_nothing_has_grown() -> None:
    (one,) = grown((ANSWER, LINKS, ERRORS), (ANSWER, LINKS, ERRORS))
    assert (one.value, one.expected, one.warnings, str(one.subject)) == ("nothing", "nothing", (), "n1")


@pytest.mark.parametrize(("old", "new", "value", "warning"), [
    ("Link 3: Recovery Errors: 0", "Link 3: Recovery Errors: 2", "link 3: Recovery Errors +2", ""),
    ("Link 3: Replay Errors: 0", "Link 3: Replay Errors: 7", "nothing", "link 3: Replay Errors +7"),
    ("Link 3: CRC Errors: 0", "Link 3: CRC Errors: 9", "nothing", "link 3: CRC Errors +9")])
def test_counters_of_links(old: str, new: str, value: str, warning: str) -> None:
    assert old in ERRORS
    (one,) = grown((ANSWER, LINKS, ERRORS), (ANSWER, LINKS, ERRORS.replace(old, new, 1)))
    assert (one.value, one.expected, str(one.subject)) == (value, "nothing", "n1 GPU 0")
    assert one.warnings == ((warning,) if warning else ())
    (back,) = grown((ANSWER, LINKS, ERRORS.replace(old, new, 1)), (ANSWER, LINKS, ERRORS))
    assert back.value == "nothing" and "was set back" in back.warnings[0]


def test_what_is_repaired_by_spare_rows_or_sent_again() -> None:
    worse = ANSWER.replace("<remapped_row_unc>0<", "<remapped_row_unc>1<", 1)
    again = ANSWER.replace("<replay_counter>0<", "<replay_counter>5<", 1)
    assert worse != ANSWER != again
    assert [m.value for m in grown((ANSWER, LINKS, ERRORS), (worse, LINKS, ERRORS))] == [
        "remapped rows, uncorrectable +1"]
    assert [m.warnings for m in grown((ANSWER, LINKS, ERRORS), (again, LINKS, ERRORS))] == [("PCIe replays +5",)]


def test_one_reading_by_itself_and_a_first_one_that_says_nothing() -> None:
    check = load_checks()["nvidia_smi"]
    alone = check.parse(outputs("before", ANSWER, LINKS, ERRORS), Context((NODE,)))
    assert alone == check.parse(outputs("", ANSWER, LINKS, ERRORS), Context((NODE,)))
    assert not any(m.name == "grown_under_load" for m in alone)
    assert not grown((ANSWER[:5000], LINKS, ERRORS), (ANSWER, LINKS, ERRORS))
