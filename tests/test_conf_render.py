"""What conf render refuses, notes and chooses; every refusal names the node or the site's key, and all come at once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import conf_models as m
import pytest
from looped import looped

from hpcadmin import records
from hpcadmin.cli import run
from hpcadmin.conf.parts import Kind, Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Failed, Gpu, Inventory, Nic, Node, NumaNode, OddOneOut, PciDevice
from hpcadmin.site import NodeGroup, Site, SlurmSite

FOUR = m.inventory((m.names("node", 4), m.H100))
BUS = tuple(PciDevice(g.pci, "030200", "10de", "2330") for g in m.H100.gpus)


def go(inventory: Inventory = FOUR, site: Site = m.SITE, **options: Any) -> Rendering:
    return render(inventory, site, RenderOptions(**options))


def with_node(inventory: Inventory, name: str, **changes: Any) -> Inventory:
    return replace(inventory, nodes=tuple(replace(n, **changes) if n.name == name else n for n in inventory.nodes))


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.kind.value} {p.node}: {p.what} ({p.hint}) {p.key}" for p in result.problems)


def line(result: Rendering, start: str, file: str = "slurm.conf") -> str:
    assert result.problems == ()
    return next(text for text in result.files[file].splitlines() if text.startswith(start))


def fewer_gpus(node: Node, lost: int) -> Node:
    return replace(node, gpus=tuple(g for g in node.gpus if g.index != lost))


# Faults are findings, never configuration.

def test_a_node_that_lost_a_gpu_is_refused_and_named() -> None:
    odd = OddOneOut("node03", "node03: 7 GPUs, the group has 8; missing: GPU 5", "GPU 5")
    inventory = replace(with_node(FOUR, "node03", gpus=fewer_gpus(m.H100, 5).gpus), odd=(odd,))
    text = told(go(inventory))
    assert text.startswith("fault node03: 7 GPUs, the group has 8; missing: GPU 5")
    assert "--as-is" in text
    result = go(inventory, as_is=True)
    assert "Gres=gpu:h100:7" in line(result, "NodeName=node03 ")
    assert "--as-is" in result.files["slurm.conf"].splitlines()[2]


@pytest.mark.parametrize("changes", [
    {"problems": ("GPU 5 (0000:6b:00.0) is lost: GPU is lost",)},
    {"gpus": fewer_gpus(m.H100, 5).gpus, "pci": BUS},
    {"pci": BUS[:7]},
    {"cpu": replace(m.H100_CPU, offline=(3,))},
])
def test_faults_that_need_no_group_are_refused(changes: dict[str, Any]) -> None:
    result = go(with_node(FOUR, "node02", **changes))
    assert {(p.kind, p.node) for p in result.problems} == {(Kind.FAULT, "node02")}


def test_a_fault_elsewhere_changes_no_line() -> None:
    odd = (OddOneOut("node04", "node04: BIOS 1.0, the group has 1.2"),)
    inventory = with_node(replace(FOUR, odd=odd), "node04", bios="1.0", problems=("infiniband: mlx5_3 port 1 is DOWN",))
    assert "node[01-04]" in line(go(inventory), "NodeName=")


def test_a_missing_memory_module_is_refused() -> None:
    odd = (OddOneOut("node01", "node01: 1999853 MiB, the group has 2063853"),)
    inventory = with_node(replace(FOUR, odd=odd), "node01", memory_mib=1999853)
    assert "fault node01: 1999853 MiB" in told(go(inventory))


def test_what_the_site_expects_is_looked_for() -> None:
    groups = (NodeGroup("gpu", "node[01-04]", gpus=8, gpu_model="NVIDIA H200", memory_mib=3000000),)
    text = told(go(site=replace(m.SITE, nodes=groups)))
    assert text.count("GPU 0 is 'NVIDIA H100 80GB HBM3', site.toml [nodes.gpu] says 'NVIDIA H200'") == 4
    assert text.count("2063853 MiB of memory, site.toml [nodes.gpu] says 3000000") == 4


def test_a_card_that_the_site_does_not_count_is_no_fault() -> None:
    inventory = m.inventory((["n1"], replace(m.BIG_CPU, pci=(PciDevice("0000:01:00.0", "030000", "10de", "1c03"),))))
    assert "on the PCI bus" in told(go(inventory))
    assert go(inventory, replace(m.SITE, nodes=(NodeGroup("cpu", "n1", gpus=0),))).problems == ()


# Unknown is not good, and all of it is said at once.

def test_every_unknown_is_listed_at_once() -> None:
    inventory = with_node(FOUR, "node01", memory_mib=None)
    inventory = with_node(inventory, "node02", gpus=(), unknown=("gpus",))
    inventory = with_node(inventory, "node03", cpu=replace(m.H100_CPU, sockets=None, cores=()))
    inventory = with_node(inventory, "node04", gpus=(replace(m.H100.gpus[0], minor=None, device_file=""),))
    inventory = replace(inventory, failed=(Failed("node05", "no route to host"),))
    text = told(go(inventory, replace(m.SITE, cluster=replace(m.SITE.cluster, name="", controllers=()))))
    for piece in ["node01: memory: not known", "node02: GPUs: no source tells", "node03: CPUs: sockets",
                  "node04: GPU 0: its device minor is not known", "node05: could not be discovered: no route to host",
                  "no cluster name", "no controller"]:
        assert piece in text, text


def test_failed_nodes_are_left_out_only_when_asked() -> None:
    result = go(replace(FOUR, failed=(Failed("node05", "no route to host"),)), as_is=True)
    assert "node05" in result.notes[0]
    assert "# Left out, could not be discovered: node05 (no route to host)" in result.files["slurm.conf"]


@pytest.mark.parametrize(("change", "word"), [
    ({"device_file": ""}, "does not exist"),
    ({"device_file": "/dev/nvidia9"}, "its device file is /dev/nvidia9"),
    ({"minor": 1, "device_file": "/dev/nvidia1"}, "same device file"),
    ({"pci": ""}, "PCI address of GPU 0 is not known"),
    ({"pci": "0000:2b:00.0"}, "same PCI address"),
    ({"model": ""}, "no type name"),
    ({"mig": "Enabled"}, "MIG"),
    ({"vendor": "amd", "device_file": "/dev/dri/renderD0"}, "several vendors"),
])
def test_a_gpu_that_cannot_be_written_is_refused(change: dict[str, Any], word: str) -> None:
    gpus = (replace(m.H100.gpus[0], **change), *m.H100.gpus[1:])
    assert word in told(go(with_node(FOUR, "node02", gpus=gpus)))


def test_empty_inventory_and_doubles() -> None:
    assert "the inventory has no node" in told(go(Inventory(())))
    assert "twice" in told(go(replace(FOUR, nodes=(*FOUR.nodes, FOUR.nodes[0]))))


# Cores and Links.

def test_cores_are_slurms_numbering_not_os_cpus() -> None:
    """Even OS CPUs on socket 0, odd ones on socket 1: the GPU near the odd ones gets cores 4-7."""
    cpu = m.cpu(2, 4)
    cores = tuple(replace(c, cpus=(2 * (i % 4) + i // 4, 2 * (i % 4) + i // 4 + 8)) for i, c in enumerate(cpu.cores))
    node = replace(m.T4, cpu=replace(cpu, cores=cores, numa=()),
                   gpus=(replace(m.T4.gpus[0], local_cpus=(1, 3, 5, 7, 9, 11, 13, 15)),))
    assert " Cores=4-7 " in line(go(m.inventory((["n1"], node))), "NodeName=", "gres.conf")


@pytest.mark.parametrize(("numa", "cpus", "word"), [
    (None, (), "no source names the CPUs near it"),
    (None, tuple(range(8)), "are not exactly one socket"),
    (None, (500,), "belong to no core"),
    (1, (0, 1), "not those of its NUMA node"),
])
def test_cores_are_left_out_with_the_reason(numa: int | None, cpus: tuple[int, ...], word: str) -> None:
    gpus = tuple(replace(g, numa=numa, local_cpus=cpus) for g in m.H100.gpus)
    result = go(m.inventory((["n1"], replace(m.H100, gpus=gpus))))
    assert " Cores=" not in result.files["gres.conf"]
    assert any(word in note for note in result.notes)


def test_no_cores_where_all_are_near() -> None:
    result = go(m.inventory((["n1"], replace(m.T4, gpus=(replace(m.T4.gpus[0], local_cpus=tuple(range(8))),)))))
    assert " Cores=" not in result.files["gres.conf"]
    assert [note for note in result.notes if "MaxTime" not in note] == []


def test_virtual_sockets_are_for_all_nodes_before_25_11() -> None:
    both = m.inventory((["a1"], m.NPS4), (["h1"], m.H100))
    result = go(both)
    assert line(result, "SlurmdParameters") == "SlurmdParameters=numa_node_as_socket"
    assert "Sockets=8 CoresPerSocket=16" in line(result, "NodeName=a1")
    assert "Sockets=2 CoresPerSocket=56" in line(result, "NodeName=h1")
    # A node whose GPU is near a package of four NUMA nodes: no mode suits both, and no wrong Cores are written.
    wide = replace(m.NPS4, gpus=(replace(m.NPS4.gpus[0], local_cpus=m.near(m.NPS4_CPU, 0, 1, 2, 3), numa=None),))
    split = m.inventory((["a1"], m.NPS4), (["w1"], wide))
    old, new = go(split), go(split, slurm_version="25.11")
    assert "SlurmdParameters" not in old.files["slurm.conf"]
    assert not [text for text in old.files["gres.conf"].splitlines() if "NodeName=a1" in text and "Cores=" in text]
    assert "Parameters=numa_node_as_socket" in line(new, "NodeName=a1")
    assert "Parameters" not in line(new, "NodeName=w1")
    assert "Cores=0-63" in line(new, "NodeName=w1", "gres.conf")


def test_slurmd_parameters_of_the_site_are_kept() -> None:
    result = go(m.inventory((["a1"], m.NPS4)), m.site(options={"SlurmdParameters": "allow_ecores"}),
                slurm_version="24.11")
    assert line(result, "SlurmdParameters") == "SlurmdParameters=allow_ecores,numa_node_as_socket  # site.toml"
    result = go(m.inventory((["b1"], m.BIG_CPU)), m.site(options={"SlurmdParameters": "numa_node_as_socket"}))
    assert line(result, "SlurmdParameters") == "SlurmdParameters=numa_node_as_socket  # site.toml"
    assert "L3" in told(go(site=m.site(options={"SlurmdParameters": "l3cache_as_socket"})))


@pytest.mark.parametrize(("change", "word"), [
    (lambda rows: rows[:7], "a row and a column"),
    (lambda rows: (("X", "", *rows[0][2:]), *rows[1:]), "incomplete"),
    (lambda rows: (("X", "NV12", *rows[0][2:]), *rows[1:]), "not symmetric"),
    (lambda rows: (("NV18", *rows[0][1:]), *rows[1:]), "incomplete"),
    (lambda rows: (), "no source"),
])
def test_links_are_left_out_where_the_matrix_is_not_whole(change: Any, word: str) -> None:
    result = go(m.inventory((["n1"], replace(m.H100, gpu_links=change(m.H100.gpu_links)))))
    assert result.problems == ()
    assert "Links=" not in result.files["gres.conf"]
    assert any(word in why.reason for e in result.explained for why in e.whys)


def test_minors_may_differ_within_a_node_line() -> None:
    other = tuple(replace(g, minor=7 - i, device_file=f"/dev/nvidia{7 - i}") for i, g in enumerate(m.H100.gpus))
    result = go(with_node(FOUR, "node02", gpus=other))
    assert "NodeName=node[01-04] " in line(result, "NodeName=")
    assert "File=/dev/nvidia7 Cores=0-55 Links=-1," in line(result, "NodeName=node02 ", "gres.conf")
    assert "File=/dev/nvidia0 Cores=0-55 Links=-1," in line(result, "NodeName=node[01,03-04] ", "gres.conf")


def test_amd_gpus() -> None:
    cpu = m.cpu(2, 56)
    gpus = tuple(Gpu("amd", i, "AMD Instinct MI300X OAM", pci=f"0000:{0x10 + i:02x}:00.0", minor=128 + 8 * i,
                     device_file=f"/dev/dri/renderD{128 + 8 * i}", local_cpus=m.near(cpu, i // 4)) for i in range(8))
    links = tuple(tuple("X" if i == j else "XGMI" for j in range(8)) for i in range(8))
    result = go(m.inventory((["n1"], Node("", cpu=cpu, memory_mib=1000000, gpus=gpus, gpu_links=links))))
    assert line(result, "NodeName=", "gres.conf") == (
        "NodeName=n1 AutoDetect=off Name=gpu Type=mi300x File=/dev/dri/renderD128 Cores=0-55 Links=-1,1,1,1,1,1,1,1 "
        "Flags=amd_gpu_env")
    assert "Gres=gpu:mi300x:8" in line(result, "NodeName=")


def test_mixed_types() -> None:
    cpu = m.cpu(2, 14)
    gpus = m.gpus("Tesla P100-PCIE-16GB", cpu, [0, 0, 1])
    ordered = replace(m.T4, cpu=cpu, gpus=(*gpus[:2], replace(gpus[2], model="NVIDIA RTX A5000")))
    assert "Gres=gpu:p100:2,gpu:a5000:1" in line(go(m.inventory((["n1"], ordered))), "NodeName=")
    mixed = replace(ordered, gpus=(gpus[0], replace(gpus[1], model="NVIDIA RTX A5000"), gpus[2]))
    result = go(m.inventory((["n1"], mixed)))
    assert any("alternate" in note for note in result.notes)
    assert "alternate" in told(go(m.inventory((["n1"], mixed)), m.site(options={"TaskPlugin": "task/affinity"})))


# Memory, names, features, partitions.

@pytest.mark.parametrize(("mib", "real"), [
    (24105, 23863), (1000, 984), (65536, 64880), (65537, 64513), (2063853, 2043214)])
def test_real_memory_stays_below_what_slurmd_measures(mib: int, real: int) -> None:
    assert f"RealMemory={real} " in line(go(m.inventory((["n1"], replace(m.LAB, memory_mib=mib)))), "NodeName=")


def test_memory_that_differs_much_splits_the_line_and_little_does_not() -> None:
    result = go(with_node(with_node(FOUR, "node02", memory_mib=2063840), "node03", memory_mib=1031000))
    assert "NodeName=node[01-02,04] " in line(result, "NodeName=node[")
    assert "RealMemory=2043201 " in line(result, "NodeName=node[")
    assert "RealMemory=1020690 " in line(result, "NodeName=node03 ")


def test_gpu_memory_is_not_node_memory() -> None:
    cpu = replace(m.cpu(2, 72, 1), numa=(*m.cpu(2, 72, 1).numa, NumaNode(2, (), 180000), NumaNode(10, (), 180000)))
    node = replace(m.LAB, cpu=cpu, memory_mib=1360000)
    assert "RealMemory=990000 " in line(go(m.inventory((["n1"], node))), "NodeName=")
    unknown = replace(node, cpu=replace(cpu, numa=(*cpu.numa, NumaNode(18, ()))))
    assert "NUMA node 18 without CPUs" in told(go(m.inventory((["n1"], unknown))))


def test_another_host_name_gets_its_own_line() -> None:
    inventory = with_node(FOUR, "node02", hostname="sn123.cluster.example", addresses=("10.0.0.2",))
    result = go(inventory)
    assert "NodeName=node02 NodeHostname=sn123 NodeAddr=10.0.0.2 " in line(result, "NodeName=node02 ")
    assert "NodeName=node[01,03-04] CPUs" in line(result, "NodeName=node[")


def test_features_name_the_network() -> None:
    roce = Nic("mlx5_0", rdma="mlx5_0", link_layer="Ethernet", state="ACTIVE", rate_gbps=200.0)
    down = Nic("mlx5_1", rdma="mlx5_1", link_layer="InfiniBand", state="DOWN", rate_gbps=10.0)
    wired = Nic("eth0", state="up", rate_gbps=25.0)
    for nics, feature in [((roce, down, wired), "roce,200g"), ((down, wired), "25g")]:
        assert f"Features={feature} " in line(go(m.inventory((["n1"], replace(m.LAB, nics=nics)))), "NodeName=")


def test_partitions_must_name_known_nodes() -> None:
    text = told(go(site=replace(m.SITE, partitions={"gpu": {"Nodes": "node[01-06]"}, "x": {"Nodes": "node[1-"}})))
    assert "names node[05-06], which the inventory does not have" in text
    assert "partitions.gpu.Nodes" in text
    assert "malformed" in text


# The site's word, Slurm's versions.

@pytest.mark.parametrize(("version", "options", "word"), [
    ("23.11", {"SelectType": "select/cons_res"}, "select/cons_tres instead"),
    ("25.11", {"AccountingStorageLoc": "/x"}, "fatal"),
    ("22.05", {"TopologyPlugin": "topology/block"}, "fatal"),
    ("22.05", {"NodeName": "n1"}, "[nodes.NAME.options]"),
    ("22.05", {"Include": "other.conf"}, "not a setting"),
    ("22.05", {"ReturnToService": 1, "returntoservice": 2}, "comes twice"),
])
def test_options_that_do_harm_are_refused(version: str, options: dict[str, Any], word: str) -> None:
    assert word in told(go(site=m.site(options=options), slurm_version=version))


def test_cgroup_keys_follow_the_version() -> None:
    site = m.site(cgroup={"ConstrainKmemSpace": True})
    assert go(site=site, slurm_version="22.05").problems == ()
    assert "slurm.cgroup.ConstrainKmemSpace" in told(go(site=site, slurm_version="23.11"))
    light = m.site(options={"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"})
    assert "CgroupPlugin=disabled" in go(site=light, slurm_version="24.05").files["cgroup.conf"]
    assert "=" not in go(site=light, slurm_version="22.05").files["cgroup.conf"]


def test_the_version_is_named_found_or_none() -> None:
    unknown = m.inventory((["n1"], m.LAB), version="")
    assert "22.05 to 26.05" in go(unknown).files["slurm.conf"]
    assert "different Slurm versions" in told(go(with_node(FOUR, "node02", slurm_version="23.02.1")))
    assert go(with_node(FOUR, "node02", slurm_version="23.02.1"), slurm_version="23.02").problems == ()
    assert "not supported" in told(go(slurm_version="19.05"))
    assert "not a Slurm version" in told(go(site=m.site(version="latest")))


@pytest.mark.parametrize("options", [{"RealMemory": 3000000}, {"RealMemory": "big"}, {"Sockets": 4}, {"gres": "gpu:9"}])
def test_node_options_cannot_contradict_the_hardware(options: dict[str, Any]) -> None:
    groups = (NodeGroup("gpu", "node[01-04]", options=options),)
    assert "[nodes.gpu.options]" in told(go(site=replace(m.SITE, nodes=groups)))


HOSTILE = ["a\nInclude=/etc/shadow", "a#b", "a b", 'a"b', "a'b", "a\\", "a=b", "", "a\x1b[31m", "ä", "a\tb", "\u202ea"]


@looped("value", HOSTILE)
def test_hostile_values_of_the_site_are_refused_with_their_key(value: str) -> None:
    sites = {
        "slurm.options.Prolog": m.site(options={"Prolog": value}),
        "slurm.cgroup.CgroupMountpoint": m.site(cgroup={"CgroupMountpoint": value}),
        "partitions.p.AllowGroups": replace(m.SITE, partitions={"p": {"AllowGroups": value}}),
        "nodes.g.options.TmpDisk": replace(m.SITE, nodes=(NodeGroup("g", "node01", options={"TmpDisk": value}),)),
        "nodes.g.features": replace(m.SITE, nodes=(NodeGroup("g", "node01", features=(value,)),)),
        "cluster.controllers": replace(m.SITE, cluster=replace(m.SITE.cluster, controllers=(value,))),
    }
    for key, site in sites.items():
        result = go(site=site)
        assert result.files == {}
        assert key in {p.key for p in result.problems}, (key, result.problems)


def test_hostile_keys_and_types_are_refused() -> None:
    assert "cannot be a key" in told(go(site=m.site(options={"A=1\nB": "x"})))
    assert "the first a letter" in told(go(site=m.site(gpu_types={"NVIDIA H100 80GB HBM3": "h:1"})))


@looped("value", HOSTILE)
def test_hostile_values_of_a_node_never_reach_a_line(value: str) -> None:
    gpus = tuple(replace(g, model=f"NVIDIA {value} H100") for g in m.H100.gpus)
    node = replace(m.H100, name="n1", gpus=gpus, simulated=value, addresses=(value,), slurm_version="22.05")
    result = go(replace(Inventory((node,)), failed=(Failed("n2", value),)), comments=True, as_is=True)
    assert set(result.files) == {"slurm.conf", "gres.conf", "cgroup.conf"}, result.problems
    for name, text in result.files.items():
        assert text.isascii()
        for item in text.splitlines():
            assert item.isprintable()
            assert not item.endswith("\\")
            assert item.startswith(("#", "NodeName=n1 ")) or name == "slurm.conf" or not item or "Constrain" in item
    hostile = value or "?"
    for bad in (replace(m.LAB, name=value), replace(node, hostname=hostile),
                replace(m.LAB, name="n1", slurm_version=hostile)):
        assert go(Inventory((bad,))).files == {}


# The command line.

@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    (tmp_path / "site.toml").write_text('[cluster]\nname = "thinktank"\ncontrollers = ["head(10.0.0.1)"]\n')
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "inventory.json").write_text(records.dumps(FOUR))
    return tmp_path


def test_files_are_printed_written_and_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("==> cgroup.conf <==\n")
    assert run(["conf", "render", "-o", "out"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert {p.name for p in (place / "out").iterdir()} == {"slurm.conf", "gres.conf", "cgroup.conf"}
    golden = Path(__file__).resolve().parent / "golden" / "conf" / "8xh100" / "gres.conf"
    assert (place / "out" / "gres.conf").read_text() == golden.read_text()
    assert run(["conf", "render", "--explain"]) == 0
    assert "slurm.conf:5  ClusterName=thinktank" in capsys.readouterr().out
    assert run(["conf", "render", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["files"]["gres.conf"] == golden.read_text()
    assert data["problems"] == []
    assert data["lines"][0].keys() == {"file", "line", "text", "whys"}


@pytest.mark.parametrize("where", ["/etc/slurm", "/etc/slurm/new", "/etc/../etc/slurm"])
def test_the_live_folder_is_never_written(place: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render", "-o", where]) == 2
    assert "does not write to /etc/slurm" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "status", "word"), [
    (lambda inv: with_node(inv, "node02", memory_mib=None), 3, "node02: memory"),
    (lambda inv: with_node(inv, "node02", problems=("GPU 5 is lost",)), 1, "node02: GPU 5 is lost"),
    (lambda inv: replace(inv, failed=(Failed("node09", "no answer"),)), 3, "node09"),
])
def test_refusals_have_their_status(place: Path, change: Any, status: int, word: str,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    (place / "i.json").write_text(records.dumps(change(FOUR)))
    assert run(["conf", "render", "--inventory", "i.json", "-o", "out"]) == status
    error = capsys.readouterr().err
    assert word in error
    assert "nothing written: 1 problem" in error
    assert not (place / "out").exists()
    assert run(["conf", "render", "--inventory", "i.json", "--json"]) == status
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == {}
    assert word in data["problems"][0]["text"]


def test_site_errors_name_file_and_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "site.toml").write_text('[cluster]\nname = "t"\n\n[slurm.options]\nProlog = "a b"\n')
    assert run(["conf", "render"]) == 2
    error = capsys.readouterr().err
    assert "site.toml:5: Prolog='a b'" in error
    assert 'controllers = ["head"]' in error


def test_missing_and_broken_inventories(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render", "--inventory", "none.json"]) == 2
    assert "run hpcadmin discover" in capsys.readouterr().err
    (place / "bad.json").write_text("{")
    assert run(["conf", "render", "--inventory", "bad.json"]) == 2
    assert "bad.json" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "file").write_text("")
    assert run(["conf", "render", "-o", "file/x"]) == 2
    assert [line for line in capsys.readouterr().err.splitlines() if "note:" not in line] == [
        f"hpcadmin: {place}/file/x: cannot be created: Not a directory"]


def test_the_documented_site_renders() -> None:
    from hpcadmin.site import load_site
    site = load_site(str(Path(__file__).resolve().parent.parent / "docs" / "site.toml"))
    inventory = m.inventory(([f"gpu{i:03d}" for i in range(1, 65)], m.H100))
    result = render(inventory, site, RenderOptions())
    assert [p.what for p in result.problems] == []
    assert "Type=h100sxm" in result.files["gres.conf"]
    assert "for Slurm 24.11" in result.files["slurm.conf"]
    assert isinstance(site.slurm, SlurmSite)
