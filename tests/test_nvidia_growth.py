"""nvidia_smi twice, before the load and after it: what has grown in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hpcadmin.check import Context, Measurement, NodeView, Output
from hpcadmin.checklib import nvidia_links
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
    (cut,) = grown((ANSWER[:5000], LINKS, ERRORS), (ANSWER, LINKS, ERRORS))
    assert cut.value == "nothing" and cut.warnings[0].startswith("the reading before the load tells nothing: not one")


@pytest.mark.parametrize(("before", "said"), [
    ((ANSWER, LINKS, ERRORS.partition("GPU 1:")[0]), "378 counters"),
    (tuple(text.replace("GPU-57f85b99", "GPU-00000000") for text in (ANSWER, LINKS, ERRORS)), "1 of 8 GPUs"),
    (("", "", ""), "8 of 8 GPUs"), ((ANSWER, LINKS, ""), "432 counters")])
def test_a_reading_from_before_that_is_of_others_is_a_warning(before: Sequence[str], said: str) -> None:
    (one,) = grown(before, (ANSWER, LINKS, ERRORS))
    assert one.value == "nothing" and one.warnings[0].startswith(said)


@pytest.mark.parametrize(("model", "links", "rate", "worst"), [
    ("NVIDIA H800", 8, "26.562", 8), ("NVIDIA A800-SXM4-80GB", 8, "25", 8), ("NVIDIA A100-SXM4-80GB", 8, "25", 12),
    ("NVIDIA H20", 18, "26.562", 18), ("NVIDIA GB200", 18, "53.125", 18), ("NVIDIA B300 SXM6 AC", 17, "53.125", 18)])
def test_boards_have_all_their_nvlinks(model: str, links: int, rate: str, worst: int) -> None:
    text = f"GPU 0: {model} (UUID: GPU-1)\n" + "".join(f"\t Link {n}: {rate} GB/s\n" for n in range(links))
    found = {m.name: m for m in nvidia_links.measurements(nvidia_links.read(text)[0], NODE)}
    assert (found["nvlinks"].value, found["nvlinks"].expected) == (links, worst)
    assert found["nvlink_rate"].value == found["nvlink_rate"].expected


def test_nvlinks_that_all_run_at_half_their_rate() -> None:
    text = LINKS.replace("26.562", "13.281")
    found = [m for m in nvidia_links.measurements(nvidia_links.read(text)[0], NODE) if m.name == "nvlink_rate"]
    assert {(m.value, m.expected) for m in found} == {(13.281, 25.0)}
