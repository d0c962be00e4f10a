"""Which of tree and blocks is written for a Slurm version, in which file, and what slurm.conf says besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.conf.grammar import wrong_value
from hpcadmin.conf.keys import Version, show
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.conf.parts import DEFAULT, Entry, Kind, Line, Problem, Section
from hpcadmin.conf.topology_blocks import SINCE as BLOCKS_SINCE
from hpcadmin.conf.topology_lines import block_sections, tree_sections, yaml_sections
from hpcadmin.conf.topology_parts import Blocks, Flat, Switch, Tree
from hpcadmin.conf.topology_tree import OFF_FABRIC
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.site import Site

YAML_SINCE: Version = (25, 5)
TREE, BLOCKS, FLAT = "fabric", "nvlink", "flat"     # names of topologies in topology.yaml
# TopologyParam that lets ranks follow the network, by plug-in: since when, and what it goes by.
_RANK: dict[str, tuple[str, Version, str]] = {
    "tree": ("SwitchAsNodeRank", (23, 2), "switches"), "block": ("BlockAsNodeRank", (25, 11), "blocks")}


@dataclass
class TopologyFiles:
    """files: sections of topology.conf or topology.yaml. settings: of slurm.conf. topologies: names in topology.yaml,
    the cluster's default first. in_blocks: nodes that are in a block.

    Everything is empty where no topology is needed; `notes` say why.
    """

    files: dict[str, tuple[Section, ...]] = field(default_factory=dict)
    settings: tuple[Entry, ...] = ()
    topologies: tuple[str, ...] = ()
    in_blocks: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Wanted:
    """What is asked for: a plug-in by its short name ("": what fits), of [topology] or of slurm.options."""

    plugin: str
    version: Version | None
    yaml: bool
    forced: bool                      # slurm.options has TopologyPlugin: no line of ours

    def has(self, since: Version) -> bool:
        return self.version is not None and self.version >= since


@dataclass(frozen=True)
class Case:
    """All that the choice depends on. names: the nodes that Slurm will have. found: what comes of it."""

    found: TopologyFiles
    tree: Tree
    blocks: Blocks
    wanted: Wanted
    site: Site
    names: frozenset[str]

    @property
    def outside(self) -> frozenset[str]:
        """Nodes in no block."""
        return self.names - self.blocks.nodes

    @property
    def leaves(self) -> list[Switch]:
        return [switch for switch in self.tree.leaves if not switch.name.startswith(OFF_FABRIC)]

    def note(self, text: str) -> None:
        self.found.notes.append(text)

    def missing(self, what: str, hint: str) -> None:
        self.found.problems.append(Problem(Kind.UNKNOWN, what, key="topology.plugin", hint=hint))


def option(site: Site, key: str) -> str:
    """A key of slurm.options, however its letters are written."""
    return next((str(value) for name, value in site.slurm.options.items() if name.casefold() == key.casefold()), "")


def choose(case: Case) -> None:
    """Fills case.found."""
    found, wanted = case.found, case.wanted
    use_tree, use_blocks = _use_tree(case), _use_blocks(case)
    _say_nothing(case, use_tree=use_tree, use_blocks=use_blocks)
    if use_blocks and not wanted.yaml:
        use_tree, use_blocks = _one_plugin(case, use_tree=use_tree)
    for used, part in ((use_tree, case.tree), (use_blocks, case.blocks)):
        if used:
            found.problems += part.problems
            found.notes += part.notes
    if found.problems or not (use_tree or use_blocks):
        return
    asked = wanted.plugin == "block" or not case.outside
    default = "tree" if use_tree and not (use_blocks and asked) else "block" if asked or not wanted.yaml else "flat"
    if default == "block" and case.outside:
        case.note(f"in no block: {slurm_list(case.outside)}; slurmctld warns of it, and a job that may use nodes of "
                  "blocks never gets these: keep them in a partition of their own")
    why = _plugin_why(case, default)
    if wanted.yaml:
        _write_yaml(case, default, why, use_tree=use_tree, use_blocks=use_blocks)
    else:
        found.files["topology.conf"] = (tree_sections(case.tree) if default == "tree" else
                                        block_sections(case.blocks, wanted.version or BLOCKS_SINCE))
        said = ("site.toml [topology] plugin", "topology.plugin") if case.site.topology.plugin else ("inventory", "")
        found.settings = () if wanted.forced else (Entry("TopologyPlugin", f"topology/{default}", why, *said),)
    found.settings += tuple(_rank(case, default))
    found.problems += _illegal(case)


def _use_tree(case: Case) -> bool:
    """Whether a tree tells nodes apart; one that is asked for is written all the same, as the site's own is."""
    several = len(case.leaves) > 1
    if case.wanted.plugin == "block":
        return several and not case.tree.problems
    asked = bool(case.leaves) and (case.wanted.plugin == "tree" or any(switch.key for switch in case.leaves))
    unfinished = not case.leaves and bool(case.tree.problems)
    if case.wanted.plugin == "tree" and not (several or asked or unfinished):
        case.missing("no fabric with nodes of Slurm is in the inventory: no tree",
                     "discover --fabric, or name the switches in [topology.switches]")
    return several or asked or unfinished


def _use_blocks(case: Case) -> bool:
    blocks = case.blocks.blocks
    asked = case.wanted.plugin == "block" or any(block.key for block in blocks)
    useful = len(blocks) > 1 or (asked and bool(blocks)) or bool(case.blocks.problems)
    if useful and not case.wanted.has(BLOCKS_SINCE):
        case.note(f"{len(blocks)} blocks of nodes ({', '.join(block.name for block in blocks[:4])}) are not written: "
                  f"topology/block came with Slurm {show(BLOCKS_SINCE)}")
        return False
    if case.wanted.plugin == "block" and not useful:
        case.missing("no NVLink domain spans nodes of Slurm: no blocks", "name them in [topology.blocks]")
    return useful


def _say_nothing(case: Case, *, use_tree: bool, use_blocks: bool) -> None:
    """Why nothing is written, where one could expect it."""
    if use_tree or use_blocks or case.found.problems or len(case.names) < 2:
        return
    if case.leaves:
        case.note(f"no topology is written: all nodes are on one switch, {case.leaves[0].name}, none nearer to another "
                  '([topology] plugin = "tree" writes it all the same)')
    elif case.blocks.blocks and case.wanted.has(BLOCKS_SINCE):
        case.note("no topology is written: the nodes that NVLink joins are all in one domain "
                  '([topology] plugin = "block" writes it all the same)')


def _one_plugin(case: Case, *, use_tree: bool) -> tuple[bool, bool]:
    """(tree, blocks): one of them, for versions in which a cluster has one plug-in."""
    own = any(block.key for block in case.blocks.blocks)
    if case.wanted.plugin == "block" or not case.outside or (own and not use_tree) or case.blocks.problems:
        if use_tree:
            case.note("the tree of switches is not written beside the blocks: a topology.conf has one of them (both "
                      f"from Slurm {show(YAML_SINCE)} on, in topology.yaml)")
        return False, True
    case.found.notes += case.blocks.notes
    case.note(f"blocks are not written: {slurm_list(case.outside)} would be in none, and topology/block would keep "
              'these out of every job that may use blocks ([topology] plugin = "block" writes them all the same; from '
              f"Slurm {show(YAML_SINCE)} on each partition can have its own topology)")
    return use_tree, False


def _plugin_why(case: Case, default: str) -> str:
    if default == "flat":
        return "the nodes in no block would be out of every job that may use blocks"
    if default == "block":
        blocks = case.blocks.blocks
        return (f"the site's {len(blocks)} blocks: jobs stay inside them" if blocks[0].key else
                f"{len(blocks)} blocks of nodes that NVLink joins: jobs stay inside them")
    leaves, all_of = len(case.tree.leaves), len(case.tree.switches)
    told = f"{leaves} leaves and {all_of - leaves} above: jobs get nodes near one another"
    if leaves == 1:
        told = "one leaf with all nodes, which the site wants written"
    return f"{told}; every version has it" if case.wanted.version is None else told


def _write_yaml(case: Case, default: str, why: str, *, use_tree: bool, use_blocks: bool) -> None:
    named: list[tuple[str, Tree | Blocks | Flat]] = []
    if use_tree:
        named.append((TREE, case.tree))
    if use_blocks:
        named.append((BLOCKS, case.blocks))
    first = {"block": BLOCKS, "tree": TREE, "flat": FLAT}[default]
    if default == "flat":
        named.append((FLAT, Flat()))
        case.note(f"in no block: {slurm_list(case.outside)}; the cluster's default is topology/flat, and partitions "
                  f"with Topology={BLOCKS} keep jobs inside blocks (slurmctld warns that the blocks lack these nodes)")
    named.sort(key=lambda item: item[0] != first)
    case.found.files["topology.yaml"] = yaml_sections([
        (name, what, name == first, why if name == first else f"for partitions with Topology={name}; the others have "
         f"{first}") for name, what in named])
    case.found.topologies = tuple(name for name, _ in named)
    case.found.in_blocks = case.blocks.nodes


def partition_lines(found: TopologyFiles, lines: Sequence[Line]) -> tuple[tuple[Line, ...], list[Problem]]:
    """Lines of partitions with Topology= where the cluster's default does not fit: all of its nodes in blocks, or not
    all; and a problem for each that names a topology that is not there."""
    written, problems = [], []
    for line in lines:
        own = {entry.key.casefold(): entry for entry in line.entries}
        named = own.get("topology")
        if named and found.topologies and named.value not in found.topologies:
            problems.append(Problem(
                Kind.SITE, f"partition {line.entries[0].value}: Topology={named.value} is not in topology.yaml, which "
                f"has {' and '.join(found.topologies)}", key=named.site_key))
        nodes = _nodes(own["nodes"].value) if "nodes" in own and not named else frozenset()
        other = _other(found, nodes) if nodes and len(found.topologies) > 1 else None
        written.append(replace(line, entries=(*line.entries, other)) if other else line)
    return tuple(written), problems


def _other(found: TopologyFiles, nodes: frozenset[str]) -> Entry | None:
    inside = nodes <= found.in_blocks
    default = found.topologies[0]
    fits = BLOCKS if inside else TREE if TREE in found.topologies else FLAT
    if fits == default:
        return None
    why = "all of its nodes are in NVLink blocks" if inside else "it has nodes that are in no block"
    return Entry("Topology", fits, f"{why}; the cluster's default is {default}", "inventory")


def _nodes(text: str) -> frozenset[str]:
    """The nodes of a partition; none for ALL, and for what is no hostlist (which is said elsewhere)."""
    if not text or text.casefold() == "all":
        return frozenset()
    try:
        return frozenset(expand(text))
    except UsageError:
        return frozenset()


def _rank(case: Case, default: str) -> Iterator[Entry]:
    """TopologyParam where the nodes' names do not follow the network, so that ranks do."""
    if default not in _RANK:
        return
    value, since, what = _RANK[default]
    groups = [item.nodes for item in (case.tree.leaves if default == "tree" else case.blocks.blocks)]
    if not case.wanted.has(since) or not _scattered(groups):
        return
    if option(case.site, "TopologyParam"):
        case.note(f"the names of the nodes do not follow the network: TopologyParam={value} would let ranks do so")
        return
    yield Entry("TopologyParam", value, f"the names of the nodes do not follow the {what}: most {what} have nodes "
                f"between those of others, and ranks are to go by {what}", DEFAULT)


def _scattered(groups: Sequence[Sequence[str]]) -> bool:
    """Whether most of the groups are cut up when all nodes stand in the order of their names."""
    order = sorted((natural(node), place) for place, group in enumerate(groups) for node in group)
    runs: dict[int, int] = {}
    last = -1
    for _, place in order:
        if place != last:
            runs[place] = runs.get(place, 0) + 1
        last = place
    return 2 * sum(count > 1 for count in runs.values()) > len(groups)


def _illegal(case: Case) -> Iterator[Problem]:
    """Values that would break their file."""
    for name, sections in case.found.files.items():
        for line in (line for section in sections for line in section.lines):
            for entry in line.entries:
                wrong = wrong_value(entry.key, entry.value.strip('"').replace(", ", ",")) if entry.value else None
                if wrong:
                    yield Problem(Kind.SITE if entry.site_key else Kind.FAULT,
                                  f"{name}: {entry.key}={entry.value[:80]!r} {wrong}", key=entry.site_key)
