"""What is wrong or odd in a fabric, against what most of it is like."""

from __future__ import annotations

from dataclasses import dataclass

from hpcadmin.model import Fabric


@dataclass(frozen=True)
class Fault:
    """note: worth knowing, no fault. device and port: where, as the fabric names them."""

    what: str
    note: bool = False
    device: str = ""
    port: int | None = None


def faults(fabric: Fabric) -> tuple[Fault, ...]:
    return ()
