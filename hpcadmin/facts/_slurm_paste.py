"""Lines of Slurm's files as they are, out of what people and programs put around them in a paste.

Every line stays where it is, so that numbers are those of the text: only what stands before and after is taken off
(numbers of lines, the prefix of a container's log, marks of quotation, echo and its redirection, template marks).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Stands for {{ item.name }}, ${CPUS}, <%= cpus %> and the like: what is there is not in the text.
OPEN = "{{}}"
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"', "\u2018": "'",
                         "\u2019": "'", "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-"})
_COLOUR = re.compile(r"\[\d{1,2}(?:;\d{1,3}){0,4}m|\[[mK](?![A-Za-z])")
_TEMPLATE = re.compile(r"\{\{[^{}\n]{0,300}\}\}|\{%[^%\n]{0,300}%\}|<%[^%\n]{0,300}%>|\$\{[^{}\n]{1,200}\}|"
                       r"\$\([^()\n]{1,200}\)|\$[A-Za-z_]\w{0,60}|(?<==)<[A-Za-z][\w -]{0,60}>|@[A-Z_]{2,40}@|"
                       r"(?<==)(?:[Xx]{2,12}|\?{1,8}|\.{3,8}|TODO|FIXME|CHANGE_?ME|REPLACE_?ME)(?=\s|\Z)")
_MARKS = ("{{", "{%", "<", "$", "@", "=X", "=x", "=?", "=.", "=T", "=F", "=C", "=R")
_KEY = r"(?=[A-Za-z][A-Za-z]{2,40}\s{0,4}=)"
# cat -n, grep -n, nl, an editor's margin; docker compose and kubectl; a shell that writes the file.
_BEFORE = re.compile(
    r"\A[ \t]{0,12}(?:[\w./-]{0,200}\.conf[:-](?:\d{1,6}[:-])?|[Ll]?\d{1,6}(?:[:.)|]|\u2502|(?=[ \t]))|"
    r"[\w.-]{1,60}[ \t]{1,20}\||"
    r"(?:-[ \t]{1,4})?(?:[\"'][\w./-]{1,80}[\"']|[\w./-]{1,80}\.conf|line|contents?|value|block|data|text):[ \t]{1,4}"
    r"[\"']?)[ \t]{0,12}" + _KEY)
_ECHO = re.compile(r"\A[ \t]{0,20}(?:(?:RUN|&&|sudo|-)[ \t]{1,4}){0,3}(?:echo|printf)[ \t]{1,4}(?:-\w{1,2}[ \t]{1,4})?"
                   r"[\"']?" + _KEY)
_ECHOED = re.compile(r"[\"']?(?:[ \t]{0,4}(?:\||>{1,2})[^=]{0,200})?[ \t]{0,4}(?:&&)?[ \t]{0,4}\\?\Z")
_SPACED = re.compile(r"([A-Za-z]\w{1,40})[ \t]{1,8}=[ \t]{0,8}(?=[^\s=])|(?<=\w)=[ \t]{1,8}(?=[^\s=]{1,200}\Z)")
_OPENS_SPACED = re.compile(r"\A[ \t]{0,80}[A-Za-z]\w{1,40}[ \t]{0,8}=[ \t]{0,8}[^\s=\[{(]")
_MEASURED = re.compile(r"\A(\s{0,20})ClusterName=\S{1,60} (?=NodeName=\S{1,100} CPUs=)")     # slurmd -C, once
_CODE = re.compile(r"\A([ \t]{0,20}(?:[-*+][ \t]{1,4})?)(`{1,3})(" + r"[A-Za-z]\w{1,40}=[^`\n]{0,4000})\2(.{0,2000})\Z")
_DIFF = re.compile(r"\A(?:@@ -\d{1,7}(?:,\d{1,7})? \+\d{1,7}(?:,\d{1,7})? @@|diff --git |--- [ab]/|\+\+\+ [ab]/)")
_SIGNED = re.compile(r"\A[-+][ \t]{0,40}#?[ \t]{0,4}[A-Za-z]\w{2,40}=")


# The beginnings of names of keys that stand behind others on a line.
_INNER = ("CoresPerSocket", "ThreadsPerCore", "RealMemory", "Sockets", "SocketsPerBoard", "Boards", "CPUs", "State",
          "Features", "Gres", "Weight", "TmpDisk", "NodeAddr", "NodeHostname", "Nodes", "Default", "MaxTime", "File",
          "Files", "Cores", "Links", "Flags", "Count", "Type")
_CUT = re.compile(r"\A\s{0,80}(?:Node|Partition)?Name=\S{1,4000}(?:\s{1,80}\w{1,40}=\S{1,4000}){0,40}"
                  r"\s{1,80}([A-Z]\w{1,30})\Z", re.IGNORECASE)
_JSON = re.compile(r"\\n|[{,]\s{0,9}\"[\w./-]{1,60}\":\s{0,4}[{\"]")


def spread(lines: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The lines that JSON strings hold one by one, and the number of each in the text: () where none holds any."""
    if not any("\\n" in line for line in lines):
        return tuple(lines), ()
    found = [(piece, number) for number, line in enumerate(lines, 1)
             for piece in (_JSON.split(line.replace('\\"', "\0")) if "\\n" in line else (line,))]
    return tuple(piece.replace("\0", '"') for piece, _ in found), tuple(number for _, number in found)


def plain(lines: Sequence[str]) -> tuple[str, ...]:
    found = [_plain(line) if line else line for line in lines]
    last = next((number for number in range(len(found) - 1, -1, -1) if found[number].strip()), 0)
    if found and cut(found[last]):
        found[last] = ""
    return tuple(found)


def cut(line: str) -> bool:
    """Whether a line of nodes, partitions or devices ends in the middle of a key."""
    match = _CUT.match(line)
    return bool(match) and any(name.lower().startswith(match[1].lower()) and len(name) > len(match[1])
                               for name in _INNER if match)


def _plain(line: str) -> str:
    if not line.isascii():
        line = line.translate(_QUOTES)
    if "[" in line and ("m" in line or "[K" in line):
        line = _COLOUR.sub("", line)
    if "=" not in line:
        return line
    if any(mark in line for mark in _MARKS):
        line = _TEMPLATE.sub(OPEN, line)
    if "ClusterName=" in line:
        line = _MEASURED.sub(r"\1", line)
    if "`" in line:
        line = _CODE.sub(r"\1\3", line)
    before = _BEFORE.match(line)
    if before:
        line = line[before.end():]
    echo = _ECHO.match(line)
    if echo:
        line = _ECHOED.sub("", line[echo.end():])
    if (" =" in line or "= " in line or "\t=" in line or "=\t" in line) and _OPENS_SPACED.match(line):
        line = _SPACED.sub(lambda match: f"{match[1] or ''}=", line)
    return line


def sides(lines: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """(before, after) of a patch, each with the lines of the other left empty; the text alone where it is none."""
    signed = [line for line in lines if line[:1] in ("-", "+") and _SIGNED.match(line)]
    both = {line[0] for line in signed} == {"-", "+"}
    if not (both or (signed and any(map(_DIFF.match, lines)))):
        return (tuple(lines),)
    return tuple(tuple("" if line[:1] == other and not line.startswith(other * 3) else
                       " " + line[1:] if line[:1] == own and _SIGNED.match(line) else line for line in lines)
                 for own, other in (("-", "+"), ("+", "-")))
