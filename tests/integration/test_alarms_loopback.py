"""The queue and the GPUs in use as a real Slurm tells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback import loopback, wait_until

from hpcadmin.slurm.queue_look import QueueLook

pytestmark = pytest.mark.lab


def test_queue_of_slurm(tmp_path: Path) -> None:
    with loopback(tmp_path, count=2) as cluster:
        cluster.wait_idle(2)
        node = sorted(cluster.nodes)[0]
        look = QueueLook(environment=cluster.env)
        assert look.queue().pending == 0
        cluster.slurm("sbatch", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 60")
        wait_until(lambda: look.queue().since)
        cluster.slurm("sbatch", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")
        cluster.slurm("sbatch", "-H", "-w", node, "-o", "/dev/null", "--wrap", "sleep 1")
        wait_until(lambda: look.queue().pending)
        found = look.queue()
        assert found.pending == 1 and set(found.since) == {node} and set(found.gpus) == set(cluster.nodes)
        cluster.slurm("scancel", "--me")
