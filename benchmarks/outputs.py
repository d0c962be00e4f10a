#!/usr/bin/env python3
"""Outputs of a large run, as its folder has them, to measurements and verdicts.

    python benchmarks/outputs.py [NODES] [--profile]

Each node has 20 outputs: node_ready, nvidia-smi (three), ib_links and nccl-tests within the node, and seven rounds of
pairs with ib_read_bw and ib_write_lat, whose two sides give one output a node. Made first, not counted: the plan and
the logs, samples with the nodes' own names. Counted is what a run does: logs read and taken apart, outputs parsed,
measurements written, all of it judged, verdicts written.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from check_samples import SAMPLES  # noqa: E402

from hpcadmin.catalogue import load_limits  # noqa: E402
from hpcadmin.check import Layout, NodeView, PortView, Role  # noqa: E402
from hpcadmin.frames import Frame, encode  # noqa: E402
from hpcadmin.model import Gpu, Inventory, Nic, Node  # noqa: E402
from hpcadmin.plan import make_plan  # noqa: E402
from hpcadmin.plan_facts import Facts  # noqa: E402
from hpcadmin.registry import Suite, SuiteEntry, load_checks  # noqa: E402
from hpcadmin.run_folder import create_run  # noqa: E402
from hpcadmin.run_job import JobRun  # noqa: E402
from hpcadmin.run_kept import Ground  # noqa: E402
from hpcadmin.run_phases import Phases  # noqa: E402
from hpcadmin.run_progress import Progress  # noqa: E402
from hpcadmin.run_session import Request  # noqa: E402
from hpcadmin.run_stop import Stop  # noqa: E402
from hpcadmin.run_submit import Desk  # noqa: E402
from hpcadmin.site import Site  # noqa: E402
from hpcadmin.slurm.client import Partition  # noqa: E402

ROUNDS = 7
CHECKS = {name: replace(check, again_after_load=False) for name, check in load_checks().items()}
USED = ("node_ready", "nvidia_smi", "ib_links", "ib_read_bw", "ib_write_lat", "nccl_allreduce")
SUITE = Suite("outputs", "outputs", tuple(
    SuiteEntry((name,), {}, (Layout.NODE,) if name.startswith("nccl") else ()) for name in USED), pairs=ROUNDS)
PORTS = tuple(PortView(f"mlx5_{n}", 1, "InfiniBand", 400.0, "ACTIVE", rail=n, gpu=n) for n in range(8))


def facts(names: list[str]) -> Facts:
    devices = tuple(p.device for p in PORTS)
    views = {n: NodeView(n, hostname=n, gpus=8, ports=PORTS, rdma_devices=devices) for n in names}
    tools = {tool: f"/usr/bin/{tool}" for name in USED for tool in CHECKS[name].needs}
    there = dict.fromkeys(names, True)
    return Facts(views, {"gpu": there, "rdma": there, "infiniband": there}, tools=dict.fromkeys(names, tools))


def inventory(names: list[str]) -> Inventory:
    gpus = tuple(Gpu(n, model="NVIDIA H100 80GB HBM3") for n in range(8))
    nics = tuple(Nic(p.device, rdma=p.device, link_layer="InfiniBand", rate_gbps=400.0, state="ACTIVE") for p in PORTS)
    return Inventory(tuple(Node(n, gpus=gpus, nics=nics) for n in names))


def sample(check: str, name: str) -> str:
    return (SAMPLES / check / name).read_text(encoding="utf-8")


def within_a_node(text: str) -> str:
    """The all-reduce of 16 ranks on two hosts as one of 8 on one host, which is a tenth faster."""
    found, busbw = [], []
    for line in text.splitlines():
        words = line.split()
        if "gpu02" in line:
            continue
        if len(words) == 13 and words[2] == "float":
            for n in (5, 9):
                time_us = round(float(words[n]) / 1.1, 1)
                algbw = int(words[0]) / time_us / 1e3
                words[n:n + 3] = [f"{time_us:.1f}", f"{algbw:.2f}", f"{algbw * 14 / 8:.2f}"]
                busbw.append(float(words[n + 2]))
            line = "  ".join(words)  # noqa: PLW2901
        found.append(line.replace("gpu01", "{0}"))
    return re.sub(r"(Avg bus bandwidth +: )\S+", rf"\g<1>{sum(busbw) / len(busbw):g}", "\n".join(found) + "\n")


def texts(check: str) -> list[str]:
    """The outputs of each step, with {0} for a node's name and {1} for its number."""
    if check == "nvidia_smi":
        whole = sample(check, "ok_8_h100.out")
        return [re.sub(r"<serial>\d+<", "<serial>16500{1}<", whole), sample(check, "ok_8_h100.links"),
                sample(check, "ok_8_h100.errors")]
    if check == "nccl_allreduce":
        return [within_a_node(sample(check, "ok_2x8_h100.out"))]
    if check in ("ib_read_bw", "ib_write_lat"):
        return [sample(check, "ok_ib.server.txt"), sample(check, "ok_ib.out")]
    return [sample(check, {"node_ready": "ok.out", "ib_links": "eight_ports.out"}[check]).replace("node02", "{0}")]


def logs(run: JobRun, names: list[str]) -> tuple[int, int]:
    """Write every log as the nodes would; (outputs, bytes)."""
    made = {check: texts(check) for check in USED}
    place = {name: n for n, name in enumerate(names)}
    count = size = 0
    each: dict[str, list[bytes]] = {name: [] for name in names}
    with (run.folder / "driver.log").open("wb") as driver:
        for test in run.tests.values():
            for number, step in enumerate(test.steps):
                node = step.nodes[0]
                text = made[test.check][number].replace("{0}", node).replace("{1}", f"{place[node]:08d}")
                raw = encode(Frame(test.id, number, step.role.value, node, node, 0, 1e9, 1e9 + 1, frozenset(),
                                   text.encode()))
                count, size = count + 1, size + len(raw)
                if step.role is Role.EACH:
                    each[node].append(raw)
                else:
                    driver.write(raw)
    for name, frames in each.items():
        (run.folder / f"{name}.log").write_bytes(b"".join(frames))
    return count, size


def prepare(names: list[str], folder: Path) -> tuple[Any, JobRun, str]:
    """A run whose job is over, and the head of the table."""
    site = Site()
    progress = Progress(quiet=True)
    limits = tuple(x for x in load_limits(site) if x.check in USED)
    made = create_run(folder, suite=SUITE.name, nodes=tuple(names), command=())
    empty = SimpleNamespace(find=lambda comment: (), cancel=lambda ids: None)       # a Slurm without jobs of ours
    desk = Desk(made, empty, progress, Stop(made.path), request=Request(), checks=CHECKS)  # type: ignore[arg-type]
    run = Phases(made, desk, CHECKS, limits, progress)
    known = facts(names)
    ground = Ground(known, Partition("main"), (), "")
    run.set_plan(make_plan(SUITE, CHECKS, known, names), ground, inventory(names))
    assert run.plan is not None
    (job,) = run.plan.jobs
    jobrun = desk.make(job, {t.id: t for t in run.plan.tests}, ground)
    count, size = logs(jobrun, names)
    return run, jobrun, f"{len(names):,} nodes, {count:,} outputs, {size / 1e6:,.0f} MB"


def resident_mib() -> int:
    """Of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def measure(run: Any, jobrun: JobRun) -> list[tuple[str, float, float, int]]:
    """(step, s, CPU s of all processes, MiB) of what a run does once its job has left everything."""
    found = []

    def step(name: str, call: Any) -> None:
        begin, cpu = time.perf_counter(), cpu_seconds()
        call()
        found.append((name, time.perf_counter() - begin, cpu_seconds() - cpu, resident_mib()))

    def read() -> None:
        (jobrun.folder / "done").touch()
        jobrun.on_test = lambda test: run._result(jobrun, test)
        while jobrun.read():
            pass

    step("read, parsed, measurements written", read)
    step("judged, verdicts written", lambda: run.finish("complete"))
    return found


def cpu_seconds() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    names = [f"n{n:05d}" for n in range(1, int(words[0] if words else 10_000) + 1)]
    with tempfile.TemporaryDirectory(prefix="outputs-") as scratch:
        run, jobrun, head = prepare(names, Path(scratch))
        before = resident_mib()
        profile = cProfile.Profile() if "--profile" in sys.argv else None
        if profile:
            profile.enable()
        steps = measure(run, jobrun)
        if profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        failed = Counter(r.error for r in run.results.values() if r.error)
        assert not failed, failed.most_common(3)
        assert len(run.results) == len(run.plan.tests)
        with (run.folder.path / "verdicts.jsonl").open(encoding="utf-8") as stream:
            told = Counter(json.loads(line)["status"] for line in stream)
    print(f"\n{head}; {told.total():,} verdicts: {dict(told)}; {before} MiB before\n")
    print("| step | s | CPU s | MiB |\n|---|---:|---:|---:|")
    for name, seconds, cpu, mib in [*steps, ("all", sum(s[1] for s in steps), sum(s[2] for s in steps), max(
            s[3] for s in steps))]:
        print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {mib} |")
    print(f"\nlargest process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
