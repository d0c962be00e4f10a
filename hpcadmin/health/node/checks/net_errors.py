"""Error counters of network interfaces: growth within a time."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import Check, Param
from hpcadmin.health.node.checks.ib_errors import counters, judged
from hpcadmin.health.node.checks.link import FOLDER

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


COUNTERS = ["rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"]


def run(door: "Door", p: "Params") -> "list[Finding]":
    told = {}  # type: dict[str, int | None]
    for name in door.names(FOLDER):
        # Only those with hardware behind them, unless a name was asked for.
        if not masks.matches(p.device, name) or (p.device == "*" and not door.exists("%s/%s/device" % (FOLDER, name))):
            continue
        door.at("counters of " + name)
        told.update(counters(door, "%s/%s/statistics" % (FOLDER, name), name, p.counters))
    lacking = "" if told or p.device == "*" else "no counter of the interface %s" % p.device
    return judged(door, told, p, lacking)


CHECK = Check("net_errors", "Error counters of network interfaces: growth within a time", run, params=(
    Param("device", "mask", "*", "interface; * are those with hardware behind them"),
    Param("counters", "masks", COUNTERS, "which"),
    Param("max", "number", 100, "growth of each within the window"),
    Param("window_min", "number", 60, "minutes"),
))
