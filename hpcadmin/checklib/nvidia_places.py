"""Where the facts of a GPU stand in `nvidia-smi -q` and `-q -x`, by version of the tool, and what is right on any GPU.

A place is a path of tags (-x) or of labels in lower case with _ for what is no letter or digit (-q).
"""

from __future__ import annotations

import re

_EVENTS = ("clocks_event_reasons", "clocks_throttle_reasons")
NOT_TOLD = ("N/A", "[N/A]", "[Not Supported]", "Not Supported", "Requested functionality has been deprecated")


def _reason(name: str, below: str = "") -> tuple[str, ...]:
    """A reason of the clocks in both spellings, as tag and as label (`below`: the label that it stands under)."""
    tags = tuple(f"{e}/{e.removesuffix('s')}_{name}" for e in _EVENTS)
    return (*tags, *(f"{e}/{below}{name}" for e in _EVENTS), *(f"{e}/{name}" for e in _EVENTS if below))


def _both(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


_TAG_LINK, _LINK = "pci/pci_gpu_link_info", "pci/gpu_link_info"
_ROWS, _BANKS = "remapped_rows/row_remapper_histogram", "remapped_rows/bank_remap_availability_histogram"
_POWER = ("gpu_power_readings", "power_readings")

PLACES: dict[str, tuple[str, ...]] = {
    "model": ("product_name",), "uuid": ("uuid", "gpu_uuid"),
    "persistence": ("persistence_mode",), "pstate": ("performance_state",),
    "mig": _both("mig_mode", "current_mig", "current"), "mig_pending": _both("mig_mode", "pending_mig", "pending"),
    "ecc_mode": _both("ecc_mode", "current_ecc", "current"), "ecc_pending": _both("ecc_mode", "pending_ecc", "pending"),
    "row_remap_pending": _both("remapped_rows", "remapped_row_pending", "pending"),
    "row_remap_failure": _both("remapped_rows", "remapped_row_failure", "remapping_failure_occurred"),
    "rows_uncorrectable": _both("remapped_rows", "remapped_row_unc", "uncorrectable_error"),
    "rows_correctable": _both("remapped_rows", "remapped_row_corr", "correctable_error"),
    "banks_without_spares": (f"{_ROWS}/row_remapper_histogram_none", f"{_BANKS}/none"),
    "page_retirement_pending": _both("retired_pages", "pending_retirement", "pending_blacklist",
                                     "pending_page_blacklist"),
    "pages_single": _both("retired_pages", "multiple_single_bit_retirement/retired_count", "single_bit_ecc"),
    "pages_double": _both("retired_pages", "double_bit_retirement/retired_count", "double_bit_ecc"),
    "hw_slowdown": _reason("hw_slowdown"),
    "hw_thermal_slowdown": _reason("hw_thermal_slowdown", "hw_slowdown/"),
    "hw_power_brake": _reason("hw_power_brake_slowdown", "hw_slowdown/"),
    "sw_thermal_slowdown": _reason("sw_thermal_slowdown"), "sw_power_cap": _reason("sw_power_cap"),
    "idle": (*_reason("gpu_idle"), *(f"{e}/idle" for e in _EVENTS)),
    "pcie_gen": (f"{_TAG_LINK}/pcie_gen/current_link_gen", f"{_LINK}/pcie_generation/current"),
    "pcie_gen_most": (f"{_TAG_LINK}/pcie_gen/max_link_gen", f"{_LINK}/pcie_generation/max"),
    "pcie_width": (f"{_TAG_LINK}/link_widths/current_link_width", f"{_LINK}/link_width/current"),
    "pcie_width_most": (f"{_TAG_LINK}/link_widths/max_link_width", f"{_LINK}/link_width/max"),
    "temperature": _both("temperature", "gpu_temp", "gpu_current_temp"),
    "slowdown_at": _both("temperature", "gpu_temp_slow_threshold", "gpu_slowdown_temp"),
    "heat_margin": _both("temperature", "gpu_temp_tlimit", "gpu_t_limit_temp"),
    "slowdown_margin": _both("temperature", "gpu_temp_slow_tlimit_threshold", "gpu_slowdown_t_limit_temp"),
    "power": tuple(f"{p}/{n}" for p in _POWER for n in ("power_draw", "instant_power_draw", "average_power_draw")),
    "power_limit": tuple(f"{p}/{n}" for p in _POWER for n in ("current_power_limit", "enforced_power_limit",
                                                              "power_limit")),
    "power_default": tuple(f"{p}/default_power_limit" for p in _POWER),
    "clock": _both("clocks", "graphics_clock", "graphics"), "clock_most": _both("max_clocks", "graphics_clock",
                                                                               "graphics"),
    "fabric_state": ("fabric/state",), "fabric_status": ("fabric/status",),
    "fabric_health": ("fabric/health/summary",), "fabric_bandwidth": ("fabric/health/bandwidth",),
    "fabric_route_recovery": ("fabric/health/route_recovery_in_progress",),
    "fabric_route_unhealthy": ("fabric/health/route_unhealthy",),
    "fabric_access_timeout": ("fabric/health/access_timeout_recovery",),
    "reset_required": ("gpu_reset_status/reset_required",),
    "drain_recommended": ("gpu_reset_status/drain_and_reset_recommended",),
    "recovery_action": ("gpu_recovery_action",),
    "sram_threshold_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "channel_repair_pending": ("ecc_errors/channel_repair_pending",),
    "tpc_repair_pending": ("ecc_errors/tpc_repair_pending",),
}
# What is right on every GPU that tells it at all.
EXPECTED = {
    "row_remap_pending": "No", "row_remap_failure": "No", "page_retirement_pending": "No",
    "hw_slowdown": "Not Active", "hw_thermal_slowdown": "Not Active", "hw_power_brake": "Not Active",
    "sw_thermal_slowdown": "Not Active", "fabric_state": "Completed", "fabric_status": "Success",
    "fabric_health": "Healthy", "fabric_bandwidth": "Full", "fabric_route_recovery": "False",
    "fabric_route_unhealthy": "False", "fabric_access_timeout": "False", "reset_required": "No",
    "drain_recommended": "No", "recovery_action": "None", "sram_threshold_exceeded": "No",
    "channel_repair_pending": "No", "tpc_repair_pending": "No",
}
# What every version tells in some way, and since which driver.
NEEDED = {
    "persistence": 0, "pcie_gen": 0, "pcie_gen_most": 0, "pcie_width": 0, "pcie_width_most": 0, "hw_slowdown": 0,
    "hw_thermal_slowdown": 400, "hw_power_brake": 400, "sw_thermal_slowdown": 400, "page_retirement_pending": 0,
    "pages_single": 0, "pages_double": 0, "ecc_mode": 0, "temperature": 0, "power": 0, "power_limit": 0, "clock": 0,
    "pstate": 0, "row_remap_pending": 460, "row_remap_failure": 460, "mig": 460, "mig_pending": 460,
    "fabric_state": 535, "fabric_status": 535,
}
SKIPPED = ("processes", "accounted_processes", "mig_devices", "mig_device", "supported_clocks", "capabilities")
UNCORRECTABLE = re.compile(r"ecc_errors/(volatile|aggregate)/(?:(?:[a-z0-9_]{0,40}_)?uncorrectable(?:_parity|_secded|"
                           r"_sec_ded)?|double_bit/total)\Z")
