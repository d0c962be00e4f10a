"""SMBIOS tables as firmware writes them, so that the real dmidecode can be asked about machines that are not here."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

DMIDECODE = shutil.which("dmidecode", path="/usr/sbin:/sbin:/usr/bin:/usr/local/sbin")
KINDS = {"DDR4": 0x1A, "DDR5": 0x22, "DDR3": 0x18}


@dataclass(frozen=True)
class Module:
    locator: str
    bank: str = ""
    size_mib: int = 0                # 0: nothing is plugged in
    kind: str = "DDR5"
    speed: int = 0
    configured: int = 0
    maker: str = ""
    serial: str = ""
    part: str = ""


def structure(kind: int, handle: int, body: bytes, strings: list[str]) -> bytes:
    text = b"".join(string.encode() + b"\0" for string in strings if string) or b"\0"
    return struct.pack("<BBH", kind, len(body) + 4, handle) + body + text + b"\0"


def _numbers(strings: list[str]) -> list[int]:
    """Each string's number in the structure; 0 for an empty one."""
    numbers, count = [], 0
    for string in strings:
        count += bool(string)
        numbers.append(count if string else 0)
    return numbers


def system(vendor: str, product: str, serial: str, uuid: bytes = bytes(range(16))) -> bytes:
    names = [vendor, product, "1.0", serial, "SKU-1", "Family"]
    n = _numbers(names)
    bios = ["Example BIOS", "2.1a", "12/15/2025"]
    board = [vendor, "X1-BOARD", "1.02", "B-" + serial]
    chassis = [vendor, "1.0", "C-" + serial, "asset"]
    return (structure(0, 0, struct.pack("<BBHBBQBBBBBB", 1, 2, 0xE000, 3, 0xFF, 0x08, 3, 0x0D, 2, 1, 0xFF, 0xFF), bios)
            + structure(1, 1, struct.pack("<BBBB16sBBB", *n[:4], uuid, 6, *n[4:]), names)
            + structure(2, 2, struct.pack("<BBBB", 1, 2, 3, 4), board)
            + structure(3, 3, struct.pack("<BBBBBBBBB", 1, 23, 2, 3, 4, 3, 3, 3, 3), chassis))


def memory(modules: list[Module], slots: int | None = None) -> bytes:
    count = len(modules) if slots is None else slots
    found = structure(16, 0x1000, struct.pack("<BBBIHHQ", 3, 3, 6, 0x80000000, 0xFFFE, count, 8 << 40), [])
    for number, module in enumerate(modules):
        filled = module.size_mib > 0
        strings = [module.locator, module.bank, module.maker if filled else "NO DIMM",
                   module.serial if filled else "NO DIMM", "", module.part if filled else "NO DIMM"]
        n = _numbers(strings)
        size = module.size_mib if module.size_mib < 0x7FFF else 0x7FFF
        found += structure(17, 0x1100 + number, struct.pack(
            "<HHHHHBBBBBHHBBBBBIH", 0x1000, 0xFFFE, 80 if filled else 0, 64 if filled else 0, size, 9, 0, n[0], n[1],
            KINDS[module.kind] if filled else 2, 0x80, module.speed, n[2], n[3], n[4], n[5], 2, module.size_mib,
            module.configured), strings)
    return found


def decoded(folder: Path, tables: bytes, *options: str) -> str:
    """What the real dmidecode prints of the tables."""
    tables += structure(127, 0x7F00, b"", [])
    entry = bytearray(struct.pack("<5sBBBBBBBIQ", b"_SM3_", 0, 24, 3, 3, 0, 1, 0, len(tables), 32))
    entry[5] = -sum(entry) & 0xFF
    path = folder / "smbios.bin"
    path.write_bytes(bytes(entry).ljust(32, b"\0") + tables)
    command = [DMIDECODE or "dmidecode", "--from-dump", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout
