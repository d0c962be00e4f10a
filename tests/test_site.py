"""site.toml: the documented example is complete, and every mistake names its file and line."""

from dataclasses import fields
from pathlib import Path

import pytest

from hpcadmin.errors import SiteError
from hpcadmin.site import (
    AccountingSite,
    Cluster,
    HookSite,
    NodeGroup,
    PrivateTmp,
    Site,
    SlurmSite,
    Ssh,
    load_site,
    locate,
    parse_site,
    read_toml,
)
from hpcadmin.site_availability import AvailabilitySite
from hpcadmin.site_tools import ModulesSite, Tool
from hpcadmin.site_topology import TopologySite

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "site.toml"


def test_the_example_is_complete_and_read() -> None:
    site = load_site(str(EXAMPLE))
    tables = read_toml(EXAMPLE)
    for key, cls in [("cluster", Cluster), ("ssh", Ssh), ("slurm", SlurmSite), ("accounting", AccountingSite),
                     ("hooks", HookSite), ("private_tmp", PrivateTmp), ("topology", TopologySite),
                     ("modules", ModulesSite), ("availability", AvailabilitySite)]:
        assert set(tables[key]) == {f.name for f in fields(cls)}, key
    assert set(tables["nodes"]["gpu"]) == {f.name for f in fields(NodeGroup)} - {"name"}
    assert site.nodes[0].gpus == 8
    assert site.slurm.options["SlurmctldTimeout"] == 120
    assert site.run_dir == "/shared/hpcadmin"
    assert site.limits[0]["min"] == 9000.0


def test_a_tool_has_its_own_table_else_that_of_the_first_pattern() -> None:
    site = load_site(str(EXAMPLE))
    assert site.tool("osu_bw").path.endswith("/osu_bw")
    assert site.tool("osu_latency") == site.tool("osu_alltoall") == Tool(modules=("openmpi/5.0", "osu/7.4"))
    assert site.tool("ib_write_bw") == Tool()
    assert site.tool("all_reduce_perf").container.startswith("nvcr.io/")


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "site.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(("text", "line", "word"), [
    ("[ssh]\nuser = \n", 2, "TOML"),
    ("[cluster]\nname = 'a'\n[ssh]\nusr = 'x'\n", 4, "usr"),
    ("[slurm]\n\npartition = 7\n", 3, "partition"),
    ("[slurm]\nmpi = 'pmx'\n", 2, "slurm.mpi is 'pmx': must be pmix"),
    ("[slurm]\nqos = 'q'\nnice = -2147483646\n", 3, "slurm.nice must be -2147483645 to 2147483645"),
    ("[slurm]\npriority = 4294967294\n", 2, "slurm.priority must be 0 to 4294967293"),
    ("[env]\nA = 'a'\nSBATCH_X = 'b'\n", 3, "env.SBATCH_X is Slurm's or ours"),
    ("[env]\nA = 'a'\nB = 7\n", 3, "env.B must be a string of one line"),
    ("[modules]\nload = ['a', '$(id)']\n", 2, "modules.load has '$(id)'"),
    ("[tools.mpirun]\ncontainer = 'x'\n", 2, "tools.mpirun.container cannot be"),
    ("[clutser]\n", 1, "clutser"),
    (b"[cluster]\nname = '\xff'\n", 2, "UTF-8"),
    ("[nodes]\ngpu = 3\n", 2, "gpu"),
    ("[nodes.gpu]\ngpus = 8\n", 1, "hosts"),
    ("[tools.osu_bw]\npath = 'bin/osu_bw'\n", 2, "absolute path"),
    ("[tools.osu_bw]\nmodules = ['ok/1',\n 'osu; rm -rf /']\n", 2, "not the name of a module"),
    ("[tools.osu_bw]\nmodules = ['-l']\n", 2, "not the name of a module"),
    ("[tools.osu_bw]\ncontainer = '--privileged'\n", 2, "not an image"),
    ("[tools.osu_bw]\ncontainer = 'a b'\n", 2, "not an image"),
    ("[tools.'osu bw']\n", 1, "name of a tool"),
    ("[modules]\npaths = ['/a:/b']\n", 2, "absolute path"),
])
def test_mistakes_name_file_and_line(tmp_path: Path, text: str | bytes, line: int, word: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SiteError) as info:
        load_site(str(path))
    assert f"{path}:{line}" in str(info.value)
    assert word in str(info.value)
    assert "\n" not in str(info.value)


def test_a_missing_file_that_was_named_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"absent\.toml"):
        load_site(str(tmp_path / "absent.toml"))


def test_no_file_at_all_is_an_empty_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    site = load_site(None)
    assert site == Site() or site.source == "/etc/hpcadmin/site.toml"


def test_limit_must_be_an_array_of_tables() -> None:
    with pytest.raises(SiteError, match="limit"):
        parse_site({"limit": {"check": "x"}}, "site.toml")


@pytest.mark.parametrize(("key", "line"), [
    ("partitions.b.MaxTime", 5), ("partitions.a.MaxTime", 2), ("nodes.x y.options.Weight", 8),
    ("slurm.options.Prolog", 10), ("slurm.options.Epilog", 9), ("partitions.b.Nodes", 4), ("partitions", 1),
    ("hooks.health", 0), ("slurm.version", 9),
])
def test_a_key_is_located_in_its_own_table(tmp_path: Path, key: str, line: int) -> None:
    path = write(tmp_path, "[partitions.a]\nMaxTime = 1\n# MaxTime = 9\n[partitions.b]\nMaxTime = 2\n\n"
                           "[nodes.\"x y\".options]\nWeight = 3\n[slurm.options]\n'Prolog' = 'x'\n")
    assert locate(str(path), key) == (f"{path}:{line}" if line else str(path))
