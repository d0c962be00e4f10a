"""gres.conf's lines: one for each device, in PCI bus order, or AutoDetect=; nodes that are alike are one list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.conf.autodetect import place_of
from hpcadmin.conf.gpus import Device
from hpcadmin.conf.gres import Gres
from hpcadmin.conf.machines import Written
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.nodelines import told_by
from hpcadmin.conf.parts import Entry, Line, Section
from hpcadmin.site import Site

_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})\Z")


def gres_sections(written: Sequence[Written], site: Site) -> tuple[Section, ...]:
    """A section for each set of nodes with the same devices; lines in PCI bus order, the index that jobs see."""
    ranges = site.slurm.gres_ranges
    by_gres: dict[tuple[object, ...], list[Written]] = {}
    for w in sorted(written, key=lambda w: natural(w.machine.name)):
        if w.gres.devices or w.gres.counted:
            own = w.gres.autodetect or w.gres.shared or w.gres.counted       # the site's word, of one group
            by_gres.setdefault((w.gres, w.shape.layout.mode, w.shape.group if own else ""), []).append(w)
    sections = []
    for members in by_gres.values():
        nodes = slurm_list(m.machine.name for m in members)
        found = members[0].gres
        if found.autodetect:
            lines = [_detected(nodes, found, members)]
        else:
            lines = [_device_line(nodes, members, run) for run in _runs(found.devices, ranges=ranges)]
        lines += _shared(nodes, found, members)
        lines += [_counted(nodes, item, members) for item in found.counted]
        order = ", in PCI bus order" if found.devices and not found.autodetect else ""
        sections.append(Section(f"{nodes}: {found.text.replace('gpu:', '')}{order}", tuple(lines)))
    return tuple(sections)


def _detected(nodes: str, found: Gres, members: Sequence[Written]) -> Line:
    group = members[0].machine.group
    own = group is not None and group.autodetect
    key = place_of(group)
    source = f"site.toml [nodes.{group.name}]" if own and group else "site.toml [slurm] autodetect"
    return Line((Entry("NodeName", nodes, "slurmd finds files, cores and links of these nodes' GPUs itself",
                       told_by(members)),
                 Entry("AutoDetect", found.autodetect, "the site's own; no Cores or Links by hand beside it",
                       source, key)))


def _runs(devices: Sequence[Device], *, ranges: bool) -> list[tuple[Device, ...]]:
    """Devices that one line can name: with ranges, those whose files follow one another and that are else alike."""
    runs: list[list[Device]] = []
    for device in devices:
        last = runs[-1][-1] if runs else None
        if ranges and last and _follow(last, device):
            runs[-1].append(device)
        else:
            runs.append([device])
    return [tuple(run) for run in runs]


def _follow(one: Device, other: Device) -> bool:
    if one.several or other.several or one.links or other.links:
        return False
    if (one.type, one.flags, one.cores) != (other.type, other.flags, other.cores):
        return False
    first, second = _NUMBERED.match(one.file), _NUMBERED.match(other.file)
    return bool(first and second and first[1] == second[1] and int(second[2]) == int(first[2]) + 1)


def _file(run: Sequence[Device]) -> str:
    """/dev/nvidia[0-3]"""
    first, last = _NUMBERED.match(run[0].file), _NUMBERED.match(run[-1].file)
    if len(run) == 1 or not first or not last:
        return run[0].file
    return f"{first[1]}[{first[2]}-{last[2]}]"


def _device_line(nodes: str, members: Sequence[Written], run: Sequence[Device]) -> Line:
    device = run[0]
    source = told_by(members)
    why = "typed as in slurm.conf"
    entries = [
        Entry("NodeName", nodes, _which(members, run), source),
        Entry("AutoDetect", "off", "Cores and Links by hand; a detected GPU that differs would be dropped"),
        Entry("Name", "gpu", why, source), Entry("Type", device.type, why, source)]
    if device.several:
        entries.append(Entry("MultipleFiles", device.file, f"the GPU, its GPU instance and compute instance "
                             f"({device.profile}): a job gets all three; not its MIG UUID", source))
    else:
        entries.append(Entry("File", _file(run), "by the device's minor, which need not be its index", source))
    if device.cores:
        entries.append(Entry("Cores", device.cores, device.cores_why, source))
    if device.links:
        entries.append(Entry("Links", device.links, device.links_why, source))
    entries.append(Entry("Flags", device.flags, _left_out(device), source))
    return Line(tuple(entries))


def _which(members: Sequence[Written], run: Sequence[Device]) -> str:
    gpus = [members[0].machine.gpus[device.place] for device in run]
    name = members[0].machine.name
    if len(run) > 1:
        return (f"GPUs {run[0].place} to {run[-1].place} in PCI bus order: {gpus[0].model} from {gpus[0].pci} to "
                f"{gpus[-1].pci} on {name}")
    return f"GPU {run[0].place} in PCI bus order: {gpus[0].model} at {gpus[0].pci} on {name}"


def _left_out(device: Device) -> str:
    """The last entry's reason also says what is not on the line."""
    out = [why for value, why in ((device.cores, device.cores_why), (device.links, device.links_why)) if not value]
    return "; ".join(["jobs get this vendor's variables only", *out])


def _shared(nodes: str, found: Gres, members: Sequence[Written]) -> list[Line]:
    """gres/mps or gres/shard: a line for each GPU by hand, one for all where slurmd finds the GPUs itself."""
    group = members[0].machine.group
    if not found.shared or group is None:
        return []
    word = "mps" if found.shared == "mps" else "shards"
    what = "percents of a GPU, by MPS"
    if found.shared == "shard":
        what = "how many jobs may share a GPU; nothing keeps them apart on it"
    place = (f"site.toml [nodes.{group.name}] {word}", f"nodes.{group.name}.{word}")
    first = [Entry("NodeName", nodes, what, told_by(members))]
    if found.autodetect:
        return [Line((*first, Entry("Name", found.shared, what, *place),
                      Entry("Count", str(found.total), f"{found.per_gpu} for each GPU: Slurm spreads them evenly",
                            *place)))]
    return [Line((*first, Entry("AutoDetect", "off", "as on the GPUs' own lines"),
                  Entry("Name", found.shared, what, *place), Entry("Count", str(found.per_gpu), "for this GPU", *place),
                  Entry("File", device.file, "the GPU that is shared: Type and Cores are its own", told_by(members))))
            for device in found.devices]


def _counted(nodes: str, item: tuple[str, str, str], members: Sequence[Written]) -> Line:
    name, kind, count = item
    group = members[0].machine.group
    table = f"nodes.{group.name}.gres" if group else "nodes"
    place = (f"site.toml [{table}]", f"{table}.{name}{':' + kind if kind else ''}")
    entries = [Entry("NodeName", nodes, "the site's own", told_by(members)),
               Entry("Name", name, "the site's own", *place)]
    if kind:
        entries.append(Entry("Type", kind, "the site's own", *place))
    return Line((*entries, Entry("Count", count, "the site's own", *place),
                 Entry("Flags", "CountOnly", "only counted: no plug-in is looked for, no device is given")))
