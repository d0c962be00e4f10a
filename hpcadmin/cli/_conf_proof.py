"""`conf check --with-slurmd`: what Slurm's own daemons make of the files, as text and as JSON."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcadmin.errors import SlurmError
from hpcadmin.hosts import fold
from hpcadmin.text import plural, printable

if TYPE_CHECKING:
    from hpcadmin.cli._conf_check_text import Checked
    from hpcadmin.conf.check.finding import Finding, Situation
    from hpcadmin.proof.prove import Proof


@dataclass
class Prover:
    """Asks once, when the files have been read. why_not: the one line where they could not be proven."""

    root: str
    proof: Proof | None = None
    why_not: str = "no files were given, only texts"

    def findings(self, situation: Situation) -> tuple[Finding, ...]:
        from hpcadmin.proof.prove import prove
        own = situation.conf.file("slurm.conf")
        if own is None:
            self.why_not = "there is no slurm.conf"
            return ()
        try:
            self.proof = prove(situation.conf, posixpath.dirname(own.path), situation.inventory, slurm_root=self.root)
        except SlurmError as exc:
            self.why_not = str(exc)
            return ()
        return self.proof.findings

    def incomplete(self) -> tuple[str, ...]:
        """What was not proven; it is not good then."""
        if self.proof is None:
            return (f"not proven with slurmd: {self.why_not}",)
        return tuple(f"not proven with slurmd: {fold(left.hosts)}: {left.why}" for left in self.proof.unproven)

    def notes(self, done: Checked) -> tuple[str, ...]:
        from hpcadmin.conf.keys import show
        if self.proof is None or self.proof.slurm.version in done.versions:
            return ()
        wanted = ", ".join(show(v) for v in done.versions)
        other = "--slurm-version judges for it" if self.root else "--slurm-root names another Slurm"
        return (f"proven with Slurm {self.proof.slurm.text}; judged for {wanted} ({other})",)

    def text(self) -> str:
        return "" if self.proof is None else "".join(f"{line}\n" for line in lines(self.proof))

    def plain(self) -> dict[str, Any]:
        return {"proven": False, "why": self.why_not} if self.proof is None else plain(self.proof)


def lines(proof: Proof) -> Iterator[str]:
    """What was proven, what was not, and what is not the same in the copy that the daemons got. Findings are apart."""
    slurm = proof.slurm
    where = f" in {slurm.root}" if slurm.root else ""
    yield printable(f"put before slurmctld and slurmd {slurm.text}{where}, without the hardware "
                    f"({plural(len(proof.proven), 'kind')} of nodes, {proof.seconds:.1f} s)")
    for kind, answer in proof.proven:
        source = "no inventory: CPUs and devices as the files say them" if kind.node is None else (
            "CPUs by hwloc's XML of the node, devices of the inventory" if kind.hardware.captured
            else "CPUs and devices of the inventory")
        if kind.hardware.detected or kind.hardware.driver:
            source += "; GPUs as AutoDetect would find them"
        gres = answer.node.get("Gres", "")
        state = "slurmd ended" if answer.ended else answer.state or "unknown"
        yield printable(f"  {fold(kind.hosts)}: {state}{f' Gres={gres}' if gres not in ('', '(null)') else ''} "
                        f"(asked as {kind.name}; {source})")
    for change in proof.changes:
        yield printable(f"  in the copy: {change}")


def plain(proof: Proof) -> dict[str, Any]:
    return {
        "proven": not proof.unproven, "slurm": proof.slurm.text, "root": proof.slurm.root,
        "seconds": round(proof.seconds, 2),
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
