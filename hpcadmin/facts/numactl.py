"""`numactl -H` (and -s) as text: NUMA nodes with their CPUs, memory and distances; of a part, what the part says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import MAX_CPU, cpu_list, integer
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.model import NumaNode
from hpcadmin.text import fold_ids

FORMS = ("text",)
MARKS = ("node ",)
KIND = "numactl -H"
_AVAILABLE = re.compile(r"available: +([0-9]{1,5}) +nodes? \(([0-9,-]{1,2000})\)")
_CPUS = re.compile(r"node +([0-9]{1,5}) +cpus:([ 0-9]{0,100000})\Z")
_FOLDED = re.compile(r"node +([0-9]{1,5}) +cpus: *([0-9]{1,5}[0-9, -]{0,20000}?) *\(([0-9]{1,5})\)\Z")
_SIZE = re.compile(r"node +([0-9]{1,5}) +size: *([0-9]{1,15}) *MB\b")
_FREE = re.compile(r"node +([0-9]{1,5}) +free: *[0-9]{1,15} *MB\b")
_TITLE = re.compile(r"node distances:\s*\Z")
_HEAD = re.compile(r"node((?: +[0-9]{1,5}){1,2048}) *\Z")
_ROW = re.compile(r"([0-9]{1,5}):((?: +[0-9]{1,5}){1,2048}) *\Z")
_DIGITS = re.compile(r"[0-9]{1,5}(?: +[0-9]{1,5}){0,4000} *\Z")
_BOUND = re.compile(r"physcpubind:((?: +[0-9]{1,5}){1,20000}) *\Z")
_PREFIX = " \t>|`"
# Lines that may lie between those of one output (a prompt, a title); more, and what follows is another output.
_GAP = 8


@dataclass(frozen=True)
class Numactl:
    """nodes: those with a line of CPUs. complete: every node that the header names has its CPUs."""

    nodes: tuple[NumaNode, ...] = ()
    named: tuple[int, ...] = ()
    complete: bool = False
    allowed: tuple[int, ...] = ()    # numactl -s: what its own process might use; (): not told


@dataclass
class _Found:
    first: int
    last: int
    named: tuple[int, ...] = ()
    cpus: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    header: tuple[int, ...] = ()
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    bad: list[tuple[int, str]] = field(default_factory=list)
    allowed: tuple[int, ...] = ()
    open_node: int | None = None     # whose list of CPUs the next line may continue
    title: bool = False


def read(document: Document) -> tuple[Reading, ...]:
    return tuple(_reading(found, document.name) for found in _blocks(document.lines))


def _blocks(lines: Iterable[str]) -> Iterator[_Found]:
    found: _Found | None = None
    for number, raw in enumerate(lines, 1):
        line = raw.strip(_PREFIX)
        if not line or not (line[0].isdigit() or line.startswith(("node", "available:", "physcpubind:"))):
            continue
        if found is not None and (number - found.last > _GAP or _begins_anew(found, line)):
            if _worth(found):
                yield found
            found = None
        current = found or _Found(number, number)
        if _take(current, line, number):
            current.last, found = number, current
    if found is not None and _worth(found):
        yield found


def _worth(found: _Found) -> bool:
    return bool(found.cpus or found.rows or found.sizes or found.title)


def _begins_anew(found: _Found, line: str) -> bool:
    match = _CPUS.match(line) or _FOLDED.match(line)
    return bool(_AVAILABLE.match(line) and _worth(found)) or bool(match and int(match[1]) in found.cpus)


def _take(found: _Found, line: str, number: int) -> bool:
    """Whether the line was one of numactl's."""
    continued, found.open_node = found.open_node, None
    if match := _AVAILABLE.match(line):
        found.named = _ids(found, match[2], number)
        if len(found.named) != int(match[1]):
            found.bad.append((number, f"{int(match[1])} nodes are counted and {len(found.named)} named"))
    elif match := _CPUS.match(line):
        found.cpus[int(match[1])] = _numbers(match[2])
        found.open_node = int(match[1])
    elif match := _FOLDED.match(line):
        found.cpus[int(match[1])] = _folded(found, match, number)
    elif match := _SIZE.match(line):
        found.sizes[int(match[1])] = int(match[2])
    elif _TITLE.match(line):
        found.title = True
    elif match := _HEAD.match(line):
        found.header = _in_order(match[1])
    elif (match := _ROW.match(line)) and (found.header or found.title):
        if int(match[1]) in found.rows:
            found.bad.append((number, f"a second row of distances for node {int(match[1])}"))
        found.rows[int(match[1])] = _in_order(match[2])
    elif match := _BOUND.match(line):
        found.allowed = _numbers(match[1])
    elif continued is not None and _DIGITS.match(line):
        found.cpus[continued] = tuple(sorted({*found.cpus[continued], *_numbers(line)}))
        found.open_node = continued
    else:
        return _FREE.match(line) is not None
    return True


def _folded(found: _Found, match: re.Match[str], number: int) -> tuple[int, ...]:
    """--cpu-compress: ranges, and how many CPUs they are."""
    cpus = _ids(found, match[2].replace(" ", ""), number)
    if len(cpus) != int(match[3]):
        found.bad.append((number, f"node {match[1]} is said to have {int(match[3])} CPUs and lists {len(cpus)}"))
    return cpus


def _ids(found: _Found, text: str, number: int) -> tuple[int, ...]:
    try:
        return cpu_list(text, "nodes")
    except ParseError as exc:
        found.bad.append((number, exc.what))
        return ()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({integer(word, "CPU", high=99999) for word in text.split()}))


def _in_order(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


def _reading(found: _Found, name: str) -> Reading:
    too_large = [cpu for cpus in found.cpus.values() for cpu in cpus if cpu > MAX_CPU]
    if too_large:
        raise ParseError(f"CPU {too_large[0]} is no CPU of a machine", where=f"{name}:{found.first}")
    named = found.named or tuple(sorted({*found.header, *found.rows})) or tuple(sorted(found.cpus))
    findings = [Finding(text, line) for line, text in found.bad]
    matrix = _matrix(found, named, findings)
    nodes = tuple(
        NumaNode(number, found.cpus[number], found.sizes.get(number),
                 matrix[list(named).index(number)] if matrix and number in named else ())
        for number in sorted(found.cpus))
    missing = _missing(found, named)
    _check_nodes(found, nodes, findings)
    complete = bool(found.named) and not missing and not found.bad
    value = Numactl(nodes, named, complete, found.allowed)
    return Reading(
        KIND, found.first, found.last, value=value, known=_known(found, named, matrix, complete),
        findings=tuple(findings), missing=tuple(missing), refused=_refused(found), assumed=_assumed(named, matrix))


def _refused(found: _Found) -> str:
    if not found.cpus:
        return "distances only: which CPUs and how much memory the nodes have is not in the text" \
            if found.rows or found.title else "no CPUs: memory sizes only"
    inside = {cpu for cpus in found.cpus.values() for cpu in cpus}
    if found.allowed and not set(found.allowed) >= inside:
        return (f"captured inside a job or container: only CPUs {fold_ids(found.allowed)} of "
                f"{fold_ids(inside)} are allowed (physcpubind)")
    return ""


def _matrix(found: _Found, named: tuple[int, ...], findings: list[Finding]) -> tuple[tuple[int, ...], ...]:
    """Rows in the order of the nodes; () when it is not whole."""
    if not found.rows:
        return ()
    width = found.header or tuple(sorted(found.rows))
    if width != tuple(sorted(width)) or set(width) != set(named) or set(found.rows) != set(named) \
            or any(len(row) != len(width) for row in found.rows.values()):
        return ()
    matrix = tuple(found.rows[number] for number in width)
    size = range(len(width))
    odd = [(width[a], width[b]) for a in size for b in size if a < b and matrix[a][b] != matrix[b][a]]
    if odd:
        findings.append(Finding(f"the distances are not symmetric (nodes {odd[0][0]} and {odd[0][1]})"))
    far = [width[a] for a in size if matrix[a][a] != min(matrix[a])]
    if far:
        findings.append(Finding(f"node {far[0]} is said to be nearer to another node than to itself"))
    return matrix


def _missing(found: _Found, named: tuple[int, ...]) -> list[str]:
    missing = []
    lacking = sorted(set(named) - found.cpus.keys())
    if not found.cpus:
        missing.append("no CPUs and no memory: distances only" if not found.sizes else "no CPUs")
    elif lacking:
        missing.append(f"the CPUs of nodes {fold_ids(lacking)} are missing: not in the text")
    elif not found.named:
        missing.append("the line 'available: … nodes' is missing: there may be more nodes than these")
    sizes = sorted(set(found.cpus) - found.sizes.keys())
    if sizes:
        missing.append(f"the memory of nodes {fold_ids(sizes)} is missing")
    if (found.title or found.header) and set(named) - found.rows.keys():
        missing.append(f"the distances of nodes {fold_ids(set(named) - found.rows.keys())} are missing: cut off")
    elif not found.rows and len(named) > 1:
        missing.append("the distances are missing: cut off")
    elif any(len(row) != len(found.header or found.rows) for row in found.rows.values()):
        missing.append("rows of distances are cut off")
    return missing


def _check_nodes(found: _Found, nodes: tuple[NumaNode, ...], findings: list[Finding]) -> None:
    seen: dict[int, int] = {}
    for node in nodes:
        twice = [cpu for cpu in node.cpus if cpu in seen]
        if twice:
            findings.append(Finding(f"contradictory: CPU {twice[0]} is in nodes {seen[twice[0]]} and {node.id}"))
        seen.update(dict.fromkeys(node.cpus, node.id))
    outside = sorted(found.cpus.keys() - set(found.named)) if found.named else []
    if outside:
        findings.append(Finding(f"contradictory: node {outside[0]} is not among the available ones"))
    empty = [node.id for node in nodes if not node.cpus]
    if empty:
        findings.append(Finding(f"NUMA nodes {fold_ids(empty)} have no CPUs (memory of GPUs or of expanders, if any)",
                                found.first, note=True))
    bare = [node.id for node in nodes if node.memory_mib == 0 and node.cpus]
    if bare:
        findings.append(Finding(f"NUMA nodes {fold_ids(bare)} have CPUs and no memory"))
    counts = {len(node.cpus) for node in nodes if node.cpus}
    if len(counts) > 1:
        findings.append(Finding("NUMA nodes are uneven: " + ", ".join(
            f"node {node.id} has {len(node.cpus)} CPUs" for node in nodes[:16] if node.cpus)))


def _pairs(named: tuple[int, ...], matrix: tuple[tuple[int, ...], ...]) -> dict[int, list[list[int]]]:
    """Pairs of nodes by their distance."""
    found: dict[int, list[list[int]]] = {}
    for a, row in enumerate(matrix):
        for b in range(a + 1, len(row)):
            found.setdefault(row[b], []).append([named[a], named[b]])
    return found


def _known(found: _Found, named: tuple[int, ...], matrix: tuple[tuple[int, ...], ...],
           complete: bool) -> dict[str, Any]:
    cpus = [cpu for ids in found.cpus.values() for cpu in ids]
    known: dict[str, Any] = {
        "numa_node_count": len(named) if found.named or found.rows else None,
        "numa_nodes": {str(number): fold_ids(ids) for number, ids in sorted(found.cpus.items())} or None,
        "memory_mb": {str(number): size for number, size in sorted(found.sizes.items())} or None,
        "cpus": len(set(cpus)) if complete else None, "sockets": None, "threads_per_core": None,
        "numa_cpuless": [number for number, ids in sorted(found.cpus.items()) if not ids],
    }
    if found.allowed:
        known["allowed_cpus"] = fold_ids(found.allowed)
    if matrix:
        size = range(len(matrix))
        known["distances"] = {"nodes": [str(number) for number in named], "matrix": [list(row) for row in matrix]}
        known["symmetric"] = all(matrix[a][b] == matrix[b][a] for a in size for b in size)
        pairs = _pairs(named, matrix)
        nearest = min(pairs, default=None)
        for distance, which in pairs.items() if len(named) <= 16 else ():
            known[f"distance_pairs_{distance}" if distance == nearest else f"distance_{distance}"] = which
    return known


def _assumed(named: tuple[int, ...], matrix: tuple[tuple[int, ...], ...]) -> tuple[dict[str, Any], ...]:
    """Sockets, if the nearest nodes are those of one socket: groups in which all are equally near."""
    pairs = _pairs(named, matrix)
    if len(pairs) < 2:
        return ()
    near = min(pairs)
    group = {number: {number} for number in named}
    for a, b in pairs[near]:
        group[a].add(b)
        group[b].add(a)
    groups = {frozenset(members) for members in group.values()}
    if sum(map(len, groups)) != len(named):
        return ()
    return ({"sockets": len(groups), "if": f"nodes at distance {near} are in one socket"},)
