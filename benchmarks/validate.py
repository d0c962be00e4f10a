#!/usr/bin/env python3
"""Overhead of `validate` with trivial payloads on a private Slurm of 8 nodes, against the plain floor; root only.

    python benchmarks/validate.py [N]

Floor: one sbatch with the same payload and squeue every 0.5 s. Medians of N runs, side by side, as a table.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/integration"))
from loopback import Loopback, loopback  # noqa: E402

NODES = 8
CHECK = '''
from hpcadmin.check import *
def steps(c):
    return (Step(("sh", "-c", "echo bw 12.5"),{role}),)
def parse(o, c):
    return [Measurement("bw", float(o[0].text.split()[1]), "GB/s", expected=12.5,
                        subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("{name}", "{name}", Scope.{scope}, steps, parse)
'''
SEVEN = "#!/bin/sh\nsrun sh -c 'for k in 1 2 3 4 5 6 7; do sh -c \"echo bw 12.5\"; done'\n"
PAIRS = """#!/bin/bash
n=($(scontrol show hostnames "$SLURM_JOB_NODELIST")); N=${#n[@]}
for ((r = 0; r < N - 1; r++)); do
  c=(${n[0]}); for ((k = 0; k < N - 1; k++)); do c+=(${n[$((1 + (k + r) % (N - 1)))]}); done
  for ((i = 0; i < N / 2; i++)); do
    srun -N2 -n2 --ntasks-per-node=1 -w "${c[i]},${c[N - 1 - i]}" --exact sh -c "echo bw 12.5" &
  done
  wait
done
"""


def prepare(cluster: Loopback) -> None:
    checks = cluster.dir / "checks"
    checks.mkdir()
    for number in range(7):
        (checks / f"n{number}.py").write_text(CHECK.format(role="", name=f"n{number}", scope="NODE"))
    (checks / "pair.py").write_text(CHECK.format(role=" Role.RANKS", name="pair", scope="PAIR"))
    (cluster.dir / "seven.toml").write_text("".join(f'[[entry]]\ncheck = "n{n}"\n' for n in range(7)))
    (cluster.dir / "pairs.toml").write_text('[[entry]]\ncheck = "pair"\n')
    (cluster.dir / "seven.sh").write_text(SEVEN)
    (cluster.dir / "pairs.sh").write_text(PAIRS)
    (cluster.dir / "site.toml").write_text(f'[run]\nchecks_dir = "{checks}"\n[slurm]\nmpi = "none"\n')
    (cluster.dir / "inventory.json").write_text(json.dumps(
        {"schema": 1, "nodes": [{"name": n} for n in cluster.nodes]}))


def floor(cluster: Loopback, script: str) -> None:
    job = cluster.slurm("sbatch", "--parsable", "--exclusive", f"-N{NODES}", "--ntasks-per-node=1", "-o", "/dev/null",
                        str(cluster.dir / script)).strip()
    while cluster.slurm("squeue", "-h", "-j", job, "-o", "%i").strip():
        time.sleep(0.5)


def validate(cluster: Loopback, suite: str) -> None:
    done = cluster.hpcadmin("--site", str(cluster.dir / "site.toml"), "validate", "--allow-root", "--inventory",
                            str(cluster.dir / "inventory.json"), "--suite", str(cluster.dir / suite))
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    cases = {
        "floor, 7 node checks": lambda c: floor(c, "seven.sh"),
        "validate, 7 node checks": lambda c: validate(c, "seven.toml"),
        "floor, 28 pairs": lambda c: floor(c, "pairs.sh"),
        "validate, 28 pairs": lambda c: validate(c, "pairs.toml"),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as folder, loopback(Path(folder) / "slurm", NODES) as cluster:
        prepare(cluster)
        for number in range(count + 1):
            for name, call in cases.items():
                begin = time.perf_counter()
                call(cluster)
                if number:      # the first round only warms up
                    times[name].append(time.perf_counter() - begin)
                cluster.wait_idle(NODES)
    print(f"| 8 nodes, 2 cores, medians of {count} | s | above the floor |\n|---|---|---|")
    base = 0.0
    for name, values in times.items():
        median = statistics.median(values)
        base = median if name.startswith("floor") else base
        print(f"| {name} | {median:.2f} | {'' if name.startswith('floor') else f'{median - base:+.2f}'} |")


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as exc:
        sys.exit(str(exc))
