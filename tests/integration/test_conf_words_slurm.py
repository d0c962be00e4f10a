"""Words, plug-ins and forms of values before Slurm's own daemons, and what a change of a key takes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from slurm_parser import BASE, HOST, PARTITION, RUNNING, SLURMCTLD, Answer, conf, read, without
from slurm_roots import NAMES, slurm

from hpcadmin.conf import keys
from hpcadmin.conf.combinations import clashes
from hpcadmin.conf.keys import Effect, Form
from hpcadmin.conf.keytable.kinds import Life, Words
from hpcadmin.conf.keytable.values import VALUES
from hpcadmin.proof.parts import Slurm

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.parametrize("suite", list(NAMES)),
]


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


# --- words of values -------------------------------------------------------------------------------------------------

# Words that need another setting, and what a word of a kind is completed with.
WITH = {"OOMKillStep": "TaskPlugin=task/cgroup\n", "SlurmdSpecOverride": "TaskPlugin=task/cgroup\n",
        "X11": "ProctrackType=proctrack/pgid\n"}
COMPLETE = {"autobind=": "autobind=cores"}
PARSED = ("PrologFlags", "ReconfigFlags", "HealthCheckNodeState", "AccountingStorageEnforce", "SelectTypeParameters",
          "EnforcePartLimits", "DebugFlags", "TaskPluginParam", "PriorityUsageResetPeriod", "SlurmctldDebug",
          "SlurmdSyslogDebug")
PART_PARSED = ("State", "Exclusive", "PreemptMode")


def words(file: str, key: str) -> Words:
    return next(one for one in VALUES if (one.file, one.key) == (file, key))


def has(found: Slurm, of_key: Words, word: Life) -> Effect | None:
    text = COMPLETE.get(word.name, word.name)
    wrong = keys.effects(of_key.file, of_key.key, text, found.version)
    return next((effect for rule, _, effect in wrong if rule.value), None)


def said_of(found: Slurm, of_key: Words, text: str, more: str = "") -> Answer:
    if of_key.file == "PartitionName":
        return read(found, {"slurm.conf": conf(more, partition=f"{PARTITION.strip()} {of_key.key}={text}\n")})
    return read(found, {"slurm.conf": conf(f"SelectType=select/cons_tres\n{more}{of_key.key}={text}\n")})


@pytest.mark.parametrize("key", PARSED)
def test_words_of_settings(suite: str, key: str) -> None:
    found = at_hand(suite)
    of_key = words("slurm.conf", key)
    one_by_one = [*of_key.words, Life("nonsense")]
    if key == "DebugFlags":                      # many, and any of them go together
        fine = [word for word in of_key.words if has(found, of_key, word) is None]
        together = said_of(found, of_key, ",".join(word.name for word in fine))
        assert together.started and "Invalid DebugFlag" not in together.text, together.lines
        one_by_one = [word for word in one_by_one if word not in fine]
    for word in one_by_one:
        answer = said_of(found, of_key, COMPLETE.get(word.name, word.name), WITH.get(word.name, ""))
        effect = has(found, of_key, word)
        assert answer.started is (effect is not Effect.FATAL), (word.name, effect, answer.lines)
        told = any("error" in line and word.name.casefold() in line.casefold() for line in answer.lines)
        if effect is Effect.ERROR:
            assert told, (word.name, answer.lines)
        elif effect is None:
            assert not told, (word.name, answer.lines)


@pytest.mark.parametrize("key", PART_PARSED)
def test_words_of_partitions(suite: str, key: str) -> None:
    found = at_hand(suite)
    if keys.effects("PartitionName", key, "", found.version):
        pytest.skip(f"{found.text} has no {key}")
    of_key = words("PartitionName", key)
    for word in (*of_key.words, Life("nonsense")):
        answer = said_of(found, of_key, word.name)
        assert answer.started is (has(found, of_key, word) is not Effect.FATAL), (word.name, answer.lines)


def test_autodetect(suite: str) -> None:
    found = at_hand(suite)
    of_key = words("gres.conf", "AutoDetect")
    for word in (*of_key.words, Life("nonsense")):
        answer = read(found, {"slurm.conf": conf(), "gres.conf": f"AutoDetect={word.name}\nName=thing Count=1\n"})
        told = f"unknown autodetect flag '{word.name}'" in answer.text
        assert told is (has(found, of_key, word) is Effect.ERROR), (word.name, answer.lines)


# --- plug-ins --------------------------------------------------------------------------------------------------------


def test_plugins_that_are_installed_are_in_the_table(suite: str) -> None:
    """Debian leaves some out, so the other way round says nothing."""
    found = at_hand(suite)
    folder = next(Path(found.root or "/").glob("usr/lib/*/slurm-wlm"))
    present = {path.stem for path in folder.glob("*.so")}
    checked = 0
    for of_key in VALUES:
        names = [word.name for word in of_key.words if "/" in word.name]
        if of_key.file != "slurm.conf" or not names or of_key.key in ("AuthAltTypes", "CredType",
                                                                                "AccountingStorageType"):
            continue
        family = names[0].partition("/")[0]
        known = keys.plugins(of_key.key, found.version)
        for stem in present:
            if stem.startswith(f"{family}_") and not stem.startswith(f"{family}_common"):
                name = f"{family}/{stem[len(family) + 1:]}"
                assert name in known, (of_key.key, stem)
                checked += 1
    assert checked > 30


@pytest.mark.parametrize(("key", "plugin"), [
    ("SelectType", "select/cons_res"), ("SelectType", "select/cons_tres"),
    ("SelectType", "select/linear"), ("ProctrackType", "proctrack/pgid"),
    ("SwitchType", "switch/none"), ("SwitchType", "switch/generic"), ("TaskPlugin", "task/none"),
    ("TaskPlugin", "affinity"), ("TaskPlugin", "task/nonsense"), ("PreemptType", "preempt/none"),
    ("PreemptType", "preempt/nonsense"), ("SchedulerType", "sched/builtin"), ("PriorityType", "priority/multifactor"),
    ("JobCompType", "jobcomp/none"), ("MCSPlugin", "mcs/label"), ("AcctGatherEnergyType", "acct_gather_energy/none"),
    ("JobAcctGatherType", "jobacct_gather/none"), ("AccountingStorageType", "accounting_storage/none"),
    ("AccountingStorageType", "accounting_storage/mysql"), ("JobContainerType", "job_container/none"),
])
def test_plugins_are_loaded_or_refused(suite: str, key: str, plugin: str) -> None:
    """By slurmctld or by slurmd, whichever loads that family."""
    found = at_hand(suite)
    text = conf(f"{key}={plugin}\n", base=without(BASE, key))
    controller = read(found, {"slurm.conf": text}, SLURMCTLD, RUNNING, linger=0.3)
    node = read(found, {"slurm.conf": text}, ("slurmd", "-D", "-N", HOST), "slurmd started on")
    wrong = keys.effects("slurm.conf", key, plugin, found.version)
    refused = any(effect is Effect.FATAL for _, _, effect in wrong)
    both = "\n".join((*controller.lines, *node.lines))
    assert (not (controller.started and node.started)) is refused, both


# --- forms of values -------------------------------------------------------------------------------------------------

NUMBERS = ("0", "1", "010", "08", "0x10", "0x", "10k", "10K", "1000M", "-1", "+5", "1.5", "65535", "65536",
           "4294967295", "4294967296", "18446744073709551615", "18446744073709551616", "UNLIMITED", "infinite", "yes",
           "1e3", "one")
BOOLEANS = ("yes", "YES", "no", "up", "down", "true", "false", "1", "0", "on", "off", "2", "y")


@pytest.mark.parametrize(("key", "values"), [
    ("HealthCheckInterval", NUMBERS), ("MinJobAge", NUMBERS), ("MaxMemPerCPU", NUMBERS), ("TrackWCKey", BOOLEANS)])
def test_forms_of_values(suite: str, key: str, values: tuple[str, ...]) -> None:
    found = at_hand(suite)
    known = keys.lookup("slurm.conf", key)
    assert known is not None
    answer = read(found, {"slurm.conf": conf("".join(f"{key}={text}\n" for text in values))})
    for text in values:
        refused = any(f'{key} value ({text}) ' in line or f'{key} value "{text}" ' in line
                      or f'"{text}" is not a valid option for "{key}"' in line for line in answer.lines)
        assert known.form.takes(text) is not refused, (text, answer.lines)


def test_percentages(suite: str) -> None:
    found = at_hand(suite)
    for text in ("100", "12.5", ".5", "1e2", "UNLIMITED", "12.5%", "half"):
        cgroup = f"CgroupPlugin=cgroup/v1\nMaxRAMPercent={text}\n"
        answer = read(found, {"slurm.conf": conf(), "cgroup.conf": cgroup})
        assert answer.started is Form.FLOAT.takes(text), (text, answer.lines)


# --- what a change takes ---------------------------------------------------------------------------------------------

# Starts slurmctld, puts the new file in place, reconfigures, and tells what is in force.
CHANGE = """
slurmctld -D -c > /mnt/log 2>&1 &
tries=0
until grep -q "Running as primary" /mnt/log 2>/dev/null || [ $tries -gt 600 ]; do tries=$((tries + 1)); sleep 0.05; done
sleep 0.3
cp /mnt/new.conf /mnt/slurm.conf
timeout 10 scontrol reconfigure
sleep 0.7
timeout 5 scontrol show config
"""


@pytest.mark.parametrize(("key", "old", "new"), [
    ("TopologyPlugin", "topology/none", "topology/tree"), ("SelectType", "select/linear", "select/cons_tres"),
    ("SchedulerType", "sched/builtin", "sched/backfill"), ("CredType", "cred/none", "cred/munge"),
    ("SelectTypeParameters", "CR_Core", "CR_Core_Memory"), ("ClusterName", "keys", "other"),
])
def test_what_a_reconfiguration_changes(suite: str, key: str, old: str, new: str) -> None:
    """Where the table says that a restart is needed, scontrol refuses, or slurmctld ends; TopologyPlugin alone is told
    as in force by 22.05, whose plug-in is still the one that it was started with."""
    found = at_hand(suite)
    select = "SelectType=select/cons_tres\n" if key == "SelectTypeParameters" else ""
    base = without(BASE, key)
    text = conf(f"{select}{key}={new}\n", base=base)
    answer = read(found, {"slurm.conf": conf(f"{select}{key}={old}\n", base=base), "new.conf": text,
                          "topology.conf": f"SwitchName=s Nodes={HOST}\n"}, ("sh", "-c", CHANGE))
    shown = next((line.partition("=")[2].strip() for line in answer.lines if line.split()[:1] == [key]), "")
    changed = shown.casefold() == new.casefold()
    if key in ("ClusterName", "TopologyPlugin") and found.version < (23, 11):
        assert changed
    elif key == "ClusterName":
        assert shown == ""                       # nobody answers any more
    else:
        assert changed is (found.version >= (23, 11)), answer.lines


@pytest.mark.parametrize(("plugin", "handed_out", "starts"), [
    ("cons_tres", "CR_Core_Memory,CR_Pack_Nodes", True), ("cons_tres", "CR_Socket", True),
    ("cons_tres", "CR_Memory", False), ("cons_tres", "CR_LLN", False), ("cons_tres", "CR_Core,CR_Memory", False),
    ("linear", "CR_Memory,CR_LLN", True), ("linear", "CR_Core_Memory", False), ("linear", "CR_CPU", False)])
def test_what_is_handed_out_suits_the_plug_in(suite: str, plugin: str, handed_out: str, starts: bool) -> None:
    """What conf render refuses, and why it writes CR_Memory with select/linear."""
    base = without(BASE, "GresTypes")
    text = conf(f"SelectType=select/{plugin}\nSelectTypeParameters={handed_out}\n", base=base,
                node=f"NodeName={HOST} CPUs=1 RealMemory=100\n")
    answer = read(at_hand(suite), {"slurm.conf": text, "gres.conf": ""}, SLURMCTLD, RUNNING)
    assert answer.started is starts, answer.text
    assert bool(answer.fatal) is not starts


# Of each a "fatal", an "error" line or neither; two settings of one case are on two lines.
TOGETHER = {
    "PreemptType=preempt/partition_prio": "fatal", "PreemptType=preempt/qos PreemptMode=OFF": "fatal",
    "PreemptType=preempt/qos PreemptMode=GANG": "fatal", "PreemptMode=REQUEUE": "fatal", "PreemptMode=GANG": "",
    "PreemptType=preempt/qos PreemptMode=SUSPEND": "fatal", "PreemptType=preempt/qos PreemptMode=SUSPEND,GANG": "",
    "PreemptType=preempt/qos PreemptMode=CANCEL,WITHIN": "", "MaxJobCount=0": "fatal", "SlurmctldPort=0": "fatal",
    "SlurmSchedLogLevel=2": "fatal", "TaskPluginParam=Cores,Threads": "fatal", "TaskPluginParam=Cores": "",
    "PropagateResourceLimits=FOO": "fatal", "PropagateResourceLimitsExcept=FOO": "fatal",
    "PropagateResourceLimits=MEMLOCK,RLIMIT_NPROC": "", "Licenses=a:3,b:x": "fatal", "Licenses=a,b=4,c@s:3": "",
    "MCSParameters=ondemand": "fatal", "MCSPlugin=mcs/user MCSParameters=ondemand": "",
    "FirstJobId=5 MaxJobId=3": "fatal", "MinJobAge=1": "error", "MinJobAge=2": "", "TreeWidth=0": "error",
    "MaxArraySize=4000001": "", "MaxArraySize=4000002": "error", "MessageTimeout=100": "",
    "MessageTimeout=101": "error",
    "MaxMemPerCPU=10 MaxMemPerNode=10": "error", "DefMemPerCPU=10 DefMemPerNode=10": "error",
}
_FIRST_START = re.compile(r"state|latency|Jobs may be lost", re.IGNORECASE)


@pytest.mark.parametrize("case", TOGETHER)
def test_settings_that_do_not_go_together(suite: str, case: str) -> None:
    found = at_hand(suite)
    more = "TaskPlugin=task/affinity\n" + case.replace(" ", "\n") + "\n"
    text = conf(more, base=without(BASE, "GresTypes"), node=f"NodeName={HOST} CPUs=1 RealMemory=100\n",
                partition=f"{PARTITION.rstrip()} Default=YES\n")
    answer = read(found, {"slurm.conf": text, "gres.conf": ""}, SLURMCTLD, RUNNING)
    errors = [line for line in answer.lines if "error:" in line and not _FIRST_START.search(line)]
    assert ("fatal" if not answer.started else "error" if errors else "") == TOGETHER[case], answer.text
    settings = dict(part.split("=", 1) for part in case.split(" "))
    ours = list(clashes({key.casefold(): value for key, value in settings.items()}, found.version))
    assert ("fatal" if any(c.fatal for c in ours) else "error" if ours else "") == TOGETHER[case]
