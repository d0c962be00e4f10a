"""validate and the back ends on every real Slurm that is at hand: the machine's own, and those of slurm_roots.

HPCADMIN_LOOPBACK_BACKEND=pyslurm has the runs use pyslurm, by hand where one was built (test_pyslurm_loopback.py).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import slurm_scene
from loopback import Loopback, at_hand, loopback, wait_until
from slurm_roots import NAMES, slurm
from slurm_scenes import NODE_LOOKS, NODES, ask, inside, odd

from hpcadmin.check import Status
from hpcadmin.hosts import expand
from hpcadmin.proof.parts import Slurm
from hpcadmin.run_kept import slurm_job
from hpcadmin.rundata import Run, read_run
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.states import node_state

pytestmark = pytest.mark.lab

# perl is in every Debian; python is not in the roots.
CHECKS = {
    "says": """
def steps(c):
    return (Step(("sh", "-c", 'echo "value 42"; echo "$SLURMD_NODENAME"')),)
def parse(o, c):
    lines = o[0].text.split()
    return [Measurement("value", int(lines[1]), expected=42, subject=Subject((lines[2],)))]
CHECK = Check("says", "Says 42", Scope.NODE, steps, parse)
""",
    "hangs": """
def steps(c):
    return (Step(("sh", "-c", "echo begun; [ $SLURMD_NODENAME != n02 ] || exec sleep 90"), timeout_s=5.5),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1, subject=Subject((o[0].node,)))]
CHECK = Check("hangs", "Hangs on n02", Scope.NODE, steps, parse)
""",
    "pairs": """
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURM_PROCID $SLURMD_NODENAME"'), Role.RANKS),)
def parse(o, c):
    found = dict(line.split() for line in o[0].text.splitlines())
    if sorted(found.values()) != sorted(n.name for n in c.nodes):
        raise ParseError(f"answered: {found}")
    return [Measurement("ranks", len(found), expected=2, subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("pairs", "Two ranks answer", Scope.PAIR, steps, parse)
""",
    "talks": """
SERVER = 'use IO::Socket::INET; $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $ARGV[0], ' \\
    'Listen => 1, ReuseAddr => 1) or die "no port"; $c = $s->accept; print scalar <$c>;'
CLIENT = 'use IO::Socket::INET; $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or die; ' \\
    'print $s "hello"; print "sent";'
def steps(c):
    p = str(c.port_base)
    return (Step(("perl", "-e", SERVER, p), Role.SERVER, ready=Ready(port=c.port_base, timeout_s=60)),
            Step(("perl", "-e", CLIENT, p), Role.CLIENT))
def parse(o, c):
    texts = {x.role.value: x.text.strip() for x in o}
    return [Measurement("heard", texts["server"], expected="hello", subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("talks", "Client and server", Scope.PAIR, steps, parse)
""",
    # A node's part ends when the file "go" or "go-NODE" is there: a test decides when, not the machine's speed. It says
    # in "begun" that it is there.
    "waits": """
from pathlib import Path
GO, BEGUN = (str(Path(__file__).resolve().parents[1] / name) for name in ("go", "begun"))
def steps(c):
    begun = ': >"$1/$SLURM_JOB_ID.$SLURMD_NODENAME"; '
    go_on = 'until [ -e "$0" ] || [ -e "$0-$SLURMD_NODENAME" ]; do sleep 0.1; done'
    return (Step(("sh", "-c", begun + go_on, GO, BEGUN), timeout_s=100.0),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1, subject=Subject((o[0].node,)))]
CHECK = Check("waits", "Waits for a file", Scope.NODE, steps, parse)
""",
}
DEBIAN = ((22, 5), (24, 11), (26, 5))       # built with JSON
BACKEND = os.environ.get("HPCADMIN_LOOPBACK_BACKEND", "auto")
CHECKS["long"] = CHECKS["waits"].replace('"go"', '"never"').replace('"waits"', '"long"')
SUITES = {"long": ("long",), "all": ("says", "hangs", "pairs", "talks"), "dies": ("waits", "pairs"),
          "waits": ("waits",), "says": ("says",)}
LIMITED = "n06"                 # a run that reaches its time limit, a minute, has this node for itself


class Version:
    """A cluster of one version, with checks of its own."""

    limited: subprocess.Popen[str]

    def __init__(self, cluster: Loopback) -> None:
        self.cluster = cluster
        checks = cluster.dir / "checks"
        for folder in (checks, cluster.dir / "begun"):
            folder.mkdir()
        for name, text in CHECKS.items():
            (checks / f"{name}.py").write_text("from hpcadmin.check import *\n" + text)
        for name, entries in SUITES.items():
            (cluster.dir / f"{name}.toml").write_text("".join(f'[[entry]]\ncheck = "{check}"\n' for check in entries))
        (cluster.dir / "site.toml").write_text(
            f'[run]\nchecks_dir = "{checks}"\n[slurm]\nmpi = "none"\nbackend = "{BACKEND}"\n')
        (cluster.dir / "inventory.json").write_text(json.dumps(
            {"schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))
        self.client = CommandLine(cluster.env)

    @property
    def go(self) -> Path:
        return self.cluster.dir / "go"

    def args(self, suite: str, *more: str) -> list[str]:
        where = () if "-w" in more else ("-w", "n[01-04]")
        return ["--site", str(self.cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                str(self.cluster.dir / "inventory.json"), "--suite", str(self.cluster.dir / f"{suite}.toml"), *where,
                *more]

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """A run in the background, which knows its job, when the job's first step runs on all nodes."""
        argv = self.args(*more)
        nodes = set(expand(argv[argv.index("-w") + 1]))
        known = set(self.runs())
        process = self.cluster.begin(*argv)

        def begun() -> bool:
            jobs = [slurm_job(run / "jobs/1") for run in self.runs() if run not in known]
            there = [path.name.split(".") for path in (self.cluster.dir / "begun").iterdir()]
            return any({node for number, node in there if number == str(job)} == nodes for job in jobs)
        wait_until(lambda: process.poll() is not None or begun())
        assert process.poll() is None, process.communicate()
        return process

    def runs(self) -> list[Path]:
        return list((self.cluster.dir / "admin/runs").glob("2*"))

    def queue(self) -> dict[str, str]:
        """The running jobs, by the node that is first in each."""
        lines = self.cluster.slurm("squeue", "-h", "-t", "running", "-o", "%i %B").splitlines()
        return dict(line.split() for line in lines)

    def admin(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.hpcadmin("--site", str(self.cluster.dir / "site.toml"), *argv)

    def last(self) -> Run:
        return read_run(max(self.runs(), key=lambda p: (p / "request.json").stat().st_mtime))

    @property
    def limited_run(self) -> Path:
        return min(self.runs())

    def settled(self) -> None:
        wait_until(lambda: slurm_scene.free(self.client) >= set(NODES))


def pyslurm_version() -> tuple[int, ...]:
    return tuple(int(part) for part in importlib.metadata.version("pyslurm").split(".")[:2])


def statuses(run: Run) -> dict[str, Counter[Status]]:
    found: dict[str, Counter[Status]] = {}
    for verdict in run.verdicts:
        found.setdefault(verdict.check, Counter())[verdict.status] += 1
    return found


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Version]]:
    """All that are at hand at once, so that what only takes time does so on all together."""
    found = {name: slurm(name) for name in NAMES}
    started: dict[str, Version] = {}
    with ExitStack() as stack:
        for name, one in found.items():
            if isinstance(one, Slurm):
                folder = tmp_path_factory.mktemp(name or "own") / "slurm"
                started[name] = Version(stack.enter_context(loopback(
                    folder, len(NODES) + 1, slurm=one,
                    settings={**slurm_scene.settings(folder), "SlurmdTimeout": "15"})))
                started[name].limited = started[name].begin("long", "-w", LIMITED, "--time-limit", "1")
        yield started
        for version in started.values():
            version.limited.kill()
            version.limited.communicate()


@pytest.fixture(autouse=True)
def none_may_go(versions: dict[str, Version]) -> None:
    for version in versions.values():
        version.go.unlink(missing_ok=True)


@pytest.fixture(params=list(NAMES), ids=[name or "own" for name in NAMES], scope="module")
def version(request: pytest.FixtureRequest, versions: dict[str, Version]) -> Version:
    at_hand(request.param)
    return versions[request.param]


def test_every_state_is_read_as_what_it_is(version: Version) -> None:
    cluster = version.cluster
    try:
        ids = slurm_scene.play(cluster)
        slurm_scene.scripts(cluster.dir / "scripts")
        with inside(cluster.dir / "scripts"):
            told = ask(version.client, ids)
        assert odd(told, ids) == []
        states = {name: node_state(*words) for name, words in slurm_scene.json_states(cluster).items()}
        if states or version.cluster.version() in DEBIAN:
            assert {name: (states[name].unusable, states[name].busy) for name in NODE_LOOKS} == {
                name: looks[:2] for name, looks in NODE_LOOKS.items()}
    finally:
        slurm_scene.end(cluster)


def test_a_whole_suite(version: Version) -> None:
    done = version.admin(*version.args("all"))
    run = version.last()
    assert done.returncode == 3, done.stdout + done.stderr
    assert statuses(run) == {
        "says": {Status.PASS: 4}, "hangs": {Status.PASS: 3, Status.ERROR: 1}, "pairs": {Status.PASS: 6},
        "talks": {Status.PASS: 6}}
    assert run.plan is not None and [job.kind for job in run.plan.jobs] == ["suite"]
    assert ["did not end within 5.5 s" in v.reason for v in run.verdicts if v.status is Status.ERROR] == [True]
    assert run.problems == ()
    assert "Traceback" not in done.stdout + done.stderr
    assert run.manifest.slurm_version == version.client.version()
    if BACKEND == "pyslurm":            # it is there, and fits the Slurm that it was built for
        fits = version.cluster.version() == pyslurm_version()
        assert done.stderr.count("pyslurm is not used") == (not fits), done.stderr
        assert fits or "does not fit" in done.stderr
    version.settled()


def test_drained_and_unknown_nodes(version: Version) -> None:
    version.cluster.slurm("scontrol", "update", "nodename=n03", "state=drain", "reason=bad fan")
    try:
        done = version.admin(*version.args("says", "-w", "n[01-03],n99"))
    finally:
        version.cluster.slurm("scontrol", "update", "nodename=n03", "state=resume")
    assert done.returncode == 3, done.stderr
    run = version.last()
    assert run.plan and {s.node: s.reason for s in run.plan.skipped} == {
        "n03": "drained: bad fan", "n99": "Slurm has no node of that name"}
    assert statuses(run)["says"] == {Status.PASS: 2}
    version.settled()


def test_killed_and_resumed(version: Version) -> None:
    process = version.begin("waits")
    process.kill()
    process.communicate(timeout=30)
    name = version.last().path.name
    version.go.touch()
    done = version.admin("validate", "--allow-root", "--resume", name)
    run = version.last()
    assert done.returncode == 0, (done.stderr, [v.reason for v in run.verdicts])
    assert (run.path.name, run.manifest.state) == (name, "complete")
    assert statuses(run) == {"waits": {Status.PASS: 4}}
    assert run.plan and len(run.plan.jobs) == 1
    assert Counter(m.test for m in run.measured) == Counter(t.id for t in run.plan.tests)
    version.settled()


def test_cancelled(version: Version) -> None:
    process = version.begin("waits")
    done = version.admin("runs", "cancel", version.last().path.name)
    assert done.returncode == 0, done.stderr
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    run = version.last()
    assert run.manifest.state == "cancelled"
    assert statuses(run) == {"waits": {Status.NOT_RUN: 4}}
    wait_until(lambda: set(version.queue().values()) <= {LIMITED})
    version.settled()


def test_requeued_by_an_admin(version: Version) -> None:
    """The job begins again and does nothing; its tests are planned anew."""
    process = version.begin("waits")
    number = str(slurm_job(version.last().path / "jobs/1"))
    for argv in (("update", f"jobid={number}", "requeue=1"), ("requeue", number)):
        version.cluster.slurm("scontrol", *argv)
    wait_until(lambda: number not in version.queue())
    version.go.touch()
    version.cluster.slurm("scontrol", "update", f"jobid={number}", "starttime=now")     # else it waits two minutes
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    run = version.last()
    assert statuses(run) == {"waits": {Status.PASS: 4}}
    assert run.plan and [job.rest_of for job in run.plan.jobs] == [None, 1]
    assert Counter(m.test for m in run.measured) == Counter(t.id for t in run.plan.tests)
    version.settled()


def test_a_node_that_dies(versions: dict[str, Version]) -> None:
    begun = {name: version.begin("dies") for name, version in versions.items()}
    for version in versions.values():
        version.cluster.kill("n04")
        version.go.touch()
    for name, version in versions.items():
        _, err = begun[name].communicate(timeout=240)
        assert begun[name].returncode == 3, (name, err)
        run = version.last()
        assert statuses(run)["waits"] == {Status.PASS: 3, Status.ERROR: 1}, name
        assert all("n04" in v.subject.nodes for v in run.verdicts if v.status is not Status.PASS), name
        assert sum(v.status is Status.PASS for v in run.verdicts if v.check == "pairs") == 3, name
        version.cluster.start_node("n04")
    for version in versions.values():
        version.cluster.slurm("scontrol", "update", "nodename=n04", "state=resume")
        version.settled()


def test_a_time_limit(versions: dict[str, Version]) -> None:
    """Of runs that were begun first of all."""
    for name, version in versions.items():
        _, err = version.limited.communicate(timeout=200)
        assert version.limited.returncode == 3, (name, err)
        run = read_run(version.limited_run)
        assert [v.status for v in run.verdicts] == [Status.ERROR], name
        assert "ran into its time limit" in run.verdicts[0].reason, (name, run.verdicts[0].reason)
