"""What the board management controller tells: its firmware from /sys, the rest from `ipmitool`.

A BMC takes seconds to answer, so that it is asked only where `sudo` was allowed for this fact by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, quote
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.model import Bmc

NAME = "bmc"
ORDER = 95
WAIT_S = 20
COMMAND = r"""
b=
for d in /sys/bus/platform/devices/ipmi_bmc.*; do
  [ -d "$d" ] || continue
  b=1
  for k in firmware_revision manufacturer_id product_id; do
    v=; { read -r v <$d/$k; } 2>/dev/null && echo "sys $k=$v"
  done
done
for d in /dev/ipmi0 /dev/ipmi/0 /dev/ipmidev/0; do [ -e $d ] && b=1; done
[ -n "$b" ] || return 127
I=
[ -n "$SUDO" ] && I="$SUDO ipmitool"
if [ -z "$I" ]; then echo 'why=asked only where it is allowed by name'
elif ! command -v ipmitool >/dev/null 2>&1; then echo 'why=ipmitool is not installed'
else
  [ "$(id -u)" = 0 ] && I=ipmitool
  s=5
  for a in 'mc info' 'lan print' 'sdr type 0x08' 'sdr type Fan' 'sel list last 20'; do
    echo "ask $a"
    limit $s $I $a || { e=$?; echo "failed $e"; case $a:$e in mc*|*:124|*:137|*:143) break;; esac; }
    s=3
  done
fi
echo end=bmc
"""
FORMS = ("text",)
MARKS = ("|", "Firmware Revision  ", "Manufacturer ID  ", "IP Address              :")
_SENSOR = re.compile(r"([^|]{1,40})\|\s*([0-9A-Fa-f]{1,2})h\s*\|\s*(ok|ns|nc|cr|nr|lnc|lcr|lnr|unc|ucr|unr|us|na)\s*\|"
                     r"([^|]{0,20})\|(.{0,200})\Z")
_EVENT = re.compile(r"\s*([0-9a-f]{1,6}) \|( [0-9]{2}/[0-9]{2}/[0-9]{2,4} | ?Pre-Init ?[^|]{0,30})\|"
                    r"([^|]{1,40})\|(.{1,300})\Z")
_BAD = re.compile(r"failure detected|predictive failure|input lost|out-of-range|config(uration)? error|redundancy lost",
                  re.IGNORECASE)
_DEGREES = frozenset({"nc", "cr", "nr", "lnc", "lcr", "lnr", "unc", "ucr", "unr"})
_MAX_EVENTS = 20


@dataclass(frozen=True)
class BmcFacts:
    bmc: Bmc
    why: str = ""                    # why the rest is unknown
    faults: tuple[str, ...] = ()


def parse(text: str) -> BmcFacts:
    lines = lines_of(text, "the BMC")
    if lines[-1] != "end=bmc":
        raise ParseError("the answers of the BMC are cut off")
    known: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    asked, why = "", ""
    for line in lines[:-1]:
        if line.startswith("sys ") and "=" in line:
            key, _, value = line[4:].partition("=")
            known.setdefault(key, clean(value))
        elif line.startswith("why="):
            why = clean(line[4:])
        elif line.startswith("ask "):
            asked = line[4:]
            parts[asked] = []
        elif line.startswith("failed ") and asked:
            timed_out = line[7:].strip() in ("124", "137", "143")
            why = why or f"ipmitool {asked} {'did not answer in time' if timed_out else 'failed'}"
        elif asked:
            parts[asked].append(line)
        else:
            raise ParseError(f"{quote(line)} is no answer of a BMC")
    bmc, faults = _bmc([line for part in parts.values() for line in part])
    if not bmc.firmware and known.get("firmware_revision"):
        bmc = replace(bmc, firmware=known["firmware_revision"])
    return BmcFacts(bmc, why, faults)


def read(document: Document) -> tuple[Reading, ...]:
    """Outputs of `ipmitool mc info`, `lan print`, `sdr` and `sel list` in the document."""
    at = [number for number, line in enumerate(document.lines, 1)
          if len(line) < 600 and (_SENSOR.match(line.strip()) or _EVENT.match(line)
                                  or line.lstrip().startswith(("Firmware Revision  ", "Manufacturer ID  ",
                                                               "IP Address              :")))]
    if not at:
        return ()
    bmc, faults = _bmc(document.lines[at[0] - 1:at[-1] + 4])
    if bmc == Bmc():
        return ()
    known = {"bmc_address": bmc.address or None, "bmc_firmware": bmc.firmware or None, "psus": list(bmc.psus),
             "fans": list(bmc.fans)}
    return (Reading("ipmitool", at[0], at[-1], BmcFacts(bmc, "", faults), known,
                    tuple(Finding(what, at[0]) for what in faults)),)


def _bmc(lines: Iterable[str]) -> tuple[Bmc, tuple[str, ...]]:
    values: dict[str, str] = {}
    psus: list[str] = []
    fans: list[str] = []
    events: list[str] = []
    faults: list[str] = []
    for line in lines:
        text = line.strip()
        if len(text) > 600:
            continue
        sensor, event = _SENSOR.match(text), _EVENT.match(text)
        if sensor:
            name, state, entity, words = (clean(sensor[number]) for number in (1, 3, 4, 5))
            supply = entity.startswith("10.")
            if supply or "fan" in name.lower() or "RPM" in words:
                (psus if supply else fans).append(f"{name}: {state}{', ' + words if words else ''}")
                if state in _DEGREES or _BAD.search(words):
                    faults.append(f"BMC: {name}: {words or state}")
        elif event:
            events.append(clean(text))
        elif ":" in text:
            key, _, value = text.partition(":")
            values.setdefault(key.strip(), clean(value))
    address = values.get("IP Address", "")
    bmc = Bmc(address="" if address == "0.0.0.0" else address,  # noqa: S104  (an address that is not set)
              firmware=values.get("Firmware Revision", ""),
              manufacturer=re.sub(r"\s*\(0x[0-9A-Fa-f]+\)\Z", "", values.get("Manufacturer Name", "")),
              psus=tuple(psus), fans=tuple(fans), events=tuple(events[-_MAX_EVENTS:]))
    return bmc, tuple(faults)
