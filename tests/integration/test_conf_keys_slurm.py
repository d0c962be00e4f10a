"""The key table before Slurm's own parsers: the version's keys and words are read, what it lacks is refused as told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_parser import BASE, HOST, RUNNING, SLURMCTLD, Answer, conf, read, without
from slurm_roots import NAMES, slurm

from hpcadmin.conf import keys
from hpcadmin.conf.keys import Effect, Form, Key, Version
from hpcadmin.proof.parts import Slurm

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.parametrize("suite", list(NAMES)),
]

PLAIN = {Form.TEXT: "1", Form.BOOLEAN: "no", Form.FLOAT: "1"}
# They begin a statement, or stand in every file that is put before a daemon.
FIRST = {"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "PowerAction", "SlurmctldHost",
         "ClusterName"}


def at_hand(suite: str) -> Slurm:
    found = slurm(suite)
    if not isinstance(found, Slurm):
        pytest.skip(f"{NAMES[suite]}: {found.why}")
    return found


def value(key: Key) -> str:
    return PLAIN.get(key.form, "1")


def of(file: str, version: Version, *, fatal: bool) -> list[Key]:
    found = [key for name in keys.names(file) if (key := keys.lookup(file, name)) is not None]
    return [key for key in found if (key.effect_in(version) is Effect.FATAL) is fatal]


def asked(found: Slurm, file: str, lines: list[str]) -> Answer:
    """What slurmd says of the lines: in slurm.conf, unless the file is its own."""
    text = "".join(f"{line}\n" for line in lines)
    if file in ("cgroup.conf", "gres.conf"):
        return read(found, {"slurm.conf": conf(), file: text})
    return read(found, {"slurm.conf": conf(text)})


def lines_of(file: str, wanted: list[Key]) -> list[str]:
    """Each key where the parser looks for it, one a line: a line ends at the first key that is not known."""
    if file in ("slurm.conf", "cgroup.conf"):
        return [f"{key.name}={value(key)}" for key in wanted]
    if file == "gres.conf":
        firsts = {"Name": "Name=thing Count=1", "NodeName": "NodeName=other Name=thing Count=1",
                  "AutoDetect": "AutoDetect=off"}
        return [firsts.get(key.name, f"NodeName=other Name=thing {key.name}={value(key)}") for key in wanted]
    return [f"{file}=x{n} {key.name}={value(key)}" for n, key in enumerate(wanted) if key.name != file]


FILES = ("slurm.conf", "NodeName", "PartitionName", "NodeSet", "DownNodes", "PowerAction", "cgroup.conf", "gres.conf")


@pytest.mark.parametrize("file", FILES)
def test_every_key_of_the_version_is_read(suite: str, file: str) -> None:
    found = at_hand(suite)
    wanted = [key for key in of(file, found.version, fatal=False) if key.name not in FIRST]
    if not wanted:
        pytest.skip(f"{found.text} has no {file}")
    answer = asked(found, file, lines_of(file, wanted))
    assert answer.unrecognised == frozenset(), answer.lines
    assert "is not a valid" not in answer.text


@pytest.mark.parametrize("file", FILES)
def test_every_key_that_it_lacks_is_refused(suite: str, file: str) -> None:
    found = at_hand(suite)
    gone = [key for key in of(file, found.version, fatal=True) if key.name not in FIRST]
    if file != "slurm.conf" and file in FIRST and keys.effects("slurm.conf", file, "", found.version):
        pytest.skip(f"{found.text} has no {file}")
    answer = asked(found, file, lines_of(file, gone)) if gone else None
    by_parser = answer.unrecognised if answer else frozenset()
    for key in gone:
        if key.name.casefold() not in by_parser:         # it is read, and then said to be gone
            alone = asked(found, file, lines_of(file, [key]))
            assert not alone.started and key.name in alone.fatal, (key.name, alone.lines)
    misspelt = asked(found, file, [line.replace("=", "x=") if file in ("slurm.conf", "cgroup.conf") else f"{line} No=1"
                                   for line in lines_of(file, of(file, found.version, fatal=False))[1:3]])
    assert misspelt.unrecognised and not misspelt.started


@pytest.mark.parametrize("file", ["slurm.conf", "cgroup.conf"])
def test_what_it_only_complains_of(suite: str, file: str) -> None:
    """An error line that names the key, and the daemon goes on."""
    found = at_hand(suite)
    for key in of(file, found.version, fatal=False):
        effect = key.effect_in(found.version)
        if effect is Effect.ERROR:
            text = f"{key.name}=1\n"
            files = {"slurm.conf": conf(text if file == "slurm.conf" else "")}
            if file == "cgroup.conf":
                files[file] = f"CgroupPlugin=cgroup/v1\n{text}"
            answer = read(found, files, SLURMCTLD, RUNNING)
            assert answer.started, (key.name, answer.lines)
            assert any("error" in line and key.name in line for line in answer.lines), (key.name, answer.lines)


@pytest.mark.parametrize(("conf_value", "fatal"), [("0", True), ("1", False), ("2", True)])
def test_fast_schedule(suite: str, conf_value: str, *, fatal: bool) -> None:
    answer = read(at_hand(suite), {"slurm.conf": conf(f"FastSchedule={conf_value}\n")}, SLURMCTLD, RUNNING)
    assert answer.started is not fatal
    assert "FastSchedule" in answer.text


def test_old_names_still_do_what_the_new_ones_do(suite: str) -> None:
    found = at_hand(suite)
    host = read(found, {"slurm.conf": conf(f"ControlMachine={HOST}\nControlAddr=192.0.2.1\n",
                                           base=without(BASE, "SlurmctldHost"))}, SLURMCTLD, RUNNING)
    assert host.started, host.lines
    for name in ("KeepAliveTime", "SbcastParameters"):
        answer = read(found, {"slurm.conf": conf(f"{name}=1\n")}, SLURMCTLD, RUNNING)
        assert answer.started and any("error" in line and name in line for line in answer.lines), answer.lines


# --- the smaller files -----------------------------------------------------------------------------------------------

STARTED = "slurmd started on"
NODE_DAEMON = ("slurmd", "-D", "-N", HOST)
DBD = ("AuthType=auth/none\nSlurmUser=root\nDbdHost=keys\nStorageType=accounting_storage/mysql\nPidFile=/mnt/dbd.pid\n"
       "LogFile=/mnt/dbd.log\n")
# Keys that stand in DBD, and those that belong behind another key.
APART = {"slurmdbd.conf": {"AuthType", "SlurmUser", "DbdHost", "StorageType", "PidFile", "LogFile", "PluginDir"},
         "job_container.conf": {"InitScript", "NodeName", "BasePath"}, "helpers.conf": {"Helper", "Flags", "NodeName"}}


def other(found: Slurm, file: str, text: str) -> Answer:
    """What the daemon that reads `file` says of it."""
    if file == "slurmdbd.conf":
        command = ("sh", "-c", "chmod 600 /mnt/slurmdbd.conf; timeout 3 slurmdbd -D")
        return read(found, {"slurm.conf": conf(), file: DBD + text}, command)
    container = "NamespaceType=namespace/tmpfs" if found.version >= (25, 11) else "JobContainerType=job_container/tmpfs"
    more, program, until = {
        "job_container.conf": (f"{container}\nPrologFlags=Contain\nProctrackType=proctrack/pgid\n", NODE_DAEMON,
                               STARTED),
        "acct_gather.conf": ("AcctGatherInterconnectType=acct_gather_interconnect/sysfs\n", NODE_DAEMON, STARTED),
        "helpers.conf": ("NodeFeaturesPlugins=helpers\n", SLURMCTLD, RUNNING),
        "burst_buffer.conf": ("BurstBufferType=burst_buffer/datawarp\n", SLURMCTLD, RUNNING),
        "mpi.conf": ("MpiDefault=pmi2\n", SLURMCTLD, RUNNING),
    }[file]
    return read(found, {"slurm.conf": conf(more, base=without(BASE, "ProctrackType")), file: text}, program, until,
                linger=0.3)


@pytest.mark.parametrize("file", ["job_container.conf", "acct_gather.conf", "helpers.conf", "burst_buffer.conf",
                                  "mpi.conf", "slurmdbd.conf"])
def test_smaller_files(suite: str, file: str) -> None:
    found = at_hand(suite)
    if file == "slurmdbd.conf" and not (Path(found.root or "/") / "usr/sbin/slurmdbd").exists():
        pytest.skip(f"{NAMES[suite]} has no slurmdbd")
    every = [key for name in keys.names(file)
             if (key := keys.lookup(file, name)) and key.name not in APART.get(file, ())]
    if file == "acct_gather.conf":               # of the one plug-in that is in use
        has_it = [key for key in every if "acct_gather_interconnect/sysfs" in key.needs]
    else:
        has_it = [key for key in every if key.effect_in(found.version) in (None, Effect.DEPRECATED)]
    lacks = [key for key in every if key not in has_it]
    answer = other(found, file, "".join(f"{key.name}={value(key)}\n" for key in has_it))
    assert answer.unrecognised == frozenset(), answer.lines
    answer = other(found, file, "".join(f"{key.name}={value(key)}\n" for key in lacks) + "Nonsense=1\n")
    refused = frozenset() if file == "mpi.conf" else {key.name.casefold() for key in lacks} | {"nonsense"}
    assert answer.unrecognised == refused, answer.lines
    assert keys.effects(file, "Nonsense", "", found.version)[0][2] is (Effect.FATAL if refused else Effect.IGNORED)


# --- topology.conf and topology.yaml ---------------------------------------------------------------------------------


def topology(found: Slurm, plugin: str, text: str, name: str = "topology.conf") -> Answer:
    more = f"TopologyPlugin=topology/{plugin}\n" if plugin else ""
    return read(found, {"slurm.conf": conf(more), name: text}, SLURMCTLD, RUNNING)


def test_topology_conf(suite: str) -> None:
    found = at_hand(suite)
    tree = topology(found, "tree", f"SwitchName=s1 Nodes={HOST} LinkSpeed=1\nSwitchName=s2 Switches=s1\n")
    assert tree.started, tree.lines
    other = topology(found, "tree", f"BlockName=b Nodes={HOST}\n")
    assert not other.started and other.unrecognised == {"blockname"}
    block = topology(found, "block", f"BlockName=b Nodes={HOST}\nBlockSizes=1\n")
    levels = topology(found, "block", f"BlockName=b Nodes={HOST}\nBlockLevels=0\n")
    has = found.version >= (24, 5)
    assert block.started is has, block.lines
    assert not levels.started
    assert levels.unrecognised == ({"blocklevels"} if has else frozenset()), levels.lines
    ring = topology(found, "ring", f"RingName=r Nodes={HOST}\n")
    assert ring.started is (found.version >= (26, 5)), ring.lines


def test_topology_yaml(suite: str) -> None:
    """Keys in any capitals; what is misspelt is passed over without a word."""
    found = at_hand(suite)
    if found.version < (25, 5):
        pytest.skip(f"{found.text} has no topology.yaml")
    text = f"- topology: t\n  cluster_default: true\n  tree:\n    switches:\n      - switch: s\n        nodes: {HOST}\n"
    right = topology(found, "", text, "topology.yaml")
    assert right.started and "no switch can reach all nodes" not in right.text
    misspelt = topology(found, "", text.replace("nodes:", "node:"), "topology.yaml")
    assert misspelt.started and "no switch can reach all nodes" in misspelt.text
    assert '"node"' not in misspelt.text and "unknown" not in misspelt.text.casefold()
    (rule, _, effect), = keys.effects("topology.yaml", "node", "", found.version)
    assert (rule.instead, effect) == ("nodes", Effect.IGNORED)


@pytest.mark.parametrize("plugin", ["none", "default", "flat", "tree", "block", "3d_torus", "hypercube", "ring",
                                    "torus3d"])
def test_topology_plugins(suite: str, plugin: str) -> None:
    found = at_hand(suite)
    text = {"tree": f"SwitchName=s1 Nodes={HOST}\n", "hypercube": f"SwitchName=s1 Nodes={HOST}\n",
            "block": f"BlockName=b Nodes={HOST}\nBlockSizes=1\n", "ring": f"RingName=r Nodes={HOST}\n"}.get(plugin, "")
    answer = topology(found, plugin, text)
    wrong = keys.effects("slurm.conf", "TopologyPlugin", f"topology/{plugin}", found.version)
    refused = any(effect is Effect.FATAL for _, _, effect in wrong)
    cannot = "cannot find topology plugin" in answer.text or "plugin" in answer.fatal
    assert cannot is refused, answer.lines
