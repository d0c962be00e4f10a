"""A web hook of one's own: JSON as docs/alarms.md says, with a token where it wants one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpcadmin.sweep.alarms.hook import Hook, address, hook_problem
from hpcadmin.sweep.alarms.http import post
from hpcadmin.sweep.alarms.model import Channel, Message
from hpcadmin.sweep.alarms.secret import one_of, secret
from hpcadmin.sweep.alarms.words import lines_of, subject

MOST = 500


@dataclass(frozen=True)
class Settings(Hook):
    token_file: str = ""                 # sent as Authorization: Bearer
    token_env: str = ""


def plain(message: Message) -> dict[str, Any]:
    return {
        "schema": 1, "id": message.id, "kind": message.kind, "cluster": message.cluster, "run": message.run,
        "time": message.time, "subject": subject(message), "lines": lines_of(message)[:MOST],
        "changes": [{"what": item.what, "key": item.problem.key, "node": item.problem.node, "text": item.problem.text,
                     "checks": list(item.problem.checks), "since": item.problem.since}
                    for item in message.items[:MOST]],
        "left_out": max(0, len(message.items) - MOST),
    }


def send(settings: Settings, message: Message, timeout_s: float) -> str:
    token = secret(settings.token_file, settings.token_env, "token")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    post(address(settings), plain(message), timeout_s, headers=headers, ca_file=settings.ca_file, secrets=(token,),
         plain_http=settings.plain_http)
    return ""


def problem(settings: Settings) -> tuple[str, str] | None:
    if not one_of(settings.token_file, settings.token_env):
        return "token_file", "and token_env: only one of them"
    return hook_problem(settings)


CHANNEL = Channel(Settings, send=send, problem=problem)
