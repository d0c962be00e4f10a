"""The matrices of `nvidia-smi topo -m` in a text, whatever a paste has made of it: wrapped, quoted, cut, several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts._topo_words import (
    MAX_COLUMNS,
    MAX_PIECE,
    TAIL_WORDS,
    Header,
    Row,
    agreed,
    is_device,
    is_row,
    longer_texts,
    may_go_on,
    read_header,
    split_row,
)

MAX_PIECES = 7                   # physical lines that one wrapped line may fill
ESCAPES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|\[[0-9]{1,2}(?:;[0-9]{1,2}){0,3}m")  # the second: ESC itself is lost
_P2P = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR"})
_LABELLED = re.compile(r"(?:GPU|NIC)[0-9]{1,3}\Z")
_PIECE = re.compile(r"[A-Z0-9/,-]{1,12000}\Z")               # what a wrapped row goes on with
_QUOTED = re.compile(r"(?:>[ \t]?){1,5}")
_SAID_BY = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62}):[ \t]")


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
            header = max((found for found in map(read_header, texts) if found),
                         key=lambda found: len(found.names), default=None)
            follows = self.texts[after] if after < len(self.texts) else ""
            ends = not may_go_on(follows) or after - place >= MAX_PIECES or (
                header is not None and header.whole and not TAIL_WORDS.issuperset(follows.split()))
            if ends:
                if header is None or not (header.whole or self._row_follows(after)):
                    return None
                at = text.expandtabs().find("CPU") if after == place + 1 else -1
                last = text.expandtabs()[:at].rfind(header.names[-1]) if at > 0 else -1
                return replace(header, line=self.stream[place][0], end=self.stream[after - 1][0], at=at,
                               last_at=last), after
            texts = [one for one in longer_texts(texts, follows) if all(
                word in TAIL_WORDS or is_device(word) for word in one.split()[:-1])]
            after += 1

    def _row_follows(self, place: int) -> bool:
        follows = next((text for text in self.texts[place:place + 3] if text.strip()), "")
        return is_row(follows)

    # --- rows ---

    def _width(self, start: int, end: int) -> int:
        """Of the terminal that a wrapped matrix came from: only a line as long as that can break within a word."""
        return max(len(text.expandtabs()) for text in self.texts[start:end]
                   if text.strip() and (is_row(text) or may_go_on(text) or text is self.texts[start]))

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
        row = agreed(texts, header, wrapped=False)
        last = place
        while row and last + 1 < end and last - place < MAX_PIECES:
            follows = self.texts[last + 1]
            words = follows.split() if len(follows) <= MAX_PIECE else []
            if not words or is_row(follows) or not all(map(_PIECE.match, words)):
                break
            within = len(self.texts[last].expandtabs()) >= width
            longer = longer_texts(texts, follows, within)
            found = agreed(longer, header)
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
                begin = found[-1].after + 1 if found else start
                found.append(Block(header, tuple(rows), begin, until - 1, self.stream, self.who))
                rows.clear()

        for at in range(start, end):
            if not is_row(self.texts[at]):
                continue
            row = split_row(self.texts[at], loose)
            if row and row.name == "GPU0" and rows:
                put(at)
            if row and row.cells[len(rows):len(rows) + 1] == ("X",) and (rows or row.name == "GPU0") and all(
                    row.name != before.name for before in rows):
                rows.append(replace(row, line=self.stream[at][0], end=self.stream[at][0], shifted=False))
        put(end)
        return found
