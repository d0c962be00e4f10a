"""What Slurm, its admins and its nodes do to jobs of validate, each brought about on a real Slurm: the result, the exit
status, the words, and that no job is left. docs/in-use.md has the table."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from loopback import Loopback, loopback
from misbehaviour import Done, Going, accounted, close, fill, furnish, reopen, tool, until

from hpcadmin.check import Status

pytestmark = pytest.mark.lab

PASS, ERROR, NOT_RUN = Status.PASS, Status.ERROR, Status.NOT_RUN
PARTITIONS = """val Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=OFF
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL
PartitionName=lowq Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
PartitionName=going Nodes=ALL"""
TIMED_OUT = 'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'
SOON = "from hpcadmin import run_job; run_job.SLOWEST_POLL_S = 2.0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("loop") / "slurm"
    hooks = folder.parent / "hooks"
    hooks.mkdir()
    for name in ("prolog", "epilog"):               # on the nodes for which there is a file with what it does
        (hooks / name).write_text(f'#!/bin/sh\n[ ! -e {hooks}/{name}-$SLURMD_NODENAME ] || . {hooks}/{name}-'
                                  '$SLURMD_NODENAME\n')
        (hooks / name).chmod(0o755)
    settings = {"Prolog": str(hooks / "prolog"), "Epilog": str(hooks / "epilog"), "PreemptMode": "REQUEUE",
                "PreemptType": "preempt/partition_prio", "SlurmdTimeout": "15", "MessageTimeout": "5", "KillWait": "2",
                "SchedulerParameters": "sched_interval=2,bf_interval=2", "PartitionName": PARTITIONS}
    with loopback(folder, 34, settings=settings) as running:
        furnish(running)
        yield running


def hook(cluster: Loopback, name: str, node: str, text: str) -> None:
    (cluster.dir.parent / "hooks" / f"{name}-{node}").write_text(text + "\n")


# --- jobs, each on nodes of its own, all at one time ----------------------------------------------------------------


def requeued(cluster: Loopback, verb: str, *nodes: str) -> tuple[Going, Done]:
    close(cluster, *nodes)
    going = Going(cluster, verb, "two", ",".join(nodes))
    going.until_logs(2)
    cluster.slurm("scontrol", "update", f"jobid={going.job()}", "requeue=1")
    cluster.slurm("scontrol", verb, going.job())
    going.until_runs_no_more()
    reopen(cluster, *nodes)
    return going, going.end()


def requeued_at_its_end(cluster: Loopback) -> tuple[Going, Done]:
    """Its script has written everything, and the run has not looked yet."""
    close(cluster, "n34")
    going = Going(cluster, "requeued-late", "held", "n34")
    going.until_reached("n34")
    job = going.job()
    cluster.slurm("scontrol", "update", f"jobid={job}", "requeue=1")
    going.process.send_signal(signal.SIGSTOP)
    reopen(cluster, "n34")
    going.until_state("COMPLETED")
    cluster.slurm("scontrol", "requeue", job)
    going.until_state("PENDING")
    going.process.send_signal(signal.SIGCONT)
    return going, going.end()


def preempted(cluster: Loopback, partition: str, *nodes: str) -> tuple[Going, Done]:
    close(cluster, *nodes)
    going = Going(cluster, f"preempted-{partition}", "two", ",".join(nodes), "--partition", partition)
    going.until_logs(2)
    fill(cluster, nodes[0], 8, "-p", "high")
    going.until_runs_no_more()
    reopen(cluster, *nodes)
    return going, going.end()


def first_node_dies(cluster: Loopback) -> tuple[Going, Done]:
    close(cluster, "n09")
    going = Going(cluster, "first-dies", "two", "n[09-11]")
    going.until_logs(3)
    cluster.kill("n09")
    reopen(cluster, "n09")
    return going, going.end()


@contextmanager
def hanging_epilog(cluster: Loopback, node: str) -> Iterator[None]:
    """The epilog there ends only behind this."""
    hold = cluster.dir.parent / f"hooks/hold-{node}"
    hold.touch()
    hook(cluster, "epilog", node, f"while [ -e {hold} ]; do sleep 0.1; done")
    try:
        yield
    finally:
        hold.unlink()


def epilog_hangs(cluster: Loopback) -> tuple[Going, Done]:
    with hanging_epilog(cluster, "n12"):
        going = Going(cluster, "epilog", "says", "n12")
        return going, going.end()


def stuck_completing(cluster: Loopback) -> tuple[Going, Done]:
    with hanging_epilog(cluster, "n13"):
        going = Going(cluster, "stuck", "slow", "n13", patch=f"{SOON}; run_job.STUCK_S = 3.0")
        going.until_step()
        cluster.slurm("scancel", going.job())
        return going, going.end()


def time_limit(cluster: Loopback) -> tuple[Going, Done]:
    going = Going(cluster, "limit", "slow", "n14", patch=SOON)
    going.until_step()
    cluster.slurm("scontrol", "update", f"jobid={going.job()}", "endtime=now+1")    # Slurm looks every half minute
    return going, going.end()


def prolog_fails(cluster: Loopback) -> tuple[Going, Done]:
    hook(cluster, "prolog", "n15", "exit 1")        # of the first node: 22.05 runs it elsewhere with the first step
    going = Going(cluster, "prolog", "two", "n[15-17]")
    return going, going.end()


def cancelled(cluster: Loopback) -> tuple[Going, Done]:
    going = Going(cluster, "cancelled", "slow", "n18")
    going.until_step()
    cluster.slurm("scancel", going.job())
    return going, going.end()


def held_and_released(cluster: Loopback) -> tuple[Going, Done]:
    """An admin holds the job that waits for a node."""
    others = fill(cluster, "n19", 600)
    going = Going(cluster, "held", "says", "n19", patch="from hpcadmin import run_waves; run_waves.HELD_S = 1.0")
    going.until_state("PENDING")
    cluster.slurm("scontrol", "hold", going.job())
    until(lambda: "JobHeldAdmin" in going.state() or "CANCELLED" in going.state())
    cluster.slurm("scancel", others)
    return going, going.end()


def always_held(cluster: Loopback) -> tuple[Going, Done]:
    tools = tool(cluster.dir.parent / "holds", "sbatch", 'exec "$REAL" -H "$@"')
    fill(cluster, "n20", 600)
    going = Going(cluster, "always-held", "says", "n20", tools=tools,
                  patch="from hpcadmin import run_waves; run_waves.HELD_S = 0.5")
    return going, going.end()


def partition_down(cluster: Loopback) -> tuple[Going, Done]:
    fill(cluster, "n21", 600)
    going = Going(cluster, "down", "says", "n21", "--partition", "going",
                  patch="from hpcadmin import run_waves; run_waves.HELD_S = 0.5")
    going.until_state("PENDING")
    cluster.slurm("scontrol", "update", "partitionname=going", "state=down")
    return going, going.end()


def drained_while_waiting(cluster: Loopback) -> tuple[Going, Done]:
    fill(cluster, "n22", 600)
    going = Going(cluster, "drained", "two", "n22,n23", patch="from hpcadmin import run_waves; run_waves.LOST_S = 3.0")
    until(lambda: going.folder() and going.ours())
    cluster.slurm("scontrol", "update", "nodename=n22", "state=drain", "reason=fan")
    return going, going.end()


def reserved(cluster: Loopback) -> tuple[Going, Done]:
    cluster.slurm("scontrol", "create", "reservation", "reservationname=maint", "users=nobody", "nodes=n24",
                  "starttime=now", "duration=60", "flags=ignore_jobs")
    until(lambda: "RESERVED" in cluster.slurm("scontrol", "show", "node", "n24"))
    going = Going(cluster, "reserved", "two", "n24,n25", "--wait-for", "20s")
    return going, going.end()


def lost_answer(cluster: Loopback) -> tuple[Going, Done]:
    tools = tool(cluster.dir.parent / "loses", "sbatch", f'"$REAL" "$@" >/dev/null\n{TIMED_OUT}')
    going = Going(cluster, "lost-answer", "says", "n26", tools=tools)
    return going, going.end()


def taken_late(cluster: Loopback) -> tuple[Going, Done]:
    """No answer, no job by that comment for a while, and then there are two."""
    tools = tool(cluster.dir.parent / "late", "sbatch", 'if [ $COUNT -gt 1 ]; then exec "$REAL" "$@"; fi\n'
                 '(while [ $(wc -l <"$HERE/sbatch.calls") -lt 2 ]; do sleep 0.1; done; sleep 0.5; "$REAL" "$@") '
                 f'>/dev/null 2>&1 &\n{TIMED_OUT}')
    going = Going(cluster, "late", "two", "n27,n28", tools=tools)
    return going, going.end()


def not_taken(cluster: Loopback) -> tuple[Going, Done]:
    tools = tool(cluster.dir.parent / "never", "sbatch",
                 f'if [ $COUNT -gt 1 ]; then exec "$REAL" "$@"; fi\n{TIMED_OUT}')
    going = Going(cluster, "not-taken", "says", "n29", tools=tools)
    return going, going.end()


def held_alone(cluster: Loopback) -> tuple[Going, Done]:
    tools = tool(cluster.dir.parent / "holds-it", "sbatch", 'exec "$REAL" -H "$@"')
    going = Going(cluster, "held-alone", "says", "n30", tools=tools)
    return going, going.end()


def unknown_state(cluster: Loopback) -> tuple[Going, Done]:
    tools = tool(cluster.dir.parent / "odd", "squeue", '"$REAL" "$@" | sed "s/|RUNNING|/|HOVERING|/"')
    going = Going(cluster, "unknown-state", "slow", "n31", tools=tools)
    return going, going.end()


Scenes = dict[str, "tuple[Going, Done] | BaseException"]
def step_not_started(cluster: Loopback) -> tuple[Going, Done]:
    """What srun said when slurmctld was frozen, in the place of the first pair."""
    words = "srun: error: Unable to confirm allocation for job 33: Socket timed out on send/recv operation"
    tools = tool(cluster.dir.parent / "no-step", "srun", f'[ $COUNT != 2 ] || {{ echo "{words}" >&2; exit 1; }}\n'
                 'exec "$REAL" "$@"')
    going = Going(cluster, "no-step", "two", "n32,n33", tools=tools)
    return going, going.end()


def fail_over(cluster: Loopback) -> tuple[Going, Done]:
    """A cluster of its own with two controllers: the first dies while a run goes on, and the second takes over. It is
    on another address, with another name, as on another machine, and with a pid file of its own: slurmctld ends whoever
    is named in it."""
    first = socket.gethostname().split(".")[0]
    settings = {"SlurmctldHost": f"{first}(127.0.0.1)\nSlurmctldHost=backup(127.0.0.2)", "SlurmctldTimeout": "8",
                "CommunicationParameters": "NoCtldInAddrAny", "MessageTimeout": "5"}
    with loopback(cluster.dir.parent / "two", 2, settings=settings) as pair:
        furnish(pair)
        (pair.dir / "backup.pid").write_text("")
        (pair.dir / "hosts").write_text(f"127.0.0.2 backup\n{Path('/etc/hosts').read_text()}")
        pair.start("backup", "unshare", "--uts", "--mount", "sh", "-ec", f"hostname backup; cd {pair.dir}; mount "
                   "--bind backup.pid slurmctld.pid; mount --bind hosts /etc/hosts; exec slurmctld -D")
        until(lambda: pair.slurm("scontrol", "ping").count("UP") == 2)
        close(pair, "n01")
        going = Going(pair, "waiting", "held", "n01", patch=SOON)
        going.until_reached("n01")
        state, now = pair.dir / "state/job_state", time.time()
        pair.slurm("scontrol", "update", f"jobid={going.job()}", "timelimit=300")   # a change is saved, with all else
        until(lambda: state.stat().st_mtime > now)              # what the second will find
        pair.processes["slurmctld"].send_signal(signal.SIGKILL)
        going.until_state("RUNNING")                            # as the second says
        reopen(pair, "n01")
        done = going.end()
        accounted(done, going)
        assert (done.status, done.counts("held"), done.jobs()) == (0, {PASS: 1}, [(1, None)]), done.err
        going = Going(pair, "submitted", "says", "n02")
        done = going.end()
        accounted(done, going)
        assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
        told = pair.slurm("scontrol", "ping").splitlines()
        assert "DOWN" in told[0] and "UP" in told[1]
        return going, done


SCENES: dict[str, Callable[[Loopback], tuple[Going, Done]]] = {
    "requeued": lambda c: requeued(c, "requeue", "n01", "n02"),
    "requeued and held": lambda c: requeued(c, "requeuehold", "n03", "n04"), "requeued at its end": requeued_at_its_end,
    "preempted": lambda c: preempted(c, "low", "n05", "n06"),
    "preempted, to be requeued": lambda c: preempted(c, "lowq", "n07", "n08"),
    "first node dies": first_node_dies, "epilog hangs": epilog_hangs, "stuck completing": stuck_completing,
    "time limit": time_limit, "prolog fails": prolog_fails, "cancelled": cancelled, "held": held_and_released,
    "always held": always_held, "partition down": partition_down, "drained": drained_while_waiting,
    "reserved": reserved, "lost answer": lost_answer, "taken late": taken_late, "not taken": not_taken,
    "held alone": held_alone, "unknown state": unknown_state, "fail-over": fail_over,
    "step not started": step_not_started,
}


@pytest.fixture(scope="module")
def scenes(cluster: Loopback) -> Iterator[Scenes]:
    """All of them side by side."""
    with ThreadPoolExecutor(len(SCENES)) as pool:
        futures = {}
        for name, scene in SCENES.items():
            futures[name] = pool.submit(scene, cluster)
            time.sleep(0.2)
        found = {name: future.exception() or future.result() for name, future in futures.items()}
    yield found
    for node in ("n09",):
        cluster.start_node(node)
    cluster.slurm("scontrol", "delete", "reservationname=maint")
    for node in ("n15", "n22"):
        cluster.slurm("scontrol", "update", f"nodename={node}", "state=resume")


def of(scenes: Scenes, name: str) -> tuple[Going, Done]:
    found = scenes[name]
    if isinstance(found, BaseException):
        raise found
    return found


AGAIN = {"requeued": "was requeued", "requeued and held": "was requeued (job requeued in held state)",
         "preempted": "was preempted", "preempted, to be requeued": "was preempted",
         "step not started": "could not start all its steps"}


@pytest.mark.parametrize("name", AGAIN)
def test_what_was_cut_off_is_planned_again(scenes: Scenes, name: str) -> None:
    """The node checks that were complete count; the pair is made by a second job."""
    going, done = of(scenes, name)
    run = accounted(done, going)
    assert done.status == 0, done.err
    assert {v.status for v in run.verdicts} == {PASS}
    assert run.plan is not None
    (first,), (second,) = ({t.job for t in run.plan.tests if t.check == check} for check in ("says", "pairs"))
    assert second > first, done.err
    # A script may come to its end within KillWait, or a node may be seen busy with somebody else by then.
    assert re.search(f" ({re.escape(AGAIN[name])}|could not start all its steps): 1 test planned again", done.err)
    assert len(done.err.splitlines()) < 10, done.err


def test_a_job_that_waits_again_behind_its_end_is_cancelled(scenes: Scenes) -> None:
    going, done = of(scenes, "requeued at its end")
    accounted(done, going)
    assert (done.status, done.counts("held"), done.jobs()) == (0, {PASS: 1}, [(1, None)]), done.err
    assert going.state().startswith("CANCELLED")


def test_the_node_that_ran_the_script_dies(scenes: Scenes) -> None:
    """With --no-kill the job itself goes on for ever, without a script."""
    going, done = of(scenes, "first node dies")
    run = accounted(done, going)
    assert done.status == 3, done.err
    assert done.counts("says") == {PASS: 3}
    assert done.counts("pairs") == {PASS: 1, ERROR: 2}
    assert all("lost n09, which ran its script (NODE_FAIL)" in v.reason for v in run.verdicts
               if v.check == "pairs" and v.status is ERROR)
    assert [v.subject.nodes for v in run.verdicts if v.check == "availability"] == [("n09",)]


def test_a_job_that_does_not_end_is_not_waited_for(scenes: Scenes) -> None:
    going, done = of(scenes, "epilog hangs")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1})
    going, done = of(scenes, "stuck completing")
    accounted(done, going)
    assert (done.status, done.counts("slow")) == (3, {ERROR: 1})
    assert any("COMPLETING for" in reason and "epilog hangs" in reason for reason in done.reasons(ERROR))


def test_jobs_that_people_and_limits_end_are_not_made_again(
        scenes: Scenes) -> None:
    for name, words in (("time limit", "ran into its time limit"), ("cancelled", "was cancelled")):
        going, done = of(scenes, name)
        accounted(done, going)
        assert (done.status, done.counts("slow")) == (3, {ERROR: 1}), done.err
        assert all(words in reason for reason in done.reasons(ERROR)), done.reasons(ERROR)
        assert done.jobs() == [(1, None)]


def test_a_prolog_that_fails_takes_only_its_node_out(scenes: Scenes) -> None:
    going, done = of(scenes, "prolog fails")
    accounted(done, going)
    assert done.status == 3, done.err
    assert done.counts("says") == {PASS: 2, NOT_RUN: 1}
    assert done.counts("pairs") == {PASS: 1, NOT_RUN: 2}
    assert done.reasons(NOT_RUN) == {"n15 is drained: Prolog error"}


def test_held_jobs(scenes: Scenes) -> None:
    going, done = of(scenes, "held")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
    going, done = of(scenes, "always held")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (3, {NOT_RUN: 1}), done.err
    assert done.reasons(NOT_RUN) == {"its job would never start: JobHeldUser"}
    going, done = of(scenes, "partition down")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (3, {NOT_RUN: 1}), done.err
    assert done.reasons(NOT_RUN) == {"its job would never start: PartitionDown"}
    assert len(list((going.folder() / "jobs").iterdir())) <= 4


def test_nodes_that_go_away_while_they_are_waited_for(
        scenes: Scenes) -> None:
    going, done = of(scenes, "drained")
    accounted(done, going)
    assert done.status == 3, done.err
    assert (done.counts("says"), done.counts("pairs")) == ({PASS: 1, NOT_RUN: 1}, {NOT_RUN: 1})
    assert done.reasons(NOT_RUN) == {"n22 is drained: fan"}
    going, done = of(scenes, "reserved")
    accounted(done, going)
    assert done.status == 3, done.err
    assert (done.counts("says"), done.counts("pairs")) == ({PASS: 1, NOT_RUN: 1}, {NOT_RUN: 1})
    assert done.reasons(NOT_RUN) == {"n24 not free within 20 s"}


def test_an_answer_that_was_lost(scenes: Scenes) -> None:
    going, done = of(scenes, "lost answer")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
    assert calls(going, "loses/sbatch") == 1
    going, done = of(scenes, "not taken")
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
    assert calls(going, "never/sbatch") == 2


def test_a_job_that_was_taken_twice(scenes: Scenes) -> None:
    """The second submission was answered, the first came in after it. Only one measures; the other is gone."""
    going, done = of(scenes, "taken late")
    run = accounted(done, going)
    assert done.status == 0, done.err
    assert (done.counts("says"), done.counts("pairs")) == ({PASS: 2}, {PASS: 1})
    assert calls(going, "late/sbatch") == 2
    assert done.jobs() == [(1, None)]
    assert run.plan is not None and sorted(m.test for m in run.measured) == sorted(t.id for t in run.plan.tests)


def calls(going: Going, name: str) -> int:
    return (going.cluster.dir.parent / f"{name}.calls").read_text().count("x")


def test_the_only_job_is_held(scenes: Scenes) -> None:
    going, done = of(scenes, "held alone")
    assert done.status == 4
    assert [line for line in done.err.splitlines() if line.startswith("hpcadmin:")] == [
        f"hpcadmin: job {going.job()} would never start: JobHeldUser (its state is as sinfo and squeue show it; "
        "nothing of it ran)"]
    assert going.ours() == []
    assert done.run is not None and {v.status for v in done.run.verdicts} == {NOT_RUN}


def test_a_state_that_nobody_knows(scenes: Scenes) -> None:
    going, done = of(scenes, "unknown state")
    accounted(done, going)
    assert (done.status, done.counts("slow")) == (3, {ERROR: 1}), done.err
    assert all("ended in state HOVERING" in reason for reason in done.reasons(ERROR))


def test_the_second_controller_takes_over(scenes: Scenes) -> None:
    of(scenes, "fail-over")


# --- the controller ---------------------------------------------------------------------------------------------------


def controller(cluster: Loopback) -> None:
    """Start it again, with what it knew."""
    cluster.start("slurmctld", "slurmctld", "-D")


def send(cluster: Loopback, number: int) -> None:
    os.kill(cluster.processes["slurmctld"].pid, number)


def without_answer(cluster: Loopback, name: str, what: str) -> Path:
    """An sbatch that sends slurmctld this signal before it submits its first job, and says when it has given up."""
    pid = cluster.processes["slurmctld"].pid
    return tool(cluster.dir.parent / name, "sbatch", f'[ $COUNT = 1 ] || exec "$REAL" "$@"\nkill -{what} {pid}\n'
                '"$REAL" "$@"\nstatus=$?\ntouch "$HERE/gave-up"\nexit $status')


@pytest.mark.usefixtures("scenes")
def test_a_controller_that_freezes_is_configured_anew_dies_and_comes_again(cluster: Loopback) -> None:
    """All while a step runs: one that ends while nobody listens is COMPLETING for a minute."""
    close(cluster, "n07", "n08")
    going = Going(cluster, "polled", "held", "n[07-08]", patch=SOON)
    going.until_reached("n07", "n08")
    send(cluster, signal.SIGSTOP)
    time.sleep(6.0)                     # longer than Slurm's commands wait for an answer
    send(cluster, signal.SIGCONT)
    cluster.slurm("scontrol", "reconfigure")
    cluster.kill("slurmctld")
    time.sleep(1.0)
    controller(cluster)
    until(lambda: "UP" in cluster.slurm("scontrol", "ping"))
    reopen(cluster, "n07", "n08")
    done = going.end()
    accounted(done, going)
    # Killed before it had kept what it knew of the job, slurmctld requeues it.
    jobs = [(1, None), (2, 1)] if "job was requeued" in re.sub(r"job \d+", "job", done.err) else [(1, None)]
    assert (done.status, done.counts("held"), done.jobs()) == (0, {PASS: 2}, jobs), done.err


@pytest.mark.usefixtures("scenes")
def test_a_controller_that_freezes_just_when_a_job_is_submitted(cluster: Loopback) -> None:
    """Its answer never comes, and when it thaws it takes the job all the same."""
    tools = without_answer(cluster, "freezes", "STOP")
    going = Going(cluster, "frozen", "says", "n26", tools=tools)
    until((tools / "gave-up").exists)
    send(cluster, signal.SIGCONT)
    done = going.end()
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err
    assert calls(going, "freezes/sbatch") == 1


@pytest.mark.usefixtures("scenes")
def test_a_controller_that_is_dead_when_a_job_is_submitted(cluster: Loopback) -> None:
    tools = without_answer(cluster, "kills", "KILL")
    going = Going(cluster, "dead", "says", "n27", tools=tools)
    until((tools / "gave-up").exists)
    cluster.processes["slurmctld"].wait(60)
    controller(cluster)
    done = going.end()
    accounted(done, going)
    assert (done.status, done.counts("says")) == (0, {PASS: 1}), done.err


@pytest.mark.usefixtures("scenes")
def test_a_controller_that_is_away_until_after_the_end(cluster: Loopback) -> None:
    """What the jobs write is enough."""
    close(cluster, "n05", "n06")
    going = Going(cluster, "away", "held", "n[05-06]")
    going.until_reached("n05", "n06")
    cluster.kill("slurmctld")
    try:
        reopen(cluster, "n05", "n06")
        done = going.end()
    finally:
        controller(cluster)
        until(lambda: "UP" in cluster.slurm("scontrol", "ping"))
    accounted(done, going)
    assert (done.status, done.counts("held")) == (0, {PASS: 2}), done.err


@pytest.mark.usefixtures("scenes")
def test_a_job_that_slurm_has_forgotten(cluster: Loopback) -> None:
    """Cancelled and purged while nobody watched, and there is no accounting."""
    conf = cluster.dir / "slurm.conf"
    conf.write_text("MinJobAge=2\n" + conf.read_text())
    cluster.slurm("scontrol", "reconfigure")
    going = Going(cluster, "forgotten", "slow", "n02", patch=f"{SOON}; run_job.LOST_GRACE_S = 1.0")
    going.until_step()
    going.process.send_signal(signal.SIGSTOP)
    job = going.job()
    cluster.slurm("scancel", job)
    until(lambda: job not in cluster.slurm("squeue", "-h", "-a", "-t", "all", "-o", "%i").split())
    going.process.send_signal(signal.SIGCONT)
    done = going.end()
    accounted(done, going)
    assert (done.status, done.counts("slow")) == (3, {ERROR: 1}), done.err
    assert all("is not known to Slurm any more" in reason for reason in done.reasons(ERROR)), done.reasons(ERROR)
