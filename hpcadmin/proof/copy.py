"""The files as the daemons of a proof get them: what this machine cannot do is replaced, and every change is told."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.conf.existing.parts import Configuration, NodeLine, SourceFile, Statement, Value
from hpcadmin.conf.existing.write import AddAfter, Remove, SetValue, edit
from hpcadmin.conf.existing.write import Change as Edit
from hpcadmin.conf.keys import effects
from hpcadmin.proof.parts import Slurm

DISABLED_SINCE = (23, 11)                # CgroupPlugin=disabled
# node_reg_mem_percent exists before, but is read with an errno of somebody else, and then not taken (node_mgr.c).
MEMORY_PERCENT_SINCE = (25, 5)
_NO_DBD = "there is no slurmdbd here"
_COMPARED = "RealMemory is compared with the inventory"
# A program that is named stays named: slurmctld looks for some of them when it starts.
_PROGRAMS = ("healthcheckprogram", "slurmctldprimaryonprog", "slurmctldprimaryoffprog", "resumeprogram",
             "suspendprogram", "resumefailprogram", "rebootprogram", "mailprog", "unkillablestepprogram", "prolog",
             "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "taskepilog", "srunprolog", "srunepilog")
_NO_PROGRAM = "/bin/true"
# Plug-ins that packages of their own bring, or none: a Slurm without them judges the rest.
_FAMILY = {"acctgatherenergytype": "acct_gather_energy/", "acctgatherinterconnecttype": "acct_gather_interconnect/",
           "acctgatherfilesystemtype": "acct_gather_filesystem/", "acctgatherprofiletype": "acct_gather_profile/",
           "jobcomptype": "jobcomp/", "jobsubmitplugins": "job_submit/", "clifilterplugins": "cli_filter/",
           "burstbuffertype": "burst_buffer/", "nodefeaturesplugins": "node_features/"}
_SCRIPTS = {"jobsubmitplugins": "job_submit.lua", "clifilterplugins": "cli_filter.lua", "jobcomptype": "jobcomp.lua",
            "burstbuffertype": "burst_buffer.lua"}
# How the keys of acct_gather.conf begin that only these read.
_GATHERED = {"energy/ipmi": "energyipmi", "energy/xcc": "energyipmi", "interconnect/ofed": "infinibandofed",
             "interconnect/sysfs": "sysfs", "profile/hdf5": "profilehdf5", "profile/influxdb": "profileinfluxdb"}
# Of cores that are kept for the system: this machine has other CPUs.
_RESERVED = (r"Resource spec: core specialization disabled|Resource spec: unable to (?:set reserved CPU IDs|establish "
             r"slurmd CPU affinity)|unable to write \d+ bytes to cgroup \S*cpuset\.cpus")
_DATABASES = ("jobcomp/mysql", "jobcomp/elasticsearch", "jobcomp/kafka")


@dataclass(frozen=True)
class Change:
    """place: file:line in the files that were given; "" for a line that was added."""

    place: str
    what: str                            # "AccountingStorageType=accounting_storage/slurmdbd left out"
    why: str

    def __str__(self) -> str:
        return f"{self.place + ': ' if self.place else ''}{self.what}: {self.why}"


@dataclass(frozen=True)
class Copy:
    """files: text by path below the configuration folder; elsewhere: by absolute path. caused: what daemons complain of
    for the sake of the changes alone."""

    files: Mapping[str, str]
    elsewhere: Mapping[str, str]
    changes: tuple[Change, ...]
    caused: re.Pattern[str] = re.compile(r"(?!)")


@dataclass(frozen=True)
class Machine:
    """What decides the changes. users: account names of the Slurm's system; plugins: whether a folder is there."""

    slurm: Slurm
    users: frozenset[str]
    memory_mib: int
    cgroups: bool                        # the daemons may have control groups of their own
    exists: Callable[[str], bool]
    plugins: frozenset[str] = frozenset()    # "acct_gather_energy_ipmi" of its folder of plug-ins; empty: not known


@dataclass(frozen=True)
class _Wish:
    """A new value for a key, None to leave it out; add: also where no line has the key."""

    value: str | None
    why: str
    add: bool = False


def copy(conf: Configuration, folder: str, machine: Machine, nodes: Sequence[NodeLine],
         beside: Collection[str] = ()) -> Copy:
    """The files of `conf`, which lie in `folder`. nodes: the node lines of which a node is to register. beside: what
    else lies in the folder, by name."""
    lacking = _lacking(conf, machine)
    scripts = {key: wish for key, wish in _without_scripts(conf, beside).items() if key not in lacking}
    wishes = {"slurm.conf": {**_slurm(conf, machine), **scripts, **_without_plugins(conf, lacking)},
              "cgroup.conf": _cgroup(conf, machine), "acct_gather.conf": _gathering(conf, lacking)}
    changes: list[Change] = []
    files: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for source in conf.files:
        if source.name == "slurmdbd.conf":
            continue                     # no part of this, and it has a password
        lines = list(_edited(source, nodes, machine, changes, accounting=_has_accounting(conf)).lines)
        for statement in source.statements:
            wish = wishes.get(source.name, {}).get(statement.kind)
            if wish is not None and len(statement.values) == 1:
                _apply(lines, statement, wish, changes)
        path = _below(source.path, folder)
        (files if path else elsewhere)[path or source.path] = "\n".join(lines)
    for name, wanted in wishes.items():
        present = {s.kind for f in conf.files if f.name == name for s in f.statements}
        for key, wish in wanted.items():
            if wish.add and key not in present and wish.value is not None:
                before = files.get(name, "")
                files[name] = f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}" \
                              f"{_SPELLING.get(key, key)}={wish.value}\n"
                changes.append(Change("", f"{name}: {_SPELLING.get(key, key)}={wish.value} added", wish.why))
    return Copy(files, elsewhere, tuple(changes), _caused(conf))


def _caused(conf: Configuration) -> re.Pattern[str]:
    """MailProg is ours always, and the files are the daemons' own, also where they would be fetched."""
    reserved = any(key in node.values for node in conf.nodes for key in ("corespeccount", "cpuspeclist"))
    return re.compile("|".join([r"MailProg|despite slurmctld having been setup for configless", *([
        r"only be used with SlurmDBD|accounting information gathered|collecting accounting information"]
        if _has_accounting(conf) else []), *([_RESERVED] if reserved else [])]))


_SPELLING = {"slurmctldparameters": "SlurmctldParameters", "proctracktype": "ProctrackType", "taskplugin": "TaskPlugin",
             "cgroupplugin": "CgroupPlugin", "mailprog": "MailProg"}


def _below(path: str, folder: str) -> str:
    """The path inside the folder; "" where it is not in it."""
    if not folder:
        return "" if path.startswith("/") else posixpath.normpath(path)
    inside = posixpath.relpath(path, folder) if posixpath.isabs(path) == posixpath.isabs(folder) else ".."
    return "" if inside.startswith("..") else inside


def _apply(lines: list[str], statement: Statement, wish: _Wish, changes: list[Change]) -> None:
    value = statement.values[0]
    if wish.value is not None and value.text == wish.value:
        return
    text = f"{value.key}={wish.value}" if wish.value is not None else f"# {value.key} is left out"
    first, last = statement.place.line - 1, statement.last
    lines[first:last] = [text, *[""] * (last - first - 1)]
    what = f"{value.key}={value.text} left out" if wish.value is None else f"{value.key}={value.text} is {wish.value}"
    changes.append(Change(str(statement.place), what, wish.why))


def _edited(source: SourceFile, nodes: Sequence[NodeLine], machine: Machine, changes: list[Change], *,
            accounting: bool) -> SourceFile:
    """Node lines that this machine can register, and partitions that need no accounting."""
    if source.name != "slurm.conf":
        return source
    edits: list[Edit] = []
    started = {node.place for node in nodes}
    lowered: list[tuple[Statement, Value]] = []
    for statement in source.statements:
        if statement.kind == "nodename":
            edits += _registering(statement, statement.place in started, changes)
            lowered += _too_much(statement, machine)
        if accounting:
            edits += _without_qos(statement, changes) or _without_accounting(statement, changes)
    for statement, value in lowered:
        most = machine.memory_mib if value.key.casefold() == "realmemory" else machine.memory_mib // 2
        edits.append(SetValue(statement, value.key, str(most)))
    if lowered:
        first, value = lowered[0]
        more = f" and {len(lowered) - 1} more" if len(lowered) > 1 else ""
        changes.append(Change(str(first.place), f"{value.key}={value.text}{more} made smaller",
                              f"slurmd reports this machine's {machine.memory_mib} MiB; {_COMPARED}"))
    return edit(source, edits) if edits else source


def _registering(statement: Statement, started: bool, changes: list[Change]) -> Iterator[SetValue]:
    """CLOUD and FUTURE nodes would wait for somebody."""
    state = statement.get("state")
    if started and state is not None and state.text.upper() in ("CLOUD", "FUTURE"):
        changes.append(Change(str(statement.place), f"State={state.text} is UNKNOWN", "so that its node registers"))
        yield SetValue(statement, state.key, "UNKNOWN")


def _too_much(statement: Statement, machine: Machine) -> Iterator[tuple[Statement, Value]]:
    """Memory that this machine does not have, where Slurm cannot be told to take less for enough."""
    for key in ("realmemory", "memspeclimit") if machine.slurm.version < MEMORY_PERCENT_SINCE else ():
        value = statement.get(key)
        if value is not None and value.text.isdigit() and int(value.text[:15]) > machine.memory_mib:
            yield statement, value


def _without_qos(statement: Statement, changes: list[Change]) -> list[Edit]:
    """From 25.11 on slurmctld does not start with a QOS that it does not know, and it knows none."""
    mine = [value for value in statement.values[1:] if value.key.casefold() in ("qos", "allowqos", "denyqos")]
    if statement.kind != "partitionname" or not mine:
        return []
    changes.append(Change(str(statement.place), f"{', '.join(value.key for value in mine)} left out", _NO_DBD))
    weights = {edit.key.casefold(): edit.value for edit in _without_accounting(statement, changes)}
    kept = [f"{value.key}={_quoted(weights.get(value.key.casefold(), value.text))}" for value in statement.values
            if value not in mine]
    return [Remove(statement), AddAfter(statement, " ".join(kept))]


def _quoted(text: str) -> str:
    return f'"{text}"' if not text or re.search(r"\s", text) else text


def _without_accounting(statement: Statement, changes: list[Change]) -> Iterator[SetValue]:
    """Weights of GPUs: without slurmdbd slurmctld knows no TRES but CPU, memory and nodes."""
    for key in ("tresbillingweights", "tresweights"):
        value = statement.get(key)
        kept = [part for part in (value.text.split(",") if value else [])
                if part.partition("=")[0].strip().casefold() in ("cpu", "mem", "node", "billing", "energy")]
        if value is not None and ",".join(kept) != value.text:
            changes.append(Change(str(statement.place), f"{value.key}={value.text} without TRES of its own", _NO_DBD))
            yield SetValue(statement, value.key, ",".join(kept) or "CPU=1.0")


def _has_accounting(conf: Configuration) -> bool:
    return conf.setting("accountingstoragetype").casefold() == "accounting_storage/slurmdbd"


def _slurm(conf: Configuration, machine: Machine) -> dict[str, _Wish]:
    """By key in small letters."""
    wishes = {key: _Wish(_NO_PROGRAM, "no program of the site is run", add=key == "mailprog") for key in _PROGRAMS}
    if _has_accounting(conf):
        wishes["accountingstoragetype"] = _Wish("accounting_storage/none", _NO_DBD)
        for key in ("accountingstorageenforce", "accountingstoragetres", "priorityweighttres"):
            wishes[key] = _Wish(None, _NO_DBD)
    if conf.setting("jobcomptype").casefold() in _DATABASES:
        wishes["jobcomptype"] = _Wish("jobcomp/none", "there is no database here")
    if conf.setting("authalttypes"):
        wishes["authalttypes"] = wishes["authaltparameters"] = _Wish(None, "their keys are not here")
    for key in ("slurmuser", "slurmduser"):
        user = conf.setting(key)
        if user and not user.isdigit() and user not in machine.users:
            wishes[key] = _Wish("root", "this Slurm's system has no such user")
    plugins = conf.setting("plugindir")
    if plugins and not any(machine.exists(path) for path in plugins.split(":")):
        wishes["plugindir"] = _Wish(None, "this Slurm's system has no such folder")
    memory = max((node.number("realmemory") or 0 for node in conf.nodes), default=0)
    if memory > machine.memory_mib and machine.slurm.version >= MEMORY_PERCENT_SINCE:
        wishes["slurmctldparameters"] = _Wish(
            _with(conf.setting("slurmctldparameters"), "node_reg_mem_percent=0.001"),
            f"slurmd reports this machine's {machine.memory_mib} MiB; {_COMPARED}", add=True)
    for key in ("slurmctlddebug", "slurmddebug"):
        if conf.setting(key).casefold() in ("quiet", "fatal", "0", "1"):
            wishes[key] = _Wish("info", "errors are to be seen")
    return {**wishes, **({} if machine.cgroups else _without_cgroups(conf))}


def _lacking(conf: Configuration, machine: Machine) -> dict[str, tuple[str, ...]]:
    """By key: the plug-ins that its version of Slurm has, and the one at hand has not."""
    found: dict[str, tuple[str, ...]] = {}
    for key, family in _FAMILY.items() if machine.plugins else ():
        text = conf.setting(key)
        names = [part.strip() for part in text.split(",") if part.strip()]
        gone = tuple(name for name in names
                     if f"{family}{name.removeprefix(family)}".replace("/", "_") not in machine.plugins)
        if gone and not effects("slurm.conf", key, text, machine.slurm.version):
            found[key] = gone
    return found


def _without_plugins(conf: Configuration, lacking: Mapping[str, tuple[str, ...]]) -> dict[str, _Wish]:
    wishes = {}
    for key, gone in lacking.items():
        kept = [part.strip() for part in conf.setting(key).split(",") if part.strip() not in gone]
        wishes[key] = _Wish(",".join(kept) or None, f"the Slurm at hand was installed without {', '.join(gone)}")
    return wishes


def _without_scripts(conf: Configuration, beside: Collection[str]) -> dict[str, _Wish]:
    """Plug-ins that run a script of the site which is not there: slurmctld would not start."""
    wishes = {}
    for key, script in _SCRIPTS.items():
        names = [part.strip() for part in conf.setting(key).split(",") if part.strip()]
        kept = [name for name in names if name.rpartition("/")[2] != "lua"]
        if len(kept) < len(names) and script not in beside:
            wishes[key] = _Wish(",".join(kept) or None, f"{script} is not beside the files: Slurm's daemons need it")
    return wishes


def _gathering(conf: Configuration, lacking: Mapping[str, tuple[str, ...]]) -> dict[str, _Wish]:
    """Keys of acct_gather.conf that only a plug-in that is not there would read."""
    gone = [_GATHERED[name] for names in lacking.values() for plugin in names
            if (name := plugin.removeprefix("acct_gather_")) in _GATHERED]
    return {statement.kind: _Wish(None, "only a plug-in reads it that the Slurm at hand was installed without")
            for source in conf.files if source.name == "acct_gather.conf" for statement in source.statements
            if statement.kind.startswith(tuple(gone))}


def _with(value: str, word: str) -> str:
    """The list with this parameter in the place of another value of it."""
    name = word.partition("=")[0].casefold()
    kept = [part for part in value.split(",") if part and part.partition("=")[0].strip().casefold() != name]
    return ",".join([*kept, word])


def _without_cgroups(conf: Configuration) -> dict[str, _Wish]:
    why = "no control groups in a proof's namespaces on this machine"
    wishes: dict[str, _Wish] = {}
    if conf.setting("proctracktype", "proctrack/cgroup").casefold() == "proctrack/cgroup":
        wishes["proctracktype"] = _Wish("proctrack/linuxproc", why, add=True)
        wishes["prologflags"] = _Wish(None, "PrologFlags=Contain needs proctrack/cgroup")
    tasks = [part for part in conf.setting("taskplugin").split(",") if part]
    if any(part.casefold() == "task/cgroup" for part in tasks):
        rest = ",".join(part for part in tasks if part.casefold() != "task/cgroup")
        wishes["taskplugin"] = _Wish(rest or "task/none", why)
    if conf.setting("jobacctgathertype").casefold() == "jobacct_gather/cgroup":
        wishes["jobacctgathertype"] = _Wish("jobacct_gather/linux", why)
    return wishes


def _cgroup(conf: Configuration, machine: Machine) -> dict[str, _Wish]:
    if machine.cgroups:
        return {}
    plugin = "disabled" if machine.slurm.version >= DISABLED_SINCE else "cgroup/v1"
    return {"cgroupplugin": _Wish(plugin, "no control groups in a proof's namespaces on this machine", add=True)}


# --- folders and users ---------------------------------------------------------------------------------------------

_WRITTEN = (("statesavelocation", "/var/spool", True, True), ("slurmdspooldir", "/var/spool/slurmd", True, False),
            ("slurmctldlogfile", "", False, True), ("slurmdlogfile", "", False, False),
            ("slurmctldpidfile", "/var/run/slurmctld.pid", False, True),
            ("slurmdpidfile", "/var/run/slurmd.pid", False, False), ("jobcomploc", "", False, True),
            ("slurmschedlogfile", "", False, True), ("tmpfs", "/tmp", True, False))  # noqa: S108


def folders(conf: Configuration, nodes: Iterable[str], controller: str, user: str) -> tuple[tuple[str, str], ...]:
    """(path, owner) of the folders that the daemons write to, for each of these nodes."""
    found: dict[str, str] = {}
    for key, default, is_folder, of_controller in _WRITTEN:
        text = conf.setting(key, default)
        for path in [text] if of_controller else [replaced(text, name, conf) for name in nodes]:
            whole = replaced(path, controller, conf)
            place = whole if is_folder else posixpath.dirname(whole)
            if place.startswith("/") and posixpath.normpath(place) not in ("/", "/tmp", "/run", "/var/run", "/dev"):  # noqa: S108
                found.setdefault(posixpath.normpath(place), user if of_controller else "")
    return tuple(found.items())


def replaced(path: str, node: str, conf: Configuration) -> str:
    return (path.replace("%n", node).replace("%h", node).replace("%c", conf.setting("clustername").casefold()))
