"""A stand-in for Slurm's nodes as a sweep sees and changes them, looks at them, and a clock: for tests of the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import SlurmError
from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.client import NoAnswerError
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.slurm.states import NodeState, node_state
from hpcadmin.sweep.model import Entry, Kind, Look, Result
from hpcadmin.sweep.night import Diary, Report, Terms, run_id, sweep_with
from hpcadmin.sweep.sources import Looks

DAY_S = 86400.0
NIGHT = 1_800_000_000.0         # 2027-01-15 08:00 UTC
BOOT = NIGHT - 30 * DAY_S
FREE = SweepSite(night_nodes=1000, night_percent=100, total_nodes=1000, total_percent=100)


class KilledError(BaseException):
    """As a process that is killed: nothing after it runs."""


@dataclass
class FakeNodes:
    """at: called with what is about to be asked, and once more with "after …" when it has been done; it may change
    nodes, as another admin does, or raise."""

    nodes: dict[str, NodeRecord]
    at: Callable[[str], None] = lambda what: None
    asked: list[str] = field(default_factory=list)
    by: str = "root"                # who asks for a drain
    keeps_reason: bool = False      # as Slurm 24.11 does when a node is resumed

    @classmethod
    def of(cls, *names: str, **states: str) -> FakeNodes:
        return cls({name: NodeRecord(name, node_state(states.get(name, "IDLE")), boot_time=BOOT)
                    for name in [*names, *(n for n in states if n not in names)]})

    def all_nodes(self) -> tuple[NodeRecord, ...]:
        self.at("all")
        return tuple(self.nodes.values())

    def one_node(self, name: str) -> NodeRecord | None:
        self.at(f"one {name}")
        return self.nodes.get(name)

    def drain(self, name: str, reason: str) -> None:
        self._change("drain", name, lambda node: replace(
            node, reason=reason, reason_by=self.by, state=flagged(node.state, "DRAIN")))

    def undrain(self, name: str) -> None:
        self._change("undrain", name, lambda node: replace(
            node, reason=node.reason if self.keeps_reason else "", boot_time=None,
            state=NodeState(node.state.base, node.state.flags - {"DRAIN"} | {"NOT_RESPONDING"})))

    def comment(self, name: str, text: str) -> None:
        self._change("comment", name, lambda node: replace(node, comment=text))

    def _change(self, what: str, name: str, how: Callable[[NodeRecord], NodeRecord]) -> None:
        self.at(f"{what} {name}")
        self.asked.append(f"{what} {name}")
        if name not in self.nodes:
            raise SlurmError("Invalid node name specified", where="scontrol")
        self.nodes[name] = how(self.nodes[name])
        self.at(f"after {what} {name}")

    # --- what others do -------------------------------------------------------------------------------------------

    def set(self, name: str, state: str | None = None, **more: object) -> None:
        node = self.nodes[name]
        if state is not None:
            node = replace(node, state=node_state(state))
        self.nodes[name] = replace(node, **more)     # type: ignore[arg-type]

    def settle(self) -> None:
        """Nodes register again after a resume."""
        for name, node in self.nodes.items():
            if "NOT_RESPONDING" in node.state.flags:
                self.nodes[name] = replace(node, boot_time=node.boot_time or BOOT,
                                           state=NodeState(node.state.base, node.state.flags - {"NOT_RESPONDING"}))


def flagged(state: NodeState, *flags: str) -> NodeState:
    return NodeState(state.base, state.flags | set(flags), "+".join([state.base, *sorted(state.flags | set(flags))]))


def no_answer(what: str) -> Callable[[str], None]:
    """Slurm does not answer when that is asked."""
    def at(asked: str) -> None:
        if asked.startswith(what):
            raise NoAnswerError("did not answer within 60 s", where="scontrol")
    return at


def health(node: str, time: float = NIGHT, *, hardware: bool = False, boot: str = "b1", **checks: str) -> list[Look]:
    """health("n1", mount="bad: not mounted", gpu="good")."""
    found = []
    for check, said in checks.items():
        word, _, text = said.partition(": ")
        found.append(Look(f"health/{check}", node, Result(word), Kind.HARDWARE if hardware else Kind.NODE, time, text,
                          boot=boot))
    return found


def pair(a: str, b: str, result: str, time: float = NIGHT, check: str = "ib") -> Look:
    one, two = sorted((a, b))
    return Look(f"test/{check}", one, Result(result), Kind.NETWORK, time, "3 GB/s", partner=two)


@dataclass(frozen=True)
class Given:
    """A source that says what it was given."""

    found: Sequence[Look]
    unmeasured: tuple[str, ...] = ()

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        return Looks(tuple(look for look in self.found if look.node in nodes),
                     dict.fromkeys(self.unmeasured, "no result"))


class Ledger:
    """Entries in memory. at: called before and after each write, and may raise."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)
        self.at: Callable[[str], None] = lambda what: None

    def write(self, *entries: Entry) -> None:
        for entry in entries:
            self.at(f"write {entry.kind}")
            self.entries.append(entry)
            self.at(f"written {entry.kind}")


def night(slurm: FakeNodes, ledger: Ledger, looks: Sequence[Look], *, now: float = NIGHT, policy: SweepSite = FREE,
          dry_run: bool = False, unmeasured: tuple[str, ...] = ()) -> Report:
    diary = Diary(ledger.entries, None if dry_run else ledger)
    return sweep_with(diary, policy, slurm, [Given(looks, unmeasured)], Terms(run_id(now), lambda: now, dry_run))


def acts(report: Report) -> dict[str, str]:
    """node -> what was decided, without those of which nothing was."""
    assert report.plan is not None
    return {d.node: d.act.value for d in report.plan.decisions if d.act.value != "none"}
