"""What there is as metrics, in the text format of Prometheus. As many series as there are kinds of things, and of nodes
a bounded number, of those that have a problem. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from hpcadmin.sweep.alarms.model import State
from hpcadmin.sweep.model import Act, Problem
from hpcadmin.text import printable

MAX_NODES = 200
MAX_LABEL = 120
MAX_VALUES = 50
# The first word of a problem's key. Whatever else there may come to be is "other".
KINDS = ("node", "act", "budget", "unmeasured", "unknown", "missed", "slurm", "look", "sweep", "alarm", "trend",
         "guard", "suite")
PHASES = ("drained", "commented", "held", "told")
BASES = ("ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN")
FLAGS = ("BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "FAIL", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "PLANNED",
         "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED")
ACTS = (Act.DRAIN, Act.RESUME, Act.COMMENT, Act.UNCOMMENT)
RESULTS = ("done", "not done", "changed", "refused", "pending")

Series = tuple[Mapping[str, str], float]
Add = Callable[[str, str, str, Iterable[Series]], None]


def kind_of(problem: Problem) -> str:
    kind = problem.key.partition("/")[0]
    return kind if kind in KINDS else "other"


def phase_of(problem: Problem) -> str:
    phase = problem.signature.partition(" ")[0]
    return phase if phase in PHASES else "other"


def render(state: State) -> str:
    """The whole file."""
    parts: list[str] = []

    def add(name: str, kind: str, text: str, series: Iterable[Series]) -> None:
        lines = [f"{name}{_labels(labels)} {_value(value)}" for labels, value in series]
        if lines:
            parts.extend([f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines])

    _about_sweeps(state, add)
    _about_nodes(state, add)
    _about_problems(state, add)
    add("hpcadmin_alarm_channel_failing", "gauge", "Whether a channel could not tell the last time.",
        [({"channel": one.name, "kind": one.kind}, 1.0 if one.failing_since else 0.0) for one in state.channels])
    add("hpcadmin_alarm_channel_last_success_timestamp_seconds", "gauge", "When a channel last told something.",
        [({"channel": one.name, "kind": one.kind}, one.last_ok) for one in state.channels if one.last_ok])
    return "\n".join(parts) + "\n"


def _about_sweeps(state: State, add: Add) -> None:
    add("hpcadmin_sweep_begin_timestamp_seconds", "gauge", "When the last sweep began.",
        [({}, state.begun)] if state.begun else [])
    add("hpcadmin_sweep_end_timestamp_seconds", "gauge", "When a sweep last came to its end.",
        [({}, state.finished)] if state.finished else [])
    add("hpcadmin_sweep_exit_status", "gauge", "Exit status of the last sweep that came to its end.",
        [({}, float(state.status))] if state.status is not None else [])
    add("hpcadmin_sweep_slurm_answered", "gauge", "Whether Slurm answered the last sweep that came to its end.",
        [({}, 1.0 if state.answered else 0.0)] if state.finished else [])
    add("hpcadmin_sweep_actions_total", "counter", "What sweeps did to nodes, and what came of it.",
        [({"act": act.value, "result": result}, float(state.actions.get((act.value, result), 0)))
         for act in ACTS for result in RESULTS])


def _about_nodes(state: State, add: Add) -> None:
    facts = state.facts
    add("hpcadmin_sweep_seen_timestamp_seconds", "gauge", "When the numbers of nodes by state were seen.",
        [({}, facts.time)] if facts.time else [])
    if facts.time:
        add("hpcadmin_sweep_nodes", "gauge", "Nodes by Slurm's state.", _counted("state", BASES, facts.states))
        add("hpcadmin_sweep_nodes_flagged", "gauge", "Nodes by flag of Slurm's state.",
            _counted("flag", FLAGS, facts.flags))
    add("hpcadmin_sweep_drained_nodes", "gauge", "Nodes that are drained by the sweep.",
        [({}, float(len(state.drained)))])
    add("hpcadmin_sweep_value", "gauge", "Values that the nightly look compares with a threshold.",
        [({"what": name}, value) for name, value in sorted(facts.values.items())[:MAX_VALUES]])
    add("hpcadmin_sweep_value_measured", "gauge", "Whether the last sweep could measure what a threshold is for.",
        [({"what": name}, 0.0 if why else 1.0) for name, why in sorted(facts.measured.items())[:MAX_VALUES]])


def _about_problems(state: State, add: Add) -> None:
    kinds = Counter(kind_of(problem) for problem in state.problems.values())
    add("hpcadmin_sweep_problems", "gauge", "Problems that there are, by kind.",
        [({"kind": kind}, float(kinds[kind])) for kind in (*KINDS, "other")])
    phases = Counter(phase_of(p) for p in state.problems.values() if kind_of(p) == "node")
    add("hpcadmin_sweep_problem_nodes", "gauge", "Nodes with a problem, by what was done.",
        [({"phase": phase}, float(phases[phase])) for phase in (*PHASES, "other")])
    nodes = sorted((p for p in state.problems.values() if kind_of(p) == "node" and p.node), key=lambda p: p.node)
    add("hpcadmin_sweep_node_problem", "gauge", "When the problem of a node began; only of nodes that have one.",
        [({"node": p.node, "phase": phase_of(p), "check": p.checks[0] if p.checks else ""}, p.since)
         for p in nodes[:MAX_NODES]])
    add("hpcadmin_sweep_node_problems_left_out", "gauge", f"Nodes with a problem beyond the first {MAX_NODES}.",
        [({}, float(max(0, len(nodes) - MAX_NODES)))])


def _counted(label: str, known: tuple[str, ...], counts: Mapping[str, int]) -> list[Series]:
    """Each name that is known, also at 0; all others together, so that a new Slurm makes no new series."""
    other = sum(count for name, count in counts.items() if name not in known)
    return [*(({label: name.lower()}, float(counts.get(name, 0))) for name in known),
            ({label: "other"}, float(other))]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{told}}}"


def _escaped(text: str) -> str:
    return printable(text, limit=MAX_LABEL).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _value(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
