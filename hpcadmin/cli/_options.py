"""What may be said to validate at one time, and what it makes of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.errors import UsageError

if TYPE_CHECKING:
    from hpcadmin.run_session import Request

_BESIDE_RESUME = ("--resume", "--run-dir", "--detach", "--allow-root", "--json")


def check_options(ctx: click.Context) -> None:
    """Raises UsageError where what was typed does not fit together, or names nothing."""
    given = [param.opts[0] for param in ctx.command.params if param.name is not None
             and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE]
    why = misfit(given)
    if why:
        raise UsageError(why)
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if param.opts[0] in given and isinstance(value, str) and not value.strip():     # an unset variable of a shell
            raise UsageError(f"{param.opts[0]} is empty", hint="leave it out, or say which")


def misfit(given: list[str]) -> str:
    """Why these options cannot stand together, "" when they can."""
    if "--resume" in given:
        if "--retest" in given:
            return "--resume goes on with a run, --retest makes a new one: one of them"
        others = [option for option in given if option not in _BESIDE_RESUME]
        if others:
            return f"--resume goes on with a run as it was begun: {', '.join(others)} cannot be given beside it"
    if "--retest" in given and "--suite" in given:
        return "--retest has the suite of the run that it repeats: --suite cannot be given beside it"
    if "--plan" in given and "--detach" in given:
        return "--plan submits nothing, --detach runs in the background: one of them"
    return ""


def request_of(options: Mapping[str, Any]) -> Request:
    from hpcadmin.run_nodes import seconds
    from hpcadmin.run_session import Request
    more = dict(options)
    more["time_limit_min"] = more.pop("time_limit")
    try:
        more["wait_for_s"] = seconds(more.pop("wait_for"))
    except UsageError as exc:
        raise UsageError(f"--wait-for: {exc.what}", hint=exc.hint) from exc
    more["at_once"] = more["at_once"] or 0
    return Request(**more, command=tuple(sys.argv))
