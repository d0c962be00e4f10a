"""Every port of the adapters has a clean link: BER, FEC, optics and what the firmware says of it (mlxlink).

On each node `mlxlink -d DEVICE -m -c -e --json` is asked of one port after the other (of the inventory's ports, else
of all mlx5 devices that there are), and without --json where the version does not know it. mstlink of the package
mstflint prints the same: name it as the tool's path in site.toml. Both want root: where Slurm's jobs do not run as
root, set sudo = true and allow the command in sudoers. Nothing is changed on the port.

Measured for each port:
- `state` (Active), `physical_state`, `rate` (Gb/s; expected as in the inventory, and a warning where port and cable can
  more), `lanes`, `fec` (one is needed from 50 Gb/s a lane on), `loopback` (No Loopback), `auto_negotiation` (forced: a
  warning). A port that is not up in the inventory either is shown and not judged;
- `status_opcode` (0), with the firmware's recommendation;
- `effective_ber` (after the error correction), `symbol_ber` (after what the link sent again: what applications see on
  HDR and NDR), `raw_ber` (before the correction), all in errors/bit and judged by limits; 15E-255 is how the tool
  writes none, here 0. A BER above 1e-15, to which cables are tested, is a warning. Where so few bits were counted
  since the counters were cleared that even 1e-12 is not shown, that is a warning: then no error proves nothing
  (`since_clear`, in minutes). Numbers of errors stand beside it;
- `link_downs`, `link_recoveries` since the driver or the firmware was started: a warning;
- `module`, its `optics` (temperature, voltage, bias, power of each lane within the module's own alarm thresholds; N/A
  of copper is not judged), `module_faults` (none); `eye` is shown.

A port that mlxlink could not read is a failure of that port; where it can read none, that is an error of the test.

The formats are taken from the tool's public source (mstflint) and from recorded outputs of MFT 4.17 to 4.34; we have
not run it on adapters ourselves. Error messages without a device are from mstlink 4.21, run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Measurement,
    NodeView,
    Output,
    ParseError,
    PortView,
    Reading,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import asking, mlxlink, mlxlink_facts

SCRIPT = r"""
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
tool=$1 root=$2
shift 2
ask() { $root "$tool" "$@" </dev/null 2>&1; }
echo '# hpcadmin mlxlink 1'
if [ "$#" = 0 ]; then
    for path in /sys/class/infiniband/*; do
        [ "$(basename "$(readlink "$path/device/driver")")" = mlx5_core ] && set -- "$@" "${path##*/}/1"
    done
fi
for place in "$@"; do
    device=${place%/*} port=${place#*/}
    echo "# port $place"
    set -- -d "$device" -m -c -e
    [ "$port" = 1 ] || set -- "$@" -p "$port"
    told=$(ask "$@" --json)
    status=$?
    case $told in
        *'"status"'*) ;;
        *) told=$(ask "$@"); status=$? ;;
    esac
    printf '%s\n' "$told" | head -c 200000 | sed 's/^/|/'
    echo "# end port $place status $status"
done
echo '# end mlxlink'
"""


def steps(context: Context) -> tuple[Step, ...]:
    node = context.nodes[0] if context.nodes else NodeView("")
    names = _names(node)
    return (Step(argv=("/bin/sh", "-c", SCRIPT, "mlxlink", context.tools["mlxlink"], asking.as_root(context), *names),
                 timeout_s=60.0 + 30.0 * max(len(names), 8), name="mlxlink"),)


def _names(node: NodeView) -> list[str]:
    """The ports to ask, as device/port: those of the inventory that are of mlx5 adapters."""
    ports = [port.name for port in node.ports] or [f"{device}/1" for device in node.rdma_devices]
    return [name for name in ports if re.fullmatch(r"(?:mlx5|ibp|roce|ib|rocep|ibs|mlx)[\w.-]{0,50}/\d{1,3}", name)]


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    output = lib.require(outputs, count=1)[0]
    lib.no_fatal_lines(lib.lines_of(output.text))
    node = context.nodes[0] if context.nodes else NodeView(output.node)
    own = mlxlink.framed(output.text)
    ports = mlxlink.read_frame(output.text) if own else mlxlink.read(output.text)
    if not ports:
        raise ParseError("nothing of mlxlink in it, or no port of an mlx5 adapter on the node")
    _all_there(ports, node)
    read = [(told, _port(told, node)) for told in ports]
    lost = [(told, why) for told, (_, why) in read if why]
    if lost and (len(lost) == len(read) or not context.nodes or not own):
        told, why = lost[0]
        raise ParseError(f"{told.device}: {why}" if told.device else why, hint=_hint(why))
    return [m for told, (found, why) in read
            for m in (found if not why else [Measurement("mlxlink", lib.shown(why), expected="answers",
                                                         subject=_where(told, node))])]


def _all_there(ports: Sequence[mlxlink.Told], node: NodeView) -> None:
    names = [told.device for told in ports]
    if len(names) > 1 and (not all(names) or len(set(names)) != len(names)):
        raise ParseError(f"{len(names)} outputs of mlxlink, and not each says of which port it is",
                         hint="one at a time, or with the command lines before them")
    told = {name if "/" in name else f"{name}/1" for name in names if name}
    if names != [""] and (lost := [name for name in _names(node) if name not in told]):
        raise ParseError(f"nothing is told of {', '.join(lost[:8])}")


def _hint(why: str) -> str:
    if mlxlink.RIGHTS.search(why):
        return "mlxlink needs root: sudo = true for this check in the suite, and a line in sudoers"
    return ""


def _where(told: mlxlink.Told, node: NodeView) -> Subject:
    return Subject((node.name,) if node.name else (), told.device)


def _view(told: mlxlink.Told, node: NodeView) -> PortView | None:
    names = (told.device, f"{told.device}/1")
    return next((port for port in node.ports if port.name in names), None)


def _port(told: mlxlink.Told, node: NodeView) -> tuple[list[Measurement], str]:
    """What is measured of one port, or why nothing can be."""
    up = told.get(mlxlink.OPERATIONAL, "State") == "Active"
    why = [*told.broken, *(told.said if up or not told.sections else ())]
    if told.said and told.status:
        why = [*told.said, *told.broken]
    if not why and up and told.missing:
        why = [f"{told.missing[0]} is missing"]
    if why:
        return [], "; ".join(why[:3])
    try:
        found = mlxlink_facts.measured(told, _view(told, node))
    except ParseError as exc:
        return [], str(exc)
    if told.extra:
        found[0] = replace(found[0], warnings=(*found[0].warnings, *told.extra[:2]))
    return [replace(m, subject=_where(told, node)) for m in found], ""


def read(text: str, context: Context) -> Reading:
    """One or several outputs of the tool, as JSON or text, or what our own script printed."""
    node = context.nodes[0] if context.nodes else NodeView("")
    told_problems = [f"the output has an error line: {lib.shown(line)}" for line in lib.fatal_lines(lib.lines_of(text))]
    try:
        ports = mlxlink.read_frame(text) if mlxlink.framed(text) else mlxlink.read(text)
    except ParseError as exc:
        return Reading(problems=(*told_problems, str(exc)))
    if not ports:
        return Reading(problems=(*told_problems, "nothing of mlxlink in it"))
    found: list[Measurement] = []
    whole = True
    try:
        _all_there(ports, node)
    except ParseError as exc:
        told_problems.append(str(exc))
    for told in ports:
        measured, why = _port(told, node)
        name = f"{told.device}: " if told.device else ""
        whole &= not why
        told_problems += [f"{name}{why}"] if why else [f"{name}{p}" for p in mlxlink_facts.problems(measured)]
        found += measured
    transports = {m.transport for m in found if m.transport}
    return Reading(tuple(found), tuple(told_problems), usable=whole and bool(found), hosts=1, runs=len(ports),
                   notes=_notes(found), transport=transports.pop() if len(transports) == 1 else None)


def _notes(found: Sequence[Measurement]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{m.subject.device} {m.name}: {w}".strip() for m in found for w in m.warnings))


CHECK = Check(
    name="mlxlink", title="The links of the adapters are clean: BER, FEC, optics", scope=Scope.NODE,
    needs=("rdma", "mlxlink"), params={"sudo": False}, steps=steps, parse=parse, seconds=20.0, doc=__doc__ or "",
    probe=("mlxlink", "--version"), read=read,
)
