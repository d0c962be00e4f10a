"""Runs of validate on a private Slurm, of which several go on at once while something is done to their jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopback import Loopback

from hpcadmin.check import Status
from hpcadmin.rundata import Run, read_run

# What a step does not get past as long as its node is closed; it says that it has come there.
GATE = ': >"DIR/reached/$SLURMD_NODENAME"; while [ -e "DIR/closed/$SLURMD_NODENAME" ]; do sleep 0.1; done'
CHECKS = {
    "says": '''
def steps(c):
    return (Step(("sh", "-c", 'sleep 1; echo "$SLURMD_NODENAME"'), timeout_s=30.0),)
def parse(o, c):
    return [Measurement("name", o[0].text.strip(), expected=o[0].node, subject=Subject((o[0].node,)))]
CHECK = Check("says", "Says its name", Scope.NODE, steps, parse, seconds=1.0)
''',
    "pairs": '''
def steps(c):
    return (Step(("sh", "-c", GATE + '; echo "$SLURM_PROCID $SLURMD_NODENAME"'), Role.RANKS, timeout_s=330.0),)
def parse(o, c):
    found = dict(line.split() for line in o[0].text.splitlines() if line[:1].isdigit())
    if sorted(found.values()) != sorted(n.name for n in c.nodes):
        raise ParseError(f"answered: {o[0].text}")
    return [Measurement("ranks", len(found), expected=2, subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("pairs", "Two ranks answer", Scope.PAIR, steps, parse, seconds=1.0)
''',
    "slow": '''
def steps(c):
    return (Step(("sh", "-c", "sleep 300"), timeout_s=330.0),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1)]
CHECK = Check("slow", "Takes long", Scope.NODE, steps, parse)
''',
}
CHECKS["held"] = CHECKS["slow"].replace('"sleep 300"', "GATE").replace('"slow"', '"held"')
CHECKS["hello"] = CHECKS["says"].replace("sleep 1; ", "").replace('"says"', '"hello"')
CHECKS["meet"] = CHECKS["pairs"].replace("GATE + '; ", "'").replace('"pairs"', '"meet"')
SUITES = {"two": ("says", "pairs"), "quick": ("hello", "meet"),
          **{name: (name,) for name in ("says", "slow", "held")}}


def furnish(cluster: Loopback) -> None:
    """Checks, suites, a site's file and an inventory for this cluster."""
    checks = cluster.dir / "checks"
    for folder in (checks, cluster.dir / "closed", cluster.dir / "reached"):
        folder.mkdir()
    gate = GATE.replace("DIR", str(cluster.dir))
    for name, text in CHECKS.items():
        (checks / f"{name}.py").write_text(f"from hpcadmin.check import *\nGATE = {gate!r}\n{text}")
    for name, entries in SUITES.items():
        (cluster.dir / f"{name}.toml").write_text("".join(f'[[entry]]\ncheck = "{e}"\n' for e in entries))
    (cluster.dir / "site.toml").write_text(f'[run]\nchecks_dir = "{checks}"\n[slurm]\nmpi = "none"\n')
    (cluster.dir / "inventory.json").write_text(json.dumps({
        "schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))


def close(cluster: Loopback, *nodes: str) -> None:
    """No step gets past its gate there."""
    for node in nodes:
        (cluster.dir / "closed" / node).touch()
        (cluster.dir / "reached" / node).unlink(missing_ok=True)


def reopen(cluster: Loopback, *nodes: str) -> None:
    for node in nodes:
        (cluster.dir / "closed" / node).unlink()


def until(condition: Callable[[], object], seconds: float = 120.0, what: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str
    run: Run | None

    def counts(self, check: str) -> Counter[Status]:
        assert self.run is not None, self.err
        return Counter(v.status for v in self.run.verdicts if v.check == check)

    def reasons(self, *statuses: Status) -> set[str]:
        assert self.run is not None, self.err
        return {v.reason for v in self.run.verdicts if v.status in statuses}

    def jobs(self) -> list[tuple[int, int | None]]:
        assert self.run is not None and self.run.plan is not None
        return [(job.number, job.rest_of) for job in self.run.plan.jobs]


class Going:
    """A run of validate that has been started. patch: Python text that is run before it, for shorter waits."""

    def __init__(self, cluster: Loopback, name: str, suite: str, nodes: str, *more: str, patch: str = "",
                 tools: Path | None = None) -> None:
        self.cluster, self.name = cluster, name
        self.place = cluster.dir / "runs" / name
        argv = ["--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / f"{suite}.toml"), "--run-dir",
                str(self.place), *(["-w", nodes] if nodes else []), *more]
        env = cluster.env
        if tools is not None:
            env["PATH"] = f"{tools}:{env['PATH']}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{patch}\nfrom hpcadmin.cli import main\nmain()", *argv], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def folder(self) -> Path:
        until(lambda: list(self.place.glob("2*")) or self.process.poll() is not None)
        assert list(self.place.glob("2*")), self.end().err
        return next(self.place.glob("2*"))

    def job(self) -> str:
        """The Slurm job that our first job became."""
        def ids() -> list[Path]:
            return sorted(self.folder().glob("jobs/*/slurm_job_id"), key=lambda path: int(path.parent.name))
        until(lambda: ids() or self.process.poll() is not None)
        assert ids(), self.end().err
        return ids()[0].read_text().strip()

    def state(self) -> str:
        return self.cluster.slurm("squeue", "-h", "-a", "-t", "all", "-j", self.job(), "-o", "%T %r").strip()

    def until_state(self, word: str) -> None:
        until(lambda: self.state().startswith(word), what=lambda: (self.name, word, self.state()))

    def until_step(self) -> None:
        """A step of it runs. A job that is RUNNING may have none yet, and what it cannot start for a limit or an end
        that comes before is no end of a test."""
        def steps() -> list[str]:
            asked = self.cluster.slurm("squeue", "-h", "-a", "-s", "-j", self.job(), "-o", "%i").split()
            return [step for step in asked if step.rpartition(".")[2].isdigit()]
        until(lambda: bool(steps()), what=lambda: (self.name, self.state(), steps()))

    def until_reached(self, *nodes: str) -> None:
        """Steps of it have come to their gates there."""
        reached = self.cluster.dir / "reached"
        until(lambda: all((reached / node).exists() for node in nodes) or self.process.poll() is not None)
        assert self.process.poll() is None, self.end().err

    def until_runs_no_more(self) -> None:
        """The job is over, or waits again."""
        until(lambda: not self.state().startswith(("RUNNING", "COMPLETING")), what=self.state)

    def until_logs(self, count: int) -> None:
        """So many nodes have left their own tests' outputs."""
        self.job()
        job = self.folder() / "jobs/1"
        until(lambda: sum(p.stat().st_size > 0 for p in job.glob("n*.log")) >= count, what=lambda: list(job.iterdir()))

    def ours(self) -> list[str]:
        """Jobs of this run that are not over."""
        lines = self.cluster.slurm("squeue", "-h", "-a", "-o", "%i %T %k").splitlines()
        return [line for line in lines if f"hpcadmin:{self.folder().name}:" in line]

    def end(self, timeout: float = 240.0) -> Done:
        out, err = self.process.communicate(timeout=timeout)
        found = sorted(self.place.glob("2*"))
        run = read_run(found[0]) if found and (found[0] / "verdicts.jsonl").exists() else None
        return Done(self.process.returncode, out, err, run)


def accounted(done: Done, going: Going) -> Run:
    """What is true of each run, however it went: each planned test has one final result, what passed was measured
    once, no line is a traceback, and no job of ours is left but one that is ending."""
    run = done.run
    assert run is not None, done.err
    assert run.plan is not None
    assert "Traceback" not in done.err
    assert run.problems == ()
    assert run.manifest.state == "complete", done.err
    assert run.manifest.exit_status == done.status
    told = Counter((v.check, v.subject.nodes) for v in run.verdicts if v.status not in (Status.NOT_APPLICABLE,))
    wanted = {(t.check, t.subject.nodes) for t in run.plan.tests if not t.repeats}
    assert wanted <= set(told), wanted - set(told)
    assert max(told.values()) == 1, told.most_common(3)
    measured = Counter(m.test for m in run.measured)
    passed = {(v.check, v.subject.nodes) for v in run.verdicts if v.status is Status.PASS}
    assert {t.id for t in run.plan.tests if (t.check, t.subject.nodes) in passed} == set(measured)
    assert set(measured.values()) <= {1}
    until(lambda: not [j for j in going.ours() if "COMPLETING" not in j], 60, going.ours)
    return run


def tool(folder: Path, name: str, text: str) -> Path:
    """A folder with a command that stands before Slurm's own. $REAL is that one, $HERE the folder, $COUNT which call
    this is."""
    folder.mkdir(parents=True, exist_ok=True)
    real = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
    (folder / name).write_text(f'#!/bin/sh\nREAL={real} HERE={folder}\necho x >>"$HERE/{name}.calls"\n'
                               f'COUNT=$(wc -l <"$HERE/{name}.calls")\n{text}\n')
    (folder / name).chmod(0o755)
    return folder


def fill(cluster: Loopback, node: str, seconds: int, *more: str) -> str:
    """A job of somebody else on this node, when it runs."""
    job = cluster.slurm("sbatch", "--parsable", "--exclusive", "-J", "others", "-w", node, "-o", "/dev/null", *more,
                        "--wrap", f"sleep {seconds}").strip()
    until(lambda: cluster.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
    return job


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
