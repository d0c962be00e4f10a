"""report --availability and --quarter as they are called: every form says the same, hostile text stays text."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from made_events import keep, made_events
from made_runs import names, node_results, pair_results, with_logs, write_run

from hpcadmin import cli
from hpcadmin.frames import Frame, encode
from hpcadmin.rundata import SkippedNode, read_run, write_record
from hpcadmin.slurm.events import Answers

N8 = names(8)
HOSTILE = "=cmd()|'/C calc'!A0\n<script>alert(1)</script>\x1b[31m\u202e# [x](http://y) @all"
ROWS = [
    ("node03", "2026-01-10 04:00:00", "2026-01-10 10:00:00", "DOWN*", 2049, "Not responding"),
    ("node03", "2026-02-01", "2026-02-01 00:20:00", "DRAIN", 514, HOSTILE),
    ("node05", "2026-03-30", "2026-04-02", "DRAIN", 514, "fan"),
    ("node06", "2026-02-10", "2026-02-11", "DRAIN", 514, "maintenance: memory"),
]
SITE = '[availability]\ntarget = 99.95\nzone = "UTC"\nplanned = ["maintenance*"]\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "admin"))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


def events(place: Path, **more: Any) -> str:
    given = {"rows": ROWS, "outages": [("2026-03-01", "2026-03-01 00:10:00")],
             "reservations": [("node[01-08]", "2026-02-20 06:00", "2026-02-20 18:00", "cooling")], **more}
    return str(keep(made_events("node[01-08]", "2025-12-01", "2026-05-01", **given), place / "events.json"))


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(["report", *args])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def runs(place: Path, weeks: int, loss: float = 0.0, **head: Any) -> list[Path]:
    made = []
    for week in range(weeks):
        when = datetime(2026, 1, 5, 2, tzinfo=timezone.utc) + timedelta(weeks=week)
        results = [*node_results(N8), *pair_results(
            lambda a, b, week=week: 870.0 * (1 + 0.004 * ((week * 31 + sum(map(ord, a + b)) * 17) % 13 / 6 - 1)) * (
                (1 - loss) ** week if "node03" in (a, b) else 1.0), N8)]        # type: ignore[misc]
        made.append(with_logs(write_run(place / f"admin/runs/{when:%Y%m%d-%H%M%S}-network", results, N8, **{
            "started": when.isoformat(), "ended": (when + timedelta(hours=1)).isoformat(), "cluster": "made", **head})))
    return made


DOWN_S = (6 * 3600 + 1200) + 2 * 86400 + 8 * 600       # node03, node05 up to the end of March, slurmctld


def test_every_form_says_the_same(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--availability", "--period", "2026-Q1", "--events", events(place)]
    status, out, _ = call(capsys, *base, "--json")
    plain = json.loads(out)
    counted = 8 * 90 * 86400 - 86400 - 8 * 12 * 3600
    assert (status, plain["exit_status"], plain["line"]) == (1, 1, "NOT MET")
    assert plain["whole"]["seconds"] == {"up": counted - DOWN_S, "down": DOWN_S, "planned": 86400 + 8 * 12 * 3600,
                                         "unknown": 0, "absent": 0}
    assert plain["whole"]["least_percent"] == pytest.approx(100 * (1 - DOWN_S / counted), abs=1e-6)
    assert [m["name"] for m in plain["months"]] == ["2026-01", "2026-02", "2026-03"]
    assert sum(m["seconds"]["down"] for m in plain["months"]) == DOWN_S
    assert [n["node"] for n in plain["nodes"]][:2] == ["node05", "node03"]
    shown = f"{int(plain['whole']['least_percent'] * 1000) / 1000:.3f} %"
    for form in ("table", "markdown"):
        status, out, _ = call(capsys, *base, "--format", form)
        assert (status, shown in out, "NOT MET" in out) == (1, True, True), form
        assert "2 d 7 h" in out
    _, out, _ = call(capsys, *base, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (rows[0]["record"], rows[0]["down_s"]) == ("cluster", str(DOWN_S))
    assert sum(int(r["down_s"]) for r in rows if r["record"] == "node") == DOWN_S
    assert sum(int(r["down_s"]) for r in rows if r["record"] == "incident") == DOWN_S
    target = place / "out.html"
    assert call(capsys, *base, "--format", "html", "-o", str(target))[0] == 1
    assert shown in target.read_text()
    assert not (place / "out.events.json").exists()         # they are in a file already


def test_hostile_reasons_stay_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("xlsxwriter")
    base = ["--availability", "--period", "2026-Q1", "--events", events(place)]
    for form in ("table", "markdown", "csv", "json", "html"):
        _, out, _ = call(capsys, *base, "--format", form, "-o", "-")
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert ("<script>alert" in out) == (form in ("table", "csv", "json")), form
    _, out, _ = call(capsys, *base, "--format", "csv")
    assert any(r["reason"].startswith("'=cmd") for r in csv.DictReader(io.StringIO(out)))
    target = place / "out.xlsx"
    call(capsys, *base, "--format", "xlsx", "-o", str(target))
    with zipfile.ZipFile(target) as book:
        assert not any(b"<f>" in book.read(name) for name in book.namelist())


def test_the_quarter_in_one_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs(place, 1, simulated="h100x8")[0].rename(place / "admin/runs/20260301-000000-pretended")
    made = runs(place, 8, 0.02)
    cli.run(["runs", "baseline", made[1].name])
    capsys.readouterr()
    base = ["--quarter", "2026-Q1", "--events", events(place)]
    status, out, _ = call(capsys, *base, "--json")
    plain = json.loads(out)
    assert (status, len(plain["runs"]), plain["simulated"]) == (1, 9, "h100x8")
    assert [(c["suite"], c["new"], c["old"], c["old_is"]) for c in plain["changes"]] == [
        ("network", made[7].name, made[1].name, "baseline")]
    tables = {t["name"]: t["rows"] for t in plain["tables"]}
    assert any(row[0] == "node03" and row[2] == "for the worse" for row in tables["drifts"])
    assert any("node03" in row[0] for row in tables["changed-network-lost"])
    status, out, _ = call(capsys, *base, "--format", "html")
    page = (place / "admin/availability/quarter-2026-Q1.html").read_text()
    assert out.splitlines()[0].startswith("NOT MET: 9")
    for words in ("Runs of the period", "What changed in suite network", "Slow drifts", "Planned maintenance",
                  "reservation cooling", "Incidents", "By length"):
        assert words in page, words
    assert not re.search(r"<script|<link|<img|<a |src=|href=", page)
    status, out, _ = call(capsys, *base)
    assert "WORSE: " in out
    assert call(capsys, *base, "--format", "markdown")[1].startswith("## NOT MET: Quarter 2026-Q1 of made")


def test_without_slurm_only_what_runs_saw_is_known(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = runs(place, 2)
    begun = datetime(2026, 1, 5, 2, tzinfo=timezone.utc).timestamp()
    logs = path / "jobs/9"
    logs.mkdir(parents=True)
    frame = Frame("t0001", 0, "each", "node01", "x", 0, begun + 60.5, begun + 120.5, frozenset(), b"hello")
    lying = Frame("t0002", 0, "each", "node02", "x", 0, 1.0, 9e9, frozenset(), b"")
    (logs / "node01.log").write_bytes(encode(frame) + encode(frame) + b"torn")
    (logs / "node02.log").write_bytes(encode(lying))
    (logs / "node03.log").write_bytes(encode(frame))            # what another node's file says counts for nothing
    run = read_run(other)
    assert run.plan is not None
    from dataclasses import replace
    write_record(other, "plan.json", replace(run.plan, skipped=(SkippedNode("node04", "down: <b>dead"),)))
    status, out, _ = call(capsys, "--availability", "--period", "2026-01", "--json")
    plain = json.loads(out)
    assert (status, plain["line"]) == (3, "NOT SHOWN")
    assert plain["problems"][0].startswith("no events of Slurm: sacctmgr: is not installed here")
    up = {n["node"]: n["seconds"]["up"] for n in plain["nodes"]}
    assert up == {**dict.fromkeys(N8, 0), "node01": 59, "node02": 3600}         # a clock is believed within the run
    assert all(n["most_percent"] == 100.0 and n["seconds"]["down"] == 0 for n in plain["nodes"])
    seen = {row[0]: row for t in plain["tables"] if t["name"] == "seen" for row in t["rows"]}
    assert (seen["node01"][1:4], seen["node04"][1:3], seen["node04"][5]) == (
        ["1", "0", "59 s"], ["0", "1"], "down: <b>dead")
    assert "our own runs alone" in call(capsys, "--availability", "--period", "2026-01")[1]


def test_runs_tell_of_the_time_before_slurmdbds_first_record(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = runs(place, 1)[0]
    begun = datetime(2026, 1, 5, 2, tzinfo=timezone.utc).timestamp()
    (path / "jobs/9").mkdir(parents=True)
    (path / "jobs/9/node01.log").write_bytes(encode(
        Frame("t0001", 0, "each", "node01", "x", 0, begun + 60, begun + 120, frozenset(), b"")))
    late = made_events("node[01-08]", "2026-01-20", "2026-05-01", [])
    keep(late, place / "late.json")
    plain = json.loads(call(capsys, "--availability", "--period", "2026-01", "--events", "late.json", "--json")[1])
    by_node = {n["node"]: n["seconds"] for n in plain["nodes"]}
    assert by_node["node01"]["unknown"] == by_node["node02"]["unknown"] - 60 == 19 * 86400 - 60
    assert plain["line"] == "NOT SHOWN"
    assert any("first record" in note for note in plain["notes"])


def test_some_nodes_another_line_and_a_period_that_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = events(place)
    base = ["--availability", "--events", kept, "--period"]
    status, out, _ = call(capsys, *base, "2026-02", "-w", "node0[1-2]", "--json")
    assert (status, [n["node"] for n in json.loads(out)["nodes"]]) == (0, ["node01", "node02"])
    assert call(capsys, *base, "2026-Q1", "--target", "95")[0] == 0
    status, out, _ = call(capsys, *base, "2026-Q2")
    assert "NOT MET SO FAR" in out
    assert "the period is not over" in out
    assert call(capsys, *base, "2026-Q1", "-w", "node99")[0] == 2
    (place / "site.toml").write_text(SITE + 'nodes = "node[01-09]"\n')
    plain = json.loads(call(capsys, *base, "2026-Q1", "--json")[1])
    assert next(n for n in plain["nodes"] if n["node"] == "node09")["least_percent"] == 0.0


@pytest.mark.parametrize(("args", "words"), [
    (["--period", "2026-Q1"], "--availability"), (["-w", "n1"], "--availability"),
    (["--availability", "--run", "x"], "of a run"), (["--availability", "--handover"], "of a run"),
    (["--quarter", "2026-Q1", "--period", "2026"], "--period cannot"), (["--availability", "--quarter", "2026-Q1"],
                                                                       "not needed"),
    (["--availability", "--format", "junit"], "form of a run"), (["--quarter", "2026"], "no quarter"),
    (["--quarter", ""], "is empty"), (["--availability", "--target", "101"], "no percentage"),
    (["--availability", "--target", "0"], "no percentage"), (["--availability", "--events", "none.json"], "none.json"),
    (["--availability", "--events", "site.toml"], "not JSON"), (["--availability", "--period", "2031-01"], "not begun"),
    (["--availability", "--period", "2026-01", "-o", "x.txt"], "is for the terminal"),
    (["--availability", "--period", "2026-01"], "nothing tells")])
def test_what_does_not_fit_is_one_line(args: list[str], words: str, place: Path,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call(capsys, *args)
    assert status == 2
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("text", "key"), [
    ('target = "high"', "target"), ("target = 0", "target"), ('planned = ["*"]', "planned"),
    ('drain = "maybe"', "drain"), ('controller = "x"', "controller"), ('power_saving = "unknown"', "power_saving"),
    ("typo = 1", "typo")])
def test_a_wrong_site_names_its_line(text: str, key: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "site.toml").write_text(f"[availability]\n{text}\n")
    status, _, err = call(capsys, "--availability")
    assert (status, "site.toml:2" in err, key in err) == (2, True, True)


def test_what_the_figures_do_not_have_in_them_stands_with_the_result(place: Path, capsys: pytest.CaptureFixture[str],
                                                                     ) -> None:
    kept = events(place, rows=[], outages=[], config="SlurmDBD configuration:\nPurgeEventAfter = 12 months\n"
                  "TrackSlurmctldDown = No\n")
    status, out, _ = call(capsys, "--availability", "--period", "2026-Q1", "--events", kept)
    assert status == 0
    assert "MET: outages of slurmctld are not in this account" in out
    assert "MET: slurmdbd purges events (PurgeEventAfter=12 months)" in out


def test_events_of_another_time_are_not_taken(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace
    short: Answers = replace(made_events("node[01-08]", "2025-12-01", "2026-05-01", []), start=10 ** 9 * 2 - 1)
    keep(short, place / "short.json")
    (place / "site.toml").write_text(SITE + 'nodes = "node[01-02]"\n')
    status, out, _ = call(capsys, "--availability", "--period", "2026-Q1", "--events", "short.json", "--json")
    assert (status, json.loads(out)["line"]) == (3, "NOT SHOWN")
    assert "not of the whole period" in json.loads(out)["problems"][0]
