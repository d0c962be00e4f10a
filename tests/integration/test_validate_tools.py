"""validate with tools in modules and containers, on a real Slurm with real Environment Modules."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, loopback

from hpcadmin.check import Status, Verdict
from hpcadmin.rundata import Run, ToolFound, read_run

pytestmark = [pytest.mark.lab, pytest.mark.skipif(
    not Path("/usr/share/modules/init/sh").exists(), reason="not installed: environment-modules")]

# Prints what it was started with, and a version that is another one on n02.
TOOL = """#!/bin/sh
[ "$SLURMD_NODENAME" = n02 ] && v=2.0 || v=2.1
case $1 in --version) echo "Loading of nothing failed 9.9"; echo "showtool, version $v"; exit 1 ;; esac
echo "$SLURMD_NODENAME ${SHOWN_BY:-nobody} ${SLURM_PROCID:-} $*"
"""
# A stand-in for Apptainer: no container, only its command line; what is "inside" is a folder beside the image.
APPTAINER = """#!/bin/sh
[ "$1" = exec ] || exit 2
shift
case $1 in --nv | --rocm) shift ;; esac
[ -f "$1" ] || { echo "FATAL:   could not open image $1: no such file or directory"; exit 255; }
PATH=$1.inside:$PATH SHOWN_BY=container
export PATH SHOWN_BY
shift
exec "$@"
"""
CHECK = '''
from hpcadmin.check import *
def steps(c):
    new = "2.1" in c.tool_version
    return (Step((c.tools["{tool}"], "--new" if new else "--old"), {role}),)
def parse(o, c):
    found = [line.split() for line in o[0].text.splitlines()]
    if len(found) != {ranks} or {{f[0] for f in found}} != {{n.name for n in c.nodes}}:
        raise ParseError(o[0].text)
    told = " ".join(sorted({{" ".join([f[1], f[-1]]) for f in found}}))
    new = "2.1" in c.tool_version
    return [Measurement("told", told, expected="{by} --new" if new else "{by} --old",
                        subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("{name}", "{name}", Scope.{scope}, steps, parse, needs=("{tool}",), probe=("{tool}", "--version"))
'''
# A program of ours, built by a compiler that only a module has, and started with that module.
BUILT = '''
from hpcadmin.check import *
def steps(c):
    return (Step(("sh", "-c", 'test -x "$1" && echo "built, $COMPILER is loaded"', "sh", c.tools["mpi_hello"])),)
def parse(o, c):
    return [Measurement("built", o[0].text.strip(), expected="built, ccmod is loaded", subject=Subject((o[0].node,)))]
CHECK = Check("built", "built", Scope.NODE, steps, parse, builds=("mpi_hello",))
'''
MPICC = """#!/bin/sh
[ "$COMPILER" = ccmod ] || exit 9
case $1 in --version) echo "ccmod 1.0" ;; *) exec /usr/bin/mpicc "$@" ;; esac
"""
MODULES = {"showtool/2": "setenv SHOWN_BY module", "apptainer/1": "", "ccmod/1": "setenv COMPILER ccmod"}
SITE = """
[run]
checks_dir = "{here}/checks"
[slurm]
mpi = "none"
[modules]
paths = ["{here}/modulefiles"]
[tools."show*"]
modules = ["showtool/2"]
[tools.mpicc]
modules = ["ccmod/1"]
[tools.brokentool]
modules = ["showtool/2", "nothere/1"]
[tools.boxtool]
container = "{here}/image.sif"
modules = ["apptainer/1"]
[tools.linkedtool]
path = "{linked}"
"""
CHECKS = {
    "ranked": {"tool": "showtool", "role": "Role.RANKS", "ranks": 2, "by": "module", "scope": "PAIR"},
    "alone": {"tool": "showtool", "role": "Role.EACH", "ranks": 1, "by": "module", "scope": "NODE"},
    "boxed": {"tool": "boxtool", "role": "Role.RANKS", "ranks": 2, "by": "container", "scope": "PAIR"},
    "broken": {"tool": "brokentool", "role": "Role.EACH", "ranks": 1, "by": "", "scope": "NODE"},
    "linked": {"tool": "linkedtool", "role": "Role.EACH", "ranks": 1, "by": "", "scope": "NODE"},
    "absent": {"tool": "absenttool", "role": "Role.EACH", "ranks": 1, "by": "", "scope": "NODE"},
}


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def without_its_library(folder: Path) -> Path:
    """A program whose library is gone."""
    folder.mkdir()
    (folder / "lib.c").write_text("int answer(void) { return 0; }\n")
    (folder / "main.c").write_text("int answer(void); int main(void) { return answer(); }\n")
    for argv in (["-shared", "-fPIC", "-o", "libanswer.so", "lib.c"], ["-o", "linkedtool", "main.c", "./libanswer.so"]):
        subprocess.run(["gcc", *argv], cwd=folder, check=True)
    (folder / "libanswer.so").unlink()
    return folder / "linkedtool"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with loopback(tmp_path_factory.mktemp("tools") / "slurm", 2) as running:
        here = running.dir
        executable(here / "apps/showtool/bin/showtool", TOOL)
        executable(here / "apps/apptainer/bin/apptainer", APPTAINER)
        executable(here / "image.sif.inside/boxtool", TOOL)
        (here / "image.sif").write_text("")
        modules = here / "modulefiles"
        executable(here / "apps/ccmod/bin/mpicc", MPICC)
        for name, more in MODULES.items():
            (modules / name).parent.mkdir(parents=True)
            folder = here / "apps" / name.split("/")[0] / "bin"
            (modules / name).write_text(f"#%Module1.0\nprepend-path PATH {folder}\n{more}\n")
        (here / "checks").mkdir()
        for name, words in CHECKS.items():
            (here / "checks" / f"{name}.py").write_text(CHECK.format(name=name, **words))
        (here / "checks/built.py").write_text(BUILT)
        (here / "tools.toml").write_text("".join(f'[[entry]]\ncheck = "{n}"\n' for n in [*CHECKS, "built"]))
        (here / "site.toml").write_text(SITE.format(here=here, linked=without_its_library(here / "linked")))
        (here / "inventory.json").write_text(json.dumps({"schema": 1, "nodes": [{"name": n} for n in running.nodes]}))
        yield running


def validate(cluster: Loopback, *more: str) -> subprocess.CompletedProcess[str]:
    return cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / "tools.toml"), *more)


def last(cluster: Loopback) -> Run:
    return read_run(sorted((cluster.dir / "admin/runs").glob("2*"), key=lambda p: p.stat().st_mtime)[-1])


def of(run: Run, check: str) -> list[Verdict]:
    return [v for v in run.verdicts if v.check == check]


def tool(run: Run, name: str) -> list[ToolFound]:
    assert run.plan is not None
    return [one for one in run.plan.tools if one.tool == name]


def test_tools_in_modules_and_containers_are_found_asked_and_run(cluster: Loopback) -> None:
    before = validate(cluster, "--plan")
    assert before.returncode == 0, before.stderr
    assert "showtool         on n[01-02]: has not been looked for yet (module showtool/2)" in before.stdout
    done = validate(cluster)
    run = last(cluster)
    assert done.returncode == 3, done.stdout + done.stderr
    # Every rank, and every node by itself, has the environment of the module; options suit all nodes of a test.
    assert {(v.check, v.subject.nodes, v.measurement.value, v.status) for v in run.verdicts if v.measurement} == {
        ("ranked", ("n01", "n02"), "module --old", Status.PASS),
        ("boxed", ("n01", "n02"), "container --old", Status.PASS),
        ("alone", ("n01",), "module --new", Status.PASS), ("alone", ("n02",), "module --old", Status.PASS),
        *(("built", (node,), "built, ccmod is loaded", Status.PASS) for node in ("n01", "n02"))}
    # A cluster with two versions is worth a look.
    assert [v.reason for v in run.verdicts if v.status is Status.WARN] == [
        "showtool is 2.0 on n02, and 2.1 on the other 1 node", "boxtool is 2.0 on n02, and 2.1 on the other 1 node"]
    assert {(t.version, t.way, t.nodes) for t in tool(run, "showtool")} == {
        ("showtool, version 2.1", "module showtool/2", ("n01",)),
        ("showtool, version 2.0", "module showtool/2", ("n02",))}
    assert "Note: tools: showtool 2.1 (module showtool/2)" in done.stdout
    told = f'on n02: "showtool, version 2.0", {cluster.dir}/apps/showtool/bin/showtool (module showtool/2)'
    assert told in validate(cluster, "--plan").stdout


def test_what_cannot_be_used_is_not_run_and_says_why(cluster: Loopback) -> None:
    run = last(cluster)
    broken, linked, absent = (of(run, name) for name in ("broken", "linked", "absent"))
    assert {v.status for v in [*broken, *linked, *absent]} == {Status.NOT_RUN}
    assert "module load nothere/1: " in broken[0].reason and "nothere/1'" in broken[0].reason
    told = "linkedtool does not start: error while loading shared libraries: ./libanswer.so: not found for /"
    assert told in linked[0].reason
    assert absent[0].reason == "absenttool is not there: not on PATH: on n[01-02]"
    assert run.plan and {t.check for t in run.plan.tests} == {"ranked", "alone", "boxed", "built"}


def test_a_tool_is_asked_again_only_when_it_has_changed(cluster: Loopback) -> None:
    kept = cluster.dir / "admin/tools.json"
    marked = kept.read_text().replace("showtool, version 2.1", "showtool, version 2.1 (kept)")
    kept.write_text(marked)
    (cluster.dir / "image.sif.inside/boxtool").write_text(TOOL.replace("2.1", "2.10"))
    validate(cluster, "-w", "n01")
    told = {t.tool: t.version for t in last(cluster).plan.tools}  # type: ignore[union-attr]
    assert told["showtool"] == "showtool, version 2.1 (kept)"
    assert told["boxtool"] == "showtool, version 2.10"
    assert '"n02"' in kept.read_text()              # what is known of other nodes is kept
