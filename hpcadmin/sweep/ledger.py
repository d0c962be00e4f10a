"""What the ledger's entries come to: whose drains are ours, what is pending, strikes, passes, problems. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hpcadmin.sweep.model import DONE, PENDING, Act, Entry, Kind, Look, Problem, Result

Key = tuple[str, str]                       # node, check


@dataclass(frozen=True)
class Standing:
    """A drain of ours that stands: what was meant, and since when."""

    intent: Entry
    time: float
    by: str = ""                # as whom we did it, where Slurm tells


@dataclass(frozen=True)
class Sweep:
    """A sweep that has begun. ended 0: it was killed, or runs. looked: Slurm answered. undoes: it only took back
    what that one did."""

    run: str
    night: int
    begun: float
    ended: float = 0.0
    looked: bool = False
    status: str = ""
    undoes: str = ""


@dataclass
class History:
    """The ledger read from its beginning to its end."""

    ours: dict[str, Standing] = field(default_factory=dict)
    comments: dict[str, Entry] = field(default_factory=dict)
    pending: dict[str, Entry] = field(default_factory=dict)
    intents: dict[str, Entry] = field(default_factory=dict)
    outcomes: dict[str, Entry] = field(default_factory=dict)            # the last of each intent
    by: dict[str, str] = field(default_factory=dict)                    # intent of a drain -> as whom we did it
    over: dict[str, float] = field(default_factory=dict)                # the same -> when it was not ours any more
    reasons: dict[str, dict[str, Entry]] = field(default_factory=lambda: defaultdict(dict))
    pairs: dict[tuple[str, frozenset[str]], Look] = field(default_factory=dict)
    passes: dict[Key, list[Look]] = field(default_factory=lambda: defaultdict(list))
    dismissed: dict[Key, float] = field(default_factory=dict)           # undone by a person, and when
    drains: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    night_drains: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    night_comments: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    problems: dict[str, Problem] = field(default_factory=dict)
    sweeps: dict[str, Sweep] = field(default_factory=dict)
    told: set[tuple[str, str, str, float]] = field(default_factory=set)  # looks that are in the ledger

    def reasons_of(self, node: str) -> dict[str, Entry]:
        """Our reasons of this node, whatever became of them -> the intent."""
        return self.reasons.get(node, {})

    def missed(self, night: int) -> list[int]:
        """Nights since the last sweep before this one on which there was none."""
        nights = [sweep.night for sweep in self.sweeps.values() if sweep.night < night
                  and not sweep.undoes]
        return list(range(max(nights) + 1, night)) if nights else []

    def unfinished(self) -> list[Sweep]:
        """Sweeps that never came to their end."""
        return [sweep for sweep in self.sweeps.values() if not sweep.ended]


def fold(entries: Iterable[Entry], history: History | None = None) -> History:
    """history: of the entries before these; it is changed."""
    history = History() if history is None else history
    for entry in entries:
        _STEPS.get(entry.kind, _nothing)(history, entry)
    return history


def _nothing(history: History, entry: Entry) -> None:
    """Notes are for readers."""


def _begin(history: History, entry: Entry) -> None:
    history.sweeps[entry.run] = Sweep(entry.run, entry.night, entry.time, undoes=entry.undoes)


def _end(history: History, entry: Entry) -> None:
    begun = history.sweeps.get(entry.run)
    history.sweeps[entry.run] = Sweep(entry.run, entry.night, begun.begun if begun else entry.time, entry.time,
                                      entry.looked, entry.result, begun.undoes if begun else "")


def _intent(history: History, entry: Entry) -> None:
    history.intents[entry.id] = history.pending[entry.id] = entry
    if entry.act == Act.DRAIN:
        history.reasons[entry.node][entry.reason] = entry
        history.night_drains[entry.night].add(entry.id)
    elif entry.act == Act.COMMENT:
        history.night_comments[entry.night].add(entry.id)


def _outcome(history: History, entry: Entry) -> None:
    intent = history.intents.get(entry.id)
    if intent is None:
        return
    history.outcomes[entry.id] = entry
    if entry.result == PENDING:
        return
    history.pending.pop(entry.id, None)
    if entry.result == DONE:
        if entry.by:
            history.by.setdefault(intent.id, entry.by)
        _done(history, intent)
    else:
        history.night_drains[intent.night].discard(intent.id)
        history.night_comments[intent.night].discard(intent.id)


def _done(history: History, intent: Entry) -> None:
    """Since when is told by the intent: the outcome may have been found nights later."""
    node, time = intent.node, intent.time
    if intent.act == Act.DRAIN:
        history.ours[node] = Standing(intent, time, history.by.get(intent.id, ""))
        history.night_drains[intent.night].add(intent.id)
        for check in intent.checks:
            if time not in history.drains[node, check]:
                history.drains[node, check].append(time)
            history.passes.pop((node, check), None)
    elif intent.act == Act.RESUME:
        if (before := history.ours.pop(node, None)) is not None:
            history.over[before.intent.id] = time
    elif intent.act == Act.COMMENT:
        history.comments[node] = intent
    elif intent.act == Act.UNCOMMENT:
        history.comments.pop(node, None)
    if intent.undoes and intent.act in (Act.RESUME, Act.UNCOMMENT):
        history.dismissed.update(((node, check), time) for check in intent.checks)


def _left(history: History, entry: Entry) -> None:
    """Somebody else has changed what we had done: it is ours no more."""
    if entry.act == Act.COMMENT:
        history.comments.pop(entry.node, None)
    elif (before := history.ours.pop(entry.node, None)) is not None:
        history.over[before.intent.id] = entry.time


def _look(history: History, entry: Entry) -> None:
    look = Look(entry.checks[0], entry.node, Result(entry.result), Kind(entry.kinds[0]), entry.measured, entry.text,
                entry.partner, entry.boot, entry.source)
    take_look(history, look)


def take_look(history: History, look: Look) -> None:
    """One look more; of a pair the latest counts, of a node what has passed since it last did not."""
    history.told.add(told_key(look))
    if look.kind is Kind.NETWORK:
        before = history.pairs.get((look.check, look.pair))
        if look.result is not Result.UNKNOWN and (before is None or look.time >= before.time):
            history.pairs[look.check, look.pair] = look
        return
    key = (look.node, look.check)
    if look.result is Result.GOOD:
        history.passes[key].append(look)
        if look.time > history.dismissed.get(key, look.time):
            del history.dismissed[key]
    elif look.result is Result.BAD:
        history.passes.pop(key, None)


def told_key(look: Look) -> tuple[str, str, str, float]:
    return look.check, look.node, look.partner, look.time


def _problem(history: History, entry: Entry) -> None:
    if entry.result == "ends":
        history.problems.pop(entry.key, None)
        return
    before = history.problems.get(entry.key)
    history.problems[entry.key] = Problem(entry.key, entry.signature, entry.text, entry.node, entry.checks,
                                          before.since if before else entry.time)


_STEPS = {"begin": _begin, "end": _end, "intent": _intent, "outcome": _outcome, "left": _left, "look": _look,
          "problem": _problem}


def worth_keeping(history: History, looks: Iterable[Look]) -> list[Look]:
    """The looks that later nights need: strikes, what clears them, and what was seen of what we have drained, or have
    been told to leave alone. None twice."""
    found: dict[tuple[str, str, str, float], Look] = {}
    for look in looks:
        if look.result is Result.UNKNOWN or told_key(look) in history.told:
            continue
        if look.kind is Kind.NETWORK:
            wanted = look.result is Result.BAD or (look.check, look.pair) in history.pairs or any(
                look.check in history.ours[node].intent.checks for node in look.pair if node in history.ours)
        else:
            standing = history.ours.get(look.node)
            comment = history.comments.get(look.node)
            wanted = ((look.node, look.check) in history.dismissed
                      or (standing is not None and look.check in standing.intent.checks)
                      or (comment is not None and look.check in comment.checks))
        if wanted:
            found[told_key(look)] = look
    return sorted(found.values(), key=lambda look: (look.time, look.check, look.node, look.partner))
