"""NVIDIA GPUs: all of them there and answering."""

from hpcadmin.health.node import masks, nvidia
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


BUS = "/sys/bus/pci/devices"
CLASSES = ("0x0300", "0x0302")


def on_bus(door: "Door", vendor: str = "0x10de", classes: "tuple[str, ...]" = CLASSES) -> "tuple[list[str], list[str]]":
    """The addresses of a maker's GPUs on the PCI bus, whatever the driver says; and those that are passed on."""
    mine, others = [], []  # type: list[str], list[str]
    for name in door.names(BUS):
        place = "%s/%s/" % (BUS, name)
        if door.word(place + "class")[:6] in classes and door.word(place + "vendor") == vendor:
            (others if passed_on(door, place) else mine).append(name)
    return mine, others


def passed_on(door: "Door", place: str) -> bool:
    """A virtual function, or given to a virtual machine: nvidia-smi knows nothing of those."""
    return door.exists(place + "physfn") or door.link(place + "driver").rpartition("/")[2] in ("vfio-pci", "pci-stub")


def run(door: "Door", p: "Params") -> "list[Finding]":
    present, others = on_bus(door)
    if p.count is None and not present:
        return [good(count=0)] if not p.min else [bad("no GPU on the PCI bus, expected at least %g" % p.min)]
    try:
        smi = nvidia.read(door)
    except NoAnswer as exc:                     # it may hang for the very GPU that is gone: the bus tells all the same
        return [unknown(str(exc), on_bus=present), *_gone(door, present, others, p)]
    found = [good(driver=smi.driver, on_bus=present, gpus=[
        {"address": gpu.address, "model": gpu.model, "uuid": gpu.uuid, "used_mib": gpu.number("fb_memory_usage/used"),
         "busy_percent": gpu.number("utilization/gpu_util")} for gpu in smi.gpus])]
    if smi.verdict:
        return [*found, (fault if smi.hardware else bad)("nvidia-smi: %s" % smi.verdict)]
    found += [fault("GPU lost: %s" % line) for line in smi.lost]
    if smi.complaint:
        found.append((fault if smi.hardware else unknown)("nvidia-smi: %s" % smi.complaint))
    for gpu in smi.gpus:
        found += _silent(gpu)
        if p.model is not None and not masks.matches(p.model, gpu.model):
            found.append(bad("GPU %s is a %s, expected %s" % (gpu.address, gpu.model or "nameless one", p.model)))
        mib = gpu.number("fb_memory_usage/total")
        if p.min_memory_mib is not None and mib is None:
            found.append(unknown("GPU %s does not tell how much memory it has" % gpu.address))
        elif p.min_memory_mib is not None and mib is not None and mib < p.min_memory_mib:
            found.append(bad("GPU %s has %d MiB of memory, expected %g" % (gpu.address, mib, p.min_memory_mib)))
        if gpu.text("gpu_reset_status/reset_required") == "Yes":
            found.append(fault("GPU %s needs a reset" % gpu.address))
    return found + _counted(smi, present, others, p)


def _silent(gpu: nvidia.Gpu) -> "list[Finding]":
    """One value that cannot be told may be a gap of the driver; several, or its own word, are a GPU that is gone."""
    broken = gpu.broken()
    if len(broken) > 1 or any("lost" in one or "reset" in one for one in broken):
        return [fault("GPU %s does not answer: %s" % (gpu.address, broken[0]))]
    return [unknown("GPU %s: %s" % (gpu.address, one)) for one in broken]


def _gone(door: "Door", present: "list[str]", others: "list[str]", p: "Params") -> "list[Finding]":
    """Fewer on the bus than there must be, those that were given to virtual machines included."""
    there = len(present) + len(others)
    if p.count is None or there >= p.count or not door.names(BUS):
        return []
    return [(fault if there else bad)("%d GPU%s of %g on the PCI bus" % (there, "" if there == 1 else "s", p.count))]


def _counted(smi: nvidia.Smi, present: "list[str]", others: "list[str]", p: "Params") -> "list[Finding]":
    answering = {gpu.address for gpu in smi.gpus}
    silent = [name for name in present if name not in answering]
    expected = p.count if p.count is not None else max(len(present), p.min or 0)
    if len(smi.gpus) == expected:
        return []
    why = ""
    if len(present) < expected:
        why = ", %d on the PCI bus" % len(present)
    elif silent:
        why = ", no answer from %s" % ", ".join(silent[:4])
    # Fewer on the bus than were bought: hardware. All on the bus, and none answers: more likely the driver.
    # Given to a virtual machine: that is somebody's will.
    own = len(smi.gpus) + len(others) < expected and (len(present) + len(others) < expected or bool(smi.gpus)) and bool(
        present or smi.gpus)
    return [(fault if own else bad)("%d GPU%s of %g%s" % (
        len(smi.gpus), "" if len(smi.gpus) == 1 else "s", expected, why))]


CHECK = Check("gpu", "NVIDIA GPUs: all of them there and answering", run, hardware=True, timeout_s=25, params=(
    Param("count", "number", None, "exactly so many; without it as many as are on the PCI bus"),
    Param("min", "number", None, "at least so many, where count is not given"),
    Param("model", "mask", None, "what nvidia-smi calls them"),
    Param("min_memory_mib", "number", None, "of each"),
))
