"""What the GPUs of one answer say of themselves, as measurements with what is expected."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from hpcadmin.check import Measurement, NodeView, Subject
from hpcadmin.checklib.nvidia import Answer, Gpu
from hpcadmin.checklib.nvidia_places import EXPECTED

_NUMBER = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,6})?) ?([A-Za-z%()]{0,8})\Z")
_UNITS = {"temperature": "C", "slowdown_at": "C", "heat_margin": "C", "slowdown_margin": "C", "power": "W",
          "power_limit": "W", "power_default": "W", "clock": "MHz", "clock_most": "MHz"}
Say = Callable[..., Measurement]      # of one GPU
MOST_PAGES = 60     # retired pages that a board may have before it is to be exchanged


def number(text: str | None, unit: str) -> float | None:
    """None where it is not told or is not a number with this unit."""
    match = _NUMBER.match(text or "")
    return float(match[1]) if match and match[2] == unit else None


def index_of(node: NodeView, gpu: Gpu, place: int) -> int:
    return node.gpu_uuids.index(gpu.uuid) if gpu.uuid in node.gpu_uuids else place


def all_facts(answer: Answer, node: NodeView) -> list[Measurement]:
    """Of each GPU by itself."""
    found: list[Measurement] = []
    for place, gpu in enumerate(answer.gpus):
        alike = [other for other in answer.gpus if other.model == gpu.model]
        subject = Subject((node.name,) if node.name else (), f"GPU {index_of(node, gpu, place)}")
        say = partial(Measurement, subject=subject)
        for part in _PARTS:
            found += part(gpu, alike, say)
    return found


def changed(answer: Answer, node: NodeView) -> list[Measurement]:
    """GPUs of the inventory that are not in the answer, and others that are."""
    if not node.gpu_uuids:
        return []
    here = [gpu.uuid for gpu in answer.gpus]
    found = [Measurement("gpu", "missing", subject=Subject((node.name,), f"GPU {index}"), expected="present")
             for index, uuid in enumerate(node.gpu_uuids) if uuid not in here]
    return found + [Measurement("gpu", f"not in the inventory: {gpu.uuid}", expected="as in the inventory",
                                subject=Subject((node.name,), f"GPU {gpu.pci}"))
                    for gpu in answer.gpus if gpu.uuid not in node.gpu_uuids]


def folded(facts: Sequence[Measurement], where: Subject) -> list[Measurement]:
    """What is as it should be on all GPUs becomes one line for the node; what is not keeps its GPU."""
    bad = [m for m in facts if m.expected is not None and m.value != m.expected]
    names = {m.name for m in bad}
    kinds: dict[object, list[Measurement]] = {}
    for m in facts:
        if m.name not in names:
            kinds.setdefault((m.name, m.value, m.warnings), []).append(m)
    every = max(Counter(m.name for m in facts).values(), default=0)
    return bad + [one for same in kinds.values() for one in (
        same if same[0].warnings and len(same) < every else [replace(same[0], subject=where)])]


def extremes(answer: Answer, where: Subject) -> list[Measurement]:
    """The hottest and most loaded GPU and the slowest clock: to be read, not judged."""
    found = []
    for name, unit, best in (("temperature", "C", max), ("power", "W", max), ("clock", "MHz", min)):
        values = [v for v in (number(gpu.fact(name), unit) for gpu in answer.gpus) if v is not None]
        if values:
            found.append(Measurement(name, best(values), unit, subject=where, key=False))
    return found


def _words(gpu: Gpu, alike: Sequence[Gpu], say: Say) -> Iterator[Measurement]:
    for name, expected in EXPECTED.items():
        value = gpu.fact(name)
        if value in (None, "") or (value == "N/A" and all(other.fact(name) == "N/A" for other in alike)):
            continue
        yield say(name, value or "", expected=expected)


def _modes(gpu: Gpu, alike: Sequence[Gpu], say: Say) -> Iterator[Measurement]:
    """What an administrator may have chosen: never a failure by itself, but worth a warning."""
    for name, pending, usual in (("persistence", "", "Enabled"), ("ecc_mode", "ecc_pending", "Enabled"),
                                 ("mig", "mig_pending", "")):
        value = gpu.fact(name)
        if not value or (value == "N/A" and all(other.fact(name) == "N/A" for other in alike)):
            continue
        said = [] if not usual or value == usual else [f"{name} is {value}"]
        then = gpu.fact(pending) if pending else value
        if then not in (value, None):
            said.append(f"{name} will be {then} after a reset, now {value}")
        most = Counter(other.fact(name) for other in alike).most_common(1)[0][0]
        if value != most:
            said.append(f"{name} is {value} and {most} of others")
        sane = value in ("Enabled", "Disabled")
        yield say(name, value, expected=value if sane else "Enabled or Disabled", warnings=tuple(said))
    if gpu.fact("sw_power_cap") not in ("Not Active", "N/A", None):
        yield say("sw_power_cap", gpu.fact("sw_power_cap") or "", expected=gpu.fact("sw_power_cap") or "",
                  warnings=("the clocks are held down by the power limit",))


def _memory(gpu: Gpu, _alike: Sequence[Gpu], say: Say) -> Iterator[Measurement]:
    errors = gpu.uncorrectable()
    if errors is None and gpu.fact("ecc_mode") == "Enabled":
        errors = "N/A"
    if errors is not None:
        yield say("ecc_uncorrectable", errors, expected=0)
    ever = gpu.uncorrectable("aggregate")
    if isinstance(ever, str):
        yield say("ecc_uncorrectable_ever", ever, expected="a count")
    elif ever is not None:
        yield say("ecc_uncorrectable_ever", ever, expected=ever,
                  warnings=(f"{ever} uncorrectable ECC errors so far",) if ever else ())
    for name, worst in (("pages_single", MOST_PAGES), ("pages_double", MOST_PAGES), ("rows_uncorrectable", None)):
        value = gpu.fact(name)
        if value in (None, "", "N/A"):
            continue
        count = number(value, "")
        if count is None or count < 0 or count != int(count):
            yield say(name, value or "", expected="a count")
        elif worst and count >= worst:
            yield say(name, f"{count:g}", expected=f"fewer than {worst}")
        else:
            said = (f"{name} {int(count)}",) if count else ()
            yield say(name, int(count), expected=int(count), warnings=said)
    spares = gpu.fact("banks_without_spares")
    if spares not in (None, "", "N/A"):
        yield say("banks_without_spares", spares or "", expected="0 bank(s)")


def _link(gpu: Gpu, alike: Sequence[Gpu], say: Say) -> Iterator[Measurement]:
    """An idle GPU may let its link rest at a lower generation; lanes it never gives up."""
    for name, unit, ending in (("pcie_width", "lanes", "x"), ("pcie_gen", "", "")):
        told = [gpu.fact(n) for n in (name, f"{name}_most")]
        if all(t in (None, "N/A") for t in told):
            continue
        now, most = (number(t, ending) for t in told)
        sane = now is not None and most is not None and 0 < now <= 32 and 0 < most <= 32 and now == int(now)
        if not sane:
            yield say(name, f"{told[0]} of {told[1]}", unit, expected="known")
            continue
        assert now is not None and most is not None  # noqa: S101
        same = len({(other.fact(name), other.fact(f"{name}_most")) for other in alike}) == 1
        rests = name == "pcie_gen" and now < most and _rests(gpu, alike)
        what = f"{now:g} of {most:g} PCIe lanes" if name == "pcie_width" else f"PCIe {now:g} of {most:g}"
        said = (what,) if now < most and same and not rests else ()
        right = None if rests else int(now if now >= most or said else most)
        yield say(name, int(now), unit, expected=right, key=not rests, warnings=said)


def _rests(gpu: Gpu, alike: Sequence[Gpu]) -> bool:
    """Whether a slow link may be the rest of an idle GPU: then no GPU like it has a fast one in the same state."""
    awake = any(other.fact("pcie_gen") == other.fact("pcie_gen_most") and other.fact("pstate") == gpu.fact("pstate")
                for other in alike)
    return not awake and (gpu.fact("idle") == "Active" or gpu.fact("pstate") != "P0")


def _heat(gpu: Gpu, _alike: Sequence[Gpu], say: Say) -> Iterator[Measurement]:
    heat, at = number(gpu.fact("temperature"), "C"), number(gpu.fact("slowdown_at"), "C")
    margin, least = number(gpu.fact("heat_margin"), "C"), number(gpu.fact("slowdown_margin"), "C")
    for name, unit in _UNITS.items():
        value, told = number(gpu.fact(name), unit), gpu.fact(name)
        if told not in (None, "", "N/A") and (value is None or (value < 0 and not name.endswith("margin"))):
            yield say(name, told or "", unit, expected="a number")
    if heat is not None:
        hot = f"{heat:g} C, slows down at {at:g} C" if at and heat >= at else \
            f"{heat:g} C, margin {margin:g} C" if margin is not None and least is not None and margin <= least else ""
        hot = hot or (f"{heat:g} C" if heat > 120 else "")
        said = () if heat > 0 else (f"the temperature is {heat:g} C",)
        yield say("heat", hot or "below slowdown", expected="below slowdown", warnings=said)
    limit, usual = number(gpu.fact("power_limit"), "W"), number(gpu.fact("power_default"), "W")
    if limit is not None and limit >= 0:
        said = (f"power limit {limit:g} of {usual:g} W",) if usual is not None and limit < usual else ()
        yield say("power_limit", limit, "W", expected=limit, warnings=said)


_PARTS: tuple[Callable[[Gpu, Sequence[Gpu], Say], Iterator[Measurement]], ...] = (_words, _modes, _memory, _link, _heat)
