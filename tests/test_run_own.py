"""Tests that are jobs of their own, against a stand-in for Slurm: nothing waits for ever, nothing is left in the queue,
and each result says what became of its own jobs."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from stepped import make_plan

from hpcadmin import run_job, run_own
from hpcadmin.check import Check, Context, JobRequest, NodeView, Role, Scope, Step
from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.frames import Frame, encode
from hpcadmin.plan_facts import Facts
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.run_job import JobRun
from hpcadmin.run_own import OwnJobs, own_jobs
from hpcadmin.run_progress import Progress
from hpcadmin.slurm.client import Partition, SlurmNode
from hpcadmin.slurm.script import JobOptions
from hpcadmin.slurm.states import Job, node_state


class Slurm:
    """Jobs by their number in the plan: what becomes of each. after: number -> what a submission does first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.submitted: list[int] = []
        self.cancelled: list[int] = []
        self.becomes: dict[int, str] = {}           # "done" (default), "alone", "damaged", or a state and a reason
        self.at_submission: Callable[[int], None] = lambda number: None
        self.node_list: tuple[SlurmNode, ...] = ()
        self.broken_cancels = 0
        self.away = 0                               # so many answers are not given

    def version(self) -> str:
        return "22.05.8"

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self.node_list

    def partitions(self) -> tuple[Partition, ...]:
        return ()

    def topology_text(self) -> str:
        raise NotImplementedError

    def topology(self) -> bool:
        return False

    def submit(self, script: Path, *, comment: str) -> int:
        number = int(script.parent.name)
        self.at_submission(number)
        self.submitted.append(number)
        self._run(number)
        return 1000 + number

    def _run(self, number: int) -> None:
        fate = self.becomes.get(number, "done")
        here = self.folder / str(number)
        if fate in ("done", "alone"):
            test, step = f"t{(number + 1) // 2:04d}", (number + 1) % 2
            flags = frozenset({"alone"} if fate == "alone" else ())
            node = f"n{(number + 1) // 2}"
            (here / "driver.log").write_bytes(encode(Frame(test, step, "job", node, node, 0, 1.0, 2.0, flags, b"x\n")))
        if fate == "damaged":
            (here / "driver.log").write_bytes(b"garbage\n")
        if fate in ("done", "alone", "damaged"):
            (here / "done").write_text("")

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        if self.away:
            self.away -= 1
            raise SlurmError("the Slurm controller does not answer")
        return {number: self._job(number) for number in ids}

    def _job(self, number: int) -> Job:
        if number in self.cancelled:
            return Job(number, "CANCELLED")
        state, _, reason = self.becomes.get(number - 1000, "COMPLETED").partition(" ")
        return Job(number, state, reason)

    def find(self, comment: str) -> tuple[Job, ...]:
        if self.away:
            self.away -= 1
            raise SlurmError("the Slurm controller does not answer")
        return tuple(Job(1000 + n, "RUNNING", comment=f"c:{n}") for n in self.submitted if f"c:{n}" == comment)

    def cancel(self, ids: Sequence[int]) -> None:
        if self.broken_cancels:
            self.broken_cancels -= 1
            raise SlurmError("the Slurm controller does not answer")
        self.cancelled += ids


class Case:
    def __init__(self, folder: Path, nodes: int = 2, **more: float) -> None:
        names = tuple(f"n{i}" for i in range(1, nodes + 1))
        check = Check("c", "c", Scope.NODE, self._steps, lambda o, c: [])
        self.plan = make_plan(Suite("s", "s", (SuiteEntry(("c",)),)), {"c": check},
                              Facts({n: NodeView(n) for n in names}), names)
        self.slurm = Slurm(folder)
        self.taken: list[str] = []
        runs = []
        for job in next(own_jobs(self.plan)):
            (folder / str(job.number)).mkdir()
            runs.append(JobRun(self.slurm, job, {t.id: t for t in self.plan.tests}, JobOptions(f"c:{job.number}"),
                               folder / str(job.number), Progress(quiet=True)))
        self.own = OwnJobs(runs, self.slurm, Progress(quiet=True), self.taken.append, **more)

    @staticmethod
    def _steps(context: Context) -> tuple[Step, ...]:
        return tuple(Step(("true",), Role.JOB, name=f"job with {n} GPUs", job=JobRequest(gpus=n)) for n in (1, 3))

    def go(self) -> None:
        self.own.go()
        assert not self.own.ids


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((run_job, "FIRST_POLL_S"), (run_job, "SLOWEST_POLL_S"), (run_job, "LOST_GRACE_S"),
                         (run_job, "GRACE_S"), (run_own, "RETRY_S"), (run_own, "SETTLE_S"), (run_own, "NODE_S"),
                         (run_own, "TAKE_EVERY_S")):
        monkeypatch.setattr(module, name, 0.01)


def test_each_test_is_taken_once_and_nothing_is_cancelled(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.go()
    assert (sorted(case.taken), case.slurm.cancelled) == (["t0001", "t0002"], [])
    assert [f.step for f in case.own.frames("t0001")] == [0, 1]
    assert case.own.why_missing("t0001") == case.own.not_run("t0001") == ""


def test_a_refused_job_takes_its_own_test_only(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes[1] = "PENDING Resources"

    def refuse(number: int) -> None:
        if number == 2:
            raise SlurmError("no node can satisfy the request")
    case.slurm.at_submission = refuse
    case.go()
    assert (sorted(case.taken), case.slurm.cancelled) == (["t0001", "t0002"], [1001])
    why = case.own.why_missing("t0001")
    assert why == "no output of the job with 3 GPUs: it was refused: no node can satisfy the request"
    assert case.own.not_run("t0001") == case.own.why_missing("t0002") == ""


def test_what_is_wrong_with_the_command_line_ends_all(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes[1] = "PENDING Resources"

    def refuse(number: int) -> None:
        if number == 2:
            raise UsageError("the account is not valid here")
    case.slurm.at_submission = refuse
    with pytest.raises(UsageError):
        case.own.go()
    assert case.own.ids == [1001]       # for whoever cancels the run


def test_a_controller_that_is_away_is_no_refusal(tmp_path: Path) -> None:
    case = Case(tmp_path)
    tries: list[int] = []

    def away(number: int) -> None:
        tries.append(number)
        if tries.count(3) == 1 and number == 3:
            case.slurm.away = 1
            raise SlurmError("the Slurm controller does not answer")
    case.slurm.at_submission = away
    case.go()
    assert (tries, sorted(case.taken)) == ([1, 2, 3, 3, 4], ["t0001", "t0002"])
    assert case.own.why_missing("t0002") == ""


def test_a_job_whose_answer_was_lost_is_not_submitted_twice(tmp_path: Path) -> None:
    case = Case(tmp_path)
    submit = case.slurm.submit

    def lost(script: Path, *, comment: str) -> int:
        number = submit(script, comment=comment)
        if number == 1003:
            case.slurm.away = 1
            raise SlurmError("did not answer within 60 s")
        return number
    # Slurm has it, and says so once it answers again.
    case.slurm.submit = lost  # type: ignore[method-assign]
    case.slurm.find = lambda comment: (Job(1003, "RUNNING", comment="c:3"),)  # type: ignore[method-assign]
    case.go()
    assert case.slurm.submitted == [1, 2, 3, 4]
    assert (tmp_path / "3" / "slurm_job_id").read_text() == "1003\n"


def test_a_limit_of_submitted_jobs_is_waited_out(tmp_path: Path) -> None:
    case = Case(tmp_path, nodes=3)

    def limit(number: int) -> None:
        if sum(not run.finished for run in case.own.runs if run.id is not None) > 3:
            raise SlurmError("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)")
    case.slurm.at_submission = limit
    case.go()
    assert case.slurm.submitted == [1, 2, 3, 4, 5, 6]
    assert not any(case.own.why_missing(t) for t in case.taken)


def test_a_limit_with_nothing_of_ours_in_the_queue_is_a_refusal(tmp_path: Path) -> None:
    case = Case(tmp_path, nodes=1)

    def limit(_number: int) -> None:
        raise SlurmError("QOSMaxSubmitJobPerUserLimit")
    case.slurm.at_submission = limit
    case.go()
    assert "was refused: QOSMaxSubmitJobPerUserLimit" in case.own.why_missing("t0001")


def test_a_job_beside_which_the_other_never_came(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update({1: "alone", 2: "PENDING Resources"})
    case.go()
    assert case.slurm.cancelled == [1002]
    assert case.own.not_run("t0001").startswith("its 2 jobs could not run at one time: the job with 3 GPUs waited")
    assert "(Resources)" in case.own.not_run("t0001")
    assert case.own.not_run("t0002") == ""


def test_marks_that_were_not_seen(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update({1: "alone", 2: "alone"})
    case.go()
    assert "marks in the run folder" in case.own.not_run("t0001")


def test_room_that_never_comes(tmp_path: Path) -> None:
    case = Case(tmp_path, wait_s=0.05)
    case.slurm.becomes.update({1: "PENDING Resources", 2: "PENDING Priority"})
    case.go()
    assert sorted(case.slurm.cancelled) == [1001, 1002]
    assert case.own.not_run("t0001").startswith("no room for 0 min: the job with 1 GPUs waited (Resources)")
    assert case.own.not_run("t0002") == case.own.why_missing("t0002") == ""


@pytest.mark.parametrize(("state", "reason", "said"), [
    ("IDLE+DRAIN", "fan", "n1 is drained: fan"), ("DOWN*", "", "n1 is down, not responding")])
def test_a_node_that_went_away_meanwhile(tmp_path: Path, state: str, reason: str, said: str) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update(dict.fromkeys((1, 2), "PENDING ReqNodeNotAvail, UnavailableNodes:n1"))
    case.slurm.node_list = (SlurmNode("n1", node_state(state), reason=reason), SlurmNode("n2", node_state("IDLE")))
    case.go()
    assert case.own.not_run("t0001") == said
    assert sorted(case.slurm.cancelled) == [1001, 1002]


def test_a_job_that_can_never_start_is_no_busy_node(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update({1: "PENDING PartitionNodeLimit", 2: "PENDING Priority"})
    case.go()
    assert case.own.not_run("t0001") == ""
    assert case.own.why_missing("t0001") == \
        "no output of the job with 1 GPUs: job 1001 would never start: PartitionNodeLimit"
    assert sorted(case.slurm.cancelled) == [1001, 1002]


def test_a_job_that_failed_explains_its_test(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update({1: "alone", 2: "FAILED NonZeroExitCode"})
    (tmp_path / "2" / "slurm.out").write_text("sh: cannot create driver.log: Permission denied\nmore\n")
    case.go()
    assert case.own.not_run("t0001") == ""
    assert case.own.why_missing("t0001") == ("no output of the job with 3 GPUs: job 1002 failed: sh: cannot create "
                                             "driver.log: Permission denied")


def test_a_failed_job_that_left_nothing_asks_for_the_shared_folder(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes[1] = "FAILED JobLaunchFailure"
    case.go()
    assert "is the run folder shared" in case.own.why_missing("t0001")


def test_a_damaged_log_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_job, "DOUBT_S", 0.3)
    case = Case(tmp_path)
    case.slurm.becomes[2] = "damaged"
    case.go()
    assert "jobs/2/driver.log is damaged" in case.own.why_missing("t0001")


def test_cancelling_is_tried_until_slurm_answers(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.slurm.becomes.update({1: "alone", 2: "PENDING Resources", 3: "PENDING Resources"})
    case.slurm.broken_cancels = 3

    def later(_asked: bool) -> None:
        if 1002 in case.slurm.cancelled:
            case.slurm.becomes[3] = "done"
            case.slurm._run(3)
    take = case.own._watch
    case.own._watch = lambda asked: (take(asked), later(asked))[0]  # type: ignore[method-assign]
    case.go()
    assert case.slurm.cancelled == [1002]


def test_what_cannot_be_cancelled_stays_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_job, "CONTROLLER_S", 0.2)
    case = Case(tmp_path, nodes=1)
    case.slurm.becomes.update({1: "alone", 2: "PENDING Resources"})
    case.slurm.broken_cancels = 99
    case.own.go()
    assert case.own.ids == [1002]


def test_an_interrupted_run_keeps_what_there_is(tmp_path: Path) -> None:
    case = Case(tmp_path, nodes=3)
    case.slurm.becomes.update({3: "PENDING Resources", 4: "PENDING Resources"})
    begun = time.monotonic()

    def stop(asked: bool) -> None:
        assert time.monotonic() - begun < 30
        raise KeyboardInterrupt
    case.own._watch = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        case.own.go()
    assert sorted(case.taken) == ["t0001", "t0003"]
    assert case.own.ids == [1003, 1004]
