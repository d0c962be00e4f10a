"""Tools that checks need: where they are looked for on the nodes, what was found there, and what of it a step needs.

Pure. The order: a container that the site names; else its path; else the name on PATH; else where the tool's vendor
installs it (PLACES). Modules that the site names are loaded before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from posixpath import dirname

from hpcadmin.check import Check, Role, Status, Step, Subject, Verdict, Way
from hpcadmin.hosts import fold
from hpcadmin.rundata import Plan, ToolFound
from hpcadmin.site import Site
from hpcadmin.site_tools import MPIRUN, Tool
from hpcadmin.text import plural, printable

# Tool -> files that may be it, as patterns of a shell. OSU: `make install` with its own prefix, HPC-X, MLNX_OFED's and
# DOCA-OFED's Open MPI; nccl-tests: Azure's HPC images, AWS's Deep Learning AMIs.
PLACES: Mapping[str, tuple[str, ...]] = {
    "osu_*": (
        "/usr/local/libexec/osu-micro-benchmarks/mpi/*/{name}",
        "/usr/local/libexec/osu-micro-benchmarks/mpi/*/*/{name}",
        "/usr/libexec/osu-micro-benchmarks/mpi/*/{name}", "/usr/libexec/osu-micro-benchmarks/mpi/*/*/{name}",
        "/opt/hpcx/ompi/tests/osu-micro-benchmarks*/{name}", "/opt/hpcx-*/ompi/tests/osu-micro-benchmarks*/{name}",
        "/usr/mpi/gcc/openmpi-*/tests/osu-micro-benchmarks*/{name}"),
    "*_perf": ("/opt/nccl-tests/build/{name}", "/usr/local/cuda-*/efa/test-cuda-*/{name}"),
}
PYXIS, APPTAINER = "pyxis", "apptainer"
MPICC = "mpicc"
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_BAD_WORDS = re.compile(r"error|warn|fail|cannot|couldn.t|could not|unable|recogni|unknown|invalid|illegal|usage|"
                        r"no such|not found|denied|abort|signal", re.IGNORECASE)
_NAMED = re.compile(r"\b(?:version\b[^0-9\n]{0,12}|v)\d{1,4}\.\d", re.IGNORECASE)
_LEADING = re.compile(r"[A-Za-z0-9_. /(),-]{0,40}?\b\d{1,4}\.\d")
_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6})+")
_NO_START = re.compile(r"error while loading shared libraries: .*|.*exec format error.*|.*illegal instruction.*",
                       re.IGNORECASE)


@dataclass(frozen=True)
class Ask:
    """A tool that the look looks for. args: that make it print its version; (): it can tell none."""

    tool: str
    site: Tool
    args: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        return () if self.site.path or self.site.container else places_of(self.tool)

    @property
    def key(self) -> str:
        """Tells whether an answer is one to this question."""
        return printable(repr((self.site.path, self.site.modules, self.site.container, self.args)), limit=2000)


@dataclass(frozen=True)
class Answer:
    """What find.sh printed of one tool on one node."""

    path: str = ""
    in_place: bool = False
    stamp: str = ""
    noexec: bool = False
    foreign: bool = False
    odd: bool = False
    lacks: tuple[str, ...] = ()
    same: bool = False                   # as it was when its version was asked before
    text: str = ""
    status: int | None = None
    whole: bool = False


def places_of(tool: str) -> tuple[str, ...]:
    return tuple(place.replace("{name}", tool) for pattern, places in PLACES.items() if fnmatchcase(tool, pattern)
                 for place in places)


def asks_of(checks: Iterable[Check], site: Site, hardware: Iterable[str]) -> tuple[Ask, ...]:
    """Tools whose version a check asks for, of which the site says something, or that have no place on PATH. The others
    are those of the system: what the inventory tells of them is enough."""
    found: dict[str, Ask] = {}
    for check in checks:
        for name in (*check.needs, *check.uses):
            args = check.probe[1:] if check.probe[:1] == (name,) else ()
            known = site.tool(name)
            if name not in hardware and (args or known != Tool() or places_of(name)):
                found[name] = Ask(name, known, args or (found[name].args if name in found else ()))
    return tuple(found.values())


# --- containers -------------------------------------------------------------------------------------------------


def runtime_for(image: str, *, pyxis: bool) -> str:
    """What starts it: SIF files and libraries of them are Apptainer's, everything else pyxis's where Slurm has it."""
    return APPTAINER if not pyxis or re.search(r"\.sif$|^(?:oras|library|shub|docker-daemon)://", image) else PYXIS


def image_for(image: str, by: str) -> str:
    """The image's name as pyxis or Apptainer write it: REGISTRY#IMAGE:TAG, docker://REGISTRY/IMAGE:TAG."""
    if image.startswith(("/", "./")) or ("://" in image and not image.startswith("docker://")):
        return image
    bare = image.removeprefix("docker://")
    if by == APPTAINER:
        return bare if re.search(r"\.(?:sif|sqsh|img)$", bare) else f"docker://{bare.replace('#', '/', 1)}"
    registry, slash, rest = bare.partition("/")
    named = slash and "#" not in bare and ("." in registry or ":" in registry or registry == "localhost")
    return f"{registry}#{rest}" if named else bare


# --- what a look found ------------------------------------------------------------------------------------------


def read_answers(text: str) -> dict[str, Answer]:
    """Tool -> answer, from what find.sh printed; one that is cut off is not `whole`."""
    found: dict[str, Answer] = {}
    name = ""
    lines: list[str] = []
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "tool" and not name:
            name, lines = rest, []
        elif word == "end" and rest == name and name:
            found[name] = _answer(lines, whole=True)
            name = ""
        elif name:
            lines.append(line)
    if name:
        found[name] = _answer(lines, whole=False)
    return found


def _answer(lines: Sequence[str], *, whole: bool) -> Answer:
    words: dict[str, str] = {}
    lacks: list[str] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "lacks":
            lacks += [printable(rest, limit=100)] if len(lacks) < 20 else []
        elif not line.startswith("|"):
            words.setdefault(word, rest)
    status = words.get("status", "")
    return Answer(
        words.get("where", words.get("place", "")), "place" in words, printable(words.get("stamp", ""), limit=60),
        "noexec" in words, "foreign" in words, "odd" in words, tuple(lacks), "same" in words,
        "\n".join(line[1:] for line in lines if line.startswith("|")),
        int(status) if len(status) < 4 and status.isascii() and status.isdigit() else None, whole)


def found_from(ask: Ask, node: str, answer: Answer | None, before: ToolFound | None = None, *,
               why: str = "") -> ToolFound:
    """What a node has of a tool. why: the look itself came to nothing there. before: what was known of it."""
    way = way_of(ask, in_place=answer is not None and answer.in_place)
    result = ToolFound(ask.tool, (node,), way=way, asked=ask.key)
    if answer is None or not answer.whole:
        return replace(result, problem=f"could not be looked for: {why or 'the look was cut off'}")
    path = answer.path
    if not path:
        return replace(result, problem=_absent(ask))
    if not path.startswith("/") or len(path) > 1000 or not path.isprintable():
        return replace(result, problem=f"is in a place that cannot be used: {printable(path, limit=200)}")
    version = before.version if answer.same and before else version_of(answer.text, answer.status)
    return replace(result, path=path, stamp=answer.stamp, version=version, problem=_no_start(answer))


def _absent(ask: Ask) -> str:
    within = f" in the container {ask.site.container}" if ask.site.container else ""
    if ask.site.path.startswith("/"):
        return f"is not there: no file {ask.site.path}{within} (site.toml)"
    loaded = f" after module load {' '.join(ask.site.modules)}" if ask.site.modules else ""
    places = list(dict.fromkeys(dirname(place) for place in ask.places))
    more = f" and {plural(len(places) - 2, 'more folder')} of vendors" if len(places) > 2 else ""
    others = f", nor in {', '.join(places[:2] if more else places)}{more}" if places else ""
    return f"is not there: not on PATH{within}{loaded}{others}"


def _no_start(answer: Answer) -> str:
    """Why a tool that is there would not start, as far as the look can tell."""
    said = next((m[0] for m in map(_NO_START.fullmatch, answer.text.split("\n")) if m), "")
    if answer.noexec:
        return f"is not executable: {printable(answer.path, limit=200)}"
    if answer.lacks:
        return (f"does not start: error while loading shared libraries: {', '.join(answer.lacks)}: "
                f"not found for {printable(answer.path, limit=200)}")
    if answer.foreign or answer.odd:
        what = "built for another processor" if answer.foreign else "neither a program nor a script"
        return f"does not start: exec format error: {printable(answer.path, limit=200)} is {what}"
    said = said or next((line for line in answer.text.split("\n") if "error while loading" in line), "")
    if said or answer.status in (126, 127, 132):
        told = said or answer.text.strip().split("\n")[-1] or f"exit status {answer.status}"
        return f"does not start: {printable(told.strip(), limit=200)}"
    return ""


def version_of(text: str, status: int | None) -> str:
    """The line that tells a tool's version, "" when none does. Many end with status 1 after they have told it."""
    lines = [line.strip() for line in text.split("\n")[:100] if line.strip() and not _BAD_WORDS.search(line[:400])]
    named = next((line for line in lines if _NAMED.search(line[:400])), "")
    leading = next((line for line in lines[:1] if _LEADING.match(line)), "") if status == 0 else ""
    return printable(named or leading, limit=200)


def numbers_of(version: str) -> tuple[int, ...]:
    """(7, 4) of "# OSU MPI Bandwidth Test v7.4"; () where it has none."""
    found = _NUMBERS.search(version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def way_of(ask: Ask, *, in_place: bool = False) -> str:
    """In words."""
    by_modules = f"module{'s' if len(ask.site.modules) > 1 else ''} {', '.join(ask.site.modules)}"
    if ask.site.container:
        return f"container {ask.site.container}" + (f", {by_modules}" if ask.site.modules else "")
    parts = ["site.toml"] if ask.site.path else ["its vendor's folder"] if in_place else []
    return ", ".join([*([by_modules] if ask.site.modules else []), *parts]) or "PATH"


def fold_found(found: Iterable[ToolFound]) -> tuple[ToolFound, ...]:
    """One record for all nodes that have the same of a tool."""
    together: dict[ToolFound, list[str]] = {}
    for one in found:
        together.setdefault(replace(one, nodes=()), []).extend(one.nodes)
    return tuple(replace(one, nodes=tuple(nodes)) for one, nodes in together.items())


def told_before(asks: Iterable[Ask], nodes: Sequence[str], known: Iterable[ToolFound]) -> list[ToolFound]:
    """What was told of these tools on these nodes when they were last looked for in this way, for a plan that is only
    shown."""
    table = by_node(known)
    found = []
    for ask in asks:
        for node in nodes:
            one = table.get(node, {}).get(ask.tool)
            if one is None or one.asked != ask.key:
                one = ToolFound(ask.tool, (), way=way_of(ask), problem=f"has not been looked for yet ({way_of(ask)})")
            found.append(replace(one, nodes=(node,)))
    return list(fold_found(found))


def by_node(found: Iterable[ToolFound]) -> dict[str, dict[str, ToolFound]]:
    """Node -> tool -> what it has of it."""
    table: dict[str, dict[str, ToolFound]] = {}
    for one in found:
        for node in one.nodes:
            table.setdefault(node, {})[one.tool] = one
    return table


# --- what a plan says and needs of it ---------------------------------------------------------------------------


def version_for(tool: str, nodes: Iterable[str], found: Mapping[str, Mapping[str, ToolFound]]) -> str:
    """The version that the options of a step over these nodes must suit: of several the oldest, which has what all
    have; "" as soon as one node's is unknown."""
    told = dict.fromkeys(found[n][tool].version if n in found and tool in found[n] else "" for n in nodes)
    if not all(numbers_of(version) for version in told):
        return next(iter(told)) if len(told) == 1 else ""
    return min(told, key=numbers_of, default="")


def ways_of(check: Check, nodes: Sequence[str], site: Site, paths: Mapping[str, Mapping[str, str]], *,
            pyxis: bool) -> tuple[Way, dict[str, Way]]:
    """What every step of a check needs, and by the word that a step's command has for a tool in a container, what the
    steps with that word need beside it."""
    tools = {name: site.tool(name) for name in (*check.needs, *check.uses, *([MPICC] if check.builds else []))}
    modules = dict.fromkeys([*site.modules.load, *(module for tool in tools.values() for module in tool.modules)])
    folders: dict[str, None] = {}
    boxes: dict[str, Way] = {}
    for name, tool in tools.items():
        where = dict.fromkeys(paths.get(n, {}).get(name, "") for n in nodes)
        if tool.container and name != MPICC:
            by = runtime_for(tool.container, pyxis=pyxis)
            boxes.update({word: Way(image=image_for(tool.container, by), by=by) for word in (*where, name) if word})
        elif len(where) > 1:                    # the step has the bare name; these folders come after those of PATH
            folders.update((dirname(path), None) for path in where if _off_path(name, path))
    return Way(tuple(modules), tuple(folders)), boxes


def _off_path(tool: str, path: str) -> bool:
    """Whether a user's PATH may lack the folder of it. Only folders that we know: a node's word is no reason to look
    into others on all nodes."""
    file = PurePosixPath(path)
    return file.name == tool and (str(file.parent) in _SBIN or any(file.match(place) for place in places_of(tool)))


def way_for(step: Step, ways: tuple[Way, dict[str, Way]], site: Site) -> Way:
    """The way of a step."""
    always, boxes = ways
    box = next((boxes[word] for word in step.argv if word in boxes), None) if boxes else None
    way = always if box is None else replace(always, image=box.image, by=box.by)
    if step.role is not Role.RANKS or site.slurm.mpi != MPIRUN:
        return way
    return replace(way, modules=tuple(dict.fromkeys((*site.tool(MPIRUN).modules, *way.modules))))


def notes_of(found: Sequence[ToolFound]) -> tuple[str, ...]:
    """For the head of plan and report: where tools come from and which version they are, those of one kind together."""
    lines: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if not one.problem:
            lines.setdefault((_short(one.version), one.way), []).append(one.tool)
    return tuple(f"{', '.join(dict.fromkeys(tools))} {number} ({way})" for (number, way), tools in lines.items())


def with_tools(plan: Plan, found: Sequence[ToolFound], checks: Iterable[Check]) -> Plan:
    """The plan with what was found of the tools that its checks need: where they come from, and who differs."""
    used = {tool for check in checks for tool in (*check.uses, *check.needs)}
    mine = fold_found(replace(one, stamp="", asked="") for one in found if one.tool in used)
    notes = tuple(f"tools: {note}" for note in notes_of(mine))
    return replace(plan, tools=mine, notes=(*plan.notes, *notes), verdicts=(*plan.verdicts, *mixed(mine)))


def mixed(found: Sequence[ToolFound]) -> list[Verdict]:
    """A warning for each tool that is not the same on all nodes, about those that differ from most."""
    verdicts = []
    for tool in dict.fromkeys(one.tool for one in found):
        groups: dict[str, list[str]] = {}
        for one in found:
            if one.tool == tool and not one.problem:
                groups.setdefault(one.version, []).extend(one.nodes)
        if len(groups) < 2:
            continue
        most = max(groups, key=lambda version: (len(groups[version]), numbers_of(version)))
        told = "; ".join(f"{_short(v)} on {fold(nodes)}" for v, nodes in groups.items() if v != most)
        rest = tuple(n for v, nodes in groups.items() if v != most for n in nodes)
        verdicts.append(Verdict(
            "tools", Subject(rest), Status.WARN, f"{tool} is {told}, and {_short(most)} on the other "
            f"{plural(len(groups[most]), 'node')}", basis="plan"))
    return verdicts


def _short(version: str) -> str:
    number = _NUMBERS.search(version)
    return number[0] if number else repr(version) if version else "of unknown version"
