"""Robust statistics of small and large samples: what one odd value cannot change.

Medians and median absolute deviations in place of means and standard deviations; Student's t with the few degrees of
freedom that such a spread is worth; Benjamini-Hochberg for many tests; Theil-Sen and Mann-Kendall for slow drifts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from statistics import NormalDist, median

MAD_TO_SIGMA = 1.4826       # of normally distributed values
MEDIAN_COST = 1.57          # variance of a median against that of a mean: pi / 2
MAD_WORTH = 0.37            # of n values as good as n * 0.37 for a standard deviation (its efficiency)
MIN_TAIL = 100              # values that tell how heavy their tails are
UNKNOWN_TAIL = 6.0          # degrees of freedom where that is not known: benchmarks are seldom normal
MIN_CAMP = 4
_NORMAL = NormalDist()
_CLEAR = 15.0               # of a random walk the trend is seldom five times what it leaves
_EXACT_MK = 12              # values up to which Mann-Kendall's distribution is worked out, and not approached


def spread(values: Sequence[float], middle: float | None = None) -> float:
    """The standard deviation as the median absolute deviation tells it."""
    if len(values) < 2:
        return 0.0
    center = median(values) if middle is None else middle
    return MAD_TO_SIGMA * median([abs(v - center) for v in values])


def camp_near_zero(values: Sequence[float], least_gap: float) -> Sequence[float]:
    """All values; but where they are two camps far apart, each with three tenths of them at least, those of the camp
    that is nearer to zero. A median lies between such camps, and a spread around it is that of nobody.

    By how much the distances from two medians are less than those from one; for normal values they are that much less
    once in a thousand (found by drawing them, 8 to 64 at a time)."""
    n = len(values)
    least = max(MIN_CAMP, math.ceil(0.3 * n))
    if n < 2 * least:
        return values
    row = sorted(values)
    upto = [0.0, *accumulate(row)]

    def distances(begin: int, end: int) -> float:
        """Of row[begin:end] from its median: the sum of its upper half less that of its lower one."""
        half = (end - begin) // 2
        return (upto[end] - upto[end - half]) - (upto[begin + half] - upto[begin])
    at = min(range(least, n - least + 1), key=lambda i: distances(0, i) + distances(i, n))
    camps = row[:at], row[at:]
    if median(camps[1]) - median(camps[0]) < least_gap:
        return values
    if _distances(row) < (2.1 + 22 / n) * sum(map(_distances, camps)):
        return values
    return min(camps, key=lambda camp: abs(median(camp)))


def _distances(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(v - middle) for v in values)


def tail_freedom(scaled: Sequence[float], most: float) -> float:
    """The degrees of freedom of a Student's t whose outer values lie as wide, at most `most`: by the 95th percentile of
    their distances against the median of these, and of many values by the 99th too. What few are truly odd hardly
    changes it."""
    distances = sorted(abs(v) for v in scaled)
    if len(distances) < MIN_TAIL:
        return min(most, UNKNOWN_TAIL)
    last = len(distances) - 1
    middle = max(distances[last // 2], 1e-9) / 0.6745
    wider = distances[int(0.95 * last)] / middle / 1.960 - 1
    found = 1.05 / wider + 0.2 if wider > 0.02 else most
    if len(distances) >= 10 * MIN_TAIL:
        wider = distances[int(0.99 * last)] / middle / 2.576 - 1
        found = min(found, 1.7 / wider + 1.2 if wider > 0.04 else most)
    return max(1.5, min(most, found))


def p_two_sided(t: float, freedom: float) -> float:
    """Of Student's t, by Wallace's transformation to a normal value; right to a few percent of itself down to 1e-8."""
    if math.isnan(t):
        return 1.0
    if math.isinf(freedom):
        z = abs(t)
    else:
        z = math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return math.erfc(z / math.sqrt(2))


def q_values(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg: of those called different up to a q, that share at most is expected to be none."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    found, least = [1.0] * len(p), 1.0
    for rank in range(len(order), 0, -1):
        i = order[rank - 1]
        least = min(least, p[i] * len(p) / rank)
        found[i] = least
    return found


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs; 0 where there is none."""
    slopes = [(values[j] - values[i]) / (times[j] - times[i])
              for i in range(len(values)) for j in range(i + 1, len(values)) if times[j] != times[i]]
    return median(slopes) if slopes else 0.0


def mann_kendall(times: Sequence[float], values: Sequence[float]) -> float:
    """p (two-sided) that values without a trend would rise or fall as steadily.

    Exact for few values without ties. Values that hang together from one to the next (autocorrelation) are worth fewer:
    the variance grows by (1 + r) / (1 - r), where r is that of what the trend leaves, and is beyond chance. Where that
    is next to nothing (a smooth loss is slightly curved), no wandering of such a size makes the trend.
    """
    n = len(values)
    if n < 4:
        return 1.0
    score = sum((values[j] > values[i]) - (values[j] < values[i])
                for i in range(n) for j in range(i + 1, n) if times[j] != times[i])
    ties = [count for count in Counter(values).values() if count > 1]
    slope = theil_sen(times, values)
    rest = [v - slope * t for t, v in zip(times, values, strict=True)]
    clear = abs(slope) * (max(times) - min(times)) > _CLEAR * spread(rest)
    factor = 1.0 if clear else carried_over(rest)
    if n <= _EXACT_MK and not ties and factor == 1.0 and len(set(times)) == n:
        ways = _inversions(n)
        total = math.factorial(n)
        most = n * (n - 1) // 2
        away = (most + abs(score)) // 2
        return min(1.0, 2 * sum(ways[away:]) / total)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18 * factor
    if variance <= 0:
        return 1.0
    z = max(0.0, abs(score) - 1) / math.sqrt(variance)
    return 2 * (1 - _NORMAL.cdf(z))


def carried_over(rest: Sequence[float]) -> float:
    """By how much the variance grows where values hang together from one to the next; 1 where that may be chance."""
    n = len(rest)
    if n < 8:
        return 1.0
    ranks = _ranks(rest)
    mean = sum(ranks) / n
    total = sum((r - mean) ** 2 for r in ranks)
    if total == 0:
        return 1.0
    r = sum((ranks[i] - mean) * (ranks[i + 1] - mean) for i in range(n - 1)) / total
    if r <= 1.0 / math.sqrt(n):
        return 1.0
    r = min(0.9, (n * r + 1) / (n - 4))         # short series show less of it than there is
    return (1 + r) / (1 - r)


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    for rank, i in enumerate(order):
        found[i] = float(rank)
    return found


@cache
def _inversions(n: int) -> tuple[int, ...]:
    """In how many orders of n values so many pairs stand the other way round."""
    ways = [1]
    for size in range(2, n + 1):
        longer = [0] * (len(ways) + size - 1)
        for k, count in enumerate(ways):
            for more in range(size):
                longer[k + more] += count
        ways = longer
    return tuple(ways)


def best_step(values: Sequence[float], least: int = 3) -> tuple[int, float]:
    """Where one level, and then another, fits best: the number of the first value behind it, and the sum of distances
    from both. (0, all from one level) where there are too few values."""
    found = (0, _distances(values)) if values else (0, 0.0)
    for at in range(least, len(values) - least + 1):
        now = _distances(values[:at]) + _distances(values[at:])
        if now < found[1]:
            found = at, now
    return found
