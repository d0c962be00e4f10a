"""How many nodes may be taken out of service: in one night, and in all. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from hpcadmin.site_sweep import SweepSite
from hpcadmin.sweep.ledger import History
from hpcadmin.text import plural


@dataclass(frozen=True)
class Budget:
    """What may be done, and why not. mass: so many are bad that something shared is: nothing is done at all."""

    mass: str = ""
    drains: str = ""
    comments: str = ""

    @property
    def text(self) -> str:
        """What is told of it; "" within the budget."""
        return f"nothing is done: {self.mass}" if self.mass else self.drains or self.comments


def limit(nodes: int, percent: float, all_nodes: int) -> int:
    """The smaller of both; a percentage allows one node at least where it is not 0."""
    share = int(all_nodes * Fraction(str(percent)) / 100)      # 0.29 * 100 is 28.999… in binary
    return min(nodes, max(1, share) if percent > 0 else 0)


def budget(policy: SweepSite, history: History, night: int, *, all_nodes: int, faulty: int, drains: int,
           comments: int, strange: Collection[str] = ()) -> Budget:
    """strange: drained with a reason like ours that the ledger does not know. faulty: nodes in service that the policy
    would have drained tonight, whether they may be touched or not; a limit that is passed stops all of it: which of
    too many are the right ones nobody knows."""
    nightly = limit(policy.night_nodes, policy.night_percent, all_nodes)
    total = limit(policy.total_nodes, policy.total_percent, all_nodes)
    done, standing = len(history.night_drains.get(night, ())), standing_drains(history, strange)
    commented = len(history.night_comments.get(night, ()))
    mass = own = notes = ""
    if faulty and faulty + done > nightly:
        mass = (f"{plural(faulty, 'node')} in service of {all_nodes} would be drained"
                f"{f', {done} were already tonight' if done else ''}; [sweep] allows {nightly} in a night: "
                "something that they share may be the cause")
    elif drains and standing + drains > total:
        own = (f"{plural(drains, 'node')} would be drained, {standing} of {all_nodes} are by us already; [sweep] "
               f"allows {total} in all")
    if comments and comments + commented > nightly:
        notes = f"{plural(comments, 'node')} would be commented; [sweep] allows {nightly} in a night"
    return Budget(mass, own, notes or own)


def standing_drains(history: History, strange: Collection[str] = ()) -> int:
    """Nodes that are drained by us, or may be."""
    pending = {entry.node for entry in history.pending.values() if entry.act == "drain"}
    return len(pending | set(history.ours) | set(strange))
