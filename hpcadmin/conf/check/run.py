"""Every rule put to a configuration: findings in order of severity and place, equal ones as one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from hpcadmin.conf.check import rules
from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.existing.parts import Place
from hpcadmin.conf.passwords import hidden
from hpcadmin.errors import UsageError

_ORDER = {severity: number for number, severity in enumerate(Severity)}
MAX_OF_A_RULE = 500
# Rules that look at every key alike, and what comes out of a proof as of the inventory. Of a key that a rule of its own
# speaks of at the same place, they are left out.
_GENERAL = ("versions.", "proof.agrees")
# What findings of pasted texts and of real daemons are called.
_OTHER_ORIGIN = ("text", "text.read", "text.assumed", "text.fragment", "text.counts", "proof", "proof.agrees")


@dataclass(frozen=True)
class Result:
    """ignored: how many findings each ignored rule would have had."""

    findings: tuple[Finding, ...]
    ignored: tuple[tuple[str, int], ...] = ()

    @property
    def failed(self) -> bool:
        """Whether anything is above NOTE."""
        return any(finding.severity is not Severity.NOTE for finding in self.findings)


def check(situation: Situation) -> tuple[Finding, ...]:
    """All findings. A rule that breaks on what the files say is a finding itself."""
    return judge(situation).findings


def judge(situation: Situation, ignore: Iterable[str] = (), more: Iterable[Finding] = (), *,
          leave: Sequence[str] = (), strict: bool = False) -> Result:
    """The same with rules left out. ignore: "gres.links_length", or "gres" for all of a subject; they are counted;
    raises UsageError for what is no rule. leave: rules that do not apply at all. more: findings of other origin, sorted
    in. strict: a rule that breaks raises, as tests want it."""
    found = [*more]
    for name, rule in every_rule():
        if not _ignored(name, leave):
            found += _of(name, rule, situation, strict=strict)
    return sifted(found, ignore)


def sifted(found: Sequence[Finding], ignore: Iterable[str] = ()) -> Result:
    """Findings without those of ignored rules, which are counted."""
    left_out = tuple(dict.fromkeys(ignore))
    _must_exist(left_out, every_rule())
    every = ordered(found)
    counted = tuple((name, sum(1 for f in every if _ignored(f.rule, (name,)))) for name in left_out)
    return Result(tuple(f for f in every if not _ignored(f.rule, left_out)), counted)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, then place; those that say the same are one."""
    return tuple(sorted(_folded(_without_general([*map(_without_passwords, findings)])), key=_key))


def _without_passwords(finding: Finding) -> Finding:
    what, means, right = hidden(finding.what), hidden(finding.means), tuple(map(hidden, finding.right))
    if (what, means, right) == (finding.what, finding.means, finding.right):
        return finding
    return replace(finding, what=what, means=means, right=right)


def _without_general(findings: Sequence[Finding]) -> Iterator[Finding]:
    spoken_of = {(f.place, _about(f)): f.severity for f in reversed(findings)
                 if f.place is not None and not f.rule.startswith(_GENERAL)}
    for finding in findings:
        other = spoken_of.get((finding.place, _about(finding))) if finding.place is not None else None
        general = finding.rule.startswith(_GENERAL)
        if not (general and other is not None and _ORDER[other] <= _ORDER[finding.severity]):
            yield finding


def _about(finding: Finding) -> str:
    """The key that the finding begins with: "autodetect" of AutoDetect=amdgpu is no valid value."""
    return finding.what.partition("=")[0].casefold()


@cache
def every_rule() -> tuple[tuple[str, Rule], ...]:
    """(name, rule) of all modules under rules, in the order of their names."""
    found = []
    for module in sorted(pkgutil.iter_modules(rules.__path__), key=lambda item: item.name):
        if not module.name.startswith("_"):
            loaded = importlib.import_module(f"{rules.__name__}.{module.name}")
            found += [(f"{module.name}.{getattr(rule, '__name__', 'rule').strip('_')}", rule) for rule in loaded.RULES]
    return tuple(found)


def _must_exist(names: Sequence[str], known: Sequence[tuple[str, Rule]]) -> None:
    subjects = {name.split(".", 1)[0] for name, _ in known}
    for name in names:
        if name not in subjects and name not in {own for own, _ in known} and name not in _OTHER_ORIGIN:
            raise UsageError(f"{name!r} is no rule of conf check", hint="a rule stands in brackets behind each finding")


def _ignored(rule: str, names: Sequence[str]) -> bool:
    return any(rule == name or rule.startswith(f"{name}.") for name in names)


def _of(name: str, rule: Rule, situation: Situation, *, strict: bool) -> list[Finding]:
    found: list[Finding] = []
    try:
        for finding in rule(situation):
            if len(found) >= MAX_OF_A_RULE:
                found.append(Finding(Severity.NOTE, f"more than {MAX_OF_A_RULE} findings of {name}: the rest is not "
                                     "shown", rule=name))
                break
            found.append(finding if finding.rule else replace(finding, rule=name))
    except Exception as exc:  # the files are anybody's: what one rule cannot take must not hide what others find
        if strict:
            raise
        found.append(Finding(Severity.WRONG, f"the rule {name} could not be applied: {type(exc).__name__}: {exc}",
                             "what it would have found is not known; please report it", rule=name))
    return found


def _folded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Findings that say the same of other lines or nodes are one, with the places, nodes and right lines of all."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.severity, finding.what, finding.means, finding.versions)
        groups.setdefault(key, []).append(finding)
    for members in groups.values():
        first = members[0]
        if len(members) == 1:
            yield first
            continue
        places = list(dict.fromkeys(place for f in members for place in (f.place, *f.more) if place is not None))
        yield replace(first, place=places[0] if places else None, more=tuple(places[1:]),
                      nodes=tuple(dict.fromkeys(node for f in members for node in f.nodes)),
                      right=tuple(dict.fromkeys(line for f in members for line in f.right)))


def _key(finding: Finding) -> tuple[int, str, int, str, str]:
    place = finding.place or Place("", 0)
    return (_ORDER[finding.severity], place.file, place.line, finding.rule, finding.what)
