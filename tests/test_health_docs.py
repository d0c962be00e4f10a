"""docs/health.md names every check with its parameters, every option and every exit status; its examples are sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcadmin.health.node import config, load, main, watch
from hpcadmin.health.node.api import MAX_REASON, MODES, REQUIRED, Param
from hpcadmin.health.node.state import FOLDER
from hpcadmin.toml_text import parse_toml

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "health.md").read_text()


def shown(param: Param) -> str:
    value = param.default
    if value is REQUIRED:
        return f"`{param.name}`!"
    if value is None or value == []:
        return f"`{param.name}`"
    if isinstance(value, list):
        return f"`{param.name}` (a list)"
    return f"`{param.name}` ({str(value).lower() if isinstance(value, bool) else value})"


def rows() -> list[str]:
    """The table of checks as it must stand in the page."""
    found = ["| check | what | parameters |", "|---|---|---|"]
    for name in load.names():
        check = load.named(name)
        mark = " (h)" if check.hardware else ""
        found.append(f"| `{name}`{mark} | {check.title} | {', '.join(map(shown, check.params))} |")
    return found


def test_the_table_of_checks_is_that_of_the_code() -> None:
    lines = [line for line in PAGE.split("\n") if line.startswith("| ")]
    start = lines.index(rows()[0])
    assert lines[start + 1 : start + len(rows()) - 1] == rows()[2:]


@pytest.mark.parametrize("option", [*main.VALUED, *(one for one in main.PLAIN if one != "-h")])
def test_every_option_is_in_the_page_and_in_the_help(option: str) -> None:
    assert option in main.HELP or option in ("--help", "--version")
    assert option in PAGE


def test_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"{watch.DEADLINE_S:g} s for all" in PAGE
    assert f"at most {MAX_REASON} characters" in PAGE
    assert FOLDER in PAGE
    assert config.DEFAULT in PAGE
    for status in (*main.EXITS.values(), main.USAGE):
        assert f"\n| {status} |" in PAGE


def test_the_examples_are_sound() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for text in blocks:
        for entry in config.parse(parse_toml(text.encode(), "health.md")).entries:
            assert set(entry.when) <= set(MODES)
            load.named(entry.use).take(entry.params)


def test_the_example_of_a_check_runs(tmp_path: Path) -> None:
    text = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert text
    path = tmp_path / "swap.py"
    path.write_text(text[1])
    assert load.site(str(path), "swap").params[0].name == "min_mib"
