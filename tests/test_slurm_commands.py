"""The command-line back end against recorded texts: what is read, what is refused, with which exit status."""

import os
import stat
from pathlib import Path

import pytest
from looped import looped

from hpcadmin.errors import EXIT_UNREACHABLE, EXIT_USAGE, HpcadminError, SlurmError, UsageError
from hpcadmin.run_nodes import choose_partition, select
from hpcadmin.slurm.client import NoAnswerError, Partition, SlurmNode, version_tuple
from hpcadmin.slurm.command_line import (
    Answer,
    CommandLine,
    clean_environment,
    key_values,
    minutes,
    parse_nodes,
    parse_partitions,
    refused,
)
from hpcadmin.slurm.states import node_state

NODE = (
    "NodeName=n01 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.78 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres={gres} NodeAddr=127.0.0.1 NodeHostName=big.example Port=29601 Version=22.05.8 "
    "OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1  RealMemory=1000 AllocMem=0 FreeMem=22924 Sockets=2 "
    "Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=val,gpu  "
    "BootTime=2026-01-02T03:12:39 CfgTRES=cpu=2,mem=1000M,billing=2 AllocTRES= CapWatts=n/a{tail}"
)


def test_a_node_line_with_blanks_in_its_values() -> None:
    text = NODE.format(gres="gpu:h100:8(S:0-1),nic:1", state="IDLE+DRAIN", tail=" Comment=a State=DOWN b   "
                       "Reason=Not responding, see State=ALLOCATED [slurm@2026-01-02T03:04:05]")
    node = parse_nodes(text + "\n")[0]
    assert (node.name, node.hostname, node.partitions) == ("n01", "big.example", ("val", "gpu"))
    assert node.state.unusable == "drained"
    assert node.reason == "Not responding, see State=ALLOCATED"
    assert (node.gpus, node.cpus, node.memory_mib) == (8, 2, 1000)


@pytest.mark.parametrize(("gres", "count"), [
    ("(null)", 0), ("gpu:2", 2), ("gpu", 1), ("gpu:h200:16(S:0-1)", 16), ("gpu:a:4(S:0),gpu:b:3(S:0,1)", 7),
    ("nic:4,gpu:1", 1), ("gpumem:80", 0), ("gpu:8", 8),
])
def test_gpus_of_a_gres_text(gres: str, count: int) -> None:
    assert parse_nodes(NODE.format(gres=gres, state="IDLE", tail=""))[0].gpus == count


def test_unreadable_node_lines_are_refused() -> None:
    with pytest.raises(SlurmError, match="unreadable"):
        parse_nodes("slurm_load_node: something else\n")
    assert parse_nodes("No nodes in the system\n") == ()


@pytest.mark.parametrize(("text", "whole"), [
    ("OverSubscribe=NO", False), ("OverSubscribe=EXCLUSIVE", True), ("OverSubscribe=FORCE:4", False),
    ("ExclusiveUser=YES OverSubscribe=NO", False), ("Exclusive=NODE OverSubscribe=NO", True),
    ("Exclusive=USER", False), ("Exclusive=NO", False), ("", False)])
def test_partitions_of_whole_nodes(text: str, whole: bool) -> None:
    found = parse_partitions(f"PartitionName=val Default=YES {text} State=UP\n")
    assert [p.whole_nodes for p in found] == [whole]


@pytest.mark.parametrize(("text", "several"), [
    ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
     "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n", True),
    ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
     "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf1\n", False),
    ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]\n", False),
    ("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
     "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n", True),
    ("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n", False), ("", False)])
def test_several_leaves(text: str, several: bool, commands: Path) -> None:
    (commands / "told").write_text(text)
    stand_in(commands, "scontrol", f"cat {commands}/told")
    assert CommandLine().topology() is several


def test_pyxis_is_known_by_its_option(commands: Path) -> None:
    stand_in(commands, "srun", "echo '      --container=path'")         # Slurm's own one, for OCI bundles
    assert not CommandLine().starts_containers()
    stand_in(commands, "srun", "echo '      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH'")
    assert CommandLine().starts_containers()


def test_partitions() -> None:
    text = ("PartitionName=val AllowGroups=ALL Default=YES MaxTime=UNLIMITED State=UP TotalNodes=4\n"
            "PartitionName=short* AllowGroups=ALL Default=NO MaxTime=1-02:03:00 State=DOWN\n")
    assert parse_partitions(text) == (Partition("val", "UP", True, None), Partition("short", "DOWN", False, 1563))
    assert [minutes(t) for t in ("00:30:00", "90", "2-00:00:00", "UNLIMITED", "INFINITE", "")] == [
        30, 90, 2880, None, None, None]


REFUSALS = [
    ("sbatch: error: Batch job submission failed: Invalid partition name specified", UsageError, "partition"),
    ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", SlurmError,
     "controller"),
    ("sbatch: error: Batch job submission failed: Connection reset by peer", NoAnswerError, "controller"),
    ("sbatch: error: Batch job submission failed: No route to host", NoAnswerError, "controller"),
    ("sbatch: error: Batch job submission failed: Access/permission denied", SlurmError, "may not submit"),
    ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
     UsageError, "account"),
    ("sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)", SlurmError,
     "inactive"),
    ("sbatch: error: Batch job submission failed: Requested node configuration is not available", SlurmError,
     "no node can satisfy"),
    ("sbatch: error: Batch job submission failed: Invalid node name specified", SlurmError, "no node can satisfy"),
    ("sbatch: error: Batch job submission failed: Requested reservation is invalid", UsageError, "reservation"),
    ("sbatch: error: Batch job submission failed: Invalid qos specification", UsageError, "QOS"),
    ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
     SlurmError, "limits"),
    ("slurm_load_partitions: Unable to contact slurm controller (connect failure)", SlurmError, "controller"),
    ("squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsqueue: error: fetch_config: DNS SRV "
     "lookup failed\nsqueue: fatal: Could not establish a configuration source", SlurmError, "slurm.conf"),
    ("sbatch: error: Munge encode failed: Failed to access \"/run/munge/sock\": No such file or directory\nsbatch: "
     "error: authentication: Socket communication error", SlurmError, "authentication"),
    ("sbatch: error: something new went wrong", SlurmError, "something new"),
    ("", SlurmError, "said nothing"),
]


@looped(("text", "kind", "word"), REFUSALS)
def test_refusals(text: str, kind: type[HpcadminError], word: str) -> None:
    error = refused("sbatch", Answer(1, "", text))
    assert isinstance(error, kind)
    assert word in str(error)
    assert "\n" not in str(error)
    assert error.exit_status == (EXIT_USAGE if kind is UsageError else EXIT_UNREACHABLE)


def stand_in(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins that comes first in PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_a_missing_command_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="scontrol: is not installed here"):
        CommandLine().nodes()


def test_a_hanging_command_is_given_up(commands: Path) -> None:
    stand_in(commands, "scontrol", "exec sleep 60")
    with pytest.raises(SlurmError, match="did not answer within"):
        CommandLine(timeout_s=0.3).nodes()


def test_a_submission_whose_answer_was_lost_is_found_by_its_comment(commands: Path) -> None:
    stand_in(commands, "sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv "
             "operation' >&2; exit 1")
    stand_in(commands, "squeue", "echo '41|RUNNING|None|n1|other'; echo '42|PENDING|None||hpcadmin:R:1'")
    assert CommandLine().submit(Path("script"), comment="hpcadmin:R:1") == 42
    for others in ("true", "echo '43|RUNNING|None|n1|hpcadmin:R:10'"):
        stand_in(commands, "squeue", others)
        with pytest.raises(SlurmError, match="does not answer"):
            CommandLine().submit(Path("script"), comment="hpcadmin:R:1")


def test_submit_reads_the_id(commands: Path) -> None:
    stand_in(commands, "sbatch", "echo '123;cluster'")
    assert CommandLine().submit(Path("script"), comment="c") == 123
    stand_in(commands, "sbatch", "echo hello")
    with pytest.raises(SlurmError, match="instead of a job id"):
        CommandLine().submit(Path("script"), comment="c")


def test_vanished_jobs_are_asked_for_and_unknown_ones_stay_unknown(commands: Path) -> None:
    stand_in(commands, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    stand_in(commands, "squeue", "echo '1|RUNNING|None|n1|x'")
    stand_in(commands, "scontrol", "case $5 in 2) echo 'JobId=2 JobName=x UserId=a(1) Comment=c JobState=NODE_FAIL "
             "Reason=NodeDown Dependency=(null) ExitCode=1:0';; *) echo 'slurm_load_jobs error: Invalid job id "
             "specified' >&2; exit 1;; esac")
    jobs = CommandLine().jobs([1, 2, 3])
    assert [(jobs[i].state, jobs[i].over) for i in (1, 2, 3)] == [("RUNNING", False), ("NODE_FAIL", True), ("", True)]
    assert "NODE_FAIL" in jobs[2].ending


def test_the_users_settings_do_not_reach_our_commands(commands: Path) -> None:
    kept = clean_environment({"SQUEUE_FORMAT": "%j", "SBATCH_PARTITION": "x", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c",
                              "PATH": "/bin", "PMIX_RANK": "0", "LC_ALL": "de_DE", "SINFO_FORMAT": "x"})
    assert kept == {"SLURM_CONF": "/c", "PATH": "/bin", "LC_ALL": "C"}


def test_a_text_that_is_no_version(commands: Path) -> None:
    stand_in(commands, "sinfo", "echo slurm-wlm 22.05.8")
    assert CommandLine().version() == "22.05.8"
    stand_in(commands, "sinfo", "echo hello")
    with pytest.raises(SlurmError, match="no version"):
        CommandLine().version()
    assert version_tuple("24.11.0-rc1") == (24, 11, 0)
    assert version_tuple("?") == ()
    assert key_values("JobId=1 A:B=x  y Z= ") == {"JobId": "1", "A:B": "x  y", "Z": ""}


# --- which nodes ------------------------------------------------------------------------------------------------

PARTITIONS = (Partition("val", "UP", default=True), Partition("off", "DOWN"))


def node(name: str, state: str = "IDLE", partitions: tuple[str, ...] = ("val",), reason: str = "") -> SlurmNode:
    return SlurmNode(name, node_state(state), partitions=partitions, reason=reason)


def test_partition_that_is_unknown_or_down() -> None:
    with pytest.raises(UsageError, match="no partition 'x'"):
        choose_partition(PARTITIONS, "x")
    with pytest.raises(SlurmError, match="partition off is DOWN"):
        choose_partition(PARTITIONS, "off")
    with pytest.raises(UsageError, match="no default"):
        choose_partition(PARTITIONS[1:], "")
    assert choose_partition(PARTITIONS, "").name == "val"


def test_nodes_that_are_left_out_are_named_with_the_reason() -> None:
    nodes = [node("n1"), node("n2", "IDLE+DRAIN", reason="fan"), node("n3", "DOWN*"), node("n4", partitions=("off",))]
    chosen = select(nodes, PARTITIONS, "", "n[1-5]")
    assert [n.name for n in chosen.nodes] == ["n1"]
    assert {s.node: s.reason for s in chosen.skipped} == {
        "n2": "drained: fan", "n3": "down, not responding", "n4": "not in partition val",
        "n5": "Slurm has no node of that name"}
    assert [n.name for n in select(nodes, PARTITIONS, "", "").nodes] == ["n1"]


@pytest.mark.parametrize(("hostlist", "what"), [
    ("x[1-2]", "is no node of this Slurm"), ("n4", "is not in partition val"), ("n[1-", "malformed"),
])
def test_hostlists_that_name_nothing(hostlist: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        select([node("n1"), node("n4", partitions=("off",))], PARTITIONS, "", hostlist)
