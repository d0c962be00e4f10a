"""Each thing that Slurm may do to a job has one meaning: waited for, over, or somebody must act."""

import time
from pathlib import Path

import pytest
from looped import looped
from slurm_outputs import ACCOUNTED, NO_ANSWER, QUEUE
from test_slurm_commands import commands, stand_in  # noqa: F401

from hpcadmin import run_job
from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.run_job import JobRun
from hpcadmin.run_nodes import Rules, free_now, seconds, select, unusable_now
from hpcadmin.run_progress import Progress
from hpcadmin.rundata import PlannedJob
from hpcadmin.slurm.client import NoAnswerError, Partition, SlurmNode
from hpcadmin.slurm.command_line import Answer, CommandLine, parse_accounted, refused
from hpcadmin.slurm.script import JobOptions
from hpcadmin.slurm.srun_words import not_its_own
from hpcadmin.slurm.states import Job, node_state


@pytest.mark.parametrize("case", QUEUE)
def test_jobs_in_the_queue(case: str, commands: Path) -> None:  # noqa: F811
    line, over, hopeless = QUEUE[case]
    stand_in(commands, "squeue", f"cat <<'END'\n{line}\nEND")
    job = CommandLine().jobs([7])[7]
    assert (job.over, job.hopeless) == (over, hopeless)
    assert not over or job.ending


@pytest.mark.parametrize("text", ACCOUNTED)
def test_purged_jobs_are_asked_of_accounting(text: str, commands: Path) -> None:  # noqa: F811
    stand_in(commands, "squeue", "true")
    stand_in(commands, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    stand_in(commands, "sacct", f"cat <<'END'\n{text}END")
    job = CommandLine().jobs([7])[7]
    assert (job.state, job.exit_code) == ACCOUNTED[text]
    assert job.over
    assert parse_accounted(text).get(7, Job(7)).state == job.state


def test_many_purged_jobs_are_few_queries(commands: Path) -> None:  # noqa: F811
    count = commands / "count"
    for name in ("squeue", "sacct"):
        stand_in(commands, name, f"echo x >>{count}")
    stand_in(commands, "scontrol", f"echo x >>{count}; echo 'Invalid job id specified' >&2; exit 1")
    assert all(job.state == "" for job in CommandLine().jobs(range(1, 501)).values())
    assert len(count.read_text().split()) <= 10


@pytest.mark.parametrize("text", NO_ANSWER)
def test_no_answer_is_told_from_a_refusal(text: str) -> None:
    assert isinstance(refused("sbatch", Answer(1, "", text)), NoAnswerError)


def told(run: JobRun, job: Job) -> "tuple[str, str]":
    """How it ended then, and its state."""
    run.told(job)
    return run.ending, run.state


def job_run(tmp_path: Path, **more: bool) -> JobRun:
    return JobRun(None, PlannedJob(1, "suite", ("n1",)), {}, JobOptions("c"), tmp_path,  # type: ignore[arg-type]
                  Progress(quiet=True), id=7, **more)  # type: ignore[arg-type]


def test_a_job_that_is_stuck_completing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = job_run(tmp_path)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert run.told(Job(7, "COMPLETING"))
    now[0] += run_job.ENDING_S + 1
    assert not run.told(Job(7, "COMPLETING")), "not asked for often any more"
    assert not run.ending
    now[0] += run_job.STUCK_S
    run.told(Job(7, "COMPLETING"))
    run.look()
    assert run.finished
    assert "COMPLETING for" in run.ending


def test_one_of_several_jobs_that_is_held_ends_only_itself(tmp_path: Path) -> None:
    run = job_run(tmp_path, part=True)
    run.told(Job(7, "PENDING", "JobHeldAdmin"))
    run.look()
    assert run.finished
    assert run.doomed
    assert "JobHeldAdmin" in run.ending


class Cancels:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.away = False

    def cancel(self, ids: "list[int]") -> None:
        if self.away:
            raise NoAnswerError("the Slurm controller does not answer")
        self.ids += ids


def test_a_job_waits_for_its_nodes_as_long_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = job_run(tmp_path)
    run.client, run.wait_for_s = Cancels(), 7200.0  # type: ignore[assignment]
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run.told(Job(7, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"))
    now[0] += 7100
    run.told(Job(7, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"))
    assert not run.not_run
    now[0] += 200
    run.told(Job(7, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"))
    run.look()
    assert run.finished
    assert run.not_run == "n1 not free within 2 h (ReqNodeNotAvail, UnavailableNodes:n1)"
    run.client.away = True
    run_job.cancel_given_up([run], run.client, run.progress)
    assert run.doomed, "it is tried again"
    run.client.away = False
    run_job.cancel_given_up([run], run.client, run.progress)
    assert (run.client.ids, run.doomed) == ([7], False)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("wait_for_s", "after_s"), [(7200.0, 60.0), (5.0, 5.0)])
def test_a_job_whose_nodes_somebody_has_got_is_withdrawn_and_planned_anew(
        wait_for_s: float, after_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = job_run(tmp_path)
    run.client, run.wait_for_s, run.patience_s = Cancels(), wait_for_s, 60.0  # type: ignore[assignment]
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run.told(Job(7, "PENDING", "Resources"))
    now[0] += after_s - 1
    run.told(Job(7, "PENDING", "Resources"))
    assert not run.impatient
    now[0] += 2
    run.told(Job(7, "PENDING", "Resources"))
    run.look()
    assert run.finished and run.impatient and run.doomed


@pytest.mark.parametrize("job", [
    Job(7, "PENDING", "BeginTime"), Job(7, "REQUEUED"), Job(7, "REQUEUE_HOLD", "job requeued in held state"),
    Job(7, "PENDING", "JobHeldAdmin")])
def test_a_job_that_ran_and_waits_again_was_requeued(job: Job, tmp_path: Path) -> None:
    run = job_run(tmp_path)
    run.told(Job(7, "RUNNING", nodes="n1"))
    run.told(job)
    run.look()
    assert (run.finished, run.doomed, run.state) == (True, True, "REQUEUED")
    assert run.ending.startswith("was requeued")
    new = job_run(tmp_path)
    waits = Job(7, "PENDING", "Priority")
    assert told(new, waits) == ("", "PENDING")
    (tmp_path / "claimed").write_text("7\n")       # it begins while the answer is on its way
    assert told(new, waits) == ("", "PENDING")
    new.look()
    assert told(new, waits) == ("was requeued", "REQUEUED")


def test_a_job_whose_script_died_with_its_node_is_not_waited_for(tmp_path: Path) -> None:
    run = JobRun(Cancels(), PlannedJob(1, "suite", ("n1", "n2", "n3")), {}, JobOptions("c"),  # type: ignore[arg-type]
                 tmp_path, Progress(quiet=True), id=7)
    assert told(run, Job(7, "RUNNING", nodes="n[1-3]")) == ("", "RUNNING")
    assert told(run, Job(7, "RUNNING", nodes="n[1,3]")) == ("", "RUNNING"), "the others go on"
    assert told(run, Job(7, "RUNNING", nodes="n[2-3]")) == ("lost n1, which ran its script (NODE_FAIL)", "NODE_FAIL")
    assert run.doomed


def test_a_job_in_a_state_that_nobody_knows_is_not_left(tmp_path: Path) -> None:
    run = job_run(tmp_path)
    run.told(Job(7, "HOVERING"))
    run.look()
    assert (run.finished, run.doomed, run.ending) == (True, True, "ended in state HOVERING")


CUT_BY_SLURM = (        # as 22.05.8 printed them; exit status 1
    "srun: error: Unable to confirm allocation for job 33: Socket timed out on send/recv operation\n"
    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 33\n",
    "srun: error: Unable to create step for job 33: Memory required by task is not available\n",
    "srun: error: Unable to create step for job 4: Job/step already completing or completed\n",
    "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n"
    "slurmstepd-n05: error: *** STEP 4.1 ON n05 CANCELLED AT 2026-11-30T18:01:08 DUE TO PREEMPTION ***\n"
    "srun: error: n06: task 1: Terminated\n",
    "slurmstepd: error: *** STEP 4.1 ON n05 CANCELLED AT 2026-11-30T18:01:08 DUE TO TIME LIMIT ***\n",
    "srun: error: Unable to create step for job 4: Connection reset by peer\n",
)
ITS_OWN = (
    "rank 1: bad\nsrun: error: n02: task 1: Exited with exit code 1\n"
    "slurmstepd: error: *** STEP 4.1 ON n05 CANCELLED AT 2026-11-30T18:01:08 ***\n",
    "srun: error: Unable to create step for job 4: Invalid generic resource (gres) specification\n", "", "x" * 100_000,
)


def test_what_slurm_cut_off_is_told_from_what_a_program_printed() -> None:
    assert all(not_its_own(1, frozenset(), text.encode()) for text in CUT_BY_SLURM)
    assert not any(not_its_own(1, frozenset(), text.encode()) for text in ITS_OWN)
    for text in CUT_BY_SLURM:
        assert not not_its_own(0, frozenset(), text.encode()), "it ended well all the same"
        assert not not_its_own(None, frozenset({"timeout"}), text.encode()), "we ended it"
    begun = time.monotonic()
    for text in (CUT_BY_SLURM[2][:30], CUT_BY_SLURM[4][:30], CUT_BY_SLURM[0][:30]):
        not_its_own(1, frozenset(), (text * 200_000).encode())
        not_its_own(1, frozenset(), ((text + "\n") * 200_000).encode())
    assert time.monotonic() - begun < 5


# --- which nodes ------------------------------------------------------------------------------------------------

STATES = {      # state -> free, busy, down; with a reservation
    "IDLE": ("free", "free"), "IDLE+CLOUD": ("free", "free"), "IDLE+DYNAMIC_NORM": ("free", "free"),
    "MIXED": ("busy", "busy"), "ALLOCATED": ("busy", "busy"), "MIXED+PLANNED": ("busy", "busy"),
    "IDLE+PLANNED": ("busy", "busy"), "ALLOCATED+COMPLETING": ("busy", "busy"), "IDLE+COMPLETING": ("busy", "busy"),
    "IDLE+RESERVED": ("busy", "free"), "IDLE+MAINTENANCE": ("down", "free"), "MIXED+MAINTENANCE": ("down", "busy"),
    "IDLE+DRAIN": ("down", "down"), "IDLE+MAINTENANCE+RESERVED+DRAIN": ("down", "down"), "IDLE*": ("down", "down"),
    "IDLE+POWERED_DOWN": ("down", "down"), "DOWN": ("down", "down"), "IDLE+NOT_RESPONDING": ("down", "down"),
    "IDLE+MAINTENANCE+NOT_RESPONDING": ("down", "down"), "SOMETHING": ("down", "down"),
}


@looped("state", STATES)
def test_states_of_nodes(state: str) -> None:
    nodes = [SlurmNode("n1", node_state("IDLE"), partitions=("p",)), SlurmNode("n2", node_state(state), "", ("p",))]
    for reserved, what in zip((False, True), STATES[state], strict=True):
        found = select(nodes, [Partition("p", "UP", True)], "", "", Rules(only_idle=True, reserved=reserved))
        assert [n.name for n in found.nodes] == (["n1", "n2"] if what == "free" else ["n1"])
        reasons = [s.reason for s in found.skipped]
        assert ["busy" in r for r in reasons] == ([] if what == "free" else [what == "busy"])
        assert ("n2" in free_now(nodes, {"n2"}, reserved=reserved)) == (what == "free")
        assert bool(unusable_now(nodes, {"n2"}, reserved=reserved)) == (what == "down")
        waiting = select(nodes, [Partition("p", "UP", True)], "", "", Rules(reserved=reserved))
        assert list(waiting.busy) == (["n2"] if what == "busy" else [])


def test_nodes_that_are_down_can_be_an_error() -> None:
    nodes = [SlurmNode("n1", node_state("IDLE"), partitions=("p",)),
             SlurmNode("n2", node_state("DOWN"), partitions=("p",), reason="fan")]
    with pytest.raises(SlurmError, match=r"1 node cannot be used: n2 .*down: fan"):
        select(nodes, [Partition("p", "UP", True)], "", "", Rules(down_is_error=True))
    assert len(select(nodes, [Partition("p", "UP", True)], "", "n1", Rules(down_is_error=True)).nodes) == 1
    assert unusable_now([], {"n9"}, reserved=False) == {"n9": "not known to Slurm any more"}


def test_times() -> None:
    assert [seconds(t) for t in ("2h", "90m", "45 min", "1d", "30s", "10", "0")] == [
        7200, 5400, 2700, 86400, 30, 600, 0]
    for wrong in ("", "h", "2 weeks", "-1h", "1e3"):
        with pytest.raises(UsageError, match="is no time"):
            seconds(wrong)
