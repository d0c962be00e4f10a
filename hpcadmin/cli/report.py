"""hpcadmin report: a run as a table, a page or a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.cli._availability_options import asked_for, availability_options, run_it

if TYPE_CHECKING:
    from hpcadmin.report.base import ReportFormat


_MOST_PROBLEMS = 20           # that are told beside a form that has no place for them


class FormatType(click.ParamType[str]):
    """One of the formats that are there; they are looked for only when one is asked for."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from hpcadmin.report import formats
        known = formats()
        if str(value) not in known:
            self.fail(f"{str(value)!r} is not a format; known are {', '.join(known)}", param, ctx)
        return str(value)


@click.command()
@click.option("--run", "run_name", metavar="RUN", help="Id (or its beginning) or folder of the run; else the last one.")
@click.option("--format", "format_name", type=FormatType(), default="table", show_default=True,
              metavar="table|csv|html|json|junit|markdown|prometheus|xlsx", help="Form of the report.")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; - is stdout. A page or workbook "
              "goes into the run folder as report.html or report.xlsx unless this says otherwise, all else to stdout.")
@click.option("--all", "everything", is_flag=True, help="Leave nothing out for brevity.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--alone", is_flag=True, help="Of this run alone, also where it belongs to an acceptance: a run with its "
              "re-tests, which is shown as one else.")
@click.option("--compare", "other", metavar="RUN|baseline", help="What changed since that run, beyond noise; as a "
              "table, or with --json.")
@click.option("--handover", is_flag=True, help="The acceptance document that vendor and customer sign, as a folder: "
              "handover/ in the run folder unless -o names another.")
@click.option("--criteria", multiple=True, metavar="FILE", help="With --handover: contract criteria and waivers; may "
              "be given several times.")
@click.option("--lang", default="en", show_default=True, metavar="en|zh", help="With --handover: its language.")
@click.option("--conf", metavar="DIR", help="With --handover: the configuration files that are handed over.")
@click.option("--live", metavar="DIR", help="With --conf: the live ones, to show how they differ.")
@availability_options
@click.pass_context
def command(ctx: click.Context, /, *, run_name: str | None, format_name: str, output: str | None, everything: bool,
            as_json: bool, alone: bool, other: str | None, handover: bool, criteria: tuple[str, ...], lang: str,
            conf: str | None, live: str | None, **about: Any) -> int:
    """Tables, pages and files of a run; where it has been measured again after a repair (validate --retest), of it and
    its re-tests as one, whichever of them is named.

    The exit status is the run's: 0 all passed, 1 something failed, 3 incomplete. With --handover it is that of the
    statement: 0 accepted, also with waivers, 1 a criterion is not met, 3 none is broken and some could not be shown.
    With --compare: 0 nothing got worse, 1 something did, 3 it cannot be told. With --availability and --quarter: 0 the
    line is met, 1 it is not, 3 it is not shown.
    """
    obj: dict[str, str | None] = ctx.obj
    if asked_for(ctx, about):
        return run_it(obj, about, form="json" if as_json else format_name, output=output, everything=everything)
    if other is not None:
        if handover or output or alone or format_name not in ("table", "json"):
            raise click.UsageError("--compare goes with --run, --all and --json")
        from hpcadmin.cli._report_compare import compare_command
        from hpcadmin.cli._runs_keep import run_of
        return compare_command(obj, run_of(obj, run_name), other, everything=everything,
                               as_json=as_json or format_name == "json")
    if handover:
        from hpcadmin.cli._handover import write_handover
        return write_handover(obj["site"], run_name, output, criteria, lang, conf=conf, live=live, alone=alone)
    if criteria or conf or live or lang != "en":
        raise click.UsageError("--criteria, --lang, --conf and --live go with --handover")
    from hpcadmin.acceptance_read import read_acceptance
    from hpcadmin.cli import complain
    from hpcadmin.files import write_atomic_parts
    from hpcadmin.report import Options, formats, terminal_options
    from hpcadmin.report.folders import find_run
    from hpcadmin.report.summary import summarise
    from hpcadmin.report.whole import read_for_report
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    from hpcadmin.text import printable

    chosen = formats()["json" if as_json else format_name]
    runs = runs_dir(load_site(obj["site"]))
    folder = find_run(runs, run_name)
    _require_place(output)
    run = (read_for_report(folder, values=chosen.values) if alone
           else read_acceptance(folder, runs, values=chosen.values))
    target = _target(chosen, output, run.path)
    if target is None:
        options = terminal_options(everything=everything)
    else:
        base = os.path.relpath(run.path, target.parent)
        options = Options(everything=everything, link_base="" if base == "." else base)
    if target is None and chosen.data is not None and not sys.stdout.isatty():
        sys.stdout.buffer.write(chosen.content(run, options))
    elif target is None:
        for part in chosen.parts(run, options) if chosen.parts else (chosen.render(run, options),):
            sys.stdout.write(part)
    else:
        write_atomic_parts(target, chosen.pieces(run, options))
        click.echo(printable(str(target)))
    summary = summarise(run)
    for problem in summary.problems[:_MOST_PROBLEMS] if not chosen.tells else ():
        complain(f"{run.path.name}: {printable(problem, limit=500)}")
    return summary.status


def _require_place(output: str | None) -> None:
    from hpcadmin.files import require_replaceable
    if output and output != "-":
        require_replaceable(Path(os.path.abspath(output)))  # noqa: PTH100  (as the user wrote it)


def _target(chosen: ReportFormat, output: str | None, folder: Path) -> Path | None:
    if output == "-":
        return None
    if output:
        return Path(os.path.abspath(output))  # noqa: PTH100  (links stay as the user wrote them)
    return folder / f"report{chosen.suffix}" if chosen.in_folder else None
