"""What the looks of tonight and of nights before say against each node, and what the policy wants done. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hpcadmin.site_sweep import SweepSite
from hpcadmin.sweep.ledger import History
from hpcadmin.sweep.model import Act, Fault, Kind, Look, Result
from hpcadmin.sweep.strikes import accuse, at_least
from hpcadmin.sweep.words import bare

DAY_S = 86400.0
_ORDER = {Act.DRAIN: 0, Act.COMMENT: 1, Act.TELL: 2}


def policy_of(policy: SweepSite, check: str, kind: Kind) -> Act:
    for pattern, action in policy.checks.items():
        if fnmatchcase(bare(check), pattern):
            return Act(action)
    if bare(check).partition(":")[0] == "drift" and kind is Kind.NODE:
        return Act(policy.drift)
    return Act(getattr(policy, kind.value))


@dataclass(frozen=True)
class Ground:
    """What there is beside the looks. sound: nodes in service; failing with any other accuses nobody. most: nodes that
    may be drained in a night."""

    now: float
    sound: frozenset[str]
    most: int


def faults_of(looks: tuple[Look, ...], history: History, policy: SweepSite,
              ground: Ground) -> dict[str, list[Fault]]:
    """node -> its faults, those that matter most first. history has the looks of tonight already where they are of the
    network (the latest of each pair counts)."""
    found: dict[str, list[Fault]] = defaultdict(list)
    for look in latest(looks).values():
        if look.result is Result.BAD and look.kind is not Kind.NETWORK:
            act = policy_of(policy, look.check, look.kind)
            text = look.text
            if (look.node, look.check) in history.dismissed:
                act, text = Act.TELL, f"{text} (a drain for it was undone; it is left alone until it has passed once)"
            elif look.node not in history.ours and look.time <= last_drain(history, look.node, look.check):
                act, text = Act.TELL, f"{text} (before it was drained; nobody has looked since it was resumed)"
            found[look.node].append(Fault(look.check, look.kind, act, text, boot=look.boot))
    for check in sorted({check for check, _ in history.pairs}):
        _network(found, check, history, policy, ground)
    return {node: sorted(faults, key=lambda f: (_ORDER[f.act], f.kind is not Kind.HARDWARE, f.check))
            for node, faults in found.items()}


def latest(looks: tuple[Look, ...]) -> Mapping[tuple[str, str], Look]:
    """Of looks of one check at one node the last; of those of one moment the worst."""
    rank = {Result.GOOD: 0, Result.UNKNOWN: 1, Result.BAD: 2}
    found: dict[tuple[str, str], Look] = {}
    for look in looks:
        if look.kind is Kind.NETWORK:
            continue
        key = (look.node, look.check)
        if key not in found or (look.time, rank[look.result]) > (found[key].time, rank[found[key].result]):
            found[key] = look
    return found


def last_drain(history: History, node: str, check: str) -> float:
    """When we drained it last for that; 0: never. What was seen before is no news: who has resumed it since knows."""
    return max(history.drains.get((node, check), ()), default=0.0)


def _network(found: dict[str, list[Fault]], check: str, history: History, policy: SweepSite,
             ground: Ground) -> None:
    out = {node for node, standing in history.ours.items() if check in standing.intent.checks}
    looks = [look for (name, _), look in history.pairs.items() if name == check
             and ground.now - look.time <= policy.strike_days * DAY_S
             and not any(look.time <= max(history.dismissed.get((node, check), 0.0), last_drain(history, node, check))
                         for node in look.pair)]
    ill = {node for node, faults in found.items() if any(f.act is Act.DRAIN and f.kind is not Kind.NETWORK
                                                         for f in faults)}
    names = {name for look in looks for name in look.pair}
    told = accuse(looks, policy.strikes, out, (names - ground.sound) | ill | set(history.ours))
    bad = at_least(look for look in looks if ground.now - look.time <= DAY_S and not look.pair & out)
    words = {frozenset((look.node, look.partner)): look.text for look in looks}
    for node, partners in told.accused.items():
        act = policy_of(policy, check, Kind.NETWORK)
        first = words.get(frozenset((node, partners[0])), "")
        text = (f"bad with {', '.join(partners[:4])}{' and others' if len(partners) > 4 else ''}"
                f"{f': {first}' if first else ''}")
        if act is Act.DRAIN and bad > ground.most:
            act, text = Act.TELL, (f"{text}; but at least {bad} nodes have failed with another tonight: something that "
                                   "they share may be the cause")
        found[node].append(Fault(check, Kind.NETWORK, act, text, partners))
    for node, partners in told.unclear.items():
        found[node].append(Fault(check, Kind.NETWORK, Act.TELL, f"bad with {', '.join(partners[:4])}, which fail as "
                                 "often themselves: it cannot be told which of them it is", partners))
    for node, partners in told.strikes.items():
        found[node].append(Fault(check, Kind.NETWORK, Act.TELL, f"bad with {', '.join(partners[:4])}"
                                 f"{' and others' if len(partners) > 4 else ''}: "
                                 f"{_strikes(len(partners), policy.strikes)}", partners))


def _strikes(count: int, wanted: int) -> str:
    return f"{count} of {wanted} strikes" if count < wanted else "not all of that is its own fault"
