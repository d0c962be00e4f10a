"""Folders that a configuration names: made in the proof's own root, never in the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_roots import NAMES, slurm

from hpcadmin.conf.existing.read import configure
from hpcadmin.proof.parts import Slurm
from hpcadmin.proof.prove import prove

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]


@pytest.mark.parametrize("suite", list(NAMES))
@pytest.mark.parametrize("place", ["/var/run", "/run", "/var/lock", "/var/spool", "/srv", "/usr/local"])
def test_folders_are_the_proof_s_own(suite: str, place: str) -> None:
    """/var/run and /var/lock are links, and a link of another root leads out of it."""
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    name = f"hpcadmin-test-{os.getpid()}"
    conf = configure({"slurm.conf": (
        f"ClusterName=c\nSlurmctldHost=h\nSlurmdSpoolDir={place}/{name}/d.%n\nStateSaveLocation={place}/{name}/ctld\n"
        f"SlurmctldPidFile={place}/{name}/ctld.pid\nSlurmdPidFile={place}/{name}/d.pid\n"
        f"SlurmctldLogFile={place}/{name}/ctld.log\n"
        "NodeName=n1 CPUs=4 Sockets=1 CoresPerSocket=4 RealMemory=100\nPartitionName=p Nodes=n1\n")})
    proof = prove(conf, "", None, slurm_root=found.root)
    assert not Path(place, name).exists()
    assert [answer.state for _, answer in proof.proven] == ["IDLE"], (proof.unproven, proof.findings)
