"""Discovery for real: over ssh on nodes with simulated hardware, with faults, noise and full disks; and from texts."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import fabric_trees
import pytest
import test_redfish
from labtool import BIN, Done, Lab, lab
from loopback import wait_until

pytestmark = pytest.mark.lab
NODES = [f"node0{i}" for i in range(1, 5)]
ALL = "node[01-04]"
# What a copy without names, addresses and serial numbers may differ in.
IDENTITIES = {"hostname", "serial", "uuid", "mac", "guid", "port_guid", "addresses", "board_serial", "chassis_serial"}
PLACES = {"path", "sha256"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab("disco", "10.242.31.0/24", tmp_path_factory.mktemp("shared"), "--hardware", "8xH100",
             "--hardware-node", "node04=4xA100-pcie") as made:
        done = discover(made, "-w", ALL, "--captures", "caps", "-o", "before.json")
        assert done.status == 0, done.out + done.err
        yield made


def discover(cluster: Lab, *args: str, timeout: float = 240) -> Done:
    return cluster.hpcadmin("discover", *args, timeout=timeout)


def written(cluster: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cluster.home / name).read_text())
    return found


def nodes(inventory: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in inventory["nodes"]}


def hardware(inventory: dict[str, Any]) -> dict[str, Any]:
    """GPUs and links of each node, as a matrix alone can tell them."""
    return {name: ([gpu["index"] for gpu in node["gpus"]], node["gpu_links"])
            for name, node in nodes(inventory).items()}


def as_root(cluster: Lab, text: str, node: str = "head") -> Done:
    return cluster.lab("exec", "--node", node, "--user", "root", "--", "sh", "-c", text)


# --- what was found, shown ----------------------------------------------------------------------------------------


def test_groups_and_captures(cluster: Lab) -> None:
    before = written(cluster, "before.json")
    assert {tuple(group["nodes"]): len(nodes(before)[group["nodes"][0]]["gpus"]) for group in before["groups"]} == {
        ("node01", "node02", "node03"): 8, ("node04",): 4}
    for name, node in nodes(before).items():
        assert node["simulated"] == ("4xA100-pcie" if name == "node04" else "8xH100")
        capture = cluster.home / "caps" / f"{name}.txt"
        assert capture.stat().st_mode & 0o777 == 0o600
        assert node["sources"][0]["path"].endswith(f"caps/{name}.txt")


@pytest.mark.parametrize("path", [
    "gpus.3.cores", "gpus.5", "cpu.sockets", "nics.mlx5_2.rate_gbps", "gpu_links.0.7", "bios"])
def test_why(cluster: Lab, path: str) -> None:
    done = cluster.hpcadmin("inventory", "show", "-f", "before.json", "node02", "--why", path, "--json")
    assert done.status == 0, done.err
    assert done.json()["complaints"] == []
    for told in done.json()["explanations"]:
        assert told["evidence"], told["path"]
        assert not told["disagree"]
        for item in told["evidence"]:
            assert item["file"].endswith("caps/node02.txt")
            lines = (cluster.home / "caps" / "node02.txt").read_text().split("\n")
            line = re.sub("\x1b\\[[0-9]*m", "", lines[item["line"] - 1])
            assert "".join(item["text"].split()) == "".join(line.split())
            assert line.strip()


def test_a_value_that_is_not_there(cluster: Lab) -> None:
    done = cluster.hpcadmin("inventory", "show", "-f", "before.json", "node02", "--why", "gpus.9.cores")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    done = cluster.hpcadmin("inventory", "show", "-f", "before.json", "node77")
    assert (done.status, done.err) == (2, "hpcadmin: before.json: no node 'node77' in the inventory\n")


def test_topology(cluster: Lab) -> None:
    node = nodes(written(cluster, "before.json"))["node02"]
    done = cluster.hpcadmin("inventory", "topology", "-f", "before.json", "node02")
    assert done.status == 0
    assert "simulated" in done.out
    for gpu in node["gpus"]:
        assert f"GPU {gpu['index']} NVIDIA H100 80GB HBM3 {gpu['pci']}" in done.out
    for nic in node["nics"]:
        assert nic.get("rdma", nic["name"]) in done.out or nic["virtual"]
    assert "--gpu-bind=map_gpu:0,1,2,3,4,5,6,7" in done.out

    done = cluster.hpcadmin("inventory", "topology", "-f", "before.json", "node02", "--svg", "n.svg", "--nccl", "n.xml")
    assert (done.status, done.out) == (0, "")
    svg = ElementTree.fromstring((cluster.home / "n.svg").read_text())  # noqa: S314  (our own)
    text = " ".join("".join(svg.itertext()).split())
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert all(f"GPU {gpu['index']}" in text and gpu["pci"] in text for gpu in node["gpus"])
    assert "simulated" in text.lower()
    system = ElementTree.fromstring((cluster.home / "n.xml").read_text())  # noqa: S314  (our own)
    pairs = 0
    for switch in system.findall("./cpu/pci"):
        assert switch.get("class") == "0x060400"
        gpus, nets = switch.findall(".//gpu"), switch.findall(".//net")
        pairs += [gpu.get("dev") for gpu in gpus] == [(net.get("name") or "").removeprefix("mlx5_") for net in nets]
    assert pairs == 8


# --- changes, and the order ---------------------------------------------------------------------------------------


def test_a_lost_gpu_and_its_return(cluster: Lab) -> None:
    assert cluster.lab("fault", "node02", "--gpu", "5", "lost").status == 0
    try:
        done = discover(cluster, "-w", ALL, "-o", "lost.json")
        assert done.status == 1
        assert "node02: 7 GPUs, the group has 8; missing: GPU 5 (0000:c3:00.0)" in done.out
        done = cluster.hpcadmin("inventory", "diff", "before.json", "lost.json", "--json")
        assert done.status == 1
        assert {change["node"] for change in done.json()["changes"]} == {"node02"}
        assert "GPU 5" in cluster.hpcadmin("inventory", "diff", "before.json", "lost.json").out
        # Who is lost has its place in no file that is made from this.
        assert cluster.hpcadmin("inventory", "topology", "-f", "lost.json", "node02", "--nccl", "lost.xml").status == 0
        assert (cluster.home / "lost.xml").read_text().count("<gpu ") == 7
    finally:
        assert cluster.lab("fault", "node02", "--heal").status == 0
    assert discover(cluster, "-w", ALL, "-o", "after.json").status == 0
    done = cluster.hpcadmin("inventory", "diff", "before.json", "after.json")
    assert (done.status, done.out) == (0, "no difference (4 nodes)\n")
    assert cluster.hpcadmin("inventory", "diff", "before.json", "absent.json").status == 2


ORDER = """
title = "PO-1"
[groups.gpu]
hosts = "node[01-03,05]"
product = "DGXH100"
[[groups.gpu.gpus]]
count = 8
model = "H100 80GB HBM3"
nvlinks = 18
[[groups.gpu.nics]]
count = {ports}
kind = "InfiniBand"
rate_gbps = 400
[groups.small]
hosts = "node04"
[[groups.small.gpus]]
count = 4
model = "{model}"
"""


def test_the_order(cluster: Lab) -> None:
    def compared(**words: Any) -> Done:
        (cluster.home / "order.toml").write_text(ORDER.format(**words))
        return discover(cluster, "--from", "caps", "-o", "x.json", "--expect", "order.toml")

    done = compared(ports=9, model="A100 40GB PCIe")
    assert done.status == 1
    lines = [line.strip() for line in done.out.partition("Order: ")[2].splitlines()[1:]]
    # No odd one out: all have one port less than was bought.
    assert "node[01-03]: network ports: ordered 9x InfiniBand 400 Gb/s, found 8x InfiniBand MT4129 400 Gb/s" in lines
    assert any(line.startswith("node04: ") and "A100 40GB PCIe" in line for line in lines)
    assert "node05: node: ordered one of gpu, found nothing" in lines
    assert len(lines) == 3
    (cluster.home / "order.toml").write_text(ORDER.format(ports=8, model="A100 80GB PCIe").replace(",05", ""))
    done = discover(cluster, "-w", ALL, "-o", "x.json", "--expect", "order.toml")
    assert done.status == 0, done.out
    assert "as ordered" in done.out
    (cluster.home / "order.toml").write_text("[groups.gpu]\ncuont = 3\n")
    done = discover(cluster, "-w", ALL, "-o", "x.json", "--expect", "order.toml")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert "order.toml" in done.err
    assert "cuont" in done.err


# --- given away ---------------------------------------------------------------------------------------------------


def identities(value: Any, key: str = "") -> Iterator[str]:
    """What of a node's record names it or its parts."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from identities(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from identities(part, key)
    elif key in IDENTITIES and isinstance(value, str):
        yield value.partition("/")[0]


def without_identities(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_identities(part) for name, part in value.items() if name not in IDENTITIES | PLACES}
    return [without_identities(part) for part in value] if isinstance(value, list) else value


def test_given_away(cluster: Lab) -> None:
    done = discover(cluster, "--from", "caps", "-o", "x.json", "--anonymise", "away")
    assert done.status == 0, done.err
    assert "4 texts" in done.err
    files = sorted((cluster.home / "away").iterdir())
    names = [file.stem for file in files]
    assert len(files) == 4
    before = written(cluster, "before.json")
    secrets = {value.lower() for node in before["nodes"] for value in identities(node)}
    secrets |= {value.replace(":", "") for value in secrets} | {"10.242.31", cluster.name, *NODES}
    assert len(secrets) > 80
    assert min(map(len, secrets)) > 4
    for file in files:
        text = (file.read_text() + file.name).lower()
        assert [secret for secret in secrets if secret in text] == []
    assert discover(cluster, "--from", "away", "-o", "away.json").status == 0
    away = written(cluster, "away.json")
    assert [node["name"] for node in away["nodes"]] == names
    assert len({node["serial"] for node in away["nodes"]}) == 4
    renamed = json.dumps(before["nodes"])
    for old, new in zip(NODES, names, strict=True):
        renamed = renamed.replace(old, new)
    assert without_identities(away["nodes"]) == without_identities(json.loads(renamed))
    done = discover(cluster, "--from", "caps", "-o", "x.json", "--anonymise", "away")
    assert done.status == 2
    assert "away: is not empty" in done.err


# --- nodes that do not answer as they should ----------------------------------------------------------------------


def test_down_and_frozen(cluster: Lab) -> None:
    assert cluster.lab("fault", "node02", "--freeze").status == 0
    assert cluster.lab("fault", "node03", "--down").status == 0
    try:
        begin = time.monotonic()
        assert discover(cluster, "-w", "node[01,04]", "-o", "x.json").status == 0
        usual = time.monotonic() - begin
        begin = time.monotonic()
        done = discover(cluster, "-w", f"{ALL},node77", "-o", "x.json", "--timeout", "25")
        assert time.monotonic() - begin < usual + 33        # nobody is waited for behind another
    finally:
        for node in ("node02", "node03"):
            assert cluster.lab("fault", node, "--heal").status == 0
    assert done.status == 3
    for node, why in (("node02", "takes the connection and does not answer within 10 s"),
                      ("node03", "(does not answer within 10 s|No route to host)"), ("node77", "does not resolve")):
        assert re.search(f"^  {node}: .*{why}", done.out, re.MULTILINE), done.out
    found = nodes(written(cluster, "x.json"))
    assert sorted(found) == ["node01", "node04"]
    before = nodes(written(cluster, "before.json"))
    assert all(found[name]["gpus"] == before[name]["gpus"] for name in found)
    assert discover(cluster, "-w", "node77", "-o", "x.json").status == 4


NOISE = r"""
echo "*** All use of $(hostname) is monitored ***"
printf '\033[1mwelcome\033[0m\nHPCADMIN-CAPTURE 1 0123456789abcdef\n\n@0123456789abcdef begin cpu limit=1\n'
echo 'module: command not found' >&2
cd /nowhere
set -u
case $(hostname) in
node02) yes flood;;
node03) exec sleep 100;;
esac
"""


def test_noise_of_a_login_shell(cluster: Lab) -> None:
    rc = cluster.home / ".bashrc"
    rc.write_text(NOISE)
    try:
        begin = time.monotonic()
        done = discover(cluster, "-w", ALL, "-o", "x.json", "--captures", "noisy", "--timeout", "15")
        assert time.monotonic() - begin < 40
    finally:
        rc.unlink()
    assert done.status == 3
    assert re.search(r"^  node02: printed more than \d+ bytes: cut off", done.out, re.MULTILINE)
    assert re.search(r"^  node03: did not end within 15 s", done.out, re.MULTILINE)
    before, found = nodes(written(cluster, "before.json")), nodes(written(cluster, "x.json"))
    assert sorted(found) == ["node01", "node04"]
    for name, node in found.items():
        assert (node["gpus"], node["nics"]) == (before[name]["gpus"], before[name]["nics"])
        assert not node.get("problems")
    # The same from the texts that were kept, where nobody knows which token was sent.
    assert "welcome" in (cluster.home / "noisy" / "node01.txt").read_text()
    done = discover(cluster, "--from", "noisy", "-o", "y.json")
    assert done.status in (1, 3)
    again = nodes(written(cluster, "y.json"))
    assert all(again[name]["gpus"] == before[name]["gpus"] for name in found)
    assert not again.get("node02", {}).get("gpus")


def test_other_login_shells(cluster: Lab) -> None:
    """None of POSIX, where there are such, and one that lets nobody in."""
    before = nodes(written(cluster, "before.json"))
    for shell in ("/usr/bin/fish", "/bin/tcsh", "/usr/sbin/nologin"):
        if as_root(cluster, f"test -x {shell}", "node03").status:
            continue
        as_root(cluster, "cp /etc/passwd /etc/passwd.kept; "
                         f"sed -i 's#^\\(hpc:.*\\):[^:]*$#\\1:{shell}#' /etc/passwd", "node03")
        try:
            done = discover(cluster, "-w", "node[02-03]", "-o", "x.json")
        finally:
            as_root(cluster, "cat /etc/passwd.kept > /etc/passwd", "node03")
        found = nodes(written(cluster, "x.json"))
        if shell == "/usr/sbin/nologin":
            assert done.status == 3
            assert re.search("^  node03: .*This account is currently not available", done.out, re.MULTILINE)
        else:
            assert done.status == 0, shell
            assert found["node03"]["gpus"] == before["node03"]["gpus"]
        assert found["node02"]["gpus"] == before["node02"]["gpus"]


# --- texts --------------------------------------------------------------------------------------------------------


def test_from_captures(cluster: Lab) -> None:
    before = written(cluster, "before.json")
    with tarfile.open(cluster.home / "caps.tar.gz", "w:gz") as packed:
        packed.add(cluster.home / "caps", "caps")
    for source in ("caps", "caps.tar.gz"):
        assert discover(cluster, "--from", source, "-o", "x.json").status == 0
        found = written(cluster, "x.json")
        assert [{**node, "sources": []} for node in found["nodes"]] == [
            {**node, "sources": []} for node in before["nodes"]]
        assert found["groups"] == before["groups"]
        done = cluster.hpcadmin("inventory", "show", "-f", "x.json", "node03", "--why", "gpu_links.2.3")
        assert done.status == 0
        assert f"{source}{':caps' if source.endswith('gz') else ''}/node03.txt:" in done.out
    done = cluster.sh("sh", "-c", f"{BIN}/hpcadmin discover --from - --node node09 -o x.json < caps/node02.txt")
    assert done.status == 0
    found = written(cluster, "x.json")
    assert nodes(found)["node09"]["gpus"] == nodes(before)["node02"]["gpus"]
    for args, said in ((("--from", "caps", "--node", "a;b"), "is not a node's name"),
                       (("-w", "node01", "--node", "node09"), "--node says whose"),
                       (("--from", "absent"), "there is no such file")):
        done = discover(cluster, *args, "-o", "x.json")
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
        assert said in done.err


@pytest.mark.parametrize("options", [[], ["-b"], ["-L", "-b"]])
def test_from_what_clush_gathered(cluster: Lab, options: list[str]) -> None:
    """node88 is not there: it spoils nothing, and it is named."""
    clush = shlex.join([str(BIN / "clush"), "-t", "20", *options, "-w", f"{ALL},node88", "nvidia-smi", "topo", "-m"])
    text = cluster.sh("sh", "-c", f"{clush} 2>&1").out
    (cluster.home / "topo.txt").write_text(f"[hpc@head ~]$ {clush}\n{text}[hpc@head ~]$ \n")
    done = discover(cluster, "--from", "topo.txt", "-o", "x.json")
    assert done.status == 3
    found, before = written(cluster, "x.json"), written(cluster, "before.json")
    assert hardware(found) == hardware(before)
    assert [failed["node"] for failed in found["failed"]] == ["node88"]
    done = cluster.hpcadmin("inventory", "show", "-f", "x.json", "node04", "--why", "gpu_links.0.1", "--json")
    (told,) = done.json()["explanations"]
    lines = (cluster.home / "topo.txt").read_text().split("\n")
    assert told["value"] == "NV12"
    for item in told["evidence"]:
        assert "".join(item["text"].split()) in "".join(re.sub("\x1b\\[[0-9]*m", "", lines[item["line"] - 1]).split())


def test_one_machine_and_all_that_slurm_knows(cluster: Lab) -> None:
    done = cluster.lab("exec", "--node", "node04", "--", str(BIN / "hpcadmin"), "discover", "--local",
                       "-o", "local.json")
    assert done.status == 0, done.err
    here, before = nodes(written(cluster, "local.json")), nodes(written(cluster, "before.json"))
    assert list(here) == ["node04"]
    assert [here["node04"][part] for part in ("gpus", "gpu_links", "nics", "cpu")] == [
        before["node04"][part] for part in ("gpus", "gpu_links", "nics", "cpu")]
    assert discover(cluster, "--slurm", "-o", "slurm.json").status == 0
    assert hardware(written(cluster, "slurm.json")) == hardware(written(cluster, "before.json"))


# --- interrupted, no room -----------------------------------------------------------------------------------------


def ours(cluster: Lab) -> list[str]:
    """Processes of the ordinary user that have to do with a discovery."""
    found = []
    for host in ("head", *NODES):
        listed = as_root(cluster, "ps -eo args", host).out.splitlines()
        found += [f"{host}: {line}" for line in listed if re.search(r"discover|sh -s -- |nvidia-smi|clush", line)]
    return found


def connected(address: str, port: int) -> str:
    """A shell's condition: somebody on the head has a connection there."""
    number = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    return f"grep -q ' {number}:{port:04X} 01 ' /proc/net/tcp"


def interrupted(cluster: Lab, condition: str, *args: str) -> Done:
    """As a terminal does it: the whole group of processes gets the signal."""
    return cluster.signalled(signal.SIGINT, condition, "discover", *args, "-o", "interrupted.json")


def test_ctrl_c_while_nodes_are_asked(cluster: Lab) -> None:
    assert cluster.lab("fault", "node02", "--freeze").status == 0
    try:
        done = interrupted(cluster, connected("10.242.31.12", 22), "-w", ALL)
        left = [line for line in ours(cluster) if not line.startswith("node02")]
    finally:
        assert cluster.lab("fault", "node02", "--heal").status == 0
    assert (done.status, done.out, done.err) == (130, "", "\nhpcadmin: interrupted\n")
    assert left == []
    assert not (cluster.home / "interrupted.json").exists()


def test_ctrl_c_while_texts_are_read(cluster: Lab) -> None:
    many = cluster.home / "many"
    many.mkdir()
    for number in range(4000):              # more than can be read until the signal comes
        (many / f"n{number:04d}.txt").hardlink_to(cluster.home / "caps" / "node02.txt")
    try:
        reading = "[ $(pgrep -cP $1) -ge 2 ]"           # it has workers
        done = interrupted(cluster, reading, "--from", "many")
        assert (done.status, done.out, done.err) == (130, "", "\nhpcadmin: interrupted\n")
        assert ours(cluster) == []
        assert not (cluster.home / "interrupted.json").exists()
        # Killed, it leaves none of its processes either.
        killed = cluster.signalled(signal.SIGKILL, reading, "discover", "--from", "many", "-o", "interrupted.json")
        assert killed.status == 137
        wait_until(lambda: ours(cluster) == [], 30)
    finally:
        shutil.rmtree(many)


def test_no_room(cluster: Lab) -> None:
    as_root(cluster, "mkdir -p /mnt/small && mount -t tmpfs -o size=64k,mode=1777 small /mnt/small")
    try:
        done = discover(cluster, "--from", "caps", "-o", "/mnt/small/x.json")
        assert done.status == 2
        assert done.err == "hpcadmin: /mnt/small/x.json: cannot be written: No space left on device\n"
        done = discover(cluster, "-w", ALL, "--captures", "/mnt/small/caps", "-o", "x.json")
        assert done.status == 2
        assert re.fullmatch(r"hpcadmin: /mnt/small/caps/node0\d\.txt: cannot be written: No space left on device\n",
                            done.err)
        done = discover(cluster, "--from", "caps", "-o", "x.json", "--anonymise", "/mnt/small/away")
        assert done.status == 2
        assert done.err.count("\n") == 1
        assert "No space left on device" in done.err
        done = cluster.hpcadmin("inventory", "topology", "-f", "before.json", "node02", "--svg", "/mnt/small/n.svg")
        assert done.status in (0, 2)
    finally:
        as_root(cluster, "umount /mnt/small")


# --- the fabric, the BMCs -----------------------------------------------------------------------------------------


def simulated_fabric(before: dict[str, Any]) -> str:
    """SIMULATED, what ibnetdiscover would print: eight rails, a leaf each; the adapters have the GUIDs of the lab's
    nodes and say no host names."""
    net = fabric_trees.Net()
    for rail in range(8):
        net.add("switch", f"leaf{rail + 1:02d}")
    net.add("switch", "spine01")
    for rail in range(8):
        net.plug(f"leaf{rail + 1:02d}", 40, "spine01", rail + 1)
    for place, name in enumerate(NODES[:3]):
        for rail, nic in enumerate(nic for nic in nodes(before)[name]["nics"] if "rdma" in nic):
            card = net.add("ca", f"{name} mlx5_{rail}")
            card.guid = int(nic["guid"].replace(":", ""), 16)
            net.plug(f"leaf{rail + 1:02d}", place + 1, card.name, 1)
    return re.sub(r"node0\d mlx5_\d", "MT4129 ConnectX7   Mellanox Technologies", fabric_trees.ibnetdiscover(net))


def test_the_fabric(cluster: Lab) -> None:
    as_root(cluster, "mkdir -p /usr/local/sbin; echo 'hpc ALL=(root) NOPASSWD: ALL' > /etc/sudoers.d/hpc", "node01")
    before = written(cluster, "before.json")
    tools = "/usr/local/sbin/ibnetdiscover /usr/local/sbin/iblinkinfo"
    try:
        # As where nothing is installed: what stands first on the PATH says so.
        as_root(cluster, f"for t in {tools}; do printf '#!/bin/sh\\nexit 127\\n' > $t; chmod 755 $t; done", "node01")
        done = discover(cluster, "-w", ALL, "--fabric", "-o", "x.json")
        assert done.status == 3
        assert re.fullmatch(r"inventory: x.json\nhpcadmin: node01: the fabric cannot be seen: ibnetdiscover: not "
                            r"installed; iblinkinfo: not installed[^\n]*\n", done.err)
        assert hardware(written(cluster, "x.json")) == hardware(before)
        (cluster.shared / "fabric.txt").write_text(simulated_fabric(before))
        as_root(cluster, "printf '#!/bin/sh\\n# SIMULATED\\ncat /shared/fabric.txt\\n' > /usr/local/sbin/ibnetdiscover",
                "node01")
        done = discover(cluster, "-w", ALL, "--fabric", "-o", "fabric.json", "--captures", "with-fabric")
        assert done.status == 0, done.out + done.err
    finally:
        as_root(cluster, f"rm -f {tools} /etc/sudoers.d/hpc", "node01")
    assert (cluster.home / "with-fabric" / "fabric.ibnetdiscover").read_text().count("ConnectX7") > 24
    done = cluster.hpcadmin("inventory", "topology", "-f", "fabric.json", "--fabric")
    assert done.status == 0
    assert all(f"leaf0{rail}" in done.out for rail in range(1, 9))
    # By their GUIDs: the descriptions name no host.
    assert "node[01-03]" in done.out
    done = cluster.hpcadmin("inventory", "topology", "-f", "fabric.json", "--fabric", "--svg", "f.svg")
    assert done.status == 0
    ElementTree.fromstring((cluster.home / "f.svg").read_text())  # noqa: S314  (our own)
    again = discover(cluster, "--from", "with-fabric", "-o", "y.json")
    assert again.status == 0, again.out + again.err
    assert len(written(cluster, "y.json")["fabrics"]) == 1


def test_no_port_to_see_the_fabric_through(cluster: Lab) -> None:
    """The head has no adapter."""
    done = discover(cluster, "--local", "--fabric", "-o", "x.json")
    assert done.status == 3
    assert re.fullmatch(r"inventory: x.json\nhpcadmin: no node has an active InfiniBand port[^\n]*\n", done.err)
    done = cluster.hpcadmin("inventory", "topology", "-f", "x.json", "--fabric")
    assert (done.status, done.err.count("\n")) == (2, 1)


BMC = """
import base64, json, ssl, socket, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
known = json.load(open("bmc.json"))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        right = self.headers.get("Authorization") == "Basic " + base64.b64encode(b"monitor:se cret").decode()
        found = known[self.server.server_address[0]].get(self.path)
        data = json.dumps(found if right and found else {}).encode()
        self.send_response(200 if right and found else 404 if right else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *args):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("bmc.cert", "bmc.key")
for address in known:
    server = ThreadingHTTPServer((address, 8443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
silent = socket.create_server(("127.0.0.13", 8443))
print("ready", flush=True)
sys.stdin.read()
"""


def test_bmcs(cluster: Lab) -> None:
    """node01's answers, node02's knows another serial number, node03's takes connections and is silent, node04's is
    not there."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    before = nodes(written(cluster, "before.json"))
    known = {}
    for place, name in enumerate(NODES[:2]):
        known[f"127.0.0.1{place + 1}"] = told = test_redfish.resources()
        system = told["/redfish/v1/Systems/1"]
        system["SerialNumber"] = before[name]["serial"] if place == 0 else "OTHER1"
        system["UUID"], system["BiosVersion"] = before[name].get("uuid", ""), before[name]["bios"]
    (cluster.home / "bmc.json").write_text(json.dumps(known))
    (cluster.home / "bmc.py").write_text(BMC)
    (cluster.home / "bmc.toml").write_text(
        cluster.sh("cat", "/etc/hpcadmin/site.toml").out + '[bmc]\naddress = "{node}-bmc:8443"\n'
        'login_file = "/shared/home/hpc/login"\nca_file = "/shared/home/hpc/bmc.cert"\n')
    names = ",".join(f"DNS:{name}-bmc" for name in NODES)
    made = cluster.sh("sh", "-c", "umask 077; printf 'user=monitor\npassword=se cret\n' > login; "
                      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=bmc "
                      f"-addext subjectAltName={names} -keyout bmc.key -out bmc.cert")
    assert made.status == 0, made.err
    as_root(cluster, "cp /etc/hosts /etc/hosts.kept; " + "; ".join(
        f"echo 127.0.0.1{place + 1} {name}-bmc >> /etc/hosts" for place, name in enumerate(NODES)))
    serving = [str(BIN / "hpcadmin"), "lab", "exec", "--name", cluster.name, "--", str(BIN / "python"), "bmc.py"]
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            done = cluster.hpcadmin("--site", "bmc.toml", "discover", "-w", ALL, "--redfish", "-o", "bmc-found.json",
                                    timeout=120)
            stopped = cluster.signalled(signal.SIGINT, connected("127.0.0.13", 8443), "--site", "bmc.toml", "discover",
                                        "-w", ALL, "--redfish", "-o", "interrupted.json")
            assert (stopped.status, stopped.err) == (130, "\nhpcadmin: interrupted\n")
        finally:
            server.communicate()
            as_root(cluster, "cat /etc/hosts.kept > /etc/hosts")
    found = nodes(written(cluster, "bmc-found.json"))
    assert done.status == 1, done.out + done.err
    assert "PSU1: OK" in found["node01"]["bmc"]["psus"]
    assert found["node01"]["problems"] == ["BMC: PSU2: Critical"]
    assert f"serial: {before['node02']['serial']} on the node, OTHER1 in its BMC" in found["node02"]["problems"]
    for name in ("node03", "node04"):
        why = "does not answer within 10 s" if name == "node03" else "Connection refused"
        assert any(part.startswith("bmc (") and why in part for part in found[name]["unknown"]), found[name]["unknown"]
        assert (found[name]["gpus"], found[name].get("problems", [])) == (before[name]["gpus"], [])
    assert "se cret" not in done.out + done.err + (cluster.home / "bmc-found.json").read_text()
