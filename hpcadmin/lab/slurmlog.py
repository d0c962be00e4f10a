"""What a daemon of the lab complains about in its log."""

from __future__ import annotations

import re
from pathlib import Path

from hpcadmin.lab.journal import Host, Lab
from hpcadmin.text import printable

_OUTPUTS = ("slurm/slurmctld.out", "slurm/slurmd.out", "slurm/slurmdbd.out")
_STAMP = re.compile(r"^(\[[^\]]*\]|slurm[a-z]*:)\s*")
TAIL_BYTES = 200_000


def last_complaint(lab: Lab, host: Host, *, fatal_only: bool = False) -> str:
    """The last fatal line of the host's Slurm daemons, else the last error line; "" when there is none."""
    for wanted in ("fatal: ",) if fatal_only else ("fatal: ", "error: "):
        for name in _OUTPUTS:
            found = [line for line in tail(lab.dir / "log" / host.name / name) if wanted in line]
            if found:
                daemon = name.removeprefix("slurm/").removesuffix(".out")
                return printable(f"{daemon}: {_STAMP.sub('', _STAMP.sub('', found[-1]))}", limit=400)
    return ""


def tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
