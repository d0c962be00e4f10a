"""Pairs as a heat map: a tile a pair, or above 64 nodes a tile for each two leaf switches. Pure geometry.

The page of `report --format html` draws its pairs with it, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.check import Status, Verdict
from hpcadmin.handover.model import Column, HeatMap, Table, Tile
from hpcadmin.handover.texts import msg
from hpcadmin.inventory import natural
from hpcadmin.peers import lower_is_better, number_problem
from hpcadmin.text import number

MOST_NODES = 64          # above this a rectangle a pair is unreadable, and 29 MB at 1,000 nodes
SHADES = (0.95, 0.90, 0.80, 0.50)      # of the usual value; the last shade is below all of them
_SIDE = 640.0            # of the square, in pixels
_MARGIN = 96.0
_MOST_PAIRS = 120        # rows; the worst
_MOST_OF_NODES = 40      # rows, where the map is not by nodes
_LABEL = 12              # characters that there is room for
_MOST_TEXT = 24          # tiles in a row that have room for a number
_BY = {"node": ("col_node", "table_by_node"), "leaf": ("col_leaf", "table_by_leaf"),
       "block": ("col_block", "table_by_block")}
_NAMES = ("col_node", "col_leaf", "col_block", "col_pair", "col_two_leaf", "col_two_block", "col_result")
_BAD = (Status.FAIL, Status.ERROR)


@dataclass(frozen=True)
class Pair:
    a: str
    b: str
    value: float | None
    status: Status

    @property
    def bad(self) -> bool:
        return self.status in _BAD


@dataclass(frozen=True)
class Square:
    """What belongs to one place of the map."""

    pairs: int
    bad: int
    values: tuple[float, ...]


def heat_map(name: str, title: str, found: Sequence[Verdict], without: Sequence[Verdict],
             leaves: Mapping[str, str]) -> tuple[HeatMap, tuple[Table, ...]]:
    """The picture and its numbers as tables."""
    first = found[0].measurement if found else None
    lower = _lower(found)
    unit = first.unit if first else ""
    pairs = [_pair(v) for v in [*found, *without]]
    nodes = sorted({n for p in pairs for n in (p.a, p.b)}, key=lambda n: (natural(leaves.get(n, "")), natural(n)))
    usual = _usual(pairs, lower=lower)
    by = "node" if len(nodes) <= MOST_NODES else "leaf" if all(n in leaves for n in nodes) else "block"
    groups = [(n, [n]) for n in nodes] if by == "node" else _groups(nodes, leaves)
    squares = _squares(pairs, groups)
    map_ = _map(name, title, unit, groups, squares, usual=usual, lower=lower, by=by, leaves=leaves)
    tables = [_numbers(f"{name}-numbers", title, unit, groups, squares, lower=lower, by=by)]
    if by != "node":
        each = [(n, [n]) for n in nodes]
        tables.append(_numbers(f"{name}-nodes", title, unit, each, _squares(pairs, each), lower=lower, by="node"))
        tables.append(_worst(f"{name}-worst", title, unit, groups, squares, usual=usual, lower=lower, by=by))
    elif len(nodes) > 2:
        tables.append(_all_pairs(f"{name}-pairs", title, unit, pairs, usual, lower=lower))
    return map_, tuple(tables)


def _lower(found: Sequence[Verdict]) -> bool:
    """Whether less is better: by the unit, else by what the limits say."""
    told = lower_is_better(found[0].measurement) if found and found[0].measurement else False
    if told is not None:
        return told
    return any(v.limit and v.limit.max is not None and v.limit.min is None for v in found)


def _ratio(value: float | None, usual: float, *, lower: bool) -> float:
    """1 for what is as usual, 0 for the worst."""
    if value is None:
        return 0.0
    part, whole = (usual, value) if lower else (value, usual)
    return 1.0 if part == whole else part / whole if whole else float(lower is False)


def _pair(v: Verdict) -> Pair:
    a, b = v.subject.nodes
    m = v.measurement
    value = None if m is None or number_problem(m.value) else float(m.value)
    return Pair(a, b, value, v.status)


def _usual(pairs: Sequence[Pair], *, lower: bool) -> float:
    """The median over the nodes of each one's best pair, which one bad node cannot move."""
    best: dict[str, float] = {}
    for p in pairs:
        if p.value is not None:
            for n in (p.a, p.b):
                best[n] = p.value if n not in best else (min if lower else max)(best[n], p.value)
    return statistics.median(best.values()) if best else 0.0


def _groups(nodes: Sequence[str], leaves: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """By leaf switch; by blocks of names where switches are not known; at most MOST_NODES of them."""
    if all(n in leaves for n in nodes):
        by_leaf: dict[str, list[str]] = {}
        for n in nodes:
            by_leaf.setdefault(leaves[n], []).append(n)
        found = list(by_leaf.items())
    else:
        found = [(n, [n]) for n in nodes]
    step = -(-len(found) // MOST_NODES)
    if step == 1:
        return found
    return [(f"{part[0][0]}…{part[-1][0]}", [n for _, members in part for n in members])
            for part in (found[i:i + step] for i in range(0, len(found), step))]


def _squares(pairs: Sequence[Pair], groups: Sequence[tuple[str, list[str]]]) -> dict[tuple[int, int], Square]:
    place = {n: i for i, (_, members) in enumerate(groups) for n in members}
    found: dict[tuple[int, int], list[Pair]] = {}
    for p in pairs:
        i, j = sorted((place[p.a], place[p.b]))
        found.setdefault((i, j), []).append(p)
    return {key: Square(len({(p.a, p.b) for p in ps}), len({(p.a, p.b) for p in ps if p.bad}),
                        tuple(p.value for p in ps if p.value is not None)) for key, ps in found.items()}


def _shade(value: float | None, usual: float, *, lower: bool) -> int:
    ratio = _ratio(value, usual, lower=lower)
    return sum(ratio < edge for edge in SHADES) if value is not None else 0


def _map(name: str, title: str, unit: str, groups: Sequence[tuple[str, list[str]]],
         squares: Mapping[tuple[int, int], Square], *, usual: float, lower: bool, by: str,
         leaves: Mapping[str, str]) -> HeatMap:
    count = len(groups)
    side = min(56.0, (_SIDE - _MARGIN) / max(count, 1))
    tiles = []
    for (i, j), square in sorted(squares.items()):
        middle = statistics.median(square.values) if square.values else None
        shade = _shade(middle, usual, lower=lower)
        text = number(middle, 3) if middle is not None and count <= _MOST_TEXT else ""
        bad = f" ({square.bad}/{square.pairs} ✗)" if square.bad else ""
        told = f"{groups[i][0]} - {groups[j][0]}: {number(middle)} {unit}{bad}"
        for x, y in {(i, j), (j, i)} if i != j else {(i, j)}:
            tiles.append(Tile(round(_MARGIN + x * side, 1), round(_MARGIN + y * side, 1), shade,
                              text if len(text) * 6 < side else "", bool(square.bad), middle is None, told))
    spans = _spans([n for n, _ in groups], leaves, side) if by == "node" else []
    labels, pattern = short_labels([g[0] for g in groups])
    return HeatMap(name, msg("heat_title", name=title), unit, number(usual), round(_MARGIN + count * side, 1),
                   round(side, 2), _MARGIN, labels, tuple(tiles),
                   tuple(begin for _, begin, _ in spans[1:]), by, tuple(spans), lower, pattern)


def _spans(nodes: Sequence[str], leaves: Mapping[str, str], side: float) -> list[tuple[str, float, float]]:
    """Each leaf's nodes, from and to; () where the switches are not known."""
    if not all(n in leaves for n in nodes):
        return []
    spans: list[tuple[str, float, float]] = []
    for i, n in enumerate(nodes):
        end = round(_MARGIN + (i + 1) * side, 1)
        if spans and spans[-1][0] == leaves[n]:
            spans[-1] = (leaves[n], spans[-1][1], end)
        else:
            spans.append((leaves[n], round(_MARGIN + i * side, 1), end))
    return spans


def short_labels(names: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The names, and "": or where they are long only what differs in them, and a pattern that says what does not."""
    if len(names) < 2 or all(len(n) <= _LABEL for n in names):
        return tuple(_cut(n) for n in names), ""
    low, high = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    head = low[:same].rstrip("0123456789")
    turned = [n[len(head):][::-1] for n in names]
    low, high = min(turned), max(turned)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    tail = low[:same].rstrip("0123456789")[::-1]
    labels = tuple("…".join(part[len(head):len(part) - len(tail)] for part in n.split("…")) for n in names)
    if not all(labels) or len(head) + len(tail) < 3:
        return tuple(_cut(n) for n in names), ""
    return tuple(_cut(label) for label in labels), f"{head}*{tail}"


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[:5]}…{label[-6:]}"


def _columns(unit: str, *keys: str) -> tuple[Column, ...]:
    return tuple(Column(msg(key, unit=unit) if key.endswith("_unit") else msg(key),
                        "name" if key in _NAMES
                        else "percent" if key == "col_of_usual" else "number")
                 for key in keys)


def _numbers(name: str, title: str, unit: str, groups: Sequence[tuple[str, list[str]]],
             squares: Mapping[tuple[int, int], Square], *, lower: bool, by: str) -> Table:
    rows: dict[int, list[Square]] = {i: [] for i in range(len(groups))}
    for (i, j), square in squares.items():
        rows[i].append(square)
        if i != j:
            rows[j].append(square)
    made = []
    for i, found in rows.items():
        values = sorted((v for s in found for v in s.values), reverse=not lower)
        middle = statistics.median(values) if values else None
        bad = sum(s.bad for s in found)
        rank = -bad, middle is not None, 0.0 if middle is None else -middle if lower else middle
        made.append((rank, (groups[i][0], sum(s.pairs for s in found), bad,
                            values[0] if values else None, middle, values[-1] if values else None)))
    made.sort(key=lambda row: row[0])
    key, title_key = _BY[by]
    most = MOST_NODES if len(made) <= MOST_NODES else _MOST_OF_NODES
    return Table(name, msg(title_key, name=title), _columns(
        unit, key, "col_pairs", "col_bad", "col_best_unit", "col_median_unit", "col_worst_unit"),
        tuple(row for _, row in made[:most]), total=len(made))


def _worst(name: str, title: str, unit: str, groups: Sequence[tuple[str, list[str]]],
           squares: Mapping[tuple[int, int], Square], *, usual: float, lower: bool, by: str) -> Table:
    rows = []
    for (i, j), s in squares.items():
        middle = statistics.median(s.values) if s.values else None
        worst = (max if lower else min)(s.values) if s.values else None
        row = f"{groups[i][0]} - {groups[j][0]}", s.pairs, s.bad, middle, worst
        rows.append((_ratio(middle, usual, lower=lower), row))
    rows.sort(key=lambda r: (r[0], -r[1][2], r[1][0]))
    return Table(name, msg(f"table_worst_{by}", name=title), _columns(
        unit, f"col_two_{by}", "col_pairs", "col_bad", "col_median_unit", "col_worst_unit"),
        tuple(row for _, row in rows[:10]), total=len(rows))


def _all_pairs(name: str, title: str, unit: str, pairs: Sequence[Pair], usual: float, *, lower: bool) -> Table:
    """Up to 64 nodes: the values of the map that are farthest from the usual one, all of them up to 16 nodes."""
    def ratio(p: Pair) -> float:
        return _ratio(p.value, usual, lower=lower)
    ordered = sorted(pairs, key=lambda p: (not p.bad, ratio(p), natural(p.a), natural(p.b)))
    shown = ordered[:_MOST_PAIRS]
    rows = tuple((f"{p.a} - {p.b}", p.value, round(100 * ratio(p), 1) if p.value is not None else None,
                  p.status) for p in shown)
    return Table(name, msg("table_pairs", name=title), _columns(
        unit, "col_pair", "col_value_unit", "col_of_usual", "col_result"), rows, total=len(ordered))
