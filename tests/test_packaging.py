"""The wheel, an editable install and a bare checkout all find their data folders."""

import configparser
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def packages_on_disk() -> set[str]:
    return {".".join(p.relative_to(ROOT).parts) for p in (ROOT / "hpcadmin").rglob("*")
            if p.is_dir() and (p / "__init__.py").exists()} | {"hpcadmin"}


def test_setup_cfg_names_every_package() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    named = set(parser["options"]["packages"].split())
    assert named == packages_on_disk() | {"hpcadmin.checks", "hpcadmin.conf_templates", "hpcadmin.playbooks"}


def test_bare_checkout_finds_its_data() -> None:
    code = "from hpcadmin.resources import data_dir; print(data_dir('checks'))"
    done = output([sys.executable, "-S", "-c", code], ROOT)
    assert Path(done.strip()).samefile(ROOT / "checks")


def output(argv: list[str], cwd: Path) -> str:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=True).stdout


def make_env(folder: Path) -> Path:
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin"


def files_of(folder: Path, *suffixes: str) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix in suffixes}


def runs_on_what_is_installed(hpcadmin: Path, folder: Path) -> None:
    """The node's file is made from the package's own source; units and rules from its templates."""
    output([str(hpcadmin), "health", "build", "-o", "hpcadmin-health"], folder)
    assert output([sys.executable, "-I", "hpcadmin-health", "--version"], folder).startswith("hpcadmin-health ")
    (folder / "image" / "etc" / "systemd" / "system").mkdir(parents=True)
    shown = output([str(hpcadmin), "sweep", "install", "--with", "systemd", "--root", str(folder / "image")], folder)
    assert "OnCalendar=*-*-* 02:30:00" in shown and f"ExecStart={hpcadmin} sweep" in shown
    (folder / "rules").mkdir()
    output([str(hpcadmin), "sweep", "prometheus", "-o", "rules"], folder)
    assert {p.name for p in (folder / "rules").iterdir()} >= {
        p.name for p in (ROOT / "conf_templates" / "prometheus").iterdir()}


@pytest.mark.packaging
def test_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    output([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(source)], tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    bin_dir = make_env(tmp_path / "env")
    subprocess.run([bin_dir / "pip", "install", "-q", str(wheel)], check=True)
    listed = output([str(bin_dir / "hpcadmin"), "checks", "list"], tmp_path)
    for check in (ROOT / "checks").glob("*.py"):
        assert check.stem in listed
    (installed,) = (tmp_path / "env").glob("lib/python3*/site-packages/hpcadmin")
    for name, suffixes in [("checks", (".py", ".toml", ".c", ".h")), ("conf_templates", (".j2", ".yml", ".off")),
                           ("playbooks", (".yml", ".j2", ".toml", ".ini"))]:
        assert files_of(source / name, *suffixes) <= files_of(installed / name, *suffixes)
    runs_on_what_is_installed(bin_dir / "hpcadmin", tmp_path)
    assert not (installed.parent / "rich").exists()         # only where somebody wants the live view
    wanted = files_of(source / "hpcadmin", ".sh", ".toml", ".c", ".h", ".sql")
    assert wanted <= files_of(installed, ".sh", ".toml", ".c", ".h", ".sql")


@pytest.mark.packaging
def test_editable_install(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    bin_dir = make_env(tmp_path / "env")
    subprocess.run([bin_dir / "pip", "install", "-q", "-e", str(source)], check=True)
    listed = output([str(bin_dir / "hpcadmin"), "checks", "list"], tmp_path)
    assert "mpi_hello" in listed
