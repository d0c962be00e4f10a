"""Settings that stand on lines of their own: slurm.conf, cgroup.conf, and the other files of that kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hpcadmin.conf import keys
from hpcadmin.conf.diff import values
from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing.parts import Configuration, Value
from hpcadmin.conf.keys import Apply, Form

# Where site.toml takes a setting of the site's own.
TABLES = {"slurm.conf": "[slurm.options]", "cgroup.conf": "[slurm.cgroup]", "slurmdbd.conf": "[accounting.options]",
          "acct_gather.conf": "[accounting.gather]"}
SECRET = frozenset({"storagepass", "accountingstoragepass", "jobcomppass"})


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    yield from _file("slurm.conf", old.settings, new.settings, sides, skip=frozenset(old.several) | set(new.several))
    yield from _several(old, new, sides)
    yield from _file("cgroup.conf", old.cgroup, new.cgroup, sides)
    for name in sorted({*old.others, *new.others}):
        yield from _file(name, old.others.get(name, {}), new.others.get(name, {}), sides)


def _file(file: str, old: Mapping[str, Value], new: Mapping[str, Value], sides: Sides,
          skip: frozenset[str] | set[str] = frozenset()) -> Iterator[Difference]:
    for key in [*new, *(key for key in old if key not in new)]:
        before, after = old.get(key), new.get(key)
        if key in skip:
            continue
        if before and after and values.same(key, before.text, after.text, boolean=_is_boolean(file, key)):
            continue
        value = after or before
        if value is not None:
            yield _difference(file, value.key, before, after, sides)


def _difference(file: str, name: str, before: Value | None, after: Value | None, sides: Sides) -> Difference:
    apply = sides.apply(file, name)
    was, will = ("" if value is None else shown(value) for value in (before, after))
    fatal = sides.fatal(file, before)
    place = before.place if before else None
    if fatal:
        return Difference(Weight.FATAL, file, name, was, will, why=sides.why(after), means=fatal, place=place,
                          apply=apply)
    if after is None:
        weight = sides.only_old(file)
        return Difference(weight, file, name, was, will, means=_keeping(file, before, weight), place=place,
                          apply=apply if weight is Weight.DROPPED else Apply.NOTHING)
    weight = Weight.JOBS if apply is Apply.JOBS_LOST and before is not None else Weight.CHANGE
    return Difference(weight, file, name, was, will, why=sides.why(after), place=place, apply=apply)


def _keeping(file: str, before: Value | None, weight: Weight) -> str:
    if weight is Weight.LEFT or before is None:
        return f"{file} is not written: it stays as it is"
    table = TABLES.get(file)
    return f"goes, unless {table} in site.toml has it" if table else "goes"


def _several(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    """Keys of which every line counts, in their order."""
    for key in dict.fromkeys([*new.several, *old.several]):
        before, after = old.several.get(key, ()), new.several.get(key, ())
        if [v.text for v in before] != [v.text for v in after]:
            one = (before or after)[0]
            found = _difference("slurm.conf", one.key, next(iter(before), None), next(iter(after), None), sides)
            yield replace(found, old=", ".join(v.text for v in before), new=", ".join(v.text for v in after))


def shown(value: Value) -> str:
    """The value, or that there is one where it is a password."""
    if value.key.casefold() in SECRET:
        return "(not shown)"
    return value.text or '""'


def _is_boolean(file: str, key: str) -> bool:
    found = keys.lookup(file, key)
    return found is not None and found.form is Form.BOOLEAN
