"""ssh against a real sshd on the loopback, with keys made for the test: what must work, and what must be refused."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcadmin.facts import new_token, probe_script, read_capture
from hpcadmin.remote import CommandResult, fan_out
from hpcadmin.site import Ssh

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def why_not() -> str:
    if SSHD is None or shutil.which("ssh-keygen") is None:
        return "no sshd on this machine"
    return ""


pytestmark = [pytest.mark.deep, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

# Keys by name, each with what the server does for whoever shows it.
ACCOUNTS = {
    "good": "", "hang": "sleep 300", "endless": "yes", "flood": "yes >&2",
    "refuse": "echo This account is not available; exit 1",
    "noisy": "echo Last login: today; echo '@ begin of fun' >&2; eval \"$SSH_ORIGINAL_COMMAND\"",
    "cut": "eval \"$SSH_ORIGINAL_COMMAND\" | head -c 3000", "killed": "kill -9 $$",
    "csh": "exec csh -f -c \"$SSH_ORIGINAL_COMMAND\"",
    "fish": "exec fish --no-config -c \"$SSH_ORIGINAL_COMMAND\"", "rbash": "exec bash -r -c \"$SSH_ORIGINAL_COMMAND\"",
    "loud": "echo one; echo two >&2; (eval \"$SSH_ORIGINAL_COMMAND\"); echo logout; echo bye >&2",
    "hostile": "PATH=$HOME/bin:$PATH; export PATH; eval \"$SSH_ORIGINAL_COMMAND\"",
    "commas": "LC_ALL=de_DE.UTF-8; LANG=$LC_ALL; PATH=$HOME/commas:$PATH; export LC_ALL LANG PATH; "
              "eval \"$SSH_ORIGINAL_COMMAND\"",
    "bare": "PATH=/nowhere; export PATH; eval \"$SSH_ORIGINAL_COMMAND\"",
}


@dataclass
class Server:
    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def config(self, *extra: str, known: str = "known", account: str = "good") -> Ssh:
        """Settings that know the host "node"; extra lines come first and win."""
        lines = [*extra, "Host *", "  HostName 127.0.0.1", f"  Port {self.port}", f"  User {getpass.getuser()}",
                 f"  IdentityFile {self.folder}/{account}", "  IdentitiesOnly yes",
                 f"  UserKnownHostsFile {self.folder}/{known}", "  GlobalKnownHostsFile /dev/null"]
        path = self.folder / f"config-{len(list(self.folder.iterdir()))}"
        path.write_text("\n".join(lines) + "\n")
        return Ssh(config=str(path))

    def probe(self, account: str) -> tuple[CommandResult, str]:
        """The probe's answer under that account, and its token."""
        token = new_token()
        return self.run("/bin/sh", "-s", "--", token, stdin=probe_script().encode(),
                        settings=self.config(account=account)), token

    def run(self, *argv: str, settings: Ssh | None = None, **options: object) -> CommandResult:
        from hpcadmin.remote.ssh import SshRemote
        remote = SshRemote(settings or self.config())
        try:
            return remote.run("node", argv or ("echo", "hello"), **{"timeout_s": 8.0, **options})  # type: ignore[arg-type]
        finally:
            remote.close()


def keygen(path: Path, kind: str = "ed25519") -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    return Path(f"{path}.pub").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    authorized = ""
    for account, command in ACCOUNTS.items():
        quoted = command.replace('"', '\\"')
        authorized += (f'command="{quoted}" ' if command else "") + keygen(folder / account)
    (folder / "authorized").write_text(authorized)
    host, rsa, other = keygen(folder / "host"), keygen(folder / "host-rsa", "rsa"), keygen(folder / "other")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = f"[127.0.0.1]:{port}"
    for file, lines in {"known": [f"{name} {host}"], "none": [], "changed": [f"{name} {other}"],
                        "both": [f"{name} {other}", f"{name} {host}"], "rsa": [f"{name} {rsa}"],
                        "revoked": [f"{name} {host}", f"@revoked * {host}"],
                        "damaged": [f"{name} ssh-ed25519 not-base64", "@revoked", "|1|", f"{name} {host}"]}.items():
        (folder / file).write_text("\n".join(lines))
    (folder / "sshd_config").write_text(f"""
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
HostKey {folder}/host-rsa
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PidFile none
MaxStartups 100
AllowTcpForwarding yes
# Not the shell start-up files of whoever runs the tests.
SetEnv HOME={folder}
""")
    # sshd's own directory, which its service makes; taken away again if it was not there.
    separation = Path("/run/sshd")
    made = os.geteuid() == 0 and not separation.exists()
    if made:
        separation.mkdir(mode=0o755, exist_ok=True)
    # A file of each server in there, so that none takes it away under another.
    mark = separation / f"hpcadmin-test-{os.getpid()}-{port}"
    if os.geteuid() == 0:
        mark.touch()
    process = subprocess.Popen([SSHD or "sshd", "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.05)
    yield Server(folder, port, process)
    process.terminate()
    process.wait(timeout=10)
    if os.geteuid() == 0:
        mark.unlink()
    if made:
        with contextlib.suppress(OSError):
            separation.rmdir()


def test_output_status_and_stdin(server: Server) -> None:
    done = server.run("sh", "-c", "cat; echo err >&2; exit 3", stdin=b"abc\n" * 20_000)
    assert (done.exit_status, done.error) == (3, "")
    assert done.output.replace(b"err\n", b"") == b"abc\n" * 20_000


def test_the_probe(server: Server) -> None:
    done, token = server.probe("good")
    node = read_capture(done.text, "node", token)
    assert node.cpu.cores
    assert not any("cut off" in problem for problem in node.problems)


def test_start_up_noise(server: Server) -> None:
    done, token = server.probe("noisy")
    assert done.text.startswith("Last login")
    assert read_capture(done.text, "node", token).cpu.cores


SHELLS = [pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell} here"))
          for shell in ("csh", "fish")]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_login_shell_that_is_no_sh(server: Server, shell: str) -> None:
    done, token = server.probe(shell)
    assert read_capture(done.text, "node", token).cpu.cores


@pytest.mark.parametrize("shell", ["good", *SHELLS])
def test_arguments_stay_arguments(server: Server, shell: str) -> None:
    for odd in ("a b'c\"d$(id)`id`;|&<>\\*?~", "two\nlines\n", "x!y !! \\\\ \\0101 %s %d", "-n", "", "=ls", "ü\t\x01"):
        done = server.run("printf", "[%s]", odd, settings=server.config(account=shell))
        assert done.text == f"[{odd}]"


def test_an_unknown_key_is_refused(server: Server) -> None:
    done = server.run(settings=server.config(known="none"))
    assert done.error.startswith("its host key is not known: it shows ssh-ed25519 SHA256:")
    assert done.output == b""
    assert (server.folder / "none").read_text() == ""


def test_a_changed_key_is_refused(server: Server) -> None:
    done = server.run(settings=server.config(known="changed"))
    assert done.error.startswith("its host key has CHANGED: it shows ssh-ed25519 SHA256:")
    assert done.output == b""


def test_a_revoked_key_is_refused(server: Server) -> None:
    assert server.run(settings=server.config(known="revoked")).error == "its host key is revoked in known_hosts"


def test_strict_checking_cannot_be_switched_off(server: Server) -> None:
    done = server.run(settings=server.config("StrictHostKeyChecking no", known="none"))
    assert "not known" in done.error


@pytest.mark.parametrize("known", ["both", "rsa", "damaged"])
def test_a_key_that_is_known_is_taken(server: Server, known: str) -> None:
    assert server.run(settings=server.config(known=known)).text == "hello\n"


def test_the_sites_known_hosts(server: Server) -> None:
    settings = server.config(known="none")
    assert server.run(settings=Ssh(config=settings.config, known_hosts=(f"{server.folder}/known",))).text == "hello\n"


def test_no_key_of_ours_is_accepted(server: Server) -> None:
    done = server.run(settings=server.config(account="other"))
    assert done.error == f"127.0.0.1:{server.port} accepts no key of ours for user {getpass.getuser()}"


def test_refused_and_unresolved(server: Server) -> None:
    assert server.run(settings=server.config("Port 1")).error == "127.0.0.1:1: Connection refused"
    done = server.run(settings=server.config("HostName no-such-host.invalid"))
    assert done.error.startswith("the name no-such-host.invalid does not resolve")


@pytest.mark.deep
@pytest.mark.parametrize("account", ["hang"])
def test_a_command_that_hangs(server: Server, account: str) -> None:
    start = time.monotonic()
    done = server.run(settings=server.config(account=account), timeout_s=1.5)
    assert time.monotonic() - start < 30
    assert done.timed_out
    assert done.error == "did not end within 1.5 s"


@pytest.mark.parametrize("account", ["endless", "flood"])
def test_endless_output_is_cut_off(server: Server, account: str) -> None:
    done = server.run(settings=server.config(account=account), limit=200_000)
    assert len(done.output) == 200_000
    assert done.truncated
    assert done.error == "printed more than 200000 bytes: cut off"


def test_a_first_line_that_is_waited_for_in_vain() -> None:
    import paramiko

    from hpcadmin.remote.ssh import _explain

    def failed(cause: Exception) -> Exception:
        try:
            try:
                raise cause
            except (TimeoutError, EOFError) as exc:
                raise paramiko.SSHException("Error reading SSH protocol banner" + str(exc))  # noqa: B904
        except paramiko.SSHException as exc:
            return exc
    assert _explain(failed(TimeoutError()), None, 4.0) == "ssh takes the connection and does not answer within 4 s"
    assert "is not an ssh server" in _explain(failed(EOFError()), None, 4.0)


@pytest.mark.deep
def test_a_server_that_says_nothing(server: Server) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        done = server.run(settings=server.config(f"Port {silent.getsockname()[1]}"), timeout_s=2.0)
    assert time.monotonic() - start < 30
    assert "does not answer" in done.error


def test_a_login_that_is_refused_by_the_shell(server: Server) -> None:
    done = server.run(settings=server.config(account="refuse"), stdin=b"x" * 100_000)
    assert (done.text, done.exit_status) == ("This account is not available\n", 1)


def test_a_command_that_is_killed(server: Server) -> None:
    done = server.run(settings=server.config(account="killed"))
    assert done.error == "the connection was lost before the command ended"


def test_a_capture_that_is_cut_off(server: Server) -> None:
    done, token = server.probe("cut")
    node = read_capture(done.text, "node", token)
    assert node.problems[0].startswith("the capture is cut off in ")
    assert "gpus" in node.unknown


def test_through_a_jump_host(server: Server) -> None:
    jump = server.config("Host node", "  ProxyJump first,second")
    assert server.run(settings=jump).text == "hello\n"
    site = server.config()
    assert server.run(settings=Ssh(config=site.config, jump="first")).text == "hello\n"


def test_a_jump_host_with_an_unknown_key_is_refused(server: Server) -> None:
    settings = server.config("Host first", f"  UserKnownHostsFile {server.folder}/none",
                             "Host node", "  ProxyJump first")
    done = server.run(settings=settings)
    assert done.error.startswith("jump host first: its host key is not known")


@pytest.mark.deep
def test_one_hanging_host_holds_up_nobody(server: Server) -> None:
    from hpcadmin.remote.ssh import SshRemote
    settings = server.config("Host bad*", "  Port 1", "Host slow*", f"  IdentityFile {server.folder}/hang")
    remote = SshRemote(settings)
    hosts = [*(f"node{n}" for n in range(12)), "bad1", "slow1"]
    start = time.monotonic()
    found = fan_out(remote, hosts, lambda host: ("echo", host), parallel=8, timeout_s=12.0)
    assert time.monotonic() - start < 36
    quick = [found[f"node{n}"] for n in range(12)]
    assert [(done.text, done.error) for done in quick] == [(f"node{n}\n", "") for n in range(12)]
    assert "refused" in found["bad1"].error
    assert found["slow1"].timed_out


def test_nothing_reaches_the_terminal(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for settings in (server.config(known="none"), server.config("Port 1"), server.config(account="killed"),
                     server.config(account="other")):
        server.run(settings=settings)
    time.sleep(0.2)
    assert capfd.readouterr() == ("", "")
