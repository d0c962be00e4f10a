"""The back end pyslurm: the records of the command line, and every way in which pyslurm fails ends at the commands."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcadmin.errors import SiteError, SlurmError
from hpcadmin.site import Site, SlurmSite
from hpcadmin.slurm import choose as choice
from hpcadmin.slurm import pyslurm_backend
from hpcadmin.slurm.choose import choose
from hpcadmin.slurm.client import Client, SlurmNode
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.pyslurm_backend import Pyslurm, PyslurmBackend
from hpcadmin.slurm.states import Job

TESTS = Path(__file__).resolve().parent
SAMPLES = sorted((TESTS / "samples" / "pyslurm").glob("*.json"))
MADE = TESTS / "samples" / "pyslurm" / "made.json"


class Cluster:
    """Commands and pyslurm that answer from one sample."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.told = folder / "told.json"
        self.warnings: list[str] = []
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("PYSLURM_STANDIN", str(self.told))
        monkeypatch.delenv("SLURM_CONF", raising=False)
        monkeypatch.syspath_prepend(str(TESTS / "standin"))
        self.answer_from(MADE)

    def answer_from(self, sample: Path, fault: str = "") -> None:
        self.told.write_text(json.dumps({"sample": str(sample), "fault": fault}))
        for name, text in json.loads(sample.read_text())["commands"].items():
            (self.folder / f"{name}.txt").write_text(text)
        self._script("sinfo", f"cat {self.folder}/version.txt")
        self._script("scontrol", f'case "$*" in *job*) echo "Invalid job id specified" >&2; exit 1;; *nodes)'
                     f" cat {self.folder}/nodes.txt;; *partitions) cat {self.folder}/partitions.txt;; *) cat "
                     f"{self.folder}/topology.txt;; esac")
        self._script("squeue", f'case "$*" in *" -u "*) cat {self.folder}/own.txt;; *) cat {self.folder}/squeue.txt;;'
                     " esac")
        self._script("scancel", f'echo "scancel $*" >>{self.told}.calls')
        self._script("sbatch", "echo 77")
        self._script("sacct", 'case "$*" in *,98*) echo "98|COMPLETED|0:0|n1";; esac')
        self._script("srun", "echo --container-image=x")
        (self.folder / "topology.txt").write_text("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n")

    def _script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def choose(self, backend: str = "auto", timeout_s: float = 20.0) -> Client:
        return choose(Site(slurm=SlurmSite(backend=backend)), self.warnings.append, timeout_s=timeout_s)

    @property
    def calls(self) -> list[str]:
        path = Path(f"{self.told}.calls")
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def without_places(node: SlurmNode) -> SlurmNode:
    """pyslurm gives the number of each kind of device, not the sockets that they are on."""
    return replace(node, gres=re.sub(r"\([^()]*\)", "", node.gres))


def by_id(jobs: tuple[Job, ...]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.id)


def everything(client: Client, sample: Path) -> dict[str, object]:
    known = json.loads(sample.read_text())["pyslurm"]["jobs"]
    ids = [*(job["id"] for job in known if not job["array_id"]), 99, 98]
    return {"version": client.version(), "nodes": [without_places(node) for node in client.nodes()],
            "gpus": [node.gpus for node in client.nodes()], "partitions": client.partitions(),
            "jobs": client.jobs(ids), "one": [client.jobs([i]) for i in ids], "own": by_id(client.find("hpcadmin:R:1")),
            "all own": by_id(client.find("")), "topology": client.topology(),
            "switches": client.topology_text(), "containers": client.starts_containers(),
            "submitted": client.submit(Path("script"), comment="c")}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("fault", ["", "prints", "cannot tell"])
def test_both_back_ends_give_the_same_records(sample: Path, fault: str, cluster: Cluster) -> None:
    cluster.answer_from(sample, fault)
    client = cluster.choose()
    assert isinstance(client, PyslurmBackend)
    found, expected = everything(client, sample), everything(CommandLine(), sample)
    for what in expected:
        assert found[what] == expected[what], what
    assert {"nodes", "partitions", "jobs", "job 99"} <= set(cluster.calls)
    assert cluster.warnings == []
    client.close()


WAYS = {
    "dies at import": r"ended with exit status 1 during hello: fatal: Could not establish a configuration source$",
    "hangs at import": r"did not answer hello within 0\.3 s$",
    "rubbish at import": r"printed 'Segmentation fault \{' instead of an answer to hello$",
    "cannot be imported": r"ImportError: libslurm\.so\.45: cannot open shared object file",
    "too old": r"pyslurm 25\.11\.\d is too old: it has no Nodes \(23\.2\.3 is the first\)$",
    "other version": r"pyslurm 24\.11\.0 does not fit Slurm 25\.11\.\d$",
    "no controller": r"cannot ask slurmctld: Unable to contact slurm controller",
}


@pytest.mark.parametrize("backend", ["auto", "pyslurm"])
@pytest.mark.parametrize("fault", WAYS)
def test_a_pyslurm_that_cannot_be_used_is_one_line(fault: str, backend: str, cluster: Cluster) -> None:
    cluster.answer_from(MADE, fault)
    client = cluster.choose(backend, timeout_s=0.3 if "hangs" in fault else 20.0)
    assert isinstance(client, CommandLine)
    (line,) = cluster.warnings
    assert re.search(WAYS[fault], line), line
    assert line.startswith("pyslurm is not used, Slurm's commands are: ")
    assert "\n" not in line


LATER = {
    "dies": r"ended with exit status 1 during nodes: fatal: Could not establish",
    "hangs": r"did not answer partitions within 5 s$",
    "rubbish": r"printed 'Segmentation fault \{' instead of an answer to nodes$",
    "raises": r"ValueError: invalid literal for int\(\) with base 10: '4K' in nodes$",
}


@pytest.mark.parametrize("fault", ["dies", pytest.param("hangs", marks=pytest.mark.deep), "rubbish", "raises"])
def test_a_pyslurm_that_fails_later_is_one_line_and_the_results_are_right(fault: str, cluster: Cluster) -> None:
    cluster.answer_from(MADE, fault)
    client = cluster.choose(timeout_s=5.0 if fault == "hangs" else 20.0)
    assert isinstance(client, PyslurmBackend)
    assert cluster.warnings == []
    expected = CommandLine()
    assert client.nodes() == expected.nodes()
    assert client.partitions() == expected.partitions()
    assert client.jobs([1, 99]) == expected.jobs([1, 99])
    client.cancel([1])
    (line,) = cluster.warnings
    assert re.search(LATER[fault], line), line
    assert [call for call in cluster.calls if call.startswith("scancel")] == ["scancel 1"]


@pytest.mark.parametrize("fault", ["dies once", pytest.param("hangs once", marks=pytest.mark.deep)])
def test_a_child_is_started_once_more(fault: str, cluster: Cluster) -> None:
    cluster.answer_from(MADE, fault)
    client = cluster.choose(timeout_s=5.0 if fault == "hangs once" else 20.0)
    assert [node.name for node in client.nodes()] == [node.name for node in CommandLine().nodes()]
    assert client.jobs([1, 2])[1].state == "RUNNING"
    assert cluster.calls == (["nodes", "nodes", "jobs"] if fault == "dies once" else ["nodes", "jobs"])
    assert cluster.warnings == []
    assert isinstance(client, PyslurmBackend)
    client.close()


def test_what_slurm_refuses_is_told_as_by_the_commands(cluster: Cluster) -> None:
    cluster.answer_from(MADE, "refuses")
    client = cluster.choose()
    assert len(client.nodes()) == 6                         # the commands got an answer
    cluster._script("scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(SlurmError, match="does not answer"):
        client.nodes()
    assert cluster.warnings == []


def test_cancel_and_its_stale_errno(cluster: Cluster) -> None:
    client = cluster.choose()
    client.cancel([])
    client.cancel([1, 2])
    assert cluster.calls == ["cancel 1", "cancel 2"]
    cluster.answer_from(MADE, "stale errno")
    client = cluster.choose()
    client.cancel([1, 2])
    assert cluster.calls[2:] == ["cancel 1", "scancel 1 2"]
    assert cluster.warnings == []


def test_answers_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_backend, "MAX_ANSWER", 1000)
    client = cluster.choose()
    assert len(client.nodes()) == 6
    assert "its answer to nodes is longer than" in cluster.warnings[0]


@pytest.mark.parametrize(("backend", "warned"), [("auto", False), ("pyslurm", True)])
def test_no_pyslurm(backend: str, warned: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster.folder / "pyslurm").mkdir()                    # a clone of it is no module
    monkeypatch.setattr(sys, "path", [str(cluster.folder)])
    assert choice.installed() is None
    assert isinstance(cluster.choose(backend), CommandLine)
    assert [f"it is not installed for {sys.executable}" in line for line in cluster.warnings] == [True] * warned


def test_the_commands_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.answer_from(MADE, "dies at import")
    assert isinstance(cluster.choose("command"), CommandLine)
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    assert isinstance(cluster.choose("pyslurm"), CommandLine)       # which says that there is no such file
    assert cluster.warnings == []


def test_another_backend(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('[slurm]\npartition = "a"\nbackend = "rest"\n')
    with pytest.raises(SiteError, match=r"site\.toml:3: \[slurm\] backend is 'rest' \(one of auto, command, pyslurm\)"):
        choose(Site(slurm=SlurmSite(backend="rest"), source=str(file)))


@pytest.mark.parametrize("value", [
    5, [{}], ["n1"], [{"id": True}], [{"id": 1, "state": None, "reason": "", "nodes": "", "comment": ""}]])
def test_an_answer_of_another_shape(value: object, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    client = cluster.choose()
    monkeypatch.setattr(PyslurmBackend, "_ask", lambda *_args, **_more: value)
    assert client.jobs([1])[1] == Job(1, "RUNNING", "None", "n[1-2]", "", "hpcadmin:R:1")
    assert "its answer to jobs cannot be read" in cluster.warnings[0]


def test_the_answer_to_a_call_that_was_interrupted_is_not_the_next_ones(cluster: Cluster) -> None:
    client = cluster.choose()
    assert isinstance(client, PyslurmBackend)
    assert client._child is not None
    assert client._child._process.stdin is not None
    client._child._process.stdin.write(b'{"id": 0, "call": "partitions", "timeout_s": 9}\n')
    assert [node.name for node in client.nodes()] == [node.name for node in CommandLine().nodes()]
    assert cluster.calls == ["partitions", "nodes"]
    assert cluster.warnings == []


def test_no_child_outlives_its_client(cluster: Cluster) -> None:
    client = cluster.choose()
    assert isinstance(client, PyslurmBackend)
    assert client._child is not None
    process = client._child._process
    del client
    assert process.poll() == -signal.SIGKILL


def test_a_child_without_a_parent_ends(cluster: Cluster) -> None:
    argv = [sys.executable, "-I", str(pyslurm_backend.CHILD), str(TESTS / "standin")]
    done = subprocess.run(argv, input=b'{"id": 7, "call": "hello", "timeout_s": 9}\n{"id": 8, "ca', capture_output=True,
                          check=True, timeout=20)
    assert json.loads(done.stdout) == {"id": 7, "value": {"pyslurm": "25.11.2", "slurm": "25.11.2", "problem": ""}}


def test_a_python_that_does_not_start(cluster: Cluster) -> None:
    client = PyslurmBackend(CommandLine(), Pyslurm(TESTS / "standin", python="/nowhere/python"),
                            cluster.warnings.append)
    assert client.version() == "25.11.2"
    assert not client.start()
    assert "/nowhere/python cannot be started: No such file or directory" in cluster.warnings[0]


@pytest.mark.deep
def test_a_child_that_does_not_hear_is_not_waited_for_for_ever(cluster: Cluster, tmp_path: Path) -> None:
    """A request of many jobs does not fit into the pipe."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport json, sys, time\nn = json.loads(sys.stdin.readline())['id']\n"
                      "print(json.dumps({'id': n, 'value': {'pyslurm': '25.11.0', 'slurm': '25.11.0', 'problem': ''}}),"
                      " flush=True)\ntime.sleep(60)\n")
    python.chmod(0o755)
    client = PyslurmBackend(CommandLine(), Pyslurm(TESTS / "standin", python=str(python), timeout_s=5.0),
                            cluster.warnings.append)
    assert client.start()
    begun = time.monotonic()
    assert client._ask("jobs", ids=list(range(100_000))) is None
    assert time.monotonic() - begun < 20
    client.close()


def test_only_the_child_imports_pyslurm() -> None:
    pattern = re.compile(r"^\s*(?:import|from)\s+pyslurm\b|import_module\(.pyslurm", re.MULTILINE)
    found = [path.name for path in (TESTS.parent / "hpcadmin").rglob("*.py") if pattern.search(path.read_text())]
    assert found == ["pyslurm_child.py"]


def test_help_does_not_look_for_it(cluster: Cluster) -> None:
    code = ("import sys\nfrom hpcadmin.cli import run\nrun(['--help'])\n"
            "print('SEEN', [m for m in sys.modules if 'pyslurm' in m or m.startswith('hpcadmin.slurm')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS.parent)
    assert done.stdout.strip().endswith("SEEN []")
