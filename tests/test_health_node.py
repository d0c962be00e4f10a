"""hpcadmin-health: masks, configuration, trust, state, options, the line for Reason."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcadmin.health.node import config, load, main, masks, trust, watch, window
from hpcadmin.health.node.api import (
    BAD,
    GOOD,
    MAX_REASON,
    UNKNOWN,
    BadConfig,
    Check,
    Param,
    bad,
    fault,
    good,
    plain,
    unknown,
)
from hpcadmin.health.node.door import Door, read_mounts
from tests.health_machine import Machine


@pytest.mark.parametrize(
    ("mask", "text", "expected"),
    [
        ("gpu*", "gpu001", True),
        ("gpu*", "cpu001", False),
        ("gpu001", "gpu001", True),
        ("gpu001", "gpu0012", False),
        ("/^gpu[0-9]+$/", "gpu17", True),
        ("/^gpu[0-9]+$/", "gpu17x", False),
        ("!gpu*", "gpu001", False),
        ("!gpu*", "cpu1", True),
        ("{gpu[001-100],io1}", "gpu042", True),
        ("{gpu[001-100],io1}", "io1", True),
        ("{gpu[001-100]}", "gpu42", False),
        ("!{gpu[001-100]}", "gpu042", False),
        ("", "", True),
        ("", "x", False),
        ("n?", "n1", True),
        ("*", "anything", True),
    ],
)
def test_masks(mask: str, text: str, expected: bool) -> None:
    assert masks.matches(mask, text) is expected


@pytest.mark.parametrize(
    ("mask", "node", "expected"),
    [
        ("gpu[001-100,105]", "gpu105", True),
        ("gpu[001-100,105]", "gpu104", False),
        ("gpu[1-100]", "gpu7", True),
        ("gpu[1-100]", "gpu007", False),
        ("r[1-2]n[01-16]", "r2n09", True),
        ("r[1-2]n[01-16]", "r3n09", False),
        ("n[8-12]", "n10", True),
        ("n[08-12]", "n8", False),
        ("n[0-3]", "n0", True),
        ("n[1-3]-ib", "n2-ib", True),
        ("gpu[abc]1", "gpua1", True),
        ("!gpu[001-100]", "gpu050", False),
        ("n[1-3", "n[1-3", False),
    ],
)
def test_node_masks_know_ranges(mask: str, node: str, expected: bool) -> None:
    assert masks.matches_node(mask, node) is expected


def test_a_list_of_masks_can_only_exclude() -> None:
    assert masks.any_matches(["gpu*", "!gpu013"], "gpu001", node=True)
    assert not masks.any_matches(["gpu*", "!gpu013"], "gpu013", node=True)
    assert masks.any_matches(["!gpu013"], "cpu1", node=True)


@pytest.mark.parametrize(
    "text", ["a\nb", "say \"hi\" 'now' `ls`", "$(reboot); rm -rf /", "ü ✓ \x1b[31m", "x" * 5000, "a\tb\0c"]
)
def test_text_is_safe_in_a_reason(text: str) -> None:
    out = plain(text)
    assert len(out) <= MAX_REASON
    assert all(" " <= char <= "~" and char not in "\"'`\\$;|&<>" for char in out)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {"check": {}},
        {"check": [1]},
        {"check": [{"use": 3}]},
        {"chek": []},
        {"schema": 99},
        {"check": [{"use": "a", "id": "a b"}]},
        {"check": [{"use": "a", "when": ["boot"]}]},
        {"check": [{"use": "a", "timeout_s": 0}]},
        {"check": [{"use": "a", "nodes": "n1"}]},
        {"check": [{"use": "a", "timeout_s": True}]},
        {"check": [{"use": "a"}, {"use": "a"}]},
        {"check": [{"use": "a", "nodes": ["/(/"]}]},
        {"checks": 3},
        {"tools": "x"},
        {"check": [{"use": "a"}] * 2001},
    ],
)
def test_a_wrong_configuration_is_refused(tree: object) -> None:
    with pytest.raises(BadConfig):
        config.parse(tree)


def test_entries_are_chosen_by_node_and_call() -> None:
    found = config.parse(
        {
            "check": [
                {"use": "swap"},
                {"use": "load", "nodes": ["gpu[1-4]"], "when": ["prolog", "health"]},
                {"use": "cpu", "nodes": ["!gpu*"]},
            ]
        }
    ).entries
    assert [entry.key for entry in found if entry.here("gpu3", "health")] == ["swap", "load"]
    assert [entry.key for entry in found if entry.here("gpu3", "prolog")] == ["load"]
    assert [entry.key for entry in found if entry.here("io1", "health")] == ["swap", "cpu"]


def test_parameters_are_of_their_kinds() -> None:
    check = Check(
        "x",
        "x",
        lambda door, p: [],
        params=(
            Param("n", "number", 3, ""),
            Param("t", "text", "a", "", choices=("a", "b")),
            Param("f", "flag", False, ""),
            Param("l", "texts", [], ""),
            Param("m", "masks", [], ""),
            Param("ns", "numbers", [], ""),
        ),
    )
    assert check.take({"n": 4.5, "t": "b", "l": ["x"]}).n == 4.5
    for wrong in (
        {"n": "4"},
        {"n": True},
        {"n": float("nan")},
        {"t": "c"},
        {"f": 1},
        {"l": "x"},
        {"l": [1]},
        {"ns": ["1"]},
        {"y": 1},
        {"t": "a\0"},
    ):
        with pytest.raises(BadConfig):
            check.take(wrong)


def test_every_check_is_found_and_says_what_it_takes() -> None:
    names = load.names()
    assert len(names) > 35
    for name in names:
        check = load.named(name)
        assert check.title
        assert len({param.name for param in check.params}) == len(check.params)
        assert not {param.name for param in check.params} & set(config.OWN_KEYS), name
        assert check.timeout_s < watch.DEADLINE_S


@pytest.mark.parametrize("name", ["", "../x", "Swap", "a b", "_hidden", "x" * 61, "nosuch", "os"])
def test_a_name_that_is_no_check_is_refused(name: str) -> None:
    with pytest.raises(BadConfig):
        load.named(name)


# trust


def test_files_that_others_may_write_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text("{}")
    assert trust.read(str(path)) == b"{}"
    for mode in (0o666, 0o664, 0o646):
        path.chmod(mode)
        with pytest.raises(BadConfig, match="written by others"):
            trust.read(str(path))
    path.chmod(0o644)
    tmp_path.chmod(0o777)
    with pytest.raises(BadConfig, match="written by others"):
        trust.read(str(path))
    tmp_path.chmod(0o755)


def test_links_lead_to_the_place_that_counts(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o777)
    open_folder.chmod(0o777)
    (open_folder / "real.json").write_text("{}")
    link = tmp_path / "health.json"
    link.symlink_to(open_folder / "real.json")
    with pytest.raises(BadConfig, match="open can be written by others"):
        trust.read(str(link))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_files_of_another_user_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text("{}")
    os.chown(path, 1234, 0)
    with pytest.raises(BadConfig, match="belongs to user 1234"):
        trust.read(str(path))
    os.chown(path, 0, 0)
    os.chown(tmp_path, 1234, 0)
    with pytest.raises(BadConfig, match="belongs to user 1234"):
        trust.read(str(path))


@pytest.mark.parametrize("make", ["fifo", "folder", "absent", "large"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    elif make == "large":
        with path.open("wb") as file:
            file.truncate(trust.MAX_FILE + 1)
    with pytest.raises(BadConfig):
        trust.read(str(path))


def test_a_site_check_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from hpcadmin.health.node.api import *\n"
        "CHECK = Check('own', 'Own', lambda door, p: [bad('it is %s' % p.a)],"
        " params=(Param('a', 'text', 'b', ''),))\n"
    )
    assert load.named("own", str(tmp_path)).title == "Own"
    (tmp_path / "own.py").chmod(0o666)
    with pytest.raises(BadConfig, match="written by others"):
        load.named("own", str(tmp_path))
    (tmp_path / "bad.py").write_text("1/0\n")
    with pytest.raises(BadConfig, match="ZeroDivisionError"):
        load.named("bad", str(tmp_path))
    (tmp_path / "other.py").write_text("from hpcadmin.health.node.api import *\nCHECK = 3\n")
    with pytest.raises(BadConfig, match="does not hold CHECK"):
        load.named("other", str(tmp_path))


# results


def test_the_worst_counts_and_reasons_are_joined() -> None:
    assert watch.judged([]) == (GOOD, "", [])
    status, reason, facts = watch.judged([good(a=1), unknown("u"), bad("b1"), bad("b2")])
    assert (status, reason) == (BAD, "b1, b2")
    assert facts == [
        {"a": 1, "status": GOOD},
        {"status": UNKNOWN, "reason": "u"},
        {"status": BAD, "reason": "b1"},
        {"status": BAD, "reason": "b2"},
    ]


def test_only_a_fault_of_the_own_hardware_is_one() -> None:
    assert fault("x").own
    assert not bad("x").own


def test_the_line_is_bounded_and_tells_how_many_more() -> None:
    results = [watch.Result(f"check:{n}", BAD, "something that is wrong here", []) for n in range(40)]
    line = main.summary(BAD, results)
    assert len(line) <= MAX_REASON
    assert line.startswith("hpcadmin: check:0: something")
    assert line.endswith("more)")
    assert main.summary(GOOD, [watch.Result("a", GOOD, "", [])]) == "good: 1 check"


@pytest.mark.parametrize(
    "args",
    [
        ["--as", "boot"],
        ["--as", "health"],
        ["--config"],
        ["--frob"],
        ["--drain", "--as", "prolog"],
        ["--deadline", "x"],
        ["--deadline", "0"],
        ["--drain", "--root", "/x"],
    ],
)
def test_wrong_usage_is_2_and_0_where_slurm_would_drain(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(args) == (0 if "--as" in args else 2)
    assert capfd.readouterr().err.startswith("hpcadmin-health: ")


# counters within a time


def door_with(kept: dict[str, object], now: float, boot: str = "b") -> Door:
    door = Door("/nonexistent", last=kept)
    door.now = lambda: now  # type: ignore[method-assign]
    door.boot_id = lambda: boot  # type: ignore[method-assign]
    return door


def grow(kept: dict[str, object], now: float, value: int, boot: str = "b") -> dict[str, int] | None:
    door = door_with(kept, now, boot)
    found = window.grown(door, "k", {"x": value}, 3600)
    kept.update(json.loads(json.dumps(door.kept)))
    return found


def test_growth_is_within_the_window() -> None:
    kept: dict[str, object] = {}
    assert grow(kept, 0, 100) is None
    assert grow(kept, 60, 130) == {"x": 30}
    assert grow(kept, 3000, 150) == {"x": 50}
    assert grow(kept, 3600, 150) == {"x": 50}
    assert grow(kept, 6700, 150) == {"x": 0}  # the errors were before the window
    assert grow(kept, 6710, 5) == {"x": 5}  # reset
    assert grow(kept, 6720, 5, boot="c") is None  # rebooted


def test_samples_stay_few() -> None:
    kept: dict[str, object] = {}
    for minute in range(2000):
        grow(kept, minute * 60, minute)
    assert len(kept[" k"]["samples"]) <= window.SAMPLES  # type: ignore[index]
    assert 55 <= grow(kept, 2000 * 60, 2000)["x"] <= 70  # type: ignore[index]


@pytest.mark.parametrize("junk", [3, [], {"boot": "b"}, {"boot": "b", "samples": [1, [2], ["a", {}], [1, {"x": "y"}]]}])
def test_junk_that_was_kept_is_a_first_look(junk: object) -> None:
    assert window.grown(door_with({" k": junk}, 10), "k", {"x": 1}, 60) is None


# the door


def test_mounts_with_blanks() -> None:
    found = read_mounts("srv:/a\\040b /mnt/x\\011y nfs rw,hard 0 0\nshort\n")
    assert [(one.source, one.path, one.options) for one in found] == [("srv:/a b", "/mnt/x\ty", ["rw", "hard"])]


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 64, 2), (2, 128, 256)), ((1, 4, 1), (1, 4, 4)), ((4, 2, 2), (4, 8, 16))]
)
def test_cpus(tmp_path: Path, shape: tuple[int, int, int], expected: tuple[int, int, int]) -> None:
    Machine(tmp_path).cpus(*shape)
    found = Door(str(tmp_path)).cpus()
    assert (found.sockets, found.cores, found.threads, found.offline) == (*expected, [])


def test_processes_with_odd_names(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, "a) S (b", "prog --x", user_s=12.5, pages=512, start_s=99)
    one = Door(str(tmp_path)).processes()[0]
    assert (one.pid, one.name, one.state, one.parent, one.cpu_s, one.start_s, one.line()) == (
        7,
        "a) S (b",
        "S",
        1,
        12.5,
        99.0,
        "prog --x",
    )
    assert one.resident_kib == 512 * os.sysconf("SC_PAGE_SIZE") // 1024
