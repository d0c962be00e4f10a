"""docs/configuration.md names every option of conf render, every file that it writes and every table that it reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcadmin.cli.conf import render
from hpcadmin.conf.keys import VERSIONS, show
from hpcadmin.conf_write import OURS

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "configuration.md").read_text()
CODE = " ".join(re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```$", "", PAGE)))


def test_every_option_is_named() -> None:
    for option in render.params:
        for name in option.opts:
            assert name in CODE, name


@pytest.mark.parametrize("name", OURS)
def test_every_file_is_named(name: str) -> None:
    assert name in CODE


def test_every_version_is_named() -> None:
    assert all(show(version) in PAGE for version in VERSIONS)


@pytest.mark.parametrize("table", ["slurm.options", "slurm.cgroup", "nodes.NAME.options", "partitions.NAME",
                                   "partitions.DEFAULT", "accounting.options", "accounting.gather", "hooks",
                                   "private_tmp"])
def test_every_table_is_named(table: str) -> None:
    assert f"[{table}]" in CODE


def test_every_place_that_the_page_points_to_is_there() -> None:
    heads = {re.sub(r"[^a-z0-9 -]", "", head.casefold()).replace(" ", "-")
             for head in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= heads
