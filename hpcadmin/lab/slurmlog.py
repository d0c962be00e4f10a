"""What a daemon of the lab complains about in its log."""

from __future__ import annotations

import re
from pathlib import Path

from hpcadmin.lab.journal import Host, Lab
from hpcadmin.text import printable

DAEMONS = {"head": ("slurmctld", "slurmdbd"), "node": ("slurmd",)}
_STAMP = re.compile(r"^(\[[^\]]*\]|slurm[a-z]*:)\s*")
# A cluster that has never run has no state to recover: slurmctld says so each time, and at level error.
_FIRST_START = re.compile(r"state file|Trying backup state|may be lost|Database settings not recommended")
TAIL_BYTES = 200_000


def fatal(lines: list[str]) -> str:
    """The last fatal line, with the error before it, which often is the one that names the cause; "" for none."""
    texts = [_STAMP.sub("", _STAMP.sub("", line)) for line in lines]
    places = [i for i, text in enumerate(texts) if text.startswith("fatal: ")]
    if not places:
        return ""
    before = [text for text in texts[: places[-1]] if text.startswith("error: ") and not _FIRST_START.search(text)]
    return f"{texts[places[-1]]} ({before[-1]})" if before else texts[places[-1]]


def errors(lines: list[str]) -> list[str]:
    """Error lines, each once, without what every first start says."""
    texts = [_STAMP.sub("", _STAMP.sub("", line)) for line in lines]
    return list(dict.fromkeys(t for t in texts if t.startswith("error: ") and not _FIRST_START.search(t)))


def last_errors(lab: Lab, host: Host, daemon: str) -> str:
    """The last errors of a daemon that ended, in one line: the cause often comes before the last one."""
    return printable("; ".join(errors(log_lines(lab, host, daemon))[-3:]), limit=500)


def last_complaint(lab: Lab, host: Host, *, fatal_only: bool = False) -> str:
    """What a host's Slurm daemons say that went wrong, in one line; "" when they say nothing."""
    for daemon in DAEMONS[host.role]:
        lines = log_lines(lab, host, daemon)
        text = fatal(lines) or ("" if fatal_only else (errors(lines) or [""])[-1])
        if text:
            return printable(f"{daemon}: {text}", limit=500)
    return ""


def complaints(lab: Lab) -> list[str]:
    """All errors of all Slurm daemons since they started, equal ones of several hosts in one line."""
    from hpcadmin.hosts import fold  # noqa: PLC0415
    said: dict[str, list[str]] = {}
    for host in (lab.head, *lab.nodes):
        for daemon in DAEMONS[host.role]:
            for text in errors(log_lines(lab, host, daemon)):
                said.setdefault(printable(f"{daemon}: {text}", limit=500), []).append(host.name)
    return [f"{fold(hosts)}: {text}" for text, hosts in said.items()]


def log_lines(lab: Lab, host: Host, daemon: str) -> list[str]:
    try:
        with Path(lab.dir / "log" / host.name / f"slurm/{daemon}.out").open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
