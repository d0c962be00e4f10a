"""What a run reads before it starts: wishes, checks, suite, limits, nodes; and the plan as --plan shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcadmin.catalogue import load_limits
from hpcadmin.check import Check, Limit
from hpcadmin.model import Inventory
from hpcadmin.plan_facts import Facts, gather
from hpcadmin.plan_time import Cost, cost_of
from hpcadmin.registry import Suite, load_checks, load_suite, site_for
from hpcadmin.run_look import Wanted, accepted_inventory, needed, wanted
from hpcadmin.run_nodes import WAIT_FOR_S, Rules, Selection, nodes_now, select
from hpcadmin.run_plan import planned, switches_of, usual_here
from hpcadmin.run_progress import Progress
from hpcadmin.run_tools import read_known, tools_file
from hpcadmin.rundata import Plan, Together
from hpcadmin.site import Site
from hpcadmin.slurm.client import Client
from hpcadmin.state import bin_dir, inventory_file, runs_dir
from hpcadmin.tools import told_before, with_tools
from hpcadmin.waves import MOST_JOBS


@dataclass(frozen=True)
class Request:
    """What the command line asks for; empty means the site's file or Slurm decides. Kept as request.json.

    only: of the suite's checks; () means all. retest_of: the run whose failures this one measures again; together: what
    of these checks, () all.
    """

    suite: str = "smoke"
    hostlist: str = ""
    inventory: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    run_dir: str = ""
    time_limit_min: int | None = None
    allow_root: bool = False
    command: tuple[str, ...] = ()
    nice: int | None = None             # None: as the site says
    priority: int | None = None
    only_idle: bool = False
    nodes_down: str = "skip"            # or "error"
    wait_for_s: float = WAIT_FOR_S      # for nodes that are not free
    max_jobs: int = MOST_JOBS           # of the suite in the queue at once
    only: tuple[str, ...] = ()
    retest_of: str = ""
    together: tuple[Together, ...] = ()
    pairs: str = ""                     # --pairs
    at_once: int = 0                    # nodes under load at one time, at most; 0: the site's, else all
    yes: bool = False                   # destructive checks may run
    meet: tuple[tuple[str, str], ...] | None = None     # the only pairs that checks of pairs test; None: as pairs says


@dataclass(frozen=True)
class Preview:
    """What --plan shows. look: why a look job would come first, "" when none is needed."""

    plan: Plan
    look: str
    cost: Cost | None = None


@dataclass
class Session:
    """Everything that a run has read before it starts."""

    request: Request
    site: Site
    client: Client
    progress: Progress
    checks: Mapping[str, Check]
    suite: Suite
    limits: tuple[Limit, ...]
    selection: Selection
    accepted: Inventory | None
    slurm_version: str
    topology: bool | None               # None: no check of the suite asks for it
    partition_nodes: tuple[str, ...]    # all of them, whether they are tested or not
    runs: Path
    bins: Path
    want: Wanted
    pyxis: bool                         # srun starts containers; asked only where the site names one

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(n.name for n in self.selection.nodes)

    @property
    def known_tools(self) -> Path:
        return tools_file(self.bins.parent)

    @property
    def used(self) -> tuple[Check, ...]:
        return tuple(self.checks[name] for name in dict.fromkeys(n for e in self.suite.entries for n in e.names))


def open_session(request: Request, site: Site, client: Client, progress: Progress) -> Session:
    """Read and check all input; nothing is written or submitted."""
    checks = load_checks(site.checks_dir)
    suite = load_suite(request.suite, site, checks)
    site = site_for(suite, site)
    if request.only:
        suite = replace(suite, entries=tuple(e for e in suite.entries if set(e.names) & set(request.only)))
    used = {name for entry in suite.entries for name in entry.names}
    limits = tuple(x for x in load_limits(site) if x.check in used)
    path = Path(request.inventory) if request.inventory else inventory_file(site)
    accepted = accepted_inventory(path, required=bool(request.inventory))
    nodes = nodes_now(client)
    selection = select(nodes, client.partitions(), request.partition or site.slurm.partition, request.hostlist,
                       Rules(request.only_idle, request.nodes_down == "error",
                             bool(request.reservation or site.slurm.reservation)))
    runs = Path(os.path.abspath(Path(request.run_dir).expanduser())) if request.run_dir else runs_dir(site)  # noqa: PTH100
    bins = runs / "bin" if request.run_dir else bin_dir(site)
    want = wanted(suite, checks, site, bins)
    return Session(request, site, client, progress, checks, suite, limits, selection, accepted, client.version(),
                   client.topology() if any("topology" in checks[name].needs for name in used) else None,
                   tuple(n.name for n in nodes if selection.partition.name in n.partitions), runs, bins, want,
                   any(ask.site.container for ask in want.asks) and client.starts_containers())


def preview(request: Request, site: Site, client: Client, progress: Progress) -> Preview:
    """The plan, without submitting or writing anything; what only a look can tell is taken as there."""
    session = open_session(request, site, client, progress)
    site = session.site
    look = needed(session.names, session.accepted, session.want)
    programs = {p: str(path) for p, path in session.want.programs.items()}
    told = told_before(session.want.asks, session.names, read_known(session.known_tools))
    facts = gather(session.names, None, session.accepted, site, programs=programs, unbuilt={},
                   shared_dir=site.shared(str(session.runs)), topology=session.topology,
                   tools=[one for one in told if not one.problem], pyxis=session.pyxis)
    facts = replace(with_slurm(facts, session), switches=switches_of(session, session.names))
    if look:
        facts = _assume_there(facts, session)
    plan = planned(session, facts, session.names, skipped=session.selection.skipped, job=2 if look else 1, seed=0)
    cost = cost_of(plan, session.checks, usual_here(site, facts, len(plan.nodes)))
    return Preview(with_tools(plan, told, session.used), look, replace(cost, jobs=cost.jobs + bool(look)))


def _assume_there(facts: Facts, session: Session) -> Facts:
    """What no inventory tells is taken as there: the plan shows the most that could run."""
    tools = {t: t for check in session.checks.values() for t in check.needs}
    return replace(
        facts, slurm_gpus={}, tools={n: {**tools, **facts.tools.get(n, {})} for n in session.names},
        has={word: {n: True if there is None else there for n, there in by_node.items()}
             for word, by_node in facts.has.items()})


def with_slurm(facts: Facts, session: Session) -> Facts:
    """With what Slurm gives to jobs, which is not always what the nodes have."""
    part = session.selection.partition
    return replace(facts, whole_nodes=part.name if part.whole_nodes else "",
                   slurm_gpus={n.name: n.gpus for n in session.selection.nodes})
