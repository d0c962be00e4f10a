"""The documentation names every option, fact, reader and key that there is, and none that is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import click
import pytest

from hpcadmin.cli import _documents_text, discover, inventory
from hpcadmin.cli._topology import topology
from hpcadmin.documents import documents
from hpcadmin.errors import ParseError, StoreError, UsageError
from hpcadmin.fabric_text import fabric_lines
from hpcadmin.facts import Document, Reading, facts, readers
from hpcadmin.intake import take
from hpcadmin.model import Inventory
from hpcadmin.reading import Statement, read_paths
from hpcadmin.site import BmcSite

TOP = Path(__file__).resolve().parent.parent
GUIDE = TOP / "docs" / "discovery.md"
KEYS = TOP / "docs" / "discovery-json.md"
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").glob("*.md"))]
CORPUS = TOP.parent / "shared" / "corpus" / "topo"
SAMPLES = TOP / "tests" / "samples"
CODE = re.compile(r"`([^`]+)`")


@cache
def tables(page: Path) -> dict[str, list[list[str]]]:
    """The rows of each table, by the first cell of its head; those with the same head together."""
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    for line in page.read_text().split("\n"):
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if not cells:
            rows = None
        elif rows is None:
            rows = found.setdefault(cells[0], [])
        elif not cells[0].startswith("---"):
            rows.append(cells)
    return found


def names(head: str, column: int = 0, page: Path = GUIDE) -> list[str]:
    return [name for row in tables(page)[head] for name in CODE.findall(row[column])]


def test_every_fact_is_in_the_table() -> None:
    assert sorted(names("fact")) == sorted(facts())


def test_every_reader_is_in_the_table() -> None:
    assert sorted(names("read by")) == sorted(reader.name for reader in readers())


def own_documents() -> Iterator[Document]:
    for path in sorted(SAMPLES.rglob("*")):
        if path.is_file():
            yield from documents(path.name, path.read_bytes())


def corpus_documents() -> Iterator[Document]:
    for path in sorted(CORPUS.rglob("*")):
        if path.is_file() and path.suffix not in (".tsv", ".md") and not path.name.startswith("expected"):
            try:
                for one in take([str(path)], "node"):
                    yield from one.documents
            except (StoreError, UsageError):
                continue


def readings(found: Iterator[Document]) -> Iterator[tuple[str, Reading]]:
    for document in found:
        for reader in readers():
            if document.form not in reader.forms:
                continue
            try:
                yield from ((reader.name, reading) for reading in reader.read(document))
            except ParseError:
                continue


def undocumented(found: Iterator[Document]) -> set[str]:
    """Kinds that the row of their reader does not name, and keys that no table has."""
    kinds = {row[0].strip("`"): CODE.findall(row[1]) for row in tables(GUIDE)["read by"]}
    keys = set(names("key", page=KEYS))
    missing = set()
    for reader, reading in readings(found):
        if not any(reading.kind == kind or reading.kind.startswith(f"{kind} -") or reading.kind.startswith(f"{kind} ")
                   for kind in kinds[reader]):
            missing.add(f"kind {reading.kind} of {reader}")
        missing |= {f"key {key} of {reading.kind}" for key in reading.known
                    if re.sub(r"^(distance_(pairs_)?)[0-9]+\Z", lambda m: m[1], key) not in
                    {"distance_", "distance_pairs_"} and key not in keys}
    return missing


def test_kinds_and_keys_of_the_samples_are_documented() -> None:
    assert undocumented(own_documents()) == set()


@pytest.mark.deep
@pytest.mark.skipif(not CORPUS.exists(), reason="no corpus of captured texts beside the project")
def test_kinds_and_keys_of_the_corpus_are_documented() -> None:
    assert undocumented(corpus_documents()) == set()


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts}


def test_every_option_is_documented() -> None:
    assert isinstance(inventory.command, click.Group)
    commands = [discover.command, topology, *inventory.command.commands.values()]
    text = GUIDE.read_text()
    for command in commands:
        for option in options(command):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text) or option == "--file", option
    documented = {word for name in names("option") for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", name)}
    assert documented <= set().union(*map(options, commands))


def test_the_json_is_documented() -> None:
    keys = set(names("key", page=KEYS))
    assert {item.name for item in fields(Inventory)} | {"order", "documents"} <= keys
    statement = Statement("n", "f", (Reading("k"),))
    plain = _documents_text.plain(statement)
    assert set(plain) <= keys
    assert {f"readings[].{key}" for key in plain["readings"][0]} <= keys


def test_the_keys_of_bmc_are_documented() -> None:
    section = GUIDE.read_text().partition("## BMCs over Redfish")[2].partition("\n## ")[0]
    assert {item.name for item in fields(BmcSite)} <= set(CODE.findall(section))


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        other = page.parent / path if path else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


def test_the_drawing_of_the_fabric_is_what_is_drawn() -> None:
    found, _ = read_paths([str(SAMPLES / "fabric" / "rails.ibnetdiscover.txt")])
    assert "\n".join(fabric_lines(found.fabrics[0])) in GUIDE.read_text()


def test_the_example_of_known_is_json() -> None:
    block = KEYS.read_text().partition(".known'\n")[2].partition("```")[0]
    assert json.loads(block)["numa_nodes"] == {"0": "0-55,112-167", "1": "56-111,168-223"}
