"""Existing files are read as Slurm reads them: what 22.05, 24.11 and 26.05 answered to the same lines."""

from __future__ import annotations

from typing import Any

import pytest
from looped import looped

from hpcadmin.conf.existing.parts import Configuration
from hpcadmin.conf.existing.read import MAX_NESTING, configure


def slurm(text: str, **more: str) -> Configuration:
    return configure({"slurm.conf": text, "/dev/null": "",
                      **{".".join(name.rsplit("_", 1)): body for name, body in more.items()}})


def fatal(conf: Configuration) -> list[str]:
    return [f"{f.place}: {f.what}" for f in conf.faults if f.fatal]


def told(conf: Configuration) -> list[str]:
    return [f.what for f in conf.faults if not f.fatal]


def value(text: str, key: str = "Prolog") -> str | None:
    conf = slurm(text)
    assert not fatal(conf), fatal(conf)
    return conf.setting(key)


@looped(("text", "expected"), [
    ("Prolog=/a", "/a"),
    ("PROLOG = /a\n", "/a"),
    ("\t prolog\t=\t/a  \r\n", "/a"),
    ('Prolog="/a b"', "/a b"),
    ('Prolog=""', ""),
    ("Prolog=/a # why", "/a"),
    ("Prolog=/a#why", "/a"),
    ("Prolog=/a\\#b", "/a#b"),
    ("Prolog=/a\\\\b", "/a\\b"),
    ("Prolog=/a\\\n/b", "/a/b"),
    ("Prolog=/a\\\r\n/b\r\n", "/a/b"),
    ("Prolog=/a\\   \n/b", "/a/b"),
    ("Prolog=/a# \\\nEpilog=/b", "/a"),                   # the comment is cut before the backslash joins
    ("Prolog=\\\n\\\n/a", "/a"),
    ("Prolog=/a\\", "/a"),
    ("Prolog=/a=b", "/a=b"),
    ("Prolog=/a\nProlog=/b", "/b"),
    ("Prolog+=/b", "/b"),
    ("Prolog=/\udcff", "/\udcff"),
])
def test_a_setting(text: str, expected: str) -> None:
    assert value(text) == expected


@looped(("text", "words"), [
    ("SlurmdTimeout=100 InactiveLimit=5", "after SlurmdTimeout="),
    ("Prolog=", "a key without a value"),
    ("hello world", "no Key=Value"),
    ("  Include foo.conf", "very beginning of the line"),
    ('Prolog="/a b', "after Prolog="),
    ("\u00a0Prolog=/a", "no Key=Value"),
    ("\ufeffProlog=/a", "byte order mark"),
    ("\ufeff# hello", "byte order mark"),
    ("PartitionName=p Nodes=n1 and more", "no Key=Value"),
    ("NodeName=DEFAULT NodeAddr=x", "NodeAddr= cannot stand"),
    ("NodeName=ALL CPUs=1", "the name is taken"),
    ("NodeName=m[1-3] NodeAddr=a[1-2]", "has 2 names for the 3"),
    ("NodeName=m[3-1]", "backwards"),
    ("NodeName=m[1-3", "do not pair"),
    ("NodeName=m[1-999999999]", "more than 65536 names"),
    ("NodeName=m[1-2][1-60000]", "more than 100000 names"),
    ("NodeName=m[1-x]", "no range"),
    ("Include *.conf", "patterns"),
    ("Include %c.conf", "ClusterName= has to stand above"),
    ("Include other.conf", "not given"),
    ("Include slurm.conf", "includes itself"),
    ("Include /dev/null# a comment", "right behind the name"),
])
def test_what_slurm_refuses(text: str, words: str) -> None:
    found = fatal(slurm(f"ClusterName=c\n{text}\n" if "%c" not in text and "\ufeff" not in text else text))
    assert len(found) == 1
    assert words in found[0]
    assert found[0].startswith("slurm.conf:")


@pytest.mark.parametrize(("text", "words"), [
    ("LaunchParameters+=x", "is read as LaunchParameters="),
    ("PartitionName=q Nodes= Default=YES", "takes 'Default=YES' as its value"),
    ("SlurmdTimeout=1\nSlurmdTimeout=2", "takes the last, '2', not '1'"),
    ("NodeName=n1 CPUs=1 CPUs=2", "takes the last, '2'"),
    ('Prolog="/a"b', "a part of it"),
    ('Prolog="/a # b"', "a part of it"),                 # a comment is one inside quotes too
    ("Prolog=/a\0b", "NUL"),
    ("NodeSet=s Nodes=n1\nNodeSet=s Nodes=n2", "stands twice"),
    ("PartitionName=q Nodes=block{b1}", "node list function"),
    ("NodeName=n[1-2]-ib", "23.11 takes it"),
    ("Include /dev/null", "without a newline"),
])
def test_what_slurm_takes_otherwise_than_it_looks(text: str, words: str) -> None:
    conf = slurm(text)
    assert not fatal(conf)
    assert any(words in what for what in told(conf)), told(conf)


def test_a_host_list_keeps_order_and_doubles() -> None:
    conf = slurm("NodeName=b[2,1],a,r[1-2]n[08-10]-ib,n1,n1 NodeAddr=x")
    assert conf.nodes[0].hosts == ("b2", "b1", "a", "r1n08-ib", "r1n09-ib", "r1n10-ib", "r2n08-ib", "r2n09-ib",
                                   "r2n10-ib", "n1", "n1")


def test_the_signs_of_clustershell_are_none_of_slurm() -> None:
    assert slurm("NodeName=n[1-3]!n2").nodes[0].hosts == ("n1!n2", "n2!n2", "n3!n2")


def test_default_lines_add_up_and_are_for_later_lines() -> None:
    conf = slurm("NodeName=a CPUs=1\nNodeName=DEFAULT CPUs=4 Feature=x\nNodeName=b\n"
                 "nodename=default RealMemory=9 CPUs=8\nNodeName=c Features=y Procs=2 GresConf=name=gpu\n"
                 "NodeName=d State=DOWN")
    a, b, c, d = conf.nodes
    assert a.values.keys() == {"cpus"}
    assert (b.get("cpus"), b.get("features"), b.get("realmemory")) == ("4", "x", None)
    # CPUs of DEFAULT is before Procs of the line.
    assert (c.get("cpus"), c.get("features"), c.number("realmemory")) == ("8", "y", 9)
    assert (d.get("cpus"), d.get("features"), d.get("state"), d.get("gresconf")) == ("8", "x", "DOWN", None)
    assert b.values["cpus"].default
    assert b.values["cpus"].place.line == 2
    assert not d.values["state"].default


def test_partitions_their_defaults_sets_and_all() -> None:
    conf = slurm("PartitionName=DEFAULT MaxTime=5 Shared=YES ExclusiveUser=YES\nNodeSet=gpu Feature=h100\n"
                 "NodeSet=both Nodes=n[1-2] Feature=cpu\nPartitionName=a Nodes=ALL\nPartitionName=b Nodes=gpu,n1\n"
                 "PartitionName=c Nodes=both OverSubscribe=NO\nNodeName=n[1-2] Features=h100,ib\nNodeName=n[3-4] "
                 "Feature=cpu\nPartitionName=d")
    assert [line.hosts for line in conf.partitions] == [
        ("n1", "n2", "n3", "n4"), ("n1", "n2"), ("n3", "n4", "n1", "n2"), ()]
    assert [s.name for s in conf.node_sets] == ["gpu", "both"]
    a, _, c, _ = conf.partitions
    assert a.values["oversubscribe"].text == "YES"
    assert a.values["maxtime"].default
    assert c.values["oversubscribe"].text == "NO"
    assert "exclusiveuser" not in a.values               # Slurm takes that from the line alone


def test_down_nodes_and_hosts_of_the_controller() -> None:
    conf = slurm("SlurmctldHost=a\nSlurmctldHost=b(10.0.0.2)\nDownNodes=n[1-2] State=DOWN Reason=\"no power\"")
    assert [v.text for v in conf.several["slurmctldhost"]] == ["a", "b(10.0.0.2)"]
    assert not conf.faults
    line = conf.down_nodes[0].get("reason")
    assert line is not None
    assert line.text == "no power"


def test_values_on_continued_lines_have_the_line_on_which_they_stand() -> None:
    conf = slurm("# c\nNodeName=n1 \\\n  CPUs=2 \\  \n  RealMemory=5 # why\nClusterName=c")
    node = conf.nodes[0]
    assert str(node.place) == "slurm.conf:2"
    assert [node.values[key].place.line for key in ("cpus", "realmemory")] == [3, 4]
    assert conf.settings["clustername"].place.line == 5
    file = conf.file("slurm.conf")
    assert file is not None
    assert (file.statements[0].place.line, file.statements[0].last) == (2, 4)


def test_includes() -> None:
    opened: list[str] = []

    def open_file(path: str) -> str:
        opened.append(path)
        return "NodeName=DEFAULT CPUs=2\n"

    conf = configure({"slurm.conf": "ClusterName=Big\ninclude nodes.conf  # ours\nInclude parts/%c.conf\n"
                      "Include /x/y.conf\nNodeName=n2", "nodes.conf": "NodeName=n1\n",
                      "parts/big.conf": "PartitionName=p Nodes=n1"},
                     open_file=open_file, folder="/etc/slurm")
    assert not fatal(conf)
    assert opened == ["/x/y.conf"]
    assert [(f.path, f.name) for f in conf.files] == [
        ("/etc/slurm/slurm.conf", "slurm.conf"), ("/etc/slurm/nodes.conf", "slurm.conf"),
        ("/etc/slurm/parts/big.conf", "slurm.conf"), ("/x/y.conf", "slurm.conf")]
    assert str(conf.nodes[0].place) == "/etc/slurm/nodes.conf:1"
    assert conf.nodes[1].get("cpus") == "2"              # DEFAULT goes on behind the end of an included file


def test_includes_have_an_end() -> None:
    texts = {"slurm.conf": "Include a0", **{f"a{i}": f"Include a{i + 1}" for i in range(100)}}
    conf = configure(texts)
    assert len(conf.files) == MAX_NESTING
    assert any(str(MAX_NESTING) in what for what in fatal(conf))


def test_a_file_in_another_folder_includes_another_file_by_version() -> None:
    conf = configure({"slurm.conf": "Include d/a.conf", "d/a.conf": "Include b.conf", "b.conf": "ClusterName=x"})
    assert conf.setting("ClusterName") == "x"
    assert any("22.05" in what for what in told(conf))


def test_gres_lines() -> None:
    conf = slurm("NodeName=n[1-2]", gres_conf=(
        "AutoDetect=nvml\nName=gpu Type=a Files=/dev/nvidia[0-1,3],/dev/dri/x CPUs=0-3\n"
        "NodeName=n[1-2] AutoDetect=off Name=gpu multiplefiles=/dev/nvidia0,/dev/cap1 Link=-1,0\n"
        "NodeName=n2 AutoDetect=rsmi\nNodeName=n1 Name=shard Count=4"))
    every, plain, mine, auto, shard = conf.gres
    assert (every.hosts, every.name, every.get("autodetect")) == ((), "", "nvml")
    assert plain.files == ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia3", "/dev/dri/x")
    assert (plain.get("cores"), plain.get("type"), plain.get("file")) == ("0-3", "a", "/dev/nvidia[0-1,3],/dev/dri/x")
    assert (mine.hosts, mine.files, mine.get("links")) == (("n1", "n2"), ("/dev/nvidia0", "/dev/cap1"), "-1,0")
    assert (auto.hosts, auto.name, auto.get("autodetect")) == (("n2",), "", "rsmi")
    assert (shard.name, shard.get("count")) == ("shard", "4")
    assert not conf.faults


@pytest.mark.parametrize(("text", "words", "is_fatal"), [
    ("AutoDetect=off Name=gpu", "after AutoDetect=", True),
    ("Name=gpu NodeName=n1 File=/dev/nvidia0", "first on its line", True),
    ("Type=a Name=gpu", "not with Type=", True),
    ("Name=gpu AutoDetect=nvml", "does nothing", False),
    ("NodeName=n1 Type=a", "has no Name=", False),
    ("NodeName=n[1- Name=gpu", "do not pair", True),
    ("NodeName=n1 Name=gpu File=/dev/nvidia[0-9999]", "more than 1024 files", True),
])
def test_gres_lines_that_slurm_does_not_take(text: str, words: str, is_fatal: bool) -> None:
    conf = slurm("NodeName=n1", gres_conf=text)
    assert any(words in f.what and f.fatal == is_fatal for f in conf.faults), conf.faults


def test_gres_of_a_node_line() -> None:
    conf = slurm("NodeName=n[1-2] GresConf=name=gpu,type=a,file=/dev/nvidia0,cores=0-3,8-11+name=gpu,type=b,"
                 "file=/dev/nvidia1")
    assert [(g.hosts, g.get("type"), g.files, g.get("cores")) for g in conf.gres] == [
        (("n1", "n2"), "a", ("/dev/nvidia0",), "0-3,8-11"), (("n1", "n2"), "b", ("/dev/nvidia1",), "")]


def test_topology_conf() -> None:
    conf = slurm("", topology_conf="SwitchName=s1 Nodes=n[1-2] LinkSpeed=100\nSwitchName=top Switches=s[1-2]\n"
                 "SwitchName=s2 Nodes=n3,n4\n")
    (tree,) = conf.topologies
    assert (tree.kind, tree.default) == ("tree", True)
    assert [(s.name, s.switches, s.nodes) for s in tree.switches] == [
        ("s1", (), ("n1", "n2")), ("top", ("s1", "s2"), ()), ("s2", (), ("n3", "n4"))]
    conf = slurm("", topology_conf="BlockName=b1 Nodes=n[1-2]\nBlockName=b2\nBlockSizes=2,4\n")
    assert (conf.topologies[0].kind, conf.topologies[0].block_sizes) == ("block", (2, 4))
    assert [b.nodes for b in conf.topologies[0].blocks] == [("n1", "n2"), ()]
    assert slurm("", topology_conf="# nothing\n").topologies[0].kind == ""
    assert fatal(slurm("", topology_conf="Nodes=n1 SwitchName=s"))
    assert fatal(slurm("", topology_conf="BlockSizes=x"))


def test_topology_yaml_is_before_topology_conf() -> None:
    text = ("---\n- topology: a\n  cluster_default: true\n  tree:\n    switches:\n      - switch: top\n"
            "        children: s[1-2]\n      - switch: s1\n        nodes: n[1-2]\n- topology: b\n  block:\n"
            "    block_sizes:\n      - 4\n      - 8\n    blocks:\n      - block: b1\n        nodes: n[1-4]\n"
            "- topology: c\n  flat: true\n")
    conf = slurm("", topology_yaml=text, topology_conf="SwitchName=x Nodes=n1\n")
    assert [(t.name, t.kind, t.default) for t in conf.topologies] == [
        ("a", "tree", True), ("b", "block", False), ("c", "flat", False)]
    assert conf.topologies[1].block_sizes == (4, 8)
    assert str(conf.topologies[0].switches[1].place) == "topology.yaml:8"
    conf = slurm("", topology_yaml="- topology: a\n  tree: {switches: [&x]}\n  *y\n")
    assert any("not understood" in what for what in told(conf))


def test_other_files() -> None:
    conf = slurm("ClusterName=c", cgroup_conf="ConstrainCores=yes\nconstraincores=no\n", slurmdbd_conf="DbdHost=h\n",
                 plugstack_conf="required /lib/x.so a=b\n", job_container_conf="AutoBasePath=true\nNodeName=n1 "
                 "BasePath=/x Dirs=/tmp\n")
    assert conf.cgroup["constraincores"].text == "no"
    assert conf.others["slurmdbd.conf"]["dbdhost"].text == "h"
    assert conf.others["job_container.conf"].keys() == {"autobasepath"}
    plugstack = conf.file("plugstack.conf")
    assert plugstack is not None
    assert plugstack.statements == ()
    assert not fatal(conf)


@pytest.mark.deep
@pytest.mark.parametrize(("texts", "words"), [
    ({"slurm.conf": "x" * (33 * 1024 * 1024)}, "characters"),
    ({"slurm.conf": "Prolog=" + "x" * (2 * 1024 * 1024)}, "a line of"),
    ({"slurm.conf": "Prolog=" + "x\\\n" * 2_000_000}, "a line of"),
    ({"slurm.conf": "NodeName=" + "[1-9]" * 50}, "more than 8 brackets"),
    ({"slurm.conf": "\n".join(f"NodeName=a{i}n[1-60000]" for i in range(40))}, "in all lines"),
    ({"slurm.conf": "junk\nTreeWidth=8\n" * 100_000}, "more lines like these"),
    ({"slurm.conf": "junk\n" * 100_000}, "100000 of 100000 lines have no Key=Value"),
])
def test_sizes_have_an_end(texts: dict[str, Any], words: str) -> None:
    conf = configure(texts)
    assert any(words in what for what in [*fatal(conf), *told(conf)])
    assert len(conf.faults) < 105


def test_slurm_conf_is_missing() -> None:
    assert configure({"gres.conf": "Name=gpu"}).missing == ("slurm.conf: there is none",)


def test_ten_thousand_nodes_are_read_fast() -> None:
    import time
    lines = [f"NodeName=r{i:02d}n[001-250] CPUs=128 Gres=gpu:h100:8 Features=a,b" for i in range(40)]
    lines += ["NodeName=big CPUs=1", "PartitionName=p Nodes=ALL", "NodeSet=s Feature=a", "PartitionName=q Nodes=s"]
    began = time.process_time()
    conf = slurm("\n".join(lines))
    assert len(conf.partitions[0].hosts) == 10_001
    assert len(conf.partitions[1].hosts) == 10_000
    assert time.process_time() - began < 1.0
