"""The plan of a run: what the command line, the site's file, Slurm's topology and past runs say of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcadmin import records
from hpcadmin.check import Scope
from hpcadmin.coverage import coverage, expected_of
from hpcadmin.errors import HpcadminError, SlurmError, UsageError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.plan import make_plan
from hpcadmin.plan_facts import Facts
from hpcadmin.plan_pairs import WORDS, Pairs, pairs_of
from hpcadmin.plan_switches import of_inventory, of_slurm
from hpcadmin.plan_time import UNKNOWN, Durations, Usual, hardware_of, usual_for
from hpcadmin.registry import Suite
from hpcadmin.rundata import Finding, Plan, SkippedNode, Together, write_record
from hpcadmin.site import Site
from hpcadmin.state import state_dir

if TYPE_CHECKING:
    from hpcadmin.check import Verdict
    from hpcadmin.model import Inventory
    from hpcadmin.run_session import Session


def wanted_pairs(suite: Suite, text: str) -> Suite:
    """The suite with what --pairs says. Raises UsageError for a word that is none."""
    if not text:
        return suite
    found: Pairs | None = pairs_of(text)
    if found is None:
        raise UsageError(f"--pairs {text!r} is none", hint=f"{', '.join(WORDS)}, or a number of rounds")
    return replace(suite, pairs=found)


def planned(session: Session, facts: Facts, names: Sequence[str], *, skipped: Sequence[SkippedNode], job: int,
            seed: int, seen: Inventory | None = None) -> Plan:
    """The plan of a run on these nodes. facts: with what switches_of says. seed: of the run, so that the next one lets
    others meet."""
    request, site = session.request, session.site
    levels = facts.switches
    plan = make_plan(wanted_pairs(session.suite, request.pairs), session.checks, facts, names, skipped=skipped, job=job,
                     seed=seed, at_once=request.at_once or site.at_once, yes=request.yes,
                     usual=usual_here(site, facts, len(names)), together=_together(session))
    asked = dict.fromkeys((*names, *(s.node for s in skipped)))
    return replace(plan, expected=expected_of(asked, session.accepted, seen, site),
                   leaves=dict(levels[0]) if levels else {})


def _together(session: Session) -> tuple[Together, ...]:
    request = session.request
    if request.meet is None:
        return request.together
    named = {t.check for t in request.together}
    return (*request.together, *(Together(name, request.meet) for name, check in session.checks.items()
                                 if check.scope is Scope.PAIR and name not in named))


def switches_of(session: Session, names: Sequence[str]) -> tuple[Mapping[str, str], ...]:
    """From Slurm, else from the accepted inventory; () where nobody knows two leaf switches."""
    if len(names) < 2:
        return ()
    found: tuple[Mapping[str, str], ...] = ()
    with contextlib.suppress(SlurmError):
        found = of_slurm(session.client.topology_text(), names)
    return found or of_inventory(session.accepted, names, session.site)


# --- what past runs took ----------------------------------------------------------------------------------------


def usual_file(site: Site) -> Path:
    """Beside the inventory."""
    return state_dir(site) / "usual.json"


def read_usual(path: Path) -> tuple[Usual, ...]:
    """() where there is none, or none that can be read: it is only a guess at times."""
    try:
        found: tuple[Usual, ...] = records.loads(tuple[Usual, ...], read_whole(path).decode(), where=str(path))
    except (HpcadminError, ValueError):
        return ()
    return found


def usual_here(site: Site, facts: Facts, nodes: int) -> dict[str, float]:
    """Where a look is still to tell what the nodes have, they are taken to be like those of past runs, if all of these
    were of one kind."""
    past = read_usual(usual_file(site))
    kind, kinds = hardware_of(facts.views.values()), {one.hardware for one in past}
    return usual_for(past, kinds.pop() if kind == UNKNOWN and len(kinds) == 1 else kind, nodes) if past else {}


def keep_usual(site: Site, facts: Facts, durations: Durations) -> None:
    """What this run took, for the plans of others. That it cannot be kept spoils no run."""
    path = usual_file(site)
    with contextlib.suppress(HpcadminError):
        found = durations.folded_into(read_usual(path), hardware_of(facts.views.values()))
        write_atomic(path, records.dumps(found, indent=1, sparse=True) + "\n", mode=0o600)


def keep_coverage(folder: Path, plan: Plan | None, verdicts: Sequence[Verdict],
                  findings: Sequence[Finding] = ()) -> None:
    if plan is not None:
        write_record(folder, "coverage.json", coverage(plan, verdicts, findings))
