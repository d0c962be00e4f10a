"""A week of nights on a lab: what happens to its nodes, and what a sweep as a process then saw, did and told."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import alarm_servers
from labtool import BIN, Done, Lab, lab, run
from loopback import free_ports, wait_until

from hpcadmin.lab import journal
from hpcadmin.lab.conftext import mca_environment
from hpcadmin.lab.machine import package_parent
from hpcadmin.sweep.rotate import rotation

HERE = Path(__file__).parent
NAME, NET = "hpcweek", "10.209.0.0/24"
NAMES = [f"node{n:02d}" for n in range(1, 9)]
HEALTH = """\
[[check]]
use = "mount"
id = "data"
path = "/data"

[[check]]
use = "gpu"
count = 2

[[check]]
use = "file"
id = "nologin"
path = "/run/nologin"
present = false

[[check]]
use = "process"
name = "slurmd"
"""
SITE = """\
[cluster]
name = "{name}"
[run]
dir = "/shared/admin/state"
[ssh]
user = "root"
[slurm]
partition = "main"
mpi = "pmix"
[suites.nightly.env]
{mpi}
[[limit]]
check = "mpi_pingpong"
measurement = "bandwidth"
unit = "MB/s"
size_bytes = 262144
simulated = true
min = 17.0
source = "lab: more than 100 Mb/s with their burst, less than a cable that is whole"
[[limit]]
check = "ib_write_bw"
measurement = "bandwidth"
unit = "Gb/s"
size_bytes = 65536
simulated = true
min = 0.01
source = "lab: simulated adapters over the same cables; the other test judges these"
[sweep]
{sweep}
health_command = {command}
night_nodes = 3
night_percent = 100
total_nodes = 5
total_percent = 100
[sweep.alarms.mail]
to = ["admin@example.org"]
smtp = "{mail}"
tls = "none"
[sweep.alarms.webhook]
url = "{hook}"
plain_http = true
[sweep.alarms.prometheus]
file = "/shared/admin/hpcadmin.prom"
"""
WAYS = {
    "plain": 'health_via = ["slurm", "ssh"]',
    "tests": 'health_via = ["slurm", "ssh"]\nsuite = "nightly"\nsuite_as_root = true',
    "ssh": 'health_via = ["ssh"]',
}
PROGRAM = ["/shared/node/hpcadmin-health", "--config", "/shared/node/health.json"]


@dataclass
class Week:
    """first: the first night of the story; the clock stands at three in the morning when one begins."""

    lab: Lab
    mails: alarm_servers.Mails
    hooks: alarm_servers.Taken
    first: datetime
    night: int = 0
    story: list[tuple[float, float]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)       # node -> of a drain of the sweep's

    @property
    def admin(self) -> Path:
        return self.lab.shared / "admin"

    def on(self, host: str, script: str, *argv: str, timeout: float = 240) -> Done:
        """A shell's script, of root's."""
        return run([str(BIN / "hpcadmin"), "lab", "exec", "--name", NAME, "--node", host, "--user", "root", "--",
                    "sh", "-c", script, "sh", *argv], timeout)

    def done_on(self, host: str, script: str, *argv: str) -> str:
        done = self.on(host, script, *argv)
        assert done.status == 0, f"{host}: {script}: {done.out}{done.err}"
        return done.out

    def fault(self, node: str, *words: str) -> None:
        done = self.lab.lab("fault", node, *words)
        assert done.status == 0, done.err

    # the file server of /data, as each node sees it

    def mount(self, node: str) -> None:
        """Also again, after it had died."""
        self.done_on(node, "umount -l /data 2>/dev/null; [ -e /dev/fuse ] || mknod /dev/fuse c 10 229\n"
                           "python3 /shared/node/fuse_server.py /data >/run/data.out 2>&1 </dev/null &\n"
                           "echo $! >/run/data.pid")
        wait_until(lambda: self.on(node, "timeout -s KILL 5 stat -f /data").status == 0)

    def server(self, node: str, what: signal.Signals) -> None:
        self.done_on(node, f"kill -{int(what)} $(cat /run/data.pid)")
        if what is signal.SIGKILL:
            wait_until(lambda: "not connected" in self.on(node, "LC_ALL=C stat -f /data").err)

    # a night

    def begin_night(self) -> None:
        self.night += 1
        at = self.first + timedelta(days=self.night - 1)
        self.story.append((time.time(), at.timestamp()))
        (self.admin / "story.json").write_text(json.dumps(self.story))
        self.mails.mails.clear()
        self.hooks.requests.clear()

    def command(self, site: str, *argv: str, kill: str = "") -> Done:
        """hpcadmin on the head, in the story's time."""
        words = (f"PYTHONPATH={package_parent()}", sys.executable, "/shared/node/fast_motion.py",
                 "/shared/admin/story.json", "--site", f"/shared/admin/{site}.toml", *argv)
        return self.on("head", 'kill=$1; shift; exec env TZ=UTC0 KILL="$kill" "$@"', kill, *words, timeout=240)

    def nodes(self) -> dict[str, tuple[str, str]]:
        """node -> state and reason, of those that are not simply idle; when all jobs have ended and whoever was resumed
        has registered anew."""
        found: dict[str, tuple[str, str]] = {}

        def settled() -> bool:
            found.clear()
            for line in self.done_on("head", "scontrol -o show nodes").splitlines():
                name, state = re.findall(r"NodeName=(\S+) .* State=(\S+) ", line)[0]
                reason = re.search(r" Reason=(.*?) \[\S+@\S+\]", line)
                if state != "IDLE" or reason:
                    found[name] = (state, reason[1] if reason else "")
            return {state for state, _ in found.values()} <= {"IDLE", "IDLE+DRAIN"}
        wait_until(settled)
        return found

    def user_gets(self, node: str) -> bool:
        """Whether an ordinary user's job begins there."""
        return self.lab.sh("srun", "-w", node, "--immediate=120", "hostname").out.strip() == node

    def is_kept_from_users(self, node: str) -> bool:
        done = self.lab.sh("srun", "-w", node, "--immediate=1", "hostname")
        return done.status != 0 and "Unable to allocate" in done.err

    def metrics(self) -> dict[str, float]:
        lines = (self.admin / "hpcadmin.prom").read_text().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


    # what slurmd runs by itself

    def health_check_program(self) -> None:
        program = self.lab.shared / "node/check"
        program.write_text(f"#!/bin/sh\nexec {' '.join(PROGRAM)} --drain\n")
        program.chmod(0o755)
        lines = "HealthCheckProgram=/shared/node/check\nHealthCheckInterval=2\nHealthCheckNodeState=ANY\n"
        for host in ("head", *NAMES):
            self.done_on(host, f'printf "{lines}" >>/etc/slurm/slurm.conf')
        self.done_on("head", "scontrol reconfigure")

    def recorded(self, node: str) -> dict[str, Any]:
        """What was found there last, by slurmd or by a sweep; nothing yet: an empty line."""
        text = self.on(node, "cat /var/lib/hpcadmin-health/health.json").out
        found: dict[str, Any] = json.loads(text) if text else {"status": "", "line": "", "time": 0.0}
        return found


def start_of_story() -> datetime:
    """A night from which node04 meets two healthy nodes that stay in service, on the third night and on the fifth."""
    day = datetime(2024, 3, 4, 3, tzinfo=timezone.utc)
    while True:
        met = [partner(day + timedelta(days=n - 1)) for n in (3, 5)]
        if met[0] != met[1] and set(met) <= {"node05", "node07", "node08"}:
            return day
        day += timedelta(days=1)


def partner(night: datetime) -> str:
    """node04's. What is looked at before noon belongs to the night before."""
    pairs = rotation(NAMES).pairs_of((night - timedelta(hours=12)).date().toordinal())
    return next(name for pair in pairs if "node04" in pair for name in pair if name != "node04")


@contextmanager
def week(shared: Path) -> Iterator[Week]:
    """A lab with accounting, simulated GPUs, a file server on each node, and a place for what the admin is told."""
    for folder in (shared, *shared.parents[:2]):
        folder.chmod(0o755)
    with lab(NAME, NET, shared, "--nodes", str(len(NAMES)), "--hardware", "2xT4", "--accounting") as made:
        outside, port = journal.load(NAME).machine_address, free_ports(2)   # of those that no other test minds
        with (alarm_servers.smtp(host=outside, port=port) as mails,
              alarm_servers.web(host=outside, port=port + 1) as hooks):
            found = Week(made, mails, hooks, start_of_story())
            prepare(found)
            yield found


def prepare(found: Week) -> None:
    node = found.lab.shared / "node"
    for folder in (node, found.admin):
        folder.mkdir()
        folder.chmod(0o755)
    (node / "health.toml").write_text(HEALTH)
    for name in ("fuse_server.py", "fast_motion.py"):       # a checkout below /tmp is not seen from within
        (node / name).write_text((HERE / name).read_text())
    for words in (("build", "-o", str(node / "hpcadmin-health")),
                  ("compile", str(node / "health.toml"), "-o", str(node / "health.json"))):
        done = run([str(BIN / "hpcadmin"), "health", *words])
        assert done.status == 0, done.err
    mpi = "\n".join(f"OMPI_MCA_{key} = {json.dumps(str(value))}" for key, value in mca_environment(NET).items())
    for name, ways in WAYS.items():
        (found.admin / f"{name}.toml").write_text(SITE.format(
            name=NAME, mpi=mpi, sweep=ways, mail=found.mails.where, hook=found.hooks.url,
            command=json.dumps([*PROGRAM, "--json", "-", *(["--node", "{node}"] if name == "ssh" else [])])))
    for name in NAMES:
        found.mount(name)


def entries(found: Week, run_id: str) -> list[dict[str, Any]]:
    lines = (found.admin / "state/sweep/ledger.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry.get("run") == run_id]
