"""A run as the document's model: (Run, criteria, waivers, today, what was read beside it) -> Handover. Pure."""

from __future__ import annotations

import datetime
import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin import coverage
from hpcadmin.conf.passwords import HIDDEN, hidden_lines
from hpcadmin.handover import again, hardware, results
from hpcadmin.handover.assess import Statement, Word, assess
from hpcadmin.handover.criteria import Terms
from hpcadmin.handover.evidence import Outputs, wanted
from hpcadmin.handover.model import (
    Block,
    Column,
    Evidence,
    Findings,
    FindingView,
    Handover,
    Link,
    Paragraph,
    Section,
    SignOff,
    Table,
)
from hpcadmin.handover.shown import Judged, Outcome, run_coverage
from hpcadmin.handover.texts import Msg, data, msg, told
from hpcadmin.hosts import fold
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.report.times import duration, local_time
from hpcadmin.rundata import Covered, Finding, Run

_MOST_SHORTFALLS = 10        # of one criterion; the section of its check has more
_MOST_FINDINGS = 200
_MOST_NAMES = 40             # of one reason, in the table of what was not tested
_SECRET = re.compile(r"(?i)(pass[a-z]*\s*=\s*)\S.*")
RAW = "raw"                  # folder beside the document


@dataclass(frozen=True)
class ConfFile:
    """A configuration file: as it was rendered, and how the live one differs. diff None: nobody looked."""

    name: str
    sha256: str
    size: int
    live: str = ""                     # SHA-256 of the live file; "": there is none, or nobody looked
    diff: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Beside:
    """What stands in the document and not in the run's records. digest: of the run folder's manifest of hashes.

    copied: raw outputs that lie beside the document, by their path in the run folder."""

    outputs: Outputs = field(default_factory=Outputs)
    copied: frozenset[str] = frozenset()
    conf: tuple[ConfFile, ...] = ()
    digest: str = ""
    signature: str = ""                # "signed by NAME with KEY"; "": it is not signed, or nobody could check
    problems: tuple[str, ...] = ()     # of the folders: damaged files, as runs verify sees them
    signed: Mapping[str, str] = field(default_factory=dict)    # re-test -> as signature


NOTHING = Beside()


def build(run: Run, terms: Terms, today: datetime.date, beside: Beside = NOTHING) -> Handover:
    run = replace(run, problems=(*run.problems, *beside.problems))
    summary = summarise(run)
    statement = assess(run, summary, terms, today)
    m = run.manifest
    return Handover(
        run_id=m.run_id, cluster=m.cluster, suite=m.suite, made=today.isoformat(), version=m.version,
        contract=terms.contract, simulated=summary.simulated, statement=statement, facts=_facts(run),
        problems=summary.problems, notes=tuple(n for n in summary.notes if not n.startswith("simulated hardware:")),
        sections=tuple(_trimmed(s) for s in _sections(run, summary, statement, beside)),
        sign_off=_sign_off(run, statement, beside), files=dict(terms.files))


def _sections(run: Run, summary: Summary, statement: Statement, beside: Beside) -> Iterable[Section]:
    yield _criteria(statement)
    if run.inventory is not None:
        yield hardware.groups(run.inventory)
    yield _coverage(run)
    yield _findings(run, summary, statement, beside)
    if run.acceptance is not None:
        yield again.section(run.acceptance, beside.copied, RAW)
    checks = results.sections(run, summary)
    yield Section("results", msg("section_results"), (_checks(summary),))
    yield from checks
    if run.inventory is not None:
        yield hardware.odd(run.inventory)
    yield _waivers(statement)
    yield _configuration(run, beside)
    yield _software(run)
    yield _raw(beside)
    if run.inventory is not None:
        yield hardware.full(run.inventory)


def _trimmed(section: Section) -> Section:
    return replace(section, blocks=tuple(b.trimmed() if isinstance(b, Table) else b for b in section.blocks))


def _facts(run: Run) -> tuple[tuple[Msg, str], ...]:
    m = run.manifest
    took = duration(m.started, m.ended)
    times = f"{local_time(m.started)} - {local_time(m.ended)}" if m.ended else local_time(m.started)
    skipped = run.plan.skipped if run.plan else ()
    rows = [("fact_cluster", m.cluster), ("fact_run", m.run_id), ("fact_suite", m.suite),
            ("fact_time", f"{times} ({took})" if took else times),
            ("fact_nodes", f"{len(m.nodes):,}: {fold(m.nodes)}"),
            ("fact_skipped", ", ".join(s.node for s in skipped[:_MOST_NAMES])),
            ("fact_by", f"{m.user} @ {m.host}" if m.user and m.host else m.user or m.host),
            ("fact_command", " ".join(m.command)), ("fact_retest", m.retest_of),
            ("fact_retests", ", ".join(p.run for p in run.acceptance.parts[1:]) if run.acceptance else ""),
            ("fact_versions", f"hpcadmin {m.version or '?'}, Slurm {m.slurm_version or '?'}")]
    return tuple((msg(key), text) for key, text in rows if text)


# --- criteria and waivers ------------------------------------------------------------------------------------------

def _criteria(statement: Statement) -> Section:
    columns = (Column(msg("col_number"), "name"), Column(msg("col_result")), Column(msg("col_criterion")),
               Column(msg("col_demand")), Column(msg("col_good"), "number"), Column(msg("col_total"), "number"),
               Column(msg("col_remark")))
    rows = tuple((c.number, c.outcome, c.text, c.demand, c.good, c.total, _remark(c)) for c in statement.criteria)
    blocks: list[Block] = []
    if not statement.contract:
        blocks.append(Paragraph(msg("no_contract"), "note"))
    blocks.append(Table("criteria", msg("table_criteria"), columns, rows, note=msg("criteria_note")))
    short = [(c, s) for c in statement.criteria if c.outcome is not Outcome.MET
             for s in sorted(c.shortfalls, key=lambda s: (bool(s.waiver), s.missing, s.what))[:_MOST_SHORTFALLS]]
    if short:
        total = sum(len(c.shortfalls) for c in statement.criteria if c.outcome is not Outcome.MET)
        blocks.append(Table("shortfalls", msg("table_shortfalls"), (
            Column(msg("col_number"), "name"), Column(msg("col_where"), "name"), Column(msg("col_why")),
            Column(msg("col_kind"), "name"), Column(msg("col_waiver"))),
            tuple((c.number, s.what if s.nodes else told(s.what), told(s.text),
                   msg("short_missing" if s.missing else "short_bad"), s.waiver)
                  for c, s in short), total=total))
    return Section("criteria", msg("section_criteria"), tuple(blocks))


def _remark(c: Judged) -> Msg:
    if c.waivers:
        return msg("remark_waived", names=", ".join(c.waivers), count=sum(not s.waiver for s in c.shortfalls))
    if c.outcome is not Outcome.MET and c.shortfalls:
        first = c.shortfalls[0]
        more = len(c.shortfalls) - 1
        text = told(f"{first.what}: {first.text}")
        return msg("remark_more", text=text, count=more) if more else text
    return c.evidence if c.general else data("")


def _waivers(statement: Statement) -> Section:
    blocks: tuple[Block, ...] = (Paragraph(msg("no_waivers")),)
    if statement.waivers:
        columns = tuple(Column(msg(key), "name" if key in ("col_granted", "col_until") else "text") for key in (
            "col_waiver", "col_about", "col_reason", "col_by", "col_granted", "col_until", "col_state"))
        blocks = (Table("waivers", msg("table_waivers"), columns, tuple(
            (r.waiver.name, _about(r.waiver.criterion, r.waiver.check, fold(r.waiver.nodes), r.waiver.device),
             r.waiver.reason, r.waiver.who, r.waiver.granted.isoformat() if r.waiver.granted else "",
             r.waiver.until.isoformat(), msg(f"waiver_{r.state}", count=r.covers, days=abs(r.days_left)))
            for r in statement.waivers), note=msg("waivers_note")),)
    return Section("waivers", msg("section_waivers"), blocks)


def _about(criterion: str, *more: str) -> str:
    return ", ".join(filter(None, [f"№ {criterion}" if criterion else "", *more]))


# --- coverage, findings, checks ------------------------------------------------------------------------------------

def _coverage(run: Run) -> Section:
    found = run_coverage(run)
    columns = (Column(msg("col_what")), *(Column(msg(key), "number") for key in (
        "col_expected", "col_tested", "col_failed", "col_not_tested")), Column(msg("col_percent"), "percent"),
        Column(msg("col_remark")))
    rows = tuple((_kind(c), c.expected, c.tested, len(c.failed),
                  c.expected - c.tested, _percent(c.tested, c.expected), told(c.note)) for c in found)
    blocks: list[Block] = [Table("coverage", msg("table_coverage"), columns, rows, note=msg("coverage_note"))]
    missing = tuple((_kind(c), len(gone.what), told(gone.reason), _names(gone.what))
                    for c in found for gone in c.not_tested)
    failed = tuple((_kind(c), len(c.failed), _names(c.failed)) for c in found if c.failed)
    if missing:
        blocks.append(Table("not-tested", msg("table_not_tested"), (
            Column(msg("col_what")), Column(msg("col_count"), "number"), Column(msg("col_why")),
            Column(msg("col_names"))), missing))
    if failed:
        blocks.append(Table("failed", msg("table_failed"), (
            Column(msg("col_what")), Column(msg("col_count"), "number"), Column(msg("col_names"))), failed))
    if not found:
        blocks = [Paragraph(msg("coverage_unknown"), "problem")]
    return Section("coverage", msg("section_coverage"), tuple(blocks))


def _kind(c: Covered) -> Msg:
    return msg({coverage.NODES: "kind_nodes", coverage.GPUS: "kind_gpus", coverage.PORTS: "kind_hca",
                coverage.PATHS: "kind_leaf"}.get(c.kind, ""), text=c.kind)


def _percent(part: int, whole: int) -> float | None:
    """Rounded down, so that 100 % means all."""
    return int(1000 * part / whole) / 10 if whole else None


def _names(names: Sequence[str]) -> str:
    if all(" " not in n for n in names):
        return fold(names)
    more = f" … (+{len(names) - _MOST_NAMES})" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _findings(run: Run, summary: Summary, statement: Statement, beside: Beside) -> Section:
    refs = wanted(run)
    place = {id(f): i for i, f in enumerate(run.findings)}
    waived: dict[str, list[str]] = {}
    for c in statement.criteria:
        for s in c.shortfalls:
            for node in s.nodes if s.waiver and len(s.nodes) == 1 else ():
                waived.setdefault(node, []).append(s.waiver)
    views = []
    for number, f in enumerate(summary.findings[:_MOST_FINDINGS], 1):
        evidence = tuple(_evidence(ref, beside) for ref in refs[place[id(f)]])
        names = tuple(dict.fromkeys(w for n in f.nodes for w in waived.get(n, ()))) if len(f.nodes) == 1 else ()
        views.append(FindingView(number, f.status, told(f.text), fold(f.nodes), f.device,
                                 hardware.serials(run.inventory, f.nodes, f.device), f.checks, action(f), evidence,
                                 names))
    if not views:
        key = "no_findings" if summary.status == 0 else "no_findings_bad"
        return Section("findings", msg("section_findings"), (Paragraph(msg(key)),))
    return Section("findings", msg("section_findings"), (Findings(tuple(views), len(summary.findings)),))


def _evidence(ref: str, beside: Beside) -> Evidence:
    path = ref.partition("#")[0]
    raw = beside.outputs.files.get(path)
    excerpt = beside.outputs.excerpts.get(ref)
    link = Link(ref, f"{RAW}/{path}" if path in beside.copied else "")
    return Evidence(ref, link, raw.sha256 if raw else "", excerpt.text if excerpt else "",
                    excerpt.status if excerpt else "", raw.problem if raw else "was not read")


_ACTIONS = (                # words of a check's name -> what to do; the first that fits
    ("availability", "action_lost"),
    ("gpu", "action_gpu"), ("nvidia", "action_gpu"), ("dcgm", "action_gpu"), ("rocm", "action_gpu"),
    ("ib_", "action_link"), ("ibdiag", "action_link"), ("link", "action_link"), ("roce", "action_link"),
    ("ethernet", "action_link"), ("rdma", "action_link"), ("nccl", "action_nccl"),
    ("pingpong", "action_pair"), ("osu", "action_pair"), ("slurm", "action_slurm"), ("memory", "action_memory"))


def action(finding: Finding) -> Msg:
    """What is usually done first."""
    nodes = fold(finding.nodes)
    if len(finding.nodes) > 2:
        return msg("action_common", nodes=nodes)
    name = " ".join(finding.checks)
    found = next((key for word, key in _ACTIONS if word in name), "action_other")
    return msg(found, nodes=nodes or "?", device=f"{nodes} {finding.device}".strip() or "?")


def _checks(summary: Summary) -> Table:
    anchors = results.anchors(summary)
    columns = (Column(msg("col_result")), Column(msg("col_check"), "name"), Column(msg("col_title")),
               Column(msg("col_passed"), "number"), Column(msg("col_total"), "number"), Column(msg("col_remark")))
    return Table("checks", msg("table_checks"), columns, tuple(
        (r.status, Link(r.check, f"#{anchors[r.check]}") if r.check in anchors else r.check, told(r.title), r.passed,
         r.tests, told(r.reason)) for r in summary.checks))


# --- what it was measured with -------------------------------------------------------------------------------------

def _configuration(run: Run, beside: Beside) -> Section:
    blocks: list[Block] = []
    if beside.conf:
        columns = (Column(msg("col_file"), "code"), Column(msg("col_bytes"), "number"),
                   Column(msg("col_sha256"), "code"), Column(msg("col_live")))
        blocks.append(Table("configuration", msg("table_configuration"), columns, tuple(
            (c.name, c.size, c.sha256, _live(c)) for c in beside.conf)))
        for c in beside.conf:
            if c.diff:
                blocks.append(Paragraph(msg("diff_of", name=c.name)))
                blocks.append(Paragraph(data("\n".join(c.diff)), "code"))
    sources: dict[tuple[str, str, str], list[str]] = {}
    for node in run.inventory.nodes if run.inventory else ():
        for s in node.sources:
            if s.sha256 and any("slurm" in k or "conf" in k or "gres" in k for k in s.kinds):
                sources.setdefault((", ".join(s.kinds), s.path.rsplit("/", 1)[-1], s.sha256), []).append(node.name)
    if sources:
        blocks.append(Table("configuration-seen", msg("table_configuration_seen"), (
            Column(msg("col_kind")), Column(msg("col_file"), "code"), Column(msg("col_sha256"), "code"),
            Column(msg("col_nodes"))), tuple((*key, fold(nodes)) for key, nodes in sources.items())))
    if not blocks:
        blocks.append(Paragraph(msg("no_configuration"), "note"))
    return Section("configuration", msg("section_configuration"), tuple(blocks))


def _live(c: ConfFile) -> Msg:
    if c.diff is None:
        return msg("live_unknown")
    if not c.live:
        return msg("live_missing")
    return msg("live_differs", count=sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in c.diff)
               ) if c.diff else msg("live_same")


def _software(run: Run) -> Section:
    plan = run.plan
    tools = tuple((t.tool, t.version or told(t.problem), fold(t.nodes), t.path, t.way)
                  for t in (plan.tools if plan else ()))
    versions: dict[tuple[str, str], list[str]] = {}
    for node in run.inventory.nodes if run.inventory else ():
        known = {"os": node.os, "kernel": node.kernel, "GPU driver": node.gpu_driver, "BIOS": node.bios,
                 "Slurm": node.slurm_version, **node.versions}
        for name, version in known.items():
            if version:
                versions.setdefault((name, version), []).append(node.name)
    blocks: list[Block] = []
    if tools:
        blocks.append(Table("tools", msg("table_tools"), (
            Column(msg("col_tool")), Column(msg("col_version")), Column(msg("col_nodes")),
            Column(msg("col_path"), "code"), Column(msg("col_way"))), tools))
    if versions:
        blocks.append(Table("versions", msg("table_versions"), (
            Column(msg("col_software")), Column(msg("col_version")), Column(msg("col_count"), "number"),
            Column(msg("col_nodes"))), tuple(
                (name, version, len(nodes), fold(nodes)) for (name, version), nodes in sorted(versions.items()))))
    if plan:
        blocks.append(Table("jobs", msg("table_jobs"), (
            Column(msg("col_job"), "number"), Column(msg("col_kind")), Column(msg("col_nodes")),
            Column(msg("col_tests"), "number")), tuple(
                (j.number, j.kind, fold(j.nodes), sum(len(s.tests) for s in j.stages)) for j in plan.jobs)))
    return Section("software", msg("section_software"), tuple(blocks) or (Paragraph(msg("no_software"), "note"),))


def _raw(beside: Beside) -> Section:
    columns = (Column(msg("col_file"), "code"), Column(msg("col_bytes"), "number"), Column(msg("col_sha256"), "code"),
               Column(msg("col_remark")))
    files = beside.outputs.files.values()
    rows = tuple((Link(f.path, f"{RAW}/{f.path}" if f.path in beside.copied else ""), f.size or None, f.sha256,
                  told(f.problem)) for f in files)
    block = Table("raw", msg("table_raw"), columns, rows) if rows else Paragraph(msg("no_raw"))
    return Section("raw", msg("section_raw"), (block,))


def _sign_off(run: Run, statement: Statement, beside: Beside) -> SignOff:
    conditions: list[Msg] = [data(f"{r.waiver.name}: {r.waiver.reason} ({r.waiver.until.isoformat()})")
                             for r in statement.waivers if r.state == "used"]
    conditions = conditions if statement.word is Word.WITH_WAIVERS else []
    retests = tuple((p.run, p.seal, beside.signed.get(p.run, "")) for p in (
        run.acceptance.parts[1:] if run.acceptance else ()))
    return SignOff(beside.digest, beside.signature, (msg("party_vendor"), msg("party_customer")), tuple(conditions),
                   retests)


def _lines_of(raw: bytes) -> list[str]:
    """Without passwords: of slurmdbd.conf's StoragePass, in URLs, in the line behind a backslash."""
    text = hidden_lines(raw.decode("utf-8", "replace"))
    return [_SECRET.sub(rf"\1{HIDDEN}", line) for line in text.splitlines()]


def conf_changes(found: Mapping[str, tuple[bytes, bytes | None]]) -> tuple[ConfFile, ...]:
    """name -> (as it was rendered, the live file; None: there is none) as rows, with a diff from rendered to live."""
    made = []
    for name, (text, live) in sorted(found.items()):
        before, now = (_lines_of(raw) for raw in (text, live or b""))
        diff = list(difflib.unified_diff(before, now, f"rendered/{name}", f"live/{name}", lineterm="", n=1)
                    if live is not None else ())
        made.append(ConfFile(name, hashlib.sha256(text).hexdigest(), len(text),
                             hashlib.sha256(live).hexdigest() if live is not None else "", tuple(diff[:400])))
    return tuple(made)
