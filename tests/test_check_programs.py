"""Our own MPI programs: they build without a warning, and what they really print is what the checks read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcadmin.check import Context, NodeView, Output, ParseError, Role
from hpcadmin.registry import load_checks

SOURCES = Path(__file__).resolve().parent.parent / "checks" / "src"
PROGRAMS = sorted(path.stem for path in SOURCES.glob("*.c"))

pytestmark = [pytest.mark.deep, pytest.mark.skipif(not (shutil.which("mpicc") and shutil.which("mpirun")),
                                                   reason="no mpicc or mpirun")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for program in PROGRAMS:
        subprocess.run(["mpicc", "-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o",
                        str(folder / program), str(SOURCES / f"{program}.c")], check=True, timeout=120)
    return folder


def mpirun(ranks: int, program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,tcp",
           "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(["mpirun", "--oversubscribe", "-np", str(ranks), str(program), *options],
                          capture_output=True, text=True, timeout=120, env=env, check=False)


def test_sources_name_no_implementation() -> None:
    for program in PROGRAMS:
        text = (SOURCES / f"{program}.c").read_text()
        assert not re.search(r"OMPI_|MPICH|mpi-ext\.h|\b(strcpy|strcat|sprintf|gets|system)\(", text)


def test_hello(built: Path) -> None:
    done = mpirun(3, built / "mpi_hello")
    assert done.returncode == 0
    found = load_checks()["mpi_hello"].parse([Output(done.stdout, role=Role.RANKS)], Context())
    assert [m.value for m in found if m.name in ("ring", "sum")] == ["right", "right"]
    assert [m.value for m in found if m.name == "ranks"] == [3]


def test_hello_as_planned_on_this_host(built: Path) -> None:
    import socket
    done = mpirun(2, built / "mpi_hello")
    here = NodeView("n1", hostname=socket.gethostname())
    context = Context(nodes=(here,), params={"tasks_per_node": 2})
    found = load_checks()["mpi_hello"].parse([Output(done.stdout, role=Role.RANKS)], context)
    assert [(m.value, m.expected) for m in found if m.name == "ranks"] == [(2, 2)]


def test_pingpong(built: Path) -> None:
    done = mpirun(2, built / "mpi_pingpong", "--max", "65536", "--seconds", "0.2")
    assert done.returncode == 0
    found = load_checks()["mpi_pingpong"].parse([Output(done.stdout, role=Role.RANKS)],
                                                Context(params={"max_bytes": 65536}))
    keys = {(m.name, m.size_bytes) for m in found if m.key}
    assert keys == {("data", None), ("latency", 1), ("bandwidth", 65536)}
    assert [m.size_bytes for m in found if m.name == "bandwidth"] == [4 ** n for n in range(9)]


def test_pingpong_with_a_size_of_its_own(built: Path) -> None:
    done = mpirun(2, built / "mpi_pingpong", "--max", "1000", "--seconds", "0.05")
    found = load_checks()["mpi_pingpong"].parse([Output(done.stdout)], Context())
    assert [m.size_bytes for m in found if m.name == "bandwidth"] == [1, 4, 16, 64, 256, 1000]


@pytest.mark.deep
@pytest.mark.parametrize(("ranks", "options"), [
    (3, ()), (2, ("--max",)), (2, ("--max", "1x")), (2, ("--seconds", "nan")),
])
def test_pingpong_refuses(built: Path, ranks: int, options: tuple[str, ...]) -> None:
    done = mpirun(ranks, built / "mpi_pingpong", *options)
    assert done.returncode == 2
    assert "usage: mpi_pingpong" in done.stderr
    with pytest.raises(ParseError, match=r"exit status 2.*usage: mpi_pingpong"):
        load_checks()["mpi_pingpong"].parse([Output(done.stdout + done.stderr, exit_status=2)], Context())


def test_node_ready_on_this_host(tmp_path: Path) -> None:
    check = load_checks()["node_ready"]
    step = check.steps(Context(shared_dir=str(tmp_path)))[0]
    env = {**os.environ, "SLURMD_NODENAME": "n1"}
    done = subprocess.run(step.argv, capture_output=True, text=True, timeout=30, env=env, check=False)
    found = {m.name: m for m in check.parse([Output(done.stdout + done.stderr)], Context(nodes=(NodeView("n1"),)))}
    assert found["shared_dir"].value == "writable" and found["clock_offset"].value == 0
    assert found["node_name"].value == "n1"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["/not there", "", "/proc", "$(touch {tmp}/bad)", "'; touch {tmp}/bad; '"])
def test_node_ready_without_a_shared_directory(tmp_path: Path, folder: str) -> None:
    check = load_checks()["node_ready"]
    step = check.steps(Context(shared_dir=folder.replace("{tmp}", str(tmp_path))))[0]
    done = subprocess.run(step.argv, capture_output=True, text=True, timeout=30, check=False)
    found = {m.name: m for m in check.parse([Output(done.stdout)], Context(nodes=(NodeView("n1"),)))}
    assert found["shared_dir"].value != "writable" and found["shared_dir"].expected == "writable"
    assert not list(tmp_path.iterdir())
