"""Measurements that a form does not ask for are looked through as strictly as they are read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looped import looped
from made_runs import names, node_results, pair_results, write_run

from hpcadmin.check import Direction, Measurement, Subject
from hpcadmin.records import dumps
from hpcadmin.report.whole import look_through, read_for_report
from hpcadmin.rundata import VALUES, Measured, read_lines_of, read_run

SOUND = dumps(Measured("t0001", "osu_bw", 1, Measurement(
    "bandwidth", 41207.53, "MB/s", 1 << 20, Direction.BOTH, Subject(("gpu01", "gpu02"), "mlx5_0/1"), rail="2",
    warnings=("odd",))))


def same(folder: Path, lines: list[bytes]) -> list[str]:
    (folder / VALUES).write_bytes(b"\n".join(lines) + b"\n")
    wanted: list[str] = []
    found: list[str] = []
    read = read_lines_of(Measured, folder, VALUES, wanted)
    assert look_through(folder, found) == {m.test for m in read}
    assert found == wanted
    return found


@looped("old, new", [
    ("41207.53", "01207.53"), ("41207.53", "-01207.53"), ("41207.53", "41207.5e308"), ("41207.53", "4120753"),
    ("41207.53", "4e99999"), ("41207.53", "0"), ("41207.53", "00"), ("41207.53", "0.50"), ("1048576", "1048576.5"),
    ("1048576", "0048576"), ("1048576", "tru"), ("t0001", "t0009"), ("t0001", "t\\u0041"), ("t0001", "t\\u00zz"),
    ('"both"', '"9oth"'), ('"attempt":1', '"attempt":true'), ('"attempt":1', '"attempt":-1'), ("osu_bw", "osu_b\u00e9"),
    ('"rail":"2"', '"rail":2'), ('"odd"', "7"), ('"odd"', "01"), ("gpu01", "gpu09"), ("}}", "}"), ("}}", "}} x")])
def test_a_line_like_a_sound_one_is_sound_only_if_it_is(tmp_path_factory: pytest.TempPathFactory, old: str, new: str,
                                                        ) -> None:
    assert old in SOUND
    folder = tmp_path_factory.mktemp("run")
    same(folder, [SOUND.encode(), SOUND.replace(old, new, 1).encode(), SOUND.encode()])
    same(folder, [SOUND.replace(old, new, 1).encode(), SOUND.encode()])
    spaced = SOUND.replace('":', '": ').replace(",", ",\t").replace('{"test": ', '{"test":')
    same(folder, [spaced.encode(), spaced.replace(old, new, 1).encode()])


@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.sampled_from(list("0123456789.-eE\\\"[]{},: utrx"))),
                max_size=4))
def test_whatever_is_changed(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, str]]) -> None:
    text = list(SOUND)
    for at, new in changes:
        text[at] = new
    same(tmp_path_factory.mktemp("run"), [SOUND.encode(), "".join(text).encode()])


def parts(hint: Any) -> set[Any]:
    found = {hint}
    for more in [*get_args(hint), *(get_type_hints(hint).values() if is_dataclass(hint) else ())]:
        found |= parts(more)
    return found


def test_no_word_that_decides_anything_has_a_digit() -> None:
    """Else another digit would make it another word, which the look through would not see."""
    words = [f.name for kind in parts(Measured) if is_dataclass(kind) for f in fields(kind)]
    words += [str(member.value) for kind in parts(Measured) if isinstance(kind, type) and issubclass(kind, Enum)
              for member in kind]
    assert len(words) > 20
    assert not [word for word in words if any(c.isdigit() for c in word)]


def test_the_whole_run_is_the_same_but_for_the_values(tmp_path: Path) -> None:
    results = [*node_results(names(4)), *pair_results(lambda a, b: 870.0, names(4))]
    folder = write_run(tmp_path / "run", results, names(4))
    for damage in (lambda raw: raw, lambda raw: raw[:-30], lambda raw: b"",
                   lambda raw: raw.replace(b"t0003", b"t0004")):
        raw = (folder / VALUES).read_bytes()
        (folder / VALUES).write_bytes(damage(raw))
        assert sorted(read_for_report(folder, values=False).problems) == sorted(read_run(folder).problems)
        (folder / VALUES).write_bytes(raw)
