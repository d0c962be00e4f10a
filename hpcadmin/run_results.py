"""From a test's framed outputs to its result: measurements, or why there are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hpcadmin.check import Check, Context, Direction, Measurement, Output, ParseError, Role, Step, Subject
from hpcadmin.errors import HpcadminError
from hpcadmin.frames import Frame
from hpcadmin.plan import guarded
from hpcadmin.rundata import NO_ANSWER, PlannedTest, TestResult
from hpcadmin.text import printable

NO_WAY = 78      # exit status of a step whose modules or container could not be had (job.sh)
_WHOLE, _VALUE = (int, type(None)), (float, int, str)
_FIELDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("name", (str,)), ("value", _VALUE), ("unit", (str,)), ("size_bytes", _WHOLE), ("direction", (Direction,)),
    ("subject", (Subject,)), ("ranks", _WHOLE), ("nodes", _WHOLE), ("pairs_at_once", _WHOLE), ("rail", (str,)),
    ("binding", (str,)), ("transport", (str,)), ("mode", (str,)), ("run", _WHOLE),
    ("expected", (*_VALUE, type(None))), ("key", (bool,)), ("warnings", (tuple,)))
_seen: set[tuple[type, ...]] = set()        # kinds of fields that are right, so that most are looked up only
_TOLD = (("unrecognized option", "unknown option", "invalid option"), ("error",))     # words of a reason, best first


def read_result(test: PlannedTest, frames: Sequence[Frame], missing: str, check: Check, context: Context,
                *, before: Sequence[Frame] = ()) -> TestResult:
    """The result of a test. missing: why not all outputs are there, "" when they are. before: the outputs of the same
    steps before the load; where one of them says nothing, they are left out."""
    simulated = context.simulated
    first = [] if _unusable(test, before) else [output_of(test, f, "before") for f in before]
    outputs = tuple(dict.fromkeys(f.ref for f in frames))
    gone = _gone(test, frames)
    error = gone or missing or _unusable(test, frames)
    measurements: tuple[Measurement, ...] = ()
    if not error:
        try:
            outputs_now = [output_of(test, f, test.when) for f in frames]
            found = guarded(check, "parse", lambda: check.parse([*first, *outputs_now], context))
            measurements = _sound(found, test.when)
        except HpcadminError as exc:
            error = printable(str(exc), limit=500)
    return TestResult(test, measurements, error, outputs=outputs, simulated=simulated,
                      silent=bool(error) and not gone and not missing and all(map(_silent, frames)))


def judged(measurements: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    """Those that can change a verdict; the rest is on disk and need not be kept. All, where none can."""
    return tuple(m for m in measurements if m.key or m.expected is not None or m.warnings or (
        isinstance(m.value, float) and not math.isfinite(m.value))) or measurements


def _silent(frame: Frame) -> bool:
    """A program on several nodes that was killed at its time-out and had printed nothing; srun's own words aside."""
    own = all(not line.strip() or line.startswith((b"srun:", b"slurmstepd")) for line in frame.body.splitlines())
    return frame.role == "ranks" and "timeout" in frame.flags and "truncated" not in frame.flags and own


def _sound(found: object, when: str = "") -> tuple[Measurement, ...]:
    if not isinstance(found, (list, tuple)) or not all(isinstance(m, Measurement) for m in found):
        raise ParseError("the check's parser returned something else than measurements")
    if not found:
        raise ParseError("the check's parser found nothing")
    for m in found:
        _typed(m)
    return tuple(replace(m, mode=m.mode or "after the load") for m in found) if when == "after" else tuple(found)


def _typed(m: Measurement) -> None:
    """Raises ParseError for a field that can be neither judged nor stored: a check may be a site's own file."""
    kinds = (type(m.name), type(m.value), type(m.unit), type(m.size_bytes), type(m.direction), type(m.subject),
             type(m.ranks), type(m.nodes), type(m.pairs_at_once), type(m.rail), type(m.binding), type(m.transport),
             type(m.mode), type(m.run), type(m.expected), type(m.key), type(m.warnings))
    if kinds not in _seen:
        for (name, allowed), kind in zip(_FIELDS, kinds, strict=True):
            if kind not in allowed:
                raise ParseError(f"the check's parser returned a measurement whose {name} is {kind.__name__}")
        _seen.add(kinds)
    texts = (*m.warnings, *m.subject.nodes, m.subject.device)
    if type(m.subject.nodes) is not tuple or not all(type(text) is str for text in texts):
        raise ParseError("the check's parser returned a measurement whose subject or warnings are no texts")


def output_of(test: PlannedTest, frame: Frame, when: str = "") -> Output:
    return Output(
        text=frame.body.decode("utf-8", "surrogateescape"), exit_status=frame.status, role=Role(frame.role),
        node=frame.node, timed_out="timeout" in frame.flags, truncated="truncated" in frame.flags,
        started=frame.start, ended=frame.end, ref=frame.ref, step=test.steps[frame.step].name, when=when)


def _gone(test: PlannedTest, frames: Sequence[Frame]) -> str:
    """What the job's script says where a node answered no more: its name stands before the output."""
    for frame in (f for f in frames if "gone" in f.flags):
        name, _, said = frame.body.partition(b"\n")
        node = name.decode("utf-8", "replace")
        if node in test.subject.nodes:
            srun = [line for line in said.splitlines() if line.startswith((b"srun: error", b"slurmstepd"))]
            return f"{node} {NO_ANSWER}{_last_line(srun[0]) if srun else ''}"
    return ""


def _unusable(test: PlannedTest, frames: Sequence[Frame]) -> str:
    """What went wrong outside of the tool, so that its output says nothing; the cause first."""
    found = [(f, _trouble(f, test.steps[f.step])) for f in frames]
    reasons = [reason for _, reason in found if reason]
    causes = [reason for frame, reason in found if reason and "nostart" not in frame.flags]
    return (causes or reasons or [""])[0]


def _trouble(frame: Frame, step: Step) -> str:
    what = f"{frame.role} on {frame.node}" if frame.role != "ranks" else "the program"
    told = _last_line(frame.body) if frame.flags - {"stopped"} or frame.status is None else ""
    if "portbusy" in frame.flags:
        return f"port {step.ready.port if step.ready else '?'} is already in use on {frame.node}"
    if "notready" in frame.flags:
        limit = step.ready.timeout_s if step.ready else 0.0
        return f"the server on {frame.node} was not ready within {limit:g} s{told}"
    if "ended" in frame.flags:
        return f"the server on {frame.node} ended before it was ready{_status(frame.status)}{told}"
    if "alone" in frame.flags:
        return "the jobs of this test were not there at one time: one of them waited for more than a minute"
    if "nostart" in frame.flags:
        return f"the {what} was not started"
    if "lost" in frame.flags:
        return f"the output of the {what} did not come back{told}"
    if "timeout" in frame.flags:
        return f"{what} did not end within {step.timeout_s:g} s and was killed{told}"
    if "noroom" in frame.flags:
        return f"the output of the {what} did not fit on {frame.node}: no room where TMPDIR or /tmp is"
    if "truncated" in frame.flags:
        return f"{what} printed more than is kept"
    if frame.status == NO_WAY and frame.body.startswith(b"hpcadmin: "):
        return f"{what} was not started: {_first_line(frame.body)}"
    if frame.status is None and "stopped" not in frame.flags:
        return f"{what} was killed from outside{told}"
    return ""


def _first_line(body: bytes) -> str:
    line = body[:2000].split(b"\n")[0].decode("utf-8", "replace")
    return printable(line.removeprefix("hpcadmin: ").strip(), limit=400)


def _status(status: int | None) -> str:
    return "" if status is None else f" (exit status {status})"


def _last_line(body: bytes) -> str:
    """What the program itself says of it: an option that it has not stands before pages of usage."""
    ends = body if len(body) <= 8000 else body[:4000] + b"\n" + body[-4000:]
    lines = [line.strip() for line in ends.decode("utf-8", "replace").splitlines() if line.strip()]
    chosen = next((line for words in _TOLD for line in lines if any(w in line.lower() for w in words)),
                  lines[-1] if lines else "")
    return f": {printable(chosen, limit=200)}" if chosen else ""
