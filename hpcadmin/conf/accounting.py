"""Accounting: its part of slurm.conf, slurmdbd.conf without its password, and acct_gather.conf."""

from __future__ import annotations

import re

from hpcadmin.conf.grammar import scalar
from hpcadmin.conf.options import Options
from hpcadmin.conf.parts import Document, Entry, Kind, Line, Problem, Section, line
from hpcadmin.conf.settings import NEW_DEFAULTS, Cluster, accounting, own_line, tracks_by_cgroup
from hpcadmin.site import AccountingSite, Site

_ENFORCE = ("associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys", "all")
# The plug-ins of each kind, the same in every version from 22.05 to 26.05, and the keys that each reads from
# acct_gather.conf: a key whose plug-in is not loaded is fatal (acct_gather.conf(5)).
GATHER: dict[str, tuple[str, str, dict[str, tuple[str, ...]]]] = {
    "energy": ("AcctGatherEnergyType", "acct_gather_energy", {
        "ipmi": ("energyipmi",), "rapl": (), "gpu": (), "pm_counters": (), "ibmaem": (), "xcc": ("energyipmi",)}),
    "interconnect": ("AcctGatherInterconnectType", "acct_gather_interconnect", {
        "ofed": ("infinibandofed", "interconnectofed"), "sysfs": ("sysfsinterfaces",)}),
    "filesystem": ("AcctGatherFilesystemType", "acct_gather_filesystem", {"lustre": ()}),
    "profile": ("AcctGatherProfileType", "acct_gather_profile", {
        "hdf5": ("profilehdf5",), "influxdb": ("profileinfluxdb",)}),
}
_TRES = {("interconnect", "ofed"): "ic/ofed", ("interconnect", "sysfs"): "ic/sysfs",
         ("filesystem", "lustre"): "fs/lustre"}
_IN_ACCOUNTING = {"dbdhost": "host", "dbdbackuphost": "backup_host", "storagehost": "storage_host",
                  "storageport": "storage_port", "storageuser": "storage_user", "storageloc": "storage_name",
                  "storagepass": "password_file", "storagetype": "slurmdbd"}
_NEEDED = {"sysfs": ("SysfsInterfaces", "which interfaces are counted"),
           "hdf5": ("ProfileHDF5Dir", "a folder that all nodes and the controller share"),
           "influxdb": ("ProfileInfluxDBHost", "host:port of the server")}


def accounting_lines(site: Site, cluster: Cluster, options: Options) -> tuple[tuple[Line, ...], list[Problem]]:
    lines, problems = _slurmdbd(site, options)
    if options.find("AccountingStorageType"):
        lines.append(options.take("AccountingStorageType", "", ""))
    kept = accounting(site, options)
    gathered, more = _gathered(site, options)
    problems += more
    if gathered and not kept:
        problems.append(Problem(Kind.SITE, "[accounting] measures and nothing keeps it", key="accounting",
                                hint="host names where slurmdbd runs"))
    if kept:
        gather = "cgroup" if tracks_by_cgroup(options) else "linux"
        lines.append(options.take("JobAcctGatherType", f"jobacct_gather/{gather}", "memory and CPU time of each step"))
    lines += gathered
    extra = [_TRES[kind, name] for kind in GATHER for name in [getattr(site.accounting, kind)] if (kind, name) in _TRES]
    tres = [*cluster.tres, *extra]
    if tres and kept:
        lines.append(options.take("AccountingStorageTRES", ",".join(tres),
                                  "GPUs are accounted, each type by itself; without it AllocTRES has no GPU"
                                  if cluster.tres else "what the plug-ins above measure",
                                  "inventory" if cluster.tres else "site.toml [accounting]"))
    if not kept and _needs_slurmdbd(options.value("AccountingStorageTRES")):
        problems.append(Problem(Kind.SITE, f"AccountingStorageTRES={options.value('AccountingStorageTRES')} without "
                                "slurmdbd: slurmctld does not start", key=options.own["accountingstoragetres"].path,
                                hint="[accounting] host, or leave it out"))
    return tuple(lines), problems


def _needs_slurmdbd(tres: str) -> bool:
    """Whether a list has a TRES that only slurmdbd gives a number to: slurmctld dies without it."""
    names = (name.strip().casefold() for name in tres.split(","))
    return any("/" in name and name != "fs/disk" for name in names)


def _slurmdbd(site: Site, options: Options) -> tuple[list[Line], list[Problem]]:
    own = site.accounting
    problems = []
    wrong = [word[:40] for word in own.enforce if word.casefold() not in _ENFORCE]
    if wrong:
        problems.append(Problem(Kind.SITE, f"[accounting] enforce has no {', '.join(map(repr, wrong))}",
                                key="accounting.enforce", hint=f"known are {', '.join(_ENFORCE)}"))
    if not own.host:
        if own.slurmdbd or own.enforce or own.backup_host:
            problems.append(Problem(Kind.SITE, "[accounting] has no host: where does slurmdbd run?",
                                    key="accounting", hint='host = "ctl1"'))
        return [], problems
    kept = "accounting_storage/slurmdbd"
    lines = [options.put("AccountingStorageType", kept, "what jobs used is kept by slurmdbd", "accounting.host"),
             options.put("AccountingStorageHost", own.host, "where slurmdbd runs", "accounting.host")]
    if own.backup_host:
        lines.append(options.put("AccountingStorageBackupHost", own.backup_host, "its backup",
                                 "accounting.backup_host"))
    if own.enforce:
        lines.append(options.put("AccountingStorageEnforce", ",".join(own.enforce), "jobs of users or beyond limits "
                                 "that slurmdbd does not have are refused", "accounting.enforce"))
    return lines, problems


def _gathered(site: Site, options: Options) -> tuple[list[Line], list[Problem]]:
    """Lines of slurm.conf for the plug-ins that measure."""
    lines, problems = [], []
    for kind, (key, family, known) in GATHER.items():
        name = getattr(site.accounting, kind)
        if not name:
            continue
        path = f"accounting.{kind}"
        if name not in known:
            problems.append(Problem(Kind.SITE, f"[accounting] {kind} = {name[:40]!r}: no such plug-in", key=path,
                                    hint=f"known are {', '.join(known)}"))
            continue
        lines.append(options.put(key, f"{family}/{name}", f"measures the {kind} of jobs", path))
    if site.accounting.energy and not problems:
        lines.append(options.take("AcctGatherNodeFreq", "30", "seconds between two readings of a node's power; 0 "
                                  "otherwise, which is never"))
    return lines, problems


def priority_lines(site: Site, cluster: Cluster, options: Options) -> tuple[Line, ...]:
    """Fair share needs accounting; without it Slurm's own order (as submitted) stays."""
    if not accounting(site, options):
        return ()
    lines = []
    if cluster.version is None or cluster.version < NEW_DEFAULTS:
        lines.append(options.take("PriorityType", "priority/multifactor", "fair share counts; before 23.11 jobs "
                                  "otherwise run as submitted"))
    if options.value("PriorityType", "priority/multifactor").casefold() != "priority/multifactor":
        return tuple(lines)
    lines += [
        options.take("PriorityWeightFairshare", "100000", "who used less than their share comes first"),
        options.take("PriorityWeightAge", "10000", "a job that waits a week gains a tenth of a whole share"),
        options.take("PriorityWeightQOS", "200000", "a QOS with priority outweighs any share; it counts for nothing "
                     "until sacctmgr gives one"),
    ]
    if site.accounting.billing:
        lines.append(options.take("PriorityFlags", "MAX_TRES", "a job is billed for the largest of its shares of a "
                                  "node's CPUs, memory and GPUs, since that is what others cannot use, not for their "
                                  "sum"))
    return tuple(lines)


def slurmdbd(site: Site, slurm: Options, own: Options) -> Document | None:
    """slurmdbd.conf without StoragePass, which is put in where it is installed. own: the site's keys of it."""
    if not site.accounting.slurmdbd or not site.accounting.host:
        return None
    it = site.accounting
    lines = [own_line("DbdHost", it.host, "where slurmdbd runs", "accounting.host")]
    if it.backup_host:
        lines.append(own_line("DbdBackupHost", it.backup_host, "its backup", "accounting.backup_host"))
    lines += [own.take("SlurmUser", slurm.value("SlurmUser", "slurm"), "the same as in slurm.conf, and this file's "
                       "owner"),
              own.take("LogFile", "/var/log/slurm/slurmdbd.log", "else only syslog has it")]
    storage = [line("StorageType", "accounting_storage/mysql", "the only one there is: MariaDB or MySQL")]
    if it.storage_host != "localhost":
        storage.append(own_line("StorageHost", it.storage_host, "the database", "accounting.storage_host"))
    if it.storage_port is not None:
        storage.append(own_line("StoragePort", str(it.storage_port), "its port", "accounting.storage_port"))
    if it.storage_name != "slurm_acct_db":
        storage.append(own_line("StorageLoc", it.storage_name, "its name", "accounting.storage_name"))
    user = "who may write to the database; its password is put in from [accounting] password_file at installation"
    storage.append(line("StorageUser", it.storage_user, user) if it.storage_user == "slurm"
                   else own_line("StorageUser", it.storage_user, user, "accounting.storage_user"))
    sections = [Section("Daemon", tuple(lines)), Section("Database", tuple(storage)),
                Section("The site's own settings", own.rest())]
    return Document("slurmdbd.conf", tuple(s for s in sections if s.lines), secret=True)


def slurmdbd_problems(site: Site, own: Options) -> list[Problem]:
    """Keys that [accounting] itself sets, and keys for a file that is not asked for."""
    table = "[accounting.options]"
    problems = []
    for key, name in _IN_ACCOUNTING.items():
        if own.find(key):
            problems.append(Problem(Kind.SITE, f"{table} {own.find(key)} is not a setting of this kind",
                                    key=own.own[key].path, hint=f"write it as [accounting] {name}"))
    it, usual = site.accounting, AccountingSite()
    alone = [name for name in ("storage_host", "storage_port", "storage_user", "storage_name", "password_file")
             if getattr(it, name) != getattr(usual, name)]
    if alone and not it.slurmdbd:
        problems.append(Problem(Kind.SITE, f"[accounting] {', '.join(alone)}: for slurmdbd.conf, which is not asked "
                                "for", key=f"accounting.{alone[0]}", hint="slurmdbd = true, or leave it out"))
    if own.values and not site.accounting.slurmdbd:
        problems.append(Problem(Kind.SITE, f"{table} has keys and slurmdbd.conf is not asked for",
                                key="accounting.options", hint="[accounting] slurmdbd = true"))
    return problems


def gather(site: Site) -> tuple[Document | None, list[Problem]]:
    """acct_gather.conf, where a plug-in of slurm.conf reads it."""
    own = site.accounting.gather
    chosen = {kind: getattr(site.accounting, kind) for kind in GATHER}
    allowed = {prefix: name for kind, (_, _, known) in GATHER.items() for name, prefixes in known.items()
               if chosen[kind] == name for prefix in prefixes}
    lines, problems = [], []
    if chosen["energy"] == "ipmi":
        lines += [line("EnergyIPMIFrequency", "30", "seconds between two readings of the BMC, as often as jobs are "
                       "looked at"),
                  line("EnergyIPMICalcAdjustment", "yes", "short steps get a share of the last reading; nothing "
                       "otherwise")]
    for key in sorted(own, key=str.casefold):
        path = f"accounting.gather.{key}"
        name = key.casefold()
        if re.search(r"pass(word)?$", name):
            problems.append(Problem(Kind.SITE, f"[accounting.gather] {key}: conf render writes no password", key=path,
                                    hint="put it into acct_gather.conf on the nodes yourself"))
        elif not name.startswith(tuple(allowed)) or not allowed:
            problems.append(Problem(Kind.SITE, f"[accounting.gather] {key}: no plug-in of slurm.conf reads it, and "
                                    "that is fatal", key=path, hint="[accounting] energy, interconnect or profile"))
        else:
            lines = [item for item in lines if item.entries[0].key.casefold() != name]
            lines.append(Line((Entry(key, scalar(own[key], yes="yes", no="no"), "the site's own",
                                     "site.toml [accounting.gather]", path),)))
    for name, (key, what) in _NEEDED.items():
        if name in chosen.values() and not any(key.casefold() == k.casefold() for k in own):
            problems.append(Problem(Kind.SITE, f"[accounting.gather] has no {key}, which {name} needs",
                                    key="accounting", hint=what))
    if not lines:
        return None, problems
    return Document("acct_gather.conf", (Section("Plug-ins that measure", tuple(lines)),)), problems
