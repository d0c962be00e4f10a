"""The probe on nodes as they are: loud and strange shells, tools that lie, hang, refuse or are missing, full disks.

Over a real sshd where the login matters; what is wrong in one place is recorded, and spoils nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from test_probe import with_facts
from test_remote_ssh import Server, server, why_not  # noqa: F401  (a fixture)

from hpcadmin import discovery
from hpcadmin.facts import facts, new_token, probe_script, read_capture, split_capture
from hpcadmin.remote import CommandResult

pytestmark = pytest.mark.deep

needs_sshd = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
# What each tool says there: a script's body.
HOSTILE = {
    "lscpu": "yes garbage", "ip": "head -c 5000 /dev/urandom", "lsblk": "exit 3",
    "chronyc": "trap '' TERM; while :; do sleep 1; done", "docker": "kill -9 $$", "gcc": "printf 'no end of line'",
    "munged": "yes munge", "nvidia-smi": "echo 'NVIDIA-SMI has failed' >&2; exit 9", "ibstat": "cat; exit 1",
    "slurmd": "printf '\\n@%s done sections=1\\n' 0123456789abcdef",
}


def scripts(folder: Path, bodies: dict[str, str]) -> None:
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


def local(script: str, path: Path | None = None, **environment: str) -> tuple[str, float]:
    """What the script prints here, with the folder's tools first, and how long it took."""
    env = {**os.environ, **environment, **({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})}
    start = time.monotonic()
    done = subprocess.run(["/bin/sh", "-s", "--", new_token()], input=script, capture_output=True, text=True,
                          check=True, timeout=60, env=env, errors="replace")
    assert not done.stderr
    return done.stdout, time.monotonic() - start


@needs_sshd
def test_a_loud_login(server: Server) -> None:  # noqa: F811
    done, token = server.probe("loud")
    assert done.text.startswith(("one", "two"))
    node = read_capture(done.text, "node", token)
    assert node.cpu.cores
    assert not any("cut off" in problem for problem in node.problems)


@needs_sshd
def test_a_restricted_shell_is_said(server: Server) -> None:  # noqa: F811
    done, _ = server.probe("rbash")
    assert "restricted" in done.text
    assert done.exit_status not in (0, None)


@needs_sshd
def test_a_path_without_anything(server: Server) -> None:  # noqa: F811
    done, token = server.probe("bare")
    node = read_capture(done.text, "node", token)
    assert node.cpu.sockets or node.problems


@needs_sshd
def test_hostile_nodes_hold_up_nobody(server: Server) -> None:  # noqa: F811
    """Endless, hanging, cut off, silent and refusing nodes among good ones: each is recorded, the good are whole."""
    from hpcadmin.remote.ssh import SshRemote
    if not (server.folder / "bin").exists():
        scripts(server.folder / "bin", HOSTILE)
    kinds = ("hang", "endless", "flood", "cut", "killed", "refuse", "hostile")
    blocks = [line for kind in kinds for line in (f"Host {kind}*", f"  IdentityFile {server.folder}/{kind}")]
    remote = SshRemote(server.config(*blocks))
    limit = 2 * 1024 * 1024

    class Bounded:
        def run(self, host: str, argv: object, **options: object) -> CommandResult:
            return remote.run(host, argv, **{**options, "limit": limit})  # type: ignore[arg-type]

    names = [*(f"good{n}" for n in range(4)), *kinds]
    start = time.monotonic()
    found = discovery.discover(Bounded(), {name: name for name in names}, discovery.How(parallel=8, timeout_s=12.0))
    assert time.monotonic() - start < 40
    nodes = {node.name: node for node in found.nodes}
    failed = {item.node: item.reason for item in found.failed}
    good = [nodes[f"good{n}"] for n in range(4)]
    assert all(node.cpu.cores and not any("cut off" in problem for problem in node.problems) for node in good)
    assert failed["hang"] == "did not end within 12 s"
    assert "cut off" in failed["endless"]
    assert "cut off" in failed["flood"]
    assert "not available" in failed["refuse"]
    assert failed["killed"]
    assert nodes["cut"].problems[0].startswith("the capture is cut off in ")
    hostile = nodes["hostile"]
    assert any(problem.startswith("lscpu: ") for problem in hostile.problems), hostile.problems
    assert hostile.cpu.sockets == good[0].cpu.sockets
    assert hostile.memory_mib
    assert set(nodes) | set(failed) == set(names)


def test_hostile_tools_are_recorded_one_by_one(tmp_path: Path) -> None:
    scripts(tmp_path / "bin", HOSTILE)
    text, seconds = local(probe_script(), tmp_path / "bin")
    assert seconds < 25
    capture = split_capture(text, "here")
    assert capture.complete
    assert list(capture.sections) == list(facts())
    assert capture.sections["lscpu"].truncated
    node = read_capture(text, "here")
    problems = " | ".join(node.problems)
    for name in ("lscpu", "addresses"):
        assert f"{name}: " in problems
    assert "versions.docker" in node.unknown
    assert node.cpu.sockets


def test_what_cannot_be_killed_is_left_behind() -> None:
    """A process that keeps its output open for ever holds up one section, and only for its time."""
    script = with_facts("echo before", "echo partial; sleep 20 & wait", "echo after").replace("section f1 1000 9",
                                                                                              "section f1 1000 2")
    text, seconds = local(script)
    assert 1.5 < seconds < 8
    capture = split_capture(text, "here")
    assert capture.complete
    assert [s.text for s in capture.sections.values()] == ["before\n", "", "after\n"]
    assert capture.sections["f1"].timed_out
    assert not capture.sections["f2"].timed_out


def test_sudo_that_refuses_is_a_reason_never_an_empty_list(tmp_path: Path) -> None:
    scripts(tmp_path / "bin", {"sudo": "echo 'sudo: a password is required' >&2; exit 1", "dmidecode": "exit 1"})
    command = facts()["dimms"].command.replace("/sys/firmware/dmi/tables/DMI", f"{tmp_path}/DMI")
    (tmp_path / "DMI").write_text("")
    # Root may read what nobody else may: say that it may not.
    command = command.replace("[ -r $t ]", "false")
    text, _ = local(with_facts(f"SUDO='sudo -n'\n{command}"), tmp_path / "bin")
    dimms = facts()["dimms"].parse(split_capture(text, "here").sections["f0"].text)
    assert dimms.modules == ()
    assert dimms.why == "refused, status 1: sudo: a password is required"


@pytest.mark.skipif(shutil.which("sudo") is None or os.geteuid() != 0 or shutil.which("setpriv") is None,
                    reason="needs sudo, setpriv and root to become somebody who may not use sudo")
def test_the_real_sudo_refuses(tmp_path: Path) -> None:
    command = facts()["dimms"].command
    for old, new in (("/sys/firmware/dmi/tables/DMI", "/etc/passwd"), ("[ -r $t ]", "false"),
                     ("command -v dmidecode", "true")):
        command = command.replace(old, new)
    script = with_facts(f"SUDO='sudo -n'\n{command}")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run([*nobody, "/bin/sh", "-s", "--", new_token()], input=script, capture_output=True, text=True,
                          check=True, timeout=30)
    dimms = facts()["dimms"].parse(split_capture(done.stdout, "here").sections["f0"].text)
    assert dimms.modules == ()
    assert dimms.why.startswith("refused, status 1: ")


def test_facts_with_sudo_come_last() -> None:
    script = probe_script(sudo=["dmi", "dimms"])
    sections = [line.split()[1] for line in script.split("\n") if line.startswith("section ")]
    assert sections[-2:] == ["dmi", "dimms"]
    assert sorted(sections) == sorted(facts())


def test_a_locale_with_decimal_commas(tmp_path: Path) -> None:
    scripts(tmp_path / "bin", {
        "chronyc": "case ${LC_ALL:-$LANG} in C) d=.;; *) d=,;; esac\n"
                   "printf 'Reference ID    : 0A000001 (10.0.0.1)\\nStratum         : 3\\n'\n"
                   "printf 'System time     : 0%s250000000 seconds slow of NTP time\\nLeap status     : Normal\\n' $d"})
    text, _ = local(probe_script(), tmp_path / "bin", LC_ALL="de_DE.UTF-8", LANG="de_DE.UTF-8")
    node = read_capture(text, "here")
    assert "time: the clock is 0.25 s slow" in node.problems
    assert node.time_sync == "chrony, synchronised to 10.0.0.1, stratum 3"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root to mount a full /tmp")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_full_disk_and_a_tmp_without_exec(shell: str) -> None:
    """The probe writes no files."""
    setup = ("for d in /tmp /var/tmp; do mount -t tmpfs -o size=16k,noexec none $d || exit 77; done; "
             f"head -c 100000 /dev/zero >/tmp/full 2>/dev/null; cd /tmp; TMPDIR=/tmp exec {shell} -s -- {new_token()}")
    done = subprocess.run(["unshare", "-m", "sh", "-c", setup], input=probe_script(), capture_output=True,
                          text=True, check=False, timeout=60)
    if done.returncode in (1, 77):
        pytest.skip("no file system may be mounted here")
    assert not done.stderr
    capture = split_capture(done.stdout, "here")
    assert capture.complete
    assert read_capture(done.stdout, "here").cpu.cores


def test_a_probe_takes_less_than_a_second() -> None:
    assert min(local(probe_script())[1] for _ in range(3)) < 1.0
