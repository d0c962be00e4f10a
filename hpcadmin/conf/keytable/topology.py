"""topology.conf and topology.yaml."""

from __future__ import annotations

from hpcadmin.conf.keytable.kinds import Effect, Form, Key, table

_TREE = ("topology/tree",)
_BLOCK = ("topology/block",)
_RING = ("topology/ring",)

_FIRST = (
    Key("SwitchName", needs=_TREE),
    Key("BlockName", (23, 11), needs=_BLOCK),
    Key("BlockLevels", (23, 11), (((24, 5), Effect.FATAL),), "BlockSizes=<nodes of a block>", needs=_BLOCK),
    Key("BlockSizes", (24, 5), needs=_BLOCK),
    Key("RingName", (26, 5), needs=_RING),
)
# Only topology names begin with a key of their own there; the others are fields below it.
_YAML = """
    topology+25.05 cluster_default+25.05 tree+25.05 block+25.05 flat+25.05 ring+26.05 torus3d+26.05
    switches+25.05 switch+25.05 children+25.05 nodes+25.05 blocks+25.05 block_sizes+25.05 rings+26.05
    alpha_step_rank+26.05 toruses+26.05 name+26.05 dims+26.05 placements+26.05 regions+26.05 anchor+26.05
    anchor_seed+26.05 anchor_spacing+26.05 x+26.05 y+26.05 z+26.05
"""

KEYS = (
    *table("topology.conf", {}, *_FIRST),
    *table("SwitchName", {Form.TEXT: "SwitchName Nodes Switches", Form.UINT32: "LinkSpeed"}, needs=_TREE),
    *table("BlockName", {Form.TEXT: "BlockName+23.11 Nodes+23.11"}, needs=_BLOCK),
    *table("RingName", {Form.TEXT: "RingName+26.05 Nodes+26.05"}, needs=_RING),
    *table("topology.yaml", {Form.TEXT: _YAML}),
)
