"""Keys and values against versions: what an upgrade ends, and what replaces it."""

from __future__ import annotations

from looped import looped

from hpcadmin.conf.check.finding import Finding, Situation
from hpcadmin.conf.check.rules import versions
from hpcadmin.conf.existing.read import configure

SLURM = "ClusterName=x\n"


def found(texts: dict[str, str], *asked: tuple[int, int]) -> list[Finding]:
    return [finding for rule in versions.RULES for finding in rule(Situation(configure(texts), asked))]


def told(texts: dict[str, str], *asked: tuple[int, int]) -> list[tuple[str, str, str]]:
    return [(f.severity.value, str(f.place), f.what) for f in found(texts, *asked)]


@looped(("file", "line", "version", "severity", "right"), [
    ("slurm.conf", "SelectType=select/cons_res", (23, 2), "NOTE", "SelectType=select/cons_tres"),
    ("slurm.conf", "SelectType=select/cons_res", (23, 11), "FATAL", "SelectType=select/cons_tres"),
    ("slurm.conf", "JobContainerType=job_container/tmpfs", (25, 11), "DEPRECATED", "NamespaceType=namespace/tmpfs"),
    ("slurm.conf", "TopologyPlugin=topology/flat", (24, 11), "FATAL", ""),
    ("slurm.conf", "TopologyPlugin=topology/3d_torus", (25, 5), "FATAL", ""),
    ("slurm.conf", "TopologyPlugin=topology/tree", (26, 5), "", ""),
    ("slurm.conf", "NodeName=a Parameters=numa_node_as_socket", (25, 5), "FATAL", ""),
    ("slurm.conf", "NodeName=a Parameters=numa_node_as_socket", (25, 11), "", ""),
    ("slurm.conf", "HealthCheckTimeout=60", (25, 11), "FATAL", ""),
    ("cgroup.conf", "ConstrainKmemSpace=no", (22, 5), "NOTE", ""),
    ("cgroup.conf", "ConstrainKmemSpace=no", (23, 11), "FATAL", ""),
    ("cgroup.conf", "CgroupAutomount=yes", (24, 5), "DEPRECATED", ""),
    ("cgroup.conf", "TaskAffinity=yes", (22, 5), "FATAL", ""),
    ("gres.conf", "AutoDetect=nvidia", (22, 5), "WRONG", ""),
    ("gres.conf", "AutoDetect=nvidia", (24, 11), "", ""),
    ("slurm.conf", "SlurmctldTimeuot=120", (24, 11), "FATAL", "SlurmctldTimeout=120"),
    ("slurm.conf", "NodeName=a Socktes=2", (24, 11), "FATAL", "Sockets=2"),
    ("slurm.conf", "TaskPlugin=task/cgroup,task/afinity", (24, 11), "FATAL", "TaskPlugin=task/cgroup,task/affinity"),
    ("slurm.conf", "SlurmctldTimeout=soon", (24, 11), "FATAL", ""),
    ("gres.conf", "NodeName=a Name=gpu Fiel=/dev/nvidia0", (24, 11), "FATAL", "File=/dev/nvidia0"),
])
def test_one_line(file: str, line: str, version: tuple[int, int], severity: str, right: str) -> None:
    texts = {"slurm.conf": SLURM, file: (SLURM if file == "slurm.conf" else "") + line + "\n"}
    said = found(texts, version)
    assert [f.severity.value for f in said] == ([severity] if severity else [])
    if severity:
        assert str(said[0].place) == f"{file}:{2 if file == 'slurm.conf' else 1}"
        assert said[0].right == ((right,) if right else said[0].right)


def test_each_target_is_named() -> None:
    said = found({"slurm.conf": SLURM + "SelectType=select/cons_res\n"}, (23, 2), (24, 11))
    assert [(f.severity.value, f.versions) for f in said] == [("FATAL", ((24, 11),))]
    assert "23.11 and later" in said[0].means


def test_which_upgrade_ends_it_when_no_version_is_known() -> None:
    said = found({"slurm.conf": SLURM, "cgroup.conf": "ConstrainKmemSpace=no\n"})
    assert [f.severity.value for f in said] == ["NOTE"]
    assert "the upgrade to 23.02 changes it" in said[0].means
    assert "the upgrade to 23.11 ends it" in said[0].means
    said = found({"slurm.conf": SLURM + "NodeName=a GresConf=x\n"})
    assert [(f.severity.value, f.means.split(";")[0]) for f in said] == [("NOTE", "only from 25.11 on")]


def test_what_no_version_has_is_fatal_without_a_version() -> None:
    said = found({"slurm.conf": SLURM + "Nonsense=1\n"})
    assert [(f.severity.value, f.versions) for f in said] == [("FATAL", ())]


def test_many_lines_are_one_finding_at_the_first() -> None:
    gres = "".join(f"NodeName=n{i} Name=gpu File=/dev/nvidia{i} Flags=env_uuid\n" for i in range(500))
    assert told({"slurm.conf": SLURM, "gres.conf": gres}, (24, 11)) == [
        ("WRONG", "gres.conf:1", "Flags=env_uuid (on 500 lines)")]


def test_files_that_no_table_knows_are_left_alone() -> None:
    assert found({"slurm.conf": SLURM, "plugstack.conf": "required x.so a=b\n"}, (24, 11)) == []


def test_a_good_configuration_has_nothing() -> None:
    slurm = ("ClusterName=x\nSlurmctldHost=head(10.0.0.1)\nSelectType=select/cons_tres\nTaskPlugin=task/cgroup\n"
             "GresTypes=gpu\nInclude nodes.conf\nNodeName=n[1-2] CPUs=4 RealMemory=1000 Gres=gpu:a100:2\n"
             "PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
    gres = "NodeName=n[1-2] AutoDetect=off Name=gpu Type=a100 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env\n"
    for version in ((22, 5), (23, 11), (24, 11), (25, 11), (26, 5)):
        assert found({"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": "ConstrainCores=yes\n"}, version) == []
