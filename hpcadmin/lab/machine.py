"""What the machine itself has and lacks: looked at before anything is made."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpcadmin.errors import LabError, UsageError
from hpcadmin.lab import journal
from hpcadmin.lab.enter import SYSTEM_PATH, tool
from hpcadmin.lab.network import overlapping

# Program -> Debian package. The first group runs on the machine, the second inside, from the lower root.
OUTSIDE = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "ssh-keygen": "openssh-client"}
INSIDE = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge",
          "sshd": "openssh-server", "setpriv": "util-linux"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}
_FIRST_UID = 30010


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it makes namespaces, mounts and interfaces",
                       hint="run it as root; everything on the lab itself runs as an ordinary user")


def require_tools(base: str, accounting: bool) -> None:
    missing = {package for program, package in OUTSIDE.items() if not tool(program)}
    if missing:
        raise LabError(f"not installed: {', '.join(sorted(missing))}",
                       hint=f"apt-get install {' '.join(sorted(missing))}")
    wanted = INSIDE | (ACCOUNTING if accounting else {})
    lacking = {program: package for program, package in wanted.items() if not in_root(base, program)}
    if not lacking:
        return
    packages = " ".join(sorted(set(lacking.values())))
    if base == "/":
        raise LabError(f"not installed: {', '.join(sorted(lacking))}", hint=f"apt-get install {packages}")
    raise UsageError(f"--base {base} lacks {', '.join(sorted(lacking))}", hint=f"install there: {packages}")


def in_root(base: str, program: str) -> bool:
    folders = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    return any(os.access(Path(base) / folder / program, os.X_OK) for folder in folders)


def require_overlay(filesystems: str | None = None) -> None:
    """A module that is not loaded yet is loaded by the mount itself; only then is it listed."""
    listed = Path("/proc/filesystems").read_text() if filesystems is None else filesystems
    if "\toverlay\n" in listed:
        return
    modules = Path("/lib/modules") / os.uname().release
    if not any(modules.glob("kernel/fs/overlayfs/overlay.ko*")):
        raise LabError("this kernel has no overlayfs", hint="the lab's nodes need it for their roots")


def require_free(name: str, net: str, interface: str) -> None:
    for lab in journal.all_labs():
        if lab.name == name:
            raise LabError(f"lab {name} is already up" if lab.phase == "up" else
                           f"lab {name} was left half made", hint=f"hpcadmin lab down --name {name}")
        if overlapping(net, [(lab.net, "")]):
            raise LabError(f"the range {net} is used by lab {lab.name}", hint="choose another with --net")
    taken = overlapping(net, used_ranges())
    if taken:
        raise LabError(f"the range {net} overlaps {taken} of this machine", hint="choose another with --net")
    if (Path("/sys/class/net") / interface).exists():
        raise LabError(f"an interface {interface} exists already", hint="choose another name with --name")


def used_ranges() -> list[tuple[str, str]]:
    """Addresses and routes of the machine with their interfaces."""
    found = []
    for item in _ip_json("-4", "addr", "show"):
        found += [(f"{a.get('local')}/{a.get('prefixlen')}", f"address of {item.get('ifname')}")
                  for a in item.get("addr_info", [])]
    found += [(str(item.get("dst")), f"route by {item.get('dev') or item.get('gateway') or item.get('type')}")
              for item in _ip_json("-4", "route", "show", "table", "all") if item.get("dst") != "default"]
    return found


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run([tool("ip"), "-json", *arguments], capture_output=True, text=True, check=False, timeout=20)
    try:
        plain = json.loads(done.stdout or "[]")
    except ValueError as exc:
        raise LabError(f"ip {' '.join(arguments)}: not JSON: {exc}") from exc
    return [item for item in plain if isinstance(item, dict)]


def base_accounts(base: str) -> str:
    """passwd, a line "--", group of the lower root."""
    texts = []
    for name in ("passwd", "group"):
        try:
            texts.append((Path(base) / "etc" / name).read_text(errors="replace"))
        except OSError as exc:
            raise UsageError(f"--base {base} is not a root file system: {exc.strerror}",
                             where=f"{base}/etc/{name}") from exc
    return "\n--\n".join(texts)


def account_id(accounts: str, name: str) -> tuple[int, int] | None:
    for line in accounts.partition("\n--\n")[0].splitlines():
        parts = line.split(":")
        if len(parts) == 7 and parts[0] == name:
            return int(parts[2]), int(parts[3])
    return None


def free_uid(accounts: str) -> int:
    """A user and group id that neither the machine nor the lower root uses."""
    used = {int(p) for line in accounts.splitlines() for p in line.split(":")[2:4] if p.isdigit()}
    used |= {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(_FIRST_UID, 60000) if uid not in used)


def cpus() -> list[tuple[int, int]]:
    """(package, core) of each online CPU."""
    found = []
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
        try:
            found.append((int((folder / "topology/physical_package_id").read_text()),
                          int((folder / "topology/core_id").read_text())))
        except (OSError, ValueError):
            continue   # an offline CPU has no topology
    return found or [(0, i) for i in range(os.cpu_count() or 1)]


def memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 ** 20


def slurm_version(base: str) -> tuple[int, int]:
    """(22, 5) for "slurm-wlm 22.05.8"; raises LabError when slurmd does not say."""
    command = ["chroot", base, "slurmd", "-V"] if base != "/" else [tool("slurmd"), "-V"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=20,
                          env={"PATH": SYSTEM_PATH})
    match = re.match(r"slurm\S* (\d+)\.(\d+)", done.stdout)
    if not match:
        raise LabError(f"slurmd -V: {(done.stderr or done.stdout).strip()[:200] or 'no answer'}")
    return int(match[1]), int(match[2])


def package_parent() -> Path:
    return Path(__file__).resolve().parent.parent.parent


def own_paths(base: str) -> tuple[tuple[str, ...], str]:
    """(paths that hpcadmin needs to run inside, why it cannot run there or "")."""
    if base != "/" and sys.base_prefix in ("/usr", "/usr/local"):
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        if not in_root(base, version):
            return (), f"hpcadmin itself cannot run inside: {base} has no {version}"
    paths = [sys.prefix, sys.base_prefix, str(package_parent())]
    wanted: list[str] = []
    for path in dict.fromkeys(paths):
        inside_system = base == "/" and (path == "/usr" or path.startswith("/usr/"))
        if path not in ("/usr", "/") and not inside_system and not any(path.startswith(f"{w}/") for w in wanted):
            wanted.append(path)
    return tuple(wanted), ""
