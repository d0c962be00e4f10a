"""Bytes that somebody has (a paste, a file, an archive) as documents: decoded, cleaned, told apart by form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from hpcadmin.facts import Document

MAX_BYTES = 64 * 1024 * 1024
# CSI and OSC sequences, and the two-character escapes. What a paste leaves of them without ESC is for the readers.
_ANSI = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)"
                   r"|\x1b[@-Z\\-_()][0-9A-Za-z]?")
_XML = re.compile(r"\s*<(\?xml|!DOCTYPE|topology|system|graphs|nvidia_smi_log)\b", re.IGNORECASE)
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
    return _CAPTURE.search(text) is not None


def clean_lines(text: str) -> tuple[str, ...]:
    """The lines as a terminal would show them."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def documents(name: str, data: bytes) -> tuple[Document, ...]:
    """The document, or several where an XML stands inside a text: line numbers stay those of the file."""
    cut = len(data) > MAX_BYTES
    text = decode(data[:MAX_BYTES])
    lines, open_end = clean_lines(text), not text.endswith(("\n", "\r"))
    start = next((n for n, line in enumerate(lines) if _XML.match(line)), None)
    if start is not None:
        before = lines[:start]
        found = [Document(name, "xml", ("",) * start + lines[start:], cut=cut, open_end=open_end)]
        if any(line.strip() for line in before):
            found.insert(0, Document(name, "text", before, cut=cut))
        return tuple(found)
    return (Document(name, "json" if _is_json(lines) else "text", lines, cut=cut, open_end=open_end),)


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
