"""The fields of `nvidia-smi --query-gpu` on simulated GPUs, and the values that several of its outputs share."""

from __future__ import annotations

from hpcadmin.lab.hardware_profile import DRIVER, GpuPlace, Profile, gpu_serial, gpu_uuid, token


def bus_id(gpu: GpuPlace) -> str:
    return f"0000{gpu.pci}".upper()


def width(gpu: GpuPlace, slow: bool) -> int:
    return min(gpu.width, 8) if slow else gpu.width


def temperature(gpu: GpuPlace, seed: str, slow: bool) -> int:
    return 88 if slow else 26 + int(token(seed, f"heat {gpu.pci}", 2), 16) % 8


def draw(profile: Profile, gpu: GpuPlace, seed: str) -> str:
    return f"{profile.gpu.power_w * 0.1 + int(token(seed, f'power {gpu.pci}', 2), 16) % 50 / 10:.2f}"


def query_fields(profile: Profile, gpu: GpuPlace, seed: str, slow: bool) -> list[tuple[str, str, str]]:
    """Fields of --query-gpu: name, value, unit ("" for none)."""
    spec = profile.gpu
    heat = temperature(gpu, seed, slow)
    clock = str(345 if slow else spec.clock_mhz)
    free = spec.memory_mib - spec.reserved_mib
    active, watts, gen = ("Active" if slow else "Not Active"), f"{spec.power_w}.00", str(spec.pcie_gen)
    fields = [
        ("driver_version", DRIVER, ""), ("count", str(len(profile.gpus)), ""), ("name", spec.model, ""),
        ("serial", gpu_serial(seed, gpu), ""), ("uuid", gpu_uuid(seed, gpu), ""), ("index", str(gpu.index), ""),
        ("pci.bus_id", bus_id(gpu), ""), ("pci.domain", "0x0000", ""), ("pci.bus", f"0x{gpu.pci[5:7].upper()}", ""),
        ("pci.device", "0x00", ""), ("pci.device_id", f"0x{spec.device_id.upper()}10DE", ""),
        ("pci.sub_device_id", f"0x{spec.subsystem_id.upper()}10DE", ""), ("pcie.link.gen.current", gen, ""),
        ("pcie.link.gen.gpucurrent", gen, ""), ("pcie.link.gen.max", gen, ""), ("pcie.link.gen.gpumax", gen, ""),
        ("pcie.link.gen.hostmax", gen, ""), ("pcie.link.width.current", str(width(gpu, slow)), ""),
        ("pcie.link.width.max", str(spec.pcie_width), ""), ("display_mode", "Enabled", ""),
        ("display_active", "Disabled", ""), ("persistence_mode", "Enabled", ""), ("accounting.mode", "Disabled", ""),
        ("vbios_version", spec.vbios, ""), ("inforom.img", spec.image_version, ""), ("inforom.oem", "2.1", ""),
        ("inforom.ecc", "7.16", ""), ("fan.speed", "[N/A]", ""), ("pstate", "P0", ""), ("compute_mode", "Default", ""),
        ("compute_cap", spec.compute_cap, ""), ("memory.total", str(spec.memory_mib), "MiB"),
        ("memory.reserved", str(spec.reserved_mib), "MiB"), ("memory.used", "0", "MiB"),
        ("memory.free", str(free), "MiB"),
        ("utilization.gpu", "0", "%"), ("utilization.memory", "0", "%"), ("temperature.gpu", str(heat), ""),
        ("temperature.memory", str(heat + 9), ""), ("temperature.gpu.tlimit", str(87 - heat), ""),
        ("power.management", "Enabled", ""), ("power.draw", draw(profile, gpu, seed), "W"),
        ("power.limit", watts, "W"), ("enforced.power.limit", watts, "W"), ("power.default_limit", watts, "W"),
        ("power.min_limit", f"{spec.power_min_w}.00", "W"), ("power.max_limit", watts, "W"),
        ("clocks.current.graphics", clock, "MHz"), ("clocks.current.sm", clock, "MHz"),
        ("clocks.current.memory", str(spec.memory_clock_mhz), "MHz"),
        ("clocks.applications.graphics", str(spec.clock_mhz), "MHz"),
        ("clocks.max.graphics", str(spec.clock_mhz), "MHz"), ("clocks.max.sm", str(spec.clock_mhz), "MHz"),
        ("clocks.max.memory", str(spec.memory_clock_mhz), "MHz"), ("mig.mode.current", "Disabled", ""),
        ("mig.mode.pending", "Disabled", ""), ("ecc.mode.current", "Enabled", ""), ("ecc.mode.pending", "Enabled", ""),
        ("gsp.mode.current", "Enabled", ""), ("retired_pages.pending", "[N/A]", ""),
        ("retired_pages.single_bit_ecc.count", "[N/A]", ""), ("retired_pages.double_bit.count", "[N/A]", ""),
        ("fabric.state", "Completed" if spec.fabric else "[N/A]", ""),
        ("fabric.status", "Success" if spec.fabric else "[N/A]", ""),
        ("remapped_rows.correctable", "0", ""), ("remapped_rows.uncorrectable", "0", ""),
        ("remapped_rows.pending", "No", ""), ("remapped_rows.failure", "No", ""),
        ("reset_status.reset_required", "No", ""), ("reset_status.drain_and_reset_recommended", "No", ""),
    ]
    for kind in ("corrected", "uncorrected"):
        for when in ("volatile", "aggregate"):
            for place in ("device_memory", "l2_cache", "sram", "dram", "total"):
                fields.append((f"ecc.errors.{kind}.{when}.{place}", "0", ""))
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        fields += [(f"{prefix}.{name}", active if name in ("hw_slowdown", "hw_thermal_slowdown") else "Not Active", "")
                   for name in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_power_cap",
                                "sw_thermal_slowdown", "sync_boost", "applications_clocks_setting")]
        fields.append((f"{prefix}.gpu_idle", "Not Active" if slow else "Active", ""))
        fields.append((f"{prefix}.active", "0x0000000000000048" if slow else "0x0000000000000001", ""))
    return fields
