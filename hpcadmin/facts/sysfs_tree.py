"""A dump of a node's /sys and /proc: an archive of hwloc or lscpu, a copied folder, or lines of `grep -r . /sys/…`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpcadmin.facts import _cpu, cpuinfo
from hpcadmin.facts._base import clean, pci_address
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._sysfs import CPU, NODE, Cpus, Sysfs, files_in_text
from hpcadmin.facts._sysfs_pci import Device, check_locality, devices
from hpcadmin.model import Cpu, NumaNode, PciDevice
from hpcadmin.text import fold_ids

FORMS = ("tree", "text")
MARKS = ("sys/devices/", "sys/bus/pci/")
KIND = "/sys"
_GPU_NODE = re.compile(r"proc/driver/nvidia/gpus/([0-9a-fA-F:.]{7,16})/numa_status\Z")
_GPU_DIR = re.compile(r"proc/driver/nvidia/gpus/([0-9a-fA-F:.]{7,16})/")
_MEM_TOTAL = re.compile(r"^MemTotal: {1,40}([0-9]{1,15}) kB", re.MULTILINE)


@dataclass(frozen=True)
class Gpu:
    """A GPU by /proc/driver/nvidia or by its PCI class; memory_node: the NUMA node that its memory is."""

    pci: str
    vendor: str = ""
    memory_node: int | None = None


@dataclass(frozen=True)
class SysfsTree:
    """cpu is joined. pci is () with has_pci False: not in the dump."""

    cpu: Cpu = field(default_factory=Cpu)
    pci: tuple[PciDevice, ...] = ()
    has_pci: bool = False
    gpus: tuple[Gpu, ...] = ()
    memory_mib: int | None = None
    vendor: str = ""
    product: str = ""
    serial: str = ""
    bios: str = ""
    kernel: str = ""
    hostname: str = ""
    problems: tuple[str, ...] = ()
    limited: str = ""


@dataclass
class _Work:
    sysfs: Sysfs
    cpu: Cpu
    packages: dict[int, Cpus]
    info: cpuinfo.Cpuinfo | None
    found: dict[str, Device]
    gpus: dict[str, Gpu]
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    excerpt: bool = False            # the lists of devices have no known end

    @property
    def gpu_nodes(self) -> set[int]:
        return {gpu.memory_node for gpu in self.gpus.values() if gpu.memory_node is not None}


def read(document: Document) -> tuple[Reading, ...]:
    if document.form == "tree":
        files, first, last = document.tree, 1, 1
    else:
        files, first, last = files_in_text(document.lines)
    sysfs = Sysfs(files)
    if not sysfs.cpus and not sysfs.nodes and not any(
            path.startswith(("sys/bus/pci/devices/", "sys/devices/pci")) for path in files):
        return ()
    work = _understand(sysfs)
    if document.form == "text":
        _check_excerpt(work)
    if sysfs.cpus and not sysfs.nodes:
        _no_nodes(work, document.form)
    return (_reading(work, first, last),)


def _no_nodes(work: _Work, form: str) -> None:
    """A kernel without NUMA shows no folder of nodes: where the topology is there, nothing needs to be missing."""
    if form == "tree" and not work.missing:
        work.notes.append("no NUMA nodes in the dump: the kernel knows none, or was built without NUMA")
    else:
        work.missing.append("no NUMA nodes in the dump")


def _check_excerpt(work: _Work) -> None:
    """Of some files of /sys nothing follows about those that were not printed."""
    sysfs = work.sysfs
    if sysfs.cpus and f"{CPU}/online" not in sysfs.files:
        work.missing.append("an excerpt: which CPUs are on line is not in the text")
    if sysfs.nodes and f"{NODE}/online" not in sysfs.files:
        work.missing.append("an excerpt: which NUMA nodes are on line is not in the text")
    if work.found:
        work.missing.append("an excerpt: there may be more PCI devices than these")
        work.excerpt = True


def _understand(sysfs: Sysfs) -> _Work:
    numa = sysfs.numa()
    topology = sysfs.topology() if sysfs.cpus else None
    info = cpuinfo.of_text(sysfs.files.get("proc/cpuinfo", ""))
    problems: list[str] = []
    missing: list[str] = []
    if topology is not None:
        cpu = _cpu.from_topology(topology, numa, problems)
    else:
        cpu = Cpu(numa=numa, offline=tuple(sorted(sysfs.present() - sysfs.online())) if sysfs.cpus else ())
        missing.append("no CPU topology in the dump: sockets, cores and threads are unknown")
        if info is not None and sysfs.cpus:
            cpu = _cpu.join({KIND: cpu, cpuinfo.KIND: info.cpu}, problems)
    if sysfs.broken:
        cpu = Cpu(numa=cpu.numa, offline=cpu.offline, cores=cpu.cores, l3=cpu.l3,
                  threads_per_core=cpu.threads_per_core)
    if sysfs.split:
        cpu = replace(cpu, sockets=None, cores_per_socket=None)
    found = devices(sysfs)
    work = _Work(sysfs, cpu, _packages(sysfs, topology), info, found, _gpus(sysfs, found), problems, missing=missing)
    check_locality(found, sysfs, problems, work.notes)
    _check_nodes(work)
    if info is not None and topology is not None and not sysfs.broken:
        _cpu.join({KIND: cpu, cpuinfo.KIND: info.cpu}, problems)
    return work


def _packages(sysfs: Sysfs, topology: Any) -> dict[int, Cpus]:
    """Packages by the firmware's ids; by the masks alone when these contradict the ids."""
    if sysfs.broken or topology is None:
        return sysfs.package_masks() if topology is not None else {}
    found: dict[int, set[int]] = {}
    for line in topology.cpus:
        if line.package is not None:
            found.setdefault(line.package, set()).add(line.cpu)
    return {number: frozenset(cpus) for number, cpus in sorted(found.items())}


def _gpus(sysfs: Sysfs, found: Mapping[str, Device]) -> dict[str, Gpu]:
    names = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
    gpus = {address: Gpu(address, names.get(device.pci.vendor_id, "amd" if device.driver == "amdgpu" else ""))
            for address, device in found.items() if device.gpu}
    for path, text in sysfs.files.items():
        match = _GPU_DIR.match(path)
        address = pci_address(match[1]) if match else ""
        if not address:
            continue
        gpus.setdefault(address, Gpu(address, "nvidia"))
        node = re.search(r"^Node: {1,20}([0-9]{1,5})$", text, re.MULTILINE) if _GPU_NODE.match(path) else None
        if node:
            gpus[address] = Gpu(address, "nvidia", int(node[1]))
    return gpus


def _check_nodes(work: _Work) -> None:
    sysfs, numa = work.sysfs, work.cpu.numa
    empty = [node.id for node in numa if not node.cpus]
    memory = [node for node in empty if node in work.gpu_nodes]
    if memory:
        work.notes.append(f"NUMA nodes {fold_ids(memory)} are GPU memory without CPUs: no sockets, no RealMemory")
    if other := [node for node in empty if node not in work.gpu_nodes]:
        work.notes.append(f"NUMA nodes {fold_ids(other)} have no CPUs (memory of GPUs or of expanders): no sockets")
    if bare := [node.id for node in numa if node.cpus and node.memory_mib == 0]:
        work.problems.append(f"NUMA nodes {fold_ids(bare)} have CPUs and no memory")
    if gone := sysfs.nodes_off_line():
        work.problems.append(f"NUMA nodes {fold_ids(gone)} are off line: the kernel knows them and shows no folder")


def _cores_of(cpu: Cpu, cpus: Cpus) -> list[int]:
    return [number for number, core in enumerate(cpu.cores) if cpus.intersection(core.cpus)]


# --- the reading ----------------------------------------------------------------------------------------------------


def _reading(work: _Work, first: int, last: int) -> Reading:
    sysfs, cpu = work.sysfs, work.cpu
    path, own, effective = sysfs.cgroup()
    online = sysfs.online()
    allowed = own if own is not None else effective
    limited = _cpu.limited(allowed, online) if allowed and online else ""
    if own is not None and effective and not own & online <= effective:
        work.problems.append(f"the cpuset {path} has CPUs {fold_ids(own)}, in effect are only {fold_ids(effective)}")
    problems = tuple(dict.fromkeys([*sysfs.broken, *sysfs.all_problems(), *work.problems]))
    findings = [*(Finding(what) for what in problems), *(Finding(what, note=True) for what in work.notes)]
    counts = _known_cpu(work, online)
    findings += _slurmd(counts.get("slurmd_C_22_05"))
    known = {**counts, **_known_numa(work), **_known_io(work), **_known_system(work, path)}
    if online:
        known |= {"allowed_cpuset": fold_ids(online & allowed if allowed else online),
                  "complete_cpuset": fold_ids(sysfs.present()), "machine_cpuset": fold_ids(online)}
    value = SysfsTree(
        cpu=replace(cpu, model=work.info.model if work.info else ""),
        pci=tuple(device.pci for device in work.found.values()), has_pci=bool(work.found),
        gpus=tuple(work.gpus.values()), memory_mib=_own_memory(work), vendor=_dmi(sysfs, "sys_vendor"),
        product=_product(work), serial=_dmi(sysfs, "product_serial"), bios=_dmi(sysfs, "bios_version"),
        kernel=_noted(sysfs, "OSRelease") or sysfs.text("proc/sys/kernel/osrelease"),
        hostname=_noted(sysfs, "HostName") or clean(sysfs.text("proc/sys/kernel/hostname")), problems=problems,
        limited=limited)
    refused = "; ".join([*sysfs.broken, *([limited] if limited else [])])
    return Reading(KIND, first, last, value=value, known=known, findings=tuple(findings),
                   missing=tuple(work.missing), refused=refused)


def _slurmd(line: dict[str, int] | None) -> Iterator[Finding]:
    if line and (product := line["sockets_per_board"] * line["cores_per_socket"] * line["threads_per_core"]) != \
            line["cpus"]:
        yield Finding(f"slurmd -C would print CPUs={line['cpus']} SocketsPerBoard={line['sockets_per_board']} "
                      f"CoresPerSocket={line['cores_per_socket']} ThreadsPerCore={line['threads_per_core']}, which "
                      f"multiplies to {product} CPUs: not to be copied")


def _known_cpu(work: _Work, online: Cpus) -> dict[str, Any]:
    cpu, sysfs = work.cpu, work.sysfs
    if not sysfs.cpus:
        return {"sockets": None, "cpus": None}
    per_socket: Any = cpu.cores_per_socket
    counts = [sum(core.socket == socket for core in cpu.cores) for socket in range(len(work.packages))]
    if per_socket is None and len(set(counts)) > 1 and not sysfs.broken:
        per_socket = counts
    known: dict[str, Any] = {
        "sockets": cpu.sockets, "cores_per_socket": per_socket, "threads_per_core": cpu.threads_per_core,
        "cpus": len(online), "cores": len(cpu.cores) or None, "os_cpus": fold_ids(online), "online": fold_ids(online),
        "offline": fold_ids(cpu.offline) or None, "backend": "Linux",
        "packages": {str(number): fold_ids(cpus) for number, cpus in work.packages.items()} or None,
        "packages_listed": len(work.packages),
    }
    if len(set(counts)) > 1 and not sysfs.broken:
        known["cores_per_socket_list"] = counts
    if cpu.cores and work.packages and (sysfs.broken or len(set(counts)) > 1):
        # hwloc counts what it found and slurmd takes the average, rounded down.
        known["slurmd_C_22_05"] = {
            "cpus": len(online), "boards": 1, "sockets_per_board": len(work.packages),
            "cores_per_socket": len(cpu.cores) // len(work.packages),
            "threads_per_core": len(online) // len(cpu.cores)}
    if cpu.cores:
        known["l3_count"] = len(cpu.l3)
        sizes = [len(_cores_of(cpu, frozenset(cpus))) for cpus in cpu.l3]
        if sizes:
            known["cores_per_l3"] = sizes[0] if len(set(sizes)) == 1 else sizes
        known["core_cpus"] = [fold_ids(core.cpus) for core in cpu.cores]
    return known


def _known_numa(work: _Work) -> dict[str, Any]:
    numa = work.cpu.numa
    if not numa:
        return {"numa_node_count": None, "numa_nodes": None}
    plain = [node for node in numa if node.id not in work.gpu_nodes]
    known: dict[str, Any] = {
        "numa_node_count": len(numa), "numa_nodes": {str(node.id): fold_ids(node.cpus) for node in numa},
        "numa_memory_mb": {str(node.id): node.memory_mib for node in plain if node.memory_mib is not None},
        "numa_cpuless": [node.id for node in numa if not node.cpus],
        "numa_with_cpus": [node.id for node in numa if node.cpus],
        "allowed_nodeset": fold_ids(node.id for node in plain), "complete_nodeset": fold_ids(node.id for node in plain),
    }
    if work.cpu.cores:
        known["numa_cores"] = {str(node.id): fold_ids(_cores_of(work.cpu, frozenset(node.cpus)))
                               for node in numa if node.cpus}
    sizes = {node.memory_mib for node in numa if node.id in work.gpu_nodes}
    if len(sizes) == 1:
        known["numa_cpuless_memory_mb"] = sizes.pop()
    if matrix := _distances(numa, plain):
        known["numa_distances"] = {"nodes": [str(node.id) for node in plain], "matrix": matrix}
    return known


def _distances(numa: tuple[NumaNode, ...], wanted: list[NumaNode]) -> list[list[int]]:
    places = [at for at, node in enumerate(numa) if node in wanted]
    if len(places) < 2 or not all(node.distances for node in wanted):
        return []
    return [[node.distances[at] for at in places] for node in wanted]


def _known_io(work: _Work) -> dict[str, Any]:
    """None where the dump has no PCI: absent there is not absent in the node."""
    if not work.found:
        return {"has_io": False, "gpus": None, "nics": None}
    if not all(device.kind for device in work.found.values()):
        return {"gpus": None, "nics": None, "pci_numa": {
            address: _near(work, device)["numa"] for address, device in work.found.items()}}
    gpus, nics, others = [], [], []
    for address in work.gpus:
        device = work.found.get(address)
        shown = _near(work, device) if device else {}
        shown |= {"pci": address, "memory_numa_node": work.gpus[address].memory_node}
        gpus.append(shown)
    for address, device in work.found.items():
        base = {"pci": address, "id": _pci_id(device), "class": device.kind, "osdevs": sorted(device.built)}
        if device.nic:
            nics.append({**base, **_near(work, device), "rdma_or_fabric": device.rdma})
        if device.nic or device.disk or device.kind.startswith("03"):
            others.append({**base, **_near(work, device), "gpu": address in work.gpus})
    if work.excerpt:
        return {"has_io": True, "gpus": gpus or None, "nics": nics or None, "pci": others or None}
    files = {address: device.numa_file for address, device in work.found.items()
             if device.nic and device.numa_file is not None}
    return {"has_io": True, "gpus": gpus, "nics": nics, "pci": others, "nics_numa_node_file": files}


def _pci_id(device: Device) -> str | None:
    return f"{device.pci.vendor_id}:{device.pci.device_id}" if device.pci.vendor_id else None


def _near(work: _Work, device: Device) -> dict[str, Any]:
    """The NUMA nodes of its local CPUs, one as a number; the kernel's numa_node where it names no CPUs."""
    local = device.local or frozenset()
    nodes = [node.id for node in work.cpu.numa if local.intersection(node.cpus)]
    numa: Any = nodes[0] if len(nodes) == 1 else nodes or device.pci.numa
    return {"numa": numa, "local_cpus": fold_ids(local) or None,
            "local_cores": fold_ids(_cores_of(work.cpu, local)) or None}


def _known_system(work: _Work, path: str) -> dict[str, Any]:
    known: dict[str, Any] = {"model": (work.info.model if work.info else "") or None,
                             "product": _product(work) or None}
    if path:
        known["linux_cgroup"] = path
    if memory := _memory(work.sysfs):
        known["memory_mib"] = memory
    return known


def _product(work: _Work) -> str:
    return _dmi(work.sysfs, "product_name") or (work.info.machine if work.info else "")


def _dmi(sysfs: Sysfs, name: str) -> str:
    return clean(sysfs.text(f"sys/devices/virtual/dmi/id/{name}") or sysfs.text(f"sys/class/dmi/id/{name}"))


def _memory(sysfs: Sysfs) -> int | None:
    match = _MEM_TOTAL.search(sysfs.files.get("proc/meminfo", ""))
    return int(match[1]) // 1024 if match else None


def _own_memory(work: _Work) -> int | None:
    """Without that of the GPUs, which the kernel counts as well."""
    total, gpus = _memory(work.sysfs), [node.memory_mib for node in work.cpu.numa if node.id in work.gpu_nodes]
    return None if total is None or None in gpus else total - sum(size or 0 for size in gpus)


def _noted(sysfs: Sysfs, name: str) -> str:
    """A line of the file that hwloc's own dumps have beside the kernel's."""
    for line in sysfs.files.get("proc/hwloc-nofile-info", "").split("\n"):
        key, _, value = line.partition(": ")
        if key == name:
            return clean(value)
    return ""
