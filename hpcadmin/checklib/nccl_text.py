"""What each line of an output of nccl-tests or rccl-tests is. Columns go by header names, runs are told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcadmin.check import ParseError
from hpcadmin.checklib import finite, integer, positive, shown, strip_terminal
from hpcadmin.checklib.nccl_pieces import cells, parted
from hpcadmin.checklib.nccl_run import IN, OUT, TYPE_BYTES, Half, Header, Line, Params, Rank, Row, Run

_TAG = re.compile(r"\[(?:[^\]\s,@]{1,200}@)?\d{1,9},\d{1,9}\](?:<|&lt;)std(?:out|err)(?:>|&gt;): ?")
_LABEL = re.compile(r"\s{0,12}\d{1,7}: ?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?:? ")
_RAY = re.compile(r"\([\w.-]{1,80}, rank=\d{1,9}, pid=\d{1,9}(?:, ip=[\w.:-]{1,60})?\) ?")
_SYSLOG = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} [^\s:]{1,80}: ?")
_PREFIX = re.compile(r"(\S.{0,159}?)(?:# {1,12}size +count |# ?nThreads?:? \d)")
# rccl-tests had colons, and sometimes the number of ranks between.
_PARAMS = re.compile(r"# (?:nThreads?:? (\d{1,9}) )?nGpus(?:\(perProc\))?:? (\d{1,9}) (?:nRanks:? \d{1,9} )?"
                     r"minBytes:? (\d{1,18}) maxBytes:? (\d{1,18}) step: (\d{1,18})\((factor|bytes)\).{0,200}? "
                     r"validation: (\d{1,9})(?: |$)")
_RANK = re.compile(r"# {1,4}Rank +(\d{1,9}) (?:Group +\d{1,9} )?(?:Pid +(\d{1,9}) )?on +(\S{1,255}) device +(\d{1,5}) "
                   r"\[([0-9a-fA-Fx:.]{1,24})\](?: (.{0,200}))?")
_BOUNDS = re.compile(r"# Out of bounds values\s{0,20}: (\d{1,18}) (OK|FAILED)$")
_AVERAGE = re.compile(r"#? ?Avg bus bandwidth\s{0,20}:\s{0,20}([^\sG]{1,30})(?: ?GB/s)?(?: +(OK|FAILED))?$")
_REDUCED = re.compile(r"# Reducing maxBytes to (\d{1,18}) due to memory limitation$")
_GAP = re.compile(r"(?:(?:\.{2,}|…)(?: ?[\w ,()-]{1,60})?(?:\.{2,}|…)?|\[(?:\.{2,}|…)\]"
                  r"|[<[(].{0,80}(?:truncat|omit|snip|cut|remov|skip).{0,80}[])>])", re.IGNORECASE)
_LEFT_OUT = re.compile(r"(?:truncated|omitted|skipped|snipped|removed)\b.{0,60}\b(?:sizes?|rows?|lines?)\b",
                       re.IGNORECASE)
_KNOWN = ("Errors with asterisks", "Blocking Enabled", "Parallel Init", "Per-Iteration", "GPU memory usage",
          "Writing JSON")
# What older versions, and people who paste, have without the # before it.
_BARE = ("nThread ", "Using devices", "Out of bounds values", "Avg bus bandwidth    ", "(B) ",
         "Collective test starting: ", "Collective test concluded: ", "Reducing maxBytes to ")
_HEADER = {"size", "count", "type", "time", "cputime", "algbw", "busbw", "#wrong", "error", "bytes", "N"}
_OTHER_NAMES = {"wrong": "#wrong"}         # pasted where each # was lost
_FIRST_NAMES = {"bytes": "size", "N": "count", "op": "redop", "res": "error"}
_SHAPES = {13: ("redop", "root"), 12: ("redop",), 11: (), 9: ("redop", "root"), 8: ("redop",), 7: ()}


def lines_of(text: str) -> list[Line]:
    """The lines, cleaned and without what mpirun, srun, pdsh and log collectors put before each."""
    raws = strip_terminal(text).split("\n")
    texts = [raw.strip() for raw in raws]
    for pattern, all_of_them in ((_RAY, False), (_SYSLOG, True), (_TIME, True), (_TAG, False), (_LABEL, True),
                                 (_TIME, True), (_TAG, False)):
        hits = sum(1 for t in texts if t and pattern.match(t))
        told = sum(1 for t in texts if t)
        if hits and (not all_of_them or hits * 3 >= told * 2):
            texts = [_without(pattern, t) for t in texts]
    heads = (t for t in texts if "nThread" in t or ("size" in t and " count " in t))
    common = next((m[1] for m in map(_PREFIX.match, heads) if m), "")
    if common:
        texts = [t.removeprefix(common).strip() for t in texts]
    return [Line(raw.strip(), text) for raw, text in zip(raws, texts, strict=True)]


def _without(pattern: re.Pattern[str], text: str) -> str:
    """The text behind its tag. Open MPI puts the tag of the same rank also where a line came in several pieces."""
    match = pattern.match(text)
    if match is None:
        return text
    rest = text[match.end():]
    return (rest.replace(match[0].rstrip(), "") if pattern is _TAG else rest).strip()


class Splitter:
    """Puts lines into runs. What is of no run is kept in `others`."""

    def __init__(self) -> None:
        self.runs: list[Run] = [Run()]
        self.others: list[Line] = []
        self._modes: tuple[str, ...] = ()
        self._hosts: set[str] = set()
        self._begun: list[Line] = []            # pieces of one row

    def feed(self, lines: Sequence[Line]) -> list[Run]:
        for line in lines:
            if line.text.startswith("#"):
                self._comment(line)
            elif _bare(line.text):
                self._comment(Line(line.raw, f"# {line.text}"))
            elif line.text:
                self._plain(line)
        self._drop()
        return [run for run in self.runs if not run.empty]

    def _run(self, new: bool) -> Run:
        if new:
            self.runs.append(Run())
        return self.runs[-1]

    def _comment(self, line: Line) -> None:
        self._drop()
        run, words = self.runs[-1], line.text[1:].split()
        body = " ".join(words)
        text = f"# {body}"                  # who pastes an output often loses blanks, or has tabs
        line = Line(line.raw, text)
        if not body:
            run.closed = run.closed or bool(run.averages)
        elif body.startswith(("Collective test starting:", "nThread", "nGpus", "Using devices", "Rank ")):
            self._head(line, body)
        elif body.startswith("Collective test concluded:"):
            run.ends.append(body.split(":", 1)[1].strip())
            run.closed = False
            run.quotes.append(line.raw)
        elif body.startswith(("Out of bounds values", "Avg bus bandwidth")):
            self._end(line)
        elif _is_header(words):
            self._run(run.table or run.ended).headers.append(_header(words, self._modes, line.raw))
            self._modes = ()
        elif ("(B)" in words or "(elements)" in words) and run.headers and not run.rows:
            run.headers[-1] = _with_units(run.headers[-1], words)
        elif OUT in words or IN in words:
            self._modes = tuple(w for w in words if w in (OUT, IN))
        elif (reduced := _REDUCED.match(text)) is not None:
            run.reduced.append(int(reduced[1]))
            run.quotes.append(line.raw)
        elif body.startswith(("nccl-tests version ", "rccl-tests version ")):
            self._run(run.table or run.ended).quotes.append(line.raw)
        elif _GAP.fullmatch(body) or _LEFT_OUT.match(body):
            run.gaps.append(line.raw)
        elif not body.startswith(_KNOWN):
            self.others.append(line)

    def _head(self, line: Line, body: str) -> None:
        run = self.runs[-1]
        if body.startswith("Collective"):
            run = self._run(not run.empty)
            run.starts.append(body.split(":", 1)[1].strip())
            run.quotes.append(line.raw)
        elif body.startswith(("nThread", "nGpus")):
            run = self._run(bool(run.params or run.lists or run.ranks or run.table or run.ended))
            found = _PARAMS.match(line.text)
            if found is None:
                run.damaged.append(line.raw)
            else:
                run.params.append(Params(int(found[3]), int(found[4]), int(found[5]), found[6] == "factor",
                                         found[7] != "0", max(1, int(found[1] or 1) * int(found[2]))))
        elif body.startswith("Using"):
            self._run(bool(run.lists or run.table or run.ended)).lists += 1
        else:
            run = self._run(run.table or run.ended)
            match = _RANK.fullmatch(line.text)
            if match is None:
                run.damaged.append(line.raw)
            else:
                model = (match[6] or "").strip()
                self._hosts.add(match[3])
                run.ranks.append(Rank(int(match[1]), match[3], int(match[4]), match[5].lower(), model))

    def _end(self, line: Line) -> None:
        run = self.runs[-1]
        bounds, average = _BOUNDS.match(line.text), _AVERAGE.match(line.text)
        run.quotes.append(line.raw)
        if bounds is not None:
            run.bounds.append((int(bounds[1]), bounds[2]))
        elif average is None:
            run.damaged.append(line.raw)
        else:
            try:
                run.averages.append((finite(average[1], "average bus bandwidth", most=1e6), average[2] or ""))
            except ParseError as exc:
                run.torn.append((exc.what, -1))

    def _plain(self, line: Line) -> None:
        run = self.runs[-1]
        words = line.text.split()
        parts = parted(line.text, self._hosts) if run.headers and not run.ended else None
        if parts is not None:
            self._piece(Line(parts[0], parts[0]), run)
            self.others.append(Line(parts[1], parts[1]))
        elif self._begun and cells(words) and not _like_a_row(words[:3], run):
            self._piece(line, run)
        elif words[0].isdigit() and _like_a_row(words, run):
            self._drop()
            self._row(line, words, self._run(run.ended))
        elif line.text.startswith("size(B)"):
            self._run(run.table or run.ended).headers.append(_foreign_header(words, line.raw))
        elif line.text.startswith("Avg bus bandwidth") and run.table:
            self._end(line)
        elif not run.ended and (_GAP.fullmatch(line.text) or (run.table and len(words) > 2 and "." in line.text
                                                              and cells(words))):
            run.gaps.append(line.raw)
        elif line.text.startswith("rccl-tests: Version"):
            run.quotes.append(line.raw)
        else:
            self.others.append(line)

    def _piece(self, line: Line, run: Run) -> None:
        """One more piece of a row: the row, where it is whole with it."""
        self._begun.append(line)
        raw = " ".join(p.text for p in self._begun)
        try:
            row_of(raw.split(), run.headers[-1], raw)
        except ParseError:
            return
        self._begun = []
        self._row(Line(raw, raw), raw.split(), run)

    def _drop(self) -> None:
        """A row that was begun and is not whole is torn."""
        raw, self._begun = " ".join(p.text for p in self._begun), []
        if raw:
            self._row(Line(raw, raw), raw.split(), self.runs[-1])

    def _row(self, line: Line, words: list[str], run: Run) -> None:
        header = run.headers[-1] if run.headers else _inferred(words)
        try:
            if header is None:
                raise ParseError(f"a row of the table is torn: {shown(line.raw)!r}")
            row = row_of(words, header, line.raw)
        except ParseError as exc:
            run.torn.append((exc.what, len(run.rows)))
            if len(run.torn) > 50:
                del run.torn[3:-3]
            return
        if not run.headers:
            run.headers.append(header)
        run.cputime = run.cputime or "cputime" in header.names
        run.rows.append(row)


def _bare(text: str) -> bool:
    """A line of the program without its #."""
    return (text.startswith(_BARE) or (" busbw" in text and _is_header(text.split()))
            or (text.startswith("Rank ") and _RANK.fullmatch(f"# {text}") is not None))


def _like_a_row(words: Sequence[str], run: Run) -> bool:
    if len(words) == 1:
        return run.table and not run.ended
    return words[1].isdigit() or (len(words) > 2 and words[2] in TYPE_BYTES)


def _is_header(words: Sequence[str]) -> bool:
    """Also where a name of it is damaged: then it is refused, and nothing is assumed instead."""
    return len(_HEADER.intersection(words)) >= 5


def _header(words: Sequence[str], told: Sequence[str], raw: str) -> Header:
    """The first versions have other names, no line of units, and times in milliseconds."""
    count = sum(1 for w in words if w == "busbw")
    modes = tuple(told) if len(told) == count else (OUT, IN)[:count]
    first = words[:2] == ["bytes", "N"]
    names = tuple((_FIRST_NAMES if first else _OTHER_NAMES).get(w, w) for w in words)
    return Header(names, modes, "ok" if first else "", raw, milli=first)


def _with_units(header: Header, words: Sequence[str]) -> Header:
    """Units are read by name: what is not (us) and (GB/s) is said, and no value of it is believed."""
    times = sum(1 for n in header.names if n in ("time", "cputime") or (n.startswith("i_") and n != "i_cv%"))
    odd = [w for w in words if w.startswith("(") and w not in ("(B)", "(elements)", "(us)", "(GB/s)", "(%)")]
    rates = 2 * len(header.modes)
    right = not odd and (words.count("(B)"), words.count("(us)"), words.count("(GB/s)")) == (1, times, rates)
    return replace(header, units="ok" if right else f"the units of the table are {shown(' '.join(words))}")


def _foreign_header(words: Sequence[str], raw: str) -> Header:
    names = tuple(w.partition("(")[0].replace("time:avg", "time") for w in words)
    units = [w.partition("(")[2].rstrip(")") for w in words]
    fits = units == ["B", "elems", "", "us", "GB/s", "GB/s"]
    return Header(names, ("",), "ok" if fits else f"the units of the table are {shown(raw)}", raw, foreign=True)


def _inferred(words: Sequence[str]) -> Header | None:
    """The order of nccl-tests, for rows whose header is lost."""
    more = _SHAPES.get(len(words))
    if more is None or len(words) < 3 or words[2] not in TYPE_BYTES:
        return None
    if more == ("redop",) and not words[3].isalpha():
        more = ("root",)
    half = ("time", "algbw", "busbw", "#wrong" if words[-1].replace("N/A", "0").isdigit() or "+" in words[-1]
            else "error")
    pairs = 2 if len(words) > 10 else 1
    return Header(("size", "count", "type", *more, *half * pairs), (OUT, IN)[:pairs], inferred=True)


def row_of(words: Sequence[str], header: Header, raw: str) -> Row:
    """A row by its header; ParseError where cells are missing or are no numbers."""
    names = list(header.names)
    for optional in ("redop", "root"):      # their cells are empty where the operation has none
        width = len(names) + names.count("timestamp")
        at = names.index(optional) if optional in names else -1
        if len(words) == width - 1 and at >= 0 and not _is_cell(words[at], optional):
            names.remove(optional)
    first = next((n for n, name in enumerate(names) if name in ("time", "cputime")), 0)
    if len(words) != len(names) + names.count("timestamp") or names[:3] != ["size", "count", "type"] or first < 3:
        raise ParseError(f"a row of the table is torn: {shown(raw)!r}")
    size, count = integer(words[0], "message size"), integer(words[1], "count")
    bytes_each = TYPE_BYTES.get(words[2])
    cells = {name: words[n] for n, name in enumerate(names[:first])}
    root = cells.get("root", "")
    if bytes_each is None or (root and not root.removeprefix("-").isdigit()):
        raise ParseError(f"the row of {size} bytes has no known type or root: {shown(raw)!r}")
    places = [n for n, name in enumerate(names) if name in ("time", "cputime")]
    if len(places) != len(header.modes) or names.count("busbw") != len(places):
        raise ParseError(f"unknown table layout: {shown(' '.join(names))}")
    modes = {mode: _half(words, names, at, size, 1000.0 if header.milli else 1.0)
             for mode, at in zip(header.modes, places, strict=True)}
    return Row(size, count, bytes_each, cells.get("redop", ""), root, modes, raw)


def _is_cell(word: str, name: str) -> bool:
    return word.isalpha() if name == "redop" else word.removeprefix("-").isdigit()


def _half(words: Sequence[str], names: Sequence[str], at: int, size: int, scale: float) -> Half:
    if list(names[at + 1:at + 3]) != ["algbw", "busbw"]:
        raise ParseError(f"unknown table layout: {shown(' '.join(names))}")
    for name, word in zip(names[at + 4:], words[at + 4:], strict=False):
        if not name.startswith("i_"):
            break
        finite(word, f"{name} at {size} bytes")
    time, algbw, busbw = words[at:at + 3]
    column = names[at + 3] if at + 3 < len(names) else ""
    wrong = _wrong(words[at + 3], column) if column in ("#wrong", "error") else None
    return Half(positive(time, f"time at {size} bytes") * scale, finite(algbw, f"algbw at {size} bytes"),
                finite(busbw, f"busbw at {size} bytes"), wrong, (_place(time) * scale, _place(algbw), _place(busbw)))


def _wrong(word: str, column: str) -> float | None:
    if word == "N/A":
        return None
    value = finite(word.removesuffix("*"), column)
    return max(value, 1.0) if word.endswith("*") else value


def _place(word: str) -> float:
    """One unit in the last place of a printed number."""
    mantissa, _, exponent = word.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))
