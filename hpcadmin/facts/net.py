"""Network interfaces from /sys/class/net."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, fields_of, lines_of, maybe_integer, natural, pci_address, quote

NAME = "net"
LIMIT = 1024 * 1024
COMMAND = r"""
[ -d /sys/class/net ] || return 127
for d in /sys/class/net/*; do
  [ -d "$d" ] || continue
  t=; m=; o=; u=; s=; p=; D=; x=; b=
  { read -r t <$d/type; } 2>/dev/null
  { read -r m <$d/address; } 2>/dev/null
  { read -r o <$d/operstate; } 2>/dev/null
  { read -r u <$d/mtu; } 2>/dev/null
  { read -r s <$d/speed; } 2>/dev/null
  [ -d $d/bonding ] && b=bond
  [ -d $d/bridge ] && b=bridge
  [ -e $d/device ] && cd -P $d/device 2>/dev/null && p=${PWD##*/}
  [ -e $d/device/driver ] && cd -P $d/device/driver 2>/dev/null && D=${PWD##*/}
  [ -e $d/device/physfn ] && x=vf
  printf 'net=%s\ttype=%s\tmac=%s\tstate=%s\tmtu=%s\tspeed=%s\tdevice=%s\tdriver=%s\tvf=%s\tkind=%s\n' \
    "${d##*/}" "$t" "$m" "$o" "$u" "$s" "$p" "$D" "$x" "$b"
done
cd /
echo end=net
"""


@dataclass(frozen=True)
class Interface:
    name: str
    type: int | None                 # ARPHRD: 1 Ethernet, 32 InfiniBand, 772 loopback
    mac: str = ""
    state: str = ""
    mtu: int | None = None
    speed_mbps: int | None = None
    device: str = ""                 # name of the bus device behind it; "": virtual
    pci: str = ""
    driver: str = ""
    vf: bool = False
    kind: str = ""


def parse(text: str) -> tuple[Interface, ...]:
    lines = lines_of(text, "/sys/class/net")
    if lines[-1] != "end=net":
        raise ParseError("the list of network interfaces is cut off")
    found = []
    for line in lines[:-1]:
        values = fields_of(line)
        name = clean(values.get("net", ""), 64)
        if not name or "type" not in values:
            raise ParseError(f"{quote(line)} does not describe a network interface")
        device = clean(values.get("device", ""))
        found.append(Interface(
            name=name, type=maybe_integer(values["type"]), mac=clean(values.get("mac", "")).lower(),
            state=clean(values.get("state", "")), mtu=maybe_integer(values.get("mtu")),
            speed_mbps=maybe_integer(values.get("speed")) or None, device=device, pci=pci_address(device),
            driver=clean(values.get("driver", "")), vf=values.get("vf") == "vf", kind=clean(values.get("kind", "")),
        ))
    return tuple(sorted(found, key=lambda interface: natural(interface.name)))
