"""Captures to nodes: every source joined, what is missing unknown, what contradicts a problem."""

from collections.abc import Callable
from functools import cache

import pytest
import sim_node

from hpcadmin.facts import facts, read_capture, split_capture
from hpcadmin.model import Node

TOKEN = "0123456789abcdef0123456789abcdef"


@cache
def sections(profile: str, faults: str = "") -> dict[str, tuple[str, int | None]]:
    """name -> (text, status) of a simulated node."""
    capture = split_capture(sim_node.capture(profile, faults=faults), profile)
    return {name: (section.text, section.status) for name, section in capture.sections.items()}


def made(profile: str = "4xA100-pcie", faults: str = "", *, complete: bool = True,
         **changes: tuple[str, int | None] | None) -> Node:
    """The node of a capture whose sections are those of the profile, with changes; None leaves a section out."""
    parts = {**sections(profile, faults), "simulated": ("no\n", 0), "slurmd": ("", 127), "lscpu": ("", 127),
             "cpuset": ("Cpus_allowed_list: 0-1023\n", 0), **changes}
    text = f"motd\n\nHPCADMIN-CAPTURE 1 {TOKEN}\n"
    kept = {name: part for name, part in parts.items() if part is not None}
    for name, (said, status) in kept.items():
        text += f"\n@{TOKEN} begin {name} limit={facts()[name].limit}\n{said}\n@{TOKEN} stderr {name}\n"
        text += f"\n#{TOKEN} status={status}\n" if status is not None else ""
    if complete:
        text += f"\n@{TOKEN} done sections={len(kept)}\n"
    return read_capture(text, "node01")


@pytest.mark.deep
def test_a_whole_node() -> None:
    node = read_capture(sim_node.capture("8xH100"), "node01")
    assert (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.threads_per_core) == (2, 56, 2)
    assert node.cpu.cores[55].cpus == (55, 167)
    assert [gpu.index for gpu in node.gpus] == list(range(8))
    assert {gpu.model for gpu in node.gpus} == {"NVIDIA H100 80GB HBM3"}
    assert node.gpus[5].pci == "0000:c3:00.0"
    assert node.gpus[5].numa == 1
    assert node.gpus[5].local_cpus[:2] == (56, 57)
    assert node.gpu_links[0][:2] == ("X", "NV18")
    assert [nic.rdma for nic in node.nics] == [f"mlx5_{n}" for n in range(8)]
    assert {nic.rate_gbps for nic in node.nics} == {400.0}
    assert node.simulated == "8xH100"
    assert node.gpu_driver
    assert node.captured.startswith("20")
    assert node.problems == ()
    assert "gpus" not in node.unknown


@pytest.mark.deep
def test_index_and_minor_number_are_different_things() -> None:
    node = made()
    assert [gpu.index for gpu in node.gpus] == [0, 1, 2, 3]
    assert [gpu.minor for gpu in node.gpus] == [2, 3, 0, 1]
    assert node.gpus[0].device_file == "/dev/nvidia2"
    assert node.problems == ()


@pytest.mark.deep
def test_a_lost_gpu_keeps_its_name() -> None:
    node = made("8xH100", "gpu 5 lost\n")
    assert [gpu.index for gpu in node.gpus] == [0, 1, 2, 3, 4, 6, 7]
    assert node.problems == ("GPU 5 (0000:c3:00.0) is lost: Reboot the system to recover this GPU",)
    assert len(node.gpu_links) == 7


def test_a_lost_gpu_is_missed_without_any_message() -> None:
    """Fallen off and forgotten by the driver: the bus still has it."""
    whole = sections("8xH100", "gpu 5 lost\n")
    xml = whole["nvidia_smi"][0]
    quiet = xml[xml.index("<?xml"):].replace("<attached_gpus>8<", "<attached_gpus>7<")
    node = made("8xH100", "gpu 5 lost\n", nvidia_smi=(quiet, 0), nvidia_list=("", 1))
    assert len(node.gpus) == 7
    assert node.problems[0].startswith("nvidia_list: ")
    assert "GPU 5 (0000:c3:00.0) is lost: is on the PCI bus and not in nvidia-smi" in node.problems


def test_an_old_driver_that_answers_only_with_the_complaint() -> None:
    """nvidia-smi -q says no more than that a GPU is lost: -L and the bus tell which seven are left."""
    node = made("8xH100", "gpu 5 lost\n", nvidia_topo=None, nvidia_smi=(
        "Unable to determine the device handle for GPU 0000:C3:00.0: GPU is lost.  Reboot the system\n", 15))
    assert [gpu.index for gpu in node.gpus] == [0, 1, 2, 3, 4, 6, 7]
    assert any(problem.startswith("GPU 5 (0000:c3:00.0) is lost") for problem in node.problems)
    assert {gpu.model for gpu in node.gpus} == {"NVIDIA H100 80GB HBM3"}


def test_no_gpu_is_known_only_from_the_bus() -> None:
    gone = dict.fromkeys(("nvidia_smi", "nvidia_list", "nvidia_topo"), ("", 127))
    node = made(**gone, pci=("end=pci\n", 0), nvidia_proc=("end=nvidia\n", 0))
    assert node.gpus == ()
    assert "gpus" not in node.unknown
    assert node.problems == ()
    for pci in (("pci=", 0), ("", 127), None, ("end=pci\n", None)):
        node = made(**gone, pci=pci, nvidia_proc=("end=nvidia\n", 0))
        if pci != ("end=pci\n", None):
            assert "gpus" in node.unknown, pci
            assert node.problems, pci


def test_gpus_and_no_nvidia_smi() -> None:
    gone = dict.fromkeys(("nvidia_smi", "nvidia_list", "nvidia_topo"), ("", 127))
    node = made(**gone, nvidia_proc=("end=nvidia\n", 0))
    assert [gpu.pci for gpu in node.gpus] == ["0000:17:00.0", "0000:31:00.0", "0000:b1:00.0", "0000:ca:00.0"]
    assert {gpu.model for gpu in node.gpus} == {""}
    assert node.gpus[0].pcie_width == 16
    assert node.problems == ("GPUs: 4 NVIDIA GPUs on the PCI bus, but nvidia-smi is not installed",)
    assert "gpus.model" in node.unknown


@pytest.mark.parametrize("said", [
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9), ("", 124), ("", 137),
    ("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<gpu id=\"0000000", 0), ("", None), ("Segmentation fault", 139)])
def test_an_nvidia_smi_that_does_not_answer(said: tuple[str, int | None]) -> None:
    node = made(nvidia_smi=said, nvidia_list=said, nvidia_topo=said)
    assert len(node.gpus) == 4
    assert any(problem.startswith("nvidia_smi: ") for problem in node.problems)
    assert any("nvidia-smi does not answer" in problem for problem in node.problems)


def test_more_attached_than_described_is_unknown() -> None:
    xml = sections("4xA100-pcie")["nvidia_smi"][0].replace("<attached_gpus>4<", "<attached_gpus>6<")
    node = made(nvidia_smi=(xml, 0))
    assert "gpus" in node.unknown
    assert "GPUs: nvidia-smi has 6 attached and describes 4" in node.problems


def test_sources_that_contradict() -> None:
    xml = sections("4xA100-pcie")["nvidia_smi"][0].replace("<minor_number>2<", "<minor_number>7<")
    node = made(nvidia_smi=(xml, 0))
    assert any("minor number 7 in nvidia-smi, 2 in /proc" in problem for problem in node.problems)
    assert any("/dev/nvidia7 is missing" in problem for problem in node.problems)
    lines = ("Architecture: x86_64\nCPU(s): 128\nThread(s) per core: 1\nCore(s) per socket: 64\nSocket(s): 2\n"
             "Model name: A CPU\n")
    node = made(lscpu=(lines, 0), slurmd=("slurm 22.05.8\nNodeName=x CPUs=64 Boards=1 SocketsPerBoard=1 "
                                          "CoresPerSocket=32 ThreadsPerCore=2\n", 0))
    assert "CPU: lscpu counts 2x64x1 (sockets x cores x threads), the kernel 2x32x2" in node.problems
    assert "CPU: slurmd -C counts 1x32x2 (sockets x cores x threads), the kernel 2x32x2" in node.problems


def test_slurm_may_take_numa_nodes_for_sockets() -> None:
    node = made(slurmd=("NodeName=x CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2\n", 0))
    assert node.problems == ()


def test_a_capture_from_inside_a_job_says_so() -> None:
    node = made(cpuset=("Cpus_allowed_list: 0-7\n", 0))
    assert node.problems == ("captured inside a job or container: only CPUs 0-7 of 0-127 are allowed",)


def test_without_sysfs_lscpu_counts() -> None:
    lines = "CPU(s): 128\nThread(s) per core: 2\nCore(s) per socket: 32\nSocket(s): 2\nModel name: A CPU\n"
    node = made(lscpu=(lines, 0), cpu_topology=("", 127))
    assert (node.cpu.sockets, node.cpu.cores_per_socket, node.cpu.model) == (2, 32, "A CPU")
    assert node.cpu.cores == ()
    assert "cpu.cores" in node.unknown
    assert node.problems == ("cpu_topology: there is no such thing on the node",)


@cache
def sound() -> Node:
    return made()


def at_its_limit(name: str) -> str:
    return "x" * facts()[name].limit if facts()[name].limit < 10**6 else "?"


@pytest.mark.parametrize("kinds", [[lambda _: "\x00garbage\n"],
                                   pytest.param([lambda _: "", at_its_limit], marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", sorted(facts()))
def test_one_bad_section_spoils_nothing_else(name: str, kinds: list[Callable[[str], str]]) -> None:
    """Garbage, nothing, or a section cut off at its limit: the rest of the node stays as it was."""
    whole = sound()
    for text in kinds:
        said = (text(name), 0)
        node = made(**{name: said})
        # These are asked for only where others say there is something to show.
        if name not in ("ibstat", "amd_smi", "rocm_smi"):
            assert any(problem.startswith((f"{name}: ", "GPUs: ")) for problem in node.problems), said
        if name not in ("cpu_topology", "numa", "lscpu"):
            assert node.cpu.cores == whole.cpu.cores
        if name not in ("nvidia_smi", "nvidia_proc", "pci", "nvidia_list", "nvidia_nvlink"):
            assert node.gpus == whole.gpus
        if name not in ("infiniband", "net", "pci"):
            assert node.nics == whole.nics


@pytest.mark.deep
def test_a_capture_that_is_cut_off_anywhere() -> None:
    """Never a node with fewer devices and no word about it."""
    text = sim_node.capture("4xA100-pcie")
    whole = read_capture(text, "node01")
    start = text.index("HPCADMIN-CAPTURE") + 60
    for end in range(start, len(text.rstrip()) - 1, max(1, len(text) // 200)):
        node = read_capture(text[:end], "node01")
        assert any("cut off" in problem for problem in node.problems)
        assert len(node.gpus) == len(whole.gpus) or "gpus" in node.unknown or node.gpus == ()
        if not node.gpus:
            assert "gpus" in node.unknown
        if not node.nics:
            assert {"nics", "rdma"} & set(node.unknown)
        if node.cpu != whole.cpu:
            assert {"cpu", "cpu.cores"} & set(node.unknown) or not node.cpu.numa or not node.cpu.model


def test_text_of_a_node_is_printable() -> None:
    node = made(os_release=("PRETTY_NAME=\"\x1b]0;x\x07Linux<script>\"\n", 0), dmi=("product_name=\u202eabc\n", 0))
    assert node.os == "\\x1b]0;x\\x07Linux<script>"
    assert node.product == "\\u202eabc"
