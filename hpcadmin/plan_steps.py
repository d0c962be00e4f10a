"""Whether what a check gave as its steps can be run at all: it may be a site's own file."""

from __future__ import annotations

import math
import re

from hpcadmin.check import JobRequest, Ready, Role, Step

MOST_S = 7 * 86400.0        # that a step may take
MOST_TASKS = 65_536         # on one node
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def checked(found: object, nodes: tuple[str, ...]) -> tuple[tuple[Step, ...], str]:
    """The steps, and why they are none; "" when they are."""
    if not isinstance(found, (tuple, list)):
        return (), f"steps gives {type(found).__name__} where a tuple of Step must be"
    for step in found:
        why = _wrong(step, nodes)
        if why:
            return (), why
    return tuple(found), ""


def _wrong(step: object, nodes: tuple[str, ...]) -> str:
    if not isinstance(step, Step):
        return f"steps has {type(step).__name__} where a Step must be"
    for what, words in (("argv", step.argv), ("nodes", step.nodes), ("under", step.under)):
        if not isinstance(words, (tuple, list)) or not all(map(_text, words)):
            return f"{what} of a step is not a tuple of strings"
    if not hasattr(step.env, "items") or not all(
            _text(name) and _VARIABLE.match(name) and _text(value) for name, value in step.env.items()):
        return "env of a step is not a table of names and strings"
    if not isinstance(step.role, Role) or not isinstance(step.name, str):
        return "role or name of a step is none"
    if not isinstance(step.job, (JobRequest, type(None))) or not isinstance(step.ready, (Ready, type(None))):
        return "job or ready of a step is none"
    if any(not _seconds(limit) for limit in (step.timeout_s, step.ready.timeout_s if step.ready else 1.0)):
        return f"timeout_s of a step is not within 0 and {MOST_S:g} seconds"
    if not (_whole(step.tasks_per_node) and 1 <= step.tasks_per_node <= MOST_TASKS
            and _whole(step.gpus_per_task) and 0 <= step.gpus_per_task <= MOST_TASKS):
        return "tasks_per_node or gpus_per_task of a step cannot be"
    strange = sorted(set(step.nodes) - set(nodes))
    return f"a step is on {strange[0]}, which is no node of its test" if strange else ""


def _text(word: object) -> bool:
    """A string that can be handed to a program."""
    if not isinstance(word, str) or "\0" in word:
        return False
    try:
        word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _seconds(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number) and (
        0 < number <= MOST_S)
