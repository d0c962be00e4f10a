"""The cable plan: a CSV as people make it, with columns for node, port, switch and switch port."""

from __future__ import annotations

import csv
import re

from hpcadmin.errors import SiteError
from hpcadmin.order._records import Cable
from hpcadmin.text import printable

_MAX_LINES = 1_000_000
_AFTER_QUOTE = re.compile(r'" +(?=[,;\t]|\Z)')
# A column is known by its name in small letters, without anything but letters and digits.
_NAMES = {
    "node": ("node", "nodename", "host", "hostname", "server", "servername", "nodehost", "system"),
    "port": ("port", "nodeport", "hostport", "serverport", "nic", "nicport", "hca", "hcaport", "interface", "netdev",
             "adapter", "nodeinterface", "hostinterface"),
    "switch": ("switch", "switchname", "leaf", "leafswitch", "tor", "switchhost", "neighbour", "neighbor"),
    "switch_port": ("switchport", "swport", "leafport", "torport", "switchinterface", "neighbourport", "neighborport"),
}


def read(raw: bytes, name: str) -> tuple[Cable, ...]:
    """Raises SiteError with file:line. Separated by comma, semicolon or tab; lines that begin with # say nothing."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise SiteError("is not UTF-8", where=f"{name}:{raw[: exc.start].count(10) + 1}") from exc
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1)
             if line.strip(" \t,;") and not line.lstrip().startswith("#")]
    if len(lines) < 2:
        raise SiteError("has no cables: a line of column names, and one for each cable, are wanted", where=name)
    if len(lines) > _MAX_LINES:
        raise SiteError(f"has more than {_MAX_LINES} lines", where=name)
    delimiter = max(",;\t", key=lines[0][1].count)
    places = _columns(_cells(lines[0][1], delimiter, f"{name}:{lines[0][0]}"), f"{name}:{lines[0][0]}")
    cables = [_cable(_cells(line, delimiter, f"{name}:{number}"), places, number, name) for number, line in lines[1:]]
    _no_doubles(cables, name)
    return tuple(cables)


def _cells(line: str, delimiter: str, where: str) -> list[str]:
    tidy = _AFTER_QUOTE.sub('"', line)
    try:
        cells = next(csv.reader([tidy], delimiter=delimiter, strict=True, skipinitialspace=True))
    except (csv.Error, StopIteration) as exc:
        raise SiteError(f"is no line of a CSV: {exc}", where=where) from exc
    return [cell.strip() for cell in cells]


def _columns(header: list[str], where: str) -> dict[str, int]:
    short = ["".join(char for char in cell.lower() if char.isalnum()) for cell in header]
    places = {}
    for column, names in _NAMES.items():
        found = [place for place, cell in enumerate(short) if cell in names]
        if len(found) != 1:
            shown = ", ".join(printable(cell, limit=40) for cell in header[:20])
            raise SiteError(f"{'no column' if not found else 'several columns'} for the {column.replace('_', ' ')} "
                            f"among: {shown}", where=where, hint="columns: node, port, switch, switch_port")
        places[column] = found[0]
    return places


def _cable(cells: list[str], places: dict[str, int], number: int, name: str) -> Cable:
    values = {}
    for column, place in places.items():
        value = cells[place] if place < len(cells) else ""
        if not value or len(value) > 200 or not value.isprintable():
            raise SiteError(f"the {column.replace('_', ' ')} is {'missing' if not value else 'not readable'}",
                            where=f"{name}:{number}")
        values[column] = value
    return Cable(**values, line=number)


def _no_doubles(cables: list[Cable], name: str) -> None:
    seen: dict[tuple[str, str, str], int] = {}
    for cable in cables:
        for end in (("node", cable.node, cable.port.casefold()),
                    ("switch", cable.switch.casefold(), cable.switch_port.casefold())):
            if end in seen:
                raise SiteError(f"{end[0]} {printable(end[1])} port {printable(end[2])} has a cable in line "
                                f"{seen[end]} already", where=f"{name}:{cable.line}")
            seen[end] = cable.line
