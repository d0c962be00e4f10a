"""For each value of a node: which commands tell it, where in their output, and how it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hpcadmin.why import _locate as at
from hpcadmin.why._locate import Find


@dataclass(frozen=True)
class Look:
    """section: the probe's fact. pick: what the line says, to be compared with what the others say."""

    section: str
    find: Find
    pick: Callable[[str], str] | None = None


@dataclass(frozen=True)
class Rule:
    how: str
    looks: tuple[Look, ...] = ()


# What is run or read for a fact whose command is more than one program.
COMMANDS: Mapping[str, str] = {
    "addresses": "ip -o addr show", "amd_smi": "amd-smi static, amd-smi topology", "bmc": "ipmitool; /sys/…/ipmi_bmc.*",
    "command_line": "/proc/cmdline", "cpu_topology": "/sys/devices/system/cpu", "cpuset": "/proc/self/status",
    "dimms": "dmidecode -t memory", "disks": "/sys/block, lsblk", "dmi": "/sys/class/dmi/id",
    "drm": "/sys/class/drm, /sys/class/kfd", "ibstat": "ibstat", "infiniband": "/sys/class/infiniband",
    "kernel": "uname -nrm", "lldp": "lldpctl", "lscpu": "lscpu", "lspci": "lspci -D -mmnn", "meminfo": "/proc/meminfo",
    "mounts": "/proc/self/mounts", "net": "/sys/class/net", "numa": "/sys/devices/system/node",
    "numactl": "numactl -H", "nvidia_list": "nvidia-smi -L", "nvidia_nvlink": "nvidia-smi nvlink -s",
    "nvidia_proc": "/proc/driver/nvidia, /dev/nvidia*", "nvidia_smi": "nvidia-smi -q -x",
    "nvidia_topo": "nvidia-smi topo -m", "os_release": "/etc/os-release", "pci": "/sys/bus/pci/devices",
    "real_memory": "/proc/meminfo, the page size", "rocm_smi": "rocm-smi --json", "settings": "/sys and /proc/sys",
    "simulated": "/etc/hpcadmin/simulated", "slurmd": "slurmd -V, slurmd -C", "time": "date",
    "time_sync": "chronyc tracking, ntpq -pn or timedatectl", "tools": "command -v",
    "versions": "the tools' own --version, files of libraries and modules",
}


def _dmi(key: str, how: str = "as the firmware says") -> Rule:
    return Rule(how, (Look("dmi", at.start(f"{key}=")),))


def _pci(column: str = "") -> Look:
    """The device's line in /sys/bus/pci/devices. column: that says the same as the value."""
    return Look("pci", at.start("pci={pci}\t"), at.column(column) if column else None)


_KEYED_BY_PCI = "the device is found in each source by its PCI address {pci}"
_RDMA = at.in_block("rdma={rdma}\t", "rdma={rdma}\t", "rdma=")
_PORT = at.in_block("rdma={rdma}\t", "port={port}\t", "rdma=")
_NET = at.start("net={netdev}\t")
_DRM = at.contains("device={pci}\t")
_ROCM = at.contains("{pci}")


def _smi(*fields: str, pick: Callable[[str], str] | None = None) -> Look:
    return Look("nvidia_smi", at.smi(*fields), pick)


def _proc(label: str, pick: Callable[[str], str] | None = at.said) -> Look:
    return Look("nvidia_proc", at.in_block("gpu {pci}", label, "gpu "), pick)


_LISTED = at.start("GPU {index}: ")
_AMD = (Look("drm", _DRM), Look("rocm_smi", _ROCM), Look("amd_smi", _ROCM))
_NODE: dict[str, Rule] = {
    "name": Rule("the name under which the node was asked, or which its file has"),
    "hostname": Rule("the first word", (Look("kernel", at.first_line),)),
    "kernel": Rule("the second word", (Look("kernel", at.first_line),)),
    "addresses": Rule("addresses of scope global, IPv4 first", (Look("addresses", at.every),)),
    "addresses.*": Rule("an address of scope global", (Look("addresses", at.contains(" {key}/")),)),
    "memory_mib": Rule("MemTotal / 1024, rounded down", (Look("meminfo", at.start("MemTotal:")),)),
    "real_memory_mib": Rule("RealMemory of slurmd -C; without slurmd, pages that there are, in MiB, as slurmd counts",
                            (Look("slurmd", at.start("NodeName=")), Look("real_memory", at.every))),
    "vendor": _dmi("sys_vendor"), "product": _dmi("product_name"), "serial": _dmi("product_serial"),
    "bios": _dmi("bios_version"), "bios_date": _dmi("bios_date"), "uuid": _dmi("product_uuid"),
    "board_serial": _dmi("board_serial"), "chassis_serial": _dmi("chassis_serial"),
    "os": Rule("PRETTY_NAME", (Look("os_release", at.either(at.start("PRETTY_NAME="), at.start("NAME=", "VERSION"))),)),
    "gpu_driver": Rule("the driver's version", (
        Look("nvidia_smi", at.either(at.start("<driver_version>"), at.label("Driver Version"))),
        Look("nvidia_proc", at.start("version ")))),
    "slurm_version": Rule("behind the name", (Look("slurmd", at.start("slurm")),)),
    "tools.*": Rule("where the shell finds it; none behind the name: it is not there",
                    (Look("tools", at.start("{key} ")),)),
    "simulated": Rule("the name of a profile: this hardware is only pretended", (Look("simulated", at.first_line),)),
    "captured": Rule("the node's own clock", (Look("time", at.first_line),)),
    "command_line": Rule("as it stands", (Look("command_line", at.start("cmdline=")),)),
    "settings.*": Rule("as the kernel has it; the name is put into words", (Look("settings", at.every),)),
    "versions.*": Rule("the number in the first answer that has one", (Look("versions", at.either(
        at.start("{key}="), at.contains("{key}"), at.start("mpi="), at.every)),)),
    "time_sync": Rule("tool, whether it is synchronised, and to what", (Look("time_sync", at.every),)),
    "neighbours.*.*": Rule("as the switch announces itself", (Look("lldp", at.every),)),
    "unknown": Rule("what no source of the node told; the reason stands behind it where there is one"),
    "problems": Rule("found while the sources were read and compared; the source stands first in each"),
}
_CPU: dict[str, Rule] = {
    "cpu.model": Rule("as it stands", (Look("lscpu", at.label("Model name"), at.said),)),
    "cpu.architecture": Rule("as it stands", (Look("lscpu", at.label("Architecture"), at.said),
                                              Look("kernel", at.first_line))),
    "cpu.sockets": Rule("the packages that the kernel numbers: the third word of each cpu line; NUMA nodes are none. "
                        "The others are looked at for contradictions", (
                            Look("cpu_topology", at.packages), Look("lscpu", at.label("Socket(s)"), at.said_number),
                            Look("slurmd", at.start("NodeName="), at.in_words("SocketsPerBoard")))),
    "cpu.cores_per_socket": Rule("cores (sets of threads) of each package", (
        Look("cpu_topology", at.core_lines), Look("lscpu", at.label("Core(s) per socket"), at.said_number),
        Look("slurmd", at.start("NodeName="), at.in_words("CoresPerSocket")))),
    "cpu.threads_per_core": Rule("CPUs in a thread_siblings_list", (
        Look("cpu_topology", at.core_lines), Look("lscpu", at.label("Thread(s) per core"), at.said_number),
        Look("slurmd", at.start("NodeName="), at.in_words("ThreadsPerCore")))),
    "cpu.cpus": Rule("sockets x cores per socket x threads per core", (
        Look("cpu_topology", at.start("online")), Look("lscpu", at.label("CPU(s)"), at.said_number),
        Look("slurmd", at.start("NodeName="), at.in_words("CPUs")))),
    "cpu.offline": Rule("CPUs that are there and not online", (
        Look("cpu_topology", at.start("offline")), Look("lscpu", at.label("Off-line CPU(s) list")))),
    "cpu.l3.*": Rule("CPUs that share a level 3 cache: the last word", (Look("cpu_topology", at.core_lines),)),
    "cpu.cores.*.socket": Rule("the third word, counted in the order in which the packages come", (
        Look("cpu_topology", at.one_core),)),
    "cpu.cores.*.numa": Rule("the NUMA node that has its CPUs", (Look("cpu_topology", at.one_core),
                                                               Look("numa", at.contains("/cpulist:")))),
    "cpu.cores.*.cpus": Rule("the threads of a core; cores are numbered as hwloc and Slurm do: by package, NUMA node, "
                             "caches, then by their lowest CPU", (Look("cpu_topology", at.one_core),)),
    "cpu.numa.*.id": Rule("the kernel's number", (Look("numa", at.start("node {id} ")),)),
    "cpu.numa.*.cpus": Rule("as it stands", (Look("numa", at.start("node{id}/cpulist:")),
                                             Look("lscpu", at.label("NUMA node{id} CPU(s)")))),
    "cpu.numa.*.memory_mib": Rule("kB / 1024, rounded down: the last word", (Look("numa", at.start("node {id} ")),)),
    "cpu.numa.*.distances": Rule("as the firmware says (ACPI SLIT)", (Look("numa", at.start("node{id}/distance:")),)),
}
_GPU: dict[str, Rule] = {
    "vendor": Rule("by the vendor's number of the PCI device", (_pci(), *_AMD)),
    "index": Rule("the tool's own number; it is joined with other sources by UUID and PCI address", (
        Look("nvidia_list", at.contains("{uuid}")), Look("nvidia_smi", at.smi_head), *_AMD)),
    "model": Rule(_KEYED_BY_PCI, (_smi("name", pick=at.said), _proc("Model"), Look("nvidia_list", _LISTED, at.listed),
                                  *_AMD)),
    "uuid": Rule(_KEYED_BY_PCI, (_smi("uuid", pick=at.said), _proc("GPU UUID"),
                                 Look("nvidia_list", _LISTED, at.listed_uuid), *_AMD)),
    "serial": Rule(_KEYED_BY_PCI, (_smi("serial"), *_AMD)),
    "pci": Rule("the address of the device, domain in four digits", (
        Look("nvidia_smi", at.smi_head), _pci(), Look("nvidia_proc", at.start("gpu {pci}")), *_AMD)),
    "minor": Rule(_KEYED_BY_PCI + "; it is no index", (_smi("minor", pick=at.said), _proc("Device Minor"))),
    "device_file": Rule("/dev/nvidia and the minor number {minor}, where that file is there; for others the render "
                        "device", (_smi("minor"), _proc("Device Minor", None),
                                   Look("nvidia_proc", at.contains("file {device_file}")), *_AMD)),
    "memory_mib": Rule(_KEYED_BY_PCI, (_smi("memory"), *_AMD)),
    "numa": Rule("the device's numa_node; -1 is unknown", (
        _pci("numa"), Look("nvidia_topo", at.affinity_row), *_AMD)),
    "local_cpus": Rule("the device's local_cpulist, OS CPU ids", (
        _pci("cpus"), Look("nvidia_topo", at.affinity_row), *_AMD)),
    "cores": Rule("the places, in the order of the node's cores, of those that have one of the GPU's local CPUs; cores "
                  "are ordered as hwloc and Slurm do: by package, NUMA node, caches, then by their lowest CPU", (
                      _pci(), Look("cpu_topology", at.core_lines),
                      Look("numa", at.contains("/cpulist:")), Look("nvidia_topo", at.affinity_row), *_AMD)),
    "vbios": Rule(_KEYED_BY_PCI, (_smi("vbios", pick=at.said), _proc("Video BIOS"), *_AMD)),
    "pcie_gen": Rule("the link as it is now: an idle GPU goes down with it", (_smi("gen"), _pci())),
    "pcie_width": Rule("the link as it is now", (_smi("width", pick=at.said_number), _pci("width"))),
    "pcie_gen_max": Rule("what the link can do", (_smi("gen_max"), _pci())),
    "pcie_width_max": Rule("what the link can do", (_smi("width_max", pick=at.said_number), _pci("maxwidth"))),
    "ecc": Rule(_KEYED_BY_PCI, (_smi("ecc"),)), "persistence": Rule(_KEYED_BY_PCI, (_smi("persistence"),)),
    "power_limit_w": Rule(_KEYED_BY_PCI, (_smi("power"),)),
    "power_limit_max_w": Rule(_KEYED_BY_PCI, (_smi("power_max"),)),
    "mig": Rule(_KEYED_BY_PCI, (_smi("mig"),)), "mig_pending": Rule(_KEYED_BY_PCI, (_smi("mig_pending"),)),
    "compute_mode": Rule(_KEYED_BY_PCI, (_smi("compute"),)),
    "fabric_state": Rule(_KEYED_BY_PCI, (_smi("fabric_state"),)),
    "fabric_status": Rule(_KEYED_BY_PCI, (_smi("fabric_status"),)),
    "fabric_cluster_uuid": Rule(_KEYED_BY_PCI, (_smi("cluster"),)),
    "fabric_clique": Rule(_KEYED_BY_PCI, (_smi("clique"),)),
    "part_number": Rule(_KEYED_BY_PCI, (_smi("part"),)),
    "pci_id": Rule("vendor:device", (_smi("device"), _pci(), *_AMD)),
    "render": Rule("/dev/dri/renderD and this number, by PCI address", _AMD),
    "partition": Rule("compute and memory partition", _AMD),
    "nvlinks_active": Rule("links with a speed", (Look("nvidia_nvlink", at.links_of),)),
    "nvlinks_inactive": Rule("links that are shown as inactive", (Look("nvidia_nvlink", at.links_of),)),
}
_MIG_LOOKS = (Look("nvidia_smi", at.smi_tag("mig_device")), Look("nvidia_list", at.contains("MIG ")))
_MIG = {name: Rule("nvidia-smi -q has instances and memory, -L has profile and UUID; both number them on their GPU",
                   _MIG_LOOKS)
        for name in ("index", "profile", "uuid", "gpu_instance", "compute_instance", "memory_mib")}


def _nic(how: str, *rdma: Look, net: bool = False, pick: Callable[[str], str] | None = None) -> Rule:
    return Rule(how, (*rdma, *((Look("net", _NET, pick),) if net else ())))


def _device() -> Look:
    return Look("infiniband", _RDMA)


_P = Look("infiniband", _PORT)
_IBSTAT = Look("ibstat", at.in_block("CA '{rdma}'", "Port {port}:", "CA "))
_CA = Look("ibstat", at.start("CA '{rdma}'"))
_BY_RDMA = "of the RDMA device {rdma}; a plain interface is found by its name {netdev}"
_NIC: dict[str, Rule] = {
    "name": _nic("the RDMA device, or the interface", _device(), _CA, net=True),
    "rdma": _nic("the kernel's name of the RDMA device", _device(), _CA),
    "port": _nic("a port of the RDMA device", _P, _IBSTAT),
    "netdev": _nic("the port's interface by the GID table; the device's only one where there is none", _P, _device(),
                   net=True),
    "link_layer": _nic(_BY_RDMA + ": type 1 is Ethernet, 32 InfiniBand", _P, _IBSTAT, net=True),
    "state": _nic(_BY_RDMA, _P, _IBSTAT, net=True), "physical_state": _nic("of the port", _P, _IBSTAT),
    "rate_gbps": _nic("the number in the port's rate; of an interface its speed in Mb/s / 1000", _P, _IBSTAT, net=True),
    "rate_text": _nic("the port's rate as it stands", _P, _IBSTAT, net=True),
    "mtu": _nic("of the interface", net=True), "guid": _nic("the node GUID of the device", _device(), _CA),
    "lid": _nic("of the port, hexadecimal in /sys", _P, _IBSTAT),
    "sm_lid": _nic("of the port, hexadecimal in /sys", _P, _IBSTAT),
    "gid_index": _nic("RoCE: the first GID of version 2 that holds an IPv4 address", _P),
    "port_guid": _nic("the last half of the port's first GID", _P, _IBSTAT),
    "active_mtu": _nic("of the port", _P, _IBSTAT), "firmware": _nic("of the device", _device(), _CA),
    "psid": _nic("the board's ID", _device()), "model": _nic("the device's type", _device(), _CA),
    "mac": _nic("of the interface", net=True), "driver": _nic(_BY_RDMA, _device(), net=True),
    "pci": _nic(_BY_RDMA + ": the device behind it", _device(), net=True),
    "numa": _nic("the device's numa_node; -1 is unknown", _device(), _pci(), net=True),
    "virtual": _nic("no PCI device behind it, or a virtual function", _device(), net=True),
    "serial": _nic("of the adapter", Look("lspci", at.start("{pci}"))),
    "description": _nic("the device's node description, which the subnet manager shows", _device()),
    "vfs": _nic("virtual functions that are on", _device(), net=True),
    "pf": _nic("the physical function that it is one of", _device(), net=True),
    "bond": _nic("the bond that the interface belongs to", net=True),
    "bonded": _nic("the interfaces of the bond", net=True),
    "pcie_gen": Rule("the link of its PCI device", (_pci(),)),
    "pcie_width": Rule("the link of its PCI device", (_pci("width"),)),
    "pcie_gen_max": Rule("what the link can do", (_pci(),)),
    "pcie_width_max": Rule("what the link can do", (_pci("maxwidth"),)),
    "gpu_relations": Rule("the adapter's column in the rows of the GPUs; the legend says which adapter it is", (
        Look("nvidia_topo", at.nic_rows),)),
    "gpu_relations.*": Rule("the adapter's row and the GPU's column; the legend says which adapter it is", (
        Look("nvidia_topo", at.nic_rows),)),
}
_BUS = at.start("pci={address}\t")
_PCI: dict[str, Rule] = {name: Rule(how, (Look("pci", _BUS), Look("lspci", at.start("{address}")))) for name, how in (
    ("address", "as the kernel names it"), ("class_id", "class"), ("vendor_id", "vendor"), ("device_id", "device"),
    ("numa", "numa_node; -1 is unknown"), ("local_cpus", "local_cpulist"), ("link", "current_link_speed and _width"),
    ("link_max", "max_link_speed and _width"), ("driver", "the driver that has it"), ("name", "lspci's name for it"),
    ("parent", "the device above it in its path"), ("root", "the root bus in its path"))}
_DIMM: dict[str, Rule] = {name: Rule("of the memory device of that slot", (Look("dimms", at.dimm(*labels)),))
                          for name, labels in (
    ("slot", ("Bank Locator",)), ("size_mib", ("Size",)), ("kind", ("Type",)),
    ("speed_mts", ("Configured Memory Speed", "Configured Clock Speed")), ("speed_max_mts", ("Speed",)),
    ("manufacturer", ("Manufacturer",)), ("part", ("Part Number",)), ("serial", ("Serial Number",)))}
_DISK: dict[str, Rule] = {name: Rule("of the block device of that name", (
    Look("disks", at.either(at.both(at.start("disk={name}\t"), at.contains('NAME="{name}"')))),)) for name in (
    "name", "model", "size_bytes", "serial", "firmware", "rotational", "transport", "pci", "numa")}
_MOUNT: dict[str, Rule] = {name: Rule("a word of the line of that mount", (Look("mounts", at.contains(" {target} ")),))
                           for name in ("target", "source", "kind", "options")}
_BMC: dict[str, Rule] = {
    "bmc.address": Rule("of the LAN channel", (Look("bmc", at.label("IP Address")),)),
    "bmc.firmware": Rule("as the BMC says; without ipmitool as the kernel's driver does", (
        Look("bmc", at.either(at.label("Firmware Revision"), at.start("sys firmware_revision="))),)),
    "bmc.manufacturer": Rule("as the BMC says", (
        Look("bmc", at.either(at.label("Manufacturer Name"), at.start("sys manufacturer_id="))),)),
    "bmc.psus": Rule("sensors of power supplies", (Look("bmc", at.contains(" | 10.")),)),
    "bmc.fans": Rule("sensors of fans", (Look("bmc", at.either(at.contains("RPM"), at.every)),)),
    "bmc.events": Rule("the newest entries of the system event log", (Look("bmc", at.every),)),
    "bmc.settings.*": Rule("an attribute of the BIOS", (Look("bmc", at.contains("{key}")),)),
}


def _under(prefix: str, rules: Mapping[str, Rule]) -> Iterable[tuple[str, Rule]]:
    return ((f"{prefix}.{name}", rule) for name, rule in rules.items())


RULES: Mapping[str, Rule] = {
    **_NODE, **_CPU, **_BMC, **dict(_under("gpus.*", _GPU)), **dict(_under("gpus.*.mig_devices.*", _MIG)),
    **dict(_under("nics.*", _NIC)), **dict(_under("pci.*", _PCI)), **dict(_under("dimms.*", _DIMM)),
    **dict(_under("disks.*", _DISK)), **dict(_under("mounts.*", _MOUNT)),
    "gpu_links": Rule("rows and columns by GPU index", (Look("nvidia_topo", at.matrix),)),
    "gpu_links.*": Rule("the row of that GPU", (Look("nvidia_topo", at.matrix),)),
    "gpu_links.*.*": Rule("where the row of one meets the column of the other; both rows are shown", (
        Look("nvidia_topo", at.matrix),)),
    "sources.*.path": Rule("where the text was kept"), "sources.*.kinds": Rule("what was found in it"),
    "sources.*.sha256": Rule("of the text as it was read"),
}


def rule_for(pattern: str) -> Rule | None:
    """The rule of a path pattern, or of the value that it is a part of."""
    while pattern:
        if pattern in RULES:
            return RULES[pattern]
        pattern, _, last = pattern.rpartition(".")
        if last != "*":
            return None
    return None
