"""The sweep on a real Slurm: drains, leaves others' alone, resumes after a pass, is killed, undoes, and does nothing
when it should not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, loopback, wait_until
from sweep_week import NAMES, POLICY, nine_nights

from hpcadmin.errors import HpcadminError, UsageError
from hpcadmin.slurm.node_control import NodeControl
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.ledger_file import read_ledger

pytestmark = pytest.mark.lab

COUNT = len(NAMES)
SITE = """\
[sweep]
night_nodes = 2
night_percent = 100
total_nodes = 4
total_percent = 100
again = 50
answer_s = 10.0
"""


@dataclass
class Ward:
    """The cluster, and what its nodes' health is said to be."""

    cluster: Loopback
    folder: Path
    said: dict[str, str] = field(default_factory=dict)

    def sick(self, **nodes: str) -> None:
        """What the check mount:home says on each node, "" for good; those that are not named stay as they are."""
        self.said.update(nodes)
        now = time.time()
        for node in self.cluster.nodes:
            why = self.said.get(node, "")
            (self.folder / "health").mkdir(exist_ok=True)
            (self.folder / "health" / f"{node}.json").write_text(json.dumps({
                "node": node, "time": now, "boot": "one", "results": [
                    {"check": "mount:home", "status": "bad" if why else "good", "reason": why, "facts": [],
                     "hardware": False}]}))

    def sweep(self, *argv: str, status: int | None = None) -> dict[str, Any]:
        done = self.cluster.hpcadmin("--site", str(self.folder / "site.toml"), "sweep", *argv, "--json")
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)      # type: ignore[no-any-return]

    def acts(self, report: dict[str, Any]) -> dict[str, tuple[str, str]]:
        return {d["node"]: (d["act"], d["result"]) for d in report["decisions"] if d["act"] != "none"}

    def node(self, name: str) -> str:
        return self.cluster.slurm("scontrol", "-o", "show", "node", name)

    def by(self, name: str) -> str:
        """Whom Slurm names behind its reason."""
        return self.node(name).partition(" Reason=")[2].rpartition(" [")[2].partition("@")[0]

    def drained(self) -> dict[str, str]:
        """node -> reason of those that are drained."""
        lines = self.cluster.slurm("sinfo", "-N", "-h", "-p", "val", "-t", "drain", "-o", "%N|%E").splitlines()
        return dict(line.split("|", 1) for line in lines)

    def admin(self, *words: str) -> None:
        subprocess.run(["scontrol", *words], env=self.cluster.env, check=True, timeout=120)

    def tidy(self) -> None:
        """All nodes idle and unsaid, as at the beginning."""
        self.said.clear()
        for node in self.drained():
            self.admin("update", f"nodename={node}", "state=undrain")
        (self.cluster.dir / "admin/sweep/ledger.jsonl").unlink(missing_ok=True)
        self.settle(*self.cluster.nodes)

    def settle(self, *nodes: str) -> None:
        """A node that was resumed registers anew; until then slurmctld calls it not responding."""
        wait_until(lambda: all("State=IDLE " in self.node(node) for node in nodes))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "site.toml").write_text(f'{SITE}health_dir = "{folder}/health"\n')
    settings = {"SlurmdTimeout": "300"}
    with loopback(folder / "slurm", COUNT, settings=settings) as cluster:
        if cluster.version() == (24, 11):       # it leaves the reason of a node that is resumed
            with (folder / "site.toml").open("a") as file:
                file.write("left_reasons = true\n")
        yield Ward(cluster, folder)


@pytest.fixture
def ward(running: Ward) -> Iterator[Ward]:
    yield running
    running.tidy()


def test_drain_keep_and_resume_after_a_pass(ward: Ward) -> None:
    ward.sick(n01="/home is not mounted; n[02-04] `reboot` \"x\"\nState=DOWN")
    before = ward.cluster.slurm("scontrol", "-o", "show", "node", "n02,n03")
    dry = ward.sweep("--dry-run", status=1)
    assert ward.acts(dry) == {"n01": ("drain", "")}
    assert ward.drained() == {}
    assert not (ward.cluster.dir / "admin/sweep/ledger.jsonl").exists()
    real = ward.sweep(status=1)
    assert ward.acts(real) == {"n01": ("drain", "done")}
    reason = ward.drained()["n01"]
    assert reason == f"hpcadmin: mount:home: /home is not mounted n 02-04 reboot x State DOWN [{real['run']}]"
    assert set(ward.drained()) == {"n01"}
    assert _state(before) == _state(ward.cluster.slurm("scontrol", "-o", "show", "node", "n02,n03"))
    ward.sick()
    assert ward.acts(ward.sweep(status=1)) == {"n01": ("keep", "")}
    ward.sick(n01="")
    assert ward.acts(ward.sweep(status=0)) == {"n01": ("resume", "done")}
    assert ward.drained() == {}
    ward.settle("n01")
    ward.sick()
    assert ward.acts(ward.sweep(status=0)) == {}
    ward.sick(n01="gone again")
    assert ward.acts(ward.sweep(status=1)) == {"n01": ("drain", "done")}


def _state(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith(("NodeName=", "State=", "Reason="))]


def test_what_others_did_is_left_alone(ward: Ward) -> None:
    ward.admin("update", "nodename=n02", "state=drain", "reason=Anna: new board")
    ward.admin("create", "reservation", "reservationname=work", "starttime=now", "duration=5", "users=root",
               "nodes=n03", "flags=maint")
    try:
        wait_until(lambda: "MAINT" in ward.node("n03"))
        ward.sick(n02="bad", n03="bad")
        assert {n: a for n, (a, _) in ward.acts(ward.sweep(status=0)).items()} == {"n02": "hold", "n03": "hold"}
        assert ward.drained() == {"n02": "Anna: new board"}
    finally:
        ward.admin("delete", "reservation=work")
    wait_until(lambda: "MAINT" not in ward.node("n03"))


def test_an_admin_takes_over_a_drain_of_ours(ward: Ward) -> None:
    ward.sick(n01="bad")
    ward.sweep(status=1)
    ward.admin("update", "nodename=n01", "reason=Anna: waiting for a part")
    ward.sick(n01="")
    assert ward.acts(ward.sweep(status=0)) == {}
    assert ward.drained() == {"n01": "Anna: waiting for a part"}


def test_an_admin_says_our_very_words(ward: Ward) -> None:
    """Whom Slurm names behind a reason is in the ledger, and what was said after a resume is not taken for ours."""
    ward.sick(n01="bad")
    ward.sweep(status=1)
    reason = ward.drained()["n01"]
    history = fold(read_ledger(ward.cluster.dir / "admin/sweep"))
    assert history.ours["n01"].by == ward.by("n01") != ""
    ward.sick(n01="")
    assert ward.acts(ward.sweep(status=0)) == {"n01": ("resume", "done")}
    ward.settle("n01")
    # Hours later, as far as the ledger knows: that slurmctld's clock is a minute ahead would explain it sooner.
    ledger = ward.cluster.dir / "admin/sweep/ledger.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    for line in lines:
        line["time"] -= 7200
    ledger.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ward.admin("update", "nodename=n01", "state=drain", f"reason={reason}")
    report = ward.sweep(status=0)
    assert ward.acts(report) == {}
    assert ward.drained() == {"n01": reason}
    assert any("n01: drained with a reason like ours" in note for note in report["notes"])


def test_jobs_run_on_until_their_end(ward: Ward) -> None:
    ward.cluster.slurm("sbatch", "-w", "n04", "-o", "/dev/null", "--wrap", "sleep 300")
    wait_until(lambda: "State=MIXED" in ward.node("n04"))
    ward.sick(n04="bad")
    assert ward.acts(ward.sweep(status=1)) == {"n04": ("drain", "done")}
    ward.sick(n04="")
    assert ward.acts(ward.sweep(status=1)) == {"n04": ("keep", "")}
    assert "RUNNING" in "".join(ward.cluster.queue())
    ward.cluster.slurm("scancel", "--user=root", "--full")
    wait_until(lambda: "State=IDLE+DRAIN " in ward.node("n04"))
    ward.sick()
    assert ward.acts(ward.sweep(status=0)) == {"n04": ("resume", "done")}


def test_a_node_that_is_not_there(ward: Ward) -> None:
    control = NodeControl(ward.cluster.env)
    assert control.one_node("n99") is None
    with pytest.raises(HpcadminError, match=r"[Ii]nvalid node"):
        control.drain("n99", "hpcadmin: x [s1]")
    with pytest.raises(UsageError):
        control.drain("n[01-02]", "hpcadmin: x [s1]")
    assert [record.name for record in control.all_nodes()] == ward.cluster.nodes


def test_undo(ward: Ward) -> None:
    ward.sick(n01="bad", n02="bad")
    run = ward.sweep(status=1)["run"]
    ward.admin("update", "nodename=n02", "reason=mine")
    assert ward.acts(ward.sweep("undo", run, "--dry-run")) == {"n01": ("resume", ""), "n02": ("hold", "")}
    assert ward.acts(ward.sweep("undo", run, status=1)) == {"n01": ("resume", "done"), "n02": ("hold", "")}
    assert ward.drained() == {"n02": "mine"}
    ward.settle("n01")
    ward.sick()
    assert ward.acts(ward.sweep(status=1))["n01"][0] == "tell"
    told = ward.cluster.hpcadmin("sweep", "list").stdout
    assert run in told and "undo" in told
    assert "intent n01 drain" in ward.cluster.hpcadmin("sweep", "show", run).stdout


def test_most_nodes_fail(ward: Ward) -> None:
    ward.sick(n01="bad", n02="bad", n03="bad", n04="bad")
    report = ward.sweep(status=1)
    assert {act for act, _ in ward.acts(report).values()} == {"hold"}
    assert report["budget"]["mass"]
    assert "budget" in {change["key"] for change in report["changes"]}
    assert ward.drained() == {}


KILLED = """
import os, sys
from pathlib import Path
from hpcadmin.slurm.node_control import NodeControl
from hpcadmin.site import load_site
from hpcadmin.sweep.night import sweep, sweep_dir
from hpcadmin.sweep.sources import HealthFolder
def door(self, *words):
    if when == "after":
        asked(self, *words)
    os.kill(os.getpid(), 9)
file, act, when = sys.argv[1:]
asked = getattr(NodeControl, act)
setattr(NodeControl, act, door)
site = load_site(file)
sweep(sweep_dir(site), site.sweep, NodeControl(), [HealthFolder(Path(site.sweep.health_dir), 1)])
"""


def killed(ward: Ward, act: str, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(ward.folder / "site.toml"), act, when],
                          env=ward.cluster.env, check=False, timeout=120)
    assert done.returncode == -9


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_intent_and_outcome(ward: Ward, when: str) -> None:
    ward.sick(n01="bad")
    killed(ward, "drain", when)
    assert set(ward.drained()) == ({"n01"} if when == "after" else set())
    ledger = ward.cluster.dir / "admin/sweep"
    assert len(fold(read_ledger(ledger)).pending) == 1
    report = ward.sweep(status=1)
    assert ward.acts(report) == {"n01": ("keep", "") if when == "after" else ("drain", "done")}
    assert any("killed" in note for note in report["notes"])
    history = fold(read_ledger(ledger))
    assert (history.pending, set(history.ours)) == ({}, {"n01"})
    assert list(ward.drained().values()) == [history.ours["n01"].intent.reason]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_a_node_is_brought_back(ward: Ward, when: str) -> None:
    """Only what is as the ledger says is resumed, and nothing twice; then it is nobody's, and stays in service."""
    ward.sick(n01="bad")
    ward.sweep(status=1)
    ward.sick(n01="")
    killed(ward, "undrain", when)
    assert set(ward.drained()) == ({"n01"} if when == "before" else set())
    ward.settle(*([] if when == "before" else ["n01"]))
    report = ward.sweep(status=0)
    assert ward.acts(report) == ({"n01": ("resume", "done")} if when == "before" else {})
    history = fold(read_ledger(ward.cluster.dir / "admin/sweep"))
    assert (history.pending, history.ours, ward.drained()) == ({}, {}, {})
    assert [(c["what"], c["key"]) for c in report["changes"]] == [("ends", "node/n01")]


@dataclass
class RealPlace:
    """For the nine nights."""

    ward: Ward
    door: NodeControl

    def admin_drains(self, node: str, reason: str) -> None:
        self.ward.admin("update", f"nodename={node}", "state=drain", f"reason={reason}")

    def admin_resumes(self, node: str) -> None:
        self.ward.admin("update", f"nodename={node}", "state=resume")

    def slurmctld(self, *, up: bool) -> None:
        if up:
            self.ward.cluster.start("slurmctld", "slurmctld", "-D")
            self.settle()
        else:
            stop_slurmctld(self.ward.cluster)

    def settle(self) -> None:
        cluster = self.ward.cluster
        wait_until(lambda: "slurmctld" not in cluster.processes or (
            len(found := self.ward.node(",".join(NAMES)).splitlines()) == COUNT
            and not any("NOT_RESPONDING" in line or "UNKNOWN" in line for line in found)))

    def drained(self) -> dict[str, str]:
        return self.ward.drained()


def test_nine_nights(ward: Ward, tmp_path: Path) -> None:
    policy = replace(POLICY, left_reasons=ward.cluster.version() == (24, 11))
    nine_nights(RealPlace(ward, NodeControl(ward.cluster.env)), tmp_path, time.time(), policy)


def stop_slurmctld(cluster: Loopback) -> None:
    """With its state saved."""
    cluster.slurm("scontrol", "shutdown", "slurmctld")
    cluster.processes.pop("slurmctld").wait(60)


def test_slurmctld_is_away(ward: Ward) -> None:
    ward.sick(n01="bad")
    stop_slurmctld(ward.cluster)
    try:
        report = ward.sweep(status=4)
        assert (report["decisions"], [c["key"] for c in report["changes"]]) == ([], ["slurm"])
        assert "does not answer" in report["error"]
    finally:
        ward.cluster.start("slurmctld", "slurmctld", "-D")
        ward.settle(*ward.cluster.nodes)
    report = ward.sweep(status=1)
    assert ("ends", "slurm") in {(c["what"], c["key"]) for c in report["changes"]}
    assert set(ward.drained()) == {"n01"}
