"""Which keys and values each Slurm version has, what a version does with those that it lacks, and what a change takes.

The tables in `keytable` were read from the parser tables of Slurm's own source, every release from 22.05 to 26.05, and
put before the real daemons of 22.05, 24.11 and 26.05 (tests/integration/test_conf_keys_slurm.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from hpcadmin.conf.keytable import (
    cgroup,
    gres,
    node,
    others,
    partition,
    slurm_conf,
    slurmdbd,
    topology,
    values,
)
from hpcadmin.conf.keytable.kinds import NEWEST, OLDEST, VERSIONS, Apply, Effect, Form, Key, Life, Version, Words
from hpcadmin.errors import UsageError

__all__ = ["NEWEST", "NODE_PARAMETERS", "OLDEST", "VERSIONS", "Apply", "Effect", "Form", "Key", "Rule", "Version",
           "applies", "effects", "lookup", "names", "nearest", "of_family", "parse_version", "plugins", "show",
           "statement"]

_KEYS: dict[tuple[str, str], Key] = {
    (key.file, key.name.casefold()): key
    for module in (slurm_conf, node, partition, gres, cgroup, topology, slurmdbd, others) for key in module.KEYS}
_FILES: dict[str, tuple[Key, ...]] = {
    file: tuple(key for key in _KEYS.values() if key.file == file) for file in {file for file, _ in _KEYS}}
_WORDS: dict[tuple[str, str], Words] = {(words.file, words.key.casefold()): words for words in values.VALUES}
# Statements of a file that have keys of their own, by their first key.
_STATEMENTS: dict[str, dict[str, str]] = {
    "slurm.conf": {name.casefold(): name for name in slurm_conf.STATEMENTS},
    "topology.conf": {name.casefold(): name for name in ("SwitchName", "BlockName", "RingName")},
}
_PASSED_OVER = ("mpi.conf",)       # each plug-in reads the file for itself, and passes over what it does not know
_LONGEST = 64            # no key of Slurm's is longer; what is longer is near to none


@dataclass(frozen=True)
class Rule:
    """What is wrong with one key, or with one word of its value.

    value: the word as it stands in the value; "" where it is the key. since: first version that has it. until: first
    version in which it is no longer as it was. instead: what to write in its place in that version: for a key a bare
    key takes the same value; for a word it is a word; else a text for the reader. unknown: no version has it, and
    instead is the nearest that there is. note: what else to know.
    """

    file: str
    key: str
    value: str = ""
    since: Version = OLDEST
    until: Version | None = None
    effect: Effect = Effect.FATAL
    instead: str = ""
    unknown: bool = False
    note: str = ""


# First release in which a node line may choose its own virtual sockets; before, SlurmdParameters is for all nodes.
NODE_PARAMETERS: Version = (25, 11)


def parse_version(text: str) -> Version:
    """(22, 5) from "22.05", "slurm 22.05.8" or "slurm-wlm 22.05.8-4". Raises UsageError."""
    match = re.fullmatch(r"(?:slurm(?:-wlm)?[ -]?)?v?(\d{2})[.](\d{1,2})(?:[.-][0-9A-Za-z.~+-]*)?", text.strip())
    if not match:
        raise UsageError(f"{text[:40]!r} is not a Slurm version", hint="for example 22.05 or 24.11.5")
    version = (int(match[1]), int(match[2]))
    if version not in VERSIONS:
        known = ", ".join(show(v) for v in VERSIONS)
        raise UsageError(f"Slurm {text.strip()[:40]} is not supported", hint=f"known are {known}")
    return version


def show(version: Version) -> str:
    return f"{version[0]}.{version[1]:02d}"


def lookup(file: str, key: str) -> Key | None:
    """The key of that kind of statement (see `statement`), whatever its capitals; None where no version has it."""
    if key.casefold() == "include" and not file.endswith(".yaml"):
        return Key("Include", file=file, several=OLDEST)
    return _KEYS.get((file, key.casefold()))


def names(file: str, version: Version | None = None) -> tuple[str, ...]:
    """The keys of that kind of statement that the version reads (None: that some version has), as Slurm spells them."""
    return tuple(key.name for key in _FILES.get(file, ())
                 if version is None or key.effect_in(version) in (None, Effect.DEPRECATED))


def statement(file: str, first: str) -> str:
    """Whose keys a line of `file` has that begins with the key `first`: "NodeName" for slurm.conf and nodename,
    "slurm.conf" for its simple settings, "gres.conf" for every line of gres.conf."""
    return _STATEMENTS.get(file, {}).get(first.casefold(), file)


def nearest(file: str, key: str) -> str:
    """The key of that kind of statement that is spelt most like `key`; "" where none is near."""
    return _near(key, tuple(k.name for k in _FILES.get(file, ())))


def of_family(value: str, old: str, new: str) -> str:
    """A plug-in's name begins with what its key is called: job_container/tmpfs, namespace/tmpfs."""
    was, now = (re.sub(r"(?<=.)([A-Z])", r"_\1", key).lower().removesuffix("_type") for key in (old, new))
    return f"{now}/{value[len(was) + 1:]}" if value.startswith(f"{was}/") else value


def applies(file: str, key: str, version: Version | None) -> Apply:
    """What a change of this key takes to be in force (None: in the version in which it takes most); an unknown key
    takes everything but the jobs."""
    found = lookup(file, key)
    if found is None:
        return Apply.RESTART_ALL
    if version is not None:
        return found.apply_in(version)
    order = list(Apply)
    return max((found.apply_in(v) for v in VERSIONS), key=order.index)


def plugins(key: str, version: Version | None) -> tuple[str, ...]:
    """The values that `key` ("SelectType", "AutoDetect", "CgroupPlugin") has in that version (None: in any), as Slurm
    writes them: ("select/cons_tres", "select/linear"). () where the values are no closed list."""
    found = next((words for (_, name), words in _WORDS.items() if name == key.casefold()), None)
    if found is None:
        return ()
    return tuple(word.name for word in found.words
                 if version is None or found.effect_of(word, version) in (None, Effect.DEPRECATED))


def effects(file: str, key: str, value: str, version: Version | None) -> list[tuple[Rule, Version, Effect]]:
    """Everything that is wrong with `key=value` in `version` (None: in any from 22.05 to 26.05, the oldest of them).

    file: the kind of statement, see `statement`. A key that no version has is one rule with unknown=True and the
    nearest key as `instead`: FATAL, but IGNORED in YAML and mpi.conf, where Slurm passes over it in silence. value: ""
    looks at the key alone.
    """
    versions = (version,) if version else VERSIONS
    found = lookup(file, key)
    if found is None:
        lacking = Effect.IGNORED if file.endswith(".yaml") or file in _PASSED_OVER else Effect.FATAL
        rule = Rule(file, key, effect=lacking, instead=nearest(file, key), unknown=True)
        return [(rule, versions[0], lacking)]
    wrong = []
    for one in versions:
        effect = found.effect_in(one)
        if effect is not None:
            rule = Rule(file, key, "", found.since, found.until, effect, _replacement(found, one, _key_has(file)),
                        note=found.note)
            wrong.append((rule, one, effect))
            break
    if value and not (wrong and version and wrong[0][2] is Effect.FATAL):
        wrong += _value_effects(found, key, value, versions)
    return wrong


def _value_effects(found: Key, key: str, value: str, versions: tuple[Version, ...]
                   ) -> Iterator[tuple[Rule, Version, Effect]]:
    if not found.form.takes(value):
        yield Rule(found.file, key, value, instead=found.form.value), versions[0], Effect.FATAL
        return
    words = _WORDS.get((found.file, found.name.casefold()))
    if words is None:
        return
    for part in dict.fromkeys(element.strip() for element in value.split(",")):
        rule = _word_rule(words, key, part, versions) if part else None
        if rule is not None:
            yield rule


def _word_rule(words: Words, key: str, part: str, versions: tuple[Version, ...]
               ) -> tuple[Rule, Version, Effect] | None:
    word = words.find(part)
    if word is None:
        near = _near(part, tuple(w.name for w in words.words))
        lacking = words.lacking(versions[0])
        if lacking is None or (lacking is Effect.IGNORED and not near):
            return None
        return Rule(words.file, key, part, effect=lacking, instead=near, unknown=True), versions[0], lacking
    for one in versions:
        effect = words.effect_of(word, one)
        if effect in (None, Effect.DEPRECATED) and (spelt := words.misspelt(part, word, one)) is not None:
            return Rule(words.file, key, part, effect=spelt, instead=word.name, unknown=True,
                        note=f"Slurm's own capitals count: {word.name}"), one, spelt
        if effect is not None:
            instead = _replacement(word, one, lambda name, version: _has_word(words, name, version))
            return Rule(words.file, key, part, word.since, word.until, effect, instead, note=word.note), one, effect
    return None


def _has_word(words: Words, name: str, version: Version) -> bool:
    word = words.find(name)
    return word is not None and words.effect_of(word, version) is None


def _key_has(file: str) -> Callable[[str, Version], bool]:
    def has(name: str, version: Version) -> bool:
        key = _KEYS.get((file, name.casefold()))
        return key is None or key.effect_in(version) is None     # "KEY=VALUE" and texts are for the reader
    return has


def _replacement(life: Life, version: Version, has: Callable[[str, Version], bool]) -> str:
    """The first of its replacements that the version has."""
    return next((one for one in life.instead.split("|") if one and has(one, version)), "")


@lru_cache(maxsize=1024)
def _near(text: str, known: tuple[str, ...]) -> str:
    if not text or len(text) > _LONGEST:
        return ""
    by_small = {name.casefold(): name for name in known}
    given = text.casefold()
    parts = _pairs(given)
    likely = sorted(by_small, key=lambda name: -len(parts & _pairs(name)) / (len(parts) + len(_pairs(name))))[:6]
    close = difflib.get_close_matches(given, likely, n=1, cutoff=0.75)
    return by_small[close[0]] if close else ""


@lru_cache(maxsize=4096)
def _pairs(text: str) -> frozenset[str]:
    return frozenset(text[i:i + 2] for i in range(len(text) - 1)) or frozenset((text,))
