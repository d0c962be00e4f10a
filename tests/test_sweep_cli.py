"""hpcadmin sweep on the command line, with a stand-in for Slurm's commands that keeps its nodes in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcadmin.cli import run
from hpcadmin.cli._sweep_text import lines_of, print_report
from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.slurm.client import NoAnswerError
from hpcadmin.slurm.node_control import NodeControl
from hpcadmin.sweep.budget import Budget
from hpcadmin.sweep.decide import Plan
from hpcadmin.sweep.model import Act, Change, Decision, Problem
from hpcadmin.sweep.night import Report

SCONTROL = """\
#!{python}
import json, sys
from pathlib import Path
here = Path({folder!r})
args = sys.argv[1:]
with (here / "asked").open("a") as file:
    file.write(json.dumps(args) + "\\n")
fate = (here / "fate").read_text() if (here / "fate").exists() else ""
if fate == "no answer":
    sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
nodes = json.loads((here / "nodes").read_text())
if "--json" in args and fate == "no json":
    sys.exit("scontrol: error: unable to load JSON serializer plugin")
if args[0] == "update":
    what = dict(word.split("=", 1) for word in args[1:])
    if fate == "refused":
        sys.exit("slurm_update error: Access/permission denied")
    node = nodes[what["nodename"]]
    if what.get("state") == "drain":
        node.update(state=["IDLE", "DRAIN"], reason=what["reason"])
    elif what.get("state") == "undrain":
        node.update(state=["IDLE"], reason="")
    node["comment"] = what.get("comment", node["comment"])
    (here / "nodes").write_text(json.dumps(nodes))
else:
    chosen = [nodes[args[-1]]] if args[-1] in nodes else list(nodes.values())
    if args[-2] == "node" and args[-1] not in nodes:
        sys.exit(print(f"Node {{args[-1]}} not found") or 1)
    if "--json" in args:
        print(json.dumps({{"nodes": chosen}}))
    for node in [] if "--json" in args else chosen:
        reason = f" Reason={{node['reason']}} [root@2027-01-01T00:00:00]" if node["reason"] else ""
        print(f"NodeName={{node['name']}} Arch=x86_64 State={{'+'.join(node['state'])}} BootTime=None{{reason}}")
"""


class Stand:
    """The stand-in, the site's file and the folder of results."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "24.11.5") -> None:
        self.folder = folder
        for name, text in (("scontrol", SCONTROL.format(python=sys.executable, folder=str(folder))),
                           ("sinfo", f"#!/bin/sh\necho slurm {version}\n")):
            path = folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.nodes({"n1": ["IDLE"], "n2": ["IDLE", "DRAIN"]})
        (folder / "health").mkdir()
        (folder / "site.toml").write_text(f'[sweep]\nhealth_dir = "{folder}/health"\n')
        monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
        monkeypatch.setenv("HPCADMIN_DIR", str(folder / "admin"))
        monkeypatch.delenv("SLURM_CONF", raising=False)

    def nodes(self, states: dict[str, list[str]]) -> None:
        (self.folder / "nodes").write_text(json.dumps({
            name: {"name": name, "state": state, "reason": "Anna" if "DRAIN" in state else "", "comment": ""}
            for name, state in states.items()}))

    def health(self, **said: str) -> None:
        for node, why in said.items():
            (self.folder / "health" / f"{node}.json").write_text(json.dumps({
                "node": node, "time": time.time(), "boot": "b", "results": [
                    {"check": "mount", "status": "bad" if why else "good", "reason": why, "hardware": False}]}))

    def fate(self, what: str) -> None:
        (self.folder / "fate").write_text(what)

    def run(self, *argv: str) -> int:
        return run(["--site", str(self.folder / "site.toml"), "sweep", *argv])

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(tmp_path, monkeypatch)


@pytest.mark.deep
def test_a_night_and_the_next(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand.health(n1="gone", n2="")
    assert stand.run("--dry-run") == 1
    dry = capsys.readouterr().out
    assert "n1: would drain: mount: gone\n" in dry and "dry run: 2 nodes, 1 drain, 2 looks\n" in dry
    assert all(words[0] != "update" for words in stand.asked)
    assert stand.run() == 1
    out = capsys.readouterr().out
    assert "n1: drained: mount: gone\n" in out
    assert "problem begins: n1: drained: mount: gone\n" in out
    name = out.splitlines()[-1].partition(":")[0]
    update = next(words for words in stand.asked if words[0] == "update")
    assert update == ["update", "nodename=n1", "state=drain", f"reason=hpcadmin: mount: gone [{name}]"]
    stand.health(n1="", n2="")
    assert stand.run("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(d["node"], d["act"], d["result"]) for d in report["decisions"]] == [("n1", "resume", "done"),
                                                                                ("n2", "none", "")]
    assert stand.run("undo", "last") == 0
    assert "n1: drained: resumed after mount" in capsys.readouterr().out
    assert stand.run("list") == 0
    listed = capsys.readouterr().out
    assert name in listed and "n1: drained by s" in listed
    assert stand.run("show", name) == 0
    assert "outcome n1 drain done" in capsys.readouterr().out


def test_no_answer(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand.health(n1="gone")
    stand.fate("no answer")
    assert stand.run() == 4
    assert "the Slurm controller does not answer" in capsys.readouterr().out
    assert stand.run("undo", "last") == 2
    assert "no sweep has done anything yet" in capsys.readouterr().err


def test_not_an_operator(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    stand.health(n1="gone")
    stand.fate("refused")
    assert stand.run() == 4
    assert "n1: drain refused (scontrol: this user may not change nodes: " in capsys.readouterr().out


def test_without_results_it_is_not_known(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    (stand.folder / "site.toml").write_text("")
    assert stand.run() == 3
    assert "no results were looked at" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "message"), [
    (["--dry-run", "list"], "options of the sweep itself stand before list"),
    (["--health", "/nowhere"], "not a folder"),
    (["--results", "nothing"], "nothing"), (["undo"], "Missing argument"), (["show", "x"], "there is no sweep"),
    (["stop"], "No such command"),
])
def test_what_cannot_be_asked(stand: Stand, capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert stand.run(*argv) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_none_is_told_with_its_line_and_by_the_alarms(stand: Stand,
                                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody reads the exit status of a night."""
    mail = stand.folder / "sendmail"
    mail.write_text(f"#!/bin/sh\ncat >>{stand.folder}/mails\n")
    mail.chmod(0o755)
    site = stand.folder / "site.toml"
    site.write_text(f'[sweep]\nresume = true\nhealth_dir = "{stand.folder}/gone"\n[sweep.alarms.mail]\n'
                    f'to = ["root"]\nsendmail = "{mail}"\n')
    said = f"{site}:3: sweep.health_dir: {stand.folder}/gone is not a folder"
    assert stand.run("--dry-run") == 2
    assert said in capsys.readouterr().err and not (stand.folder / "mails").exists()
    assert stand.run() == 2
    assert said in capsys.readouterr().err
    assert "sweep could not begin" in (stand.folder / "mails").read_text()
    assert not (stand.folder / "asked").exists()
    assert stand.run("--health", "/nowhere") == 2
    assert "--health: /nowhere is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("dry", [True, False])
def test_a_suite_that_there_is_not_is_told_with_its_line(stand: Stand, capsys: pytest.CaptureFixture[str],
                                                         dry: bool) -> None:
    site = stand.folder / "site.toml"
    site.write_text(f'[sweep]\nhealth_dir = "{stand.folder}/health"\nsuite = "nihgtly"\n')
    stand.health(n1="", n2="")
    assert stand.run(*(["--dry-run"] if dry else [])) == 3
    out = capsys.readouterr().out
    assert f"problem begins: suite nihgtly was not run: {site}:3: sweep.suite: unknown suite 'nihgtly'" in out


def test_an_empty_ledger_is_listed(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert stand.run("list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sweeps": [], "drained": []}


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_scontrol_is_asked_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    stand = Stand(tmp_path, monkeypatch, version)
    control = NodeControl()
    nodes = {record.name: record for record in control.all_nodes()}
    assert nodes["n2"].state.flags == {"DRAIN"}
    assert nodes["n2"].reason == "Anna"
    assert ("--json" in stand.asked[0]) is (version == "24.11.5")
    control.drain("n1", "a b; rm -rf / $(id) `id`")
    assert stand.asked[-1] == ["update", "nodename=n1", "state=drain", "reason=a b; rm -rf / $(id) `id`"]
    assert control.one_node("n9") is None
    for name in ("n[1-2]", "n1,n2", "ALL ", "-x", "", "n1 state=down", "n1\nx"):
        with pytest.raises(UsageError):
            control.undrain(name)


def test_a_scontrol_that_was_built_without_json(stand: Stand) -> None:
    stand.fate("no json")
    control = NodeControl()
    assert [record.name for record in control.all_nodes()] == ["n1", "n2"]
    control.one_node("n1")
    assert "--json" not in stand.asked[-1]
    stand.fate("no answer")
    with pytest.raises(NoAnswerError):
        control.one_node("n1")
    assert issubclass(NoAnswerError, SlurmError)


def test_nodes_of_which_the_same_is_said_are_one_line() -> None:
    report = Report(run="s1", night=0, dry_run=False, exit_status=3)
    decisions = [Decision(f"n{i}", Act.NONE, "not known: mce" if i != 3 else "") for i in range(1, 6)]
    assert lines_of([*decisions, Decision("n9", Act.HOLD, "it is reserved")], report) == [
        "n[1-2,4-5]: not known: mce", "n9: left alone: it is reserved"]


def test_what_lasts_is_said_where_no_other_line_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The second night of a suite that does not run ends with 3, and nothing has changed."""
    suite = Problem("suite", "not run", "suite nightly was not run: root may not")
    node = Problem("node/n1", "drained mount", "n1: drained: mount: gone", "n1")
    new = Problem("missed", "x", "no sweep on 1 night: 2026-11-30")
    plan = Plan((Decision("n1", Act.KEEP, "drained by us"),), Budget())
    print_report(Report(run="s1", night=0, dry_run=False, exit_status=3, plan=plan, changes=(Change("begins", new),),
                        problems={p.key: p for p in (suite, node, new)}), False)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["n1: stays drained: drained by us", "problem begins: no sweep on 1 night: 2026-11-30",
                     "problem lasts: suite nightly was not run: root may not", "s1: 1 node, 1 keep, 0 looks"]


@pytest.mark.deep
@pytest.mark.parametrize("left", [0, 1, 2, 3, 6])
def test_a_full_disk(stand: Stand, capfd: pytest.CaptureFixture[str], left: int) -> None:
    """Wherever it fills: nothing is asked of Slurm that is not in the ledger before. left: blocks."""
    place = stand.folder / "admin"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", str(place)], check=False,
                      capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (place / "sweep").mkdir(mode=0o700)
        room = os.statvfs(place)
        (place / "filler").write_bytes(b"x" * (room.f_bavail - left) * room.f_frsize)
        stand.nodes({f"n{i:03d}": ["IDLE"] for i in range(1, 101)})
        stand.health(**{f"n{i:03d}": "gone " * 60 for i in range(1, 5)}, **{f"n{i:03d}": "" for i in range(5, 101)})
        status = stand.run()
        err = capfd.readouterr().err
        asked = [words[1].removeprefix("nodename=") for words in stand.asked if words[0] == "update"
                 ] if (stand.folder / "asked").exists() else []
        ledger = (place / "sweep/ledger.jsonl").read_text() if (place / "sweep/ledger.jsonl").exists() else ""
        entries = [json.loads(line) for line in ledger.splitlines() if line.endswith("}")]
        assert set(asked) <= {entry["node"] for entry in entries if entry["kind"] == "intent"}
        assert "Traceback" not in err
        if entries[-1:] and entries[-1]["kind"] == "end":
            assert status == 1
        else:
            assert status == 2 and "No space left on device" in err and str(place) in err
        if not left:
            assert asked == [] and status == 2
        (place / "filler").unlink()
        assert stand.run() == 1                         # there is room again: it is made good, and nothing twice
        asked = [words[1] for words in stand.asked if words[0] == "update"]
        assert sorted(asked) == [f"nodename=n{i:03d}" for i in range(1, 5)]
    finally:
        subprocess.run(["umount", str(place)], check=True)
