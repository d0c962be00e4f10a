"""What should I expect? Limits and published figures as a curve over message sizes, with their sources."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import click
from tabulate import tabulate

from hpcadmin import ceilings
from hpcadmin.catalogue import MEASURED, Known
from hpcadmin.check import Direction, Limit
from hpcadmin.limits_lint import overlap
from hpcadmin.records import dumps, to_plain
from hpcadmin.text import byte_size, number, printable

_BAR = 20


def is_for(pattern: str, hardware: str) -> bool:
    """As a full name matches, and also as people say it: "h100" is for "*H100 80GB HBM3*", "ndr" for any NDR port."""
    if not pattern or fnmatch.fnmatchcase(hardware.casefold(), pattern.casefold()):
        return True
    word = re.compile(rf"(?<![a-z0-9]){re.escape(hardware.casefold())}")
    names = [n.casefold() for n in (*(g.name for g in ceilings.GPUS), *ceilings.RATES)]
    said = [n for n in names if word.search(n)]        # a word or how it begins: "ndr", "mi300"
    return bool(word.search(pattern.casefold())) or any(fnmatch.fnmatchcase(n, pattern.casefold()) for n in said)


def print_expected(limits: Sequence[Limit], figures: Sequence[Known], as_json: bool) -> None:
    curves = expected(limits, figures)
    if as_json:
        click.echo(dumps({"expect": curves, "limits": to_plain(list(limits)), "known": to_plain(list(figures))},
                         indent=1))
        return
    for curve in curves:
        click.echo(f"{_title(curve)}")
        click.echo(tabulate([_row(p, curve) for p in curve["points"]],
                            headers=["size", "measured", "others' pass mark", "limit", "ceiling", ""],
                            tablefmt="simple", disable_numparse=True))
        click.echo("")
    click.echo("Sources")
    for line in dict.fromkeys([*map(_limit_source, limits), *map(_figure_source, figures)]):
        click.echo(f"  {line}")


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
            "limit": own[0].text() if own else "", "min": own[0].min if own else None,
            "max": own[0].max if own else None})
    return {"check": check, "measurement": name, "unit": unit, "hardware": hardware, "direction": direction,
            "nodes": nodes, "ranks": ranks, "ceiling": round(top.value, 3) if top else None,
            "ceiling_why": top.why if top else "", "points": points}


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
    return printable(f"limit {limit.text()}: {limit.source} ({limit.date})", limit=500)


def _figure_source(k: Known) -> str:
    size = f" at {byte_size(k.size_bytes)}" if k.size_bytes else ""
    more = "; ".join(x for x in (k.transport, k.versions, k.note) if x)
    text = f"{k.kind} {number(k.value)} {k.unit}{size}: {k.source} ({k.date}{'; ' + more if more else ''})"
    return printable(text, limit=500)
