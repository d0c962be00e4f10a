"""When two values mean the same to Slurm."""

from __future__ import annotations

import re

# Words in any order.
_SETS = re.compile(r"(?:grestypes|accountingstoragetres|accountingstorageenforce|privatedata|prologflags|debugflags"
                   r"|launchparameters|selecttypeparameters|features|.*parameters|healthchecknodestate|allow.*|deny.*"
                   r"|taskpluginparam)\Z")
_YES = {"yes": "yes", "true": "yes", "up": "yes", "1": "yes", "no": "no", "false": "no", "down": "no", "0": "no"}
# Keys of Slurm's boolean type: yes, up, true and 1 are one.
_BOOLEANS = frozenset({"default", "hidden", "rootonly", "reqresv", "lln", "disablerootjobs", "exclusiveuser",
                       "powerdownonidle", "exclusivetopo"})
_EXACT = frozenset({"clustername", "reason", "features"})


def same(key: str, old: str, new: str, *, boolean: bool = False) -> bool:
    """key in small letters. Numbers by value, words without regard to capitals, paths to the letter."""
    return old == new or normal(key, old, boolean=boolean) == normal(key, new, boolean=boolean)


def normal(key: str, text: str, *, boolean: bool = False) -> str:
    if (boolean or key in _BOOLEANS) and text.casefold() in _YES:
        return _YES[text.casefold()]
    if text.isascii() and text.isdigit():
        return text.lstrip("0") or "0"
    if text.startswith("/") or ("/" in text and "=" in text):
        return text
    plain = text if key in _EXACT else text.casefold()
    if _SETS.match(key):
        return ",".join(sorted({word.strip() for word in plain.split(",") if word.strip()}))
    return plain
