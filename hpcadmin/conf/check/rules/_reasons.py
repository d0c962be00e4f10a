"""What a node's Reason means (slurmctld and slurmd write them; health checks and people as well), text by text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from hpcadmin.facts._slurm_messages import told


class About(Enum):
    """What has to be looked at beside the text."""

    GRES = "gres"                    # the node's devices
    MEMORY = "memory"
    CPUS = "cpus"
    CORES = "cores"                  # Cores= against sockets
    SETTING = "setting"              # settings that it names
    NOTHING = ""


@dataclass(frozen=True)
class Known:
    """A text that is known. says: in our words, with the pattern's groups. settings: of slurm.conf, that it depends on.
    planned: no fault, somebody or something meant it."""

    pattern: re.Pattern[str]
    says: str
    about: About = About.NOTHING
    settings: tuple[str, ...] = ()
    planned: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Told:
    """One text found in a Reason. values: the groups of its pattern."""

    says: str
    about: About
    values: dict[str, str]
    settings: tuple[str, ...] = ()
    planned: bool = False
    refused: bool = False            # slurmctld did not take the node's registration: what is configured is not there


_REFUSED = (About.GRES, About.MEMORY, About.CPUS, About.CORES)


def _known(pattern: str, says: str, about: About = About.NOTHING, *settings: str, planned: bool = False,
           refused: bool = False) -> Known:
    return Known(re.compile(pattern, re.IGNORECASE), says, about, settings, planned, refused or about in _REFUSED)


_GRES = r"(?P<name>gres/[\w:.-]{1,80}|[\w.-]{1,40}(?::[\w.-]{1,80})?)"
_NUMBERS = r"\((?P<got>\d{1,9}) ?(?:<|!=) ?(?P<want>\d{1,9})\)"
REASONS = (
    _known(rf"{_GRES} count repor(?:ted|t|te)? lower than configured {_NUMBERS}",
           "slurmd reported {got} of {want} {name} when it registered", About.GRES),
    _known(rf"{_GRES} count too low {_NUMBERS}", "slurmd reported {got} of {want} of type {name}", About.GRES),
    _known(rf"{_GRES} count changed and jobs are using them {_NUMBERS}",
           "{name}: {got} before, {want} now, and jobs use them: nothing is changed until they have ended", About.GRES),
    _known(rf"{_GRES} type \((?P<type>[^)]{{1,100}})\) reported but not configured",
           "slurmd reports type {type}, which Gres= of slurm.conf does not have", About.GRES),
    _known(rf"{_GRES} type changed and jobs are using them",
           "the type of {name} was changed while jobs use them: nothing is changed until they have ended", About.GRES),
    _known(r"GRES (?:autodetected core affinity|core specification) (?P<cores>[\d,-]{1,200}) (?:on|for) node \S{1,100} "
           r"doesn't match socket boundaries\. \((?P<socket>[^)]{1,60})\)",
           "the GPU's cores {cores} are not exactly one socket ({socket})", About.CORES),
    _known(r"invalid GRES core specification \((?P<cores>[\d,-]{1,200})\)",
           "Cores={cores} is no list of cores of this node", About.CORES),
    _known(r"Invalid GRES Links value \((?P<links>[\d,-]{1,400})\)",
           "Links={links} has not one number for each GPU of the node", About.GRES),
    _known(r"Low RealMemory \(reported:(?P<got>\d{1,12}) < (?P<percent>[\d.]{1,8})% of "
           r"configured:(?P<want>\d{1,12})\)", "the node has {got} MiB, slurm.conf says {want}", About.MEMORY,
           "slurmctldparameters"),
    _known(r"Low Real_?Memory", "the node has less memory than slurm.conf says", About.MEMORY, "slurmctldparameters"),
    _known(r"Low socket\*core\*thr?e?a?d? ?count|Low socket\*core\*thread",
           "slurm.conf says more hardware threads than the node has", About.CPUS),
    _known(r"Low CPUs", "slurm.conf says more CPUs than the node has", About.CPUS),
    _known(r"Low TmpDisk", "TmpDisk= of slurm.conf is more than the file system of TmpFS has", About.SETTING, "tmpfs"),
    _known(r"CoreSpec differ", "CoreSpecCount= or CpuSpecList= of the node's slurm.conf is not slurmctld's",
           refused=True),
    _known(r"RestrictedCoresPerGPU", "RestrictedCoresPerGPU= needs GPUs with Cores=, and enough cores near each",
           About.CORES),
    _known(r"Could not unpack gres data", "slurmd and slurmctld do not agree on the node's gres: are GresTypes and "
           "the versions the same?", About.SETTING, "grestypes"),
    _known(r"Reported active features \((?P<got>[^)]{0,200})\) are not a superset of currently active changeable "
           r"features \((?P<want>[^)]{0,200})\)", "the node came up with features {got}, not with {want}"),
    _known(r"Failed to (?:parse dynamic_conf nodeline|set topology)", "what slurmd says of its own node (--conf) is no "
           "node line"),
    _known(r"Not responding", "slurmd does not answer slurmctld: it is down, the node is, or the network between; "
           "SlurmdTimeout is how long slurmctld waited", About.SETTING, "slurmdtimeout", "returntoservice"),
    _known(r"Node unexpectedly rebooted", "the node was booted while slurmctld thought that it was up (a crash, power, "
           "or a reboot without scontrol reboot)", About.SETTING, "returntoservice"),
    _known(r"Kill task failed", "processes of a job did not end within UnkillableStepTimeout: most often they wait for "
           "a file system or a GPU (state D); the node needs a look, then scontrol update state=resume",
           About.SETTING, "unkillablesteptimeout", "unkillablestepprogram"),
    _known(r"Prolog error|Prolog launch failure|prolog failed", "the prolog ended with an error on that node",
           About.SETTING, "prolog", "prologflags"),
    _known(r"Epilog error|epilog failed", "the epilog ended with an error on that node", About.SETTING, "epilog"),
    _known(r"Prolog/Epilog failure", "the prolog or epilog ended with an error on that node", About.SETTING, "prolog",
           "epilog"),
    _known(r"Job env setup error", "the environment of the user could not be made in time: login scripts or the home "
           "directory", About.SETTING, "getenvtimeout"),
    _known(r"batch job complete failure", "slurmd could not start a batch job or tell its end: user unknown on the "
           "node, spool directory full or not writable, task/cgroup without the cores that the line says (its log)",
           About.SETTING, "slurmdspooldir"),
    _known(r"Duplicate jobid", "the node still had a job of that number: slurmctld lost its state, or two controllers "
           "use one node", About.SETTING, "statesavelocation"),
    _known(r"ResumeTimeout reached", "the node was not up within ResumeTimeout after it was powered up", About.SETTING,
           "resumetimeout", "resumeprogram"),
    _known(r"Powered down after SuspendTimeout", "powered down by power saving", About.SETTING, "suspendtimeout",
           planned=True),
    _known(r"reboot timed out", "the node was not back within ResumeTimeout after scontrol reboot", About.SETTING,
           "resumetimeout", "rebootprogram"),
    _known(r"reboot complete", "it was rebooted by scontrol reboot, and stays drained: scontrol update state=resume",
           planned=True),
    _known(r"Reboot (?:ASAP|requested)", "scontrol reboot waits for its jobs to end", planned=True),
    _known(r"Bad core count", "what select has of its cores is not what the node registered with: restart slurmctld",
           About.CPUS),
    _known(r"First Registration", "it has registered for the first time", planned=True),
    _known(r"\A\s*NHC: ?(?P<what>.{1,300})", "the node health check says: {what}"),
    _known(r"(?P<what>check_\w{1,60}: .{1,200})", "a check of NHC failed: {what}"),
    _known(r"\A\s*hpcadmin[: ] ?(?P<what>.{1,300})", "drained by hpcadmin: {what}"),
    _known(r"\A\s*(?:HC|healthcheck|health check)\b[: ] ?(?P<what>.{1,300})", "a health check says: {what}"),
    # What sinfo -R leaves of the longer ones.
    _known(r"gres/\w{1,20} GRES (?:core s|autode)", "the GPU's cores are not exactly one socket", About.CORES),
    _known(r"\bXid[ :(].{0,3}(?P<xid>\d{1,3})", "the NVIDIA driver reported Xid {xid}"),
)


_SHOWN = re.compile(r"\bReason=(?P<reason>[^\n]{1,300}?)(?:\s{1,4}\[[\w.-]{1,60}@[\dT:.-]{8,30}\])?(?:`|\s)*\Z")
_HEAD = re.compile(r"\s{0,20}REASON\b.{0,80}\bNODELIST\b")
_LONG_HEAD = re.compile(r"\s{0,20}NODELIST\b.{0,200}\bREASON\s{0,40}\Z")      # sinfo -Nl
_ROW = re.compile(r"\s{0,20}(?P<reason>\S.{0,80}?)\s{1,60}(?:[\w().-]{1,40}\s{1,20}"
                  r"(?:\d{4}-\d\d-\d\dT[\d:]{5,12}|Unknown)\s{1,20}(?:[\w*~#$@^+%!-]{1,20}\s{1,20})?)?(?P<nodes>[A-Za-z][\w.,\[\]-]{0,400})\s{0,20}\Z")
_NODE = re.compile(r"\bNodeName=([\w.-]{1,100})")
# sinfo -R shows so many characters of a reason.
SHORT = 20
WHOLE = ("Node unexpectedly rebooted", "batch job complete failure", "ResumeTimeout reached", "Powered down after "
         "SuspendTimeout", "Prolog launch failure", "Prolog/Epilog failure", "Job env setup error",
         "First Registration", "Could not unpack gres data", "Reported active features () are not a superset of "
         "currently active changeable features ()")


def in_lines(lines: Sequence[str]) -> Iterator[tuple[int, str, str, Told]]:
    """(line, nodes, the reason, what it means) of every known Reason that scontrol or sinfo -R printed in a text. nodes
    is "" where the text does not name them."""
    node, table, at = "", False, 0
    for number, line in enumerate(lines, 1):
        named = _NODE.search(line) if "NodeName=" in line else None
        node = named[1] if named else node
        if "REASON" in line and (_HEAD.match(line) or _LONG_HEAD.match(line)):
            table, at = True, line.index("REASON") if _LONG_HEAD.match(line) else 0
            continue
        table = table and bool(line.strip())
        if table and at:
            match = re.match(r"(?P<nodes>\S{1,200})\s.{0,300}?(?P<reason>\S.{0,80})\Z", line[:at] + line[at:].strip())
            row = line[at:].strip() if match else ""
            for told_of in explained(row) if row not in ("", "none") and match else ():
                yield number, match["nodes"] if match else "", row, told_of
            continue
        match = _ROW.match(line) if table else _SHOWN.search(line) if "Reason=" in line else None
        if match:
            reason = match["reason"].strip()
            whole = next((each for each in WHOLE if len(reason) == SHORT and each.startswith(reason)), reason)
            for told_of in explained(whole):
                yield number, match["nodes"] if table else node, reason, told_of


def explained(reason: str) -> Iterator[Told]:
    """Every text in it that is known, the first pattern of each kind; messages that daemons also log as well."""
    text, seen = reason[:4000], list[tuple[int, int]]()
    for known in REASONS:
        match = known.pattern.search(text)
        if match and not any(start < match.end() and match.start() < end for start, end in seen):
            seen.append(match.span())
            values = {key: value or "" for key, value in match.groupdict().items()}
            yield Told(known.says.format(**values), known.about, values, known.settings, known.planned,
                       known.refused)
    if not seen:
        for _, says in told(text):
            yield Told(says, About.NOTHING, {})


