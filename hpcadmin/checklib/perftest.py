"""Reads what the bandwidth programs of perftest print (ib_write_bw and its kin), one side of one run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.check import ParseError
from hpcadmin.checklib import finite, integer, lines_of, no_fatal_lines, positive
from hpcadmin.text import printable

# To Gb/s (1e9 bits). perftest's MB is 2^20 bytes; newer versions write MiB.
_UNITS = {"Gb/sec": 1.0, "MB/sec": 8 * 2 ** 20 / 1e9, "MiB/sec": 8 * 2 ** 20 / 1e9}
_COLUMN = re.compile(r"#bytes|#iterations|BW (?:peak|average)\[[^\]]{1,12}\]|MsgRate\[Mpps\]|CPU_Util\[%\]")
_FIELD = re.compile(r"(Device|Link type|Transport type|Connection type|Number of qps|Mtu)\s{0,20}:\s{1,20}(\S{1,64})")
_ADDRESS = re.compile(r"(local|remote) address: LID (\S{1,12}) QPN (\S{1,12}) PSN (\S{1,12})")
BROKEN = ("completion with error", "failed status", "couldn't connect", "unable to init", "failed to modify",
          "couldn't read", "failed to exchange", "unable to find the hca", "did not detect", "is down",
          "couldn't allocate", "failed to create", "couldn't listen", "couldn't get", "failed to register",
          "correlation coefficient")      # it could not tell the clock rate: all its values are 0, its status too
_PLACE = 0.51      # units in the last place that rounding may take


@dataclass(frozen=True)
class Side:
    """bandwidth in Gb/s; both_ways: the sum of both directions."""

    device: str
    link: str                  # InfiniBand or Ethernet (RoCE)
    connection: str
    qps: int
    mtu: str
    size: int
    iterations: int
    gbps: float
    both_ways: bool
    local: tuple[str, ...]     # "LID QPN PSN" of each queue pair
    remote: tuple[str, ...]
    ports: frozenset[str]      # LIDs, or GIDs where there are any: one means that both ends are one port


def read(text: str, title: str) -> Side:
    """One side with one row. ParseError when it is cut, torn, of another test, or has several runs in it."""
    lines = lines_of(text)
    no_fatal_lines(lines, also=BROKEN)
    titles = [line for line in lines if line.endswith((" BW Test", " Latency Test"))]
    if len(titles) != 1 or titles[0].removesuffix(" BW Test") not in (title, f"{title} Bidirectional"):
        shown = printable(", ".join(titles), limit=120) or "no title"
        raise ParseError(f"not one output of the {title} BW test: {shown}")
    told = _fields(lines)
    heads = [n for n, line in enumerate(lines) if line.startswith("#bytes")]
    if len(heads) != 1:
        raise ParseError(f"{len(heads)} tables, exactly one must be", hint="cut off, or both sides in one text")
    columns = _COLUMN.findall(lines[heads[0]])
    rows = [words for words in (line.split() for line in lines[heads[0] + 1:]) if words and words[0].isdigit()]
    if len(rows) != 1:
        raise ParseError(f"{len(rows)} rows in the table, exactly one must be")
    last = max(n for n, line in enumerate(lines) if line.split()[:1] == rows[0][:1] and line.split() == rows[0])
    rules = [line for line in lines if set(line) == {"-"}]
    if not any(line and line in rules[:1] for line in lines[last + 1:]):
        raise ParseError("the table is not closed: cut off")
    size, iterations, gbps = _row(rows[0], columns)
    addresses = [m for m in map(_ADDRESS.match, lines) if m]
    local, remote = ([m for m in addresses if m[1] == side] for side in ("local", "remote"))
    qps = integer(told["Number of qps"], "number of QPs", least=1)
    if len(local) != qps or len(remote) != qps:
        raise ParseError("the addresses of both sides are not told")
    gids = [line.split("GID:", 1)[1].strip() for line in lines if line.startswith("GID:")]
    return Side(
        device=told["Device"], link="InfiniBand" if told["Link type"] == "IB" else told["Link type"],
        connection=told["Connection type"], qps=qps, mtu=told["Mtu"], size=size, iterations=iterations, gbps=gbps,
        both_ways=titles[0] != f"{title} BW Test", local=tuple(f"{m[2]} {m[3]} {m[4]}" for m in local),
        remote=tuple(f"{m[2]} {m[3]} {m[4]}" for m in remote), ports=frozenset(gids or [m[2] for m in addresses]))


def _fields(lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        for name, value in _FIELD.findall(line):
            if name in found:
                raise ParseError(f"{name!r} is told twice", hint="several runs mixed, or both sides in one text")
            found[name] = value
    missing = {"Device", "Link type", "Connection type", "Number of qps", "Mtu"} - set(found)
    if missing:
        raise ParseError(f"{', '.join(sorted(missing))} not told: the head is missing or cut")
    return found


def _row(words: Sequence[str], columns: Sequence[str]) -> tuple[int, int, float]:
    average = [n for n, column in enumerate(columns) if column.startswith("BW average[")]
    if columns[:2] != ["#bytes", "#iterations"] or len(average) != 1 or "MsgRate[Mpps]" not in columns:
        raise ParseError(f"unknown columns {printable(' '.join(columns), limit=120)!r}")
    if len(words) != len(columns):
        raise ParseError(f"the row is torn: {printable(' '.join(words), limit=120)!r}")
    for word, column in zip(words, columns, strict=True):
        finite(word, column)
    unit = columns[average[0]][len("BW average["):-1]
    if unit not in _UNITS:
        raise ParseError(f"unknown unit {printable(unit, limit=20)!r}")
    size = integer(words[0], "message size", least=1)
    iterations = integer(words[1], "iterations", least=1)
    gbps = positive(words[average[0]], "average bandwidth") * _UNITS[unit]
    rate = finite(words[columns.index("MsgRate[Mpps]")], "message rate")
    slack = _PLACE * (0.01 * _UNITS[unit] + 1e-6 * size * 8e-3) + 0.01 * gbps
    if abs(rate * size * 8e-3 - gbps) > slack:
        raise ParseError(f"{rate:g} million messages of {size} bytes a second are not {gbps:g} Gb/s")
    return size, iterations, gbps
