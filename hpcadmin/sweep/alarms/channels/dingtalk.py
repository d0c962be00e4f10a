"""DingTalk: a custom robot, signed where it wants that. Plain text that calls nobody."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from hpcadmin.sweep.alarms.answers import taken
from hpcadmin.sweep.alarms.hook import Hook, address, secret_hook_problem
from hpcadmin.sweep.alarms.http import post
from hpcadmin.sweep.alarms.model import Channel, Message
from hpcadmin.sweep.alarms.secret import one_of, secret
from hpcadmin.sweep.alarms.words import whole

MAX_BYTES = 9000            # of 20000 bytes of a request


@dataclass(frozen=True)
class Settings(Hook):
    secret_file: str = ""                # the SEC… of a robot with signatures
    secret_env: str = ""
    keyword: str = ""                    # of a robot that takes only texts with this word in them


def signed(url: str, milliseconds: int, key: str) -> str:
    """The address with HMAC-SHA256 of MILLISECONDS\\nKEY with the key, as DingTalk wants it."""
    told = hmac.new(key.encode(), f"{milliseconds}\n{key}".encode(), hashlib.sha256).digest()
    return f"{url}{'&' if '?' in url else '?'}timestamp={milliseconds}&sign={quote_plus(base64.b64encode(told))}"


def plain(message: Message, keyword: str) -> dict[str, Any]:
    text = whole(message, MAX_BYTES)
    if keyword and keyword not in text:
        text = f"{keyword} {text}"
    # Who is called is in `at` alone; an @ in the text is a character.
    return {"msgtype": "text", "text": {"content": text}, "at": {"atMobiles": [], "atUserIds": [], "isAtAll": False}}


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    key = secret(settings.secret_file, settings.secret_env, "secret")
    bare = address(settings)
    url = signed(bare, int(time.time() * 1000), key) if key else bare
    answer = post(url, plain(message, settings.keyword), timeout_s, ca_file=settings.ca_file, secrets=(key, bare),
                  plain_http=settings.plain_http)
    taken(answer, ("errcode",), ("errmsg",), "dingtalk", key, url)
    return ""


def problem(settings: Settings) -> tuple[str, str] | None:
    if not one_of(settings.secret_file, settings.secret_env):
        return "secret_file", "and secret_env: only one of them"
    return secret_hook_problem(settings)


CHANNEL = Channel(Settings, send=send, problem=problem)
