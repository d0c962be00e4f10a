"""What spares a reader a text never loses a reading: every text that a reader says something of has a mark of its."""

from __future__ import annotations

from pathlib import Path

import pytest
from looped import looped

from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, read_document, readers
from hpcadmin.facts._readers import Reader
from hpcadmin.facts._seen import Seen

ROOT = Path(__file__).resolve().parent
CORPUS = ROOT.parents[1] / "shared" / "corpus" / "topo"
SAMPLES = sorted(path for path in (ROOT / "samples").rglob("*") if path.is_file())
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
# Reads all texts: an lspci -n has no word that is always there.
WITHOUT = {"lspci"}


def corpus() -> list[Path]:
    return sorted(path for path in CORPUS.rglob("*") if path.is_file() and not path.name.endswith(ARCHIVES))


def says_something(reader: Reader, document: Document) -> bool:
    try:
        return bool(reader.read(document))
    except ParseError:
        return True


def unmarked(reader: Reader, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The lines without a mark; "" in the place of the others."""
    return tuple("" if any(mark in line for mark in reader.marks) or (reader.opens and reader.opens(line)) else line
                 for line in lines)


def check(path: Path) -> None:
    for document in documents(path.name, path.read_bytes()):
        for reader in readers():
            if document.form not in reader.forms or reader.name in WITHOUT or not says_something(reader, document):
                continue
            assert reader.may_read(document.distinct, document.text), f"{path.name}: {reader.name} has no mark of it"
            # Nor may a part of it be read that has none.
            rest = Document(document.name, document.form, unmarked(reader, document.lines))
            assert not says_something(reader, rest), f"{path.name}: {reader.name} reads it without any of its marks"


def test_every_reader_says_what_it_looks_for() -> None:
    assert {reader.name for reader in readers() if not reader.marks and reader.opens is None} <= WITHOUT
    assert not [reader.name for reader in readers() if any("\n" in mark for mark in reader.marks)]


@looped("path", SAMPLES, ids=lambda path: str(path.relative_to(ROOT / "samples")))
def test_samples(path: Path) -> None:
    check(path)


@pytest.mark.deep
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of captures is not beside the checkout")
def test_corpus() -> None:
    failed = []
    for path in corpus():
        try:
            check(path)
        except AssertionError as exc:
            failed.append(str(exc).split("\n", maxsplit=1)[0])
    assert not failed, "\n".join(failed)


def test_what_lines_say_is_learnt_and_changes_nothing() -> None:
    """A line that comes again is looked at once; then only those that say something are looked at."""
    asked: list[str] = []

    def says(line: str) -> bool:
        asked.append(line)
        return "mark" in line

    seen = Seen(says)
    lines = ["dull", "a mark", "x" * 1000]
    assert [seen.worth(lines) for _ in range(4)] == [lines, lines, lines[1:], lines[1:]]
    assert asked == ["dull", "a mark"]


@pytest.mark.deep
def test_reading_a_text_again_says_the_same() -> None:
    for path in SAMPLES:
        for document in documents(path.name, path.read_bytes()):
            first = read_document(document)
            assert read_document(document) == first == read_document(document)
