"""Rendered files of every kind of node before three real Slurms: registered, the GPUs near the right sockets."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import conf_models as m
import pytest
from digest_models import CLUSTERS
from slurm_roots import NAMES, slurm

from hpcadmin.conf.check.finding import Finding, Severity
from hpcadmin.conf.keys import show
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf_files import read_folder
from hpcadmin.proof.kinds import Kind
from hpcadmin.proof.parts import NodeAnswer, Slurm
from hpcadmin.proof.prove import Proof, prove

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
SUITES = tuple(NAMES)
KINDS = [(cluster, name) for cluster, kinds in CLUSTERS.items() for name in kinds]


def jobs(kind: Kind) -> tuple[str, ...]:
    """What a job with all GPUs, and one with the last of each type alone, sees."""
    want = kind.line.get("gres") or ""
    if not want:
        return ()
    return (f"p=$(sinfo -h -N -n {kind.name} -o %R | head -n 1); "
            f"srun -Q -p $p -w {kind.name} -n1 --mem=1 --gres={want} "
            "sh -c 'echo $CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES'",)


@lru_cache(maxsize=16)
def proof(cluster: str, suite: str) -> Proof | str:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        return f"{NAMES[suite]}: {found.why}"
    inventory = m.inventory(*(([name], kind.node) for name, kind in CLUSTERS[cluster].items()))
    # The simulated CPUs cannot be bound to.
    site = m.site(options={"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"})
    result = render(inventory, site, RenderOptions(slurm_version=show(found.version)))
    assert result.problems == ()
    with TemporaryDirectory() as folder:
        for name, text in result.files.items():
            Path(folder, name).write_text(text)
        return prove(read_folder(Path(folder)), folder, inventory, slurm_root=found.root, jobs=jobs, with_cgroups=False)


def of(cluster: str, name: str, suite: str) -> tuple[NodeAnswer, list[Finding]]:
    found = proof(cluster, suite)
    if isinstance(found, str):
        pytest.skip(found)
    answer = next(a for k, a in found.proven if k.name == name)
    return answer, [f for f in found.findings if not f.nodes or name in f.nodes]


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
@pytest.mark.parametrize(("cluster", "name"), KINDS, ids=[name for _, name in KINDS])
def test_the_node_registers_as_it_is(cluster: str, name: str, suite: str) -> None:
    answer, findings = of(cluster, name, suite)
    wanted = CLUSTERS[cluster][name]
    assert answer.state == "IDLE", answer.node.get("Reason")
    assert [f for f in findings if f.severity is not Severity.NOTE] == []
    assert answer.node["Gres"] == (wanted.gres or "(null)")
    assert int(answer.slurmd["actual sockets"]) == wanted.sockets == int(answer.node["Sockets"])
    assert int(answer.slurmd["actual cpus"]) == wanted.node.cpu.cpus == int(answer.node["CPUTot"])


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
@pytest.mark.parametrize(("cluster", "name"), [(c, n) for c, n in KINDS if CLUSTERS[c][n].order],
                         ids=[n for c, n in KINDS if CLUSTERS[c][n].order])
def test_a_job_counts_gpus_in_pci_bus_order(cluster: str, name: str, suite: str) -> None:
    answer, _ = of(cluster, name, suite)
    wanted = CLUSTERS[cluster][name]
    assert [said.strip() for said in answer.jobs] == [f"{wanted.order}/"]
    files = [line.split(" File=")[1].split()[0] for line in answer.gres.splitlines() if " File=" in line]
    assert files == [gpu.device_file for gpu in wanted.node.gpus]


@pytest.mark.parametrize("suite", SUITES, ids=[s or "own" for s in SUITES])
@pytest.mark.parametrize(("cluster", "name"), [(c, n) for c, n in KINDS if CLUSTERS[c][n].links],
                         ids=[n for c, n in KINDS if CLUSTERS[c][n].links])
def test_slurmd_reads_the_links(cluster: str, name: str, suite: str) -> None:
    answer, _ = of(cluster, name, suite)
    wanted = CLUSTERS[cluster][name].links
    found = [line.split(" Links=")[1].split()[0] for line in answer.gres.splitlines() if " Links=" in line]
    assert tuple(found[:len(wanted)]) == wanted
