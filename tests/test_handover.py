"""The handover document: what it says, in both languages, and that hostile text stays text."""

import ast
import datetime
import hashlib
import io
import itertools
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from handover_runs import LIMITS, SIZES, cluster, leaf_of, node_names
from made_runs import bandwidth, inventory, names, node_results, pair_results, write_run

from hpcadmin import cli
from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.errors import UsageError
from hpcadmin.handover import book, figures, heat
from hpcadmin.handover.build import Beside, build, conf_changes
from hpcadmin.handover.criteria import Terms, parse_terms
from hpcadmin.handover.evidence import read_outputs, wanted
from hpcadmin.handover.folder import PAGE, read_conf, write
from hpcadmin.handover.model import Curve, Findings, Handover, HeatMap, Histogram, Table
from hpcadmin.handover.page import css_text, render, rounded
from hpcadmin.handover.texts import LANGUAGES, Words, msg, places
from hpcadmin.model import Node
from hpcadmin.rundata import Finding, Run, ToolFound, read_run

ROOT = Path(__file__).resolve().parent.parent
DAY = datetime.date(2026, 11, 30)
TERMS = parse_terms(b"""[contract]
title = "GPU cluster"
number = "2026-117"
[[criterion]]
number = "1"
text = "Bandwidth"
checks = ["mpi_pingpong"]
measurement = "bandwidth"
unit = "MB/s"
size_bytes = 262144
min = 800
[[waiver]]
name = "W1"
who = "J. Doe"
reason = "cable ordered"
until = 2027-03-31
nodes = "gpu0003"
""", "criteria.toml")
VOID = {"meta", "br", "link"}


class Page(HTMLParser):
    """Tags with their attributes; texts; that all are closed in order, ids are unique and links lead somewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def check(self) -> None:
        assert not self.open
        ids = [a["id"] for _, a in self.tags if "id" in a]
        assert len(ids) == len(set(ids))
        for tag, attrs in self.tags:
            for name in ("href", "src", "action", "data"):
                address = attrs.get(name) or ""
                assert not re.match(r"(?i)[a-z]+:|//", address), (tag, address)
            assert not any(name.startswith("on") for name in attrs)
            if (attrs.get("href") or "").startswith("#"):
                assert (attrs["href"] or "")[1:] in ids
            for name in ("aria-labelledby", "aria-describedby"):
                assert attrs.get(name, ids[0]) in ids
        assert {t for t, _ in self.tags}.isdisjoint({"script", "iframe", "object", "embed", "form", "img", "link"})


@pytest.fixture(scope="module")
def run16(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(cluster(tmp_path_factory.mktemp("h") / "run", 32, most_rounds=31))


def document(run: Run, **more: object) -> Handover:
    return build(run, TERMS, DAY, Beside(**more))  # type: ignore[arg-type]


def table(doc: Handover, name: str) -> Table:
    return next(t for t in doc.tables if t.name == name)


# --- texts

def test_no_text_is_missing_in_either_language() -> None:
    en, zh = LANGUAGES["en"], LANGUAGES["zh"]
    assert list(en) == list(zh)
    for key in en:
        assert places(en[key]) == places(zh[key]), key
        assert bool(en[key]) == bool(zh[key]) or key == "page_end"
        assert key.startswith(("col_", "page")) or re.search("[\u4e00-\u9fff]", zh[key]) or key in (
            "kind_gpus", "table_gpus", "list", "demand_kind", "check_title"), key


def used_keys() -> Iterator[str]:
    for path in sorted((ROOT / "hpcadmin/handover").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for path in (ROOT / "conf_templates").glob("handover*.j2"):
        yield from re.findall(r'"([a-z][a-zA-Z0-9_]+)"', path.read_text())


def test_every_text_is_used_and_every_used_text_is_there() -> None:
    used, known = set(used_keys()), set(LANGUAGES["en"])
    made = ("word_", "outcome_", "status_", "general_", "heat_", "waiver_", "table_worst_", "col_two_")
    # those are put together where they are used
    assert {k for k in known - used if not k.startswith(made)} == set()
    prefixes = ("col_", "section_", "table_", "action_", "fact_", "reason_", "evidence_", "remark_", "kind_")
    assert {k for k in used if k.startswith(prefixes) and k not in known and not k.endswith("_")} == set()


def test_another_language_is_refused() -> None:
    with pytest.raises(UsageError, match="known are en, zh"):
        Words("fr")
    assert Words("en").say(msg("check_counts", passed=1234, total=5)) == "1,234 of 5 tests passed."


# --- the model

def test_numbers_are_those_of_the_measurements(run16: Run) -> None:
    doc = document(run16)
    values = sorted(m.measurement.value for m in run16.measured if m.measurement.name == "bandwidth")
    check = next(s for s in doc.sections if "mpi_pingpong" in str(s.title.args.get("check")))
    row = next(b for b in check.blocks if isinstance(b, Table) and b.name.endswith("-values")).rows[0]
    assert row[2] == len(values) == 496
    assert (row[3], row[5], row[7]) == (values[0], statistics.median(values), values[-1])
    assert row[4] == values[-(-len(values) * 5 // 100) - 1]
    worst = next(b for b in check.blocks if isinstance(b, Table) and "-worst-" in b.name)
    assert [r[1] for r in worst.rows] == values[:10]
    assert worst.left_out == 486
    bars = next(b for b in check.blocks if isinstance(b, Histogram)).bars
    assert sum(b.count for b in bars) == 496


def test_sections_stand_in_order_and_criteria_come_first(run16: Run) -> None:
    doc = document(run16)
    assert [s.name for s in doc.sections if s.part == 2] == [
        "criteria", "inventory", "coverage", "findings", "results", "odd", "waivers", "configuration", "software",
        "raw", "full-inventory"]
    assert table(doc, "criteria").rows[0][4:6] == (465, 496)
    assert len(table(doc, "gpus").rows) == 32 * 8
    ports = table(doc, "ports").rows
    assert ports[0][-1] == "leaf01 port 1"
    assert table(doc, "gpus").rows[0][3].startswith("GPU-")  # type: ignore[union-attr]
    assert table(doc, "coverage").rows[1][1:5] == (256, 256, 0, 0)
    assert [t.name for t in doc.tables] == list(dict.fromkeys(t.name for t in doc.tables))


def test_findings_have_serials_action_and_evidence(run16: Run) -> None:
    refs = [r for found in wanted(run16).values() for r in found]
    doc = document(run16, outputs=read_outputs(run16, refs), copied=frozenset())
    found = next(b for s in doc.sections for b in s.blocks if isinstance(b, Findings))
    first = found.items[0]
    assert (first.nodes, first.serials, first.waivers) == ("gpu0003", ("gpu0003: SN000002",), ("W1",))
    assert first.action.key == "action_pair"
    raw = (run16.path / first.evidence[0].ref.partition("#")[0]).read_bytes()
    assert first.evidence[0].sha256 == hashlib.sha256(raw).hexdigest()
    assert "11.4" in first.evidence[0].excerpt
    assert first.evidence[0].status == "exit status 0"


def test_the_map_is_per_leaf_above_64_nodes() -> None:
    nodes = node_names(80)
    leaves = {n: leaf_of(i) for i, n in enumerate(nodes)}
    verdicts = [Verdict("p", Subject(pair), Status.FAIL if "gpu0003" in pair else Status.PASS,
                        measurement=bandwidth(11.0 if "gpu0003" in pair else 900.0))
                for pair in itertools.combinations(nodes, 2)]
    figure, tables = heat.heat_map("p", "pp", verdicts, [], leaves)
    assert (figure.by, figure.labels) == ("leaf", ("leaf01", "leaf02", "leaf03", "leaf04", "leaf05"))
    assert len(figure.tiles) == 25
    assert {t.bad for t in figure.tiles if t.y == figure.margin} == {True}      # gpu0003 is in the first
    numbers = {r[0]: r for r in tables[0].rows}
    assert numbers["leaf02"][1:3] == (16 * 15 // 2 + 16 * 64, 16)
    by_blocks, tables = heat.heat_map("p", "pp", verdicts, [], {})
    assert (len(by_blocks.labels), by_blocks.labels[0], by_blocks.pattern) == (40, "0001…0002", "gpu*")
    assert (by_blocks.by, tables[0].columns[0].title.key) == ("block", "col_block")     # and not called a switch


def test_up_to_64_nodes_leaves_are_marked(run16: Run) -> None:
    doc = document(run16)
    figure = next(b for s in doc.sections for b in s.blocks if isinstance(b, HeatMap))
    assert [leaf for leaf, _, _ in figure.leaves] == ["leaf01", "leaf02"]
    assert len(figure.edges) == 1
    assert len(figure.tiles) == 32 * 31
    assert sum(t.bad for t in figure.tiles) == 2 * 31


def test_a_curve_stands_against_what_is_expected(run16: Run) -> None:
    doc = document(run16)
    figure = next(b for s in doc.sections for b in s.blocks if isinstance(b, Curve))
    assert len(figure.median) == len(figure.expected) == len(SIZES)
    numbers = next(t for t in doc.tables if t.name.endswith("-sizes"))
    last = numbers.rows[-1]
    assert last[-1] == LIMITS[1].min == pytest.approx(last[-2])      # expected ends at the limit
    assert numbers.rows[0][2] == pytest.approx(numbers.rows[0][5])   # and begins at the smallest message
    assert all(0 <= p.y <= figure.height for p in (*figure.median, *figure.band, *figure.expected))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 3), (0.001, 0.0011), (-5, 5), (1e9, 1e12), (0, 7)])
def test_ticks_are_round_and_within(low: float, high: float) -> None:
    found = figures.ticks(low, high)
    assert 1 <= len(found) <= 8
    assert all(low - 1e-9 <= t <= high * (1 + 1e-9) for t in found)


def test_a_histogram_of_equal_values(tmp_path: Path) -> None:
    for value in (0.0, 5.0, -3.0):
        figure, numbers = figures.histogram("h", "h", "us", [value] * 9, [])
        assert [b.count for b in figure.bars] == [9]
        assert numbers.rows[0][1] == 9


# --- the page

@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_is_sound_and_closed(language: str, run16: Run) -> None:
    text = render(document(run16), language)
    page = Page(text)
    page.check()
    assert f'lang="{"zh-Hans" if language == "zh" else "en"}"' in text
    assert {"en": "NOT ACCEPTED", "zh": "验收不通过"}[language] in page.text
    assert "http" not in re.sub(r'http-equiv|http://www\.w3\.org/\S+', "", text)
    assert [t for t, _ in page.tags].count("h1") == 1
    assert all(a.get("aria-labelledby") for t, a in page.tags if t == "svg" and a.get("role") == "img")
    assert all(a.get("scope") for t, a in page.tags if t == "th")


def test_simulated_hardware_is_stamped_on_every_page(tmp_path: Path) -> None:
    run = read_run(cluster(tmp_path / "r", 4, simulated='8xH100"; } body { display: none'))
    text = render(build(run, Terms(), DAY))
    assert "@top-center" in text
    assert 'class="watermark"' in text
    assert "SIMULATED HARDWARE" in text
    style = text.split("<style>")[1].split("</style>")[0]
    assert '"; } body' not in style
    assert style.count("{") == style.count("}")
    real = render(build(read_run(cluster(tmp_path / "s", 4)), Terms(), DAY))
    assert "watermark\" " not in real
    assert "@top-center" not in real


HOSTILE = '<img src=x onerror=alert(1)>"\'&=cmd()\x1b[31m\u202e{{7*7}}</style></script>'


def hostile_run(folder: Path) -> Run:
    nodes = names(4)
    inv = replace(inventory(nodes), nodes=tuple(Node(n, serial=HOSTILE, product=HOSTILE, os=HOSTILE * 20_000)
                                                for n in nodes))
    run = read_run(write_run(folder, [*node_results(nodes), *pair_results(lambda a, b: 12.0, nodes)], nodes, inv=inv,
                             cluster=HOSTILE, user=HOSTILE, notes=(HOSTILE,)))
    found = (Finding(HOSTILE, (HOSTILE, "node01"), HOSTILE, checks=(HOSTILE,), tests=("t0001",)),)
    verdicts = tuple(replace(v, reason=HOSTILE, outputs=(f"../{HOSTILE}", "/etc/passwd#x")) for v in run.verdicts)
    return replace(run, findings=found, verdicts=verdicts)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "r")
    terms = replace(TERMS, contract=replace(TERMS.contract, title=HOSTILE, vendor=HOSTILE),
                    waivers=(replace(TERMS.waivers[0], reason=HOSTILE, name=HOSTILE),))
    doc = write(run, terms, DAY, tmp_path / "out")
    text = (tmp_path / "out" / PAGE).read_text()
    Page(text).check()
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{{7*7}}" in text
    assert len(text) < 400_000
    assert not list((tmp_path / "out").rglob("passwd"))
    data = book.render(doc)
    openpyxl = pytest.importorskip("openpyxl")
    for sheet in openpyxl.load_workbook(io.BytesIO(data)).worksheets:
        assert all(c.data_type != "f" for row in sheet.iter_rows() for c in row)


def test_css_strings_cannot_be_left() -> None:
    assert '"' not in css_text('a"b')
    assert css_text("a\\b<") == "a\\5c b\\3c "
    assert "\n" not in css_text("a\nb")


def test_the_workbook_has_the_documents_numbers(run16: Run) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    doc = document(run16)
    sheets = openpyxl.load_workbook(io.BytesIO(book.render(doc)))
    criteria = sheets["criteria"]
    assert [c.value for c in criteria[2]][4:6] == [465, 496]
    assert criteria.freeze_panes == "B2"
    assert criteria.auto_filter.ref
    assert len(sheets.sheetnames) == 2 + sum(bool(t.rows) for t in doc.tables)
    contents = {row[0].value: [c.value for c in row] for row in sheets["contents"].iter_rows(min_row=2)}
    assert set(contents) == set(sheets.sheetnames[2:])                       # a sheet's title, where its name is short
    assert "rows; all of them are in the run folder" in contents["shortfalls"][3]
    for name in sheets.sheetnames[2:]:
        assert contents[name][2] == sheets[name].max_row - 1
    worst = next(s for s in sheets.worksheets if "-worst-" in s.title)
    assert (worst["B2"].number_format, worst["B2"].value) == ("#,##0.00", pytest.approx(11.0, abs=1))
    assert sheets["waivers"]["E2"].value == datetime.datetime(2027, 3, 31)
    assert worst.column_dimensions["A"].width > len(worst["A2"].value)


# --- the folder

def test_the_folder_stands_alone(run16: Run, tmp_path: Path) -> None:
    write(run16, TERMS, DAY, tmp_path / "out")
    page = Page((tmp_path / "out" / PAGE).read_text())
    links = [a["href"] for _, a in page.tags if not (a.get("href") or "#").startswith("#")]
    assert links
    for link in links:
        assert (tmp_path / "out" / str(link).partition("%23")[0]).is_file(), link
    write(run16, TERMS, DAY, tmp_path / "out", language="zh")                 # it may be made again
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        write(run16, TERMS, DAY, tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="is no folder"):
        write(run16, TERMS, DAY, tmp_path / "link")
    assert (tmp_path / "other/x").read_text() == "mine"


def test_configuration_files_with_hashes_and_differences(tmp_path: Path) -> None:
    for folder, port in (("a", "6817"), ("b", "6818")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "slurm.conf").write_text(f"ClusterName=x\nSlurmctldPort={port}\n")
        (tmp_path / folder / "slurmdbd.conf").write_text(f"StoragePass=secret{port}\nDbdHost=h\n")
    (tmp_path / "a/gres.conf").write_text("Name=gpu\n")
    found = {c.name: c for c in read_conf(tmp_path / "a", tmp_path / "b").conf}
    assert found["slurm.conf"].sha256 == hashlib.sha256((tmp_path / "a/slurm.conf").read_bytes()).hexdigest()
    assert "+SlurmctldPort=6818" in (found["slurm.conf"].diff or ())
    assert (found["gres.conf"].live, found["gres.conf"].diff) == ("", ())
    assert "secret" not in str(found)
    assert all(c.diff is None for c in read_conf(tmp_path / "a", None).conf)
    assert conf_changes({"x": (b"a\n", b"a\n")})[0].diff == ()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    cluster(tmp_path / "runs" / "20260730-101500-network", 4)
    (tmp_path / "criteria.toml").write_text(
        '[[criterion]]\nnumber = "1"\ntext = "ready"\nchecks = ["node_ready"]\n[[waiver]]\nname = "W"\nwho = "a"\n'
        'reason = "b"\nuntil = 2999-01-01\nnodes = "gpu[0001-0004]"\n')
    return tmp_path / "runs" / "20260730-101500-network"


def test_the_command(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", "--handover"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "NOT ACCEPTED"
    assert any(re.match(r"  G4: .*gpu0003.*MB/s.* \(\+[0-9]+\)$", line) for line in out), out
    assert cli.run(["report", "--handover", "--criteria", "criteria.toml", "--lang", "zh", "-o", "doc"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "带豁免验收通过"
    assert not any(line.startswith("  G") for line in out)      # what is waived is not short of anything
    assert (runs / "handover" / PAGE).is_file()
    assert (runs.parent.parent / "doc" / PAGE).is_file()


def test_a_sealed_run_has_its_digest_and_damage_is_not_accepted(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcadmin.seal import write_seal
    digest = write_seal(runs, runs.name, "2026-07-30T10:16:00+02:00").digest
    assert cli.run(["report", "--handover", "--criteria", "criteria.toml"]) == 0
    assert digest in (runs / "handover" / PAGE).read_text()
    limits = json.loads((runs / "limits.json").read_text())
    (runs / "limits.json").write_text(json.dumps(limits) + "\n")
    capsys.readouterr()
    assert cli.run(["report", "--handover", "--criteria", "criteria.toml"]) == 1
    assert "Not met: G1" in capsys.readouterr().out
    assert "limits.json: is not as it was sealed" in (runs / "handover" / PAGE).read_text()


@pytest.mark.parametrize(("args", "says"), [
    (["--criteria", "criteria.toml"], "go with --handover"),
    (["--handover", "-o", "-"], "cannot go to stdout"),
    (["--handover", "--live", "/etc"], "--live needs --conf"),
    (["--handover", "--lang", "fr"], "no language 'fr'"),
    (["--handover", "--criteria", "none.toml"], "none.toml: cannot be read"),
    (["--handover", "--conf", "none"], "none cannot be read"),
])
def test_what_cannot_be_done_is_one_line(args: list[str], says: str, runs: Path, capsys: pytest.CaptureFixture[str],
                                         ) -> None:
    assert cli.run(["report", *args]) == 2
    out, err = capsys.readouterr()
    assert (out, says in err, "Traceback" in err) == ("", True, False)


def test_criteria_are_read_without_heavy_libraries() -> None:
    code = ("import sys\nimport hpcadmin.handover.assess, hpcadmin.handover.page, hpcadmin.handover.folder\n"
            "print(sorted({'pandas', 'jinja2', 'numpy', 'xlsxwriter', 'fabric'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.deep
def test_a_thousand_nodes_are_small(tmp_path: Path) -> None:
    run = read_run(cluster(tmp_path / "r", 1000, most_rounds=20))
    doc = write(run, TERMS, DAY, tmp_path / "out")
    assert len(table(doc, "gpus").rows) == 8000
    assert sum(p.stat().st_size for p in (tmp_path / "out").rglob("*") if "raw" not in p.parts) < 10_000_000
    assert node_names(1000)[-1] == "gpu1000"


def test_the_example_of_the_documentation_is_sound() -> None:
    from hpcadmin.handover.criteria import read_terms
    from hpcadmin.registry import load_checks
    found = read_terms([ROOT / "docs/criteria.toml"], load_checks(""))
    assert [c.number for c in found.criteria] == ["3.1", "3.2", "3.3", "3.4"]
    assert found.waivers[0].nodes == ("node03",)


@pytest.mark.parametrize("change", [
    {"plan": None}, {"inventory": None}, {"plan": None, "inventory": None, "verdicts": (), "findings": ()},
    {"verdicts": ()}, {"measured": ()}, {"findings": ()}, {"problems": ("plan.json is damaged",) * 50}])
def test_what_is_missing_makes_a_document_that_accepts_nothing(change: dict[str, object], run16: Run) -> None:
    waived = replace(TERMS, waivers=tuple(replace(TERMS.waivers[0], name=f"W{i}", nodes=(), criterion=c)
                                          for i, c in enumerate(("1", "G3", "G4"))))
    doc = build(replace(run16, **change), waived, DAY)  # type: ignore[arg-type]
    Page(render(doc)).check()
    accepted = doc.statement.word.value == "ACCEPTED"
    assert not accepted
    if set(change) & {"plan", "problems"}:
        assert doc.statement.word.value == "NOT ACCEPTED"


@pytest.mark.parametrize("line", [
    "StoragePass=SECRET", "storagepass = 'SECRET x'", "StoragePass=\\\nSECRET", "JobCompLoc=http://u:SECRET@elastic/s",
    "#StoragePass=SECRET", "StoragePassword=SECRET", "X=user=u,password=SECRET", "ApiToken=SECRET",
    "a\x1b\u2028Pass=SECRET"])
def test_no_password_stands_in_what_changed(line: str) -> None:
    [found] = conf_changes({"slurmdbd.conf": (b"a=1\n", f"a=2\n{line}\n".encode())})
    assert found.diff
    assert "SECRET" not in "\n".join(found.diff)


def test_a_signed_run_names_its_key(runs: Path, tmp_path: Path) -> None:
    import shutil

    from hpcadmin.seal import write_seal
    from hpcadmin.seal_sign import sign
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen")
    write_seal(runs, runs.name, "2026-07-30T10:16:00+02:00")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    sign(runs, tmp_path / "key")
    assert cli.run(["report", "--handover", "--criteria", "criteria.toml"]) == 0
    assert "is signed with the key SHA256:" in (runs / "handover" / PAGE).read_text()
    (runs / "SHA256SUMS.sig").write_text("x")
    assert cli.run(["report", "--handover", "--criteria", "criteria.toml"]) == 1


def test_what_only_the_peers_say_has_its_raw_outputs(tmp_path: Path) -> None:
    from made_runs import pair_results as pairs
    nodes = names(6)
    run = read_run(write_run(tmp_path / "r", pairs(lambda a, b: 11.0 if "node03" in (a, b) else 900.0, nodes), nodes,
                             limits=()))
    place = next(i for i, f in enumerate(run.findings) if f.nodes == ("node03",))
    alone = replace(run, findings=tuple(replace(f, tests=()) for f in run.findings))
    assert wanted(alone)[place]
    assert all(ref.startswith("jobs/2/driver.log#") for ref in wanted(alone)[place])


def test_serials_of_each_device_that_is_accused(run16: Run) -> None:
    from hpcadmin.handover.build import action
    from hpcadmin.handover.hardware import serials
    found = serials(run16.inventory, ("gpu0003",), "GPU 4, GPU 5")
    assert [s.split(":")[0] for s in found] == ["gpu0003", *["gpu0003 GPU 4"] * 2, *["gpu0003 GPU 5"] * 2]
    assert serials(run16.inventory, ("gpu0003",), "mlx5_1/1")[1] == "gpu0003 mlx5_1: MT2412X00021"
    said = Words("en").say(action(Finding("", ("gpu0003",), "GPU 4", checks=("nvidia_smi",))))
    assert said.startswith("gpu0003 GPU 4: ")


@pytest.mark.parametrize("count", [4, 80])
def test_the_page_can_be_read_by_ear(count: int, tmp_path: Path) -> None:
    """Headings in order; pictures with title and description, each with its table behind it; tables with a name, heads
    and a place in the order of the tab key."""
    page = Page(render(build(read_run(cluster(tmp_path / "r", count, most_rounds=9)), TERMS, DAY)))
    page.check()
    levels = [int(t[1]) for t, _ in page.tags if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    places = [(i, t) for i, (t, _) in enumerate(page.tags) if t in ("figure", "table", "h2", "h3")]
    figures_ = [n for n, (_, t) in enumerate(places) if t == "figure"]
    assert figures_
    assert all(places[n + 1][1] == "table" for n in figures_), "a picture without its numbers"
    for place, (tag, attrs) in enumerate(page.tags):
        if tag == "svg" and attrs.get("role") == "img":
            assert [t for t, _ in page.tags[place + 1:place + 3]] == ["title", "desc"]
        if tag == "table":
            assert page.tags[place + 1][0] == "caption" or attrs.get("aria-labelledby")
        if "scroll" in (attrs.get("class") or "").split():
            assert attrs["tabindex"] == "0"
            assert attrs["aria-labelledby"]


def test_nothing_lost_is_as_good_as_it_gets() -> None:
    """A loss of 0 % is no value that is missing, nor the worst one; without a direction the limit tells it."""
    from hpcadmin.check import Limit, Measurement
    limit = Limit("ethernet", "loss", unit="%", max=0.1)
    found = [Verdict("ethernet", Subject((a, b)), measurement=Measurement("loss", 5.0 if b == "n3" else 0.0, "%"),
                     limit=limit, status=Status.PASS) for a, b in (("n1", "n2"), ("n1", "n3"), ("n1", "n4"))]
    figure, tables = heat.heat_map("x", "loss", found, [], {})
    shades = {t.text: t.shade for t in figure.tiles}
    assert shades == {"0": 0, "5": 4}
    assert tables[1].rows[0][:2] == ("n1 - n3", 5.0)


def test_texts_are_not_set_in_two_columns(run16: Run) -> None:
    doc = document(run16)
    text = render(doc)
    narrow = re.findall(r'class="scroll narrow"[^>]*aria-labelledby="([^"]+)-caption"', text)
    assert any(name.endswith("-numbers") for name in narrow)
    assert not any(name.endswith(("-bad", "shortfalls", "criteria")) for name in narrow)


def test_labels_of_long_names_are_what_differs() -> None:
    long = [f"gpu-rack{i:02d}-chassis.cluster.example.org" for i in range(9)]
    labels, pattern = heat.short_labels(long)
    assert labels == tuple(f"{i:02d}" for i in range(9))
    assert pattern == "gpu-rack*-chassis.cluster.example.org"
    assert heat.short_labels(["a", "b"]) == (("a", "b"), "")
    assert heat.short_labels(["x" * 30]) == (("xxxxx…xxxxxx",), "")
    assert len(set(heat.short_labels(["node1" * 5, "node1" * 5 + "0"])[0])) == 2


@pytest.mark.parametrize(("value", "text"), [
    (11.0, "11.00"), (880.0, "880.0"), (999.96, "1,000"), (1472.4, "1,472"), (47104.0, "47,104"), (0.0, "0"),
    (0.00123456, "0.001235"), (-2.5, "-2.500"), (1e-7, "1e-07"), (float("nan"), "nan")])
def test_numbers_of_a_column_have_equal_digits(value: float, text: str) -> None:
    assert rounded(value) == text


def test_a_tool_whose_version_is_not_known_says_why(tmp_path: Path) -> None:
    nodes = names(4)
    tool = ToolFound("ib_write_bw", tuple(nodes), "/usr/bin/ib_write_bw", problem="it printed no version")
    path = write_run(tmp_path / "20260730-101500-network", node_results(nodes), nodes, plan={"tools": (tool,)})
    assert "it printed no version" in str(table(document(read_run(path)), "tools").rows)
