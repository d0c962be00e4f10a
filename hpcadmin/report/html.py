"""The page: self-contained, without scripts, every node and pair, limits with their source, links to raw outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from hpcadmin.check import Limit, Scope, Status, Verdict
from hpcadmin.hosts import fold
from hpcadmin.judge import BY_LIMIT
from hpcadmin.model import Group
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.matrix import MOST_NODES, SHADES, Matrix, matrices
from hpcadmin.report.summary import CheckRow, Summary, measurement_name, shown, summarise
from hpcadmin.report.times import duration, local_time
from hpcadmin.resources import data_dir
from hpcadmin.rundata import Run
from hpcadmin.text import number, printable

_MOST_CHARACTERS = 1000     # of one text on the page; the raw output is linked
_OPEN_ROWS = 40             # tables of more rows start folded


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    import jinja2  # noqa: PLC0415  (0.17 s that only pages pay)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("conf_templates")), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_clean)
    environment.filters["status_class"] = status_class
    return environment.get_template("report.html.j2").render(view(run, options))


FORMAT = ReportFormat("html", ".html", render, in_folder=True)


def _clean(value: Any) -> Any:
    """Every text on the page: no control or direction characters, no end of a tag, bounded; jinja2 escapes it after."""
    return printable(value, limit=_MOST_CHARACTERS, newlines=True) if type(value) is str else value


def status_class(status: Status | str) -> str:
    return (status.value if isinstance(status, Status) else status).lower().replace(" ", "-")


@dataclass(frozen=True)
class Row:
    """A verdict on the page."""

    status: Status
    where: str
    name: str
    value: str
    unit: str
    judged: str
    reason: str
    attempt: int
    links: tuple[tuple[str, str], ...]     # text, address; no address when there is no such file


@dataclass(frozen=True)
class Section:
    """A check on the page."""

    row: CheckRow
    anchor: str
    limits: tuple[Limit, ...]
    matrices: tuple[Matrix, ...]
    rows: tuple[Row, ...]
    folded: bool


def view(run: Run, options: Options) -> dict[str, Any]:
    summary = summarise(run)
    links = _Links(run, options.link_base)
    m = run.manifest
    return {
        "summary": summary, "manifest": m, "run": run, "started": local_time(m.started), "ended": local_time(m.ended),
        "took": duration(m.started, m.ended), "hostlist": fold(m.nodes), "command": " ".join(m.command),
        "coverage": _coverage(run, summary), "findings": [(f, _finding_links(f.tests, run, links))
                                                          for f in summary.findings],
        "sections": _sections(run, summary, links), "shades": _legend(), "most_nodes": MOST_NODES,
        "again": _again(run), "files": links.files(), "groups": _groups(run),
    }


def _coverage(run: Run, summary: Summary) -> list[tuple[str, int, str]]:
    """Counts of nodes with their names: asked for, tested, failed, not tested."""
    asked = list(run.manifest.nodes)
    tested = [r.node for r in summary.nodes if r.tests and r.status is not Status.NOT_RUN]
    failed = [r.node for r in summary.nodes if r.status in (Status.FAIL, Status.ERROR)]
    untested = [n for n in asked if n not in set(tested)]
    rows = [("asked for", asked), ("tested", tested), ("failed", failed), ("not tested", untested)]
    return [(label, len(nodes), fold(nodes)) for label, nodes in rows]


def _sections(run: Run, summary: Summary, links: _Links) -> list[Section]:
    by_check: dict[str, list[Verdict]] = {}
    for v in summary.verdicts:
        by_check.setdefault(v.check, []).append(v)
    sections = []
    for number_, row in enumerate(summary.checks, 1):
        found = by_check.get("" if row.check == "(whole node)" else row.check, [])
        if not row.status.counts:
            continue
        ordered = sorted(found, key=lambda v: (-v.status.rank, v.subject.nodes, v.subject.device))
        limits = tuple(dict.fromkeys(v.limit for v in found if v.limit))
        pairs = row.scope is Scope.PAIR or (row.scope is None and any(len(v.subject.nodes) == 2 for v in found))
        sections.append(Section(row, f"check-{number_}", limits, tuple(matrices(found)) if pairs else (),
                                tuple(_row(v, links) for v in ordered), len(ordered) > _OPEN_ROWS))
    return sections


def _row(v: Verdict, links: _Links) -> Row:
    m = v.measurement
    if v.basis in BY_LIMIT and v.limit:
        judged = v.limit.text()
    elif v.basis == "expected" and m is not None:
        judged = f"equal to {number(m.expected)}"
    else:
        judged = {"peers": "the other nodes", "output": "its output", "plan": "not run"}.get(v.basis, v.basis or "-")
    reason = v.reason
    if m is not None and v.basis in BY_LIMIT:    # the value and the limit have columns of their own
        reason = reason.removeprefix(f"{shown(m)}, {judged}").removeprefix("; ")
    elif m is not None:
        reason = reason.removeprefix(f"{shown(m)}: ")
    where = str(v.subject) if len(v.subject.nodes) <= 2 else f"{fold(v.subject.nodes)} {v.subject.device}".strip()
    return Row(v.status, where, measurement_name(m) if m else "", number(m.value) if m else "", m.unit if m else "",
               judged, reason, v.attempt, links.of(v.outputs))


def _legend() -> list[tuple[int, str]]:
    """What the shades mean, for values of which more is better and for times alike."""
    worse = [f"{1 - edge:.0%} worse" for edge in SHADES[:-1]]
    return list(enumerate(["as usual or better", *worse, "half as good or less"]))


def _again(run: Run) -> list[dict[str, str]]:
    """What was measured again: the first value and each later one."""
    if run.plan is None:
        return []
    tests = {t.id: t for t in run.plan.tests}
    values: dict[tuple[str, str, str], list[str]] = {}
    for one in run.measured:
        test = tests.get(one.test)
        if test is not None and one.measurement.key and one.measurement.expected is None:
            first = test.repeats or test.id
            m = one.measurement
            kind = "first" if not test.repeats else "alone" if test.alone else "under load"
            values.setdefault((first, measurement_name(m), m.unit), []).append(f"{kind} {number(m.value)}")
    return [{"where": str(tests[first].subject), "check": tests[first].check, "name": name, "unit": unit,
             "values": ", ".join(made)}
            for (first, name, unit), made in values.items() if first in tests and len(made) > 1]


def _groups(run: Run) -> list[tuple[str, int, str, str]]:
    return [(g.name, len(g.nodes), fold(g.nodes), _hardware(run, g))
            for g in (run.inventory.groups if run.inventory else ())]


def _hardware(run: Run, group: Group) -> str:
    node = run.inventory.node(group.nodes[0]) if run.inventory and group.nodes else None
    if node is None:
        return ""
    models: dict[str, int] = {}
    for gpu in node.gpus:
        models[gpu.model or gpu.vendor] = models.get(gpu.model or gpu.vendor, 0) + 1
    parts = [f"{node.cpu.cpus} CPUs" + (f" ({node.cpu.model})" if node.cpu.model else "") if node.cpu.cpus else "",
             f"{node.memory_mib // 1024} GiB" if node.memory_mib else "",
             *(f"{count} x {model}" for model, count in models.items()), node.os]
    return ", ".join(p for p in parts if p)


def _finding_links(tests: Sequence[str], run: Run, links: _Links) -> tuple[tuple[str, str], ...]:
    wanted = set(tests)
    outputs = [o for v in run.verdicts if v.test in wanted for o in v.outputs]
    return links.of(tuple(dict.fromkeys(outputs))[:4])


class _Links:
    """Addresses of raw outputs, relative to the page; only for files that are really in the run folder."""

    def __init__(self, run: Run, base: str) -> None:
        self._root = run.path
        self._base = f"{quote(base)}/" if base else ""
        self._known: dict[str, str] = {}

    def of(self, outputs: Sequence[str]) -> tuple[tuple[str, str], ...]:
        made = []
        for output in outputs:
            path, _, part = output.partition("#")
            made.append((f"{PurePosixPath(path).name} {part}".strip(), self._address(path)))
        return tuple(made)

    def _address(self, path: str) -> str:
        if path not in self._known:
            parts = PurePosixPath(path).parts
            safe = bool(parts) and not path.startswith("/") and ".." not in parts and path.isprintable()
            file = self._root / path if safe else None
            there = file is not None and not file.is_symlink() and file.is_file()
            self._known[path] = f"{self._base}{quote(str(PurePosixPath(path)))}" if there else ""
        return self._known[path]

    def files(self) -> list[tuple[str, str]]:
        """All files of the run, for the end of the page."""
        try:
            paths = sorted(p.relative_to(self._root).as_posix() for p in self._root.rglob("*")
                           if not p.is_symlink() and p.is_file() and not p.name.startswith("."))
        except OSError:
            paths = []
        return [(p, self._address(p)) for p in paths if p != "report.html"]
