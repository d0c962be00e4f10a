"""Messages and states from the ledger. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from hpcadmin.hosts import fold
from hpcadmin.sweep.alarms.model import LASTS, Facts, Health, Message, State
from hpcadmin.sweep.alarms.outbox import Batch, Kept
from hpcadmin.sweep.alarms.words import minute
from hpcadmin.sweep.ledger import History, Sweep
from hpcadmin.sweep.model import DONE, Act, Change, Problem, night_name
from hpcadmin.text import plural, printable

DAY_S = 86400.0
_PAST = ((Act.DRAIN, "drained"), (Act.RESUME, "resumed"), (Act.COMMENT, "commented"),
         (Act.UNCOMMENT, "comment taken away"))


def news(batch: Batch, changes: tuple[Change, ...], kept: Kept, history: History, *, name: str,
         cluster: str) -> Message:
    """What one sweep found new, for one channel."""
    return Message(f"{batch.run}.{batch.mark.count}.{name}", "changes", batch.time, cluster, batch.run, changes,
                   (*_recovered(kept), *_did(batch.run, history)))


def digest(history: History, kept: Kept, now: float, *, name: str, cluster: str, failing: Mapping[str, str],
           drained: Sequence[str], unmeasured: Sequence[str] = ()) -> Message:
    """All that there is in the morning; also that there is nothing: who hears nothing knows that something is wrong."""
    notes = [*_recovered(kept)]
    recent = [sweep for sweep in history.sweeps.values() if not sweep.undoes and sweep.begun > now - DAY_S]
    for sweep in recent[-5:]:
        notes += [_how(sweep), *_did(sweep.run, history)]
    if not recent:
        notes.append("no sweep has run for a day")
    notes.append(f"drained by us: {_nodes(drained)}" if drained else "no node is drained by us")
    notes += [f"not measured by the last sweep: {line}" for line in unmeasured]
    notes += [f"the channel {other} does not work: {why}" for other, why in sorted(failing.items()) if other != name]
    return Message(f"digest-{day(now)}.{name}", "digest", now, cluster, "", lasting(history.problems), tuple(notes))


def first(history: History, now: float, why: str, *, name: str, cluster: str) -> Message:
    """For a channel that is new: what there is already."""
    return Message(f"first-{int(now)}.{name}", "digest", now, cluster, "", lasting(history.problems), (why,))


def lasting(problems: Mapping[str, Problem]) -> tuple[Change, ...]:
    return tuple(Change(LASTS, problem) for _, problem in sorted(problems.items()))


def day(now: float) -> str:
    return datetime.fromtimestamp(now).strftime("%Y-%m-%d")


def _recovered(kept: Kept) -> tuple[str, ...]:
    if not kept.failing_since:
        return ()
    return (f"this channel did not work from {minute(kept.failing_since)} until now: {kept.error}",)


def _how(sweep: Sweep) -> str:
    if not sweep.ended:
        return f"sweep {sweep.run} has not come to its end"
    answered = "" if sweep.looked else ", Slurm did not answer"
    return f"sweep {sweep.run} of the night of {night_name(sweep.night)}: exit status {sweep.status}{answered}"


def _did(run: str, history: History) -> list[str]:
    found = []
    for act, word in _PAST:
        nodes = sorted({intent.node for intent in history.intents.values() if intent.run == run and intent.act == act
                        and intent.id in history.outcomes and history.outcomes[intent.id].result == DONE})
        if nodes:
            found.append(f"{plural(len(nodes), 'node')} {word}: {_nodes(nodes)}")
    return found


def _nodes(names: Sequence[str]) -> str:
    return printable(fold(sorted(names)), limit=200)


def state(history: History, facts: Facts, channels: Sequence[Health], now: float, *, cluster: str,
          shown: Sequence[str]) -> State:
    """For channels that show all that there is; other channels that do not work are a problem like any other."""
    problems = dict(history.problems)
    for one in channels:
        if one.failing_since:
            key = f"alarm/{one.name}"
            problems[key] = Problem(key, "fails", f"the channel {one.name} does not work: {one.error}",
                                    since=one.failing_since)
    sweeps = [sweep for sweep in history.sweeps.values() if not sweep.undoes]
    ended = [sweep for sweep in sweeps if sweep.ended]
    last = ended[-1] if ended else None
    actions = Counter((history.intents[entry.id].act, entry.result) for entry in history.outcomes.values())
    return State(now, cluster, problems, tuple(key for key in shown if key not in problems),
                 tuple(sorted(history.ours)), sweeps[-1].begun if sweeps else 0.0, last.ended if last else 0.0,
                 last.looked if last else False,
                 int(last.status) if last is not None and last.status.isdigit() else None, actions, facts,
                 tuple(channels))
