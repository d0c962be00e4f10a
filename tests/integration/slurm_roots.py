"""The real Slurms that tests run on: the machine's own, and those of Debian's suites trixie and sid in folders.

A folder is made once by debootstrap, from the mirror and with the keyring that the machine's own apt sources name, and
kept in /var/cache/hpcadmin/slurm (or $HPCADMIN_SLURM_ROOTS). Run by itself it makes what is missing and tells what is
at hand, one line each.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hpcadmin.errors import HpcadminError
from hpcadmin.proof.parts import Slurm
from hpcadmin.proof.slurm import find

SUITES = ("trixie", "sid")
PACKAGES = "slurmctld,slurmd,slurmdbd,slurm-client,munge,slurm-wlm-basic-plugins"
MAKE_S = 600.0
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
NAMES = {"": "the machine's own", "trixie": "Debian trixie", "sid": "Debian sid"}


@dataclass(frozen=True)
class Mirror:
    uri: str
    keyring: str


@dataclass(frozen=True)
class Absent:
    """A Slurm that is not at hand, and why."""

    why: str


def cache() -> Path:
    return Path(os.environ.get("HPCADMIN_SLURM_ROOTS", "/var/cache/hpcadmin/slurm"))


@lru_cache(maxsize=8)
def slurm(suite: str) -> Slurm | Absent:
    """The Slurm of a suite; "" is the machine's own. Made when it is not there yet."""
    try:
        if not suite:
            return find()
        if os.geteuid() != 0:
            return Absent("a root for another Slurm can be made by root only")
        with lock(suite):
            return _ready(suite) or _make(suite)
    except (HpcadminError, OSError) as exc:
        return Absent(str(exc))


@contextmanager
def lock(suite: str) -> Iterator[None]:
    """Two test runs at once: the second waits until the first has made the folder."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{suite}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def marker(suite: str) -> Path:
    return cache() / f"{suite}.complete"


def _ready(suite: str) -> Slurm | None:
    """The root where it is complete: the marker is written last, and names what was asked for. One made otherwise, or
    when other packages were asked for, is looked at; it is taken and marked where nothing is missing in it."""
    root = cache() / suite
    if not (root / "usr").is_dir():
        return None
    try:
        found = find(str(root))
    except HpcadminError:
        return None
    if not marked(suite, found):
        if not whole(root):
            return None
        mark(suite, found)
    return found


def mark(suite: str, found: Slurm) -> None:
    marker(suite).write_text(f"{found.text}\n{PACKAGES}\n")


def marked(suite: str, found: Slurm) -> bool:
    try:
        return marker(suite).read_text() == f"{found.text}\n{PACKAGES}\n"
    except OSError:
        return False


def whole(root: Path) -> bool:
    """Whether debootstrap came to its end: its own folder is gone, and every package, ours among them, is installed."""
    try:
        status = (root / "var/lib/dpkg/status").read_text(errors="replace")
    except OSError:
        return False
    states = {}
    for stanza in status.strip().split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status): (.*)$", stanza, re.MULTILINE))
        states[fields.get("Package", "")] = fields.get("Status", "")
    return not (root / "debootstrap").exists() and set(states.values()) == {"install ok installed"} and \
        states.keys() >= set(PACKAGES.split(","))


def _make(suite: str) -> Slurm | Absent:
    """debootstrap into a folder beside, which gets its name when it is complete; an older root is kept until then. Its
    mounts are in a namespace."""
    tool = shutil.which("debootstrap", path=f"/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}")
    if tool is None:
        return Absent("debootstrap is not installed")
    mirror = find_mirror(apt_sources())
    if mirror is None:
        return Absent("the machine's apt sources name no Debian mirror")
    root, making, old = cache() / suite, cache() / f"{suite}.making", cache() / f"{suite}.old"
    for folder in (making, old, root):
        if mounted_below(folder):
            return Absent(f"{folder} is not complete and has mounts in it: umount them first")
    for folder in (making, old):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        done = subprocess.run(
            ["unshare", "-m", tool, "--variant=minbase", f"--include={PACKAGES}", f"--keyring={mirror.keyring}", suite,
             str(making), mirror.uri], env=environment(mirror.uri), capture_output=True, text=True, timeout=MAKE_S,
            check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        shutil.rmtree(making, ignore_errors=True)
        return Absent(f"debootstrap {suite} did not end within {MAKE_S:.0f} s")
    if done.returncode != 0 or not whole(making):
        shutil.rmtree(making, ignore_errors=True)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "W:"))]
        return Absent(f"debootstrap {suite}: {(said or ['failed'])[-1]}")
    marker(suite).unlink(missing_ok=True)
    if root.exists():
        root.rename(old)
    making.rename(root)
    shutil.rmtree(old, ignore_errors=True)
    found = find(str(root))
    mark(suite, found)
    return found


def mounted_below(folder: Path) -> bool:
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(point == str(folder) or point.startswith(f"{folder}/") for point in points)


# --- the machine's apt ---------------------------------------------------------------------------------------------


def apt_sources(etc: Path = Path("/etc/apt")) -> list[dict[str, str]]:
    """Every binary source: uri, suites, components, signed-by. Both formats (sources.list(5))."""
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    found: list[dict[str, str]] = []
    for path in files:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found += _stanzas(text) if path.suffix == ".sources" else _lines(text)
    return found


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", plain):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line[:1].isspace() and key:
                fields[key] += f" {line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().casefold()
                fields[key] = value.strip()
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").casefold() not in ("no", "false"):
            for uri in fields.get("uris", "").split():
                yield {"uri": uri, "suites": fields.get("suites", ""), "components": fields.get("components", ""),
                       "signed-by": fields.get("signed-by", "")}


def _lines(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match:
            options = dict(part.split("=", 1) for part in (match[1] or "").split() if "=" in part)
            yield {"uri": match[2], "suites": match[3], "components": match[4].strip(),
                   "signed-by": options.get("signed-by", "")}


def find_mirror(sources: Sequence[dict[str, str]]) -> Mirror | None:
    """The mirror of Debian itself: the one that has the running release, or any of its suites, with `main`."""
    release = re.search(r"^VERSION_CODENAME=(\S+)$", _os_release(), re.MULTILINE)
    names = {release[1]} if release else set()
    for wanted in (names, {"bookworm", "trixie", "sid", "stable", "testing", "unstable", "oldstable"}):
        for source in sources:
            own = set(source["suites"].split())
            if own & wanted and "main" in source["components"].split() and \
                    source["uri"].startswith(("http://", "https://", "file:")):
                signed = source["signed-by"]
                return Mirror(source["uri"], signed if signed.startswith("/") else KEYRING)
    return None


def _os_release() -> str:
    try:
        return Path("/etc/os-release").read_text().replace('"', "")
    except OSError:
        return ""


def environment(uri: str) -> dict[str, str]:
    """With the proxy that apt uses."""
    env = {k: v for k, v in os.environ.items() if k.casefold() in ("http_proxy", "https_proxy", "no_proxy", "lang")}
    env["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    host = uri.partition("://")[2].split("/")[0].split(":")[0]
    try:
        done = subprocess.run(["apt-config", "dump", "--format", "%f %v%n"], capture_output=True, text=True, timeout=20,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return env
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    for kind in ("http", "https"):
        proxy = settings.get(f"Acquire::{kind}::Proxy::{host}") or settings.get(f"Acquire::{kind}::Proxy") \
            or _detected(settings, kind, uri)
        if proxy and proxy != "DIRECT":
            env[f"{kind}_proxy"] = proxy
    return env


def _detected(settings: dict[str, str], kind: str, uri: str) -> str:
    program = settings.get(f"Acquire::{kind}::Proxy-Auto-Detect") or settings.get(f"Acquire::{kind}::ProxyAutoDetect")
    if not program:
        return ""
    try:
        done = subprocess.run([*shlex.split(program), uri], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def main() -> int:
    """Makes what is missing; a line for each Slurm."""
    for suite, name in NAMES.items():
        found = slurm(suite)
        print(f"{name}: Slurm {found.text}" if isinstance(found, Slurm)
              else f"{name}: NOT AT HAND, its tests are skipped: {found.why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
