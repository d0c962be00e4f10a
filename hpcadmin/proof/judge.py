"""What the daemons answered as findings: with the line that it is about, and our words where a message is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hpcadmin.conf.check.finding import Finding, Severity
from hpcadmin.conf.existing.parts import Configuration, Place
from hpcadmin.facts._slurm_messages import told
from hpcadmin.proof.agree import agreement
from hpcadmin.proof.kinds import Kind
from hpcadmin.proof.logs import complaints, ended_by, node_of, plain
from hpcadmin.proof.parts import Answer, NodeAnswer

RULE = "proof"
_AT = re.compile(r"file \S*?/?([\w.-]{1,60}) line (\d{1,7})")
_KEY = re.compile(r"unrecognized key: ([\w.-]{1,60})")
_CORES = re.compile(r"(?:core specification|core affinity|Cores=)[ (]*([\d,-]{1,400})")
_LINKS = re.compile(r"Links(?: value)?[ =(]*([-\d,]{1,400})")
_FILE = re.compile(r"(/dev/[\w./-]{1,100})")
_NAME = re.compile(r"(?:NodeNames?[= ]|node )([\w.-]{1,100})")
_KEYWORD = re.compile(r'option "?(\w{1,60})"?|\b([A-Z]\w{3,40})=')
_DIFFER, _DIFFERS = "Node configuration differs from hardware", re.compile(r"(\w{1,20})=(\d{1,6}):(\d{1,6})\(hw\)")
# Warnings, and what a site may well want: every job names its partition.
_WORTH_KNOWING = re.compile(r"(?:error: )?(?:warning|WARNING): |error: \S{0,40}: default partition not set")
_WAITING = "aiting for gres.conf file"


def cluster(answer: Answer, conf: Configuration) -> Iterator[Finding]:
    """Why slurmctld did not start, else what it complains of that is about no single node."""
    if not answer.started:
        text = ended_by(answer.log) or "it did not answer"
        before = [line for line in complaints(answer.log) if not line.startswith("warning")]
        yield said(Severity.FATAL, f"slurmctld does not start: {text}", conf, cause="\n".join(before))
        return
    names = {node.name for node in answer.nodes}
    for text in complaints(answer.log):
        if node_of(text) not in names:
            yield said(_level(text), f"slurmctld: {text}", conf)


def node(kind: Kind, answer: NodeAnswer, conf: Configuration) -> Iterator[Finding]:
    """About one kind of node; findings name all its hosts."""
    about = [text for text in complaints(answer.controller) if node_of(text) == kind.name]
    own = [text for text in complaints(answer.log) if text not in about]
    hosts = kind.hosts

    def tell(severity: Severity, what: str, cause: str = "") -> Finding:
        found = said(severity, what, conf, kind=kind, cause=cause)
        return replace(found, nodes=hosts)

    waiting = next((plain(line) for line in answer.log if _WAITING in line), "")
    if waiting and not answer.node.get("State", "").startswith("IDLE"):
        yield tell(Severity.FATAL, f"slurmd: {waiting}: after 20 s it ends with a fatal error")
        return
    if answer.ended:
        text = ended_by(answer.log) or "it ended without a word"
        yield tell(Severity.FATAL, f"slurmd does not start: {text}", "\n".join(own))
        return
    if answer.late:
        yield tell(Severity.INVALID, f"{kind.name} did not register: State={answer.state or 'unknown'}",
                   "\n".join([*about, *own]))
        return
    if "INVAL" in answer.state:
        reason = answer.node.get("Reason", "")
        cause = "\n".join([reason, *about, *own])
        yield tell(Severity.INVALID, f"{kind.name} registers as INVAL: "
                   f"{reason or 'with an empty Reason, and the logs say: ' + (_first(about, own) or 'nothing')}", cause)
    elif not answer.state.startswith("IDLE"):
        yield tell(Severity.NOTE, f"State={answer.state} Reason={answer.node.get('Reason', '')}")
    else:
        for text in [*about, *own]:
            if _cores_as_cpus(kind, text):
                continue
            yield tell(_level(text), f"{'slurmctld' if text in about else 'slurmd'}: {text}")
    yield from (replace(found, nodes=hosts, rule=f"{RULE}.agrees") for found in agreement(kind, answer, conf))


def _first(*texts: list[str]) -> str:
    return next((line for part in texts for line in part), "")


def _level(text: str) -> Severity:
    return Severity.NOTE if _WORTH_KNOWING.match(text) else Severity.WRONG


def _cores_as_cpus(kind: Kind, text: str) -> bool:
    """CPUs= as many as cores, so that jobs get cores and not threads: slurmd says that it differs, and it is meant."""
    found = {key: (int(said), int(has)) for key, said, has in _DIFFERS.findall(text)} if _DIFFER in text else {}
    shape = kind.group.shape
    return shape is not None and found.get("CPUs", (0, 0))[0] == shape.total and all(
        said == has for key, (said, has) in found.items() if key != "CPUs")


# --- where, and what it means --------------------------------------------------------------------------------------


def said(severity: Severity, what: str, conf: Configuration, *, kind: Kind | None = None, cause: str = "") -> Finding:
    """A finding from a daemon's words. cause: further lines, which may name the place."""
    lines = [*what.splitlines(), *cause.splitlines()]
    means = next((text for line in lines for _, text in told(line)), "")
    place = next((found for line in lines if (found := where(line, conf, kind)) is not None), None)
    if place is None and kind is not None:
        place = kind.line.place
    return Finding(severity, what, means, place=place, rule=RULE)


def where(line: str, conf: Configuration, kind: Kind | None) -> Place | None:
    """The statement that a message is about."""
    match = _AT.search(line)
    if match:
        path = next((f.path for f in conf.files if f.path.endswith(match[1])), match[1])
        return Place(path, int(match[2]))
    match = _KEY.search(line)
    if match:
        return next((s.place for f in conf.files for s in f.statements
                     if any(v.key.casefold() == match[1].casefold() for v in s.values)), None)
    gres = kind.group.lines if kind is not None else conf.gres
    for pattern, key in ((_CORES, "cores"), (_LINKS, "links")):
        match = pattern.search(line)
        found = next((g.place for g in gres if match and (g.get(key) or g.get(_ALIAS[key])) == match[1]), None)
        if found is not None:
            return found
    match = _FILE.search(line)
    found = next((g.place for g in gres if match and match[1] in g.files), None)
    if found is not None:
        return found
    match = _NAME.search(line)
    if match:
        found = next((n.place for n in conf.nodes if match[1] in n.hosts or match[1] == n.text), None)
        if found is not None:
            return found
    if "with TRES" in line and "accountingstoragetres" in conf.settings:
        return conf.settings["accountingstoragetres"].place
    for word in _KEYWORD.findall(line):
        value = conf.settings.get((word[0] or word[1]).casefold())
        if value is not None:
            return value.place
    return None


_ALIAS = {"cores": "cpus", "links": "link"}
