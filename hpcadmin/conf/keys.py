"""Which keys and values each Slurm version has, and what a version does with one that it does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin.conf.keytable.kinds import NEWEST, OLDEST, VERSIONS, Apply, Effect, Key, Version
from hpcadmin.errors import UsageError

__all__ = ["NEWEST", "NODE_PARAMETERS", "OLDEST", "RULES", "VERSIONS", "Apply", "Effect", "Key", "Rule", "Version",
           "applies", "effects", "lookup", "nearest", "parse_version", "plugins", "show", "statement"]


@dataclass(frozen=True)
class Rule:
    """One key, or one value of it, that not every version has.

    since: first version that has it. until: first version that has it no longer. effect: outside of these.
    """

    file: str
    key: str
    value: str = ""
    since: Version = OLDEST
    until: Version | None = None
    effect: Effect = Effect.FATAL
    instead: str = ""

    def effect_in(self, version: Version) -> Effect | None:
        """None where the version has it."""
        if version < self.since or (self.until is not None and version >= self.until):
            return self.effect
        return None


def _gone(file: str, key: str, until: Version, effect: Effect = Effect.FATAL, *, value: str = "",
          instead: str = "") -> Rule:
    return Rule(file, key, value, until=until, effect=effect, instead=instead)


def _new(file: str, key: str, since: Version, effect: Effect = Effect.FATAL, *, value: str = "") -> Rule:
    return Rule(file, key, value, since=since, effect=effect)


RULES: tuple[Rule, ...] = (
    _gone("cgroup.conf", "ConstrainKmemSpace", (23, 11)),
    _gone("cgroup.conf", "AllowedKmemSpace", (23, 11)),
    _gone("cgroup.conf", "MaxKmemPercent", (23, 11)),
    _gone("cgroup.conf", "MinKmemSpace", (23, 11)),
    _gone("cgroup.conf", "CgroupAutomount", (23, 11), Effect.ERROR),
    _gone("cgroup.conf", "TaskAffinity", (22, 5), instead="TaskPlugin=task/cgroup,task/affinity"),
    _gone("cgroup.conf", "AllowedDevicesFile", (25, 11), Effect.IGNORED),
    _gone("cgroup.conf", "CgroupReleaseAgentDir", (25, 11)),
    _new("cgroup.conf", "EnableControllers", (23, 2)),
    _new("cgroup.conf", "SignalChildrenProcesses", (23, 11)),
    _new("cgroup.conf", "SystemdTimeout", (24, 5)),
    _new("cgroup.conf", "CgroupPlugin", (24, 5), value="disabled"),
    _new("cgroup.conf", "EnableExtraControllers", (25, 5)),
    _new("cgroup.conf", "CgroupSlice", (25, 11)),
    _new("cgroup.conf", "CgroupJobIdPaths", (26, 5)),
    _gone("slurm.conf", "SelectType", (23, 11), value="select/cons_res", instead="select/cons_tres"),
    _gone("slurm.conf", "SlurmctldPlugstack", (23, 2)),
    _gone("slurm.conf", "AccountingStorageLoc", (25, 11)),
    _gone("slurm.conf", "AccountingStorageUser", (25, 11), Effect.ERROR),
    _gone("slurm.conf", "JobContainerType", (25, 11), Effect.DEPRECATED, instead="NamespaceType"),
    _gone("slurm.conf", "FastSchedule", (25, 11), Effect.ERROR, instead="SlurmdParameters=config_overrides"),
    _gone("slurm.conf", "TaskPluginParam", (25, 11), value="Sched"),
    _gone("slurm.conf", "TopologyPlugin", (25, 5), value="topology/3d_torus"),
    _new("slurm.conf", "TopologyPlugin", (23, 11), value="topology/block"),
    _new("slurm.conf", "TopologyPlugin", (23, 11), value="topology/default"),
    _new("slurm.conf", "TopologyPlugin", (25, 5), value="topology/flat"),
    _new("slurm.conf", "HealthCheckNodeState", (23, 2), value="NONDRAINED_IDLE"),
    _new("slurm.conf", "HealthCheckNodeState", (25, 11), value="START_ONLY"),
    _new("slurm.conf", "HealthCheckTimeout", (26, 5)),
    _new("NodeName", "RestrictedCoresPerGPU", (24, 5)),
    _new("NodeName", "Topology", (25, 5)),
    _new("NodeName", "GresConf", (25, 11)),
    _new("NodeName", "Parameters", (25, 11)),
    _new("NodeName", "SuspendTime", (26, 5)),
    _new("gres.conf", "Flags", (23, 2), Effect.ERROR, value="explicit"),
    _new("gres.conf", "Flags", (26, 5), Effect.ERROR, value="env_uuid"),
    _new("gres.conf", "AutoDetect", (23, 2), Effect.ERROR, value="oneapi"),
    _new("gres.conf", "AutoDetect", (23, 11), Effect.ERROR, value="nrt"),
    _new("gres.conf", "AutoDetect", (24, 11), Effect.ERROR, value="nvidia"),
    _new("gres.conf", "AutoDetect", (26, 5), Effect.ERROR, value="full"),
)

# First release in which a node line may choose its own virtual sockets; before, SlurmdParameters is for all nodes.
NODE_PARAMETERS: Version = (25, 11)


def parse_version(text: str) -> Version:
    """(22, 5) from "22.05", "slurm 22.05.8" or "slurm-wlm 22.05.8-4". Raises UsageError."""
    match = re.fullmatch(r"(?:slurm(?:-wlm)?[ -]?)?v?(\d{2})[.](\d{1,2})(?:[.-][0-9A-Za-z.~+-]*)?", text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a Slurm version", hint="for example 22.05 or 24.11.5")
    version = (int(match[1]), int(match[2]))
    if version not in VERSIONS:
        known = ", ".join(show(v) for v in VERSIONS)
        raise UsageError(f"Slurm {text.strip()} is not supported", hint=f"known are {known}")
    return version


def show(version: Version) -> str:
    return f"{version[0]}.{version[1]:02d}"


def effects(file: str, key: str, value: str, version: Version | None) -> list[tuple[Rule, Version, Effect]]:
    """Every rule that `key=value` breaks in `version` (None: in any version from 22.05 to 26.05)."""
    found = []
    elements = {element.strip().casefold() for element in value.split(",")}
    for rule in RULES:
        if rule.file != file or rule.key.casefold() != key.casefold():
            continue
        if rule.value and rule.value.casefold() not in elements:
            continue
        for candidate in (version,) if version else VERSIONS:
            effect = rule.effect_in(candidate)
            if effect is not None:
                found.append((rule, candidate, effect))
                break
    return found


def lookup(file: str, key: str) -> Key | None:
    """The key of that kind of statement (see `statement`), whatever its capitals; None where no version has it."""
    return None


def nearest(file: str, key: str) -> str:
    """The key of that kind of statement that is spelt most like `key`; "" where none is near."""
    return ""


def applies(file: str, key: str, version: Version | None) -> Apply:
    """What a change of this key takes to be in force (None: in the version in which it takes most)."""
    return Apply.RESTART_ALL


def plugins(key: str, version: Version | None) -> tuple[str, ...]:
    """The values that `key` ("SelectType", "AutoDetect", "CgroupPlugin") has in that version (None: in any), as Slurm
    writes them: ("select/cons_tres", "select/linear"). () where the values are no closed list."""
    return ()


def statement(file: str, first: str) -> str:
    """Whose keys a line of `file` has that begins with the key `first`: "NodeName" for slurm.conf and nodename,
    "slurm.conf" for its simple settings, "gres.conf" for every line of gres.conf."""
    return file
