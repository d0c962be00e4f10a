"""The parts of `conf check --with-slurmd` that need no Slurm: hardware, the copy and its changes, logs, verdicts."""

from __future__ import annotations

from dataclasses import replace

import conf_models as m
import pytest
from digest_models import EPYC, GRACE2
from oracle_cases import CASES, conf

from hpcadmin.conf.check.finding import Severity
from hpcadmin.conf.existing.read import configure
from hpcadmin.model import Inventory
from hpcadmin.proof import copy, detected, hardware, judge
from hpcadmin.proof.cell import NOWHERE, fields, spec
from hpcadmin.proof.inside import judged
from hpcadmin.proof.kinds import kinds, run_of
from hpcadmin.proof.logs import complaints, ended_by, node_of, plain
from hpcadmin.proof.parts import Answer, Cluster, Hardware, NodeAnswer, NodeRun, Slurm
from hpcadmin.proof.prove import controller

OLD, NEW = Slurm((22, 5), "22.05.8"), Slurm((26, 5), "26.05.5")


def machine(slurm: Slurm = NEW, *, cgroups: bool = False) -> copy.Machine:
    return copy.Machine(slurm, frozenset({"root", "slurm"}), 24105, cgroups, lambda path: path == "/usr/lib/slurm")


def copied(text: str, slurm: Slurm = NEW, *, cgroups: bool = False, **files: str) -> copy.Copy:
    read = configure({"slurm.conf": text, **{f"{name}.conf": own for name, own in files.items()}})
    return copy.copy(read, "", machine(slurm, cgroups=cgroups), read.nodes)


# --- hardware -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cpu", "text"), [
    (m.H100_CPU, "pack:2 numa:1 core:56 pu:2"), (m.NPS4_CPU, "pack:2 numa:4 core:16 pu:2"),
    (EPYC, "pack:2 numa:1 l3:8 core:8 pu:2"), (replace(m.H100_CPU, cores=(), numa=()), "pack:2 core:56 pu:2"),
    (GRACE2, ""), (replace(m.H100_CPU, cores=m.H100_CPU.cores[:100]), ""),
])
def test_short_text_where_levels_are_even(cpu: m.Cpu, text: str) -> None:
    assert hardware.synthetic(cpu) == text
    assert bool(hardware.xml(cpu)) is bool(cpu.cores)


def test_nothing_known_is_no_hardware() -> None:
    assert hardware.of_node(replace(m.H100, cpu=m.Cpu())) == "its sockets, cores and threads are not known"


def test_devices_have_their_driver_s_majors_and_stay_below_dev() -> None:
    found = hardware.devices(["/dev/nvidia3", "/dev/dri/renderD130", "/dev/nvidia-caps/nvidia-cap21", "/etc/passwd",
                              "/dev/../etc/shadow", "/dev/nvidia3"])
    assert [(d.path, d.major, d.minor) for d in found[:2]] == [
        ("/dev/nvidia3", 195, 3), ("/dev/dri/renderD130", 226, 130)]
    assert [d.path for d in found][2:] == ["/dev/nvidia-caps/nvidia-cap21"]


def test_masks_are_hwloc_s() -> None:
    assert hardware.mask([0, 1, 33]) == "0x00000002,0x00000003"
    assert hardware.mask([]) == "0x0"


def test_detected_gpus_are_in_bus_order_with_abstract_cores() -> None:
    text, why = detected.fake_gpus(m.A100P)
    assert why == ""
    assert text.splitlines()[0] == "nvidia_a100_80gb_pcie|128|0-31|-1,0,0,0|/dev/nvidia2|(null)|nvidia_gpu_env"
    assert detected.driver(m.A100P)[0][0] == "0000:1b:00.0"
    assert detected.driver(replace(m.A100P, gpus=(replace(m.A100P.gpus[0], pci="../../x"),))) == ()


# --- the copy -------------------------------------------------------------------------------------------------------

PLAIN = "ClusterName=c\nSlurmctldHost=head\n"


def test_only_what_this_machine_cannot_do_is_changed_and_lines_stay_where_they_are() -> None:
    text = (f"{PLAIN}AccountingStorageType=accounting_storage/slurmdbd\nSlurmUser=nobody2\n"
            "TaskPlugin=task/cgroup,task/affinity\nNodeName=n1 RealMemory=999999\n")
    made = copied(text)
    lines = made.files["slurm.conf"].splitlines()
    assert lines[2:5] == ["AccountingStorageType=accounting_storage/none", "SlurmUser=root", "TaskPlugin=task/affinity"]
    assert lines[5] == "NodeName=n1 RealMemory=999999"
    assert "SlurmctldParameters=node_reg_mem_percent=0.001" in lines
    assert made.files["cgroup.conf"] == "CgroupPlugin=disabled\n"
    assert all(str(change).startswith(("slurm.conf:", "cgroup.conf:")) and change.why for change in made.changes)


def test_before_25_05_memory_is_made_smaller_in_the_node_lines() -> None:
    made = copied(f"{PLAIN}NodeName=DEFAULT RealMemory=999999 MemSpecLimit=50000\nNodeName=n1 CPUs=4\n", OLD)
    assert "NodeName=DEFAULT RealMemory=24105 MemSpecLimit=12052" in made.files["slurm.conf"]
    assert "node_reg_mem_percent" not in made.files["slurm.conf"]
    assert made.files["cgroup.conf"] == "CgroupPlugin=cgroup/v1\n"


def test_with_control_groups_they_are_left_as_they_are() -> None:
    made = copied(f"{PLAIN}ProctrackType=proctrack/cgroup\nPrologFlags=Contain\n", cgroups=True,
                  cgroup="ConstrainCores=yes\n")
    assert "ProctrackType=proctrack/cgroup\nPrologFlags=Contain\n" in made.files["slurm.conf"]
    assert made.files["cgroup.conf"] == "ConstrainCores=yes\n"


def test_no_program_of_the_site_is_run() -> None:
    made = copied(f"{PLAIN}HealthCheckProgram=/sbin/nhc\nRebootProgram=/sbin/reboot\nMailProg=/bin/mail\n"
                  "SlurmctldPrimaryOnProg=/sbin/vip\n")
    assert not any(word in made.files["slurm.conf"] for word in ("/sbin/", "/bin/mail"))


def test_weights_without_slurmdbd_keep_what_there_is() -> None:
    made = copied(f"{PLAIN}AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageTRES=gres/gpu\n"
                  'PartitionName=a TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=16.0"\n')
    assert "TRESBillingWeights=CPU=1.0,Mem=0.25G" in made.files["slurm.conf"]
    assert made.caused.search("PriorityWeightAge can only be used with SlurmDBD, ignoring")
    assert not copied(PLAIN).caused.search("PriorityWeightAge can only be used with SlurmDBD, ignoring")


def test_folders_of_the_daemons_are_their_owners() -> None:
    read = configure({"slurm.conf": f"{PLAIN}StateSaveLocation=/a/state\nSlurmdSpoolDir=/b/%n\n"
                      "SlurmdLogFile=/c/%n.log\nSlurmctldLogFile=/d/ctld.log\nSlurmdPidFile=/run/x.pid\n"})
    found = dict(copy.folders(read, ["n1", "n2"], "head", "slurm"))
    assert found == {"/a/state": "slurm", "/b/n1": "", "/b/n2": "", "/d": "slurm", "/c": ""}


# --- kinds ----------------------------------------------------------------------------------------------------------


def test_one_kind_for_each_line_and_hardware() -> None:
    text = f"{PLAIN}NodeName=a[1-3] CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2\nNodeName=b1 CPUs=4\n"
    nodes = (*(replace(m.H100, name=name, gpus=()) for name in ("a1", "a2")), replace(m.BIG_CPU, name="a3"))
    found, left = kinds(configure({"slurm.conf": text}), Inventory(nodes))
    assert [(kind.hosts, kind.name, kind.node is not None) for kind in found] == [
        (("a1", "a2"), "a1", True), (("a3",), "a3", True), (("b1",), "b1", False)]
    assert left == []


def test_addresses_of_the_files_are_taken() -> None:
    read = configure({"slurm.conf": f"{PLAIN}NodeName=a[1-2] NodeAddr=10.0.0.[8-9] CPUs=4\nNodeName=b NodeAddr=b-ib\n"})
    found, _ = kinds(read, None)
    runs = [run_of(kind, read) for kind in found]
    assert [(run.address, run.alias) for run in runs] == [("10.0.0.8", ""), ("", "b-ib")]


def test_other_nodes_lead_nowhere() -> None:
    told = spec(NEW, Cluster({"slurm.conf": ""}, (NodeRun("a", Hardware()),), controller="head", hosts=("a", "b")), ())
    assert told["files"]["/etc/hosts"].splitlines()[1:] == ["192.0.2.1 head", "192.0.2.10 a", f"{NOWHERE} b"]


# --- logs and verdicts ----------------------------------------------------------------------------------------------


def test_lines_without_time_and_daemon() -> None:
    for line in ("slurmd-n1: error: x", "[2026-01-01T00:00:00.123] error: x", "slurmctld: error: x", "error: x"):
        assert plain(line) == "error: x"


def test_what_every_first_start_says_is_left_out() -> None:
    lines = ["slurmctld: error: Could not open job state file /x: No such file", "slurmd: error: bad thing",
             "slurmd: info", "slurmd: error: bad thing", "[2026] warning: w"]
    assert complaints(lines) == ("error: bad thing", "warning: w")
    assert ended_by(["slurmd: error: a", "slurmd: fatal: b", "slurmd: error: state file c"]) == "fatal: b"
    assert node_of("error: Setting node vm state to INVAL") == "vm"
    assert node_of("error: no name here") == ""


def test_fields_and_states() -> None:
    text = "NodeName=vm State=IDLE SlurmdStartTime=2026-01-01T00:00:00 Reason=Low RealMemory (a < b) [root@2026-01-01]"
    assert fields(text)["Reason"] == "Low RealMemory (a < b)"
    assert judged(text)
    assert not judged("State=UNKNOWN SlurmdStartTime=None")
    assert not judged("State=IDLE* SlurmdStartTime=2026-01-01T00:00:00")
    assert judged("State=UNKNOWN+DRAIN+INVALID_REG SlurmdStartTime=None")


@pytest.mark.parametrize(("line", "place"), [
    ('Parse error in file /etc/slurm/gres.conf line 3: " x"', "gres.conf:3"),
    ("Parsing error at unrecognized key: Gres", "slurm.conf:14"),
    ("gres/gpu GRES core specification 16-31 for node vm doesn't match", "gres.conf:3"),
    ("Invalid GRES Links value (-1,12) on node vm", "slurm.conf:14"),
    ("can't stat gres.conf file /dev/nvidia5", "gres.conf:6"),
    ("NodeNames=vm CPUs=100 match no Sockets", "slurm.conf:14"),
    ('The option "GresTypes" is defunct', "slurm.conf:12"),
    ("something else", "None"),
])
def test_messages_have_their_line(line: str, place: str) -> None:
    assert str(judge.where(line, configure(conf(CASES[0])), None)) == place


def test_a_controller_that_does_not_start_is_fatal() -> None:
    read = configure(conf(CASES[0]))
    answer = Answer(NEW, log=("slurmctld: error: Parse error in file /etc/slurm/slurm.conf line 2: x",
                              "slurmctld: fatal: Unable to process configuration file"))
    found = list(judge.cluster(answer, read))
    assert [(f.severity, str(f.place)) for f in found] == [(Severity.FATAL, "slurm.conf:2")]


def test_an_empty_reason_is_explained_by_the_log() -> None:
    read = configure(conf(CASES[1]))
    kind = kinds(read, None)[0][0]
    answer = NodeAnswer("vm", {"State": "UNKNOWN+DRAIN+INVALID_REG"}, log=(
        "slurmd-vm: error: Invalid GRES data for gpu, Cores=0-63,128-191",))
    found = list(judge.node(kind, answer, read))
    assert [(f.severity, str(f.place)) for f in found] == [(Severity.INVALID, "gres.conf:1")]
    assert "empty Reason" in found[0].what and "not the CPUs of the OS" in found[0].means


@pytest.mark.parametrize(("lines", "shown", "wrong"), [
    # GPU 0 is near all cores, GPU 1 near socket 1.
    ("Cores=0-111 Cores=56-111", "gpu:2(S:0-1)", False),
    (" Cores=56-111", "gpu:2(S:1)", False),
    (" Cores=56-111", "gpu:2(S:0)", True),
    ("Cores=0-111 Cores=56-111", "gpu:2(S:1)", True),
    ("Cores=0-111 Cores=56-111", "gpu:2", True),
    (" ", "gpu:2", False),
])
def test_gpus_near_all_cores_beside_others(lines: str, shown: str, wrong: bool) -> None:
    first, second = lines.split(" ")
    gpus = m.gpus("NVIDIA H100 80GB HBM3", m.H100_CPU, [0, 1])
    every = tuple(sorted(cpu for core in m.H100_CPU.cores for cpu in core.cpus))
    node = replace(m.H100, name="n1", gpus=(replace(gpus[0], numa=None, local_cpus=every), gpus[1]))
    read = configure({
        "slurm.conf": "NodeName=n1 CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:2\n",
        "gres.conf": f"Name=gpu File=/dev/nvidia0 {first}\nName=gpu File=/dev/nvidia1 {second}\n"})
    kind = kinds(read, Inventory((node,)))[0][0]
    answer = NodeAnswer(kind.name, {"State": "IDLE", "Gres": shown})
    found = [f for f in judge.node(kind, answer, read) if f.rule == "proof.agrees" and "Gres=" in f.what]
    assert [f.severity for f in found if f.severity is not Severity.NOTE] == [Severity.WRONG] * wrong


def test_qos_of_partitions_go_where_there_is_no_slurmdbd() -> None:
    """From 25.11 on slurmctld refuses a partition whose QOS it does not know."""
    made = copied("ClusterName=c\nAccountingStorageType=accounting_storage/slurmdbd\nNodeName=n1 CPUs=4\n"
                  "PartitionName=p Nodes=n1 QOS=high AllowQos=a,b TRESBillingWeights=CPU=1.0,GRES/gpu=4 Default=YES\n")
    lines = made.files["slurm.conf"].splitlines()
    assert "PartitionName=p Nodes=n1 TRESBillingWeights=CPU=1.0 Default=YES" in lines
    assert any("QOS, AllowQos left out" in change.what for change in made.changes)


@pytest.mark.parametrize(("text", "names"), [
    ("SlurmctldHost=head(head-mgmt)\n", ["head", "head-mgmt"]),
    ("ControlMachine=head\nControlAddr=head-mgmt\n", ["head", "head-mgmt"]),
    ("SlurmctldHost=head(10.1.2.3)\n", ["head"]), ("SlurmctldHost=head\n", ["head"]),
])
def test_a_controller_is_found_by_the_name_of_its_address(text: str, names: list[str]) -> None:
    name, addresses = controller(configure({"slurm.conf": text}))
    hosts = spec(NEW, Cluster({}, (), controller=name, controller_addresses=addresses), ())["files"]["/etc/hosts"]
    own = "10.1.2.3" if "10.1.2.3" in text else hosts.splitlines()[1].split()[0]
    assert [line.split()[1] for line in hosts.splitlines() if line.startswith(f"{own} ")] == names
