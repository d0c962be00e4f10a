"""Nodes handed from process to process, and kept by thousands: what is equal in many of them is there once."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hpcadmin.model import Node

# Large, and the same in most nodes of a group. The rest has serial numbers and UUIDs in it.
_ALIKE = frozenset({"cpu", "pci", "gpu_links", "tools", "versions", "settings", "mounts", "unknown", "problems",
                    "command_line", "addresses", "neighbours"})
_DEVICES = ("gpus", "nics", "disks", "dimms")
Packed = Mapping[str, bytes]


def pack(node: Node) -> Packed:
    """The node as pickles of its fields. Ours alone: they never leave this program."""
    return {f.name: pickle.dumps(getattr(node, f.name), protocol=pickle.HIGHEST_PROTOCOL) for f in fields(node)}


class Sharing:
    """Unpacks nodes; equal fields, and equal texts of devices, become one object."""

    def __init__(self) -> None:
        self._values: dict[bytes, Any] = {}
        self._texts: dict[str, str] = {}

    def unpack(self, packed: Packed) -> Node:
        values = {}
        for name, data in packed.items():
            if name in _ALIKE:
                value = self._values.get(data)
                if value is None:
                    value = self._values[data] = pickle.loads(data)  # noqa: S301  (made by pack in our own worker)
            else:
                value = pickle.loads(data)  # noqa: S301
            values[name] = value
        for name in _DEVICES:
            for device in values[name]:
                self._share_texts(device)
        return Node(**values)

    def _share_texts(self, device: Any) -> None:
        for item in fields(device):
            value = getattr(device, item.name)
            if type(value) is str:
                object.__setattr__(device, item.name, self._texts.setdefault(value, value))
