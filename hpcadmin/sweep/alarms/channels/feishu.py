"""Feishu and Lark: a custom bot, signed where it wants that. Sent as rich text without tags: it calls nobody."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Any

from hpcadmin.records import dumps
from hpcadmin.sweep.alarms.answers import taken
from hpcadmin.sweep.alarms.hook import Hook, address, secret_hook_problem
from hpcadmin.sweep.alarms.http import post
from hpcadmin.sweep.alarms.model import Channel, Message
from hpcadmin.sweep.alarms.secret import one_of, secret
from hpcadmin.sweep.alarms.words import body, subject

MAX_REQUEST_BYTES = 19_000  # of 20 KB
MAX_BYTES, LEAST_BYTES = 9000, 500


@dataclass(frozen=True)
class Settings(Hook):
    secret_file: str = ""                # of "signature verification", where the bot has it switched on
    secret_env: str = ""


def signature(timestamp: int, key: str) -> str:
    """HMAC-SHA256 of nothing with TIMESTAMP\\nKEY as the key, as Feishu wants it."""
    return base64.b64encode(hmac.new(f"{timestamp}\n{key}".encode(), b"", hashlib.sha256).digest()).decode()


def harmless(text: str) -> str:
    """<at user_id="all"> is a call of everybody in some kinds of text: none of ours has such a bracket."""
    return text.replace("<", "\uff1c").replace(">", "\uff1e")


def fitting(message: Message, timestamp: int, key: str) -> dict[str, Any]:
    """With as many lines as a request has room for: how long they are in JSON is known only when they are in it."""
    limit = MAX_BYTES
    tree = plain(message, timestamp, key, limit)
    while len(dumps(tree).encode()) > MAX_REQUEST_BYTES and limit > LEAST_BYTES:
        limit //= 2
        tree = plain(message, timestamp, key, limit)
    return tree


def plain(message: Message, timestamp: int, key: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    lines = body(message, limit).split("\n")
    content = [[{"tag": "text", "un_escape": False, "text": harmless(line)}] for line in lines if line]
    tree: dict[str, Any] = {"msg_type": "post", "content": {"post": {"en_us": {
        "title": harmless(subject(message)), "content": content}}}}
    if key:
        tree.update(timestamp=str(timestamp), sign=signature(timestamp, key))
    return tree


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    key = secret(settings.secret_file, settings.secret_env, "secret")
    url = address(settings)
    answer = post(url, fitting(message, int(time.time()), key), timeout_s, ca_file=settings.ca_file,
                  secrets=(key,), plain_http=settings.plain_http)
    taken(answer, ("code", "StatusCode"), ("msg", "StatusMessage"), "feishu", key, url)
    return ""


def problem(settings: Settings) -> tuple[str, str] | None:
    if not one_of(settings.secret_file, settings.secret_env):
        return "secret_file", "and secret_env: only one of them"
    return secret_hook_problem(settings)


CHANNEL = Channel(Settings, send=send, problem=problem)
