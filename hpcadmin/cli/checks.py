"""hpcadmin checks: what can be measured, and one output that somebody already has, read and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcadmin.check import Check, Measurement

MAX_BYTES = 64 * 1024 * 1024


@click.group()
def command() -> None:
    """One check, or an output you already have."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_checks(obj: dict[str, Any], as_json: bool) -> int:
    """Every check: ours and the site's."""
    known = _checks(obj)
    if as_json:
        import json
        click.echo(json.dumps([_record(check) for check in known.values()], indent=1))
        return 0
    from hpcadmin.cli._table import print_table
    rows = [[c.name, c.scope.value, c.impact.value, ", ".join([*c.needs, *c.builds]), c.title] for c in known.values()]
    print_table(rows, ["check", "scope", "impact", "needs", "what it shows"])
    return 0


@command.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(obj: dict[str, Any], name: str, as_json: bool) -> int:
    """What a check measures, needs and can be told."""
    check = _check(obj, name)
    if as_json:
        import json
        click.echo(json.dumps(_record(check), indent=1))
        return 0
    facts = {"scope": f"{check.scope.value}, {check.impact.value}", "needs": ", ".join(check.needs) or "nothing",
             "builds": ", ".join(check.builds), "takes": f"about {check.seconds:g} s",
             "over": ", ".join(layout.value for layout in check.possible),
             "parameters": ", ".join(f"{k} = {v!r}" for k, v in check.params.items())}
    click.echo(f"{check.name}: {check.title}\n")
    click.echo("".join(f"  {key + ':':<12}{text}\n" for key, text in facts.items() if text))
    click.echo(check.doc.strip())
    return 0


@command.command()
@click.argument("name")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def parse(obj: dict[str, Any], name: str, file: str, as_json: bool) -> int:
    """Read an output of the tool of check NAME from FILE (- is stdin).

    The exit status is 0 only if the file is one complete and sound output, else 3.
    """
    from hpcadmin.errors import EXIT_INCOMPLETE, EXIT_OK
    check = _check(obj, name)
    if check.read is not None:
        return _print_reading(check, file, as_json=as_json)
    measurements, problems = _read(check, file)
    problems = problems + [f"{m.name} is {m.value}, expected {m.expected}" for m in measurements
                           if m.expected is not None and m.value != m.expected]
    if as_json:
        import json

        from hpcadmin.records import to_plain
        click.echo(json.dumps({"measurements": to_plain(measurements), "problems": problems}, indent=1))
    else:
        _print_measurements(measurements, problems)
    return EXIT_INCOMPLETE if problems else EXIT_OK


@command.command()
@click.argument("name")
@click.argument("file")
@click.option("--hardware", multiple=True, metavar="NAME",
              help="GPU model or port rate it is from: NVIDIA H100 80GB HBM3. Several times for several.")
@click.option("--inventory", "inventory_file", metavar="FILE",
              help="Where the nodes' hardware stands (what discover -o wrote): limits are also derived from it.")
@click.option("-w", "--nodes", metavar="HOSTLIST", help="The nodes it is from, where it does not tell them.")
@click.option("--simulated", default="", metavar="PROFILE", help="It is from simulated hardware.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def judge(obj: dict[str, Any], name: str, file: str, *, hardware: tuple[str, ...], inventory_file: str | None,
          nodes: str | None, simulated: str, as_json: bool) -> int:
    """Read an output as `parse` does, and judge its values by the site's limits and the catalogue's.

    With --inventory also by limits that are derived from the nodes' hardware. The exit status is 0 if all passed, 1 if
    something failed, 3 if it is not complete or no limit is known. `hpcadmin runs judge` does it for a whole run.
    """
    from hpcadmin.catalogue import load_limits
    from hpcadmin.cli._judge_file import as_test, hardware_of, print_verdicts
    from hpcadmin.judge import judge as verdicts_of
    from hpcadmin.records import dumps
    from hpcadmin.rundata import exit_status
    from hpcadmin.site import load_site
    check = _check(obj, name)
    measurements, problems = _read(check, file)
    result = as_test(check, measurements, problems, nodes, simulated)
    known = hardware_of(result, hardware, inventory_file, simulated)
    verdicts = verdicts_of([result], load_limits(load_site(obj["site"])), known)
    if as_json:
        click.echo(dumps(verdicts, indent=1))
    else:
        print_verdicts(verdicts)
    return exit_status(verdicts)


def _checks(obj: dict[str, Any]) -> dict[str, Check]:
    from hpcadmin.registry import load_checks
    from hpcadmin.site import load_site
    return load_checks(load_site(obj["site"]).checks_dir)


def _check(obj: dict[str, Any], name: str) -> Check:
    from hpcadmin.errors import UsageError
    from hpcadmin.text import did_you_mean
    known = _checks(obj)
    if name not in known:
        raise UsageError(f"unknown check {name!r}", hint=did_you_mean(name, known, "hpcadmin checks list"))
    return known[name]


def _record(check: Check) -> dict[str, Any]:
    return {"name": check.name, "title": check.title, "scope": check.scope.value, "impact": check.impact.value,
            "over": [layout.value for layout in check.possible], "needs": check.needs, "builds": check.builds,
            "params": dict(check.params), "seconds": check.seconds, "doc": check.doc}


def _text(file: str) -> tuple[str, bool]:
    """The file's text, and whether it is longer than what is read."""
    from hpcadmin.errors import UsageError
    try:
        with click.open_file(file, "rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"cannot be read: {exc.strerror}", where=file) from exc
    return raw[:MAX_BYTES].decode("utf-8", "replace"), len(raw) > MAX_BYTES


def _print_reading(check: Check, file: str, *, as_json: bool) -> int:
    """All that the text tells by itself."""
    from hpcadmin.check import Context
    from hpcadmin.errors import EXIT_INCOMPLETE, EXIT_OK
    assert check.read is not None  # noqa: S101
    text, cut = _text(file)
    reading = check.read(text, Context())
    problems = [*reading.problems, *(["longer than what is read"] if cut else [])]
    if as_json:
        import json

        from hpcadmin.records import to_plain
        click.echo(json.dumps({**to_plain(reading), "problems": problems, "sound": not problems}, indent=1))
    else:
        _print_measurements(reading.measurements, problems)
        for note in reading.notes:
            click.echo(f"note: {note}")
    return EXIT_INCOMPLETE if problems else EXIT_OK


def _read(check: Check, file: str) -> tuple[list[Measurement], list[str]]:
    """Measurements, or what is wrong with the file."""
    from hpcadmin.check import Context, Output
    from hpcadmin.errors import ParseError
    text, cut = _text(file)
    output = Output(text, truncated=cut)
    try:
        return check.parse([output], Context()), []
    except ParseError as exc:
        return [], [str(exc)]


def _print_measurements(measurements: Sequence[Measurement], problems: Sequence[str]) -> None:
    from hpcadmin.cli._table import print_table
    from hpcadmin.text import byte_size, printable
    rows = [[f"{m.name} ({m.mode})" if m.mode else m.name, "" if m.size_bytes is None else byte_size(m.size_bytes),
             printable(str(m.value), limit=80), m.unit,
             printable(str(m.subject), limit=80), "; ".join(printable(w, limit=120) for w in m.warnings)]
            for m in measurements]
    if rows:
        print_table(rows, ["measured", "size", "value", "unit", "of", "warnings"])
    for problem in problems:
        click.echo(f"problem: {printable(problem)}")
