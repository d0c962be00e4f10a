"""Every file of a run folder, spoilt in every way, in every form that reads it: a stated problem and an exit status
that is no success, never a traceback, never PASS, ACCEPTED or 0 because something was absent."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_runs import inventory, names, node_results, pair_results, with_logs, write_run

from hpcadmin import cli, files, history_store, rundata, seal, seal_sign, store, store_archive, store_marks
from hpcadmin.check import Scope, Status
from hpcadmin.report import folders, formats, whole
from hpcadmin.rundata import Covered, Expected, PlannedEntry, write_record
from hpcadmin.seal import write_seal

N4 = names(4)
FIRST, OLD, NEW = "20260701-101500-network", "20260730-101500-network", "20260830-101500-network"
RUNS = [FIRST, *(f"202607{day}-101500-network" for day in ("05", "10", "15", "20", "25")), OLD, NEW]
ENTRIES = (PlannedEntry("node_ready", "Node is ready for work", Scope.NODE),
           PlannedEntry("mpi_hello", "Every rank answers from its node", Scope.GROUP),
           PlannedEntry("mpi_pingpong", "Bandwidth and latency between two nodes", Scope.PAIR))
CRITERIA = """[contract]
title = "Cluster"
[[criterion]]
number = "1"
text = "Bandwidth"
checks = ["mpi_pingpong", "node_ready", "mpi_hello"]
[[criterion]]
number = "2"
text = "All nodes"
coverage = { nodes = 100.0 }
"""
LIMIT = 1 << 17                         # bytes that are read of a file here; sound ones have far fewer
LOG = "jobs/2/driver.log"
RECORDS = ("manifest.json", "plan.json", "inventory.json", "limits.json", "findings.json", "coverage.json")
LINES = ("measurements.jsonl", "verdicts.jsonl")
HOSTILE = b"\x00\x1b[31m\xff\xfe\xe2\x80\xae=cmd()|<script>\n"

Spoil = Callable[[Path], None]


def longer(path: Path) -> None:
    """Whole, but larger than is read: JSON may have blanks anywhere."""
    path.write_bytes(path.read_bytes().rstrip(b"\n") + b" " * LIMIT + b"\n")


def another_version(path: Path) -> None:
    text = path.read_text(errors="replace")
    changed = re.sub(r'"schema": ?\d+', '"schema":99', text, count=1)
    if changed == text:
        changed = re.sub("(?m)^{", '{"of_a_newer_version":1,', text)
    path.write_text(changed if changed != text else '[{"of_a_newer_version": 1}]')


def amid(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:-len(raw) // 16] + HOSTILE + raw[-len(raw) // 16:])


WAYS: dict[str, Spoil] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b"") and None,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:path.stat().st_size // 2]) and None,
    "too large": longer,
    "another version": another_version,
    "hostile": amid,
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs in which all is well, one after the other."""
    top = tmp_path_factory.mktemp("kept")
    for number, name in enumerate(RUNS):
        results = [*node_results(N4), *pair_results(lambda a, b, k=number: 870.0 + k + ord(b[-1]) % 3, N4)]
        folder = write_run(top / "runs" / name, results, N4, entries=ENTRIES, notes=(),
                           plan={"expected": (Expected(N4, 0, ()),)},
                           inv=inventory(N4), started=f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:15:00+02:00")
        write_record(folder, "coverage.json", (Covered("nodes", 4, 4), *(Covered(kind, 0, 0) for kind in (
            "GPUs", "HCA ports", "leaf-to-leaf paths"))))
        with_logs(folder)
        for log in folder.glob("jobs/2/*.log"):
            log.write_bytes(b"raw output\n")
    (top / "criteria.toml").write_text(CRITERIA)
    return top


@pytest.fixture
def spoilt(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Makes a copy of the runs in which one file of one run is spoilt; sealed before that, or not."""
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    for module, name in ((files, "MAX_READ_BYTES"), (store, "_MANIFEST_BYTES"), (folders, "_MANIFEST_BYTES"),
                         (rundata, "MOST_OF_A_LINE"), (history_store, "MOST_OF_A_LINE"),
                         (whole, "MOST_OF_A_LINE"), (seal, "MAX_SEAL_BYTES"),
                         (seal_sign, "MAX_SEAL_BYTES"), (store_archive, "MAX_SEAL_BYTES"), (store_marks, "_MAX_BYTES")):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, LIMIT)
    made = [0]

    def make(run: str, name: str, way: str, *, sealed: bool = False) -> Path:
        made[0] += 1
        top = tmp_path / str(made[0])
        shutil.copytree(kept, top)
        folder = top / "runs" / run
        if sealed:
            write_seal(folder, run, "2026-07-30T10:15:12+02:00")
        if way:
            WAYS[way](folder / name)
        monkeypatch.setenv("HPCADMIN_DIR", str(top))
        monkeypatch.chdir(top)
        return folder
    yield make


def call(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    status = cli.run(list(args))
    out, err = capfd.readouterr()
    text = out + err
    assert "Traceback" not in text and "internal error" not in text, f"{args}: {text[-500:]}"
    assert not re.search("[\x1b\x00\u202e]", text), f"{args}: control characters"
    return status, text


FORMS = sorted(formats())
JUDGING = [["report", "--format", name, *(["-o", f"out.{name}"] if name in ("html", "xlsx") else [])] for name in FORMS]
COMPARING = [["report", "--compare", OLD], ["report", "--compare", OLD, "--json"],
             ["report", "--run", FIRST, "--compare", NEW]]
OTHERS = [["runs", "outputs"], ["runs", "vendor", "--node", "node01"], ["runs", "baseline", NEW]]
HANDOVER = ["report", "--handover", "--criteria", "criteria.toml", "-o", "document"]
SAYS_GOOD = re.compile(r"\bPASSED\b|hpcadmin_run_exit_status\{[^\n]*\} 0"
                       r"|<testsuites [^>]*\bfailures=\"0\" errors=\"0\"")


def written(args: list[str]) -> str:
    """What a form that goes to a file says."""
    if "-o" not in args:
        return ""
    path = Path(args[args.index("-o") + 1])
    path = path / "index.html" if path.is_dir() else path
    if not path.exists():
        return ""
    if path.suffix != ".xlsx":
        return path.read_text()
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as book:
        return "".join(book.read(n).decode() for n in book.namelist() if n.startswith("xl/"))


def test_all_is_well_to_begin_with(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    spoilt(NEW, "", "", sealed=True)
    for args in (*JUDGING, *COMPARING, HANDOVER, ["runs", "list"], ["runs", "show"], ["runs", "trend", "mpi_pingpong"],
                 ["runs", "verify"], ["runs", "vendor", "--node", "node01"], ["runs", "export", NEW],
                 ["runs", "baseline", OLD], ["report", "--compare", "baseline"]):
        status, text = call(capfd, *args)
        assert status == 0, f"{args}: {text[-800:]}"
        if args in JUDGING and "csv" not in args:
            assert SAYS_GOOD.search(text + written(args)), f"{args}: what is good must be seen here"


def wrong(name: str, way: str, args: list[str], status: int, text: str) -> str:
    """Why this answer is no good, "" where it is."""
    text += written(args)
    if status == 0:
        return f"{name} {way}: {' '.join(args)}: exit status 0"
    if args in JUDGING and SAYS_GOOD.search(text):
        return f"{name} {way}: {' '.join(args)}: {SAYS_GOOD.search(text)}"
    if "prometheus" in args and re.search(r"(?m)^hpcadmin_run_problems\{.*\} [1-9]", text):
        return ""
    known = (name.partition(".")[0], "the manifest says exit status 0", "no run", "not a run folder")
    told = any(words in text for words in known)
    return "" if told else f"{name} {way}: {' '.join(args)}: says nothing of it: {text[-300:]}"


def harmless(name: str, way: str) -> bool:
    """Runs of older versions have no coverage; where nothing failed there are no findings."""
    return way == "missing" and name in ("findings.json", "coverage.json")


@pytest.mark.deep
@pytest.mark.parametrize("sealed", [False, True], ids=["not sealed", "sealed"])
@pytest.mark.parametrize("name", [*RECORDS, *LINES])
def test_a_report_of_what_is_not_whole(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str], name: str,
                                       sealed: bool) -> None:
    faults = []
    for way in WAYS:
        spoilt(NEW, name, way, sealed=sealed)
        for args in () if harmless(name, way) else (*JUDGING, *OTHERS):
            faults.append(wrong(name, way, args, *call(capfd, *args)))
        if not (harmless(name, way) and not sealed and name == "findings.json"):
            status, text = call(capfd, *HANDOVER)
            faults.append("" if status in (1, 2, 3) and ("NOT ACCEPTED" in text or status == 2) else
                          f"{name} {way}: handover {status} {text[-300:]}")
        status, text = call(capfd, "runs", "show")
        if "Result:     PASSED" in text and not harmless(name, way):
            faults.append(f"{name} {way}: runs show says PASSED")
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


@pytest.mark.deep
@pytest.mark.parametrize("side", [OLD, NEW], ids=["as the old one", "as the new one"])
@pytest.mark.parametrize("name", [*RECORDS, *LINES])
def test_a_comparison_with_what_is_not_whole(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str], name: str,
                                             side: str) -> None:
    faults = []
    for way in WAYS:
        if harmless(name, way):
            continue
        spoilt(side, name, way, sealed=True)
        for args in (["report", "--run", NEW, "--compare", OLD], ["report", "--run", NEW, "--compare", OLD, "--json"]):
            status, text = call(capfd, *args)
            faults.append(wrong(name, way, args, status, text))
            if status == 3 and "--json" in args and json.loads(text)["exit_status"] != 3:
                faults.append(f"{name} {way}: JSON says another status")
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


@pytest.mark.deep
def test_a_trend_over_what_is_not_whole(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    faults = []
    for name in ("manifest.json", "plan.json", "measurements.jsonl"):
        for way in WAYS:
            spoilt("20260710-101500-network", name, way)
            args = ["runs", "trend", "mpi_pingpong"]
            status, text = call(capfd, *args)
            if (name, way) != ("measurements.jsonl", "empty"):
                faults.append(wrong(name, way, args, status, text))
            status, text = call(capfd, "runs", "list")
            if status or (name == "manifest.json" and way != "another version" and "unreadable" not in text):
                faults.append(f"{name} {way}: runs list: {status} {text}")
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


@pytest.mark.deep
@pytest.mark.parametrize("name", [*RECORDS, *LINES, LOG, "SHA256SUMS"])
def test_verify_and_export_of_what_is_not_whole(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str],
                                                name: str) -> None:
    faults = []
    for way in WAYS:
        spoilt(NEW, name, way, sealed=True)
        unsealed = name == "SHA256SUMS" and way == "missing"
        for args in (["runs", "verify", NEW], ["runs", "seal", NEW], ["runs", "export", NEW]):
            status, text = call(capfd, *args)
            if (status == 0) is not (unsealed and "verify" not in args):
                faults.append(f"{name} {way}: {' '.join(args)}: {status} {text[-300:]}")
    assert not list(filter(None, faults)), "\n".join(filter(None, faults))


@pytest.mark.parametrize("way", WAYS)
def test_tags_that_cannot_be_read_are_no_tags_of_ours(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str],
                                                      way: str) -> None:
    folder = spoilt(OLD, "", "")
    assert call(capfd, "runs", "baseline", OLD)[0] == 0
    WAYS[way](folder / "marks.json")
    assert call(capfd, "report", "--compare", "baseline")[0] == 2
    assert call(capfd, "runs", "tag", OLD)[0] == (0 if way == "missing" else 2)
    assert call(capfd, "runs", "list")[0] == 0
    call(capfd, "runs", "prune", "--yes", "--keep-last", "0", "--keep-days", "0")
    assert folder.exists() is (way != "missing")


def test_a_run_with_nothing_in_it(spoilt: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    """Each file is whole, and none says anything."""
    folder = spoilt(NEW, "", "")
    for name in LINES:
        (folder / name).write_text("")
    (folder / "plan.json").write_text(json.dumps({"suite": "network", "nodes": [], "entries": []}))
    for args in (*JUDGING, *COMPARING[:2], HANDOVER):
        assert call(capfd, *args)[0] != 0, args
    assert Status.NOT_RUN.value in call(capfd, "report")[1]
