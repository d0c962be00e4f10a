"""From the frames of a test to its result, with the outputs of before the load."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.check import Check, Context, Measurement, Output, Scope, Step, Subject
from hpcadmin.frames import Frame
from hpcadmin.run_results import read_result
from hpcadmin.rundata import PlannedTest

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
