"""The nodes' health over a real ssh: told, noisy, hanging, endless, with a key that is not known."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from test_remote_ssh import Server, pytestmark, server  # noqa: F401  (the fixture, and when it is skipped)

from hpcadmin.remote.ssh import SshRemote
from hpcadmin.sweep.sources import Looks
from hpcadmin.sweep.ways import SshHealth

TOP = Path(__file__).resolve().parents[1]


def looks(server: Server, tmp_path: Path, account: str, *names: str, known: str = "known") -> Looks:  # noqa: F811
    command = ("env", f"PYTHONPATH={TOP}", sys.executable, "-m", "hpcadmin.health.node", "--json", "-", "--state",
               str(tmp_path / "state"), "--node", "{node}", "load")
    settings = server.config(account=account, known=known)
    limit_s = 3 if account == "hang" else 60
    return SshHealth(lambda: SshRemote(settings), command, 4, limit_s, 1).looks(names, time.time())


@pytest.mark.parametrize("account", ["good", "noisy", "loud"])
def test_each_node_tells(server: Server, tmp_path: Path, account: str) -> None:  # noqa: F811
    found = looks(server, tmp_path, account, "n1", "n2")
    assert ({look.node for look in found.looks}, found.unmeasured) == ({"n1", "n2"}, {})


@pytest.mark.parametrize(("account", "why"), [
    ("hang", "did not end within 3 s"), ("endless", "printed more than"), ("refuse", "This account is not available")])
def test_what_is_not_told_is_unknown(server: Server, tmp_path: Path, account: str, why: str) -> None:  # noqa: F811
    found = looks(server, tmp_path, account, "n1")
    assert found.looks == ()
    assert why in found.unmeasured["n1"]


def test_a_host_that_is_not_known_is_not_asked(server: Server, tmp_path: Path) -> None:  # noqa: F811
    found = looks(server, tmp_path, "good", "n1", known="none")
    assert "host key is not known" in found.unmeasured["n1"]
