"""Nodes that slurmctld does not use: reading what it prints (as 22.05.8, 24.11.5 and 26.05.5 print it), and why."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from conf_models import H100, inventory, names
from looped import looped

from hpcadmin import conf_live
from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.rules import live
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.live import parse_config, parse_nodes, read_nodes, reason_of, states
from hpcadmin.errors import ParseError, SlurmError
from hpcadmin.model import Inventory

NODE = ("NodeName={name} Arch=x86_64 CoresPerSocket={cores}  CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.25 "
        "AvailableFeatures={features} ActiveFeatures={features} Gres={gres} NodeAddr=10.0.0.1 NodeHostName={name} "
        "Version=22.05.8 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)  "
        "RealMemory={memory} AllocMem=0 FreeMem=22348 Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 "
        "Weight=1 Owner=N/A MCS_label=N/A Partitions=main  BootTime=2026-01-01T03:00:00 "
        "SlurmdStartTime=2026-01-02T10:00:00 LastBusyTime=2026-01-02T10:00:00 CfgTRES=cpu=224,mem=24105M,billing=224 "
        "AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s")
SLURM = ("ClusterName=x\nGresTypes=gpu\nSlurmdTimeout=300\nReturnToService=1\nProlog=/etc/slurm/prolog.sh\n"
         "NodeName=node[01-04] CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2043214 "
         "Gres=gpu:h100:8 Features=h100\n")
GRES = "".join(f"NodeName=node[01-04] AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia{i} "
               f"Cores={'0-55' if i < 4 else '56-111'}\n" for i in range(8))
H100S = inventory((names("node", 4), H100))


def node(name: str = "node01", state: str = "IDLE", reason: str = "", since: str = "2026-01-02T11:00:00",
         user: str = "slurm", **values: object) -> str:
    given = {"cores": 56, "features": "h100", "gres": "gpu:h100:8(S:0-1)", "memory": 2043214, **values}
    text = NODE.format(name=name, state=state, **given)
    return f"{text} Reason={reason} [{user}@{since}]\n" if reason else f"{text}\n"


def found(text: str, *, slurm: str = SLURM, gres: str = GRES, whole: Inventory | None = H100S, config: str = "",
          version: tuple[int, int] = (22, 5)) -> list[Finding]:
    rest = "".join(node(name) for name in names("node", 4) if f"NodeName={name} " not in text)
    running = parse_config(config).settings if config else {}
    situation = Situation(configure({"slurm.conf": slurm, "gres.conf": gres}), (version,), whole,
                          read_nodes(text + rest), running)
    return [finding for rule in live.RULES for finding in rule(situation)]


def one(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [(f.severity, f.what, f.means) for f in findings]
    return findings[0]


# --- reading -------------------------------------------------------------------------------------------------------


def test_a_reason_of_several_lines_hides_no_state() -> None:
    text = node(reason='fan "B" is loud State=IDLE [x@y] RealMemory=1', state="DOWN+DRAIN*", user="root").rstrip("\n")
    found_node = parse_nodes(f"{text}        second line Comment=hello there\n")["node01"]
    assert found_node.values["state"] == "DOWN+DRAIN*"
    assert found_node.values["realmemory"] == "2043214"
    assert found_node.values["os"].endswith("(2024-02-01)")
    assert found_node.values["comment"] == "hello there"
    reason = reason_of(found_node)
    assert reason.text == 'fan "B" is loud State=IDLE [x@y] RealMemory=1 second line'
    assert (reason.user, reason.since) == ("root", "2026-01-02T11:00:00")
    assert states("DOWN+DRAIN*") == ("DOWN", frozenset({"DRAIN", "NOT_RESPONDING"}))


def test_a_comment_makes_up_no_node() -> None:
    text = node().rstrip("\n") + " Comment=a\nNodeName=evil State=IDLE Extra=k=v w=z\n" + node("node02")
    assert list(parse_nodes(text)) == ["node01", "node02"]
    assert parse_nodes(text)["node01"].values["extra"] == "k=v w=z"


def test_blocks_of_lines_are_read_too() -> None:
    text = node().replace(" OS=", "\n   OS=").replace(" State=", "\n   State=").replace(" CPUAlloc", "\n   CPUAlloc")
    assert parse_nodes(text)["node01"].values["sockets"] == "2"


@pytest.mark.parametrize("text", ["slurm_load_node error: Unable to contact slurm controller\n",
                                  node()[:300], "{\"nodes\": [", "{\"nodes\": [{\"name\": \"a\"}]}", "{}", "[1]"])
def test_what_is_cut_off_is_no_node(text: str) -> None:
    with pytest.raises(ParseError):
        read_nodes(text)
    assert parse_nodes("No nodes in the system\n") == {}


def test_json_says_the_same() -> None:
    record = {
        "name": "node01", "cores": 56, "cpus": 224, "sockets": 2, "boards": 1, "threads": 2, "gres": "gpu:h100:8",
        "state": ["IDLE", "DRAIN", "INVALID_REG"], "features": ["a", "b"], "active_features": [], "real_memory": 1000,
        "reason": "first\nsecond", "reason_set_by_user": "root", "comment": "a\nNodeName=evil",
        "reason_changed_at": {"set": True, "infinite": False, "number": 1767350400},
        "boot_time": {"set": False, "infinite": False, "number": 0}, "slurmd_start_time": 1767350400,
    }
    values = read_nodes(json.dumps({"nodes": [record]}))["node01"]
    assert values.values["state"] == "IDLE+DRAIN+INVALID_REG"
    assert values.values["availablefeatures"] == "a,b"
    assert values.values["activefeatures"] == "(null)"
    assert "boottime" not in values.values
    assert reason_of(values).text == "first second"
    assert (reason_of(values).user, reason_of(values).since) == ("root", "2026-01-02T10:40:00Z")


# --- reasons -------------------------------------------------------------------------------------------------------

INVAL = "IDLE+DRAIN+INVALID_REG"
CASES = [
    ("memory", INVAL, "Low RealMemory (reported:1031000 < 100.00% of configured:2043214)", Severity.INVALID,
     "the node has 1031000 MiB, slurm.conf says 2043214", "RealMemory=1020690"),
    ("cpus", INVAL, "Low socket*core*thread count, Low CPUs", Severity.INVALID, "the node has 2 x 56 x 2", "CPUs=224"),
    ("gres", INVAL, "gres/gpu count reported lower than configured (7 < 8)", Severity.INVALID,
     "slurmd reported 7 of 8 gres/gpu", "Gres=gpu:h100:7"),
    ("type", INVAL, "gres/gpu:h100 count too low (3 < 8)", Severity.INVALID, "3 of 8 of type gres/gpu:h100", ""),
    ("boundary", INVAL, "gres/gpu GRES core specification 0-27 for node node01 doesn't match socket boundaries. "
     "(Socket 0 is cores 0-55)", Severity.INVALID, "the GPU's cores 0-27 are not exactly one socket", "Cores=0-55"),
    ("autodetected", INVAL, "gres/gpu GRES autodetected core affinity 0-15 on node node01 doesn't match socket "
     "boundaries. (Socket 0 is cores 0-31). Consider setting Parameters=l3cache_as_socket as part of the Node "
     "configuration.", Severity.INVALID, "0-15 are not exactly one socket", ""),
    ("links", INVAL, "Invalid GRES Links value (-1,0,0,0) on node vm: i=2 >= link_len=2", Severity.INVALID,
     "Links=-1,0,0,0 has not one number", ""),
    ("silent", "DOWN*", "Not responding", Severity.INVALID, "SlurmdTimeout=300", ""),
    ("rebooted", "DOWN", "Node unexpectedly rebooted", Severity.INVALID, "ReturnToService=1", ""),
    ("kill", "IDLE+DRAIN", "Kill task failed", Severity.INVALID, "UnkillableStepTimeout", ""),
    ("prolog", "IDLE+DRAIN", "Prolog error", Severity.INVALID, "Prolog=/etc/slurm/prolog.sh", ""),
    ("epilog", "IDLE+DRAIN", "Epilog error", Severity.INVALID, "epilog ended with an error", ""),
    ("batch", "IDLE+DRAIN", "batch job complete failure", Severity.INVALID, "slurmd could not start a batch job", ""),
    ("duplicate", "IDLE+DRAIN", "Duplicate jobid", Severity.INVALID, "still had a job of that number", ""),
    ("nhc", "IDLE+DRAIN", "NHC: check_hw_ib:  No IB port mlx5_3:1 is ACTIVE (ib0)", Severity.INVALID,
     "the node health check says: check_hw_ib: No IB port", ""),
    ("resume", "DOWN+POWERED_DOWN", "ResumeTimeout reached", Severity.NOTE, "was not up within ResumeTimeout", ""),
    ("rebooting", "IDLE+DRAIN", "reboot complete", Severity.NOTE, "rebooted by scontrol reboot", ""),
    ("own words", "IDLE+DRAIN", "RMA 4711, do not touch", Severity.NOTE, "none of Slurm's", ""),
    ("own words, down", "DOWN+DRAIN", "RMA 4711, do not touch", Severity.INVALID, "none of Slurm's", ""),
    ("another text", INVAL, "RMA 4711, do not touch", Severity.INVALID, "it is INVAL besides", ""),
    ("no reason", "DOWN", "", Severity.INVALID, "no reason was given", ""),
    ("not yet", "UNKNOWN", "", Severity.INVALID, "waits for its slurmd to register", ""),
    ("no answer", "IDLE*", "", Severity.INVALID, "slurmd does not answer", ""),
]


@looped(("state", "reason", "severity", "means", "right"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_reasons(state: str, reason: str, severity: Severity, means: str, right: str) -> None:
    gres = GRES.replace("Cores=0-55", "Cores=0-27") if "0-27" in reason else GRES
    user = "root" if "RMA" in reason else "slurm"
    said = one(found(node(state=state, reason=reason, user=user), gres=gres))
    assert said.severity is severity
    assert said.nodes == ("node01",)
    assert means in said.means
    assert " ".join(reason.split()) in said.what.replace("\\'", "'")
    assert not right or any(right in line for line in said.right), said.right


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED+COMPLETING", "IDLE+POWERED_DOWN", "IDLE+PLANNED",
                                   "IDLE+RESERVED", "IDLE+MAINTENANCE", "FUTURE"])
def test_nodes_that_are_well_are_not_mentioned(state: str) -> None:
    assert found(node(state=state)) == []


def test_nodes_with_one_reason_are_one_finding() -> None:
    text = "".join(node(name, "DOWN*", "Not responding", f"2026-01-0{day}T11:00:00")
                   for day, name in enumerate(names("node", 3), 1))
    said = one(found(text))
    assert said.nodes == ("node01", "node02", "node03")
    assert "node[01-03] are DOWN and NOT_RESPONDING since 2026-01-01T11:00:00 to 2026-01-03T11:00:00" in said.what


def test_which_gpu_is_gone() -> None:
    text = node("node03", INVAL, "gres/gpu count reported lower than configured (7 < 8)", gres="gpu:h100:7(S:0-1)")
    seven = H100.gpus[:5] + H100.gpus[6:]
    newer = replace(H100S, nodes=tuple(
        replace(n, gpus=seven, captured="2026-01-02T12:00:00+00:00") if n.name == "node03" else n for n in H100S.nodes))
    said = one(found(text, whole=newer))
    assert str(said.place) == "gres.conf:6"
    assert "/dev/nvidia5 (gres.conf:6) is not on the node any more (inventory of 2026-01-02T12:00" in said.means
    assert "since 2026-01-02T11:00:00 (set by slurm)" in said.what
    assert "slurmd started 2026-01-02T10:00:00, the node booted 2026-01-01T03:00:00" in said.means
    assert said.right == ("NodeName=node03 CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=2043214 "
                          "Gres=gpu:h100:7 Features=h100",)
    older = one(found(text))
    assert "it is older than the fault" in older.means
    assert "GPU 5 (0000:6b:00.0" in older.means
    assert "not known here" in one(found(text, whole=None)).means


def test_types_that_differ() -> None:
    text = node(state=INVAL, reason="gres/gpu count reported lower than configured (0 < 8)", gres="gpu:h100:0")
    said = one(found(text, gres=GRES.replace("h100", "a100")))
    assert "Gres= wants type h100, gres.conf has a100" in said.means
    assert any("Gres=gpu:a100:8" in line for line in said.right)


def test_inval_without_a_reason_is_about_cores() -> None:
    gres = GRES.replace("0-55", "0-55,112-167").replace("=56-111", "=56-111,168-223")
    said = one(found(node(state=INVAL), gres=gres, version=(25, 11)))
    assert str(said.place) == "gres.conf:1"
    assert "Cores=0-55,112-167 are CPU ids of the OS" in said.means
    assert "Cores=0-55" in said.right[0] and "112" not in said.right[0]
    blind = one(found(node(state=INVAL), gres=gres, whole=None, version=(25, 11)))
    assert "Cores=0-55" in blind.right[0] and "112" not in blind.right[0]
    assert "slurmctld's log has the error line" in one(found(node(state=INVAL))).means


def test_hostile_reasons() -> None:
    for reason in ("\x1b[31mred", "a" * 100_000, "((((" * 5000, "gres/gpu count reported lower than (", "%s{0}"):
        said = one(found(node(state="IDLE+DRAIN", reason=reason)))
        assert "\x1b" not in said.what and len(said.what) < 1000


# --- what slurmctld has --------------------------------------------------------------------------------------------


def test_affinity_that_slurm_dropped_in_silence() -> None:
    said = one(found(node(gres="gpu:h100:8")))
    assert (said.severity, str(said.place)) == (Severity.WRONG, "gres.conf:1")


@pytest.mark.parametrize(("values", "what"), [
    ({"memory": 1000}, "RealMemory=2043214 is written, slurmctld has 1000"),
    ({"cores": 28}, "CoresPerSocket=56 ThreadsPerCore=2 is written, slurmctld has Sockets=2 CoresPerSocket=28"),
    ({"gres": "gpu:h100:4(S:0-1)"}, "Gres=gpu:h100:8 is written, slurmctld has gpu:h100:4(S:0-1)"),
    ({"features": "(null)"}, "Features=h100 is written, slurmctld has (null)"),
])
def test_values_that_slurmctld_has_not_read(values: dict[str, object], what: str) -> None:
    said = one(found(node("node01", **values) + node("node02", **values)))
    assert said.severity is Severity.DRIFT
    assert said.what.startswith("node[01-02]: ") and what in said.what


def test_nodes_that_only_one_side_has() -> None:
    said = found(node("other"), slurm=SLURM + "NodeName=late CPUs=1\n")
    assert [f.what for f in said] == ["late is written, slurmctld does not know it",
                                      "other is known to slurmctld, and in no NodeName= line here"]


CONFIG = """Configuration data as of 2026-01-02T11:00:00
ClusterName             = x
GresTypes               = gpu
SlurmdTimeout           = 60 sec
SlurmctldHost[0]        = head(10.0.0.1)
ReturnToService         = 1
Prolog[0]               = /etc/slurm/prolog.sh
PriorityMaxAge          = 7-00:00:00
SlurmUser               = slurm(64030)
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
JobRequeue              = 1
MaxMemPerNode           = UNLIMITED
SLURM_VERSION           = 24.11.5

Cgroup Support Configuration:
ConstrainCores          = yes

Slurmctld(primary) at head is UP
"""


def test_settings_that_slurmctld_has_not_read() -> None:
    slurm = SLURM + ("SlurmctldHost=head(10.0.0.1)\nPriorityMaxAge=7-0\nSlurmUser=slurm\nSelectType=select/cons_tres\n"
                     "SelectTypeParameters=CR_Core_Memory\nJobRequeue=yes\nMaxMemPerNode=UNLIMITED\n")
    said = one(found("", slurm=slurm, config=CONFIG))
    assert (said.severity, str(said.place)) == (Severity.DRIFT, "slurm.conf:3")
    assert said.what == "SlurmdTimeout=300 is written, slurmctld has 60 sec"
    assert "scontrol reconfigure" in said.means
    assert parse_config(CONFIG).others == {"Cgroup Support Configuration": {"constraincores": "yes"}}


@pytest.mark.parametrize("text", ["", "slurm_load_ctl_conf error: Unable to contact slurm controller\n", CONFIG[:40]])
def test_a_text_that_is_no_configuration(text: str) -> None:
    with pytest.raises(ParseError):
        parse_config(text)


# --- the door ------------------------------------------------------------------------------------------------------


def commands(folder: Path, scontrol: str, version: str = "slurm 24.11.5") -> dict[str, str]:
    for name, text in (("scontrol", scontrol), ("sinfo", f"echo '{version}'")):
        path = folder / name
        path.write_text(f"#!/bin/sh\necho \"$@\" >> {folder}/calls\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_one_command_each_whatever_the_number_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "nodes").write_text(json.dumps({"nodes": [{"name": f"n{i}", "state": ["IDLE"]} for i in range(500)]}))
    env = commands(tmp_path, f"case $* in *config) cat {tmp_path}/config;; *) cat {tmp_path}/nodes;; esac")
    found_live = conf_live.read(env)
    assert len(found_live.nodes) == 500 and found_live.version == "24.11.5"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["--all show config", "--version", "--all --json show nodes"]


def test_lines_where_there_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "nodes").write_text(node() + node("node02"))
    script = (f"case $* in *config) cat {tmp_path}/config;; *json*) echo no plugin >&2; exit 1;; "
              f"*) cat {tmp_path}/nodes;; esac")
    assert list(conf_live.read(commands(tmp_path, script)).nodes) == ["node01", "node02"]
    old = conf_live.read(commands(tmp_path, script, "slurm-wlm 22.05.8"))
    assert list(old.nodes) == ["node01", "node02"]


@pytest.mark.parametrize("script", [
    "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    "sleep 30", "echo garbage", "exit 0"])
def test_a_controller_that_does_not_answer(tmp_path: Path, script: str) -> None:
    with pytest.raises(SlurmError) as caught:
        conf_live.read(commands(tmp_path, script), timeout_s=0.5)
    assert caught.value.exit_status == 4
    assert "\n" not in str(caught.value)


def test_slurm_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="is not installed here"):
        conf_live.read({"PATH": str(tmp_path)})
