"""Running the project's playbooks in tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PLAYBOOKS = TOP / "playbooks"
BIN = Path(sys.executable).parent


def program(name: str) -> str:
    """Beside this Python, or on PATH; the test is skipped where there is none."""
    found = shutil.which(name, path=f"{BIN}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip(f"not installed: {name}")
    return found


@dataclass(frozen=True)
class Played:
    """changed: host -> how many of its tasks changed something. failed: what went wrong there."""

    status: int
    text: str

    @property
    def changed(self) -> dict[str, int]:
        return self._recap("changed")

    @property
    def failed(self) -> dict[str, int]:
        return {host: self._recap("failed")[host] + bad for host, bad in self._recap("unreachable").items()}

    def _recap(self, what: str) -> dict[str, int]:
        found = re.findall(rf"^(\S+) +: ok=.*?\b{what}=(\d+)", self.text, re.MULTILINE)
        return {host: int(number) for host, number in found}


def play(folder: Path, inventory: str, name: str, *options: str, timeout: float = 120, **variables: object) -> Played:
    """ansible-playbook with nothing of this user's own settings."""
    (folder / "inventory.ini").write_text(inventory)
    (folder / "home").mkdir(exist_ok=True)
    (folder / "ansible.cfg").touch()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCADMIN_", "SLURM_"))}
    env = {**kept, "HOME": str(folder / "home"), "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
           "ANSIBLE_PIPELINING": "1", "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(
               [str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])]),
           "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=10s"}
    extra = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    # A socket's path has at most 108 characters, and a test's folder may have most of them.
    with tempfile.TemporaryDirectory(prefix="ssh-", dir="/tmp", ignore_cleanup_errors=True) as sockets:
        done = subprocess.run(
            [program("ansible-playbook"), "-i", str(folder / "inventory.ini"), str(PLAYBOOKS / name), *extra, *options],
            env={**env, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets}, cwd=folder, capture_output=True, text=True,
            timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    return Played(done.returncode, done.stdout + done.stderr)
