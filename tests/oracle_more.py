"""Further configurations and what real Slurm daemons make of them; see oracle_cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oracle_cases import H100, H100_LINE, NODE, SMALL, V22, V24, V26, Case, Expected, Version, gpus

TWO = ("0-55", "56-111")
MANY = "NodeName=n[1-5] Sockets=2 CoresPerSocket=4 RealMemory=100 State=UNKNOWN\n"
NUMA = "pack:2 numa:1 core:4 pu:1"
SMALL_LINE = "CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000"


def lines(*parts: str) -> str:
    return "".join(f"NodeName={NODE} {part}\n" for part in parts)


def gres(name: str, what: str, text: str, line: str = f"{H100_LINE} RealMemory=1000 Gres=gpu:h100:2",
         **more: object) -> Case:
    return Case(name, what, line, text, H100, {}, gpus=2, **more)  # type: ignore[arg-type]


def tree(name: str, what: str, text: str, plugin: str = "tree", **more: object) -> Case:
    return Case(name, what, SMALL_LINE, "", SMALL, {}, gpus=0, settings={"TopologyPlugin": f"topology/{plugin}"},
                files={"topology.conf": text}, nodes=MANY, **more)  # type: ignore[arg-type]


ALL = f"{NODE},n[1-5]"
ASKED = (
    gres("key", "a key that there is not", lines("Name=gpu Type=h100 File=/dev/nvidia[0-1] Affinity=0-55")),
    gres("count", "Count= that is not the number of files", lines("Name=gpu Type=h100 Count=3 File=/dev/nvidia[0-1]")),
    gres("multiple", "MultipleFiles= with one file", lines("Name=gpu Type=h100 MultipleFiles=/dev/nvidia0",
                                                           "Name=gpu Type=h100 File=/dev/nvidia1")),
    gres("types", "GresTypes= without gpu", gpus("h100", TWO), settings={"GresTypes": ""}),
    gres("some typed", "some lines typed and others not", lines("Name=gpu Type=h100 File=/dev/nvidia0",
                                                                "Name=gpu File=/dev/nvidia1")),
    gres("flags", "different Flags of one name", lines("Name=gpu Type=h100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
                                                       "Name=gpu Type=h100 File=/dev/nvidia1 Flags=amd_gpu_env")),
    gres("no flags", "no Flags", lines("Name=gpu Type=h100 File=/dev/nvidia[0-1]")),
    gres("unknown flag", "a flag that there is not", lines("Name=gpu Type=h100 File=/dev/nvidia[0-1] Flags=cuda_env")),
    gres("autodetect first", "AutoDetect= before Name= without NodeName=",
         "AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"),
    gres("autodetect word", "a word that AutoDetect does not have", lines("AutoDetect=amdgpu")),
    gres("comma", "Links with an empty element", lines("Name=gpu Type=h100 File=/dev/nvidia0 Links=-1,",
                                                       "Name=gpu Type=h100 File=/dev/nvidia1 Links=,-1")),
    gres("two -1", "Links with two -1", gpus("h100", TWO, "Links=-1,-1")),
    gres("short", "Links shorter than the node has GPUs", gpus("h100", TWO, "Links=-1")),
    gres("digits", "the count where the type belongs", gpus("h100", TWO),
         f"{H100_LINE} RealMemory=1000 Gres=gpu:2:h100"),
    gres("regular", "a file that is no device", lines("Name=gpu Type=h100 File=/etc/passwd")),
    gres("range", "one line for a range of devices", lines("Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-55")),
    gres("cores cut", "Cores out of order and doubled", lines("Name=gpu Type=h100 File=/dev/nvidia0 Cores=55-0",
                                                              "Name=gpu Type=h100 File=/dev/nvidia1 Cores=56-111")),
    gres("two sockets", "Cores of both sockets", gpus("h100", ("0-111", "0-111"))),
    Case("boards", "Boards= and Sockets=", f"{H100_LINE} Boards=1 RealMemory=1000", "", H100, {}, gpus=0),
    Case("both sockets", "Sockets= and SocketsPerBoard=", f"{H100_LINE} SocketsPerBoard=2 RealMemory=1000", "", H100,
         {}, gpus=0),
    Case("core spec", "CoreSpecCount= of all cores", f"{SMALL_LINE} CoreSpecCount=8", "", SMALL, {}, gpus=0),
    Case("mem spec", "MemSpecLimit= of all memory", f"{SMALL_LINE} MemSpecLimit=1000", "", SMALL, {}, gpus=0,
         settings={"SelectTypeParameters": "CR_Core_Memory"}),
    Case("node key", "a node key that there is not", f"{SMALL_LINE} Memory=1000", "", SMALL, {}, gpus=0),
    Case("node twice", "a node on two lines", SMALL_LINE, "", SMALL, {}, gpus=0, nodes=f"NodeName={NODE} CPUs=4\n"),
    Case("cons_res", "select/cons_res", SMALL_LINE, "", SMALL, {}, gpus=0, settings={"SelectType": "select/cons_res"}),
    Case("both parameters", "numa_node_as_socket and l3cache_as_socket", SMALL_LINE, "", SMALL, {}, gpus=0,
         settings={"SlurmdParameters": "numa_node_as_socket,l3cache_as_socket"}),
    Case("tmp", "more TmpDisk than there is", f"{SMALL_LINE} TmpDisk=99999999", "", SMALL, {}, gpus=0),
    Case("node parameters", "Parameters= on the node line", f"{SMALL_LINE} Parameters=numa_node_as_socket", "", NUMA,
         {}, gpus=0),
    tree("tree", "one switch above two leaves", f"SwitchName=l1 Nodes={NODE},n[1-2]\nSwitchName=l2 Nodes=n[3-5]\n"
         "SwitchName=s Switches=l[1-2]\n"),
    tree("two leaves", "a node on two leaves", f"SwitchName=l1 Nodes={NODE},n[1-3]\nSwitchName=l2 Nodes=n[3-5]\n"
         "SwitchName=s Switches=l[1-2]\n"),
    tree("islands", "no common root", f"SwitchName=l1 Nodes={NODE},n[1-2]\nSwitchName=l2 Nodes=n[3-5]\n"),
    tree("no leaf", "a node on no leaf", f"SwitchName=l1 Nodes={NODE},n[1-4]\n"),
    tree("stranger", "a host that is no node", f"SwitchName=l1 Nodes={ALL},Mellanox\n"),
    tree("empty", "no switches", ""),
    tree("no child", "a child that is not defined", f"SwitchName=l1 Nodes={ALL}\nSwitchName=s Switches=l[1-2]\n"),
    tree("both kinds", "nodes and switches on one line",
         f"SwitchName=l1 Nodes=n1\nSwitchName=s Nodes={NODE} Switches=l1\n"),
    tree("cycle", "switches in a circle",
         f"SwitchName=l1 Nodes={ALL}\nSwitchName=a Switches=b,l1\nSwitchName=b Switches=a\n"),
    tree("bare leaf", "a switch with nothing",
         f"SwitchName=l1 Nodes={ALL}\nSwitchName=l2\nSwitchName=s Switches=l[1-2]\n"),
    tree("long name", "a name of 64 characters", f"SwitchName={'s' * 64} Nodes={ALL}\n"),
    tree("blocks", "two blocks and their sizes", f"BlockName=b1 Nodes={NODE},n[1-2]\nBlockName=b2 Nodes=n[3-5]\n"
         "BlockSizes=3,6\n", "block"),
    tree("odd sizes", "a block size that is no power of two times the first",
         f"BlockName=b1 Nodes={NODE},n[1-2]\nBlockName=b2 Nodes=n[3-5]\nBlockSizes=2,3\n", "block"),
    tree("large sizes", "a block size above the block's", f"BlockName=b1 Nodes={NODE},n[1-2]\n"
         "BlockName=b2 Nodes=n[3-5]\nBlockSizes=4\n", "block"),
    tree("two blocks", "a node in two blocks", f"BlockName=b1 Nodes={NODE},n[1-3]\nBlockName=b2 Nodes=n[3-5]\n"
         "BlockSizes=3\n", "block"),
    tree("no block", "a node in no block", f"BlockName=b1 Nodes={NODE},n[1-2]\nBlockSizes=3\n", "block"),
    tree("no sizes", "no BlockSizes=", f"BlockName=b1 Nodes={NODE},n[1-2]\nBlockName=b2 Nodes=n[3-5]\n", "block"),
)


def every(state: str, *says: str, gres: str = "") -> dict[Version, Expected]:
    return dict.fromkeys((V22, V24, V26), Expected(state, gres, says))


def each(first: Expected, second: Expected, third: Expected) -> dict[Version, Expected]:
    """On 22.05, 24.11 and 26.05."""
    return {V22: first, V24: second, V26: third}


IDLE = Expected("IDLE")
BOTH = "gpu:h100:2(S:0-1)"
NO_BLOCKS = Expected("CTLD", says=("topology/block",))
NOT_A_LEAF = Expected("CTLD", says=("switch l2 has neither child switches nor nodes",))
ANSWERS: Mapping[str, Mapping[Version, Expected]] = {
    "key": every("SLURMD", "unrecognized key: Affinity"),
    "count": every("SLURMD", "count does not match File value"),
    "multiple": every("SLURMD", "MultipleFiles does not contain multiple files"),
    "types": every("IDLE"),
    "some typed": every("SLURMD", 'some records have "Type=" specification while others do not'),
    "flags": every("SLURMD", "does not match env flags for previous GRES"),
    "no flags": every("IDLE", gres="gpu:h100:2"),
    "unknown flag": every("IDLE", gres="gpu:h100:2"),
    "autodetect first": every("SLURMD", "Parse error in file /etc/slurm/gres.conf line 1"),
    "autodetect word": every("INVAL", "unknown autodetect flag 'amdgpu'", "(0 < 2)"),
    "comma": every("IDLE", gres="gpu:h100:2"),
    "two -1": every("IDLE", "Ignoring invalid Links=-1,-1", gres=BOTH),
    "short": every("IDLE", gres=BOTH),
    "digits": every("IDLE", gres="gpu:h100:1(S:0)"),
    "regular": every("INVAL", "/etc/passwd is not a valid character or block device", "(1 < 2)"),
    "range": every("IDLE", gres="gpu:h100:2(S:0)"),
    "cores cut": every("IDLE", gres="gpu:h100:2(S:1)"),
    "two sockets": every("IDLE", gres=BOTH),
    "boards": every("IDLE"),
    "both sockets": every("IDLE", "Sockets=# and SocketsPerBoard=# is invalid"),
    "core spec": every("IDLE", "CoreSpecCount=8 is invalid, reset to 1"),
    "mem spec": every("IDLE", "MemSpecLimit=1000 is invalid, reset to 0"),
    "node key": every("CTLD", "unrecognized key: Memory"),
    "node twice": every("CTLD", "Duplicated NodeHostName vm in config file"),
    "cons_res": each(IDLE, Expected("CTLD", says=("select/cons_res",)), Expected("CTLD", says=("select/cons_res",))),
    "both parameters": each(IDLE, Expected("IDLE", says=("mutually exclusive",)),
                            Expected("IDLE", says=("mutually exclusive",))),
    "tmp": every("INVAL", "Low TmpDisk"),
    "node parameters": each(*[Expected("CTLD", says=("unrecognized key: Parameters",))] * 2, IDLE),
    "tree": every("IDLE"),
    "two leaves": every("IDLE", "Multiple leaf switches contain nodes: n3"),
    "islands": every("IDLE", "no switch can reach all nodes"),
    "no leaf": every("IDLE", "switches lack access to 1 nodes: n5"),
    "stranger": every("IDLE", "Invalid hostnames in switch configuration: Mellanox"),
    "empty": each(*[Expected("IDLE", says=("No switches configured",))] * 2,
                  Expected("CTLD", says=("No switches configured",))),
    "no child": every("CTLD", "Switch configuration s has invalid child (l2)"),
    "both kinds": every("CTLD", "switch s has both child switches and nodes"),
    "cycle": every("CTLD", "Switch configuration is not a tree"),
    "bare leaf": each(NOT_A_LEAF, NOT_A_LEAF, IDLE),
    "long name": every("IDLE"),
    "blocks": each(NO_BLOCKS, IDLE, IDLE),
    "odd sizes": each(NO_BLOCKS, *[Expected("CTLD", says=("Invalid BlockSizes value: 3",))] * 2),
    "large sizes": each(NO_BLOCKS, Expected("CTLD", says=("children count lower than bblock_node_cnt",)), IDLE),
    "two blocks": each(NO_BLOCKS, IDLE, IDLE),
    "no block": each(NO_BLOCKS, IDLE, IDLE),
    "no sizes": each(NO_BLOCKS, IDLE, IDLE),
}
# Registered, and not as it is meant.
AMISS = ("types", "two -1", "comma", "short", "digits", "cores cut", "both sockets", "core spec", "mem spec", "islands",
         "two leaves", "no leaf", "stranger", "empty", "large sizes", "two blocks", "no block")
# What the files and the inventory cannot tell.
UNSEEN = ("tmp",)
# conf check is stricter than any of these versions: Slurm makes one GPU of it, and says nothing.
STRICTER = ("digits",)
MORE = tuple(replace(case, expected=ANSWERS[case.name], amiss=case.name in AMISS) for case in ASKED)
