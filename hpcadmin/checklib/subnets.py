"""The subnet managers of InfiniBand, as sminfo, `saquery SMIR` and ibdiagnet's list of them tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcadmin.check import Measurement, ParseError, Subject
from hpcadmin.checklib import lines_of
from hpcadmin.text import plural, printable

MASTER, STANDBY, DISCOVERING, IDLE = "MASTER", "STANDBY", "DISCOVERING", "NOT ACTIVE"
_STATES = (IDLE, DISCOVERING, STANDBY, MASTER)          # by number
_WORDS = {"SMINFO_NOTACT": IDLE, "SMINFO_DISCOVER": DISCOVERING, "SMINFO_STANDBY": STANDBY, "SMINFO_MASTER": MASTER,
          "master": MASTER, "standby": STANDBY, "discovering": DISCOVERING, "dicovering": DISCOVERING,
          "notactive": IDLE, "nonactive": IDLE, "inactive": IDLE}
_SMINFO = re.compile(r"sminfo: sm lid (0x[0-9a-f]{1,8}|[0-9]{1,10}) sm guid (0x[0-9a-f]{1,16}), "
                     r"activity count ([0-9]{1,10}) priority ([0-9]{1,3}) state ([0-9]{1,2}) (\S{1,40})\Z")
_FIELD = re.compile(r"(LID|GUID|ActCount|Priority|SMState)\.{2,40}(\S{1,40})\Z")
_FIELDS = ("LID", "GUID", "ActCount", "Priority", "SMState")
_REPORT_STATE = re.compile(r"SM - ([A-Za-z][A-Za-z -]{2,30})\Z")
_REPORT = re.compile(r"(?:\S{1,80} )?(?:Port=[0-9]{1,3} )?lid=(0x[0-9a-f]{1,8}) guid=(0x[0-9a-f]{1,16}) dev=\S{1,20} "
                     r"priority:([0-9]{1,3})\Z")
_COMPLAINT = re.compile(r"(?:(?:\S{1,60}: )?(?:ibwarn|ibpanic|iberror|sminfo|saquery)\b.{0,60}?:|Query SA failed)"
                        r".{0,300}")
_REFUSED = ("can't open umad port", "can't open smi umad port", "permission denied", "failed to open", "no sm/sa found",
            "failed to bind to the sa", "can't read abi version")
_SILENT = ("_do_madrpc failed", "iberror: failed: query", "Query SA failed")
NO_ANSWER = "no answer within 10 s"
MOST_PRIORITY = 15


@dataclass(frozen=True)
class Manager:
    guid: int
    lid: int
    state: str
    priority: int
    activity: int | None = None

    @property
    def name(self) -> str:
        return f"0x{self.guid:016x}"

    def __str__(self) -> str:
        return f"{self.name} at LID {self.lid}, {self.state}, priority {self.priority}"


def _manager(lid: str, guid: str, activity: str | None, priority: str, state: str) -> Manager:
    found = Manager(int(guid, 16), int(lid, 16 if lid.startswith("0x") else 10), state, int(priority),
                    None if activity is None else int(activity))
    if not found.guid or not found.lid:
        raise ParseError(f"the subnet manager {found} has no GUID or no LID", hint="what an unanswered query leaves")
    if found.priority > MOST_PRIORITY or (found.activity or 0) > 0xFFFFFFFF:
        raise ParseError(f"the subnet manager {found} has a priority or an activity count that cannot be")
    return found


def _state(text: str, number: str = "") -> str:
    state = _WORDS.get(text) or _WORDS.get(text.lower().replace(" ", "").replace("-", ""))
    if state is None:
        raise ParseError(f"the state {printable(text, limit=40)!r} of a subnet manager is unknown")
    if number and number != str(_STATES.index(state)):
        raise ParseError(f"the state {number} {text} of a subnet manager contradicts itself")
    return state


def answers(lines: Sequence[str]) -> list[Manager]:
    """What sminfo says of the managers that it asked. ParseError for a line of it that is cut or strange."""
    found = []
    for line in lines:
        if line.startswith("sminfo: sm lid"):
            match = _SMINFO.match(line)
            if match is None:
                raise ParseError(f"sminfo's answer is cut or of an unknown form: {printable(line, limit=160)}")
            lid, guid, activity, priority, number, word = match.groups()
            found.append(_manager(lid, guid, activity, priority, _state(word, number)))
    return found


def records(lines: Sequence[str]) -> list[Manager]:
    """The managers that `saquery SMIR` lists."""
    tables: list[dict[str, str]] = []
    for line in lines:
        match = _FIELD.match(line)
        if line == "SMInfoRecord dump:":
            tables.append({})
        elif match and tables:
            if match[1] in tables[-1]:
                raise ParseError(f"{match[1]} of a subnet manager is told twice", hint="two outputs mixed")
            tables[-1][match[1]] = match[2]
    found = []
    for table in tables:
        missing = [name for name in _FIELDS if name not in table]
        if missing:
            raise ParseError(f"{', '.join(missing)} of a subnet manager is not told", hint="the list is cut off")
        lid, guid, activity, priority, state = (table[name] for name in _FIELDS)
        if not all(re.fullmatch("[0-9]{1,10}", t) for t in (lid, activity, priority, state)) or not re.fullmatch(
                "0x[0-9a-f]{16}", guid):
            raise ParseError(f"a subnet manager's record has no numbers: {printable(str(table), limit=160)}")
        if int(state) >= len(_STATES):
            raise ParseError(f"the state {state} of a subnet manager is unknown")
        found.append(_manager(lid, guid, activity, priority, _STATES[int(state)]))
    return _distinct(found)


def report(lines: Sequence[str]) -> list[Manager]:
    """The managers of ibdiagnet's file (ibdiagnet2.sm)."""
    found: list[Manager] = []
    state = ""
    for line in lines:
        head, row = _REPORT_STATE.match(line), _REPORT.match(line)
        if head:
            state = _state(head[1].strip())
        elif row and state:
            found.append(_manager(row[1], row[2], None, row[3], state))
        elif "priority:" in line or "guid=" in line:
            raise ParseError(f"a line of ibdiagnet's list is cut or of an unknown form: {printable(line, limit=120)}")
    return _distinct(found)


def _distinct(found: list[Manager]) -> list[Manager]:
    if len({m.guid for m in found}) != len(found):
        raise ParseError("one subnet manager is told twice", hint="two outputs mixed")
    return found


def complaint(lines: Sequence[str]) -> str:
    """What a tool says went wrong, with what can be done; "" where it says nothing."""
    said = [line for line in lines if _COMPLAINT.match(line) and not line.startswith("sminfo: sm lid")]
    if not said:
        return ""
    refused = any(word in line.lower() for line in said for word in _REFUSED)
    hint = " (the tool needs /dev/infiniband/umad*, which only root may open: sudo = true among the params)"
    return f"{'; '.join(printable(line, limit=160) for line in said[:2])}{hint if refused else ''}"


def silent(why: str) -> bool:
    """Whether the tool could ask, and no manager answered."""
    refused = any(word in why.lower() for word in _REFUSED)
    return not refused and (why == NO_ANSWER or any(word in why for word in _SILENT))


def judged(managers: Sequence[Manager], subject: Subject) -> Iterator[Measurement]:
    """The list of all managers of one subnet: one of them is master, another one stands by."""
    masters = [m for m in managers if m.state == MASTER]
    standbys = [m for m in managers if m.state == STANDBY]
    said = tuple(map(str, masters)) if len(masters) > 1 else ()
    yield Measurement("masters", len(masters), "count", subject=subject, expected=1, warnings=said)
    rest = [m for m in managers if m.state not in (MASTER, STANDBY)]
    doubts = [] if standbys else ["no subnet manager stands by: when the master ends, nobody takes over"]
    doubts += [f"a subnet manager is neither master nor standby: {m}" for m in rest]
    doubts += [f"the standby {s.name} has priority {s.priority}, the master {m.priority}: it would take over"
               for m in masters[:1] for s in standbys if s.priority > m.priority]
    yield Measurement("standbys", len(standbys), "count", subject=subject, expected=len(standbys),
                      warnings=tuple(doubts))


def goes_on(first: Manager, second: Manager, subject: Subject) -> Measurement:
    """Whether the activity count of a manager has gone on between two answers."""
    if first.activity is None or second.activity is None:
        return Measurement("activity", "not told", subject=subject, expected="goes on")
    if second.activity == first.activity:
        return Measurement("activity", f"stands at {second.activity}", subject=subject, expected="goes on",
                           warnings=("the manager answers and does nothing",))
    said = () if second.activity > first.activity else (
        f"the activity count fell from {first.activity} to {second.activity}: it was started anew",)
    return Measurement("activity", "goes on", subject=subject, expected="goes on", warnings=said)


def read(text: str) -> tuple[list[Manager], list[Measurement], list[str], list[str]]:
    """Of any text: the managers, what they are worth, problems and notes."""
    lines = [line for line in lines_of(text) if line]
    told = complaint(lines)
    problems = [f"the output has an error line: {told}"] if told else []
    listed = records(lines) or report(lines)
    asked = answers(lines)
    if "IsSM ports" in lines and not listed:
        raise ParseError("saquery -s lists the ports that may run a manager, not their states",
                         hint="saquery SMIR")
    if not listed and not asked:
        raise ParseError(told or "no answer of sminfo, no list of saquery SMIR or ibdiagnet")
    where = Subject()
    by_guid: dict[int, list[Manager]] = {}
    for manager in asked:
        by_guid.setdefault(manager.guid, []).append(manager)
    every = listed or [same[-1] for same in by_guid.values()]
    found = [*judged(every, where), *(goes_on(same[0], same[-1], where) for same in by_guid.values() if len(same) > 1)]
    notes = []
    if not listed:
        found = [m for m in found if m.name != "standbys" or m.value]
        notes.append("sminfo tells of the managers that were asked only: whether others stand by is not told")
    elif asked and not {m.guid for m in asked if m.state == MASTER} <= {m.guid for m in listed}:
        problems.append("the manager that answers is not in the list: outputs of two subnets?")
    notes.append(f"{plural(len(every), 'subnet manager')}: {'; '.join(map(str, every[:8]))}")
    return every, found, problems, notes
