"""What `hpcadmin sweep install` puts where: units or a cron file, rotation of the log. Pure functions of values."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcadmin.errors import UsageError
from hpcadmin.resources import data_dir

if TYPE_CHECKING:
    import jinja2

MARK = "Written by hpcadmin sweep install; it may be written again."
SERVICE, TIMER = "/etc/systemd/system/hpcadmin-sweep.service", "/etc/systemd/system/hpcadmin-sweep.timer"
DIGEST_SERVICE = "/etc/systemd/system/hpcadmin-sweep-digest.service"
DIGEST_TIMER = "/etc/systemd/system/hpcadmin-sweep-digest.timer"
CRON, LOGROTATE = "/etc/cron.d/hpcadmin-sweep", "/etc/logrotate.d/hpcadmin-sweep"
LOG_DIR = "/var/log/hpcadmin"
LOG = f"{LOG_DIR}/sweep.log"
OWN_FILES = (SERVICE, TIMER, DIGEST_SERVICE, DIGEST_TIMER, CRON, LOGROTATE)
TIMERS = {"hpcadmin-sweep.timer": TIMER, "hpcadmin-sweep-digest.timer": DIGEST_TIMER}
UNITS = (SERVICE, TIMER, DIGEST_SERVICE, DIGEST_TIMER)
NEVER = "never"
DIGEST = ("alarms", "--digest")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEMD, CRON_WAY = "systemd", "cron"
# A path that is run: nothing that systemd, cron or the shell could take for something else.
_PROGRAM = re.compile(r"/[A-Za-z0-9_.+@,:=/ -]*[A-Za-z0-9_.+-]")
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_AT = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])\Z")


@dataclass(frozen=True)
class Wanted:
    """way: systemd or cron. state: where the ledger is to be. writable: folders beside it. digest_at: when the digest
    is told, or never."""

    way: str
    program: str
    site: str
    user: str
    group: str
    at: str
    state: str
    variables: tuple[tuple[str, str], ...] = ()
    writable: tuple[str, ...] = ()
    digest_at: str = "07:30"

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.program, *(("--site", self.site) if self.site else ()), "sweep")

    @property
    def timers(self) -> tuple[str, ...]:
        """Of systemd's, that are to run."""
        if self.way != SYSTEMD:
            return ()
        return tuple(name for name, path in TIMERS.items() if path == TIMER or self.digest_at != NEVER)


def check(wanted: Wanted) -> None:
    """UsageError for what cannot be written into these files so that it means what it says."""
    if not _PROGRAM.fullmatch(wanted.program):
        raise UsageError(f"{wanted.program!r} is no plain absolute path", where="--command")
    for what, path in (("--site", wanted.site or "/"), ("the folder of the ledger", wanted.state),
                       *wanted.variables, *(("[run] shared_dir", path) for path in wanted.writable)):
        if not path.startswith("/") or not path.isprintable():
            raise UsageError(f"{path!r} is no absolute path that can be printed", where=what)
    for what, name in (("--user", wanted.user), ("group", wanted.group)):
        if not _NAME.match(name):
            raise UsageError(f"{name!r} cannot be written into a unit or cron file", where=what)
    if not _AT.match(wanted.at):
        raise UsageError(f"{wanted.at!r} is no time of day", where="--at", hint="as in 02:30")
    if wanted.digest_at != NEVER and not _AT.match(wanted.digest_at):
        raise UsageError(f"{wanted.digest_at!r} is no time of day", where="--digest-at", hint="as in 07:30, or never")


def own_files(wanted: Wanted | None) -> dict[str, str | None]:
    """Path -> text; None is a file that must not be there. wanted None: nothing is to be left."""
    found: dict[str, str | None] = dict.fromkeys(OWN_FILES)
    if wanted is None:
        return found
    check(wanted)
    return {**found, **(_units(wanted) if wanted.way == SYSTEMD else _cron_files(wanted))}


def _units(wanted: Wanted) -> dict[str, str | None]:
    values: dict[str, object] = {
        "head": MARK, "user": wanted.user, "group": wanted.group, "writable": (wanted.state, *wanted.writable),
        "variables": [f"{name}={value}" for name, value in wanted.variables]}
    sweeps = {**values, "argv": wanted.argv, "sweeps": True,
              "what": "hpcadmin sweep: look at all nodes, drain what is broken, resume what is repaired"}
    found: dict[str, str | None] = {SERVICE: _render("sweep.service", sweeps), TIMER: _render("sweep.timer", {
        **values, "at": wanted.at, "spread_min": 15, "what": "hpcadmin sweep every night"})}
    if wanted.digest_at != NEVER:
        digests = {**values, "argv": (*wanted.argv, *DIGEST), "sweeps": False,
                   "what": "hpcadmin sweep: tell all problems that there are"}
        found[DIGEST_SERVICE] = _render("sweep.service", digests)
        found[DIGEST_TIMER] = _render("sweep.timer", {**values, "at": wanted.digest_at, "spread_min": 1,
                                                      "what": "the digest of hpcadmin sweep every morning"})
    return found


def _cron_files(wanted: Wanted) -> dict[str, str | None]:
    hour, minute = wanted.at.split(":")
    values = {"head": MARK, "user": wanted.user, "group": wanted.group, "log": LOG, "hour": int(hour),
              "minute": int(minute), "command": shell_line(wanted), "path": PATH, "digest": ""}
    if wanted.digest_at != NEVER:
        hour, minute = wanted.digest_at.split(":")
        values |= {"digest": shell_line(wanted, *DIGEST), "digest_hour": int(hour), "digest_minute": int(minute)}
    return {CRON: _render("sweep.cron", values), LOGROTATE: _render("sweep.logrotate", values)}


def folders(wanted: Wanted) -> dict[str, int]:
    """Folders that must be there, the user's own, and their modes."""
    return {wanted.state: 0o700, **({LOG_DIR: 0o750} if wanted.way == CRON_WAY else {})}


def shell_line(wanted: Wanted, *more: str) -> str:
    variables = [f"{name}={value}" for name, value in wanted.variables]
    return shlex.join(["nice", "-n", "10", *(["env", *variables] if variables else []), *wanted.argv, *more])


def search_path(slurm: str) -> str:
    """PATH with the folder of Slurm's commands, "" where it is one that is looked into anyway."""
    return "" if not slurm or slurm in PATH.split(":") else f"{PATH}:{slurm}"


def systemd_word(text: str) -> str:
    """One word in a setting; % would be a specifier. Written plainly where it is plain."""
    text = text.replace("%", "%%")
    if re.fullmatch(r"[A-Za-z0-9_.+@,:=/%-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def systemd_argument(text: str) -> str:
    """One word of ExecStart=, where $ would be a variable."""
    return systemd_word(text.replace("$", "$$"))


def cron_command(text: str) -> str:
    """The command of a cron line, where % would be a newline, whatever quotes it stands in."""
    return text.replace("%", "\\%")


def _render(name: str, values: Mapping[str, object]) -> str:
    return _environment().get_template(f"{name}.j2").render(values)


@functools.cache
def _environment() -> jinja2.Environment:
    """One, which keeps each template that it has compiled."""
    import jinja2  # noqa: PLC0415  (0.17 s that only this pays)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(data_dir("conf_templates"))), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701  (no page)
    environment.filters |= {"word": systemd_word, "argument": systemd_argument, "cron": cron_command}
    return environment


def is_ours(text: str) -> bool:
    return text.startswith(f"# {MARK}\n")


def systemctl(before: Sequence[str], wanted: Wanted | None, *, enabled: bool) -> tuple[tuple[str, ...], ...]:
    """What systemd is asked for when files have changed (before: their paths) or the timer is not on."""
    units = any(path in UNITS for path in before)
    reload: tuple[tuple[str, ...], ...] = ((("systemctl", "daemon-reload"),) if units else ())
    if wanted is None or wanted.way != SYSTEMD:
        return reload
    if units:       # a timer that runs takes a new time only when it is started anew
        return (*reload, *(("systemctl", verb, timer) for timer in wanted.timers for verb in ("enable", "restart")))
    return () if enabled else tuple(("systemctl", "enable", "--now", timer) for timer in wanted.timers)
