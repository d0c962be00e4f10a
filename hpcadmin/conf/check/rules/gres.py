"""Lines of gres.conf, alone and with the others of their node: what slurmd refuses or ignores (gres.conf(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import GPU, SHARED, Alike, gres_line
from hpcadmin.conf.check.force import place
from hpcadmin.conf.existing.parts import GresLine
from hpcadmin.conf.names import slurm_list
from hpcadmin.facts._slurm_rules import LinksFault, links_fault

_ENV = {"nvidia_gpu_env": "nvidia", "amd_gpu_env": "amd", "intel_gpu_env": "intel", "opencl_env": "",
        "no_gpu_env": ""}
_FLAG_OF = {"nvidia": "nvidia_gpu_env", "amd": "amd_gpu_env", "intel": "intel_gpu_env"}
_NVIDIA = re.compile(r"/dev/nvidia(?:[0-9]|-caps/)")
MAX_RIGHT = 16


def names(situation: Situation) -> Iterator[Finding]:
    """Name= and Gres= against GresTypes=, where the whole slurm.conf is there."""
    if not situation.whole:
        return
    # Capitals count: GPU is another gres than gpu, and none that Slurm knows how to share out.
    types = {word.strip() for word in situation.conf.setting("GresTypes").split(",") if word.strip()}
    wanted = sorted({item.name for group in situation.alike for item in group.wanted if item.name})
    lost = [name for name in wanted if name not in types]
    for group in situation.alike:
        mine = [item.name for item in group.wanted if item.name in lost]
        if mine and group.node is not None:
            both = ",".join(dict.fromkeys([*sorted(types), *lost]))
            yield Finding(Severity.WRONG, f"Gres={group.node.get('gres')}: {', '.join(dict.fromkeys(mine))} is not in "
                          f"GresTypes={situation.conf.setting('GresTypes') or '(none)'}",
                          f"{'an error line' if types else 'no message'}, and the node has none of it",
                          (f"GresTypes={both}",), group.node.values["gres"].place, group.hosts)
    for line in situation.conf.gres:
        if line.name and line.name not in types and line.name not in lost:
            yield Finding(Severity.WRONG, f"Name={line.name[:40]} is not in GresTypes="
                          f"{situation.conf.setting('GresTypes') or '(none)'}",
                          "an error line, and slurmd ignores the record",
                          (f"GresTypes={','.join([*sorted(types), line.name])}",), line.place, line.hosts)
    for name in sorted(name for name in types if name != name.casefold() and name.casefold() in (GPU, *SHARED)):
        right = ",".join(sorted({*types, name.casefold()} - {name}))
        yield Finding(Severity.WRONG, f"GresTypes={situation.conf.setting('GresTypes')[:80]}: {name}",
                      f"Slurm's own is {name.casefold()}, in small letters; {name} is counted and nothing else: no "
                      "--gpus, no device, no variable", (f"GresTypes={right}",), place(situation, "grestypes"))
    if types & set(SHARED) and GPU not in types:
        yield Finding(Severity.FATAL, f"GresTypes={situation.conf.setting('GresTypes')} without gpu",
                      "mps and shard are shares of gpu: no daemon starts",
                      (f"GresTypes=gpu,{situation.conf.setting('GresTypes')}",), place(situation, "grestypes"))


def links(situation: Situation) -> Iterator[Finding]:
    """Each Links= alone."""
    for line in situation.conf.gres:
        value = line.values.get("links")
        if value is None or value.text == "(null)":
            continue
        fault, shown = links_fault(value.text), f"Links={value.text[:80]}"
        if fault is LinksFault.ELEMENT:
            yield Finding(Severity.WRONG, f"{shown}: {fault.value}",
                          "Slurm reads it as 0, in silence: a number for every GPU of the node, -1 for itself, 0 for "
                          "none", (), value.place, line.hosts)
        elif fault is not None:
            yield Finding(Severity.WRONG, f"{shown}: {fault.value}",
                          "an error line, and slurmd ignores Links= (-2 it takes in silence): a number for every GPU of"
                          " the node, -1 at the GPU's own place, 0 for none", (), value.place, line.hosts)
        if fault is None and len(line.files) > 1 and "multiplefiles" not in line.values:
            yield Finding(Severity.WRONG, f"{shown} on a line with {len(line.files)} files",
                          "every GPU has its own place, so each needs a line of its own",
                          tuple(gres_line(line, {"File": file, "Links": None}, _hosts(line))
                                for file in line.files[:MAX_RIGHT]), value.place, line.hosts)


def links_length(situation: Situation) -> Iterator[Finding]:
    """Links= against the number of GPUs and the place of the line."""
    for group in situation.alike:
        gpus = group.of()
        total, at = sum(devices(line) for line in gpus), 0
        wanted = sum(item.count for item in group.wants())
        for line in gpus:
            value, own = line.values.get("links"), at
            at += devices(line)
            fault = links_fault(value.text) if value is not None else None
            if value is None or fault not in (None, LinksFault.ELEMENT) or devices(line) != 1 or group.autodetect:
                continue
            parts = [int(part) if re.fullmatch(r"-?[0-9]{1,6}", part) else 0 for part in value.text.split(",")]
            if parts.count(-1) != 1:
                continue
            if total < len(parts) == wanted:
                continue                     # a line is missing, which counts.mismatch says
            if len(parts) > total and (total > 1 or not situation.fragment):
                yield Finding(Severity.INVALID, f"Links={value.text[:80]} has {len(parts)} numbers, the node has "
                              f"{total} GPU{'s' if total != 1 else ''}", "slurmctld sets the node INVAL",
                              (gres_line(line, {"Links": _cut(parts, own, total)}, _hosts(line)),), value.place,
                              group.hosts)
            elif len(parts) < total:
                yield Finding(Severity.WRONG, f"Links={value.text[:80]} has {len(parts)} numbers, the node has {total} "
                              "GPUs", "Slurm takes the missing ones as no link", (), value.place, group.hosts)
            elif parts.index(-1) != own and len(parts) == total:
                yield Finding(Severity.WRONG, f"Links={value.text[:80]}: the -1 is at place {parts.index(-1)}, the "
                              f"GPU is number {own} of the node", "jobs get GPUs that are linked worse",
                              (), value.place, group.hosts)


def _cut(parts: Sequence[int], own: int, total: int) -> str:
    """So many numbers as there are GPUs; the -1 at its own place."""
    kept = [0 if part == -1 else part for part in parts[:total]]
    kept[own:own + 1] = [-1]
    return ",".join(map(str, kept))


def links_symmetric(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        rows = [line.get("links") for line in group.of()]
        if not rows or any(not row or links_fault(row) for row in rows):
            continue
        matrix = [[int(part) for part in row.split(",")] for row in rows]
        size = len(matrix)
        if any(len(row) != size for row in matrix):
            continue
        odd = next(((a, b) for a in range(size) for b in range(a) if matrix[a][b] != matrix[b][a]), None)
        if odd is not None:
            a, b = odd
            yield Finding(Severity.WRONG, f"Links= of GPU {b} says {matrix[b][a]} links to GPU {a}, that of GPU {a} "
                          f"says {matrix[a][b]}", "one of the two lines is wrong", (),
                          group.of()[a].values["links"].place, group.hosts)


def count(situation: Situation) -> Iterator[Finding]:
    for line in situation.conf.gres:
        value = line.values.get("count")
        if value is None:
            continue
        match = re.fullmatch(r"([0-9]{1,18})([kKmMgGtTpP]?)", value.text)
        if not match:
            yield Finding(Severity.FATAL, f"Count={value.text[:40]} is no number", "slurmd does not start", (),
                          value.place, line.hosts)
        elif line.files and line.name.casefold() not in SHARED and (match[2] or int(match[1]) != devices(line)):
            yield Finding(Severity.FATAL, f"Count={value.text} beside {devices(line)} "
                          f"file{'s' if devices(line) != 1 else ''} on the line", "slurmd does not start: count does "
                          "not match File value", (gres_line(line, {"Count": None}, _hosts(line)),), value.place,
                          line.hosts)


def multiple_files(situation: Situation) -> Iterator[Finding]:
    for line in situation.conf.gres:
        value = line.values.get("multiplefiles")
        if value is None:
            continue
        if "file" in line.values:
            yield Finding(Severity.FATAL, "File= and MultipleFiles= on one line", "slurmd does not start", (),
                          value.place, line.hosts)
        elif len(line.files) < 2:
            yield Finding(Severity.FATAL, f"MultipleFiles={value.text[:80]} has one file", "slurmd does not start",
                          (gres_line(line, {"MultipleFiles": None, "File": value.text}, _hosts(line)),), value.place,
                          line.hosts)


def some_do(situation: Situation) -> Iterator[Finding]:
    """Type= and File= stand on all lines of one name, or on none."""
    for group in situation.alike:
        for name in dict.fromkeys(line.name for line in group.lines):
            lines = [line for line in group.lines if line.name == name]
            for shown, has in (("Type=", [bool(line.get("type")) for line in lines]),
                               ("File=", [bool(line.files) for line in lines])):
                if len(set(has)) > 1 and (shown == "Type=" or name.casefold() not in SHARED):
                    yield Finding(Severity.FATAL, f"Name={name} without {shown}, while {lines[has.index(True)].place} "
                                  "has it", "slurmd does not start: all lines of a name have it, or none", (),
                                  lines[has.index(False)].place, group.hosts)
            plain = [line for line in lines if not line.files and not line.get("type")]
            if len(plain) > 1:
                yield Finding(Severity.FATAL, f"{len(plain)} lines of Name={name} that nothing tells apart, first at "
                              f"{plain[0].place}", "slurmd does not start: duplicate records", (), plain[1].place,
                              group.hosts)


def files_twice(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        first: dict[tuple[str, str], GresLine] = {}
        for line in group.lines:
            if "multiplefiles" in line.values:
                continue
            again = [file for file in line.files if (line.name, file) in first]
            inside = sorted({file for file in line.files if line.files.count(file) > 1})
            for file in [*again, *inside][:1]:
                before = first.get((line.name, file), line)
                yield Finding(Severity.FATAL, f"{file} is named twice, first at {before.place}",
                              "duplicate device file: slurmd does not start", (), line.place, group.hosts)
            first.update({(line.name, file): line for file in line.files if (line.name, file) not in first})


def shared_files(situation: Situation) -> Iterator[Finding]:
    """File= of an mps or shard line is that of a gpu line of the same node (gres_c_s.c); AutoDetect may find more."""
    for group in situation.alike:
        gpus = [line for line in group.lines if line.name.casefold() == GPU]
        found = {file for line in gpus for file in line.files}
        for line in group.lines if found and group.autodetect is None else ():
            lost = [file for file in line.files if file not in found] if line.name.casefold() in SHARED else []
            if lost:
                yield Finding(Severity.WRONG, f"Name={line.name} File={lost[0]}: no gpu line has this file",
                              "an error line, and slurmd drops the shares of it", (), line.place, group.hosts)


def outside_dev(situation: Situation) -> Iterator[Finding]:
    """A regular file is refused, and one that is not there is waited for."""
    for line in situation.conf.gres:
        key = "multiplefiles" if "multiplefiles" in line.values else "file"
        odd = next((file for file in line.files if not file.startswith("/dev/")), "")
        if odd and line.name.casefold() == GPU:
            yield Finding(Severity.WRONG, f"{line.values[key].key}={odd[:80]} is no device file below /dev",
                          "slurmd ends where it is none, after a wait of 20 s where it is not there", (),
                          line.values[key].place, line.hosts)


def no_files(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        if group.autodetect is not None:
            continue
        for line in group.of():
            if not line.files:
                yield Finding(Severity.INVALID, "a line of Name=gpu without File=, and no AutoDetect is in force",
                              "slurmd drops it and reports fewer GPUs than configured", (
                                  gres_line(line, {"Count": None, "File": "/dev/nvidia<minor>"}, _hosts(line)),),
                              line.place, group.hosts)


def flags(situation: Situation) -> Iterator[Finding]:
    """Flags= of consecutive lines, as slurmd inherits and compares them."""
    for group in situation.alike:
        before: tuple[str, frozenset[str], GresLine] | None = None
        for line in group.lines:
            mine = _env(line)
            given = "flags" in line.values and bool(mine)
            if given and before is not None and before[0] == line.name and before[1] != mine:
                shown = ",".join(sorted(before[1])) if before[1] else "none, which means every variable"
                yield Finding(Severity.FATAL, f"Flags={line.get('flags')} after {before[2].place} with "
                              f"{shown}", f"slurmd does not start: all lines of {line.name} have the same Flags", (
                                  gres_line(before[2], {"Flags": line.get("flags")}, _hosts(before[2])),),
                              line.values["flags"].place, group.hosts)
            if given or before is None or before[0] != line.name:
                before = (line.name, mine, line)
            if "no_gpu_env" in mine and len(mine) > 1:
                yield Finding(Severity.FATAL, f"Flags={line.get('flags')}: no_gpu_env beside other variables",
                              "slurmd does not start", (), line.values["flags"].place, group.hosts)


def variables(situation: Situation) -> Iterator[Finding]:
    """Which variables jobs get: those of another vendor, or all of them."""
    for group in situation.alike:
        inherited: frozenset[str] = frozenset()
        for line in group.of() if group.autodetect is None else ():
            mine = _env(line) or inherited
            inherited = mine
            vendor = _vendor(situation, group, line)
            if not vendor:
                continue
            right = (gres_line(line, {"Flags": _FLAG_OF[vendor]}, _hosts(line)),)
            if not mine:
                filters = vendor == "amd"
                yield Finding(Severity.WRONG if filters else Severity.NOTE, "GPU lines without Flags=",
                              "jobs get the variables of every vendor" + (": HIP filters by CUDA_VISIBLE_DEVICES what "
                                                                          "ROCR_VISIBLE_DEVICES has filtered, and "
                                                                          "finds no GPU" if filters else ""),
                              right, line.place, group.hosts)
            elif "no_gpu_env" not in mine and vendor not in {_ENV[flag] for flag in mine}:
                yield Finding(Severity.WRONG, f"Flags={','.join(sorted(mine))} for a GPU of {vendor}",
                              "jobs do not get the variable that tells them their GPUs", right, line.place, group.hosts)


def devices_missing(situation: Situation) -> Iterator[Finding]:
    """File= that the node does not have."""
    for group in situation.alike:
        mine = dict.fromkeys(file for line in group.of() for file in line.files)
        for file in mine:
            without = [host for host in group.hosts if file not in _known_files(situation, host, file)]
            if without:
                line = next(line for line in group.of() if file in line.files)
                there = sorted(_known_files(situation, without[0], ""))
                yield Finding(Severity.FATAL, f"{file} does not exist on {slurm_list(without)}",
                              "slurmd waits 20 s and ends: can't stat gres.conf file. The node has "
                              f"{', '.join(there[:10]) or 'no GPU'}", (), line.place, tuple(without))


def _known_files(situation: Situation, host: str, default: str) -> set[str]:
    """Device files that the host has; {default} where that is not known."""
    node = situation.machines.get(host)
    if node is None or node.lacks("gpus") or any(not gpu.device_file for gpu in node.gpus):
        return {default}
    if default and not re.match(r"/dev/(?:nvidia[0-9]+|dri/renderD[0-9]+)\Z", default):
        return {default}
    return {gpu.device_file for gpu in node.gpus}


# --- what several rules ask ----------------------------------------------------------------------------------------


def devices(line: GresLine) -> int:
    """How many devices slurmd makes of the line's files."""
    return 1 if "multiplefiles" in line.values and line.files else len(line.files)


def _hosts(line: GresLine) -> str:
    return slurm_list(line.hosts) if line.hosts else ""


def _env(line: GresLine) -> frozenset[str]:
    """Its flags about variables, in small letters."""
    return frozenset(flag for flag in _ENV if flag in line.get("flags").casefold())


def _vendor(situation: Situation, group: Alike, line: GresLine) -> str:
    """"": not known."""
    if any(_NVIDIA.match(file) for file in line.files):
        return "nvidia"
    found = {gpu.vendor for host in group.hosts[:1] if host in situation.machines
             for gpu in situation.machines[host].gpus}
    if len(found) == 1:
        only = next(iter(found))
        return only if only in _FLAG_OF else ""
    text = f"{line.get('type')} {line.get('flags')}".casefold()
    return "amd" if any(file.startswith("/dev/dri/") for file in line.files) and re.search(
        r"\bmi[0-9]{2,3}|amd|instinct|radeon|gfx", text) else ""


RULES: tuple[Rule, ...] = (names, links, links_length, links_symmetric, count, multiple_files, some_do, files_twice,
                           shared_files, outside_dev, no_files, flags, variables, devices_missing)
