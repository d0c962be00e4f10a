"""hwloc's XML (lstopo --of xml) of versions 1, 2 and 3 as a tree; a document that is cut off as far as it goes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import MAX_CPU, clean, integer, maybe_integer
from hpcadmin.facts._elements import Element, blocks, elements
from hpcadmin.facts._hwloc import CpuKind, Matrix, Obj, Tree, lowest, mask
from hpcadmin.facts._reading import Document

_ROOTS = frozenset({"Machine", "System"})
_RENAMED = {"Socket": "Package", "System": "Machine"}
_CACHES = {"0": "Cache", "1": "Cache", "2": "iCache", "": "Cache"}
_MAX_INFO = 400
_MAX_MATRIX = 4096                       # objects in a matrix
_ENTITY = re.compile(r"<!ENTITY\b", re.IGNORECASE)


def trees(document: Document) -> Iterator[tuple[int, int, Tree]]:
    """(first line, last line, tree) of every topology in a document."""
    for first, text in blocks(document.lines, "topology"):
        where = f"{document.name}:{first}"
        head = document.lines[max(0, first - 50):first]
        if any(_ENTITY.search(line) for line in head):
            raise ParseError("the XML declares entities, which hwloc never does", where=where)
        try:
            tree = of_text(text, first)
        except ParseError as exc:
            raise ParseError(exc.what, where=exc.where or where) from exc
        if tree is not None:
            yield first, first + text.count("\n"), tree


def of_text(text: str, first: int = 1) -> Tree | None:
    """The tree in a <topology> element; None when that is another program's."""
    root, broken, why = elements(text, first)
    tops = [child for child in root.children if child.tag == "object" and child.attributes.get("type") in _ROOTS]
    if not tops:
        if broken is not None and root.tag == "topology" and ("version" in root.attributes or not root.attributes):
            raise ParseError(f"hwloc's XML breaks off in line {broken} ({why}), before the first object")
        return None
    maker = _Maker()
    tree = Tree(maker.of(tops[0]), version=clean(root.attributes.get("version", "1"), 20))
    if len(tops) > 1:
        tree.contradictions.append(("two machines in one topology", tops[1].line))
    if broken is not None:
        tree.missing.append(f"the XML breaks off in line {broken} ({why}): what follows is missing")
    _sets(tree, tops[0])
    for holder in (tops[0], root):
        for child in holder.children:
            _further(tree, child)
    return tree


class _Maker:
    """Objects out of elements. The same few sets stand in thousands of attributes: each is read once."""

    def __init__(self) -> None:
        self.masks: dict[str, int | None] = {}

    def mask(self, text: str | None) -> int | None:
        if text is None:
            return None
        if text not in self.masks:
            self.masks[text] = mask(text)
        return self.masks[text]

    def of(self, element: Element) -> Obj:
        get = element.attributes.get
        kind = get("type", "")
        if kind == "Cache":              # of version 1: level and content are attributes
            kind = f"L{get('depth', '')}{_CACHES.get(get('cache_type', ''), 'Cache')}"
        made = Obj(_RENAMED.get(kind, kind), element.line, maybe_integer(get("os_index")), self.mask(get("cpuset")),
                   self.mask(get("complete_cpuset")), element.attributes)
        if made.kind in ("PU", "NUMANode"):
            made.os_index = integer(get("os_index", ""), f"{made.kind} in line {element.line}", high=MAX_CPU)
            if made.kind == "PU" and made.cpuset is None:
                made.cpuset = 1 << made.os_index
        for child in element.children:
            if child.tag == "object":
                made.children.append(self.of(child))
            elif child.tag == "info" and "name" in child.attributes:
                made.infos.setdefault(child.attributes["name"], clean(child.attributes.get("value", ""), _MAX_INFO))
        # hwloc sorts by the lowest CPU of each branch; devices stay behind, as they come.
        made.children.sort(key=lambda obj: lowest(obj.complete or obj.cpuset or 0))
        return made


def _sets(tree: Tree, top: Element) -> None:
    get = top.attributes.get
    if tree.root.cpuset is None:
        raise ParseError(f"the machine in line {top.line} has no set of CPUs")
    tree.complete, tree.allowed = tree.root.complete, mask(get("allowed_cpuset"))
    tree.online = mask(get("online_cpuset"))
    tree.nodes, tree.nodes_complete = mask(get("nodeset")), mask(get("complete_nodeset"))
    tree.nodes_allowed = mask(get("allowed_nodeset"))


def _further(tree: Tree, element: Element) -> None:
    """What stands in the machine or beside it: notes, distances, kinds of cores."""
    if element.tag == "info":
        name, value = (clean(element.attributes.get(key, ""), _MAX_INFO) for key in ("name", "value"))
        tree.infos.setdefault(name, []).append(value)
    elif element.tag == "cpukind":
        cpus = mask(element.attributes.get("cpuset"))
        infos = {clean(child.attributes.get("name", "")): clean(child.attributes.get("value", ""))
                 for child in element.children if child.tag == "info"}
        if cpus:
            efficiency = maybe_integer(element.attributes.get("forced_efficiency"))
            tree.kinds.append(CpuKind(cpus, efficiency, infos))
    elif element.tag == "distances":
        _old_matrix(tree, element)
    elif element.tag in ("distances2", "distances2hetero"):
        _matrix(tree, element)


def _old_matrix(tree: Tree, element: Element) -> None:
    """Of version 1: latencies relative to the local one, between the objects of a level; NUMA nodes if as many."""
    size = maybe_integer(element.attributes.get("nbobjs")) or 0
    texts = [child.attributes.get("value", "") for child in element.children if child.tag == "latency"]
    values = [_number(text) for text in texts]
    if 0 < size <= _MAX_MATRIX and len(values) == size * size and None not in values:
        whole = [value or 0.0 for value in values]
        base = _number(element.attributes.get("latency_base", "")) or 0.0
        tree.matrices.append(Matrix(
            "NUMALatency", "logical", "NUMANode", [str(number) for number in range(size)],
            [whole[row * size:(row + 1) * size] for row in range(size)], base, element.line))


def _number(text: str) -> float | None:
    return float(text) if re.match(r"[0-9]{1,12}(?:\.[0-9]{1,12})?\Z", text.strip()) else None


def _matrix(tree: Tree, element: Element) -> None:
    size = maybe_integer(element.attributes.get("nbobjs")) or 0
    names: list[str] = []
    values: list[int] = []
    for child in element.children:
        if child.tag == "indexes":
            names += child.text.split()
        elif child.tag == "u64values":
            values += [int(word) for word in child.text.split() if re.match(r"[0-9]{1,20}\Z", word)]
    kind, means = element.attributes.get("type", ""), maybe_integer(element.attributes.get("kind")) or 0
    name = clean(element.attributes.get("name", "")) or ("NUMALatency" if kind == "NUMANode" and means & 4 else "")
    indexing = "hetero" if element.tag == "distances2hetero" else element.attributes.get("indexing", "")
    numeric = indexing == "hetero" or all(re.match(r"[0-9]{1,18}\Z", each) for each in names)
    if not 0 < size <= _MAX_MATRIX or len(names) != size or len(values) != size * size or not numeric:
        if not tree.missing:
            tree.missing.append(f"the distances {name} in line {element.line} are not whole")
        return
    tree.matrices.append(Matrix(name, clean(indexing), clean(kind), [clean(each, 60) for each in names],
                                [[float(value) for value in values[row * size:(row + 1) * size]]
                                 for row in range(size)], line=element.line))
