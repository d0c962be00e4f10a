#!/usr/bin/env python3
"""What `hpcadmin validate` costs beside plain Slurm, with trivial payloads on a private loopback Slurm of 8 nodes.

    python benchmarks/validate.py [N]       as root; medians of N (5) runs, floor and hpcadmin in turn, as a table

Floors: 7 node checks: one `sbatch` whose script runs them by one srun on all nodes, polled with squeue every 0.5 s.
28 pairs: the same with a loop of 7 rounds of 4 concurrent two-node steps in one allocation.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT))
from loopback import Loopback, loopback  # noqa: E402

from hpcadmin.model import Inventory, Node  # noqa: E402
from hpcadmin.rundata import write_record  # noqa: E402

CHECK = '''
from hpcadmin.check import Check, Measurement, Scope, Step, Subject
def steps(c):
    return (Step(("/bin/echo", "42"){extra}),)
def parse(o, c):
    return [Measurement("answer", int(line), expected=42) for line in o[0].text.split()[:1]]
CHECK = Check("{name}", "Says 42", Scope.{scope}, steps, parse)
'''
PAIRS = """\
set -- $(scontrol show hostnames "$SLURM_JOB_NODELIST")
for round in 0 1 2 3 4 5 6; do
    for place in 1 2 3 4; do
        if [ $place = 1 ]; then a=8; b=$((round % 7 + 1))
        else a=$(((round + place - 1) % 7 + 1)); b=$(((round - place + 8) % 7 + 1)); fi
        eval "srun -N2 -n2 --ntasks-per-node=1 --overlap --mpi=none -w \\$$a,\\$$b /bin/echo 42 >/dev/null &"
    done
    wait
done
"""


def polled(cluster: Loopback, script: str) -> None:
    path = cluster.dir / "floor.sh"
    path.write_text(f"#!/bin/sh\n{script}")
    job = cluster.slurm("sbatch", "--parsable", "-N8", "--exclusive", "-o", str(cluster.dir / "floor.out"), str(path))
    while cluster.slurm("squeue", "-h", "-j", job.strip(), "-o", "%i"):
        time.sleep(0.5)


def node_floor(cluster: Loopback) -> None:
    polled(cluster, "srun -N8 -n8 --mpi=none sh -c 'for k in 1 2 3 4 5 6 7; do /bin/echo 42; done'\n")


def pair_floor(cluster: Loopback) -> None:
    polled(cluster, PAIRS)


def validate(suite: str) -> Callable[[Loopback], None]:
    def run(cluster: Loopback) -> None:
        done = cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), "validate", "--suite",
                                str(cluster.dir / f"{suite}.toml"), "--allow-root")
        assert done.returncode == 0, done.stdout + done.stderr
    return run


def prepare(cluster: Loopback) -> None:
    checks = cluster.dir / "checks"
    checks.mkdir(mode=0o755)
    for k in range(7):
        (checks / f"says{k}.py").write_text(CHECK.format(name=f"says{k}", scope="NODE", extra=""))
    (checks / "both.py").write_text(CHECK.format(name="both", scope="PAIR", extra=""))
    (cluster.dir / "site.toml").write_text(
        f'[slurm]\npartition = "val"\nmpi = "none"\n[run]\nchecks_dir = "{checks}"\n')
    (cluster.dir / "admin").mkdir()
    # An accepted inventory, as discover leaves it: trivial checks need no further look at the nodes.
    write_record(cluster.dir / "admin", "inventory.json", Inventory(tuple(Node(n) for n in cluster.nodes)))
    suites = {"nodes": [f"says{k}" for k in range(7)], "pairs": ["both"]}
    for name, names in suites.items():
        (cluster.dir / f"{name}.toml").write_text(
            f'title = "{name}"\n' + "".join(f'[[entry]]\ncheck = "{check}"\n' for check in names))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.umask(0o022)
    cases = {
        "7 node checks, 8 nodes": {"floor": node_floor, "hpcadmin": validate("nodes")},
        "28 pairs, 8 nodes": {"floor": pair_floor, "hpcadmin": validate("pairs")},
    }
    print("| case | floor s | hpcadmin s | difference s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, loopback(Path(folder), 8) as cluster:
        prepare(cluster)
        subprocess.run([sys.executable, "-c", "import hpcadmin"], env=cluster.env, check=True)
        for case, pair in cases.items():
            times: dict[str, list[float]] = {name: [] for name in pair}
            for turn in range(count + 1):
                for name, run in pair.items():
                    begin = time.perf_counter()
                    run(cluster)
                    if turn:        # the first turn warms up
                        times[name].append(time.perf_counter() - begin)
            floor, ours = (statistics.median(times[name]) for name in ("floor", "hpcadmin"))
            print(f"| {case} | {floor:.2f} | {ours:.2f} | {ours - floor:+.2f} |")


if __name__ == "__main__":
    main()
