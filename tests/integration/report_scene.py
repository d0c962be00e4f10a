"""A cluster whose nodes are as good as a file says, and runs of a quick check on it over some weeks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopback import Loopback, loopback
from report_forms import rows_of

NODES, WEEKS = 8, 8
SIZES = (1024, 32768, 1048576)
KEY = SIZES[-1]
# A rate at three sizes, with half a percent of noise; the file steer/NODE says how good the node is today.
CHECK = '''
from hpcadmin.check import *
PROGRAM = """
read factor <"$1/$SLURMD_NODENAME"
echo "node $SLURMD_NODENAME"
awk -v f="$factor" -v seed="$(od -An -N3 -tu4 /dev/urandom)" 'BEGIN {
    srand(seed)
    for (size = 1024; size <= 1048576; size *= 32)
        printf "%d %.3f\\\\n", size, f * size / 512 * (0.9975 + 0.005 * rand())
}'
"""
def steps(c):
    return (Step(("sh", "-c", PROGRAM, "sh", "STEER")),)
def parse(o, c):
    lines = [line.split() for line in o[0].text.splitlines()]
    subject = Subject((lines[0][1],))
    return [Measurement("rate", float(v), "MB/s", int(s), subject=subject, key=s == "1048576") for s, v in lines[1:]]
CHECK = Check("speed", "A node's rate", Scope.NODE, steps, parse, seconds=0.1)
'''
LIMIT = """
[[limit]]
check = "speed"
measurement = "rate"
unit = "MB/s"
size_bytes = 1048576
min = 1400.0
source = "made up"
date = "2026-11-30"
"""
CRITERIA = """
[contract]
title = "Eight nodes"
[[criterion]]
number = "1"
text = "1400 MB/s at 1 MiB"
checks = ["speed"]
measurement = "rate"
unit = "MB/s"
size_bytes = 1048576
min = 1400.0
[[criterion]]
number = "2"
text = "Every node"
coverage = { nodes = 100.0 }
"""
WAIVER = """
[[waiver]]
name = "W1"
who = "Somebody"
reason = "node n03 is repaired in May"
until = 2099-12-31
nodes = "n03"
"""
# Of another time: as if the run had been made so many days ago.
CLOCK = """
import datetime, hpcadmin.run_folder as folder
class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - datetime.timedelta(days={days})
folder.datetime = Then
from hpcadmin.cli import main
main()
"""


def validate(cluster: Loopback, days: float = 0.0, **steer: float) -> Path:
    """A run with these nodes better or worse; the exit status is seen by its folder."""
    for node in cluster.nodes:
        (cluster.dir / "steer" / node).write_text(f"{steer.get(node, 1.0)}\n")
    before = set(runs(cluster))
    done = subprocess.run([sys.executable, "-c", CLOCK.format(days=days), *arguments(cluster)], env=cluster.env,
                          capture_output=True, text=True, timeout=120, check=False)
    made = set(runs(cluster)) - before
    assert len(made) == 1, done.stdout + done.stderr
    assert done.returncode == (1 if min(steer.values(), default=1.0) < 0.68 else 0), done.stdout + done.stderr
    return made.pop()


def arguments(cluster: Loopback) -> list[str]:
    return ["--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / "quick.toml")]


def runs(cluster: Loopback) -> list[Path]:
    return sorted((cluster.dir / "admin/runs").glob("2*"))


@contextmanager
def steered(folder: Path) -> Iterator[Loopback]:
    settings = {"KillWait": "2", "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"}
    with loopback(folder, NODES, settings=settings) as running:
        for name in ("checks", "steer", "home"):
            (running.dir / name).mkdir()
        (running.dir / "checks/speed.py").write_text(CHECK.replace("STEER", str(running.dir / "steer")))
        (running.dir / "quick.toml").write_text('[[entry]]\ncheck = "speed"\n')
        (running.dir / "site.toml").write_text(
            f'[run]\nchecks_dir = "{running.dir}/checks"\n[slurm]\nmpi = "none"\n{LIMIT}')
        (running.dir / "inventory.json").write_text(json.dumps({
            "schema": 1, "nodes": [{"name": n} for n in running.nodes]}))
        (running.dir / "ok.toml").write_text(CRITERIA)
        (running.dir / "waived.toml").write_text(WAIVER)
        yield running


def hpcadmin(cluster: Loopback, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), *argv,
                            **{"HOME": str(cluster.dir / "home"), **env})
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


def as_json(cluster: Loopback, *argv: str, status: int = 0) -> Any:
    done = hpcadmin(cluster, *argv, "--json")
    assert done.returncode == status, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout)


def measured(words: list[str] | tuple[str, ...]) -> tuple[int, float] | None:
    return (int(words[0]), float(words[1])) if len(words) == 2 and words[0].isdigit() else None


def ids(run: Path) -> dict[str, str]:
    """Node -> its test, the first one."""
    plan = json.loads((run / "plan.json").read_text())
    return {t["subject"]["nodes"][0]: t["id"] for t in plan["tests"] if not t.get("repeats")}


def firsts(run: Path) -> list[float]:
    """The judged value of each node, when it was measured first."""
    return [value for test, size, value in rows_of(run, measured) if size == KEY and test in ids(run).values()]
