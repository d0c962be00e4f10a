"""[topology] of site.toml: what the admin says of the network that jobs use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class TopologySite:
    """Every key may be left out: then the inventory's fabric and its GPUs' NVLink domains tell."""

    plugin: str = ""                      # tree, block or none
    source: str = ""                      # which network the tree is made from: infiniband or ethernet
    fabric: tuple[str, ...] = ()          # a switch of the network that jobs use, where several reach the nodes; ib-*
    islands: str = ""                     # parts that no cable joins: keep them apart, or join them under a switch
    off_fabric: str = ""                  # nodes on no switch: leaf (below the top), island (a root), or refuse
    block_sizes: tuple[int, ...] = ()     # BlockSizes: the base, then it times powers of two
    file: str = ""                        # topology.conf, where topology.yaml would be written
    switches: Mapping[str, Union[tuple[str, ...], str]] = field(default_factory=dict)   # hostlist, or switches below
    blocks: Mapping[str, str] = field(default_factory=dict)                             # hostlist
