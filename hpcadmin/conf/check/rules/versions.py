"""Keys, values and plug-ins of every file against the versions asked for, and which upgrade ends them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.rules._topology_words import only, told
from hpcadmin.conf.existing.parts import Place
from hpcadmin.conf.keys import VERSIONS, Effect, Version, effects, lookup, names, of_family, show, statement
from hpcadmin.text import plural

_WORST = (Effect.FATAL, Effect.ERROR, Effect.IGNORED, Effect.DEPRECATED)
_MEANS = {
    Effect.FATAL: "the daemon that reads it does not start (fatal)",
    Effect.ERROR: "an error line in the log, and it is ignored",
    Effect.IGNORED: "it is ignored in silence",
    Effect.DEPRECATED: "it is still read, and to be replaced",
}


@dataclass(frozen=True)
class Life:
    """What becomes of a key, or of a word of its value, version by version.

    what: "SelectType=select/cons_res". effects: (version, what it does, what replaces it there) where it is not as it
    was. young: later versions have it, older ones do not. unknown: no version has it.
    """

    what: str
    effects: tuple[tuple[Version, Effect, str], ...]
    note: str = ""
    young: bool = False
    unknown: bool = False
    alone: bool = False                  # a key that is all of its line

    def in_version(self, version: Version) -> Effect | None:
        return next((effect for v, effect, _ in self.effects if v == version), None)

    @property
    def essence(self) -> tuple[object, ...]:
        """Without the line's own value, which stands in what replaces it."""
        return (self.what, tuple((v, e) for v, e, _ in self.effects), self.note)


@lru_cache(maxsize=20_000)
def lives(kind: str, key: str, text: str) -> tuple[Life, ...]:
    """kind: as keys.statement names it. () where all versions take the key and the value as they are."""
    found: dict[tuple[str, bool], list[tuple[Version, Effect, str]]] = {}
    notes: dict[tuple[str, bool], str] = {}
    for version in VERSIONS:
        for rule, _, effect in effects(kind, key, text, version):
            about = (rule.value, rule.unknown)
            found.setdefault(about, []).append((version, effect, _replaced(key, text, rule.value, rule.instead)))
            notes[about] = notes.get(about) or rule.note
    return tuple(Life(_what(kind, key, text, word, unknown=unknown), tuple(told_of), notes[word, unknown],
                      not unknown and VERSIONS[-1] not in {v for v, _, _ in told_of}, unknown,
                      not word and kind.endswith(".conf") and kind not in ("gres.conf", "topology.conf"))
                 for (word, unknown), told_of in found.items())


def _what(kind: str, key: str, text: str, word: str, *, unknown: bool) -> str:
    if not word:
        where = kind if "." in kind else f"{kind}= lines"
        return f"{key[:60]}= is no key of {where} in any version" if unknown else f"{key[:60]}="
    known = lookup(kind, key)
    if word == text and known is not None and not known.form.takes(text):
        return f"{key}={text[:80]}: it takes {known.form.value}"
    return f"{key}={word[:80]}: no version has such a value" if unknown else f"{key}={word[:80]}"


def _replaced(key: str, text: str, word: str, instead: str) -> str:
    """The line that takes its place, "" for none. Of a list only the word is another one."""
    if not instead or "=" in instead or " " in instead:
        return instead if "=" in instead else ""
    if not word:
        return f"{instead}={of_family(text, key, instead)}"
    return f"{key}={','.join(instead if part.strip() == word else part.strip() for part in text.split(','))}"


def keys(situation: Situation) -> Iterator[Finding]:
    """One finding for each key or value that a version takes otherwise, however many lines have it."""
    for file in situation.conf.files:
        if file.name.endswith(".yaml"):
            continue                         # keys of another kind, judged where they are read
        found: dict[tuple[object, ...], tuple[Life, Place, set[int]]] = {}
        for line in file.statements:
            kind = statement(file.name, line.kind)
            if not names(kind):
                continue                     # of files that no table describes, no key is wrong
            for value in line.values:
                for life in lives(kind, value.key, value.text):
                    found.setdefault((kind, *life.essence), (life, value.place, set()))[2].add(line.place.line)
        for life, place, lines in found.values():
            more = f" (on {plural(len(lines), 'line')})" if len(lines) > 1 else ""
            yield from _judged(situation, life, place, more)


def _judged(situation: Situation, life: Life, place: Place, more: str) -> Iterator[Finding]:
    everywhere = len(life.effects) == len(VERSIONS)
    asked = situation.versions or (VERSIONS if everywhere else ())
    said: set[Effect] = set()
    for effect in _WORST:
        versions = tuple(v for v in asked if life.in_version(v) is effect)
        if not versions:
            continue
        said.add(effect)
        # "23.11 and later" says more than "24.05", of a version that is one of many.
        spread = tuple(v for v, own, _ in life.effects if own is effect)
        when = "" if len(spread) == len(VERSIONS) else f"{told(spread)}: "
        since = f"; from {show(_since(life))} on" if life.young else ""
        right = next((instead for v, _, instead in life.effects if v == versions[0]), "")
        text = f"{when}{_MEANS[effect]}{since}{'' if right else _left_out(life)}"
        yield Finding(_severity(life, effect), f"{life.what}{more}", _noted(text, life),
                      (right,) if right else (), place,
                      versions=() if everywhere and set(asked) == set(versions) else only(situation, versions))
    if len(situation.versions) < 2 and not life.unknown:
        yield from _upgrade(situation, life, place, more, said)


def _upgrade(situation: Situation, life: Life, place: Place, more: str, said: set[Effect]) -> Iterator[Finding]:
    """The next versions in which it is worse than in that which was asked for."""
    if life.young:
        if not situation.versions and not said:
            yield Finding(Severity.NOTE, f"{life.what}{more}", _noted(
                f"only from {show(_since(life))} on; before: {_MEANS[life.effects[0][1]]}", life), place=place)
        return
    now = max(situation.versions, default=None)
    steps: list[tuple[Version, Effect, str]] = []
    for version, effect, instead in life.effects:
        worse = all(_WORST.index(effect) < _WORST.index(other) for other in (*said, *(e for _, e, _ in steps)))
        if worse and (now is None or version > now):
            steps.append((version, effect, instead))
    if steps:
        text = "; ".join(f"the upgrade to {show(v)} {'ends' if e is Effect.FATAL else 'changes'} it: {_MEANS[e]}"
                         for v, e, _ in steps)
        right = steps[-1][2]
        text += "" if right else _left_out(life)
        yield Finding(Severity.NOTE, f"{life.what}{more}", _noted(text, life), (right,) if right else (), place)


def _left_out(life: Life) -> str:
    """What to do about a key that is gone without another in its place."""
    if life.young or life.unknown or not life.what.endswith("="):
        return ""
    return "; leave the line out" if life.alone else f"; leave {life.what} out of the line"


def _noted(text: str, life: Life) -> str:
    return f"{text} ({life.note})" if life.note else text


def _since(life: Life) -> Version:
    """First version that has it as it is."""
    broken = {v for v, _, _ in life.effects}
    return next(v for v in VERSIONS if v not in broken)


def _severity(life: Life, effect: Effect) -> Severity:
    """What is ignored although it was meant is wrong; what is merely no longer needed is old."""
    if effect is Effect.FATAL:
        return Severity.FATAL
    if effect is Effect.DEPRECATED or not (life.young or life.unknown):
        return Severity.DEPRECATED
    return Severity.WRONG


RULES: tuple[Rule, ...] = (keys,)
