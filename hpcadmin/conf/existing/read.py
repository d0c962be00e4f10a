"""The files of a folder to what they amount to, in the order in which Slurm reads them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hpcadmin.conf.existing import gres, topology
from hpcadmin.conf.existing.lines import LINE_KEYS, MAX_FAULTS, OTHER_GRAMMAR, scan
from hpcadmin.conf.existing.nodes import Lines, again
from hpcadmin.conf.existing.parts import Configuration, Fault, GresLine, SourceFile, Statement, Topology, Value
from hpcadmin.errors import HpcadminError

MAX_NESTING = 20
MAX_FILES = 500
# Every one of these is in force (Prolog and Epilog: from 24.05 on; before, the last).
COLLECTED = frozenset({"slurmctldhost", "prolog", "epilog", "prologslurmctld", "epilogslurmctld"})
# The files that Slurm looks for by their names, in the order in which they are read here.
KNOWN = ("slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", "topology.yaml", "acct_gather.conf",
         "slurmdbd.conf", "job_container.conf", "namespace.yaml", "plugstack.conf", "helpers.conf", "mpi.conf",
         "oci.conf", "burst_buffer.conf", "knl_generic.conf", "ext_sensors.conf", "resources.yaml")
Open = Callable[[str], str]


@dataclass
class _Pile:
    """Simple keys of one file and those it includes."""

    settings: dict[str, Value] = field(default_factory=dict)
    repeated: list[Value] = field(default_factory=list)
    several: dict[str, list[Value]] = field(default_factory=dict)


def configure(texts: Mapping[str, str], *, open_file: Open | None = None, folder: str = "") -> Configuration:
    """What files amount to.

    texts: name as it stands in the folder ("slurm.conf", "gres.conf", "nodes/a.conf" for an included one) -> text;
    bytes that are not UTF-8 as surrogates. Files that Slurm looks for (KNOWN) are read of themselves, others when one
    of them includes them. open_file: called with the path of an included file that texts does not have (joined to
    `folder` unless absolute); returns its text or raises HpcadminError. folder: where the files lie; it stands before
    the names that are shown ("" shows names alone).

    Nothing is raised: what cannot be read is in Configuration.faults and .missing. Faults with fatal=True are what no
    version of Slurm starts with.

        conf = configure({"slurm.conf": "ClusterName=c\\nNodeName=n[1-4] CPUs=4\\n"})
        conf.setting("ClusterName"), conf.nodes[0].hosts, conf.nodes[0].get("cpus")
    """
    reading = _Reading(texts, open_file, folder)
    for name in KNOWN:
        if name in texts:
            reading.file(name)
    if "slurm.conf" not in texts:
        reading.missing.append(f"{reading.shown('slurm.conf')}: there is none")
    return reading.configuration()


class _Reading:
    def __init__(self, texts: Mapping[str, str], open_file: Open | None, folder: str) -> None:
        self.texts, self.open_file, self.folder = texts, open_file, folder
        self.files: list[SourceFile] = []
        self.faults: list[Fault] = []
        self.missing: list[str] = []
        self.piles: dict[str, _Pile] = {}
        self.lines = Lines()
        self.down: list[Statement] = []
        self.gres: list[GresLine] = []
        self.topology = topology.Conf()
        self.yaml: tuple[Topology, ...] = ()

    def shown(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def file(self, name: str) -> None:
        self.piles.setdefault(name, _Pile())
        self._take(self.texts[name], self.shown(name), name, ())

    def _take(self, text: str, path: str, name: str, above: tuple[str, ...]) -> None:
        source, faults = scan(text, path, name)
        self.files.append(source)
        self.faults += faults
        if name == "topology.yaml":
            self.yaml = topology.from_yaml(source, self.faults)
        for statement in source.statements:
            if not statement.values:
                continue
            if statement.kind == "include" and statement.text[:7].casefold() == "include" and (
                    not statement.text[7:].lstrip().startswith("=")):
                self._include(statement, name, (*above, path))
            else:
                self._statement(statement, name)

    def _include(self, statement: Statement, name: str, above: tuple[str, ...]) -> None:
        wanted = statement.values[0].text
        target = self._named(wanted, statement, name)
        if target is None:
            return
        path = target if target.startswith("/") else self.shown(target)
        if path in above:
            self.faults.append(Fault(statement.place, f"Include {wanted}: the file includes itself"))
        elif len(above) >= MAX_NESTING or len(self.files) >= MAX_FILES:
            self.faults.append(Fault(statement.place, f"Include {wanted}: more than {MAX_NESTING} files within each "
                                     f"other, or {MAX_FILES} files"))
        else:
            text = self._text(target, path, statement)
            if text is not None:
                self._take(text, path, name, above)

    def _named(self, wanted: str, statement: Statement, name: str) -> str | None:
        """The path with %c filled in; None with a fault where Slurm would not open it."""
        if not wanted:
            self.faults.append(Fault(statement.place, "Include without the name of a file"))
            return None
        if "*" in wanted:
            self.faults.append(Fault(statement.place, f"Include {wanted}: Slurm does not take patterns here"))
            return None
        if "%c" not in wanted:
            return wanted
        cluster = self.piles[name].settings.get("clustername")
        if cluster is None:
            self.faults.append(Fault(statement.place, f"Include {wanted}: ClusterName= has to stand above it, in the "
                                     "same file"))
            return None
        return wanted.replace("%c", cluster.text.lower())

    def _text(self, target: str, path: str, statement: Statement) -> str | None:
        why = "it was not given"
        beside = posixpath.join(posixpath.dirname(statement.place.file), target)
        if not target.startswith("/") and posixpath.dirname(path) != posixpath.dirname(beside):
            self.faults.append(Fault(statement.place, f"Include {target}: from 23.02 on this is {path}, in 22.05 it is "
                                     f"{beside}", fatal=False))
        for key in (target, posixpath.normpath(target), path):
            if key in self.texts:
                return self.texts[key]
        if self.open_file is not None:
            try:
                return self.open_file(path)
            except HpcadminError as exc:
                why = exc.what
        self.faults.append(Fault(statement.place, f"Include {statement.values[0].text}: {why}"))
        self.missing.append(f"{path}: {why} (included at {statement.place})")
        return None

    def _statement(self, statement: Statement, name: str) -> None:
        kind = statement.kind
        if name == "slurm.conf" and kind == "nodename":
            self.lines.node(statement)
        elif name == "slurm.conf" and kind == "partitionname":
            self.lines.partition(statement)
        elif name == "slurm.conf" and kind == "nodeset":
            self.lines.node_set(statement)
        elif name == "slurm.conf" and kind == "downnodes":
            self.down.append(statement)
        elif name == "gres.conf":
            line = gres.line(statement, self.faults)
            if line is not None:
                self.gres.append(line)
            if kind == "autodetect":
                self._simple(statement.values[0], name)
        elif name == "topology.conf":
            self.topology.take(statement)
        elif kind not in LINE_KEYS.get(name, ()):
            self._simple(statement.values[0], name)

    def _simple(self, value: Value, name: str) -> None:
        pile = self.piles[name]
        key = value.key.casefold()
        if name == "slurm.conf" and key in COLLECTED:
            pile.several.setdefault(key, []).append(value)
        elif key in pile.settings:
            before = pile.settings[key]
            pile.repeated.append(before)
            if len(pile.repeated) <= MAX_FAULTS:
                self.faults.append(again(value, before, f"stands a second time, after {before.place}"))
            elif len(pile.repeated) == MAX_FAULTS + 1:
                self.faults.append(Fault(value.place, "more keys stand a second time: Slurm takes the last", False))
        pile.settings[key] = value

    def configuration(self) -> Configuration:
        sets, partitions = self.lines.finish()
        found = [*self.gres]
        for node in self.lines.nodes:
            found += gres.of_node(node, self.faults)
        main = self.piles.get("slurm.conf", _Pile())
        topologies = self.yaml if "topology.yaml" in self.texts else (
            (self.topology.topology(),) if "topology.conf" in self.texts else ())
        own = {"slurm.conf", "gres.conf", "cgroup.conf", "topology.conf", *OTHER_GRAMMAR}
        return Configuration(
            files=tuple(self.files), settings=main.settings, repeated=tuple(main.repeated),
            several={key: tuple(found) for key, found in main.several.items()},
            nodes=tuple(self.lines.nodes), node_sets=sets, partitions=partitions, down_nodes=tuple(self.down),
            gres=tuple(found), cgroup=self.piles.get("cgroup.conf", _Pile()).settings, topologies=topologies,
            others={name: pile.settings for name, pile in self.piles.items() if name not in own},
            faults=(*self.faults, *self.lines.faults, *self.topology.faults), missing=tuple(self.missing))
