"""What dmidecode, lsblk, mounts, ipmitool and their like tell, as parts of a node."""

from __future__ import annotations

from typing import Any

from hpcadmin.facts import _host
from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.model import Disk, Mount, Node

# Beginning of the reading's kind -> the fact whose value it carries.
_FACTS = (("dmidecode -t memory", "dimms"), ("dmidecode", "dmi"), ("/proc/cmdline", "command_line"))


def part(reading: Reading) -> Part | None:
    """None where the reading is none of these."""
    fields = _fields(reading)
    if not fields:
        return None
    fields.pop("problems", None)         # they are the reading's findings already
    return Part(reading.kind, Node("", **fields))


def _fields(reading: Reading) -> dict[str, Any]:
    value = reading.value
    name = next((fact for start, fact in _FACTS if reading.kind.startswith(start)), "")
    if name == "command_line" and isinstance(value, str):
        return {"command_line": value}
    if name == "dmi" and isinstance(value, dict):
        return {field: value.get(key, "") for field, key in (
            ("vendor", "sys_vendor"), ("product", "product_name"), ("serial", "product_serial"),
            ("bios", "bios_version"), ("uuid", "product_uuid"), ("board_serial", "board_serial"),
            ("chassis_serial", "chassis_serial"), ("bios_date", "bios_date"))}
    if isinstance(value, tuple) and value:
        for kind, field in ((Disk, "disks"), (Mount, "mounts")):
            if all(isinstance(item, kind) for item in value):
                return {field: value}
    return _host.of_value(value)
