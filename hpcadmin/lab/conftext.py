"""The text of every configuration file of a lab: pure functions of values, in the form an admin would write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

# What makes Slurm light enough for many nodes on one machine; also [slurm] options in the lab's site.toml.
LIGHT: dict[str, str | int] = {
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SwitchType": "switch/none",
    "MpiDefault": "none",
    "JobAcctGatherType": "jobacct_gather/none",
    "ReturnToService": 2,
    "SlurmdTimeout": 60,
    "KillWait": 5,
    "PropagateResourceLimits": "NONE",
    "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=10",
    "MailProg": "/bin/true",
}


def slurm_conf(cluster: str, head_address: str, slurm_user: str, node_lines: Sequence[str], *,
               accounting: bool = False, gres: Iterable[str] = (), light: Mapping[str, str | int] = LIGHT) -> str:
    settings: dict[str, str | int] = {
        "ClusterName": cluster,
        "SlurmctldHost": f"head({head_address})",
        "SlurmUser": slurm_user,
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "StateSaveLocation": "/var/spool/slurmctld",
        "SlurmdSpoolDir": "/var/spool/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        **light,
    }
    if accounting:
        settings |= {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "head",
                     "JobAcctGatherType": "jobacct_gather/linux", "JobAcctGatherFrequency": 30}
    types = sorted(set(gres))
    if types:
        settings["GresTypes"] = ",".join(types)
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += node_lines
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def slurmdbd_conf(slurm_user: str, password: str) -> str:
    return (f"AuthType=auth/munge\nDbdHost=head\nSlurmUser={slurm_user}\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort=3306\nStorageUser=slurm\nStoragePass={password}\nStorageLoc=slurm\n"
            "LogFile=/var/log/slurm/slurmdbd.log\nPidFile=/run/slurmdbd.pid\n")


def grants(password: str) -> str:
    """SQL that mariadbd runs at its start; the password is made of hexadecimal digits."""
    return (f"CREATE DATABASE IF NOT EXISTS slurm;\nCREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY '{password}';\n"
            "GRANT ALL ON slurm.* TO 'slurm'@'%';\n")


def hosts_file(addresses: Mapping[str, str]) -> str:
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items())


def known_hosts(addresses: Mapping[str, str], keys: Mapping[str, str]) -> str:
    """keys: public host key of each host, as ssh-keygen writes it."""
    return "".join(f"{name},{address} {' '.join(keys[name].split()[:2])}\n" for name, address in addresses.items())


def sshd_config(address: str) -> str:
    return (f"ListenAddress {address}\nHostKey /etc/ssh/ssh_host_ed25519_key\nPermitRootLogin prohibit-password\n"
            "PubkeyAuthentication yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n"
            "UseDNS no\nStrictModes yes\nMaxStartups 200\nAcceptEnv LANG LC_*\nPrintMotd no\nPrintLastLog no\n"
            "Subsystem sftp internal-sftp\n")


def client_config() -> str:
    """/etc/ssh/ssh_config in the lab: strict, and everything is known, so nothing is ever asked."""
    return ("Host *\n    StrictHostKeyChecking yes\n    GlobalKnownHostsFile /etc/ssh/ssh_known_hosts\n"
            "    PasswordAuthentication no\n    ConnectTimeout 10\n")


def machine_ssh_config(lab_dir: str, user: str, addresses: Mapping[str, str]) -> str:
    """LABDIR/ssh_config, for the machine the lab stands on, where the names do not resolve."""
    blocks = [f"Host {name}\n    HostName {address}\n    HostKeyAlias {name}\n" for name, address in addresses.items()]
    blocks.append(
        f"Host {' '.join(addresses)}\n    User {user}\n    IdentityFile {lab_dir}/id_ed25519\n    IdentitiesOnly yes\n"
        f"    UserKnownHostsFile {lab_dir}/known_hosts\n    GlobalKnownHostsFile none\n"
        "    StrictHostKeyChecking yes\n    PasswordAuthentication no\n    ConnectTimeout 10\n    ForwardAgent no\n")
    return "\n".join(blocks)


def accounts(base_text: str, user: str, uid: int) -> dict[str, str]:
    """passwd, group, shadow and gshadow of a host from the base root's passwd: no password of the machine goes along.

    base_text: passwd, a line "--", and group of the base root.
    """
    passwd, _, group = base_text.partition("\n--\n")
    users = [line for line in passwd.splitlines() if line.count(":") == 6 and _is_system(line)]
    users.append(f"{user}:x:{uid}:{uid}:lab user:/shared/home/{user}:/bin/bash")
    if not any(line.startswith("sshd:") for line in users):
        users.append("sshd:x:64031:65534::/run/sshd:/usr/sbin/nologin")
    groups = [line for line in group.splitlines() if line.count(":") == 3]
    groups.append(f"{user}:x:{uid}:")
    return {
        "passwd": "\n".join(users) + "\n",
        "group": "\n".join(groups) + "\n",
        "shadow": "".join(f"{line.split(':')[0]}:*:19000:0:99999:7:::\n" for line in users),
        "gshadow": "".join(f"{line.split(':')[0]}:*::\n" for line in groups),
    }


def _is_system(line: str) -> bool:
    """People of the machine have no business on the lab; its system accounts own files there."""
    uid = line.split(":")[2]
    return uid.isdigit() and (int(uid) < 1000 or int(uid) >= 60000)


def mca_environment(net: str) -> dict[str, str]:
    """Open MPI on the lab: TCP between nodes, shared memory inside one, no search for fabrics that are not there,
    ranks that yield (more ranks than cores is the normal case here)."""
    return {
        "pml": "ob1", "btl": "self,vader,tcp", "btl_tcp_if_include": net, "oob_tcp_if_include": net,
        "btl_vader_single_copy_mechanism": "none", "btl_base_warn_component_unused": "0", "osc": "^ucx",
        "mpi_yield_when_idle": "1", "hwloc_base_binding_policy": "none", "rmaps_base_oversubscribe": "1",
    }


def mca_file(net: str) -> str:
    return "".join(f"{key} = {value}\n" for key, value in mca_environment(net).items())


def site_toml(cluster: str, user: str, net: str, suites: Sequence[str] = ("smoke", "network")) -> str:
    options = "".join(f"{key} = {_toml(value)}\n" for key, value in LIGHT.items())
    environment = "".join(f"OMPI_MCA_{key} = {_toml(value)}\n" for key, value in mca_environment(net).items())
    tables = "".join(f"\n[suites.{name}.env]\n{environment}" for name in suites)
    return f"""# The lab's site file: all hosts share one machine, so its limits are far below those of real hardware.
[cluster]
name = "{cluster}"
controllers = ["head"]

[ssh]
user = "{user}"

[slurm]
partition = "main"
mpi = "pmix"

[slurm.options]
{options}
[[limit]]
check = "mpi_pingpong"
measurement = "bandwidth"
unit = "MB/s"
size_bytes = 262144
min = 25.0
source = "lab: veth pairs on one shared machine"

[[limit]]
check = "mpi_pingpong"
measurement = "latency"
unit = "us"
max = 5000.0
source = "lab: veth pairs on one shared machine"
{tables}"""


def _toml(value: str | int) -> str:
    return str(value) if isinstance(value, int) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def node_line(name: str, address: str, parameters: str) -> str:
    return f"NodeName={name} NodeAddr={address} {parameters} State=UNKNOWN"


def real_parameters(cpuinfo: Sequence[tuple[int, int]], memory_mib: int) -> str:
    """A node line's hardware from (package, core) of each online CPU."""
    packages = {package for package, _ in cpuinfo}
    cores = set(cpuinfo)
    sockets, per_socket, threads = len(packages), len(cores) // len(packages), len(cpuinfo) // len(cores)
    if sockets * per_socket * threads != len(cpuinfo):
        return f"CPUs={len(cpuinfo)} RealMemory={memory_mib}"
    return (f"CPUs={len(cpuinfo)} Sockets={sockets} CoresPerSocket={per_socket} ThreadsPerCore={threads} "
            f"RealMemory={memory_mib}")


def machine_conf(text: str, head_address: str, munge_socket: str) -> str:
    """slurm.conf for the machine itself: the name "head" does not resolve there, and munge has another socket."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*(AuthInfo|Include)\s*[= ]", line, re.IGNORECASE)]
    lines = [re.sub(r"^\s*SlurmctldHost\s*=\s*(\w+)\s*(#.*)?$", rf"SlurmctldHost=\1({head_address})", line,
                    flags=re.IGNORECASE) for line in lines]
    return "\n".join([*lines, f"AuthInfo=socket={munge_socket}"]) + "\n"


_SETTING = re.compile(r"^\s*([A-Za-z]+)\s*=\s*([^#\s]+)", re.MULTILINE)
_FOLDERS = {"statesavelocation": True, "slurmdspooldir": True, "slurmctldlogfile": False, "slurmdlogfile": False,
            "slurmschedlogfile": False, "slurmctldpidfile": False, "slurmdpidfile": False}


def settings(text: str) -> dict[str, str]:
    """slurm.conf's simple settings, keys in small letters; node and partition lines only by their first word."""
    return {key.lower(): value for key, value in _SETTING.findall(text)}

_THERE = ("/", "/run", "/var/run", "/tmp")   # noqa: S108  (folders every host has)


def needed_folders(text: str, node: str) -> list[str]:
    """Folders that the daemons expect to exist: an admin would have made them."""
    found = []
    for key, value in settings(text).items():
        if key in _FOLDERS:
            path = value.replace("%n", node).replace("%h", node)
            found.append(path if _FOLDERS[key] else path.rpartition("/")[0])
    return sorted({path for path in found if path.startswith("/") and path not in _THERE})


NSSWITCH = "".join(f"{database}: files\n" for database in (
    "passwd", "group", "shadow", "hosts", "networks", "services", "protocols"))


def cgroup_conf(version: tuple[int, int]) -> str:
    """Nothing of the lab's own settings uses control groups. Before "disabled" existed, the plug-in for version 1 is
    the one that does nothing until it is used; that for version 2 wants the machine's systemd at once."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else "CgroupPlugin=cgroup/v1\n"


# With Slurm's own choice of PMIx fence, ranks leave MPI_Init while others are still in it: on a busy machine with
# several ranks a node many starts of Open MPI 4.1.4 end with signal 11 (seen with 22.05.8). A ring holds them back.
MPI_CONF = "PMIxCollFence=ring\n"


def gres_names(parameters: str) -> list[str]:
    """Names in Gres= of a node line: "Gres=gpu:h100:8,nic:4" -> gpu, nic."""
    match = re.search(r"\bGres=(\S+)", parameters)
    return [part.split(":")[0] for part in match[1].split(",")] if match else []
