"""Commands over ssh, with fabric (half a second to import: import this module when it is used).

Host keys must be known: nothing is added, nothing is overlooked. fabric sets AutoAddPolicy and loads no known_hosts;
both are undone here, on every connection and on every jump host on the way.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import shlex
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fabric
import paramiko

from hpcadmin.errors import UsageError
from hpcadmin.remote import ssh_config
from hpcadmin.remote.base import DEFAULT_LIMIT, PIECE, CommandResult
from hpcadmin.remote.known_hosts import KnownHosts, load
from hpcadmin.site import Ssh
from hpcadmin.text import printable

CONNECT_S = 10.0
_GLOBAL_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-]+\Z")
_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512",
              "rsa-sha2-256", "ssh-rsa")

# paramiko logs what it raises as well; one line for each host is enough.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class HostKeyError(paramiko.SSHException):
    """The host did not show a key that is known for it."""


class KnownKeysPolicy(paramiko.RejectPolicy):
    """Rejects every key but those that known_hosts has for the host. The client holds no keys of its own, so that this
    policy is asked for every connection."""

    def __init__(self, known: KnownHosts, name: str, port: int) -> None:
        self.keys = known.keys(name, port)
        self.revoked = known.revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # type: ignore[override]
        shown = (key.get_name(), key.get_base64())
        if shown in self.revoked:
            raise HostKeyError("its host key is revoked in known_hosts")
        if shown in self.keys:
            return
        print_ = f"{shown[0]} {_fingerprint(shown[1])}"
        if self.keys:
            raise HostKeyError(f"its host key has CHANGED: it shows {print_}, which is not the one in known_hosts "
                               "(reinstalled, or another machine answers)")
        raise HostKeyError(f"its host key is not known: it shows {print_}; check it and add it to known_hosts")

    def unwanted_types(self) -> list[str]:
        """Key types to leave out, so that a host with several keys shows the one that is known."""
        types = {kind for kind, _ in self.keys}
        if "ssh-rsa" in types:
            types |= {"rsa-sha2-512", "rsa-sha2-256"}
        return [kind for kind in _KEY_TYPES if kind not in types] if types.intersection(_KEY_TYPES) else []


class SshRemote:
    """One connection a host, opened for a command and closed after it; jump hosts are connected to once."""

    def __init__(self, settings: Ssh) -> None:
        """Raises UsageError when the ssh_config that the site names cannot be read."""
        self._settings = settings
        self._known: dict[tuple[str, ...], KnownHosts] = {}
        self._jumps: dict[str, tuple[fabric.Connection, threading.Lock]] = {}
        self._lock = threading.RLock()
        try:
            parsed = paramiko.SSHConfig.from_text(ssh_config.read(settings.config))
        except paramiko.SSHException as exc:
            raise UsageError(f"ssh_config: {exc}", where=settings.config or None) from exc
        # lazy: fabric's own configuration files, which may hold Python, are not for us.
        self._config = fabric.Config(lazy=True, ssh_config=parsed)

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = DEFAULT_LIMIT) -> CommandResult:
        start = time.monotonic()
        connection: fabric.Connection | None = None
        try:
            connection = self._connection(host, timeout_s)
            self._open(connection)
            channel = connection.transport.open_session(timeout=max(0.5, start + timeout_s - time.monotonic()))
            channel.set_combine_stderr(True)
            channel.exec_command(command_line(argv))
            found = _exchange(channel, stdin, start + timeout_s, limit)
            error = f"did not end within {timeout_s:g} s" if found.timed_out else found.error
            return replace(found, host=host, error=error, seconds=time.monotonic() - start)
        except (OSError, EOFError, ValueError, paramiko.SSHException) as exc:
            return CommandResult(host, error=_explain(exc, connection, timeout_s), seconds=time.monotonic() - start,
                                 timed_out=isinstance(exc, TimeoutError))
        finally:
            if connection is not None:
                connection.client.close()

    def close(self) -> None:
        for connection, _ in self._jumps.values():
            connection.client.close()

    def _connection(self, host: str, timeout_s: float) -> fabric.Connection:
        settings = self._settings
        connection = fabric.Connection(host, user=settings.user or None, port=settings.port, config=self._config,
                                       gateway=False, connect_timeout=max(1, int(min(CONNECT_S, timeout_s))),
                                       connect_kwargs={})
        options = connection.ssh_config
        jump, command = settings.jump or options.get("proxyjump", "none"), options.get("proxycommand", "none")
        if jump.lower() != "none":
            connection.gateway = self._jump(jump, timeout_s)
        elif command.lower() != "none":
            connection.gateway = command
        self._prepare(connection, timeout_s)
        return connection

    def _jump(self, chain: str, timeout_s: float) -> fabric.Connection:
        """The last host of a chain user@host:port,…, each reached through the one before it."""
        hops = [hop.strip() for hop in chain.split(",") if hop.strip()]
        before: fabric.Connection | bool = False
        with self._lock:
            for number, hop in enumerate(hops):
                name = ",".join(hops[: number + 1])
                if name not in self._jumps:
                    made = fabric.Connection(hop, config=self._config, gateway=before, connect_kwargs={},
                                             connect_timeout=max(1, int(min(CONNECT_S, timeout_s))))
                    self._prepare(made, timeout_s)
                    self._jumps[name] = (made, threading.Lock())
                before = self._jumps[name][0]
        return before

    def _prepare(self, connection: fabric.Connection, timeout_s: float) -> None:
        """Keys to log in with, keys to be shown, and time-outs."""
        options = connection.ssh_config
        wanted = [self._settings.identity] if self._settings.identity else list(options.get("identityfile", []))
        files = [path for path in (Path(name).expanduser() for name in wanted) if path.is_file()]
        policy = KnownKeysPolicy(self._known_hosts(options), options.get("hostkeyalias", connection.host),
                                 connection.port)
        connection.client.set_missing_host_key_policy(policy)
        step = min(CONNECT_S, timeout_s)
        connection.connect_kwargs = {
            "key_filename": [str(path) for path in files], "look_for_keys": not wanted,
            "allow_agent": options.get("identitiesonly", "no") != "yes", "banner_timeout": step, "auth_timeout": step,
            "channel_timeout": step, "disabled_algorithms": {"keys": policy.unwanted_types()},
        }

    def _known_hosts(self, options: Any) -> KnownHosts:
        named = [*options.get("userknownhostsfile", _USER_FILES).split(),
                 *options.get("globalknownhostsfile", _GLOBAL_FILES).split(), *self._settings.known_hosts]
        files = tuple(str(Path(name.strip('"')).expanduser()) for name in named)
        with self._lock:
            if files not in self._known:
                self._known[files] = load(Path(name) for name in files)
            return self._known[files]

    def _open(self, connection: fabric.Connection) -> None:
        gateway = connection.gateway
        if gateway and not isinstance(gateway, str):
            lock = next(lock for jump, lock in self._jumps.values() if jump is gateway)
            with lock:
                if not gateway.is_connected:
                    try:
                        self._open(gateway)
                    except (OSError, EOFError, paramiko.SSHException) as exc:
                        reason = _explain(exc, gateway, CONNECT_S)
                        raise paramiko.SSHException(f"jump host {gateway.original_host}: {reason}") from exc
        connection.open()


def command_line(argv: Sequence[str]) -> str:
    """argv for whatever login shell there is: sh, csh and fish read plain words, and text in single quotes without
    quotes, `!` and line ends in it, the same way. Anything else is written in octal for /bin/sh to read."""
    if all(_PLAIN.match(word) for word in argv):
        return "exec " + " ".join(argv)
    octal = "".join(f"\\0{byte:03o}" for byte in shlex.join(argv).encode("utf-8", "surrogateescape"))
    return f"""exec /bin/sh -c 'eval "$(printf %b "{octal}")"'"""


def _exchange(channel: paramiko.Channel, stdin: bytes, end: float, limit: int) -> CommandResult:
    """Feeds the command, then reads piece by piece until it ends, says too much, or takes too long."""
    pieces: list[bytes] = []
    size, error, timed_out = 0, "", False
    try:
        channel.settimeout(max(0.1, end - time.monotonic()))
        channel.sendall(stdin)
        channel.shutdown_write()
    except OSError:
        pass                     # it reads nothing (a login shell that only says goodbye): what it printed tells why
    while True:
        channel.settimeout(max(0.05, end - time.monotonic()))
        try:
            piece = channel.recv(PIECE)
        except TimeoutError:
            piece = b""
            timed_out = True
        if not piece:
            break
        pieces.append(piece[: limit - size])
        size += len(pieces[-1])
        if size >= limit:
            error = f"printed more than {limit} bytes: cut off"
            break
        timed_out = time.monotonic() > end
        if timed_out:
            break
    status: int | None = None
    if not error and not timed_out:
        channel.status_event.wait(max(0.1, min(5.0, end - time.monotonic())))
        status = channel.exit_status if channel.exit_status >= 0 else None
        error = "" if status is not None else "the connection was lost before the command ended"
    channel.close()
    return CommandResult("", b"".join(pieces), status, error, timed_out=timed_out, truncated=size >= limit)


def _explain(exc: Exception, connection: fabric.Connection | None, timeout_s: float) -> str:
    """One clear line."""
    where = f"{connection.host}:{connection.port}" if connection is not None else "ssh"
    user = str(connection.user) if connection is not None else ""
    if isinstance(exc, HostKeyError):
        return str(exc)
    if isinstance(exc, paramiko.ssh_exception.IncompatiblePeer):
        return f"no common algorithm or known host key type with {where}: {_line(exc)}"
    if isinstance(exc, paramiko.PasswordRequiredException):
        return "the private key needs a passphrase: load it into ssh-agent"
    if isinstance(exc, paramiko.AuthenticationException):
        return f"{where} accepts no key of ours for user {user}"
    if isinstance(exc, socket.gaierror):
        return f"the name {connection.host if connection else ''} does not resolve: {exc.strerror}"
    if isinstance(exc, paramiko.ssh_exception.NoValidConnectionsError):
        return f"{where}: {', '.join(sorted({_line(error) for error in exc.errors.values()}))}"
    if isinstance(exc, TimeoutError):
        return f"{where} does not answer within {min(CONNECT_S, timeout_s):g} s"
    if isinstance(exc, paramiko.SSHException) and "keys available" in str(exc):
        return f"there is no private key to log in to {where} with"
    # Which of the two comes is a race of two waits; the first line of a server that says nothing ends in a time-out.
    if isinstance(exc, paramiko.SSHException) and ("No existing session" in str(exc)
                                                   or isinstance(exc.__context__, TimeoutError)):
        return f"{where} takes the connection and does not answer within {min(CONNECT_S, timeout_s):g} s"
    if isinstance(exc, paramiko.SSHException) and "banner" in str(exc):
        return f"{where} is not an ssh server, or does not answer: {_line(exc)}"
    return f"{where}: {_line(exc)}" if not str(exc).startswith("jump host") else _line(exc)


def _line(exc: Exception) -> str:
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return printable(" ".join(text.split()) or type(exc).__name__, limit=200)


def _fingerprint(key: str) -> str:
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
