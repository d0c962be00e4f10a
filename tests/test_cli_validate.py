"""validate's command line: options that do not fit together, and what becomes of those that do."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hpcadmin.check import Scope, Status, Subject, Verdict
from hpcadmin.cli import run
from hpcadmin.cli._options import request_of
from hpcadmin.errors import UsageError
from hpcadmin.run_retest import retest
from hpcadmin.run_session import Request
from hpcadmin.rundata import Manifest, Plan, PlannedEntry, PlannedJob, PlannedTest, Run, Together
from hpcadmin.slurm.script import JobOptions, render

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("words", "told"), [
    ("--resume R --suite smoke", "--resume goes on with a run as it was begun: --suite cannot be"),
    ("--resume R -w n1 --plan", "--resume goes on with a run as it was begun: -w, --plan cannot be given beside it"),
    ("--resume R --nice 0 --wait-for 2h", "as it was begun: --nice, --wait-for cannot be given beside it"),
    ("--resume R --retest R", "--resume goes on with a run, --retest makes a new one: one of them"),
    ("--retest R --suite smoke", "--retest has the suite of the run that it repeats: --suite cannot be"),
    ("--plan --detach", "--plan submits nothing, --detach runs in the background: one of them"),
    ("-w @", "-w is empty (leave it out, or say which)"),
    ("--resume @", "--resume is empty"),
    ("--retest @", "--retest is empty"),
    ("--partition @", "--partition is empty"),
    ("--wait-for soon", "--wait-for: 'soon' is no time (30m, 2h, 1d)"),
    ("--wait-for -1", "--wait-for: '-1' is no time"),
    ("--max-jobs 0", "'--max-jobs': 0 is not in the range"),
    ("--priority -1", "'--priority': -1 is not in the range"),
    ("--nodes-down maybe", "'maybe' is not one of 'error', 'skip'"),
    ("--suite smoke extra", "unexpected extra argument"),
    ("--plna", "--plna"),
])
def test_what_does_not_fit_is_one_line(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", *("" if word == "@" else word for word in words.split())]) == 2
    out, err = capsys.readouterr()
    assert told in err and err.startswith("hpcadmin: ") and err.count("\n") == 1 and not out


def options(**given: object) -> dict[str, object]:
    usual = {"suite": "smoke", "time_limit": None, "wait_for": "2h", "at_once": None, "nice": None}
    return {**usual, **given}


def test_options_become_a_request() -> None:
    assert request_of(options(wait_for="30m", time_limit=5, at_once=3, nice=7, hostlist="n1")) == Request(
        suite="smoke", wait_for_s=1800.0, time_limit_min=5, at_once=3, nice=7, hostlist="n1",
        command=request_of(options()).command)


def test_a_retest_has_what_its_command_does_not_say_from_the_run_that_it_repeats() -> None:
    bad = Verdict("c", Subject(("n1",)), Status.FAIL, test="t1")
    plan = Plan("mine", ("n1", "n2"), (PlannedEntry("c", "c", Scope.NODE),), (PlannedTest("t1", "c", bad.subject),))
    old = Run(path=None, manifest=Manifest("R", "mine", ("n1",), "complete", ""), plan=plan,  # type: ignore[arg-type]
              verdicts=(bad,))
    before = Request(suite="mine", partition="gpu", qos="high", nice=5, priority=9, pairs="ring", at_once=4, yes=True)
    made = retest(Request(qos="low", nice=0), before, old)
    assert made == Request(suite="mine", hostlist="n1", partition="gpu", qos="low", nice=0, priority=9, pairs="all",
                           at_once=4, only=("c",), retest_of="R", together=(Together("c", (("n1",),)),))
    assert retest(Request(pairs="ring"), before, old).together == ()
    assert retest(Request(hostlist="n2"), before, old).together == ()
    with pytest.raises(UsageError, match="nothing failed in run R"):
        retest(Request(), before, Run(path=None, manifest=old.manifest, plan=plan))  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "lines"), [
    (JobOptions("c"), set()), (JobOptions("c", priority=9, nice=-2, qos="q", reservation="r s"),
                               {"--priority=9", "--nice=-2", "--qos=q", '--reservation="r s"'})])
def test_priority_and_the_rest_reach_sbatch(options: JobOptions, lines: set[str]) -> None:
    text = render(PlannedJob(1, "suite", ("n1",)), {}, options, Path("/r"))
    told = {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")}
    assert {line for line in told if line.startswith(("--pri", "--nice", "--qos", "--res"))} == lines


def command(words: str) -> str:
    return f"{shlex.quote(sys.executable)} -m hpcadmin {words}"


@pytest.mark.parametrize(("line", "status"), [
    ("limits list | head -n 1", "0 0"), ("checks list | true", "0 0"), ("--help | true", "0 0"),
    ("validate --help | true", "0 0"), ("checks list | head -n 1", "0 0"), ("checks list >&-", "0"),
    ("checks list 2>&-", "0"), ("validate --wait-for soon 2>&-", "2"), ("checks list >/dev/full", "2")])
def test_an_answer_that_nobody_reads_is_no_failure_and_no_traceback(line: str, status: str) -> None:
    done = subprocess.run(["bash", "-c", f"{command(line)}; echo ${{PIPESTATUS[@]}}"], capture_output=True, check=False,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == status
