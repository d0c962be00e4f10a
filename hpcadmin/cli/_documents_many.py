"""What was made of the texts of many nodes, said once for all that say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hpcadmin import hosts
from hpcadmin.text import printable

SHOWN = 400
VARIANTS = 20                    # different lines of one name that are shown
_WIDE = 100                      # characters of a list of nodes
_KEPT = 1000                     # and that are counted one by one


@dataclass
class _Kind:
    """One tool's outputs. lines: whose output has them; labels: how many different ones there are of a name."""

    where: str
    nodes: list[str] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, node: str, lines: Iterable[str]) -> None:
        if self.nodes[-1:] != [node]:
            self.nodes.append(node)
        for line in lines:
            names = self.lines.get(line)
            if names is None:
                label = _label(line)
                self.labels[label] += 1
                if self.labels[label] > _KEPT:
                    continue
                names = self.lines[line] = []
            if names[-1:] != [node]:
                names.append(node)

    def text(self, name: str) -> Iterator[str]:
        alike = " and alike" if len(self.nodes) > 1 else ""
        yield f"{hosts.fold(self.nodes)}: {printable(name)} ({printable(self.where, limit=SHOWN)}{alike})"
        shown: Counter[str] = Counter()
        for line, names in self.lines.items():
            label = _label(line)
            shown[label] += 1
            if shown[label] == VARIANTS + 1:
                yield f"  {label}: {self.labels[label] - VARIANTS} others (--json has all)"
            elif shown[label] <= VARIANTS:
                yield f"  {line}" if len(names) == len(self.nodes) else f"  {self._who(names)}: {line}"

    def _who(self, names: Sequence[str]) -> str:
        """Of most of them the others are named, and of more than fit into a line the first."""
        most = 2 * len(names) > len(self.nodes)
        others = set(self.nodes).difference(names) if most else ()
        said = [name for name in self.nodes if name in others] if most else names
        text = hosts.fold(said)
        if len(text) > _WIDE:
            text = f"{len(said)} nodes ({said[0]} …)"
        return f"all but {text}" if most else text


def _label(line: str) -> str:
    return line.partition(":")[0]


class Folded:
    """Tell it what each text of each node was made of, then ask for the lines."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._refused: dict[str, tuple[str, list[str]]] = {}     # without the file: (the first as it is, nodes)

    def refused(self, node: str, file: str, error: str) -> None:
        self._refused.setdefault(error.removeprefix(file), (error, []))[1].append(node)

    def told(self, node: str, where: str, kind: str, lines: Iterable[str]) -> None:
        self._kinds.setdefault(kind, _Kind(where)).add(node, lines)

    def lines(self) -> Iterator[str]:
        for error, nodes in self._refused.values():
            alike = f" (and alike: {len(nodes)} texts)" if len(nodes) > 1 else ""
            yield f"refused: {hosts.fold(dict.fromkeys(nodes))}: {printable(error, limit=SHOWN)}{alike}"
        for name, kind in self._kinds.items():
            yield from kind.text(name)
