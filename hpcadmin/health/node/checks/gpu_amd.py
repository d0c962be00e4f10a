"""AMD GPUs: all of them there, memory errors, width of the PCIe link."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import Check, Param, bad, fault, good, unknown
from hpcadmin.health.node.checks.gpu import on_bus

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


DRM, BUS = "/sys/class/drm", "/sys/bus/pci/devices"
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


def devices(door: "Door") -> "list[str]":
    """PCI addresses of AMD's GPUs that the driver runs."""
    found = set()
    for name in door.names(DRM):
        if name.startswith("renderD") and door.word("%s/%s/device/vendor" % (DRM, name)) == "0x1002":
            found.add(door.link("%s/%s/device" % (DRM, name)).rpartition("/")[2] or name)
    return sorted(found)


def run(door: "Door", p: "Params") -> "list[Finding]":
    running, (present, others) = devices(door), on_bus(door, "0x1002", CLASSES)
    expected = p.count if p.count is not None else len(present)
    found = [good(gpus=running, on_bus=present)]
    if len(running) != expected:
        # None at all, or given to virtual machines: rather somebody's will than eight GPUs broken at once.
        own = len(running) + len(others) < expected and bool(present or running) and (
            len(present) + len(others) < expected or bool(running))
        found.append((fault if own else bad)("%d AMD GPU%s of %g run, %d on the PCI bus" % (
            len(running), "" if len(running) == 1 else "s", expected, len(present))))
    for address in running:
        place = "%s/%s/" % (BUS, address)
        door.at("AMD GPU " + address)
        for name in door.names(place + "ras"):
            if not name.endswith("_err_count"):
                continue
            wrong = uncorrected(door.word(place + "ras/" + name))
            if wrong is None:
                found.append(unknown("AMD GPU %s does not tell its errors (%s)" % (address, name[:-10])))
            elif wrong > p.max_uncorrected:
                found.append(fault("AMD GPU %s has %d uncorrected errors (%s)" % (address, wrong, name[:-10])))
        width = door.number(place + "current_link_width")
        wanted = p.width if p.width is not None else door.number(place + "max_link_width")
        if width is not None and wanted is not None and 0 < width < wanted:
            found.append(fault("PCIe link of AMD GPU %s is %dx wide, expected %gx" % (address, width, wanted)))
        vbios = door.word(place + "vbios_version")
        if p.vbios is not None and not masks.matches(p.vbios, vbios):
            found.append(bad("AMD GPU %s has the firmware %s, expected %s" % (address, vbios or "unknown", p.vbios)))
    return found


def uncorrected(text: str) -> "int | None":
    """ue: 0 and ce: 0, a line each."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "ue" and value.strip().isdecimal():
            return int(value)
    return None


CHECK = Check("gpu_amd", "AMD GPUs: all of them there, memory errors, width of the PCIe link", run, hardware=True,
              params=(
                  Param("count", "number", None, "exactly so many; without it as many as are on the PCI bus"),
                  Param("max_uncorrected", "number", 0, "errors of each part (RAS), since the driver was loaded"),
                  Param("width", "number", None, "lanes; without it as many as GPU and slot can do"),
                  Param("vbios", "mask", None, "version"),
              ))
