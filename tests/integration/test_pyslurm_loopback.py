"""The back end pyslurm against a real Slurm, beside the commands; where a pyslurm for the installed Slurm is there.

By hand: a Slurm and a pyslurm of one version in a folder, its bin and sbin first in PATH, and pytest by the Python that
has pyslurm, or with its site-packages in PYTHONPATH. test_validate_loopback.py then runs on pyslurm too, and
test_versions.py with HPCADMIN_LOOPBACK_BACKEND=pyslurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import slurm_scene
from loopback import Loopback, at_hand, loopback, wait_until
from slurm_scenes import NODES, ask, inside, odd

from hpcadmin.errors import SlurmError
from hpcadmin.site import Site, SlurmSite
from hpcadmin.slurm.choose import choose, installed
from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.pyslurm_backend import PyslurmBackend

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    if installed() is None:
        pytest.skip("no pyslurm here")
    folder = tmp_path_factory.mktemp("loop") / "slurm"
    with loopback(folder, len(NODES), settings=slurm_scene.settings(folder)) as running:
        yield running


@pytest.fixture
def client(cluster: Loopback, monkeypatch: pytest.MonkeyPatch) -> Iterator[PyslurmBackend]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.dir / "slurm.conf"))
    warnings: list[str] = []
    found = choose(Site(slurm=SlurmSite(backend="pyslurm")), warnings.append)
    if not isinstance(found, PyslurmBackend):
        pytest.skip(warnings[0])
    yield found
    found.close()
    assert warnings == []


def comparable(told: dict[str, Any]) -> dict[str, Any]:
    """Without the sockets of devices, which pyslurm does not tell, and the order of jobs."""
    nodes = [replace(node, gres=re.sub(r"\([^()]*\)", "", node.gres)) for node in told["nodes"]]
    return {**told, "nodes": nodes, "own": set(told["own"]), "found": set(told["found"]), "shown": None}


def test_the_same_records(cluster: Loopback, client: PyslurmBackend) -> None:
    ids = slurm_scene.play(cluster)
    commands = CommandLine()
    slurm_scene.scripts(cluster.dir / "scripts")
    try:
        with inside(cluster.dir / "scripts"):
            found, expected = ask(client, ids), ask(commands, ids)
        assert odd(found, ids) == []
        assert comparable(found) == comparable(expected)
    finally:
        slurm_scene.end(cluster)


def test_submit_and_cancel(cluster: Loopback, client: PyslurmBackend, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\n#SBATCH --comment="hpcadmin:S:1"\n#SBATCH --output=/dev/null\nsleep 300\n')
    number = client.submit(script, comment="hpcadmin:S:1")
    assert client.find("hpcadmin:S:1")[0].id == number
    client.cancel([number])
    client.cancel([number, 99999])
    wait_until(lambda: client.jobs([number])[number].over)
    assert client.jobs([number])[number].base == "CANCELLED"


def test_a_controller_that_does_not_answer_is_the_commands_error(cluster: Loopback, client: PyslurmBackend) -> None:
    cluster.kill("slurmctld")
    with pytest.raises(SlurmError, match="the Slurm controller does not answer"):
        client.nodes()
    cluster.start("slurmctld", "slurmctld", "-D")
    wait_until(lambda: "n01" in cluster.slurm("sinfo", "-h", "-N"))
    assert [node.name for node in client.nodes()] == list(NODES)


def test_a_pyslurm_of_another_version_is_told_in_one_line(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed() is None:
        pytest.skip("no pyslurm here")
    with loopback(tmp_path / "slurm", 1, slurm=at_hand("trixie")) as other:
        monkeypatch.setenv("SLURM_CONF", str(other.dir / "slurm.conf"))
        monkeypatch.setenv("PATH", other.env["PATH"])
        warnings: list[str] = []
        found = choose(Site(slurm=SlurmSite(backend="pyslurm")), warnings.append)
        assert isinstance(found, CommandLine)
        assert [node.name for node in found.nodes()] == ["n01"]
        (line,) = warnings
        assert re.fullmatch(r"pyslurm is not used, Slurm's commands are: pyslurm \S+ does not fit Slurm \S+", line)
