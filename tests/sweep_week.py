"""Nine nights of a cluster, and what a careful admin would have done and said: for a stand-in and for a real Slurm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sweep_models import DAY_S, FREE, Given, acts, health, pair

from hpcadmin.site_sweep import SweepSite
from hpcadmin.sweep.act import Door
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.ledger_file import read_ledger
from hpcadmin.sweep.model import Look
from hpcadmin.sweep.night import Report, sweep
from hpcadmin.sweep.undo import undo

NAMES = [f"n{i:02d}" for i in range(1, 11)]
POLICY = replace(FREE, night_nodes=3, total_nodes=5)
MOUNT, GPU = "bad: /home does not answer", "bad: 7 of 8 GPUs"


class Place(Protocol):
    """A cluster of the nodes NAMES, and what people and fate do there."""

    door: Door

    def admin_drains(self, node: str, reason: str) -> None: ...

    def admin_resumes(self, node: str) -> None: ...

    def slurmctld(self, *, up: bool) -> None: ...

    def settle(self) -> None:
        """Until what was resumed is in service again."""

    def drained(self) -> dict[str, str]:
        """node -> reason."""


@dataclass
class Week:
    place: Place
    folder: Path
    start: float
    policy: SweepSite
    night: int = 0

    @property
    def now(self) -> float:
        return self.start + self.night * DAY_S

    def sweep(self, looks: Sequence[Look]) -> Report:
        report = sweep(self.folder, self.policy, self.place.door, [Given(looks)], clock=lambda: self.now)
        self.place.settle()
        return report

    def looks(self, **bad: str) -> list[Look]:
        """Health of all nodes an hour before the sweep: good, but for those that are named. gpu_n02, mount_n01."""
        found: list[Look] = []
        for node in NAMES:
            boot = "b2" if node == "n02" and self.night >= 5 else "b1"
            for check in ("mount", "gpu"):
                found += health(node, self.now - 3600, boot=boot, hardware=check == "gpu",
                                **{check: bad.get(f"{check}_{node}", "good")})
        return found

    def expect(self, looks: Sequence[Look], decided: dict[str, str], told: set[str], drained: set[str],
               status: int = 1) -> Report:
        self.night += 1
        report = self.sweep(looks)
        assert acts(report) == decided, self.night
        assert {f"{c.what} {c.problem.key}" for c in report.changes} == told, self.night
        assert set(self.place.drained()) == drained, self.night
        assert report.exit_status == status, self.night
        return report


def nine_nights(place: Place, folder: Path, start: float, policy: SweepSite = POLICY) -> None:
    week = Week(place, folder, start, policy)
    at: Callable[..., list[Look]] = week.looks

    def tonight(**bad: str) -> list[Look]:
        week.night += 1
        found = at(**bad)
        week.night -= 1
        return found

    def link(a: str, b: str, result: str) -> Look:
        return pair(a, b, result, week.now + DAY_S - 1800)

    # 1 a stale NFS mount on one node
    week.expect(tonight(mount_n01=MOUNT), {"n01": "drain"}, {"begins node/n01"}, {"n01"})
    # 2 a GPU is lost on another; an admin has drained a third for reasons of her own
    place.admin_drains("n03", "Anna: new board")
    week.expect(tonight(mount_n01=MOUNT, gpu_n02=GPU), {"n01": "keep", "n02": "drain"}, {"begins node/n02"},
                {"n01", "n02", "n03"})
    # 3 the mount is back; Anna's node looks bad, and is hers; a link is slow: one strike for either end
    week.expect([*tonight(gpu_n02=GPU, mount_n03=MOUNT), link("n04", "n05", "bad")],
                {"n01": "resume", "n02": "keep", "n03": "hold", "n04": "tell", "n05": "tell"},
                {"ends node/n01", "begins node/n04", "begins node/n05"}, {"n02", "n03"})
    # 4 slurmctld is down
    place.slurmctld(up=False)
    week.night += 1
    report = week.sweep(at(mount_n06=MOUNT))
    assert (report.exit_status, report.plan) == (4, None)
    assert [f"{c.what} {c.problem.key}" for c in report.changes] == ["begins slurm"]
    place.slurmctld(up=True)
    # 5 n04 is slow with another partner, and is the one; n02 was rebooted and looks good: once is not enough
    week.expect([*tonight(), link("n04", "n06", "bad"), link("n05", "n06", "good")],
                {"n02": "keep", "n04": "drain"}, {"ends slurm", "changes node/n04", "ends node/n05"},
                {"n02", "n03", "n04"})
    # 6 something that most nodes share fails
    week.expect(tonight(**{f"mount_{n}": MOUNT for n in NAMES[4:]}),
                {"n02": "keep", "n04": "keep", **dict.fromkeys(NAMES[4:], "hold")},
                {"begins budget", *(f"begins node/{n}" for n in NAMES[4:])}, {"n02", "n03", "n04"})
    # 7 it was the file server; n02 goes back to work; a false alarm on n07
    report = week.expect([*tonight(gpu_n07="bad: XID 79"), link("n04", "n05", "good")],
                         {"n02": "resume", "n04": "keep", "n07": "drain"},
                         {"ends budget", "ends node/n02", "changes node/n07",
                          *(f"ends node/{n}" for n in NAMES[4:] if n != "n07")}, {"n03", "n04", "n07"})
    undone = undo(folder, policy, place.door, report.run, clock=lambda: week.now + 3600)
    assert acts(undone) == {"n02": "drain", "n07": "resume"}
    assert undone.exit_status == 0
    place.settle()
    # 8 and on
    after_undo(week, place, tonight, link)


def after_undo(week: Week, place: Place, tonight: Callable[..., list[Look]],
               link: Callable[[str, str, str], Look]) -> None:
    """The false alarm is still there, and is only told; the slow link was repaired; Anna is ready."""
    place.admin_resumes("n03")
    place.settle()
    week.expect([*tonight(gpu_n07="bad: XID 79"), link("n04", "n06", "good")],
                {"n02": "keep", "n04": "resume", "n07": "tell"},
                {"begins node/n02", "ends node/n04", "changes node/n07"}, {"n02"})
    week.expect(tonight(), {"n02": "resume"}, {"ends node/n02", "ends node/n07"}, set(), 0)
    history = fold(read_ledger(week.folder))
    assert not history.ours and not history.pending and not history.problems
    assert [sweep.status for sweep in history.sweeps.values()] == ["1", "1", "1", "4", "1", "1", "1", "0", "1", "0"]
