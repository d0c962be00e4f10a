"""Error counters of InfiniBand ports: growth within a time."""

from hpcadmin.health.node import masks, window
from hpcadmin.health.node.api import Check, Param, bad, good, unknown
from hpcadmin.health.node.checks.ib import FOLDER, ports

MYPY = False
if MYPY:
    from typing import Mapping

    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


COUNTERS = ["symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors",
            "excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    told = {}  # type: dict[str, int | None]
    looked_at = ports(door, p.device, p.ignore)
    for device, port in looked_at:
        name = "%s:%s" % (device, port)
        door.at("counters of " + name)
        told.update(counters(door, "%s/%s/ports/%s/counters" % (FOLDER, device, port), name, p.counters))
    lacking = "" if told or (p.device == "*" and not looked_at) else "no counter of the ports %s" % p.device
    return judged(door, told, p, lacking)


def counters(door: "Door", folder: str, label: str, wanted: "list[str]") -> "dict[str, int | None]":
    """The counters of a folder by name; None where there is no number."""
    return {"%s %s" % (label, name): door.number("%s/%s" % (folder, name)) for name in door.names(folder)
            if masks.any_matches(wanted, name)}


def judged(door: "Door", told: "Mapping[str, int | None]", p: "Params", lacking: str = "") -> "list[Finding]":
    """For every check of counters: what grew, and what grew too much; what says nothing. lacking: all of it."""
    values = {name: value for name, value in told.items() if value is not None}
    silent = sorted(name for name, value in told.items() if value is None)
    growth = window.grown(door, "counters", values, p.window_min * 60)
    found = window.unseen(door) + [unknown("%s has no number" % name) for name in silent[:5]] + (
        [unknown(lacking)] if lacking else [])
    if growth is None:
        return [*found, good(first_look=True, counters=len(values))]
    most, minutes = p.max, p.window_min
    grown = {name: more for name, more in growth.items() if more}
    return [*found, good(grown=grown, counters=len(values)),
            *(bad("%s grew by %d in %g min, more than %g" % (name, more, minutes, most))
              for name, more in sorted(grown.items(), key=lambda item: -item[1]) if more > most)]


CHECK = Check("ib_errors", "Error counters of InfiniBand ports: growth within a time", run, params=(
    Param("device", "mask", "*", "mlx5_0, or a port of it: mlx5_0:1"),
    Param("ignore", "masks", [], "ports that are not looked at"),
    Param("counters", "masks", COUNTERS, "which"),
    Param("max", "number", 120, "growth of each within the window"),
    Param("window_min", "number", 60, "minutes"),
))
