"""Damaged answers of nvidia-smi: what is damaged never passes, a changed value gives what it says.

    python tests/test_corrupt_nvidia.py        # how many of which damage got which verdict
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from check_samples import Sample, all_samples

from hpcadmin.check import Context, Output, ParseError, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

CHECK = load_checks()["nvidia_smi"]
# Tags whose value decides nothing here: which they are is said, so that no other is left out by accident.
# Of pending_blacklist and pending_retirement, two names of one fact, one is enough.
FREE = re.compile(r"<(?:/|\?xml|!DOCTYPE|timestamp|cuda_version|product_|serial|"
                  r"pci_(?:bus|device|domain|bus_id|device_id|sub_system_id)>|device_current_link_gen|max_device_link_gen|max_host_link_gen|bridge_chip|replay_|"
                  r"tx_util|rx_util|atomic|clocks_event_reason_(?:gpu_idle|applications|sync|display|sw_power_cap)|"
                  r"sram_(?!un)|dram_corr|retired_pagelist|pending_blacklist|pending_retirement|remapped_row_corr|power_state|memory_temp|"
                  r"gpu_target|gpu_temp_max|average_|instant_|requested_|min_power|max_power|sm_clock|mem_clock|"
                  r"video_clock|cliqueId|clusterUuid|row_remapper_histogram_(?:max|high|partial|low))")
WORDS = ("[Unknown Error]", "ERR!", "nan", "inf", "-7", "1,024", "0x10", "[GPU requires reset]", "Unknown", "")
ERRORS = (
    "Unable to determine the device handle for GPU0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
    "Unable to determine the device handle for GPU5: 0000:C3:00.0: Unknown Error\n",
    "Failed to initialize NVML: Driver/library version mismatch\n", "Failed to initialize NVML: Unknown Error\n",
    "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    "GPU access blocked by the operating system\n", "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n")


@cache
def sample(name: str = "ok_8_h100") -> Sample:
    return next(s for s in all_samples() if s.check == "nvidia_smi" and s.path.stem == name)


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


def structural_xml() -> Iterator[tuple[str, str]]:
    lines = sample().text.rstrip("\n").splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if "<gpu id" in line]
    ends = [n + 1 for n, line in enumerate(lines) if line == "\t</gpu>\n"]
    yield from (("cut at a line", "".join(lines[:n])) for n in range(0, len(lines), 3))
    text = "".join(lines)
    yield from (("cut within a line", text[:n]) for n in range(1, len(text) - 2, 211))
    for begin, end in zip(starts, ends, strict=True):
        yield "GPU dropped", "".join(lines[:begin] + lines[end:])
        yield "GPU doubled", "".join(lines[:end] + lines[begin:end] + lines[end:])
    for n in range(starts[2], ends[2]):
        if "</" in lines[n] and not FREE.match(lines[n].strip()):
            yield "line dropped", "".join(lines[:n] + lines[n + 1:])
            yield "line doubled", "".join(lines[:n + 1] + lines[n:])
            tag = re.match(r"\s*<(\w+)>", lines[n])
            assert tag
            yield "tag renamed", "".join([*lines[:n], lines[n].replace(tag[1], f"{tag[1]}_x"), *lines[n + 1:]])
    for word in ("<nvidia_smi_log>", "</nvidia_smi_log>", "<attached_gpus>8</attached_gpus>", "</gpu>"):
        yield "frame removed", text.replace(word, "", 1)
    yield "joined", text + text
    yield "joined, one failed", text + "".join(lines[:300])
    yield "fewer attached", text.replace("<attached_gpus>8<", "<attached_gpus>7<")
    yield "one UUID twice", re.sub(r"<uuid>[^<]+<", "<uuid>GPU-57f85b99-b680-2046-4186-7059c7ed9971<", text)
    yield from (("error line", e + text) for e in ERRORS)
    yield from (("error line", text + e) for e in ERRORS)


def words_xml() -> Iterator[tuple[str, str]]:
    """Each value that decides, of one GPU, replaced by what is none."""
    lines = sample().text.splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if "<gpu id" in line]
    for n in range(starts[4], starts[5]):
        found = re.match(r"(\s*<\w+>)([^<]+)(</\w+>\n)", lines[n])
        if found and not FREE.match(lines[n].strip()) and "performance_state" not in lines[n] and \
                (found[2] != "N/A" or "retired" not in lines[n]):
            for word in WORDS:
                yield f"value {word}", "".join([*lines[:n], f"{found[1]}{word}{found[3]}", *lines[n + 1:]])


def structural_links(place: int) -> Iterator[tuple[str, str]]:
    text = sample().outputs()[place].text
    lines = text.splitlines(keepends=True)
    full = [n for n, line in enumerate(lines) if line.strip()]
    for n in full:
        yield "cut at a line", "".join(lines[:n])
        yield "line dropped", "".join(lines[:n] + lines[n + 1:])
        yield "line doubled", "".join(lines[:n + 1] + lines[n:])
    for end in range(1, len(text.rstrip()) - 1, 97):
        yield "cut within a line", text[:end]
    heads = [n for n in full if lines[n].startswith("GPU ")]
    for a, b in pairwise([*heads, len(lines)]):
        yield "GPU dropped", "".join(lines[:a] + lines[b:])
    yield "joined", text + text
    old, new = ("GB/s", "Gb/s") if place == 1 else ("CRC Errors: 0", "CRC: nan")
    yield "unit changed", text.replace(old, new, 1)
    for word in ("nan", "-1", "[Unknown Error]", "<inactive>", "N/A", "inf"):
        yield f"value {word}", text.replace("26.562 GB/s" if place == 1 else "Errors: 0",
                                            word if place == 1 else f"Errors: {word}", 1)
    yield from (("error line", e + text) for e in ERRORS)


def test_whole_passes() -> None:
    assert verdict(sample().outputs()) is Status.PASS


@pytest.mark.deep
def test_structural_damage_never_passes() -> None:
    passed = [(what, n) for n, (what, text) in enumerate(structural_xml()) if verdict(damaged(text)) is Status.PASS]
    assert not passed


@pytest.mark.deep
def test_values_that_are_none_never_pass() -> None:
    passed = Counter()
    for what, text in words_xml():
        if verdict(damaged(text)) is Status.PASS:
            passed[what] += 1
    assert not passed


@pytest.mark.deep
@pytest.mark.parametrize("place", [1, 2])
def test_damaged_links_never_pass(place: int) -> None:
    passed = [what for what, text in structural_links(place) if verdict(damaged(text, place)) is Status.PASS]
    assert not passed


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("end", [{"exit_status": 1}, {"exit_status": None}, {"timed_out": True}, {"truncated": True},
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


@pytest.mark.parametrize(("old", "new", "wanted"), [
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


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for what, text in [*structural_xml(), *words_xml()]:
        counts[f"-q -x: {what}", verdict(damaged(text)).value] += 1
    for place, name in ((1, "-s"), (2, "-e")):
        counts.update((f"nvlink {name}: {what}", verdict(damaged(text, place)).value)
                      for what, text in structural_links(place))
    for (what, status), count in sorted(counts.items()):
        sys.stdout.write(f"{what:<44} {status:<10} {count:>7}\n")


if __name__ == "__main__":
    main()
