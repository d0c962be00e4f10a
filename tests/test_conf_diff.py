"""conf diff: what would change, by what Slurm makes of the files, in the order that matters."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import conf_models as m
import pytest
from looped import looped

from hpcadmin import inventory as store
from hpcadmin.cli import run
from hpcadmin.conf.diff import text
from hpcadmin.conf.diff.compare import Application, application, compare
from hpcadmin.conf.diff.gres import files_text
from hpcadmin.conf.diff.nodes import layout
from hpcadmin.conf.diff.parts import Diff, Difference, Sides, Weight, reasons_of
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.keys import Apply, Version
from hpcadmin.conf.render import RenderOptions, render

V2205, V2411 = (22, 5), (24, 11)
SITE = '[cluster]\nname = "thinktank"\ncontrollers = ["head(10.0.0.1)"]\n[slurm]\nversion = "22.05"\n'


def diff(old: Mapping[str, str] | str, new: Mapping[str, str] | str, version: Version = V2205, *, truth: bool = False,
         memory: Mapping[str, int] | None = None) -> Diff:
    before, after = ({"slurm.conf": files} if isinstance(files, str) else files for files in (old, new))
    return compare(configure(before), configure(after), Sides(version, truth, memory or {}, replaced=frozenset(after)))


def only(found: Diff) -> Difference:
    assert len(found.differences) == 1, text.text(found)
    return found.differences[0]


def told(found: Diff) -> list[tuple[str, str, str, str]]:
    return [(d.weight.value, d.what, d.old, d.new) for d in found.differences]


@looped(("old", "new"), [
    ("SlurmdTimeout=0300", "slurmdtimeout = 300 # x"),
    ("GresTypes=gpu,nic", "GresTypes=nic,gpu"),
    ("SelectTypeParameters=CR_CORE_Memory", "SelectTypeParameters=CR_Core_Memory"),
    ("NodeName=n[1-4] CPUs=8 Sockets=2 CoresPerSocket=4",
     "NodeName=n[1-4] Boards=1 SocketsPerBoard=2 CoresPerSocket=4"),
    ("NodeName=n[1-4] Procs=4", "NodeName=n1 CPUs=4 Sockets=4\nNodeName=n[2-4] CPUs=4 State=unknown"),
    ("NodeName=DEFAULT CPUs=4 Feature=b,a\nNodeName=n1", "NodeName=n1 Features=a,b CPUs=4"),
    ("NodeName=n1 NodeAddr=n1", "NodeName=n1"),
    ("NodeName=n[1-2] NodeAddr=a[1-2]", "NodeName=n1 NodeAddr=a1\nNodeName=n2 NodeAddr=a2"),
    ("NodeName=n1 Gres=gpu:a:4", "NodeName=n1 Gres=gpu:a:4 Weight=1"),
    ("AuthType=auth/munge\nPartitionName=p State=UP MaxTime=INFINITE", "SlurmdTimeout=300\nPartitionName=p Hidden=NO"),
    ("NodeName=n[1-2] CPUs=1\nPartitionName=p Nodes=ALL Default=yes", "NodeName=n[1-2]\nPartitionName=p Nodes=n1,n2 "
     "Default=YES"),
    ("NodeSet=s Nodes=n[1-2]\nPartitionName=p Nodes=s Shared=NO\nNodeSet=t Nodes=n1",
     "NodeSet=s Nodes=n2,n1\nPartitionName=p Nodes=n[1-2] OverSubscribe=no\nNodeSet=t Nodes=n1"),
])
def test_what_means_the_same(old: str, new: str) -> None:
    assert diff(old, new).same
    assert text.text(diff(old, new)).startswith("no difference")


@looped(("old", "new", "expected"), [
    ("Prolog=/a", "Prolog=/A", ("CHANGE", "Prolog", "/a", "/A")),
    ("", "SlurmdTimeout=9", ("CHANGE", "SlurmdTimeout", "", "9")),
    ("SlurmdTimeout=9", "", ("DROPPED", "SlurmdTimeout", "9", "")),
    ("SlurmctldHost=a\nSlurmctldHost=b", "SlurmctldHost=a", ("CHANGE", "SlurmctldHost", "a, b", "a")),
    ("SelectType=select/linear", "SelectType=select/cons_tres", ("JOBS", "SelectType", "select/linear",
                                                                  "select/cons_tres")),
    ("StateSaveLocation=/a", "StateSaveLocation=/b", ("JOBS", "StateSaveLocation", "/a", "/b")),
    ("PartitionName=p Nodes=ALL", "", ("JOBS", "partition p", "no nodes", "")),
    ("", "PartitionName=p", ("CHANGE", "partition p", "", "no nodes")),
    ("PartitionName=p MaxTime=5", "PartitionName=p", ("DROPPED", "partition p MaxTime", "5", "")),
    ("PartitionName=p Nodes=n[1-3]", "PartitionName=p Nodes=n[2-4]",
     ("CHANGE", "partition p Nodes", "n[1-3]", "n[2-4]")),
    ("NodeSet=s Nodes=n1", "", ("DROPPED", "node set s", "n1", "")),
    ("DownNodes=n1 State=DOWN", "", ("DROPPED", "DownNodes", "n1 State=DOWN", "")),
    ("NodeName=n1", "NodeName=n1 Gres=gpu:a:1,gpu:b:1", ("CHANGE", "Gres", "", "gpu:a:1,gpu:b:1")),
    ("NodeName=n1 Gres=gpu:b:1,gpu:a:1", "NodeName=n1 Gres=gpu:a:1,gpu:b:1",
     ("CHANGE", "Gres", "gpu:b:1,gpu:a:1", "gpu:a:1,gpu:b:1")),
    ("NodeName=n1 Weight=5", "NodeName=n1", ("DROPPED", "Weight", "5", "")),
    ("NodeName=n1 NodeAddr=x", "NodeName=n1", ("DROPPED", "NodeAddr", "x", "")),
    ("NodeName=n1 NodeHostname=x", "NodeName=n1 NodeHostname=y", ("CHANGE", "NodeHostname", "x", "y")),
    ("", "NodeName=n1 CPUs=2 RealMemory=5", ("CHANGE", "nodes", "", "CPUs=2 RealMemory=5")),
    ("NodeName=n1", "", ("JOBS", "nodes", "in slurm.conf", "")),
])
def test_one_difference(old: str, new: str, expected: tuple[str, str, str, str]) -> None:
    assert told(diff(old, new)) == [expected]


def test_nodes_that_change_alike_are_one() -> None:
    found = diff("NodeName=n[1-4] RealMemory=10\nNodeName=m[1-2] RealMemory=10", "NodeName=n[1-3],m1 RealMemory=9\n"
                 "NodeName=n4 RealMemory=10\nNodeName=m2 RealMemory=8")
    assert [(d.new, d.nodes) for d in found.differences] == [("9", ("n1", "n2", "n3", "m1")), ("8", ("m2",))]


def test_more_than_the_hardware_has_is_invalid() -> None:
    found = diff("NodeName=n[1-3] RealMemory=1000 CPUs=8 Gres=gpu:a:8", "NodeName=n[1-3] RealMemory=900 CPUs=4 "
                 "Gres=gpu:a:7", truth=True, memory={"n1": 950, "n2": 1001, "n3": 1000})
    by_what = {(d.what, d.weight): d for d in found.differences}
    short = by_what["RealMemory", Weight.INVALID]
    assert (short.nodes, short.means.split(",")[0]) == (("n1",), "slurmd counts 950 MiB")
    assert by_what["RealMemory", Weight.CHANGE].nodes == ("n2", "n3")
    assert "7 gpu where 8 are configured" in by_what["Gres", Weight.INVALID].means
    assert "4 CPUs" in by_what["CPUs", Weight.INVALID].means
    assert found.differences[-1].weight is Weight.CHANGE
    # Between two folders nothing is known of the hardware.
    assert {d.weight for d in diff("NodeName=n1 CPUs=8", "NodeName=n1 CPUs=4").differences} == {Weight.CHANGE}


def test_layouts_are_completed_as_slurm_does() -> None:
    def of(line: str) -> list[int]:
        found = layout(configure({"slurm.conf": f"NodeName=n1 {line}"}).nodes[0])
        assert found is not None
        return list(found.values())
    # boards, sockets, cores, threads, CPUs
    assert of("") == [1, 1, 1, 1, 1]
    assert of("CPUs=8") == [1, 8, 1, 1, 8]
    assert of("CPUs=8 CoresPerSocket=2 ThreadsPerCore=2") == [1, 2, 2, 2, 8]
    assert of("Boards=2 SocketsPerBoard=2 Sockets=9 CoresPerSocket=3") == [2, 4, 3, 1, 12]
    assert of("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CPUs=8") == [1, 2, 4, 2, 8]
    assert of("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CPUs=7") == [1, 2, 4, 2, 16]
    assert layout(configure({"slurm.conf": "NodeName=n1 CPUs=x"}).nodes[0]) is None


def gres(old: str, new: str, *, truth: bool = False) -> Diff:
    nodes = "NodeName=n[1-2] Gres=gpu:4"
    return diff({"slurm.conf": nodes, "gres.conf": old}, {"slurm.conf": nodes, "gres.conf": new}, truth=truth)


LINE = "NodeName=n[1-2] AutoDetect=off Name=gpu Type=a"


def test_the_same_devices_in_other_lines() -> None:
    assert gres(f"{LINE} Files=/dev/nvidia[0-1] CPUs=0-3", f"{LINE} File=/dev/nvidia0 Cores=0,1,2,3\n"
                "NodeName=n1 Name=gpu Type=a File=/dev/nvidia1 Cores=0-3\n"
                "NodeName=n2 Name=gpu Type=a File=/dev/nvidia1 Cores=[0-3]\n").same


def test_devices_that_change() -> None:
    found = gres(f"{LINE} File=/dev/nvidia[0-3] Cores=0-7 Flags=nvidia_gpu_env",
                 f"{LINE} File=/dev/nvidia[0-1] Cores=0-3 Flags=nvidia_gpu_env\n"
                 f"{LINE} File=/dev/nvidia[2-3] Cores=4-7 Flags=amd_gpu_env")
    assert told(found) == [
        ("CHANGE", "gpu Cores of /dev/nvidia[0-1]", "0-7", "0-3"),
        ("CHANGE", "gpu Cores of /dev/nvidia[2-3]", "0-7", "4-7"),
        ("CHANGE", "gpu Flags of /dev/nvidia[2-3]", "nvidia_gpu_env", "amd_gpu_env")]
    assert found.differences[0].nodes == ("n1", "n2")
    assert str(found.differences[0].place) == "gres.conf:1"


def test_flags_go_on_until_the_next_that_are_written() -> None:
    assert gres(f"{LINE} File=/dev/nvidia0 Flags=nvidia_gpu_env\n{LINE} File=/dev/nvidia1",
                f"{LINE} File=/dev/nvidia[0-1] Flags=nvidia_gpu_env").same


def test_order_links_and_devices_that_are_not_there() -> None:
    found = gres(f"{LINE} File=/dev/nvidia0 Links=-1,0\n{LINE} File=/dev/nvidia1 Links=0,-1",
                 f"{LINE} File=/dev/nvidia1 Links=-1,4\n{LINE} File=/dev/nvidia0 Links=4,-1")
    assert told(found) == [("CHANGE", "gpu Links of /dev/nvidia[1,0]", "0,-1 ...", "-1,4 ..."),
                           ("CHANGE", "order of devices", "/dev/nvidia[0-1]", "/dev/nvidia[1,0]")]
    found = gres(f"{LINE} File=/dev/nvidia[0-8]", f"{LINE} File=/dev/nvidia[0-7]", truth=True)
    assert told(found) == [("FATAL", "gpu File", "/dev/nvidia8", "")]
    assert told(gres(f"{LINE} File=/dev/nvidia[0-8]", f"{LINE} File=/dev/nvidia[0-7]"))[0][0] == "CHANGE"
    assert told(gres("", f"{LINE} File=/dev/nvidia[0-1]")) == [
        ("CHANGE", "gpu File", "", "/dev/nvidia[0-1] (a)")]


def test_autodetect_of_all_nodes_and_of_one() -> None:
    found = gres("AutoDetect=nvml\nNodeName=n2 AutoDetect=off", "NodeName=n2 AutoDetect=nvml")
    assert [(d.what, d.old, d.new, d.nodes) for d in found.differences] == [
        ("AutoDetect", "nvml", "off", ("n1",)), ("AutoDetect", "off", "nvml", ("n2",))]


def test_counted_and_shared_gres() -> None:
    found = gres("NodeName=n1 Name=shard Count=8\nNodeName=n1 Name=mps Count=100 File=/dev/nvidia0",
                 "NodeName=n1 Name=shard Count=16\nNodeName=n1 Name=mps Count=200 File=/dev/nvidia0")
    assert told(found) == [("CHANGE", "shard Count", "8", "16"), ("CHANGE", "mps Count of /dev/nvidia0", "100", "200")]


def test_files_in_one_text() -> None:
    assert files_text([f"/dev/nvidia{n}" for n in (0, 1, 2, 5)]) == "/dev/nvidia[0-2,5]"
    assert files_text(["/dev/dri/renderD128", "/dev/x", "/dev/y01", "/dev/nvidia3"]) == (
        "/dev/dri/renderD128,/dev/x,/dev/y01,/dev/nvidia3")


def topology(old: str, new: str) -> Diff:
    return diff({"slurm.conf": "", "topology.conf": old}, {"slurm.conf": "", "topology.conf": new})


TREE = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2]\n"


def test_topologies() -> None:
    assert topology(TREE, "SwitchName=s2 Nodes=n3,n4\nSwitchName=top Switches=s1,s2\n"
                    "SwitchName=s1 Nodes=n[1-2]\n").same
    assert told(topology(TREE, TREE.replace("s1", "leafA").replace("s[1-2]", "leafA,s2"))) == [
        ("CHANGE", "topology: names", "s1", "leafA")]
    moved = topology(TREE, TREE.replace("n[1-2]", "n1").replace("n[3-4]", "n[2-4]"))
    assert [(d.what, d.old, d.new, d.nodes) for d in moved.differences] == [("topology: leaf", "s1", "s2", ("n2",))]
    assert told(topology(TREE, TREE.replace("SwitchName=top Switches=s[1-2]\n", ""))) == [
        ("CHANGE", "topology: switches above the leaves", "s[1-2]", "")]
    assert only(topology(TREE, "BlockName=b Nodes=n[1-4]\nBlockSizes=4\n")).new == "block (1 block of 4)"
    assert told(topology("BlockName=b Nodes=n[1-4]\nBlockSizes=4", "BlockName=b Nodes=n[1-4]\nBlockSizes=2,4")) == [
        ("CHANGE", "topology BlockSizes", "4", "2,4")]


def test_a_topology_yaml_that_is_in_the_way() -> None:
    yaml = "- topology: t\n  cluster_default: true\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-2]\n"
    found = diff({"slurm.conf": "", "topology.yaml": yaml},
                 {"slurm.conf": "", "topology.conf": "SwitchName=s1 Nodes=n[1-2]"})
    assert any("take it away" in d.means for d in found.differences)


def test_files_that_the_new_side_does_not_write_stay() -> None:
    found = diff({"slurm.conf": "A=1", "cgroup.conf": "ConstrainCores=yes", "slurmdbd.conf": "DbdHost=x",
                  "plugstack.conf": "required x.so", "gres.conf": "Name=gpu File=/dev/nvidia0",
                  "topology.conf": TREE}, "A=1")
    assert {d.weight for d in found.differences} == {Weight.LEFT}
    assert {d.file for d in found.differences} == {"cgroup.conf", "slurmdbd.conf", "plugstack.conf", "gres.conf",
                                                   "topology.conf"}
    assert found.same
    assert application(found.differences) == Application()


def test_lines_of_other_files() -> None:
    old = {"slurm.conf": "",
           "job_container.conf": "AutoBasePath=true\nBasePath=/a Dirs=/tmp\nNodeName=n1 BasePath=/b\n"}
    found = diff(old, {"slurm.conf": "", "job_container.conf": "autobasepath=yes\nBasePath=/a Dirs=/tmp,/var/tmp\n"})
    assert told(found) == [("CHANGE", "BasePath", "", "/a Dirs=/tmp,/var/tmp"),
                           ("DROPPED", "BasePath", "/a Dirs=/tmp", ""),
                           ("DROPPED", "NodeName", "n1 BasePath=/b", "")]
    assert {d.weight for d in diff(old, "").differences} == {Weight.LEFT}
    assert text.text(diff(old, "")).splitlines()[-1].startswith("no difference (")
    assert "what is LEFT stays as it is" in text.text(diff(old, ""))


def test_a_password_is_not_shown() -> None:
    found = diff({"slurm.conf": "", "slurmdbd.conf": "StoragePass=geheim\n"}, {"slurm.conf": "", "slurmdbd.conf":
                 "StoragePass=anders\n"})
    assert "geheim" not in text.text(found)
    old = configure({"slurm.conf": "", "slurmdbd.conf": "StoragePass=geheim # x\nA=1\n"})
    shown = text.unified(old, {"slurmdbd.conf": "A=2\n"})
    assert "geheim" not in shown
    assert "-A=1" in shown


def test_what_the_version_refuses_is_first() -> None:
    old = "SelectType=select/cons_res\nSlurmdTimeout=9\nNodeName=n1 CPUs=2\n"
    new = "SelectType=select/cons_tres\nSlurmdTimeout=8\nNodeName=n1 CPUs=3\n"
    first = diff(old, new, V2411).differences[0]
    assert (first.weight, first.what) == (Weight.FATAL, "SelectType")
    assert "24.11 does not start" in first.means
    assert diff(old, new, V2205).differences[0].weight is not Weight.FATAL


def test_lines_that_slurm_does_not_read_are_told_first() -> None:
    found = diff("A=1 B=2\nC=1\nC=2", "A=1\nC=2")
    assert not found.same
    assert text.text(found).splitlines()[0].startswith("FATAL: slurm.conf:1")


@pytest.mark.parametrize(("applies", "expected"), [
    ([(Apply.RECONFIGURE, ("n1",))], Application(reconfigure=True)),
    ([(Apply.RESTART_SLURMD, ("n1",)), (Apply.RESTART_SLURMD, ("n2",))], Application(slurmd=("n1", "n2"))),
    ([(Apply.RESTART_SLURMD, ("n1",)), (Apply.RESTART_SLURMD, ())], Application(every=True)),
    ([(Apply.RESTART_SLURMCTLD, ()), (Apply.RECONFIGURE, ())], Application(reconfigure=True, slurmctld=True)),
    ([(Apply.RESTART_ALL, ()), (Apply.RECONFIGURE, ())], Application(slurmctld=True, every=True)),
    ([(Apply.JOBS_LOST, ())], Application(slurmctld=True, every=True, jobs_lost=True)),
    ([(Apply.RESTART_SLURMDBD, ())], Application(slurmdbd=True)),
    ([(Apply.NOTHING, ())], Application()),
])
def test_what_all_of_it_takes(applies: list[tuple[Apply, tuple[str, ...]]], expected: Application) -> None:
    found = [Difference(Weight.CHANGE, "slurm.conf", str(i), nodes=nodes, apply=apply)
             for i, (apply, nodes) in enumerate(applies)]
    assert application(found) == expected
    assert text.steps(Diff(tuple(found)))


def test_reasons_are_the_renderer_s() -> None:
    rendering = render(m.inventory((m.names("gpu", 2), m.H100)), m.SITE, RenderOptions("22.05"))
    sides = Sides(V2205, True, {}, reasons_of(rendering.explained), frozenset(rendering.files))
    new = configure(rendering.files)
    old = configure({**rendering.files, "slurm.conf": rendering.files["slurm.conf"].replace(
        "ThreadsPerCore=2", "ThreadsPerCore=1").replace("GresTypes=gpu", "GresTypes=nic")})
    found = {d.what: d for d in compare(old, new, sides).differences}
    assert all(found[what].why for what in ("ThreadsPerCore", "GresTypes"))
    assert compare(new, new, sides).same


@pytest.fixture
def place(tmp_path: Path) -> Path:
    fleet = m.inventory((m.names("gpu", 4), m.H100), (m.names("cpu", 6), m.BIG_CPU))
    store.save(tmp_path / "inventory.json", fleet)
    (tmp_path / "site.toml").write_text(SITE)
    (tmp_path / "etc").mkdir()
    for name, body in render(fleet, m.SITE, RenderOptions("22.05")).files.items():
        (tmp_path / "etc" / name).write_text(body)
    return tmp_path


def call(place: Path, *args: str) -> int:
    return run(["--site", str(place / "site.toml"), "conf", "diff", *args])


def test_command_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    etc, inventory = place / "etc", ["--inventory", str(place / "inventory.json")]
    assert call(place, str(etc), *inventory) == 0
    assert "no difference (10 nodes)" in capsys.readouterr().out
    assert call(place, str(etc), *inventory, "--text") == 0
    assert not capsys.readouterr().out
    file = etc / "slurm.conf"
    file.write_text(file.read_text().replace("Gres=gpu:h100:8", "Gres=gpu:h100:9") + "Include more.conf\n")
    (etc / "more.conf").write_text("MpiDefault=pmix\r\n")
    (etc / "stray.conf").write_text("x")
    assert call(place, str(etc), *inventory, "--json") == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert [(d["weight"], d["what"], d["nodes"]) for d in told["differences"]] == [
        ("INVALID", "Gres", "gpu[01-04]"), ("DROPPED", "MpiDefault", None)]
    assert told["differences"][1]["place"] == f"{etc}/more.conf:1"
    assert told["apply"]["restart_slurmctld"]
    assert "stray.conf" in err
    assert call(place, str(etc), *inventory, "--text") == 1
    out = capsys.readouterr().out
    assert "+NodeName=gpu" in out
    assert "more.conf: an included file" in out
    (etc / "more.conf").unlink()
    assert call(place, str(etc), *inventory) == 3
    assert "not compared" in capsys.readouterr().err


def test_two_folders(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = place / "other"
    other.mkdir()
    (other / "slurm.conf").write_text("ClusterName=c\nNodeName=n[1-2] CPUs=2\n")
    assert call(place, str(other), "--against", str(other)) == 0
    assert call(place, str(place / "etc"), "--against", str(other), "--text") == 1
    capsys.readouterr()
    assert call(place, str(other), "--against", str(place / "etc")) == 1
    out = capsys.readouterr().out
    assert "n[1-2]: nodes: in slurm.conf -> (not set)" in out
    assert "unless" not in out


@pytest.mark.parametrize(("args", "words"), [
    (["nowhere"], "no such folder"),
    (["."], "has no slurm.conf"),
    (["etc", "--text", "--json"], "one of them"),
    (["etc", "--against", "etc", "--as-is"], "no --inventory"),
    (["etc", "--inventory", "nowhere.json"], "no such inventory"),
    (["etc", "--slurm-version", "9.1"], "9.1"),
])
def test_wrong_usage(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str],
                     words: str) -> None:
    monkeypatch.chdir(place)
    if "--inventory" not in args and "--against" not in args:
        args = [*args, "--inventory", "inventory.json"]
    assert call(place, *args) == 2
    assert words in capsys.readouterr().err


def test_the_folder_of_a_configless_node(place: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    from hpcadmin import conf_files
    monkeypatch.setattr(conf_files, "CONFIGLESS", place / "etc")
    assert call(place, str(place / "nowhere"), "--inventory", str(place / "inventory.json")) == 2
    assert f"name {place / 'etc'}" in capsys.readouterr().err


@pytest.mark.deep
def test_ten_thousand_nodes_are_compared_fast() -> None:
    def files(memory: int) -> dict[str, str]:
        nodes = [f"NodeName=r{i:02d}n[001-250] CPUs=128 RealMemory={memory + i} Gres=gpu:h100:8" for i in range(40)]
        lines = [f"NodeName=r{i:02d}n[001-250] Name=gpu Type=h100 File=/dev/nvidia{g} Cores={memory % 7}-63"
                 for i in range(40) for g in range(8)]
        leaves = [f"SwitchName=s{i} Nodes=r{i:02d}n[001-250]" for i in range(40)]
        return {"slurm.conf": "\n".join([*nodes, "PartitionName=p Nodes=ALL"]), "gres.conf": "\n".join(lines),
                "topology.conf": "\n".join([*leaves, "SwitchName=top Switches=s[0-39]"])}
    began = time.process_time()
    found = diff(files(1000), files(1001))
    assert len(found.differences) == 41
    assert text.text(found)
    assert time.process_time() - began < 5.0


def test_what_the_version_refuses_of_the_new_side() -> None:
    found = diff("SelectType=select/cons_tres\n", "SelectType=select/cons_res\nCacheGroups=0\n", V2411)
    assert {(d.weight, d.what) for d in found.differences} == {(Weight.FATAL, "SelectType"),
                                                               (Weight.FATAL, "CacheGroups")}
    assert "the new one: Slurm 24.11 does not start with it" in text.text(found)


def test_faults_of_the_new_side_are_told() -> None:
    found = diff("ClusterName=a\n", "ClusterName=a\nNodeName=n[1-2 CPUs=4\n")
    assert not found.same and "FATAL" in text.text(found)
    assert "no difference in what could be read" in text.text(found)
