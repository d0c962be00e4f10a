"""Replacements for what identifies a site: the same for the same value, of the same form, and never two alike."""

from __future__ import annotations

import hashlib
import hmac
import re
import string
from ipaddress import IPv4Address, IPv6Address

_RUN = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]")
_ADDRESS_NAME = re.compile(r"([A-Za-z]{1,20}-)([0-9]{1,3})-([0-9]{1,3})-([0-9]{1,3})-([0-9]{1,3})((?![0-9]).*)\Z")
# What a name says of a machine's part in the cluster says nothing of the site, and is read by programs: it stays.
_ROLE = re.compile(r"(ufm|mgmt|mgt|manage|admin|head|login|master|gateway|router|storage|subnet|opensm|leaf|spine|core|"
                   r"super)", re.IGNORECASE)
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
# Nobody's: networks that mean the same everywhere, and what stands for "none".
_KEPT_V4 = re.compile(r"(?:0\.|127\.|255\.|22[4-9]\.|23[0-9]\.|24[0-9]\.|25[0-4]\.)")


class Pseudonyms:
    """key: whoever has it and a value can tell its replacement; without it nothing leads back."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._found: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()

    def _bits(self, kind: str, value: str, attempt: int) -> int:
        text = f"{kind}\0{attempt}\0{value}".encode("utf-8", "surrogateescape")
        return int.from_bytes(hmac.new(self._key, text, hashlib.sha256).digest(), "big")

    def _once(self, kind: str, value: str, size: int) -> int:
        """A number below `size` that no other value of the kind has, while there are any."""
        found = self._found.get((kind, value))
        if found is not None:
            return int(found)
        number = self._bits(kind, value, 0) % size
        attempt = 0
        while (kind, str(number)) in self._taken and attempt < size:
            attempt += 1
            number = (number + 1) % size if attempt > 64 else self._bits(kind, value, attempt) % size
        self._taken.add((kind, str(number)))
        self._found[kind, value] = str(number)
        return number

    def _text(self, kind: str, value: str, make: str) -> str:
        """`make` is a pattern of digits and letters, each replaced by one of its kind."""
        found = self._found.get((kind, value))
        if found is not None:
            return found
        attempt = 0
        while True:
            bits = self._bits(kind, value, attempt)
            result = _like(make, bits)
            attempt += 1
            if ((kind, result) not in self._taken and result != value) or attempt > 1000:
                break
        self._taken.add((kind, result))
        self._found[kind, value] = result
        return result

    def serial(self, value: str) -> str:
        """Same length, digits for digits, letters for letters."""
        return self._text("serial", value, value)

    def number(self, value: str) -> str:
        """As many hexadecimal digits, in the value's own case."""
        made = f"{self._once('number', value.lower(), 16 ** len(value)):0{len(value)}x}"
        return made.upper() if value.upper() == value and value.lower() != value else made

    def uuid(self, value: str) -> str:
        """With or without its dashes, in its own case; one of zeros stays."""
        plain = value.replace("-", "").lower()
        if not plain.strip("0") or not plain.strip("f"):
            return value
        number = f"{self._once('uuid', plain, 1 << 128):032x}"
        digits = iter(number.upper() if value.upper() == value and value.lower() != value else number)
        return "".join("-" if char == "-" else next(digits) for char in value)

    def guid(self, value: int) -> int:
        """Of 64 bits: the maker's part (24 or 40 bits) stays, and so do the last four, which count a card's ports."""
        if value in (0, (1 << 64) - 1) or value >> 8 == 0:
            return value
        tail = self._once(f"guid {value >> 24:x}", f"{value >> 4 & 0xfffff:x}", 1 << 20)
        return value >> 24 << 24 | tail << 4 | value & 0xf

    def mac(self, value: int) -> int:
        if value in (0, (1 << 48) - 1) or value >> 40 & 1:
            return value
        tail = self._once(f"mac {value >> 24:x}", f"{value >> 4 & 0xfffff:x}", 1 << 20)
        return value >> 24 << 24 | tail << 4 | value & 0xf

    def ipv4(self, value: str) -> str:
        """Addresses of one /24 stay together; what belongs to nobody stays."""
        if _KEPT_V4.match(value):
            return value
        net, _, host = value.rpartition(".")
        number = self._once("net", net, 1 << 16)
        last = int(host) if host in ("0", "255") else 1 + self._once(f"host {net}", host, 254)
        return str(IPv4Address(10 << 24 | number << 8 | last))

    def ipv6(self, address: IPv6Address) -> IPv6Address:
        number = int(address)
        if number < 1 << 32 or address.is_multicast:
            return address
        if address.ipv4_mapped:
            return IPv6Address(0xffff << 32 | int(IPv4Address(self.ipv4(str(address.ipv4_mapped)))))
        low = number & (1 << 64) - 1
        if number >> 64 in (0, 0xfe80 << 48):
            return IPv6Address(number >> 64 << 64 | self._interface(low))
        net = self._once("net6", f"{number >> 64:x}", 1 << 32)
        return IPv6Address(0x20010db8 << 96 | net << 64 | self._interface(low))

    def _interface(self, low: int) -> int:
        # fe80::2eb:d3ff:fe1a:2b3c is made of a MAC, and its replacement of the MAC's replacement.
        if low >> 24 & 0xffff == 0xfffe:
            mac = self.mac((low >> 40 ^ 0x020000) << 24 | low & 0xffffff)
            return (mac >> 24 ^ 0x020000) << 40 | 0xfffe << 24 | mac & 0xffffff
        return self.guid(low)

    def host(self, name: str) -> str:
        """Letters are replaced run by run, numbers stay: what folds (node[01-04]) still folds."""
        address = _ADDRESS_NAME.match(name)
        if address:                              # ip-10-0-0-1
            name = f"{address[1]}{self.ipv4('.'.join(address.groups()[1:5])).replace('.', '-')}{address[6]}"
        return "".join(self._run(run) if run.isalpha() else run for run in _RUN.findall(name))

    def _run(self, run: str) -> str:
        parts = _ROLE.split(run)
        if not any(parts[0::2]):
            parts[0] = run                        # a role and nothing else gets a word of its own
        return "".join(self._word(part) if number % 2 == 0 and part else part for number, part in enumerate(parts))

    def _word(self, run: str) -> str:
        lower = run.lower()
        length = max(3, len(lower))
        found = self._found.get(("word", lower))
        attempt = 0
        while found is None:
            bits = self._bits("word", lower, attempt)
            letters = []
            for at in range(length):
                choices = _VOWELS if at % 2 else _CONSONANTS
                bits, at_choice = divmod(bits, len(choices))
                letters.append(choices[at_choice])
            word = "".join(letters)
            attempt += 1
            if (("word", word) not in self._taken and word != lower and not _ROLE.search(word)) or attempt > 5000:
                self._taken.add(("word", word))
                found = self._found["word", lower] = word
        return found.upper() if run.isupper() else found

    def domain(self, name: str) -> str:
        return f"d{self._once('domain', name.lower(), 1 << 24):x}.example"

    def user(self, name: str) -> str:
        return f"user{self._once('user', name, 10_000):04d}"


def _like(pattern: str, bits: int) -> str:
    made = []
    first = True
    for char in pattern:
        if char.isdigit() and char.isascii():
            # A leading zero would change how a number reads; and a number stays one.
            choices = "123456789" if first and char != "0" else string.digits
        elif char.isalpha() and char.isascii():
            choices = string.ascii_uppercase if char.isupper() else string.ascii_lowercase
        else:
            made.append(char)
            continue
        # Enough for any length: the number is mixed again when it runs dry.
        if bits < 1 << 16:
            again = f"{bits} {len(made)} {pattern}".encode("utf-8", "replace")
            bits = int.from_bytes(hashlib.sha256(again).digest(), "big")
        bits, at = divmod(bits, len(choices))
        made.append(choices[at])
        first = False
    return "".join(made)
