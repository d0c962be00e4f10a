"""Network interfaces: there, up, fast enough."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import REQUIRED, Check, Param, bad, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


FOLDER = "/sys/class/net"


def run(door: "Door", p: "Params") -> "list[Finding]":
    names = [name for name in door.names(FOLDER)
             if masks.matches(p.name, name) and door.exists("%s/%s/mtu" % (FOLDER, name))]
    if not p.present:
        return [bad("interface %s is there" % name) for name in names]
    found = []  # type: list[Finding]
    if len(names) < p.min:
        found.append(bad("no interface %s" % p.name if not names
                         else "%d interfaces %s, expected %g" % (len(names), p.name, p.min)))
    for name in names:
        found += one(door, name, p)
    return found


def one(door: "Door", name: str, p: "Params") -> "list[Finding]":
    place = "%s/%s/" % (FOLDER, name)
    door.at("interface " + name)
    state, carrier = door.word(place + "operstate"), door.word(place + "carrier")
    mbps, mtu, duplex = door.number(place + "speed"), door.number(place + "mtu"), door.word(place + "duplex")
    mbps = mbps if mbps is not None and 0 < mbps < 0xFFFFFFFF else None
    found = [good(interface=name, state=state, mbps=mbps, mtu=mtu, duplex=duplex)]
    # Virtual ones (lo, bridges without a member) have the state "unknown" and a carrier.
    if p.up and not state:
        return [*found, unknown("interface %s is in no known state" % name)]
    if p.up and not (state == "up" or (state == "unknown" and carrier != "0")):
        return [*found, bad("interface %s is %s" % (name, state))]
    if p.min_mbps is not None and mbps is None:
        found.append(unknown("interface %s tells no speed, expected %g Mb/s" % (name, p.min_mbps)))
    elif p.min_mbps is not None and mbps is not None and mbps < p.min_mbps:
        found.append(bad("interface %s runs at %d Mb/s, expected %g" % (name, mbps, p.min_mbps)))
    if p.mtu is not None and mtu != p.mtu:
        found.append(unknown("interface %s tells no MTU" % name) if mtu is None else
                     bad("interface %s has MTU %d, expected %g" % (name, mtu, p.mtu)))
    if p.duplex is not None and duplex != p.duplex:
        found.append(unknown("interface %s does not tell whether it is duplex" % name) if duplex in ("", "unknown") else
                     bad("interface %s is %s duplex, expected %s" % (name, duplex, p.duplex)))
    return found


CHECK = Check("link", "Network interfaces: there, up, fast enough", run, params=(
    Param("name", "mask", REQUIRED, "the interface"),
    Param("present", "flag", True, "it must be there, or must not"),
    Param("min", "number", 1, "at least so many that are called so"),
    Param("up", "flag", True, "must be up"),
    Param("min_mbps", "number", None, "speed"),
    Param("mtu", "number", None, "exactly"),
    Param("duplex", "text", None, "must be", choices=("full", "half")),
))
