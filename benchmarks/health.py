#!/usr/bin/env python3
"""hpcadmin-health, ten checks: wall and CPU time here, and on folders that stand for large nodes.

python benchmarks/health.py [N] [--python PATH] [--nhc CHECKOUT]

--nhc: the same ten checks by NHC (https://github.com/mej/nhc, 1.4.3), by turns with ours.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from hpcadmin.health.build import write  # noqa: E402
from tests.health_machine import Machine  # noqa: E402

TEN = [
    {"use": "cpu"},
    {"use": "memory", "min_mib": 1024},
    {"use": "swap"},
    {"use": "load", "max_15m": 10000},
    {"use": "mount", "path": "/", "mode": "rw"},
    {"use": "space", "path": "/", "max_used_percent": 100},
    {"use": "process", "name": "no-such-daemon", "min": 0, "max": 0},
    {"use": "link", "name": "lo"},
    {"use": "file", "path": "/etc/passwd", "type": "file"},
    {"use": "contents", "path": "/etc/passwd", "lines": ["root:*"]},
]
NHC = r"""
* || check_hw_cpuinfo
* || check_hw_physmem 1gb 100tb
* || check_hw_swap 0 100tb
* || check_ps_loadavg 10000 10000 10000
* || check_fs_mount_rw -f /
* || check_fs_used / 100%
* || check_ps_blacklist no-such-daemon
* || check_hw_eth lo
* || check_file_test -r -f /etc/passwd
* || check_file_contents /etc/passwd "root:*"
"""


def once(argv: list[str]) -> tuple[float, float]:
    """Wall and CPU time, of its children too as far as it waited for them."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SHELL": "/bin/bash"})
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{argv}: {done.stdout}{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def simulated(root: Path, sockets: int, cores: int) -> None:
    machine = Machine(root)
    machine.cpus(sockets, cores, 2)
    machine.interface("lo", mbps=1000, device=False)
    machine.file("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    for pid in range(1, 5001):
        machine.process(pid, f"worker{pid}", f"/usr/bin/worker{pid} --serve", kernel=pid % 2 == 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=5)
    parser.add_argument("--python")
    parser.add_argument("--nhc", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, conf = folder / "hpcadmin-health", folder / "health.json"
        write(program, options.python)
        conf.write_text(json.dumps({"check": TEN}))
        state = ["--state", str(folder / "state"), "--config", str(conf)]
        cases = {"this machine": [str(program), *state]}
        for cpus, cores in ((256, 64), (768, 192)):
            simulated(folder / str(cpus), 2, cores)
            cases[f"{cpus} CPUs, 5,000 processes"] = [str(program), *state, "--root", str(folder / str(cpus))]
        if options.nhc:
            (folder / "nhc.conf").write_text(NHC)
            cases["NHC, this machine"] = [
                "bash", str(options.nhc / "nhc"), "-D", name, f"INCDIR={options.nhc.resolve() / 'scripts'}",
                "MARK_OFFLINE=0", "LOGFILE=/dev/null", "NHC_RM=slurm"]
        print("| ten checks | wall s | CPU s |\n|---|---:|---:|")
        for argv in cases.values():
            once(argv)  # compiles, and warms the page cache
        times: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
        for _ in range(options.count):
            for case, argv in cases.items():
                times[case].append(once(argv))
        for case, values in times.items():
            wall, cpu = (statistics.median(value[part] for value in values) for part in (0, 1))
            print(f"| {case} | {wall:.3f} | {cpu:.3f} |")


if __name__ == "__main__":
    main()
