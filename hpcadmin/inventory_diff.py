"""Two inventories of one cluster: what was replaced, moved, updated or lost between them.

What changes by itself is left out: times, LIDs, the PCIe speed of an idle GPU, memory within a percent, log entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpcadmin import device_diff, hosts, traits
from hpcadmin import differences as d
from hpcadmin.cabling import Cabling, switch_links
from hpcadmin.device_diff import Line
from hpcadmin.facts import _base
from hpcadmin.model import Inventory, Node
from hpcadmin.text import fold_ids, plural, printable

_KINDS = ("gone", "new", "moved", "replaced", "changed")     # in the order in which they are told


@dataclass(frozen=True)
class Change:
    """kind: "gone", "new", "moved", "replaced" or "changed". node "": of the fabric."""

    kind: str
    node: str
    what: str
    old: str = ""
    new: str = ""

    @property
    def text(self) -> str:
        """What comes behind the name of the node."""
        return f"{self.what}: {self.old} -> {self.new}" if self.old or self.new else self.what


@dataclass(frozen=True)
class Diff:
    changes: tuple[Change, ...] = ()
    old_nodes: int = 0
    new_nodes: int = 0

    @property
    def same(self) -> bool:
        return not self.changes


def diff(old: Inventory, new: Inventory) -> Diff:
    """Every change, nodes in natural order, the gone ones first."""
    now = _names(old, new)
    before = {now.get(node.name, node.name): node for node in old.nodes}
    after = {node.name: node for node in new.nodes}
    lines = [*_nodes(old, new, now), *_cables(old, new, before, after), *_fabrics(old, new)]
    for name in before.keys() & after.keys():
        lines += _node(name, before[name], after[name])
    for kind in device_diff.KINDS:
        lines += device_diff.compare(kind, before, after)
    place = {kind: number for number, kind in enumerate(_KINDS)}
    ordered = sorted(set(lines), key=lambda line: (_base.natural(line[1]), place[line[0]], _base.natural(line[2]),
                                                   line))
    return Diff(tuple(Change(*line) for line in ordered), len(old.nodes), len(new.nodes))


def text(found: Diff) -> str:
    """A line for each change, nodes that share it folded."""
    if found.same:
        return f"no difference ({plural(found.new_nodes, 'node')})"
    folded: dict[str, list[str]] = {}
    for change in found.changes:
        folded.setdefault(change.text, []).append(change.node)
    return "\n".join(printable(f"{hosts.fold(nodes)}: {what}" if nodes[0] else what, limit=1000)
                     for what, nodes in folded.items())


def _names(old: Inventory, new: Inventory) -> dict[str, str]:
    """old name -> name now, of machines that were renamed: known by their serial or system UUID."""
    now: dict[str, str] = {}
    for get in (lambda node: node.serial, lambda node: node.uuid):
        was, is_now = _unique(old.nodes, get), _unique(new.nodes, get)
        for identity, name in was.items():
            if identity in is_now and is_now[identity] != name:
                now.setdefault(name, is_now[identity])
    # Two old nodes must not become one: a name that is taken over is given up only by a node that has another now.
    kept = {node.name for node in old.nodes} - now.keys()
    times = Counter(now.values())
    return {name: new_name for name, new_name in now.items() if new_name not in kept and times[new_name] == 1}


def _unique(nodes: Iterable[Node], get: Callable[[Node], str]) -> dict[str, str]:
    found: dict[str, str] = {}
    twice = set()
    for node in nodes:
        identity = get(node).strip().casefold()
        if identity in found:
            twice.add(identity)
        elif identity:
            found[identity] = node.name
    return {identity: name for identity, name in found.items() if identity not in twice}


def _nodes(old: Inventory, new: Inventory, now: Mapping[str, str]) -> Iterator[Line]:
    failed = {item.node: item.reason for item in new.failed}
    silent = {item.node for item in old.failed}
    names = {node.name for node in new.nodes}
    for node in old.nodes:
        name = now.get(node.name, node.name)
        if node.name in now:
            yield "moved", name, f"this machine ({node.serial or node.uuid}) was {node.name}", "", ""
        elif name in failed:
            yield "gone", name, f"not captured any more: {failed[name]}", "", ""
        elif name not in names:
            yield "gone", name, f"is gone ({_machine(node)})", "", ""
    known = {now.get(node.name, node.name) for node in old.nodes}
    for node in new.nodes:
        if node.name not in known:
            about = "could not be captured before" if node.name in silent else "is new"
            yield "new", node.name, f"{about} ({_machine(node)})", "", ""


def _machine(node: Node) -> str:
    return ", ".join(filter(None, (node.product, node.serial))) or "of unknown make"


_FIELDS: tuple[tuple[str, str, Callable[[Node], str]], ...] = (
    ("replaced", "serial", lambda n: n.serial), ("replaced", "system UUID", lambda n: n.uuid),
    ("replaced", "serial of the board", lambda n: n.board_serial),
    ("replaced", "serial of the chassis", lambda n: n.chassis_serial),
    ("changed", "vendor", lambda n: n.vendor), ("changed", "product", lambda n: n.product),
    ("changed", "hostname", lambda n: n.hostname), ("changed", "BIOS", lambda n: n.bios),
    ("changed", "BIOS date", lambda n: n.bios_date), ("changed", "BMC firmware", lambda n: n.bmc.firmware),
    ("changed", "BMC address", lambda n: n.bmc.address), ("changed", "OS", lambda n: n.os),
    ("changed", "kernel", lambda n: n.kernel), ("changed", "GPU driver", lambda n: n.gpu_driver),
    ("changed", "Slurm", lambda n: n.slurm_version), ("changed", "CPU model", lambda n: n.cpu.model),
    ("changed", "CPU topology", traits.cpu_text), ("changed", "simulated hardware", lambda n: n.simulated),
    ("changed", "offline CPUs", lambda n: fold_ids(n.cpu.offline) or "none"),
    ("changed", "NUMA nodes", lambda n: str(len(n.cpu.numa) or "")),
    ("changed", "time", lambda n: n.time_sync.partition(" to ")[0].partition(", stratum")[0]),
)
_SETS: tuple[tuple[str, Callable[[Node], Iterable[str]]], ...] = (
    ("addresses", lambda n: n.addresses), ("power supplies", lambda n: n.bmc.psus),
    ("kernel command line", lambda n: [word for word in n.command_line.split() if not word.startswith("BOOT_IMAGE=")]),
    ("mounts", lambda n: [f"{mount.target} ({mount.kind} {mount.source})" for mount in n.mounts]),
    ("tools", lambda n: [name for name, path in n.tools.items() if path]),
    ("PCI devices", lambda n: [f"{x.address} {x.name or f'{x.vendor_id}:{x.device_id}'}" for x in n.pci
                               if not x.class_id.startswith(("02", "03", "12"))]),
)
_TABLES: tuple[tuple[str, Callable[[Node], Mapping[str, str]]], ...] = (
    ("", lambda n: n.versions), ("", lambda n: n.settings), ("BIOS setting ", lambda n: n.bmc.settings))


def _node(name: str, old: Node, new: Node) -> Iterator[Line]:
    for kind, what, get in _FIELDS:
        if get(old) != get(new):
            yield kind if get(old) and get(new) else "changed", name, what, get(old) or "unknown", get(new) or "unknown"
    if _memory_changed(old.memory_mib, new.memory_mib):
        yield "changed", name, "memory", traits.memory_text(old), traits.memory_text(new)
    if old.cpu != new.cpu and traits.cpu_text(old) == traits.cpu_text(new) and old.cpu.cores and new.cpu.cores \
            and old.cpu.cores != new.cpu.cores:
        yield "changed", name, "CPU topology: numbered otherwise, or other NUMA nodes", "", ""
    for what, items in _SETS:
        ours, theirs = frozenset(items(old)), frozenset(items(new))
        if ours != theirs:
            yield "changed", name, d.items_text(what, sorted(ours - theirs), sorted(theirs - ours)), "", ""
    for prefix, table in _TABLES:
        for key in table(old).keys() | table(new).keys():
            before, after = table(old).get(key, ""), table(new).get(key, "")
            if before != after:
                yield "changed", name, f"{prefix}{key}", before or "unknown", after or "unknown"
    if old.gpu_links != new.gpu_links:
        yield "changed", name, "GPU links", d.links_text(old), d.links_text(new)
    for problem in set(old.problems) ^ set(new.problems):
        seen = problem in new.problems
        yield ("new" if seen else "gone"), name, f"fault{'' if seen else ' that is gone'}: {problem}", "", ""


def _memory_changed(old: int | None, new: int | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(old - new) > traits.MEMORY_TOLERANCE * max(old, new)


def _cables(old: Inventory, new: Inventory, before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[Line]:
    was, is_now = Cabling(old), Cabling(new)
    for name in before.keys() & after.keys():
        ports = {d.nic_name(nic): nic for nic in after[name].nics if not nic.virtual and not nic.pf}
        for nic in before[name].nics:
            other = ports.get(d.nic_name(nic))
            if other is None or nic.virtual:
                continue
            one, two = was.end(before[name], nic)[0], is_now.end(after[name], other)[0]
            asked = (was.known and is_now.known) if other.link_layer == "InfiniBand" else (
                before[name].neighbours and after[name].neighbours)
            if (one is None) != (two is None) and asked:
                shown, now = (end.text if end else "unknown" for end in (one, two))
                yield "changed", name, f"cable of {d.nic_name(nic)}", shown, now
            elif one is not None and two is not None and (one.switch, one.port) != (two.switch, two.port):
                yield "moved", name, f"cable of {d.nic_name(nic)}", one.text, two.text


def _fabrics(old: Inventory, new: Inventory) -> Iterator[Line]:
    """Switches, and the links between them."""
    if bool(old.fabrics) != bool(new.fabrics):
        known, now = ("known" if inventory.fabrics else "unknown" for inventory in (old, new))
        yield "changed", "", "fabric", known, now
        return
    switches = [{switch.guid or switch.name: switch.name for fabric in inventory.fabrics for switch in fabric.switches}
                for inventory in (old, new)]
    for key in switches[0].keys() ^ switches[1].keys():
        kind = "new" if key in switches[1] else "gone"
        name = switches[0].get(key) or switches[1][key]
        yield kind, "", f"switch {name}{f' ({key})' if key != name else ''} is {kind}", "", ""
    links = [{key: value for fabric in inventory.fabrics for key, value in switch_links(fabric)}
             for inventory in (old, new)]
    for link in links[0].keys() | links[1].keys():
        one, two = links[0].get(link), links[1].get(link)
        name = (two or one or ("", None, ""))[0]
        what = f"switch {name} port {link[1]}"
        if one is None or two is None:
            yield "changed", "", what, one[1].text if one else "nothing", two[1].text if two else "nothing"
        elif one[1] != two[1]:
            yield "moved", "", what, one[1].text, two[1].text
        elif one[2] != two[2]:
            yield "changed", "", f"{what} to {two[1].text}", one[2] or "unknown", two[2] or "unknown"
