"""The lint of limits: each kind of nonsense is found with file and line, and what ships is clean."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcadmin import ceilings
from hpcadmin.catalogue import Entry, Known, catalogue_files, load_known, read_entries
from hpcadmin.check import Limit
from hpcadmin.cli import run
from hpcadmin.errors import SiteError
from hpcadmin.limits_lint import COMING, Finding, lint, measures, overlap
from hpcadmin.registry import load_checks

SAMPLES = Path(__file__).parent / "samples"
TODAY = datetime.date(2026, 11, 30)
H100 = "*H100 80GB HBM3*"
NCCL = {"check": "nccl_allreduce", "measurement": "busbw", "unit": "GB/s", "size_bytes": 8589934592, "min": 460.0,
        "ranks": 8, "nodes": 1, "hardware": H100, "source": "measured on our nodes", "date": "2026-11-01"}
IB = {"check": "ib_write_bw", "measurement": "bandwidth", "unit": "Gb/s", "size_bytes": 65536, "direction": "one-way",
      "min": 190.0, "hardware": "200 Gb/sec (4X HDR)", "source": "measured on our nodes", "date": "2026-11-01"}
LAT = {"check": "osu_latency", "measurement": "latency", "unit": "us", "size_bytes": 8, "max": 2.5,
       "hardware": "200 Gb/sec (4X HDR)", "source": "measured on our nodes", "date": "2026-11-01"}
Table = dict[str, object]


def toml(*tables: Table, kind: str = "limit") -> str:
    return "".join(f"[[{kind}]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in t.items()) + "\n" for t in tables)


def found(tmp_path: Path, text: str, known: tuple[Known, ...] = ()) -> list[Finding]:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    return lint(read_entries(path), load_checks(), TODAY, known)


def entries() -> Iterator[Entry | SiteError]:
    for path in catalogue_files():
        yield from read_entries(path)


def test_what_ships_is_clean() -> None:
    assert lint(entries(), load_checks(), TODAY) == []


def test_names_of_measurements_are_those_of_the_samples() -> None:
    for path in sorted(SAMPLES.glob("*/*.json")):
        names = measures(path.parent.name)
        data = json.loads(path.read_text())
        if names is None or not isinstance(data, dict):
            continue
        for m in data.get("measurements", []):
            if isinstance(m["value"], float) and m.get("expected") is None:
                assert m.get("unit", "") in names.get(m["name"], ()), (path, m)


def test_sound_limits_are_left_alone(tmp_path: Path) -> None:
    assert found(tmp_path, toml(NCCL, IB, LAT)) == []


@pytest.mark.parametrize(("table", "change", "rule", "what"), [
    (NCCL, {"min": 800.0, "ranks": 16, "nodes": 2}, "ceiling", "8 ports of 400 Gb/s a node"),
    (NCCL, {"min": 3680.0}, "ceiling", "bits taken for bytes?"),
    (NCCL, {"min": 320.0, "hardware": "*A100*SXM*", "check": "nccl_allgather"}, "ceiling", "A100: 300 GB/s"),
    (NCCL, {"min": 30.0, "hardware": "NVIDIA L40S*"}, "", ""),
    (NCCL, {"min": 310.0, "hardware": "*A100*SXM*"}, "ceiling", "A100: 300 GB/s to other GPUs"),
    (NCCL, {"min": 193.0, "hardware": "*A100*PCIe*", "ranks": 2}, "", ""),
    (NCCL, {"min": 193.0, "hardware": "*A100*PCIe*", "ranks": 4}, "ceiling", "A100: 31.504 GB/s"),
    (NCCL, {"min": 480.0, "hardware": "*MI300X*"}, "ceiling", "MI300X: 448 GB/s"),
    (NCCL, {"min": 60.0, "hardware": "NVIDIA L40S*"}, "ceiling", "L40S: 31.5"),
    (NCCL, {"min": 110.0, "check": "nccl_alltoall", "ranks": 16, "nodes": 2}, "ceiling", "400 Gb/s a node"),
    (NCCL, {"unit": "Gb/s"}, "unit", "in GB/s, never in Gb/s"),
    (NCCL, {"measurement": "bandwith"}, "measurement", "measures no 'bandwith'"),
    (NCCL, {"check": "nccl_all_reduce"}, "check", "no check is named 'nccl_all_reduce'"),
    (NCCL, {"check": "peer_copy"}, "check", "no check is named 'peer_copy'"),
    (NCCL, {"size_bytes": None}, "read", "needs size_bytes"),
    (NCCL, {"source": None}, "read", "lacks source"),
    (NCCL, {"unit": None}, "read", "lacks unit"),
    (NCCL, {"source": "TODO"}, "source", "says nothing"),
    (NCCL, {"source": "???"}, "source", "says nothing"),
    (NCCL, {"date": "2026-12-24"}, "date", "in the future"),
    (NCCL, {"date": "30.11.2026"}, "date", "is not YYYY-MM-DD"),
    (NCCL, {"date": "2026-02-30"}, "date", "is not YYYY-MM-DD"),
    (NCCL, {"hardware": "*H200*", "min": 431.0}, "hardware", "GH200"),
    (NCCL, {"ranks": 1, "nodes": 2}, "ranks", "1 ranks cannot be on 2 nodes"),
    (NCCL, {"min": -1.0}, "read", "not below zero"),
    (IB, {"min": 210.0}, "ceiling", "a port of 200 Gb/s, one way"),
    (IB, {"min": 210.0, "direction": "both"}, "", ""),
    (IB, {"min": 410.0, "direction": "both"}, "ceiling", "both ways"),
    (IB, {"min": 1520.0}, "ceiling", "bits taken for bytes?"),
    (IB, {"min": 24.0}, "eighth", "bytes taken for bits?"),
    (IB, {"min": 1.0}, "low", "less than a fiftieth"),
    (IB, {"unit": "GB/s", "min": 23.0}, "unit", "never in GB/s"),
    (IB, {"hardware": "", "min": 900.0}, "ceiling", "the fastest port"),
    (LAT, {"max": 0.3}, "floor", "below what is possible"),
    (LAT, {"max": 100.0, "size_bytes": 4194304}, "floor", "below what is possible: 168 us"),
    (LAT, {"check": "osu_allreduce", "measurement": "avg_latency", "size_bytes": None}, "size", "none is given"),
    (LAT, {"check": "osu_barrier", "measurement": "avg_latency", "size_bytes": None, "max": 9.0}, "", ""),
    (LAT, {"check": "gpu_binding"}, "measurement", "but nothing that a limit could judge"),
    (NCCL, {"hardware": "", "min": 1900.0}, "ceiling", "900 GB/s to other GPUs"),
    (LAT, {"size_bytes": None}, "size", "depends on the message size"),
    (LAT, {"hardware": "NVIDIA Abacus"}, "hardware", "not checked"),
    (NCCL, {"hardware": "H100"}, "hardware", "no GPU is named 'H100', but NVIDIA H100 80GB HBM3"),
    (NCCL, {"hardware": "*H100*"}, "ceiling", "the pattern also means NVIDIA H100 PCIe, which gives at most"),
    (NCCL, {"size_bytes": 8}, "ceiling", "an operation takes 1 us and more"),
    (IB, {"size_bytes": 8, "min": 100.0}, "ceiling", "million messages a second"),
    (IB, {"min": 90.0}, "low", "less than half of the port"),
    (LAT, {"max": None, "min": 1.0}, "bound", "a time without max"),
])
def test_nonsense_is_found(tmp_path: Path, table: Table, change: Table, rule: str, what: str) -> None:
    changed = {k: v for k, v in {**table, **change}.items() if v is not None}
    findings = found(tmp_path, toml(LAT if table is not LAT else IB, changed))
    assert [f.rule for f in findings if f.rule == rule] == ([rule] if rule else [])
    assert rule or not findings
    for f in findings:
        assert f.where.startswith(f"{tmp_path / 'limits.toml'}:") and int(f.where.rpartition(":")[2]) > len(LAT)
    assert any(what in f.text for f in findings if f.rule == rule) or not rule


@pytest.mark.parametrize(("first", "second", "rule"), [
    ({}, {}, "twice"),
    ({}, {"source": "elsewhere"}, "twice"),
    ({}, {"min": 440.0}, "ambiguous"),
    ({}, {"min": 200.0}, "contradiction"),
    ({}, {"hardware": "NVIDIA H100 80GB HBM3", "min": 200.0}, "contradiction"),
    ({}, {"hardware": "NVIDIA H100 80GB HBM3", "min": 440.0}, ""),
    ({"hardware": "*H100 80GB HBM*"}, {"hardware": "*100 80GB HBM3", "min": 440.0}, "ambiguous"),
    ({"hardware": "NVIDIA [HB]200"}, {"hardware": "NVIDIA B[23]00*", "min": 440.0}, "ambiguous"),
    ({"ranks": None}, {"nodes": None, "min": 440.0}, "ambiguous"),
    ({}, {"min": None, "max": 300.0}, "contradiction"),
    ({}, {"hardware": "*A100*SXM*", "min": 200.0}, ""),
    ({}, {"ranks": 16, "nodes": 2, "min": 200.0}, ""),
    ({}, {"size_bytes": 1 << 20, "min": 20.0}, ""),
    ({"transport": "IB"}, {"transport": "RoCE", "min": 200.0}, ""),
    ({"transport": "IB"}, {"transport": "ib", "min": 440.0}, "ambiguous"),
])
def test_limits_that_contradict_each_other(tmp_path: Path, first: Table, second: Table, rule: str) -> None:
    base = {**NCCL, "check": "nccl_allreduce"}
    tables = [{k: v for k, v in {**base, **change}.items() if v is not None} for change in (first, second)]
    if tables[1].get("max"):
        path = tmp_path / "limits.toml"
        items = [replace(e, record=replace(e.record, min=None, max=300.0)) if n else e
                 for n, e in enumerate(read_entries(_write(path, toml(NCCL, NCCL))))
                 if isinstance(e, Entry) and isinstance(e.record, Limit)]
        findings = lint(items, load_checks(), TODAY)
    else:
        findings = found(tmp_path, toml(*tables))
    rules = {f.rule for f in findings}
    assert rule in rules if rule else not rules
    assert all(f"{tmp_path / 'limits.toml'}:1 says" in f.text for f in findings)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(("least", "rule", "level"), [
    (470.0, "", ""), (490.0, "unreachable", "error"), (150.0, "low", "remark"), (60.0, "eighth", "error")])
def test_limits_are_compared_with_what_was_measured(tmp_path: Path, least: float, rule: str, level: str) -> None:
    findings = found(tmp_path, toml({**NCCL, "min": least}), load_known())
    assert [(f.rule, f.level) for f in findings] == ([(rule, level)] if rule else [])


def test_figures_pass_the_same_lint(tmp_path: Path) -> None:
    figure = {k: v for k, v in NCCL.items() if k != "min"}
    assert found(tmp_path, toml({**figure, "value": 479.0}, kind="known")) == []
    assert [f.rule for f in found(tmp_path, toml({**figure, "value": 900.0}, kind="known"))] == ["ceiling"]
    assert [f.rule for f in found(tmp_path, toml({**figure, "value": 0}, kind="known"))] == ["read"]
    assert [f.rule for f in found(tmp_path, toml({**figure, "value": 9, "kind": "hearsay"}, kind="known"))] == ["read"]


def test_simulated_limits_are_no_matter_of_physics(tmp_path: Path) -> None:
    assert found(tmp_path, toml({**IB, "min": 1.0, "simulated": True})) == []


def test_every_measured_figure_is_below_the_ceiling() -> None:
    for k in load_known():
        top = ceilings.ceiling(k.check, k.measurement, k.unit, k.hardware, ranks=k.ranks, nodes=k.nodes,
                               both=k.direction.value == "both")
        assert top is None or k.value <= top.value, k
    assert {k.check for k in load_known()} >= set(COMING)


@pytest.mark.parametrize(("a", "b", "same"), [
    ("", "*H100*", True), ("*H100*", "NVIDIA H100 NVL", True), ("*H100*", "*A100*", False),
    ("100 Gb/sec*", "100 Gb/sec (4X EDR)", True), ("100 Gb/sec*", "?00 Gb/sec (4X *DR)", True),
    ("100 Gb/sec*", "200 Gb/sec*", False), ("NVIDIA GB[23]00*", "NVIDIA GB300", True),
    ("*Abacus*", "Abacus 9", True), ("*Abacus 8*", "Abacus 9", False),
])
def test_overlap(a: str, b: str, same: bool) -> None:
    assert overlap(a, b) is same and overlap(b, a) is same


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "lint"]) == 0
    assert " 0 errors, 0 remarks" in capsys.readouterr().out
    good, bad, site = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "site.toml"
    good.write_text(toml(NCCL, IB))
    bad.write_text(toml(NCCL, {**IB, "min": 1520.0}))
    assert run(["limits", "lint", str(good)]) == 0
    capsys.readouterr()
    assert run(["limits", "lint", str(bad)]) == 1
    assert capsys.readouterr().out.startswith(f"{bad}:{len(NCCL) + 3}: error: ib_write_bw bandwidth at 64 KiB on 200")
    assert run(["limits", "lint", str(bad), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["errors"], answer["tables"], answer["findings"][0]["line"]) == (1, 2, len(NCCL) + 3)
    site.write_text("[run]\ndir = \"/shared\"\n\n" + toml({**IB, "min": 1520.0}))
    assert run(["limits", "lint", str(site)]) == 1
    assert f"{site}:4: error" in capsys.readouterr().out
    assert run(["--site", str(site), "limits", "lint"]) == 1
    assert f"{site}:4: error" in capsys.readouterr().out
    site.write_text("[run]\ndir = \"/shared\"\n\n" + toml({k: v for k, v in IB.items() if k != "source"}))
    assert run(["limits", "lint", str(site)]) == 0          # as a run takes it: the site's file is the source
    assert "remark: ib_write_bw bandwidth at 64 KiB on 200 Gb/sec (4X HDR): no source" in capsys.readouterr().out
    bad.write_text("[[limit]\n")
    assert run(["limits", "lint", str(bad)]) == 2
    assert run(["limits", "lint", str(tmp_path / "none.toml")]) == 2


def test_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "show", "h100", "nccl_allreduce", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    curve = next(c for c in answer["expect"] if c["nodes"] == 1 and c["ranks"] == 8)
    points = {p["size_bytes"]: p for p in curve["points"]}
    assert points[134217728]["measured"] == [400.6] and points[8589934592]["measured"] == [478.9, 479.7]
    assert points[8589934592]["min"] == 460 and curve["ceiling"] == 787.5
    assert all("A100" not in c["hardware"] for c in answer["expect"])
    assert run(["limits", "show", "h200", "nccl_allreduce"]) == 0
    text = capsys.readouterr().out
    assert "480" in text and "GH200" not in text and "ND_H200_v5_results.md" in text
    assert run(["limits", "show", "ndr", "ib_write_bw"]) == 0
    assert "399.6" in capsys.readouterr().out
    assert run(["limits", "show", "a100", "host_device_copy"]) == 0
    assert "26.3" in capsys.readouterr().out


@pytest.mark.parametrize(("hardware", "check", "words", "not_words"), [
    ("l40s", "nccl_allreduce", ["nothing is known of nccl_allreduce", "NVIDIA L40S: 31.504 GB/s at most"], []),
    ("xdr", "ib_write_bw", ["nothing is known", "800 Gb/sec (4X XDR): 800 Gb/s at most"], ["EFA"]),
    ("efa", "osu_latency", ["18.27", "EFA"], ["InfiniBand"]),
    ("roce 400", "ib_write_bw", ["384"], ["4X NDR"]),
    ("ib", "ib_write_bw", ["4X EDR", "4X NDR"], ["400 Gb/sec*"]),
    ("pcie 5", "host_device_copy", ["H100", "MI300X"], ["A100", "V100"]),
    ("pcie 3", "host_device_copy", ["V100"], ["A100"]),
    ("gb200", "nccl_allreduce", ["681.2", "72 ranks"], ["H100"]),
])
def test_what_to_expect_as_people_ask(hardware: str, check: str, words: list[str], not_words: list[str],
                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "show", hardware, check]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in words), text
    assert not any(word in text for word in not_words), text


def test_hardware_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["limits", "show", "h9000", "nccl_allreduce"]) == 2
    assert "no limit for nccl_allreduce on 'h9000'" in capsys.readouterr().err
    assert run(["limits", "show", "l40s", "nccl_allreduce", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["expect"], answer["ceilings"]["NVIDIA L40S"]["most"]) == ([], 31.504)
