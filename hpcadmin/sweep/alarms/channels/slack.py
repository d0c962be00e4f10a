"""Slack: an incoming web hook. Nothing in a text is markup, a link or a call of somebody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcadmin.sweep.alarms.hook import Hook, address, secret_hook_problem
from hpcadmin.sweep.alarms.http import post
from hpcadmin.sweep.alarms.model import Channel, Message
from hpcadmin.sweep.alarms.words import whole

MAX_BYTES = 3800            # Slack cuts texts that are longer than 4000 characters


@dataclass(frozen=True)
class Settings(Hook):
    pass


def escaped(text: str) -> str:
    """The three characters that Slack has a meaning for: <!channel>, <@U1>, <http://…|text> are text then."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(message: Message) -> dict[str, Any]:
    return {"text": escaped(whole(message, MAX_BYTES)), "mrkdwn": False, "parse": "none", "link_names": False,
            "unfurl_links": False, "unfurl_media": False}


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    post(address(settings), plain(message), timeout_s, ca_file=settings.ca_file, plain_http=settings.plain_http)
    return ""


CHANNEL = Channel(Settings, send=send, problem=secret_hook_problem)
