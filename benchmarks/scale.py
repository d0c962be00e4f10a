#!/usr/bin/env python3
"""A whole `validate` on many nodes, with a stand-in for Slurm in this process whose jobs take no time: what is left is
what the tool itself does.

    python benchmarks/scale.py [NODES] [--busy] [--profile [--cumulative]]

12 trivial node checks and 16 rounds of pairs (20 tests a node). --busy: half of the nodes are somebody else's at first
and become free one by one, 20 a second.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from fake_slurm import FakeSlurm  # noqa: E402

from hpcadmin.report import Options, formats  # noqa: E402
from hpcadmin.run import Request, validate  # noqa: E402
from hpcadmin.run_progress import Progress  # noqa: E402
from hpcadmin.run_submit import Desk  # noqa: E402
from hpcadmin.rundata import PlannedJob, PlannedTest, read_run  # noqa: E402
from hpcadmin.site import load_site  # noqa: E402
from hpcadmin.slurm.states import Job  # noqa: E402

CHECK = '''
from hpcadmin.check import *
def steps(c):
    return (Step(("sh", "-c", "echo bw 12.5"),{role}),)
def parse(o, c):
    return [Measurement("bw", float(o[0].text.split()[1]), "GB/s", expected=12.5,
                        subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("{name}", "{name}", Scope.{scope}, steps, parse, seconds=0.1)
'''
FREE_PER_S = 20


class Cluster(FakeSlurm):
    """Jobs end as soon as somebody asks for them."""

    def __init__(self, names: Sequence[str], *, busy: bool) -> None:
        super().__init__(names, self._known, lambda *_: b"bw 12.5\n")
        self.folders: dict[Path, tuple[PlannedJob, Mapping[str, PlannedTest]]] = {}
        self.begun = time.monotonic()
        self.free_at = {n: i / FREE_PER_S for i, n in enumerate(names[len(names) // 2:], 1)} if busy else {}
        self.spent = 0.0                        # CPU seconds of this stand-in
        self.asked = 0
        make = Desk.make

        def remember(desk: Desk, job: PlannedJob, tests: Mapping[str, PlannedTest], ground: object) -> object:
            run = make(desk, job, tests, ground)  # type: ignore[arg-type]
            self.folders[run.folder] = run.job, run.tests
            return run
        Desk.make = remember  # type: ignore[method-assign,assignment]

    def _known(self, folder: Path) -> tuple[PlannedJob, Mapping[str, PlannedTest]]:
        return self.folders[folder]

    def _busy(self, node: str) -> bool:
        return self.free_at.get(node, 0.0) > time.monotonic() - self.begun

    def _state(self, node: str) -> str:
        return "ALLOCATED" if self._busy(node) else "IDLE"

    def nodes(self):
        self.asked += 1
        return super().nodes()

    def jobs(self, ids):
        self.asked += 1
        return super().jobs(ids)

    def find(self, comment: str) -> tuple[Job, ...]:
        self.asked += 1
        return super().find(comment)

    def submit(self, script: Path, *, comment: str) -> int:
        number = super().submit(script, comment=comment)
        self._go()
        return number

    def step(self) -> None:
        self._go()

    def _go(self) -> None:
        begin = time.process_time()
        for job in self.list:
            while not job.told.over and not any(map(self._busy, self.folders[job.folder][0].nodes)):
                job.state = "RUNNING"
                self._stage(job)
        self.spent += time.process_time() - begin


def main() -> None:
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    count, busy = int(words[0]) if words else 1000, "--busy" in sys.argv
    names = [f"n{i:04d}" for i in range(1, count + 1)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "checks").mkdir()
        checks = [*(f"n{k:02d}" for k in range(12)), "pair"]
        for name in checks:
            pair = name == "pair"
            (folder / f"checks/{name}.py").write_text(CHECK.format(
                name=name, role=" Role.RANKS" if pair else "", scope="PAIR" if pair else "NODE"))
        (folder / "suite.toml").write_text("pairs = 16\n" + "".join(f'[[entry]]\ncheck = "{n}"\n' for n in checks))
        (folder / "site.toml").write_text(f'[run]\nchecks_dir = "{folder}/checks"\n[slurm]\nmpi = "none"\n')
        (folder / "inventory.json").write_text(json.dumps({"schema": 1, "nodes": [{"name": n} for n in names]}))
        cluster = Cluster(names, busy=busy)
        request = Request(suite=str(folder / "suite.toml"), inventory=str(folder / "inventory.json"),
                          run_dir=str(folder / "runs"), allow_root=True)
        profile = cProfile.Profile() if "--profile" in sys.argv else None
        begin, cpu = time.perf_counter(), time.process_time()
        if profile:
            profile.enable()
        outcome = validate(request, load_site(str(folder / "site.toml")), cluster, Progress(quiet=True))
        made, made_cpu = time.perf_counter() - begin, time.process_time() - cpu - cluster.spent
        run = read_run(outcome.folder)
        text = formats()["table"].render(run, Options())
        whole_cpu = time.process_time() - cpu - cluster.spent
        if profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("cumtime" if "--cumulative" in sys.argv else "tottime").print_stats(60)
        assert outcome.exit_status == 0, text
        size = sum(p.stat().st_size for p in outcome.folder.rglob("*") if p.is_file())
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print("| nodes | tests | jobs | s | CPU s of the run | CPU s of the report | MiB | questions to Slurm | MB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print(f"| {count:,}{', half busy' if busy else ''} | {len(run.verdicts):,} | {len(cluster.list)} | {made:.1f} | "
          f"{made_cpu:.1f} | {whole_cpu - made_cpu:.1f} | {mib} | {cluster.asked} | {size / 1e6:.0f} |")


if __name__ == "__main__":
    main()
