"""The published schemas of comparisons and trends are those of the records; what the commands print keeps to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made_runs import inventory, names, node_results, pair_results, write_run

from hpcadmin import cli, history_schema
from hpcadmin.model import Node
from hpcadmin.rundata import SkippedNode

ROOT = Path(__file__).resolve().parent.parent
N8 = names(8)
OLD, NEW = "20260730-101500-network", "20260830-101500-network"


@pytest.mark.parametrize("name", ["comparison", "trend"])
def test_the_published_schema_is_that_of_the_records(name: str) -> None:
    assert (ROOT / f"docs/{name}.schema.json").read_text() == history_schema.text(name), (
        f"python -m hpcadmin.history_schema {name} > docs/{name}.schema.json")


def made(runs: Path, name: str, slow: str = "", factor: float = 0.2, **more: Any) -> Path:
    def value(a: str, b: str) -> float:
        noise = 1 + 0.001 * ((sum(map(ord, a + b)) * 17 + int(name[:8]) * 31) % 7)
        return 870.0 * (factor if slow in (a, b) else 1.0) * noise
    results = [*node_results(N8), *pair_results(value, N8)]
    return write_run(runs / name, results, N8, started=f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:15:00+02:00", **more)


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    status = cli.run([*args, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["exit_status"] == status
    return found


def keeps(found: dict[str, Any], make: Callable[..., dict[str, Any]]) -> None:
    for strict in (True, False):
        jsonschema.Draft202012Validator.check_schema(make(strict=strict))
        jsonschema.Draft202012Validator(make(strict=strict)).validate(found)


def with_serial(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return (replace(nodes[0], serial="another"), *nodes[1:])


def test_comparisons_are_as_the_schema_says(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, OLD)
    inv = inventory(N8)
    made(runs, NEW, "node03", inv=replace(inv, nodes=with_serial(inv.nodes)),
         plan={"skipped": (SkippedNode("node09", "drained"),)}, asked=(*N8, "node09"), slurm_version="25.11.0")
    found = told(capsys, "report", "--compare", OLD)
    keeps(found, history_schema.comparison)
    assert (found["exit_status"], found["values"]["changes"][0]["worse"]) == (1, True)
    assert found["worse"] and found["appeared"] and found["around"]
    keeps(told(capsys, "report", "--run", OLD, "--compare", NEW), history_schema.comparison)
    (runs / NEW / "plan.json").write_text("{")
    found = told(capsys, "report", "--compare", OLD)
    keeps(found, history_schema.comparison)
    assert found["problems"]
    for change in ({"schema": 2}, {"old": None}, {"values": {}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found | change, history_schema.comparison())


def test_trends_are_as_the_schema_says(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(1, 9):
        made(runs, f"202607{day:02d}-101500-network", "node03", factor=1 - 0.02 * day)
    for more in ([], ["--node", "node02"]):
        found = told(capsys, "runs", "trend", "mpi_pingpong", *more)
        keeps(found, history_schema.trend)
        assert bool(found["values"]) is bool(more)
    assert told(capsys, "runs", "trend", "mpi_pingpong")["drifts"]
    (runs / "20260703-101500-network/plan.json").write_text("{")
    found = told(capsys, "runs", "trend", "mpi_pingpong")
    keeps(found, history_schema.trend)
    assert found["problems"]
    for change in ({"schema": 2}, {"kind": "other"}, {"values": [1]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found | change, history_schema.trend())
