"""Where looks come from, behind one interface: results of hpcadmin-health, verdicts of runs. Unreadable is unknown."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from hpcadmin.check import Status, Verdict
from hpcadmin.children import module_argv
from hpcadmin.errors import StoreError
from hpcadmin.hosts import is_node_name
from hpcadmin.remote.local import Local
from hpcadmin.rundata import Run, read_run
from hpcadmin.sweep.model import AHEAD_S, Kind, Look, Problem, Result
from hpcadmin.text import printable

MAX_HEALTH_BYTES = 4 * 1024 * 1024
MAX_FOLDER_BYTES = 256 * 1024 * 1024
MAX_RESULTS = 2000
CHECK_S = 10.0
MAX_TIME = 1e11                 # seconds since 1970: a whole number may be too large for a float
MAX_FACTS = 200
WITH_FACTS = ("gpu", "gpu_temperature", "mount", "ping")        # what alarms compare with a threshold
SIMULATED = ("cpu", "dimms", "dmi", "drift", "gpu", "ib", "pcie")    # what a lab's profile stands in for
_STATUSES = ("good", "bad", "unknown")


@dataclass(frozen=True)
class Looks:
    """unmeasured: node -> why nothing of it is known. notes: what else there is to say. unknown: beginnings of keys of
    problems of which it is not known whether they go on."""

    looks: tuple[Look, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()      # what is told beside faults of nodes
    looked: bool = True                     # whether anything was looked at
    unknown: tuple[str, ...] = ()


class Source(Protocol):
    """One way to look at nodes. It raises nothing: what it could not see is unknown."""

    def looks(self, nodes: Sequence[str], now: float) -> Looks: ...


@dataclass(frozen=True)
class HealthFolder:
    """The JSON that hpcadmin-health --json writes, NODE.json in one folder, however it came there. It is read by a
    process of its own: a server that is dead costs seconds_s, and what was read by then counts."""

    folder: Path
    hours: float
    seconds_s: float = 60.0

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        texts, rest = self._texts([node for node in nodes if is_node_name(node)], self.seconds_s)
        found: list[Look] = []
        unmeasured: dict[str, str] = {}
        for node in nodes:
            try:
                one = texts.get(node, {"why": rest})
                if "text" not in one:
                    raise ValueError(one.get("why", rest))
                found += parse_health(one["text"], node, now, self.hours * 3600)
            except ValueError as exc:
                unmeasured[node] = printable(str(exc), limit=200)
        return Looks(tuple(found), unmeasured)

    def missing(self) -> str:
        """Why there is no such folder; "" for one that is there, or does not answer: that is no mistake of who asks."""
        _, why = self._texts((), min(CHECK_S, self.seconds_s))
        return why if why.endswith("is not a folder") else ""

    def _texts(self, nodes: Sequence[str], seconds_s: float) -> tuple[dict[str, dict[str, str]], str]:
        """node -> its text, or why there is none; and why nothing is known of the others."""
        argv = module_argv("hpcadmin.sweep.folder_child", str(self.folder), str(MAX_HEALTH_BYTES))
        answer = Local().run("", argv, stdin="".join(f"{node}\n" for node in nodes).encode(), timeout_s=seconds_s,
                             limit=MAX_FOLDER_BYTES)
        why = f"{self.folder} does not answer within {seconds_s:g} s" if answer.timed_out else answer.error
        texts: dict[str, dict[str, str]] = {}
        for line in answer.output.split(b"\n")[:-1]:
            try:
                tree = json.loads(line)
            except ValueError:
                why = why or f"{self.folder} cannot be read: {line.decode('utf-8', 'replace')}"
                continue
            if "folder" in tree:
                why = f"{self.folder} {tree['folder']}"
            else:
                texts[str(tree["node"])] = tree
        return texts, why or "no result"


def parse_health(text: str, node: str, now: float, most_s: float) -> list[Look]:
    """The looks in one node's result. ValueError with why it says nothing: damaged, of another node, too old."""
    try:
        tree = json.loads(text)
    except RecursionError:
        raise ValueError("result is not JSON") from None
    except ValueError:
        raise ValueError("result is not JSON" if text.strip() else "result is empty") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("results"), list):
        raise ValueError("result is not of hpcadmin-health")
    told, time = tree.get("node"), tree.get("time")
    if told != node:
        raise ValueError(f"result is of {told!r}")
    if not isinstance(time, (int, float)) or isinstance(time, bool) or not 0 < time < MAX_TIME:
        raise ValueError("result has no time")
    if time > now + AHEAD_S:
        raise ValueError("result is of the future: the clock of the node or of this host is wrong")
    if now - time > most_s:
        raise ValueError(f"result is {(now - time) / 3600:.0f} hours old")
    boot = tree.get("boot")
    items = tree["results"]
    if not items or len(items) > MAX_RESULTS:
        raise ValueError(f"result has {len(items)} checks")
    profile = tree.get("simulated")
    return [_health_look(item, node, float(time), boot if isinstance(boot, str) else "",
                         profile if isinstance(profile, str) else "") for item in items]


def _health_look(item: Any, node: str, time: float, boot: str, profile: str) -> Look:
    if not isinstance(item, dict):
        raise ValueError("result has a check that is none")
    check, status, reason = item.get("check"), item.get("status"), item.get("reason", "")
    if not isinstance(check, str) or not check or not isinstance(reason, str) or status not in _STATUSES:
        raise ValueError("result has a check without name or status")
    kind = Kind.HARDWARE if item.get("hardware") is True else Kind.NODE
    if profile and reason and (kind is Kind.HARDWARE or check.startswith(SIMULATED)):
        reason = f"simulated {profile[:40]}: {reason}"
    facts = item.get("facts") if check.partition(":")[0] in WITH_FACTS else None
    return Look(f"health/{printable(check, limit=100)}", node, Result(status), kind, time,
                printable(" ".join(reason.split()), limit=300), boot=printable(boot, limit=64), source="health",
                facts=tuple(fact for fact in facts[:MAX_FACTS] if isinstance(fact, dict))
                if isinstance(facts, list) else ())


@dataclass(frozen=True)
class RunVerdicts:
    """What a run of a suite said of nodes and of pairs of them; one that is older says nothing of today."""

    folder: Path
    days: float
    measured: bool = False      # only what was measured and judged, or failed on the way

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        try:
            run = read_run(self.folder, without={"measurements.jsonl"})
        except StoreError as exc:
            return Looks(notes=(str(exc),), looked=False)
        if self.measured:
            run = replace(run, verdicts=tuple(v for v in run.verdicts
                                              if v.status not in (Status.NOT_RUN, Status.UNJUDGED)))
        return verdict_looks(run, set(nodes), now, self.days * 86400)


_RESULTS = {Status.FAIL: Result.BAD, Status.PASS: Result.GOOD, Status.WARN: Result.GOOD}
_RANK = {Result.GOOD: 0, Result.UNKNOWN: 1, Result.BAD: 2}


def verdict_looks(run: Run, nodes: set[str], now: float, most_s: float) -> Looks:
    """Of each check on each node or pair its worst verdict. A test of more nodes accuses nobody: it is a note."""
    time = _moment(run.manifest.ended) or _moment(run.manifest.started)
    if time is None or time > now + AHEAD_S:
        return Looks(notes=(f"run {run.manifest.run_id} does not say when it was",), looked=False)
    if now - time > most_s:
        days = (now - time) / 86400
        return Looks(notes=(f"run {run.manifest.run_id} is {days:.0f} days old: it counts for nothing",), looked=False)
    by_subject: dict[tuple[str, tuple[str, ...]], list[Verdict]] = defaultdict(list)
    notes = []
    for verdict in run.verdicts:
        if not verdict.status.counts or not verdict.subject.nodes or not nodes.issuperset(verdict.subject.nodes):
            continue
        if len(verdict.subject.nodes) > 2:
            if verdict.status is Status.FAIL:
                notes.append(f"{verdict.check} failed on {len(verdict.subject.nodes)} nodes together in run "
                             f"{run.manifest.run_id}: {printable(verdict.reason, limit=200)}")
            continue
        by_subject[verdict.check, tuple(sorted(verdict.subject.nodes))].append(verdict)
    found = []
    for (check, names), verdicts in sorted(by_subject.items()):
        worst = max(verdicts, key=lambda v: _RANK[_RESULTS.get(v.status, Result.UNKNOWN)])
        found.append(Look(f"test/{check}", names[0], _RESULTS.get(worst.status, Result.UNKNOWN),
                          Kind.NETWORK if len(names) == 2 else Kind.TEST, time, printable(worst.reason, limit=300),
                          names[1] if len(names) == 2 else "", source=run.manifest.run_id))
    return Looks(tuple(found), notes=tuple(dict.fromkeys(notes)))


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def gather(sources: Sequence[Source], nodes: Sequence[str], now: float) -> Looks:
    """All of them together. What one source did not see is told, whatever another saw."""
    parts = [source.looks(nodes, now) for source in sources]
    return Looks(tuple(look for part in parts for look in part.looks),
                 {node: why for part in parts for node, why in part.unmeasured.items()},
                 tuple(note for part in parts for note in part.notes),
                 tuple(problem for part in parts for problem in part.problems), any(part.looked for part in parts),
                 tuple(key for part in parts for key in part.unknown))


@dataclass(frozen=True)
class Said:
    """No look, but something to say; problems and unknown as in Looks."""

    text: str = ""
    unknown: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        notes = (self.text,) if self.text else ()
        return Looks(notes=notes, problems=self.problems, looked=False, unknown=self.unknown)


@dataclass(frozen=True)
class InTurn:
    """Ways to the same results: each is asked for the nodes that those before it could not tell of."""

    ways: tuple[Source, ...]

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        left = dict.fromkeys(nodes, "")
        parts = []
        for way in self.ways:
            if not left:
                break
            part = way.looks(list(left), now)
            parts.append(part)
            left = {node: f"{why}; {part.unmeasured[node]}" if why else part.unmeasured[node]
                    for node, why in left.items() if node in part.unmeasured}
        return Looks(tuple(look for part in parts for look in part.looks),
                     {node: printable(why, limit=300) for node, why in left.items()},
                     tuple(note for part in parts for note in part.notes))
