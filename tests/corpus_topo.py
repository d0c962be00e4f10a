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
# About the answer, not of it; or sentences.
META = {"kind", "index_answer", "unsure", "note", "should_report", "must_report", "must_report_re", "incomplete",
        "must_refuse", "or_else", "by_version", "cores_rule", "links_unknown", "local_cores_note", "nvlink_note",
        "topology_conf_rule", "raw", "other_cas_where", "soft_findings", "inferred", "findings", "header"}
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*\Z")
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", re.IGNORECASE)


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


def ours(file: str) -> tuple[dict[str, Any], Any, str]:
    """What is known from the file, the outcome, and all that a report would say of it."""
    from hpcadmin.facts import Outcome, read_document
    from hpcadmin.intake import take
    found = next(take([str(CORPUS / file)], node="node"))
    outcomes = [read_document(document) for document in found.documents]
    readings = tuple(reading for outcome in outcomes for reading in outcome.readings)
    errors = tuple(error for outcome in outcomes for error in outcome.errors) if not readings else tuple(
        error for outcome in outcomes for error in outcome.errors if outcome.readings)
    known: dict[str, Any] = {}
    assumed: list[Any] = []
    for reading in readings:
        for key, value in reading.known.items():
            if known.get(key) is None:
                known[key] = value
        assumed += reading.assumed
    known["assumed"] = assumed
    said = [*errors, *(f.what for r in readings for f in r.findings), *(m for r in readings for m in r.missing),
            *(r.refused for r in readings)]
    return known, Outcome(readings, errors), "\n".join(said)


def same(mine: Any, theirs: Any) -> bool:
    if theirs is None:
        return mine is None
    if mine is None:
        return False
    if isinstance(theirs, dict):
        if isinstance(mine, int | str) or not isinstance(mine, Mapping):
            return False
        return all(same(mine.get(key), value) for key, value in theirs.items())
    if isinstance(theirs, list):
        return _same_list(list(mine), theirs) if isinstance(mine, list | tuple) else False
    if isinstance(theirs, bool) or isinstance(mine, bool):
        return mine is theirs
    if isinstance(theirs, int | float):
        return isinstance(mine, int | float) and abs(mine - theirs) <= 1e-6 * max(1, abs(theirs))
    return _same_text(str(mine), str(theirs))


def _same_list(mine: list[Any], theirs: list[Any]) -> bool:
    if len(mine) != len(theirs):
        return False
    key = next((k for k in ("pci", "name", "node", "card", "id") if theirs and all(
        isinstance(v, dict) and v.get(k) is not None for v in [*theirs, *mine])), "")
    if key:
        def by(value: dict[str, Any]) -> str:
            return _plain(str(value[key]))
        mine, theirs = sorted(mine, key=by), sorted(theirs, key=by)
    return all(same(a, b) for a, b in zip(mine, theirs, strict=True))


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
    wanted = answer(file)
    known, outcome, said = ours(file)
    yield from _verdicts(file, wanted, outcome, said)
    for field, value in wanted.items():
        if field in META:
            continue
        if "must_not_be" in field or field in ("cores_wrong", "gres_wrong"):
            yield from _never(file, field, value, known)
        elif field == "cores_assumed":
            mine = [item.get("values") for item in known["assumed"]]
            if not same(mine, [item.get("values") for item in value]):
                yield Miss(file, field, known["assumed"], value)
        elif not same(known.get(field), value) and not (value in ([], {}, None) and not known.get(field)):
            yield Miss(file, field, known.get(field), value)


def _verdicts(file: str, wanted: dict[str, Any], outcome: Any, said: str) -> Iterator[Miss]:
    missing = [m for r in outcome.readings for m in r.missing]
    if bool(missing) != bool(wanted["incomplete"]) and outcome.readings:
        yield Miss(file, "incomplete", missing, wanted["incomplete"])
    if bool(outcome.refused) != bool(wanted["must_refuse"]):
        yield Miss(file, "must_refuse", outcome.refused, wanted["must_refuse"])
    if not outcome.readings and not wanted["must_refuse"]:
        yield Miss(file, "(read)", "nothing", "a reading")
    for pattern in wanted["must_report_re"]:
        if not re.search(pattern, said, re.IGNORECASE):
            yield Miss(file, "must_report_re", said[:300], pattern)


def _never(file: str, field: str, value: Any, known: dict[str, Any]) -> Iterator[Miss]:
    base = {"cores_wrong": "cores_if_determined", "gres_wrong": "gres_ok"}.get(field)
    base = base or field.partition("_must_not_be")[0]
    bad = value if isinstance(value, list) else [value]
    if known.get(base) is not None and any(same(known[base], item) for item in [*bad, value]):
        yield Miss(file, field, known[base], value)


def table(found: list[Miss]) -> str:
    def cell(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return text.replace("|", "\\|").replace("\n", " ")[:400]
    rows = [f"| {m.file} | {m.field} | {cell(m.ours)} | {cell(m.theirs)} |" for m in found]
    return "\n".join(["| file | field | ours | theirs |", "|---|---|---|---|", *rows])


def main(part: str) -> None:
    found, count, fields = [], 0, 0
    for file in sorted(expected()):
        if part in file:
            count += 1
            fields += sum(field not in META for field in answer(file))
            try:
                found += misses(file)
            except Exception as exc:  # noqa: BLE001  a reader that breaks is a row as well
                found.append(Miss(file, "(crash)", f"{type(exc).__name__}: {exc}", ""))
    print(table(found))
    print(f"\n{count} files, {fields} fields, {len(found)} disagreements")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
