"""Sound configurations, rendered for known machines and sites of many tastes: a proof has nothing against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import conf_machines as machines
import conf_models as m
import test_conf_golden as whole
import test_conf_topology_golden as topologies

from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Inventory, Node
from hpcadmin.site import AccountingSite, Cluster, HookSite, NodeGroup, PrivateTmp, Site
from hpcadmin.site_topology import TopologySite

Sound = tuple[Inventory, Site]
MACHINES: dict[str, Node] = {name.lower().replace("_", ""): value for name, value in vars(machines).items()
                             if isinstance(value, Node) and name.isupper()}
MACHINES |= {"h100": m.H100, "bigcpu": m.BIG_CPU, "t4": m.T4, "nps4": m.NPS4, "a100p": m.A100P}
# The virtual sockets that these need before Slurm 25.11 are for all nodes of the cluster.
NUMA, L3 = ("nps4", "snc2", "mi250x"), ("l3node",)
MIG = ("mig", "migandwhole")
VIRTUAL = {*NUMA, *L3}


def fleet(*names: str, count: int = 1) -> Inventory:
    """So many nodes of each machine: h100x01 and so on."""
    return m.inventory(*((m.names(f"{name}x", count), MACHINES[name]) for name in names))


def site(**parts: object) -> Site:
    return replace(m.SITE, **parts)  # type: ignore[arg-type]


def slurm(**own: object) -> Site:
    return m.site(**own)


PAIR = fleet("h100", "bigcpu", count=2)
H, C = "h100x[01-02]", "bigcpux[01-02]"


def nodes(gpu: Mapping[str, object], cpu: Mapping[str, object] | None = None, **more: object) -> Site:
    """Keys of the node lines."""
    return site(nodes=(NodeGroup("h", H, options=dict(gpu), **more),  # type: ignore[arg-type]
                       NodeGroup("c", C, options=dict(cpu if cpu is not None else gpu))))


def both(*sites: Site) -> Site:
    """What differs from the plain site, together."""
    found = m.SITE
    for own in sites:
        for name in ("nodes", "partitions", "hooks", "accounting", "private_tmp", "topology", "cluster"):
            if getattr(own, name) != getattr(m.SITE, name):
                found = replace(found, **{name: getattr(own, name)})
        if own.slurm != m.SITE.slurm:
            found = replace(found, slurm=own.slurm)
    return found


TASTES: dict[str, Sound] = {
    "specialised cores": (PAIR, nodes({"CoreSpecCount": 2, "MemSpecLimit": 8192}, {"CpuSpecList": "0,96"})),
    "core 0 specialised": (PAIR, nodes({"CpuSpecList": "0-1,112-113"}, {"CoreSpecCount": 4})),
    "CPUs are cores": (PAIR, nodes({"CPUs": 112}, {"CPUs": 96})),
    "features, weights": (PAIR, nodes({"Weight": 50}, {"Weight": 1}, features=("ndr", "hbm3"))),
    "hooks": (PAIR, site(hooks=HookSite(
        "/usr/sbin/h", 300, ("ANY",), 60, "/etc/slurm/p", "/etc/slurm/e", "/etc/slurm/ps", "/etc/slurm/es",
        "/etc/slurm/tp", "/etc/slurm/te", "/usr/sbin/u", "/usr/sbin/reboot"))),
    "accounting": (PAIR, site(accounting=AccountingSite(
        host="db", enforce=("associations", "limits", "qos"), slurmdbd=True, storage_host="db1", energy="ipmi",
        interconnect="sysfs", profile="hdf5", gather={"SysfsInterfaces": "ib0", "ProfileHDF5Dir": "/var/lib/p"}))),
    "private tmp": (PAIR, site(private_tmp=PrivateTmp("/local/jobs", ("/tmp", "/dev/shm"), True))),
    "nvml": (PAIR, slurm(autodetect="nvml")),
    "configless": (PAIR, slurm(configless=True)),
    "shards": (PAIR, site(nodes=(NodeGroup("h", H, shards=4),))),
    "mps": (PAIR, site(nodes=(NodeGroup("h", H, mps=100, gres={"nic": 4}),))),
    "no default partition": (PAIR, site(partitions={"g": {"Nodes": H, "Default": False},
                                                    "c": {"Nodes": C, "Default": False}})),
    "partitions": (PAIR, site(partitions={
        "DEFAULT": {"MaxTime": "7-00:00:00", "DefaultTime": "01:00:00", "OverSubscribe": "NO"},
        "g": {"Nodes": H, "Default": True, "MaxCPUsPerNode": 96, "DefMemPerCPU": 1000, "AllowGroups": "root"},
        "c": {"Nodes": C, "State": "DOWN", "PriorityTier": 10, "GraceTime": 30},
        "all": {"Nodes": "ALL", "Hidden": True, "State": "DRAIN"}})),
    "cloud": (PAIR, both(nodes({"State": "UNKNOWN"}, {"State": "CLOUD"}), slurm(options={
        "ResumeProgram": "/usr/sbin/r", "SuspendProgram": "/usr/sbin/s", "SuspendTime": 600}))),
    "down and drained": (PAIR, nodes({"State": "DOWN", "Reason": "new"}, {"State": "DRAIN", "Reason": "fan"})),
    "future": (PAIR, nodes({"State": "UNKNOWN"}, {"State": "FUTURE"})),
    "addresses": (PAIR, nodes({"NodeAddr": "10.9.0.[1-2]"}, {"NodeAddr": "c-ib[1-2]"})),
    "host names": (PAIR, nodes({"NodeHostname": "rack1-h[01-02]"}, {"NodeHostname": "rack2-c[01-02]"})),
    "linear": (fleet("bigcpu", count=2), slurm(options={"SelectType": "select/linear",
                                                        "SelectTypeParameters": "CR_Memory"})),
    "CR_CPU": (PAIR, slurm(options={"SelectTypeParameters": "CR_CPU_Memory"})),
    "CR_Socket": (PAIR, slurm(options={"SelectTypeParameters": "CR_Socket_Memory,CR_ONE_TASK_PER_CORE"})),
    "preemption": (PAIR, slurm(options={"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"})),
    "swap": (PAIR, slurm(cgroup={"ConstrainSwapSpace": True, "AllowedSwapSpace": 10})),
    "ranges": (PAIR, slurm(gres_ranges=True)),
    "ports": (PAIR, slurm(options={"SlurmctldPort": "6817-6819", "SlurmdPort": 7000})),
    "tmpdisk": (PAIR, nodes({"TmpDisk": 100000})),
    "two controllers": (PAIR, site(cluster=Cluster("thinktank", ("ctl1(10.0.0.1)", "ctl2(10.0.0.2)"), "example.org"))),
    "tree": (PAIR, site(topology=TopologySite(switches={"leaf1": H, "leaf2": C, "spine": ("leaf[1-2]",)}))),
    "config_overrides": (PAIR, slurm(options={"SlurmdParameters": "config_overrides"})),
    "health every node": (PAIR, slurm(options={"HealthCheckProgram": "/usr/sbin/x", "HealthCheckInterval": 90})),
    "no return": (PAIR, slurm(options={"ReturnToService": 0, "SlurmdTimeout": 0, "TCPTimeout": 5})),
    "plain machines": (fleet(*(n for n in MACHINES if n not in VIRTUAL and n not in MIG)), m.SITE),
    "NUMA nodes as sockets": (fleet(*NUMA), m.SITE),
    "L3 caches as sockets": (fleet(*L3), m.SITE),
    "detected machines": (fleet("dgx1", "nps1", "b300", "gb200", "l40s", "uneven", "mixed", "alternating", "direct4",
                                "a100p", "t4"), slurm(autodetect="nvml")),
}
NEWER: dict[str, Sound] = {
    "nvidia by the driver": (PAIR, slurm(autodetect="nvidia")),
    "blocks": (PAIR, site(topology=TopologySite(blocks={"b1": H, "b2": C}, block_sizes=(2,)))),
}
NEWEST: dict[str, Sound] = {"every kind of sockets": (fleet(*(n for n in MACHINES if n not in MIG)), m.SITE)}


def goldens(version: str) -> dict[str, tuple[Inventory, dict[str, str]]]:
    """Those that were written for this version; that is 22.05 where none was named."""
    found = {}
    for case, (inventory, _, options) in whole.CASES.items():
        if (options.slurm_version or "22.05") == version:
            found[f"golden {case}"] = (inventory, dict(whole.rendered(case).files))
    for case, (inventory, _, written, _) in topologies.CASES.items():
        # 25.05 and 26.05 have the same file of topologies.
        if written == version or (written, version) == ("25.05", "26.05"):
            found[f"golden topology {case}"] = (inventory, dict(topologies.rendered(case).files))
    return found


def sound(version: str) -> dict[str, tuple[Inventory, dict[str, str]]]:
    tastes = {**TASTES, **(NEWER if version != "22.05" else {}), **(NEWEST if version == "26.05" else {})}
    return {**{name: (own[0], files(*own, version)) for name, own in tastes.items()}, **goldens(version)}


def files(inventory: Inventory, own: Site, version: str) -> dict[str, str]:
    result = render(inventory, own, RenderOptions(slurm_version=version))
    assert result.problems == (), result.problems
    return dict(result.files)


# --- real mistakes -------------------------------------------------------------------------------------------------

# (what, file, what stands there, what a mistake makes of it); "" for the end of the file.
MISTAKES: tuple[tuple[str, str, str, str], ...] = (
    ("a key that no version has", "slurm.conf", "", "NoSuchKey=1"),
    ("more cores than there are", "slurm.conf", "CPUs=224 Sockets=2 CoresPerSocket=56",
     "CPUs=256 Sockets=2 CoresPerSocket=64"),
    ("other sockets", "slurm.conf", "Sockets=2 CoresPerSocket=48", "Sockets=4 CoresPerSocket=24"),
    ("one thread of two", "slurm.conf", "CPUs=192 Sockets=2 CoresPerSocket=48 ThreadsPerCore=2",
     "CPUs=96 Sockets=2 CoresPerSocket=48 ThreadsPerCore=1"),
    ("CPUs that fit nothing", "slurm.conf", "CPUs=192", "CPUs=100"),
    ("a device that is not there", "gres.conf", "File=/dev/nvidia7", "File=/dev/nvidia9"),
    ("a device twice", "gres.conf", "File=/dev/nvidia7", "File=/dev/nvidia6"),
    ("another type", "gres.conf", "Type=h100", "Type=a100"),
    ("no type", "slurm.conf", "Gres=gpu:h100:8", "Gres=gpu:8"),
    ("links of more GPUs", "gres.conf", "Links=-1,18", "Links=-1,18,18"),
    ("CPU ids of the OS", "gres.conf", "Cores=0-55", "Cores=0-55,112-167"),
    ("cores of one socket for all", "gres.conf", "Cores=56-111", "Cores=0-55"),
    ("flags that differ", "gres.conf", "File=/dev/nvidia0 ", "File=/dev/nvidia0 Flags=amd_gpu_env "),
    ("no GresTypes", "slurm.conf", "GresTypes=gpu", "# GresTypes"),
    ("a plug-in that does not exist", "slurm.conf", "SelectType=select/cons_tres", "SelectType=select/cons_foo"),
    ("an energy plug-in that does not exist", "slurm.conf", "", "AcctGatherEnergyType=acct_gather_energy/foo"),
    ("a node that no line has", "slurm.conf", "", "PartitionName=more Nodes=h100x[01-09]"),
    ("a node twice", "slurm.conf", "", "NodeName=h100x01 CPUs=1"),
    ("more reserved cores than there are", "slurm.conf", "CPUs=224", "CoreSpecCount=200 CPUs=224"),
    ("reserved CPUs beyond the node", "slurm.conf", "CPUs=192", "CpuSpecList=5000 CPUs=192"),
    ("a state that there is not", "slurm.conf", "State=UNKNOWN", "State=WELL"),
    ("preemption by halves", "slurm.conf", "", "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND"),
    # 26.05 says nothing of it.
    ("power saving without a program", "slurm.conf", "", "SuspendTime=600"),
    ("a key of cgroup.conf that there is not", "cgroup.conf", "", "ConstrainEverything=yes"),
    ("a switch without end", "topology.conf", "", "SwitchName=leaf1 Switches=leaf1"),
)


def mistaken(version: str, file: str, old: str, new: str) -> dict[str, str]:
    own = site(topology=TopologySite(switches={"leaf1": H, "leaf2": C, "spine": ("leaf[1-2]",)}))
    found = files(PAIR, own if file == "topology.conf" else m.SITE, version)
    if old:
        assert old in found[file], (old, found[file])
        return {**found, file: found[file].replace(old, new)}
    name = file if file in found else "topology.yaml"
    return {**found, name: f"{found[name]}{new}\n"}
