"""topology.conf: the switches or blocks of a text, and what is wrong with them (topology.conf(5))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_text import records
from hpcadmin.hosts import expand, fold

MAX_LEVELS = 40


@dataclass(frozen=True)
class Switch:
    name: str
    line: int
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    nodes_text: str = ""


@dataclass(frozen=True)
class Tree:
    known: dict[str, Any]
    findings: tuple[Finding, ...]
    lines: tuple[int, ...]
    right: tuple[str, ...] = ()


def collect(lines: Sequence[str]) -> Tree | None:
    """None where the text has no SwitchName and no BlockName line."""
    switches: dict[str, Switch] = {}
    blocks: dict[str, Switch] = {}
    sizes: list[int] = []
    findings: list[Finding] = []
    seen = []
    for record in records(lines):
        keys, first = record.keys, record.first
        if first == "blocksizes":
            sizes = [int(part) for part in keys["blocksizes"].split(",") if part.isdigit()]
            seen.append(record.line)
        if first not in ("switchname", "blockname"):
            continue
        seen.append(record.line)
        name, into = keys[first], switches if first == "switchname" else blocks
        if name in into:
            findings.append(Finding(f"{name} is defined twice (first on line {into[name].line})", record.line))
        into[name] = Switch(name, record.line, _names(keys.get("switches", ""), record.line, findings),
                            _names(keys.get("nodes", ""), record.line, findings), keys.get("nodes", ""))
        if not keys.get("switches") and not keys.get("nodes"):
            findings.append(Finding(f"{name} has neither Switches= nor Nodes=", record.line))
    if not switches and not blocks:
        return None
    found = [*findings, *_undefined(switches), *_twice([*switches.values(), *blocks.values()]), *_loops(switches)]
    known = _blocks(blocks, sizes) if blocks and not switches else _tree(switches)
    return Tree(known, tuple(found), tuple(seen), tuple(_right(switches)))


def _names(text: str, line: int, findings: list[Finding]) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(expand(text))
    except UsageError as exc:
        findings.append(Finding(exc.what, line))
        return ()


def _undefined(switches: dict[str, Switch]) -> Iterator[Finding]:
    for switch in switches.values():
        missing = [name for name in switch.children if name not in switches]
        if missing:
            yield Finding(f"{switch.name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not defined: "
                          "slurmctld ends with a fatal error", switch.line)
    parents: dict[str, list[str]] = {}
    for switch in switches.values():
        for name in switch.children:
            parents.setdefault(name, []).append(switch.name)
    several = [name for name, above in parents.items() if len(above) > 1 and name in switches]
    if several:
        above = parents[several[0]]
        yield Finding(f"{fold(several)} {'has' if len(several) == 1 else 'have'} {len(above)} parents "
                      f"({', '.join(above)}): Slurm says nothing, a tree has one", switches[above[-1]].line, note=True)


def _twice(all_of: Sequence[Switch]) -> Iterator[Finding]:
    where: dict[str, str] = {}
    for switch in all_of:
        again = [name for name in switch.nodes if name in where]
        if again:
            yield Finding(f"{fold(again)} {'is' if len(again) == 1 else 'are'} on {switch.name} and on "
                          f"{where[again[0]]}", switch.line)
        where.update(dict.fromkeys(switch.nodes, switch.name))


def _levels(switches: dict[str, Switch]) -> dict[str, int]:
    """1 for a switch with nodes alone, one more than its highest child for others; 0 where a loop leaves it open."""
    level = {name: 1 for name, switch in switches.items() if not switch.children}
    for _ in range(MAX_LEVELS):
        more = {name: 1 + max((level[c] for c in switch.children if c in switches), default=0)
                for name, switch in switches.items() if name not in level
                and all(c in level or c not in switches for c in switch.children)}
        if not more:
            break
        level.update(more)
    return {name: level.get(name, 0) for name in switches}


def _loops(switches: dict[str, Switch]) -> Iterator[Finding]:
    lost = [name for name, level in _levels(switches).items() if level == 0]
    if lost:
        yield Finding(f"{fold(lost)}: a loop of switches", switches[lost[0]].line)


def _tree(switches: dict[str, Switch]) -> dict[str, Any]:
    children = {name for switch in switches.values() for name in switch.children}
    leaves = [switch for switch in switches.values() if switch.nodes]
    nodes = {name for switch in leaves for name in switch.nodes}
    return {"switches": len(switches), "leaves": len(leaves), "levels": max(_levels(switches).values(), default=0),
            "node_count": len(nodes), "roots": [name for name in switches if name not in children],
            "nodes": [switch.nodes_text for switch in leaves], "switches_defined": list(switches)}


def _blocks(blocks: dict[str, Switch], sizes: list[int]) -> dict[str, Any]:
    counts = Counter(len(block.nodes) for block in blocks.values())
    return {"blocks": len(blocks), "nodes_per_block": next(iter(counts)) if len(counts) == 1 else None,
            "node_count": len({name for block in blocks.values() for name in block.nodes}), "block_sizes": sizes,
            "nodes": [block.nodes_text for block in blocks.values()]}


def _right(switches: dict[str, Switch]) -> Iterator[str]:
    """The same tree without what is not defined, switches with equal children made one; nothing where it is right."""
    if all(child in switches for switch in switches.values() for child in switch.children):
        return
    merged: dict[tuple[str, ...], list[str]] = {}
    for switch in switches.values():
        if switch.children:
            merged.setdefault(tuple(c for c in switch.children if c in switches), []).append(switch.name)
    for children, names in merged.items():
        name = names[0] if len(names) == 1 else names[0].rstrip("0123456789") or names[0]
        if children:
            yield f"SwitchName={name} Switches={fold(children)}"
    for switch in switches.values():
        if switch.nodes:
            yield f"SwitchName={switch.name} Nodes={switch.nodes_text}"
