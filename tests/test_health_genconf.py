"""health.toml made from an inventory, or from an nhc.conf, and what the compiler says of it."""

import json
from dataclasses import replace
from pathlib import Path

import nhc_machine
import pytest
import tomllib
from click.testing import CliRunner

from hpcadmin import inventory
from hpcadmin.catalogue import load_limits
from hpcadmin.cli import root
from hpcadmin.health import accepted
from hpcadmin.health.compile import compile_text
from hpcadmin.health.genconf import from_inventory, node_masks
from hpcadmin.health.genconf_nhc import from_nhc
from hpcadmin.health.node import config, load, masks, smbios
from hpcadmin.health.node import inventory as inventory_of_node
from hpcadmin.health.node.api import BAD, GOOD
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.nhc import KNOWN, known
from hpcadmin.health.toml_text import Table, document, table_text, value_text
from hpcadmin.model import Cpu, Dimm, Disk, Gpu, Mount, Nic, Node, PciDevice
from hpcadmin.site import Site
from tests import smbios_dump
from tests.health_looks import look
from tests.health_machine import Machine


def gpu(number: int) -> Gpu:
    return Gpu("nvidia", number, "NVIDIA H100 80GB HBM3", pci=f"0000:{number:02x}:00.0", memory_mib=81559,
               vbios="96.00.74.00.01", pcie_gen_max=5, pcie_width_max=16, ecc="Enabled", fabric_state="Completed",
               nvlinks_active=18, nvlinks_inactive=0, mig="Disabled")


def port(name: str, rate: float, state: str = "ACTIVE", layer: str = "InfiniBand") -> Nic:
    return Nic(name, rdma=name, port=1, link_layer=layer, state=state, rate_gbps=rate)


def gpu_node(name: str, gpus: int = 8, memory: int = 2063000) -> Node:
    return Node(name, cpu=Cpu("x", "x86_64", 2, 56, 2), memory_mib=memory, gpus=tuple(gpu(i) for i in range(gpus)),
                nics=(*(port(f"mlx5_{i}", 400.0) for i in range(8)), port("mlx5_8", 10.0, "DOWN"),
                      Nic("eno1", netdev="eno1", link_layer="Ethernet", state="up", rate_gbps=25.0, mtu=9000)),
                gpu_driver="550.54.15", dimms=tuple(Dimm(f"A{i}", 65536, "DDR5", 4800) for i in range(32)),
                mounts=(Mount("/home", "nfs1:/export/home", "nfs4", "rw,vers=4.2"),
                        Mount("/apps", "nfs1:/apps", "nfs4", "ro")))


def cpu_node(name: str) -> Node:
    return Node(name, cpu=Cpu("x", "x86_64", 2, 56, 2), memory_mib=515000,
                nics=(port("mlx5_0", 200.0), port("mlx5_1", 100.0)))


FLEET = [*(gpu_node(f"gpu{i:03d}", memory=2063000 + i) for i in range(1, 41)), gpu_node("gpu041", gpus=4),
         *(cpu_node(f"cpu{i}") for i in range(1, 13)), Node("login", unknown=("gpus (no driver)", "nics", "mounts"))]


def made(nodes: list[Node]) -> list[config.Entry]:
    """The entries of the configuration; it must be sound."""
    compiled = compile_text(from_inventory(nodes, load_limits(Site())), "health.toml", [node.name for node in nodes])
    assert not compiled.problems
    return config.parse(json.loads(compiled.text)).entries


def of(entries: list[config.Entry], node: str, use: str) -> list[config.Entry]:
    return [entry for entry in entries if entry.use == use and entry.here(node, "health")]


def test_each_node_is_asked_for_what_it_has() -> None:
    entries = made(FLEET)
    assert [entry.params["count"] for entry in of(entries, "gpu007", "gpu")] == [8]
    assert [entry.params["count"] for entry in of(entries, "gpu041", "gpu")] == [4]
    assert not of(entries, "cpu3", "gpu")
    assert not of(entries, "login", "cpu")
    assert [entry.params["min_mib"] for entry in of(entries, "gpu040", "memory")] == [2063000]
    assert [entry.params["min_mib"] for entry in of(entries, "cpu12", "memory")] == [515000]
    assert of(entries, "gpu001", "gpu_nvlink")[0].params == {"links": 18}
    assert of(entries, "gpu001", "dimms")[0].params == {"count": 32, "total_gib": 2048, "size_gib": 64, "min_mts": 4800}
    assert {entry.params["path"]: entry.params["mode"] for entry in of(entries, "gpu001", "mount")} == {
        "/home": "rw", "/apps": "ro"}
    assert of(entries, "gpu001", "cpu")[0].params == {"sockets": 2, "cores": 112, "threads": 224, "offline": 0}


def test_ports_are_asked_by_their_rates() -> None:
    entries = made(FLEET)
    (whole,) = of(entries, "gpu001", "ib")
    assert whole.params == {"device": "*", "ports": 8, "min_gbps": 400, "ignore": ["mlx5_8:1"]}
    assert sorted((entry.params["device"], entry.params["min_gbps"]) for entry in of(entries, "cpu1", "ib")) == [
        ("mlx5_0:1", 200), ("mlx5_1:1", 100)]


def test_patterns_are_folded_and_fit_no_other_node() -> None:
    entries = made(FLEET)
    assert of(entries, "gpu001", "gpu")[0].nodes == ["gpu[001-040]"]
    assert sorted(of(entries, "gpu001", "gpu_driver")[0].nodes) == ["gpu[001-041]"]
    names = [node.name for node in FLEET]
    for entry in entries:
        if entry.nodes:
            assert [name for name in names if masks.any_matches(entry.nodes, name, node=True)]
    assert node_masks(["n1", "n2", "n10"], ["n1", "n2", "n10", "n11"]) == ["n[1-2,10]"]


def test_what_is_unknown_or_unlike_is_said() -> None:
    text = from_inventory(FLEET)
    assert "# Not asked for, since it is not known: cpu of login\n" in text
    assert "gpu041: 4 GPUs, the group has 8" in text
    assert "# not active when it was discovered: mlx5_8:1\n" in text


def test_gpus_of_amd() -> None:
    amd = tuple(Gpu("amd", i, "MI300X", pci=f"0000:{i:02x}:00.0", vbios="113-1", pcie_width_max=16) for i in range(8))
    (entry,) = of(made([replace(cpu_node("a1"), gpus=amd)]), "a1", "gpu_amd")
    assert entry.params == {"count": 8, "vbios": "113-1", "width": 16}


def test_names_that_are_patterns_are_taken_literally() -> None:
    odd = replace(gpu_node("a1"), mounts=(Mount("/data[1]", "srv:/x*", "nfs4", "rw"),))
    entry = next(entry for entry in made([odd]) if entry.use == "mount")
    assert masks.matches(str(entry.params["path"]), "/data[1]")
    assert not masks.matches(str(entry.params["path"]), "/data1")
    assert not masks.matches(str(entry.params["source"]), "srv:/xyz")


NHC = r"""# an old file
* || export MARK_OFFLINE=0
* || DISK=/scratch
{gpu[001-100]} || check_hw_cpuinfo 2 8 16
/^gpu/ || check_hw_ib 200
* || check_hw_physmem 32gb 32gb 5%
* || check_fs_mount_rw -t lustre -f $DISK
* || check_fs_free /tmp 5%
* || check_file_test -r -w -x -d -k /tmp /var/tmp
* || check_file_stat -m 0666 -u 0 -t 1 -T 3 /dev/null
* || check_cmd_output -m '/x/' $(which foo)
* || check_ps_unauth_users log syslog kill
* || my_own_check 5
* || check_hw_eth eno1 || true
* || check_net_socket -p tcp -s LISTEN -l '*:22' -d sshd
n[01]* || check_hw_eth lo
no bars
* || check_hw_eth 'eno1
"""


def test_an_nhc_conf_is_carried_over() -> None:
    text = from_nhc(NHC, "nhc.conf")
    compiled = compile_text(text, "health.toml")
    assert compiled.sound and not compiled.problems
    entries = config.parse(json.loads(compiled.text)).entries
    assert [(entry.use, entry.nodes) for entry in entries] == [
        ("cpu", ["{gpu[001-100]}"]), ("ib", ["/^gpu/"]), ("memory", []), ("mount", []), ("space", []), ("file", []),
        ("file", []), ("file", []), ("socket", [])]
    by_key = {entry.key: entry.params for entry in entries}
    assert by_key["memory:line6"] == {"min_mib": 32768, "max_mib": 32768, "tolerance_percent": 5}
    assert by_key["mount:line7"] == {"path": "/scratch", "type": "lustre", "mode": "rw"}
    assert by_key["socket:line15"]["local_port"] == 22
    reasons = [line for line in text.split("\n") if "not carried over" in line]
    assert [line.split(",")[0] for line in reasons[1:]] == [f"# line {n}" for n in (2, 3, 11, 12, 13, 14, 16, 17, 18)]
    assert "#     * || my_own_check 5\n" in text


@pytest.mark.parametrize(("mask", "wanted"), [
    ("{n[1-10]}", ["{n[01-10]}"]), ("{n[10-01],login1}", ["{n[01-10],login1}"]), ("!{n[008-12]x}", ["!{n[008-012]x}"]),
    ("{n[1-3]}", ["{n[1-3]}"]), ("/^n/", ["/^n/"]), ("*", None), ("gpu*", ["gpu*"])])
def test_nodes_are_those_of_nhc(mask: str, wanted: list[str] | None) -> None:
    entry = tomllib.loads(from_nhc(f"{mask} || check_hw_eth lo\n", "nhc.conf"))["check"][0]
    assert entry.get("nodes") == wanted


@pytest.mark.parametrize("line", [
    "/ || check_hw_eth lo", "* || check_hw_eth /lo/", "* || check_fs_mount_rw ''", "* || check_file_test -f ''",
    "* || check_file_test -f '/a b'", "* || check_file_stat -U UNKNOWN /etc", "* || check_cmd_status -t 31 true",
    "* || check_cmd_output -m '!*' true", "* || check_dmi_raw_data_match", "* || check_ps_kswapd 100 10 ignore die",
    "* || check_ps_unauth_users ignore die", "* || check_net_socket", "* || check_net_socket -p unix -u root",
    "* || check_net_ping ''"])
def test_what_would_judge_otherwise_is_left_out(line: str) -> None:
    text = from_nhc(line + "\n", "nhc.conf")
    assert "not carried over: " in text and "[[check]]" not in text


def test_every_check_of_nhc_is_carried_over_or_refused_with_a_reason() -> None:
    """Over the whole table of configurations: what comes out is always sound."""
    table = Path(__file__).parent / "samples" / "nhc" / "table.tsv"
    cells = {line.split("\t", 6)[6] for line in table.read_text().split("\n") if line and line[0] != "#"}
    text = "".join(nhc_machine.conf_text(cell.rstrip("⊣")) for cell in sorted(cells))
    compiled = compile_text(from_nhc(text, "nhc.conf"), "health.toml")
    assert compiled.sound, compiled.problems[:5]
    used = {entry["use"] for entry in compiled.tree["check"]}
    assert {"cpu", "memory", "swap", "ib", "link", "mount", "space", "file", "contents", "command", "kernel_log", "dmi",
            "gpu", "process", "usage", "users", "load", "kswapd", "ping", "socket", "edac", "mce"} <= used
    assert len(KNOWN) == 46
    assert all(callable(known(name)) for name in KNOWN)


def test_hostile_text_stays_a_comment() -> None:
    assert table_text(Table(notes=("a\n[[check]]\nuse = 'x'", "b\x1b[31m\r"))) == (
        "# a\n# [[check]]\n# use = 'x'\n# b?[31m?\n")
    text = 'quote " \\ \x7f \x00 é\n'
    assert tomllib.loads(f"x = {value_text(text)}") == {"x": text}
    assert tomllib.loads(document(["x"], [Table("a", {"n": 2.5, "flag": True, "list": ["x", "y"], "none": None})])) == {
        "check": [{"use": "a", "n": 2.5, "flag": True, "list": ["x", "y"]}]}


WRONG = """foo = 1
[[check]]
use = "mount"
path = "/home"
[[check]]
use = "mount"
path = "/scratch"
[[check]]
use = "cpus"
[[check]]
use = "ib"
min_gbps = "400"
[[check]]
use = "link"
name = "/x(/"
[[check]]
use = "swap"
when = ["night"]
[[check]]
use = "load"
nodes = ["a,b", "@gpu", "n[1", "/x(/"]
"""


def test_every_fault_has_its_line() -> None:
    compiled = compile_text(WRONG, "h.toml")
    assert not compiled.sound
    assert [(problem.where, problem.what.split(":")[0]) for problem in compiled.problems] == [
        ("h.toml:1", "unknown key foo; known"), ("h.toml:5", "a second entry is called mount (the first in line 2)"),
        ("h.toml:9", "there is no check cpus; known"), ("h.toml:12", "ib"), ("h.toml:15", "link"),
        ("h.toml:18", "swap"), ("h.toml:21", "load")]
    assert compile_text("x = [\n", "h.toml").problems[0].where == "h.toml:2"
    assert "no [[check]]" in compile_text("", "h.toml").problems[0].what


def test_masks_that_fit_no_node_and_checks_of_the_site_are_warned_of() -> None:
    text = 'checks = "/etc/hpcadmin/checks"\n[[check]]\nuse = "ours"\nnodes = ["gpu[1-3]"]\n'
    compiled = compile_text(text, "h.toml", ["cpu1"])
    assert compiled.sound
    assert [str(problem).split(": ")[:2] for problem in compiled.problems] == [
        ["h.toml:4", "warning"], ["h.toml:3", "warning"]]


def test_defaults_of_every_check_can_be_compiled() -> None:
    for name in load.names():
        compiled = compile_text(f'[[check]]\nuse = "{name}"\n', "h.toml")
        assert compiled.sound or "must be given" in compiled.problems[0].what


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inventory.save(tmp_path / "inventory.json", inventory.build(FLEET))
    (tmp_path / "nhc.conf").write_text(NHC)
    return tmp_path


def run(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(root, ["health", *(str(arg) for arg in args)], standalone_mode=False)
    if done.exception:
        return getattr(done.exception, "exit_status", 99), str(done.exception)
    return done.return_value or 0, done.output


def test_the_accepted_inventory_fits_the_node_that_it_is_of(tmp_path: Path) -> None:
    """By the names that the node itself uses, so that nothing is gone and nothing new; one other serial is told."""
    machine = Machine(tmp_path / "root")
    machine.cpus(2, 56, 2)
    machine.meminfo(2063000 << 10)
    modules = [smbios_dump.Module(f"DIMM A{n}", size_mib=65536, speed=5600, configured=4800, serial=f"S{n}", part="P")
               for n in range(4)]
    machine.file(smbios.TABLE, smbios_dump.system("V", "M", "SER1") + smbios_dump.memory(modules)
                 + smbios_dump.structure(127, 0x7F00, b"", []))
    machine.gpu_on_bus("0000:19:00.0")
    machine.file("/sys/class/nvme/nvme3/address", "0000:01:00.0\n")
    machine.file("/sys/class/nvme/nvme3/serial", "N1   \n")
    machine.file("/proc/cpuinfo", "model name : X\n")
    machine.port("mlx5_0")
    machine.file("/sys/class/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
    node = Node("gpu001", cpu=Cpu("x", "x86_64", 2, 56, 2), memory_mib=2063000, serial="SER1",
                dimms=tuple(Dimm(f"DIMM A{n}", 65536, "DDR5", 4800, part="P", serial=f"S{n}") for n in range(4)),
                pci=(PciDevice("0000:19:00.0", "030200", "10de", "2330", link="32.0 GT/s PCIe x16"),),
                nics=(replace(port("mlx5_0", 400.0), firmware="28.39.1002"),),
                disks=(Disk("nvme3n1", serial="N1", transport="nvme", pci="0000:01:00.0"),))
    told = inventory_of_node.collect(Door(str(machine.root)))
    for name, value in accepted.facts(node).items():
        assert name in told, name
        assert name == "pci.0000:19:00.0.id" or told[name] == value, name
    path = tmp_path / "accepted.json"
    path.write_text(accepted.text([replace(node, pci=())]))
    assert look(machine, "drift", accepted=str(path)) == (GOOD, "", False)
    path.write_text(accepted.text([replace(node, pci=(), serial="SER2")]))
    assert look(machine, "drift", accepted=str(path)) == (BAD, "system.serial is SER1, was SER2", False)


def test_command_line(folder: Path) -> None:
    toml, out = folder / "health.toml", folder / "health.json"
    assert run("genconf", "--from-inventory", folder / "inventory.json", "-o", toml)[0] == 0
    assert run("genconf", "--from-inventory", folder / "inventory.json", "-o", toml)[0] == 2      # never over a file
    assert run("check", toml, "-f", folder / "inventory.json") == (0, f"{toml}: {len(made(FLEET))} entries, sound\n")
    assert run("compile", toml, "-o", out)[0] == 0
    assert config.parse(json.loads(out.read_text())).entries
    status, text = run("show", toml, "-w", "gpu[001-003],cpu1")
    assert status == 0 and text.startswith("cpu1: cpu, ") and "\ngpu[001-003]: cpu, " in text
    status, text = run("genconf", "--from-inventory", folder / "inventory.json", "-w", "cpu[1-3]")
    assert status == 0 and "gpu" not in text
    assert run("genconf", "--from-inventory", folder / "inventory.json", "-w", "x1")[0] == 2
    status, text = run("genconf", "--from-inventory", folder / "inventory.json", "--accepted", folder / "accepted.json")
    assert status == 0 and tomllib.loads(text)["check"][-1]["use"] == "drift"
    assert json.loads((folder / "accepted.json").read_text())["nodes"]["cpu1"] == {
        "cpu.cores": 112, "cpu.sockets": 2, "memory.mib": 515000}
    assert run("genconf", "--from-inventory", folder / "inventory.json", "--accepted", folder / "accepted.json")[0] == 2
    assert run("genconf", "--from-nhc", folder / "nhc.conf", "--accepted", folder / "a.json")[0] == 2
    assert run("genconf", "--from-nhc", folder / "nhc.conf", "-w", "x1")[0] == 2
    assert run("genconf", "--from-nhc", folder / "nhc.conf")[0] == 0
    toml.write_text(WRONG)
    status, text = run("check", toml, "--json")
    assert status == 1 and len(json.loads(text)["problems"]) == 7
    assert run("compile", toml, "-o", folder / "never.json")[0] == 1
    assert not (folder / "never.json").exists()
    assert run("show", toml)[0] == 2
