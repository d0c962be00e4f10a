"""topology.yaml (25.05 on): the same switches and blocks, under the names of several topologies (topology.yaml(5)).

Read line by line, for the shapes that the manual page has: no anchors, no multi-line texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_tree import Switch, Tree, add, tree

_LINE = re.compile(r"\s{0,80}((?:-\s{1,20}){0,3})(?:([a-z_0-9]{1,30})\s{0,4}:(?:\s{1,20}(.{0,4000}))?|(\d{1,9}))\Z")
_KINDS = ("tree", "block", "flat", "ring", "torus3d")


@dataclass
class _Topology:
    name: str
    line: int
    default: str = ""
    kind: str = ""
    switches: dict[str, Switch] = field(default_factory=dict)
    blocks: dict[str, Switch] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    item: dict[str, str] = field(default_factory=dict)       # the switch or block that is being read
    at: int = 0

    def take(self, key: str, value: str, line: int, findings: list[Finding], *, starts: bool) -> None:
        if starts and not key.isdigit():
            self.close(findings)
        if starts and key in ("switch", "block"):
            self.item, self.at = {key: value}, line
        elif key == "cluster_default":
            self.default = value.lower()
        elif key in _KINDS and not starts:
            self.kind = key
        elif key == "block_sizes":
            self.sizes = re.findall(r"-?\w{1,12}", value)
        elif key.isdigit() and self.kind == "block":
            self.sizes.append(key)
        elif self.item and key in ("nodes", "children"):
            self.item[key] = value

    def close(self, findings: list[Finding]) -> None:
        if self.item:
            kind, name = next(iter(self.item.items()))
            keys = {"switches": self.item.get("children", ""), "nodes": self.item.get("nodes", "")}
            add(self.switches if kind == "switch" else self.blocks, name, self.at, keys, findings,
                block=kind == "block", young=True)
            self.item = {}


def collect(lines: Sequence[str]) -> Tree | None:
    """None where the text has no topology with switches or blocks."""
    findings: list[Finding] = []
    found = list(topologies(lines, findings))
    usable = [each for each in found if each.kind]
    if not usable:
        return None
    names: set[str] = set()
    for each in usable:
        if each.name in names:
            findings.append(Finding(f"topology {each.name} is defined twice", each.line))
        names.add(each.name)
    if sum(each.default == "true" for each in usable) > 1:
        findings.append(Finding("more than one topology is the cluster_default", usable[-1].line))
    main = next((each for each in usable if each.default == "true"), usable[0])
    if not (main.switches or main.blocks):
        main = next((each for each in usable if each.switches or each.blocks), main)
    trees = [(each, tree(each.switches, each.blocks, each.sizes, [], each.seen)) for each in usable]
    known: dict[str, Any] = dict(next(own.known for each, own in trees if each is main))
    known["topologies"] = [{"name": each.name, "kind": each.kind, "default": each.default == "true",
                            **({key: own.known[key] for key in ("switches", "blocks", "node_count", "block_sizes")
                                if key in own.known} if each.switches or each.blocks else {})} for each, own in trees]
    said = [*findings, *(Finding(f"{each.name}: {finding.what}", finding.line, finding.note)
                         for each, own in trees if each.switches or each.blocks for finding in own.findings)]
    return Tree(known, tuple(said), tuple(line for each in usable for line in each.seen))


def topologies(lines: Sequence[str], findings: list[Finding], unread: list[int] | None = None) -> Iterator[_Topology]:
    """unread: the numbers of the lines that say something, but not in a shape that is known here."""
    now: _Topology | None = None
    for number, raw in enumerate(lines, 1):
        match = _LINE.match(raw.split(" #", 1)[0].rstrip()) if not raw.lstrip().startswith("#") else None
        if not match:
            if unread is not None and raw.split("#", 1)[0].strip() not in ("", "---", "..."):
                unread.append(number)
            continue
        key, value = match[2] or "", (match[3] or "").strip().strip("\"'")
        if key == "topology" and match[1]:
            if now:
                now.close(findings)
                yield now
            now = _Topology(value, number)
        if now:
            now.seen.append(number)
            now.take(key or match[4], value, number, findings, starts=bool(match[1]))
    if now:
        now.close(findings)
        yield now
