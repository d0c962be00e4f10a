"""What slurmctld works with against what the files say: settings changed and not yet read, nodes that differ."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcadmin.conf.check import fleet
from hpcadmin.conf.check.finding import Finding, LiveNode, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import Alike
from hpcadmin.conf.check.rules._hosts import Hosts
from hpcadmin.conf.existing.parts import Value
from hpcadmin.conf.keys import applies
from hpcadmin.conf.live import indexed, items, states
from hpcadmin.conf.names import natural, slurm_list
from hpcadmin.facts._slurm_rules import gres_wanted
from hpcadmin.text import printable

# Printed in another form than written, completed by Slurm, or of one host only.
_SKIPPED = frozenset({
    "slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr", "slurmctldaddr",
    "accountingstoragetres", "accountingstorageuser", "accountingstoragepass", "slurmctldpidfile", "slurmdpidfile",
    "slurmdspooldir", "slurmdlogfile", "nodeset", "include", "plugindir", "debugflags", "prologflags", "authinfo",
    "accountingstorageenforce", "suspendexcnodes", "licenses", "jobcomppass", "slurmdport", "slurmctldport",
    "launchparameters", "mpiparams", "privatedata", "slurmschedlogfile", "reconfigflags", "switchparameters",
    "keepaliveTime", "gpufreqdef", "cpufreqdef", "preemptmode", "taskpluginparam", "fastschedule", "maxtasksperNode",
    "jobcontainertype", "namespacetype", "usepam", "selecttypeparameters", "priorityflags", "healthchecknodestate",
    "epilogslurmctld", "prologslurmctld", "commentsstored", "topologyplugin", "accountingstoreflags",
})
_UNIT = re.compile(r"(\d{1,12}) (?:sec|min|usec|nodes/min|percent|MB)")
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_UID = re.compile(r"([A-Za-z_][\w.-]{0,60})\(\d{1,10}\)")
_NONE = frozenset({"(null)", "none", "n/a", ""})
_TRUE = {"yes": "1", "true": "1", "up": "1", "no": "0", "false": "0", "down": "0"}
_ENDLESS = frozenset({"unlimited", "infinite", "-1"})


def settings(situation: Situation) -> Iterator[Finding]:
    """Simple settings of slurm.conf that slurmctld has otherwise."""
    if not situation.running:
        return
    for key, value in situation.conf.settings.items():
        running = indexed(situation.running, key)
        if key in _SKIPPED or key.endswith("debug") or running is None or equal(value.text, running):
            continue
        version = situation.versions[0] if situation.versions else None
        yield Finding(Severity.DRIFT, f"{value.key}={printable(value.text, limit=200)} is written, slurmctld has "
                      f"{printable(running, limit=200)}", f"the file was changed after slurmctld read it; to apply: "
                      f"{applies('slurm.conf', value.key, version).value}", (), value.place)


def equal(written: str, running: str) -> bool:
    one, other = _normal(written), _normal(running)
    if one == other or (":" in running and _seconds(written) is not None and _seconds(written) == _seconds(running)):
        return True
    words, there = set(one.split(",")), set(other.split(","))
    return len(words) > 1 and words <= there         # Slurm adds what a word brings with it


def _seconds(text: str) -> int | None:
    """Minutes, minutes:seconds, hours:minutes:seconds, days-hours and the rest (slurm.conf(5)); None for others."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    first, second, third = (int(part) if part else 0 for part in match.groups()[1:])
    if match[1] is not None:
        return int(match[1]) * 86400 + first * 3600 + second * 60 + third
    if match[4] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def _normal(text: str) -> str:
    plain = text.strip().strip('"').casefold()
    match = _UNIT.fullmatch(text.strip()) or _UID.fullmatch(text.strip())
    if match:
        plain = match[1].casefold()
    if plain in _NONE or plain.endswith("/none"):
        return ""
    if plain in _ENDLESS:
        return "unlimited"
    plain = _TRUE.get(plain, plain)
    return ",".join(sorted(filter(None, (word.strip().rpartition("/")[2] if "/" in word and not word.startswith("/")
                                         else word.strip() for word in plain.split(",")))))


# --- nodes ---------------------------------------------------------------------------------------------------------


def values(situation: Situation) -> Iterator[Finding]:
    """Values of node lines that slurmctld has otherwise, folded by line and value."""
    if not situation.live or not situation.conf.nodes:
        return
    hosts = Hosts(situation)
    found: dict[tuple[Value, str, str], list[str]] = {}
    for name, node in situation.live.items():
        group = hosts.groups.get(name)
        if group is not None and group.node is not None:
            for key, written, running in _differences(node, group):
                value = group.node.values.get(key)
                found.setdefault((value or Value(key, "", group.node.place), written, running), []).append(name)
    for (value, written, running), names in found.items():
        yield Finding(Severity.DRIFT, f"{slurm_list(sorted(names, key=natural))}: {written} is written, slurmctld has "
                      f"{running}", "slurm.conf was changed after slurmctld read it: restart slurmctld and slurmd "
                      "there", (), value.place, tuple(sorted(names, key=natural)))
    yield from _unknown(situation, hosts)


def _differences(node: LiveNode, group: Alike) -> Iterator[tuple[str, str, str]]:
    """(key, as written, as slurmctld has it)."""
    line, live = group.node, node.values
    if line is None:
        return
    shape = fleet.shape(line)
    sockets = _number(live.get("sockets"))
    if shape.said and sockets is not None:
        there = (sockets, _number(live.get("corespersocket")), _number(live.get("threadspercore")))
        if there != (shape.sockets, shape.cores, shape.threads) and None not in there:
            yield "sockets", shape.text, (f"Sockets={there[0]} CoresPerSocket={there[1]} ThreadsPerCore={there[2]}")
    memory = line.number("realmemory")
    if memory is not None and _number(live.get("realmemory")) not in (None, memory):
        yield "realmemory", f"RealMemory={memory}", printable(live["realmemory"], limit=40)
    if "gres" in live and "INVALID_REG" not in states(live.get("state", ""))[1]:   # else it is what slurmd reported
        wanted = _counts(line.get("gres") or "")
        there_counts = _counts(",".join(item.partition("(")[0] for item in items(live["gres"])))
        if wanted != there_counts:
            yield "gres", f"Gres={line.get('gres') or ''}", printable(live["gres"], limit=200)
    for key in ("availablefeatures", "features"):
        if key in live and "features" in line.values:
            there_words = set(live[key].split(",")) - {"(null)", ""}
            if there_words != set((line.get("features") or "").split(",")) - {""}:
                yield "features", f"Features={line.get('features')}", printable(live[key], limit=200)


def _counts(text: str) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for item in gres_wanted(text):
        found[item.name, item.type.casefold()] = found.get((item.name, item.type.casefold()), 0) + item.count
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


def _unknown(situation: Situation, hosts: Hosts) -> Iterator[Finding]:
    """Nodes that only one of the two has."""
    missing: dict[int, list[str]] = {}
    for name, line in hosts.lines.items():
        if name not in situation.live and (line.get("state") or "").upper() != "FUTURE":
            missing.setdefault(id(line), []).append(name)
    for names in missing.values():
        line = hosts.lines[names[0]]
        what = (f"{names[0]} is written, slurmctld does not know it" if len(names) == 1 else
                f"{slurm_list(names)} are written, slurmctld does not know them")
        yield Finding(Severity.DRIFT, what, "slurm.conf was changed after slurmctld read it: restart slurmctld", (),
                      line.place, tuple(names))
    strangers = [name for name, node in situation.live.items() if name not in hosts.lines and not states(
        node.values.get("state", ""))[1] & {"DYNAMIC_NORM", "DYNAMIC_FUTURE"}]
    if strangers:
        yield Finding(Severity.DRIFT, f"{slurm_list(strangers)} {'is' if len(strangers) == 1 else 'are'} known to "
                      "slurmctld, and in no NodeName= line here", "the files are not those that slurmctld read, or it "
                      "has not read them since", nodes=tuple(strangers))


def affinity(situation: Situation) -> Iterator[Finding]:
    """22.05 to 24.05 take Cores= that are no cores in silence: then Gres= has no (S:…)."""
    hosts = Hosts(situation)
    found: dict[int, list[str]] = {}
    for name, node in situation.live.items():
        gres, group = node.values.get("gres", ""), hosts.groups.get(name)
        if not gres.startswith("gpu") or "(S:" in gres or group is None:
            continue
        base, flags = states(node.values.get("state", ""))
        if any(line.get("cores") for line in group.of("gpu")) and base not in ("DOWN", "UNKNOWN", "FUTURE") and not (
                flags & {"INVALID_REG", "NOT_RESPONDING", "POWERED_DOWN"}):
            found.setdefault(id(group), []).append(name)
    for names in found.values():
        lines = [line for line in hosts.groups[names[0]].of("gpu") if line.get("cores")]
        gres = printable(situation.live[names[0]].values["gres"], limit=100)
        yield Finding(Severity.WRONG, f"{slurm_list(sorted(names, key=natural))}: Gres={gres} has no (S:…) although "
                      f"gres.conf has Cores={lines[0].get('cores')}", "Slurm did not take Cores= (CPU ids of the OS?): "
                      "GPUs have no affinity", (), lines[0].place, tuple(sorted(names, key=natural)))


RUNNING: tuple[Rule, ...] = (settings, values, affinity)
