"""Every form of a report: what it says, that it hides nothing, and that hostile text stays text."""

import csv
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import (
    ENTRIES,
    PINGPONG,
    bandwidth,
    inventory,
    names,
    node_results,
    pair_results,
    pair_test,
    repeated,
    write_run,
)

from hpcadmin.check import Measurement, Scope, Status, Step, Subject, Verdict
from hpcadmin.judge import doubtful, judge
from hpcadmin.model import Nic
from hpcadmin.report import Options, formats
from hpcadmin.report.summary import summarise
from hpcadmin.rundata import Finding, PlannedEntry, PlannedTest, Run, SkippedNode, TestResult, read_run

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden"
N4 = names(4)


def healthy_value(a: str, b: str) -> float:
    return 800.0 + 10 * int(a[-2:]) + int(b[-2:])


def throttled_value(a: str, b: str) -> float:
    return 11.5 + int(a[-1]) / 10 if "node03" in (a, b) else healthy_value(a, b)


def healthy(folder: Path) -> Path:
    return write_run(folder, [*node_results(N4), *pair_results(healthy_value, N4)], N4)


def throttled(folder: Path) -> Path:
    results = [*node_results(N4), *pair_results(throttled_value, N4)]
    by_id = {r.test.id: r for r in results}
    again = [repeated(by_id[t], throttled_value(*by_id[t].test.subject.nodes), attempt=2 + turn, alone=turn == 0)
             for t in doubtful(results, judge(results, [PINGPONG])) for turn in range(2)]
    return write_run(folder, [*results, *again], N4)


def lost_gpu(folder: Path) -> Path:
    inv = inventory(N4, gpus=8, simulated="8xH100")
    entries = (PlannedEntry("nvidia_smi", "GPUs as in the inventory", Scope.NODE),
               PlannedEntry("nccl_allreduce", "NCCL all-reduce over all GPUs", Scope.GROUP))
    results = []
    for number, node in enumerate(N4, 1):
        found = [Measurement("gpus", 7 if node == "node02" else 8, expected=8)]
        if node == "node02":
            found.append(Measurement("gpu", "missing", subject=Subject((node,), "GPU 5"), expected="present"))
        test = PlannedTest(f"t{number:04d}", "nvidia_smi", Subject((node,)), (Step(("nvidia-smi",)),), 2)
        results.append(TestResult(test, tuple(found), outputs=(f"jobs/2/{node}.log#{test.id}",)))
    group = PlannedTest("t0005", "nccl_allreduce", Subject(N4), (Step(("all_reduce_perf",)),), 2, ranks=32)
    results.append(TestResult(group, error="step ended with exit status 1: 31 of 32 ranks started"))
    return write_run(folder, results, N4, inv=inv, entries=entries)


def interrupted(folder: Path) -> Path:
    results = [*node_results(N4), *pair_results(healthy_value, N4)]
    path = write_run(folder, results, N4, state="interrupted", exit_status=130)
    lines = (path / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (path / "verdicts.jsonl").write_text("".join(lines[:-3]))
    return path


MAKERS = {"healthy": healthy, "throttled": throttled, "lost-gpu": lost_gpu, "interrupted": interrupted}


def report(path: Path, name: str, options: Options | None = None) -> str:
    return formats()[name].render(read_run(path), options or Options(width=100))


class Page(HTMLParser):
    """Everything that could act, and all text."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def harmless(text: str) -> Page:
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {
        "script", "iframe", "object", "embed", "img", "link", "form", "foreignobject", "use", "base", "audio", "video"}
    for _, attrs in page.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "action", "style") for name in attrs)
        assert not (attrs.get("href") or "").lower().startswith(("http", "javascript", "data", "file", "//", "/"))
    assert "@import" not in text
    assert "url(" not in text.replace("{ fill: url(#unmeasured); }", "")       # a pattern of the page itself
    return page


# --- the forms

def test_formats_are_found_by_listing_the_folder() -> None:
    assert list(formats()) == [
        "csv", "html", "json", "junit", "markdown", "prometheus", "table", "xlsx"]


@pytest.mark.parametrize("name", MAKERS)
def test_the_table_is_this_text(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / "20260730-101500-network")
    text = report(path, "table").replace(str(tmp_path), "RUNS")
    golden = GOLDEN / f"report-{name}.txt"
    if os.environ.get("HPCADMIN_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("width", [60, 72, 100, 160])
def test_the_table_fits_the_width(width: int, tmp_path: Path) -> None:
    text = report(throttled(tmp_path / "run"), "table", Options(width=width))
    assert all(len(line) <= width for line in text.splitlines()[:-1]), text


def test_long_lists_of_nodes_are_cut_or_broken_at_commas(tmp_path: Path) -> None:
    nodes = tuple(f"gpu{i:04d}" for i in range(1, 200, 2))
    results = [TestResult(PlannedTest(f"t{i}", "node_ready", Subject((n,)), (), 2), error="no answer")
               for i, n in enumerate(nodes)]
    path = write_run(tmp_path / "run", results, nodes, exit_status=None)
    text = report(path, "table", Options(width=80))
    assert "…] (100 nodes)" in text
    assert len(text.splitlines()) < 50
    whole = report(path, "table", Options(width=80, everything=True))
    for listing in (text, whole):
        assert all(len(line) <= 80 for line in listing.splitlines()[:-1])
    rows = whole.partition("\nVerdicts")[2].partition("\nCoverage")[0]
    assert all(len(n) == 4 for n in re.findall(r"(?<=[,\[ ])[0-9]+(?=[,\]])|^ +([0-9]+)", rows, re.MULTILINE) if n)
    assert all(n[3:] in rows for n in nodes)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_width_in_chinese(width: int, tmp_path: Path) -> None:
    words = "节点的网络带宽太低请检查网卡和电缆" * 12
    verdict = Verdict("带宽检查", Subject(("node01",)), Status.FAIL, words)
    path = write_run(tmp_path / "run", [], names(1), verdicts=[verdict], notes=(words,), cluster="集群",
                     exit_status=None)
    for everything in (False, True):
        text = report(path, "table", Options(width=width, everything=everything))
        assert words[:10] in text
        assert "\ue000" not in text
        for line in text.splitlines()[:-1]:
            assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) <= width, line


def test_colours_only_when_asked_for(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    assert "\x1b" not in report(path, "table")
    assert "\x1b[31;1mFAIL\x1b[0m" in report(path, "table", Options(colour=True))


def test_all_lists_what_passed_too(tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    assert "node02 - node04" not in report(path, "table")
    assert "node02 - node04" in report(path, "table", Options(everything=True))


@pytest.mark.parametrize(("name", "status", "word"), [
    ("healthy", 0, "PASSED"), ("throttled", 1, "FAILED"), ("lost-gpu", 1, "FAILED"), ("interrupted", 3, "INCOMPLETE")])
def test_every_form_says_how_it_ended(name: str, status: int, word: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path / "run")
    assert summarise(read_run(path)).status == status
    assert report(path, "table").splitlines()[-2].startswith(word)
    assert json.loads(report(path, "json"))["result"]["exit_status"] == status
    assert harmless(report(path, "html")).text.startswith(f"{word}: lab")


@pytest.mark.deep
def test_simulated_hardware_is_said_in_every_form(tmp_path: Path) -> None:
    path = lost_gpu(tmp_path / "run")
    head = report(path, "table").split("\n\n")[0]
    assert "Note: simulated hardware: 8xH100" in head
    assert report(path, "table").splitlines()[-2].endswith("(simulated hardware)")
    assert json.loads(report(path, "json"))["simulated"] == "8xH100"
    assert "Simulated hardware: 8xH100" in report(path, "html").split("<main>")[0]
    assert all(row["simulated"] == "8xH100" for row in csv.DictReader(io.StringIO(report(path, "csv"))))


def test_the_page_shows_every_node_pair_limit_and_link(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    (path / "jobs/2").mkdir(parents=True)
    (path / "jobs/2/driver.log").write_text("raw")
    page = harmless(report(path, "html"))
    for pair in itertools.combinations(N4, 2):
        assert " - ".join(pair) in page.text
    assert "at least 100 MB/s (site.toml)" in page.text
    assert "node03: slow to every partner: 3 of 3 pairs" in page.text
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    assert "jobs/2/driver.log" in links
    assert not any("jobs/3" in (link or "") for link in links), "no link to a file that is not there"
    assert "alone 11.6" in page.text


def test_links_are_relative_to_where_the_page_lies(tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    (path / "jobs/2").mkdir(parents=True)
    (path / "jobs/2/node01.log").write_text("raw")
    page = harmless(report(path, "html", Options(link_base="../run")))
    assert "../run/jobs/2/node01.log" in {attrs.get("href") for _, attrs in page.tags}


def test_csv_is_a_row_a_measurement_and_numbers_stay_numbers(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    rows = list(csv.DictReader(io.StringIO(report(path, "csv"))))
    run = read_run(path)
    assert sum(r["kind"] == "measurement" for r in rows) == len(run.measured)
    bad = [r for r in rows if r["status"] == "FAIL" and r["kind"] == "measurement"]
    assert [(r["node_a"], r["node_b"], float(r["value"]), r["unit"], r["limit_min"]) for r in bad] == [
        ("node02", "node03", 11.7, "MB/s", "100.0"), ("node01", "node03", 11.6, "MB/s", "100.0"),
        ("node03", "node04", 11.8, "MB/s", "100.0")]
    assert [r["nodes"] for r in rows if r["kind"] == "verdict" and r["basis"] == "peers"] == ["node03"]


def test_forms_agree(tmp_path: Path) -> None:
    path = throttled(tmp_path / "run")
    whole = json.loads(report(path, "json"))
    rows = list(csv.DictReader(io.StringIO(report(path, "csv"))))
    assert len(whole["measurements"]) == sum(r["kind"] == "measurement" for r in rows)
    assert sum(v["status"] == "FAIL" for v in whole["verdicts"]) == sum(r["status"] == "FAIL" for r in rows)
    [check] = [c for c in whole["checks"] if c["check"] == "mpi_pingpong"]
    assert (check["tests"], check["passed"]) == (6, 3)
    assert "3 of 6" in report(path, "table")


# --- what is missing is said

def no_file(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def cut_line(path: Path) -> None:
    text = (path / "verdicts.jsonl").read_text()
    (path / "verdicts.jsonl").write_text(text[:-30])


def foreign_line(path: Path) -> None:
    with (path / "verdicts.jsonl").open("a") as stream:
        stream.write("<html>\n")


def infinite(path: Path) -> None:
    text = (path / "measurements.jsonl").read_text()
    (path / "measurements.jsonl").write_text(text.replace('"value":812.0', '"value":1e999'))


@pytest.mark.parametrize("damage", [no_file("plan.json"), no_file("verdicts.jsonl"), no_file("measurements.jsonl"),
                                    no_file("inventory.json"), cut_line, foreign_line, infinite])
def test_a_damaged_run_never_looks_complete(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    damage(path)
    assert summarise(read_run(path)).status == 3
    table = report(path, "table")
    assert "Problem: " in table
    assert "PASSED" not in table
    assert "PASSED" not in harmless(report(path, "html")).text
    assert json.loads(report(path, "json"))["problems"]
    report(path, "csv")


@pytest.mark.parametrize("state", ["running", "interrupted", "failed", "something else"])
def test_a_run_that_did_not_end_is_incomplete(state: str, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [*node_results(N4), *pair_results(healthy_value, N4)], N4, state=state)
    summary = summarise(read_run(path))
    assert (summary.status, summary.word) == (3, "INCOMPLETE")


def test_a_manifest_that_claims_more_than_the_folder_shows(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [*node_results(N4), *pair_results(throttled_value, N4)], N4, exit_status=0)
    summary = summarise(read_run(path))
    assert summary.status == 1
    assert "exit status 0" in summary.problems[0]
    path = write_run(tmp_path / "other", [*node_results(N4), *pair_results(healthy_value, N4)], N4, exit_status=1)
    assert summarise(read_run(path)).status == 3


def test_planned_tests_without_a_verdict_and_nodes_without_a_test_are_not_run(tmp_path: Path) -> None:
    results = [*node_results(N4), *pair_results(healthy_value, N4)]
    entries = (*ENTRIES, PlannedEntry("nccl_allreduce", "NCCL", Scope.GROUP, Status.NOT_RUN, "no all_reduce_perf"))
    path = write_run(tmp_path / "run", results, N4, entries=entries, asked=(*N4, "node05", "node06"), exit_status=None,
                     plan={"skipped": (SkippedNode("node05", "drained: bad fan"),)},
                     verdicts=judge(results[:-1], [PINGPONG]))
    run = read_run(path)
    missing = [(v.check, str(v.subject), v.reason) for v in summarise(run).verdicts if v.status is Status.NOT_RUN]
    assert missing == [("mpi_pingpong", str(results[-1].test.subject), "no result"),
                       ("nccl_allreduce", "", "no all_reduce_perf"), ("", "node05", "drained: bad fan"),
                       ("", "node06", "not in the plan")]
    for text in (report(path, "table"), harmless(report(path, "html")).text, report(path, "json")):
        assert "drained: bad fan" in text
        assert "no all_reduce_perf" in text
        assert "node06" in text
    assert summarise(run).status == 3


def test_verdicts_known_from_the_plan_count(tmp_path: Path) -> None:
    known = Verdict("ib_write_bw", Subject(("node03",)), Status.FAIL, "no RDMA device, others have one", basis="plan")
    path = write_run(tmp_path / "run", [*node_results(N4), *pair_results(healthy_value, N4)], N4,
                     plan={"verdicts": (known,)}, exit_status=None)
    assert summarise(read_run(path)).status == 1
    assert "no RDMA device, others have one" in report(path, "table")


def test_nothing_at_all(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [], (), entries=(), exit_status=None)
    assert summarise(read_run(path)).status == 3
    for form in formats().values():
        assert form.content(read_run(path))


# --- hostile text

HOSTILE = ("<script>alert(1)</script>", "\x1b[31mred\x07\x9b2J", "=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-2",
           "\u202egnp.exe", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}", "\u2028line\x85", "\ud800", "a" * 1_000_000)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = []
    for i, text in enumerate(HOSTILE, 1):
        m = bandwidth(1.0, rail=text[:50], transport=text[:50], warnings=(text,))
        test = pair_test(i, (text[:60], f"{text[:60]}2"), check=text[:80] or "x")
        outputs = (f"../../{text[:20]}", f"jobs/2/{text[:20]}#<b>", "javascript:alert(1)", text[:50])
        results.append(TestResult(test, (m, Measurement(text[:60], text, text[:20], expected="x")), outputs=outputs))
        results.append(TestResult(pair_test(100 + i, (text[:60], "node")), error=text))
    folder = tmp_path_factory.mktemp("runs") / "run"
    return write_run(folder, results, [t[:60] for t in HOSTILE], cluster=HOSTILE[0], user=HOSTILE[1], host=HOSTILE[2],
                     command=HOSTILE[:4], notes=HOSTILE, exit_status=None, suite=HOSTILE[7])


@pytest.mark.deep
def test_hostile_text_stays_text_on_a_terminal(hostile: Path) -> None:
    for name in ("table", "csv", "json"):
        text = report(hostile, name, Options(everything=True))
        assert not {c for c in text if (ord(c) < 32 and c != "\n") or 0x7f <= ord(c) < 0xa0} - {"\x1b"}, name
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_hostile_text_stays_text_on_a_page(hostile: Path) -> None:
    text = report(hostile, "html")
    page = harmless(text)
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert len(text) < 5_000_000


def test_hostile_text_is_no_formula_in_a_spreadsheet(hostile: Path) -> None:
    for row in csv.reader(io.StringIO(report(hostile, "csv"))):
        for cell in row:
            assert len(cell) < 32_768
            if cell[:1] in "=+-@\t\r" and cell:
                float(cell)


def test_a_run_folder_with_links_is_not_followed(tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    (path / "jobs/2").mkdir(parents=True)
    (path / "jobs/2/node01.log").symlink_to("/etc/passwd")
    assert "node01.log\"" not in report(path, "html")


# --- size

@pytest.mark.deep
def test_sixty_four_nodes(tmp_path: Path) -> None:
    nodes = names(64)
    results = [*node_results(nodes), *pair_results(lambda a, b: 12.0 if "node17" in (a, b) else 48000.0, nodes)]
    path = write_run(tmp_path / "run", results, nodes)
    start = time.process_time()
    run: Run = read_run(path)
    table = formats()["table"].render(run, Options())
    assert time.process_time() - start < 3
    assert "node17: slow to every partner: 63 of 63 pairs" in table
    assert len(table.splitlines()) < 60
    start = time.process_time()
    text = formats()["html"].render(run, Options())
    assert time.process_time() - start < 10
    assert len(text) < 3_000_000
    page = harmless(text)
    for a, b in itertools.combinations(nodes, 2):
        assert f"{a} - {b}" in page.text or f"{b} - {a}" in page.text
    assert sum(attrs.get("class") == "badbox" and attrs["width"] != "14" for _, attrs in page.tags) == 2 * 63


@pytest.mark.deep
def test_more_nodes_than_a_map_of_pairs_can_hold(tmp_path: Path) -> None:
    nodes = names(66)
    leaves = {n: f"leaf{i // 11}" for i, n in enumerate(nodes)}
    path = write_run(tmp_path / "run", pair_results(lambda _a, _b: 48000.0, nodes), nodes, plan={"leaves": leaves})
    page = harmless(report(path, "html"))
    assert "each leaf switch's pairs" in page.text
    assert sum(tag == "rect" and (attrs.get("class") or "")[:1] == "h" and "stroke" not in attrs
               for tag, attrs in page.tags) == 6 * 6


def test_a_pair_that_was_not_measured_is_not_as_usual(tmp_path: Path) -> None:
    nodes = names(4)
    results = pair_results(lambda a, b: 900.0, nodes)[:4]
    page = harmless(report(write_run(tmp_path / "run", results, nodes), "html"))
    tiles = [attrs.get("class") for tag, attrs in page.tags if tag == "rect" and "stroke" not in attrs]
    assert tiles.count("h0") == 2 * 4
    assert "none" in tiles                                                     # behind the two that are missing


def test_a_page_of_a_large_run_has_the_worst_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcadmin.report import html
    monkeypatch.setattr(html, "_MOST_ROWS", 20)
    monkeypatch.setattr(html, "_LEAST_ROWS", 10)
    nodes = names(8)
    values = {pair: 800.0 + i for i, pair in enumerate(itertools.combinations(nodes, 2))}
    values["node04", "node07"] = 50.0
    page = harmless(report(write_run(tmp_path / "run", pair_results(lambda a, b: values[a, b], nodes), nodes), "html"))
    assert re.search(r"The worst verdicts of mpi_pingpong \(10 of 2[89];", page.text)
    shown = page.text.split("The worst verdicts of mpi_pingpong")[1]
    assert "node04 - node07" in shown
    assert "node01 - node02" in shown                                          # the worst of those that passed
    assert "node07 - node08" not in shown


def test_the_table_needs_neither_pandas_nor_jinja2(tmp_path: Path) -> None:
    path = healthy(tmp_path / "run")
    code = ("import sys\nfrom pathlib import Path\nfrom hpcadmin.report import formats\n"
            "from hpcadmin.rundata import read_run\n"
            f"formats()['table'].render(read_run(Path({str(path)!r})))\n"
            "print(sorted({'pandas', 'jinja2', 'numpy', 'fabric'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("good", [True, False])
def test_derived_limits_are_said_to_be_derived_in_every_form(good: bool, tmp_path: Path) -> None:
    nodes = names(4)
    ports = (Nic("mlx5_0", "mlx5_0", 1, "", "InfiniBand", rate_gbps=100.0),)
    inv = inventory(nodes)
    inv = replace(inv, nodes=tuple(replace(n, nics=ports) for n in inv.nodes))
    path = write_run(tmp_path / "20260730-101500-network",
                     [*node_results(nodes), *pair_results(lambda _a, _b: 4000.0 if good else 900.0, nodes)], nodes,
                     limits=(), inv=inv)
    run = read_run(path)
    assert {(v.status, v.basis) for v in run.verdicts if v.check == "mpi_pingpong"} == {
        (Status.PASS if good else Status.FAIL, "derived")}
    for name in sorted(set(formats()) - {"prometheus", "xlsx"}):         # numbers alone; as in csv
        text = formats()[name].render(run, Options(width=100))
        assert "derived: port mlx5_0 of 100 Gb/s" in text if name in ("csv", "json") else "(derived)" in text, name


def test_pairs_with_a_value_each_way_are_counted_once(tmp_path: Path) -> None:
    nodes = names(5)
    mtu = Measurement("path_mtu", 1500, "bytes", expected=9000, key=True)
    results = [TestResult(PlannedTest(f"t{n}", "ethernet", Subject(pair), (), 1),
                          tuple(replace(mtu, subject=Subject(way)) for way in (pair, pair[::-1])))
               for n, pair in enumerate(itertools.combinations(nodes, 2))]
    folder = write_run(tmp_path / "r", results, nodes, entries=[PlannedEntry("ethernet", "e", Scope.PAIR)])
    text = " ".join(report(folder, "table").split())
    assert "10 pairs of node[01-05] path_mtu 1500 bytes, expected 9000" in text


def test_what_a_cluster_has_not_is_one_note(tmp_path: Path) -> None:
    notes = ("no GPU on any node: nvidia_smi not tested", "tools: iperf3 3.12 (PATH)",
             "no GPU on any node: nccl_allreduce not tested", "not tested")
    run = read_run(write_run(tmp_path / "r", [], names(2), notes=notes))
    assert summarise(run).notes == ("no GPU on any node: nvidia_smi, nccl_allreduce not tested",
                                    "tools: iperf3 3.12 (PATH)", "not tested")


def test_a_pair_that_its_peers_accuse_is_not_held_against_the_partner_of_who_is_named(tmp_path: Path) -> None:
    slow = Verdict("mpi_pingpong", Subject(("node01", "node02")), Status.FAIL, "slow", test="t1", basis="limit")
    peers = Verdict("mpi_pingpong", Subject(("node01", "node02"), "mlx5_0/1"), Status.FAIL, "odd", basis="peers")
    run = read_run(write_run(tmp_path / "r", [], names(2), verdicts=[slow, peers]))
    rows = summarise(replace(run, findings=(Finding("node01: slow", ("node01",), status=Status.FAIL,
                                                    checks=("mpi_pingpong",), tests=("t1",)),))).nodes
    assert [(r.status, r.why) for r in rows] == [(Status.FAIL, "named by a finding"),
                                                 (rows[1].status, "failed only with node01")]
    assert rows[1].status is not Status.FAIL


def test_a_pair_that_was_not_run_for_the_partners_sake_is_the_partners(tmp_path: Path) -> None:
    pair = Verdict("pp", Subject(("node01", "node02")), Status.NOT_RUN, "node02 not free within 5 s", test="t1",
                   basis="plan")
    good = Verdict("pp", Subject(("node01", "node03")), Status.PASS, test="t2")
    run = read_run(write_run(tmp_path / "r", [], names(3), verdicts=[pair, good]))
    rows = {r.node: (r.status, r.why) for r in summarise(run).nodes}
    assert rows["node01"] == (Status.PASS, "not tested with node02")
    assert rows["node02"] == (Status.NOT_RUN, "pp: node02 not free within 5 s")
    alone = read_run(write_run(tmp_path / "s", [], names(2), verdicts=[pair]))
    assert summarise(alone).nodes[0].status is Status.NOT_RUN        # nothing else was tested of it
