"""hpcadmin limits: what a value must reach, and where that comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcadmin.catalogue import Entry
    from hpcadmin.check import Limit
    from hpcadmin.errors import SiteError
    from hpcadmin.limits_lint import Finding


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
@click.argument("check", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(obj: dict[str, Any], hardware: str, check: str | None, as_json: bool) -> int:
    """What to expect of HARDWARE in CHECK: a GPU model, a port's rate or a part of one, a transport, a PCIe generation
    (h100, ndr, "roce 400", efa, "pcie 4").

    By message size: what was measured elsewhere, what the limit is, and what the links allow at most; then the
    sources. There are figures also of host_device_copy and peer_copy, which no check measures. Where nobody published
    anything it says so, and what the links allow. Without CHECK: of which checks there is anything.
    """
    from hpcadmin.catalogue import load_known
    from hpcadmin.cli._limits_show import asked, is_for, print_checks, print_expected, print_nothing
    from hpcadmin.errors import UsageError
    from hpcadmin.registry import load_checks
    from hpcadmin.site import load_site
    from hpcadmin.text import did_you_mean
    figures = load_known()
    known = {*load_checks(load_site(obj["site"]).checks_dir), *(k.check for k in figures)}
    if check is None:
        if hardware in known:
            raise UsageError(f"{hardware} of which hardware?", hint=f"as in: hpcadmin limits show h100 {hardware}")
        print_checks(hardware, [x for x in _load(obj) if not x.simulated], figures, as_json)
        return 0
    if check not in known:
        raise UsageError(f"unknown check {check!r}", hint=did_you_mean(check, known, "hpcadmin checks list"))
    meant = asked(hardware)
    limits = [x for x in _load(obj) if x.check == check and not x.simulated and is_for(x, meant)]
    figures = tuple(k for k in figures if k.check == check and is_for(k, meant))
    if limits or figures:
        print_expected(limits, figures, as_json)
    elif meant.known:
        print_nothing(hardware, check, meant, as_json)
    else:
        raise UsageError(f"no limit for {check} on {hardware!r}", hint=f"hpcadmin limits list | grep {check}")
    return 0


@command.command()
@click.argument("file", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def lint(obj: dict[str, Any], file: str | None, as_json: bool) -> int:
    """Find limits that cannot be right: in FILE (a file of limits, or a site's), else in the catalogue and the site's.

    What physics forbids, bits taken for bytes, no message size, no source, names that no check has, sources that
    contradict each other, patterns that mean the same hardware. The exit status is 0 without errors, 1 with some,
    2 when a file cannot be read. Remarks are worth a look and change no exit status.
    """
    import datetime

    from hpcadmin.catalogue import Entry, catalogue_files, load_known, read_entries, site_entries
    from hpcadmin.limits_lint import lint as findings_of
    from hpcadmin.registry import load_checks
    from hpcadmin.site import load_site
    site = load_site(obj["site"])
    if file:
        items = _entries_of(file)
        own = {e.file for e in items if isinstance(e, Entry)}
        known = () if own & {str(p.resolve()) for p in catalogue_files()} else load_known()
    else:
        items = [*site_entries(site), *(e for p in catalogue_files() for e in read_entries(p))]
        known = ()
    found = findings_of(items, load_checks(site.checks_dir), datetime.datetime.now().astimezone().date(), known)
    _print_findings(found, len(items), as_json)
    return 1 if any(f.level == "error" for f in found) else 0


def _entries_of(file: str) -> list[Entry | SiteError]:
    """The tables of a file of limits; of a site.toml, and of a file that has other tables too, its [[limit]] tables."""
    from pathlib import Path

    from hpcadmin.catalogue import read_entries, site_entries
    from hpcadmin.site import load_site
    from hpcadmin.toml_text import read_toml
    path = Path(file)
    if set(read_toml(path)) <= {"limit", "known"} and path.name != "site.toml":
        return list(read_entries(path.resolve() if path.resolve().parent.name == "limits" else path))
    return list(site_entries(load_site(file)))


def _print_findings(found: Sequence[Finding], tables: int, as_json: bool) -> None:
    from dataclasses import asdict

    from hpcadmin.records import dumps
    from hpcadmin.text import plural, printable
    errors = sum(f.level == "error" for f in found)
    if as_json:
        click.echo(dumps({"tables": tables, "errors": errors, "remarks": len(found) - errors,
                          "findings": [_placed(asdict(f)) for f in found]}, indent=1))
        return
    for f in found:
        click.echo(printable(f"{f.where}: {f.level}: {f.text} [{f.rule}]", limit=1000))
    click.echo(f"{tables} limits and figures: {plural(errors, 'error')}, {plural(len(found) - errors, 'remark')}")


def _placed(finding: dict[str, Any]) -> dict[str, Any]:
    file, _, line = finding["where"].rpartition(":")
    known = bool(file) and line.isdigit()
    return {"file": file if known else finding["where"], "line": int(line) if known else None, **finding}


def _load(obj: dict[str, Any]) -> Sequence[Limit]:
    from hpcadmin.catalogue import load_limits
    from hpcadmin.site import load_site
    return load_limits(load_site(obj["site"]))


def _show(limits: Sequence[Limit], as_json: bool) -> None:
    from hpcadmin.records import dumps
    from hpcadmin.text import byte_size, printable
    if as_json:
        click.echo(dumps(list(limits), indent=1))
        return
    from hpcadmin.cli._table import print_table
    rows = [[
        limit.check, limit.measurement, "any" if limit.size_bytes is None else byte_size(limit.size_bytes),
        printable(limit.hardware + (f" ({limit.memory} memory)" if limit.memory else "")) or "any",
        "" if limit.ranks is None else str(limit.ranks),
        "" if limit.nodes is None else str(limit.nodes), limit.text(), "simulated" if limit.simulated else "",
        printable(limit.source, limit=400),
    ] for limit in limits]
    print_table(rows, ["check", "value", "size", "hardware", "ranks", "nodes", "limit", "", "source"])
