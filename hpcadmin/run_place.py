"""Where a job's files lie: in the run folder, which its nodes share, or on each node, from where they are brought."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.hosts import fold
from hpcadmin.run_carry import Carrier
from hpcadmin.run_kept import is_there, read_mark
from hpcadmin.slurm.command_line import clean_environment
from hpcadmin.slurm.script import MARK, JobOptions, away_dir, in_two, packed
from hpcadmin.slurm.srun_words import never_started
from hpcadmin.slurm.states import Job
from hpcadmin.text import plural, printable

HICCUP_S = 60.0         # that a file server may be away
ASK_S = 90.0            # that nodes get to say whether they see the folder
MOST_SIZES = 4 * 1024 * 1024
_HICCUPS = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EREMOTEIO)
# The script's own exit status where it does not see its folder; what slurmd makes of a file that it cannot open.
_NOT_SEEN = ("73:0", "0:53")
REQUEUED_EXIT = "75:0"
_SEES = """got=''; { read -r got <"$1"; } 2>/dev/null
[ "$got" = "$2" ] && got=yes || got=no; echo "sees $SLURMD_NODENAME $got"
"""
SHARE = ('[run] dir in site.toml, or --run-dir, names a folder that all nodes share and this user may write; where '
         'there is none: [run] collect = "step"')


class Place:
    """The files of one job."""

    def __init__(self, folder: Path, options: JobOptions, nodes: Sequence[str], count: int,
                 say: Callable[[str], None]) -> None:
        self.folder, self.options, self.nodes, self.count, self._say = folder, options, tuple(nodes), count, say
        self._carrier: Carrier | None = None
        self._away_since: float | None = None

    @property
    def away(self) -> bool:
        return bool(self.options.node_dir)

    def write(self, render: Callable[[str], str]) -> None:
        """The script, and then what its nodes know it by. render: the text for a token."""
        token = secrets.token_hex(16)
        text = render(token)
        if self.away:
            text = packed(text, self.options.node_dir)
        else:
            text, body = in_two(text, self.folder / "script.body")
            if body:
                write_atomic(self.folder / "script.body", body, mode=0o700)
        write_atomic(self.folder / "script", text, mode=0o700)
        write_atomic(self.folder / MARK, f"{token}\n")

    # --- outputs that must be brought ---------------------------------------------------------------------------

    def attach(self, job: int) -> None:
        """The job runs: begin to bring its outputs, where they do not come by themselves."""
        if not self.away:
            return
        if self._carrier is None:
            token = read_mark(self.folder / MARK).strip()
            if not re.fullmatch(r"[0-9a-f]{32}", token):
                return
            place = away_dir(self.options.node_dir, token)
            self._carrier = Carrier(self.folder, place, self.nodes, self.count, self._say)
        self._carrier.attach(job)

    @property
    def may_come(self) -> bool:
        """Whether there may be more of a job that is over."""
        return not self.away or (self._carrier is not None and self._carrier.attached)

    def pump(self) -> bool:
        return self._carrier is not None and self._carrier.pump()

    def close(self) -> None:
        if self._carrier is not None:
            self._carrier.close()

    # --- what the folder has ------------------------------------------------------------------------------------

    def logs(self, damaged: dict[str, str]) -> dict[str, int]:
        """Log -> its size. What is no regular file of one name goes into `damaged`. Raises StoreError when the folder
        cannot be read; a file server may be away for a while."""
        wanted = {"driver.log", *(f"{node}.log" for node in self.nodes)}
        found: dict[str, int] = {}
        try:
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        if entry.name in wanted:
                            info = entry.stat(follow_symlinks=False)
                            found[entry.name] = info.st_size
                            if problem := _odd(info):
                                damaged.setdefault(entry.name, problem)
            finally:
                os.close(fd)
        except OSError as exc:
            self._hiccup(exc)
            return {}
        self._away_since = None
        return dict(sorted(found.items()))

    def _hiccup(self, exc: OSError) -> None:
        now = time.monotonic()
        self._away_since = self._away_since or now
        if exc.errno not in _HICCUPS or now - self._away_since > HICCUP_S:
            raise StoreError(f"cannot be read: {exc.strerror}", where=str(self.folder)) from exc

    def sizes(self) -> dict[str, int]:
        """How long the logs are as those said who wrote them, once the job is done: a file server may show less."""
        try:
            text = read_bounded(self.folder / "sizes", limit=MOST_SIZES).decode("ascii", "replace")
        except StoreError:
            return {}
        found = {}
        for line in text.splitlines():
            name, _, size = line.partition(" ")
            if name.endswith(".log") and re.fullmatch(r"[0-9]{1,12}", size):
                found[name] = int(size)
        return found

    def unseen(self, job: Job) -> str:
        """Why a job came to nothing that ended before its script began, where its folder is to blame; "" else."""
        if job.base != "FAILED" or is_there(self.folder / "claimed"):
            return ""
        if self.away:
            return f"ended before it began: is there room in {self.options.node_dir} on {self._first}, for this user?"
        blind = self._ask() if self.nodes else None
        if blind is None:
            blind = [self._first] if job.exit_code in _NOT_SEEN else []
        verb = "does" if len(blind) == 1 else "do"
        return f"found that {fold(blind)} {verb} not see the run folder {self.folder}" if blind else ""

    @property
    def _first(self) -> str:
        return self.nodes[0] if self.nodes else "its node"

    def _ask(self) -> list[str] | None:
        """Which of the nodes do not see what we see; None when they cannot be asked."""
        token, count, o = read_mark(self.folder / MARK).strip(), len(self.nodes), self.options
        chosen = {"partition": o.partition, "account": o.account, "qos": o.qos, "reservation": o.reservation}
        argv = ["srun", "--immediate=30", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--chdir=/", "-t",
                "2", f"--job-name={o.name}", f"--comment={o.comment}", *(f"--{k}={v}" for k, v in chosen.items() if v),
                "-N", str(count), "-n", str(count), "--ntasks-per-node=1", "-w", fold(self.nodes), "sh", "-c", _SEES,
                "sh", str(self.folder / MARK), token]
        self._say(f"asking {plural(count, 'node')} whether they see {self.folder}")
        try:
            done = subprocess.run(argv, env=clean_environment(os.environ), stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=ASK_S, check=False, cwd="/")
        except (OSError, subprocess.TimeoutExpired):
            return None
        said = dict(re.findall(r"^sees (\S+) (yes|no)$", done.stdout.decode("ascii", "replace"), re.MULTILINE))
        return [node for node in self.nodes if said.get(node) == "no"] if said else None

    # --- words --------------------------------------------------------------------------------------------------

    def script_words(self) -> str:
        """What a batch script that failed had to say."""
        try:
            text = read_bounded(self.folder / "slurm.out", limit=65536).decode("utf-8", "replace")
        except StoreError:
            return self._not_brought() if self.away else (
                "; it left no slurm.out: is the run folder shared with the node, for this user?")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {printable(lines[0], limit=200)}" if lines else ""

    def step_words(self, node: str) -> str:
        """What was said about steps that left nothing, that of this node first."""
        try:
            text = read_bounded(self.folder / "srun.out", limit=65536).decode("utf-8", "replace")
        except StoreError:
            return self._not_brought() or ": the step was never started, or its node did not answer"
        lines = text.splitlines()
        own = [line.removeprefix("hpcadmin: ") for line in lines if line.startswith(f"hpcadmin: {node} ")]
        errors = [line for line in lines if "error" in line.lower()]
        told = [*own, *errors]
        hint = f" ({SHARE})" if own and "does not see the run folder" in own[0] and not self.away else ""
        return f": {printable(told[0], limit=300)}{hint}" if told else ": the node did not answer in time"

    def never_started(self) -> bool:
        """Whether steps were not begun because of the controller."""
        with contextlib.suppress(StoreError):
            return never_started(read_bounded(self.folder / "srun.out", limit=MOST_SIZES).decode("utf-8", "replace"))
        return False

    def _not_brought(self) -> str:
        if not self.away:
            return ""
        said = self._carrier.problem() if self._carrier is not None else ""
        return f": what the nodes have was not brought here{': ' + said if said else ''}"


def _odd(info: os.stat_result) -> str:
    """Why this is no log that a node wrote; "" when it is one."""
    if not stat.S_ISREG(info.st_mode):
        return "a link" if stat.S_ISLNK(info.st_mode) else "not a regular file"
    return "known by a second name (a hard link)" if info.st_nlink > 1 else ""


def behind(told: Mapping[str, int], seen: Mapping[str, int], damaged: Mapping[str, str]) -> list[str]:
    """Logs of which less is here than those said who wrote them."""
    return [name for name, size in told.items() if seen.get(name, 0) < size and name not in damaged]


def late_words(names: Sequence[str]) -> str:
    return f"waiting for {plural(len(names), 'log')} that the file server does not show whole yet: {names[0]}"
