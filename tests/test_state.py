"""What is made for hpcadmin itself is its owner's alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcadmin.errors import StoreError
from hpcadmin.state import make_private


@pytest.fixture
def no_mask() -> Iterator[None]:
    """As of sites where all users share a group, and more so."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_folders_on_the_way_are_private_too(tmp_path: Path, no_mask: None) -> None:
    """Whoever may write in one of them puts another folder in the place of the runs."""
    tmp_path.chmod(0o755)
    made = make_private(tmp_path / "a/b/runs")
    assert [p.stat().st_mode & 0o777 for p in (made, made.parent, made.parent.parent)] == [0o700] * 3
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "what was there stays as it was"
    assert make_private(made) == made


def test_what_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone/x")
    for path in (tmp_path / "file/runs", tmp_path / "file", tmp_path / "nowhere/runs"):
        with pytest.raises(StoreError, match="cannot be created"):
            make_private(path)
