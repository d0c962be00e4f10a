"""lspci as list and as tree: what the real tool prints of made configuration spaces is read back as made."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.errors import ParseError
from hpcadmin.facts import lspci, lspci_tree
from hpcadmin.facts._parts_devices import part
from hpcadmin.facts._pcitree import is_gpu
from hpcadmin.facts._reading import Document, Reading

GPU, NIC, HOST, BRIDGE = (0x10DE, 0x2330, 0x0302), (0x15B3, 0x1021, 0x0207), (0x8086, 0x09A2, 0x0600), 0x0604
with_lspci = pytest.mark.skipif(not shutil.which("lspci"), reason="needs lspci (pciutils)")


@dataclass(frozen=True)
class Made:
    address: str
    ids: tuple[int, int, int]
    parent: str = ""
    buses: tuple[int, int, int] | None = None

    def dump(self) -> str:
        """As lspci -x prints it, which lspci -F reads."""
        space = bytearray(64)
        space[0:2], space[2:4] = self.ids[0].to_bytes(2, "little"), self.ids[1].to_bytes(2, "little")
        space[10:12] = self.ids[2].to_bytes(2, "little")
        if self.buses:
            space[14] = 1
            space[24:27] = bytes(self.buses)
        rows = [f"{at:02x}: " + " ".join(f"{byte:02x}" for byte in space[at:at + 16]) for at in range(0, 64, 16)]
        return f"{self.address} x\n" + "\n".join(rows) + "\n"


@st.composite
def buses(draw: st.DrawFn) -> list[Made]:
    """One or two domains, each a root bus with a host bridge, and bridges with devices below them."""
    found = []
    for domain in draw(st.lists(st.sampled_from(["0000", "0001", "10000"]), min_size=1, max_size=2, unique=True)):
        next_bus = 1
        found.append(Made(f"{domain}:00:00.0", HOST))

        def below(bus: int, parent: str, depth: int, domain: str = domain) -> int:
            nonlocal next_bus
            count = draw(st.integers(1 if depth else 0, 3))
            for slot in range(1, count + 1):
                address = f"{domain}:{bus:02x}:{slot:02x}.0"
                if depth < 3 and next_bus < 200 and draw(st.booleans()):
                    secondary = next_bus
                    next_bus += 1
                    place = len(found)
                    found.append(Made(address, (0x1000, 0xC030, BRIDGE), parent))
                    last = below(secondary, address, depth + 1)
                    found[place] = Made(address, (0x1000, 0xC030, BRIDGE), parent, (bus, secondary, last))
                else:
                    found.append(Made(address, draw(st.sampled_from([GPU, NIC])), parent))
            return next_bus - 1

        below(0, "", 0)
    return found


def run(made: list[Made], *options: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(device.dump() for device in made))
        file.flush()
        return subprocess.run(["lspci", "-F", file.name, *options], capture_output=True, text=True, check=True).stdout


def listed(text: str) -> tuple[Reading, ...]:
    return lspci.read(Document("x", "text", tuple(text.split("\n"))))


def tree(text: str) -> tuple[Reading, ...]:
    return lspci_tree.read(Document("x", "text", tuple(text.split("\n"))))


@pytest.mark.deep
@with_lspci
@settings(max_examples=15, deadline=None)
@given(buses())
def test_lists_of_the_real_tool(made: list[Made]) -> None:
    right = {device.address: device for device in made}
    for options in (["-nn"], ["-n"], ["-D", "-nn"], ["-mmnn"], ["-vmmnn"], ["-vv", "-nn"]):
        (found,) = listed("$ lspci\n" + run(made, *options))
        devices = {device.address: device for device in found.value}
        assert devices.keys() == right.keys()
        for address, device in devices.items():
            assert (device.pci_id, device.class_id) == (
                f"{right[address].ids[0]:04x}:{right[address].ids[1]:04x}", f"{right[address].ids[2]:04x}")
            if "-vv" in options and any(one.buses for one in made):
                assert device.parent == right[address].parent
        assert len(found.known["gpus"]) == sum(device.ids == GPU for device in made)
        assert len(found.known["nics"]) == sum(device.ids == NIC for device in made)


@pytest.mark.deep
@with_lspci
@settings(max_examples=15, deadline=None)
@given(buses())
def test_trees_of_the_real_tool(made: list[Made]) -> None:
    right = {device.address: device for device in made}
    for options in (["-t"], ["-tv"], ["-tvnn"], ["-tvv"]):
        (found,) = tree("prompt$ lspci\n" + run(made, *options) + "prompt$")
        assert {device.address: device.parent for device in found.value} == \
            {address: device.parent for address, device in right.items()}
        if "-t" in options:
            assert found.missing
            assert found.known["gpus"] is None
        if "-tvnn" in options:
            assert not found.missing
            assert {gpu["pci"] for gpu in found.known["gpus"]} == {d.address for d in made if d.ids == GPU}


@with_lspci
@settings(max_examples=10, deadline=None)
@given(buses(), st.data())
def test_a_tree_that_is_cut_says_so(made: list[Made], data: st.DataObject) -> None:
    lines = run(made, "-tvnn").rstrip().split("\n")
    if len(lines) < 2:
        return
    (found,) = tree("\n".join(lines[:data.draw(st.integers(1, len(lines) - 1))]))
    assert "cut" in found.missing[0]


TREE = """-[0000:00]-+-00.0  Intel Corporation Device 09a2
           +-01.0-[01-04]----00.0-[02-04]--+-00.0-[03]----00.0  NVIDIA Corporation GH100 [H100 SXM5 80GB]
           |                               \\-01.0-[04]--+-00.0  Mellanox Technologies MT2910 Family [ConnectX-7]
           |                                            \\-00.1  Mellanox Technologies MT2910 Family [ConnectX-7]
           +-02.0-[05]--
           \\-1f.0  Intel Corporation Device 1b81
"""


def test_a_tree() -> None:
    (found,) = tree(TREE)
    assert not found.missing
    assert found.known["gpus"][0]["path"] == ["0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert [nic["pci"] for nic in found.known["nics"]] == ["0000:04:00.0", "0000:04:00.1"]
    (shifted,) = tree("\n".join("   " + line for line in TREE.split("\n")))
    assert shifted.known == found.known


def test_a_tree_that_lost_its_columns_is_refused() -> None:
    with pytest.raises(ParseError) as caught:
        tree(TREE.replace("           |                               ", "   "))
    assert caught.value.where == "x:3"


VERBOSE = """17:03.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tBus: primary=17, secondary=19, subordinate=19, sec-latency=0
\t\tLnkCap:\tPort #3, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x16 (ok)

19:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x8 (downgraded)
\tKernel driver in use: nvidia

1a:00.0 3D controller: NVIDIA Corporation Device 2330 (rev ff)
\t!!! Unknown header type 7f

1b:00.0 Ethernet controller: Intel Corporation I350 Gigabit Network Connection (rev 01)
\t\tLnkCap:\tPort #0, Speed 5GT/s, Width x4
\t\tLnkSta:\tSpeed 2.5GT/s, Width x4, TrErr- Train-
03:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)
04:00.0 Processing accelerators: Intel Corporation Device 4567
"""


def test_links_and_lost_devices() -> None:
    (found,) = listed(VERBOSE)
    serious = [finding.what for finding in found.findings if not finding.note]
    assert len(serious) == 3
    assert "GPU 19:00.0: the link runs at 32GT/s x8, at most 32GT/s x16 (width downgraded)" in serious
    assert any("1a:00.0" in what and "fallen off the bus" in what for what in serious)
    assert any("NIC 1b:00.0" in what for what in serious)
    assert found.known["links_downgraded"] == ["17:03.0", "19:00.0", "1b:00.0"]
    assert found.known["not_gpus"] == ["03:00.0"]
    assert [gpu["pci"] for gpu in found.known["gpus"]] == ["19:00.0", "1a:00.0"]
    assert found.known["nics"][0]["rdma_or_fabric"] is False
    made = part(found)
    assert made is not None
    assert (made.node.gpus[0].pcie_width, made.node.gpus[0].pcie_width_max, made.node.gpus[0].numa) == (8, 16, 0)
    assert not made.told                 # no host bridge: perhaps a part of the list


def test_two_nodes_are_two_readings() -> None:
    assert len(listed(VERBOSE + VERBOSE)) == 2
    assert len(listed("n1$ lspci -nn\n" + VERBOSE + "n1$ lspci | grep Eth\n" + VERBOSE[-80:])) == 2


@pytest.mark.parametrize(("vendor", "kind", "name", "is_one"), [
    ("10de", "0302", "", True), ("10de", "0300", "", True), ("10de", "0680", "", False), ("1002", "1200", "", True),
    ("1002", "0380", "", True), ("1002", "0300", "ES1000", False), ("1002", "0300", "Vega 20 [Radeon Instinct MI50]",
    True), ("8086", "0380", "", True), ("8086", "1200", "NPU", False), ("1a03", "0300", "", False)])
def test_what_is_a_gpu(vendor: str, kind: str, name: str, is_one: bool) -> None:
    assert is_gpu(vendor, kind, name) is is_one


def test_other_texts_are_not_lspci() -> None:
    for text in ("0000:1b:00.0 - GPU[ 2 - 55354] AMD Instinct", "0 GPU 00000000:1B:00.0 Off", "12:30:01.5 Error: x"):
        assert listed(text) == ()


@pytest.mark.parametrize("line", [
    "00:1c.0 Class 0302: Device 10de:2330 (rev a1)", "00:1c.0 0302: 10de:2330 (rev a1)",
    "IOMMU Group 15: 00:1c.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1) (driver: nvidia)",
    "00:1c.0 3D Controller: nVidia Corporation Device 2330",
])
def test_the_shapes_of_a_line(line: str) -> None:
    (found,) = listed(line + "\n")
    (device,) = found.value
    assert (device.address, device.class_id, device.device_id) == ("0000:00:1c.0", "0302", "2330")


def test_intel_graphics_in_the_processor_are_no_gpus() -> None:
    (found,) = listed("00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 770 (rev 0c)\n"
                      "00:02.1 Display controller: Intel Corporation Mobile Graphics Controller (secondary)\n"
                      "0d:00.0 VGA compatible controller: Intel Corporation Device e223\n"
                      "29:00.0 Display controller: Intel Corporation Device 0bda (rev 2f)\n")
    assert [gpu["pci"] for gpu in found.known["gpus"]] == ["0d:00.0", "29:00.0"]


def test_a_tree_without_its_first_lines() -> None:
    (found,) = lspci_tree.read(Document("x", "text", (
        " +-[0001:c3]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d",
        " |           \\-01.0-[c4]----00.0  NVIDIA Corporation GH100 [H100 SXM5 80GB]",
        " \\-[0001:e0]---00.0  Intel Corporation Ice Lake Memory Map/VT-d")))
    assert [gpu["pci"] for gpu in found.known["gpus"]] == ["0001:c4:00.0"]
    assert "first line" in found.missing[0]


def test_virtual_functions_are_no_gpus_of_their_own() -> None:
    text = "".join(f"{at} 3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB] (rev a1)\n"
                   for at in ("21:00.0", "21:00.4", "21:00.5", "21:01.0", "41:00.0"))
    (found,) = listed(text)
    assert [gpu["pci"] for gpu in found.known["gpus"]] == ["21:00.0", "41:00.0"]
    assert found.known["gpu_virtual_functions"] == ["21:00.4", "21:00.5", "21:01.0"]
    (found,) = listed(text.replace("21:00.4", "00:05.0").replace("21:00.5", "00:06.0").replace("21:01.0", "00:07.0"))
    assert len(found.known["gpus"]) == 5
