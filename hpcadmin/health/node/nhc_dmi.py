"""NHC's checks of DMI data (lbnl_dmi), as dmidecode prints it."""

from hpcadmin.health.node.nhc_arith import ArithError, number
from hpcadmin.health.node.nhc_base import Died, Nhc


class _Table:
    """The structures in order, each with type number, title, and lines that have their headings before them."""

    def __init__(self) -> None:
        self.handles = []  # type: list[str]
        self.types = {}  # type: dict[int, str]
        self.titles = {}  # type: dict[int, str]
        self.lines = {}  # type: dict[int, list[str]]


def _raw(nhc: Nhc) -> "list[str]":
    return nhc.lines(nhc.run(["dmidecode"])[1])


def _key(handle: str) -> int:
    try:
        return number(handle)
    except ArithError:
        return -1


def _table(nhc: Nhc) -> _Table:
    def read() -> _Table:
        table = _Table()
        current, data, stack = None, [], []  # type: int | None, list[str], list[str]
        for line in _raw(nhc):
            words = line.split(" ")
            if line.startswith("Handle ") and len(words) > 4 and words[2:4] == ["DMI", "type"] and words[1][-1:] == ",":
                if current is not None:          # so the last structure of all keeps no lines
                    table.lines[current] = data
                handle = words[1][:-1]
                current, data, stack = _key(handle), [], []
                table.handles.append(handle)
                table.types[current] = words[4].rstrip(",")
                continue
            if current is None:
                continue
            text = line.lstrip()
            if text != line:
                depth = len(line) - len(text)
                del stack[depth:]
                data.append(" ".join(stack + [text]))
            else:
                table.titles[current] = line
            stack.append(text if text.endswith(":") else text + ":")
        return table
    return nhc.door.once("nhc dmi", read)  # type: ignore[no-any-return]


def check_dmi_data_match(nhc: Nhc, args: "list[str]") -> None:
    table = _table(nhc)
    given, rest = nhc.options("!h:nt:", args)
    one = dict(given)
    negative = "!" in one or "n" in one
    if rest[:1] == ["!"]:
        negative, rest = True, rest[1:]
    wanted, kind = " ".join(rest), one.get("t", "")
    handles = one["h"].split() if "h" in one else []
    if not handles:
        by_number = kind.isdigit()
        handles = [handle for handle in table.handles
                   if not kind or kind == (table.types if by_number else table.titles).get(_key(handle))]
    if not handles:
        raise Died("no DMI structure of that kind")
    for handle in handles:
        key = _key(handle)
        if kind and kind not in (table.types.get(key), table.titles.get(key)):
            continue
        _search(nhc, table.lines.get(key, []), wanted, negative)
        if not negative and any(nhc.matches(line, wanted) for line in table.lines.get(key, [])):
            return
    if not negative:
        raise Died("no DMI line matches %s" % wanted)


def _search(nhc: Nhc, lines: "list[str]", wanted: str, negative: bool) -> None:
    if negative:
        for line in lines:
            if nhc.matches(line, wanted):
                raise Died("a DMI line matches %s: %s" % (wanted, line))


def check_dmi_raw_data_match(nhc: Nhc, args: "list[str]") -> None:
    negative = args[:1] == ["!"]
    wanted = " ".join(args[1:] if negative else args)
    lines = _raw(nhc) if nhc.door.has("dmidecode") else [""]
    _search(nhc, lines, wanted, negative)
    if not negative and not any(nhc.matches(line, wanted) for line in lines):
        raise Died("no DMI line matches %s" % wanted)
