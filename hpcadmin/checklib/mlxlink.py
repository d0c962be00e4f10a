"""Reads what mlxlink (or mstlink) tells of ports: its JSON, its text with or without colours, and its complaints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcadmin.check import ParseError
from hpcadmin.checklib import own_output, strict_json, strip_terminal
from hpcadmin.text import printable

MAX_PORTS = 256
OPERATIONAL, TROUBLE = "Operational Info", "Troubleshooting Info"
COUNTERS, MODULE, SUPPORTED = "Physical Counters and BER Info", "Module Info", "Supported Info"
EYE, TESTING = "EYE Opening Info", "Test Mode Info"
# Rows without which nothing can be said of a port, and where they stand.
NEEDED = ((OPERATIONAL, ("State", "Physical state", "Speed", "Width", "FEC", "Loopback Mode", "Auto Negotiation")),
          (TROUBLE, ("Status Opcode", "Recommendation")),
          (COUNTERS, ("Time Since Last Clear [Min]", "Effective Physical Errors", "Effective Physical BER",
                      "Raw Physical Errors Per Lane", "Raw Physical BER")))
_TITLES = re.compile(r"[A-Z][\w /()&.-]{2,60}\Z")
_PORT = re.compile(r"# port (\S{1,64})\Z")
_END_PORT = re.compile(r"# end port (\S{1,64}) status (\d{1,3})\Z")
_COMMAND = re.compile(r"(?:^|[\s/])m[ls][xt]link\s.{0,200}?(?:-d|--device)[ =]+(\S{1,64})(?:.{0,100}?-p +(\d{1,3})\b)?")
# How people part the outputs of several ports: "===== mlx5_0 =====".
_PARTING = re.compile(r"[=#*]{2,}\s*(?:/dev/mst/)?((?:mlx5_|mt[0-9]{3,5}_|ibp?[0-9]|roce)[\w.-]{0,50})"
                      r"[^=#*]{0,60}[=#*]{0,80}\Z")
# What a command line asks for, and what then must follow.
_ASKED = ((re.compile(r"\s(?:-\w*m\w*|--show_module)(?=\s|$)"), MODULE),
          (re.compile(r"\s(?:-\w*c\w*|--show_counters)(?=\s|$)"), COUNTERS),
          (re.compile(r"\s(?:-\w*e\w*|--show_eye)(?=\s|$)"), EYE))
_ERROR = re.compile(r"-E-|\braised the following exception|^(?:read link|Unable to read link)\b|command not found|"
                    r"[Pp]ermission denied|^sudo: ", re.IGNORECASE)
# The eye is extra: where the device cannot measure it, all else is whole.
_EXTRA = re.compile(r"\b(?:eye|SLRG|SLRED)\b", re.IGNORECASE)
RIGHTS = re.compile(r"permission|root|operation not permitted|a password is required|not allowed|privilege",
                    re.IGNORECASE)


@dataclass
class Told:
    """What one output tells. device "": it does not name its port. said: lines of complaint; broken: why it is not
    whole; extra: complaints after which all else is whole."""

    device: str = ""
    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    status: int = 0
    asked: list[str] = field(default_factory=list)       # sections that the command line asks for

    def get(self, section: str, key: str) -> str | None:
        """The value; None where the row is not there."""
        return self.sections.get(section, {}).get(key)

    @property
    def missing(self) -> list[str]:
        """The rows that are not there and must be, and the sections."""
        lost = [title for title in self.asked if not any(there.startswith(title) for there in self.sections)]
        if not self.extra and lost:
            return lost
        return [f"{key} ({section})" for section, keys in NEEDED for key in keys if self.get(section, key) is None]


def framed(text: str) -> bool:
    return "# hpcadmin mlxlink " in text


def read_frame(text: str) -> list[Told]:
    """The ports of an output of our own script, whose lines of the tool begin with "|"."""
    lines = own_output(text, "mlxlink")
    found: list[Told] = []
    inside = ""
    body: list[str] = []
    for line in lines[lines.index("# hpcadmin mlxlink 1"):]:
        begin, end = _PORT.match(line), _END_PORT.match(line)
        either = begin or end
        if begin and not inside:
            inside, body = begin[1], []
        elif end and inside == end[1]:
            found.append(_one(inside, body, int(end[2])))
            inside = ""
        elif line.startswith("|") and inside:
            body.append(line[1:])
        elif either:
            raise ParseError(f"port {inside or either[1]} does not begin and end", hint="lines are lost")
    if inside:
        raise ParseError(f"what is told of port {inside} does not end", hint="lines are lost")
    names = [told.device for told in found]
    for name in names:
        if names.count(name) > 1:
            raise ParseError(f"port {name} is told of twice", hint="several runs mixed")
    if len(found) > MAX_PORTS:
        raise ParseError(f"more than {MAX_PORTS} ports")
    return found


def _one(device: str, lines: Sequence[str], status: int) -> Told:
    outputs = read("\n".join(lines))
    if len(outputs) > 1:
        outputs[0].broken.append(f"{len(outputs)} outputs where one must be")
    told = outputs[0] if outputs else Told(broken=["mlxlink printed nothing"])
    told.device, told.status = device, status
    if status:
        told.broken.append(f"mlxlink ended with exit status {status}")
    return told


def read(text: str) -> list[Told]:
    """The outputs in a text of somebody, one after the other; [] where there is none."""
    clean = strip_terminal(text)
    found = list(_documents(clean)) if '"Operational Info"' in clean or '"result"' in clean else _texts(clean)
    return found[:MAX_PORTS]


def _documents(text: str) -> Iterator[Told]:
    """Of JSON documents, each of which begins a line. What cannot be read ends the text."""
    decoder = strict_json.decoder()
    place, device, told, start = 0, "", Told(), 0
    for line in text.split("\n"):
        begin, start = start, start + len(line) + 1
        opening = line.lstrip()
        if begin < place or not opening:
            continue
        if not opening.startswith("{"):
            device = _device(line) or device
            if _ERROR.search(line[:2000]):
                told.said.append(printable(opening, limit=200))
            elif opening[0] in '}]"':
                told.broken.append(f"a line of JSON outside of an answer: {printable(opening, limit=60)}")
            continue
        try:
            document, place = decoder.raw_decode(text, begin + len(line) - len(opening))
        except (ValueError, RecursionError) as exc:
            told.broken.append(f"not one whole JSON answer: {printable(str(exc), limit=120)}")
            break
        if isinstance(document, dict) and {"result", "status"} & document.keys():
            if told.said:
                yield told
            yield _document(document, device)
            told, device = Told(), ""
    if told.said or told.broken:
        told.device = device
        yield told


def _document(document: Mapping[str, Any], device: str) -> Told:
    told = Told(device)
    result, status = document.get("result"), document.get("status")
    output = result.get("output") if isinstance(result, dict) else None
    for name, rows in (output if isinstance(output, dict) else {}).items():
        if isinstance(rows, dict):
            told.sections[name.strip()] = {key.strip(): _value(value) for key, value in rows.items()}
    if not isinstance(status, dict) or "code" not in status:
        told.broken.append("the JSON answer has no status")
    elif status["code"] != 0:
        _complain(told, str(status.get("message", f"status {status['code']}")))
    return told


def _value(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("values", value.get("value", ""))
    if isinstance(value, list):
        return ",".join(_value(item) for item in value)
    return value.strip() if isinstance(value, str) else "" if value is None else str(value)


def _complain(told: Told, message: str) -> None:
    """A message of the tool's own status, a line each."""
    for line in filter(None, (part.strip() for part in message.split("\n"))):
        (told.extra if _EXTRA.search(line) else told.said).append(printable(line, limit=200))


def _texts(text: str) -> list[Told]:
    """Of texts for people: each begins with its Operational Info."""
    lines = [line.rstrip() for line in text.split("\n")]
    found: list[Told] = []
    told, section = Told(), ""
    for n, line in enumerate(lines):
        named = _device(line)
        if named:
            if told.sections or told.said:
                found.append(told)
                told, section = Told(), ""
            told.device, told.asked = named, [title for asks, title in _ASKED if asks.search(line[:400])]
            continue
        under = lines[n + 1].strip() if n + 1 < len(lines) else ""
        title = line.strip()
        if len(under) >= 4 and not under.strip("-") and _TITLES.match(title):
            if title == OPERATIONAL and told.sections:
                found.append(told)
                told = Told()
            section = title
            if section in told.sections:
                told.broken.append(f"{section} is there twice")
            told.sections.setdefault(section, {})
        elif title.strip("-"):
            _line(told, section, title)
    if told.sections or told.said or told.device:
        found.append(told)
    return found


def _device(line: str) -> str:
    """The port that a command line names which stands in the text, or a line that parts outputs."""
    parting = _PARTING.match(line.strip()[:200])
    if parting:
        return parting[1]
    command = _COMMAND.search(line[:400])
    if not command:
        return ""
    name = command[1].rpartition("/")[2].strip("'\"")
    return f"{name}/{command[2]}" if command[2] else name


def _line(told: Told, section: str, line: str) -> None:
    key, colon, value = line.partition(":")
    if _ERROR.search(line) or section == "Errors":
        _complain(told, line)
    elif colon and section and len(key) <= 60 and key[:1].isalpha():
        rows, key = told.sections[section], " ".join(key.split())
        if key in rows:
            told.broken.append(f"{key} ({section}) is told twice")
        rows[key] = value.strip()
