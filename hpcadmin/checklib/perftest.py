"""Reads what the programs of perftest print (ib_write_bw, ib_send_lat and their kin, versions 1 to 6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError, Reading
from hpcadmin.checklib import perftest_other, perftest_rows
from hpcadmin.checklib.perftest_head import HEAD, Kind, Problem, head_problems, kind_of, loopback, transport_of
from hpcadmin.checklib.perftest_rows import Row
from hpcadmin.checklib.perftest_text import Run, Section, clean_lines, closed, columns_of, runs_of, title_of

BROKEN = ("completion with error", "failed", "couldn't", "unable to", "error occurred", "scnt=",
          "did not detect", "is down", "state is init", "state is armed", "not found", "connection refused",
          "can't produce", "cudrv", "returned error", "unexpected opcode", "invalid value",
          "correlation coefficient",      # it could not tell the clock rate: all its values are 0, its status too
          "invalid command", "unsupported", "not supported", "no such", "mlx5: cqe error", "got completion with",
          "exited with error", "problems with", "validation: error", "validation: warning", "bad wc status", "cq error",
          "unexpected cm event", "bad event", "addr_error", "did not get message", "cannot allocate", "cannot produce",
          "no ib devices", "mismatch: local=", "flags mismatch", "should contain", "error opening", "error when",
          "error=")
_HARMLESS = ("libibverbs: warning", "couldn't chdir to", "pcie relax order", "lock-free")
_LIMIT = re.compile(r"Error: (?:BW result|Msg rate) +is below", re.I)
_TELLING = ("CPU Frequency is not max", "BW peak won't be measured", "CPU is not PCIe relaxed",
            "Requested mtu is higher", "Changing to active mtu")
_VALIDATION = ("VALIDATION: PASSED", "VALIDATION: FAILED", "VALIDATION: WARNING", "VALIDATION: ERROR")
_STATUS = re.compile(r"Failed status (\d{1,3}):", re.I)
_MEANING = {2: "local QP operation error", 4: "local protection error", 5: "flushed after an earlier error",
            8: "local access error", 9: "remote invalid request", 10: "remote access error",
            11: "remote operation error", 12: "transport retry counter exceeded: the other side or the path did not "
            "answer", 13: "receiver-not-ready retry counter exceeded"}
_SLOW = 2.0          # Gb/s
_TWO_SIDES = 0.1     # what the two sides of one run may differ by
_GPU = re.compile(r"(?:device name = \[([^\]]{1,80})\]|Using ROCm Device with ID: ?\d{1,4}, Name: ([^,]{1,80}))")
_GPU_BUFFER = ("allocated gpu buffer", "using rocm device", "dma-buf for gpu buffer", "dmabuf for gpu buffer",
               "bytes gpu buffer", "bytes of gpu buffer")
@dataclass
class Found:
    """One run in a text, with what is wrong with it."""

    run: Run
    rows: tuple[Row, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    binding: str = ""

    @property
    def both_ways(self) -> bool:
        return title_of(self.run.main.titles[0])[1] if self.run.main.titles else False

    @property
    def mode(self) -> str:
        return "" if not self.run.main.titles else "bidirectional" if self.both_ways else "unidirectional"


@dataclass(frozen=True)
class Examined:
    """All of one text."""

    reading: Reading
    found: tuple[Found, ...] = ()
    problems: tuple[Problem, ...] = ()      # () also where the reading alone tells them


def examine(text: str, kind: Kind) -> Examined:
    """What the text tells by itself, run by run."""
    if len(text) > lib.MAX_TEXT:
        return Examined(Reading(problems=(f"the text has more than {lib.MAX_TEXT} characters",)))
    if perftest_other.is_json(text):
        return Examined(*_json(text, kind))
    lines = clean_lines(text)
    if perftest_other.is_wrapper(lines):
        return Examined(perftest_other.wrapper(lines, kind.program))
    problems, notes = _of_lines(lines)
    runs = runs_of(lines)
    if runs:
        _drop_cut_row(runs[-1].main, lines[-1], ended=text.endswith(("\n", "\r")))
    binding = _binding(lines)
    found = [_found(run, kind, last=run is runs[-1]) for run in runs]
    if not found:
        waits = any("Waiting for client" in line for line in lines)
        problems = [*problems, Problem("no table: the server waits for a client" if waits else
                                       "no table of perftest" if lines else "the text is empty")]
    if not any(run.main.rows for run in runs):
        problems += [Problem(f"the output says: {line}") for line in lib.telling(lines)
                     if not any(line in problem.text for problem in problems)]
    if len(found) > 1:
        again = [f for f in found[1:] if f.run.main.ends and f.run.main.ends == found[0].run.main.ends]
        problems.append(Problem("one output stands there twice") if again else
                        Problem(f"{len(found)} runs in one text: which is the result is not said", usable=True))
    notes += [f"the buffer is in {binding}"] if binding else []
    for one in found:
        one.binding = binding
        problems += one.problems
        notes += one.notes
    return Examined(_validated(_reading(found, problems, notes, kind), lines), tuple(found), tuple(problems))


def _validated(reading: Reading, lines: Sequence[str]) -> Reading:
    """With what --data_validation says after the table; nothing validated is no validation."""
    told = [line for line in lines if line.startswith(_VALIDATION)]
    if not told:
        return reading
    wrong = [int(match[1]) for match in (re.search(r" - (\d{1,18}) error", line[:300]) for line in told) if match]
    passed = all(line.startswith(_VALIDATION[0]) for line in told)
    return replace(reading, validated=True if passed or wrong else None,
                   wrong_values=0 if passed else max(wrong) if wrong else None)


def _drop_cut_row(section: Section, last: str, *, ended: bool) -> None:
    """The text ends within its last line: a row there lacks words, or digits where the line is not ended."""
    words = last.split()
    short = bool(section.heads) and 1 < len(words) < len(columns_of(section.heads[-1]))
    for rows in (section.rows, section.torn):
        if rows and not section.closing and (short or not ended) and rows[-1] in (tuple(words), " ".join(words)):
            rows.pop()
            section.cut = " ".join(words)


def read(text: str, kind: Kind) -> Reading:
    return examine(text, kind).reading


def _of_lines(lines: Sequence[str]) -> tuple[list[Problem], list[str]]:
    """Lines that say what went wrong, wherever they stand; and those worth repeating."""
    problems: list[Problem] = []
    notes: list[str] = []
    low = "\n".join(lines).lower()
    harmless = [word for word in _HARMLESS if word in low]
    broken = [line for line in lines if not any(word in line.lower() for word in harmless)] if harmless else lines
    limits = [line for line in broken if _LIMIT.search(line)] if "is below" in low else []
    problems += [Problem(f"the program's own limit: {lib.shown(line)}", usable=True) for line in limits[:2]]
    for line in lib.fatal_lines([line for line in broken if line not in limits], also=BROKEN, limit=8):
        problems.append(Problem(f"the output has an error line: {lib.shown(line)}"))
        status = _STATUS.search(line)
        if status and int(status[1]) in _MEANING:
            notes.append(f"status {status[1]}: {_MEANING[int(status[1])]}")
    telling = [word for word in _TELLING if word.lower() in low]
    notes += list(dict.fromkeys(lib.shown(line) for line in lines if any(word in line for word in telling)))[:6]
    return problems, notes


def _binding(lines: Sequence[str]) -> str:
    """"GPU memory (NVIDIA H100 80GB HBM3)" where the program says that its buffer is there."""
    low = "\n".join(lines).lower()
    if not any(word in low for word in _GPU_BUFFER):
        return ""
    name = next((m[1] or m[2] for m in map(_GPU.search, lines) if m), "")
    return f"GPU memory ({lib.shown(name)})" if name else "GPU memory"


def _found(run: Run, kind: Kind, *, last: bool) -> Found:
    main = run.main
    found = Found(run)
    found.problems += head_problems(run, kind)
    hosts = run.hosts()
    transport = transport_of(main, same_port=loopback(run))
    found.notes += [f"title: {lib.shown(title)}" for title in main.titles]
    found.notes += [f"transport: {transport}"] if transport else []
    if hosts == 1:
        found.notes.append(f"loopback on one port ({', '.join(sorted(main.ports('local')))}): says nothing about the "
                           "fabric")
    if run.both:
        found.notes.append("both sides are in the text: one result")
    if any(not p.usable for p in found.problems):
        return found
    if not main.heads:
        found.problems.append(Problem("no table: cut off, or the other side never answered", cut=True))
        return found
    rows, problems = _rows(main, kind, run)
    found.problems += problems
    found.rows = tuple(rows)
    _of_rows(found, kind)
    ends = [main] if run.other is None or not main.rules else [run.other]
    if not closed(ends[0], last=last) and not any(p.cut for p in found.problems):
        found.problems.append(Problem("the table is not closed: cut off", usable=True, cut=True))
    return found


def _rows(main: Section, kind: Kind, run: Run) -> tuple[list[Row], list[Problem]]:
    """The rows that may be believed, each once."""
    heads = {columns_of(head) for head in main.heads}
    if len(heads) > 1:
        return [], [Problem(f"{len(main.heads)} tables with different columns")]
    columns = heads.pop()
    if not columns:
        return [], [Problem(f"unknown columns {lib.shown(main.heads[0])}")]
    if any(column.startswith("t_") for column in columns) != kind.latency:
        return [], [Problem(f"not one output of the {kind.words}: {lib.shown(main.heads[0])}")]
    problems = [Problem(f"the row is torn: {lib.shown(row)}") for row in main.torn[:3]]
    problems += [Problem(f"cut off within a row: {lib.shown(main.cut)}", usable=True, cut=True)] if main.cut else []
    found: list[Row] = []
    for words in (dict.fromkeys(main.rows) if run.mixed else main.rows):
        try:
            found.append(perftest_rows.read_row(words, columns))
        except ParseError as exc:
            problems.append(Problem(str(exc)))
    if not main.rows and all(p.usable for p in problems):
        problems.append(Problem("the table has no row: cut off, or nothing was measured", cut=True))
    if run.mixed:
        found, doubts = _one_of_two(found)
        problems += doubts
    return found, problems + _other_side(run, found)


def _one_of_two(rows: Sequence[Row]) -> tuple[list[Row], list[Problem]]:
    """Of two sides that are mixed line by line, where each tells its own value: the first, and that it is in doubt."""
    found: dict[int, Row] = {}
    twice: set[int] = set()
    problems = []
    for n, row in enumerate(rows):
        first = found.setdefault(row.size, row)
        if first is row:
            continue
        a, b = (one.gbps or one.value("t_typical") or one.value("t_avg") or 0.0 for one in (first, row))
        if row.size in twice or abs(a - b) > _TWO_SIDES * max(a, b):
            return list(rows), [Problem(f"row {n + 1} has {row.size} bytes again: rows doubled, or several runs mixed")]
        twice.add(row.size)
        problems.append(Problem(f"the two sides say {a:g} and {b:g} at {row.size} bytes: which is the client's is not "
                                "told", usable=True))
    return list(found.values()), problems[:3]


def _other_side(run: Run, rows: Sequence[Row]) -> list[Problem]:
    """Bandwidths that the server tells otherwise than the client."""
    if run.other is None or not run.other.heads:
        return []
    columns, mine = columns_of(run.other.heads[-1]), {row.size: row for row in rows}
    problems = [Problem(f"the row is torn: {lib.shown(row)}") for row in run.other.torn[:3]]
    for words in run.other.rows:
        try:
            row = perftest_rows.read_row(words, columns)
        except ParseError as exc:
            problems.append(Problem(f"the other side: {exc}"))
            continue
        same = mine.get(row.size)
        if same is None or (same.gbps and row.gbps and abs(same.gbps - row.gbps) > 0.02 * same.gbps):
            problems.append(Problem(f"the two sides disagree at {row.size} bytes"))
    return problems


def _of_rows(found: Found, kind: Kind) -> None:
    sizes = [row.size for row in found.rows]
    for row in found.rows:
        found.notes += [remark for remark in row.remarks if remark not in found.notes][:3]
        found.problems += [Problem(doubt, usable=True) for doubt in row.doubts]
    if len(sizes) > 1 and len(set(sizes)) == 1 and len(set(found.rows)) == len(found.rows) and not found.run.both:
        found.problems.append(Problem(f"{len(sizes)} rows of {sizes[0]} bytes: it ran without an end, or rows are "
                                      "doubled", usable=True, cut=True))
    elif len(sizes) > len(set(sizes)):
        found.problems.append(Problem("rows of one size: rows doubled, or several runs mixed"))
    else:
        text = perftest_rows.size_problem(sizes, found.run.main.told("Connection type"))
        found.problems += [Problem(text, usable=True, cut=True)] if text else []
    if found.rows:
        main, last = found.run.main, found.rows[-1]
        told = [f"MTU {main.told('Mtu')}" if main.told("Mtu") else "",
                f"{last.iterations} iterations" + (f", {len(sizes)} sizes {sizes[0]} to {sizes[-1]} bytes"
                                                   if len(sizes) > 1 else f" of {last.size} bytes"),
                f"{main.told('Number of qps')} QP" if main.told("Number of qps") else ""]
        found.notes.append(", ".join(word for word in told if word))
        found.notes += [f"at {row.size} bytes the average {row.value('bw_average')} is far below the peak "
                        f"{row.value('bw_peak')}" for row in found.rows
                        if (row.value("bw_average") or 0) < 0.8 * (row.value("bw_peak") or 0)][:3]
        if kind.verbs[0] == "Atomic" and not kind.latency:
            found.notes.append(f"{last.size} bytes a message: a rate of messages, no bandwidth of the link")
        elif last.gbps and last.gbps < _SLOW and last.size >= 65536:
            found.notes.append(f"{last.gbps:.2f} Gb/s: no RDMA hardware is that slow")
        if last.gbps and any(unit in ("MB/s", "MiB/s") for _, _, unit in last.values):
            found.notes.append(f"{last.value('bw_average')} MB/s of 2^20 bytes is {last.gbps:.2f} Gb/s")


def _reading(found: Sequence[Found], problems: Sequence[Problem], notes: Sequence[str], kind: Kind) -> Reading:
    runs = len(found)
    measurements = [m for n, one in enumerate(found, 1) for row in one.rows
                    for m in row.measurements(one.mode, n if runs > 1 else None, latency=kind.latency)]
    transports = {transport_of(one.run.main, same_port=loopback(one.run)) for one in found}
    hosts = {one.run.hosts() for one in found}
    return Reading(
        tuple(measurements), tuple(dict.fromkeys(p.text for p in problems)),
        usable=bool(measurements) and all(p.usable for p in problems), notes=tuple(dict.fromkeys(notes)),
        hosts=hosts.pop() if len(hosts) == 1 else None,
        transport=transports.pop() if len(transports) == 1 else None, runs=max(runs, 1))


def _json(text: str, kind: Kind) -> tuple[Reading, tuple[Found, ...], tuple[Problem, ...]]:
    """A JSON report: it has no addresses and no unit, the message rate shows which unit it is."""
    try:
        head, row = perftest_other.json_report(text)
    except ParseError as exc:
        return Reading(problems=(str(exc),)), (), ()
    section = Section(titles=[head.pop("title")], fields={name: [value] for name, value in head.items()})
    found = Found(Run(section), (row,))
    verb, _, latency = title_of(section.titles[0])
    if verb not in kind.verbs or latency != kind.latency or kind.latency != (row.gbps is None):
        return Reading(problems=(f"not one output of the {kind.words}: {lib.shown(section.titles[0])}",)), (), ()
    missing = [name for name in HEAD if name not in head]
    problems = [Problem(f"{', '.join(missing)} not told: the head is cut", usable=True, head=True)] if missing else []
    problems += [Problem(doubt, usable=True) for doubt in row.doubts]
    notes = [*row.remarks, "a JSON report: no addresses in it" + ("" if kind.latency else
             ", and the unit is the one that fits the message rate")]
    found.problems = problems
    return _reading([found], problems, notes, kind), (found,), tuple(problems)


__all__ = ["Examined", "Found", "Kind", "Problem", "examine", "kind_of", "read", "transport_of"]
