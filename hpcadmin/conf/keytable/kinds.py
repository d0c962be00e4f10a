"""What the key tables are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

Version = tuple[int, int]
VERSIONS: tuple[Version, ...] = ((22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5))
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


class Effect(Enum):
    """What a daemon does with a key or value that its version does not have."""

    FATAL = "fatal: the daemon does not start"
    ERROR = "an error line in the log, otherwise ignored"
    IGNORED = "ignored"
    DEPRECATED = "still read, to be replaced"


# From this version on, scontrol reconfigure replaces every daemon's process by a new one that reads all files anew;
# before, daemons read their files again in place, and what they have loaded or sized stays.
NEW_PROCESS: Version = (23, 11)


class Apply(Enum):
    """What it takes until a changed key is in force, from the least to the most. The value is what an admin is told."""

    NOTHING = "nothing: read anew where it is used"
    RECONFIGURE = "scontrol reconfigure"
    RESTART_SLURMDBD = "restart slurmdbd"
    RESTART_SLURMD = "restart slurmd on the nodes"
    RESTART_SLURMCTLD = "restart slurmctld"
    RESTART_ALL = "restart slurmctld and every slurmd"
    JOBS_LOST = "restart slurmctld and every slurmd with no job left: running and pending jobs are lost"


_LONGEST_NUMBER = 40
_WHOLE = re.compile(r"[+]?(0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)(k?)")
# 90 and 90:00 are minutes, 1:30:00 and 1-0 have hours and days; no unit is written.
_TIME = re.compile(r"[0-9]{1,9}(?::[0-9]{1,9}){0,2}|[0-9]{1,9}-(?:[0-9]{1,9}(?::[0-9]{1,9}){0,2})?")
_PORTS = re.compile(r"[+]?([0-9]{1,9})(?:-[+]?([0-9]{1,9}))?")
_FLOAT = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)(e[+-]?[0-9]+)?")


class Form(Enum):
    """What Slurm's parser takes as a value of a key; anything else is a parse error, which is fatal."""

    TEXT = "text"
    BOOLEAN = "yes or no"
    UINT16 = "a whole number up to 65535"
    UINT32 = "a whole number up to 4294967295"
    UINT64 = "a whole number"
    FLOAT = "a number"
    TIME = "minutes, hours:minutes:seconds, days-hours, days-hours:minutes:seconds, or UNLIMITED"
    PORTS = "a port, or the first and the last port with - between them"

    def takes(self, text: str) -> bool:
        """Whether Slurm's parser takes `text`: as C's strtoul does, hexadecimal and octal too, K for 1024."""
        small = text.casefold()
        if self is Form.TEXT:
            return True
        if self is Form.PORTS:
            ports = _PORTS.fullmatch(text)
            return ports is not None and int(ports[1]) > 0 and (not ports[2] or int(ports[2]) > int(ports[1]))
        if self is Form.TIME:
            return small in ("-1", "infinite", "unlimited") or _TIME.fullmatch(text) is not None
        if self is Form.BOOLEAN:
            return small in ("yes", "up", "true", "1", "no", "down", "false", "0")
        if small in ("unlimited", "infinite"):
            return True
        if self is Form.FLOAT:
            return len(text) <= _LONGEST_NUMBER and _FLOAT.fullmatch(small) is not None
        match = _WHOLE.fullmatch(small) if len(text) <= _LONGEST_NUMBER else None
        if match is None or (match[2] and self is Form.UINT16):
            return False
        digits = match[1]
        base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
        number = int(digits, base) * (1024 if match[2] else 1)
        return number < {Form.UINT16: 2 ** 16, Form.UINT32: 2 ** 32, Form.UINT64: 2 ** 64}[self]


@dataclass(frozen=True)
class Life:
    """What a key, or a word of its value, goes through.

    since: first version that has it. changes: what happened to it later, each from that version on, oldest first:
    ((23, 2), DEPRECATED), ((23, 11), FATAL). instead: what to write in its place, a bare key with the same value; of
    several, apart by |, the first that the version has. note: what else an admin must know. sure: False where neither
    source nor daemon of a version was seen.
    """

    name: str
    since: Version = OLDEST
    changes: tuple[tuple[Version, Effect], ...] = ()
    instead: str = ""
    note: str = ""
    sure: bool = True

    @property
    def until(self) -> Version | None:
        """First version in which it is no longer as it was."""
        return self.changes[0][0] if self.changes else None

    def change_in(self, version: Version) -> Effect | None:
        """What became of it by that version; None before it changed."""
        found = None
        for start, effect in self.changes:
            if version >= start:
                found = effect
        return found


@dataclass(frozen=True)
class Key(Life):
    """One key of one kind of statement.

    file: the kind of statement as `keys.statement` names it. apply: what a change of it takes before 23.11; applied:
    what it takes since later versions: ((23, 11), Apply.X) is X from 23.11 on. alias: the key that it is another name
    of. early: what a version does with it that does not have it yet. needs: plug-ins of which one must be in use, else
    no daemon knows the key. several: first version in which the lines of a key that stands more than once add up; None
    where the last one counts.
    """

    file: str = ""
    form: Form = Form.TEXT
    apply: Apply = Apply.RECONFIGURE
    applied: tuple[tuple[Version, Apply], ...] = ()
    alias: str = ""
    early: Effect = Effect.FATAL
    needs: tuple[str, ...] = ()
    several: Version | None = None

    def effect_in(self, version: Version) -> Effect | None:
        """None where the version has it and has nothing to say about it."""
        return self.early if version < self.since else self.change_in(version)

    def apply_in(self, version: Version) -> Apply:
        found = self.apply
        for start, apply in self.applied:
            if version >= start:
                found = apply
        return found


@dataclass(frozen=True)
class Words:
    """The words that the value of a key is made of.

    unknown: what a daemon does with a word that its version does not have; None where it may be anybody's own, such as
    the name of a plug-in that the site has built. later: what it does since later versions. prefix: what plug-in names
    may be written with or without.
    by_part: Slurm looks for the word anywhere in the value, so a longer word that has it inside counts as it.
    capitals: what a daemon does with a word in other capitals than Slurm's own, first version and effect; () where
    they do not matter. none: first version that takes every value with "none" in it, in whatever capitals, for none.
    """

    file: str
    key: str
    words: tuple[Life, ...]
    unknown: Effect | None = Effect.FATAL
    prefix: str = ""
    by_part: bool = False
    later: tuple[tuple[Version, Effect], ...] = ()
    capitals: tuple[tuple[Version, Effect], ...] = ()
    none: Version | None = None

    def misspelt(self, text: str, word: Life, version: Version) -> Effect | None:
        """What the version does with `text`, which is `word` but for its capitals; None where nothing."""
        given = text if not self.prefix or "/" in text else self.prefix + text
        if given == word.name or (self.none and version >= self.none and "none" in text.casefold()):
            return None
        return next((effect for start, effect in reversed(self.capitals) if version >= start), None)

    def lacking(self, version: Version) -> Effect | None:
        """What the version does with a word that it does not have."""
        found = self.unknown
        for start, effect in self.later:
            if version >= start:
                found = effect
        return found

    def effect_of(self, word: Life, version: Version) -> Effect | None:
        """None where the version has the word and has nothing to say about it."""
        return (self.lacking(version) or Effect.FATAL) if version < word.since else word.change_in(version)

    def find(self, text: str) -> Life | None:
        """The word that `text` is: "autobind=cores" is the word "autobind="."""
        given = text.casefold()
        if self.prefix and not given.startswith(self.prefix):
            given = self.prefix + given
        for word in self.words:
            name = word.name.casefold()
            if given == name or (name.endswith("=") and given.startswith(name)) or (self.by_part and name in given):
                return word
        return None


_NOTED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_/=]*)(?:[+](\d\d)[.](\d\d))?(?:-(\d\d)[.](\d\d))?")


def noted(text: str, gone: Effect = Effect.FATAL) -> Iterator[Life]:
    """"TLSType+24.05 SchedulerAuth-24.05": names with the first version that has them, and the first that does not."""
    for word in text.split():
        match = _NOTED.fullmatch(word)
        if match is None:
            raise ValueError(word)
        since = (int(match[2]), int(match[3])) if match[2] else OLDEST
        yield Life(match[1], since, (((int(match[4]), int(match[5])), gone),) if match[4] else ())


def table(file: str, forms: Mapping[Form, str], *more: Key, apply: Apply = Apply.RECONFIGURE,
          before: Mapping[Apply, str] | None = None, always: Mapping[Apply, str] | None = None,
          needs: tuple[str, ...] = ()) -> tuple[Key, ...]:
    """The keys of one kind of statement, by the form of their values, in the notation of `noted`.

    apply: what a change takes that is named nowhere else. before: until 23.11, when a reconfiguration came to be
    enough. always: in every version. more: keys with a longer story; they stand in for those of the same name.
    """
    early = {name: how for how, names in (before or {}).items() for name in names.split()}
    ever = {name: how for how, names in (always or {}).items() for name in names.split()}
    told = {key.name for key in more}
    found = []
    for form, text in forms.items():
        found += [Key(life.name, life.since, life.changes, file=file, form=form, needs=needs)
                  for life in noted(text) if life.name not in told]
    found += [replace(key, file=file) for key in more]
    unknown = {*early, *ever} - {key.name for key in found}
    if unknown:
        raise ValueError(f"{file}: {sorted(unknown)}")
    return tuple(_applied(key, early.get(key.name), ever.get(key.name, apply)) for key in found)


def _applied(key: Key, early: Apply | None, ever: Apply) -> Key:
    if early is None:
        return replace(key, apply=ever)
    return replace(key, apply=early, applied=((NEW_PROCESS, ever),))
