"""Shared, counted and cut GPUs, ranges of files, Cores on some GPUs: rendered, then before three real Slurms."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import conf_machines as c
import conf_models as m
import pytest
from slurm_roots import NAMES, slurm

from hpcadmin.conf.keys import show
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf_files import read_folder
from hpcadmin.model import Node
from hpcadmin.proof.kinds import Kind
from hpcadmin.proof.parts import NodeAnswer, Slurm
from hpcadmin.proof.prove import prove
from hpcadmin.site import NodeGroup

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
FOUR = c.TWO_OF_FOUR.cpu
# The first GPU is near one socket, the second near two, the third near another one.
PARTLY = replace(c.TWO_OF_FOUR, gpus=tuple(replace(gpu, numa=None, local_cpus=m.near(FOUR, *near)) for gpu, near in zip(
    m.gpus("NVIDIA L4", FOUR, [2, 0, 1]), [(2,), (0, 1), (1,)], strict=True)))
MINORS = {"gpu0/gi2/access": 21, "gpu0/gi2/ci0/access": 22, "gpu0/gi5/access": 48, "gpu0/gi5/ci0/access": 49,
          "gpu0/gi3/access": 30, "gpu0/gi3/ci0/access": 31}
GROUPS = (NodeGroup("s", "shard1", shards=4), NodeGroup("m", "mps1", mps=100),
          NodeGroup("g", "mig1", mig_minors=MINORS),
          NodeGroup("n", "nic1", gres={"nic": 4, "bandwidth:lustre": "4G"}))
CLUSTERS: Mapping[str, Mapping[str, Node]] = {
    "shards": {"shard1": c.L40S, "partly1": PARTLY, "cpx1": c.CPX},
    "mps": {"mps1": c.DIRECT4, "nic1": m.BIG_CPU},
    "mig": {"mig1": c.MIG},
}
# node -> what scontrol shows as Gres, a request, CUDA_VISIBLE_DEVICES/ROCR_VISIBLE_DEVICES of its job
WANTED = {
    "shard1": ("gpu:l40s:4(S:0-1),shard:l40s:16(S:0-1)", "shard:1", "0/"),
    "mps1": ("gpu:a100:4(S:0-1),mps:a100:400(S:0-1)", "mps:50", "0/"),
    "nic1": ("bandwidth:lustre:4G,nic:4", "nic:2,bandwidth:lustre:1G", "/"),
    "partly1": ("gpu:l4:3(S:0-3)", "gpu:3", "0,1,2/"),
    "cpx1": ("gpu:mi300x_cpx:16(S:0-1)", "gpu:16", "/" + ",".join(map(str, range(16)))),
    "mig1": ("gpu:a100_3g.20gb:1(S:0),gpu:a100_2g.10gb:2(S:0)", "gpu:a100_2g.10gb:2", "1,2/"),
}
# What simulated hardware cannot do.
_LIGHT = re.compile(r"(?m)^(?:ProctrackType|TaskPlugin|PrologFlags|JobAcctGatherType)=.*\n")


def job(kind: Kind) -> tuple[str, ...]:
    return (f"p=$(sinfo -h -N -n {kind.name} -o %R | head -n 1); srun -Q -p $p -w {kind.name} -n1 --mem=1 "
            f"--gres={WANTED[kind.name][1]} sh -c 'echo $CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES'",)


@lru_cache(maxsize=8)
def answers(cluster: str, suite: str) -> Mapping[str, NodeAnswer] | str:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        return f"{NAMES[suite]}: {found.why}"
    inventory = m.inventory(*(([name], node) for name, node in CLUSTERS[cluster].items()))
    groups = tuple(group for group in GROUPS if group.hosts in CLUSTERS[cluster])
    site = replace(m.site(gres_ranges=True), nodes=groups)
    result = render(inventory, site, RenderOptions(slurm_version=show(found.version)))
    assert result.problems == ()
    with TemporaryDirectory() as folder:
        for name, text in result.files.items():
            light = f"{_LIGHT.sub('', text)}ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
            Path(folder, name).write_text(light if name == "slurm.conf" else text)
        proof = prove(read_folder(Path(folder)), folder, inventory, slurm_root=found.root, jobs=job, with_cgroups=False)
    return {kind.name: answer for kind, answer in proof.proven}


@pytest.mark.parametrize("suite", tuple(NAMES), ids=[s or "own" for s in NAMES])
@pytest.mark.parametrize(("cluster", "name"), [(k, name) for k, nodes in CLUSTERS.items() for name in nodes],
                         ids=str)
def test_slurm_takes_it_as_it_is_meant(cluster: str, name: str, suite: str) -> None:
    found = answers(cluster, suite)
    if isinstance(found, str):
        pytest.skip(found)
    answer = found[name]
    gres, _, devices = WANTED[name]
    assert answer.state == "IDLE", answer.node.get("Reason")
    assert answer.node["Gres"] == gres
    assert [said.strip() for said in answer.jobs] == [devices]
    errors = [line for line in (*answer.log, *answer.controller) if "error: " in line and "gres" in line.casefold()]
    assert errors == []
