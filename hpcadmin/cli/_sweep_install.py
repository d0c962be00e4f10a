"""hpcadmin sweep install: what starts the sweep every night, and what makes slurmd run hpcadmin-health."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from hpcadmin.sweep.install import Wanted
    from hpcadmin.sweep.install_write import Change

_SITE = "/etc/hpcadmin/site.toml"


@click.command()
@click.option("--with", "way", type=click.Choice(["auto", "systemd", "cron"]), default="auto", show_default=True,
              help="What starts it.")
@click.option("--at", metavar="HH:MM", default="02:30", show_default=True, help="When.")
@click.option("--digest-at", metavar="HH:MM", default="07:30", show_default=True,
              help="When the digest of all problems is told; never: not at all.")
@click.option("--user", default="root", show_default=True,
              help="As whom; another than root needs Slurm's Operator level.")
@click.option("--command", "program", metavar="PATH", help="hpcadmin, where it is not the one that runs now.")
@click.option("--slurm-conf", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the lines into this file too.")
@click.option("--health-program", default="/usr/sbin/hpcadmin-health", show_default=True, help="On the nodes.")
@click.option("--interval", metavar="SECONDS", type=int, default=300, show_default=True, help="HealthCheckInterval.")
@click.option("--states", default="ANY,CYCLE", show_default=True, help="HealthCheckNodeState.")
@click.option("--prolog", is_flag=True, help="A Prolog= line too: a bad result before a job drains the node.")
@click.option("--epilog", is_flag=True, help="An Epilog= line too.")
@click.option("--replace", is_flag=True, help="Put another HealthCheckProgram out of use (its lines become comments).")
@click.option("--root", metavar="DIR", type=click.Path(path_type=Path), default="/", help="Into an image, below DIR.")
@click.option("--uninstall", is_flag=True, help="Take away what this has installed.")
@click.option("--write", is_flag=True, help="Do it. Without this it is only shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def install(obj: dict[str, Any], /, as_json: bool, write: bool, uninstall: bool, root: Path, **options: Any) -> int:
    """Have the sweep run every night, and slurmd run hpcadmin-health.

    Units and a timer, or a cron file with rotation of its log; the lines of slurm.conf are shown, and written with
    --slurm-conf. Nothing is done without --write. Files that are not of hpcadmin are refused; of slurm.conf a copy
    stays beside it.
    """
    from hpcadmin.sweep import install as made
    from hpcadmin.sweep import install_slurm, install_write
    wanted = None if uninstall else _wanted(obj["site"], root, options)
    lines = install_slurm.lines(options["health_program"], options["interval"], options["states"],
                                prolog=options["prolog"], epilog=options["epilog"])
    changes = install_write.plan_files(root, made.own_files(wanted))
    if wanted is not None:
        user = install_write.account(wanted.user)
        changes = [*install_write.plan_folders(root, made.folders(wanted), user), *changes]
    if options["slurm_conf"] is not None:
        changes += install_write.plan_slurm(options["slurm_conf"].absolute(), None if uninstall else lines,
                                            replace=options["replace"])
    running = root == Path("/") and install_write.has_systemd(root)
    on = running and wanted is not None and wanted.way == made.SYSTEMD and install_write.timers_on(wanted.timers)
    commands = made.systemctl([str(change.path) for change in changes], wanted, enabled=on) if running else ()
    going = [name for name, path in made.TIMERS.items() if running
             and any(change.new is None and str(change.path) == path for change in changes)]
    copies: list[Path] = []
    if write:
        if going:
            install_write.ask_systemd([("systemctl", "disable", "--now", timer) for timer in going])
        copies = install_write.write(changes)
        install_write.ask_systemd(commands)
    shown = [] if uninstall or options["slurm_conf"] is not None else [f"{key}={value}" for key, value in lines]
    _print(changes, commands, copies, shown, write=write, as_json=as_json)
    hooks = [value for key, value in lines if key in ("Prolog", "Epilog") and not uninstall]
    if hooks:
        click.echo(f"{' and '.join(hooks)} must be on every node before Slurm reads these lines (hpcadmin health build "
                   "--hooks; the playbook sees to it): Slurm drains each node without", err=True)
    return EXIT_OK


def _wanted(site_file: str | None, root: Path, options: dict[str, Any]) -> Wanted:
    import grp
    import os
    import shutil

    from hpcadmin.site import Site, load_site
    from hpcadmin.sweep import install_write
    from hpcadmin.sweep.ahead import ahead
    from hpcadmin.sweep.install import CRON_WAY, SYSTEMD, Wanted, check, search_path
    way = options["way"]
    if way == "auto":
        if root != Path("/"):
            raise UsageError("--root wants --with systemd or --with cron: what an image starts cannot be seen")
        way = SYSTEMD if install_write.has_systemd(root) else CRON_WAY
    user = install_write.account(options["user"])
    # Not ./site.toml nor one in a home, as by hand: the night has neither.
    named = site_file or os.environ.get("HPCADMIN_SITE") or (_SITE if Path(_SITE).is_file() else "")
    site = load_site(named) if named else Site()
    state = os.environ.get("HPCADMIN_DIR") or site.run_dir or "~/hpcadmin"
    scontrol = shutil.which("scontrol")
    path = search_path(str(Path(scontrol).parent)) if scontrol else ""
    variables = [(name, value) for name in ("HPCADMIN_DIR", "SLURM_CONF") if (value := os.environ.get(name))]
    variables += [("PATH", path)] if path else []
    home = user.pw_dir.rstrip("/")
    state = home + state[1:] if state == "~" or state.startswith("~/") else state
    wanted = Wanted(way, options["program"] or _program(), str(Path(named).absolute()) if named else "", user.pw_name,
                    grp.getgrgid(user.pw_gid).gr_name, options["at"], str(Path(state)), tuple(variables),
                    (site.shared_dir,) if site.shared_dir.startswith("/") else (), options["digest_at"])
    check(wanted)
    if root == Path("/"):
        install_write.trusted(wanted.program, "--command", user.pw_uid)
        if wanted.site:
            install_write.trusted(wanted.site, "--site", user.pw_uid)
        for line in ahead(site, user.pw_uid):
            click.echo(f"hpcadmin: {line}", err=True)
    return wanted


def _program() -> str:
    """The hpcadmin that runs now, as it was called; else the one on PATH."""
    import shutil
    import sys
    called = Path(sys.argv[0])
    if called.name == "hpcadmin" and called.is_file():
        return str(called.absolute())
    found = shutil.which("hpcadmin")
    if found is None:
        raise UsageError("which hpcadmin is to run every night?", hint="--command PATH")
    return found


def _print(changes: list[Change], commands: tuple[tuple[str, ...], ...], copies: list[Path], lines: list[str], *,
           write: bool, as_json: bool) -> None:
    from hpcadmin import records
    from hpcadmin.text import printable
    if as_json:
        click.echo(records.dumps({
            "changes": [*({"path": str(c.path), "what": c.what, "text": c.new} for c in changes),
                        *({"path": "", "what": " ".join(argv), "text": None} for argv in commands)],
            "written": write, "copies": [str(path) for path in copies], "slurm_conf": lines}, indent=1))
        return
    done = {"create": "wrote", "change": "wrote", "remove": "took away"} if write else {
        "create": "would write", "change": "would change", "remove": "would take away"}
    for change in changes:
        click.echo(f"{done[change.what]} {printable(str(change.path))}{' (a folder)' if change.folder else ''}")
        if not write and not change.folder and change.new is not None:
            _show(change)
    for path in copies:
        click.echo(f"what was there is in {printable(str(path))}")
    for argv in commands:
        click.echo(f"{'ran' if write else 'would run'} {' '.join(argv)}")
    if not changes and not commands:
        click.echo("nothing to change")
    elif not write:
        click.echo("nothing was done: --write does it")
    if lines:
        click.echo("\nIn slurm.conf, for hpcadmin-health on every node (--slurm-conf FILE writes it):")
        click.echo("\n".join(f"    {line}" for line in lines))


def _show(change: Change) -> None:
    import difflib

    from hpcadmin.text import printable
    old, new = (change.old or "").splitlines(), (change.new or "").splitlines()
    for line in difflib.unified_diff(old, new, lineterm="", n=1):
        if not line.startswith(("---", "+++", "@@")):
            click.echo(f"    {printable(line, limit=500)}")
