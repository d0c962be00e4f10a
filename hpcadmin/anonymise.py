"""Captures made safe to give away: what names a site, its machines, its people and its parts is replaced, the same
value by the same replacement in all texts, so that they still say the same of the hardware.

Kept: PCI addresses, CPU lists, versions, models, part numbers, InfiniBand LIDs, times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import PurePosixPath

from hpcadmin.pseudonyms import Pseudonyms

_H = "[0-9a-fA-F]"
_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,8}"
_LIST = r"[A-Za-z][A-Za-z0-9_.,\[\]-]{0,2000}"
_SHORT = rf"(?<![\w.:/-])({_NAME})(?![\w/-])"
# Where host names are, each with the name in group 1.
_HOSTS = tuple(re.compile(pattern, flags) for pattern, flags in (
    (rf"^Linux ({_NAME}) [0-9]+\.[0-9]+", re.MULTILINE),
    # uname -nrm, in our own captures
    (rf"^({_NAME}) [0-9]+\.[0-9]+[^\s]* (?:x86_64|aarch64|ppc64le|riscv64|loongarch64|s390x)\s*$", re.MULTILINE),
    (rf"\b(?:NodeName|NodeHostName|NodeAddr|SlurmctldHost|ControlMachine|BackupController|AccountingStorageHost|DbdHost|"
     rf"ReqNodeList|NodeList|BatchHost|Nodes|SLURMD_NODENAME|SLURM_JOB_NODELIST|HOSTNAME)=({_LIST})", re.IGNORECASE),
    (rf"(?:^|\s)(?:static )?host_?name\s*[:=]\s*({_NAME})\s*$", re.IGNORECASE | re.MULTILINE),
    (rf"\b(?:sys_?name|system name|host_?name|switch_?name|node_?name)\"?\s*[:=]\s*\"?({_NAME})", re.IGNORECASE),
    (rf"\"(?:node|host|switch|peer|neighbor|neighbour|device|system)\"\s{{0,8}}:\s{{0,8}}\"({_NAME})\"", re.IGNORECASE),
    (rf"name=\"HostName\" value=\"({_NAME})\"", re.IGNORECASE),
    (rf"^(?:\[|\()?[a-z_][a-z0-9_-]{{0,31}}@({_NAME})[: ~][^\n]{{0,80}}?[#$%>]", re.MULTILINE),
    (rf"[\"']({_NAME}) (?:mlx[0-9]_|HCA-|ibp|hfi1_|bnxt_re|irdma|roce)", 0),
    (rf"(?:desc|description|node desc)\s*[=:]\s*[\"']?({_NAME}) (?:mlx[0-9]_|HCA-|ibp|hfi1_)", re.IGNORECASE),
    (rf"\bMF0;({_NAME}):", 0),
    (rf"^({_NAME}):/[^\s]* /", re.MULTILINE),                                       # NFS in /proc/mounts
    (rf"^({_NAME}):/[^\s]* on /", re.MULTILINE),
    (rf"^(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}\s+({_NAME})\s", re.MULTILINE),          # /etc/hosts
    (rf"^({_NAME}): (?:mlx[0-9]_|CPU|GPU|Socket)", re.MULTILINE),                    # put before lines by pdsh, clush
))
_USERS = tuple(re.compile(pattern, re.MULTILINE) for pattern in (
    r"(?:^|[\s\"'=:(])/(?:home|users|u)/([a-z_][a-z0-9_.-]{0,31})(?=[/\s\"']|$)",
    r"\bUserId=([a-z_][a-z0-9_.-]{0,31})\(", r"\buid=[0-9]+\(([a-z_][a-z0-9_.-]{0,31})\)",
    r"^(?:\[|\()?([a-z_][a-z0-9_-]{0,31})@[A-Za-z][\w.-]{0,200}[: ~][^\n]{0,80}?[#$%>]",
    r"\b(?:user|username|USER|LOGNAME)=([a-z_][a-z0-9_.-]{0,31})\b",
))
_SERIAL_KEY = (r"(?:[A-Za-z_ ]{0,30}serial[ _-]?(?:number|no|num)?|[A-Za-z_ ]{0,24}asset[ _-]?tag|"
               r"\[SN\] Serial number|S/N|service[ _-]?tag|unique[ _-]?id|DMI\w{0,20}(?:Serial|AssetTag)|"
               r"module_id|chassis_serial_number)")
_SERIALS = tuple(re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in (
    rf"(?<![A-Za-z_]){_SERIAL_KEY}[ \t]{{0,60}}[:=][ \t]{{0,8}}\"?([A-Za-z0-9/.][^\s\"<>,]{{2,63}})",
    rf"<{_SERIAL_KEY}>\s{{0,8}}([A-Za-z0-9/.][^\s\"<>,]{{2,63}})\s{{0,8}}<",
    rf"\"{_SERIAL_KEY}\"\s{{0,8}}:\s{{0,8}}\"([^\"\s]{{3,64}})\"",
    rf"name=\"{_SERIAL_KEY}\" value=\"([^\"\s]{{3,64}})\"",
    rf"'{_SERIAL_KEY}'\s{{0,8}}:\s{{0,8}}'([^'\s]{{3,64}})'",
    r"(?<![A-Za-z_])(?:SN[ \t]{0,8}[:=]|S/N)[ \t]{0,20}\"?([A-Za-z0-9][^\s\"<>,]{3,63})",
    r"(?<![A-Za-z_])(?:serial (?:number|no)|asset tag)[ \t]{2,60}([A-Za-z0-9][^\s\"<>,]{3,63})",   # mlxvpd's columns
))
_EUI = re.compile(rf"(?:(?:node|port|system|sys|sysimg|ca|switch|image|hca)_?guid|\bguid\b)[^\n]{{0,24}}?(?:0x)?"
                  rf"({_H}{{16}})\b", re.IGNORECASE)
_MAC = re.compile(rf"(?<![\w:-])(?:{_H}{{2}}[:-]){{5}}{_H}{{2}}(?![\w:-])")
_CALLED_MAC = re.compile(rf"\bmac\b[^\n]{{0,24}}?\b(?:0x)?({_H}{{12}})\b", re.IGNORECASE)
_BARE_MAC = re.compile(rf"(?:0[xX])?(?:{_H}{{12}}|{_H}{{4}}\.{_H}{{4}}\.{_H}{{4}})\Z")
_UUID = rf"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}(?!{_H})"
_FORMS = re.compile("|".join((
    rf"(?P<uuid>(?<!{_H}){_UUID})",
    # GPU-, MIG-, S- and H- before what is matched next
    rf"(?P<prefix>(?<![A-Za-z0-9])[A-Za-z]{{1,12}}[-_](?={_UUID}|{_H}{{16}}(?!\w)|(?:{_H}{{2}}:){{5}}{_H}{{2}}\b))",
    rf"(?P<pci>(?<![\w:])(?:{_H}{{4,8}}:)?{_H}{{2}}:{_H}{{2}}\.[0-7](?![\w:]))",
    rf"(?P<ipoib>(?<![\w:])(?:{_H}{{2}}:){{19}}{_H}{{2}}(?![\w:]))",
    rf"(?P<eui>(?<![\w:-])(?:{_H}{{2}}[:-]){{7}}{_H}{{2}}(?![\w:-]))",
    rf"(?P<mac>(?<![\w:-])(?:{_H}{{2}}[:-]){{5}}{_H}{{2}}(?![\w:-]))",
    rf"(?P<quad>(?<![\w:]){_H}{{4}}:{_H}{{4}}:{_H}{{4}}:{_H}{{4}}(?![\w:]))",
    rf"(?P<ipv6>(?<![\w:.])(?=[0-9a-fA-F:]{{0,5}}:)(?:{_H}{{0,4}}:){{2,7}}"
    rf"(?:(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}|{_H}{{0,4}})(?![\w:]))",
    rf"(?P<long>(?<!{_H})(?:0[xX])?{_H}{{16}}(?![\w]))",
    rf"(?P<bare>(?<!\w){_H}{{32}}(?!\w))",
    r"(?P<ipv4>(?<![\w.-])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w-]|\.[0-9]))",
    r"(?P<folded>(?<![\w.-])[A-Za-z][A-Za-z0-9_.-]{0,62}\[[0-9][0-9,-]{0,400}\][A-Za-z0-9_.-]{0,64})",
    r"(?P<word>(?<![A-Za-z0-9])[A-Za-z0-9][A-Za-z0-9_.+-]{0,254})",
)))
_PIECE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.+-]{0,253}[A-Za-z0-9_])?")
_MODEL = re.compile(r"(?:[abhlptv]|gb|gh|mi|rtx)[0-9]+[a-z]*\Z", re.IGNORECASE)
_DIGITS = re.compile("[0-9]+")
_CALLED_SERIAL = re.compile(r"serial|tag|S/N|unique|module_id", re.IGNORECASE)
_VERSION_BEFORE = re.compile(r"(?:version|ver|firmware|fw|driver|release|revision|rev|vbios|bios|library|package|image|"
                             r"ofed|weka|gpfs|module_[a-z0-9_]+|inforom)[^\n0-9]{0,24}\Z", re.IGNORECASE)
_NUMA_AROUND = (re.compile(r"(?:NUMA |/node/)\Z", re.IGNORECASE),
                re.compile(r" CPU\(s\):"))
_GUID_LINE = re.compile(r"guid|gid\b|\b[SHR]-[0-9a-f]{16}|unique[_ ]id", re.IGNORECASE)
_MEMORY_LINE = re.compile(r"memory|mask|address|region|flags|\bbar", re.IGNORECASE)
_MELLANOX = re.compile(rf"{_H}{{6}}0300{_H}{{6}}\Z")
_DOMAIN = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.(?:com|org|net|edu|gov|mil|local|lan|internal|intranet|"
                     r"corp|localdomain|cluster|hpc|ac|uk|de|fr|it|es|nl|be|ch|at|se|no|fi|dk|pl|cz|eu|ca|us|jp|cn|kr|au|in|br|"
                     r"ru|sg|tw|gr|pt|ie)\Z")
# The vendors' own, in messages and schemas of their tools.
_PUBLIC = ("nvidia.com", "open-mpi.org", "kernel.org", "redhat.com", "amd.com", "intel.com", "mellanox.com",
           "schedmd.com", "w3.org", "ubuntu.com", "debian.org", "pciutils.org", "github.com",
           "openfabrics.org", "lbl.gov", "dell.com")
_NO_HOST = frozenset((
    "localhost", "localhost4", "localhost6", "localdomain", "linux", "none", "unknown", "node", "nodes", "gpu", "gpus",
    "cpu", "host", "hostname", "default", "all", "any", "null", "slurm", "nvidia", "mellanox", "switch", "yes", "no",
    "true", "false", "name", "root", "n/a", "auto", "cloud", "dynamic", "future", "down", "up", "idle", "state",
    "ubuntu", "debian", "centos", "rocky", "rhel", "fedora", "sles", "almalinux", "livecd", "server"))
_NO_USER = frozenset(("root", "nobody", "slurm", "munge", "daemon", "bin", "sys", "admin", "user", "users", "ubuntu",
                      "centos", "rocky", "ec2-user", "lost+found"))
_NO_SERIAL = re.compile(r"(?:n/?a|none|unknown|not[ _-].*|no[ _-]?dimm|default.*|to[ _-]be.*|system.*|[0.x_-]*|"
                        r"0?123456789.*|null|empty|number|numbers|true|false|enabled|disabled|supported|\[?n/a\]?|error|access|denied)\Z",
                        re.IGNORECASE)
_DEVICE = re.compile(r"(?:GPU|NIC|mlx[0-9]_|eth|ib|nvme|sd[a-z]|card|renderD|nvidia|cpu|bond|eno|enp|ens|lo|hfi1_|"
                     r"bnxt_re|irdma|dm-|loop|docker|veth|br-?|virbr)[0-9a-z]*\Z")


def anonymise(texts: Mapping[str, str], key: bytes, hosts: Iterable[str] = ()) -> dict[str, str]:
    """The texts by file name, both without what identifies, in the order in which they came. hosts: names that are
    known to be in them.

    With the same key another call gives the same replacements; a key that is thrown away cannot lead back.
    """
    mask = Mask(texts, key, hosts)
    return {mask.path(name): mask.text(text) for name, text in texts.items()}


@dataclass
class _Known:
    """What was seen in places that say what it is."""

    hosts: set[str] = field(default_factory=set)
    shapes: set[str] = field(default_factory=set)        # of hosts, numbers by their width
    prefixes: set[str] = field(default_factory=set)      # of folded lists
    users: set[str] = field(default_factory=set)
    serials: set[str] = field(default_factory=set)
    guids: set[int] = field(default_factory=set)
    macs: set[int] = field(default_factory=set)
    any_case: set[str] = field(default_factory=set)      # hosts that were told to be ones
    domains: set[str] = field(default_factory=set)       # of these
    tokens: set[str] = field(default_factory=set)        # frames of our own captures


class Mask:
    """Reads all texts first, so that a name is known everywhere that is told in one place only."""

    def __init__(self, texts: Mapping[str, str], key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = (),
                 ) -> None:
        """hosts, users: names that are known to be in them; a host's in any case, and with its domain."""
        self._made = Pseudonyms(key)
        self._known = _Known()
        for name in hosts:
            self._add_host(name)
            domain = name.partition(".")[2].lower()
            if "." in domain and not domain.endswith(_PUBLIC):
                self._known.domains.add(domain)
        self._known.any_case = {name.lower() for name in self._known.hosts}
        self._told = {name for name in users if len(name) > 3 and name not in _NO_USER}
        self._known.users.update(name for name in users if name and name not in _NO_USER)
        for name, text in texts.items():
            for part in PurePosixPath(name).parts:
                stem = part.partition(".")[0]
                if "HPCADMIN-CAPTURE" in text or (any(map(str.isdigit, stem)) and not _MODEL.match(stem)):
                    self._add_host(stem)
            self._collect(text)

    def path(self, name: str) -> str:
        """File names are made of node names; what is after the dot says what it is."""
        return "/".join(self.text(part) for part in name.split("/"))

    def text(self, text: str) -> str:
        return _FORMS.sub(self._replaced, text)

    # --- what is there ----------------------------------------------------------------------------------------------

    def _collect(self, text: str) -> None:
        known = self._known
        known.tokens.update(re.findall(r"^HPCADMIN-CAPTURE [0-9]+ ([0-9a-f]{16,64})", text, re.MULTILINE))
        for pattern in _HOSTS:
            for found in pattern.findall(text):
                for name in _listed(found):
                    self._add_host(name)
        for pattern in _USERS:
            known.users.update(name for name in pattern.findall(text) if name not in _NO_USER)
        for pattern in _SERIALS:
            known.serials.update(piece for value in pattern.findall(text) if not _NO_SERIAL.match(value)
                                 for piece in _PIECE.findall(value) if _is_serial(piece))
        known.guids.update(int(value, 16) for value in _EUI.findall(text))
        known.macs.update(int(re.sub("[:-]", "", value), 16) for value in _MAC.findall(text))
        known.macs.update(int(value, 16) for value in _CALLED_MAC.findall(text))

    def _add_host(self, name: str) -> None:
        prefix, bracket, _ = name.partition("[")
        if bracket:
            if len(prefix) > 1:
                self._known.prefixes.add(prefix)
            return
        first = name.partition(".")[0] if not name.replace(".", "").isdigit() else ""
        if len(first) < 2 or first.lower() in _NO_HOST or _DEVICE.match(first) or not first[0].isalpha():
            return
        self._known.hosts.add(first)
        if any(char.isdigit() for char in first):
            self._known.shapes |= _shapes(first)
            self._known.prefixes.add(first.rstrip("0123456789"))

    # --- what becomes of it -----------------------------------------------------------------------------------------

    def _replaced(self, match: re.Match[str]) -> str:
        kind, value = match.lastgroup or "", match[0]
        if kind == "word":
            return self._word(value, match)
        if kind in ("pci", "prefix") or value in self._known.tokens:
            return value
        if kind in ("uuid", "bare"):
            return self._made.uuid(value)
        if kind == "folded":
            prefix = value.partition("[")[0]
            return self._list(value) if self._is_prefix(prefix) else value
        if kind == "ipv4":
            return self._ipv4(value, match)
        if kind == "ipv6":
            return self._ipv6(value)
        if kind == "long":
            return self._long(value, match)
        return self._hardware(kind, value)

    def _hardware(self, kind: str, value: str) -> str:
        """MAC, GUID and IPoIB addresses in groups of digits."""
        digits = re.sub("[:-]", "", value)
        if kind == "mac":
            new = f"{self._made.mac(int(digits, 16)):012x}"
        elif kind == "ipoib":
            new = digits[:-16] + f"{self._made.guid(int(digits[-16:], 16)):016x}"
        elif kind == "eui" and digits[6:10].lower() == "fffe":
            mac = self._made.mac(int(digits[:6] + digits[10:], 16))
            new = f"{mac >> 24:06x}{digits[6:10]}{mac & 0xffffff:06x}"
        else:
            new = f"{self._made.guid(int(digits, 16)):016x}"
        upper = value.upper() == value and value.lower() != value
        source = iter(new.upper() if upper else new)
        return "".join(char if char in ":-" else next(source) for char in value)

    def _long(self, value: str, match: re.Match[str]) -> str:
        """Sixteen digits are a GUID where the line says so, where it was called one before, or by its form."""
        digits = value[2:] if value[:2].lower() == "0x" else value
        number = int(digits, 16)
        swapped = int.from_bytes(number.to_bytes(8, "big"), "little")
        if value in self._known.serials or digits in self._known.serials:
            return value[:-16] + self._made.number(digits)
        line = _line_around(match)
        if swapped in self._known.guids and number not in self._known.guids:
            new = int.from_bytes(self._made.guid(swapped).to_bytes(8, "big"), "little")
        elif number in self._known.guids or _MELLANOX.match(digits) or _GUID_LINE.search(line) or (
                value[1:2] in "xX" and 0 < number >> 40 < 0xffff00 and not _MEMORY_LINE.search(line)):
            new = self._made.guid(number)
        else:
            return value
        text = f"{new:016x}"
        return value[:-16] + (text.upper() if digits.upper() == digits and digits.lower() != digits else text)

    def _ipv4(self, value: str, match: re.Match[str]) -> str:
        parts = value.split(".")
        if any(int(part) > 255 or (len(part) > 1 and part[0] == "0") for part in parts):
            return value
        before = match.string[max(0, match.start() - 60):match.start()].rpartition("\n")[2]
        return value if _VERSION_BEFORE.search(before) else self._made.ipv4(value)

    def _ipv6(self, value: str) -> str:
        try:
            address = IPv6Address(value)
        except ValueError:
            return value
        new = self._made.ipv6(address)
        if new == address:
            return value
        return new.exploded if value.count(":") == 7 and len(value) == 39 else str(new)

    def _word(self, value: str, match: re.Match[str]) -> str:
        known = self._known
        word = value.rstrip(".+-")
        rest = value[len(word):]
        if word in known.serials and (len(word) > 5 or _CALLED_SERIAL.search(_line_around(match))):
            return self._made.serial(word) + rest
        if word in known.tokens:
            return value
        if _BARE_MAC.match(word):
            return self._bare_mac(word) + rest
        if word in self._told or (word in known.users and self._is_user_here(match)):
            return self._made.user(word) + rest
        if _DOMAIN.match(word) and not word.lower().endswith(_PUBLIC):
            first, _, domain = word.partition(".")
            return f"{self._made.host(first)}.{self._made.domain(domain)}{rest}"
        domain = next((d for d in known.domains if f".{word.lower()}".endswith(f".{d}")), "")
        if domain:
            before = word[:-len(domain)].rstrip(".")
            return f"{self._hosts_in(before)}{'.' if before else ''}{self._made.domain(domain)}{rest}"
        if self._is_numa(match):
            return value
        return self._hosts_in(word) + rest

    def _bare_mac(self, word: str) -> str:
        """Twelve digits, as firmware tools print them, or three groups of four, as switches do."""
        prefix = word[:2] if word[1] in "xX" else ""
        groups = word[len(prefix):]
        digits = groups.replace(".", "")
        if int(digits, 16) not in self._known.macs and ("." not in groups or digits.isdecimal()):
            return word                     # of a version, a time, an address in memory
        new = f"{self._made.mac(int(digits, 16)):012x}"
        source = iter(new.upper() if digits.upper() == digits and digits.lower() != digits else new)
        return prefix + "".join(char if char == "." else next(source) for char in groups)

    def _hosts_in(self, word: str) -> str:
        """Host names between dashes, dots and underscores are found too: node01-ib0, slurmd.node01.log."""
        if self._is_host(word):
            return self._made.host(word)
        pieces = re.split(r"([._+-])", word)
        if len(pieces) == 1 or len(pieces) > 24:
            return word
        made: list[str] = []
        at = 0
        while at < len(pieces):
            end = next((end for end in range(len(pieces), at, -1)
                        if (end - at) % 2 and self._is_host("".join(pieces[at:end]))), None)
            if end is None:
                made.append(pieces[at])
                at += 1
            else:
                made.append(self._made.host("".join(pieces[at:end])))
                at = end
        return "".join(made)

    def _is_host(self, word: str) -> bool:
        return word in self._known.hosts or (word.lower() in self._known.any_case and not _DEVICE.match(word)) or (
            word[:1].isalpha() and not word.isalpha() and not self._known.shapes.isdisjoint(_shapes(word))
            and not _DEVICE.match(word))

    def _is_prefix(self, prefix: str) -> bool:
        return prefix in self._known.prefixes and not _DEVICE.match(prefix)

    def _list(self, value: str) -> str:
        prefix, _, rest = value.partition("[")
        ranges, _, suffix = rest.partition("]")
        return f"{self._made.host(prefix)}[{ranges}]{self._made.host(suffix) if suffix else ''}"

    @staticmethod
    def _is_user_here(match: re.Match[str]) -> bool:
        """A user's name may be any word: it is replaced in paths, before @, and where it is called a user."""
        before = match.string[max(0, match.start() - 12):match.start()]
        after = match.string[match.end():match.end() + 1]
        return before.endswith(("/", "(", "=")) or after in ("@", "(") or "user" in before.lower()

    @staticmethod
    def _is_numa(match: re.Match[str]) -> bool:
        if not match[0].lower().startswith("node"):
            return False
        before, after = _NUMA_AROUND
        return bool(before.search(match.string, max(0, match.start() - 16), match.start())
                    or after.match(match.string, match.end()))


def _listed(found: str) -> Iterator[str]:
    """The names of a list such as a1,b[01-04],c2."""
    depth, start = 0, 0
    for at, char in enumerate(found):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            yield found[start:at]
            start = at + 1
    yield found[start:]


def _shapes(name: str) -> set[str]:
    """node## for node01, node## and node# for node17: names of the same form belong to the same series."""
    padded = any(len(run) > 1 and run[0] == "0" for run in _DIGITS.findall(name))
    return {_DIGITS.sub(lambda match: "#" * len(match[0]), name), *(() if padded else (_DIGITS.sub("#", name),))}


def _is_serial(piece: str) -> bool:
    return len(piece) > 2 and not _NO_SERIAL.match(piece) and any(char.isdigit() for char in piece)


def _line_around(match: re.Match[str]) -> str:
    text = match.string
    start = max(text.rfind("\n", 0, match.start()) + 1, match.start() - 200)
    end = text.find("\n", match.end())
    return text[start:min(end if end >= 0 else len(text), match.end() + 200)]
