"""Starting a lab for integration tests, and running hpcadmin in it as its ordinary user would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
TOOLS = ("slurmctld", "slurmd", "munged", "sshd", "mpicc", "ip", "tc", "nsenter")


def require_lab() -> None:
    """Skip, with the reason, where no lab can be started."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    missing = [t for t in TOOLS if not (shutil.which(t) or Path("/usr/sbin", t).exists())]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not (BIN / "hpcadmin").exists():
        pytest.skip("hpcadmin is not installed beside this Python")


@dataclass
class Done:
    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Lab:
    name: str
    net: str
    shared: Path

    def up(self, *args: str) -> None:
        done = self.lab("up", "--net", self.net, "--shared", str(self.shared), *args)
        assert done.status == 0, done.err

    def lab(self, verb: str, *args: str) -> Done:
        return run([str(BIN / "hpcadmin"), "lab", verb, "--name", self.name, *args])

    def sh(self, *argv: str, timeout: float = 300) -> Done:
        """A command on the head node, as the ordinary user, in its home."""
        return run([str(BIN / "hpcadmin"), "lab", "exec", "--name", self.name, "--", *argv], timeout)

    def hpcadmin(self, *argv: str, timeout: float = 300) -> Done:
        return self.sh(str(BIN / "hpcadmin"), *argv, timeout=timeout)

    @property
    def home(self) -> Path:
        return self.shared / "home" / "hpc"

    def last_run(self) -> Path:
        return max((self.home / "hpcadmin" / "runs").iterdir(), key=lambda p: p.stat().st_mtime)


def run(argv: list[str], timeout: float = 300) -> Done:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def lab(name: str, net: str, shared: Path, *args: str) -> Iterator[Lab]:
    """A lab that is up inside the block and gone after it, whatever happens."""
    require_lab()
    made = Lab(name, net, shared)
    made.lab("down")
    try:
        made.up(*args)
        yield made
    finally:
        made.lab("down")
