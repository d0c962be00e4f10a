"""The board management controllers of many nodes asked over Redfish, beside what the nodes say themselves."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterable, Sequence
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
    told = _all(found.nodes, how, who, parallel)
    return replace(found, nodes=tuple(_with(node, told[node.name]) for node in found.nodes))


def login(how: BmcSite) -> Credentials:
    """Raises UsageError when [bmc] does not say how to log in, or whose certificates are good."""
    if not how.login_file:
        raise UsageError("no login for the BMCs", hint="[bmc] login_file in site.toml names a file that has it")
    who = credentials(Path(how.login_file))
    _client("localhost", how, who)
    return who


def _client(address: str, how: BmcSite, who: Credentials) -> Redfish:
    return Redfish(address, who, ca_file=Path(how.ca_file) if how.ca_file else None, verify=how.verify)


def _all(nodes: Sequence[Node], how: BmcSite, who: Credentials, parallel: int) -> dict[str, RedfishFacts | str]:
    """In threads of the kind that end with the program: Ctrl-C does not wait for a BMC that is silent."""
    waiting: queue.SimpleQueue[Node] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, RedfishFacts | str]] = queue.SimpleQueue()
    for node in nodes:
        waiting.put(node)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                node = waiting.get_nowait()
                answers.put((node.name, _ask(node, how, who)))

    for number in range(min(parallel, len(nodes))):
        threading.Thread(target=work, name=f"hpcadmin bmc {number}", daemon=True).start()
    return dict(answers.get() for _ in nodes)


def _ask(node: Node, how: BmcSite, who: Credentials) -> RedfishFacts | str:
    try:
        return read(_client(how.address.replace("{node}", node.name), how, who).get)
    except (RemoteError, UsageError) as exc:
        return str(exc)
    except Exception as exc:  # noqa: BLE001  (a defect that one BMC's answers bring out must not lose the other nodes)
        return f"internal error: {type(exc).__name__}: {exc}"


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
