"""Vendor, product, serial and BIOS from /sys/class/dmi/id. Serials are root's: `sudo -n` only where asked for."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, pairs

NAME = "dmi"
COMMAND = r"""
d=/sys/class/dmi/id
[ -d $d ] || return 127
for k in sys_vendor product_name product_serial board_serial bios_vendor bios_version bios_date; do
  [ -e $d/$k ] || continue
  v=
  if [ -r $d/$k ]; then { read -r v <$d/$k; } 2>/dev/null
  elif [ -n "$SUDO" ]; then v=$($SUDO head -n 1 $d/$k 2>/dev/null)
  else continue
  fi
  echo "$k=$v"
done
"""
# What board makers leave in the fields they did not fill in.
_FILLERS = frozenset({"", "to be filled by o.e.m.", "default string", "not specified", "none", "n/a", "unknown",
                      "system serial number", "system product name", "system manufacturer", "0", "0123456789",
                      "123456789", "not applicable", "empty"})


def parse(text: str) -> dict[str, str]:
    """The fields that say something, by the kernel's names; what is not readable or not filled in is left out."""
    found = {key: clean(value) for key, value in pairs(lines_of(text, "/sys/class/dmi/id"), "=")}
    if not found:
        raise ParseError("/sys/class/dmi/id has no readable field")
    return {key: value for key, value in found.items() if value.lower() not in _FILLERS}
