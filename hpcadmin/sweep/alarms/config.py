"""[sweep.alarms] of site.toml: channels, digest, thresholds. Strict; what is wrong is named with file, line and key."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hpcadmin.site import Site, TableReader
from hpcadmin.sweep.alarms import channels as package
from hpcadmin.sweep.alarms.model import Channel
from hpcadmin.sweep.alarms.outbox import ALL

MAX_CHANNELS = 20
DIGESTS = ("always", "problems", "never")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_PATH = "sweep.alarms"


@dataclass(frozen=True)
class Thresholds:
    """What the nightly look tells of when it is passed; 0: never."""

    storage_ms: float = 2.0              # answer of a network file system
    packet_loss_percent: float = 0.1     # of pings of all nodes to one host together
    pending_jobs: int = 100              # that wait for resources
    gpu_c: float = 85.0
    gpu_memory_c: float = 95.0
    idle_gpus_h: float = 1.0             # GPUs of a job that has run so long, and that do nothing


@dataclass(frozen=True)
class Common:
    """What every channel's table may have, beside its own keys."""

    kind: str = ""                       # which channel; "": the table's name
    on: bool = True
    tell: tuple[str, ...] = ALL          # begins, changes, ends
    only: tuple[str, ...] = ()           # patterns of problems' keys
    digest: bool | None = None           # None: as the channel has it
    timeout_s: float = 20.0


@dataclass(frozen=True, eq=False)
class Post:
    """A channel of the site."""

    name: str
    kind: str
    channel: Channel
    settings: Any
    common: Common

    @property
    def digest(self) -> bool:
        return self.channel.digest if self.common.digest is None else self.common.digest


@dataclass(frozen=True)
class Alarms:
    posts: tuple[Post, ...] = ()
    digest: str = "always"
    thresholds: Thresholds = field(default_factory=Thresholds)


def kinds() -> dict[str, Channel]:
    """Every file in channels/."""
    found = {}
    for item in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        found[item.name] = importlib.import_module(f"{package.__name__}.{item.name}").CHANNEL
    return found


def read_alarms(site: Site) -> Alarms:
    """SiteError with file:line and key."""
    table = site.sweep.alarms
    get = TableReader({}, site.source or "site.toml")
    digest = table.get("digest", "always")
    if digest not in DIGESTS:
        raise get.error(f"{_PATH}.digest", f"must be one of {', '.join(DIGESTS)}")
    thresholds = _thresholds(get, table.get("thresholds", {}))
    names = [name for name in table if name not in ("digest", "thresholds")]
    if not names:
        return Alarms((), digest, thresholds)
    known = kinds()
    if len(names) > MAX_CHANNELS:
        raise get.error(_PATH, f"has {len(names)} channels; {MAX_CHANNELS} may be there")
    posts = [_post(get, name, table[name], known) for name in names]
    return Alarms(tuple(post for post in posts if post.common.on), digest, thresholds)


def from_environment(alarms: Alarms) -> list[tuple[str, str]]:
    """(key, variable) of secrets that are to come from the environment."""
    return [(f"{_PATH}.{post.name}.{item.name}", f"${value}") for post in alarms.posts for item in fields(post.settings)
            if item.name.endswith("_env") and (value := getattr(post.settings, item.name))]


def _thresholds(get: TableReader, value: Any) -> Thresholds:
    path = f"{_PATH}.thresholds"
    found: Thresholds = get.record(Thresholds, get.as_table(value, path), path)
    for item in fields(found):
        number = getattr(found, item.name)
        if not math.isfinite(number) or number < 0:
            raise get.error(f"{path}.{item.name}", "must be 0 or more")
    return found


def _post(get: TableReader, name: str, value: Any, known: Mapping[str, Channel]) -> Post:
    path = f"{_PATH}.{name}"
    table = get.as_table(value, path)
    if not _NAME.fullmatch(name):
        raise get.error(path, "must be a name of letters, digits, _ and -")
    shared = {item.name for item in fields(Common)}
    common: Common = get.record(Common, {key: item for key, item in table.items() if key in shared}, path)
    kind = common.kind or name
    if kind not in known:
        key = f"{path}.kind" if common.kind else path
        raise get.error(key, f"is no kind of channel; known are {', '.join(known)}")
    channel = known[kind]
    own = {key: item for key, item in table.items() if key not in shared}
    get.only_keys(own, {item.name for item in fields(channel.settings)} | shared, path)
    settings = get.record(channel.settings, own, path)
    _check_common(get, path, common)
    if wrong := channel.problem(settings):
        raise get.error(f"{path}.{wrong[0]}", wrong[1])
    return Post(name, kind, channel, settings, common)


def _check_common(get: TableReader, path: str, common: Common) -> None:
    if not common.tell or not set(common.tell) <= set(ALL):
        raise get.error(f"{path}.tell", f"must be some of {', '.join(ALL)}")
    if not math.isfinite(common.timeout_s) or not 0.1 <= common.timeout_s <= 120:
        raise get.error(f"{path}.timeout_s", "must be 0.1 to 120")
