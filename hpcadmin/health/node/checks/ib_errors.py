"""Error counters of InfiniBand ports: growth within a time."""

from hpcadmin.health.node import masks, window
from hpcadmin.health.node.api import Check, Param, bad, good
from hpcadmin.health.node.checks.ib import FOLDER, ports

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


COUNTERS = ["symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "local_link_integrity_errors",
            "excessive_buffer_overrun_errors", "port_rcv_remote_physical_errors"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    values = {}  # type: dict[str, int]
    for device, port in ports(door, p.device, p.ignore):
        place = "%s/%s/ports/%s/counters" % (FOLDER, device, port)
        door.at("counters of %s:%s" % (device, port))
        for name in door.names(place):
            value = door.number("%s/%s" % (place, name)) if masks.any_matches(p.counters, name) else None
            if value is not None:
                values["%s:%s %s" % (device, port, name)] = value
    return judged(window.grown(door, "counters", values, p.window_min * 60), values, p.max, p.window_min)


def judged(growth: "dict[str, int] | None", values: "dict[str, int]", most: float, minutes: float) -> "list[Finding]":
    """For every check of counters: what grew, and what grew too much."""
    if growth is None:
        return [good(first_look=True, counters=len(values))]
    grown = {name: more for name, more in growth.items() if more}
    return [good(grown=grown, counters=len(values)),
            *(bad("%s grew by %d in %g min, more than %g" % (name, more, minutes, most))
              for name, more in sorted(grown.items(), key=lambda item: -item[1]) if more > most)]


CHECK = Check("ib_errors", "Error counters of InfiniBand ports: growth within a time", run, params=(
    Param("device", "mask", "*", "mlx5_0, or a port of it: mlx5_0:1"),
    Param("ignore", "masks", [], "ports that are not looked at"),
    Param("counters", "masks", COUNTERS, "which"),
    Param("max", "number", 120, "growth of each within the window"),
    Param("window_min", "number", 60, "minutes"),
))
