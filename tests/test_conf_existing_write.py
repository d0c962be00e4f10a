"""Files that exist go back to the byte, and a change leaves alone every line that it is not about."""

from __future__ import annotations

from dataclasses import replace

import conf_models as m
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from hpcadmin.conf.existing.lines import scan
from hpcadmin.conf.existing.parts import SourceFile, Statement
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.existing.write import AddAfter, Change, Remove, SetKey, SetValue, edit, quoted, write
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.errors import UsageError


def read(text: str, name: str = "slurm.conf") -> SourceFile:
    return scan(text, name, name)[0]


def at(file: SourceFile, line: int) -> Statement:
    return next(s for s in file.statements if s.place.line == line)


def change(text: str, *changes: Change) -> str:
    return write(edit(read(text), changes))


def set_at(text: str, line: int, key: str, value: str) -> str:
    return change(text, SetValue(at(read(text), line), key, value))


@pytest.mark.parametrize("text", ["", "\n", "a", "\ufeffA=b\r\n", "A=b\\\n", "A=\0\n\n\n", "\udcff\udc80=1",
                                  "A=b # c\n"])
def test_round_trip(text: str) -> None:
    assert write(read(text)) == text


@given(st.text(st.sampled_from("Aa=b #\\\"\n\r\t\0\ufeff\udcff[],-1+"), max_size=200))
@settings(max_examples=300)
def test_round_trip_of_anything(text: str) -> None:
    assert write(read(text)) == text


@looped(("text", "key", "value", "after"), [
    ("A=1 # c", "a", "22", "A=22 # c"),
    ("A=1    # c", "a", "222", "A=222  # c"),             # the comment stays in its column
    ("A=1  # c", "a", "22222", "A=22222 # c"),
    ("A = 1\r", "A", "2", "A = 2\r"),
    ('A="x y"# c', "A", "z", "A=z# c"),
    ("A=1", "A", "x y", 'A="x y"'),
    ("A=1", "A", "", 'A=""'),
    ("A=1", "A", "a#b\\c", "A=a\\#b\\\\c"),
    ("NodeName=n1 CPUs=4   RealMemory=10 # ten", "CPUs", "128", "NodeName=n1 CPUs=128 RealMemory=10 # ten"),
    ("NodeName=n1 CPUs=4 RealMemory=10", "cpus", "8", "NodeName=n1 CPUs=8 RealMemory=10"),
    ("NodeName=n1 CPUs=4 # c", "Weight", "7", "NodeName=n1 CPUs=4 Weight=7 # c"),
    ("NodeName=n1 CPUs=4# c", "Weight", "7", "NodeName=n1 CPUs=4 Weight=7 # c"),
    ("NodeName=n1 \\\n  CPUs=4 \\ # not a comment joined\n", "Weight", "7", None),
    ("NodeName=n1 \\\n  CPUs=4 # four\n", "Weight", "7", "NodeName=n1 \\\n  CPUs=4 Weight=7 # four\n"),
    ("NodeName=n1 \\\n  CPUs=4 # four\n", "NodeName", "n[1-2]", "NodeName=n[1-2] \\\n  CPUs=4 # four\n"),
    ("NodeName=n1 CPUs=4 CPUs=5", "CPUs", "6", "NodeName=n1 CPUs=4 CPUs=6"),
    ("NodeName=n1 Gres=gpu:\\\n8 CPUs=1", "Gres", "gpu:4", "NodeName=n1 Gres=gpu:4 CPUs=1"),
    ("NodeName=n1 Feature=a\\#b CPUs=4", "CPUs", "5", "NodeName=n1 Feature=a\\#b CPUs=5"),
])
def test_one_value(text: str, key: str, value: str, after: str | None) -> None:
    found = set_at(text, 1, key, value)
    if after is None:
        assert configure({"slurm.conf": found}).nodes[0].get(key.casefold()) == value
    else:
        assert found == after


TEXT = "# head\r\nA=1\r\n\r\nNodeName=n1 \\\r\n  CPUs=4 # four\r\nB=2 # two\r\n"


def test_settings_that_are_there_and_that_are_new() -> None:
    assert change(TEXT, SetKey("a", "9")) == TEXT.replace("A=1", "A=9")
    assert change(TEXT, SetKey("New", "x y")) == f'{TEXT}New="x y"\r\n'
    assert change("A=1", SetKey("B", "2")) == "A=1\nB=2"
    assert change("", SetKey("B", "2")) == "B=2\n"
    assert change("A=1\nA=2\n", SetKey("A", "3")) == "A=1\nA=3\n"      # the last is in force


def test_lines_go_and_come() -> None:
    file = read(TEXT)
    assert change(TEXT, Remove(at(file, 4))) == "# head\r\nA=1\r\n\r\nB=2 # two\r\n"
    assert change(TEXT, AddAfter(at(file, 4), "C=3\nD=4")) == TEXT.replace("B=2", "C=3\r\nD=4\r\nB=2")
    assert change(TEXT, AddAfter(None, "C=3")) == f"{TEXT}C=3\r\n"
    assert change(TEXT, Remove(at(file, 2)), SetValue(at(file, 4), "CPUs", "5"), SetValue(at(file, 4), "Weight", "2"),
                  Remove(at(file, 6))) == "# head\r\n\r\nNodeName=n1 \\\r\n  CPUs=5 Weight=2 # four\r\n"
    assert change(TEXT, Remove(at(file, 2)), AddAfter(at(file, 2), "Z=1")) == TEXT.replace("A=1", "Z=1")


def test_what_cannot_be_written() -> None:
    for value in ('a"b', "a\nb", "a\0b"):
        with pytest.raises(UsageError):
            quoted(value)
    with pytest.raises(UsageError):
        edit(read("A=1"), [Remove(at(read("B=1"), 1))])
    with pytest.raises(UsageError):
        change("A=1\\", AddAfter(None, "B=2"))


VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"'), max_size=12)
LINES = st.sampled_from(["# comment", "", "A=1 # one", "B = 2", "NodeName=n[1-4] CPUs=2   RealMemory=5 # x", "D=4\r",
                         "NodeName=m1 \\\n   CPUs=2 \\\n   Gres=gpu:a:1  # y", 'C="x y" # z',
                         "PartitionName=p Nodes=ALL"])


@given(st.lists(LINES, min_size=1, max_size=12), st.data())
@settings(max_examples=200)
def test_an_edit_touches_only_its_lines(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    file = read(text)
    if not file.statements:
        return
    statement = data.draw(st.sampled_from(file.statements))
    key = data.draw(st.sampled_from([v.key for v in statement.values] + ["Weight"] * (len(statement.values) > 1)))
    value = data.draw(VALUES)
    after = edit(file, [SetValue(statement, key, value)])
    first, last = statement.place.line - 1, statement.last
    assert after.lines[:first] == file.lines[:first]
    rest = file.lines[last:]
    assert after.lines[len(after.lines) - len(rest):] == rest
    changed = at(after, statement.place.line)
    found = changed.get(key.casefold())
    assert found is not None
    assert found.text == value
    assert [(v.key, v.text) for v in changed.values if v.key != key] == [
        (v.key, v.text) for v in statement.values if v.key != key]
    comments = [line.split("#", 1)[1] for line in file.lines if "#" in line]
    ends = [line.rsplit("#", 1)[-1] for line in after.lines if "# " in line]
    assert [end for end in ends if end in comments] == comments


@given(st.lists(LINES, min_size=1, max_size=12), st.data())
@settings(max_examples=100)
def test_a_removal_takes_its_lines_alone(lines: list[str], data: st.DataObject) -> None:
    file = read("\n".join(lines))
    if file.statements:
        statement = data.draw(st.sampled_from(file.statements))
        after = edit(file, [Remove(statement)])
        left = file.lines[:statement.place.line - 1] + file.lines[statement.last:]
        assert after.lines == (left or ("",))


@pytest.mark.deep
@given(st.lists(st.sampled_from([m.LAB, m.H100, m.A100P, m.NPS4, m.T4, m.BIG_CPU]), min_size=1, max_size=4,
                unique_by=id), st.integers(1, 30), st.booleans())
@settings(max_examples=25, deadline=None)
def test_what_is_rendered_is_read_as_it_was_meant(nodes: list[m.Node], count: int, comments: bool) -> None:
    groups = [(m.names(f"g{i}n", count), node) for i, node in enumerate(nodes)]
    found = render(m.inventory(*groups), m.SITE, RenderOptions("22.05", comments=comments))
    assert not found.problems
    conf = configure(found.files)
    assert not conf.faults
    assert not conf.missing
    for file in conf.files:
        assert write(file) == found.files[file.name]
    by_line = {(e.file, e.line): e.text for e in found.explained}
    read_back = {(f.name, s.place.line): s.text for f in conf.files for s in f.statements}
    assert read_back == {at: text.removesuffix("  # site.toml") for at, text in by_line.items()}
    assert sorted(host for line in conf.nodes for host in line.hosts) == sorted(
        name for names, _ in groups for name in names)
    written = replace(conf, files=())
    assert configure({f.name: write(f) for f in conf.files}).nodes == written.nodes
