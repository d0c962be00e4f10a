"""Modules, containers and folders around the commands of a job's steps, run for real; stand-ins are named so."""

import shutil
from dataclasses import replace
from pathlib import Path

import job_runs
import pytest
from job_runs import made, run, sh, through

from hpcadmin.check import Context, Ready, Role, Scope, Step, Way
from hpcadmin.slurm.script import JobOptions, render

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


@pytest.mark.deep
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
    assert kinds[:7] == ["{", "on", "ranks", "each", "IMAGE='nvcr.io#x:1'", "serve", "IMAGE='nvcr.io#x:1'"]
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
    srun = job_runs.SRUN.replace("args, nodes, tasks =", f"{keeps}\nargs, nodes, tasks =")
    monkeypatch.setattr(job_runs, "SRUN", srun)
    frames = run(plan, tmp_path / "job with blank", tmp_path)["t0001"]
    assert len(frames) == 5
    said = [line.split("\t") for line in (tmp_path / "words").read_text().splitlines()]
    assert len(said) == 4 and all("--container-image=nvcr.io#x:1" in words for words in said)
    mounts = f"--container-mounts={tmp_path}/job with blank:{tmp_path}/job with blank"
    assert sum(mounts in words for words in said) == 3


OPEN_MPI, HYDRA = "mpirun (Open MPI) 4.1.4", "HYDRA build details:\n    Version: 4.0.2"
ROOM = "2(x5) 1"          # what mpirun sees: the job's nodes with room for its ranks, and steps beside others


@pytest.mark.parametrize(("version", "words"), [
    (OPEN_MPI, "--host n2:2,n1:2 -np 4 --map-by ppr:2:node --bind-to none env A=b;c prog a b"),
    (HYDRA, "-hosts n2,n1 -n 4 -ppn 2 env A=b;c prog a b"),
    ("mpirun from nowhere 1.0", ""),
])
def test_mpirun_gets_the_ranks_and_nodes_of_its_step(
        tmp_path: Path, version: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "5")
    program = tmp_path / "my mpirun"                                                            # a stand-in
    program.write_text(f'#!/bin/sh\n[ "$*" != --version ] || {{ echo "{version}"; exit; }}\n'
                       'echo "$A $*"; echo "$SLURM_TASKS_PER_NODE" $SLURM_OVERLAP\n')
    program.chmod(0o755)
    steps = (Step(("prog", "a b"), Role.RANKS, tasks_per_node=2, env={"A": "b;c"}),)
    plan = made(Scope.GROUP, lambda c: steps, ("n2", "n1"))
    frame = run(plan, tmp_path / "job with blank", tmp_path, mpi="mpirun", mpirun=str(program))["t0001"][0]
    if words:
        assert frame.body.decode() == f"b;c {words}\n{ROOM}\n" and frame.status == 0
    else:
        assert (frame.status, frame.body.decode()) == (
            78, f"hpcadmin: {program} is neither Open MPI's nor one of MPICH's family: {version}\n")


def test_an_mpirun_that_is_not_there_is_told(tmp_path: Path) -> None:
    plan = made(Scope.GROUP, lambda c: (sh("true", role=Role.RANKS),), ("n1",))
    frame = run(plan, tmp_path / "job", tmp_path, mpi="mpirun", mpirun="/no/mpirun")["t0001"][0]
    assert (frame.status, frame.body) == (78, b"hpcadmin: /no/mpirun is not there to start MPI programs\n")
