"""Where the tests of a check are: its layouts over nodes, ports and GPUs, turn by turn. Pure.

Nothing is left out without a word: what a layout cannot test is a Left with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.check import Check, Layout, NodeView, PortView, Scope, Status
from hpcadmin.plan_pairs import Pairs, Round, packed, sample_of, sampled
from hpcadmin.rundata import PairSample
from hpcadmin.text import plural

MOST_AT_ONCE = 256                  # tests of single nodes that one stage starts side by side
TWO_NODES = (Layout.PAIRS, Layout.RAILS)


@dataclass(frozen=True)
class Sampling:
    """How nodes are put together. switches: by level, the leaves first: node -> its switch; (): not known.

    at_once: so many nodes at most are under load at one time; 0: all. drawn: nodes -> their rounds; users: nodes ->
    the checks that test them in pairs. together: check -> the only sets of nodes that it tests, where not all; its
    pairs are no draw.
    """

    pairs: Pairs = "all"
    seed: int = 0
    switches: Sequence[Mapping[str, str]] = ()
    at_once: int = 0
    together: Mapping[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    drawn: dict[tuple[str, ...], list[Round]] = field(default_factory=dict)
    users: dict[tuple[str, ...], dict[str, None]] = field(default_factory=dict)

    def leaf(self, node: str) -> str | None:
        return self.switches[0].get(node) if self.switches else None

    def rounds(self, check: str, nodes: tuple[str, ...]) -> list[Round]:
        """The same for all checks and rails of these nodes."""
        if check in self.together:
            place = {n: i for i, n in enumerate(nodes)}
            return packed((place[s[0]], place[s[1]]) for s in self.together[check]
                          if len(s) == 2 and place.keys() >= set(s))
        self.users.setdefault(nodes, {})[check] = None
        if nodes not in self.drawn:
            self.drawn[nodes] = sampled([self.leaf(n) for n in nodes], self.pairs, self.seed)
        return self.drawn[nodes]

    def sets(self, check: str, nodes: Sequence[str]) -> list[tuple[str, ...]] | None:
        """The sets of these nodes that a check is to test as groups; None: as its layout says."""
        if check not in self.together:
            return None
        known = set(nodes)
        return [s for s in self.together[check] if known.issuperset(s)]

    def samples(self) -> tuple[PairSample, ...]:
        return tuple(sample_of(tuple(self.users[nodes]), self.pairs, found, [self.leaf(n) for n in nodes])
                     for nodes, found in self.drawn.items() if found)


@dataclass(frozen=True, slots=True)
class Place:
    """What one test is about. ports: by name, one a node; of a single node server's and client's."""

    layout: Layout
    nodes: tuple[str, ...]
    at_once: int | None = None
    rail: int | None = None
    ports: tuple[str, ...] = ()
    gpu: int | None = None
    device: str = ""


@dataclass(frozen=True)
class Turn:
    """Places that are tested side by side. kind: of the stage."""

    kind: str
    name: str
    places: Sequence[Place]


@dataclass(frozen=True)
class Left:
    """What a layout does not test, and why."""

    nodes: tuple[str, ...]
    reason: str
    status: Status = Status.NOT_RUN
    device: str = ""


def turns(check: Check, layout: Layout, nodes: Sequence[str], views: Mapping[str, NodeView],
          sampling: Sampling) -> Iterator[Turn | Left]:
    """The turns of a check over one layout, in the order in which they run."""
    chosen = sampling.sets(check.name, nodes)
    if chosen is not None and check.scope is not Scope.PAIR and layout is not Layout.RAILS:
        if layout in (Layout.GROUPS, Layout.LEAVES, Layout.ALL):
            yield from (Turn("group", plural(len(s), "node"), [Place(layout, s)]) for s in chosen
                        if len(s) > 1 or len(nodes) == 1)
            return
        alone = {s[0] for s in chosen if len(s) == 1}
        nodes = [n for n in nodes if n in alone]
    site = _Site(check, tuple(nodes), views, sampling)
    ways: Mapping[Layout, Callable[[], Iterator[Turn | Left]]] = {
        Layout.NODE: site.each_node, Layout.GPUS: site.each_gpu, Layout.PORTS: site.each_port,
        Layout.LOOPBACK: site.loopback, Layout.PAIRS: site.pairs_of_nodes, Layout.RAILS: site.rails,
        Layout.GROUPS: site.groups, Layout.LEAVES: site.leaves, Layout.ALL: site.everyone}
    yield from ways[layout]()


def staggered(turn: Turn, most: int) -> Iterator[Turn | Left]:
    """The turn in parts in which no more nodes than that are under load."""
    parts: list[list[Place]] = [[]]
    busy: set[str] = set()
    for place in turn.places:
        if len(place.nodes) > most:
            yield Left(place.nodes, f"{plural(len(place.nodes), 'node')} would be under load at once, at most {most} "
                       "may be (--at-once)", device=place.device)
            continue
        if len(busy.union(place.nodes)) > most:
            parts.append([])
            busy = set()
        busy.update(place.nodes)
        parts[-1].append(place)
    for number, places in enumerate(parts, 1):
        more = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
        count = len(places)
        beside = [replace(p, at_once=count) if more and p.at_once is not None else p for p in places]
        if beside:
            yield Turn(turn.kind, f"{turn.name}{more}".removeprefix(", "), beside)


def group_sizes(nodes: int) -> list[int]:
    """2, 4, 8, … and all: as many as the logarithm."""
    found = []
    size = 2
    while size < nodes:
        found.append(size)
        size *= 2
    return [*found, nodes]


@dataclass(frozen=True)
class _Site:
    check: Check
    nodes: tuple[str, ...]
    views: Mapping[str, NodeView]
    sampling: Sampling

    def ports(self, node: str) -> list[PortView]:
        """Those that can be used."""
        return [p for p in self.views.get(node, NodeView(node)).ports if p.up]

    def knows(self, node: str) -> bool:
        return bool(self.views.get(node, NodeView(node)).ports)

    # --- single nodes

    def each_node(self) -> Iterator[Turn | Left]:
        if self.check.scope is Scope.PAIR:
            yield from self._ring()
        elif self.check.scope is Scope.NODE:
            yield Turn("nodes", "", [Place(Layout.NODE, (n,)) for n in self.nodes])
        else:
            single = tuple(n for n in self.nodes if "gpu" in self.check.needs
                           and self.views.get(n, NodeView(n)).gpus == 1)
            if single:
                yield Left(single, "one GPU: nothing is between GPUs of a node", Status.NOT_APPLICABLE)
            yield from _side_by_side("within each node", [Place(Layout.NODE, (n,)) for n in self.nodes
                                                          if n not in set(single)])

    def each_gpu(self) -> Iterator[Turn | Left]:
        unknown = tuple(n for n in self.nodes if self.views.get(n, NodeView(n)).gpus is None)
        if unknown:
            yield Left(unknown, "how many GPUs it has is not known")
        yield Turn("nodes", "", [Place(Layout.GPUS, (n,), gpu=i, device=f"GPU {i}") for n in self.nodes
                                 if n not in set(unknown) for i in range(self.views[n].gpus or 0)])

    def each_port(self) -> Iterator[Turn | Left]:
        yield from self._unknown_ports()
        if self.check.scope is not Scope.PAIR:
            yield Turn("nodes", "", [Place(Layout.PORTS, (n,), ports=(p.name,), device=p.name)
                                     for n in self.nodes if self.knows(n) for p in self.views[n].ports])
            return
        names = dict.fromkeys(p.name for n in self.nodes for p in self.ports(n))
        for name in names:
            having = [n for n in self.nodes if any(p.name == name for p in self.ports(n))]
            if len(having) == 1:
                yield Left((having[0],), f"no other node has a port {name} that is up", device=name)
            neighbours = [list(zip(having[::2], having[1::2], strict=False))]
            neighbours += [[(having[0], having[-1])]] if len(having) % 2 else []
            for number, round_ in enumerate(neighbours if len(having) > 1 else (), 1):
                yield Turn("round", f"port {name}" + (f" ({number})" if len(neighbours) > 1 else ""),
                           [Place(Layout.PORTS, pair, len(round_), ports=(name, name), device=name) for pair in round_])

    def loopback(self) -> Iterator[Turn | Left]:
        yield from self._unknown_ports()
        yield from self._one_after_another("loopback of port", Layout.LOOPBACK, {
            n: [(p.name, p.name, p.name) for p in self.ports(n)] for n in self.nodes})

    def _ring(self) -> Iterator[Turn | Left]:
        """From each port of a node to the next one, and from the last to the first."""
        yield from self._unknown_ports()
        single = tuple(n for n in self.nodes if len(self.ports(n)) == 1)
        if single:
            yield Left(single, "one port: nothing is between ports of a node", Status.NOT_APPLICABLE)
        links = {}
        for node in (n for n in self.nodes if n not in set(single)):
            names = [p.name for p in self.ports(node)]
            links[node] = [(a, b, f"{a} - {b}") for a, b in zip(names, [*names[1:], *names[:1]], strict=True)]
        yield from self._one_after_another("between ports of a node,", Layout.NODE, links)

    def _one_after_another(self, name: str, layout: Layout, links: Mapping[str, Sequence[tuple[str, str, str]]],
                           ) -> Iterator[Turn]:
        """The links of a node in turn, those of different nodes side by side."""
        for number in range(max(map(len, links.values()), default=0)):
            places = [Place(layout, (node,), 1, ports=own[number][:2], device=own[number][2])
                      for node, own in links.items() if number < len(own)]
            yield from _side_by_side(f"{name} {number + 1}", places)

    def _unknown_ports(self) -> Iterator[Left]:
        unknown = tuple(n for n in self.nodes if not self.knows(n))
        if unknown:
            yield Left(unknown, "which ports it has is not known")
        down = tuple(n for n in self.nodes if self.knows(n) and not self.ports(n))
        if down and self.check.scope is Scope.PAIR:
            yield Left(down, "none of its ports is up")

    # --- several nodes

    def pairs_of_nodes(self) -> Iterator[Turn | Left]:
        if len(self.nodes) < 2:
            yield Left(self.nodes, f"a pair needs two nodes, there is only {self.nodes[0]}")
        yield from self._rounds(self.nodes, "", Layout.PAIRS, None, {})

    def _rounds(self, nodes: Sequence[str], name: str, layout: Layout, rail: int | None, ports: Mapping[str, str],
                ) -> Iterator[Turn | Left]:
        device = "" if rail is None else f"rail {rail}"
        if self.sampling.pairs == "cross-leaf" and self.check.name not in self.sampling.together:
            known = [n for n in nodes if self.sampling.leaf(n) is not None]
            if len({self.sampling.leaf(n) for n in known}) < 2:
                yield Left(tuple(nodes), "pairs = cross-leaf needs two leaf switches, and no two are known (Slurm's "
                           "topology, or a fabric in the inventory)", device=device)
                return
            if len(known) < len(nodes):
                lost = tuple(n for n in nodes if self.sampling.leaf(n) is None)
                yield Left(lost, "its leaf switch is not known", device=device)
                nodes = known
        found = self.sampling.rounds(self.check.name, tuple(nodes))
        for number, round_ in enumerate(found, 1):
            yield Turn("round", f"{name}round {number} of {len(found)}", [
                Place(layout, (nodes[a], nodes[b]), len(round_), rail, (ports[nodes[a]], ports[nodes[b]]) if ports
                      else (), device=device) for a, b in round_])

    def rails(self) -> Iterator[Turn | Left]:
        by_node = {n: {p.rail: p for p in self.ports(n) if p.rail is not None} for n in self.nodes}
        numbers = sorted({r for own in by_node.values() for r in own})
        if not numbers:
            yield Left(self.nodes, "which port is of which rail is not known")
        for rail in numbers:
            having = {n: own[rail] for n, own in by_node.items() if rail in own}
            without = tuple(n for n in self.nodes if n not in having)
            if without:
                yield Left(without, f"no port of rail {rail} is up", device=f"rail {rail}")
            if len(having) < 2:
                yield Left(tuple(having), f"no other node has a port of rail {rail}", device=f"rail {rail}")
            elif self.check.scope is Scope.PAIR:
                yield from self._rounds(list(having), f"rail {rail}, ", Layout.RAILS, rail,
                                        {n: p.name for n, p in having.items()})
            else:
                yield from self._rail_of_all(rail, having)

    def _rail_of_all(self, rail: int, having: Mapping[str, PortView]) -> Iterator[Turn | Left]:
        """One program with one environment: the port, and the GPU at it, are called the same on all nodes."""
        gpu = "gpu" in self.check.needs
        alike: dict[tuple[str, int | None], list[str]] = {}
        for node, port in having.items():
            alike.setdefault((port.name, port.gpu if gpu else None), []).append(node)
        best = max(alike, key=lambda key: len(alike[key]))
        for key, nodes in alike.items():
            if gpu and key[1] is None:
                yield Left(tuple(nodes), f"which GPU is near {key[0]} is not known", device=f"rail {rail}")
            elif key != best:
                yield Left(tuple(nodes), f"rail {rail} is {_port_and_gpu(*key)}, on most nodes "
                           f"{_port_and_gpu(*best)}", device=f"rail {rail}")
            elif len(nodes) < 2:
                yield Left(tuple(nodes), f"no other node has rail {rail} at {_port_and_gpu(*key)}",
                           device=f"rail {rail}")
            else:
                place = Place(Layout.RAILS, tuple(nodes), None, rail, (key[0],), key[1], f"rail {rail}")
                yield Turn("group", f"rail {rail}", [place])

    def groups(self) -> Iterator[Turn | Left]:
        for size in group_sizes(len(self.nodes)):
            yield Turn("group", f"{size} nodes" if size > 1 else "", [Place(Layout.GROUPS, self.nodes[:size])])

    def leaves(self) -> Iterator[Turn | Left]:
        """The nodes of each leaf switch, those of each switch above, and all: groups of one level at one time."""
        if not self.sampling.switches:
            yield Left(self.nodes, "the switches above it are not known (Slurm's topology, a fabric in the inventory)")
        before: set[tuple[str, ...]] = {self.nodes}
        for level, switch_of in enumerate(self.sampling.switches, 1):
            groups: dict[str, list[str]] = {}
            for node in self.nodes:
                groups.setdefault(switch_of.get(node, ""), []).append(node)
            lost = groups.pop("", [])
            if lost and level == 1:
                yield Left(tuple(lost), "its leaf switch is not known")
            found = {switch: tuple(own) for switch, own in groups.items() if len(own) > 1 and tuple(own) not in before}
            before.update(found.values())
            if found:
                yield Turn("group", "each leaf switch" if level == 1 else f"each switch of level {level}",
                           [Place(Layout.LEAVES, own, device=switch) for switch, own in found.items()])
        yield Turn("group", plural(len(self.nodes), "node"), [Place(Layout.LEAVES, self.nodes)])

    def everyone(self) -> Iterator[Turn | Left]:
        yield Turn("group", "", [Place(Layout.ALL, self.nodes)])


def _port_and_gpu(port: str, gpu: int | None) -> str:
    return port if gpu is None else f"{port} with GPU {gpu}"


def _side_by_side(name: str, places: Sequence[Place]) -> Iterator[Turn]:
    for start in range(0, len(places), MOST_AT_ONCE):
        more = f" ({start // MOST_AT_ONCE + 1})" if len(places) > MOST_AT_ONCE else ""
        yield Turn("round", name + more, places[start:start + MOST_AT_ONCE])


def in_order(layouts: Iterable[Layout]) -> tuple[Layout, ...]:
    """The small before the large, so that what fails first explains what fails later. `groups` and `leaves` end with
    all nodes."""
    wanted = set(layouts)
    return tuple(one for one in Layout if one in wanted and not (
        one is Layout.ALL and (Layout.GROUPS in wanted or Layout.LEAVES in wanted)))
