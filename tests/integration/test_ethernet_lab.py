"""The check ethernet on two hosts with a real network between them: iperf3 and ping, a throttled cable, a short MTU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from labtool import lab

pytestmark = [pytest.mark.lab, pytest.mark.alone]

SUITE = """[[entry]]
check = "ethernet"
params = { mtu = 9000, streams = 2, seconds = 1, udp_seconds = 1 }
"""


def test_a_slow_cable_and_a_short_mtu_are_found(tmp_path: Path) -> None:
    for tool in ("iperf3", "ping"):
        if not shutil.which(tool):
            pytest.skip(f"not installed: {tool}")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    with lab("ethn", "10.233.0.0/24", tmp_path, "--nodes", "2") as cluster:
        (tmp_path / "eth.toml").write_text(SUITE)
        assert cluster.lab("fault", "node02", "--rate", "100mbit").status == 0
        done = cluster.hpcadmin("validate", "--suite", "/shared/eth.toml")
        assert done.status == 1, done.out + done.err        # the MTU is 1500
        assert "path_mtu 1500, expected 9000" in " ".join(done.out.split()), done.out
        run = cluster.last_run()
        found = [json.loads(line)["measurement"] for line in (run / "measurements.jsonl").read_text().splitlines()]
    rates = [m["value"] for m in found if m["name"] == "bandwidth"]
    lost = [m["value"] for m in found if m["name"] == "loss"]
    assert len(rates) == 2 and all(0.05 < rate < 0.1 for rate in rates), rates
    assert len(lost) == 2 and all(value < 5 for value in lost), lost
