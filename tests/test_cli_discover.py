"""hpcadmin discover and inventory on the command line: what is printed, what is written, which exit status."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import sim_node

from hpcadmin import discovery, inventory
from hpcadmin.cli import run
from hpcadmin.errors import StoreError
from hpcadmin.facts import read_capture
from hpcadmin.model import Failed, Inventory, Node

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a state folder and a current folder of its own; no Slurm."""
    for name in ("HOME", "HPCADMIN_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("HPCADMIN_SITE", str(tmp_path / "site.toml"))
    # A controller that is not there; a file that is not there keeps Slurm's commands waiting for a minute.
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "slurm.conf").write_text("ClusterName=none\nSlurmctldHost=none(127.0.0.1)\nSlurmctldPort=1\n"
                                         "MessageTimeout=2\nNodeName=node01\nPartitionName=all Nodes=ALL\n")
    (tmp_path / "site.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def captures(folder: Path, faults: dict[str, str] | None = None, count: int = 4) -> Path:
    """Captures of simulated nodes, as if taken over ssh; each with a hostname and a serial of its own."""
    folder.mkdir()
    for number in range(1, count + 1):
        name = f"node{number:02d}"
        lines = sim_node.capture("4xA100-pcie", faults=(faults or {}).get(name, "")).split("\n")
        host = next(line.split()[0] for line in lines if line.endswith(" x86_64") and " " in line)
        text = "\n".join(lines).replace(f"{host} ", f"{name} ")
        text = "\n".join(f"product_serial=S{number}" if line.startswith("product_serial=") else line
                         for line in text.split("\n"))
        (folder / f"{name}.txt").write_text(text)
    return folder


@pytest.mark.deep
@pytest.mark.parametrize(("args", "status", "message"), [
    ([], 2, "which nodes?"),
    (["-w", "node[1-2"], 2, "malformed hostlist 'node[1-2'"),
    (["-w", ""], 2, "empty hostlist"),
    (["-w", "a;b"], 2, "not a host name"),
    (["-w", "node1", "--local"], 2, "more than one source"),
    (["node1"], 2, "which nodes?"),
    (["--local", "node1"], 2, "unexpected argument"),
    (["--from", "nowhere"], 2, "nowhere: there is no such file or folder"),
    (["--local", "--node", "n1"], 2, "--node says whose the texts of --from are"),
    (["--from", "-", "--node", "a b"], 2, "--node: 'a b' is not a node's name"),
    (["--from", "-", "--fabric"], 2, "ask machines"),
    (["--local", "--redfish"], 2, "no login for the BMCs"),
    (["--local", "--sudo", "rm"], 2, "there is no fact 'rm'"),
    (["--local", "--timeout", "0"], 2, "--timeout"),
    (["--slurm"], 4, "slurm"),
])
def test_errors_are_one_line(args: list[str], status: int, message: str, capfd: Captured) -> None:
    assert run(["discover", *args]) == status
    out, err = capfd.readouterr()
    assert out == ""
    assert message.lower() in err.lower()
    assert len(err.strip().split("\n")) == 1


def test_local(place: Path, capfd: Captured) -> None:
    assert run(["discover", "--local"]) in (0, 1)
    out, err = capfd.readouterr()
    assert out.startswith("1 node in 1 group")
    assert err == ""
    assert not (place / "hpcadmin_dir").exists()


@pytest.mark.deep
def test_from_captures(place: Path, capfd: Captured) -> None:
    folder = captures(place / "taken")
    assert run(["discover", "--from", str(folder), "-o", "found.json"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("SIMULATED HARDWARE: 4xA100-pcie on node[01-04]\n4 nodes in 1 group\n")
    assert "4xa100" in out
    assert "Odd ones out" not in out
    assert "Faults" not in out
    assert err == "inventory: found.json\n"
    assert len(inventory.load(place / "found.json").nodes) == 4
    assert run(["inventory", "show", "-f", "found.json", "node03"]) == 0
    assert "NVIDIA A100 80GB PCIe" in capfd.readouterr().out
    assert run(["inventory", "show", "-f", "found.json", "node03", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["name"] == "node03"
    assert run(["inventory", "show", "-f", "found.json", "node09"]) == 2
    assert "no node 'node09'" in capfd.readouterr().err
    assert run(["inventory", "show"]) == 2
    assert "there is no inventory" in capfd.readouterr().err


@pytest.mark.deep
def test_a_lost_gpu(place: Path, capfd: Captured) -> None:
    folder = captures(place / "taken", {"node02": "gpu 2 lost\n"})
    assert run(["discover", "--from", str(folder)]) == 1
    out = capfd.readouterr().out
    assert "node02: 3 GPUs, the group has 4; missing: GPU 2 (0000:b1:00.0)" in out
    assert "node02: GPU 2 (0000:b1:00.0) is lost" in out
    assert run(["discover", "--json", "--from", *map(str, sorted(folder.iterdir()))]) == 1
    found = json.loads(capfd.readouterr().out)
    assert [(odd["node"], odd["device"]) for odd in found["odd"]] == [("node02", "GPU 2")]


@pytest.mark.deep
def test_unreadable_captures_are_named(place: Path, capfd: Captured) -> None:
    folder = captures(place / "taken", count=2)
    for name, text in (("node03", ""), ("node04", "bash: sh: not found\n")):
        (folder / f"{name}.txt").write_text(text)
    (folder / "node05.txt").symlink_to("/etc/passwd")
    assert run(["discover", "--from", str(folder)]) == 3
    out = capfd.readouterr().out
    assert f"node03: {folder}/node03.txt: is empty" in out
    assert f"node04: {folder}/node04.txt:1: not the output of a tool that is known here: 'bash: sh: not found'" in out
    assert f"node05: {folder}/node05.txt: is not a regular file" in out
    for name in ("node01", "node02"):
        (folder / f"{name}.txt").unlink()
    assert run(["discover", "--from", str(folder)]) == 3


@pytest.mark.deep
def test_a_capture_cut_off(place: Path, capfd: Captured) -> None:
    folder = captures(place / "taken")
    path = folder / "node02.txt"
    text = path.read_text()
    path.write_text(text[: text.index("begin nvidia_smi") + 5000])
    assert run(["discover", "--from", str(folder)]) == 1
    out = capfd.readouterr().out
    assert "node02: the capture is cut off in nvidia_smi: the node did not answer to the end" in out
    assert "node02: GPUs: 4 NVIDIA GPUs on the PCI bus, but nvidia-smi does not answer" in out


def test_hosts_that_do_not_answer(place: Path, capfd: Captured) -> None:
    assert run(["discover", "-w", "no-such-host.invalid", "--timeout", "5"]) == 4
    out, _ = capfd.readouterr()
    assert "does not resolve" in out
    assert not (place / "hpcadmin_dir/inventory.json").exists()


@pytest.mark.parametrize("option", ["-o", "--captures"])
def test_what_cannot_be_written(place: Path, option: str, capfd: Captured) -> None:
    (place / "file").write_text("")
    assert run(["discover", "--local", option, "file/x"]) == 2
    err = capfd.readouterr().err
    assert "file/x" in err
    assert len(err.strip().split("\n")) == 1


def test_captures_are_kept_as_they_came(place: Path, capfd: Captured) -> None:
    assert run(["discover", "--local", "--captures", "kept", "--json"]) in (0, 1)
    first = json.loads(capfd.readouterr().out)
    assert run(["discover", "--json", "--from", "kept"]) in (0, 1)
    second = json.loads(capfd.readouterr().out)
    assert first["nodes"] == second["nodes"]
    assert [path.stat().st_mode & 0o777 for path in (place / "kept").iterdir()] == [0o600]


def found_of(*names: str, **changes: object) -> Inventory:
    node = read_capture(sim_node.capture("4xA100-pcie"), "node01")
    same = replace(node, problems=(), unknown=())
    return inventory.build([replace(same, name=name, hostname=name, serial=name, **changes)  # type: ignore[arg-type]
                            for name in names])


@pytest.mark.deep
def test_accepting(place: Path) -> None:
    """What has findings does not replace what was accepted: a fault must not become the measure."""
    path = place / "state" / "inventory.json"
    good, three = found_of("node01", "node02", "node03"), found_of("node03")
    bad = found_of("node01", "node02", "node03", problems=("GPU 5 is lost",))
    assert discovery.accept(path, good) == f"inventory: {path}"
    assert "not accepted" in discovery.accept(path, bad)
    assert inventory.load(path) == good
    discovery.accept(path, bad, force=True)
    assert inventory.load(path).nodes[0].problems
    assert discovery.accept(path, three) == f"inventory: {path} (2 nodes kept from before)"
    assert [bool(node.problems) for node in inventory.load(path).nodes] == [True, True, False]
    path.write_text("{")
    with pytest.raises(StoreError):
        discovery.accept(path, good)
    discovery.accept(path, good, force=True)
    assert inventory.load(path) == good


@pytest.mark.deep
def test_exit_status() -> None:
    good = found_of("node01", "node02")
    assert discovery.exit_status(good) == 0
    assert discovery.exit_status(replace(good, failed=(Failed("node03", "down"),))) == 3
    assert discovery.exit_status(inventory.build([replace(n, unknown=("gpus",)) for n in good.nodes])) == 3
    assert discovery.exit_status(inventory.build([replace(n, unknown=("serial",)) for n in good.nodes])) == 0
    assert discovery.exit_status(found_of("node01", problems=("x",))) == 1
    assert discovery.exit_status(Inventory((), failed=(Failed("node03", "down"),))) == 4


def test_hostile_text_stays_text(place: Path, capfd: Captured) -> None:
    hostile = Node(name="node01", os="\x1b[31mred\nline", kernel="<script>", problems=("\x1b]0;title\x07",))
    inventory.save(place / "x.json", inventory.build([hostile]))
    for args in ([], ["node01"]):
        assert run(["inventory", "show", "-f", "x.json", *args]) == 0
        out = capfd.readouterr().out
        assert "\x1b" not in out
        assert "\x07" not in out
