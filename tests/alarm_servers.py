"""Servers that take what alarms send: HTTP, SMTP with STARTTLS, datagrams. On the loopback, or within a lab's reach."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Taken:
    """What came: (path, headers, body). answers: what is said to each request, the last one for all that follow."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=lambda: [(200, "ok")])
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip: bool = False

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]


@contextlib.contextmanager
def web(context: ssl.SSLContext | None = None, host: str = "", port: int = 0) -> Iterator[Taken]:
    taken = Taken()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            taken.requests.append((self.path, dict(self.headers), json.loads(raw)))
            status, text = taken.answers.pop(0) if len(taken.answers) > 1 else taken.answers[0]
            time.sleep(taken.delay_s)
            self.send_response(status)
            for name, value in taken.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            with contextlib.suppress(OSError):
                for char in text if taken.drip else [text]:
                    self.wfile.write(char.encode())
                    if taken.drip:
                        self.wfile.flush()
                        time.sleep(0.2)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host or "127.0.0.1", port), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    taken.url = f"http{'s' if context else ''}://{host or 'localhost'}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Mails:
    """context: for STARTTLS, None: it is not offered. refuse: recipients that are not taken."""

    where: str = ""
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    secured: bool = False
    refuse: tuple[str, ...] = ()
    context: ssl.SSLContext | None = None
    auth: bool = False
    silent: bool = False


def _talk(client: socket.socket, told: Mails) -> None:
    stream = client.makefile("rwb")

    def say(text: str) -> None:
        stream.write(text.encode() + b"\r\n")
        stream.flush()

    if told.silent:
        time.sleep(2)
        return
    say("220 test ESMTP")
    sender, to = "", []
    while line := stream.readline().decode("latin-1").strip():
        told.lines.append(line)
        word = line.upper()
        if word.startswith("EHLO"):
            say("250-test")
            if told.context is not None and not told.secured:
                say("250-STARTTLS")
            say("250 AUTH PLAIN LOGIN" if told.auth else "250 SIZE 1000000")
        elif word == "STARTTLS" and told.context is not None:
            say("220 go")
            client = told.context.wrap_socket(client, server_side=True)
            stream, told.secured = client.makefile("rwb"), True
        elif word.startswith("AUTH PLAIN"):
            say("235 yes" if told.auth and told.refuse != ("AUTH",) else f"535 no {line.split()[-1]}")
        elif word.startswith("MAIL"):
            sender = line
            say("250 ok")
        elif word.startswith("RCPT"):
            bad = any(one in line for one in told.refuse)
            say("550 no such user" if bad else "250 ok")
            to += [] if bad else [line]
        elif word == "DATA":
            say("354 go")
            data = b""
            while (part := stream.readline()) not in (b".\r\n", b""):
                data += part
            told.mails.append((sender, to, data))
            say("250 taken")
        elif word == "QUIT":
            say("221 bye")
            return
        else:
            say("250 ok")


@contextlib.contextmanager
def smtp(context: ssl.SSLContext | None = None, host: str = "", port: int = 0, **how: Any) -> Iterator[Mails]:
    server = socket.create_server((host or "127.0.0.1", port))
    told = Mails(f"{host or 'localhost'}:{server.getsockname()[1]}", context=context, **how)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, contextlib.suppress(OSError):
                    _talk(client, told)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield told
    finally:        # a thread that still waits for a client would take one of the next test's
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(0 if told.silent else 5)
