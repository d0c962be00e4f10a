"""Discovery: the probe on every node, captures kept, an inventory out of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from hpcadmin import inventory as inventories
from hpcadmin.documents import documents
from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, EXIT_UNREACHABLE, ParseError, RemoteError, StoreError
from hpcadmin.fabric import Dump, build, fabric_answers, fabric_probe_script
from hpcadmin.facts import new_token, probe_script, read_capture, read_document
from hpcadmin.files import write_atomic
from hpcadmin.model import Failed, Inventory, Node, Source
from hpcadmin.remote import CommandResult, Remote, fan_out
from hpcadmin.state import make_private
from hpcadmin.text import printable

PROBE = ("/bin/sh", "-s", "--")
# Unknown, these leave nothing to configure or to judge by; a serial that only root may read is another matter.
ESSENTIAL = frozenset({"cpu", "cpu.cores", "memory", "gpus", "nics", "rdma", "pci", "simulated"})
FABRIC_TIMEOUT_S = 300.0
FABRIC_BYTES = 130 * 1024 * 1024         # two tools, 64 MiB each
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class How:
    """How the nodes are asked."""

    parallel: int = 32
    timeout_s: float = 30.0
    sudo: tuple[str, ...] = ()          # facts that may use sudo -n
    tools: tuple[str, ...] = ()         # further tools to look for
    captures: Path | None = None        # where the raw texts are kept; None: nowhere


def discover(remote: Remote, nodes: Mapping[str, str], how: How, progress: Progress | None = None) -> Inventory:
    """The inventory of the nodes (name -> what the remote calls it). A node that cannot be captured or read is in
    `failed`. Raises StoreError when captures cannot be kept."""
    tokens = {host: new_token() for host in nodes.values()}
    count = 0

    def tell(result: CommandResult) -> None:
        nonlocal count
        count += 1
        if progress:
            progress(count, len(tokens), result.host)

    folder = make_private(how.captures) if how.captures else None
    script = probe_script(tools=how.tools, sudo=how.sudo).encode()
    results = fan_out(remote, list(tokens), lambda host: (*PROBE, tokens[host]), stdin=script, parallel=how.parallel,
                      timeout_s=how.timeout_s, done=tell)
    sources: dict[str, Source] = {}
    if folder is not None:
        for name, host in nodes.items():
            write_atomic(folder / f"{name}.txt", results[host].output, mode=0o600)
            sources[name] = Source(str(folder / f"{name}.txt"), ("capture",), sha256(results[host].output).hexdigest())
    found = _inventory((name, results[host], tokens[host]) for name, host in nodes.items())
    found = replace(found, nodes=tuple(replace(node, sources=(sources[node.name],)) if node.name in sources else node
                                       for node in found.nodes))
    return replace(found, fabrics=build([], found.nodes))


def with_fabric(remote: Remote, nodes: Mapping[str, str], how: How, found: Inventory) -> Inventory:
    """The inventory with the network as one node with an InfiniBand port sees it, and by LLDP as all do.

    Raises RemoteError when there is no such node, or when none of its tools answers.
    """
    via = next((node.name for node in found.nodes for nic in node.nics
                if nic.rdma and nic.link_layer == "InfiniBand" and nic.state.upper() == "ACTIVE"), "")
    if not via:
        raise RemoteError("no node has an active InfiniBand port to look at the fabric through",
                          hint="--from reads the output of ibnetdiscover that was taken elsewhere")
    token = new_token()
    result = remote.run(nodes[via], (*PROBE, token), stdin=fabric_probe_script().encode(),
                        timeout_s=max(how.timeout_s, FABRIC_TIMEOUT_S), limit=FABRIC_BYTES)
    try:
        answers = fabric_answers(result.text, token)
    except ParseError as exc:
        raise RemoteError(f"{exc.what}{': ' + result.error if result.error else ''}", where=via, hint=exc.hint) from exc
    dumps: list[Dump] = []
    for tool, text in answers.items():
        if how.captures:
            write_atomic(how.captures / f"fabric.{tool}", text, mode=0o600)
        for document in documents(f"{tool} on {via}", text.encode("utf-8", "surrogateescape")):
            dumps += [reading.value for reading in read_document(document).readings if isinstance(reading.value, Dump)]
    return replace(found, fabrics=build(dumps, found.nodes))


def _inventory(results: Iterable[tuple[str, CommandResult, str]]) -> Inventory:
    found = [_node(name, result, token) for name, result, token in results]
    return inventories.build(
        [item for item in found if isinstance(item, Node)], [item for item in found if isinstance(item, Failed)],
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _node(name: str, result: CommandResult, token: str) -> Node | Failed:
    try:
        node = read_capture(result.text, name, token)
    except ParseError as exc:
        return Failed(name, result.error or _why(result, exc))
    if result.error:
        return replace(node, problems=(*node.problems, f"capture: {result.error}"))
    return node


def _why(result: CommandResult, exc: ParseError) -> str:
    """Why there is no capture: what the login shell said, when it ended otherwise than well."""
    said = next((line for line in result.text.splitlines() if line.strip()), "")
    if result.exit_status not in (0, None) and said:
        return f"the probe ended with status {result.exit_status}: {printable(said.strip(), limit=160)}"
    return exc.what


def exit_status(found: Inventory, *, asked: bool = True) -> int:
    """0 all captured and alike · 1 findings · 3 something could not be captured or read · 4 no node that was asked
    answered. asked False: texts were read, and a fabric's may be about no node."""
    if not found.nodes and not found.fabrics:
        return EXIT_UNREACHABLE if asked else EXIT_INCOMPLETE
    if found.odd or any(node.problems for node in found.nodes) or any(fabric.problems for fabric in found.fabrics):
        return EXIT_FAILED
    incomplete = found.failed or any(ESSENTIAL.intersection(node.unknown) for node in found.nodes)
    return EXIT_INCOMPLETE if incomplete else EXIT_OK


def accept(path: Path, found: Inventory, *, force: bool = False) -> str:
    """Make `found` the accepted inventory, and say in one line what became of it.

    Nodes of the old one that were not asked stay. What has findings does not replace what was accepted before: a fault
    must not become the measure that it is judged by.
    """
    if not path.exists():
        make_private(path.parent)
        inventories.save(path, found)
        return f"inventory: {path}"
    status = exit_status(found)
    if status != EXIT_OK and not force:
        why = "because of the findings" if status == EXIT_FAILED else "because not all is known"
        return f"not accepted, {why}: {path} stays as it is (--accept replaces it)"
    try:
        old = inventories.load(path)
    except StoreError:
        if not force:
            raise
        old = Inventory(())
    merged = inventories.merge(old, found)
    inventories.save(path, merged)
    kept = len(merged.nodes) - len(found.nodes)
    return f"inventory: {path}" + (f" ({kept} nodes kept from before)" if kept else "")


def local_name() -> str:
    return os.uname().nodename.split(".")[0]
