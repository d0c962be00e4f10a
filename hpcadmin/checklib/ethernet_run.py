"""What the two ends of an Ethernet test run, and what each of them tells: facts, pings and iperf3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib import iperf_json, ping
from hpcadmin.checklib.iperf import BROKEN, Run
from hpcadmin.checklib.ping import Ping

PINGS, IPERFS = ("small", "large", "of1280", "of1500", "of4200"), ("udp", "udp_back", "tcp", "tcp_back")
BLOCK = 131072            # bytes that TCP writes at a time

# Both ends ask the way to the other; each of the four servers of iperf3 serves one client and ends.
SCRIPT = r"""
role=$1 peer=$2 mtu=$3 ping=$4 iperf=$5 port=$6 rate=$7 udp=$8 tcp=$9
shift 9
streams=$1
PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
say() { printf '%s: %s\n' "$1" "$2"; }
one() { head -n 1 "$1" 2>/dev/null | tr -d '\r' | grep . || echo -; }
run() {
    name=$1 limit=$2
    shift 2
    echo "# begin $name"
    timeout -s INT -k 5 "$limit" "$@" 2>&1
    last=$?
    printf '\n# status %s %s\n' "$name" "$last"
}
dropped() {
    awk '$1 == "Udp:" { if (!n++) split($0, h); else for (i = 2; i <= NF; i++) if (h[i] == "RcvbufErrors") s += $i }
         $1 == "Udp6RcvbufErrors" { s += $2 } END { print s + 0 }' /proc/net/snmp /proc/net/snmp6 2>/dev/null
}
echo '# hpcadmin ethernet 1'
say role "$role"
say node "${SLURMD_NODENAME:--}"
say host "$(uname -n)"
if [ "$role" = server ]; then
    for n in 3 2 1 0; do
        "$iperf" -s -1 -p $((port + n)) >/dev/null 2>&1 &
        pids="$! ${pids:-}"
    done
fi
address=$(getent ahosts "$peer" | sed -n '1s/[[:space:]].*//p')
address=${address:-$peer}
route=$(ip -o route get "$address" 2>&1 | head -n 1)
dev=$(printf '%s\n' "$route" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
case $dev in */* | .*) dev= ;; esac
at=/sys/class/net/${dev:-none}
kind=virtual
[ -e "/proc/net/vlan/${dev:-none}" ] && kind=vlan
[ -e "$at/bonding" ] && kind=bond
[ -e "$at/device" ] && kind=physical
say peer "$address"
say route "${route:--}"
say interface "${dev:--}"
say mtu "$(one "$at/mtu")"
say speed "$(one "$at/speed")"
say kind "$kind"
say dropped_before "$(dropped)"
case $address in *:*) head=48 ;; *) head=28 ;; esac
run small 15 "$ping" -n -c 5 -i 0.2 -W 2 "$address"
small=$last
run large 15 "$ping" -n -M do -s $((mtu - head)) -c 5 -i 0.2 -W 2 "$address"
if [ "$last" != 0 ] && [ "$small" = 0 ]; then
    for n in 1280 1500 4200; do
        [ "$n" -lt "$mtu" ] && run "of$n" 10 "$ping" -n -M do -s $((n - head)) -c 2 -i 0.2 -W 1 "$address"
    done
fi
if [ "$role" = client ]; then
    run udp $((udp + 10)) "$iperf" -c "$address" -p "$port" -u -b "${rate}M" -l 1200 -t "$udp" -J
    if [ "$last" = 0 ] || [ "$small" = 0 ]; then
        run udp_back $((udp + 10)) "$iperf" -c "$address" -p $((port + 1)) -u -b "${rate}M" -l 1200 -t "$udp" -R -J
        run tcp $((tcp + 10)) "$iperf" -c "$address" -p $((port + 2)) -P "$streams" -l 128K -t "$tcp" -J
        run tcp_back $((tcp + 10)) "$iperf" -c "$address" -p $((port + 3)) -P "$streams" -l 128K -t "$tcp" -R -J
    fi
else
    ends=
    for n in $pids; do wait "$n"; ends="$ends $?"; done
    say servers "${ends# }"
fi
say dropped_after "$(dropped)"
echo '# end ethernet'
"""
KEYS = ("role", "node", "host", "peer", "route", "interface", "mtu", "speed", "kind", "dropped_before", "servers",
        "dropped_after")
_BEGIN = re.compile(r"# begin ([a-z_0-9]{1,20})$")
_STATUS = re.compile(r"# status ([a-z_0-9]{1,20}) ([0-9]{1,3})$")


@dataclass(frozen=True)
class Section:
    """What one program printed and how it ended."""

    text: str
    status: int


@dataclass(frozen=True)
class Side:
    """One end of the test."""

    role: str
    facts: dict[str, str]
    sections: dict[str, Section] = field(default_factory=dict)

    @property
    def interface(self) -> str:
        return self.facts["interface"]

    @property
    def loopback(self) -> bool:
        return self.interface == "lo" or self.facts["route"].startswith("local ")

    def number(self, key: str) -> int | None:
        """A number of the kernel; None where it tells none (a speed of -1 is none)."""
        text = self.facts[key]
        return int(text) if re.fullmatch("[0-9]{1,12}", text) else None

    @property
    def speed_gbps(self) -> float | None:
        """Of an interface with hardware behind it: a virtual one names any number."""
        speed = self.number("speed")
        return speed / 1000 if speed and self.facts["kind"] != "virtual" else None

    @property
    def overflowed(self) -> int:
        """Datagrams that came, and that the node itself dropped because nobody read them in time."""
        before, after = self.number("dropped_before"), self.number("dropped_after")
        return max(0, after - before) if before is not None and after is not None else 0

    def ping(self, name: str) -> Ping | None:
        section = self.sections.get(name)
        if section is None:
            return None
        found = ping.parse(section.text)
        if section.status and found.received:
            found.doubts.append(f"ping ended with status {section.status}")
        return found

    def iperf(self, name: str) -> Run:
        """ParseError where it gave no sound result."""
        section = self.sections.get(name)
        if section is None:
            raise ParseError(f"{name}: iperf3 was not started")
        runs = iperf_json.runs_of(lib.strip_terminal(section.text)) if iperf_json.is_json(section.text) else []
        problems = [p for run in runs for p in run.problems]
        if section.status in (124, 137):
            problems.insert(0, "iperf3 did not end in time")
        elif section.status and not problems:
            problems = [f"iperf3 ended with status {section.status}: {_last(section.text)}"]
        if len(runs) != 1 and not problems:
            problems = [f"iperf3 printed {len(runs)} results" if runs else f"iperf3 printed no result: "
                        f"{_last(section.text)}"]
        if problems:
            raise ParseError(f"{name}: {problems[0]}")
        return runs[0]


def _last(text: str) -> str:
    lines = [line for line in lib.lines_of(text) if line]
    return lib.shown(lines[-1]) if lines else "nothing"


def read_side(text: str) -> Side:
    """One end's output. ParseError where it is not whole."""
    lines = lib.own_output(text, "ethernet")
    begin, end = lines.index("# hpcadmin ethernet 1"), lines.index("# end ethernet")
    lib.no_fatal_lines([*lines[:begin], *lines[end + 1:]], also=BROKEN)
    told, sections = _split(lines[begin + 1:end])
    facts = lib.told_once(told, KEYS, ": ")
    role = facts.get("role", "")
    wanted = [key for key in KEYS if key != "servers" or role == "server"]
    missing = [key for key in wanted if not facts.get(key)]
    if role not in ("server", "client") or missing:
        raise ParseError(f"{', '.join(missing) or 'role'} not told: cut off, or several runs mixed")
    if list(facts) != wanted or len(told) != len(wanted):
        raise ParseError("not told in order: cut off, or several runs mixed")
    if role == "server" and not re.fullmatch(r"\d{1,3}(?: \d{1,3}){3}", facts["servers"]):
        raise ParseError(f"servers is {lib.shown(facts['servers'])!r} where 4 servers ended")
    known = [name for name in (*PINGS, *IPERFS) if name in sections]
    if list(sections) != known or not {"small", "large"} <= set(sections):
        raise ParseError(f"the parts are {', '.join(sections) or 'none'}: cut off, or several runs mixed")
    if set(facts["kind"].split()) - {"virtual", "vlan", "bond", "physical"}:
        raise ParseError(f"kind is {lib.shown(facts['kind'])}")
    return Side(role, facts, sections)


def _split(lines: Sequence[str]) -> tuple[list[str], dict[str, Section]]:
    """The lines outside of all parts, and the parts."""
    outside: list[str] = []
    sections: dict[str, Section] = {}
    name = ""
    inside: list[str] = []
    for line in lines:
        begin, status = _BEGIN.match(line), _STATUS.match(line)
        if begin:
            if name or begin[1] in sections:
                raise ParseError(f"part {begin[1]} begins twice or inside of another: several runs mixed")
            name, inside = begin[1], []
        elif status:
            if status[1] != name:
                raise ParseError(f"part {status[1]} ends and had not begun: cut off")
            sections[name] = Section("\n".join(inside) + "\n", int(status[2]))
            name = ""
        else:
            (inside if name else outside).append(line)
    if name:
        raise ParseError(f"part {name} does not end: cut off")
    return outside, sections
