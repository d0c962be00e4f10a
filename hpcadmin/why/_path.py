"""gpus.3.cores, nics.mlx5_0.rate_gbps, gpu_links.0.1: a path to a value of a node, and what stands there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from hpcadmin.errors import UsageError
from hpcadmin.model import Core, Dimm, Disk, Gpu, MigDevice, Mount, Nic, Node, NumaNode, PciDevice
from hpcadmin.text import fold_ids

# Values that no field holds: they follow from others.
DERIVED = ("gpus.*.cores", "cpu.cpus")


@dataclass(frozen=True)
class Target:
    """pattern: the path with * in place of names and numbers. words: what locators look for, by name."""

    node: Node
    path: str
    pattern: str
    value: Any
    words: Mapping[str, str] = field(default_factory=dict)
    chain: tuple[Any, ...] = ()      # the records on the way

    def last(self, kind: type) -> Any:
        return next(item for item in reversed(self.chain) if isinstance(item, kind))


def resolve(node: Node, path: str) -> Target:
    """Raises UsageError where there is no such value, naming what there is."""
    parts = path.split(".")
    value: Any = node
    pattern: list[str] = []
    words: dict[str, str] = {}
    chain: list[Any] = [node]
    at = 0
    while at < len(parts):
        if is_dataclass(value):
            name = parts[at]
            pattern.append(name)
            value = _field(value, name, ".".join(pattern), path)
            at += 1
            continue
        if not isinstance(value, (tuple, Mapping)):
            raise UsageError(f"{'.'.join(parts[:at])} has no parts", where=path)
        key, value, taken = _item(value, parts[at:], path)
        place = f"at{len([part for part in pattern if part == '*'])}"
        pattern.append("*")
        words[place] = key
        at += taken
        if is_dataclass(value):
            chain.append(value)
            words.update(_words(value))
        else:
            words["key"] = key
    looked_for = pattern[-1] == "*" and value == ""          # of a table: a tool that is not there
    if value is None or (value in ("", ()) and not looked_for):
        unknown = [item for item in node.unknown if item.split(" ")[0].split(".")[0] == parts[0]]
        reason = f" ({', '.join(unknown)})" if unknown else ""
        raise UsageError(f"{path} of {node.name} is not known, or there is none{reason}")
    return Target(node, path, ".".join(pattern), value, words, tuple(chain))


def leaves(node: Node) -> list[str]:
    """The paths of all values that are known, derived ones included; of long lists the first of each."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if is_dataclass(value):
            for item in fields(value):
                inner = getattr(value, item.name)
                if inner not in (None, "", (), {}):
                    walk(inner, f"{path}.{item.name}" if path else item.name)
            if isinstance(value, Gpu) and value.local_cpus:
                found.append(f"{path}.cores")
        elif isinstance(value, Mapping):
            for key in value:
                found.append(f"{path}.{key}")
        elif isinstance(value, tuple) and value and (is_dataclass(value[0]) or isinstance(value[0], tuple)):
            for number, inner in enumerate(value[:2]):
                walk(inner, f"{path}.{_name(inner, number)}")
        else:
            found.append(path)

    walk(node, "")
    return found


def _field(record: Any, name: str, pattern: str, path: str) -> Any:
    starred = ".".join(pattern.split("."))
    if starred in DERIVED:
        return _derived(record, starred)
    names = [item.name for item in fields(record)]
    if name not in names:
        raise UsageError(f"{type(record).__name__} has no {name!r}", where=path, hint=f"known are {', '.join(names)}")
    return getattr(record, name)


def _derived(record: Any, pattern: str) -> Any:
    if pattern == "cpu.cpus":
        return record.cpus
    return record.local_cpus             # of which the explanation makes cores: it has the node


def _item(items: Any, parts: list[str], path: str) -> tuple[str, Any, int]:
    """(name, item, parts used): a name may have dots in it."""
    for taken in range(min(len(parts), 4), 0, -1):
        key = ".".join(parts[:taken])
        if isinstance(items, Mapping):
            if key in items:
                return key, items[key], taken
            continue
        for number, item in enumerate(items):
            if key in (_name(item, number), *_other_names(item)):
                return key, item, taken
    names = list(items) if isinstance(items, Mapping) else [_name(item, number) for number, item in enumerate(items)]
    shown = ", ".join(map(str, names[:20])) or "none"
    raise UsageError(f"there is no {parts[0]!r}", where=path, hint=f"known are {shown}")


def _name(item: Any, number: int) -> str:
    if isinstance(item, (Gpu, MigDevice)):
        return str(number if item.index is None else item.index)
    if isinstance(item, (Nic, Disk)):
        return item.name
    if isinstance(item, PciDevice):
        return item.address
    if isinstance(item, Dimm):
        return item.slot
    if isinstance(item, Mount):
        return item.target
    return str(item.id if isinstance(item, NumaNode) else number)


def _other_names(item: Any) -> tuple[str, ...]:
    if isinstance(item, Nic):
        return (f"{item.name}/{item.port}", item.netdev)
    return (item.pci, item.uuid) if isinstance(item, Gpu) else ()


def _words(record: Any) -> dict[str, str]:
    """What can be looked for in a text: texts and numbers of the record."""
    found = {item.name: str(value) for item in fields(record)
             if isinstance(value := getattr(record, item.name), (str, int)) and not isinstance(value, bool)}
    if isinstance(record, Core):
        found["cpu"] = str(record.cpus[0]) if record.cpus else ""
    return found


def show(target: Target) -> str:
    value = target.value
    if isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
        return fold_ids(value)
    if isinstance(value, tuple) and len(value) > 12:
        return f"{len(value)} of them"
    return str(value) if value != "" else "not there"
