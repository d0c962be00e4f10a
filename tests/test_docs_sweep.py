"""docs/sweep.md names every state, key, decision and option, and none that is not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hpcadmin.cli import root, sweep
from hpcadmin.cli._sweep_text import plain_report
from hpcadmin.site_sweep import SweepSite
from hpcadmin.sweep.model import CHANGED, DONE, NOT_DONE, PENDING, REFUSED, Act, Problem
from hpcadmin.sweep.night import Report
from hpcadmin.sweep.states import BASES, FLAGS, HARMLESS, SERVICE
from hpcadmin.toml_text import read_toml

TOP = Path(__file__).resolve().parent.parent
TEXT = (TOP / "docs" / "sweep.md").read_text()
INSTALL = (TOP / "docs" / "install-nodes.md").read_text()


def column(head: str, number: int = 0) -> list[str]:
    """The words in code of a column of the table whose first head is that."""
    part = re.search(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert part, head
    return [word for row in part[1].splitlines() for word in re.findall(r"`([^`]+)`", row.split("|")[number + 1])]


def test_every_state_and_flag_is_in_the_table() -> None:
    assert sorted(column("state or flag")) == sorted({*SERVICE, *HARMLESS, *BASES, *FLAGS})


def test_every_decision_is_in_the_table() -> None:
    assert sorted(column("decision")) == sorted(act.value for act in Act)


def test_every_outcome_is_named() -> None:
    assert {DONE, CHANGED, REFUSED, NOT_DONE, PENDING} <= set(column("entry", 1))


def test_every_key_is_in_the_table_and_the_example() -> None:
    keys = {item.name for item in fields(SweepSite)}
    assert set(column("key")) == keys
    assert set(read_toml(TOP / "docs" / "site.toml")["sweep"]) == keys


def test_every_option_is_on_the_page() -> None:
    assert "sweep" in root.list_commands(None)      # type: ignore[arg-type]
    for command in [sweep.command, *sweep.command.commands.values()]:
        page = INSTALL if command.name == "install" else TEXT
        for param in command.params:
            assert param.param_type_name == "argument" or param.opts[0] in page, param
    assert set(re.findall(r"^hpcadmin sweep ([a-z]+)", TEXT, re.MULTILINE)) == set(sweep.command.commands)


@pytest.mark.parametrize("name", [*plain_report(Report("r", 1, False, 0)), *(item.name for item in fields(Problem))])
def test_the_json_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in TEXT.partition("## The JSON")[2].partition("\n## ")[0]
