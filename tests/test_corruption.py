"""No PASS for damaged outputs, of every family and every kind of damage; a changed digit is judged as it is by hand.

`python tests/corruption_report.py` counts mutations by kind and verdict.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from itertools import islice

import corruption
import pytest
from corruption import KINDS, Case, Family
from corruption_digits import digits
from corruption_families import FAMILIES
from looped import looped

from hpcadmin.check import Status

EVERY = [(family, case) for family in FAMILIES for case in family.cases()]
NAMES = [f"{family.name}: {case.name}" for family, case in EVERY]
FEWEST = {"nccl-tests": 15, "OSU and MPI": 40, "perftest": 15, "nvidia-smi": 3}      # sound outputs beside the captures
# Each third mutation of a kind or digit, and in each case of a family other ones; HPCADMIN_MANY=1: every one.
EACH = 1 if os.environ.get("HPCADMIN_MANY") else 3
every_case = pytest.mark.parametrize(("family", "case"), EVERY, ids=NAMES)


@cache
def sound() -> dict[str, Status]:
    return {case.name: case.verdict() for _, case in EVERY}


def test_sound_outputs_pass() -> None:
    """But for captures whose data were not validated, which is a WARN."""
    assert set(sound().values()) <= {Status.PASS, Status.WARN}
    assert not [name for name, status in sound().items() if status is Status.WARN and not name.startswith("nccl/")]
    for family in FAMILIES:
        assert len(family.cases()) >= FEWEST[family.name]


@pytest.mark.deep
@every_case
def test_structural_damage_never_passes(family: Family, case: Case) -> None:
    counts, passed = corruption.tally(family, case, EACH, family.cases().index(case) % EACH)
    assert counts.total() >= 200 // EACH
    assert not passed, (len(passed), passed[0].kind, passed[0].end, passed[0].text)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_kind_of_damage_is_there(family: Family) -> None:
    """Or the family says why it cannot be. Without judging; an entry that is not needed is as wrong as one missing."""
    found: Counter[str] = Counter()
    for case in family.cases():
        found.update(damage.kind for damage in corruption.structural(family, case))
        if set(KINDS) <= set(found):
            break
    assert set(KINDS) - set(found) == set(family.lacks), found


@looped("family, case", [(family, case) for family in FAMILIES for case in family.cases()[::12]],
        ids=lambda one: one.name)
def test_a_few_of_each_kind_do_not_pass(family: Family, case: Case) -> None:
    """The quick part of the whole: of one case of a family in twelve, the first mutation of each kind."""
    seen: set[str] = set()
    for damage in corruption.structural(family, case):
        if damage.kind not in seen:
            seen.add(damage.kind)
            assert case.verdict(damage.text, **damage.end) is not Status.PASS, damage


@pytest.mark.deep
@every_case
def test_a_changed_digit_is_judged_as_by_hand(family: Family, case: Case) -> None:
    if sound()[case.name] is not Status.PASS:
        pytest.skip("warns also when it is sound")
    for text, good in islice(digits(family, case), family.cases().index(case) % EACH, None, EACH):
        assert (case.verdict(text) is Status.PASS) is good, text


@pytest.mark.deep
@every_case
def test_noise_changes_nothing(family: Family, case: Case) -> None:
    for damage in corruption.noise(case):
        allowed = {sound()[case.name], Status.ERROR} if family.alone else {sound()[case.name]}
        assert case.verdict(damage.text) in allowed, damage.kind


@pytest.mark.deep
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_ten_megabytes_of_noise(family: Family) -> None:
    case = family.cases()[0]
    for damage in corruption.ten_megabytes(case):
        assert len(damage.text) > 10_000_000
        assert case.verdict(damage.text) in (sound()[case.name], Status.ERROR if family.alone else sound()[case.name])
