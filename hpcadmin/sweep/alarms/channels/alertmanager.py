"""Alertmanager: its API v2. An alert says how long it holds without a word of ours, and is sent anew every night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcadmin.sweep.alarms.hook import Hook, hook_problem
from hpcadmin.sweep.alarms.hook import address as address_of
from hpcadmin.sweep.alarms.http import post
from hpcadmin.sweep.alarms.metrics import kind_of
from hpcadmin.sweep.alarms.model import Channel, State
from hpcadmin.sweep.alarms.secret import one_of, secret
from hpcadmin.sweep.alarms.words import LINE, utc
from hpcadmin.sweep.model import Problem
from hpcadmin.text import printable

API = "/api/v2/alerts"
MAX_ALERTS = 1000
_NAMES = {"node": "HpcadminNode", "act": "HpcadminAction", "budget": "HpcadminBudget", "missed": "HpcadminMissed",
          "unmeasured": "HpcadminUnmeasured", "unknown": "HpcadminUnknown", "slurm": "HpcadminSlurm",
          "look": "HpcadminLook", "sweep": "HpcadminSweep", "alarm": "HpcadminAlarm", "trend": "HpcadminTrend",
          "guard": "HpcadminGuard", "suite": "HpcadminSuite", "other": "HpcadminOther"}
_CRITICAL = ("budget", "slurm", "sweep")


@dataclass(frozen=True)
class Settings(Hook):
    """url: of Alertmanager, without /api/v2/alerts."""

    hold_h: float = 30.0                 # so long an alert holds when no sweep says that it goes on
    token_file: str = ""                 # sent as Authorization: Bearer
    token_env: str = ""


def alerts(state: State, hold_h: float) -> list[dict[str, Any]]:
    """Those that there are, and an end for each that was shown before. What an alert is known by never changes while
    it lasts: the text is an annotation. Of more than are sent the critical ones come first; an end that is not sent
    comes when the alert has held for hold_h."""
    now = {key: _alert(problem, state, state.time + hold_h * 3600) for key, problem in sorted(
        state.problems.items(), key=lambda item: (kind_of(item[1]) not in _CRITICAL, item[0]))}
    over = [_alert(Problem(key, "", "over", node=key.partition("/")[2]), state, state.time)
            for key in sorted(state.ended) if key not in now]
    return [*now.values(), *over][:MAX_ALERTS]


def _alert(problem: Problem, state: State, until: float) -> dict[str, Any]:
    kind = kind_of(problem)
    labels = {
        "alertname": _NAMES[kind], "source": "hpcadmin", "severity": "critical" if kind in _CRITICAL else "warning",
        "cluster": printable(state.cluster, limit=100), "subject": printable(problem.key, limit=200),
    }
    if kind in ("node", "act"):
        labels["node"] = printable(problem.key.partition("/")[2], limit=100)
    since = min(problem.since or state.time, state.time)
    return {"labels": {name: value for name, value in labels.items() if value},
            "annotations": {"summary": printable(problem.text, limit=LINE)},
            "startsAt": utc(since), "endsAt": utc(until)}


def show(settings: Settings, state: State, timeout_s: float) -> None:
    token = secret(settings.token_file, settings.token_env, "token")
    found = alerts(state, settings.hold_h)
    if found:
        post(address_of(settings).rstrip("/") + API, found, timeout_s, ca_file=settings.ca_file, secrets=(token,),
             headers={"Authorization": f"Bearer {token}"} if token else {}, plain_http=settings.plain_http)


def problem(settings: Settings) -> tuple[str, str] | None:
    if not one_of(settings.token_file, settings.token_env):
        return "token_file", "and token_env: only one of them"
    if not 1 <= settings.hold_h <= 1000:
        return "hold_h", "must be 1 to 1000"
    return hook_problem(settings)


CHANNEL = Channel(Settings, show=show, problem=problem)
