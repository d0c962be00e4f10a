"""Nodes that are busy while a run looks at its nodes, and of which the accepted inventory tells what they have.

The others are tested without waiting for them: their tools are taken to be what they were, or what they are on nodes
like them, and where that is wrong their tests say so. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hpcadmin.hosts import fold
from hpcadmin.inventory import merge
from hpcadmin.model import Inventory
from hpcadmin.run_look import Seen, Wanted, unknown
from hpcadmin.rundata import ToolFound
from hpcadmin.tools import Ask, by_node, fold_found, told_before


def late_nodes(names: Sequence[str], busy: Collection[str], accepted: Inventory | None,
               want: Wanted) -> tuple[str, ...]:
    """The busy nodes that can be planned without a look; none where nobody is free to be looked at."""
    if len(names) == len(busy):
        return ()
    return tuple(n for n in names if n in busy and not unknown([n], accepted, want))


def with_late(seen: Seen, late: Sequence[str], asks: Sequence[Ask], known: Sequence[ToolFound],
              accepted: Inventory) -> Seen:
    """What was seen, and what is taken to be on the others."""
    inventory = seen.inventory
    if inventory is not None:
        wanted = set(late)
        inventory = merge(replace(accepted, nodes=tuple(n for n in accepted.nodes if n.name in wanted)), inventory)
    return replace(seen, inventory=inventory,
                   tools=fold_found([*seen.tools, *_tools(seen.tools, late, asks, known, accepted)]))


def _tools(found: Sequence[ToolFound], late: Sequence[str], asks: Sequence[Ask], known: Sequence[ToolFound],
           accepted: Inventory) -> Iterable[ToolFound]:
    now, before = by_node(found), by_node(told_before(asks, late, known))
    for node in late:
        alike = [n for group in accepted.groups if node in group.nodes for n in group.nodes if n in now]
        like = next(iter([*alike, *now]), "")
        for ask in asks:
            told = before.get(node, {}).get(ask.tool)
            one = told if told is not None and not told.problem else now.get(like, {}).get(ask.tool) or told
            if one is not None:
                yield replace(one, nodes=(node,))


def late_note(late: Sequence[str]) -> str:
    return (f"{fold(late)} {'was' if len(late) == 1 else 'were'} busy and not looked at: hardware as accepted, tools "
            "as at the last look or on nodes like them")
