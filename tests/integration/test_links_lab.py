"""Ports of simulated nodes that go bad are found and named, against the inventory from before."""

from __future__ import annotations

from pathlib import Path

import pytest
from labtool import lab

pytestmark = pytest.mark.lab
SUITE = 'title = "Ports"\n[[entry]]\ncheck = "ib_links"\n[[entry]]\ncheck = "subnet_manager"\nparams = { pause = 1 }\n'


def test_ports_that_are_down_or_slow_are_named(tmp_path: Path) -> None:
    with lab("links", "10.242.47.0/24", tmp_path, "--nodes", "2", "--hardware", "8xH100") as cluster:
        (tmp_path / "ports.toml").write_text(SUITE)
        done = cluster.hpcadmin("discover", "-w", "node[01-02]")
        assert done.status == 0, done.err
        for node, port, fault in (("node01", "mlx5_6", "slow"), ("node02", "mlx5_3", "down")):
            done = cluster.lab("fault", node, "--port", port, fault)
            assert done.status == 0, done.err
        assert cluster.lab("fault", "node01", "--port", "mlx5_9", "down").status == 2
        done = cluster.hpcadmin("validate", "--suite", "/shared/ports.toml", "--json")
        assert done.status == 1, done.err
        found = [v for v in done.json()["verdicts"] if v["status"] != "PASS"]
        bad = {(v["check"], v["subject"]["nodes"][0], v["subject"].get("device", "")): v for v in found}
        assert set(bad) == {("ib_links", "node01", "mlx5_6/1"), ("ib_links", "node02", "mlx5_3/1")}
        assert "the inventory has it ACTIVE" in bad["ib_links", "node02", "mlx5_3/1"]["reason"]
