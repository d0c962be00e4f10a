"""topology.conf: the switches or blocks of a text, and what is wrong with them (topology.conf(5))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.facts import _slurm_shapes as shapes
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._slurm_shapes import MAX_NAME
from hpcadmin.facts._slurm_text import records
from hpcadmin.hosts import expand, fold


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


# topology.conf(5), and what `scontrol show topology` prints beside them.
_KEYS = {"switchname": frozenset({"switchname", "switches", "nodes", "linkspeed", "level"}),
         "blockname": frozenset({"blockname", "nodes", "blockindex", "blocksize"})}


def collect(lines: Sequence[str]) -> Tree | None:
    """None where the text has no line of a topology.conf. A text that shows one and then another, with words between
    them, has two: what is known is of the last."""
    found = [each for each in _each(lines) if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    return replace(found[-1], findings=tuple(what for each in found for what in each.findings),
                   lines=tuple(line for each in found for line in each.lines))


def _each(lines: Sequence[str]) -> Iterator[Tree | None]:
    switches: dict[str, Switch] = {}
    blocks: dict[str, Switch] = {}
    sizes: list[str] = []
    findings: list[Finding] = []
    seen: list[int] = []
    pieces: dict[str, int] = {}
    for record in records(lines):
        keys, first = record.keys, record.first
        if first in _KEYS and pieces.get(keys[first], record.piece) != record.piece:
            yield tree(switches, blocks, sizes, findings, seen) if seen else None
            switches, blocks, sizes, findings, seen, pieces = {}, {}, [], [], [], {}
        if first in _KEYS:
            pieces[keys[first]] = record.piece
        if first in ("blocksizes", "blocklevels") and record.text.lower().startswith(first):
            sizes = [part.strip() for part in keys[first].split(",")] if first == "blocksizes" else sizes
            seen.append(record.line)
        if first not in _KEYS or not record.text.lower().startswith(first):
            continue
        seen.append(record.line)
        add(switches if first == "switchname" else blocks, keys[first], record.line, keys, findings,
            block=first == "blockname")
        unknown = sorted(keys.keys() - _KEYS[first])
        if unknown:
            findings.append(Finding(f"{keys[first]}: {', '.join(unknown)[:80]}: no key of topology.conf: slurmctld "
                                    "ends with a fatal error", record.line))
    yield tree(switches, blocks, sizes, findings, seen) if seen else None


def add(into: dict[str, Switch], name: str, line: int, keys: Mapping[str, str], findings: list[Finding], *,
        block: bool = False, young: bool = False) -> None:
    """A switch or block; of `scontrol show topology` without the nodes of the switches below. young: for a version that
    takes a leaf whose nodes come later."""
    shown = "level" in keys or "blockindex" in keys
    below, nodes = keys.get("switches", ""), keys.get("nodes", "")
    if below == "(null)":
        below = ""
    if name in into:
        findings.append(Finding(f"{name} is defined twice (first on line {into[name].line})", line))
    if below and nodes and not shown:
        findings.append(Finding(f"{name} has Switches= and Nodes=: slurmctld ends with a fatal error", line))
    if shown:
        if not any(finding.what.startswith("output of") for finding in findings):
            findings.append(Finding("output of scontrol show topology: no topology.conf, Slurm does not read it back",
                                    line, note=True))
        nodes = "" if below else nodes
    elif not below and not nodes:
        findings.append(Finding(f"{name} has neither Switches= nor Nodes=" if not block else
                                f"{name} has no Nodes=: a place that is kept for a block", line,
                                note=block or young))
    if len(name) > MAX_NAME and not young:
        findings.append(Finding(f"{name[:70]}: a name of {len(name)} characters: Slurm takes at most {MAX_NAME} from "
                                "24.11 on", line))
    elif shapes.overflows(name):
        findings.append(Finding(f"{name[:70]}: the number at its end is more than Slurm's host lists can hold: "
                                "slurmctld ends with a fatal error", line))
    into[name] = Switch(name, line, _names(below, line, findings), _names(nodes, line, findings), nodes)


def tree(switches: dict[str, Switch], blocks: dict[str, Switch], sizes: Sequence[str], findings: list[Finding],
         seen: Sequence[int]) -> Tree:
    found = [*findings, *_undefined(switches), *_twice([*switches.values()]), *_twice([*blocks.values()]),
             *_loops(switches), *_roots(switches), *_sizes(sizes, blocks, seen[-1])]
    if switches and blocks:
        found.append(Finding("switches and blocks in one topology.conf: each topology plugin takes its own lines only",
                             next(iter(blocks.values())).line))
    known = _blocks(blocks, [int(size) for size in sizes if size.isdigit()]) if not switches else _tree(switches)
    return Tree(known, tuple(found), tuple(seen), tuple(_right(switches)))


def _sizes(sizes: Sequence[str], blocks: dict[str, Switch], line: int) -> Iterator[Finding]:
    """The first is the base; others are it times a power of two."""
    wrong = [size for size in sizes if not (size.isdigit() and size.isascii() and int(size[:9]) > 0)]
    if wrong:
        yield Finding(f"BlockSizes: {', '.join(wrong)[:60]} is no size of a block", line)
        return
    if sizes and not blocks:
        yield Finding("BlockSizes= without any BlockName=: there are no blocks", line)
        return
    numbers = [int(size[:9]) for size in sizes]
    odd = shapes.illegal_size(numbers)
    if odd is not None:
        yield Finding(f"BlockSizes: {odd} is not {numbers[0]} times a power of two: slurmctld ends with a fatal "
                      "error", line)
    small = [block for block in blocks.values() if block.nodes and numbers and len(block.nodes) < numbers[0]]
    if small:
        yield Finding(f"BlockSizes: the base size {numbers[0]} is more than {small[0].name} has "
                      f"({len(small[0].nodes)} nodes): Slurm says nothing", small[0].line,
                      note=len(small) < len(blocks))


def _roots(switches: dict[str, Switch]) -> Iterator[Finding]:
    roots = shapes.roots(_below(switches))
    if len(roots) > 1:
        yield Finding(f"no common root ({fold(roots[:20])}): no job can span them, unless that is meant",
                      switches[roots[1]].line, note=True)


def _names(text: str, line: int, findings: list[Finding]) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(expand(text))
    except UsageError as exc:
        findings.append(Finding(exc.what, line))
        return ()


def _undefined(switches: dict[str, Switch]) -> Iterator[Finding]:
    for name, missing in shapes.undefined(_below(switches)).items():
        yield Finding(f"{name}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not defined: "
                      "slurmctld ends with a fatal error", switches[name].line)
    parents = shapes.parents(_below(switches))
    several = [name for name, above in parents.items() if len(above) > 1]
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


def _below(switches: Mapping[str, Switch]) -> dict[str, tuple[str, ...]]:
    return {name: switch.children for name, switch in switches.items()}


def _loops(switches: dict[str, Switch]) -> Iterator[Finding]:
    lost = [name for name, level in shapes.levels(_below(switches)).items() if level == 0]
    if lost:
        yield Finding(f"{fold(lost)}: a loop of switches", switches[lost[0]].line)


def _tree(switches: dict[str, Switch]) -> dict[str, Any]:
    leaves = [switch for switch in switches.values() if switch.nodes]
    nodes = {name for switch in leaves for name in switch.nodes}
    below = _below(switches)
    return {"switches": len(switches), "leaves": len(leaves), "levels": max(shapes.levels(below).values(), default=0),
            "node_count": len(nodes), "roots": list(shapes.roots(below)),
            "nodes": [switch.nodes_text for switch in leaves], "switches_defined": list(switches)}


def _blocks(blocks: dict[str, Switch], sizes: list[int]) -> dict[str, Any]:
    counts = Counter(len(block.nodes) for block in blocks.values() if block.nodes)
    return {"blocks": len(blocks), "nodes_per_block": next(iter(counts)) if len(counts) == 1 else None,
            "node_count": len({name for block in blocks.values() for name in block.nodes}), "block_sizes": sizes,
            "nodes": [block.nodes_text for block in blocks.values() if block.nodes_text],
            "blocks_defined": list(blocks)}


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
