"""Plays the scene of slurm_scenes.py on a loopback cluster. By hand, to record what a Slurm answers:

    PYTHONPATH=.:tests python tests/integration/slurm_scene.py [trixie | sid]   # nothing: the first Slurm on PATH
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopback import Loopback, at_hand, loopback, wait_until
from slurm_scenes import JOBS, NODES, REFUSED, ask, inside, odd, script

from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.states import Job

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "slurm"
# A job starts when it is submitted, not seconds later with others.
AT_ONCE = {"SchedulerParameters": "sched_interval=1,sched_min_interval=0,batch_sched_delay=0"}
# Each command with what it printed, one folder a call.
RECORDER = """#!/bin/sh
call=$(mktemp -d "{folder}/XXXXXXXX")
for word in {name} "$@"; do printf '%s\\0' "$word"; done >"$call/argv"
"{real}" "$@" >"$call/out" 2>"$call/err"
echo $? >"$call/status"
cat "$call/out"
cat "$call/err" >&2
exit "$(cat "$call/status")"
"""


def settings(folder: Path) -> dict[str, str]:
    """An epilog that ends when a file goes away: so long a job is COMPLETING. A node that is down stays down."""
    folder.mkdir(parents=True, exist_ok=True)
    epilog = folder / "epilog"
    epilog.write_text(f'#!/bin/sh\nwhile [ -e "{folder}/hold-$SLURMD_NODENAME" ]; do sleep 0.1; done\n')
    epilog.chmod(0o755)
    return {"Epilog": str(epilog), "KillWait": "5", "MinJobAge": "600", "ReturnToService": "0",
            **AT_ONCE}


def submit(cluster: Loopback, *options: str) -> int:
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--no-requeue", *options]
    done = subprocess.run(argv, env=cluster.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (options, done.stderr)
    return int(done.stdout)


def play(cluster: Loopback) -> dict[str, int]:
    """The jobs of the scene by name, when each is in its state."""
    (cluster.dir / "hold-n02").touch()
    cluster.slurm("scontrol", "update", "nodename=n04", "state=drain", "reason=bad fan")
    wraps, whole, sleeps = "--wrap", "--exclusive", "--wrap=sleep 300"
    jobs = {
        "runs": submit(cluster, "--comment=hpcadmin:R:1", "-w", "n01", whole, sleeps),
        "failed": submit(cluster, "-w", "n05", wraps, "exit 3"),
        "done": submit(cluster, "--comment=two words | a bar", "-w", "n05", wraps, "true"),
        "cleans up": submit(cluster, "-w", "n02", whole, wraps, "true"),
        "node died": submit(cluster, "-w", "n03", whole, sleeps),
        "requeued": submit(cluster, "--requeue", "-w", "n05", "-c1", sleeps),
        "requeued and held": submit(cluster, "--requeue", "-w", "n05", "-c1", sleeps),
    }
    wait(cluster, jobs, "runs", "node died", "requeued", "requeued and held", states="RUNNING")
    wait(cluster, jobs, "done", states="COMPLETED")
    wait(cluster, jobs, "failed", states="FAILED")
    jobs |= {
        "waits": submit(cluster, "--comment=hpcadmin:R:10", "-w", "n01", whole, sleeps),
        "is behind": submit(cluster, "--comment=hpcadmin:R:11", "-w", "n01", whole, sleeps),
        "held by its user": submit(cluster, "--comment=hpcadmin:R:2", "--hold", sleeps),
        "held by an admin": submit(cluster, "-w", "n01", whole, sleeps),
        "after another": submit(cluster, "-d", f"afterok:{jobs['runs']}", sleeps),
        "never": submit(cluster, "-d", f"afterok:{jobs['failed']}", sleeps),
        "later": submit(cluster, "--begin=now+1hour", sleeps),
        "on a drained node": submit(cluster, "-w", "n04", sleeps),
        "partition is down": submit(cluster, "-p", "off", sleeps),
        "partition is too short": submit(cluster, "-p", "short", "-t", "10", sleeps),
        "cancelled": submit(cluster, "-w", "n01", whole, sleeps),
    }
    submit(cluster, "--array=1-3%1", "--comment=hpcadmin:R:1", "-w", "n01", sleeps)
    cluster.slurm("scancel", str(jobs["cancelled"]))
    cluster.slurm("scontrol", "hold", str(jobs["held by an admin"]))
    cluster.slurm("scontrol", "requeue", str(jobs["requeued"]))
    cluster.slurm("scontrol", "requeuehold", str(jobs["requeued and held"]))
    cluster.slurm("scontrol", "update", "nodename=n03", "state=down", "reason=power, see State=IDLE")
    client = CommandLine(cluster.env)

    def unsettled() -> list[str]:
        told = client.jobs(list(jobs.values()))
        busy = [str(node) for node in client.nodes() if node.name == "n05" and node.state.busy]
        return [f"{name}: {told[number]}" for name, number in jobs.items() if not _settled(name, told[number])] + busy

    try:
        wait_until(lambda: not unsettled())
    except AssertionError as exc:
        raise AssertionError("\n".join(unsettled())) from exc
    return jobs


def _settled(name: str, job: Job) -> bool:
    looks = JOBS[name]
    return job.base in looks.states.split("|") and any(r == job.reason or (r and r in job.reason)
                                                       for r in looks.reasons.split("|"))


def wait(cluster: Loopback, jobs: Mapping[str, int], *names: str, states: str) -> None:
    client = CommandLine(cluster.env)
    ids = [jobs[name] for name in names]
    wait_until(lambda: all(job.base == states for job in client.jobs(ids).values()))


def end(cluster: Loopback) -> None:
    """As before."""
    (cluster.dir / "hold-n02").unlink(missing_ok=True)
    cluster.slurm("scancel", "-u", "root", "--nodelist", ",".join(NODES))
    cluster.slurm("scancel", "-u", "root", "--state", "pending")
    for name in ("n03", "n04"):
        cluster.slurm("scontrol", "update", f"nodename={name}", "state=resume")
    client = CommandLine(cluster.env)
    wait_until(lambda: free(client) >= set(NODES))


def free(client: CommandLine) -> set[str]:
    return {n.name for n in client.nodes() if n.state.base == "IDLE" and not n.state.busy and not n.state.unusable}


def scripts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (options, _) in REFUSED.items():
        script(folder, name, options)


def record(cluster: Loopback, ids: Mapping[str, int]) -> dict[str, Any]:
    """What is asked and answered, as a sample."""
    folder, calls = cluster.dir / "recorder", cluster.dir / "calls"
    for path in (folder, calls):
        path.mkdir()
    for name in ("sinfo", "scontrol", "squeue", "sacct", "sbatch", "srun", "scancel"):
        real = cluster.slurm("sh", "-c", f"command -v {name}").strip()
        (folder / name).write_text(RECORDER.format(folder=calls, name=name, real=real))
        (folder / name).chmod(0o755)
    scripts(cluster.dir / "scripts")
    with inside(cluster.dir / "scripts"):
        told = ask(CommandLine({**cluster.env, "PATH": f"{folder}:{cluster.env['PATH']}"}), ids)
    wrong = odd(told, ids)
    if wrong:
        raise AssertionError("\n".join(wrong))
    found = {}
    for call in calls.iterdir():
        argv = (call / "argv").read_text().split("\0")[:-1]
        texts = [_plain((call / name).read_text(), cluster) for name in ("out", "err")]
        found["\0".join(argv)] = {"argv": argv, "status": int((call / "status").read_text()), "out": texts[0],
                                  "err": texts[1]}
    return {"source": f"Slurm {told['version']}, a loopback cluster of five nodes", "version": told["version"],
            "jobs": dict(ids), "json states": json_states(cluster), "calls": [found[key] for key in sorted(found)]}


def json_states(cluster: Loopback) -> dict[str, list[list[str] | str]]:
    """State and flags of each node as sinfo --json has them: 22.05 has a list of nodes, later ones lines of sinfo.
    {} where Slurm was built without JSON."""
    text = cluster.slurm("sinfo", "-p", "val", "-N", "--json")
    if not text:
        return {}
    told = json.loads(text)
    if "sinfo" in told:
        return {node: [line["node"]["state"]] for line in told["sinfo"] for node in line["nodes"]["nodes"]}
    return {node["name"]: [node["state"], node["state_flags"]] for node in told["nodes"]}


def _plain(text: str, cluster: Loopback) -> str:
    """Without names of the machine."""
    name = socket.gethostname().split(".")[0]
    text = text.replace(str(cluster.dir), "/cluster").replace(str(Path.cwd()), "/work")
    text = re.sub(r"(?<=OS=)Linux \S+ .*?(?= *\n? *RealMemory=)", "Linux 6.1.0 #1 SMP", text)
    return re.sub(rf"\b{re.escape(name)}\b", "host", text)


def main() -> None:
    slurm = at_hand(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "slurm"
        with loopback(place, len(NODES), slurm=slurm, settings=settings(place)) as cluster:
            sample = record(cluster, play(cluster))
    SAMPLES.mkdir(exist_ok=True)
    (SAMPLES / f"slurm-{sample['version']}.json").write_text(json.dumps(sample, indent=1) + "\n")


if __name__ == "__main__":
    main()
