"""--nhc-conf: an existing nhc.conf becomes entries of the check `nhc`, one a line, with verdicts as of NHC 1.4.3."""

import os

from hpcadmin.health.node import nhc_plan, trust
from hpcadmin.health.node.api import MODES, BadConfig, Finding, NoAnswer, bad, good, unknown
from hpcadmin.health.node.config import Config, Entry
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_match import Abort
from hpcadmin.health.node.nhc_words import NotRun

MYPY = False
if MYPY:
    from typing import Callable

    from hpcadmin.health.node.api import Params

# How long a line may take: what waits for a file system or for names, a tool, a command with a time-out of its own.
LINE_S, TOOL_S, COMMAND_S = 10.0, 22.0, 40.0
SLURM = frozenset(("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "sprio",
                   "squeue", "sreport", "srun", "sshare", "sstat", "strigger"))


# Every built-in check of NHC 1.4.3, by the module that does it: only those that a file uses are loaded.
MODULES = {
    "nhc_cmd": ("check_cmd_output", "check_cmd_status", "check_cmd_dmesg", "check_moab_sched", "check_moab_rm",
                "check_moab_torque", "check_nvsmi_healthmon", "check_nv_healthmon", "check_net_ping"),
    "nhc_dmi": ("check_dmi_data_match", "check_dmi_raw_data_match"),
    "nhc_file": ("check_file_contents", "check_file_test", "check_file_stat"),
    "nhc_fs": ("check_fs_mount", "check_fs_mount_rw", "check_fs_mount_ro", "check_fs_size", "check_fs_free",
               "check_fs_used", "check_fs_inodes", "check_fs_ifree", "check_fs_iused"),
    "nhc_hw": ("check_hw_cpuinfo", "check_hw_physmem", "check_hw_swap", "check_hw_mem", "check_hw_physmem_free",
               "check_hw_swap_free", "check_hw_mem_free", "check_hw_ib", "check_hw_eth", "check_hw_gm",
               "check_hw_mcelog"),
    "nhc_net": ("check_net_socket",),
    "nhc_ps": ("check_ps_cpu", "check_ps_mem", "check_ps_physmem", "check_ps_time", "check_ps_daemon",
               "check_ps_blacklist", "check_ps_service", "check_ps_kswapd", "check_ps_loadavg"),
    "nhc_users": ("check_ps_unauth_users", "check_ps_userproc_lineage"),
}
KNOWN = {name: module for module, names in MODULES.items() for name in names}


def known(name: str) -> "Callable[[Nhc, list[str]], None]":
    """The function of a built-in check."""
    module = __import__("hpcadmin.health.node." + KNOWN[name], fromlist=[name])
    return getattr(module, name)  # type: ignore[no-any-return]


def processors(root: str = "") -> "dict[str, int]":
    from hpcadmin.health.node import nhc_hw
    return nhc_hw.counts(Door(root))


def load(path: str, node: str, root: str = "") -> "tuple[Config, list[str]]":
    """The entries of a trusted file, and notes on what in it is not run or wrong."""
    try:
        text = trust.read(path).decode("utf-8", "surrogateescape")
        found = entries(text, full_name(node, root), lambda: processors(root))
    except (ValueError, OSError) as exc:
        raise BadConfig("%s: %s" % (path, exc)) from exc
    notes = ["%s line %d: %s is not run: %s" % (path, entry.params["line"], entry.params["name"], entry.params["why"])
             for entry in found if entry.params["kind"] == nhc_plan.NOT_RUN and "health" in entry.when]
    if all(entry.params["kind"] in (nhc_plan.SETTING, nhc_plan.SKIPPED) for entry in found):
        # No line is for this host: NHC calls that healthy.
        return Config([]), notes + [str(notice) for entry in found for notice in entry.params["notices"]]
    return Config(found), notes


def full_name(node: str, root: str = "") -> str:
    """The name that NHC compares masks with: the host's own, with its domain, if that is this node's."""
    host = Door(root).word("/proc/sys/kernel/hostname") or os.uname()[1]
    return host if host.partition(".")[0] == node and "." not in node else node


def entries(text: str, host: str, counts: "Callable[[], dict[str, int]]") -> "list[Entry]":
    """One entry for each line that counts on this host."""
    plan = nhc_plan.Plan(host, KNOWN, counts() if "HW_" in text else {})
    found = []
    for item in plan.items(text):
        params = {"line": item.line, "kind": item.kind, "name": item.name, "why": item.why, "args": item.args,
                  "names": _pairs(item.names), "exported": _pairs(item.exported), "notices": item.notices}
        safe = "".join(char if char.isalnum() or char in "_.-" else "-" for char in item.name)[:40]
        key = "%d/%s" % (item.line, safe)
        asks = item.kind == nhc_plan.CHECK and _asks_slurm(item)
        when = ("health",) if asks else MODES
        found.append(Entry("nhc", params, key, when=when, timeout_s=_seconds(item.name)))
        if asks:
            instead = dict(params, kind=nhc_plan.NOT_RUN, why="it asks Slurm, which prolog and epilog must not")
            found.append(Entry("nhc", instead, key + "/not", when=("prolog", "epilog")))
    return found


def _seconds(name: str) -> float:
    if name.startswith("check_cmd_"):
        return COMMAND_S
    module = KNOWN.get(name, "")
    return TOOL_S if module in ("nhc_cmd", "nhc_dmi", "nhc_net", "nhc_users") or name == "check_hw_mcelog" else LINE_S


def _asks_slurm(item: nhc_plan.Item) -> bool:
    if item.name == "check_ps_unauth_users":
        return True
    words = [part.rpartition("/")[2] for word in item.args for part in word.split()]
    return item.name.startswith("check_cmd_") and any(word in SLURM for word in words)


def _pairs(values: "dict[str, str]") -> "list[str]":
    return ["%s=%s" % pair for pair in sorted(values.items())]


def _dict(pairs: "list[str]") -> "dict[str, str]":
    return dict(pair.split("=", 1) for pair in pairs)


def judge(door: Door, p: "Params") -> "tuple[Finding, list[str]]":
    """(the verdict, notices) for one line."""
    kind, name, why = p.kind, p.name, p.why
    if kind == nhc_plan.NOT_RUN:
        return unknown("not run: %s" % why), []
    if kind == nhc_plan.WRONG:
        return bad("the line is wrong: %s" % why), []
    if kind != nhc_plan.CHECK:
        return good(), [why] if why else []
    nhc = Nhc(door, name, _dict(p.names), _dict(p.exported))
    try:
        known(name)(nhc, p.args)
    except Died as exc:
        return bad(str(exc)), nhc.notices
    except Abort as exc:
        return bad("bash gives this line up: %s" % exc), nhc.notices
    except NotRun as exc:
        return unknown("not run: %s" % exc), nhc.notices
    except NoAnswer as exc:
        return unknown(str(exc)), nhc.notices
    return good(), nhc.notices
