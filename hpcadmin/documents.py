"""Bytes that somebody has (a paste, a file, an archive) as documents: decoded, cleaned, told apart by form."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping

from hpcadmin.facts import Document

MAX_BYTES = 64 * 1024 * 1024
# CSI and OSC sequences, and the two-character escapes. What a paste leaves of them without ESC is for the readers.
_ANSI = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)"
                   r"|\x1b[@-Z\\-_()][0-9A-Za-z]?")
_XML = re.compile(r"\s*<(\?xml|!DOCTYPE|topology|system|graphs|nvidia_smi_log)\b", re.IGNORECASE)
# Characters that nobody sees, and blanks that are no ASCII space: what web pages and chat programs leave in a paste.
_UNSEEN = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f"), " ")
_QUOTED = re.compile(r"[ \t]{0,4}(?:> ?){1,5}")
_TIGHT = re.compile(r"[ \t]{0,4}>{1,5}")
_TIGHT_QUOTE = re.compile(r"^[ \t]{0,4}>{1,5}[^> \t\n]", re.MULTILINE)      # no blank after the mark
_FENCE = re.compile(r"\s{0,12}(?:`{3,8}|~{3,8})[ \t]{0,4}[A-Za-z0-9_+.-]{0,20}[ \t]{0,8}\Z")
_TAGS = ("pre", "code", "p", "div", "details", "summary", "blockquote", "samp", "tt")
_MORE_TAGS = ("br", "b", "i", "span", "table", "tr", "td", "li", "ul", "a")
_TAG = re.compile(rf"</?(?:{'|'.join(_TAGS)})(?: [^<>]{{0,200}})?>|<br ?/?>|</?summary>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#x27|#34|#160);")
_HALF = re.compile(r"</?[A-Za-z_][A-Za-z0-9_.-]{0,60}&gt;")     # what some forums make of a tag; never in good XML
_MARKUP = re.compile(r"\s{0,80}(?:> ?){0,5}<[?!/]?([A-Za-z_-]{1,40})")
_CAPTURE = re.compile(r"^HPCADMIN-CAPTURE [0-9]+ [0-9a-f]+\r?$", re.MULTILINE)


def decode(data: bytes) -> str:
    """Text of any of the encodings that Windows and Unix tools leave; what is no text becomes U+FFFD."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if data[:400].count(b"\0") * 3 > len(data[:400]):
        return data.decode("utf-16-le", "replace")
    return data.decode("utf-8", "replace")


def is_capture(text: str) -> bool:
    """Whether our own probe printed it."""
    return "HPCADMIN-CAPTURE " in text and _CAPTURE.search(text) is not None


def clean_lines(text: str) -> tuple[str, ...]:
    """The lines as a terminal would show them."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if not text.isascii():
        text = text.translate(_UNSEEN | _BLANKS)
    if "\r" in text:
        text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.replace("\x00", "").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(_unwrapped(lines, text))


def _unwrapped(lines: list[str], text: str) -> list[str]:
    """Without what mail, Markdown and HTML put around a text, line by line, so that their numbers stay."""
    quoted = ">" in text and any(_QUOTED.match(line) for line in dict.fromkeys(lines) if ">" in line)
    if quoted and not any(map(_XML.match, lines)):      # in XML a ">" may end a tag of the line before
        mark = _TIGHT if _TIGHT_QUOTE.search(text) else _QUOTED
        lines = [mark.sub("", line, count=1) for line in lines]
    if "```" in text or "~~~" in text:
        lines = ["" if _FENCE.match(line) else line for line in lines]
    if "&gt;" in text and _HALF.search(text):
        lines = [line.replace("&gt;", ">").replace("&nbsp;", " ") for line in lines]
    if ("<" in text and _TAG.search(text)) or ("&" in text and _ENTITY.search(text)):
        marks = {match[1].lower() for line in lines if "<" in line and (match := _MARKUP.match(line[:200]))}
        if not marks.difference(_TAGS, _MORE_TAGS):
            lines = [_ENTITY.sub(_character, _TAG.sub("", line)) if "&" in line or "<" in line else line
                     for line in lines]
    return lines


def _character(entity: re.Match[str]) -> str:
    return " " if entity[0] in ("&nbsp;", "&#160;") else html.unescape(entity[0])


def documents(name: str, data: bytes) -> tuple[Document, ...]:
    """The document, or several where an XML stands inside a text: line numbers stay those of the file."""
    return documents_in(name, decode(data[:MAX_BYTES]), cut=len(data) > MAX_BYTES)


def documents_in(name: str, text: str, *, cut: bool = False) -> tuple[Document, ...]:
    """The same of a text that is decoded."""
    lines, open_end = clean_lines(text), not text.endswith(("\n", "\r"))
    xml = {line for line in dict.fromkeys(lines) if "<" in line and _XML.match(line)}
    start = next((number for number, line in enumerate(lines) if line in xml), None) if xml else None
    if start is not None:
        before = lines[:start]
        found = [Document(name, "xml", ("",) * start + lines[start:], cut=cut, open_end=open_end)]
        if any(line.strip() for line in before) and not _only_comments("\n".join(before)):
            found.insert(0, Document(name, "text", before, cut=cut, aside=True))
        return tuple(found)
    return (Document(name, "json" if _is_json(lines) else "text", lines, cut=cut, open_end=open_end),)


def _only_comments(text: str) -> bool:
    """Whether it is nothing but comments of XML, which stand before its first element."""
    rest = text.strip()
    while rest.startswith("<!--") and "-->" in rest:
        rest = rest.partition("-->")[2].lstrip()
    return not rest


def _is_json(lines: tuple[str, ...]) -> bool:
    first = next((line.lstrip() for line in lines if line.strip()), "")
    if not first.startswith(("{", "[")):
        return False
    try:
        json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return first.startswith("{") or first.rstrip() == "["       # cut off: the reader says where
    return True


def tree(name: str, files: Mapping[str, bytes], *, cut: bool = False) -> Document:
    """A document of a node's /sys and /proc."""
    return Document(name, "tree", tree={path: decode(data) for path, data in files.items()}, cut=cut)
