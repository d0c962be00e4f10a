"""The job script run for real, with a stand-in for srun that starts each task here under the node's name."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from job_runs import SRUN, made, one, run, sh

from hpcadmin.check import Context, JobRequest, Ready, Role, Scope, Step
from hpcadmin.errors import UsageError
from hpcadmin.frames import Frame, encode, scan
from hpcadmin.plan import MEET_S
from hpcadmin.rundata import Plan, Stage
from hpcadmin.slurm.script import JobOptions, render, render_own


@pytest.mark.parametrize("shell", [s for s in ("dash", "bash") if shutil.which(s)])
def test_nodes_run_their_own_lists(tmp_path: Path, shell: str) -> None:
    plan = made(Scope.NODE, lambda c: (sh('echo "$SLURMD_NODENAME $0 $1"; echo err >&2', "a b'$(x)\n"),
                                       sh("exit 3")), ("n1", "n2"))
    frames = run(plan, tmp_path / "job with blank", tmp_path, shell)
    assert [f.body for f in frames["t0002"]] == [b"n2 sh a b'$(x)\n\nerr\n", b""]
    assert [(f.status, f.node, f.flags) for f in frames["t0002"]] == [(0, "n2", frozenset()), (3, "n2", frozenset())]
    first = frames["t0001"][0]
    assert first.start and first.end and 0 <= first.end - first.start < 30


@pytest.mark.deep
def test_a_hanging_command_is_killed_and_its_words_are_kept(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh("echo begun; exec sleep 60", timeout_s=0.5),), ("n1",)), tmp_path)
    assert (frame.status, frame.flags, frame.body) == (None, {"timeout"}, b"begun\n")


def test_a_command_that_returns_124_has_not_timed_out(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh("exit 124"),), ("n1",)), tmp_path)
    assert (frame.status, frame.flags) == (124, frozenset())


def test_a_killed_command_has_the_shells_status(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh("kill -9 $$"),), ("n1",)), tmp_path)
    assert frame.status == 137


@pytest.mark.deep
def test_a_child_that_stays_behind_does_not_hold_the_job(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh("setsid sleep 5 & echo done", timeout_s=1.0),), ("n1",)), tmp_path)
    assert (frame.status, frame.body) == (0, b"done\n")


@pytest.mark.deep
def test_a_flood_is_cut_and_said_to_be(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh("head -c 20000000 /dev/zero; echo end"),), ("n1",)), tmp_path)
    assert (frame.status, len(frame.body), frame.flags) == (0, 16 * 1024 * 1024, {"truncated"})


def test_outputs_may_hold_frames_and_anything(tmp_path: Path) -> None:
    forged = encode(Frame("t0002", 0, "each", "n2", "n2", 0, 1.0, 2.0, frozenset(), b"forged"))
    (tmp_path / "forged").write_bytes(forged + b"\0\xff\r\n" + forged[:-5])
    plan = made(Scope.NODE, lambda c: (Step(("cat", str(tmp_path / "forged"))),), ("n1", "n2"))
    frames = run(plan, tmp_path / "job", tmp_path)
    assert {f.body for fs in frames.values() for f in fs} == {(tmp_path / "forged").read_bytes()}


def test_a_missing_command_is_127(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (Step(("/no/such/tool",)),), ("n1",)), tmp_path)
    assert frame.status == 127
    assert b"not found" in frame.body


def test_the_environment_of_a_step(tmp_path: Path) -> None:
    frame = one(made(Scope.NODE, lambda c: (sh('echo "$A"', env={"A": "x y;'\"z"}),), ("n1",)), tmp_path)
    assert frame.body == b"x y;'\"z\n"


@pytest.mark.deep
def test_pairs_in_rounds_with_all_their_steps(tmp_path: Path) -> None:
    plan = made(Scope.PAIR, lambda c: (sh('echo "$SLURM_PROCID $SLURMD_NODENAME"', role=Role.RANKS),
                                       sh("echo $SLURMD_NODENAME")), ("n1", "n2", "n3"))
    frames = run(plan, tmp_path / "job", tmp_path)
    assert set(frames) == {"t0001", "t0002", "t0003"}
    for test in plan.tests:
        a, b = test.subject.nodes
        ranks = next(f for f in frames[test.id] if f.role == "ranks")
        assert sorted(ranks.body.splitlines()) == [f"0 {a}".encode(), f"1 {b}".encode()]
        assert {f.body for f in frames[test.id] if f.role == "each"} == {f"{a}\n".encode(), f"{b}\n".encode()}


@pytest.mark.deep
def test_a_step_that_hangs_is_killed_and_the_round_goes_on(tmp_path: Path) -> None:
    plan = made(Scope.PAIR, lambda c: (sh("echo begun; [ $SLURMD_NODENAME != n1 ] || exec sleep 90", role=Role.RANKS,
                                          timeout_s=4.0),), ("n1", "n2", "n3", "n4"))
    slow = replace(plan, jobs=(replace(plan.jobs[0], stages=plan.jobs[0].stages[:1]),),
                   tests=tuple(t for t in plan.tests if t.id in plan.jobs[0].stages[0].tests))
    frames = run(slow, tmp_path / "job", tmp_path)
    by_nodes = {t.subject.nodes: frames[t.id][0] for t in slow.tests}
    assert by_nodes["n1", "n4"].flags == {"timeout"}
    assert by_nodes["n2", "n3"].status == 0


SERVER = """\
import os, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
time.sleep(0.3)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
print("listening", flush=True)
c, _ = s.accept()
print(c.recv(99).decode())
"""
CLIENT = """\
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"hello")
print("sent")
"""


def python(code: str, port: int, role: Role, **more: object) -> Step:
    return Step((sys.executable, "-c", code, str(port)), role, **more)  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize("by", ["port", "text"])
def test_the_client_starts_when_the_server_is_ready(tmp_path: Path, by: str) -> None:
    def steps(c: Context) -> tuple[Step, ...]:
        ready = Ready(port=c.port_base) if by == "port" else Ready(text="listening")
        return (python(SERVER, c.port_base, Role.SERVER, ready=ready), python(CLIENT, c.port_base, Role.CLIENT))
    frames = run(made(Scope.PAIR, steps, ("n1", "n2")), tmp_path / "job", tmp_path)["t0001"]
    assert [(f.role, f.node, f.status, f.body, f.flags) for f in sorted(frames, key=lambda f: f.step)] == [
        ("server", "n1", 0, b"listening\nhello\n", frozenset()), ("client", "n2", 0, b"sent\n", frozenset())]


def server_frames(tmp_path: Path, server: Step) -> tuple[Frame, Frame]:
    steps = (server, sh("echo client", role=Role.CLIENT))
    frames = run(made(Scope.PAIR, lambda c: steps, ("n1", "n2")), tmp_path / "job", tmp_path)["t0001"]
    first, second = sorted(frames, key=lambda f: f.step)
    return first, second


@pytest.mark.deep
def test_a_server_that_never_gets_ready(tmp_path: Path) -> None:
    server, client = server_frames(tmp_path, sh("echo hm; exec sleep 60", role=Role.SERVER,
                                                ready=Ready(port=18499, timeout_s=1)))
    assert ("notready" in server.flags, server.body, server.status) == (True, b"hm\n", None)
    assert (client.flags, client.status) == ({"nostart"}, None)


def test_a_server_that_dies_at_once(tmp_path: Path) -> None:
    server, client = server_frames(tmp_path, sh("echo no device >&2; exit 4", role=Role.SERVER,
                                                ready=Ready(text="ready", timeout_s=20)))
    assert (server.flags, server.status, server.body) == ({"ended"}, 4, b"no device\n")
    assert client.flags == {"nostart"}


@pytest.mark.deep
def test_a_server_that_never_ends_is_stopped_after_its_client(tmp_path: Path) -> None:
    server, client = server_frames(tmp_path, sh("echo up; exec sleep 60", role=Role.SERVER, ready=Ready(text="up")))
    assert (client.status, client.body) == (0, b"client\n")
    assert (server.flags, server.status, server.body) == ({"stopped"}, None, b"up\n")


def test_a_port_that_somebody_else_uses(tmp_path: Path) -> None:
    import socket
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server, client = server_frames(tmp_path, sh("exit 0", role=Role.SERVER,
                                                    ready=Ready(port=other.getsockname()[1])))
    assert server.flags == {"portbusy"}
    assert client.flags == {"nostart"}


def test_a_script_started_again_by_hand_leaves_the_run_alone(tmp_path: Path) -> None:
    plan = made(Scope.NODE, lambda c: (sh("echo x"),), ("n1",))
    run(plan, tmp_path / "job", tmp_path)
    before = (tmp_path / "job" / "n1.log").read_bytes()
    subprocess.run(["sh", str(tmp_path / "job" / "script")], check=True, timeout=30, env={
        **os.environ, "PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}", "SLURM_JOB_ID": "8"})
    assert (tmp_path / "job" / "n1.log").read_bytes() == before
    assert (tmp_path / "job" / "by-hand-8" / "n1.log").exists()


def again(folder: Path, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(folder / "script")], timeout=30, check=False, capture_output=True, text=True, env={
        **os.environ, "PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}", **env})


def test_a_job_that_is_to_stop_begins_no_further_stage(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    plan = made(Scope.NODE, lambda c: (sh(f"touch {folder}/stop; echo x"),), ("n1",))
    (job,) = plan.jobs
    twice = replace(plan, tests=(*plan.tests, replace(plan.tests[0], id="t0002")), jobs=(
        replace(job, stages=(*job.stages, Stage("nodes", "second", ("t0002",)))),))
    folder.mkdir()
    (folder / "script").write_text(render(twice.jobs[0], {t.id: t for t in twice.tests}, JobOptions("c"), folder))
    run(plan, tmp_path / "other", tmp_path)         # for the stand-ins of Slurm's commands
    done = again(folder, tmp_path, SLURM_JOB_ID="7")
    assert (done.returncode, done.stderr) == (0, "")
    assert [f.id for f in scan((folder / "n1.log").read_bytes()).frames] == ["t0001"]
    assert (folder / "stopped").read_text() == "2\n"
    assert (folder / "done").read_text().endswith(" 7\n")


def test_a_requeued_job_does_nothing(tmp_path: Path) -> None:
    plan = made(Scope.NODE, lambda c: (sh("echo x"),), ("n1",))
    folder = tmp_path / "job"
    run(plan, folder, tmp_path)
    (folder / "done").unlink()
    before = sorted((p.name, p.read_bytes()) for p in folder.iterdir())
    done = again(folder, tmp_path, SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1")
    assert (done.returncode, done.stderr) == (
        75, "hpcadmin: this job was requeued; what it left undone is planned again\n")
    assert (folder / "requeued").exists()
    (folder / "requeued").unlink()
    assert sorted((p.name, p.read_bytes()) for p in folder.iterdir()) == before


def test_a_second_job_of_the_same_script_writes_elsewhere(tmp_path: Path) -> None:
    """As when the answer to a submission was lost, and it was made again; the first may still be running."""
    plan = made(Scope.NODE, lambda c: (sh("echo x"),), ("n1",))
    folder = tmp_path / "job"
    run(plan, folder, tmp_path)
    (folder / "done").unlink()
    assert (folder / "claimed").read_text() == "7\n"
    before = (folder / "n1.log").read_bytes()
    assert again(folder, tmp_path, SLURM_JOB_ID="8").returncode == 0
    assert (folder / "n1.log").read_bytes() == before
    assert not (folder / "done").exists()
    assert (folder / "by-hand-8" / "done").exists()


def test_a_folder_that_is_not_there_on_the_node_is_not_made(tmp_path: Path) -> None:
    plan = made(Scope.NODE, lambda c: (sh("echo x"),), ("n1",))
    run(plan, tmp_path / "job", tmp_path)
    script = (tmp_path / "job" / "script").read_text()
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "script").write_text(script.replace(str(tmp_path / "job"), str(tmp_path / "nowhere")))
    assert again(tmp_path / "gone", tmp_path, SLURM_JOB_ID="7").returncode != 0
    assert not (tmp_path / "nowhere").exists()


def test_pmix_is_told_the_nodes_of_the_step_in_place_of_the_jobs(tmp_path: Path) -> None:
    def script(nodes: tuple[str, ...], mpi: str) -> str:
        plan = made(Scope.GROUP, lambda c: (Step(("prog", "a b"), Role.RANKS),), nodes)
        return render(plan.jobs[0], {t.id: t for t in plan.tests}, JobOptions("c", mpi=mpi), tmp_path)
    told = script(("n1", "n2"), "pmix_v4")
    assert "    export SLURM_JOB_NODELIST='n[1-2]' SLURM_NODELIST='n[1-2]'\n    ranks t0001 0 n1 " in told
    assert "-w 'n[1-2]' sh -c \"$LATER\" sh prog 'a b'\n" in told
    assert "export SLURM_JOB_NODELIST=" not in script(("n1", "n2"), "pmi2")
    assert "PMIX" not in script(("n1", "n2"), "none")


def test_the_head_of_the_script(tmp_path: Path) -> None:
    plan = made(Scope.NODE, lambda c: (sh("echo x"),), ("n1", "n2", "n3"))
    options = JobOptions("hpcadmin:R:1", partition="val", gpus_per_node=4, qos="high")
    head = render(plan.jobs[0], {t.id: t for t in plan.tests}, options, tmp_path / "a b%").split("SELF=")[0]
    for line in ("--nodelist=n[1-3]", "--nodes=3", "--exclusive", "--no-requeue", "--comment=hpcadmin:R:1",
                 "--partition=val", "--gres=gpu:4", "--qos=high", "--mem=0"):
        assert f"#SBATCH {line}\n" in head
    assert f'#SBATCH --output="{tmp_path}/a b%%/slurm.out"\n' in head
    assert "account" not in head
    for bad in ("a\nb", 'a"b', "a\\"):
        with pytest.raises(UsageError):
            render(plan.jobs[0], {t.id: t for t in plan.tests}, replace(options, account=bad), tmp_path)


def own_plan(text: str) -> Plan:
    return made(Scope.NODE, lambda c: tuple(
        Step(("sh", "-c", text), Role.JOB, job=JobRequest(gpus=n, near_gpus=True)) for n in (1, 3)), ("n1",))


def start_own(plan: Plan, place: int, tmp_path: Path, *, meet_s: int = 60) -> "subprocess.Popen[bytes]":
    """The job of that step, started as Slurm would."""
    tools, job = tmp_path / "tools", plan.jobs[place]
    tools.mkdir(exist_ok=True)
    (tools / "srun").write_text(SRUN.replace("PYTHON", sys.executable).replace('("-N"', '("-c", "-N"').replace(
        "args, nodes, tasks = sys.argv[1:], [], 1",
        "args, nodes, tasks = sys.argv[1:], ['n1'], 1"))
    (tools / "srun").chmod(0o755)
    folder = tmp_path / str(job.number)
    folder.mkdir(exist_ok=True)
    meets = [tmp_path / str(number) for number in job.meets]
    text = render_own(job, plan.tests[0], JobOptions("c"), folder, meets)
    (folder / "script").write_text(text.replace(f"\nmeet {MEET_S} ", f"\nmeet {meet_s} "))
    return subprocess.Popen(["sh", str(folder / "script")], env={
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"})


def own_frame(tmp_path: Path, number: int) -> Frame:
    result = scan((tmp_path / str(number) / "driver.log").read_bytes(), "driver.log")
    assert (result.problem, result.pending, len(result.frames)) == ("", "", 1)
    return result.frames[0]


@pytest.mark.deep
def test_the_jobs_of_a_test_wait_for_each_other(tmp_path: Path) -> None:
    plan = own_plan("date +%s.%N; sleep 0.1")
    first = start_own(plan, 0, tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(timeout=1.0)
    second = start_own(plan, 1, tmp_path)
    assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    frames = [own_frame(tmp_path, job.number) for job in plan.jobs]
    assert [(f.step, f.role, f.node, f.status, f.flags) for f in frames] == [
        (0, "job", "n1", 0, frozenset()), (1, "job", "n1", 0, frozenset())]


@pytest.mark.deep
def test_a_job_whose_other_never_comes_says_so(tmp_path: Path) -> None:
    plan = own_plan("echo here; exit 4")
    assert start_own(plan, 0, tmp_path, meet_s=1).wait(timeout=60) == 0
    frame = own_frame(tmp_path, 1)
    assert (frame.status, frame.flags, frame.body) == (4, {"alone"}, b"here\n")


def test_what_a_job_of_its_own_asks_slurm_for(tmp_path: Path) -> None:
    plan = own_plan("true")
    text = render_own(plan.jobs[1], plan.tests[0], JobOptions("c", partition="p"), tmp_path, [])
    lines = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    for wanted in ("--gres=gpu:3", "--gres-flags=enforce-binding", "--nodelist=n1", "--nodes=1", "--mem=100M",
                   "--no-requeue", "--partition=p", "--cpus-per-task=1"):
        assert f"#SBATCH {wanted}" in lines
    assert not any("exclusive" in line for line in lines)


def test_near_cores_and_nodes_of_a_job_of_its_own(tmp_path: Path) -> None:
    plan = made(Scope.NODE, lambda c: (Step(("true",), Role.JOB, job=JobRequest(gpus=1, anywhere=2)),), ("n1",))
    text = render_own(plan.jobs[0], plan.tests[0], JobOptions("c", exclude=("n3", "n4", "n9")), tmp_path, [])
    assert "#SBATCH --exclude=n[3-4,9]\n" in text
    assert "gres-flags" not in text and "nodelist" not in text
    assert "--exclude" not in render_own(plan.jobs[0], plan.tests[0], JobOptions("c"), tmp_path, [])


def test_steps_of_jobs_are_bound_as_slurm_binds_them(tmp_path: Path) -> None:
    """What is measured is what a user's srun gets."""
    text = render_own(own_plan("true").jobs[0], own_plan("true").tests[0], JobOptions("c"), tmp_path, [])
    line = next(line for line in text.splitlines() if line.startswith("own t0001 "))
    assert "--cpu-bind" not in line and "--mpi=none" in line
