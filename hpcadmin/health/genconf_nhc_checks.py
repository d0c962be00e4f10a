"""Each of NHC's checks as entries of ours; what has no counterpart says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcadmin.health.genconf_devices import one_of
from hpcadmin.health.node import masks
from hpcadmin.health.node.nhc_arith import ArithError, Numbers, evaluate
from hpcadmin.health.node.nhc_match import Abort
from hpcadmin.health.node.nhc_words import options

Args = Sequence[str]
KIB = 1024


class NotCarriedOver(Exception):  # noqa: N818 - an answer, not a failure
    """There is no entry of ours for this line."""


@dataclass(frozen=True)
class Carried:
    """An entry, and what is different from NHC."""

    use: str
    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def carried(name: str, args: Args) -> list[Carried]:
    """Raises NotCarriedOver with the reason."""
    from hpcadmin.health import genconf_nhc_more as more  # noqa: PLC0415 - both are one table
    function = _TABLE.get(name) or more.TABLE.get(name)
    if function is None:
        raise NotCarriedOver("there is no check of ours for it")
    try:
        return list(function(list(args)))
    except (Abort, ArithError, ValueError) as exc:
        raise NotCarriedOver(f"NHC cannot read it: {exc}") from exc


def parsed(wanted: str, args: Args) -> tuple[list[tuple[str, str]], list[str]]:
    found, rest, wrong = options(wanted, list(args))
    if wrong:
        raise NotCarriedOver(f"NHC fails it always: {wrong}")
    return found, rest


def kib(text: str, *, count: bool = False) -> float | None:
    """A size of NHC's in KiB (or a count); None if it is empty."""
    numbers = Numbers({}, lambda text: None)
    value = numbers.count(text) if count else numbers.size(text)
    return evaluate(value, {}) if value else None


def mib(text: str) -> float | None:
    value = kib(text)
    return None if value is None else value / KIB


def mask(expression: str) -> str:
    """A match expression as a mask: the same but for what only POSIX or bash know."""
    if "[[:" in expression:
        raise NotCarriedOver(f"{expression} has a class of characters ([[:alpha:]]): write them out")
    if expression.removeprefix("!")[:1] not in ("/", "{") and any(part in expression for part in ("(", "[^", "\\")):
        raise NotCarriedOver(f"{expression} is a glob of bash's own kind: write a regular expression")
    try:
        masks.matches(expression, "")
    except ValueError as exc:
        raise NotCarriedOver(str(exc)) from exc
    return expression


def whole(args: Args, count: int) -> list[str]:
    return [*args, *[""] * count][:count]


def number(text: str) -> int | None:
    return evaluate(text, {}) if text else None


def _cpuinfo(args: Args) -> Iterator[Carried]:
    sockets, cores, threads = whole(args, 3)
    values = {"sockets": number(sockets), "cores": number(cores), "threads": number(threads)}
    if not any(values.values()):
        raise NotCarriedOver("it tests nothing")
    yield Carried("cpu", values, ("counted by /sys; NHC's /proc/cpuinfo names no sockets on ARM and POWER",))


def _size(use: str, swap: bool) -> Callable[[Args], Iterator[Carried]]:
    def make(args: Args) -> Iterator[Carried]:
        low, high, fudge = whole(args, 3)
        least, most = mib(low), mib(high)
        notes: tuple[str, ...] = () if high else ("NHC without a maximum always fails; here there is none",)
        percent = number(fudge[:-1]) if fudge.endswith("%") else None
        if fudge and percent is None:
            spare = mib(fudge) or 0
            least, most = (None if least is None else least - spare), (None if most is None else most + spare)
        yield Carried(use, {"min_mib": least, "max_mib": most, "tolerance_percent": percent,
                            "swap": True if swap else None}, notes)
    return make


def _free(use: str, swap: bool) -> Callable[[Args], Iterator[Carried]]:
    def make(args: Args) -> Iterator[Carried]:
        least = mib(whole(args, 1)[0])
        if least is None:
            raise NotCarriedOver("it tests nothing")
        more: dict[str, Any] = {} if use == "swap" else {"free": "cached"}
        yield Carried(use, {"min_free_mib": least, **more, **({"swap": True} if swap else {})})
    return make


def _ib(args: Args) -> Iterator[Carried]:
    rate, device = whole(args, 2)
    notes = () if device else ("NHC is content with one port; here each must be active: name in ignore those that "
                               "need not; ports of Ethernet (RoCE) are seen with layer = any",)
    yield Carried("ib", {"device": one_of([device]) if device else None,
                         "min_gbps": float(rate) if rate else None}, notes)


def _eth(args: Args) -> Iterator[Carried]:
    if not args or not args[0]:
        raise NotCarriedOver("NHC fails it always: no interface is named")
    if args[0][0] in "/!":
        raise NotCarriedOver(f"NHC fails it always: {args[0]} is read as a glob")
    yield Carried("link", {"name": mask(args[0]), "up": False}, ("up = true would test more than NHC does",))


def _mcelog(args: Args) -> Iterator[Carried]:
    yield Carried("edac", {"max_corrected": 9, "window_h": 24},
                  ("instead of mcelog's answer, what the kernel counts; NHC's limits",))
    yield Carried("mce", {})


def _gm(args: Args) -> Iterator[Carried]:
    raise NotCarriedOver("there is no check of Myrinet")


def _blank(path: str) -> tuple[str, ...]:
    return ("NHC does not see a mount whose name has a blank",) if " " in path or "040" in path else ()


_NOTE_OPTIONS = ["NHC compares with all options as one text; here one of them that fits is enough"]


def _mount(mode: str) -> Callable[[Args], Iterator[Carried]]:
    def make(args: Args) -> Iterator[Carried]:
        paths, sources, types, opts, notes = _mount_words(args, mode)
        if not paths:
            raise NotCarriedOver("it tests nothing")
        if len(sources) > 1 or len(types) > 1:
            raise NotCarriedOver("several -s or -t: write one expression for them")
        for path in paths:
            if not path:
                raise NotCarriedOver("no path: NHC looks at its other arguments alone")
            yield Carried("mount", {"path": one_of([path]), "source": mask(sources[0]) if sources else None,
                                    "type": mask(types[0]) if types else None, "options": [mask(one) for one in opts],
                                    "mode": mode or None}, (*notes, *_blank(path)))
    return make


def _mount_words(args: Args, mode: str) -> tuple[list[str], list[str], list[str], list[str], list[str]]:
    if (args[0] if args else "").startswith("/"):
        path, source, kind, opts = whole(args, 4)
        options = [opts] if opts and not mode else []
        return [path], [s for s in [source] if s], [k for k in [kind] if k], options, _NOTE_OPTIONS if options else []
    given, rest = parsed("0rE:F:O:e:f:o:s:t:", args)
    pick = {key: [value for found, value in given if found == key] for key in "fFsto0reE"}
    notes = ["nothing is mounted or run (-r, -e, -E)"] if pick["r"] or pick["e"] or pick["E"] else []
    if pick["0"]:
        raise NotCarriedOver("-0: NHC never fails it")
    notes += _NOTE_OPTIONS if pick["o"] else []
    return pick["f"] + rest + pick["F"], pick["s"], pick["t"], pick["o"], notes


def _space(low: str, high: str, percent: str, count: bool) -> Callable[[Args], Iterator[Carried]]:
    """low, high: the parameters for an absolute minimum and maximum; percent: for one in percent."""
    def make(args: Args) -> Iterator[Carried]:
        path, first, second = whole(args, 3)
        values: dict[str, Any] = {"path": path, "mounted": False}
        if first.endswith("%") and percent:
            values[percent] = number(first[:-1])
        elif low and high:
            values[low], values[high] = (_amount(text, count) for text in (first, second))
        else:
            values[low or high] = _amount(first, count)
        if not path or not any(value for key, value in values.items() if key not in ("path", "mounted")):
            raise NotCarriedOver("it tests nothing")
        close = ("the limit itself is good here, and bad in NHC",) if not low else ()
        yield Carried("space", values, ("mounted = true would fail it where nothing is mounted; NHC passes over that",
                                        *close, *_blank(path)))
    return make


def _amount(text: str, count: bool) -> float | None:
    return kib(text, count=True) if count else mib(text)


_TABLE: Mapping[str, Callable[[Args], Iterator[Carried]]] = {
    "check_hw_cpuinfo": _cpuinfo, "check_hw_physmem": _size("memory", False), "check_hw_mem": _size("memory", True),
    "check_hw_swap": _size("swap", False), "check_hw_physmem_free": _free("memory_free", False),
    "check_hw_mem_free": _free("memory_free", True), "check_hw_swap_free": _free("swap", False), "check_hw_ib": _ib,
    "check_hw_eth": _eth, "check_hw_gm": _gm, "check_hw_mcelog": _mcelog,
    "check_fs_mount": _mount(""), "check_fs_mount_rw": _mount("rw"), "check_fs_mount_ro": _mount("ro"),
    "check_fs_size": _space("min_mib", "max_mib", "", False),
    "check_fs_free": _space("min_free_mib", "", "min_free_percent", False),
    "check_fs_used": _space("", "max_used_mib", "max_used_percent", False),
    "check_fs_inodes": _space("min_inodes", "max_inodes", "", True),
    "check_fs_ifree": _space("min_free_inodes", "", "min_free_inodes_percent", True),
    "check_fs_iused": _space("", "max_used_inodes", "max_used_inodes_percent", True),
}
