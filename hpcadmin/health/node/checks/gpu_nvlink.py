"""NVIDIA GPUs: NVLinks up, and as fast as they should be."""

from hpcadmin.health.node import nvidia
from hpcadmin.health.node.api import Check, NoAnswer, Param, bad, fault, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def parse(text: str) -> "list[tuple[str, list[float], int]]":
    """nvidia-smi nvlink -s: name of each GPU, GB/s of its links that are up, number of those that are down."""
    found = []  # type: list[tuple[str, list[float], int]]
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("GPU ") and ":" in line:
            found.append((line.partition(":")[0], [], 0))
        elif line.startswith("Link ") and found:
            name, speeds, down = found[-1]
            value = line.partition(":")[2].strip()
            number = value[:-4].strip() if value.endswith("GB/s") else ""
            if number.replace(".", "", 1).isdecimal():
                speeds.append(float(number))
            elif "inactive" in value.lower():
                found[-1] = (name, speeds, down + 1)
            else:
                raise NoAnswer("nvidia-smi nvlink -s: %s" % line)
    return found


def in_parts(door: "Door") -> "set[str]":
    """GPU 0, ...: those that MIG has divided; their NVLinks are switched off by that."""
    try:
        gpus = nvidia.gpus(door)
    except NoAnswer:
        return set()
    return {"GPU %d" % number for number, gpu in enumerate(gpus) if gpu.text("mig_mode/current_mig") == "Enabled"}


def run(door: "Door", p: "Params") -> "list[Finding]":
    ran = door.tool(["nvidia-smi", "nvlink", "-s"], 15)
    if ran.status != 0 or ran.cut:
        raise NoAnswer("nvidia-smi nvlink -s ended with status %s" % ran.status)
    links = parse(ran.out)
    found = [good(links={name: len(speeds) for name, speeds, _ in links},
                  down={name: down for name, _, down in links if down})]
    whole = links and all(len(speeds) >= (p.links or 1) and not down for _, speeds, down in links)
    resting = set() if whole else in_parts(door)  # type: set[str]
    links = [one for one in links if one[0] not in resting]
    if not links and resting:
        return found
    if not links and p.links:
        return [*found, bad("no GPU tells of NVLinks, expected %g each" % p.links)]
    for name, speeds, down in links:
        if p.links is not None and len(speeds) < p.links:
            found.append(fault("%s has %d NVLinks up of %g" % (name, len(speeds), p.links)))
        elif p.links is None and down and speeds:
            found.append(fault("%s has %d NVLinks down" % (name, down)))
        slow = [speed for speed in speeds if p.min_gb_s is not None and speed < p.min_gb_s]
        if slow:
            found.append(fault("an NVLink of %s runs at %g GB/s, expected %g" % (name, min(slow), p.min_gb_s)))
    counts = {len(speeds) for _, speeds, _ in links}
    if p.links is None and p.alike and len(counts) > 1:
        found.append(bad("GPUs have different numbers of NVLinks up: %s" % ", ".join(map(str, sorted(counts)))))
    return found


CHECK = Check("gpu_nvlink", "NVIDIA GPUs: NVLinks up, and as fast as they should be", run, hardware=True, timeout_s=20,
              params=(
    Param("links", "number", None, "at least so many up on each; without it none may be down beside one that is up"),
    Param("alike", "flag", False, "without links: each GPU must have as many as the others"),
    Param("min_gb_s", "number", None, "of each link and direction"),
))
