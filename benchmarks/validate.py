#!/usr/bin/env python3
"""Overhead of `validate` with trivial payloads on a private Slurm on 127.0.0.1, side by side with floors; root only.

    python benchmarks/validate.py CASE... [--rounds 5] [--keep FILE] [--reframe FILE]

Cases: seven (7 node checks, 64 nodes), reframe (the same beside ReFrame 4), pairs (28 pairs, 8 nodes), all-pairs (2,016
pairs, 64 nodes), busy (the same on nodes that become free one by one), poll (500 jobs). Floor: one plain sbatch whose
script does the same by srun, and squeue every 0.5 s. --keep adds what is measured to a file, and the table is of all
that is there: so a case can be measured in parts.

The floor of `busy` is computed. No schedule can be faster, because
- the pairs of the nodes that come k-th and later take what the plain loop of steps takes for as many, after the k-th;
- the node that comes last must meet all others, one after the other;
- a job must be submitted and begin.
What a pair takes in the loop, a step alone, and the start of a job are measured beside it on the same cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/integration"))
from loopback import Loopback, loopback  # noqa: E402

from hpcadmin.check import JobRequest, Role, Step, Subject  # noqa: E402
from hpcadmin.run_job import JobRun, wait_all  # noqa: E402
from hpcadmin.run_progress import Progress  # noqa: E402
from hpcadmin.rundata import PlannedJob, PlannedTest, Stage  # noqa: E402
from hpcadmin.slurm.command_line import CommandLine  # noqa: E402
from hpcadmin.slurm.script import JobOptions  # noqa: E402

# What slurmd, slurmstepd and the batch script's end send: no client's doing.
SERVERS = {"MESSAGE_NODE_REGISTRATION_STATUS", "MESSAGE_EPILOG_COMPLETE", "REQUEST_COMPLETE_BATCH_SCRIPT",
           "REQUEST_STEP_COMPLETE", "REQUEST_PING", "REQUEST_STATS_INFO"}
CHECK = '''
from hpcadmin.check import *
def steps(c):
    return (Step(("sh", "-c", "echo bw 12.5"),{role}),)
def parse(o, c):
    return [Measurement("bw", float(o[0].text.split()[1]), "GB/s", expected=12.5,
                        subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("{name}", "{name}", Scope.{scope}, steps, parse, seconds={seconds})
'''
SEVEN = """#!/bin/sh
srun -o out.%N sh -c 'for k in 1 2 3 4 5 6 7; do sh -c "echo node=$SLURMD_NODENAME k=$k; echo bw 12.5"; done'
"""
PAIRS = """#!/bin/bash
n=($(scontrol show hostnames "$SLURM_JOB_NODELIST")); N=${#n[@]}
for ((r = 0; r < N - 1; r++)); do
  c=(${n[0]}); for ((k = 0; k < N - 1; k++)); do c+=(${n[$((1 + (k + r) % (N - 1)))]}); done
  for ((i = 0; i < N / 2; i++)); do
    srun -N2 -n2 --ntasks-per-node=1 -w "${c[i]},${c[N - 1 - i]}" --exact sh -c "echo bw 12.5" >b.$r.$i 2>e.$r.$i &
  done
  wait
done
"""
REFRAME_SITE = """
site_configuration = {
 'systems': [{'name': 'loopback', 'hostnames': ['.*'], 'partitions': [
   {'name': 'val', 'scheduler': 'squeue', 'launcher': 'srun', 'environs': ['builtin'], 'access': ['-p val'],
    'max_jobs': 200}]}],
 'environments': [{'name': 'builtin', 'cc': 'cc', 'cxx': '', 'ftn': ''}]}
"""
REFRAME_TESTS = """
import reframe as rfm
import reframe.utility.sanity as sn
class Base(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']; valid_prog_environs = ['*']
    executable = 'bash'; executable_opts = ['-c', '"echo node=$SLURMD_NODENAME; echo bw 12.5"']
    num_tasks = 1; time_limit = '2m'
    @sanity_function
    def ran(self): return sn.assert_found(r'node=n\\d+', self.stdout)
    @performance_function('GB/s')
    def bw(self): return sn.extractsingle(r'bw (\\S+)', self.stdout, 1, float)
@rfm.simple_test
class T1(Base):
    k = parameter(range(1))
@rfm.simple_test
class T7(Base):
    k = parameter(range(7))
"""


@dataclass(frozen=True)
class Run:
    """What one command took: CPU of the processes that it started here, of which slurmd's are none."""

    name: str
    wall_s: float
    cpu_s: float
    mib: int
    jobs: int
    client_rpcs: int
    rpcs: dict[str, int] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    call: Callable[[Loopback], object]


# --- measuring --------------------------------------------------------------------------------------------------


def told(cluster: Loopback) -> tuple[dict[str, int], int]:
    """RPCs to slurmctld by type, and jobs submitted, so far."""
    text = cluster.slurm("sdiag")
    jobs = re.search(r"Jobs submitted:\s+(\d+)", text)
    assert jobs, text
    part = text.partition("statistics by message type")[2].partition("statistics by user")[0]
    return {m[1]: int(m[2]) for m in re.finditer(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)", part, re.M)}, int(jobs[1])


def measure(cluster: Loopback, case: Case) -> Run:
    """In a child, so that it is all and only its processes whose CPU time and memory are told."""
    before, jobs_before = told(cluster)
    begin = time.perf_counter()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            note = case.call(cluster)
            (cluster.dir / "note").write_text(note if isinstance(note, str) else "")
            status = 0
        except BaseException as exc:  # noqa: BLE001  (told by the parent)
            print(f"{case.name}: {exc}", file=sys.stderr)
        finally:
            os._exit(status)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - begin
    if status:
        raise SystemExit(f"{case.name} failed")
    after, jobs = told(cluster)
    rpcs = {k: v - before.get(k, 0) for k, v in after.items() if v > before.get(k, 0) and k != "REQUEST_STATS_INFO"}
    return Run(case.name, round(wall, 3), round(used.ru_utime + used.ru_stime, 3), used.ru_maxrss >> 10,
               jobs - jobs_before, sum(v for k, v in rpcs.items() if k not in SERVERS), rpcs,
               (cluster.dir / "note").read_text())


def floor(cluster: Loopback, script: str, nodes: int) -> None:
    job = cluster.slurm("sbatch", "--parsable", "--exclusive", f"-N{nodes}", "--ntasks-per-node=1", "-o", "/dev/null",
                        "-D", str(cluster.dir / "floor"), str(cluster.dir / script)).strip()
    while cluster.slurm("squeue", "-h", "-j", job, "-o", "%i").strip():
        time.sleep(0.5)


def validate(cluster: Loopback, suite: str, *more: str) -> None:
    done = cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / suite), *more,
                            timeout=900)
    if done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])


def reframe(cluster: Loopback, program: str, test: str, nodes: int) -> None:
    done = subprocess.run([program, "-C", "site.py", "-c", "tests.py", "-n", test, "--distribute=all",
                           "-r", "--prefix", "out", "-J", f"nodelist=n[01-{nodes:02d}]" if nodes < 64 else "exclusive"],
                          cwd=cluster.dir / "reframe", env=cluster.env, capture_output=True, text=True, check=False)
    if done.returncode or "Ran " not in done.stdout:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])


# --- the cluster ------------------------------------------------------------------------------------------------


def prepare(cluster: Loopback) -> None:
    checks = cluster.dir / "checks"
    for folder in (checks, cluster.dir / "floor", cluster.dir / "reframe"):
        folder.mkdir()
    for number in range(7):
        (checks / f"n{number}.py").write_text(
            CHECK.format(role="", name=f"n{number}", scope="NODE", seconds=0.1))
    (checks / "pair.py").write_text(CHECK.format(role=" Role.RANKS", name="pair", scope="PAIR", seconds=1.0))
    (cluster.dir / "seven.toml").write_text("".join(f'[[entry]]\ncheck = "n{n}"\n' for n in range(7)))
    (cluster.dir / "one.toml").write_text('[[entry]]\ncheck = "n0"\n')
    (cluster.dir / "pairs.toml").write_text('[[entry]]\ncheck = "pair"\n')
    (cluster.dir / "seven.sh").write_text(SEVEN)
    (cluster.dir / "pairs.sh").write_text(PAIRS)
    (cluster.dir / "site.toml").write_text(f'[run]\nchecks_dir = "{checks}"\n[slurm]\nmpi = "none"\n')
    (cluster.dir / "inventory.json").write_text(json.dumps(
        {"schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))
    (cluster.dir / "reframe/site.py").write_text(REFRAME_SITE)
    (cluster.dir / "reframe/tests.py").write_text(REFRAME_TESTS)


def at_once(cluster: Loopback) -> None:
    """slurmctld looks for jobs to start every 3 s; by which part of that a job misses its turn is luck, and more than
    what is compared here."""
    with (cluster.dir / "slurm.conf").open("a") as stream:
        stream.write("SchedulerParameters=batch_sched_delay=0\n")
    cluster.slurm("scontrol", "reconfigure")
    cluster.wait_idle(len(cluster.nodes))


@contextmanager
def cluster_of(nodes: int, *, quick: bool = True) -> Iterator[Loopback]:
    with tempfile.TemporaryDirectory() as folder, loopback(Path(folder) / "slurm", nodes) as cluster:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        if quick:
            at_once(cluster)
        prepare(cluster)
        yield cluster


def in_turn(cluster: Loopback, cases: list[Case], rounds: int, *, warm: bool) -> Iterator[Run]:
    """Side by side: what disturbs one disturbs all."""
    nodes = len(cluster.nodes)
    for number in range(rounds + warm):
        for case in cases:
            cluster.wait_idle(nodes, 120)
            run = measure(cluster, case)
            if number >= warm:
                print(f"  {run.name}: {run.wall_s:.2f} s, {run.client_rpcs} RPCs {run.note}", file=sys.stderr)
                yield run


# --- cases ------------------------------------------------------------------------------------------------------


def seven(options: argparse.Namespace) -> Iterator[Run]:
    nodes = options.nodes or 64
    name = f"7 node checks, {nodes} nodes"
    cases = [Case(f"{name}: floor", lambda c: floor(c, "seven.sh", nodes)),
             Case(f"{name}: validate", lambda c: validate(c, "seven.toml"))]
    with cluster_of(nodes) as cluster:
        yield from in_turn(cluster, cases, options.rounds, warm=True)


def with_reframe(options: argparse.Namespace) -> Iterator[Run]:
    """Slurm as it is: its waits are a part of what many jobs cost."""
    program = options.reframe
    with cluster_of(64, quick=False) as cluster:
        yield from in_turn(cluster, [
            Case("1 check, 64 nodes, Slurm as it is: ReFrame", lambda c: reframe(c, program, "T1", 64)),
            Case("1 check, 64 nodes, Slurm as it is: validate", lambda c: validate(c, "one.toml")),
            Case("7 node checks, 64 nodes, Slurm as it is: validate", lambda c: validate(c, "seven.toml")),
            Case("7 node checks, 8 nodes, Slurm as it is: ReFrame", lambda c: reframe(c, program, "T7", 8)),
            Case("7 node checks, 8 nodes, Slurm as it is: validate",
                 lambda c: validate(c, "seven.toml", "-w", "n[01-08]"))], options.rounds, warm=False)


def pairs(options: argparse.Namespace, nodes: int = 8) -> Iterator[Run]:
    nodes = options.nodes or nodes
    name = f"{nodes * (nodes - 1) // 2:,} pairs, {nodes} nodes"
    cases = [Case(f"{name}: floor", lambda c: floor(c, "pairs.sh", nodes)),
             Case(f"{name}: validate", lambda c: validate(c, "pairs.toml"))]
    with cluster_of(nodes) as cluster:
        yield from in_turn(cluster, cases, options.rounds, warm=nodes < 32)


# --- nodes that become free one by one --------------------------------------------------------------------------


ALONE = """#!/bin/bash
date +%s.%N >begun
a=$(date +%s%N)
for ((k = 0; k < 20; k++)); do srun -N2 -n2 --ntasks-per-node=1 --exact sh -c "echo bw 12.5" >/dev/null; done
echo $((($(date +%s%N) - a) / 20000000)) >step_ms
"""
OTHER = """#!/bin/sh
sleep "$1"
date +%s.%N >"free.$SLURMD_NODENAME"
"""


def job_of(cluster: Loopback, *argv: str) -> None:
    number = cluster.slurm("sbatch", "--parsable", "-o", "/dev/null", "-D", str(cluster.dir / "floor"), *argv).strip()
    while cluster.slurm("squeue", "-h", "-j", number, "-o", "%i").strip():
        time.sleep(0.2)


def basics(cluster: Loopback, nodes: int) -> tuple[float, float, float]:
    """Seconds that a pair takes in the plain loop over all nodes, a step alone, and the start of a job."""
    place = cluster.dir / "floor"
    (cluster.dir / "alone.sh").write_text(ALONE)
    for _ in range(2):          # the first one is slow
        begin = time.time()
        job_of(cluster, "--exclusive", "-N2", "--ntasks-per-node=1", str(cluster.dir / "alone.sh"))
    start = float((place / "begun").read_text()) - begin
    alone = float((place / "step_ms").read_text()) / 1000
    rounds = min(8, nodes - 1)
    text = PAIRS.replace("#!/bin/bash", "#!/bin/bash\ndate +%s.%N >begun").replace("r < N - 1", f"r < {rounds}")
    text += "date +%s.%N >ended\n"
    (cluster.dir / "timed.sh").write_text(text)
    job_of(cluster, "--exclusive", f"-N{nodes}", "--ntasks-per-node=1", str(cluster.dir / "timed.sh"))
    took = float((place / "ended").read_text()) - float((place / "begun").read_text())
    return took / (rounds * (nodes // 2)), alone, start


def ideal(free_at: list[float], pair: float, alone: float, start: float) -> float:
    count = len(free_at)
    loops = [when + pair * (count * (count - 1) - k * (k - 1)) / 2 for k, when in enumerate(sorted(free_at))]
    return start + max(*loops, max(free_at) + alone * (count - 1))


def occupied(cluster: Loopback, gap: float, measured: tuple[float, float, float]) -> str:
    """All nodes but the first are somebody else's; one after the other becomes free."""
    place = cluster.dir / "floor"
    for old in place.glob("free.*"):
        old.unlink()
    (cluster.dir / "other.sh").write_text(OTHER)
    others = cluster.nodes[1:]
    begin = time.time() + 0.04 * len(others)
    for number, node in enumerate(others, 1):
        cluster.slurm("sbatch", "-J", "other", "--exclusive", "-w", node, "-o", "/dev/null", "-D", str(place),
                      str(cluster.dir / "other.sh"), f"{begin + gap * number - time.time():.2f}")
    while len(cluster.slurm("squeue", "-h", "-t", "R", "-o", "%i").split()) < len(others):
        time.sleep(0.1)
    begin = time.time()
    validate(cluster, "pairs.toml")
    took = time.time() - begin
    free_at = [0.0, *(max(0.0, float((place / f"free.{n}").read_text()) - begin) for n in others)]
    best = ideal(free_at, *measured)
    (cluster.dir / "best").write_text(json.dumps([best, took]))
    return (f"last node free at {max(free_at):.1f} s, ideal {best:.1f} s, {took / best:.2f} times that (a pair in the "
            f"loop {measured[0]:.3f} s, a step alone {measured[1]:.3f} s, start of a job {measured[2]:.2f} s)")


def busy(options: argparse.Namespace) -> Iterator[Run]:
    nodes = options.nodes or 64
    name = f"{nodes * (nodes - 1) // 2:,} pairs, {nodes} nodes free one by one"
    with cluster_of(nodes) as cluster:
        for _ in range(options.rounds):
            cluster.wait_idle(nodes, 120)
            measured = basics(cluster, nodes)
            cluster.wait_idle(nodes, 120)
            run = measure(cluster, Case(f"{name}: validate", lambda c, m=measured: occupied(c, options.gap, m)))
            best, took = json.loads((cluster.dir / "best").read_text())
            print(f"  {run.note}; {run.jobs - nodes + 1} jobs, {run.client_rpcs} RPCs", file=sys.stderr)
            yield replace(run, wall_s=round(took, 3), jobs=run.jobs - nodes + 1)
            yield Run(f"{name}: floor", round(best, 3), 0.0, 0, 0, 0)


# --- polling ----------------------------------------------------------------------------------------------------


class OverError(Exception):
    """The time is over."""


def waiting_jobs(cluster: Loopback, count: int) -> list[JobRun]:
    """So many jobs that wait for nodes which another has, as the runs that would be watched."""
    cluster.slurm("sbatch", "--exclusive", f"-N{len(cluster.nodes)}", "-o", "/dev/null", "--wrap", "sleep 3600")
    client, progress, found = CommandLine(cluster.env), Progress(quiet=True), []
    for number in range(1, count + 1):
        folder = cluster.dir / "polled" / str(number)
        folder.mkdir(parents=True)
        node = cluster.nodes[number % len(cluster.nodes)]
        step = Step(("true",), Role.JOB, nodes=(node,), job=JobRequest())
        test = PlannedTest(f"t{number:04d}", "polled", Subject((node,)), (step,), number)
        job = PlannedJob(number, "own", (node,), (Stage("job", "polled", (test.id,)),), 1.0, 60, 0)
        run = JobRun(client, job, {test.id: test}, JobOptions("polled"), folder, progress)
        run.adopt(int(cluster.slurm("sbatch", "--parsable", "-N1", "-w", node, "-o", "/dev/null", "--wrap", "true")))
        found.append(run)
    return found


def poll(options: argparse.Namespace) -> Iterator[Run]:
    """A few minutes: what a minute costs, as the minutes go by."""
    with cluster_of(8) as cluster:
        runs = waiting_jobs(cluster, 500)
        begin, cpu, rows = time.monotonic(), time.process_time(), []
        polls = 0

        def watch(asked: bool) -> None:
            nonlocal polls
            polls += asked
            if time.monotonic() - begin > 60 * (len(rows) + 1):
                rows.append((told(cluster)[0], polls, time.process_time() - cpu))
                if len(rows) == options.minutes:
                    raise OverError
        before = told(cluster)[0]
        with contextlib.suppress(OverError):
            wait_all(runs, runs[0].client, runs[0].progress, watch)
        for minute, (after, asked, used) in enumerate(rows, 1):
            rpcs = {k: v - before.get(k, 0) for k, v in after.items() if v > before.get(k, 0) and k not in SERVERS}
            earlier = rows[minute - 2] if minute > 1 else (before, 0, 0.0)
            here = sum(v - earlier[0].get(k, 0) for k, v in after.items() if k not in SERVERS)
            yield Run(f"500 jobs that wait, minute {minute}", 60.0, round(used - earlier[2], 2), 0, 500, here, rpcs,
                      f"{asked - earlier[1]} questions, {here / 60:.3f} RPC/s")
        cluster.slurm("scancel", "--user=root")
        cluster.wait_idle(8, 120)


CASES = {"seven": seven, "reframe": with_reframe, "pairs": pairs, "all-pairs": lambda o: pairs(o, 64),
         "busy": busy, "poll": poll}


# --- the table --------------------------------------------------------------------------------------------------


def show(runs: list[Run]) -> None:
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    print("| case | runs | s | above the floor | times the floor | CPU s | MiB | jobs | client RPCs |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, mine in by_name.items():
        def middle(what: str, mine: list[Run] = mine) -> float:
            return statistics.median(getattr(run, what) for run in mine)
        base = by_name.get(f"{name.rpartition(': ')[0]}: floor", []) if not name.endswith(": floor") else []
        least = statistics.median(run.wall_s for run in base) if base else 0.0
        wall = middle("wall_s")
        print(f"| {name} | {len(mine)} | {wall:.2f} | {f'{wall - least:+.2f}' if base else ''} | "
              f"{f'{wall / least:.2f}' if base else ''} | {middle('cpu_s'):.2f} | {middle('mib'):.0f} | "
              f"{middle('jobs'):.0f} | {middle('client_rpcs'):.0f} |")
    for name, mine in by_name.items():
        print(f"\n{name}: {', '.join(f'{k} {v}' for k, v in sorted(mine[-1].rpcs.items()))}")
        print("".join(f"  {run.note}\n" for run in mine if run.note), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--gap", type=float, default=1.5, help="seconds, of busy")
    parser.add_argument("--minutes", type=int, default=8, help="of poll")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reframe", default="reframe")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)         # modules are compiled where a program is installed
    found: list[Run] = []
    if options.keep and options.keep.exists():
        found = [Run(**json.loads(line)) for line in options.keep.read_text().splitlines()]
    for case in options.cases:
        for run in CASES[case](options):
            found.append(run)
            if options.keep:
                with options.keep.open("a") as stream:
                    stream.write(json.dumps(asdict(run)) + "\n")
    show(found)


if __name__ == "__main__":
    main()
