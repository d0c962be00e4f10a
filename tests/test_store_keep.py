"""Which runs are kept and which go; runs as archives, and archives that are not what they say."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import names, node_results, with_logs, write_run

from hpcadmin import cli, store_archive
from hpcadmin.errors import HpcadminError
from hpcadmin.rundata import read_run
from hpcadmin.seal import SEAL, make_seal, write_seal
from hpcadmin.store_archive import export, take_in

WHEN = "2026-07-30T10:15:00+02:00"
NAME = "20260730-101500-network"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "a"))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    one(tmp_path / "a/runs", NAME)
    return tmp_path / "a/runs"


def one(runs: Path, name: str, **head: object) -> Path:
    return with_logs(write_run(runs / name, node_results(names(2)), names(2), **head))  # type: ignore[arg-type]


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(["runs", *args])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def old(runs: Path, day: int, suite: str = "network", **head: object) -> Path:
    return one(runs, f"202601{day:02d}-000000-{suite}", suite=suite,
               **{"started": f"2026-01-{day:02d}T00:00:00+00:00", **head})


def test_what_is_never_pruned(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in (1, 2, 3, 4, 5, 8):
        old(runs, day)
    (old(runs, 10) / "SHA256SUMS.sig").write_text("signature")
    old(runs, 11, state="running")
    (runs / "20260112-000000-bad").mkdir()
    old(runs, 6, retest_of="20260101-000000-network")
    old(runs, 7, retest_of="20260106-000000-network")
    old(runs, 13, retest_of="20260103-000000-network")
    assert call(capsys, "tag", "20260101-000000-network", "acceptance")[0] == 0
    assert call(capsys, "baseline", "20260102-000000-network")[0] == 0
    status, out, _ = call(capsys, "prune", "--keep-last", "2", "--keep-days", "0", "--yes", "--json")
    found = json.loads(out)
    assert (status, found["removed"]) == (0, [f"2026010{day}-000000-network" for day in (4, 5, 8)])
    assert found["kept"] == {
        "20260101-000000-network": "tagged acceptance", "20260102-000000-network": "it is a baseline",
        "20260103-000000-network": "a run that is kept repeats what failed in it",
        **{f"2026010{day}-000000-network": "it repeats what failed in a run that is kept" for day in (6, 7)},
        "20260110-000000-network": "it is signed", "20260111-000000-network": "it is not over",
        "20260112-000000-bad": "it cannot be read", "20260113-000000-network": "one of the last 2 of its suite",
        NAME: "one of the last 2 of its suite"}
    assert sorted(p.name for p in runs.iterdir() if not p.name.startswith(".")) == sorted(found["kept"])


def test_pruning_asks_and_a_dry_run_removes_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in (1, 2, 3):
        old(runs, day)
    args = ("prune", "--keep-last", "1", "--keep-days", "0")
    status, out, _ = call(capsys, *args, "--dry-run")
    assert (status, "20260101-000000-network: would go" in out, "3 of 4 runs would go" in out) == (0, True, True)
    status, out, err = call(capsys, *args)
    assert (status, "nothing removed: nobody can be asked" in err, "goes" in out) == (2, True, False)
    assert len(list(runs.glob("2026*"))) == 4
    assert call(capsys, "prune", "--yes")[1].endswith("0 of 4 runs go, 4 stay\n")
    assert call(capsys, *args, "--yes")[0] == 0
    assert [p.name for p in runs.glob("2026*")] == [NAME]


def test_a_tag_that_the_index_has_not_seen_counts(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcadmin.store_marks import change_marks, with_tags
    from hpcadmin.store_prune import still_kept
    assert still_kept(runs / NAME) == ""
    change_marks(runs / NAME, lambda m: with_tags(m, ("x",), ()))
    assert still_kept(runs / NAME) == "tagged x"
    (runs / NAME / "marks.json").write_text("{")
    assert still_kept(runs / NAME)


def test_what_a_killed_prune_left_goes_with_the_next(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hpcadmin.store_prune import finish_removals
    (runs / ".pruned-x/jobs").mkdir(parents=True)
    assert "pruned" not in call(capsys, "list")[1]
    finish_removals(runs)
    assert not (runs / ".pruned-x").exists()


def test_one_baseline_of_a_suite(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old(runs, 1)
    old(runs, 2, suite="smoke")
    old(runs, 3, state="interrupted")
    assert call(capsys, "baseline")[1].startswith("no run is a baseline")
    for name in ("20260101", "20260102", NAME):
        assert call(capsys, "baseline", name)[0] == 0
    assert [line.split(":")[0] for line in call(capsys, "baseline")[1].splitlines()] == ["20260102-000000-smoke", NAME]
    assert "only a complete run" in call(capsys, "baseline", "20260103")[2]
    assert call(capsys, "baseline", NAME, "--clear")[1] == f"{NAME} is no baseline\n"


def test_tags_on_the_command_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "tag", NAME)[1] == f"{NAME}: no tag\n"
    assert call(capsys, "tag", NAME, "b", "a")[1] == f"{NAME}: a, b\n"
    assert call(capsys, "tag", NAME, "--remove", "a")[1] == f"{NAME}: b\n"
    status, _, err = call(capsys, "tag", NAME, "a b\x1b[31m")
    assert (status, err.count("\n"), "\x1b" in err) == (2, 1, False)


def test_reindex(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "20260112-000000-bad").mkdir()
    assert call(capsys, "reindex")[:2] == (0, "2 runs, 1 of them unreadable\n")


# --- archives -----------------------------------------------------------------------------------------------------


def test_out_and_in_again(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                          capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "tag", NAME, "v1")
    call(capsys, "baseline", NAME)
    (runs / NAME / "report.html").write_text("x")
    (runs / NAME / "link").symlink_to("/etc/passwd")
    status, out, _ = call(capsys, "export", NAME)
    assert (status, f"{tmp_path}/{NAME}.tar.gz: " in out) == (0, True)
    assert "is there already" in call(capsys, "export", NAME)[2]
    assert "is there already" in call(capsys, "import", f"{NAME}.tar.gz")[2]
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "b"))
    assert call(capsys, "import", f"{NAME}.tar.gz")[0] == 0
    there = tmp_path / "b/runs" / NAME
    assert call(capsys, "verify", NAME)[0] == 0
    marks = json.loads((there / "marks.json").read_text())
    assert (marks["tags"], marks["baseline"], bool(marks["imported"])) == (["v1"], "", True)
    assert read_run(there).measured == read_run(runs / NAME).measured
    assert not (there / "report.html").exists()
    assert not (there / "link").is_symlink()
    assert [p.name for p in (tmp_path / "b/runs").iterdir()] == [NAME]
    assert NAME in call(capsys, "list", "--tag", "v1")[1]


def test_a_damaged_or_running_run_is_not_given_away(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seal(runs / NAME, NAME, WHEN)
    (runs / NAME / "limits.json").write_text("")
    assert "is damaged" in call(capsys, "export", NAME)[2]
    old(runs, 1, state="running")
    assert "is not over" in call(capsys, "export", "20260101")[2]
    assert not list(Path().glob("*.tar.gz*"))


def archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, raw in members:
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def whole(runs: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    text = make_seal(runs / NAME, NAME, WHEN)[1]
    run = runs / NAME
    files = [(str(p.relative_to(run)), p.read_bytes()) for p in sorted(run.rglob("*")) if p.is_file()]
    return [(tarfile.TarInfo(f"{NAME}/{n}"), raw) for n, raw in [(SEAL, text), *files]]


def special(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"{NAME}/x")
    info.type = kind
    return info


@pytest.mark.parametrize(("extra", "says"), [
    (lambda: link(f"{NAME}/x", "/etc/passwd"), "no plain file"),
    (lambda: link(f"{NAME}/x", f"{NAME}/plan.json", tarfile.LNKTYPE), "no plain file"),
    (lambda: special(tarfile.FIFOTYPE), "no plain file"), (lambda: special(tarfile.CHRTYPE), "no plain file"),
    (lambda: tarfile.TarInfo("/etc/x"), "outside of a run"), (lambda: tarfile.TarInfo("../x"), "outside of a run"),
    (lambda: tarfile.TarInfo(f"{NAME}/../../x"), "outside of a run"),
    (lambda: tarfile.TarInfo("other/x"), "more than one run"), (lambda: tarfile.TarInfo("x"), "outside of a run"),
    (lambda: tarfile.TarInfo(f"{NAME}/" + "d/" * 40 + "x"), "outside of a run"),
    (lambda: tarfile.TarInfo(f"{NAME}/plan.json"), "cannot be unpacked"),
    (lambda: tarfile.TarInfo(f"{NAME}/plan.json/x"), "cannot be unpacked"),
    (lambda: tarfile.TarInfo(f"{NAME}/more"), "'more', for which there is no hash"),
    (lambda: tarfile.TarInfo(f"{NAME}/jobs/1/slurm.out"), "no hash"),
    (lambda: tarfile.TarInfo(f"{NAME}/lock"), "no hash"), (lambda: tarfile.TarInfo(f"{NAME}/report.html"), "no hash"),
    (lambda: tarfile.TarInfo(f"{NAME}/marks.json"), "tags that cannot be read"),
])
def test_what_no_export_wrote_is_not_taken_in(runs: Path, tmp_path: Path, extra: Callable[[], tarfile.TarInfo],
                                              says: str) -> None:
    path = archive(tmp_path / "x.tar.gz", [*whole(runs), (extra(), b"")])
    target = tmp_path / "b"
    target.mkdir()
    with pytest.raises(HpcadminError, match=says):
        take_in(path, target)
    assert list(target.iterdir()) == []
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", [b"x", b"g", b"L"])
def test_headers_without_end_are_one_line(tmp_path: Path, kind: bytes) -> None:
    """Each is read within the one before."""
    head = tarfile.TarInfo("x")
    head.type, head.size = kind, 9
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress((head.tobuf() + b"9 a=bcde\n".ljust(512, b"\0")) * 3000))
    (tmp_path / "b").mkdir()
    with pytest.raises(HpcadminError, match=r"is not a whole tar\.gz"):
        take_in(tmp_path / "x.tar.gz", tmp_path / "b")
    assert list((tmp_path / "b").iterdir()) == []


def test_an_archive_is_for_its_owner_alone(runs: Path, tmp_path: Path) -> None:
    """As the run folder and what a vendor gets: it holds all outputs and kernel logs."""
    export(runs / NAME, tmp_path / "x.tar.gz", WHEN)
    assert (tmp_path / "x.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["-rf", "\x1b[31mred", "new\nline", "\u202eder", "\udcff", " x"])
def test_hostile_names_of_runs(runs: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder may be called so here; it is told as text, and goes nowhere else."""
    path = archive(tmp_path / "x.tar.gz", [(tarfile.TarInfo(f"{name}{m.name[len(NAME):]}"), raw)
                                           for m, raw in whole(runs)])
    (tmp_path / "b").mkdir()
    with pytest.raises(HpcadminError, match="outside of a run"):
        take_in(path, tmp_path / "b")
    shutil.copytree(runs / NAME, runs / name)
    for words in (("seal",), ("verify",), ("show",), ("tag",), ("baseline",), ("list", "--last", "9"), ("export",)):
        status = cli.run(["runs", *words, *(["--", name] if words[0] != "list" else [])])
        out, err = capsys.readouterr()
        # Its files say that it is another run.
        assert status == {"export": 2, "verify": 1}.get(words[0], 0), err
        assert not any(c in out + err for c in name if not c.isprintable() and c != "\n")
        assert "new\nline" not in out + err


def test_every_cut_and_changed_archive_is_refused(runs: Path, tmp_path: Path) -> None:
    export(runs / NAME, tmp_path / "x.tar.gz", WHEN)
    raw = (tmp_path / "x.tar.gz").read_bytes()
    target = tmp_path / "b"
    target.mkdir()
    plain = gzip.decompress(raw)
    cases = [raw[:cut] for cut in range(0, len(raw) - 1, max(1, len(raw) // 25))]
    cases += [gzip.compress(plain[:at] + bytes([plain[at] ^ 4]) + plain[at + 1:], 1)
              for at in range(600, len(plain) - 10240, len(plain) // 25)]
    taken = 0
    for case in [*cases, b"", b"x" * 1000]:
        (tmp_path / "y.tar.gz").write_bytes(case)
        try:
            path, _ = take_in(tmp_path / "y.tar.gz", target)
        except HpcadminError:
            assert list(target.iterdir()) == []
            continue
        taken += 1              # a bit of a time stamp or of padding
        from hpcadmin.seal import look, read_seal, verify
        assert verify(read_seal(path), look(path)).sound
        import shutil
        shutil.rmtree(path)
    assert taken <= 12


def test_bombs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "b"
    target.mkdir()
    big = tarfile.TarInfo(f"{NAME}/big")
    path = archive(tmp_path / "x.tar.gz", [*whole(runs), (big, b"\0" * 3_000_000)])
    monkeypatch.setattr(store_archive, "MAX_BYTES", 1_000_000)
    with pytest.raises(HpcadminError, match="is too large"):
        take_in(path, target)
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    with pytest.raises(HpcadminError, match="a header is too large"):
        take_in(archive(tmp_path / "y.tar.gz", [(header, b"\0" * 3_000_000)]), target)
    assert list(target.iterdir()) == []


def test_what_a_killed_import_left_is_no_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / ".import-x/run").mkdir(parents=True)
    (runs / ".import-x/run/manifest.json").write_text("{}")
    assert [e["run"] for e in json.loads(call(capsys, "list", "--json")[1])] == [NAME]


def test_what_killed_imports_left_goes_after_a_day(runs: Path, tmp_path: Path) -> None:
    import os
    for name, age in (("old", 90000), ("new", 100)):
        (runs / f".import-{name}/run").mkdir(parents=True)
        os.utime(runs / f".import-{name}", (time.time() - age,) * 2)
    with pytest.raises(HpcadminError):
        take_in(archive(tmp_path / "x.tar.gz", []), runs)
    assert [p.name for p in runs.glob(".import-*")] == [".import-new"]


def test_the_list_is_filtered(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old(runs, 1, suite="smoke")
    old(runs, 2, state="interrupted", exit_status=130)
    (runs / "20260112-000000-bad").mkdir()
    call(capsys, "tag", "20260101", "v1")
    call(capsys, "baseline", NAME)

    def listed(*args: str) -> list[str]:
        return [e["run"][:8] for e in json.loads(call(capsys, "list", "--json", *args)[1])]
    assert listed() == ["20260101", "20260102", "20260112", "20260730"]
    assert listed("--suite", "smoke") == listed("--tag", "v1") == ["20260101"]
    assert listed("--state", "interrupted") == ["20260102"]
    assert listed("--state", "unreadable") == ["20260112"]
    assert listed("--node", "node[01-02]") == ["20260101", "20260102", "20260730"]
    assert listed("--node", "node09") == []
    assert listed("--since", "2026-01-02") == ["20260102", "20260730"]
    assert listed("--since", "1h") == []
    assert listed("--last", "1", "--suite", "net*") == ["20260730"]
    out = call(capsys, "list")[1]
    assert ("v1" in out, "baseline" in out) == (True, True)
    assert call(capsys, "list", "--tag", "none")[1] == f"no such run in {runs}\n"
    for wrong in (("--since", "yesterday"), ("--node", "node[01")):
        status, _, err = call(capsys, "list", *wrong)
        assert (status, err.count("\n")) == (2, 1)


def test_a_run_of_an_older_version_opens_everywhere(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    """Of its records only what has had no default since the first version; no findings, coverage, seal or marks."""
    from hpcadmin import records
    folder = old(runs, 1)
    run = read_run(folder)
    for name, record in (("manifest.json", run.manifest), ("plan.json", run.plan), ("inventory.json", run.inventory)):
        (folder / name).write_text(records.dumps(record, sparse=True))
    for name in ("measurements.jsonl", "verdicts.jsonl"):
        values = run.measured if name[0] == "m" else run.verdicts
        (folder / name).write_text("".join(records.dumps(v, sparse=True) + "\n" for v in values))
    (folder / "findings.json").unlink()
    assert read_run(folder).measured == run.measured
    name = folder.name
    assert name in call(capsys, "list")[1]
    for args in (["show", name], ["seal", name], ["verify", name], ["tag", name, "old"], ["baseline", name],
                 ["export", name, "-o", "old.tar.gz"]):
        assert call(capsys, *args)[0] == 0, args
    assert cli.run(["report", "--compare", name]) == 0
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "b"))
    assert call(capsys, "import", "old.tar.gz")[0] == 0
    assert call(capsys, "verify", name)[0] == 0
