"""NVIDIA GPUs: slowed down by heat or power."""

from hpcadmin.health.node import nvidia
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


REASONS = ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")


def active(gpu: nvidia.Gpu) -> "list[str]":
    """Why its clocks are not the highest, in the words that both generations of drivers share."""
    found = []
    for group in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for name, value in gpu.fields(group).items():
            for prefix in PREFIXES:
                if name.startswith(prefix) and value == "Active":
                    found.append(name[len(prefix):])
    return sorted(set(found))


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    for gpu in nvidia.gpus(door):
        reasons = active(gpu)
        found.append(good(address=gpu.address, reasons=reasons, sm_mhz=gpu.number("clocks/sm_clock")))
        wrong = [name for name in reasons if name in p.reasons]
        if wrong:
            found.append(bad("GPU %s is slowed down: %s" % (gpu.address, ", ".join(wrong))))
        slow, mhz = p.min_sm_mhz, gpu.number("clocks/sm_clock")
        if slow is not None and mhz is not None and mhz < slow and gpu.text("performance_state") == "P0":
            found.append(bad("GPU %s runs at %g MHz in P0, expected %g" % (gpu.address, mhz, slow)))
    return found


CHECK = Check("gpu_throttle", "NVIDIA GPUs: slowed down by heat or power", run, timeout_s=25, params=(
    Param("reasons", "texts", REASONS, "which are bad; a power limit by software is everyday life under load"),
    Param("min_sm_mhz", "number", None, "clock of a GPU in P0"),
))
