"""Settings that stand on lines of their own: slurm.conf, cgroup.conf, and the other files of that kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hpcadmin.conf import keys
from hpcadmin.conf.diff import values
from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing.lines import LINE_KEYS
from hpcadmin.conf.existing.parts import Configuration, Value
from hpcadmin.conf.keys import Apply, Form
from hpcadmin.conf.passwords import HIDDEN, hidden, secret

# Where site.toml takes a setting of the site's own.
TABLES = {"slurm.conf": "[slurm.options]", "cgroup.conf": "[slurm.cgroup]", "slurmdbd.conf": "[accounting.options]",
          "acct_gather.conf": "[accounting.gather]"}
# Where another value costs jobs whatever is restarted.
_COSTS = {
    "statesavelocation": "slurmctld starts with an empty queue unless what is in the old folder is moved there first",
    "slurmdspooldir": "slurmd does not find the jobs that run: let them end first",
    "clustername": "slurmctld does not start with another name than its StateSaveLocation has (file clustername)",
}
# Lines of slurm.conf that are compared for what they say.
COMPARED = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    yield from _file("slurm.conf", old.settings, new.settings, sides, skip=frozenset(old.several) | set(new.several))
    yield from _several(old, new, sides)
    yield from _lines(old, new, sides)
    yield from _file("cgroup.conf", old.cgroup, new.cgroup, sides)
    for name in sorted({*old.others, *new.others}):
        yield from _file(name, old.others.get(name, {}), new.others.get(name, {}), sides)


def _file(file: str, old: Mapping[str, Value], new: Mapping[str, Value], sides: Sides,
          skip: frozenset[str] | set[str] = frozenset()) -> Iterator[Difference]:
    for key in [*new, *(key for key in old if key not in new)]:
        before, after = old.get(key), new.get(key)
        if key in skip:
            continue
        if sides.truth and secret(key) and after is None:
            continue                     # put in at installation, never rendered
        if before and after and values.same(key, before.text, after.text, boolean=_is_boolean(file, key)):
            continue
        value = after or before
        if file == "slurm.conf" and value and not (before and after) and values.unset(values.SETTINGS, key, value.text):
            continue
        if value is not None:
            yield _difference(file, value.key, before, after, sides)


def _lines(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    """Lines whose first key takes the rest of them, and that nothing else compares: as a whole, in any order."""
    after = {shape for _, shape, _, _ in _whole(new)}
    before = {shape for _, shape, _, _ in _whole(old)}
    for name, shape, key, value in _whole(new):
        if shape not in before:
            yield Difference(Weight.CHANGE, name, key.key, "", value, apply=sides.apply(keys.statement(name, key.key),
                                                                                        key.key))
    for name, shape, key, value in _whole(old):
        if shape not in after:
            weight = sides.only_old(name)
            yield Difference(weight, name, key.key, value, "", (), "", sides.goes() if weight is Weight.DROPPED else
                             sides.stays(name), key.place, sides.apply(keys.statement(name, key.key), key.key)
                             if weight is Weight.DROPPED else Apply.NOTHING)


def _whole(conf: Configuration) -> Iterator[tuple[str, tuple[object, ...], Value, str]]:
    """(file, what it says, its first value, the line behind the first key) of each such line."""
    for file in conf.files:
        kinds = LINE_KEYS.get(file.name, frozenset()) - COMPARED
        for statement in file.statements if file.name not in ("gres.conf", "topology.conf") else ():
            if statement.kind in kinds or (statement.kind == "nodename" and file.name != "slurm.conf"):
                first = statement.values[0]
                shape = (file.name, *((v.key.casefold(), v.text) for v in statement.values))
                rest = " ".join(f"{v.key}={shown(v)}" for v in statement.values[1:])
                yield file.name, shape, first, f"{first.text} {rest}".rstrip()


def _difference(file: str, name: str, before: Value | None, after: Value | None, sides: Sides) -> Difference:
    apply = sides.apply(file, name)
    was, will = ("" if value is None else shown(value) for value in (before, after))
    fatal = sides.fatal(file, before)
    if not fatal and not sides.truth and (found := sides.fatal(file, after)):
        fatal = f"the new one: {found}"      # what conf render writes was judged when it was written
    place = before.place if before else None
    if fatal:
        return Difference(Weight.FATAL, file, name, was, will, why=sides.why(after), means=fatal, place=place,
                          apply=apply)
    if after is None:
        weight = sides.only_old(file)
        means = sides.stays(file) if weight is Weight.LEFT else sides.goes(TABLES.get(file, ""))
        return Difference(weight, file, name, was, will, means=means, place=place,
                          apply=apply if weight is Weight.DROPPED else Apply.NOTHING)
    costs = _COSTS.get(name.casefold(), "") if file == "slurm.conf" and before is not None else ""
    weight = Weight.JOBS if costs or (apply is Apply.JOBS_LOST and before is not None) else Weight.CHANGE
    return Difference(weight, file, name, was, will, why=sides.why(after), means=costs, place=place, apply=apply)


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
    return HIDDEN if secret(value.key) else hidden(value.text) or '""'


def _is_boolean(file: str, key: str) -> bool:
    found = keys.lookup(file, key)
    return found is not None and found.form is Form.BOOLEAN
