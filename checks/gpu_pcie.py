"""The PCIe link of every GPU while the GPUs work: generation and width.

An idle GPU may let its link rest at a lower generation, so that nvidia_smi proves nothing of it. Beside the first load
on all GPUs of a node (a check of NCCL over "node", or over all nodes) nvidia-smi is asked every second, `samples` times
at most, until it has seen all GPUs busy with their links at full speed.

Measured of each GPU, of the samples in which it was busy (utilisation above zero): `pcie_gen`, the highest, and
`pcie_width`, the lowest, both expected as the most that the GPU and its slot can do ("max" of nvidia-smi). What is good
on all GPUs of a node is told once. A GPU that was never seen busy proves nothing: that is a warning, and so is one
whose most is less than that of others of its node. On simulated
hardware, where no GPU works, all samples count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from hpcadmin.checklib import nvidia

FIELDS = ("pci.bus_id", "pstate", "utilization.gpu", "pcie.link.gen.current", "pcie.link.gen.max",
          "pcie.link.width.current", "pcie.link.width.max")
SCRIPT = r"""
PATH=/usr/bin:/bin LC_ALL=C
export PATH LC_ALL
echo '# hpcadmin gpu_pcie 1'
n=0
while [ $n -lt "$2" ]; do
    n=$((n + 1))
    echo "# sample $n"
    told=$("$1" "--query-gpu=$3" --format=csv,noheader,nounits 2>&1) || { printf '%s\n' "$told"; exit 1; }
    printf '%s\n' "$told"
    left=$(printf '%s\n' "$told" | awk -F', *' '!($3 + 0 > 0 && $4 == $5) { n++ } END { print n + 0 }')
    [ "$left" = 0 ] && break
    sleep 1
done
echo '# end gpu_pcie'
"""
NAME = "gpu_pcie"
WIDTHS, MOST_GEN = (1, 2, 4, 8, 12, 16, 32), 7


@dataclass(frozen=True)
class Row:
    busy: int | None        # per cent; None: not told
    gen: int
    gen_most: int
    width: int
    width_most: int


def steps(context: Context) -> tuple[Step, ...]:
    samples = 2 if context.simulated else context.param_int("samples", 60)
    return (Step(argv=("/bin/sh", "-c", SCRIPT, NAME, context.tools["nvidia-smi"], str(samples), ",".join(FIELDS)),
                 timeout_s=60.0 + 3 * samples),)


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    output = lib.require(outputs, count=1)[0]
    lib.no_fatal_lines(lib.lines_of(output.text))
    node = context.nodes[0] if context.nodes else NodeView(name=output.node)
    return _measurements(_samples(output.text, node), node)


def read(text: str, context: Context) -> Reading:
    node = context.nodes[0] if context.nodes else NodeView("")
    try:
        lib.no_fatal_lines(lib.lines_of(text))
        found = _measurements(_samples(text, node), node)
    except ParseError as exc:
        return Reading(problems=(str(exc),))
    wrong = [f"{m.subject.device or 'GPUs'}: {m.name} is {m.value}, not {m.expected}" for m in found
             if m.value != m.expected]
    return Reading(tuple(found), (*wrong, *dict.fromkeys(w for m in found for w in m.warnings)), usable=True, hosts=1)


def _samples(text: str, node: NodeView) -> dict[str, list[Row]]:
    """PCI address -> its rows, one of each sample."""
    lines = lib.own_output(text, NAME)
    found: dict[str, list[Row]] = {}
    count = 0
    for line in lines[lines.index(f"# hpcadmin {NAME} 1") + 1:lines.index(f"# end {NAME}")]:
        if line.startswith("# sample "):
            count += 1
            if line != f"# sample {count}":
                raise ParseError(f"sample {count} is missing: {lib.shown(line)}")
            continue
        address, row = _row(line)
        found.setdefault(address, []).append(row)
        if len(found[address]) != count:
            raise ParseError(f"GPU {address} is not in every sample, or twice in one")
    if not found or any(len(rows) != count for rows in found.values()):
        raise ParseError("no GPU is described" if not found else "a GPU is not in every sample")
    if node.gpus is not None and len(found) != node.gpus:
        raise ParseError(f"{len(found)} GPUs are described where the inventory has {node.gpus}")
    known = {nvidia.same_pci(address) for address in node.gpu_pci}
    if known and (strange := [address for address in found if address not in known]):
        raise ParseError(f"the GPU at {strange[0]} is not in the inventory")
    return found


def _row(line: str) -> tuple[str, Row]:
    words = [word.strip() for word in line.split(",")]
    if len(words) != len(FIELDS):
        raise ParseError(f"not a line of {len(FIELDS)} fields: {lib.shown(line)}")
    busy = None if words[2] in ("[N/A]", "N/A", "[Not Supported]") else lib.integer(words[2], "utilisation", most=100)
    numbers = [lib.integer(word, name, least=1, most=32) for word, name in zip(words[3:], FIELDS[3:], strict=True)]
    row = Row(busy, *numbers)
    if row.gen_most > MOST_GEN or {row.width, row.width_most} - set(WIDTHS):
        raise ParseError(f"there is no such PCIe link: {lib.shown(line)}")
    if row.gen > row.gen_most or row.width > row.width_most:
        raise ParseError(f"the link is above its own most: {lib.shown(line)}")
    return nvidia.same_pci(words[0]), row


def _measurements(samples: dict[str, list[Row]], node: NodeView) -> list[Measurement]:
    known = [nvidia.same_pci(address) for address in node.gpu_pci]
    where = Subject((node.name,) if node.name else ())
    best = max((row.gen_most, row.width_most) for rows in samples.values() for row in rows)
    found: list[Measurement] = []
    for place, (address, rows) in enumerate(samples.items()):
        busy = rows if node.simulated else [row for row in rows if row.busy]
        index = known.index(address) if address in known else place
        told = busy or rows
        said = [] if busy else [f"never seen busy in {len(rows)} samples: its link under load is not known"]
        most = max((row.gen_most, row.width_most) for row in rows)
        if most != best:
            said.append(f"generation {most[0]} with {most[1]} lanes is its most, where others of the node have "
                        f"{best[0]} with {best[1]}")
        gen, width = max(row.gen for row in told), min(row.width for row in told)
        subject = replace(where, device=f"GPU {index}")
        found += [Measurement("pcie_gen", gen, subject=subject, warnings=tuple(said),
                              expected=max(row.gen_most for row in rows) if busy else gen),
                  Measurement("pcie_width", width, "lanes", subject=subject, warnings=tuple(said),
                              expected=max(row.width_most for row in rows))]
    alike = {(m.name, m.value, m.expected, m.warnings) for m in found}
    if len(alike) == 2:
        return [replace(m, subject=where) for m in found[:2]]
    return found


CHECK = Check(
    name=NAME, title="PCIe links of GPUs under load", scope=Scope.NODE, needs=("gpu", "nvidia-smi"),
    params={"samples": 60}, steps=steps, parse=parse, read=read, seconds=20.0, doc=__doc__ or "", beside_load=True,
)
