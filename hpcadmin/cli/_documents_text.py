"""What `discover --from` made of each text: known, not known, refused; for people and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcadmin import records
from hpcadmin.cli._documents_many import Folded
from hpcadmin.text import printable

if TYPE_CHECKING:
    from hpcadmin.facts import Reading
    from hpcadmin.reading import Statement

SHOWN = 400
FEW = 8                          # nodes of which each text is spoken of alone
# What a key is called where its own name says too little.
_LABELS = {
    "cas": "adapters", "cores_if_determined": "Cores= of each GPU",
    "gpu_cpu_affinity_os": "CPUs near each GPU (OS ids)", "gpu_nearest_nics": "nearest NICs of each GPU",
    "gpu_numa": "NUMA node of each GPU", "gpu_numa_id": "NUMA node of each GPU's memory",
    "right_lines": "lines that would be right",
    "slurmd_C": "slurmd -C", "slurmd_C_22_05": "what slurmd -C says", "topology_conf": "topology.conf",
    "values": "Cores= of each GPU", "wrong": "something is wrong in it",
}
_BELOW = "\n"                     # what a value begins with that stands below its name
_NAMES = ("name", "pci", "interface", "host", "switch", "index")     # of a device, the first that it has


def plain(statement: Statement) -> dict[str, Any]:
    return {"file": statement.file, "node": statement.node, "errors": list(statement.errors),
            "readings": [_plain(reading) for reading in statement.readings]}


def _plain(reading: Reading) -> dict[str, Any]:
    return {"kind": reading.kind, "lines": [reading.first, reading.last], "known": records.to_plain(reading.known),
            "missing": list(reading.missing), "refused": reading.refused,
            "findings": [records.to_plain(finding) for finding in reading.findings],
            "assumed": records.to_plain(list(reading.assumed))}


def text(statements: Iterable[Statement], nodes: int) -> str:
    """nodes: how many they are about; of many, what is equal is said once."""
    if nodes <= FEW:
        listed = list(statements)
        files = Counter(file for file, _ in {(each.file, each.node) for each in listed})
        return "\n".join(line for each in listed for line in _statement(each, shared=files[each.file] > 1))
    folded = Folded()
    for statement in statements:
        for error in statement.errors:
            folded.refused(statement.node, statement.file, error)
        for reading in statement.readings:
            folded.told(statement.node, f"{statement.file}:{_lines(reading)}", reading.kind,
                        _told(reading, places=False))
    return "\n".join(folded.lines())


def _statement(statement: Statement, *, shared: bool) -> Iterator[str]:
    """shared: the file has texts of several nodes."""
    whose = f" of {printable(statement.node)}" if shared else ""
    for error in statement.errors:
        yield f"refused: {printable(error, limit=SHOWN)}"
    for reading in statement.readings:
        yield f"{printable(statement.file)}:{_lines(reading)}: {printable(reading.kind)}{whose}"
        yield from (f"  {line}" for line in _told(reading))


def _lines(reading: Reading) -> str:
    return f"{reading.first}-{reading.last}" if reading.last > reading.first else str(reading.first)


def _told(reading: Reading, *, places: bool = True) -> Iterator[str]:
    """places: with the lines of findings, which are other ones in each node's text."""
    for key, value in reading.known.items():
        if value is not None:
            text = _value(value)
            yield f"{_label(key)}:{'' if text.startswith(_BELOW) else ' '}{text}"
    unknown = [_label(key) for key, value in reading.known.items() if value is None]
    if unknown:
        yield f"not told: {printable(', '.join(unknown), limit=SHOWN)}"
    yield from (f"not in it: {printable(what, limit=SHOWN)}" for what in reading.missing)
    for finding in reading.findings:
        at = f"line {finding.line}: " if finding.line and places else ""
        yield f"{'note' if finding.note else 'finding'}: {at}{printable(finding.what, limit=SHOWN)}"
    yield from (f"only if {_assumption(item)}" for item in reading.assumed)
    if reading.refused:
        yield f"refused: {printable(reading.refused, limit=SHOWN)}"


def _label(key: str) -> str:
    return _LABELS.get(key) or printable(key.replace("_", " "))


def _assumption(item: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in item.items() if key not in ("if", "assumption")}
    what = ", ".join(f"{_label(key)} {_value(value)}" for key, value in rest.items())
    return f"{printable(str(item.get('if') or item.get('assumption', '?')))}: {what}"


def _value(value: Any) -> str:
    """A value on one line, a matrix on a line for each row; of devices their names."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return printable(str(value), limit=SHOWN)
    if value in ([], (), {}):
        return "none"
    if _is_matrix(value):
        return _matrix(value)
    if isinstance(value, Mapping) and all(isinstance(item, Mapping) for item in value.values()):
        return printable(f"{len(value)} ({', '.join(_device(name, item) for name, item in value.items())})",
                         limit=SHOWN)
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        names = Counter(next((str(item[key]) for key in _NAMES if item.get(key) is not None), "") for item in value)
        if "" not in names:
            shown = ", ".join(name if count == 1 else f"{count}x {name}" for name, count in names.items())
            return printable(f"{len(value)} ({shown})", limit=SHOWN)
    return printable(json.dumps(records.to_plain(value), ensure_ascii=False), limit=SHOWN)


def _device(name: str, item: Mapping[str, Any]) -> str:
    """A NIC of topo -m with the GPUs that it is nearest to."""
    gpus = item.get("nearest_gpus")
    return f"{name} {item.get('relation')} to GPU {', '.join(map(str, gpus))}" if gpus else name


def _is_matrix(value: Any) -> bool:
    return (isinstance(value, list | tuple) and len(value) > 1
            and all(isinstance(row, list | tuple) and len(row) == len(value) for row in value)
            and all(item is None or isinstance(item, str | int | float) for row in value for item in row))


def _matrix(rows: Sequence[Sequence[Any]]) -> str:
    texts = [["?" if item is None else str(item) for item in row] for row in rows]
    wide = max(len(text) for row in texts for text in row)
    lines = (" ".join(f"{text:>{wide}}" for text in row) for row in texts)
    return "".join(f"{_BELOW}    {printable(line, limit=SHOWN)}" for line in lines)
