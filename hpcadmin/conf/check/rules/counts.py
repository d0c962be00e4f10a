"""Gres= of the nodes against the lines of gres.conf: names, types and numbers must agree (gres.c)."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import GPU, SHARED, Alike, gres_line, node_line
from hpcadmin.conf.check.rules._unnamed import missing_lines
from hpcadmin.conf.check.rules.gres import devices
from hpcadmin.conf.existing.parts import GresLine, Value
from hpcadmin.conf.names import slurm_list
from hpcadmin.facts._slurm_rules import Item
from hpcadmin.gpu_types import autodetected
from hpcadmin.text import plural


def grammar(situation: Situation) -> Iterator[Finding]:
    """Gres= alone."""
    for group in situation.alike:
        value = _gres(group)
        if value is None or group.node is None:
            continue
        for item in group.wanted:
            if item.bad:
                yield Finding(Severity.WRONG, f"Gres={value.text[:80]}: {item.bad}",
                              "Bad GRES configuration: slurmctld ignores it and what follows", (), value.place,
                              group.hosts)
            elif len(item.types) > 1:
                words = [kind for kind in item.types if not kind.isdigit()]
                number = next((kind for kind in item.types if kind.isdigit()), str(item.count))
                yield Finding(Severity.WRONG, f"Gres={value.text[:80]}: {item.name} has several types at once, "
                              f"{', '.join(item.types)[:60]}", "Slurm counts the number for each of them: it is "
                              "name:type:number", (node_line(group.node, {"Gres": f"{item.name}:{words[0]}:{number}"}),)
                              if len(words) == 1 else (), value.place, group.hosts)
            elif item.type.isdigit():
                right = f"{item.name}:<type>:{item.type if item.count == 1 else item.count}"
                yield Finding(Severity.WRONG, f"Gres={value.text[:80]}: {item.count} of type \"{item.type}\": a "
                              "number stands where the type belongs", f"--gres={item.name}:{item.type} is read as a "
                              "count, not as a type", (node_line(group.node, {"Gres": right}),), value.place,
                              group.hosts)
        for name in dict.fromkeys(item.name for item in group.wanted):
            typed = {bool(item.type) for item in group.wants(name)}
            if len(typed) > 1:
                yield Finding(Severity.FATAL, f"Gres={value.text[:80]}: some {name} have a type and others do not",
                              "slurmd does not start", (), value.place, group.hosts)


def mismatch(situation: Situation) -> Iterator[Finding]:
    """GPUs by hand: what slurmd will report of each type against what is configured."""
    for group in situation.alike:
        wanted, lines = group.wants(), [line for line in group.of() if line.files]
        if group.node is None or not wanted or not lines or group.autodetect is not None:
            continue
        have = _by_type(lines)
        total, want = sum(have.values()), sum(item.count for item in wanted)
        value = group.node.values["gres"]
        right = node_line(group.node, {"Gres": _gres_of(have)})
        if not any(item.type for item in wanted):
            yield from _untyped(group, have, total, want, right)
            continue
        for kind, number in _wanted_types(wanted).items():
            got = have.get(kind, 0)
            if got < number:
                lost = missing_lines(situation, group)
                # Links= for as many GPUs as Gres= has: a line was lost, and fewer in Gres= would not be right.
                forgotten = all(_linked(line) == want for line in lines)
                instead = () if forgotten else (right, *_retyped(lines, have, kind))
                yield Finding(
                    Severity.INVALID, f"Gres= has {number} of type {kind}, gres.conf {_said(kind, have, got)}",
                    f"gres/gpu count reported lower than configured ({got} < {number}): the node is INVAL" + (
                        f"; Links= are for {want} GPUs: a line is missing" if forgotten else ""),
                    lost if len(lost) == number - got else instead, lines[0].place, group.hosts)
            elif got > number:
                yield Finding(Severity.WRONG, f"gres.conf has {got} GPUs of type {kind}, Gres= {number}",
                              "a warning, and Slurm does not use the rest", (right,), value.place, group.hosts)
        unused = {kind: number for kind, number in have.items()
                  if kind and kind not in _wanted_types(wanted)}
        if unused and total > 0 and all(kind in have for kind in _wanted_types(wanted)):
            yield Finding(Severity.WRONG, f"gres.conf has {_gres_of(unused)}, Gres={value.text[:80]} does not",
                          "Slurm does not use them", (right,), value.place, group.hosts)


def _linked(line: GresLine) -> int:
    """For how many GPUs its Links= is."""
    text = line.get("links") or line.get("link") or ""
    return text.count(",") + 1 if text else 0


def _untyped(group: Alike, have: dict[str, int], total: int, want: int, right: str) -> Iterator[Finding]:
    if group.node is None:
        return
    value = group.node.values["gres"]
    if total < want:
        yield Finding(Severity.INVALID, f"Gres={value.text[:80]} has {want} GPUs, gres.conf {total}",
                      f"gres/gpu count reported lower than configured ({total} < {want}): the node is INVAL", (right,),
                      group.of()[0].place, group.hosts)
    elif total > want:
        yield Finding(Severity.WRONG, f"gres.conf has {total} GPUs, Gres={value.text[:80]} {want}",
                      "a warning, and Slurm does not use the rest", (right,), value.place, group.hosts)
    if any(have):
        yield Finding(Severity.WRONG, f"gres.conf has types ({', '.join(sorted(filter(None, have)))}), "
                      f"Gres={value.text[:80]} has none", "a warning, Slurm drops the types, and a job that asks for "
                      "one never starts", (right,), value.place, group.hosts)


def no_lines(situation: Situation) -> Iterator[Finding]:
    """Nodes with GPUs in Gres= that gres.conf says nothing of."""
    there = situation.conf.has("gres.conf") or situation.lacks("gres.conf")
    types = [word.strip() for word in situation.conf.setting("GresTypes").split(",")]
    for group in situation.alike:
        value = _gres(group)
        number = sum(item.count for item in group.wants())
        if value is None or not number or group.of() or group.autodetect is not None:
            continue
        if group.state.startswith("FUTURE") or (situation.whole and GPU not in types):
            continue                         # without GresTypes=gpu nothing is counted: gres.names tells of it
        if there and not situation.fragment:
            right = f"NodeName={slurm_list(group.hosts)} Name=gpu {_type(group.wants())}File=/dev/nvidia<minor>"
            yield Finding(Severity.INVALID, f"Gres={value.text[:80]}, and gres.conf "
                          f"{'has no line for it' if situation.conf.has('gres.conf') else 'does not exist'}",
                          f"gres/gpu count reported lower than configured (0 < {number}): the node is INVAL",
                          (right, f"NodeName={slurm_list(group.hosts)} AutoDetect=nvml"), value.place, group.hosts)
        else:
            yield Finding(Severity.NOTE, f"Gres={value.text[:80]}: gres.conf, which must name {slurm_list(group.hosts)}"
                          ", was not given: not compared", "", (), value.place, group.hosts)


def no_gres(situation: Situation) -> Iterator[Finding]:
    """Lines of gres.conf for nodes that have no such Gres=, or that slurm.conf does not know."""
    for group in situation.alike:
        named = [line for line in group.lines if line.hosts]
        if not named or not situation.conf.nodes:
            continue
        if group.node is None:
            unsure = situation.dynamic or not situation.whole
            yield Finding(Severity.NOTE if unsure else Severity.WRONG,
                          f"gres.conf has lines for {slurm_list(group.hosts)}, which slurm.conf does not define",
                          "nobody reads them, unless these nodes register dynamically", (), named[0].place, group.hosts)
            continue
        for name in dict.fromkeys(line.name for line in named):
            if not any(item.name == name for item in group.wanted):
                have = _by_type([line for line in named if line.name == name])
                text = _gres_of(have, name) if sum(have.values()) else name
                yield Finding(Severity.WRONG, f"gres.conf has lines of {name} for {slurm_list(group.hosts)}, whose "
                              "NodeName line has no such Gres=", "slurmctld gives none of it to jobs: gres.conf alone "
                              "does not make it", (node_line(group.node, {"Gres": ",".join(filter(None, [
                                  group.node.get("gres"), text]))}),), group.node.place, group.hosts)


def detected_types(situation: Situation) -> Iterator[Finding]:
    """With AutoDetect, a type is a part of the name that the driver tells, in small letters with _ for blanks."""
    for group in situation.alike:
        if group.autodetect is None or group.node is None:
            continue
        host = next((h for h in group.hosts if h in situation.machines), None)
        node = situation.machines.get(host or "")
        if node is None or node.lacks("gpus") or any(gpu.mig_devices for gpu in node.gpus):
            continue
        detected = sorted({autodetected(gpu.model) for gpu in node.gpus if gpu.model})
        for item in group.wants():
            if item.type and detected and not any(item.type.casefold() in name for name in detected):
                yield Finding(Severity.INVALID, f"type {item.type} is no part of what AutoDetect="
                              f"{group.autodetect.text} finds: {', '.join(detected)}",
                              f"the GPUs are ignored, count reported lower than configured (0 < {item.count}): the "
                              "node is INVAL", (node_line(group.node, {"Gres": f"gpu:{detected[0]}:{item.count}"}),),
                              group.node.values["gres"].place, group.hosts)


def shares(situation: Situation) -> Iterator[Finding]:
    """mps and shard: shares of the GPUs of the node."""
    for group in situation.alike:
        for name in SHARED:
            items, lines = group.wants(name), group.of(name)
            number = sum(item.count for item in items)
            if group.node is None or not (items or lines):
                continue
            at = group.node.values["gres"].place if items else lines[0].place
            gpus = sum(item.count for item in group.wants()) or sum(devices(line) for line in group.of())
            if items and not group.wants():
                yield Finding(Severity.FATAL, f"Gres= has {name} and no gpu", f"{name} is a share of GPUs, and there is"
                              " nothing to share: slurmd does not start", (), at, group.hosts)
            elif items and gpus and number % gpus:
                yield Finding(Severity.NOTE, f"{plural(number, name)} on {plural(gpus, 'GPU')}",
                              "Slurm spreads them as evenly as it can, the GPUs get different numbers", (), at,
                              group.hosts)
            have = sum(int(line.get("count") or 1) if (line.get("count") or "1").isdigit() else number
                       for line in lines)
            if items and lines and have < number:
                yield Finding(Severity.FATAL, f"Gres= has {number} {name}, gres.conf {have}",
                              "bad configuration: slurmd does not start. Without a line in gres.conf Slurm spreads "
                              "what Gres= has", (gres_line(lines[0], {"Count": str(number)}),), lines[0].place,
                              group.hosts)
            elif items and lines and have > number:
                yield Finding(Severity.WRONG, f"gres.conf has {have} {name}, Gres= {number}",
                              "a warning, and Slurm does not use the rest", (), lines[0].place, group.hosts)
        if group.wants("mps") and group.wants("shard") and group.node is not None:
            yield Finding(Severity.WRONG, "Gres= has both mps and shard", "Slurm ties one of them to the GPUs: jobs of "
                          "the other share GPUs with jobs that have them alone", (), group.node.values["gres"].place,
                          group.hosts)


def _gres(group: Alike) -> Value | None:
    return group.node.values.get("gres") if group.node is not None else None


def _by_type(lines: list[GresLine]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in lines:
        found[line.get("type")] = found.get(line.get("type"), 0) + devices(line)
    return found


def _wanted_types(items: tuple[Item, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        found[item.type] = found.get(item.type, 0) + item.count
    return found


def _gres_of(have: dict[str, int], name: str = GPU) -> str:
    return ",".join(f"{name}:{kind}:{number}" if kind else f"{name}:{number}" for kind, number in have.items())


def _type(items: tuple[Item, ...]) -> str:
    return f"Type={items[0].type} " if items and items[0].type else ""


def _said(kind: str, have: dict[str, int], got: int) -> str:
    if got:
        return f"has {got} of them"
    other = next((each for each in have if each and each.casefold() == kind.casefold()), None)
    if other is not None:
        return f"writes it {other}"
    if "" in have:
        return f"has {have['']} without Type="
    return f"has Type={', '.join(sorted(have))}"


def _retyped(lines: list[GresLine], have: dict[str, int], kind: str) -> tuple[str, ...]:
    """The lines with the type that slurm.conf has, where there is no other."""
    if len(have) != 1 or kind in have:
        return ()
    return tuple(gres_line(line, {"Type": kind}, slurm_list(line.hosts) if line.hosts else "") for line in lines[:16])


RULES: tuple[Rule, ...] = (grammar, mismatch, no_lines, no_gres, detected_types, shares)
