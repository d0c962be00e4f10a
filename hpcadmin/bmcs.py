"""The board management controllers of many nodes asked over Redfish, beside what the nodes say themselves."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hpcadmin.errors import RemoteError, UsageError
from hpcadmin.model import Inventory, Node
from hpcadmin.remote.redfish import Credentials, Redfish, RedfishFacts, credentials, read
from hpcadmin.site import BmcSite
from hpcadmin.text import printable

# What both sides tell, by the name of Node's field. A BMC writes other words for vendor and product.
_SAME = ("serial", "uuid", "bios")


def ask(found: Inventory, how: BmcSite, parallel: int = 32) -> Inventory:
    """The inventory with what each node's BMC tells. One that does not answer is one of the node's unknown parts.

    Raises UsageError when [bmc] does not say how to log in.
    """
    who = login(how)
    with ThreadPoolExecutor(max(1, min(parallel, len(found.nodes) or 1))) as pool:
        nodes = tuple(pool.map(lambda node: _with(node, _ask(node, how, who)), found.nodes))
    return replace(found, nodes=nodes)


def login(how: BmcSite) -> Credentials:
    """Raises UsageError when [bmc] does not say how to log in."""
    if not how.login_file:
        raise UsageError("no login for the BMCs", hint="[bmc] login_file in site.toml names a file that has it")
    return credentials(Path(how.login_file))


def _ask(node: Node, how: BmcSite, who: Credentials) -> RedfishFacts | str:
    address = how.address.replace("{node}", node.name)
    try:
        ca_file = Path(how.ca_file) if how.ca_file else None
        return read(Redfish(address, who, ca_file=ca_file, verify=how.verify).get)
    except (RemoteError, UsageError) as exc:
        return str(exc)


def _with(node: Node, told: RedfishFacts | str) -> Node:
    rest = tuple(part for part in node.unknown if part.partition(" ")[0] != "bmc")
    if isinstance(told, str):
        return replace(node, unknown=(*rest, f"bmc ({printable(told, limit=200)})"))
    missing = tuple(f"bmc.{printable(what, limit=200)}" for what in told.missing)
    serial, uuid = node.serial or told.system.get("serial", ""), node.uuid or told.system.get("uuid", "")
    unknown = tuple(part for part in (*rest, *missing) if part != "serial" or not serial)
    return replace(node, bmc=told.bmc, serial=serial, uuid=uuid, unknown=unknown,
                   problems=(*node.problems, *told.faults, *_differences(node, told)))


def _differences(node: Node, told: RedfishFacts) -> Iterable[str]:
    for key in _SAME:
        ours, theirs = str(getattr(node, key)), told.system.get(key, "")
        if ours and theirs and ours.lower() != theirs.lower():
            yield printable(f"{key}: {ours} on the node, {theirs} in its BMC", limit=300)
