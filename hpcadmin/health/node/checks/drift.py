"""What this node is made of, against what was accepted."""

from hpcadmin.health.node import cpus, inventory, masks, quickjson, trust
from hpcadmin.health.node.api import BadConfig, Check, NoAnswer, Param, bad, fault, good, unknown
from hpcadmin.health.node.checks import memory

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


DEFAULT = "/etc/hpcadmin/accepted.json"
# What is gone by these names is no longer in its socket or on its bus. What a driver tells of (gpu, nvme, disk, ib) is
# gone whenever the driver is: after a new kernel on all nodes at once.
OWN, GONE = ("dimm.", "pci."), (".mib", ".id")
LESS = (".width", ".speed", ".mib", ".sockets", ".cores")


def run(door: "Door", p: "Params") -> "list[Finding]":
    try:
        accepted = quickjson.loads(trust.read(p.accepted).decode("utf-8"))
    except BadConfig as exc:
        raise NoAnswer("no accepted inventory: %s" % exc) from exc
    except ValueError as exc:
        raise NoAnswer("%s is not JSON: %s" % (p.accepted, exc)) from exc
    node = accepted
    if isinstance(accepted, dict) and isinstance(accepted.get("nodes"), dict):      # of all nodes in one file
        node = accepted["nodes"].get(door.node) or accepted["nodes"].get(door.host())
    if not isinstance(node, dict) or not node:
        raise NoAnswer("%s tells nothing of this node" % p.accepted)
    untold = {}  # type: dict[str, str]
    now = inventory.collect(door, untold)
    if isinstance(accepted, dict) and accepted.get("partial") is True:     # no source told of everything
        now = {name: value for name, value in now.items() if name in node}
    found = differences(node, now, p.ignore, p.memory_percent, untold)
    for one in found:                           # not broken for all: see the checks cpu and memory
        family = str(one.facts.get("name", "")).partition(".")[0]
        if one.own and ((family == "cpu" and (door.cpus().offline or cpus.limited(door)))
                        or (family == "memory" and memory.of_devices(door))):
            one.own = False
    return found


def differences(accepted: "dict[str, object]", now: "dict[str, str | int]", ignore: "list[str]",
                memory_percent: float = 1, untold: "dict[str, str] | None" = None) -> "list[Finding]":
    """What is gone, what is another, what is new in a family (dimm, gpu, pci, …) that was accepted."""
    families = {name.partition(".")[0] for name in accepted}
    found = [unknown("%s cannot be read: %s" % (family, why)) for family, why in sorted((untold or {}).items())
             if family in families and not any(masks.matches(mask, family + ".") for mask in ignore)]
    families -= set(untold or {})
    for name in sorted(set(accepted) | set(now)):
        if name.partition(".")[0] not in families or any(masks.matches(mask, name) for mask in ignore):
            continue
        was, is_now = accepted.get(name), now.get(name)
        if was == is_now:
            continue
        if name == "memory.mib" and isinstance(was, int) and isinstance(is_now, int) and abs(is_now - was) <= was * (
                memory_percent / 100.0):
            continue
        if is_now is None and name.endswith((".width", ".speed")) and name.rpartition(".")[0] + ".id" in now:
            found.append(unknown("%s is not told now (was %s)" % (name, was), name=name))   # it sleeps
        elif is_now is None:
            own = name.startswith(OWN) and name.endswith(GONE)
            found.append((fault if own else bad)("%s is gone (was %s)" % (name, was), name=name))
        elif was is None:
            found.append(bad("%s is new: %s" % (name, is_now), name=name))
        else:
            numbers = isinstance(was, int) and isinstance(is_now, int) and name.endswith(LESS)
            less = numbers and is_now < was  # type: ignore[operator]
            if name == "memory.mib":
                less = less and memory.lost(was, is_now)  # type: ignore[arg-type]
            found.append((fault if less else bad)("%s is %s, was %s" % (name, is_now, was), name=name))
    return [good(compared=len(accepted)), *found]


CHECK = Check("drift", "What this node is made of, against what was accepted", run, hardware=True, params=(
    Param("accepted", "text", DEFAULT, "JSON of names and values, as hpcadmin-health --facts prints it"),
    Param("ignore", "masks", [], "names that may change (gpu.*.vbios)"),
    Param("memory_percent", "number", 1, "by which the memory may differ: kernels keep more or less to themselves"),
))
