"""The ground: records, files, hostlists, text, the command line's root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcadmin import files, hosts, records, rundata, text
from hpcadmin.check import Limit, Measurement, Scope, Status, Subject, Verdict
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.model import Cpu, Gpu, Inventory, Node

ROOT = Path(__file__).resolve().parent.parent
words = st.text(st.characters(codec="utf-8"), max_size=30)
values = st.one_of(st.integers(-10**9, 10**9), st.floats(allow_nan=False, allow_infinity=False), words)
measurements = st.builds(
    Measurement, name=words, value=values, unit=words, size_bytes=st.none() | st.integers(0),
    subject=st.builds(Subject, nodes=st.tuples(words, words), device=words),
    expected=st.none() | words | st.integers(), warnings=st.tuples(words))


@given(measurements)
def test_records_survive_json(value: Measurement) -> None:
    assert records.loads(Measurement, records.dumps(value), where="x") == value


def test_inventory_survives_json() -> None:
    node = Node("n1", cpu=Cpu(sockets=2), gpus=(Gpu("nvidia", index=0, power_limit_w=700.0),), tools={"osu_bw": ""})
    inventory = Inventory(nodes=(node,))
    assert records.loads(Inventory, records.dumps(inventory), where="x") == inventory


@pytest.mark.parametrize(("plain", "word"), [
    ('{"check": "a"}', "measurement"), ('{"check": 1, "measurement": "b"}', "check"), ("[]", "table"), ("{", "JSON"),
    ('{"check": "a", "measurement": "b", "min": "7"}', "min"), ('{"check": "a", "measurement": "b", "zzz": 1}', "zzz"),
    ('{"check": "a", "measurement": "b", "size_bytes": true}', "size_bytes"),
    ("[" * 100_000, "JSON"),
])
def test_what_does_not_fit_is_refused_with_its_place(plain: str, word: str) -> None:
    with pytest.raises(StoreError, match=word) as info:
        records.loads(Limit, plain, where="limits.json:3")
    assert "limits.json:3" in str(info.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_never_stored(bad: float) -> None:
    with pytest.raises(StoreError):
        records.dumps(Measurement("x", bad))


@pytest.mark.parametrize(("statuses", "expected"), [
    ([], 3), ([Status.PASS], 0), ([Status.PASS, Status.WARN], 0), ([Status.PASS, Status.UNJUDGED], 3),
    ([Status.FAIL, Status.ERROR, Status.PASS], 1), ([Status.NOT_RUN, Status.PASS], 3), ([Status.ERROR], 3),
    ([Status.NOT_APPLICABLE], 3), ([Status.NOT_NEEDED, Status.PASS], 0),
])
def test_exit_status(statuses: list[Status], expected: int) -> None:
    assert rundata.exit_status(Verdict("c", Subject(), s) for s in statuses) == expected


def test_an_unfinished_run_never_exits_0() -> None:
    assert rundata.exit_status([Verdict("c", Subject(), Status.PASS)], finished=False) == 3


def test_hostlists() -> None:
    assert hosts.expand("node[01-03],login1") == ["login1", "node01", "node02", "node03"]
    assert hosts.fold(["node02", "node01", "x"]) == "node[01-02],x"
    assert hosts.fold([]) == ""


@pytest.mark.parametrize("bad", [
    "", " ", "node[1-", "node[3-1]", "a b", "$(id)", "a;b", "-w", "node[1-99999999999]", "@all", "x" * 300,
])
def test_malformed_hostlists_are_one_line(bad: str) -> None:
    with pytest.raises(UsageError) as info:
        hosts.expand(bad)
    assert "\n" not in str(info.value)


@given(st.text())
def test_printable_leaves_no_control(value: str) -> None:
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u200b\u2028" for c in text.printable(value))


def test_write_atomic_leaves_the_old_file_when_the_disk_is_full(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(StoreError, match="cannot be written"):
        files.write_atomic(Path("/dev/full") / "x", "new")
    assert target.read_text() == "old"


def test_reading_refuses_links_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "absent"):
        with pytest.raises(StoreError, match=name):
            files.read_bounded(tmp_path / name)


def test_a_damaged_run_folder_says_what_is_damaged(tmp_path: Path) -> None:
    manifest = rundata.Manifest("r1", "network", ("n1",), "running", "2026-01-01T00:00:00+00:00")
    rundata.write_record(tmp_path, "manifest.json", manifest)
    rundata.append_lines(tmp_path, "verdicts.jsonl", [Verdict("c", Subject(("n1",)), Status.PASS)])
    with (tmp_path / "verdicts.jsonl").open("a") as stream:
        stream.write('{"check": "c", "subj')
    run = rundata.read_run(tmp_path)
    assert len(run.verdicts) == 1
    assert any("verdicts.jsonl:2" in p for p in run.problems)
    assert any("plan.json is missing" in p for p in run.problems)
    assert run.plan is None


def test_scope_values_are_stable() -> None:
    assert [s.value for s in Scope] == ["node", "gpu", "port", "pair", "group", "cluster"]


def cli(*args: str, **kwargs: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "hpcadmin", *args], capture_output=True, text=True, cwd=ROOT,
                          timeout=60, check=False, **kwargs)


@pytest.mark.parametrize(("args", "word"), [
    (["frobnicate"], "No such command"), (["--frob"], "No such option"),
    (["--site", "/nonexistent.toml", "validate", "--suite", "smoke"], "/nonexistent.toml"),
])
def test_usage_errors_are_one_line_and_exit_2(args: list[str], word: str) -> None:
    done = cli(*args)
    assert done.returncode == 2
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_version() -> None:
    assert cli("--version").stdout.startswith("hpcadmin, version ")
