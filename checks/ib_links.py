"""Every port of every RDMA device is up, at its full rate and width, and its error counters do not grow.

On each node /sys/class/infiniband is read, twice, a second apart (parameter `seconds`); no tool and no rights are
needed. Where the suite puts the nodes under load, that is done once before everything else and once after it, and the
last reading is compared with the very first one: so the load lies in between. Measured, of each port ("mlx5_0/1"; what
is good on all ports of a node is told once):
- `state` (ACTIVE) and `physical_state` (LinkUp). A port that is down is a failure where the inventory has it ACTIVE,
  where most ports of its kind (the same card and link layer) are up, where it is InfiniBand and none of its kind is
  up, or where no port is. Any other port that is down is a warning;
- `device`: one of the inventory, or of the first reading, that is gone (expected: present); a new one is a warning;
- `link_layer`, as in the inventory; `rate` (Gb/s), at least as in the inventory and as most ports of its kind;
  `width` (4X; InfiniBand only; 2X only where all ports of the kind are so, as of ports that were split: a warning);
- `lid` and `sm_lid` of InfiniBand ports (assigned);
- `steady`: told, and a failure, of a port that was not there, or whose state or rate was another one, at one of the
  readings before;
- `symbol_error`, `link_error_recovery`, `link_downed` (a flap), `port_rcv_errors`, `port_rcv_remote_physical_errors`,
  `port_xmit_discards`, `port_xmit_constraint_errors`, `port_rcv_constraint_errors`, `local_link_integrity_errors`,
  `excessive_buffer_overrun_errors`, `VL15_dropped`, `rx_icrc_encapsulated`: by how much they have grown between the two
  readings, judged by limits (a flap or a damaged packet is a failure, a few others are a warning);
  `errors` is 0 where none of them has. These counters have 4 to 16 bits and stay where
  they are full: one that is full, or that was cleared in between, is an error, since nobody can say whether it grows
  (clear it with `perfquery -R`);
- `errors_so_far`: what had come together before, which may be years old: a warning above what infiniband-diags proposes
  as thresholds (10, or 100), never a failure;
- `sent_again`: packets that the network lost or swapped, as RoCE cards count them: a warning;
- `under_load`: a warning where no data passed any port between the readings around the load;
- `traffic` (MiB, both directions) and `port_xmit_wait` (ticks in which a packet waited for credits), only shown.

`checks parse` also reads ibstat, ibstatus, perfquery and lines of /sys (`grep -r . /sys/class/infiniband/*/ports/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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
from hpcadmin.checklib import links_counts, links_facts, links_text

SCRIPT = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
look() {
    set --
    [ -z "$there" ] || { echo "read: $(cut -d' ' -f1 /proc/uptime) $(cat /proc/sys/kernel/random/boot_id) 0"; return; }
    for f in */hca_type */board_id */ports/*/state */ports/*/phys_state */ports/*/rate */ports/*/link_layer \
        */ports/*/lid */ports/*/sm_lid; do
        [ ! -e "$f" ] || set -- "$@" "$f"
    done
    for p in */ports/*; do
        for c in $counters; do [ ! -e "$p/counters/$c" ] || set -- "$@" "$p/counters/$c"; done
        for c in $hw_counters; do [ ! -e "$p/hw_counters/$c" ] || set -- "$@" "$p/hw_counters/$c"; done
    done
    echo "read: $(cut -d' ' -f1 /proc/uptime) $(cat /proc/sys/kernel/random/boot_id) $#"
    [ $# = 0 ] || grep -aH '' "$@" 2>&1
}
there= seconds=$1 counters=$2 hw_counters=$3
echo '# hpcadmin ib_links 1'
echo "node: ${SLURMD_NODENAME:-$(uname -n)}"
cd /sys/class/infiniband 2>/dev/null || there=no
look
sleep "$seconds"
look
echo '# end ib_links'
"""


def steps(context: Context) -> tuple[Step, ...]:
    seconds = str(max(0, min(context.param_int("seconds", 1), 600)))
    return (Step(argv=("/bin/sh", "-c", SCRIPT, "ib_links", seconds, " ".join(links_counts.COUNTERS),
                       " ".join(links_counts.HW_COUNTERS)), timeout_s=60.0 + int(seconds)),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    before = [o for o in outputs if o.when == "before"]
    after = [o for o in outputs if o.when != "before"]
    if not after:
        before, after = [], before
    output = lib.require(after, count=1)[0]
    if "# hpcadmin ib_links" not in output.text and not context.nodes:
        return _alone(output.text)
    node = context.nodes[0] if context.nodes else NodeView(output.node)
    looks = _looks(output, node)
    looks = [*(_looks(lib.require(before, count=1)[0], node) if before else ()), *looks]
    if len({look.boot for look in looks}) > 1:
        raise ParseError("the node was started anew between the two readings")
    if looks[-1].uptime < looks[0].uptime:
        raise ParseError("the second reading is older than the first", hint="two runs mixed")
    told = [problem for look in looks for problem in (*look.problems, *_strange(look))]
    if told:
        raise ParseError(told[0])
    if not any(look.ports for look in looks) and not node.rdma_devices:
        raise ParseError("the node has no RDMA port: /sys/class/infiniband has none")
    return _measured(looks, node, load=bool(before))


def _strange(look: links_text.Look) -> list[str]:
    return [problem for port in look.ports.values() for problem in links_counts.strange(port)]


def _looks(output: Output, node: NodeView) -> list[links_text.Look]:
    name, looks = links_text.own(lib.whole(output).text, "ib_links")
    if len(looks) != 2:
        raise ParseError(f"{len(looks)} readings where 2 must be")
    if node.name and not lib.same_host(name, node.name) and not lib.same_host(name, node.hostname or node.name):
        raise ParseError(f"the output is of {lib.shown(name)}, not of {node.name}")
    return looks


def _measured(looks: Sequence[links_text.Look], node: NodeView, *, load: bool) -> list[Measurement]:
    """looks: in their order; what is between the first and the last tells of what was not steady."""
    where, last = Subject((node.name,) if node.name else ()), looks[-1]
    found = links_facts.facts(last.ports, node)
    for look, later in pairwise(looks):
        if any(port.told != later.ports[name].told for name, port in look.ports.items() if name in later.ports):
            links_facts.facts(look.ports, node)           # damage there is damage too
    ports = {name: [look.ports.get(name) for look in looks] for name in last.ports}
    for name, every in ports.items():
        subject, there = Subject(where.nodes, name), [port for port in every if port]
        found += links_facts.changed(every, subject)
        found += links_counts.so_far(there[0], subject)
        found += links_counts.grown(there, last.uptime - looks[0].uptime, subject)
    earlier = {name: port for look in looks for name, port in look.ports.items()}
    found = links_facts.missing(last.ports, node, earlier) + links_facts.folded(found, where)
    found.append(Measurement("ports", len(last.ports), "count", subject=where, key=False))
    pairs = [(every[0], every[-1]) for every in ports.values() if every[0] and every[-1]]
    if load and pairs and not node.simulated:
        quiet = all(links_counts.idle(before, now) for before, now in pairs)
        text = "nothing" if quiet else "data"
        said = ("no data passed any port between the readings: nothing is shown of the links under load",)
        found.append(Measurement("under_load", text, subject=where, expected=text, warnings=said if quiet else ()))
    return found


def _alone(text: str) -> list[Measurement]:
    """Of a file whose node nobody knows."""
    reading = read(text, Context(nodes=(NodeView("file"),)))
    if reading.problems and not reading.usable:
        raise ParseError(reading.problems[0])
    return list(reading.measurements)


def read(text: str, context: Context) -> Reading:
    """Any text about ports by itself: our own output, ibstat, ibstatus, perfquery, or lines of /sys."""
    node = context.nodes[0] if context.nodes else NodeView("")
    try:
        if "# hpcadmin ib_links" in text:
            name, looks = links_text.own(text, "ib_links")
            look = looks[-1]
            node = node if node.name else NodeView(lib.shown(name))
            measured = _measured(looks, node, load=False)
        else:
            look = links_text.read(text)
            where = Subject((node.name,) if node.name else ())
            counts = [m for name, port in look.ports.items() if port.counts
                      for m in links_counts.so_far(port, Subject(where.nodes, name))]
            measured = [*links_facts.missing(look.ports, node), *links_facts.facts(look.ports, node), *counts]
    except ParseError as exc:
        return Reading(problems=(str(exc),))
    broken = [*look.problems, *_strange(look)]
    told = [*broken, *(f"{m.subject.device}: {m.name} is {m.value}, not {m.expected}"
                              + "".join(f" ({said})" for said in m.warnings)
                              for m in measured if m.expected is not None and m.value != m.expected)]
    return Reading(tuple(measured), tuple(told), usable=not broken, hosts=1,
                   notes=tuple(dict.fromkeys(w for m in measured for w in m.warnings)))


CHECK = Check(
    name="ib_links", title="RDMA ports are up, at full rate, without errors", scope=Scope.NODE, needs=("rdma",),
    params={"seconds": 1}, steps=steps, parse=parse, seconds=1.5, doc=__doc__ or "", read=read,
    again_after_load=True,
)
