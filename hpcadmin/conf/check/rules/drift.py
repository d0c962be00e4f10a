"""Files against the inventory: what nodes have otherwise than their lines say, folded by line and value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Shape, node_line, shape
from hpcadmin.conf.check.rules._causes import cpus_of
from hpcadmin.conf.check.rules._devices import DEVICES
from hpcadmin.conf.check.rules._hosts import Hosts, layout_of, mode_of, odd_of, part_line, right_memory
from hpcadmin.conf.check.rules._labels import LABELS
from hpcadmin.conf.existing.parts import NodeLine
from hpcadmin.conf.machines import MEMORY_TOLERANCE, cpu_memory
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.nodelines import margin_mib
from hpcadmin.conf.sockets import Layout, Mode, layout
from hpcadmin.model import Dimm, Node

WASTED = 0.05                            # of a node's memory that no job can get, beyond the margin
CLOSE_MIB = 16                           # a BIOS update takes that much
_NOT_YET = ("FUTURE", "CLOUD")


def _lines(situation: Situation) -> Iterator[tuple[NodeLine, list[tuple[str, Node]]]]:
    """Each node line with its nodes that the inventory has."""
    if situation.inventory is None:
        return
    nodes = Hosts(situation).nodes
    for line in situation.conf.nodes:
        if not (line.get("state") or "").upper().startswith(_NOT_YET):
            found = [(host, nodes[host]) for host in line.hosts if host in nodes]
            if found:
                yield line, found


def _named(names: Sequence[str]) -> str:
    return slurm_list(sorted(names, key=natural))


def overridden(situation: Situation) -> bool:
    """SlurmdParameters=config_overrides: slurmctld believes the files whatever the nodes say."""
    return "config_overrides" in situation.conf.setting("SlurmdParameters").casefold()


# --- memory --------------------------------------------------------------------------------------------------------


def memory(situation: Situation) -> Iterator[Finding]:
    """RealMemory against the least of the line's nodes, and against what others of them have more."""
    for line, members in _lines(situation):
        wanted = line.number("realmemory")
        if wanted is None:
            continue
        have = {name: own for name, node in members if (own := cpu_memory(node)[0]) is not None}
        if have:
            yield from _too_much(situation, line, wanted, have, dict(members))
            yield from _too_little(situation, line, wanted, have, dict(members))


def _percent(situation: Situation) -> float:
    """node_reg_mem_percent: so much of RealMemory a node must have."""
    for word in situation.conf.setting("SlurmctldParameters").split(","):
        key, _, value = word.partition("=")
        if key.strip().casefold() == "node_reg_mem_percent":
            try:
                return min(max(float(value), 0.0), 100.0)
            except ValueError:
                return 100.0
    return 100.0


def _too_much(situation: Situation, line: NodeLine, wanted: int, have: dict[str, int],
              nodes: dict[str, Node]) -> Iterator[Finding]:
    short = {name: own for name, own in have.items() if own < wanted}
    if not short:
        return
    percent = _percent(situation)
    least = min(short, key=lambda name: (short[name], natural(name)))
    who = f"{least} has {short[least]}" if len(short) == 1 else (
        f"{least} has {short[least]}, the least of {len(short)} nodes with less")
    refused = not overridden(situation) and any(own * 100 < wanted * percent for own in short.values())
    means = ("the node registers" if len(short) == 1 else "they register") + " INVALID (Low RealMemory)"
    if not refused:
        means = "Slurm takes it (config_overrides, or node_reg_mem_percent), and gives out memory that is not there"
    yield Finding(Severity.INVALID if refused else Severity.WRONG, f"RealMemory={wanted} but {who}",
                  "; ".join([means, *_modules(situation, line, list(short), nodes)]),
                  _memory_lines(situation, line, have, nodes), line.values["realmemory"].place,
                  tuple(sorted(short, key=natural)))


def _memory_lines(situation: Situation, line: NodeLine, have: dict[str, int],
                  nodes: dict[str, Node]) -> tuple[str, ...]:
    """One line for the nodes that are alike; nodes that lost memory on a line of their own, until they are repaired."""
    most = max(have.values())
    lost = [name for name in line.hosts if have.get(name, most) < most * (1 - MEMORY_TOLERANCE)]
    rest = [name for name in line.hosts if name not in set(lost)]
    if not lost or 2 * len(lost) > len(have):
        value = right_memory((nodes[name] for name in have), situation.site)
        return (node_line(line, {"RealMemory": str(value)}),)
    return tuple(part_line(line, names, {"RealMemory": str(right_memory(
        (nodes[n] for n in names if n in nodes), situation.site))}) for names in (rest, lost))


def _modules(situation: Situation, line: NodeLine, short: list[str], nodes: dict[str, Node]) -> list[str]:
    """Which memory modules nodes lost: slots that are empty, or smaller, than on most nodes of the line."""
    told = [f"{name}: {text}" for name, texts in odd_of(situation, short).items() for text in texts
            if any(word in text for word in ("emory", "DIMM", "odule", "MiB"))]
    if told:
        return told[:4]
    others = [node for name, node in nodes.items() if name not in short and node.dimms]
    if not others:
        return []
    usual = {_slot(dimm): dimm for dimm in others[0].dimms}
    found = []
    for name in short[:4]:
        mine = {_slot(dimm): dimm for dimm in nodes[name].dimms}
        gone = [slot for slot, dimm in usual.items() if dimm.size_mib and mine and (
            slot not in mine or (mine[slot].size_mib or 0) < dimm.size_mib)]
        if gone:
            found.append(f"{name} lost {', '.join(gone[:6])} ({usual[gone[0]].size_mib} MiB each)")
    return found


def _slot(dimm: Dimm) -> str:
    return dimm.slot


def _too_little(situation: Situation, line: NodeLine, wanted: int, have: dict[str, int],
                nodes: dict[str, Node]) -> Iterator[Finding]:
    if any(own < wanted for own in have.values()):
        return
    least = min(have, key=lambda name: (have[name], natural(name)))
    close = have[least] - wanted
    place = line.values["realmemory"].place
    if close < CLOSE_MIB and not overridden(situation) and _percent(situation) >= 100:
        yield Finding(Severity.NOTE, f"RealMemory={wanted} is {close} MiB below what the nodes have ({have[least]} at "
                      "least)", "a BIOS or kernel update that takes a little memory drains it (Low RealMemory)",
                      _memory_lines(situation, line, have, nodes), place, tuple(have))
    wasted = [name for name, own in have.items()
              if own - wanted > margin_mib(own, situation.site)[0] + own * WASTED]
    if wasted:
        most = max(wasted, key=lambda name: have[name])
        spec = line.number("memspeclimit")
        yield Finding(Severity.DRIFT, f"RealMemory={wanted} but nodes have {have[most]}",
                      f"{have[most] - wanted} MiB of each are given to no job" + (
                          f" (MemSpecLimit={spec} holds memory back besides)" if spec else ""),
                      _memory_lines(situation, line, have, nodes), place, tuple(sorted(wasted, key=natural)))


# --- CPUs ----------------------------------------------------------------------------------------------------------


def cpus(situation: Situation) -> Iterator[Finding]:
    """Sockets, cores and threads: more than there is drains the node, others Slurm takes in silence."""
    for line, members in _lines(situation):
        said = shape(line)
        if not (said.said or "cpus" in line.values):
            continue
        found: dict[tuple[object, ...], list[tuple[str, Layout]]] = {}
        for name, node in members:
            own = layout_of(situation, line, node)
            if isinstance(own, Layout):
                key = (own.sockets, own.cores_per_socket, own.threads_per_core)
                if key != (said.sockets, said.cores, said.threads):
                    found.setdefault(key, []).append((name, own))
        for alike in found.values():
            yield from _other_shape(situation, line, said, [name for name, _ in alike], alike[0][1])


def _other_shape(situation: Situation, line: NodeLine, said: Shape, names: list[str],
                 own: Layout) -> Iterator[Finding]:
    total, there = said.sockets * said.cores * said.threads, own.cpus
    verb = "has" if len(names) == 1 else "have"
    value = next((line.values[key] for key in ("sockets", "socketsperboard", "corespersocket", "threadspercore", "cpus")
                  if key in line.values), None)
    place = value.place if value is not None else line.place
    what = (f"{said.text} but {_named(names)} {verb} Sockets={own.sockets} CoresPerSocket={own.cores_per_socket} "
            f"ThreadsPerCore={own.threads_per_core}")
    mode = mode_of(situation, line)
    if mode is not None and mode.value:
        what += f" with {mode.value}"
    right = (part_line(line, sorted(names, key=natural), cpus_of(own)),)
    nodes = tuple(sorted(names, key=natural))
    if total > there or said.cpus > there:
        severity = Severity.WRONG if overridden(situation) else Severity.INVALID
        means = ("config_overrides: Slurm takes it, and puts more on the node than it has" if overridden(situation) else
                 "the node registers INVALID (Low socket*core*thread count, Low CPUs)")
        yield Finding(severity, what, means, right, place, nodes)
    elif said.threads == 1 and own.threads_per_core > 1 and "threadspercore" in line.values:
        return                               # told where the lines themselves are judged
    elif total == there:
        word = _parameter(situation, said, names)
        more = f"; they are with {word}, which is not in force" if word else ""
        own_words = situation.conf.setting("SlurmdParameters")
        yield Finding(Severity.WRONG, what, "Slurm takes it (an error line of slurmd from 25.11 on): sockets and "
                      f"Cores= are not those of the hardware{more}", (
                          f"SlurmdParameters={f'{own_words},' if own_words else ''}{word}",) if word else right, place,
                      nodes)
    else:
        yield Finding(Severity.DRIFT, what, f"Slurm takes it: {there - total} of {there} CPUs are given to no job, and "
                      "cores are not numbered as they are", right, place, nodes)


def _parameter(situation: Situation, said: Shape, names: list[str]) -> str:
    """The parameter with which the counts would be right."""
    node = Hosts(situation).nodes[names[0]]
    for mode in Mode:
        found = layout(node.cpu, mode)
        if mode.value and isinstance(found, Layout) and (found.sockets, found.cores_per_socket) == (
                said.sockets, said.cores):
            return mode.value
    return ""


RULES: tuple[Rule, ...] = (memory, cpus, *DEVICES, *LABELS)
