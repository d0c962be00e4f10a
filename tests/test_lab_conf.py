"""The text of the lab's configuration files."""

import pytest

from hpcadmin.lab import conftext
from hpcadmin.site import load_site
from hpcadmin.toml_text import parse_toml

ADDRESSES = {"head": "10.200.0.1", "node01": "10.200.0.11"}

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=head(10.200.0.1)
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=60
KillWait=5
PropagateResourceLimits=NONE
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=10
MailProg=/bin/true
GresTypes=gpu
NodeName=node01 NodeAddr=10.200.0.11 CPUs=2 Gres=gpu:h100:8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def test_slurm_conf() -> None:
    line = conftext.node_line("node01", "10.200.0.11", "CPUs=2 Gres=gpu:h100:8")
    types = conftext.gres_names(line)
    assert conftext.slurm_conf("lab", "10.200.0.1", "slurm", [line], gres=types) == SLURM_CONF


def test_accounting_replaces_settings_instead_of_repeating_them() -> None:
    text = conftext.slurm_conf("lab", "10.200.0.1", "slurm", [], accounting=True)
    assert text.count("JobAcctGatherType=") == 1
    assert "AccountingStorageHost=head\n" in text


@pytest.mark.parametrize(("cpus", "text"), [
    ([(0, 0), (0, 1)], "CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000"),
    ([(s, c) for s in (0, 1) for c in (0, 1, 4) for _ in (0, 1)],
     "CPUs=12 Sockets=2 CoresPerSocket=3 ThreadsPerCore=2 RealMemory=1000"),
    ([(0, 0), (0, 0), (0, 1)], "CPUs=3 RealMemory=1000"),
])
def test_real_hardware(cpus: list[tuple[int, int]], text: str) -> None:
    assert conftext.real_parameters(cpus, 1000) == text


def test_accounts_carry_no_password_and_no_people() -> None:
    passwd = ("root:x:0:0:root:/root:/bin/bash\nmunge:x:102:105::/nonexistent:/usr/sbin/nologin\n"
              "alice:x:1000:1000::/home/alice:/bin/bash\nslurm:x:64030:64030::/:/bin/false\nbroken line\n")
    files = conftext.accounts(f"{passwd}--\nroot:x:0:\nmunge:x:105:\n", "hpc", 30010)
    assert "alice" not in "".join(files.values())
    assert files["passwd"].splitlines()[-2:] == [
        "hpc:x:30010:30010:lab user:/shared/home/hpc:/bin/bash", "sshd:x:64031:65534::/run/sshd:/usr/sbin/nologin"]
    assert all(line.split(":")[1] == "*" for line in files["shadow"].splitlines())
    assert files["group"].splitlines()[-1] == "hpc:x:30010:"


def test_known_hosts_take_the_key_only() -> None:
    keys = {name: f"ssh-ed25519 AAAA{name} a comment\n" for name in ADDRESSES}
    assert conftext.known_hosts(ADDRESSES, keys) == (
        "head,10.200.0.1 ssh-ed25519 AAAAhead\nnode01,10.200.0.11 ssh-ed25519 AAAAnode01\n")


def test_ssh_is_strict_and_asks_nothing() -> None:
    assert "StrictHostKeyChecking yes" in conftext.client_config()
    machine = conftext.machine_ssh_config("/run/hpcadmin-lab/lab", "hpc", ADDRESSES)
    assert "StrictHostKeyChecking yes" in machine
    assert "Host node01\n    HostName 10.200.0.11\n    HostKeyAlias node01\n" in machine
    daemon = conftext.sshd_config("10.200.0.11")
    assert "ListenAddress 10.200.0.11\n" in daemon
    assert "PasswordAuthentication no\n" in daemon


def test_site_file_is_one_that_hpcadmin_reads(tmp_path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(conftext.site_toml("lab", "hpc", "10.200.0.0/24"))
    site = load_site(str(path))
    assert (site.cluster.controllers, site.slurm.partition, site.ssh.user) == (("head",), "main", "hpc")
    assert site.slurm.options["ReturnToService"] == 2
    assert site.suites["network"]["env"]["OMPI_MCA_btl_tcp_if_include"] == "10.200.0.0/24"
    assert {limit["check"] for limit in site.limits} == {"mpi_pingpong"}
    parse_toml(path.read_bytes(), "site.toml")


def test_folders_that_the_daemons_need() -> None:
    text = ("StateSaveLocation=/var/spool/ctld # comment\n#SlurmdSpoolDir=/x\nslurmdspooldir=/var/spool/%n\n"
            "SlurmdLogFile=/var/log/s/%h.log\nSlurmdPidFile=/run/slurmd.pid\nSlurmctldLogFile=relative\n")
    assert conftext.needed_folders(text, "node01") == ["/var/log/s", "/var/spool/ctld", "/var/spool/node01"]


def test_machine_conf_names_address_and_socket() -> None:
    text = conftext.machine_conf("SlurmctldHost=head\nAuthInfo=socket=/x\nClusterName=lab\n", "10.200.0.1", "/run/s")
    assert text == "SlurmctldHost=head(10.200.0.1)\nClusterName=lab\nAuthInfo=socket=/run/s\n"
    given = "SlurmctldHost=head(10.0.0.9)\n"
    assert conftext.machine_conf(given, "10.200.0.1", "/run/s").startswith(given)


@pytest.mark.parametrize(("version", "text"), [
    ((22, 5), "CgroupPlugin=cgroup/v1\n"), ((23, 2), "CgroupPlugin=cgroup/v1\n"),
    ((24, 11), "CgroupPlugin=disabled\n"), ((26, 5), "CgroupPlugin=disabled\n"),
])
def test_cgroup_conf(version: tuple[int, int], text: str) -> None:
    assert conftext.cgroup_conf(version) == text
