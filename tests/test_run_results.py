"""From the frames of a test to its result, with the outputs of before the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hpcadmin.check import Check, Context, Limit, Measurement, Output, Scope, Status, Step, Subject
from hpcadmin.frames import Frame
from hpcadmin.judge import judge
from hpcadmin.run_results import read_result
from hpcadmin.rundata import PlannedTest, TestResult

SEEN: list[list[tuple[str, str, str]]] = []


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    SEEN.append([(o.when, o.step, o.text) for o in outputs])
    return [Measurement("x", 1, expected=1), Measurement("y", 2, mode="mine", expected=2)]


STEPS = (Step(("/bin/a",), name="a"), Step(("/bin/b",), name="b"))
CHECK = Check("c", "C", Scope.NODE, lambda c: STEPS, parse, again_after_load=True)
FIRST = PlannedTest("t0001", "c", Subject(("n1",)), STEPS, 1, when="before")
SECOND = PlannedTest("t0009", "c", Subject(("n1",)), STEPS, 1, when="after", before="t0001")


def frames(test: str, *texts: str, flags: frozenset[str] = frozenset()) -> list[Frame]:
    return [Frame(id=test, step=n, role="each", node="n1", host="n1", status=0, start=1.0, end=2.0, flags=flags,
                  body=text.encode(), file="jobs/1/n1.log") for n, text in enumerate(texts)]


def test_the_second_reading_gets_both_in_the_order_of_the_steps() -> None:
    SEEN.clear()
    one = read_result(FIRST, frames("t0001", "1", "2"), "", CHECK, Context())
    two = read_result(SECOND, frames("t0009", "3", "4"), "", CHECK, Context(), before=frames("t0001", "1", "2"))
    assert SEEN == [[("before", "a", "1"), ("before", "b", "2")],
                    [("before", "a", "1"), ("before", "b", "2"), ("after", "a", "3"), ("after", "b", "4")]]
    assert [m.mode for m in one.measurements] == ["", "mine"]
    assert [m.mode for m in two.measurements] == ["after the load", "mine"]
    assert two.outputs == ("jobs/1/n1.log#t0009",)


def test_a_first_reading_that_says_nothing_is_left_out_and_a_second_one_is_an_error() -> None:
    SEEN.clear()
    killed = frames("t0001", "1", "2", flags=frozenset({"timeout"}))
    read_result(SECOND, frames("t0009", "3", "4"), "", CHECK, Context(), before=killed)
    assert [when for when, _, _ in SEEN[0]] == ["after", "after"]
    late = read_result(SECOND, frames("t0009", "3", "4", flags=frozenset({"timeout"})), "", CHECK, Context(),
                       before=frames("t0001", "1", "2"))
    assert "did not end within 60 s" in late.error and not late.measurements and len(SEEN) == 1


def test_an_option_that_a_tool_has_not_is_its_reason_and_not_its_usage() -> None:
    usage = "ib_write_bw: unrecognized option '--use_cuda=0'\n Invalid Command or flag.\n" + "  --x  error y\n" * 900
    found = read_result(FIRST, frames("t0001", usage, flags=frozenset({"ended"})), "", CHECK, Context())
    assert "ended before it was ready (exit status 0): ib_write_bw: unrecognized option '--use_cuda=0'" in found.error


@pytest.mark.parametrize(("what", "wrong"), [
    ("value is list", {"value": [1]}), ("value is bool", {"value": True}), ("unit is NoneType", {"unit": None}),
    ("size_bytes is str", {"size_bytes": "1k"}), ("subject is str", {"subject": "n1"}),
    ("subject or warnings", {"subject": Subject("n1")}),  # type: ignore[arg-type]
    ("subject or warnings", {"subject": Subject((1,))}),  # type: ignore[arg-type]
    ("subject or warnings", {"warnings": (1,)}), ("warnings is str", {"warnings": "abc"}),
    ("expected is object", {"expected": object()}), ("direction is str", {"direction": "both"})])
def test_what_a_check_returns_can_be_judged_and_stored_or_is_an_error(what: str, wrong: dict[str, object]) -> None:
    made = replace(Measurement("x", 1.0, "GB/s"), **wrong)  # type: ignore[arg-type]
    check = Check("c", "C", Scope.NODE, lambda c: STEPS, lambda _o, _c: [Measurement("y", 2, expected=2), made])
    found = read_result(FIRST, frames("t0001", "1", "2"), "", check, Context())
    assert not found.measurements and f"a measurement whose {what}" in found.error


def test_an_integer_of_hundreds_of_digits_is_an_error() -> None:
    for value in (10 ** 400, -10 ** 400):
        result = TestResult(FIRST, (Measurement("x", value, "GB/s"),))
        assert [v.status for v in judge([result], [Limit("c", "x", "GB/s", min=1.0, source="here")])] == [Status.ERROR]
