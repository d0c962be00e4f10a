"""XML read with bounds, to the point where it is cut off: elements with their lines, no entities, no declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean

MAX_DEPTH = 100
MAX_ELEMENTS = 200_000


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class _Builder:
    def __init__(self, first: int) -> None:
        self.root: Element | None = None
        self.stack: list[Element] = []
        self.count = 0
        self.first = first
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.data
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse

    def refuse(self, *_: object) -> None:
        raise ParseError("the XML declares a document type or entities")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.stack) >= MAX_DEPTH or self.count > MAX_ELEMENTS:
            raise ParseError(f"the XML is deeper than {MAX_DEPTH} or has more than {MAX_ELEMENTS} elements")
        element = Element(tag, attributes, self.first + self.parser.CurrentLineNumber - 1)
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, _: str) -> None:
        self.stack.pop()

    def data(self, text: str) -> None:
        if self.stack and (self.stack[-1].pieces or not text.isspace()):
            self.stack[-1].pieces.append(text)


def elements(text: str, first: int = 1) -> tuple[Element, int | None, str]:
    """(root, line in which it breaks off or None, why). first: the number of the text's first line. Raises ParseError
    when there is not even a root, or the XML declares entities."""
    builder = _Builder(first)
    broken: int | None = None
    why = ""
    try:
        builder.parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as exc:
        broken, why = first + exc.lineno - 1, clean(expat.ErrorString(exc.code) or "")
    except ValueError as exc:            # an encoding in the XML's head that there is not
        raise ParseError(f"the XML cannot be read: {clean(str(exc))}") from exc
    if builder.root is None:
        raise ParseError(f"the XML cannot be read: {why or 'no element'}")
    return builder.root, broken, why


def blocks(lines: Sequence[str], tag: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of every element `tag`, whatever is around it; the last may be cut off."""
    opening, closing = re.compile(rf"<{tag}(?=[\s>/]|$)"), f"</{tag}>"
    start, kept = 0, list[str]()
    for number, whole in enumerate(lines, 1):
        begin = opening.search(whole) if f"<{tag}" in whole else None
        if begin and start:
            yield start, "\n".join(kept)
        if begin:
            start, kept = number, []
        if not start:
            continue
        line = whole[begin.start():] if begin else whole
        end = line.find(closing)
        alone = re.match(r"<[^<>]{0,1000}/>", line) if begin else None
        if end < 0 and not alone:
            kept.append(line)
            continue
        kept.append(line[:alone.end() if alone else end + len(closing)])
        yield start, "\n".join(kept)
        start = 0
    if start:
        yield start, "\n".join(kept)
