"""The oracle's matrix before the real slurmctld and slurmd of three versions."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import pytest
from oracle_cases import CASES, CONTROLLER, NODE, V22, V24, V26, Case, Expected, conf, severity
from oracle_machines import inventory
from oracle_more import MORE
from slurm_roots import NAMES, slurm

from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.rules.drift import memory
from hpcadmin.conf.existing.read import configure
from hpcadmin.proof.cell import ask
from hpcadmin.proof.logs import complaints
from hpcadmin.proof.parts import Answer, Cluster, Device, Hardware, NodeRun, Slurm
from hpcadmin.proof.prove import Proof, prove

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
SUITES = tuple(NAMES)
FOLDERS = (("/var/spool/slurmctld", ""), ("/var/spool/slurmd", ""))
ALL = (*CASES, *MORE)
OTHERS = tuple(f"n{n}" for n in range(1, 6))
POOL = ThreadPoolExecutor(4)             # they wait more than they work


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


def cluster(case: Case, version: tuple[int, int]) -> Cluster:
    files = conf(case)
    # Nothing here uses control groups. Before 23.11 there is no word for that; the plug-in for version 1 does nothing.
    files.setdefault("cgroup.conf", f"CgroupPlugin={'disabled' if version >= (23, 11) else 'cgroup/v1'}\n")
    devices = tuple(Device(f"/dev/nvidia{n}", 195, n) for n in range(case.gpus))
    run = NodeRun(NODE, Hardware(case.cpus, devices=devices), seconds=90.0, wait_for_files=True)
    return Cluster(files, (run,), controller=CONTROLLER, hosts=OTHERS, folders=FOLDERS, with_gres=False)


@lru_cache(maxsize=1)
def answers() -> dict[tuple[str, str], Future[Answer]]:
    """Of all cases on all that is at hand, asked side by side. Those in which slurmd waits for a device file for 20 s
    come first and have threads of their own: a test waits for its own answer alone."""
    slurms = {suite: found for suite in SUITES if isinstance(found := slurm(suite), Slurm)}
    waiting = ThreadPoolExecutor(len(slurms) or 1)
    found = {(suite, case.name): (waiting if case.name == "V" else POOL).submit(ask, own, cluster(case, own.version))
             for case in sorted(ALL, key=lambda c: c.name != "V") for suite, own in slurms.items()}
    proofs()                             # while those wait
    return found


def outcome(answer: Answer) -> Expected:
    """What was answered, in the words of the table."""
    assert answer.problem == "", answer.problem
    if not answer.started:
        return Expected("CTLD", says=answer.log)
    node = answer.nodes[0]
    state = "SLURMD" if node.ended else "INVAL" if "INVAL" in node.state else node.state
    reason = node.node.get("Reason", "")
    gres = node.node.get("Gres", "")
    return Expected(state, "" if gres == "(null)" else gres, (*node.log, *answer.log, reason), reason,
                    silent=not complaints(answer.log) and not complaints(node.log))


def expected(case: Case, version: tuple[int, int]) -> tuple[Expected, str]:
    """The recorded outcome, and the version it was recorded on where that is another one."""
    if version in case.expected:
        return case.expected[version], ""
    older = max((v for v in case.expected if v < version), default=min(case.expected))
    return case.expected[older], f"{older[0]}.{older[1]:02}"


def differences(found: Expected, wanted: Expected) -> list[str]:
    wrong = [f"State {found.state}, not {wanted.state}"] if found.state != wanted.state else []
    if wanted.gres and found.gres != wanted.gres:
        wrong.append(f"Gres {found.gres}, not {wanted.gres}")
    everything = "\n".join(found.says)
    wrong += [f"nobody says {text!r}" for text in wanted.says if text not in everything]
    if wanted.reason is not None and found.reason != wanted.reason:
        wrong.append(f"Reason {found.reason!r}, not {wanted.reason!r}")
    if wanted.silent and not found.silent:
        wrong.append("there are error lines")
    return wrong


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
@pytest.mark.parametrize("case", ALL, ids=[c.name for c in ALL])
def test_what_slurm_makes_of_it(case: Case, suite: str) -> None:
    found = at_hand(suite)
    wanted, recorded = expected(case, found.version)
    got = outcome(answers()[suite, case.name].result())
    wrong = differences(got, wanted)
    if wrong and recorded:
        pytest.xfail(f"Slurm {found.text} differs from the recorded {recorded}: {'; '.join(wrong)}")
    assert wrong == [], "\n".join([*wrong, *complaints(got.says), got.reason or ""])


@lru_cache(maxsize=1)
def proofs() -> dict[tuple[str, str], Future[Proof]]:
    """Of all cases as `conf check --with-slurmd` asks."""
    slurms = {suite: found for suite in SUITES if isinstance(found := slurm(suite), Slurm)}
    return {(suite, case.name): POOL.submit(prove, configure(conf(case)), "", inventory(case), slurm_root=own.root,
                                            with_cgroups=False) for case in CASES for suite, own in slurms.items()}


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_the_proof_finds_it(case: Case, suite: str) -> None:
    """Also what Slurm takes in silence: sockets, threads and CPUs that are not so."""
    found = at_hand(suite)
    if found.version not in case.expected:
        pytest.skip(f"Slurm {found.text} is not recorded")
    proof = proofs()[suite, case.name].result()
    assert proof.unproven == ()
    told = [(f.severity.value, str(f.place), f.what) for f in (*proof.findings, *_memory(case))
            if f.severity is not Severity.NOTE]
    assert (told[0][0] if told else "") == severity(case, found.version), told
    assert [item for item in told if item[1] == "None"] == []


def _memory(case: Case) -> list[Finding]:
    """slurmd has this machine's memory; conf check itself compares it with the inventory."""
    return list(memory(Situation(configure(conf(case)), inventory=inventory(case))))


def test_three_versions_are_recorded_for_every_case() -> None:
    assert all({V22, V24, V26} <= set(case.expected) for case in ALL)
