"""The names that Slurm's AutoDetect=nvml gives to GPUs: what a Type= of gres.conf must be, or be a part of."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PROFILE = re.compile(r"[1-9][0-9]?g\.[0-9]{1,4}gb\Z")


def autodetected(model: str) -> str:
    """nvidia_h100_80gb_hbm3 for "NVIDIA H100 80GB HBM3": lower case, each blank an underscore, nothing else changed."""
    return model.strip().lower().replace(" ", "_")


def autodetected_mig(model: str, profile: str) -> str:
    """nvidia_a100_3g.20gb: the GPU's name up to its first "-", and the profile; "" where that is not known (instances
    of other profiles, as 1g.10gb+me or 1c.3g.20gb, have no name that could be told from here)."""
    name = autodetected(model).split("-", 1)[0]
    return f"{name}_{profile}" if name and _PROFILE.match(profile) else ""


def gres(types: Iterable[str], name: str = "gpu") -> str:
    """gpu:p100:2,gpu:a5000:1 in the order in which the types first come; "" as soon as one is unknown."""
    counts: dict[str, int] = {}
    for kind in types:
        counts[kind] = counts.get(kind, 0) + 1
    return "" if "" in counts else ",".join(f"{name}:{kind}:{count}" for kind, count in counts.items())
