"""Job scripts run for real, with a stand-in for srun that starts each task here under the node's name."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stepped import make_plan

from hpcadmin.check import Check, Context, NodeView, Scope, Step, Way
from hpcadmin.frames import Frame, scan
from hpcadmin.plan_facts import Facts
from hpcadmin.registry import Suite, SuiteEntry
from hpcadmin.rundata import Plan
from hpcadmin.slurm.script import JobOptions, expected_frames, render

# Without site and ClusterShell a process starts in a fifth of the time, and there are hundreds of them.
EXPAND = r"""
def NodeSet(text):
    found, depth, part = [], 0, ""
    for c in text + ",":
        if c != "," or depth:
            depth += (c == "[") - (c == "]")
            part += c
            continue
        head, _, ranges = part.partition("[")
        for one in ranges.rstrip("]").split(","):
            low, _, high = one.partition("-")
            found += [head + str(n).zfill(len(low)) for n in range(int(low), int(high or low) + 1)] if one else [head]
        part = ""
    return found
"""
SRUN = rf"""#!PYTHON -S
import os, subprocess, sys
{EXPAND}
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
        env = {{**os.environ, "SLURMD_NODENAME": node, "SLURM_PROCID": str(rank)}}
        running.append(subprocess.Popen(args, env=env))
        rank += 1
sys.exit(max(p.wait() for p in running))
"""
SCONTROL = f"""import sys
{EXPAND}
print(*NodeSet(sys.argv[3]), sep="\\n")
"""
Steps = Callable[[Context], tuple[Step, ...]]


def sh(text: str, *words: str, **more: object) -> Step:
    return Step(("sh", "-c", text, "sh", *words), **more)  # type: ignore[arg-type]


def made(scope: Scope, steps: Steps, nodes: tuple[str, ...]) -> Plan:
    check = Check("c", "c", scope, steps, lambda o, c: [])
    suite = Suite("s", "s", (SuiteEntry(("c",)),))
    return make_plan(suite, {"c": check}, Facts({n: NodeView(n) for n in nodes}), nodes)


def run(plan: Plan, folder: Path, tmp_path: Path, shell: str = "sh", *, srun: str = "", missing: int = 0,
        **options: object) -> dict[str, list[Frame]]:
    """Render, run, and read all frames, by test. missing: so many outputs are not to be there."""
    folder.mkdir(exist_ok=True)
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "srun").write_text((srun or SRUN).replace("PYTHON", sys.executable))
    (tools / "srun").chmod(0o755)
    for name, text in (("squeue", ""), ("scancel", ""), ("scontrol", SCONTROL)):
        (tools / name).write_text(f"#!{sys.executable} -S\n{text}")
        (tools / name).chmod(0o755)
    if shell != "sh":
        (tools / "sh").symlink_to(shutil.which(shell) or shell)
    job = plan.jobs[0]
    (folder / "script").write_text(render(
        job, {t.id: t for t in plan.tests}, JobOptions("c", **options), folder))  # type: ignore[arg-type]
    done = subprocess.run([shell, str(folder / "script")], env={
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
        "SLURMD_NODENAME": job.nodes[0]}, capture_output=True, timeout=60,
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
    wanted = sorted((i, *key) for i, all_keys in expected.items() for key in all_keys)
    assert sorted(keys) == wanted or (missing and set(keys) < set(wanted) and len(keys) == len(wanted) - missing)
    assert not list(folder.glob(".tmp*"))
    return found


def through(plan: Plan, way: Way) -> Plan:
    """The plan with this way to the tool of every step."""
    return replace(plan, tests=tuple(replace(t, steps=tuple(replace(s, way=way) for s in t.steps)) for t in plan.tests))


def one(plan: Plan, tmp_path: Path) -> Frame:
    return run(plan, tmp_path / "job", tmp_path)["t0001"][0]
