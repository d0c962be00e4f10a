"""Markdown for a ticket: the result, the causes and what did not pass. Nothing but these headings, lists and tables is
Markdown: text of nodes, files and people is plain words, or code whose every sign is written as a number.

Signs as numbers (&#124;) are never Markdown or HTML (CommonMark 6.2), end no table cell, and in code no forge makes a
mention, a link or a reference of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from hpcadmin.check import Status
from hpcadmin.coverage import coverage_lines
from hpcadmin.hosts import fold
from hpcadmin.report import again
from hpcadmin.report.base import Options, ReportFormat
from hpcadmin.report.folding import folded_rows, measured_text, node_groups, short_list
from hpcadmin.report.summary import Summary, summarise
from hpcadmin.report.times import duration, local_time
from hpcadmin.rundata import Run
from hpcadmin.text import plural, printable

_MOST_ROWS = 20
_LONGEST = 300                # of one text in it
_MOST_EVERYTHING = 5000
# Words that no dialect reads as anything else: no underscore at a word's edge, no :emoji:, x://, a@b, #1, %x. Brackets
# only around the numbers of a list of nodes, and no ( behind them.
_PLAIN = re.compile(r"(?:[^\W_]|(?<=[^\W_])_(?=[^\W_])|[ .,;()/=+…·°µ-]|:(?!/|\w)|(?<=\d):(?=\d)|%(?=[\s,.;)]|\Z)"
                    r"|\[[0-9,-]+\](?![(\[:]))*\Z")
# www.x, GH-1, and what a forge takes for the name of a commit.
_LINKED = re.compile(r"www\.|\bgh-\d|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,}\b", re.IGNORECASE)
_NOT_A_WORD = re.compile(r"[^\w ]|_", re.ASCII)


def render(run: Run, options: Options = Options()) -> str:  # noqa: B008
    summary = summarise(run)
    sections = [_head(run, summary), _findings(summary, options), _again(run, options), _checks(summary),
                _failures(summary, options), _nodes(summary, options), _coverage(run), _foot(run)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


FORMAT = ReportFormat("markdown", ".md", render, values=False)


def text(words: str, *, limit: int = _LONGEST) -> str:
    """Any words as text: as they are where they mean nothing in Markdown, else as code."""
    made = []
    for plain, group in itertools.groupby(printable(words, limit=limit).split(), _is_plain):
        together = " ".join(group)
        made.append(together if plain else f"<code>{_NOT_A_WORD.sub(_as_number, together)}</code>")
    return " ".join(made)


def _is_plain(word: str) -> bool:
    return _PLAIN.match(word) is not None and not _LINKED.search(word)


def _as_number(sign: re.Match[str]) -> str:
    """Signs of other alphabets mean nothing in Markdown, and printable() has escaped those that cannot be seen."""
    return f"&#{ord(sign[0])};" if sign[0].isascii() else sign[0]


def _table(rows: Sequence[Sequence[str]], heads: Sequence[str], *, limit: int = _LONGEST) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return [*lines, *(f"| {' | '.join(text(cell, limit=limit) for cell in row)} |" for row in rows)]


def _head(run: Run, summary: Summary) -> list[str]:
    m = run.manifest
    took = duration(m.started, m.ended)
    rows = [("run", m.run_id), ("suite", m.suite), ("cluster", m.cluster),
            ("nodes", f"{len(m.nodes)}, {fold(m.nodes)}"),
            ("started", local_time(m.started) + (f", took {took}" if took else "")),
            ("by", " on ".join(part for part in (m.user, m.host) if part)),
            ("versions", ", ".join(part for part in (f"hpcadmin {m.version}" if m.version else "",
                                                     f"Slurm {m.slurm_version}" if m.slurm_version else "") if part)),
            ("simulated hardware", summary.simulated)]
    word, _, rest = summary.text.partition(": ")
    return [f"## {text(word)}: {text(m.suite)} on {text(m.cluster or plural(len(m.nodes), 'node'))}", "",
            text(rest), "", *_table([row for row in rows if row[1]], ["", ""]),
            *(line for note in summary.notes for line in ("", f"Note: {text(note)}")),
            *(line for problem in summary.problems for line in ("", f"Problem: {text(problem)}"))]


def _findings(summary: Summary, options: Options) -> list[str]:
    shown = summary.findings if options.everything else summary.findings[:_MOST_ROWS]
    lines = ["### Findings", ""] if shown else []
    return [*lines, *(f"- **{f.status.value}** {text(f.text, limit=1000)}" for f in shown),
            *_more(len(summary.findings) - len(shown), "findings")]


def _again(run: Run, options: Options) -> list[str]:
    if run.acceptance is None:
        return []
    runs = [(str(r.number), r.run, r.when, r.what) for r in again.runs_of(run.acceptance)]
    rows = again.again_rows(run.acceptance, everything=options.everything)
    shown = rows if options.everything else rows[:_MOST_ROWS]
    lines = [f"### {again.TITLE}", "", *_table(runs, ["", "run", "started", "what"])]
    if shown:
        lines += ["", *_table([(r.status.value, r.check, r.where, r.before, r.after) for r in shown],
                              ["now", "check", "where", "before", "measured again"])]
    return [*lines, *_more(len(rows) - len(shown), "rows"), "", text(again.counted(run.acceptance)),
            *(line for swap in again.swap_lines(run.acceptance) for line in ("", f"Replaced: {text(swap)}"))]


def _checks(summary: Summary) -> list[str]:
    rows = [(row.status.value, row.check, f"{row.passed} of {row.tests}" if row.tests else "-", measured_text(row))
            for row in summary.checks]
    return ["### Checks", "", *_table(rows, ["result", "check", "passed", "measured"])] if rows else []


def _failures(summary: Summary, options: Options) -> list[str]:
    rows = folded_rows(summary, everything=options.everything)
    shown = rows if options.everything else rows[:_MOST_ROWS]
    if not rows:
        return []
    title = "### Verdicts" if options.everything else "### Not passed, or worth a look"
    return [title, "", *_table([(status.value, *rest) for status, *rest in shown], ["result", "check", "where", "what"],
                               limit=_MOST_EVERYTHING if options.everything else _LONGEST),
            *_more(len(rows) - len(shown), "rows")]


def _nodes(summary: Summary, options: Options) -> list[str]:
    rows = [(status.value, short_list([row.node for row in rows], everything=options.everything), passed, why)
            for (status, passed, why), rows in node_groups(summary)
            if options.everything or status is not Status.PASS]
    shown = rows if options.everything else rows[:_MOST_ROWS]
    return ["### Nodes", "", *_table(shown, ["result", "nodes", "passed", "why"]),
            *_more(len(rows) - len(shown), "rows")] if rows else []


def _coverage(run: Run) -> list[str]:
    lines = [f"{'  ' if line.startswith(' ') else ''}- {text(line, limit=1000)}"
             for line in coverage_lines(run.coverage)]
    return ["### Coverage", "", *lines] if lines else []


def _foot(run: Run) -> list[str]:
    return [f"Raw outputs and everything else: {text(str(run.path), limit=1000)}"]


def _more(count: int, what: str) -> list[str]:
    return ["", f"… and {count} more {what}"] if count > 0 else []
