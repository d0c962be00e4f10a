"""Disks from /sys/block and `lsblk`: model, size, serial, firmware, transport, and where they are plugged in."""

from __future__ import annotations

import json
import re
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, fields_of, lines_of, maybe_integer, natural, pci_address, quote
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.model import Disk

NAME = "disks"
ORDER = 55
LIMIT = 1024 * 1024
COMMAND = r"""
[ -d /sys/block ] || return 127
for d in /sys/block/*; do
  [ -e $d/device ] || continue
  h=0; { read -r h <$d/hidden; } 2>/dev/null
  [ "$h" = 1 ] && continue
  m=; s=; f=; z=; r=; t=; a=; p=
  { read -r z <$d/size; } 2>/dev/null
  { read -r r <$d/queue/rotational; } 2>/dev/null
  { read -r m <$d/device/model; } 2>/dev/null
  { read -r s <$d/device/serial; } 2>/dev/null
  { read -r f <$d/device/firmware_rev || read -r f <$d/device/rev; } 2>/dev/null
  for c in $d/device $d/device/nvme[0-9]*; do
    [ -e "$c" ] || continue
    { read -r t <$c/transport; } 2>/dev/null
    cd -P $c 2>/dev/null || continue
    case $PWD in */pci[0-9]*) p=$PWD; break;; esac
  done
  while [ -n "$p" ]; do
    case ${p##*/} in *:*:*.[0-7]) { read -r a <$p/numa_node; } 2>/dev/null; p=${p##*/}; break;; esac
    p=${p%/*}
  done
  printf 'disk=%s\tsectors=%s\trota=%s\tmodel=%s\tserial=%s\tfw=%s\ttran=%s\tpci=%s\tnuma=%s\n' \
    "${d##*/}" "$z" "$r" "$m" "$s" "$f" "$t" "$p" "$a"
done
cd /
run 5 lsblk -P -b -d -o NAME,TYPE,SIZE,MODEL,SERIAL,REV,TRAN,ROTA 2>/dev/null
echo end=disks
"""
FORMS = ("text", "json")
MARKS = ('NAME="', "blockdevices")
_PAIR = re.compile(r'([A-Z][A-Z:_-]{0,20})="((?:[^"\\]|\\.){0,300})"')
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")
# Not disks of the node, whatever lsblk calls them.
_NO_DISK = re.compile(r"(loop|ram|zram|sr|fd|nbd|dm-|md)[0-9]")


def parse(text: str) -> tuple[Disk, ...]:
    """() on a node without disks; the closing line tells that from a cut-off list."""
    lines = lines_of(text, "/sys/block")
    if lines[-1] != "end=disks":
        raise ParseError("the list of disks is cut off")
    found: dict[str, Disk] = {}
    told: dict[str, Disk] = {}
    for line in lines[:-1]:
        if line.startswith("disk="):
            disk = _from_sysfs(line)
            found[disk.name] = disk
        elif line.startswith("NAME="):
            pairs = {key: _HEX.sub(_unescape, value) for key, value in _PAIR.findall(line)}
            other = _from_lsblk({key.lower(): value for key, value in pairs.items()})
            if other is not None:
                told[other.name] = other
        else:
            raise ParseError(f"{quote(line)} describes no disk")
    joined = [_join(disk, told.get(name)) for name, disk in found.items() if not _NO_DISK.match(name)]
    return tuple(sorted(joined, key=lambda disk: natural(disk.name)))


def read(document: Document) -> tuple[Reading, ...]:
    """The disks of an output of `lsblk -J` or `lsblk -P`."""
    disks, first, last, kind = _in_json(document) if document.form == "json" else _in_pairs(document)
    if not disks:
        return ()
    known: dict[str, Any] = {"disks": [
        {"name": disk.name, "model": disk.model or None, "size_bytes": disk.size_bytes, "serial": disk.serial or None}
        for disk in disks]}
    return (Reading(kind, first, last, tuple(disks), known),)


def _in_pairs(document: Document) -> tuple[list[Disk], int, int, str]:
    at = [number for number, line in enumerate(document.lines, 1)
          if line.lstrip().startswith('NAME="') and " TYPE=" in line]
    disks = []
    for number in at:
        pairs = {key.lower(): _HEX.sub(_unescape, value) for key, value in _PAIR.findall(document.lines[number - 1])}
        disks.append(_from_lsblk(pairs))
    return [disk for disk in disks if disk], (at or [1])[0], (at or [1])[-1], "lsblk -P"


def _in_json(document: Document) -> tuple[list[Disk], int, int, str]:
    nothing: tuple[list[Disk], int, int, str] = [], 1, 1, "lsblk -J"
    if "blockdevices" not in document.text:
        return nothing
    try:
        data = json.loads(document.text)
    except (ValueError, RecursionError) as exc:
        raise ParseError(f"lsblk -J: {clean(str(exc))}", where=document.name) from exc
    devices = data.get("blockdevices") if isinstance(data, dict) else None
    if not isinstance(devices, list):
        return nothing
    disks = [_from_lsblk({str(key).lower(): "" if value is None else str(value) for key, value in device.items()})
             for device in devices if isinstance(device, dict)]
    return [disk for disk in disks if disk], 1, len(document.lines), "lsblk -J"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def _from_sysfs(line: str) -> Disk:
    values = fields_of(line)
    name = clean(values["disk"], 64) if values.get("disk") else ""
    sectors = maybe_integer(values.get("sectors"))
    if not name or "sectors" not in values:
        raise ParseError(f"{quote(line)} describes no disk")
    transport = clean(values.get("tran", ""), 40)
    return Disk(
        name=name, model=clean(values.get("model", "")), serial=clean(values.get("serial", "")),
        size_bytes=sectors * 512 if sectors else None, firmware=clean(values.get("fw", "")),
        rotational={"0": False, "1": True}.get(values.get("rota", "")),
        transport="nvme" if transport in ("pcie", "") and name.startswith("nvme") else transport,
        pci=pci_address(values.get("pci", "")), numa=maybe_integer(values.get("numa")),
    )


def _from_lsblk(values: dict[str, str]) -> Disk | None:
    name = clean(values.get("name", ""), 64)
    if not name or values.get("type", "disk") not in ("disk", "mpath") or _NO_DISK.match(name):
        return None
    return Disk(
        name=name, model=clean(values.get("model", "")), serial=clean(values.get("serial", "")),
        size_bytes=maybe_integer(values.get("size")) or None, firmware=clean(values.get("rev", "")),
        rotational={"0": False, "1": True, "true": True, "false": False}.get(values.get("rota", "").strip().lower()),
        transport=clean(values.get("tran", ""), 40),
    )


def _join(disk: Disk, told: Disk | None) -> Disk:
    """sysfs's words, and lsblk's (udev's) for what sysfs does not tell."""
    if told is None:
        return disk
    return Disk(
        name=disk.name, model=told.model if len(told.model) > len(disk.model) else disk.model,
        size_bytes=disk.size_bytes or told.size_bytes, serial=disk.serial or told.serial,
        firmware=disk.firmware or told.firmware,
        rotational=disk.rotational if disk.rotational is not None else told.rotational,
        transport=disk.transport or told.transport, pci=disk.pci, numa=disk.numa,
    )
