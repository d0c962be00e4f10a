"""Machine checks: errors of CPU, cache and memory that the kernel logged."""

from hpcadmin.health.node.api import Check, Param, bad, fault, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


GRAVE = ("Machine Check Exception", "Uncorrected", "uncorrected", "Memory failure: ", "Fatal machine check",
         "Processor context corrupt", "Deferred error")
CORRECTED = ("Corrected error", "corrected hardware", "Machine check events logged")


def run(door: "Door", p: "Params") -> "list[Finding]":
    since = door.uptime() - p.window_h * 3600 if p.window_h is not None else 0.0
    grave, corrected, unclear = sorted_out([record.text for record in door.kernel_log() if record.seconds >= since])
    found = [good(grave=len(grave), corrected=len(corrected))]
    if grave:
        found.append(fault("%s%s" % (grave[-1].strip()[:120], " (%d lines)" % len(grave) if len(grave) > 1 else "")))
    if unclear:
        found.append(unknown("%s (of an error whose severity the kernel log has lost)" % unclear[-1]))
    if p.max_corrected is not None and len(corrected) > p.max_corrected:
        found.append(bad("%d corrected hardware errors in the kernel log, more than %g" % (
            len(corrected), p.max_corrected)))
    return found


def sorted_out(lines: "list[str]") -> "tuple[list[str], list[str], list[str]]":
    """Grave lines, those of corrected errors, and those of firmware's records whose beginning is lost."""
    grave, corrected, unclear, severity = [], [], [], {}  # type: list[str], list[str], list[str], dict[str, str]
    for line in lines:
        edac = line.startswith("EDAC ") and " UE " in line
        number = line.find("}[Hardware Error]:") if line[:1] == "{" else -1
        if number > 0:                          # of firmware (GHES): several lines with one number, its severity first
            key = line[1:number]
            if "event severity: " in line:
                severity[key] = line.rpartition("event severity: ")[2].strip()
            elif ", type: " in line and "[Hardware Error]:  Error " in line and key not in severity:
                severity[key] = line.rpartition(", type: ")[2].strip()      # of the section, in the same words
            elif "section_type: " in line and "PCIe" not in line:   # those are pcie_errors' affair
                section = line.partition("section_type: ")[2].strip()
                if key not in severity:         # the ring buffer begins in the middle of it
                    unclear.append(section)
                else:
                    (corrected if severity[key] in ("corrected", "info") else grave).append(
                        "%s, %s" % (section, severity[key]))
            continue
        if not ("[Hardware Error]" in line or line.startswith(("mce:", "Memory failure: ")) or edac):
            continue
        if edac or any(word in line for word in GRAVE) or uncorrected(line):
            grave.append(line)
        elif any(word in line for word in CORRECTED) or "Bank" in line:
            corrected.append(line)
    return grave, corrected, unclear


def uncorrected(line: str) -> bool:
    """CPU 3: Machine Check: 0 Bank 7: bd80000000100134: bit 61 of the status says that it was not corrected."""
    words = line.partition("Machine Check")[2].partition(" Bank ")[2].split()
    if len(words) < 2 or len(words[1]) != 16 or any(c not in "0123456789abcdef" for c in words[1].lower()):
        return False
    return bool(int(words[1], 16) >> 61 & 1)


CHECK = Check("mce", "Machine checks: errors of CPU, cache and memory that the kernel logged", run, hardware=True,
              params=(
    Param("max_corrected", "number", None, "lines that tell of corrected errors"),
    Param("window_h", "number", None, "only of the last hours; without it since boot"),
))
