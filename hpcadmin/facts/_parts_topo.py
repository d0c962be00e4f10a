"""What `nvidia-smi topo -m` tells of a node, as a part of it."""

from __future__ import annotations

from hpcadmin.facts import _cores, _topo_known
from hpcadmin.facts._merge import Part
from hpcadmin.facts._reading import Reading
from hpcadmin.facts._topo_matrix import Matrix
from hpcadmin.model import Gpu, Nic, Node


def part(reading: Reading) -> Part | None:
    """None where the reading is no matrix. Affinities that are cut, or a job's own CPUs, are left out."""
    matrix = reading.value
    if not isinstance(matrix, Matrix):
        return None
    limited = bool(_topo_known.restricted(matrix))
    gpus = []
    for number, name in zip(matrix.gpus, matrix.names, strict=True):
        tail = matrix.tails.get(name)
        cpus = () if tail is None or limited or _cores.truncated(tail.cpus) else _cores.cpus_of(tail.cpus) or ()
        numa = tail.numa if tail and tail.numa and tail.numa.isdigit() else None
        gpus.append(Gpu("nvidia", number, numa=None if numa is None else int(numa), local_cpus=cpus))
    nics = tuple(Nic(device, rdma=device, gpu_relations=tuple(matrix.label(gpu, nic) for gpu in matrix.names))
                 for nic, device in zip(matrix.nics, matrix.devices, strict=True) if device)
    # Where it may be of topo -mp, which hides NVLink, the matrix would be read as "no links".
    links = matrix.gpu_labels() if matrix.nvlink_proven else ()
    told = frozenset({"gpus"}) if matrix.count is not None and not reading.refused else frozenset[str]()
    return Part(reading.kind, Node("", gpus=tuple(gpus), gpu_links=links, nics=nics), told)
