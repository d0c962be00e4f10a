"""Nodes: what slurmctld would hold of each, for all nodes at once that have the same two lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpcadmin.conf.diff import values
from hpcadmin.conf.diff.parts import Difference, Sides, Weight
from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.parts import Configuration, NodeLine, Value
from hpcadmin.errors import UsageError
from hpcadmin.facts._slurm_gres import gres_items
from hpcadmin.hosts import fold

NAMES = {"nodehostname": "NodeHostname", "nodeaddr": "NodeAddr", "bcastaddr": "BcastAddr", "port": "Port"}
_LAYOUT = {"boards": "Boards", "sockets": "Sockets", "corespersocket": "CoresPerSocket",
           "threadspercore": "ThreadsPerCore", "cpus": "CPUs"}
_TABLE = "[nodes.NAME.options]"
# What Slurm takes where a line does not say it.
_DEFAULTS = {"realmemory": "1", "weight": "1", "tmpdisk": "0", "state": "UNKNOWN", "corespeccount": "0",
             "memspeclimit": "0"}


def compare(old: Configuration, new: Configuration, sides: Sides) -> Iterator[Difference]:
    before, after = _by_host(old), _by_host(new)
    pairs: dict[tuple[int, int], list[str]] = {}
    for host in [*before, *(host for host in after if host not in before)]:
        pairs.setdefault((before.get(host, -1), after.get(host, -1)), []).append(host)
    gone: list[str] = []
    for (was, will), hosts in pairs.items():
        if will < 0:
            gone += hosts
        elif was < 0:
            line = new.nodes[will]
            yield Difference(Weight.CHANGE, "slurm.conf", "nodes", "", summary(line), tuple(hosts),
                             apply=sides.apply("NodeName", "NodeName"))
        else:
            yield from _pair(old.nodes[was], new.nodes[will], hosts, sides)
    if gone:
        first = next(line for line in old.nodes if gone[0] in line.hosts)
        means = "jobs on nodes that go out of slurm.conf end"
        yield Difference(Weight.JOBS, "slurm.conf", "nodes", "in slurm.conf", "", tuple(gone),
                         means=f"not in the inventory; {means}" if sides.truth else means,
                         place=first.place, apply=sides.apply("NodeName", "NodeName"))


def _by_host(conf: Configuration) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(conf.nodes):
        for host in line.hosts:
            found.setdefault(host, number)
    return found


def summary(line: NodeLine) -> str:
    return " ".join(f"{value.key}={value.text}" for key, value in line.values.items()
                    if key in ("cpus", "realmemory", "gres", "features"))


def _pair(old: NodeLine, new: NodeLine, hosts: Sequence[str], sides: Sides) -> Iterator[Difference]:
    yield from _layout(old, new, hosts, sides)
    done = {*_LAYOUT, "socketsperboard", *NAMES}
    for key in [*new.values, *(key for key in old.values if key not in new.values)]:
        if key in done:
            continue
        before, after = old.values.get(key), new.values.get(key)
        was = before.text if before else _DEFAULTS.get(key, "")
        will = after.text if after else _DEFAULTS.get(key, "")
        if _same(key, was, will):
            continue
        yield from _value(key, (before, after), (was if before else "", will if after else ""), hosts, sides)
    yield from _names(old, new, hosts, sides)


def _same(key: str, old: str, new: str) -> bool:
    if key == "gres":
        return _gres(old) == _gres(new)
    return values.same(key, old, new)


def _gres(text: str) -> list[tuple[str, str, int]]:
    """Order is kept: it is the order in which the types get their GPUs."""
    return gres_items(text) if text.count(",") < 1000 and not any(c in text for c in "KMGTkmgt(") else [(text, "", 0)]


def _value(key: str, both: tuple[Value | None, Value | None], texts: tuple[str, str], hosts: Sequence[str],
           sides: Sides) -> Iterator[Difference]:
    before, after = both
    value = after or before
    if value is None:
        return
    place = before.place if before else None
    apply = sides.apply("NodeName", value.key)
    fatal = sides.fatal("NodeName", before)
    if fatal:
        yield Difference(Weight.FATAL, "slurm.conf", value.key, *texts, tuple(hosts), sides.why(after), fatal, place,
                         apply)
        return
    if key == "realmemory" and sides.truth:
        yield from _memory(value.key, both, texts, hosts, sides)
        return
    weight, means = Weight.CHANGE, ""
    if key == "gres" and sides.truth:
        lacking = _fewer(texts[0], texts[1])
        if lacking:
            weight, means = Weight.INVALID, f"{lacking}: the node registers INVALID"
    if after is None and weight is Weight.CHANGE:
        weight, means = Weight.DROPPED, sides.goes(_TABLE)
    yield Difference(weight, "slurm.conf", value.key, *texts, tuple(hosts), sides.why(after), means, place, apply)


def _memory(name: str, both: tuple[Value | None, Value | None], texts: tuple[str, str], hosts: Sequence[str],
            sides: Sides) -> Iterator[Difference]:
    """Nodes that have less than the old line says are apart from those that have enough."""
    before, after = both
    old = int(texts[0]) if texts[0].isascii() and texts[0].isdigit() and len(texts[0]) < 16 else 0
    short = [host for host in hosts if sides.memory.get(host, old) < old]
    rest = [host for host in hosts if sides.memory.get(host, old) >= old]
    place = before.place if before else None
    apply = sides.apply("NodeName", name)
    if short:
        least = min(sides.memory[host] for host in short)
        yield Difference(Weight.INVALID, "slurm.conf", name, *texts, tuple(short), sides.why(after),
                         f"slurmd counts {least} MiB, less than that: the node registers INVALID", place, apply)
    if rest:
        yield Difference(Weight.CHANGE, "slurm.conf", name, *texts, tuple(rest), sides.why(after), "", place, apply)


def _fewer(old: str, new: str) -> str:
    """Which gres the old text has more of than there are."""
    have: dict[str, int] = {}
    for name, _, count in gres_items(new):
        have[name] = have.get(name, 0) + count
    wanted: dict[str, int] = {}
    for name, _, count in gres_items(old):
        wanted[name] = wanted.get(name, 0) + count
    return ", ".join(f"{have[name]} {name} where {count} are configured" for name, count in wanted.items()
                     if name in have and count > have[name])


def _layout(old: NodeLine, new: NodeLine, hosts: Sequence[str], sides: Sides) -> Iterator[Difference]:
    """Sockets and SocketsPerBoard, CPUs that are written and CPUs that follow, are compared by what they come to."""
    was, will = layout(old), layout(new)
    if was == will or (was is None and will is None):
        return
    if was is None or will is None:
        yield Difference(Weight.CHANGE, "slurm.conf", "CPUs", _layout_text(old), _layout_text(new), tuple(hosts),
                         apply=sides.apply("NodeName", "CPUs"))
        return
    total = [shape["sockets"] * shape["corespersocket"] * shape["threadspercore"] for shape in (was, will)]
    more = sides.truth and (total[0] > total[1] or was["cpus"] > total[1])
    for key, name in _LAYOUT.items():
        if was[key] == will[key]:
            continue
        after = new.values.get(key)
        yield Difference(
            Weight.INVALID if more else Weight.CHANGE, "slurm.conf", name, str(was[key]), str(will[key]), tuple(hosts),
            sides.why(after), f"more than the {total[1]} CPUs that the node has: it registers INVALID" if more else "",
            (old.values.get(key) or next(iter(old.values.values()), None) or _at(old)).place,
            sides.apply("NodeName", name))


def _at(line: NodeLine) -> Value:
    return Value("NodeName", line.text, line.place)


def _layout_text(line: NodeLine) -> str:
    return " ".join(f"{v.key}={v.text}" for k, v in line.values.items() if k in (*_LAYOUT, "socketsperboard"))


def layout(line: NodeLine) -> Mapping[str, int] | None:
    """Boards, sockets of all boards, cores, threads and CPUs as Slurm completes them; None where one is no number."""
    given: dict[str, int] = {}
    for key in (*_LAYOUT, "socketsperboard"):
        number = line.number(key)
        if key in line.values and number is None:
            return None
        if number is not None:
            given[key] = number or 1     # Slurm makes 0 a 1
    boards, cores = given.get("boards", 1), given.get("corespersocket", 1)
    threads = given.get("threadspercore", 1)
    if "socketsperboard" in given:
        sockets = boards * given["socketsperboard"]
    elif "sockets" in given:
        sockets = given["sockets"]
    else:
        cpus = given.get("cpus", 0)
        sockets = cpus // (cores * threads) if cpus and not cpus % (cores * threads) else boards
    total = sockets * cores * threads
    cpus = given.get("cpus", total)
    return {"boards": boards if sockets >= boards else 1, "sockets": sockets, "corespersocket": cores,
            "threadspercore": threads, "cpus": cpus if cpus in (sockets, sockets * cores) else total}


def _names(old: NodeLine, new: NodeLine, hosts: Sequence[str], sides: Sides) -> Iterator[Difference]:
    """NodeAddr and the like: host by host, for each has its own."""
    for key, name in NAMES.items():
        before, after = old.values.get(key), new.values.get(key)
        if before is None and after is None:
            continue
        was, will = _each(old, key), _each(new, key)
        changed = [host for host in hosts if was.get(host, host) != will.get(host, host)]
        if not changed:
            continue
        texts = [_folded(before, was, changed), _folded(after, will, changed)]
        weight = Weight.DROPPED if after is None else Weight.CHANGE
        yield Difference(weight, "slurm.conf", name, texts[0], texts[1], tuple(changed), sides.why(after),
                         sides.goes(_TABLE) if after is None else "", before.place if before else None,
                         sides.apply("NodeName", name))


def _folded(value: Value | None, each: Mapping[str, str], hosts: Sequence[str]) -> str:
    return "" if value is None else fold(dict.fromkeys(each.get(host, host) for host in hosts))


def _each(line: NodeLine, key: str) -> dict[str, str]:
    value = line.values.get(key)
    if value is None:
        return {}
    text = f"[{value.text}]" if key == "port" and not value.text.startswith("[") else value.text
    try:
        found = hostlist.expand(text)
    except UsageError:
        return dict.fromkeys(line.hosts, value.text)
    if len(found) == 1:
        return dict.fromkeys(line.hosts, found[0])
    return dict(zip(line.hosts, found, strict=False))
