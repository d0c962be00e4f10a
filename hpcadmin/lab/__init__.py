"""A real Slurm cluster on this machine: hosts are namespaces over an overlay root, joined by a bridge.

`up`, `down`, `status` and `fault` are what the command line calls; a test may call them as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hpcadmin.lab.options import Options

if TYPE_CHECKING:
    from hpcadmin.lab.faults import Fault
    from hpcadmin.lab.journal import Lab
    from hpcadmin.lab.state import LabState

__all__ = ["Options", "down", "fault", "status", "up"]


def up(options: Options | None = None, progress: Callable[[str], None] = lambda text: None) -> Lab:
    from hpcadmin.lab import start  # noqa: PLC0415
    return start.up(options, progress=progress)


def down(name: str = "lab") -> bool:
    """End the lab; False when there was none."""
    from hpcadmin.lab import stop  # noqa: PLC0415
    return stop.down(name)


def status(name: str = "lab") -> LabState:
    from hpcadmin.lab import journal, state  # noqa: PLC0415
    return state.status(journal.load(name))


def fault(node: str, what: Fault, name: str = "lab") -> Lab:
    """Make the faults of a node, or heal them all."""
    from hpcadmin.lab import faults  # noqa: PLC0415
    return faults.fault(name, node, what)
