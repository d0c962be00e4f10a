"""Pieces of Slurm's files and logs, as people paste them."""

from __future__ import annotations

from typing import Any

import pytest
from looped import looped

from hpcadmin.facts import Document, Reading
from hpcadmin.facts.slurm_files import read


def one(text: str) -> Reading:
    found = read(Document("x.txt", lines=tuple(text.strip("\n").split("\n"))))
    assert len(found) == 1
    return found[0]


def said(reading: Reading) -> str:
    return "\n".join(f"{finding.line}: {finding.what}" for finding in reading.findings)


def test_a_sound_configuration() -> None:
    reading = one('''
NodeName=g[01-04] CPUs=224 Sockets=2 CoresPerSocket=56 \\
   ThreadsPerCore=2 RealMemory=2000000 Gres=gpu:h100:8
PartitionName=all Nodes=g[01-04] Default=YES
NodeName=g[01-04] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-55
NodeName=g[01-04] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=56-111
''')
    assert reading.known["wrong"] is False and not reading.missing and not reading.findings
    assert reading.known["nodes"] == [{"name": "g[01-04]", "count": 4, "cpus": 224, "sockets": 2,
                                       "cores_per_socket": 56, "threads_per_core": 2, "real_memory": 2000000,
                                       "gres": "gpu:h100:8"}]
    assert reading.known["gres"][1]["files"] == [f"/dev/nvidia{n}" for n in (4, 5, 6, 7)]
    assert (reading.first, reading.last) == (1, 5)


WRONG: list[tuple[str, str]] = [
    ("NodeName=a CPUs=30 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", "1: a: CPUs=30 is no product"),
    ("NodeName=a CPUs=16 Boards=1 Sockets=2 CoresPerSocket=8", "Sockets= together with Boards="),
    ("NodeName=a Sockets=2 CoresPerSocket=8 Gres=gpu:1\nName=gpu File=/dev/nvidia0 Cores=0-31",
     "2: Cores=0-31: a has cores 0-15"),
    ("Name=gpu File=/dev/nvidia0 Cores=9-1", "runs backwards"),
    ("Name=gpu File=/dev/nvidia[0-", "malformed hostlist"),
    ("AutoDetect=cuda", "AutoDetect=cuda is no valid value"),
    ("### slurmd -C\nNodeName=a CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=9\n"
     "### slurm.conf\nNodeName=a CPUs=64 Sockets=64 State=UNKNOWN",
     "4: a: 64x1x1 is configured, the hardware is 2x16x2"),
    ("SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=a", "1: s: l2 is not defined"),
    ("SwitchName=l1 Nodes=a[1-3]\nSwitchName=l2 Nodes=a[3-4]", "2: a3 is on l2 and on l1"),
    ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "a loop of switches"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "2: a is defined twice (first on line 1)"),
    ("SwitchName=a", "neither Switches= nor Nodes="),
    ("error: Node configuration differs from hardware: CPUs=8:16(hw) Boards=1:1(hw) SocketsPerBoard=1:1(hw) "
     "CoresPerSocket=8:8(hw) ThreadsPerCore=1:2(hw)", "ThreadsPerCore: configured 1, hardware 2"),
    ("error: Setting node n7 state to INVAL with reason:gres/gpu count reported lower than configured (6 < 8)",
     "6 of 8 configured registered on n7"),
    ('[2025-01-01T00:00:00.000] error: _find_node_record: lookup failure for node "n9"', "1: n9 is not in slurm.conf"),
    ("fatal: We were configured to autodetect nvml functionality, but we weren't able to find that lib when Slurm was "
     "configured", "built without it"),
    ("error: Node n1 has low real_memory\nReason=Low RealMemory (reported:100 < 100.00% of configured:200)",
     "2: Low RealMemory"),
]


WRONG += [
    ("Name=gpu Type=a Count=3 File=/dev/nvidia[0-1]", "Count=3 beside 2 files"),
    ("AutoDetect=off Name=gpu File=/dev/nvidia0", "without NodeName=: slurmd cannot parse it"),
    ("AutoDetect=nvml\nName=gpu\nName=gpu", "3: duplicate records for gpu"),
    ("Name=gpu Type=a File=/dev/nvidia0\nName=gpu File=/dev/nvidia1", "2: some lines of gpu have Type="),
    ("Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia[0-1]", "2: /dev/nvidia0 is named twice"),
    ("Name=gpu File=/dev/nvidia0 Affinity=0", "affinity: no key of gres.conf"),
    ("Name=gpu Type=a Count=2", "without File= and without AutoDetect="),
    ("Name=gpu Type=a MultipleFiles=/dev/nvidia0", "MultipleFiles= with one file"),
    ("Name=gpu File=/dev/nvidia0 Links=0,,-1", "Links=0,,-1: every GPU has a number"),
    ("Name=gpu File=/dev/nvidia0 Links=0,0", "has not exactly one -1"),
    ("Name=gpu File=/dev/nvidia[0-1] Links=-1,2", "Links= with 2 files"),
    ("Name=gpu File=/dev/nvidia0 CPUs=0-15,32-47", "CPUs of the OS with their hyperthreads, Slurm counts cores: 0-15"),
    ("NodeName=n[1-2] Gres=gpu:a:2\nNodeName=n1 Name=gpu Type=a File=/dev/nvidia[0-1]\n"
     "NodeName=n2 Name=gpu Type=a File=/dev/nvidia0", "3: n2: Gres=gpu:a:2, gres.conf has 1 of them (1 < 2)"),
    ("NodeName=n1 Gres=gpu:a:2\nName=gpu File=/dev/nvidia[0-1]", "(0 < 2): gres.conf has no Type="),
    ("NodeName=n1 Gres=gpu:a:2\nName=gpu Type=b File=/dev/nvidia[0-1]", "(0 < 2): gres.conf has Type=b"),
    ("NodeName=n1 CPUs=4 Sokets=2", "sokets: no key of a NodeName line"),
    ("NodeName=n1 CPUs=4\nNodeName=n1 CPUs=8", "2: Duplicated NodeName n1"),
    ("ClusterName=c\nNodeName=n1 Gres=gpu:2", "there is no GresTypes="),
    ("$ slurmd -C\nNodeName=n2 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=99\n"
     "### slurm.conf\nNodeName=n[1-4] CPUs=8 Sockets=1 CoresPerSocket=8 RealMemory=100", "RealMemory=100 is more than"),
    ("SwitchName=a Switches=b Nodes=n1\nSwitchName=b Nodes=n2", "1: a has Switches= and Nodes="),
    ("BlockName=b1 Nodes=n[1-18]\nBlockSizes=18,27", "27 is not 18 times a power of two"),
    ("BlockSizes=-1", "-1 is no size of a block"),
    ("BlockName=b1 Nodes=n[1-4]\nBlockSizes=8", "the base size 8 is more than b1 has"),
    ("SwitchName=s12345678901234567890123 Nodes=n1", "number at its end"),
    ("- topology: t\n  tree:\n    switches:\n      - switch: s\n        children: l[1-2]\n      - switch: l1\n"
     "        nodes: n1", "4: t: s: l2 is not defined"),
    ("[2025-01-01T00:00:00.000] error: Node n1 has low real_memory size (99 < 100)", "Low RealMemory on n1: 100 is"),
    ("slurmd: fatal: can't stat gres.conf file /dev/nvidia3: No such file or directory", "/dev/nvidia3 of gres.conf"),
    ("Reason=gres/gpu GRES autodetected core affinity 0-7 on node n1 doesn't match socket boundaries. (Socket 0 is "
     "cores 0-15).", "n1: the GPU's cores 0-7 do not match"),
    ("slurmd: error: Parsing error at unrecognized key: Foo", "Foo is no key of this file"),
    ("slurmd: fatal: something that nobody has seen", "fatal: something that nobody has seen"),
    ("slurmctld: error: Invalid hostnames in switch configuration: n77", "n77 is not in slurm.conf"),
]


@looped(("text", "what"), WRONG, ids=[what[:30] for _, what in WRONG])
def test_what_is_wrong_is_named_with_its_line(text: str, what: str) -> None:
    reading = one(text)
    assert what in said(reading)
    assert reading.known["wrong"] is True


def test_counts_of_a_tree_and_of_blocks() -> None:
    tree = one("SwitchName=top Switches=l[1-2]\nSwitchName=l1 Nodes=a[01-16]\nSwitchName=l2 Nodes=a[17-32]").known
    assert (tree["switches"], tree["leaves"], tree["levels"], tree["node_count"]) == (3, 2, 2, 32)
    assert tree["roots"] == ["top"]
    blocks = one("BlockName=b1 Nodes=a[1-18]\nBlockName=b2 Nodes=a[19-36]\nBlockSizes=18,36").known
    assert (blocks["blocks"], blocks["nodes_per_block"], blocks["block_sizes"]) == (2, 18, [18, 36])


def test_defaults_go_into_the_lines_after_them() -> None:
    reading = one("NodeName=DEFAULT CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=9\n"
                  "nodename=a[1-2] gres=gpu:x:1  # two\nNodeName=b RealMemory=5\n"
                  "PartitionName=DEFAULT State=UP\nPartitionName=p Nodes=ALL Default=yes")
    assert [(n["name"], n["cpus"], n["real_memory"]) for n in reading.known["nodes"]] == [("a[1-2]", 8, 9), ("b", 8, 5)]
    assert reading.known["partitions"] == [{"name": "p", "nodes": "ALL", "default": True, "state": "UP"}]


def test_topologies_of_a_yaml() -> None:
    known = one("- topology: a\n  cluster_default: true\n  block:\n    block_sizes: [2, 4]\n    blocks:\n"
                "      - block: b1\n        nodes: n[1-2]\n      - block: b2\n        nodes: n[3-4]\n"
                "- topology: f\n  flat: true").known
    assert (known["blocks"], known["node_count"], known["block_sizes"], known["wrong"]) == (2, 4, [2, 4], False)
    assert [(t["name"], t["kind"], t["default"]) for t in known["topologies"]] == [("a", "block", True),
                                                                                   ("f", "flat", False)]


def test_what_scontrol_show_topology_prints_is_no_fault() -> None:
    reading = one("SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=l[1-2]\n"
                  "SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=l2 Level=0 LinkSpeed=1 Nodes=n[3-4]")
    assert reading.known["wrong"] is False
    assert (reading.known["leaves"], reading.known["node_count"], reading.known["levels"]) == (2, 4, 2)


def test_files_with_holes_and_brackets_round_cores() -> None:
    reading = one("NodeName=n1 Name=gpu File=/dev/nvidia[0,2-3],/dev/nvidia7 Cores=[0-3]\nName=mps Count=100")
    assert reading.known["gres"][0]["files"] == [f"/dev/nvidia{n}" for n in (0, 2, 3, 7)]
    assert reading.known["gres"][1]["name"] == "mps" and reading.known["wrong"] is None


UNDECIDED = ["Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-15", "NodeName=a Gres=gpu:a:1,gpu:b:1"]


@pytest.mark.parametrize("text", UNDECIDED)
def test_what_depends_on_more_is_left_open(text: str) -> None:
    assert one(text).known["wrong"] is None


@pytest.mark.parametrize("text", ["", "hello world", "Sockets are nice", "a = 1",
                                  "NodeName=n1 CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1"
                                  .replace("NodeName", "### slurmd -C\nNodeName")])
def test_other_texts_are_left_to_others(text: str) -> None:
    found: Any = read(Document("x", lines=tuple(text.split("\n"))))
    assert found == ()


def test_device_files_of_created_nodes_are_assumed_only() -> None:
    reading = one("""
scontrol create NodeName=cpu-[1-4] CPUs=2 RealMemory=3072 State=CLOUD
scontrol create NodeName=one-[1-5] CPUs=6 RealMemory=54476 Gres=gpu:1 State=CLOUD
scontrol create NodeName=eight-[1-2] CPUs=96 RealMemory=900000 Gres=gpu:h100:8 State=CLOUD
""")
    assert reading.known["right_lines"] == []
    (assumed,) = reading.assumed
    assert assumed["right_lines"] == ["NodeName=one-[1-5] Name=gpu File=/dev/nvidia0",
                                      "NodeName=eight-[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-7]"]
    assert "minor" in assumed["if"]


def test_a_list_without_files_is_a_fault_only_where_slurmd_says_so() -> None:
    shown = ("slurmd: debug2:     GRES[gpu] Type:{} Count:1 Cores(8):(null)  Links:(null) Flags:HAS_TYPE,ENV_NVML "
             "File:(null) UniqueId:(null)\n")
    detected = ("slurmd: debug:  gpu/nvml: _get_system_gpu_list_nvml: 2 GPU system device(s) detected\n"
                "slurmd: error: Node configuration differs from hardware: CPUs=4:8(hw) Boards=1:1(hw)\n")
    assert "File" not in said(one(detected + shown.format("a100")))
    discarded = one(detected + shown.format("8") + "slurmd: error: Discarding the following config-only GPU due to "
                    "lack of File specification:\n" + shown.format("8"))
    assert [(finding.line, "Type:8" in finding.what, "File=" in finding.what) for finding in discarded.findings] == [
        (2, False, False), (3, True, False), (4, False, True)]
