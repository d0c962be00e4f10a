"""What stands below a matrix of `nvidia-smi topo -m`: its legends, and answers of `topo -c`."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DEVICE_OF = re.compile(r"(NIC[0-9]{1,3}):[ \t]{1,8}([A-Za-z](?:[A-Za-z0-9_.-]{0,39}[A-Za-z0-9])?)(?![A-Za-z0-9_.-])")
_MEANS = re.compile(r"\s{0,12}(X|SYS|SOC|NODE|PHB|PXB|PIX|NV#|C2C)[ \t]{1,8}= ")
_NEAR_CPU = re.compile(r"The GPUs? that (?:have|has) an affinity with CPU ([0-9]{1,5}) (?:are|is):")
_NUMBERS = re.compile(r"[0-9]{1,3}(?:, ?[0-9]{1,3}){0,63}\Z")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})\Z")


def follows(names: Sequence[str]) -> bool:
    """Whether the last name has the number after that of the one before it."""
    if len(names) < 2:
        return names[-1] == "GPU0"
    one, two = _NUMBERED.match(names[-2]), _NUMBERED.match(names[-1])
    if one is None or two is None:
        return False
    return int(two[2]) == 0 if one[1] != two[1] else int(two[2]) == int(one[2]) + 1


def near_cpus(lines: Sequence[tuple[int, str]]) -> dict[int, tuple[int, ...]]:
    """Answers of `nvidia-smi topo -c` below the matrix."""
    found: dict[int, tuple[int, ...]] = {}
    for place, (_, text) in enumerate(lines):
        match = _NEAR_CPU.match(text.strip()) if "affinity with CPU" in text else None
        follows = lines[place + 1][1].strip() if match and place + 1 < len(lines) else ""
        if match and _NUMBERS.match(follows):
            found[int(match[1])] = tuple(int(number) for number in follows.split(","))
    return found


def legend_in(lines: Sequence[tuple[int, str]], nics: Sequence[str], cut: int) -> tuple[dict[str, str], str]:
    """(device of each NIC, what kind of legend it is). cut: the line in which the text ends, 0 for none."""
    devices: dict[str, str] = {}
    kinds: set[str] = set()
    old = begun = False
    for number, text in lines:
        begun = begun or (len(text) < 40 and text.strip(" \t*#").lower() == "legend:")
        match = _MEANS.match(text)
        if match:
            kinds.add(match[1])
            old = old or "Path traverses" in text
        if "NIC" not in text or not text.lstrip(" \t-*").startswith("NIC"):
            continue
        for nic, device in _DEVICE_OF.findall(text):
            stump = number == cut and text.rstrip().endswith(device) and not follows(
                [devices.get(f"NIC{int(nic[3:]) - 1}", ""), device])
            if nic in nics and not stump:
                devices.setdefault(nic, device)
    last = next(reversed(devices), "")
    if last:                             # mlx5 may be what is left of mlx5_7
        form = _DIGITS.sub("", devices[last])
        if not devices[last][-1].isdigit() or any(other != form and other.startswith(form) for other in (
                _DIGITS.sub("", device) for device in devices.values())):
            del devices[last]
    twice = {device for device in devices.values() if list(devices.values()).count(device) > 1}
    devices = {nic: device for nic, device in devices.items() if device not in twice}
    return devices, "" if not (kinds or begun) else "nvlink" if "NV#" in kinds else "old" if old else "plain"
