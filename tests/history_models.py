"""Runs as random numbers make them, of which it is known what is noise and what is a fault."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hpcadmin.history_values import Condition, Entity, Sample, Values


def condition(size: int, *, name: str = "bandwidth", lower: bool = False) -> Condition:
    return Condition("osu_bw", name, "us" if lower else "MB/s", 1 << size, "one-way", "", "", "", 2, 2, 1, "node",
                     lower)


def node(number: int) -> Entity:
    return Entity(f"gpu{number:03}")


def student(rng: random.Random, freedom: float) -> float:
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(freedom / 2, 2) / freedom)


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda r: r.gauss(0, 1),
    "t5": lambda r: student(r, 5) / 1.29,
    "skew": lambda r: 1 - r.expovariate(1),
}


@dataclass
class Fleet:
    """nodes and sizes: how many. noise: of a value, as a share of it; each size has its own, around that. agree: how
    much of it the sizes of one node have in common in a run. weather: what a run does to all of its nodes."""

    nodes: int
    sizes: int
    seed: int = 1
    noise: float = 0.01
    kind: str = "normal"
    agree: float = 0.3
    weather: float = 0.005
    lower: bool = False
    rng: random.Random = field(init=False)
    own: list[float] = field(init=False)
    levels: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311
        self.own = [self.noise * math.exp(self.rng.gauss(0, 0.3)) for _ in range(self.sizes)]
        self.levels = [math.exp(self.rng.gauss(0, 0.01)) for _ in range(self.nodes)]

    def run(self, faults: Mapping[tuple[int, int], float] | None = None, *, all_by: float = 0.0) -> Values:
        """faults: (node, size) -> by how much its value is another, as a logarithm."""
        draw = NOISES[self.kind]
        of_node = [draw(self.rng) for _ in range(self.nodes)]
        found: dict[Condition, dict[Entity, Sample]] = {}
        for size in range(self.sizes):
            weather = self.rng.gauss(0, self.weather) + all_by
            found[condition(size, lower=self.lower)] = {
                node(n): Sample((1000 * self.levels[n] * math.exp(
                    weather + (faults or {}).get((n, size), 0.0) + self.own[size] * (
                        math.sqrt(self.agree) * of_node[n] + math.sqrt(1 - self.agree) * draw(self.rng))),))
                for n in range(self.nodes)}
        return found
