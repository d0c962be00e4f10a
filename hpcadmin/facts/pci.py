"""PCI devices from /sys/bus/pci/devices: GPUs, accelerators, network and storage controllers, and the bridges above."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, fields_of, lines_of, maybe_integer, pci_address, quote
from hpcadmin.model import PciDevice

NAME = "pci"
LIMIT = 1024 * 1024
COMMAND = r"""
[ -d /sys/bus/pci/devices ] || return 127
for d in /sys/bus/pci/devices/*; do
  [ -e "$d" ] || continue
  c=; { read -r c <$d/class; } 2>/dev/null
  v=; { read -r v <$d/vendor; } 2>/dev/null
  case $c:$v in 0x01*|0x02*|0x03*|0x0604*|0x0b*|0x12*|0x0680*:0x10de|'':*) ;; *) continue;; esac
  i=; a=; l=; s=; w=; S=; W=; D=
  { read -r i <$d/device; read -r a <$d/numa_node; read -r l <$d/local_cpulist; } 2>/dev/null
  { read -r s <$d/current_link_speed; } 2>/dev/null
  { read -r w <$d/current_link_width; } 2>/dev/null
  { read -r S <$d/max_link_speed; } 2>/dev/null
  { read -r W <$d/max_link_width; } 2>/dev/null
  [ -e $d/driver ] && cd -P $d/driver 2>/dev/null && D=${PWD##*/}
  P=; cd -P "$d" 2>/dev/null && case $PWD in */pci[0-9a-f]*) P=${PWD##*/pci};; esac
  printf 'pci=%s\tclass=%s\tvendor=%s\tdevice=%s\tnuma=%s\tcpus=%s\tspeed=%s\twidth=%s\tmaxspeed=%s\tmaxwidth=%s\tdriver=%s\tpath=%s\n' \
    "${d##*/}" "$c" "$v" "$i" "$a" "$l" "$s" "$w" "$S" "$W" "$D" "$P"
done
cd /
echo end=pci
"""  # noqa: E501
_HEX = re.compile(r"0x([0-9a-fA-F]{4,6})\Z")
_ROOT = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}\Z")
_BRIDGE = "0604"
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s")
_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def parse(text: str) -> tuple[PciDevice, ...]:
    """In bus order as the kernel lists them; of the bridges, those that are above another of them. Raises ParseError
    when the closing line is missing."""
    lines = lines_of(text, "/sys/bus/pci/devices")
    if lines[-1] != "end=pci":
        raise ParseError("the list of PCI devices is cut off")
    devices = []
    for line in lines[:-1]:
        found = fields_of(line)
        address = pci_address(found.get("pci", ""))
        codes = [_HEX.match(found.get(key, "")) for key in ("class", "vendor", "device")]
        if not address or not all(codes):
            raise ParseError(f"{quote(line)} does not describe a PCI device")
        class_id, vendor_id, device_id = (match[1].lower() for match in codes if match)
        root, parent = _above(found.get("path", ""), address)
        devices.append(PciDevice(
            address=address, class_id=class_id, vendor_id=vendor_id, device_id=device_id,
            numa=maybe_integer(found.get("numa")), local_cpus=clean(found.get("cpus", "")),
            link=_link(found.get("speed", ""), found.get("width", "")),
            link_max=_link(found.get("maxspeed", ""), found.get("maxwidth", "")), driver=clean(found.get("driver", "")),
            parent=parent, root=root,
        ))
    return tuple(_without_idle_bridges(devices))


def _above(path: str, address: str) -> tuple[str, str]:
    """(root bus, bridge above) of "0000:15/0000:15:01.0/0000:16:00.0"."""
    parts = path.split("/")
    if len(parts) < 2 or not _ROOT.match(parts[0]) or pci_address(parts[-1]) != address:
        return "", ""
    return parts[0].lower(), pci_address(parts[-2]) if len(parts) > 2 else ""


def _without_idle_bridges(devices: list[PciDevice]) -> list[PciDevice]:
    by_address = {device.address: device for device in devices}
    kept: set[str] = set()
    for device in devices:
        above = device if not device.class_id.startswith(_BRIDGE) else None
        while above is not None and above.address not in kept:
            kept.add(above.address)
            above = by_address.get(above.parent)
    return [device for device in devices if device.address in kept]


def _link(speed: str, width: str) -> str:
    match, lanes = _SPEED.match(speed), maybe_integer(width)
    return f"{match[1]} GT/s x{lanes}" if match and lanes else ""


def link_numbers(link: str) -> tuple[int | None, int | None]:
    """(generation, width) of "32.0 GT/s x16"."""
    match = _SPEED.match(link)
    generation = _GENERATION.get(float(match[1])) if match else None
    return generation, maybe_integer(link.rpartition(" x")[2])
