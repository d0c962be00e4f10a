"""The few Linux system calls that Python 3.10 has no function for. Failures are OSError with a readable text."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc().unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    done = _libc().mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags),
                         options.encode() or None)
    _check(done, f"mount of {kind or source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False, recursive: bool = False) -> None:
    """Bind mount. The flags of the source's mount (noexec on /run, for one) do not carry over."""
    mount(source, target, flags=MS_BIND | (MS_REC if recursive else 0))
    if not recursive:
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV if read_only else 0
        mount("none", target, flags=MS_REMOUNT | MS_BIND | flags)


def detach(target: str) -> None:
    _check(_libc().umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new_root: str) -> None:
    """Make `new_root` (a mount point) the root of this mount namespace; nothing of the old one stays reachable."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"pivot_root: not known for {os.uname().machine}")
    os.chdir(new_root)
    _check(_libc().syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    detach(".")
    os.chdir("/")


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc().sethostname(raw, ctypes.c_size_t(len(raw))), "sethostname")


def default_signals() -> None:
    """Python ignores SIGPIPE and SIGXFSZ; a program that takes this process's place must not inherit that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
