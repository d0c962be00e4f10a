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

    def signalled(self, number: int, condition: str, *argv: str) -> Done:
        """hpcadmin on the head, which gets this signal when the shell's condition holds there."""
        return self.sh(str(BIN / "python"), "-c", SIGNAL, str(number), condition, str(BIN / "hpcadmin"), *argv)

    @property
    def home(self) -> Path:
        return self.shared / "home" / "hpc"

    def last_run(self) -> Path:
        """Beside the runs there are files that come and go."""
        return max((self.home / "hpcadmin" / "runs").glob("2*"), key=lambda p: p.stat().st_mtime)


# Sends a signal to a command in a session of its own as soon as a shell's condition holds ($1 is its process id): to
# all of its processes, as a terminal does, or SIGKILL to it alone. Ends with its status, as a shell has it.
SIGNAL = """
import os, signal, subprocess, sys, time
number, condition, *argv = sys.argv[1:]
started = subprocess.Popen(argv, start_new_session=True)
end = time.monotonic() + 120
def holds():
    asked = ["sh", "-c", condition, "sh", str(started.pid)]
    return subprocess.run(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
while started.poll() is None and time.monotonic() < end and not holds():
    time.sleep(0.02)
if started.poll() is None:
    (os.kill if int(number) == signal.SIGKILL else os.killpg)(started.pid, int(number))
status = started.wait()
sys.exit(status if status >= 0 else 128 - status)
"""


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
