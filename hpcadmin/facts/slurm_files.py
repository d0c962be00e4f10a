"""Slurm's own files and logs, whole or in pieces: slurm.conf, gres.conf, topology.conf, `scontrol`, slurmd -G, logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.facts import _slurm_checks as checks
from hpcadmin.facts import _slurm_conf, _slurm_log, _slurm_paste, _slurm_tree, _slurm_yaml
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._slurm_conf import Conf, NodeLine
from hpcadmin.facts._slurm_daemons import ELSEWHERE
from hpcadmin.facts._slurm_gres import AUTODETECT, GresLine, gres_items, types_of
from hpcadmin.facts._slurm_log import Log
from hpcadmin.facts._slurm_tree import Tree
from hpcadmin.hosts import expand

FORMS = ("text",)
# Keys in every writing of theirs, and the messages of slurmd and slurmctld.
MARKS = ("Name=", "name=", "NAME=", "Gres=", "gres=", "GRES=", "etect=", "ETECT=", "Sizes=", "sizes=", "SIZES=", "gpu:",
         "PerCore=", "Percore=", "percore=", "PERCORE=", "differs from hardware", "CPUs:", "lower than configured",
         "Count changed", "setting Sockets=", "configured to autodetect", "lib wasn", "lookup failure", "nvalid node",
         "match no Sockets", "Low CPUs", "Low RealMemory", "Low socket", "Low TmpDisk", "ismatch", "ISMATCH", "hild",
         "HILD", "are being ignored", "GRES[gpu]", "fatal: ", "error: ", "low real_memory", "socket/core boundaries",
         "socket boundaries", "topology:", "gres/", "gres.conf", "file-less GPU", "config-only GPU", "lack access",
         "leaf switches", "Reason=", "REASON", "lugin", "opology")
MAX_GPUS = 64
_LISTED = re.compile(r"GPU \d{1,3}: (.{1,80}?) \(UUID: ")
_VISIBLE = re.compile(r"`?visible_core_count`?[^\d\n]{0,30}((?:\d{1,4}(?:, (?:and )?| and )?){1,16})")


@dataclass(frozen=True)
class _Side:
    """A text, or what a patch has before or after it."""

    document: Document
    conf: Conf
    tree: Tree | None
    log: Log


def _sides(document: Document, spread: Sequence[str]) -> tuple[_Side, ...]:
    return tuple(_Side(replace(document, lines=lines), _slurm_conf.collect(lines),
                       _slurm_tree.collect(lines) or _slurm_yaml.collect(lines), _slurm_log.collect(lines))
                 for lines in _slurm_paste.sides(_slurm_paste.plain(spread)))


def _once(findings: Iterable[Finding], numbers: Sequence[int]) -> list[Finding]:
    """Each but once, with the numbers of the text's own lines."""
    placed = [replace(each, line=numbers[each.line - 1]) if numbers and each.line else each for each in findings]
    return list({(each.what, each.line): each for each in placed}.values())


def read(document: Document) -> tuple[Reading, ...]:
    lines, numbers = _slurm_paste.spread(document.lines)
    found = [reading for side in _sides(document, lines) for reading in _read(side)]
    if numbers:
        found = [replace(each, first=numbers[each.first - 1], last=numbers[each.last - 1],
                         findings=tuple(_once(each.findings, numbers))) for each in found]
    if len(found) < 2:
        return tuple(found)
    before, after = found
    said = _once((*before.findings, *after.findings), ())
    known = {**after.known, "wrong": True if before.known["wrong"] else after.known["wrong"]}
    return (replace(after, first=min(before.first, after.first), last=max(before.last, after.last), known=known,
                    findings=tuple(said)),)


def _read(side: _Side) -> tuple[Reading, ...]:
    document, conf, tree, log = side.document, side.conf, side.tree, side.log
    lines = sorted({*conf.lines, *(tree.lines if tree else ()), *log.lines})
    if not lines:
        return ()
    # slurmd -C alone has a reader of its own.
    if not tree and not log.lines and not conf.gres and all(node.source == "slurmd -C" for node in conf.nodes) and (
            not conf.partitions and not conf.autodetect and not conf.wanted):
        return ()
    findings = [*conf.findings, *checks.found(conf, document), *log.findings, *(tree.findings if tree else ())]
    known: dict[str, Any] = {**_known(conf, document), **(tree.known if tree else {}), **log.known}
    right = [*log.right, *(tree.right if tree else ()), *_right(conf)]
    prose = not conf.lines and not tree and not _is_log(document)
    visible = _VISIBLE.search("\n".join(document.lines)[:100_000]) if prose else None
    if visible:
        known["visible_cores"] = [int(number) for number in re.findall(r"\d+", visible[1])]
    missing = [*dict.fromkeys([*_missing(conf), *log.missing, *_slurm_log.unfinished(document.lines)])]
    known["wrong"] = _verdict(conf, findings)
    known["right_lines"] = right
    refused = "words about a configuration, not one: no line of Slurm's is in it" if prose and visible else ""
    return (Reading("Slurm files", lines[0], lines[-1], conf, known, tuple(findings), tuple(missing), refused,
                    tuple(_assumed(conf))),)


@dataclass(frozen=True)
class Told:
    """What a text tells beside its lines of slurm.conf and gres.conf: logs, commands, topology.

    conf: those lines. right: lines that would be right, as far as the text determines them; assumed: those that hang on
    the assumption beside them.
    """

    conf: Conf
    findings: tuple[Finding, ...]
    right: tuple[str, ...]
    missing: tuple[str, ...]
    assumed: tuple[tuple[str, str], ...] = ()
    prose: bool = False              # words about a configuration, and no line of one
    sides: tuple[tuple[tuple[str, ...], Conf], ...] = ()     # the lines, of a patch before and after it
    numbers: tuple[int, ...] = ()    # of each of these lines in the text, where they are not the same


def told(document: Document) -> Told | None:
    """None where the text has nothing of Slurm's."""
    lines, numbers = _slurm_paste.spread(document.lines)
    sides = _sides(document, lines)
    if not any(side.conf.lines or side.tree or side.log.lines for side in sides) and not any(
            map(_slurm_paste.cut, lines[-3:])):
        return None
    conf, tree, log = sides[-1].conf, sides[-1].tree, sides[-1].log
    found = _once((each for side in sides for each in (
        *checks.measured_findings(side.conf), *checks.across(side.conf, side.document), *side.log.findings,
        *(side.tree.findings if side.tree else ()))), numbers)
    right = (*log.right, *(tree.right if tree else ()), *_right(conf))
    both = bool(conf.nodes and conf.gres)
    missing = dict.fromkeys([*_missing(conf), *(what.removeprefix(_slurm_log.LINES) if both else what
                                                for what in log.missing), *_slurm_log.unfinished(document.lines)])
    assumed = tuple((str(each["if"]), line) for each in _assumed(conf) for line in each["right_lines"])
    return Told(conf, tuple(found), right, tuple(missing), assumed,
                not conf.lines and not tree and not _is_log(document),
                tuple((tuple(side.document.lines), side.conf) for side in sides), numbers)


def _is_log(document: Document) -> bool:
    return any("slurm" in line or "error:" in line or "Reason=" in line or "###" in line or "gres/" in line
               for line in document.lines[:200])


def _verdict(conf: Conf, findings: list[Finding]) -> bool | None:
    """None where it depends on what is not in the text."""
    if any(not finding.note for finding in findings):
        return True
    sized = any(node.get("sockets") for node in conf.nodes)
    if any(finding.note and (finding.what.startswith("error: ") or ELSEWHERE in finding.what) for finding in findings):
        return None                      # messages that nothing here is known of, or of something else
    if any(finding.note and finding.what.endswith(checks.OPEN) for finding in findings):
        return None
    mixed = any(len(types_of(node.get("gres"))) > 1 for node in conf.nodes)
    if mixed or (any(line.cores for line in conf.gres) and not sized):
        return None
    with_gpus = [node for node in conf.nodes if node.get("gres")]
    created = any(node.source == "scontrol create" for node in conf.nodes)
    return None if with_gpus and len(with_gpus) < len(conf.nodes) and created and not conf.gres else False


def _plain(node: NodeLine) -> dict[str, Any]:
    values = {key: value for key, value in node.values.items() if key != "state"}
    return {"name": node.name, "count": _count(node.name), **values}


def _count(name: str | None) -> int | None:
    try:
        return len(expand(name)) if name else None
    except UsageError:
        return None


def _known(conf: Conf, document: Document) -> dict[str, Any]:
    known: dict[str, Any] = {}
    written = [node for node in conf.nodes if node.source in ("slurm.conf", "scontrol create")]
    shown = [node for node in conf.nodes if node.source == "scontrol show node"]
    measured = [node for node in conf.nodes if node.source == "slurmd -C"]
    if written or measured:
        known["nodes"] = [_plain(node) for node in written or measured]
    if conf.partitions:
        known["partitions"] = conf.partitions
    if measured and written:
        known["slurmd_C"] = _plain(measured[0])
        known["configured"] = checks.completed(written[0])
    elif shown:
        known["configured"] = {k: v for k, v in _plain(shown[0]).items() if k not in ("name", "count", "gres")}
    mine = [line for line in conf.gres if not line.detected]
    if mine:
        known["gres"] = [_gres_line(g) for g in mine]
    detected = [line for line in conf.gres if line.detected]
    if detected:
        known["gres_detected"] = [{"type": g.type, "file": g.files[0] if g.files else None, "index": g.index,
                                   "links": None} for g in detected]
    if conf.autodetect:
        known["gres_conf"] = "; ".join(f"NodeName={nodes} AutoDetect={value}" if nodes else f"AutoDetect={value}"
                                       for value, _, nodes in conf.autodetect)
    if conf.wanted:
        known["node_gres"] = ",".join(text for text, _ in conf.wanted)
        for node in known.get("nodes", []) if not detected else []:
            node.setdefault("gres", conf.wanted[0][0])
    names = [match[1] for match in map(_LISTED.search, document.lines) if match]
    if names and (conf.autodetect or conf.wanted):
        known.update(gpus=len(names), gpu_name=names[0])
    return known


def _gres_line(line: GresLine) -> dict[str, Any]:
    values: dict[str, Any] = {"type": line.type or None, "files": list(line.files), "cores": line.cores}
    more = {"name": line.name if line.name != "gpu" else "", "count": line.count, "links": line.links,
            "nodes": line.nodes, "flags": line.flags}
    return {**values, **{key: value for key, value in more.items() if value}}


def _missing(conf: Conf) -> Iterator[str]:
    if conf.open:
        yield f"what the marks of a template stand for (line {conf.open[0]})"
    if conf.includes and not conf.nodes:
        yield "the files that it includes"
    if any(node.name is None for node in conf.nodes):
        yield "NodeName: a fragment of a line"
    if any(node.source == "scontrol create" for node in conf.nodes) and not conf.gres:
        yield "gres.conf"
    if any(value.lower() not in AUTODETECT for value, *_ in conf.autodetect):
        yield "the NodeName line and what the node has"
    detected = {line.type for line in conf.gres if line.detected}
    wanted = {kind for text, _ in conf.wanted for kind in types_of(text)}
    if detected and wanted - detected:
        yield f"slurmd's own view of {', '.join(sorted(wanted - detected))}"


def _right(conf: Conf) -> Iterator[str]:
    """Lines that follow from the text alone."""
    measured = [node for node in conf.nodes if node.source == "slurmd -C"]
    for node, truth in checks.pairs(conf):
        if any(checks.against(node, truth)):
            yield _line(node, truth)
    for node in conf.nodes:
        if node.source == "slurmd -C" and conf.wanted and len(measured) == 1 and not any(
                each.source != "slurmd -C" for each in conf.nodes):
            yield (f"NodeName={node.name} CPUs={node.get('cpus')} Boards={node.get('boards')} "
                   f"SocketsPerBoard={node.get('sockets')} CoresPerSocket={node.get('cores_per_socket')} "
                   f"ThreadsPerCore={node.get('threads_per_core')} RealMemory=<at most {node.get('real_memory')}> "
                   f"Gres={','.join(text for text, _ in conf.wanted)}")
        if node.source == "scontrol show node" and node.get("gres") == "(null)" and conf.gres:
            files = {file for line in conf.gres for file in line.files}
            types = {line.type for line in conf.gres}
            if len(types) == 1 and files:
                kind = next(iter(types))
                yield f"NodeName={node.name} Gres=gpu:{kind + ':' if kind else ''}{len(files)}"


def _line(node: NodeLine, truth: NodeLine) -> str:
    """The line as it should be: shape as measured, memory as configured where the node has it."""
    memory, most = node.get("real_memory"), truth.get("real_memory")
    parts = [f"NodeName={node.name}", f"CPUs={truth.get('cpus')}"]
    if memory and most:
        parts.append(f"RealMemory={memory if memory <= most else f'<at most {most}>'}")
    parts += [f"SocketsPerBoard={truth.get('sockets')}", f"CoresPerSocket={truth.get('cores_per_socket')}",
              f"ThreadsPerCore={truth.get('threads_per_core')}"]
    if node.get("gres") and node.get("gres") != "(null)":
        parts.append(f"Gres={node.get('gres')}")
    if node.source == "slurm.conf" and node.get("state"):
        parts.append(f"State={node.get('state')}")
    return " ".join(parts)


def _assumed(conf: Conf) -> Iterator[dict[str, Any]]:
    """gres.conf for created nodes: no file of Slurm's tells which device files they have."""
    lines = []
    for node in conf.nodes if not conf.gres and not conf.autodetect else ():
        items = [item for item in gres_items(node.get("gres") or "") if item[0] == "gpu"]
        if node.source == "scontrol create" and node.name and len(items) == 1 and 1 <= items[0][2] <= MAX_GPUS:
            _, kind, count = items[0]
            files = "0" if count == 1 else f"[0-{count - 1}]"
            lines.append(f"NodeName={node.name} Name=gpu {f'Type={kind} ' if kind else ''}File=/dev/nvidia{files}")
    if lines:
        yield {"if": "the GPUs are NVIDIA's, with minor numbers from 0 in PCI order", "right_lines": lines}
