"""The documentation names every option, fact, reader and key that there is, and none that is not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import click
import pytest
from looped import looped

from hpcadmin.cli import _documents_text, conf, discover, inventory, root, runs, validate
from hpcadmin.cli._topology import topology
from hpcadmin.conf.check.finding import Severity
from hpcadmin.conf.check.run import every_rule
from hpcadmin.conf.diff.parts import Weight
from hpcadmin.documents import documents
from hpcadmin.errors import ParseError, StoreError, UsageError
from hpcadmin.fabric_text import fabric_lines
from hpcadmin.facts import Document, Reading, facts, readers
from hpcadmin.intake import take
from hpcadmin.model import Inventory
from hpcadmin.reading import Statement, read_paths
from hpcadmin.site import (
    AccountingSite,
    BmcSite,
    Cluster,
    HookSite,
    NodeGroup,
    PrivateTmp,
    SlurmSite,
    read_toml,
)
from hpcadmin.site_topology import TopologySite

TOP = Path(__file__).resolve().parent.parent
GUIDE = TOP / "docs" / "discovery.md"
KEYS = TOP / "docs" / "discovery-json.md"
CONF = TOP / "docs" / "configuration.md"
SITE = TOP / "docs" / "site.toml"
RUNS = TOP / "docs" / "runs.md"
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
        if path.is_file() and SAMPLES / "nhc" not in path.parents:      # folders that stand for nodes, no captures
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


@pytest.mark.deep
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


def section(page: Path, head: str) -> str:
    return page.read_text().partition(f"\n## {head}\n")[2].partition("\n## ")[0]


def prose(text: str) -> str:
    """Without what stands between fences."""
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def option_rows(text: str) -> set[str]:
    """The options in the first cells of the tables of options."""
    found, inside = set(), False
    for line in text.split("\n"):
        inside = line.startswith("| option |") or (inside and line.startswith("|"))
        if inside:
            found |= set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line.split("|")[1]))
    return found


@pytest.mark.parametrize("name", ["render", "diff", "check"])
def test_every_option_of_conf_is_in_its_table(name: str) -> None:
    assert isinstance(conf.command, click.Group)
    assert option_rows(section(CONF, name)) == options(conf.command.commands[name])


def test_every_option_of_validate_and_runs_is_on_the_page_of_runs() -> None:
    assert isinstance(runs.command, click.Group)
    known = set().union(*map(options, [validate.command, *runs.command.commands.values()]))
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", section(RUNS, "All options"))) == known


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `hpcadmin …` in code, in the order of the page; what follows a pipe or a semicolon is left."""
    text = page.read_text()
    blocks = re.findall(r"(?ms)^```\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.split("\n")]
    lines += CODE.findall(prose(text))
    for line in lines:
        for match in re.finditer(r"(?:^|[$#|] |/)hpcadmin ((?!lab lab)[a-z-][^|;#]*)", line):
            try:
                yield shlex.split(match[1])
            except ValueError:
                continue


@looped("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_on_the_pages_exist(page: Path) -> None:
    for words in commands(page):
        command: click.Command = root
        given = set(options(command))
        for word in words:
            if word == "--":
                break
            if isinstance(command, click.Group) and not word.startswith("-"):
                found = command.get_command(click.Context(command), word)
                if found is None:
                    break
                command = found
                given |= options(command)
            elif re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word):
                assert word.partition("=")[0] in given | {"--help", "--version"}, " ".join(words)


def test_findings_and_differences_are_explained() -> None:
    words = set(CODE.findall(prose(section(CONF, "check"))))
    assert {name.split(".")[0] for name, _ in every_rule()} <= words
    assert {severity.value for severity in Severity} <= {cell for row in tables(CONF)["severity"] for cell in row[:1]}
    assert all(f"| {weight.value} |" in section(CONF, "diff") for weight in Weight)


_RECORDS = {"cluster": Cluster, "slurm": SlurmSite, "accounting": AccountingSite, "hooks": HookSite,
            "private_tmp": PrivateTmp, "topology": TopologySite, "nodes": NodeGroup}
# Of validate and discover.
_OTHERS = {"nice", "priority", "partition", "account", "qos", "reservation", "mpi", "backend", "domain"}


@pytest.mark.parametrize("table", _RECORDS)
def test_every_key_of_the_site_is_in_the_example_and_on_the_page(table: str) -> None:
    """The example has every key; the page on configuration names those that it reads, and no others."""
    example = read_toml(SITE)[table]
    keys = {item.name for item in fields(_RECORDS[table])} - {"name"} | ({"name"} if table == "cluster" else set())
    if table == "nodes":
        example = {key: value for group in example.values() for key, value in group.items()}
    assert set(example) == keys
    text = CONF.read_text()
    missing = {key for key in keys - _OTHERS if not re.search(rf"(?<![\w-]){key}(?![\w-])", text)}
    assert missing == set()


def test_tables_named_on_the_page_are_in_the_example() -> None:
    example = read_toml(SITE)
    for name in set(re.findall(r"\[([a-z_]+(?:\.[A-Za-z_]+)*)\](?!\()", prose(CONF.read_text()))):
        first, *rest = name.split(".")
        assert first in example, name
        if rest and rest[0] not in ("NAME",):
            assert rest[0] in example[first], name


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


@looped("page", PAGES, ids=lambda page: page.name)
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
