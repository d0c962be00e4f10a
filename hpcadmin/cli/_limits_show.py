"""What should I expect? Limits and published figures as a curve over message sizes, with their sources."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from hpcadmin import ceilings
from hpcadmin.catalogue import MEASURED, Known
from hpcadmin.check import Direction, Limit
from hpcadmin.cli._table import print_table
from hpcadmin.errors import UsageError
from hpcadmin.limits_lint import measures, overlap
from hpcadmin.records import dumps, to_plain
from hpcadmin.text import byte_size, number, printable

_BAR = 12
TRANSPORTS = ("EFA", "RoCE", "Slingshot", "IB", "TCP")


@dataclass(frozen=True)
class Asked:
    """Hardware as people say it: "h100", "ndr", "roce 400", "efa", "pcie 4"."""

    words: str                     # without the transport
    transport: str = ""            # how it must begin
    names: frozenset[str] = frozenset()        # of models and ports that the words mean, lower case

    @property
    def known(self) -> bool:
        """Whether it means any hardware that this program knows of."""
        return bool(self.names or self.transport)


def asked(hardware: str) -> Asked:
    words = hardware.casefold().split()
    transport = next((t for t in TRANSPORTS if t.casefold() in words), "IB" if "infiniband" in words else "")
    rest = " ".join(w for w in words if w not in (transport.casefold(), "infiniband"))
    pcie = re.fullmatch(r"(?:pcie|gen|pcie ?gen)? ?([3-6])(?:\.0)?(?: ?x16)?", rest)
    rate = re.fullmatch(r"([0-9]{2,4}) ?(?:g|gb|gbps|gbit|gb/s|gb/sec)?", rest)
    if pcie and rest[0] in "pg":
        names = [g.name for g in ceilings.GPUS if g.pcie == int(pcie[1]) and not g.host]
    elif rate:
        names = [n for n in ceilings.RATES if n.startswith(f"{rate[1]} ")]
    else:
        word = re.compile(rf"(?<![a-z0-9]){re.escape(rest)}") if rest else re.compile(r"(?!)")
        names = [n for n in (*(g.name for g in ceilings.GPUS), *ceilings.RATES) if word.search(n.casefold())]
    if transport == "RoCE":
        names = [n for n in names if "(4X" not in n]
    return Asked(rest, transport, frozenset(n.casefold() for n in names))


def is_for(record: Limit | Known, hardware: Asked) -> bool:
    """As a full name matches, and also as people say it: "h100" is for "*H100 80GB HBM3*", "ndr" for any NDR port."""
    pattern, transport = record.hardware.casefold(), record.transport.casefold()
    if hardware.transport and transport and not transport.startswith(hardware.transport.casefold()):
        return False
    if hardware.transport and not transport and not pattern:
        return False
    infiniband = "(4x" in pattern
    if "gb/sec" in pattern and hardware.transport == ("RoCE" if infiniband else "IB"):
        return False
    if not hardware.words:                             # a transport alone
        if transport:
            return transport.startswith(hardware.transport.casefold())
        return hardware.transport in ("RoCE", "IB") and "gb/sec" in pattern
    if not pattern:
        return not transport or bool(hardware.transport)
    if fnmatch.fnmatchcase(hardware.words, pattern) or any(fnmatch.fnmatchcase(n, pattern) for n in hardware.names):
        return True
    return bool(re.search(rf"(?<![a-z0-9]){re.escape(hardware.words)}", pattern))


def print_expected(limits: Sequence[Limit], figures: Sequence[Known], as_json: bool) -> None:
    curves = expected(limits, figures)
    if as_json:
        click.echo(dumps({"expect": curves, "limits": to_plain(list(limits)), "known": to_plain(list(figures))},
                         indent=1))
        return
    for curve in curves:
        click.echo(f"{_title(curve)}")
        rows = [_row(p, curve) for p in curve["points"]]
        bars = any(row[-1] for row in rows)
        headers = ["size", "measured", "pass marks", "limit", "ceiling", *([""] if bars else [])]
        print_table([row if bars else row[:-1] for row in rows], headers)
        click.echo("")
    click.echo("Sources")
    for line in dict.fromkeys([*map(_limit_source, limits), *map(_figure_source, figures)]):
        click.echo(f"  {line}")


def print_checks(hardware: str, limits: Sequence[Limit], figures: Sequence[Known], as_json: bool) -> None:
    """Of which checks anything is known on this hardware, and how much."""
    meant = asked(hardware)
    counts = {name: (sum(x.check == name and bool(x.hardware or x.transport) and is_for(x, meant) for x in limits),
                     sum(k.check == name and is_for(k, meant) for k in figures))
              for name in sorted({x.check for x in limits} | {k.check for k in figures})}
    found = [(name, *count) for name, count in counts.items() if any(count)]
    if not found and not meant.known:
        raise UsageError(f"no hardware is known as {hardware!r}", hint="a GPU model, port rate, transport or PCIe "
                         "generation: h100, ndr, \"roce 400\", efa, \"pcie 4\"")
    if as_json:
        click.echo(dumps([{"check": c, "limits": x, "figures": k} for c, x, k in found], indent=1))
    elif not found:
        click.echo(printable(f"nothing is known of {hardware!r}: runs judge it by derived limits and by peers"))
    else:
        print_table([[c, str(x), str(k)] for c, x, k in found], ["check", "limits", "published figures"])


def print_nothing(hardware: str, check: str, meant: Asked, as_json: bool) -> None:
    """The catalogue has nothing: that, and what the links allow."""
    tops: dict[str, dict[str, Any]] = {}
    for name in (*(g.name for g in ceilings.GPUS), *ceilings.RATES):
        found = _link_allows(check, name) if name.casefold() in meant.names else None
        if found:
            tops[name] = {"most": round(found[0].value, 3), "unit": found[1], "why": found[0].why}
    text = (f"nothing is known of {check} on {hardware!r}: the catalogue has no limit for it, and no published figure. "
            "A run judges it by a limit derived from the ports and links that it finds (docs/judging.md) and by peers.")
    if as_json:
        click.echo(dumps({"expect": [], "limits": [], "known": [], "note": text, "ceilings": tops}, indent=1))
        return
    click.echo(printable(text, limit=600))
    for name, top in tops.items():
        click.echo(printable(f"  {name}: {top['most']:g} {top['unit']} at most ({top['why']})", limit=300))


def _link_allows(check: str, name: str) -> tuple[ceilings.Ceiling, str] | None:
    """By a port, or within a node; None where the one has nothing to do with the other."""
    names = measures(check) or {}
    found = "busbw" if "busbw" in names else "bandwidth"
    if found not in names or check.endswith(("latency", "lat")) or ("Gb/sec" in name) is (found == "busbw"):
        return None
    unit = names[found][0]
    top = ceilings.ceiling(check, found, unit, name, nodes=1, both=check == "osu_bibw")
    return (top, unit) if top else None


def expected(limits: Sequence[Limit], figures: Sequence[Known]) -> list[dict[str, Any]]:
    """One curve for each hardware, value, direction, and number of ranks and nodes; its points by message size."""
    keys: dict[tuple[Any, ...], set[int | None]] = {}
    everything: list[Limit | Known] = [*figures, *limits]
    for x in everything:
        key = (x.measurement, x.unit, x.hardware, x.direction.value, x.nodes, x.ranks)
        keys.setdefault(key, set()).add(x.size_bytes)
    return [_curve(key, keys[key], limits, figures) for key in sorted(keys, key=_order)]


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((part is not None, part) if isinstance(part, int) or part is None else part for part in key)


def _curve(key: tuple[Any, ...], sizes: set[int | None], limits: Sequence[Limit],
           figures: Sequence[Known]) -> dict[str, Any]:
    name, unit, hardware, direction, nodes, ranks = key
    check = limits[0].check if limits else figures[0].check
    both = direction == Direction.BOTH.value
    top = ceilings.ceiling(check, name, unit, hardware, ranks=ranks, nodes=nodes, both=both)
    points = []
    for size in sorted(sizes, key=lambda s: (s is None, s or 0)):
        same = [k for k in figures if (k.measurement, k.unit, k.hardware, k.direction.value, k.nodes, k.ranks,
                                       k.size_bytes) == (*key, size)]
        own = [x for x in limits if (x.measurement, x.unit) == (name, unit) and x.size_bytes in (None, size)
               and x.direction.value in ("", direction) and x.ranks in (None, ranks) and x.nodes in (None, nodes)
               and overlap(x.hardware, hardware) and (bool(x.hardware) or not hardware or x.size_bytes == size)]
        own = [x for x in own if x.hardware == hardware] or own
        points.append({
            "size_bytes": size, "measured": sorted(k.value for k in same if k.kind == MEASURED),
            "pass_marks": sorted(k.value for k in same if k.kind != MEASURED),
            "limit": ", ".join(dict.fromkeys(_bound(x) for x in own)), "min": own[0].min if own else None,
            "max": own[0].max if own else None})
    return {"check": check, "measurement": name, "unit": unit, "hardware": hardware, "direction": direction,
            "nodes": nodes, "ranks": ranks, "ceiling": round(top.value, 3) if top else None,
            "ceiling_why": top.why if top else "", "points": points}


def _bound(limit: Limit) -> str:
    return f"{limit.text()} ({limit.memory} memory)" if limit.memory else limit.text()


def _title(curve: dict[str, Any]) -> str:
    parts = [f"{curve['check']} {curve['measurement']} in {curve['unit']}"]
    parts.append(f"on {curve['hardware']}" if curve["hardware"] else "on any hardware")
    if curve["direction"]:
        parts.append(curve["direction"])
    for what in ("nodes", "ranks"):
        if curve[what]:
            parts.append(f"{curve[what]} {what if curve[what] > 1 else what[:-1]}")
    return printable(", ".join(parts), limit=300)


def _row(point: dict[str, Any], curve: dict[str, Any]) -> list[str]:
    unknown = "not told" if point["measured"] or point["pass_marks"] else "any"
    size = unknown if point["size_bytes"] is None else byte_size(point["size_bytes"])
    top = curve["ceiling"]
    best = max(point["measured"], default=0)
    bar = "#" * max(1, round(_BAR * best / top)) if top and best else ""
    return [size, _span(point["measured"]), _span(point["pass_marks"]), point["limit"], number(top) if top else "", bar]


def _span(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = number(values[0]), number(values[-1])
    return low if low == high else f"{low} to {high}"


def _limit_source(limit: Limit) -> str:
    return printable(f"limit {_bound(limit)}: {limit.source} ({limit.date})", limit=500)


def _figure_source(k: Known) -> str:
    size = f" at {byte_size(k.size_bytes)}" if k.size_bytes else ""
    more = "; ".join(x for x in (k.transport, k.versions, k.note) if x)
    text = f"{k.kind} {number(k.value)} {k.unit}{size}: {k.source} ({k.date}{'; ' + more if more else ''})"
    return printable(text, limit=500)
