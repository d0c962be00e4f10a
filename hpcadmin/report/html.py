"""The page: self-contained, without scripts, maps of all pairs, limits with their source, links to raw outputs.

Under 10 MB also for 1,000 nodes: of a large run the worst verdicts of each check stand on it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hpcadmin.check import Limit, Status, Verdict
from hpcadmin.hosts import fold
from hpcadmin.inventory import natural
from hpcadmin.judge import BY_LIMIT
from hpcadmin.model import Group
from hpcadmin.report import again as retested
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.summary import CheckRow, Summary, measurement_name, shown, summarise
from hpcadmin.report.times import duration, local_time
from hpcadmin.resources import data_dir
from hpcadmin.rundata import Finding, Run
from hpcadmin.text import number, printable

if TYPE_CHECKING:
    import jinja2

    from hpcadmin.handover.model import HeatMap, Table

_MOST_CHARACTERS = 1000     # of one text on the page; the raw output is linked
_OPEN_ROWS = 40             # tables of more rows start folded
_MOST_ROWS = 15_000         # verdicts on the page; of more, each check gets its share, and the worst are shown
_LEAST_ROWS = 100           # of a check
_MOST_FINDINGS = 200
_MOST_AGAIN = 500
_MOST_FILES = 2000


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    from hpcadmin.handover.texts import Words  # noqa: PLC0415  (only pages pay)
    return _environment().get_template("report.html.j2").render(view(run, options), t=Words("en"))


@functools.cache
def _environment() -> jinja2.Environment:
    """One, which keeps the template that it has compiled."""
    import jinja2  # noqa: PLC0415  (0.17 s that only pages pay)

    from hpcadmin.handover.page import css_text  # noqa: PLC0415
    from hpcadmin.handover.page import shown as in_words  # noqa: PLC0415
    from hpcadmin.handover.texts import Words  # noqa: PLC0415
    words = Words("en")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("conf_templates")), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_clean)
    environment.filters["status_class"] = status_class
    environment.filters["say"] = words.say
    environment.filters["css_text"] = css_text
    environment.filters["cell"] = lambda cell, column: in_words(cell, column, words)
    return environment


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
    maps: tuple[tuple[HeatMap, tuple[Table, ...]], ...]
    rows: tuple[Row, ...]
    total: int
    folded: bool


def view(run: Run, options: Options) -> dict[str, Any]:
    summary = summarise(run)
    links = _Links(run, options.link_base)
    m = run.manifest
    again, files = _again(run), links.files()
    return {
        "summary": summary, "manifest": m, "run": run, "started": local_time(m.started), "ended": local_time(m.ended),
        "took": duration(m.started, m.ended), "hostlist": fold(m.nodes), "command": " ".join(m.command),
        "coverage": _coverage(run), "findings": _findings(run, summary, links), "findings_total": len(summary.findings),
        "sections": _sections(run, summary, links), "again": again[:_MOST_AGAIN], "again_total": len(again),
        "acceptance": _acceptance(run),
        "files": files[:_MOST_FILES], "files_total": len(files), "groups": _groups(run),
        "nodes": sorted(summary.nodes, key=lambda r: (-r.status.rank, natural(r.node))),
    }


def _coverage(run: Run) -> list[tuple[str, int, int, str, str]]:
    """Of nodes, GPUs, ports and paths: kind, expected, tested, which failed, which were not tested and why. As the
    handover document has it."""
    from hpcadmin.handover.shown import run_coverage  # noqa: PLC0415  (only pages pay)
    return [(c.kind, c.expected, c.tested, f"{len(c.failed)}: {_names(c.failed)}" if c.failed else "0",
             "; ".join(filter(None, [c.note, *(f"{len(gone.what)}: {_names(gone.what)} ({gone.reason})"
                                               for gone in c.not_tested)])) or "0") for c in run_coverage(run)]


def _names(names: Sequence[str]) -> str:
    if all(" " not in n for n in names):
        return fold(names)
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


def _findings(run: Run, summary: Summary, links: _Links) -> list[tuple[Finding, tuple[tuple[str, str], ...]]]:
    return [(f, _finding_links(f.tests, run, links)) for f in summary.findings[:_MOST_FINDINGS]]


def _acceptance(run: Run) -> dict[str, Any] | None:
    if run.acceptance is None:
        return None
    rows = retested.again_rows(run.acceptance)
    return {"runs": retested.runs_of(run.acceptance), "swaps": retested.swap_lines(run.acceptance),
            "counted": retested.counted(run.acceptance), "rows": rows[:_MOST_AGAIN],
            "more": max(0, len(rows) - _MOST_AGAIN)}


def _sections(run: Run, summary: Summary, links: _Links) -> list[Section]:
    by_check: dict[str, list[Verdict]] = {}
    for v in summary.verdicts:
        by_check.setdefault(v.check, []).append(v)
    from hpcadmin.handover.results import pair_maps, values_of  # noqa: PLC0415  (only pages pay)
    rows = [r for r in summary.checks if r.status.counts]
    most = max(_LEAST_ROWS, _MOST_ROWS // max(1, len(rows))) if len(summary.verdicts) > _MOST_ROWS else _MOST_ROWS
    sections = []
    for number_, row in enumerate(rows, 1):
        found, name = by_check.get("" if row.check == "(whole node)" else row.check, []), f"check-{number_}"
        limits = tuple(dict.fromkeys(v.limit for v in found if v.limit))
        groups = values_of(found)
        place = {id(v): n for g in groups for n, v in enumerate(g.found)} if len(found) > most else {}
        ordered = sorted(found, key=lambda v: (-v.status.rank, place.get(id(v), 0), v.subject.nodes, v.subject.device))
        maps = tuple(pair_maps(name, row, found, groups, run.plan.leaves if run.plan else {}))
        sections.append(Section(row, name, limits, maps, tuple(_row(v, links) for v in ordered[:most]), len(ordered),
                                len(ordered) > _OPEN_ROWS))
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
        self._run = run
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
            file = self._run.file(path) if safe else None
            there = file is not None and not file.is_symlink() and file.is_file()
            beside = os.path.relpath(file, self._root) if file is not None and there else ""
            self._known[path] = f"{self._base}{quote(beside)}" if beside else ""
        return self._known[path]

    def files(self) -> list[tuple[str, str]]:
        """All files of the run, for the end of the page."""
        try:
            paths = sorted(p.relative_to(self._root).as_posix() for p in self._root.rglob("*")
                           if not p.is_symlink() and p.is_file() and not p.name.startswith("."))
        except OSError:
            paths = []
        return [(p, self._address(p)) for p in paths if p != "report.html"]
