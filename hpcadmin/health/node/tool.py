"""Runs one tool: own session, time-out, bounded output; subprocess alone would cost as much as ten checks."""

import os
import select
import time

MYPY = False
if MYPY:
    import signal
    from typing import Callable
else:
    import _signal as signal  # signal makes enums of everything: 1 ms

MAX_OUTPUT = 4 << 20
# With the number of the error: what a child says that could not become the tool. That is no answer of the tool.
NOT_RUN = b"\0not run: "
GRACE_S = 0.3
PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")


class Ran:
    """What a tool left behind. status: exit status, 128 + signal, None if it had to be given up."""

    __slots__ = ("argv", "cut", "err", "out", "seconds", "status", "stuck")

    def __init__(self, argv: "list[str]", status: "int | None", out: bytes, err: bytes, *, cut: bool, seconds: float,
                 stuck: int = 0) -> None:
        self.argv, self.status, self.cut, self.seconds, self.stuck = argv, status, cut, seconds, stuck
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def find(name: str, folders: "tuple[str, ...]", root: str = "") -> "str | None":
    """Where the tool is; an absolute path is taken as it is."""
    if "/" in name and name[0] != "/":
        return None                             # of which folder?
    places = [root + name] if "/" in name else ["%s%s/%s" % (root, folder, name) for folder in folders]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return None


def environment(folders: "tuple[str, ...]") -> "dict[str, str]":
    """Little of ours: what a user or a job set must not change what a tool says."""
    env = {"PATH": ":".join(folders), "LC_ALL": "C", "HOME": "/", "TERM": "dumb"}
    for name in ("SLURM_CONF", "TZ"):
        if os.environ.get(name):
            env[name] = os.environ[name]
    return env


def run(program: str, argv: "list[str]", timeout_s: float, folders: "tuple[str, ...]" = PATH,
        started: "Callable[[int], None] | None" = None) -> Ran:
    """Runs it; started is told the process group as soon as there is one. OSError where it cannot be executed."""
    out_r, out_w = os.pipe()
    err_r, err_w = os.pipe()
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _become(program, argv, out_w, err_w, folders)
    os.close(out_w)
    os.close(err_w)
    if started:
        started(pid)
    kept = {out_r: bytearray(), err_r: bytearray()}
    try:
        status, cut = _collect(pid, kept, begun + timeout_s)
    finally:
        for fd in (out_r, err_r):
            os.close(fd)
    stuck = 0
    if status is None:
        stuck = 0 if _end(pid) else pid
    else:
        _kill_group(pid, signal.SIGKILL)  # what it left behind in its group
    if status == 127 and kept[err_r].startswith(NOT_RUN):
        number = int(kept[err_r][len(NOT_RUN):] or b"0")
        raise OSError(number, os.strerror(number))
    return Ran(argv, status, bytes(kept[out_r]), bytes(kept[err_r]), cut=cut,
               seconds=time.monotonic() - begun, stuck=stuck)


def _become(program: str, argv: "list[str]", out: int, err: int, folders: "tuple[str, ...]") -> None:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, target)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.chdir("/")
        os.execve(program, argv, environment(folders))  # noqa: S606 - no shell is what is wanted
    except OSError as exc:
        os.write(2, NOT_RUN + b"%d" % (exc.errno or 0))
    finally:
        os._exit(127)


def _collect(pid: int, kept: "dict[int, bytearray]", deadline: float) -> "tuple[int | None, bool]":
    """Reads until both ends are closed or the tool has ended (a grandchild may hold them open for ever)."""
    open_ends, cut, status = list(kept), False, None  # type: list[int], bool, int | None
    while True:
        left = deadline - time.monotonic()
        if left <= 0 and status is None:
            return None, cut
        ready = select.select(open_ends, [], [], min(left, 0.1) if status is None else 0)[0] if open_ends else []
        for fd in ready:
            piece = os.read(fd, 65536)
            if not piece:
                open_ends.remove(fd)
            elif len(kept[fd]) < MAX_OUTPUT:
                kept[fd] += piece
            else:
                cut = True
        if status is not None and not ready:
            return status, cut
        if status is None and (not ready or not open_ends):
            status = ended(pid)
            if status is not None and not open_ends:
                return status, cut
            if not open_ends:
                time.sleep(0.001)


def ended(pid: int) -> "int | None":
    """The exit status as a shell gives it, None as long as it runs."""
    try:
        done, word = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 127
    if not done:
        return None
    return os.WEXITSTATUS(word) if os.WIFEXITED(word) else 128 + os.WTERMSIG(word)


def _end(pid: int) -> bool:
    """Ends the tool's group; False if it does not go even so (in the kernel, uninterruptible)."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _kill_group(pid, number)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            if ended(pid) is not None:
                _kill_group(pid, signal.SIGKILL)
                return True
            time.sleep(0.005)
    return False


def _kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except OSError:
        return
