"""Ports that carry RoCE are lossless for it and only for it, react to congestion, and are set up alike.

One script asks each node: mlnx_qos, dcb, lldptool, cma_roce_tos, cma_roce_mode and ethtool, those that are there, and
the kernel's files. What is right is given by parameters, as the site's switches have it: `priority` (3), `dscp` (26),
`cnp_dscp` (48), `cnp_priority` (6), `mtu` (9000), `devices` (all active RoCE ports, or "mlx5_0,mlx5_1"). The defaults
are those of NVIDIA's RoCE configuration for lossless fabrics (ToS 106 is DSCP 26 with ECT; CNPs leave with DSCP 48).

Measured on each port, and where to look when it is not as expected:
  lossless        priorities with PFC; expected: `priority` alone. mlnx_qos --pfc, dcb pfc; DCBX may overrule it.
  trust           what decides the priority of a packet; expected: dscp. mlnx_qos --trust dscp.
  roce_priority   priority of packets with `dscp`; expected: `priority`. mlnx_qos --dscp2prio set,DSCP,PRIORITY.
  traffic_class, cma_tos   DSCP that the device, and connections of rdma_cm, mark packets with; expected: `dscp`.
  ecn_np, ecn_rp  notification point and reaction point (DCQCN) of `priority`; expected: on.
  cnp_dscp, cnp_priority   of the packets that tell of congestion; expected as given.
  roce_mode       expected: RoCE v2.
  mtu             at least `mtu`.
  global_pause    expected: off both ways, as PFC takes its place. ethtool -A IF rx off tx off.
  counters of pauses, discards and congestion are shown; pause storms, pauses of another priority and discards of the
  lossless one since the port came up are a warning. Where the suite puts the nodes under load, they are read before
  and after it: a pause storm or a discard of the lossless priority in between is a failure.
Two sources that contradict each other are an error. What no source tells is counted in not_told with the reason, and
is not judged. Ports of InfiniBand need none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Measurement,
    Output,
    ParseError,
    Reading,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import roce, roce_tools
from hpcadmin.checklib.roce import Port
from hpcadmin.checklib.roce_tools import Qos

DEFAULTS: dict[str, str | int | float | bool] = {
    "priority": 3, "dscp": 26, "cnp_dscp": 48, "cnp_priority": 6, "mtu": 9000, "devices": ""}
V2 = "RoCE v2"


def steps(context: Context) -> tuple[Step, ...]:
    folders = sorted({path.rpartition("/")[0] for path in context.tools.values() if path.startswith("/")})
    return (Step(argv=("/bin/sh", "-c", roce.SCRIPT, "roce_config", ":".join(folders)), timeout_s=120.0),)


@dataclass
class _Found:
    """What is known of one port, what is not, and why."""

    port: Port
    where: Subject
    context: Context
    measured: list[Measurement] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    alike: dict[str, str] = field(default_factory=dict)

    def wanted(self, name: str) -> int:
        return self.context.param_int(name, int(DEFAULTS[name]))

    def fact(self, name: str, value: str | int | None, expected: str | int, why: str, hint: str = "") -> None:
        """A fact with what it must be; None is not told, for this reason."""
        if value is None:
            self.untold.append(f"{name} of {self.where.device}: {why}")
            return
        self.alike[name] = str(value)
        said = (f"on {self.where.device}: {hint}",) if hint and value != expected else ()
        self.measured.append(Measurement(name, value, subject=self.where, expected=expected, warnings=said))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    before = [o for o in outputs if o.when == "before"]
    now = [o for o in outputs if o.when != "before"]
    if not now:
        before, now = [], before
    output = lib.require(now, count=1)[0]
    if "# hpcadmin roce_config" not in output.text:
        return _alone(output.text, context)
    name, ports = _ports(output, context)
    earlier = _ports(lib.require(before, count=1)[0], context)[1] if before else []
    return _node(ports, name, context, {port.name: port for port in earlier})


def _ports(output: Output, context: Context) -> tuple[str, list[Port]]:
    head, ports = roce.read_node(output.text)
    if not context.nodes:
        return output.node or head["host"], ports
    node = context.nodes[0]
    if head["node"] not in ("-", node.name):
        raise ParseError(f"it ran on {lib.shown(head['node'])}, not on {node.name}")
    here = {port.name for port in ports}
    lost = [p.name for p in node.ports if p.link_layer == "Ethernet" and p.state == "ACTIVE" and p.name not in here]
    if lost:
        raise ParseError(f"nothing is told of {', '.join(lost[:8])}, which the inventory has", where=node.name)
    return node.name, ports


def _node(ports: Sequence[Port], name: str, context: Context, before: Mapping[str, Port]) -> list[Measurement]:
    devices = [word.strip() for word in context.param_str("devices", "").split(",") if word.strip()]
    chosen = [p for p in ports if p.ethernet and (not devices or p.name.partition("/")[0] in devices)]
    lost = sorted(set(devices) - {p.name.partition("/")[0] for p in chosen})
    if lost:
        raise ParseError(f"{', '.join(lost)}: no RoCE port of {name}", hint="the parameter devices names them")
    if not chosen:
        raise ParseError(f"none of the {len(ports)} RDMA ports of {name} is of Ethernet: nothing to test here")
    active = [p for p in chosen if p.active]
    if not active:
        raise ParseError(f"no RoCE port of {name} is active: {chosen[0].name} is {chosen[0].facts['state']}")
    found = [_port(port, name, context, before.get(port.name)) for port in active]
    measured = [m for one in found for m in one.measured]
    untold = [text for one in found for text in one.untold]
    measured.append(Measurement("not_told", len(untold), "facts", subject=Subject((name,)), key=bool(untold),
                                warnings=(*untold[:6], *([f"and {len(untold) - 6} more"] if len(untold) > 6 else []))))
    measured += _alike(found, name)
    idle = [p.name for p in chosen if not p.active]
    if idle:
        measured.append(Measurement("not_active", ", ".join(idle), subject=Subject((name,)), key=False))
    return measured


def _alike(found: Sequence[_Found], name: str) -> Iterator[Measurement]:
    """Whether all ports of a node are set up as the first one is."""
    if len(found) < 2:
        return
    first = found[0]
    odd = [f"{one.where.device} has {key} {value}, {first.where.device} {first.alike[key]}" for one in found[1:]
           for key, value in one.alike.items() if key in first.alike and first.alike[key] != value]
    yield Measurement("ports_alike", "; ".join(odd[:3]) or "yes", subject=Subject((name,)), expected="yes")


def _port(port: Port, name: str, context: Context, before: Port | None) -> _Found:
    net = port.netdev
    label = port.name if net in roce.NOTHING else f"{port.name} ({net})"
    found = _Found(port, Subject((name,), label), context)
    try:
        qos = roce.sources(port)
        _priorities(found, qos)
        _marks(found)
        _congestion(found)
        _mode(found)
        _frames(found)
        _counters(found, before)
    except ParseError as exc:
        raise ParseError(f"{label}: {exc}") from exc
    return found


def _priorities(found: _Found, qos: Sequence[Qos]) -> None:
    port, wanted, dscp = found.port, found.wanted("priority"), found.wanted("dscp")
    pfc = ",".join("1" if n == wanted else "0" for n in range(8))
    found.fact("lossless", _agreed("PFC", [_row(q.lossless) for q in qos]), str(wanted),
               port.why_not("mlnx_qos", "dcb_pfc", "lldptool"), f"mlnx_qos -i {port.netdev} --pfc {pfc}")
    found.fact("trust", _agreed("trust", [q.trust for q in qos]), "dscp", port.why_not("mlnx_qos", "dcb_trust"),
               f"mlnx_qos -i {port.netdev} --trust dscp")
    told = [q.priority_of[dscp] for q in qos if dscp in q.priority_of]
    known = _agreed(f"the priority of DSCP {dscp}", [str(n) for n in told])
    found.fact("roce_priority", None if known is None else int(known), wanted, port.why_not("mlnx_qos", "dcb_app"),
               f"mlnx_qos -i {port.netdev} --dscp2prio set,{dscp},{wanted}")
    dcbx = next((q.dcbx for q in qos if q.dcbx), None)
    if dcbx:
        found.alike["DCBX"] = dcbx
        found.measured.append(Measurement("dcbx", dcbx, subject=found.where, key=False))


def _row(priorities: tuple[int, ...] | None) -> str | None:
    return None if priorities is None else ",".join(map(str, priorities)) or "none"


def _agreed(what: str, told: Sequence[str | None]) -> str | None:
    """What all sources that tell it tell."""
    known = list(dict.fromkeys(word for word in told if word is not None))
    if len(known) > 1:
        raise ParseError(f"sources contradict each other on {what}: {' and '.join(known[:3])}")
    return known[0] if known else None


def _marks(found: _Found) -> None:
    """What packets are marked with, where the application does not decide it."""
    port, dscp = found.port, found.wanted("dscp")
    device = port.name.partition("/")[0]
    tclass = roce_tools.tos(port.facts["traffic_class"].replace("none", "-"), "traffic_class")
    told = port.answer("cma_roce_tos") or port.fact("default_roce_tos")
    cma = roce_tools.tos(told, "cma_roce_tos") if told else None
    if tclass is None and cma is None:
        found.fact("traffic_class", None, dscp, "none is set, or it cannot be read: applications mark their own "
                   f"packets (NCCL_IB_TC={dscp * 4 + 2})")
    for name, value, hint in (
            ("traffic_class", tclass, f"echo {dscp * 4 + 2} > /sys/class/infiniband/{device}/tc/1/traffic_class"),
            ("cma_tos", cma, f"cma_roce_tos -d {device} -t {dscp * 4 + 2}")):
        if value is not None:
            found.fact(name, value >> 2, dscp, "", hint)


def _congestion(found: _Found) -> None:
    port, priority = found.port, found.wanted("priority")
    for side in ("np", "rp"):
        word = port.facts[f"ecn_{side}"].split()[priority]
        found.fact(f"ecn_{side}", {"1": "on", "0": "off"}.get(word), "on",
                   f"no /sys/class/net/{port.netdev}/ecn/roce_{side}/enable/{priority}",
                   f"echo 1 > /sys/class/net/{port.netdev}/ecn/roce_{side}/enable/{priority}")
    for name, most in (("cnp_dscp", 63), ("cnp_priority", 7)):
        told = port.fact(name)
        value = None if told is None else lib.integer(told, name, most=most)
        found.fact(name, value, found.wanted(name), f"no file of it in /sys/class/net/{port.netdev}/ecn/roce_np")


def _mode(found: _Found) -> None:
    port = found.port
    told = port.answer("cma_roce_mode") or port.fact("default_roce_mode")
    types = port.fact("gid_types")
    if told:
        found.fact("roce_mode", lib.shown(told.strip()), V2, "",
                   f"cma_roce_mode -d {port.name.partition('/')[0]} -p {port.name.partition('/')[2]} -m 2")
    else:
        found.fact("roce_mode", None if types is None else V2 if V2 in types else types, V2,
                   port.why_not("cma_roce_mode"))


def _frames(found: _Found) -> None:
    port, wanted = found.port, found.wanted("mtu")
    told = port.fact("mtu")
    found.fact("mtu", None if told is None else min(lib.integer(told, "mtu", least=1, most=65535), wanted), wanted,
               f"no /sys/class/net/{port.netdev}/mtu", f"ip link set {port.netdev} mtu {wanted}")
    answer = port.answer("pause")
    found.fact("global_pause", None if answer is None else roce_tools.ethtool_pause(answer), "rx off tx off",
               port.why_not("pause"), f"ethtool -A {port.netdev} rx off tx off")


def _counts(port: Port) -> dict[str, int]:
    """Its counters that tell of flow control, loss and congestion; {} where none is told."""
    answer = port.answer("counters")
    told = roce_tools.counters(answer) if answer is not None else {}
    for name, value in port.facts.items():
        if name.startswith("counter ") and value not in roce.NOTHING:
            told[name.partition(" ")[2]] = lib.integer(value, name)
    return told


def _trouble(name: str, count: int, priority: int) -> str:
    """What a counter that is not 0 tells, "" where it is no trouble."""
    if "pause_storm" in name:
        return f"{count} pause storms ({name}): the node did not take its packets in time"
    if f"prio{priority}_" in name and "discard" in name:
        return f"{count} packets of the lossless priority were discarded ({name})"
    if "_prio" in name and name.endswith("_pause") and f"_prio{priority}_" not in name:
        return f"{count} pause frames of another priority than {priority} ({name}): does the switch agree?"
    return ""


def _counters(found: _Found, before: Port | None) -> None:
    """Since the port came up, and, where there is a reading from before, under the load."""
    port, priority = found.port, found.wanted("priority")
    if port.answer("counters") is None:
        found.fact("counters", None, 0, port.why_not("counters"))
    earlier = _counts(before) if before else {}
    for name, count in _counts(port).items():
        said = _trouble(name, count, priority) if count else ""
        grown = count - earlier[name] if name in earlier else 0
        if grown < 0:
            raise ParseError(f"{name} was {earlier[name]} before the load and is {count}: reset in between")
        judged = name in earlier and ("pause_storm" in name or (f"prio{priority}_" in name and "discard" in name))
        if judged:
            found.measured.append(Measurement(
                f"{name}_under_load", grown, "count", subject=found.where, expected=0,
                warnings=(f"{found.where.device}: {_trouble(name, grown, priority)}",) if grown else ()))
        shown = count or name in ("np_cnp_sent", "rp_cnp_handled", "out_of_sequence")
        if shown and not name.endswith(("_duration", "_transition")):
            found.measured.append(Measurement(name, count, "count", subject=found.where, key=False,
                                              warnings=(f"{found.where.device}: {said}",) if said else ()))


# --- a text by itself -------------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Reading:
    """An output of the script, or of mlnx_qos -i or dcb pfc show."""
    try:
        if "# hpcadmin roce_config" in text:
            head, ports = roce.read_node(text)
            measured = _node(ports, head["host"], context, {})
        else:
            measured = _alone(text, context)
    except ParseError as exc:
        return Reading(problems=(str(exc),))
    wrong = [f"{m.subject.device} {m.name} is {m.value}, not {m.expected}".strip() for m in measured
             if m.expected is not None and m.value != m.expected]
    return Reading(tuple(measured), tuple(wrong), usable=True, hosts=1,
                   notes=tuple(w for m in measured for w in m.warnings))


def _alone(text: str, context: Context) -> list[Measurement]:
    """Of one tool's answer."""
    lib.no_fatal_lines(lib.lines_of(text))
    if "PFC configuration" in text or "Priority trust state" in text:
        qos = roce_tools.mlnx_qos(text)
    elif "prio-pfc" in text:
        qos = roce_tools.dcb_pfc(text)
    else:
        raise ParseError("no answer of mlnx_qos, of dcb pfc or of the check's own script")
    port = Port("the port", {"netdev": "IF"})
    found = _Found(port, Subject(), context)
    _priorities(found, [qos])
    what = f"one answer tells {len(found.measured)} of the facts only"
    return [*found.measured, Measurement("not_told", len(found.untold), "facts", warnings=(what,))]


CHECK = Check(
    name="roce_config", title="RoCE ports: lossless priority, congestion control, marking", scope=Scope.NODE,
    needs=("roce",), uses=("mlnx_qos", "dcb", "lldptool", "cma_roce_tos", "cma_roce_mode", "ethtool"),
    params=DEFAULTS, steps=steps, parse=parse, read=read, seconds=1.0, doc=__doc__ or "", again_after_load=True,
)
