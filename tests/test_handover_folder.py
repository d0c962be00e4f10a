"""Where the handover document is written: over nothing but a document of its kind."""

import datetime
import os
import shutil
from pathlib import Path

import pytest
from made_runs import names, pair_results, with_logs, write_run

from hpcadmin.errors import HpcadminError
from hpcadmin.handover.criteria import Terms
from hpcadmin.handover.folder import PAGE, write
from hpcadmin.rundata import Run, read_run

DAY = datetime.date(2026, 11, 30)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(with_logs(write_run(tmp_path / "run", pair_results(lambda _a, _b: 11.0, names(2)), names(2))))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("page", [b"<html>a web site</html>", b"", b"x" * 5000, None])
def test_the_folder_of_something_else_stays(run: Run, tmp_path: Path, page: bytes | None) -> None:
    folder = tmp_path / "www"
    (folder / "raw").mkdir(parents=True)
    (folder / "raw/photo").write_bytes(b"mine")
    if page is not None:
        (folder / PAGE).write_bytes(page)
    before = tree(folder)
    with pytest.raises(HpcadminError, match="holds no document of this kind"):
        write(run, Terms(), DAY, folder)
    assert tree(folder) == before


def test_nothing_is_written_through_links(run: Run, tmp_path: Path) -> None:
    """Somebody else may write in the folder too."""
    folder, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "page").write_text("mine")
    write(run, Terms(), DAY, folder)
    write(run, Terms(), DAY, folder)                    # it may be made again
    shutil.rmtree(folder / "raw")
    (folder / "raw").symlink_to(other)
    with pytest.raises(HpcadminError, match="holds no document of this kind"):
        write(run, Terms(), DAY, folder)
    (folder / "raw").unlink()
    (folder / PAGE).unlink()
    (folder / PAGE).symlink_to(other / "page")
    with pytest.raises(HpcadminError, match="holds no document of this kind"):
        write(run, Terms(), DAY, folder)
    assert tree(other) == {"page": b"mine"}


def test_a_folder_that_cannot_be_read_is_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()

    def refused(_self: Path) -> None:
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(HpcadminError, match="Permission denied"):
        write(run, Terms(), DAY, tmp_path / "out")


def test_nobody_else_may_change_it(run: Run, tmp_path: Path) -> None:
    """Whatever the umask: a document that is signed is no shared draft."""
    before = os.umask(0)
    try:
        write(run, Terms(), DAY, tmp_path / "out")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "out").rglob("*") if p.is_file()} == {0o644}
