"""The node runs what it is told, knows who it is, and sees the shared directory and the right time.

That the step ran at all shows that Slurm can use the node. On the node a file is written into the shared directory,
read back and compared; the time that the file server gave to the file is compared with the node's clock, in seconds.

Measured: `node_name` and `hostname` (expected: as planned), `shared_dir` (expected: writable), `clock_offset` (s),
`shared_free` and `tmp_free` (MiB), `uptime` (s, only shown). Where nodes share nothing ([run] collect = "step", no
shared_dir) there are no `shared_dir`, `shared_free` and `clock_offset`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Measurement, NodeView, Output, ParseError, Scope, Step, Subject

SCRIPT = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
say() { printf '%s: %s\n' "$1" "$2"; }
free_kib() {
    df -Pk "$1" | awk 'NR > 1 { for (i = 2; i <= NF; i++) if ($i ~ /^([0-9]+%|-)$/) v = $(i - 1) } END { print v }'
}
echo '# hpcadmin node_ready 1'
say node_name "${SLURMD_NODENAME:--}"
say hostname "$(uname -n)"
say uptime_s "$(cut -d' ' -f1 /proc/uptime)"
before=$(date +%s) mtime=- shared=
if [ -z "$1" ]; then
    shared='no shared directory is known'
elif [ "$1" = - ]; then
    shared='none is expected'
elif file=$(mktemp "$1/.hpcadmin-ready-XXXXXXXX" 2>&1); then
    trap 'rm -f "$file"' 0
    before=$(date +%s)
    token="$(uname -n) $$ $before"
    if printf '%s\n' "$token" > "$file" && [ "$(cat "$file")" = "$token" ]; then
        shared=writable
        mtime=$(stat -c %Y "$file")
    else
        shared='what was written could not be read back'
    fi
else
    shared=$file
fi
say shared_dir "$(printf %s "$shared" | tr '\n' ' ')"
say clock "$before $mtime $(date +%s)"
say shared_free_kib "$(free_kib "$1")"
say tmp_free_kib "$(free_kib /tmp)"
echo '# end node_ready'
"""
KEYS = ("node_name", "hostname", "uptime_s", "shared_dir", "clock", "shared_free_kib", "tmp_free_kib")


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(argv=("/bin/sh", "-c", SCRIPT, "node_ready", context.shared_dir), timeout_s=30.0),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    output = lib.require(outputs, count=1)[0]
    told = _told(output.text)
    node = context.nodes[0] if context.nodes else NodeView(name=output.node)
    subject = Subject((node.name or told["node_name"],))
    host = node.hostname if node.hostname and lib.same_host(told["hostname"], node.hostname) else told["hostname"]
    found = [
        Measurement("hostname", host, subject=subject, expected=node.hostname or None, key=bool(node.hostname)),
        *([] if context.shared_dir == "-" else [
            Measurement("shared_dir", told["shared_dir"], subject=subject, expected="writable")]),
        Measurement("uptime", lib.finite(told["uptime_s"], "uptime"), "s", subject=subject, key=False),
        Measurement("tmp_free", lib.integer(told["tmp_free_kib"], "space in /tmp") // 1024, "MiB", subject=subject),
    ]
    if told["node_name"] != "-":
        found.append(Measurement("node_name", told["node_name"], subject=subject, expected=node.name or None,
                                 key=bool(node.name)))
    if told["shared_dir"] == "writable":
        free = lib.integer(told["shared_free_kib"], "free space in the shared directory")
        found.append(Measurement("shared_free", free // 1024, "MiB", subject=subject))
        found.append(Measurement("clock_offset", _offset(told["clock"], context.started), "s", subject=subject))
    return found


def _told(text: str) -> dict[str, str]:
    told = lib.told_once(lib.own_output(text, "node_ready"), KEYS, ":")
    if tuple(told) != KEYS:
        missing = [key for key in KEYS if key not in told]
        raise ParseError(f"{', '.join(missing)} not told" if missing else "not told in order: several runs mixed")
    empty = [key for key, value in told.items() if not value]
    if empty and (empty != ["shared_free_kib"] or told["shared_dir"] == "writable"):
        raise ParseError(f"{', '.join(empty)} not told")
    return told


def _offset(clock: str, started: float | None) -> int:
    """Seconds between the node's clock and the file server's; at least what the client's clock proves: a step cannot
    have run before the run was started."""
    words = clock.split()
    if len(words) != 3:
        raise ParseError(f"clock is {clock!r}")
    before, written, after = (lib.integer(w, "clock", least=1, most=10 ** 11) for w in words)
    offset = max(before - written, written - after, 0)
    return max(offset, int(started - after) if started else 0)


CHECK = Check(
    name="node_ready", title="Node answers, shared directory writable, clock right", scope=Scope.NODE,
    steps=steps, parse=parse, seconds=0.2, doc=__doc__ or "",
)
