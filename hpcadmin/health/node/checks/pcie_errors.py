"""PCIe errors as the kernel counts them (AER): growth within a time."""

from hpcadmin.health.node import masks, window
from hpcadmin.health.node.api import Check, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


FOLDER = "/sys/bus/pci/devices"
FILES = (("correctable", "aer_dev_correctable"), ("non-fatal", "aer_dev_nonfatal"), ("fatal", "aer_dev_fatal"))


def run(door: "Door", p: "Params") -> "list[Finding]":
    values, found = {}, window.unseen(door)  # type: dict[str, int], list[Finding]
    for device in door.names(FOLDER):
        if not masks.matches(p.device, device) or not door.exists("%s/%s/%s" % (FOLDER, device, FILES[0][1])):
            continue
        door.at("PCIe errors of " + device)
        for kind, name in FILES:
            total = totalled(door.word("%s/%s/%s" % (FOLDER, device, name)))
            if total is not None:
                values["%s %s" % (device, kind)] = total
            else:
                found.append(unknown("%s does not tell its %s PCIe errors" % (device, kind)))
    if not values and not found and p.device != "*":
        found.append(unknown("no counter of PCIe errors of %s" % p.device))
    growth = window.grown(door, "counters", values, p.window_min * 60)
    if growth is None:
        return [*found, good(first_look=True, counters=len(values))]
    found += [good(grown={name: more for name, more in growth.items() if more}, counters=len(values))]
    for name, more in sorted(growth.items()):
        device, _, kind = name.partition(" ")
        most = p.max_correctable if kind == "correctable" else p.max
        if more > most:
            found.append((fault if kind == "fatal" else bad)(
                "%s: %d %s PCIe errors in %g min, more than %g" % (device, more, kind, p.window_min, most)))
    return found


# A device that is asked for what it does not know says so by this: drivers and lspci ask now and then.
HARMLESS = ("UnsupReq", "ACSViol")


def totalled(text: str) -> "int | None":
    """The sum of all, without the line of totals and what a mere question causes."""
    total, known = 0, False
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if not value.isdecimal():
            continue
        known = True
        if not name.startswith("TOTAL_ERR") and name not in HARMLESS:
            total += int(value)
    return total if known else None


CHECK = Check("pcie_errors", "PCIe errors as the kernel counts them: growth within a time", run, hardware=True, params=(
    Param("device", "mask", "*", "PCI address"),
    Param("max", "number", 0, "fatal and non-fatal errors of a device within the window"),
    Param("max_correctable", "number", 1000, "corrected errors of a device within the window"),
    Param("window_min", "number", 60, "minutes"),
))
