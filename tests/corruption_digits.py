"""One digit of a table changed, and what the row then says by hand: a few lines a family, apart from its parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from corruption import Case, Family, rows_of
from corruption_families import NCCL, OSU, OSU_ROW, PERFTEST, nccl_head

from hpcadmin.check import Limit

FACTORS = {"nccl_allreduce": lambda n: 2 * (n - 1) / n, "nccl_broadcast": lambda n: 1.0, "nccl_reduce": lambda n: 1.0,
           "nccl_sendrecv": lambda n: 1.0}


def digits(family: Family, case: Case) -> Iterator[tuple[str, bool]]:
    """(a text with one digit of its table changed, whether it then is still good by hand)."""
    if family is NCCL and nccl_head(case.text).split()[-8:] == ["time", "algbw", "busbw", "#wrong"] * 2:
        yield from _nccl(case)
    elif family is OSU and case.check.name.startswith("osu_"):
        yield from _osu(case)
    elif family is PERFTEST:
        yield from _perftest(case)


def changes(line: str, begin: int = 0, end: int | None = None) -> Iterator[tuple[re.Match[str], str]]:
    for place in re.finditer(r"\d", line):
        if begin <= place.start() < (end or len(line)):
            for new in sorted({"1", "9", str((int(place[0]) + 1) % 10)} - {place[0]}):
                yield place, line[:place.start()] + new + line[place.end():]


# --- nccl-tests -----------------------------------------------------------------------------------------------------


def _nccl(case: Case) -> Iterator[tuple[str, bool]]:
    """Time, algbw and busbw out of place in the last row. The average is made to fit, so that only the row decides."""
    lines = case.text.splitlines(keepends=True)
    rows = rows_of(NCCL, lines)
    limit = next((limit.min for limit in case.limits if limit.measurement == "busbw"), None)
    ranks = len(re.findall(r"(?m)^.*# +Rank +\d", case.text))
    if limit is None or not ranks or not case.text.count("# Avg bus bandwidth"):
        return
    factor = FACTORS.get(case.check.name, lambda n: (n - 1) / n)(ranks)
    cells = list(re.finditer(r"\S+", lines[rows[-1]]))
    tagged = 1 if "stdout" in cells[0][0] else 0
    for _, row in changes(lines[rows[-1]], cells[5 + tagged].start(), cells[7 + tagged].end()):
        words = row.split()[tagged:]
        size, time, algbw, busbw = (float(words[n]) for n in (0, 5, 6, 7))
        off = max(abs(size / max(time, 1e-9) / 1e3 / max(algbw, 1e-9) - 1), abs(algbw * factor / max(busbw, 1e-9) - 1))
        rounding = sum(half_unit(words[n]) / max(float(words[n]), 1e-9) for n in (5, 6, 7))
        if 0.7 * rounding < off < 0.02 + 2 * rounding:      # too close to say whether it is rounding
            continue
        table = [(row if n == rows[-1] else lines[n]).split()[tagged:] for n in rows]
        average = sum(float(w[7]) + float(w[11]) for w in table) / len(table) / 2
        text = "".join([*lines[:rows[-1]], row, *lines[rows[-1] + 1:]])
        yield re.sub(r"(# Avg bus bandwidth +: )\S+", rf"\g<1>{average:g}", text), off <= rounding and busbw >= limit


def half_unit(number: str) -> float:
    """Half of the last digit's unit."""
    return 0.5 * 10.0 ** -len(number.partition(".")[2])


# --- OSU ------------------------------------------------------------------------------------------------------------


def _osu(case: Case) -> Iterator[tuple[str, bool]]:
    lines = case.text.splitlines(keepends=True)
    table = [n for n, line in enumerate(lines) if OSU_ROW.match(line)]
    for n in sorted({*table[:5], *table[-2:]}):
        words = list(re.finditer(r"\S+", lines[n]))
        sized = "." not in words[0][0]
        for place, row in changes(lines[n]):
            changed = "".join([*lines[:n], row, *lines[n + 1:]])
            of_size = sized and place.start() < words[0].end()
            zero = any(float(w) == 0 and float(v[0]) != 0
                       for w, v in zip(row.split(), words, strict=True) if w != "Pass")
            yield changed, not of_size and not zero and osu_by_hand(changed, case.limits)


def osu_by_hand(text: str, limits: Sequence[Limit]) -> bool:
    """Whether the rows are whole, agree with themselves and reach the bounds."""
    head = next(line for line in text.splitlines() if re.match(r"# Size|# Avg|\W*Overall\(us\)", line))
    names = [n.strip() for n in re.split(r"\s{2,}", head.lstrip("# ").strip())]
    rows = [dict(zip(names, line.split(), strict=False)) for line in text.splitlines() if OSU_ROW.match(line)]
    values = [{n: float(w) for n, w in row.items() if n not in ("Size", "Validation")} for row in rows]
    good = all(v["Messages/s"] > 0 and abs(v["MB/s"] * 1e6 / int(r["Size"]) - v["Messages/s"]) <= 0.006 + (
        6e3 / int(r["Size"]) + v["MB/s"] / int(r["Size"]))
               for v, r in zip(values, rows, strict=True) if "Messages/s" in v)
    for kind, of in (("Avg Latency(us)", "Latency(us)"), ("Pure Comm.(us)", "Comm.(us)")):
        good = good and all(v[f"Min {of}"] <= v[kind] <= v[f"Max {of}"] for v in values if f"Max {of}" in v)
    good = good and all(v.get("Overlap(%)", 0) <= 100 for v in values)
    main = {"msg_rate": "Messages/s", "pure_comm": "Pure Comm.(us)"}
    for limit in limits:
        name = main.get(limit.measurement) or next(n for n in names if n not in ("Size", "Validation"))
        at = [v[name] for v, r in zip(values, rows, strict=True)
              if limit.size_bytes is None or int(r["Size"]) == limit.size_bytes]
        good = good and bool(at) and (at[0] >= limit.min if limit.min else 0 < at[0] <= (limit.max or 0))
    return good


# --- perftest -------------------------------------------------------------------------------------------------------


def _perftest(case: Case) -> Iterator[tuple[str, bool]]:
    text, limit = case.text, case.limits[0]
    lines = text.splitlines(keepends=True)
    names = re.findall(r"#\w+|BW \w+\[|MsgRate|t_\w+\[|99\.?9?% perc|tps average",
                       next(line for line in lines if line.strip().startswith("#bytes")))
    column = names.index("BW average[" if limit.min else f"{limit.measurement}[")
    factor = 8 * 2 ** 20 / 1e9 if "B/sec" in text and "Gb/sec" not in text else 1.0
    rows = perftest_rows(lines)
    for n in sorted({*rows[:3], *rows[-1:]}):
        for _, row in changes(lines[n]):
            changed = "".join([*lines[:n], row, *lines[n + 1:]])
            table = [[float(w) for w in (row if at == n else lines[at]).split()] for at in rows]
            sizes = [r[0] for r in table]
            right = next((r for r in table if r[0] == limit.size_bytes), None)
            good = right is not None and min(min(r[:2]) for r in table) >= 1 and all(
                b == 2 * a for a, b in pairwise(sizes)) and perftest_by_hand(changed)
            if right and limit.min:
                good = good and right[column] * factor >= limit.min
            elif right and limit.max:
                good = good and 0 < right[column] <= limit.max and all(min(r[2:6]) > 0 for r in table)
            yield changed, good


def perftest_rows(lines: Sequence[str]) -> list[int]:
    head = max((n for n, line in enumerate(lines) if line.strip().startswith("#bytes")), default=len(lines))
    return [n for n, line in enumerate(lines) if n > head and re.match(r" *\d+ +\d+ ", line)]


def perftest_by_hand(text: str) -> bool:
    """Whether each row of the text agrees with itself."""
    lines = text.splitlines()
    table = [[float(word) for word in lines[n].split()] for n in perftest_rows(lines)]
    if "t_avg[usec]    tps" in text:
        return all(abs(r[2] - 5e5 / r[3]) <= 0.0051 + 0.002 * 5e5 / r[3] for r in table)
    if "t_min" in text:
        return all(r[2] <= r[4] <= r[7] <= r[8] <= r[3] and r[2] <= r[5] <= r[3] and r[6] <= r[3] for r in table)
    factor = 8e-3 if "average[Gb/sec]" in text else 1e6 / 2 ** 20
    near = all(abs(r[4] * r[0] * factor - r[3]) <= 0.0051 + 5.1e-7 * r[0] * factor + 0.002 * r[3] for r in table)
    return near and all(not r[2] or r[2] >= r[3] - 0.0051 for r in table)
