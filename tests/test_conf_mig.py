"""MIG: what is written, what is refused, and what is needed to write it by hand."""

from dataclasses import replace
from typing import Any

import conf_machines as c
import conf_models as m
import pytest

from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import MigDevice, Node
from hpcadmin.site import NodeGroup, Site

NVML = m.site(autodetect="nvml")
MINORS = {"gpu0/gi2/access": 21, "gpu0/gi2/ci0/access": 22, "gpu0/gi5/access": 48, "gpu0/gi5/ci0/access": 49,
          "gpu0/gi3/access": 30, "gpu0/gi3/ci0/access": 31}


def go(node: Node, site: Site = NVML, version: str = "22.05") -> Rendering:
    return render(m.inventory((["n1"], node)), site, RenderOptions(slurm_version=version))


def hand(**keys: Any) -> Site:
    return replace(m.SITE, nodes=(NodeGroup("gpu", "n1", **keys),))


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.kind.value} {p.node}: {p.what} ({p.hint})" for p in result.problems)


def with_gpu(**changes: Any) -> Node:
    return replace(c.MIG, gpus=(replace(c.MIG.gpus[0], **changes),))


def types(result: Rendering) -> str:
    assert result.problems == ()
    return result.files["slurm.conf"].split("Gres=")[1].split()[0]


@pytest.mark.parametrize(("model", "kind"), [
    ("NVIDIA A100-SXM4-40GB", "a100_3g.20gb"), ("NVIDIA A100 40GB PCIe", "a100_40gb_pcie_3g.20gb"),
    ("NVIDIA H100 80GB HBM3", "h100_80gb_hbm3_3g.20gb"), ("A100-SXM4-40GB", "a100_3g.20gb"),
])
def test_types_are_as_nvml_calls_them(model: str, kind: str) -> None:
    """The GPU's name up to its first "-", and the profile."""
    assert types(go(with_gpu(model=model, mig_devices=c.MIG_PARTS[:1]))) == f"gpu:{kind}:1"


def test_whole_gpus_beside_slices() -> None:
    assert types(go(c.MIG_AND_WHOLE)) == "gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:2,gpu:a100:1"


@pytest.mark.parametrize(("node", "site", "word"), [
    (with_gpu(mig_devices=()), NVML, "GPU 0 is in MIG mode and has no instance"),
    (with_gpu(mig_devices=(MigDevice(0, ""),)), NVML, "a profile that no source tells"),
    (with_gpu(mig_devices=(MigDevice(0, "1g.10gb+me"),)), NVML, "profile '1g.10gb+me': how Slurm calls it"),
    (c.MIG, m.SITE, 'autodetect = "nvml"'),
    (c.MIG, m.site(autodetect="nvidia"), "AutoDetect=nvml does"),
    (c.MIG, hand(mig_minors={"gpu0/gi2/access": 21}), "lacks gpu0/gi2/ci0/access, gpu0/gi5/access"),
    (with_gpu(mig_devices=(MigDevice(0, "3g.20gb"),)), hand(mig_minors=MINORS), "instances of MIG device 0 are not"),
    (c.MIG, hand(mig_minors=MINORS, shards=4), "only with AutoDetect=nvml"),
    (c.MIG, replace(hand(mig_minors=MINORS), slurm=m.site(options={"TaskPlugin": "task/affinity"}).slurm),
     "jobs get an index and no MIG UUID"),
])
def test_what_is_refused(node: Node, site: Site, word: str) -> None:
    assert word in told(go(node, site, "24.11"))


def test_the_site_may_name_slices() -> None:
    own = m.site(autodetect="nvml", gpu_types={"NVIDIA A100-SXM4-40GB 3g.20gb": "3g.20gb"})
    assert "the first a letter" in told(go(c.MIG, own))
    own = m.site(autodetect="nvml", gpu_types={"NVIDIA A100-SXM4-40GB": "nvidia_a100"})
    assert types(go(c.MIG, own)) == "gpu:nvidia_a100_3g.20gb:1,gpu:nvidia_a100_2g.10gb:2"
    wrong = m.site(autodetect="nvml", gpu_types={"NVIDIA A100-SXM4-40GB": "ampere"})
    assert "ampere_3g.20gb is no part of nvidia_a100_3g.20gb" in told(go(c.MIG, wrong))


def test_slices_beside_shares_only_where_slurm_tells_them_apart() -> None:
    """On 22.05 no job step with a MIG device starts in a cluster that has shards."""
    site = replace(NVML, nodes=(NodeGroup("s", "s1", shards=4),))
    inventory = m.inventory((["n1"], c.MIG), (["s1"], c.L40S))
    for version, wrong in (("22.05", True), ("23.02", True), ("23.11", False), ("26.05", False)):
        result = render(inventory, site, RenderOptions(slurm_version=version))
        assert any("no job step with a MIG device" in p.what for p in result.problems) is wrong


def test_a_change_that_waits_for_a_reset_is_said() -> None:
    node = replace(m.H100, gpus=(replace(m.H100.gpus[0], mig="Disabled", mig_pending="Enabled"), *m.H100.gpus[1:]))
    result = go(node, m.SITE)
    assert result.problems == ()
    assert any("n1: MIG mode changes at the next reset (GPU 0 to Enabled)" in note for note in result.notes)
    assert not any("MIG mode" in note for note in go(c.MIG).notes)


def test_no_links_where_gpus_are_cut() -> None:
    node = replace(c.MIG_AND_WHOLE, gpu_links=m.all_linked(2, 12))
    result = go(node, hand(mig_minors=MINORS))
    assert result.problems == ()
    assert "Links=" not in result.files["gres.conf"]
    lines = [line for line in result.files["gres.conf"].splitlines() if line.startswith("NodeName")]
    assert len(lines) == 4
    assert " File=/dev/nvidia1 Cores=64-127 " in lines[3]
