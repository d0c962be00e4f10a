"""NVIDIA GPUs: memory errors, rows remapped, pages retired."""

from hpcadmin.health.node import nvidia, window
from hpcadmin.health.node.api import Check, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


def counts(gpu: nvidia.Gpu) -> "tuple[int | None, int | None]":
    """Uncorrected and corrected errors since the driver was loaded; None without ECC."""
    totals = {"bad": None, "ok": None}  # type: dict[str, int | None]
    for name, value in gpu.fields("ecc_errors/volatile").items():
        if value.isdecimal() and ("uncorrectable" in name or "correctable" in name) and "threshold" not in name:
            which = "bad" if "uncorrectable" in name else "ok"
            totals[which] = (totals[which] or 0) + int(value)
    for which, name in (("bad", "double_bit"), ("ok", "single_bit")):  # drivers before Ampere
        total = gpu.number("ecc_errors/volatile/%s/total" % name)
        if total is not None:
            totals[which] = int(total)
    return totals["bad"], totals["ok"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    found, corrected = [], {}  # type: list[Finding], dict[str, int]
    for gpu in nvidia.gpus(door):
        wrong, right = counts(gpu)
        remapped = {name.replace("remapped_row_", ""): value for name, value in gpu.fields("remapped_rows").items()
                    if name.startswith("remapped_row_") and value not in nvidia.NOTHING}
        found.append(good(address=gpu.address, uncorrected=wrong, corrected=right, remapped=remapped))
        if wrong is None and gpu.raw("ecc_mode/current_ecc") == "Enabled":
            found.append(unknown("GPU %s does not tell how many memory errors it had" % gpu.address))
        # What is left of a sum is no sum.
        untold = [name for path in ("ecc_errors", "remapped_rows", "retired_pages") for name in gpu.untold(path)]
        if untold:
            found.append(unknown("GPU %s does not tell %s" % (gpu.address, ", ".join(untold[:3]))))
        if wrong is not None and wrong > p.max_uncorrected:
            found.append(fault("GPU %s has %d uncorrected memory errors" % (gpu.address, wrong)))
        if right is not None:
            corrected[gpu.address] = right
        found += _rows(gpu, remapped, p)
    growth = window.grown(door, "corrected", corrected, p.window_h * 3600)
    if p.max_corrected is not None:
        found += window.unseen(door)
    for name, more in sorted((growth or {}).items()):
        if p.max_corrected is not None and more > p.max_corrected:
            found.append(bad("GPU %s: %d corrected memory errors in %g h, more than %g" % (
                name, more, p.window_h, p.max_corrected)))
    return found


def _rows(gpu: nvidia.Gpu, remapped: "dict[str, str]", p: "Params") -> "list[Finding]":
    found = []
    if p.failure and remapped.get("failure") == "Yes":
        found.append(fault("GPU %s: remapping a row of memory failed, it must be replaced" % gpu.address))
    if p.pending and remapped.get("pending") == "Yes":
        found.append(fault("GPU %s: a row of memory waits to be remapped, it needs a reset" % gpu.address))
    if p.failure and gpu.raw("ecc_errors/unrepairable_memory") == "Yes":
        found.append(fault("GPU %s has memory that cannot be repaired, it must be replaced" % gpu.address))
    if p.failure and gpu.raw("ecc_errors/aggregate/sram_threshold_exceeded") == "Yes":
        found.append(fault("GPU %s: too many uncorrected errors of its SRAM, it must be replaced" % gpu.address))
    repairs = [name for name in ("channel", "tpc") if gpu.raw("ecc_errors/%s_repair_pending" % name) == "Yes"]
    if p.pending and repairs:
        found.append(fault("GPU %s: a repair waits (%s), it needs a reset" % (gpu.address, ", ".join(repairs))))
    rows = remapped.get("unc", "")
    if p.max_remapped is not None and rows.isdecimal() and int(rows) > p.max_remapped:
        found.append(bad("GPU %s: %s rows of memory were remapped, more than %g" % (gpu.address, rows, p.max_remapped)))
    if p.pending and "Yes" in (gpu.raw("retired_pages/pending_retirement"), gpu.raw("retired_pages/pending_blacklist")):
        found.append(fault("GPU %s: a page of memory waits to be retired, it needs a reset" % gpu.address))
    pages = [gpu.number("retired_pages/%s/retired_count" % name)
             for name in ("multiple_single_bit_retirement", "double_bit_retirement")]
    if p.max_retired is not None and sum(number or 0 for number in pages) > p.max_retired:
        found.append(fault("GPU %s: %d pages of memory are retired, more than %g" % (
            gpu.address, sum(number or 0 for number in pages), p.max_retired)))
    return found


CHECK = Check("gpu_ecc", "NVIDIA GPUs: memory errors, rows remapped, pages retired", run, hardware=True, timeout_s=25,
              params=(
                  Param("max_uncorrected", "number", 0, "since the driver was loaded"),
                  Param("max_corrected", "number", None, "growth within the window"),
                  Param("window_h", "number", 24, "hours"),
                  Param("failure", "flag", True, "a failed remapping is bad"),
                  Param("pending", "flag", True, "a pending remapping or retirement is bad"),
                  Param("max_remapped", "number", None, "rows remapped for uncorrected errors"),
                  Param("max_retired", "number", 60, "pages"),
              ))
