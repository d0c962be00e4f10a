"""Jobs that slurmctld has forgotten (MinJobAge), with a real slurmdbd and without: on every Slurm that is at hand."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import slurm_scene
from database import Accounting, Database, database
from loopback import at_hand, loopback, wait_until
from slurm_roots import NAMES, slurm
from slurm_scene import free, submit
from test_versions import Version, statuses

from hpcadmin.check import Status
from hpcadmin.proof.parts import Slurm
from hpcadmin.run_kept import slurm_job
from hpcadmin.rundata import Run, read_run
from hpcadmin.slurm.states import Job

pytestmark = pytest.mark.lab
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("database") / "mariadb") as running:
        yield running


class Accounted(Version):
    """A cluster of one version with accounting."""

    def run_of(self, node: str) -> Run:
        """The last run on that node."""
        runs = [read_run(path) for path in sorted((self.cluster.dir / "admin/runs").glob("2*"))]
        return next(run for run in reversed(runs) if run.plan and run.plan.jobs[0].nodes == (node,))

    def job_of(self, node: str) -> int:
        number = slurm_job(self.run_of(node).path / "jobs/1")
        assert number is not None
        return number

    def forgotten(self, *ids: int) -> None:
        """Waits until slurmctld does not know these jobs."""
        for number in ids:
            wait_until(lambda number=number: "Invalid job id" in subprocess.run(  # type: ignore[misc]
                ["scontrol", "show", "job", str(number)], env=self.cluster.env, capture_output=True, text=True,
                check=False, timeout=60).stderr, 120)


@pytest.fixture(scope="module")
def versions(server: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Accounted]]:
    """All that are at hand at once, as what takes time here is waiting."""
    started: dict[str, Accounted] = {}
    with ExitStack() as stack:
        for name in NAMES:
            found = slurm(name)
            if not isinstance(found, Slurm) or not (found.root or shutil.which("slurmdbd", path=SBIN)):
                continue
            accounting = Accounting(server, name)
            folder = tmp_path_factory.mktemp(name or "own") / "slurm"
            cluster = stack.enter_context(loopback(
                folder, slurm=found, before=accounting.start,
                settings={**accounting.settings(folder), "MinJobAge": "2", "KillWait": "5", **slurm_scene.AT_ONCE}))
            started[name] = Accounted(cluster)
        yield started


@pytest.mark.parametrize("name", list(NAMES), ids=[name or "own" for name in NAMES])
def test_which_are_asked(name: str, versions: dict[str, Accounted]) -> None:
    at_hand(name)
    if name not in versions:
        pytest.skip("slurmdbd is not installed")


def begin(version: Accounted) -> tuple[dict[str, int], subprocess.Popen[str]]:
    """Three runs of a node each: those of n01 and n02 are killed, that of n03 is stopped, and goes on later. Their jobs
    are forgotten meanwhile: n01's has ended, the others were cancelled."""
    for name in ("go", "go-n01"):
        (version.cluster.dir / name).unlink(missing_ok=True)
    killed = [version.begin("waits", "-w", node) for node in ("n01", "n02")]
    frozen = version.begin("waits", "-w", "n03")
    frozen.send_signal(signal.SIGSTOP)
    for process in killed:
        process.kill()
        process.communicate(timeout=60)
    return {node: version.job_of(node) for node in ("n01", "n02", "n03")}, frozen


def go_on(version: Accounted, frozen: subprocess.Popen[str]) -> list[subprocess.Popen[str]]:
    """The run that was stopped, and the killed ones resumed, all at once."""
    frozen.send_signal(signal.SIGCONT)
    version.go.touch()
    command = ["--site", str(version.cluster.dir / "site.toml"), "validate", "--allow-root", "--resume"]
    return [frozen, *(version.cluster.begin(*command, version.run_of(n).path.name) for n in ("n01", "n02"))]


def ended(version: Accounted, processes: list[subprocess.Popen[str]], reason: str) -> None:
    """No result is lost or counted twice; what nobody measured is an error with its reason, or was planned again."""
    said = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [3, 0, 0], said
    assert "Traceback" not in "".join(said)
    run = version.run_of("n03")
    assert [v.status for v in run.verdicts] == [Status.ERROR]
    assert reason in run.verdicts[0].reason
    for node, jobs in (("n01", [None]), ("n02", [None, 1])):
        run = version.run_of(node)
        assert run.manifest.state == "complete"
        assert run.plan and [job.rest_of for job in run.plan.jobs] == jobs
        assert Counter(m.test for m in run.measured) == Counter(t.id for t in run.plan.tests)
        assert statuses(run) == {"waits": {Status.PASS: 1}}


def test_jobs_that_slurmctld_has_forgotten(versions: dict[str, Accounted]) -> None:
    begun = {name: begin(version) for name, version in versions.items()}
    others = {}
    for name, version in versions.items():
        ids, _ = begun[name]
        version.cluster.dir.joinpath("go-n01").touch()
        again = submit(version.cluster, "-w", "n04", "--requeue", "--wrap",
                       f'touch {version.cluster.dir}/began; [ "$SLURM_RESTART_COUNT" ] || sleep 300; exit 3')
        wait_until((version.cluster.dir / "began").exists)
        version.cluster.slurm("scontrol", "requeue", str(again))
        wait_until(lambda: "n04" in free(version.client))  # noqa: B023
        version.cluster.slurm("scontrol", "update", f"jobid={again}", "starttime=now")      # else after two minutes
        others[name] = again, submit(version.cluster, "-w", "n04", "--wrap", "true")
        version.cluster.slurm("scancel", str(ids["n02"]), str(ids["n03"]))
    going = {}
    for name, version in versions.items():
        (ids, frozen), (again, done) = begun[name], others[name]
        version.forgotten(*ids.values(), again, done)
        wait_until(lambda: version.client.jobs([again])[again].base == "FAILED")  # noqa: B023
        records = dict(line.split("|") for line in version.cluster.slurm(
            "sacct", "-X", "-n", "-P", "-D", "-o", "State,ExitCode", "-j", str(again)).splitlines())
        assert records.keys() == {"REQUEUED", "FAILED"}, name
        told = version.client.jobs([*ids.values(), again, done, 99999])
        assert [told[number].base for number in (*ids.values(), again, done)] == [
            "COMPLETED", "CANCELLED", "CANCELLED", "FAILED", "COMPLETED"], name
        assert (told[again].exit_code, told[done].nodes, told[99999]) == (
            records["FAILED"], "n04", Job(99999)), name
        going[name] = go_on(version, frozen)
    for name, version in versions.items():
        ended(version, going[name], "was cancelled")


def test_forgotten_jobs_while_slurmdbd_is_down(versions: dict[str, Accounted]) -> None:
    """What the jobs left behind decides."""
    begun = {name: begin(version) for name, version in versions.items()}
    for name, version in versions.items():
        ids, _ = begun[name]
        version.cluster.kill("slurmdbd")
        version.cluster.dir.joinpath("go-n01").touch()
        version.cluster.slurm("scancel", str(ids["n02"]), str(ids["n03"]))
    going = {}
    for name, version in versions.items():
        ids, frozen = begun[name]
        version.forgotten(*ids.values())
        assert version.client.jobs(list(ids.values())) == {number: Job(number) for number in ids.values()}
        going[name] = go_on(version, frozen)
    for name, version in versions.items():
        ended(version, going[name], "is not known to Slurm any more")
