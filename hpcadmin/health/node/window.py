"""How much counters grew within a time: the samples lie in the state folder, a reboot or a reset begins anew."""

from hpcadmin.health.node.api import unknown

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding
    from hpcadmin.health.node.door import Door

SAMPLES = 12
STRETCH = 1.5                                   # a window that is longer by this than it should be tells of an average


def unseen(door: "Door") -> "list[Finding]":
    """Where nothing is remembered every look is the first, and nothing ever grows."""
    return [unknown("growth cannot be seen: %s" % door.forgetful)] if door.forgetful else []


def grown(door: "Door", key: str, values: "dict[str, int]", window_s: float) -> "dict[str, int] | None":
    """Counter -> growth within the window (or since the first look, if that is nearer). None at the first look.

    A counter that is lower than before was reset: it counts from zero. One that is new counts from its first look.
    Where the last look was long before the window, it is the window's share of what grew since.
    """
    now, boot = door.now(), door.boot_id()
    past = door.last(key)
    samples = []  # type: list[tuple[float, dict[str, int]]]
    if isinstance(past, dict) and past.get("boot") == boot and isinstance(past.get("samples"), list):
        samples = [(one[0], one[1]) for one in past["samples"] if _is_sample(one) and one[0] <= now]
    base, later = None, []  # type: tuple[float, dict[str, int]] | None, list[tuple[float, dict[str, int]]]
    for sample in samples:
        if sample[0] <= now - window_s:
            base = sample                       # the last one before the window begins
        else:
            later.append(sample)
    kept = ([base] if base else []) + later
    # Many looks within a window: only some are worth keeping.
    if not kept or now - kept[-1][0] >= window_s / (SAMPLES - 2) or set(values) - set(kept[-1][1]):
        kept.append((now, values))
    door.keep(key, {"boot": boot, "samples": [[when, what] for when, what in kept[-SAMPLES:]]})
    start = base or (later[0] if later else None)
    if start is None:
        return None
    growth, series = {}, ([base] if base else []) + later
    long_s = now - start[0]
    for name, value in values.items():
        before = next((sample[1][name] for sample in series if name in sample[1]), value)
        more = value - before if value >= before else value
        if more and long_s > STRETCH * window_s and name in start[1]:
            more = max(1, int(more * window_s / long_s))
        growth[name] = more
    return growth


def _is_sample(one: object) -> bool:
    return (isinstance(one, list) and len(one) == 2 and isinstance(one[0], (int, float)) and isinstance(one[1], dict)
            and all(isinstance(value, int) for value in one[1].values()))
