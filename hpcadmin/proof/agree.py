"""What Slurm takes in silence and is not so: sockets, cores, threads, GPUs, the sockets near them.

Memory is none of it: slurmd has this machine's, and conf check itself compares RealMemory with the inventory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Severity
from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.conf.keys import NODE_PARAMETERS
from hpcadmin.conf.sockets import Layout, layout, near_cores
from hpcadmin.errors import ParseError, UsageError
from hpcadmin.facts import slurmd
from hpcadmin.facts._slurm_gres import core_ids
from hpcadmin.proof.kinds import Kind, sockets_of
from hpcadmin.proof.parts import NodeAnswer
from hpcadmin.text import fold_ids

Counts = tuple[int, int, int]            # sockets, cores of each, threads of each
_SEEN = re.compile(r"Gres Name=(\S{1,60}) Type=(\S{1,100}) .*?File=(\S{1,4000})")
_SOCKETS = re.compile(r"\(S:([\d,-]{1,200})\)")


def agreement(kind: Kind, answer: NodeAnswer, conf: Configuration) -> Iterator[Finding]:
    if "INVAL" not in answer.state:
        yield from _shape(kind, answer)
    if answer.state.startswith("IDLE"):
        yield from _gres(kind, answer)
        yield from _affinity(kind, answer, conf)


def counts(kind: Kind, answer: NodeAnswer) -> dict[str, Counts]:
    """What slurmd finds, by who says so. slurmd -C knows the parameters of virtual sockets from 25.11 on only."""
    found: dict[str, Counts] = {}
    told = answer.slurmd
    with contextlib.suppress(KeyError, ValueError):
        # Sockets of all boards.
        found["slurmd"] = (int(told["actual sockets"]), int(told["actual cores"]),
                           int(told["actual threads per core"]))
    if not kind.hardware.parameters or _version(told.get("version", "")) >= NODE_PARAMETERS:
        try:
            made = slurmd.parse(answer.measured)
        except ParseError:
            return found
        shape = (made.sockets or 0, made.cores_per_socket or 0, made.threads_per_core or 0)
        # With boards of different sizes its own product does not come out.
        if made.cpus and shape[0] * shape[1] * shape[2] == made.cpus:
            found["slurmd -C"] = shape
    return found


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"(\d{2})\.(\d{2})", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _shape(kind: Kind, answer: NodeAnswer) -> Iterator[Finding]:
    shape = kind.group.shape
    if shape is None:
        return
    if shape.reset is not None:
        yield Finding(Severity.WRONG, f"CPUs={kind.line.get('cpus')} fits neither sockets, cores nor threads",
                      f"slurmctld takes CPUs={shape.reset}", place=kind.line.place)
    for who, found in counts(kind, answer).items():
        if (shape.sockets, shape.cores, shape.threads) != found:
            text = f"Sockets={found[0]} CoresPerSocket={found[1]} ThreadsPerCore={found[2]}"
            yield Finding(Severity.WRONG, f"{shape.text}, and {who} finds {text}",
                          "Slurm takes it, and counts cores that are not so", (text,), _counted_at(kind))
            return


def _counted_at(kind: Kind) -> Place:
    """As the rule that compares with the inventory has it, so that both are one finding."""
    values = kind.line.values
    return next((values[key].place for key in ("sockets", "socketsperboard", "corespersocket", "threadspercore", "cpus")
                 if key in values), kind.line.place)


# --- gres ----------------------------------------------------------------------------------------------------------


def _gres(kind: Kind, answer: NodeAnswer) -> Iterator[Finding]:
    """Devices of gres.conf that slurmd -G does not have, or has without their type."""
    if kind.group.autodetect is not None or "Gres Name=" not in answer.gres:
        return
    seen = dict(_seen(answer.gres))
    for line in kind.group.lines:
        lost = [path for path in line.files if path not in seen]
        if lost:
            yield Finding(Severity.WRONG, f"slurmd leaves {', '.join(lost)} out",
                          f"Gres= of the node line has fewer than gres.conf: {answer.node.get('Gres', '')}",
                          place=line.place)
        elif line.get("type") and any(seen[path] == "(null)" for path in line.files):
            yield Finding(Severity.WRONG, f"slurmd drops Type={line.get('type')}",
                          f"the node line has no type: {answer.node.get('Gres', '')}, and no job can ask for one",
                          place=line.place)


def _seen(text: str) -> Iterator[tuple[str, str]]:
    """(device file, type or "(null)") of what slurmd -G prints."""
    for match in _SEEN.finditer(text):
        try:
            files = hostlist.expand(match[3])
        except UsageError:
            files = (match[3],)
        for path in files:
            yield path, match[2]


def _affinity(kind: Kind, answer: NodeAnswer, conf: Configuration) -> Iterator[Finding]:
    """The sockets in `Gres=…(S:…)`, which decide where jobs with GPUs run, against those near the node's GPUs."""
    if kind.node is None or not kind.node.gpus:
        return
    shown = answer.node.get("Gres", "")
    made = layout(kind.node.cpu, sockets_of(conf, kind.line))
    bound = [line for line in kind.group.of() if line.get("cores") or line.get("cpus")]
    # A line without Cores= is near all sockets. It is in (S:…) where it follows one with Cores=, else it is left out.
    named = {path for line in bound for path in line.files}
    near = [near_cores(kind.node.cpu, gpu).cores for gpu in kind.node.gpus
            if not named or not gpu.device_file or gpu.device_file in named]
    if not isinstance(made, Layout) or not made.spans or any(cores is None for cores in near):
        return
    expected = {place for cores in near if cores is not None
                for place, span in enumerate(made.spans) if span & cores}
    has = _sockets(shown)
    every = {*range(len(made.spans))} if len(bound) < len(kind.group.of()) else expected
    if has in (expected, every) or all(cores is not None and len(cores) == made.cores for cores in near):
        return
    close = f"the node's GPUs are near sockets {fold_ids(expected)}"
    if not has and bound:
        yield Finding(Severity.WRONG, f"Gres={shown}: Slurm has dropped Cores=", close, place=bound[0].place)
    elif not has:
        yield Finding(Severity.NOTE, f"Gres={shown} without (S:…)", f"Slurm does not know that {close}",
                      place=kind.line.place)
    else:
        yield Finding(Severity.WRONG, f"Gres={shown}: sockets {fold_ids(has)}", close,
                      place=bound[0].place if bound else kind.line.place)


def _sockets(gres: str) -> set[int]:
    found: set[int] = set()
    for match in _SOCKETS.finditer(gres):
        try:
            found |= set(core_ids(match[1]))
        except ParseError:
            continue
    return found
