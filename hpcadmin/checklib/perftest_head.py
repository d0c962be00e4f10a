"""What the head of a text of perftest says: which test, on what link, with whom; and whether all of it is there."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin import checklib as lib
from hpcadmin.checklib.perftest_text import Run, Section, title_of

HEAD = ("Device", "Number of qps", "Connection type", "Link type", "Mtu")
_SINGLE = frozenset({"RC", "UC", "UD", "SRD"})             # one queue pair a QP


@dataclass(frozen=True)
class Kind:
    """A program: what its title names, and whether it measures times."""

    program: str
    verbs: tuple[str, ...]
    latency: bool

    @property
    def words(self) -> str:
        return f"{self.verbs[0]} {'Latency' if self.latency else 'BW'} Test"


def kind_of(program: str) -> Kind:
    """ib_write_bw and so on."""
    _, verb, what = program.split("_")
    verbs = {"write": ("RDMA_Write", "RDMA_Write_imm"), "read": ("RDMA_Read",), "send": ("Send", "Send_imm"),
             "atomic": ("Atomic",)}
    return Kind(program, verbs[verb], what == "lat")


@dataclass(frozen=True)
class Problem:
    """usable: the values stand all the same. cut: something is missing at the end. head: or at the beginning."""

    text: str
    usable: bool = False
    cut: bool = False
    head: bool = False


def head_problems(run: Run, kind: Kind) -> list[Problem]:
    """Whether it is this program's, and all of its head is there."""
    main, problems = run.main, []
    for title in main.titles:
        verb, _, latency = title_of(title)
        if verb not in kind.verbs or latency != kind.latency:
            return [Problem(f"not one output of the {kind.words}: {lib.shown(title)}")]
    reads = kind.verbs[0] in ("RDMA_Read", "Atomic")
    if ("Outstand reads" in main.fields and not reads) or ("Max inline data" in main.fields and reads):
        return [Problem(f"not one output of the {kind.words}: another head")]
    if not main.titles:
        problems.append(Problem("the title is missing: which test it is, is not in the text", usable=True,
                                head=True))
    for side in (main, *([run.other] if run.other else [])):
        for name, values in side.fields.items():
            if len(values) > (2 if run.mixed else 1) and name != "TX depth":
                return [*problems, Problem(f"{name!r} is told {len(values)} times: several runs mixed")]
            if len(set(values)) > 1 and name not in ("Device", "TX depth", "GID index", "Max inline data"):
                return [*problems, Problem(f"{name!r} is {' and '.join(map(lib.shown, values))}: several runs mixed")]
    missing = [name for name in HEAD if name not in main.fields and not (name == "Device" and main.old)]
    if missing:
        problems.append(Problem(f"{', '.join(missing)} not told: the head is missing or cut", usable=True, head=True))
    return [*problems, *_of_addresses(run)]


def _of_addresses(run: Run) -> list[Problem]:
    main = run.main
    sides = 2 if run.mixed else 1
    local, remote = main.names("local").total(), main.names("remote").total()
    qps = main.told("Number of qps")
    wanted = int(qps) * sides if qps.isdigit() and main.told("Connection type") in _SINGLE else None
    if not local or local != remote or (wanted and local != wanted):
        return [Problem(f"the addresses of both sides are not told: {local} local, {remote} remote", usable=True,
                        head=True)]
    if main.told("Link type") == "Ethernet" and len(main.gids) != local + remote:
        return [Problem(f"{len(main.gids)} GIDs for {local + remote} addresses", usable=True, head=True)]
    return _of_link(main)


def _of_link(main: Section) -> list[Problem]:
    """InfiniBand has LIDs that are not 0, and Ethernet has none."""
    lids = [end.lid for end in main.ends]
    zero = [set(lid.removeprefix("0x")) <= {"0"} for lid in lids]
    link, medium = main.told("Link type"), (transport_of(main) or "").split(" ")[0]
    if (link == "Ethernet" and not all(zero)) or (medium == "IB" and any(zero)) or link not in ("", "IB", "Ethernet"):
        return [Problem(f"Link type {lib.shown(link)} with LID {', '.join(dict.fromkeys(map(lib.shown, lids)))}")]
    return []


def loopback(run: Run) -> str:
    if run.hosts() != 1:
        return ""
    ports = run.main.ports("local")
    what = "LID" if any(end.real_lid for end in run.main.ends) else "GID"
    return f"loopback: local and remote {what} are both {', '.join(sorted(ports))}"


def transport_of(section: Section, *, same_port: str = "") -> str | None:
    """"RoCE (device mlx5_0, RC, Link type Ethernet, GID index 3)". "Transport type : IB" is said of RoCE too."""
    link, device, connection = (section.told(name) for name in ("Link type", "Device", "Connection type"))
    if connection == "SRD" or device.startswith(("efa", "rdmap")):
        name = "EFA"
    elif section.told("Transport type") == "IW":
        name = "iWARP"
    else:
        name = {"Ethernet": "RoCE", "IB": "IB"}.get(link, "")
    if not name:
        return None
    gid = section.told("GID index")
    parts = [f"device {device}" if device else "", connection, f"Link type {link}", f"GID index {gid}" if gid else "",
             "rdma_cm" if section.told("rdma_cm QPs") == "ON" else ""]
    return lib.shown(f"{name} ({', '.join(p for p in parts if p)})" + (f", {same_port}" if same_port else ""))
