"""NVIDIA GPUs: width and generation of the PCIe link."""

from hpcadmin.health.node import nvidia
from hpcadmin.health.node.api import Check, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


LINK = "pci/pci_gpu_link_info/"


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    for gpu in nvidia.gpus(door):
        width = gpu.number(LINK + "link_widths/current_link_width")
        widest = gpu.number(LINK + "link_widths/max_link_width")
        gen, newest = gpu.number(LINK + "pcie_gen/current_link_gen"), gpu.number(LINK + "pcie_gen/max_link_gen")
        awake = is_awake(gpu)
        found.append(good(address=gpu.address, width=width, gen=gen, awake=awake))
        wanted = p.width if p.width is not None else widest
        if width is not None and wanted is not None and width < wanted:
            found.append(fault("PCIe link of GPU %s is %dx wide, expected %gx" % (gpu.address, width, wanted)))
        elif width is None and p.width is not None:
            found.append(unknown("PCIe link of GPU %s: width unknown" % gpu.address))
        if p.gen is not None and newest is not None and newest < p.gen:
            found.append(bad("PCIe link of GPU %s can do generation %g, expected %g" % (gpu.address, newest, p.gen)))
        # A GPU at rest goes down to generation 1 by itself: only one that is awake says what the link can do.
        wanted = p.gen if p.gen is not None else newest
        if awake and gen is not None and wanted is not None and gen < wanted and (newest is None or newest >= wanted):
            found.append(fault("PCIe link of GPU %s runs at generation %g, expected %g" % (gpu.address, gen, wanted)))
    return found


def is_awake(gpu: nvidia.Gpu) -> bool:
    """In a state of high performance (P0 to P2), and not idle by its own word."""
    idle = [value for group in ("clocks_event_reasons", "clocks_throttle_reasons")
            for name, value in gpu.fields(group).items() if name.endswith("gpu_idle")]
    return gpu.text("performance_state") in ("P0", "P1", "P2") and "Active" not in idle


CHECK = Check("gpu_pcie", "NVIDIA GPUs: width and generation of the PCIe link", run, hardware=True, timeout_s=25,
              params=(
    Param("width", "number", None, "lanes; without it as many as GPU and slot can do"),
    Param("gen", "number", None, "generation; without it what GPU and slot can do"),
))
