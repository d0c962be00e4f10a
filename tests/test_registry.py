"""Loading checks and suites: ours, a site's, and everything that may be wrong with either."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hpcadmin.check import Context, NodeView, Role, Scope
from hpcadmin.errors import SiteError, UsageError
from hpcadmin.registry import load_checks, load_suite, site_for, suite_names
from hpcadmin.resources import data_dir
from hpcadmin.site import Site, parse_site
from hpcadmin.site_tools import Tool
from hpcadmin.toml_text import parse_toml

GOOD = """
from hpcadmin.check import Check, Scope
CHECK = Check(name="{name}", title="A title", scope=Scope.NODE, steps=lambda c: (), parse=lambda o, c: [],
              params={{"count": 3, "size": 1.5, "word": ""}})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "checks"
    path.mkdir(mode=0o755)
    return path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    path.chmod(0o644)
    return path


def site_of(text: str, name: str = "site.toml") -> Site:
    return parse_site(parse_toml(textwrap.dedent(text).encode(), name), name)


def test_ours() -> None:
    checks = load_checks()
    assert set(checks) == {path.stem for path in (data_dir("checks")).glob("[a-z]*.py")}
    assert {"gpu_binding", "leaf_allocation", "node_ready", "nvidia_smi", "mpi_hello", "mpi_pingpong", "osu_latency",
            "osu_bw", "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat", "ib_read_lat",
            "ib_send_lat", "ib_atomic_lat", "nccl_allreduce"} <= set(checks)
    for check in checks.values():
        assert check.doc and check.title and check.seconds > 0


@pytest.mark.parametrize("simulated", ["", "8xH100"])
def test_every_step_has_absolute_tools_and_a_time_out(simulated: str) -> None:
    nodes = tuple(NodeView(n, address="10.0.0.1", hostname=n, gpus=8, rdma_devices=("mlx5_0",), simulated=simulated,
                           gpu_files=tuple(f"/dev/nvidia{i}" for i in range(8))) for n in ("n1", "n2"))
    for check in load_checks().values():
        few = nodes[:1] if check.scope is Scope.NODE else nodes
        tools = {t: f"/opt/{t}" for t in (*check.needs, *check.builds)}
        steps = check.steps(Context(nodes=few, params=check.params, tools=tools, shared_dir="/shared"))
        assert steps
        for step in steps:
            assert step.argv[0].startswith("/") and step.timeout_s > 0
            assert all(isinstance(word, str) for word in step.argv)
        assert sum(s.role is Role.SERVER for s in steps) == sum(s.role is Role.CLIENT for s in steps)


def test_a_sites_own_check(folder: Path) -> None:
    write(folder, "ours_too.py", GOOD.format(name="ours_too"))
    write(folder, "_helper.py", "raise RuntimeError")
    assert load_checks(str(folder))["ours_too"].title == "A title"


@pytest.mark.parametrize(("text", "line", "what"), [
    ("x = 1\ndef f(:\n", 2, "syntax error"),
    ("x = 1\n", 1, "has no CHECK"),
    ("\nCHECK = 3\n", 2, "CHECK is int, not Check"),
    ("import not_there_at_all\n", 1, "ModuleNotFoundError"),
    ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError"),
    ("import sys\nsys.exit(7)\n", 2, "SystemExit"),
    (GOOD.format(name="other"), 3, "must be in a file other.py"),
    (GOOD.format(name="bad").replace("title=\"A title\"", "title=\"\""), 3, "lacks a title"),
    (GOOD.format(name="bad").replace("params=", "needs=[\"gpu\"], params="), 3, "not a tuple"),
    ("from hpcadmin.check import Check\nCHECK = Check(name='bad')\n", 2, "TypeError"),
])
def test_a_broken_file_is_one_line(folder: Path, text: str, line: int, what: str) -> None:
    path = write(folder, "bad.py", text)
    with pytest.raises(SiteError) as raised:
        load_checks(str(folder))
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert what in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_name_that_is_taken(folder: Path) -> None:
    write(folder, "mpi_hello.py", GOOD.format(name="mpi_hello"))
    with pytest.raises(SiteError, match="already in"):
        load_checks(str(folder))


def test_a_folder_that_others_can_write(folder: Path) -> None:
    write(folder, "fine.py", GOOD.format(name="fine"))
    folder.chmod(0o777)
    with pytest.raises(SiteError, match="can be written by others"):
        load_checks(str(folder))
    folder.chmod(0o755)
    (folder / "fine.py").chmod(0o664)
    with pytest.raises(SiteError, match="can be written by others"):
        load_checks(str(folder))


def test_a_check_may_have_dataclasses(folder: Path) -> None:
    head = ("from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass Row:\n    size: int\n")
    write(folder, "fine.py", head + GOOD.format(name="fine"))
    assert load_checks(str(folder))["fine"].title


def test_a_folder_that_is_none(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot be read"):
        load_checks(str(tmp_path / "nothing"))
    with pytest.raises(SiteError, match="is not a folder"):
        load_checks(str(write(folder, "fine.py", "")))


def test_suites() -> None:
    assert suite_names() == ["conf", "network", "network-full", "nightly", "smoke"]
    assert [e.names for e in load_suite("smoke", Site()).entries] == [("node_ready",), ("nvidia_smi",), ("mpi_hello",)]
    network = load_suite("network", Site())
    assert [e.names for e in network.entries] == [
        ("ib_links",), ("mpi_hello",), ("ib_write_bw",), ("ib_write_lat",), ("osu_latency", "mpi_pingpong"),
        ("osu_bw", "mpi_pingpong"), ("nccl_allreduce",)]
    assert network.pairs == 8 and network.title
    full = load_suite("network-full", Site())
    assert full.pairs == 16 and {e.names for e in network.entries} < {e.names for e in full.entries}


@pytest.mark.parametrize("name", ["nothing", "dir/nothing", "nothing.toml"])
def test_unknown_suite(name: str) -> None:
    with pytest.raises(UsageError, match="known suites: conf, network, network-full, nightly, smoke"):
        load_suite(name, Site())


def test_site_overrides() -> None:
    suite = load_suite("network", site_of("""
        [suites.network]
        pairs = 2
        env = { UCX_TLS = "rc" }
        [suites.network.params.mpi_pingpong]
        max_bytes = 4194304
        seconds = 2
    """))
    assert suite.pairs == 2 and suite.env == {"UCX_TLS": "rc"}
    check = load_checks()["mpi_pingpong"]
    for entry in suite.entries:
        changed = {"max_bytes": 4194304, "seconds": 2} if check.name in entry.names else {}
        wanted = {**check.params, **changed}
        assert entry.params_for(check) == wanted


@pytest.mark.parametrize(("text", "what"), [
    ("[suites.network]\npears = 2", "suites.network.pears is not known"),
    ("[suites.network]\npairs = 0", "pairs must be"),
    ("[suites.network]\npairs = true", "pairs must be"),
    ("[suites.network]\nenv = 3", "env must be a table"),
    ("[suites.network.env]\nA = 3", "must be a string"),
    ("[suites.network.env]\n\"A B\" = \"3\"", "not the name of an environment variable"),
    ("[suites.network.env]\nSLURM_CPU_BIND = \"none\"", "is Slurm's or ours"),
    ("[suites.network]\nmpi = \"pmx\"", "suites.network.mpi is 'pmx': must be pmix"),
    ("[suites.network]\nmpi = \"pmix --x\"", "suites.network.mpi is"),
    ("[suites.network]\nmpi = 2", "suites.network.mpi must be a string"),
    ("[suites.network]\nmodules = \"hpcx\"", "suites.network.modules must be a list"),
    ("[suites.network]\nmodules = [\"a\", \"b; id\"]", "suites.network.modules has 'b; id'"),
    ("[suites.network]\ncontainer = \"a b\"", "suites.network.container is 'a b'"),
    ("[suites.network]\ncontainer = true", "suites.network.container must be a string"),
    ("[suites.network.tools.osu_bw]\npaht = \"/x\"", "suites.network.tools.osu_bw.paht is not known"),
    ("[suites.network.tools.osu_bw]\npath = \"x\"", "suites.network.tools.osu_bw.path must be an absolute path"),
    ("[suites.network.tools.mpirun]\ncontainer = \"x\"", "suites.network.tools.mpirun.container cannot be"),
    ("[suites.network]\ntools = 1", "suites.network.tools must be a table"),
    ("[suites.network.params.nothing]\na = 1", "is no check of this suite"),
    ("[suites.network.params.mpi_pingpong]\nmax_byte = 1", "is no parameter of mpi_pingpong; it has: max_bytes"),
    ("[suites.network.params.mpi_pingpong]\nmax_bytes = \"1\"", "of mpi_pingpong must be a whole number"),
    ("[suites.network.params.mpi_pingpong]\nseconds = -1.0", "of mpi_pingpong must not be below zero"),
    ("[suites.network.params.mpi_pingpong]\nrdma = \"maybe\"", "of mpi_pingpong must be one of auto, yes, no"),
])
def test_site_overrides_that_are_wrong(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f"# a site\n{text}\n")
    with pytest.raises(SiteError) as raised:
        load_suite("network", parse_site(parse_toml(path.read_bytes(), str(path)), str(path)))
    assert what in str(raised.value)
    assert str(raised.value).startswith(f"{path}:")


@pytest.mark.parametrize(("text", "line", "what"), [
    ("[[entry]]\ncheck = \"mpi_hullo\"\n", 2, "unknown check 'mpi_hullo'"),
    ("[[entry]]\none_of = [\"mpi_hello\",\n  \"osu_bv\"]\n", 3, "unknown check 'osu_bv'"),
    ("title = 3\n", 1, "must be a string"),
    ("title = \"t\"\n", None, "at least one"),
    ("[[entry]]\nchek = \"a\"\n", 2, "chek is not known here"),
    ("[[entry]]\ncheck = \"a\"\none_of = [\"b\"]\n", 1, "either check"),
    ("[[entry]]\ncheck = [\"a\"]\n", 2, "must name checks"),
    ("[[entry]]\ncheck = \"mpi_hello\"\n[entry.params]\nranks = 2\n", 4, "is no parameter of mpi_hello"),
    ("[[entry]]\ncheck = \"ib_write_bw\"\nparams = { sise = 3 }\n", 3, "params.sise is no parameter of ib_write_bw"),
    ("[[entry]]\ncheck = \"osu_bw\"\nover = \"rails\"\n[[entry]]\ncheck = \"osu_bw\"\nover = \"rail\"\n", 6,
     "'rail' is no layout of osu_bw"),
    ("[[entry]]\none_of = [\"osu_bw\"]\nparams.osu_bw = { buffers = \"devise\" }\n", 3, "one of host, device"),
    ("[[entry]\n", 1, "not valid TOML"),
    ("mpi = \"mpich\"\n[[entry]]\ncheck = \"mpi_hello\"\n", 1, "mpi is 'mpich': must be pmix"),
    ("[[entry]]\ncheck = \"mpi_hello\"\n[env]\nA = \"a\\u000ab\"\n", 4, "env.A must be a string of one line"),
])
def test_broken_suite_files(tmp_path: Path, text: str, line: int | None, what: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SiteError) as raised:
        load_suite(str(path), Site())
    assert what in str(raised.value)
    assert str(raised.value).startswith(f"{path}:{line}:" if line else str(path))


SITE_AROUND = """
    [slurm]
    mpi = "pmi2"
    [env]
    A = "site"
    B = "site"
    C = "site"
    [modules]
    load = ["base/1"]
    [tools.osu_bw]
    path = "/site/osu_bw"
    [tools."osu_*"]
    modules = ["osu/7"]
    [tools.iperf3]
    path = "/site/iperf3"
    [tools.all_reduce_perf]
    container = "/site.sif"
    path = "/in/all_reduce_perf"
"""
SUITE_AROUND = """
mpi = "mpirun"
modules = ["suite/1"]
container = "suite.sif"
env = { B = "suite", C = "suite" }
[tools."osu_b*"]
path = "/suite/osu"
[[entry]]
check = "mpi_hello"
"""


def test_what_is_around_a_suite_goes_before_what_the_site_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[entry]]\ncheck = \"mpi_hello\"\n")
    site = site_of(SITE_AROUND)
    plain = site_for(load_suite(str(path), site), site)
    assert plain == site and load_suite(str(path), site).env == {"A": "site", "B": "site", "C": "site"}
    assert site.tool("osu_lat") == Tool(modules=("base/1", "osu/7"))
    path.write_text(SUITE_AROUND)
    suite = load_suite(str(path), site)
    around = site_for(suite, site)
    assert suite.env == {"A": "site", "B": "suite", "C": "suite"}
    assert around.slurm.mpi == "mpirun" and around.modules.load == ("suite/1",)
    assert around.tool("osu_bw") == Tool(path="/suite/osu", modules=("suite/1",))       # a pattern before a name
    assert around.tool("osu_lat") == Tool(container="suite.sif", modules=("suite/1",))
    assert around.tool("all_reduce_perf") == Tool(container="suite.sif", modules=("suite/1",))
    assert around.tool("iperf3") == Tool(path="/site/iperf3", modules=("suite/1",))
    assert around.tool("mlxlink") == Tool(modules=("suite/1",))
    more = site_of(SITE_AROUND + """
    [suites.mine]
    mpi = "pmix"
    modules = []
    [suites.mine.env]
    C = "here"
    [suites.mine.tools.osu_bw]
    path = "/here/osu_bw"
    """)
    suite = load_suite(str(path), more)
    around = site_for(suite, more)
    assert suite.env == {"A": "site", "B": "suite", "C": "here"}
    assert (around.slurm.mpi, around.modules.load, around.tool("osu_bw").path) == ("pmix", (), "/here/osu_bw")
    assert around.tool("osu_bibw") == Tool(path="/suite/osu")


def test_a_suite_file_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("pairs = 1\n[[entry]]\none_of = [\"osu_bw\", \"mpi_pingpong\"]\n"
                    "params = { mpi_pingpong = { seconds = 0.1 } }\n")
    suite = load_suite(str(path), Site())
    assert (suite.name, suite.pairs, suite.entries[0].params) == ("mine", 1, {"mpi_pingpong": {"seconds": 0.1}})
