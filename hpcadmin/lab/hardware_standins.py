"""The stand-ins for vendors' tools: shell scripts as they are, C programs built once for each version of their text."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hpcadmin.errors import LabError

SOURCES = Path(__file__).resolve().parent / "standins"
SCRIPTS = ("nvidia-smi", "ibstat", "sminfo", "saquery")
# Name -> source, compiler, options. perftest.c knows by its name which program it is.
PROGRAMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "all_reduce_perf": ("all_reduce_perf.c", "mpicc", ()),
    **dict.fromkeys(("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat"),
                    ("perftest.c", "cc", ("-pthread",))),
}
CFLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


def install(folder: Path) -> None:
    """Put every stand-in into `folder`, executable."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    built = build_programs()
    for source in [*(SOURCES / name for name in SCRIPTS), *(built / name for name in PROGRAMS)]:
        target = folder / source.name
        shutil.copyfile(source, target)
        target.chmod(0o755)


def build_programs() -> Path:
    """The folder with the built C programs, in the user's cache; built there when its sources are new."""
    digest = hashlib.sha256(repr((PROGRAMS, CFLAGS)).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    cache = _cache_root() / digest.hexdigest()[:16]
    if all((cache / name).is_file() for name in PROGRAMS):
        return cache
    try:
        cache.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=cache.parent))
    except OSError as exc:
        raise LabError(f"the stand-ins cannot be built: {exc.strerror}", where=str(cache.parent)) from exc
    try:
        same: dict[str, Path] = {}
        for name, (source, compiler, flags) in PROGRAMS.items():
            if source in same:
                shutil.copyfile(same[source], fresh / name)
                continue
            same[source] = fresh / name
            _compile(compiler, (*CFLAGS, *flags, "-o", str(fresh / name), str(SOURCES / source), "-lm"), name)
        fresh.chmod(0o755)
        try:
            fresh.rename(cache)
        except OSError:
            if not all((cache / name).is_file() for name in PROGRAMS):   # else: another run was first
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return cache


def _cache_root() -> Path:
    if os.geteuid() == 0:
        return Path("/var/cache/hpcadmin/standins")
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "hpcadmin" / "standins"


def _compile(compiler: str, arguments: tuple[str, ...], name: str) -> None:
    try:
        done = subprocess.run((compiler, *arguments), capture_output=True, text=True, timeout=120, check=False,
                              errors="replace")
    except FileNotFoundError as exc:
        raise LabError(f"{compiler} is needed to build the stand-in {name}",
                       hint="apt install gcc libopenmpi-dev") from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"building the stand-in {name} took more than 120 s") from exc
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise LabError(f"the stand-in {name} could not be built: {first}", where=compiler)
