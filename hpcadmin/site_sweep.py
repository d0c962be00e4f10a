"""[sweep] of site.toml: what the nightly look may do, to how many nodes, and when it lets go again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

ACTIONS = ("drain", "comment", "tell")
KINDS = ("hardware", "node", "test", "network")
WAYS = ("slurm", "ssh")
LEAST = {"suite_minutes": 1, "strikes": 2, "strike_days": 1, "passes": 1, "passes_after_reboot": 1, "again_days": 1}
MOST = 1_000_000                     # of any other number: what is larger is a slip, and overflows somewhere
MOST_NICE = 2_147_483_645            # sbatch's own
MOST_BY_KEY = {"nice": MOST_NICE, "strike_days": 3650, "again_days": 3650, "suite_minutes": 10_080,
               "health_hours": 8760, "health_s": 3600, "answer_s": 3600}


@dataclass(frozen=True)
class SweepSite:
    # What is done about a fault, by its kind: drain, comment or tell.
    hardware: str = "drain"              # a health check that looks at the node's own hardware
    node: str = "drain"                  # any other health check
    test: str = "comment"                # a test of a suite on one node
    network: str = "drain"               # tests between two nodes, after `strikes` different partners
    checks: Mapping[str, str] = field(default_factory=dict)     # by the check's name, * and ? allowed; the first wins
    strikes: int = 2
    strike_days: int = 14                # a strike older than that drains nobody
    night_nodes: int = 5                 # drained in one night, at most: the smaller of both
    night_percent: float = 5.0
    total_nodes: int = 20                # drained by us at one time, at most: the smaller of both
    total_percent: float = 10.0
    resume: bool = True                  # resume what we drained when what failed has passed
    passes: int = 1                      # nights on which it must have passed
    passes_after_reboot: int = 2         # the same, when the node was booted since: a reboot may only hide a fault
    again: int = 2                       # drained so often before for the same within again_days: a person resumes it
    again_days: int = 14
    left_reasons: bool = False           # a reason of somebody else on a node that is not drained is no hindrance
    health_dir: str = ""                 # where the nodes' results are: NODE.json of hpcadmin-health
    health_hours: float = 20.0           # older ones are not known
    answer_s: float = 20.0               # slurmctld that takes longer is late: nothing is done
    drift: str = "tell"                  # a node is not made of what was accepted (check drift)
    health_via: tuple[str, ...] = ()     # ways to the health of nodes without a result: slurm, ssh
    health_command: tuple[str, ...] = ("/usr/sbin/hpcadmin-health", "--json", "-") # {node} is the node's name
    health_s: float = 60.0               # that it may take on a node
    suite: str = ""                      # what idle nodes are tested with; "": nothing
    suite_nodes: int = 0                 # by themselves in one night, at most; 0: all that are idle
    suite_pairs: int = 0                 # pairs in one night, at most; 0: each node with one partner
    suite_minutes: int = 15              # time limit of each of its jobs
    suite_as_root: bool = False          # root may submit them
    retest: bool = True                  # nodes that were drained for a test are tested again, in a reservation
    trend: bool = True                   # what gets worse over the nights, within all limits, is told
    partition: str = ""                  # of the jobs of a sweep, as the next two; else those of [slurm]
    account: str = ""
    qos: str = ""
    nice: int = 10000                    # that their priority is lowered by
    alarms: Mapping[str, Any] = field(default_factory=dict)     # [sweep.alarms], read by sweep/alarms/config.py


def sweep_problem(sweep: SweepSite) -> tuple[str, str] | None:
    """(key, what is wrong), None when it can be followed."""
    for kind in (*KINDS, "drift"):
        if getattr(sweep, kind) not in ACTIONS:
            return kind, f"must be one of {', '.join(ACTIONS)}"
    for name, action in sweep.checks.items():
        if action not in ACTIONS:
            return f"checks.{name}", f"must be one of {', '.join(ACTIONS)}"
    for way in sweep.health_via:
        if way not in WAYS:
            return "health_via", f"must be of {', '.join(WAYS)}"
    if not sweep.health_command or not all(sweep.health_command):
        return "health_command", "must be a list of words, the first the program"
    return _number_problem(sweep) or _path_problem(sweep)


def _number_problem(sweep: SweepSite) -> tuple[str, str] | None:
    for item in fields(sweep):
        value = getattr(sweep, item.name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        lowest, most = LEAST.get(item.name, 0), MOST_BY_KEY.get(item.name, MOST)
        if not value >= lowest:         # nor what is no number
            return item.name, f"must be at least {lowest}"
        if item.name in ("health_hours", "answer_s", "health_s") and value == 0:
            return item.name, "must be more than 0"
        if item.name.endswith("_percent") and value > 100:
            return item.name, "must be a percentage"
        if value > most:
            return item.name, f"must be at most {most}"
    return None


def _path_problem(sweep: SweepSite) -> tuple[str, str] | None:
    suite = sweep.suite if "/" in sweep.suite or sweep.suite.endswith(".toml") else ""
    for key, path in (("health_dir", sweep.health_dir), ("suite", suite)):
        if path and path[0] not in "/~":
            return key, "must be a whole path, from / or ~ on: the night is in another folder"
    return None
