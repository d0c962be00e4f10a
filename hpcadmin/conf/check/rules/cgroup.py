"""cgroup.conf with what uses it: task/cgroup and proctrack/cgroup (cgroup.conf(5))."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.force import (
    constrains,
    has_gpus,
    memory_consumed,
    place,
    proctrack,
    task_plugins,
    truth,
    words,
)
from hpcadmin.conf.existing.parts import Place

_NEEDED = ("ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=yes")
_BOTH = "TaskPlugin=task/cgroup,task/affinity"


def task_plugin(situation: Situation) -> Iterator[Finding]:
    """Without task/cgroup nothing of cgroup.conf constrains a job."""
    if not situation.whole or "cgroup" in task_plugins(situation):
        return
    said = [value for key, value in situation.conf.cgroup.items()
            if key.startswith("constrain") and truth(value.text)]
    shown = situation.conf.setting("TaskPlugin") or "(none)"
    if said:
        yield Finding(Severity.WRONG, f"TaskPlugin={shown} without task/cgroup, and cgroup.conf has "
                      f"{', '.join(value.key for value in said)}", "nothing constrains the jobs", (_BOTH,),
                      place(situation, "taskplugin"))
    elif has_gpus(situation):
        yield Finding(Severity.WRONG, f"TaskPlugin={shown} without task/cgroup",
                      "every job can open every GPU of its nodes", (_BOTH, _NEEDED[2]), place(situation, "taskplugin"))


def devices(situation: Situation) -> Iterator[Finding]:
    if not situation.whole or not _known(situation) or not has_gpus(situation):
        return
    if "cgroup" in task_plugins(situation) and not constrains(situation, "constraindevices"):
        yield Finding(Severity.WRONG, f"{_shown(situation, 'ConstrainDevices')}, and nodes have GPUs",
                      "a job can open GPUs that it was not given", (_NEEDED[2],), _at(situation, "constraindevices"))


def memory(situation: Situation) -> Iterator[Finding]:
    if not situation.whole or not _known(situation) or "cgroup" not in task_plugins(situation):
        return
    if memory_consumed(situation) and not constrains(situation, "constrainramspace"):
        yield Finding(Severity.WRONG, f"{_shown(situation, 'ConstrainRAMSpace')}, although memory is given out",
                      "a job that uses more memory than it asked for takes it from others", (_NEEDED[1],),
                      _at(situation, "constrainramspace"))
    killers = words(situation, "jobacctgatherparams")
    if "overmemorykill" in killers and constrains(situation, "constrainramspace"):
        yield Finding(Severity.FATAL, "JobAcctGatherParams=OverMemoryKill beside ConstrainRAMSpace=yes",
                      "two ways to limit memory: slurmctld does not start", (), place(situation, "jobacctgatherparams"))


def cores(situation: Situation) -> Iterator[Finding]:
    if not situation.whole or not _known(situation) or "cgroup" not in task_plugins(situation):
        return
    if not constrains(situation, "constraincores"):
        bound = "affinity" in task_plugins(situation)
        yield Finding(Severity.NOTE if bound else Severity.WRONG, f"{_shown(situation, 'ConstrainCores')}",
                      "a task can change its binding to cores of other jobs" if bound else
                      "jobs run on every core of the node", (_NEEDED[0],), _at(situation, "constraincores"))


def reserved(situation: Situation) -> Iterator[Finding]:
    """CoreSpecCount, CpuSpecList and MemSpecLimit of nodes need cgroups that keep jobs off."""
    if not situation.whole or not _known(situation):
        return
    for key, needs, plugin in (("corespeccount", "constraincores", "ConstrainCores"),
                               ("cpuspeclist", "constraincores", "ConstrainCores"),
                               ("memspeclimit", "constrainramspace", "ConstrainRAMSpace")):
        if constrains(situation, needs):
            continue
        for line in situation.conf.nodes:
            value = line.values.get(key)
            if value is not None and value.text.strip("0"):
                yield Finding(Severity.WRONG, f"{value.key}= without task/cgroup and {plugin}=yes",
                              "jobs use what is kept for the system", (_BOTH, f"{plugin}=yes"), value.place, line.hosts)
    if memory_consumed(situation):
        return
    for line in situation.conf.nodes:
        value = line.values.get("memspeclimit")
        if value is not None and value.text.strip("0"):
            yield Finding(Severity.WRONG, f"{value.key}= while SelectTypeParameters gives out no memory",
                          "memory is not kept for the system: jobs are not limited by it",
                          ("SelectTypeParameters=CR_Core_Memory",), value.place, line.hosts)


def tracking(situation: Situation) -> Iterator[Finding]:
    if not situation.whole or proctrack(situation) == "cgroup":
        return
    gpus = has_gpus(situation)
    yield Finding(Severity.WRONG if gpus else Severity.NOTE, f"ProctrackType={situation.conf.setting('ProctrackType')}",
                  "processes that leave their job's process group outlive it"
                  + (", and keep its GPUs" if gpus else ""), ("ProctrackType=proctrack/cgroup",),
                  place(situation, "proctracktype"))


def off(situation: Situation) -> Iterator[Finding]:
    """CgroupPlugin=disabled beside what needs cgroups."""
    value = situation.conf.cgroup.get("cgroupplugin")
    if value is None or value.text.casefold() != "disabled" or not situation.whole:
        return
    users = [name for name, used in (("TaskPlugin=task/cgroup", "cgroup" in task_plugins(situation)),
                                     ("ProctrackType=proctrack/cgroup", proctrack(situation) == "cgroup")) if used]
    if users:
        yield Finding(Severity.FATAL, f"CgroupPlugin=disabled, and {', '.join(users)}",
                      "slurmd cannot load what needs cgroups", ("CgroupPlugin=autodetect",), value.place)


def percentages(situation: Situation) -> Iterator[Finding]:
    for key, value in situation.conf.cgroup.items():
        if key in ("allowedramspace", "allowedswapspace", "maxrampercent", "maxswappercent"):
            try:
                number = float(value.text)
            except ValueError:
                number = -1.0
            if not 0 <= number <= 1e6:
                yield Finding(Severity.FATAL, f"{value.key}={value.text[:40]} is no percentage",
                              "the file cannot be parsed", (), value.place)
            elif key in ("allowedramspace", "maxrampercent") and number < 1:
                yield Finding(Severity.WRONG, f"{value.key}={value.text} is percent, not a fraction",
                              "jobs get less than a hundredth of their memory", (f"{value.key}=100",), value.place)


def _known(situation: Situation) -> bool:
    return situation.conf.has("cgroup.conf") or situation.lacks("cgroup.conf")


def _shown(situation: Situation, key: str) -> str:
    value = situation.conf.cgroup.get(key.casefold())
    if value is not None:
        return f"{value.key}={value.text}"
    return f"no {key}=yes" if situation.conf.has("cgroup.conf") else f"no {key}=yes, for there is no cgroup.conf"


def _at(situation: Situation, key: str) -> Place | None:
    value = situation.conf.cgroup.get(key)
    if value is not None:
        return value.place
    file = situation.conf.file("cgroup.conf")
    return Place(file.path, 1) if file is not None else place(situation, "taskplugin")


RULES: tuple[Rule, ...] = (task_plugin, devices, memory, cores, reserved, tracking, off, percentages)
