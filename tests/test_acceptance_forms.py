"""Both results of what was measured again stand in every form of the report and in the handover document."""

from __future__ import annotations

import csv
import datetime
import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from made_runs import inventory
from retest_runs import FIRST, LIMITS, NODES, again, first, group, pair, whole

from hpcadmin.acceptance_read import read_acceptance
from hpcadmin.check import Limit, Measurement
from hpcadmin.handover.assess import Word
from hpcadmin.handover.build import build
from hpcadmin.handover.criteria import Criterion, Terms
from hpcadmin.handover.folder import write
from hpcadmin.handover.shown import run_coverage
from hpcadmin.report import Options, formats
from hpcadmin.report.again import again_rows, counted
from hpcadmin.report.csv import original
from hpcadmin.report.schema import schema
from hpcadmin.report.summary import summarise
from hpcadmin.rundata import Expected, Run, TestResult

SLOW = {("node01", "node03"): 11.0, ("node02", "node03"): 12.0, ("node03", "node04"): 13.0}
TODAY = datetime.date(2026, 8, 1)
TERMS = Terms(criteria=(Criterion("1", "all pairs", ("mpi_pingpong",)), Criterion("2", "together", ("all_reduce",)),
                        Criterion("3", "90 MB/s", ("mpi_pingpong",), "bandwidth", "MB/s", min=100.0, size_bytes=262144),
                        Criterion("4", "nodes", coverage={"nodes": 100.0})))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Three pairs and a group were bad; two pairs and the group are good now, one pair is not."""
    path = first(tmp_path, whole(SLOW, reduce=3.0))
    again(tmp_path, 1, [*(pair(i + 1, p, 905.0 if i else 14.0) for i, p in enumerate(SLOW)), group(10, NODES, 11.0)])
    return read_acceptance(path)


def healed(folder: Path) -> Run:
    path = first(folder, whole(SLOW))
    again(folder, 1, [pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)])
    return read_acceptance(path)


@pytest.mark.parametrize("name", ["table", "markdown", "html", "json", "junit", "csv"])
def test_both_results_are_in_each_form(run: Run, name: str) -> None:
    text = " ".join(formats()[name].content(run, Options(width=200)).decode().split())
    for value in ("14", "11", "905", "12"):
        assert value in text
    assert FIRST in text and "bbbb" in text


def test_rows_that_share_a_node_are_one(run: Run) -> None:
    assert run.acceptance is not None
    rows = {r.where: (r.before, r.after) for r in again_rows(run.acceptance)}
    assert rows["node03 - node[02,04]"] == (
        "1: FAIL bandwidth at 256 KiB 12 to 13 MB/s", "2: PASS bandwidth at 256 KiB 905 MB/s")
    assert rows["node01 - node03"][1].startswith("2: FAIL bandwidth at 256 KiB 14 MB/s")
    assert counted(run.acceptance).startswith("Of 5 results that had been bad 4 are good now")


def test_of_tests_with_several_values_the_one_that_was_bad_is_shown(tmp_path: Path) -> None:
    def both(number: int, nodes: tuple[str, str], value: float) -> TestResult:
        made = pair(number, nodes, value)
        return replace(made, measurements=(Measurement("latency", 3.0 + number, "us"), *made.measurements))
    limits = (*LIMITS, Limit("mpi_pingpong", "latency", unit="us", max=500.0))
    path = first(tmp_path, [both(i + 1, p, v) for i, (p, v) in enumerate(SLOW.items())], limits=limits)
    again(tmp_path, 1, [both(i + 1, p, 905.0 + i) for i, p in enumerate(SLOW)], limits=limits)
    found = read_acceptance(path).acceptance
    assert found is not None
    row = next(r for r in again_rows(found) if r.tests == 3)
    assert (row.before, row.after) == (
        "1: FAIL bandwidth at 256 KiB 11 to 13 MB/s", "2: PASS bandwidth at 256 KiB 905 to 907 MB/s")


def test_the_numbers_of_csv_are_those_of_the_summary(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(formats()["csv"].render(run))))
    stands = [r for r in rows if r["stands"] == "True" and r["kind"] == "measurement"]
    assert len(stands) == 11 == sum(summarise(run).counts.values())
    values = sorted(float(r["value"]) for r in stands if r["check"] == "mpi_pingpong")
    assert values == [14.0, 900.0, 902.0, 904.0, 905.0, 905.0]
    old = {r["nodes"]: (float(r["value"]), r["run"], r["test"]) for r in rows if r["stands"] == "False" and r["value"]}
    assert old["node01 node03"][:2] == (11.0, FIRST) and "/" not in old["node01 node03"][2]
    mine = next(r for r in stands if r["nodes"] == "node02 node03")
    assert (mine["retest_of"], mine["before"], mine["before_run"], original(mine["outputs"])) == (
        FIRST, "FAIL", FIRST, "jobs/2/node02.log#t0002")


def test_json_fits_its_schema(run: Run) -> None:
    document = json.loads(formats()["json"].render(run))
    jsonschema.validate(document, schema(strict=True))
    found = document["acceptance"]
    assert [p["run"][-4:] for p in found["parts"]] == ["aaaa", "bbbb"]
    assert {len(a["results"]) for a in found["again"]} == {2}


def test_junit_and_prometheus(run: Run) -> None:
    tree = ET.fromstring(formats()["junit"].render(run))  # noqa: S314  (our own)
    assert tree.get("failures") == "1"
    said = [o.text or "" for o in tree.iter("system-out")]
    assert sum(f"before: FAIL in {FIRST}" in text for text in said) == 4
    assert [p.get("value", "")[-4:] for p in tree.iter("property") if p.get("name") == "retest"] == ["bbbb"]
    text = formats()["prometheus"].render(run)
    assert 'check="mpi_pingpong",before="FAIL",status="FAIL"} 1.0' in text
    assert 'check="all_reduce",before="FAIL",status="PASS"} 1.0' in text


def test_a_single_run_has_nothing_of_it(tmp_path: Path) -> None:
    alone = read_acceptance(first(tmp_path, whole(SLOW)))
    for name in ("table", "markdown", "html"):
        assert "Measured again after repair" not in formats()[name].render(alone)
    assert json.loads(formats()["json"].render(alone))["acceptance"] is None


def test_criteria_are_assessed_over_what_stands(tmp_path: Path, run: Run) -> None:
    results = {j.number: j.outcome.value for j in build(run, TERMS, TODAY).statement.criteria}
    assert (results["1"], results["2"], results["3"], results["4"]) == ("NOT MET", "MET", "NOT MET", "MET")
    good = healed(tmp_path / "good")
    assert good.plan is not None
    known = good.plan.__class__(**{**vars(good.plan), "expected": (Expected(NODES, 0, ()),)})
    good = good.__class__(**{**vars(good), "plan": known, "coverage": ()})
    good = good.__class__(**{**vars(good), "coverage": tuple(run_coverage(good))})
    doc = build(good, TERMS, TODAY)
    assert doc.statement.word is Word.ACCEPTED, doc.statement


def test_the_document_has_both_results_their_outputs_and_the_runs(tmp_path: Path, run: Run) -> None:
    for part in run.acceptance.parts if run.acceptance else ():
        log = Path(part.folder) / "jobs/2/node01.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"of {part.run}\n")
    doc = write(run, TERMS, TODAY, tmp_path / "out")
    table = next(t for t in doc.tables if t.name == "again")
    assert [len(row) for row in table.rows][:1] and len(table.rows) == 10
    page = (tmp_path / "out/index.html").read_text()
    assert "Measured again after repair" in page and "Repeats no." in page
    assert f"Re-test {doc.sign_off.retests[0][0]} is not sealed" in page
    for part in run.acceptance.parts if run.acceptance else ():
        name = "" if part.run == FIRST else f"{part.run}/"
        assert (tmp_path / f"out/raw/{name}jobs/2/node01.log").read_text() == f"of {part.run}\n"
    assert "修复后重测" in (write(run, TERMS, TODAY, tmp_path / "zh", language="zh") and (
        tmp_path / "zh/index.html").read_text())


def test_hostile_text_of_a_retest_stays_text(tmp_path: Path) -> None:
    path = first(tmp_path, whole(SLOW))
    again(tmp_path, 1, [pair(1, ("node01", "node03"), "<script>alert(1)</script>\x1b[2J\u202e=cmd()")],
          state="<b>odd\x1b[2J</b>")
    run = read_acceptance(path)
    for name in ("table", "markdown", "html", "csv", "junit", "prometheus"):
        text = formats()[name].content(run, Options(width=120)).decode()
        assert "\x1b" not in text and "\u202e" not in text, name
        assert "<script>alert" not in text or name in ("table", "csv", "prometheus"), name
    write(run, Terms(), TODAY, tmp_path / "out")
    page = (tmp_path / "out/index.html").read_text()
    assert "<script" not in page and "<b>odd" not in page and "\x1b" not in page


def test_what_was_replaced_is_in_each_form(tmp_path: Path) -> None:
    def of(serial: str) -> object:
        found = inventory(NODES)
        return found.__class__(**{**vars(found), "nodes": tuple(
            n.__class__(**{**vars(n), "serial": serial}) if n.name == "node03" else n for n in found.nodes)})
    path = first(tmp_path, whole(SLOW), inv=of("OLD-1"))
    again(tmp_path, 1, [pair(i + 1, p, 905.0) for i, p in enumerate(SLOW)], inv=of("NEW-2"))
    run = read_acceptance(path)
    for name in ("table", "markdown", "html", "json"):
        text = formats()[name].content(run, Options(width=160)).decode()
        assert "OLD-1" in text and "NEW-2" in text, name
    doc = build(run, Terms(), TODAY)
    assert [row[2:4] for t in doc.tables if t.name == "again-replaced" for row in t.rows] == [("OLD-1", "NEW-2")]
