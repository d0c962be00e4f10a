"""Tools: where they are looked for, what the look's script tells of them here, and what a plan makes of it."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepped import make_plan

from hpcadmin import plan_work
from hpcadmin.check import Check, Context, NodeView, Role, Scope, Status, Step, Subject, Way
from hpcadmin.errors import HpcadminError
from hpcadmin.frames import Frame
from hpcadmin.plan_facts import HARDWARE, Facts, gather
from hpcadmin.registry import Suite, SuiteEntry, load_checks
from hpcadmin.run_results import read_result
from hpcadmin.run_tools import find_script, find_tests, keep, read_known, stages_of
from hpcadmin.rundata import Plan, PlannedTest, ToolFound
from hpcadmin.site import Site, SlurmSite
from hpcadmin.site_tools import ModulesSite, Tool
from hpcadmin.tools import (
    Ask,
    asks_of,
    by_node,
    fold_found,
    found_from,
    image_for,
    mixed,
    notes_of,
    numbers_of,
    read_answers,
    runtime_for,
    told_before,
    version_for,
    version_of,
    with_tools,
)

SHELLS = [pytest.param(shell, marks=[pytest.mark.deep] if shell[0] == "busybox" else [])     # its timeout is slow
          for shell in (["dash"], ["bash"], ["busybox", "sh"]) if shutil.which(shell[0])]
OSU = "# OSU MPI Bandwidth Test v7.4"


def program(path: Path, text: str, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def look(asks: list[Ask], *known: str, shell: list[str] = ["sh"], **env: str) -> dict[str, ToolFound]:  # noqa: B006
    done = subprocess.run([*shell, "-c", find_script(asks), "find", *known], capture_output=True, text=True,
                          env={**os.environ, **env}, timeout=60, check=False)
    answers = read_answers(done.stdout)
    return {ask.tool: found_from(ask, "n1", answers.get(ask.tool), ToolFound(ask.tool, ("n1",), version="as before"))
            for ask in asks}


@pytest.mark.parametrize("shell", SHELLS, ids=lambda s: s[0])
def test_the_look_on_this_machine(tmp_path: Path, shell: list[str]) -> None:
    here = program(tmp_path / "bin/here", """#!/bin/sh
echo "x: a WARNING of version 1.1" >&2
[ -z "$SLURM_JOB_ID$OMPI_COMM_WORLD_RANK" ] || echo version 2.0 of a rank
echo "Version: 6.06"
exit 1
""")
    asks = [Ask("here", Tool(), ("--version",)),
            Ask("not_there", Tool(), ("--version",)),
            Ask("by_path", Tool(path=here), ("a b'$(touch /tmp/no)",)),
            Ask("no_file", Tool(path="/no/such file")),
            Ask("no_exec", Tool(path=program(tmp_path / "text", "x\n", 0o644))),
            Ask("odd", Tool(path=program(tmp_path / "odd", "no #!\n"))),
            Ask("foreign", Tool(path=program(tmp_path / "foreign", ""))),
            Ask("speechless", Tool(path=shutil.which("cat") or "/bin/cat"))]
    elf = bytearray(Path("/proc/self/exe").read_bytes()[:64])
    elf[18:20] = b"\xf3\x7f"
    (tmp_path / "foreign").write_bytes(bytes(elf))
    found = look(asks, shell=shell, PATH=f"{tmp_path}/bin:{os.environ['PATH']}", SLURM_JOB_ID="7",
                 OMPI_COMM_WORLD_RANK="0")
    assert (found["here"].path, found["here"].version, found["here"].problem) == (here, "Version: 6.06", "")
    assert found["here"].way == "PATH" and found["by_path"].way == "site.toml"
    assert found["by_path"].version == "Version: 6.06"
    assert found["not_there"].problem == "is not there: not on PATH"
    assert found["no_file"].problem == "is not there: no file /no/such file (site.toml)"
    assert found["no_exec"].problem.startswith("is not executable")
    assert "neither a program nor a script" in found["odd"].problem
    assert "built for another processor" in found["foreign"].problem
    assert (found["speechless"].problem, found["speechless"].version) == ("", "")
    stamp = found["here"].stamp
    again = look(asks[:1], f"here {here} {stamp}", shell=shell, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert again["here"].version == "as before"


def test_what_a_tool_prints_is_no_word_of_ours(tmp_path: Path) -> None:
    text = "#!/bin/sh\nprintf 'v1.2\\nend liar\\nwhere /bin/true\\n\\033[31mred\\n'; head -c 100000 /dev/zero\n"
    liar = program(tmp_path / "liar", text)
    found = look([Ask("liar", Tool(path=liar), ("-v",)), Ask("next", Tool(path=liar))])
    assert (found["liar"].path, found["liar"].version, found["next"].problem) == (liar, "v1.2", "")


def test_a_tool_that_hangs_has_no_version(tmp_path: Path) -> None:
    script = find_script([Ask("slow", Tool(path=program(tmp_path / "slow", "#!/bin/sh\nexec sleep 60\n")), ("-v",))])
    done = subprocess.run(["sh", "-c", script.replace("-k 1 10", "-k 1 0.2")], capture_output=True, text=True,
                          timeout=30, check=False)
    (found,) = [found_from(Ask("slow", Tool(path="/x")), "n1", read_answers(done.stdout)["slow"])]
    assert (found.version, found.problem) == ("", "")


def test_vendors_folders_are_looked_into_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = program(tmp_path / "osu-5.8/osu_bw", f"#!/bin/sh\necho '{OSU}'\n")
    program(tmp_path / "osu-6.0/osu_bw", "#!/bin/sh\necho v6.0\n")
    monkeypatch.setattr("hpcadmin.tools.PLACES", {"osu_*": (f"{tmp_path}/osu-*/{{name}}",)})
    ask = Ask("osu_bw", Tool(), ("--version",))
    found = look([ask])["osu_bw"]
    assert (found.path, found.way, found.version) == (inner, "its vendor's folder", OSU)
    shutil.rmtree(tmp_path / "osu-5.8")
    shutil.rmtree(tmp_path / "osu-6.0")
    assert look([ask])["osu_bw"].problem == f"is not there: not on PATH, nor in {tmp_path}/osu-*"
    assert Ask("osu_bw", Tool(path="/x/osu_bw")).places == ()
    monkeypatch.undo()
    assert found_from(ask, "n1", read_answers("tool osu_bw\nend osu_bw\n")["osu_bw"]).problem.endswith(
        "osu-micro-benchmarks/mpi/*, /usr/local/libexec/osu-micro-benchmarks/mpi/*/* and 5 more folders of vendors")


@pytest.mark.parametrize(("text", "status", "version"), [
    ("Version: 6.06\n", 1, "Version: 6.06"),
    (f"\n{OSU}\n", 0, OSU),
    ("[n1:123] mca_base_component_repository_open: unable to open 4.1\n# OSU MPI-CUDA Latency Test v5.6.2\n", 0,
     "# OSU MPI-CUDA Latency Test v5.6.2"),
    ("iperf 3.12 (cJSON 1.7.15)\nLinux vm 6.1.0 #1\n", 0, "iperf 3.12 (cJSON 1.7.15)"),
    ("mlxlink, mft 4.24.0-72, built on Mar 1\n", 0, "mlxlink, mft 4.24.0-72, built on Mar 1"),
    ("osu_bw: unrecognized option '--version'\nUsage: osu_bw [options] 1.0\n", 1, ""),
    ("10.0.0.1 refused\n", 1, ""),
    ("WARNING: There was an error initializing an OpenFabrics device of version 4.1\n", 0, ""),
    ("", 0, ""), ("no number\n", 0, ""), ("v1.2 " + "x" * 5000, 0, "v1.2 " + "x" * 195 + "… (5005 characters)"),
])
def test_versions_as_tools_tell_them(text: str, status: int, version: str) -> None:
    assert version_of(text, status) == version


def test_what_does_not_start_is_told_in_the_loaders_words() -> None:
    ask = Ask("osu_bw", Tool(modules=("osu/7",)), ("--version",))

    def problem(*lines: str) -> str:
        text = "\n".join(["tool osu_bw", "where /a/osu_bw", "stamp 1 2", *lines, "end osu_bw"])
        return found_from(ask, "n1", read_answers(text).get("osu_bw")).problem
    assert problem("lacks libmpi.so.40", "|x", "status 127") == (
        "does not start: error while loading shared libraries: libmpi.so.40: not found for /a/osu_bw")
    assert "libcuda.so.1: cannot open" in problem(
        "|/a/osu_bw: error while loading shared libraries: libcuda.so.1: cannot open shared object file", "status 127")
    assert problem("|Illegal instruction (core dumped)", "status 132").startswith("does not start: Illegal instruction")
    assert problem("|sh: 1: /a/osu_bw: Exec format error", "status 126").endswith("Exec format error")
    assert problem("|v7.4", "status 0") == problem("status 139") == ""
    assert found_from(ask, "n1", None, why="module load osu/7: no such module").problem == (
        "could not be looked for: module load osu/7: no such module")
    cut = read_answers("tool osu_bw\nwhere /a/osu_bw\n")["osu_bw"]
    assert found_from(ask, "n1", cut).problem == "could not be looked for: the look was cut off"
    assert "cannot be used" in found_from(ask, "n1", read_answers("tool t\nwhere x\x1b\nend t\n")["t"]).problem


def test_what_is_asked_of_the_suites_that_we_have() -> None:
    checks = load_checks("")
    asks = {a.tool: a for a in asks_of((checks[n] for n in ("ib_write_bw", "osu_bw", "nccl_allreduce", "nvidia_smi",
                                                            "mpi_hello")), Site(), HARDWARE)}
    assert {tool: ask.args for tool, ask in asks.items()} == {
        "ib_write_bw": ("--version",), "osu_bw": ("--version",), "all_reduce_perf": ()}
    assert any("hpcx" in place for place in asks["osu_bw"].places)
    site = Site(tools={"nvidia-*": Tool(path="/opt/nvidia-smi")})
    assert [a.tool for a in asks_of([checks["nvidia_smi"]], site, HARDWARE)] == ["nvidia-smi"]


@pytest.mark.parametrize(("image", "by", "name"), [
    ("nvcr.io/nvidia/pytorch:24.05-py3", "pyxis", "nvcr.io#nvidia/pytorch:24.05-py3"),
    ("docker://nvcr.io/nvidia/pytorch:24.05-py3", "pyxis", "nvcr.io#nvidia/pytorch:24.05-py3"),
    ("user@nvcr.io#nvidia/x:1", "pyxis", "user@nvcr.io#nvidia/x:1"),
    ("localhost:5000/x:1", "pyxis", "localhost:5000#x:1"), ("ubuntu:22.04", "pyxis", "ubuntu:22.04"),
    ("library/ubuntu", "pyxis", "library/ubuntu"), ("/images/a.sqsh", "pyxis", "/images/a.sqsh"),
    ("nvcr.io/nvidia/pytorch:24.05-py3", "apptainer", "docker://nvcr.io/nvidia/pytorch:24.05-py3"),
    ("nvcr.io#nvidia/x:1", "apptainer", "docker://nvcr.io/nvidia/x:1"),
    ("oras://reg/x:1", "apptainer", "oras://reg/x:1"), ("/images/a.sif", "apptainer", "/images/a.sif"),
])
def test_images_are_named_as_their_runtime_does(image: str, by: str, name: str) -> None:
    assert image_for(image, by) == name


def test_what_starts_a_container() -> None:
    assert [runtime_for(image, pyxis=True) for image in ("/a/b.sqsh", "nvcr.io/x", "/a/b.sif", "oras://x")] == [
        "pyxis", "pyxis", "apptainer", "apptainer"]
    assert runtime_for("/a/b.sqsh", pyxis=False) == runtime_for("nvcr.io/x", pyxis=False) == "apptainer"


def found(tool: str, nodes: str, version: str, **more: str) -> ToolFound:
    return ToolFound(tool, tuple(nodes.split()), more.pop("path", f"/usr/bin/{tool}"), more.pop("way", "PATH"), version,
                     **more)


def test_options_suit_the_oldest_and_an_unknown_version_suits_none() -> None:
    table = by_node([found("t", "n1 n2", "v7.4"), found("t", "n3", "v5.10"), found("t", "n4", "")])
    assert version_for("t", ("n1", "n2"), table) == "v7.4"
    assert version_for("t", ("n1", "n3"), table) == "v5.10"
    assert version_for("t", ("n1", "n4"), table) == version_for("t", ("n1", "n9"), table) == ""
    assert numbers_of("iperf 3.12 (cJSON 1.7.15)") == (3, 12)


def test_a_step_that_could_not_have_its_modules_says_so() -> None:
    test = PlannedTest("t0001", "c", Subject(("n1",)), (Step(("/t",)),), 1)
    text = b"hpcadmin: module load osu/7: no such \x1b[1m module\nmore\n"
    frame = Frame("t0001", 0, "each", "n1", "n1", 78, 1.0, 2.0, frozenset(), text)
    result = read_result(test, [frame], "", check(()), Context())
    assert result.error == "each on n1 was not started: module load osu/7: no such \\x1b[1m module"


def test_a_mixed_cluster_is_a_warning_about_those_that_differ() -> None:
    tools = [found("t", "n1 n2 n3", "v7.4"), found("t", "n4", "v5.9"), found("t", "n5", "", problem="is not there: x"),
             found("same", "n1", "v1.0", way="site.toml"), found("same", "n2", "v1.0")]
    (warning,) = mixed(tools)
    assert (warning.check, warning.status, warning.subject.nodes) == ("tools", Status.WARN, ("n4",))
    assert warning.reason == "t is 5.9 on n4, and 7.4 on the other 3 nodes"
    assert notes_of(tools)[:2] == ("t 7.4 (PATH)", "t 5.9 (PATH)")
    plan = with_tools(Plan("s", ("n1", "n2"), ()), [found("t", "n1", "v6.06", stamp="1 2"), found("t", "n2", "v6.06")],
                      [check(())])
    assert plan.tools == (found("t", "n1 n2", "v6.06"),)
    assert (plan.notes, plan.verdicts) == (("tools: t 6.06 (PATH)",), ())


def check(steps: "tuple[Step, ...]", **more: object) -> Check:
    return Check("c", "c", Scope.PAIR, lambda c: steps, lambda o, c: [], **{"needs": ("t",), **more})  # type: ignore[arg-type]


def steps_of(site: Site, tools: list[ToolFound], made: Check, *, pyxis: bool = False) -> tuple[Step, ...]:
    nodes = ("n1", "n2")
    facts = replace(gather(nodes, None, None, site, programs={"p": "/bin/p"}, unbuilt={}, shared_dir="", tools=tools,
                           pyxis=pyxis), views={n: NodeView(n) for n in nodes})
    plan = make_plan(Suite("s", "s", (SuiteEntry(("c",)),)), {"c": made}, facts, nodes)
    return plan.tests[0].steps


def test_mpirun_brings_its_modules_and_no_containers_of_pyxis() -> None:
    check = Check("c", "c", Scope.GROUP, lambda c: (Step((c.tools["t"],), Role.RANKS), Step(("own",))), lambda o, c: [],
                  needs=("t",))
    site = Site(tools={"t": Tool(modules=("t/1", "mpi/5")), "mpirun": Tool(modules=("mpi/5",))},
                modules=ModulesSite(load=("base",)), slurm=SlurmSite(mpi="mpirun"))
    facts = Facts({"n1": NodeView("n1")}, tools={"n1": {"t": "/t"}}, site=site, pyxis=True)
    test = PlannedTest("t1", "c", Subject(("n1",)))
    assert [s.way.modules for s in plan_work.steps_of(check, facts, test, {})] == [
        ("base", "mpi/5", "t/1"), ("base", "t/1", "mpi/5")]
    boxed = replace(facts, site=replace(site, tools={"t": Tool(container="nvcr.io#x")}))
    with pytest.raises(HpcadminError, match="mpirun cannot start the containers of pyxis"):
        plan_work.steps_of(check, boxed, test, {})
    plain = Check("p", "p", Scope.NODE, lambda c: (Step(("own",)),), lambda o, c: [])
    assert plan_work.steps_of(plain, facts, test, {})[0].way.modules == ("base",)


def test_steps_get_the_modules_of_their_tools_and_of_the_compiler() -> None:
    site = Site(tools={"t": Tool(modules=("a/1", "b")), "mpicc": Tool(modules=("mpi/5", "a/1"))})
    step = Step(("/usr/bin/t",), Role.RANKS)
    assert steps_of(site, [found("t", "n1 n2", "")], check((step,)))[0].way == Way(("a/1", "b"))
    assert steps_of(site, [found("t", "n1 n2", "")], check((step,), builds=("p",)))[0].way == Way(("a/1", "b", "mpi/5"))


def test_only_the_steps_of_the_tool_are_in_its_container() -> None:
    site = Site(tools={"t": Tool(container="nvcr.io/x:1", path="/opt/t")})
    steps = (Step(("env", "A=1", "/opt/t"), Role.RANKS), Step(("/bin/true",)))
    for pyxis, name, by in ((True, "nvcr.io#x:1", "pyxis"), (False, "docker://nvcr.io/x:1", "apptainer")):
        ways = [s.way for s in steps_of(site, [found("t", "n1 n2", "", path="/opt/t")], check(steps), pyxis=pyxis)]
        assert ways == [Way(image=name, by=by), Way()]


def test_node_checks_in_containers_of_pyxis_have_turns_of_their_own() -> None:
    site = Site(tools={"t": Tool(container="x")})
    checks = {name: replace(check((Step((name,)),), needs=(name,)), name=name, scope=Scope.NODE) for name in "tu"}
    checks["v"] = replace(checks["t"], name="v")
    nodes = ("n1", "n2")
    tools = {n: {"t": "t", "u": "u"} for n in nodes}
    facts = Facts({n: NodeView(n) for n in nodes}, tools=tools, site=site, pyxis=True)
    plan = make_plan(Suite("s", "s", tuple(SuiteEntry((n,)) for n in checks)), checks, facts, nodes)
    by_id = {t.id: t for t in plan.tests}
    stages = [[(by_id[i].check, by_id[i].subject.nodes[0]) for i in s.tests] for s in plan.jobs[0].stages]
    assert stages == [[("u", "n1"), ("u", "n2")], [("t", "n1"), ("t", "n2")], [("v", "n1"), ("v", "n2")]]


def test_a_tool_in_two_places_is_found_in_both() -> None:
    def steps(context: Context) -> tuple[Step, ...]:
        return (Step((context.tools["osu_bw"],), Role.RANKS),)
    made = replace(check((), needs=("osu_bw",)), steps=steps)
    place = "/opt/hpcx-v2.18/ompi/tests/osu-micro-benchmarks-7.4"

    def way(*paths: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tools = [found("osu_bw", f"n{n}", "v7.4", path=path) for n, path in enumerate(paths, 1)]
        (step,) = steps_of(Site(), tools, made)
        return step.argv, step.way.folders
    assert way("/usr/bin/osu_bw", f"{place}/osu_bw") == (("osu_bw",), (place,))
    assert way("/usr/sbin/osu_bw", "/sbin/osu_bw") == (("osu_bw",), ("/usr/sbin", "/sbin"))
    assert way("/usr/bin/osu_bw", "/usr/bin/osu_bw") == (("/usr/bin/osu_bw",), ())
    # What a node says of its PATH is no reason to look into that folder on another one.
    assert way("/usr/bin/osu_bw", "/tmp/osu_bw") == (("osu_bw",), ())
    assert way(f"{place}/osu_bw", f"{place}/../../../../../tmp/osu_bw") == (("osu_bw",), (place,))


WORDS = ["tool osu_bw", "tool x", "where /a/osu_bw", "place \x1b/b", "stamp 1 2", "|v7.4", "|", "", "status 0",
         "status x", "status 1" + "0" * 5000, "lacks libm.so", "end osu_bw", "end x", "same", "noexec", "odd", "where",
         "tool", "end "]


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.text(max_size=20))
def test_whatever_a_node_says_is_read(lines: list[str], more: str) -> None:
    answers = read_answers("\n".join([*lines, more]))
    told = found_from(Ask("osu_bw", Tool(), ("-v",)), "n1", answers.get("osu_bw"))
    assert bool(told.problem) or told.path.startswith("/")
    assert f"{told.version}{told.problem}{told.path}{told.stamp}".isprintable()
    if not told.problem:
        assert "end osu_bw" in lines and "where /a/osu_bw" in lines


def test_why_a_tool_cannot_be_used_is_the_reason_of_what_is_not_run() -> None:
    tools = [found("t", "n1", "v1.0"), found("t", "n2 n3", "", path="", problem="does not start: x")]
    nodes = ("n1", "n2", "n3", "n4")
    facts = Facts({n: NodeView(n) for n in nodes}, tools={"n1": {"t": "/t"}, "n2": {"t": ""}, "n3": {"t": ""}},
                  found=by_node(tools))
    made = replace(check((Step(("/t",)),)), scope=Scope.NODE)
    plan = make_plan(Suite("s", "s", (SuiteEntry(("c",)),)), {"c": made}, facts, nodes)
    assert [(v.subject.nodes, v.reason) for v in plan.verdicts] == [
        (("n2",), "t does not start: x"), (("n3",), "t does not start: x"), (("n4",), "t was not looked for")]


def test_what_is_kept_and_what_is_asked_again(tmp_path: Path) -> None:
    ask, other = Ask("t", Tool(), ("--version",)), Ask("u", Tool(container="x.sqsh"), ("-v",))
    old = [found("t", "n1 n2", "v1.0", stamp="1 2", asked=ask.key), found("u", "n1", "v3.0", stamp="3 4", asked="else")]
    keep(tmp_path / "tools.json", (), old)
    new = found("t", "n2", "v2.0", stamp="5 6", asked=ask.key)
    keep(tmp_path / "tools.json", read_known(tmp_path / "tools.json"), [new])
    known = read_known(tmp_path / "tools.json")
    assert {(o.tool, o.nodes, o.version) for o in known} == {("t", ("n1",), "v1.0"), ("t", ("n2",), "v2.0"),
                                                             ("u", ("n1",), "v3.0")}
    tests = find_tests(1, ("n1", "n2", "n3"), (ask, other), known, pyxis=True)
    assert [(t.subject.nodes, t.steps[0].argv[4:]) for t in tests] == [
        (("n1",), ("t /usr/bin/t 1 2",)), (("n2",), ("t /usr/bin/t 5 6",)), (("n3",), ()), (("n1", "n2", "n3"), ())]
    assert [s.tests for s in stages_of(tests)] == [("v0001", "v0002", "v0003"), ("v0004",)]
    not_yet = "has not been looked for yet (PATH)"
    assert [(o.tool, o.nodes, o.problem) for o in told_before((ask, other), ("n1", "n3"), known)] == [
        ("t", ("n1",), ""), ("t", ("n3",), not_yet), ("u", ("n1", "n3"), not_yet.replace("PATH", "container x.sqsh"))]
    (tmp_path / "tools.json").write_text("{}")
    assert read_known(tmp_path / "tools.json") == read_known(tmp_path / "none") == ()
    assert fold_found([replace(old[0], nodes=("a",)), replace(old[0], nodes=("b",))])[0].nodes == ("a", "b")
