"""Errors that the NVIDIA driver wrote into the kernel log since boot (Xid, SXid)."""

from hpcadmin.health.node.api import Check, Param, bad, fault, good
from hpcadmin.health.node.nvidia import address

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door
    from hpcadmin.health.node.kernel import Record


# After these a GPU does not work on by itself. Not among them: what programs cause (13, 31, 43, 45, 68, 69, 109),
# what was contained (94), and remappings that gpu_ecc sees (63).
CODES = [46, 48, 61, 62, 64, 74, 79, 92, 95, 110, 119, 120, 136, 140, 143]
BY_TEXT = range(144, 151)  # NVLink 5: the same code is fatal or not, and says so
RECOVERY = 154
LOST = "fallen off the bus"


class Event:
    """One message: kind is Xid, SXid or lost."""

    __slots__ = ("address", "code", "kind", "seconds", "text")

    def __init__(self, kind: str, where: str, code: int, text: str, seconds: float) -> None:
        self.kind, self.address, self.code, self.text, self.seconds = kind, where, code, text, seconds


def event(record: "Record") -> "Event | None":
    """NVRM: Xid (PCI:0000:9b:00): 79, pid=…, GPU has fallen off the bus."""
    text = record.text
    mark = "SXid (" if "SXid (" in text else "Xid ("
    at = text.find(mark)
    if at < 0 or not ("NVRM:" in text or "nvidia-nvswitch" in text):
        return Event("lost", _bus(text), 79, text.strip(), record.seconds) if "NVRM:" in text and LOST in text else None
    where, close, rest = text[at + len(mark):].partition("):")
    code, _, said = rest.strip().partition(",")
    if not close or not code.strip().isdecimal():
        return None
    words = where.split()
    place = words[0][4:] if words and words[0].startswith("PCI:") else words[0] if words else ""
    return Event(mark[:-2], address(place if "." in place else place + ".0"), int(code), said.strip(), record.seconds)


def _bus(text: str) -> str:
    for word in text.replace("PCI:", "").replace("GPU0000", "0000").split():
        bare = word.strip("().,").lower()
        if bare.count(":") == 2 and all(c in "0123456789abcdef:." for c in bare):
            return address(bare.rstrip(":"))
    return ""


def serious(one: Event, codes: "list[float]", ignore: "list[float]") -> bool:
    if one.code in ignore:
        return False
    if one.kind == "lost":
        return True
    if one.kind == "SXid":
        return one.text.startswith("Fatal")
    if one.code in BY_TEXT:
        return " Fatal " in " %s " % one.text.replace(",", " ")
    return one.code in codes


def open_events(events: "list[Event]", codes: "list[float]", ignore: "list[float]") -> "list[Event]":
    """The serious ones that are not over: Xid 154 tells what a GPU needs; "None" after a reset ends what was before."""
    found = []  # type: list[Event]
    needs = {}  # type: dict[str, Event]
    for one in events:
        if one.kind == "Xid" and one.code == RECOVERY and RECOVERY not in ignore:
            needs.pop(one.address, None)
            if "to 0x0 (None)" in one.text:
                found = [other for other in found if other.address != one.address]
            else:
                needs[one.address] = one
        elif serious(one, codes, ignore):
            found.append(one)
    return found + list(needs.values())


def run(door: "Door", p: "Params") -> "list[Finding]":
    since = door.uptime() - p.window_h * 3600 if p.window_h is not None else 0.0
    records = door.kernel_log()
    events = [one for one in map(event, (record for record in records if "Xid" in record.text or LOST in record.text))
              if one is not None]
    events = remembered(door, events, bool(records) and records[0].number > 0)
    left = [one for one in open_events(events, p.codes, p.ignore) if one.seconds >= since]
    counts = {}  # type: dict[str, int]
    for one in events:
        name = "%s %d %s" % (one.kind, one.code, one.address)
        counts[name] = counts.get(name, 0) + 1
    found = [good(events=counts)]
    told = set()  # type: set[tuple[str, int]]
    for one in left:
        if (one.address, one.code) in told:
            continue
        told.add((one.address, one.code))
        kind = "%s %d" % (one.kind, one.code) if one.kind != "lost" else "GPU lost"
        # A switch of NVLinks, and what another GPU's fault made of a link, are not for sure this GPU's own fault.
        own = one.kind != "SXid"
        found.append((fault if own else bad)("%s: %s %s" % (one.address or "a GPU", kind, one.text[:80])))
    return found


def _is_event(one: object) -> bool:
    return isinstance(one, list) and len(one) == 5 and [type(part) for part in one[:4]] == [str, str, int, str] and (
        isinstance(one[4], (int, float)))


def remembered(door: "Door", events: "list[Event]", overwritten: bool) -> "list[Event]":
    """With those of this boot that the ring buffer has lost since the last look."""
    boot, last = door.boot_id(), door.last("events")
    known = [(one.kind, one.address, one.code, one.text, round(one.seconds, 3)) for one in events]
    if overwritten and isinstance(last, dict) and last.get("boot") == boot:
        old = [tuple(one) for one in last.get("events") or [] if _is_event(one)]
        first = known[0][4] if known else float("inf")
        events = [Event(*one) for one in old if one not in known and one[4] < first] + events
    kept = [[one.kind, one.address, one.code, one.text[:200], round(one.seconds, 3)] for one in events[-200:]]
    door.keep("events", {"boot": boot, "events": kept})
    return events


CHECK = Check("gpu_xid", "Errors that the NVIDIA driver wrote into the kernel log since boot", run, hardware=True,
              params=(
    Param("codes", "numbers", CODES, "Xids after which a GPU does not work on"),
    Param("ignore", "numbers", [], "Xids and SXids that are let pass"),
    Param("window_h", "number", None, "only of the last hours; without it since boot"),
))
