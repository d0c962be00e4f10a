"""A tree drawn as boxes within boxes: a node with its devices, or a fabric. One SVG that needs nothing else."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcadmin.fabric import faults, slurm_tree, units
from hpcadmin.hosts import fold
from hpcadmin.model import Fabric, Node
from hpcadmin.resources import data_dir
from hpcadmin.text import plural, printable
from hpcadmin.topology_text import Branch, collapsed, links, tree

if TYPE_CHECKING:
    import jinja2

CHAR, LINE, PAD, GAP, HEAD = 6.7, 14.0, 8.0, 8.0, 18.0
LEAF_CHARS = 30
MAX_NOTES, NOTE_CHARS = 60, 160
MAX_WIDTH = {"node": 1500.0, "package": 720.0, "numa": 700.0}       # of what a box of that kind puts side by side
OTHER_WIDTH = 760.0


@dataclass
class Box:
    kind: str
    lines: list[str]
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    below: list[Box] = field(default_factory=list)


@dataclass(frozen=True)
class Arc:
    """A link drawn from one box to another."""

    path: str
    label: str
    x: float
    y: float


def node_svg(node: Node) -> str:
    top = layout(collapsed(tree(node)))
    notes = [printable(line, limit=300) for line in links(node)]
    return _render(f"Topology of {node.name}", top, list(_arcs(node, top)), notes)


def fabric_svg(fabrics: Sequence[Fabric]) -> str:
    """Each network as the tree that Slurm is given: switches in boxes, their nodes folded; faults below."""
    tops, notes = [], []
    for fabric in fabrics:
        tops.append(fabric_tree(fabric))
        for problem in fabric.problems:
            notes += textwrap.wrap(f"{fabric.kind}: {problem}", NOTE_CHARS, subsequent_indent="  ")
    top = tops[0] if len(tops) == 1 else Branch("networks", "node", tops)
    return _render("Fabric", layout(top), [], [printable(note, limit=300) for note in notes[:MAX_NOTES]])


def fabric_tree(fabric: Fabric) -> Branch:
    """The switches of each level above the leaves, then the tree. Switches that a fault names are marked."""
    switches = {switch.name: switch for switch in slurm_tree(fabric)}
    below = {name for switch in switches.values() for name in switch.switches}
    leaves = {unit.leaves[0] if len(unit.leaves) == 1 else f"unit-{unit.label}": unit.leaves for unit in units(fabric)}
    named = {name for fault in faults(fabric) if not fault.note for name in (fault.device, *fault.others)}

    def kind(name: str, usual: str) -> str:
        return "fault" if name in named else usual

    def branch(name: str) -> Branch:
        switch = switches[name]
        inside = [Branch(leaf, kind(leaf, "leaf")) for leaf in leaves.get(name, ()) if leaf != name]
        inside += [Branch(f"{fold(switch.nodes)} ({len(switch.nodes)})", "numa")] if switch.nodes else []
        inside += [branch(each) for each in switch.switches if each in switches]
        return Branch(name, kind(name, "leaf" if switch.nodes and not leaves.get(name, ())[1:] else "switch"), inside)

    upper: dict[int, list[str]] = {}
    for device in fabric.switches:
        if (device.level or 0) > 1:
            upper.setdefault(device.level or 0, []).append(device.name)
    above = [Branch(f"level {level}: {fold(names)}", "spine") for level, names in sorted(upper.items(), reverse=True)]
    return Branch(f"{fabric.kind}: {plural(len(fabric.switches), 'switch', 'switches')}", "node",
                  [*above, *(branch(name) for name in switches if name not in below)])


def layout(branch: Branch) -> Box:
    """The boxes with their places, the outermost at 0, 0."""
    box = _measure(branch)
    _place(box, PAD, PAD)
    return box


def _measure(branch: Branch) -> Box:
    text = printable(branch.text, limit=300)
    if not branch.below:
        lines = textwrap.wrap(text, LEAF_CHARS, break_long_words=True) or [""]
        return Box(branch.kind, lines, max(map(len, lines)) * CHAR + 2 * PAD, len(lines) * LINE + PAD)
    below = [_measure(each) for each in branch.below]
    limit = MAX_WIDTH.get(branch.kind, OTHER_WIDTH)
    x, y, row, width = 0.0, 0.0, 0.0, 0.0
    for box in below:
        if x > 0 and x + box.width > limit:
            x, y, row = 0.0, y + row + GAP, 0.0
        box.x, box.y = x, y
        x, row = x + box.width + GAP, max(row, box.height)
        width = max(width, x - GAP)
    lines = textwrap.wrap(text, max(LEAF_CHARS, int(width / CHAR))) or [""]
    head = HEAD + (len(lines) - 1) * LINE
    for box in below:
        box.x, box.y = box.x + PAD, box.y + head + PAD / 2
    wide = max(width, max(map(len, lines)) * CHAR) + 2 * PAD
    return Box(branch.kind, lines, wide, head + y + row + 1.5 * PAD, below=below)


def _place(box: Box, x: float, y: float) -> None:
    box.x, box.y = box.x + x, box.y + y
    for each in box.below:
        _place(each, box.x, box.y)


def _every(box: Box) -> Iterator[Box]:
    yield box
    for each in box.below:
        yield from _every(each)


def _arcs(node: Node, top: Box) -> Iterator[Arc]:
    """Links between GPUs that are not all alike; where they are, a line of text says it."""
    labels = {label for row, line in enumerate(node.gpu_links) for label in line[row + 1:]}
    if len(labels) < 2:
        return
    numbers = [gpu.index for gpu in node.gpus]
    boxes = {box.lines[0].split()[1]: box for box in _every(top) if box.kind == "gpu" and len(box.lines[0].split()) > 1}
    for row, line in enumerate(node.gpu_links):
        for column in range(row + 1, len(line)):
            a, b = boxes.get(str(numbers[row])), boxes.get(str(numbers[column]))
            if a is None or b is None or not line[column].startswith(("NV", "XGMI")):
                continue
            x, y, to_x, to_y = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y + b.height
            low = max(y, to_y) + 12 + 5 * (column - row)
            yield Arc(f"M{x:.0f},{y:.0f} C{x:.0f},{low:.0f} {to_x:.0f},{low:.0f} {to_x:.0f},{to_y:.0f}", line[column],
                      (x + to_x) / 2, (y + to_y) / 2 + 0.75 * (low - (y + to_y) / 2))


@functools.cache
def _environment() -> jinja2.Environment:
    """One, which keeps the template that it has compiled."""
    import jinja2  # noqa: PLC0415  (0.17 s that only drawings pay)
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("conf_templates")), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True)


def _render(title: str, top: Box, arcs: list[Arc], notes: list[str]) -> str:
    width = max(top.width, *(len(note) * CHAR for note in notes), 0.0) + 2 * PAD
    return _environment().get_template("topology.svg.j2").render(
        title=printable(title, limit=200), boxes=list(_every(top)), arcs=arcs, notes=notes, width=width,
        height=top.height + 2 * PAD + LINE * (len(notes) + 1), start=top.height + 3 * PAD, line=LINE, pad=PAD)
