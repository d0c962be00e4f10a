"""Which Slurm can be asked: the machine's own, or one in a folder with a system of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from hpcadmin.errors import SlurmError
from hpcadmin.lab.enter import tool
from hpcadmin.proof.parts import Slurm

_DAEMONS = ("slurmctld", "slurmd")
_TOOLS = ("munged", "sinfo", "scontrol")
_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin", "usr/local/sbin", "usr/local/bin", "opt/slurm/sbin", "opt/slurm/bin")
_VERSION = re.compile(r"slurm\S{0,20} (\d{2})\.(\d{2})(\S{0,40})")


def find(root: str = "") -> Slurm:
    """The Slurm in `root` ("": this machine's). Raises SlurmError with what is missing, in one line."""
    where = f"in {root}" if root else "on this machine"
    if os.geteuid() != 0:
        raise SlurmError("Slurm's daemons can be asked by root only: they get namespaces and device nodes of their own",
                         hint="run it with sudo")
    if root and not (Path(root) / "usr").is_dir():
        raise SlurmError("is no folder with a system in it", where=root,
                         hint="made by debootstrap, with slurmctld, slurmd, slurm-client and munge")
    base = Path(root or "/").resolve()
    missing = [name for name in (*_DAEMONS, *_TOOLS) if _look(base, name) is None]
    missing += [name for name in ("unshare", "ip") if not tool(name)]
    if missing:
        raise SlurmError(f"Slurm cannot be asked: {', '.join(missing)} not installed {where}",
                         hint="packages slurmctld, slurmd, slurm-client, munge, iproute2, util-linux")
    daemon = _look(base, "slurmctld")
    sbin = f"/{daemon.parent.relative_to(base)}" if daemon else "/usr/sbin"
    text = _version(base, f"{sbin}/slurmctld")
    match = _VERSION.search(text)
    if not match:
        raise SlurmError(f"slurmctld -V {where} tells no version: {text[:100] or 'no output'}")
    return Slurm((int(match[1]), int(match[2])), f"{match[1]}.{match[2]}{match[3]}", str(base) if root else "", sbin)


def _look(base: Path, name: str) -> Path | None:
    if base == Path("/"):
        found = shutil.which(name, path=f"/usr/local/sbin:/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}")
        return Path(found) if found else None
    return next((base / folder / name for folder in _FOLDERS if os.path.lexists(base / folder / name)), None)


def _version(base: Path, program: str) -> str:
    argv = [program, "-V"] if base == Path("/") else [tool("chroot") or "chroot", str(base), program, "-V"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=20, check=False,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return (done.stdout + done.stderr).strip()
