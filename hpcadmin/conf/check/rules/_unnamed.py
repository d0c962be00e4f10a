"""GPUs that a node has and gres.conf does not name: the missing lines, in the words of those that are there."""

from __future__ import annotations

from hpcadmin.bus_order import bus_order
from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.check.fleet import Alike, gres_line
from hpcadmin.conf.check.rules._hosts import Hosts, layout_of
from hpcadmin.conf.existing.parts import GresLine
from hpcadmin.conf.gpus import device_file, links
from hpcadmin.conf.names import slurm_list
from hpcadmin.conf.sockets import Layout, near_cores
from hpcadmin.model import Gpu, Node
from hpcadmin.text import fold_ids


def missing_lines(situation: Situation, group: Alike) -> tuple[str, ...]:
    """One for each such GPU of the first node that the inventory has; () where its devices are not known."""
    nodes = Hosts(situation).nodes
    node = next((nodes[host] for host in group.hosts if host in nodes), None)
    lines = [line for line in group.of() if line.files]
    if node is None or node.lacks("gpus") or not lines:
        return ()
    order = bus_order(node.gpus)
    if isinstance(order, str) or len({gpu.model for gpu in order}) != 1:
        return ()
    files = [device_file(gpu)[0] for gpu in order]
    named = {path for line in lines for path in line.files}
    if "" in files or not named <= set(files):
        return ()
    rows, _ = links(node, order)
    found = layout_of(situation, group.node, node) if group.node is not None else ""
    return tuple(_line(lines[0], file, _cores(node, gpu, found), rows[place] if rows else None)
                 for place, (gpu, file) in enumerate(zip(order, files, strict=True)) if file not in named)


def _cores(node: Node, gpu: Gpu, found: Layout | str) -> str | None:
    near = near_cores(node.cpu, gpu).cores
    return fold_ids(near) if near is not None and isinstance(found, Layout) and near in found.spans else None


def _line(like: GresLine, file: str, cores: str | None, row: str | None) -> str:
    """Cores and Links where the line that is there has them."""
    changes = {"Files": None, "Count": None, "Cores": cores, "CPUs": cores, "Links": row, "Link": row}
    kept = {key: text for key, text in changes.items() if key.casefold() in like.values}
    return gres_line(like, {"File": file, **kept}, slurm_list(like.hosts))
