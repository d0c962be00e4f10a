"""Hostile text stays text in every form of a report: names, outputs, notes, and any text at all."""

import csv
import io
import json
import unicodedata
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import bandwidth, pair_test, write_run
from openpyxl.utils.escape import unescape
from test_report import HOSTILE, Page, lost_gpu
from test_report_forms import ALL, BRIEF, book, html_of, junit, rendered, samples, table

from hpcadmin.check import Measurement, Scope, Status, Subject, Verdict
from hpcadmin.report import Options, formats, schema
from hpcadmin.report.csv import cell as csv_cell
from hpcadmin.report.csv import original
from hpcadmin.report.markdown import text as markdown_text
from hpcadmin.rundata import Finding, Manifest, PlannedEntry, Run, TestResult
from hpcadmin.text import printable

MARKS = ("=HYPERLINK(\"http://x\",\"y\")", "'=1", "a|b|c", "`code` **b** @root #1", "]]>", "&amp;", "\ufffe\uffff\x00",
         "_x0041_", "\\n", 'quote " quote', "\u2066rtl\u2069", "{job=\"x\"} 1", "# HELP x", "line\nline")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = (*HOSTILE, *MARKS)
    results = []
    for i, text in enumerate(texts, 1):
        m = bandwidth(1.0, rail=text[:50], transport=text[:50], binding=text[:50], mode=text[:50], warnings=(text,))
        test = pair_test(i, (text[:60], f"{text[:60]}2"), check=text[:80])
        outputs = (f"../../{text[:20]}", f"jobs/2/{text[:20]}#<b>", text[:50])
        results.append(TestResult(test, (m, Measurement(text[:60], text, text[:20], expected="x"),
                                         Measurement("v", 5, text[:20])), outputs=outputs))
        results.append(TestResult(pair_test(100 + i, (text[:60], "node")), error=text))
    entries = [PlannedEntry(text[:80], text[:200], Scope.PAIR) for text in texts]
    return write_run(tmp_path_factory.mktemp("runs") / "run", results, [t[:60] for t in texts], entries=entries,
                     cluster=HOSTILE[0], user=HOSTILE[1], host=MARKS[6], command=texts, notes=texts, exit_status=None,
                     suite=MARKS[3], version=MARKS[9])


def read_csv(text: str) -> None:
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert len(cell) < 32_768
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
                float(cell)


VALIDATOR = jsonschema.Draft202012Validator(schema.schema(strict=True))


def read_json(text: str) -> None:
    VALIDATOR.validate(json.loads(text))
    assert text.isascii()


READERS = {"csv": read_csv, "json": read_json, "junit": junit, "markdown": html_of, "prometheus": samples,
           "table": lambda text: None, "html": Page}


@pytest.mark.deep
@pytest.mark.parametrize("options", [BRIEF, ALL], ids=["brief", "all"])
@pytest.mark.parametrize("name", READERS)
def test_hostile_text_stays_text(name: str, options: Options, hostile: Path) -> None:
    text = rendered(hostile, name, options)
    READERS[name](text)
    assert not {c for c in text if (ord(c) < 32 and c not in "\n") or 0x7f <= ord(c) < 0xa0}
    assert not {c for c in text if c in "\u202e\u2066\u2069\u2028\ufeff" or 0xd800 <= ord(c) < 0xe000}
    text.encode()
    if name != "json":                       # which keeps everything
        assert max(map(len, text.splitlines())) < 200_000


@pytest.mark.deep
def test_hostile_text_stays_text_in_a_workbook(hostile: Path) -> None:
    made = book(hostile)
    assert set(READERS) | {"xlsx"} == set(formats()), "a new form is to be tried, too"
    texts = set()
    for sheet in made:
        for row in sheet.iter_rows():
            for cell in row:
                assert cell.data_type != "f"
                assert cell.hyperlink is None
                if isinstance(cell.value, str):
                    assert len(cell.value) < 32_768
                    assert cell.value.isprintable()
                    texts.add(unescape(cell.value))        # openpyxl does so for shared strings only
                    if cell.value[:1] in ("=", "+", "-", "@"):
                        assert cell.quotePrefix
    assert {"=cmd|' /C calc'!A0", "_x0041_", "a|b|c", '=HYPERLINK("http://x","y")'} <= texts


def test_every_form_says_that_hardware_is_simulated(tmp_path: Path) -> None:
    path = lost_gpu(tmp_path / "run")
    for name in READERS:
        assert "8xH100" in rendered(path, name), name
    assert {row["of the run"]: row["what"] for row in table(book(path), "Summary")}["simulated hardware"] == "8xH100"


# --- any text at all

SIGNS = "=+-@'\"\\`*_[](){}<>&#|:;~!$%^,. \n\r\t\x00\x1b\u202e\ufeff\ud800"
ANY = st.text(st.one_of(st.characters(), st.sampled_from(SIGNS)), max_size=40)


@pytest.mark.deep
@settings(max_examples=400, deadline=None)
@given(ANY)
def test_any_text_survives_a_cell(text: str) -> None:
    made = csv_cell(text)
    assert original(made) == text
    assert not {unicodedata.category(c) for c in made} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert made.lstrip()[:1] not in tuple("=+-@")


@pytest.mark.deep
@settings(max_examples=400, deadline=None)
@given(ANY)
def test_any_text_is_text_in_markdown(text: str) -> None:
    made = markdown_text(text)
    page = html_of(f"| a |\n|---|\n| x {made} |\n\n- x {made}\n\nNote: {made}")
    shown = printable(text)
    assert page.text == " ".join(f"a x {shown} x {shown} Note: {shown}".split())


@pytest.mark.deep
@settings(max_examples=50, deadline=None)
@given(ANY, ANY)
def test_any_text_is_text_for_programs(one: str, two: str) -> None:
    m = Measurement(one, 1.5, "MB/s", rail=two, transport=one)
    verdict = Verdict("c", Subject((one, two), two), Status.FAIL, two, "t1", m, basis="limit", outputs=(one,))
    manifest = Manifest("run", one, (one, two), "complete", "2026-07-30T10:15:00+02:00", cluster=two, host=one,
                        notes=(one, two))
    run = Run(Path("run"), manifest, verdicts=(verdict,), findings=(Finding(two, (one,), one),))
    junit(formats()["junit"].render(run))
    [(labels, value)] = samples(formats()["prometheus"].render(run))["hpcadmin_measured_bytes_per_second"]
    assert (labels.get("measurement", ""), labels.get("rail", ""), value) == (printable(one), printable(two), 1.5e6)
    read_json(formats()["json"].render(run))
    html_of(formats()["markdown"].render(run))
