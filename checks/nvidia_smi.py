"""Every GPU that the inventory has is there, of the right model, and says of itself that it is well.

Asked of each node: `nvidia-smi -q -x`, `nvidia-smi nvlink -s` and `nvlink -e`. Measured:
- `gpus` (count) and `gpu_model`, expected as in the inventory; `driver`; a missing or strange GPU as `gpu`;
- memory: `ecc_uncorrectable` since the driver was loaded (expected 0), `ecc_uncorrectable_ever` (a warning),
  `row_remap_pending`, `row_remap_failure`,
  `page_retirement_pending` (No), `banks_without_spares` (none), retired pages (`pages_single`, `pages_double`: a
  warning, from 60 on a failure) and `rows_uncorrectable` (a warning), repairs that wait for a reset;
- clocks: `hw_slowdown`, `hw_thermal_slowdown`, `hw_power_brake`, `sw_thermal_slowdown` (Not Active), `sw_power_cap` (a
  warning), `clock`; `heat` (below the temperature of slowdown that the GPU itself names), `temperature`, `power`,
  `power_limit` (below the default: a warning);
- PCIe: `pcie_width` and `pcie_gen`, expected the most that the link can. Where all GPUs of a node have fewer lanes and
  equally many, as some slots and virtual machines give them, that is a warning. A generation at which an idle GPU lets
  its link rest is shown and not judged, for nothing is proven by it (gpu_pcie looks under load); lanes it keeps;
- where the suite puts the nodes under load, all of it again right after the load, and `grown_under_load` (nothing):
  errors of NVLinks, uncorrectable ECC errors, remapped rows and retired pages that came in between. What was sent
  again (replays and CRC errors of NVLinks,
  replays of PCIe), a counter that was set back, and a first reading that nothing can be compared with: a warning;
- modes: `persistence`, `ecc_mode`, `mig`: off, or to be changed by a reset, or not alike: a warning;
- fabric: `fabric_state` (Completed), `fabric_status` (Success) and its health;
- NVLinks: `nvlinks` (how many are up, expected as many as the board has, else as the best GPU of this model in the
  node, which is then a warning), `nvlink_rate`, `nvlink_errors` (none; replays and CRC errors are a warning).

What all GPUs of a node have alike is told once. N/A is not judged where all GPUs of the model say so; where only some
do, and for every other word that is not the expected one ("[Unknown Error]", "ERR!"), it is a failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    Measurement,
    NodeView,
    Output,
    ParseError,
    Reading,
    Scope,
    Step,
    Subject,
)
from hpcadmin.checklib import mpi_text, nvidia, nvidia_facts, nvidia_growth, nvidia_links, nvidia_text

ASKED = (("-q", "-x"), ("nvlink", "-s"), ("nvlink", "-e"))


def steps(context: Context) -> tuple[Step, ...]:
    return tuple(Step(argv=(context.tools["nvidia-smi"], *words), timeout_s=60.0, name=" ".join(words))
                 for words in ASKED)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    """Of two readings the last, with what has grown since the first."""
    after = [o for o in outputs if o.when == "after"]
    before = [o for o in outputs if o.when == "before"]
    found = _reading(after or outputs, context)
    if before and after:
        found += nvidia_growth.growth(before, after, _node(context, after[0].node))
    return found


def _reading(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    alone = len(outputs) == 1 and not outputs[0].step       # -q -x of somebody, not of a run
    if not alone and (len(outputs) != len(ASKED) or any(
            o.step and o.step != " ".join(words) for o, words in zip(outputs, ASKED, strict=False))):
        raise ParseError(f"{len(outputs)} outputs where {len(ASKED)} must be: -q -x, nvlink -s and nvlink -e")
    output = outputs[0]
    node = _node(context, output.node)
    ended = all(not o.timed_out and not o.truncated and o.exit_status is not None for o in outputs)
    lost = list(dict.fromkeys(t for o in outputs for t in nvidia.troubles(o.text))) if ended else []
    if lost and node.gpus:
        found = [_trouble(t, node) for t in lost]
        return found + _rest(output.text, node, {m.subject for m in found})
    if lost:
        raise ParseError(f"nvidia-smi says: {lost[0].text}")
    text = lib.whole(output).text
    lib.no_fatal_lines(lib.lines_of(text))
    if alone and not context.nodes and "nvidia_smi_log" not in text:
        return _for_people(text, context)
    answer = nvidia.read(text)
    if answer.attached != len(answer.gpus) and (not node.gpus or len(answer.gpus) == node.gpus):
        raise ParseError(f"{answer.attached} GPUs are attached, but {len(answer.gpus)} are described")
    if not answer.gpus:
        raise ParseError("no GPU is described")
    silent = [o for o in outputs[1:] if _silent(o, answer)]
    links = [m for o in outputs[1:] if o not in silent for m in _links(o, answer, node)]
    said = ["nvidia-smi nvlink told nothing: whether there are NVLinks is unknown"] if silent else []
    return mpi_text.warned(_measured(answer, node, links), [*answer.problems, *said])


def _for_people(text: str, context: Context) -> list[Measurement]:
    """What a text that nobody asked for us has: -q or the table."""
    reading = read(text, context)
    if not reading.sound:
        raise ParseError("; ".join(reading.problems[:3]))
    return list(reading.measurements)


def _node(context: Context, name: str = "") -> NodeView:
    return context.nodes[0] if context.nodes else NodeView(name=name)


def _where(node: NodeView) -> Subject:
    return Subject((node.name,) if node.name else ())


def _measured(answer: nvidia.Answer, node: NodeView, links: Sequence[Measurement] = ()) -> list[Measurement]:
    where = _where(node)
    found = [Measurement("gpus", len(answer.gpus), subject=where, expected=node.gpus, key=node.gpus is not None),
             Measurement("driver", answer.driver, subject=where, key=False)]
    found += [Measurement("gpu_model", model, subject=where, expected=node.gpu_model or None, key=bool(node.gpu_model))
              for model in sorted({gpu.model for gpu in answer.gpus})]
    facts = [*nvidia_facts.all_facts(answer, node), *links]
    return [*found, *nvidia_facts.changed(answer, node), *nvidia_facts.folded(facts, where),
            *nvidia_facts.extremes(answer, where)]


def _silent(output: Output, answer: nvidia.Answer) -> bool:
    """It ended well without a word, as it may for cards that have no NVLink."""
    ended = output.exit_status == 0 and not output.timed_out and not output.truncated
    return ended and not output.text.strip() and not any(nvidia_links.board(gpu.model) for gpu in answer.gpus)


def _links(output: Output, answer: nvidia.Answer, node: NodeView) -> list[Measurement]:
    """Of one output of `nvlink`. ParseError where it is not whole; a GPU without NVLink may end it with a status."""
    gpus, strange = nvidia_links.read(output.text)
    without = bool(gpus) and all(gpu.without or not (gpu.rates or gpu.counts) for gpu in gpus)
    told = nvidia_links.problems(gpus, strange)
    if without and not output.timed_out and not output.truncated and output.exit_status is not None:
        told = told if output.exit_status == 0 or not all(gpu.without for gpu in gpus) else []
    else:
        lib.whole(output)
    here = {gpu.uuid for gpu in answer.gpus}
    told += [f"NVLinks: {uuid} is in one output only" for uuid in sorted(here ^ {gpu.uuid for gpu in gpus})]
    if told:
        raise ParseError(f"nvidia-smi nvlink: {told[0]}")
    return nvidia_links.measurements(gpus, node)


def _rest(text: str, node: NodeView, named: set[Subject]) -> list[Measurement]:
    """Beside a lost GPU: what is wrong with the others, where the tool went on to tell of them."""
    try:
        answer = nvidia.read(text)
    except ParseError:
        return []
    found = [*nvidia_facts.changed(answer, node), *nvidia_facts.all_facts(answer, node)]
    return [m for m in found if m.expected is not None and m.value != m.expected and m.subject not in named]


def _trouble(trouble: nvidia.Trouble, node: NodeView) -> Measurement:
    """A finding, not an error: where the inventory has GPUs, this is what is wrong with them."""
    if not trouble.pci:
        return Measurement("nvidia_smi", trouble.text, subject=Subject((node.name,)), expected="answers")
    known = [nvidia.same_pci(address) for address in node.gpu_pci]
    index = known.index(trouble.pci) if trouble.pci in known else trouble.index
    device = f"GPU {trouble.pci}" if index is None else f"GPU {index}"
    return Measurement("gpu", trouble.text, subject=Subject((node.name,), device), expected="present")


def read(text: str, context: Context) -> Reading:
    """Any answer of the tool: -q -x, -q, the table, nvlink -s and -e, or its complaints."""
    node = _node(context)
    told = [f"nvidia-smi says: {t.text}" + (f" (GPU {t.pci})" if t.pci else "") for t in nvidia.troubles(text)]
    try:
        if "<nvidia_smi_log" not in text and not nvidia_text.is_log(text) and not nvidia_text.is_table(text) \
                and nvidia_links.is_links(text):
            gpus, strange = nvidia_links.read(text)
            told += nvidia_links.problems(gpus, strange)
            facts = nvidia_links.measurements(gpus, node)
            return Reading(tuple(nvidia_facts.folded(facts, _where(node))), tuple(told), usable=bool(gpus))
        answer = _any(text)
    except ParseError as exc:
        return Reading(problems=(*told, str(exc)))
    told += answer.problems
    if answer.attached != len(answer.gpus):
        told.append(f"{answer.attached} GPUs are attached, but {len(answer.gpus)} are described")
    if node.gpus is not None and len(answer.gpus) != node.gpus:
        told.append(f"{len(answer.gpus)} GPUs are described where the inventory has {node.gpus}")
    measured = tuple(_measured(answer, node))
    told += [f"{m.subject.device or 'GPUs'}: {m.name} is {m.value}, not {m.expected}" for m in measured
             if isinstance(m.value, str) and isinstance(m.expected, str) and m.value != m.expected]
    return Reading(measured, tuple(told), usable=bool(answer.gpus))


def _any(text: str) -> nvidia.Answer:
    if "<nvidia_smi_log" in text or "</nvidia_smi_log" in text:
        return nvidia.read(text)
    if nvidia_text.is_log(text):
        return nvidia_text.read_log(text)
    if nvidia_text.is_table(text):
        return nvidia_text.read_table(text)
    raise ParseError("no answer of nvidia-smi")


CHECK = Check(
    name="nvidia_smi", title="GPUs are there and well", scope=Scope.NODE, needs=("gpu", "nvidia-smi"),
    steps=steps, parse=parse, seconds=3.0, doc=__doc__ or "", read=read, again_after_load=True,
)
