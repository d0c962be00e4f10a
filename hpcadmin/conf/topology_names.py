"""Names of switches for Slurm that stay when the fabric is seen in another order or a switch is replaced.

They come from what the switches are called, and from GUIDs where they have no name; never from a count.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hpcadmin.conf.names import natural
from hpcadmin.fabric.names import joint_name, pieces, short_names
from hpcadmin.fabric.tree import Part

# Slurm takes names of fewer than 64 characters; its host lists hold no more than 19 digits at the end.
MAX_CHARS = 63
MAX_DIGITS = 19
_ODD = re.compile(r"[^A-Za-z0-9_]+")


def legal(name: str) -> str:
    """`name` with letters, digits, '-' and '_' alone: a dot would be a level in SLURM_TOPOLOGY_ADDR."""
    clean = _ODD.sub("-", name).strip("-_") or "switch"
    if len(clean) > MAX_CHARS:
        clean = f"{clean[:MAX_CHARS - 9].rstrip('-_')}-{hashlib.sha256(name.encode()).hexdigest()[:7]}x"
    if len(clean) - len(clean.rstrip("0123456789")) > MAX_DIGITS:
        clean = f"{clean[:MAX_CHARS - 1]}x"
    return clean


def switch_names(parts: Sequence[Part], guids: Mapping[str, str]) -> list[str]:
    """A name for each part. guids: of devices, by their names; a device named by its GUID has no name of its own."""
    short = without_domain(device for part in parts for device in part.devices)
    places: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        places.setdefault(part.level, []).append(place)
    wanted: dict[int, str] = {}
    for level, own in places.items():
        here = [parts[place] for place in own]
        names = _unit_names(here, short) if level == 1 else _joint_names(here, short, guids, level)
        wanted.update(zip(own, names, strict=True))
    taken: set[str] = set()
    found = {place: free(wanted[place], taken)
             for place in sorted(wanted, key=lambda place: (parts[place].level, parts[place].devices))}
    return [found[place] for place in range(len(parts))]


def free(name: str, taken: set[str]) -> str:
    """A legal name that nothing else has."""
    clean = candidate = legal(name)
    number = 2
    while candidate in taken:
        ending = f"-{number}"
        candidate, number = f"{clean[:MAX_CHARS - len(ending)]}{ending}", number + 1
    taken.add(candidate)
    return candidate


def without_domain(names: Iterable[str]) -> dict[str, str]:
    """leaf1 for leaf1.example.org, where no other switch is called so; numbers with dots (s.1.2) are no domains."""
    names = list(names)
    first = {name: name.partition(".")[0] if re.search(r"\.[A-Za-z]", name) else name for name in names}
    count = Counter(first.values())
    return {name: first[name] if count[first[name]] == 1 else name for name in names}


def _unit_names(units: Sequence[Part], short: Mapping[str, str]) -> list[str]:
    """Of units of several leaves by the number that their leaves share (unit-03), else by what their names share."""
    if not any(len(unit.devices) > 1 for unit in units):
        return _brief([short[unit.devices[0]] for unit in units])
    numbers = unit_numbers([tuple(short[device] for device in unit.devices) for unit in units])
    joint = [joint_name(sorted(short[device] for device in unit.devices), "") for unit in units]
    count = Counter(joint)
    found = []
    for unit, number, shared in zip(units, numbers, joint, strict=True):
        if number:
            found.append(f"unit-{number}")
        elif shared and count[shared] == 1:
            found.append(shared)
        else:
            found.append(f"unit-{min((short[device] for device in unit.devices), key=natural)}")
    return found


def _brief(names: list[str]) -> list[str]:
    """IBLEAF-04-08 for A09-P1-IBLEAF-04-08, of names built as most are; as they are where two would be the same."""
    usual = _usual_shape(names)
    short = short_names([name for name in names if len(pieces(name)) == usual])
    found = [short.get(name, name) for name in names]
    return found if len(set(found)) == len(set(names)) else names


def _usual_shape(names: Iterable[str]) -> int:
    """The number of pieces that most names have."""
    shapes = Counter(len(pieces(name)) for name in names)
    return max(shapes, key=lambda shape: (shapes[shape], shape), default=0)


def unit_numbers(units: Sequence[tuple[str, ...]]) -> list[str]:
    """Of each unit the number (or numbers) in its leaves' names that is the same within the unit and another in every
    other; "" for units whose leaves are called otherwise than most."""
    split = [[pieces(name) for name in unit] for unit in units]
    usual = _usual_shape(name for unit in units for name in unit)
    alike = [[parts for parts in unit if len(parts) == usual] for unit in split]
    if len(units) < 2 or 2 * sum(bool(unit) for unit in alike) <= len(units):
        return [""] * len(units)
    columns = [[_usual(parts[place] for parts in unit) for unit in alike] for place in range(usual - 2, 0, -2)]
    steady = [column for column in columns if all(value for value, unit in zip(column, alike, strict=True) if unit)]
    for column in [*steady, ["-".join(row) if all(row) else "" for row in zip(*reversed(steady), strict=True)]]:
        told = [value for value in column if value]
        if told and len(told) == len(set(told)):
            return list(column)
    return [""] * len(units)


def _usual(values: Iterable[str]) -> str:
    """What more than half of them are; "" for none."""
    count = Counter(values)
    value, most = count.most_common(1)[0] if count else ("", 0)
    return value if 2 * most > sum(count.values()) else ""


def _joint_names(parts: Sequence[Part], short: Mapping[str, str], guids: Mapping[str, str], level: int) -> list[str]:
    """What most of a part's switches share in their names; where that tells no parts apart, the first one's name."""
    joint = [_shared([short[device] for device in part.devices if not _nameless(device, guids)]) for part in parts]
    count = Counter(joint)
    found = []
    for part, name in zip(parts, joint, strict=True):
        if name and count[name] == 1:
            found.append(name)
        elif len(parts) == 1:
            found.append(f"level{level}")
        else:
            found.append(min((short[device] for device in part.devices), key=natural))
    return found


def _nameless(device: str, guids: Mapping[str, str]) -> bool:
    return bool(guids.get(device)) and device == f"switch-{guids[device]}"


def _shared(names: list[str]) -> str:
    """One name for the switches of a part, as most of them are called."""
    usual = _usual_shape(names)
    alike = [name for name in names if len(pieces(name)) == usual]
    names = alike if 2 * len(alike) > len(names) else names
    shown = sorted(short_names(names).values())
    joint = joint_name(shown, "") if shown else ""
    whole = joint_name(sorted(names), "") if names else ""
    if joint and whole.endswith(joint):
        return whole                     # B-SPINE, not SPINE
    if joint or len(shown) < 3:
        return joint
    heads = Counter(pieces(name)[0] for name in shown)
    head, most = max(heads.items(), key=lambda item: (item[1], item[0]))
    return joint_name([n for n in shown if pieces(n)[0] == head], "") if head and 2 * most > len(shown) else ""
