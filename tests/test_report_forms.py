"""The forms of a report that other programs read: as their readers read them, and all with the same numbers."""

import csv
import io
import json
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import openpyxl
import pytest
from looped import looped
from made_runs import bandwidth, names, pair_test, write_run
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families
from test_report import HOSTILE, MAKERS, N4, Page, healthy, throttled

from hpcadmin.check import Measurement, Status, Subject, Verdict
from hpcadmin.frames import Frame, encode
from hpcadmin.report import Options, formats, schema
from hpcadmin.report.csv import original
from hpcadmin.report.frame import tidy
from hpcadmin.report.markdown import text as markdown_text
from hpcadmin.report.summary import summarise
from hpcadmin.report.whole import read_for_report
from hpcadmin.rundata import TestResult, read_run
from hpcadmin.seal import write_seal
from hpcadmin.text import printable

ROOT = Path(__file__).resolve().parent.parent
BRIEF, ALL = Options(), Options(everything=True)


def nothing(folder: Path) -> Path:
    return write_run(folder, [], (), entries=(), exit_status=None)


def damaged(folder: Path) -> Path:
    path = healthy(folder)
    (path / "plan.json").unlink()
    (path / "verdicts.jsonl").write_text((path / "verdicts.jsonl").read_text()[:-30])
    return path


def in_all_states(folder: Path) -> Path:
    """One test of each status, and a warning."""
    results = [
        TestResult(pair_test(1, ("node01", "node02")), (bandwidth(812.0),)),
        TestResult(pair_test(2, ("node03", "node04")), (bandwidth(11.0),)),
        TestResult(pair_test(3, ("node01", "node03")), error="step ended with exit status 1"),
        TestResult(pair_test(4, ("node02", "node04")), not_run="node04 is drained"),
        TestResult(pair_test(5, ("node01", "node04")), (Measurement("latency", 3.25, "us"),)),
        TestResult(pair_test(6, ("node02", "node03")), (bandwidth(900.0, warnings=("odd",)),)),
    ]
    return write_run(folder, results, N4, exit_status=None)


MADE = {**MAKERS, "nothing": nothing, "damaged": damaged, "states": in_all_states}


@pytest.fixture(params=MADE)
def any_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MADE[request.param](tmp_path / "20260730-101500-network")


def rendered(path: Path, name: str, options: Options = BRIEF) -> str:
    return formats()[name].render(read_run(path), options)


# --- JSON

def test_the_published_schema_is_that_of_the_records() -> None:
    assert (ROOT / "docs/report.schema.json").read_text() == schema.text(), (
        "python -m hpcadmin.report.schema > docs/report.schema.json")


@cache
def validator(strict: bool) -> jsonschema.protocols.Validator:
    made = schema.schema(strict=strict)
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_every_report_is_as_the_schema_says(any_run: Path) -> None:
    whole = json.loads(rendered(any_run, "json"))
    for strict in (True, False):
        validator(strict).validate(whole)


@pytest.mark.parametrize("change", [{"schema": 2}, {"kind": "other"}, {"run": None}, {"nodes": {}}])
def test_the_schema_refuses_what_is_no_report(change: dict[str, object], tmp_path: Path) -> None:
    whole = json.loads(rendered(healthy(tmp_path / "run"), "json"))
    with pytest.raises(jsonschema.ValidationError):
        validator(False).validate(whole | change)


# --- CSV

@pytest.mark.parametrize("text", [*HOSTILE[:-1], "", "'", "''=1", "\\x1b", "a\\b", "\\\\", "  =1+1", "\n@x", "'quoted'",
                                  "\u200b=1", "＝1"])  # noqa: RUF001
def test_a_cell_can_be_read_back(text: str, tmp_path: Path) -> None:
    verdict = Verdict("c", Subject(("node01",)), Status.FAIL, text)
    path = write_run(tmp_path / "run", [], names(1), verdicts=[verdict], exit_status=None)
    [row] = [r for r in csv.DictReader(io.StringIO(rendered(path, "csv"))) if r["status"] == "FAIL"]
    assert original(row["reason"]) == text
    assert row["reason"].lstrip()[:1] not in ("=", "+", "-", "@", "\t", "\r", "＝")  # noqa: RUF001
    assert row["reason"].isprintable()


def test_each_row_has_the_time_with_its_zone(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(rendered(throttled(tmp_path / "run"), "csv"))))
    assert {datetime.fromisoformat(row["run_started"]).utcoffset() is not None for row in rows} == {True}


def test_the_same_rows_as_a_pandas_table(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    frame, rows = tidy(read_run(path)), list(csv.DictReader(io.StringIO(rendered(path, "csv"))))
    assert (list(frame.columns), len(frame)) == (list(rows[0]), len(rows))
    slow = frame[(frame["measurement"] == "bandwidth") & (frame["status"] == "FAIL") & (frame["basis"] == "limit")]
    assert sorted(slow["value"]) == [11.6, 11.7, 11.8]


# --- JUnit XML

CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"properties", "testcase", "system-out", "system-err"},
            "testcase": {"skipped", "error", "failure", "system-out", "system-err"}, "properties": {"property"}}
ATTRIBUTES = {
    "testsuites": ({"name"}, {"time", "tests", "failures", "errors", "disabled"}),
    "testsuite": ({"name", "tests", "failures", "errors", "time", "timestamp", "hostname"},
                  {"skipped", "id", "package"}),
    "testcase": ({"name", "classname"}, {"time", "assertions", "status"}),
    "failure": ({"type", "message"}, set()), "error": ({"type", "message"}, set()), "skipped": (set(), {"message"}),
    "property": ({"name", "value"}, set()), "properties": (set(), set()), "system-out": (set(), set())}


def junit(text: str) -> ElementTree.Element:
    """Parsed, once it keeps the rules of the common schemas (Jenkins's junit-10.xsd, Ant's)."""
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>')
    assert not re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text), "what XML 1.0 forbids"
    root = ElementTree.fromstring(text.encode())  # noqa: S314  (our own)
    assert root.tag == "testsuites"
    for element in root.iter():
        needed, possible = ATTRIBUTES[element.tag]
        assert needed <= set(element.attrib) <= needed | possible, element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        for name in ("tests", "failures", "errors", "skipped"):
            assert element.get(name, "0").isdecimal()
        assert float(element.get("time", "0")) >= 0
    for suite in root:
        tags = [child.tag for child in suite]
        assert tags == sorted(tags, key=["properties", "testcase"].index)
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases) > 0
        for kind, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(kind, "")) == sum(case.find(tag) is not None for case in cases)
        assert all(sum(case.find(tag) is not None for tag in ("failure", "error", "skipped")) <= 1 for case in cases)
    for kind in ("tests", "failures", "errors"):
        assert root.get(kind) == str(sum(int(suite.get(kind, "")) for suite in root))
    named = Counter((case.get("classname"), case.get("name")) for case in root.iter("testcase"))
    assert named.total() == len(named), "a CI system would take two cases for one"
    return root


def test_junit_keeps_the_schema_and_is_green_only_when_all_passed(any_run: Path) -> None:
    root = junit(rendered(any_run, "junit"))
    bad = int(root.get("failures", "")) + int(root.get("errors", ""))
    assert bool(bad) == bool(summarise(read_run(any_run)).status)


def test_junit_says_which_kind_of_bad(tmp_path: Path) -> None:
    root = junit(rendered(in_all_states(tmp_path / "run"), "junit"))
    found = {}
    for case in root.iter("testcase"):
        bad = next((case.find(tag) for tag in ("failure", "error", "skipped") if case.find(tag) is not None), None)
        found[(case.get("name") or "").partition(" [")[0]] = (bad.tag, bad.get("type"), bad.get("message")) if (
            bad is not None) else None
    assert found["node01 - node02"] is None
    assert found["node02 - node03"] is None
    assert found["node03 - node04"] == ("failure", "FAIL", "bandwidth at 256 KiB 11 MB/s, at least 100 MB/s")
    assert found["node01 - node03"] == ("error", "ERROR", "step ended with exit status 1")
    assert found["node02 - node04"] == ("error", "NOT RUN", "node04 is drained")
    assert found["node01 - node04"] == ("error", "UNJUDGED", "latency 3.25 us: no limit known")
    assert found["RDMA write bandwidth"] == ("skipped", None, "no RDMA device on any node")


def test_junit_has_the_times_of_the_outputs(tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    (path / "jobs/2").mkdir(parents=True)
    frame = Frame("t0001", 0, "server", "node01", "node01", 0, 1e9, 1e9 + 2.5, frozenset(), b"x" * 5000)
    (path / "jobs/2/driver.log").write_bytes(b"".join(encode(f) for f in (
        frame, replace(frame, step=1, role="client", start=1e9 + 1, end=1e9 + 3.25),
        replace(frame, id="t0002", end=None, status=None))) + b"HPCADMIN-FRAME 1 id=t0003 cut")
    (path / "jobs/2/node01.log").symlink_to("/etc/passwd")
    cases = {re.sub(r".*\[(.*)\]", r"\1", c.get("name", "")): c.get("time")
             for c in junit(rendered(path, "junit")).iter("testcase")}
    assert (cases["t0001"], cases["t0002"], cases["t0003"]) == ("3.250", None, None)


# --- Markdown

TAGS = {"h2", "h3", "p", "ul", "li", "strong", "code", "table", "thead", "tbody", "tr", "th", "td"}


def html_of(text: str) -> Page:
    """As a forge shows it, with HTML let through: stricter than any of them."""
    page = Page(MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").render(text))
    assert {tag for tag, _ in page.tags} <= TAGS
    assert not any(attrs for _, attrs in page.tags)
    return page


def test_markdown_is_tables_and_lists(any_run: Path) -> None:
    for options in (BRIEF, ALL):
        page = html_of(rendered(any_run, "markdown", options))
        summary = summarise(read_run(any_run))
        assert page.text.startswith(summary.word)
        for finding in summary.findings:
            assert " ".join(finding.text.split()) in page.text


@looped("text", [
    *HOSTILE[:-1], "a|b", "\\|", "`x`", "``", "**b**", "_x_", "@admin", "#12", "owner/repo#1", "GH-1", "!5", "~label",
    "&#124;", "&lt;b&gt;", "[x](http://a.b)", "![x](y)", "<b>", "http://x.y", "www.x.y", "a@b.cd", "deadbeef1",
    ":smile:", "$x^2$", "%1", "- x", "1. x", "# x",
    "[^1]", "</code><b>", "```", "~~~", "a\nb", "node[01-04](x)", "<!-- x"])
def test_text_in_markdown_is_what_it_was(text: str) -> None:
    made = f"| a | b |\n|---|---|\n| {markdown_text(text)} | x |\n\n- **FAIL** {markdown_text(text)}"
    page = html_of(made)
    shown = " ".join(printable(text).split())
    assert page.text == f"a b {shown} x FAIL {shown}", made
    if re.search(r"@|#|www|//|:\w|\bGH|[%!~$&]\w|deadbeef", text):
        assert f"<code>{'' if shown else '</code>'}" in made, "no forge looks for references in code"


@pytest.mark.parametrize("text", ["node[01-04,07]", "bandwidth at 256 KiB 11.7 MB/s, 99% below the median (819)",
                                  "node03: slow", "2026-07-30 10:15:00 +0200", "mpi_pingpong",
                                  "20260730-101500-network"])
def test_harmless_words_are_readable_as_they_are(text: str) -> None:
    assert markdown_text(text) == text


# --- Prometheus

def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            assert sample.timestamp is None, "the textfile collector refuses timestamps"
            assert re.fullmatch("[a-z_]+", sample.name)
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    for name, all_of_it in found.items():
        label_sets = Counter(tuple(sorted(labels.items())) for labels, _ in all_of_it)
        assert label_sets.total() == len(label_sets), name
    return found


def test_prometheus_is_read_by_its_own_parser(any_run: Path) -> None:
    summary = summarise(read_run(any_run))
    for options in (BRIEF, ALL):
        found = samples(rendered(any_run, "prometheus", options))
        [(labels, value)] = found["hpcadmin_run_exit_status"]
        assert (labels, value) == ({"cluster": "lab", "suite": "network", **(
            {"simulated": summary.simulated} if summary.simulated else {})}, summary.status)
        for row in summary.nodes:
            assert [lab["status"] for lab, on in found["hpcadmin_node_status"] if lab["node"] == row.node and on] == [
                row.status.value]
        assert len(found.get("hpcadmin_finding_info", ())) == len(summary.findings)


def test_prometheus_is_in_base_units(tmp_path: Path) -> None:
    values = [("bw", 11.7, "MB/s", "bytes_per_second", 11.7e6), ("lat", 2.37, "us", "seconds", 2.37e-6),
              ("power", 650.5, "W", "watts", 650.5), ("part", 97, "%", "ratio", 0.97), ("rate", 400, "Gb/s",
              "bits_per_second", 4e11), ("memory", 3, "MiB", "bytes", 3145728), ("odd", 7, "furlongs", "", 7)]
    test = pair_test(1, ("node01", "node02"), "c")
    path = write_run(tmp_path / "run", [TestResult(test, tuple(Measurement(n, v, u) for n, v, u, _, _ in values))], N4,
                     exit_status=None)
    found = samples(rendered(path, "prometheus"))
    for name, _, unit, base, value in values:
        [(labels, got)] = [x for x in found["hpcadmin_measured" + (f"_{base}" if base else "")]
                           if x[0]["measurement"] == name]
        assert got == pytest.approx(value, rel=1e-15)
        assert labels.get("unit", "") == ("" if base else unit)
        assert (labels["node"], labels["peer"]) == ("node01", "node02")


def test_the_same_labels_twice_are_told_apart(tmp_path: Path) -> None:
    same = (bandwidth(800.0), bandwidth(801.0), bandwidth(802.0))
    path = write_run(tmp_path / "run", [TestResult(pair_test(1, ("node01", "node02")), same)], N4, exit_status=None)
    found = samples(rendered(path, "prometheus"))["hpcadmin_measured_bytes_per_second"]
    assert [(labels.get("again"), value) for labels, value in found] == [(None, 8e8), ("2", 8.01e8), ("3", 8.02e8)]


# --- XLSX

def book(path: Path) -> openpyxl.Workbook:
    return openpyxl.load_workbook(io.BytesIO(formats()["xlsx"].content(read_run(path))))


def table(made: openpyxl.Workbook, sheet: str) -> list[dict[str, object]]:
    head, *lines = list(made[sheet].iter_rows(values_only=True))
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_xlsx_has_filters_frozen_heads_and_formats(any_run: Path) -> None:
    made = book(any_run)
    assert made.sheetnames == ["Summary", "Findings", "Checks", "Nodes", "Coverage", "Values"]
    for sheet in made:
        assert sheet.freeze_panes == "A2"
        assert sheet.auto_filter.ref
        assert all(cell.font.bold for cell in sheet[1])
    assert str(table(made, "Summary")[0]["what"]) == summarise(read_run(any_run)).text
    for row in made["Values"].iter_rows(min_row=2):
        for cell in row:
            assert cell.data_type in ("n", "s", "b", "inlineStr"), cell
            if isinstance(cell.value, float):
                assert cell.number_format != "General"


def test_the_same_run_gives_the_same_workbook(tmp_path: Path) -> None:
    run = read_run(throttled(tmp_path / "run"))
    assert formats()["xlsx"].content(run) == formats()["xlsx"].content(run)


def test_large_integers_keep_their_digits(tmp_path: Path) -> None:
    m = Measurement("serial", 16500000000000000001, expected=16500000000000000001)
    path = write_run(tmp_path / "run", [TestResult(pair_test(1, ("node01", "node02")), (m,))], N4, exit_status=None)
    assert [row["value"] for row in table(book(path), "Values")][:1] == ["16500000000000000001"]


# --- what a form does not ask for

def test_a_sealed_run_is_read_without_what_the_form_does_not_ask_for(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    loose = read_for_report(path, values=False)
    assert (loose.measured, loose.problems) == ((), ())
    write_seal(path, "run", "2026-07-30T10:15:12+02:00")
    slim, whole = read_for_report(path, values=False), read_for_report(path, values=True)
    assert (slim.measured, slim.problems, slim.verdicts) == ((), (), whole.verdicts)
    assert len(whole.measured) > 0
    for name, form in formats().items():
        if not form.values:
            for options in (BRIEF, ALL):
                assert form.render(slim, options) == form.render(whole, options), name
    (path / "measurements.jsonl").write_text((path / "measurements.jsonl").read_text()[:-30])
    damaged = read_for_report(path, values=False)
    assert "measurements.jsonl" in damaged.problems[0]
    assert summarise(damaged).status == 1
