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


BARE = """ClusterName=c
SlurmctldHost=proof
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
NodeName=vm CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 Gres={}
PartitionName=main Nodes=ALL Default=YES
"""
WITH = "NodeName=vm Name=gpu Type=a File=/dev/nvidia{} Cores=0-3\n"
WITHOUT = "NodeName=vm Name=gpu Type=b File=/dev/nvidia{}\n"


@SUITES
@pytest.mark.parametrize(("gres", "lines", "shown"), [
    ("gpu:a:1,gpu:b:1", WITH.format(0) + WITHOUT.format(1), "gpu:a:1(S:0),gpu:b:1(S:0-1)"),
    ("gpu:b:1,gpu:a:1", WITHOUT.format(0) + WITH.format(1), "gpu:b:1,gpu:a:1(S:0)"),
], ids=["behind", "before"])
def test_a_gpu_without_cores_beside_others_is_near_all(suite: str, gres: str, lines: str, shown: str) -> None:
    """What (S:...) shows is another matter; so is the error line of slurmctld where it comes behind."""
    found = at_hand(suite)
    ask = "srun -Q -I{} -n1 -c8 --gres=gpu:{}:1 --gres-flags=enforce-binding echo ran"
    proof = prove(configure({"slurm.conf": BARE.format(gres), "gres.conf": lines}), "", slurm_root=found.root,
                  with_cgroups=False, jobs=lambda _: (ask.format(2, "a"), ask.format(20, "b")))
    answer = proof.proven[0][1]
    assert answer.node["Gres"] == shown
    assert ["ran" in said for said in answer.jobs] == [False, True], answer.jobs
    assert any("only some of the records" in f.what for f in proof.findings) is (gres[4] == "a")
