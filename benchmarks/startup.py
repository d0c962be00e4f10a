#!/usr/bin/env python3
"""Start-up time of `hpcadmin --help` and `--version` against `python -c "import click"`: medians of N runs, as a table.

    python benchmarks/startup.py [N]
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
CASES = {
    'python -c "import click"': [sys.executable, "-c", "import click"],
    "hpcadmin --version": [str(BIN / "hpcadmin"), "--version"],
    "hpcadmin --help": [str(BIN / "hpcadmin"), "--help"],
    "hpcadmin validate --help": [str(BIN / "hpcadmin"), "validate", "--help"],
}


def once(argv: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for argv in CASES.values():
        once(argv)      # warm the page cache
    for _ in range(count):
        for name, argv in CASES.items():    # side by side: what disturbs one disturbs all
            times[name].append(once(argv))
    base = statistics.median(next(iter(times.values())))
    print("| command | median s | times the first |\n|---|---|---|")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"| `{name}` | {median:.3f} | {median / base:.2f} |")


if __name__ == "__main__":
    main()
