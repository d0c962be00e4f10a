"""A path to a value, the texts of its node: the lines that it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass

from hpcadmin.errors import UsageError
from hpcadmin.model import Gpu, Node
from hpcadmin.text import fold_ids, plural, printable
from hpcadmin.why._locate import SHOWN
from hpcadmin.why._path import Target, resolve, show
from hpcadmin.why._rules import COMMANDS, Look, rule_for
from hpcadmin.why._sections import Section, Text, sections

_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}m")


@dataclass(frozen=True)
class Evidence:
    """A line of a capture. line: its number in the file. says: what it says of the value, where that is one word."""

    command: str
    file: str
    line: int
    text: str
    says: str = ""


@dataclass(frozen=True)
class Explanation:
    """more: lines that were found beside those of `evidence`, by command. disagree: what sources say otherwise."""

    path: str
    value: str
    how: str
    evidence: tuple[Evidence, ...] = ()
    more: tuple[str, ...] = ()
    disagree: tuple[str, ...] = ()


def explain(node: Node, path: str, texts: Iterable[Text]) -> tuple[Explanation, ...]:
    """One explanation; for a whole record, one for each of its values that is known.

    Raises UsageError when the node has no such value.
    """
    target = resolve(node, path)
    found = [section for text in texts for section in sections(text)]
    if not is_dataclass(target.value):
        return (_one(target, found),)
    known = [f"{path}.{item.name}" for item in fields(target.value)
             if getattr(target.value, item.name) not in (None, "", (), {})]
    inner = [resolve(node, each) for each in known]
    return tuple(_one(each, found) for each in inner if not is_dataclass(each.value) and rule_for(each.pattern))


def _one(target: Target, found: Sequence[Section]) -> Explanation:
    rule = rule_for(target.pattern)
    if rule is None:
        raise UsageError(f"{target.path} has parts: name one of them", where=target.node.name)
    evidence: list[Evidence] = []
    more: list[str] = []
    for look in rule.looks:
        for section in (section for section in found if section.name == look.section):
            lines, rest = _quoted(look, section, target)
            evidence += lines
            more += [rest] if rest else []
    value = printable(_value(target), limit=500)
    return Explanation(target.path, value, _how(rule.how, target), tuple(evidence), tuple(more),
                       _disagree(value, evidence))


def _quoted(look: Look, section: Section, target: Target) -> tuple[list[Evidence], str]:
    places = look.find(section.lines, target)
    command = COMMANDS.get(section.name, section.name)
    found = [Evidence(command, section.path, section.first + place, _line(section.lines[place]),
                      printable(look.pick(section.lines[place]), limit=100) if look.pick else "")
             for place in places[:SHOWN]]
    return found, f"{command}: {plural(len(places) - SHOWN, 'line')} more" if len(places) > SHOWN else ""


def _value(target: Target) -> str:
    if target.pattern == "gpus.*.cores":
        return _cores(target)
    return show(target)


def _cores(target: Target) -> str:
    local = set(target.last(Gpu).local_cpus)
    cores = [place for place, core in enumerate(target.node.cpu.cores) if local.intersection(core.cpus)]
    if not cores:
        return "unknown: the order of the cores is not known"
    return f"{fold_ids(cores)} (of {len(target.node.cpu.cores)} cores; local CPUs {fold_ids(local)})"


def _how(how: str, target: Target) -> str:
    return re.sub(r"\{([a-z_]{1,20})\}", lambda match: printable(target.words.get(match[1], "") or "-"), how)


def _line(text: str) -> str:
    """Without what only a terminal understands."""
    return printable(_ANSI.sub("", text).strip().replace("\t", "  "), limit=300)


def _disagree(value: str, evidence: Iterable[Evidence]) -> tuple[str, ...]:
    said: dict[str, list[str]] = {value.casefold(): [f"the inventory has {value}"]}
    for item in evidence:
        word = item.says.strip()
        if word and "?" not in word:
            said.setdefault(word.casefold(), []).append(f"{item.command} says {word} (line {item.line})")
    return tuple(first for first, *_ in said.values()) if len(said) > 1 else ()


def lines(found: Iterable[Explanation]) -> list[str]:
    """As people read it."""
    text: list[str] = []
    for one in found:
        text += [f"{one.path} = {one.value}", f"  {one.how}"]
        command = ""
        for item in one.evidence:
            if item.command != command:
                command = item.command
                text.append(f"  {command}")
            text.append(f"    {item.file}:{item.line}: {item.text}")
        text += [f"  {more}" for more in one.more]
        if one.disagree:
            text.append(f"  THE SOURCES DISAGREE: {'; '.join(one.disagree)}")
        if not one.evidence:
            text.append("  no line of the capture shows it")
    return text
