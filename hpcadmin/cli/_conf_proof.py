"""`conf check --with-slurmd`: what Slurm's own daemons make of the files, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hpcadmin.hosts import fold
from hpcadmin.text import plural, printable

if TYPE_CHECKING:
    from hpcadmin.conf.existing.parts import Configuration
    from hpcadmin.model import Inventory
    from hpcadmin.proof.prove import Proof


def prove(conf: Configuration, folder: str, inventory: Inventory | None, slurm_root: str) -> Proof:
    """Raises SlurmError (exit status 4) where this machine cannot ask Slurm."""
    from hpcadmin.proof.prove import prove as ask
    return ask(conf, folder, inventory, slurm_root=slurm_root)


def lines(proof: Proof) -> Iterator[str]:
    """What was proven, what was not, and what is not the same in the copy that the daemons got. Findings are apart."""
    slurm = proof.slurm
    where = f" in {slurm.root}" if slurm.root else ""
    yield printable(f"put before slurmctld and slurmd {slurm.text}{where}, without the hardware "
                    f"({plural(len(proof.proven), 'kind')} of nodes, {proof.seconds:.1f} s)")
    for kind, answer in proof.proven:
        source = "CPUs and devices of the inventory" if kind.node is not None else (
            "no inventory: CPUs and devices as the files say them")
        gres = answer.node.get("Gres", "")
        state = "slurmd ended" if answer.ended else answer.state or "unknown"
        yield printable(f"  {fold(kind.hosts)}: {state}{f' Gres={gres}' if gres not in ('', '(null)') else ''} "
                        f"(asked as {kind.name}; {source})")
    for left in proof.unproven:
        yield printable(f"  {fold(left.hosts)}: NOT PROVEN: {left.why}")
    for change in proof.changes:
        yield printable(f"  in the copy: {change}")


def plain(proof: Proof) -> dict[str, Any]:
    return {
        "slurm": proof.slurm.text, "root": proof.slurm.root, "seconds": round(proof.seconds, 2),
        "kinds": [{
            "nodes": fold(kind.hosts), "asked": kind.name,
            "hardware": "inventory" if kind.node is not None else "files",
            "state": answer.state, "gres": answer.node.get("Gres", ""), "reason": answer.node.get("Reason", ""),
            "slurmd_ended": answer.ended, "measured": next(iter(answer.measured.splitlines()), ""),
            "gres_seen": [line for line in answer.gres.splitlines() if "Gres Name=" in line],
        } for kind, answer in proof.proven],
        "unproven": [{"nodes": fold(left.hosts), "why": left.why} for left in proof.unproven],
        "changed_in_copy": [{"place": c.place, "what": c.what, "why": c.why} for c in proof.changes],
    }
