"""What the nvidia-smi stand-in prints, GPU by GPU, written beforehand so that the stand-in needs only a shell.

One list of attributes gives both the text of `nvidia-smi -q` and the XML of `-q -x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union
from xml.sax.saxutils import escape

from hpcadmin.lab.hardware_profile import CUDA, DRIVER, GpuPlace, Profile, gpu_serial, gpu_uuid
from hpcadmin.lab.hardware_query import bus_id, draw, query_fields, temperature, width
from hpcadmin.lab.hardware_topo import nvlink_errors, nvlink_status, topo_legend, topo_matrix
from hpcadmin.lab.hardware_tree import Tree

# (label of -q or "", tag of -x or "", value or the attributes below it)
Attribute = tuple[str, str, Union[str, "Sequence[Attribute]"]]
NA = "N/A"


def write_smi(tree: Tree, profile: Profile, seed: str) -> None:
    """smi/ of the tree: the stand-in's answers, in parts; N.slow.* replace N.* of a GPU that is slowed down."""
    tree.file("smi/version", versions())
    tree.file("smi/driver", f"{DRIVER} {CUDA}\n")
    tree.file("smi/topo", topo_matrix(profile))
    tree.file("smi/legend", topo_legend(profile))
    tree.file("smi/list", "".join(
        f"{gpu.index}\t{bus_id(gpu)}\t{gpu_uuid(seed, gpu)}\t{profile.gpu.model}\n" for gpu in profile.gpus))
    for gpu in profile.gpus:
        for slow in (False, True):
            name = f"smi/{gpu.index}{'.slow' if slow else ''}"
            attributes = gpu_attributes(profile, gpu, seed, slow)
            tree.file(f"{name}.q", f"GPU {bus_id(gpu)}\n{as_text(attributes)}\n")
            tree.file(f"{name}.xml", f'\t<gpu id="{bus_id(gpu)}">\n{as_xml(attributes)}\t</gpu>\n\n')
            tree.file(f"{name}.fields", "".join(
                f"{key}\t{value}\t{unit}\n" for key, value, unit in query_fields(profile, gpu, seed, slow)))
            tree.file(f"{name}.row", table_row(profile, gpu, slow))
        tree.file(f"smi/{gpu.index}.nvlink", nvlink_status(profile, gpu))
        tree.file(f"smi/{gpu.index}.nverror", nvlink_errors(profile, gpu))


def as_text(attributes: Sequence[Attribute], depth: int = 1) -> str:
    lines = []
    for label, _, value in attributes:
        if not label:
            continue
        name = "    " * depth + label
        lines.append(f"{name:<42}: {value}\n" if isinstance(value, str) else f"{name}\n{as_text(value, depth + 1)}")
    return "".join(lines)


def as_xml(attributes: Sequence[Attribute], depth: int = 2) -> str:
    lines = []
    indent = "\t" * depth
    for _, tag, value in attributes:
        if not tag:
            continue
        if isinstance(value, str):
            lines.append(f"{indent}<{tag}>{escape(value)}</{tag}>\n")
        else:
            lines.append(f"{indent}<{tag}>\n{as_xml(value, depth + 1)}{indent}</{tag}>\n")
    return "".join(lines)


def gpu_attributes(profile: Profile, gpu: GpuPlace, seed: str, slow: bool) -> list[Attribute]:
    return [*_identity(profile, gpu, seed), *_state(profile, gpu, slow), *_memory(profile),
            *_errors(), *_heat_and_power(profile, gpu, seed, slow), *_clocks(profile, slow)]


def _identity(profile: Profile, gpu: GpuPlace, seed: str) -> list[Attribute]:
    spec = profile.gpu
    return [
        ("Product Name", "product_name", spec.model),
        ("Product Brand", "product_brand", "NVIDIA"),
        ("Product Architecture", "product_architecture", spec.architecture),
        ("Display Mode", "display_mode", "Enabled"),
        ("Display Active", "display_active", "Disabled"),
        ("Persistence Mode", "persistence_mode", "Enabled"),
        ("Addressing Mode", "addressing_mode", "None"),
        ("MIG Mode", "mig_mode", [("Current", "current_mig", "Disabled"), ("Pending", "pending_mig", "Disabled")]),
        ("", "mig_devices", "None"),
        ("Accounting Mode", "accounting_mode", "Disabled"),
        ("Accounting Mode Buffer Size", "accounting_mode_buffer_size", "4000"),
        ("Driver Model", "driver_model", [("Current", "current_dm", NA), ("Pending", "pending_dm", NA)]),
        ("Serial Number", "serial", gpu_serial(seed, gpu)),
        ("GPU UUID", "uuid", gpu_uuid(seed, gpu)),
        ("Minor Number", "minor_number", str(gpu.minor)),
        ("VBIOS Version", "vbios_version", spec.vbios),
        ("MultiGPU Board", "multigpu_board", "No"),
        ("Board ID", "board_id", f"0x{int(gpu.pci[5:7], 16) << 8:x}"),
        ("Board Part Number", "board_part_number", spec.part_number),
        ("GPU Part Number", "gpu_part_number", spec.gpu_part_number),
        ("FRU Part Number", "gpu_fru_part_number", NA),
        ("Module ID", "gpu_module_id", str(gpu.index + 1)),
        ("Inforom Version", "inforom_version", [
            ("Image Version", "img_version", spec.image_version), ("OEM Object", "oem_object", "2.1"),
            ("ECC Object", "ecc_object", "7.16"), ("Power Management Object", "pwr_object", NA)]),
        ("Inforom BBX Object Flush", "inforom_bbx_flush", [
            ("Latest Timestamp", "latest_timestamp", NA), ("Latest Duration", "latest_duration", NA)]),
        ("GPU Operation Mode", "gpu_operation_mode", [("Current", "current_gom", NA), ("Pending", "pending_gom", NA)]),
        ("GSP Firmware Version", "gsp_firmware_version", DRIVER),
        ("GPU Virtualization Mode", "gpu_virtualization_mode", [
            ("Virtualization Mode", "virtualization_mode", "None"), ("Host VGPU Mode", "host_vgpu_mode", NA)]),
        ("GPU Reset Status", "gpu_reset_status", [
            ("Reset Required", "reset_required", "No"),
            ("Drain and Reset Recommended", "drain_and_reset_recommended", "No")]),
        ("IBMNPU", "ibmnpu", [("Relaxed Ordering Mode", "relaxed_ordering_mode", NA)]),
    ]


def _state(profile: Profile, gpu: GpuPlace, slow: bool) -> list[Attribute]:
    spec = profile.gpu
    gen = str(spec.pcie_gen)
    active = "Active" if slow else "Not Active"
    return [
        ("PCI", "pci", [
            ("Bus", "pci_bus", f"0x{gpu.pci[5:7].upper()}"), ("Device", "pci_device", "0x00"),
            ("Domain", "pci_domain", "0x0000"), ("Device Id", "pci_device_id", f"0x{spec.device_id.upper()}10DE"),
            ("Bus Id", "pci_bus_id", bus_id(gpu)),
            ("Sub System Id", "pci_sub_system_id", f"0x{spec.subsystem_id.upper()}10DE"),
            ("GPU Link Info", "pci_gpu_link_info", [
                ("PCIe Generation", "pcie_gen", [
                    ("Max", "max_link_gen", gen), ("Current", "current_link_gen", gen),
                    ("Device Current", "device_current_link_gen", gen), ("Device Max", "max_device_link_gen", gen),
                    ("Host Max", "max_host_link_gen", gen)]),
                ("Link Width", "link_widths", [
                    ("Max", "max_link_width", f"{spec.pcie_width}x"),
                    ("Current", "current_link_width", f"{width(gpu, slow)}x")])]),
            ("Bridge Chip", "pci_bridge_chip", [("Type", "bridge_chip_type", NA), ("Firmware", "bridge_chip_fw", NA)]),
            ("Replays Since Reset", "replay_counter", "0"),
            ("Replay Number Rollovers", "replay_rollover_counter", "0"),
            ("Tx Throughput", "tx_util", "0 KB/s"), ("Rx Throughput", "rx_util", "0 KB/s"),
            ("Atomic Caps Inbound", "atomic_caps_inbound", NA), ("Atomic Caps Outbound", "atomic_caps_outbound", NA)]),
        ("Fan Speed", "fan_speed", NA),
        ("Performance State", "performance_state", "P0"),
        ("Clocks Event Reasons", "clocks_event_reasons", [
            ("Idle", "clocks_event_reason_gpu_idle", "Not Active" if slow else "Active"),
            ("Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting", "Not Active"),
            ("SW Power Cap", "clocks_event_reason_sw_power_cap", "Not Active"),
            ("HW Slowdown", "clocks_event_reason_hw_slowdown", active),
            ("    HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown", active),
            ("    HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown", "Not Active"),
            ("Sync Boost", "clocks_event_reason_sync_boost", "Not Active"),
            ("SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown", "Not Active"),
            ("Display Clock Setting", "clocks_event_reason_display_clocks_setting", "Not Active")]),
        ("Sparse Operation Mode", "", "Disabled"),
    ]


def _mib(total: int, used: int, reserved: int | None = None) -> list[Attribute]:
    rows: list[Attribute] = [("Total", "total", f"{total} MiB")]
    if reserved is not None:
        rows.append(("Reserved", "reserved", f"{reserved} MiB"))
    free = total - used - (reserved or 0)
    return [*rows, ("Used", "used", f"{used} MiB"), ("Free", "free", f"{free} MiB")]


def _memory(profile: Profile) -> list[Attribute]:
    spec = profile.gpu
    idle: list[Attribute] = [("Active Sessions", "session_count", "0"), ("Average FPS", "average_fps", "0"),
                             ("Average Latency", "average_latency", "0")]
    return [
        ("FB Memory Usage", "fb_memory_usage", _mib(spec.memory_mib, 0, spec.reserved_mib)),
        ("BAR1 Memory Usage", "bar1_memory_usage", _mib(spec.bar1_mib, 1)),
        ("Conf Compute Protected Memory Usage", "cc_protected_memory_usage", _mib(0, 0)),
        ("Compute Mode", "compute_mode", "Default"),
        ("Utilization", "utilization", [
            ("Gpu", "gpu_util", "0 %"), ("Memory", "memory_util", "0 %"), ("Encoder", "encoder_util", "0 %"),
            ("Decoder", "decoder_util", "0 %"), ("JPEG", "jpeg_util", "0 %"), ("OFA", "ofa_util", "0 %")]),
        ("Encoder Stats", "encoder_stats", idle),
        ("FBC Stats", "fbc_stats", idle),
        ("ECC Mode", "ecc_mode", [("Current", "current_ecc", "Enabled"), ("Pending", "pending_ecc", "Enabled")]),
    ]


def _errors() -> list[Attribute]:
    counts: list[Attribute] = [
        ("SRAM Correctable", "sram_correctable", "0"),
        ("SRAM Uncorrectable Parity", "sram_uncorrectable_parity", "0"),
        ("SRAM Uncorrectable SEC-DED", "sram_uncorrectable_secded", "0"),
        ("DRAM Correctable", "dram_correctable", "0"), ("DRAM Uncorrectable", "dram_uncorrectable", "0")]
    retired: list[Attribute] = [("", "retired_count", NA), ("", "retired_pagelist", NA)]
    return [
        ("ECC Errors", "ecc_errors", [
            ("Volatile", "volatile", counts),
            ("Aggregate", "aggregate", [*counts, ("SRAM Threshold Exceeded", "sram_threshold_exceeded", "No")]),
            ("Aggregate Uncorrectable SRAM Sources", "aggregate_uncorrectable_sram_sources", [
                ("SRAM L2", "sram_l2", "0"), ("SRAM SM", "sram_sm", "0"),
                ("SRAM Microcontroller", "sram_microcontroller", "0"), ("SRAM PCIE", "sram_pcie", "0"),
                ("SRAM Other", "sram_other", "0")])]),
        ("Retired Pages", "", [("Single Bit ECC", "", NA), ("Double Bit ECC", "", NA),
                               ("Pending Page Blacklist", "", NA)]),
        ("", "retired_pages", [
            ("", "multiple_single_bit_retirement", retired), ("", "double_bit_retirement", retired),
            ("", "pending_blacklist", NA), ("", "pending_retirement", NA)]),
        ("Remapped Rows", "remapped_rows", [
            ("Correctable Error", "remapped_row_corr", "0"), ("Uncorrectable Error", "remapped_row_unc", "0"),
            ("Pending", "remapped_row_pending", "No"), ("Remapping Failure Occurred", "remapped_row_failure", "No"),
            ("Bank Remap Availability Histogram", "row_remapper_histogram", [
                ("Max", "row_remapper_histogram_max", "2560 bank(s)"),
                ("High", "row_remapper_histogram_high", "0 bank(s)"),
                ("Partial", "row_remapper_histogram_partial", "0 bank(s)"),
                ("Low", "row_remapper_histogram_low", "0 bank(s)"),
                ("None", "row_remapper_histogram_none", "0 bank(s)")])]),
    ]


def _heat_and_power(profile: Profile, gpu: GpuPlace, seed: str, slow: bool) -> list[Attribute]:
    heat = temperature(gpu, seed, slow)
    watts = profile.gpu.power_w
    limits = (("Current Power Limit", "current_power_limit", watts),
              ("Requested Power Limit", "requested_power_limit", watts),
              ("Default Power Limit", "default_power_limit", watts),
              ("Min Power Limit", "min_power_limit", profile.gpu.power_min_w),
              ("Max Power Limit", "max_power_limit", watts))
    return [
        ("Temperature", "temperature", [
            ("GPU Current Temp", "gpu_temp", f"{heat} C"),
            ("GPU T.Limit Temp", "gpu_temp_tlimit", f"{87 - heat} C"),
            ("GPU Shutdown T.Limit Temp", "gpu_temp_max_tlimit_threshold", "-8 C"),
            ("GPU Slowdown T.Limit Temp", "gpu_temp_slow_tlimit_threshold", "-2 C"),
            ("GPU Max Operating T.Limit Temp", "gpu_temp_max_gpu_tlimit_threshold", "0 C"),
            ("GPU Target Temperature", "gpu_target_temperature", NA),
            ("Memory Current Temp", "memory_temp", f"{heat + 9} C"),
            ("Memory Max Operating T.Limit Temp", "gpu_temp_max_mem_tlimit_threshold", "0 C")]),
        ("GPU Power Readings", "gpu_power_readings", [
            ("", "power_state", "P0"), ("Power Draw", "power_draw", f"{draw(profile, gpu, seed)} W"),
            *[(label, tag, f"{value}.00 W") for label, tag, value in limits]]),
        ("Module Power Readings", "module_power_readings", [
            ("", "power_state", "P0"), ("Power Draw", "power_draw", NA),
            *[(label, tag, NA) for label, tag, _ in limits]]),
    ]


def _clocks(profile: Profile, slow: bool) -> list[Attribute]:
    spec = profile.gpu
    now = 345 if slow else spec.clock_mhz
    both: list[Attribute] = [("Graphics", "graphics_clock", f"{spec.clock_mhz} MHz"),
                             ("Memory", "mem_clock", f"{spec.memory_clock_mhz} MHz")]
    fabric: list[Attribute] = [("State", "state", "Completed" if spec.fabric else NA),
                               ("Status", "status", "Success" if spec.fabric else NA),
                               ("CliqueId", "cliqueId", "0" if spec.fabric else NA),
                               ("ClusterUUID", "clusterUuid",
                                "00000000-0000-0000-0000-000000000000" if spec.fabric else NA)]
    return [
        ("Clocks", "clocks", [
            ("Graphics", "graphics_clock", f"{now} MHz"), ("SM", "sm_clock", f"{now} MHz"),
            ("Memory", "mem_clock", f"{spec.memory_clock_mhz} MHz"), ("Video", "video_clock", f"{now * 3 // 4} MHz")]),
        ("Applications Clocks", "applications_clocks", both),
        ("Default Applications Clocks", "default_applications_clocks", both),
        ("Deferred Clocks", "deferred_clocks", [("Memory", "mem_clock", NA)]),
        ("Max Clocks", "max_clocks", [
            ("Graphics", "graphics_clock", f"{spec.clock_mhz} MHz"), ("SM", "sm_clock", f"{spec.clock_mhz} MHz"),
            ("Memory", "mem_clock", f"{spec.memory_clock_mhz} MHz"),
            ("Video", "video_clock", f"{spec.clock_mhz * 3 // 4} MHz")]),
        ("Max Customer Boost Clocks", "max_customer_boost_clocks", [
            ("Graphics", "graphics_clock", f"{spec.clock_mhz} MHz")]),
        ("Clock Policy", "clock_policy", [("Auto Boost", "auto_boost", NA),
                                          ("Auto Boost Default", "auto_boost_default", NA)]),
        ("Voltage", "voltage", [("Graphics", "graphics_volt", "670.000 mV")]),
        ("Fabric", "fabric", fabric),
        ("Processes", "", "None"),
        ("", "processes", []),
        ("", "accounted_processes", []),
    ]


def table_row(profile: Profile, gpu: GpuPlace, slow: bool) -> str:
    """The three lines of one GPU in the table of plain nvidia-smi."""
    spec = profile.gpu
    heat, power = (88 if slow else 28), spec.power_w // 10
    usage = f"{0:7d}MiB / {spec.memory_mib:6d}MiB"
    return (f"| {gpu.index:3d}  {spec.model:<28.28}{'On':>5}  |   {bus_id(gpu)} {'Off':>3} |{0:21d} |\n"
            f"| N/A   {heat:2d}C    P0           {power:4d}W /{spec.power_w:5d}W |{usage:>23} |"
            f"{'0%':>8}{'Default':>13} |\n"
            f"|{'':41}|{'':24}|{'Disabled':>21} |\n"
            f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+\n")


def versions() -> str:
    return (f"NVIDIA-SMI version  : {DRIVER}\nNVML version        : {DRIVER.rpartition('.')[0]}\n"
            f"DRIVER version      : {DRIVER}\nCUDA Version        : {CUDA}\n")
