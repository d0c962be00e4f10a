"""The job script run for real, with a stand-in for srun that starts each task here under the node's name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpcadmin.check import Check, Context, JobRequest, NodeView, Ready, Role, Scope, Step, Way
from hpcadmin.errors import UsageError
from hpcadmin.frames import Frame, encode, scan
from hpcadmin.plan import MEET_S, make_plan
from hpcadmin.plan_facts import Facts
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.rundata import Plan
from hpcadmin.slurm.script import JobOptions, expected_frames, render, render_own

SRUN = r"""#!PYTHON
import os, subprocess, sys
from ClusterShell.NodeSet import NodeSet
args, nodes, tasks = sys.argv[1:], [], 1
while args and args[0].startswith("-"):
    word = args.pop(0)
    if word == "-w":
        nodes = list(NodeSet(args.pop(0)))
    elif word in ("-N", "-n", "-J"):
        args.pop(0)
    elif word.startswith("--ntasks-per-node="):
        tasks = int(word.partition("=")[2])
rank, running = 0, []
for node in nodes:
    for _ in range(tasks):
        env = {**os.environ, "SLURMD_NODENAME": node, "SLURM_PROCID": str(rank)}
        running.append(subprocess.Popen(args, env=env))
        rank += 1
sys.exit(max(p.wait() for p in running))
"""
Steps = Callable[[Context], tuple[Step, ...]]


def sh(text: str, *words: str, **more: object) -> Step:
    return Step(("sh", "-c", text, "sh", *words), **more)  # type: ignore[arg-type]


def made(scope: Scope, steps: Steps, nodes: tuple[str, ...]) -> Plan:
    check = Check("c", "c", scope, steps, lambda o, c: [])
    suite = Suite("s", "s", (SuiteEntry(("c",)),))
    return make_plan(suite, {"c": check}, Facts({n: NodeView(n) for n in nodes}), nodes)


def run(plan: Plan, folder: Path, tmp_path: Path, shell: str = "sh", **options: object) -> dict[str, list[Frame]]:
    """Render, run, and read all frames, by test."""
    folder.mkdir(exist_ok=True)
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "srun").write_text(SRUN.replace("PYTHON", sys.executable))
    (tools / "srun").chmod(0o755)
    for name in ("squeue", "scancel"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    if shell != "sh":
        (tools / "sh").symlink_to(shutil.which(shell) or shell)
    job = plan.jobs[0]
    (folder / "script").write_text(render(
        job, {t.id: t for t in plan.tests}, JobOptions("c", **options), folder))  # type: ignore[arg-type]
    done = subprocess.run([shell, str(folder / "script")], env={
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}, capture_output=True, timeout=60,
        check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert (folder / "done").read_text().endswith(" 7\n")
    found: dict[str, list[Frame]] = {}
    keys = []
    for log in sorted(folder.glob("*.log")):
        result = scan(log.read_bytes(), log.name)
        assert (result.problem, result.pending) == ("", "")
        for frame in result.frames:
            found.setdefault(frame.id, []).append(frame)
            keys.append(frame.key)
            assert log.name in ("driver.log", f"{frame.node}.log")
    expected = expected_frames(plan.tests)
    assert sorted(keys) == sorted((i, *key) for i, all_keys in expected.items() for key in all_keys)
    assert not list(folder.glob(".tmp*"))
    return found


def through(plan: Plan, way: Way) -> Plan:
    """The plan with this way to the tool of every step."""
    return replace(plan, tests=tuple(replace(t, steps=tuple(replace(s, way=way) for s in t.steps)) for t in plan.tests))


def one(plan: Plan, tmp_path: Path) -> Frame:
    return run(plan, tmp_path / "job", tmp_path)["t0001"][0]


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
                                          timeout_s=0.2),), ("n1", "n2", "n3", "n4"))
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


def test_pmix_is_told_the_nodes_of_the_step_in_place_of_the_jobs(tmp_path: Path) -> None:
    def script(nodes: tuple[str, ...], mpi: str) -> str:
        plan = made(Scope.GROUP, lambda c: (Step(("prog", "a b"), Role.RANKS),), nodes)
        return render(plan.jobs[0], {t.id: t for t in plan.tests}, JobOptions("c", mpi=mpi), tmp_path)
    told = script(("n1", "n2"), "pmix_v4")
    assert "    export SLURM_JOB_NODELIST='n[1-2]' SLURM_NODELIST='n[1-2]'\n    ranks t0001 0 n1 " in told
    assert "-w 'n[1-2]' sh -c \"$LATER\" sh prog 'a b'\n" in told
    assert "SLURM_JOB_NODELIST" not in script(("n1", "n2"), "pmi2")
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
    assert (first.wait(timeout=20), second.wait(timeout=20)) == (0, 0)
    frames = [own_frame(tmp_path, job.number) for job in plan.jobs]
    assert [(f.step, f.role, f.node, f.status, f.flags) for f in frames] == [
        (0, "job", "n1", 0, frozenset()), (1, "job", "n1", 0, frozenset())]


@pytest.mark.deep
def test_a_job_whose_other_never_comes_says_so(tmp_path: Path) -> None:
    plan = own_plan("echo here; exit 4")
    assert start_own(plan, 0, tmp_path, meet_s=1).wait(timeout=20) == 0
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


MODULE = """# a module command as Lmod's and Environment Modules' are: a shell function
[ -z "$SLURM_NODELIST" ] || return       # OpenHPC's start file does nothing in a job
module() {
    case $1 in use) TREES=$2; export TREES; return ;; esac
    case $2 in
    bad*) printf '\\n%s\\n' "No module(s) found: $2" >&2; return 1 ;;
    old) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
    end) exit 3 ;;
    *) echo "Loading $2"; LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}$2; export LOADEDMODULES ;;
    esac
}
"""
SAYS = 'echo "$SLURMD_NODENAME $LOADEDMODULES $TREES ${SLURM_NODELIST:-} $*"'


def module_steps(context: Context) -> tuple[Step, ...]:
    both = [n.name for n in context.nodes]
    return (sh(SAYS, "a b", role=Role.RANKS), sh(SAYS), sh("echo up; " + SAYS + "; sleep 0.1", role=Role.SERVER,
            ready=Ready(text="up"), nodes=(both[0],)), sh(SAYS, role=Role.CLIENT, nodes=(both[1],)))


@pytest.mark.deep
def test_modules_are_around_every_kind_of_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "init it").write_text(MODULE)
    monkeypatch.setenv("SLURM_NODELIST", "n[1-2]")
    plan = through(made(Scope.PAIR, module_steps, ("n1", "n2")), Way(("mpi/5.0", "osu/7.4"), ("/no where", "/x")))
    options = {"modules_init": str(tmp_path / "init it"), "module_paths": ("/a b", "/c")}
    frames = run(plan, tmp_path / "job with blank", tmp_path, **options)["t0001"]
    told = "mpi/5.0:osu/7.4 /a b:/c n[1-2]"
    assert {f.role: f.body.decode() for f in frames if f.role != "ranks"} == {
        "each": f"n2 {told} \n", "server": f"up\nn1 {told} \n", "client": f"n2 {told} \n"}
    ranks = next(f for f in frames if f.role == "ranks").body.decode().splitlines()
    assert sorted(ranks) == [f"n1 {told} a b", f"n2 {told} a b"]
    plan = made(Scope.NODE, lambda c: (sh(SAYS + '; echo "$PATH"'),), ("n1",))
    alone = through(plan, Way(("a",), ("/no where", "/x")))
    words = run(alone, tmp_path / "alone", tmp_path, **options)["t0001"][0].body.decode().splitlines()
    assert words[0] == "n1 a /a b:/c n[1-2] " and words[1].endswith(":/no where:/x")


@pytest.mark.parametrize(("module", "words"), [
    ("bad/1", b"hpcadmin: module load bad/1: No module(s) found: bad/1 \n"),
    ("old", b"hpcadmin: module load old loads nothing: ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile "
            b"for 'old' \n"),
    ("end", b"hpcadmin: the environment modules ended the shell\n"),
])
def test_a_module_that_fails_is_told_in_its_own_words(tmp_path: Path, module: str, words: bytes) -> None:
    (tmp_path / "init").write_text(MODULE)
    for kind, steps in ((Scope.NODE, (sh("echo ran"),)), (Scope.GROUP, (sh("echo ran", role=Role.RANKS),))):
        plan = through(made(kind, lambda c, steps=steps: steps, ("n1",)), Way(("good", module)))  # type: ignore[misc]
        frame = run(plan, tmp_path / kind.value, tmp_path, modules_init=str(tmp_path / "init"))["t0001"][0]
        assert (frame.status, frame.body) == (78, words)


def test_a_module_system_that_is_not_there_is_told(tmp_path: Path) -> None:
    plan = through(made(Scope.NODE, lambda c: (sh("echo ran"),), ("n1",)), Way(("a",)))
    frame = run(plan, tmp_path / "job", tmp_path, modules_init="/no/init")["t0001"][0]
    assert (frame.status, frame.body) == (78, b"hpcadmin: /no/init, of [modules] init, cannot be read\n")


def test_containers_of_apptainer_are_around_the_command_alone(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "apptainer").write_text('#!/bin/sh\necho "apptainer $1 $2"; shift 2; exec "$@"\n')       # a stand-in
    (tools / "apptainer").chmod(0o755)
    way = Way(image="docker://nvcr.io/x:1", by="apptainer")
    plan = through(made(Scope.PAIR, lambda c: (sh('echo "$0 $A"', env={"A": "b c"}), sh("echo rank", role=Role.RANKS)),
                        ("n1", "n2")), way)
    frames = run(plan, tmp_path / "job", tmp_path)["t0001"]
    heads = {b"apptainer exec docker://nvcr.io/x:1\n"} if not Path("/dev/nvidiactl").exists() else {frames[0].body}
    assert {f.body.split(b"\n")[0] + b"\n" for f in frames} <= heads
    assert [f.body.split(b"\n")[1] for f in frames if f.role == "each"] == [b"sh b c", b"sh b c"]
    (tools / "apptainer").unlink()
    if not shutil.which("apptainer") and not shutil.which("singularity"):
        frame = next(f for f in run(plan, tmp_path / "none", tmp_path)["t0001"] if f.role == "each")
        assert frame.body == b"hpcadmin: neither apptainer nor singularity is there to start docker://nvcr.io/x:1\n"


def test_containers_of_pyxis_are_options_of_the_srun_of_their_step(tmp_path: Path) -> None:
    plan = made(Scope.PAIR, module_steps, ("n1", "n2"))
    image = Way(image="nvcr.io#x:1", by="pyxis")
    boxed = replace(plan.tests[0], steps=tuple(replace(s, way=image if n != 1 else Way())
                                               for n, s in enumerate(plan.tests[0].steps)))
    text = render(plan.jobs[0], {"t0001": boxed}, JobOptions("c", mpi="none"), tmp_path)
    lines = [line.strip() for line in text[text.index("# 1. "):].splitlines()]
    kinds = [line.split()[0] for line in lines if line.split() and line.split()[0] != "#"]
    assert kinds[:6] == ["{", "ranks", "each", "IMAGE='nvcr.io#x:1'", "serve", "IMAGE='nvcr.io#x:1'"]
    ranks = next(line for line in lines if line.startswith("ranks "))
    assert " 'n[1-2]' '--container-image=nvcr.io#x:1' sh -c " in ranks
    node = through(made(Scope.NODE, lambda c: (sh("true"),), ("n1",)), image)
    text = render(node.jobs[0], {"t0001": node.tests[0]}, JobOptions("c"), tmp_path)
    assert "by_node 1" not in text and "IMAGE='nvcr.io#x:1'\n    each t0001 0 60 1 n1 sh -c true sh\n" in text


@pytest.mark.deep
def test_pyxis_gets_the_run_folder_for_what_runs_beside_the_tool(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for srun keeps its options; the container itself is not there."""
    plan = through(made(Scope.PAIR, module_steps, ("n1", "n2")), Way(image="nvcr.io#x:1", by="pyxis"))
    keeps = f"open({str(tmp_path / 'words')!r}, 'a').write('\\t'.join(sys.argv[1:]) + '\\n')"
    monkeypatch.setitem(globals(), "SRUN", SRUN.replace("args, nodes, tasks =", f"{keeps}\nargs, nodes, tasks ="))
    frames = run(plan, tmp_path / "job with blank", tmp_path)["t0001"]
    assert len(frames) == 5
    said = [line.split("\t") for line in (tmp_path / "words").read_text().splitlines()]
    assert len(said) == 4 and all("--container-image=nvcr.io#x:1" in words for words in said)
    mounts = f"--container-mounts={tmp_path}/job with blank:{tmp_path}/job with blank"
    assert sum(mounts in words for words in said) == 3
