"""The rows of perftest's tables: each number strict, and each row in agreement with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hpcadmin.check import Measurement, ParseError
from hpcadmin.checklib import finite, integer, shown

# To Gb/s (1e9 bits). perftest's MB is 2^20 bytes; newer versions write MiB.
UNITS = {"Gb/sec": 1.0, "MB/sec": 8 * 2 ** 20 / 1e9, "MiB/sec": 8 * 2 ** 20 / 1e9}
_NAMES = {"t_min": "t_min", "t_max": "t_max", "t_typical": "t_typical", "t_avg": "t_avg", "t_stdev": "t_stdev",
          "99% percentile": "p99", "99.9% percentile": "p99_9"}
_MOST_US = 1e9
_NO_SPREAD = "-nan"     # as x86 prints 0/0: 6.06 does so now and then beside times that are right (over Soft-RoCE)


@dataclass(frozen=True)
class Row:
    """values: those that were measured, by name. unit: of the bandwidth, as the head writes it. gbps: average."""

    size: int
    iterations: int
    values: tuple[tuple[str, float, str], ...]
    gbps: float | None = None
    remarks: tuple[str, ...] = ()           # "peak not measured"
    doubts: tuple[str, ...] = ()            # no part of the values, but not right

    def value(self, name: str) -> float | None:
        return next((value for known, value, _ in self.values if known == name), None)

    def measurements(self, mode: str, run: int | None, *, latency: bool) -> list[Measurement]:
        """What the row tells, and a bandwidth in Gb/s too."""
        return self.printed(mode, run, latency=latency) + self._converted(mode, run)

    def printed(self, mode: str, run: int | None, *, latency: bool) -> list[Measurement]:
        """What the row tells, in its own units."""
        return [Measurement(name, value, unit, self.size, mode="" if latency else mode, run=run, key=False)
                 for name, value, unit in self.values]

    def _converted(self, mode: str, run: int | None) -> list[Measurement]:
        gbps = round(self.gbps, 2) if self.gbps else 0.0
        if not gbps or any(unit == "Gb/s" for _, _, unit in self.values):
            return []
        return [Measurement("bw_average", gbps, "Gb/s", self.size, mode=mode, run=run, key=False)]


def read_row(words: Sequence[str], columns: Sequence[str]) -> Row:
    """A row of a bandwidth or latency table. ParseError when a number is none or the row contradicts itself."""
    if columns[:1] != ("#bytes",) or "#iterations" not in columns or len(set(columns)) != len(columns):
        raise ParseError(f"unknown columns {shown(' '.join(columns))}")
    if len(words) != len(columns):
        raise ParseError(f"the row is torn: {shown(' '.join(words))}")
    table = dict(zip(columns, words, strict=True))
    size = integer(table["#bytes"], "message size", least=1)
    iterations = integer(table["#iterations"], "iterations", least=1)
    spread = table.get("t_stdev[usec]", "")
    for column, word in table.items():
        if column == "t_stdev[usec]" and word == _NO_SPREAD:
            continue
        finite(word, column)
        if word.startswith(("-", "+")):
            raise ParseError(f"{column} is {shown(word)}: no value of these programs has a sign")
    if any(column.startswith("BW average[") for column in columns):
        return bandwidth_row(size, iterations, table)
    if any(column.startswith("t_avg[") or column.startswith("t_typical[") for column in columns):
        if spread == _NO_SPREAD:
            known = {column: word for column, word in table.items() if column != "t_stdev[usec]"}
            return replace(latency_row(size, iterations, known), doubts=(f"t_stdev[usec] is {spread}",))
        return latency_row(size, iterations, table)
    raise ParseError(f"unknown columns {shown(' '.join(columns))}: neither an average bandwidth nor a time")


def half(word: str) -> float:
    """Half a unit in the last place of a printed number, and a little: what rounding may take."""
    return 0.51 * 10.0 ** -len(word.partition(".")[2])


def bandwidth_row(size: int, iterations: int, table: dict[str, str]) -> Row:
    average = next(column for column in table if column.startswith("BW average["))
    peak = next((column for column in table if column.startswith("BW peak[")), "")
    unit = average[len("BW average["):-1]
    if unit not in UNITS:
        raise ParseError(f"unknown unit {shown(unit)}")
    factor = UNITS[unit]
    value, rate_word = float(table[average]), table.get("MsgRate[Mpps]", "")
    if rate_word:
        rate = float(rate_word)
        slack = factor * half(table[average]) + half(rate_word) * size * 8e-3
        if abs(rate * size * 8e-3 - value * factor) > slack + 0.002 * value * factor:
            raise ParseError(f"{rate_word} million messages of {size} bytes a second are not {table[average]} {unit}")
    if not value and not float(rate_word or 0):
        raise ParseError(f"the average is {table[average]} {unit}: nothing was measured")
    if peak and peak[len("BW peak["):-1] != unit:
        raise ParseError(f"{peak} and {average} are not in one unit")
    short = unit.replace("/sec", "/s")
    values, remarks, doubts = [], [], []
    if value:
        values.append(("bw_average", value, short))
    else:
        remarks.append(f"average {table[average]} {unit} at {size} bytes is rounded off: not a value")
    if peak and float(table[peak]) == 0:
        remarks.append("peak 0.00 is \"not measured\"")
    elif peak and float(table[peak]) < value * (1 - 1e-6) - half(table[peak]):
        doubts.append(f"at {size} bytes the peak {table[peak]} is below the average {table[average]}")
    elif peak:
        values.append(("bw_peak", float(table[peak]), short))
    if rate_word and float(rate_word):
        values.append(("msg_rate", float(rate_word), "Mpps"))
    return Row(size, iterations, tuple(values), value * factor if value else None, tuple(remarks), tuple(doubts))


def latency_row(size: int, iterations: int, table: dict[str, str]) -> Row:
    values: dict[str, float] = {}
    for column, word in table.items():
        name, bracket, unit = column.partition("[")
        if name in _NAMES and bracket:
            if unit != "usec]":
                raise ParseError(f"times in {shown(unit.rstrip(']'))}, not in usec")
            values[_NAMES[name]] = finite(word, column, most=_MOST_US)
    for name, value in values.items():
        if not value and name != "t_stdev":
            raise ParseError(f"{name} is 0: nothing that ran takes no time")
    _ordered(values, ("t_min", "t_typical", "p99", "p99_9", "t_max"))
    _ordered(values, ("t_min", "t_avg", "t_max"))
    if values.get("t_stdev", 0) > values.get("t_max", _MOST_US):
        raise ParseError("the deviation is above the largest time")
    found = [(name, value, "us") for name, value in values.items()]
    tps = float(table.get("tps average", 0))
    if "tps average" in table:
        taken, slack = values.get("t_avg", 0.0), half(table.get("t_avg[usec]", "0.00"))
        each = (1e6 / tps, 0.5e6 / tps) if tps else ()              # a round trip, or half of it
        if not any(abs(taken - time) <= slack + 0.002 * time for time in each):
            raise ParseError(f"{tps:g} transactions a second do not take {values.get('t_avg')} us each")
        found.append(("tps_average", tps, "1/s"))
    return Row(size, iterations, tuple(found))


def _ordered(values: dict[str, float], names: Sequence[str]) -> None:
    known = [(name, values[name]) for name in names if name in values]
    for (low, a), (high, b) in pairwise(known):
        if a > b:
            raise ParseError(f"{low} {a:g} us is above {high} {b:g} us")


def size_problem(sizes: Sequence[int], connection: str) -> str:
    """Why the sizes of a table of several rows are not all that -a runs: 2 bytes, doubled up to 8 MiB."""
    if len(sizes) < 2:
        return ""
    for before, after in pairwise(sizes):
        if after != 2 * before:
            return f"{after} bytes come after {before}: rows are missing, doubled or of several runs"
    if sizes[0] != 2:
        return f"the table begins at {sizes[0]} bytes: its beginning is missing"
    if sizes[-1] != 1 << 23 and connection not in ("UD", "SRD", "RawEth"):
        return f"the table ends at {sizes[-1]} bytes, not at {1 << 23}: cut off"
    return ""
