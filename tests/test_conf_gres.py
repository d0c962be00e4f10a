"""gres.conf beyond the plain lines: AutoDetect, MPS, shards, counted gres, types, partitions, GPUs that are none."""

from dataclasses import replace
from typing import Any

import conf_machines as c
import conf_models as m
import pytest
from conf_models import group, words
from looped import looped

from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf.typenames import gpu_type
from hpcadmin.model import Gpu, Inventory, Node
from hpcadmin.site import NodeGroup, Site


def go(what: Inventory | Node, version: str = "22.05", site: Site = m.SITE, **options: Any) -> Rendering:
    inventory = what if isinstance(what, Inventory) else m.inventory((["n1"], what), version=version)
    return render(inventory, site, RenderOptions(slurm_version=version, **options))


def gres(result: Rendering) -> list[str]:
    assert result.problems == ()
    return [line for line in result.files["gres.conf"].splitlines() if line and not line.startswith("#")]


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.kind.value} {p.node}: {p.what} ({p.hint}) {p.key}" for p in result.problems)


# AutoDetect.

@pytest.mark.parametrize(("node", "kind", "version", "types"), [
    (m.H100, "nvml", "22.05", "gpu:h100:8"),
    (m.NPS4, "nvml", "25.11", "gpu:a100:8"),
    (m.H100, "nvidia", "24.11", "gpu:h100:8"),
    (c.RTX4090, "nvml", "22.05", "gpu:rtx_4090:8"),
    (c.MI300X, "rsmi", "22.05", "gpu:mi300x:8"),
    (m.H100, "full", "26.05", "gpu:h100:8"),
    (c.MIXED, "nvml", "22.05", "gpu:p100:2,gpu:a5000:1"),
])
def test_autodetect_is_one_line_and_types_it_finds(node: Node, kind: str, version: str, types: str) -> None:
    result = go(node, version, m.site(autodetect=kind))
    assert gres(result) == [f"NodeName=n1 AutoDetect={kind}  # site.toml"]
    assert words(result, "Gres") == types


def test_a_group_may_have_its_own_way() -> None:
    site = replace(m.site(autodetect="nvml"), nodes=(NodeGroup("hand", "n2", autodetect="off"),))
    result = go(m.inventory((["n1", "n2", "n3"], m.T4), (["c1"], m.BIG_CPU)), site=site)
    assert gres(result) == ["NodeName=n[1,3] AutoDetect=nvml  # site.toml",
                            "NodeName=n2 AutoDetect=off Name=gpu Type=t4 File=/dev/nvidia0 Flags=nvidia_gpu_env"]


@pytest.mark.parametrize(("kind", "version", "word"), [
    ("nvidia", "24.05", "Slurm 24.05 does not have it, and would find no GPU"),
    ("full", "25.11", "Slurm 25.11 does not have it"),
    ("nrt", "26.05", "knows no Trainium"),
    ("amdgpu", "26.05", "one of nvml, nvidia, rsmi"),
    ("rsmi", "26.05", "GPU 0: AutoDetect=rsmi does not find it, it is nvidia's"),
])
def test_what_autodetect_cannot_do_is_refused(kind: str, version: str, word: str) -> None:
    assert word in told(go(m.H100, version, m.site(autodetect=kind)))


def test_without_a_version_only_what_every_version_has() -> None:
    inventory = m.inventory((["n1"], m.H100), version="")
    assert "--slurm-version" in told(go(inventory, "", m.site(autodetect="nvidia")))
    assert go(inventory, "", m.site(autodetect="nvml")).problems == ()


def test_types_of_the_site_must_be_a_part_of_what_is_found() -> None:
    site = m.site(autodetect="nvml", gpu_types={"NVIDIA H100 80GB HBM3": "h100sxm"})
    assert "type h100sxm is no part of nvidia_h100_80gb_hbm3" in told(go(m.H100, site=site))
    site = m.site(autodetect="nvml", gpu_types={"NVIDIA H100 80GB HBM3": "h100_80gb"})
    assert words(go(m.H100, site=site), "Gres") == "gpu:h100_80gb:8"


def test_detected_cores_that_are_no_socket_are_refused_where_slurm_refuses_them() -> None:
    site = m.site(autodetect="nvml", sockets="package")
    assert "the node would be INVAL" in told(go(m.NPS4, "24.11", site))
    assert gres(go(m.NPS4, "24.05", site)) == ["NodeName=n1 AutoDetect=nvml  # site.toml"]
    assert words(go(m.NPS4, "24.11", m.site(autodetect="nvml")), "Sockets") == "8"


def test_what_autodetect_leaves_open_is_said() -> None:
    notes = "\n".join(go(m.H100, site=m.site(autodetect="nvml")).notes)
    assert "slurmd of n1 may lack gpu_nvml.so, which is not in the inventory" in notes
    there = replace(m.H100, tools={"gpu_nvml.so": "/usr/lib64/slurm/gpu_nvml.so"})
    assert "gpu_nvml.so" not in "\n".join(go(there, site=m.site(autodetect="nvml")).notes)
    gone = replace(m.H100, tools={"gpu_nvml.so": ""})
    assert "slurmd of n1 has no gpu_nvml.so" in "\n".join(go(gone, site=m.site(autodetect="nvml")).notes)
    assert "finds no Links on n1" in notes
    assert "finds no Links" not in "\n".join(go(c.DGX1, site=m.site(autodetect="nvml")).notes)
    turned = "\n".join(go(c.H100_VM, "24.11", m.site(autodetect="nvidia")).notes)
    assert "orders GPUs by device minor: on n1 minors are not in PCI bus order" in turned
    assert "device minor" not in "\n".join(go(m.H100, "24.11", m.site(autodetect="nvidia")).notes)


def test_autodetect_needs_nodes_that_are_there() -> None:
    site = group(autodetect="nvml", options={"State": "CLOUD"})
    assert "AutoDetect=nvml with State=CLOUD" in told(go(m.H100, site=site))
    result = go(m.H100, site=group(options={"State": "CLOUD"}))
    assert words(result, "State") == "CLOUD"
    assert len(gres(result)) == 8, "slurmctld reads the lines of cloud nodes too"


# MPS, shards, counted.

@pytest.mark.parametrize(("keys", "name", "count"), [({"mps": 100}, "mps", 100), ({"shards": 6}, "shard", 6)])
def test_gpus_are_shared_by_lines_of_their_own(keys: dict[str, int], name: str, count: int) -> None:
    result = go(c.DIRECT4, site=group(**keys))
    assert words(result, "Gres") == f"gpu:a100:4,{name}:{4 * count}"
    lines = gres(result)
    assert len(lines) == 8
    assert lines[4:] == [f"NodeName=n1 AutoDetect=off Name={name} Count={count} File=/dev/nvidia{n}  # site.toml"
                         for n in range(4)]
    assert f"GresTypes=gpu,{name}" in result.files["slurm.conf"]


def test_shares_where_slurmd_finds_the_gpus() -> None:
    result = go(m.H100, site=group(autodetect="nvml", shards=4))
    assert gres(result) == ["NodeName=n1 AutoDetect=nvml  # site.toml", "NodeName=n1 Name=shard Count=32  # site.toml"]
    assert words(result, "Gres") == "gpu:h100:8,shard:32"


@looped(("node", "keys", "word"), [
    (m.H100, {"mps": 150}, "a multiple of 100"),
    (m.H100, {"mps": 100, "shards": 4}, "jobs with MPS lose CUDA_VISIBLE_DEVICES"),
    (m.H100, {"shards": -1}, "a count for each GPU"),
    (m.BIG_CPU, {"shards": 4}, "no GPU to share"),
    (c.MI300X, {"mps": 100}, "MPS is NVIDIA's"),
    (m.H100, {"gres": {"gpu": 4}}, "follows from the GPUs"),
    (m.H100, {"gres": {"shard": 4}}, "shards = N"),
    (m.H100, {"gres": {"NIC": 4}}, "a name of small letters"),
    (m.H100, {"gres": {"nic": 0}}, "a count such as"),
    (m.H100, {"gres": {"nic": True}}, "a count such as"),
    (m.H100, {"gres": {"nic": "4 Flags=x"}}, "a count such as"),
    (m.H100, {"gres": {"nic,x": 1}}, "a name of small letters"),
    (m.H100, {"mig_minors": {"gpu0/../x": 3}}, "no line of mig-minors"),
])
def test_shares_and_counts_that_cannot_be(node: Node, keys: dict[str, Any], word: str) -> None:
    text = told(go(node, site=group(**keys)))
    assert word in text
    assert "nodes.gpu" in text


def test_mps_and_shards_are_not_for_one_cluster() -> None:
    site = replace(m.SITE, nodes=(NodeGroup("a", "a1", mps=100), NodeGroup("b", "b1", shards=4)))
    assert "with both in one cluster" in told(go(m.inventory((["a1"], m.H100), (["b1"], m.H100)), site=site))


def test_counted_gres() -> None:
    result = go(m.BIG_CPU, site=group(gres={"nic": 4, "bandwidth:lustre": "4G"}))
    assert words(result, "Gres") == "bandwidth:lustre:4G,nic:4"
    assert gres(result) == ["NodeName=n1 Name=bandwidth Type=lustre Count=4G Flags=CountOnly  # site.toml",
                            "NodeName=n1 Name=nic Count=4 Flags=CountOnly  # site.toml"]
    both = go(m.T4, site=group(gres={"nic": 1}))
    assert words(both, "Gres") == "gpu:t4:1,nic:1"
    assert len(gres(both)) == 2


# Types.

@looped(("model", "name"), [
    ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-40GB", "a100"), ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"), ("NVIDIA RTX A6000", "a6000"), ("Tesla T4", "t4"),
    ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA GB200", "gb200"), ("AMD Instinct MI300X OAM", "mi300x"),
    ("AMD Instinct MI250X / MI250", "mi250x"), ("Aldebaran/MI200 [Instinct MI250X/MI250]", "mi250x"),
    ("GA100 [A100 SXM4 40GB]", "a100"), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
    ("NVIDIA B300 SXM6 AC", "b300"), ("Intel(R) Data Center GPU Max 1550", "max1550"), ("GRID A100-10C", "a100_10c"),
    ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"), ("NVIDIA L40S", "l40s"), ("1234", "gpu1234"),
    ("NVIDIA Graphics Device", ""),
])
def test_type_names(model: str, name: str) -> None:
    assert gpu_type(model, {}) == name


def two_sizes() -> Inventory:
    other = replace(c.NPS1, gpus=tuple(replace(gpu, model="NVIDIA A100-SXM4-80GB", memory_mib=81920)
                                       for gpu in c.NPS1.gpus))
    small = replace(c.NPS1, gpus=tuple(replace(gpu, memory_mib=40960) for gpu in c.NPS1.gpus))
    return m.inventory((["n1"], small), (["n2"], other))


def test_models_with_other_memory_are_other_types() -> None:
    result = go(two_sizes())
    assert words(result, "Gres") == "gpu:a100_40gb:8"
    assert words(result, "Gres", "n2") == "gpu:a100_80gb:8"
    assert any("a100 with different memory sizes" in note for note in result.notes)
    named = go(two_sizes(), site=m.site(gpu_types={"NVIDIA A100-SXM4-80GB": "a100big"}))
    assert (words(named, "Gres"), words(named, "Gres", "n2")) == ("gpu:a100:8", "gpu:a100big:8")
    found = go(two_sizes(), site=m.site(autodetect="nvml"))
    assert (words(found, "Gres"), words(found, "Gres", "n2")) == ("gpu:a100-sxm4-40gb:8", "gpu:a100-sxm4-80gb:8")


@pytest.mark.parametrize("model", ["NVIDIA a[1-2]", "a[1,2] 80GB", "NVIDIA H[100]"])
def test_a_list_is_no_type(model: str) -> None:
    assert gpu_type(model, {}) == ""
    node = replace(m.H100, gpus=tuple(replace(gpu, model=model) for gpu in m.H100.gpus))
    assert "name it in site.toml [slurm.gpu_types]" in told(go(node))
    assert words(go(node, site=m.site(gpu_types={model: "a1"})), "Gres") == "gpu:a1:8"


def test_whole_nodes_take_their_gpus_along() -> None:
    notes = go(m.H100, site=m.site(options={"SelectType": "select/linear"})).notes
    assert any("whole nodes are given out, GPUs of n1 with them" in note for note in notes)
    assert not any("whole nodes" in note for note in go(m.H100).notes)


def test_types_of_the_site_must_be_types() -> None:
    for name in ("3g.40gb", "8", "a:b", "a b"):
        assert "the first a letter" in told(go(m.H100, site=m.site(gpu_types={"NVIDIA H100 80GB HBM3": name})))


# Order, partitions, GPUs that are none.

def test_alternating_types_name_the_wrong_index() -> None:
    result = go(c.ALTERNATING)
    assert any("gpu:p100:1 can get CUDA_VISIBLE_DEVICES=1, which is of type a5000" in note for note in result.notes)
    assert "which is of type a5000" in told(go(c.ALTERNATING, site=m.site(options={"TaskPlugin": "task/affinity"})))
    assert not any("alternate" in note for note in go(c.ALTERNATING, site=m.site(autodetect="nvml")).notes)
    assert not any("alternate" in note for note in go(c.MIXED).notes)


def test_partitions_of_one_gpu_are_in_the_order_of_their_devices() -> None:
    result = go(c.CPX)
    assert words(result, "Gres") == "gpu:mi300x_cpx:16"
    assert [line.split("File=")[1].split()[0] for line in gres(result)] == [
        f"/dev/dri/renderD{n}" for n in range(128, 144)]
    lost = replace(c.CPX, gpus=tuple(replace(gpu, minor=None) for gpu in c.CPX.gpus))
    assert "same PCI address 0000:11:00.0, and their render devices are not known" in told(go(lost))
    twice = replace(m.H100, gpus=(m.H100.gpus[0], replace(m.H100.gpus[1], pci=m.H100.gpus[0].pci)))
    assert "two GPUs have the same PCI address" in told(go(twice))


def test_virtual_functions_are_no_gpus() -> None:
    cpu = m.cpu(1, 8)
    gpus = tuple(Gpu("nvidia", n, "NVIDIA A40", pci=f"0000:41:{place}", minor=n, device_file=f"/dev/nvidia{n}")
                 for n, place in enumerate(["00.0", "00.4", "00.5"]))
    assert "0000:41:00.4, 0000:41:00.5 look like virtual functions" in told(go(Node("", cpu=cpu, memory_mib=64000,
                                                                                   gpus=gpus)))
    apart = tuple(replace(gpu, pci=f"0000:41:0{n}.0") for n, gpu in enumerate(gpus))
    assert len(gres(go(Node("", cpu=cpu, memory_mib=64000, gpus=apart)))) == 3, "as virtual machines have them"


def test_cores_on_all_gpus_of_a_node_or_on_none() -> None:
    """Near all they are to slurmctld without Cores too, but with an error, or left out of (S:…)."""
    cpu = c.TWO_OF_FOUR.cpu
    gpus = tuple(replace(gpu, numa=None, local_cpus=m.near(cpu, *near)) for gpu, near in zip(
        m.gpus("NVIDIA L4", cpu, [0, 1, 2]), [(0, 1), (2,), ()], strict=True))
    lines = gres(go(replace(c.TWO_OF_FOUR, gpus=gpus), "25.11"))
    assert [line.split("Cores=")[1].split()[0] for line in lines] == ["0-47", "24-35", "0-47"]


def test_a_lost_gpu_takes_its_links_with_it_as_is() -> None:
    node = replace(m.H100, gpus=tuple(gpu for gpu in m.H100.gpus if gpu.index != 5),
                   problems=("GPU 5 (0000:6b:00.0) is lost",))
    assert "GPU 5" in told(go(node))
    result = go(node, as_is=True)
    assert words(result, "Gres") == "gpu:h100:7"
    assert not any("Links=" in line for line in gres(result))
