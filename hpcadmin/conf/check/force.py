"""Settings of slurm.conf and cgroup.conf as they are in force, with what Slurm takes where the files say nothing."""

from __future__ import annotations

from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.existing.parts import Place, Value
from hpcadmin.conf.keys import Version

# First version whose default is select/cons_tres; before, select/linear.
CONS_TRES_DEFAULT: Version = (23, 11)


def select(situation: Situation, version: Version) -> str:
    """SelectType without "select/"."""
    default = "select/cons_tres" if version >= CONS_TRES_DEFAULT else "select/linear"
    return situation.conf.setting("selecttype", default).casefold().removeprefix("select/")


def linear(situation: Situation) -> bool:
    """Whether whole nodes are given out in the version that runs."""
    return select(situation, situation.asked[0]) == "linear"


def parameters(situation: Situation) -> str:
    """SelectTypeParameters; cons_tres takes CR_Core_Memory where there is none."""
    return situation.conf.setting("selecttypeparameters", "CR_Core_Memory")


def memory_consumed(situation: Situation) -> bool:
    """Whether jobs are given memory, and only so much of it as they ask for."""
    words = [word.strip().casefold() for word in parameters(situation).split(",")]
    return any(word.startswith("cr_") and word.endswith("memory") for word in words)


def words(situation: Situation, key: str) -> frozenset[str]:
    """A list setting as small words: TaskPlugin, PrologFlags, SlurmdParameters."""
    text = situation.conf.setting(key)
    return frozenset(word.strip().casefold() for word in text.split(",") if word.strip())


def task_plugins(situation: Situation) -> frozenset[str]:
    """Without "task/"."""
    return frozenset(word.removeprefix("task/") for word in words(situation, "taskplugin"))


def proctrack(situation: Situation) -> str:
    return situation.conf.setting("proctracktype", "proctrack/cgroup").casefold().removeprefix("proctrack/")


def constrains(situation: Situation, key: str) -> bool:
    """Whether cgroup.conf says yes to "constraindevices" and the like, and task/cgroup is there to do it."""
    value = situation.conf.cgroup.get(key)
    return "cgroup" in task_plugins(situation) and value is not None and truth(value.text) is True


def truth(text: str) -> bool | None:
    """As s_p_handle_boolean takes it; None for what it refuses."""
    small = text.casefold()
    return True if small in ("yes", "up", "true", "1") else False if small in ("no", "down", "false", "0") else None


def has_gpus(situation: Situation) -> bool:
    return any(group.wants() for group in situation.alike)


def setting(situation: Situation, key: str) -> Value | None:
    return situation.conf.settings.get(key)


def place(situation: Situation, *keys: str) -> Place | None:
    """Where the first of the settings stands; else the beginning of slurm.conf."""
    for key in keys:
        value = situation.conf.settings.get(key)
        if value is not None:
            return value.place
    file = situation.conf.file("slurm.conf")
    return Place(file.path, 1) if file is not None else None
