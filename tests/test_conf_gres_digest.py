"""The lines of the reference's digest, exactly, on old and new Slurm; all of them were registered by real daemons."""

from dataclasses import replace

import conf_machines as c
import conf_models as m
import pytest
from looped import looped

from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Node
from hpcadmin.site import NodeGroup, Site

VERSIONS = ["22.05", "24.05", "24.11", "25.11", "26.05"]


def go(node: Node, version: str = "22.05", site: Site = m.SITE, names: list[str] | None = None) -> Rendering:
    result = render(m.inventory((names or ["n1"], node), version=version), site, RenderOptions(slurm_version=version))
    assert result.problems == ()
    return result


def gres(result: Rendering) -> list[str]:
    """Without the beginning that all have."""
    lines = [line for line in result.files["gres.conf"].splitlines() if line and not line.startswith("#")]
    start = "NodeName=n1 AutoDetect=off Name=gpu "
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def words(result: Rendering, *keys: str) -> str:
    """The CPUs, Gres and Parameters of the node line."""
    line = next(text for text in result.files["slurm.conf"].splitlines() if text.startswith("NodeName="))
    found = dict(word.split("=", 1) for word in line.split("#")[0].split())
    return " ".join(f"{key}={found[key]}" for key in (keys or ("CPUs", "Sockets", "CoresPerSocket", "ThreadsPerCore",
                                                               "Gres")))


def row(links: int, place: int, count: int = 8) -> str:
    return ",".join("-1" if i == place else str(links) for i in range(count))


def nvidia(kind: str, minors: list[int], cores: list[str], links: int = 0) -> list[str]:
    return [f"Type={kind} File=/dev/nvidia{minor}" + (f" Cores={near}" if near else "")
            + (f" Links={row(links, place, len(minors))}" if links else "") + " Flags=nvidia_gpu_env"
            for place, (minor, near) in enumerate(zip(minors, cores, strict=True))]


IN_ORDER = list(range(8))
TURNED = [4, 5, 6, 7, 0, 1, 2, 3]
# node -> the node line's words, gres.conf; the same for every version
PLAIN = {
    "10.2 NPS1": (c.NPS1, "CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 Gres=gpu:a100:8",
                  nvidia("a100", c.A100_MINORS, ["0-63"] * 4 + ["64-127"] * 4, 12)),
    "10.3": (m.H100, "CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 Gres=gpu:h100:8",
             nvidia("h100", IN_ORDER, ["0-55"] * 4 + ["56-111"] * 4, 18)),
    "10.3 p5": (c.P5, "CPUs=192 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2 Gres=gpu:h100:8",
                nvidia("h100", IN_ORDER, ["0-47"] * 4 + ["48-95"] * 4, 18)),
    "10.4 B200": (c.B200, "CPUs=160 Sockets=2 CoresPerSocket=40 ThreadsPerCore=2 Gres=gpu:b200:8",
                  nvidia("b200", TURNED, ["0-39"] * 4 + ["40-79"] * 4, 1)),
    "10.4 B300": (c.B300, "CPUs=192 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2 Gres=gpu:b300:8",
                  nvidia("b300", IN_ORDER[::-1], ["0-47"] * 4 + ["48-95"] * 4, 1)),
    "10.4 H100": (c.H100_VM, "CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 Gres=gpu:h100:8",
                  nvidia("h100", TURNED, ["0-31"] * 4 + ["32-63"] * 4, 1)),
    "10.5 GB200": (c.GB200, "CPUs=144 Sockets=2 CoresPerSocket=72 ThreadsPerCore=1 Gres=gpu:gb200:4",
                   nvidia("gb200", [0, 1, 2, 3], ["0-71"] * 2 + ["72-143"] * 2, 18)),
    "10.5 GH200": (c.GH200, "CPUs=72 Sockets=1 CoresPerSocket=72 ThreadsPerCore=1 Gres=gpu:gh200:1",
                   nvidia("gh200", [0], [""])),
    "10.5 4xGH200": (c.GH200X4, "CPUs=288 Sockets=4 CoresPerSocket=72 ThreadsPerCore=1 Gres=gpu:gh200:4",
                     nvidia("gh200", [0, 1, 2, 3], ["0-71", "72-143", "144-215", "216-287"], 6)),
    "10.6": (c.L40S, "CPUs=384 Sockets=2 CoresPerSocket=96 ThreadsPerCore=2 Gres=gpu:l40s:4",
             nvidia("l40s", [0, 1, 2, 3], ["0-95"] * 2 + ["96-191"] * 2)),
    "10.8": (c.RTX4090, "CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 Gres=gpu:rtx4090:8",
             nvidia("rtx4090", IN_ORDER, ["0-55"] * 4 + ["56-111"] * 4)),
    "10.8 uneven": (c.UNEVEN, "CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 Gres=gpu:rtx3090:5",
                    nvidia("rtx3090", [0, 1, 2, 3, 4], ["8-15"] + ["0-7"] * 4)),
    "10.11": (m.T4, "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 Gres=gpu:t4:1", nvidia("t4", [0], [""])),
    "10.13": (c.MIXED, "CPUs=56 Sockets=2 CoresPerSocket=14 ThreadsPerCore=2 Gres=gpu:p100:2,gpu:a5000:1",
              [*nvidia("p100", [0, 1], ["0-13"] * 2), *nvidia("a5000", [2], ["14-27"])]),
    "10.14": (c.DIRECT4, "CPUs=128 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 Gres=gpu:a100:4",
              nvidia("a100", [0, 1, 2, 3], ["0-31"] * 2 + ["32-63"] * 2, 4)),
    "10.15": (c.TWO_OF_FOUR, "CPUs=96 Sockets=4 CoresPerSocket=12 ThreadsPerCore=2 Gres=gpu:l4:1",
              nvidia("l4", [0], [""])),
}


@looped("version", VERSIONS)
@looped("case", PLAIN)
def test_lines_of_the_digest(case: str, version: str) -> None:
    node, line, wanted = PLAIN[case]
    result = go(node, version)
    assert words(result) == line
    assert gres(result) == wanted
    assert "_as_socket" not in result.files["slurm.conf"]


@pytest.mark.parametrize("version", VERSIONS)
def test_10_1_dgx1(version: str) -> None:
    result = go(c.DGX1, version)
    assert words(result) == "CPUs=80 Sockets=2 CoresPerSocket=20 ThreadsPerCore=2 Gres=gpu:v100:8"
    assert gres(result) == [
        f"Type=v100 File=/dev/nvidia{n} Cores={'0-19' if n < 4 else '20-39'} Links={','.join(map(str, counts))} "
        "Flags=nvidia_gpu_env" for n, counts in enumerate(c.CUBE)]


@pytest.mark.parametrize(("node", "line", "cores", "links"), [
    (m.NPS4, "CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2 Gres=gpu:a100:8",
     ["48-63"] * 2 + ["16-31"] * 2 + ["112-127"] * 2 + ["80-95"] * 2, 12),
    (c.SNC2, "CPUs=224 Sockets=4 CoresPerSocket=28 ThreadsPerCore=2 Gres=gpu:h200:8",
     ["0-27"] * 2 + ["28-55"] * 2 + ["56-83"] * 2 + ["84-111"] * 2, 18),
], ids=["10.2 NPS4", "10.3 SNC2"])
@pytest.mark.parametrize("version", VERSIONS)
def test_numa_nodes_as_sockets(node: Node, line: str, cores: list[str], links: int, version: str) -> None:
    result = go(node, version)
    assert words(result) == line
    kind, minors = line.rsplit(":", 2)[1], [gpu.minor or 0 for gpu in node.gpus]
    assert gres(result) == nvidia(kind, minors, cores, links)
    on_line = version in ("25.11", "26.05")
    assert ("SlurmdParameters=numa_node_as_socket" in result.files["slurm.conf"].splitlines()) is not on_line
    assert (" Parameters=numa_node_as_socket " in result.files["slurm.conf"]) is on_line


@pytest.mark.parametrize("version", VERSIONS)
def test_10_9_mi250x(version: str) -> None:
    result = go(c.MI250X, version)
    assert words(result) == "CPUs=128 Sockets=4 CoresPerSocket=16 ThreadsPerCore=2 Gres=gpu:mi250x:8"
    cores = ["48-63"] * 2 + ["16-31"] * 2 + ["0-15"] * 2 + ["32-47"] * 2
    assert gres(result) == [f"Type=mi250x File=/dev/dri/renderD{128 + n} Cores={near} Flags=amd_gpu_env"
                            for n, near in enumerate(cores)]


@pytest.mark.parametrize("version", VERSIONS)
def test_10_10_mi300x(version: str) -> None:
    result = go(c.MI300X, version)
    assert words(result) == "CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 Gres=gpu:mi300x:8"
    assert gres(result) == [f"Type=mi300x File=/dev/dri/renderD{128 + 8 * n} Cores={'0-55' if n < 4 else '56-111'} "
                            f"Links={row(1, n)} Flags=amd_gpu_env" for n in range(8)]


@pytest.mark.parametrize(("node", "links"), [(c.A100_PAIRS, 12), (c.A40_PAIRS, 4)])
def test_10_7_pairs(node: Node, links: int) -> None:
    lines = gres(go(node))
    assert f" Cores=0-27 Links=-1,{links},0,0,0,0,0,0 " in lines[0]
    assert f" Cores=0-27 Links={links},-1,0,0,0,0,0,0 " in lines[1]
    assert f" Cores=0-27 Links=0,0,-1,{links},0,0,0,0 " in lines[2]
    assert f" Cores=28-55 Links=0,0,0,0,0,0,{links},-1 " in lines[7]


def test_10_6_ranges_where_the_site_wants_them() -> None:
    lines = gres(go(c.L40S, site=m.site(gres_ranges=True)))
    assert lines == ["Type=l40s File=/dev/nvidia[0-1] Cores=0-95 Flags=nvidia_gpu_env",
                     "Type=l40s File=/dev/nvidia[2-3] Cores=96-191 Flags=nvidia_gpu_env"]
    assert len(gres(go(m.H100, site=m.site(gres_ranges=True)))) == 8, "Links need a line for each"
    turned = replace(c.L40S, gpus=tuple(replace(gpu, minor=n, device_file=f"/dev/nvidia{n}")
                                        for gpu, n in zip(c.L40S.gpus, (1, 0, 2, 3), strict=True)))
    assert [line.split()[1] for line in gres(go(turned, site=m.site(gres_ranges=True)))] == [
        "File=/dev/nvidia1", "File=/dev/nvidia0", "File=/dev/nvidia[2-3]"]


def test_10_5_memory_of_gpus_is_not_the_nodes() -> None:
    for node, memory in ((c.GB200, 957000), (c.GH200, 490000), (c.GH200X4, 480000)):
        assert words(go(node), "RealMemory") == f"RealMemory={memory - -(-memory // 100)}"


def test_10_5_trays_are_one_line() -> None:
    result = go(c.GB200, names=[f"n{i:02d}" for i in range(1, 19)])
    assert "NodeName=n[01-18] CPUs=144 " in result.files["slurm.conf"]
    assert result.files["gres.conf"].count("NodeName=n[01-18] AutoDetect=off Name=gpu Type=gb200 File=/dev/nvidia") == 4


def test_10_12_mig() -> None:
    site = m.site(autodetect="nvml")
    for node, kinds in ((c.MIG, "gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:2"),
                        (c.MIG_AND_WHOLE, "gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:2,gpu:a100:1")):
        result = go(node, site=site)
        assert words(result, "Gres") == f"Gres={kinds}"
        lines = [line for line in result.files["gres.conf"].splitlines() if line and not line.startswith("#")]
        assert lines == ["NodeName=n1 AutoDetect=nvml  # site.toml"]


def test_10_12_mig_by_hand_where_the_site_insists() -> None:
    minors = {"gpu0/gi2/access": 21, "gpu0/gi2/ci0/access": 22, "gpu0/gi5/access": 48, "gpu0/gi5/ci0/access": 49,
              "gpu0/gi3/access": 30, "gpu0/gi3/ci0/access": 31}
    site = replace(m.SITE, nodes=(NodeGroup("gpu", "n1", mig_minors=minors),))
    result = go(c.MIG, site=site)
    files = [(21, 22), (48, 49), (30, 31)]
    assert gres(result) == [
        f"Type=a100_{profile} MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{one},/dev/nvidia-caps/nvidia-cap"
        f"{other} Cores=0-63 Flags=nvidia_gpu_env"
        for profile, (one, other) in zip(("3g.20gb", "2g.10gb", "2g.10gb"), files, strict=True)]
    assert any("no MIG UUID" in note for note in result.notes)
