"""All that discover found, as JSON: laid out for people, or of many nodes one line each and never whole in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcadmin import records
from hpcadmin.cli import _documents_text

if TYPE_CHECKING:
    from hpcadmin.model import Inventory
    from hpcadmin.reading import Statement

FEW = 64


def pieces(found: Inventory, order: Any, statements: Iterable[Statement]) -> Iterator[str]:
    """The text in pieces; the last one has its line end."""
    if len(found.nodes) + len(found.failed) <= FEW:
        yield records.dumps({**records.to_plain(found), "order": order,
                             "documents": [_documents_text.plain(s) for s in statements]}, indent=1) + "\n"
        return
    writer = records.Writer(sparse=False)
    rest = {**records.to_plain(replace(found, nodes=())), "order": order}
    rest.pop("nodes")
    yield "{\n"
    for name, value in rest.items():
        yield f" {records.dumps(name)}: {records.dumps(value)},\n"
    yield from _list("nodes", map(writer.dumps, found.nodes), ",\n")
    yield from _list("documents", (records.dumps(_documents_text.plain(s)) for s in statements), "\n}\n")


def _list(name: str, items: Iterable[str], behind: str) -> Iterator[str]:
    separator = f" {records.dumps(name)}: [\n  "
    for item in items:
        yield separator + item
        separator = ",\n  "
    yield ("\n ]" if separator[0] == "," else f'{separator.rstrip()}]') + behind
