"""`lscpu`, as text, as JSON (flat and nested) and its tables: model, architecture and the counts of the topology."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts import _lscpu_table
from hpcadmin.facts._base import clean, cpu_list, lines_of
from hpcadmin.facts._lscpu_counts import Work, counts, no_packages
from hpcadmin.facts._lscpu_text import Block, blocks, is_telling, json_block, number_in
from hpcadmin.facts._reading import Document, Finding, Reading
from hpcadmin.facts.cpu_topology import CpuTopology
from hpcadmin.text import fold_ids

NAME = "lscpu"
COMMAND = "run 20 lscpu"
FORMS = ("text", "json")


@dataclass(frozen=True)
class Lscpu:
    """None where lscpu says nothing (it leaves lines out, and prints "-" for what does not apply), or where what it
    says contradicts itself."""

    architecture: str = ""
    model: str = ""
    cpus: int | None = None
    online: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    numa: dict[int, tuple[int, ...]] | None = None
    hypervisor: str = ""
    topology: CpuTopology | None = None      # of a table of CPUs printed below (-p) or alone


def parse(text: str) -> Lscpu:
    """What our own probe asked for: a whole output in the C locale."""
    found = [block for block in blocks(lines_of(text, "lscpu")) if "cpus" in block.values]
    if not found or not found[0].values.keys() & {"threads", "sockets", "nodes"}:
        raise ParseError("not the output of lscpu, or cut off: no line CPU(s), or nothing about threads and sockets")
    work = Work(found[0])
    value = _value(work)
    cut = next((what for what in work.missing if "cut off" in what), None)
    if cut:
        raise ParseError(cut)
    return value


def opens(line: str) -> bool:
    """Whether it may be of the first lines that tell something."""
    return '"lscpu"' in line or '"cpus"' in line or is_telling(line) or _lscpu_table.begins(line)


def read(document: Document) -> tuple[Reading, ...]:
    found = json_block(document.text) if any('"lscpu"' in line for line in document.lines) else None
    readings: list[Reading | None] = [_reading(found, len(document.lines))] if found else []
    if document.form == "json" and not found and any('"cpus"' in line for line in document.lines):
        readings.append(_json_table(document.text))
    if document.form == "text" and not found:
        tables = _lscpu_table.find_tables(document.lines)
        own = blocks(document.lines)
        for place, block in enumerate(own):
            until = own[place + 1].first if place + 1 < len(own) else len(document.lines) + 1
            block.tables = [table for table in tables if block.first < table.first < until]
            readings.append(_reading(block, max([block.last, *(table.last for table in block.tables)])))
        before = own[0].first if own else len(document.lines) + 1
        readings += [_table_reading(table) for table in tables if table.first < before]
    return tuple(reading for reading in readings if reading is not None)


def _reading(block: Block, last: int) -> Reading:
    work = Work(block)
    value = _value(work)
    known = {
        "sockets": value.sockets, "cores_per_socket": value.cores_per_socket,
        "threads_per_core": value.threads_per_core, "cpus": value.cpus, "online": fold_ids(value.online) or None,
        "offline": fold_ids(value.offline) or None, "model": value.model or None,
        "hypervisor": value.hypervisor or None, **_known_numa(value, block), **work.known,
    }
    kind = "lscpu -J" if block.json else "lscpu"
    return Reading(kind, block.first, last, value=value, known=known, findings=tuple(work.findings),
                   missing=tuple(work.missing), refused=work.refused)


def _known_numa(value: Lscpu, block: Block) -> dict[str, object]:
    numa = value.numa
    count = number_in(block.values.get("nodes"))
    known: dict[str, object] = {
        "numa_node_count": count if count is not None else len(numa) if numa else None,
        "numa_nodes": {str(node): fold_ids(cpus) for node, cpus in numa.items()} if numa else None,
    }
    if numa:
        known["numa_cpuless"] = [node for node, cpus in numa.items() if not cpus]
        known["numa_cpu_counts"] = {str(node): len(cpus) for node, cpus in numa.items()}
        if any(":" in text for text, _ in block.numa.values()):
            known["numa_nodes_printed"] = {str(node): clean(text) for node, (text, _) in sorted(block.numa.items())}
    if numa and value.topology:
        socket = {line.cpu: line.package for line in value.topology.cpus}
        known["numa_sockets"] = {str(node): len({socket.get(cpu) for cpu in cpus}) for node, cpus in numa.items()}
    return known


# --- what a block says ----------------------------------------------------------------------------------------------


def _value(work: Work) -> Lscpu:
    block = work.block
    values = block.values
    online, offline = _list(work, "online"), _list(work, "offline")
    numa = _numa(work)
    sockets, cores, threads = counts(work, online)
    _drop_cut_node(work, numa, online)
    table = _table(work, threads)
    if table is not None and not online:
        online, offline = table.online, table.offline
    _check_numa(work, numa, online)
    _check_completeness(work, bool(numa))
    if offline:
        work.say(f"CPUs {fold_ids(offline)} are offline", "offline")
        # The kernel takes a CPU that goes off line out of its node; only a container's made-up list leaves it there.
        inside = set(offline).intersection(cpu for cpus in numa.values() for cpu in cpus)
        if inside and not values.get("architecture", "").startswith("s390"):
            work.refused = work.refused or (
                f"captured inside a container: CPUs {fold_ids(inside)} are said to be off line, and are in NUMA nodes")
    hypervisor = values.get("hypervisor") or ""
    return Lscpu(
        architecture=clean(values.get("architecture", "")), model=clean(values.get("model", "")),
        cpus=number_in(values.get("cpus")), online=online, offline=offline, sockets=sockets, cores_per_socket=cores,
        threads_per_core=threads, numa=numa or None, hypervisor=clean(hypervisor), topology=table)


def _list(work: Work, key: str) -> tuple[int, ...]:
    text = work.block.values.get(key, "")
    if text in ("", "-"):
        return ()
    try:
        return cpu_list(text.split()[0], key)
    except ParseError as exc:
        work.missing.append(f"{key} CPUs are cut off or unreadable: {exc.what}")
        return ()


def _numa(work: Work) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    bad = False
    for node, (text, line) in sorted(work.block.numa.items()):
        try:
            found[node] = cpu_list(text.split()[0] if text else "", f"NUMA node{node} CPU(s)")
        except ParseError as exc:
            bad = True
            work.missing.append(f"NUMA node {node} is cut off or unreadable: {exc.what}")
            work.findings.append(Finding(f"NUMA node {node}: its list of CPUs cannot be read", line))
    count = number_in(work.block.values.get("nodes"))
    # With one node all CPUs are in it, so that a selection without its list lacks nothing.
    if count is not None and count != len(found) and not bad and not (count == 1 and not found and work.block.json):
        work.missing.append(f"lscpu counts {count} NUMA nodes and lists {len(found)}: cut off")
    return found


def _drop_cut_node(work: Work, numa: dict[int, tuple[int, ...]], online: tuple[int, ...]) -> None:
    """The list that ends the text is cut off when it and the others leave CPUs out: "…,13" and "…,1" both are lists."""
    last = next((node for node, (_, line) in work.block.numa.items() if line == work.block.last), None)
    if last is None or work.block.tables or not numa.get(last):
        return
    if set(online) - {cpu for cpus in numa.values() for cpu in cpus}:
        del numa[last]
        work.missing.append(f"NUMA node {last} is cut off: it ends the text, and some CPUs would be in no node")


def _table(work: Work, threads: int | None) -> CpuTopology | None:
    if not work.block.tables or no_packages(work.block):
        return None
    found, why = _lscpu_table.topology(work.block.tables[0], threads)
    if why:
        work.findings.append(Finding(why, work.block.tables[0].first))
    differing = _lscpu_table.sockets_by_table(work.block.tables)
    if differing:
        work.known["parsable_conflict"] = {"sockets": differing}
        told = [", ".join(f"{socket}: {cpus}" for socket, cpus in sockets.items()) for sockets in differing]
        work.findings.append(Finding("contradictory: the tables do not put the same CPUs into a socket ("
                                     f"{clean(' | '.join(told))})", work.block.tables[1].first))
    return None if work.block.models else found


def _check_numa(work: Work, numa: Mapping[int, tuple[int, ...]], online: tuple[int, ...]) -> None:
    if not numa:
        return
    empty = [node for node, cpus in numa.items() if not cpus]
    filled = {node: cpus for node, cpus in numa.items() if cpus}
    if empty:
        work.say(f"NUMA nodes {fold_ids(empty)} have no CPUs (memory of GPUs or of expanders, or of none): no sockets",
                 "nodes", note=True)
    everything = [cpu for cpus in filled.values() for cpu in cpus]
    if len(set(everything)) != len(everything):
        work.say("contradictory: a CPU is in two NUMA nodes", "nodes")
    if online and (beyond := set(everything) - set(online) - set(_list(work, "offline"))):
        work.say(f"contradictory: NUMA nodes list CPUs {fold_ids(beyond)}, the CPUs of the node are {fold_ids(online)} "
                 f"(NUMA node lists {fold_ids(everything)})", "nodes")
    if online and not work.missing and (outside := set(online) - set(everything)):
        work.say(f"CPUs {fold_ids(outside)} are in no NUMA node", "nodes")
    sizes = {node: len(cpus) for node, cpus in filled.items()}
    if len(set(sizes.values())) > 1:
        work.say("NUMA nodes are uneven: " + ", ".join(f"node {node} has {size} CPUs" for node, size in sizes.items()),
                 "nodes")
    gaps = set(range(max(filled))) - set(numa)
    if gaps and max(filled) < 2 * len(filled):
        work.say(f"NUMA node {fold_ids(gaps)} is missing among {len(filled)} NUMA nodes", "nodes")


def _check_completeness(work: Work, numa: bool) -> None:
    block = work.block
    names = {"cpus": "the number of CPUs", "threads": "threads per core", "cores": "cores per socket",
             "sockets": "sockets"}
    told = set(block.values) | {key for model in block.models for key in model}
    if told & {"sockets_per_book", "books", "drawers", "clusters"}:
        told.add("sockets")
    if told & {"cluster_cores"}:
        told.add("cores")
    lacking = [name for key, name in names.items() if key not in told]
    if block.cut:
        work.missing.append("the JSON is cut off")
    if lacking:
        work.missing.append(f"missing in the text: {', '.join(lacking)}")
    if numa or "nodes" in told:
        return
    ends = block.ended or bool(block.tables)
    if ends:
        work.say("no NUMA nodes: the kernel knows none, or was built without NUMA", note=True)
    else:
        work.missing.append("no NUMA lines: the NUMA layout is unknown")


def _json_table(text: str) -> Reading | None:
    """`lscpu -J -e`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    table = _lscpu_table.json_table(data.get("cpus")) if isinstance(data, dict) else None
    return _table_reading(table) if table and "core" in table.columns else None


def _table_reading(table: _lscpu_table.Table) -> Reading | None:
    """A table alone: `lscpu -p` or `lscpu -e`."""
    found, why = _lscpu_table.topology(table, None)
    findings = [Finding(why, table.first)] if why else []
    if found is None and not why:
        return None
    numa = _lscpu_table.numa_of(table)
    value = Lscpu(topology=found, numa=numa, online=found.online if found else (),
                  offline=found.offline if found else (), cpus=len(table.rows))
    known: dict[str, object] = {"cpus": len(table.rows), "online": fold_ids(value.online) or None,
                                "offline": fold_ids(value.offline) or None, "numa_nodes": {
                                    str(node): fold_ids(cpus) for node, cpus in numa.items()} if numa else None}
    if found:
        cores = {line.siblings: line.package for line in found.cpus}
        packages = set(cores.values())
        per_socket = {sum(own == package for own in cores.values()) for package in packages}
        threads = {len(siblings) for siblings in cores}
        sure = None not in packages and len(per_socket) == 1
        value = Lscpu(topology=found, numa=numa, online=found.online, offline=found.offline, cpus=len(table.rows),
                      sockets=len(packages) if None not in packages else None,
                      cores_per_socket=min(per_socket) if sure else None,
                      threads_per_core=min(threads) if len(threads) == 1 else None)
        known |= {"sockets": value.sockets, "cores_per_socket": value.cores_per_socket,
                  "threads_per_core": value.threads_per_core, "cores_total": len(cores)}
        if None in packages:
            findings.append(Finding("socket ids are unknown: sockets are undetermined", table.first))
        elif not sure:
            findings.append(Finding("sockets are uneven: they differ in cores", table.first))
        if found.offline:
            findings.append(Finding(f"CPUs {fold_ids(found.offline)} are offline", table.first))
    return Reading("lscpu -p", table.first, table.last, value=value, known=known, findings=tuple(findings))
