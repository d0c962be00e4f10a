"""E-mail: by sendmail -t, or by SMTP with STARTTLS. Recipients are those of site.toml alone."""

from __future__ import annotations

import contextlib
import platform
import re
import smtplib
import ssl
import subprocess
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, localtime

from hpcadmin.sweep.alarms.model import AlarmError, Channel, Message
from hpcadmin.sweep.alarms.secret import one_of, scrubbed, secret
from hpcadmin.sweep.alarms.words import body, subject
from hpcadmin.text import printable

MAX_BYTES = 200_000
_ADDRESS = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{0,63}"
                      r"(@[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)?")
_SERVER = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_PORTS = {"starttls": 587, "implicit": 465, "none": 25}
# A subject of one line stays one: folded at 78 its first line may be "Subject:" and nothing else.
_WIRE = SMTP.clone(max_line_length=300)
_ODD = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True)
class Settings:
    to: tuple[str, ...] = ()
    sender: str = ""                     # "": hpcadmin@ this host
    sendmail: str = "/usr/sbin/sendmail"  # the program, where smtp is not given
    smtp: str = ""                       # host or host:port
    tls: str = "starttls"                # or implicit (port 465), none
    ca_file: str = ""
    user: str = ""
    password_file: str = ""
    password_env: str = ""


def mail_of(settings: Settings, message: Message) -> EmailMessage:
    """Header values are one line each, whatever a node is called: the policy refuses any other."""
    host = _ODD.sub("-", platform.node()).strip("-.") or "localhost"
    mail = EmailMessage(policy=SMTP)
    mail["From"] = settings.sender or f"hpcadmin@{host}"
    mail["To"] = ", ".join(settings.to)
    mail["Subject"] = " ".join(subject(message).split())
    mail["Date"] = format_datetime(localtime())
    mail["Message-ID"] = f"<{_ODD.sub('-', message.id)}@{host}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{body(message, MAX_BYTES)}\n", cte="quoted-printable")
    return mail


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    mail = mail_of(settings, message)
    if settings.smtp:
        return _smtp(settings, mail, timeout_s)
    return _sendmail(settings, mail, timeout_s)


def _sendmail(settings: Settings, mail: EmailMessage, timeout_s: float) -> str:
    """It takes the recipients from the header; -oi: a line with a dot alone ends nothing."""
    argv = [settings.sendmail, "-t", "-oi", *(["-f", settings.sender] if settings.sender else [])]
    try:
        done = subprocess.run(argv, input=mail.as_bytes(policy=_WIRE.clone(linesep="\n")), capture_output=True,
                              timeout=timeout_s, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    except subprocess.TimeoutExpired:
        raise AlarmError(f"did not end within {timeout_s:g} s", where=settings.sendmail) from None
    except OSError as exc:
        raise AlarmError(f"cannot be run: {exc.strerror}", where=settings.sendmail) from exc
    if done.returncode:
        said = printable(" ".join(done.stderr.decode("utf-8", "replace").split()), limit=200)
        raise AlarmError(f"ended with {done.returncode}{f': {said}' if said else ''}", where=settings.sendmail)
    return ""


def _smtp(settings: Settings, mail: EmailMessage, timeout_s: float) -> str:
    host, _, port = settings.smtp.rpartition(":") if not settings.smtp.endswith("]") else (settings.smtp, "", "")
    host, number = (host.strip("[]"), int(port)) if host and port else (settings.smtp.strip("[]"), _PORTS[settings.tls])
    password = secret(settings.password_file, settings.password_env, "password")
    me = platform.node() or "localhost"
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        client = (smtplib.SMTP_SSL(host, number, me, timeout=timeout_s, context=context) if settings.tls == "implicit"
                  else smtplib.SMTP(host, number, me, timeout=timeout_s))
        try:
            if settings.tls == "starttls":
                client.starttls(context=context)
            if settings.user:
                client.login(settings.user, password)
            refused = client.sendmail(str(mail["From"]), list(settings.to), mail.as_bytes(policy=_WIRE))
        finally:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                client.quit()
    except smtplib.SMTPRecipientsRefused as exc:
        raise AlarmError(f"refused every recipient: {_codes(exc.recipients, password)}", where=settings.smtp) from None
    except (OSError, smtplib.SMTPException, ValueError) as exc:
        why = "no answer in time" if isinstance(exc, TimeoutError) else str(exc) or type(exc).__name__
        raise AlarmError(f"could not be used: {printable(scrubbed(why, password), limit=200)}",
                         where=settings.smtp) from None
    return f"{settings.smtp} refused {_codes(refused, password)}" if refused else ""


def _codes(refused: dict[str, tuple[int, bytes]], password: str) -> str:
    told = "; ".join(f"{name} {code} {text.decode('utf-8', 'replace')}" for name, (code, text) in refused.items())
    return printable(scrubbed(" ".join(told.split()), password), limit=300)


def problem(settings: Settings) -> tuple[str, str] | None:
    if not settings.to or len(settings.to) > 100:
        return "to", "must be a list of 1 to 100 addresses"
    for key, addresses in (("to", settings.to), ("sender", (settings.sender,) if settings.sender else ())):
        if any(not _ADDRESS.fullmatch(one) for one in addresses):
            return key, "must be mail addresses, without names or brackets"
    if settings.tls not in _PORTS:
        return "tls", f"must be one of {', '.join(_PORTS)}"
    if settings.smtp and (not _SERVER.fullmatch(settings.smtp) or int(f"0{settings.smtp.rpartition(':')[2]}"
                          if settings.smtp.rpartition(":")[2].isdigit() else 0) > 65535):
        return "smtp", "must be HOST or HOST:PORT"
    if not settings.smtp and not settings.sendmail.startswith("/"):
        return "sendmail", "must be the whole path of a program"
    if bool(settings.user) != bool(settings.password_file or settings.password_env):
        return "user", "needs password_file or password_env, and these need user"
    if not one_of(settings.password_file, settings.password_env):
        return "password_file", "and password_env: only one of them"
    if settings.user and (settings.tls == "none" or not settings.smtp):
        return "user", "and its password are sent by SMTP with TLS only"
    return None


CHANNEL = Channel(Settings, send=send, problem=problem)
