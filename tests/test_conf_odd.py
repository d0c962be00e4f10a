"""conf render before odd inventories and odd sites: a file that is right, or one line for each problem."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import conf_models as m
import pytest
from looped import looped

from hpcadmin.cli._conf_problems import folded, problem_lines
from hpcadmin.cli.conf import explanation
from hpcadmin.conf.check.finding import Severity, Situation
from hpcadmin.conf.check.run import judge
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.parts import Kind, Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.errors import SiteError
from hpcadmin.model import Failed, Inventory, Node
from hpcadmin.site import Site, load_site

CLUSTER = '[cluster]\nname = "c"\ncontrollers = ["head"]\n'
HOSTILE = ('a"b', "a'b", "a#b", "a\\", "a\nb", "a b", "ü", "x" * 10_000, "\x1b[31m", "a[1-2]", "a,b", "$(id)")
GPUS = m.inventory((m.names("gpu", 4), m.H100), (m.names("cpu", 2), m.BIG_CPU), version="24.11.5")


def named(name: str, base: Node = m.H100, **changed: object) -> Node:
    return replace(base, name=name, **{"hostname": name, **changed})  # type: ignore[arg-type]


def go(*nodes: Node, own: Site = m.SITE, as_is: bool = False, failed: tuple[Failed, ...] = ()) -> Rendering:
    return render(Inventory(nodes, failed=failed), own, RenderOptions("24.11", as_is))


def site(folder: Path, text: str, base: str = CLUSTER) -> Site:
    (folder / "site.toml").write_text(base + text, encoding="utf-8")
    return load_site(str(folder / "site.toml"))


def told(result: Rendering, own: Site = m.SITE) -> list[str]:
    assert not result.files
    lines = problem_lines(result.problems, own)
    assert lines
    return lines


def faults(result: Rendering, inventory: Inventory = GPUS) -> list[str]:
    """What conf check finds in the files, notes apart."""
    version = (result.version,) if result.version else ()
    found = judge(Situation(configure(result.files), version, inventory), ()).findings
    return [f"{f.rule}: {f.what}" for f in found if f.severity is not Severity.NOTE]


# --- names -----------------------------------------------------------------------------------------------------------


@looped("name", ["all", "ALL", "Default", "DEFAULT", "", "n 1", "n[1-2]", "n1,n2", "-x", "knöten",
                                  "x" * 300, "a\nb", "n123456789012345678901", "n18446744073709551615"])
def test_names_that_slurm_takes_for_something_else(name: str) -> None:
    lines = told(go(named(name), named("n1")))
    assert len(lines) == 1
    assert "name" in lines[0]
    assert len(lines[0]) < 300


@pytest.mark.parametrize("host", ["localhost", "(none)", "all", "a b", "a,b", "a[1-2]", "-", "ü", "x" * 10_000])
def test_a_host_by_whose_name_no_daemon_finds_it(host: str) -> None:
    for as_is in (False, True):
        lines = told(go(named("n1", hostname=host), as_is=as_is))
        assert len(lines) == 1
        assert lines[0].startswith("n1: calls itself")
        assert "hostnamectl" in lines[0]


def test_an_address_that_is_none() -> None:
    assert "its address 'a,b' is none" in told(go(named("n1", hostname="foo", addresses=("a,b",))))[0]


def test_two_nodes_of_one_host_name() -> None:
    lines = told(go(named("n1", hostname="foo"), named("n2", hostname="foo")))
    assert lines == [f"{one}: calls itself foo, as {other} does (one machine discovered under two names, or two "
                     "machines with one host name)" for one, other in (("n1", "n2"), ("n2", "n1"))]
    assert told(go(named("n1", hostname="n2"), named("n2")))
    assert go(named("n1.a", hostname="n1.a"), named("n2.a", hostname="n2.a")).files


def test_a_node_twice_is_said_once() -> None:
    result = go(named("n1"), named("n1"))
    assert len(told(result)) == 1
    assert not any("in no partition" in note for note in result.notes)


# --- many nodes ------------------------------------------------------------------------------------------------------


def test_the_same_of_many_nodes_and_gpus_is_one_line() -> None:
    blind = replace(m.H100, gpus=tuple(replace(g, minor=None, device_file="") for g in m.H100.gpus))
    result = go(*(named(f"n{i:04d}", blind) for i in range(300)), named("z1", m.BIG_CPU, memory_mib=None))
    assert len(result.problems) == 300 * 8 + 1
    assert sorted(told(result)) == [
        "n[0000-0299]: GPU 0-7: its device minor is not known (is the driver loaded? discover again)",
        "z1: memory: not known (discover it again)"]


def test_nodes_that_were_not_discovered_are_one_line_a_reason() -> None:
    failed = (*(Failed(f"x{i:02d}", "ssh: timed out") for i in range(40)), Failed("y1", "no\nroute"))
    result = go(named("n1"), as_is=True, failed=failed)
    text = result.files["slurm.conf"]
    assert "# Left out, could not be discovered: x[00-39] (ssh: timed out)\n" in text
    assert "# Left out, could not be discovered: y1 (no?route)\n" in text
    assert sum("left out" in note for note in result.notes) == 2


def test_no_file_without_a_node() -> None:
    assert "no node" in told(go())[0]
    assert "there is nothing to write" in told(go(as_is=True, failed=(Failed("n1", "ssh: refused"),)))[0]
    assert "could not be discovered" in told(go(failed=(Failed("n1", "ssh: refused"),)))[0]


def test_weights_only_where_lines_differ() -> None:
    """64 GiB steps: two nodes of one line on both sides of a step have one Weight, so none is needed."""
    step = 64 * 1024 * 32
    assert "Weight=" not in go(named("n1", memory_mib=step), named("n2", memory_mib=step - 1)).files["slurm.conf"]
    assert "Weight=" in go(named("n1"), named("n2", m.BIG_CPU)).files["slurm.conf"]


# --- hostile values --------------------------------------------------------------------------------------------------


@looped("value", HOSTILE)
def test_what_nodes_say_of_themselves_never_breaks_a_file(value: str) -> None:
    """GPU models, CPU models, rates, profiles: in the files as comments, never as they are."""
    node = replace(m.H100, simulated=value, cpu=replace(m.H100.cpu, model=f"EPYC {value}"),
                   gpus=tuple(replace(g, model=f"NVIDIA H100 {value}") for g in m.H100.gpus),
                   nics=tuple(replace(n, rate_text=value) for n in m.H100.nics))
    inventory = Inventory((named("n1", node),), failed=(Failed("n9", value),))
    result = render(inventory, m.SITE, RenderOptions("24.11", True, True))
    assert faults(result, inventory) == []
    for text in result.files.values():
        assert all(" " <= c <= "~" for c in text.replace("\n", ""))
        assert max(map(len, text.splitlines())) < 1000
    lines = [line for line in result.files["slurm.conf"].splitlines() if line.startswith("NodeName")]
    assert len(lines) == 1
    assert re.search(r" Gres=gpu:[a-z0-9_.]+:8 ", lines[0])


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", ["cluster.name", "cluster.controllers", "slurm.partition", "accounting.host",
                                 "accounting.backup_host", "accounting.storage_host", "accounting.storage_user",
                                 "accounting.storage_name", "hooks.prolog", "private_tmp.base_path"])
def test_a_value_of_the_site_that_cannot_be_is_one_line_with_its_place(tmp_path: Path, key: str, value: str) -> None:
    table, _, name = key.partition(".")
    toml = '"' + "".join(c if c.isalnum() or c in " ,#'[]()$-" else f"\\u{ord(c):04x}" for c in value) + '"'
    tables = {"cluster": {"name": '"c"', "controllers": '["head"]'},
              "accounting": {"host": '"db"', "slurmdbd": "true"}}
    tables.setdefault(table, {})[name] = f"[{toml}]" if name == "controllers" else toml
    text = "".join(f"[{t}]\n" + "".join(f"{k} = {v}\n" for k, v in kv.items()) for t, kv in tables.items())
    own = site(tmp_path, text, base="")
    if key == "slurm.partition":
        own = replace(own, nodes=())
    lines = told(render(GPUS, own, RenderOptions("24.11")), own)
    where = re.escape(str(tmp_path / "site.toml"))
    assert all(re.match(rf"{where}:\d+: ", line) for line in lines), lines
    assert all(len(line) < 600 and "\n" not in line for line in lines)


@pytest.mark.deep
def test_keys_of_the_site_may_be_long_and_not_endless(tmp_path: Path) -> None:
    for length, good in ((4000, True), (5000, False)):
        own = site(tmp_path, f'[slurm.options]\nMailProg = "/{"x" * length}"\n')
        assert bool(render(GPUS, own, RenderOptions("24.11")).files) is good
    many = Inventory(tuple(named(f"{i}-{i * 7919 % 10007}x", m.BIG_CPU) for i in range(1000)))
    own = site(tmp_path, f'[partitions.all]\nNodes = "{",".join(n.name for n in many.nodes)}"\n')
    result = render(many, own, RenderOptions("24.11"))
    assert max(map(len, result.files["slurm.conf"].splitlines())) > 5000
    assert faults(result, many) == []


# --- sites that contradict themselves --------------------------------------------------------------------------------

CONTRADICTIONS = {
    "the table's name is the partition's": '[partitions.gpu]\nPartitionName = "x"\n',
    "another table for all partitions": "[partitions.default]\nMaxTime = 60\n[partitions.DEFAULT]\nMaxTime = 70\n",
    "both the default": "[partitions.gpu]\nDefault = true\n[partitions.cpu]\nDefault = true\n",
    "is more than MaxTime=1-0": '[partitions.gpu]\nDefaultTime = "2-0"\nMaxTime = "1-0"\n',
    "is more than MaxTime=60": "[partitions.DEFAULT]\nDefaultTime = 61\nMaxTime = 60\n",
    "controller h is named twice": '[cluster]\nname = "c"\ncontrollers = ["h", "H(10.0.0.1)"]\n',
    "has no base_path": '[private_tmp]\ndirs = ["/tmp"]\n',
    "for slurmdbd.conf, which is not asked for": '[accounting]\nhost = "db"\npassword_file = "/x"\n',
    "one of the two": '[nodes.a]\nhosts = "gpu01"\n[nodes.a.options]\nCPUs = 3\n',
    "CoresPerSocket: follows from the hardware": '[nodes.a]\nhosts = "gpu01"\n[nodes.a.options]\nCoresPerSocket = 3\n',
    "Feature: follows from the hardware": '[nodes.a]\nhosts = "gpu01"\n[nodes.a.options]\nFeature = "x"\n',
    "one of UNKNOWN, DOWN": '[nodes.a]\nhosts = "gpu01"\n[nodes.a.options]\nState = "FOO"\n',
    "names 1, and the line is of 2: gpu[01-02]":
        '[nodes.a]\nhosts = "gpu[01-02]"\n[nodes.a.options]\nNodeHostname = "zz"\n',
    "names 2, and the line is of 1: gpu01":
        '[nodes.a]\nhosts = "gpu01"\n[nodes.a.options]\nNodeAddr = "a[1-2]"\n',
    "the first a letter": '[slurm.gpu_types]\n"NVIDIA H100 80GB HBM3" = ""\n',
    "GPU 0-7: AutoDetect=rsmi does not find it": '[nodes.a]\nhosts = "gpu[01-04]"\nautodetect = "rsmi"\n',
    "has no 'foo' (known are": '[accounting]\nhost = "db"\nenforce = ["foo"]\n',
    "autodetect = 'foo' is not known": '[slurm]\nautodetect = "foo"\n',
}


@pytest.mark.parametrize("word", CONTRADICTIONS)
def test_a_site_that_contradicts_itself_is_one_line_with_its_place(tmp_path: Path, word: str) -> None:
    text = CONTRADICTIONS[word]
    own = site(tmp_path, text, base="" if text.startswith("[cluster]") else CLUSTER)
    lines = told(render(GPUS, own, RenderOptions("24.11")), own)
    assert len(lines) == 1, lines
    assert word in lines[0]
    assert lines[0].startswith(f"{tmp_path / 'site.toml'}:")
    number = int(lines[0].removeprefix(f"{tmp_path / 'site.toml'}:").split(":")[0])
    assert number > (1 if text.startswith("[cluster]") else 3)


@pytest.mark.parametrize(("text", "word", "line"), [
    ("[slurm.options]\nX = [1]\n", "is list, expected str, int, float or bool", 5),
    ("[slurm.options]\nX = {a = 1}\n", "is dict, expected str", 5),
    ("[slurm.options]\nY = 1\nX = 1979-05-27\n", "is date, expected str", 6),
    ("[slurm.options]\nX = nan\n", "not", 5),
    ('[partitions.gpu]\nNodes = ["gpu01"]\n', "must be a string, a number, true or false", 5),
    ("[partitions.gpu]\nMaxTime = inf\n", "must be a string, a number, true or false", 5),
    ("[partitions.gpu]\nNodes = {a = 1}\n", "must be a string, a number, true or false", 5),
    ('[topology]\nblock_sizes = ["a"]\n', "is str, expected int", 5),
])
def test_a_wrong_type_is_one_line_with_its_place(tmp_path: Path, text: str, word: str, line: int) -> None:
    with pytest.raises(SiteError) as caught:
        site(tmp_path, text)
    assert word in str(caught.value)
    assert f"site.toml:{line}" in str(caught.value)


def test_the_sites_gres_types_are_made_complete(tmp_path: Path) -> None:
    own = site(tmp_path, '[slurm.options]\nGresTypes = "license"\n')
    result = render(GPUS, own, RenderOptions("24.11"))
    assert "\nGresTypes=license,gpu  # site.toml\n" in result.files["slurm.conf"]


def test_an_old_key_of_partitions_is_the_two_new_ones(tmp_path: Path) -> None:
    own = site(tmp_path, '[partitions.all]\nPriority = 3\n[partitions.b]\nPriority = 3\nPriorityTier = 7\n')
    result = render(GPUS, own, RenderOptions("24.11"))
    text = result.files["slurm.conf"]
    assert "PriorityJobFactor=3 PriorityTier=3" in text
    assert "PriorityJobFactor=3 PriorityTier=7" in text
    assert any("Priority=3: an old name" in note for note in result.notes)
    assert faults(result) == []


def test_a_part_of_the_gpus_is_named(tmp_path: Path) -> None:
    """Which GPU it is whose cores are no socket."""
    node = replace(m.H100, gpus=(replace(m.H100.gpus[0], local_cpus=(0, 1, 2)), *m.H100.gpus[1:]))
    assert any(note.startswith("n1: GPU 0: all cores, ") for note in go(named("n1", node)).notes)


def test_kinds_stay_apart_when_lines_are_folded() -> None:
    result = go(named("n1", m.BIG_CPU, memory_mib=None), named("n2", replace(m.BIG_CPU, unknown=("gpus",))))
    assert {p.kind for p in folded(result.problems)} == {Kind.UNKNOWN}
    assert [line.split(":")[0] for line in problem_lines(result.problems, m.SITE)] == ["n1", "n2"]


@pytest.mark.deep
@pytest.mark.parametrize("comments", [True, False])
def test_the_reason_is_read_behind_a_long_list_of_nodes(comments: bool) -> None:
    nodes = tuple(named(f"n{i * 7}") for i in range(1500))
    result = render(Inventory(nodes), m.SITE, RenderOptions("24.11", comments=comments))
    text = "\n".join(result.files.values()) if comments else explanation(result.explained)
    told_of = [line for line in text.splitlines() if "n[0,7,14," in line and "GPU 0 in PCI bus order" in line]
    assert len(told_of) == 1
    assert "NVIDIA H100 80GB HBM3 at 0000:1b:00.0 on n0 [inventory: n0 and 1499 alike]" in told_of[0]


@pytest.mark.parametrize(("plugin", "words", "why"), [
    ("linear", "CR_Core_Memory", "hands out no cores"), ("linear", "CR_CPU", "hands out no cores"),
    ("cons_tres", "CR_Memory", "needs CR_CPU"), ("cons_tres", "CR_LLN", "needs CR_CPU"),
    ("cons_tres", "CR_Core,CR_Memory", "one of"), ("cons_tres", "CR_CPU,CR_Core", "one of"),
    ("linear", "CR_Memory,CR_LLN", ""), ("cons_tres", "CR_Core_Memory,CR_Pack_Nodes", ""), ("linear", "", ""),
    ("cons_tres", "CR_Socket,CR_CORE_DEFAULT_DIST_BLOCK", "")])
def test_what_is_handed_out_suits_the_plug_in(tmp_path: Path, plugin: str, words: str, why: str) -> None:
    """As slurmctld 22.05 and 26.05 answered (test_conf_words_slurm)."""
    more = f'SelectTypeParameters = "{words}"\n' if words else ""
    own = site(tmp_path, f'[slurm.options]\nSelectType = "select/{plugin}"\n{more}')
    nodes = Inventory((named("n1", m.BIG_CPU),))
    result = render(nodes, own, RenderOptions("24.11"))
    if why:
        assert why in told(result, own)[0]
        assert len(told(result, own)) == 1
    else:
        assert f"\nSelectTypeParameters={words or 'CR_Memory'}" in result.files["slurm.conf"]
        assert faults(result, nodes) == []


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    """Fatal ones are refused with their place, others are a note; conf check says the same."""
    own = site(tmp_path, '[slurm.options]\nSlurmctldTimeout = 100\nPreemptType = "preempt/qos"\n')
    lines = told(render(GPUS, own, RenderOptions("24.11")), own)
    assert lines == [f"{tmp_path}/site.toml:6: PreemptType=preempt/qos without a PreemptMode: slurmctld would not "
                     "start (PreemptMode=REQUEUE, CANCEL or SUSPEND,GANG)"]
    own = site(tmp_path, '[hooks]\nhealth = "/bin/true"\nhealth_interval_s = 30\n')
    result = render(GPUS, own, RenderOptions("26.05"))
    assert any("HealthCheckInterval=30 is not above HealthCheckTimeout, 60" in note for note in result.notes)
    assert any("combinations.together" in fault for fault in faults(result))
    assert not any("above" in note for note in render(GPUS, own, RenderOptions("24.11")).notes)
