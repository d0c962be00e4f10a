"""The child process in which pyslurm is called: `python -I pyslurm_child.py FOLDER`. Nothing else imports pyslurm.

libslurm's fatal() ends the process that calls it, at the import already. One JSON text a line: a request comes on
stdin, its answer goes to what was stdout at the start. This file needs the standard library and pyslurm alone.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

MAX_REQUEST = 1 << 20
GRACE_S = 5                             # for the parent to end us first
INVALID_JOB_ID = 2017                   # ESLURM_INVALID_JOB_ID
NEEDED = ("Nodes", "Partitions", "Jobs", "Job", "RPCError")
NO_VAL = 0xFFFFFFFE                      # and INFINITE above it, should pyslurm let them through


class TooOldError(Exception):
    pass


def load() -> Any:
    pyslurm = importlib.import_module("pyslurm")
    missing = [name for name in NEEDED if not hasattr(pyslurm, name)]
    if missing:
        raise TooOldError(f"pyslurm {version_of(pyslurm)} is too old: it has no {missing[0]} (23.2.3 is the first)")
    return pyslurm


def version_of(pyslurm: Any) -> str:
    return text(getattr(pyslurm, "__version__", "")) or "of unknown version"


def hello(pyslurm: Any) -> dict[str, str]:
    """pyslurm's version, and slurmctld's where pyslurm can tell it. Versions that do not fit end in a refusal, too."""
    config: Any = getattr(getattr(pyslurm, "slurmctld", None), "Config", None)
    told = {"pyslurm": version_of(pyslurm), "slurm": "", "problem": ""}
    if hasattr(config, "version"):
        try:
            told["slurm"] = text(config.load().version)
        except pyslurm.RPCError as exc:
            told["problem"] = str(exc)
    return told


def nodes(pyslurm: Any) -> list[dict[str, Any]]:
    return [{
        "name": text(node.name), "state": text(node.state), "hostname": text(node.hostname),
        "partitions": [text(name) for name in node.partitions or ()], "reason": text(node.reason),
        "gres": ",".join(f"{name}:{count}" for name, count in (node.configured_gres or {}).items()),
        "cpus": number(node.total_cpus), "memory_mib": number(node.real_memory),
    } for node in values(pyslurm.Nodes.load())]


def partitions(pyslurm: Any) -> list[dict[str, Any]]:
    return [{
        "name": text(part.name), "state": text(part.state), "default": bool(part.is_default),
        "max_time_min": number(part.max_time), "whole_nodes": text(part.oversubscribe).upper() == "EXCLUSIVE",
    } for part in values(pyslurm.Partitions.load())]


def jobs(pyslurm: Any, ids: list[int]) -> list[dict[str, Any]]:
    """Those of the jobs that slurmctld knows. One is asked for alone: others may have a hundred thousand."""
    if len(ids) == 1:
        try:
            return [job_record(pyslurm.Job.load(ids[0]))]
        except pyslurm.RPCError as exc:
            if getattr(exc, "errno", None) == INVALID_JOB_ID:
                return []
            raise
    wanted = frozenset(ids)
    return [job_record(job) for job in values(pyslurm.Jobs.load()) if job.id in wanted]


def find(pyslurm: Any, comment: str) -> list[dict[str, Any]]:
    """The caller's own jobs. Elements of arrays are left out, as their ids are no numbers to squeue either."""
    own = [job for job in values(pyslurm.Jobs.load()) if job.user_id == os.getuid()]
    return [job_record(job) for job in own if not job.array_id and text(job.comment).startswith(comment)]


def cancel(pyslurm: Any, ids: list[int]) -> list[int]:
    for job_id in ids:
        pyslurm.Job(job_id).cancel()
    return ids


def job_record(job: Any) -> dict[str, Any]:
    # pyslurm takes the text None for nothing, which is what squeue prints for "no reason".
    return {"id": job.id, "state": text(job.state), "reason": text(job.state_reason) or "None",
            "nodes": text(job.allocated_nodes), "comment": text(job.comment)}


def values(found: Any) -> list[Any]:
    """Of a collection: a dict of dicts by cluster to its versions from 23.2.3, whose values() are the records."""
    return list(found.values())


def text(value: Any) -> str:
    return "" if value is None or value in ("(null)", "N/A") else str(value)


def number(value: Any) -> int | None:
    """None too for UNLIMITED, pyslurm's word for no limit."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NO_VAL else None


CALLS = {"hello": hello, "nodes": nodes, "partitions": partitions, "jobs": jobs, "find": find, "cancel": cancel}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The value, or what went wrong. refused: Slurm said no, which is not pyslurm's fault."""
    refusal: Any = ()
    try:
        pyslurm = load()
        refusal = pyslurm.RPCError
        return {"value": CALLS[request["call"]](pyslurm, **request.get("arguments", {}))}     # type: ignore[operator]
    except TooOldError as exc:
        return {"error": str(exc)}
    except refusal as exc:
        return {"error": str(exc), "refused": True}
    except Exception as exc:  # noqa: BLE001  (whatever pyslurm raises is an answer: the parent then does without it)
        return {"error": f"{type(exc).__name__}: {exc}"}


def main() -> None:
    for folder in sys.argv[1:]:
        sys.path.append(folder)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)                       # what pyslurm or libslurm print is no answer
    while True:
        line = sys.stdin.buffer.readline(MAX_REQUEST)
        if not line.endswith(b"\n"):
            return                      # the parent has ended
        request = json.loads(line)
        signal.alarm(int(request["timeout_s"]) + GRACE_S)       # never left behind by a parent that was killed
        result = {"id": request["id"], **answer(request)}
        signal.alarm(0)
        answers.write(json.dumps(result).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
