"""The root in which the daemons run: the system's programs read-only, everything that is written in memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from hpcadmin.lab import cgroups
from hpcadmin.lab import syscalls as sc

DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
# Folders of the root that are empty here: state, secrets and homes of the machine.
_OWN = frozenset({"proc", "sys", "dev", "run", "tmp", "var", "etc", "root", "home", "mnt", "media", "srv", "boot",
                  "lost+found"})
_ETC = ("passwd", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "alternatives", "protocols",
        "services", "login.defs")
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"
STATE = "/.proof"
# Capabilities that no daemon of a proof needs, and that reach beyond its namespaces.
_DROPPED = {"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_BOOT": 22, "SYS_TIME": 25, "SYSLOG": 34, "WAKE_ALARM": 35}
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP = 1, 24


def build(work: Path, root: Path, own: Sequence[str], files: dict[str, str], *,
          cgroup_folders: tuple[str, ...], hostname: str) -> None:
    """Mount everything below `work` (an empty folder) and make it this mount namespace's root.

    root: whose programs are used. own: absolute paths of folders that must be there and can be written.
    files: text by absolute path. cgroup_folders: as hpcadmin.lab.cgroups made them, () for the machine's, not shown.
    """
    os.umask(0o022)
    sc.mount("none", "/", flags=sc.MS_REC | sc.MS_PRIVATE)
    sc.set_hostname(hostname)
    if cgroup_folders:
        cgroups.enter(cgroup_folders, "daemons")
    sc.mount("tmpfs", str(work), "tmpfs", options="mode=0755")
    wanted = [Path(path.lstrip("/")).parts for path in [*own, *(str(Path(name).parent) for name in files)]]
    for entry in sorted(root.iterdir()):
        if entry.name not in _OWN:
            _expose(entry, work / entry.name, [parts[1:] for parts in wanted if parts and parts[0] == entry.name])
    for name in sorted(_OWN):
        (work / name).mkdir(exist_ok=True)
    _links(root, work)
    for name in _ETC:
        source = root / "etc" / name
        if source.is_symlink() or source.exists():
            _expose(source, work / "etc" / name, [])
    (work / "etc/nsswitch.conf").write_text(NSSWITCH)
    _basics(work)
    if cgroup_folders:
        cgroups.mount(work / "sys/fs/cgroup", own=True)
    sc.pivot_root(str(work))
    # Only now: links on the way (/var/run is one) lead into this root, not into the machine's.
    for path in (*own, STATE):
        Path(path).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="surrogateescape")
    for number in _DROPPED.values():
        _prctl(_PR_CAPBSET_DROP, number)


def _expose(source: Path, target: Path, own: list[tuple[str, ...]]) -> None:
    """`source` at `target`, read-only; a folder with own folders below it is taken apart around them."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir(exist_ok=True)
        if not own:
            _bind(source, target)
        elif () not in own:
            for entry in sorted(source.iterdir()):
                _expose(entry, target / entry.name, [parts[1:] for parts in own if parts and parts[0] == entry.name])
    elif source.is_file():
        target.touch()
        _bind(source, target)


def _bind(source: Path, target: Path) -> None:
    """What is mounted below goes along; where its flags may not be changed it stays as it is."""
    sc.bind(str(source), str(target), recursive=True)
    with contextlib.suppress(OSError):
        sc.mount("none", str(target), flags=sc.MS_REMOUNT | sc.MS_BIND | sc.MS_RDONLY | sc.MS_NODEV)


def _links(root: Path, work: Path) -> None:
    """/var/run and /var/lock as the system has them."""
    for name, default in (("var/run", "/run"), ("var/lock", "/run/lock")):
        link = root / name
        (work / name).symlink_to(link.readlink() if link.is_symlink() else default)
    (work / "var/tmp").mkdir()
    (work / "var/tmp").chmod(0o1777)


def _basics(root: Path) -> None:
    sc.mount("proc", str(root / "proc"), "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    sc.mount("sysfs", str(root / "sys"), "sysfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC | sc.MS_RDONLY)
    sc.mount("tmpfs", str(root / "tmp"), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=1777")
    devices(root / "dev", ())
    (root / "run/lock").mkdir()


def devices(dev: Path, more: Sequence[tuple[str, int, int]]) -> None:
    """A /dev of its own; more: (path, major, minor) of character devices."""
    sc.mount("tmpfs", str(dev), "tmpfs", sc.MS_NOSUID, "mode=0755")
    for name in ("shm", "pts"):
        (dev / name).mkdir()
    with contextlib.suppress(OSError):       # only jobs with a terminal need it
        sc.mount("devpts", str(dev / "pts"), "devpts", sc.MS_NOSUID | sc.MS_NOEXEC, "newinstance,ptmxmode=0666")
    for name, major, minor in DEVICES:
        _node(dev / name, major, minor)
    for name, link in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                       ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        (dev / name).symlink_to(link)
    for path, major, minor in more:
        target = dev / path.removeprefix("/dev/").lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        _node(target, major, minor)


def nvidia_driver(gpus: Sequence[Sequence[str]]) -> None:
    """What the NVIDIA driver shows of each GPU (PCI address, information, local_cpulist), in /proc and /sys."""
    proc, sys = Path("/proc/driver"), Path("/sys/bus")
    for folder in (proc, sys):
        sc.mount("tmpfs", str(folder), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC, "mode=0755")
    for address, information, cpus in gpus:
        own = proc / "nvidia/gpus" / address
        own.mkdir(parents=True)
        (own / "information").write_text(information)
        own = sys / "pci/drivers/nvidia" / address
        own.mkdir(parents=True)
        (own / "local_cpulist").write_text(f"{cpus}\n")


def _node(path: Path, major: int, minor: int) -> None:
    if not path.exists():
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        path.chmod(0o666)


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, 9)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), ctypes.c_ulong(value), ctypes.c_ulong(0),
                                            ctypes.c_ulong(0), ctypes.c_ulong(0))
