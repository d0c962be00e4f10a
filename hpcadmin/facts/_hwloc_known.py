"""hwloc's tree as a reading: what it determines as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcadmin.facts import _hwloc_findings, _hwloc_links
from hpcadmin.facts import _hwloc_io as io
from hpcadmin.facts._base import pci_key
from hpcadmin.facts._hwloc import Tree, count, covered, distances, fold, numa_matrix
from hpcadmin.facts._hwloc_work import Hwloc, Work, understand, union
from hpcadmin.facts._reading import Finding, Reading

_RELATIVE = "relative to local=1.0 (hwloc v1)"


def reading(kind: str, tree: Tree, first: int, last: int) -> Reading:
    work = understand(tree)
    findings = tuple(_hwloc_findings.findings(work))
    missing = [*tree.missing, *_absent(work)]
    refused = "; ".join([*dict.fromkeys(what for what, _ in tree.contradictions),
                         *([work.limits.refused] if work.limits.refused else [])])
    return Reading(kind, first, last, value=_value(work, findings, tuple(missing), refused), known=_known(work),
                   findings=findings, missing=tuple(missing), refused=refused)


def _value(work: Work, findings: tuple[Finding, ...], missing: tuple[str, ...], refused: str) -> Hwloc:
    tree, levels = work.tree, work.levels
    sizes = [node.memory_mib for node in levels.numa if node.cpus and node.subtype != "GPUMemory"]
    return Hwloc(
        cpu=work.cpu, pci=io.pci_devices(work.devices, levels, work.whole),
        gpus=io.gpus(work.devices, levels, work.whole), nics=io.nics(work.devices, levels, work.whole),
        has_io=work.has_io and not tree.missing, gpus_whole=work.gpus_known, vendor=tree.info("DMISysVendor"),
        product=_product(tree), bios=tree.info("DMIBIOSVersion"), bios_date=tree.info("DMIBIOSDate"),
        hostname=tree.info("HostName"), kernel=tree.info("OSRelease"),
        memory_mib=sum(size or 0 for size in sizes) if sizes and None not in sizes and not (
            tree.missing or work.limits.nodes) else None,
        limited=work.limits.limited, refused=refused,
        problems=tuple(finding.what for finding in findings if not finding.note), missing=missing,
        slurmd=work.slurmd.text if work.slurmd else "")


def _product(tree: Tree) -> str:
    return tree.info("DMIProductName", "PlatformModel", "DMIBoardName", "PlatformBoardID")


def _absent(work: Work) -> Iterator[str]:
    """Levels that are not in a tree which is whole otherwise."""
    levels, tree = work.levels, work.tree
    if tree.missing or tree.contradictions:
        return
    if not levels.packages:
        yield "no packages: sockets are unknown"
    if not levels.cores:
        yield "no cores: cores and threads are unknown"
    if tree.no_threads:
        yield "the CPUs (PU) of the cores are not printed: threads and CPU numbers are unknown"
    elif levels.no_cpus:
        yield "the kernel's CPU numbers (P#) are not printed: which CPUs a core or a NUMA node has is unknown"
    elif tree.no_numa:
        yield "which CPUs the NUMA nodes have is not told: levels are left out"
    elif not covered((core.cpus for core in levels.cores), levels.cpus) and levels.cores:
        yield f"CPUs {fold(levels.cpus & ~union(core.cpus for core in levels.cores))} are in no core"
    if work.whole & ~levels.cpus and not levels.no_cpus and tree.online is None:
        yield f"CPUs {fold(work.whole & ~levels.cpus)} are in the machine's set and not described"


# --- what is known --------------------------------------------------------------------------------------------------


def _known(work: Work) -> dict[str, Any]:
    tree = work.tree
    known: dict[str, Any] = {
        "xml_version": tree.version or None, "model": work.cpu.model or None, "product": _product(tree) or None,
        "linux_cgroup": tree.info("LinuxCgroup", "LinuxCgroupPath") or None, "backend": tree.info("Backend") or None,
        "hostname": tree.info("HostName") or None, "has_io": work.has_io if not tree.missing else None,
    }
    known |= {**_known_sets(work), **_known_cpu(work), **_known_numa(work)}
    if not tree.missing:
        known |= {**_known_io(work), **_hwloc_links.known(tree)}
    if work.slurmd:
        line = {"cpus": work.slurmd.cpus, "boards": work.slurmd.boards,
                "sockets_per_board": work.slurmd.sockets_per_board, "cores_per_socket": work.slurmd.cores_per_socket,
                "threads_per_core": work.slurmd.threads_per_core}
        # hwloc 2, which slurmd 22.05 is linked with, refuses version 3 as it is.
        known["slurmd_C_22_05_after_relabelling_v2" if tree.version[:1] == "3" else "slurmd_C_22_05"] = line
    return known


def _known_sets(work: Work) -> dict[str, Any]:
    tree, levels = work.tree, work.levels
    named = (("allowed_cpuset", tree.allowed), ("complete_cpuset", tree.complete), ("online_cpuset", tree.online),
             ("machine_cpuset", tree.root.cpuset if tree.version else None), ("allowed_nodeset", tree.nodes_allowed),
             ("complete_nodeset", tree.nodes_complete))
    known: dict[str, Any] = {name: fold(bits) for name, bits in named if bits is not None}
    if work.limits.outside or work.limits.disallowed:
        known["restricted"] = True
        allowed = tree.allowed if tree.allowed is not None else levels.cpus
        known["allowed_cores"] = fold(union(1 << core for core in levels.cores_in(levels.cpus & allowed)))
    elif work.limits.offline:
        known["offline_or_missing"] = fold(work.limits.offline)
        known["offline"] = fold(work.limits.offline)
    return known


def _known_cpu(work: Work) -> dict[str, Any]:
    levels, cpu, tree = work.levels, work.cpu, work.tree
    per = levels.per_package
    uneven = len(set(per)) > 1 and bool(cpu.cores)
    whole = not tree.missing or (bool(tree.version) and work.whole == levels.cpus)
    known: dict[str, Any] = {
        "sockets": cpu.sockets, "cores_per_socket": per if uneven else cpu.cores_per_socket,
        "threads_per_core": next(iter(levels.threads)) if len(levels.threads) == 1 and whole else None,
        "cpus": count(work.whole) or None, "os_cpus": fold(work.whole),
        "cores": len(levels.cores) if whole and levels.cores else None,
        "packages": {str(package.os_index): fold(package.cpus) for package in levels.packages}
        if all(package.os_index is not None for package in levels.packages) else None,
        "packages_listed": len(levels.packages), "packages_present": len(levels.packages),
        "packages_with_cpus": len(levels.used),
    }
    if uneven:
        known["cores_per_socket_list"] = per
    if whole:
        known["l3_count"] = len(levels.l3)
        sizes = [len(levels.cores_in(bits)) for bits in levels.l3]
        if sizes and 0 not in sizes:
            known["cores_per_l3"] = sizes[0] if len(set(sizes)) == 1 else sizes
        known |= {name: number for name, number in (("groups", levels.groups), ("dies", levels.dies)) if number}
        known["core_cpus"] = [fold(core.cpus) for core in levels.cores]
    if tree.missing and not tree.version:
        known |= {"cpus": None, "os_cpus": None, "packages": None, "packages_listed": None, "packages_present": None,
                  "packages_with_cpus": None}
    if levels.no_cpus:
        known |= {"os_cpus": None, "packages": None, "core_cpus": None}
    if tree.no_threads:
        known |= {"threads_per_core": None, "cpus": None}
    kinds = [{"cpus": fold(kind.cpus), "efficiency": kind.efficiency} for kind in tree.kinds]
    return {**known, "cpu_kinds": kinds} if len(kinds) > 1 else known


def _known_numa(work: Work) -> dict[str, Any]:
    levels, tree = work.levels, work.tree
    if tree.missing and (not levels.numa or tree.nodes is None or tree.nodes != union(
            1 << node.os_index for node in levels.numa)):
        return {"numa_node_count": None, "numa_nodes": None}
    known: dict[str, Any] = {
        "numa_node_count": len(levels.numa) + levels.unnumbered,
        "numa_nodes": {str(node.os_index): fold(node.cpus) for node in levels.numa},
        "numa_memory_mb": {str(node.os_index): node.memory_mib for node in levels.numa if node.memory_mib is not None},
        "numa_cpuless": [node.os_index for node in levels.numa if not node.cpus],
        "numa_with_cpus": [node.os_index for node in levels.numa if node.cpus],
        "cpu_numa_nodes": [node.os_index for node in levels.primary],
    }
    if levels.shared:
        known["numa_same_cpus"] = [[levels.numa[place].os_index for place in places] for places in levels.shared]
    subtypes: dict[str, list[int]] = {}
    for node in sorted(levels.numa, key=lambda node: node.os_index):
        if node.subtype:
            subtypes.setdefault(node.subtype, []).append(node.os_index)
    if subtypes:
        known["numa_subtypes"] = subtypes
    if not tree.missing and levels.cores:
        cores = {str(node.os_index): levels.cores_in(node.cpus) for node in levels.numa}
        known["numa_cores"] = {name: fold(union(1 << core for core in own)) for name, own in cores.items()}
        known["cores_per_numa"] = {name: len(own) for name, own in cores.items() if own}
    if not tree.missing and (matrix := _known_distances(work)):
        known["numa_distances"] = matrix
    if tree.no_numa:
        known |= {"numa_nodes": None, "numa_cores": None, "cores_per_numa": None, "numa_with_cpus": None,
                  "cpu_numa_nodes": None, "numa_same_cpus": None}
    return {**known, "numa_nodes": None} if levels.no_cpus else known


def _known_distances(work: Work) -> dict[str, Any]:
    matrix = numa_matrix(work.tree, work.levels)
    if matrix is None:
        return {}
    if matrix.base != 1.0 or work.tree.version == "1":
        return {"nodes_by": "logical index", "matrix": matrix.rows, "note": _RELATIVE}
    far = distances(work.tree, work.levels)
    return {"nodes": [str(node) for node in sorted(far)], "matrix": [list(far[node]) for node in sorted(far)]}


def _known_io(work: Work) -> dict[str, Any]:
    """None where the tree has no devices: absent there is not absent in the node."""
    if not work.has_io:
        return {"gpus": None, "nics": None}
    gpus = work.gpus
    cores = {device.local: fold(union(1 << core for core in work.levels.cores_in(device.local)))
             for device in work.devices if device.gpu_vendor or device.nic or _shown(device)}
    known: dict[str, Any] = {
        "gpus": [_known_gpu(work, device, cores) for device in gpus] if work.gpus_known else None,
        "nics": [_known_nic(work, device, gpus) for device in work.devices if device.nic],
        "accelerators": [{"pci": device.address, "id": device.pci_id, "numa": _numa(work, device)}
                         for device in work.devices if device.accelerator],
        "vga_devices": sorted((device.address for device in work.devices if device.undetermined), key=pci_key),
        "pci": [{"pci": device.address, "class": device.kind or device.class_name, "id": device.pci_id,
                 "gpu": bool(device.gpu_vendor), "osdevs": device.names, "local_cores": cores[device.local]}
                for device in work.devices if _shown(device)],
    }
    near: dict[str, set[str]] = {device.address: set() for device in gpus}
    for nic in work.devices:
        for device in gpus if nic.rdma and nic.nic else ():
            if _numa(work, nic) == _numa(work, device):
                near[device.address] |= {_name(nic)}
    known["gpu_nic_same_numa"] = {pci: names.pop() if len(names) == 1 else sorted(names)
                                  for pci, names in near.items() if names}
    return known


def _name(nic: io.Device) -> str:
    """What jobs are told: the RDMA device, else the interface."""
    named = [each.name for each in nic.os_devices if "fabric" in each.kinds] or nic.names
    return named[0] if named else nic.address


def _shown(device: io.Device) -> bool:
    disk = device.kind.startswith("01") and any(
        "storage" in each.kinds and not each.removable for each in device.os_devices)
    return device.nic or disk or device.kind.startswith("03") or bool(device.gpu_vendor)


def _numa(work: Work, device: io.Device) -> Any:
    nodes = io.numa_of(device, work.levels)
    return nodes[0] if len(nodes) == 1 else sorted(nodes) or None


def _known_gpu(work: Work, device: io.Device, cores: dict[int, str]) -> dict[str, Any]:
    levels = work.levels
    sets = (("package", [package.cpus for package in levels.packages]), ("numa", [node.cpus for node in levels.numa]),
            ("l3", levels.l3))
    found = {"pci": device.address or None, "id": device.pci_id, "numa": _numa(work, device),
             "local_cpus": None if levels.no_cpus else fold(device.local), "local_cores": cores[device.local],
             "local_set_is": [name for name, each in sets if device.local in each]}
    return {**found, "osdevs": device.names} if device.names else found


def _known_nic(work: Work, device: io.Device, gpus: list[io.Device]) -> dict[str, Any]:
    found = {"pci": device.address, "id": device.pci_id, "class": device.kind or device.class_name,
             "osdevs": device.names, "rdma_or_fabric": device.rdma, "numa": _numa(work, device)}
    label, near = io.nearest(device, gpus, work.levels) if device.rdma else ("", [])
    return {**found, "relation": label, "nearest_gpus": near} if label else found
