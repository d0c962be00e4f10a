"""[tools], [modules], [env] and mpi, of site.toml and of suites: how programs are reached and started on the nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

_PATTERN = re.compile(r"[A-Za-z0-9_*?][A-Za-z0-9_.+*?\[\]-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:=~-]*(?:/[A-Za-z0-9_.+@:=~-]+)*")
_IMAGE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@#+~=-]*")
_MPI = re.compile(r"pmix(?:_v[1-9])?|pmi2|cray_shasta|none|mpirun")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
MPIRUN = "mpirun"
# What a suite's `container` is for: programs that come in images. The rest looks at the node itself.
IN_CONTAINERS = ("osu_*", "*_perf", "ib_*_bw", "ib_*_lat")


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
    load: tuple[str, ...] = ()            # loaded before every step; a suite may have others in their place


def tool_of(tools: Mapping[str, Tool], name: str) -> Tool:
    """What the site says of a tool: its own table, else the first pattern that fits."""
    if name in tools:
        return tools[name]
    return next((tool for pattern, tool in tools.items() if fnmatchcase(name, pattern)), Tool())


def layered(above: Mapping[str, Tool], below: Mapping[str, Tool]) -> dict[str, Tool]:
    """Tables of a suite before those of the site: also a pattern of the suite goes before a name of the site."""
    return {**above, **{name: tool for name, tool in below.items()
                        if not any(fnmatchcase(name, pattern) for pattern in above)}}


def tool_problem(name: str, tool: Tool) -> tuple[str, str] | None:
    """(key, what is wrong with it), None when all of it can be used."""
    if not _PATTERN.fullmatch(name):
        return "", "is not the name of a tool, nor a pattern of names"
    if name == MPIRUN and tool.container:
        return "container", "cannot be: mpirun is started on the nodes, and starts containers there"
    inside = bool(tool.container) and _NAME.fullmatch(tool.path)
    if tool.path and not (inside or _is_path(tool.path)):
        return "path", "must be an absolute path" + (", or a name in the container" if tool.container else "")
    wrong = not_modules(tool.modules) or no_image(tool.container)
    return ("modules" if not_modules(tool.modules) else "container", wrong) if wrong else None


def not_modules(names: Sequence[str]) -> str:
    """What is wrong with these names of modules."""
    wrong = next((name for name in names if len(name) > 200 or not _MODULE.fullmatch(name)), None)
    return "" if wrong is None else f"has {wrong!r}, which is not the name of a module"


def no_image(image: str) -> str:
    right = not image or (len(image) <= 500 and _IMAGE.fullmatch(image))
    return "" if right else f"is {image!r}: not an image's file or name"


def no_mpi(word: str) -> str:
    """What is wrong with a way to start MPI programs."""
    return "" if _MPI.fullmatch(word) else (
        f"is {word!r}: must be pmix, pmix_v4 or another version of it, pmi2, cray_shasta, none, or mpirun")


def no_variable(name: str, value: object) -> str:
    """What is wrong with a variable of the environment."""
    if not _VARIABLE.fullmatch(name):
        return "is not the name of an environment variable"
    if name.startswith(("SLURM_", "SBATCH_", "SRUN_", "HPCADMIN_")):
        return "is Slurm's or ours: it would not reach srun, and may mislead the program"
    right = isinstance(value, str) and len(value) <= 10_000 and not {"\0", "\n", "\r"} & set(value)
    return "" if right else "must be a string of one line"


def modules_problem(modules: ModulesSite) -> tuple[str, str] | None:
    """(key, what is wrong with it)."""
    if modules.init and not _is_path(modules.init):
        return "init", "must be an absolute path"
    wrong = next((p for p in modules.paths if not _is_path(p) or ":" in p), "")
    if wrong:
        return "paths", f"has {wrong!r}, which is not an absolute path"
    return ("load", not_modules(modules.load)) if not_modules(modules.load) else None


def _is_path(text: str) -> bool:
    return text.startswith("/") and text.isprintable() and len(text) <= 1000
