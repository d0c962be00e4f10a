"""How long the probe takes on this machine, and which section takes it: python benchmarks/probe.py [REPEATS]

Each section is measured alone, against a probe without any; the sections of the whole run one after the other.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from hpcadmin.facts import facts, new_token, probe_script


def seconds(script: str, repeats: int) -> float:
    """Median of the repeats, after one that fills the caches."""
    found = []
    for _ in range(repeats + 1):
        start = time.monotonic()
        subprocess.run(["/bin/sh", "-s", "--", new_token()], input=script, capture_output=True, text=True, check=True,
                       timeout=120)
        found.append(time.monotonic() - start)
    return statistics.median(found[1:])


def only(script: str, name: str) -> str:
    """The probe with one section, or with none."""
    return "\n".join(line for line in script.split("\n")
                     if not line.startswith("section ") or line.split()[1] == name)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    script = probe_script()
    whole, empty = seconds(script, repeats), seconds(only(script, ""), repeats)
    print(f"whole probe: {1000 * whole:.0f} ms (median of {repeats}; {len(script) / 1024:.0f} KiB of script; "
          f"load {os.getloadavg()[0]:.1f})\n")
    print("| section | ms |\n|---|---:|")
    print(f"| (no section) | {1000 * empty:.0f} |")
    times = {name: seconds(only(script, name), repeats) - empty for name in facts()}
    for name, taken in sorted(times.items(), key=lambda item: -item[1]):
        print(f"| {name} | {1000 * max(0.0, taken):.1f} |")


if __name__ == "__main__":
    main()
