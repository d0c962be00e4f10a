"""Texts of every shape written once more to be given away: all of them, safe, and still readable."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import sim_node

from hpcadmin.errors import UsageError
from hpcadmin.giveaway import give_away, site_key
from hpcadmin.reading import read_paths

KEY = bytes(32)
TOPO = ["\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV4\t0-7", "GPU1\tNV4\t X \t0-7"]
RULE = "-" * 15


def given_away(tmp_path: Path, *paths: Path) -> dict[str, str]:
    into = tmp_path / "away"
    count, left = give_away([str(path) for path in paths], into, KEY)
    found = {str(path.relative_to(into)): path.read_text() for path in into.rglob("*") if path.is_file()}
    assert (len(found), left) == (count, [])
    return found


@pytest.mark.parametrize("lines", [
    [f"lion{node:02d}: {line}" for line in TOPO for node in (1, 2)],
    [f"lion[01-02]: {line}" for line in TOPO],
    [RULE, "lion[01-02] (2)", RULE, *TOPO],
    [RULE, "lion01", RULE, *TOPO, RULE, "lion02", RULE, *TOPO],
])
def test_texts_of_many_nodes(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "all.txt").write_text("\n".join(lines))
    found = given_away(tmp_path, tmp_path / "all.txt")
    assert list(found) == ["all.txt"]
    assert "lion" not in found["all.txt"]
    before, after = (read_paths([str(tmp_path / name)])[0] for name in ("all.txt", "away"))
    assert [node.gpu_links for node in after.nodes] == [node.gpu_links for node in before.nodes]
    assert len(after.nodes) == 2


@pytest.mark.deep
def test_an_archive_becomes_a_folder(tmp_path: Path) -> None:
    for name in ("lion01.txt", "lion02.txt"):
        (tmp_path / name).write_text(sim_node.capture("4xA100-pcie"))
    (tmp_path / "topo.txt").write_text("\n".join(TOPO))
    for name, members in (("many.tar.gz", ["lion01.txt", "lion02.txt"]), ("lion03.tar.gz", ["topo.txt"])):
        with tarfile.open(tmp_path / name, "w:gz") as packed:
            for member in members:
                packed.add(tmp_path / member, member)
    found = given_away(tmp_path, tmp_path / "many.tar.gz", tmp_path / "lion03.tar.gz")
    assert len(found) == 3
    assert not any("lion" in name + text for name, text in found.items())
    after = read_paths([str(tmp_path / "away")])[0]
    assert sorted(len(node.gpus) for node in after.nodes) == [2, 4, 4]


def test_paths_of_all_kinds_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for place in ("a/lion01.txt", "a/lion02.txt", "b/lion01.txt"):
        (tmp_path / place).write_text("\n".join(TOPO))
    (tmp_path / "link").symlink_to("b/lion01.txt")
    found = given_away(tmp_path, tmp_path / "a", tmp_path / "link")
    assert len(found) == 3
    assert not any("lion" in name for name in found)


def test_what_is_no_text_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "n1.txt").write_text("x")
    (tmp_path / "a" / "n2.txt").symlink_to("/etc/passwd")
    (tmp_path / "a" / "n3" / "sys" / "devices").mkdir(parents=True)
    count, left = give_away([str(tmp_path / "a")], tmp_path / "away", KEY)
    assert count == 1
    assert [Path(each.partition(":")[0]).name for each in left] == ["n2.txt", "n3"]
    with pytest.raises(UsageError, match="is not empty"):
        give_away([str(tmp_path / "a")], tmp_path / "away", KEY)


def test_the_key_stays(tmp_path: Path) -> None:
    key = site_key(tmp_path)
    assert site_key(tmp_path) == key
    assert (tmp_path / "anonymise.key").stat().st_mode & 0o777 == 0o600
