"""hpcadmin report: a run as a table, a page or a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpcadmin.report.base import ReportFormat


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
              metavar="table|csv|json|html", help="Form of the report.")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; - is stdout. A page goes into the run folder "
              "as report.html unless this says otherwise, everything else to stdout.")
@click.option("--all", "everything", is_flag=True, help="Leave nothing out for brevity.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_obj
def command(obj: dict[str, str | None], *, run_name: str | None, format_name: str, output: str | None,
            everything: bool, as_json: bool) -> int:
    """Tables, pages and files of a run.

    The exit status is the run's: 0 all passed, 1 something failed, 3 incomplete.
    """
    from hpcadmin.files import write_atomic
    from hpcadmin.report import Options, formats, terminal_options
    from hpcadmin.report.folders import find_run
    from hpcadmin.report.summary import summarise
    from hpcadmin.rundata import read_run
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir

    run = read_run(find_run(runs_dir(load_site(obj["site"])), run_name))
    chosen = formats()["json" if as_json else format_name]
    target = _target(chosen, output, run.path)
    if target is None:
        options = terminal_options(everything=everything)
    else:
        base = os.path.relpath(run.path, target.parent)
        options = Options(everything=everything, link_base="" if base == "." else base)
    text = chosen.render(run, options)
    if target is None:
        sys.stdout.write(text)
    else:
        write_atomic(target, text.encode("utf-8", "backslashreplace"))
        click.echo(str(target))
    return summarise(run).status


def _target(chosen: ReportFormat, output: str | None, folder: Path) -> Path | None:
    if output == "-":
        return None
    if output:
        return Path(os.path.abspath(output))  # noqa: PTH100  (links stay as the user wrote them)
    return folder / f"report{chosen.suffix}" if chosen.in_folder else None
