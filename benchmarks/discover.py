#!/usr/bin/env python3
"""How fast and how large discovery is.

    python benchmarks/discover.py parse [NODES]     10,000 nodes of 8 GPUs, 1 MB of text each, made from real captures
    python benchmarks/discover.py ssh [NODES]       64 lab nodes over ssh, beside clush with the same probe; root only
    python benchmarks/discover.py profile           which readers and steps the time of one such node goes to

`parse` needs the corpus of captures at ../shared/corpus beside the checkout, and 10 GB of disk at $TMPDIR.
"""

import cProfile
import pstats
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared/corpus/topo"
HPCADMIN = (sys.executable, "-m", "hpcadmin")
sys.path.insert(0, str(ROOT))
LSCPU = """Architecture:            x86_64
CPU(s):                  224
On-line CPU(s) list:     0-223
Thread(s) per core:      2
Core(s) per socket:      56
Socket(s):               2
Model name:              Intel(R) Xeon(R) Platinum 8480C
NUMA node(s):            2
NUMA node0 CPU(s):       0-55,112-167
NUMA node1 CPU(s):       56-111,168-223
"""


def texts() -> dict[str, str]:
    """The texts of one node: real ones of a node of 8 H100, made to tell of the same PCI addresses."""
    lspci = (CORPUS / "host/lspci-vvv_8xh100_hgx.txt").read_text()
    smi = (CORPUS / "smi/q_535.161.08.0.valid.txt").read_text()
    topo = (CORPUS / "topo-m/dgx-a100_12nic_numa-3-1-7-5.txt").read_text()
    there = re.findall(r"^(?:0000:)?([0-9a-f]{2}:[0-9a-f]{2}\.0) 3D controller", lspci, re.MULTILINE)
    told = dict.fromkeys(re.findall(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0", smi))
    for old, new in zip(told, there, strict=False):
        smi = smi.replace(old, f"00000000:{new.upper()}")
    found = {"lspci": lspci, "nvidia-smi": smi, "topo": topo, "lscpu": LSCPU}
    print(", ".join(f"{name} {len(text) / 1000:.0f} kB" for name, text in found.items()), file=sys.stderr)
    return found


def make(folder: Path, count: int) -> None:
    """Folders NODE with the texts; UUIDs and serial numbers are each node's own."""
    base = texts()
    for number in range(count):
        place = folder / f"node{number:05d}"
        place.mkdir()
        for name, text in base.items():
            own = re.sub(r"GPU-[0-9a-f]{8}", f"GPU-{number:08x}", text) if name == "nvidia-smi" else text
            (place / f"{name}.txt").write_text(own)


def parse(count: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hpcadmin-bench."))
    try:
        (folder / "captures").mkdir()
        make(folder / "captures", count)
        out = folder / "inventory.json"
        start = time.monotonic()
        done = subprocess.run([*HPCADMIN, "discover", "--from", str(folder / "captures"), "-o", str(out)],
                              stdout=(folder / "out.txt").open("w"), stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - start
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        print((folder / "out.txt").read_text()[-1500:], file=sys.stderr)
        print(f"| nodes | s | ms a node | CPU s | largest process MiB | inventory MB | exit |\n|{'---|' * 7}")
        size = out.stat().st_size / 1e6 if out.exists() else 0
        print(f"| {count} | {seconds:.1f} | {1000 * seconds / count:.1f} | {usage.ru_utime + usage.ru_stime:.0f} | "
              f"{usage.ru_maxrss / 1024:.0f} | {size:.1f} | {done.returncode} |")
    finally:
        shutil.rmtree(folder)


def profile() -> None:
    from hpcadmin.reading import read_paths  # noqa: PLC0415
    folder = Path(tempfile.mkdtemp(prefix="hpcadmin-bench."))
    try:
        make(folder, 20)
        profiler = cProfile.Profile()
        profiler.runcall(read_paths, [str(folder)])
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
    finally:
        shutil.rmtree(folder)


def ssh(count: int) -> None:
    """discover and clush side by side: median of five, and each once before that does not count."""
    name, net = "bench", "10.231.0.0/16" if count > 200 else "10.231.0.0/24"
    shared = Path(tempfile.mkdtemp(prefix="hpcadmin-bench."))
    lab = (*HPCADMIN, "lab")
    subprocess.run([*lab, "up", "--name", name, "--nodes", str(count), "--net", net, "--shared", str(shared)],
                   check=True, stdout=subprocess.DEVNULL)
    try:
        nodes = f"node[{'1'.zfill(len(str(count)))}-{count}]" if count >= 10 else f"node[01-0{count}]"
        inside = (*lab, "exec", "--name", name, "--")
        script = shared / "home" / "hpc" / "probe.sh"
        from hpcadmin.facts import probe_script  # noqa: PLC0415
        script.write_text(probe_script())
        script.chmod(0o644)
        clush = f"clush -S -f 32 -w '{nodes}' 'sh /shared/home/hpc/probe.sh {'a' * 32}' >/dev/null"
        ours = f"hpcadmin discover -w '{nodes}' -o /tmp/x.json >/dev/null"
        cases = {"clush -f 32 with the same probe": [*inside, "sh", "-c", clush],
                 "hpcadmin discover": [*inside, "sh", "-c", ours]}
        times: dict[str, list[float]] = {case: [] for case in cases}
        for turn in range(6):
            for case, argv in cases.items():
                start = time.monotonic()
                done = subprocess.run(argv, capture_output=True, text=True, check=False)
                if done.returncode not in (0, 1, 3):
                    raise SystemExit(f"{case}: {done.returncode}: {done.stderr[-500:]}")
                if turn:
                    times[case].append(time.monotonic() - start)
        first = statistics.median(next(iter(times.values())))
        print(f"| {count} nodes | median s | times the first |\n|---|---|---|")
        for case, found in times.items():
            print(f"| {case} | {statistics.median(found):.2f} | {statistics.median(found) / first:.2f} |")
    finally:
        subprocess.run([*lab, "down", "--name", name], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(shared, ignore_errors=True)


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if what == "parse":
        parse(number or 10_000)
    elif what == "ssh":
        ssh(number or 64)
    elif what == "profile":
        profile()
    else:
        raise SystemExit(__doc__)
