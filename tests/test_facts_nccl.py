"""NCCL's topology and graph files: made, rendered and read back; their faults named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.errors import ParseError
from hpcadmin.facts import _links, nccl_graph, nccl_xml
from hpcadmin.facts._parts_devices import part
from hpcadmin.facts._reading import Document, Reading
from hpcadmin.text import fold_ids


def read(text: str) -> tuple[Reading, ...]:
    return nccl_xml.read(Document("x", "xml", tuple(text.split("\n"))))


def mask(cpus: set[int], words: int) -> str:
    value = sum(1 << cpu for cpu in cpus)
    return ",".join(f"{value >> 32 * word & 0xffffffff:08x}" for word in reversed(range(words)))


def gpu(pci: str, dev: int, links: dict[str, int], tag: str = "nvlink", vendor: str = "0x10de") -> str:
    inner = "".join(f'<{tag} target="{target}" count="{count}" tclass="0x030200"/>' for target, count in links.items())
    return (f'<pci busid="{pci}" class="0x030200" vendor="{vendor}" device="0x2330" link_speed="32.0 GT/s PCIe" '
            f'link_width="16">\n<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{inner}</gpu>\n</pci>')


def system(*cpus: str, version: str = "1") -> str:
    return f'<system version="{version}">\n' + "\n".join(cpus) + "\n</system>\n"


def cpu(numa: int, affinity: str, *inside: str, more: str = "") -> str:
    return (f'<cpu numaid="{numa}" affinity="{affinity}" arch="x86_64" vendor="GenuineIntel"{more}>\n'
            + "\n".join(inside) + "\n</cpu>")


@st.composite
def machines(draw: st.DrawFn) -> tuple[str, dict]:
    """A rendered machine and what must be read: NUMA nodes with CPUs, GPUs below switches, symmetric links, NICs."""
    numas = draw(st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True))
    words = draw(st.integers(2, 6))
    ids = draw(st.permutations(range(32 * words)))
    share = len(ids) // len(numas)
    cpus = {numa: set(ids[place * share:(place + 1) * share]) for place, numa in enumerate(numas)}
    homes = draw(st.lists(st.sampled_from(numas), min_size=1, max_size=8))
    buses = draw(st.lists(st.integers(1, 250), min_size=len(homes), max_size=len(homes), unique=True))
    addresses = [f"0000:{bus:02x}:00.0" for bus in buses]
    links = [[-1 if a == b else 0 for b in range(len(homes))] for a in range(len(homes))]
    for a in range(len(homes)):
        for b in range(a):
            links[a][b] = links[b][a] = draw(st.integers(0, 4))
    order = [place for numa in numas for place, home in enumerate(homes) if home == numa]
    nics = draw(st.lists(st.sampled_from(order), max_size=4, unique=True))
    blocks = []
    for numa in numas:
        inside = []
        for place in (p for p in order if homes[p] == numa):
            targets = {addresses[b]: links[place][b] for b in range(len(homes)) if links[place][b] > 0}
            nic = "" if place not in nics else (
                f'<pci busid="0001:{buses[place]:02x}:00.0" class="0x020000"><nic><net name="mlx5_{place}" '
                'speed="400000" port="1" gdr="1"/></nic></pci>')
            inside.append(f'<pci busid="0002:{buses[place]:02x}:00.0" class="0x060400">'
                          + gpu(addresses[place], place, targets) + nic + "</pci>")
        blocks.append(cpu(numa, mask(cpus[numa], words), *inside))
    right = {
        "numa_nodes": {str(numa): fold_ids(cpus[numa]) for numa in numas}, "numa_order": numas,
        "gpus": [(addresses[p], homes[p], p, [f"mlx5_{p}"] if p in nics else None) for p in order],
        "links": [[links[a][b] for b in order] for a in order] if any(c > 0 for row in links for c in row) else None,
        "nics": {f"mlx5_{p}": addresses[p] for p in nics},
    }
    return system(*blocks), right


@settings(max_examples=80, deadline=None)
@given(machines())
def test_what_is_rendered_is_read_back(made: tuple[str, dict]) -> None:
    text, right = made
    (found,) = read(f"root@n1:~# cat topo.xml\n{text}root@n1:~#")
    assert not found.refused
    assert not found.missing
    known = found.known
    assert (known["numa_nodes"], known["numa_order"]) == (right["numa_nodes"], right["numa_order"])
    assert [(g["pci"], g["numa"], g["dev"]) for g in known["gpus"]] == [row[:3] for row in right["gpus"]]
    assert known["links"] == right["links"]
    for gpu_known, (_, _, _, nic) in zip(known["gpus"], right["gpus"], strict=True):
        if nic:
            assert (gpu_known["nearest_nics"], gpu_known["nearest_nics_relation"]) == (nic, "same switch")
    assert {nic["name"]: nic["nearest_gpus"] for nic in known["nics"]} == {n: [g] for n, g in right["nics"].items()}
    assert (found.first, found.last) == (2, text.count("\n") + 1)


@settings(max_examples=40, deadline=None)
@given(machines(), st.data())
def test_a_cut_file_says_so(made: tuple[str, dict], data: st.DataObject) -> None:
    text = made[0].rstrip()
    end = data.draw(st.integers(len('<system version="1">'), len(text) - len("</system>")))
    try:
        found = read(text[:end])
    except ParseError:
        return
    for reading in found:
        assert reading.missing or reading.refused


PAIR = ("0000:01:00.0", "0000:02:00.0")


def pair(one: dict[str, int], other: dict[str, int]) -> Reading:
    (found,) = read(system(cpu(0, "ff", gpu(PAIR[0], 0, one), gpu(PAIR[1], 1, other))))
    return found


def said(reading: Reading) -> str:
    return " | ".join([finding.what for finding in reading.findings] + list(reading.missing) + [reading.refused])


def test_faults_of_links() -> None:
    assert "names itself" in pair({PAIR[0]: 12}, {PAIR[1]: 12}).refused
    assert "contradicts itself" in said(pair({PAIR[1]: 12}, {PAIR[0]: 4}))
    absent = pair({PAIR[1]: 12}, {PAIR[0]: 12, "0000:09:00.0": 4})
    assert any("0000:09:00.0 is not in the file" in what for what in absent.missing)
    assert not said(pair({PAIR[1]: 12}, {PAIR[0]: 12})).replace(" | ", "").strip("| ")


def test_one_gpu_without_links() -> None:
    addresses = [f"0000:{n:02x}:00.0" for n in range(1, 5)]
    gpus = [gpu(a, n, {b: 1 for b in addresses if a != b and addresses[2] not in (a, b)})
            for n, a in enumerate(addresses)]
    (found,) = read(system(cpu(0, "ff", *gpus)))
    assert "GPU 0000:03:00.0 has no NVLink, its 3 peers do" in said(found)


def test_a_switch_that_a_virtual_machine_does_not_see() -> None:
    found = pair({"fffffff:ffff:ff": 18}, {"fffffff:ffff:ff": 18})
    assert found.known["nvlinks_per_gpu"] == 18
    assert found.known["links"] == [[-1, 0], [0, -1]]
    assert not found.missing
    made = part(found)
    assert made is not None
    assert made.node.gpu_links == ()     # how many links join two GPUs is not told


def test_masks() -> None:
    assert nccl_xml.affinity_cpus("ffffff,fc000000,00000000,00000000") == tuple(range(90, 120))
    assert nccl_xml.affinity_cpus("0x3") == (0, 1)
    assert nccl_xml.affinity_cpus("f" * 16) == tuple(range(64))
    for text in ("", "xyz", "1,,2", "fffffffff,0", "-1"):
        assert nccl_xml.affinity_cpus(text) is None
    (same,) = read(system(cpu(0, "ff", gpu(PAIR[0], 0, {})), cpu(1, "ff", gpu(PAIR[1], 1, {}))))
    assert "identical" in same.refused
    (lost,) = read(system(cpu(0, "0fff000,00000000", gpu(PAIR[0], 0, {})), cpu(1, "00000fff,00000000"),
                          cpu(2, "00000000,0000ffff")))
    assert "7 digits" in said(lost)
    (without,) = read(system('<cpu numaid="0">' + gpu(PAIR[0], 0, {}) + "</cpu>"))
    assert "no CPU affinity for NUMA 0" in without.missing[0]
    assert without.known["gpus"][0]["local_cpus"] is None


def test_several_hosts_in_one_file() -> None:
    text = system(cpu(0, "ff", gpu(PAIR[0], 0, {}), more=' host_hash="0x1"'),
                  cpu(0, "ff", gpu(PAIR[0], 0, {}), more=' host_hash="0x2"'))
    found = read(text)
    assert [reading.value.host for reading in found] == ["0x1", "0x2"]
    assert not any(reading.refused for reading in found)


def test_unlike_texts() -> None:
    assert read("<systems><a/></systems>") == ()
    assert read('<system supported="no"><cpu mode="x"/></system>') == ()
    assert read("nothing") == ()
    (empty,) = read('<system version="1"/>')
    assert empty.refused
    for text in ('<!DOCTYPE a [<!ENTITY b "c">]>' + system(cpu(0, "&b;")),):
        (found,) = read(text)
        assert found.missing
    with pytest.raises(ParseError):
        read(system(cpu(0, "ff", '<pci busid="nonsense" class="0x030200"/>')))
    with pytest.raises(ParseError):
        read('<system version="1"><cpu numaid="0">' + '<pci busid="0000:01:00.0">' * 500)


def test_a_graph_is_no_topology() -> None:
    text = ('<graphs version="1">\n<graph id="0" pattern="4" nchannels="1"><channel><gpu dev="1"/><gpu dev="0"/>'
            "</channel></graph>\n</graphs>")
    (found,) = nccl_graph.read(Document("x", "xml", tuple(text.split("\n"))))
    assert found.refused
    assert found.known["gpu_devs"] == [0, 1]
    assert found.known["graphs"][0]["gpu_order"] == [[1, 0]]
    assert read(text) == ()


def test_hives_and_rings() -> None:
    hive = [[-1, 0, 1, 0], [0, -1, 0, 1], [1, 0, -1, 0], [0, 1, 0, -1]]
    assert _links.hives(hive) == ((0, 2), (1, 3))
    assert _links.rings(hive) == ()
    ring = [[-1, 1, 0, 1], [1, -1, 1, 0], [0, 1, -1, 1], [1, 0, 1, -1]]
    assert _links.hives(ring) == ()
    assert _links.rings(ring) == ((0, 1, 2, 3),)
