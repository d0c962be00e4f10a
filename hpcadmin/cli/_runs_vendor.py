"""hpcadmin runs vendor: what a vendor needs of a faulty node, in one file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hpcadmin.text import printable


@click.command("vendor")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--node", "nodes", metavar="HOSTLIST", help="Of these nodes; else of all that a finding names, alone or "
              "in a pair.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Folder to write into; else here.")
@click.option("--anonymise", is_flag=True, help="Replace names, addresses, serials and people, each by the same "
              "replacement everywhere.")
@click.option("--keep-serials", is_flag=True, help="With --anonymise: serials.csv keeps the real ones, for a return.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def vendor_command(obj: dict[str, str | None], *, run_name: str | None, nodes: str | None, output: Path | None,
                   anonymise: bool, keep_serials: bool, as_json: bool) -> int:
    """One archive a faulty node, for its vendor: findings, failing outputs, values, serials, facts, kernel log.

    The last run if none is named. Exit status: 0 when the archives are written, 3 when something of the run is missing
    or damaged, and so perhaps not in them.
    """
    from hpcadmin.cli import complain
    from hpcadmin.errors import UsageError
    from hpcadmin.files import write_atomic
    from hpcadmin.giveaway import site_key
    from hpcadmin.hosts import expand
    from hpcadmin.report.folders import find_run
    from hpcadmin.report.summary import summarise
    from hpcadmin.rundata import read_run
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir, state_dir
    from hpcadmin.vendor import faulty_nodes
    from hpcadmin.vendor_pack import bundle

    if keep_serials and not anonymise:
        raise UsageError("--keep-serials is for --anonymise", hint="without that, serials are in the archive anyway")
    site = load_site(obj["site"])
    run = read_run(find_run(runs_dir(site), run_name))
    chosen = expand(nodes) if nodes else faulty_nodes(run)
    if not chosen:
        raise UsageError(f"no finding of {run.manifest.run_id} names a node", hint="--node NODE makes one all the same")
    known = {*run.manifest.nodes, *(run.plan.nodes if run.plan else ())}
    strange = [node for node in chosen if node not in known]
    if strange:
        raise UsageError(f"{', '.join(strange[:5])} is not a node of {run.manifest.run_id}")
    into = output or Path()
    if not into.is_dir():
        raise UsageError("is not a folder", where=str(into), hint="-o names the folder to write the archives into")
    key = site_key(state_dir(site)) if anonymise else None
    told, problems = [], summarise(run).problems
    for node in chosen:
        made = bundle(run, node, key=key, keep_serials=keep_serials, checks_dir=site.checks_dir)
        write_atomic(into / made.name, made.data, mode=0o600)
        told.append({"node": node, "file": str(into / made.name), "bytes": len(made.data), "files": list(made.files),
                     "left_out": list(made.left), "findings": len(made.case.findings)})
        if not as_json:
            click.echo(printable(str(into / made.name)))
        if not made.case.findings:
            complain(f"{node}: no finding of this run names it")
        if made.case.facts is None or not made.case.facts.serial:
            complain(f"note: {node}: its serial is not known, for which a vendor asks (hpcadmin discover --sudo dmi "
                     "before the run)")
        for line in made.left[:5]:
            complain(f"{made.name}: left out: {line}")
        if len(made.left) > 5:
            complain(f"{made.name}: left out: {len(made.left) - 5} more, its README.txt names them")
    if as_json:
        click.echo(json.dumps({"run": run.manifest.run_id, "problems": list(problems), "bundles": told},
                              indent=1))
    return 3 if problems else 0
