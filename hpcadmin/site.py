"""site.toml: what only the admin knows. Reading is strict, errors name file, line and key."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union

from hpcadmin.errors import SiteError
from hpcadmin.site_availability import AvailabilitySite, availability_problem, plain_table
from hpcadmin.site_sweep import MOST_NICE, SweepSite, sweep_problem
from hpcadmin.site_tools import ModulesSite, Tool, modules_problem, no_mpi, no_variable, tool_of, tool_problem
from hpcadmin.site_topology import TopologySite
from hpcadmin.toml_text import locate, read_toml

Scalar = Union[str, int, float, bool]
MOST_PRIORITY = 4_294_967_293           # sbatch's, as MOST_NICE


@dataclass(frozen=True)
class Ssh:
    user: str = ""
    jump: str = ""
    known_hosts: tuple[str, ...] = ()
    config: str = ""
    identity: str = ""
    port: int | None = None
    parallel: int = 32
    timeout_s: float = 30.0


@dataclass(frozen=True)
class SlurmSite:
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    priority: int = 0                # of our jobs; 0: as Slurm reckons
    nice: int = 0                    # that it is lowered by
    mpi: str = "pmix"
    conf_dir: str = "/etc/slurm"
    version: str = ""
    backend: str = "auto"
    options: Mapping[str, Scalar] = field(default_factory=dict)   # slurm.conf keys of the site, written as they are
    cgroup: Mapping[str, Scalar] = field(default_factory=dict)    # cgroup.conf keys of the site
    gpu_types: Mapping[str, str] = field(default_factory=dict)    # GPU model as the tool prints it -> Type= in Gres
    memory_margin_mib: int | None = None                          # that RealMemory stays below what the nodes have
    configless: bool = False                                      # slurmd gets its files from slurmctld
    check_ignore: tuple[str, ...] = ()                            # rules of conf check that are left out
    autodetect: str = ""             # gres.conf AutoDetect= of all nodes with GPUs; "" and "off": lines by hand
    sockets: str = ""                # what slurmd takes for a socket: package, numa or l3; "": what suits the GPUs
    partial_cores: bool = False      # up to Slurm 24.05: Cores= may be a part of a socket
    gres_ranges: bool = False        # File=/dev/nvidia[0-3] on one line where that says the same
    features_auto: bool = True       # Features= from the hardware beside the site's own
    weights_auto: bool = True        # Weight= from GPUs and memory where nodes differ


@dataclass(frozen=True)
class NodeGroup:
    """[nodes.NAME]: a group by hostlist; what it must have, and what its node lines get."""

    name: str
    hosts: str
    gpus: int | None = None
    gpu_model: str = ""
    rdma: int | None = None
    memory_mib: int | None = None
    features: tuple[str, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)   # further NodeName= keys
    autodetect: str = ""                  # as in [slurm], for these nodes; "off" where [slurm] has one
    sockets: str = ""                     # as in [slurm], for these nodes
    features_auto: bool | None = None     # as in [slurm], for these nodes
    mps: int | None = None                # Count of gres/mps for each GPU: a multiple of 100
    shards: int | None = None             # Count of gres/shard for each GPU
    gres: Mapping[str, Scalar] = field(default_factory=dict)      # further gres that are only counted: nic = 4
    mig_minors: Mapping[str, int] = field(default_factory=dict)   # of /proc/driver/nvidia-caps/mig-minors: MIG by hand


@dataclass(frozen=True)
class Cluster:
    name: str = ""
    controllers: tuple[str, ...] = ()     # "head" or "head(10.0.0.1)"
    domain: str = ""


@dataclass(frozen=True)
class BmcSite:
    """[bmc]: how discover --redfish reaches the board management controllers."""

    address: str = "{node}-bmc"           # {node} is replaced by the node's name
    login_file: str = ""                  # lines user=NAME and password=SECRET, mode 0600
    ca_file: str = ""                     # whom the certificates must be signed by; "": the system's
    verify: bool = True


@dataclass(frozen=True)
class AccountingSite:
    """[accounting]: where slurmdbd runs and what it needs; plug-ins that measure jobs."""

    host: str = ""                        # where slurmdbd runs; without it there is no accounting
    backup_host: str = ""
    enforce: tuple[str, ...] = ()         # AccountingStorageEnforce
    billing: bool = True                  # TRESBillingWeights from the hardware
    slurmdbd: bool = False                # write slurmdbd.conf as well
    storage_host: str = "localhost"
    storage_port: int | None = None
    storage_user: str = "slurm"
    storage_name: str = "slurm_acct_db"
    password_file: str = ""               # read when slurmdbd.conf is installed, never before
    energy: str = ""                      # ipmi, rapl, gpu, xcc, …
    interconnect: str = ""                # ofed or sysfs
    filesystem: str = ""                  # lustre
    profile: str = ""                     # hdf5 or influxdb
    options: Mapping[str, Scalar] = field(default_factory=dict)   # slurmdbd.conf keys of the site
    gather: Mapping[str, Scalar] = field(default_factory=dict)    # acct_gather.conf keys of the site


@dataclass(frozen=True)
class HookSite:
    """[hooks]: programs that Slurm runs, by their path on the hosts where it runs them."""

    health: str = ""                      # HealthCheckProgram
    health_interval_s: int = 300
    health_states: tuple[str, ...] = ("ANY", "CYCLE")
    health_timeout_s: int | None = None
    prolog: str = ""
    epilog: str = ""
    prolog_slurmctld: str = ""
    epilog_slurmctld: str = ""
    task_prolog: str = ""
    task_epilog: str = ""
    unkillable: str = ""
    reboot: str = ""


@dataclass(frozen=True)
class PrivateTmp:
    """[private_tmp]: directories of which every job gets its own, below base_path on its nodes."""

    base_path: str = ""
    dirs: tuple[str, ...] = ("/tmp", "/dev/shm")  # noqa: S108  (names for a file, nothing is opened)
    create: bool = True                   # slurmd makes base_path where it is missing
    shared: bool = False                  # mounts made later are seen inside (autofs)
    init_script: str = ""


@dataclass(frozen=True)
class Site:
    """All of site.toml. source is the file's path, "" for the built-in empty one."""

    source: str = ""
    cluster: Cluster = field(default_factory=Cluster)
    ssh: Ssh = field(default_factory=Ssh)
    slurm: SlurmSite = field(default_factory=SlurmSite)
    bmc: BmcSite = field(default_factory=BmcSite)
    accounting: AccountingSite = field(default_factory=AccountingSite)
    hooks: HookSite = field(default_factory=HookSite)
    private_tmp: PrivateTmp = field(default_factory=PrivateTmp)
    topology: TopologySite = field(default_factory=TopologySite)
    sweep: SweepSite = field(default_factory=SweepSite)
    availability: AvailabilitySite = field(default_factory=AvailabilitySite)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    modules: ModulesSite = field(default_factory=ModulesSite)
    nodes: tuple[NodeGroup, ...] = ()
    limits: tuple[Mapping[str, Any], ...] = ()                    # [[limit]] tables, checked by the catalogue
    suites: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    run_dir: str = ""
    shared_dir: str = ""
    checks_dir: str = ""
    collect: str = "shared"              # or "step": the nodes do not share the run folder
    node_dir: str = "/tmp"               # noqa: S108  where each node then keeps what it has, in a folder of its own
    at_once: int = 0                     # nodes under load at one time, at most; 0: all
    env: Mapping[str, str] = field(default_factory=dict)          # of every step of every suite

    def tool(self, name: str) -> Tool:
        """What is said of a tool, with the modules that every step has."""
        found = tool_of(self.tools, name)
        load = self.modules.load
        return replace(found, modules=tuple(dict.fromkeys((*load, *found.modules)))) if load else found

    @property
    def away(self) -> str:
        """Where each node keeps what it has; "" where they share the run folder."""
        return self.node_dir if self.collect == "step" else ""

    def shared(self, otherwise: str) -> str:
        """The directory that node_ready writes to; "-" where nodes are not expected to share one."""
        return self.shared_dir or ("-" if self.away else otherwise)


def load_site(path: str | None) -> Site:
    """The site's file: `path`, else $HPCADMIN_SITE, else ./site.toml, ~/.config/hpcadmin/site.toml,
    /etc/hpcadmin/site.toml; an empty Site where none exists."""
    named = path or os.environ.get("HPCADMIN_SITE")
    if named:
        return parse_site(read_toml(Path(named)), named)
    for candidate in (Path("site.toml"), Path("~/.config/hpcadmin/site.toml").expanduser(),
                      Path("/etc/hpcadmin/site.toml")):
        if candidate.is_file():
            return parse_site(read_toml(candidate), str(candidate))
    return Site()


# Tables that later commands read; they are known, so that a site may already have them.
_KNOWN = {"cluster", "ssh", "slurm", "tools", "nodes", "limit", "suites", "partitions", "run", "bmc", "sweep",
          "alarms", "accounting", "hooks", "private_tmp", "topology", "modules", "env", "availability"}


def parse_site(tables: Mapping[str, Any], name: str) -> Site:
    """A Site from the tables of its file. Raises SiteError naming the key that is unknown or of the wrong type."""
    get = TableReader(tables, name)
    get.only_keys(tables, _KNOWN, "")
    run = get.table("run")
    get.only_keys(run, {"dir", "shared_dir", "checks_dir", "collect", "node_dir", "at_once"}, "run")
    at_once = run.get("at_once", 0)
    if type(at_once) is not int or at_once < 0:
        raise get.error("run.at_once", "must be a number of nodes, or 0 for all")
    collect, node_dir = get.text(run, "collect", "run") or "shared", get.text(run, "node_dir", "run") or Site.node_dir
    if collect not in ("shared", "step"):
        raise get.error("run.collect", 'must be "shared" or "step": whether all nodes see the run folder')
    if not re.fullmatch(r"(/[A-Za-z0-9_.,+@-]+)+", node_dir) or ".." in node_dir.split("/"):
        raise get.error("run.node_dir", "must be the absolute path of a folder, of letters, digits and _ . , + @ -")
    limits = tables.get("limit", [])
    if not isinstance(limits, list) or not all(isinstance(x, dict) for x in limits):
        raise get.error("limit", "must be [[limit]] tables")
    node_tables = get.table("nodes")
    return Site(
        source=name,
        cluster=get.record(Cluster, get.table("cluster"), "cluster"),
        ssh=get.record(Ssh, get.table("ssh"), "ssh"),
        slurm=get.slurm(),
        bmc=get.record(BmcSite, get.table("bmc"), "bmc"),
        accounting=get.record(AccountingSite, get.table("accounting"), "accounting"),
        hooks=get.record(HookSite, get.table("hooks"), "hooks"),
        private_tmp=get.record(PrivateTmp, get.table("private_tmp"), "private_tmp"),
        topology=get.record(TopologySite, get.table("topology"), "topology"),
        sweep=get.sweep(),
        availability=get.availability(),
        tools={key: get.tool(key, value) for key, value in get.table("tools").items()},
        modules=get.modules(),
        nodes=tuple(get.record(NodeGroup, {"name": key, **get.as_table(value, f"nodes.{key}")}, f"nodes.{key}")
                    for key, value in node_tables.items()),
        limits=tuple(limits),
        suites={key: get.as_table(value, f"suites.{key}") for key, value in get.table("suites").items()},
        partitions={key: get.scalars(value, f"partitions.{key}") for key, value in get.table("partitions").items()},
        run_dir=get.text(run, "dir", "run"), shared_dir=get.text(run, "shared_dir", "run"),
        checks_dir=get.text(run, "checks_dir", "run"), collect=collect, node_dir=node_dir, at_once=at_once,
        env=get.env(tables.get("env", {}), "env"),
    )


class TableReader:
    """Typed access to parsed tables with errors that name file, line and key."""

    def __init__(self, tables: Mapping[str, Any], name: str) -> None:
        self.tables = tables
        self.name = name

    def error(self, key: str, what: str) -> SiteError:
        return SiteError(f"{key} {what}", where=locate(self.name, key))

    def only_keys(self, table: Mapping[str, Any], known: set[str], path: str) -> None:
        for key in table:
            if key not in known:
                full = f"{path}.{key}" if path else key
                raise self.error(full, f"is not known here; known are {', '.join(sorted(known))}")

    def as_table(self, value: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.error(path, "must be a table")
        return value

    def scalars(self, value: Any, path: str) -> Mapping[str, Scalar]:
        table = self.as_table(value, path)
        for key, item in table.items():
            if not isinstance(item, (str, int, float)) or (isinstance(item, float) and not math.isfinite(item)):
                raise self.error(f"{path}.{key}", "must be a string, a number, true or false")
        return table

    def table(self, key: str) -> Mapping[str, Any]:
        return self.as_table(self.tables.get(key, {}), key)

    def text(self, table: Mapping[str, Any], key: str, path: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise self.error(f"{path}.{key}", "must be a string")
        return value

    def tool(self, name: str, value: Any, path: str = "tools") -> Tool:
        found: Tool = self.record(Tool, self.as_table(value, f"{path}.{name}"), f"{path}.{name}")
        if problem := tool_problem(name, found):
            raise self.error(f"{path}.{name}.{problem[0]}".rstrip("."), problem[1])
        return found

    def env(self, value: Any, path: str) -> dict[str, str]:
        found = dict(self.as_table(value, path))
        for key, item in found.items():
            if problem := no_variable(key, item):
                raise self.error(f"{path}.{key}", problem)
        return found

    def slurm(self) -> SlurmSite:
        found: SlurmSite = self.record(SlurmSite, self.table("slurm"), "slurm")
        if problem := no_mpi(found.mpi):
            raise self.error("slurm.mpi", problem)
        for key, least, most in (("nice", -MOST_NICE, MOST_NICE), ("priority", 0, MOST_PRIORITY)):
            if not least <= getattr(found, key) <= most:
                raise self.error(f"slurm.{key}", f"must be {least} to {most}")
        return found

    def sweep(self) -> SweepSite:
        found: SweepSite = self.record(SweepSite, self.table("sweep"), "sweep")
        if problem := sweep_problem(found):
            raise self.error(f"sweep.{problem[0]}", problem[1])
        return found

    def modules(self) -> ModulesSite:
        found: ModulesSite = self.record(ModulesSite, self.table("modules"), "modules")
        if problem := modules_problem(found):
            raise self.error(f"modules.{problem[0]}", problem[1])
        return found

    def availability(self) -> AvailabilitySite:
        found: AvailabilitySite = self.record(AvailabilitySite, plain_table(self.table("availability")), "availability")
        if problem := availability_problem(found):
            raise self.error(f"availability.{problem[0]}", problem[1])
        return found

    def record(self, cls: Any, table: Mapping[str, Any], path: str) -> Any:
        from dataclasses import fields  # noqa: PLC0415

        from hpcadmin.errors import StoreError  # noqa: PLC0415
        from hpcadmin.records import from_plain  # noqa: PLC0415
        self.only_keys(table, {f.name for f in fields(cls)}, path)
        try:
            return from_plain(cls, dict(table), where=self.name)
        except StoreError as exc:
            key = exc.what.split(" ", 1)[0].split("[", 1)[0]         # locate goes up where there is no such key
            where = locate(self.name, f"{path}.{key}")
            raise SiteError(f"[{path}] {exc.what.replace(cls.__name__ + ' ', '')}", where=where) from exc
