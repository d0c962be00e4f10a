"""Damaged JSON reports of nccl-tests, and a slow run that agrees with itself. Tables: test_corruption.py."""

from __future__ import annotations

import re

from check_samples import sound_samples
from corruption import Case, spread
from corruption_families import NCCL_ROW, case_of

from hpcadmin.check import Status

ROW = re.compile(f"(?m)^{NCCL_ROW.pattern}")


def sample(name: str) -> Case:
    return next(case_of(s) for s in sound_samples("nccl_*") if f"{s.check}/{s.path.stem}" == name)


def test_json_reports() -> None:
    """Cut anywhere, or with a value that is none, a key twice or two reports, nothing passes."""
    case = next(case_of(s) for s in sound_samples("nccl_*") if s.path.stem.endswith("json_report"))
    text = case.text.rstrip()
    for end in range(0, len(text), 37):
        assert case.verdict(text[:end]) is Status.ERROR
    numbers = list(re.finditer(r'"(?:size|count|time|alg_bw|bus_bw|nwrong|rank|bandwidth)":([\d.]+)', text))
    for match in spread(numbers, 60):
        for bad in ("NaN", '"nan"', "Infinity", "-1.5", "null", "true", '"1.0"', "1e999", "{}", "77777.25"):
            assert case.verdict(text[:match.start(1)] + bad + text[match.end(1):]) is not Status.PASS, (match[0], bad)
    for changed in (text + text, text + "\n" + text, text.replace('"results"', '"result"'), "{" + text,
                    text.replace('"okay":"true"', '"okay":"false"'), text.replace('"errors":[""]', '"errors":["bad"]'),
                    text.replace('"validation":1', '"validation":0'), text.replace('"count":0', '"count":3'),
                    text.replace('"version":3', '"version":3,"config":{}'), text.replace("all_reduce", "reduce")):
        assert case.verdict(changed) is not Status.PASS, changed[:80]


def test_a_slow_run_that_agrees_with_itself_fails() -> None:
    case = sample("nccl_allreduce/ok_2x8_h100")
    row = list(ROW.finditer(case.text))[-1]
    slow = "8589934592 2147483648 float sum -1  69199.4  124.13  232.75  0  34738.1  247.28  463.64  0"
    text = case.text[:row.start()] + slow + case.text[row.end():]
    rows = [float(w) for r in ROW.finditer(text) for w in (r[0].split()[7], r[0].split()[11])]
    text = re.sub(r"bandwidth    : [\d.]+", f"bandwidth    : {sum(rows) / len(rows):g}", text)
    assert case.verdict(text) is Status.FAIL
