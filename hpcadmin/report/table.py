"""The result of a run as a table for the terminal: causes first, then checks, failures and nodes, worst first."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from hpcadmin.check import Status
from hpcadmin.coverage import coverage_lines
from hpcadmin.report import again
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.folding import folded_rows, measured_text, node_groups, short_list
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.report.times import duration, local_time
from hpcadmin.rundata import Run
from hpcadmin.text import plural, printable

_MOST_ROWS = 20
_MOST_FINDINGS = 20
_MOST_PROBLEMS = 5
_LONGEST, _LONGEST_EVERYTHING = 400, 20_000      # characters of one text
_MIN_WIDTH = 60
_PAD = "\ue000"       # private use: printable() leaves none in a text
_COLOURS = {Status.FAIL: "31;1", Status.ERROR: "35;1", Status.NOT_RUN: "33", Status.UNJUDGED: "33", Status.WARN: "33",
            Status.PASS: "32"}


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008  (frozen)
    page = _Page(run, summarise(run), options)
    sections = [page.head(), page.findings(), page.again(), page.checks(), page.failures(), page.nodes(),
                page.coverage(), page.foot()]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


FORMAT = ReportFormat("table", ".txt", render, values=False)


class _Page:
    def __init__(self, run: Run, summary: Summary, options: Options) -> None:
        self.run = run
        self.summary = summary
        self.options = options
        self.width = max(_MIN_WIDTH, options.width)
        self.longest = _LONGEST_EVERYTHING if options.everything else _LONGEST

    def paint(self, text: str, status: Status) -> str:
        code = _COLOURS.get(status) if self.options.colour else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def wrapped(self, text: str, indent: str = "") -> list[str]:
        import textwrap  # noqa: PLC0415
        clean = _stretched(printable(text, limit=max(600, self.longest)))
        room = self.width - len(indent or "  ")
        clean = " ".join(word if len(word) <= room else word.replace(",", ", ") for word in clean.split(" "))
        lines = textwrap.wrap(clean, self.width - (_PAD in clean), subsequent_indent=indent or "  ",
                              break_on_hyphens=False)
        return [line.replace(_PAD, "") for line in lines] or [""]

    def grid(self, rows: Sequence[Sequence[str]], headers: Sequence[str], paint: int | None = None,
             statuses: Sequence[Status] = ()) -> list[str]:
        """Rows as columns that fit the width: the last one is wrapped, the others too where they are very long."""
        import tabulate  # noqa: PLC0415
        tabulate.WIDE_CHARS_MODE = False             # our padding does what it would
        clean = [[_stretched(printable(cell, limit=self.longest)) for cell in row] for row in rows]
        most = max(12, (self.width - 30) // 2)
        # tabulate gives a column two characters more than its head.
        natural = [max(len(head) + 2, *(min(most, len(row[i])) if i != paint else len(row[i]) for row in clean))
                   for i, head in enumerate(headers[:-1])]
        torn = sum(any(_PAD in cell for cell in column) for column in zip(*clean, strict=True))
        last = max(12, self.width - sum(natural) - 2 * (len(headers) - 1) - torn)
        widths = [*natural, last]
        clean = [[_at_commas(c, widths[i]) if i != paint else c for i, c in enumerate(row)] for row in clean]
        if paint is not None:
            clean = [[self.paint(c, s) if i == paint else c for i, c in enumerate(row)]
                     for row, s in zip(clean, statuses, strict=True)]
        table = tabulate.tabulate(clean, headers=list(headers), tablefmt="simple", disable_numparse=True,
                         maxcolwidths=[None if i == paint else n for i, n in enumerate(natural)] + [last])
        return [line.replace(_PAD, "").rstrip() for line in table.splitlines()]

    def head(self) -> list[str]:
        m = self.run.manifest
        who = " on ".join(part for part in (m.user, m.host) if part)
        versions = ", ".join(p for p in (f"hpcadmin {m.version}" if m.version else "",
                                         f"Slurm {m.slurm_version}" if m.slurm_version else "") if p)
        took = duration(m.started, m.ended)
        when = local_time(m.started) + (f", took {took}" if took else "")
        nodes = short_list(m.nodes, everything=self.options.everything)
        nodes = nodes if nodes.endswith(" nodes)") else f"{plural(len(m.nodes), 'node')} {nodes}"
        lines = self.wrapped(" · ".join(p for p in (f"Run {m.run_id}", f"suite {m.suite}",
                                                    f"cluster {m.cluster}" if m.cluster else "",
                                                    nodes) if p))
        lines += self.wrapped(" · ".join(p for p in (when, who, versions) if p))
        for note in self.summary.notes:
            lines += self.wrapped(f"Note: {note}")
        problems = self.summary.problems if self.options.everything else self.summary.problems[:_MOST_PROBLEMS]
        for problem in problems:
            lines += [self.paint(line, Status.ERROR) for line in self.wrapped(f"Problem: {problem}")]
        more = len(self.summary.problems) - len(problems)
        if more:
            lines.append(f"… and {plural(more, 'more problem')}, --all shows them")
        return lines

    def findings(self) -> list[str]:
        found = self.summary.findings
        shown = found if self.options.everything else found[:_MOST_FINDINGS]
        lines = ["Findings"] if found else []
        for f in shown:
            text = self.wrapped(f"{f.status.value:5} {f.text}", indent=" " * 6)
            lines += [self.paint(f.status.value, f.status) + text[0][len(f.status.value):], *text[1:]]
        return lines + _more(len(found) - len(shown))

    def again(self) -> list[str]:
        """Of an acceptance: its runs, what was replaced between them, and each test's results before and now."""
        acceptance = self.run.acceptance
        if acceptance is None:
            return []
        lines = [again.TITLE]
        for row in again.runs_of(acceptance):
            lines += self.wrapped(f"{row.number}  {row.run} · {row.when} · {row.what}", indent="   ")
        lines += [line for text in again.swap_lines(acceptance) for line in self.wrapped(f"   {text}", indent="   ")]
        rows = again.again_rows(acceptance, everything=self.options.everything)
        shown = rows if self.options.everything else rows[:_MOST_ROWS]
        if shown:
            lines += ["", *self.grid([[r.status.value, r.check, r.where, r.before, r.after] for r in shown],
                                     ["now", "check", "where", "before", "measured again"], 0,
                                     [r.status for r in shown]), *_more(len(rows) - len(shown))]
        return [*lines, "", *self.wrapped(f"{again.counted(acceptance)}; --alone shows one run by itself")]

    def checks(self) -> list[str]:
        rows = self.summary.checks
        if not rows:
            return []
        return ["Checks", *self.grid([[r.status.value, r.check, f"{r.passed} of {r.tests}" if r.tests else "-",
                                      measured_text(r, everything=self.options.everything)] for r in rows],
                                     ["result", "check", "passed", "measured"], 0, [r.status for r in rows])]

    def failures(self) -> list[str]:
        """Every verdict that is not PASS; with `everything`, every verdict."""
        rows = folded_rows(self.summary, everything=self.options.everything)
        shown = rows if self.options.everything else rows[:_MOST_ROWS]
        if not rows:
            return []
        title = "Verdicts" if self.options.everything else "Not passed, or worth a look"
        return [title, *self.grid([[s.value, check, subject, text] for s, check, subject, text in shown],
                                  ["result", "check", "where", "what"], 0, [r[0] for r in shown]),
                *_more(len(rows) - len(shown))]

    def nodes(self) -> list[str]:
        ordered = node_groups(self.summary)
        if not ordered:
            return []
        shown = ordered if self.options.everything else ordered[:_MOST_ROWS]
        everything = self.options.everything
        return ["Nodes", *self.grid([[s.value, short_list((r.node for r in rows), everything=everything), passed, why]
                                     for (s, passed, why), rows in shown],
                                    ["result", "nodes", "passed", "why"], 0, [key[0] for key, _ in shown]),
                *_more(len(ordered) - len(shown))]

    def coverage(self) -> list[str]:
        """What was expected to be tested, and what became of it."""
        lines = [line for text in coverage_lines(self.run.coverage) for line in self.wrapped(
            text, "    " if text.startswith(" ") else "  ")]
        return ["Coverage", *lines] if lines else []

    def foot(self) -> list[str]:
        status = {0: Status.PASS, 1: Status.FAIL}.get(self.summary.status, Status.ERROR)
        simulated = " (simulated hardware)" if self.summary.simulated else ""
        return [*(self.paint(line, status) for line in self.wrapped(self.summary.text + simulated)),
                printable(str(self.run.path))]


def _stretched(text: str) -> str:
    """With something behind each sign that takes two columns (Chinese), so that its length is its width; but for a line
    that ends between the two, which is one column longer."""
    if text.isascii():
        return text
    return "".join(c + _PAD if unicodedata.east_asian_width(c) in ("W", "F") else c for c in text)


def _at_commas(cell: str, width: int) -> str:
    """A hostlist that is too long for its column has its line ends behind commas."""
    if len(cell) <= width or max(map(len, cell.split(" "))) <= width:
        return cell
    lines = [""]
    for part in cell.replace(",", ",\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def _more(count: int) -> list[str]:
    return [f"… and {count} more, --all shows them"] if count > 0 else []
