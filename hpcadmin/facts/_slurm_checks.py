"""What Slurm refuses, or takes otherwise than meant, in node lines and gres.conf, and across a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _slurm_gres as gres
from hpcadmin.facts._reading import Document, Finding
from hpcadmin.facts._slurm_conf import Conf, NodeLine
from hpcadmin.facts._slurm_gres import AUTODETECT, GresLine, gres_items, types_of
from hpcadmin.facts._slurm_rules import partly
from hpcadmin.text import plural

OPEN = "(depends on what is not in the text)"
MAX_LINES = 500                          # of node lines that are compared with others
MAX_HOSTS = 4096                         # of one line


def found(conf: Conf, document: Document) -> Iterator[Finding]:
    for line in conf.includes:
        yield Finding("Include: what that file has is not in this text", line, note=True)
    yield from _nodes(conf)
    yield from _same_name(conf)
    yield from _gres(conf)
    yield from measured_findings(conf)
    yield from _devices(conf)
    yield from across(conf, document)
    if conf.whole and not conf.includes and conf.nodes:
        yield from _partitions(conf)


def completed(node: NodeLine) -> dict[str, Any]:
    """With what Slurm puts where the line says nothing: one core a socket, one thread a core, sockets from CPUs."""
    values = {key: value for key, value in node.values.items() if key not in ("state", "real_memory", "gres")}
    values["cores_per_socket"] = values.get("cores_per_socket") or 1
    values["threads_per_core"] = values.get("threads_per_core") or 1
    if not values.get("sockets"):
        values["sockets"] = max(1, (values.get("cpus") or 1) // (
            values["cores_per_socket"] * values["threads_per_core"]))
    return values


def pairs(conf: Conf) -> Iterator[tuple[NodeLine, NodeLine]]:
    """Each line of a node with what slurmd -C printed on it; a line of several nodes with the first that did."""
    measured = {node.name: node for node in conf.nodes if node.source == "slurmd -C" and node.name}
    if not measured:
        return
    for node in [node for node in conf.nodes if node.source != "slurmd -C" and node.name][:MAX_LINES]:
        mine = {node.name} if node.name in measured else gres.names(node.name or "") or frozenset()
        truth = next((measured[name] for name in measured if name in mine), None)
        if truth:
            yield node, truth


def against(node: NodeLine, truth: NodeLine) -> Iterator[str]:
    """Where the line and what slurmd -C measured differ."""
    if _shape(node) != _shape(truth):
        counts = f"SocketsPerBoard={truth.get('sockets')} CoresPerSocket={truth.get('cores_per_socket')}"
        yield (f"{_text(node)} is configured, the hardware is {_text(truth)} ({counts} "
               f"ThreadsPerCore={truth.get('threads_per_core')})")
    memory, most = node.get("real_memory"), truth.get("real_memory")
    if memory and most and memory > most:
        yield f"RealMemory={memory} is more than the node has ({most}): Low RealMemory, the node is INVAL"


def _shape(node: NodeLine) -> tuple[int, int, int]:
    values = completed(node)
    return (values["sockets"] * (values.get("boards") or 1), values["cores_per_socket"], values["threads_per_core"])


def _text(node: NodeLine) -> str:
    return "x".join(map(str, _shape(node)))


def _nodes(conf: Conf) -> Iterator[Finding]:
    for node in conf.nodes:
        shown = node.source == "scontrol show node"
        if "boards" in node.keys and "sockets" in node.keys and not shown:
            yield Finding(f"{node.name}: Sockets= together with Boards=: it is SocketsPerBoard= then", node.line)
        if {"sockets", "socketsperboard"} <= node.keys:
            yield Finding(f"{node.name}: Sockets= and SocketsPerBoard= on one line: Slurm takes SocketsPerBoard",
                          node.line)
        if not shown:
            yield from _counts(node)
        types = types_of(node.get("gres"))
        if len(types) > 1:
            yield Finding(f"{node.name}: mixed GPU types on one node ({', '.join(sorted(types))}): each needs its own "
                          "lines in gres.conf, in PCI order", node.line, note=True)
        for _, kind, number in gres_items(node.get("gres") or ""):
            if kind.isdigit() and number:
                yield Finding(f"{node.name}: Gres type \"{kind}\" is a number: the count stands where the type belongs",
                              node.line)
            elif conf.types is not None and conf.whole and not conf.includes and _ not in conf.types:
                yield Finding(f"{node.name}: Gres={_} is not in GresTypes: Slurm ignores it", node.line)
        if conf.types is None and conf.whole and not conf.includes and node.get("gres") and not shown:
            yield Finding(f"{node.name}: Gres={node.get('gres')[:60]}, but there is no GresTypes=: Slurm ignores it",
                          node.line)
        if node.get("hostname") and node.get("hostname") != node.name and not shown:
            yield Finding(f"{node.name}: NodeHostname={node.get('hostname')} is another name", node.line, note=True)


def _counts(node: NodeLine) -> Iterator[Finding]:
    cpus, sockets, cores = node.get("cpus"), node.get("sockets"), node.get("cores_per_socket")
    threads = node.get("threads_per_core") or 1
    if cpus and sockets and cores:
        total = sockets * cores * (node.get("boards") or 1)
        if cpus not in (sockets, total, total * threads):
            yield Finding(f"{node.name}: CPUs={cpus} is no product of {sockets} sockets, {cores} cores and "
                          f"{threads} threads: Slurm sets CPUs anew", node.line)
        elif cpus == total and threads > 1:
            yield Finding(f"{node.name}: CPUs={cpus} are the cores, although ThreadsPerCore={threads}: cores are "
                          f"scheduled; slurmd -C says {total * threads}", node.line, note=True)
    elif cpus and cpus > 1 and not sockets and not cores and node.name:
        derived = completed(node)["sockets"]
        yield Finding(f"{node.name}: neither Sockets= nor CoresPerSocket=: Slurm makes Sockets={derived} of CPUs={cpus}"
                      ", each with one core", node.line, note=True)


def _same_name(conf: Conf) -> Iterator[Finding]:
    """Under one heading: a text shows wrong and right lines one after the other."""
    seen: dict[tuple[int, str], int] = {}
    for node in conf.nodes:
        if node.source != "slurm.conf" or node.name is None:
            continue
        key = (node.section, node.name)
        if key in seen:
            yield Finding(f"Duplicated NodeName {node.name} (first on line {seen[key]}): slurmctld ends with a fatal "
                          "error", node.line)
        seen.setdefault(key, node.line)


def _gres(conf: Conf) -> Iterator[Finding]:
    for value, line, _ in conf.autodetect:
        if value.lower() not in AUTODETECT:
            hint = ": for AMD it is rsmi" if value.lower() in ("amdgpu", "amd", "rocm") else ""
            yield Finding(f"AutoDetect={value[:40]} is no valid value{hint} (one of {', '.join(sorted(AUTODETECT))})",
                          line)
    yield from gres.lines(conf.gres)
    yield from gres.together(conf.gres)
    for each in conf.gres:
        if each.name == "gpu" and not each.files and not each.detected and not _detects(conf, each):
            yield Finding("a gpu line without File= and without AutoDetect=: slurmd ignores it, no GPU is reported",
                          each.line)
    ranged = [line for line in conf.gres if line.cores and not line.detected]
    for each in ranged:
        if _detects(conf, each):
            yield Finding(f"Cores={each.cores} beside AutoDetect={_detects(conf, each)}: where it differs from what is "
                          f"detected, the GPU is dropped {OPEN}", each.line, note=True)
            break
    sized = [node for node in conf.nodes if node.get("sockets") and node.get("cores_per_socket")]
    if ranged and not sized:
        yield Finding("the layout of sockets and NUMA nodes is not in the text: from 24.11 on each range of Cores must "
                      "be whole sockets (virtual ones, with numa_node_as_socket, as well)", ranged[0].line, note=True)
    said: set[tuple[str, int]] = set()
    shapes = [(node, gres.names(node.name or "") or frozenset()) for node in sized[:MAX_LINES]] if ranged else []
    for each in ranged:
        for finding in _range(each, shapes):
            if (finding.what, each.line) not in said:
                said.add((finding.what, each.line))
                yield finding


def _detects(conf: Conf, line: GresLine) -> str:
    """The AutoDetect= that is in force for the line's nodes, "" for none."""
    own = [value for value, _, nodes in conf.autodetect if nodes and line.nodes and (
        nodes == line.nodes or line.nodes in (gres.names(nodes) or ()))]
    others = [value for value, _, nodes in conf.autodetect if not nodes]
    value = (own or others or ["off"])[0].lower()
    return "" if value == "off" else value


def _range(line: GresLine, sized: Sequence[tuple[NodeLine, frozenset[str]]]) -> Iterator[Finding]:
    cores = line.cores or ""
    try:
        ids = gres.core_ids(cores)
    except ParseError as exc:
        yield Finding(exc.what, line.line)
        return
    hosts = gres.names(line.nodes)
    for node, own in sized:
        if hosts and node.name and node.name != line.nodes and hosts.isdisjoint(own):
            continue
        size = node.get("cores_per_socket")
        total = size * node.get("sockets") * (node.get("boards") or 1)
        if ids and ids[-1] >= total:
            yield Finding(f"Cores={cores}: {node.name} has cores 0-{total - 1} (cores, not CPUs or threads)", line.line)
        elif partly(frozenset(ids), size) is not None:
            yield Finding(f"Cores={cores} is not made of whole sockets of {size} cores: the node is INVAL from 24.11 "
                          "on", line.line, note=True)


def measured_findings(conf: Conf) -> Iterator[Finding]:
    """What is configured against what slurmd -C says."""
    for node, truth in pairs(conf):
        for text in against(node, truth):
            yield Finding(f"{node.name}: {text}", node.line)


def _devices(conf: Conf) -> Iterator[Finding]:
    """Gres= of the nodes against the lines of gres.conf, where no AutoDetect adds to them."""
    lines = [line for line in conf.gres if line.name == "gpu" and not line.detected]
    if not lines:
        return
    bits, everywhere = gres.by_host(lines)
    for node in [node for node in conf.nodes if node.get("gres") and node.name][:MAX_LINES]:
        wanted = [(kind, number) for name, kind, number in gres_items(node.get("gres")) if name == "gpu"]
        mine = gres.names(node.name or "") or frozenset()
        first: dict[int, str] = {}
        for host in sorted(mine)[:MAX_HOSTS] if wanted else ():
            first.setdefault(bits.get(host, 0) | everywhere, host)
        for mask, host in first.items():
            if not _detects(conf, GresLine("", (), None, 0, host)):
                yield from _compare(host if len(first) > 1 else node.name or host, node, wanted,
                                    gres.chosen(lines, mask))


def _compare(who: str, node: NodeLine, wanted: list[tuple[str, int]], group: list[GresLine]) -> Iterator[Finding]:
    if not group:
        yield Finding(f"{who} has Gres={node.get('gres')}, and no line of gres.conf is for it {OPEN}", node.line,
                      note=True)
        return
    have: dict[str, int] = {}
    for line in group:
        have[line.type.lower()] = have.get(line.type.lower(), 0) + line.devices
    total, at = sum(have.values()), group[0].line
    typed = any(kind for kind, _ in wanted)
    for kind, number in wanted:
        got = have.get(kind.lower(), 0) if kind else total
        if got < number:
            why = "" if got else (": gres.conf has no Type=" if kind and "" in have and total else
                                  f": gres.conf has Type={', '.join(sorted(filter(None, have)))}" if kind and total
                                  else ": no File=")
            yield Finding(f"{who}: Gres=gpu{':' + kind if kind else ''}:{number}, gres.conf has {got} of them ({got} < "
                          f"{number}){why}: count reported lower than configured, the node is INVAL", at)
        elif got > number:
            yield Finding(f"{who}: gres.conf has {got} GPUs{' of type ' + kind if kind else ''}, Gres= {number}: the "
                          "rest is not used", at, note=True)
    if not typed and any(have) and not all(kind == "" for kind in have):
        yield Finding(f"{who}: gres.conf has types, Gres={node.get('gres')} has none: jobs cannot ask for a type", at,
                      note=True)


def across(conf: Conf, document: Document) -> Iterator[Finding]:
    """What commands printed against what the files say."""
    for node in conf.nodes:
        if node.source == "scontrol show node" and node.get("gres") == "(null)" and conf.gres:
            where = next((n for n, text in enumerate(document.lines, 1)
                          if n >= node.line and "Gres=(null)" in text), node.line)
            yield Finding(f"{node.name}: Gres=(null) although gres.conf has {plural(len(conf.gres), 'GPU line')}: the "
                          "node's own definition needs Gres= as well", where)
        if node.source == "scontrol show node" and node.get("real_memory") == 1:
            yield Finding(f"{node.name}: RealMemory=1: it is not configured", node.line, note=True)
    detected = {line.type for line in conf.gres if line.detected}
    wanted = {kind for text, _ in conf.wanted for kind in types_of(text)}
    for kind in sorted(wanted - detected) if detected else ():
        yield Finding(f"{kind} (MIG?) is configured, slurmd -G does not show it", conf.wanted[-1][1], note=True)
    with_gpus = [node for node in conf.nodes if node.get("gres") and node.source == "scontrol create"]
    without = [node for node in conf.nodes if not node.get("gres") and node.source == "scontrol create"]
    if with_gpus and without and not conf.gres:
        names = ",".join(node.name or "?" for node in with_gpus)
        yield Finding(f"gres.conf must name {names} only: the other nodes have no GPUs", with_gpus[0].line, note=True)


def _partitions(conf: Conf) -> Iterator[Finding]:
    """Of a whole slurm.conf: the nodes that partitions name and nothing defines."""
    defined: set[str] = set()
    for node in conf.nodes[:MAX_LINES]:
        defined |= gres.names(node.name or "") or frozenset()
    for each in conf.partitions if len(conf.nodes) <= MAX_LINES else ():
        nodes = each["nodes"]
        if nodes and nodes.upper() not in ("ALL", "(NULL)", '""'):
            lost = sorted((gres.names(nodes) or frozenset()) - defined)
            if lost:
                yield Finding(f"partition {each['name']}: {', '.join(lost[:8])} {'is' if len(lost) == 1 else 'are'} in "
                              f"no NodeName line (or a NodeSet) {OPEN}", None, note=True)
