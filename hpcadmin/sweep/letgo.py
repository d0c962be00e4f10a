"""When a node that we have drained may be resumed: what failed has passed since, and never by time alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.site_sweep import SweepSite
from hpcadmin.slurm.node_records import NodeRecord
from hpcadmin.sweep.ledger import History, Standing
from hpcadmin.sweep.model import Look, Result, night_of
from hpcadmin.sweep.states import drained_idle, unfit
from hpcadmin.sweep.words import bare
from hpcadmin.text import plural

DAY_S = 86400.0
BOOT_WOBBLE_S = 120.0       # BootTime is reckoned from the uptime, and differs by a second or so each time


@dataclass(frozen=True)
class Letgo:
    """why: why not, "" when it may go. how: on what, for the decision's text."""

    why: str = ""
    how: str = ""


def let_go(record: NodeRecord, standing: Standing, history: History, policy: SweepSite,
           tonight: Mapping[tuple[str, str], Look]) -> Letgo:
    """tonight: (node, check) -> the last look."""
    intent = standing.intent
    if not stands(record, intent.reason):
        return Letgo("it is not as we left it")
    if not policy.resume:
        return Letgo("[sweep] resume is off: a person resumes it")
    if often := _too_often(intent.node, intent.checks, history, policy, standing.time):
        return Letgo(often)
    booted = rebooted(record, standing, history)
    wanted = policy.passes_after_reboot if booted else policy.passes
    for check in intent.checks:
        partners = intent.partners.get(check, ())
        if partners:
            if why := _partners(intent.node, check, partners, history, max(standing.time, record.boot_time or 0.0)):
                return Letgo(why)
            continue
        good = passed(intent.node, check, history, standing.time, record.boot_time)
        nights = len({night_of(look.time) for look in good})
        if nights < wanted:
            return Letgo(f"{bare(check)} has passed on {nights} of {plural(wanted, 'night')}"
                         f"{', since the node was booted' if booted else ''}" if nights else
                         f"{bare(check)} has not passed since")
        if (look := tonight.get((intent.node, check))) is None or look.result is not Result.GOOD:
            return Letgo(f"{bare(check)} has passed since, but how it is tonight is not known")
    if why := unfit(record):
        return Letgo(f"what failed has passed, but it {why}")
    if not drained_idle(record):
        return Letgo("what failed has passed, but jobs still run on it")
    return Letgo(how=" since, after a reboot" if booted else " since")


def stands(record: NodeRecord, reason: str) -> bool:
    """Whether it is drained, and for this very reason of ours: the run's id is in it."""
    return not record.unclear and "DRAIN" in record.state.flags and record.own_reason == reason


def passed(node: str, check: str, history: History, since: float, boot_time: float | None = None) -> list[Look]:
    """The looks at which it was good, none bad after them, since it was drained and in this boot."""
    first = max(since, boot_time or 0.0)
    return [look for look in history.passes.get((node, check), ()) if look.time > first]


def _partners(node: str, check: str, partners: tuple[str, ...], history: History, since: float) -> str:
    open_ = []
    for partner in partners:
        look = history.pairs.get((check, frozenset((node, partner))))
        if look is None or look.result is not Result.GOOD or look.time <= since:
            open_.append(partner)
    return f"{bare(check)} has not passed since with {', '.join(open_[:4])}" if open_ else ""


def rebooted(record: NodeRecord, standing: Standing, history: History) -> bool:
    """Whether the node was booted since it was drained; what cannot be told counts as yes."""
    intent = standing.intent
    boots = {look.boot for check in intent.checks for look in history.passes.get((intent.node, check), ())
             if look.time > standing.time and look.boot}
    if intent.boot and boots:
        return boots != {intent.boot}
    if record.boot_time is None or intent.boot_time is None:
        return True
    return abs(record.boot_time - intent.boot_time) > BOOT_WOBBLE_S


def _too_often(node: str, checks: tuple[str, ...], history: History, policy: SweepSite, time: float) -> str:
    for check in checks:
        before = [t for t in history.drains.get((node, check), ()) if time - policy.again_days * DAY_S <= t < time]
        if len(before) >= policy.again:
            return (f"it was drained for {bare(check)} {plural(len(before), 'time')} before in "
                    f"{plural(policy.again_days, 'day')}: a person resumes it")
    return ""
