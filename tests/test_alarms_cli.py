"""The whole way: hpcadmin sweep, a problem, each channel's own server; hpcadmin sweep alarms on the command line."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alarm_servers import Mails, Taken, smtp, web
from tests.test_sweep_cli import Stand

EVIL = ('gone\r\nBcc: all@example.org\r\n\r\n<!channel> <at user_id="all"></at> @all <script>x</script> *b* `c`'
        '\x1b[31m\x1b]0;t\x07\u202edetsurt\u2066 "q" \\ {{ $value }} \x00\n.\n')
HOOKS = {"slack": "ok", "feishu": '{"code":0}', "dingtalk": '{"errcode":0}', "webhook": "ok", "alertmanager": "ok"}
TELLERS = ("smtp", "local", "slack", "feishu", "dingtalk", "webhook", "syslog")


class Town:
    """A stand-in for Slurm, a site with every channel, and a server for each."""

    def __init__(self, stand: Stand, servers: dict[str, Taken], mails: Mails, log: socket.socket) -> None:
        self.stand, self.servers, self.mails, self.log = stand, servers, mails, log
        self.prom = stand.folder / "hpcadmin.prom"
        for name, text in (("squeue", ""), ("sinfo", '[ "$1" = --version ] && echo slurm 24.11.5')):
            (stand.folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\nexit 0\n")
            (stand.folder / "bin" / name).chmod(0o755)
        self.queue = stand.folder / "queue"
        self.queue.mkdir()
        sendmail = stand.folder / "sendmail"
        sendmail.write_text(f'#!/bin/sh\n[ ! -e {stand.folder}/full ] || {{ echo "queue full" >&2; exit 75; }}\n'
                            f"exec cat >{self.queue}/$$\n")
        sendmail.chmod(0o755)
        secrets = {}
        for name, server in servers.items():
            path = stand.folder / f"{name}.url"
            path.write_text(f"{server.url}/hook/K3Y\n")
            path.chmod(0o600)
            secrets[name] = str(path)
        hooks = "".join(f'[sweep.alarms.{name}]\nurl_file = "{path}"\n' for name, path in secrets.items())
        self.site(f"""
[cluster]
name = "alpha"
[sweep]
health_dir = "{stand.folder}/health"
night_percent = 100
total_percent = 100
[sweep.alarms.smtp]
kind = "mail"
to = ["ops@example.org"]
smtp = "{mails.where}"
tls = "none"
[sweep.alarms.local]
kind = "mail"
to = ["root"]
sendmail = "{sendmail}"
[sweep.alarms.syslog]
socket = "{stand.folder}/log"
[sweep.alarms.prometheus]
file = "{self.prom}"
{hooks}""")

    def site(self, text: str) -> None:
        (self.stand.folder / "site.toml").write_text(text)

    def health(self, **bad: dict[str, str]) -> None:
        """Of each node what is bad: check -> why."""
        for node in ("n1", "n2"):
            results = [{"check": check, "status": "bad" if bad.get(node, {}).get(check) else "good",
                        "reason": bad.get(node, {}).get(check, ""), "hardware": False} for check in ("mount", "gpu")]
            (self.stand.folder / "health" / f"{node}.json").write_text(json.dumps(
                {"node": node, "time": time.time(), "boot": "b", "results": results}))

    def told(self) -> dict[str, list[str]]:
        """What has come since the last time, by channel: the text of each message."""
        found: dict[str, list[str]] = {name: [] for name in TELLERS}
        for raw in self.mails.mails:
            found["smtp"].append(read_mail(raw[2]))
        self.mails.mails.clear()
        for path in sorted(self.queue.iterdir(), key=lambda path: path.stat().st_mtime_ns):
            found["local"].append(read_mail(path.read_bytes()))
            path.unlink()
        for name in HOOKS:
            if name != "alertmanager":
                found[name] = [json.dumps(body, ensure_ascii=False) for body in self.servers[name].bodies]
                self.servers[name].requests.clear()
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(self.log.recv(65536).decode())
        for line in lines:          # a message is a head and its lines
            if ": hpcadmin alpha" in line:
                found["syslog"].append(line)
            else:
                found["syslog"][-1] += line
        return found

    def alerts(self) -> dict[str, tuple[str, bool]]:
        """subject -> (name, whether it is over) of what Alertmanager was told last."""
        if not self.servers["alertmanager"].requests:
            return {}
        body = self.servers["alertmanager"].requests[-1][2]
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 1))
        return {one["labels"]["subject"]: (one["labels"]["alertname"], one["endsAt"] <= now) for one in body}


def read_mail(raw: bytes) -> str:
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(mail, email.message.EmailMessage)
    assert mail["Bcc"] is None and mail.get_content_type() == "text/plain" and not mail.defects
    return f"{mail['Subject']}\n{mail.get_content()}".replace("\r\n", "\n")      # as it comes by SMTP


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(web()) for name in HOOKS}
        for name, answer in HOOKS.items():
            servers[name].answers = [(200, answer)]
        mails = stack.enter_context(smtp())
        stand = Stand(tmp_path, monkeypatch)
        stand.nodes({"n1": ["IDLE"], "n2": ["IDLE"]})
        log = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        log.bind(str(tmp_path / "log"))
        log.setblocking(False)
        yield Town(stand, servers, mails, log)


@pytest.mark.deep
def test_begins_lasts_changes_ends_by_every_channel(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.health()
    assert town.stand.run() == 0
    assert {name: len(texts) for name, texts in town.told().items()} == dict.fromkeys(TELLERS, 1)   # it is new
    town.health(n1={"mount": "home is gone"})
    assert town.stand.run() == 1
    for name, texts in town.told().items():
        assert len(texts) == 1 and "n1: drained: mount: home is gone" in texts[0], name
    assert town.alerts() == {"node/n1": ("HpcadminNode", False)}
    assert 'hpcadmin_sweep_node_problem{node="n1",phase="drained",check="health/mount"}' in town.prom.read_text()
    assert town.stand.run() == 1
    assert not any(town.told().values()) and town.alerts() == {"node/n1": ("HpcadminNode", False)}
    town.health(n1={"mount": "home is gone"}, n2={"gpu": "lost"})
    assert town.stand.run() == 1
    for name, texts in town.told().items():
        assert len(texts) == 1 and "n2: drained: gpu: lost" in texts[0] and "n1:" not in texts[0], name
    town.health()
    assert town.stand.run() == 0
    for name, texts in town.told().items():
        assert len(texts) == 1 and "over: n1" in texts[0].replace('"what": "ends"', "over: n1"), name
    assert {subject: over for subject, (_, over) in town.alerts().items()} == {"node/n1": True, "node/n2": True}
    assert "hpcadmin_sweep_node_problem{" not in town.prom.read_text()
    town.servers["alertmanager"].requests.clear()
    assert town.stand.run() == 0
    assert not any(town.told().values()) and town.alerts() == {}
    assert "alarms:" not in capsys.readouterr().err


@pytest.mark.deep
def test_what_was_down_is_told_later_once_and_in_order(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.health()
    town.stand.run()
    town.told()
    for name, server in town.servers.items():
        server.answers = [(200, '{"code":1,"errcode":1}') if name in ("feishu", "dingtalk") else (503, "down")]
    (town.stand.folder / "full").touch()
    capsys.readouterr()
    for bad in ({"n1": {"mount": "first"}}, {"n1": {"mount": "first"}, "n2": {"gpu": "second"}}, {}):
        town.health(**bad)
        town.stand.run()
    errors = capsys.readouterr().err
    down = [*HOOKS, "local"]
    for name in down:
        assert errors.count(f"hpcadmin: alarms: {name} could not tell, and is tried again the next time: ") == 3, errors
    assert "queue full" in errors and "answered 503: down" in errors and "K3Y" not in errors
    # What works has told all, and once which others do not.
    working = town.told()
    assert not working["local"] and [text.count("drained: ") > 0 for text in working["syslog"]].count(True) == 3
    assert sum("the channel slack does not work" in text for text in working["smtp"]) == 1
    assert town.stand.run("alarms") == 4
    assert "answered 503" in capsys.readouterr().out
    for name, server in town.servers.items():
        server.answers = [(200, HOOKS[name])]
    (town.stand.folder / "full").unlink()
    assert town.stand.run("alarms", "--tell") == 0
    later = town.told()
    for name in ("slack", "feishu", "dingtalk", "webhook", "local"):
        assert [bool(one) for one in ("first" in text for text in later[name][:3])] == [True, False, True], name
        assert "second" in later[name][1] and "n2" in later[name][2] and "did not work from" in later[name][0], name
        assert len(later[name]) == 3, later[name]
    assert any("the channel slack did not work" in text for text in later["smtp"])
    assert town.stand.run("alarms", "--tell") == 0
    assert not any(town.told().values())


@pytest.mark.deep
def test_hostile_text_is_text_in_each(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    from prometheus_client.parser import text_string_to_metric_families
    town.health()
    town.stand.run()
    town.told()
    town.health(n1={"mount": EVIL})
    assert town.stand.run() == 1
    told, shown = town.told(), capsys.readouterr()
    assert "alarms:" not in shown.err, shown.err
    for name, texts in told.items():
        assert len(texts) == 1 and "Bcc: all" in texts[0], name
        assert not set(texts[0]) & set("\x1b\x07\x00\r\u202e\u2066"), name
        assert "\\u001b" not in texts[0] and "\\r" not in texts[0], name
    assert not set(shown.out + shown.err) & set("\x1b\x07\x00\r\u202e\u2066")
    assert "<" not in json.loads(told["slack"][0])["text"] and "<" not in told["feishu"][0]
    assert json.loads(told["dingtalk"][0])["at"] == {"atMobiles": [], "atUserIds": [], "isAtAll": False}
    assert not any(line.startswith("Bcc") for line in told["smtp"][0].splitlines())
    for raw in town.stand.folder.glob("hpcadmin.prom"):
        assert list(text_string_to_metric_families(raw.read_text()))
    (alert,) = town.servers["alertmanager"].requests[-1][2]
    assert alert["annotations"]["summary"].isprintable() and "Bcc: all" in alert["annotations"]["summary"]


def test_a_dry_run_tells_nobody(town: Town) -> None:
    town.health(n1={"mount": "gone"})
    assert town.stand.run("--dry-run") == 1
    assert not any(town.told().values()) and not town.alerts() and not town.prom.exists()


@pytest.mark.deep
def test_a_sweep_that_cannot_begin_is_told_at_once(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    town.health()
    town.stand.run()
    town.told()
    ledger = town.stand.folder / "admin" / "sweep" / "ledger.jsonl"
    ledger.write_text("rubbish\n")
    assert town.stand.run() != 0
    assert "Traceback" not in capsys.readouterr().err
    for name, texts in town.told().items():
        assert len(texts) == 1 and "the sweep could not begin" in texts[0], name


def few(stand: Stand, server: Taken, more: str = "") -> None:
    (stand.folder / "site.toml").write_text(
        f'[cluster]\nname = "alpha"\n[sweep]\nhealth_dir = "{stand.folder}/health"\n'
        f'[sweep.alarms.webhook]\nurl = "{server.url}"\n{more}')


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand = Stand(tmp_path, monkeypatch)
    with web() as server:
        few(stand, server)
        assert stand.run("alarms") == 0
        assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["webhook", "webhook", "never"]
        assert stand.run("alarms", "--test") == 0
        assert [body["kind"] for body in server.bodies] == ["test"] and capsys.readouterr() == ("webhook: sent\n", "")
        assert stand.run("alarms", "--test", "--json") == 0
        assert json.loads(capsys.readouterr().out) == [{"name": "webhook", "sent": True, "error": ""}]
        del server.requests[1:]
        assert stand.run("alarms", "--digest") == 0
        assert stand.run("alarms", "--digest") == 0                 # once a day, and once that it is new
        assert [body["kind"] for body in server.bodies[1:]] == ["digest", "digest"]
        server.answers = [(500, "no\x1b[2J room")]
        capsys.readouterr()
        assert stand.run("alarms", "--test") == 4
        host = server.url.removeprefix("http://")
        assert capsys.readouterr().err == f"hpcadmin: alarms: webhook: {host}: answered 500: no\\x1b[2J room\n"
        assert stand.run("alarms", "--json") == 0                   # a test is no telling
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["name"], row["kind"], row["untold"], row["failing_since"]) == ("webhook", "webhook", 0, 0)
        stand.health(n1="gone", n2="")
        assert stand.run() == 1
        capsys.readouterr()
        assert stand.run("alarms", "--json") == 4
        (row,) = json.loads(capsys.readouterr().out)
        assert row["untold"] == 1 and row["failing_since"] > 0
        assert row["error"] == f"{host}: answered 500: no\\x1b[2J room"
        assert stand.run("alarms") == 4
        assert "does not work" in (shown := capsys.readouterr().out) and "since 20" in shown and "\x1b" not in shown
        server.answers = [(200, "ok")]
        server.requests.clear()
        assert stand.run("alarms", "--tell", "--json") == 0
        assert [body["changes"][0]["key"] for body in server.bodies] == ["node/n1"]


def test_without_a_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand = Stand(tmp_path, monkeypatch)
    assert stand.run("alarms", "--json") == 0 and json.loads(capsys.readouterr().out) == []
    for act in ("--test", "--tell"):
        assert stand.run("alarms", act) == 2
        assert capsys.readouterr().err == (f"hpcadmin: {tmp_path}/site.toml: there is no channel "
                                           "([sweep.alarms] names them)\n")
    # The timer of the morning is no failure of a site that wants no channel: it says so.
    assert stand.run("alarms", "--digest", "--json") == 0
    assert "nobody is told" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "site", "said"), [
    (["--tell", "extra"], "", "unexpected extra argument"), (["--never"], "", "No such option"),
    ([], "colour = 1", "site.toml:7: sweep.alarms.webhook.colour is not known"),
    ([], "timeout_s = 500", "site.toml:7: sweep.alarms.webhook.timeout_s must be 0.1 to 120"),
])
@pytest.mark.usefixtures("capsys")           # from the beginning, not from where it is asked
def test_what_is_wrong_is_one_line(argv: list[str], site: str, said: str, tmp_path: Path,
                                   request: pytest.FixtureRequest) -> None:
    stand = Stand(tmp_path, request.getfixturevalue("monkeypatch"))
    with web() as server:
        few(stand, server, f"{site}\n")
        assert stand.run("alarms", *argv) == 2
        assert said in request.getfixturevalue("capsys").readouterr().err and not server.requests


@pytest.mark.deep
def test_a_full_disk_leaves_the_old_textfile(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    disk = town.stand.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode:
        pytest.skip("this user may mount nothing")
    try:
        text = (town.stand.folder / "site.toml").read_text()
        town.site(text.replace(str(town.prom), str(disk / "hpcadmin.prom")))
        town.health()
        assert town.stand.run() == 0
        before = (disk / "hpcadmin.prom").read_bytes()
        with contextlib.suppress(OSError), (disk / "fill").open("wb", buffering=0) as stream:
            while stream.write(b"x" * 4096):
                pass
        town.health(n1={"mount": "gone"})
        capsys.readouterr()
        assert town.stand.run() == 1
        assert (disk / "hpcadmin.prom").read_bytes() == before and {p.name for p in disk.iterdir()} == {
            "hpcadmin.prom", "fill"}
        said = capsys.readouterr().err
        assert "alarms: prometheus could not tell" in said and "No space left" in said
        (disk / "fill").unlink()
        assert town.stand.run("alarms", "--tell") == 0
        assert b'node="n1"' in (disk / "hpcadmin.prom").read_bytes()
    finally:
        subprocess.run(["umount", disk], check=True)
