"""The captured outputs of ../shared/corpus/outputs against their answers, field by field.

    python tests/corpus_outputs.py [PART] [--summary]      # what disagrees, for files or checks with PART in their name

What our checks do not read (kernel logs, Slurm commands, …) is left out and counted.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcadmin.check import Check, Context, Measurement, Reading
from hpcadmin.registry import load_checks

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs"
CORRECTIONS = Path(__file__).with_name("corpus_outputs_corrections.json")
PLAIN = ("validated", "wrong_values", "ranks", "hosts")


@dataclass(frozen=True)
class Row:
    """One field that was compared. ours and theirs are equal where it agrees."""

    file: str
    field: str
    ours: Any
    theirs: Any

    @property
    def agrees(self) -> bool:
        return bool(self.ours == self.theirs)


def answers() -> dict[str, dict[str, Any]]:
    """By file; corrections, each with its reason, over what the corpus says."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(CORPUS.glob("expected*.json")):
        found.update({k: v for k, v in json.loads(path.read_text()).items() if isinstance(v, dict)})
    corrections = json.loads(CORRECTIONS.read_text()) if CORRECTIONS.exists() else {}
    for file, fields in corrections.items():
        found[file] = {**found[file], **{k: v for k, v in fields.items() if k != "why"}}
    return found


def read(check: Check, file: str) -> Reading:
    assert check.read is not None
    return check.read((CORPUS / file).read_bytes().decode("utf-8", "replace"), Context())


def compare(file: str, answer: dict[str, Any], reading: Reading) -> Iterator[Row]:
    yield Row(file, "sound", reading.sound, answer["sound"])
    if not answer["sound"]:
        yield Row(file, "value_usable", reading.usable, answer["value_usable"])
    for field in PLAIN:
        if field in answer:
            yield Row(file, field, getattr(reading, field), answer[field])
    ours, theirs = _medium(reading.transport), _medium(answer.get("transport"))
    yield Row(file, "transport", ours, theirs)
    for wanted in answer["measurements"]:
        if wanted.get("derived"):
            continue
        label = f"{wanted['name']} {wanted['size_bytes']} {wanted.get('mode') or ''} {wanted.get('run') or ''}".strip()
        yield Row(file, label, _value(reading.measurements, wanted), [wanted["value"], wanted["unit"]])
    if not answer["measurements"]:
        yield Row(file, "no measurement", [m.name for m in reading.measurements], [])
    for piece in answer.get("must_quote", ()) if not answer["sound"] else ():
        told = "\n".join([*reading.problems, *reading.notes, *(f"{m.value}" for m in reading.measurements)])
        yield Row(file, f"quote {piece[:60]}", piece if piece in told else None, piece)


def _medium(text: str | None) -> str | None:
    match = re.match(r"[A-Za-z]+", text or "")
    return match[0].upper() if match else None


def _value(measurements: Sequence[Measurement], wanted: dict[str, Any]) -> Any:
    """The value with the wanted name, size, mode and run; its unit beside it."""
    mode, run = wanted.get("mode"), wanted.get("run")
    for m in measurements:
        if (m.name, m.size_bytes) == (wanted["name"], wanted["size_bytes"]) and (not mode or m.mode == mode) and (
                run is None or (m.run or 1) == run) and m.value == wanted["value"]:
            return [m.value, m.unit or None]
    return None


def rows(part: str = "") -> tuple[list[Row], Counter[str]]:
    """(what was compared, how many files of checks that are not ours)."""
    checks = load_checks()
    found: list[Row] = []
    others: Counter[str] = Counter()
    for file, answer in sorted(answers().items()):
        check = checks.get(answer["check"])
        if check is None or check.read is None:
            others[answer["check"]] += 1
        elif part in file or part in answer["check"]:
            found += compare(file, answer, read(check, file))
    return found, others


def main() -> None:
    part = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    found, others = rows(part)
    wrong = [row for row in found if not row.agrees]
    if "--summary" not in sys.argv:
        print("| file | field | ours | theirs |\n|---|---|---|---|")
        for row in wrong:
            print(f"| {row.file} | {row.field} | {row.ours!r:.160} | {row.theirs!r:.160} |")
    print(f"\n{len({row.file for row in found})} files, {len(found)} fields, {len(wrong)} disagree; not read: "
          f"{dict(others)}")


if __name__ == "__main__":
    main()
