"""Settings, partitions and the site's own keys: what each version gets, by the hardware, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import conf_models as m
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looped import looped

from hpcadmin.conf.keys import VERSIONS, Effect, effects, show, statement
from hpcadmin.conf.partitions import slurm_minutes
from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.parts import line as conf_line
from hpcadmin.conf.render import RenderOptions, gres_counts, render
from hpcadmin.conf.settings import tree_width
from hpcadmin.model import Inventory
from hpcadmin.site import AccountingSite, Cluster, HookSite, PrivateTmp, Site

FOUR = m.inventory((m.names("node", 4), m.H100))
MIXED = m.inventory((m.names("gpu", 4), m.H100), (m.names("cpu", 12), m.BIG_CPU))
KEPT = replace(m.SITE, accounting=AccountingSite(host="ctl1"))


def go(site: Site = m.SITE, inventory: Inventory = FOUR, version: str = "24.11", **options: Any) -> Rendering:
    return render(inventory, site, RenderOptions(version, **options))


def told(result: Rendering) -> str:
    assert result.files == {}
    return "\n".join(f"{p.key}: {p.what} ({p.hint})" for p in result.problems)


def value(result: Rendering, key: str, file: str = "slurm.conf") -> str | None:
    assert result.problems == ()
    found = [line for line in result.files[file].splitlines() if line.startswith(f"{key}=")]
    assert len(found) <= 1
    return found[0].removesuffix("  # site.toml").partition("=")[2] if found else None


def partition(result: Rendering, name: str) -> dict[str, str]:
    assert result.problems == ()
    words = next(line for line in result.files["slurm.conf"].splitlines() if line.startswith(f"PartitionName={name} "))
    return dict(word.split("=", 1) for word in words.removesuffix("  # site.toml").split())


# The site's keys and Slurm's versions.

@pytest.mark.parametrize(("options", "version", "key", "written"), [
    ({"JobContainerType": "job_container/tmpfs"}, "25.05", "JobContainerType", "job_container/tmpfs"),
    ({"JobContainerType": "job_container/tmpfs"}, "25.11", "NamespaceType", "namespace/tmpfs"),
    ({"CryptoType": "crypto/munge"}, "24.11", "CredType", "cred/munge"),
    ({"AcctGatherInfinibandType": "acct_gather_infiniband/ofed"}, "23.02", "AcctGatherInterconnectType",
     "acct_gather_interconnect/ofed"),
    ({"SbcastParameters": "Compression=lz4"}, "22.05", "BcastParameters", "Compression=lz4"),
    ({"KeepAliveTime": 30}, "24.11", "CommunicationParameters", "keepalivetime=30"),
    ({"KeepAliveTime": 30, "CommunicationParameters": "block_null_hash"}, "24.11", "CommunicationParameters",
     "block_null_hash,keepalivetime=30"),
    ({"AccountingStorageUser": "x"}, "25.11", "AccountingStorageUser", None),
    ({"SlurmdParameters": "allow_ecores,config_overrides"}, "22.05", "SlurmdParameters", "config_overrides"),
    ({"slurmdtimeout": 60}, "26.05", "slurmdtimeout", "60"),
])
def test_own_keys_are_written_as_the_version_wants_them(options: dict[str, Any], version: str, key: str,
                                                        written: str | None) -> None:
    result = go(m.site(options=options), version=version)
    assert value(result, key) == written
    if written is not None:
        assert f"{key}={written}  # site.toml" in result.files["slurm.conf"]
    if key not in options or written is None:
        assert any("[slurm.options]" in note for note in result.notes)


@pytest.mark.parametrize(("where", "options", "version", "key", "hint"), [
    ("options", {"SlurmdTimeuot": 3}, "24.11", "slurm.options.SlurmdTimeuot", "SlurmdTimeout?"),
    ("options", {"FairyDust": 3}, "24.11", "slurm.options.FairyDust", "leave it out"),
    ("options", {"SlurmdTimeout": "soon"}, "24.11", "slurm.options.SlurmdTimeout", "whole number"),
    ("options", {"SelectType": "select/cons_res"}, "23.11", "slurm.options.SelectType", "select/cons_tres"),
    ("options", {"HealthCheckTimeout": 3}, "25.11", "slurm.options.HealthCheckTimeout", ""),
    ("options", {"HealthCheckNodeState": "CYCEL"}, "25.11", "slurm.options.HealthCheckNodeState", "CYCLE?"),
    ("options", {"NodeName": "n1"}, "25.11", "slurm.options.NodeName", "[nodes.NAME.options]"),
    ("options", {"HealthCheckTimeout": 3}, "", "slurm.options.HealthCheckTimeout", "--slurm-version"),
    ("cgroup", {"ConstrainKmemSpace": True}, "23.11", "slurm.cgroup.ConstrainKmemSpace", ""),
    ("cgroup", {"ConstrainCore": True}, "23.11", "slurm.cgroup.ConstrainCore", "ConstrainCores?"),
])
def test_own_keys_that_do_harm_or_do_not_exist_are_refused(where: str, options: dict[str, Any], version: str, key: str,
                                                          hint: str) -> None:
    text = told(go(m.site(**{where: options}), m.inventory((["n1"], m.LAB), version=""), version))
    assert f"{key}: " in text
    assert hint in text


def test_a_dead_cgroup_key_is_left_out_where_it_does_nothing() -> None:
    site = m.site(cgroup={"CgroupAutomount": True})
    assert value(go(site, version="23.02"), "CgroupAutomount", "cgroup.conf") == "YES"
    late = go(site, version="23.11")
    assert value(late, "CgroupAutomount", "cgroup.conf") is None
    assert any("CgroupAutomount" in note and "left out" in note for note in late.notes)


def test_another_cgroup_version_is_never_chosen_for_the_site() -> None:
    site = m.site(cgroup={"CgroupPlugin": "cgroup/v1"})
    assert value(go(site, version="26.05"), "CgroupPlugin", "cgroup.conf") == "cgroup/v1"


def test_partition_keys_follow_the_version_too() -> None:
    site = replace(m.SITE, partitions={"gpu": {"ExclusiveUser": True, "Shared": "NO", "MaxTime": 60}})
    assert partition(go(site, version="25.11"), "gpu") | {"Nodes": ""} == {
        "PartitionName": "gpu", "Nodes": "", "ExclusiveUser": "YES", "OverSubscribe": "NO", "MaxTime": "60",
        "DefCpuPerGPU": "28"}
    assert partition(go(site, version="26.05"), "gpu")["Exclusive"] == "USER"
    wrong = replace(m.SITE, partitions={"gpu": {"MaxTme": 60}})
    assert "partitions.gpu.MaxTme: slurm.conf: no Slurm has the key MaxTme (MaxTime?)" in told(go(wrong))


# What the hardware decides.

@pytest.mark.parametrize(("nodes", "version", "width"), [
    (4, (22, 5), 0), (4368, (26, 5), 0), (4369, (26, 5), 17), (10000, (24, 11), 22), (10000, None, 22),
    (10000, (23, 2), 0), (100000, (24, 5), 47), (200000, (22, 5), 59), (0, None, 0),
])
def test_tree_width(nodes: int, version: tuple[int, int] | None, width: int) -> None:
    assert tree_width(nodes, version) == width
    assert not width or width + width ** 2 + width ** 3 >= nodes


def test_there_is_a_partition_for_each_kind_of_node() -> None:
    result = go(inventory=MIXED)
    assert partition(result, "cpu") == {"PartitionName": "cpu", "Nodes": "cpu[01-12]", "Default": "YES"}
    assert partition(result, "gpu") == {"PartitionName": "gpu", "Nodes": "gpu[01-04]", "DefCpuPerGPU": "28",
                                        "DefMemPerCPU": "9121"}
    assert partition(go(), "main")["Nodes"] == "node[01-04]"
    both = go(m.site(partition="work"), MIXED)
    assert partition(both, "work")["Nodes"] == "cpu[01-12],gpu[01-04]"
    assert [line.count("Default=YES") for line in both.files["slurm.conf"].splitlines()].count(1) == 1
    assert partition(go(m.site(partition="gpu"), MIXED), "gpu")["Nodes"] == "gpu[01-04]"


def test_a_gpu_is_billed_as_the_cpus_that_come_with_it() -> None:
    result = go(KEPT, MIXED)
    assert partition(result, "gpu")["TRESBillingWeights"] == "CPU=1.0,Mem=0.1123G,GRES/gpu=28.0"
    assert partition(result, "cpu")["TRESBillingWeights"] == "CPU=1.0,Mem=0.2567G"
    assert value(result, "PriorityFlags") == "MAX_TRES"
    # All of a node costs what its CPUs cost, whichever of the three is taken whole.
    weights = {k: float(v.rstrip("G")) for k, v in (
        part.split("=") for part in partition(result, "gpu")["TRESBillingWeights"].split(","))}
    assert 8 * weights["GRES/gpu"] == 224
    assert abs(2043214 / 1024 * weights["Mem"] - 224) < 0.2
    assert "TRESBillingWeights" not in partition(go(inventory=MIXED), "gpu")
    off = replace(KEPT, accounting=AccountingSite(host="ctl1", billing=False))
    assert "TRESBillingWeights" not in partition(go(off, MIXED), "gpu")
    assert value(go(off, MIXED), "PriorityFlags") is None
    own = replace(KEPT, partitions={"a": {"tresbillingweights": "CPU=2.0", "DefCpuPerGPU": 4}})
    assert partition(go(own), "a") | {"Nodes": ""} == {
        "PartitionName": "a", "Nodes": "", "tresbillingweights": "CPU=2.0", "DefCpuPerGPU": "4"}


def test_default_memory_is_the_sites_where_it_has_its_own() -> None:
    for options in ({"DefMemPerNode": 1000}, {"DefMemPerCPU": 1000}, {"DefMemPerGPU": 1000}):
        result = go(m.site(options=options), MIXED)
        assert "DefMemPerCPU" not in partition(result, "gpu")
        assert result.files["slurm.conf"].count("DefMemPer") == 1
    own = replace(m.SITE, partitions={"gpu": {"Nodes": "gpu[01-04]", "DefMemPerGPU": 100}})
    assert "DefMemPerCPU" not in partition(go(own, MIXED), "gpu")


def test_the_plan_of_the_scheduler_reaches_as_far_as_jobs_may_last() -> None:
    def plan_of(**partitions: dict[str, Any]) -> str | None:
        return value(go(replace(m.SITE, partitions=partitions)), "SchedulerParameters")
    assert plan_of(a={"MaxTime": "12:00:00"}) == "bf_continue"
    assert plan_of(a={"MaxTime": "7-00:00:00"}) == "bf_continue,bf_window=10080,bf_resolution=420"
    assert plan_of(a={"MaxTime": "90-0"}) == "bf_continue,bf_window=43200,bf_resolution=600"
    assert plan_of(a={"MaxTime": 60}, b={"MaxTime": "INFINITE"}) == "bf_continue"
    assert plan_of(DEFAULT={"MaxTime": "2-0"}, a={}, b={"maxtime": "3-0"}) == (
        "bf_continue,bf_window=4320,bf_resolution=180")
    assert "partitions.a.MaxTime: MaxTime=soon is no time" in told(
        go(replace(m.SITE, partitions={"a": {"MaxTime": "soon"}})))


@looped(("text", "minutes"), [
    ("60", 60), ("90:30", 91), ("1:30:00", 90), ("2-12", 3600), ("1-00:30", 1470), ("1-00:00:01", 1441), ("", None),
    ("1-2-3", None), ("-5", None), ("1:2:3:4", None), ("1.5", None), ("0", 0),
])
def test_times(text: str, minutes: int | None) -> None:
    assert slurm_minutes(text) == minutes


def test_defaults_of_partitions_stand_before_them_and_are_theirs() -> None:
    site = replace(m.SITE, partitions={"default": {"DefaultTime": "1:00:00", "MaxTime": "1-0"}})
    text = go(site, MIXED).files["slurm.conf"]
    at = [text.index(f"PartitionName={name}") for name in ("DEFAULT DefaultTime=1:00:00 MaxTime=1-0", "cpu", "gpu")]
    assert at == sorted(at)
    assert not any("MaxTime" in note for note in go(site, MIXED).notes)
    some = replace(m.SITE, partitions={"DEFAULT": {"Nodes": "gpu[01-04]"}, "a": {}, "b": {"Nodes": "cpu[01-12]"}})
    assert partition(go(some, MIXED), "a") == {"PartitionName": "a", "DefCpuPerGPU": "28", "DefMemPerCPU": "9121"}
    assert partition(go(some, MIXED), "b")["Nodes"] == "cpu[01-12]"
    wrong = replace(m.SITE, partitions={"DEFAULT": {"nodes": "x1"}, "a": {}})
    assert "partitions.DEFAULT.nodes: [partitions.DEFAULT] names x1" in told(go(wrong))


def test_what_is_in_no_partition_is_said() -> None:
    site = replace(m.SITE, partitions={"gpu": {"Nodes": "gpu[01-04]"}})
    notes = go(site, MIXED).notes
    assert any(note.startswith("cpu[01-12]: in no partition") for note in notes)
    assert any("Default = true" in note for note in notes)


def test_gres_are_counted_by_name_and_type() -> None:
    lines = [conf_line("Gres", "gpu:h100:4,gpu:a100_3g.20gb:2,shard:h100:8,mps:400,nic:2,gpu", ""),
             conf_line("gres", "lustre:1K,gpu:h100:no_consume:4(S:0-1)", "")]
    assert gres_counts(lines) == [
        ("gpu", "h100", 4), ("gpu", "a100_3g.20gb", 2), ("shard", "h100", 8), ("mps", "", 400), ("nic", "", 2),
        ("gpu", "", 1), ("lustre", "", 1024), ("gpu", "h100", 1)]


# Accounting, hooks, private directories.

def test_gpus_are_accounted_only_where_slurmdbd_is() -> None:
    assert value(go(KEPT), "AccountingStorageTRES") == "gres/gpu,gres/gpu:h100"
    assert value(go(), "AccountingStorageTRES") is None       # slurmctld would not start
    assert value(go(m.site(options={"AccountingStorageType": "accounting_storage/slurmdbd"})),
                 "AccountingStorageTRES") == "gres/gpu,gres/gpu:h100"
    for tres in ("gres/gpu", "cpu, ic/ofed", "fs/lustre", "license/a"):
        assert "without slurmdbd" in told(go(m.site(options={"AccountingStorageTRES": tres})))
    assert value(go(m.site(options={"AccountingStorageTRES": "cpu,fs/disk"})), "AccountingStorageTRES") == "cpu,fs/disk"


def test_priorities_need_accounting() -> None:
    assert "Priority" not in go(version="22.05").files["slurm.conf"]
    assert value(go(KEPT, version="22.05"), "PriorityType") == "priority/multifactor"
    assert value(go(KEPT, version="24.11"), "PriorityType") is None
    assert value(go(KEPT, version="24.11"), "PriorityWeightFairshare") == "100000"
    basic = replace(KEPT, slurm=m.site(options={"PriorityType": "priority/basic"}).slurm)
    assert "PriorityWeight" not in go(basic, version="23.02").files["slurm.conf"]


@looped(("accounting", "word"), [
    ({"slurmdbd": True}, "no host"), ({"enforce": ("limits",)}, "no host"),
    ({"host": "a", "enforce": ("limit",)}, "enforce has no 'limit'"), ({"host": "a", "energy": "x"}, "no such plug-in"),
    ({"energy": "rapl"}, "nothing keeps it"), ({"host": "a", "interconnect": "sysfs"}, "SysfsInterfaces"),
    ({"host": "a", "profile": "hdf5"}, "ProfileHDF5Dir"),
    ({"host": "a", "gather": {"EnergyIPMIFrequency": 3}}, "fatal"),
    ({"host": "a", "energy": "ipmi", "gather": {"EnergyIPMIPassword": "x"}}, "writes no password"),
    ({"host": "a", "options": {"PurgeJobAfter": "1day"}}, "slurmdbd.conf is not asked for"),
    ({"host": "a", "slurmdbd": True, "options": {"StoragePass": "x"}}, "[accounting] password_file"),
    ({"host": "a", "slurmdbd": True, "options": {"PurgeJobAftr": "1day"}}, "PurgeJobAfter?"),
    ({"host": "a b"}, "accounting.host"), ({"host": "a", "slurmdbd": True, "storage_user": "x#y"}, "storage_user"),
])
def test_accounting_that_cannot_be_is_refused(accounting: dict[str, Any], word: str) -> None:
    assert word in told(go(replace(m.SITE, accounting=AccountingSite(**accounting))))


def test_what_two_tables_say_differently_is_refused() -> None:
    site = replace(m.site(options={"AccountingStorageHost": "ctl2", "Prolog": "/x", "SlurmctldParameters": "a"}),
                   accounting=AccountingSite(host="ctl1"), hooks=HookSite(prolog="/y"))
    text = told(go(site))
    assert "slurm.options.AccountingStorageHost: " in text
    assert "slurm.options.Prolog: [slurm.options] Prolog=/x contradicts [hooks] prolog" in text
    same = replace(m.site(options={"AccountingStorageHost": "ctl1"}), accounting=AccountingSite(host="ctl1"))
    assert go(same).files["slurm.conf"].count("AccountingStorageHost") == 1


def test_energy_and_networks() -> None:
    site = replace(m.SITE, accounting=AccountingSite(host="a", energy="ipmi", interconnect="ofed", filesystem="lustre",
                                                     gather={"EnergyIPMIFrequency": 60, "InterconnectOFEDPort": 2}))
    result = go(site)
    assert value(result, "AcctGatherEnergyType") == "acct_gather_energy/ipmi"
    assert value(result, "AccountingStorageTRES") == "gres/gpu,gres/gpu:h100,ic/ofed,fs/lustre"
    assert value(result, "EnergyIPMIFrequency", "acct_gather.conf") == "60"
    assert value(result, "EnergyIPMICalcAdjustment", "acct_gather.conf") == "yes"
    assert "acct_gather.conf" not in go(replace(m.SITE, accounting=AccountingSite(host="a", energy="rapl"))).files


def test_slurmdbd_conf() -> None:
    site = replace(m.SITE, accounting=AccountingSite(
        host="ctl1", backup_host="ctl2", slurmdbd=True, storage_host="db", storage_port=3307, storage_user="acct",
        storage_name="x", password_file="/etc/pw", options={"PurgeJobAfter": "24months"}))
    result = go(site)
    assert result.secret == ("slurmdbd.conf",)
    assert [line.removesuffix("  # site.toml") for line in result.files["slurmdbd.conf"].splitlines()
            if line and not line.startswith("#")] == [
        "DbdHost=ctl1", "DbdBackupHost=ctl2", "SlurmUser=slurm", "LogFile=/var/log/slurm/slurmdbd.log",
        "StorageType=accounting_storage/mysql", "StorageHost=db", "StoragePort=3307", "StorageLoc=x",
        "StorageUser=acct", "PurgeJobAfter=24months"]
    assert "/etc/pw" not in "".join(result.files.values())


def test_hooks_are_written_only_where_asked_and_what_they_need_is_said() -> None:
    assert "HealthCheck" not in go().files["slurm.conf"]
    site = replace(m.SITE, hooks=HookSite(health="/usr/sbin/hpcadmin-health", health_timeout_s=30,
                                          reboot="/sbin/reboot", prolog_slurmctld="/etc/slurm/p"))
    old, new = go(site, version="25.11"), go(site, version="26.05")
    assert value(old, "HealthCheckProgram") == "/usr/sbin/hpcadmin-health"
    assert (value(old, "HealthCheckInterval"), value(old, "HealthCheckNodeState")) == ("300", "ANY,CYCLE")
    assert (value(old, "HealthCheckTimeout"), value(new, "HealthCheckTimeout")) == (None, "30")
    assert any("health_timeout_s is left out" in note for note in old.notes)
    assert any("/usr/sbin/hpcadmin-health" in note and "on every node" in note for note in new.notes)
    assert any("/etc/slurm/p must be on every controller" in note for note in new.notes)


@pytest.mark.parametrize(("hooks", "version", "word"), [
    ({"health": "hpcadmin-health"}, "24.11", "hooks.health: "), ({"health": "/x y"}, "24.11", "plain characters"),
    ({"prolog": "/a/../b"}, "24.11", "hooks.prolog"),
    ({"health": "/x", "health_interval_s": 0}, "24.11", "1 and 65535"),
    ({"health": "/x", "health_states": ("NONDRAINED_IDLE",)}, "22.05", "hooks.health_states"),
    ({"health": "/x", "health_states": ("START_ONLY",)}, "25.05", "hooks.health_states"),
    ({"health": "/x", "health_states": ("CYCEL",)}, "25.05", "CYCLE?"),
    ({"health": "/x", "health_timeout_s": 300}, "26.05", "not below"),
])
def test_hooks_that_cannot_be_are_refused(hooks: dict[str, Any], version: str, word: str) -> None:
    assert word in told(go(replace(m.SITE, hooks=HookSite(**hooks)), version=version))


def test_private_directories_have_the_file_of_their_version() -> None:
    site = replace(m.SITE, private_tmp=PrivateTmp("/local/jobs"))
    old, new = go(site, version="22.05"), go(site, version="25.11")
    assert value(old, "JobContainerType") == "job_container/tmpfs"
    assert "AutoBasePath=true  # site.toml\nBasePath=/local/jobs  # site.toml\n" in old.files["job_container.conf"]
    assert "namespace.yaml" not in old.files
    assert value(new, "NamespaceType") == "namespace/linux"
    assert new.files["namespace.yaml"].endswith(
        'defaults:\n  auto_base_path: true  # site.toml\n  base_path: "/local/jobs"  # site.toml\n')
    assert "job_container.conf" not in new.files
    dirs = replace(m.SITE, private_tmp=PrivateTmp("/local/jobs", ("/tmp", "/var/tmp"), create=False, shared=True,
                                                  init_script="/etc/slurm/init"))
    assert "Dirs=/tmp,/var/tmp InitScript=/etc/slurm/init" in go(dirs, version="24.11").files["job_container.conf"]
    assert '  dirs: "/tmp,/var/tmp"' in go(dirs, version="26.05").files["namespace.yaml"]
    assert "private_tmp.dirs" in told(go(dirs, version="22.05"))


@pytest.mark.parametrize(("own", "options", "word"), [
    ({"base_path": "/tmp/x"}, {}, "lie in each other"), ({"base_path": "/tmp"}, {}, "lie in each other"),
    ({"base_path": "/a", "dirs": ("/a/b",)}, {}, "lie in each other"), ({"base_path": "local"}, {}, "absolute"),
    ({"base_path": "/a", "dirs": ()}, {}, "no directory"), ({"base_path": '/a"b'}, {}, "plain characters"),
    ({"base_path": "/a", "dirs": ("/b\n",)}, {}, "plain characters"),
    ({"base_path": "/a"}, {"PrologFlags": "Alloc"}, "needs PrologFlags=Contain"),
    ({"base_path": "/a"}, {"ProctrackType": "proctrack/linuxproc"}, "needs PrologFlags=Contain"),
])
def test_private_directories_that_cannot_be_are_refused(own: dict[str, Any], options: dict[str, Any],
                                                        word: str) -> None:
    site = replace(m.site(options=options), private_tmp=PrivateTmp(**own))
    for version in ("24.11", "26.05"):
        assert word in told(go(site, version=version))
    assert "version is not known" in told(go(site, m.inventory((["n1"], m.LAB), version=""), ""))


def test_several_controllers_share_their_state() -> None:
    site = replace(m.SITE, cluster=Cluster("t", ("a", "b")))
    assert any("StateSaveLocation" in note and "share" in note for note in go(site).notes)


def test_configless_is_added_to_the_sites_own_words() -> None:
    site = m.site(configless=True, options={"SlurmctldParameters": "idle_on_node_suspend"})
    assert value(go(site), "SlurmctldParameters") == "idle_on_node_suspend,enable_configless"


# No site makes a file of which its version dies.

KEYS = ["SlurmdTimeout", "HealthCheckTimeout", "SelectType", "FastSchedule", "KeepAliveTime", "TopologyParam",
        "LaunchType", "JobContainerType", "NamespaceType", "CryptoType", "PowerPlugin", "AccountingStorageLoc",
        "MpiDefault", "PrologFlags", "SlurmctldParameters", "SlurmdParameters", "TaskPluginParam", "Nonsense"]
WORDS = ["1", "300", "YES", "select/cons_res", "select/linear", "none", "job_container/tmpfs", "namespace/linux",
         "Contain", "X11", "config_overrides,allow_ecores", "Sched", "a,b", "route/topology", "crypto/munge"]
PARTS = ["MaxTime", "DefaultTime", "ExclusiveUser", "ExclusiveTopo", "OverSubscribe", "Shared", "Default", "QOS",
         "Wrong"]


@st.composite
def sites(draw: st.DrawFn) -> Site:
    options = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WORDS), max_size=4))
    cgroup = draw(st.dictionaries(
        st.sampled_from(["CgroupAutomount", "ConstrainKmemSpace", "CgroupPlugin", "CgroupSlice", "EnableControllers"]),
        st.sampled_from(["yes", "disabled"]), max_size=2))
    tables = draw(st.dictionaries(st.sampled_from(["DEFAULT", "a", "b"]), st.dictionaries(
        st.sampled_from(PARTS), st.sampled_from(["YES", "NO", "1:00:00", "60", "normal"]), max_size=3), max_size=3))
    accounting = AccountingSite(host=draw(st.sampled_from(["", "ctl1"])), slurmdbd=draw(st.booleans()),
                                energy=draw(st.sampled_from(["", "rapl", "ipmi"])),
                                enforce=draw(st.sampled_from([(), ("limits",)])))
    hooks = HookSite(health=draw(st.sampled_from(["", "/x"])), health_timeout_s=draw(st.sampled_from([None, 30])),
                     health_states=draw(st.sampled_from([("ANY", "CYCLE"), ("NONDRAINED_IDLE",), ("START_ONLY",)])))
    private = PrivateTmp(base_path=draw(st.sampled_from(["", "/local"])), shared=draw(st.booleans()))
    return replace(m.site(options=options, cgroup=cgroup, configless=draw(st.booleans())), partitions=tables,
                   accounting=accounting, hooks=hooks, private_tmp=private)


def fatal(files: dict[str, str], version: tuple[int, int]) -> list[str]:
    found = []
    for name, text in files.items():
        for line in text.splitlines() if name.endswith(".conf") else []:
            words = re.sub(r"#.*", "", line).split()
            kind = statement(name, words[0].partition("=")[0]) if words else ""
            for word in words:
                key, _, text_of = word.partition("=")
                found += [f"{show(version)} {name}: {word}" for _, _, effect in effects(kind, key, text_of, version)
                          if effect is Effect.FATAL]
    return found


@pytest.mark.deep
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sites(), st.sampled_from([*VERSIONS, None]))
def test_no_site_makes_a_file_that_its_version_dies_of(site: Site, version: tuple[int, int] | None) -> None:
    inventory = m.inventory((["g1"], m.A100P), (["c1"], m.LAB), version="")
    result = render(inventory, site, RenderOptions(show(version) if version else ""))
    assert bool(result.files) != bool(result.problems)
    for one in (version,) if version else VERSIONS:
        assert fatal(dict(result.files), one) == []
    if not result.problems:
        keys = [line.partition("=")[0].casefold() for line in result.files["slurm.conf"].splitlines()
                if "=" in line and not line.startswith(("#", "NodeName", "PartitionName"))]
        assert len(keys) == len(set(keys)), "a key stands twice"


@looped("version", [*map(show, VERSIONS), ""])
@looped("site", [m.SITE, KEPT], ids=["plain", "kept"])
def test_our_own_lines_are_in_no_version_more_than_it_has(site: Site, version: str) -> None:
    """Nothing is said against any line of ours: no note about a key or value."""
    result = render(m.inventory((["g1"], m.A100P), (["c1"], m.LAB), version=""), site, RenderOptions(version))
    assert result.problems == ()
    assert [note for note in result.notes if "slurm.conf:" in note or "cgroup.conf:" in note] == []
