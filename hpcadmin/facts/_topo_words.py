"""A line of `nvidia-smi topo -m`: the columns of a header, the cells and fields of a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_COLUMNS = 300
LABELS = ("NODE", "PIX", "PXB", "PHB", "SYS", "SOC", "C2C", "XGMI", "N/A", "Self", "X", "OK", "CNS", "GNS", "TNS", "NS")
TAILS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

_GPU = re.compile(r"GPU[0-9]{1,3}\Z")
_NIC = re.compile(r"NIC[0-9]{1,3}\Z|(?=[^0-9]{0,30}[0-9])[a-z][a-z0-9]{0,20}(?:[_-][a-z0-9]{1,15}){0,4}\Z")
_GLUED = re.compile(r"GPU[0-9]{1,3}|NIC[0-9]{1,3}|mlx[45]_(?:bond_)?[0-9]{1,2}")
_CELL = re.compile(r"(?:NV[0-9]{1,2}|" + "|".join(LABELS) + r")\Z")
_CELLS = re.compile(r"NV[0-9]{1,2}|" + "|".join(LABELS))
_OTHER_CELL = re.compile(r"[A-Z][A-Z0-9#]{0,5}\Z")           # of a tool or driver that is not known here
_CPUS = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,4000}\Z")
_HEADER_PIECE = re.compile(r"[A-Za-z0-9_]{1,40}\Z")
TAIL_WORDS = frozenset({"CPU", "Affinity", "NUMA", "GPU", "ID"})
MAX_PIECE = 2000
_TAB = 8
_WHOLE_TAILS = ("", *("".join(TAILS[:n]).replace(" ", "") for n in (1, 2, 3)))


@dataclass(frozen=True)
class Tail:
    """What follows the cells of a GPU's row. None: not in the text; "": the field is there and empty."""

    cpus: str | None = None
    numa: str | None = None
    memory: str | None = None        # GPU NUMA ID

    def last(self) -> int:
        """Number of the last field that is there, from 1."""
        return max((n for n, field in enumerate((self.cpus, self.numa, self.memory), 1) if field is not None),
                   default=0)


@dataclass(frozen=True)
class Row:
    """cells: as many as can be told apart, from the left. more: labels that no column of the header is for."""

    name: str
    cells: tuple[str, ...]
    tail: Tail = Tail()
    line: int = 0
    end: int = 0
    more: int = 0
    goes_on: bool = False            # something follows the last cell
    shifted: bool = False            # fields follow although cells are missing: which ones is not known
    unclear: bool = False            # wrapped, and what its fields are depends on where it was broken
    width: int = 0                   # of its line
    old: bool = False                # it has SOC, which drivers write as SYS since


@dataclass(frozen=True)
class Header:
    names: tuple[str, ...]
    tails: int = 0                   # how many of TAILS it names, the last one perhaps in part
    whole: bool = False              # it ends with one of them
    line: int = 0
    end: int = 0
    at: int = -1                     # where the first of TAILS begins, in columns of a terminal
    last_at: int = -1                # where the last of the names begins
    there: bool = True               # False: made up from the rows


def is_gpu(word: str) -> bool:
    return _GPU.match(word) is not None


def is_device(word: str) -> bool:
    return _GPU.match(word) is not None or _NIC.match(word) is not None


def names_of(text: str) -> list[str] | None:
    """The columns that a header names, also without anything between them; None when it is no header."""
    words = text.split()
    if words and _GPU.match(words[0]) and all(map(is_device, words)) and len(words) <= MAX_COLUMNS:
        return words
    glued = _GLUED.findall(text) if text.count("GPU") > 1 or "NIC" in text or "mlx" in text else []
    return glued if len(glued) > 1 and "".join(glued) == "".join(words) and _GPU.match(glued[0]) else None


def is_row(text: str) -> bool:
    """Whether it begins with a device and a cell."""
    words = text.split(None, 2)
    return len(words) > 1 and is_device(words[0]) and bool(_cells(words[1]))


def _cells(word: str) -> list[str]:
    """The labels in a word: one, or several that are glued; [] for any other."""
    if _CELL.match(word):
        return [word]
    found = _CELLS.findall(word)
    return found if found and "".join(found) == word else []


def read_header(text: str) -> Header | None:
    body, mark, rest = text.partition("CPU")
    names = names_of(body)
    if names is None:
        return None
    tail = "".join((mark + rest).split())
    count = max((n for n in (1, 2, 3) if tail.startswith(_WHOLE_TAILS[n])), default=0)
    if tail == _WHOLE_TAILS[count] or (count and not _WHOLE_TAILS[3].startswith(tail)):
        return Header(tuple(names), count, count > 0)
    return Header(tuple(names), count + 1, False) if _WHOLE_TAILS[3].startswith(tail) else None


def may_go_on(text: str) -> bool:
    """Whether a wrapped header may go on so."""
    return 0 < len(text.strip()) <= MAX_PIECE and not is_row(text) and all(
        word in TAIL_WORDS or _HEADER_PIECE.match(word) for word in text.split())


def longer_texts(texts: Sequence[str], piece: str, within: bool = True) -> list[str]:
    """A wrapped line went on: the break may have been within a word, or between two."""
    longer = [text + gap + piece for text in texts for gap in (("", " ") if within else (" ",))]
    return list({" ".join(text.split()) if "\t" not in text else text: text for text in longer}.values())[:8]


def is_full(row: Row, header: Header) -> bool:
    if len(row.cells) < len(header.names):
        return False
    return not is_gpu(row.name) or row.tail.last() >= (header.tails if header.whole else 3)


def agreed(texts: Sequence[str], header: Header, wrapped: bool = True) -> Row | None:
    """The row; where its breaks can be read in several ways, what all of them agree in."""
    readings: list[Row] = []
    for text in texts:
        row = split_row(text, header, wrapped=wrapped)
        if row and row not in readings:
            readings.append(row)
    if len(readings) < 2:
        return readings[0] if readings else None
    sound = [row for row in readings if not row.shifted] or readings
    longest = max(len(row.cells) for row in sound)
    sound = [row for row in sound if len(row.cells) == longest]
    sound = [row for row in sound if row.tail.last()] or sound
    full = [row for row in sound if is_full(row, header)] or sound
    cells: list[str] = []
    for column in zip(*(row.cells for row in full), strict=True):
        if len(set(column)) > 1:
            break
        cells.append(column[0])
    same = all(row.tail == full[0].tail for row in full)
    return replace(full[0], cells=tuple(cells), tail=full[0].tail if same else Tail(),
                   unclear=any(row.tail != full[0].tail for row in sound))


def split_row(text: str, header: Header, wrapped: bool = False) -> Row | None:
    words = list(re.finditer(r"\S+", text))
    if not words:
        return None
    name, at = words[0][0], 1
    cells: list[str] = []
    columns = len(header.names)
    while at < len(words) and len(cells) < columns:
        word = words[at][0]
        found = _cells(word)
        if not found and _OTHER_CELL.match(word) and (at + 1 < len(words) or len(cells) == columns - 1) and not any(
                label.startswith(word) for label in (*LABELS, "NV")):
            found = [word]
        if not found or len(cells) + len(found) > columns:
            break
        cells += ["SYS" if label == "SOC" else "X" if label == "Self" else label for label in found]
        at += 1
    if not cells:
        return None
    full, seen = len(cells) == columns or not header.there, at
    while full and header.there and at < len(words) and _CELL.match(words[at][0]) and words[at][0] != "N/A":
        at += 1
    end = words[at - 1].end()
    tail = Tail()
    if full and is_gpu(name) and (at < len(words) or "\t" in text[end:]):
        tail = _tail(text, (words[at - 1].start(), end), header, wrapped)
    shifted = not full and at < len(words) and _CPUS.match(words[at][0]) is not None
    return Row(name, tuple(cells), tail, more=at - seen, goes_on=at < len(words), shifted=shifted,
               width=len(text.expandtabs()), old=any(word[0] == "SOC" for word in words[1:at]))


def _tail(text: str, last: tuple[int, int], header: Header, wrapped: bool) -> Tail:
    """With tabs a field keeps its place also where the one before it is empty; with blanks the place in the line
    tells, and where that is lost, only the number of fields. last: where the last cell begins and ends."""
    rest = text[last[1]:]
    wanted = header.tails if header.whole else 3
    if "\t" in rest:
        parts = [part.strip() for part in rest.split("\t")[1:]]
        if wanted == 3 and len(parts) == 4 and parts[3] and not parts[2]:       # the tool writes two tabs there
            return _checked([parts[0], parts[1], parts[3]], header)
        return _checked([parts[0] if parts else "", *(part for part in parts[1:] if part)], header)
    fields = rest.split()
    cell = len(text[:last[0]].expandtabs()) - (text[last[0]:last[1]] == "X")    # " X "
    at = len(text[:last[1]].expandtabs()) + len(rest) - len(rest.lstrip())
    aligned = not wrapped and cell == header.last_at and header.at >= 0
    if len(fields) >= 3 or (len(fields) >= wanted and not (aligned and at >= header.at + _TAB)):
        return _checked(fields, header)
    if not wrapped and (at == cell + _TAB or (aligned and at == header.at)):
        return _checked(fields, header)
    if not aligned or at < header.at + _TAB:
        return Tail()
    return _checked(["", "", *fields] if len(fields) == 1 and at >= header.at + 3 * _TAB else ["", *fields], header)


def _checked(fields: Sequence[str], header: Header) -> Tail:
    """From the left, up to the first one that is cut; none where one cannot be what it should be."""
    sound: list[str | None] = [None, None, None]
    for place, field in enumerate(fields[:3]):
        number = field.isdigit() if place == 2 else _is_list(field)
        if not number and field not in ("N/A", ""):
            if field[:1] in ",-/" or place + 1 < len(fields):
                return Tail()
            break
        sound[place] = field
    return Tail(*sound) if len(fields) <= (header.tails if header.whole else 3) else Tail()


def _is_list(field: str) -> bool:
    """Ids as the tool writes them: from the lowest to the highest, each once."""
    if not _CPUS.match(field):
        return False
    before = -1
    for part in field.split(","):
        low, _, high = part.partition("-")
        if not before < int(low) <= int(high or low):
            return False
        before = int(high or low)
    return True
