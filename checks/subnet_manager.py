"""Each InfiniBand subnet has one master subnet manager that works, and another one that stands by.

Every node tells from /sys/class/infiniband which subnet manager its ports know. One node asks further: `sminfo` for
each of its ports, twice, some seconds apart (parameter `pause`), and `saquery SMIR` for the list of all managers. Both
need /dev/infiniband/umad*, which on most systems only root may open (set sudo = true, and allow `timeout 10 sminfo` and
`timeout 10 saquery` in sudoers); where they cannot be asked, what only they know is an error, never passed. RoCE has no
subnet manager: nodes without an InfiniBand port are left out. Measured:
- `sm_lid` of a port whose link is up (expected: as most ports have it; 0, or a port that waits in INIT: a failure);
- `subnets`: how many different managers the ports know, by subnet prefix and LID (expected: parameter `subnets`, 1;
  set it where rails are separate fabrics);
- `master`: the manager that the ports know answers, and is what it should be (MASTER); `activity`: its count goes on
  between the two answers;
- `masters` (1) and `standbys` of the list: none is a warning, NOT ACTIVE and DISCOVERING are no standby; a standby with
  a higher priority than the master's is a warning too.

`checks parse` reads outputs of sminfo, `saquery SMIR` and ibdiagnet's list of managers (ibdiagnet2.sm).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Measurement,
    NodeView,
    Output,
    ParseError,
    Reading,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import asking, links_text, subnets
from hpcadmin.checklib.links import INFINIBAND, Port

_PORT = re.compile(r"[A-Za-z0-9_.-]{1,64}/[0-9]{1,3}\Z")
PORTS = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
echo '# hpcadmin subnet_ports 1'
echo "node: ${SLURMD_NODENAME:-$(uname -n)}"
set --
if cd /sys/class/infiniband 2>/dev/null; then
    for f in */ports/*/state */ports/*/phys_state */ports/*/rate */ports/*/link_layer */ports/*/lid */ports/*/sm_lid \
        */ports/*/gids/0; do
        [ ! -e "$f" ] || set -- "$@" "$f"
    done
fi
echo "read: $(cut -d' ' -f1 /proc/uptime) $(cat /proc/sys/kernel/random/boot_id) $#"
[ $# = 0 ] || grep -aH '' "$@" 2>&1
echo '# end subnet_ports'
"""
ASK = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
sminfo=$1 saquery=$2 pause=$3 root=$4
ask() {
    what=$1; shift
    if [ -n "$1" ]; then told=$($root timeout 10 "$@" 2>&1 </dev/null); status=$?; else told= status=none; fi
    echo "run: $what $status"
    printf '%s\n' "$told" | sed '/SM_Key/d'
}
each() {
    for port in /sys/class/infiniband/*/ports/*; do
        [ -e "$port" ] || continue
        [ "$(cat "$port/link_layer") $(cat "$port/state")" = 'InfiniBand 4: ACTIVE' ] || continue
        device=${port%/ports/*} device=${device##*/} number=${port##*/}
        ask "$1 $device/$number" "$2" -C "$device" -P "$number" $3
    done
}
echo '# hpcadmin subnet_managers 1'
each sminfo "$sminfo"
sleep "$pause"
each sminfo "$sminfo"
each saquery "$saquery" SMIR
echo '# end subnet_managers'
"""


def steps(context: Context) -> tuple[Step, ...]:
    pause = str(max(1, min(context.param_int("pause", 3), 60)))
    tools = [context.tools.get(name, "") for name in ("sminfo", "saquery")]
    return (Step(argv=("/bin/sh", "-c", PORTS, "subnet_manager"), timeout_s=30.0, name="ports"),
            Step(argv=("/bin/sh", "-c", ASK, "subnet_manager", *tools, pause, asking.as_root(context)),
                 nodes=asking.fabric_node(context), timeout_s=200.0, name="managers"))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    told = [o for o in outputs if "# hpcadmin subnet_ports 1" in o.text or o.step == "ports"]
    asked = [o for o in outputs if o not in told]
    if not told and len(asked) == 1 and not asked[0].step and "# hpcadmin subnet_managers" not in asked[0].text:
        return _alone(lib.whole(asked[0]).text, context)
    if len(asked) != 1 or (context.nodes and len(told) != len(context.nodes)):
        raise ParseError(f"{len(told)} nodes told of their ports and {len(asked)} of the managers where "
                         f"{len(context.nodes) or 'some'} and 1 must be")
    ports: dict[tuple[str, str], Port] = {}
    seen_nodes: set[str] = set()
    for output in told:
        node = next((n for n in context.nodes if n.name == output.node), NodeView(output.node))
        name, linked = _ports(output, node)
        if name in seen_nodes:
            raise ParseError(f"{name} told of its ports twice", hint="and another node did not")
        seen_nodes.add(name)
        ports.update(linked)
    if not ports:
        raise ParseError("no InfiniBand port has a link: there is nothing that a subnet manager manages")
    expected = context.param_int("subnets", 1)
    found, seen = _known(ports, expected)
    nodes = Subject(tuple(dict.fromkeys(node for node, _ in ports)))
    here = {port for name, port in ports if name == asked[0].node}
    return [*found, *_managers(lib.whole(asked[0]).text, nodes, seen, here)]


def _ports(output: Output, node: NodeView) -> tuple[str, dict[tuple[str, str], Port]]:
    """The name of a node and its InfiniBand ports whose link is up."""
    name, looks = links_text.own(lib.whole(output).text, "subnet_ports")
    if node.name and not lib.same_host(name, node.name) and not lib.same_host(name, node.hostname or node.name):
        raise ParseError(f"the output is of {lib.shown(name)}, not of {node.name}")
    if len(looks) != 1 or looks[0].problems:
        raise ParseError(looks[0].problems[0] if looks[0].problems else f"{len(looks)} readings where 1 must be",
                         where=node.name or None)
    lost = [p.name for p in node.ports if p.link_layer == INFINIBAND and p.state == "ACTIVE"
            and p.name not in looks[0].ports]
    if lost:
        raise ParseError(f"nothing is told of {', '.join(lost[:8])}, which the inventory has", where=node.name)
    name = node.name or lib.shown(name)
    return name, {(name, port.name): port for port in looks[0].ports.values()
                  if port.layer == INFINIBAND and port.link == "LinkUp" and port.state != "DOWN"}


def _known(ports: Mapping[tuple[str, str], Port], expected: int) -> tuple[list[Measurement], set[int]]:
    """What the ports know, and the LIDs of their managers; where there is to be one subnet, of that of most ports."""
    found: list[Measurement] = []
    seen: Counter[tuple[str, int]] = Counter()
    where: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for place, port in ports.items():
        lid = port.lid("sm_lid")
        if not port.active or not 0 < lid < 0xFFFF:
            why = f"{lid}: none" if port.active else f"none: the port is {port.state}"
            found.append(Measurement("sm_lid", why, subject=Subject(place[:1], place[1]), expected="assigned"))
            continue
        key = port.told.get("gid", "")[:19], lid
        seen[key] += 1
        where.setdefault(key, []).append(place)
    usual = seen.most_common(1)[0][0] if seen else None
    if expected == 1:
        found += [Measurement("sm_lid", key[1] if usual and key[0] == usual[0] else f"{key[1]} of subnet {key[0]}",
                              subject=Subject(place[:1], place[1]),
                              expected=usual[1] if usual and key[0] == usual[0] else "of the subnet of the others")
                  for key, places in where.items() if key != usual for place in places]
    nodes = Subject(tuple(dict.fromkeys(node for node, _ in ports)))
    told = tuple(f"{n} ports know LID {lid} of subnet {prefix or '?'}" for (prefix, lid), n in seen.most_common(8))
    found.append(Measurement("subnets", len(seen), "count", subject=nodes, expected=expected,
                             warnings=told if len(seen) != expected else ()))
    return found, {lid for _, lid in seen} if expected > 1 or not usual else {usual[1]}


def _managers(text: str, where: Subject, known: set[int], here: set[str]) -> Iterator[Measurement]:
    """What sminfo and saquery tell: of each manager that answers, and of the managers that are listed beside it.

    known: LIDs that ports know their managers by, each of which must have answered. here: ports of the node that asks.
    """
    runs = _runs(text)
    if not runs:
        raise ParseError("no manager was asked: the node has no InfiniBand port that is ACTIVE")
    strange = sorted({port for _, port in runs} - here) if here else []
    if strange:
        raise ParseError(f"managers were asked through {', '.join(strange[:4])}, which has no link on that node")
    good: dict[tuple[str, str], list[list[str]]] = {}
    for tool, name in (("sminfo", "master"), ("saquery", "masters")):
        bad = {port: why for (what, port), answers in runs.items() if what == tool
               for status, lines in answers if (why := _why(tool, status, lines))}
        good.update({key: [lines for _, lines in answers] for key, answers in runs.items()
                     if key[0] == tool and key[1] not in bad})
        yield from _unanswered(tool, name, bad, where)
    both = {port: [_answer(lines) for lines in answers] for (tool, port), answers in good.items() if tool == "sminfo"}
    lists = {port: subnets.records(answers[0]) for (tool, port), answers in good.items() if tool == "saquery"}
    yield from _masters(both, lists, where)
    yield from _lists(lists, where)
    answered = {manager.lid for managers in both.values() for manager in managers}
    for lid in sorted(known - answered) if both else ():
        yield Measurement("master", "unknown", subject=where, expected=1, warnings=(
            f"no port of the node that asks knows the manager at LID {lid}",))


def _unanswered(tool: str, name: str, bad: Mapping[str, str], where: Subject) -> Iterator[Measurement]:
    """A tool that cannot ask is an error (a text where a number is expected), a manager that is silent a failure."""
    if bad:
        port, why = next(iter(bad.items()))
        said = f"{tool} for {port}: {why}" + (f"; and for {len(bad) - 1} more ports" if len(bad) > 1 else "")
        silent = tool == "sminfo" and subnets.silent(why)
        yield Measurement(name, "does not answer" if silent else "unknown", subject=where, warnings=(said,),
                          expected=subnets.MASTER if silent else 1)


def _masters(both: Mapping[str, Sequence[subnets.Manager]], lists: Mapping[str, Sequence[subnets.Manager]],
             where: Subject) -> Iterator[Measurement]:
    several = len({first.guid for first, _ in both.values()}) > 1
    done: set[int] = set()
    for port, (first, second) in both.items():
        _same(port, second, lists.get(port))
        if first.guid in done:
            continue
        done.add(first.guid)
        subject = Subject(where.nodes, f"subnet manager {first.name}" if several else "")
        listed = next((m.state for m in lists.get(port, ()) if m.guid == second.guid), second.state)
        said = [f"saquery lists it as {listed}"] if listed != second.state else []
        said += [f"it was {first.state} before"] if first.state != second.state and first.guid == second.guid else []
        yield Measurement("master", second.state, subject=subject, expected=subnets.MASTER, warnings=tuple(said))
        if second.guid == first.guid:
            yield subnets.goes_on(first, second, subject)
        else:
            yield Measurement("activity", f"{first.name} was asked first, then {second.name} answered", subject=subject,
                              expected="goes on")


def _same(port: str, manager: subnets.Manager, listed: Sequence[subnets.Manager] | None) -> None:
    """Raises ParseError where the list does not have the manager as it says of itself."""
    found = [m for m in listed or () if m.guid == manager.guid]
    if listed is not None and not found:
        raise ParseError(f"the manager that answers {port}, {manager.name}, is not in saquery's list")
    if found and (found[0].lid, found[0].priority) != (manager.lid, manager.priority):
        raise ParseError(f"sminfo says {manager}, saquery {found[0]}")


def _lists(lists: Mapping[str, Sequence[subnets.Manager]], where: Subject) -> Iterator[Measurement]:
    """Each list once; lists of one subnet are equal."""
    distinct = {frozenset((m.guid, m.state) for m in managers): (port, managers) for port, managers in lists.items()}
    for port, managers in distinct.values():
        yield from subnets.judged(managers, Subject(where.nodes, f"subnet of {port}" if len(distinct) > 1 else ""))


def _runs(text: str) -> dict[tuple[str, str], list[tuple[str, list[str]]]]:
    """(tool, port) -> of each run its status and its lines."""
    found: dict[tuple[str, str], list[tuple[str, list[str]]]] = {}
    lines = lib.own_output(text, "subnet_managers")
    lib.no_fatal_lines(lines)
    for line in lines[lines.index("# hpcadmin subnet_managers 1") + 1:lines.index("# end subnet_managers")]:
        words = line.split()
        if line.startswith("run: "):
            if len(words) != 4 or not _PORT.match(words[2]):
                raise ParseError(f"a line is cut off: {lib.shown(line)}")
            runs = found.setdefault((words[1], words[2]), [])
            runs.append((words[3], []))
        elif found:
            runs[-1][1].append(line)
        else:
            raise ParseError(f"a line before the first run: {lib.shown(line)}")
    ports = {port for _, port in found}
    for port in ports:
        if len(found.get(("sminfo", port), ())) != 2 or len(found.get(("saquery", port), ())) != 1:
            raise ParseError(f"{port}: 2 runs of sminfo and 1 of saquery must be told", hint="cut off, or runs mixed")
    return found


def _why(tool: str, status: str, lines: Sequence[str]) -> str:
    """Why a run is worth nothing; "" when it is whole."""
    if status == "none":
        return f"{tool} is not there (infiniband-diags)"
    if status == "124":
        return subnets.NO_ANSWER
    told = subnets.complaint(lines)
    if told or status != "0":
        return told or f"exit status {lib.shown(status)}"
    return "" if lines else "it printed nothing"


def _answer(lines: Sequence[str]) -> subnets.Manager:
    found = subnets.answers(lines)
    if len(found) != 1:
        raise ParseError(f"sminfo gave {len(found)} answers where 1 must be")
    return found[0]


def _alone(text: str, context: Context) -> list[Measurement]:
    reading = read(text, context)
    if reading.problems:
        raise ParseError(reading.problems[0])
    return list(reading.measurements)


def read(text: str, context: Context) -> Reading:
    """An output of sminfo, saquery SMIR or ibdiagnet by itself, or of our own script."""
    try:
        if "# hpcadmin subnet_managers" in text:
            measured = list(_managers(text, Subject(), set(), set()))
            return Reading(tuple(measured), _bad(measured), usable=True)
        managers, measured, problems, notes = subnets.read(text)
    except ParseError as exc:
        return Reading(problems=(str(exc),))
    return Reading(tuple(measured), (*problems, *_bad(measured)), usable=not problems, notes=tuple(notes),
                   hosts=None if not managers else len(managers))


def _bad(measured: Sequence[Measurement]) -> tuple[str, ...]:
    return tuple(f"{m.name} is {m.value}, not {m.expected}" + "".join(f" ({w})" for w in m.warnings)
                 for m in measured if m.value != m.expected)


CHECK = Check(
    name="subnet_manager", title="One subnet manager works, another one stands by", scope=Scope.CLUSTER,
    needs=("infiniband",), uses=("sminfo", "saquery"), params={"pause": 3, "subnets": 1, "sudo": False},
    steps=steps, parse=parse, seconds=5.0, doc=__doc__ or "", read=read,
)
