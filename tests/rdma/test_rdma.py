"""Real RDMA without RDMA hardware: perftest and our own check through Slurm, over Soft-RoCE between two QEMU guests.

The guests are booted once and do everything; the tests look at what they left behind. Needs root and about two minutes.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import guest

from hpcadmin.check import Context, Measurement, NodeView, Output, ParseError, Role
from hpcadmin.registry import load_checks

pytestmark = pytest.mark.rdma

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FILES = ("guest.sh", "suite.toml", "kin.toml", "site.toml")
STAGES = ("device", "slurm", "perftest", "validate")
TIMEOUT_S = 900.0         # for a machine that does much else; alone it takes a quarter of this
NODES = tuple(NodeView(name, hostname=name, rdma_devices=("rxe0",)) for name in ("n1", "n2"))


@dataclass(frozen=True)
class Left:
    """What the guests left in the shared directory."""

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

    def side(self, case: str, role: Role) -> Output:
        """One side of a run of perftest in the guests, as a check is given it."""
        name = f"cases/{case}.{role.value}"
        node = "n1" if role is Role.SERVER else "n2"
        return Output(self.text(f"{name}.out"), int(self.text(f"{name}.status")), role, node)

    def validated(self, case: str) -> dict[str, Any]:
        """The report of a run of `hpcadmin validate` in the guests."""
        self.need("validate")
        assert self.text(f"validate/{case}.json"), self.text(f"validate/{case}.err")
        report: dict[str, Any] = json.loads(self.text(f"validate/{case}.json"))
        return report


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    reason = guest.missing()
    if reason:
        pytest.skip(f"no Soft-RoCE guests: {reason}")
    scratch = tmp_path_factory.mktemp("rdma")
    shared = scratch / "shared"
    (shared / "share").mkdir(parents=True)
    for name in FILES:
        shutil.copy(HERE / name, shared)
    (shared / "munge.key").write_bytes(secrets.token_bytes(128))
    guest.write_settings(shared / "settings", {
        "PYTHON": sys.executable, "PREFIX": sys.prefix if sys.prefix != sys.base_prefix else "",
        "REPOSITORY": REPOSITORY, "STAGES": " ".join(STAGES)})
    with tempfile.TemporaryDirectory(prefix="rdma-", dir="/tmp") as short:      # a socket's path has 108 bytes at most
        cable = Path(short) / "cable"
        first, second = (
            guest.Guest(name, shared, guest.kernels()[0], str(guest.find_vng()), guest.needed_directories(REPOSITORY),
                        (*guest.cable(cable, end), *guest.file_system(shared / "share", "share")))
            for end, name in enumerate(("n1", "n2")))
        script = ["sh", str(shared / "guest.sh"), str(shared)]
        return Left(shared, guest.run_two(first, second, script, scratch, socket=cable, timeout_s=TIMEOUT_S))


def parse(outputs: list[Output], **params: str | int) -> list[Measurement]:
    check = load_checks()["ib_write_bw"]
    return check.parse(outputs, Context(nodes=NODES, params={**check.params, **params}))


def test_the_guests_end_in_time_and_by_themselves(left: Left) -> None:
    assert not left.boot.timed_out, left.stages()
    assert left.stages() == dict.fromkeys((*STAGES, "end"), 0), left.boot


def test_device_is_roce(left: Left) -> None:
    left.need("device")
    text = left.text("ibv_devinfo.out")
    assert "hca_id:\trxe0" in text
    assert "PORT_ACTIVE" in text
    assert "Ethernet" in text


def test_slurm_runs_tasks_of_an_ordinary_user_on_both_nodes(left: Left) -> None:
    left.need("slurm")
    assert sorted(left.text("srun.out").splitlines()) == ["n1 5000 unlimited", "n2 5000 unlimited"]


@pytest.mark.parametrize(("case", "unit"), [("duration", "Gb/sec"), ("iterations", "MB/sec")])
def test_real_perftest_is_read(left: Left, case: str, unit: str) -> None:
    left.need("perftest")
    sides = [left.side(case, Role.SERVER), left.side(case, Role.CLIENT)]
    assert f"BW average[{unit}]" in sides[1].text
    found = [m for m in parse(sides) if m.name == "bandwidth"]
    assert len(found) == 1
    assert found[0].value > 0
    assert (found[0].unit, found[0].size_bytes, found[0].rail, found[0].transport) == ("Gb/s", 65536, "rxe0", "RoCE RC")


@pytest.mark.parametrize(("case", "message"), [
    ("no_server", "Couldn't connect to n1"), ("no_device", "IB device mlx5_9 not found"),
    ("no_gid", "Failed to modify QP"), ("killed", "Failed to exchange data")])
def test_real_failures_are_no_measurement(left: Left, case: str, message: str) -> None:
    left.need("perftest")
    client = left.side(case, Role.CLIENT)
    assert message in client.text
    assert client.exit_status not in (0, 124)
    sides = [left.side(case, Role.SERVER)] if (left.shared / f"cases/{case}.server.out").is_file() else []
    with pytest.raises(ParseError):
        parse([*sides, client])
    # Not even when nobody saw the exit statuses.
    with pytest.raises(ParseError):
        parse([Output(o.text, 0, o.role, o.node) for o in (*sides, client)])


def test_validate_measures_over_soft_roce_through_sbatch(left: Left) -> None:
    report = left.validated("pass")
    [verdict] = [v for v in report["verdicts"] if v["check"] == "ib_write_bw"]
    assert verdict["status"] == "PASS", verdict
    assert verdict["subject"]["nodes"] == ["n1", "n2"]
    measurement = verdict["measurement"]
    assert measurement["value"] > 0
    assert (measurement["unit"], measurement["transport"]) == ("Gb/s", "RoCE RC")
    assert left.text("validate/pass.status") == "0\n"
    folder = left.shared / "share/hpcadmin/first" / report["run"]
    raw = folder / verdict["outputs"][0].split("#")[0]
    assert "RDMA_Write BW Test" in raw.read_text(encoding="utf-8", errors="replace")
    for node in json.loads((folder / "inventory.json").read_text(encoding="utf-8"))["nodes"]:
        assert [(nic["rdma"], nic["link_layer"], nic["state"]) for nic in node["nics"] if nic["rdma"]] == [
            ("rxe0", "Ethernet", "ACTIVE")]


@pytest.mark.parametrize(("check", "title"), [
    ("ib_read_bw", "RDMA_Read BW Test"), ("ib_send_bw", "Send BW Test"), ("ib_write_lat", "RDMA_Write Latency Test"),
    ("ib_send_lat", "Send Latency Test")])
def test_validate_measures_the_kin_over_soft_roce(left: Left, check: str, title: str) -> None:
    """Measured, whole and over RoCE; and not judged, since no limit is known for software emulation."""
    report = left.validated("kin")
    assert left.text("validate/kin.status") == "3\n"
    [verdict] = [v for v in report["verdicts"] if v["check"] == check and v["basis"] != "peers"]
    assert verdict["status"] == "UNJUDGED", verdict
    assert "no limit known" in verdict["reason"]
    measurement = verdict["measurement"]
    what = ("t_typical", "us", 2) if "_lat" in check else ("bandwidth", "Gb/s", 65536)
    assert (measurement["name"], measurement["unit"], measurement["size_bytes"]) == what
    assert 0 < measurement["value"] < (1e6 if "_lat" in check else 100)     # emulation takes no second, nor is it fast
    assert (measurement["rail"], measurement["transport"]) == ("rxe0", "RoCE RC")
    raw = left.shared / "share/hpcadmin/runs" / report["run"] / verdict["outputs"][0].split("#")[0]
    assert title in raw.read_text(encoding="utf-8", errors="replace")


def test_links_of_soft_roce_are_up(left: Left) -> None:
    report = left.validated("kin")
    verdicts = [v for v in report["verdicts"] if v["check"] == "ib_links"]
    assert {n for v in verdicts for n in v["subject"]["nodes"]} == {"n1", "n2"}
    assert {v["status"] for v in verdicts} <= {"PASS", "WARN"}, verdicts
    told = {(m["measurement"]["name"], m["measurement"]["value"]) for m in report["measurements"]
            if m["check"] == "ib_links"}
    assert {("state", "ACTIVE"), ("physical_state", "LinkUp"), ("link_layer", "Ethernet")} <= told


@pytest.mark.parametrize("case", ["no_device", "killed"])
def test_validate_says_error_when_nothing_could_be_measured(left: Left, case: str) -> None:
    report = left.validated(case)
    [verdict] = [v for v in report["verdicts"] if v["check"] == "ib_write_bw"]
    assert verdict["status"] == "ERROR", verdict
    assert verdict["reason"]
    assert left.text(f"validate/{case}.status") == "3\n"
    assert not [m for m in report["measurements"] if m["measurement"]["name"] == "bandwidth"]
