"""The ports of a node that carry RoCE, as the node's own script tells of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib import roce_tools
from hpcadmin.checklib.roce_tools import Qos

SCRIPT = r"""
sys=/sys
PATH=$PATH${1:+:$1}:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
say() { printf '%s: %s\n' "$1" "$2"; }
one() {
    first=
    if [ -r "$1" ]; then { IFS= read -r first <"$1"; } 2>/dev/null; echo "${first:-none}"; else echo -; fi
}
tell() {
    name=$1
    shift
    path=$(command -v "$1") || { say "$port without" "$1"; return; }
    shift
    echo "# begin $port $name"
    told=$(timeout 10 "$path" "$@" 2>&1)
    status=$?
    printf '%s\n' "$told" | head -n "${lines:-200}" | sed 's/^/| /'
    echo "# status $port $name $status"
}
stats() {
    path=$(command -v ethtool) || return 127
    "$path" -S "$1" >"$tmp" 2>&1 || { s=$?; cat "$tmp"; return "$s"; }
    grep -E -e '[rt]x_prio[0-7]_(pause|buf_discard|cong_discard|discards):' -e '[rt]x_pause_storm' \
        -e '[rt]x_(global_)?pause' -e discards_phy "$tmp"
    return 0
}
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' 0
echo '# hpcadmin roce_config 1'
say node "${SLURMD_NODENAME:--}"
say host "$(uname -n)"
count=0
for at in "$sys"/class/infiniband/*/ports/*; do
    [ -d "$at" ] || continue
    count=$((count + 1))
    number=${at##*/}
    device=${at%/ports/*}
    device=${device##*/}
    port=$device/$number
    echo "# port $port"
    say link_layer "$(one "$at/link_layer")"
    say state "$(one "$at/state")"
    net=-
    for candidate in "$sys/class/infiniband/$device/device/net"/*; do
        [ -d "$candidate" ] || continue
        own=$(one "$candidate/dev_port")
        case $own in -|none) own=0 ;; esac
        { [ "$net" = - ] || [ "$own" = $((number - 1)) ]; } && net=${candidate##*/}
    done
    [ "$net" = - ] && net=$(one "$at/gid_attrs/ndevs/0")
    say netdev "$net"
    types=$(cat "$at"/gid_attrs/types/* 2>/dev/null | sort | uniq -c | tr -s ' \n' ' ,')
    say gid_types "${types:--}"
    say traffic_class "$(one "$sys/class/infiniband/$device/tc/$number/traffic_class")"
    say default_roce_tos "$(one "$sys/kernel/config/rdma_cm/$device/ports/$number/default_roce_tos")"
    say default_roce_mode "$(one "$sys/kernel/config/rdma_cm/$device/ports/$number/default_roce_mode")"
    eth=$sys/class/net/$net
    say mtu "$(one "$eth/mtu")"
    say qos_trust "$(one "$eth/qos/trust")"
    for side in np rp; do
        on=
        for prio in 0 1 2 3 4 5 6 7; do on="$on $(one "$eth/ecn/roce_$side/enable/$prio")"; done
        say "ecn_$side" "${on# }"
    done
    say cnp_dscp "$(one "$eth/ecn/roce_np/cnp_dscp")"
    say cnp_priority "$(one "$eth/ecn/roce_np/cnp_802p_prio")"
    for name in np_cnp_sent rp_cnp_handled np_ecn_marked_roce_packets out_of_sequence packet_seq_err \
        local_ack_timeout_err rx_icrc_encapsulated; do
        say "counter $name" "$(one "$at/hw_counters/$name")"
    done
    case $(one "$at/link_layer") in Ethernet) ;; *) continue ;; esac
    case $net in -|none|*/*|.*) continue ;; esac
    tell mlnx_qos mlnx_qos -i "$net"
    tell dcb_pfc dcb pfc show dev "$net"
    tell dcb_app dcb -N app show dev "$net"
    tell dcb_trust dcb apptrust show dev "$net"
    tell lldptool lldptool -t -i "$net" -V PFC
    tell cma_roce_tos cma_roce_tos -d "$device"
    tell cma_roce_mode cma_roce_mode -d "$device" -p "$number"
    tell pause ethtool -a "$net"
    echo "# begin $port counters"
    told=$(stats "$net")
    status=$?
    printf '%s\n' "$told" | head -n 200 | sed 's/^/| /'
    echo "# status $port counters $status"
done
say ports "$count"
echo '# end roce_config'
"""
FACTS = ("link_layer", "state", "netdev", "gid_types", "traffic_class", "default_roce_tos", "default_roce_mode", "mtu",
         "qos_trust", "ecn_np", "ecn_rp", "cnp_dscp", "cnp_priority")
_PORT = re.compile(r"# port ([A-Za-z0-9_.-]{1,60}/\d{1,3})$")
_BEGIN = re.compile(r"# begin (\S{1,64}) ([a-z_]{1,20})$")
_STATUS = re.compile(r"# status (\S{1,64}) ([a-z_]{1,20}) (\d{1,3})$")
NOTHING = ("-", "none", "")


@dataclass
class Port:
    """One port of an RDMA device: facts by name, tools' answers, and tools that are not there."""

    name: str
    facts: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)

    @property
    def netdev(self) -> str:
        return self.facts["netdev"]

    @property
    def ethernet(self) -> bool:
        return self.facts["link_layer"] == "Ethernet"

    @property
    def active(self) -> bool:
        return self.facts["state"] in ("4: ACTIVE", "5: ACTIVE_DEFER")

    def fact(self, name: str) -> str | None:
        value = self.facts.get(name, "-")
        return None if value in NOTHING else value

    def answer(self, name: str) -> str | None:
        """What a tool answered, where it ended well."""
        text, status = self.answers.get(name, ("", 1))
        return text if status == 0 and text.strip() else None

    def qos(self, name: str, read: Callable[[str], Qos]) -> Qos:
        text = self.answer(name)
        return read(text) if text is not None else Qos()

    def why_not(self, *names: str) -> str:
        """Why none of these tools told anything."""
        said = []
        for name in names:
            text, status = self.answers.get(name, ("", 0))
            if name in self.answers:
                lines = [line for line in lib.lines_of(text) if line]
                said.append(f"{name} ended with status {status}" + (f": {lines[-1]}" if lines else ""))
        absent = sorted(set(self.without))
        return "; ".join([*said, *([f"{', '.join(absent)} not there"] if absent else [])])[:300] or "no source tells it"


def read_node(text: str) -> tuple[dict[str, str], list[Port]]:
    """The node's facts and its ports. ParseError where the output is not whole."""
    lines = lib.own_output(text, "roce_config")
    begin, end = lines.index("# hpcadmin roce_config 1"), lines.index("# end roce_config")
    lib.no_fatal_lines([*lines[:begin], *lines[end + 1:]])
    ports: list[Port] = []
    head: dict[str, str] = {}
    reading = ""
    inside: list[str] = []
    for line in lines[begin + 1:end]:
        port, opened, closed = _PORT.match(line), _BEGIN.match(line), _STATUS.match(line)
        if reading and closed and f"{closed[1]} {closed[2]}" == reading:
            ports[-1].answers[closed[2]] = ("\n".join(inside) + "\n", int(closed[3]))
            reading, inside = "", []
        elif reading:
            if not line.startswith("|"):
                raise ParseError(f"{reading} does not end: cut off, or several runs mixed")
            inside.append(line[1:].strip())
        elif port:
            ports.append(Port(port[1]))
        elif opened and ports and opened[1] == ports[-1].name and opened[2] not in ports[-1].answers:
            reading = f"{opened[1]} {opened[2]}"
        else:
            _take(line, head, ports)
    if reading:
        raise ParseError(f"{reading} does not end: cut off")
    _whole(head, ports)
    return head, ports


def _take(line: str, head: dict[str, str], ports: Sequence[Port]) -> None:
    key, mark, value = line.partition(": ")
    if not mark or not value:
        raise ParseError(f"unknown line {lib.shown(line)}")
    if ports and key == f"{ports[-1].name} without":
        ports[-1].without.append(lib.shown(value))
        return
    table = head if key in ("node", "host", "ports") or not ports else ports[-1].facts
    if key in table or (table is not head and key not in FACTS and not key.startswith("counter ")):
        raise ParseError(f"{lib.shown(key)} is told twice or is unknown: several runs mixed")
    table[key] = lib.shown(value)


def _whole(head: dict[str, str], ports: Sequence[Port]) -> None:
    if set(head) != {"node", "host", "ports"} or head["ports"] != str(len(ports)):
        raise ParseError(f"{head.get('ports', 'an unknown number of')} ports are announced, {len(ports)} are told")
    if len({port.name for port in ports}) != len(ports):
        raise ParseError("a port is told twice: several runs mixed")
    for port in ports:
        missing = [name for name in FACTS if name not in port.facts]
        if missing:
            raise ParseError(f"{port.name}: {', '.join(missing)} not told: cut off")
        wanted = {"counters"} if port.ethernet and port.netdev not in NOTHING else set()
        if wanted - set(port.answers):
            raise ParseError(f"{port.name}: the counters are not there: cut off")
        for side in ("ecn_np", "ecn_rp"):
            words = port.facts[side].split()
            if len(words) != 8 or set(words) - {"0", "1", "-", "none"}:
                raise ParseError(f"{port.name}: {side} is {port.facts[side]}")


def sources(port: Port) -> list[Qos]:
    """What each tool tells, the vendor's own first. ParseError where an answer is torn."""
    trust = port.fact("qos_trust")
    return [port.qos("mlnx_qos", roce_tools.mlnx_qos), port.qos("dcb_pfc", roce_tools.dcb_pfc),
            port.qos("dcb_app", roce_tools.dcb_app), port.qos("dcb_trust", roce_tools.dcb_trust),
            port.qos("lldptool", roce_tools.lldptool_pfc), Qos(trust=trust.lower() if trust else None)]
