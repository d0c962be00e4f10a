"""A run up to its plan: the look at the nodes, what they have, what is tested there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from hpcadmin.inventory_file import save
from hpcadmin.model import Inventory
from hpcadmin.plan_facts import Facts, gather
from hpcadmin.run_folder import RunFolder, iso_now
from hpcadmin.run_job import JobRun
from hpcadmin.run_kept import Ground, write_ground
from hpcadmin.run_look import Seen, Wanted, look_job, needed, on_nodes, take, unknown
from hpcadmin.run_look_late import late_nodes, late_note, with_late
from hpcadmin.run_look_many import look_side_by_side
from hpcadmin.run_nodes import free_now
from hpcadmin.run_phases import Phases
from hpcadmin.run_plan import planned, switches_of
from hpcadmin.run_session import Session, with_slurm
from hpcadmin.run_submit import Desk
from hpcadmin.run_tools import keep, read_known
from hpcadmin.rundata import SkippedNode, write_lines, write_plan, write_record
from hpcadmin.state import make_private
from hpcadmin.tools import with_tools

LOOK_PATIENCE_S = 15.0      # that a look waits for nodes that were free; then for those that are


def begin(session: Session, folder: RunFolder, desk: Desk, phases: Phases) -> None:
    """Look at the nodes where that is needed, and give the run its plan."""
    phases.inventory = session.accepted
    desk.in_use = bool(session.selection.busy)
    seen = _look(session, folder, desk)
    desk.stop.between()
    _plan(session, folder, desk, phases, seen)


def _ground(session: Session, facts: Facts, seen: Seen | None = None) -> Ground:
    away = seen.programs if seen and session.site.away else {}
    return Ground(facts, session.selection.partition, session.partition_nodes, session.slurm_version,
                  session.suite.env, seen.tools if seen else (), away)


def _look(session: Session, folder: RunFolder, desk: Desk) -> Seen:
    """What the nodes have: from a look job, or from the inventory when that says everything that is needed."""
    names, want = session.names, session.want
    built = {p: str(path) for p, path in want.programs.items()}
    if not names or not needed(names, session.accepted, want):
        return Seen(None, built)
    for path in want.programs.values():
        make_private(path.parent)
    sources = make_private(folder.path / "src")
    known = read_known(session.known_tools)
    nothing = _ground(session, with_slurm(Facts({}, site=session.site), session))

    def make(nodes: Sequence[str], want: Wanted) -> JobRun:
        number = desk.number + 1
        job, tests = look_job(number, nodes, want, site=session.site, folder=folder.job_dir(number), sources=sources,
                              probe=bool(unknown(names, session.accepted, want)), known=known, pyxis=session.pyxis)
        return desk.make(job, tests, nothing)
    busy_now = tuple(session.selection.busy)
    for patience_s in (LOOK_PATIENCE_S, None):
        late = late_nodes(names, busy_now, session.accepted, want)
        here = tuple(n for n in names if n not in late)
        busy = tuple(n for n in busy_now if n not in late)
        if busy:
            seen = look_side_by_side(desk, make, here, busy, want=want, known=known)
            break
        run = make(here, want)
        run.patience_s = patience_s
        desk.go(run)
        if not run.impatient:
            seen = take(run, want, iso_now(), known=known)
            break
        desk.in_use = True                  # somebody has got a node since they were looked at
        busy_now = _busy_now(session, names)
    if want.asks:
        keep(session.known_tools, known, seen.tools)
    if late and session.accepted is not None:
        session.progress.line(late_note(late))
        seen = with_late(seen, late, want.asks, known, session.accepted)
    for node, reason in seen.silent.items():
        session.progress.failure(f"{node}: {reason}")
    return seen


def _busy_now(session: Session, names: Sequence[str]) -> tuple[str, ...]:
    reserved = bool(session.request.reservation or session.site.slurm.reservation)
    free = free_now(session.client.nodes(), names, reserved=reserved)
    return tuple(n for n in names if n not in free)


def _plan(session: Session, folder: RunFolder, desk: Desk, phases: Phases, seen: Seen) -> None:
    """The plan is written last: with it, all that it stands on is there."""
    skipped = [*session.selection.skipped,
               *(SkippedNode(n, f"could not be looked at: {why}") for n, why in seen.silent.items())]
    names = tuple(n for n in session.names if n not in seen.silent)
    facts = gather(names, seen.inventory, session.accepted, session.site,
                   programs=on_nodes(seen.programs, session.site), unbuilt=seen.unbuilt,
                   shared_dir=session.site.shared(str(folder.path)),
                   topology=session.topology, tools=seen.tools, pyxis=session.pyxis)
    ground = _ground(session, with_slurm(facts, session), seen)
    ground = replace(ground, facts=replace(ground.facts, switches=switches_of(session, names)))
    plan = planned(session, ground.facts, names, skipped=skipped, job=desk.number + 1, seen=seen.inventory,
                   seed=crc32(folder.run_id.encode()))
    plan = with_tools(plan, seen.tools, session.used)
    inventory = seen.inventory or session.accepted or Inventory((), created=iso_now())     # no node can be used now
    save(folder.path / "inventory.json", inventory)
    if session.accepted is not None:
        write_record(folder.path, "order.json", session.accepted)
    write_record(folder.path, "limits.json", session.limits)
    write_ground(folder.path, ground)
    write_lines(folder.path, "measurements.jsonl", ())     # a run that measures nothing has a whole folder too
    folder.update(notes=plan.notes, simulated=inventory.simulated)
    write_plan(folder.path, plan)
    phases.set_plan(plan, replace(ground), inventory)
