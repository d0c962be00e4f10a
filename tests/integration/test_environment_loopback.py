"""What is around a suite's programs, on a real Slurm: MPI flavours, real modules, variables, the script by hand."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from select import select
from time import monotonic

import pytest
from loopback import Loopback, loopback, wait_until

from hpcadmin.check import Status
from hpcadmin.frames import scan
from hpcadmin.rundata import Run, read_run

pytestmark = [pytest.mark.lab, pytest.mark.skipif(
    not Path("/usr/share/modules/init/sh").exists(), reason="not installed: environment-modules")]

# Nothing of it may be evaluated on the way to the program, and not a character may be lost.
HOSTILE = """a "b" 'c' $(touch {here}/owned) `touch {here}/owned` ; touch {here}/owned & $HOME \\\\ %j !x *"""
AROUND = '''
from hpcadmin.check import *
SAYS = 'printf "%s|%s|%s|%s|%s\\\\n" "$SLURMD_NODENAME" "$LOADEDMODULES" "$FROM_SITE" "$FROM_SUITE" "$OWN"'
def steps(c):
    return tuple(Step(("sh", "-c", SAYS), role, env={{"OWN": "check"}}) for role in (Role.EACH, Role.RANKS))
def parse(o, c):
    found = {{tuple(line.split("|", 1)) for out in o for line in out.text.splitlines()}}
    nodes = {{n.name for n in c.nodes}}
    if {{node for node, _ in found}} != nodes or len({{rest for _, rest in found}}) != 1:
        raise ParseError(str(found))
    return [Measurement("around", found.pop()[1], expected={expected!r}, subject=Subject(tuple(sorted(nodes))))]
CHECK = Check("around", "around", Scope.GROUP, steps, parse)
'''
# Started by every flavour: what tells a program its rank. The second one hangs, with a process of its own.
FLAVOUR = '''
from hpcadmin.check import *
def steps(c):
    says = 'echo "${PMI_RANK:+pmi2}${PMIX_RANK:+pmix}${OMPI_COMM_WORLD_SIZE:+,mpirun}"'
    return (Step(("sh", "-c", says), Role.RANKS, tasks_per_node=2),)
def parse(o, c):
    told = " ".join(sorted(o[0].text.split()))
    return [Measurement("told", told, expected=c.params["told"], subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("flavour", "flavour", Scope.PAIR, steps, parse, params={"told": ""})
'''
HANGS = '''
from hpcadmin.check import *
def steps(c):
    return (Step(("sh", "-c", "echo up; sleep 12345 & wait"), Role.RANKS, timeout_s=1.0),)
CHECK = Check("hangs", "hangs", Scope.GROUP, steps, lambda o, c: [])
'''
# Its rounds say that they have begun, and end when somebody says so.
WAITS = '''
from hpcadmin.check import *
def steps(c):
    go_on = "; until [ -e {here}/go ]; do sleep 0.1; done; printf '1\\\\033[2J'"
    return (Step(("sh", "-c", ": >{here}/begun" + go_on), Role.RANKS),)
def parse(o, c):
    raise ParseError(o[0].text)
CHECK = Check("waits", "waits", Scope.PAIR, steps, parse)
'''
SITE = """
[run]
checks_dir = "{here}/checks"
[slurm]
nice = 7
[modules]
paths = ["{here}/modulefiles"]
load = ["ofthesite"]
[env]
FROM_SITE = "site"
FROM_SUITE = "site"
OWN = "site"
[suites.around.env]
OWN = "suite"
"""
SUITE = """
modules = ["ofthesuite/2"]
[env]
FROM_SUITE = {hostile}
[[entry]]
check = "around"
"""
MPI = """
mpi = "{mpi}"
pairs = 1
[env]
OMPI_MCA_mpi_yield_when_idle = "1"
OMPI_MCA_btl = "self,tcp"
[[entry]]
check = "flavour"
params = {{ told = "{told}" }}
"""
REAL = """
[[entry]]
check = "mpi_hello"
params = { tasks_per_node = 2 }
[[entry]]
check = "mpi_pingpong"
params = { seconds = 0.05, max_bytes = 4096 }
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with loopback(tmp_path_factory.mktemp("around") / "slurm", 3) as running:
        here = running.dir
        for name in ("ofthesite", "ofthesuite/2"):
            (here / "modulefiles" / name).parent.mkdir(parents=True, exist_ok=True)
            (here / "modulefiles" / name).write_text("#%Module1.0\n")
        (here / "checks").mkdir()
        expected = f"ofthesuite/2|site|{HOSTILE.format(here=here)}|check"
        (here / "checks/around.py").write_text(AROUND.format(expected=expected))
        (here / "checks/flavour.py").write_text(FLAVOUR)
        (here / "checks/hangs.py").write_text(HANGS)
        (here / "checks/waits.py").write_text(WAITS.format(here=here))
        (here / "waits.toml").write_text('mpi = "none"\n[[entry]]\ncheck = "waits"\n')
        (here / "around.toml").write_text(SUITE.format(hostile=json.dumps(HOSTILE.format(here=here))))
        (here / "site.toml").write_text(SITE.format(here=here))
        (here / "inventory.json").write_text(json.dumps({"schema": 1, "nodes": [
            {"name": n, "tools": {"osu_bw": "", "osu_latency": ""}} for n in running.nodes]}))
        yield running


def validate(cluster: Loopback, suite: str, *more: str) -> subprocess.CompletedProcess[str]:
    return cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / suite), *more)


def last(cluster: Loopback) -> Run:
    return read_run(sorted((cluster.dir / "admin/runs").glob("2*"), key=lambda p: p.stat().st_mtime)[-1])


def test_what_is_around_a_suite_reaches_every_program_as_it_is(cluster: Loopback) -> None:
    hostile = HOSTILE.format(here=cluster.dir)
    told = validate(cluster, "around.toml", "--plan")
    assert told.returncode == 0, told.stderr
    assert "  MPI programs by srun --mpi=pmix\n  modules of every step: ofthesuite/2\n" in told.stdout
    assert f"  variables: FROM_SITE=site FROM_SUITE={hostile} OWN=suite\n" in told.stdout
    around = {"mpi": "pmix", "modules": ["ofthesuite/2"], "container": "",
              "env": {"FROM_SITE": "site", "FROM_SUITE": hostile, "OWN": "suite"}}
    assert json.loads(validate(cluster, "around.toml", "--plan", "--json").stdout)["plan"]["environment"] == around
    done = validate(cluster, "around.toml", "--partition", "short", "--account", "a b", "--time-limit", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    run = last(cluster)
    assert [(v.check, v.status) for v in run.verdicts] == [("around", Status.PASS)]
    assert json.loads((run.path / "plan.json").read_text())["environment"] == around
    script = (run.path / "jobs/1/script").read_text()
    wanted = {"--partition=short", '--account="a b"', "--time=4", "--nice=7", "--exclusive", "--no-requeue",
              "--no-kill", f"--comment=hpcadmin:{run.path.name}:1"}
    assert wanted <= {line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")}
    by_hand(cluster, run)
    assert not (cluster.dir / "owned").exists()


def by_hand(cluster: Loopback, run: Run) -> None:
    """The script that is kept does the same again, and nothing to what the run left."""
    job = run.path / "jobs/1"
    before = {p.name: p.read_bytes() for p in job.iterdir() if p.name.endswith(".log")}
    number = cluster.slurm("sbatch", "--parsable", str(job / "script")).strip()
    wait_until((job / f"by-hand-{number}/done").exists)
    again = {p.name: p.read_bytes() for p in (job / f"by-hand-{number}").iterdir() if p.name.endswith(".log")}
    assert {p.name: p.read_bytes() for p in job.iterdir() if p.name.endswith(".log")} == before
    assert outputs(before) == outputs(again) and len(outputs(again)) == 4       # three nodes, and the ranks


def outputs(logs: dict[str, bytes]) -> dict[tuple[str, str], list[bytes]]:
    frames = [frame for name, data in logs.items() for frame in scan(data, name).frames]
    return {(frame.role, frame.node): sorted(frame.body.splitlines()) for frame in frames}


@pytest.mark.parametrize(("mpi", "told"), [("pmix", "pmix"), ("pmi2", "pmi2"), ("none", ""), ("mpirun", "pmix,mpirun")])
def test_each_flavour_starts_the_ranks_where_they_belong(cluster: Loopback, mpi: str, told: str) -> None:
    real = REAL if mpi in ("pmix", "mpirun") else ""            # Debian's Open MPI speaks PMIx alone
    hangs = '[[entry]]\ncheck = "hangs"\n' if mpi == "mpirun" else ""
    four = " ".join([told] * 4 if told else [])
    (cluster.dir / f"{mpi}.toml").write_text(MPI.format(mpi=mpi, told=four) + hangs + real)
    done = validate(cluster, f"{mpi}.toml")
    run = last(cluster)
    assert run.plan is not None and run.plan.environment.mpi == mpi
    by_check: dict[str, set[Status]] = {}
    for v in run.verdicts:
        by_check.setdefault(v.check, set()).add(v.status)
    assert by_check.pop("flavour") == {Status.PASS}, done.stdout + done.stderr
    if real:
        assert by_check.pop("mpi_hello") == {Status.PASS}, done.stdout + done.stderr
        assert by_check.pop("mpi_pingpong") <= {Status.PASS, Status.UNJUDGED}, done.stdout     # measured; no limit
    if hangs:
        assert by_check.pop("hangs") == {Status.ERROR}
        wait_until(lambda: not [pid for pid in running("sleep\x0012345\x00") if str(cluster.dir) in pid[1]])
    assert not by_check
    cluster.wait_empty()


def running(words: str) -> list[tuple[int, str]]:
    """Processes with this command line, and their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == words.encode():
                found.append((int(folder.name), (folder / "environ").read_bytes().decode("utf-8", "replace")))
        except OSError:
            continue
    return found


class Terminal:
    """A command on a real one of 40 columns."""

    def __init__(self, cluster: Loopback, argv: list[str], term: str) -> None:
        self.fd, there = pty.openpty()
        ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        self.text = ""
        self.process = subprocess.Popen(argv, stdin=there, stdout=there, stderr=there,
                                        env={**cluster.env, "TERM": term})
        os.close(there)

    def until(self, words: str, seconds: float = 90) -> None:
        end = monotonic() + seconds
        while words not in self.text:
            assert monotonic() < end and self.read(), self.text

    def read(self) -> bool:
        if not select([self.fd], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False                    # EIO: closed
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def end(self) -> int:
        while self.read():
            pass
        os.close(self.fd)
        return self.process.wait(60)


@pytest.mark.parametrize(("term", "times"), [("xterm", 1), ("xterm", 2), ("dumb", 1)])
def test_ctrl_c_on_a_terminal_says_what_it_does(cluster: Loopback, term: str, times: int) -> None:
    argv = [sys.executable, "-m", "hpcadmin", "--site", str(cluster.dir / "site.toml"), "validate", "--allow-root",
            "--inventory", str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / "waits.toml")]
    for name in ("go", "begun"):
        (cluster.dir / name).unlink(missing_ok=True)
    terminal = Terminal(cluster, argv, term)
    terminal.until("suite, 3 nodes")
    wait_until((cluster.dir / "begun").exists)
    for _ in range(times):
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("stopping after this round; once more cancels what runs now")
    if times == 1:
        (cluster.dir / "go").touch()
    assert terminal.end() == 130
    words = "interrupted: 1 job cancelled" if times == 2 else ": 1\\x1b[2J1"
    assert words in terminal.text
    assert f"hpcadmin validate --resume {last(cluster).path.name} goes on with it" in terminal.text
    assert "\x1b[2J" not in terminal.text and (term == "xterm" or "\x1b" not in terminal.text)
    assert {v.status for v in last(cluster).verdicts} == {Status.NOT_RUN} | ({Status.ERROR} if times == 1 else set())
    assert all("COMPLETING" in line for line in cluster.queue())        # cancelled: no other job is in this queue


def test_what_slurm_refuses_is_told_in_its_words(cluster: Loopback) -> None:
    before = cluster.jobs()
    for option, words in (("--reservation=none", "Requested reservation is invalid"),
                          ("--partition=nowhere", "nowhere")):
        done = validate(cluster, "around.toml", option)
        assert done.returncode in (2, 4) and words in done.stderr, done.stderr
        assert done.stderr.splitlines()[-1].startswith("hpcadmin: ")
    assert cluster.jobs() <= before


@pytest.mark.parametrize(("text", "line", "words"), [
    ('mpi = "pmx"', 1, "mpi is 'pmx': must be pmix"), ('\n[env]\n"A=B" = "x"', 3, "is not the name of an environment"),
    ('modules = ["a $(id)"]', 1, "which is not the name of a module")])
def test_wrong_words_are_told_with_their_line(cluster: Loopback, text: str, line: int, words: str) -> None:
    path = cluster.dir / "wrong.toml"
    path.write_text(f'{text}\n[[entry]]\ncheck = "around"\n')
    done = validate(cluster, "wrong.toml", "--plan")
    assert done.returncode == 2 and done.stderr.startswith(f"hpcadmin: {path}:{line}: ") and words in done.stderr
    assert not done.stdout
