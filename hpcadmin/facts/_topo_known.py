"""What a matrix of `nvidia-smi topo -m` determines, as plain values, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpcadmin.facts import _cores, _links
from hpcadmin.facts._reading import Finding
from hpcadmin.facts._topo_matrix import Matrix, listed
from hpcadmin.text import fold_ids

NEAR = ("PIX", "PXB", "PHB", "NODE")     # the nearest first; SYS is no nearness


def known(matrix: Matrix) -> dict[str, Any]:
    labels = matrix.gpu_labels()
    links = matrix.links()
    found: dict[str, Any] = {
        "gpus": matrix.count, "gpu_indices": list(matrix.gpus), "links": links,
        "gpu_matrix": [[label or None for label in row] for row in labels], "symmetric": not _one_sided(matrix),
        "gpu_cpu_affinity_os": [_ids(text) for text in affinities(matrix)],
        "affinity_truncated": any(_cores.truncated(text) for text in affinities(matrix)),
        "gpu_numa": _numa(matrix) if matrix.fields > 1 else None, "nics": nics(matrix),
        "gpu_nearest_nics": _gpu_nearest(matrix) if matrix.nics else [], "cores_if_determined": None,
        "pix_groups": _groups(matrix, matrix.names), "gpu_groups": gpu_groups(matrix),
        "nic_column_order": [_called(matrix, nic) for nic in matrix.nics],
    }
    if matrix.fields > 2:
        found["gpu_numa_id"] = [int(text) if text and text.isdigit() else None
                                for text in (matrix.tails[name].memory if name in matrix.tails else None
                                             for name in matrix.names)]
    pix = _groups(matrix, matrix.nics)
    if pix:
        found["nic_pix_groups"] = [[_called(matrix, nic) for nic in group] for group in pix]
    if any(isinstance(numa, str) for numa in found["gpu_numa"] or ()):
        found["gpu_numa_is_list"] = True
    if any(True for _ in numa_contradictions(matrix)):
        found["gpu_numa_usable"] = False
    gone = _links.faulty(links) if links else ()
    if gone:
        found["faulty_gpus"] = [matrix.gpus[place] for place in gone]
    if matrix.near_cpus:
        found["topo_c"] = {str(cpu): list(gpus) for cpu, gpus in matrix.near_cpus.items()}
    if matrix.who:
        found["node"] = matrix.who
    return found


def affinities(matrix: Matrix) -> list[str | None]:
    """As printed, by GPU; None: not in the text; "": empty there."""
    return [matrix.tails[name].cpus if name in matrix.tails else None for name in matrix.names]


def _ids(text: str | None) -> str | None:
    ids = _cores.cpus_of(text)
    return fold_ids(ids) if ids and text and not _cores.truncated(text) else text if ids else None


def _numa(matrix: Matrix) -> list[int | str | None]:
    told = [matrix.tails[name].numa if name in matrix.tails else None for name in matrix.names]
    return [_numa_of(text) for text in told]


def _numa_of(text: str | None) -> int | str | None:
    if not text or text == "N/A":
        return None
    return int(text) if text.isdigit() else text


def _one_sided(matrix: Matrix) -> list[tuple[str, str]]:
    return [(a, b) for (a, b), label in matrix.labels.items()
            if a < b and matrix.labels.get((b, a), label) != label]


# --- NICs -----------------------------------------------------------------------------------------------------------


def _called(matrix: Matrix, nic: str) -> str:
    """By its device, where the text names that."""
    return matrix.devices[matrix.nics.index(nic)] or nic


def nearest(labels: Sequence[str]) -> tuple[str, list[int]]:
    """(relation, places) of the nearest among the labels; "" and none where none is near."""
    for relation in NEAR:
        places = [place for place, label in enumerate(labels) if label == relation]
        if places:
            return relation, places
    return "", []


def nics(matrix: Matrix) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for nic, device in zip(matrix.nics, matrix.devices, strict=True):
        labels = [matrix.label(gpu, nic) for gpu in matrix.names]
        relation, places = nearest(labels)
        gpus = [matrix.gpus[place] for place in places]
        whole = all(labels) and matrix.count is not None and all(label in (*NEAR, "SYS") for label in labels)
        told: dict[str, Any] = {"label": nic, "device": device or None, "relations": [one or None for one in labels],
                                "relation": (relation or "SYS") if whole else None,
                                "nearest_gpus": gpus if whole else None}
        if whole and not gpus:
            told["remote_from_all_gpus"] = True
        if not whole and gpus:
            told |= {"known_relation": relation, "known_nearest": gpus}
        found[device or nic] = told
    return found


def _gpu_nearest(matrix: Matrix) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = []
    for gpu in matrix.names:
        labels = [matrix.label(gpu, nic) for nic in matrix.nics]
        relation, places = nearest(labels)
        whole = all(label in (*NEAR, "SYS") for label in labels)
        found.append({"relation": relation or "SYS", "nics": [_called(matrix, matrix.nics[at]) for at in places]}
                     if whole else None)
    return found


def _groups(matrix: Matrix, names: Sequence[str]) -> list[list[Any]]:
    """Those that are PIX with one another: under one switch, or ports of one card."""
    found: list[list[str]] = []
    for name in names:
        group = next((group for group in found if any(matrix.label(name, other) == "PIX" for other in group)), None)
        if group is None:
            found.append([name])
        else:
            group.append(name)
    numbers = dict(zip(matrix.names, matrix.gpus, strict=True))
    return [[numbers.get(name, name) for name in group] for group in found if len(group) > 1]


def gpu_groups(matrix: Matrix) -> list[list[int]] | None:
    """GPUs on the same side of SYS, by their own relations and by the NICs near them; None where that is not told of
    all, or contradicts itself."""
    side = {name: {name} for name in matrix.names}
    for a in matrix.names:
        for b in (*matrix.names, *matrix.nics):
            if matrix.label(a, b) in NEAR:
                joined = side[a] | side.setdefault(b, {b})
                for name in joined:
                    side[name] = joined
    groups = list(dict.fromkeys(frozenset(side[name]) for name in matrix.names))
    apart = {(a, b) for a in matrix.names for b in matrix.names if matrix.label(a, b) == "SYS"}
    if any(a in group and b in group for a, b in apart for group in groups):
        return None
    sys = {frozenset((one, other)) for one in groups for other in groups if one != other
           if any((a, b) in apart for a in one for b in other)}
    if len(groups) < 2 or len(sys) != len(groups) * (len(groups) - 1) // 2:
        return None
    numbers = dict(zip(matrix.names, matrix.gpus, strict=True))
    return [sorted(numbers[name] for name in group if name in numbers) for group in groups]


# --- what is to be said ---------------------------------------------------------------------------------------------


def findings(matrix: Matrix) -> Iterator[Finding]:
    for a, b in _one_sided(matrix):
        yield Finding(f"{a} is {matrix.labels[a, b]} to {b}, which is {matrix.labels[b, a]} to {a}: the matrix "
                      "contradicts itself", matrix.lines.get(a))
    yield from _of_links(matrix)
    yield from _of_affinity(matrix)
    yield from _of_numa(matrix)
    for what in numa_contradictions(matrix):
        yield Finding(what)
    yield from _of_nics(matrix)
    if matrix.inside:
        yield Finding(f"asked by {matrix.inside}: CPU affinities may be cut to the CPUs of that job or container",
                      matrix.first, note=True)


def _of_links(matrix: Matrix) -> Iterator[Finding]:
    links = matrix.links()
    odd = sorted({label for label in matrix.labels.values()
                  if _links.count(label) is None and label not in ("N/A", "")})
    if odd:
        yield Finding(f"{', '.join(odd)}: not a relation that is known here; links of such pairs are unknown")
    if not matrix.nvlink_told and (len(matrix.gpus) > 1 or matrix.command == "-mp"):
        why = ("topo -mp shows PCIe paths only" if matrix.command == "-mp" else
               "the legend has no NV# line, as that of topo -mp (PCIe only)" if matrix.legend == "plain" else
               "neither command nor legend is there, and topo -mp shows PCIe only")
        yield Finding(f"{why}: NVLink is unknown, and 0 links must not be taken from it", matrix.first,
                      note=matrix.command != "-mp")
    if links is None:
        return
    for what in _links.faults(links, matrix.names, "NVLink"):
        yield Finding(what, matrix.first)
    for what in _links.notes(links, matrix.names, "NVLink"):
        yield Finding(what, matrix.first, note=True)
    if not matrix.nvlink_proven and len(matrix.gpus) > 1:
        yield Finding("neither command nor legend is there: taken for topo -m, not -mp, which would hide NVLink; no "
                      "configuration follows from that", matrix.first, note=True)


def _of_numa(matrix: Matrix) -> Iterator[Finding]:
    numa = _numa(matrix)
    lists = sorted({text for text in numa if isinstance(text, str)})
    if lists:
        yield Finding(f"NUMA affinity {', '.join(lists)}: lists, with nodes of memory alone; they are no sockets",
                      note=True)
    empty = [gpu for gpu, name in zip(matrix.gpus, matrix.names, strict=True)
             if name in matrix.tails and matrix.tails[name].numa == ""]
    if empty:
        yield Finding(f"NUMA affinity of GPU {fold_ids(empty)} is empty, where an id or N/A is expected")
    if len(matrix.gpus) == 1 and len(matrix.nics) > 1 and any(
            nic.get("remote_from_all_gpus") for nic in nics(matrix).values()):
        yield Finding(f"one GPU beside {len(matrix.nics)} NICs, some of them remote: other GPUs of the node may be "
                      "hidden from where this was taken", note=True)
    links = matrix.links() or []
    across = [f"{matrix.names[a]}-{matrix.names[b]}" for b in range(len(links)) for a in range(b)
              if (links[a][b] or 0) > 0 and None not in (numa[a], numa[b]) and numa[a] != numa[b]]
    if 0 < len(across) <= len(links):
        yield Finding(f"NVLinks {', '.join(across)} join GPUs of different NUMA nodes", note=True)
    best = [nic["nics"][0] for nic in _gpu_nearest(matrix) if nic and nic["relation"] in ("PIX", "PXB")]
    order = [matrix.nics.index(name) if name in matrix.nics else matrix.devices.index(name) for name in best]
    if order != sorted(order):
        yield Finding(f"the NICs nearest to the GPUs, in the GPUs' order, are {', '.join(best)}: not the order of "
                      "their numbers", note=True)


def _of_affinity(matrix: Matrix) -> Iterator[Finding]:
    texts = affinities(matrix)
    told = {text for text in texts if text and text != "N/A"}
    for text in sorted(told):
        if _cores.truncated(text):
            yield Finding(f"CPU affinity {text} is cut after six entries by nvidia-smi: cores cannot be derived from "
                          "it")
    if any(_cores.truncated(text) for text in told):
        return
    yield from _of_near_cpus(matrix, [_cores.cpus_of(text) for text in texts])
    missing = _cores.uneven(texts)
    if missing:
        yield Finding(f"missing {missing}: offline, or beyond what the machine can have")
    elif told and _cores.assumed(texts) == (_cores.OMIT,) and not restricted(matrix):
        yield Finding(f"CPU affinity {'; '.join(sorted(told)[:4])}: no rule of numbering fits, so cores cannot be "
                      "derived from it")
    if len(matrix.gpus) > 1 and len(told) == 1 and None not in texts:
        yield from _of_one_affinity(matrix, told.pop())
    elif not told and any(text == "N/A" for text in texts):
        yield Finding("CPU affinity is N/A: locality is unknown")


def _of_near_cpus(matrix: Matrix, cpus: Sequence[tuple[int, ...] | None]) -> Iterator[Finding]:
    for cpu, gpus in matrix.near_cpus.items():
        near = [gpu for gpu, ids in zip(matrix.gpus, cpus, strict=True) if ids and cpu in ids]
        if None not in cpus and near != sorted(gpus):
            yield Finding(f"topo -c {cpu} names GPU {fold_ids(gpus)}, by the CPU affinities it is GPU "
                          f"{fold_ids(near) or 'none'}: contradiction")


def _of_one_affinity(matrix: Matrix, text: str) -> Iterator[Finding]:
    between = {matrix.label(a, b) for a in matrix.names for b in matrix.names if a != b}
    numa = [matrix.tails[name].numa for name in matrix.names]
    if "SYS" in between:
        yield Finding(f"CPU affinity {text} is the same for all GPUs although SYS lies between some of them: it does "
                      "not tell which GPU is near which socket, nor does SYS")
    if matrix.fields > 1 and set(numa) == {"N/A"}:
        yield Finding(f"NUMA affinity is N/A and CPU affinity {text} is the same for all GPUs: locality is unknown")


def numa_contradictions(matrix: Matrix) -> Iterator[str]:
    """NODE and nearer is within one NUMA node."""
    numa = {name: tail.numa for name, tail in matrix.tails.items() if tail.numa not in (None, "N/A")}
    for nic in matrix.nics:
        near = {numa[gpu] for gpu in matrix.names if gpu in numa and matrix.label(gpu, nic) in NEAR}
        if len(near) > 1:
            yield (f"{_called(matrix, nic)} is within the NUMA node (NODE or nearer) of GPUs of NUMA "
                   f"{' and '.join(sorted(map(str, near)))}: contradiction")
    apart: dict[tuple[str, str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for place, a in enumerate(matrix.names):
        for b in matrix.names[place + 1:]:
            if matrix.label(a, b) in NEAR and a in numa and b in numa and numa[a] != numa[b]:
                low, high = sorted((a, b), key=lambda gpu: str(numa[gpu]))
                one, other = apart.setdefault((matrix.label(a, b), str(numa[low]), str(numa[high])), ({}, {}))
                one[low], other[high] = None, None
    for (label, low, high), (one, other) in apart.items():
        yield (f"{listed(list(one))} and {listed(list(other))} are {label}, so within one NUMA node, and of NUMA {low} "
               f"and {high}: contradiction")


def _of_nics(matrix: Matrix) -> Iterator[Finding]:
    told = nics(matrix)
    remote = [name for name, nic in told.items() if nic.get("remote_from_all_gpus")]
    if remote and len(remote) == len(told):
        yield Finding(f"every NIC ({', '.join(remote[:16])}) is remote (SYS) from every GPU: the nearest NIC is "
                      "unknown from this table")
    elif remote:
        yield Finding(f"{', '.join(remote)}: remote (SYS) from all GPUs", note=True)
    else:
        far = [f"GPU{gpu}" for gpu, nic in zip(matrix.gpus, _gpu_nearest(matrix), strict=True)
               if nic and nic["relation"] == "SYS"] if matrix.nics else []
        if far:
            yield Finding(f"{listed(far)}: no near NIC (SYS)", note=True)
    unnamed = [nic for nic, device in zip(matrix.nics, matrix.devices, strict=True) if not device]
    if unnamed:
        yield Finding(f"{listed(unnamed)}: no NIC legend in the text, so the names of the devices are unknown",
                      note=True)


def restricted(matrix: Matrix) -> str:
    return _cores.restricted(dict(zip(matrix.gpus, affinities(matrix), strict=True)),
                             {number: matrix.tails[name].numa if name in matrix.tails else None
                              for number, name in zip(matrix.gpus, matrix.names, strict=True)})


def assumed(matrix: Matrix) -> tuple[dict[str, Any], ...]:
    if restricted(matrix) or not matrix.gpus:
        return (_cores.OMIT.plain(),)
    # Over a host bridge (PHB, NODE): the tool knows which CPU is near, so the list is one place of perhaps several.
    near = any(label in ("PHB", "NODE") for label in matrix.labels.values())
    return tuple(one.plain() for one in _cores.assumed(affinities(matrix), near=near))
