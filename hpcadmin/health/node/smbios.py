"""DIMMs and boards from the raw SMBIOS table that the kernel shows: no dmidecode, no /dev/mem."""

from hpcadmin.health.node.api import NoAnswer

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door

TABLE = "/sys/firmware/dmi/tables/DMI"
MAX_STRUCTURES = 4096
KINDS = {0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1a: "DDR4", 0x1e: "LPDDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5",
         0x23: "LPDDR5", 0x24: "HBM3"}
PLACEHOLDERS = ("", "Not Specified", "Unknown", "NO DIMM", "None", "Default string", "To Be Filled By O.E.M.")


class Structure:
    """One structure: type, bytes of its fixed part, strings."""

    __slots__ = ("data", "strings", "type")

    def __init__(self, kind: int, data: bytes, strings: "list[str]") -> None:
        self.type, self.data, self.strings = kind, data, strings

    def number(self, at: int, size: int) -> "int | None":
        """Little-endian; None if this version of the structure ends before it."""
        return int.from_bytes(self.data[at:at + size], "little") if at + size <= len(self.data) else None

    def string(self, at: int) -> str:
        index = self.number(at, 1) or 0
        text = self.strings[index - 1].strip() if 0 < index <= len(self.strings) else ""
        return "" if text in PLACEHOLDERS else text


class Dimm:
    """One socket with a module in it."""

    __slots__ = ("kind", "manufacturer", "mib", "mts", "part", "place", "rated_mts", "serial")

    def __init__(self, one: Structure) -> None:
        self.place = one.string(0x10) or one.string(0x11) or "?"
        self.mib = size_mib(one) or 0
        self.kind = KINDS.get(one.number(0x12, 1) or 0, "?")
        self.manufacturer, self.serial, self.part = one.string(0x17), one.string(0x18), one.string(0x1a)
        self.rated_mts = _speed(one, 0x15, 0x54)
        self.mts = _speed(one, 0x20, 0x58) or self.rated_mts


def _speed(one: Structure, at: int, extended: int) -> int:
    value = one.number(at, 2) or 0
    return (one.number(extended, 4) or 0) & 0x7FFFFFFF if value == 0xFFFF else value


def size_mib(one: Structure) -> "int | None":
    """0: empty socket, None: the firmware does not know."""
    size = one.number(0x0C, 2)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        return (one.number(0x1C, 4) or 0) & 0x7FFFFFFF
    return (size & 0x7FFF) // 1024 if size & 0x8000 else size


def structures(table: bytes) -> "list[Structure]":
    """All structures up to the end mark; a length that does not fit ends the table."""
    found = []  # type: list[Structure]
    at = 0
    while at + 4 <= len(table) and len(found) < MAX_STRUCTURES:
        kind, length = table[at], table[at + 1]
        if length < 4 or kind == 127:
            break
        end = table.find(b"\0\0", at + length)
        if end < 0:
            break
        raw = table[at + length:end]
        strings = [piece.decode("latin-1") for piece in raw.split(b"\0")] if raw else []
        found.append(Structure(kind, table[at:at + length], strings))
        at = end + 2
    return found


def whole(table: bytes) -> bool:
    """Whether the table goes on to its end mark, or at least ends with a structure."""
    at = 0
    while at + 4 <= len(table):
        if table[at] == 127:
            return True
        end = table.find(b"\0\0", at + table[at + 1]) if table[at + 1] >= 4 else -1
        if end < 0:
            return False
        at = end + 2
    return at == len(table) and at > 0


def read(door: "Door") -> "list[Structure]":
    def make() -> "list[Structure]":
        try:
            table = door.data(TABLE, 1 << 20)
        except OSError as exc:
            raise NoAnswer("%s: %s" % (TABLE, exc.strerror)) from exc
        if not whole(table):
            raise NoAnswer("%s is cut off" % TABLE)
        return structures(table)
    return door.once("smbios", make)  # type: ignore[no-any-return]


def unsized(found: "list[Structure]") -> int:
    """Sockets of which the firmware does not know what is in them."""
    return sum(one.type == 17 and size_mib(one) is None for one in found)


def dimms(found: "list[Structure]") -> "tuple[list[Dimm], int]":
    """The modules, and how many sockets there are."""
    sockets = [one for one in found if one.type == 17]
    return [Dimm(one) for one in sockets if size_mib(one)], len(sockets)
