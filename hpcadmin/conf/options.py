"""The site's own keys of one file: which version takes them, under which name, and what has found its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.grammar import scalar, wrong_key
from hpcadmin.conf.keys import Effect, Rule, Version, effects, of_family, show, statement
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
# Keys that later became a word of another one, which says the same.
_WORD_OF = {"keepalivetime": ("CommunicationParameters", "keepalivetime={}"), "exclusiveuser": ("Exclusive", "USER"),
            "exclusivetopo": ("Exclusive", "TOPO")}
# Keys of partitions that are two keys now, both of which say the same.
_TWO = {"priority": ("PriorityJobFactor", "PriorityTier")}
# Keys of which an old word is no other name for the new one, but another choice.
_CHOICES = ("cgroupplugin",)


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
    """Writes the site's keys as the version wants them. Notes; what cannot be written is in options.problems.

    What the version does not have and does not die of is left out, what it has another name for is renamed. What is
    fatal stays, and is a problem of the file's lines (`refused`). file: the kind of statement, see `keys.statement`.
    """
    _twice(options)
    notes: list[str] = []
    for key, own in list(options.own.items()):
        if key in _TWO and file == "PartitionName":
            del options.own[key]
            notes.append(f"[{options.table}] {own.key}={own.value}: an old name; written as {' and '.join(_TWO[key])}")
            for one in _TWO[key]:
                options.own.setdefault(one.casefold(), replace(own, key=one, why=f"{own.key} is its old name"))
        elif options.table == "slurm.options" and key in _ELSEWHERE:
            place = _ELSEWHERE[key]
            options.problems.append(Problem(Kind.SITE, f"{own.key} is not a setting of this kind", key=own.path,
                                            hint=f"write it as {place} in site.toml" if place
                                            else "conf render does not write it"))
        elif version is not None:
            changed, told = _for_version(own, file, version)
            notes += [f"[{options.table}] {text}" for text in told]
            if changed != own:
                del options.own[key]
            there = options.own.get(changed.key.casefold()) if changed is not None else None
            if changed is None or changed == own:
                continue
            if there is None:
                options.own[changed.key.casefold()] = changed
            elif own.key.casefold() in _WORD_OF and changed.key != "Exclusive":
                options.own[changed.key.casefold()] = replace(there, value=f"{there.value},{changed.value}",
                                                              why=changed.why)
            else:
                notes.append(f"[{options.table}] {own.key} is left out, since {changed.key} is there")
    return notes


def _for_version(own: Own, file: str, version: Version) -> tuple[Own | None, list[str]]:
    """The key as it will be written (None: not at all), and what is to be said about that."""
    now = own
    notes: list[str] = []
    for rule, where, effect in effects(file, own.key, own.value, version):
        if effect is Effect.FATAL or rule.unknown:
            continue
        what = rule.value or own.key
        said = f"{own.key}={own.value} in Slurm {show(where)}: {what}: {effect.value}"
        why = f"{rule.instead} is {what} of Slurm {show(where)}"
        if not rule.value and own.key.casefold() in _WORD_OF:
            now = _word_of(own, where)
            return now, [*notes, f"{said}; written as {now.key}={now.value}"]
        if own.key.casefold() in _CHOICES and effect is Effect.DEPRECATED:
            continue
        if not rule.value and rule.instead and not wrong_key(rule.instead):
            now = replace(now, key=rule.instead, value=of_family(now.value, own.key, rule.instead),
                          why=f"Slurm {show(where)} calls {own.key} {rule.instead}")
            notes.append(f"{said}; written as {now.key}={now.value}")
        elif rule.value and rule.instead and "=" not in rule.instead and " " not in rule.instead:
            now = replace(now, value=_words(now.value, rule.value, rule.instead), why=why)
            notes.append(f"{said}; {rule.instead} is written")
        elif effect is Effect.DEPRECATED:
            continue                             # it is still read; said for the file's lines
        elif rule.value and _words(now.value, rule.value, ""):
            now = replace(now, value=_words(now.value, rule.value, ""), why=f"{rule.value} is left out")
            notes.append(f"{said}; left out")
        else:
            notes.append(f"{said}; left out{f', {rule.instead} instead' if rule.instead else ''}")
            return None, notes
    return now, notes


def _word_of(own: Own, where: Version) -> Own:
    key, word = _WORD_OF[own.key.casefold()]
    if key == "Exclusive" and own.value.casefold() not in ("yes", "true", "1"):
        word = "NO"
    return Own(key, word.format(own.value), own.path, f"{own.key} is a word of {key} in Slurm {show(where)}")


def _words(value: str, old: str, new: str) -> str:
    """A list with one word replaced, or taken out where new is ""."""
    words = [new if word.strip().casefold() == old.casefold() else word for word in value.split(",")]
    return ",".join(word for word in words if word)


def _twice(options: Options) -> None:
    seen: set[str] = set()
    for name in options.values:
        if name.casefold() in seen:
            options.problems.append(Problem(Kind.SITE, f"{name} comes twice (Slurm's keys are the same in capitals)",
                                            key=f"{options.table}.{name}"))
        seen.add(name.casefold())


def refused(file: str, lines: Sequence[Line], version: Version | None) -> tuple[list[Problem], list[str]]:
    """(problems, notes): keys and values that the version, or where none is known some version, does not have."""
    problems, notes = [], []
    seen: set[tuple[str, str, str]] = set()
    for item in lines:
        if item.raw:
            continue
        kind = statement(file, item.entries[0].key)
        for e in item.entries:
            if (kind, e.key, e.value) in seen or wrong_key(e.key):
                continue
            seen.add((kind, e.key, e.value))
            for rule, where, effect in effects(kind, e.key, e.value, version):
                text, hint = _said(file, e, rule, where, effect)
                if effect is Effect.FATAL or (effect is Effect.ERROR and (rule.unknown or version is not None)):
                    name_it = "" if version or rule.unknown else "--slurm-version names yours"
                    problems.append(Problem(Kind.SITE if e.site_key else Kind.FAULT, text, key=e.site_key,
                                            hint="; ".join(part for part in (hint, name_it) if part)))
                else:
                    notes.append(f"{text}{f' ({hint})' if hint else ''}")
    return problems, notes


def _said(file: str, e: Entry, rule: Rule, where: Version, effect: Effect) -> tuple[str, str]:
    if rule.unknown and not rule.value:
        return f"{file}: no Slurm has the key {e.key}", f"{rule.instead}?" if rule.instead else "leave it out"
    what = f"{rule.value}: " if rule.value and rule.value != e.value else ""
    text = f"{file}: {e.key}={e.value[:200]} in Slurm {show(where)}: {what}{effect.value}"
    if rule.unknown:
        return text, f"{rule.instead}?" if rule.instead else rule.note
    return text, "; ".join(part for part in (f"{rule.instead} instead" if rule.instead else "", rule.note) if part)
