"""A comparison as text and as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from hpcadmin.conf.diff.compare import Application, application
from hpcadmin.conf.diff.parts import Diff, Difference, Weight
from hpcadmin.conf.existing.parts import Configuration
from hpcadmin.conf.existing.write import write
from hpcadmin.conf.keys import Apply, show
from hpcadmin.conf.passwords import hidden, hidden_lines
from hpcadmin.hosts import fold
from hpcadmin.text import plural, printable

HEADS = {
    Weight.FATAL: "FATAL: with these lines a daemon does not start",
    Weight.INVALID: "INVALID: with these lines nodes register INVALID",
    Weight.JOBS: "JOBS: these changes cost jobs",
    Weight.CHANGE: "CHANGE",
    Weight.DROPPED: "DROPPED: only the existing files have it",
    Weight.LEFT: "LEFT: only the existing files have it, and it stays",
}
MAX_TEXT_LINES = 50_000
MAX_FAULTS = 30


def text(found: Diff) -> str:
    lines = [*_faults(found)]
    weight = None
    for item in found.differences:
        if item.weight is not weight:
            lines += ["", HEADS[item.weight]] if lines else [HEADS[item.weight]]
            weight = item.weight
        lines += _lines(item)
    if not found.differences:
        lines.append("no difference in what could be read" if found.missing or any(f.fatal for f in found.faults)
                     else f"no difference ({plural(found.nodes, 'node')})")
    elif not found.same:
        lines += ["", *steps(found)]
    else:
        kept = sum(1 for item in found.differences if item.weight is Weight.LEFT)
        lines += ["", f"no difference ({plural(found.nodes, 'node')}): what is LEFT stays as it is "
                  f"({plural(kept, 'setting')})" if not found.missing else
                  "no difference in what could be read: what is LEFT stays as it is"]
    return "\n".join(printable(line, limit=4000) for line in lines)


def _faults(found: Diff) -> Iterator[str]:
    """Before everything else, for with a fatal one nothing of the files is in force."""
    chosen = sorted(found.faults, key=lambda f: not f.fatal)
    for fault in chosen[:MAX_FAULTS]:
        yield f"{'FATAL' if fault.fatal else 'note'}: {fault.place}: {hidden(fault.what)}"
    if len(chosen) > MAX_FAULTS:
        yield f"note: {len(chosen) - MAX_FAULTS} more lines like these"


def _lines(item: Difference) -> Iterator[str]:
    where = f" ({item.place})" if item.place else ""
    whose = f"{fold(item.nodes)}: " if item.nodes else ""
    file = "" if item.place else f"{item.file}: "
    yield f"  {file}{whose}{item.what}{change(item)}{where}"
    if item.why:
        yield f"      why: {item.why}"
    if item.means:
        yield f"      {item.means}"
    if item.apply is not Apply.NOTHING and item.weight is not Weight.LEFT:
        yield f"      takes: {takes(item)}"


def change(item: Difference) -> str:
    if not item.old and not item.new:
        return ""
    return f": {item.old or '(not set)'} -> {item.new or '(not set)'}"


def takes(item: Difference) -> str:
    if item.apply is Apply.RESTART_SLURMD and item.nodes:
        return f"restart slurmd on {fold(item.nodes)}"
    return item.apply.value


def steps(found: Diff) -> list[str]:
    """What all of it together takes."""
    version = f" (Slurm {show(found.version)})" if found.version else " (whatever the version)"
    needed = application(found.differences)
    lines = [f"To put all of it in force{version}:"]
    lines += [f"  {step}" for step in _steps(needed)] or ["  nothing: read anew where it is used"]
    return lines


def _steps(needed: Application) -> Iterator[str]:
    if needed.jobs_lost:
        yield "let all jobs end first: running and pending jobs are lost"
    if needed.slurmdbd:
        yield "restart slurmdbd"
    if needed.slurmctld and needed.every:
        yield "put the files on every host, then restart slurmctld and every slurmd"
        return
    if needed.slurmctld:
        yield "restart slurmctld"
    if needed.every:
        yield "restart every slurmd"
    elif needed.slurmd:
        yield f"restart slurmd on {fold(needed.slurmd)}"
    if needed.reconfigure:
        yield "scontrol reconfigure"


def as_json(found: Diff) -> dict[str, Any]:
    needed = application(found.differences)
    return {
        "same": found.same, "version": show(found.version) if found.version else None, "nodes": found.nodes,
        "differences": [
            {"weight": d.weight.value, "file": d.file, "what": d.what, "old": d.old or None, "new": d.new or None,
             "nodes": fold(d.nodes) or None, "node_count": len(d.nodes), "why": d.why or None, "means": d.means or None,
             "place": str(d.place) if d.place else None, "apply": d.apply.name.lower()} for d in found.differences],
        "apply": {"reconfigure": needed.reconfigure, "restart_slurmctld": needed.slurmctld,
                  "restart_slurmdbd": needed.slurmdbd, "restart_every_slurmd": needed.every,
                  "restart_slurmd": fold(needed.slurmd) or None, "jobs_lost": needed.jobs_lost},
        "faults": [{"place": str(f.place), "what": hidden(f.what), "fatal": f.fatal} for f in found.faults],
        "missing": list(found.missing)}


def unified(old: Configuration, files: Mapping[str, str]) -> str:
    """The files line by line, as diff -u has it; passwords are not shown. Of files that the new side does not have
    nothing is shown: they stay."""
    out: list[str] = []
    for name, new in files.items():
        source = next((f for f in old.files if f.name == name), None)
        before = _lines_of(write(source)) if source else []
        after = _lines_of(new)
        if len(before) + len(after) > MAX_TEXT_LINES:
            out.append(f"{name}: more than {MAX_TEXT_LINES} lines, too long to be compared line by line")
            continue
        label = source.path if source else "/dev/null"
        out += difflib.unified_diff(before, after, label, f"{name} (new)", lineterm="")
    for file in old.files:
        if file.path != next((f.path for f in old.files if f.name == file.name), "") and file.name in files:
            out.append(f"{file.path}: an included file, not shown line by line")
    return "\n".join(printable(line, limit=4000) for line in out)


def _lines_of(text: str) -> list[str]:
    return [line.rstrip("\r") for line in hidden_lines(text).split("\n")]
