"""What `lab up` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    name: str = "lab"
    nodes: int = 4
    net: str = "10.200.0.0/24"
    accounting: bool = False
    base: str = "/"
    conf: str = ""
    shared: str = ""                                             # "": a folder of the lab, removed with it
    hardware: str = ""
    hardware_nodes: Mapping[str, str] = field(default_factory=dict)
    user: str = "hpc"
