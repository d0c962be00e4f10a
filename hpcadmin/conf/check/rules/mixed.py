"""GPUs of several types on a node, their order, and MIG: which index a job gets.

Without AutoDetect and without ConstrainDevices the number that a job gets in CUDA_VISIBLE_DEVICES is the place of the
device in slurmctld's records. Those are ordered by the types in Gres=, then by the lines of gres.conf; CUDA counts in
PCI bus order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Alike, gres_line, node_line
from hpcadmin.conf.check.force import constrains
from hpcadmin.conf.existing.parts import GresLine
from hpcadmin.conf.names import slurm_list
from hpcadmin.gpu_types import autodetected_mig
from hpcadmin.model import Gpu, Node

_MIG = re.compile(r"(?:.*_)?[1-9][0-9]?g\.[0-9]{1,4}gb(?:[+_.].*)?", re.IGNORECASE)
MAX_JOBS = 8
_SAFE = "AutoDetect=nvml sorts them right, ConstrainDevices=yes makes jobs count their own GPUs only"


@dataclass(frozen=True)
class Unit:
    file: str
    type: str
    line: GresLine


def several_types(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        kinds = list(dict.fromkeys(item.type for item in group.wants() if item.type))
        if len(kinds) > 1 and group.node is not None and not all(_MIG.fullmatch(kind) for kind in kinds):
            yield Finding(Severity.NOTE, f"mixed GPU types on one node: {', '.join(kinds)}",
                          "each needs its own lines in gres.conf, in PCI order, the types in the order of Gres=; with "
                          "AutoDetect each type must be a part of the detected name", (),
                          group.node.values["gres"].place, group.hosts)


def regrouped(situation: Situation) -> Iterator[Finding]:
    """Types whose lines do not stand in the order of Gres=: jobs get another GPU's index."""
    for group in situation.alike:
        units = _units(group)
        order = list(dict.fromkeys(item.type for item in group.wants()))
        if group.node is None or group.autodetect is not None or len(order) < 2 or len({u.type for u in units}) < 2:
            continue
        records = sorted(units, key=lambda unit: order.index(unit.type) if unit.type in order else len(order))
        bus = _by_bus(situation, group, units) or units
        wrong = [(unit, at, bus[at]) for at, unit in enumerate(records) if bus[at].file != unit.file]
        if not wrong:
            continue
        # Another type first: that is what a job notices.
        wrong.sort(key=lambda item: item[0].type == item[2].type)
        jobs = "; ".join(f"--gres=gpu:{unit.type}:1 for {unit.file} gets CUDA_VISIBLE_DEVICES={at}, which is "
                         f"{other.file} of type {other.type}" for unit, at, other in wrong[:MAX_JOBS])
        confined = constrains(situation, "constraindevices")
        yield Finding(
            Severity.NOTE if confined else Severity.WRONG,
            f"the GPUs do not stand on the bus as Gres={group.node.get('gres')} has their types: {jobs}",
            "Slurm orders the devices by the types of Gres=, CUDA by the PCI bus"
            + ("; ConstrainDevices=yes keeps jobs to their own" if confined else f". {_SAFE}"),
            _reordered(group, bus), wrong[0][0].line.place, group.hosts)


def _reordered(group: Alike, bus: Sequence[Unit]) -> tuple[str, ...]:
    """Gres= in the order of the bus, where each type is in one piece; else what keeps jobs apart."""
    runs = [unit.type for n, unit in enumerate(bus) if n == 0 or bus[n - 1].type != unit.type]
    if group.node is None or len(runs) != len(set(runs)):
        return (f"NodeName={slurm_list(group.hosts)} AutoDetect=nvml", "ConstrainDevices=yes")
    counts: dict[str, int] = {}
    for unit in bus:
        counts[unit.type] = counts.get(unit.type, 0) + 1
    others = [item for item in (group.node.get("gres") or "").split(",") if not item.startswith("gpu")]
    return (node_line(group.node, {"Gres": ",".join([*(f"gpu:{k}:{n}" for k, n in counts.items()), *others])}),)


def bus_order_of_lines(situation: Situation) -> Iterator[Finding]:
    """The lines against the PCI bus of the nodes."""
    for group in situation.alike:
        units = _units(group)
        bus = _by_bus(situation, group, units) if group.autodetect is None else None
        if bus is None or list(bus) == units or len({unit.type for unit in units}) > 1:
            continue
        at = next(n for n, unit in enumerate(units) if bus[n] is not unit)
        confined = constrains(situation, "constraindevices")
        yield Finding(
            Severity.NOTE if confined else Severity.WRONG,
            f"the GPUs do not stand in PCI bus order: {', '.join(unit.file for unit in bus[:16])} is right",
            f"a job that gets {units[at].file} is told CUDA_VISIBLE_DEVICES={at}, which is {bus[at].file}",
            tuple(gres_line(unit.line, {"File": unit.file, "Links": None} if len(unit.line.files) > 1 else {},
                            slurm_list(unit.line.hosts) if unit.line.hosts else "") for unit in bus[:16]),
            units[at].line.place, group.hosts)


def mig_by_hand(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        if group.autodetect is not None:
            continue
        slices = [line for line in group.of() if _MIG.fullmatch(line.get("type"))
                  or any("/nvidia-caps/" in file for file in line.files)]
        if not slices:
            continue
        confined = constrains(situation, "constraindevices")
        single = [line for line in slices if len(line.files) < 2 and "multiplefiles" not in line.values]
        if single:
            yield Finding(Severity.WRONG, f"a MIG device with File={single[0].get('file')[:60]} alone",
                          "jobs may open the whole GPU and get none of its slices: MultipleFiles= takes the GPU and "
                          "its two capabilities", (f"NodeName={slurm_list(group.hosts) or '<nodes>'} AutoDetect=nvml",),
                          single[0].place, group.hosts)
        yield Finding(Severity.WRONG, "MIG devices by hand",
                      "jobs get an index in CUDA_VISIBLE_DEVICES, not the MIG UUID that CUDA needs"
                      + ("" if confined else ", and without ConstrainDevices=yes they can open other slices"),
                      (f"NodeName={slurm_list(group.hosts) or '<nodes>'} AutoDetect=nvml",), slices[0].place,
                      group.hosts)


def mig_types(situation: Situation) -> Iterator[Finding]:
    """With AutoDetect a MIG type is the GPU's name up to its first - and the profile."""
    for group in situation.alike:
        if group.autodetect is None or group.node is None:
            continue
        node = next((situation.machines[h] for h in group.hosts if h in situation.machines), None)
        names = _mig_names(node)
        for item in group.wants():
            if not _MIG.fullmatch(item.type):
                continue
            if "-" in item.type:
                right = re.sub(r"-[^_]*", "", item.type)
                yield Finding(Severity.INVALID, f"type {item.type}: the name of a MIG device ends at the first - of "
                              "the GPU's name, before the profile", "no detected device matches, the node is INVAL",
                              (node_line(group.node, {"Gres": f"gpu:{right}:{item.count}"}),),
                              group.node.values["gres"].place, group.hosts)
            elif names and not any(item.type.casefold() in name for name in names):
                yield Finding(Severity.INVALID, f"type {item.type} is no part of what AutoDetect="
                              f"{group.autodetect.text} finds: {', '.join(names)}",
                              f"count reported lower than configured (0 < {item.count}): the node is INVAL",
                              (), group.node.values["gres"].place, group.hosts)


def digit_types(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        for item in group.wants():
            if item.type[:1].isdigit() and not item.type.isdigit() and group.node is not None:
                yield Finding(Severity.NOTE, f"type {item.type} begins with a digit",
                              f"--gres=gpu:{item.type} is read as a count; --gres=gpu:{item.type}:1 works", (),
                              group.node.values["gres"].place, group.hosts)


def _mig_names(node: Node | None) -> list[str]:
    found = [autodetected_mig(gpu.model, device.profile) for gpu in (node.gpus if node else ())
             for device in gpu.mig_devices]
    return sorted(set(found)) if found and all(found) else []


def _units(group: Alike) -> list[Unit]:
    return [Unit(file, line.get("type"), line) for line in group.of()
            for file in (line.files[:1] if "multiplefiles" in line.values else line.files)]


def _by_bus(situation: Situation, group: Alike, units: Sequence[Unit]) -> list[Unit] | None:
    """The units as the PCI bus of the first known node has them; None where that is not known."""
    node = next((situation.machines[h] for h in group.hosts if h in situation.machines), None)
    gpus = bus_order(node.gpus) if node is not None and node.gpus else ""
    if isinstance(gpus, str):
        return None
    place: Mapping[str, int] = {_file(gpu): n for n, gpu in enumerate(gpus)}
    if any(unit.file not in place for unit in units):
        return None
    return sorted(units, key=lambda unit: place[unit.file])


def _file(gpu: Gpu) -> str:
    return gpu.device_file


RULES: tuple[Rule, ...] = (several_types, regrouped, bus_order_of_lines, mig_by_hand, mig_types, digit_types)
