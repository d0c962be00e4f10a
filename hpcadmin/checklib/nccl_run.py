"""The records of a run of nccl-tests: what it printed, which collective it is of, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

TYPE_BYTES = {"int8": 1, "uint8": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
              "fp16": 2, "bf16": 2, "int32": 4, "uint32": 4, "float": 4, "fp32": 4, "int64": 8, "uint64": 8,
              "double": 8, "fp64": 8}
OUT, IN = "out-of-place", "in-place"


@dataclass(frozen=True)
class Line:
    raw: str        # as it stands there, without terminal codes
    text: str       # without the tags of launchers, stripped


@dataclass(frozen=True)
class Params:
    minimum: int
    maximum: int
    step: int
    factor: bool
    validation: bool
    each: int = 1               # ranks of a process


@dataclass(frozen=True)
class Rank:
    number: int
    host: str
    device: int
    pci: str
    model: str


@dataclass(frozen=True)
class Half:
    """One mode of a row. wrong None: not validated. places: one unit in the last place of time, algbw and busbw."""

    time_us: float
    algbw: float
    busbw: float
    wrong: float | None
    places: tuple[float, float, float] = (0.01, 0.01, 0.01)


@dataclass(frozen=True)
class Row:
    size: int
    count: int
    type_bytes: int
    redop: str
    root: str
    modes: dict[str, Half]      # by "out-of-place", "in-place"; "" where the tool knows one only
    raw: str = ""


@dataclass(frozen=True)
class Header:
    names: tuple[str, ...]
    modes: tuple[str, ...]
    units: str = ""             # "" unknown, "ok", or what is wrong with them
    raw: str = ""
    foreign: bool = False       # of another program (nccom-test)
    milli: bool = False         # times are in milliseconds: the first versions
    inferred: bool = False      # no header stood there: the order of nccl-tests

    @property
    def check_column(self) -> str:
        """#wrong counts elements; the old `error` is the largest relative error."""
        return next((n for n in self.names if n in ("#wrong", "error")), "")


@dataclass
class Run:
    """One run of a program, filled line by line; everything that must come once is a list to see whether it does."""

    starts: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    params: list[Params] = field(default_factory=list)
    lists: int = 0
    ranks: list[Rank] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    torn: list[tuple[str, int]] = field(default_factory=list)   # what is wrong, how many rows stood before
    gaps: list[str] = field(default_factory=list)
    bounds: list[tuple[int, str]] = field(default_factory=list)
    averages: list[tuple[float, str]] = field(default_factory=list)
    closed: bool = False                                        # the line after the average is there
    json: bool = False
    cputime: bool = False
    quotes: list[str] = field(default_factory=list)             # lines that name the run, as they stand there

    @property
    def table(self) -> bool:
        return bool(self.headers or self.rows or self.torn)

    @property
    def ended(self) -> bool:
        return bool(self.bounds or self.averages)

    @property
    def empty(self) -> bool:
        return not (self.starts or self.ends or self.params or self.lists or self.ranks or self.damaged or self.table
                    or self.ended)


class Kind(str, Enum):
    PART = "part"       # something is missing; what is there may be believed
    BAD = "bad"         # it contradicts itself: nothing of it may be believed
    WRONG = "wrong"     # the tool found wrong data
    FATAL = "fatal"     # the program or a node died


@dataclass(frozen=True)
class Problem:
    kind: Kind
    text: str


@dataclass(frozen=True)
class Collective:
    """busbw is algbw times `factor`, algbw is size by time times `moved`, both of the number of ranks.

    shares: the column count is what one rank gives or gets, a size is that times the ranks.
    """

    name: str
    check: str
    factor: Callable[[int], float]
    shares: bool = False
    reduces: bool | None = False        # None: versions differ in whether they print an operation
    rooted: bool = False
    checks_in_place: bool = True
    moved: Callable[[int], float] = lambda n: 1.0

    @property
    def program(self) -> str:
        return f"{self.name}_perf"


def _all_but_one(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {c.check: c for c in (
    Collective("all_reduce", "nccl_allreduce", lambda n: 2 * (n - 1) / n, reduces=True),
    Collective("all_gather", "nccl_allgather", _all_but_one, shares=True),
    Collective("reduce_scatter", "nccl_reducescatter", _all_but_one, shares=True, reduces=True),
    Collective("alltoall", "nccl_alltoall", _all_but_one, shares=True, checks_in_place=False),
    Collective("sendrecv", "nccl_sendrecv", lambda n: 1.0, reduces=None, checks_in_place=False),
    Collective("broadcast", "nccl_broadcast", lambda n: 1.0, rooted=True),
    Collective("reduce", "nccl_reduce", lambda n: 1.0, reduces=True, rooted=True),
    Collective("gather", "nccl_gather", _all_but_one, shares=True, rooted=True),
    Collective("scatter", "nccl_scatter", _all_but_one, shares=True, rooted=True),
    Collective("hypercube", "nccl_hypercube", lambda n: 1.0, shares=True, moved=_all_but_one),
)}
