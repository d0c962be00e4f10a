"""The part of the look that asks for tools: steps that find them and ask their versions, what came back, what is kept.

What the tools told is kept in tools.json beside the inventory. A tool whose file is as it was is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join

from hpcadmin import records
from hpcadmin.check import Step, Subject, Way
from hpcadmin.errors import StoreError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.frames import Frame
from hpcadmin.run_job import JobRun
from hpcadmin.rundata import PlannedTest, Stage, ToolFound
from hpcadmin.text import printable
from hpcadmin.tools import PYXIS, Ask, by_node, fold_found, found_from, image_for, read_answers, runtime_for

FIND_S = 60.0                # and 15 s for each tool that may hang
PULL_S = 600.0               # an image that is not on the node yet
_FIND = Path(__file__).with_name("slurm") / "find.sh"
_SCHEMA = 1
NAME = "tools"               # of the tests of the look


def groups_of(asks: Sequence[Ask]) -> list[tuple[Ask, ...]]:
    """Tools that are reached in the same way are asked by one step."""
    found: dict[tuple[tuple[str, ...], str], list[Ask]] = {}
    for ask in asks:
        found.setdefault((ask.site.modules, ask.site.container), []).append(ask)
    return [tuple(group) for group in found.values()]


def find_script(asks: Iterable[Ask]) -> str:
    lines = [join(["find_tool", a.tool, a.site.path, str(len(a.places)), *a.places, *a.args]) for a in asks]
    return "\n".join([_FIND.read_text(encoding="utf-8"), *lines, ""])


def find_tests(number: int, nodes: Sequence[str], asks: Sequence[Ask], known: Sequence[ToolFound], *,
               pyxis: bool) -> list[PlannedTest]:
    """One test a group of tools and set of nodes of which the same is known."""
    tests: list[PlannedTest] = []
    before = by_node(known)
    for group in groups_of(asks):
        alike: dict[tuple[str, ...], list[str]] = {}
        for node in nodes:
            alike.setdefault(tuple(_stamps(group, before.get(node, {}))), []).append(node)
        for stamps, members in alike.items():
            step = Step(("sh", "-c", find_script(group), "find", *stamps), nodes=tuple(members), name=_names(group),
                        timeout_s=FIND_S + 15 * len(group) + (PULL_S if group[0].site.container else 0),
                        way=_way(group[0], pyxis=pyxis))
            tests.append(PlannedTest(f"v{len(tests) + 1:04d}", NAME, Subject(tuple(members)), (step,), number))
    return tests


def _names(group: Sequence[Ask]) -> str:
    return " ".join(ask.tool for ask in group)


def _stamps(group: Sequence[Ask], before: Mapping[str, ToolFound]) -> Iterator[str]:
    for ask in group:
        known = before.get(ask.tool)
        if known is not None and not known.problem and known.asked == ask.key and known.stamp:
            yield f"{ask.tool} {known.path} {known.stamp}"


def _way(ask: Ask, *, pyxis: bool) -> Way:
    image = ask.site.container
    if not image:
        return Way(ask.site.modules)
    by = runtime_for(image, pyxis=pyxis)
    return Way(ask.site.modules, image=image_for(image, by), by=by)


def stages_of(tests: Sequence[PlannedTest]) -> list[Stage]:
    """Nodes run theirs by themselves; what pyxis must start comes after."""
    boxed = [t.id for t in tests if t.steps[0].way.by == PYXIS]
    plain = [t.id for t in tests if t.id not in set(boxed)]
    stages = [("look at the nodes", plain), ("look into containers", boxed)]
    return [Stage("nodes", name, tuple(ids)) for name, ids in stages if ids]


def take_tools(run: JobRun, asks: Sequence[Ask], known: Sequence[ToolFound]) -> tuple[ToolFound, ...]:
    """What the nodes have of each tool."""
    before = by_node(known)
    by_name = {ask.tool: ask for ask in asks}
    found = []
    for test in (t for t in run.tests.values() if t.check == NAME):
        frames = {f.node: f for f in run.collector.frames(test.id)}
        group = [by_name[name] for name in test.steps[0].name.split()]
        for node in test.subject.nodes:
            frame = frames.get(node)
            answers = read_answers(frame.body.decode("utf-8", "replace")) if frame else {}
            why = _why(frame) if frame else run.why_missing(test.id)
            found += [found_from(ask, node, answers.get(ask.tool), before.get(node, {}).get(ask.tool), why=why)
                      for ask in group]
    return fold_found(found)


def _why(frame: Frame) -> str:
    """Why a step that looks for tools did not come to them: the modules' or the container's own words."""
    if "timeout" in frame.flags:
        return "the look did not end in time"
    lines = [line.strip() for line in frame.body.decode("utf-8", "replace").splitlines()[:200] if line.strip()]
    told = next((line for line in lines if line.startswith(("hpcadmin: ", "FATAL"))), lines[-1] if lines else "")
    return printable(told.removeprefix("hpcadmin: "), limit=400)


# --- what is kept -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kept:
    tools: tuple[ToolFound, ...]
    schema: int = _SCHEMA


def tools_file(folder: Path) -> Path:
    return folder / "tools.json"


def read_known(path: Path) -> tuple[ToolFound, ...]:
    """What was kept; () where there is nothing, or nothing that can be read: then everything is asked anew."""
    try:
        kept: _Kept = records.loads(_Kept, read_whole(path).decode("utf-8", "replace"), where=str(path))
    except StoreError:
        return ()
    return kept.tools if kept.schema == _SCHEMA else ()


def keep(path: Path, known: Sequence[ToolFound], found: Sequence[ToolFound]) -> None:
    """Put what was found in the place of what was known of the same nodes and tools."""
    new = {(node, one.tool) for one in found for node in one.nodes}
    old = [replace(one, nodes=tuple(n for n in one.nodes if (n, one.tool) not in new)) for one in known]
    write_atomic(path, records.dumps(_Kept(fold_found([*(one for one in old if one.nodes), *found]))) + "\n")
