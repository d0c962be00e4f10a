"""NVIDIA GPUs: temperature."""

from hpcadmin.health.node import nvidia
from hpcadmin.health.node.api import Check, Param, bad, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    for gpu in nvidia.gpus(door):
        core, memory = gpu.number("temperature/gpu_temp"), gpu.number("temperature/memory_temp")
        found.append(good(address=gpu.address, core_c=core, memory_c=memory))
        limit = p.max_c if p.max_c is not None else gpu.number("temperature/gpu_temp_slow_threshold")
        # Newer GPUs tell how far it is to the limit instead of the limit.
        left, slow = gpu.number("temperature/gpu_temp_tlimit"), gpu.number("temperature/gpu_temp_slow_tlimit_threshold")
        if core is not None and limit is not None and core >= limit:
            found.append(bad("GPU %s has %g C, limit %g" % (gpu.address, core, limit)))
        elif p.max_c is None and left is not None and slow is not None and left <= slow:
            found.append(bad("GPU %s has %s C: at the limit where it slows down" % (gpu.address, core)))
        if p.max_memory_c is not None and memory is not None and memory >= p.max_memory_c:
            found.append(bad("memory of GPU %s has %g C, limit %g" % (gpu.address, memory, p.max_memory_c)))
        if core is None and p.max_c is not None:
            found.append(unknown("GPU %s tells no temperature" % gpu.address))
    return found


CHECK = Check("gpu_temperature", "NVIDIA GPUs: temperature", run, timeout_s=25, params=(
    Param("max_c", "number", None, "below this; without it below the GPU's own limit"),
    Param("max_memory_c", "number", None, "below this"),
))
