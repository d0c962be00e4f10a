"""Availability from real events of a real slurmdbd, on every Slurm that is at hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from database import Accounting, Database, database
from loopback import Loopback, at_hand, children, loopback, wait_until
from slurm_roots import NAMES, slurm

from hpcadmin.proof.parts import Slurm

pytestmark = pytest.mark.lab
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
# A reason with all that could pass for a row, for a column or for something else than text.
HOSTILE = "a|b \"q\" <b>=cmd()\nloopback|n02|2020-01-01T00:00:00|Unknown|DOWN|1|x(0)|\nn02|2020-01-01T00:00:00|pwned"
SITE = '[availability]\nplanned = ["maintenance*"]\nzone = "Europe/Berlin"\n'
RULES = {"TrackSlurmctldDown": "yes", "PurgeEventAfter": "24months"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("database") / "mariadb") as running:
        yield running


@dataclass
class Told:
    """A cluster to which all of it happened, and what the report said of it."""

    cluster: Loopback
    begun: int
    plain: dict[str, Any] = field(default_factory=dict)
    status: int = -1

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return {n["node"]: n for n in self.plain["nodes"]}

    def incidents(self, node: str, what: str = "incidents") -> list[dict[str, Any]]:
        return [i for i in self.plain[what] if node in i["nodes"]]

    def report(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.hpcadmin("--site", str(self.cluster.dir / "site.toml"), "report", *argv)

    def sacctmgr(self, *argv: str) -> list[list[str]]:
        done = subprocess.run(["sacctmgr", "-n", "-P", "show", *argv], env={**self.cluster.env, "TZ": "UTC0"},
                              capture_output=True, text=True, check=False, timeout=60)
        return [line.split("|") for line in done.stdout.splitlines()]

    def set(self, what: str, *argv: str) -> None:
        subprocess.run(["scontrol", what, *argv], env=self.cluster.env, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def told(server: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Told]]:
    """All versions at once, as what takes time here is waiting."""
    started: dict[str, Told] = {}
    with ExitStack() as stack:
        for name in NAMES:
            found = slurm(name)
            if not isinstance(found, Slurm) or not (found.root or shutil.which("slurmdbd", path=SBIN)):
                continue
            accounting = Accounting(server, f"available_{name}", "".join(f"{k}={v}\n" for k, v in RULES.items()))
            folder = tmp_path_factory.mktemp(name or "own") / "slurm"
            begun = int(time.time())
            cluster = stack.enter_context(loopback(
                folder, 5, slurm=found, before=accounting.start,
                settings={**accounting.settings(folder), "SlurmdTimeout": "12", "SlurmctldTimeout": "12"}))
            (folder / "site.toml").write_text(SITE)
            started[name] = Told(cluster, begun)
        with ThreadPoolExecutor() as pool:
            list(pool.map(live, started.values()))
        yield started


def live(told: Told) -> None:
    """What happens to the nodes."""
    cluster = told.cluster
    wait_until(lambda: all(at(row[0]) + 1 < time.time() for row in told.sacctmgr(
        "event", "all_time", "format=Start")))      # slurmdbd keeps one event of a node in a second
    told.set("update", "nodename=n01", "state=drain", f"reason={HOSTILE}")
    told.set("update", "nodename=n02", "state=drain", "reason=maintenance: fan")
    told.set("create", "reservation", "reservationname=power", "starttime=now", "duration=60", "user=root",
             "flags=maint,ignore_jobs", "nodes=n04")
    for node in ("n03", "n05"):
        cluster.kill(node)
    for node in ("n03", "n05"):
        wait_until(lambda node=node: any(  # type: ignore[misc]
            row[0] == node and row[1].startswith("DOWN") and row[2] == "Unknown"
            for row in told.sacctmgr("event", "event=node", "format=NodeName,State,End")))
    told.set("update", "nodename=n01", "state=resume")
    told.set("delete", "reservation=power")
    wait_until(lambda: not any(row[0] == "n01" and row[1] == "Unknown" for row in told.sacctmgr(
        "event", "event=node", "format=NodeName,End")))
    stop(cluster, "slurmctld")
    wait_until(lambda: any(row[0] == "slurmctld disconnect" for row in told.sacctmgr(
        "event", "event=cluster", "format=Reason")))
    time.sleep(2)                       # that it is away at least
    conf = (cluster.dir / "slurm.conf").read_text()
    ports = re.search(r"Port=\[(\d+)-(\d+)\]", conf)
    assert ports
    (cluster.dir / "slurm.conf").write_text(conf.replace("n[01-05]", "n[01-04]").replace(
        ports[0], f"Port=[{ports[1]}-{int(ports[2]) - 1}]"))
    cluster.start("slurmctld", "slurmctld", "-D")
    wait_until(lambda: {row[0] for row in told.sacctmgr("event", "event=cluster", "format=ClusterNodes")} >= {
        "n[01-04]"})
    cluster.start_node("n03")
    wait_until(lambda: "idle" in cluster.slurm("sinfo", "-h", "-n", "n03", "-o", "%T"))
    done = told.report("--availability", "--json", "--period",
                       f"{iso(told.begun - 60)}..{iso(int(time.time()) + 3600)}")
    assert "Traceback" not in done.stderr
    told.plain, told.status = json.loads(done.stdout), done.returncode


def iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def stop(cluster: Loopback, name: str) -> None:
    """As systemd does it, so that slurmctld keeps its state."""
    process = cluster.processes[name]
    for pid in [*children(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    cluster.kill(name)


def version(name: str, told: dict[str, Told]) -> Told:
    at_hand(name)
    if name not in told:
        pytest.skip("slurmdbd is not installed")
    return told[name]


every = pytest.mark.parametrize("name", list(NAMES), ids=[name or "own" for name in NAMES])


@every
def test_every_second_is_one_of_its_kinds(name: str, told: dict[str, Told]) -> None:
    one = version(name, told)
    times = [datetime.strptime(one.plain["period"][key], "%Y-%m-%d %H:%M:%S %z") for key in ("from", "counted_to")]
    seconds = round((times[1] - times[0]).total_seconds())
    assert set(one.nodes) == {"n01", "n02", "n03", "n04", "n05"}
    assert {sum(n["seconds"].values()) for n in one.nodes.values()} == {seconds}
    assert (one.status, one.plain["line"], one.plain["period"]["over"]) == (1, "NOT MET", False)
    assert one.plain["problems"] == []
    assert "+0100" in one.plain["period"]["from"] or "+0200" in one.plain["period"]["from"]


@every
def test_what_happened_to_each_node(name: str, told: dict[str, Told]) -> None:
    one = version(name, told)
    drained = one.incidents("n01")[0] if len(one.incidents("n01")) == 1 else next(
        i for i in one.incidents("n01") if "|" in i["reasons"][0])
    assert drained["reasons"][0].startswith('a|b "q" <b>=cmd()')
    assert "pwned" in drained["reasons"][0]
    assert not [i for i in one.incidents("n02") if "pwned" in str(i)]
    # Slurm adds " : Not responding" to a reason where the node is slow to answer.
    assert [i["reasons"][0] for i in one.incidents("n02", "planned")] == ["maintenance: fan"]
    assert one.incidents("n04", "planned")[0]["reasons"][0] == "reservation power"
    assert any("Not responding" in reason for i in one.incidents("n03") for reason in i["reasons"])
    assert one.nodes["n05"]["seconds"]["absent"] > 0
    assert [n for n, of in one.nodes.items() if of["seconds"]["absent"]] == ["n05"]
    away = [i for i in one.plain["incidents"] if "slurmctld did not run" in i["reasons"]]
    assert {n for i in away for n in i["nodes"]} >= {"n01", "n04"}
    assert "n02" not in {n for i in away for n in i["nodes"]}           # its maintenance goes on meanwhile


@every
def test_down_time_is_that_of_slurms_own_rows(name: str, told: dict[str, Told]) -> None:
    """Worked out once more, second by second, from what sacctmgr prints."""
    one = version(name, told)
    times = [int(datetime.strptime(one.plain["period"][key], "%Y-%m-%d %H:%M:%S %z").timestamp())
             for key in ("from", "counted_to")]
    down: set[int] = set()
    rows = [row for row in one.sacctmgr("event", "all_time", "nodes=n03", "format=Start,End,State")
            if row[2].startswith(("DOWN", "DRAIN"))]
    rows += [row for row in one.sacctmgr("event", "all_time", "event=cluster", "format=Start,End,StateRaw")
             if row[2] == "1"]
    for start, end, _ in rows:
        down |= set(range(max(times[0], at(start)), min(times[1], at(end) if end != "Unknown" else times[1])))
    assert one.nodes["n03"]["seconds"]["down"] == len(down), rows
    assert one.incidents("n03", "unknown")[0]["reasons"][0] == "nothing is known"      # before slurmdbd's first record


def at(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp())


@every
def test_the_same_from_what_was_kept_and_without_slurmdbd(name: str, told: dict[str, Told], tmp_path: Path) -> None:
    one = version(name, told)
    period = f"{iso(one.begun - 60)}..{iso(int(time.time()) + 3600)}"
    page = tmp_path / "page.html"
    done = one.report("--availability", "--format", "html", "-o", str(page), "--period", period)
    assert done.returncode == 1, done.stderr
    assert "<b>=cmd" not in page.read_text()
    assert "&lt;b&gt;=cmd" in page.read_text()
    kept = tmp_path / "page.events.json"
    again = json.loads(one.report("--availability", "--json", "--period", period, "--events", str(kept)).stdout)
    assert again["nodes"]
    assert again["line"] == "NOT MET"
    if os.environ.get("HPCADMIN_KEEP_EVENTS"):
        name = json.loads(kept.read_text())["version"]
        shutil.copy(kept, Path(os.environ["HPCADMIN_KEEP_EVENTS"]) / f"slurm-{name}.json")
    one.cluster.kill("slurmdbd")
    (one.cluster.dir / "site.toml").write_text(f'{SITE}nodes = "n[01-02]"\n')
    silent = one.report("--availability", "--json", "--period", period)
    plain = json.loads(silent.stdout)
    assert (silent.returncode, plain["line"]) == (3, "NOT SHOWN")
    assert plain["problems"][0].startswith("no events of Slurm: sacctmgr: slurmdbd does not answer: ")
    assert {n["node"]: n["least_percent"] for n in plain["nodes"]} == {"n01": 0.0, "n02": 0.0}
