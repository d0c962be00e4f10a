#!/usr/bin/env python3
"""How fast and how large discovery is.

    python benchmarks/discover.py parse [NODES]     10,000 nodes of 8 GPUs, 1 MB of text each, made from real captures
    python benchmarks/discover.py captures [NODES]  10,000 captures of our own probe, of a simulated node; root only
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
CLUSH = Path(sys.executable).with_name("clush")          # of ClusterShell, which hpcadmin needs
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


# What differs from node to node in real outputs: serial numbers, addresses of interrupts, readings.
OWN = re.compile(r"(?<=Device Serial Number )[0-9a-f]{2}-[0-9a-f]{2}|(?<=Address: 00000000fee0)[0-9a-f]{4}"
                 r"|(?<=GPU-)[0-9a-f]{4}|(?<=routed to IRQ )[0-9]+|[0-9]+(?= C$)|[0-9.]+(?= W$)", re.MULTILINE)


def make(folder: Path, count: int) -> None:
    """Folders NODE with the texts. A few nodes have another driver or a GPU with a narrow link."""
    pieces = {name: OWN.split(text) for name, text in texts().items()}
    values = {name: OWN.findall(text) for name, text in texts().items()}
    for number in range(count):
        place = folder / f"node{number:05d}"
        place.mkdir()
        for name, parts in pieces.items():
            text = parts[0]
            text += "".join(own(value, number) + part for value, part in zip(values[name], parts[1:], strict=True))
            if name == "nvidia-smi" and number % 97 == 5:
                text = text.replace("535.161.08", "535.154.05")
            if name == "nvidia-smi" and number % 251 == 7:
                text = text.replace("Current                   : 16x", "Current                   : 8x", 1)
            (place / f"{name}.txt").write_text(text)


def own(value: str, number: int) -> str:
    if value.isdigit() and len(value) < 4:
        return str(int(value) + number % 7)
    if "." in value:
        return f"{float(value) + number % 50 / 100:.2f}"
    return f"{number & 0xff:02x}-{number >> 8 & 0xff:02x}" if "-" in value else f"{number & 0xffff:04x}"


def parse(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hpcadmin-bench.") as name:
        (folder := Path(name, "captures")).mkdir()
        make(folder, count)
        read(folder, count)


def captures(count: int) -> None:
    """One capture of a lab node with 8 simulated GPUs, with other names and UUIDs in each copy."""
    with tempfile.TemporaryDirectory(prefix="hpcadmin-bench.") as name:
        lab, shared = (*HPCADMIN, "lab"), Path(name, "shared")
        shared.mkdir()
        subprocess.run([*lab, "up", "--name", "bench", "--nodes", "1", "--hardware", "8xH100", "--net", "10.243.0.0/24",
                        "--shared", str(shared)], check=True, stdout=subprocess.DEVNULL)
        try:
            subprocess.run([*lab, "exec", "--name", "bench", "--", "hpcadmin", "discover", "-w", "node01", "--captures",
                            "caps"], check=False, stdout=subprocess.DEVNULL)
            text = (shared / "home/hpc/caps/node01.txt").read_text()
        finally:
            subprocess.run([*lab, "down", "--name", "bench"], check=False, stdout=subprocess.DEVNULL)
        (folder := Path(name, "captures")).mkdir()
        for number in range(count):
            named = re.sub("GPU-[0-9a-f]{8}", f"GPU-{number:08x}", text.replace("node01", f"node{number:05d}"))
            named = re.sub("(?<=_serial=)[A-Z0-9]{1,4}", f"{number:04x}", named)
            (folder / f"node{number:05d}.txt").write_text(named)
        print(f"capture: {len(text) / 1000:.0f} kB", file=sys.stderr)
        read(folder, count)


def read(folder: Path, count: int) -> None:
    """discover --from, with the memory of all its processes together (shared pages counted once) every second."""
    out, shown = folder.with_name("inventory.json"), folder.with_name("out.txt")
    start, together = time.monotonic(), 0
    with shown.open("w") as stdout:
        running = subprocess.Popen([*HPCADMIN, "discover", "--from", str(folder), "-o", str(out)], stdout=stdout,
                                   stderr=subprocess.DEVNULL)
        while running.poll() is None:
            together = max(together, memory_kib(running.pid))
            time.sleep(1)
    seconds = time.monotonic() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(shown.read_text()[:3000], file=sys.stderr)
    print("| nodes | s | ms a node | CPU s | largest process MiB | all together MiB | inventory MB | lines | exit |")
    print("|" + "---|" * 9)
    print(f"| {count} | {seconds:.1f} | {1000 * seconds / count:.1f} | {usage.ru_utime + usage.ru_stime:.0f} | "
          f"{usage.ru_maxrss / 1024:.0f} | {together / 1024:.0f} | "
          f"{out.stat().st_size / 1e6 if out.exists() else 0:.1f} | {len(shown.read_text().splitlines())} | "
          f"{running.returncode} |")


def memory_kib(pid: int) -> int:
    found = 0
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                found += int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return found + sum(memory_kib(int(child)) for child in children)


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
    name, net = "bench", "10.243.0.0/16" if count > 200 else "10.243.0.0/24"
    shared = Path(tempfile.mkdtemp(prefix="hpcadmin-bench."))
    lab = (*HPCADMIN, "lab")
    subprocess.run([*lab, "up", "--name", name, "--nodes", str(count), "--net", net, "--shared", str(shared)],
                   check=True, stdout=subprocess.DEVNULL)
    try:
        width = max(2, len(str(count)))
        nodes = f"node[{1:0{width}}-{count:0{width}}]"
        inside = (*lab, "exec", "--name", name, "--")
        script = shared / "home" / "hpc" / "probe.sh"
        from hpcadmin.facts import probe_script  # noqa: PLC0415
        script.write_text(probe_script())
        script.chmod(0o644)
        clush = f"{CLUSH} -S -f 32 -w '{nodes}' 'sh /shared/home/hpc/probe.sh {'a' * 32}' >/dev/null"
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
    elif what == "captures":
        captures(number or 10_000)
    elif what == "ssh":
        ssh(number or 64)
    elif what == "profile":
        profile()
    else:
        raise SystemExit(__doc__)
