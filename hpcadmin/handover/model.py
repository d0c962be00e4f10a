"""Everything that the document says, with all numbers worked out: forms of it only render.

A document is sections of blocks: tables, figures, findings, paragraphs. Words are `Msg` (texts), data is str; numbers
stay numbers, and their columns say how they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Union

from hpcadmin.check import Status
from hpcadmin.handover.assess import Statement
from hpcadmin.handover.criteria import Contract
from hpcadmin.handover.shown import Outcome
from hpcadmin.handover.texts import Msg


@dataclass(frozen=True)
class Link:
    """To a file beside the document, by its path from there; address "": it is named and not there."""

    text: str
    address: str = ""


Cell = Union[str, int, float, None, Msg, Link, Status, Outcome]


def _empty(cell: Cell) -> bool:
    return cell in ("", None) or (isinstance(cell, Msg) and cell.args.get("text") == "")


@dataclass(frozen=True)
class Column:
    """kind: text, number (right-aligned, at most four significant digits), exact (as it is), code (hashes, serials),
    name (a short word that is not broken), percent (one decimal)."""

    title: Msg
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """name: short and unique in the document, for the anchor, a sheet or a file. total: rows that there are, where not
    all are shown."""

    name: str
    title: Msg
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: Msg | None = None
    total: int = 0

    def trimmed(self) -> Table:
        """Without the columns in which nothing stands."""
        kept = [i for i in range(len(self.columns)) if not all(_empty(row[i]) for row in self.rows)]
        if len(kept) == len(self.columns) or not self.rows:
            return self
        return replace(self, columns=tuple(self.columns[i] for i in kept),
                       rows=tuple(tuple(row[i] for i in kept) for row in self.rows))

    @property
    def left_out(self) -> int:
        return max(0, self.total - len(self.rows))


@dataclass(frozen=True)
class Paragraph:
    text: Msg
    kind: str = ""                     # "", note, problem, code


@dataclass(frozen=True)
class Tile:
    """A cell of a heat map. shade 0 (as usual) to 4; bad: something of it failed; none: nothing was measured."""

    x: float
    y: float
    shade: int
    text: str = ""
    bad: bool = False
    none: bool = False
    title: str = ""


@dataclass(frozen=True)
class HeatMap:
    """Pairs as a square; in pixels. edges: where leaf switches begin. by: of what a row is, "node", "leaf"
    (switch) or, where those are not known, "block" (of nodes by name)."""

    name: str
    title: Msg
    unit: str
    usual: str
    size: float
    side: float                        # of a tile
    margin: float                      # left and above, for the labels
    labels: tuple[str, ...]
    tiles: tuple[Tile, ...]
    edges: tuple[float, ...] = ()
    by: str = "node"
    leaves: tuple[tuple[str, float, float], ...] = ()      # name, begin, end
    lower_is_better: bool = False
    pattern: str = ""                  # what the labels leave out: "rack*.example.org"; "": nothing

    kind = "heat"


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    count: int
    text: str                          # the range of values


@dataclass(frozen=True)
class Mark:
    """A limit, as a line across a figure."""

    at: float
    text: str


@dataclass(frozen=True)
class Histogram:
    name: str
    title: Msg
    unit: str
    width: float
    height: float
    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...] = ()

    kind = "histogram"


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    text: str = ""


@dataclass(frozen=True)
class Curve:
    """Values over message sizes: the fleet's median, its band from worst to best, and what is expected."""

    name: str
    title: Msg
    unit: str
    width: float
    height: float
    median: tuple[Point, ...]
    band: tuple[Point, ...]            # a closed line
    expected: tuple[Point, ...]
    limits: tuple[Point, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]

    kind = "curve"


Figure = Union[HeatMap, Histogram, Curve]


@dataclass(frozen=True)
class Evidence:
    """A raw output: what it ends with, and the file that it is in."""

    ref: str                           # "jobs/2/driver.log#t0003"
    link: Link
    sha256: str = ""
    excerpt: str = ""
    status: str = ""                   # how it ended: "exit status 1", "timeout"
    problem: str = ""                  # why it cannot be shown


@dataclass(frozen=True)
class FindingView:
    number: int
    status: Status
    text: Msg
    nodes: str
    device: str
    serials: tuple[str, ...]           # of what is accused: "node03: serial ABC", "GPU 5: UUID …"
    checks: tuple[str, ...]
    action: Msg
    evidence: tuple[Evidence, ...]
    waivers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    items: tuple[FindingView, ...]
    total: int


Block = Union[Table, HeatMap, Histogram, Curve, Findings, Paragraph]


@dataclass(frozen=True)
class Section:
    """part: 2 for a section, 3 for one within it."""

    name: str
    title: Msg
    blocks: tuple[Block, ...]
    part: int = 2
    status: Status | None = None
    annex: bool = False                # begins on a page of its own


@dataclass(frozen=True)
class SignOff:
    """digest: of the manifest of hashes of the run folder; "": it was not sealed. retests: name, digest and signature
    of each run that measured again what had failed."""

    digest: str
    signature: str                     # who signed it, with which key; "": nobody
    parties: tuple[Msg, ...]
    conditions: tuple[Msg, ...] = ()
    retests: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Handover:
    run_id: str
    cluster: str
    suite: str
    made: str                          # day, ISO
    version: str
    contract: Contract
    simulated: str
    statement: Statement
    facts: tuple[tuple[Msg, str], ...]             # the head: when, who, nodes, …
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    sign_off: SignOff
    files: Mapping[str, str] = field(default_factory=dict)     # criteria files: name -> SHA-256

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(b for s in self.sections for b in s.blocks if isinstance(b, Table))
