"""RDMA devices and their ports from /sys/class/infiniband (InfiniBand and RoCE)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, fields_of, leading_float, lines_of, maybe_integer, natural, pci_address, quote

NAME = "infiniband"
LIMIT = 1024 * 1024
COMMAND = r"""
I=/sys/class/infiniband
[ -d $I ] || { echo end=infiniband; return 0; }
for d in $I/*; do
  [ -d "$d" ] || continue
  f=; b=; h=; g=; a=; p=; D=; x=; e=; V=
  { read -r f <$d/fw_ver; } 2>/dev/null
  { read -r b <$d/board_id; } 2>/dev/null
  { read -r h <$d/hca_type; } 2>/dev/null
  { read -r g <$d/node_guid; } 2>/dev/null
  { read -r e <$d/node_desc; } 2>/dev/null
  { read -r a <$d/device/numa_node; } 2>/dev/null
  { read -r V <$d/device/sriov_numvfs; } 2>/dev/null
  [ -e $d/device ] && cd -P $d/device 2>/dev/null && p=${PWD##*/}
  [ -e $d/device/driver ] && cd -P $d/device/driver 2>/dev/null && D=${PWD##*/}
  [ -e $d/device/physfn ] && x=vf && cd -P $d/device/physfn 2>/dev/null && x=${PWD##*/}
  printf 'rdma=%s\tfw=%s\tpsid=%s\thca=%s\tguid=%s\tnuma=%s\tdevice=%s\tdriver=%s\tvf=%s\tvfs=%s\tdesc=%s\n' \
    "${d##*/}" "$f" "$b" "$h" "$g" "$a" "$p" "$D" "$x" "$V" "$e"
  for q in $d/ports/*; do
    [ -d "$q" ] || continue
    s=; y=; r=; l=; k=; n=; m=; i=; v=
    { read -r s <$q/state; } 2>/dev/null
    { read -r y <$q/phys_state; } 2>/dev/null
    { read -r r <$q/rate; } 2>/dev/null
    { read -r l <$q/lid; } 2>/dev/null
    { read -r k <$q/link_layer; } 2>/dev/null
    { read -r n <$q/gid_attrs/ndevs/0; } 2>/dev/null
    { read -r m <$q/sm_lid; } 2>/dev/null
    { read -r i <$q/gids/0; } 2>/dev/null
    # RoCE: the first GID of version 2 that holds an IPv4 address; entries without a type cannot be read
    c=0
    while [ "$k" = Ethernet ] && [ -z "$v" ] && [ $c -lt 32 ]; do
      t=; w=
      { read -r t <$q/gid_attrs/types/$c; } 2>/dev/null
      [ "$t" = 'RoCE v2' ] && { read -r w <$q/gids/$c; } 2>/dev/null
      case $w in 0000:0000:0000:0000:0000:ffff:*) v=$c ;; esac
      c=$((c + 1))
    done
    printf 'port=%s\tstate=%s\tphys=%s\trate=%s\tlid=%s\tlayer=%s\tnetdev=%s\tsmlid=%s\tgid=%s\tgidv2=%s\n' \
      "${q##*/}" "$s" "$y" "$r" "$l" "$k" "$n" "$m" "$i" "$v"
  done
  for n in $d/device/net/*; do [ -d "$n" ] && printf 'net=%s\n' "${n##*/}"; done
done
cd /
echo end=infiniband
"""
_GUID = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}\Z")


@dataclass(frozen=True)
class Port:
    number: int
    state: str = ""                  # ACTIVE, DOWN, INIT, ARMED
    physical_state: str = ""         # LinkUp, Disabled, Polling
    rate_text: str = ""
    rate_gbps: float | None = None
    lid: int | None = None
    link_layer: str = ""
    netdev: str = ""
    sm_lid: int | None = None
    gid: str = ""                    # the default one
    port_guid: str = ""
    active_mtu: int | None = None
    gid_index: int | None = None     # RoCE: of the first GID of version 2 that holds an IPv4 address


@dataclass(frozen=True)
class RdmaDevice:
    name: str
    firmware: str = ""
    psid: str = ""
    hca_type: str = ""
    guid: str = ""
    numa: int | None = None
    pci: str = ""
    driver: str = ""
    vf: bool = False
    pf: str = ""                     # of a VF: the physical function's PCI address
    vfs: int | None = None           # SR-IOV VFs that are on
    node_desc: str = ""
    virtual: bool = False            # no bus device behind it (Soft-RoCE)
    ports: tuple[Port, ...] = ()
    netdevs: tuple[str, ...] = field(default=())


def parse(text: str) -> tuple[RdmaDevice, ...]:
    """() on a node without RDMA devices: the closing line tells that from a cut-off list."""
    lines = lines_of(text, "/sys/class/infiniband")
    if lines[-1] != "end=infiniband":
        raise ParseError("the list of RDMA devices is cut off")
    heads: list[dict[str, str]] = []
    ports: list[list[Port]] = []
    nets: list[list[str]] = []
    for line in lines[:-1]:
        values = fields_of(line)
        if values.get("rdma"):
            heads.append(values)
            ports.append([])
            nets.append([])
        elif heads and values.get("port"):
            ports[-1].append(_port(values, line))
        elif heads and values.get("net"):
            nets[-1].append(clean(values["net"], 64))
        else:
            raise ParseError(f"{quote(line)} describes no RDMA device and no port")
    found = [_device(head, tuple(own), tuple(names)) for head, own, names in zip(heads, ports, nets, strict=True)]
    return tuple(sorted(found, key=lambda device: natural(device.name)))


def _device(values: dict[str, str], ports: tuple[Port, ...], netdevs: tuple[str, ...]) -> RdmaDevice:
    guid = values.get("guid", "").strip().lower()
    device = values.get("device", "")
    return RdmaDevice(
        name=clean(values["rdma"], 64), firmware=clean(values.get("fw", "")), psid=clean(values.get("psid", "")),
        hca_type=clean(values.get("hca", "")), guid=guid.replace(":", "") if _GUID.match(guid) else "",
        numa=maybe_integer(values.get("numa")), pci=pci_address(device), driver=clean(values.get("driver", "")),
        vf=bool(values.get("vf")), pf=pci_address(values.get("vf", "")), vfs=maybe_integer(values.get("vfs")),
        node_desc=clean(values.get("desc", "")), virtual=not device, ports=ports, netdevs=netdevs,
    )


def _port(values: dict[str, str], line: str) -> Port:
    number = maybe_integer(values["port"])
    if number is None:
        raise ParseError(f"{quote(line)}: the port has no number")
    rate, state = clean(values.get("rate", "")), after_colon(values.get("state", ""))
    layer, gid = clean(values.get("layer", "")), clean(values.get("gid", ""), 64)
    return Port(
        number=number, state=state, physical_state=after_colon(values.get("phys", "")), rate_text=rate,
        # What is printed while a port is down means nothing.
        rate_gbps=None if state == "DOWN" else leading_float(rate) or None,
        lid=hexadecimal(values.get("lid", "")), sm_lid=hexadecimal(values.get("smlid", "")), link_layer=layer,
        netdev=clean(values.get("netdev", ""), 64), gid=gid,
        port_guid=bare_guid(gid[20:]) if layer == "InfiniBand" and len(gid) == 39 else "",
        gid_index=maybe_integer(values.get("gidv2")),
    )


def hexadecimal(text: str) -> int | None:
    """A number as 0x33bf."""
    return int(text, 16) if re.match(r"0x[0-9a-fA-F]{1,8}\Z", text.strip()) else None


def bare_guid(text: str) -> str:
    """16 hex digits of 0x248a…, 248a:0703:…; "" when it is no GUID, or zero."""
    digits = text.strip().lower().removeprefix("0x").replace(":", "")
    return digits if re.match(r"[0-9a-f]{16}\Z", digits) and digits.strip("0") else ""


def port_state(text: str) -> str:
    """ACTIVE, DOWN, INIT, ARMED as the kernel says it, whatever the tool's words are; "" when not told."""
    word = text.strip().upper().removeprefix("PORT_")
    return {"INITIALIZING": "INIT", "INITIALIZE": "INIT", "ARM": "ARMED"}.get(word, word)


def after_colon(text: str) -> str:
    """ACTIVE for "4: ACTIVE"."""
    return clean(text.rpartition(":")[2])
