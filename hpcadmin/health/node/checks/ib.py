"""InfiniBand and RoCE: state and rate of each port, as numbers."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import Check, Param, bad, good, unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


FOLDER = "/sys/class/infiniband"


def run(door: "Door", p: "Params") -> "list[Finding]":
    found = []  # type: list[Finding]
    count = 0
    for device, number in ports(door, p.device, p.ignore):
        place = "%s/%s/ports/%s/" % (FOLDER, device, number)
        door.at("port %s:%s" % (device, number))
        layer = door.word(place + "link_layer").lower()
        if not layer and p.layer != "any":
            found.append(unknown("port %s:%s does not tell what kind it is" % (device, number)))
        elif p.layer not in ("any", layer):
            continue
        count += 1
        found += judged("%s:%s" % (device, number), tuple(
            door.word(place + name) for name in ("state", "phys_state", "rate")), p, layer)  # type: ignore[arg-type]
    if count < p.ports:
        found.append(bad("%d port%s of %s%s, expected %g" % (
            count, "" if count == 1 else "s", p.device, "" if p.layer == "any" else " (%s)" % p.layer, p.ports)))
    return found


def ports(door: "Door", device: str, ignore: "list[str]") -> "list[tuple[str, str]]":
    """Every port that is looked at: device and number. Masks are for mlx5_0 or for mlx5_0:1."""
    found = []
    for name in door.names(FOLDER):
        for number in door.names("%s/%s/ports" % (FOLDER, name)):
            words = (name, "%s:%s" % (name, number))
            if any(masks.matches(device, word) for word in words) and not any(
                    masks.matches(mask, word) for mask in ignore for word in words):
                found.append((name, number))
    return found


def judged(name: str, told: "tuple[str, str, str]", p: "Params", layer: str = "") -> "list[Finding]":
    """state is "4: ACTIVE", phys_state "5: LinkUp", rate "400 Gb/sec (4X NDR)"."""
    state, physical, rate = told
    word, link = state.partition(":")[2].strip(), physical.partition(":")[2].strip()
    gbps = number(rate)
    facts = good(port=name, state=word, physical=link, gbps=gbps, layer=layer)
    if not word:
        return [facts, unknown("port %s is in no known state%s" % (name, ", link " + link if link else ""))]
    if word != "ACTIVE":
        return [facts, bad("port %s is %s%s" % (name, word, ", link " + link if link else ""))]
    if gbps is None and (p.min_gbps is not None or p.max_gbps is not None):
        return [facts, unknown("port %s tells no rate" % name)]
    if p.min_gbps is not None and gbps is not None and gbps < p.min_gbps:
        return [facts, bad("port %s runs at %g Gb/s, expected %g" % (name, gbps, p.min_gbps))]
    if p.max_gbps is not None and gbps is not None and gbps > p.max_gbps:
        return [facts, bad("port %s runs at %g Gb/s, expected at most %g" % (name, gbps, p.max_gbps))]
    return [facts]


def number(rate: str) -> "float | None":
    try:
        return float(rate.split(None, 1)[0])
    except (IndexError, ValueError):
        return None


CHECK = Check("ib", "InfiniBand and RoCE: state and rate of each port", run, params=(
    Param("device", "mask", "*", "mlx5_0, or a port of it: mlx5_0:1"),
    Param("ports", "number", 1, "at least so many; each of them must be active"),
    Param("min_gbps", "number", None, "rate of each port"),
    Param("max_gbps", "number", None, "rate of each port"),
    Param("ignore", "masks", [], "ports that need not work (the second of a card)"),
    Param("layer", "text", "infiniband", "only such ports", choices=("infiniband", "ethernet", "any")),
))
