"""First processes of lab hosts: forked, put into new namespaces, and held until the journal knows them.

A child that is never told "go" ends by itself: when `up` dies before it wrote a process id down, nothing is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import LabError
from hpcadmin.lab import syscalls as sc
from hpcadmin.lab.journal import Process, identify
from hpcadmin.lab.rootfs import HostSpec, build_root, enter_boot

_SPACES = sc.CLONE_NEWNS | sc.CLONE_NEWUTS | sc.CLONE_NEWIPC | sc.CLONE_NEWPID | sc.CLONE_NEWNET
STATUS_FD = 3


@dataclass
class Child:
    name: str
    process: Process
    go: int
    status: int
    said: bytes = b""

    def release(self) -> None:
        """Let the child set itself up. Call only after its process is in the journal."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.go, b"g")
        os.close(self.go)
        self.go = -1

    def close(self) -> None:
        for fd in (self.go, self.status):
            if fd >= 0:
                os.close(fd)
        self.go = self.status = -1


def spawn(name: str, main: Callable[[], None], log: str = os.devnull) -> Child:
    """A held child in new namespaces that will run `main` (which should end in an exec) as process 1 of them."""
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    middle = os.fork()
    if middle == 0:
        _middle(main, log, go_read, status_write)
    os.close(go_read)
    os.close(status_write)
    os.waitpid(middle, 0)
    said = _read_line(status_read)
    child = None
    if said.startswith("pid "):
        process = identify(int(said[4:]))
        if process:
            child = Child(name, process, go_write, status_read)
    if child is None:
        os.close(go_write)
        os.close(status_read)
        raise LabError(f"{name} could not be started: {said.removeprefix('failed ') or 'no answer'}")
    return child


def _middle(main: Callable[[], None], log: str, go: int, status: int) -> None:
    """Between `up` and process 1: a PID namespace begins with the next fork, not with this process."""
    code = 1
    try:
        go, status = _arrange(go, status, log)
        os.setsid()
        os.chdir("/")
        sc.unshare(_SPACES)
        _begin_time()
        first = os.fork()
        if first:
            os.write(status, f"pid {first}\n".encode())
            code = 0
        else:
            if os.read(go, 1) != b"g":
                os._exit(0)
            os.close(go)
            main()
    except BaseException as exc:  # noqa: BLE001  (a forked child must never return into the parent's code)
        text = str(exc.strerror if isinstance(exc, OSError) and exc.strerror else exc) or type(exc).__name__
        if isinstance(exc, OSError) and exc.strerror and exc.filename:
            text = f"{exc.filename!s}: {text}"
        with contextlib.suppress(OSError):
            os.write(status, f"failed {text}\n".encode()[:1000])
    finally:
        os._exit(code)


def _begin_time() -> None:
    """The host's uptime begins now, as after a boot. A kernel without time namespaces tells the machine's."""
    with contextlib.suppress(OSError):
        sc.unshare(sc.CLONE_NEWTIME)
        up = Path("/proc/uptime").read_text().partition(".")[0]
        Path("/proc/self/timens_offsets").write_text(f"boottime -{up} 0\n")


def _arrange(go: int, status: int, log: str) -> tuple[int, int]:
    """Standard streams to the log, status on descriptor 3, go on 4, everything else closed."""
    null, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # To free places above those that are given below: of many nodes the pipes have any number.
    go_high, status_high, null_high, out_high = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (go, status, null, out))
    os.dup2(null_high, 0)
    os.dup2(out_high, 1)
    os.dup2(out_high, 2)
    os.dup2(status_high, STATUS_FD, inheritable=True)
    os.dup2(go_high, 4)
    os.closerange(5, max(os.sysconf("SC_OPEN_MAX"), 1024) if os.sysconf("SC_OPEN_MAX") < 100_000 else 65536)
    return 4, STATUS_FD


def _read_line(fd: int) -> str:
    data = b""
    while not data.endswith(b"\n") and len(data) < 2000:
        ready, _, _ = select.select([fd], [], [], 20)
        more = os.read(fd, 1) if ready else b""
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace").strip()


def host_main(spec: HostSpec) -> Callable[[], None]:
    def main() -> None:
        build_root(spec)
        enter_boot([])
    return main


def switch_main() -> None:
    """The switch is a network namespace with a bridge; its process only holds it."""
    os.execve("/bin/sleep", ["sleep", "infinity"], {})  # noqa: S606


def wait_ready(children: list[Child], *, timeout_s: float, stop: Callable[[], None]) -> None:
    """Until every child has said ready. Raises LabError with what the first failing one said. stop() may raise."""
    waiting = {child.status: child for child in children}
    deadline = time.monotonic() + timeout_s
    while waiting:
        stop()
        ready, _, _ = select.select(list(waiting), [], [], 0.1)
        for fd in ready:
            child = waiting[fd]
            more = os.read(fd, 2000)
            child.said += more
            if b"\n" in child.said or not more:
                text = child.said.decode("utf-8", "replace").strip()
                if text != "ready":
                    raise LabError(text.removeprefix("failed ") or "ended while it was set up", where=child.name)
                del waiting[fd]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(sorted(c.name for c in waiting.values()))
            raise LabError(f"not ready after {timeout_s:.0f} s: {names}")
