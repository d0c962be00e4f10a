"""Syslog: the socket of this host, or a server by UDP (RFC 5424). A line a problem; nobody confirms it."""

from __future__ import annotations

import os
import platform
import re
import socket
from dataclasses import dataclass

from hpcadmin.sweep.alarms.model import BEGINS, CHANGES, AlarmError, Channel, Message
from hpcadmin.sweep.alarms.words import lines_of, subject, utc
from hpcadmin.text import plural

MAX_LINES = 200
MAX_BYTES = 1000            # RFC 5426: every receiver takes 480, it should take 2048
_FACILITIES = {"daemon": 3, "user": 1, **{f"local{n}": 16 + n for n in range(8)}}
_WARNING, _NOTICE = 4, 5
_SERVER = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_ODD = re.compile(r"[^!-~]+")


@dataclass(frozen=True)
class Settings:
    socket: str = "/dev/log"
    udp: str = ""                        # host or host:port, instead of the socket
    facility: str = "daemon"


def lines(message: Message) -> list[tuple[int, str]]:
    """(severity, text), each of one line."""
    told = lines_of(message)
    new = f"{subject(message)}"
    bad = any(item.what in (BEGINS, CHANGES) for item in message.items)
    found = [(_WARNING if bad else _NOTICE, new)]
    for line in told[:MAX_LINES]:
        found.append((_WARNING if line.startswith(("new: ", "changed: ")) else _NOTICE, line))
    if len(told) > MAX_LINES:
        found.append((_NOTICE, f"and {plural(len(told) - MAX_LINES, 'more line')}"))
    return found


def local(severity: int, text: str, facility: int) -> bytes:
    """What daemons take on a host's own socket: they add time and host."""
    return _cut(f"<{facility * 8 + severity}>hpcadmin[{os.getpid()}]: {text}".encode("utf-8", "replace"))


def rfc5424(severity: int, text: str, facility: int, message: Message) -> bytes:
    host = _ODD.sub("-", platform.node())[:255] or "-"
    kind = _ODD.sub("-", message.kind)[:32]
    head = f"<{facility * 8 + severity}>1 {utc(message.time)} {host} hpcadmin {os.getpid()} {kind} - "
    return _cut(head.encode() + b"\xef\xbb\xbf" + text.encode("utf-8", "replace"))


def _cut(raw: bytes) -> bytes:
    return raw if len(raw) <= MAX_BYTES else raw[:MAX_BYTES].decode("utf-8", "ignore").encode()


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    facility = _FACILITIES[settings.facility]
    where = settings.udp or settings.socket
    try:
        with _opened(settings) as sock:
            sock.settimeout(timeout_s)
            for severity, text in lines(message):
                sock.send(rfc5424(severity, text, facility, message) if settings.udp else
                          local(severity, text, facility))
    except OSError as exc:
        raise AlarmError(f"could not be used: {exc.strerror or exc}", where=where) from exc
    return ""


def _opened(settings: Settings) -> socket.socket:
    if not settings.udp:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address: object = settings.socket
    else:
        host, port = _host_port(settings.udp)
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        sock = socket.socket(family, kind)
    try:
        sock.connect(address)  # type: ignore[arg-type]  # as getaddrinfo told it
    except OSError:
        sock.close()
        raise
    return sock


def _host_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), 514
    return host.strip("[]"), int(port)


def problem(settings: Settings) -> tuple[str, str] | None:
    if settings.facility not in _FACILITIES:
        return "facility", f"must be one of {', '.join(_FACILITIES)}"
    if settings.udp and (not _SERVER.fullmatch(settings.udp) or not 0 < _host_port(settings.udp)[1] <= 65535):
        return "udp", "must be HOST or HOST:PORT"
    if not settings.socket.startswith("/"):
        return "socket", "must be the whole path of a socket"
    return None


CHANNEL = Channel(Settings, send=send, problem=problem, digest=False)
