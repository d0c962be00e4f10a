"""Real RDMA without RDMA hardware: perftest, Slurm and our own check over Soft-RoCE, in a QEMU guest.

One boot does everything (a minute or two); the tests look at what it left behind.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import guest

pytestmark = pytest.mark.rdma

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FILES = ("guest.sh",)
STAGES = ("device", "perftest", "slurm")
TIMEOUT_S = 330.0


@dataclass(frozen=True)
class Left:
    """What a guest left in the shared directory."""

    shared: Path
    boot: guest.Boot

    def text(self, name: str) -> str:
        return (self.shared / name).read_text(encoding="utf-8", errors="replace")

    def stages(self) -> dict[str, int]:
        """Name and exit status of every stage that ended."""
        path = self.shared / "progress"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {name: int(status) for name, status, _ in (line.split() for line in lines)}

    def need(self, stage: str) -> None:
        """Fail with the stage's own last words when it did not end well."""
        if self.stages().get(stage) == 0:
            return
        log = self.shared / f"{stage}.log"
        source = log if log.is_file() else self.boot.console
        tail = "\n".join(source.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
        pytest.fail(f"stage {stage} in the guest: {self.stages()}, {self.boot}\n{tail}")

    def perftest(self, case: str, who: str) -> tuple[int, str]:
        return int(self.text(f"cases/{case}.{who}.status")), self.text(f"cases/{case}.{who}.out")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    reason = guest.missing()
    if reason:
        pytest.skip(f"no Soft-RoCE guest: {reason}")
    scratch = tmp_path_factory.mktemp("rdma")
    shared = scratch / "shared"
    shared.mkdir()
    for name in FILES:
        shutil.copy(HERE / name, shared)
    guest.write_settings(shared / "settings", {
        "PYTHON": sys.executable, "REPOSITORY": REPOSITORY, "STAGES": " ".join(STAGES)})
    machine = guest.Guest(shared, guest.kernels()[0], str(guest.find_vng()), guest.needed_directories(REPOSITORY))
    return Left(shared, guest.run(machine, ["sh", str(shared / "guest.sh"), str(shared)], scratch, TIMEOUT_S))


def rows(text: str) -> list[list[float]]:
    """The numbers of perftest's table: size, iterations, peak and average in Gb/s, message rate."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and all(word.replace(".", "", 1).isdigit() for word in words):
            found.append([float(word) for word in words])
    return found


def test_the_guest_ends_in_time_and_by_itself(left: Left) -> None:
    assert not left.boot.timed_out
    assert left.stages() == dict.fromkeys((*STAGES, "end"), 0), left.boot
    assert left.boot.seconds < TIMEOUT_S


def test_device_is_roce(left: Left) -> None:
    left.need("device")
    text = left.text("ibv_devinfo.out")
    assert "hca_id:\trxe0" in text
    assert "PORT_ACTIVE" in text
    assert "Ethernet" in text


@pytest.mark.parametrize("case", ["duration", "iterations", "bidirectional", "all_sizes"])
def test_perftest_measures_over_soft_roce(left: Left, case: str) -> None:
    left.need("perftest")
    for who in ("server", "client"):
        status, text = left.perftest(case, who)
        assert status == 0, text
        assert "Link type       : Ethernet" in text
        assert "Device         : rxe0" in text
        table = rows(text)
        assert len(table) == (23 if (case, who) == ("all_sizes", "client") else 1), text
        assert all(row[3] > 0 for row in table if row[0] >= 65536), text


@pytest.mark.parametrize("case", ["no_server", "no_device", "no_gid", "killed"])
def test_perftest_fails_as_it_does_on_real_hardware(left: Left, case: str) -> None:
    left.need("perftest")
    status, text = left.perftest(case, "client")
    assert status not in (0, 124), text
    message = {
        "no_server": "Couldn't connect to n1", "no_device": "IB device mlx5_9 not found",
        "no_gid": "Failed to modify QP", "killed": "Failed to exchange data",
    }
    assert message[case] in text


def test_slurm_runs_jobs_of_an_ordinary_user_on_both_nodes(left: Left) -> None:
    left.need("slurm")
    assert sorted(left.text("srun.out").splitlines()) == ["n1 5000 unlimited", "n2 5000 unlimited"]
