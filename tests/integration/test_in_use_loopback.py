"""validate on 8 nodes of a real Slurm of which some are used by others: the right nodes, each pair once, few jobs and
few questions."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from loopback import Loopback, loopback
from misbehaviour import Done, Going, accounted, fill, furnish, until

from hpcadmin.check import Status
from hpcadmin.hosts import expand
from hpcadmin.run_job import longer, slowest_poll_s
from hpcadmin.run_waves import NODES_SLOWEST_S

pytestmark = pytest.mark.lab

PASS, NOT_RUN = Status.PASS, Status.NOT_RUN


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    settings = {"SchedulerParameters": "sched_interval=2,bf_interval=2", "PriorityType": "priority/multifactor"}
    with loopback(tmp_path_factory.mktemp("loop") / "slurm", 8, settings=settings) as running:
        furnish(running)
        yield running


@dataclass
class Watch:
    """What our jobs were while a run was on: nodes that they had, and how many were there at one time."""

    cluster: Loopback
    going: Going
    nodes: set[str] = field(default_factory=set)
    most: int = 0
    together: set[str] = field(default_factory=set)     # nodes that two of ours were given at one time
    nice: set[str] = field(default_factory=set)

    def until_over(self) -> Done:
        ended: list[Done] = []
        thread = threading.Thread(target=lambda: ended.append(self.going.end()))
        thread.start()
        while thread.is_alive():
            self.look()
            time.sleep(0.25)
        thread.join()
        self.look()
        return ended[0]

    def look(self) -> set[str]:
        """Also at jobs that are over: one may have come and gone since the last look."""
        asked = self.cluster.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%T|%N|%y|%k").splitlines()
        ours = [line for line in (text.split("|") for text in asked)
                if line[3].startswith(f"hpcadmin:{self.going.folder().name}:")]
        self.nodes |= {n for state, nodes, *_ in ours if state != "PENDING" and nodes for n in expand(nodes)}
        used = Counter(n for state, nodes, *_ in ours if state == "RUNNING" and nodes for n in expand(nodes))
        self.together |= {n for n, count in used.items() if count > 1}
        self.most = max(self.most, sum(state in ("PENDING", "RUNNING") for state, *_ in ours))
        self.nice |= {nice for _, _, nice, _ in ours}
        return self.nodes


def rpcs(cluster: Loopback) -> Counter[str]:
    """How many messages of each kind slurmctld has had."""
    text = cluster.slurm("sdiag")
    found = re.findall(r"^\s(REQUEST_\w+)\s.*?count:(\d+)", text, re.MULTILINE)
    return Counter({name: int(n) for name, n in found})


def between_questions(cluster: Loopback) -> Counter[str]:
    """The same, at a moment when nobody is just asking: a question is two messages."""
    found = rpcs(cluster)
    while True:
        time.sleep(0.7)
        last, found = found, rpcs(cluster)
        if (questions(found), found[PARTS]) == (questions(last), last[PARTS]):
            return found


PARTS = "REQUEST_PARTITION_INFO"


def questions(asked: Counter[str]) -> int:
    return asked["REQUEST_JOB_INFO_SINGLE"] + asked["REQUEST_NODE_INFO"]


def test_nodes_that_become_free_one_by_one(cluster: Loopback) -> None:
    """7 of 8 nodes are asked for, 4 of them are busy and become free one after the other; the eighth is idle and never
    touched."""
    others = [fill(cluster, node, 600) for node in ("n02", "n04", "n05", "n07")]
    going = Going(cluster, "one-by-one", "quick", "n[01-07]", "--max-jobs", "3", "--nice", "50", "--wait-for", "10m")
    watch = Watch(cluster, going)
    for count, other in enumerate(others):
        until(lambda count=count: len(watch.look()) >= 3 + count)  # type: ignore[misc]
        cluster.slurm("scancel", other)
    done = watch.until_over()
    run = accounted(done, going)
    assert done.status == 0, done.err
    assert (done.counts("hello"), done.counts("meet")) == ({PASS: 7}, {PASS: 21})
    assert watch.nodes == {f"n{i:02d}" for i in range(1, 8)}
    assert watch.together == set()
    assert 1 <= watch.most <= 3
    assert watch.nice == {"50"}
    assert run.plan is not None
    pairs = Counter(t.subject.nodes for t in run.plan.tests if t.check == "meet")
    assert len(pairs) == 21 and set(pairs.values()) == {1}
    assert len(run.plan.jobs) > 1
    cluster.wait_idle(8)


def test_only_idle_nodes_and_nodes_that_are_down(cluster: Loopback) -> None:
    others = fill(cluster, "n02", 600)
    cluster.slurm("scontrol", "update", "nodename=n03", "state=drain", "reason=fan")
    going = Going(cluster, "only-idle", "quick", "n[01-05]", "--only-idle")
    done = going.end()
    run = accounted(done, going)
    assert done.status == 3
    assert (done.counts("hello"), done.counts("meet")) == ({PASS: 3}, {PASS: 3})
    assert done.reasons(NOT_RUN) == {"busy: jobs run on it (--only-idle)", "drained: fan"}
    assert run.plan is not None and len(run.plan.jobs) == 1
    strict = Going(cluster, "strict", "quick", "n[01-05]", "--nodes-down", "error").end()
    assert (strict.status, strict.run) == (4, None)
    assert "1 node cannot be used: n03 (n03: drained: fan)" in strict.err
    cluster.slurm("scontrol", "update", "nodename=n03", "state=resume")
    until(lambda: cluster.slurm("sinfo", "-h", "-n", "n03", "-p", "val", "-o", "%T").strip() == "idle")
    short = Going(cluster, "short", "quick", "n[01-03]", "--wait-for", "15s")
    done = short.end()
    accounted(done, short)
    assert done.status == 3
    assert (done.counts("hello"), done.counts("meet")) == ({PASS: 2, NOT_RUN: 1}, {PASS: 1, NOT_RUN: 2}), done.err
    assert all("n02 not free" in reason for reason in done.reasons(NOT_RUN))
    cluster.slurm("scancel", others)
    cluster.wait_idle(8)


def test_slurm_is_asked_seldom(cluster: Loopback) -> None:
    """While a node is waited for, by Slurm's own count: less and less often."""
    others = fill(cluster, "n08", 600)
    going = Going(cluster, "seldom", "says", "n08")
    until(lambda: going.folder() and going.ours())
    before = between_questions(cluster)
    time.sleep(12.0)
    asked = between_questions(cluster) - before
    assert questions(asked) <= 8, asked             # after 1, 3, 7, 15 s, and after 2, 5, 10 s
    until(lambda: questions(rpcs(cluster) - before) >= 3)
    cluster.slurm("scancel", others)
    done = going.end()
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
    # Each is two messages: squeue and scontrol both ask for partitions too. After six minutes without news both come to
    # 0.1 message a second.
    assert asked[PARTS] == questions(asked), asked
    assert not asked["REQUEST_FED_INFO"] and not asked["REQUEST_JOB_USER_INFO"], asked
    assert 2 / slowest_poll_s(1, 0, 360.0) + 2 / (NODES_SLOWEST_S * longer(360.0)) <= 0.1
