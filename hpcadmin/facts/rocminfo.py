"""`rocminfo`: the agents of the HSA runtime; its GPUs in the order that HIP numbers them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _amd
from hpcadmin.facts._amd import AmdGpu, AmdSmi, told
from hpcadmin.facts._base import clean, maybe_integer
from hpcadmin.facts._reading import Document, Reading

FORMS = ("text",)
MARKS = ("Agent 1",)
_AGENT = re.compile(r"\s*Agent (\d{1,4})\s*\Z")
_ENTRY = re.compile(r" {2}([A-Z][A-Za-z /()_-]{1,40}):\s+(\S.*)")
_DONE = "*** Done ***"
_CHIP = re.compile(r"\d{1,8}\(0x([0-9a-fA-F]{1,4})\)")


@dataclass
class _Output:
    first: int
    last: int
    agents: list[dict[str, str]] = field(default_factory=list)
    done: bool = False


def read(document: Document) -> tuple[Reading, ...]:
    if "Agent 1" not in document.text or "Device Type" not in document.text:
        return ()
    return tuple(_reading(output) for output in _outputs(document.lines) if any(
        "Device Type" in agent for agent in output.agents))


def _outputs(lines: Sequence[str]) -> Iterator[_Output]:
    output: _Output | None = None
    for number, line in enumerate(lines, 1):
        agent = _AGENT.match(line[:100])
        if agent:
            if agent[1] == "1" or output is None:
                if output:
                    yield output
                output = _Output(number, number)
            output.agents.append({})
            if len(output.agents) > _amd.MAX_GPUS:
                raise ParseError(f"line {number}: more agents than a node has")
        elif output and _DONE in line:
            output.done, output.last = True, number
            yield output
            output = None
        elif output:
            entry = _ENTRY.match(line[:300])
            if entry:
                output.agents[-1].setdefault(entry[1].strip(), clean(entry[2]))
                output.last = number
    if output:
        yield output


def _reading(output: _Output) -> Reading:
    gpus = tuple(_gpu(index, agent) for index, agent in enumerate(
        agent for agent in output.agents if agent.get("Device Type") == "GPU"))
    missing = []
    if not output.done:
        missing.append("the output has no end mark: agents may be missing")
    if any("Device Type" not in agent for agent in output.agents):
        missing.append("an agent is not described to its end")
    known: dict[str, Any] = {
        "gpus": [_amd.known_gpu(gpu) for gpu in gpus] if gpus or not missing else None,
        "gpu_count": None if missing else len(gpus), "cores_if_determined": None,
        "cpus_as_agents": sum(agent.get("Device Type") == "CPU" for agent in output.agents)}
    return Reading(kind="rocminfo", first=output.first, last=output.last, value=AmdSmi(gpus), known=known,
                   missing=tuple(missing))


def _gpu(index: int, agent: dict[str, str]) -> AmdGpu:
    """BDFID has no domain; without a line that tells it the address would be a guess."""
    place, domain = maybe_integer(agent.get("BDFID")), maybe_integer(agent.get("Domain"))
    pci = ""
    if place is not None and domain is not None and place < 1 << 16 and domain < 1 << 32:
        pci = f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
    chip = _CHIP.match(agent.get("Chip ID", ""))
    uuid = told(agent.get("Uuid"))
    return AmdGpu(index=index, pci=pci, model=told(agent.get("Marketing Name")), gfx=told(agent.get("Name")),
                  uuid="" if uuid in ("GPU-XX", "CPU-XX") else uuid, node=_amd.numbered(agent.get("Node")),
                  pci_id=f"1002:{int(chip[1], 16):04x}" if chip else "")
