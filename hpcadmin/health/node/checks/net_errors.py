"""Error counters of network interfaces: growth within a time."""

from hpcadmin.health.node import masks, window
from hpcadmin.health.node.api import Check, Param
from hpcadmin.health.node.checks.ib_errors import judged
from hpcadmin.health.node.checks.link import FOLDER

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


COUNTERS = ["rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    values = {}  # type: dict[str, int]
    for name in door.names(FOLDER):
        # Only those with hardware behind them, unless a name was asked for.
        if not masks.matches(p.device, name) or (p.device == "*" and not door.exists("%s/%s/device" % (FOLDER, name))):
            continue
        place = "%s/%s/statistics" % (FOLDER, name)
        door.at("counters of " + name)
        for counter in door.names(place):
            value = door.number("%s/%s" % (place, counter)) if masks.any_matches(p.counters, counter) else None
            if value is not None:
                values["%s %s" % (name, counter)] = value
    return judged(window.grown(door, "counters", values, p.window_min * 60), values, p.max, p.window_min)


CHECK = Check("net_errors", "Error counters of network interfaces: growth within a time", run, params=(
    Param("device", "mask", "*", "interface; * are those with hardware behind them"),
    Param("counters", "masks", COUNTERS, "which"),
    Param("max", "number", 100, "growth of each within the window"),
    Param("window_min", "number", 60, "minutes"),
))
