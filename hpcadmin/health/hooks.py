"""Writes hpcadmin-health-prolog and -epilog: what slurmd runs, so that nothing but a node that is bad drains a node."""

from __future__ import annotations

import re
from pathlib import Path

from hpcadmin.errors import UsageError
from hpcadmin.files import write_atomic

KINDS = ("prolog", "epilog")
PROGRAM = "/usr/sbin/hpcadmin-health"
LIMIT_S = 56          # more than hpcadmin-health takes at the most (watch.DEADLINE_S, main.GRACE_S), less than a minute
MESSAGES = "/run"     # in memory, and root's
_PATH = re.compile(r"/[A-Za-z0-9_.+/-]*[A-Za-z0-9_.+-]")

# Whatever may hang, and be it the look whether the program is there, is done in the background, and has not slurmd's
# pipes, for whose end slurmd waits. `trap EXIT`: a shell that cannot fork ends with 2.
TEXT = """\
#!/bin/sh
# Slurm's {kind}. Slurm drains the node whenever this does not end with 0. That is for a node that hpcadmin-health has
# found bad, never for what is wrong with hpcadmin-health: missing, damaged, without Python, hanging.
verdict=0
trap 'exit $verdict' EXIT
PATH=/usr/sbin:/usr/bin:/sbin:/bin
program={program}
message={messages}/hpcadmin-health-{name}.$$

say() {{
    echo "$program: $1" >&2
    timeout -s KILL 2 logger -t hpcadmin-health -p "daemon.$2" -- "{name}: $program: $1" </dev/null >/dev/null 2>&1
}}
broken() {{ say "$1; the node is taken for good" err; }}

(
    [ -f "$program" ] && [ -x "$program" ] || exit 12
    line=$("$program" --as {name} 2>/dev/null)
    case "$? $line" in
        "0 good: "*) exit 0 ;;
        "0 unknown: "*) echo "$line" >"$message"; exit 13 ;;
        "1 hpcadmin: "*) echo "$line" >"$message"; exit 10 ;;
    esac
    exit 11
) </dev/null >/dev/null 2>&1 &
look=$!
trap 'trap "" ALRM; kill -9 "$look"; broken "has not ended within {limit} s"; exit 0' ALRM
(
    trap 'kill $!; exit' TERM
    sleep {limit} &
    wait $!
    kill -ALRM $$
) </dev/null >/dev/null 2>&1 &
clock=$!

wait "$look" 2>/dev/null
status=$?
trap "" ALRM
kill "$clock" 2>/dev/null
case $status in
    0) exit 0 ;;
    10) verdict=1
        cat "$message" 2>/dev/null ;;
    12) broken "is not there, or is no program" ;;
    13) say "$(cat "$message" 2>/dev/null)" warning ;;
    *) broken "did not say how the node is" ;;
esac
rm -f "$message"
"""


def hook(kind: str, program: str = PROGRAM, *, limit_s: int = LIMIT_S, messages: str = MESSAGES) -> str:
    for path in (program, messages):
        if not _PATH.fullmatch(path):
            raise UsageError(f"{path!r} is no plain absolute path")
    return TEXT.format(kind=kind.capitalize(), name=kind, program=program, limit=limit_s, messages=messages)


def write(output: Path, program: str) -> list[Path]:
    """OUTPUT-prolog and OUTPUT-epilog, for a hpcadmin-health that is `program` on the nodes."""
    made = []
    for kind in KINDS:
        path = output.with_name(f"{output.name}-{kind}")
        write_atomic(path, hook(kind, program).encode(), mode=0o755)
        path.chmod(0o755)
        made.append(path)
    return made
