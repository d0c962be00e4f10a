r"""The whole InfiniBand fabric is sound: ibdiagnet's stages, its counters and its links, asked from one node.

`ibdiagnet -o DIR` is run once, on the first node with an InfiniBand port that is up. It looks at every switch and
adapter of the fabric, also at those of nodes that are not of this run, and takes minutes on a large one; parameter
`limit_s` bounds it. It writes into a new directory of the node's $TMPDIR or /tmp, which is removed afterwards; what is
told of it is bounded: 50 lines of error and 20 of warning of each stage, and of the data base (ibdiagnet2.db_csv) the
sections and columns that are judged here. It clears no counter and changes nothing. It opens /dev/infiniband/umad*,
which on most systems only root may: set sudo = true and allow the command in sudoers. Without the rights the test is an
error. With RoCE alone there is no such fabric.

Measured, of the table of stages at its end (Summary of ibdiagnet 2.x, Stages Status Report of 1.5.x):
- the errors of each stage (`port_counters`, `links_check`, `speed_width_checks`, …): 0, else a failure with the lines'
  own words; its warnings (`port_counters_warnings`, …): a warning. A stage that says N/A was not checked, which is
  told, and a warning for those without which no fabric is looked at (discovery, LIDs, links, subnet manager, counters,
  nodes, speed and width). A run without the table did not finish: an error;
- `nodes`, `switches`, `adapters`, `links` that it found are shown.
Of the data base, where it has them:
- `duplicate_guids`, `duplicate_lids`, `waiting_ports` (INIT, ARMED), `slow_links` (slower or narrower than both ends
  can and may, or not the same at both), `masters` (one master subnet manager): a failure;
- `duplicate_names` (node descriptions), ports whose counters of damage are not zero (`symbol_error_ports`,
  `port_rcv_errors_ports`, …; since they were last cleared, whenever that was): a warning;
- `errors_CODE` (a failure) and `warnings_CODE` (a warning): its events by their names, as BER_EXCEEDS_THRESHOLD;
- `nodes_found`: the nodes of this test by their node descriptions, where these hold host names.

Parameter `ignore`: stages (`Port Counters`) whose warnings are known to be harmless, and names of events, separated by
commas; they are told, and not judged. Errors of a stage are always judged. `options` is what else ibdiagnet is asked
for (its BER test, by default); a version that does not know these runs without them. It looks at the fabric of one
port, the first that is up: where rails are separate fabrics, name the port of each in a test of its own (`-i mlx5_2`).

`checks parse` reads what it prints, its log (ibdiagnet2.log) and its ibdiagnet2.db_csv, which alone does not say
how the run ended. The formats are taken from public documentation and from recorded outputs of 1.5.7 to 2.13; messages
of 1.5.7 without an adapter are from runs. We have not run it on an InfiniBand fabric ourselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Measurement,
    Output,
    ParseError,
    Reading,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import asking, ibdiagnet_csv, ibdiagnet_log, ibdiagnet_run

OPTIONS = "--get_phy_info"
_OPTION = re.compile(r"[A-Za-z0-9_=,.:/+-]{1,100}\Z")
_ALONE = "a data base by itself does not tell whether ibdiagnet finished"
_OPEN = "nothing stands after the table of stages: the text may be cut"


def steps(context: Context) -> tuple[Step, ...]:
    limit = max(60, min(context.param_int("limit_s", 900), 7200))
    options = str(context.params.get("options", OPTIONS)).split()
    bad = [word for word in options if not _OPTION.match(word)]
    if bad:
        raise ParseError(f"options has {lib.shown(bad[0])!r}: plain words are wanted")
    argv = ("/bin/sh", "-c", ibdiagnet_run.SCRIPT, "ibdiagnet", context.tools["ibdiagnet"],
            asking.as_root(context), str(limit), *options)
    return (Step(argv=argv, nodes=asking.fabric_node(context), timeout_s=limit * 2 + 120.0, name="ibdiagnet"),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    text = lib.require(outputs, count=1)[0].text
    lib.no_fatal_lines(lib.lines_of(text))
    return _measured(ibdiagnet_run.told(text), context)


def _measured(told: ibdiagnet_run.Told, context: Context) -> list[Measurement]:
    ignored = frozenset(word.strip().lower() for word in str(context.params.get("ignore", "")).split(",")
                        if word.strip())
    found: list[Measurement] = []
    if told.log is not None:
        found += _of_log(told.log, ignored)
        if told.framed:
            found += _end(told, told.log)
        elif not told.log.ended:
            if context.nodes:
                raise ParseError(_OPEN)
            found = _doubted(found, _OPEN)
    if told.fabric is not None:
        of_base = list(ibdiagnet_csv.measured(told.fabric, ignored))
        if told.log is None:
            if context.nodes:
                raise ParseError(_ALONE)
            of_base = _doubted(of_base, _ALONE)
        found += [*of_base, *_hosts(told.fabric, context)]
    if not any(m.key or m.expected is not None for m in found):
        raise ParseError("nothing of it can be judged")
    nodes = Subject(tuple(node.name for node in context.nodes))
    return [replace(m, subject=nodes) for m in found] if context.nodes else found


def _doubted(found: Sequence[Measurement], why: str) -> list[Measurement]:
    return [replace(m, warnings=(*m.warnings, why)) if m.key or m.expected is not None else m for m in found]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "stage"


def _of_log(log: ibdiagnet_log.Log, ignored: frozenset[str]) -> Iterator[Measurement]:
    core = dict(ibdiagnet_log.core(log))
    for stage in log.stages:
        name = _slug(stage.name)
        if stage.errors is None or stage.warnings is None:
            yield _unchecked(stage.name, core.get(stage.name, ""), stage.name.lower() in ignored)
            continue
        said = log.words(stage.name, "E") or log.words(stage.name, "W")
        comment = (stage.comment,) if stage.comment else ()
        yield Measurement(name, stage.errors, "count", expected=0,
                          warnings=tuple(map(lib.shown, said[:3] or comment)) if stage.errors else ())
        if stage.warnings and stage.name.lower() in ignored:
            yield Measurement(f"{name}_warnings_ignored", stage.warnings, "count", key=False)
        elif stage.warnings:
            said = log.words(stage.name, "W")[:3] or [f"{stage.warnings} warnings of {lib.shown(stage.name)}"]
            yield Measurement(f"{name}_warnings", stage.warnings, "count", expected=stage.warnings,
                              warnings=tuple(map(lib.shown, said)))
    for lost in (name for name in core if log.stage(name) is None):
        yield _unchecked(lost, core[lost], lost.lower() in ignored)
    yield from _contradicted(log, ignored)
    for counted, number in log.counts.items():
        if counted == "nodes" and not number:
            raise ParseError("no node of the fabric was discovered")
        yield Measurement(counted, number, "count", key=False)


def _unchecked(stage: str, why: str, ignored: bool) -> Measurement:
    if not why or ignored:
        return Measurement(_slug(stage), "not checked", key=False)
    return Measurement(_slug(stage), "not checked", expected="not checked",
                       warnings=(f"{stage} was not checked: {lib.shown(why)}",))


def _contradicted(log: ibdiagnet_log.Log, ignored: frozenset[str]) -> Iterator[Measurement]:
    """Lines of error and warning that no row of the table counts."""
    for kind, name in (("E", "other_errors"), ("W", "other_warnings")):
        other = [line for (stage, letter), lines in log.said.items() for line in lines
                 if letter == kind and not _counted(log.stage(stage), kind) and stage.lower() not in ignored]
        if other:
            yield Measurement(name, len(other), "count", expected=0 if kind == "E" else len(other),
                              warnings=tuple(other[:3]))


def _counted(stage: ibdiagnet_log.Stage | None, kind: str) -> bool:
    return stage is not None and bool(stage.errors or (kind == "W" and stage.warnings))


def _end(told: ibdiagnet_run.Told, log: ibdiagnet_log.Log) -> Iterator[Measurement]:
    if told.status and not any(stage.errors for stage in log.stages):
        yield Measurement("exit_status", told.status, expected=told.status, warnings=(
            f"ibdiagnet ended with exit status {told.status}, and its table has no error",))
    if told.plain:
        yield Measurement("options", "not known", expected="not known", warnings=(
            "this ibdiagnet does not know the options: it was run without them",))
    if told.fabric is None and not log.old:
        yield Measurement("data_base", "not there", expected="not there", warnings=(
            "ibdiagnet2.db_csv was not written: links and counters were judged by the table alone",))
    for name, there in _in_base(told.fabric):
        if there and (number := log.counts.get(name, there)) != there:
            yield Measurement(f"db_{name}", there, "count", expected=number, warnings=(
                f"{number} {name} are told, and the data base has {there}",))


def _in_base(fabric: ibdiagnet_csv.Fabric | None) -> tuple[tuple[str, int], ...]:
    return () if fabric is None or fabric.partial else (("nodes", len(fabric.nodes)), ("links", len(fabric.links)))


def _hosts(fabric: ibdiagnet_csv.Fabric, context: Context) -> Iterator[Measurement]:
    """The nodes of the test, where descriptions hold host names at all."""
    asked = [n for n in context.nodes if not n.ports or any(p.up and p.link_layer == "InfiniBand" for p in n.ports)]
    short = {name.split(".")[0].lower() for name in fabric.hosts}
    lost = [n.name for n in asked
            if not {n.name.split(".")[0].lower(), (n.hostname or n.name).split(".")[0].lower()} & short]
    if asked and len(lost) < len(asked):
        said = (f"not in the fabric: {', '.join(lost[:8])}",) if lost else ()
        yield Measurement("nodes_found", len(asked) - len(lost), "count", expected=len(asked), warnings=said)


def read(text: str, context: Context) -> Reading:
    """What ibdiagnet printed or logged, its data base, or what our own script printed."""
    lines = lib.lines_of(text)
    problems = [f"the output has an error line: {lib.shown(line)}" for line in lib.fatal_lines(lines)]
    try:
        told = ibdiagnet_run.told(text)
        found = _measured(told, replace(context, nodes=()))
    except ParseError as exc:
        return Reading(problems=(*problems, f"{exc}{f' ({exc.hint})' if exc.hint else ''}"))
    whole = not problems
    problems += [f"{m.name} is {m.value}, not {m.expected}" + "".join(f"; {w}" for w in m.warnings)
                 for m in found if m.expected is not None and m.value != m.expected]
    if told.log is None:
        problems.append(_ALONE)
    elif not told.framed and not told.log.ended:
        problems.append(_OPEN)
    notes = [f"{m.name}: {w}" for m in found for w in m.warnings if w not in (_ALONE, _OPEN)]
    notes += [f"{m.name}: {m.value}" for m in found if m.name.endswith("_ignored") or m.value == "not checked"]
    hosts = None if told.fabric is None else len(told.fabric.hosts)
    return Reading(tuple(found), tuple(problems), usable=whole, notes=tuple(dict.fromkeys(notes)), hosts=hosts)


CHECK = Check(
    name="ibdiagnet", title="The InfiniBand fabric is sound as ibdiagnet sees it", scope=Scope.CLUSTER,
    needs=("infiniband", "ibdiagnet"), params={"sudo": False, "limit_s": 900, "options": OPTIONS, "ignore": ""},
    steps=steps, parse=parse, seconds=120.0, doc=__doc__ or "", probe=("ibdiagnet", "--version"), read=read,
)
