"""conf check on every Slurm file of the corpus against its answers.

A disagreement that was settled from the file is in SETTLED, with the line that settles it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from looped import looped

from hpcadmin.cli._conf_check import Asked, checked
from hpcadmin.cli._conf_check_text import Checked, shown
from hpcadmin.conf.check.finding import Severity
from hpcadmin.site import Site

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "topo"
pytestmark = [pytest.mark.corpus,
              pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of captures does not lie beside the project")]
# file -> lines of its answer that have no finding, and why.
SETTLED: dict[str, dict[int, str]] = {
    "slurm-gcp113_boards-sockets_WRONG.txt": {5: (
        "'-            \"Sockets\": machine_conf.sockets,' is a line of a program's diff, no line of slurm.conf; and "
        "from 21.08 on Sockets= counts those of all boards, so that it is right beside Boards=1 (read_config.c)")},
}


@cache
def answers() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(CORPUS.glob("expected*.json")):
        found.update({name.removeprefix("slurm/"): answer for name, answer in json.loads(path.read_text()).items()
                      if name.startswith("slurm/")})
    return found


def names() -> list[str]:
    return sorted(answers()) if CORPUS.is_dir() else []


@cache
def judged(name: str) -> Checked:
    return checked([str(CORPUS / "slurm" / name)], Site(), Asked())


def above(name: str) -> list[Any]:
    return [f for f in judged(name).result.findings if f.severity is not Severity.NOTE]


def test_there_is_an_answer_for_each_file() -> None:
    assert names() == sorted(path.name for path in (CORPUS / "slurm").iterdir())


@looped("name", names())
def test_what_is_wrong_has_findings_at_the_lines_of_the_answer(name: str) -> None:
    answer, text = answers()[name], shown(judged(name))
    if answer["wrong"] is not True:
        assert not above(name), text
        assert judged(name).status in (0, 3)
        return
    assert judged(name).status == 1, text
    at = {place.line for f in above(name) for place in (f.place, *f.more) if place is not None}
    lines = {finding["line"] for finding in answer["findings"]} - set(SETTLED.get(name, {}))
    assert lines <= at, text
    for line in lines:
        assert f"{CORPUS / 'slurm' / name}:{line}: " in text or re.search(rf"also .*\b{line}\b", text), text


@looped("name", names())
def test_the_report_says_what_it_must(name: str) -> None:
    text = shown(judged(name))
    for pattern in answers()[name]["must_report_re"]:
        assert re.search(pattern, text), (pattern, text)


@looped("name", names())
def test_the_right_lines_are_there(name: str) -> None:
    right = {line for finding in judged(name).result.findings for line in finding.right}
    for line in answers()[name]["right_lines"]:
        assert line in right, (line, right)


@looped("name", names())
def test_what_is_incomplete_is_called_so(name: str) -> None:
    assert bool(judged(name).incomplete) is answers()[name]["incomplete"], shown(judged(name))
