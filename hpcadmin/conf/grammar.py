"""What a value may contain so that Slurm reads it as it was meant (slurm.conf(5), gres.conf(5), cgroup.conf(5))."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcadmin.conf.parts import Kind, Line, Problem
from hpcadmin.site import Scalar

# A value ends at white space, '#' starts a comment even inside quotes, a backslash joins or escapes, quotes delimit.
_VALUE = re.compile(r"""[!-~]+""")
_FORBIDDEN = "#\"'\\"
_NAME_VALUE_KEYS = re.compile(r"(?i).*Param(eter)?s$|AuthInfo|AuthAltParameters|.*TRESBillingWeights|TRESWeights|"
                              r"PriorityWeightTRES|.*PerJob|.*PerNode|LaunchParameters|DefCpuPerGPU|JobDefaults|EnergyIPMIPowerSensors")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
# Slurm takes longer values; a name, a path or a list of words that long is none.
MAX_VALUE = 4096
_HOSTLISTS = frozenset({"nodename", "nodes", "nodehostname", "nodeaddr", "bcastaddr", "switches"})
_SHAPES: dict[str, re.Pattern[str]] = {key.casefold(): shape for key, shape in {
    "ClusterName": re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"),
    "SlurmctldHost": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(\([A-Za-z0-9][A-Za-z0-9_.:-]*\))?"),
    "NodeName": re.compile(r"[A-Za-z0-9_.,\[\]-]+"),
    "NodeHostname": re.compile(r"[A-Za-z0-9_.,\[\]-]+"),
    "NodeAddr": re.compile(r"[A-Za-z0-9_.,:\[\]-]+"),
    "BcastAddr": re.compile(r"[A-Za-z0-9_.,:\[\]-]+"),
    "PartitionName": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"),
    "Features": re.compile(r"[A-Za-z0-9_.+-]{1,63}(,[A-Za-z0-9_.+-]{1,63})*"),
    "AccountingStorageHost": _HOST, "AccountingStorageBackupHost": _HOST, "DbdHost": _HOST, "DbdBackupHost": _HOST,
    "StorageHost": _HOST, "StorageUser": _PLAIN, "StorageLoc": _PLAIN,
    "Gres": re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)*(,[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)*)*"),
    "Type": re.compile(r"[A-Za-z][A-Za-z0-9_.-]*"),
    "File": re.compile(r"/dev/[A-Za-z0-9_./-]+(\[[0-9]+-[0-9]+\])?"),
    "MultipleFiles": re.compile(r"/dev/[A-Za-z0-9_./-]+(,/dev/[A-Za-z0-9_./-]+)+"),
}.items()}


def wrong_key(key: str) -> str | None:
    """Why `key` cannot be a key, or None."""
    return None if _KEY.fullmatch(key) else f"{key!r} cannot be a key: letters and digits only"


def wrong_value(key: str, value: str) -> str | None:
    """Why `value` would not be read back as it is, or None."""
    if not value:
        return "is empty"
    bad = sorted({c for c in value if not _VALUE.fullmatch(c) or c in _FORBIDDEN})
    if bad:
        return f"has {', '.join(repr(c) for c in bad[:4])}, which would break the file"
    if "=" in value and not _NAME_VALUE_KEYS.fullmatch(key):
        return "has '=', which would read as another key"
    if len(value) > MAX_VALUE and key.casefold() not in _HOSTLISTS:
        return f"has {len(value)} characters, more than {MAX_VALUE}"
    shape = _SHAPES.get(key.casefold())
    if shape is not None and not shape.fullmatch(value):
        return "has characters that Slurm does not take there"
    return None


def check(lines: Iterable[Line]) -> list[Problem]:
    """A problem for each value that would break its file, with where the value comes from."""
    problems = []
    for item in lines:
        if item.raw:
            continue                     # YAML: who makes the line quotes its values
        for e in item.entries:
            wrong = wrong_key(e.key) or wrong_value(e.key, e.value)
            if wrong:
                problems.append(Problem(Kind.SITE if e.site_key else Kind.FAULT,
                                        f"{e.key}={e.value[:80]!r} {wrong} (from {e.source})", key=e.site_key))
    return problems


def scalar(value: Scalar, *, yes: str = "YES", no: str = "NO") -> str:
    """A TOML value as Slurm writes it."""
    if isinstance(value, bool):
        return yes if value else no
    return value if isinstance(value, str) else repr(value)


def comment(text: str) -> str:
    """`text` as the rest of a comment line: printable ASCII and no backslash, which would join the next line."""
    return "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text)[:500]


