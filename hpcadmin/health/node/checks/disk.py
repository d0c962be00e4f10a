"""Disks: wear, spare blocks, media errors, own verdict (SMART)."""

from hpcadmin.health.node import masks, quickjson
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    names = [name for name in devices(door) if masks.matches(p.device, name)]
    for name in names:
        door.at("SMART of " + name)
        try:
            found += judged(name, smart(door, name), p)
        except NoAnswer as exc:                 # what another disk said of itself counts all the same
            found.append(unknown(str(exc)))
    if len(names) < p.min:
        found.append(bad("%d disks %s, expected %g" % (len(names), p.device, p.min)))
    return found


def devices(door: "Door") -> "list[str]":
    """NVMe controllers and whole SCSI and SATA disks; virtual ones have no SMART."""
    found = [name for name in door.names("/sys/class/nvme") if name.startswith("nvme") and name[4:].isdecimal()]
    for name in door.names("/sys/block"):
        place = "/sys/block/%s/" % name
        # A drive of the management controller, or a reader of cards, with nothing in it.
        empty = door.word(place + "removable") == "1" and door.word(place + "size") == "0"
        if name.startswith("sd") and not empty and door.word(place + "device/vendor") not in ("QEMU", "VMware", "Msft"):
            found.append(name)
    return found


class Smart:
    """What is known of one disk; None: not told."""

    def __init__(self) -> None:
        self.passed = None  # type: bool | None
        self.wear = self.spare = self.spare_least = self.media = self.celsius = self.warning = None  # type: float | None


def smart(door: "Door", name: str) -> Smart:
    """By smartctl; by nvme where there is no smartctl."""
    nvme = name.startswith("nvme")
    if nvme and not door.has("smartctl"):
        ran = door.tool(["nvme", "smart-log", "-o", "json", "/dev/" + name], 5)
        if ran.status != 0:
            raise NoAnswer("nvme smart-log of %s: %s" % (name, (ran.err or ran.out).strip()[:80]))
        return from_nvme(tree(ran.out, "nvme smart-log"))
    ran = door.tool(["smartctl", "--json", "-H", "-A", "/dev/" + name], 8)
    if ran.status is None or ran.status & 3:    # the other bits are the disk's own verdicts
        raise NoAnswer("smartctl cannot read %s (status %s)" % (name, ran.status))
    return from_smartctl(tree(ran.out, "smartctl"))


def tree(text: str, tool: str) -> "dict[str, object]":
    try:
        found = quickjson.loads(text[text.find("{"):])
    except (ValueError, RecursionError) as exc:
        raise NoAnswer("%s wrote no JSON: %s" % (tool, exc)) from exc
    if not isinstance(found, dict):
        raise NoAnswer("%s wrote no object" % tool)
    return found


def value(found: "dict[str, object]", *path: str) -> "float | None":
    """The number at a path of keys."""
    one = found  # type: object
    for key in path:
        one = one.get(key) if isinstance(one, dict) else None
    if isinstance(one, str):
        one = int(one, 0) if one.strip().isdecimal() or one.startswith("0x") else None
    return float(one) if isinstance(one, (int, float)) and not isinstance(one, bool) else None


def from_smartctl(found: "dict[str, object]") -> Smart:
    one = Smart()
    status = found.get("smart_status")
    passed = status.get("passed") if isinstance(status, dict) else None
    one.passed = passed if isinstance(passed, bool) else None
    log = "nvme_smart_health_information_log"
    one.wear, one.spare = value(found, log, "percentage_used"), value(found, log, "available_spare")
    one.spare_least, one.media = value(found, log, "available_spare_threshold"), value(found, log, "media_errors")
    one.warning, one.celsius = value(found, log, "critical_warning"), value(found, "temperature", "current")
    table = found.get("ata_smart_attributes")
    for row in table.get("table", []) if isinstance(table, dict) else []:
        number, raw = value(row, "id"), value(row, "raw", "value")
        if number in (197, 198) and raw is not None:    # sectors that cannot be read: two counters of the same ones
            one.media = max(one.media or 0, raw)
        name = str(row.get("name", "")).lower() if isinstance(row, dict) else ""
        # The same numbers are temperatures and sums of bytes with other makers.
        if number in (177, 202, 231, 233) and ("wear" in name or "life" in name) and one.wear is None:
            left = value(row, "value")
            one.wear = max(0.0, 100 - left) if left is not None else None
    if one.passed is None and one.warning is None and one.wear is None:
        raise NoAnswer("smartctl tells no health")
    return one


def from_nvme(found: "dict[str, object]") -> Smart:
    one = Smart()
    one.warning = value(found, "critical_warning")
    if one.warning is None:
        one.warning = value(found, "critical_warning", "value")
    one.wear, one.spare = value(found, "percent_used"), value(found, "avail_spare")
    if one.wear is None:
        one.wear = value(found, "percentage_used")
    one.spare_least, one.media = value(found, "spare_thresh"), value(found, "media_errors")
    kelvin = value(found, "temperature")
    one.celsius = kelvin - 273 if kelvin is not None and kelvin > 200 else kelvin
    if one.warning is None and one.wear is None:
        raise NoAnswer("nvme smart-log tells no health")
    return one


def judged(name: str, one: Smart, p: "Params") -> "list[Finding]":
    found = [good(disk=name, passed=one.passed, wear_percent=one.wear, spare_percent=one.spare, media_errors=one.media,
                  celsius=one.celsius, warning=one.warning)]
    if one.passed is False or (one.warning is not None and int(one.warning) & ~2):   # bit 1 is the temperature
        found.append(fault("disk %s says that it fails%s" % (
            name, " (warning 0x%02x)" % int(one.warning) if one.warning else "")))
    if one.wear is not None and one.wear > p.max_wear_percent:
        found.append(bad("disk %s is worn to %g %%, more than %g" % (name, one.wear, p.max_wear_percent)))
    least = p.min_spare_percent if p.min_spare_percent is not None else one.spare_least
    if one.spare is not None and least is not None and one.spare < least:
        found.append(fault("disk %s has %g %% of its spare blocks left, less than %g" % (name, one.spare, least)))
    if one.media is not None and p.max_media_errors is not None and one.media > p.max_media_errors:
        found.append(fault("disk %s has %d media errors, more than %g" % (name, one.media, p.max_media_errors)))
    if one.celsius is not None and one.celsius > p.max_c:
        found.append(bad("disk %s has %g C, more than %g" % (name, one.celsius, p.max_c)))
    return found


CHECK = Check("disk", "Disks: wear, spare blocks, media errors, own verdict (SMART)", run, hardware=True, timeout_s=30,
              params=(
    Param("device", "mask", "*", "nvme0, sda"),
    Param("min", "number", 0, "at least so many disks"),
    Param("max_wear_percent", "number", 90, "of the life that was promised"),
    Param("min_spare_percent", "number", None, "spare blocks; without it the disk's own threshold"),
    Param("max_media_errors", "number", 10, "since it was made"),
    Param("max_c", "number", 75, "temperature"),
))
