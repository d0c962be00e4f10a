"""Running a command on a lab host, by entering its namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcadmin.errors import LabError
from hpcadmin.lab.journal import Host, Lab, alive

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = ("TERM", "NO_COLOR", "COLUMNS", "LINES", "HPCADMIN_DEBUG")


def tool(name: str) -> str:
    """Where the machine has this program; root's PATH may lack the sbin folders. "" when it has none."""
    return shutil.which(name, path=f"{SYSTEM_PATH}:{os.environ.get('PATH', '')}") or ""


def enter_argv(host: Host, argv: Sequence[str], *, spaces: str = "CmuinpT") -> list[str]:
    """argv run in the namespaces of `host`: C(group) m(ount) u(ts) i(pc) n(et) p(id), T(ime) where the kernel has it.

    Raises LabError when the host is down.
    """
    if host.process is None or not alive(host.process):
        raise LabError(f"{host.name} is down", hint=f"hpcadmin lab fault {host.name} --heal")
    if not Path("/proc/self/ns/time").exists():
        spaces = spaces.replace("T", "")
    return [tool("nsenter"), "-t", str(host.process.pid), *(f"-{s}" for s in spaces), "--", *argv]


def exec_argv(lab: Lab, host_name: str, user: str, argv: Sequence[str],
              environment: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs argv on a host as root or as the lab's user, with a clean environment, in the home."""
    host = lab.host(host_name)
    if user not in ("root", lab.user):
        raise LabError(f"the lab has the users root and {lab.user}, not {user!r}")
    home = "/root" if user == "root" else f"/shared/home/{user}"
    clean = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": SYSTEM_PATH, "LANG": "C.UTF-8",
             **{k: v for k, v in (environment or {}).items() if k in PASSED_ON}}
    become = [] if user == "root" else [
        "setpriv", f"--reuid={lab.uid}", f"--regid={lab.uid}", "--init-groups"]
    inside = ["env", "-i", *(f"{k}={v}" for k, v in clean.items()), *become, "setpriv", "--pdeathsig", "TERM",
              "sh", "-c", 'cd "$HOME" && exec "$@"', "sh", *argv]
    return enter_argv(host, inside)


def run_on(lab: Lab, host: Host, argv: Sequence[str], *, timeout_s: float = 20.0,
           stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command of our own as root on a host; a time-out is an exit status of 124."""
    command = exec_argv(lab, host.name, "root", argv)
    try:
        return subprocess.run(command, input=stdin, text=True, errors="replace", capture_output=True, check=False,
                              timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {timeout_s:.0f} s")


def network_tool(host: Host, argv: Sequence[str], *, stdin: str = "") -> None:
    """The machine's `ip` or `tc` in a host's network namespace. Raises LabError with what it said."""
    done = subprocess.run(enter_argv(host, [tool(argv[0]), *argv[1:]], spaces="n"), input=stdin, text=True,
                          capture_output=True, check=False, timeout=20)
    if done.returncode != 0:
        said = next((line for line in done.stderr.splitlines() if line.strip()), "failed")
        raise LabError(f"{argv[0]}: {said.strip()}", where=host.name)
