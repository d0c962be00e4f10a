"""NVIDIA GPUs: error counters of NVLinks, growth within a time."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import Check, NoAnswer, Param
from hpcadmin.health.node.checks.gpu_nvlink import in_parts
from hpcadmin.health.node.checks.ib_errors import judged

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


COUNTERS = ["*Replay*", "*Recovery*", "*CRC*"]


def parse(text: str, counters: "list[str]") -> "dict[str, int]":
    """nvidia-smi nvlink -e: GPU 0 Link 3 Replay Errors -> number; what is not counted (N/A) is left out."""
    found, gpu = {}, ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("GPU ") and ":" in line:
            gpu = line.partition(":")[0]
        elif line.startswith("Link ") and gpu:
            link, _, rest = line.partition(":")
            name, _, value = rest.rpartition(":")
            if value.strip().isdecimal() and masks.any_matches(counters, name.strip()):
                found["%s %s %s" % (gpu, link, name.strip())] = int(value)
    return found


def run(door: "Door", p: "Params") -> "list[Finding]":
    ran = door.tool(["nvidia-smi", "nvlink", "-e"], 15)
    if ran.status != 0 or ran.cut:
        raise NoAnswer("nvidia-smi nvlink -e ended with status %s" % ran.status)
    values = parse(ran.out, p.counters)
    # Those that MIG has divided have none.
    lacking = "" if values or in_parts(door) else "nvidia-smi nvlink -e tells of no counter %s" % ", ".join(p.counters)
    return judged(door, values, p, lacking)


CHECK = Check("gpu_nvlink_errors", "NVIDIA GPUs: error counters of NVLinks, growth within a time", run, timeout_s=20,
              params=(
                  Param("counters", "masks", COUNTERS, "which, as nvidia-smi nvlink -e calls them"),
                  Param("max", "number", 100, "growth of each within the window"),
                  Param("window_min", "number", 60, "minutes"),
              ))
