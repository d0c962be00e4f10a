"""NVIDIA GPUs: joined to the NVLink fabric (fabric manager)."""

from hpcadmin.health.node import nvidia
from hpcadmin.health.node.api import Check, Param, bad, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


EMPTY = ("", "0", "00000000-0000-0000-0000-000000000000")


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    for gpu in nvidia.gpus(door):
        state, status = gpu.text("fabric/state"), gpu.text("fabric/status")
        clique = gpu.text("fabric/cliqueId", "fabric/clique_id")
        cluster = gpu.text("fabric/clusterUuid", "fabric/cluster_uuid")
        health = gpu.text("fabric/health/summary")
        found.append(good(address=gpu.address, state=state, status=status, clique=clique, cluster=cluster))
        if not state:
            if p.required:
                found.append(unknown("GPU %s does not tell of a fabric" % gpu.address))
            continue
        if state == "In Progress":
            found.append(unknown("GPU %s is just joining the fabric" % gpu.address))
        elif state != "Completed" or (status and status != "Success"):
            found.append(bad("GPU %s: fabric %s%s (fabric manager?)" % (
                gpu.address, state, ", status %s" % status if status else "")))
        elif p.clique and (clique in EMPTY or cluster in EMPTY):
            found.append(bad("GPU %s belongs to no clique of the fabric" % gpu.address))
        if health and health.lower() in ("unhealthy", "limited capacity"):
            found.append(bad("GPU %s: fabric health is %s" % (gpu.address, health)))
    return found


CHECK = Check("gpu_fabric", "NVIDIA GPUs: joined to the NVLink fabric", run, timeout_s=25, params=(
    Param("required", "flag", False, "unknown, rather than good, if a GPU does not tell of a fabric"),
    Param("clique", "flag", False, "must belong to a clique (NVL72)"),
))
