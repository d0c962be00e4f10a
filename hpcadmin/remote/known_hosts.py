"""Host keys from known_hosts files as OpenSSH reads them: patterns, hashed names, ports, revoked keys; several keys a
host. Malformed lines are passed over, as OpenSSH does; what is not read cannot be trusted."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_PATTERN = 1000


@dataclass(frozen=True)
class Line:
    names: tuple[str, ...]
    key_type: str
    key: str                     # base64
    revoked: bool = False


class KnownHosts:
    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._plain: dict[str, list[Line]] = {}
        self._others: list[Line] = []        # patterns and hashed names: every look-up goes through them
        self.revoked: set[tuple[str, str]] = set()
        for line in lines:
            if line.revoked:
                self.revoked.add((line.key_type, line.key))
            elif all(_is_plain(name) for name in line.names):
                for name in line.names:
                    self._plain.setdefault(name.lower(), []).append(line)
            else:
                self._others.append(line)

    def keys(self, host: str, port: int = 22) -> list[tuple[str, str]]:
        """(type, key) of everything known for the host; a port other than 22 has its own entries first."""
        names = [host] if port == 22 else [f"[{host}]:{port}", host]
        for name in (name.lower() for name in names):
            found = [*self._plain.get(name, ()), *(line for line in self._others if _matches(line, name))]
            if found:
                return list(dict.fromkeys((line.key_type, line.key) for line in found))
        return []


def load(paths: Iterable[Path]) -> KnownHosts:
    """Of all files that exist and can be read."""
    lines: list[Line] = []
    for path in paths:
        try:
            with path.open("rb") as stream:
                text = stream.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        lines += parse(text)
    return KnownHosts(lines)


def parse(text: str) -> list[Line]:
    found = []
    for raw in text.split("\n"):
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        # A certificate authority's key is no host's key: host certificates are not read here.
        if len(words) < 3 or marker not in ("", "@revoked"):
            continue
        names = tuple(name for name in words[0].split(",") if 0 < len(name) <= MAX_PATTERN)
        if names:
            found.append(Line(names, words[1], words[2], revoked=bool(marker)))
    return found


def _is_plain(name: str) -> bool:
    return not (name.startswith(("|", "!")) or "*" in name or "?" in name)


def _matches(line: Line, name: str) -> bool:
    if line.names[0].startswith("|1|"):
        return _hash_matches(line.names[0], name)
    if any(p.startswith("!") and _fits(p[1:], name) for p in line.names):
        return False
    return any(_fits(p, name) for p in line.names if not p.startswith("!"))


def _fits(pattern: str, name: str) -> bool:
    # Only * and ? are special to OpenSSH; brackets are part of names with a port.
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hash_matches(hashed: str, name: str) -> bool:
    parts = hashed.split("|")
    if len(parts) != 4:
        return False
    try:
        salt, digest = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
