"""The columns of nvidia-smi --query-gpu: what a row of them says of a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hpcadmin.facts._base import leading_float, leading_int, maybe_integer, pci_address
from hpcadmin.facts._smi import Remapped, Shown
from hpcadmin.facts._smi_fields import cut_name, device_id, yes
from hpcadmin.model import Gpu

NOTHING = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "Not Available", "[Not Available]",
           "[Requested functionality has been deprecated]")
ERROR = re.compile(r"\[?(?:Unknown Error|GPU is lost|GPU requires reset|Insufficient Permissions|ERR!|"
                   r"GPU access blocked[a-z ]{0,40})\]?\Z")
KNOWN = frozenset({
    "memory.total", "memory.used", "memory.free", "memory.reserved", "pcie.link.gen.current", "pcie.link.gen.max",
    "pcie.link.gen.gpucurrent", "pcie.link.gen.gpumax", "pcie.link.gen.hostmax", "pcie.link.width.current",
    "pcie.link.width.max", "power.limit", "power.max_limit", "power.default_limit", "enforced.power.limit",
    "power.draw", "ecc.mode.current", "ecc.mode.pending", "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total", "mig.mode.current", "mig.mode.pending", "fabric.state", "fabric.status",
    "remapped_rows.correctable", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure",
    "retired_pages.pending", "driver_model.current", "pci.device_id", "pci.bus", "pci.domain", "clocks.sm",
    "clocks.current.sm", "utilization.gpu", "utilization.memory", "temperature.gpu", "temperature.memory",
})


def shown(row: dict[str, str], units: dict[str, str], line: int) -> Shown:
    def text(*names: str) -> str:
        value = next((row[name] for name in names if name in row), "")
        return "" if value in NOTHING or ERROR.match(value) else value

    def mib(name: str) -> int | None:
        value = text(name)
        number, _, unit = value.partition(" ")
        return leading_int(number) if number.isdigit() and unit in ("", "MiB") and (
            unit or units.get(name) in ("MiB", "") or name in row) else None

    name, cut = cut_name(text("name"))
    minor = row.get("minor")
    gpu = Gpu(
        vendor="nvidia", index=maybe_integer(text("index")), model=name, uuid=text("uuid"), serial=text("serial"),
        pci=pci_address(text("pci.bus_id")), minor=maybe_integer(minor), memory_mib=mib("memory.total"),
        vbios=text("vbios_version"), pcie_gen=leading_int(text("pcie.link.gen.current", "pcie.link.gen.gpucurrent")),
        pcie_gen_max=leading_int(text("pcie.link.gen.max")), pcie_width=leading_int(text("pcie.link.width.current")),
        pcie_width_max=leading_int(text("pcie.link.width.max")), ecc=text("ecc.mode.current"),
        persistence=text("persistence_mode"), power_limit_w=leading_float(text("power.limit", "enforced.power.limit")),
        power_limit_max_w=leading_float(text("power.max_limit")), mig=text("mig.mode.current"),
        mig_pending=text("mig.mode.pending"), compute_mode=text("compute_mode"), fabric_state=text("fabric.state"),
        fabric_status=text("fabric.status"), fabric_clique=text("fabric.cliqueId", "fabric.clique_id"),
        fabric_cluster_uuid=text("fabric.clusterUuid", "fabric.cluster_uuid"), pci_id=device_id(text("pci.device_id")),
    )
    rows = Remapped(maybe_integer(text("remapped_rows.correctable")),
                    maybe_integer(text("remapped_rows.uncorrectable")), yes(text("remapped_rows.pending")),
                    yes(text("remapped_rows.failure")))
    one = Shown(
        gpu, cut, minor, row.get("mig.mode.current"), row.get("gpu_virtualization_mode"),
        row.get("driver_model.current"), mib("memory.used"), mib("memory.free"), text("compute_cap"),
        text("driver_version"), rows if rows != Remapped() else None, line=line,
    )
    return replace(one, faults=tuple(_faults(one, row)))


def _faults(one: Shown, row: dict[str, str]) -> Iterator[str]:
    if one.remapped and one.remapped.pending:
        yield f"row remapping is pending after {one.remapped.uncorrectable} uncorrectable errors: it needs a reset"
    if one.remapped and one.remapped.failure:
        yield "row remapping has failed: the memory is worn out"
    if yes(row.get("retired_pages.pending")):
        yield "pages of memory wait for retirement: it needs a reset"
    count = maybe_integer(row.get("ecc.errors.uncorrected.volatile.total"))
    if count:
        yield f"{count} uncorrectable ECC errors since the driver was loaded"
    if one.gpu.mig and one.gpu.mig_pending not in ("", one.gpu.mig):
        yield f"MIG mode is {one.gpu.mig}, {one.gpu.mig_pending} is pending: it needs a reset"
    if one.gpu.fabric_state not in ("", "Completed"):
        yield f"NVLink fabric: registration is {one.gpu.fabric_state}"
    elif one.gpu.fabric_status not in ("", "Success"):
        yield f"NVLink fabric: status is {one.gpu.fabric_status}"
    slow = [name.rsplit(".", 1)[1] for name, value in row.items() if value == "Active" and "hw_" in name]
    if slow:
        yield f"HW slowdown is active ({', '.join(slow)})"
