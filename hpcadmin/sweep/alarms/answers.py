"""Hooks that answer 200 and say in their JSON whether they took it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hpcadmin.sweep.alarms.model import AlarmError
from hpcadmin.sweep.alarms.secret import scrubbed
from hpcadmin.text import printable


def taken(answer: str, codes: Sequence[str], texts: Sequence[str], who: str, *secrets: str) -> None:
    """AlarmError unless one of `codes` is 0 in the answer."""
    try:
        tree = json.loads(answer)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise AlarmError("its answer is not understood: it may not have taken it", where=who)
    code = next((tree[name] for name in codes if name in tree), None)
    if code != 0 or isinstance(code, bool):
        said = next((str(tree[name]) for name in texts if name in tree), "")
        raise AlarmError(f"did not take it: {printable(scrubbed(f'{code} {said}', *secrets), limit=200)}", where=who)
