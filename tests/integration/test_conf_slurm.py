"""conf check --with-slurmd as an admin uses it: the command, what it leaves behind, and what cannot be proven."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import conf_models as m
import pytest
from oracle_cases import CASES, conf
from slurm_roots import NAMES, slurm

from hpcadmin import inventory as stored
from hpcadmin.conf.check.finding import Severity
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import show
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.conf_files import read_folder
from hpcadmin.errors import SlurmError
from hpcadmin.model import Cpu, Inventory, Source
from hpcadmin.proof import hardware
from hpcadmin.proof.kinds import captured_xml
from hpcadmin.proof.parts import Slurm
from hpcadmin.proof.prove import prove
from hpcadmin.proof.slurm import find

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and device nodes need root"),
]
PARAMETERS = pytest.mark.parametrize("suite", list(NAMES), ids=[s or "own" for s in NAMES])


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


def written(folder: Path, inventory: Inventory, version: str = "22.05", **site: object) -> Path:
    result = render(inventory, m.site(**site), RenderOptions(slurm_version=version))
    assert result.problems == ()
    folder.mkdir()
    for name, text in result.files.items():
        (folder / name).write_text(text)
    return folder


class Own:
    """The proofs of one test: their folders are all below one of its own, whatever else is proven on this machine."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        tmp.mkdir()
        self.names: set[str] = set()     # of folders that were seen, after which control groups are named

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**environment(), "TMPDIR": str(self.tmp)}, start_new_session=True)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        process = self.start("-m", "hpcadmin", *argv)
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(process.communicate, timeout=120)
            while not said.done():
                self.look()
                time.sleep(0.02)
        return subprocess.CompletedProcess(argv, process.returncode, *said.result())

    def look(self) -> None:
        self.names |= {path.name for path in self.tmp.glob("hpcadmin-proof-*")}

    def processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"hpcadmin.proof.inside" in command and bytes(self.tmp) in command:
                found.append(f"process {folder.name}")
        return found

    def left(self) -> list[str]:
        """Folders, control groups, mounts and processes; what was killed takes a moment."""
        for _ in range(1200):
            found = [str(path) for path in self.tmp.glob("hpcadmin-proof-*")] + self.processes()
            found += [str(path) for name in self.names
                      for path in Path("/sys/fs/cgroup").glob(f"*/hpcadmin-lab-{name}*")]
            found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.tmp) in line]
            if not found:
                return []
            time.sleep(0.05)
        return found


def hpcadmin(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hpcadmin", *argv], capture_output=True, text=True, timeout=120,
                          check=False, env=environment())


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "HPCADMIN_"))}
    return {**kept, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


TWO = m.inventory((m.names("h", 4), m.H100), (m.names("c", 2), m.BIG_CPU))


@PARAMETERS
def test_the_command_proves_rendered_files(tmp_path: Path, suite: str) -> None:
    found = at_hand(suite)
    version = f"{found.version[0]}.{found.version[1]:02}"
    folder = written(tmp_path / "slurm", TWO, version)
    stored.save(tmp_path / "inventory.json", TWO)
    own = Own(tmp_path / "own")
    root = ["--slurm-root", found.root] if found.root else []
    done = own.run("conf", "check", str(folder), "--with-slurmd", *root, "--inventory",
                   str(tmp_path / "inventory.json"), "--slurm-version", version, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0, (told["findings"], done.stderr)
    assert told["proof"]["proven"] is True
    assert told["proof"]["slurm"] == found.text
    assert {kind["nodes"]: (kind["state"], kind["gres"]) for kind in told["proof"]["kinds"]} == {
        "h[01-04]": ("IDLE", "gpu:h100:8(S:0-1)"), "c[01-02]": ("IDLE", "(null)")}
    assert all(change["why"] for change in told["proof"]["changed_in_copy"])
    assert own.names
    assert own.left() == []


def test_what_slurm_refuses_fails_with_its_line(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.name == "D")
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in conf(case).items():
        (folder / name).write_text(text)
    done = hpcadmin("conf", "check", str(folder), "--with-slurmd")
    assert done.returncode == 1
    assert "vm registers as INVAL: Invalid GRES Links value" in done.stdout
    assert f"{folder}/gres.conf:1: INVALID: vm registers" in done.stdout
    assert "in the copy: " not in done.stdout or "MailProg" not in done.stdout


def test_a_fatal_line_names_file_and_line(tmp_path: Path) -> None:
    files = conf(CASES[0])
    (tmp_path / "slurm.conf").write_text(files["slurm.conf"] + "NoSuchKey=1\n")
    proof = prove(read_folder(tmp_path), str(tmp_path))
    first = proof.findings[0]
    assert first.severity is Severity.FATAL
    assert "slurmctld does not start" in first.what
    assert str(first.place) == f"{tmp_path}/slurm.conf:{files['slurm.conf'].count(chr(10)) + 1}"
    assert [left.why for left in proof.unproven] == ["slurmctld does not run"]


def test_a_missing_device_is_told_without_waiting_for_it() -> None:
    case = next(c for c in CASES if c.name == "V")
    machine = Inventory((replace(m.H100, name="vm", memory_mib=2000, gpus=m.H100.gpus[:1]),))
    usual = prove(configure(conf(CASES[-1])), "").seconds
    proof = prove(configure(conf(case)), "", machine)
    assert proof.seconds < usual + 15           # slurmd waits for 20 s
    assert [(f.severity, str(f.place)) for f in proof.findings][:1] == [(Severity.FATAL, "gres.conf:2")]
    assert "/dev/nvidia9" in proof.findings[0].what


def test_fewer_cores_than_the_line_says_are_seen(tmp_path: Path) -> None:
    folder = written(tmp_path / "slurm", m.inventory((["n1"], replace(m.A100P, cpu=m.cpu(2, 64)))))
    real = m.inventory((["n1"], m.A100P))
    proof = prove(read_folder(folder), str(folder), real)
    assert [f.severity for f in proof.findings][:1] == [Severity.INVALID]
    assert "Low socket*core*thread count" in proof.findings[0].what


def test_memory_and_sockets_are_compared_with_the_inventory_once(tmp_path: Path) -> None:
    """slurmd has this machine's memory; of sockets it says what the inventory says."""
    folder = written(tmp_path / "slurm", TWO)
    text = (folder / "slurm.conf").read_text()
    (folder / "slurm.conf").write_text(text.replace("Sockets=2 CoresPerSocket=48", "Sockets=4 CoresPerSocket=24"))
    smaller = m.inventory((m.names("h", 4), replace(m.H100, memory_mib=1_000_000)), (m.names("c", 2), m.BIG_CPU))
    assert [f.what[:9] for f in prove(read_folder(folder), str(folder), smaller).findings] == ["Sockets=4"]
    stored.save(tmp_path / "inventory.json", smaller)
    done = hpcadmin("conf", "check", str(folder), "--with-slurmd", "--inventory", str(tmp_path / "inventory.json"),
                    "--slurm-version", "22.05", "--json")
    found = [(f["severity"], f["rule"]) for f in json.loads(done.stdout)["findings"] if f["severity"] != "NOTE"]
    assert found == [("INVALID", "drift.memory"), ("WRONG", "drift.cpus")]


@PARAMETERS
def test_autodetect_finds_what_the_inventory_has(tmp_path: Path, suite: str) -> None:
    found = at_hand(suite)
    mixed = replace(m.H100, gpus=(*m.gpus("Tesla P100-PCIE-16GB", m.H100_CPU, [0, 0]),
                                  *m.gpus("NVIDIA RTX A5000", m.H100_CPU, [0, 0, 1])[2:]), gpu_links=())
    nodes = m.inventory((["h1"], m.H100), (["m1"], mixed))
    folder = written(tmp_path / "slurm", nodes, f"{found.version[0]}.{found.version[1]:02}", autodetect="nvml")
    proof = prove(read_folder(folder), str(folder), nodes, slurm_root=found.root)
    assert [f for f in proof.findings if f.severity is not Severity.NOTE] == []
    assert [a.node["Gres"] for _, a in proof.proven] == ["gpu:h100:8(S:0-1)", "gpu:p100:2(S:0),gpu:a5000:1(S:1)"]


def test_autodetect_without_an_inventory_is_not_proven(tmp_path: Path) -> None:
    folder = written(tmp_path / "slurm", TWO, autodetect="nvml")
    done = hpcadmin("conf", "check", str(folder), "--with-slurmd")
    assert done.returncode == 3, done.stdout
    assert "incomplete: not proven with slurmd: h[01-04]: AutoDetect=nvml needs the node's GPUs" in done.stdout


def test_uneven_packages_and_memory_without_cpus() -> None:
    """CPUs that no HWLOC_SYNTHETIC describes go as XML."""
    cores = tuple(replace(core, socket=0 if place < 4 else 1) for place, core in enumerate(m.cpu(1, 6, 1).cores))
    cpu = Cpu("odd", "x86_64", 2, None, 1, cores, m.cpu(1, 6, 1).numa)
    text = conf(CASES[0])["slurm.conf"].replace(CASES[0].line, "CPUs=6 RealMemory=1000").replace("GresTypes=gpu\n", "")
    proof = prove(configure({"slurm.conf": text}), "", Inventory((replace(m.BIG_CPU, name="vm", cpu=cpu),)))
    assert proof.proven[0][0].hardware.xml
    assert proof.proven[0][1].state == "IDLE"
    assert proof.proven[0][1].slurmd["actual cpus"] == "6"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          how: signal.Signals) -> None:
    case = next(c for c in CASES if c.name == "V")
    files = conf(case)
    program = ("from hpcadmin.proof.cell import ask\nfrom hpcadmin.proof.parts import Cluster, Hardware, NodeRun\n"
               f"from hpcadmin.proof.slurm import find\nnode = NodeRun('vm', Hardware({case.cpus!r}), "
               f"wait_for_files=True)\nask(find(), Cluster({files!r}, (node,), keep_cgroups=True))\n")
    own = Own(tmp_path / "own")
    process = own.start("-c", program)
    for _ in range(1200):
        own.look()
        if own.processes():
            break
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(how)
    process.communicate(timeout=120)
    assert own.names
    if how is signal.SIGKILL:
        # Its own folder it cannot take away; the next proof does.
        monkeypatch.setattr(tempfile, "tempdir", str(own.tmp))
        prove(configure(conf(CASES[-1])), "")
    assert own.left() == []


def test_what_cannot_be_proven_is_one_line(tmp_path: Path) -> None:
    folder = written(tmp_path / "slurm", TWO)
    done = hpcadmin("conf", "check", str(folder), "--slurm-root", str(tmp_path))
    assert done.returncode == 3, done.stdout
    assert f"incomplete: not proven with slurmd: {tmp_path}: is no folder with a system in it" in done.stdout
    (tmp_path / "usr").mkdir()
    with pytest.raises(SlurmError, match="slurmctld, slurmd, munged"):
        find(str(tmp_path))


@PARAMETERS
def test_what_this_machine_cannot_do_is_replaced_and_told(tmp_path: Path, suite: str) -> None:
    """A production configuration: accounting, users, folders and programs that are not here."""
    found = at_hand(suite)
    options = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "db",
               "AccountingStorageEnforce": "limits,qos", "PriorityType": "priority/multifactor",
               "HealthCheckProgram": "/usr/sbin/no-such-program", "HealthCheckInterval": 300, "SlurmUser": "stranger",
               "JobCompType": "jobcomp/mysql", "AuthAltTypes": "auth/jwt", "SlurmctldDebug": "quiet",
               "TmpFS": "/scratch", "StateSaveLocation": "/usr/local/slurm/state", "PluginDir": "/opt/slurm/nowhere",
               "SlurmctldPort": 6820, "SlurmdSpoolDir": "/var/spool/slurm/%n", "SlurmdPidFile": "/run/slurm/%n.pid"}
    folder = written(tmp_path / "slurm", TWO, show(found.version), options=options)
    (folder / "job_submit.lua").write_text("-- nothing\n")
    proof = prove(read_folder(folder), str(folder), TWO, slurm_root=found.root)
    assert [f for f in proof.findings if f.severity is not Severity.NOTE] == []
    assert [answer.state for _, answer in proof.proven] == ["IDLE", "IDLE"]
    told = "\n".join(str(change) for change in proof.changes)
    for key in ("AccountingStorageType", "AccountingStorageEnforce", "AccountingStorageTRES", "HealthCheckProgram",
                "SlurmUser", "JobCompType", "AuthAltTypes", "SlurmctldDebug", "PluginDir", "TRESBillingWeights"):
        assert key in told, key
    assert "StateSaveLocation" not in told


def test_the_files_are_never_changed(tmp_path: Path) -> None:
    folder = written(tmp_path / "slurm", TWO)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    prove(read_folder(folder), str(folder), TWO)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_hwloc_s_own_xml_of_the_node_is_taken(tmp_path: Path) -> None:
    """What was captured, where the inventory still has it as it was; not a form that an older hwloc cannot read."""
    path = tmp_path / "n1.xml"
    path.write_text(hardware.xml(m.H100_CPU))
    kept = replace(m.H100, name="n1", sources=(Source(str(path), ("hwloc XML",), ""),))
    assert captured_xml(kept).startswith("<topology")
    nodes = m.inventory((["n1"], kept))
    folder = written(tmp_path / "slurm", nodes)
    proof = prove(read_folder(folder), str(folder), nodes)
    kind, answer = proof.proven[0]
    assert kind.hardware.captured and answer.state == "IDLE" and proof.findings == ()
    assert captured_xml(replace(kept, sources=(Source(str(path), ("hwloc XML",), "0" * 64),))) == ""
    path.write_text(path.read_text().replace('version="2.0"', 'version="3.0"'))
    assert captured_xml(kept) == ""


def test_nodes_that_call_themselves_otherwise(tmp_path: Path) -> None:
    """NodeHostname= without NodeAddr=: the name is known where the daemons are asked."""
    nodes = [replace(node, hostname=f"host{number}", addresses=()) for number, node in enumerate(
        m.inventory((m.names("n", 2), m.BIG_CPU)).nodes)]
    folder = written(tmp_path / "conf", Inventory(tuple(nodes)))
    proof = prove(read_folder(folder), str(folder), Inventory(tuple(nodes)))
    assert [answer.state for _, answer in proof.proven] == ["IDLE", "IDLE"]
    assert not proof.failed, proof.findings
