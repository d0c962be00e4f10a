"""Settings of slurm.conf that are legal alone and do not go together, as slurmctld 22.05, 24.11 and 26.05 answered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpcadmin.conf.keys import Version

_LIMITS = frozenset({"all", "none", "as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack"})
_LICENSE = re.compile(r"[^,:=\s]{1,200}(?:[:=][0-9]{1,9})?")
_AT_LEAST_ONE = {"maxjobcount": "MaxJobCount", "slurmctldport": "SlurmctldPort"}
NEW_TIMEOUTS: Version = (26, 5)          # HealthCheckTimeout; UnkillableStepTimeout is compared with MessageTimeout
MAX_MESSAGE_TIMEOUT = 100


@dataclass(frozen=True)
class Clash:
    """key: in small letters, the one to change. fatal: slurmctld does not start; else an error line in each log."""

    key: str
    what: str
    right: str
    fatal: bool = True


def clashes(settings: Mapping[str, str], version: Version | None) -> Iterator[Clash]:
    """settings: of slurm.conf, keys in small letters. version None: whatever all versions say."""
    for find in (_preemption, _numbers, _words, _ids, _memory, _timeouts):
        yield from find(settings, version)


def _number(settings: Mapping[str, str], key: str) -> int | None:
    text = settings.get(key, "")
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _listed(settings: Mapping[str, str], key: str) -> list[str]:
    return [word.strip().casefold() for word in settings.get(key, "").split(",") if word.strip()]


def _preemption(settings: Mapping[str, str], _: Version | None) -> Iterator[Clash]:
    kind = settings.get("preempttype", "").casefold().rpartition("/")[2] or "none"
    modes = [mode for mode in _listed(settings, "preemptmode") if mode not in ("off", "gang", "within")]
    if "suspend" in modes and "gang" not in _listed(settings, "preemptmode"):
        yield Clash("preemptmode", f"PreemptMode={settings['preemptmode'][:60]}: SUSPEND without GANG",
                    "PreemptMode=SUSPEND,GANG")
    elif kind != "none" and not modes:
        yield Clash("preempttype", f"PreemptType={settings['preempttype'][:60]} without a PreemptMode",
                    "PreemptMode=REQUEUE, CANCEL or SUSPEND,GANG")
    elif kind == "none" and (modes or "within" in _listed(settings, "preemptmode")):
        yield Clash("preemptmode", f"PreemptMode={settings['preemptmode'][:60]} without a PreemptType",
                    "PreemptType=preempt/partition_prio or preempt/qos")


def _numbers(settings: Mapping[str, str], _: Version | None) -> Iterator[Clash]:
    for key, name in _AT_LEAST_ONE.items():
        if _number(settings, key) == 0:
            yield Clash(key, f"{name}=0", "1 or more")
    level = _number(settings, "slurmschedloglevel")
    if level is not None and level > 1:
        yield Clash("slurmschedloglevel", f"SlurmSchedLogLevel={level}", "0 or 1")
    if _number(settings, "treewidth") == 0:
        yield Clash("treewidth", "TreeWidth=0", "1 or more", fatal=False)
    age = _number(settings, "minjobage")
    if age is not None and age < 2:
        yield Clash("minjobage", f"MinJobAge={age}", "2 or more", fatal=False)
    size = _number(settings, "maxarraysize")
    if size is not None and size > 4_000_001:
        yield Clash("maxarraysize", f"MaxArraySize={size}", "4000001 at most", fatal=False)


def _words(settings: Mapping[str, str], _: Version | None) -> Iterator[Clash]:
    flags = _listed(settings, "prologflags")
    if "nohold" in flags and {"contain", "x11"} & set(flags):
        yield Clash("prologflags", "PrologFlags: NoHold beside Contain or X11", "without NoHold")
    units = [word for word in _listed(settings, "taskpluginparam") if word in ("cores", "sockets", "threads")]
    if len(units) > 1:
        yield Clash("taskpluginparam", f"TaskPluginParam: {' and '.join(units)}", "one of them")
    for key, name in (("propagateresourcelimits", "PropagateResourceLimits"),
                      ("propagateresourcelimitsexcept", "PropagateResourceLimitsExcept")):
        unknown = [word for word in _listed(settings, key) if word.removeprefix("rlimit_") not in _LIMITS]
        if unknown:
            yield Clash(key, f"{name} has no {unknown[0][:40]}", f"of {', '.join(sorted(_LIMITS)).upper()}")
    wrong = [item for item in settings.get("licenses", "").split(",") if item and not _LICENSE.fullmatch(item)]
    if wrong:
        yield Clash("licenses", f"Licenses: {wrong[0][:60]}", "name:count")
    if settings.get("mcsparameters") and not settings.get("mcsplugin"):
        yield Clash("mcsparameters", "MCSParameters without MCSPlugin", "MCSPlugin=mcs/user, or another")


def _ids(settings: Mapping[str, str], _: Version | None) -> Iterator[Clash]:
    first, last = _number(settings, "firstjobid"), _number(settings, "maxjobid")
    if first is not None and last is not None and first > last:
        yield Clash("firstjobid", f"FirstJobId={first} is above MaxJobId={last}", "below it")


def _memory(settings: Mapping[str, str], _: Version | None) -> Iterator[Clash]:
    for kind in ("Def", "Max"):
        node, cpu = f"{kind}MemPerNode", f"{kind}MemPerCPU"
        if _number(settings, node.casefold()) and _number(settings, cpu.casefold()):
            yield Clash(cpu.casefold(), f"{cpu} beside {node}: the first is ignored", "one of them", fatal=False)


def _timeouts(settings: Mapping[str, str], version: Version | None) -> Iterator[Clash]:
    message = _number(settings, "messagetimeout")
    if message is not None and message > MAX_MESSAGE_TIMEOUT:
        yield Clash("messagetimeout", f"MessageTimeout={message}", f"{MAX_MESSAGE_TIMEOUT} at most", fatal=False)
    if version is None or version < NEW_TIMEOUTS:
        return
    kill = _number(settings, "unkillablesteptimeout")
    least = 5 * (10 if message is None else message)
    if kill is not None and kill < least:
        yield Clash("unkillablesteptimeout", f"UnkillableStepTimeout={kill}", f"{least} or more, five times "
                    "MessageTimeout", fatal=False)
    interval, timeout = _number(settings, "healthcheckinterval"), _number(settings, "healthchecktimeout")
    timeout = 60 if timeout is None else timeout
    if interval and timeout >= interval:
        yield Clash("healthcheckinterval", f"HealthCheckInterval={interval} is not above HealthCheckTimeout, {timeout}",
                    "a longer interval, or a shorter timeout", fatal=False)
