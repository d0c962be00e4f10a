"""The whole corpus of node captures against its answers, field by field, as each file's readers take it.

HPCADMIN_CORPUS_TABLE=FILE writes all that is compared as a Markdown table. What a second reader settled against an
answer is in corpus_topo_corrections.json, with the lines of the file or the source that settle it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus_topo
import pytest
from corpus_topo import CORPUS, Miss, Ours, agree, answer, corrections, expected, fields, misses, ours, same, score

from hpcadmin.facts import Finding, Outcome, Reading

pytestmark = [pytest.mark.corpus, pytest.mark.deep,
              pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of captures does not lie beside the project")]


def rows(wanted: dict[str, Any], mine: Ours) -> list[str]:
    return [miss.field for miss in score("x", wanted, mine)]


# --- the corpus -----------------------------------------------------------------------------------------------------


def test_every_file_is_read_as_its_answer_says() -> None:
    found: list[Miss] = []
    for file in sorted(expected()):
        found += misses(file)
    target = os.environ.get("HPCADMIN_CORPUS_TABLE")
    if target:
        Path(target).write_text(corpus_topo.table([row for file in sorted(expected())
                                                   for row in corpus_topo.compared(file)]) + "\n")
    assert not found, "\n" + corpus_topo.table(found)


def test_the_table_of_the_last_run_is_this_one() -> None:
    """`python tests/corpus_topo.py --summary` writes it anew."""
    assert corpus_topo.summary() in Path(__file__).with_name("corpus_topo.md").read_text()


def test_every_file_has_an_answer_and_is_there() -> None:
    there = {str(path.relative_to(CORPUS)) for path in CORPUS.rglob("*") if path.is_file() and path.parent != CORPUS}
    assert there == set(expected())


def test_every_correction_is_alive_and_has_its_reason() -> None:
    for file, settled in corrections().items():
        for field, entry in settled.items():
            where, before = f"{file} {field}", expected()[file]
            assert set(entry) <= {"value", "why", "drop"}, where
            assert len(entry["why"]) > 60, where
            assert "'" in entry["why"] or "Added" in entry["why"], f"{where}: no line is quoted, no source named"
            assert field in fields(answer(file)) or entry.get("drop"), where
            assert entry.get("drop", False) == ("value" not in entry), where
            assert field in before if entry.get("drop") else before.get(field) != entry["value"], f"{where}: is dead"
            # With the first answer there is a disagreement still, or nothing was asked for.
            kept = {**answer(file), field: before[field]} if field in before else {}
            added = field == "must_report_re" and set(entry["value"]) > set(before[field])
            assert not kept or added or field in rows(kept, ours(file)), f"{where}: the first answer is as good"


# --- the scorer itself ----------------------------------------------------------------------------------------------


def spoilt(value: Any) -> Iterator[Any]:
    """The value with its first, then its last leaf made wrong."""
    if isinstance(value, dict) and value:
        for key in dict.fromkeys([next(iter(value)), list(value)[-1]]):
            yield from ({**value, key: wrong} for wrong in spoilt(value[key]))
    elif isinstance(value, list) and value:
        yield [*value, value[-1]]
        for place in {0, len(value) - 1}:
            yield from ([*value[:place], wrong, *value[place + 1:]] for wrong in spoilt(value[place]))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield value + "7"
    else:
        yield "something" if value is None else ["something"] if value == [] else {"key": "something"}


def verdicts(wanted: dict[str, Any]) -> dict[str, Any]:
    return {field: wanted[field] for field in corpus_topo.VERDICTS}


def test_every_value_of_every_answer_can_be_missed() -> None:
    # The others are tried below: what must not be, and texts around the values.
    other = {"must_report_re", "cores_assumed", "inferred", "findings", "cores_wrong", "gres_wrong"}
    tried = 0
    for file in expected():
        wanted, mine = answer(file), ours(file)
        for field in fields(wanted):
            if field in other or "must_not_be" in field:
                continue
            for wrong in spoilt(wanted[field]):
                tried += 1
                assert field in rows({**verdicts(wanted), field: wrong}, mine), (file, field, wrong)
            if wanted[field] not in (None, [], {}) and field not in corpus_topo.VERDICTS:
                silent = dataclasses.replace(mine, known={**mine.known, field: None})
                assert field in rows({**verdicts(wanted), field: wanted[field]}, silent), (file, field)
    assert tried > 5000


PLAIN = {"incomplete": False, "must_refuse": False, "must_report_re": []}


def made(*readings: Reading, errors: tuple[str, ...] = ()) -> Ours:
    return corpus_topo.merged(Outcome(readings, errors))


def test_verdicts_can_be_missed() -> None:
    sound = Reading("x", known={"cpus": 4}, findings=(Finding("CPU 3 is off line", 2),))
    assert rows({**PLAIN, "cpus": 4, "must_report_re": ["off line"]}, made(sound)) == []
    assert rows({**PLAIN, "must_report_re": ["cut off"]}, made(sound)) == ["must_report_re"]
    assert rows({**PLAIN, "incomplete": True}, made(sound)) == ["incomplete"]
    assert rows({**PLAIN, "must_refuse": True}, made(sound)) == ["must_refuse"]
    assert rows(PLAIN, made(dataclasses.replace(sound, missing=("the end",)))) == ["incomplete"]
    assert rows(PLAIN, made(dataclasses.replace(sound, refused="made in a job"))) == ["must_refuse"]
    assert rows(PLAIN, made(sound, errors=("x:1: no table",))) == ["must_refuse"]
    assert rows(PLAIN, made()) == ["(read)"]


def test_findings_are_asked_for_by_their_lines() -> None:
    fault, note = Finding("no such node", 2), Finding("one rail", 3, note=True)
    mine = made(Reading("x", findings=(fault, note)))
    assert rows({**PLAIN, "findings": [{"line": 2, "key": "Nodes", "what": "…"}]}, mine) == []
    assert rows({**PLAIN, "findings": [{"line": 3, "key": "Nodes", "what": "…"}]}, mine) == ["findings"]
    assert rows({**PLAIN, "findings": []}, mine) == ["findings"]
    assert rows({**PLAIN, "findings": []}, made(Reading("x", findings=(note,)))) == []


def test_what_must_not_be_known() -> None:
    mine = made(Reading("x", known={"sockets": 8, "cores_if_determined": ["0-7"], "gres_ok": ["a"]},
                        assumed=({"if": "no SMT", "values": ["0-7"]},)))
    assert rows({**PLAIN, "sockets_must_not_be": [4, 8]}, mine) == ["sockets_must_not_be"]
    assert rows({**PLAIN, "sockets_must_not_be": 2}, mine) == []
    assert rows({**PLAIN, "cores_wrong": [["0-15"], ["0-7"]]}, mine) == ["cores_wrong"]
    assert rows({**PLAIN, "gres_wrong": ["a"]}, mine) == ["gres_wrong"]
    assert rows({**PLAIN, "inferred": {"sockets": 8}}, mine) == ["inferred sockets"]
    assert rows({**PLAIN, "inferred": {"cpus": 8}}, mine) == []
    assert rows({**PLAIN, "cores_assumed": [{"if": "SMT2", "values": ["0-3"]}]}, mine) == ["cores_assumed"]
    assert rows({**PLAIN, "cores_assumed": [{"if": "no SMT", "values": ["0-7"]}]}, mine) == []


def test_readings_that_contradict_one_another_are_seen() -> None:
    first = Reading("x", known={"cpus": 4, "numa_nodes": {"0": "0-3"}, "gpus": 2, "links": None})
    second = Reading("y", known={"cpus": 8, "numa_nodes": {"0": "0,1-3", "1": "4-7"}, "gpus": [{}, {}], "links": [[]]})
    mine = made(first, second)
    assert rows({**PLAIN, "cpus": 4}, mine) == ["cpus (two readings)"]
    assert mine.known["links"] == [[]]
    assert agree({"pci": "0000:01:00.0", "numa": None}, {"pci": "01:00.0", "numa": 1})
    assert not agree([{"pci": "01:00.0", "numa": 0}], [{"pci": "01:00.0", "numa": 1}])
    assert not agree(2, [{}])


@pytest.mark.parametrize(("mine", "theirs", "equal"), [
    ("0-3,8", "8,0,1,2,3", True), ("0-3", "0-4", False), ("00000000:01:00.0", "01:00.0", True),
    ("00000001:01:00.0", "01:00.0", False), ("0x0002c903000a0001", "0002:c903:000a:0001", True), (0, None, False),
    ([], None, False), (None, [], False), (False, None, False), (True, 1, False), (1, True, False),
    (1.0000001, 1, True), (1000001, 1000000, False), (25, 25.78125, False), ({"a": 1, "b": 2}, {"a": 1}, True),
    ({"a": 1}, {"a": 1, "b": 2}, False), ({"0": "0-3", "1": "4-7"}, {"0": "0-3"}, False),
    ({"0000:01:00.0": 1, "0000:02:00.0": 1}, {"0000:01:00.0": 1}, False),
    ([1, 2], [2, 1], False), ([{"pci": "02:00.0"}, {"pci": "01:00.0"}], [{"pci": "01:00.0"}, {"pci": "02:00.0"}], True),
    ([{"pci": "01:00.0"}], [{"pci": "01:00.0"}, {"pci": "02:00.0"}], False), ("h100", "H100", True), (4, "4", True),
])
def test_what_is_the_same(mine: Any, theirs: Any, equal: bool) -> None:
    assert same(mine, theirs) is equal
