"""The outputs of a job whose nodes share no folder, taken over by a step of the job while it runs.

Each node keeps what the job leaves in a private folder of its own. One srun, attached to the job from this host, runs
a small script on every node that says what is new there (slurm/carry.sh); that is put into the run folder, where it is
read as if the nodes had written it. Nothing that it says is trusted: a node may speak for itself only, names are those
of the plan, sizes are bounded, and what does not fit is told and left out.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.hosts import fold
from hpcadmin.run_kept import STOP
from hpcadmin.slurm.command_line import clean_environment
from hpcadmin.text import printable

MOST_BYTES = 256 * 1024 * 1024      # of one file
MOST_LINE = 2000
MOST_NEW = 8 * 1024 * 1024          # taken at one look
ALL_S = 20.0                        # that the other nodes may take to say the last of theirs, once the job is done
END_S = 10.0                        # that srun gets to end by itself
FOLDER_TURNS = 600                  # of 0.2 s, in which the job makes its folders
_AGENT = Path(__file__).with_name("slurm") / "carry.sh"
_LINE = re.compile(rb" *(\d{1,7}): ?(.*)")
_SHARED = frozenset({"driver.log", "srun.out", "slurm.out", "sizes", "claimed", "begun", "stopped"})


def argv_of(job: int, nodes: Sequence[str], count: int, folder: str) -> list[str]:
    """srun's words. nodes: () where Slurm has chosen them."""
    where = ["-w", fold(nodes)] if nodes else []
    return ["srun", f"--jobid={job}", "--overlap", "--label", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0",
            "--wait=0", "--no-kill", "--chdir=/", "--job-name=collect", "-N", str(count), "-n", str(count),
            "--ntasks-per-node=1", *where, "sh", "-c", _AGENT.read_text(encoding="utf-8"), "sh", folder,
            str(FOLDER_TURNS)]


@dataclass
class Stream:
    """What one task of the step says."""

    node: str = ""
    file: str = ""
    offset: int = 0
    all: bool = False


@dataclass
class Intake:
    """Lines of the step into files of a job's folder. nodes: who may speak; () for one that is not known before."""

    folder: Path
    nodes: frozenset[str]
    say: Callable[[str], None]
    streams: dict[int, Stream] = field(default_factory=dict)
    done: str = ""                      # what the job noted last; "": it goes on
    _sizes: dict[str, int] = field(default_factory=dict)
    _driver: int | None = None          # the task that speaks for the job as a whole
    _bad: set[int] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def line(self, line: bytes) -> None:
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) in self._bad:
            return
        number = int(match[1])
        stream = self.streams.setdefault(number, Stream())
        problem = self._data(stream, match[2][1:]) if match[2][:1] == b"+" else self._word(number, stream, match[2])
        if problem:
            self._bad.add(number)
            stream.file = ""
            self.tell(f"{stream.node or 'a node'}: {problem}: nothing more is taken from it")

    def tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            self.say(text)

    def again(self) -> None:
        """A new step says everything from the beginning; what is here already stays."""
        self.streams, self._bad, self._driver = {}, set(), None

    @property
    def everyone(self) -> bool:
        return bool(self.streams) and all(s.all for n, s in self.streams.items() if s.node and n not in self._bad)

    def _word(self, number: int, stream: Stream, raw: bytes) -> str:
        words = raw.decode("ascii", "replace").split(" ")
        if words[0] == "node" and len(words) == 2:
            return self._named(number, stream, words[1])
        if words == ["none"]:
            self.tell("a node has no folder of this job: it could not be made there")
            return ""
        if not stream.node:
            return ""
        if words[0] == "at" and len(words) == 3 and words[2].isdigit() and len(words[2]) < 13:
            return self._at(number, stream, words[1], int(words[2]))
        if words[0] == "done" and len(words) == 3 and number == self._driver:
            self.done = printable(" ".join(words[1:]), limit=100)
        if words == ["all"]:
            stream.all = True
        return ""

    def _named(self, number: int, stream: Stream, name: str) -> str:
        if stream.node or (self.nodes and name not in self.nodes) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", name):
            return f"says that it is {printable(name, limit=80)}"
        if any(s.node == name for s in self.streams.values()):
            return f"says that it is {name}, as another one does"
        stream.node = name
        return ""

    def _at(self, number: int, stream: Stream, name: str, offset: int) -> str:
        if name in _SHARED:
            if self._driver not in (None, number):
                return f"has a {name}, as the job's first node has"
            self._driver = number
        elif name != f"{stream.node}.log":
            return f"speaks of {printable(name, limit=80)}"
        if offset > self._size(name):
            return f"left out a part of {name}"
        stream.file, stream.offset = name, offset
        return ""

    def _data(self, stream: Stream, text: bytes) -> str:
        if not stream.file:
            return ""
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            return f"{stream.file} did not come whole"
        have = self._size(stream.file)
        new = data[max(0, have - stream.offset):]
        stream.offset += len(data)
        if have + len(new) > MOST_BYTES:
            return f"{stream.file} is larger than {MOST_BYTES >> 20} MiB"
        if new:
            append(self.folder / stream.file, new)
            self._sizes[stream.file] = have + len(new)
        return ""

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            try:
                found = (self.folder / name).lstat()
                self._sizes[name] = found.st_size if stat.S_ISREG(found.st_mode) else 0
            except FileNotFoundError:
                self._sizes[name] = 0
            except OSError as exc:
                raise StoreError(f"cannot be read: {exc.strerror}", where=str(self.folder / name)) from exc
        return self._sizes[name]


def append(path: Path, data: bytes) -> None:
    """At the end of a regular file. Raises StoreError in one line: disk full, a link."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            while data:
                data = data[os.write(fd, data):]
        finally:
            os.close(fd)
    except OSError as exc:
        raise StoreError(f"cannot be written: {exc.strerror}", where=str(path)) from exc


class Carrier:
    """The step of one job that brings its outputs. place: the job's folder on the nodes."""

    def __init__(self, folder: Path, place: str, nodes: Sequence[str], count: int, say: Callable[[str], None]) -> None:
        self.folder, self.place, self.nodes, self.count = folder, place, tuple(nodes), count
        self.intake = Intake(folder, frozenset(nodes), say)
        self._process: subprocess.Popen[bytes] | None = None
        self._rest, self._skip = b"", False
        self._stopped = False
        self._done_since: float | None = None

    @property
    def attached(self) -> bool:
        return self._process is not None

    @property
    def errors(self) -> Path:
        return self.folder / "collect.err"

    def attach(self, job: int) -> None:
        """Begin, or begin again when the last step has ended. Called while Slurm says that the job runs."""
        if self._process is not None or (self.folder / "done").exists():
            return
        self.intake.again()
        self._rest, self._skip, self._stopped = b"", False, False
        try:
            with self.errors.open("wb") as err:
                self._process = subprocess.Popen(
                    argv_of(job, self.nodes, self.count, self.place), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=err, env=clean_environment(os.environ), start_new_session=True, cwd="/")
        except OSError as exc:
            self.intake.tell(f"srun cannot be started: {exc.strerror}: the outputs of job {job} cannot be collected")
            return
        assert self._process.stdout is not None and self._process.stdin is not None  # noqa: S101
        os.set_blocking(self._process.stdout.fileno(), False)
        os.set_blocking(self._process.stdin.fileno(), False)

    def pump(self) -> bool:
        """Take what has come; whether there was anything."""
        if self._process is None:
            return False
        if not self._stopped and (self.folder / STOP).exists():
            self._stopped = self._tell(b"stop\n")
        taken, ended = 0, False
        while taken < MOST_NEW:
            data = self._read()
            if data is None:
                break
            ended = not data
            if ended:
                break
            taken += len(data)
            self._lines(data)
        if ended:
            self._reap()
        self._finished()
        return taken > 0

    def _read(self) -> bytes | None:
        assert self._process is not None and self._process.stdout is not None  # noqa: S101
        try:
            return os.read(self._process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return None

    def _lines(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._skip and lines:            # the end of a line that was too long: it could pass for another node's
            del lines[0]
            self._skip = False
        for line in lines:
            if len(line) <= MOST_LINE:
                self.intake.line(line)
        self._skip = self._skip or len(rest) > MOST_LINE
        self._rest = b"" if self._skip else rest

    def _finished(self) -> None:
        """The mark that ends the waiting is made once the other nodes have said all of theirs, or do not any more."""
        if not self.intake.done or (self.folder / "done").exists():
            return
        self._done_since = self._done_since or time.monotonic()
        if self.intake.everyone or self._process is None or time.monotonic() - self._done_since > ALL_S:
            write_atomic(self.folder / "done", f"{self.intake.done}\n")

    def _tell(self, word: bytes) -> bool:
        try:
            assert self._process is not None and self._process.stdin is not None  # noqa: S101
            return os.write(self._process.stdin.fileno(), word) == len(word)
        except OSError:
            return False

    def _reap(self) -> None:
        """The step has ended by itself."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def close(self) -> None:
        """No more is expected: the job may take its folders away, and srun ends."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None  # noqa: S101
            with contextlib.suppress(OSError):
                os.write(process.stdin.fileno(), b"end\n")
            os.set_blocking(process.stdout.fileno(), True)
            threading.Thread(target=_end, args=(process,), name="srun's end").start()

    def problem(self) -> str:
        """What srun had to say, "" when nothing."""
        try:
            text = read_bounded(self.errors, limit=65536).decode("utf-8", "replace")
        except StoreError:
            return ""
        lines = [line.strip() for line in text.splitlines() if "error" in line.lower()]
        return printable(lines[0], limit=200) if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input and wait until it has ended. What it still prints is thrown away: the job is done."""
    with contextlib.suppress(OSError, ValueError):
        if process.stdin:
            process.stdin.close()
    end = time.monotonic() + END_S
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if process.stdout and select.select([process.stdout], [], [], 0.1)[0]:
                os.read(process.stdout.fileno(), 1 << 16)
        time.sleep(0.01)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
