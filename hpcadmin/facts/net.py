"""Network interfaces from /sys/class/net."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, fields_of, lines_of, maybe_integer, natural, pci_address, quote

NAME = "net"
LIMIT = 1024 * 1024
COMMAND = r"""
[ -d /sys/class/net ] || return 127
for d in /sys/class/net/*; do
  [ -d "$d" ] || continue
  t=; m=; o=; u=; s=; p=; D=; x=; b=; S=; M=; V=; P=
  { read -r t <$d/type; } 2>/dev/null
  { read -r m <$d/address; } 2>/dev/null
  { read -r o <$d/operstate; } 2>/dev/null
  { read -r u <$d/mtu; } 2>/dev/null
  { read -r s <$d/speed; } 2>/dev/null
  [ -d $d/bonding ] && b=bond && { read -r S <$d/bonding/slaves; } 2>/dev/null
  [ -d $d/bridge ] && b=bridge
  [ -e $d/device ] && cd -P $d/device 2>/dev/null && p=${PWD##*/}
  [ -e $d/device/driver ] && cd -P $d/device/driver 2>/dev/null && D=${PWD##*/}
  [ -e $d/device/physfn ] && x=vf && cd -P $d/device/physfn 2>/dev/null && x=${PWD##*/}
  [ -e $d/master/bonding ] && cd -P $d/master 2>/dev/null && M=${PWD##*/}
  { read -r V <$d/device/sriov_numvfs; } 2>/dev/null
  { read -r P <$d/phys_port_name; } 2>/dev/null
  printf 'net=%s\ttype=%s\tmac=%s\tstate=%s\tmtu=%s\tspeed=%s\tdevice=%s\tdriver=%s\tvf=%s\tkind=%s\tbonded=%s\tbond=%s\tvfs=%s\tportname=%s\n' \
    "${d##*/}" "$t" "$m" "$o" "$u" "$s" "$p" "$D" "$x" "$b" "$S" "$M" "$V" "$P"
done
cd /
echo end=net
"""  # noqa: E501
# Of a switch port in the card that stands for a VF or for the host: no port of the machine.
_REPRESENTOR = re.compile(r"(?:c[0-9]{1,3})?pf[0-9]{1,3}(?:vf[0-9]{1,4}|sf[0-9]{1,4}|hpf)\Z|pf[0-9]{1,3}hpf\Z")


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
    pf: str = ""                     # of a VF: the physical function's PCI address
    vfs: int | None = None           # SR-IOV VFs that are on
    bond: str = ""                   # the bond that it belongs to
    bonded: tuple[str, ...] = ()     # of a bond: its members
    representor: bool = False


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
            driver=clean(values.get("driver", "")), vf=bool(values.get("vf")), kind=clean(values.get("kind", "")),
            pf=pci_address(values.get("vf", "")), vfs=maybe_integer(values.get("vfs")),
            bond=clean(values.get("bond", ""), 64),
            bonded=tuple(clean(member, 64) for member in values.get("bonded", "").split()[:64]),
            representor=bool(_REPRESENTOR.match(values.get("portname", ""))),
        ))
    return tuple(sorted(found, key=lambda interface: natural(interface.name)))
