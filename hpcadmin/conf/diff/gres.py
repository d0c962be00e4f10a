"""gres.conf: the devices of each node, in their order, for all nodes at once that have the same lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing.parts import Configuration, GresLine, Place
from hpcadmin.errors import HpcadminError
from hpcadmin.facts._slurm_gres import core_ids
from hpcadmin.text import fold_ids

_PARTS = ("type", "cores", "links", "flags", "count")
_WRITTEN = {"type": "Type", "cores": "Cores", "links": "Links", "flags": "Flags", "count": "Count"}
ALL = "every node"


@dataclass(frozen=True)
class Device:
    """file: the files of one device; "" for what is only counted."""

    name: str
    file: str
    values: tuple[str, ...]              # in the order of _PARTS
    line: int                            # which gres line of its configuration

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.file


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    if not old.gres and not new.gres:
        return
    if not new.has("gres.conf") and "gres.conf" not in sides.replaced and not new.gres:
        yield Difference(Weight.LEFT, "gres.conf", "lines", str(len(old.gres)), "", means=sides.stays("gres.conf"),
                         place=old.gres[0].place)
        return
    hosts = list(dict.fromkeys(host for conf in (old, new) for line in conf.nodes for host in line.hosts))
    was, will = _lines_of(old.gres), _lines_of(new.gres)
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for host in dict.fromkeys([*hosts, *was.own, *will.own]):
        groups.setdefault((was.of(host), will.of(host)), []).append(host)
    for (before, after), members in groups.items():
        yield from _group(_Side(old.gres, before), _Side(new.gres, after), tuple(members), sides)


class _Lines:
    def __init__(self, every: tuple[int, ...], own: Mapping[str, list[int]]) -> None:
        self.every, self.own = every, own

    def of(self, host: str) -> tuple[int, ...]:
        mine = self.own.get(host)
        return tuple(sorted([*self.every, *mine])) if mine else self.every


def _lines_of(lines: Sequence[GresLine]) -> _Lines:
    own: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        for host in line.hosts:
            own.setdefault(host, []).append(number)
    return _Lines(tuple(n for n, line in enumerate(lines) if not line.hosts), own)


class _Side:
    """What the lines of one configuration say of one group of nodes."""

    def __init__(self, lines: Sequence[GresLine], chosen: Sequence[int]) -> None:
        self.lines = lines
        self.devices: list[Device] = []
        general = own = ""
        flags: dict[str, str] = {}       # Slurm takes those of the line before, of the same name
        self.place: Place | None = lines[chosen[0]].place if chosen else None
        self.last = {number: lines[number] for number in chosen}
        for number in chosen:
            line = lines[number]
            if line.get("autodetect") and (line.hosts or not line.name):
                if line.hosts:
                    own = line.get("autodetect").casefold()
                else:
                    general = line.get("autodetect").casefold()
            self.devices += _devices(line, number, flags)
        self.autodetect = (own or general).replace("off", "")

    def value(self, device: Device, key: str) -> str:
        return device.values[_PARTS.index(key)]


def _devices(line: GresLine, number: int, flags: dict[str, str]) -> Iterator[Device]:
    if not line.name:
        return
    count = line.get("count")
    if line.get("flags"):
        flags[line.name.casefold()] = ",".join(sorted(line.get("flags").casefold().split(",")))
    plain = (line.get("type"), _cores(line.get("cores")), line.get("links").replace(" ", ""),
             flags.get(line.name.casefold(), ""))
    if not line.files:
        yield Device(line.name.casefold(), "", (*plain, count or "1"), number)
        return
    files = [",".join(line.files)] if "multiplefiles" in line.values else line.files
    for file in files:
        shared = line.name.casefold() in ("mps", "shard")
        yield Device(line.name.casefold(), file, (*plain, count if shared else ""), number)


def _cores(text: str) -> str:
    if not text:
        return ""
    try:
        return fold_ids(core_ids(text))
    except HpcadminError:
        return text


def _group(old: _Side, new: _Side, hosts: tuple[str, ...], sides: Sides) -> Iterator[Difference]:
    if old.autodetect != new.autodetect:
        told = [line.values["autodetect"] for line in new.last.values() if "autodetect" in line.values]
        why = sides.why(told[-1]) if told else ""
        yield Difference(Weight.CHANGE, "gres.conf", "AutoDetect", old.autodetect or "off", new.autodetect or "off",
                         hosts, why, "", old.place, sides.apply("gres.conf", "AutoDetect"))
    before, after = {d.key: d for d in old.devices}, {d.key: d for d in new.devices}
    yield from _gone(old, new, [d for d in old.devices if d.key not in after], hosts, sides)
    yield from _new(new, [d for d in new.devices if d.key not in before], hosts, sides)
    both = [key for key in after if key in before]
    for part in _PARTS:
        changes: dict[tuple[str, str, str], list[Device]] = {}
        for key in both:
            texts = old.value(before[key], part), new.value(after[key], part)
            if texts[0] != texts[1]:
                changes.setdefault((*texts, key[0]), []).append(after[key])
        first = {key: old.lines[device.line].place for key, device in before.items()}
        for item in _changed(part, changes, (first, new, sides)):
            yield replace(item, nodes=hosts)
    order = [[key for key in (d.key for d in side.devices) if key in before and key in after] for side in (old, new)]
    if order[0] != order[1]:
        yield Difference(Weight.CHANGE, "gres.conf", "order of devices", files_text(f for _, f in order[0]),
                         files_text(f for _, f in order[1]), hosts, "the order of the lines is the index that jobs get",
                         "until then a job's GPU 0 is another one", old.place, sides.apply("gres.conf", "File"))


def _changed(part: str, changes: Mapping[tuple[str, str, str], list[Device]],
             about: tuple[Mapping[tuple[str, str], Place], _Side, Sides]) -> Iterator[Difference]:
    places, new, sides = about
    if part == "links" and len(changes) > 1:             # every GPU has its own
        devices = [device for group in changes.values() for device in group]
        first = next(iter(changes))
        changes = {(f"{first[0] or 'none'} ...", f"{first[1] or 'none'} ...", first[2]): devices}
    for (was, will, name), devices in changes.items():
        line = new.lines[devices[0].line]
        value = line.values.get(part)
        yield Difference(Weight.CHANGE, "gres.conf", f"{name} {_WRITTEN[part]} of {files_text(d.file for d in devices)}"
                         if devices[0].file else f"{name} {_WRITTEN[part]}", was, will, (), sides.why(value), "",
                         places[devices[0].key], sides.apply("gres.conf", _WRITTEN[part]))


def _gone(old: _Side, new: _Side, devices: Sequence[Device], hosts: tuple[str, ...], sides: Sides
          ) -> Iterator[Difference]:
    for name, group in _by_name(devices):
        files = files_text(d.file for d in group)
        named = any(d.name == name and d.file for d in new.devices)
        fatal = sides.truth and bool(group[0].file) and named and name == "gpu"
        weight = Weight.FATAL if fatal else Weight.CHANGE if new.devices or new.autodetect else Weight.DROPPED
        means = "the node has no such device: slurmd waits for the file and does not start" if fatal else (
            "" if weight is Weight.CHANGE else sides.goes("[nodes.NAME.gres]"))
        yield Difference(weight, "gres.conf", f"{name} {'File' if group[0].file else 'Count'}",
                         files or group[0].values[-1], "", hosts, "", means, old.lines[group[0].line].place,
                         sides.apply("gres.conf", "File" if group[0].file else "Count"))


def _new(new: _Side, devices: Sequence[Device], hosts: tuple[str, ...], sides: Sides) -> Iterator[Difference]:
    for name, group in _by_name(devices):
        kinds = ",".join(dict.fromkeys(d.values[0] for d in group if d.values[0]))
        files = files_text(d.file for d in group)
        line = new.lines[group[0].line]
        yield Difference(Weight.CHANGE, "gres.conf", f"{name} {'File' if files else 'Count'}", "",
                         f"{files or group[0].values[-1]}{f' ({kinds})' if kinds else ''}", hosts,
                         sides.why(line.values.get("file") or line.values.get("name")), "", None,
                         sides.apply("gres.conf", "File" if files else "Count"))


def _by_name(devices: Sequence[Device]) -> list[tuple[str, list[Device]]]:
    found: dict[tuple[str, bool], list[Device]] = {}
    for device in devices:
        found.setdefault((device.name, bool(device.file)), []).append(device)
    return [(name, group) for (name, _), group in found.items()]


def files_text(files: Iterable[str]) -> str:
    """/dev/nvidia[0-3],/dev/nvidia7, in the order given."""
    parts: list[tuple[str, list[list[int]]]] = []
    for file in files:
        stem = file.rstrip("0123456789")
        digits = file[len(stem):]
        plain = digits if digits and (digits == "0" or digits[0] != "0") and len(digits) < 10 else ""
        if plain and parts and parts[-1][0] == stem and parts[-1][1]:
            runs = parts[-1][1]
            if int(plain) == runs[-1][1] + 1:
                runs[-1][1] = int(plain)
            else:
                runs.append([int(plain), int(plain)])
        else:
            parts.append((stem, [[int(plain), int(plain)]]) if plain else (file, []))
    return ",".join(_written(stem, runs) for stem, runs in parts if stem or runs)


def _written(stem: str, runs: list[list[int]]) -> str:
    if not runs:
        return stem
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return f"{stem}{runs[0][0]}"
    return f"{stem}[{','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}]"
