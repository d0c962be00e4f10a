"""Cores= of gres.conf: abstract cores of the node, and from 24.11 on whole sockets (gres.c).

Up to 24.05 any cores of the node are taken. From 24.11.0 on every socket that is touched must be covered, from 25.11.0
on the cores are exactly one socket, or all.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Alike, Shape, gres_line, node_line
from hpcadmin.conf.check.rules._hosts import Hosts, mode_of
from hpcadmin.conf.existing.parts import GresLine, Value
from hpcadmin.conf.keys import NODE_PARAMETERS, Version
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.sockets import Layout, Mode, layout, near_cores
from hpcadmin.errors import ParseError
from hpcadmin.facts._slurm_gres import core_ids, threads
from hpcadmin.facts._slurm_rules import partly
from hpcadmin.model import Cpu, Gpu
from hpcadmin.text import fold_ids

WHOLE_SOCKETS: Version = (24, 11)
ONE_SOCKET: Version = (25, 11)
_OR_NONE = "; or leave the node line as it is, and Cores= out of all GPU lines of the node"
_OS = "Cores= counts cores in the order of lstopo, not the CPUs of the operating system"


def grammar(situation: Situation) -> Iterator[Finding]:
    for line, value in _with_cores(situation):
        try:
            _ids(value.text)
        except ParseError as exc:
            yield Finding(Severity.WRONG, f"Cores={value.text[:80]}: {exc.what.removeprefix('Cores: ')}",
                          "Slurm takes what it can read of it, in silence", (), value.place, line.hosts)


def beyond(situation: Situation) -> Iterator[Finding]:
    """Cores that the node does not have: most often CPU ids of the OS."""
    said: set[int] = set()
    for group, line, value, ids in _judged(situation):
        shape = group.shape
        if shape is None or not ids or max(ids) < shape.total:
            continue
        said.add(id(line))
        right = _of_threads(ids, shape)
        why = f"{_OS}: {right} are meant" if right else _OS
        for severity, versions in _refused(situation):
            yield Finding(severity, f"Cores={value.text[:80]}: the node has cores 0-{shape.total - 1}",
                          f"{why}. {_told(severity)}",
                          (gres_line(line, {value.key: right or None}, _hosts(line)),), value.place, group.hosts,
                          versions)
    for line, value in _with_cores(situation):
        half = threads(value.text)
        if half and id(line) not in said and not situation.conf.nodes:
            yield Finding(Severity.WRONG, f"Cores={value.text[:80]} looks like CPUs of the OS with their hyperthreads",
                          f"{_OS}: {half} where the second range are the hyperthreads of the first",
                          (gres_line(line, {value.key: half}, _hosts(line)),), value.place, line.hosts)


def _of_threads(ids: frozenset[int], shape: Shape) -> str:
    """The cores where the ids are cores with their hyperthreads, n and n + cores; "" where that is not so."""
    low = {core for core in ids if core < shape.total}
    high = {core % shape.total for core in ids if core >= shape.total}
    fits = shape.threads > 1 and max(ids) < shape.total * shape.threads and low and low == high
    return fold_ids(low) if fits else ""


def boundary(situation: Situation) -> Iterator[Finding]:
    for group, _, value, ids in _judged(situation):
        shape = group.shape
        if shape is None or not ids or max(ids) >= shape.total or len(ids) == shape.total:
            continue
        half = partly(ids, shape.cores)
        several = len(ids) != shape.cores or half is not None
        if not several:
            continue
        first = half if half is not None else min(ids) // shape.cores

        def refuses(version: Version, half: int | None = half, several: bool = several) -> bool:
            return (version >= WHOLE_SOCKETS and half is not None) or (version >= ONE_SOCKET and several)

        what = f"Cores={value.text[:80]} is not exactly one socket of {shape.cores} cores"
        span = f"Socket {first} is cores {first * shape.cores}-{(first + 1) * shape.cores - 1}"
        versions = situation.among(refuses)
        right, how = _virtual(situation, group, shape, value)
        if versions is not None:
            yield Finding(Severity.INVALID, what, f"doesn't match socket boundaries ({span}): the node is INVAL. {how}",
                          right, value.place, group.hosts, versions)
        elif several:
            since = "24.11" if half is not None else "25.11"
            yield Finding(Severity.NOTE, what, f"taken by this version, refused from {since} on ({span}): the upgrade "
                          f"would drain the node. {how}", right, value.place, group.hosts)


def boundary_of_hardware(situation: Situation) -> Iterator[Finding]:
    """Before 25.11 slurmd puts the hardware's sockets in the place of configured ones where both have as many cores
    in all, without an error line; from 24.11 on Cores= is held against these."""
    versions = situation.among(lambda version: WHOLE_SOCKETS <= version < ONE_SOCKET)
    nodes = Hosts(situation).nodes if versions is not None else {}
    for group, _, value, ids in _judged(situation) if nodes else ():
        host = next((name for name in group.hosts if name in nodes), "")
        mode = mode_of(situation, group.node) if group.node is not None and host else None
        found = layout(nodes[host].cpu, mode) if mode is not None else ""
        shape = group.shape
        if shape is None or not isinstance(found, Layout) or not ids or max(ids) >= shape.total:
            continue
        other = shape.sockets != found.sockets and shape.cores != found.cores_per_socket
        half = partly(ids, found.cores_per_socket)
        if other and shape.total == found.cores and half is not None and partly(ids, shape.cores) is None:
            span = f"{half * found.cores_per_socket}-{(half + 1) * found.cores_per_socket - 1}"
            what = f"Cores={value.text[:80]} is a socket of {shape.cores} cores as in the node line"
            yield Finding(Severity.INVALID, f"{what}, and the node has sockets of {found.cores_per_socket}",
                          "slurmd takes the hardware's: doesn't match socket boundaries "
                          f"(Socket {half} is cores {span}), the node is INVAL", (), value.place, group.hosts,
                          versions or ())


def _virtual(situation: Situation, group: Alike, shape: Shape, value: Value) -> tuple[tuple[str, ...], str]:
    """What would be right for the node's GPUs together, and in words. Of two ways the lines are those of the first; the
    words tell the other, to leave Cores= out."""
    sets = {ids for _, _, ids in _of_group(group) if ids}
    sizes = {len(ids) for ids in sets if len(ids) < shape.total}
    size = next(iter(sizes)) if len(sizes) == 1 else 0
    line = next(line for line in group.lines if line.values.get("cores") is value)
    omitted = gres_line(line, {value.key: None}, _hosts(line))
    even = size and shape.total % size == 0 and group.node is not None and all(
        len(ids) == shape.total or (min(ids) % size == 0 and max(ids) - min(ids) == size - 1) for ids in sets)
    if not shape.said:
        return ("NodeName=<what slurmd -C prints on the node>",), (
            "CPUs= alone makes each CPU a socket: write Sockets= and CoresPerSocket= first")
    if not even or group.node is None:
        return (omitted,), "Without Cores= every core is as near"
    changes: dict[str, str | None] = {"Sockets": str(shape.total // size), "SocketsPerBoard": None, "Boards": None,
                                      "CoresPerSocket": str(size)}
    if size > shape.cores:
        text = f"sockets as the packages are, without {'l3cache_as_socket or ' if _has_l3(situation, group) else ''}"
        return (node_line(group.node, {**changes, "Parameters": None}),), (
            f"Right are {text}numa_node_as_socket{_OR_NONE}")
    own = all(version >= NODE_PARAMETERS for version in situation.asked)
    if own:
        return (node_line(group.node, {**changes, "Parameters": "numa_node_as_socket"}),), (
            f"Right are NUMA nodes as sockets where they have {size} cores (slurmd -C "
            f"--parameters=numa_node_as_socket tells){_OR_NONE}")
    return ("SlurmdParameters=numa_node_as_socket", node_line(group.node, changes)), (
        f"Right are NUMA nodes as sockets where they have {size} cores (slurmd -C tells once it is set){_OR_NONE}")


def _has_l3(situation: Situation, group: Alike) -> bool:
    own = (group.node.get("parameters") or "") if group.node is not None else ""
    return "l3cache_as_socket" in f"{own},{situation.conf.setting('SlurmdParameters')}".casefold()


def layout_unknown(situation: Situation) -> Iterator[Finding]:
    """Cores= without any node line beside it."""
    if situation.conf.nodes:
        return
    for line, value in _with_cores(situation):
        yield Finding(Severity.NOTE, f"Cores={value.text[:80]} ({line.place}): how many sockets and NUMA nodes the "
                      "nodes have is not in what was given", "from 24.11 on each range of Cores must be whole sockets, "
                      "from 25.11 on exactly one (virtual ones with numa_node_as_socket count)", (), value.place,
                      line.hosts)
        return


def some_without(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        gpus = group.of()
        bare = [line for line in gpus if "cores" not in line.values]
        if bare and len(bare) < len(gpus):
            yield Finding(Severity.WRONG, "some GPU lines of a node have Cores= and others do not",
                          "those without are near all cores to slurmctld, which logs an error where such a line "
                          "follows one with Cores=, and leaves it out of (S:…) where it comes first: write Cores= on "
                          "all of them, all cores on those, or on none", (), bare[0].place, group.hosts)


def locality(situation: Situation) -> Iterator[Finding]:
    """Against the cores that the inventory found near each GPU."""
    for group, line, value, ids in _judged(situation):
        seen: set[tuple[int, Gpu]] = set()
        for host in group.hosts:
            node = situation.machines.get(host)
            gpus = [g for g in node.gpus if g.device_file and g.device_file in line.files] if node else []
            for gpu in gpus:
                if node is None or (id(node.cpu), gpu) in seen:
                    continue
                seen.add((id(node.cpu), gpu))
                near = near_cores(node.cpu, gpu).cores
                if near is None or not ids or max(ids) >= len(node.cpu.cores) or (
                        near <= ids and (near == ids or _whole(node.cpu, ids))):
                    continue
                os_ids = ids == frozenset(gpu.local_cpus) or ids == frozenset(gpu.local_cpus[:len(near)])
                what = _OS if os_ids else ("Slurm takes the GPU for near all sockets that these cores are in"
                                           if near < ids else "jobs are bound to cores far from their GPU")
                yield Finding(Severity.WRONG, f"Cores={value.text[:80]}, the cores near {gpu.device_file} are "
                              f"{fold_ids(near)}", what, (gres_line(line, {value.key: fold_ids(near)}, _hosts(line)),),
                              value.place, group.hosts)


def _whole(cpu: Cpu, ids: frozenset[int]) -> bool:
    """Whether these are whole packages, NUMA nodes or L3 caches: coarser than what is near, and right all the same."""
    for mode in Mode:
        made = layout(cpu, mode)
        if isinstance(made, Layout) and made.spans and all(span <= ids or not span & ids for span in made.spans):
            return True
    return False


# --- what several rules ask ----------------------------------------------------------------------------------------


def _with_cores(situation: Situation) -> Iterator[tuple[GresLine, Value]]:
    for line in situation.conf.gres:
        value = line.values.get("cores")
        if value is not None and value.text != "(null)":
            yield line, value


def _judged(situation: Situation) -> Iterator[tuple[Alike, GresLine, Value, frozenset[int]]]:
    """Cores= by hand of each group; beside AutoDetect they are judged there."""
    for group in situation.alike:
        for line, value, ids in _of_group(group):
            yield group, line, value, ids


def _of_group(group: Alike) -> Iterator[tuple[GresLine, Value, frozenset[int]]]:
    for line in group.lines if group.autodetect is None else ():
        value = line.values.get("cores")
        if value is None or value.text == "(null)":
            continue
        try:
            yield line, value, _ids(value.text)
        except ParseError:
            continue


def _ids(text: str) -> frozenset[int]:
    """Slurm takes no notice of a comma too many. Raises ParseError."""
    return frozenset(core_ids(",".join(part for part in text.strip("[]").split(",") if part)))


def _refused(situation: Situation) -> Iterator[tuple[Severity, tuple[Version, ...]]]:
    """What cannot be read as cores: silent before 24.11, INVAL from there on."""
    new = situation.among(lambda version: version >= WHOLE_SOCKETS)
    old = situation.among(lambda version: version < WHOLE_SOCKETS)
    if new is not None:
        yield Severity.INVALID, new
    if old is not None:
        yield Severity.WRONG, old


def _told(severity: Severity) -> str:
    if severity is Severity.INVALID:
        return "The node is INVAL, from 25.11 on with an empty Reason"
    return "slurmd logs Invalid GRES data, the node goes IDLE, and affinity is gone"


def _hosts(line: GresLine) -> str:
    return slurm_list(line.hosts) if line.hosts else ""


RULES: tuple[Rule, ...] = (grammar, beyond, boundary, boundary_of_hardware, layout_unknown, some_without, locality)
