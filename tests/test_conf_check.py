"""The runner and the command: order, folding, what is left out, exit statuses, texts, JSON, speed, odd input."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import conf_models as models
import pytest
from conf_checks import CGROUP, HEAD, NEW, OLD, PARTITION, files, known, machine, two_gpus
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin import inventory as inventories
from hpcadmin.cli import run
from hpcadmin.conf.check import run as runner
from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.run import check, every_rule, judge
from hpcadmin.conf.check.text import in_text, read_text
from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.conf.existing.read import configure
from hpcadmin.errors import UsageError

NODE = "NodeName=n[1-2] CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1000 Gres=gpu:a:2"
GRES = "\n".join(f"NodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia{n} Cores={c} Flags=nvidia_gpu_env"
                 for n, c in enumerate(("0-15", "16-31")))
Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes files into a folder; site and state are empty ones."""
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HPCADMIN_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")

    def write(texts: dict[str, str]) -> Path:
        place = tmp_path / "etc"
        place.mkdir(exist_ok=True)
        for name, text in texts.items():
            (place / name).write_text(text)
        return place
    return write


# --- the runner -----------------------------------------------------------------------------------------------------


def test_order_is_severity_then_place() -> None:
    found = check(Situation(configure(files(NODE.replace("CPUs=64", "CPUs=5"), GRES.replace("16-31", "16-20"),
                                            cgroup="")), (NEW,)))
    order = [list(Severity).index(f.severity) for f in found]
    assert order == sorted(order) and len(set(order)) > 1
    assert all(f.rule.count(".") == 1 for f in found)


def test_the_same_of_many_lines_is_one_finding() -> None:
    texts = files(NODE, GRES.replace(" Flags=nvidia_gpu_env", ""))
    found = [f for f in check(Situation(configure(texts))) if f.rule == "gres.variables"]
    assert len(found) == 1 and str(found[0].place) == "gres.conf:1" and found[0].more == (Place("gres.conf", 2),)
    assert len(found[0].right) == 2 and found[0].nodes == ("n1", "n2")


def test_ignored_rules_are_counted() -> None:
    situation = Situation(configure(files(NODE, GRES.replace(" Flags=nvidia_gpu_env", ""))))
    result = judge(situation, ["gres.variables", "settings"])
    assert dict(result.ignored)["gres.variables"] == 1 and dict(result.ignored)["settings"] > 0
    assert not [f for f in result.findings if f.rule.startswith(("gres.variables", "settings."))]
    with pytest.raises(UsageError, match="no rule of conf check"):
        judge(situation, ["gres.nonsense"])


def broken(_: Situation) -> list[Finding]:
    raise KeyError("nodes")


def endless(_: Situation) -> list[Finding]:
    return [Finding(Severity.NOTE, f"finding {n}") for n in range(100_000)]


def test_a_rule_that_breaks_is_a_finding_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (("odd.broken", broken), *every_rule(), ("odd.endless", endless))
    monkeypatch.setattr(runner, "every_rule", lambda: rules)
    situation = Situation(configure(files(NODE.replace("CPUs=64", "CPUs=5"), GRES)))
    found = check(situation)
    assert [f.what for f in found if f.rule == "odd.broken"] == [
        "the rule odd.broken could not be applied: KeyError: 'nodes'"]
    assert any(f.rule == "nodes.cpus_product" for f in found)
    assert len([f for f in found if f.rule == "odd.endless"]) == runner.MAX_OF_A_RULE + 1
    with pytest.raises(KeyError):
        judge(situation, strict=True)


def test_rules_have_names_of_their_own() -> None:
    names = [name for name, _ in every_rule()]
    assert len(set(names)) == len(names) > 80


_WORDS = r"""
NodeName=n[1-4] NodeName=DEFAULT Name=gpu Type=a Type=1g.5gb File=/dev/nvidia[0-3] File=/dev/nvidia0 Count=4 Count=
Cores=0-3,8-11 Cores=9-1 Cores=[0-3] Links=-1,2 Links=, AutoDetect=nvml AutoDetect=off Flags=no_gpu_env CPUs=8 CPUs=0
Sockets=2 CoresPerSocket=99999999999 ThreadsPerCore=-1 Boards=3 RealMemory=1e9 MemSpecLimit=5 Gres=gpu:a:2,shard:8
Gres=:: Gres=gpu:8:8:8 State=CLOUD PartitionName=p Nodes=ALL Nodes=n[1-9] TRESBillingWeights="CPU=1,Mem=,=" NodeSet=s
Feature=x SelectType=x SlurmdParameters=l3cache_as_socket CpuSpecList=0-99 DefMemPerCPU=5 \ # Include x
"""
WORDS = st.sampled_from(_WORDS.split())
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=7).map(" ".join), max_size=12).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(LINES, LINES, LINES)
def test_no_rule_breaks_on_odd_files(slurm: str, gres: str, cgroup: str) -> None:
    conf = configure({"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": cgroup})
    cpu = models.cpu(2, 4)
    judge(Situation(conf, (OLD, NEW), known(machine(cpu, two_gpus(cpu)), "n1", "n2")), strict=True)


@settings(max_examples=150, deadline=None)
@given(st.one_of(LINES, st.text(max_size=300)))
def test_no_text_breaks_the_reading_of_texts(text: str) -> None:
    pasted = read_text("x.txt", text)
    for conf in pasted.confs:
        found = judge(Situation(conf, fragment=True, complete=False), strict=True).findings
        assert all(in_text(f, "x.txt").place in (None, f.place) or in_text(f, "x.txt").place.file == "x.txt"
                   for f in found)


def test_ten_thousand_nodes_in_forty_groups() -> None:
    nodes = "\n".join(f"NodeName=g{k:02d}n[001-250] CPUs=224 Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 "
                      f"RealMemory={2000 + k} Gres=gpu:h100:8" for k in range(40))
    lines = "\n".join(f"NodeName=g{k:02d}n[001-250] Name=gpu Type=h100 File=/dev/nvidia{n} Flags=nvidia_gpu_env "
                      f"Cores={'0-55' if n < 4 else '56-100'}" for k in range(40) for n in range(8))
    begin = time.process_time()
    found = check(Situation(configure(files(nodes, lines)), (NEW,)))
    assert time.process_time() - begin < 5
    (boundary,) = [f for f in found if f.rule == "cores.boundary"]
    assert len(boundary.nodes) == 10_000


# --- the command ----------------------------------------------------------------------------------------------------


def test_a_sound_folder(folder: Write, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE, GRES))
    assert run(["conf", "check", str(place), "--slurm-version", "24.11"]) == 0
    out = capsys.readouterr().out
    assert "NOTE in 3 files, judged for Slurm 24.11" in out
    assert "nothing was compared with the hardware" in out


def test_findings_name_file_line_and_the_right_line(folder: Write, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE, GRES.replace("16-31", "16-31,48-63")))
    assert run(["conf", "check", str(place), "--slurm-version", "22.05", "--target-version", "25.11"]) == 1
    out = capsys.readouterr().out
    assert f"{place}/gres.conf:2: INVALID: Cores=16-31,48-63: the node has cores 0-31 [cores.beyond]" in out
    assert "nodes n[1-2]; Slurm 25.11\n" in out and "nodes n[1-2]; Slurm 22.05\n" in out
    assert "right: NodeName=n[1-2] Name=gpu Type=a File=/dev/nvidia1 Cores=16-31 Flags=nvidia_gpu_env" in out


def test_json(folder: Write, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE.replace("CPUs=64", "CPUs=5"), GRES))
    assert run(["conf", "check", str(place), "--json", "--ignore", "settings"]) == 1
    said = json.loads(capsys.readouterr().out)
    first = said["findings"][0]
    assert (first["severity"], first["rule"], first["file"], first["line"]) == (
        "WRONG", "nodes.cpus_product", str(place / "slurm.conf"), 12)
    assert first["right"] and first["nodes"] == ["n1", "n2"] and first["versions"][0] == "22.05"
    assert said["left_out"] == [{"rule": "settings", "findings": 1}] and said["failed"] is True


def test_nothing_is_never_right(folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(["conf", "check", str(empty)]) == 3
    (empty / "gres.conf").write_text("AutoDetect=off\n")
    assert run(["conf", "check", str(empty)]) == 3                    # no slurm.conf
    (tmp_path / "nothing.txt").write_text("")
    assert run(["conf", "check", str(tmp_path / "nothing.txt")]) == 3
    (tmp_path / "prose.txt").write_text("The weather is fine.\n")
    assert run(["conf", "check", str(tmp_path / "prose.txt")]) == 3
    (tmp_path / "gres.conf").write_text("# only words\n")
    assert run(["conf", "check", str(tmp_path / "gres.conf")]) == 3
    assert run(["conf", "check", str(tmp_path / "absent")]) == 3
    (empty / "slurm.conf").write_text("")
    assert run(["conf", "check", str(empty)]) == 1                    # no daemon starts with it
    out = capsys.readouterr().out
    assert "nothing wrong" not in out and out.count("nothing was judged") == 5
    place = folder({**files(NODE, GRES), "slurm.conf": f"Include more.conf\n{HEAD}{NODE}\n{PARTITION}"})
    assert run(["conf", "check", str(place)]) == 1                    # slurmctld does not start either
    assert "more.conf" in capsys.readouterr().out


def test_single_files_are_judged_for_what_they_say(folder: Write, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE, GRES))
    assert run(["conf", "check", str(place / "gres.conf")]) == 0
    assert "slurm.conf, cgroup.conf were not given" in capsys.readouterr().out
    assert run(["conf", "check", str(place / "slurm.conf")]) == 0
    assert "gres.conf, which must name n[1-2], was not given" in capsys.readouterr().out
    assert run(["conf", "check", str(place / "slurm.conf"), str(place / "gres.conf")]) == 0
    assert run(["conf", "check", str(place), str(place / "gres.conf")]) == 2


def test_a_tree_whose_file_was_not_given(folder: Write) -> None:
    place = folder(files(NODE, GRES, head=HEAD + "TopologyPlugin=topology/tree\n"))
    assert run(["conf", "check", str(place / "slurm.conf")]) == 0
    assert run(["conf", "check", str(place)]) == 1


def test_pasted_texts_keep_their_lines(folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mail.txt"
    path.write_text(f"Hello,\n\n> {NODE.replace('CPUs=64', 'CPUs=5')}\n> and gres.conf:\n> Name=gpu Type=a "
                    "File=/dev/nvidia[0-1] Links=0,0 is what we have\n")
    assert run(["conf", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"{path}:3: WRONG: CPUs=5 is neither" in out and f"{path}:5: WRONG: Links=0,0" in out
    assert "no ClusterName" not in out and "cgroup" not in out


def test_wrong_and_right_lines_in_one_text_are_no_duplicates(tmp_path: Path, folder: Write,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "issue.md"
    path.write_text(f"### before\n{NODE.replace('CPUs=64', 'CPUs=5')}\n### after\n{NODE}\n")
    assert run(["conf", "check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "stands twice" not in out and f"{path}:2: WRONG" in out and f"{path}:4: WRONG" not in out


def test_inventory_and_versions_of_its_nodes(folder: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE.replace("RealMemory=1000", "RealMemory=254430"), GRES))
    cpu = models.cpu(2, 16)
    saved = models.inventory((["n1", "n2"], machine(cpu, two_gpus(cpu, (0, 1)))), version="24.11.5")
    inventories.save(tmp_path / "inventory.json", saved)
    assert run(["conf", "check", str(place), "--inventory", str(tmp_path / "inventory.json")]) == 0
    out = capsys.readouterr().out
    assert "judged for Slurm 24.11" in out and "nothing was compared" not in out
    assert run(["conf", "check", str(place), "--inventory", str(tmp_path / "none.json")]) == 2
    assert run(["conf", "check", str(place), "--target-version", "99.1"]) == 2
    assert run(["conf", "check", str(place), "--ignore", "nonsense"]) == 2


def test_rules_that_the_site_leaves_out_are_named(folder: Write, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE.replace("CPUs=64", "CPUs=5"), GRES))
    (tmp_path / "site.toml").write_text(f"[slurm]\ncheck_ignore = ['nodes.cpus_product']\nconf_dir = '{place}'\n")
    assert run(["conf", "check"]) == 0
    assert "left out: nodes.cpus_product (1 finding)" in capsys.readouterr().out


def test_control_characters_of_files_do_not_reach_the_terminal(folder: Write,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(files(NODE + " State=\x1b[31mRED", GRES, cgroup=CGROUP + "\x07Constrain\u202e=yes\n"))
    assert run(["conf", "check", str(place)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out


def test_an_empty_situation_has_no_finding_of_files() -> None:
    assert not [f for f in check(Situation(Configuration(), complete=False)) if f.severity is not Severity.NOTE]


def test_the_right_line_keeps_what_the_line_has_and_speaks_of_plugins_by_their_new_names() -> None:
    text = ("ClusterName=x\nSlurmctldHost=h\nPrologFlags=Contain\nJobContainerType=job_container/tmpfs\n"
            "NodeName=n[1-2] CPUs=4\nPartitionName=DEFAULT MaxTime=1\nPartitionName=p Nodes=n[1-3] Default=YES\n")
    found = check(Situation(configure({"slurm.conf": text}), ((25, 11),)))
    right = {finding.rule: finding.right for finding in found}
    assert right["partitions.unknown_nodes"] == ("PartitionName=p Nodes=n[1-2] Default=YES",)
    assert right["versions.keys"] == ("NamespaceType=namespace/tmpfs",)


@pytest.mark.parametrize("name", ["text", "text.read", "proof", "proof.agrees"])
def test_findings_that_no_rule_makes_can_be_left_out_too(name: str) -> None:
    own = Finding(Severity.WRONG, "x", rule=name)
    assert runner.sifted([own], [name]).ignored == ((name, 1),)


def test_a_forgotten_line_of_a_gpu_is_the_right_line() -> None:
    links = ["NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia0 Cores=0-15 Links=-1,0 Flags=nvidia_gpu_env"]
    texts = {"slurm.conf": f"{HEAD}{NODE.replace('gpu:a:2', 'gpu:a100:2')}\n{PARTITION}", "gres.conf": links[0],
             "cgroup.conf": CGROUP}
    found = {f.rule: f for f in check(Situation(configure(texts), (NEW,)))}
    assert "gres.links_length" not in found
    assert "a line is missing" in found["counts.mismatch"].means
    assert found["counts.mismatch"].right == ()
    cpu = models.cpu(2, 16)
    where = known(machine(cpu, two_gpus(cpu, (0, 1))), "n1", "n2")
    found = {f.rule: f for f in check(Situation(configure(texts), (NEW,), where))}
    assert found["counts.mismatch"].right[0].startswith(
        "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia1 Cores=16-31")


@pytest.mark.parametrize("more", ["", "PartitionName=x Nodes=n[1-9]\n"])
def test_a_whole_slurm_conf_as_text_is_judged_as_the_file(more: str, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    """Under another name it says the same as under its own, with its own line numbers."""
    text = f"ClusterName=c\nSlurmctldHost=h\nNodeName=n[1-4] CPUs=4\nPartitionName=p Nodes=ALL\n{more}"
    told = []
    for name in ("slurm.conf", "from_a_mail.txt"):
        (tmp_path / name).write_text(text)
        status = run(["conf", "check", str(tmp_path / name), "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        told.append((status, [(f["rule"], f["severity"], f["line"]) for f in found]))
        assert all(f["file"] == str(tmp_path / name) for f in found)
    assert told[0] == told[1]
    assert ("nodes.only_cpus", "WRONG", 3) in told[1][1]


@pytest.mark.parametrize(("make", "words"), [
    (lambda path: path.mkdir(), "is not a regular file"),
    (os.mkfifo, "is not a regular file"),
    (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    (lambda path: path.symlink_to("slurm.conf"), "links in a circle"),
])
def test_what_is_no_file(make: Callable[[Path], None], words: str, tmp_path: Path,
                         capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "slurm.conf")
    assert run(["conf", "check", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert words in out and "read by nothing" not in out
    assert run(["conf", "diff", str(tmp_path), "--against", str(tmp_path)]) == 3
    assert "no difference in what could be read" in capsys.readouterr().out


def test_a_folder_without_slurm_conf_names_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia0\n")
    assert run(["conf", "check", str(tmp_path)]) == 3
    assert f"to judge them alone, name {tmp_path}/gres.conf" in capsys.readouterr().out


@pytest.mark.deep
def test_many_lines_of_gres_conf_take_no_longer_than_they_are(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nNodeName=n[1-4] CPUs=4\n"
                                         "PartitionName=p Nodes=ALL\n")
    (tmp_path / "gres.conf").write_text("".join(f"Name=gpu File=/dev/nvidia{n}\n" for n in range(20_000)))
    begun = time.process_time()
    assert run(["conf", "check", str(tmp_path)]) == 1
    assert time.process_time() - begun < 20
