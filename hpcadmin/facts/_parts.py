"""What a reading says of a node, as a partial node: the part of it that its text tells."""

from __future__ import annotations

from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading


def part_of(reading: Reading) -> Part | None:
    """None where it is not about one node (a fabric, a configuration file)."""
    return None
