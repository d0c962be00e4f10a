"""Ways to a node's health: a folder that hangs, ssh, a job on idle nodes; one after the other; else unknown."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hpcadmin.children import module_argv
from hpcadmin.errors import UsageError
from hpcadmin.remote.base import CommandResult
from hpcadmin.slurm.client import Partition, SlurmNode
from hpcadmin.slurm.states import node_state
from hpcadmin.sweep import folder_child
from hpcadmin.sweep.model import Result
from hpcadmin.sweep.sources import HealthFolder, InTurn, Looks
from hpcadmin.sweep.ways import DRAINED, SlurmHealth, SshHealth, Wish, json_of

NOW = 1_800_000_000.0


def told(node: str, status: str = "good", when: float = NOW) -> str:
    return json.dumps({"node": node, "time": when, "boot": "b", "results": [
        {"check": "swap", "status": status, "reason": "", "facts": [], "hardware": False}]}, indent=1)


@dataclass
class Hosts:
    """A remote that answers what it was given for each host."""

    answers: dict[str, CommandResult]
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = 0) -> CommandResult:
        self.asked.append(tuple(argv))
        return replace(self.answers[host], host=host)


def result(text: str, status: int | None = 0, error: str = "") -> CommandResult:
    return CommandResult("", text.encode(), status, error)


def ssh(hosts: Hosts, *command: str) -> SshHealth:
    return SshHealth(lambda: hosts, command or ("hpcadmin-health", "--json", "-"), 4, 5, 1, clock=lambda: NOW)


# --- ssh ------------------------------------------------------------------------------------------------------------

def test_over_ssh_each_tells_of_itself() -> None:
    hosts = Hosts({"n1": result(f"Welcome to n1!\n{told('n1')}\nbye"), "n2": result(told("n2", "bad"), 1),
                   "n3": result("", None, "its host key is not known"),
                   "n4": result("sh: hpcadmin-health: not found", 127),
                   "n5": result(told("n6")), "n6": result(told("n6", when=NOW - 7200)), "n7": result("{", 0),
                   "n8": result("", 0)})
    found = ssh(hosts).looks(list(hosts.answers), NOW)
    assert {look.node: look.result for look in found.looks} == {"n1": Result.GOOD, "n2": Result.BAD}
    assert found.unmeasured == {
        "n3": "ssh: its host key is not known",
        "n4": "ssh: hpcadmin-health ended with 127: sh: hpcadmin-health: not found",
        "n5": "ssh: result is of 'n6'", "n6": "ssh: result is 2 hours old",
        "n7": "ssh: it says no result: {", "n8": "ssh: result is empty"}


def test_the_name_stands_for_node() -> None:
    hosts = Hosts({"n1": result(told("n1"))})
    ssh(hosts, "health", "--node", "{node}").looks(["n1"], NOW)
    assert hosts.asked == [("health", "--node", "n1")]


def test_ssh_that_cannot_begin_is_unknown() -> None:
    def no() -> Hosts:
        raise UsageError("ssh_config: cannot be read")
    found = SshHealth(no, ("x",), 4, 5, 1).looks(["n1"], NOW)
    assert found.unmeasured == {"n1": "ssh: ssh_config: cannot be read"}


# --- Slurm ----------------------------------------------------------------------------------------------------------

@dataclass
class Slurm:
    """nodes: as each query finds them."""

    states: list[dict[str, str]]

    def nodes(self) -> tuple[SlurmNode, ...]:
        now = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return tuple(SlurmNode(name, node_state(state), partitions=("p",)) for name, state in now.items())

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition("p", "UP", default=True),)


@dataclass
class Srun:
    """What srun says, in turn; with the nodes that it was asked for."""

    said: list[CommandResult]
    asked: list[list[str]] = field(default_factory=list)

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = 0) -> CommandResult:
        self.asked.append(list(argv))
        return self.said.pop(0) if argv[0] == "srun" else result("")


def labelled(*nodes: str) -> str:
    """As srun --label prints it, the lines of all tasks mixed."""
    texts = [f"hpcadmin-node {node}\n{told(node)}".splitlines() for node in nodes]
    return "\n".join(f"{task}: {lines[at]}" for at in range(max(map(len, texts))) for task, lines in enumerate(texts)
                     if at < len(lines))


def slurm(states: list[dict[str, str]], said: list[CommandResult]) -> tuple[SlurmHealth, Srun]:
    srun = Srun(said)
    return SlurmHealth(Slurm(states), srun, ("health",), Wish(qos="low", nice=7), 5, 1,     # type: ignore[arg-type]
                       clock=lambda: NOW), srun


IDLE = {"n1": "IDLE", "n2": "IDLE", "n3": "MIXED", "n4": "IDLE+DRAIN", "n5": "IDLE+PLANNED"}


def test_one_job_on_all_idle_nodes() -> None:
    source, srun = slurm([IDLE], [result(labelled("n1", "n2"))])
    found = source.looks([*IDLE], NOW)
    assert {look.node for look in found.looks} == {"n1", "n2"}
    assert found.unmeasured == {**dict.fromkeys(["n3", "n5"], "Slurm: not idle"), "n4": DRAINED}
    assert len(srun.asked) == 1
    assert {"--nodelist=n[1-2]", "--nodes=2", "--immediate=10", "--nice=7", "--qos=low", "--time=1"} <= set(
        srun.asked[0])


def test_a_node_that_becomes_busy_is_left_and_the_others_asked_again() -> None:
    source, srun = slurm([IDLE, {**IDLE, "n1": "ALLOCATED"}],
                         [result("srun: error: Unable to allocate resources: Requested nodes are busy", 1),
                          result(labelled("n2"))])
    found = source.looks(["n1", "n2"], NOW)
    assert {look.node for look in found.looks} == {"n2"}
    assert "Requested nodes are busy" in found.unmeasured["n1"]
    assert [word for argv in srun.asked for word in argv if word.startswith("--nodelist")] == [
        "--nodelist=n[1-2]", "--nodelist=n2"]


def test_a_node_on_which_nothing_starts_does_not_cost_the_others() -> None:
    failed = "srun: error: Task launch for StepId=4.0 failed on node n1: Socket timed out\nsrun: error: aborted"
    source, _ = slurm([IDLE], [result(failed, 1), result(labelled("n2"))])
    found = source.looks(["n1", "n2"], NOW)
    assert {look.node for look in found.looks} == {"n2"}
    assert "failed on node n1" in found.unmeasured["n1"]


def test_a_job_that_hangs_is_cancelled_and_what_it_said_counts() -> None:
    source, srun = slurm([IDLE], [CommandResult("", labelled("n2").encode(), None, "did not end within 5 s", True)])
    found = source.looks(["n1", "n2"], NOW)
    assert {look.node for look in found.looks} == {"n2"}
    assert found.unmeasured == {"n1": "Slurm: did not end within 5 s"}
    assert srun.asked[1][0] == "scancel"


def test_nobody_speaks_for_another() -> None:
    source, _ = slurm([IDLE], [result(labelled("n2", "n2", "n3"))] * 3)
    found = source.looks(["n1", "n2", "n3"], NOW)
    assert (found.looks, set(found.unmeasured)) == ((), {"n1", "n2", "n3"})


def test_it_tries_three_times() -> None:
    source, srun = slurm([IDLE], [result("srun: error: Job submit/allocate failed", 1)] * 9)
    found = source.looks(["n1"], NOW)
    assert (len(srun.asked), found.looks) == (3, ())
    assert "submit/allocate failed" in found.unmeasured["n1"]


@pytest.mark.parametrize(("text", "tree"), [("", ""), ("x", ""), ("}{", ""), ("a{b}c", "{b}"), ("{a", "")])
def test_the_json_in_what_was_printed(text: str, tree: str) -> None:
    assert json_of(text) == tree


# --- one after the other --------------------------------------------------------------------------------------------

@dataclass
class Way:
    """Tells of some."""

    of: set[str]
    asked: list[str] = field(default_factory=list)

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        self.asked = list(nodes)
        return Looks(unmeasured={node: f"not in {sorted(self.of)}" for node in nodes if node not in self.of})


def test_each_way_is_asked_for_what_is_left() -> None:
    one, two, three = Way({"a"}), Way({"b"}), Way({"c"})
    found = InTurn((one, two)).looks(["a", "b", "c"], NOW)
    assert (one.asked, two.asked) == (["a", "b", "c"], ["b", "c"])
    assert found.unmeasured == {"c": "not in ['a']; not in ['b']"}
    InTurn((Way({"a"}), three)).looks(["a"], NOW)
    assert three.asked == []


# --- a folder that hangs --------------------------------------------------------------------------------------------

def hanging(folder: Path) -> Callable[[], Path]:
    """In the place of python: reads the first file, and stands at the next as on a dead server."""
    program = folder / "python"
    program.write_text("#!/bin/sh\nhead -n 1 >/dev/null\n"
                       f"""printf '%s\\n' '{json.dumps({"node": "n1", "text": told("n1")})}'\nexec sleep 60\n""")
    program.chmod(0o755)
    return lambda: program


def test_a_folder_that_hangs_costs_its_time_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(hanging(tmp_path)()))
    begun = time.monotonic()
    found = HealthFolder(tmp_path, 1, 0.3).looks(["n1", "n2"], NOW)
    assert time.monotonic() - begun < 5
    assert [look.node for look in found.looks] == ["n1"]
    assert found.unmeasured == {"n2": f"{tmp_path} does not answer within 0.3 s"}
    assert HealthFolder(tmp_path, 1, 0.1).missing() == ""       # it is a folder, as far as is known


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    source = HealthFolder(tmp_path / "nothing", 1)
    assert source.missing() == f"{tmp_path / 'nothing'} is not a folder"
    assert source.looks(["n1"], NOW).unmeasured == {"n1": f"{tmp_path / 'nothing'} is not a folder"}


def test_a_folder_that_cannot_be_looked_into_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    """As of a server that was installed anew (ESTALE)."""
    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    (tmp_path / "n1.json").write_text(told("n1"))
    monkeypatch.setattr(folder_child.sys, "argv", ["x", str(tmp_path), "1000"])
    monkeypatch.setattr(folder_child.os, "scandir", stale)
    folder_child.main()
    assert json.loads(capsys.readouterr().out) == {"folder": "cannot be read: Stale file handle"}
    monkeypatch.setattr(Path, "lstat", stale)
    assert folder_child.read_one(tmp_path / "n1.json", 1000) == {"why": "cannot be read: Stale file handle"}


def test_what_lies_in_the_working_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types `hpcadmin sweep` in a folder that others may write to; root's home, which has a folder hpcadmin."""
    there = tmp_path / "there"
    (there / "hpcadmin" / "sweep").mkdir(parents=True)
    for name in ("json.py", "os.py", "runpy.py", "hpcadmin/__init__.py", "hpcadmin/sweep/__init__.py"):
        (there / name).write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    health = tmp_path / "health"
    health.mkdir()
    (health / "n1.json").write_text(told("n1"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent.parent))
    monkeypatch.chdir(there)
    assert [look.node for look in HealthFolder(health, 1).looks(["n1"], NOW).looks] == ["n1"]
    assert not (tmp_path / "run").exists()
    done = subprocess.run(module_argv("hpcadmin", "--version"), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("hpcadmin, version ")
    assert not (tmp_path / "run").exists()


def test_the_child_takes_nothing_but_names(tmp_path: Path) -> None:
    """A pipe, a link, a file that is too large, a name that is a path."""
    (tmp_path / "big.json").write_text("x" * 200)
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    done = subprocess.run(module_argv("hpcadmin.sweep.folder_child", str(tmp_path), "100"),
                          input="big\nlink\nno\n",
                          capture_output=True, text=True, timeout=30, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["node"] for line in lines] == ["big", "link", "no"]
    assert lines[0]["why"] == "result of more than 100 bytes"
    assert lines[1]["why"].startswith("cannot be read")
    assert lines[2]["why"] == "no result"
    assert HealthFolder(tmp_path, 1).looks(["../x"], NOW).unmeasured == {"../x": "no result"}
