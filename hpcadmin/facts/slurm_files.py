"""Slurm's own files and logs, whole or in pieces: slurm.conf, gres.conf, topology.conf, `scontrol`, slurmd -G, logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpcadmin.errors import ParseError, UsageError
from hpcadmin.facts import _slurm_conf, _slurm_log, _slurm_tree
from hpcadmin.facts._base import cpu_list
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts._slurm_conf import AUTODETECT, Conf, NodeLine, gres_items
from hpcadmin.hosts import expand
from hpcadmin.text import plural

FORMS = ("text",)
# Keys in every writing of theirs, and the messages of slurmd and slurmctld.
# Keys in every writing of theirs, and the messages of slurmd and slurmctld.
MARKS = ("Name=", "name=", "NAME=", "Gres=", "gres=", "GRES=", "etect=", "ETECT=", "Sizes=", "sizes=", "SIZES=", "gpu:",
         "PerCore=", "Percore=", "percore=", "PERCORE=", "differs from hardware", "CPUs:", "lower than configured",
         "Count changed", "setting Sockets=", "configured to autodetect", "lib wasn", "lookup failure", "nvalid node",
         "match no Sockets", "Low CPUs", "Low RealMemory", "Low socket", "Low TmpDisk", "ismatch", "ISMATCH", "hild",
         "HILD", "are being ignored", "GRES[gpu]", "config-only GPU")
MAX_GPUS = 64
_LISTED = re.compile(r"GPU \d{1,3}: (.{1,80}?) \(UUID: ")
_VISIBLE = re.compile(r"`?visible_core_count`?[^\d\n]{0,30}((?:\d{1,4}(?:, (?:and )?| and )?){1,16})")


def read(document: Document) -> tuple[Reading, ...]:
    conf = _slurm_conf.collect(document.lines)
    tree = _slurm_tree.collect(document.lines)
    log = _slurm_log.collect(document.lines)
    lines = sorted({*conf.lines, *(tree.lines if tree else ()), *log.lines})
    if not lines:
        return ()
    # slurmd -C alone has a reader of its own.
    if not tree and not log.lines and not conf.gres and all(node.source == "slurmd -C" for node in conf.nodes) and (
            not conf.partitions and not conf.autodetect and not conf.wanted):
        return ()
    findings = [*conf.findings, *_nodes(conf), *_gres(conf), *_across(conf, document), *log.findings,
                *(tree.findings if tree else ())]
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


def _is_log(document: Document) -> bool:
    return any("slurm" in line or "error:" in line or "Reason=" in line or "###" in line or "gres/" in line
               for line in document.lines[:200])


def _verdict(conf: Conf, findings: list[Finding]) -> bool | None:
    """None where it depends on what is not in the text."""
    if any(not finding.note for finding in findings):
        return True
    sized = any(node.get("sockets") for node in conf.nodes)
    if (any(line.cores for line in conf.gres) and not sized) or any(len(_types(node)) > 1 for node in conf.nodes):
        return None
    with_gpus = [node for node in conf.nodes if node.get("gres")]
    return None if with_gpus and len(with_gpus) < len(conf.nodes) and not conf.gres else False


def _types(node: NodeLine) -> set[str]:
    return {kind for name, kind, _ in gres_items(node.get("gres") or "") if name == "gpu" and kind}


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
        known["configured"] = _completed(written[0])
    elif shown:
        known["configured"] = {k: v for k, v in _plain(shown[0]).items() if k not in ("name", "count", "gres")}
    mine = [line for line in conf.gres if not line.detected]
    if mine:
        known["gres"] = [{"type": g.type or None, "files": list(g.files), "cores": g.cores} for g in mine]
    detected = [line for line in conf.gres if line.detected]
    if detected:
        known["gres_detected"] = [{"type": g.type, "file": g.files[0] if g.files else None, "index": g.index,
                                   "links": None} for g in detected]
    if conf.autodetect:
        known["gres_conf"] = f"AutoDetect={conf.autodetect[0][0]}"
    if conf.wanted:
        known["node_gres"] = ",".join(text for text, _ in conf.wanted)
        for node in known.get("nodes", []) if not detected else []:
            node.setdefault("gres", conf.wanted[0][0])
    names = [match[1] for match in map(_LISTED.search, document.lines) if match]
    if names and (conf.autodetect or conf.wanted):
        known.update(gpus=len(names), gpu_name=names[0])
    return known


def _completed(node: NodeLine) -> dict[str, Any]:
    """With what Slurm puts where the line says nothing: one core a socket, one thread a core."""
    values = dict(_plain(node))
    values["cores_per_socket"] = values.get("cores_per_socket") or 1
    values["threads_per_core"] = values.get("threads_per_core") or 1
    return {key: value for key, value in values.items() if key not in ("name", "count", "real_memory", "gres")}


def _nodes(conf: Conf) -> Iterator[Finding]:
    for node in conf.nodes:
        cpus, sockets, cores = node.get("cpus"), node.get("sockets"), node.get("cores_per_socket")
        threads = node.get("threads_per_core") or 1
        if "boards" in node.keys and "sockets" in node.keys and node.source != "scontrol show node":
            yield Finding(f"{node.name}: Sockets= together with Boards=: it is SocketsPerBoard= then", node.line)
        if cpus and sockets and cores and node.source != "scontrol show node":
            total = sockets * cores * (node.get("boards") or 1)
            if cpus not in (sockets, total, total * threads):
                yield Finding(f"{node.name}: CPUs={cpus} is no product of {sockets} sockets, {cores} cores and "
                              f"{threads} threads: Slurm sets CPUs anew", node.line)
            elif cpus == total and threads > 1:
                yield Finding(f"{node.name}: CPUs={cpus} are the cores, although ThreadsPerCore={threads}: cores are "
                              f"scheduled; slurmd -C says {total * threads}", node.line, note=True)
        types = _types(node)
        if len(types) > 1:
            yield Finding(f"{node.name}: mixed GPU types on one node ({', '.join(sorted(types))}): each needs its own "
                          "lines in gres.conf, in PCI order", node.line, note=True)
        for _, kind, number in gres_items(node.get("gres") or ""):
            if kind.isdigit() and number:
                yield Finding(f"{node.name}: Gres type \"{kind}\" is a number: the count stands where the type belongs",
                              node.line)
        if node.get("hostname") and node.get("hostname") != node.name:
            yield Finding(f"{node.name}: NodeHostname={node.get('hostname')} is another name", node.line, note=True)


def _gres(conf: Conf) -> Iterator[Finding]:
    for value, line in conf.autodetect:
        if value.lower() not in AUTODETECT:
            hint = ": for AMD it is rsmi" if value.lower() in ("amdgpu", "amd", "rocm") else ""
            yield Finding(f"AutoDetect={value[:40]} is no valid value{hint} (one of {', '.join(sorted(AUTODETECT))})",
                          line)
    ranged = [line for line in conf.gres if line.cores and not line.detected]
    sized = [node for node in conf.nodes if node.get("sockets") and node.get("cores_per_socket")]
    if ranged and not sized:
        yield Finding("the layout of sockets and NUMA nodes is not in the text: from 24.11 on each range of Cores must "
                      "be whole sockets (virtual ones, with numa_node_as_socket, as well)", ranged[0].line, note=True)
    for each in ranged:
        yield from _range(each.cores or "", each.line, sized)


def _range(cores: str, line: int, sized: list[NodeLine]) -> Iterator[Finding]:
    try:
        ids = cpu_list(cores, "Cores")
    except ParseError as exc:
        yield Finding(exc.what, line)
        return
    for node in sized:
        size = node.get("cores_per_socket")
        total = size * node.get("sockets") * (node.get("boards") or 1)
        if ids and ids[-1] >= total:
            yield Finding(f"Cores={cores}: {node.name} has cores 0-{total - 1} (cores, not CPUs or threads)", line)
        elif any(len({n for n in ids if n // size == socket}) != size for socket in {n // size for n in ids}):
            yield Finding(f"Cores={cores} is not made of whole sockets of {size} cores: the node is INVAL from 24.11 "
                          "on", line, note=True)


def _across(conf: Conf, document: Document) -> Iterator[Finding]:
    """What one part of the text says against another."""
    measured = [node for node in conf.nodes if node.source == "slurmd -C"]
    written = [node for node in conf.nodes if node.source == "slurm.conf"]
    for truth in measured:
        same = [node for node in written if node.name == truth.name]
        right = [node for node in same if _shape(node) == _shape(truth)]
        for node in same:
            if node not in right:
                counts = f"SocketsPerBoard={truth.get('sockets')} CoresPerSocket={truth.get('cores_per_socket')}"
                yield Finding(f"{node.name}: {_text(node)} is configured, the hardware is {_text(truth)} ({counts})",
                              node.line)
    for node in conf.nodes:
        if node.source == "scontrol show node" and node.get("gres") == "(null)" and conf.gres:
            where = next((n for n, text in enumerate(document.lines, 1)
                          if n >= node.line and "Gres=(null)" in text), node.line)
            yield Finding(f"{node.name}: Gres=(null) although gres.conf has {plural(len(conf.gres), 'GPU line')}: the "
                          "node's own definition needs Gres= as well", where)
    detected = {line.type for line in conf.gres if line.detected}
    wanted = {kind for text, _ in conf.wanted for name, kind, _ in gres_items(text) if name == "gpu" and kind}
    for kind in sorted(wanted - detected) if detected else ():
        yield Finding(f"{kind} (MIG?) is configured, slurmd -G does not show it", conf.wanted[-1][1], note=True)
    with_gpus = [node for node in conf.nodes if node.get("gres") and node.source == "scontrol create"]
    without = [node for node in conf.nodes if not node.get("gres") and node.source == "scontrol create"]
    if with_gpus and without and not conf.gres:
        names = ",".join(node.name or "?" for node in with_gpus)
        yield Finding(f"gres.conf must name {names} only: the other nodes have no GPUs", with_gpus[0].line, note=True)


def _shape(node: NodeLine) -> tuple[int | None, ...]:
    return (node.get("sockets"), node.get("cores_per_socket"), node.get("threads_per_core"))


def _text(node: NodeLine) -> str:
    return "x".join(str(value or 1) for value in _shape(node))


def _missing(conf: Conf) -> Iterator[str]:
    if any(node.name is None for node in conf.nodes):
        yield "NodeName: a fragment of a line"
    if any(node.source == "scontrol create" for node in conf.nodes) and not conf.gres:
        yield "gres.conf"
    if any(value.lower() not in AUTODETECT for value, _ in conf.autodetect):
        yield "the NodeName line and what the node has"
    detected = {line.type for line in conf.gres if line.detected}
    wanted = {kind for text, _ in conf.wanted for name, kind, _ in gres_items(text) if name == "gpu" and kind}
    if detected and wanted - detected:
        yield f"slurmd's own view of {', '.join(sorted(wanted - detected))}"


def _right(conf: Conf) -> Iterator[str]:
    """Lines that follow from the text alone."""
    measured = {node.name: node for node in conf.nodes if node.source == "slurmd -C"}
    for node in conf.nodes:
        truth = measured.get(node.name)
        if node.source == "slurm.conf" and truth and _shape(node) != _shape(truth):
            state = f" State={node.get('state')}" if node.get("state") else ""
            yield (f"NodeName={node.name} CPUs={truth.get('cpus')} RealMemory={node.get('real_memory')} "
                   f"SocketsPerBoard={truth.get('sockets')} CoresPerSocket={truth.get('cores_per_socket')} "
                   f"ThreadsPerCore={truth.get('threads_per_core')}{state}")
        if node.source == "slurmd -C" and conf.wanted and len(measured) == 1:
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
