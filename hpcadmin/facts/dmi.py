"""Vendor, product, serials, UUID and BIOS from /sys/class/dmi/id, and from `dmidecode` where root may be asked.

Serials and the UUID are root's: `sudo -n` only where it was allowed for this fact.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, pairs
from hpcadmin.facts._dmidecode import Block, blocks, said
from hpcadmin.facts._reading import Document, Reading

NAME = "dmi"
COMMAND = r"""
d=/sys/class/dmi/id
t=/proc/device-tree
if [ ! -d $d ]; then
  [ -r $t/model ] || return 127
  for k in product_name=model product_serial=system-id product_serial=serial-number; do
    v=; { read -r v <$t/${k#*=}; } 2>/dev/null
    [ -n "$v" ] && echo "${k%%=*}=$v"
  done
  return 0
fi
l=
for k in sys_vendor product_name product_version product_sku product_serial product_uuid board_vendor board_name \
  board_serial chassis_serial bios_vendor bios_version bios_date bios_release; do
  [ -e $d/$k ] || continue
  v=
  if [ -r $d/$k ]; then { read -r v <$d/$k; } 2>/dev/null; echo "$k=$v"; else l="$l $k"; fi
done
[ -n "$l" ] || return 0
if [ -n "$SUDO" ]; then
  if command -v dmidecode >/dev/null 2>&1; then limit 5 $SUDO dmidecode -q -t 0,1,2,3 2>/dev/null
  else for k in $l; do v=$(limit 5 $SUDO head -n 1 $d/$k 2>/dev/null) && echo "$k=$v"; done
  fi && return 0
fi
echo "needs_root=${l# }"
"""
# dmidecode's structures and fields by the kernel's names.
_FIELDS = {
    0: {"Vendor": "bios_vendor", "Version": "bios_version", "Release Date": "bios_date"},
    1: {"Manufacturer": "sys_vendor", "Product Name": "product_name", "Version": "product_version",
        "Serial Number": "product_serial", "UUID": "product_uuid", "SKU Number": "product_sku"},
    2: {"Manufacturer": "board_vendor", "Product Name": "board_name", "Serial Number": "board_serial"},
    3: {"Serial Number": "chassis_serial"},
}
_TITLES = {"BIOS Information": 0, "System Information": 1, "Base Board Information": 2, "Chassis Information": 3}
_KEYS = frozenset(key for keys in _FIELDS.values() for key in keys.values()) | {"bios_release", "needs_root"}
FORMS = ("text",)
MARKS = ("DMI type",)


def parse(text: str) -> dict[str, str]:
    """The fields that say something, by the kernel's names; what is not readable or not filled in is left out, and
    named in `needs_root` where only root may read it."""
    lines = lines_of(text, "/sys/class/dmi/id")
    found = {key: clean(value.replace("\0", "")) for key, value in pairs(lines, "=") if key in _KEYS}
    for key, value in _from_titles(text.split("\n")).items():
        found.setdefault(key, value)
    if not found:
        raise ParseError("/sys/class/dmi/id has no readable field")
    return {key: value for key, value in found.items() if key == "needs_root" or said(value)}


def _from_titles(lines: list[str]) -> dict[str, str]:
    """`dmidecode -q` leaves the handles out: a structure is a title and indented lines."""
    found: dict[str, str] = {}
    kind: int | None = None
    for line in lines:
        if line[:1].strip():
            kind = _TITLES.get(line.strip())
        elif kind is not None and ":" in line:
            key, _, value = line.strip().partition(":")
            if key in _FIELDS[kind]:
                found.setdefault(_FIELDS[kind][key], clean(value))
    return found


def _from_blocks(found: Iterable[Block]) -> dict[str, str]:
    values: dict[str, str] = {}
    for block in found:
        for key, name in _FIELDS.get(block.type, {}).items():
            if said(block.fields.get(key)):
                values.setdefault(name, said(block.fields[key]))
    return values


def read(document: Document) -> tuple[Reading, ...]:
    """The system that an output of dmidecode in the document describes."""
    if not any("DMI type" in line for line in document.lines):
        return ()
    found = [block for block in blocks(document.lines) if block.type in _FIELDS]
    values = _from_blocks(found)
    if not values:
        return ()
    known = {key: values.get(name) for key, name in (
        ("vendor", "sys_vendor"), ("product", "product_name"), ("serial", "product_serial"), ("uuid", "product_uuid"),
        ("board_serial", "board_serial"), ("chassis_serial", "chassis_serial"), ("bios", "bios_version"),
        ("bios_date", "bios_date"))}
    return (Reading("dmidecode", found[0].first, found[-1].last, values, known),)
