"""A run that is killed, left, stopped or cancelled on a real Slurm, and resumed: as if nothing had happened to it.

Each test brings a run to a point of its own: what its steps come to waits there until the test opens the gate. So no
test depends on how fast the machine is.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, loopback, wait_until

from hpcadmin.run_lock import watcher
from hpcadmin.rundata import Run, read_run

pytestmark = pytest.mark.lab

# What a step waits at: the gates JOB.WHAT and any.WHAT, closed when there is DIR/closed/GATE. It says in DIR/reached
# that it has come there.
GATE = ('p=$(basename "$HPCADMIN_OUT").$1 a=any.$1; : >"{dir}/reached/$p"; : >"{dir}/reached/$a"; '
        'while [ -e "{dir}/closed/$p" ] || [ -e "{dir}/closed/$a" ]; do sleep 0.05; done')
CHECKS = {
    "node": """
def steps(c):
    return (Step(("sh", "-c", GATE + '; echo "$SLURMD_NODENAME"', "sh", c.nodes[0].name)),)
def parse(o, c):
    return [Measurement("name", o[0].text.strip(), expected=o[0].node, subject=Subject((o[0].node,)))]
CHECK = Check("node", "The node's name", Scope.NODE, steps, parse, seconds=0.1)
""",
    # One pair is slow, so that it is measured again.
    "pair": """
def steps(c):
    names = "-".join(n.name for n in c.nodes)
    return (Step(("sh", "-c", GATE + '; echo rank', "sh", names), Role.RANKS),)
def parse(o, c):
    names = tuple(n.name for n in c.nodes)
    if o[0].text.split() != ["rank", "rank"]:
        raise ParseError(f"printed {o[0].text!r}")
    rate = 20.0 if names == ("n03", "n04") else 100.0
    return [Measurement("rate", rate, "MB/s", 1024, subject=Subject(names), key=True)]
CHECK = Check("pair", "A rate between two nodes", Scope.PAIR, steps, parse, impact=Impact.LOAD, seconds=0.1)
""",
    # Looks for its tool in a job of its own first.
    "tool": """
def steps(c):
    return (Step((c.tools["gatetool"], "run")),)
def parse(o, c):
    return [Measurement("ran", o[0].text.strip(), expected="ran", subject=Subject((o[0].node,)))]
CHECK = Check("tool", "A tool runs", Scope.NODE, steps, parse, needs=("gatetool",), probe=("gatetool", "--version"))
""",
}
TOOL = """#!/bin/sh
[ "$1" = run ] && echo ran && exit
set -- look
{gate}
echo gatetool 1.0
"""
# Comes to its gate before the job is submitted ("before"), or after that, with the answer still to be told ("after").
SBATCH = """#!/bin/sh
gate() {{ : >"{dir}/reached/$1"; while [ -e "{dir}/closed/$1" ]; do sleep 0.05; done; }}
gate before
answer=$({sbatch} "$@")
status=$?
gate after
echo "$answer"
exit $status
"""
SITE = """
[run]
checks_dir = "{dir}/checks"
[slurm]
mpi = "none"
[tools.gatetool]
path = "{dir}/gatetool"
[[limit]]
check = "pair"
measurement = "rate"
unit = "MB/s"
size_bytes = 1024
min = 90.0
source = "this test"
date = "2026-11-30"
"""
# A killed job ends soon; Slurm forgets a job soon (it looks every 10 s).
SETTINGS = {"MinJobAge": "2", "KillWait": "2",
            "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"}
# hpcadmin as it is, but that it does not wait for a file server which shows files late; and where it is stopped while a
# job is submitted, what it waits for that has a gate, "settled".
START = """
import os, sys, time
from types import SimpleNamespace
from hpcadmin import run_handover, run_job
run_job.LOST_GRACE_S = 1.0
run_handover.SETTLE_S = 2.0
from hpcadmin import run_ledger
from hpcadmin.cli import main
def settle(seconds):
    time.sleep(seconds)
    while os.path.exists(CLOSED):
        time.sleep(0.05)
CLOSED = sys.argv.pop(1)
run_ledger.time = SimpleNamespace(sleep=settle)
main()
"""


class Place:
    """The cluster, its gates, and runs on it."""

    def __init__(self, cluster: Loopback) -> None:
        self.cluster, self.dir = cluster, cluster.dir
        self.processes: list[subprocess.Popen[str]] = []
        gate = GATE.format(dir=self.dir)
        for name in ("checks", "closed", "reached", "bin"):
            (self.dir / name).mkdir(exist_ok=True)
        for name, text in CHECKS.items():
            (self.dir / f"checks/{name}.py").write_text(f"from hpcadmin.check import *\nGATE = {gate!r}\n{text}")
        self._suite("all", "node", "pair")
        self._suite("looks", "tool")
        self._suite("nodes", "node")
        (self.dir / "site.toml").write_text(SITE.format(dir=self.dir))
        (self.dir / "inventory.json").write_text(json.dumps({
            "schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))
        for name, script in (("gatetool", TOOL.format(gate=gate)),
                             ("bin/sbatch", SBATCH.format(dir=self.dir, sbatch=shutil.which("sbatch")))):
            (self.dir / name).write_text(script)
            (self.dir / name).chmod(0o755)

    def _suite(self, name: str, *checks: str) -> None:
        (self.dir / f"{name}.toml").write_text("".join(f'[[entry]]\ncheck = "{c}"\n' for c in checks))

    # --- gates

    def close(self, *gates: str) -> None:
        for gate in gates:
            (self.dir / "closed" / gate).touch()
            (self.dir / "reached" / gate).unlink(missing_ok=True)

    def open(self) -> None:
        for gate in (self.dir / "closed").iterdir():
            gate.unlink()

    def reached(self, *gates: str, by: subprocess.Popen[str]) -> None:
        def here() -> bool:
            assert by.poll() is None, by.communicate()
            return all((self.dir / "reached" / gate).exists() for gate in gates)
        wait_until(here)

    # --- hpcadmin

    @property
    def runs(self) -> list[Path]:
        return sorted((self.dir / "admin/runs").glob("2*"), key=lambda p: (p.stat().st_ctime_ns, p.name))

    def argv(self, *words: str) -> list[str]:
        return ["--site", str(self.dir / "site.toml"), *words]

    def args(self, suite: str, *more: str) -> list[str]:
        return self.argv("validate", "--allow-root", "--inventory", str(self.dir / "inventory.json"), "--suite",
                         str(self.dir / f"{suite}.toml"), *more)

    def hpcadmin(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.popen(self.argv(*words))
        out, err = process.communicate(timeout=240)
        assert "Traceback" not in out + err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @property
    def path(self) -> str:
        return f"{self.dir}/bin:{self.cluster.env['PATH']}"

    def popen(self, argv: list[str], **options: object) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen([sys.executable, "-c", START, str(self.dir / "closed/settled"), *argv], text=True,
                                   env={**self.cluster.env, "PATH": self.path}, **pipes)  # type: ignore[call-overload]
        self.processes.append(process)
        return process  # type: ignore[no-any-return]

    def begin(self, suite: str, *more: str) -> tuple[subprocess.Popen[str], Path]:
        """A run, and its folder as soon as that is there."""
        known = set(self.runs)
        process = self.popen(self.args(suite, *more))
        wait_until(lambda: set(self.runs) - known or process.poll() is not None)
        new = set(self.runs) - known
        assert new, process.communicate()
        return process, new.pop()

    def until(self, suite: str, *gates: str, more: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], Path]:
        """A run that has come to these gates, which are closed."""
        self.close(*gates)
        process, run = self.begin(suite, *more)
        self.reached(*gates, by=process)
        return process, run

    def killed(self, suite: str, *gates: str, more: tuple[str, ...] = ()) -> Path:
        """A run whose process has been killed at these gates; its jobs, and what it was just starting, go on."""
        process, run = self.until(suite, *gates, more=more)
        kill(process)
        return run

    def resume(self, run: Path, *, status: int = 1) -> tuple[Run, str]:
        """Go on with it to its end; the gates are opened when it has begun to."""
        process = self.resuming(run)
        self.open()
        out, err = process.communicate(timeout=240)
        assert process.returncode == status, out + err
        assert "Traceback" not in err
        return self.sound(run), err

    def resuming(self, run: Path) -> subprocess.Popen[str]:
        process = self.popen(self.argv("validate", "--allow-root", "--resume", run.name))
        wait_until(lambda: watcher(run) is not None or process.poll() is not None)
        return process

    def sound(self, path: Path) -> Run:
        """What is true of each run that is complete."""
        run = read_run(path)
        assert run.problems == ()
        assert run.manifest.state == "complete"
        assert run.plan is not None
        assert Counter(m.test for m in run.measured) == Counter(t.id for t in run.plan.tests)
        assert watcher(path) is None
        assert "PENDING" not in str(self.jobs(path))
        self.gone(path)             # a script that has said that it is done may have its end before it
        return run

    # --- Slurm

    def jobs(self, run: Path) -> list[tuple[str, str]]:
        """Its jobs that are not over: id, state."""
        lines = self.cluster.slurm("squeue", "-h", "-o", "%i %T %k").splitlines()
        found = [line.split() for line in lines if f"hpcadmin:{run.name}:" in line]
        return [(words[0], words[1]) for words in found if words[1] != "COMPLETING"]

    def job(self, run: Path) -> str:
        (number, _), = self.jobs(run)
        return number

    def busy(self, node: str) -> str:
        """A job of somebody else's has this node until it is cancelled; its number."""
        script = self.dir / "other"
        script.write_text("#!/bin/sh\nsleep 600\n")
        number = self.cluster.slurm("sbatch", "--parsable", "--exclusive", "-w", node, "-o", "/dev/null",
                                    str(script)).strip()
        wait_until(lambda: self.cluster.slurm("squeue", "-h", "-j", number, "-o", "%T").strip() == "RUNNING")
        return number

    def gone(self, run: Path) -> None:
        """Wait until its jobs are over."""
        wait_until(lambda: not self.jobs(run))

    def refused(self, *argv: str) -> str:
        return subprocess.run(argv, env=self.cluster.env, capture_output=True, text=True, check=False).stderr

    def stop_controller(self) -> None:
        """It saves its state: after a crash it may give numbers of jobs again, and drains nodes ("Duplicate jobid")."""
        process = self.cluster.processes.pop("slurmctld", None)
        if process is not None:
            process.terminate()
            process.wait(60)

    def restart_controller(self) -> None:
        self.stop_controller()
        self.cluster.start("slurmctld", "slurmctld", "-D")
        wait_until(lambda: "UP" in self.cluster.slurm("scontrol", "ping"))

    def idle(self) -> None:
        self.open()
        self.cluster.wait_idle(len(self.cluster.nodes))


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=30)


def essence(run: Run) -> list[tuple[object, ...]]:
    """All that a run says, beside when and by which job."""
    return sorted((v.check, v.subject.nodes, v.status.value, v.attempt, v.basis, v.reason,
                   v.measurement.value if v.measurement else "") for v in run.verdicts)


def results(run: Run) -> set[tuple[object, ...]]:
    """The same of a run whose pairs met in other rounds, beside others or alone."""
    return {(v.check, v.subject.nodes, v.status.value, v.measurement.value if v.measurement else "")
            for v in run.verdicts}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with loopback(tmp_path_factory.mktemp("resume") / "slurm", settings=SETTINGS) as running:
        yield Place(running)


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    yield shared
    for process in shared.processes:
        if process.poll() is None:
            kill(process)
    shared.processes.clear()
    shared.open()
    left = shared.cluster.slurm("squeue", "-h", "-o", "%i").split()
    shared.cluster.slurm("scancel", *left)
    shared.idle()


@pytest.fixture(scope="module")
def whole(shared: Place) -> Run:
    """A run that nothing happens to."""
    done = shared.hpcadmin(*shared.args("all")[2:])
    assert done.returncode == 1, done.stderr
    run = shared.sound(shared.runs[-1])
    assert run.plan is not None and [j.kind for j in run.plan.jobs] == ["suite", "again", "again"]
    return run


# --- killed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", ["before", "after"])
def test_killed_while_a_job_is_submitted(place: Place, whole: Run, gate: str) -> None:
    """sbatch goes on when its caller is gone: the job is submitted all the same, and nobody has noted its number."""
    run = place.killed("all", gate)
    assert not (run / "jobs/1/slurm_job_id").exists()
    place.open()
    wait_until((run / "jobs/1/claimed").exists)
    found, _ = place.resume(run)
    assert essence(found) == essence(whole)
    assert found.plan is not None and len(found.plan.jobs) == 3


def test_killed_and_resumed_before_the_job_is_taken(place: Place, whole: Run) -> None:
    """The first sbatch comes to Slurm only after the second: one of the two jobs is withdrawn, or does nothing."""
    run = place.killed("all", "before")
    (place.dir / "bin/sbatch").rename(place.dir / "bin/slow")       # the second is not held
    try:
        place.close("1.n01")
        again = place.popen(place.argv("validate", "--allow-root", "--resume", run.name))
        place.reached("1.n01", by=again)
        place.open()
        wait_until(lambda: len(place.cluster.slurm("squeue", "-h", "-t", "all", "-o", "%k").split()) > 1
                   or again.poll() is not None)
        _, err = again.communicate(timeout=120)
        assert again.returncode == 1, err
    finally:
        (place.dir / "bin/slow").rename(place.dir / "bin/sbatch")
    assert essence(place.sound(run)) == essence(whole)


@pytest.mark.parametrize("gate", ["1.n03", "2.n03-n04"])
def test_killed_while_a_job_runs(place: Place, whole: Run, gate: str) -> None:
    """Among the nodes' own checks, and while doubtful tests are measured again."""
    run = place.killed("all", gate)
    found, _ = place.resume(run)
    assert essence(found) == essence(whole)
    assert found.plan is not None and len(found.plan.jobs) == 3


def test_killed_while_it_looks(place: Place) -> None:
    run = place.killed("looks", "1.look")
    found, err = place.resume(run, status=0)
    assert "has no plan yet: it begins anew" in err
    assert found.plan is not None and [j.kind for j in found.plan.jobs] == ["suite"]


# --- ended in other ways ----------------------------------------------------------------------------------------


def test_left_by_a_signal(place: Place) -> None:
    """The jobs go on, and what they leave is taken up."""
    process, run = place.until("nodes", "1.n02")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)                  # a shell that ends sends both
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"1 job of it left to go on; hpcadmin validate --resume {run.name} goes on" in err
    assert "and can be resumed" in out
    assert read_run(run).manifest.state == "interrupted"
    number_before = place.job(run)
    found, _ = place.resume(run, status=0)
    assert (run / "jobs/1/slurm_job_id").read_text() == f"{number_before}\n"
    assert found.plan is not None and len(found.plan.jobs) == 1


def on_a_terminal(place: Place, *words: str) -> tuple[subprocess.Popen[str], int]:
    """hpcadmin as the leader of a session on a terminal of its own; the other end of that."""
    ours, theirs = pty.openpty()
    process = place.popen(place.argv(*words), stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=login)
    os.close(theirs)
    return process, ours


def login() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_terminal_that_goes_away(place: Place) -> None:
    place.close("1.n02")
    known = set(place.runs)
    process, terminal = on_a_terminal(place, *place.args("nodes")[2:])
    place.reached("1.n02", by=process)
    (run,) = set(place.runs) - known
    os.close(terminal)
    assert process.wait(120) in (130, -signal.SIGHUP)
    assert read_run(run).manifest.state == "interrupted"
    place.job(run)
    place.resume(run, status=0)


def test_a_run_in_the_background_outlives_its_terminal(place: Place) -> None:
    place.close("1.n02")
    known = set(place.runs)
    process, terminal = on_a_terminal(place, *place.args("nodes")[2:], "--detach")
    assert process.wait(120) == 0
    (run,) = set(place.runs) - known
    assert run.name in os.read(terminal, 4096).decode()
    os.close(terminal)
    wait_until((place.dir / "reached/1.n02").exists)
    listed = place.hpcadmin("runs", "list").stdout
    assert re.search(rf"{run.name} .*running \(job \d+ running\)", listed), listed
    place.open()
    wait_until(lambda: read_run(run).manifest.state == "complete" and watcher(run) is None)
    assert read_run(run).manifest.exit_status == 0
    place.sound(run)
    assert "[1/1] node checks" in (run / "validate.log").read_text()


def test_stopped_after_the_round_that_it_is_in(place: Place, whole: Run) -> None:
    process, run = place.until("all", "1.n02-n03")
    process.send_signal(signal.SIGINT)
    wait_until((run / "jobs/1/stop").exists)
    place.open()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "stopping after this round; once more cancels what runs now" in err
    stopped = read_run(run)
    assert stopped.manifest.state == "interrupted"
    assert stopped.plan is not None
    names = [s.name for s in stopped.plan.jobs[0].stages]
    known = [s.tests for s in stopped.plan.jobs[0].stages]
    last = next(n for n, ids in enumerate(known) for t in stopped.plan.tests
                if t.id in ids and t.subject.nodes == ("n02", "n03"))
    assert last < len(names) - 1, names
    assert {m.test for m in stopped.measured} == {i for ids in known[:last + 1] for i in ids}
    assert Counter(v.status.value for v in stopped.verdicts)["NOT RUN"] == sum(map(len, known[last + 1:]))
    assert place.jobs(run) == []
    found, _ = place.resume(run)
    assert essence(found) == essence(whole)


def test_interrupted_twice(place: Place) -> None:
    process, run = place.until("nodes", "1.n02")
    process.send_signal(signal.SIGINT)
    wait_until((run / "jobs/1/stop").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted: 1 job cancelled" in err
    assert place.jobs(run) == []


def test_interrupted_twice_while_a_job_is_submitted(place: Place) -> None:
    """Slurm takes it after all jobs of the run were cancelled: it is cancelled as well."""
    place.close("before", "settled", "1.n02")
    known = set(place.runs)
    with (place.dir / "said").open("w") as said:
        process = place.popen(place.args("nodes"), stderr=said)
    place.reached("before", by=process)
    (run,) = set(place.runs) - known

    def told() -> bool:
        process.send_signal(signal.SIGINT)              # at once they would be one
        return "a job was just being submitted" in (place.dir / "said").read_text()
    wait_until(told)
    place.cluster.slurm("sbatch", str(run / "jobs/1/script"))
    (place.dir / "closed/settled").unlink()
    assert process.wait(120) == 130
    assert "interrupted: 1 job cancelled" in (place.dir / "said").read_text()
    assert place.jobs(run) == []


@pytest.mark.parametrize("watched", [True, False])
def test_cancelled_by_another_process(place: Place, watched: bool) -> None:
    process, run = place.until("nodes", "1.n02")
    if not watched:
        kill(process)
        assert "interrupted, to be resumed" in place.hpcadmin("runs", "list").stdout
    done = place.hpcadmin("runs", "cancel", run.name)
    assert (done.returncode, done.stdout) == (0, f"run {run.name} is cancelled\n"), done.stderr
    if watched:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert "cancelled: 1 job cancelled" in err
    assert place.jobs(run) == []
    cancelled = read_run(run)
    assert cancelled.manifest.state == "cancelled"
    assert {v.status.value for v in cancelled.verdicts} <= {"PASS", "NOT RUN"}
    shown = place.hpcadmin("runs", "show", run.name).stdout
    assert f"hpcadmin validate --resume {run.name}" in shown
    again = place.hpcadmin("runs", "cancel", run.name)
    assert again.returncode == 0, again.stderr
    if watched:
        return
    place.resume(run, status=0)
    assert place.hpcadmin("runs", "cancel", run.name).returncode == 2


# --- what a resumption finds ------------------------------------------------------------------------------------


def test_the_host_and_the_controller_were_started_again(place: Place, whole: Run) -> None:
    """The lock is that of a boot before, and its process another one by now."""
    run = place.killed("all", "1.n01-n02")
    holder = {"host": os.uname().nodename, "pid": os.getpid(), "since": "2026-11-30T10:00:00+00:00",
              "started": "5", "boot": "before"}
    (run / "lock").write_text(json.dumps(holder))
    place.restart_controller()
    found, _ = place.resume(run)
    assert essence(found) == essence(whole)
    assert found.plan is not None and len(found.plan.jobs) == 3


def test_the_controller_is_started_again_while_a_run_is_watched(place: Place) -> None:
    process, run = place.until("nodes", "1.n02")
    place.restart_controller()
    place.open()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    place.sound(run)


def test_a_job_that_waits(place: Place) -> None:
    other = place.busy("n03")
    process, run = place.begin("nodes", "-w", "n03")
    wait_until(lambda: place.jobs(run) or process.poll() is not None)
    kill(process)
    ((number, state),) = place.jobs(run)
    assert state == "PENDING"
    again = place.resuming(run)
    assert again.stderr is not None
    said = ""
    while "was there before" not in said:
        line = again.stderr.readline()
        assert line, said
        said += line
    place.cluster.slurm("scancel", other)
    _, err = again.communicate(timeout=120)
    assert again.returncode == 0, said + err
    assert f"job {number}: " in said
    place.sound(run)


def test_a_job_that_somebody_has_cancelled(place: Place, whole: Run) -> None:
    """What it had not done is done in a new job."""
    run = place.killed("all", "1.n01-n02")
    place.cluster.slurm("scancel", place.job(run))
    found, err = place.resume(run)
    assert essence(found) == essence(whole)
    assert found.plan is not None
    assert [(j.kind, j.rest_of) for j in found.plan.jobs if j.kind == "suite"] == [("suite", None), ("suite", 1)]
    assert re.search(r"job \d+ was cancelled.*: \d+ tests planned again", err), err


def test_a_job_that_an_admin_has_requeued(place: Place) -> None:
    run = place.killed("nodes", "1.n02")
    number = place.job(run)
    place.cluster.slurm("scontrol", "update", f"jobid={number}", "requeue=1")
    place.cluster.slurm("scontrol", "requeue", number)
    wait_until(lambda: ("RUNNING" not in str(place.jobs(run))))
    found, err = place.resume(run, status=0)
    assert re.search(rf"job {number} was requeued: \d tests? planned again", err), err
    assert found.plan is not None and [j.rest_of for j in found.plan.jobs] == [None, 1]


def test_jobs_that_slurm_has_forgotten(place: Place, whole: Run) -> None:
    """One ended by itself, one was cancelled: what they left decides, and there is no accounting."""
    done = place.killed("all", "1.n01-n02")
    place.open()
    place.gone(done)
    lost = place.killed("nodes", "1.n02")
    number = place.job(lost)
    place.cluster.slurm("scancel", number)
    wait_until(lambda: "Invalid job id" in place.refused("scontrol", "show", "job", number), 120)
    found, _ = place.resume(done)
    assert essence(found) == essence(whole)
    assert found.plan is not None and len(found.plan.jobs) == 3
    found, err = place.resume(lost, status=0)
    assert re.search(rf"job {number} is not known to Slurm any more: \d tests? planned again", err), err


def test_two_resumptions_at_once(place: Place) -> None:
    run = place.killed("nodes", "1.n02")
    both = [place.popen(place.argv("validate", "--allow-root", "--resume", run.name)) for _ in range(2)]
    wait_until(lambda: any(p.poll() is not None for p in both))
    place.open()
    told = sorted((p.communicate(timeout=120)[1], p.returncode) for p in both)
    assert sorted(status for _, status in told) == [0, 2]
    assert any("is being watched by process" in err for err, status in told if status == 2)
    place.sound(run)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def test_a_controller_that_does_not_answer_changes_nothing(place: Place) -> None:
    run = place.killed("nodes", *(f"1.{n}" for n in place.cluster.nodes))
    before = contents(run)
    place.stop_controller()
    try:
        done = place.hpcadmin("validate", "--allow-root", "--resume", run.name)
        assert done.returncode == 4, done.stderr
        assert done.stderr.count("\n") == 1 and "the Slurm controller does not answer" in done.stderr
        cancelled = place.hpcadmin("runs", "cancel", run.name)
        assert cancelled.returncode == 4, cancelled.stderr
        assert contents(run) == before
    finally:
        place.restart_controller()
    place.resume(run, status=0)


def test_a_copy_of_a_run(place: Place, tmp_path: Path) -> None:
    """Its jobs are those of the original: a copy is not gone on with. One that was moved is, when its jobs are over."""
    run = place.killed("nodes", *(f"1.{n}" for n in place.cluster.nodes))       # so that nobody writes there
    shutil.copytree(run, tmp_path / "copy")
    for words in (("validate", "--allow-root", "--resume"), ("runs", "cancel")):
        done = place.hpcadmin(*words, str(tmp_path / "copy"))
        assert done.returncode == 2, done.stderr
        assert f"is a copy of {run}" in done.stderr
    number = place.job(run)
    run.rename(tmp_path / "moved")
    try:
        done = place.hpcadmin("validate", "--allow-root", "--resume", str(tmp_path / "moved"))
        assert done.returncode == 2 and f"still write to: {number}" in done.stderr, done.stderr
    finally:
        place.cluster.slurm("scancel", number)
    place.gone(run)
    place.open()
    done = place.hpcadmin("validate", "--allow-root", "--resume", str(tmp_path / "moved"))
    assert done.returncode == 0, done.stderr
    assert place.sound(tmp_path / "moved").manifest.folder == str(tmp_path / "moved")


# --- on a cluster in use ----------------------------------------------------------------------------------------


def test_what_is_left_is_made_in_waves_where_nodes_have_become_busy(place: Place, whole: Run) -> None:
    """And so it is by a third process, when the second one was killed in the middle of that."""
    run = place.killed("all", "1.n01-n04", "1.n02-n03")
    place.cluster.slurm("scancel", place.job(run))
    place.gone(run)
    place.cluster.wait_idle(4)
    other = place.busy("n04")
    pairs = [place.dir / "reached" / f"any.{pair}" for pair in ("n01-n02", "n01-n03", "n02-n03")]
    for pair in pairs:
        pair.unlink(missing_ok=True)
    again = place.resuming(run)
    wait_until(lambda: any(pair.exists() for pair in pairs) or again.poll() is not None)
    again.kill()                                        # pairs were measured while a node was still busy
    _, err = again.communicate(timeout=120)
    assert "1 node of 4 in use: testing those that are free" in err
    third = place.resuming(run)
    place.cluster.slurm("scancel", other)
    _, err = third.communicate(timeout=120)
    assert third.returncode == 1, err
    found = place.sound(run)
    assert results(found) == results(whole)
    assert found.plan is not None
    assert len([j for j in found.plan.jobs if j.kind == "suite"]) > 2


# --- tested again -----------------------------------------------------------------------------------------------


def test_what_failed_is_tested_again(place: Place, whole: Run) -> None:
    """After a repair: only the check that failed, on the nodes of the pair and some to compare with."""
    failed = next(p for p in place.runs if read_run(p).manifest.exit_status == 1)
    check = place.dir / "checks/pair.py"
    text = check.read_text()
    check.write_text(text.replace("20.0 if", "100.0 if"))
    try:
        done = place.hpcadmin("validate", "--allow-root", "--retest", failed.name)
    finally:
        check.write_text(text)
    assert done.returncode == 0, done.stderr
    run = place.sound(place.runs[-1])
    assert run.manifest.retest_of == failed.name
    assert {m.check for m in run.measured} == {"pair"}
    assert ("n03", "n04") in {m.measurement.subject.nodes for m in run.measured}
    assert f"what failed in {failed.name}" in place.hpcadmin("runs", "show", run.path.name).stdout
    again = place.hpcadmin("validate", "--allow-root", "--retest", run.path.name)
    assert again.returncode == 2 and "nothing failed" in again.stderr
