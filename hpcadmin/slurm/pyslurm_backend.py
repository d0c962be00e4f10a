"""Slurm through pyslurm in a child process. What pyslurm cannot do, and all once it has failed, the commands do."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcadmin.slurm.client import Client, Partition, SlurmNode, version_tuple
from hpcadmin.slurm.command_line import TIMEOUT_S, clean_environment
from hpcadmin.slurm.states import Job, node_state
from hpcadmin.text import printable

CHILD = Path(__file__).with_name("pyslurm_child.py")
MAX_ANSWER = 64 * 1024 * 1024
MAX_WORDS = 4096
PIECE = 65536
START_S = 20.0                              # for the import and the first answer of slurmctld


@dataclass(frozen=True)
class Pyslurm:
    """Where pyslurm is installed, and how it is called."""

    folder: Path                            # what holds the folder pyslurm
    python: str = sys.executable
    timeout_s: float = TIMEOUT_S


class _ChildError(Exception):
    """The child can be asked no more. lasting: a new one would do no better."""

    def __init__(self, why: str, *, hung: bool = False, lasting: bool = False) -> None:
        super().__init__(why)
        self.hung = hung
        self.lasting = lasting


class _RefusedError(Exception):
    """Slurm refused: the command says it better."""


class PyslurmBackend:
    """The back end pyslurm. `commands` does what pyslurm does not offer, repeats what Slurm refused so that the error
    is the same on both, and takes over with one line of warning when a second child has failed too."""

    def __init__(self, commands: Client, pyslurm: Pyslurm, warn: Callable[[str], None],
                 environment: Mapping[str, str] | None = None) -> None:
        self._commands = commands
        self._pyslurm = pyslurm
        self._warn = warn
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._child: _Child | None = None
        self._version = ""
        self._failures = 0
        self._over = False

    def start(self) -> bool:
        """Whether pyslurm works here and fits the cluster; if not, the warning has been given."""
        return self._ask("") is not None

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    # --- the interface --------------------------------------------------------------------------------------------

    def version(self) -> str:
        return self._version or self._commands.version()

    def nodes(self) -> tuple[SlurmNode, ...]:
        found = self._records("nodes", _node)
        return self._commands.nodes() if found is None else tuple(found)

    def partitions(self) -> tuple[Partition, ...]:
        found = self._records("partitions", _partition)
        return self._commands.partitions() if found is None else tuple(found)

    def topology(self) -> bool:
        return self._commands.topology()            # pyslurm has no call for it

    def topology_text(self) -> str:
        return self._commands.topology_text()

    def starts_containers(self) -> bool:
        return self._commands.starts_containers()

    def submit(self, script: Path, *, comment: str) -> int:
        """Through sbatch: pyslurm reads another language than sbatch in #SBATCH lines (no quotes, no = or # in values,
        --partition fails), cannot say --mem=0, and passes on neither limits nor umask."""
        return self._commands.submit(script, comment=comment)

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        if not ids:
            return {}
        found = self._records("jobs", _job, ids=list(ids))
        if found is None:
            return self._commands.jobs(ids)
        known = {job.id: job for job in found}
        gone = [number for number in ids if number not in known]
        known.update(self._commands.jobs(gone))     # accounting may have them
        return {number: known[number] for number in ids}

    def find(self, comment: str) -> tuple[Job, ...]:
        found = self._records("find", _job, comment=comment)
        return self._commands.find(comment) if found is None else tuple(found)

    def cancel(self, ids: Sequence[int]) -> None:
        # pyslurm takes an errno that an earlier call left for a refusal: scancel decides then, twice does no harm.
        if ids and self._ask("cancel", ids=list(ids)) is None:
            self._commands.cancel(ids)

    # --- the child ------------------------------------------------------------------------------------------------

    def _records(self, call: str, make: Callable[[Mapping[str, Any]], Any], **arguments: Any) -> list[Any] | None:
        value = self._ask(call, **arguments)
        if value is None:
            return None
        try:
            return [make(item) for item in value]
        except (TypeError, KeyError, ValueError) as exc:
            self._failed(_ChildError(f"its answer to {call} cannot be read ({type(exc).__name__}: {exc})",
                                     lasting=True))
            return None

    def _ask(self, call: str, **arguments: Any) -> Any | None:
        """The child's answer (of "" only that it is there); None: the commands are to do it."""
        while not self._over:
            try:
                if self._child is None:
                    self._child = _Child(self._pyslurm, self._environment)
                    self._greet(self._child)
                return self._child.ask(call, arguments, self._pyslurm.timeout_s) if call else True
            except _RefusedError:
                return None
            except _ChildError as exc:
                self._failed(exc)
                if exc.hung:                    # one call does not wait twice; the next one gets a new child
                    return None
        return None

    def _greet(self, child: _Child) -> None:
        """Raises _ChildError unless the child's pyslurm is of the cluster's version."""
        try:
            versions = child.ask("hello", {}, min(START_S, self._pyslurm.timeout_s))
        except _ChildError as exc:
            exc.lasting = exc.lasting or exc.hung           # at the start, nothing is lost by not waiting again
            raise
        own, cluster = str(versions["pyslurm"]), str(versions["slurm"]) or self._commands.version()
        if version_tuple(own)[:2] != version_tuple(cluster)[:2] or not version_tuple(own):
            raise _ChildError(f"pyslurm {printable(own, limit=40)} does not fit Slurm {printable(cluster, limit=40)}",
                              lasting=True)
        if versions["problem"]:
            raise _ChildError(f"it cannot ask slurmctld: {printable(versions['problem'])}", lasting=True)
        self._version = cluster

    def _failed(self, why: _ChildError) -> None:
        self.close()
        self._failures += 1
        if why.lasting or self._failures > 1:
            self._give_up(str(why))

    def _give_up(self, why: str) -> None:
        if not self._over:
            self._over = True
            self._warn(f"pyslurm is not used, Slurm's commands are: {printable(why, limit=300)}")
        self.close()


class _Child:
    """A process of pyslurm_child.py: requests and answers with numbers, each answer bounded in size and time."""

    def __init__(self, pyslurm: Pyslurm, environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                [pyslurm.python, "-I", str(CHILD), str(pyslurm.folder)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=dict(environment), cwd="/",
                start_new_session=True)     # Ctrl-C is for us
        except OSError as exc:
            raise _ChildError(f"{pyslurm.python} cannot be started: {exc.strerror}", lasting=True) from exc
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._number = 0
        self._out = bytearray()
        self._words = b""

    def end(self) -> None:
        self._finalizer()

    def ask(self, call: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        self._number += 1
        request = {"id": self._number, "call": call, "arguments": arguments, "timeout_s": timeout_s}
        end = time.monotonic() + timeout_s
        try:
            heard = self._say(json.dumps(request).encode() + b"\n", end)
        except OSError:
            raise self._died(call) from None
        while True:
            line = self._line(call, end) if heard else None
            if line is None:
                raise _ChildError(f"it did not answer {call} within {timeout_s:g} s", hung=True)
            try:
                answer = json.loads(line)
                number = answer["id"]
            except (ValueError, TypeError, KeyError, RecursionError):
                shown = printable(line[:80].decode("utf-8", "replace"))
                raise _ChildError(f"printed {shown!r} instead of an answer to {call}") from None
            if number == self._number:          # not of an earlier call that Ctrl-C ended
                return _value(answer, call)

    def _say(self, request: bytes, end: float) -> bool:
        """Whether the child took the request before `end`: a long one does not fit into the pipe."""
        assert self._process.stdin is not None  # noqa: S101
        number = self._process.stdin.fileno()
        while request:
            _, ready, _ = select.select([], [number], [], max(0.0, end - time.monotonic()))
            if not ready:
                return False
            request = request[os.write(number, request[:select.PIPE_BUF]):]
        return True

    def _line(self, call: str, end: float) -> bytes | None:
        """The next line of the child; None: it did not end before `end`."""
        out, err = self._process.stdout, self._process.stderr
        assert out is not None and err is not None  # noqa: S101
        streams = [out, err]
        place = self._out.find(b"\n")
        while place < 0:
            ready, _, _ = select.select(streams, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            if err in ready:
                piece = os.read(err.fileno(), PIECE)
                self._words = (self._words + piece)[-MAX_WORDS:]
                if not piece:
                    streams.remove(err)
            if out in ready:
                piece = os.read(out.fileno(), PIECE)
                if not piece:
                    raise self._died(call)
                found = piece.find(b"\n")
                place = len(self._out) + found if found >= 0 else -1
                self._out += piece
                if len(self._out) > MAX_ANSWER:
                    raise _ChildError(f"its answer to {call} is longer than {MAX_ANSWER >> 20} MiB", lasting=True)
        line = bytes(self._out[:place])
        del self._out[:place + 1]
        return line

    def _died(self, call: str) -> _ChildError:
        """How the process ended, and its last words."""
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            return _ChildError(f"it closed its output during {call}")
        stream = self._process.stderr
        while stream is not None and select.select([stream], [], [], 0)[0]:
            piece = os.read(stream.fileno(), PIECE)
            self._words = (self._words + piece)[-MAX_WORDS:]
            if not piece:
                break
        words = [line.strip() for line in self._words.decode("utf-8", "replace").splitlines() if line.strip()]
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        return _ChildError(f"its process ended {how} during {call}: {words[-1] if words else 'it said nothing'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _value(answer: Mapping[str, Any], call: str) -> Any:
    if answer.get("refused"):
        raise _RefusedError(str(answer["error"]))
    if "error" in answer:
        where = "" if call == "hello" else f" in {call}"
        raise _ChildError(f"{answer['error']}{where}", lasting=True)
    if answer.get("value") is None:
        raise _ChildError(f"it gave no value for {call}", lasting=True)
    return answer["value"]


# --- answers as records ---------------------------------------------------------------------------------------------


def _node(item: Mapping[str, Any]) -> SlurmNode:
    return SlurmNode(name=_text(item["name"]), state=node_state(_text(item["state"])), hostname=_text(item["hostname"]),
                     partitions=tuple(_text(p) for p in item["partitions"]), reason=_text(item["reason"]).strip(),
                     gres=_text(item["gres"]), cpus=_number(item["cpus"]), memory_mib=_number(item["memory_mib"]))


def _partition(item: Mapping[str, Any]) -> Partition:
    return Partition(name=_text(item["name"]), state=_text(item["state"]), default=bool(item["default"]),
                     max_time_min=_number(item["max_time_min"]), whole_nodes=bool(item["whole_nodes"]))


def _job(item: Mapping[str, Any]) -> Job:
    number = _number(item["id"])
    if number is None:
        raise ValueError("a job without an id")
    return Job(number, state=_text(item["state"]), reason=_text(item["reason"]), nodes=_text(item["nodes"]),
               comment=_text(item["comment"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text belongs")
    return value


def _number(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{type(value).__name__} where a number belongs")
    return value
