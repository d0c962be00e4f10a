"""Memory errors as the kernel counts them (EDAC)."""

from hpcadmin.health.node import window
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


FOLDER = "/sys/devices/system/edac/mc"


def run(door: "Door", p: "Params") -> "list[Finding]":
    """Uncorrected ones since boot; corrected ones within a time."""
    controllers = [name for name in door.names(FOLDER) if name[:2] == "mc" and name[2:].isdecimal()]
    if not controllers:
        if p.required:
            raise NoAnswer("no memory controller is watched (%s): is the EDAC driver loaded?" % FOLDER)
        return [good(controllers=0)]
    found, corrected = [], {}  # type: list[Finding], dict[str, int]
    for name in controllers:
        wrong = counted(door, "%s/%s/ue_count" % (FOLDER, name))
        wrong += door.number("%s/%s/ue_noinfo_count" % (FOLDER, name)) or 0
        for dimm in door.names("%s/%s" % (FOLDER, name)):
            place = "%s/%s/%s" % (FOLDER, name, dimm)
            if dimm.startswith(("dimm", "rank")) and door.exists(place + "/dimm_ce_count"):
                label = door.word(place + "/dimm_label") or "%s %s" % (name, dimm)
                corrected[label] = counted(door, place + "/dimm_ce_count") + corrected.get(label, 0)
                uncorrected = counted(door, place + "/dimm_ue_count")
                if uncorrected > p.max_uncorrected:
                    found.append(fault("%d uncorrected memory errors at %s" % (uncorrected, label)))
        if wrong > p.max_uncorrected and not found:
            found.append(fault("%d uncorrected memory errors at %s" % (wrong, name)))
        corrected.setdefault(name, counted(door, "%s/%s/ce_count" % (FOLDER, name)))
    growth = window.grown(door, "corrected", corrected, p.window_h * 3600)
    for label, more in sorted((growth or {}).items()):
        if more > p.max_corrected and not (label in controllers and len(corrected) > len(controllers)):
            found.append(bad("%d corrected memory errors at %s in %g h, more than %g" % (
                more, label, p.window_h, p.max_corrected)))
    found += window.unseen(door)
    return [good(controllers=len(controllers), corrected={label: value for label, value in corrected.items() if value}),
            *found]


def counted(door: "Door", path: str) -> int:
    """A counter that is there but has no number is not 0."""
    number = door.number(path)
    if number is None or number < 0:
        raise NoAnswer("%s has no number" % path)
    return number


CHECK = Check("edac", "Memory errors as the kernel counts them", run, hardware=True, params=(
    Param("max_uncorrected", "number", 0, "since boot"),
    Param("max_corrected", "number", 1000, "of a DIMM within the window"),
    Param("window_h", "number", 24, "hours"),
    Param("required", "flag", False, "unknown, rather than good, if no controller is watched"),
))
