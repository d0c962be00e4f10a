"""Fat trees made for tests, and each tool's way to print them."""

from __future__ import annotations

from dataclasses import dataclass, field

LANES = {"SDR": "2.5", "FDR": "14.0625", "EDR": "25.78125", "HDR": "53.125", "NDR": "106.25"}


@dataclass
class Box:
    kind: str                        # "switch", "ca"
    name: str                        # as described
    guid: int
    lid: int
    ports: dict[int, tuple[str, int]] = field(default_factory=dict)     # port -> (name, port)


@dataclass
class Net:
    boxes: dict[str, Box] = field(default_factory=dict)
    speed: str = "NDR"
    slow: dict[tuple[str, int], str] = field(default_factory=dict)      # of a switch's port: its speed

    def add(self, kind: str, name: str) -> Box:
        number = len(self.boxes) + 1
        if name not in self.boxes:
            self.boxes[name] = Box(kind, name, 0xE09D_7303_0000_0000 + 16 * number, number)
        return self.boxes[name]

    def plug(self, one: str, port: int, other: str, far: int) -> None:
        self.boxes[one].ports[port] = (other, far)
        self.boxes[other].ports[far] = (one, port)

    def cut(self, one: str, port: int) -> None:
        other, far = self.boxes[one].ports.pop(port)
        del self.boxes[other].ports[far]

    def speed_of(self, name: str, port: int) -> str:
        return self.slow.get((name, port)) or self.slow.get(self.boxes[name].ports[port], self.speed)


def leaf(rail: int, unit: int) -> str:
    return f"MF0;rack{unit:02d}-IBLEAF-{rail:02d}-{unit:02d}:MQM9700/U1"


def fat_tree(units: int, rails: int, nodes: int, spines: int, cables: int = 1) -> Net:
    """units of `nodes` nodes, each with a leaf for each rail; `cables` from each leaf to each spine."""
    net = Net()
    for spine in range(1, spines + 1):
        net.add("switch", f"IBSPINE-{spine:02d}")
    for unit in range(1, units + 1):
        for rail in range(1, rails + 1):
            net.add("switch", leaf(rail, unit))
            for node in range(1, nodes + 1):
                card = net.add("ca", f"u{unit:02d}n{node:02d} mlx5_{rail - 1}").name
                net.plug(leaf(rail, unit), node, card, 1)
            for spine in range(1, spines + 1):
                for cable in range(cables):
                    far = ((unit - 1) * rails + rail - 1) * cables + cable + 1
                    net.plug(leaf(rail, unit), nodes + (spine - 1) * cables + cable + 1, f"IBSPINE-{spine:02d}", far)
    return net


def _letter(box: Box) -> str:
    return f'"{"S" if box.kind == "switch" else "H"}-{box.guid:016x}"'


def _port_guid(box: Box, port: int) -> int:
    return box.guid + (0 if box.kind == "switch" else port)


def _lid(box: Box, port: int) -> int:
    return box.lid if box.kind == "switch" or port < 2 else 20_000 + box.lid + port


def ibnetdiscover(net: Net) -> str:
    lines = ["#", "# Topology file: generated on Mon Jan  5 10:00:00 2026", "#"]
    for box in sorted(net.boxes.values(), key=lambda box: box.kind, reverse=True):
        name, count = ("Switch", 65) if box.kind == "switch" else ("Ca", max(box.ports, default=1))
        lines += ["", "vendid=0x2c9", f"{'switch' if box.kind == 'switch' else 'ca'}guid=0x{box.guid:x}"]
        rest = f" enhanced port 0 lid {box.lid} lmc 0" if box.kind == "switch" else ""
        lines.append(f'{name}\t{count} {_letter(box)}\t\t# "{box.name}"{rest}')
        for port, (peer_name, far) in sorted(box.ports.items()):
            peer, rate = net.boxes[peer_name], f"4x{net.speed_of(box.name, port)}"
            own = f"({_port_guid(box, port):x}) " if box.kind == "ca" else ""
            other = f"({_port_guid(peer, far):x}) " if peer.kind == "ca" else ""
            lid = f"lid {_lid(box, port)} lmc 0 " if box.kind == "ca" else ""
            rest = f'# {lid}"{peer.name}" lid {_lid(peer, far)} {rate}'
            lines.append(f"[{port}]{own}\t{_letter(peer)}[{far}]{other}\t\t{rest}")
    return "\n".join(lines) + "\n"


def ibnetdiscover_p(net: Net) -> str:
    lines = []
    for box in net.boxes.values():
        for port, (peer_name, far) in sorted(box.ports.items(), reverse=True):
            ends = [f"{'SW' if b.kind == 'switch' else 'CA'} {_lid(b, p):5d} {p:2d} 0x{_port_guid(b, p):016x}"
                    for b, p in ((box, port), (net.boxes[peer_name], far))]
            lines.append(f"{ends[0]} 4x {net.speed_of(box.name, port)} - {ends[1]} ( '{box.name}' - '{peer_name}' )")
    return "\n".join(lines) + "\n"


def _state(net: Net, box: Box, port: int) -> str:
    return f"==( 4X {LANES[net.speed_of(box.name, port)]:>13} Gbps Active/  LinkUp)==>"


def iblinkinfo(net: Net, *, switches_only: bool = False) -> str:
    lines = []
    for box in net.boxes.values():
        if box.kind == "switch":
            lines.append(f"Switch: 0x{box.guid:016x} {box.name}:")
        elif switches_only:
            continue
        else:
            lines.append(f"CA: {box.name}:")
        for port, (peer, far) in sorted(box.ports.items()):
            begin = "           " if box.kind == "switch" else f"      0x{_port_guid(box, port):016x} "
            lines.append(f'{begin}{_lid(box, port):6d} {port:4d}[  ] {_state(net, box, port)}  '
                         f'{_lid(net.boxes[peer], far):6d} {far:4d}[  ] "{peer}" ( )')
    return "\n".join(lines) + "\n"


def iblinkinfo_line(net: Net) -> str:
    lines = []
    for box in net.boxes.values():
        for port, (name, far) in sorted(box.ports.items()):
            peer = net.boxes[name]
            lines.append(f'0x{_port_guid(box, port):016x} "{box.name:>30}" {_lid(box, port):6d} {port:4d}[  ] '
                         f"{_state(net, box, port)}  0x{_port_guid(peer, far):016x} {_lid(peer, far):6d} {far:4d}[  ] "
                         f'"{name}" ( )')
    return "\n".join(lines) + "\n"


FORMATS = {"ibnetdiscover": ibnetdiscover, "ibnetdiscover -p": ibnetdiscover_p, "iblinkinfo": iblinkinfo,
           "iblinkinfo --line": iblinkinfo_line}
