"""Every GPU that the inventory has is there, of the right model, and says of itself that it is well (nvidia-smi -q -x).

Measured on each node: `gpus` (count) and `gpu_model`, expected as in the inventory; `ecc_uncorrectable` (since the
driver was loaded, expected 0), `row_remap_pending`, `row_remap_failure`, `page_retirement_pending` (No), `hw_slowdown`,
`hw_thermal_slowdown`, `hw_power_brake` (Not Active) and `pcie_width` (expected: the most that the GPU can; where all
GPUs of a node have fewer lanes and equally many, as some slots and virtual machines give them, that is a warning).
What differs is told of each GPU: a missing one as `gpu` (expected: present). N/A is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcadmin import checklib as lib
from hpcadmin.check import Check, Context, Measurement, NodeView, Output, ParseError, Scope, Step, Subject
from hpcadmin.checklib import nvidia

EXPECTED = {"row_remap_pending": "No", "row_remap_failure": "No", "page_retirement_pending": "No",
            "hw_slowdown": "Not Active", "hw_thermal_slowdown": "Not Active", "hw_power_brake": "Not Active"}


def steps(context: Context) -> tuple[Step, ...]:
    return (Step(argv=(context.tools["nvidia-smi"], "-q", "-x"), timeout_s=60.0),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    if len(outputs) != 1:
        raise ParseError(f"{len(outputs)} outputs where 1 must be")
    output = outputs[0]
    node = context.nodes[0] if context.nodes else NodeView(name=output.node)
    where = Subject((node.name,) if node.name else ())
    ended = not output.timed_out and not output.truncated and output.exit_status is not None
    lost = nvidia.troubles(output.text) if ended else []
    if lost and node.gpus:
        found = [_trouble(t, node) for t in lost]
        return found + _rest(output.text, node, {m.subject for m in found})
    if lost:
        raise ParseError(f"nvidia-smi says: {lost[0].text}")
    answer = nvidia.read(lib.whole(output).text)
    if answer.attached != len(answer.gpus) and (not node.gpus or len(answer.gpus) == node.gpus):
        raise ParseError(f"{answer.attached} GPUs are attached, but {len(answer.gpus)} are described")
    found = [Measurement("gpus", len(answer.gpus), subject=where, expected=node.gpus, key=node.gpus is not None),
             Measurement("driver", answer.driver, subject=where, key=False)]
    found += [Measurement("gpu_model", model, subject=where, expected=node.gpu_model or None, key=bool(node.gpu_model))
              for model in sorted({gpu.model for gpu in answer.gpus})]
    return found + _changed(answer, node) + _folded(_all_facts(answer, node), where)


def _rest(text: str, node: NodeView, named: set[Subject]) -> list[Measurement]:
    """Beside a lost GPU: what is wrong with the others, where the tool went on to tell of them."""
    try:
        answer = nvidia.read(text)
    except ParseError:
        return []
    found = [*_changed(answer, node), *_all_facts(answer, node)]
    return [m for m in found if m.value != m.expected and m.subject not in named]


def _all_facts(answer: nvidia.Answer, node: NodeView) -> list[Measurement]:
    facts = []
    alike = len({gpu.lanes for gpu in answer.gpus}) == 1
    for place, gpu in enumerate(answer.gpus):
        index = node.gpu_uuids.index(gpu.uuid) if gpu.uuid in node.gpu_uuids else place
        facts += list(_facts(gpu, Subject((node.name,) if node.name else (), f"GPU {index}"), alike))
    return facts


def _trouble(trouble: nvidia.Trouble, node: NodeView) -> Measurement:
    """A finding, not an error: where the inventory has GPUs, this is what is wrong with them."""
    if not trouble.pci:
        return Measurement("nvidia_smi", trouble.text, subject=Subject((node.name,)), expected="answers")
    known = [nvidia.same_pci(address) for address in node.gpu_pci]
    index = known.index(trouble.pci) if trouble.pci in known else trouble.index
    device = f"GPU {trouble.pci}" if index is None else f"GPU {index}"
    return Measurement("gpu", trouble.text, subject=Subject((node.name,), device), expected="present")


def _changed(answer: nvidia.Answer, node: NodeView) -> list[Measurement]:
    """GPUs of the inventory that are not in the answer, and others that are."""
    if not node.gpu_uuids:
        return []
    here = [gpu.uuid for gpu in answer.gpus]
    found = [Measurement("gpu", "missing", subject=Subject((node.name,), f"GPU {index}"), expected="present")
             for index, uuid in enumerate(node.gpu_uuids) if uuid not in here]
    return found + [Measurement("gpu", f"not in the inventory: {gpu.uuid}", expected="as in the inventory",
                                subject=Subject((node.name,), f"GPU {gpu.pci}"))
                    for gpu in answer.gpus if gpu.uuid not in node.gpu_uuids]


def _facts(gpu: nvidia.Gpu, subject: Subject, alike: bool) -> Iterator[Measurement]:
    for name, expected in EXPECTED.items():
        if name in gpu.facts:
            yield Measurement(name, gpu.facts[name], subject=subject, expected=expected)
    if gpu.uncorrectable is not None:
        yield Measurement("ecc_uncorrectable", gpu.uncorrectable, subject=subject, expected=0)
    if gpu.lanes is not None:
        now, most = gpu.lanes
        narrow = (f"{now} of {most} PCIe lanes",) if now < most and alike else ()
        right = now if narrow else most
        yield Measurement("pcie_width", now, "lanes", subject=subject, expected=right, warnings=narrow)


def _folded(facts: Sequence[Measurement], where: Subject) -> list[Measurement]:
    """What is as it should be on all GPUs becomes one line for the node; what is not keeps its GPU."""
    bad = [m for m in facts if m.value != m.expected]
    good = {(m.name, m.expected): m for m in facts if m.name not in {b.name for b in bad}}
    return bad + [replace(m, subject=where) for m in good.values()]


CHECK = Check(
    name="nvidia_smi", title="GPUs are there and well", scope=Scope.NODE, needs=("gpu", "nvidia-smi"),
    steps=steps, parse=parse, seconds=1.5, doc=__doc__ or "",
)
