"""hpcadmin-health as one file: Python 3.6, nothing but the standard library, quick from the second run on."""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpcadmin.cli.health import command
from hpcadmin.errors import UsageError
from hpcadmin.health.build import NODE, build, parts, write
from hpcadmin.health.node import load, quickjson
from hpcadmin.health.node import start as starting
from tests import smbios_dump
from tests.health_machine import Machine, smi_xml

STANDARD = frozenset(sys.stdlib_module_names)
# What takes long to import, or is not in 3.6.
NEVER = {
    "argparse",
    "dataclasses",
    "pathlib",
    "subprocess",
    "tempfile",
    "tomllib",
    "typing",
    "logging",
    "importlib",
    "shutil",
    "collections",
    "contextlib",
    "socketserver",
    "asyncio",
    "urllib",
    "http",
    "email",
}


def real_old_python() -> str | None:
    """A Python 3.6, where one is at hand: RHEL 8's, or one that was built."""
    places = [Path("/usr/libexec/platform-python"), *Path.home().glob(".pyenv/versions/3.6*/bin/python3.6")]
    found = shutil.which("python3.6")
    for place in [*places, *([Path(found)] if found else [])]:
        if place.exists():
            done = subprocess.run(
                [str(place), "-c", "import sys; print(sys.version_info[:2] == (3, 6))"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.stdout.strip() == "True":
                return str(place)
    return None


OLD = real_old_python()


def imports(tree: ast.AST, top: bool = False) -> Iterator[str]:
    """What is imported at run time: not what stands below `if MYPY`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "MYPY":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        else:
            yield from imports(node)


@pytest.mark.parametrize("path", sorted(NODE.rglob("*.py")), ids=lambda path: str(path.relative_to(NODE)))
def test_nothing_from_outside_and_nothing_slow(path: Path) -> None:
    text = path.read_text()
    for name in imports(ast.parse(text, feature_version=(3, 6))):
        first = name.split(".")[0]
        assert name.startswith("hpcadmin.health.node") or (first in STANDARD and first not in NEVER), name
    assert "from __future__" not in text


@pytest.mark.deep
def test_vermin_finds_nothing_newer_than_3_6() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    if not vermin.exists():
        pytest.skip("vermin is not installed")
    done = subprocess.run(
        [str(vermin), "-t=3.6-", "--violations", "--no-tips", "--no-parse-comments", str(NODE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Minimum required versions: 3.6" in done.stdout or "Minimum required versions: ~" in done.stdout


def test_the_file_depends_on_its_content_alone(tmp_path: Path) -> None:
    assert build() == build()
    assert write(tmp_path / "a") == (tmp_path / "a").stat().st_size
    assert os.access(tmp_path / "a", os.X_OK)


def test_everything_is_in_it() -> None:
    names = zipfile.ZipFile(io.BytesIO(build())).namelist()
    assert {f"hpcadmin/health/node/checks/{name}.py" for name in load.names()} <= set(names)
    assert "__main__.py" in names
    assert parts()["hpcadmin/__init__.py"] == ""


@pytest.mark.parametrize("python", ["python3", "/usr/bin/python3; reboot", "/a b", "/x\n"])
def test_a_python_that_is_no_path_is_refused(python: str) -> None:
    with pytest.raises(UsageError):
        build(python)


def test_the_command_writes_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["build", "-o", str(tmp_path / "hh")])
    assert done.exit_code == 0, done.output
    assert subprocess.run(
        [str(tmp_path / "hh"), "--version"], capture_output=True, text=True, check=True
    ).stdout.startswith("hpcadmin-health ")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node with something to read for every check."""
    root = tmp_path_factory.mktemp("node")
    machine = Machine(root)
    machine.cpus(2, 4, 2)
    machine.process(1, "systemd", "/sbin/init")
    machine.process(40, "kswapd0", kernel=True)
    machine.interface("eth0")
    machine.port("mlx5_0")
    machine.gpu_on_bus("0000:19:00.0")
    machine.tool("nvidia-smi", smi_xml(1))
    machine.tool("dmidecode", "Handle 0x0001, DMI type 1, 27 bytes\nSystem Information\n\tProduct Name: X\n")
    machine.tool("ping", "2 packets transmitted, 2 received, 0% packet loss, time 1ms\n")
    machine.file("/sys/firmware/dmi/tables/DMI", smbios_dump.memory([smbios_dump.Module("D1", size_mib=1024)]))
    machine.kernel_log("NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.", "Remounting filesystem read-only")
    machine.file("/etc/motd", "hello\n")
    return root


PARAMS: dict[str, dict[str, Any]] = {
    "mount": {"path": "/", "answers": False},
    "space": {"path": "/"},
    "file": {"path": "/etc/motd", "mode": "0644"},
    "contents": {"path": "/etc/motd", "lines": ["/^he/", "bye*"]},
    "command": {"argv": ["ping"]},
    "process": {"name": "{systemd,x}"},
    "usage": {"what": "cpu_percent", "max": 0},
    "link": {"name": "eth*", "mtu": 1500},
    "ping": {"host": "h"},
    "socket": {"min": 0},
    "cpu": {"cores": 9},
    "dimms": {"count": 2},
    "dmi": {"lines": ["*X"]},
    "gpu": {"count": 1},
}


def without_what_differs(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in result.items() if key != "seconds"}
        for result in tree["results"]
        if result["check"] not in ("command", "space", "file")
    ]


@pytest.mark.deep
@pytest.mark.skipif(OLD is None, reason="no Python 3.6 on this machine")
def test_a_real_python_3_6_says_the_same(node: Path, tmp_path: Path) -> None:
    names = [name for name in load.names() if name != "nhc"]
    conf = tmp_path / "health.json"
    conf.write_text(json.dumps({"check": [{"use": name, **PARAMS.get(name, {})} for name in names]}))
    trees = []
    for python in (OLD, sys.executable):
        write(tmp_path / "hh", python)
        done = subprocess.run(
            [str(tmp_path / "hh"), "--config", str(conf), "--root", str(node), "--json", "-"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        trees.append(json.loads(done.stdout))
    assert without_what_differs(trees[0]) == without_what_differs(trees[1])
    assert not [one for one in trees[0]["results"] if "defect" in one["reason"]]
    statuses = {one["check"]: one["status"] for one in trees[0]["results"]}
    assert statuses["cpu"] == statuses["gpu_xid"] == statuses["usage"] == "bad"
    assert statuses["gpu"] == statuses["process"] == statuses["memory"] == "good"


# compiled once


def run(program: Path, state: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), "--state", str(state), "swap", *args], capture_output=True, text=True, check=False
    )


@pytest.mark.deep
def test_code_is_compiled_once_and_anew_for_another_file(tmp_path: Path) -> None:
    program, state = tmp_path / "hh", tmp_path / "state"
    write(program, sys.executable)
    assert run(program, state).stdout == "good: 1 check\n"
    compiled = next(state.glob("code-*.bin"))
    first = compiled.stat().st_mtime_ns
    assert compiled.stat().st_mode & 0o077 == 0
    assert run(program, state).stdout == "good: 1 check\n"
    assert compiled.stat().st_mtime_ns == first
    with program.open("ab") as file:
        file.write(b"")
    os.utime(program, (1, 1))
    assert run(program, state).returncode == 0
    assert compiled.stat().st_mtime_ns != first


@pytest.mark.deep
@pytest.mark.parametrize("damage", ["cut", "junk", "mode", "link", "empty"])
def test_code_that_may_be_anothers_is_not_run(tmp_path: Path, damage: str) -> None:
    program, state = tmp_path / "hh", tmp_path / "state"
    write(program, sys.executable)
    run(program, state)
    compiled = next(state.glob("code-*.bin"))
    data = compiled.read_bytes()
    if damage == "mode":
        compiled.chmod(0o666)
    elif damage == "link":
        compiled.rename(tmp_path / "moved")
        compiled.symlink_to(tmp_path / "moved")
    else:
        compiled.write_bytes({"cut": data[:100], "junk": b"junk", "empty": b""}[damage])
    assert starting.read(str(state), str(program)) is None
    assert run(program, state).stdout == "good: 1 check\n"


@pytest.mark.deep
@pytest.mark.parametrize("size", [3000, 100000, -100])
def test_half_a_file_is_unknown_and_drains_nobody(tmp_path: Path, size: int) -> None:
    """A disk was full when it was copied: Slurm must not see Python's own status 1."""
    program = tmp_path / "hh"
    program.write_bytes(build(sys.executable)[:size])
    program.chmod(0o755)
    for args, status in (([], 3), (["--as", "prolog"], 0), (["--as=epilog"], 0)):
        done = subprocess.run([str(program), "--state", str(tmp_path / "state"), *args], capture_output=True, text=True,
                              check=False)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.startswith("hpcadmin-health: cannot be started: ") and done.stderr.count("\n") == 1


@pytest.mark.deep
def test_ten_checks_import_nothing_that_takes_long(tmp_path: Path) -> None:
    write(tmp_path / "hh", sys.executable)
    (tmp_path / "h.json").write_text(json.dumps({"check": [
        {"use": "cpu"}, {"use": "memory", "min_mib": 1}, {"use": "swap"}, {"use": "load"},
        {"use": "process", "name": "x*"},
        {"use": "contents", "path": "/etc/passwd", "lines": ["root:*"]}, {"use": "link", "name": "lo"}]}))
    argv = [str(tmp_path / "hh"), "--state", str(tmp_path / "state"), "--config", str(tmp_path / "h.json")]
    subprocess.run(argv, capture_output=True, check=False)
    head = build(sys.executable).partition(b" -c '")[2].partition(b"' \"$0\"")[0].decode()
    done = subprocess.run([sys.executable, "-X", "importtime", "-I", "-S", "-B", "-c", head, *argv],
                          capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "hpcadmin.health.node.watch" in loaded
    assert not loaded & (NEVER | {"json", "re", "enum", "signal", "runpy", "site", "zipfile", "fnmatch"})


@pytest.mark.parametrize("text", [
    "{}", ' {"a": [1, -2.5e3, true, false, null, "x\\u00e9\\n"]}\n', "[]", "3", '"s"', "", " ", "{", '{"a" 1}', "[1,]",
    "{} x", "NaN", "[Infinity]", '{"a": -Infinity}', '"\x01"', "\ufeff{}", "\u2003{}", "nul", '{"a": 1, "a": 2}'])
def test_json_is_read_as_by_json(text: str) -> None:
    def strict(name: str) -> None:
        raise ValueError(name)

    try:
        expected = json.loads(text, parse_constant=strict)
    except ValueError:
        with pytest.raises(ValueError):
            quickjson.loads(text)
    else:
        assert quickjson.loads(text) == expected
        assert quickjson.dumps(expected) == json.dumps(expected, sort_keys=True)
    with pytest.raises(ValueError):
        quickjson.dumps([float("nan")])


def test_a_shell_without_python_lets_jobs_run(tmp_path: Path) -> None:
    program = tmp_path / "hh"
    data = (
        build()
        .replace(b"/usr/bin/python3", b"/no/bin/python3")
        .replace(b"/usr/libexec/platform-python", b"/no/libexec/platform-python")
        .replace(b"/usr/local/bin/python3", b"/no/local/bin/python3")
    )
    program.write_bytes(data)
    program.chmod(0o755)
    for args, status in (([], 3), (["--as", "prolog"], 0)):
        done = subprocess.run([str(program), *args], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert "no Python here" in done.stderr


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_every_shell_starts_it(tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    write(tmp_path / "hh", sys.executable)
    done = subprocess.run([shell, str(tmp_path / "hh"), "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("hpcadmin-health "), done.stderr


@pytest.mark.deep
def test_the_environment_of_a_user_has_no_say(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')\n")
    write(tmp_path / "hh", sys.executable)
    done = subprocess.run(
        [str(tmp_path / "hh"), "--state", str(tmp_path / "state"), "swap"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": str(tmp_path / "json.py"), "PATH": "/usr/bin"},
    )
    assert done.stdout == "good: 1 check\n", done.stderr
