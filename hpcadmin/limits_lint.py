"""What is wrong with limits: what physics forbids, units mixed up, sources that contradict each other, and the like.

An error makes a limit that misjudges; a remark is worth a look. Pure: files are read by the catalogue.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from hpcadmin import ceilings
from hpcadmin.catalogue import MEASURED, SIZED, Entry, Known, is_hardware, specific
from hpcadmin.check import Direction, Limit
from hpcadmin.checklib.links_counts import DAMAGED, ERRORS
from hpcadmin.errors import SiteError
from hpcadmin.text import byte_size

ERROR, REMARK = "error", "remark"
FACTOR = 1.5              # between two sources for one thing: beyond, one of them is wrong
COMING = ("host_device_copy", "peer_copy")       # tools that have no check yet: figures only, no limits
_RATES = ("GB/s", "Gb/s", "MB/s", "MiB/s")
_US: tuple[str, ...] = ("us",)
_BW: dict[str, tuple[str, ...]] = {"bandwidth": ("Gb/s",), "bw_average": _RATES, "bw_peak": _RATES,
                                   "msg_rate": ("Mpps",)}
_LAT = dict.fromkeys(("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "p99", "p99_9"), _US)
_OSU: dict[str, tuple[str, ...]] = {
    "bandwidth": ("MB/s",), "msg_rate": ("msg/s",), "overlap": ("%",),
    **dict.fromkeys(("latency", "avg_latency", "min_latency", "max_latency", "overall", "compute", "pure_comm",
                     "min_comm", "max_comm", "coll_init", "mpi_test", "mpi_wait"), _US)}
# What checks measure, by the longest beginning of their names: a limit for another name or unit would judge nothing.
MEASURES: dict[str, dict[str, tuple[str, ...]]] = {
    "nccl_": {"busbw": ("GB/s",), "algbw": ("GB/s",), "avg_busbw": ("GB/s",), "time": ("us", "ms")},
    "osu_": _OSU,
    "ib_write_bw": _BW, "ib_read_bw": _BW, "ib_send_bw": _BW, "ib_atomic_bw": _BW,
    "ib_write_lat": {**_LAT, "tps_average": ("1/s",)}, "ib_read_lat": _LAT, "ib_send_lat": _LAT, "ib_atomic_lat": _LAT,
    "mpi_pingpong": {"latency": ("us",), "latency_median": ("us",), "bandwidth": ("MB/s",),
                     "bandwidth_median": ("MB/s",)},
    "ib_links": dict.fromkeys(("errors", *ERRORS, *DAMAGED), ("count",)),
    "mlxlink": {**dict.fromkeys(("effective_ber", "symbol_ber", "raw_ber"), ("errors/bit",)), "since_clear": ("min",),
                "module_temperature": ("C",), "module_voltage": ("mV",), "bias": ("mA",),
                **dict.fromkeys(("rx_power", "tx_power"), ("dBm",))},
    "subnet_manager": {}, "ibdiagnet": {},
    "nvidia_smi": {"temperature": ("C",), "power": ("W",), "clock": ("MHz",)},
    "mpi_hello": {"clock_offset": ("s",)},
    "node_ready": {"clock_offset": ("s",), "shared_free": ("MiB",), "tmp_free": ("MiB",), "uptime": ("s",)},
    "host_device_copy": {"to_device": ("GB/s",), "to_host": ("GB/s",), "bandwidth": ("GB/s",)},
    "peer_copy": {"bandwidth": ("GB/s",)},
    "ethernet": {"bandwidth": ("Gb/s",), "loss": ("%",), "jitter": ("ms",), "retransmits": ("segments",),
                 "duration": ("s",), **dict.fromkeys(("sent_rate", "received_rate"), ("Mb/s",)),
                 **dict.fromkeys(("rtt_min", "rtt_avg", "rtt_max", "rtt_mdev"), ("ms",))},
    "roce_config": {},
    "gpu_binding": {}, "leaf_allocation": {},        # what they tell is equal to what is expected, or not
}
_SIZED = (*SIZED, "us", "ms", "msg/s", "Mpps")
_SIZELESS = ("clock_offset", "uptime", "avg_busbw")
_NO_SOURCE = re.compile(r"\s*(?:todo|fixme|tbd|none|unknown|n/?a|guess(?:ed)?|xxx|me|\W*)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    where: str               # file:line
    rule: str
    text: str
    level: str = ERROR


def lint(items: Iterable[Entry | SiteError], checks: Collection[str], today: datetime.date,
         known: Sequence[Known] = ()) -> list[Finding]:
    """Everything that is wrong with these tables, in their order; known: further figures to compare them with."""
    findings, entries = [], []
    for item in items:
        if isinstance(item, SiteError):
            findings.append(Finding(item.where or "", "read", item.what))
        else:
            entries.append(item)
            findings += _alone(item, checks, today)
    findings += _against_known(entries, known)
    findings += _against_each_other(entries)
    return sorted(findings, key=_place)


def _place(finding: Finding) -> tuple[str, int]:
    file, _, line = finding.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (finding.where, 0)


def _alone(entry: Entry, checks: Collection[str], today: datetime.date) -> Iterator[Finding]:
    record = entry.record
    wrong = [("source", "no source: verdicts name this file; who measured it, and where?", REMARK)] \
        if record.source == entry.file else []
    wrong += [*_names(record, checks), *_paper(record, today), *_size(record), *_hardware(record)]
    if not (isinstance(record, Limit) and record.simulated):
        wrong += _physics(record)
    for rule, text, level in wrong:
        yield Finding(entry.where, rule, f"{shown(record)}: {text}", level)


Wrong = Iterator[tuple[str, str, str]]


def measures(check: str) -> dict[str, tuple[str, ...]] | None:
    """What a check of ours measures, name to units; None for a check that is not ours."""
    fitting = [begin for begin in MEASURES if check.startswith(begin)]
    return MEASURES[max(fitting, key=len)] if fitting else None


def _names(record: Limit | Known, checks: Collection[str]) -> Wrong:
    if record.check not in checks and not (isinstance(record, Known) and record.check in COMING):
        yield "check", f"no check is named {record.check!r}", ERROR
        return
    names = measures(record.check)
    if names is None:
        return
    known = ", ".join(sorted(names)) or "nothing that a limit could judge"
    if record.measurement not in names:
        yield "measurement", f"{record.check} measures no {record.measurement!r}, but {known}", ERROR
    elif record.unit not in names[record.measurement]:
        right = " or ".join(names[record.measurement])
        yield "unit", f"{record.check} gives {record.measurement} in {right}, never in {record.unit}", ERROR


def _paper(record: Limit | Known, today: datetime.date) -> Wrong:
    if _NO_SOURCE.fullmatch(record.source):
        yield "source", f"the source {record.source!r} says nothing", ERROR
    if not record.date:
        return
    try:
        date = datetime.date.fromisoformat(record.date)
    except ValueError:
        yield "date", f"the date {record.date!r} is not YYYY-MM-DD", ERROR
        return
    if date > today + datetime.timedelta(days=1):       # somebody is east of here
        yield "date", f"the date {record.date} is in the future", ERROR


def _size(record: Limit | Known) -> Wrong:
    if isinstance(record, Known) or record.simulated or record.size_bytes is not None:
        return
    if record.unit in _SIZED and record.measurement not in _SIZELESS and "barrier" not in record.check:
        yield "size", f"{record.measurement} depends on the message size, and none is given", ERROR


def _hardware(record: Limit | Known) -> Wrong:
    found = ceilings.gpus(record.hardware)
    families = sorted({g.family for g in found})
    if len(families) > 1 and record.hardware.startswith("*"):
        yield "hardware", f"the pattern {record.hardware!r} also means other models: {', '.join(families)}", ERROR
    if record.hardware and not found and not set("*?[") & set(record.hardware):
        like = [g.name for g in ceilings.GPUS if record.hardware.casefold() in g.name.casefold()]
        if like:
            yield "hardware", f"no GPU is named {record.hardware!r}, but {', '.join(like[:3])}", ERROR
            return
    if record.hardware and not found and ceilings.port_gbps(record.hardware) is None and not (
            isinstance(record, Limit) and record.simulated):
        yield "hardware", f"{record.hardware!r} is no hardware whose ceilings are known: not checked", REMARK
    if record.nodes and record.ranks and record.ranks < record.nodes:
        yield "ranks", f"{record.ranks} ranks cannot be on {record.nodes} nodes", ERROR


def _physics(record: Limit | Known) -> Wrong:
    least = record.min if isinstance(record, Limit) else record.value
    most = record.max if isinstance(record, Limit) else record.value
    top = ceilings.ceiling(record.check, record.measurement, record.unit, record.hardware, ranks=record.ranks,
                           nodes=record.nodes, both=record.direction is Direction.BOTH)
    if top and least is not None:
        yield from _too_much(least, top, record)
        if least <= top.value * 1.001:
            yield from _for_some(least, record)
    if isinstance(record, Limit) and record.max is None and record.unit in ("us", "ms"):
        yield "bound", "a time without max: however slow, it would pass", ERROR
    floor = ceilings.floor_us(record.check, record.hardware, record.size_bytes) if record.unit == "us" else None
    if floor and most is not None and most < floor.value and not record.measurement.endswith("stdev"):
        yield "floor", f"{most:g} us is below what is possible: {floor.value:.3g} us ({floor.why})", ERROR


def _too_much(value: float, top: ceilings.Ceiling, record: Limit | Known) -> Wrong:
    if value > top.value * 1.001:
        doubt = ""
        if value / 8 <= top.value and value / 8 >= 0.3 * top.value:
            doubt = "; an eighth of it would fit: bits taken for bytes?"
        yield "ceiling", f"{value:g} {record.unit} is above {top.value:g} {record.unit} ({top.why}){doubt}", ERROR
    elif record.check.startswith(("ib_", "osu_", "mpi_")) and ceilings.port_gbps(record.hardware):
        if 0.8 * top.value <= value * 8 <= 1.001 * top.value:
            yield "eighth", (f"{value:g} {record.unit} is an eighth of {top.value:g} ({top.why}): bytes taken for "
                             "bits?"), ERROR
        elif value < top.value / 50:
            yield "low", f"{value:g} {record.unit} is less than a fiftieth of {top.value:g} ({top.why})", ERROR


def _for_some(least: float, record: Limit | Known) -> Wrong:
    """A pattern also means models that cannot reach it; a message is too small for it."""
    for gpu in ceilings.gpus(record.hardware) if isinstance(record, Limit) and record.check.startswith("nccl_") else ():
        own = ceilings.ceiling(record.check, record.measurement, record.unit, gpu.name, ranks=record.ranks,
                               nodes=record.nodes)
        if own and least > own.value * 1.001:
            yield "ceiling", f"the pattern also means {gpu.name}, which gives at most {own.value:g} ({own.why})", ERROR
            return
    small = ceilings.by_size(record.check, record.measurement, record.unit, record.size_bytes, record.ranks)
    if small and least > small.value * 1.001:
        yield "ceiling", f"{least:g} {record.unit} is above {small.value:.3g} {record.unit} ({small.why})", ERROR
    rate = ceilings.port_gbps(record.hardware)
    large = isinstance(record, Limit) and record.check.startswith("ib_") and (record.size_bytes or 0) >= 65536
    if large and rate and record.unit == "Gb/s" and rate / 7.5 < least < rate / 2:
        yield "low", f"{least:g} {record.unit} is less than half of the port: a broken link would pass", REMARK


def _against_known(entries: Sequence[Entry], known: Sequence[Known]) -> Iterator[Finding]:
    """A limit that nothing measured would reach, and one that is far below all that was measured."""
    figures = [*known, *(e.record for e in entries if isinstance(e.record, Known))]
    by_check: dict[object, list[Known]] = {}
    for figure in figures:
        if figure.kind == MEASURED:
            by_check.setdefault((figure.check, figure.measurement, figure.unit), []).append(figure)
    for entry in entries:
        limit = entry.record
        if not isinstance(limit, Limit) or limit.simulated or limit.min is None:
            continue
        same = [k for k in by_check.get((limit.check, limit.measurement, limit.unit), ()) if _same_thing(limit, k)]
        if not same:
            continue
        best = max(same, key=lambda k: k.value)
        least = limit.min * (1 - limit.tolerance)
        text = f"{shown(limit)}: {limit.min:g} {limit.unit}, but {best.value:g} was measured ({best.source})"
        if 7 <= limit.min / best.value <= 9:
            yield Finding(entry.where, "eighth", f"{text}: bits taken for bytes?")
        elif 7 <= best.value / limit.min <= 9:
            yield Finding(entry.where, "eighth", f"{text}: eight times as much")
        elif least > best.value:
            yield Finding(entry.where, "unreachable", f"{text}: nothing would pass")
        elif limit.min * FACTOR < min(k.value for k in same):
            yield Finding(entry.where, "low", f"{text}: hardware that is half broken would pass", REMARK)


def _same_thing(limit: Limit, known: Known) -> bool:
    return (limit.size_bytes == known.size_bytes and limit.ranks in (None, known.ranks)
            and limit.nodes in (None, known.nodes) and overlap(limit.hardware, known.hardware)
            and (bool(known.hardware) or not limit.hardware)
            and limit.direction in (Direction.NONE, known.direction)
            and (not limit.transport or known.transport.casefold().startswith(limit.transport.casefold())))


def _against_each_other(entries: Sequence[Entry]) -> Iterator[Finding]:
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        record = entry.record
        if isinstance(record, Limit):
            groups.setdefault((record.check, record.measurement, record.unit, record.simulated, record.site),
                              []).append(entry)
    for group in groups.values():
        for place, entry in enumerate(group):
            found = (finding for earlier in group[:place] for finding in _pair(earlier, entry))
            yield from islice(found, 1)          # a table copied a thousand times is one mistake, not a million


def _pair(first: Entry, second: Entry) -> Iterator[Finding]:
    """The worst thing first."""
    a, b = first.record, second.record
    if not isinstance(a, Limit) or not isinstance(b, Limit) or not _both_fit(a, b):
        return
    text = f"{shown(b)}: {first.where} says"
    if replace(a, source="", date="", versions="") == replace(b, source="", date="", versions=""):
        yield Finding(second.where, "twice", f"{text} the same")
        return
    both = f"{text} {a.text()}, here {b.text()}"
    if any(low.min is not None and high.max is not None and low.min > high.max for low, high in ((a, b), (b, a))):
        yield Finding(second.where, "contradiction", f"{both}: both cannot be")
    for x, y in ((a.min, b.min), (a.max, b.max)):
        if x and y and max(x, y) > FACTOR * min(x, y) and _equally_bound(a, b):
            yield Finding(second.where, "contradiction", f"{both}: {max(x, y) / min(x, y):.1f} times as much")
    if specific(a) == specific(b) or (_equally_bound(a, b) and _crossed(a.hardware, b.hardware)):
        yield Finding(second.where, "ambiguous", f"{both}; which one is meant?")


def _both_fit(a: Limit, b: Limit) -> bool:
    """Could one value be judged by either?"""
    pairs = ((a.size_bytes, b.size_bytes), (a.ranks, b.ranks), (a.nodes, b.nodes))
    return (all(x is None or y is None or x == y for x, y in pairs) and overlap(a.hardware, b.hardware)
            and (Direction.NONE in (a.direction, b.direction) or a.direction is b.direction)
            and _begins(a.transport.casefold(), b.transport.casefold()) and _begins(a.memory, b.memory))


def _equally_bound(a: Limit, b: Limit) -> bool:
    return ((a.size_bytes, a.ranks, a.nodes, a.direction, a.transport.casefold(), a.memory)
            == (b.size_bytes, b.ranks, b.nodes, b.direction, b.transport.casefold(), b.memory)
            and bool(a.hardware) == bool(b.hardware) and (ceilings.port_gbps(a.hardware) is None)
            == (ceilings.port_gbps(b.hardware) is None))


def _crossed(a: str, b: str) -> bool:
    """Does each pattern mean hardware that the other does not?"""
    names = [*(g.name for g in ceilings.GPUS), *ceilings.RATES]
    of_a, of_b = ({n for n in names if is_hardware(p, n)} for p in (a, b))
    return bool(of_a & of_b and of_a - of_b and of_b - of_a)


def _begins(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


@lru_cache(maxsize=4096)
def overlap(a: str, b: str) -> bool:
    """Is there hardware that both patterns mean? Asked of the names that are known, and of what the patterns spell."""
    if not a or not b or a.casefold() == b.casefold():
        return True
    spelled = [re.sub(r"\[([^\]!])[^\]]*\]", r"\1", p).replace("*", "").replace("?", "0") for p in (a, b)]
    names = [*(g.name for g in ceilings.GPUS), *ceilings.RATES, *spelled]
    return any(is_hardware(a, name) and is_hardware(b, name) for name in names)


def shown(record: Limit | Known) -> str:
    """Which one it is, in few words."""
    parts = [record.check, record.measurement]
    if record.size_bytes is not None:
        parts.append(f"at {byte_size(record.size_bytes)}")
    if record.hardware:
        parts.append(f"on {record.hardware}")
    if isinstance(record, Limit) and record.memory:
        parts.append(f"from {record.memory} memory")
    if record.ranks:
        parts.append(f"{record.ranks} ranks")
    if record.nodes:
        parts.append(f"{record.nodes} node{'s' if record.nodes > 1 else ''}")
    return " ".join(parts)
