"""Where values come from: every field has a rule, every filled one of a capture is found in it again."""

import contextlib
import json
import re
import tarfile
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import sim_node
from hypothesis import given
from hypothesis import strategies as st

from hpcadmin import intake, inventory, why
from hpcadmin.cli import run
from hpcadmin.errors import UsageError
from hpcadmin.facts import facts, read_capture
from hpcadmin.model import Bmc, Dimm, Disk, Gpu, Inventory, MigDevice, Mount, Nic, Node, Source
from hpcadmin.why import Text
from hpcadmin.why import _locate as locate
from hpcadmin.why._path import leaves, resolve
from hpcadmin.why._rules import COMMANDS, RULES, rule_for

pytestmark = pytest.mark.deep

PROFILE = "8xH100"
# What no line of a capture shows: given from outside, or the judgement of the reader.
NO_LINE = ("name", "unknown", "problems", "sources")


def captured() -> tuple[Node, list[Text]]:
    text = sim_node.capture(PROFILE)
    return read_capture(text, "node01"), [Text("captures/node01.txt", text, ("capture",))]


def patterns(cls: Any = Node, prefix: str = "") -> list[str]:
    found = []
    for item in fields(cls):
        path, hint = f"{prefix}{item.name}", get_type_hints(cls)[item.name]
        args = [arg for arg in get_args(hint) if is_dataclass(arg)]
        if is_dataclass(hint):
            found += patterns(hint, f"{path}.")
        elif args:
            found += patterns(args[0], f"{path}.*.")
        elif "Mapping" in str(hint):
            found.append(f"{path}.*")
        else:
            found.append(path)
    return found


@pytest.mark.parametrize("pattern", patterns())
def test_every_field_of_the_model_has_a_rule(pattern: str) -> None:
    assert any(rule_for(pattern + more) for more in ("", ".*", ".*.*")), f"no rule for {pattern}"


def test_rules_are_of_fields_and_facts_that_there_are() -> None:
    known = [*patterns(), "cpu.cpus", "gpus.*.cores"]
    for pattern, rule in RULES.items():
        assert any(pattern in (each, f"{each}.*", f"{each}.*.*") for each in known), pattern
        for look in rule.looks:
            assert look.section in facts() or look.section in ("lldp", "numactl"), f"{pattern}: {look.section}"
            assert look.section in COMMANDS


def test_every_value_of_a_capture_is_found_in_it_again() -> None:
    node, texts = captured()
    paths, lines = leaves(node), texts[0].text.split("\n")
    assert len(paths) > 150
    for path in paths:
        (one,) = why.explain(node, path, texts)
        assert one.evidence or path.split(".")[0] in NO_LINE, f"{path} = {one.value}: no line"
        for item in one.evidence:
            assert "".join(item.text[:280].split()) in "".join(re.sub("\x1b.[0-9]*m", "", lines[item.line - 1]).split())


def said(path: str, node: Node, texts: list[Text]) -> str:
    return "\n".join(why.lines(why.explain(node, path, texts)))


@pytest.mark.parametrize(("path", "expected"), [
    ("gpus.3.cores", ["gpus.3.cores = 0-55 (of 112 cores; local CPUs 0-55,112-167)", "/sys/bus/pci/devices",
                      "cpus=0-55,112-167", "cpu 0 0 0 0 0", "thread_siblings_list:0,112", "node0/cpulist:"]),
    ("gpus.3.minor", ["gpus.3.minor = 3", "nvidia-smi -q -x", "<minor_number>3</minor_number>", "Device Minor:"]),
    ("gpus.3.device_file", ["/dev/nvidia and the minor number 3", "file /dev/nvidia3"]),
    ("cpu.sockets", ["cpu.sockets = 2", "cpu 0 0 0", "cpu 100 1 0", "lscpu", "Socket(s):", "SocketsPerBoard=",
                     "NUMA nodes are none"]),
    ("memory_mib", ["MemTotal:"]), ("nics.mlx5_0.rate_gbps", ["= 400.0", "rate=400 Gb/sec (4X NDR)"]),
    ("nics.mlx5_0/1.guid", ["rdma=mlx5_0"]), ("gpu_links.0.1", ["= NV18", "nvidia-smi topo -m", ":", "GPU0", "GPU1"]),
    ("gpus.3.uuid", ["(UUID: GPU-"]), ("tools.sbatch", ["sbatch /"]), ("cpu.numa.1.cpus", ["node1/cpulist:"]),
    ("cpu.cores.111.cpus", ["= 111,223", "cpu111/topology/thread_siblings_list"]), ("cpu.cpus", ["= 224"]),
    ("pci.0000:18:00.0.link", ["pci=0000:18:00.0", "32.0 GT/s"]), ("nics.mlx5_0.gpu_relations", ["NIC0: mlx5_0"]),
    ("tools.osu_bw", ["= not there", ": osu_bw"]),
])
def test_a_value_shows_all_that_it_follows_from(path: str, expected: list[str]) -> None:
    node, texts = captured()
    node = replace(node, nics=(replace(node.nics[0], gpu_relations=("PXB",) + ("NODE",) * 7), *node.nics[1:]))
    text = said(path, node, texts)
    for part in expected:
        assert part in text, text


def test_a_whole_record() -> None:
    node, texts = captured()
    found = why.explain(node, "gpus.3", texts)
    assert {"gpus.3.uuid", "gpus.3.pci", "gpus.3.vbios"} <= {one.path for one in found}


def test_sources_that_disagree_stand_side_by_side() -> None:
    node, (text,) = captured()
    places = [number for number, line in enumerate(text.text.split("\n")) if "Device Minor:" in line]
    lines = text.text.split("\n")
    lines[places[3]] = "Device Minor:   5"
    (one,) = why.explain(node, "gpus.3.minor", [replace(text, text="\n".join(lines))])
    assert one.disagree == ("the inventory has 3", f"/proc/driver/nvidia, /dev/nvidia* says 5 (line {places[3] + 1})")
    assert "THE SOURCES DISAGREE" in "\n".join(why.lines((one,)))
    assert why.explain(node, "gpus.2.minor", [text])[0].disagree == ()


@pytest.mark.parametrize(("path", "word"), [
    ("", "has no ''"), ("gpuz", "known are name"), ("gpus.8.uuid", "known are 0, 1"), ("gpus.x", "no 'x'"),
    ("gpus.3.x", "Gpu has no"), ("gpus.3.uuid.x", "has no parts"), ("tools.nothing", "no 'nothing'"), ("gpus", "parts"),
    ("cpu.offline", "not known"), ("dimms.A1", "no 'A1'"),
])
def test_what_is_not_there_is_said(path: str, word: str) -> None:
    node, texts = captured()
    with pytest.raises(UsageError) as info:
        why.explain(node, path, texts)
    assert word in str(info.value)
    assert "\n" not in str(info.value)


DMIDECODE = """Handle 0x1100, DMI type 17, 92 bytes
Memory Device
\tSize: 64 GB
\tLocator: A1
\tBank Locator: BANK 0
\tConfigured Memory Speed: 4800 MT/s
Handle 0x1101, DMI type 17, 92 bytes
Memory Device
\tSize: 32 GB
\tLocator: A2
\tConfigured Memory Speed: 4400 MT/s
"""


@pytest.mark.parametrize(("section", "path", "node", "text", "expected"), [
    ("dimms", "dimms.A2.size_mib", Node("n", dimms=(Dimm("A1"), Dimm("A2", 32768))), DMIDECODE, ["Size: 32 GB"]),
    ("dimms", "dimms.BANK 0 A1.speed_mts", Node("n", dimms=(Dimm("BANK 0 A1", 65536, speed_mts=4800),)), DMIDECODE,
     ["Configured Memory Speed: 4800 MT/s"]),
    ("disks", "disks.nvme0n1.firmware", Node("n", disks=(Disk("nvme0n1", firmware="X1"),)),
     "disk=nvme0n1\tsectors=1\tfw=X1\ndisk=nvme0n10\tfw=X2", ["disk=nvme0n1"]),
    ("mounts", "mounts./scratch.kind", Node("n", mounts=(Mount("/scratch", "a:/b", "lustre"),)),
     "a:/b /scratch lustre rw 0 0\na:/c /scratch2 lustre rw 0 0", ["a:/b /scratch lustre"]),
    ("bmc", "bmc.firmware", Node("n", bmc=Bmc(firmware="7.0")), "ask mc info\nFirmware Revision         : 7.0\nend=bmc",
     ["Firmware Revision"]),
    ("nvidia_smi", "gpus.0.mig_devices.0.gpu_instance",
     Node("n", gpus=(Gpu("nvidia", index=0, pci="0000:1b:00.0", mig_devices=(MigDevice(0, gpu_instance=1),)),)),
     '<gpu id="00000000:1B:00.0">\n<mig_device>\n<gpu_instance_id>1</gpu_instance_id>\n</gpu>', ["<mig_device>"]),
    ("nvidia_smi", "gpus.0.pcie_width", Node("n", gpus=(Gpu("nvidia", index=0, pci="0000:1b:00.0", pcie_width=8),)),
     "GPU 00000000:1B:00.0\n    PCI\n        GPU Link Info\n            Link Width\n                Max : 16x\n"
     "                Current : 8x\n", ["Current : 8x"]),
    ("ibstat", "nics.mlx5_1.rate_gbps", Node("n", nics=(Nic("mlx5_1", rdma="mlx5_1", port=1, rate_gbps=400.0),)),
     "CA 'mlx5_0'\n\tPort 1:\n\t\tRate: 100\nCA 'mlx5_1'\n\tPort 1:\n\t\tRate: 400\n", ["Port 1:"]),
])
def test_other_outputs(section: str, path: str, node: Node, text: str, expected: list[str]) -> None:
    frame = f"@{'a' * 32}"
    capture = f"HPCADMIN-CAPTURE 1 {frame[1:]}\n\n{frame} begin {section} limit=9\n{text}\n{frame} stderr {section}\n"
    (one,) = why.explain(node, path, [Text("n.txt", capture)])
    quoted = [item.text for item in one.evidence]
    assert quoted
    for part in expected:
        assert any(part in line for line in quoted), quoted
    if path == "disks.nvme0n1.firmware":
        assert len(quoted) == 1


def test_a_text_that_somebody_had() -> None:
    node = Node("n", gpus=tuple(Gpu("nvidia", index=n) for n in range(2)), gpu_links=(("X", "NV4"), ("NV4", "X")))
    text = "prompt$ nvidia-smi topo -m\n\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"
    (one,) = why.explain(node, "gpu_links.0.1", [Text("topo.txt", text, ("nvidia-smi topo -m",))])
    assert [item.line for item in one.evidence] == [2, 3, 4]


@given(st.text(), st.text(max_size=40))
def test_any_text_and_any_path(text: str, path: str) -> None:
    node = Node("n", gpus=(Gpu("nvidia", index=0, pci="0000:1b:00.0"),), tools={"a.b": "/x"})
    with contextlib.suppress(UsageError):
        why.explain(node, path, [Text("x", text, ("lscpu",))])
    why.explain(node, "gpus.0", [Text("x", f"HPCADMIN-CAPTURE 1 {'a' * 32}\n@{'a' * 32} begin pci \n{text}")])


@pytest.mark.deep
def test_locators_take_time_by_length() -> None:
    import time
    node, _ = captured()
    lines = ["<gpu id=", "GPU 0", "Memory Device", "cpu 1 2 3 4 5 6"] * 50_000
    start = time.process_time()
    for path in ("gpus.0.vbios", "gpus.0.cores", "gpu_links.0.1", "nics.mlx5_0.rate_gbps", "cpu.sockets"):
        target = resolve(node, path)
        for look in RULES[target.pattern].looks:
            look.find(lines, target)
    assert locate.SHOWN < 20
    assert time.process_time() - start < 10


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Path]:
    text = sim_node.capture(PROFILE)
    capture, file = tmp_path / "node01.txt", tmp_path / "inventory.json"
    capture.write_text(text)
    node = replace(read_capture(text, "node01"),
                   sources=(Source(str(capture), ("capture",), sha256(text.encode()).hexdigest()),))
    inventory.save(file, Inventory((node, replace(node, name="node02", sources=()))))
    return file, capture


def test_command(kept: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    file, capture = kept
    ask = ["inventory", "show", "node01", "-f", str(file), "--why"]
    assert run([*ask, "gpus.3.cores"]) == 0
    assert f"    {capture}:" in capsys.readouterr().out
    assert run([*ask, "memory_mib", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["explanations"][0]["evidence"][0]["command"] == "/proc/meminfo"
    assert run(["inventory", "show", "-f", str(file), "--why", "x"]) == 2
    assert run([*ask, "x"]) == 2
    capsys.readouterr()
    assert run(["inventory", "show", "node02", "-f", str(file), "--why", "cpu.sockets"]) == 3
    assert "no capture of it was kept" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "word"), [
    (lambda path: path.write_text("x"), "is not what it was"), (lambda path: path.unlink(), "cannot be read"),
    (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "cannot be read"),
])
def test_a_capture_that_is_gone_or_changed(kept: tuple[Path, Path], change: Any, word: str,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    file, capture = kept
    change(capture)
    assert run(["inventory", "show", "node01", "-f", str(file), "--why", "cpu.sockets"]) == 3
    out, err = capsys.readouterr()
    assert word in err
    assert len(err.strip().split("\n")) == 1
    assert "cpu.sockets = 2" in out
    assert "no line of the capture shows it" in out


TOPO = ["\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV4\t0-7", "GPU1\tNV4\t X \t0-7"]
RULE = "-" * 15
# What is read, as members of an archive or as one file; and which line of it says NV4 of node n2.
FORMS: list[tuple[dict[str, list[str]], str, int]] = [
    ({"all.txt": [f"n{node}: {line}" for line in TOPO for node in (1, 2)]}, "all.txt", 4),
    ({"all.txt": [RULE, "n1", RULE, "no", RULE, "n[2-3] (2)", RULE, *TOPO]}, "all.txt", 9),
    ({"n1.txt": TOPO, "n2.txt": ["$ nvidia-smi topo -m", *TOPO]}, "all.tar.gz:n2.txt", 3),
    ({"x/a.txt": [f"n{node}: {line}" for line in TOPO for node in (2, 5)]}, "all.tar.gz:x/a.txt", 3),
]


@pytest.mark.parametrize(("files", "told", "line"), FORMS)
@pytest.mark.parametrize("apart", [True, False])
def test_one_of_many_in_a_text_or_archive(
    files: dict[str, list[str]], told: str, line: int, *, apart: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if not apart:
        monkeypatch.setattr(intake, "MAX_PLACED", 0)
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    given = told.partition(":")[0]
    if given.endswith(".gz"):
        with tarfile.open(given, "w:gz") as packed:
            for name in files:
                packed.add(name)
    assert run(["discover", "--from", given, "-o", "i.json"]) == 3
    capsys.readouterr()
    assert run(["inventory", "show", "n2", "-f", "i.json", "--why", "gpu_links.0.1"]) == 0
    assert f"    {told}:{line}: GPU0   X   NV4  0-7" in capsys.readouterr().out
    (tmp_path / given).write_bytes(b"n1: changed\n" * 9)
    assert run(["inventory", "show", "n2", "-f", "i.json", "--why", "gpu_links.0.1"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
