"""What messages of Slurm's daemons and commands mean for the configuration, one pattern a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcadmin.facts._base import clean

_GRES_CONF = "gres.conf and what the node has"
_TOPOLOGY = "topology.conf and the nodes of slurm.conf"
_NODE = r"(?P<node>[A-Za-z0-9][\w.-]{0,100})"
_LIST = r"(?P<node>[A-Za-z0-9][\w.,\[\]-]{0,200})"


@dataclass(frozen=True)
class Message:
    """says: in our words, with the pattern's groups. missing: what is needed beside the message."""

    pattern: re.Pattern[str]
    says: str
    missing: str = ""
    note: bool = False


def _message(pattern: str, says: str, missing: str = "", *, note: bool = False) -> Message:
    return Message(re.compile(pattern), says, missing, note)


MESSAGES = (
    _message(r"(?P<gres>gres/[\w:.-]{1,80}): Count changed on node (?P<node>\S{1,100}) "
             r"\((?P<old>\d{1,6}) != (?P<new>\d{1,6})\)",
             "{gres} on {node}: {old} configured, {new} reported ({old} != {new})",
             "the Gres= of the node, and what slurmd reported"),
    _message(r"NodeNames=(?P<node>\S{1,100}) setting Sockets=(?P<sockets>\d{1,6}) based on CPUs\((?P<cpus>\d{1,6})\)",
             "{node}: Sockets={sockets} was derived from CPUs={cpus} alone: write Sockets=, CoresPerSocket= and "
             "ThreadsPerCore= as slurmd -C prints them"),
    _message(r"NodeNames=(?P<node>\S{1,200}) CPUs=(?P<cpus>\d{1,6}) match no Sockets, Sockets\*CoresPerSocket or "
             r"Sockets\*CoresPerSocket\*ThreadsPerCore",
             "{node}: CPUs={cpus} is no product of its sockets, cores and threads: Slurm sets CPUs anew (with Boards= "
             "it is SocketsPerBoard=, not Sockets=)", "the NodeName line"),
    # The list before it shows no File either where GPUs are detected rightly.
    _message("Discarding the following config-only GPU",
             "a configured GPU without File= matches no detected one and is discarded"),
    _message(r"invalid GRES core specification \((?P<cores>[\d,-]{1,200})\) on node " + _NODE,
             "{node}: Cores={cores} is invalid: Cores counts cores, not the CPUs of the OS"),
    _message(r"GRES (?P<how>autodetected core affinity|core specification) (?P<cores>[\d,-]{1,200}) (?:on|for) node "
             + _NODE + r" doesn't match socket boundaries\. \((?P<socket>[^)]{1,60})\)",
             "{node}: the GPU's cores {cores} do not match socket boundaries ({socket}): INVAL from 24.11 on; "
             "numa_node_as_socket where a GPU is near one NUMA node, l3cache_as_socket where near one L3, or no Cores",
             "the node's sockets and NUMA nodes, and its gres.conf"),
    _message(r"Invalid GRES Links value \((?P<links>[\d,-]{1,400})\) on node " + _NODE,
             "{node}: Links={links} has not one number for each GPU: INVAL", _GRES_CONF),
    _message(r"Ignoring invalid Links=(?P<links>[\d,-]{0,400})",
             "Links={links} is ignored: the GPU's own place must be -1", _GRES_CONF),
    _message(r"Invalid GRES data for (?P<name>\w{1,40}), Cores=(?P<cores>[\d,-]{1,200})",
             "Cores={cores} of {name} is invalid on this node: it counts cores, not the CPUs of the OS", _GRES_CONF),
    _message(r"[Ww]aiting for gres\.conf file (?P<file>\S{1,200})",
             "{file} of gres.conf is not there (yet): driver not loaded, or no such GPU", _GRES_CONF),
    _message(r"can't stat gres\.conf file (?P<file>[^\s:]{1,200})",
             "{file} of gres.conf does not exist: slurmd ends with a fatal error", _GRES_CONF),
    _message(r"gres_device_(?:major|id): stat\((?P<file>[^)\s]{1,200})\)",
             "{file} of gres.conf does not exist", _GRES_CONF),
    _message(r"gres\.conf duplicate records for (?P<name>\w{1,40})",
             "gres.conf has two records for {name} that nothing tells apart: with AutoDetect no Name={name} line is "
             "needed"),
    _message(r"(?P<name>\w{1,40}) duplicate device file name[^\n(]{0,20}(?:\((?P<file>\S{1,200})\))?",
             "gres.conf names a device file of {name} twice: slurmd ends with a fatal error"),
    _message(r"Invalid GRES record for (?P<name>\w{1,40}), count does not match File value",
             "gres.conf: Count= of {name} is not the number of its files: slurmd ends with a fatal error"),
    _message(r"gres\.conf for (?P<name>\w{1,40}), some records have \"?Type=\"? specification while others do not",
             "gres.conf: some lines of {name} have Type= and others do not: slurmd ends with a fatal error"),
    _message(r"(?P<what>SHARING configuration lacks \"File\" specification|failed to merge SHARED and SHARING)",
             "gres.conf: mps and shard need a gpu line with File= ({what})", _GRES_CONF),
    _message(r"Ignoring gres\.conf record, invalid name: (?P<name>\S{1,60})",
             "{name} of gres.conf is not in GresTypes= of slurm.conf and is ignored", "slurm.conf"),
    _message(r"MultipleFiles does not contain multiple files",
             "gres.conf: MultipleFiles= with one file: it is File= then"),
    _message(r"unknown autodetect flag '?(?P<value>[\w-]{1,40})",
             "AutoDetect={value} is no valid value for this version of Slurm: no GPU is detected"),
    _message(r"Ignoring file-less GPU (?P<name>\S{1,120}) from final GRES list",
             "{name} has no File= in gres.conf and is ignored", "gres.conf and the Gres= of the node"),
    _message(r"Could not find an unused configuration record with a GRES type that is a substring of system device "
             r"[`'](?P<type>[^`'\s]{1,120})['`]",
             "no configured GPU type is a part of the detected {type}: Gres=gpu:{type}:N, or no type",
             "the Gres= of the node and gres.conf"),
    _message(r"GPU specified in \[slurm\|gres\]\.conf has mismatching Cores or Links",
             "Cores= or Links= of gres.conf differ from what is detected: with AutoDetect write neither, or "
             "AutoDetect=off", _GRES_CONF),
    _message(r"Unable to determine this slurmd's NodeName",
             "no NodeName= or NodeHostname= of slurm.conf is this host's name", "slurm.conf and the host's name"),
    _message(r"Duplicated (?P<key>NodeHostName|NodeName|NodeAddr|SwitchName) (?P<node>\S{1,100}) in (?:the )?config",
             "{key} {node} is defined twice in slurm.conf: the second line is refused"),
    _message(r"Parsing error at unrecognized key: (?P<key>[\w.-]{1,60})",
             "{key} is no key of this file in this version of Slurm: the file is refused"),
    _message(r"Parse error in file (?P<file>\S{1,200}) line (?P<at>\d{1,7}): (?P<text>.{1,120})",
             "{file}, line {at} cannot be parsed: {text}"),
    _message(r"(?:cannot find \w{1,20} plugin for|Couldn't find the specified plugin name for|"
             r"cannot create \w{1,20} context for) (?P<plugin>[\w/]{1,60})",
             "this version of Slurm has no plugin {plugin}"),
    _message(r"option \"?(?P<key>\w{1,60})\"? is defunct",
             "{key} is no longer an option: remove it"),
    _message(r"Switch configuration (?P<switch>\S{1,100}) has invalid child \((?P<node>[^)\s]{1,100})\)",
             "{switch} names the child {node}, which is not defined: slurmctld ends with a fatal error", _TOPOLOGY),
    _message(r"Multiple leaf switches contain nodes: (?P<node>\S{1,200})",
             "{node}: under more than one leaf switch", "topology.conf"),
    _message(r"(?:switches|[Bb]locks) lack access to (?P<count>\d{1,7}) nodes: (?P<node>\S{1,200})",
             "{node}: {count} nodes of slurm.conf are not in topology.conf", _TOPOLOGY),
    _message(r"no switch can reach all nodes through its descendants",
             "no switch is above all nodes: no job can span the parts", _TOPOLOGY),
    _message(r"Invalid BlockSizes value: (?P<size>-?\d{1,9})",
             "BlockSizes: {size} is not the base size times a power of two: slurmctld ends with a fatal error",
             "topology.conf"),
    _message(r"No (?P<what>switches|blocks) configured", "topology.conf has no {what}", "topology.conf"),
    _message(r"NodeNames=(?P<node>\S{1,100}) Sockets=# and SocketsPerBoard=# is invalid",
             "{node}: Sockets= and SocketsPerBoard= on one line: SocketsPerBoard is used, remove Sockets=",
             "the NodeName line"),
    _message(r"[Nn]ode " + _NODE + r" appears to have a different slurm\.conf",
             "{node}: its slurm.conf is not slurmctld's", "both files"),
    _message(r"Low CPUs\b", "Low CPUs: more is configured than the hardware has: INVALID_REG",
             "what is configured and what slurmd -C prints"),
    _message(r"Low socket\*core\*thre",
             "Low socket*core*thread count: more is configured than the hardware has: INVALID_REG",
             "what is configured and what slurmd -C prints"),
    _message(r"Low TmpDisk\b", "Low TmpDisk: more is configured than the node has: INVALID_REG",
             "what is configured and what slurmd -C prints"),
    _message(r"Low RealMemory\b(?! \(reported:\d)",
             "Low RealMemory: more is configured than the node has: INVALID_REG",
             "what is configured and what slurmd -C prints"),
    _message(r"gres/(?P<name>\w{1,40}) count repor(?:t|te)?\s",
             "gres/{name}: fewer reported than configured: INVAL", _GRES_CONF),
)
WORDS = ("GRES", "gres", "Links", "NodeName", "NodeHostName", "Pars", "plugin", "topo context", "defunct", "witch",
         "locks", "Block", "SocketsPerBoard", "slurm.conf", "Low ", "GPU", "autodetect", "NodeAddr", "SHAR", "Multiple",
         "stat(", "duplicate")
_DAEMON = re.compile(
    r"(?:\b(?:slurmd|slurmctld|slurmdbd|scontrol|sinfo)(?:-[\w.-]{1,80})?(?:\[\d{1,9}\])?: |"
    r"\[\d{4}-\d\d-\d\dT[\d:.]{8,15}\] )(?:slurm\w{1,5}: )?(?P<how>fatal|error): (?P<what>.{1,300})")


def told(line: str) -> Iterator[tuple[Message, str]]:
    """Each message of the line, with the words for it."""
    if any(word in line for word in WORDS):
        for message in MESSAGES:
            match = message.pattern.search(line)
            if match:
                words = {key: clean(value or "", 200) for key, value in match.groupdict().items()}
                yield message, message.says.format(**words)


def other(line: str) -> tuple[str, str] | None:
    """fatal or error, and the text, of a daemon's message that is none of the known ones."""
    match = _DAEMON.search(line) if "error: " in line or "fatal: " in line else None
    return (match["how"], clean(match["what"], 200)) if match else None
