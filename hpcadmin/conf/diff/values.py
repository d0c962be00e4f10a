"""When two values mean the same to Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words in any order.
_SETS = re.compile(r"(?:grestypes|accountingstoragetres|accountingstorageenforce|privatedata|prologflags|debugflags"
                   r"|launchparameters|selecttypeparameters|features|.*parameters|healthchecknodestate|allow.*|deny.*"
                   r"|taskpluginparam)\Z")
_YES = {"yes": "yes", "true": "yes", "up": "yes", "1": "yes", "no": "no", "false": "no", "down": "no", "0": "no"}
# Keys of Slurm's boolean type: yes, up, true and 1 are one.
_BOOLEANS = frozenset({"default", "hidden", "rootonly", "reqresv", "lln", "disablerootjobs", "exclusiveuser",
                       "powerdownonidle", "exclusivetopo"})
# What is in force without the key, in every version from 22.05 to 26.05 (src/common/read_config.h, slurm.conf(5)).
SETTINGS = {"authtype": "auth/munge", "batchstarttimeout": "10", "credtype": "cred/munge", "firstjobid": "1",
            "inactivelimit": "0", "killwait": "30", "maxarraysize": "1001", "maxjobcount": "10000",
            "messagetimeout": "10", "minjobage": "300", "resumerate": "300", "resumetimeout": "60",
            "returntoservice": "0", "schedulertype": "sched/backfill", "slurmctldport": "6817",
            "slurmctldtimeout": "120", "slurmdport": "6818", "slurmdtimeout": "300", "slurmduser": "root",
            "suspendrate": "60", "suspendtimeout": "30", "tcptimeout": "2", "waittime": "0"}
PARTITION = {"state": "up", "default": "no", "hidden": "no", "rootonly": "no", "reqresv": "no", "lln": "no",
             "disablerootjobs": "no", "exclusiveuser": "no", "maxtime": "unlimited", "oversubscribe": "no"}
_EXACT = frozenset({"clustername", "reason", "features"})


def same(key: str, old: str, new: str, *, boolean: bool = False) -> bool:
    """key in small letters. Numbers by value, words without regard to capitals, paths to the letter."""
    return old == new or normal(key, old, boolean=boolean) == normal(key, new, boolean=boolean)


def unset(defaults: Mapping[str, str], key: str, text: str) -> bool:
    """Whether the value says no more than its absence."""
    found = defaults.get(key)
    plain = "unlimited" if text.casefold() == "infinite" else text
    return found is not None and same(key, plain, found)


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
