"""The look job: the probe through Slurm on every node, and our C programs built with the site's own compiler."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcadmin.check import Check, Step, Subject, Way
from hpcadmin.errors import HpcadminError, SiteError, StoreError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.frames import cksum
from hpcadmin.inventory import build, load
from hpcadmin.model import Failed, Inventory, Node
from hpcadmin.plan_facts import HARDWARE
from hpcadmin.registry import Suite
from hpcadmin.resources import data_dir
from hpcadmin.run_job import JobRun
from hpcadmin.run_tools import NAME as TOOLS
from hpcadmin.run_tools import find_tests, stages_of, take_tools
from hpcadmin.rundata import PlannedJob, PlannedTest, ToolFound
from hpcadmin.site import Site
from hpcadmin.slurm.script import programs_dir
from hpcadmin.text import plural, printable
from hpcadmin.tools import MPICC, Ask, asks_of

PROBE_S, BUILD_S = 60.0, 120.0
_BUILD = """\
cc=$1 src=$2 dir=$3 name=$4
command -v "$cc" >/dev/null || { echo "error: $cc is not there"; exit 127; }
mkdir -p "$dir" || exit 1
new=$dir/.$name.$(uname -n).$$
trap 'rm -f "$new"' EXIT
"$cc" -O2 -o "$new" "$src" -lm || exit 1
chmod 755 "$new" && mv -f "$new" "$dir/$name" || exit 1
command -v "$cc"
"$cc" --version 2>/dev/null | head -n 1
"""


# Where the node sees neither the source nor the place for the program: that comes as a word, this goes back as text.
_BUILD_AWAY = """\
cc=$1 name=$3
command -v "$cc" >/dev/null || { echo "error: $cc is not there"; exit 127; }
dir=$(mktemp -d "$2/hpcadmin-build-XXXXXXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
printf '%s' "$4" >"$dir/$name.c"
"$cc" -O2 -o "$dir/$name" "$dir/$name.c" -lm || exit 1
echo "# program $(cksum <"$dir/$name")"
base64 "$dir/$name"
"""
MOST_PROGRAM = 8 * 1024 * 1024


@dataclass(frozen=True)
class Wanted:
    """What must be known and built before a suite can be planned."""

    tools: tuple[str, ...]                       # names that the inventory must tell of
    programs: Mapping[str, Path]                 # program of ours -> where it lies once it is built
    sources: Mapping[str, Path]
    asks: tuple[Ask, ...] = ()                   # tools that every run looks for, because they may have changed
    also: tuple[str, ...] = ()                   # looked for beside them; that they are unknown is no reason to look

    @property
    def unbuilt(self) -> tuple[str, ...]:
        return tuple(p for p, path in self.programs.items() if not os.access(path, os.X_OK))


@dataclass(frozen=True)
class Seen:
    """What is known after the look, or without one."""

    inventory: Inventory | None
    programs: Mapping[str, str] = field(default_factory=dict)
    unbuilt: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)    # node -> why there is no capture of it
    tools: tuple[ToolFound, ...] = ()


def wanted(suite: Suite, checks: Mapping[str, Check], site: Site, bins: Path) -> Wanted:
    """What the checks of the suite need. Raises StoreError when a source of ours is missing."""
    used = [checks[name] for entry in suite.entries for name in entry.names]
    asks = asks_of(used, site, HARDWARE)
    asked = {ask.tool for ask in asks}
    tools = dict.fromkeys(n for c in used for n in c.needs if n not in HARDWARE and n not in asked)
    also = dict.fromkeys(n for c in used for n in c.uses if n not in HARDWARE and n not in asked)
    programs = dict.fromkeys(p for c in used for p in c.builds)
    folder = data_dir("checks") / "src"
    sources = {p: folder / f"{p}.c" for p in programs}
    if programs and site.tool(MPICC).container:
        raise SiteError(f"[tools.{MPICC}] container: our programs are built on the nodes", where=site.source,
                        hint="path, or modules")
    hashed = bins / _hash(sources.values(), " ".join([_compiler(site), *site.tool(MPICC).modules]))
    return Wanted(tuple(tools), {p: hashed / p for p in programs}, sources, asks, tuple(also))


def _compiler(site: Site) -> str:
    return site.tool(MPICC).path or MPICC


def _hash(sources: Iterable[Path], compiler: str) -> str:
    total = hashlib.sha256(compiler.encode())
    for path in sorted(sources):
        total.update(path.name.encode() + b"\0" + read_whole(path))
    return total.hexdigest()[:16]


def needed(nodes: Sequence[str], known: Inventory | None, want: Wanted) -> str:
    """Why a look is needed, "" when everything is known and built."""
    if why := unknown(nodes, known, want):
        return why
    if want.unbuilt:
        return f"{', '.join(want.unbuilt)} must be built"
    names = [ask.tool for ask in want.asks]
    more = f" and {plural(len(names) - 3, 'more tool')}" if len(names) > 4 else ""
    return f"{', '.join(names[:3] if more else names)}{more}: where, and which version" if names else ""


def unknown(nodes: Sequence[str], known: Inventory | None, want: Wanted) -> str:
    """What the inventory does not tell, "" when it tells all that the suite needs."""
    if known is None:
        return "there is no inventory"
    for name in nodes:
        node = known.node(name)
        if node is None:
            return f"{name} is not in the inventory"
        missing = [t for t in want.tools if t not in node.tools]
        if missing:
            return f"the inventory does not tell whether {name} has {', '.join(missing)}"
    return ""


def look_job(number: int, nodes: Sequence[str], want: Wanted, *, site: Site, folder: Path, sources: Path,
             probe: bool = True, known: Sequence[ToolFound] = (),
             pyxis: bool = False) -> tuple[PlannedJob, dict[str, PlannedTest]]:
    """The job that looks; its files are written into `folder`, copies of our sources into `sources`.

    probe: whether the nodes are captured; known: what was told of tools before.
    """
    tests: list[PlannedTest] = []
    if probe:
        from hpcadmin.facts import new_token, probe_script  # noqa: PLC0415  (all readers: of a look only)
        script, token = probe_script(tools=(*want.tools, *want.also)), new_token()
        write_atomic(folder / "probe.sh", script)
        start = ("-c", script, "probe") if site.away else (str(folder / "probe.sh"),)
        tests = [PlannedTest(f"p{i:04d}", "probe", Subject((node,)), (Step(
            ("sh", *start, token), nodes=(node,), timeout_s=PROBE_S),), number) for i, node in enumerate(nodes, 1)]
    for place, program in enumerate(want.unbuilt, 1):
        source = read_whole(want.sources[program])
        write_atomic(sources / f"{program}.c", source)
        argv = ("sh", "-c", _BUILD, "build", _compiler(site), str(sources / f"{program}.c"),
                str(want.programs[program].parent), program)
        if site.away:
            argv = ("sh", "-c", _BUILD_AWAY, "build", _compiler(site), site.away, program, source.decode())
        tests.append(PlannedTest(f"b{place:04d}", f"build {program}", Subject((nodes[0],)), (
            Step(argv, nodes=(nodes[0],), timeout_s=BUILD_S, way=Way(site.tool(MPICC).modules)),), number))
    asking = find_tests(number, nodes, want.asks, known, pyxis=pyxis)
    tests += asking
    seconds = PROBE_S + BUILD_S * len(want.unbuilt) + sum(t.steps[0].timeout_s for t in asking)
    return (PlannedJob(number, "look", tuple(nodes), tuple(stages_of(tests)), 2.0, int(seconds // 60) + 3),
            {t.id: t for t in tests})


def take(run: JobRun, want: Wanted, created: str, read: Callable[[str, str], Node] | None = None,
         known: Sequence[ToolFound] = ()) -> Seen:
    """What the finished look job found. A node without a readable capture is in `silent` with the reason."""
    if read is None:
        from hpcadmin.facts import read_capture  # noqa: PLC0415
        read = read_capture
    nodes: list[Node] = []
    silent: dict[str, str] = {}
    unbuilt: dict[str, str] = {}
    for test in (t for t in run.tests.values() if t.check != TOOLS):
        why = run.why_missing(test.id)
        frames = run.collector.frames(test.id)
        node = test.subject.nodes[0]
        if test.check == "probe":
            try:
                if why or "timeout" in frames[0].flags:
                    raise StoreError(why or f"the probe did not end within {PROBE_S:g} s")
                nodes.append(read(frames[0].body.decode("utf-8", "replace"), node))
            except HpcadminError as exc:
                silent[node] = str(exc)
        else:
            program = test.check.removeprefix("build ")
            if why or frames[0].status != 0:
                unbuilt[program] = why or _first_error(frames[0].body, node)
            elif run.options.node_dir and (bad := _bring(frames[0].body, want.programs[program])):
                unbuilt[program] = f"mpicc on {node}: {bad}"
    failed = [Failed(node, reason) for node, reason in silent.items()]
    built = {p: str(path) for p, path in want.programs.items() if p not in unbuilt}
    captured = any(t.check == "probe" for t in run.tests.values())
    return Seen(build(nodes, failed, created) if captured else None, built, unbuilt, silent,
                take_tools(run, want.asks, known))


def on_nodes(programs: Mapping[str, str], site: Site) -> dict[str, str]:
    """Program -> its path as the nodes have it."""
    return {p: f"{programs_dir(site.away)}/{p}" for p in programs} if site.away else dict(programs)


def _bring(body: bytes, path: Path) -> str:
    """Keep a program that a node has built and printed; why that cannot be done, "" when it was."""
    _, mark, rest = body.partition(b"# program ")
    line, _, text = rest.partition(b"\n")
    try:
        raw = base64.b64decode(b"".join(text.split()), validate=True)
    except ValueError:
        raw = b""
    if not mark or not raw or line.split() != f"{cksum(raw)} {len(raw)}".encode().split() or len(raw) > MOST_PROGRAM:
        return "the program did not come back whole"
    write_atomic(path, raw, mode=0o755)
    return ""


def _first_error(body: bytes, node: str) -> str:
    """The compiler's first error, else its first line."""
    lines = [line.strip() for line in body.decode("utf-8", "replace").splitlines() if line.strip()]
    told = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "it said nothing")
    return f"mpicc on {node}: {printable(told.removeprefix('hpcadmin: '), limit=300)}"


def accepted_inventory(path: Path, *, required: bool) -> Inventory | None:
    """The accepted inventory; None where none is yet. A file that was named must be there and sound."""
    if not required and not path.exists():
        return None
    try:
        return load(path)
    except StoreError as exc:
        raise SiteError(exc.what, where=exc.where, hint=exc.hint) from exc
