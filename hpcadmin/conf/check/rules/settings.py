"""Settings of slurm.conf that GPUs, memory, accounting and health checks need, or that undo each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import SHARED
from hpcadmin.conf.check.force import (
    has_gpus,
    linear,
    memory_consumed,
    parameters,
    place,
    proctrack,
    select,
    setting,
    words,
)

# SelectTypeParameters as _parse_select_type_param knows them, in small letters.
_UNITS = ("cr_cpu", "cr_core", "cr_socket")
_PARAMETERS = frozenset({
    "cr_memory", "other_cons_res", "other_cons_tres", "cr_one_task_per_core", "cr_core_default_dist_block", "cr_lln",
    "cr_pack_nodes", "ll_shared_gres", "multiple_sharing_gres_pj", "enforce_binding_gres", "one_task_per_sharing_gres",
    "cr_board", "cr_board_memory", *_UNITS, *(f"{unit}_memory" for unit in _UNITS)})
_PLAIN = frozenset({"cpu", "mem", "node", "energy", "billing", "pages", "vmem"})
_NAMED = frozenset({"fs", "gres", "ic", "license", "bb"})
HOOK_S = 60                 # docs/install-nodes.md
_VIRTUAL = ("numa_node_as_socket", "l3cache_as_socket")


def identity(situation: Situation) -> Iterator[Finding]:
    conf = situation.conf
    if not situation.whole:
        return
    if not conf.setting("clustername"):
        yield Finding(Severity.FATAL, "no ClusterName=", "no daemon starts", ("ClusterName=<name>",), place(situation))
    if not conf.setting("slurmctldhost") and not conf.setting("controlmachine") and "slurmctldhost" not in conf.several:
        yield Finding(Severity.FATAL, "no SlurmctldHost=", "no daemon starts", ("SlurmctldHost=<host>",),
                      place(situation))
    if not conf.nodes and "maxnodecount" not in conf.settings:
        yield Finding(Severity.FATAL, "no NodeName= line", "slurmctld does not start without nodes",
                      ("NodeName=<what slurmd -C prints>",), place(situation))


def select_type(situation: Situation) -> Iterator[Finding]:
    if not situation.whole:
        return
    shared = any(group.wants(name) for group in situation.alike for name in SHARED)
    if not has_gpus(situation) and not shared:
        return
    versions = situation.among(lambda version: select(situation, version) == "linear")
    if versions is None:
        return
    value = setting(situation, "selecttype")
    shown = f"SelectType={value.text}" if value is not None else "no SelectType=, which is select/linear up to 23.02"
    if shared:
        yield Finding(Severity.FATAL, f"{shown}, and nodes have mps or shard", "Use of shared gres requires "
                      "select/cons_tres: no daemon starts", ("SelectType=select/cons_tres",),
                      place(situation, "selecttype"), (), versions)
    else:
        yield Finding(Severity.WRONG, f"{shown}, and nodes have GPUs",
                      "whole nodes are given out; --gpus and its like are refused", ("SelectType=select/cons_tres",),
                      place(situation, "selecttype"), (), versions)


def select_parameters(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "selecttypeparameters")
    if value is None:
        return
    mine = [word.strip().casefold() for word in value.text.split(",") if word.strip()]
    unknown = [word for word in mine if word not in _PARAMETERS]
    units = [word for word in mine if word in _PARAMETERS and word.startswith((*_UNITS, "cr_memory"))
             and "default" not in word]
    right = ("SelectTypeParameters=CR_Core_Memory",)
    if unknown:
        yield Finding(Severity.FATAL, f"SelectTypeParameters={value.text[:100]}: {', '.join(unknown)[:60]} is unknown",
                      "no daemon starts", right, value.place)
    elif len(units) > 1:
        yield Finding(Severity.FATAL, f"SelectTypeParameters={value.text[:100]}: {' and '.join(units)}",
                      "one of CR_* alone: no daemon starts", right, value.place)
    elif situation.whole and situation.among(lambda v: select(situation, v) != "linear") is not None and (
            not any(unit.startswith(_UNITS) for unit in units)):
        yield Finding(Severity.FATAL, f"SelectTypeParameters={value.text[:100]} has no CR_CPU, CR_Core or CR_Socket",
                      "select/cons_tres needs one: slurmctld does not start", right, value.place, (),
                      situation.among(lambda v: select(situation, v) != "linear") or ())
    elif situation.whole and any(unit.startswith(_UNITS) for unit in units):
        versions = situation.among(lambda v: select(situation, v) == "linear")
        if versions is not None:
            yield Finding(Severity.FATAL, f"SelectTypeParameters={value.text[:100]} with select/linear",
                          "it hands out whole nodes, not cores: slurmctld does not start",
                          ("SelectTypeParameters=CR_Memory",), value.place, (), versions)
    if "cr_one_task_per_core" in mine and any(unit.startswith("cr_cpu") for unit in units):
        yield Finding(Severity.FATAL, "CR_ONE_TASK_PER_CORE beside CR_CPU", "no daemon starts",
                      ("SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE",), value.place)


def memory(situation: Situation) -> Iterator[Finding]:
    if not situation.whole or linear(situation):
        return
    each = [value for key in ("defmempercpu", "defmempergpu", "defmempernode")
            for value in [setting(situation, key)] if value is not None and value.text != "0"]
    if not memory_consumed(situation):
        yield Finding(Severity.NOTE, f"SelectTypeParameters={parameters(situation)} does not give out memory",
                      "jobs share all memory of a node, and RealMemory is a check only",
                      ("SelectTypeParameters=CR_Core_Memory",), place(situation, "selecttypeparameters"))
        for value in each[:1]:
            yield Finding(Severity.WRONG, f"{value.key}={value.text} while memory is not given out",
                          "it limits nothing", ("SelectTypeParameters=CR_Core_Memory",), value.place)
    elif not each and not any(key in p.values for p in situation.conf.partitions
                              for key in ("defmempercpu", "defmempernode", "defmempergpu")):
        yield Finding(Severity.NOTE, "no DefMemPerCPU=, DefMemPerNode= or DefMemPerGPU=",
                      "a job that asks for no memory gets all of its node, and no other job runs beside it",
                      (f"DefMemPerCPU={_share(situation)}",), place(situation))


def _share(situation: Situation) -> str:
    shares = [memory // group.shape.cpus for group in situation.alike if group.node is not None and group.shape
              for memory in [group.node.number("realmemory")] if memory]
    return str(min(shares)) if shares else "<MiB>"


def contain(situation: Situation) -> Iterator[Finding]:
    flags = words(situation, "prologflags")
    contained = bool(flags & {"contain", "x11"})
    if not situation.whole:
        return
    if "x11" in flags and proctrack(situation) == "linuxproc":
        yield Finding(Severity.FATAL, "PrologFlags=X11 with ProctrackType=proctrack/linuxproc", "no daemon starts",
                      ("ProctrackType=proctrack/cgroup",), place(situation, "prologflags"))
    elif contained and proctrack(situation) != "cgroup":
        yield Finding(Severity.WRONG, f"PrologFlags={situation.conf.setting('PrologFlags')} with ProctrackType="
                      f"{situation.conf.setting('ProctrackType')}", "proctrack/cgroup is required: shells of "
                      "pam_slurm_adopt are in no job", ("ProctrackType=proctrack/cgroup",),
                      place(situation, "prologflags"))
    for key in ("jobcontainertype", "namespacetype"):
        value = setting(situation, key)
        if value is not None and value.text.casefold() not in ("", "job_container/none", "none") and not contained:
            yield Finding(Severity.FATAL, f"{value.key}={value.text[:40]} without PrologFlags=Contain",
                          "no daemon starts", ("PrologFlags=Contain",), value.place)
    if not contained and has_gpus(situation):
        yield Finding(Severity.NOTE, "no PrologFlags=Contain", "logins by pam_slurm_adopt have no job to go to, and "
                      "prologs run with the first step only", ("PrologFlags=Contain",), place(situation, "prologflags"))


def accounted(situation: Situation) -> Iterator[Finding]:
    """AccountingStorageTRES against the GPUs of the nodes."""
    if not situation.whole or not has_gpus(situation):
        return
    known = words(situation, "accountingstoragetres")
    types = sorted({item.type for group in situation.alike for item in group.wants() if item.type})
    wanted = ",".join(["gres/gpu", *(f"gres/gpu:{kind}" for kind in types)])
    lost = [kind for kind in types if f"gres/gpu:{kind.casefold()}" not in known]
    stored = situation.conf.setting("AccountingStorageType").casefold() == "accounting_storage/slurmdbd"
    if "gres/gpu" not in known:
        yield Finding(Severity.WRONG if stored else Severity.NOTE,
                      f"AccountingStorageTRES={situation.conf.setting('AccountingStorageTRES')} does not name gres/gpu",
                      "CfgTRES and AllocTRES have no GPUs: nothing is accounted or limited, and tools think that all "
                      "are free" + ("" if stored else "; it needs slurmdbd"),
                      (*(() if stored else ("AccountingStorageType=accounting_storage/slurmdbd",)),
                       f"AccountingStorageTRES={wanted}"), place(situation, "accountingstoragetres"))
    elif lost:
        yield Finding(Severity.NOTE, f"AccountingStorageTRES does not name {', '.join(f'gres/gpu:{k}' for k in lost)}",
                      "GPUs are accounted together, not by type", (f"AccountingStorageTRES={wanted}",),
                      place(situation, "accountingstoragetres"))


def stored_tres(situation: Situation) -> Iterator[Finding]:
    """TRES beside Slurm's own are kept by slurmdbd."""
    value = setting(situation, "accountingstoragetres")
    storage = situation.conf.setting("AccountingStorageType")
    if value is None or not situation.whole or storage.casefold() == "accounting_storage/slurmdbd":
        return
    names = [word.strip() for word in value.text.split(",")]
    own = [name for name in names if "/" in name and name.casefold() != "fs/disk"]
    if own:
        yield Finding(Severity.FATAL, f"AccountingStorageTRES names {own[0][:40]}, AccountingStorageType is "
                      f"{storage or 'not set'}", "slurmdbd is required to run with such a TRES: slurmctld does not "
                      "start", ("AccountingStorageType=accounting_storage/slurmdbd",), value.place)


def tres_types(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "accountingstoragetres")
    for word in value.text.split(",") if value is not None else ():
        kind, slash, name = word.strip().casefold().partition("/")
        wrong = kind not in (_NAMED if slash else _PLAIN) or (slash and not name)
        if value is not None and kind and wrong:
            yield Finding(Severity.FATAL, f"AccountingStorageTRES={value.text[:80]}: {word.strip()[:40]} is no TRES",
                          "slurmctld does not start: TRES are cpu, mem, node, energy, billing, pages, vmem, fs/…, "
                          "gres/…, ic/…, license/…, bb/…", (), value.place)


def health(situation: Situation) -> Iterator[Finding]:
    program, interval = setting(situation, "healthcheckprogram"), setting(situation, "healthcheckinterval")
    if not situation.whole:
        return
    off = interval is None or not interval.text.strip("0")
    if program is not None and off:
        yield Finding(Severity.WRONG, f"HealthCheckProgram={program.text[:80]} with HealthCheckInterval=0, the default",
                      "it runs when slurmd starts, never after", ("HealthCheckInterval=300",
                                                                  "HealthCheckNodeState=CYCLE,ANY"), program.place)
    if program is None and interval is not None and not off:
        yield Finding(Severity.WRONG, f"HealthCheckInterval={interval.text} without HealthCheckProgram=",
                      "nothing is run", (), interval.place)
    if program is not None and not off and "cycle" not in words(situation, "healthchecknodestate"):
        yield Finding(Severity.NOTE, "HealthCheckNodeState= without CYCLE", "the program starts on all nodes at the "
                      "same moment, and loads what they share", ("HealthCheckNodeState=CYCLE,ANY",),
                      place(situation, "healthchecknodestate", "healthcheckinterval"))


def hook_time(situation: Situation) -> Iterator[Finding]:
    """hpcadmin-health gives up after 45 s, the file that Prolog= names after 56: before that nothing may end it."""
    for key in ("prolog", "epilog"):
        single = setting(situation, key)
        hooks = situation.conf.several.get(key, ()) or ((single,) if single is not None else ())
        hook = next((hook for hook in hooks if "/hpcadmin-health" in hook.text), None)
        # The time of its own, where there is one (25.05 and later), goes before that of both.
        limit = setting(situation, f"{key}timeout") or setting(situation, "prologepilogtimeout")
        if hook is None or limit is None or not limit.text.isdecimal() or not 0 < int(limit.text[:9]) < HOOK_S:
            continue
        yield Finding(Severity.WRONG, f"{hook.key}={hook.text[:80]} with {limit.key}={limit.text}",
                      f"where a check hangs Slurm ends it after {limit.text} s and drains the node, before "
                      "hpcadmin-health has let it go", (f"{limit.key}={HOOK_S}",), limit.place)


def return_to_service(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "returntoservice")
    if value is None:
        return
    if not re.fullmatch(r"[0-2]", value.text):
        yield Finding(Severity.WRONG, f"ReturnToService={value.text[:20]} is none of 0, 1, 2", "", (
            "ReturnToService=1",), value.place)
    elif value.text == "2":
        yield Finding(Severity.NOTE, "ReturnToService=2", "a node that was set DOWN for whatever reason is back in "
                      "service as soon as it registers; drained nodes stay", ("ReturnToService=1",), value.place)


def overrides(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "slurmdparameters")
    if value is not None and "config_overrides" in words(situation, "slurmdparameters"):
        yield Finding(Severity.WRONG, "SlurmdParameters=config_overrides", "Slurm believes the files and not the "
                      "nodes: lost memory, CPUs and GPUs drain nobody", (_without(value.text, "config_overrides"),),
                      value.place)


def virtual_sockets(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "slurmdparameters")
    if value is not None and set(_VIRTUAL) <= words(situation, "slurmdparameters"):
        yield Finding(Severity.WRONG, f"SlurmdParameters={value.text[:100]}: both kinds of virtual sockets",
                      "mutually exclusive: Slurm ignores numa_node_as_socket", (_without(value.text, _VIRTUAL[1]),),
                      value.place)
    for line in situation.conf.nodes:
        own = line.values.get("parameters")
        if own is not None and set(_VIRTUAL) <= {word.strip().casefold() for word in own.text.split(",")}:
            yield Finding(Severity.WRONG, f"Parameters={own.text[:100]}: both kinds of virtual sockets",
                          "mutually exclusive: Slurm ignores numa_node_as_socket", (), own.place, line.hosts)


def _without(text: str, word: str) -> str:
    rest = [part for part in text.split(",") if part.strip().casefold() != word]
    return f"SlurmdParameters={','.join(rest)}" if rest else "no SlurmdParameters= line"


def mpi(situation: Situation) -> Iterator[Finding]:
    value = setting(situation, "mpidefault")
    if value is None:
        return
    text = value.text.casefold()
    if text == "openmpi":
        yield Finding(Severity.WRONG, "MpiDefault=openmpi", "there is no such plug-in: Open MPI uses pmix",
                      ("MpiDefault=pmix",), value.place)
    elif text == "none" and situation.whole:
        yield Finding(Severity.NOTE, "MpiDefault=none", "srun starts MPI programs as single ranks unless --mpi is "
                      "named", ("MpiDefault=pmix",), value.place)


def ports(situation: Situation) -> Iterator[Finding]:
    """slurmctld and slurmd of one host cannot listen on one port."""
    controller, daemon = setting(situation, "slurmctldport"), setting(situation, "slurmdport")
    first, _, last = (controller.text if controller is not None else "6817").partition("-")
    port = daemon.text if daemon is not None else "6818"
    if not (first.isdigit() and port.isdigit() and (last or first).isdigit()):
        return
    if int(first) <= int(port) <= int(last or first):
        at = daemon or controller
        yield Finding(Severity.NOTE, f"SlurmdPort={port} is one of SlurmctldPort={first}{'-' if last else ''}{last}",
                      "on a host that runs both, the second one does not start: the port is in use",
                      ("SlurmctldPort=6817", "SlurmdPort=6818"), at.place if at is not None else None)


RULES: tuple[Rule, ...] = (identity, select_type, select_parameters, memory, contain, accounted, stored_tres,
                           tres_types, health, hook_time, return_to_service, overrides, virtual_sockets, mpi, ports)
