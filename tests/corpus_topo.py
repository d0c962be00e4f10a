"""Scores every reader against the corpus, field by field: `python tests/corpus_topo.py [PART]` prints a Markdown table.

A value counts as equal when it says the same: CPU lists as sets, PCI addresses with any width of domain, numbers within
rounding. Ours may say more than is asked; it may never say less or otherwise. Prose in the answers is not compared.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "topo"
CORRECTIONS = Path(__file__).with_name("corpus_topo_corrections.json")
# About the answer, not of it; or sentences, which no program compares (their patterns are in must_report_re).
META = {"kind", "index_answer", "unsure", "note", "should_report", "must_report", "or_else", "by_version", "cores_rule",
        "links_unknown", "local_cores_note", "nvlink_note", "topology_conf_rule", "soft_findings"}
VERDICTS = {"incomplete", "must_refuse", "must_report_re"}
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*\Z")
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What stands in for a field of the answer that says what must not be.
_WRONG = {"cores_wrong": "cores_if_determined", "gres_wrong": "gres_ok"}


@dataclass(frozen=True)
class Miss:
    file: str
    field: str
    ours: Any
    theirs: Any


@cache
def expected() -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    for path in sorted(CORPUS.glob("expected*.json")):
        answers.update(json.loads(path.read_text()))
    return answers


@cache
def corrections() -> dict[str, dict[str, Any]]:
    """file -> field -> {"value": …, "why": lines quoted or source}: what a second reader of the file settled."""
    return json.loads(CORRECTIONS.read_text()) if CORRECTIONS.exists() else {}


def answer(file: str) -> dict[str, Any]:
    """The expected fields with what was settled since."""
    wanted = dict(expected()[file])
    for field, settled in corrections().get(file, {}).items():
        if settled.get("drop"):
            wanted.pop(field, None)
        else:
            wanted[field] = settled["value"]
    return wanted


@dataclass(frozen=True)
class Ours:
    """What is known from a file, all readings together; clashes: keys for which two readings have different values."""

    known: dict[str, Any]
    outcome: Any
    said: str
    clashes: dict[str, tuple[Any, Any]]


@cache
def ours(file: str) -> Ours:
    from hpcadmin.facts import Outcome, read_document
    from hpcadmin.intake import take
    (found,) = take([str(CORPUS / file)], node="node")
    outcomes = [read_document(document) for document in found.documents]
    readings = tuple(reading for outcome in outcomes for reading in outcome.readings)
    errors = tuple(error for outcome in outcomes for error in outcome.errors) if not readings else tuple(
        error for outcome in outcomes for error in outcome.errors if outcome.readings)
    return merged(Outcome(readings, (*found.errors, *errors)))


def merged(outcome: Any) -> Ours:
    """With all that a report would say of it."""
    known: dict[str, Any] = {}
    clashes: dict[str, tuple[Any, Any]] = {}
    for reading in outcome.readings:
        for key, value in reading.known.items():
            if known.get(key) is None:
                known[key] = value
            elif not agree(known[key], value):
                clashes.setdefault(key, (known[key], value))
    readings = outcome.readings
    known["assumed"] = [item for reading in readings for item in reading.assumed]
    said = [*outcome.errors, *(f.what for r in readings for f in r.findings), *(m for r in readings for m in r.missing),
            *(r.refused for r in readings)]
    return Ours(known, outcome, "\n".join(said), clashes)


def agree(one: Any, other: Any) -> bool:
    """Whether both can be true: what only one of them says is no contradiction; a number may count a list."""
    if one is None or other is None:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(agree(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(agree, *_paired(list(one), list(other))))
    for count, listed in ((one, other), (other, one)):
        if isinstance(listed, list | tuple) and isinstance(count, int):
            return len(listed) == count
    return same(one, other)


def same(mine: Any, theirs: Any) -> bool:
    if theirs is None:
        return mine is None
    if mine is None:
        return False
    if isinstance(theirs, dict):
        if isinstance(mine, int | str) or not isinstance(mine, Mapping):
            return False
        # A record may have more fields than are asked for; a table by number, name or address no further rows.
        if not all(map(_NAME.match, theirs)) and set(map(_plain, mine)) != set(map(_plain, theirs)):
            return False
        rows = {_plain(key): value for key, value in mine.items()}
        return all(same(rows.get(_plain(key)), value) for key, value in theirs.items())
    if isinstance(theirs, list):
        return _same_list(list(mine), theirs) if isinstance(mine, list | tuple) else False
    if isinstance(theirs, bool) or isinstance(mine, bool):
        return mine is theirs
    if isinstance(theirs, int) and isinstance(mine, int):
        return mine == theirs
    if isinstance(theirs, int | float):
        return isinstance(mine, int | float) and abs(mine - theirs) <= 1e-6 * max(1, abs(theirs))
    return _same_text(str(mine), str(theirs))


def _same_list(mine: list[Any], theirs: list[Any]) -> bool:
    return len(mine) == len(theirs) and all(map(same, *_paired(mine, theirs)))


def _paired(mine: list[Any], theirs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Records by their address or name: where their order matters, they have an index."""
    key = next((k for k in ("pci", "name", "node", "card", "id") if theirs and all(
        isinstance(v, Mapping) and v.get(k) is not None for v in [*theirs, *mine])), "")
    if not key:
        return mine, theirs

    def by(value: Mapping[str, Any]) -> str:
        return _plain(str(value[key]))
    return sorted(mine, key=by), sorted(theirs, key=by)


def _plain(text: str) -> str:
    match = _PCI.match(text.strip())
    if match:
        return f"{int(match[1] or '0', 16):x}:{match[2].lower()}"
    return " ".join(text.split()).lower()


def _same_text(mine: str, theirs: str) -> bool:
    if _CPUS.match(theirs) and _CPUS.match(mine):
        return _cpus(mine) == _cpus(theirs)
    return _plain(mine) == _plain(theirs) or _hex(mine) == _hex(theirs) != ""


def _hex(text: str) -> str:
    match = re.match(r"0?x?([0-9a-f]{4}(?::?[0-9a-f]{4}){3})\Z", text.strip().lower())
    return match[1].replace(":", "") if match else ""


def _cpus(text: str) -> set[int]:
    ids: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        ids.update(range(int(low), int(high or low) + 1))
    return ids


def misses(file: str) -> Iterator[Miss]:
    yield from score(file, answer(file), ours(file))


def fields(wanted: Mapping[str, Any]) -> list[str]:
    """Those that are compared."""
    return [field for field in wanted if field not in META]


def score(file: str, wanted: Mapping[str, Any], mine: Ours) -> Iterator[Miss]:
    yield from _verdicts(file, wanted, mine)
    for key, (one, other) in mine.clashes.items():
        yield Miss(file, f"{key} (two readings)", one, other)
    for field in fields(wanted):
        value, known = wanted[field], mine.known
        if field in VERDICTS:
            continue
        if "must_not_be" in field or field in _WRONG:
            yield from _never(file, field, value, known)
        elif field == "cores_assumed":
            if not same([item.get("values") for item in known["assumed"]], [item.get("values") for item in value]):
                yield Miss(file, field, known["assumed"], value)
        elif field == "inferred":
            # Not determined by the file, so that it must not be known.
            yield from (Miss(file, f"inferred {key}", known[key], None) for key in value
                        if known.get(key) is not None and key not in wanted)
        elif field == "findings":
            yield from _findings(file, value, mine)
        elif not same(known.get(field), value):
            yield Miss(file, field, known.get(field), value)


def _verdicts(file: str, wanted: Mapping[str, Any], mine: Ours) -> Iterator[Miss]:
    outcome = mine.outcome
    missing = [m for r in outcome.readings for m in r.missing] if outcome.readings else ["everything"]
    if bool(missing) != bool(wanted["incomplete"]) and (outcome.readings or wanted["must_refuse"]):
        yield Miss(file, "incomplete", missing, wanted["incomplete"])
    if bool(outcome.refused) != bool(wanted["must_refuse"]):
        yield Miss(file, "must_refuse", outcome.refused, wanted["must_refuse"])
    if not outcome.readings and not wanted["must_refuse"]:
        yield Miss(file, "(read)", "nothing", "a reading")
    for pattern in wanted["must_report_re"]:
        if not re.search(pattern, mine.said, re.IGNORECASE):
            yield Miss(file, "must_report_re", mine.said[:300], pattern)


def _findings(file: str, wanted: list[Any], mine: Ours) -> Iterator[Miss]:
    """Faults by their lines, where the answer has lines (what they say is prose); none where it has none at all."""
    faults = [finding for reading in mine.outcome.readings for finding in reading.findings if not finding.note]
    lines = [item["line"] for item in wanted if isinstance(item, dict)]
    lost = [line for line in lines if line not in {finding.line for finding in faults}]
    if lost or (not wanted and faults):
        yield Miss(file, "findings", [f"{finding.line}: {finding.what}" for finding in faults], wanted)


def _never(file: str, field: str, value: Any, known: Mapping[str, Any]) -> Iterator[Miss]:
    base = _WRONG.get(field) or field.partition("_must_not_be")[0]
    bad = value if isinstance(value, list) else [value]
    if known.get(base) is not None and any(same(known[base], item) for item in [*bad, value]):
        yield Miss(file, field, known[base], value)


def cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.replace("|", "\\|").replace("\n", " ")[:400]


def table(found: list[Miss]) -> str:
    rows = [f"| {m.file} | {m.field} | {cell(m.ours)} | {cell(m.theirs)} |" for m in found]
    return "\n".join(["| file | field | ours | theirs |", "|---|---|---|---|", *rows])


def compared(file: str) -> Iterator[Miss]:
    """Every field of the file that is compared, as a row of the whole table."""
    wanted, mine = answer(file), ours(file)
    for field in fields(wanted):
        known: Any = mine.known.get(_WRONG.get(field) or field.partition("_must_not_be")[0])
        if field == "incomplete":
            known = [m for r in mine.outcome.readings for m in r.missing] if mine.outcome.readings else ["everything"]
        elif field == "must_refuse":
            known = mine.outcome.refused
        elif field == "must_report_re":
            known = mine.said
        elif field == "findings":
            known = [f"{f.line}: {f.what}" for r in mine.outcome.readings for f in r.findings]
        elif field == "cores_assumed":
            known = mine.known["assumed"]
        yield Miss(file, field, known, wanted[field])


def summary() -> str:
    """A row for each folder of the corpus: files, fields compared, fields settled against the answer, disagreements."""
    rows: dict[str, list[int]] = {}
    for file in sorted(expected()):
        counts = rows.setdefault(file.partition("/")[0], [0, 0, 0, 0])
        for place, more in enumerate((1, len(fields(answer(file))), len(corrections().get(file, {})),
                                      len(list(misses(file))))):
            counts[place] += more
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    return "\n".join(["| folder | files | fields | corrected | disagreements |", "|---|---:|---:|---:|---:|",
                      *(f"| {name} | {' | '.join(f'{n:,}' for n in counts)} |" for name, counts in rows.items())])


def main(part: str) -> None:
    found: list[Miss] = []
    count = asked = 0
    for file in sorted(expected()):
        if part in file:
            count += 1
            asked += len(fields(answer(file)))
            try:
                found += misses(file)
            except Exception as exc:  # noqa: BLE001  a reader that breaks is a row as well
                found.append(Miss(file, "(crash)", f"{type(exc).__name__}: {exc}", ""))
    print(table(found))
    print(f"\n{count} files, {asked} fields, {len(found)} disagreements")


if __name__ == "__main__" and sys.argv[1:] == ["--summary"]:
    print(summary())
elif __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
