"""[tools] and [modules] of site.toml: how a tool that checks need is reached on the nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

_PATTERN = re.compile(r"[A-Za-z0-9_*?][A-Za-z0-9_.+*?\[\]-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:=~-]*(?:/[A-Za-z0-9_.+@:=~-]+)*")
_IMAGE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@#+~=-]*")


@dataclass(frozen=True)
class Tool:
    """[tools.NAME]; NAME may be a pattern (osu_*).

    modules are loaded first, and in their environment path, else the tool's name on PATH is taken. With a container,
    path is the one in the image, else the name on the image's PATH.
    """

    path: str = ""
    modules: tuple[str, ...] = ()
    container: str = ""


@dataclass(frozen=True)
class ModulesSite:
    """[modules]: where the command `module` comes from, when it is not where Lmod and Environment Modules have it."""

    init: str = ""                        # file that a shell sources to have it
    paths: tuple[str, ...] = ()           # folders of module files beside those that the nodes' own MODULEPATH has


def tool_of(tools: Mapping[str, Tool], name: str) -> Tool:
    """What the site says of a tool: its own table, else the first pattern that fits."""
    if name in tools:
        return tools[name]
    return next((tool for pattern, tool in tools.items() if fnmatchcase(name, pattern)), Tool())


def tool_problem(name: str, tool: Tool) -> tuple[str, str] | None:
    """(key, what is wrong with it), None when all of it can be used."""
    if not _PATTERN.fullmatch(name):
        return "", "is not the name of a tool, nor a pattern of names"
    inside = bool(tool.container) and _NAME.fullmatch(tool.path)
    if tool.path and not (inside or _is_path(tool.path)):
        return "path", "must be an absolute path" + (", or a name in the container" if tool.container else "")
    for module in tool.modules:
        if len(module) > 200 or not _MODULE.fullmatch(module):
            return "modules", f"has {module!r}, which is not the name of a module"
    if tool.container and (len(tool.container) > 500 or not _IMAGE.fullmatch(tool.container)):
        return "container", f"is {tool.container!r}: not an image's file or name"
    return None


def modules_problem(modules: ModulesSite) -> tuple[str, str] | None:
    """(key, what is wrong with it)."""
    if modules.init and not _is_path(modules.init):
        return "init", "must be an absolute path"
    wrong = next((p for p in modules.paths if not _is_path(p) or ":" in p), "")
    return ("paths", f"has {wrong!r}, which is not an absolute path") if wrong else None


def _is_path(text: str) -> bool:
    return text.startswith("/") and text.isprintable() and len(text) <= 1000
