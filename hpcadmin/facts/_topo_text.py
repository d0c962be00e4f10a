"""Rows of `nvidia-smi topo -m` out of whatever a paste has made of them: wrapped, glued, re-indented, cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpcadmin.errors import ParseError

MAX_COLUMNS = 300
MAX_PIECES = 7                   # physical lines that one wrapped line may fill
ESCAPES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|\[[0-9]{1,2}(?:;[0-9]{1,2}){0,3}m")  # the second: ESC itself is lost
LABELS = ("NODE", "PIX", "PXB", "PHB", "SYS", "SOC", "C2C", "XGMI", "N/A", "Self", "X", "OK", "CNS", "GNS", "TNS", "NS")
_P2P = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR"})
TAILS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

_GPU = re.compile(r"GPU[0-9]{1,3}\Z")
_LABELLED = re.compile(r"(?:GPU|NIC)[0-9]{1,3}\Z")
_NIC = re.compile(r"NIC[0-9]{1,3}\Z|(?=[^0-9]{0,30}[0-9])[a-z][a-z0-9]{0,20}(?:[_-][a-z0-9]{1,15}){0,4}\Z")
_GLUED = re.compile(r"GPU[0-9]{1,3}|NIC[0-9]{1,3}|mlx[45]_(?:bond_)?[0-9]{1,2}")
_CELL = re.compile(r"(?:NV[0-9]{1,2}|" + "|".join(LABELS) + r")\Z")
_CELLS = re.compile(r"NV[0-9]{1,2}|" + "|".join(LABELS))
_OTHER_CELL = re.compile(r"[A-Z][A-Z0-9#]{0,5}\Z")           # of a tool or driver that is not known here
_CPUS = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,4000}\Z")
_PIECE = re.compile(r"[A-Z0-9/,-]{1,12000}\Z")               # what a wrapped row goes on with
_HEADER_PIECE = re.compile(r"[A-Za-z0-9_]{1,40}\Z")
_TAIL_WORDS = frozenset({"CPU", "Affinity", "NUMA", "GPU", "ID"})
MAX_PIECE = 2000
_QUOTED = re.compile(r"(?:>[ \t]?){1,5}")
_SAID_BY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):[ \t]")
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


@dataclass(frozen=True)
class Header:
    names: tuple[str, ...]
    tails: int = 0                   # how many of TAILS it names, the last one perhaps in part
    whole: bool = False              # it ends with one of them
    line: int = 0
    end: int = 0
    at: int = -1                     # where the first of TAILS begins, in columns of a terminal
    there: bool = True               # False: made up from the rows


@dataclass(frozen=True)
class Block:
    """A matrix: its header, its rows, and the lines around it, by number."""

    header: Header
    rows: tuple[Row, ...]
    before: int                      # first line that is not of the matrix before
    after: int                       # last line before the next one
    stream: tuple[tuple[int, str], ...]      # (line number, text) of the same speaker
    who: str = ""                    # "node01" where each line began with "node01: "

    @property
    def p2p(self) -> bool:
        """The matrix of `topo -p2p`: what the driver allows, not how devices are connected."""
        return any(label in _P2P for row in self.rows for label in row.cells)


def blocks(lines: Sequence[str]) -> list[Block]:
    """Every matrix of the text, in its order. Raises ParseError where a row contradicts its own header."""
    if not any("GPU" in line and "X" in line for line in lines):
        return []
    found: list[Block] = []
    for who, stream in _streams(lines):
        found += _Scan(who, stream).blocks()
    return sorted(found, key=lambda block: block.header.line)


def _streams(lines: Sequence[str]) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Lines by who said them: clush and pdsh write "node01: " before each. Marks of quoting are taken off."""
    plain = [(number, ESCAPES.sub("", line) if "[" in line else line) for number, line in enumerate(lines, 1)]
    plain = [(number, _QUOTED.sub("", text, count=1) if text.startswith(">") else text) for number, text in plain]
    speakers = set()
    for _, text in plain:
        match = _SAID_BY.match(text)
        if match and text[match.end():].lstrip().startswith("GPU") and not _LABELLED.match(match[1]):
            speakers.add(match[1])
    if not speakers:
        yield "", plain
        return
    said: dict[str, list[tuple[int, str]]] = {"": [], **{name: [] for name in sorted(speakers)}}
    for number, text in plain:
        match = _SAID_BY.match(text)
        name = match[1] if match and match[1] in speakers else ""
        said[name].append((number, text[match.end():] if match and name else text))
    yield from said.items()


def is_gpu(word: str) -> bool:
    return _GPU.match(word) is not None


def _is_device(word: str) -> bool:
    return _GPU.match(word) is not None or _NIC.match(word) is not None


def names_of(text: str) -> list[str] | None:
    """The columns that a header names, also without anything between them; None when it is no header."""
    words = text.split()
    if words and _GPU.match(words[0]) and all(map(_is_device, words)) and len(words) <= MAX_COLUMNS:
        return words
    glued = _GLUED.findall(text) if text.count("GPU") > 1 or "NIC" in text or "mlx" in text else []
    return glued if len(glued) > 1 and "".join(glued) == "".join(words) and _GPU.match(glued[0]) else None


def is_row(text: str) -> bool:
    """Whether it begins with a device and a cell."""
    words = text.split(None, 2)
    return len(words) > 1 and _is_device(words[0]) and bool(_cells(words[1]))


def _cells(word: str) -> list[str]:
    """The labels in a word: one, or several that are glued; [] for any other."""
    if _CELL.match(word):
        return [word]
    found = _CELLS.findall(word)
    return found if found and "".join(found) == word else []


class _Scan:
    """The matrices in the lines of one speaker."""

    def __init__(self, who: str, stream: list[tuple[int, str]]) -> None:
        self.who = who
        self.stream = tuple(stream)
        self.texts = [text for _, text in stream]

    def blocks(self) -> list[Block]:
        starts: list[tuple[int, int, Header]] = []       # (header's place, place after it, header)
        place = 0
        while place < len(self.texts):
            found = self._header(place)
            if found:
                starts.append((place, found[1], found[0]))
                place = found[1]
            else:
                place += 1
        made: list[Block] = []
        behind = 0
        if not starts or starts[0][0] > 0:
            made += self._without_header(0, starts[0][0] if starts else len(self.texts))
        for number, (start, after, header) in enumerate(starts):
            end = starts[number + 1][0] if number + 1 < len(starts) else len(self.texts)
            rows, stop = self._rows(after, end, header, self._width(start, end))
            if rows:
                made.append(Block(header, rows, behind, stop - 1, self.stream, self.who))
                behind = self._place(rows[-1].end, start) + 1
            if stop < end:
                made += self._without_header(stop, end)
        return made

    def _place(self, number: int, start: int) -> int:
        return next((at for at in range(start, len(self.stream)) if self.stream[at][0] == number), start)

    # --- headers ---

    def _header(self, place: int) -> tuple[Header, int] | None:
        text = self.texts[place]
        if not text.lstrip().startswith("GPU") or is_row(text):
            return None
        texts, after = [text], place + 1
        while True:
            header = max((found for found in map(_read_header, texts) if found),
                         key=lambda found: len(found.names), default=None)
            follows = self.texts[after] if after < len(self.texts) else ""
            ends = not _may_go_on(follows) or after - place >= MAX_PIECES or (
                header is not None and header.whole and not _TAIL_WORDS.issuperset(follows.split()))
            if ends:
                if header is None or not (header.whole or self._row_follows(after)):
                    return None
                at = text.expandtabs().find("CPU") if after == place + 1 else -1
                return replace(header, line=self.stream[place][0], end=self.stream[after - 1][0], at=at), after
            texts = [one for one in _longer(texts, follows) if all(
                word in _TAIL_WORDS or _is_device(word) for word in one.split()[:-1])]
            after += 1

    def _row_follows(self, place: int) -> bool:
        follows = next((text for text in self.texts[place:place + 3] if text.strip()), "")
        return is_row(follows)

    # --- rows ---

    def _width(self, start: int, end: int) -> int:
        """Of the terminal that a wrapped matrix came from: only a line as long as that can break within a word."""
        return max(len(text.expandtabs()) for text in self.texts[start:end]
                   if text.strip() and (is_row(text) or _may_go_on(text) or text is self.texts[start]))

    def _rows(self, start: int, end: int, header: Header, width: int) -> tuple[tuple[Row, ...], int]:
        """The rows, and where they end: at the next header, or where they begin anew without one."""
        rows: dict[str, Row] = {}
        place = start
        while place < end:
            row = self._row(place, end, header, width) if is_row(self.texts[place]) else None
            if row is None:
                place += 1
                continue
            before = rows.setdefault(row.name, row)
            if (before.cells, before.tail) != (row.cells, row.tail):
                if row.name == next(iter(rows)):
                    return tuple(rows.values()), place
                raise ParseError(f"row {row.name} comes twice, in lines {before.line} and {row.line}, and differs")
            place = self._place(row.end, place) + 1
        return tuple(rows.values()), end

    def _row(self, place: int, end: int, header: Header, width: int) -> Row | None:
        texts = [self.texts[place]]
        row = _agreed(texts, header, wrapped=False)
        last = place
        while row and last + 1 < end and last - place < MAX_PIECES:
            follows = self.texts[last + 1]
            words = follows.split() if len(follows) <= MAX_PIECE else []
            if not words or is_row(follows) or not all(map(_PIECE.match, words)):
                break
            within = len(self.texts[last].expandtabs()) >= width
            longer = _longer(texts, follows, within)
            found = _agreed(longer, header)
            if found is None or len(found.cells) < len(row.cells) or (
                    row.tail.last() and not found.tail.last() and (follows[:1].isalpha() or not within)):
                break
            texts, row, last = longer, found, last + 1
        return replace(row, line=self.stream[place][0], end=self.stream[last][0]) if row else None

    def _without_header(self, start: int, end: int) -> list[Block]:
        """Rows that begin with GPU0 and have their X in order tell how many columns there are."""
        found: list[Block] = []
        rows: list[Row] = []
        loose = Header(tuple(f"?{n}" for n in range(MAX_COLUMNS)), 3, False, there=False)

        def put(until: int) -> None:
            if rows:
                header = Header((), 3, False, rows[0].line, rows[0].line, there=False)
                found.append(Block(header, tuple(rows), start, until - 1, self.stream, self.who))
                rows.clear()

        for at in range(start, end):
            if not is_row(self.texts[at]):
                continue
            row = _split_row(self.texts[at], loose)
            if row and row.name == "GPU0" and rows:
                put(at)
            if row and row.cells[len(rows):len(rows) + 1] == ("X",) and (rows or row.name == "GPU0") and all(
                    row.name != before.name for before in rows):
                rows.append(replace(row, line=self.stream[at][0], end=self.stream[at][0], shifted=False))
        put(end)
        return found


def _read_header(text: str) -> Header | None:
    body, mark, rest = text.partition("CPU")
    names = names_of(body)
    if names is None:
        return None
    tail = "".join((mark + rest).split())
    count = max((n for n in (1, 2, 3) if tail.startswith(_WHOLE_TAILS[n])), default=0)
    if tail == _WHOLE_TAILS[count] or (count and not _WHOLE_TAILS[3].startswith(tail)):
        return Header(tuple(names), count, count > 0)
    return Header(tuple(names), count + 1, False) if _WHOLE_TAILS[3].startswith(tail) else None


def _may_go_on(text: str) -> bool:
    """Whether a wrapped header may go on so."""
    return 0 < len(text.strip()) <= MAX_PIECE and not is_row(text) and all(
        word in _TAIL_WORDS or _HEADER_PIECE.match(word) for word in text.split())


def _longer(texts: Sequence[str], piece: str, within: bool = True) -> list[str]:
    """A wrapped line went on: the break may have been within a word, or between two."""
    longer = [text + gap + piece for text in texts for gap in (("", " ") if within else (" ",))]
    return list({" ".join(text.split()) if "\t" not in text else text: text for text in longer}.values())[:8]


def _is_full(row: Row, header: Header) -> bool:
    if len(row.cells) < len(header.names):
        return False
    return not is_gpu(row.name) or row.tail.last() >= (header.tails if header.whole else 3)


def _agreed(texts: Sequence[str], header: Header, wrapped: bool = True) -> Row | None:
    """The row; where its breaks can be read in several ways, what all of them agree in."""
    readings: list[Row] = []
    for text in texts:
        row = _split_row(text, header, wrapped=wrapped)
        if row and row not in readings:
            readings.append(row)
    if len(readings) < 2:
        return readings[0] if readings else None
    sound = [row for row in readings if not row.shifted] or readings
    longest = max(len(row.cells) for row in sound)
    sound = [row for row in sound if len(row.cells) == longest]
    sound = [row for row in sound if row.tail.last()] or sound
    full = [row for row in sound if _is_full(row, header)] or sound
    cells: list[str] = []
    for column in zip(*(row.cells for row in full), strict=True):
        if len(set(column)) > 1:
            break
        cells.append(column[0])
    same = all(row.tail == full[0].tail for row in full)
    return replace(full[0], cells=tuple(cells), tail=full[0].tail if same else Tail())


def _split_row(text: str, header: Header, wrapped: bool = False) -> Row | None:
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
        tail = _tail(text, end, header, wrapped)
    shifted = not full and at < len(words) and _CPUS.match(words[at][0]) is not None
    return Row(name, tuple(cells), tail, more=at - seen, goes_on=at < len(words), shifted=shifted)


def _tail(text: str, end: int, header: Header, wrapped: bool) -> Tail:
    """With tabs a field keeps its place also where the one before it is empty; with blanks the place in the line
    tells, and where that is lost, only the number of fields."""
    rest = text[end:]
    if "\t" in rest:
        parts = [part.strip() for part in rest.split("\t")[1:]]
        return _checked([parts[0] if parts else "", *(part for part in parts[1:] if part)], header)
    fields = rest.split()
    if len(fields) >= (header.tails if header.whole else 3):
        return _checked(fields, header)
    at = len(text[:end].expandtabs()) + len(rest) - len(rest.lstrip())
    if wrapped or header.at < 0 or at < header.at:
        return Tail()
    return _checked(fields if at == header.at else ["", *fields], header)


def _checked(fields: Sequence[str], header: Header) -> Tail:
    """From the left, up to the first one that is cut; none where one cannot be what it should be."""
    sound: list[str | None] = [None, None, None]
    for place, field in enumerate(fields[:3]):
        number = field.isdigit() if place == 2 else _CPUS.match(field) is not None
        if not number and field != "N/A" and (field or place):
            if field[:1] in ",-/" or place + 1 < len(fields):
                return Tail()
            break
        sound[place] = field
    return Tail(*sound) if len(fields) <= (header.tails if header.whole else 3) else Tail()
