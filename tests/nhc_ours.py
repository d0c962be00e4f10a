"""What our own checks look at on the machine of tests/nhc_machine.py, made of what NHC's looked at."""

import re
from pathlib import Path

import nhc_machine

STATES = {"LISTEN": "0A", "ESTAB": "01", "UNCONN": "07"}
MOUNTED = ("home", "tmp", "var", "local", "scratch", "opt/apps", "mnt/with blank")


class OursDoor(nhc_machine.TableDoor):
    """Users have names here, and what is no mount has no size."""

    def user(self, uid: int) -> str:
        for line in (Path(self.root) / "etc/passwd").read_text().split("\n"):
            words = line.split(":")
            if len(words) > 2 and words[2] == str(uid):
                return words[0]
        return str(uid)

    def statvfs(self, path: str) -> "nhc_machine.os.statvfs_result":
        if path not in self.sizes:
            raise FileNotFoundError(2, "No such file or directory", path)
        return super().statvfs(path)


def complete(root: Path) -> None:
    _cpus(root)
    _sockets(root)
    for folder in MOUNTED:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("lo", "eno1", "ib0"):
        place = root / "sys/class/net" / name
        place.mkdir(parents=True)
        for file, text in (("mtu", "1500"), ("operstate", "up"), ("carrier", "1")):
            (place / file).write_text(text + "\n")
    for port in root.glob("sys/class/infiniband/*/ports/*"):
        (port / "link_layer").write_text("InfiniBand\n")
    log = root / "commands/.dmesg"
    records = re.findall(r"^\[ *([\d.]+)\] (.*)$", log.read_text() if log.exists() else "", re.MULTILINE)
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/kmsg").write_text("".join(f"6,{number},{float(moment) * 1e6:.0f},-;{text}\n"
                                           for number, (moment, text) in enumerate(records)))


def _cpus(root: Path) -> None:
    """The topology of /proc/cpuinfo as /sys has it."""
    path = root / "proc/cpuinfo"
    blocks = path.read_text().strip().split("\n\n") if path.exists() else []
    cpus = []
    for block in blocks:
        words = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.split("\n"))}
        if "processor" in words:
            cpus.append((words["processor"], words.get("physical id", "0"), words.get("core id", words["processor"])))
    for number, package, core in cpus:
        place = root / f"sys/devices/system/cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "package_cpus_list").write_text(",".join(c[0] for c in cpus if c[1] == package) + "\n")
        (place / "core_cpus_list").write_text(",".join(c[0] for c in cpus if c[1:] == (package, core)) + "\n")
    for file in ("online", "present") if cpus else ():
        (root / "sys/devices/system/cpu" / file).write_text(f"0-{len(cpus) - 1}\n")


def _sockets(root: Path) -> None:
    """What ss printed, as the kernel has it; the processes that have them."""
    listed = root / "commands/.ss"
    tables: dict[str, list[str]] = {"tcp": [], "udp": [], "unix": []}
    for line in listed.read_text().split("\n")[1:] if listed.exists() else ():
        words = line.split()
        if not words:
            continue
        inode, uid = (match[1] if match else other for match, other in (
            (re.search(r"ino:(\d+)", line), "0"), (re.search(r"uid:(\d+)", line), "0")))
        owner = re.search(r"pid=(\d+),fd=(\d+)", line)
        if owner and inode != "0" and (root / "proc" / owner[1]).exists():
            (root / "proc" / owner[1] / "fd").mkdir(exist_ok=True)
            (root / "proc" / owner[1] / "fd" / owner[2]).symlink_to(f"socket:[{inode}]")
        if words[0] in tables:
            ends = f"{_hexadecimal(words[4])} {_hexadecimal(words[5])}"
            tables[words[0]].append(f"0: {ends} {STATES[words[1]]} 0:0 00:0 0 {uid} 0 {inode} 1")
        else:
            tables["unix"].append(f"0: 00000002 00000000 00010000 0001 01 {words[5]} {words[4]}")
    for name, lines in tables.items():
        (root / "proc/net" / name).write_text("\n".join(["head", *lines]) + "\n")


def _hexadecimal(address: str) -> str:
    host, _, port = address.rpartition(":")
    octets = [int(word) for word in host.split(".")] if host != "*" else [0] * 4
    return "".join(f"{octet:02X}" for octet in reversed(octets)) + f":{int(port) if port != '*' else 0:04X}"
