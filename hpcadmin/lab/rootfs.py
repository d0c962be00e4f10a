"""Set-up of one lab host, from inside its new namespaces: overlay root, /dev, /proc, /sys, binds, network, pivot_root.

Runs in a forked child that becomes the first process of the host's PID namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.lab import cgroups
from hpcadmin.lab import syscalls as sc

# Folders of the lower root that a lab host does not see: homes, mounts, and the state and secrets of the machine's
# own services.
HIDDEN = (
    "root", "home", "srv", "mnt", "media", "var/tmp", "var/log", "etc/munge", "etc/ssh", "etc/slurm", "etc/slurm-llnl",
    "etc/sudoers.d", "etc/ssl/private", "etc/wireguard", "etc/NetworkManager/system-connections", "var/lib/munge",
    "var/lib/slurm", "var/lib/mysql", "var/lib/postgresql", "var/lib/docker", "var/lib/sss", "var/lib/NetworkManager",
    "var/spool/slurmctld", "var/spool/slurmd", "var/spool/slurm", "var/spool/cron", "var/backups",
)
_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
_REAL_DEVICES = ("nvidia*", "nvidia-caps/*", "infiniband/*", "kfd", "dri/*", "fuse")
# Folders of /sys that are put together from the real ones and a profile's; everything below a profile's entry is its.
_SYS_MERGED = ("", "devices", "devices/system", "devices/virtual", "bus", "bus/pci", "class")


@dataclass(frozen=True)
class File:
    path: str
    text: str | bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class Folder:
    path: str
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class HostSpec:
    name: str
    work_dir: str                       # an empty folder; a tmpfs is mounted there in the host's namespace alone
    log_dir: str                        # becomes /var/log
    shared: str                         # becomes /shared
    base: str
    network_batch: str                  # text for `ip -batch`
    files: tuple[File, ...] = ()
    folders: tuple[Folder, ...] = ()
    munge_dir: str = ""                 # becomes /run/munge, so that the machine can use the lab's munge
    visible: tuple[str, ...] = ()       # paths of the machine that must be readable at their own place
    hardware: str = ""                  # a simulation's tree
    cgroups: tuple[str, ...] = ()       # the lab's folders, each with one for this host inside


def build_root(spec: HostSpec) -> None:
    """All mounts and files; at its end the process is inside the new root."""
    os.umask(0o022)
    sc.mount("none", "/", flags=sc.MS_REC | sc.MS_PRIVATE)
    sc.set_hostname(spec.name)
    if spec.cgroups:
        cgroups.enter(spec.cgroups, spec.name)
    work = Path(spec.work_dir)
    sc.mount("tmpfs", str(work), "tmpfs", options="mode=0755")
    upper, scratch, root = work / "upper", work / "work", work / "merged"
    for folder in (upper, scratch, root):
        folder.mkdir()
    _fill_upper(spec, upper)
    try:
        sc.mount("overlay", str(root), "overlay", options=f"lowerdir={spec.base},upperdir={upper},workdir={scratch}")
    except OSError as exc:
        raise OSError(exc.errno, f"overlayfs on {spec.base}: {os.strerror(exc.errno or 0)}") from exc
    if spec.base == "/":
        _bind_submounts(root)
    _mount_basics(root)
    _new_boot_id(root)
    _make_devices(root / "dev", spec.hardware)
    _mount_sys(root / "sys", Path(spec.hardware) if spec.hardware else None)
    cgroups.mount(root / "sys/fs/cgroup", bool(spec.cgroups))
    sc.bind(spec.shared, _folder(root, "shared"))
    sc.bind(spec.log_dir, _folder(root, "var/log"))
    if spec.munge_dir:
        sc.bind(spec.munge_dir, _folder(root, "run/munge"))
    for path in spec.visible:
        _make_visible(root, path)
    if spec.hardware:
        _mount_hardware(root, Path(spec.hardware))
    for item in spec.folders:
        target = root / item.path.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(item.mode)
        os.chown(target, item.uid, item.gid)
    _configure_network(spec.network_batch)
    sc.pivot_root(str(root))


def _fill_upper(spec: HostSpec, upper: Path) -> None:
    for name in HIDDEN:
        if not (Path(spec.base) / name).is_dir():
            continue
        folder = upper / name
        folder.mkdir(parents=True, exist_ok=True)
        os.setxattr(folder, "trusted.overlay.opaque", b"y")
    for name, mode in (("root", 0o700), ("var/tmp", 0o1777)):
        (upper / name).mkdir(parents=True, exist_ok=True)
        (upper / name).chmod(mode)
    for item in spec.files:
        path = upper / item.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(item.text.encode() if isinstance(item.text, str) else item.text)
        path.chmod(item.mode)
        os.chown(path, item.uid, item.gid)
    if spec.hardware:
        (upper / "etc/hpcadmin/hwloc.xml").symlink_to("sim/hwloc.xml")
        tools = upper / "usr/local/bin"
        tools.mkdir(parents=True, exist_ok=True)
        for tool in sorted((Path(spec.hardware) / "bin").glob("*")):
            shutil.copy2(tool, tools / tool.name)
            (tools / tool.name).chmod(0o755)


def _bind_submounts(root: Path) -> None:
    """overlayfs does not cross mount points: software of the machine on file systems of its own is bound."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point.startswith(("/usr/", "/opt/", "/nix/")) or point in ("/usr", "/opt", "/nix"):
            with contextlib.suppress(OSError):   # a stale or covered mount is no reason not to have a lab
                sc.bind(point, _folder(root, point.lstrip("/")), read_only=True)


def _folder(root: Path, name: str) -> str:
    path = root / name
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _mount_basics(root: Path) -> None:
    sc.mount("proc", _folder(root, "proc"), "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    sc.mount("tmpfs", _folder(root, "tmp"), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=1777")
    sc.mount("tmpfs", _folder(root, "run"), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=0755")
    sc.mount("tmpfs", _folder(root, "dev"), "tmpfs", sc.MS_NOSUID, "mode=0755")
    sc.mount("devpts", _folder(root, "dev/pts"), "devpts", sc.MS_NOSUID | sc.MS_NOEXEC,
             "newinstance,ptmxmode=0666,mode=0620,gid=5")
    sc.mount("tmpfs", _folder(root, "dev/shm"), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, "mode=1777")


def _new_boot_id(root: Path) -> None:
    """Another one at each start, as of a machine of its own."""
    told = root / "run/boot_id"
    told.write_text(f"{uuid.uuid4()}\n")
    sc.bind(str(told), str(root / "proc/sys/kernel/random/boot_id"), read_only=True)


def _make_devices(dev: Path, hardware: str) -> None:
    for name, major, minor in _DEVICES:
        _make_node(dev / name, stat.S_IFCHR, major, minor, 0o666)
    for name, link in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                       ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        (dev / name).symlink_to(link)
    if hardware:
        for kind, major, minor, mode, path in _device_list(Path(hardware) / "dev.list"):
            target = dev / path.removeprefix("/dev/").lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            _make_node(target, stat.S_IFBLK if kind == "b" else stat.S_IFCHR, major, minor, mode)
        return
    for pattern in _REAL_DEVICES:
        for real in Path("/dev").glob(pattern):
            info = real.lstat()
            if stat.S_ISCHR(info.st_mode):
                target = dev / real.relative_to("/dev")
                target.parent.mkdir(parents=True, exist_ok=True)
                _make_node(target, stat.S_IFCHR, os.major(info.st_rdev), os.minor(info.st_rdev),
                           stat.S_IMODE(info.st_mode))


def _make_node(path: Path, kind: int, major: int, minor: int, mode: int) -> None:
    os.mknod(path, kind | mode, os.makedev(major, minor))
    path.chmod(mode)


def _device_list(path: Path) -> list[tuple[str, int, int, int, str]]:
    found = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        kind, major, minor, mode, name = line.split(None, 4)
        found.append((kind, int(major), int(minor), int(mode, 8), name))
    return found


def _mount_sys(target: Path, hardware: Path | None) -> None:
    """A fresh sysfs, so that /sys/class/net is this host's; with a profile, its parts in the place of the real ones."""
    target.mkdir(exist_ok=True)
    profile = hardware / "sys" if hardware else None
    if profile is None or not profile.is_dir():
        sc.mount("sysfs", str(target), "sysfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    else:
        fresh = target.parent / "run/.sysfs"
        fresh.mkdir()
        sc.mount("sysfs", str(fresh), "sysfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
        sc.mount("tmpfs", str(target), "tmpfs", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC, "mode=0755")
        _merge_sys("", fresh, profile, target)
        sc.detach(str(fresh))
        fresh.rmdir()


def _merge_sys(inside: str, fresh: Path, profile: Path, target: Path) -> None:
    for name in sorted({p.name for p in [*_entries(fresh), *_entries(profile)]}):
        path = f"{inside}/{name}".lstrip("/")
        real, fake, place = fresh / name, profile / name, target / name
        if path in _SYS_MERGED and fake.is_dir() and not fake.is_symlink():
            place.mkdir()
            _merge_sys(path, real, fake, place)
            continue
        source = fake if os.path.lexists(fake) else real
        if source.is_symlink():
            place.symlink_to(source.readlink())
        elif source.is_dir():
            place.mkdir()
            sc.bind(str(source), str(place), read_only=source is fake)
        else:
            place.touch()
            sc.bind(str(source), str(place), read_only=source is fake)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _mount_hardware(root: Path, hardware: Path) -> None:
    sc.bind(str(hardware), _folder(root, "etc/hpcadmin/sim"), read_only=True)
    for source in _entries(hardware / "proc"):
        target = root / "proc" / source.name
        if not target.exists():
            raise OSError(2, f"/proc/{source.name} of the hardware profile has no place in this kernel's /proc")
        sc.bind(str(source), str(target), read_only=True)


def _make_visible(root: Path, path: str) -> None:
    """The machine's `path`, readable at the same place, also when a folder above it is closed to other users."""
    real = os.path.realpath(path)
    if not Path(real).exists():
        return
    place = root
    parts = Path(real).parts[1:]
    for part in parts[:-1]:
        place /= part
        place.mkdir(mode=0o711, exist_ok=True)
        mode = stat.S_IMODE(place.stat().st_mode)
        if not mode & 0o001:
            place.chmod(mode | 0o011)
    place /= parts[-1]
    if Path(real).is_dir():
        place.mkdir(exist_ok=True)
    elif not place.exists():
        place.touch()
    sc.bind(real, str(place), read_only=True)
    named = root / path.lstrip("/")
    if real != path and not os.path.lexists(named):
        named.parent.mkdir(parents=True, exist_ok=True)
        named.symlink_to(real)


def _configure_network(batch: str) -> None:
    done = subprocess.run(["ip", "-batch", "-"], input=batch, text=True, capture_output=True, check=False, timeout=20)
    if done.returncode != 0:
        raise OSError(5, f"ip: {first_line(done.stderr) or 'failed'}")


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def enter_boot(arguments: Sequence[str]) -> None:
    """Replace this process by the host's boot script; its environment is empty on purpose."""
    sc.default_signals()
    os.execve("/bin/sh", ["sh", "/etc/hpcadmin/lab/boot.sh", *arguments], {"HOME": "/root", "TERM": "dumb"})  # noqa: S606
