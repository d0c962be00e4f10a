"""hpcadmin sweep alarms: what tells what a sweep found; and what a sweep leaves for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hpcadmin.errors import EXIT_OK, EXIT_UNREACHABLE

if TYPE_CHECKING:
    from hpcadmin.site import Site
    from hpcadmin.sweep.alarms.config import Alarms
    from hpcadmin.sweep.alarms.watch import Watcher
    from hpcadmin.sweep.night import Report


@click.command()
@click.option("--tell", "act", flag_value="tell", help="Tell what is not told yet.")
@click.option("--digest", "act", flag_value="digest", help="The same, and all problems that there are, once a day.")
@click.option("--test", "act", flag_value="test", help="Send one message by every channel that sends any.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def alarms(obj: dict[str, Any], act: str | None, as_json: bool) -> int:
    """The channels of [sweep.alarms], whether they work, and what they have yet to tell.

    The exit status is 0, or 4 when a channel does not work.
    """
    from hpcadmin.errors import UsageError
    from hpcadmin.site import load_site
    from hpcadmin.sweep.alarms import tell as door
    from hpcadmin.sweep.alarms.config import read_alarms
    from hpcadmin.sweep.night import sweep_dir
    site = load_site(obj["site"])
    found = read_alarms(site)
    if act == "digest" and not found.posts:
        _say(("there is no channel, and nobody is told: [sweep.alarms] of site.toml names them",))
    elif act and not found.posts:
        raise UsageError("there is no channel", where=site.source or None, hint="[sweep.alarms] names them")
    if act == "test":
        return _print_test(door.test(site.cluster.name, found), [post.name for post in found.posts], as_json)
    said = door.tell(sweep_dir(site), site.cluster.name, found, digest=act == "digest") if act else ()
    _say(said)
    rows = door.standing(sweep_dir(site), found)
    _print(rows, as_json)
    return EXIT_UNREACHABLE if said or any(row["failing_since"] for row in rows) else EXIT_OK


def _print_test(answers: dict[str, str], names: list[str], as_json: bool) -> int:
    """Those that send no messages are not tested, and that is said: --tell shows by them what there is."""
    from hpcadmin.records import dumps
    if as_json:
        click.echo(dumps([{"name": name, "sent": answers.get(name) == "", "error": answers.get(name, "")}
                          for name in names], indent=1))
    else:
        for name in names:
            if not answers.get(name):
                click.echo(f"{name}: {'sent' if name in answers else 'sends no message; --tell has it show all'}")
        _say(tuple(f"{name}: {error}" for name, error in answers.items() if error))
    return EXIT_UNREACHABLE if any(answers.values()) else EXIT_OK


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    from hpcadmin.cli._table import print_table
    from hpcadmin.records import dumps
    from hpcadmin.sweep.model import local_iso
    from hpcadmin.text import printable
    if as_json:
        click.echo(dumps(rows, indent=1))
        return
    print_table([[row["name"], row["kind"], local_iso(row["last_ok"]) or "never",
                  "" if row["untold"] is None else str(row["untold"]),
                  f"since {local_iso(row['failing_since'])}: {printable(row['error'], limit=200)}"
                  if row["failing_since"] else ""] for row in rows],
                ["channel", "kind", "last told", "not told yet", "does not work"])


def _say(said: tuple[str, ...]) -> None:
    from hpcadmin.text import printable
    for line in said:
        click.echo(f"hpcadmin: alarms: {printable(line, limit=500)}", err=True)


def tell_of(site: Site, found: Alarms, report: Report) -> None:
    """After a sweep. What goes wrong is said, and changes nothing about it."""
    from hpcadmin.errors import StoreError
    from hpcadmin.sweep.alarms import tell as door
    from hpcadmin.sweep.alarms.facts import facts_of
    from hpcadmin.sweep.night import sweep_dir
    if report.dry_run or not found.posts:
        return
    try:
        if report.plan is not None:
            door.keep_facts(sweep_dir(site), facts_of(report))
    except StoreError as exc:
        _say((str(exc),))
    _say(door.tell(sweep_dir(site), site.cluster.name, found))


def watch_of(found: Alarms) -> Watcher:
    from hpcadmin.slurm.queue_look import QueueLook
    from hpcadmin.sweep.alarms.watch import Watcher
    return Watcher(found.thresholds, QueueLook().queue)


def tell_unable(site: Site, found: Alarms, why: str) -> None:
    """A sweep that could not begin."""
    from hpcadmin.sweep.alarms import tell as door
    _say(door.unable(site.cluster.name, found, why))


@click.command()
@click.option("-o", "--output", "folder", metavar="DIR", help="Write the files there. Without it they are named.")
@click.option("--force", is_flag=True, help="Over files that are there, and are different.")
def prometheus(folder: str | None, force: bool) -> int:
    """Alert rules for Prometheus, and a dashboard for Grafana.

    The rules need node_exporter, dcgm-exporter and Slurm's own metrics or an exporter of them; each group names its
    own. The file that ends in .off is loaded by nobody: it says why.
    """
    from pathlib import Path

    from hpcadmin.errors import UsageError
    from hpcadmin.files import write_atomic
    from hpcadmin.sweep.alarms.prometheus_files import files
    found = files()
    if folder is None:
        for name, text in found.items():
            click.echo(f"{name}: {len(text.encode())} bytes")
        return EXIT_OK
    top = Path(folder)
    if not top.is_dir():
        raise UsageError("is not a folder", where=folder, hint="-o DIR: where Prometheus has its rules")
    here = {name: top / name for name in found if (top / name).exists()}
    other = [name for name, path in here.items() if path.read_text(encoding="utf-8", errors="replace") != found[name]]
    if other and not force:
        raise UsageError(f"{', '.join(other)} is there already, and different", where=folder,
                         hint="--force replaces it")
    for name, text in found.items():
        write_atomic(top / name, text)
        click.echo(f"wrote {top / name}")
    return EXIT_OK
