"""The captured outputs of ../shared/corpus/outputs against their answers, field by field, and what a run would say.

    python tests/corpus_outputs.py [PART]         # what disagrees, for files or checks with PART in their name
    python tests/corpus_outputs.py --table        # every file, as tests/corpus_outputs.md has it

What our checks do not read (kernel logs, Slurm commands, …) is listed and counted.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hpcadmin import catalogue
from hpcadmin.check import Check, Context, Limit, Measurement, NodeView, Output, ParseError, Reading, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.peers import lower_is_better
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult
from hpcadmin.site import Site

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs"
CORRECTIONS = Path(__file__).with_name("corpus_outputs_corrections.json")
PLAIN = ("validated", "wrong_values", "ranks", "hosts")
SIZES = re.compile(r"minBytes (\d+) maxBytes (\d+)")       # of nccl-tests: what a run must have asked for


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


def originals() -> dict[str, dict[str, Any]]:
    """By file, as the corpus has them."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(CORPUS.glob("expected*.json")):
        found.update({k: v for k, v in json.loads(path.read_text()).items() if isinstance(v, dict)})
    return found


def corrections() -> dict[str, dict[str, Any]]:
    """File -> field -> {"value", "why"}: what was settled against an answer, with the lines or the source for it."""
    return json.loads(CORRECTIONS.read_text()) if CORRECTIONS.exists() else {}


@cache
def answers() -> dict[str, dict[str, Any]]:
    """By file; corrections over what the corpus says."""
    found = originals()
    for file, fields in corrections().items():
        found[file] = {**found[file], **{field: entry["value"] for field, entry in fields.items()}}
    return found


@cache
def checks() -> dict[str, Check]:
    return load_checks()


def check_of(file: str) -> Check | None:
    """Our check that reads the file, None where there is none."""
    check = checks().get(answers()[file]["check"])
    return check if check is not None and check.read is not None else None


def text_of(file: str) -> str:
    return (CORPUS / file).read_bytes().decode("utf-8", "replace")


@cache
def read(file: str) -> Reading:
    check = check_of(file)
    assert check is not None and check.read is not None
    return check.read(text_of(file), Context())


# --- the fields -----------------------------------------------------------------------------------------------------


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
    if "gpus" in answer:
        yield from _gpus(file, answer, reading)
    elif not answer["measurements"]:
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


def _gpus(file: str, answer: dict[str, Any], reading: Reading) -> Iterator[Row]:
    """Facts of a node's GPUs: these are no measurements in the answers, and a list of their own there."""
    gpus, ours = answer["gpus"], {m.name: m.value for m in reading.measurements}
    wanted = {"gpus": len(gpus), "driver": answer["driver"], "gpu_model": gpus[0]["name"],
              "persistence": {"On": "Enabled", "Off": "Disabled"}[gpus[0]["persistence"]],
              "ecc_uncorrectable": max(gpu["ecc_uncorrected_volatile"] for gpu in gpus),
              "temperature": max(gpu["temperature_c"] for gpu in gpus),
              "power": max(gpu["power_w"] for gpu in gpus), "power_limit": gpus[0]["power_limit_w"]}
    for name, value in wanted.items():
        yield Row(file, f"GPUs: {name}", ours.get(name), value)


def rows(part: str = "") -> list[Row]:
    """What was compared, of files or checks with `part` in their name."""
    found: list[Row] = []
    for file, answer in sorted(answers().items()):
        if check_of(file) is not None and (part in file or part in answer["check"]):
            found += compare(file, answer, read(file))
            found.append(verdict_row(file))
    return found


# --- what a run would say of them -----------------------------------------------------------------------------------


def contexts(file: str) -> list[Context]:
    """Nothing known, as for a file by itself; and, where the output tells of them, a run on its nodes, ranks and sizes.

    A run of ours with OSU has all sizes: one that was told to be shorter is no run of ours.
    """
    reading, sizes = read(file), SIZES.search(text_of(file))
    found = [Context()]
    if reading.host_names and "_pkb_v571" not in file:
        nodes = tuple(NodeView(name, hostname=name) for name in reading.host_names)
        params = {"min_bytes": int(sizes[1]), "max_bytes": int(sizes[2])} if sizes else {}
        found.append(Context(nodes=nodes, ranks=reading.ranks, params=params))
    return found


def verdict(file: str, context: Context, limits: Sequence[Limit] | None = None) -> tuple[Status, str]:
    """(status, reason) of the file's text, parsed and judged. limits None: those that its own values just reach.

    With these the value is never what fails: PASS is what a careless reader would say of anything that it could read.
    """
    check = check_of(file)
    assert check is not None
    nodes = tuple(n.name for n in context.nodes)
    test = PlannedTest("t0001", check.name, Subject(nodes or ("file",)), (), 1)
    try:
        found = check.parse([Output(text_of(file))], context)
        if not nodes:
            nodes = tuple(dict.fromkeys(n for m in found for n in m.subject.nodes))
            test = replace(test, subject=Subject(nodes or ("file",)))
        result = TestResult(test, tuple(found))
    except ParseError as exc:
        result = TestResult(test, (), str(exc))
    bounds = reached(check.name, result.measurements) if limits is None else limits
    worst = max(judge([result], bounds), key=lambda v: v.status.rank)
    return worst.status, worst.reason


def reached(check: str, measurements: Sequence[Measurement]) -> tuple[Limit, ...]:
    """For each value that a limit could judge, one that it reaches by a tenth."""
    found = []
    for m in measurements:
        if m.key and m.expected is None and isinstance(m.value, float | int):
            low, high = (None, m.value * 1.1 + 1e-9) if lower_is_better(m) else (m.value * 0.9, None)
            found.append(Limit(check, m.name, m.unit, min=low, max=high, size_bytes=m.size_bytes,
                               source="the output itself", date="2026-11-30"))
    return tuple(found)


@cache
def general() -> tuple[Limit, ...]:
    """The catalogue's limits."""
    return catalogue.load_limits(Site())


def verdict_row(file: str) -> Row:
    """Whether no verdict is one that the answer calls wrong, and a usable value of what is not whole a WARN."""
    answer = answers()[file]
    found = [verdict(file, context, limits)[0] for context in contexts(file) for limits in (None, general())]
    wrong = [status.value for status in found if status.value in answer["never"]]
    wanted = answer["value_usable"] and not answer["sound"] and "WARN" not in answer["never"]
    if wanted and found[0] not in (Status.WARN, Status.FAIL):
        wrong = [f"{found[0].value} instead of WARN"]
    return Row(file, "verdict", wrong, [])


# --- tables ---------------------------------------------------------------------------------------------------------


def table() -> str:
    """A row for each file that our checks read, then what they do not read."""
    lines = ["| file | check | sound | verdict | fields | corrected | disagree |", "|---|---|---|---|---:|---:|---:|"]
    by_file: dict[str, list[Row]] = {}
    for row in rows():
        by_file.setdefault(row.file, []).append(row)
    for file, found in by_file.items():
        answer, said = answers()[file], verdict(file, Context())[0].value
        lines.append(f"| {file} | {answer['check']} | {'yes' if answer['sound'] else 'no'} | {said} | "
                     f"{len(found)} | {len(corrections().get(file, ()))} | {sum(not r.agrees for r in found)} |")
    every = [row for found in by_file.values() for row in found]
    lines.append(f"| all {len(by_file)} | | | | {len(every):,} | {sum(map(len, corrections().values()))} | "
                 f"{sum(not r.agrees for r in every)} |")
    others = Counter(a["check"] for file, a in answers().items() if check_of(file) is None)
    lines += ["", "Not read, since no check of ours is for them yet:", "", "| kind of output | files |", "|---|---:|"]
    lines += [f"| {kind} | {count} |" for kind, count in sorted(others.items())]
    return "\n".join([*lines, f"| all | {others.total()} |"])


def disagreements(found: Sequence[Row]) -> str:
    return "\n".join(["| file | field | ours | theirs |", "|---|---|---|---|",
                      *(f"| {r.file} | {r.field} | {r.ours!r:.160} | {r.theirs!r:.160} |" for r in found)])


def main() -> None:
    if "--table" in sys.argv:
        print(table())
        return
    found = rows(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
    wrong = [row for row in found if not row.agrees]
    print(disagreements(wrong))
    print(f"\n{len({row.file for row in found})} files, {len(found)} fields, {len(wrong)} disagree")


if __name__ == "__main__":
    main()
