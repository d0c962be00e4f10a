"""What messages of slurmctld, slurmd and the commands mean about settings, plug-ins, cgroups and the way to each other.

Messages about nodes, GRES and topology are in _slurm_messages. Those that no configuration file is to blame for are
notes: each says where to look instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Ends what is no fault of slurm.conf and its like.
ELSEWHERE = "no fault of the configuration files"


@dataclass(frozen=True)
class Message:
    """says: in our words, with the pattern's groups. missing: what is needed beside the message. word: stands in every
    line that the pattern can match."""

    pattern: re.Pattern[str]
    says: str
    missing: str = ""
    note: bool = False
    word: str = ""


def message(pattern: str, says: str, missing: str = "", *, note: bool = False, word: str = "") -> Message:
    return Message(re.compile(pattern), says, missing, note, word)


def _at(word: str, pattern: str, says: str, missing: str = "", *, note: bool = False) -> Message:
    return message(pattern, says, missing, note=note, word=word)


_VALUE = r"(?P<value>[^\s\"'`]{1,120})"
_ENDS = "slurmctld ends with a fatal error"
SETTINGS = (
    _at("Bad value", rf"Bad value \"?{_VALUE}\"? for (?P<key>\w{{1,40}})",
        "{key}: {value} is no value that Slurm takes here: the file is refused"),
    _at("Bad ", rf"Bad (?P<key>SelectTypeParameters?|TaskPluginParam|EnforcePartLimits|Propagate\w{{1,30}}): {_VALUE}",
        "{key}: {value} is no value that Slurm takes"),
    _at("Invalid ", r"Invalid (?P<key>DebugFlag|PrologFlag|ReconfigFlag|SlurmctldDebug|SlurmdDebug|SlurmctldPort|"
        rf"SlurmdPort|Licenses value|parameter for AccountingStorageEnforce):? {_VALUE}",
        "{key}: {value} is no value that Slurm takes"),
    _at("has been removed", r"fatal: (?:[Tt]he )?(?P<key>\w{3,60})(?: option| parameter)? has been removed",
        "{key}= is gone from this version of Slurm: remove it; the daemon ends with a fatal error"),
    _at("Ignoring obsolete", r"Ignoring obsolete (?P<key>\w{3,60})", "{key}= is obsolete and ignored: remove it"),
    _at("more than once", r"(?P<key>\w{2,60}) 1 specified more than once, latest value used",
        "{key}= is said twice: Slurm takes the last one"),
    _at("ClusterName", r"ClusterName needs to be specified", "slurm.conf has no ClusterName=: no daemon starts"),
    _at("SlurmctldHost", r"No SlurmctldHost defined", "slurm.conf has no SlurmctldHost=: no daemon starts, fatal"),
    _at("valid controller", r"This host \((?P<host>[^)/\s]{1,100})[^)]{0,100}\) not a valid controller",
        "{host} is no SlurmctldHost= of slurm.conf: slurmctld ends with a fatal error there; SlurmctldHost={host}, or "
        "with its address SlurmctldHost={host}(address)", "slurm.conf and the host's name"),
    _at("SlurmUser", r"Running user ID does not match the SlurmUser",
        f"slurmctld runs as another user than SlurmUser= (User= of its unit): {_ENDS}"),
    _at("SlurmUser", rf"Invalid user for SlurmUser {_VALUE}", "SlurmUser={value}: there is no such user here: fatal"),
    _at("slurmd as something", r"You are running slurmd as something other than user (?P<value>[\w.-]{1,40})",
        "slurmd runs as another user than SlurmdUser={value}: fatal"),
    _at("state save loc", r"(?i)(?P<what>Incorrect permissions on state save loc|(?:Unable to stat )?state save loc): "
        r"(?P<path>[^\s:]{1,200})", "StateSaveLocation={path}: it must be a folder that SlurmUser can write: fatal"),
    _at("SlurmdSpoolDir", r"SlurmdSpoolDir (?:is not a directory|open error|stat error) (?P<path>[^\s:]{1,200})",
        "SlurmdSpoolDir={path}: it must be a folder that slurmd can write: fatal"),
    _at("mkdir(", r"fatal: mkdir\((?P<path>[^)\s]{1,200})\)",
        "{path} cannot be made (StateSaveLocation= of slurmctld, SlurmdSpoolDir= of slurmd): fatal"),
    _at("has been renamed", r"error: (?P<key>[A-Z]\w{2,60}) has been renamed to (?P<new>[A-Z]\w{2,60})",
        "{key}= is {new}= in this version of Slurm: rename it"),
    _at("Do you have SlurmUser", r"Do you have SlurmUser configured as uid (?P<value>\d{1,10})",
        "SlurmUser= is another user on the host that sends (uid {value}) than here: one SlurmUser= with one uid "
        "everywhere", "slurm.conf of both hosts"),
    _at("cannot stat file", r"cannot stat file (?P<file>[^\s:,]{1,200}slurm\.conf)",
        "{file} is not there: no configuration is read: fatal"),
    _at("rontend", r"Frontend not configured correctly", "this Slurm is built for front ends and slurm.conf has no "
        "FrontendName=: fatal; another build (a package of emulation is not for clusters)"),
    _at("only compatible with", r"(?P<key>\w{3,40}) (?P<value>UsePSS|NoShared)[^\n]{0,30} only compatible with "
        r"(?P<plugin>\w{1,30}/\w{1,30})", "{key}={value} goes with {plugin} only, and is ignored: remove it"),
    _at("MailProg", r"Configured MailProg is invalid",
        "MailProg= is no program on this host: no mail is sent, nothing else depends on it", note=True),
    _at("pam_slurm_adopt", r"If using PrologFlags=Contain for pam_slurm_adopt",
        "PrologFlags=Contain with pam_slurm_adopt needs ProctrackType=proctrack/cgroup", note=True),
    _at("names in partition", r"Invalid node names in partition (?P<name>[^\s`'\"]{1,100})",
        "partition {name} names nodes that no NodeName= line defines: slurmctld ends with a fatal error"),
    _at("duplicate entry", r"duplicate entry for partition (?P<name>[^\s`'\"]{1,100})",
        "partition {name} is defined twice: slurmctld ends with a fatal error"),
    _at("no nodes configured", r"no nodes configured", f"slurm.conf has no NodeName= line: {_ENDS}"),
    _at("count must equal", r"(?P<key>NodeAddr|NodeHostname|Port|BcastAddr) count must equal that of NodeName",
        "{key}= has not one value for each name of NodeName=: fatal", "the NodeName line"),
    _at("Invalid state", r"Invalid state (?P<value>\S{1,60}) from (?P<node>\S{1,100})",
        "{node}: State={value} is no state of a node line: fatal"),
    _at("has an invalid", r"Partition (?P<name>\S{1,100}) has an invalid (?P<key>\w{1,10}) \((?P<value>[^)]{1,100})\)",
        "partition {name}: {key}={value} is in no database: fatal; sacctmgr add qos, or another name"),
    _at("constrained by both", r"Jobs memory is being constrained by both TaskPlugin cgroup and JobAcctGather",
        "ConstrainRAMSpace= of cgroup.conf and JobAcctGatherParams=OverMemoryKill both end jobs: fatal; one of them"),
    _at("overlaps", r"NodeSet with name (?P<name>\S{1,100}) overlaps with an existing NodeName",
        "NodeSet={name} is also the name of a node: fatal; another name"),
    _at("tres type", r"Unknown tres type '(?P<value>[^']{1,60})'", "TRES {value}: Slurm has no such type: fatal"),
    _at("type tres need", r"(?P<what>\w[\w ]{1,20}) type tres need to have a name.{0,60}You gave (?P<value>\S{1,60})",
        "AccountingStorageTRES={value}: this type needs a name (gres/gpu): fatal"),
    _at("Invalid SelectTypeParameters", r"Invalid SelectTypeParameters(?: for (?P<plugin>\S{1,40}))?: "
        r"(?P<value>\S{1,60})[^\n]{0,30}(?P<what>You need at least CR_|it can't contain)",
        "SelectTypeParameters={value} does not go with this SelectType=: fatal"),
    _at("Include", r"\"Include\" failed in file (?P<file>\S{1,200}) line (?P<at>\d{1,7})",
        "Include on line {at} of {file}: that file cannot be read: the configuration is refused"),
    _at("Error parsing", r"Error parsing '(?P<key>\w{1,60}) = (?P<value>[^']{0,100})'",
        "{key}={value} cannot be parsed: the file is refused"),
    _at("not allowed in --conf", r"option '(?P<key>\w{1,60})' not allowed in --conf",
        "{key}= is not allowed in slurmd --conf: fatal"),
    _at("nodeline", r"Failed to parse (?:dynamic(?:_conf)? )?nodeline",
        "what slurmd --conf says of its own node is no node line: the node is INVAL"),
    _at("opology", r"Failed to set topology '(?P<value>[^']{0,120})'",
        "Topology={value} of the node is no switch or block of any topology: the node is INVAL; a key without a value "
        "(Topology=) takes the next word for it"),
    _at("node topology", r"Invalid node topology specified (?P<value>\S{1,100}) (?:for (?P<node>\S{1,100})|ignored)",
        "Topology={value}: no switch or block of any topology"),
)
CGROUPS = (
    _at("dbus", r"cannot connect to dbus system daemon",
        "no dbus on this host, as in most containers, and slurmd does not start (fatal): cgroup.conf needs "
        "IgnoreSystemd=yes, or CgroupPlugin=disabled from 24.05 on"),
    _at("for slurmstepd", r"scope (?:and/or cgroup directory )?for slurmstepd could not be set",
        "slurmd could not make the scope of its steps: no systemd there, as in most containers (IgnoreSystemd=yes in "
        "cgroup.conf), or the scope failed (systemctl reset-failed): fatal"),
    _at("not mounted", r"cgroup namespace '(?P<name>\w{1,20})' not mounted",
        "cgroup v1 with the controller {name} is not mounted here: slurmd does not start (fatal); hosts with cgroup v2 "
        "alone need a Slurm that was built with cgroup/v2"),
    _at("not available", r"(?P<name>cpuset|cpu|memory|devices|freezer|io|pids) cgroup controller is not available",
        "the cgroup controller {name} is not enabled for slurmd's scope: what cgroup.conf constrains with it fails; "
        "EnableControllers=yes, or Delegate=yes in slurmd's unit"),
    _at("task/cgroup", r"CgroupPlugin=disabled in cgroup\.conf is not compatible with task/cgroup",
        "CgroupPlugin=disabled with TaskPlugin=task/cgroup: fatal; one of them"),
    _at("unless SlurmdUser", r"(?P<plugin>proctrack/cgroup|task/cgroup) plugin will not work unless SlurmdUser is root",
        "{plugin} needs SlurmdUser=root"),
    _at("basepath", r"empty basepath detected", "job_container.conf has no BasePath= for this node: fatal"),
    _at("not read correctly", r"Configuration not read correctly: Does '(?P<file>[^']{1,200})' not exist",
        "{file} does not exist: it goes with JobContainerType= (NamespaceType= from 25.11 on)"),
    _at("cannot also be in Dirs", r"BasePath\((?P<path>[^)]{1,200})\) cannot also be in Dirs",
        "job_container.conf: BasePath={path} is also in Dirs=: fatal"),
    _at("container_", r"container_(?:p|g)_\w{1,20}:? [^\n]{0,40}failed",
        f"the job's container (job_container.conf) could not be made or entered on that node: {ELSEWHERE} so far",
        note=True),
    _at("cannot stat '", r"(?P<plugin>auth/\w{1,20}): cannot stat '(?P<file>[^']{1,200})'",
        "{plugin}: its key {file} does not exist (AuthAltParameters=, AuthInfo=): fatal"),
    _at("insecure", r"(?P<plugin>auth/\w{1,20}): key file is insecure: '(?P<file>[^']{1,200})'",
        "{plugin}: others can read its key {file}: fatal; mode 0600"),
)
_WHERE = rf": {ELSEWHERE}"
NOT_CONFIGURATION = (
    _at("unge", r"[Mm]unge (?:en|de)code failed: (?P<what>[^\n]{1,120})|If munged is up",
        f"munge: is munged up on both hosts, are their keys and clocks the same?{_WHERE}", note=True),
    _at("authentication", r"has authentication error|Protocol authentication error|Invalid authentication credential",
        f"authentication between the hosts fails (munge keys, clocks, or munged is down){_WHERE}", note=True),
    _at("redential", r"Credential signature check|Invalid job credential|Invalid credential\b|Unauthorized credential|"
        r"Job credential (?:expired|revoked)",
        f"a job's credential is refused: keys, clocks, users or Slurm's versions differ between the hosts{_WHERE}",
        note=True),
    _at("ersion", r"Incompatible versions of client and server code|protocol_version \d{1,6} not supported|"
        r"Invalid Protocol Version|data version incompatible",
        "Slurm's versions do not go together (slurmdbd first, then slurmctld, then slurmd, at most two or three "
        f"releases apart){_WHERE}", note=True),
    _at("Unable to resolve", r"Unable to resolve \"(?P<host>[^\"\s]{1,100})\"",
        "{host} cannot be resolved on the host that logs it: DNS or /etc/hosts, or an address in NodeAddr= or "
        "SlurmctldHost=name(address)", note=True),
    _at("find address for host", r"can't find address for host (?P<host>[^\s,]{1,100})",
        "{host} cannot be resolved on the host that logs it: DNS or /etc/hosts, or an address in NodeAddr=", note=True),
    _at("getaddrinfo", r"getaddrinfo\(\) failed", f"a name cannot be resolved: DNS or /etc/hosts{_WHERE}", note=True),
    _at("control", r"Unable to establish control(?:ler)? machine",
        "no address of slurmctld: SlurmctldHost= must be a name that this host resolves, in a slurm.conf that can be "
        "read", note=True),
    _at("remote configs", r"failed to fetch remote configs?",
        "no configuration came from slurmctld: it must be up, with SlurmctldParameters=enable_configless, or slurmd "
        "needs files of its own", note=True),
    _at("onnect", r"failed to open persistent connection to (?:host:)?(?P<host>[^\s]{1,120}?):? |"
        r"Unable to contact slurm controller|connect failure|slurm[^\n]{0,200}Connection refused",
        f"nothing answers there: the daemon is down, or a firewall is between{_WHERE}", note=True),
    _at("with a database", r"You are running with a database but for some reason we have no TRES",
        f"slurmdbd or its database is down at the first start{_WHERE}", note=True),
    _at("listen", r"Existing slurmctld process likely already is listening|Unable to bind listen port",
        f"another daemon has the port: one is running already{_WHERE}", note=True),
    _at("checkpoint", r"Incomplete \w{0,12} ?data checkpoint file",
        f"the state in StateSaveLocation is cut off, or this is the first start{_WHERE}", note=True),
    _at("state file", r"Could not open \w{1,12} state file (?P<file>[^\s:]{1,200})",
        f"no state in StateSaveLocation yet, as at the first start{_WHERE}", note=True),
    _at("SRV", r"DNS SRV lookup failed|resolve_ctls_from_dns_srv",
        "configless: DNS has no SRV record _slurmctld._tcp; slurmd --conf-server=HOST, or a slurm.conf", note=True),
    _at("oom_kill", r"Detected \d{1,6} oom_kill events?", f"a job used more memory than it asked for{_WHERE}",
        note=True),
    _at("not responding", r"Nodes (?P<node>[A-Za-z][\w.,\[\]-]{0,200}) not responding",
        f"slurmd of {{node}} does not answer: it or the node is down, or the network between{_WHERE}", note=True),
    _at("gettimeofday", r"High latency for \d{1,9} calls to gettimeofday",
        f"the clock of this machine is slow to read (virtual machine){_WHERE}", note=True),
    _at("chdir(", r"chdir\((?P<path>[^)\s]{1,200})\): (?:Permission denied|No such)",
        "the daemon cannot go to {path}: no harm but for core files", note=True),
)
# What is to be said beside a plug-in that is not there. Which versions have which: slurm.conf(5) of each.
PLUGINS = {
    "select/cons_res": "removed in 23.11: SelectType=select/cons_tres",
    "select/cons_tres": "from 19.05 on",
    "select/cray_aries": "removed in 24.05: SelectType=select/cons_tres",
    "topology/flat": "from 25.05 on: topology/default before, or no TopologyPlugin=",
    "topology/default": "from 23.11 on: topology/none before, or no TopologyPlugin=",
    "topology/block": "from 23.11 on",
    "topology/3d_torus": "removed in 25.05",
    "cgroup/v2": "it is built with the headers of dbus (and from 22.05 on); CgroupPlugin=cgroup/v1 where v1 is mounted",
    "proctrack/cray_aries": "removed in 24.05: proctrack/cgroup",
    "proctrack/lua": "removed: proctrack/cgroup",
    "task/cray_aries": "removed in 24.05",
    "auth/slurm": "from 23.11 on",
    "auth/munge": "Slurm was built without munge",
    "auth/jwt": "Slurm was built without libjwt",
    "accounting_storage/mysql": "only slurmdbd has it: accounting_storage/slurmdbd in slurm.conf",
    "accounting_storage/filetxt": "removed: accounting_storage/slurmdbd",
    "accounting_storage/none": "no AccountingStorageType= at all",
    "burst_buffer/generic": "removed",
    "gpu/nvml": "Slurm was built without NVML",
    "gpu/rsmi": "Slurm was built without ROCm SMI",
}


def absent(plugin: str) -> str:
    hint = PLUGINS.get(plugin, "by its version or by how it was built")
    return f"this Slurm has no plugin {plugin}: {hint}"
