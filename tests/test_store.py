"""The index over run folders: never more than they hold, never in the way, whatever happens to its file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from hpcadmin import records, store
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.rundata import Manifest
from hpcadmin.store import Entry, Wanted, epoch, index_file, with_index
from hpcadmin.store_marks import Marks, change_marks, read_marks, with_tags


def make(runs: Path, number: int, *, suite: str = "network", state: str = "complete", nodes: int = 4,
         **head: object) -> Path:
    folder = runs / f"202607{number // 1000 + 1:02d}-{number % 1000:06d}-{suite}"
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"started": f"2026-07-{number // 1000 + 1:02d}T10:15:00+02:00", "cluster": "lab", "exit_status": 0, **head}
    manifest = Manifest(folder.name, suite, tuple(f"gpu{n:04d}" for n in range(nodes)), state,
                        **fields)  # type: ignore[arg-type]
    (folder / "manifest.json").write_text(records.dumps(manifest, indent=1))
    return folder


ALL = Wanted()


def found(runs: Path, wanted: Wanted = ALL, said: list[str] | None = None) -> list[str]:
    said = [] if said is None else said
    return [e.name for e in with_index(runs, lambda index: index.find(wanted), said.append)]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make(tmp_path, 1, suite="smoke")
    make(tmp_path, 2, nodes=8)
    make(tmp_path, 2001, state="running", exit_status=None)
    return tmp_path


def test_what_is_asked_for_is_found(runs: Path) -> None:
    change_marks(runs / "20260701-000002-network", lambda m: with_tags(m, ("acceptance", "v1"), ()))
    everything = ["20260701-000001-smoke", "20260701-000002-network", "20260703-000001-network"]
    assert found(runs) == everything
    assert found(runs, Wanted(suite="smoke")) == everything[:1]
    assert found(runs, Wanted(suite="net*")) == everything[1:]
    assert found(runs, Wanted(nodes=("gpu0007", "gpu9"))) == everything[1:2]
    assert found(runs, Wanted(nodes=("gpu000",))) == []
    assert found(runs, Wanted(state="running")) == everything[2:]
    assert found(runs, Wanted(tag="v1")) == everything[1:2]
    assert found(runs, Wanted(tag="v")) == []
    assert found(runs, Wanted(since=epoch("2026-07-02T00:00:00+00:00"))) == everything[2:]
    assert found(runs, Wanted(suite="' OR 1=1 --")) == []


def test_changes_in_the_folders_are_seen(runs: Path) -> None:
    assert len(found(runs)) == 3
    make(runs, 2001, state="complete")
    assert found(runs, Wanted(state="running")) == []
    shutil.rmtree(runs / "20260701-000001-smoke")
    assert len(found(runs)) == 2
    assert with_index(runs, lambda index: index.update()) == 0


def test_a_change_of_the_same_size_at_the_same_time_is_seen(runs: Path) -> None:
    path = runs / "20260701-000002-network" / "manifest.json"
    found(runs)
    before = path.stat()
    path.with_name("new").write_text(path.read_text().replace('"complete"', '"complexe"'))
    path.with_name("new").rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(runs, Wanted(state="complexe")) == ["20260701-000002-network"]


def test_what_only_looks_like_a_run_and_hostile_folders(runs: Path, tmp_path: Path) -> None:
    (runs / "20260710-000000-cut").mkdir()
    (runs / "other").mkdir()
    (runs / "20260711-000000-bad").mkdir()
    (runs / "20260711-000000-bad/manifest.json").write_text("{")
    (runs / "20260712-000000-link").mkdir()
    (runs / "20260712-000000-link/manifest.json").symlink_to("/etc/hostname")
    (runs / "\udcff20260712").mkdir()
    make(runs, 5000, suite="a\x1b[31m", cluster="'; DROP TABLE runs; -- \udc80")
    entries = {e.name: e for e in with_index(runs, lambda index: index.find())}
    assert {n for n, e in entries.items() if e.state == "unreadable"} == {
        "20260710-000000-cut", "20260711-000000-bad", "20260712-000000-link"}
    assert all(entries[n].manifest is None for n in entries if entries[n].problem)
    assert len(entries) == 7


def test_a_run_of_an_older_version_or_another_site_opens(runs: Path) -> None:
    old = runs / "20250101-000000-network"
    old.mkdir()
    (old / "manifest.json").write_text('{"run_id": "20250101-000000-network", "suite": "network", "nodes": ["n1"], '
                                       '"state": "complete", "started": "2025-01-01T00:00:00Z"}')
    entry = with_index(runs, lambda index: index.find(Wanted(nodes=("n1",))))[0]
    assert (entry.problem, entry.manifest and entry.manifest.nodes) == ("", ("n1",))


@pytest.mark.parametrize("damage", ["text", "empty", "middle", "tables", "folder"])
def test_a_damaged_index_is_made_anew_with_one_line(runs: Path, damage: str) -> None:
    for number in range(10, 60):
        make(runs, number)
    before = found(runs)
    path = index_file(runs)
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    raw = path.read_bytes()
    if damage == "tables":
        with contextlib.closing(sqlite3.connect(path)) as base:
            base.execute("DROP TABLE runs")
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"text": b"no database " * 100, "empty": b"",
                          "middle": raw[:4096] + b"\xff" * (len(raw) - 4096)}[damage])
    said: list[str] = []
    assert with_index(runs, lambda index: [e.name for e in index.find()], said.append) == before
    assert len(said) == (0 if damage == "empty" else 1)
    assert damage == "folder" or found(runs, said=said) == before


def test_a_link_in_its_place_is_not_followed(runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    index_file(runs).symlink_to(target)
    assert len(found(runs)) == 3
    assert target.read_text() == "precious"


def test_folders_that_cannot_be_written_are_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: object, flags: int, *more: object, **keys: object) -> int:
        if flags & os.O_CREAT and ".index-" in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *more, **keys)  # type: ignore[call-overload,no-any-return]
    monkeypatch.setattr(os, "open", refuse)
    said: list[str] = []
    assert len(found(runs, said=said)) == 3
    assert (said, index_file(runs).exists()) == ([], False)


def test_a_file_system_without_locks_is_no_wait(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")
    for name in ("lockf", "flock"):
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, name, refused)
            said: list[str] = []
            begin = time.monotonic()
            assert len(found(runs, said=said)) == 3
            assert (time.monotonic() - begin < 5, len(said), "No locks available" in said[0]) == (True, 1, True)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", lambda *_: (_ for _ in ()).throw(OSError(errno.EAGAIN, "held")))
        said = []
        assert (len(found(runs, said=said)), said) == (3, [])


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert found(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("version", range(store.SCHEMA))
def test_every_older_version_is_brought_up(runs: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        for script in store.MIGRATIONS[:version]:
            base.executescript(script)
        if version:         # what an older one knew of a run that is gone, and of one that has changed
            for name in ("20260601-000000-gone", "20260701-000001-smoke"):
                base.execute("INSERT INTO runs VALUES (?, 'x', '', '{}', 'smoke', 'complete', 0, '', 0, '', '', '', "
                             "'', '', '', '')", (name,))
        base.execute(f"PRAGMA user_version = {version}")
        base.commit()
    said: list[str] = []
    assert len(found(runs, said=said)) == 3
    with_index(runs, lambda index: index.keep([("r", "c", "s", b"x")]), said.append)
    assert with_index(runs, lambda index: index.kept("r", "c", "s"), said.append) == b"x"
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        assert base.execute("PRAGMA user_version").fetchone()[0] == store.SCHEMA
    assert said == []


def test_an_index_of_a_newer_version_is_left_alone(runs: Path) -> None:
    found(runs)
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        base.execute("PRAGMA user_version = 99")
    said: list[str] = []
    assert len(found(runs, said=said)) == 3
    assert "of a newer hpcadmin" in said[0]
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        assert base.execute("PRAGMA user_version").fetchone()[0] == 99


def forked(work: object) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()  # type: ignore[operator]
        status = 0
    finally:
        os._exit(status)


def test_processes_that_write_at_once_lose_nothing(runs: Path) -> None:
    def add(start: int) -> None:
        for number in range(start, start + 12):
            make(runs, number)
            found(runs)
            change_marks(runs / "20260701-000001-smoke", lambda m, n=number: with_tags(m, (f"t{n}",), ()))
    children = [forked(lambda s=s: add(s)) for s in (100, 200)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        there = base.execute("SELECT count(*) FROM runs").fetchone()[0]
    assert there >= 26                     # each brings what it has made, whoever comes last all
    assert len(found(runs)) == 27
    assert len(read_marks(runs / "20260701-000001-smoke").tags) == 24


def test_kill_9_at_any_point_leaves_a_readable_index(runs: Path) -> None:
    for number in range(100, 140):
        make(runs, number)

    def churn() -> None:
        while True:
            for number in range(100, 140):
                make(runs, number, user=str(time.monotonic_ns()))
            with_index(runs, lambda index: index.keep([(str(n), "c", "s", b"x" * 5000) for n in range(50)]))
    for milliseconds in (2, 6, 12, 20, 30):
        pid = forked(churn)
        time.sleep(milliseconds / 1000)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for folder in runs.iterdir():
            if (folder / "manifest.json").exists() and not (folder / "manifest.json").read_text():
                make(runs, int(folder.name.split("-")[1]))      # this test's own writing is not by renaming
        said: list[str] = []
        assert len(with_index(runs, lambda index: index.find(), said.append)) == 43
        assert said == []
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        assert base.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.mark.deep
def test_a_thousand_runs_of_a_thousand_nodes(tmp_path: Path) -> None:
    for number in range(1000):
        make(tmp_path, number, nodes=1000)
    found(tmp_path)
    best = 9.0
    for _ in range(5):
        start = time.perf_counter()
        assert len(found(tmp_path, Wanted(nodes=("gpu0999",), suite="network"))) == 1000
        best = min(best, time.perf_counter() - start)
    assert best < 0.2, best


def test_tags(runs: Path) -> None:
    assert with_tags(Marks(("a",)), ("b", "a"), ()).tags == ("a", "b")
    assert with_tags(Marks(("a", "b")), (), ("b",)).tags == ("a",)
    for add, remove in ((("a b",), ()), (("",), ()), (("-x",), ()), (("x" * 65,), ()), ((), ("none",)),
                        (tuple(f"t{n}" for n in range(33)), ())):
        with pytest.raises(UsageError):
            with_tags(Marks(("a",)), add, remove)
    folder = runs / "20260701-000001-smoke"
    (folder / "marks.json").symlink_to("/etc/hostname")
    with pytest.raises(StoreError):
        change_marks(folder, lambda m: m)
    assert len(found(runs)) == 3


def test_entries_are_whole(runs: Path) -> None:
    entry: Entry = with_index(runs, lambda index: index.find(Wanted(suite="smoke")))[0]
    assert (entry.nodes, entry.exit_status, entry.state, entry.path) == (
        "gpu[0000-0003]", 0, "complete", runs / "20260701-000001-smoke")


def test_processes_that_find_a_damaged_index_at_once_all_go_on(runs: Path) -> None:
    for number in range(100, 130):
        make(runs, number)
    found(runs)

    def look() -> None:
        for _ in range(5):
            assert len(found(runs)) == 33
    for _ in range(4):
        index_file(runs).write_bytes(b"no database" * 1000)
        children = [forked(look) for _ in range(4)]
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert len(found(runs)) == 33


def test_half_a_sign_anywhere_in_a_manifest_keeps_no_run_from_being_found(runs: Path) -> None:
    """JSON has texts that no file and no SQLite takes."""
    half = "\ud800"
    path = make(runs, 3, suite="network", cluster=half, started=half) / "manifest.json"
    path.write_text(path.read_text().replace('"network"', r'"\ud800"').replace('"gpu0001"', r'"\ud800"'))
    wanted = Wanted(suite=half, cluster=half, nodes=(half,))
    assert [e.suite for e in with_index(runs, lambda index: index.find(wanted))] == [r"\ud800"]
    with_index(runs, lambda index: index.keep([("a", half, "s", b"x")]))
    assert with_index(runs, lambda index: index.kept("a", half, "s")) == b"x"


@pytest.mark.parametrize("change", [
    "tags = x'ff'", "exit_status = 'abc'", "folded = x'00'", "suite = CAST(x'ff' AS TEXT)", "started = x'ff'"])
def test_an_index_with_values_of_another_kind_is_made_anew(runs: Path, change: str) -> None:
    said: list[str] = []
    names = found(runs)
    with contextlib.closing(sqlite3.connect(index_file(runs))) as base:
        base.execute(f"UPDATE runs SET {change}")  # noqa: S608  (constants)
        base.commit()
    assert found(runs, said=said) == names
    assert "was damaged" in said[0]
    assert found(runs, said=said) == names
    assert len(said) == 1
