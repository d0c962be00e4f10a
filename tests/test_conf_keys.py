"""The key table: whole, without contradictions, and as the reference of Slurm's versions has it."""

from __future__ import annotations

import time

import pytest
from looped import looped

from hpcadmin.conf import keys
from hpcadmin.conf.keys import NEWEST, OLDEST, VERSIONS, Apply, Effect, Form, Version
from hpcadmin.conf.keytable import cgroup, gres, node, others, partition, slurm_conf, slurmdbd, topology
from hpcadmin.conf.keytable.kinds import Life, noted, table
from hpcadmin.conf.keytable.values import VALUES

MODULES = (slurm_conf, node, partition, gres, cgroup, topology, slurmdbd, others)
ALL = [key for module in MODULES for key in module.KEYS]
SHORT = {f"{v[0]}.{v[1]:02}": v for v in VERSIONS}


def effect(file: str, key: str, version: Version, value: str = "") -> Effect | None:
    found = [e for rule, _, e in keys.effects(file, key, value, version) if bool(rule.value) is bool(value)]
    return found[0] if found else None


# --- sanity ----------------------------------------------------------------------------------------------------------


def test_no_key_comes_twice() -> None:
    seen = [(key.file, key.name.casefold()) for key in ALL]
    assert sorted(set(seen)) == sorted(seen)
    of_values = [(words.file, words.key.casefold()) for words in VALUES]
    assert sorted(set(of_values)) == sorted(of_values)


@looped("life", [*ALL, *(word for words in VALUES for word in words.words)], ids=lambda x: x.name)
def test_lives_are_in_order(life: Life) -> None:
    starts = [start for start, _ in life.changes]
    assert starts == sorted(set(starts))
    assert life.since in VERSIONS and set(starts) <= set(VERSIONS)
    assert all(life.since < start or start == OLDEST for start in starts)
    assert life.until is None or life.until > life.since or life.until == OLDEST


def test_words_belong_to_keys_and_come_once() -> None:
    for words in VALUES:
        key = keys.lookup(words.file, words.key)
        assert key is not None and key.name == words.key and key.form is Form.TEXT, (words.file, words.key)
        names = [word.name.casefold() for word in words.words]
        assert len(set(names)) == len(names), words.key


@pytest.mark.parametrize("version", VERSIONS, ids=keys.show)
def test_what_is_to_be_written_instead_exists_in_that_version(version: Version) -> None:
    for key in ALL:
        for rule, _, _ in keys.effects(key.file, key.name, "", version):
            if rule.instead.isalnum():
                assert effect(key.file, rule.instead, version) is None, (key.name, rule.instead)
    for words in VALUES:
        for word in words.words:
            for rule, _, _ in keys.effects(words.file, words.key, word.name, version):
                if rule.value and rule.instead and not rule.unknown:
                    assert effect(words.file, words.key, version, rule.instead) is None, (word.name, rule.instead)


def test_every_replacement_that_is_a_key_is_one() -> None:
    for key in ALL:
        for name in key.instead.split("|"):
            bare = name.partition("=")[0]
            if bare.isalnum():
                assert keys.lookup(key.file, bare) or keys.lookup("slurm.conf", bare), (key.name, bare)


def test_aliases_and_plug_ins_exist() -> None:
    known = {word.name for words in VALUES for word in words.words}
    for key in ALL:
        assert not key.alias or keys.lookup(key.file, key.alias)
        assert set(key.needs) <= known, key.name


def test_all_is_known_for_sure() -> None:
    """The source of every release was read."""
    assert [key.name for key in ALL if not key.sure] == []


def test_the_notation_is_strict() -> None:
    assert next(noted("TLSType+24.05 A-23.02")).since == (24, 5)
    for wrong in ("A+24", "A=,", "+23.02", "A-23.02+22.05"):
        with pytest.raises(ValueError, match=wrong[:1].replace("+", "[+]")):
            list(noted(wrong))
    with pytest.raises(ValueError, match="Nothing"):
        table("slurm.conf", {Form.TEXT: "One"}, always={Apply.RESTART_ALL: "Nothing"})


# --- the reference's table (1.5, 1.7), with what real daemons answered otherwise -------------------------------------

OK, DEP, ERR, IGN, FATAL = None, Effect.DEPRECATED, Effect.ERROR, Effect.IGNORED, Effect.FATAL
_CGROUP = {
    "ConstrainCores": [OK] * 8, "ConstrainRAMSpace": [OK] * 8, "ConstrainSwapSpace": [OK] * 8,
    "ConstrainDevices": [OK] * 8,
    **{key: [OK, DEP] + [FATAL] * 6 for key in ("ConstrainKmemSpace", "AllowedKmemSpace", "MaxKmemPercent",
                                                "MinKmemSpace")},
    "CgroupAutomount": [OK, OK] + [ERR] * 6,
    "TaskAffinity": [FATAL] * 8,
    "AllowedDevicesFile": [IGN] * 8,                     # read and used for nothing; a warning from 23.02
    "CgroupReleaseAgentDir": [FATAL] * 8,                # known to the parser until 25.05, and fatal even so
    "EnableControllers": [FATAL] + [OK] * 7,
    "SignalChildrenProcesses": [FATAL] * 2 + [OK] * 6,
    "SystemdTimeout": [FATAL] * 3 + [OK] * 5,
    "EnableExtraControllers": [FATAL] * 5 + [OK] * 3,
    "CgroupSlice": [FATAL] * 6 + [OK] * 2,
    "CgroupJobIdPaths": [FATAL] * 7 + [OK],
    "RootOwnedCgroups": [FATAL, OK] + [FATAL] * 6,       # 23.02 only
}


@looped("key", _CGROUP)
def test_cgroup_conf(key: str) -> None:
    assert [effect("cgroup.conf", key, v) for v in VERSIONS] == _CGROUP[key]


_SLURM = [
    # file, key, value, from which version on it is what; before the first it is fine
    ("slurm.conf", "SlurmctldPlugstack", "", {"23.02": FATAL}),
    ("slurm.conf", "SelectType", "select/cons_res", {"23.11": FATAL}),
    ("slurm.conf", "SelectType", "select/cons_tres", {}),
    ("slurm.conf", "TopologyPlugin", "topology/none", {"23.11": DEP}),
    ("slurm.conf", "TopologyPlugin", "topology/default", {"22.05": FATAL, "23.11": OK, "25.05": DEP}),
    ("slurm.conf", "TopologyPlugin", "topology/flat", {"22.05": FATAL, "25.05": OK}),
    ("slurm.conf", "TopologyPlugin", "topology/block", {"22.05": FATAL, "23.11": OK}),
    ("slurm.conf", "TopologyPlugin", "topology/3d_torus", {"25.05": FATAL}),
    ("slurm.conf", "TopologyPlugin", "topology/torus3d", {"22.05": FATAL, "26.05": OK}),
    ("slurm.conf", "CoreSpecPlugin", "", {"24.05": ERR}),
    ("slurm.conf", "PowerPlugin", "", {"24.05": ERR}),
    ("slurm.conf", "PowerParameters", "", {"24.05": ERR}),
    ("slurm.conf", "HashPlugin", "", {"22.05": FATAL, "24.05": OK}),
    ("slurm.conf", "TLSType", "", {"22.05": FATAL, "24.05": OK}),
    ("slurm.conf", "ProctrackType", "proctrack/cray_aries", {"24.05": FATAL}),
    ("slurm.conf", "AccountingStorageUser", "", {"25.11": ERR}),
    ("slurm.conf", "AccountingStorageLoc", "", {"22.05": FATAL}),       # 22.05.8 and 24.11.5 say so themselves
    ("slurm.conf", "JobContainerType", "", {"25.11": DEP}),
    ("slurm.conf", "NamespaceType", "", {"22.05": FATAL, "25.11": OK}),
    ("slurm.conf", "FastSchedule", "", {"22.05": ERR}),                 # 1; other values are fatal, on 22.05 too
    ("slurm.conf", "TaskPluginParam", "Sched", {"22.05": FATAL}),       # on 22.05 too
    ("slurm.conf", "HealthCheckNodeState", "ALLOC", {}), ("slurm.conf", "HealthCheckNodeState", "ANY", {}),
    ("slurm.conf", "HealthCheckNodeState", "NONDRAINED_IDLE", {"22.05": ERR, "23.02": OK}),
    ("slurm.conf", "HealthCheckNodeState", "START_ONLY", {"22.05": ERR, "25.11": OK}),
    ("slurm.conf", "HealthCheckNodeState", "REBOOT_ONLY", {"22.05": ERR, "26.05": OK}),
    ("slurm.conf", "HealthCheckTimeout", "", {"22.05": FATAL, "26.05": OK}),
    ("slurm.conf", "PreemptParameters", "", {"22.05": FATAL, "23.02": OK}),
    ("slurm.conf", "GetEnvTimeout", "", {"25.05": ERR}),
    ("slurm.conf", "ExtSensorsType", "", {"23.11": ERR}),
    ("slurm.conf", "SchedulerAuth", "", {"22.05": ERR, "24.05": FATAL}),
    ("slurm.conf", "LaunchType", "", {"23.02": IGN}),
    ("slurm.conf", "CacheGroups", "", {"22.05": FATAL}),
    ("slurm.conf", "SelectTypeParameters", "CR_ALLOCATE_FULL_SOCKET", {"23.02": FATAL}),
    ("slurm.conf", "PrologFlags", "RunInJob", {"22.05": FATAL, "24.05": OK}),
    ("slurm.conf", "SlurmctldParameters", "cloud_reg_addrs", {"23.11": ERR}),
    ("slurm.conf", "SlurmctldParameters", "enable_stepmgr", {"22.05": IGN, "24.05": OK}),
    ("NodeName", "RestrictedCoresPerGPU", "", {"22.05": FATAL, "24.05": OK}),
    ("NodeName", "Topology", "", {"22.05": FATAL, "25.05": OK}),
    ("NodeName", "GresConf", "", {"22.05": FATAL, "25.11": OK}),
    ("NodeName", "Parameters", "", {"22.05": FATAL, "25.11": OK}),
    ("NodeName", "SuspendTime", "", {"22.05": FATAL, "26.05": OK}),
    ("PartitionName", "SuspendTime", "", {}),
    ("PartitionName", "Exclusive", "", {"22.05": FATAL, "26.05": OK}),
    ("PartitionName", "ExclusiveUser", "", {"26.05": DEP}),
    ("BlockName", "BlockName", "", {"22.05": FATAL, "23.11": OK}),
    ("topology.conf", "BlockSizes", "", {"22.05": FATAL, "24.05": OK}),
    ("topology.conf", "BlockLevels", "", {"22.05": FATAL, "23.11": OK, "24.05": FATAL}),
    ("gres.conf", "AutoDetect", "oneapi", {}),                          # 22.05 has the word, and the plug-in
    ("gres.conf", "AutoDetect", "nrt", {"22.05": ERR, "23.11": OK}),
    ("gres.conf", "AutoDetect", "nvidia", {"22.05": ERR, "24.11": OK}),
    ("gres.conf", "AutoDetect", "full", {"22.05": ERR, "26.05": OK}),
    ("gres.conf", "Flags", "explicit", {"22.05": IGN, "23.02": OK}),    # not a word is said of a flag
    ("gres.conf", "Flags", "env_uuid", {"22.05": IGN, "26.05": OK}),
    ("cgroup.conf", "CgroupPlugin", "disabled", {"22.05": FATAL, "24.05": OK}),
    ("cgroup.conf", "CgroupPlugin", "cgroup/v1", {"25.05": DEP}),
]


@looped(("file", "key", "value", "story"), _SLURM, ids=lambda x: x if isinstance(x, str) else "")
def test_slurm_conf(file: str, key: str, value: str, story: dict[str, Effect | None]) -> None:
    expected = None
    for text, version in SHORT.items():
        expected = story.get(text, expected)
        assert effect(file, key, version, value) is expected, text


def test_node_line_keys() -> None:
    always = ("Boards BcastAddr CoreSpecCount CoresPerSocket CpuBind CPUs Procs CpuSpecList Features Feature Gres "
              "MemSpecLimit NodeAddr NodeHostname Port RealMemory Reason Sockets SocketsPerBoard State ThreadsPerCore "
              "TmpDisk TRESWeights Weight")
    assert all(effect("NodeName", key, v) is None for key in always.split() for v in VERSIONS)
    procs = keys.lookup("NodeName", "procs")
    assert procs is not None and procs.alias == "CPUs"


def test_gres_conf_keys() -> None:
    always = "AutoDetect Count CPUs Cores File Files Flags Link Links MultipleFiles Name NodeName Type"
    for key in always.split():
        assert all(effect("gres.conf", key, v) is None for v in VERSIONS)
    (rule, _, what), = keys.effects("gres.conf", "Affinity", "0-3", OLDEST)
    assert (what, rule.unknown) == (FATAL, True)


# --- functions -------------------------------------------------------------------------------------------------------


def test_capitals_do_not_matter() -> None:
    found = keys.lookup("slurm.conf", "sElEcTtYpE")
    assert found is not None and found.name == "SelectType"
    assert effect("slurm.conf", "SELECTTYPE", NEWEST, "SELECT/CONS_RES") is FATAL


@pytest.mark.parametrize(("file", "wrong", "right"), [
    ("slurm.conf", "SlurmctldPrt", "SlurmctldPort"), ("slurm.conf", "selecttypeparameter", "SelectTypeParameters"),
    ("NodeName", "RealMemmory", "RealMemory"), ("cgroup.conf", "ConstrainCore", "ConstrainCores"),
    ("gres.conf", "Core", "Cores"), ("PartitionName", "MaxNode", "MaxNodes"), ("topology.yaml", "node", "nodes"),
    ("slurm.conf", "Zebra", ""), ("slurm.conf", "", ""), ("slurm.conf", "x" * 10_000, ""), ("nothing", "Nodes", ""),
])
def test_the_nearest_key(file: str, wrong: str, right: str) -> None:
    assert keys.nearest(file, wrong) == right


def test_a_key_that_no_version_has() -> None:
    (rule, where, what), = keys.effects("slurm.conf", "SlurmctldPrt", "6817", None)
    assert (rule.unknown, rule.instead, where, what) == (True, "SlurmctldPort", OLDEST, FATAL)
    assert keys.effects("slurm.conf", "Include", "more.conf", None) == []


def test_each_word_of_a_list_is_looked_at() -> None:
    found = keys.effects("slurm.conf", "TaskPluginParam", "cores, OOMKillStep,autobind=threads,Corse", (24, 5))
    assert [(rule.value, rule.instead, rule.unknown) for rule, _, _ in found] == \
        [("OOMKillStep", "", False), ("Corse", "cores", True)]
    assert keys.effects("slurm.conf", "TaskPlugin", "affinity,task/cgroup", None) == []
    assert keys.effects("slurm.conf", "JobSubmitPlugins", "our_own", None) == []
    assert keys.effects("slurm.conf", "SlurmdParameters", "something_new", None) == []
    (rule, _, what), = keys.effects("slurm.conf", "SlurmdParameters", "numa_node_as_scoket", (24, 5))
    assert (rule.instead, what) == ("numa_node_as_socket", IGN)


def test_what_replaces_a_word_is_of_that_version() -> None:
    def instead(value: str, version: Version) -> str:
        return next(rule.instead for rule, _, _ in keys.effects("slurm.conf", "TopologyPlugin", value, version))
    assert instead("topology/flat", (22, 5)) == "topology/none"
    assert instead("topology/flat", (24, 11)) == "topology/default"
    assert instead("topology/none", (26, 5)) == "topology/flat"
    assert instead("topology/3d_torus", (25, 5)) == ""
    assert instead("topology/3d_torus", (26, 5)) == "topology/torus3d"


def test_versions_are_asked_from_the_oldest() -> None:
    (_, where, what), = keys.effects("slurm.conf", "SelectType", "select/cons_res", None)
    assert (where, what) == ((23, 11), FATAL)


@looped(("key", "value", "right"), [
    ("RealMemory", "1000M", False), ("RealMemory", "1000", True), ("RealMemory", "10k", True),
    ("Sockets", "2k", False), ("Sockets", "65536", False), ("Sockets", "0x10", True), ("Sockets", "08", False),
    ("Sockets", "-1", False), ("Sockets", "1.5", False), ("Weight", "INFINITE", True), ("Weight", "4294967296", False),
    ("Weight", "9" * 100_000, False),
])
def test_numbers(key: str, value: str, *, right: bool) -> None:
    assert (effect("NodeName", key, NEWEST, value) is None) is right


def test_statements() -> None:
    assert keys.statement("slurm.conf", "nodename") == "NodeName"
    assert keys.statement("slurm.conf", "ClusterName") == "slurm.conf"
    assert keys.statement("gres.conf", "NodeName") == "gres.conf"
    assert keys.statement("topology.conf", "BLOCKNAME") == "BlockName"
    assert keys.statement("topology.conf", "BlockSizes") == "topology.conf"


def test_names_of_a_version() -> None:
    assert "GresConf" not in keys.names("NodeName", (25, 5))
    assert "GresConf" in keys.names("NodeName", (25, 11))
    assert "ControlMachine" in keys.names("slurm.conf", NEWEST)
    assert "CoreSpecPlugin" not in keys.names("slurm.conf", NEWEST)


def test_plugins() -> None:
    assert keys.plugins("SelectType", NEWEST) == ("select/cons_tres", "select/linear")
    assert "select/cons_res" in keys.plugins("selecttype", OLDEST)
    assert "nvidia" not in keys.plugins("AutoDetect", (24, 5))
    assert keys.plugins("StateSaveLocation", NEWEST) == ()


@looped(("file", "key", "old", "new"), [
    ("slurm.conf", "SlurmctldDebug", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("slurm.conf", "GresTypes", Apply.RESTART_ALL, Apply.RECONFIGURE),
    ("slurm.conf", "MaxJobCount", Apply.RESTART_SLURMCTLD, Apply.RECONFIGURE),
    ("slurm.conf", "SlurmdParameters", Apply.RESTART_SLURMD, Apply.RECONFIGURE),
    ("slurm.conf", "SelectType", Apply.JOBS_LOST, Apply.JOBS_LOST),
    ("slurm.conf", "SwitchType", Apply.JOBS_LOST, Apply.JOBS_LOST),
    ("slurm.conf", "SlurmctldPort", Apply.RESTART_ALL, Apply.RESTART_ALL),
    ("slurm.conf", "AuthType", Apply.RESTART_ALL, Apply.RESTART_ALL),
    ("slurm.conf", "StateSaveLocation", Apply.RESTART_SLURMCTLD, Apply.RESTART_SLURMCTLD),
    ("slurm.conf", "TopologyPlugin", Apply.RESTART_ALL, Apply.RECONFIGURE),
    ("slurm.conf", "NodeName", Apply.RESTART_ALL, Apply.RECONFIGURE),
    ("NodeName", "RealMemory", Apply.RESTART_ALL, Apply.RECONFIGURE),
    ("NodeName", "Weight", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("NodeName", "Port", Apply.RESTART_ALL, Apply.RESTART_ALL),
    ("PartitionName", "MaxTime", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("gres.conf", "Type", Apply.RESTART_ALL, Apply.RECONFIGURE),
    ("gres.conf", "File", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("cgroup.conf", "ConstrainDevices", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("cgroup.conf", "CgroupPlugin", Apply.RESTART_SLURMD, Apply.RESTART_SLURMD),
    ("slurmdbd.conf", "StorageHost", Apply.RESTART_SLURMDBD, Apply.RESTART_SLURMDBD),
    ("job_container.conf", "BasePath", Apply.RESTART_SLURMD, Apply.RESTART_SLURMD),
    ("topology.conf", "SwitchName", Apply.RECONFIGURE, Apply.RECONFIGURE),
    ("slurm.conf", "Nonsense", Apply.RESTART_ALL, Apply.RESTART_ALL),
])
def test_what_a_change_takes(file: str, key: str, old: Apply, new: Apply) -> None:
    assert (keys.applies(file, key, (23, 2)), keys.applies(file, key, (23, 11))) == (old, new)
    assert keys.applies(file, key, None) is max(old, new, key=list(Apply).index)


def test_ten_thousand_unknown_keys_take_no_time() -> None:
    start = time.process_time()
    for number in range(3_000):
        keys.effects("slurm.conf", f"SlurmctldPrt{number}", "1", NEWEST)
        keys.effects("NodeName", "RealMemory", "1000", NEWEST)
    assert time.process_time() - start < 3.0


@pytest.mark.parametrize(("form", "right", "wrong"), [
    (Form.TIME, "0 90 90:30 1:30:00 1- 1-0 1-12:30 1-0:0:0 UNLIMITED infinite -1",
     "1day 1d 30m : 1: 1-:5 -5 1-2-3 1:2:3:4 1.5"),
    (Form.PORTS, "6817 1 6817-6820 +6817", "auto 0 6817- 6820-6817 6817-6817 6817,6818 -5 6817x"),
])
def test_times_and_ports(form: Form, right: str, wrong: str) -> None:
    assert [text for text in right.split() if not form.takes(text)] == []
    assert [text for text in wrong.split() if form.takes(text)] == []


def test_times_of_partitions_and_priorities() -> None:
    assert effect("PartitionName", "DefaultTime", NEWEST, "1day") is FATAL
    assert effect("PartitionName", "MaxTime", OLDEST, "7-00:00:00") is None
    assert effect("slurm.conf", "PriorityMaxAge", NEWEST, "14d") is FATAL
    assert effect("slurm.conf", "PriorityType", NEWEST, "priority/multi") is FATAL
    assert effect("slurm.conf", "PrivateData", OLDEST, "jobs,user") is None
    assert effect("slurm.conf", "PrivateData", OLDEST, "job,uasge") is IGN


@pytest.mark.parametrize(("key", "value", "right", "story"), [
    ("SelectType", "select/Cons_tres", "select/cons_tres", {"22.05": FATAL}),
    ("TaskPlugin", "task/cgroup,Task/Affinity", "task/affinity", {"22.05": FATAL}),
    ("TaskPlugin", "Affinity", "task/affinity", {"22.05": FATAL}),
    ("JobSubmitPlugins", "Lua", "job_submit/lua", {"22.05": FATAL}),
    ("JobSubmitPlugins", "lua", "", {}),
    ("AccountingStorageType", "accounting_storage/None", "accounting_storage/none", {"22.05": FATAL, "23.11": OK}),
    ("PreemptType", "preempt/None", "preempt/none", {"22.05": FATAL}),
    ("JobCompType", "jobcomp/Script", "jobcomp/script", {"22.05": ERR, "23.02": FATAL}),
    ("PrologFlags", "contain", "", {}),
    ("GresTypes", "gpu", "", {}),
])
def test_names_of_plugins_are_files(key: str, value: str, right: str, story: dict[str, Effect | None]) -> None:
    """As slurmctld and slurmd 22.05, 24.11 and 26.05 answered."""
    expected = None
    for text, version in SHORT.items():
        expected = story.get(text, expected)
        assert effect("slurm.conf", key, version, value) is expected, text
        found = keys.effects("slurm.conf", key, value, version)
        assert [rule.instead for rule, _, _ in found] == ([right] if expected else [])
