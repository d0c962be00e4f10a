"""GPUs of the files against those that the nodes have: how many, of which type, which are gone, MIG, NVLinks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Alike, gres_line
from hpcadmin.conf.check.rules._hosts import Hosts, gone, gpu_name, odd_of, part_line, slot_of, without_file
from hpcadmin.conf.existing.parts import GresLine, Place
from hpcadmin.conf.gpus import links
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.gpu_types import autodetected
from hpcadmin.model import Node

_MIG = re.compile(r"(?:\A|_)([1-9][0-9]?g\.[0-9]{1,4}gb)\Z")
_MODEL = re.compile(r"[a-z]{1,3}\d{2,4}[a-z]{0,2}")


def _groups(situation: Situation) -> Iterator[tuple[Alike, list[tuple[str, Node]]]]:
    """Nodes with the same lines, those that the inventory knows the GPUs of."""
    if situation.inventory is None:
        return
    nodes = Hosts(situation).nodes
    for group in situation.alike:
        members = [(host, nodes[host]) for host in group.hosts if host in nodes and not nodes[host].lacks("gpus")]
        if members and group.node is not None and not group.state.startswith(("FUTURE", "CLOUD")):
            yield group, members


def mig(gpu_mig: str) -> bool:
    return gpu_mig.casefold() == "enabled"


def units(node: Node) -> int | None:
    """Devices that jobs can get: GPUs, and of GPUs in MIG mode their MIG devices; None where these are not known."""
    if any(mig(g.mig) and not g.mig_devices for g in node.gpus):
        return None
    return sum(len(g.mig_devices) if mig(g.mig) else 1 for g in node.gpus)


def gpus_count(situation: Situation) -> Iterator[Finding]:
    """How many GPUs Gres= has against how many the nodes have, and which one is gone."""
    for group, members in _groups(situation):
        wanted = sum(item.count for item in group.wants())
        found: dict[int, list[tuple[str, Node]]] = {}
        profiles = _profiles(group)
        for name, node in members:
            have = units(node)
            if have is not None and have != wanted and not _mig_differs(profiles, node):
                found.setdefault(have, []).append((name, node))
        for have, own in found.items():
            yield from _other_count(situation, group, wanted, have, own)


def _other_count(situation: Situation, group: Alike, wanted: int, have: int,
                 own: list[tuple[str, Node]]) -> Iterator[Finding]:
    line = group.node
    if line is None:
        return
    value = line.values.get("gres")
    place = value.place if value is not None else line.place
    names = sorted((name for name, _ in own), key=natural)
    verb = "has" if len(names) == 1 else "have"
    if have > wanted:
        more = _gres_of(group, own[0][1], have)
        said = f"{value.key}={value.text}" if value is not None else "no Gres="
        yield Finding(Severity.DRIFT, f"{said} but {slurm_list(names)} {verb} {have} GPUs",
                      f"{have - wanted} on each node are given to no job",
                      (part_line(line, names, {"Gres": more}),) if more else (), place, tuple(names))
        return
    for name, node in own:
        says, at = _lost(situation, group, name, node)
        fewer = _gres_of(group, node, have)
        right = (part_line(line, [name], {"Gres": fewer}),) if fewer else ()
        yield Finding(Severity.INVALID, f"Gres={value.text if value else ''} but {name} has {have} GPUs: {says}",
                      f"count reported lower than configured ({have} < {wanted}): the node registers INVALID; repair "
                      "it, or give it a line of its own until then", right, at or place, (name,))


def _lost(situation: Situation, group: Alike, name: str, node: Node) -> tuple[str, Place | None]:
    """Which: by the device files that gres.conf names, by the group in the inventory, by the PCI bus."""
    lines = group.of()
    missing = gone(lines, node)
    parts = [f"{file} ({line.place}) is gone" for line, file in missing[:8]] if len(missing) < sum(
        len(line.files) for line in lines) else []
    odd = [text for text in odd_of(situation, [name]).get(name, []) if "GPU" in text]
    parts += odd or _peers(situation, group, name, node)
    parts += [text for text in node.problems if "GPU" in text and text not in parts][:4]
    there = ", ".join(gpu_name(gpu) for gpu in node.gpus[:16])
    return "; ".join(parts) or f"it has {there or 'none'}", missing[0][0].place if missing else None


def _peers(situation: Situation, group: Alike, name: str, node: Node) -> list[str]:
    """PCI addresses at which every other node of the line has a GPU."""
    others = [own for host, own in ((h, Hosts(situation).nodes.get(h)) for h in group.hosts[:200]) if own is not None
              and host != name and len(own.gpus) > len(node.gpus)]
    if not others:
        return []
    common = set.intersection(*({gpu.pci for gpu in own.gpus if gpu.pci} for own in others))
    found = []
    for address in sorted(common - {gpu.pci for gpu in node.gpus}):
        gpu = next(g for g in others[0].gpus if g.pci == address)
        slot = slot_of(others[0], address)
        on_bus = any(d.address == address for d in node.pci)
        found.append(f"no GPU at {address} (GPU {gpu.index} on the other nodes{f', {slot}' if slot else ''}), which is "
                     f"{'still' if on_bus else 'not'} on the PCI bus")
    return found


def _gres_of(group: Alike, node: Node, have: int) -> str:
    """Gres= with so many GPUs; "" where it cannot be told which type there are fewer or more of."""
    items = group.wants()
    others = [item for item in group.wanted if item.name != "gpu"]
    rest = [f"{i.name}{f':{i.type}' if i.type else ''}:{i.count}" for i in others]
    if len(items) > 1 or (not items and len({g.model for g in node.gpus}) != 1):
        return ""
    kind = items[0].type if items else next(iter(_model_words(node.gpus[0].model)), "")
    return ",".join([*([f"gpu{f':{kind}' if kind else ''}:{have}"] if have else []), *rest])


def _model_words(model: str) -> list[str]:
    """h100 of "NVIDIA H100 80GB HBM3"."""
    return [word for word in re.split(r"[\s_/-]+", model.casefold()) if _MODEL.fullmatch(word)]


def device_files(situation: Situation) -> Iterator[Finding]:
    """GPUs that a tool reports and whose device file is missing, where others of the node have theirs."""
    for group, members in _groups(situation):
        lines = group.of()
        found: dict[tuple[str, Place], list[str]] = {}
        for name, node in members:
            if all(gpu.device_file for gpu in node.gpus):
                continue                     # told where File= is judged
            for line, file in gone(lines, node):
                found.setdefault((file, line.place), []).append(name)
        for (file, place), names in found.items():
            which = without_file(file, dict(members)[names[0]])
            yield Finding(Severity.FATAL, f"{file} is missing on {slurm_list(sorted(names, key=natural))}" + (
                f", where it is {which}" if which else ""), "slurmd waits 20 s for it and ends: the driver lost the "
                "GPU, or made no device file (nvidia-modprobe, udev)", (), place, tuple(sorted(names, key=natural)))


def gpus_type(situation: Situation) -> Iterator[Finding]:
    """A Type= that names another model than the node has: jobs that ask for it get something else."""
    for group, members in _groups(situation):
        kinds = {item.type for item in group.wants() if item.type} | {line.get("type") for line in group.of()
                                                                     if line.get("type")}
        wrong: dict[tuple[str, str], list[str]] = {}
        for name, node in members:
            models = sorted({gpu.model for gpu in node.gpus if gpu.model})
            own = {word for model in models for word in _model_words(model)}
            for kind in kinds:
                said = set(_MODEL.findall(_MIG.sub("", kind.casefold())))
                fits = any(kind.casefold() in autodetected(model) for model in models)
                named = any(kind == short for model in models
                            for short in [situation.site.slurm.gpu_types.get(model, "")])
                if models and said and not fits and not named and own and not said & own and not any(
                        word in o or o in word for word in said for o in own):
                    wrong.setdefault((kind, ", ".join(models)), []).append(name)
        for (kind, models_text), names in wrong.items():
            line = group.node
            value = line.values.get("gres") if line is not None else None
            at = next((each.values["type"].place for each in group.of() if each.get("type") == kind), None)
            yield Finding(Severity.WRONG, f"type {kind} but {slurm_list(sorted(names, key=natural))} "
                          f"{'has' if len(names) == 1 else 'have'} {models_text}",
                          "jobs that ask for that type get other GPUs; with AutoDetect none is found", (),
                          value.place if value is not None and kind in value.text else at, tuple(names))


def mig_state(situation: Situation) -> Iterator[Finding]:
    """MIG types on GPUs that are not in MIG mode, and whole GPUs that are; profiles and how many of each."""
    for group, members in _groups(situation):
        wanted = _profiles(group)
        found: dict[str, list[str]] = {}
        for name, node in members:
            text = _mig_differs(wanted, node)
            if text:
                found.setdefault(text, []).append(name)
        for text, names in found.items():
            line = group.node
            value = line.values.get("gres") if line is not None else None
            yield Finding(Severity.INVALID, f"{slurm_list(sorted(names, key=natural))}: {text}",
                          "what is not there is reported lower than configured, and the node registers INVALID; change "
                          "Gres= together with the MIG layout", (), value.place if value is not None else None,
                          tuple(names))


def _profiles(group: Alike) -> Counter[str]:
    """How many of each MIG profile Gres= wants; "" are whole GPUs."""
    wanted = Counter[str]()
    for item in group.wants():
        match = _MIG.search(item.type.casefold())
        wanted[match[1] if match else ""] += item.count
    return wanted


def _mig_differs(wanted: Counter[str], node: Node) -> str:
    profiles = {key for key in wanted if key}
    on = [gpu for gpu in node.gpus if mig(gpu.mig)]
    known = [gpu for gpu in node.gpus if gpu.mig]
    if not profiles and not on:
        return ""
    if profiles and known and not on:
        return f"Gres= wants MIG devices ({', '.join(sorted(profiles))}), no GPU is in MIG mode"
    whole = len(node.gpus) - len(on)
    if on and wanted[""] > whole:
        which = ", ".join(f"GPU {gpu.index}" for gpu in on[:8])
        return f"Gres= wants {wanted['']} whole GPUs, {which} {'is' if len(on) == 1 else 'are'} in MIG mode"
    have = Counter(device.profile for gpu in on for device in gpu.mig_devices)
    if any(not gpu.mig_devices for gpu in on):
        empty = ", ".join(f"GPU {gpu.index}" for gpu in on if not gpu.mig_devices)
        return f"{empty} in MIG mode without any MIG device: slurmd ends with an error, or jobs get none"
    differ = [f"{wanted[key]} of {key} wanted, {have[key]} there" for key in sorted(profiles | set(have))
              if wanted[key] > have[key]]
    return f"MIG devices: {', '.join(differ)}" if differ else ""


def nvlinks(situation: Situation) -> Iterator[Finding]:
    """Links= written by hand against the links that the nodes have."""
    for group, members in _groups(situation):
        lines = [line for line in group.of() if line.get("links") and len(line.files) == 1]
        if group.autodetect is not None or not lines:
            continue
        found: dict[tuple[tuple[int, str], ...], list[str]] = {}
        for name, node in members:
            wrong = tuple((place, own) for place, own in _links_of(lines, node) if lines[place].get("links") != own)
            if wrong:
                found.setdefault(wrong, []).append(name)
        for wrong, names in found.items():
            yield from _linked([(lines[place], own) for place, own in wrong], names)


def _linked(wrong: Sequence[tuple[GresLine, str]], names: list[str]) -> Iterator[Finding]:
    line, own = wrong[0]
    value = line.values["links"]
    more = f" and {len(wrong) - 1} more lines" if len(wrong) > 1 else ""
    right = tuple(gres_line(each, {value.key: text}, slurm_list(each.hosts)) for each, text in wrong[:16])
    yield Finding(Severity.DRIFT, f"Links={value.text} of {line.files[0]} but the links of "
                  f"{slurm_list(sorted(names, key=natural))} are {own}{more}",
                  "Slurm chooses GPUs by Links=, in ways that the hardware does not have", right, value.place,
                  tuple(names))


def _links_of(lines: Sequence[GresLine], node: Node) -> Iterator[tuple[int, str]]:
    """(place of the line, what render would write); nothing where the links are not known or faulty, or where all are
    one number in both (by hand any number does)."""
    order = bus_order(node.gpus)
    if isinstance(order, str):
        return
    rows, _ = links(node, order)
    if not rows or len(rows) != len(lines):
        return
    texts = {gpu.device_file: row for gpu, row in zip(order, rows, strict=True)}
    pairs = [(place, texts[line.files[0]]) for place, line in enumerate(lines) if line.files[0] in texts]
    written, there = [lines[place].get("links") for place, _ in pairs], [text for _, text in pairs]
    if not (_uniform(written) not in ("", "0") and _uniform(there) and _own(written) == _own(there)):
        yield from pairs


def _uniform(rows: Sequence[str]) -> str:
    """The one number that all links of all rows have; "" where there are several."""
    numbers = {number.strip() for row in rows for number in row.split(",")} - {"-1"}
    return numbers.pop() if len(numbers) == 1 else ""


def _own(rows: Sequence[str]) -> list[list[bool]]:
    return [[number.strip() == "-1" for number in row.split(",")] for row in rows]


DEVICES: tuple[Rule, ...] = (gpus_count, device_files, gpus_type, mig_state, nvlinks)
