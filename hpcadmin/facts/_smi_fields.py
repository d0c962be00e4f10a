"""The fields of one GPU in nvidia-smi -q, as text or as XML: names moved between drivers, what they mean did not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.facts._base import clean, leading_float, leading_int, maybe_integer, pci_address
from hpcadmin.facts._smi import DEAD, Remapped, Shown
from hpcadmin.model import Gpu, MigDevice

_NOTHING = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "None",
            "Requested functionality has been deprecated")
_DEVICE_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{4})(10[dD][eE])\Z")
_CUT = re.compile(r"(.{0,100}?)\s{0,4}\.\.\.\Z")
# field -> paths in the XML, and the same in the text: the last two names, lower case.
FIELDS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "name": (("product_name",), ("product name",)),
    "uuid": (("uuid",), ("gpu uuid",)),
    "serial": (("serial",), ("serial number",)),
    "minor": (("minor_number",), ("minor number",)),
    "vbios": (("vbios_version",), ("vbios version",)),
    "part": (("board_part_number",), ("board part number",)),
    "persistence": (("persistence_mode",), ("persistence mode",)),
    "compute": (("compute_mode",), ("compute mode",)),
    "mig": (("mig_mode/current_mig",), ("mig mode/current",)),
    "mig_pending": (("mig_mode/pending_mig",), ("mig mode/pending",)),
    "model": (("driver_model/current_dm",), ("driver model/current",)),
    "virtual": (("gpu_virtualization_mode/virtualization_mode",),
                ("gpu virtualization mode/virtualization mode",)),
    "pci": (("pci/pci_bus_id",), ("pci/bus id",)),
    "device": (("pci/pci_device_id",), ("pci/device id",)),
    "gen": (("pci/pci_gpu_link_info/pcie_gen/current_link_gen",), ("pcie generation/current",)),
    "gen_max": (("pci/pci_gpu_link_info/pcie_gen/max_link_gen",), ("pcie generation/max",)),
    "width": (("pci/pci_gpu_link_info/link_widths/current_link_width",), ("link width/current",)),
    "width_max": (("pci/pci_gpu_link_info/link_widths/max_link_width",), ("link width/max",)),
    "memory": (("fb_memory_usage/total",), ("fb memory usage/total", "memory usage/total")),
    "memory_used": (("fb_memory_usage/used",), ("fb memory usage/used", "memory usage/used")),
    "ecc": (("ecc_mode/current_ecc",), ("ecc mode/current",)),
    "ecc_pending": (("ecc_mode/pending_ecc",), ("ecc mode/pending",)),
    "power": (("gpu_power_readings/current_power_limit", "power_readings/power_limit",
               "power_readings/current_power_limit", "gpu_power_readings/power_limit",
               "power_readings/enforced_power_limit"),
              ("gpu power readings/current power limit", "gpu ceiling power limit/current power limit",
               "power readings/power limit", "power readings/enforced power limit")),
    "power_max": (("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
                  ("gpu power readings/max power limit", "power readings/max power limit")),
    "power_default": (("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
                      ("gpu power readings/default power limit", "gpu ceiling power limit/default power limit",
                       "power readings/default power limit")),
    "fabric_state": (("fabric/state",), ("fabric/state",)),
    "fabric_status": (("fabric/status",), ("fabric/status",)),
    "clique": (("fabric/cliqueId", "fabric/clique_id"), ("fabric/cliqueid", "fabric/clique id")),
    "cluster": (("fabric/clusterUuid", "fabric/cluster_uuid"), ("fabric/clusteruuid", "fabric/cluster uuid")),
    "health": (("fabric/health/summary",), ("health/summary",)),
    "bandwidth": (("fabric/health/bandwidth",), ("health/bandwidth",)),
    "route": (("fabric/health/route_unhealthy",), ("health/route unhealthy",)),
    "reset": (("gpu_reset_status/reset_required",), ("gpu reset status/reset required",)),
    "drain": (("gpu_reset_status/drain_and_reset_recommended",),
              ("gpu reset status/drain and reset recommended",)),
    "recovery": (("gpu_recovery_action",), ("gpu recovery action",)),
    "remap_c": (("remapped_rows/remapped_row_corr",), ("remapped rows/correctable error",)),
    "remap_u": (("remapped_rows/remapped_row_unc",), ("remapped rows/uncorrectable error",)),
    "remap_pending": (("remapped_rows/remapped_row_pending",), ("remapped rows/pending",)),
    "remap_failure": (("remapped_rows/remapped_row_failure",), ("remapped rows/remapping failure occurred",)),
    "retired_double": (("retired_pages/double_bit_retirement/retired_count",), ("retired pages/double bit ecc",)),
    "retired_pending": (("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
                        ("retired pages/pending page blacklist", "retired pages/pending")),
    "sram": (("ecc_errors/aggregate/sram_threshold_exceeded",), ("aggregate/sram threshold exceeded",)),
    "channel": (("ecc_errors/channel_repair_pending",), ("ecc errors/channel repair pending",)),
    "tpc": (("ecc_errors/tpc_repair_pending",), ("ecc errors/tpc repair pending",)),
    "unrepairable": (("ecc_errors/unrepairable_memory",), ("ecc errors/unrepairable memory",)),
}
_REASONS = (
    ("HW Slowdown", "hw_slowdown"), ("HW Thermal Slowdown", "hw_thermal_slowdown"),
    ("HW Power Brake Slowdown", "hw_power_brake_slowdown"), ("SW Thermal Slowdown", "sw_thermal_slowdown"),
)


@dataclass(frozen=True)
class Block:
    """One GPU's fields as printed, by path: "pci/pci_bus_id" of the XML, or "pci/bus id" of the text (whole paths and
    their last two names). migs: the same for each MIG device."""

    values: Mapping[str, str]
    xml: bool
    migs: Sequence[Mapping[str, str]] = ()
    pci: str = ""                    # of its heading
    line: int | None = None

    def raw(self, field: str) -> str | None:
        """None: there is no such field."""
        for path in FIELDS[field][0 if self.xml else 1]:
            if path in self.values:
                return self.values[path]
        return None

    def text(self, field: str) -> str:
        """"" also for all the ways to say nothing."""
        for path in FIELDS[field][0 if self.xml else 1]:
            value = self.values.get(path, "")
            if value not in _NOTHING:
                return value
        return ""

    def find(self, *paths: str) -> str:
        return next((self.values[path] for path in paths if path in self.values), "")


def shown(block: Block, index: int | None) -> Shown:
    """The GPU of a block; that it does not answer is one of its faults."""
    text = block.text
    address = block.pci or pci_address(text("pci"))
    name, cut = cut_name(text("name"))
    gpu = Gpu(
        vendor="nvidia", index=index, model=name, uuid=text("uuid") if text("uuid").startswith("GPU-") else "",
        serial=text("serial"), pci=address, minor=maybe_integer(text("minor")), memory_mib=mebibytes(text("memory")),
        vbios=text("vbios"), pcie_gen=leading_int(text("gen")), pcie_gen_max=leading_int(text("gen_max")),
        pcie_width=leading_int(text("width").rstrip("x")), pcie_width_max=leading_int(text("width_max").rstrip("x")),
        ecc=text("ecc"), persistence=text("persistence"), power_limit_w=leading_float(text("power")),
        power_limit_max_w=leading_float(text("power_max")), mig=text("mig"), mig_pending=text("mig_pending"),
        mig_devices=tuple(_mig(values, block.xml, n) for n, values in enumerate(block.migs)),
        compute_mode=text("compute"), fabric_state=text("fabric_state"), fabric_status=text("fabric_status"),
        fabric_cluster_uuid=text("cluster"), fabric_clique=text("clique"), part_number=text("part"),
        pci_id=device_id(text("device")),
    )
    dead = dead_fields(block)
    if dead:
        gpu = Gpu(vendor="nvidia", index=index, pci=address)
        return Shown(gpu, faults=dead, line=block.line)
    slow = tuple(_slowdowns(block))
    return Shown(
        gpu, cut, block.raw("minor"), block.raw("mig"), block.raw("virtual"), block.raw("model"),
        mebibytes(text("memory_used")), remapped=_remapped(block), slowdowns=slow,
        faults=tuple(_faults(block, slow)), notes=tuple(_notes(block, slow)),
        sm=tuple(maybe_integer(values.get("device_attributes/shared/multiprocessor_count" if block.xml
                                          else "shared/multiprocessor count")) for values in block.migs),
        line=block.line,
    )


def cut_name(name: str) -> tuple[str, str]:
    """(name, ""), or ("", what is left of it) where the tool cut it."""
    return ("", name) if _CUT.match(name) else (name, "")


def version(text: str | None) -> str:
    """580.95.05 of "580.95.05 [Deprecated; …]"; "" for all the ways to say nothing."""
    found = (text or "").partition(" [")[0].strip()
    return "" if found in (*_NOTHING, "Not Found") or found.startswith("Deprecated") else found


def mebibytes(text: str) -> int | None:
    number, _, unit = text.strip().partition(" ")
    return leading_int(number) if unit in ("MiB", "MB") and number.isdigit() else None


def device_id(text: str) -> str:
    """10de:2330 for 0x233010DE."""
    match = _DEVICE_ID.match(text)
    return f"{match[2]}:{match[1]}".lower() if match else ""


def dead_fields(block: Block) -> tuple[str, ...]:
    for field in ("uuid", "name"):
        value = block.text(field)
        if any(dead in value.lower() for dead in DEAD):
            return (f"does not answer: {value}",)
    return ()


def yes(text: str | None) -> bool | None:
    return {"yes": True, "no": False, "true": True, "false": False}.get((text or "").strip().lower())


def _mig(values: Mapping[str, str], xml: bool, place: int) -> MigDevice:
    def number(tag: str, label: str) -> int | None:
        return maybe_integer(values.get(tag if xml else label))
    index = number("index", "index")
    return MigDevice(
        index=place if index is None else index, uuid=values.get("uuid" if xml else "mig device uuid", ""),
        gpu_instance=number("gpu_instance_id", "gpu instance id"),
        compute_instance=number("compute_instance_id", "compute instance id"),
        memory_mib=mebibytes(values.get("fb_memory_usage/total" if xml else "fb memory usage/total", "")),
    )


def _remapped(block: Block) -> Remapped | None:
    texts = [block.raw(f"remap_{part}") for part in ("c", "u", "pending", "failure")]
    if all(text in (None, *_NOTHING) for text in texts):
        return None
    return Remapped(maybe_integer(texts[0]), maybe_integer(texts[1]), yes(texts[2]), yes(texts[3]))


def _slowdowns(block: Block) -> Iterator[str]:
    for label, tag in _REASONS:
        paths = ((f"clocks_event_reasons/clocks_event_reason_{tag}",
                  f"clocks_throttle_reasons/clocks_throttle_reason_{tag}") if block.xml else
                 (f"clocks event reasons/{label.lower()}", f"clocks throttle reasons/{label.lower()}",
                  f"hw slowdown/{label.lower()}"))
        if block.find(*paths) == "Active":
            yield label


def _uncorrectable(block: Block) -> tuple[int, int]:
    """(since the driver was loaded, ever) of what the text counts."""
    sums = {"volatile": 0, "aggregate": 0}
    for path, value in block.values.items():
        if not path.startswith(("ecc_errors/", "ecc errors/")):
            continue
        parts = path.lower().replace("_", " ").split("/")
        if len(parts) < 3 or parts[1] not in sums:
            continue
        total = parts[2:] == ["double bit", "total"]
        if (total or parts[-1].startswith(("sram uncorrectable", "dram uncorrectable"))) and len(parts) < 5:
            sums[parts[1]] += maybe_integer(value) or 0
    return sums["volatile"], sums["aggregate"]


def _faults(block: Block, slow: Sequence[str]) -> Iterator[str]:
    hard = [label for label in slow if label.startswith("HW ")]
    if "HW Slowdown" in hard:
        why = ", ".join(label for label in hard if label != "HW Slowdown")
        yield f"HW Slowdown is active{f' ({why})' if why else ''}"
    rows = _remapped(block)
    if rows and rows.pending:
        yield f"row remapping is pending after {_count(rows.uncorrectable)} uncorrectable errors: it needs a reset"
    if rows and rows.failure:
        yield "row remapping has failed: the memory is worn out"
    if yes(block.raw("retired_pending")):
        yield "pages of memory wait for retirement: it needs a reset"
    now, _ = _uncorrectable(block)
    if now:
        yield f"{now} uncorrectable ECC errors since the driver was loaded"
    for field, what in (("sram", "the threshold of SRAM errors is exceeded"), ("channel", "channel repair is pending"),
                        ("tpc", "TPC repair is pending"), ("unrepairable", "memory that cannot be repaired"),
                        ("reset", "a reset is required"), ("drain", "drain and reset are recommended"),
                        ("route", "its NVLink routes are unhealthy")):
        if yes(block.raw(field)):
            yield what
    if block.text("recovery"):
        yield f"the driver asks for: {block.text('recovery')}"
    for what, current, pending in (("MIG mode", "mig", "mig_pending"), ("ECC mode", "ecc", "ecc_pending")):
        if block.text(current) and block.text(pending) not in ("", block.text(current)):
            yield f"{what} is {block.text(current)}, {block.text(pending)} is pending: it needs a reset"
    yield from _fabric(block)
    everything = "\n".join(block.values.values()).lower()
    errors = sorted({path.rsplit("/", 1)[-1] for path, value in block.values.items() if any(
        dead in value.lower() for dead in DEAD)}) if any(dead in everything for dead in DEAD) else []
    if errors:
        yield clean(f"unreadable (Unknown Error, ERR!): {', '.join(errors[:6])}{' …' if len(errors) > 6 else ''}")


def _fabric(block: Block) -> Iterator[str]:
    state, status = block.text("fabric_state"), block.text("fabric_status")
    if state and state != "Completed":
        yield f"NVLink fabric: registration is {state}"
    elif status and status != "Success":
        yield f"NVLink fabric: status is {status}"
    if block.text("bandwidth").lower().startswith("degraded"):
        yield "NVLink fabric: bandwidth is degraded"
    if block.text("health").lower() not in ("", "healthy"):
        yield f"NVLink fabric: health is {block.text('health')}"


def _notes(block: Block, slow: Sequence[str]) -> Iterator[str]:
    if "HW Slowdown" not in slow and slow:
        yield f"{', '.join(slow)} is active"
    _, ever = _uncorrectable(block)
    if ever:
        yield f"{ever} uncorrectable ECC errors in its life"
    rows = _remapped(block)
    if rows and rows.uncorrectable and not rows.pending:
        yield f"{rows.uncorrectable} rows remapped after uncorrectable errors"
    if maybe_integer(block.text("retired_double")):
        yield f"{block.text('retired_double')} pages retired after double bit errors"
    width, most = leading_int(block.text("width").rstrip("x")), leading_int(block.text("width_max").rstrip("x"))
    if width and most and width < most:
        yield f"PCIe link of {width} lanes, {most} are possible"
    power, usual = leading_float(block.text("power")), leading_float(block.text("power_default"))
    if power and usual and power < usual:
        yield f"power is limited to {power:g} W, the default is {usual:g} W"


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)
