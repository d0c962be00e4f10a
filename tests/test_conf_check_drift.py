"""Files against the inventory: the value of the files, what the node has, and the line that would be right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conf_models import A100P, H100, NPS4, inventory, names

from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.rules import drift
from hpcadmin.conf.existing.read import configure
from hpcadmin.model import Dimm, Failed, Inventory, MigDevice, Node, OddOneOut

HEAD = "ClusterName=x\nGresTypes=gpu\n"
LINE = ("NodeName=node[01-08] NodeAddr=10.0.0.[1-8] CPUs={cpus} Sockets={s} CoresPerSocket={c} ThreadsPerCore={t} "
        "RealMemory={memory} Gres={gres} Features=h100,ib400\n")
GRES = "".join(
    f"NodeName=node[01-08] AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia{i} Cores={'0-55' if i < 4 else '56-111'} "
    f"Links={','.join('-1' if j == i else '18' for j in range(8))} Flags=nvidia_gpu_env\n" for i in range(8))
H100S = inventory((names("node", 8), H100))


def slurm(s: int = 2, c: int = 56, *, memory: int = 2043214, gres: str = "gpu:h100:8", more: str = "") -> str:
    return HEAD + more + LINE.format(s=s, c=c, t=2, cpus=s * c * 2, memory=memory, gres=gres)


def found(text: str, whole: Inventory = H100S, gres: str = GRES, version: tuple[int, int] = (24, 11)) -> list[Finding]:
    situation = Situation(configure({"slurm.conf": text, "gres.conf": gres}), (version,), whole)
    return [finding for rule in drift.RULES for finding in rule(situation)]


def change(name: str, whole: Inventory = H100S, **values: object) -> Inventory:
    return replace(whole, nodes=tuple(replace(n, **values) if n.name == name else n for n in whole.nodes))


def one(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [(f.severity, f.what) for f in findings]
    return findings[0]


def test_what_is_right_has_no_finding() -> None:
    assert found(slurm()) == []


def test_memory_above_what_a_node_has() -> None:
    said = one(found(slurm(memory=2063850), change("node07", memory_mib=2063840)))
    assert (said.severity, said.what, said.nodes) == (
        Severity.INVALID, "RealMemory=2063850 but node07 has 2063840", ("node07",))
    assert str(said.place) == "slurm.conf:3"
    assert "RealMemory=2043201 " in one_line(said)


def one_line(finding: Finding) -> str:
    assert len(finding.right) == 1
    return finding.right[0] + " "


def test_the_least_of_several() -> None:
    whole = change("node03", change("node07", memory_mib=2063840), memory_mib=2063830)
    said = one(found(slurm(memory=2063850), whole))
    assert said.what == "RealMemory=2063850 but node03 has 2063830, the least of 2 nodes with less"


@pytest.mark.parametrize(("more", "severity"), [
    ("SlurmdParameters=config_overrides\n", Severity.WRONG),
    ("SlurmctldParameters=node_reg_mem_percent=95\n", Severity.WRONG),
    ("SlurmctldParameters=node_reg_mem_percent=100\n", Severity.INVALID),
])
def test_what_slurm_lets_pass(more: str, severity: Severity) -> None:
    assert one(found(slurm(memory=2063850, more=more), change("node07", memory_mib=2063840))).severity is severity


def test_a_lost_memory_module_is_named_and_gets_its_own_line() -> None:
    dimms = tuple(Dimm(f"A{i}", 65536) for i in range(4))
    whole = replace(H100S, nodes=tuple(replace(n, dimms=dimms) for n in H100S.nodes))
    said = one(found(slurm(), change("node07", whole, memory_mib=1500000, dimms=dimms[:3])))
    assert "node07 lost A3 (65536 MiB each)" in said.means
    assert [line.split(" CPUs")[0] for line in said.right] == [
        "NodeName=node[01-06,08] NodeAddr=10.0.0.[1-6,8]", "NodeName=node07 NodeAddr=10.0.0.7"]
    odd = replace(change("node07", memory_mib=1500000), odd=(
        OddOneOut("node07", "node07: 31 memory modules, the group has 32; missing: DIMM_B2"),))
    assert "missing: DIMM_B2" in one(found(slurm(), odd)).means


def test_memory_that_no_job_gets() -> None:
    said = one(found(slurm(memory=1000000)))
    assert (said.severity, said.what) == (Severity.DRIFT, "RealMemory=1000000 but nodes have 2063853")
    assert one(found(slurm(memory=2063850))).severity is Severity.NOTE


@pytest.mark.parametrize(("text", "severity", "part"), [
    (slurm(4, 28), Severity.WRONG, "Sockets=2 CoresPerSocket=56 ThreadsPerCore=2"),
    (slurm(2, 112), Severity.INVALID, "CPUs=224 Sockets=2 CoresPerSocket=56"),
    (slurm(2, 28), Severity.DRIFT, "Sockets=2 CoresPerSocket=56"),
    (slurm(2, 112, more="SlurmdParameters=config_overrides\n"), Severity.WRONG, "CoresPerSocket=56"),
])
def test_sockets_and_cores(text: str, severity: Severity, part: str) -> None:
    said = one(found(text))
    assert said.severity is severity
    assert part in one_line(said)


def test_virtual_sockets_need_their_parameter() -> None:
    line = "NodeName=n1 CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1000000 Gres=gpu:a100:8\n"
    whole = inventory((["n1"], NPS4))
    said = one(found(HEAD + line, whole, ""))
    assert (said.severity, said.right) == (Severity.WRONG, ("SlurmdParameters=numa_node_as_socket",))
    assert found(HEAD + "SlurmdParameters=numa_node_as_socket\n" + line, whole, "") == []
    assert found(HEAD + line.replace("Gres", "Parameters=numa_node_as_socket Gres"), whole, "", (25, 11)) == []


def test_a_gpu_that_is_gone() -> None:
    said = one(found(slurm(), change("node03", gpus=H100.gpus[:5] + H100.gpus[6:])))
    assert (said.severity, said.nodes, str(said.place)) == (Severity.INVALID, ("node03",), "gres.conf:6")
    assert "node03 has 7 GPUs: /dev/nvidia5 (gres.conf:6) is gone" in said.what
    assert "no GPU at 0000:6b:00.0 (GPU 5 on the other nodes)" in said.what
    assert "(7 < 8)" in said.means
    assert one_line(said).startswith("NodeName=node03 NodeAddr=10.0.0.3 ")
    assert " Gres=gpu:h100:7 " in one_line(said)


def test_a_gpu_without_its_device_file() -> None:
    gpus = tuple(replace(g, device_file="") if g.index == 5 else g for g in H100.gpus)
    said = one(found(slurm(), change("node03", gpus=gpus)))
    assert said.severity is Severity.FATAL
    assert said.what.startswith("/dev/nvidia5 is missing on node03, where it is GPU 5 (0000:6b:00.0")


def test_gpus_that_no_job_gets_and_nodes_that_nobody_knows_the_gpus_of() -> None:
    said = one(found(slurm(gres="gpu:h100:4")))
    assert (said.severity, said.what) == (Severity.DRIFT, "Gres=gpu:h100:4 but node[01-08] have 8 GPUs")
    blind = replace(H100S, nodes=tuple(replace(n, gpus=(), unknown=("gpus",)) for n in H100S.nodes))
    assert found(slurm(), blind) == []


def test_another_model() -> None:
    said = one(found(slurm(gres="gpu:a100:8"), gres=GRES.replace("h100", "a100")))
    assert (said.severity, said.what) == (Severity.WRONG, "type a100 but node[01-08] have NVIDIA H100 80GB HBM3")
    for kind in ("h100", "nvidia_h100_80gb_hbm3", "big", "hopper"):
        assert found(slurm(gres=f"gpu:{kind}:8"), gres=GRES.replace("h100", kind)) == [], kind


def mig(count: int) -> tuple[object, ...]:
    own = tuple(MigDevice(i, "3g.40gb") for i in range(count))
    return tuple(replace(g, mig="Enabled", mig_devices=own) if g.index == 0 else replace(g, mig="Disabled")
                 for g in H100.gpus)


@pytest.mark.parametrize(("gres", "devices", "what"), [
    ("gpu:h100:8", 2, "wants 8 whole GPUs, GPU 0 is in MIG mode"),
    ("gpu:h100:7,gpu:h100_3g.40gb:2", 2, ""),
    ("gpu:h100:7,gpu:h100_3g.40gb:2", 1, "2 of 3g.40gb wanted, 1 there"),
    ("gpu:h100:7,gpu:h100_3g.40gb:2", 0, "without any MIG device"),
])
def test_mig(gres: str, devices: int, what: str) -> None:
    whole = replace(H100S, nodes=tuple(replace(n, gpus=mig(devices)) for n in H100S.nodes))
    said = found(slurm(gres=gres), whole, "NodeName=node[01-08] AutoDetect=nvml\n")
    assert [what in f.what for f in said if "MIG" in f.what or "whole" in f.what] == ([True] if what else [])
    assert not [f for f in said if not what and f.severity is Severity.INVALID]


def test_mig_types_without_mig() -> None:
    off = replace(H100S, nodes=tuple(replace(n, gpus=tuple(replace(g, mig="Disabled") for g in n.gpus))
                                     for n in H100S.nodes))
    said = one(found(slurm(gres="gpu:h100_3g.40gb:8"), off, "AutoDetect=nvml\n"))
    assert "no GPU is in MIG mode" in said.what


def test_links() -> None:
    said = one(found(slurm(), gres=GRES.replace("Links=-1,18,18", "Links=-1,0,18")))
    assert (said.severity, str(said.place)) == (Severity.DRIFT, "gres.conf:1")
    assert "Links=-1,18,18,18,18,18,18,18" in one_line(said)
    assert found(slurm(), gres=GRES.replace(",18", ",1").replace("=18", "=1")) == []


def test_features() -> None:
    whole = inventory((names("node", 8), H100), (["old01"], A100P))
    text = slurm().replace("ib400", "ib200,a100,fast,roce200") + (
        "NodeName=old01 CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=510000 Gres=gpu:a100:4 "
        "Features=a100\n")
    said = found(text, whole)
    assert [f.what for f in said] == [
        "feature ib200 of node[01-08]: its ports run at 400 Gb/s",
        "feature a100 of node[01-08]: its GPUs are NVIDIA H100 80GB HBM3"]


def test_addresses_and_nodes_that_only_one_side_has() -> None:
    whole = replace(change("node02", addresses=("10.0.0.77",)), failed=(Failed("gone", "no route to host"),))
    extra = inventory((["spare"], H100))
    said = found(slurm() + "NodeName=gone RealMemory=1\nNodeName=never State=FUTURE\n",
                 replace(whole, nodes=(*whole.nodes, *extra.nodes)))
    assert [(f.severity, f.what) for f in said] == [
        (Severity.NOTE, "gone is not in the inventory: no route to host"),
        (Severity.DRIFT, "spare is in the inventory and in no NodeName= line"),
        (Severity.DRIFT, "NodeAddr=10.0.0.2 of node02 but its addresses are 10.0.0.77")]


def test_node_hostname_finds_the_inventorys_node() -> None:
    text = HEAD + LINE.format(s=2, c=56, t=2, cpus=224, memory=3000000, gres="gpu:h100:8").replace(
        "NodeName=node[01-08]", "NodeName=n[1-8] NodeHostname=node[01-08]")
    said = [f for f in found(text, gres="") if f.severity is Severity.INVALID]
    assert one(said).nodes == tuple(f"n{i}" for i in range(1, 9))


@pytest.mark.deep
def test_ten_thousand_nodes_are_looked_at_by_line() -> None:
    import time
    node = replace(H100, memory_mib=2063853)
    nodes = tuple(replace(node, name=f"n{i:05d}", hostname=f"n{i:05d}") for i in range(10_000))
    lines = "".join(f"NodeName=n[{250 * i:05d}-{250 * i + 249:05d}] Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 "
                    "RealMemory=2043214 Gres=gpu:h100:8 Features=h100,ib400\n" for i in range(40))
    gres = GRES.replace("node[01-08]", "n[00000-09999]")
    begin = time.process_time()
    assert found(HEAD + lines, Inventory(nodes), gres) == []
    assert time.process_time() - begin < 6.0


def test_an_unknown_node_is_no_fault() -> None:
    empty = inventory((names("node", 8), Node("")))
    assert found(slurm(), replace(empty, nodes=tuple(replace(n, unknown=("gpus",)) for n in empty.nodes))) == []
