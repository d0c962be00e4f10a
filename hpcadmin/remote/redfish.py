"""What a BMC tells over Redfish: firmware, power supplies, fans, event log, and the BIOS settings that matter.

HTTPS only, the certificate checked unless the caller says otherwise, the password from a file that only its owner may
read, no proxy, no way off the BMC that was asked, answers bounded in size and number.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from hpcadmin.errors import RemoteError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.model import Bmc
from hpcadmin.text import printable

MAX_ANSWER = 4 * 1024 * 1024
MAX_REQUESTS = 120
MAX_EVENTS = 20
_PATH = re.compile(r"/redfish/[A-Za-z0-9_.~%/()'-]{0,1000}(?:\?[$A-Za-z0-9_=&-]{0,100})?\Z")
# BIOS attributes by what they decide; vendors name them as they like.
_SETTINGS = {
    "SMT": re.compile(r"(?:smt|hyper-?thread|logicalproc|lpenable|simultaneousmulti)", re.IGNORECASE),
    "NPS": re.compile(r"(?:numanodesperso|numapersocket|\bnps|cbsdf\w*nps|dfcmndramnps)", re.IGNORECASE),
    "SNC": re.compile(r"(?:subnuma|snc|clusteringmode)", re.IGNORECASE),
    "ACS": re.compile(r"(?:acs(?:enable|control|support)?$|acsenable|pciacs|accesscontrolserv)", re.IGNORECASE),
    "IOMMU": re.compile(r"(?:iommu|vtd$|vt-?d|vtforio|procvirtualization|intelvt)", re.IGNORECASE),
    "power profile": re.compile(r"(?:sysprofile$|workloadprofile|powerprofile|operatingmode|determinism)",
                                re.IGNORECASE),
}
Get = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class RedfishFacts:
    """missing: what the BMC did not answer, each with the reason. system: serial, uuid, bios, … as it tells them."""

    bmc: Bmc
    system: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def credentials(path: Path) -> Credentials:
    """From a file of two lines, user=NAME and password=SECRET, that nobody but its owner may read."""
    text = read_bounded(path, limit=4096).decode("utf-8", "replace")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UsageError("others may read the password", where=str(path), hint=f"chmod 600 {path}")
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    user, password = values.get("user", "").strip(), values.get("password", "")
    if not user or not password:
        raise UsageError("has no lines user=NAME and password=SECRET", where=str(path))
    return Credentials(user, password)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the password somewhere else."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Redfish:
    """One BMC. address: name or address, with a port if it is another than 443."""

    def __init__(self, address: str, login: Credentials, *, ca_file: Path | None = None, verify: bool = True,
                 timeout_s: float = 10.0, overall_s: float = 60.0) -> None:
        self._base = f"https://{address}"
        parts = urlsplit(self._base)
        if not parts.hostname or not re.match(r"[\w.:\[\]-]+\Z", address):
            raise UsageError(f"{address!r} is not the name or address of a BMC")
        try:
            context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except (OSError, ssl.SSLError) as exc:
            why = exc.strerror if isinstance(exc, FileNotFoundError | PermissionError) else "has no certificates"
            raise UsageError(f"cannot be used: {why}", where=f"[bmc] ca_file {ca_file}") from exc
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect)
        word = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {word}", "Accept": "application/json", "OData-Version": "4.0"}
        self._timeout_s, self._end, self._left = timeout_s, time.monotonic() + overall_s, MAX_REQUESTS
        self.address = address

    def get(self, path: str) -> Mapping[str, Any]:
        """One resource. Raises RemoteError in one line."""
        if not _PATH.match(path) or "/../" in path:
            raise RemoteError(f"{printable(path, limit=80)!r} is not a path of Redfish", where=self.address)
        left = self._end - time.monotonic()
        self._left -= 1
        if left <= 0 or self._left < 0:
            why = "took too long" if left <= 0 else f"more than {MAX_REQUESTS} resources"
            raise RemoteError(why, where=self.address)
        request = urllib.request.Request(urljoin(self._base, path), headers=self._headers)  # noqa: S310  (https only)
        try:
            with self._opener.open(request, timeout=min(self._timeout_s, left)) as answer:
                data = _read(answer, self._end)
        except urllib.error.HTTPError as exc:
            exc.close()
            raise RemoteError(f"{path}: {_status(exc.code)}", where=self.address) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            reason = getattr(exc, "reason", exc)
            if isinstance(reason, TimeoutError):
                why = f"does not answer within {min(self._timeout_s, left):.0f} s"
            else:
                why = printable(str(reason) or type(exc).__name__, limit=200)
            raise RemoteError(why, where=self.address) from exc
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise RemoteError(f"{path}: the answer is not JSON", where=self.address) from exc
        if not isinstance(value, dict):
            raise RemoteError(f"{path}: the answer is not an object", where=self.address)
        return value


def _read(answer: Any, end: float) -> bytes:
    """Piece by piece, so that an answer that drips in cannot outlast the whole time."""
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(65536):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER:
            raise ValueError(f"the answer is larger than {MAX_ANSWER} bytes")
        if time.monotonic() > end:
            raise ValueError("took too long")
    return b"".join(pieces)


def _status(code: int) -> str:
    if code in (401, 403):
        return "the BMC does not accept the user or its password"
    return "there is no such resource" if code == 404 else f"HTTP status {code}"


def read(get: Get) -> RedfishFacts:
    """Everything of interest. Raises RemoteError when not even the root answers; what else fails is in `missing`."""
    tree = _Tree(get)
    root = get("/redfish/v1/")
    systems = tree.members(_link(root, "Systems"), "systems")
    chassis = tree.members(_link(root, "Chassis"), "chassis")
    managers = tree.members(_link(root, "Managers"), "managers")
    system = systems[0] if systems else {}
    psus, fans = tree.power(chassis)
    manager = managers[0] if managers else {}
    bmc = Bmc(
        address=tree.address(manager), firmware=_text(manager, "FirmwareVersion"),
        manufacturer=_text(manager, "Manufacturer") or _text(system, "Manufacturer"), psus=tuple(psus),
        fans=tuple(fans), events=tuple(tree.events([*systems[:1], *managers[:1]])), settings=tree.settings(system),
    )
    told = {"serial": _text(system, "SerialNumber"), "uuid": _text(system, "UUID").lower(),
            "product": _text(system, "Model"), "vendor": _text(system, "Manufacturer"),
            "bios": _text(system, "BiosVersion"), "power": _text(system, "PowerState"), "health": _health(system)}
    return RedfishFacts(bmc, {key: value for key, value in told.items() if value}, tuple(tree.faults),
                        tuple(dict.fromkeys(tree.missing)))


class _Tree:
    def __init__(self, get: Get) -> None:
        self._get = get
        self.missing: list[str] = []
        self.faults: list[str] = []

    def maybe(self, path: str, what: str) -> Mapping[str, Any]:
        """{} with the reason in `missing` where it does not answer."""
        if not path:
            self.missing.append(f"{what}: the BMC has none")
            return {}
        try:
            return self._get(path)
        except RemoteError as exc:
            self.missing.append(f"{what}: {exc.what}")
            return {}

    def members(self, path: str, what: str, limit: int = 32) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for member in _list(self.maybe(path, what), "Members")[:limit]:
            link = member.get("@odata.id") if isinstance(member, dict) else None
            # Some put the whole resource into the collection.
            whole = isinstance(member, dict) and len(member) > 2
            found += [member if whole else self.maybe(str(link or ""), what)]
        return [resource for resource in found if resource]

    def power(self, chassis: list[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
        """From the older Power and Thermal, or the newer subsystems."""
        psus: list[str] = []
        fans: list[str] = []
        for box in chassis:
            for new, old, key, name, target in (("PowerSubsystem", "Power", "PowerSupplies", "power supplies", psus),
                                                ("ThermalSubsystem", "Thermal", "Fans", "fans", fans)):
                if _link(box, new):
                    parts = self.members(_link(self.maybe(_link(box, new), name), key), name)
                elif _link(box, old):
                    parts = [part for part in _list(self.maybe(_link(box, old), name), key) if isinstance(part, dict)]
                else:
                    continue
                target.extend(filter(None, map(self._part, parts)))
        if not psus:
            self.missing.append("power supplies: none is described")
        return psus, fans

    def _part(self, part: Mapping[str, Any]) -> str:
        name = _text(part, "Name") or _text(part, "FanName") or _text(part, "MemberId")
        state, health = _text(_dict(part, "Status"), "State"), _health(part)
        if state == "Absent":
            return ""
        if health and health != "OK":
            self.faults.append(f"BMC: {name}: {health}")
        return f"{name}: {', '.join(filter(None, (health or 'health unknown', state if state != 'Enabled' else '')))}"

    def settings(self, system: Mapping[str, Any]) -> dict[str, str]:
        attributes = _dict(self.maybe(_link(system, "Bios"), "BIOS settings"), "Attributes")
        found: dict[str, str] = {}
        for meaning, pattern in _SETTINGS.items():
            values = {printable(str(name), limit=60): printable(str(value), limit=60)
                      for name, value in sorted(attributes.items()) if pattern.search(str(name)) and value is not None}
            if len(values) == 1:
                found[meaning] = next(iter(values.values()))
            else:
                found.update({f"{meaning}: {name}": value for name, value in list(values.items())[:8]})
        return found

    def events(self, owners: list[Mapping[str, Any]]) -> Iterator[str]:
        """The newest entries of the first log that is one of the hardware's."""
        for owner in owners:
            services = self.members(_link(owner, "LogServices"), "event log") if _link(owner, "LogServices") else []
            for service in sorted(services, key=lambda item: _text(item, "Id").lower() not in ("sel", "log1", "iml")):
                path = _link(service, "Entries")
                if not path:
                    continue
                entries = self.members(path, "event log", limit=200)
                if not entries:
                    continue
                newest = sorted(entries, key=lambda entry: _text(entry, "Created"))[-MAX_EVENTS:]
                for entry in newest:
                    yield " | ".join(filter(None, (_text(entry, "Created"), _text(entry, "Severity"),
                                                   _text(entry, "Message"))))
                return
        self.missing.append("event log: no entries")

    def address(self, manager: Mapping[str, Any]) -> str:
        if not _link(manager, "EthernetInterfaces"):
            return ""
        for interface in self.members(_link(manager, "EthernetInterfaces"), "addresses"):
            for address in _list(interface, "IPv4Addresses"):
                text = _text(address, "Address") if isinstance(address, dict) else ""
                if text and text != "0.0.0.0":  # noqa: S104  (an address that is not set)
                    return text
        return ""


def _dict(resource: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = resource.get(key)
    return value if isinstance(value, dict) else {}


def _list(resource: Mapping[str, Any], key: str) -> list[Any]:
    value = resource.get(key)
    return value if isinstance(value, list) else []


def _text(resource: Mapping[str, Any], key: str) -> str:
    value = resource.get(key)
    return printable(" ".join(str(value).split()), limit=300) if isinstance(value, str | int | float) else ""


def _link(resource: Mapping[str, Any], key: str) -> str:
    value = _dict(resource, key).get("@odata.id")
    return quote(value, safe="/%~()'$=?&") if isinstance(value, str) else ""


def _health(resource: Mapping[str, Any]) -> str:
    return _text(_dict(resource, "Status"), "Health")
