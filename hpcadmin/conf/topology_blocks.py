"""Blocks: nodes whose GPUs are in one NVLink domain (NVL72 racks), and the sizes that Slurm plans with."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from hpcadmin.conf.keys import Version, show
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import Kind, Problem
from hpcadmin.conf.topology_names import free
from hpcadmin.conf.topology_parts import Block, Blocks, some
from hpcadmin.conf.topology_tables import blocks_of_table
from hpcadmin.fabric.names import pieces
from hpcadmin.model import Gpu, Node
from hpcadmin.site_topology import TopologySite

# topology/block is there, blocks may be larger than the base, and smaller (slurmctld's own checks in each release).
SINCE: Version = (23, 11)
LARGER_SINCE: Version = (24, 5)
SMALLER_SINCE: Version = (25, 5)
MAX_LEVEL = 15                        # a size is at most 2^15 times the base
_UUID = re.compile(r"[0-9a-f-]{8,40}")
Domain = tuple[str, str]              # cluster UUID and clique


def blocks_of(nodes: Sequence[Node], site: TopologySite, absent: Collection[str], version: Version | None) -> Blocks:
    """The site's blocks, else those of the GPUs; none where no NVLink domain spans nodes."""
    found = Blocks()
    if site.blocks:
        every, found.problems, found.notes = blocks_of_table(site, [node.name for node in nodes], absent)
    else:
        every = _domains(nodes, found)
    every.sort(key=lambda block: natural(block.nodes[0]))
    if not every:
        if site.block_sizes:
            found.problems.append(Problem(
                Kind.SITE, "[topology] block_sizes: there are no blocks, neither in [topology.blocks] nor as NVLink "
                "domains of the nodes' GPUs", key="topology.block_sizes", hint="name the blocks, or leave it out"))
        return found
    full = _full([len(block.nodes) for block in every])
    _sizes(found, every, site, full, version)
    base = found.sizes[0] if found.sizes else full
    found.blocks = tuple(_written(found, every, base, full, version))
    return found


def _domains(nodes: Sequence[Node], found: Blocks) -> list[Block]:
    members: dict[Domain, list[str]] = defaultdict(list)
    outside: dict[str, list[str]] = defaultdict(list)
    models = set()
    for node in nodes:
        told = [_domain(gpu) for gpu in node.gpus]
        own = {domain for domain in told if domain}
        if len(own) > 1:
            found.problems.append(Problem(
                Kind.FAULT, f"its GPUs are in {len(own)} NVLink domains ({some([_shown(d) for d in sorted(own)])}), "
                "and a node can be in one block only", node.name,
                hint="look at nvidia-smi -q: Fabric; or name the blocks in [topology.blocks]"))
        elif own:
            members[own.pop()].append(node.name)
            models |= {gpu.model for gpu in node.gpus}
            if None in told:
                found.notes.append(f"{node.name}: {told.count(None)} of its {len(told)} GPUs have not joined the "
                                   "NVLink domain of the others")
        elif node.gpus:
            outside[node.gpus[0].model].append(node.name)
    if all(len(names) < 2 for names in members.values()):
        return []
    for model in sorted(models & outside.keys()):
        found.notes.append(f"{slurm_list(outside[model])}: in no block, no NVLink domain of the {model} is known")
    names = _block_names(members)
    return [Block(names[domain], tuple(sorted(own, key=natural)), f"the GPUs of these are in one NVLink domain, "
                  f"{_shown(domain)}", "inventory, nvidia-smi -q (Fabric)") for domain, own in members.items()]


def _domain(gpu: Gpu) -> Domain | None:
    """None while the GPU has joined no domain: N/A, zeros, not completed."""
    uuid, clique = gpu.fabric_cluster_uuid.strip().casefold(), gpu.fabric_clique.strip()
    if not _UUID.fullmatch(uuid) or not uuid.strip("0-") or not clique.isdigit() or not clique.strip("0"):
        return None
    if gpu.fabric_state and gpu.fabric_state.casefold() != "completed":
        return None
    return uuid, clique.lstrip("0")


def _shown(domain: Domain) -> str:
    return f"{domain[0]} clique {domain[1]}"


def _block_names(members: Mapping[Domain, Sequence[str]]) -> dict[Domain, str]:
    """By the number that the names of a block's nodes share (rack03), else by the domain's UUID."""
    shared = {domain: _shared(names) for domain, names in members.items()}
    count = Counter(shared.values())
    short = Counter(uuid[:8] for uuid, _ in members)
    taken: set[str] = set()
    found = {}
    for domain in sorted(members):
        uuid, clique = domain
        by_uuid = f"nvl-{uuid[:8]}" if short[uuid[:8]] == 1 else f"nvl-{uuid[:8]}-{clique}"
        name = shared[domain]
        found[domain] = free(name if name and count[name] == 1 else by_uuid, taken)
    return found


def _shared(names: Sequence[str]) -> str:
    """rack03 of rack03-n01 and rack03-n02: up to the last number that is the same in all, their own number excepted."""
    split = [pieces(name) for name in names]
    if len({len(parts) for parts in split}) != 1:
        return ""
    first = split[0]
    last = 0
    for place in range(len(first) - 2):
        if any(parts[place] != first[place] for parts in split):
            break
        if place % 2 and place < len(first) - 2:
            last = place
    return "".join(first[:last + 1]) if last else ""


def _full(sizes: Sequence[int]) -> int:
    """The size of the smallest complete block: one that is about as frequent as the most frequent."""
    count = Counter(sizes)
    most = max(count.values())
    usual = [size for size, times in count.items() if times == most]
    return min([size for size, times in count.items() if 2 * times >= most and times > 1] or [max(usual)])


def _sizes(found: Blocks, every: Sequence[Block], site: TopologySite, full: int, version: Version | None) -> None:
    largest = max(len(block.nodes) for block in every)
    if not site.block_sizes:
        least = min(len(block.nodes) for block in every)
        if version is not None and LARGER_SINCE <= version < SMALLER_SINCE and 3 * full <= 4 * least < 4 * full:
            found.sizes = (least,)
            found.sizes_why = (f"the smallest block has {least} nodes of {full}, and Slurm {show(version)} does not "
                               "start where a block has fewer than the base")
            found.notes.append(f"the base size of blocks is {least}, since some lack nodes of {full} and Slurm "
                               f"{show(version)} does not start otherwise: render again when they are back")
            return
        found.sizes = (full,)
        found.sizes_why = (f"the smallest complete block has {full} nodes; larger sizes would bind jobs to "
                           "neighbouring blocks, which no link makes nearer")
        return
    wanted = tuple(sorted(set(site.block_sizes)))
    found.sizes_key = "topology.block_sizes"
    base = wanted[0]
    wrong = ""
    if base < 1:
        wrong = f"{base} is no size of a block"
    elif any(size % base or (size // base) & (size // base - 1) or size // base > 2 ** MAX_LEVEL for size in wanted):
        wrong = f"each must be the base, {base}, times a power of two, not {some([str(size) for size in wanted])}"
    elif base > largest:
        wrong = f"the base, {base}, is more than any block has ({largest} nodes)"
    elif version is not None and version < LARGER_SINCE and base != full:
        wrong = f"Slurm {show(version)} has no BlockSizes: its base is what every block has, {full} nodes"
    if wrong:
        found.problems.append(Problem(Kind.SITE, f"[topology] block_sizes: {wrong}", key=found.sizes_key))
    found.sizes = wanted if not wrong else (full,)
    spare = full - base
    found.sizes_why = "the site's own" + (f": {spare} of a block's {full} nodes are to spare" if spare > 0 else "")


def _written(found: Blocks, every: Sequence[Block], base: int, full: int, version: Version | None) -> list[Block]:
    """Without the blocks for which this version's slurmctld would not start."""
    small = [block for block in every if len(block.nodes) < base]
    if version is not None and version < LARGER_SINCE:
        other = [block for block in every if len(block.nodes) != full]
        if other:
            found.notes.append(f"blocks left out, Slurm {show(version)} takes blocks of one size alone ({full} nodes): "
                               f"{_listed(other)}")
        return [block for block in every if len(block.nodes) == full]
    if not small:
        return list(every)
    least = min(len(block.nodes) for block in small)
    if version is not None and version < SMALLER_SINCE:
        found.notes.append(f"incomplete blocks left out, Slurm {show(version)} does not start with fewer nodes than "
                           f"the base size {base}: {_listed(small)} ([topology] block_sizes = [{least}] takes them)")
        return [block for block in every if len(block.nodes) >= base]
    found.notes.append(f"incomplete blocks, fewer nodes than the base size {base}: {_listed(small)}")
    return list(every)


def _listed(blocks: Sequence[Block]) -> str:
    return some([f"{block.name} ({len(block.nodes)} nodes, {slurm_list(block.nodes)[:80]})" for block in blocks])
