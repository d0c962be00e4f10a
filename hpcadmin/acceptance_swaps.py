"""What was replaced on a node between two runs, by serials and UUIDs, and which tests that spoils. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from hpcadmin.acceptance_model import Swap
from hpcadmin.model import Gpu, Nic, Node
from hpcadmin.rundata import PlannedTest

_NETWORK = {"rdma", "infiniband", "roce"}


def swaps(run: str, old: Node, new: Node) -> list[Swap]:
    """What is known to be another now. What only one of the two knows says nothing."""
    found = [Swap(run, new.name, "node", what, a, b) for what, a, b in (
        ("serial", old.serial, new.serial), ("system UUID", old.uuid, new.uuid),
        ("board serial", old.board_serial, new.board_serial)) if a and b and a != b]
    for kind, before, now in (("gpu", _gpus(old.gpus), _gpus(new.gpus)), ("nic", _nics(old.nics), _nics(new.nics))):
        found += [Swap(run, new.name, kind, *three) for three in _other(before, now)]
    return found


def _gpus(gpus: Iterable[Gpu]) -> dict[str, str]:
    return {f"GPU {g.index}" if g.index is not None else g.pci: g.uuid or g.serial for g in gpus}


def _nics(nics: Iterable[Nic]) -> dict[str, str]:
    return {n.name: n.guid or n.serial or n.mac for n in nics if not n.virtual}


def _other(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Devices that were not there before, by their identity. One that only changed its number or place is none."""
    known = set(before.values())
    for name, identity in now.items() if known else ():
        if identity and identity not in known and before.get(name) != "":
            yield name, before.get(name, ""), identity


def spoiled(swap: Swap, test: PlannedTest, covers: Collection[str]) -> bool:
    """Whether what the test measured before is about hardware that is gone. covers: the hardware that its check needs.

    Of a replaced node everything is; of a GPU the tests that need GPUs, of a network adapter those of several nodes and
    those that need one."""
    if swap.node not in test.subject.nodes:
        return False
    if swap.kind == "gpu":
        return "gpu" in covers and (test.gpu is None or len(test.subject.nodes) > 1 or swap.what == f"GPU {test.gpu}")
    if swap.kind == "nic":
        return len(test.subject.nodes) > 1 or bool(_NETWORK & set(covers))
    return True
