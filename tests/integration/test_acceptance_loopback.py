"""An acceptance on a real Slurm: a cable is bad, the wrong one is changed, then the right one. Values are in files."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, loopback

from hpcadmin.rundata import Run, read_run

pytestmark = pytest.mark.lab

# A cable's rate stands in a file; without one it is 100. "crash" in it: the program ends with an error.
READ = 'v=$(cat "$1" 2>/dev/null || echo 100); [ "$v" != crash ] || exit 3; [ "$SLURM_PROCID" != 0 ] || echo $v'
CHECKS = {
    "node": """
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURMD_NODENAME"')),)
def parse(o, c):
    return [Measurement("name", o[0].text.strip(), expected=o[0].node, subject=Subject((o[0].node,)))]
CHECK = Check("node", "The node's name", Scope.NODE, steps, parse, seconds=0.1)
""",
    "pair": """
def steps(c):
    return (Step(("sh", "-c", READ, "sh", CABLES + "/" + "-".join(n.name for n in c.nodes)), Role.RANKS),)
def parse(o, c):
    return [Measurement("rate", float(o[0].text), "MB/s", 1024, subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("pair", "A rate between two nodes", Scope.PAIR, steps, parse, impact=Impact.LOAD, seconds=0.1)
""",
    "all": """
def steps(c):
    return (Step(("sh", "-c", READ, "sh", CABLES + "/all"), Role.RANKS),)
def parse(o, c):
    return [Measurement("sum", float(o[0].text), "MB/s", 1024, nodes=len(c.nodes))]
CHECK = Check("all", "All together", Scope.GROUP, steps, parse, layouts=(Layout.ALL,), seconds=0.1)
""",
}
LIMIT = """
[[limit]]
check = "{}"
measurement = "{}"
unit = "MB/s"
size_bytes = 1024
min = 90.0
source = "contract"
"""
CRITERIA = """
[contract]
title = "Cluster of four"
[[criterion]]
number = "3.1"
text = "Each cable carries 90 MB/s"
checks = ["pair"]
measurement = "rate"
unit = "MB/s"
size_bytes = 1024
min = 90.0
[[criterion]]
number = "3.2"
text = "All nodes together"
checks = ["all"]
"""
SETTINGS = {"KillWait": "2", "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"}


class Site:
    def __init__(self, cluster: Loopback) -> None:
        self.cluster, self.dir = cluster, cluster.dir
        self.cables = self.dir / "cables"
        for folder in (self.dir / "checks", self.cables):
            folder.mkdir()
        for name, text in CHECKS.items():
            (self.dir / f"checks/{name}.py").write_text(
                f"from hpcadmin.check import *\nREAD = {READ!r}\nCABLES = {str(self.cables)!r}\n{text}")
        (self.dir / "suite.toml").write_text("".join(f'[[entry]]\ncheck = "{c}"\n' for c in CHECKS))
        (self.dir / "criteria.toml").write_text(CRITERIA)
        (self.dir / "site.toml").write_text(
            f'[run]\nchecks_dir = "{self.dir}/checks"\n[slurm]\nmpi = "none"\n'
            + LIMIT.format("pair", "rate") + LIMIT.format("all", "sum"))
        self.inventory()

    def inventory(self, **serials: str) -> None:
        (self.dir / "inventory.json").write_text(json.dumps({"schema": 1, "nodes": [
            {"name": n, "serial": serials.get(n, f"S-{n}")} for n in self.cluster.nodes]}))

    def cable(self, name: str, value: object) -> None:
        (self.cables / name).write_text(f"{value}\n")

    def mended(self, *names: str) -> None:
        for name in names:
            (self.cables / name).unlink()

    def hpcadmin(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self.cluster.hpcadmin("--site", str(self.dir / "site.toml"), *words)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def validate(self, *words: str, status: int) -> Run:
        done = self.hpcadmin("validate", "--allow-root", "--inventory", str(self.dir / "inventory.json"), *words)
        assert done.returncode == status, done.stdout + done.stderr
        run = read_run(sorted((self.dir / "admin/runs").glob("2*"), key=lambda p: p.stat().st_mtime)[-1])
        assert not run.problems and run.manifest.exit_status == status
        return run

    def first(self, *, status: int) -> Run:
        return self.validate("--suite", str(self.dir / "suite.toml"), status=status)

    def handover(self, run: str, folder: Path, status: int) -> str:
        done = self.hpcadmin("report", "--run", run, "--handover", "--criteria", str(self.dir / "criteria.toml"),
                             "-o", str(folder))
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout.splitlines()[0] + "\n" + (folder / "index.html").read_text()

    def report(self, run: str, *words: str, status: int) -> str:
        done = self.hpcadmin("report", "--run", run, *words)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with loopback(tmp_path_factory.mktemp("accept") / "slurm", settings=SETTINGS) as running:
        yield Site(running)


@pytest.fixture(autouse=True)
def all_well(site: Site) -> None:
    for cable in site.cables.iterdir():
        cable.unlink()


def pairs(run: Run) -> set[tuple[str, ...]]:
    return {m.measurement.subject.nodes for m in run.measured if m.check == "pair"}


BAD = ("n01-n03", "n02-n03", "n03-n04")


def test_a_cable_is_mended_and_the_acceptance_is_updated(site: Site, tmp_path: Path) -> None:
    for name in BAD:
        site.cable(name, 20)
    site.cable("n01-n02", 97)
    first = site.first(status=1)
    assert len(pairs(first)) == 6
    name = first.path.name
    page = site.handover(name, tmp_path / "before", 1)
    assert page.startswith("NOT ACCEPTED") and "Measured again" not in page

    # The wrong cable: the node is as slow as before, and one that was good is bad now.
    site.mended("n01-n02")
    site.cable("n01-n02", 60)
    wrong = site.validate("--retest", "last", status=1)
    assert wrong.manifest.retest_of == name and {m.check for m in wrong.measured} == {"pair"}
    page = site.handover(wrong.path.name, tmp_path / "wrong", 1)
    assert page.startswith("NOT ACCEPTED") and "Measured again after repair" in page and wrong.path.name in page
    told = site.report("last", status=1)
    assert "0 are good now, 1 other is bad now" in " ".join(told.split()), told

    # The right ones.
    site.mended("n01-n02", *BAD)
    right = site.validate("--retest", "last", status=0)
    assert right.manifest.retest_of == wrong.path.name
    assert pairs(right) >= {tuple(pair.split("-")) for pair in (*BAD, "n01-n02")}
    assert {m.check for m in right.measured} == {"pair"}
    for named in (name, right.path.name, "last"):
        page = site.handover(named, tmp_path / f"right-{named}", 0)
        assert page.startswith("ACCEPTED"), page[:300]
    for words in ("Measured again after repair", "rate at 1 KiB 20 MB/s", "rate at 1 KiB 60 MB/s", right.path.name):
        assert words in page
    digests = [(p / "SHA256SUMS") for p in (first.path, wrong.path, right.path)]
    assert all(subprocess.run(["sha256sum", d], capture_output=True, text=True, check=True).stdout[:64] in page
               for d in digests)
    raw = tmp_path / "right-last/raw"
    assert list(raw.glob("jobs/*/*.log")) and list(raw.glob(f"{right.path.name}/jobs/*/*.log"))
    all_forms(site, name, right.path.name)
    again = site.hpcadmin("validate", "--allow-root", "--retest", name)
    assert again.returncode == 2 and "with its re-tests" in again.stderr


def all_forms(site: Site, first: str, last: str) -> None:
    """Both results are in each of them; a single run is shown by --alone."""
    rows = list(csv.DictReader(io.StringIO(site.report(first, "--format", "csv", status=0))))
    cable = [r for r in rows if r["nodes"] == "n01 n03" and r["kind"] == "measurement" and r["status"]]
    assert [(r["run"] == last, r["value"], r["status"], r["stands"], r["before"]) for r in cable] == [
        (True, "100.0", "PASS", "True", "FAIL"), (False, "20.0", "FAIL", "False", ""),
        (False, "20.0", "FAIL", "False", "")]
    assert [r["retest_of"] != "" for r in cable] == [True, False, True]
    plain = json.loads(site.report(last, "--json", status=0))
    assert plain["run"] == first and plain["acceptance"]["parts"][-1]["run"] == last
    assert {a["status"] for a in plain["acceptance"]["again"]} == {"PASS"}
    tree = ET.fromstring(site.report(first, "--format", "junit", status=0))  # noqa: S314  (our own)
    outs = [o.text or "" for o in tree.iter("system-out")]
    assert any("before: FAIL in" in o and "20 MB/s" in o for o in outs)
    prometheus = site.report(first, "--format", "prometheus", status=0)
    assert 'check="pair",before="FAIL",status="PASS"} 4.0' in prometheus
    assert "3: PASS" in site.report(first, "--format", "markdown", status=0)
    assert "FAILED" in site.report(first, "--alone", status=1)
    assert first not in site.report(last, "--alone", "--format", "csv", status=0).partition("\n")[2].partition(",")[0]
    refused = site.hpcadmin("report", "--run", last, "--alone", "--handover")
    assert refused.returncode == 2 and "is no acceptance" in refused.stderr
    listed = site.hpcadmin("runs", "list").stdout
    assert "repeats" in listed and first in listed
    shown = site.hpcadmin("runs", "show", first).stdout
    assert last in shown and "acceptance" in shown


def test_a_group_that_failed_is_measured_by_all_of_its_nodes(site: Site, tmp_path: Path) -> None:
    site.cable("all", "crash")
    first = site.first(status=3)
    part = site.validate("--retest", first.path.name, "-w", "n[01-03]", status=3)
    site.mended("all")
    small = site.validate("--retest", first.path.name, "-w", "n[01-03]", status=0)
    assert {len(t.subject.nodes) for t in small.plan.tests} == {3}  # type: ignore[union-attr]
    assert site.handover(part.path.name, tmp_path / "small", 3).startswith("NOT ACCEPTED")
    whole = site.validate("--retest", first.path.name, status=0)
    assert {t.subject.nodes for t in whole.plan.tests} >= {tuple(site.cluster.nodes)}  # type: ignore[union-attr]
    assert {t.check for t in whole.plan.tests} == {"all"}  # type: ignore[union-attr]
    assert site.handover(part.path.name, tmp_path / "whole", 0).startswith("ACCEPTED")


def test_a_node_that_was_replaced_is_measured_as_a_whole(site: Site, tmp_path: Path) -> None:
    site.cable("n01-n03", 20)
    first = site.first(status=1)
    site.mended("n01-n03")
    site.inventory(n03="NEW-77")
    try:
        second = site.validate("--retest", first.path.name, status=0)
        page = site.handover(first.path.name, tmp_path / "half", 3)
        assert page.startswith("NOT ACCEPTED") and "NEW-77" in page and "S-n03" in page
        site.validate("--retest", second.path.name, status=0)
    finally:
        site.inventory()
    page = site.handover(first.path.name, tmp_path / "whole", 0)
    assert page.startswith("ACCEPTED") and "What was replaced between the runs" in page
