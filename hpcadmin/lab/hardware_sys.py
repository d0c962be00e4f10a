"""The simulated CPUs, NUMA nodes, HCAs and driver files as the kernel shows them in /sys and /proc."""

from __future__ import annotations

from hpcadmin.lab.hardware_pci import PciNode
from hpcadmin.lab.hardware_profile import (
    DRIVER,
    CpuSpec,
    NicPlace,
    Profile,
    gpu_uuid,
    id_list,
    id_mask,
    nic_guid,
    node_serial,
    token,
)
from hpcadmin.lab.hardware_tree import Tree

FLAGS = ("fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush dts acpi mmx fxsr sse sse2 "
         "ss ht tm pbe syscall nx pdpe1gb rdtscp lm constant_tsc arch_perfmon rep_good nopl xtopology nonstop_tsc "
         "cpuid aperfmperf pni pclmulqdq monitor ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx "
         "f16c rdrand lahf_lm abm 3dnowprefetch fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx smap "
         "clflushopt clwb avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni")


def write_cpus(tree: Tree, cpu: CpuSpec) -> None:
    """sys/devices/system/cpu."""
    base = "sys/devices/system/cpu"
    everyone = id_list(tuple(range(cpu.count)))
    for name in ("online", "present", "possible"):
        tree.value(f"{base}/{name}", everyone)
    for name, value in (("offline", ""), ("kernel_max", 8191), ("isolated", ""), ("smt/active", 1),
                        ("smt/control", "on"), ("vulnerabilities/meltdown", "Not affected"),
                        ("vulnerabilities/spectre_v2", "Mitigation: Enhanced IBRS")):
        tree.value(f"{base}/{name}", value)
    packages = [cpu.socket_cpus(socket) for socket in range(cpu.sockets)]
    for core in range(cpu.cores):
        for number in cpu.core_cpus(core):
            _write_cpu(tree, cpu, f"{base}/cpu{number}", core, packages)


def _write_cpu(tree: Tree, cpu: CpuSpec, base: str, core: int, packages: list[tuple[int, ...]]) -> None:
    socket = core // cpu.cores_per_socket
    threads = cpu.core_cpus(core)
    local = core % cpu.cores_per_socket
    for name, value in (("core_id", local), ("physical_package_id", socket), ("die_id", 0), ("cluster_id", local)):
        tree.value(f"{base}/topology/{name}", value)
    for name, ids in (("thread_siblings", threads), ("core_cpus", threads), ("cluster_cpus", threads),
                      ("core_siblings", packages[socket]), ("package_cpus", packages[socket]),
                      ("die_cpus", packages[socket])):
        tree.value(f"{base}/topology/{name}", id_mask(ids, cpu.count))
        tree.value(f"{base}/topology/{name}_list", id_list(ids))
    for index, (level, kind, size, ways, ids, number) in enumerate((
            (1, "Data", cpu.l1d_kib, 12, threads, core), (1, "Instruction", cpu.l1i_kib, 8, threads, core),
            (2, "Unified", cpu.l2_kib, 16, threads, core), (3, "Unified", cpu.l3_kib, 15, packages[socket], socket))):
        here = f"{base}/cache/index{index}"
        for name, amount in (("level", level), ("ways_of_associativity", ways), ("coherency_line_size", 64),
                             ("number_of_sets", size * 1024 // (64 * ways)), ("id", number),
                             ("physical_line_partition", 1)):
            tree.value(f"{here}/{name}", amount)
        for name, text in (("type", kind), ("size", f"{size}K"), ("shared_cpu_list", id_list(ids)),
                           ("shared_cpu_map", id_mask(ids, cpu.count))):
            tree.value(f"{here}/{name}", text)
    tree.value(f"{base}/cpufreq/cpuinfo_max_freq", cpu.mhz_max * 1000)
    tree.value(f"{base}/cpufreq/cpuinfo_min_freq", 800_000)
    tree.value(f"{base}/cpufreq/scaling_governor", "performance")
    tree.link(f"{base}/node{socket}", f"sys/devices/system/node/node{socket}")


def write_nodes(tree: Tree, cpu: CpuSpec, memory_kib: int) -> None:
    """sys/devices/system/node: one NUMA node a socket."""
    base = "sys/devices/system/node"
    everyone = id_list(tuple(range(cpu.sockets)))
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        tree.value(f"{base}/{name}", everyone)
    share = memory_kib // cpu.sockets
    for number in range(cpu.sockets):
        here = f"{base}/node{number}"
        ids = cpu.socket_cpus(number)
        tree.value(f"{here}/cpulist", id_list(ids))
        tree.value(f"{here}/cpumap", id_mask(ids, cpu.count))
        tree.value(f"{here}/distance", " ".join("10" if other == number else "21" for other in range(cpu.sockets)))
        tree.file(f"{here}/meminfo", "".join(f"Node {number} {name + ':':<15} {value:8d} kB\n" for name, value in (
            ("MemTotal", share), ("MemFree", share * 3 // 4), ("MemUsed", share - share * 3 // 4))))
        for size in (2048, 1048576):
            for name in ("nr_hugepages", "free_hugepages", "surplus_hugepages"):
                tree.value(f"{here}/hugepages/hugepages-{size}kB/{name}", 0)
        for one in ids:
            tree.link(f"{here}/cpu{one}", f"sys/devices/system/cpu/cpu{one}")


def write_cpuinfo(tree: Tree, cpu: CpuSpec) -> None:
    """proc/cpuinfo."""
    owner = {number: core for core in range(cpu.cores) for number in cpu.core_cpus(core)}
    blocks = []
    for number in range(cpu.count):
        core = owner[number]
        socket, local = divmod(core, cpu.cores_per_socket)
        apic = socket << 7 | local << 1 | number // cpu.cores
        rows = (
            ("processor", number), ("vendor_id", "GenuineIntel"), ("cpu family", cpu.family),
            ("model", cpu.model_number), ("model name", cpu.model), ("stepping", cpu.stepping),
            ("cpu MHz", f"{cpu.mhz}.000"), ("cache size", f"{cpu.l3_kib} KB"), ("physical id", socket),
            ("siblings", cpu.cores_per_socket * cpu.threads_per_core), ("core id", local),
            ("cpu cores", cpu.cores_per_socket), ("apicid", apic), ("initial apicid", apic), ("fpu", "yes"),
            ("fpu_exception", "yes"), ("cpuid level", 32), ("wp", "yes"), ("flags", FLAGS),
            ("bogomips", f"{cpu.mhz * 2}.00"), ("clflush size", 64), ("cache_alignment", 64),
            ("address sizes", "46 bits physical, 57 bits virtual"), ("power management", ""),
        )
        blocks.append("".join(f"{name}{_tabs(name)}: {value}\n" for name, value in rows))
    tree.file("proc/cpuinfo", "\n".join(blocks) + "\n")


def _tabs(name: str) -> str:
    return "\t" * (2 if len(name) < 8 else 1)


def write_hcas(tree: Tree, profile: Profile, seed: str) -> None:
    """sys/class/infiniband."""
    tree.folder("sys/class/infiniband")
    for nic in profile.nics:
        _write_hca(tree, profile, seed, nic)


def guid_text(guid: int) -> str:
    raw = f"{guid:016x}"
    return ":".join(raw[i:i + 4] for i in range(0, 16, 4))


def port_values(rate_text: str, fault: str) -> dict[str, str]:
    """What the files of a port say: "down" has lost its cable, "slow" has one lane of four left."""
    if fault == "down":
        return {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)", "sm_lid": "0x0"}
    if fault == "slow":
        gbps, _, kind = rate_text.partition(" Gb/sec (4X ")
        rate_text = f"{float(gbps) / 4:g} Gb/sec (1X {kind}"
    return {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate_text, "sm_lid": "0x1"}


def nic_lid(seed: str, nic: NicPlace) -> int:
    return 1 + int(token(seed, f"lid {nic.pci}", 4), 16) % 0xBFFE


def _write_hca(tree: Tree, profile: Profile, seed: str, nic: NicPlace) -> None:
    spec = profile.nic
    base = f"sys/class/infiniband/{nic.name}"
    guid = guid_text(nic_guid(seed, nic))
    for name, value in (("fw_ver", spec.firmware), ("board_id", spec.board_id), ("hca_type", spec.hca_type),
                        ("hw_rev", 0), ("node_guid", guid), ("sys_image_guid", guid), ("node_type", "1: CA"),
                        ("node_desc", f"{seed} {nic.name}")):
        tree.value(f"{base}/{name}", value)
    port = f"{base}/ports/1"
    for name, text in port_values(spec.rate_text, "").items():
        tree.value(f"{port}/{name}", text)
    for name, value in (("link_layer", "InfiniBand"), ("lid", f"0x{nic_lid(seed, nic):x}"), ("lid_mask_count", 0),
                        ("sm_sl", 0), ("cap_mask", "0xa741e848"), ("pkeys/0", "0xffff"),
                        ("gids/0", f"fe80:0000:0000:0000:{guid}"),
                        ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
                        ("gid_attrs/types/0", "IB/RoCE v1")):
        tree.value(f"{port}/{name}", value)
    for name in ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait",
                 "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards",
                 "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
                 "port_rcv_constraint_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors",
                 "VL15_dropped", "unicast_xmit_packets", "unicast_rcv_packets"):
        tree.value(f"{port}/counters/{name}", 0)
    for name in ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
                 "roce_slow_restart"):
        tree.value(f"{port}/hw_counters/{name}", 0)
    tree.link(f"{base}/device", f"sys/bus/pci/devices/{nic.pci}")


def write_driver(tree: Tree, profile: Profile, seed: str) -> None:
    """proc/driver/nvidia, as the GPU driver makes it."""
    tree.file("proc/driver/nvidia/version",
              f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Jul 16 00:00:00 UTC 2024\n"
              "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    for gpu in profile.gpus:
        rows = (("Model", profile.gpu.model), ("IRQ", 200 + gpu.index), ("GPU UUID", gpu_uuid(seed, gpu)),
                ("Video BIOS", profile.gpu.vbios), ("Bus Type", "PCIe"), ("DMA Size", "52 bits"),
                ("DMA Mask", "0xfffffffffffff"), ("Bus Location", gpu.pci), ("Device Minor", gpu.minor),
                ("GPU Firmware", DRIVER), ("GPU Excluded", "No"))
        tree.file(f"proc/driver/nvidia/gpus/{gpu.pci}/information",
                  "".join(f"{name}:{_tabs(name + ':')} {value}\n" for name, value in rows))
    tree.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n"
                                           "DeviceFileMode: 438\nEnableMSI: 1\n")


def write_dmi(tree: Tree, profile: Profile, seed: str) -> None:
    """sys/class/dmi/id: maker, model and this node's own serial."""
    for name, value in (("sys_vendor", profile.vendor), ("product_name", profile.product),
                        ("product_serial", node_serial(seed)), ("chassis_serial", node_serial(seed)),
                        ("board_vendor", profile.vendor), ("board_name", f"{profile.product} board"),
                        ("board_serial", f"B{node_serial(seed)}"), ("bios_vendor", "American Megatrends Inc."),
                        ("bios_version", profile.bios), ("bios_date", "02/27/2024")):
        tree.value(f"sys/class/dmi/id/{name}", value)


def gpu_table(profile: Profile, seed: str) -> str:
    """What the C stand-ins read: index, minor, PCI address, UUID, memory in MiB and model, tab separated."""
    return "".join(f"{gpu.index}\t{gpu.minor}\t{gpu.pci}\t{gpu_uuid(seed, gpu)}\t{profile.gpu.memory_mib}\t"
                   f"{profile.gpu.model}\n" for gpu in profile.gpus)


def device_list(profile: Profile, pci: list[PciNode]) -> str:
    """Lines "c MAJOR MINOR MODE PATH" for mknod. The number of nvidia-uvm is given out at run time on a real
    machine; here it is one of the driver's own that nothing else uses."""
    rows = [(195, gpu.minor, "0666", f"/dev/nvidia{gpu.minor}") for gpu in profile.gpus]
    rows += [(195, 255, "0666", "/dev/nvidiactl"), (195, 254, "0666", "/dev/nvidia-modeset"),
             (195, 253, "0666", "/dev/nvidia-uvm")]
    switches = sum(1 for node in pci if node.kind == "nvswitch")
    rows += [(195, 200 + i, "0600", f"/dev/nvidia-nvswitch{i}") for i in range(switches)]
    for i, _ in enumerate(profile.nics):
        rows += [(231, i, "0600", f"/dev/infiniband/umad{i}"), (231, 192 + i, "0666", f"/dev/infiniband/uverbs{i}")]
    return "".join(f"c {major} {minor} {mode} {path}\n" for major, minor, mode, path in rows)
