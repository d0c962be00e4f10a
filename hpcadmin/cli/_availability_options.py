"""The options of report that are about a period and not about a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--availability", is_flag=True, help="How much of a period nodes were available, from Slurm's "
                 "events and our own runs, against the contract's line; [availability] in site.toml says what counts."),
    click.option("--quarter", metavar="2026-Q3|last", help="One document of a quarter: availability, incidents, "
                 "planned maintenance, the runs with their results, what changed, drifts, replaced hardware."),
    click.option("--period", metavar="2026-Q3|2026-10|2026|FROM..TO", help="With --availability: which; FROM and TO "
                 "are dates or times, TO is not in it. Else this quarter so far."),
    click.option("-w", "--nodes", metavar="HOSTLIST", help="With --availability or --quarter: only these nodes."),
    click.option("--target", metavar="PERCENT", help="With --availability or --quarter: the contract's line, else that "
                 "of site.toml, else 99.95."),
    click.option("--events", metavar="FILE", help="With --availability or --quarter: Slurm's events from a file that "
                 "an earlier report left beside it, instead of from slurmdbd."),
)
_BESIDE = ("availability", "quarter", "period", "nodes", "target", "events", "format_name", "as_json", "output",
           "everything")


def availability_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked_for(ctx: click.Context, about: Mapping[str, Any]) -> bool:
    """Whether it is about a period. Raises UsageError where the options do not fit together."""
    given = {p.name: p.opts[-1] for p in ctx.command.params if p.name
             and ctx.get_parameter_source(p.name) is click.core.ParameterSource.COMMANDLINE}
    if not about["availability"] and about["quarter"] is None:
        only = [given[n] for n in ("period", "nodes", "target", "events") if n in given]
        if only:
            raise click.UsageError(f"{', '.join(only)}: only with --availability or --quarter")
        return False
    if about["availability"] and about["quarter"] is not None:
        raise click.UsageError("--quarter has the availability of its quarter: --availability is not needed beside it")
    if about["quarter"] is not None and "period" in given:
        raise click.UsageError("--quarter is a period: --period cannot be given beside it")
    others = [option for name, option in given.items() if name not in _BESIDE]
    if others:
        raise click.UsageError(f"{', '.join(others)}: of a run, not of a period")
    for name in ("period", "quarter", "nodes", "target", "events"):
        if about[name] is not None and not about[name].strip():         # an unset variable of a shell
            raise click.UsageError(f"{given[name]} is empty")
    return True


def run_it(obj: dict[str, str | None], about: Mapping[str, Any], *, form: str, output: str | None,
           everything: bool) -> int:
    from hpcadmin.availability.forms import FORMS
    from hpcadmin.cli._report_availability import Asked, availability_command
    if form not in FORMS:
        raise click.UsageError(f"{form} is a form of a run; of a period there are {', '.join(FORMS)}")
    return availability_command(obj, Asked(
        about["period"] or "", about["quarter"] or "", about["nodes"] or "", about["target"] or "",
        about["events"] or "", form, output or "", everything))
