"""The formats of this folder's facts as real machines print them: nvidia-smi -q -x, topo -m and lscpu of the corpus.

Compared is what the files determine. What is only to be reported (an old driver, a slice of a GPU) is another matter.
"""

import json
from pathlib import Path

import pytest
from looped import looped

from hpcadmin.errors import ParseError
from hpcadmin.facts import facts
from hpcadmin.facts._base import cpu_list, pci_address
from hpcadmin.text import fold_ids

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "topo"
pytestmark = [pytest.mark.corpus,
              pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of captures does not lie beside the project")]

# Settled by reading the file: it has no header, so which columns are GPUs would be a guess.
REFUSED = {"topo-m/vllm16336_b200_gpu2-off-fabric_part.txt"}
# Printed as numbers in the summary, "-" in the table below it, which is no part of what the probe asks for.
ONLY_IN_THE_TABLE = {"host/lscpu_ppc64-POWER7-64cpu.txt": {"sockets", "cores_per_socket"}}


def cases(*kinds: str) -> list[tuple[str, dict]]:
    found = []
    for name in ("expected-smi-topo.json", "expected-rest.json"):
        path = CORPUS / name
        if path.is_file():
            found += [(key, value) for key, value in json.loads(path.read_text()).items() if value["kind"] in kinds]
    return found


def text_of(name: str) -> str:
    return (CORPUS / name).read_text(errors="replace")


def ids(text: str | None) -> tuple[int, ...] | None:
    return cpu_list(text, "affinity") if text else None


@looped(("name", "right"), cases("topo-m", "topo-mp"))
def test_topo(name: str, right: dict) -> None:
    if name in REFUSED:
        assert right["must_refuse"]
        with pytest.raises(ParseError):
            facts()["nvidia_topo"].parse(text_of(name))
        return
    topo = facts()["nvidia_topo"].parse(text_of(name))
    assert len(topo.gpus) == right["gpus"]
    assert [[cell or None for cell in row] for row in topo.links] == right["gpu_matrix"]
    assert [ids(text) for text in topo.cpu_affinity] == [ids(text) for text in right["gpu_cpu_affinity_os"]]
    if right["gpu_numa"] is not None:
        assert [text or None for text in topo.numa_affinity] == \
            [None if value is None else str(value) for value in right["gpu_numa"]]
    relations = {device or label: [row[place] or None for row in topo.nic_links]
                 for place, (label, device) in enumerate(zip(topo.nics, topo.nic_devices, strict=True))}
    assert relations == {nic: value["relations"] for nic, value in right["nics"].items()}


@looped(("name", "right"), cases("smi-xml"))
def test_smi_xml(name: str, right: dict) -> None:
    smi = facts()["nvidia_smi"].parse(text_of(name))
    assert (smi.driver or None) == right["driver"]
    assert smi.attached == right["attached_gpus"]
    assert len(smi.gpus) == len(right["gpus"])
    for gpu, expected in zip(smi.gpus, right["gpus"], strict=True):
        assert gpu.pci == pci_address(expected["pci"])
        assert (gpu.minor, gpu.model, gpu.uuid) == (expected["minor"], expected["name"], expected["uuid"])
        assert gpu.memory_mib == expected["memory_mib"]
        assert (gpu.mig or "N/A") == (expected["mig_mode"] or "N/A")


@pytest.mark.parametrize(("name", "right"), cases("smi-error"))
def test_smi_errors_name_the_gpu(name: str, right: dict) -> None:
    with pytest.raises(ParseError) as caught:
        facts()["nvidia_smi"].parse(text_of(name))
    assert right["errors"][0]["pci"] in caught.value.what
    assert facts()["nvidia_list"].parse(text_of(name)).lost[0].pci == right["errors"][0]["pci"]


@looped(("name", "right"), cases("lscpu"))
def test_lscpu(name: str, right: dict) -> None:
    lscpu = facts()["lscpu"].parse(text_of(name))
    ours = {
        "sockets": lscpu.sockets, "cores_per_socket": lscpu.cores_per_socket, "cpus": lscpu.cpus,
        "threads_per_core": lscpu.threads_per_core, "online": fold_ids(lscpu.online) or None,
        "offline": fold_ids(lscpu.offline) or None, "model": lscpu.model or None,
        "numa_nodes": {str(node): fold_ids(cpus) for node, cpus in lscpu.numa.items()} if lscpu.numa else None,
    }
    for key in ours.keys() & right.keys() - ONLY_IN_THE_TABLE.get(name, set()):
        expected = " ".join(right[key].split()) if key == "model" and right[key] else right[key]
        assert ours[key] == expected, key
