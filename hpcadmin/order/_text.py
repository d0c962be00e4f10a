"""A comparison in words, for the overview."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin import hosts
from hpcadmin.order._records import Comparison
from hpcadmin.text import plural, printable

NOT_COMPARED = "not compared with the order"
_MISSING_FIRST = {"missing": 0, "different": 1, "extra": 2}


def text(found: Comparison | None) -> str:
    """A line for each difference, nodes that share it folded; what could not be compared comes last."""
    if found is None:
        return f"Order: {NOT_COMPARED}"
    differences = sorted(found.differences, key=lambda item: _MISSING_FIRST.get(item.kind, 3))
    lines = [_head(found)]
    lines += _folded((item.node, item.what) for item in differences)
    lines += _folded((item.node, item.what) for item in found.not_compared)
    return "\n".join([lines[0], *(f"  {printable(line, limit=500)}" for line in lines[1:])])


def _head(found: Comparison) -> str:
    title = printable(f"{found.title} ({found.source})" if found.title else found.source, limit=200)
    if found.ok:
        return f"Order: as ordered in {plural(found.agreed, 'item')} of {plural(found.nodes, 'node')}: {title}"
    said = [plural(len(found.differences), "difference")] if found.differences else []
    if found.not_compared:
        said.append(f"{plural(len(found.not_compared), 'item')} not compared")
    return f"Order: {', '.join(said) or 'nothing to compare'}, {found.agreed} as ordered: {title}"


def _folded(pairs: Iterable[tuple[str, str]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for node, what in pairs:
        found.setdefault(what, []).append(node)
    return [f"{hosts.fold(dict.fromkeys(nodes))}: {what}" if nodes[0] else what for what, nodes in found.items()]
