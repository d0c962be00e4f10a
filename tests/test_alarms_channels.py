"""Each channel against a real server on the loopback: what arrives, what hostile text becomes, what an error says."""

from __future__ import annotations

import email
import email.policy
import hashlib
import hmac
import json
import os
import socket
import ssl
import subprocess
from base64 import b64encode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from hpcadmin.records import dumps
from hpcadmin.sweep.alarms.channels import alertmanager, dingtalk, feishu, mail, prometheus, slack, syslog, webhook
from hpcadmin.sweep.alarms.model import AlarmError, Facts, Health, Message, State
from hpcadmin.sweep.model import Change, Problem
from tests.alarm_servers import smtp, web

EVIL = ('n01\r\nBcc: all@example.org\r\n\r\n<!channel> <at user_id="all"></at> <@U1> @all & <script>alert(1)</script>'
        '\x1b[31m\u202e *bold* `x` http://evil.example "q" \\ \x00\n.\n')
MESSAGE = Message("s1.3.ops", "changes", 1_790_000_000.0, "alpha", "s1", (
    Change("begins", Problem("node/n01", "drained x", f"n01: drained: {EVIL}", "n01", ("health/mount",), 1.0)),
    Change("ends", Problem("node/n02", "drained x", "n02: drained: gpu", "n02", ("health/gpu",), 1_789_900_000.0)),
), ("2 nodes drained: n[01-02]",))


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, str(cert)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def secret_file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return str(path)


def test_webhook(tmp_path: Path) -> None:
    with web() as server:
        settings = webhook.Settings(url=f"{server.url}/x", token_file=secret_file(tmp_path, "t", "T0KEN"))
        webhook.send(settings, MESSAGE, 5)
        path, headers, body = server.requests[0]
    assert (path, headers["Authorization"]) == ("/x", "Bearer T0KEN")
    assert body["id"] == "s1.3.ops" and body["changes"][0]["what"] == "begins" and body["changes"][0]["node"] == "n01"
    assert "\n" not in body["subject"] and all("\n" not in line and "\x1b" not in line for line in body["lines"])


def test_slack(tmp_path: Path) -> None:
    with web() as server:
        slack.send(slack.Settings(url_file=secret_file(tmp_path, "u", f"{server.url}/services/T/B/X")), MESSAGE, 5)
        body = server.bodies[0]
    assert "<" not in body["text"] and ">" not in body["text"] and "&lt;!channel&gt;" in body["text"]
    assert body["mrkdwn"] is False and body["link_names"] is False and body["parse"] == "none"


def test_feishu_signature(tmp_path: Path) -> None:
    with web() as server:
        server.answers = [(200, '{"code":0,"msg":"success","data":{}}')]
        feishu.send(feishu.Settings(url_file=secret_file(tmp_path, "u", f"{server.url}/open-apis/bot/v2/hook/abc"),
                                    secret_file=secret_file(tmp_path, "s", "SEKRET")), MESSAGE, 5)
        body = server.bodies[0]
    wanted = b64encode(hmac.new(f"{body['timestamp']}\nSEKRET".encode(), digestmod=hashlib.sha256).digest()).decode()
    assert body["sign"] == wanted
    text = json.dumps(body, ensure_ascii=False)
    assert "<" not in text and body["msg_type"] == "post"
    parts = body["content"]["post"]["en_us"]["content"]
    assert all(part["tag"] == "text" and part["un_escape"] is False for line in parts for part in line)


def test_dingtalk_signature(tmp_path: Path) -> None:
    with web() as server:
        server.answers = [(200, '{"errcode":0,"errmsg":"ok"}')]
        address = f"{server.url}/robot/send?access_token=TOK"
        dingtalk.send(dingtalk.Settings(url_file=secret_file(tmp_path, "u", address), keyword="cluster",
                                        secret_file=secret_file(tmp_path, "s", "SECabc")), MESSAGE, 5)
        path, _, body = server.requests[0]
    query = parse_qs(urlsplit(path).query)
    moment = query["timestamp"][0]
    told = hmac.new(b"SECabc", f"{moment}\nSECabc".encode(), hashlib.sha256).digest()
    assert query["sign"] == [b64encode(told).decode()] and query["access_token"] == ["TOK"] and len(moment) == 13
    assert body["at"] == {"atMobiles": [], "atUserIds": [], "isAtAll": False}
    assert body["text"]["content"].startswith("cluster hpcadmin alpha")


@pytest.mark.parametrize("text", ["<" * 280, "\u4e2d" * 90, "x", "\u00e9" * 200, '"\\' * 140])
@pytest.mark.parametrize(("make", "most"), [
    (lambda message: feishu.fitting(message, 1, "k"), 20_000), (lambda message: dingtalk.plain(message, ""), 20_000),
    (slack.plain, 40_000),
])
def test_a_request_has_the_size_that_is_taken(make, most: int, text: str) -> None:
    items = tuple(Change("begins", Problem(f"node/n{i}", "", f"n{i}: {text}", f"n{i}")) for i in range(2000))
    message = Message("i", "changes", 1.0, "alpha", "s1", items)
    assert len(dumps(make(message)).encode()) <= most
    assert "more lines: hpcadmin sweep show s1" in dumps(make(message))


@pytest.mark.parametrize(("module", "answer"), [
    (feishu, '{"code":19021,"msg":"sign match fail SEKRET"}'), (feishu, "<html>"), (feishu, "[]"), (feishu, "{}"),
    (feishu, '{"code":false}'), (dingtalk, '{"errcode":310000,"errmsg":"keywords not in content SEKRET"}'),
])
def test_an_answer_that_is_no_yes(module, answer: str, tmp_path: Path) -> None:
    with web() as server:
        server.answers = [(200, answer)]
        settings = module.Settings(url_file=secret_file(tmp_path, "u", f"{server.url}/hook/K3Y"),
                                   secret_file=secret_file(tmp_path, "s", "SEKRET"))
        with pytest.raises(AlarmError) as caught:
            module.send(settings, MESSAGE, 5)
    assert "SEKRET" not in str(caught.value) and "K3Y" not in str(caught.value)


def test_what_is_for_this_host_goes_to_no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A proxy would read the token of what may go without TLS because it does not leave the host."""
    monkeypatch.setenv("TOKEN", "T0P")
    with web() as server, web() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        webhook.send(webhook.Settings(url=server.url, token_env="TOKEN"), MESSAGE, 5)
        assert len(server.bodies) == 1 and proxy.bodies == []


@pytest.mark.parametrize("status", [301, 307, 400, 403, 404, 429, 500])
def test_no_redirect_is_followed_and_no_address_told(status: int, tmp_path: Path) -> None:
    with web() as server:
        server.headers = {"Location": "/elsewhere"}
        server.answers = [(status, "no: /hook/K3Y?access_token=TOK T0KEN\n\x1b[2J")]
        settings = webhook.Settings(url_env="HOOK", token_env="TOKEN")
        os.environ.update(HOOK=f"{server.url}/hook/K3Y?access_token=TOK", TOKEN="T0KEN")
        try:
            with pytest.raises(AlarmError, match=str(status)) as caught:
                webhook.send(settings, MESSAGE, 5)
        finally:
            del os.environ["HOOK"], os.environ["TOKEN"]
        assert len(server.requests) == 1
    assert "\x1b" not in str(caught.value) and "TOK" not in str(caught.value)
    assert "K3Y" not in str(caught.value) and "T0KEN" not in str(caught.value)


def test_tls_is_verified(tls: tuple[ssl.SSLContext, str]) -> None:
    context, ca_file = tls
    with web(context) as server:
        with pytest.raises(AlarmError, match="certificate"):
            webhook.send(webhook.Settings(url=server.url), MESSAGE, 5)
        with pytest.raises(AlarmError, match="certificate"):
            webhook.send(webhook.Settings(url=server.url.replace("localhost", "127.0.0.1"), ca_file=ca_file),
                         MESSAGE, 5)
        webhook.send(webhook.Settings(url=server.url, ca_file=ca_file), MESSAGE, 5)
        assert len(server.requests) == 1


def test_a_server_that_is_slow_or_away() -> None:
    with web() as server:
        server.delay_s = 1.0
        with pytest.raises(AlarmError, match="no answer in time"):
            webhook.send(webhook.Settings(url=server.url), MESSAGE, 0.2)
    with pytest.raises(AlarmError, match="refused"):
        webhook.send(webhook.Settings(url=server.url), MESSAGE, 1)


@pytest.mark.parametrize("url", ["ftp://h/x", "file:///etc/passwd", "http://h.example/x", "https://u:p@h/x", "https://",
                                 "https://h/x y", "https://h:0/", "https://h:99999/", "x", "https://h/\n", "https://h/#a"])
def test_addresses_that_are_none(url: str) -> None:
    assert webhook.problem(webhook.Settings(url=url))
    with pytest.raises(AlarmError):
        webhook.send(webhook.Settings(url=url), MESSAGE, 1)


def test_secrets_are_only_for_their_owner(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "u", "https://h/x")
    Path(path).chmod(0o644)
    with pytest.raises(AlarmError, match="everybody"):
        slack.send(slack.Settings(url_file=path), MESSAGE, 1)
    with pytest.raises(AlarmError, match="cannot be read"):
        slack.send(slack.Settings(url_file=f"{path}.not"), MESSAGE, 1)
    with pytest.raises(AlarmError, match="NOT_SET"):
        slack.send(slack.Settings(url_env="NOT_SET"), MESSAGE, 1)
    assert slack.CHANNEL.problem(slack.Settings(url="https://hooks.slack.com/services/x")) == (
        "url", "holds a secret: put it into a file (chmod 600), and name that as url_file")


def parsed(raw: bytes) -> email.message.EmailMessage:
    found = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(found, email.message.EmailMessage)
    return found


def test_mail_by_smtp_with_starttls(tls: tuple[ssl.SSLContext, str], tmp_path: Path) -> None:
    context, ca_file = tls
    with smtp(context, auth=True) as server:
        settings = mail.Settings(("a@example.org", "root"), "hpc@example.org", smtp=server.where, ca_file=ca_file,
                                 user="me", password_file=secret_file(tmp_path, "p", "PASS"))
        assert mail.problem(settings) is None
        assert mail.send(settings, MESSAGE, 5) == ""
    sender, to, raw = server.mails[0]
    assert server.secured and "hpc@example.org" in sender and len(to) == 2
    got = parsed(raw)
    assert set(got.keys()) == {"From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version",
                               "Content-Type", "Content-Transfer-Encoding"}
    assert got["Bcc"] is None and got["To"] == "a@example.org, root"
    text = got.get_content()
    assert "<script>alert(1)</script>" in text and "\x1b" not in text and "\u202e" not in text and "over: n02" in text
    assert got.get_content_type() == "text/plain" and "2 nodes drained: n[01-02]" in text


def test_a_subject_stays_one_line() -> None:
    one = Message(MESSAGE.id, "changes", 1.0, f"al\r\nBcc: x\r\n{EVIL}", "s1", MESSAGE.items[:1])
    raw = mail.mail_of(mail.Settings(("a@b.example",)), one).as_bytes()
    head = raw.split(b"\r\n\r\n")[0].decode()
    assert not [line for line in head.split("\r\n") if line.lower().startswith(("bcc", "<", "."))]
    assert parsed(raw)["Bcc"] is None


def test_a_subject_is_not_folded(tmp_path: Path) -> None:
    """Its first line was empty: no place before the 78th column where it could be cut."""
    problem = Problem("node/n1", "drained", "node06: drained: file:nologin: /run/nologin is there", "node06")
    one = Message("s1.1.mail", "changes", 1.0, "hpcweek", "s1", (Change("ends", problem),), ())
    line = b"Subject: hpcadmin hpcweek: over: node06: drained: file:nologin: /run/nologin is there"
    with smtp() as server:
        mail.send(mail.Settings(("a@b.example",), smtp=server.where, tls="none"), one, 5)
    assert line in server.mails[0][2].split(b"\r\n")
    program, kept = tmp_path / "sendmail", tmp_path / "kept"
    program.write_text(f"#!/bin/sh\ncat >{kept}\n")
    program.chmod(0o755)
    mail.send(mail.Settings(("a@b.example",), sendmail=str(program)), one, 5)
    assert line in kept.read_bytes().split(b"\n")


def test_mail_without_tls_is_not_sent(tls: tuple[ssl.SSLContext, str]) -> None:
    with smtp() as server, pytest.raises(AlarmError, match="STARTTLS"):
        mail.send(mail.Settings(("a@b.example",), smtp=server.where), MESSAGE, 5)
    assert not server.mails
    with smtp(tls[0]) as server, pytest.raises(AlarmError, match="certificate"):
        mail.send(mail.Settings(("a@b.example",), smtp=server.where), MESSAGE, 5)
    assert not server.mails


def test_mail_some_refused_all_refused_silent(tmp_path: Path) -> None:
    with smtp(refuse=("gone@",)) as server:
        settings = mail.Settings(("a@b.example", "gone@b.example"), smtp=server.where, tls="none")
        assert "gone@b.example 550" in mail.send(settings, MESSAGE, 5) and len(server.mails) == 1
    with smtp(refuse=("@",)) as server, pytest.raises(AlarmError, match="every recipient"):
        mail.send(mail.Settings(("a@b.example",), smtp=server.where, tls="none"), MESSAGE, 5)
    with smtp(silent=True) as server, pytest.raises(AlarmError, match="timed out"):
        mail.send(mail.Settings(("a@b.example",), smtp=server.where, tls="none"), MESSAGE, 0.2)


def test_a_password_is_in_no_error(tls: tuple[ssl.SSLContext, str], tmp_path: Path) -> None:
    context, ca_file = tls
    with smtp(context, auth=True, refuse=("AUTH",)) as server, pytest.raises(AlarmError) as caught:
        mail.send(mail.Settings(("a@b.example",), smtp=server.where, ca_file=ca_file, user="me",
                                password_file=secret_file(tmp_path, "p", "PASSWORD-X")), MESSAGE, 5)
    assert "PASSWORD-X" not in str(caught.value) and b64encode(b"\0me\0PASSWORD-X").decode() not in str(caught.value)


def test_sendmail(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/args\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    mail.send(mail.Settings(("root",), "hpc@b.example", sendmail=str(program)), MESSAGE, 5)
    assert (tmp_path / "args").read_text().split() == ["-t", "-oi", "-f", "hpc@b.example"]
    raw = (tmp_path / "mail").read_bytes()
    assert b"\r" not in raw and parsed(raw)["To"] == "root" and parsed(raw)["Bcc"] is None
    program.write_text("#!/bin/sh\necho queue full >&2\nexit 75\n")
    with pytest.raises(AlarmError, match="ended with 75: queue full"):
        mail.send(mail.Settings(("root",), sendmail=str(program)), MESSAGE, 5)
    program.write_text("#!/bin/sh\nexec sleep 5\n")
    with pytest.raises(AlarmError, match="did not end"):
        mail.send(mail.Settings(("root",), sendmail=str(program)), MESSAGE, 0.2)
    with pytest.raises(AlarmError, match="cannot be run"):
        mail.send(mail.Settings(("root",), sendmail=str(tmp_path / "none")), MESSAGE, 5)


@pytest.mark.parametrize("to", ["-oQ/tmp@x.example", "a b@x", "a@x\nBcc: b@y", "A <a@x.example>", "", "a@@x", "a@-x"])
def test_recipients_that_are_none(to: str) -> None:
    assert mail.problem(mail.Settings((to,))) == ("to", "must be mail addresses, without names or brackets")


@pytest.mark.parametrize(("key", "settings"), [
    ("to", mail.Settings()), ("tls", mail.Settings(("a",), tls="ssl")), ("smtp", mail.Settings(("a",), smtp="h:99999")),
    ("smtp", mail.Settings(("a",), smtp="h x")), ("sendmail", mail.Settings(("a",), sendmail="sendmail")),
    ("user", mail.Settings(("a",), smtp="h", user="u")), ("user", mail.Settings(("a",), password_file="/x")),
    ("user", mail.Settings(("a",), smtp="h", tls="none", user="u", password_file="/x")),
    ("user", mail.Settings(("a",), user="u", password_file="/x")),
    ("password_file", mail.Settings(("a",), smtp="h", user="u", password_file="/x", password_env="X")),
])
def test_mail_settings_that_do_not_fit(key: str, settings: mail.Settings) -> None:
    found = mail.problem(settings)
    assert found is not None and found[0] == key


def test_syslog_local(tmp_path: Path) -> None:
    place = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(place)
        syslog.send(syslog.Settings(socket=place), MESSAGE, 2)
        got = [server.recv(4096) for _ in range(4)]
    assert got[0].startswith(b"<28>hpcadmin[") and b"2 problems" not in got[0]
    assert sum(b"Bcc" in one for one in got) == 1 and not any(b"\n" in one or b"\x1b" in one for one in got)
    assert any(one.startswith(b"<29>") and b"over: n02" in one for one in got)
    with pytest.raises(AlarmError, match="could not be used"):
        syslog.send(syslog.Settings(socket=f"{place}.not"), MESSAGE, 2)


def test_syslog_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        syslog.send(syslog.Settings(udp=f"127.0.0.1:{server.getsockname()[1]}", facility="local3"), MESSAGE, 2)
        got = [server.recv(4096) for _ in range(4)]
    version, time, host, app, _, what, data = got[0].split(b" ")[:7]
    assert (version, app, what, data) == (b"<156>1", b"hpcadmin", b"changes", b"-") and host and time.endswith(b"Z")
    assert b"- \xef\xbb\xbfhpcadmin alpha" in got[0] and all(len(one) <= 1000 and b"\n" not in one for one in got)
    assert len(syslog.rfc5424(4, "\u00e9" * 4000, 3, MESSAGE)) <= 1000


def many(count: int) -> dict[str, Problem]:
    found = {f"node/n{i:04}": Problem(f"node/n{i:04}", "drained health/gpu", "x", f"n{i:04}", ("health/gpu",), 5.0)
             for i in range(count)}
    found['node/n"\\\n{}'] = Problem('node/n"\\\n{}', "held x", EVIL, 'n"\\\n{}', ('health/"evil"\n}',), 6.0)
    found["new kind/x"] = Problem("new kind/x", "z", "t")
    return found


def state(count: int = 3, **more: object) -> State:
    return State(100.0, "alpha", many(count), ("node/gone",), ("n1",), 10.0, 20.0, True, 1, {("drain", "done"): 4},
                 Facts("s1", 15.0, {"IDLE": 3, "NEWSTATE": 2}, {"DRAIN": 1, "ODD": 7}, {"pending_jobs": 4.0}),
                 (Health("mail", "mail", 5.0, 7.0, "x"),), **more)      # type: ignore[arg-type]


def test_textfile_is_sound_and_bounded(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families
    path = tmp_path / "hpcadmin.prom"
    prometheus.show(prometheus.Settings(str(path)), state(5000), 1)
    families = {one.name: one for one in text_string_to_metric_families(path.read_text())}
    assert len(families["hpcadmin_sweep_node_problem"].samples) == 200
    assert families["hpcadmin_sweep_node_problems_left_out"].samples[0].value == 4801
    nodes = {sample.labels["state"]: sample.value for sample in families["hpcadmin_sweep_nodes"].samples}
    assert nodes["idle"] == 3 and nodes["other"] == 2 and nodes["down"] == 0
    kinds = {sample.labels["kind"]: sample.value for sample in families["hpcadmin_sweep_problems"].samples}
    assert kinds["node"] == 5001 and kinds["other"] == 1 and kinds["slurm"] == 0
    assert sum(len(one.samples) for one in families.values()) < 320
    assert oct(path.stat().st_mode & 0o777) == "0o644" and [p.name for p in tmp_path.iterdir()] == ["hpcadmin.prom"]
    with pytest.raises(AlarmError):
        prometheus.show(prometheus.Settings(str(tmp_path / "no" / "x.prom")), state(), 1)


def test_textfile_labels_of_hostile_names(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families
    path = tmp_path / "hpcadmin.prom"
    prometheus.show(prometheus.Settings(str(path)), state(0), 1)
    found = [sample for one in text_string_to_metric_families(path.read_text()) for sample in one.samples
             if sample.name == "hpcadmin_sweep_node_problem"]
    assert [sample.labels["node"] for sample in found] == ['n"\\\\x0a{}']


def test_alertmanager() -> None:
    with web() as server:
        alertmanager.show(alertmanager.Settings(url=f"{server.url}/am/"), state(), 5)
        path, _, body = server.requests[0]
    assert path == "/am/api/v2/alerts"
    by = {one["labels"]["subject"]: one for one in body}
    assert by["node/gone"]["endsAt"] == "1970-01-01T00:01:40.000Z"
    assert by["node/n0000"]["endsAt"] == "1970-01-02T06:01:40.000Z"
    assert by["node/n0000"]["startsAt"] == "1970-01-01T00:00:05.000Z"
    assert by["node/n0000"]["labels"] == {"alertname": "HpcadminNode", "source": "hpcadmin", "severity": "warning",
                                          "cluster": "alpha", "subject": "node/n0000", "node": "n0000"}
    assert all(isinstance(value, str) for one in body for value in one["labels"].values())


def test_an_alert_ends_by_the_labels_that_it_began_with() -> None:
    kept = {"node/n1": Problem("node/n1", "drained a", "old text", "n1", ("a",), 5.0)}
    begun = alertmanager.alerts(State(100.0, "alpha", kept), 30)
    over = alertmanager.alerts(State(200.0, "alpha", {}, ("node/n1",)), 30)
    assert begun[0]["labels"] == over[0]["labels"] and over[0]["endsAt"] == "1970-01-01T00:03:20.000Z"
    assert over[0]["startsAt"] <= over[0]["endsAt"]


def test_what_is_critical_is_among_the_alerts_that_are_sent() -> None:
    """After a night on which most nodes were bad, all of them are over at once."""
    over = tuple(f"node/n{i}" for i in range(alertmanager.MAX_ALERTS))
    problems = {key: Problem(key, "x", "text", since=1e9) for key in ("act/n1", "node/n9999", "slurm")}
    found = alertmanager.alerts(State(1e9, "alpha", problems, over), 30)
    assert len(found) == alertmanager.MAX_ALERTS
    assert [alert["labels"]["subject"] for alert in found[:4]] == ["slurm", "act/n1", "node/n9999", "node/n0"]
