"""A capture: the text that the probe printed on one node, cut into its sections again.

HPCADMIN-CAPTURE 1 TOKEN            after whatever a login shell printed first
@TOKEN begin NAME limit=BYTES       then what the command printed
@TOKEN stderr NAME                  then its complaints, the last line being #TOKEN status=N
@TOKEN done sections=N              what has no such end was cut off

The token is random, so that nothing a tool prints can pass for a frame.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.errors import ParseError

CAPTURE_SCHEMA = 1
MAX_HEADS = 10                   # lines that look like the beginning of a capture
MAX_STDERR = 8192                # characters of complaints that a section keeps
MAX_CAPTURE_BYTES = 64 * 1024 * 1024
_HEAD = re.compile(r"^HPCADMIN-CAPTURE ([0-9]{1,6}) ([0-9a-f]{16,64})\r?$", re.MULTILINE)
_BEGIN = re.compile(r"begin ([a-z0-9_]{1,40}) limit=([0-9]{1,12})\Z")
_END = re.compile(r"stderr ([a-z0-9_]{1,40})\Z")
_DONE = re.compile(r"done sections=([0-9]{1,4})\Z")


@dataclass(frozen=True)
class Section:
    """What one fact's command printed. status None: it was not seen to end."""

    name: str
    text: str
    stderr: str = ""
    status: int | None = None
    truncated: bool = False          # cut off at its limit, or by the end of the capture

    @property
    def absent(self) -> bool:
        """The tool or file is not on the node (as a shell says it: 127)."""
        return self.status == 127

    @property
    def timed_out(self) -> bool:
        """By timeout(1); BusyBox's ends with the signal's status. Without any it was left behind, unless its complaints
        were so many that they hid the status."""
        return self.status in (124, 137, 143) or (self.status is None and len(self.stderr) < MAX_STDERR - 200)


@dataclass(frozen=True)
class Capture:
    sections: Mapping[str, Section]
    complete: bool
    last: str = ""                   # the section in which an incomplete one ends


def split_capture(text: str, where: str, token: str = "") -> Capture:
    """Raises ParseError when the text is empty or no capture, naming `where`. token: the one that was given to the
    probe, where it is known."""
    if not text.strip():
        raise ParseError("the capture is empty", where=where)
    head = _head(text, where, token)
    if not head:
        raise ParseError("is not a capture of hpcadmin discover: no line HPCADMIN-CAPTURE", where=where)
    if int(head[1]) != CAPTURE_SCHEMA:
        raise ParseError(f"is a capture of format {head[1]}, known is {CAPTURE_SCHEMA}", where=where,
                         hint="made by another version of hpcadmin")
    body = text[head.end():].replace("\r\n", "\n") if head[0].endswith("\r") else text[head.end():]
    frames = body.split(f"\n@{head[2]} ")[1:]
    return _collect(frames, head[2])


def _head(text: str, where: str, token: str) -> re.Match[str] | None:
    """Where the capture begins. What a login shell printed before may look like such a line, and a command's output
    may hold a capture: the first that comes to its end counts. Raises ParseError when another follows it."""
    heads = [match for match in itertools.islice(_HEAD.finditer(text), MAX_HEADS) if token in ("", match[2])]
    if token or len(heads) < 2:
        return heads[0] if heads else None
    whole = [(match, end) for match in heads if (end := text.find(f"\n@{match[2]} done sections=", match.end())) >= 0]
    if not whole:
        return max(heads, key=lambda match: text.count(f"\n@{match[2]} begin ", match.end()))
    first, end = whole[0]
    if any(other.start() > end for other, _ in whole):
        raise ParseError("two captures are in it", where=where, hint="one file for each node")
    return first


def _collect(frames: list[str], token: str) -> Capture:
    sections: dict[str, Section] = {}
    open_name, open_text, limit, complete, last = "", "", 0, False, ""
    for frame in frames:
        line, newline, content = frame.partition("\n")
        begin, end, done = _BEGIN.match(line), _END.match(line), _DONE.match(line)
        if begin and newline:
            open_name, open_text, limit = begin[1], content, int(begin[2])
            last = open_name
            sections.setdefault(open_name, Section(open_name, content, truncated=True))
        elif end and end[1] == open_name:
            status, stderr = _status(content, token)
            cut = len(open_text.encode("utf-8", "replace")) >= limit
            sections[open_name] = Section(open_name, open_text, stderr, status, truncated=cut)
            open_name = ""
        elif done:
            complete = int(done[1]) == len(sections) and not open_name
    return Capture(sections, complete, "" if complete else last)


def _status(content: str, token: str) -> tuple[int | None, str]:
    text, found, rest = content.rpartition(f"#{token} status=")
    number = rest.split("\n", 1)[0] if found else ""
    if not number.isdigit() or len(number) > 4:
        return None, content.strip("\n")
    return int(number), text.strip("\n")
