"""conf check --with-slurmd on three real Slurms: nothing is said of sound files, and mistakes are found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import proof_cases as cases
import pytest
from slurm_roots import NAMES, slurm

from hpcadmin.conf.check.finding import Severity
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import show
from hpcadmin.model import Inventory
from hpcadmin.proof.parts import Slurm
from hpcadmin.proof.prove import Proof, prove

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
PARALLEL = 4                             # they wait more than they work
SUITES = pytest.mark.parametrize("suite", list(NAMES), ids=[s or "own" for s in NAMES])
SILENT = {("26.05", "power saving without a program")}
Files = dict[str, str]


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


def proven(found: Slurm, asked: Iterable[tuple[str, Inventory, Files]]) -> dict[str, Proof]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        made = [(name, pool.submit(prove, configure(files), "", inventory, slurm_root=found.root))
                for name, inventory, files in asked]
        return {name: future.result() for name, future in made}


def above(proof: Proof) -> list[tuple[str, str, str]]:
    return [(f.severity.value, str(f.place), f.what) for f in proof.findings if f.severity is not Severity.NOTE]


@SUITES
def test_nothing_is_said_of_sound_files(suite: str) -> None:
    found = at_hand(suite)
    sound = cases.sound(show(found.version))
    proofs = proven(found, ((name, *own) for name, own in sound.items()))
    assert {name: above(proof) for name, proof in proofs.items() if above(proof)} == {}
    assert {name: proof.unproven for name, proof in proofs.items() if proof.unproven} == {}


@SUITES
def test_mistakes_are_found(suite: str) -> None:
    found = at_hand(suite)
    version = show(found.version)
    proofs = proven(found, ((what, cases.PAIR, cases.mistaken(version, *more)) for what, *more in cases.MISTAKES))
    assert len(proofs) >= 25
    missed = {what for what, proof in proofs.items() if not above(proof)}
    assert missed == {what for own, what in SILENT if own == version}
