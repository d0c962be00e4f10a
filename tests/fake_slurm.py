"""A stand-in for Slurm whose jobs write their logs as real ones do, stage by stage, and that outlives who uses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpcadmin.frames import Frame, encode
from hpcadmin.rundata import PlannedJob, PlannedTest
from hpcadmin.slurm.client import Partition, SlurmNode
from hpcadmin.slurm.script import expected_frames
from hpcadmin.slurm.states import Job, node_state

Body = Callable[[PlannedTest, int, str, int], bytes]
Known = Callable[[Path], tuple[PlannedJob, Mapping[str, PlannedTest]]]
DONE = 10_000


class FakeJob:
    def __init__(self, number: int, folder: Path, comment: str) -> None:
        self.id, self.folder, self.comment = number, folder, comment
        self.state = "PENDING"
        self.stage = 0

    @property
    def told(self) -> Job:
        return Job(self.id, self.state, comment=self.comment)


class FakeSlurm:
    """known: what a job's folder is to run. fate: job number -> "STATE after N stages", as "NODE_FAIL 1"; else it
    completes. Each question is a step of every job that runs."""

    def __init__(self, names: Sequence[str], known: Known, body: Body) -> None:
        self.names, self.known, self.body = tuple(names), known, body
        self.list: list[FakeJob] = []
        self.fate: dict[int, str] = {}
        self.down: set[str] = set()
        self.at: Callable[[str], None] = lambda what: None
        self.busy = False
        self.purged = False
        self.instant = False
        self.taken: dict[str, int] = {}     # node -> another's job holds it until so many jobs of ours are over

    # --- the client ---------------------------------------------------------------------------------------------

    def version(self) -> str:
        return "22.05.8"

    def nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(SlurmNode(n, node_state(self._state(n)), partitions=("main",)) for n in self.names)

    def _state(self, node: str) -> str:
        over = sum(job.told.over for job in self.list)
        return "DOWN" if node in self.down else "ALLOCATED" if over < self.taken.get(node, 0) else "IDLE"

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition("main", "UP", default=True),)

    def topology(self) -> bool:
        return False

    def topology_text(self) -> str:
        return ""

    def starts_containers(self) -> bool:
        return False

    def submit(self, script: Path, *, comment: str) -> int:
        self.at("submit")
        words = re.findall(r"^#SBATCH --comment=(\S+)", script.read_text(), re.M)
        assert words == [comment]
        assert not [j for j in self.list if j.comment == comment], f"{comment} is submitted twice"
        self.list.append(FakeJob(100 + len(self.list), script.parent, comment))
        if self.instant:
            self.run_all()
        self.at("submitted")
        return self.list[-1].id

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        self.at("ask")
        self.step()
        found = {j.id: j.told for j in self.list if j.id in set(ids)}
        return {n: Job(n) if self.purged and found[n].over else found[n] for n in ids}

    def find(self, comment: str) -> tuple[Job, ...]:
        self.at("find")
        return tuple(j.told for j in self.list if j.comment.startswith(comment)
                     and not (self.purged and j.told.over))

    def cancel(self, ids: Sequence[int]) -> None:
        self.at("cancel")
        for job in self.list:
            if job.id in set(ids) and not job.told.over:
                job.state = "CANCELLED"

    # --- the cluster --------------------------------------------------------------------------------------------

    @property
    def left(self) -> list[int]:
        return [j.id for j in self.list if not j.told.over]

    def end_all(self, state: str) -> None:
        for job in self.list:
            if not job.told.over:
                job.state = state

    def run_all(self) -> None:
        while self.left:
            self.step()

    def step(self) -> None:
        for job in self.list:
            if job.state == "PENDING":
                job.state = "RUNNING"
            elif job.state == "RUNNING":
                self.busy = True
                try:
                    self._stage(job)
                finally:
                    self.busy = False

    def _stage(self, job: FakeJob) -> None:
        planned, tests = self.known(job.folder)
        state, _, after = self.fate.get(planned.number, f"COMPLETED {DONE}").partition(" ")
        (job.folder / "claimed").write_text(f"{job.id}\n")
        if job.stage >= int(after):
            job.state = state
            return
        halted = job.stage > 0 and (job.folder / "stop").exists()
        if halted:
            (job.folder / "stopped").write_text(f"{job.stage + 1}\n")
        elif job.stage < len(planned.stages):
            for test in planned.stages[job.stage].tests:
                self._frames(job, planned, tests[test])
            job.stage += 1
        if halted or job.stage == len(planned.stages):
            (job.folder / "done").write_text(f"1.0 {job.id}\n")
            job.state = "COMPLETED"

    def _frames(self, job: FakeJob, planned: PlannedJob, test: PlannedTest) -> None:
        for step, role, node in expected_frames([test])[test.id]:
            if planned.step is not None and planned.step != step:
                continue
            if node in self.down:
                continue
            name = f"{node}.log" if role == "each" else "driver.log"
            with (job.folder / name).open("ab") as log:
                log.write(encode(Frame(test.id, step, role, node, node, 0, 1.0, 2.0, frozenset(),
                                       self.body(test, step, node, planned.number))))
