"""Whether a run of nccl-tests agrees with itself: sizes, counts, bandwidths, average, ranks, wrong values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from hpcadmin.checklib import shown
from hpcadmin.checklib.nccl_run import IN, Collective, Half, Kind, Problem, Row, Run

GIGA, GIBI = 1e9, float(1 << 30)
_WRONG_ERROR = 1e-2         # of the old column `error`: rounding of 16-bit types stays below
_MOST_SERIES = 200
_COLUMNS = {"size", "count", "type", "redop", "root", "time", "cputime", "algbw", "busbw", "#wrong", "error", "i_min",
            "i_max", "i_p99", "i_cv%", "timestamp"}
_OPERATIONS = ("sum", "prod", "min", "max", "avg", "mulsum")


@dataclass(frozen=True)
class Sense:
    """What a run tells by itself. unit: of the bandwidths, as the numbers prove it. other: of another collective."""

    problems: tuple[Problem, ...]
    ranks: int | None
    hosts: tuple[str, ...] | None
    validated: bool | None
    wrong: int | None
    unit: str
    other: bool = False


def sense(run: Run, of: Collective) -> Sense:
    problems = list(_of_another(run, of))
    of = _of_its_time(run, of)
    other = any(p.kind is Kind.BAD for p in problems)
    ranks, found = _ranks(run, of)
    problems += found
    problems += _structure(run)
    unit = "GB/s"
    if run.rows:
        unit, found = _numbers(run, of, ranks)
        problems += found
        for rows in series(run)[:_MOST_SERIES]:
            problems += _sizes(run, rows, of, ranks)
        problems += _average(run, problems)
    validated, wrong, found = _validation(run, of)
    problems += found
    return Sense(tuple(problems), ranks, _hosts(run, ranks), validated, wrong, unit, other)


def _of_its_time(run: Run, of: Collective) -> Collective:
    """Until 2020 what a rank has already was no part of the algbw of all_gather and reduce_scatter."""
    shares = {row.size // (row.count * row.type_bytes) for row in run.rows if row.count}
    column = run.headers[-1].check_column if run.headers else ""
    if not of.shares or of.rooted or of.moved(2) != 1 or column != "error" or len(shares) != 1 or 0 in shares:
        return of
    older = replace(of, factor=lambda n: 1.0, moved=of.factor)
    return older if _off(run.rows, GIGA, 1.0) and not _off(run.rows, GIGA, older.moved(shares.pop())) else of


def _bad(text: str) -> Problem:
    return Problem(Kind.BAD, text)


def _part(text: str) -> Problem:
    return Problem(Kind.PART, text)


def _of_another(run: Run, of: Collective) -> Iterator[Problem]:
    """Another collective, by what the program says of itself and by the columns that only some have."""
    for name in dict.fromkeys([*run.starts, *run.ends]):
        if name.rsplit("/", 1)[-1].removesuffix("_mpi") != of.program:      # as some builds name it
            yield _bad(f"this is an output of {shown(name)}, not of {of.program}")
    row = next(iter(run.rows), None)
    names = run.headers[-1].names if run.headers else ()
    if row is None or run.headers[-1].foreign:
        return
    reduces = row.redop in _OPERATIONS
    if of.reduces is not None and reduces != of.reduces:
        yield _bad(f"the operation of the rows is {row.redop or 'none'!r}: not of {of.program}")
    rooted = row.root not in ("", "-1")
    if rooted != of.rooted and (rooted or "root" in names):
        yield _bad(f"the root of the rows is {row.root or 'none'!r}: not of {of.program}")


def _structure(run: Run) -> Iterator[Problem]:
    """What must be there."""
    foreign = bool(run.headers and run.headers[0].foreign)
    if foreign:
        yield _part(f"not an output of nccl-tests: its columns are {shown(run.headers[0].raw)!r}")
    elif not run.params:
        yield _part("no parameter line (# nThread …): expected sizes and validation are unknown")
    if not run.lists and not run.json:
        yield _part("no list of devices (# Using devices): ranks and hosts are unknown")
    for line in run.damaged[:3]:
        yield _part(f"a line is damaged: {shown(line)!r}")
    yield from _layout(run)
    yield from _ending(run, foreign)


def _layout(run: Run) -> Iterator[Problem]:
    """The header, its units, and rows that are none."""
    if not run.rows:
        yield _part("no row of the table")
    elif run.headers[-1].inferred:
        yield _part("the rows have no header: the order of their columns is only assumed")
    elif not run.headers[-1].units:
        yield _part("the table does not say its units (B), (us), (GB/s)")
    elif run.headers[-1].units != "ok":
        yield _bad(run.headers[-1].units)
    for header in run.headers:
        halves = [h.split() for h in " ".join(header.names).replace("cputime", "time").split("time ")[1:]]
        halves = [[n for n in half if n != "timestamp"] for half in halves]
        if any(half != halves[0] for half in halves) or not set(header.names) <= _COLUMNS:
            yield _bad(f"unknown columns: {shown(' '.join(header.names))}")
    for what, before in run.torn[:3]:
        last = before == len(run.rows) and not run.ended
        yield Problem(Kind.PART if last else Kind.BAD, what)
    for line in run.gaps[:3]:
        yield _part(f"rows were left out: {shown(line)!r} stands in their place")


def _ending(run: Run, foreign: bool) -> Iterator[Problem]:
    """The lines after the table, each exactly once."""
    for what, count in (("line '# Out of bounds values'", len(run.bounds)),
                        ("line '# Avg bus bandwidth'", len(run.averages))):
        if count > 1:
            yield _bad(f"{count} times {what}, exactly one must be")
        elif not count and not (foreign and "bounds" in what):
            yield _part(f"no {what}: the run did not end")
    if run.averages and not run.closed and run.json:
        yield _part("the report is cut off after the average")
    if (run.starts and not run.ends) or len(run.ends) > 1:
        yield _part(f"{len(run.starts)} tests start and {len(run.ends)} end: cut off, or several runs mixed")
    for count, word in run.bounds:
        if (word == "OK") != (count == 0):
            yield _bad(f"contradiction: # Out of bounds values : {count} {word}")


def _ranks(run: Run, of: Collective) -> tuple[int | None, list[Problem]]:
    """How many ranks there were: by a complete list, or by an incomplete one that the bandwidths agree with."""
    if not run.ranks:
        return None, []
    problems = []
    numbers = [r.number for r in run.ranks]
    count = max(numbers) + 1
    each = run.params[0].each if len(run.params) == 1 else 1
    if numbers != list(range(len(numbers))) or len(numbers) % each:
        count += -count % each
        problems.append(_part(f"the list of devices is not complete: {len(numbers)} ranks, the highest is "
                              f"{max(numbers)}"))
        low, high = ratio(run.rows)
        if len(set(numbers)) != len(numbers) or not run.rows or not low <= of.factor(count) <= high:
            return None, problems
    places = [(r.host, r.device) for r in run.ranks]
    buses = [(r.host, r.pci) for r in run.ranks if ":" in r.pci]
    if len(set(places)) != len(places) or len(set(buses)) != len(buses):
        problems.append(_part("two ranks use one GPU: ranks are not bound one to a GPU"))
    if count == 1:
        problems.append(_bad("one rank sends nothing: its bus bandwidth says nothing"))
    return count, problems


def _hosts(run: Run, count: int | None) -> tuple[str, ...] | None:
    """The hosts, where the list is complete, or where those in it with as many ranks each are all there can be."""
    if count is None or not run.ranks:
        return None
    names = tuple(dict.fromkeys(r.host for r in run.ranks))
    if len(run.ranks) < count:
        first = sorted(min(r.number - r.device for r in run.ranks if r.host == name) for name in names)
        if first[0] != 0 or len({b - a for a, b in pairwise([*first, count])}) != 1:
            return None
    return names


def ratio(rows: Sequence[Row]) -> tuple[float, float]:
    """Bounds of busbw by algbw that all rows allow, from the digits they are printed with."""
    low, high = 0.0, 1e9
    for row in rows:
        for half in row.modes.values():
            alg, bus = 0.51 * half.places[1], 0.51 * half.places[2]
            low = max(low, (half.busbw - bus) / (half.algbw + alg))
            if half.algbw > alg:
                high = min(high, (half.busbw + bus) / (half.algbw - alg))
    return low, high


def _numbers(run: Run, of: Collective, ranks: int | None) -> tuple[str, list[Problem]]:
    """The unit that the bandwidths have, and rows whose numbers contradict each other."""
    problems = []
    each = of.moved(ranks) if ranks else None if of.moved(4) != 1 else 1.0
    unit, off = "GB/s", None
    if each is not None and not run.cputime:
        off = _off(run.rows, GIGA, each)
        if off and not _off(run.rows, GIBI, each):
            unit, off = "GiB/s", None
            problems.append(_part("the bandwidths are in units of 2^30 bytes a second, whatever the header says"))
        if off:
            problems.append(_bad(off))
    halves = [half for row in run.rows for half in row.modes.values()]
    if not ranks and any(h.algbw > 1 for h in halves) and not any(h.busbw for h in halves):
        return unit, [*problems, _bad("busbw is 0 in all rows: one rank sends nothing")]
    low, high = ratio(run.rows)
    known = [ranks] if ranks else [2, 1 << 30]          # factors rise with the number of ranks
    least, most = min(map(of.factor, known)), max(map(of.factor, known))
    if low > high or most < low or least > high:
        row = next((r for r in run.rows if not _fits(r, least, most)), run.rows[-1])
        half = next(iter(row.modes.values()))
        problems.append(_bad(f"at {row.size} bytes busbw {half.busbw:g} does not fit algbw {half.algbw:g}"
                             f"{f' and {ranks} ranks' if ranks else ''}: another collective, or a changed value"))
    return unit, problems


def _fits(row: Row, least: float, most: float) -> bool:
    low, high = ratio([row])
    return least <= high and low <= most


def _off(rows: Sequence[Row], giga: float, each: float) -> str | None:
    """The first row whose bandwidth is not its size by its time: a digit of it was changed."""
    for row in rows:
        for half in row.modes.values():
            computed = row.size * each / half.time_us * 1e6 / giga
            slack = half.places[1] + computed * (half.places[0] / half.time_us + 0.005)
            if abs(computed - half.algbw) > slack:
                return f"at {row.size} bytes {half.time_us:g} us do not make {half.algbw:g} GB/s"
    return None


def series(run: Run) -> list[list[Row]]:
    """The rows of each operation, type and root, and of each cycle of -N: a table has several with -o, -d or -r all."""
    found: list[list[Row]] = []
    each = len(asked_sizes(run)) if len(run.params) == 1 else 0
    for _, group in groupby(run.rows, key=_kind):
        rows = list(group)
        cycles = [rows[n:n + each] for n in range(0, len(rows), each)] if each > 1 else [rows]
        same = all([row.size for row in rows] == [row.size for row in cycles[0]] for rows in cycles)
        found += cycles if same else [rows]
    return found


def several(run: Run) -> str:
    """What a table with more than one series has several of, "" for one."""
    if len({_kind(row) for row in run.rows}) > 1:
        return "operations, roots or types"
    return "cycles" if len(series(run)) > 1 else ""


def _kind(row: Row) -> tuple[str, str, int]:
    return row.redop, row.root, row.type_bytes


def _sizes(run: Run, rows: list[Row], of: Collective, ranks: int | None) -> Iterator[Problem]:
    sizes = [row.size for row in rows]
    above = [s for s in sizes if s]         # sizes below one element a rank are 0, several at the beginning
    if any(b <= a for a, b in pairwise(above)) or any(sizes[:len(sizes) - len(above)]):
        yield _bad("message sizes do not rise: rows doubled or two runs mixed")
    shares = {row.size / (row.count * row.type_bytes) for row in rows if row.count}
    if not of.shares:
        right = shares <= {1.0}
    elif ranks:
        right = shares <= {float(ranks)}
    else:
        right = len(shares) <= 1 and all(share >= 1 and share.is_integer() for share in shares)
    if not right or any((row.size == 0) != (row.count == 0) for row in rows):
        row = next((r for r in rows if r.count * r.type_bytes * (ranks or 1 if of.shares else 1) != r.size),
                   rows[0])
        yield _bad(f"{row.size} bytes are not {row.count} elements of {row.type_bytes} bytes"
                   f"{f' from each of {ranks} ranks' if of.shares and ranks else ''}")
    if not run.params or len(run.params) > 1:
        return
    share = max(1, int(next(iter(shares), 1.0))) if of.shares else 1
    yield from _missing(run, rows[0], sizes, share)


def _missing(run: Run, first: Row, sizes: list[int], share: int) -> Iterator[Problem]:
    asked = asked_sizes(run)
    units = [u for u in (first.type_bytes * share, 16 * share) if u]      # newer versions keep 16 byte bounds
    plans = [[s // unit * unit for s in asked] for unit in dict.fromkeys(units)]
    if sizes in plans:
        return
    plan = min(plans, key=lambda p: len(set(p) - set(sizes)) + len(set(sizes) - set(p)))
    extra = [s for s in sizes if s not in set(plan)]
    if extra or len(sizes) > len(plan):
        yield _bad(f"{len(sizes)} sizes where {len(plan)} were asked for; not asked for: "
                   f"{', '.join(map(str, extra[:5])) or 'some twice'}")
    missing = [s for s in plan if s not in set(sizes)]
    yield _part(f"{len(sizes)} sizes where {len(plan)} were asked for" + (
        f"; missing: {', '.join(map(str, missing[:5]))}" if missing else ""))


def asked_sizes(run: Run) -> list[int]:
    params = run.params[0]
    most = min([params.maximum, *run.reduced])
    found: list[int] = []
    size = params.minimum
    while size <= most and len(found) < 10_000:
        found.append(size)
        following = size * params.step if params.factor else size + params.step
        if following <= size:
            break
        size = following
    return found


def _average(run: Run, others: Sequence[Problem]) -> Iterator[Problem]:
    """The printed average against the rows: a row was lost or changed where they differ."""
    if len(run.averages) != 1:
        return
    average = run.averages[0][0]
    values = [half.busbw for row in run.rows for half in row.modes.values()]
    mean = sum(values) / len(values)
    if abs(mean - average) <= 0.006 + 0.002 * mean:
        return
    text = f"the average is {average:g}, the rows make {mean:.6g}: a row was lost or changed"
    whole = bool(run.params) and not run.gaps and len(run.rows) == len(asked_sizes(run)) * len(series(run))
    yield _bad(text) if whole and not any(p.kind is Kind.BAD for p in others) else _part(text)


def _validation(run: Run, of: Collective) -> tuple[bool | None, int | None, list[Problem]]:
    """(whether the data were checked, how many values were wrong, problems)."""
    bounds = run.bounds[0][0] if run.bounds else 0
    halves = [(mode, half) for row in run.rows for mode, half in row.modes.items()]
    column = run.headers[-1].check_column if run.headers else ""
    cells = [half.wrong for _, half in halves if half.wrong is not None]
    if not halves or not column or not (cells or bounds):
        return (False if halves and column else None), None, [_wrong(bounds, run, column)] if bounds else []
    problems = []
    due = [half for mode, half in halves if mode != IN or of.checks_in_place]
    if any(half.wrong is None for half in due):
        problems.append(_bad("some rows were not validated (N/A) and others were"))
    if not of.checks_in_place and any(h.wrong is not None for mode, h in halves if mode == IN):
        problems.append(_bad(f"in place, {of.program} checks nothing: these rows are of another program"))
    if run.params and not run.params[0].validation:
        problems.append(_bad("validation is off, and the rows say that they were validated"))
    wrong = (_count(cells, column) if column == "#wrong" else bounds or _count(cells, column)) or bounds
    if wrong:
        problems.append(_wrong(wrong, run, column))
    return True, wrong, problems


def _count(cells: Sequence[float], column: str) -> int:
    return int(sum(cells)) if column == "#wrong" else sum(1 for c in cells if c > _WRONG_ERROR)


def _wrong(wrong: int, run: Run, column: str) -> Problem:
    """With the tool's own line, or else the first row that has wrong values."""
    least = 0.0 if column == "#wrong" else _WRONG_ERROR
    told = next((f"# Out of bounds values : {n} {word}" for n, word in run.bounds if n), "")
    row = next((r for r in run.rows if any(_above(h, least) for h in r.modes.values())), None)
    return Problem(Kind.WRONG, f"wrong_values is {wrong}, expected 0: {told or (shown(row.raw) if row else '')}")


def _above(half: Half, least: float) -> bool:
    return half.wrong is not None and half.wrong > least
