"""The probe: one POSIX sh script made of the facts' commands, fed to `sh -s -- TOKEN` on a node."""

from __future__ import annotations

import importlib
import pkgutil
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hpcadmin.errors import UsageError

DEFAULT_LIMIT = 64 * 1024
DEFAULT_ORDER = 50
MIN_WAIT_S = 5
# Tools that checks of ours ask for; a site's further checks add theirs.
DEFAULT_TOOLS = (
    "all_reduce_perf", "ib_write_bw", "ib_write_lat", "ibstat", "mpicc", "mpirun", "numactl", "nvidia-smi", "osu_bw",
    "osu_latency", "saquery", "sbatch", "sminfo", "srun", "ucx_info",
)
_RUNS_TOOLS = re.compile(r"\b(?:run|limit|command) |\$SUDO\b")
_SECONDS = re.compile(r"\b(?:run|limit) ([0-9]{1,3}) ")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}\Z")

# $1 is the token. Every command runs with a time-out, an output limit and no stdin; stderr and status are kept. What
# cannot even be killed (a process in the kernel, another user's) is left behind: the section ends without a status.
_BEGINNING = r"""
T=${1:-}
case $T in ''|*[!0-9a-f]*) echo 'usage: sh -s -- TOKEN' >&2; exit 2;; esac
LC_ALL=C; export LC_ALL
cd / 2>/dev/null
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin; export PATH
unset CDPATH ENV BASH_ENV GREP_OPTIONS 2>/dev/null
set +u +e +f
exec 3>&1 2>/dev/null
if timeout -k 1 5 true >/dev/null 2>&1; then limit() { timeout -k 2 "$@"; }; else limit() { shift; "$@"; }; fi
run() { run_s=$1; shift; command -v "$1" >/dev/null 2>&1 || return 127; limit "$run_s" "$@"; }
ended() { "fact_$1" </dev/null 3>&-; printf '\n#%s status=%s\n' "$T" "$?" >&2; }
section() {
  printf '\n@%s begin %s limit=%s\n' "$T" "$1" "$2"
  if [ "$3" = 0 ]; then complaints=$( { ended "$1" | head -c "$2" >&3; } 2>&1 | head -c 8192 )
  else complaints=$( { { (exec 3>&-; ended "$1") & } | limit "$3" head -c "$2" >&3; } 2>&1 | limit "$3" head -c 8192 )
  fi
  printf '\n@%s stderr %s\n%s\n' "$T" "$1" "$complaints"
}
"""


@dataclass(frozen=True)
class Fact:
    """One module of hpcadmin.facts."""

    name: str
    command: str
    parse: Callable[[str], Any]
    limit: int = DEFAULT_LIMIT
    wait_s: int = MIN_WAIT_S         # after that the probe goes on without it; 0: reads files only, ends by itself
    order: int = DEFAULT_ORDER       # what may hang comes last, so that the rest is there when it does


@cache
def facts() -> dict[str, Fact]:
    """Every fact by its name, in the order in which the probe asks; found by listing this folder."""
    found = []
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"hpcadmin.facts.{info.name}")
        if not hasattr(module, "COMMAND"):
            continue                     # reads files only
        found.append(Fact(module.NAME, module.COMMAND.strip("\n"), module.parse,
                          getattr(module, "LIMIT", DEFAULT_LIMIT),
                          _wait_s(module), getattr(module, "ORDER", DEFAULT_ORDER)))
    return {fact.name: fact for fact in sorted(found, key=lambda fact: (fact.order, fact.name))}


def _wait_s(module: Any) -> int:
    """A little more than all its tools' own time-outs together."""
    if not _RUNS_TOOLS.search(module.COMMAND):
        return 0
    waits: int = getattr(module, "WAIT_S", sum(map(int, _SECONDS.findall(module.COMMAND))) + 3)
    return max(MIN_WAIT_S, waits)


def probe_script(tools: Iterable[str] = (), sudo: Iterable[str] = ()) -> str:
    """The script. tools: further names to look for. sudo: facts that may use `sudo -n` (dmi)."""
    names = sorted({*DEFAULT_TOOLS, *tools})
    for name in names:
        if not _TOOL_NAME.match(name):
            raise UsageError(f"{name!r} is not the name of a tool")
    known, allowed = facts(), set(sudo)
    for name in allowed - known.keys():
        raise UsageError(f"there is no fact {name!r}", hint=f"known are {', '.join(sorted(known))}")
    parts = ["{", _BEGINNING.strip("\n"), f"TOOLS='{' '.join(names)}'"]
    for fact in known.values():
        root = "sudo -n" if fact.name in allowed else ""
        parts.append(f"fact_{fact.name}() {{\nSUDO='{root}'\n{fact.command}\n}}")
    parts.append('''printf '\\nHPCADMIN-CAPTURE 1 %s\\n' "$T"''')
    # What sudo starts cannot be killed by us: it comes last, whatever its order.
    order = sorted(known.values(), key=lambda fact: fact.name in allowed)
    parts += [f"section {fact.name} {fact.limit} {fact.wait_s}" for fact in order]
    parts.append(f'''printf '\\n@%s done sections=%s\\n' "$T" {len(known)}''')
    # In braces and with an exit, the shell has read all of it before any command could read its stdin.
    parts += ["exit 0", "}"]
    return "\n".join(parts) + "\n"


def new_token() -> str:
    return secrets.token_hex(16)
