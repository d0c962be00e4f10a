"""What messages of Slurm's daemons and commands mean for the configuration, one pattern a message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.facts._base import clean
from hpcadmin.facts._slurm_daemons import CGROUPS, NOT_CONFIGURATION, SETTINGS, Message, absent
from hpcadmin.facts._slurm_daemons import message as _message

_GRES_CONF = "gres.conf and what the node has"
_TOPOLOGY = "topology.conf and the nodes of slurm.conf"
_NODE = r"(?P<node>[A-Za-z0-9][\w.-]{0,100})"
_LIST = r"(?P<node>[A-Za-z0-9][\w.,\[\]-]{0,200})"


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
    _message(r"Invalid GRES data for (?P<name>\w{1,40}), (?:Cores|CPUs)=(?P<cores>[\d,-]{1,200})",
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
    _message(r"(?P<what>SHARING configuration lacks \"File\" specification|"
             r"SHARED specified without any SHARING found|failed to merge SHARED and SHARING)",
             "gres.conf: mps and shard need a gpu line with File= ({what})", _GRES_CONF),
    _message(r"Ignoring gres\.conf record, invalid name: (?P<name>\S{1,60})",
             "{name} of gres.conf is not in GresTypes= of slurm.conf and is ignored", "slurm.conf"),
    _message(r"gres\.conf for (?P<name>\w{1,40}), some records have \"?File\"? specification while others do not",
             "gres.conf: some lines of {name} have File= and others do not: slurmd ends with a fatal error",
             word="some records"),
    _message(r"Some (?P<name>\w{1,40}) GRES in slurm\.conf have a type while others do not",
             "Gres= of slurm.conf: some of {name} have a type and others do not: slurmd ends with a fatal error",
             word="have a type"),
    _message(r"File and MultipleFiles options are mutually exclusive",
             "gres.conf: File= and MultipleFiles= on one line: slurmd ends with a fatal error", word="MultipleFiles"),
    _message(r"requires that gres/gpu also be configured",
             "GresTypes: mps and shard need gpu there as well: fatal", word="gres/gpu also"),
    _message(r"Use of shared gres requires the use of select/cons_tres",
             "mps and shard need SelectType=select/cons_tres: fatal", word="shared gres"),
    _message(r"(?P<what>does not match env flags for previous GRES|contains \"no_gpu_env\", which must be mutually)",
             "gres.conf: Flags= of lines of one name differ in the environment that they set: slurmd ends with a fatal "
             "error", _GRES_CONF, word="env"),
    _message(r"CPU affinity bitmask \((?P<mask>[^)]{1,200})\) does not fit within the CPUs configured for this node "
             r"\((?P<cpus>\d{1,6})\)",
             "a GPU is near CPUs that the node line does not have (CPUs={cpus}): slurmd ends with a fatal error; write "
             "the line as slurmd -C prints it", "the NodeName line and slurmd -C", word="affinity bitmask"),
    _message(r"duplicate node-local AutoDetect specification does not match",
             "gres.conf: two values of AutoDetect= for one node: slurmd ends with a fatal error", word="AutoDetect"),
    _message(r"In-line AutoDetect requires NodeName",
             "gres.conf: AutoDetect= on a line with Name= needs NodeName= first", word="In-line"),
    _message(r"A line in gres\.conf for GRES (?P<name>[\w:.-]{1,80}) has (?P<count>\d{1,9}) more configured "
             r"than expected",
             "gres.conf has {count} of {name} more than Gres= of slurm.conf: the rest is not used", note=True,
             word="more configured"),
    _message(r"has CPUs configured for only some of the records on node (?P<node>[\w.-]{1,100})",
             "{node}: Cores= on some lines of gres.conf and not on all: all or none", word="only some"),
    _message(r"MIG mode is enabled, but no MIG devices were found",
             "a GPU is in MIG mode and has no MIG devices: no GPU is reported for it; make instances, or turn MIG off",
             _GRES_CONF, word="MIG"),
    _message(r"cpu_set_bitstr is empty",
             "NVML tells no CPUs for a GPU (a virtual machine or a cpuset): AutoDetect=nvml is fatal there; "
             "File= lines with AutoDetect=off", word="cpu_set_bitstr"),
    _message(r"Cannot use AutoDetect on cloud/dynamic node \"?(?P<node>[\w.-]{1,100})",
             "{node} is a cloud or dynamic node: slurmctld's gres.conf needs its lines, not AutoDetect=",
             word="AutoDetect"),
    _message(r"gres/(?P<name>\w{1,40}) lacks \"File=\" parameter for node (?P<node>[\w.-]{1,100})",
             "{node}: gres.conf has no File= for {name}", _GRES_CONF, word="lacks"),
    _message(r"Discarding gres/'?(?P<name>\w{1,20})'? configuration \(File=(?P<file>[^)]{1,200})\) without matching",
             "gres.conf: the {name} line with File={file} has no gpu line of that file, and is discarded",
             word="Discarding"),
    _message(r"(?P<what>Bad GRES configuration|Invalid GRES configured on node \S{1,100}): (?P<value>\S{1,100})",
             "Gres={value} is no GRES of this cluster (GresTypes=), or not of its form", word="GRES"),
    _message(r"No plugin configured to process GRES data from node (?P<node>[\w.-]{1,100}) \(Name:(?P<name>\w{1,40})",
             "{node} reports {name}, which is not in slurmctld's GresTypes=", "slurm.conf", word="No plugin"),
    _message(r"Node " + _NODE + r" has more boards than sockets",
             "{node}: Boards= is more than its sockets: leave Boards= out", word="more boards"),
    _message(r"(?P<gres>gres/[\w:.-]{1,80}) type \((?P<type>[^)]{1,100})\) reported but not configured",
             "{gres}: slurmd reports type {type}, which Gres= of slurm.conf does not have: INVAL", _GRES_CONF,
             word="reported but"),
    _message(r"(?P<gres>gres/[\w:.-]{1,80}) count too low \((?P<got>\d{1,9}) < (?P<want>\d{1,9})\)",
             "{gres}: {got} of {want} configured registered ({got} < {want}): INVAL", _GRES_CONF, word="too low"),
    _message(r"RestrictedCoresPerGPU(?:=\d{1,6} but|: We can't)",
             "RestrictedCoresPerGPU= needs GPUs with Cores=, and so many cores near each: INVAL", _GRES_CONF,
             word="RestrictedCoresPerGPU"),
    _message(r"CoreSpec differ", "CoreSpecCount= or CpuSpecList= of the node is not slurmctld's: INVAL",
             "slurm.conf of both", word="CoreSpec"),
    _message(r"gres/(?P<name>\w{1,20}) GRES (?:core s|autode)(?![a-z])",
             "gres/{name}: the cores of a GPU are not exactly one socket: INVAL", _GRES_CONF, word="GRES "),
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
    _message(r"Parse error in file (?P<file>\S{1,200}) line (?P<at>\d{1,7}): \"?(?P<text>.{1,120}?)\s{0,9}"
             r"(?:\"{1,2}\s{0,9}\Z|\Z)",
             "{file}, line {at} cannot be parsed: {text}"),
    _message(r"(?:cannot find \w{1,20} plugin for|Couldn't find the specified plugin name for|"
             r"[Cc]an't find plugin for) (?P<plugin>\w{1,30}/\w{1,30})", "{absent}", word="plugin"),
    _message(r"Couldn't load specified plugin name for (?P<plugin>\w{1,30}/\w{1,30}): (?P<what>[^\n]{1,80})",
             "the plugin {plugin} is there and does not load ({what}): the lines before it say why", note=True,
             word="plugin"),
    _message(r"cannot create \w{1,20} context for (?P<plugin>\w{1,30}/\w{1,30})",
             "{plugin} could not be started", note=True, word="context"),
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
    _message(r"Switch configuration is not a tree", "the switches of topology.conf make a loop: slurmctld ends with a "
             "fatal error", "topology.conf", word="not a tree"),
    _message(r"Invalid node name \((?P<node>[^)]{1,100})\) in (?P<what>block|switch) config \((?P<name>[^)]{1,100})\)",
             "{name}: {node} is no list of nodes: slurmctld ends with a fatal error", word="Invalid node name ("),
    _message(r"(?P<what>Switch|Block) \((?P<name>[^)]{1,100})\) has already been defined",
             "{name} is defined twice: slurmctld ends with a fatal error", word="already been defined"),
    _message(r"Failed to load topology\.yaml(?:: (?P<what>[^\n]{1,100}))?",
             "topology.yaml cannot be read: {what}: slurmctld ends with a fatal error", "topology.yaml",
             word="topology.yaml"),
    _message(r"Blocks do not contain any nodes and the BlockSizes are not set",
             "topology.conf: blocks without Nodes= need BlockSizes=: slurmctld ends with a fatal error", word="Blocks"),
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
ALL = (*MESSAGES, *SETTINGS, *CGROUPS, *NOT_CONFIGURATION)
WORDS = (*sorted({each.word for each in ALL if each.word}),
         "GRES", "gres", "Links", "NodeName", "NodeHostName", "Pars", "plugin", "topo context", "defunct", "witch",
         "locks", "Block", "SocketsPerBoard", "slurm.conf", "Low ", "GPU", "autodetect", "NodeAddr", "SHAR", "Multiple",
         "stat(", "duplicate")
_DAEMON = re.compile(
    r"(?:\b(?:slurmd|slurmctld|slurmdbd|slurmrestd|scontrol|sinfo|squeue|sacctmgr|sacct|sdiag|sprio|sshare)"
    r"(?:-[\w.-]{1,80})?(?:\[\d{1,9}\])?: |"
    r"\[\d{4}-\d\d-\d\dT[\d:.]{8,15}\] )(?:slurm\w{1,5}: )?(?P<how>fatal|error): (?P<what>.{1,300})")


def told(line: str) -> Iterator[tuple[Message, str]]:
    """Each message of the line, with the words for it."""
    if any(word in line for word in WORDS):
        for message in ALL:
            match = message.pattern.search(line) if message.word in line else None
            if match:
                words = {key: clean(value or "", 200) for key, value in match.groupdict().items()}
                words["absent"] = absent(words.get("plugin", ""))
                yield message, message.says.format(**words)


def other(line: str) -> tuple[str, str] | None:
    """fatal or error, and the text, of a daemon's message that is none of the known ones."""
    match = _DAEMON.search(line) if "error: " in line or "fatal: " in line else None
    return (match["how"], clean(match["what"], 200)) if match else None
