"""The site's own keys of one file: which version takes them, under which name, and what has found its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.grammar import scalar, wrong_key
from hpcadmin.conf.keys import Effect, Rule, Version, effects, lookup, nearest, show, statement
from hpcadmin.conf.parts import DEFAULT, Entry, Kind, Line, Problem, line
from hpcadmin.site import Scalar

# Keys that are not simple settings, and where in site.toml they belong.
_ELSEWHERE = {
    "nodename": "[nodes.NAME.options]", "nodeset": "", "partitionname": "[partitions.NAME]", "downnodes": "",
    "include": "", "clustername": "[cluster] name", "slurmctldhost": "[cluster] controllers",
    "controlmachine": "[cluster] controllers", "controladdr": "[cluster] controllers",
    "backupcontroller": "[cluster] controllers", "backupaddr": "[cluster] controllers", "frontendname": "",
    "poweraction": "",
}


@dataclass(frozen=True)
class Own:
    """A key of the site as it will be written. why: what was changed about it, "" where nothing was."""

    key: str
    value: str
    path: str                                    # the dotted key in site.toml
    why: str = ""


@dataclass
class Options:
    """The site's own settings of one file; `take` marks what has found its place."""

    table: str                                   # "slurm.options"
    values: Mapping[str, Scalar]
    own: dict[str, Own] = field(default_factory=dict)         # by the key in small letters
    problems: list[Problem] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            self.own.setdefault(name.casefold(), Own(name, scalar(value), f"{self.table}.{name}"))

    def find(self, key: str) -> str | None:
        found = self.own.get(key.casefold())
        return None if found is None else found.key

    def value(self, key: str, default: str = "") -> str:
        """The value that will be in force, for decisions that depend on it."""
        found = self.own.get(key.casefold())
        return default if found is None else found.value

    def has(self, key: str, word: str, default: str = "") -> bool:
        """Whether a list such as PrologFlags has the word, whatever its capitals."""
        return word.casefold() in (part.strip().casefold() for part in self.value(key, default).split(","))

    def take(self, key: str, value: str, reason: str, source: str = DEFAULT) -> Line:
        """The line for `key`: ours, or the site's where it has one."""
        found = self.own.get(key.casefold())
        if found is None:
            return line(key, value, reason, source)
        self.taken.add(key.casefold())
        return self._line(found, f"the site's own; {value} otherwise: {reason}" if value else "the site's own")

    def add(self, key: str, word: str, reason: str, source: str, site_key: str = "") -> Line:
        """A list that must have `word`: alone, or behind the words of the site's own list."""
        found = self.own.get(key.casefold())
        if found is None:
            return Line((Entry(key, word, reason, source, site_key),))
        self.taken.add(key.casefold())
        if self.has(key, word):
            return self._line(found, f"the site's own; {word}: {reason}")
        entry = self._line(found, f"the site's own, and {word}: {reason}").entries[0]
        return Line((replace(entry, value=f"{entry.value},{word}"),))

    def put(self, key: str, value: str, reason: str, path: str) -> Line:
        """A key that another table of site.toml sets; a problem where this one sets it to something else."""
        found = self.own.get(key.casefold())
        table, _, name = path.rpartition(".")
        if found is not None:
            self.taken.add(key.casefold())
            if found.value != value:
                self.problems.append(Problem(
                    Kind.SITE, f"[{self.table}] {found.key}={found.value} contradicts [{table}] {name}, which makes it "
                    f"{value}", key=found.path, hint="leave one of them out"))
        return Line((Entry(key, value, reason, f"site.toml [{table}] {name}", path),))

    def rest(self) -> tuple[Line, ...]:
        return tuple(self._line(found, "the site's own") for key, found in sorted(self.own.items())
                     if key not in self.taken)

    def _line(self, own: Own, reason: str) -> Line:
        text = f"{reason}; {own.why}" if own.why else reason
        return Line((Entry(own.key, own.value, text, f"site.toml [{self.table}]", own.path),))


def for_version(options: Options, file: str, version: Version | None) -> list[str]:
    """Writes the site's keys as the version wants them. Notes; what cannot be written is in options.problems."""
    _twice(options)
    notes: list[str] = []
    for key, own in list(options.own.items()):
        path = own.path
        if options.table == "slurm.options" and key in _ELSEWHERE:
            place = _ELSEWHERE[key]
            hint = f"write it as {place} in site.toml" if place else "conf render does not write it"
            options.problems.append(Problem(Kind.SITE, f"{own.key} is not a setting of this kind", key=path, hint=hint))
            continue
        if unknown(file, own.key) is not None:
            continue                             # said for every line of the file
        for rule, where, effect in effects(file, own.key, own.value, version):
            if version is None or effect is Effect.FATAL:
                continue                         # the same
            said = f"[{options.table}] {own.key}={own.value} in Slurm {show(where)}: {effect.value}"
            changed = _replaced(own, rule, where)
            if effect is Effect.DEPRECATED and changed is None:
                continue                         # it is still read
            del options.own[key]
            if changed is None:
                notes.append(f"{said}; left out{f', {rule.instead} is what it has' if rule.instead else ''}")
            elif changed.key.casefold() in options.own:
                notes.append(f"{said}; left out, since {changed.key} is there")
            else:
                options.own[changed.key.casefold()] = changed
                notes.append(f"{said}; written as {changed.key}={changed.value}")
            break
    return notes


def _twice(options: Options) -> None:
    seen: set[str] = set()
    for name in options.values:
        if name.casefold() in seen:
            options.problems.append(Problem(Kind.SITE, f"{name} comes twice (Slurm's keys are the same in capitals)",
                                            key=f"{options.table}.{name}"))
        seen.add(name.casefold())


def _replaced(own: Own, rule: Rule, where: Version) -> Own | None:
    """The key or value that has taken its place, where one says the same."""
    if not rule.instead or (wrong_key(rule.instead.partition("=")[0]) and not rule.value):
        return None
    if rule.value:
        if "=" in rule.instead:
            return None
        words = [rule.instead if word.strip().casefold() == rule.value.casefold() else word
                 for word in own.value.split(",")]
        return replace(own, value=",".join(words), why=f"{rule.instead} is {rule.value} of Slurm {show(where)}")
    if "=" in rule.instead:
        return None
    value = own.value
    old, new = (f"{_snake(k)}/" for k in (own.key, rule.instead))
    if value.startswith(old):
        value = new + value[len(old):]           # the plug-in's family is named after the key
    return Own(rule.instead, value, own.path, f"{own.key} is called {rule.instead} in Slurm {show(where)}")


def _snake(key: str) -> str:
    """The family of plug-ins of a key: JobContainerType -> job_container."""
    text = "".join(f"_{c.lower()}" if c.isupper() else c for c in key).lstrip("_")
    return text.removesuffix("_type")


def unknown(kind: str, key: str) -> str | None:
    """None where some version has the key; else the key that may have been meant, "" for none."""
    if wrong_key(key) or lookup(kind, key) is not None or lookup("slurm.conf", "ClusterName") is None:
        return None
    return nearest(kind, key)


def refused(file: str, lines: Sequence[Line], version: Version | None) -> tuple[list[Problem], list[str]]:
    """(problems, notes): keys and values that the version, or where none is known some version, does not have."""
    problems, notes = [], []
    for item in lines:
        if item.raw:
            continue
        kind = statement(file, item.entries[0].key)
        for e in item.entries:
            near = unknown(kind, e.key)
            if near is not None:
                problems.append(Problem(Kind.SITE, f"{file}: no Slurm has the key {e.key}", key=e.site_key,
                                        hint=f"{near}?" if near else "leave it out"))
                continue
            for rule, where, effect in effects(kind, e.key, e.value, version):
                instead = f"{rule.instead} instead" if rule.instead else ""
                text = f"{file}: {e.key}={e.value} in Slurm {show(where)}: {effect.value}"
                if effect is not Effect.FATAL:
                    notes.append(f"{text}{f'; {instead}' if instead else ''}")
                    continue
                name_it = "" if version else "--slurm-version names yours"
                problems.append(Problem(Kind.SITE, text, key=e.site_key,
                                        hint="; ".join(part for part in (instead, name_it) if part)))
    return problems, notes
