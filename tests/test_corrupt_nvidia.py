"""Damaged answers of nvidia-smi: what a changed value gives, and texts for people. All kinds: test_corruption.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from check_samples import Sample
from corruption_families import SMI_ERRORS as ERRORS
from corruption_families import SMI_WORDS as WORDS
from corruption_families import smi_sample
from looped import looped

from hpcadmin.check import Context, Output, ParseError, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

CHECK = load_checks()["nvidia_smi"]


@cache
def sample() -> Sample:
    return smi_sample()


def verdict(outputs: Sequence[Output], context: Context | None = None) -> Status:
    context = sample().context if context is None else context
    test = PlannedTest("t1", "nvidia_smi", Subject(("node01",)), (), 1)
    try:
        result = TestResult(test, tuple(CHECK.parse(outputs, context)))
    except ParseError as exc:
        result = TestResult(test, (), str(exc))
    return max((v.status for v in judge([result], ())), key=lambda status: status.rank)


def damaged(text: str, place: int = 0) -> list[Output]:
    outputs = sample().outputs()
    outputs[place] = replace(outputs[place], text=text)
    return outputs


def test_whole_passes() -> None:
    assert verdict(sample().outputs()) is Status.PASS


@looped("place", [0, 1, 2])
@looped("end", [{"exit_status": 1}, {"exit_status": None}, {"timed_out": True}, {"truncated": True},
                                 {"exit_status": 139}], ids=str)
def test_a_bad_end_never_passes(place: int, end: dict) -> None:
    outputs = sample().outputs()
    outputs[place] = replace(outputs[place], **end)
    assert verdict(outputs) is not Status.PASS


def test_a_step_that_is_lost_never_passes() -> None:
    outputs = [replace(o, step=s) for o, s in zip(sample().outputs(), ("-q -x", "nvlink -s", "nvlink -e"), strict=True)]
    assert verdict(outputs) is Status.PASS
    for chosen in (outputs[:1], outputs[:2], outputs[1:], outputs[::-1], [*outputs[:2], outputs[1]]):
        assert verdict(chosen) is not Status.PASS


@looped(("old", "new", "wanted"), [
    ("<dram_uncorrectable>0<", "<dram_uncorrectable>1<", Status.FAIL),
    ("<sram_correctable>0<", "<sram_correctable>9<", Status.PASS),
    ("<remapped_row_unc>0<", "<remapped_row_unc>2<", Status.WARN),
    ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", Status.FAIL),
    ("<pending_retirement>N/A<", "<pending_retirement>Yes<", Status.FAIL),
    ("<gpu_temp_tlimit>54 C<", "<gpu_temp_tlimit>-3 C<", Status.FAIL),
    ("_histogram_none>0 bank(s)<", "_histogram_none>1 bank(s)<", Status.FAIL),
    ("<retired_count>N/A<", "<retired_count>3<", Status.WARN),
    ("<retired_count>N/A<", "<retired_count>63<", Status.FAIL),
    ("<state>Completed<", "<state>Not Started<", Status.FAIL), ("<status>Success<", "<status>Failure<", Status.FAIL),
    ("<persistence_mode>Enabled<", "<persistence_mode>Disabled<", Status.WARN),
    ("<current_ecc>Enabled<", "<current_ecc>Disabled<", Status.WARN),
    ("<pending_mig>Disabled<", "<pending_mig>Enabled<", Status.WARN),
    ("<current_link_width>16x<", "<current_link_width>8x<", Status.FAIL),
    ("<current_link_gen>5<", "<current_link_gen>4<", Status.FAIL),
    ("_sw_power_cap>Not Active<", "_sw_power_cap>Active<", Status.WARN),
    ("_sw_thermal_slowdown>Not Active<", "_sw_thermal_slowdown>Active<", Status.FAIL),
    ("<current_power_limit>700.00 W<", "<current_power_limit>400.00 W<", Status.WARN),
    ("<reset_required>No<", "<reset_required>Yes<", Status.FAIL),
    ("<product_name>NVIDIA H100 80GB HBM3<", "<product_name>NVIDIA H100 PCIe<", Status.FAIL)])
def test_a_changed_value_gives_what_it_says(old: str, new: str, wanted: Status) -> None:
    assert old in sample().text
    assert verdict(damaged(sample().text.replace(old, new, 1))) is wanted


@pytest.mark.parametrize(("place", "old", "new", "wanted"), [
    (1, "Link 17: 26.562 GB/s", "Link 17: <inactive>", Status.FAIL),
    (1, "Link 3: 26.562 GB/s", "Link 3: 13.281 GB/s", Status.FAIL),
    (2, "Replay Errors: 0", "Replay Errors: 4", Status.WARN),
    (2, "Recovery Errors: 0", "Recovery Errors: 1", Status.FAIL)])
def test_a_changed_link_gives_what_it_says(place: int, old: str, new: str, wanted: Status) -> None:
    assert verdict(damaged(sample().outputs()[place].text.replace(old, new, 1), place)) is wanted


def test_noise_and_bytes() -> None:
    text = sample().text
    noise = "a line of another program, 17 of 23\n" * 10_000
    assert verdict(damaged(noise + text + noise)) is Status.PASS
    assert verdict(damaged(text.replace("\n", "\r\n"))) is Status.PASS
    for odd in ("\x00", "\ufffd", "\x1b[1m", "&", "<b>"):
        assert verdict(damaged(text.replace("<remapped_row_pending>No", f"<remapped_row_pending>{odd}No", 1))) \
            is not Status.PASS


@cache
def shown(ending: str) -> str:
    return (sample().path.parent / f"h100{ending}").read_text()


def good(text: str) -> bool:
    """Whether it is read as sound and with nothing that is not as it should be."""
    assert CHECK.read
    found = CHECK.read(text, Context())
    return found.sound and not any(m.warnings or m.expected not in (None, m.value) for m in found.measurements)


@pytest.mark.deep
@pytest.mark.parametrize("ending", [".q", ".table"])
def test_texts_for_people_that_are_cut_doubled_or_mixed(ending: str) -> None:
    text = shown(ending)
    assert good(text)
    assert good(text.replace("\n", "\r\n"))
    lines = text.splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if re.match(r" +Processes|\| Processes:", line))
    assert not [n for n in range(0, last, 1 if ending == ".table" else 7) if good("".join(lines[:n]))]
    assert not good(text + text)
    rows = [n for n, line in enumerate(lines) if re.match(r"GPU 0000|\|   \d  NVIDIA", line)]
    assert not [n for n in rows[:-1] if good("".join(lines[:n] + lines[n + rows[1] - rows[0]:]))]
    assert not [n for n in rows if good("".join(lines[:n] + lines[n + 1:]))]
    assert not [e for e in ERRORS if good(e + text) or good(text + e)]


@pytest.mark.deep
def test_values_of_q_that_are_none() -> None:
    lines = shown(".q").splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if line.startswith("GPU 00000000:52"))
    names = ("Persistence Mode", "HW Slowdown", "HW Thermal Slowdown", "Remapping Failure Occurred",
             "DRAM Uncorrectable", "GPU Current Temp", "Current Power Limit", "Status", "Reset Required",
             "SW Thermal Slowdown")
    passed = []
    for name in names:
        n = next(k for k in range(start, len(lines)) if lines[k].strip().startswith(f"{name} "))
        passed += [(name, "dropped")] if good("".join(lines[:n] + lines[n + 1:])) else []
        for word in WORDS:
            text = "".join([*lines[:n], f"{lines[n].partition(':')[0]}: {word}\n", *lines[n + 1:]])
            passed += [(name, word)] if good(text) else []
    assert not passed


@pytest.mark.parametrize(("old", "new"), [
    ("|                    0 |", "|                 ERR! |"), ("|                    0 |", "|                    2 |"),
    (" P0 ", " ERR! "), ("700W", "ERR!"), ("28C", "ERR!"), ("  On  |", " ERR! |"), ("NVIDIA H100 80GB HBM3", "")])
def test_cells_of_the_table(old: str, new: str) -> None:
    text = re.sub(r"\b\d\dC\b", "28C", shown(".table"))
    assert old in text
    assert good(text)
    assert not good(text.replace(old, new, 1))


@pytest.mark.parametrize("text", [*ERRORS, "", "GPU 0: NVIDIA H100\n", "<nvidia_smi_log></nvidia_smi_log>\n"])
def test_complaints_are_quoted_and_never_sound(text: str) -> None:
    reading = CHECK.read(text, Context()) if CHECK.read else None
    assert reading
    assert not reading.sound
    assert not reading.measurements
    if text in ERRORS:
        assert "nvidia-smi says: " in reading.problems[0]
        assert text.rpartition(": ")[2].strip().rstrip(". ")[:30] in reading.problems[0].replace("(GPU", "")
    with pytest.raises(ParseError):
        CHECK.parse([Output(text)], Context())
