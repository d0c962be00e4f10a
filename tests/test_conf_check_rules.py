"""Each rule of conf check on the smallest configuration that it is about, and on a sound one."""

from __future__ import annotations

import conf_models as models
import pytest
from conf_checks import CGROUP, HEAD, NEW, OLD, above, files, findings, known, machine, told, two_gpus
from looped import looped

from hpcadmin.conf.check.finding import Severity, Situation
from hpcadmin.conf.check.run import every_rule, judge
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import VERSIONS
from hpcadmin.conf.render import RenderOptions, render

BOX = "NodeName=n[1-2] CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=100000"
TWO = "NodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia0 Flags=nvidia_gpu_env"
SHARD = HEAD.replace("GresTypes=gpu", "GresTypes=gpu,shard")
LINES = (f"{TWO} Cores=0-15\nNodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia1 Flags=nvidia_gpu_env Cores=16-31")
GPUS = f"{BOX} Gres=gpu:a:2"


def test_a_sound_configuration_has_no_finding_in_any_version() -> None:
    for version in VERSIONS:
        found = findings(files(GPUS, LINES), version)
        assert not above(found), told(found)
    assert not above(findings(files(GPUS, LINES)))


@looped("name", ["LAB", "H100", "A100P", "NPS4", "T4", "BIG_CPU"])
@looped("version", ["22.05", "24.11", "26.05"])
def test_what_conf_render_writes_has_no_finding(name: str, version: str) -> None:
    inventory = models.inventory((models.names("n", 4), getattr(models, name)), version=version)
    written = render(inventory, models.SITE, RenderOptions(slurm_version=version))
    assert not written.problems
    major, minor = version.split(".")
    found = findings(dict(written.files), (int(major), int(minor)), machines=inventory)
    assert not above(found), told(found)


def gres(*lines: str) -> str:
    return "\n".join(lines)


# (rule, severity, words, node line, gres.conf, changes of the rest)
RULES: list[tuple[str, str, str, str, str, dict[str, str]]] = [
    ("nodes.sockets_twice", "DEPRECATED", "SocketsPerBoard", BOX + " SocketsPerBoard=2", "", {}),
    ("nodes.sockets_twice", "WRONG", "SocketsPerBoard", f"{BOX.replace('ThreadsPerCore=2', '')} SocketsPerBoard=4", "",
     {}),
    ("nodes.boards", "NOTE", "all boards", BOX + " Boards=2", "", {}),
    ("nodes.boards", "WRONG", "resets Boards", BOX + " Boards=4", "", {}),
    ("nodes.zero", "WRONG", "takes 1", BOX.replace("ThreadsPerCore=2", "ThreadsPerCore=0"), "", {}),
    ("nodes.cpus_product", "WRONG", "resets CPUs to 64", BOX.replace("CPUs=64", "CPUs=50"), "", {}),
    ("nodes.cpus_are_sockets", "WRONG", "2 of the node's 64", BOX.replace("CPUs=64", "CPUs=2"), "", {}),
    ("nodes.cpus_are_cores", "NOTE", "CPUs=64", BOX.replace("CPUs=64", "CPUs=32"), "", {}),
    ("nodes.only_cpus", "WRONG", "64 sockets", "NodeName=n1 CPUs=64 RealMemory=9", "", {}),
    ("nodes.no_counts", "WRONG", "one CPU", "NodeName=n1 RealMemory=9 State=UNKNOWN", "", {}),
    ("nodes.core_spec", "WRONG", "sets it to 1", BOX + " CoreSpecCount=32", "", {}),
    ("nodes.core_spec", "WRONG", "CoreSpecCount is 0", BOX + " CoreSpecCount=2 CpuSpecList=0-3", "", {}),
    ("nodes.core_spec", "WRONG", "CPU 99 of 64", BOX + " CpuSpecList=99", "", {}),
    ("nodes.mem_spec", "WRONG", "sets it to 0", BOX + " MemSpecLimit=100000", "", {}),
    ("nodes.real_memory", "WRONG", "1 MiB", "NodeName=n1 Sockets=1 CoresPerSocket=4", "", {}),
    ("nodes.state", "FATAL", "no state", BOX + " State=BROKEN", "", {}),
    ("nodes.state", "WRONG", "believes it", BOX + " State=IDLE", "", {}),
    ("nodes.state", "NOTE", "nobody sees why", BOX + " State=DRAIN", "", {}),
    ("nodes.state", "NOTE", "belongs to", BOX + ' Reason="bad fan"', "", {}),
    ("nodes.twice", "FATAL", "n2 stands twice", BOX + "\nNodeName=n[2-3] CPUs=1 RealMemory=1", "", {}),
    ("nodes.twice", "FATAL", "n1 stands twice", "NodeName=n1,n1 CPUs=1 RealMemory=1", "", {}),
    ("nodes.hostnames", "NOTE", "another name", "NodeName=n1 NodeHostname=x CPUs=1 RealMemory=1", "", {}),
    ("nodes.hostnames", "WRONG", "Duplicated", "NodeName=n1 NodeHostname=x CPUs=1 RealMemory=1\n"
     "NodeName=n2 NodeHostname=x CPUs=1 RealMemory=1", "", {}),
    ("nodes.in_no_partition", "WRONG", "n2 is in no partition", BOX, "",
     {"partition": "PartitionName=p Nodes=n1 Default=YES\n"}),
    ("nodes.in_no_partition", "WRONG", "no PartitionName", BOX, "", {"partition": ""}),
    ("gres.names", "WRONG", "not in GresTypes", GPUS, LINES, {"head": HEAD.replace("GresTypes=gpu\n", "")}),
    ("gres.names", "WRONG", "Name=nic", GPUS, f"{LINES}\nName=nic File=/dev/x", {}),
    ("gres.names", "FATAL", "shares of gpu", BOX, "", {"head": HEAD.replace("GresTypes=gpu", "GresTypes=mps")}),
    ("gres.links", "WRONG", "empty", GPUS, LINES.replace("Cores=0-15", "Links=-1,"), {}),
    ("gres.links_length", "INVALID", "has 3 numbers", GPUS, LINES.replace("Cores=0-15", "Links=-1,,0"), {}),
    ("gres.links", "WRONG", "not a number", GPUS, f"{TWO} Links=-1,0-3", {}),
    ("gres.links", "WRONG", "exactly one -1", GPUS, f"{TWO} Links=0,0", {}),
    ("gres.links", "WRONG", "exactly one -1", GPUS, f"{TWO} Links=-1,-1", {}),
    ("gres.links", "WRONG", "line of its own", GPUS, f"{TWO.replace('0 ', '[0-1] ')} Links=-1,2", {}),
    ("gres.links_length", "INVALID", "has 3 numbers", GPUS, LINES.replace("Cores=0-15", "Links=-1,2,2"), {}),
    ("gres.links_length", "WRONG", "has 1 numbers", GPUS, LINES.replace("Cores=0-15", "Links=-1"), {}),
    ("gres.links_length", "WRONG", "number 0 of the node", GPUS, LINES.replace("Cores=0-15", "Links=4,-1"), {}),
    ("gres.links_symmetric", "WRONG", "3 links", GPUS, LINES.replace("Cores=0-15", "Links=-1,3").replace(
        "Cores=16-31", "Links=4,-1"), {}),
    ("gres.count", "FATAL", "beside 1 file", GPUS, f"{TWO} Count=3", {}),
    ("gres.count", "FATAL", "no number", GPUS, f"{TWO} Count=x", {}),
    ("gres.multiple_files", "FATAL", "one file", GPUS,
     "NodeName=n[1-2] Name=gpu Type=a MultipleFiles=/dev/nvidia0", {}),
    ("gres.multiple_files", "FATAL", "on one line", GPUS, f"{TWO} MultipleFiles=/dev/nvidia0,/dev/x", {}),
    ("gres.some_do", "FATAL", "without Type=", GPUS, f"{TWO}\nNodeName=n[1-2] Name=gpu File=/dev/nvidia1", {}),
    ("gres.some_do", "FATAL", "without File=", GPUS, f"{TWO}\nNodeName=n[1-2] Name=gpu Type=a", {}),
    ("gres.files_twice", "FATAL", "named twice", GPUS, f"{TWO}\n{TWO}", {}),
    ("gres.shared_files", "WRONG", "no gpu line has this file", GPUS,
     f"{LINES}\nNodeName=n[1-2] Name=shard Count=4 File=/dev/nvidia7", {}),
    ("gres.no_files", "INVALID", "no AutoDetect", GPUS, "NodeName=n[1-2] Name=gpu Type=a Count=2", {}),
    ("gres.flags", "FATAL", "same Flags", GPUS, LINES.replace("nvidia_gpu_env Cores=16", "amd_gpu_env Cores=16"), {}),
    ("gres.flags", "FATAL", "every variable", GPUS, LINES.replace(" Flags=nvidia_gpu_env Cores=0-15", ""), {}),
    ("gres.flags", "FATAL", "no_gpu_env", GPUS, f"{TWO},no_gpu_env", {}),
    ("gres.variables", "NOTE", "every vendor", GPUS, LINES.replace(" Flags=nvidia_gpu_env", ""), {}),
    ("gres.variables", "WRONG", "finds no GPU", f"{BOX} Gres=gpu:mi300x:1",
     "NodeName=n[1-2] Name=gpu Type=mi300x File=/dev/dri/renderD128", {}),
    ("gres.variables", "WRONG", "for a GPU of nvidia", GPUS, LINES.replace("nvidia_gpu_env", "amd_gpu_env"), {}),
    ("counts.grammar", "WRONG", "no count", f"{BOX} Gres=gpu:a:2x", "", {}),
    ("counts.grammar", "WRONG", "number stands", f"{BOX} Gres=gpu:8:2", "", {}),
    ("counts.grammar", "WRONG", "several types", f"{BOX} Gres=gpu:8:mi300x", "", {}),
    ("counts.grammar", "FATAL", "have a type", f"{BOX} Gres=gpu:a:1,gpu:1", "", {}),
    ("counts.mismatch", "INVALID", "writes it a", f"{BOX} Gres=gpu:A:2", LINES, {}),
    ("counts.mismatch", "INVALID", "(2 < 3)", f"{BOX} Gres=gpu:a:3", LINES, {}),
    ("counts.mismatch", "WRONG", "does not use the rest", f"{BOX} Gres=gpu:a:1", LINES, {}),
    ("counts.mismatch", "WRONG", "drops the types", f"{BOX} Gres=gpu:2", LINES, {}),
    ("counts.mismatch", "INVALID", "without Type=", GPUS, LINES.replace("Type=a ", ""), {}),
    ("counts.mismatch", "WRONG", "gpu:b:1", f"{BOX} Gres=gpu:a:1", LINES.replace(
        "Type=a File=/dev/nvidia1", "Type=b File=/dev/nvidia1"), {}),
    ("counts.no_lines", "INVALID", "(0 < 2)", GPUS, "NodeName=x1 Name=gpu File=/dev/nvidia0", {}),
    ("counts.no_lines", "INVALID", "does not exist", GPUS, "", {}),
    ("counts.no_gres", "WRONG", "no such Gres", BOX, LINES, {}),
    ("counts.no_gres", "WRONG", "does not define", GPUS, f"{LINES}\nNodeName=x9 Name=gpu File=/dev/nvidia0", {}),
    ("counts.shares", "WRONG", "does not use the rest", f"{GPUS},shard:4", f"{LINES}\nName=shard Count=8",
     {"head": SHARD}),
    ("counts.shares", "FATAL", "gres.conf 4", f"{GPUS},shard:8", f"{LINES}\nName=shard Count=4",
     {"head": SHARD}),
    ("counts.shares", "FATAL", "no gpu", f"{BOX} Gres=shard:8", "Name=shard Count=8",
     {"head": SHARD}),
    ("counts.shares", "NOTE", "different numbers", f"{GPUS},shard:7", f"{LINES}\nName=shard Count=7",
     {"head": SHARD}),
    ("autodetect.unknown", "INVALID", "one of", f"{BOX} Gres=gpu:2", "AutoDetect=magic", {}),
    ("autodetect.two_values", "FATAL", "AutoDetect=rsmi", f"{BOX} Gres=gpu:2",
     "NodeName=n[1-2] AutoDetect=nvml\nNodeName=n1 AutoDetect=rsmi", {}),
    ("autodetect.without_node", "FATAL", "without NodeName=", f"{BOX} Gres=gpu:1",
     "AutoDetect=off Name=gpu File=/dev/nvidia0", {}),
    ("autodetect.beside", "INVALID", "Cores=", GPUS, f"AutoDetect=nvml\n{LINES}", {}),
    ("autodetect.cloud", "WRONG", "cloud node", f"{BOX} Gres=gpu:2 State=CLOUD", "AutoDetect=nvml", {}),
    ("mixed.several_types", "NOTE", "mixed GPU types", f"{BOX} Gres=gpu:a:1,gpu:b:1", "AutoDetect=nvml", {}),
    ("mixed.mig_by_hand", "WRONG", "alone", f"{BOX} Gres=gpu:a100_1g.5gb:1",
     "NodeName=n[1-2] Name=gpu Type=a100_1g.5gb File=/dev/nvidia0", {}),
    ("mixed.mig_by_hand", "WRONG", "MIG UUID", f"{BOX} Gres=gpu:a100_1g.5gb:1", "NodeName=n[1-2] Name=gpu "
     "Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22", {}),
    ("mixed.mig_types", "INVALID", "first -", f"{BOX} Gres=gpu:nvidia_a100-sxm4-40gb_1g.5gb:7", "AutoDetect=nvml", {}),
    ("mixed.digit_types", "NOTE", "begins with a digit", f"{BOX} Gres=gpu:3g:1", "AutoDetect=nvml", {}),
    ("cores.grammar", "WRONG", "backwards", GPUS, LINES.replace("0-15", "15-0"), {}),
    ("cores.beyond", "INVALID", "0-15 are meant", GPUS, LINES.replace("0-15", "0-15,32-47"), {}),
    ("cores.boundary", "INVALID", "Socket 0 is cores 0-15", GPUS, LINES.replace("0-15", "0-7"), {}),
    ("cores.some_without", "WRONG", "others do not", GPUS, LINES.replace(" Cores=0-15", ""), {}),
    ("cgroup.task_plugin", "WRONG", "nothing constrains", GPUS, LINES,
     {"head": HEAD.replace("task/cgroup,", "")}),
    ("cgroup.devices", "WRONG", "not given", GPUS, LINES, {"cgroup": CGROUP.replace("ConstrainDevices=yes\n", "")}),
    ("cgroup.memory", "WRONG", "from others", GPUS, LINES, {"cgroup": CGROUP.replace("RAMSpace=yes", "RAMSpace=no")}),
    ("cgroup.memory", "FATAL", "OverMemoryKill", GPUS, LINES, {"head": HEAD + "JobAcctGatherParams=OverMemoryKill\n"}),
    ("cgroup.cores", "NOTE", "change its binding", GPUS, LINES, {"cgroup": CGROUP.replace("Cores=yes", "Cores=no")}),
    ("cgroup.reserved", "WRONG", "CoreSpecCount", f"{GPUS} CoreSpecCount=1", LINES,
     {"cgroup": CGROUP.replace("Cores=yes", "Cores=no")}),
    ("cgroup.tracking", "WRONG", "keep its GPUs", GPUS, LINES,
     {"head": HEAD.replace("track/cgroup", "track/linuxproc")}),
    ("cgroup.off", "FATAL", "cannot load", GPUS, LINES, {"cgroup": CGROUP + "CgroupPlugin=disabled\n"}),
    ("cgroup.percentages", "WRONG", "percent", GPUS, LINES, {"cgroup": CGROUP + "AllowedRAMSpace=0.9\n"}),
    ("partitions.unknown_nodes", "FATAL", "n9", GPUS, LINES, {"partition": "PartitionName=p Nodes=n[1-2],n9 "
                                                             "Default=YES\n"}),
    ("partitions.twice", "FATAL", "twice", GPUS, LINES, {"partition": "PartitionName=p Nodes=ALL Default=YES\n" * 2}),
    ("partitions.defaults", "WRONG", "the last one wins", GPUS, LINES, {
        "partition": "PartitionName=p Nodes=ALL Default=YES\nPartitionName=q Nodes=ALL Default=YES\n"}),
    ("partitions.empty", "WRONG", "has no nodes", GPUS, LINES, {
        "partition": "PartitionName=p Nodes=ALL Default=YES\nPartitionName=q\n"}),
    ("partitions.memory", "WRONG", "never starts", GPUS, LINES, {
        "partition": "PartitionName=p Nodes=ALL Default=YES DefMemPerCPU=9999\n"}),
    ("partitions.weights", "FATAL", "no TRES of this cluster", GPUS, LINES, {
        "partition": 'PartitionName=p Nodes=ALL Default=YES TRESBillingWeights="CPU=1.0,GRES/gpu:b=2"\n'}),
    ("partitions.weights", "FATAL", "no number", GPUS, LINES, {
        "partition": 'PartitionName=p Nodes=ALL Default=YES TRESBillingWeights="CPU=one"\n'}),
    ("partitions.weights", "FATAL", "no TRES=weight", GPUS, LINES, {
        "partition": 'PartitionName=p Nodes=ALL Default=YES TRESBillingWeights="CPU"\n'}),
    ("partitions.accounts", "WRONG", "ignored", GPUS, LINES, {
        "partition": "PartitionName=p Nodes=ALL Default=YES AllowAccounts=a DenyAccounts=b\n"}),
    ("partitions.node_sets", "FATAL", "name of a node", f"{GPUS}\nNodeSet=n1 Nodes=n2", LINES, {}),
    ("partitions.node_sets", "WRONG", "no node has Feature=x", f"{GPUS}\nNodeSet=s Feature=x", LINES, {}),
    ("settings.identity", "FATAL", "no ClusterName", GPUS, LINES, {"head": HEAD.replace("ClusterName=c\n", "")}),
    ("settings.identity", "FATAL", "no SlurmctldHost", GPUS, LINES, {"head": HEAD.replace("SlurmctldHost=head\n", "")}),
    ("settings.select_type", "WRONG", "select/linear", GPUS, LINES,
     {"head": HEAD.replace("cons_tres", "linear").replace("SelectTypeParameters=CR_Core_Memory\n", "")}),
    ("settings.select_parameters", "FATAL", "unknown", GPUS, LINES, {"head": HEAD.replace("CR_Core_", "CR_Cores_")}),
    ("settings.select_parameters", "FATAL", "one of CR_", GPUS, LINES, {"head": HEAD.replace(
        "CR_Core_Memory", "CR_Core,CR_Memory")}),
    ("settings.select_parameters", "FATAL", "with select/linear", BOX, "", {
        "head": HEAD.replace("cons_tres", "linear")}),
    ("settings.select_parameters", "FATAL", "has no CR_CPU", GPUS, LINES, {"head": HEAD.replace("CR_Core_", "CR_")}),
    ("settings.memory", "WRONG", "limits nothing", GPUS, LINES, {"head": HEAD.replace("_Memory", "")}),
    ("settings.memory", "NOTE", "all of its node", GPUS, LINES, {"head": HEAD.replace("DefMemPerCPU=10\n", "")}),
    ("settings.contain", "WRONG", "pam_slurm_adopt", GPUS, LINES, {"head": HEAD.replace("k/cgroup", "k/linuxproc", 1)}),
    ("settings.contain", "FATAL", "without PrologFlags=Contain", GPUS, LINES, {"head": HEAD.replace(
        "PrologFlags=Contain", "JobContainerType=job_container/tmpfs")}),
    ("settings.accounted", "NOTE", "gres/gpu:a", GPUS, LINES, {}),
    ("settings.stored_tres", "FATAL", "slurmdbd is required", GPUS, LINES,
     {"head": HEAD.replace("/slurmdbd", "/none")}),
    ("settings.tres_types", "FATAL", "gpu is no TRES", GPUS, LINES, {"head": HEAD.replace("=gres/gpu", "=gpu")}),
    ("settings.health", "WRONG", "never after", GPUS, LINES, {"head": HEAD + "HealthCheckProgram=/usr/bin/nhc\n"}),
    ("settings.health", "WRONG", "nothing is run", GPUS, LINES, {"head": HEAD + "HealthCheckInterval=60\n"}),
    ("settings.health", "NOTE", "CYCLE", GPUS, LINES, {
        "head": HEAD + "HealthCheckProgram=/usr/bin/nhc\nHealthCheckInterval=60\n"}),
    ("settings.hook_time", "WRONG", "after 30 s", GPUS, LINES, {
        "head": HEAD + "Prolog=/usr/sbin/hpcadmin-health-prolog\nPrologEpilogTimeout=30\n"}),
    ("settings.hook_time", "WRONG", "after 59 s", GPUS, LINES, {
        "head": HEAD + "Epilog=/etc/slurm/a\nEpilog=/usr/sbin/hpcadmin-health-epilog\nPrologEpilogTimeout=59\n"}),
    ("settings.return_to_service", "NOTE", "as soon as", GPUS, LINES, {"head": HEAD + "ReturnToService=2\n"}),
    ("settings.overrides", "WRONG", "believes the files", GPUS, LINES, {
        "head": HEAD + "SlurmdParameters=config_overrides\n"}),
    ("settings.virtual_sockets", "WRONG", "mutually exclusive", GPUS, LINES, {
        "head": HEAD + "SlurmdParameters=numa_node_as_socket,l3cache_as_socket\n"}),
    ("combinations.together", "FATAL", "SUSPEND without GANG", GPUS, LINES, {
        "head": HEAD + "PreemptType=preempt/qos\nPreemptMode=SUSPEND\n"}),
    ("combinations.together", "FATAL", "without a PreemptType", GPUS, LINES, {"head": HEAD + "PreemptMode=REQUEUE\n"}),
    ("combinations.together", "FATAL", "without a PreemptMode", GPUS, LINES, {
        "head": HEAD + "PreemptType=preempt/qos\n"}),
    ("combinations.together", "FATAL", "without a PreemptMode", GPUS, LINES, {
        "head": HEAD + "PreemptType=preempt/partition_prio\nPreemptMode=GANG\n"}),
    ("settings.ports", "NOTE", "in use", GPUS, LINES, {"head": HEAD + "SlurmctldPort=6815-6819\n"}),
    ("settings.ports", "NOTE", "in use", GPUS, LINES, {"head": HEAD + "SlurmdPort=6817\n"}),
    ("gres.names", "WRONG", "in small letters", GPUS.replace("gpu", "GPU"), LINES.replace("=gpu", "=GPU"),
     {"head": HEAD.replace("GresTypes=gpu", "GresTypes=GPU")}),
    ("gres.names", "WRONG", "gpu is not in GresTypes=GPU", GPUS, LINES,
     {"head": HEAD.replace("GresTypes=gpu", "GresTypes=GPU")}),
    ("gres.names", "WRONG", "Name=GPU is not in GresTypes=gpu", GPUS, LINES.replace("=gpu", "=GPU"), {}),
    ("partitions.qos", "FATAL", "does not start", GPUS, LINES, {
        "head": HEAD.replace("AccountingStorageType=accounting_storage/slurmdbd\n", "")
        + "PartitionName=z Nodes=n1 QOS=high AllowQos=ALL\n"}),
    ("gres.outside_dev", "WRONG", "below /dev", GPUS, LINES.replace("/dev/nvidia1", "/nvidia1"), {}),
    ("settings.mpi", "NOTE", "single ranks", GPUS, LINES, {"head": HEAD + "MpiDefault=none\n"}),
    ("files.faults", "FATAL", "Slurm cannot read", GPUS, LINES, {"head": HEAD + "this is no line\n"}),
]


@looped("row", RULES, ids=[f"{n}-{row[0]}" for n, row in enumerate(RULES)])
def test_rule(row: tuple[str, str, str, str, str, dict[str, str]]) -> None:
    rule, severity, words, nodes, lines, rest = row
    found = findings(files(nodes, lines, **rest), NEW)
    mine = [f for f in found if f.rule == rule and f.severity.value == severity
            and words in f"{f.what} {f.means} {' '.join(f.right)}"]
    assert mine, told(found)
    assert mine[0].place is not None and mine[0].place.line > 0


@looped("lines", ["Prolog=/usr/sbin/hpcadmin-health-prolog\nPrologEpilogTimeout=60",
                  "Prolog=/usr/sbin/hpcadmin-health-prolog", "Prolog=/etc/slurm/prolog\nPrologEpilogTimeout=30",
                  "Prolog=/usr/sbin/hpcadmin-health-prolog\nPrologEpilogTimeout=30\nPrologTimeout=90"])
def test_a_prolog_that_has_its_time(lines: str) -> None:
    found = findings(files(GPUS, LINES, head=f"{HEAD}{lines}\n"), NEW)
    assert not [f for f in found if f.rule == "settings.hook_time"]


def test_every_rule_of_files_has_its_row() -> None:
    rows = {row[0] for row in RULES}
    mine = {name for name, _ in every_rule()
            if name.split(".")[0] in ("nodes", "gres", "counts", "cores", "autodetect", "mixed", "cgroup", "settings",
                                      "partitions", "files")}
    # With the hardware, or of texts: in the other tests.
    elsewhere = {"nodes.threads_off", "nodes.memory_held_back", "gres.devices_missing", "counts.detected_types",
                 "autodetect.library", "mixed.regrouped", "mixed.bus_order_of_lines", "cores.locality",
                 "cores.layout_unknown", "files.empty"}
    assert mine - rows - {"cores.boundary_of_hardware"} == elsewhere


def test_cores_are_compared_with_those_near_the_gpu() -> None:
    """Even and odd CPUs on two sockets: the list of the OS is within the cores, and wrong."""
    from dataclasses import replace

    from hpcadmin.model import Core, Cpu
    cores = tuple(Core(n // 4, n // 4, (n // 4 + 2 * (n % 4), n // 4 + 2 * (n % 4) + 8)) for n in range(8))
    cpu = Cpu("", "x86_64", 2, 4, 2, cores)
    odd = tuple(range(1, 16, 2))
    gpu = replace(two_gpus(models.cpu(2, 4))[0], local_cpus=odd)
    nodes = "NodeName=vm CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=257000 Gres=gpu:a:1"
    line = "NodeName=vm Name=gpu Type=a File=/dev/nvidia0 Flags=nvidia_gpu_env Cores="
    found = [f for f in findings(files(nodes, line + "1,3,5,7"), OLD, machines=known(machine(cpu, (gpu,))))
             if f.rule == "cores.locality"]
    assert found and found[0].right == (f"{line.replace(' Flags', ' Flags')}4-7",)
    assert "not the CPUs of the operating system" in found[0].means
    assert not [f for f in findings(files(nodes, line + "4-7"), OLD, machines=known(machine(cpu, (gpu,))))
                if f.rule == "cores.locality"]


def test_mixed_types_by_the_bus() -> None:
    """Types in one piece, named in another order: Gres= in the order of the bus is right."""
    nodes = f"{BOX} Gres=gpu:b:1,gpu:a:2"
    lines = "\n".join(f"NodeName=n[1-2] Name=gpu Type={kind} File=/dev/nvidia{n} Flags=nvidia_gpu_env"
                      for n, kind in enumerate("aab"))
    free = {"cgroup": CGROUP.replace("Devices=yes", "Devices=no")}
    found = [f for f in findings(files(nodes, lines, **free), NEW) if f.rule == "mixed.regrouped"]
    assert found[0].severity is Severity.WRONG
    assert found[0].right == (f"{BOX} Gres=gpu:a:2,gpu:b:1",)
    assert "--gres=gpu:b:1 for /dev/nvidia2 gets CUDA_VISIBLE_DEVICES=0, which is /dev/nvidia0 of type a" in (
        found[0].what)
    assert [f.severity for f in findings(files(nodes, lines), NEW) if f.rule == "mixed.regrouped"] == [Severity.NOTE]
    assert not [f for f in findings(files(f"{BOX} Gres=gpu:a:2,gpu:b:1", lines, **free), NEW)
                if f.rule == "mixed.regrouped"]


def test_what_the_default_of_selecttype_was_depends_on_the_version() -> None:
    head = HEAD.replace("SelectType=select/cons_tres\n", "")
    found = [f for f in findings(files(GPUS, LINES, head=head), OLD, NEW) if f.rule == "settings.select_type"]
    assert [f.versions for f in found] == [((22, 5),)]


def test_cloud_nodes_and_autodetect_by_version() -> None:
    texts = files(f"{BOX} Gres=gpu:2 State=CLOUD", "AutoDetect=nvml")
    found = {f.severity: f.versions for f in findings(texts, OLD, NEW) if f.rule == "autodetect.cloud"}
    assert found == {Severity.FATAL: ((22, 5),), Severity.WRONG: ((25, 11),)}


def test_of_a_fragment_nothing_follows_from_what_is_not_there() -> None:
    conf = configure({"slurm.conf": f"{GPUS}\n{'PartitionName=p Nodes=n[1-9]'}\n"})
    found = judge(Situation(conf, fragment=True, complete=False), strict=True, leave=("topology",)).findings
    assert not above(found), told(found)


@pytest.mark.parametrize(("version", "select", "severity"), [
    ((22, 5), "select/cons_tres", Severity.FATAL), ((22, 5), "select/linear", Severity.WRONG),
    ((24, 11), "select/cons_tres", Severity.WRONG), ((26, 5), "select/cons_tres", Severity.WRONG)])
def test_cpus_as_many_as_sockets(version: tuple[int, int], select: str, severity: Severity) -> None:
    """As slurmctld 22.05, 24.11 and 26.05 answered to CPUs=2 Sockets=2 CoresPerSocket=4."""
    head = HEAD.replace("select/cons_tres", select)
    found = findings(files(BOX.replace("CPUs=64", "CPUs=2"), "", head=head), version)
    assert [f.severity for f in found if f.rule == "nodes.cpus_are_sockets"] == [severity]
    # One core on each socket, or one thread on each of them: nothing is lost.
    for line in ("NodeName=n1 CPUs=4 Sockets=4 CoresPerSocket=1", "NodeName=n1 CPUs=4"):
        assert not [f for f in findings(files(line, "", head=head), version) if f.rule == "nodes.cpus_are_sockets"]
