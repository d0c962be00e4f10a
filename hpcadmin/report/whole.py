"""A run read for a report: what no form of it asks for is not taken apart where it is known that it is whole."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import HpcadminError, StoreError
from hpcadmin.files import read_lines
from hpcadmin.rundata import MOST_OF_A_LINE, MOST_PROBLEMS, VALUES, Measured, Run, inside, read_run, unmeasured
from hpcadmin.seal import file_digest, read_seal

_DIGITS = bytes.maketrans(b"0123456789", b"1111111111")
_TEST = b'{"test":"'
_LEADING = re.compile(rb"[:,\[\s-]1(?=1)")
_ZERO = ord("0")
_MOST_FORMS = 100_000


def read_for_report(folder: Path, *, values: bool) -> Run:
    """values: the form asks for the measurements by themselves, and not only for the verdicts. They are half of a large
    run; where it does not, a seal says that they are whole, or they are looked through, so that damage is told."""
    if values:
        return read_run(folder)
    run = read_run(folder, without=(VALUES,))
    if _as_sealed(folder):
        return run
    problems: list[str] = []
    tests = look_through(folder, problems)
    if run.plan is not None:
        problems += unmeasured(run.verdicts, tests, run.plan)
    return replace(run, problems=(*run.problems, *problems))


def _as_sealed(folder: Path) -> bool:
    try:
        seal = read_seal(folder)
        return not seal.problems and seal.files.get(VALUES) == file_digest(folder / VALUES)
    except HpcadminError:
        return False


def look_through(folder: Path, problems: list[str]) -> set[str]:
    """The tests that have measurements. Lines are read as records but for those that are like one which was read
    already: they differ in digits alone, where another digit makes no other sense (`_is_form`)."""
    tests: set[str] = set()
    if not os.path.lexists(folder / VALUES):
        problems.append(f"{VALUES} is missing")
        return tests
    known: dict[bytes, tuple[int, ...]] = {}
    raw: set[bytes] = set()
    start, bad = len(_TEST), 0
    try:
        for number, line in enumerate(read_lines(folder / VALUES, limit=MOST_OF_A_LINE), 1):
            form = line.translate(_DIGITS)
            firsts = known.get(form)
            if firsts is not None and _ZERO not in [line[at] for at in firsts]:
                raw.add(line[start:line.index(b'"', start)])
                continue
            try:
                one = records.loads(Measured, line.removesuffix(b"\n").decode("utf-8", "replace"),
                                    where=f"{VALUES}:{number}")
            except StoreError as exc:
                bad += 1
                if bad <= MOST_PROBLEMS:
                    problems.append(str(exc))
                continue
            tests.add(one.test)
            if len(known) < _MOST_FORMS and _is_form(form):
                known[form] = tuple(found.start() + 1 for found in _LEADING.finditer(form))
    except StoreError as exc:
        problems.append(inside(folder, exc))
    if bad > MOST_PROBLEMS:
        problems.append(f"{VALUES}: {bad - MOST_PROBLEMS} more lines are damaged")
    return tests.union(map(bytes.decode, raw))


def _is_form(form: bytes) -> bool:
    """Of a line with each digit a one: whether digits are but digits in it, none behind a backslash or in an exponent.
    Where a number of several digits may begin is looked at in each line: it is none of JSON if it begins with 0."""
    return form.startswith(_TEST) and form.isascii() and not (b"\\" in form or b"1e" in form or b"1E" in form)
