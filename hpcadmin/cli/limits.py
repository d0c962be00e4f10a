"""hpcadmin limits: what a value must reach, and where that comes from."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcadmin.check import Limit


@click.group()
def command() -> None:
    """The catalogue of limits, and the site's own."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_limits(obj: dict[str, Any], as_json: bool) -> int:
    """Every limit: the site's first, then the catalogue's."""
    _show(_load(obj), as_json)
    return 0


@command.command()
@click.argument("hardware")
@click.argument("check")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(obj: dict[str, Any], hardware: str, check: str, as_json: bool) -> int:
    """What to expect of HARDWARE (a GPU model, a port's rate, or a part of one: h100) in CHECK."""
    from hpcadmin.errors import UsageError
    from hpcadmin.registry import load_checks
    from hpcadmin.site import load_site
    known = load_checks(load_site(obj["site"]).checks_dir)
    if check not in known:
        raise UsageError(f"unknown check {check!r}", hint=f"known checks: {', '.join(sorted(known))}")
    found = [limit for limit in _load(obj) if limit.check == check and not limit.simulated and _is_for(limit, hardware)]
    if not found:
        raise UsageError(f"no limit for {check} on {hardware!r}", hint=f"hpcadmin limits list | grep {check}")
    _show(found, as_json)
    return 0


def _load(obj: dict[str, Any]) -> Sequence[Limit]:
    from hpcadmin.catalogue import load_limits
    from hpcadmin.site import load_site
    return load_limits(load_site(obj["site"]))


def _is_for(limit: Limit, hardware: str) -> bool:
    """As a full name matches, and also as people say it: "h100" is for "*H100 80GB HBM3*"."""
    pattern, name = limit.hardware.casefold(), hardware.casefold()
    return not limit.hardware or fnmatch.fnmatchcase(name, pattern) or name in pattern


def _show(limits: Sequence[Limit], as_json: bool) -> None:
    from hpcadmin.records import dumps
    from hpcadmin.text import byte_size, printable
    if as_json:
        click.echo(dumps(list(limits), indent=1))
        return
    from tabulate import tabulate
    rows = [[
        limit.check, limit.measurement, "any" if limit.size_bytes is None else byte_size(limit.size_bytes),
        printable(limit.hardware) or "any", "" if limit.ranks is None else limit.ranks,
        "" if limit.nodes is None else limit.nodes, limit.text(), "simulated" if limit.simulated else "",
        printable(limit.source, limit=400),
    ] for limit in limits]
    click.echo(tabulate(rows, headers=["check", "value", "size", "hardware", "ranks", "nodes", "limit", "", "source"],
                        tablefmt="simple", maxcolwidths=[None, None, None, None, None, None, None, None, 70]))
