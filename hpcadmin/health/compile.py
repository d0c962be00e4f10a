"""health.toml -> what the nodes read: every entry is tried against its check, every fault has file and line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcadmin.errors import SiteError, StoreError
from hpcadmin.files import read_bounded
from hpcadmin.health.node import config, load, masks
from hpcadmin.health.node.api import BadConfig, Check
from hpcadmin.order._lines import Lines
from hpcadmin.toml_text import MAX_TOML_BYTES, parse_toml

TOP_KEYS = ("check", "checks", "tools")


@dataclass(frozen=True)
class Problem:
    """where is file:line. A warning does not keep the configuration from being written."""

    where: str
    what: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {'warning: ' if self.warning else ''}{self.what}"


@dataclass(frozen=True)
class Compiled:
    """The tree that the nodes read, and what is wrong with it."""

    tree: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def sound(self) -> bool:
        return not any(not problem.warning for problem in self.problems)

    @property
    def text(self) -> str:
        return json.dumps(self.tree, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def compile_file(path: Path, nodes: Sequence[str] = ()) -> Compiled:
    try:
        raw = read_bounded(path, limit=MAX_TOML_BYTES + 1)
    except StoreError as exc:
        raise SiteError(exc.what, where=exc.where) from exc
    if len(raw) > MAX_TOML_BYTES:
        raise SiteError(f"is larger than {MAX_TOML_BYTES} bytes", where=str(path))
    return compile_text(raw.decode("utf-8", "surrogateescape"), str(path), nodes)


def compile_text(text: str, name: str, nodes: Sequence[str] = ()) -> Compiled:
    """nodes: those of the inventory, so that a mask which fits none of them is told."""
    try:
        tables = parse_toml(text.encode("utf-8", "surrogateescape"), name)
    except SiteError as exc:
        return Compiled(problems=(Problem(exc.where or name, exc.what),))
    compiler = _Compiler(Lines(name, text), str(tables.get("checks", "")), nodes)
    compiler.top(tables)
    listed = tables.get("check", [])
    if isinstance(listed, list):
        compiler.entries(listed)
    tree = {"schema": config.SCHEMA, "source": Path(name).name,
            **{key: tables[key] for key in TOP_KEYS if key in tables}}
    if not compiler.problems:
        compiler.whole(tree)
    return Compiled(tree, tuple(compiler.problems))


class _Compiler:
    def __init__(self, lines: Lines, folder: str, nodes: Sequence[str]) -> None:
        self.lines = lines
        self.folder = folder
        self.nodes = nodes
        self.problems: list[Problem] = []
        self.keys: dict[str, int] = {}

    def wrong(self, what: str, *path: str | int, warning: bool = False) -> None:
        self.problems.append(Problem(self.lines.where(*path), what, warning))

    def top(self, tables: Mapping[str, Any]) -> None:
        for key in tables:
            if key not in TOP_KEYS:
                self.wrong(f"unknown key {key}; known: [[check]], checks, tools", key)
        for key, kind in (("check", list), ("checks", str), ("tools", list)):
            if key in tables and not isinstance(tables[key], kind):
                self.wrong(f"{key} must be {'[[check]] tables' if key == 'check' else f'a {kind.__name__}'}", key)
        if not tables.get("check"):
            self.wrong("there is no [[check]]: every node would be unknown", "check")
        if isinstance(tables.get("checks"), str) and not tables["checks"].startswith("/"):
            self.wrong("checks must be an absolute path on the nodes", "checks")

    def entries(self, listed: Iterable[Any]) -> None:
        for number, raw in enumerate(listed):
            try:
                entry = config.parse({"check": [raw]}).entries[0]
            except BadConfig as exc:
                self.wrong(_without_number(str(exc)), "check", number, *_key_in(str(exc), raw))
                continue
            self.entry(entry, number)

    def entry(self, entry: config.Entry, number: int) -> None:
        if entry.key in self.keys:
            first = self.lines.where("check", self.keys[entry.key]).rpartition(":")[2]
            self.wrong(f"a second entry is called {entry.key} (the first in line {first}): give each an id",
                       "check", number)
        self.keys.setdefault(entry.key, number)
        for mask in entry.nodes:
            self.mask(mask, number)
        if entry.nodes and self.nodes and not any(
                masks.any_matches(entry.nodes, node, node=True) for node in self.nodes):
            self.wrong(f"nodes {', '.join(entry.nodes)}: no node of the inventory", "check", number, "nodes",
                       warning=True)
        check = self.check(entry.use, number)
        if check is None:
            return
        try:
            check.take(entry.params)
        except BadConfig as exc:
            named = [key for key in entry.params if key in str(exc)]
            self.wrong(f"{entry.use}: {exc}", "check", number, *named[:1])
            return
        self.masks_of(check, entry, number)

    def check(self, use: str, number: int) -> Check | None:
        """The check; None if it is one of the site's, which only the nodes have, or does not exist."""
        try:
            return load.named(use)
        except BadConfig as exc:
            if self.folder:
                self.wrong(f"{use}: not known here; the nodes will look for {self.folder}/{use}.py", "check", number,
                           "use", warning=True)
            else:
                self.wrong(f"{exc}; known: {', '.join(load.names())}", "check", number, "use")
        return None

    def mask(self, mask: str, number: int) -> None:
        bare = mask.removeprefix("!")
        if bare.startswith("@") or not bare:
            self.wrong(f"nodes: {mask!r} is no mask: write the nodes as gpu[001-100]", "check", number, "nodes")
        elif bare[:1] not in ("/", "{") and bare.count("[") != bare.count("]"):
            self.wrong(f"nodes: {mask!r}: a bracket is not closed", "check", number, "nodes")
        elif "," in bare and "[" not in bare and bare[:1] not in ("/", "{"):
            self.wrong(f"nodes: {mask!r} is one mask: write several as a list", "check", number, "nodes")

    def masks_of(self, check: Check, entry: config.Entry, number: int) -> None:
        """Regular expressions among the parameters, tried here and not at night on a thousand nodes."""
        for param in check.params:
            value = entry.params.get(param.name)
            for one in (value if isinstance(value, list) else [value]):
                if param.kind not in ("mask", "masks") or not isinstance(one, str):
                    continue
                try:
                    masks.matches(one, "")
                except ValueError as exc:
                    self.wrong(f"{entry.use}: {param.name}: {exc}", "check", number, param.name)

    def whole(self, tree: Mapping[str, Any]) -> None:
        try:
            config.parse(json.loads(json.dumps(tree)))
        except (BadConfig, TypeError, ValueError) as exc:
            self.wrong(str(exc), "check")


def _without_number(text: str) -> str:
    """check 3 (mount): … -> mount: …; the line says which."""
    head, mark, rest = text.partition(": ")
    name = head.partition("(")[2].rstrip(")")
    return f"{name}: {rest}" if mark and name else rest or text


def _key_in(text: str, raw: object) -> list[str]:
    """The key that a fault is about, if its name stands in the text."""
    if not isinstance(raw, Mapping):
        return []
    if "regular expression" in text:
        return ["nodes"]
    return [key for key in config.OWN_KEYS if key in raw and f" {key} " in f" {text} "][:1]


def folded(nodes: Iterable[str], tree: Mapping[str, Any], mode: str = "health") -> dict[str, list[str]]:
    """The entries of each node, in order, as keys: for `hpcadmin health show`."""
    entries = config.parse(tree).entries
    return {node: [entry.key for entry in entries if entry.here(node, mode)] for node in nodes}


def overview(tree: Mapping[str, Any]) -> str:
    """One line an entry: key, nodes, when, parameters."""
    lines = []
    for entry in config.parse(tree).entries:
        params = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in entry.params.items())
        lines.append(f"{entry.key}  on {' '.join(entry.nodes) or 'every node'}  for {', '.join(entry.when)}"
                     + (f"  {params}" if params else ""))
    return "\n".join(lines)
