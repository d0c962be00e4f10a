"""lstopo's text (`lstopo --of console`, hwloc-ls) of hwloc 1 to 3, short or verbose: a tree by indentation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _hwloc_known
from hpcadmin.facts._base import MAX_CPU, clean
from hpcadmin.facts._hwloc import MEMORY_ONLY, CpuKind, Matrix, Obj, Tree, mask
from hpcadmin.facts._lstopo_lines import is_object, objects, unclosed
from hpcadmin.facts._reading import Document, Reading

FORMS = ("text",)
MARKS = ("Machine", "System", " L#", " P#")
KIND = "lstopo text"
_ROOT = re.compile(r"\s{0,60}(?:Machine|System)(?: [LP]#[0-9]{1,6})?(?: \(| \+ | cpuset=|\s*\Z)")
# An object of a kind that is not known here.
_OTHER = re.compile(r"[A-Za-z?][A-Za-z0-9?_-]{0,30}(?:[\[(][^\])]{1,80}[\])]){0,2}"
                    r"(?: [LP]#[0-9]{1,7}| \"[^\"]{1,200}\"\Z)")
_DEPTH = re.compile(r"\s{0,40}(?:Special )?depth (-?[0-9]{1,2}):[ \t]{1,20}([0-9]{1,7}) ([A-Za-z0-9]{1,20}) \(type #")
_HIDDEN = re.compile(r"\s{0,40}[0-9]{1,6} processors? (not represented in topology|represented but offline|"
                     r"represented but not allowed): (0x[0-9a-fA-Fx,]{1,20000})")
_INFOS = re.compile(r"\s{0,40}Topology infos: (.{1,8000})")
_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,60})=(?:\"([^\"]*)\"|([^\s\"]*))")
_MATRIX = re.compile(r"\s{0,40}Relative latency matrix (?:\(name ([A-Za-z0-9]{1,40})[^)]{0,60}\) )?between "
                     r"([0-9]{1,4}) (NUMANode)s.{0,40}by (logical|physical) indexes")
_KIND = re.compile(r"\s{0,40}CPU kind #[0-9]{1,4} efficiency (-?[0-9]{1,9}) cpuset (0x[0-9a-fA-Fx,]{1,20000})")
_KIND_INFO = re.compile(r"\s{1,40}([A-Za-z]{1,40}) = (.{0,200})")
_FOOTER = ("CPU kind", "Memory attribute", "Topology ", "Relative ", "depth ", "Special depth", "index ")
_DRAWN = re.compile(r"[│|]\s{0,20}(?:PU|Core) [LP]#[0-9]")
_LEVELS = {"Package": "Package", "Socket": "Package", "Core": "Core", "PU": "PU", "NUMANode": "NUMANode"}
_MEMORY = frozenset({"NUMANode", "MemCache"})
_DEVICES = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_MAX_DEPTH = 200
_MAX_WRAPS = 40
_TERMINAL = 78
_PART = 0.9                              # printed sizes are rounded


def opens(line: str) -> bool:
    """Whether a machine may begin with the line."""
    return bool(_ROOT.match(line) or _DEPTH.match(line) or _DRAWN.search(line))


def read(document: Document) -> tuple[Reading, ...]:
    found = []
    number = 0
    lines = document.lines
    while number < len(lines):
        if _ROOT.match(lines[number]) and _begins(lines, number):
            text = _Text(number)
            number = text.take(lines, number)
            found.append(text.reading())
        elif _DEPTH.match(lines[number]) and "Machine" in lines[number]:
            made, number = _summary(lines, number)
            found.append(made)
        else:
            number += 1
    if not found and sum(_DRAWN.search(line) is not None for line in lines[:4000]) > 1:
        raise ParseError("a machine drawn as boxes: which CPU is in which core cannot be read from that",
                         where=f"{document.name}:1", hint="lstopo --of xml, or --of console")
    return tuple(found)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _begins(lines: tuple[str, ...], number: int) -> bool:
    """Whether a tree follows: a further object in the line itself, or a deeper one soon below."""
    root = lines[number]
    if " + " in root:
        return True
    return any(_indent(line) > _indent(root) and is_object(line.strip())
               for line in lines[number + 1:number + 1 + _MAX_WRAPS])


@dataclass
class _Text:
    first: int
    last: int = 0
    root: Obj | None = None
    stack: list[tuple[int, Obj]] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict)      # CPUs by what is said of them
    infos: dict[str, list[str]] = field(default_factory=dict)
    kinds: list[CpuKind] = field(default_factory=list)
    matrices: list[Matrix] = field(default_factory=list)

    def take(self, lines: tuple[str, ...], number: int) -> int:
        """Reads on until another machine begins or nothing of this one follows; the number of that line."""
        base = _indent(lines[number])
        gap = 0
        while number < len(lines):
            line = lines[number]
            if self.root is not None and (_ROOT.match(line) or (self.levels and "Machine" in line)):
                break
            if is_object(line.strip()) and (self.root is None or _indent(line) > base):
                if gap:
                    self.missing.append(f"line {gap} is not lstopo's: what stood there is missing")
                    gap = 0
                number = self.object(lines, number)
            elif self.root is not None and not self.levels and _indent(line) > base and _OTHER.match(line.strip()):
                number += 1
            elif (after := self.footer(lines, number)) > number:
                gap, number = 0, after
            else:
                if line.strip() and self.stack and not gap and not self.levels:
                    gap = number + 1
                elif line.strip() and (self.levels or number - self.last > 8):
                    break
                number += 1
                continue
            self.last = number
        return max(self.last, self.first + 1)

    def object(self, lines: tuple[str, ...], number: int) -> int:
        text, indent = lines[number].strip(), _indent(lines[number])
        start = number + 1
        while unclosed(text) and number + 1 < len(lines) and number - start < _MAX_WRAPS:
            following = lines[number + 1]
            if not following.strip() or is_object(following.strip()):
                break
            # A terminal cuts at its width, wherever that is; whoever mailed the text, between words.
            glue = "" if len(lines[number]) >= _TERMINAL else " "
            text, number = f"{text}{glue}{following}", number + 1
        if unclosed(text):
            self.missing.append(f"line {start} is cut off")
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()
        for same in objects(text, start):
            if not same:
                continue
            if self.root is None:
                self.root = same[0]
            elif self.stack and len(self.stack) < _MAX_DEPTH:
                self.stack[-1][1].children += same
            self.stack.append((indent, same[0]))
        return number + 1

    def footer(self, lines: tuple[str, ...], number: int) -> int:
        """The number of the line behind, if this one is of those below the tree."""
        line = lines[number]
        if depth := _DEPTH.match(line):
            self.levels[depth[3]] = self.levels.get(depth[3], 0) + int(depth[2])
        elif hidden := _HIDDEN.match(line):
            self.hidden[hidden[1]] = self.hidden.get(hidden[1], 0) | (mask(hidden[2]) or 0)
        elif infos := _INFOS.match(line):
            for key, quoted, bare in _PAIR.findall(infos[1]):
                self.infos.setdefault(key, []).append(clean(quoted or bare))
        elif matrix := _MATRIX.match(line):
            return self.matrix(lines, number, int(matrix[2]), "os" if matrix[4] == "physical" else "logical")
        elif kind := _KIND.match(line):
            self.kinds.append(CpuKind(mask(kind[2]) or 0))
        elif self.kinds and (info := _KIND_INFO.match(line)):
            self.kinds[-1].infos[info[1]] = clean(info[2])
        elif not line.lstrip().startswith(_FOOTER) and not (self.levels and line.startswith("  ")):
            return number
        return number + 1

    def matrix(self, lines: tuple[str, ...], number: int, size: int, indexing: str) -> int:
        heading = lines[number + 1].split()[1:] if number + 1 < len(lines) else []
        rows = []
        for line in lines[number + 2:number + 2 + size]:
            words = line.split()[1:]
            if len(words) != size or not all(re.match(r"[0-9]{1,9}(?:\.[0-9]{1,6})?\Z", word) for word in words):
                self.missing.append(f"the distances in line {number + 1} are cut off")
                return number + 1
            rows.append([float(word) for word in words])
        # The nodes stand in the order in which the kernel lists them, which need not be hwloc's.
        named = len(heading) == size == len(set(heading)) and all(re.match(r"[0-9]{1,7}\Z", word) for word in heading)
        if len(rows) == size and named and all(value.is_integer() for row in rows for value in row):
            order = sorted(range(size), key=lambda at: int(heading[at]))
            self.matrices.append(Matrix("NUMALatency", indexing, "NUMANode", [heading[at] for at in order],
                                        [[rows[row][column] for column in order] for row in order]))
        return number + 2 + len(rows)

    # --- the tree -------------------------------------------------------------------------------------------------

    def reading(self) -> Reading:
        root = self.root or Obj("Machine")
        tree = Tree(root, infos=self.infos, kinds=self.kinds, matrices=self.matrices, missing=self.missing)
        for key, value in root.infos.items():
            tree.infos.setdefault(key, []).append(value)
        cpus = [here for here in root.walk() if here.kind == "PU"]
        if not cpus:
            tree.no_cpus = tree.no_threads = True
            for number, core in enumerate([here for here in root.walk() if here.kind == "Core"]):
                core.children.append(Obj("PU", core.line, number))
        elif any(here.os_index is None for here in cpus):
            tree.no_cpus = True
            for number, here in enumerate(cpus):
                here.os_index = number
        self.check(root, cpus, tree)
        old = any(here.kind == "NUMANode" and any(below.kind == "PU" for below in here.walk())
                  for here in root.walk() if here.kind == "NUMANode")
        _sets(root)
        _memory(root, root.cpuset or 0, old)
        tree.no_numa = not old and _beside(root)
        if not tree.no_cpus and not tree.missing:
            self.limits(tree, root.cpuset or 0)
        return _hwloc_known.reading(KIND, tree, self.first + 1, self.last)

    def limits(self, tree: Tree, cpus: int) -> None:
        """What the last lines say of CPUs. Whoever is told which of those in the tree are not allowed sees them all, so
        that the others are off line."""
        tree.complete = cpus | self.hidden.get("not represented in topology", 0)
        disallowed = self.hidden.get("represented but not allowed", 0)
        if disallowed:
            tree.allowed = cpus & ~disallowed
        if disallowed or "represented but offline" in self.hidden:
            tree.online = cpus & ~self.hidden.get("represented but offline", 0)

    def check(self, root: Obj, cpus: list[Obj], tree: Tree) -> None:
        if any((here.os_index or 0) > MAX_CPU for here in cpus):
            raise ParseError(f"a CPU number above {MAX_CPU} is none", where=f"line {self.first + 1}")
        counts: dict[str, int] = {}
        for here in root.walk():
            counts[here.kind] = counts.get(here.kind, 0) + 1
        for name, told in self.levels.items():
            kind = _LEVELS.get(name)
            if kind and counts.get(kind, 0) != told and not (kind == "PU" and tree.no_threads):
                tree.missing.append(f"{told} {name} by the summary below, {counts.get(kind, 0)} in the tree: a part of "
                                    "it is missing")
        if "total" in root.infos and not self.levels:
            tree.missing.append("the summary with which lstopo -v ends is not there: cut off")
        sizes = [int(here.attributes["bytes"]) for here in root.walk() if "bytes" in here.attributes]
        if "bytes" in root.attributes and len(sizes) > 1 and sum(sizes[1:]) < _PART * sizes[0]:
            tree.missing.append(f"the NUMA nodes have {sum(sizes[1:]) >> 20} of the machine's {sizes[0] >> 20} MiB: a "
                                "part of the tree is missing")
        places = [int(here.attributes["logical"]) for here in cpus if "logical" in here.attributes]
        if places and (len(places) != len(cpus) or places != list(range(len(places)))):
            tree.missing.append("the CPUs (PU L#) are not numbered without gaps: a part of the tree is missing")
        empty = [here for here in root.walk() if here.kind == "Core" and not any(
            below.kind == "PU" for below in here.walk())]
        if empty:
            tree.missing.append(f"the core in line {empty[0].line} has no CPUs: cut off")


def _sets(here: Obj) -> int:
    """The CPUs below each object; memory and devices have none of their own."""
    own = 1 << here.os_index if here.kind == "PU" and here.os_index is not None else 0
    for child in here.children:
        own |= _sets(child)
    if here.kind not in _DEVICES:
        here.cpuset = own
    return own


def _memory(here: Obj, around: int, old: bool) -> None:
    """hwloc 2 hangs memory beside the CPUs that it belongs to; before, the CPUs were in the NUMA node."""
    for child in here.children:
        if child.kind in _MEMORY and not child.cpuset and not old:
            child.cpuset = around
        _memory(child, child.cpuset if child.cpuset is not None and child.kind not in _MEMORY else around, old)


def _beside(root: Obj) -> bool:
    """Plain memory twice in one place: the levels between are left out, and with them which CPUs it belongs to."""
    for here in root.walk():
        plain = [child for child in here.children
                 if child.kind == "NUMANode" and child.attributes.get("subtype") not in MEMORY_ONLY]
        if here.cpuset and len(plain) > 1:
            return True
    return False


def _summary(lines: tuple[str, ...], number: int) -> tuple[Reading, int]:
    """`lstopo -s`: how many of each, not what is where."""
    first, found = number, dict[str, int]()
    while number < len(lines) and (match := _DEPTH.match(lines[number])):
        found[_LEVELS.get(match[3], match[3])] = int(match[2])
        number += 1
    packages, cores, cpus = (found.get(name) for name in ("Package", "Core", "PU"))
    known: dict[str, Any] = {
        "sockets": packages, "cores": cores, "cpus": cpus, "numa_node_count": found.get("NUMANode"),
        "l3_count": found.get("L3Cache", 0), "cores_per_socket": None, "threads_per_core": None}
    missing = ("only the numbers of objects: which CPU is in which core, package and NUMA node is not told",)
    return Reading("lstopo -s", first + 1, number, known=known, missing=missing), number


def of_text(text: str) -> Reading:
    """The first machine in a text."""
    found = read(Document("lstopo", "text", tuple(text.split("\n"))))
    if not found:
        raise ParseError("there is no machine of lstopo's in it")
    return found[0]
