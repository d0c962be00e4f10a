"""Loads checks and suites by path: ours first, then the site's folder. A broken file is a SiteError with file:line."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcadmin.check import Check, Layout, Params
from hpcadmin.errors import SiteError, UsageError
from hpcadmin.plan_pairs import WORDS as PAIR_WORDS
from hpcadmin.plan_pairs import Pairs, pairs_of
from hpcadmin.resources import data_dir
from hpcadmin.site import Site, TableReader
from hpcadmin.site_tools import IN_CONTAINERS, Tool, layered, no_image, no_mpi, not_modules
from hpcadmin.text import did_you_mean
from hpcadmin.toml_text import locate, read_toml


@dataclass(frozen=True)
class SuiteEntry:
    """One check of a suite, or several of which the first that can run on every node does.

    params: check name -> what the suite or the site sets for it. over: the layouts of its tests, () for each check's
    usual one. Entries of one check with other params or layouts run beside each other.
    """

    names: tuple[str, ...]
    params: Mapping[str, Params] = field(default_factory=dict)
    over: tuple[Layout, ...] = ()

    def params_for(self, check: Check) -> dict[str, str | int | float | bool]:
        """The check's own defaults, with what the suite and the site changed."""
        return {**check.params, **self.params.get(check.name, {})}


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    entries: tuple[SuiteEntry, ...]
    env: Mapping[str, str] = field(default_factory=dict)    # for every step of the suite
    pairs: Pairs = "all"                                    # which nodes meet (plan_pairs), or how many rounds of pairs
    modules: tuple[str, ...] | None = None                  # before every step; None: as the site says
    mpi: str = ""                                           # how MPI programs are started; "": as the site says
    container: str = ""                                     # of the benchmarks (IN_CONTAINERS)
    tools: Mapping[str, Tool] = field(default_factory=dict)     # before those of the site


def checks_dir() -> Path:
    return data_dir("checks")


def load_checks(extra_dir: str = "") -> dict[str, Check]:
    """All checks by name. extra_dir: the site's folder ([run] checks_dir).

    Raises SiteError with file:line for a file that cannot be used, and where a folder is not safe to load code from.
    """
    own = checks_dir()
    files = check_files(own)
    if extra_dir:
        folder = Path(extra_dir).expanduser()
        _require_safe(folder, directory=True)
        extra = check_files(folder)
        for path in extra:
            _require_safe(path, directory=False)
        files += extra
    checks: dict[str, Check] = {}
    origin: dict[str, Path] = {}
    for path in files:
        check = _own_check(path) if path.parent == own else load_check(path)
        if check.name in checks:
            raise SiteError(f"check {check.name!r} is already in {origin[check.name]}",
                            where=f"{path}:{_line_of_check(path)}", hint="give it another name")
        checks[check.name], origin[check.name] = check, path
    return checks


def check_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.py") if not p.name.startswith(("_", ".")))


@functools.cache
def _own_check(path: Path) -> Check:
    """A check of this installation, which stays as it is while a process runs."""
    return load_check(path)


def load_check(path: Path) -> Check:
    """The CHECK in a file. Its code runs, in this process: the folder must be trusted."""
    spec = importlib.util.spec_from_file_location(f"hpcadmin_check_{path.stem}", path)
    if spec is None or spec.loader is None:  # pragma: no cover  (only for names without .py)
        raise SiteError("is not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module         # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:  # a site's own file may raise anything at all while it is loaded
        raise SiteError(f"check cannot be loaded: {_describe(exc)}", where=f"{path}:{_line(exc, path)}") from exc
    check = getattr(module, "CHECK", None)
    where = f"{path}:{_line_of_check(path)}"
    if check is None:
        raise SiteError("has no CHECK", where=where, hint="CHECK = Check(name=…, …)")
    if not isinstance(check, Check):
        raise SiteError(f"CHECK is {type(check).__name__}, not Check", where=where)
    _validate(check, path.stem, where)
    return check


def _validate(check: Check, stem: str, where: str) -> None:
    if check.name != stem:
        raise SiteError(f"check {check.name!r} must be in a file {check.name}.py", where=where)
    if not check.name.replace("_", "").isalnum() or not check.name.isascii():
        raise SiteError(f"{check.name!r} is not a name: letters, digits and _", where=where)
    if not check.title or not callable(check.steps) or not callable(check.parse):
        raise SiteError(f"check {check.name!r} lacks a title, steps or parse", where=where)
    for what, words in (("needs", check.needs), ("builds", check.builds), ("probe", check.probe)):
        if not isinstance(words, tuple) or not all(isinstance(w, str) and w for w in words):
            raise SiteError(f"{what} of check {check.name!r} is not a tuple of names", where=where)


def _describe(exc: BaseException) -> str:
    if isinstance(exc, SyntaxError):
        return f"syntax error: {exc.msg}"
    return f"{type(exc).__name__}: {exc}".replace("\n", " ")


def _line(exc: BaseException, path: Path) -> int:
    if isinstance(exc, SyntaxError) and exc.lineno and exc.filename == str(path):
        return exc.lineno
    lines = [f.lineno for f in traceback.extract_tb(exc.__traceback__) if f.filename == str(path) and f.lineno]
    return lines[-1] if lines else 1


def _line_of_check(path: Path) -> int:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 1
    return next((n for n, line in enumerate(text.splitlines(), 1) if line.startswith("CHECK")), 1)


def _require_safe(path: Path, *, directory: bool) -> None:
    """Code is loaded only from where nobody but root and the caller can put it."""
    try:
        info = path.stat()
    except OSError as exc:
        raise SiteError(f"cannot be read: {exc.strerror}", where=str(path), hint="[run] checks_dir") from exc
    if directory != stat.S_ISDIR(info.st_mode):
        raise SiteError("is not a folder" if directory else "is not a file", where=str(path))
    if info.st_uid not in (0, os.getuid()):
        raise SiteError("belongs to another user, so no check is loaded from it", where=str(path),
                        hint="it must belong to root or to you")
    if info.st_mode & 0o022:
        raise SiteError("can be written by others, so no check is loaded from it", where=str(path),
                        hint=f"chmod go-w {path}")


# --- suites ---------------------------------------------------------------------------------------------------


def suite_names() -> list[str]:
    return sorted(p.stem for p in (checks_dir() / "suites").glob("*.toml"))


def load_suite(name: str, site: Site, checks: Mapping[str, Check] | None = None) -> Suite:
    """The suite of that name, or in the file of that path, with what [suites.NAME] of site.toml changes.

    Raises UsageError for a suite that does not exist, SiteError with file:line for a mistake in one.
    """
    checks = load_checks(site.checks_dir) if checks is None else checks
    path = _suite_path(name)
    reader = _SuiteReader(path, checks)
    suite = _override(reader.read(read_toml(path)), site, checks)
    return replace(suite, env={**site.env, **suite.env})


def _suite_path(name: str) -> Path:
    if "/" in name or name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise UsageError(f"no suite file {name!r}", hint=f"known suites: {', '.join(suite_names())}")
        return path
    if name not in suite_names():
        raise UsageError(f"unknown suite {name!r}", hint=f"known suites: {', '.join(suite_names())}")
    return checks_dir() / "suites" / f"{name}.toml"


def _override(suite: Suite, site: Site, checks: Mapping[str, Check]) -> Suite:
    table = site.suites.get(suite.name)
    if table is None:
        return suite
    reader = _SuiteReader(Path(site.source or "site.toml"), checks, prefix=f"suites.{suite.name}.")
    reader.only_keys(table, {"params", "pairs", *_AROUND})
    params = reader.params_by_check(table.get("params", {}), {n for e in suite.entries for n in e.names})
    entries = tuple(
        SuiteEntry(e.names, {n: {**e.params.get(n, {}), **params.get(n, {})} for n in e.names
                             if n in e.params or n in params}, e.over)
        for e in suite.entries)
    return reader.around(replace(suite, entries=entries, pairs=reader.pairs(table.get("pairs", suite.pairs))), table)


def site_for(suite: Suite, site: Site) -> Site:
    """The site as this suite has it: what the suite says of tools, modules and MPI goes before what the site says."""
    boxed = dict.fromkeys(IN_CONTAINERS, Tool(container=suite.container)) if suite.container else {}
    load = site.modules.load if suite.modules is None else suite.modules
    return replace(site, tools=layered(layered(suite.tools, boxed), site.tools),
                   modules=replace(site.modules, load=load),
                   slurm=replace(site.slurm, mpi=suite.mpi or site.slurm.mpi))


_AROUND = ("env", "modules", "mpi", "container", "tools")       # what is around the steps of a suite
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
_WORDS = {"rdma": ("auto", "yes", "no"), "buffers": ("host", "device")}      # parameters of many checks


class _SuiteReader:
    """Strict reading of a suite's tables; every error names file and line."""

    def __init__(self, path: Path, checks: Mapping[str, Check], prefix: str = "") -> None:
        self.path = path
        self.checks = checks
        self.prefix = prefix
        self.at = 0           # the number of the [[entry]] that is read, 0 outside of them

    def read(self, tables: Mapping[str, Any]) -> Suite:
        self.only_keys(tables, {"title", "entry", "pairs", *_AROUND})
        title = tables.get("title", "")
        if not isinstance(title, str):
            raise self.error("title", "must be a string")
        raw = tables.get("entry", [])
        if not isinstance(raw, list) or not raw or not all(isinstance(e, dict) for e in raw):
            raise self.error("entry", "must be [[entry]] tables, at least one")
        suite = Suite(self.path.stem, title or self.path.stem, self.entries(raw),
                      pairs=self.pairs(tables.get("pairs", "all")))
        return self.around(suite, tables)

    def around(self, suite: Suite, tables: Mapping[str, Any]) -> Suite:
        """The suite with what these tables say of its steps' environment."""
        get = TableReader({}, str(self.path))
        tools = get.as_table(tables.get("tools", {}), f"{self.prefix}tools")
        modules = self.modules(tables["modules"]) if "modules" in tables else suite.modules
        return replace(
            suite, modules=modules, mpi=self.word(tables, "mpi", no_mpi, suite.mpi),
            container=self.word(tables, "container", no_image, suite.container),
            env={**suite.env, **get.env(tables.get("env", {}), f"{self.prefix}env")},
            tools=layered({name: get.tool(name, tool, f"{self.prefix}tools") for name, tool in tools.items()},
                          suite.tools))

    def word(self, tables: Mapping[str, Any], key: str, wrong: Callable[[str], str], default: str) -> str:
        if key not in tables:
            return default
        value = tables[key]
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        if wrong(value):
            raise self.error(key, wrong(value))
        return value

    def modules(self, raw: Any) -> tuple[str, ...]:
        if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
            raise self.error("modules", "must be a list of names of modules")
        if not_modules(raw):
            raise self.error("modules", not_modules(raw))
        return tuple(raw)

    def entries(self, raw: list[dict[str, Any]]) -> tuple[SuiteEntry, ...]:
        found = []
        for self.at, table in enumerate(raw, 1):
            found.append(self.entry(table))
        self.at = 0
        return tuple(found)

    def entry(self, table: Mapping[str, Any]) -> SuiteEntry:
        self.only_keys(table, {"check", "one_of", "over", "params"})
        if ("check" in table) == ("one_of" in table):
            raise self.error("entry", "must have either check = \"…\" or one_of = [\"…\", \"…\"]")
        names = [table["check"]] if "check" in table else table["one_of"]
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise self.error("one_of" if "one_of" in table else "check", "must name checks")
        for name in names:
            self.known(name)
        raw, over = table.get("params", {}), self.over(table.get("over", []), names)
        if "check" in table:
            return SuiteEntry((names[0],), {names[0]: self.params(self.checks[names[0]], raw)} if raw else {}, over)
        return SuiteEntry(tuple(names), self.params_by_check(raw, set(names)), over)

    def over(self, raw: Any, names: list[str]) -> tuple[Layout, ...]:
        """One layout or several, which each of the checks must be able to do."""
        words = [raw] if isinstance(raw, str) else raw
        if not isinstance(words, list) or not all(isinstance(w, str) for w in words) or len(set(words)) != len(words):
            raise self.error("over", "must be a layout or a list of different layouts")
        for word in words:
            for name in names:
                possible = [layout.value for layout in self.checks[name].possible]
                if word not in possible:
                    raise self.error("over", f"{word!r} is no layout of {name}; it has: {', '.join(possible)}")
        return tuple(Layout(word) for word in words)

    def params_by_check(self, raw: Any, names: set[str]) -> dict[str, Params]:
        if not isinstance(raw, dict):
            raise self.error("params", "must be a table of tables by check")
        for name, table in raw.items():
            if name not in names:
                raise self.error(f"params.{name}", f"is no check of this suite ({', '.join(sorted(names))})")
            if not isinstance(table, dict):
                raise self.error(f"params.{name}", "must be a table of the check's parameters")
        return {name: self.params(self.checks[name], table) for name, table in raw.items()}

    def params(self, check: Check, raw: Any) -> Params:
        if not isinstance(raw, dict):
            raise self.error("params", "must be a table")
        for key, value in raw.items():
            if key not in check.params:
                known = ", ".join(sorted(check.params)) or "none"
                raise self.error(f"params.{key}", f"is no parameter of {check.name}; it has: {known}")
            default = check.params[key]
            same = type(value) is type(default) or (isinstance(default, float) and type(value) is int)
            if not same:
                raise self.error(f"params.{key}", f"of {check.name} must be {_TYPES[type(default)]}")
            if not isinstance(value, str) and not isinstance(default, str) and value < 0 <= default:
                raise self.error(f"params.{key}", f"of {check.name} must not be below zero")
            words = _WORDS.get(key, ())
            if default in words and value not in words:
                raise self.error(f"params.{key}", f"of {check.name} must be one of {', '.join(words)}")
        return dict(raw)

    def pairs(self, raw: Any) -> Pairs:
        found = pairs_of(raw)
        if found is None or (isinstance(raw, str) and isinstance(found, int)):
            words = ", ".join(f'"{word}"' for word in PAIR_WORDS)
            raise self.error("pairs", f"must be {words} or the number of rounds, at least 1")
        return found

    def known(self, name: str) -> None:
        if name not in self.checks:
            where = _line_with(self.path, f'"{name}"')
            raise SiteError(f"unknown check {name!r}", where=where,
                            hint=did_you_mean(name, self.checks, "hpcadmin checks list"))

    def only_keys(self, table: Mapping[str, Any], known: set[str]) -> None:
        for key in table:
            if key not in known:
                raise self.error(key, f"is not known here; known are {', '.join(sorted(known))}")

    def error(self, key: str, what: str) -> SiteError:
        where = _line_of_entry(self.path, self.at, key) if self.at else locate(str(self.path), f"{self.prefix}{key}")
        return SiteError(f"{self.prefix}{key} {what}", where=where)


def _line_of_entry(path: Path, number: int, key: str) -> str:
    """file:line of a dotted key within that [[entry]], else of what holds it, else of its head."""
    head, best, count = 0, (0, 0), 0
    parts = key.split(".")
    for n, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if re.match(r"\s*\[\[\s*entry\s*\]\]", line):
            count += 1
            head = n if count == number else head
        elif count == number:
            fits = sum(bool(re.search(rf"(?<![\w-]){re.escape(part)}(?![\w-])[^#]*[]=]", line))
                       for part in (*parts, parts[-1]))
            best = max(best, (fits, -n))
    return f"{path}:{-best[1] if best[0] else head}" if head else str(path)


def _line_with(path: Path, text: str) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((f"{path}:{n}" for n, line in enumerate(lines, 1) if text in line), str(path))
