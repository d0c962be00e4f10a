"""What the facts about the machine around its CPUs, GPUs and NICs give to a node: firmware, memory, disks, software."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpcadmin.facts.bmc import BmcFacts
from hpcadmin.facts.dimms import Dimms
from hpcadmin.facts.time_sync import TimeSync
from hpcadmin.model import Bmc

# Facts whose tool or file may be missing on a sound node, or which older captures do not have.
OPTIONAL = frozenset({"bmc", "command_line", "dimms", "disks", "mounts", "real_memory", "settings", "time_sync",
                      "versions"})
# Firmware, the kernel's own tables and a crash kernel take a few percent; a missing module takes more.
_MEMORY_SHARE = 0.9


def fields(value: Callable[[str], Any]) -> dict[str, Any]:
    """Keyword arguments of Node out of the facts' values (None: unknown), and with them `unknown`, the parts that
    nothing told, each with its reason where one is known, and `problems`."""
    unknown: list[str] = []
    problems: list[str] = []
    dmi = value("dmi") or {}
    dimms, bmc, settings, sync = value("dimms"), value("bmc"), value("settings"), value("time_sync")
    found: dict[str, Any] = {name: dmi.get(key, "") for name, key in (
        ("uuid", "product_uuid"), ("board_serial", "board_serial"), ("chassis_serial", "chassis_serial"),
        ("bios_date", "bios_date"))}
    for name in ("disks", "mounts", "command_line"):
        known = value(name)
        found[name] = known if known is not None else "" if name == "command_line" else ()
        if known is None:
            unknown.append(name)
    found["dimms"] = _dimms(dimms, value, unknown, problems)
    found["bmc"] = _bmc(bmc, unknown, problems)
    found["settings"] = _settings(settings, unknown)
    found["versions"] = _versions(value("versions"), unknown)
    found["time_sync"] = _time(sync, unknown, problems)
    found["real_memory_mib"] = _real_memory(value, problems)
    return {**found, "unknown": tuple(unknown), "problems": tuple(problems)}


def of_value(known: Any) -> dict[str, Any]:
    """Keyword arguments of Node out of what one text determines: the value of a reading."""
    nothing: dict[type, str] = {Dimms: "dimms", BmcFacts: "bmc", TimeSync: "time_sync"}
    name = nothing.get(type(known), "")
    if not name:
        return {}
    found = fields(lambda asked: known if asked == name else None)
    return {name: found[name], "problems": found["problems"]}


def _dimms(dimms: Dimms | None, value: Callable[[str], Any], unknown: list[str], problems: list[str]) -> Any:
    if dimms is None or dimms.why:
        unknown.append(f"dimms ({dimms.why})" if dimms else "dimms")
        return ()
    total, memory = dimms.total_mib, value("meminfo")
    if total and isinstance(memory, int) and not value("simulated") and memory < total * _MEMORY_SHARE:
        problems.append(f"memory: the modules add up to {total // 1024} GiB, the kernel has {memory // 1024} GiB")
    return dimms.modules


def _bmc(bmc: BmcFacts | None, unknown: list[str], problems: list[str]) -> Bmc:
    if bmc is None:
        unknown.append("bmc")
        return Bmc()
    if bmc.why:
        unknown.append(f"bmc ({bmc.why})")
    problems += bmc.faults
    return bmc.bmc


def _settings(settings: dict[str, str] | None, unknown: list[str]) -> dict[str, str]:
    if settings is None:
        unknown.append("settings")
        return {}
    if "ACS?" in settings:
        unknown.append(f"settings.ACS ({settings['ACS?']})")
    return {name: setting for name, setting in settings.items() if not name.endswith("?")}


def _versions(versions: dict[str, str] | None, unknown: list[str]) -> dict[str, str]:
    if versions is None:
        unknown.append("versions")
        return {}
    unknown += [f"versions.{name}" for name, version in versions.items() if not version]
    return {name: version for name, version in versions.items() if version}


def _time(sync: TimeSync | None, unknown: list[str], problems: list[str]) -> str:
    if sync is None or sync.synchronised is None:
        unknown.append("time_sync")
        return ""
    problems += sync.faults
    return sync.words


def _real_memory(value: Callable[[str], Any], problems: list[str]) -> int | None:
    """slurmd's own word first; what it would say by its rule where it is not installed."""
    slurmd, counted = value("slurmd"), value("real_memory")
    said = slurmd.memory_mib if slurmd else None
    if said is None:
        return counted if isinstance(counted, int) else None
    if isinstance(counted, int) and abs(said - counted) > 1 and not value("simulated"):
        problems.append(f"memory: slurmd -C counts {said} MiB, the kernel {counted} MiB")
    return int(said)
