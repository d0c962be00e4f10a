"""conf render --install: the difference, the check, the question, the files, and what is left to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcadmin.cli import complain
from hpcadmin.errors import EXIT_FAILED, EXIT_OK, StoreError, UsageError

if TYPE_CHECKING:
    from hpcadmin.conf.parts import Rendering
    from hpcadmin.conf_write import Plan
    from hpcadmin.model import Inventory
    from hpcadmin.site import Site


def install(result: Rendering, inventory: Inventory, site: Site, name: str, *, yes: bool) -> int:
    from hpcadmin import conf_install, conf_write
    folder = Path(name).absolute()
    if not folder.is_dir():
        raise StoreError("no such folder", where=str(folder), hint="create it, or name another: --install DIR")
    folder = folder.resolve()
    conf_write.tidy(folder)
    files = dict(result.files)
    if "slurmdbd.conf" in files:
        if site.accounting.password_file:
            files["slurmdbd.conf"] = conf_install.with_password(files["slurmdbd.conf"],
                                                                Path(site.accounting.password_file))
        else:
            raise UsageError("slurmdbd.conf would have no StoragePass", where="[accounting] password_file",
                             hint="name the file with the database's password")
    planned = conf_write.plan(folder, files)
    for other in planned.foreign:
        complain(f"note: {folder / other} is not ours and stays")
    if not planned.changes:
        click.echo(f"{folder}: nothing to change")
        return EXIT_OK
    conf_write.may_write(folder, planned.changes)
    show(planned, result, inventory)
    if not sound(result, inventory, site):
        complain("nothing installed")
        return EXIT_FAILED
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("--install asks, and there is nobody to answer", hint="--yes installs without asking")
        count = len(planned.changes)
        if not click.confirm(f"Write {count} file{'s' if count > 1 else ''} to {folder}?", err=True):
            complain("nothing installed")
            return EXIT_FAILED
    done = conf_write.write(planned, secret=result.secret, owner=result.owner)
    for changed in done.names:
        click.echo(f"wrote {folder / changed}" if changed in files else f"took away {folder / changed}")
    if done.backup is not None:
        click.echo(f"what was there is in {done.backup}")
    click.echo("\n".join(left_to_do(site)))
    return EXIT_OK


def show(planned: Plan, result: Rendering, inventory: Inventory) -> None:
    """The difference line by line, then what Slurm makes of it and what it takes."""
    from hpcadmin import conf_files, conf_install
    from hpcadmin.conf.diff import text
    from hpcadmin.conf.diff.compare import compare
    from hpcadmin.conf.diff.parts import Sides, reasons_of
    from hpcadmin.conf.existing.read import configure
    from hpcadmin.conf.machines import cpu_memory
    for change in planned.changes:
        if change.old is None and change.new is not None:
            click.echo(f"{planned.folder / change.name}: new, {change.new.count(10)} lines")
    for line in conf_install.difference(planned):
        click.echo(line)
    if any(change.name == "slurm.conf" and change.old is None for change in planned.changes):
        return
    memory = {node.name: found for node in inventory.nodes if (found := cpu_memory(node)[0]) is not None}
    sides = Sides(result.version, True, memory, reasons_of(result.explained), frozenset(result.files))
    click.echo(f"\n{text.text(compare(conf_files.read_folder(planned.folder), configure(result.files), sides))}")


def sound(result: Rendering, inventory: Inventory, site: Site) -> bool:
    """Whether conf check finds nothing that keeps a daemon from starting; what it finds is said."""
    from hpcadmin.conf.check.finding import Severity, Situation
    from hpcadmin.conf.check.run import judge
    from hpcadmin.conf.existing.read import configure
    versions = (result.version,) if result.version else ()
    found = judge(Situation(configure(result.files), versions, inventory, site=site), site.slurm.check_ignore).findings
    for finding in found:
        if finding.severity is not Severity.NOTE:
            where = f"{finding.place}: " if finding.place else ""
            complain(f"{finding.severity.value}: {where}{finding.what} [{finding.rule}]")
    return not any(finding.severity is Severity.FATAL for finding in found)


def left_to_do(site: Site) -> list[str]:
    """What installing on this host does not do."""
    if site.slurm.configless:
        return ["slurmd and the commands fetch these files from slurmctld; nothing is to be copied."]
    return ["These files belong on every host of the cluster: copy them where this folder is not shared."]
