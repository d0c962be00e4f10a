"""Links between GPUs as hwloc tells them: bandwidths and hops, never numbers of links."""

from __future__ import annotations

from typing import Any

from hpcadmin.facts._base import pci_address
from hpcadmin.facts._hwloc import Matrix, Obj, Tree

_SELF = 1_000_000                        # hwloc's bandwidth of an object to itself


def known(tree: Tree) -> dict[str, Any]:
    names = _names(tree.root)
    found: dict[str, Any] = {}
    for matrix in tree.matrices:
        labels = [names.get(each.rpartition(":")[2], each) for each in matrix.objects]
        if matrix.name == "NVLinkBandwidth":
            found |= _nvlink(labels, matrix, _switches(tree.root))
        elif matrix.name.startswith("XGMI"):
            found.setdefault("xgmi", {"order": labels}).update(_xgmi(matrix))
    return found


def _names(root: Obj) -> dict[str, str]:
    """gp_index -> PCI address of the device, or what the package is called."""
    found: dict[str, str] = {}
    stack = [(root, "")]
    while stack:
        here, address = stack.pop()
        if here.kind == "PCIDev":
            address = pci_address(here.attributes.get("pci_busid", ""))
        number = here.attributes.get("gp_index", "")
        if number:
            label = f"{here.kind} {here.os_index}" if here.os_index is not None else ""
            found[number] = address if here.kind in ("PCIDev", "OSDev") and address else label or here.kind
        stack += [(child, address) for child in here.children]
    return found


def _switches(root: Obj) -> set[str]:
    return {pci_address(here.attributes.get("pci_busid", "")) for here in root.walk()
            if here.kind == "PCIDev" and here.attributes.get("subtype") == "NVSwitch"}


def _nvlink(labels: list[str], matrix: Matrix, switches: set[str]) -> dict[str, Any]:
    rows = [[int(value) for value in row] for row in matrix.rows]
    places = range(len(labels))
    gpus = [at for at in places if ":" in labels[at] and labels[at] not in switches]
    to_cpu = {labels[at]: labels[to] for at in gpus for to in places if ":" not in labels[to] and rows[at][to]}
    between = {rows[a][b] for a in gpus for b in gpus if a != b}
    behind = [at for at in places if labels[at] in switches]
    if not behind:
        pairs = [[labels[a], labels[b]] for a in gpus for b in gpus if a < b and rows[a][b]]
        return {"nvlink_bandwidth": {"objects": labels, "matrix": rows}, "nvlink_pairs": pairs,
                "nvlink_to_cpu": to_cpu}
    used = {labels[at]: [labels[to] for to in behind if rows[at][to]] for at in gpus}
    boards: list[list[str]] = []
    for each in used.values():
        if each not in boards:
            boards.append(each)
    speeds = {rows[at][to] for at in gpus for to in behind if rows[at][to]}
    found: dict[str, Any] = {
        "nvlink_switches_per_gpu": used,
        "nvswitches": {f"board {chr(ord('A') + number)}": each for number, each in enumerate(boards[:26])}}
    if len(between) == 1:
        found["nvlink_gpu_to_gpu"] = between.pop()
        if not found["nvlink_gpu_to_gpu"]:
            # NVML names a switch at the other end, which Slurm does not count.
            found["slurm_links_autodetect"] = "-1 and zeros"
    if len(speeds) == 1:
        found["nvlink_bandwidth_mb_s_per_switch"] = speeds.pop()
    return found


def _xgmi(matrix: Matrix) -> dict[str, Any]:
    rows = [[int(value) for value in row] for row in matrix.rows]
    others = [rows[a][b] for a in range(len(rows)) for b in range(len(rows)) if a != b]
    if matrix.name == "XGMIHops":
        return {"hops": rows, "full_mesh": bool(others) and set(others) == {1}}
    same = set(others) - {_SELF}
    return {"bandwidth_mb_s": same.pop() if len(same) == 1 else rows}


def unlinked(found: dict[str, Any]) -> list[str]:
    """GPUs whose links differ from those of the others."""
    used = found.get("nvlink_switches_per_gpu")
    if used and len({len(each) for each in used.values()}) > 1:
        return [f"GPU {name} has links to {len(each)} NVSwitches" for name, each in used.items()]
    return []
