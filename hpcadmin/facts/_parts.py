"""What a reading says of a node, as a partial node: each `_parts_*` module knows the records of some tools."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading


@cache
def _modules() -> tuple[Callable[[Reading], Part | None], ...]:
    names = [info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return tuple(importlib.import_module(f"hpcadmin.facts.{name}").part for name in names if name.startswith("_parts_"))


def part_of(reading: Reading) -> Part | None:
    """None where it is not about one node (a fabric, a configuration file), or where nothing follows for one."""
    if reading.value is None:
        return None
    return next((part for part in (of(reading) for of in _modules()) if part is not None), None)
