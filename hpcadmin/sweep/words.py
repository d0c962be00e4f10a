"""What Slurm is told in a reason or a comment: text from nodes and tools made harmless, and the run's id."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEADER = "hpcadmin: "
MOST = 180
# No quotes, brackets, @, =, backslash, or anything that a shell, a hostlist or a reader of scontrol's text may take up.
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:/%+-_()#")


def harmless(text: str, limit: int = MOST) -> str:
    kept = "".join(c if c in _KEPT else " " for c in text[:limit * 8])
    out = " ".join(kept.split())
    return out if len(out) <= limit else out[:limit - 3].rstrip() + "..."


_ALIKE = re.compile(rf"{LEADER}.*\[s\d{{8}}-\d{{6}}-[0-9a-f]{{4}}\]", re.DOTALL)


def like_ours(reason: str) -> bool:
    """Whether it looks like one that a sweep has given; that it is ours only the ledger can tell."""
    return _ALIKE.match(reason) is not None


def reason_of(checks: Sequence[str], text: str, run: str) -> str:
    """hpcadmin: <check>: <short> [<run id>]"""
    end = f" [{harmless(run, 60)}]"
    more = f" (+{len(checks) - 1} more)" if len(checks) > 1 else ""
    head = f"{LEADER}{harmless(bare(checks[0]), 60)}: "
    return f"{head}{harmless(text, MOST - len(head) - len(more) - len(end)) or 'bad'}{more}{end}"


def bare(check: str) -> str:
    """mount:home for health/mount:home."""
    return check.partition("/")[2] or check
