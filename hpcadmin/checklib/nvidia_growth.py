"""What has grown on a node's GPUs between two readings: before the load of a suite and after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpcadmin.check import Measurement, NodeView, Output, ParseError, Subject
from hpcadmin.checklib import nvidia, nvidia_links

MOST = 6
# Of -q -x: what grows only when something goes wrong. The others of a link and of PCIe are sent again.
_FACTS = {"rows_uncorrectable": "remapped rows, uncorrectable", "rows_correctable": "remapped rows, correctable",
          "pages_single": "retired pages, single bit", "pages_double": "retired pages, double bit"}
_PLACES = {"pci/replay_counter": "PCIe replays", "pci/replay_rollover_counter": "rollovers of PCIe replays"}
_REPAIRED = ("Replay Errors", "CRC Errors", "PCIe replays", "remapped rows, correctable", "retired pages, single bit")
_WHOLE = re.compile("[0-9]{1,18}")


def growth(before: Sequence[Output], after: Sequence[Output], node: NodeView) -> list[Measurement]:
    """`grown_under_load` of each GPU on which a counter has grown, else once for the node. What is repaired by sending
    it again is a warning, and so is a reading from before that cannot be compared."""
    where = Subject((node.name,) if node.name else ())
    none = Measurement("grown_under_load", "nothing", subject=where, expected="nothing")
    try:
        first, last = (_counters(outputs) for outputs in (before, after))
    except ParseError as exc:
        return [replace(none, warnings=(f"the reading before the load tells nothing: {exc}",))]
    new = [uuid for uuid in last if uuid not in first]
    lost = [what for uuid in last for what in first.get(uuid, ()) if what not in last[uuid]]
    untold = sum(what not in first[uuid] for uuid in last if uuid in first for what in last[uuid])
    said = [f"{len(new)} of {len(last)} GPUs are not in the reading before the load"] if new else []
    said += [f"{lost[0]} is not told after the load"] if lost else []
    said += [f"{untold} counters are not in the reading before the load"] if untold else []
    both = [uuid for uuid in last if uuid in first]
    found = [_of_gpu(first[uuid], last[uuid], _subject(uuid, number, node)) for number, uuid in enumerate(both)]
    telling = [m for m in found if m.value != m.expected or m.warnings]
    return telling + ([replace(none, warnings=tuple(said))] if said or not telling else [])


def _subject(uuid: str, number: int, node: NodeView) -> Subject:
    index = node.gpu_uuids.index(uuid) if uuid in node.gpu_uuids else number
    return Subject((node.name,) if node.name else (), f"GPU {index}")


def _of_gpu(first: Mapping[str, int], last: Mapping[str, int], subject: Subject) -> Measurement:
    grown = {what: last[what] - first[what] for what in last if what in first and last[what] != first[what]}
    bad: list[str] = []
    some: list[str] = []
    for what, count in grown.items():
        if count < 0:
            some.append(f"{what} was set back, from {first[what]} to {last[what]}")
        else:
            (some if what.endswith(_REPAIRED) else bad).append(f"{what} +{count}")
    return Measurement("grown_under_load", "; ".join(bad[:MOST]) or "nothing", subject=subject, expected="nothing",
                       warnings=("; ".join(some[:MOST]),) if some else ())


def _counters(outputs: Sequence[Output]) -> dict[str, dict[str, int]]:
    """UUID -> counter -> its value; those that are no plain number are left out."""
    found: dict[str, dict[str, int]] = {}
    for output in outputs:
        if "<nvidia_smi_log" in output.text:
            for gpu in nvidia.read(output.text).gpus:
                found.setdefault(gpu.uuid, {}).update(_of_answer(gpu))
        elif nvidia_links.is_links(output.text):
            for links in nvidia_links.read(output.text)[0]:
                found.setdefault(links.uuid, {}).update(
                    {f"link {link}: {name}": int(value) for (link, name), value in links.counts.items()
                     if _WHOLE.fullmatch(value) and not any(word in name for word in nvidia_links.HARMLESS)})
    return found


def _of_answer(gpu: nvidia.Gpu) -> Iterator[tuple[str, int]]:
    errors = gpu.uncorrectable()
    if isinstance(errors, int):
        yield "uncorrectable ECC errors", errors
    told = {**{what: gpu.fact(name) for name, what in _FACTS.items()},
            **{what: gpu.told.get(place) for place, what in _PLACES.items()}}
    for what, value in told.items():
        if value is not None and _WHOLE.fullmatch(value):
            yield what, int(value)
