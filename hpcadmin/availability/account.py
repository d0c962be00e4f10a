"""The account of a period: of each node and of all together, at least and at most, and what the contract's line says.

availability = (period - absent - planned - down - unknown) / (period - absent - planned) at least; at most without
taking the unknown away. All sums are whole seconds, all comparisons are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Decimal
from enum import Enum
from fractions import Fraction

from hpcadmin.availability.incidents import Incident, incidents_of
from hpcadmin.availability.period import Period
from hpcadmin.availability.timeline import Kind, Segment


class Line(str, Enum):
    """MET only where it holds at least; NOT MET only where it does not hold at most."""

    MET = "MET"
    NOT_MET = "NOT MET"
    NOT_SHOWN = "NOT SHOWN"


@dataclass(frozen=True)
class Account:
    """Seconds of each kind, of one node or of several together."""

    name: str
    seconds: Mapping[Kind, int]
    segments: tuple[Segment, ...] = ()
    incidents: int = 0
    longest: int = 0

    def of(self, kind: Kind) -> int:
        return self.seconds.get(kind, 0)

    @property
    def total(self) -> int:
        return sum(self.seconds.values())

    @property
    def counted(self) -> int:
        return self.total - self.of(Kind.ABSENT) - self.of(Kind.PLANNED)

    @property
    def least(self) -> Fraction | None:
        """None where no time counts."""
        return Fraction(self.of(Kind.UP), self.counted) if self.counted else None

    @property
    def most(self) -> Fraction | None:
        return Fraction(self.of(Kind.UP) + self.of(Kind.UNKNOWN), self.counted) if self.counted else None

    def line(self, target: Fraction) -> Line:
        least, most = self.least, self.most
        if least is None or most is None:
            return Line.NOT_SHOWN
        return Line.MET if least >= target else Line.NOT_MET if most < target else Line.NOT_SHOWN

    def allowed(self, target: Fraction) -> int:
        """Seconds that it may be down."""
        return int((1 - target) * self.counted)


@dataclass(frozen=True)
class Availability:
    """nodes: the worst first. caveats: what the figures do not have in them."""

    period: Period
    target: Fraction
    cluster: str
    whole: Account
    nodes: tuple[Account, ...]
    incidents: tuple[Incident, ...] = ()
    planned: tuple[Incident, ...] = ()
    unknown: tuple[Incident, ...] = ()
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def line(self) -> Line:
        return self.whole.line(self.target)

    @property
    def status(self) -> int:
        return {Line.MET: 0, Line.NOT_MET: 1, Line.NOT_SHOWN: 3}[self.line]


def account(period: Period, segments: Mapping[str, tuple[Segment, ...]], target: Fraction, cluster: str = "", *,
            notes: Iterable[str] = (), caveats: Iterable[str] = (), problems: Iterable[str] = ()) -> Availability:
    """segments: of each node those of the whole period."""
    nodes = [_node(name, of) for name, of in sorted(segments.items())]
    found = {kind: incidents_of(segments, kind, period.end) for kind in (Kind.DOWN, Kind.PLANNED, Kind.UNKNOWN)}
    totals = {kind: sum(n.of(kind) for n in nodes) for kind in Kind}
    down = found[Kind.DOWN]
    whole = Account(cluster, totals, incidents=len(down), longest=max((i.seconds for i in down), default=0))
    return Availability(period, target, cluster, whole, tuple(sorted(nodes, key=_badness)), down, found[Kind.PLANNED],
                        found[Kind.UNKNOWN], tuple(notes), tuple(caveats), tuple(problems))


def _node(name: str, segments: tuple[Segment, ...]) -> Account:
    seconds = dict.fromkeys(Kind, 0)
    for s in segments:
        seconds[s.kind] += s.seconds
    lengths, last = [0], None
    for s in segments:
        if s.kind is Kind.DOWN:
            if last == s.start:
                lengths[-1] += s.seconds
            else:
                lengths.append(s.seconds)
            last = s.end
    return Account(name, seconds, segments, len(lengths) - 1, max(lengths))


def _badness(node: Account) -> tuple[object, ...]:
    return (node.least is None, node.least or Fraction(0), -node.of(Kind.DOWN), node.name)


def percent(value: Fraction | None, digits: int = 3) -> str:
    """Rounded down, so that 99.9499 is never shown as 99.950, and 100.000 is all of it."""
    if value is None:
        return "-"
    exact = Decimal(value.numerator) * 100 / Decimal(value.denominator)
    return str(exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_FLOOR))


def target_text(target: Fraction) -> str:
    text = f"{float(target * 100):.9f}".rstrip("0").rstrip(".")
    return f"{text} %"
