"""docs/alarms.md names every channel, key, threshold, kind of problem, metric, group of rules and field of the hook."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from hpcadmin.cli._sweep_alarms import alarms, prometheus
from hpcadmin.sweep.alarms.channels.webhook import plain
from hpcadmin.sweep.alarms.config import Common, Thresholds, kinds
from hpcadmin.sweep.alarms.metrics import KINDS, render
from hpcadmin.sweep.alarms.model import Facts, Health, Message, State
from hpcadmin.sweep.alarms.prometheus_files import RULES, files
from hpcadmin.sweep.model import Problem

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "alarms.md").read_text()


def column(head: str, number: int = 0) -> list[str]:
    part = re.search(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert part, head
    return [word for row in part[1].splitlines() for word in re.findall(r"`([^`]+)`", row.split("|")[number + 1])]


def test_every_channel_with_every_key() -> None:
    assert sorted(column("kind")) == sorted(kinds())
    (table,) = re.findall(r"^\| kind \| keys \|\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    shared = {"ca_file", "plain_http"}          # below the table, of all hooks
    for kind, channel in kinds().items():
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{kind}`")]
        keys = {item.name for item in fields(channel.settings)}
        secret = {"url"} if "url_file" in keys and kind in ("slack", "feishu", "dingtalk") else set()
        missing = {key for key in keys - shared - secret if f"`{key}`" not in row}
        assert not missing, (kind, missing)
    assert all(f"`{key}" in TEXT for key in shared)


def test_every_shared_key_and_threshold_with_its_default() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)) >= {item.name for item in fields(Common)}
    (table,) = re.findall(r"^\| key \| default \| measured by \|\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    found: dict[str, float] = {}
    for line in table.splitlines()[2:]:
        names = re.findall(r"`([^`]+)`", line.split("|")[1])
        found.update(zip(names, map(float, line.split("|")[2].split(",")), strict=True))
    assert found == {item.name: item.default for item in fields(Thresholds)}


def test_every_kind_of_problem() -> None:
    told = {key.partition("/")[0] for key in column("key", 0)} | {
        word.partition("/")[0] for word in re.findall(r"`([^`]+)`", TEXT.partition("## What\n")[2].partition("##")[0])}
    assert set(KINDS) <= told, set(KINDS) - told


def test_every_metric_with_its_labels() -> None:
    bad = {"node/n1": Problem("node/n1", "drained x", "t", "n1", ("c",), 5.0)}
    seen = Facts("r", 5.0, {}, {}, {"x": 1.0}, {"x": ""})
    text = render(State(9.0, "c", bad, (), (), 1.0, 2.0, True, 0, {}, seen, (Health("m", "mail", 3.0),)))
    part = TEXT.partition("## Prometheus")[2].partition("### Rules")[0]
    for name, labels in set(re.findall(r"^(hpcadmin_\w+)(?:\{(.*)\})? ", text, re.MULTILINE)):
        rows = [line for line in part.splitlines() if f"`{name}`" in line]
        assert len(rows) == 1, name
        assert set(re.findall(r"(\w+)=", labels)) == set(re.findall(r"`(\w+)`", rows[0].split("|")[2])), name


def test_every_group_of_rules_option_and_field() -> None:
    assert set(column("group")) == set(re.findall(r"- name: (\S+)", files()[RULES[0]] + files()[RULES[1]]))
    for command in (alarms, prometheus):
        for param in command.params:
            assert param.opts[0] in TEXT, param.name
    for name in plain(Message("i", "test", 1.0)):
        assert f"`{name}`" in TEXT.partition("### The web hook")[2].partition("\n## ")[0], name
