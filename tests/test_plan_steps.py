"""Checks of a site that give something else than steps: their tests are errors, and nothing else is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from looped import looped
from stepped import make_plan
from test_plan_layouts import facts_of, view

from hpcadmin.check import Check, Context, Ready, Scope, Status, Step
from hpcadmin.registry import Suite, SuiteEntry

TRUE = Step(argv=("/bin/true",))
WRONG: list[tuple[str, object]] = [
    ("gives NoneType", None), ("has str", ["ls"]), ("gives generator", (s for s in (TRUE,))), ("gives Step", TRUE),
    ("argv", (replace(TRUE, argv="ls -l"),)), ("argv", (replace(TRUE, argv=("a", 1)),)),
    ("argv", (replace(TRUE, argv=("a", "\ud800")),)), ("nodes", (replace(TRUE, nodes="n1"),)),
    ("n99", (replace(TRUE, nodes=("n99",)),)), ("env", (replace(TRUE, env={"A": 1}),)),
    ("env", (replace(TRUE, env={"A B;id": "x"}),)), ("env", (replace(TRUE, env=None),)),
    ("timeout_s", (replace(TRUE, timeout_s=float("nan")),)), ("timeout_s", (replace(TRUE, timeout_s=-1.0),)),
    ("timeout_s", (replace(TRUE, timeout_s="9"),)), ("timeout_s", (replace(TRUE, ready=Ready(1, timeout_s=1e99)),)),
    ("tasks_per_node", (replace(TRUE, tasks_per_node=0),)), ("tasks_per_node", (replace(TRUE, gpus_per_task=-1),)),
    ("role", (replace(TRUE, role="each"),)), ("job", (replace(TRUE, job=3),)), ("no steps", ()),
]


def said(steps: Callable[[Context], object]) -> set[tuple[Status, str]]:
    check = Check(name="own", title="t", scope=Scope.NODE, steps=steps,  # type: ignore[arg-type]
                  parse=lambda _outputs, _context: [])
    views = [view("n1"), view("n2")]
    plan = make_plan(Suite("s", "s", (SuiteEntry(("own",)),)), {"own": check}, facts_of(views), ["n1", "n2"])
    assert not plan.tests
    return {(v.status, v.reason) for v in plan.verdicts}


@looped(("what", "steps"), WRONG)
def test_what_are_no_steps(what: str, steps: object) -> None:
    [(status, reason)] = said(lambda _context: steps)
    assert status is Status.ERROR and what in reason


def test_whatever_a_check_raises_is_its_own_result() -> None:
    def boom(_context: Context) -> object:
        raise ZeroDivisionError("\x1b[31mred\n")

    assert said(boom) == {(Status.ERROR, "steps of check own failed: ZeroDivisionError: \\x1b[31mred\\x0a")}
    assert said(lambda _context: sys.exit(3)) == {(Status.ERROR, "steps of check own failed: SystemExit: 3")}
