"""What a vendor is sent about one faulty node: its findings, verdicts, values, serials and facts, and nothing of other
nodes but what these need. Pure; vendor_files reads the outputs, vendor_pack makes one file of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcadmin.check import Status, Subject, Verdict
from hpcadmin.model import Node
from hpcadmin.records import to_plain
from hpcadmin.report.csv import cell
from hpcadmin.report.frame import COLUMNS, rows
from hpcadmin.report.summary import complete_verdicts, shown, verdict_text
from hpcadmin.report.times import local_time
from hpcadmin.rundata import Finding, PlannedTest, Run
from hpcadmin.text import plural, printable

_SYMPTOMS = (Status.FAIL, Status.ERROR, Status.WARN)
SERIALS = ("part", "place", "model", "serial", "uuid_or_guid", "part_number", "firmware")


@dataclass(frozen=True)
class Case:
    """What speaks against one node. tests: those whose outputs show it, repetitions too."""

    run: Run
    node: str
    facts: Node | None
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    tests: Mapping[str, PlannedTest]


def faulty_nodes(run: Run) -> list[str]:
    """Those that a finding names, alone or as one of a pair; of a larger set any may be the one."""
    return sorted({node for f in run.findings if len(f.nodes) <= 2 for node in f.nodes})


def case_of(run: Run, node: str) -> Case:
    findings = tuple(f for f in run.findings if node in f.nodes)
    own = {test for f in findings for test in f.tests}
    others = {test for f in run.findings if node not in f.nodes for test in f.tests} - own
    verdicts = tuple(v for v in complete_verdicts(run)
                     if node in v.subject.nodes and v.status in _SYMPTOMS and v.test not in others)
    wanted = own | {v.test for v in verdicts if v.test}
    tests = {t.id: t for t in (run.plan.tests if run.plan else ())
             if node in t.subject.nodes and (t.id in wanted or t.repeats in wanted)}
    facts = next((n for n in (run.inventory.nodes if run.inventory else ()) if n.name == node), None)
    return Case(run, node, facts, findings, verdicts, tests)


def texts_of(case: Case, *, anonymous: bool) -> dict[str, str]:
    """File name -> text, but for README.txt, which tells of all files."""
    made = {
        "findings.json": _json([{**to_plain(replace(f, nodes=(case.node,))), "other_nodes": len(f.nodes) - 1}
                                for f in case.findings]),
        "verdicts.json": _json([_verdict(case.node, v) for v in case.verdicts]),
        "measurements.csv": _measurements(case),
        "serials.csv": _csv(SERIALS, serials(case.facts) if case.facts else ()),
    }
    if case.facts is not None:
        # Paths of our captures, and mounts of the site, are nothing to a vendor.
        made["facts.json"] = _json(to_plain(replace(case.facts, sources=(), mounts=() if anonymous else
                                                    case.facts.mounts)))
    return made


def readme(case: Case, files: Sequence[str], left: Sequence[str], *, anonymous: bool) -> str:
    m, node = case.run.manifest, case.facts
    lines = [f"Faulty node {case.node}", "", f"Run:      {m.run_id}, suite {m.suite}",
             f"Started:  {local_time(m.started)}", *([f"Ended:    {local_time(m.ended)}"] if m.ended else []),
             f"Made by:  hpcadmin {m.version}, Slurm {m.slurm_version or 'unknown'}",
             *([] if anonymous or not m.cluster else [f"Cluster:  {m.cluster}"])]
    if m.simulated:
        lines += [f"SIMULATED HARDWARE: {m.simulated}. Nothing of this is of a real device."]
    if anonymous:
        lines += ["", "Names of machines, people and networks are replaced, each by the same replacement everywhere."]
    lines += ["", "What is wrong", "", *_wrong(case), "", "The node", "", *_node(node), "", "Files", "",
              *(f"  {name}" for name in sorted(["SHA256SUMS", "README.txt", *files])), "",
              "Outputs are as the tools printed them, below one line that says which test, step, node, exit status and "
              "times they are of. Times have their zone; start= and end= are seconds since 1970.",
              "CSV: a text that could be a formula has an apostrophe in front."]
    if left:
        lines += ["", "Left out", "", *(f"  {text}" for text in left)]
    return "\n".join(printable(line, limit=4000) for line in lines) + "\n"


def _wrong(case: Case) -> Iterator[str]:
    if not case.findings:
        yield "  No finding of this run names this node."
    for f in case.findings:
        yield f"  {f.status.value}: {f.text}"
    told = 0
    for v in case.verdicts[:40]:
        value = f" ({shown(v.measurement)})" if v.measurement and shown(v.measurement) not in verdict_text(v) else ""
        yield f"  {v.status.value}: {v.check}: {_where(case.node, v.subject)}: {verdict_text(v)}{value}"
        told += 1
    if len(case.verdicts) > told:
        yield f"  … and {plural(len(case.verdicts) - told, 'more verdict')} in verdicts.json"


def _node(node: Node | None) -> Iterator[str]:
    if node is None:
        yield "  The run has no inventory of this node."
        return
    for name, text in (("vendor", node.vendor), ("product", node.product), ("serial", node.serial), ("BIOS", node.bios),
                       ("operating system", node.os), ("kernel", node.kernel), ("GPU driver", node.gpu_driver)):
        yield f"  {name:17} {text or 'unknown'}"
    for model, count in _counted(gpu.model for gpu in node.gpus):
        yield f"  {'GPUs':17} {count} x {model or 'unknown model'}"
    yield from (f"  {'problem':17} {text}" for text in node.problems[:50])


def _counted(values: Iterable[str]) -> Iterable[tuple[str, int]]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts.items()


def serials(node: Node) -> Iterator[tuple[object, ...]]:
    yield "system", "", f"{node.vendor} {node.product}".strip(), node.serial, node.uuid, "", node.bios
    for part, serial in (("board", node.board_serial), ("chassis", node.chassis_serial)):
        if serial:
            yield part, "", "", serial, "", "", ""
    if node.bmc.firmware or node.bmc.manufacturer:
        yield "BMC", "", node.bmc.manufacturer, "", "", "", node.bmc.firmware
    for g in node.gpus:
        place = f"{'' if g.index is None else g.index} {g.pci}".strip()
        yield "GPU", place, g.model, g.serial, g.uuid, g.part_number, g.vbios
    for n in node.nics:
        if not n.virtual and not n.pf:
            firmware = f"{n.firmware} {n.psid}".strip()
            yield "NIC", f"{n.name} {n.pci}".strip(), n.model, n.serial, n.guid or n.port_guid, "", firmware
    for d in node.dimms:
        if d.serial or d.part:
            yield "DIMM", d.slot, f"{d.manufacturer} {d.kind} {d.size_mib or ''}".strip(), d.serial, "", d.part, ""
    for disk in node.disks:
        yield "disk", f"{disk.name} {disk.pci}".strip(), disk.model, disk.serial, "", "", disk.firmware


def _where(node: str, subject: Subject) -> str:
    """A pair by its names; of a larger set the node, and how many others."""
    if len(subject.nodes) <= 2:
        return str(subject)
    return f"{node} and {len(subject.nodes) - 1} other nodes {subject.device}".strip()


def _verdict(node: str, v: Verdict) -> dict[str, object]:
    found: dict[str, object] = {
        "check": v.check, "test": v.test, "where": _where(node, v.subject), "status": v.status.value,
        "reason": v.reason, "judged_by": v.basis, "attempt": v.attempt}
    if v.measurement is not None:
        found["measurement"] = {name: value for name, value in to_plain(v.measurement).items() if name != "subject"}
    if v.limit is not None:
        found["limit"] = to_plain(v.limit)
    return found


def _measurements(case: Case) -> str:
    """Those of the tests that show the fault, in the form of `report --format csv`."""
    run = case.run
    plan = replace(run.plan, tests=tuple(case.tests.values()), entries=(), verdicts=(), skipped=(),
                   nodes=(case.node,)) if run.plan else None
    narrow = replace(run, plan=plan, measured=tuple(m for m in run.measured if m.test in case.tests),
                     verdicts=case.verdicts, manifest=replace(run.manifest, nodes=(case.node,)))
    made = []
    for row in rows(narrow):
        names = str(row["nodes"]).split()
        if len(names) > 2:
            row["nodes"] = f"{case.node} and {len(names) - 1} others"
        if row["kind"] == "measurement" or row.get("value") is not None:
            made.append([row.get(name) for name in COLUMNS])
    return _csv(COLUMNS, made)


def _csv(head: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([cell(value) for value in line] for line in lines)
    return stream.getvalue()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
