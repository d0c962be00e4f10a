"""JSON as the tools print it, with nothing overlooked: no name twice in one object, no NaN and no Infinity."""

from __future__ import annotations

import json
from typing import Any, NoReturn


def decoder() -> json.JSONDecoder:
    """Raises ValueError (as json does for what is no JSON) where a name comes twice or a constant is no number."""
    return json.JSONDecoder(object_pairs_hook=_once, parse_constant=no_number)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
