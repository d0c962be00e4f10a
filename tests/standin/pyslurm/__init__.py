"""Stands in for pyslurm: answers from the sample that PYSLURM_STANDIN names, and fails as told there."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_TOLD = json.loads(Path(os.environ["PYSLURM_STANDIN"]).read_text(encoding="utf-8"))
_FAULT = _TOLD["fault"]
_SAMPLE = json.loads(Path(_TOLD["sample"]).read_text(encoding="utf-8"))["pyslurm"]
_LOG = Path(os.environ["PYSLURM_STANDIN"] + ".calls")

__version__ = "24.11.0" if _FAULT == "other version" else _SAMPLE["version"]


def _die() -> None:
    os.write(2, b"some warning\nfatal: Could not establish a configuration source\n")
    os._exit(1)


def _rubbish() -> None:
    for number in range(3, 20):
        try:
            os.write(number, b"Segmentation fault {\n")
        except OSError:
            continue


class RPCError(Exception):
    def __init__(self, errno: int, msg: str) -> None:
        super().__init__(msg)
        self.errno = errno


class _Record:
    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def cancel(self) -> None:
        _called(f"cancel {self.id}")
        if _FAULT == "stale errno":
            raise RPCError(11, "Resource temporarily unavailable")


def _called(what: str) -> None:
    with _LOG.open("a") as stream:
        stream.write(what + "\n")
    if _FAULT == "dies" or (_FAULT == "dies once" and len(_LOG.read_text().splitlines()) == 1):
        _die()
    if _FAULT == "hangs" or (_FAULT == "hangs once" and len(_LOG.read_text().splitlines()) == 1):
        time.sleep(60)
    if _FAULT == "prints":
        print("slurm_load: rubbish", flush=True)
    if _FAULT == "rubbish":
        _rubbish()
    if _FAULT == "raises":
        raise ValueError("invalid literal for int() with base 10: '4K'")
    if _FAULT == "refuses":
        raise RPCError(1, "Unable to contact slurm controller (connect failure)")


class _Collection:
    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def values(self) -> Any:
        return iter(self._records)


def _job(fields: dict[str, Any]) -> _Record:
    return _Record({**fields, "user_id": os.getuid() if fields["user_id"] == "own" else fields["user_id"]})


class Nodes:
    @staticmethod
    def load() -> _Collection:
        _called("nodes")
        return _Collection([_Record(fields) for fields in _SAMPLE["nodes"]])


class Partitions:
    @staticmethod
    def load() -> _Collection:
        _called("partitions")
        return _Collection([_Record(fields) for fields in _SAMPLE["partitions"]])


class Jobs:
    @staticmethod
    def load() -> _Collection:
        _called("jobs")
        return _Collection([_job(fields) for fields in _SAMPLE["jobs"]])


class Job:
    def __new__(cls, job_id: int) -> Any:
        return _Record({"id": job_id})

    @staticmethod
    def load(job_id: int) -> _Record:
        _called(f"job {job_id}")
        for fields in _SAMPLE["jobs"]:
            if fields["id"] == job_id:
                return _job(fields)
        raise RPCError(2017, "Invalid job id specified")


class slurmctld:  # noqa: N801  (a module in pyslurm)
    class Config:
        version: Any = None

        @staticmethod
        def load() -> _Record:
            if _FAULT in ("no controller", "other version"):
                raise RPCError(1, "Unable to contact slurm controller (connect failure)")
            return _Record({"version": _SAMPLE["slurm"]})


if _FAULT == "dies at import":
    _die()
if _FAULT == "hangs at import":
    time.sleep(60)
if _FAULT == "prints":
    sys.stdout.write("Welcome to pyslurm!\n")
if _FAULT == "rubbish at import":
    _rubbish()
if _FAULT == "cannot be imported":
    raise ImportError("libslurm.so.45: cannot open shared object file: No such file or directory")
if _FAULT == "too old":
    del Nodes
if _FAULT == "cannot tell":
    del slurmctld
