"""What pastes make of the lines of `nvidia-smi topo -m`, undone: tables, comments, escapes, all in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpcadmin.facts._topo_words import is_device

_MAX = 200_000                       # characters of a line that is taken apart
_CELL = r"(?:X|NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC)"
_NAME = r"(?:(?:GPU|NIC)[0-9]{1,3}|mlx[45]_(?:bond_)?[0-9]{1,2})"
_ESCAPED_ROW = re.compile(r"GPU[0-9]{1,3}(?:(?:\\t ?){1,2}|(?<=\\nGPU[0-9]) {1,12}|(?<=\\nGPU[0-9][0-9]) {1,12})"
                          r"(?:X|NV[0-9]|PIX|PXB|PHB|NODE|SYS|SOC|GPU[0-9])")
_OWN = re.compile(r"[ \t]{0,80}(?:GPU|NIC)[0-9]")
_ESCAPE = re.compile(r"\\(?:x1[bB]|u001[bB]|033|e)\[[0-9;]{0,20}m")
_ENDS = re.compile(r"\\r\\n|\\n|(?<=[^\\])['\"], {0,4}['\"]|['\"]\]")     # of a line, within a string or a list of them
_IN_ONE = re.compile(rf"(?<![^ \t]){_NAME}[ \t]+{_CELL}(?![^ \t])")
_ROW_BEHIND = re.compile(rf"Affinity(?:[ \t]+GPU NUMA ID)?[ \t]+{_NAME}[ \t]+{_CELL}(?![^ \t])")
_STARTS = re.compile(
    rf"(?<![^ \t])(?={_NAME}[ \t]+{_CELL}(?![^ \t])|(?:NIC )?Legend:|(?:X|SYS|SOC|NODE|PHB|PXB|PIX|NV#)[ \t]+= |"
    r"NIC[0-9]{1,3}: )")
_COMMENT = re.compile(r"[ \t]{0,20}(?:#{1,3}|//|\*|--|;|%)[ \t](?=[ \t]{0,20}(?:GPU|NIC)[0-9])")
_REMARK = re.compile(r"(?<=[^ \t])[ \t]+(?:\u2190|<-|#|//)[^\t]{0,400}\Z")
_RULE = frozenset("|:- \t")           # characters of the line below a table's head
_WORD = re.compile(r"\S+")


def lines_of(lines: Sequence[str]) -> tuple[list[str], list[int]]:
    """The lines as the tool wrote them, and of each the number of the line in the text that it came from."""
    if not any("GPU" in line for line in lines):
        return list(lines), list(range(1, len(lines) + 1))
    made: list[str] = []
    origin: list[int] = []
    commented = any(_COMMENT.match(line) for line in lines)
    table = any(line.lstrip(" \t>").startswith("|") and "GPU" in line for line in lines)
    for number, line in enumerate(lines, 1):
        for part in _apart(line):
            bare = _uncommented(part) if commented else part
            bare = _untabled(bare) if table and "|" in bare else bare
            made.append(_plain(bare) if "GPU" in bare or "NIC" in bare else bare)
            origin.append(number)
    if table and lines[-1].rstrip().endswith("|"):
        made.append("|")                 # what ends so is no line that is cut
        origin.append(len(lines))
    return made, origin


def _apart(line: str) -> Iterator[str]:
    """The lines in one: of a string in a program or in JSON, or of a text whose line ends became blanks."""
    if len(line) > _MAX or "GPU" not in line:
        yield line
    elif "\\" in line and _ESCAPED_ROW.search(line):
        for piece in _ENDS.split(_ESCAPE.sub("", line)):
            part = piece.replace("\\t", "\t")
            own = _OWN.search(part)
            before = part[:own.start()] if own else ""
            yield part[len(before) if "'" in before or '"' in before else 0:].rstrip("'\",")
    elif len(_IN_ONE.findall(line)) > 1 or _ROW_BEHIND.search(line):
        for part in _STARTS.split(line):
            start = _header_in(part)
            if start:
                yield part[:start]
            yield part[start:]
    else:
        yield line


def _header_in(part: str) -> int:
    """Where a header begins behind other words: at the first of the devices before "CPU Affinity"."""
    tail = re.search(r"(?<![^ \t])CPU[ \t]{1,9}Affinity", part)
    start = 0
    words = list(_WORD.finditer(part[:tail.start()])) if tail else []
    for word in reversed(words):
        if not is_device(word[0]):
            break
        start = word.start()
    return start


def _uncommented(line: str) -> str:
    match = re.match(r"[ \t]{0,20}(?:#{1,3}|//|\*|--|;|%)(?:[ \t]|\Z)", line)
    return line[match.end():] if match else line


def _untabled(line: str) -> str:
    """A row of a Markdown table: its cells with tabs between, the empty corner left out."""
    text = line.lstrip(" \t>")
    if not text.startswith("|"):
        return line
    if _RULE.issuperset(text):
        return ""
    cells = [cell.strip(" \t*`_") for cell in text.strip().strip("|").split("|")]
    while cells and not cells[-1]:
        cells.pop()
    return "\t".join(cells)


def _plain(line: str) -> str:
    """Without marks of emphasis, and without the remark that somebody put behind a row."""
    bare = line.replace("**", "") if "**" in line else line
    words = bare.split(None, 2)
    if len(words) > 1 and re.match(_NAME, words[0]) and re.match(_CELL, words[1]):
        return _REMARK.sub("", bare)
    return bare
