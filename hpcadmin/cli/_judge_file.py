"""One output as if it were a test's result, on the nodes that it names or that the caller names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from hpcadmin import hosts, inventory
from hpcadmin.check import Check, Measurement, Subject, Verdict
from hpcadmin.errors import UsageError
from hpcadmin.model import Gpu, Inventory, Nic, Node
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.text import byte_size, number, printable

_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/sec")


def as_test(check: Check, measurements: Sequence[Measurement], problems: Sequence[str], nodes: str | None,
            simulated: str) -> TestResult:
    named = tuple(dict.fromkeys(n for m in measurements for n in m.subject.nodes))
    said = tuple(hosts.expand(nodes)) if nodes else ()
    if said and named and not set(named) <= set(said):
        raise UsageError(f"the output is from {hosts.fold(named)}, not from {hosts.fold(said)}")
    test = PlannedTest("t0001", check.name, Subject(said or named or ("file",)), (), 1)
    return TestResult(test, tuple(measurements), "; ".join(problems), simulated=simulated)


def hardware_of(result: TestResult, hardware: Sequence[str], file: str | None, simulated: str) -> Inventory:
    """The nodes as the inventory has them, with the hardware beside that the caller names."""
    found = inventory.load(Path(file)).nodes if file else ()
    known = {**{n.hostname: n for n in found if n.hostname}, **{n.name: n for n in found}}
    names = result.test.subject.nodes
    missing = [n for n in names if n not in known] if file else []
    if missing:
        raise UsageError(f"not in the inventory: {hosts.fold(missing)}", where=file, hint="name the nodes with -w")
    ports = tuple(_port(h) for h in hardware if _RATE.match(h))
    gpus = tuple(Gpu("", model=h) for h in hardware if not _RATE.match(h))
    made = [replace(known[n], name=n) if n in known else Node(n) for n in names]
    return Inventory(tuple(replace(n, simulated=simulated or n.simulated, gpus=(*n.gpus, *gpus), nics=(*n.nics, *ports))
                           for n in made))


def _port(text: str) -> Nic:
    found = _RATE.match(text)
    return Nic("", rate_text=text, rate_gbps=float(found[1]) if found else None)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    from hpcadmin.cli._table import print_table
    rows = []
    for v in verdicts:
        m = v.measurement
        size = "" if m is None or m.size_bytes is None else byte_size(m.size_bytes)
        value = "" if m is None else printable(f"{number(m.value)} {m.unit}".strip(), limit=80)
        rows.append([v.status.value, printable(str(v.subject), limit=60),
                     v.check if m is None else f"{m.name} ({m.mode})" if m.mode else m.name, size, value,
                     printable(v.limit.text()) if v.limit else "", printable(v.reason, limit=160)])
    print_table(rows, ["verdict", "of", "measured", "size", "value", "limit", "why"])
    for source in dict.fromkeys(v.limit.source for v in verdicts if v.limit and v.limit.source):
        click.echo(printable(f"limit from: {source}", limit=400))
