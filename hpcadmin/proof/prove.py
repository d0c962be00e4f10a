"""Files before the daemons: every kind of node that they describe, one after another, and what came out."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcadmin.conf.check.finding import Finding, Severity
from hpcadmin.conf.check.rules._hosts import listed
from hpcadmin.conf.check.run import ordered
from hpcadmin.conf.existing.parts import Configuration, NodeLine
from hpcadmin.errors import HpcadminError
from hpcadmin.files import read_bounded
from hpcadmin.lab import cgroups
from hpcadmin.model import Inventory
from hpcadmin.proof import copy, judge
from hpcadmin.proof.cell import ask, groups, remove_groups
from hpcadmin.proof.kinds import Kind, Unproven, kinds, run_of
from hpcadmin.proof.parts import Answer, Cluster, NodeAnswer, NodeRun, Slurm
from hpcadmin.proof.slurm import find

_HOST = re.compile(r"([\w.-]{1,255})(?:\(([\w.:-]{1,255})\))?")
_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z|[0-9a-fA-F:]*:[0-9a-fA-F:]+\Z")
_CGROUP_TROUBLE = re.compile(r"cgroup", re.IGNORECASE)
_MORE_BYTES, _MORE_FILES, _MORE_ENTRIES = 1 << 20, 200, 5000
_SECRET = frozenset({".key", ".pem", ".crt"})
_NEVER = frozenset({"slurmdbd.conf"})
Jobs = Callable[[Kind], "tuple[str, ...]"]
_CONTROLLERS_OF = ("slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr")
_CONTROLLERS = ("cpuset", "memory", "devices", "freezer")


def no_jobs(_: Kind) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Proof:
    """findings: what the daemons refuse, or take otherwise than is meant. proven: the kinds that were put before them,
    with the answer. unproven: nodes that were not. changes: what is not the same in the copy that they got."""

    slurm: Slurm
    findings: tuple[Finding, ...]
    proven: tuple[tuple[Kind, NodeAnswer], ...]
    unproven: tuple[Unproven, ...]
    changes: tuple[copy.Change, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        return any(f.severity in (Severity.FATAL, Severity.INVALID, Severity.WRONG) for f in self.findings)


def prove(conf: Configuration, folder: str, inventory: Inventory | None = None, *, slurm_root: str = "",
          jobs: Jobs = no_jobs, with_cgroups: bool = True) -> Proof:
    """Ask the Slurm of this machine, or of `slurm_root`. folder: where the files lie, as Configuration shows it.

    jobs: scripts to run when a kind's node is idle. with_cgroups: where this machine can have them.
    Raises SlurmError where it cannot be asked at all: not root, not installed, no namespaces.
    """
    slurm = find(slurm_root)
    found, left = kinds(conf, inventory)
    beside = _more_files(folder)
    runs = tuple(replace(run_of(kind, conf), jobs=jobs(kind)) for kind in found)
    machine = copy.Machine(slurm, _users(slurm), _memory_mib(), with_cgroups and _may_have_cgroups(), _exists(slurm),
                           _plugins(slurm))
    made = copy.copy(conf, folder, machine, [kind.line for kind in found], beside)
    answer = ask(slurm, _cluster(conf, beside, made, runs, keep=machine.cgroups))
    if machine.cgroups and _for_cgroups(answer):
        machine = replace(machine, cgroups=False)
        made = copy.copy(conf, folder, machine, [kind.line for kind in found], beside)
        answer = ask(slurm, _cluster(conf, beside, made, runs, keep=False))
    return _proof(answer, conf, found, left, made)


def _proof(answer: Answer, conf: Configuration, found: list[Kind], left: list[Unproven],
           made: copy.Copy) -> Proof:
    answer = _without(answer, made.caused)
    by_name = {node.name: node for node in answer.nodes}
    findings: list[Finding] = []
    if answer.problem:
        left = [*left, *(Unproven(kind.hosts, answer.problem) for kind in found if kind.name not in by_name)]
    else:
        findings += judge.cluster(answer, conf)
        left = [*left, *(Unproven(kind.hosts, "slurmctld does not run") for kind in found if kind.name not in by_name)]
    proven = []
    for kind in found:
        node = by_name.get(kind.name)
        if node is not None:
            proven.append((kind, node))
            findings += judge.node(kind, node, conf)
    return Proof(answer.slurm, ordered(findings), tuple(proven), tuple(left), made.changes,
                 answer.seconds)


def _without(answer: Answer, caused: re.Pattern[str]) -> Answer:
    """Without the lines that the copy's changes bring about."""
    def kept(lines: Iterable[str]) -> tuple[str, ...]:
        return tuple(line for line in lines if not caused.search(line))
    nodes = tuple(replace(node, log=kept(node.log), controller=kept(node.controller)) for node in answer.nodes)
    return replace(answer, log=kept(answer.log), nodes=nodes)


def _for_cgroups(answer: Answer) -> bool:
    """Whether a daemon did not start for the sake of control groups."""
    ended = [node.log for node in answer.nodes if node.ended] + ([] if answer.started else [answer.log])
    return any(_CGROUP_TROUBLE.search(line) for log in ended for line in log[-5:])


def _cluster(conf: Configuration, beside: Mapping[str, str], made: copy.Copy, runs: tuple[NodeRun, ...], *,
             keep: bool) -> Cluster:
    name, addresses = controller(conf)
    started = [run.name for run in runs]
    user = conf.setting("slurmuser", "root")
    where = copy.folders(conf, started, name, user)
    files = {**beside, **made.files}
    hosts = tuple(dict.fromkeys([*(host for node in conf.nodes for host in (*node.hosts, *_called(node))),
                                 *controllers(conf)]))
    return Cluster(
        files, runs, controller=name, controller_addresses=addresses, hosts=hosts, folders=where,
        fresh=tuple(copy.replaced(conf.setting("slurmdspooldir", "/var/spool/slurmd"), n, conf) for n in started[:1]),
        elsewhere=made.elsewhere, munge_socket=_socket(conf), tmp=conf.setting("tmpfs", "/tmp"),  # noqa: S108
        keep_cgroups=keep)


def _called(node: NodeLine) -> list[str]:
    """What the nodes of a line call themselves and where they are, where these are other names."""
    return [name for key in ("nodehostname", "nodeaddr", "bcastaddr") for name in listed(node.get(key))
            if not _IP.match(name)]


def controllers(conf: Configuration) -> list[str]:
    """Names of all controllers, and of their addresses, that must resolve."""
    found = []
    for source in conf.files:
        for statement in source.statements:
            if source.name == "slurm.conf" and statement.kind in _CONTROLLERS_OF:
                match = _HOST.match(statement.values[0].text)
                found += [name for name in (match.groups() if match else ()) if name and not _IP.match(name)]
    return found


def controller(conf: Configuration) -> tuple[str, tuple[str, ...]]:
    """The primary controller's name, and its address or name there where the files have one."""
    for source in conf.files:
        for statement in source.statements:
            if source.name == "slurm.conf" and statement.kind in ("slurmctldhost", "controlmachine"):
                match = _HOST.match(statement.values[0].text)
                if match:
                    address = match[2] or conf.setting("controladdr")
                    return match[1], (address,) if address and address != match[1] else ()
    return "proof", ()


def _socket(conf: Configuration) -> str:
    words = dict(word.split("=", 1) for word in conf.setting("authinfo").split(",") if "=" in word)
    return words.get("socket", "")


def _more_files(folder: str) -> dict[str, str]:
    """Other small files of the folder that daemons may open (job_submit.lua, plugstack.conf.d); nothing secret."""
    found: dict[str, str] = {}
    entries = 0
    for place, folders, names in os.walk(folder) if folder else ():
        folders.sort()
        for name in sorted(names):
            entries += 1
            path = Path(place, name)
            inside = os.path.relpath(path, folder)
            if entries > _MORE_ENTRIES or len(found) >= _MORE_FILES:
                return found
            if name not in _NEVER and path.suffix not in _SECRET:
                text = _small(path)
                if text is not None:
                    found[inside] = text
    return found


def _small(path: Path) -> str | None:
    """The text of a file that everybody may read."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & 0o004 or status.st_size > _MORE_BYTES:
            return None
        return read_bounded(path, limit=_MORE_BYTES).decode("utf-8", "surrogateescape")
    except (OSError, HpcadminError):
        return None


def _users(slurm: Slurm) -> frozenset[str]:
    try:
        text = Path(slurm.root or "/", "etc/passwd").read_text(errors="replace")
    except OSError:
        return frozenset()
    return frozenset(line.split(":")[0] for line in text.splitlines())


def _memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 ** 20


def _exists(slurm: Slurm) -> Callable[[str], bool]:
    return lambda path: Path(slurm.root or "/", path.lstrip("/")).exists()


_PLUGINS = ("usr/lib/*/slurm*", "usr/lib64/slurm*", "usr/lib/slurm*", "usr/local/lib*/slurm", "opt/slurm/lib*/slurm")


def _plugins(slurm: Slurm) -> frozenset[str]:
    """Names of plug-ins, "select_cons_tres"; empty where their folder is not found."""
    base = Path(slurm.root or "/")
    folder = next((found for pattern in _PLUGINS for found in sorted(base.glob(pattern))
                   if (found / "select_linear.so").exists()), None)
    return frozenset(path.stem for path in folder.glob("*.so")) if folder is not None else frozenset()


def _may_have_cgroups() -> bool:
    """Whether groups can be made here, with what jobs are held by."""
    words = ",".join(h.options for h in cgroups.mounted())
    if not all(name in words for name in _CONTROLLERS):
        return False                     # version 2 wants systemd, which a proof does not have
    made = groups(f"proof-try-{os.getpid()}-{threading.get_ident():x}")      # proofs may go side by side
    remove_groups(made)
    return bool(made)
