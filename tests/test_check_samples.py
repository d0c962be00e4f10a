"""Every sample of every check is read as its .json says; damaged samples are never taken for sound."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from check_samples import Sample, all_samples, plain, sound_samples
from corruption import Case
from looped import looped

from hpcadmin.check import Check, ParseError, Status
from hpcadmin.registry import load_checks

SAMPLES = all_samples()
SOUND = sound_samples()


@cache
def checks() -> dict[str, Check]:
    return load_checks()


def parse(sample: Sample, text: str):
    return checks()[sample.check].parse(sample.outputs(text), sample.context)


def name(sample: Sample) -> str:
    return f"{sample.check}/{sample.path.stem}"


@looped("sample", SAMPLES, ids=name)
def test_sample(sample: Sample) -> None:
    if "error" in sample.wanted:
        with pytest.raises(ParseError) as raised:
            parse(sample, sample.text)
        assert sample.wanted["error"] in str(raised.value)
    else:
        assert plain(parse(sample, sample.text)) == sample.wanted["measurements"]


def test_every_check_has_a_sound_and_an_unsound_sample() -> None:
    for check in checks():
        mine = [s for s in SAMPLES if s.check == check]
        assert any("error" in s.wanted for s in mine), check
        assert any("error" not in s.wanted for s in mine), check


def refused(sample: Sample, text: str) -> None:
    """No values of it; or, of a text whose run nobody knows, none that could pass: each key value has its warning."""
    try:
        found = parse(sample, text)
    except ParseError:
        return
    assert not sample.context.nodes, "a run of ours must be whole"
    assert all(m.warnings or m.expected not in (None, m.value) for m in found if m.key or m.expected is not None)
    assert whole(sample.path).verdict(text) is not Status.PASS      # by limits that the whole sample reaches


@cache
def whole(path: Path) -> Case:
    sample = next(s for s in SAMPLES if s.path == path)
    return Case(name(sample), checks()[sample.check], tuple(sample.outputs()), sample.context)


@pytest.mark.deep
@pytest.mark.parametrize("sample", SOUND, ids=name)
def test_cut_at_every_line_is_refused(sample: Sample) -> None:
    lines = sample.text.rstrip().splitlines(keepends=True)
    for count in range(len(lines)):
        refused(sample, "".join(lines[:count]))


@pytest.mark.deep
@pytest.mark.parametrize("sample", SOUND, ids=name)
def test_cut_within_lines_is_refused(sample: Sample) -> None:
    text = sample.text.rstrip()
    step = max(1, len(text) // 200)
    for end in range(0, len(text) - 1, step):
        refused(sample, text[:end])


_ROW = re.compile(r"(?m)^(?:\[1,0\]<stdout>:)? *(?:\d+(?:\.\d\d)? +[\d.].*|rank .*|clock: .*|\w+_kib: .*)$")
_NUMBER = re.compile(r"(?<![\w.:=-])[0-9][0-9.]*(?![\w.:-])")


@pytest.mark.deep
@pytest.mark.parametrize("sample", [s for s in SOUND if s.path.stem.startswith("ok")], ids=name)
def test_a_number_that_is_none_is_refused(sample: Sample) -> None:
    """Numbers in rows (of a table, or that our own programs print) replaced by what is none: where there are many, each
    of these words has places of its own."""
    text = sample.text
    places = [(row.start() + n.start(), row.start() + n.end()) for row in _ROW.finditer(text)
              for n in _NUMBER.finditer(row[0])]
    assert places or sample.check in ("nvidia_smi", "gpu_binding", "gpu_pcie", "leaf_allocation")   # have no table
    every = max(1, len(places) // 20)
    for n, bad in enumerate(("nan", "inf", "-inf", "-7", "1,024.5", "0x10", "1e999", "--", "")):
        for begin, end in places[n % every::every]:
            refused(sample, text[:begin] + bad + text[end:])


@looped("sample", SOUND, ids=name)
def test_doubled_output_is_refused(sample: Sample) -> None:
    refused(sample, sample.text + sample.text)


@looped("sample", SOUND, ids=name)
@looped("outcome", [{"exit_status": 1}, {"exit_status": None}, {"exit_status": 139},
                                     {"timed_out": True}, {"truncated": True}], ids=str)
def test_a_bad_end_is_refused(sample: Sample, outcome: dict) -> None:
    from dataclasses import replace
    outputs = sample.outputs()
    outputs[-1] = replace(outputs[-1], **outcome)
    with pytest.raises(ParseError):
        checks()[sample.check].parse(outputs, sample.context)


@pytest.mark.deep
@pytest.mark.parametrize("sample", SOUND, ids=name)
def test_rows_lost_or_exchanged_are_refused(sample: Sample) -> None:
    lines = sample.text.splitlines(keepends=True)
    rows = [n for n, line in enumerate(lines) if _ROW.match(line)]
    for n in rows:
        refused(sample, "".join(lines[:n] + lines[n + 1:]))
        refused(sample, "".join([*lines[:n + 1], lines[n], *lines[n + 1:]]))
    for a, b in pairwise(rows):
        swapped = list(lines)
        swapped[a], swapped[b] = lines[b], lines[a]
        refused(sample, "".join(swapped))


@pytest.mark.deep
@pytest.mark.parametrize("sample", [s for s in SOUND if s.check != "nvidia_smi"], ids=name)
def test_colours_line_ends_and_noise_change_nothing(sample: Sample) -> None:
    wanted = sample.wanted["measurements"]
    text = sample.text
    assert plain(parse(sample, text.replace("\r\n", "\n").replace("\n", "\r\n"))) == wanted
    coloured = "".join(f"\x1b[1m{line}\x1b[0m" if line.strip() else line for line in text.splitlines(keepends=True))
    assert plain(parse(sample, coloured + "\n")) == wanted
    assert plain(parse(sample, "libibverbs: Warning: no driver for mlx4\n" + text)) == wanted


@looped("sample", SOUND, ids=name)
def test_error_lines_beside_a_table_are_refused(sample: Sample) -> None:
    if sample.check in ("node_ready", "nvidia_smi"):
        pytest.skip("prints no table of a parallel program")
    for line in ("srun: error: node01: task 0: Segmentation fault (core dumped)\n",
                 "slurmstepd: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***\n",
                 "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n"):
        for text in (line + sample.text, sample.text + line):
            with pytest.raises(ParseError):
                parse(sample, text)


@looped("check", list(load_checks()))
def test_foreign_and_empty_text_is_refused(check: str) -> None:
    from hpcadmin.check import Context, Output
    for text in ("", "\n", "hello\n", "\x00\x01\x02", "1 2 3\n" * 1000, "{}", "# end\n", "<nvidia_smi_log>" * 3):
        with pytest.raises(ParseError):
            checks()[check].parse([Output(text)], Context())
    with pytest.raises(ParseError):
        checks()[check].parse([], Context())


@pytest.mark.deep
@pytest.mark.parametrize("check", list(load_checks()))
def test_time_is_linear(check: str) -> None:
    """Six megabytes of hostile lines take a few seconds at most: nothing is searched twice."""
    import time

    from hpcadmin.check import Context, Output
    start = time.process_time()
    for unit in ("1" * 99 + " ", "\x1b[", "# ", " " * 100, "# Rank  1 Group  0 Pid " + "9" * 70 + "\n", "GPU 0000:"):
        with pytest.raises(ParseError):
            checks()[check].parse([Output(unit * (1_000_000 // len(unit)))], Context())
    assert time.process_time() - start < 10
