"""What an acceptance is: a run, the runs that measured again what had failed, and what became of each test in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcadmin.check import Measurement, Status, Subject, Verdict


@dataclass(frozen=True)
class Part:
    """One of its runs. counts: whether what was good in it counts as good; why: why not. seal: SHA-256 of its
    SHA256SUMS; "": it has none, or nobody looked."""

    run: str
    retest_of: str
    started: str
    ended: str
    folder: str
    state: str
    counts: bool = True
    why: str = ""
    tests: int = 0                      # that gave a result
    simulated: str = ""
    seal: str = ""


@dataclass(frozen=True)
class Result:
    """What one run found for a test. test: its id in that run; value: of the worst verdict, in words."""

    run: str
    test: str
    status: Status
    value: str = ""
    remark: str = ""                    # why it does not count, though it is good
    verdicts: tuple[Verdict, ...] = ()
    measured: tuple[Measurement, ...] = ()


@dataclass(frozen=True)
class Again:
    """A test, or what the peers say of a node, that was bad or was measured again. results: oldest first. status: what
    stands; by: the run that it is of."""

    check: str
    subject: Subject
    status: Status
    by: str
    test: str                           # its id in the acceptance; "": it is about none
    results: tuple[Result, ...]
    remark: str = ""

    @property
    def before(self) -> Result | None:
        """What stood before the result that stands now; None: nothing did."""
        return self.results[self.stands - 1] if self.stands else None

    @property
    def stands(self) -> int:
        """The place of the result that counts."""
        return max((i for i, r in enumerate(self.results) if r.run == self.by), default=0)


@dataclass(frozen=True)
class Swap:
    """What was replaced before a run. kind: node, gpu, nic."""

    run: str
    node: str
    kind: str
    what: str                           # "serial", "GPU 3"
    old: str
    new: str


@dataclass(frozen=True)
class Acceptance:
    """first: the run that it began with. parts: all of its runs, in the order of time, that one first."""

    first: str
    parts: tuple[Part, ...]
    again: tuple[Again, ...] = ()
    swaps: tuple[Swap, ...] = ()
    remarks: tuple[str, ...] = field(default=())

    @property
    def last(self) -> str:
        return self.parts[-1].run

    def part(self, run: str) -> Part | None:
        return next((p for p in self.parts if p.run == run), None)

    def run_of(self, test: str) -> str:
        """The run whose test it is, by its id in the acceptance."""
        run, found, _ = test.rpartition("/")
        return run if found else self.first

    def place(self, path: str) -> tuple[str, str]:
        """(folder, path in it) of a raw output; folder "": the first run's."""
        head, found, rest = path.partition("/")
        if found:
            for part in self.parts[1:]:
                if part.run == head:
                    return part.folder, rest
        return "", path
