"""The numbers of a run: those of the raw outputs, read once more, are those of every form of the report."""

import csv
import io
import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import openpyxl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_report_forms import html_of, junit

from hpcadmin.check import Measurement, Output, Role
from hpcadmin.frames import Frame, scan
from hpcadmin.plan_work import Stepped, context_of
from hpcadmin.report import Options, formats
from hpcadmin.report.prometheus import UNITS
from hpcadmin.report.summary import measurement_name
from hpcadmin.rundata import Run, read_run, write_plan, write_record
from hpcadmin.text import number

pytestmark = pytest.mark.deep
ROOT = Path(__file__).resolve().parent.parent
NODES = ["n00001", "n00002", "n00003", "n00004"]


class Value(NamedTuple):
    """One value as any form tells it."""

    check: str
    measurement: str
    value: object
    unit: str
    size_bytes: object


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[tuple[str, str, Measurement]]]:
    """A run with the outputs of four nodes as its jobs left them, samples of real tools; and what the checks read in
    those files."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import outputs
    finally:
        sys.path.pop(0)
    made, jobrun, _ = outputs.prepare(NODES, tmp_path_factory.mktemp("measured"))
    outputs.measure(made, jobrun)
    write_plan(made.folder.path, made.plan)
    write_record(made.folder.path, "inventory.json", outputs.inventory(NODES))
    run = read_run(Path(made.folder.path))
    return run, list(from_raw(run, outputs))


def from_raw(run: Run, outputs: object) -> Iterator[tuple[str, str, Measurement]]:
    """(test, check, measurement) of all outputs in the jobs' logs."""
    frames: dict[str, list[Frame]] = defaultdict(list)
    for log in sorted(run.path.glob("jobs/*/*.log")):
        found = scan(log.read_bytes(), log.name)
        assert not found.problem
        for frame in found.frames:
            frames[frame.id].append(frame)
    assert run.plan is not None
    facts = outputs.facts(NODES)  # type: ignore[attr-defined]
    checks = outputs.CHECKS  # type: ignore[attr-defined]
    stepped = Stepped({t.id: t for t in run.plan.tests}, checks, facts, {})
    for test in run.plan.tests:
        texts = [Output(f.body.decode(), f.status, Role(f.role), f.node, started=f.start, ended=f.end, ref=f.ref,
                        step=stepped[test.id].steps[f.step].name) for f in sorted(frames[test.id], key=lambda f: f.key)]
        check = checks[test.check]
        for m in check.parse(texts, context_of(check, facts, test)):
            yield test.id, test.check, m


def as_value(check: str, m: Measurement) -> Value:
    return Value(check, m.name, m.value, m.unit, m.size_bytes)


def cell(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text.removeprefix("'")


def test_there_is_something_to_compare(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    assert len(raw) > 500
    assert len({check for _, check, _ in raw}) == 6
    assert len(run.measured) == len(raw)


def test_json_has_the_numbers_of_the_outputs(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    told = json.loads(formats()["json"].render(run))["measurements"]
    assert Counter((one["test"], Value(one["check"], *(one["measurement"][name] for name in (
        "name", "value", "unit", "size_bytes")))) for one in told) == Counter(
            (test, as_value(check, m)) for test, check, m in raw)


def test_csv_has_the_numbers_of_the_outputs(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    rows = [r for r in csv.DictReader(io.StringIO(formats()["csv"].render(run))) if r["kind"] == "measurement"]
    told = Counter((r["test"], Value(r["check"], r["measurement"], str(cell(r["value"])), r["unit"],
                                     cell(r["size_bytes"]) if r["size_bytes"] else None)) for r in rows)
    assert told == Counter((test, as_value(check, m)._replace(value=str(cell(str(m.value))))) for test, check, m in raw)


def test_xlsx_has_the_numbers_of_the_outputs(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    sheet = openpyxl.load_workbook(io.BytesIO(formats()["xlsx"].content(run)))["Values"]
    head, *lines = list(sheet.iter_rows(values_only=True))
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    told = Counter((r["test"], Value(r["check"], r["measurement"], r["value"], r["unit"] or "", r["size_bytes"]))
                   for r in rows if r["kind"] == "measurement")
    assert told == Counter((test, as_value(check, m)) for test, check, m in raw)
    assert all(isinstance(r["value"], (int, float)) for r in rows if r["unit"] and r["kind"] == "measurement")


def test_prometheus_has_the_numbers_of_the_outputs(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    text = formats()["prometheus"].render(run, Options(everything=True))
    told = Counter()
    for family in text_string_to_metric_families(text):
        if family.name.startswith("hpcadmin_measured"):
            for s in family.samples:
                told[s.labels["check"], s.labels["measurement"], s.labels.get("size_bytes", ""),
                     float(f"{s.value:.12g}")] += 1
    wanted = Counter((check, m.name, "" if m.size_bytes is None else str(m.size_bytes),
                      float(f"{float(m.value) * UNITS.get(m.unit, ('', 1.0))[1]:.12g}"))
                     for _, check, m in raw if not isinstance(m.value, str))
    assert told == wanted


def test_junit_has_the_judged_numbers_of_the_outputs(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    run, raw = measured
    there = Counter(f"{measurement_name(m)}: {m.value} {m.unit}".rstrip() for _, _, m in raw)
    told = Counter(line.split(": ", 2)[2].partition(" (")[0]
                   for case in junit(formats()["junit"].render(run)).iter("testcase")
                   for line in (case.findtext("system-out") or "").splitlines()
                   if case.get("name") != "the run is whole" and "compared with" not in (case.get("name") or ""))
    judged = Counter(f"{measurement_name(m)}: {m.value} {m.unit}".rstrip() for _, _, m in raw
                     if m.key or m.expected is not None)
    assert told <= there
    assert judged <= told


def test_the_forms_for_people_have_them_rounded(measured: tuple[Run, list[tuple[str, str, Measurement]]]) -> None:
    """Median, worst and best of each judged measurement, worked out here from the outputs."""
    run, raw = measured
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for _, check, m in raw:
        if m.key and m.expected is None and not isinstance(m.value, str):
            groups[check, measurement_name(m), m.unit].append(float(m.value))
    assert groups
    texts = {"table": " ".join(formats()["table"].render(run, Options(width=2000)).split()),
             "markdown": html_of(formats()["markdown"].render(run, Options(everything=True))).text,
             "html": " ".join(formats()["html"].render(run).split())}
    for (check, name, unit), values in groups.items():
        low, high = number(min(values)), number(max(values))
        for form in ("table", "markdown"):
            if len(values) > 1 and check != "nvidia_smi":
                start = f"{name}: median {number(statistics.median(values))}, worst "
                possible = [f"{start}{a}, best {b} {unit}".strip() for a, b in ((low, high), (high, low))]
                assert any(text in texts[form] for text in possible), (form, check, name)
        assert all(number(v) in texts["html"] for v in values)
