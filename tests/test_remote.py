"""Running commands here and on many hosts: bounded in size and time, and one bad host holds up nobody."""

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from looped import looped

from hpcadmin.errors import UsageError
from hpcadmin.remote import CommandResult, fan_out
from hpcadmin.remote import base as remote_base
from hpcadmin.remote.known_hosts import KnownHosts, load, parse
from hpcadmin.remote.local import Local
from hpcadmin.remote.ssh_config import read


def local(*argv: str, **options: object) -> CommandResult:
    return Local().run("here", argv, **options)  # type: ignore[arg-type]


def test_local_output_status_and_stdin() -> None:
    done = local("sh", "-c", "cat; echo err >&2; exit 3", stdin=b"abc\n" * 100_000)
    assert (done.exit_status, done.error) == (3, "")
    assert done.output == b"abc\n" * 100_000 + b"err\n"


def test_local_endless_output_is_cut_off() -> None:
    done = local("yes", limit=100_000)
    assert len(done.output) == 100_000
    assert done.truncated
    assert "more than 100000 bytes" in done.error
    assert done.exit_status is None


def test_local_timeout_keeps_what_came() -> None:
    start = time.monotonic()
    done = local("sh", "-c", "echo begun; sleep 60 & sleep 60", timeout_s=2.5)
    assert time.monotonic() - start < 30
    assert done.timed_out
    assert done.output == b"begun\n"
    assert done.error == "did not end within 2.5 s"


def test_local_program_missing_and_killed() -> None:
    assert local("no-such-program").error == "no-such-program: No such file or directory"
    assert local("sh", "-c", "kill -9 $$").error == "ended by signal 9"


def test_local_one_that_does_not_read() -> None:
    assert local("true", stdin=b"x" * 1_000_000).exit_status == 0


class Fake:
    """Hosts by name: quick ones answer, "hang" never does, "bad" raises."""

    def __init__(self) -> None:
        self.at_once = self.most = 0
        self.lock = threading.Lock()

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 1.0,
            limit: int = 1) -> CommandResult:
        with self.lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            if host.startswith("hang"):
                time.sleep(30)
            if host.startswith("bad"):
                raise ZeroDivisionError("oops")
            time.sleep(0.02)
            return CommandResult(host, " ".join(argv).encode(), 0)
        finally:
            with self.lock:
                self.at_once -= 1


@pytest.mark.deep
def test_fan_out_is_parallel_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_base, "GRACE_S", 0.2)
    fake, told = Fake(), []
    hosts = [f"node{n}" for n in range(20)] + ["hang1", "bad1", "node3"]
    start = time.monotonic()
    found = fan_out(fake, hosts, lambda host: ("echo", host), parallel=4, timeout_s=0.5, done=told.append)
    assert time.monotonic() - start < 5
    assert list(found).count("node3") == 1
    assert len(found) == len(told) == 22
    assert fake.most <= 4
    assert found["node7"].text == "echo node7"
    assert found["hang1"].error == "no answer within 0.5 s"
    assert found["hang1"].timed_out
    assert found["bad1"].error == "internal error: ZeroDivisionError: oops"


@pytest.mark.deep
def test_fan_out_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_base, "GRACE_S", 0.2)
    found = fan_out(Fake(), ["hang1", "hang2", "node1"], lambda host: (), parallel=1, timeout_s=20, overall_s=0.5)
    assert all("0.5 s was over" in found[host].error for host in ("hang1", "hang2", "node1"))


KEY, OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIA", "AAAAC3NzaC1lZDI1NTE5AAAAIB"


@looped(("line", "host", "port", "known"), [
    (f"node01 ssh-ed25519 {KEY} comment", "node01", 22, True), (f"node01 ssh-ed25519 {KEY}", "NODE01", 22, True),
    (f"node01,10.0.0.1 ssh-ed25519 {KEY}", "10.0.0.1", 22, True), (f"node01 ssh-ed25519 {KEY}", "node02", 22, False),
    (f"node* ssh-ed25519 {KEY}", "node17", 22, True), (f"node0? ssh-ed25519 {KEY}", "node17", 22, False),
    (f"node*,!node17 ssh-ed25519 {KEY}", "node17", 22, False),
    (f"[node01]:2222 ssh-ed25519 {KEY}", "node01", 2222, True),
    (f"[node01]:2222 ssh-ed25519 {KEY}", "node01", 22, False), (f"node01 ssh-ed25519 {KEY}", "node01", 2222, True),
    (f"[node*]:2222 ssh-ed25519 {KEY}", "node04", 2222, True), (f"@cert-authority * ssh-ed25519 {KEY}", "a", 22, False),
    (f"@revoked node01 ssh-ed25519 {KEY}", "node01", 22, False), (f"# node01 ssh-ed25519 {KEY}", "node01", 22, False),
    ("node01 ssh-ed25519", "node01", 22, False), ("node01", "node01", 22, False), ("|1|x|y", "node01", 22, False),
    (f"|1|??|?? ssh-ed25519 {KEY}", "node01", 22, False), (f"@odd node01 ssh-ed25519 {KEY}", "node01", 22, False),
    (f"|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|hashhashhashhashhashhash0000 ssh-ed25519 {KEY}", "node01", 22, False),
])
def test_known_hosts(line: str, host: str, port: int, known: bool) -> None:
    assert KnownHosts(parse(line)).keys(host, port) == ([("ssh-ed25519", KEY)] if known else [])


def test_hashed_names_as_ssh_keygen_writes_them(tmp_path: Path) -> None:
    import subprocess
    path, key = tmp_path / "known_hosts", tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    path.write_text("node01 " + key.with_suffix(".pub").read_text())
    subprocess.run(["ssh-keygen", "-H", "-f", path], check=True, capture_output=True)
    assert path.read_text().startswith("|1|")
    assert len(load([path]).keys("node01")) == 1
    assert load([path]).keys("node02") == []


def test_several_keys_and_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"node01 ssh-ed25519 {KEY}\n\nnode01 ssh-ed25519 {OTHER}\n")
    (tmp_path / "b").write_bytes(b"\xff\xfe\nnode01 ssh-rsa AAAA\n@revoked * ssh-ed25519 " + OTHER.encode() + b"\n")
    known = load([tmp_path / "a", tmp_path / "b", tmp_path / "missing"])
    assert known.keys("node01") == [("ssh-ed25519", KEY), ("ssh-ed25519", OTHER), ("ssh-rsa", "AAAA")]
    assert known.revoked == {("ssh-ed25519", OTHER)}


@pytest.mark.deep
def test_ssh_config_includes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import paramiko
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh/conf.d").mkdir(parents=True)
    (tmp_path / ".ssh/config").write_text(
        "Include conf.d/*.conf\nHost node*\n  User admin\n  Include missing\n  Port 2222\n")
    (tmp_path / ".ssh/conf.d/a.conf").write_text("Host node07\n  HostName 10.0.0.7\n")
    config = paramiko.SSHConfig.from_text(read(""))
    seventh = config.lookup("node07")
    assert (seventh["hostname"], seventh["user"], seventh["port"]) == ("10.0.0.7", "admin", "2222")
    assert "port" not in config.lookup("login")


def test_ssh_config_that_includes_itself(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"Include {path}\nInclude {path}\nUser me\n")
    assert "User me" in read(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        read(str(tmp_path / "missing"))


def test_ssh_is_not_imported_before_it_is_used() -> None:
    import subprocess
    code = ("import sys, hpcadmin.discovery, hpcadmin.remote, hpcadmin.cli.discover\n"
            "print(sorted({'fabric', 'paramiko', 'pandas', 'tabulate'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parent.parent)
    assert done.stdout.strip() == "[]"
