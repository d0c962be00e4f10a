"""Keys, values and plug-ins of every file against the versions asked for, and which upgrade ends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.rules._topology_words import only, told
from hpcadmin.conf.existing.parts import Place, SourceFile, Value
from hpcadmin.conf.keys import VERSIONS, Effect, Version, effects, lookup, nearest, plugins, show, statement
from hpcadmin.text import plural

_WORST = (Effect.FATAL, Effect.ERROR, Effect.IGNORED, Effect.DEPRECATED)
_MEANS = {
    Effect.FATAL: "fatal: the daemon that reads it does not start",
    Effect.ERROR: "an error line in the log, and it is ignored",
    Effect.IGNORED: "it is ignored in silence",
    Effect.DEPRECATED: "it is still read, with a warning or none: to be replaced",
}


@dataclass(frozen=True)
class Life:
    """What becomes of one key, or of one value of it, version by version; (): every version has it.

    what: "SelectType=select/cons_res". instead: the line or lines that replace it.
    """

    what: str
    effects: tuple[tuple[Version, Effect], ...]
    instead: tuple[str, ...] = ()
    young: bool = False                  # later versions have it, not older ones

    def in_version(self, version: Version) -> Effect | None:
        return dict(self.effects).get(version)


@lru_cache(maxsize=20_000)
def lives(kind: str, key: str, text: str) -> tuple[Life, ...]:
    """kind: as keys.statement names it. () where all versions have the key and the value."""
    found: dict[tuple[str, str], dict[Version, tuple[Effect, str]]] = {}
    for version in VERSIONS:
        for rule, _, effect in effects(kind, key, text, version):
            found.setdefault((rule.key, rule.value), {})[version] = (effect, rule.instead)
    return tuple(_life(key, text, value, by_version) for (_, value), by_version in found.items())


def _life(key: str, text: str, value: str, by_version: dict[Version, tuple[Effect, str]]) -> Life:
    instead = next((name for _, name in reversed(by_version.values()) if name), "")
    young = VERSIONS[-1] not in by_version
    return Life(f"{key}={value}" if value else key, tuple((v, e) for v, (e, _) in by_version.items()),
                _replaced(key, text, value, instead), young)


def _replaced(key: str, text: str, value: str, instead: str) -> tuple[str, ...]:
    if not instead:
        return ()
    if "=" in instead or " " in instead:
        return (instead,)
    if not value:
        return (f"{instead}={text}",)
    words = [instead if word.strip().casefold() == value.casefold() else word for word in text.split(",")]
    return (f"{key}={','.join(words)}",)


def _values(situation: Situation) -> Iterator[tuple[str, Value, SourceFile]]:
    """(kind, value, file) of each different key and text of each file; the kind by the first key of its line."""
    for file in situation.conf.files:
        seen: set[tuple[str, str, str]] = set()
        for line in file.statements:
            kind = statement(file.name, line.kind)
            for value in line.values:
                what = (kind, value.key, value.text)
                if what not in seen and value.key.casefold() != "include":
                    seen.add(what)
                    yield kind, value, file


def _places(situation: Situation, matches: Sequence[tuple[str, str, str]], path: str) -> int:
    """How many lines have one of these (kind, key, text)."""
    wanted = set(matches)
    return sum(1 for file in situation.conf.files if file.path == path for line in file.statements
               if any((statement(file.name, line.kind), v.key, v.text) in wanted for v in line.values))


def _keys(situation: Situation) -> Iterator[Finding]:
    """One finding for each key or value that a version does not have, however many lines have it."""
    grouped: dict[tuple[str, str, Life], list[tuple[str, Value]]] = {}
    for kind, value, file in _values(situation):
        for life in lives(kind, value.key, value.text):
            if life.effects:
                grouped.setdefault((file.path, kind, Life(life.what, life.effects, (), life.young)), []).append(
                    (kind, value))
    for (path, _, life), members in grouped.items():
        count = _places(situation, [(kind, v.key, v.text) for kind, v in members], path)
        kind, first = members[0]
        instead = next(one.instead for one in lives(kind, first.key, first.text) if one.what == life.what)
        yield from _judged(situation, Life(life.what, life.effects, instead, life.young), first.place, count)


def _judged(situation: Situation, life: Life, place: Place, lines: int) -> Iterator[Finding]:
    more = f" (on {plural(lines, 'line')})" if lines > 1 else ""
    asked = situation.versions or (VERSIONS if len(life.effects) == len(VERSIONS) else ())
    said: set[Effect] = set()
    for effect in _WORST:
        versions = tuple(v for v in asked if life.in_version(v) is effect)
        if not versions:
            continue
        said.add(effect)
        since = f"; from {show(_since(life))} on" if life.young else ""
        yield Finding(_severity(life, effect), f"{life.what}{more}", f"{told(_spread(life, effect, versions))}: "
                      f"{_MEANS[effect]}{since}", life.instead, place, versions=only(situation, versions))
    if len(situation.versions) < 2:
        yield from _upgrade(situation, life, place, more, said)


def _upgrade(situation: Situation, life: Life, place: Place, more: str, said: set[Effect]) -> Iterator[Finding]:
    """The next version in which it is worse than in all that were asked for."""
    if life.young:
        if not situation.versions and not said:
            yield Finding(Severity.NOTE, f"{life.what}{more}", f"only from {show(_since(life))} on; before: "
                          f"{_MEANS[life.effects[0][1]]}", place=place)
        return
    now = max(situation.versions, default=None)
    for version, effect in life.effects:
        if (now is None or version > now) and effect not in said and _worse(effect, said):
            ends = "ends it" if effect is Effect.FATAL else "changes it"
            yield Finding(Severity.NOTE, f"{life.what}{more}", f"the upgrade to {show(version)} {ends}: "
                          f"{_MEANS[effect]}", life.instead, place, versions=())
            return


def _worse(effect: Effect, than: set[Effect]) -> bool:
    return all(_WORST.index(effect) < _WORST.index(other) for other in than)


def _since(life: Life) -> Version:
    return next(v for v in VERSIONS if life.in_version(v) is None)


def _spread(life: Life, effect: Effect, versions: Sequence[Version]) -> tuple[Version, ...]:
    """All versions that do so, where the one asked for is one of many: "23.11 and later" says more than "24.05"."""
    every = tuple(v for v, found in life.effects if found is effect)
    return every if set(versions) <= set(every) else tuple(versions)


def _severity(life: Life, effect: Effect) -> Severity:
    """What is ignored although it was meant is wrong; what is merely no longer needed is old."""
    if effect is Effect.FATAL:
        return Severity.FATAL
    if effect is Effect.DEPRECATED or not life.young:
        return Severity.DEPRECATED
    return Severity.WRONG


# --- what no version has -------------------------------------------------------------------------------------------


def _unknown(situation: Situation) -> Iterator[Finding]:
    if lookup("slurm.conf", "ClusterName") is None:
        return                               # without its table every key would be unknown
    told_of: set[tuple[str, str, str]] = set()
    for kind, value, file in _values(situation):
        what = (file.path, kind, value.key.casefold())
        if what in told_of or file.name.endswith(".yaml") or lookup(kind, value.key) is not None or kind not in _TABLED:
            continue
        told_of.add(what)
        near = nearest(kind, value.key)
        count = sum(1 for line in file.statements if any(v.key.casefold() == what[2] for v in line.values))
        more = f" (on {plural(count, 'line')})" if count > 1 else ""
        yield Finding(Severity.FATAL, f"{value.key[:60]}= is no key of {_of(kind)} in any version{more}",
                      "a parsing error: the daemon that reads it does not start",
                      (f"{near}={value.text}",) if near else (), value.place)


# Of files that the table does not describe, no key is wrong.
_TABLED = frozenset({"slurm.conf", "NodeName", "PartitionName", "NodeSet", "DownNodes", "gres.conf", "cgroup.conf",
                     "topology.conf", "acct_gather.conf", "slurmdbd.conf", "job_container.conf"})


def _of(kind: str) -> str:
    return kind if "." in kind else f"{kind}= lines"


def _plug_ins(situation: Situation) -> Iterator[Finding]:
    """select/cons_tress: plug-ins that no version has."""
    for kind, value, _ in _values(situation):
        if kind not in ("slurm.conf", "cgroup.conf") or not value.text:
            continue
        names = _names_of(value.key)
        for word in value.text.split(",") if names else ():
            name = word.strip().casefold()
            if name and name not in names:
                near = get_close_matches(name, names, 1, 0.7)
                yield Finding(Severity.FATAL, f"{value.key}={word[:60]}: no version has such a plug-in",
                              "the daemon that needs it does not start; there are " + ", ".join(sorted(
                                  set(names.values()))[:12]), (f"{value.key}={names[near[0]]}",) if near else (),
                              value.place)


@lru_cache(maxsize=256)
def _names_of(key: str) -> dict[str, str]:
    """Plug-ins of a key by name in small letters, with and without what stands before the "/"; {} for other keys."""
    found = [name for name in plugins(key, None) if "/" in name]
    return {short.casefold(): name for name in found for short in (name, name.partition("/")[2])}


RULES: tuple[Rule, ...] = (_keys, _unknown, _plug_ins)
