"""The network suite on sixteen real hosts of which five are not as they should be, and what a plan may be asked for."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from labtool import BIN, Done, Lab, lab
from loopback import wait_until

from hpcadmin.frames import Frame, scan
from hpcadmin.rundata import Plan, Run, read_run

pytestmark = [pytest.mark.lab, pytest.mark.alone]
SIXTEEN = [f"node{n:02d}" for n in range(1, 17)]
LEAVES = {"leafa": "node[01-06]", "leafb": "node[07-11]", "leafc": "node[12-16]"}
HEAD = '''from hpcadmin.check import *
def parse(outputs, c):
    said = {line for o in outputs for line in o.text.split()}
    nodes = tuple(n.name for n in c.nodes)
    return [Measurement("there", len(said & set(nodes)), expected=len(nodes), subject=Subject(nodes, c.device))]
'''
CHECKS = {
    # Declared to take 20 s, and takes three: what past runs took is to be told by the second plan.
    "pairload": '''
def steps(c):
    return (Step(("sh", "-c", "echo $SLURMD_NODENAME; sleep 3"), Role.RANKS),)
CHECK = Check("pairload", "Load of two nodes", Scope.PAIR, steps, parse, impact=Impact.LOAD, seconds=20.0)
''',
    "nodeload": '''
def steps(c):
    return (Step(("sh", "-c", "echo $SLURMD_NODENAME; sleep 0.4")),)
CHECK = Check("nodeload", "Load of a node", Scope.NODE, steps, parse, impact=Impact.LOAD)
''',
    "together": '''
def steps(c):
    return (Step(("sh", "-c", "echo $SLURMD_NODENAME"), Role.RANKS),)
CHECK = Check("together", "Groups", Scope.GROUP, steps, parse, layouts=(Layout.GROUPS, Layout.LEAVES, Layout.ALL))
''',
    "wipes": '''
def steps(c):
    script = "echo wiped >> $1/$SLURMD_NODENAME; echo $SLURMD_NODENAME"
    return (Step(("sh", "-c", script, "sh", c.param_str("directory", ""))),)
CHECK = Check("wipes", "Writes over a folder", Scope.NODE, steps, parse, impact=Impact.DESTRUCTIVE,
              params={"directory": ""})
''',
}
SUITES = {
    "pairs": '[[entry]]\ncheck = "pairload"\n',
    "load": '[[entry]]\ncheck = "nodeload"\n[[entry]]\ncheck = "pairload"\n',
    "groups": '[[entry]]\ncheck = "together"\nover = ["groups", "leaves"]\n',
    "wipes": '[[entry]]\ncheck = "wipes"\n',
    "wipes-there": '[[entry]]\ncheck = "wipes"\nparams = { directory = "/shared/home/hpc/scratch" }\n',
    "devices": ('[[entry]]\ncheck = "nvidia_smi"\n[[entry]]\ncheck = "ib_links"\n[[entry]]\ncheck = "ib_write_bw"\n'
                'over = "ports"\nparams = { seconds = 1 }\n'),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Sixteen hosts, and two that have simulated hardware; all of them were discovered."""
    shared = tmp_path_factory.mktemp("scale")
    for folder in (shared, *shared.parents[:2]):
        folder.chmod(0o755)
    hardware = [word for n in (17, 18) for word in ("--hardware-node", f"node{n}=8xH100")]
    with lab("hpcscale", "10.202.33.0/24", shared, "--nodes", "18", *hardware) as running:
        (shared / "checks").mkdir()
        for name, text in CHECKS.items():
            (shared / "checks" / f"{name}.py").write_text(HEAD + text)
        for name, text in SUITES.items():
            (shared / f"{name}.toml").write_text(text)
        switches = "".join(f'{name} = "{nodes}"\n' for name, nodes in LEAVES.items())
        (shared / "own.toml").write_text(
            '[slurm]\nmpi = "none"\n[run]\nchecks_dir = "/shared/checks"\n[topology.switches]\n'
            f'{switches}spine = ["leafa", "leafb", "leafc"]\n')
        done = running.hpcadmin("discover", "-w", "node[01-18]")
        assert done.status == 0, done.err
        yield running


def validate(cluster: Lab, suite: str, *more: str, nodes: str = "node[01-16]") -> Done:
    return cluster.hpcadmin("--site", "/shared/own.toml", "validate", "--suite", f"/shared/{suite}.toml", "-w", nodes,
                            *more)


def planned(cluster: Lab, suite: str, *more: str) -> dict[str, Any]:
    done = validate(cluster, suite, "--plan", "--json", *more)
    assert done.status == 0, done.err
    found: dict[str, Any] = done.json()
    return found


def last(cluster: Lab) -> tuple[Run, Plan]:
    run = read_run(cluster.last_run())
    assert run.plan is not None
    return run, run.plan


def frames(run: Run) -> list[Frame]:
    return [f for log in run.path.glob("jobs/*/*.log") for f in scan(log.read_bytes()).frames]


def leaf_of(node: str) -> str:
    return "leafa" if node <= "node06" else "leafb" if node <= "node11" else "leafc"


# --- five of sixteen ------------------------------------------------------------------------------------------------


def begin(cluster: Lab, *argv: str) -> subprocess.Popen[str]:
    command = [str(BIN / "hpcadmin"), "lab", "exec", "--name", cluster.name, "--", str(BIN / "hpcadmin"), *argv]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def wait_for_measurements(cluster: Lab, process: subprocess.Popen[str]) -> None:
    """Until the first pairs have been measured."""
    end = time.monotonic() + 120
    runs = cluster.home / "hpcadmin/runs"
    while not any(log.stat().st_size for log in runs.glob("*-network/jobs/*/driver.log")):
        assert time.monotonic() < end and process.poll() is None, process.communicate(timeout=20)
        time.sleep(0.1)


def test_two_slow_one_frozen_one_drained_one_busy(cluster: Lab) -> None:
    for node in ("node03", "node11"):
        assert cluster.lab("fault", node, "--rate", "100mbit").status == 0
    root = ("exec", "--user", "root", "--")
    done = cluster.lab(*root, "scontrol", "update", "NodeName=node07", "State=DRAIN", "Reason=fan broken")
    assert done.status == 0, done.err
    done = cluster.lab(*root, "sbatch", "-w", "node13", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 900")
    assert done.status == 0, done.err
    wait_until(lambda: cluster.sh("squeue", "-h", "-t", "R", "-o", "%N").out.strip() == "node13")
    start = time.monotonic()
    process = begin(cluster, "validate", "--suite", "network", "-w", "node[01-16]", "--wait-for", "20s", "--json")
    try:
        wait_for_measurements(cluster, process)
        assert cluster.lab("fault", "node05", "--freeze").status == 0
        out, err = process.communicate(timeout=300)
        took = time.monotonic() - start
    finally:
        process.kill()
        healed = [cluster.lab("fault", node, "--heal").status for node in ("node03", "node11", "node05")]
        cluster.lab(*root, "scancel", "--user", "root")
        cluster.lab(*root, "scontrol", "update", "NodeName=node07", "State=RESUME")
    assert process.returncode == 1, out + err
    assert took < 300 and healed == [0, 0, 0], took
    report = json.loads(out)
    status = {row["node"]: row["status"] for row in report["nodes"]}
    bad = {"node03": "FAIL", "node11": "FAIL", "node05": "ERROR", "node07": "NOT RUN", "node13": "NOT RUN"}
    # Whom node05 met before it froze is drawn: with a slow one that pair has failed, and nobody can measure it again.
    met = {partner for row in report["verdicts"] if row["status"] == "FAIL" and "node05" in row["subject"]["nodes"]
           for partner in row["subject"]["nodes"] if partner != "node05"}
    assert met <= {"node03", "node11"}
    bad["node05"] = "FAIL" if met else "ERROR"
    assert {n: s for n, s in status.items() if s not in ("PASS", "WARN")} == bad, report["result"]["text"] + err
    assert set(status) == set(SIXTEEN)
    found = {f["nodes"][0]: f for f in report["findings"] if len(f["nodes"]) == 1}
    assert set(found) == {"node03", "node05", "node11"} and len(report["findings"]) == 3
    assert all("slow to every partner" in found[n]["text"] for n in ("node03", "node11"))
    assert "node05: does not answer any more (Slurm " in found["node05"]["text"]
    why = {row["node"]: row["why"] for row in report["nodes"]}
    assert "drained: fan broken" in why["node07"] and "node13 not free within 20 s" in why["node13"], why
    wait_until(lambda: cluster.sh("squeue", "-h", "--me").out == "")
    nodes = next(c for c in report["coverage"] if c["kind"] == "nodes")
    # node05 may have been lost before it gave any value.
    lost = ["node05"] if "node05" in nodes["failed"] else []
    assert (nodes["expected"], nodes["tested"]) == (16, 13 + len(lost))
    assert sorted(nodes["failed"]) == ["node03", *lost, "node11"]
    assert sorted(n for gone in nodes["not_tested"] for n in gone["what"]) == sorted(
        {"node05", "node07", "node13"} - set(lost))


def test_a_busy_node_is_not_waited_for_with_only_idle(cluster: Lab) -> None:
    # A node that was frozen may be completing its last job yet.
    wait_until(lambda: set(cluster.sh("sinfo", "-h", "-N", "-o", "%T").out.split()) == {"idle"})
    done = cluster.lab("exec", "--user", "root", "--", "srun", "-w", "node13", "--exclusive", "true")
    assert done.status == 0, done.err
    done = cluster.lab("exec", "--user", "root", "--", "sbatch", "-w", "node13", "--exclusive", "-o", "/dev/null",
                       "--wrap", "sleep 900")
    try:
        wait_until(lambda: cluster.sh("squeue", "-h", "-t", "R", "-o", "%N").out.strip() == "node13")
        plan = planned(cluster, "pairs", "--only-idle")["plan"]
    finally:
        cluster.lab("exec", "--user", "root", "--", "scancel", "--user", "root")
    assert plan["skipped"] == [{"node": "node13", "reason": "busy: jobs run on it (--only-idle)"}]
    assert all("node13" not in t["subject"]["nodes"] for t in plan["tests"])


# --- what a plan may be asked for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("pairs", "rounds", "partners"), [
    ("ring", 2, 2), ("screen", 4, 3), ("cross-leaf", 1, 1), ("3", 3, 3), ("all", 15, 15)])
def test_which_nodes_meet(cluster: Lab, pairs: str, rounds: int, partners: int) -> None:
    document = planned(cluster, "pairs", "--pairs", pairs)
    plan, cost = document["plan"], document["cost"]
    met: dict[str, set[str]] = {n: set() for n in SIXTEEN}
    for test in plan["tests"]:
        a, b = test["subject"]["nodes"]
        met[a].add(b)
        met[b].add(a)
        assert pairs != "cross-leaf" or leaf_of(a) != leaf_of(b)
    [sample] = plan["pairs"]
    assert (cost["rounds"], sample["rounds"], cost["jobs"]) == (rounds, rounds, 1) or pairs == "cross-leaf"
    assert cost["rounds"] == sample["rounds"] >= rounds
    assert min(map(len, met.values())) == sample["partners_least"] >= partners
    taken = {frozenset((leaf_of(a), leaf_of(b))) for a in met for b in met[a] if leaf_of(a) != leaf_of(b)}
    assert (len(taken), sample["paths"]) == (sample["paths_met"], 3)
    assert pairs not in ("screen", "cross-leaf", "all") or len(taken) == 3
    assert cost["tests"] == len(plan["tests"])
    assert cost["node_hours"] == pytest.approx(16 * cost["seconds"] / 3600, abs=0.01)
    told = [n for n in plan["notes"] if n.startswith(f"pairs = {pairs}:")]
    if pairs == "all":
        assert told == []                               # nothing is left to chance
        return
    [power] = told
    assert "of 15 others, one bad node is met for certain" in power and "of 3 paths)" in power


def busiest(found: list[Frame], nodes_of: dict[str, tuple[str, ...]]) -> int:
    """The most nodes that were under load at one moment. A frame is of one node, or of all nodes of its test."""
    spans = [(f.start or 0.0, f.end or 0.0, (f.node,) if f.role == "each" else nodes_of[f.id]) for f in found]
    return max(len({n for start, end, nodes in spans if start <= moment < end for n in nodes})
               for moment, _, _ in spans)


def test_load_is_staggered_and_the_next_plan_knows_what_it_took(cluster: Lab) -> None:
    text = validate(cluster, "load", "--pairs", "1", "--at-once", "6", "--plan").out
    assert "no past run on such nodes" in text or "times from past runs for" in text
    done = validate(cluster, "load", "--pairs", "1", "--at-once", "6", "--json")
    assert done.status == 0, done.out + done.err
    run, plan = last(cluster)
    nodes_of = {t.id: t.subject.nodes for t in plan.tests}
    found = frames(run)
    assert len({f.id for f in found}) == len(nodes_of) == 24
    assert busiest(found, nodes_of) == 6                # no more, and as many as may be
    # The plan now: at least the steps' own time, and not the 20 s each that the check declares.
    times = [t for f in found for t in (f.start, f.end) if t is not None]
    expected = planned(cluster, "load", "--pairs", "1", "--at-once", "6")["cost"]
    assert expected["known"] == ["nodeload", "pairload"] and not expected["guessed"]
    took = max(times) - min(times)
    assert took / 3 < expected["seconds"] < 1.5 * took, (took, expected)
    last_line = validate(cluster, "load", "--pairs", "1", "--at-once", "6", "--plan").out.splitlines()[-1]
    assert "times from past runs for 2 of 2 checks" in last_line


def test_groups_grow_and_follow_the_switches(cluster: Lab) -> None:
    done = validate(cluster, "groups", "--json")
    assert done.status == 0, done.out + done.err
    _, plan = last(cluster)
    sizes = [(t.layout.value if t.layout else "", len(t.subject.nodes), t.subject.device) for t in plan.tests]
    assert sizes == [("leaves", 6, "leafa"), ("leaves", 5, "leafb"), ("leaves", 5, "leafc"), ("leaves", 16, ""),
                     *(("groups", n, "") for n in (2, 4, 8, 16))] or sizes == [
                         *(("groups", n, "") for n in (2, 4, 8, 16)), ("leaves", 6, "leafa"), ("leaves", 5, "leafb"),
                         ("leaves", 5, "leafc"), ("leaves", 16, "")]
    [job] = plan.jobs
    beside = next(s for s in job.stages if "each leaf switch" in s.name)
    assert len(beside.tests) == 3                       # all leaves at one time
    paths = next(c for c in done.json()["coverage"] if c["kind"] == "leaf-to-leaf paths")
    assert (paths["expected"], paths["tested"]) == (3, 0)       # groups of all say nothing of single paths


def test_what_destroys_is_refused_without_yes_and_a_directory(cluster: Lab) -> None:
    scratch = cluster.home / "scratch"
    assert cluster.sh("mkdir", "-p", "scratch").status == 0
    for suite, more, why in (("wipes-there", (), "destructive checks are refused without --yes"),
                             ("wipes", ("--yes",), "a destructive check needs a directory of its own")):
        done = validate(cluster, suite, *more, nodes="node[01-02]")
        assert done.status == 3 and why in " ".join(done.out.split()), done.out + done.err
        assert list(scratch.iterdir()) == []
        assert not any(last(cluster)[0].path.glob("jobs/*/script"))
    done = validate(cluster, "wipes-there", "--yes", nodes="node[01-02]")
    assert done.status == 0, done.out + done.err
    assert sorted(p.name for p in scratch.iterdir()) == ["node01", "node02"]


# --- what was covered -----------------------------------------------------------------------------------------------


def test_paths_between_leaves_are_covered_and_said(cluster: Lab) -> None:
    done = validate(cluster, "pairs", "--pairs", "cross-leaf", "--json")
    assert done.status == 0, done.out + done.err
    kinds = {c["kind"]: c for c in done.json()["coverage"]}
    assert (kinds["leaf-to-leaf paths"]["expected"], kinds["leaf-to-leaf paths"]["tested"]) == (3, 3)
    assert (kinds["nodes"]["expected"], kinds["nodes"]["tested"]) == (16, 16)


def test_gpus_and_ports_are_covered_and_the_sums_agree(cluster: Lab) -> None:
    for fault in (("node17", "--port", "mlx5_3", "down"), ("node18", "--gpu", "5", "lost")):
        assert cluster.lab("fault", *fault).status == 0
    done = cluster.hpcadmin("validate", "--suite", "/shared/devices.toml", "-w", "node[17-18]", "--json")
    assert done.status == 1, done.out + done.err
    report = done.json()
    found = {c["kind"]: c for c in report["coverage"]}
    assert {k: (c["expected"], c["tested"], c["failed"]) for k, c in found.items() if c["expected"]} == {
        "nodes": (2, 2, []), "GPUs": (16, 16, ["node18 GPU 5"]), "HCA ports": (16, 16, ["node17 mlx5_3/1"])}
    for one in found.values():
        assert one["expected"] == one["tested"] + sum(len(gone["what"]) for gone in one["not_tested"])
    text = cluster.hpcadmin("report").out
    assert "HCA ports: 16 of 16 tested, 1 failed, 0 not tested" in text and "failed: node18 GPU 5" in text
    assert {(f["nodes"][0], f["device"]) for f in report["findings"]} == {("node17", "mlx5_3/1"), ("node18", "GPU 5")}
