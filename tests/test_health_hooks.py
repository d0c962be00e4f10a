"""What slurmd runs as Prolog and Epilog: only a node that was found bad is drained, whatever is broken with us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcadmin.cli import root as command
from hpcadmin.errors import UsageError
from hpcadmin.health.build import build
from hpcadmin.health.hooks import KINDS, LIMIT_S, hook
from hpcadmin.health.node import main, tool, watch

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
BAD = 'echo "hpcadmin: gpu: 7 of 8"; exit 1\n'


@pytest.fixture(params=[pytest.param(name, marks=[] if name == "dash" else pytest.mark.deep) for name in SHELLS])
def shell(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    argv = SHELLS[request.param]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"not installed: {argv[0]}")
    yield argv


def ended(shell: list[str], folder: Path, *, limit_s: int = 30, kind: str = "prolog",
          before: str = "") -> tuple[int, str, str]:
    """Exit status, standard output and error, as slurmd gets them: at the end of all that have its pipes."""
    (folder / "messages").mkdir(exist_ok=True)
    text = hook(kind, str(folder / "health"), limit_s=limit_s, messages=str(folder / "messages"))
    (folder / "hook").write_text(before + text)
    done = subprocess.run([*shell, str(folder / "hook")], env={}, capture_output=True, text=True, check=False,
                          timeout=60)
    return done.returncode, done.stdout, done.stderr


def program(folder: Path, text: str, mode: int = 0o755) -> None:
    path = folder / "health"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(mode)


def test_a_bad_node_is_told_by_its_line(tmp_path: Path, shell: list[str]) -> None:
    program(tmp_path, f'[ "$*" = "--as epilog" ] || exit 0\necho noise >&2\n{BAD}')
    assert ended(shell, tmp_path, kind="epilog") == (1, "hpcadmin: gpu: 7 of 8\n", "")
    assert list((tmp_path / "messages").iterdir()) == []
    assert ended(shell, tmp_path)[0] == 0


@pytest.mark.parametrize("text", ["echo 'good: 3 checks'; exit 0\n", "echo 'unknown: nfs: no answer'; exit 0\n"])
def test_good_and_unknown(tmp_path: Path, shell: list[str], text: str) -> None:
    program(tmp_path, text)
    status, out, said = ended(shell, tmp_path)
    assert (status, out) == (0, "") and ("no answer" in said) == ("unknown" in text)


@pytest.mark.parametrize("text", [
    "exit 1\n", "echo Traceback >&2; exit 1\n", "echo Traceback; exit 1\n", "kill -9 $$\n", "kill -SEGV $$\n",
    "exit 0\n", "exit 3\n", "exit 126\n", "echo 'hpcadmin: x'; exit 2\n", "echo 'hpcadmin: x'; exit 0\n",
    "echo 'unknown: x'; exit 1\n", "exec /nothere/python\n", "(((\n"])
def test_what_is_no_verdict_drains_nobody(tmp_path: Path, shell: list[str], text: str) -> None:
    program(tmp_path, text)
    status, out, said = ended(shell, tmp_path)
    assert (status, out) == (0, "")
    assert said == f"{tmp_path}/health: did not say how the node is; the node is taken for good\n"


def test_no_program(tmp_path: Path, shell: list[str]) -> None:
    path = tmp_path / "health"
    for make in ((lambda: None), (lambda: program(tmp_path, BAD, 0o644)), path.unlink,
                 (lambda: path.symlink_to("health")), path.unlink, path.mkdir):
        make()
        status, out, said = ended(shell, tmp_path)
        assert (status, out) == (0, "") and "is not there, or is no program" in said


@pytest.mark.deep
def test_a_file_that_is_cut_off_or_damaged(tmp_path: Path) -> None:
    """For each place where the file could end: the shell's lines, the middle, the zip's own table."""
    whole = build(sys.executable)
    (tmp_path / "health").write_bytes(whole)
    (tmp_path / "health").chmod(0o755)
    assert "unknown" in ended(["sh"], tmp_path)[2]            # whole, and without a configuration
    for data in (b"", whole[:30], whole[:300], whole[:len(whole) // 2], whole[:-10],
                 whole.replace(b"def main", b"def mian"), whole.replace(b"\nimport", b"\nimprot")):
        (tmp_path / "health").write_bytes(data)
        status, out, said = ended(["sh"], tmp_path)
        assert (status, out) == (0, "") and "taken for good" in said, len(data)


def test_bad_without_a_place_for_the_message(tmp_path: Path, shell: list[str]) -> None:
    program(tmp_path, BAD)
    (tmp_path / "messages").write_text("")
    text = hook("prolog", str(tmp_path / "health"), messages=str(tmp_path / "messages"))
    done = subprocess.run([*shell, "-c", text], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.deep
@pytest.mark.parametrize("text", ["sleep 60\n", "trap '' TERM INT HUP\nwhile :; do sleep 1; done\n"])
def test_what_hangs_is_left_behind(tmp_path: Path, shell: list[str], text: str) -> None:
    program(tmp_path, text)
    begun = time.monotonic()
    status, out, said = ended(shell, tmp_path, limit_s=1)
    assert (status, out) == (0, "") and "has not ended within 1 s" in said
    assert time.monotonic() - begun < 20
    for folder in Path("/proc").glob("[0-9]*"):             # what was left: ours to end
        try:
            if str(tmp_path / "health").encode() in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), 9)
        except OSError:
            continue


@pytest.mark.deep
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody with few processes")
def test_no_more_processes(tmp_path: Path, shell: list[str]) -> None:
    """A shell that cannot fork ends with 2 or 254, and Slurm would drain."""
    if shell[0] == "bash":
        pytest.skip("bash tries it for half a minute")
    program(tmp_path, BAD)
    text = hook("prolog", str(tmp_path / "health"))
    limited = ["prlimit", "--nproc=1", "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
    env = {"PATH": os.environ["PATH"]}
    plain = subprocess.run([*limited, *shell, "-c", "( : ) & wait $!"], env=env, capture_output=True, text=True,
                           check=False)
    assert "ork" in plain.stderr, "it can fork: this proves nothing"
    done = subprocess.run([*limited, *shell, "-c", text], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_limit_is_above_that_of_the_checks_and_below_a_minute() -> None:
    assert watch.DEADLINE_S + main.GRACE_S < LIMIT_S < 60


def test_built_beside_the_program(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["health", "build", "-o", str(tmp_path / "h"), "--hooks", "/opt/h"],
                              catch_exceptions=False, standalone_mode=False)
    for kind in KINDS:
        path = tmp_path / f"h-{kind}"
        assert path.read_text() == hook(kind, "/opt/h") and path.stat().st_mode & 0o777 == 0o755
        assert f"{path} /opt/h-{kind}" in done.output
    for odd in ("rel", "/a b", "/a;b", "/$x", "/a\n"):
        with pytest.raises(UsageError):
            hook("prolog", odd)


@pytest.mark.parametrize("text", ["exit 1\n", "", "#!/nothere/python\n", "\x7fELF"])
def test_a_tool_that_cannot_be_executed_says_nothing_about_the_node(tmp_path: Path, text: str) -> None:
    """It would be bad for each node that has the same file, and Slurm would drain them all."""
    path = tmp_path / "tool"
    path.write_text(text)
    path.chmod(0o755)
    with pytest.raises(OSError, match=r"Exec format error|No such file|Invalid argument"):
        tool.run(str(path), [str(path)], 5)
    path.write_text("#!/bin/sh\necho none >&2; exit 127\n")
    ran = tool.run(str(path), [str(path)], 5)
    assert (ran.status, ran.err) == (127, "none\n")
