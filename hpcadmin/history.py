"""Two runs compared: which values changed by more than noise, of which node, and how sure that is.

The noise of a value is the spread (median absolute deviation) of the changes of all its equals between the two runs,
and of those between earlier runs where there are any. A change is told in two ways, each with a false discovery rate of
half of RATE: of single values (one node at one message size), and of all sizes of a measurement together, where small
changes that agree add up. What all nodes share is told once, of the fleet; where the fleet fell into two parts, the
part that changed more is told node by node. Heavy tails are met by Student's t with as few degrees of freedom as the
spread is worth, fewer where the outer values lie wider than normal ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from hpcadmin.history_stats import (
    MAD_WORTH,
    MEDIAN_COST,
    MIN_CAMP,
    camp_near_zero,
    p_two_sided,
    q_values,
    spread,
    tail_freedom,
)
from hpcadmin.history_values import FEW, Condition, Entity, Sample, Values

RATE = 0.05             # of the changes that are told, this share at most is expected to be none
MIN_FLEET = 5           # equals, of which their common change and their spread are known
MIN_NOISE = 0.0025      # no measurement of this field repeats better
MIN_CHANGE = 0.02       # smaller ones change nobody's mind
MIN_SHIFT = 0.03        # of all nodes at once: two runs share their weather
SURE_ALONE = 0.20       # a change that counts where there is nothing to compare it with
SURE_SPREADS = 7.0      # and, of a fleet, where it is so far beyond the noise, whatever the tails of that are
_CLIP = 6.0             # a single wild value has no more to say than this
_MOST_FREEDOM = 15.0
_ALIKE = 4              # sizes whose spreads say something of each other's


@dataclass(frozen=True)
class Change:
    """Of one measurement of one node, device or set of nodes; entity None: of the fleet.

    percent: as it is read, -18.0 is a loss of bandwidth or a gain in latency; worst: of these sizes the one that
    changed most. q: the false discovery rate at which it is told; None where it is too large a change to need one.
    """

    check: str
    name: str
    unit: str
    entity: Entity | None
    worse: bool
    percent: float
    conditions: int                     # that were compared
    beyond: int                         # of them, that changed by themselves by more than noise
    worst: Condition
    old: float
    new: float
    q: float | None = None
    transport: str = ""                 # "IB -> TCP"
    nodes: int = 1                      # entity None: how many there are


@dataclass(frozen=True)
class Compared:
    """changes: the worst first. few: measurements of which too few were made to tell a change below SURE_ALONE."""

    changes: tuple[Change, ...] = ()
    values: int = 0                     # pairs of values that were compared
    only_old: tuple[str, ...] = ()      # "osu_bw bandwidth": what only one of the runs has
    only_new: tuple[str, ...] = ()
    few: tuple[str, ...] = ()
    past: int = 0                       # earlier runs that tell of the noise


@dataclass(frozen=True)
class _Cell:
    """One value of both runs. d: the change, as a logarithm, above zero is worse; z: in units of noise, without what
    all share; None: not known."""

    condition: Condition
    entity: Entity
    old: float
    new: float
    d: float
    z: float | None = None
    freedom: float = 0.0
    transport: str = ""


def compare(old: Values, new: Values, past: Sequence[Values] = ()) -> Compared:
    """past: of earlier runs of the same suite, in the order of time, without these two."""
    families: dict[tuple[str, str, str], list[Condition]] = {}
    for condition in old.keys() & new.keys():
        families.setdefault((condition.check, condition.name, condition.unit), []).append(condition)
    made = [_family(key, sorted(found, key=order), old, new, past) for key, found in sorted(families.items())]
    singles = [c for family in made for cells in family.cells.values() for c in cells if c.z is not None]
    q_single = dict(zip(map(id, singles), q_values([p_two_sided(c.z or 0.0, c.freedom) for c in singles]), strict=True))
    q_whole = q_values([p for family in made for p in family.whole.values()])
    wholes = iter(q_whole)
    changes: list[Change] = []
    for family in made:
        of_entity = {entity: next(wholes) for entity in family.whole}
        changes += _fleet(family)
        for entity, cells in family.cells.items():
            changes += _changed(family, entity, cells, {id(c): q_single[id(c)] for c in cells if c.z is not None},
                                of_entity.get(entity, 1.0))
    return Compared(
        tuple(sorted(changes, key=_badness)), sum(len(c) for f in made for c in f.cells.values()),
        _only(old, new), _only(new, old), tuple(f"{f.check} {f.name}" for f in made if f.few), len(past))


def order(condition: Condition) -> tuple[object, ...]:
    return tuple((True, v) if isinstance(v, str) else (v is not None, v or 0) for v in condition)


def _badness(change: Change) -> tuple[object, ...]:
    return (not change.worse, change.entity is not None, -abs(change.percent), change.check, change.name,
            change.entity or Entity(""))


def _only(one: Values, other: Values) -> tuple[str, ...]:
    names = [{f"{c.check} {c.name}" for c in values} for values in (one, other)]
    return tuple(sorted(names[0] - names[1]))


# --- one measurement, at all its sizes ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Family:
    check: str
    name: str
    unit: str
    cells: Mapping[Entity, list[_Cell]]
    whole: Mapping[Entity, float]       # p of all conditions of an entity together
    shared: Mapping[Condition, float]   # what all have in common
    few: bool


def _family(key: tuple[str, str, str], conditions: Sequence[Condition], old: Values, new: Values,
            past: Sequence[Values]) -> _Family:
    now = {c: _changes(c, old[c], new[c]) for c in conditions}
    before = [{c: _changes(c, one[c], two[c]) for c in conditions if c in one and c in two}
              for one, two in pairwise(past)]
    changed = _other_camp(now)
    shared = {c: _middle(cells, changed) for c, cells in now.items() if len(cells) >= MIN_FLEET}
    noise = _moderated({c: _noise(now[c], [pair[c] for pair in before if c in pair], changed) for c in conditions})
    known = [sigma for sigma, freedom in noise.values() if freedom]
    table: dict[Entity, list[_Cell]] = {}
    scaled = {c: _scaled(cells, *noise[c], changed) for c, cells in now.items()}
    quiet = [_by_entity(pair, noise) for pair in before]
    freedom = _freedom(quiet or [_without_odd(scaled.values(), changed)])
    for cells in scaled.values():
        for x in cells:
            table.setdefault(x.entity, []).append(replace(x, freedom=min(x.freedom, freedom)))
    whole = _whole(table, [_together(of) for of in quiet], changed)
    return _Family(*key, table, whole, shared, few=not known)


def _other_camp(now: Mapping[Condition, Sequence[_Cell]]) -> frozenset[Entity]:
    """Where a fleet fell into two parts (the firmware of some racks), the part that changed more; else nobody."""
    means: dict[Entity, list[float]] = {}
    for cells in now.values():
        for x in cells:
            means.setdefault(x.entity, []).append(x.d)
    by = {entity: sum(values) / len(values) for entity, values in means.items()}
    usual = camp_near_zero(list(by.values()), MIN_CHANGE)
    low, high = min(usual, default=0.0), max(usual, default=0.0)
    return frozenset(entity for entity, mean in by.items() if not low <= mean <= high)


def _middle(cells: Sequence[_Cell], changed: Collection[Entity]) -> float:
    """What they have in common; too few that are not in the other camp say nothing of that."""
    like = [x.d for x in cells if x.entity not in changed]
    return median(like if len(like) >= MIN_CAMP else [x.d for x in cells])


def _freedom(quiet: Iterable[Mapping[Entity, Sequence[_Cell]]]) -> float:
    """How heavy the tails of the noise are, by changes of which most are noise."""
    return tail_freedom([x.z for of in quiet for cells in of.values() for x in cells if x.z is not None], _MOST_FREEDOM)


def _without_odd(groups: Iterable[Sequence[_Cell]], changed: Collection[Entity]) -> dict[Entity, list[_Cell]]:
    """Without the twentieth of the entities that changed most, one at least: they would pass for heavy tails."""
    found: dict[Entity, list[_Cell]] = {}
    for cells in groups:
        for x in cells:
            if x.entity in changed:
                continue
            found.setdefault(x.entity, []).append(x)
    sums = _together(found)
    odd = sorted(sums, key=lambda e: -max(sums[e]))[:math.ceil(len(sums) / 20)]
    return {entity: cells for entity, cells in found.items() if entity not in odd}


def _changes(condition: Condition, old: Mapping[Entity, Sample], new: Mapping[Entity, Sample]) -> list[_Cell]:
    sign = 1.0 if condition.lower_is_better else -1.0
    found = []
    for entity in sorted(old.keys() & new.keys()):
        one, two = old[entity], new[entity]
        few = condition.over == "pair" and min(len(one.values), len(two.values)) < FEW
        a, b = (x.summary(few=few, lower=condition.lower_is_better) for x in (one, two))
        transport = f"{one.transport} -> {two.transport}" if one.transport != two.transport and (
            one.transport and two.transport) else ""
        found.append(_Cell(condition, entity, a, b, sign * math.log(b / a), transport=transport))
    return found


def _centred(cells: Sequence[_Cell], changed: Collection[Entity] = ()) -> list[float]:
    middle = _middle(cells, changed) if len(cells) >= MIN_FLEET else 0.0
    return [x.d - middle for x in cells]


def _noise(now: Sequence[_Cell], before: Iterable[Sequence[_Cell]], changed: Collection[Entity]) -> tuple[float, int]:
    """The spread of changes, and of how many that is known. The changes that are to be judged count where they are of a
    fleet: most of it is as it was, or the part that is not is known."""
    earlier = [d for cells in before for d in _centred(cells)]
    like = [x for x in now if x.entity not in changed]
    here = _centred(like) if len(now) >= MIN_FLEET else []
    spreads = [spread(values, 0.0) for values in (earlier, here) if len(values) >= MIN_FLEET]
    return max([MIN_NOISE, *spreads]), (len(earlier) + len(here) if spreads else 0)


def _moderated(noise: Mapping[Condition, tuple[float, int]]) -> dict[Condition, tuple[float, float]]:
    """Spread and degrees of freedom. A spread that stands on few values is drawn towards that of the other sizes, which
    is worth _ALIKE degrees of freedom where there are as many of them; 0: not known."""
    known = [sigma for sigma, count in noise.values() if count]
    usual, alike = (median(known), _ALIKE) if len(known) >= _ALIKE else (0.0, 0.0)
    found = {}
    for condition, (sigma, count) in noise.items():
        freedom = MAD_WORTH * (count - 1)
        found[condition] = (math.sqrt((freedom * sigma ** 2 + alike * usual ** 2) / (freedom + alike)),
                            freedom + alike) if count else (sigma, 0.0)
    return found


def _scaled(cells: Sequence[_Cell], sigma: float, freedom: float, changed: Collection[Entity] = ()) -> list[_Cell]:
    if not freedom:
        return list(cells)
    cost = math.sqrt(1 + MEDIAN_COST / len(cells)) if len(cells) >= MIN_FLEET else 1.0
    return [replace(x, z=d / (sigma * cost), freedom=freedom)
            for x, d in zip(cells, _centred(cells, changed), strict=True)]


def _by_entity(pair: Mapping[Condition, Sequence[_Cell]], noise: Mapping[Condition, tuple[float, float]],
               ) -> dict[Entity, list[_Cell]]:
    found: dict[Entity, list[_Cell]] = {}
    for condition, cells in pair.items():
        for x in _scaled(cells, *noise[condition]):
            found.setdefault(x.entity, []).append(x)
    return found


def _together(table: Mapping[Entity, Sequence[_Cell]]) -> dict[Entity, tuple[float, float]]:
    """The mean of the worse half of an entity's changes in units of noise, and that of the better half with its sign
    turned: a fault may touch large messages only. None of them counts for more than _CLIP."""
    found = {}
    for entity, cells in table.items():
        known = sorted(max(-_CLIP, min(_CLIP, x.z)) for x in cells if x.z is not None)
        half = (len(known) + 1) // 2
        if known:
            found[entity] = sum(known[-half:]) / half, -sum(known[:half]) / half
    return found


def _whole(table: Mapping[Entity, Sequence[_Cell]], earlier: Sequence[Mapping[Entity, tuple[float, float]]],
           changed: Collection[Entity]) -> dict[Entity, float]:
    """p of each entity, by the spread of such means over the fleet and over earlier runs: sizes of one measurement hang
    together, and how much is not known otherwise."""
    sums = _together(table)
    most = max(len(cells) for cells in table.values())
    sides = [_one_sided({e: t[side] for e, t in sums.items()}, [t[side] for run in earlier for t in run.values()], most,
                        changed) for side in (0, 1)]
    return {entity: min(1.0, 2 * min(p[entity] for p in sides)) for entity in sums if all(entity in p for p in sides)}


def _one_sided(sums: Mapping[Entity, float], before: Sequence[float], most: int, changed: Collection[Entity],
               ) -> dict[Entity, float]:
    here = [t for entity, t in sums.items() if entity not in changed]
    middle = median(here) if len(here) >= MIN_FLEET else median(before) if before else 0.0
    usual = median(before) if before else 0.0
    parts = [values for values in ([t - middle for t in here] if len(here) >= MIN_FLEET else [],
                                   [t - usual for t in before]) if len(values) >= MIN_FLEET]
    count = sum(map(len, parts))
    if not parts:
        return {}
    half = (most + 1) // 2
    sigma = max(0.7 / math.sqrt(half), *(spread(values, 0.0) for values in parts))   # sizes are never worth more
    tails = tail_freedom([t / sigma for values in parts for t in values], _MOST_FREEDOM)
    freedom = min(tails, MAD_WORTH * (count - 1) * min(most, _ALIKE))
    return {e: p_two_sided(max(0.0, (t - middle) / sigma), freedom) / 2 for e, t in sums.items()}


# --- what is told -------------------------------------------------------------------------------------------------


def _changed(family: _Family, entity: Entity, cells: Sequence[_Cell], q_single: Mapping[int, float], q_whole: float,
             ) -> list[Change]:
    """One row for an entity, if anything of it changed."""
    sure = -math.log(1 - SURE_ALONE)
    beyond = [x for x in cells if q_single.get(id(x), 1.0) <= RATE / 2 or (
        x.z is not None and abs(_own(family, x)) >= sure and abs(x.z) >= SURE_SPREADS)]
    alone = [x for x in cells if x.z is None and abs(x.d) >= sure]
    q: float | None = None
    if beyond:
        telling, q = beyond, min(q_single[id(x)] for x in beyond)
    elif q_whole <= RATE / 2:
        total = sum(x.z or 0.0 for x in cells)
        telling, q = [x for x in cells if x.z is not None and x.z * total > 0], q_whole
    elif family.few and 2 * len(alone) > len(cells):
        telling = alone
    else:
        return []
    own = [x for x in telling if abs(_own(family, x)) >= MIN_CHANGE]
    if not own:
        return []
    worst = max(own, key=lambda x: (abs(_own(family, x)), x.d))
    moved = "; ".join(sorted({x.transport for x in cells if x.transport}))
    lost = worst.d > family.shared.get(worst.condition, 0.0)
    return [Change(family.check, family.name, family.unit, entity, lost, 100 * (worst.new / worst.old - 1), len(cells),
                   len(beyond or alone), worst.condition, worst.old, worst.new, q, moved)]


def _own(family: _Family, cell: _Cell) -> float:
    return cell.d - family.shared.get(cell.condition, 0.0)


def _fleet(family: _Family) -> list[Change]:
    """What most nodes have in common: at most sizes the same way, and far beyond what their median can err."""
    far = {}
    by_condition: dict[Condition, list[_Cell]] = {}
    for of in family.cells.values():
        for x in of:
            by_condition.setdefault(x.condition, []).append(x)
    for condition, middle in family.shared.items():
        cells = by_condition[condition]
        error = math.sqrt(MEDIAN_COST / len(cells)) * max(spread([x.d for x in cells], middle), MIN_NOISE)
        if abs(middle) >= MIN_SHIFT and abs(middle) > 4 * error:
            far[condition] = cells
    for worse in (True, False):
        same = [c for c in far if (family.shared[c] > 0) is worse]
        if 2 * len(same) > len(family.shared):
            condition = max(same, key=lambda c: abs(family.shared[c]))
            cells = far[condition]
            old, new = (median([getattr(x, name) for x in cells]) for name in ("old", "new"))
            sign = 1 if condition.lower_is_better else -1
            found = Change(family.check, family.name, family.unit, None, worse,
                           100 * math.expm1(sign * family.shared[condition]), len(family.shared), len(same), condition,
                           old, new, nodes=len(cells))
            return [found]
    return []
