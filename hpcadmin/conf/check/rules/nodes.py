"""NodeName lines: how Slurm completes what they say, and what it sets anew, ignores or refuses (read_config.c)."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Alike, node_line, shape
from hpcadmin.conf.check.force import linear, memory_consumed, parameters, select
from hpcadmin.conf.existing.parts import NodeLine, Value
from hpcadmin.conf.names import slurm_list
from hpcadmin.errors import ParseError
from hpcadmin.facts._slurm_gres import core_ids

# What node_state_string() knows beside the prefixes below; only UNKNOWN, DOWN and FUTURE make sense in a file.
_STATES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})
_PREFIXES = ("CLOUD", "EXTERNAL", "DRAIN", "FAIL")
_UNAVAILABLE = ("DOWN", "DRAIN", "FAIL", "ERROR")
_COUNTED = ("cpus", "sockets", "socketsperboard", "corespersocket", "threadspercore", "boards", "realmemory")
_MEASURE = "write the line that slurmd -C prints on the node"


def sockets_twice(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        both, per_board = line.values.get("sockets"), line.values.get("socketsperboard")
        if both is None or per_board is None:
            continue
        same = both.text == per_board.text
        yield Finding(
            Severity.DEPRECATED if same else Severity.WRONG,
            f"{both.key}={both.text} and {per_board.key}={per_board.text} on one line",
            "an error line, and Slurm takes SocketsPerBoard", (node_line(line, {"Sockets": None}),), both.place, hosts)


def boards(situation: Situation) -> Iterator[Finding]:
    """From 21.08 on Sockets= counts those of all boards."""
    for line, hosts in _lines(situation):
        count, sockets = line.number("boards") or 1, line.number("sockets")
        if count < 2 or sockets is None or "socketsperboard" in line.values:
            continue
        if sockets < count:
            yield Finding(Severity.WRONG, f"Sockets={sockets} on Boards={count}", "Slurm resets Boards to 1",
                          (node_line(line, {"Boards": None}),), line.place, hosts)
        else:
            yield Finding(Severity.NOTE, f"Sockets={sockets} together with Boards={count}",
                          f"Sockets counts those of all boards; SocketsPerBoard={sockets // count} says the same, and "
                          "so does the line without Boards", (node_line(line, {"Boards": None}),), line.place, hosts)


def zero(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        for key in _COUNTED[:-1]:
            value = line.values.get(key)
            if value is not None and value.text.strip("0") == "" and value.text:
                yield Finding(Severity.WRONG, f"{value.key}=0", "an error line, and Slurm takes 1",
                              (node_line(line, {value.key: None}), _MEASURE), value.place, hosts)


def cpus_product(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        found = shape(line)
        if found.reset is None:
            continue
        yield Finding(
            Severity.WRONG, f"CPUs={line.get('cpus')} is neither {found.sockets} sockets, nor their {found.total} "
            f"cores, nor the {found.reset} threads of {found.text}",
            f"an error line, Slurm resets CPUs to {found.reset}, and the node goes IDLE",
            (node_line(line, {"CPUs": str(found.reset)}),), line.values["cpus"].place, hosts)


def cpus_are_sockets(situation: Situation) -> Iterator[Finding]:
    """The third number that read_config.c lets pass: select/cons_tres of 22.05 does not."""
    refused = situation.among(lambda v: v < (23, 2) and select(situation, v) != "linear") if situation.whole else None
    taken = situation.among(lambda v: v >= (23, 2) or not situation.whole or select(situation, v) == "linear")
    for line, hosts in _lines(situation):
        found, cpus = shape(line), line.number("cpus")
        if cpus is None or cpus != found.sockets or found.total == found.sockets:
            continue
        for severity, versions, means in (
                (Severity.FATAL, refused, "slurmctld does not start: with select/cons_tres it is cores or threads"),
                (Severity.WRONG, taken, f"jobs get {cpus} of the node's {found.total * found.threads} CPUs")):
            if versions is not None:
                yield Finding(severity, f"CPUs={cpus} is the number of sockets of {found.text}", means,
                              (node_line(line, {"CPUs": str(found.total * found.threads)}),),
                              line.values["cpus"].place, hosts, versions)


def cpus_are_cores(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        found, cpus = shape(line), line.number("cpus")
        if cpus and found.said and found.threads > 1 and cpus == found.total and found.reset is None:
            yield Finding(Severity.NOTE, f"CPUs={cpus} is the number of cores, although ThreadsPerCore="
                          f"{found.threads}", f"legal: cores are scheduled, not threads; slurmd -C says "
                          f"CPUs={found.total * found.threads}", (), line.values["cpus"].place, hosts)


def only_cpus(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        line = group.node
        if line is None or _future(group):
            continue
        found = shape(line)
        if found.said or found.cpus < 2 or "cpus" not in line.values or _confirmed(situation, group):
            continue
        right = _measured(situation, group) or (_MEASURE,)
        yield Finding(Severity.WRONG, f"CPUs={found.cpus} without Sockets= and CoresPerSocket=",
                      f"Slurm takes {found.sockets} sockets of one core with {found.threads} "
                      f"thread{'s' if found.threads > 1 else ''}: no locality, and Cores= of GPUs means nothing",
                      right, line.values["cpus"].place, group.hosts)


def no_counts(situation: Situation) -> Iterator[Finding]:
    if situation.fragment:
        return
    for group in situation.alike:
        line = group.node
        if line is None or _future(group) or any(key in line.values for key in _COUNTED[:-1]):
            continue
        if _confirmed(situation, group):
            continue
        yield Finding(Severity.WRONG, "no CPUs=, Sockets=, CoresPerSocket= or ThreadsPerCore=",
                      "Slurm takes one CPU, and jobs get no more of the node",
                      _measured(situation, group) or (_MEASURE,), line.place, group.hosts)


def threads_off(situation: Situation) -> Iterator[Finding]:
    """ThreadsPerCore=1 on hardware with hyperthreads: Slurm's conversion of CPU ids goes wrong."""
    for group in situation.alike:
        value = group.node.values.get("threadspercore") if group.node is not None else None
        if group.node is None or value is None or value.text != "1":
            continue
        with_threads = [host for host in group.hosts if host in situation.machines
                        and (situation.machines[host].cpu.threads_per_core or 1) > 1]
        if not with_threads:
            continue
        cpu = situation.machines[with_threads[0]].cpu
        detected = (f"; AutoDetect={group.autodetect.text} loses half of each GPU's cores"
                    if group.autodetect is not None else "")
        cores = (cpu.sockets or 1) * (cpu.cores_per_socket or 1)
        right = node_line(group.node, {"CPUs": str(cores), "Sockets": str(cpu.sockets), "SocketsPerBoard": None,
                                       "CoresPerSocket": str(cpu.cores_per_socket),
                                       "ThreadsPerCore": str(cpu.threads_per_core)})
        yield Finding(Severity.WRONG, f"ThreadsPerCore=1, the nodes have {cpu.threads_per_core}",
                      f"the node goes IDLE with an error line, masks of CPUs are wrong{detected}; to schedule cores, "
                      "write the true ThreadsPerCore and CPUs= as the number of cores", (right,), value.place,
                      tuple(with_threads))


def core_spec(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        found = shape(line)
        count, listed = line.values.get("corespeccount"), line.values.get("cpuspeclist")
        number = line.number("corespeccount")
        if count is not None and number is not None and number >= found.total:
            yield Finding(Severity.WRONG, f"CoreSpecCount={number} of {found.total} cores",
                          "an error line, and Slurm sets it to 1", (), count.place, hosts)
        if count is not None and number and listed is not None:
            yield Finding(Severity.WRONG, f"CoreSpecCount={number} beside CpuSpecList={listed.text[:60]}",
                          "an error line, and CoreSpecCount is 0: the list counts",
                          (node_line(line, {"CoreSpecCount": None}),), count.place, hosts)
        wrong = _cpu_list(listed, found.cpus)
        if listed is not None and wrong:
            yield Finding(Severity.WRONG, f"CpuSpecList={listed.text[:60]}: {wrong}",
                          "Slurm ignores it: it holds abstract CPU ids below CPUs=", (), listed.place, hosts)


def mem_spec(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        limit, memory = line.number("memspeclimit"), line.number("realmemory")
        if limit and limit >= (memory or 1):
            yield Finding(Severity.WRONG, f"MemSpecLimit={limit} with RealMemory={memory or 'not said'}",
                          "an error line, and Slurm sets it to 0: nothing is kept for the system", (),
                          line.values["memspeclimit"].place, hosts)


def real_memory(situation: Situation) -> Iterator[Finding]:
    if not situation.whole:
        return
    for group in situation.alike:
        if group.node is None or _future(group) or "realmemory" in group.node.values:
            continue
        consumed = memory_consumed(situation)
        yield Finding(Severity.WRONG if consumed else Severity.NOTE, "no RealMemory=",
                      "Slurm takes 1 MiB" + (": no job that asks for memory runs there" if consumed else ""),
                      _measured(situation, group) or (_MEASURE,), group.node.place, group.hosts)


def memory_held_back(situation: Situation) -> Iterator[Finding]:
    """RealMemory below the hardware to reserve memory, where memory is nothing that jobs are given."""
    if not situation.whole or memory_consumed(situation) or linear(situation):
        return
    for group in situation.alike:
        memory = group.node.number("realmemory") if group.node is not None else None
        if group.node is None or memory is None:
            continue
        real = [situation.machines[h].real_memory_mib or situation.machines[h].memory_mib
                for h in group.hosts if h in situation.machines]
        least = min((m for m in real if m), default=None)
        if least is not None and memory < least * 0.9:
            yield Finding(Severity.WRONG, f"RealMemory={memory} is far below the {least} MiB of the nodes, and "
                          f"SelectTypeParameters={parameters(situation)} does not give out memory",
                          "nothing is held back: jobs use all memory",
                          ("SelectTypeParameters=CR_Core_Memory", node_line(group.node, {"MemSpecLimit":
                                                                                         str(least - memory)})),
                          group.node.values["realmemory"].place, group.hosts)


def state(situation: Situation) -> Iterator[Finding]:
    for line, hosts in _lines(situation):
        value = line.values.get("state")
        text = value.text.upper() if value is not None else ""
        reason = line.values.get("reason")
        if value is not None and text not in _STATES and not text.startswith(_PREFIXES):
            yield Finding(Severity.FATAL, f"State={value.text[:40]} is no state of a node line",
                          "slurmctld cannot read the node: use UNKNOWN, DOWN, DRAIN, FAIL, FUTURE or CLOUD",
                          (node_line(line, {"State": "UNKNOWN"}),), value.place, hosts)
        elif value is not None and text in ("IDLE", "ALLOCATED", "MIXED", "ERROR"):
            yield Finding(Severity.WRONG, f"State={value.text} in the file",
                          "after each start slurmctld believes it before the node has registered",
                          (node_line(line, {"State": "UNKNOWN"}),), value.place, hosts)
        elif value is not None and text.startswith(_UNAVAILABLE) and reason is None:
            yield Finding(Severity.NOTE, f"State={value.text} without Reason=", "nobody sees why",
                          (node_line(line, {"Reason": '"..."'}),), value.place, hosts)
        if reason is not None and not text.startswith(_UNAVAILABLE):
            yield Finding(Severity.NOTE, f"Reason={reason.text[:60]!r} on a line with State="
                          f"{text or 'UNKNOWN'}", "it belongs to State=DOWN, DRAIN or FAIL", (), reason.place, hosts)


def twice(situation: Situation) -> Iterator[Finding]:
    first: dict[str, NodeLine] = {}
    for line in situation.conf.nodes:
        again: dict[int, list[str]] = {}
        own: set[str] = set()
        for host in line.hosts:
            if host in own:
                again.setdefault(id(line), []).append(host)
            elif host in first:
                again.setdefault(id(first[host]), []).append(host)
            own.add(host)
            first.setdefault(host, line)
        for hosts in again.values():
            before = first[hosts[0]]
            yield Finding(Severity.FATAL, f"NodeName {slurm_list(hosts)} stands twice, first at {before.place}",
                          "Duplicated NodeName: no daemon starts", (), line.place, tuple(hosts))


def hostnames(situation: Situation) -> Iterator[Finding]:
    """NodeHostname= of one line that is another's as well: only the first is known by it."""
    seen: dict[str, NodeLine] = {}
    for line in situation.conf.nodes:
        value = line.values.get("nodehostname")
        if value is None:
            continue
        if len(line.hosts) == 1 and value.text != line.hosts[0]:
            yield Finding(Severity.NOTE, f"NodeHostname={value.text[:60]} is another name than {line.hosts[0]}",
                          "legal where the node calls itself so", (), value.place, line.hosts)
        if value.text in seen and not _ports(line, seen[value.text]):
            yield Finding(Severity.WRONG, f"NodeHostname={value.text[:60]} is that of {seen[value.text].text[:60]} too "
                          f"({seen[value.text].place})", "Duplicated NodeHostName: slurmd cannot tell which it is",
                          (), value.place, line.hosts)
        seen.setdefault(value.text, line)


def in_no_partition(situation: Situation) -> Iterator[Finding]:
    conf = situation.conf
    if not situation.whole or not conf.nodes:
        return
    if not conf.partitions:
        names = tuple(host for line in conf.nodes for host in line.hosts)
        for severity, versions, means in (
                (Severity.FATAL, situation.among(lambda v: v < (23, 2)), "slurmctld does not start"),
                (Severity.WRONG, situation.among(lambda v: v >= (23, 2)), "no job can be queued")):
            if versions is not None:
                yield Finding(severity, "there is no PartitionName= line", means, (
                    f"PartitionName=main Nodes={slurm_list(names)} Default=YES MaxTime=INFINITE State=UP",),
                    conf.nodes[0].place, (), versions)
        return
    if any("{" in (p.values["nodes"].text if "nodes" in p.values else "") for p in conf.partitions):
        return                           # a node list function: nobody but slurmctld knows
    used = {host for partition in conf.partitions for host in partition.hosts}
    for group in situation.alike:
        lost = tuple(host for host in group.hosts if host not in used) if group.node is not None else ()
        if lost and group.node is not None and not _future(group):
            yield Finding(Severity.WRONG, f"{slurm_list(lost)} {'is' if len(lost) == 1 else 'are'} in no partition",
                          "no job ever gets there", (f"PartitionName={conf.partitions[0].name} Nodes=…,"
                                                     f"{slurm_list(lost)}",), group.node.place, lost)


# --- what several rules ask ----------------------------------------------------------------------------------------


def _lines(situation: Situation) -> Iterator[tuple[NodeLine, tuple[str, ...]]]:
    for line in situation.conf.nodes:
        yield line, line.hosts


def _future(group: Alike) -> bool:
    return group.state.startswith("FUTURE")


def _ports(one: NodeLine, other: NodeLine) -> bool:
    return one.get("port") != other.get("port")


def _cpu_list(value: Value | None, cpus: int) -> str:
    if value is None:
        return ""
    try:
        ids = core_ids(value.text)
    except ParseError as exc:
        return exc.what
    return f"CPU {ids[-1]} of {cpus}" if ids and ids[-1] >= cpus else ""


def _confirmed(situation: Situation, group: Alike) -> bool:
    """Whether the inventory has the node as Slurm completes the line."""
    found = group.shape
    cpus = [situation.machines[h].cpu for h in group.hosts if h in situation.machines]
    return found is not None and bool(cpus) and all(
        (c.sockets, c.cores_per_socket, c.threads_per_core) == (found.sockets, found.cores, found.threads)
        for c in cpus)


def _measured(situation: Situation, group: Alike) -> tuple[str, ...]:
    """The node line with the counts of the inventory, where all its nodes agree; () where that is not known."""
    shapes = {(c.sockets, c.cores_per_socket, c.threads_per_core)
              for h in group.hosts if h in situation.machines for c in [situation.machines[h].cpu]}
    if len(shapes) != 1 or group.node is None:
        return ()
    sockets, cores, threads = next(iter(shapes))
    if sockets is None or cores is None or threads is None:
        return ()
    return (node_line(group.node, {"CPUs": str(sockets * cores * threads), "Sockets": str(sockets),
                                   "SocketsPerBoard": None, "Boards": None, "CoresPerSocket": str(cores),
                                   "ThreadsPerCore": str(threads)}),)


RULES: tuple[Rule, ...] = (
    sockets_twice, boards, zero, cpus_product, cpus_are_sockets, cpus_are_cores, only_cpus, no_counts, threads_off,
    core_spec, mem_spec, real_memory, memory_held_back, state, twice, hostnames, in_no_partition)
