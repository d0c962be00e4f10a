"""What this node is made of, as flat names and values: to be compared with what was accepted. Files alone, no tool."""

from hpcadmin.health.node import smbios
from hpcadmin.health.node.api import NoAnswer, plain

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door

PCI = "/sys/bus/pci/devices"
# Display and accelerators, network, InfiniBand, NVMe, storage controllers.
CLASSES = ("0x0300", "0x0302", "0x1200", "0x0200", "0x0207", "0x0280", "0x0108", "0x0104", "0x0107")
STEADY = ("0x0200", "0x0207", "0x0280", "0x0108", "0x0104", "0x0107")
BOARD = (("bios.version", 0, 0x05), ("system.product", 1, 0x05), ("system.serial", 1, 0x07), ("board.serial", 2, 0x07))


def collect(door: "Door", untold: "dict[str, str] | None" = None) -> "dict[str, str | int]":
    """Name -> value. untold: which families (dimm, pci, ...) could not be read, and why: nothing is gone by that."""
    found = {}  # type: dict[str, str | int]
    parts = ((_cpu, "cpu"), (_memory, "memory"), (_board, "bios system board dimm"), (_pci, "pci"), (_network, "net"),
             (_infiniband, "ib"), (_gpus, "gpu"), (_disks, "nvme disk"))
    for part, families in parts:
        try:
            found.update({name: value for name, value in part(door).items() if value not in ("", None)})
        except (NoAnswer, OSError) as exc:
            for family in families.split() if untold is not None else ():
                untold[family] = plain(exc)  # type: ignore[index]
    return found


def _cpu(door: "Door") -> "dict[str, str | int]":
    cpus = door.cpus()
    found = {"cpu.sockets": cpus.sockets, "cpu.cores": cpus.cores, "cpu.threads": cpus.threads}  # type: dict[str, str | int]
    head = door.data("/proc/cpuinfo", 4096).decode("utf-8", "replace")
    for line in head.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "microcode"):
            found.setdefault("cpu." + name.strip().split()[0], value.strip())
    return found


def _memory(door: "Door") -> "dict[str, str | int]":
    return {"memory.mib": door.meminfo()["MemTotal"] // 1024}


def _board(door: "Door") -> "dict[str, str | int]":
    structures = smbios.read(door)
    found = {}  # type: dict[str, str | int]
    for name, kind, at in BOARD:
        for one in structures:
            if one.type == kind:
                found.setdefault(name, one.string(at))
    for dimm in smbios.dimms(structures)[0]:
        place = "dimm.%s." % dimm.place.replace(" ", "_")
        found.update({place + "mib": dimm.mib, place + "part": dimm.part, place + "serial": dimm.serial,
                      place + "mts": dimm.mts})
    return found


def _pci(door: "Door") -> "dict[str, str | int]":
    found = {}  # type: dict[str, str | int]
    if not door.names(PCI):
        raise NoAnswer("%s is empty" % PCI)
    for device in door.names(PCI):
        place = "%s/%s/" % (PCI, device)
        kind = door.word(place + "class")[:6]
        if kind not in CLASSES or door.exists(place + "physfn"):    # virtual functions come and go
            continue
        found["pci.%s.id" % device] = "%s:%s" % (door.word(place + "vendor")[2:], door.word(place + "device")[2:])
        width = door.word(place + "current_link_width")
        if width.isdecimal() and 0 < int(width) <= 32:              # 63: the device does not answer, or sleeps
            found["pci.%s.width" % device] = int(width)
        # GPUs go slower when they rest; cards and disks do not.
        speed = door.word(place + "current_link_speed").split(" ")[0]
        if kind in STEADY and speed.replace(".", "", 1).isdecimal():
            found["pci.%s.speed" % device] = int(float(speed) * 1000)
    return found


def _network(door: "Door") -> "dict[str, str | int]":
    found = {}  # type: dict[str, str | int]
    for name in door.names("/sys/class/net"):
        place = "/sys/class/net/%s/" % name
        if door.exists(place + "device"):
            # The address of a port of a bond is the bond's: the permanent one is kept beside it.
            found["net.%s.mac" % name] = door.word(place + "bonding_slave/perm_hwaddr") or door.word(place + "address")
    return found


def _infiniband(door: "Door") -> "dict[str, str | int]":
    found = {}  # type: dict[str, str | int]
    for name in door.names("/sys/class/infiniband"):
        place = "/sys/class/infiniband/%s/" % name
        found.update({"ib.%s.firmware" % name: door.word(place + "fw_ver"),
                      "ib.%s.guid" % name: door.word(place + "node_guid"), "ib.%s.board" % name: door.word(
                          place + "board_id")})
    return found


def _gpus(door: "Door") -> "dict[str, str | int]":
    found = {}  # type: dict[str, str | int]
    for address in door.names("/proc/driver/nvidia/gpus"):
        told = {}
        for line in door.lines("/proc/driver/nvidia/gpus/%s/information" % address):
            name, _, value = line.partition(":")
            told[name.strip()] = value.strip()
        place = "gpu.%s." % address
        for key, name in (("model", "Model"), ("uuid", "GPU UUID"), ("vbios", "Video BIOS")):
            value = told.get(name, "")
            found[place + key] = "" if "?" in value else value  # written as ?? until the driver has talked to it
    return found


def _disks(door: "Door") -> "dict[str, str | int]":
    found = {}  # type: dict[str, str | int]
    for name in door.names("/sys/class/nvme"):
        place = "/sys/class/nvme/%s/" % name
        if door.word(place + "transport") not in ("", "pcie"):      # over the network: a server's
            continue
        # nvme0 and nvme1 change places from boot to boot; their slots do not.
        slot = "nvme.%s." % (door.word(place + "address") or name)
        found.update({slot + "model": door.word(place + "model"), slot + "serial": door.word(place + "serial"),
                      slot + "firmware": door.word(place + "firmware_rev")})
    for name in door.names("/sys/block"):
        place = "/sys/block/%s/" % name
        sectors = door.number(place + "size")
        if name[:2] != "sd" or not sectors or door.word(place + "removable") == "1":
            continue
        known_as = door.word(place + "device/wwid") or door.word(place + "wwid") or name
        found["disk.%s.sectors" % "_".join(known_as.split())] = sectors
    return found
