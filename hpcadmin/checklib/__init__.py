"""Helpers for the authors of checks: strict numbers, clean lines, and the refusal of outputs that are not whole.

Everything here works in time linear in the text and raises ParseError with what is wrong and where.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

from hpcadmin.check import Context, NodeView, Output, ParseError, Role
from hpcadmin.errors import UsageError
from hpcadmin.hosts import expand
from hpcadmin.text import fold_ids, printable

MAX_TEXT = 64 * 1024 * 1024

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_=>])")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,25}(?:\.[0-9]{0,25})?|\.[0-9]{1,25})(?:[eE][+-]?[0-9]{1,3})?\Z")
_WHOLE = re.compile(r"[0-9]{1,18}\Z")

# What launchers, the kernel and libraries print when a program died. A table beside such a line is not to be trusted.
_FATAL = (
    "segmentation fault", "bus error", "core dumped", "oom-kill", "oom_kill", "out of memory", "out-of-memory",
    "mpi_abort was invoked", "mpi_abort(", "fatal error in", "prte has lost communication",
    "orte has lost communication", "lost communication with", "primary job terminated normally, but",
    "exited on signal", "noticed that process rank", "slurmstepd: error", "srun: error", "due to time limit",
    "stepd: *** step", "*** job", "killed by signal", "not enough slots", "unable to start one or more",
    "illegal instruction", "floating point exception", "your job will now abort", "your mpi job will now abort",
    "segfault at ", "nvrm: xid", "fallen off the bus", "test nccl failure", "test cuda failure", ": test failure",
    "got completion from peer",
)
# Words of a line that says what went wrong.
_TELLING = ("error", "fail", "invalid", "denied", "unable", "cannot", "can't", "couldn't", "not found", "no such",
            "lost", "refused", "usage:")
_MAY_TELL = ("abort", "killed", "terminated", "not built", "not linked", "not enough", "not supported", "requires ",
             "unreachable", "no ib ", "timed out", "timeout", "exiting", "should be", "must be", "please ",
             "not available")
# slurmd says so as an error, and the step goes on all the same.
_HARMLESS = ("couldn't chdir to",)
_MOST_SEEN = 4000


def strip_terminal(text: str) -> str:
    """`text` without terminal colours and cursor moves, with plain line ends."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def shown(text: str) -> str:
    """Text of a tool as a value: one line, bounded, nothing that a terminal would obey."""
    return printable(text, limit=200)


def lines_of(text: str) -> list[str]:
    """The lines of an output, cleaned and with blanks at their ends removed. Lines are split at \\n only."""
    return [line.strip() for line in strip_terminal(text).split("\n")]


def own_output(text: str, name: str) -> list[str]:
    """The lines, without empty ones, of an output of our own script `name`, which says where it begins and ends."""
    lines = [line for line in lines_of(text) if line]
    if lines.count(f"# hpcadmin {name} 1") != 1 or lines.count(f"# end {name}") != 1:
        raise ParseError(f"not one whole output of {name}", hint="cut off, or several runs mixed")
    return lines


def told_once(lines: Iterable[str], keys: Sequence[str], separator: str) -> dict[str, str]:
    """The values of these keys in the order of the lines, each of which may stand there once."""
    told: dict[str, str] = {}
    for line in lines:
        key, mark, value = line.partition(separator)
        if mark and key in keys:
            if key in told:
                raise ParseError(f"{key} is told twice")
            told[key] = value.strip()
    return told


def require(outputs: Sequence[Output], *, count: int | None = None, role: Role | None = None) -> tuple[Output, ...]:
    """The outputs (of one role), each known to be whole: ended by itself with status 0, in time, not cut, not empty."""
    chosen = tuple(o for o in outputs if role is None or o.role == role)
    if count is not None and len(chosen) != count:
        what = f"{role.value} output" if role else "output"
        raise ParseError(f"{len(chosen)} {what}s where {count} must be", hint="a step never ran or its output is lost")
    if not chosen:
        raise ParseError("no output at all")
    for output in chosen:
        whole(output)
    return chosen


def whole(output: Output) -> Output:
    """`output`, or ParseError when it is cut off, timed out, empty or of a program that failed."""
    where = output.node or None
    if output.timed_out:
        raise ParseError("the program did not end in time and was killed", where=where)
    if output.truncated:
        raise ParseError("the output is cut off", where=where)
    if output.exit_status is None:
        raise ParseError("the program was never seen to end", where=where)
    if output.exit_status != 0:
        raise ParseError(f"the program ended with {_status(output.exit_status)}{_why(output.text)}", where=where)
    if not output.text.strip():
        raise ParseError("the program printed nothing", where=where)
    if len(output.text) > MAX_TEXT:
        raise ParseError(f"the output has more than {MAX_TEXT} characters", where=where)
    return output


def _status(status: int) -> str:
    names = {124: "exit status 124 (time-out)", 126: "exit status 126 (not executable)",
             127: "exit status 127 (not found)"}
    if status in names:
        return names[status]
    if 128 < status < 128 + 65:
        return f"exit status {status} (signal {status - 128})"
    return f"exit status {status}"


def _why(text: str) -> str:
    """The line that most likely says why, for the message: the program's own words before the launcher's."""
    lines = [line for line in lines_of(text[-40_000:]) if line]
    if not lines:
        return ", and printed nothing"
    telling = [line for line in lines if any(word in line.lower() for word in _TELLING)]
    own = [line for line in telling if not line.startswith(("srun:", "slurmstepd", "---", ".."))]
    return f": {printable((own or telling or lines[-1:])[0], limit=200)}"


def telling(lines: Iterable[str], *, limit: int = 4) -> list[str]:
    """Of an output without a result, the lines that most likely say why, each once, at most `limit`."""
    found: dict[str, None] = {}
    for line in lines:
        low = line[:2000].lower()
        if any(word in low for word in (*_TELLING, *_MAY_TELL)):
            found[shown(line)] = None
            if len(found) == limit:
                break
    return list(found)


def fatal_lines(lines: Iterable[str], *, limit: int = 5, also: Sequence[str] = ()) -> list[str]:
    """Lines that say a program, a step or a node died, at most `limit`."""
    lines, harmless = list(lines), _seen_harmless(tuple(also))
    new = [line for line in dict.fromkeys(lines) if line not in harmless]
    whole = "\n".join(new).lower()
    words = [word for word in (*_FATAL, *also) if word in whole]       # of most texts none: no line is looked at
    if not words:
        if len(harmless) < _MOST_SEEN:
            harmless.update(line for line in new if len(line) <= 120)
        return []
    found: list[str] = []
    for line in lines:
        low = line.lower()
        if any(word in low for word in words) and not any(word in low for word in _HARMLESS):
            found.append(line)
            if len(found) == limit:
                break
    return found


@cache
def _seen_harmless(also: tuple[str, ...]) -> set[str]:
    """Lines that have none of the words: heads and names come again in the outputs of all nodes."""
    return set()


def no_fatal_lines(lines: Iterable[str], *, also: Sequence[str] = ()) -> None:
    found = fatal_lines(lines, limit=1, also=also)
    if found:
        raise ParseError(f"the output has an error line: {printable(found[0], limit=200)}")


def finite(text: str, what: str, *, least: float = 0.0, most: float = 1e18) -> float:
    """A plain decimal number within bounds; nan, inf, hex, thousands separators and underscores are refused."""
    if not _NUMBER.match(text):
        raise ParseError(f"{what} is {printable(text, limit=40)!r}, which is not a number")
    value = float(text)
    if not math.isfinite(value) or not least <= value <= most:
        raise ParseError(f"{what} is {printable(text, limit=40)}, not within {least:g} and {most:g}")
    return value


def positive(text: str, what: str, *, most: float = 1e18) -> float:
    """A number above zero: what a time or a rate of something that really happened must be."""
    value = finite(text, what, most=most)
    if value <= 0:
        raise ParseError(f"{what} is {printable(text, limit=40)}: nothing that ran takes no time")
    return value


def integer(text: str, what: str, *, least: int = 0, most: int = 10 ** 18) -> int:
    """A whole number in plain digits within bounds."""
    if not _WHOLE.match(text):
        raise ParseError(f"{what} is {printable(text, limit=40)!r}, which is not a whole number")
    value = int(text)
    if not least <= value <= most:
        raise ParseError(f"{what} is {value}, not within {least} and {most}")
    return value


def id_list(text: str, what: str, *, most: int = 65535) -> tuple[int, ...]:
    """The ids of "0-3,8", as the kernel and Slurm write lists of CPUs and GPUs, in the order of the text."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = integer(first, what, most=most)
        high = integer(last, what, least=low, most=most) if dash else low
        found += range(low, high + 1)
        if len(found) > most:
            raise ParseError(f"{what}: {shown(text)} names too many")
    return tuple(found)


def fold(ids: Iterable[int]) -> str:
    """0-3,8 for these ids."""
    return fold_ids(ids)


def hosts(text: str, what: str) -> tuple[str, ...]:
    """The names of a hostlist."""
    try:
        return tuple(expand(text))
    except UsageError as exc:
        raise ParseError(f"{what}: {exc}") from exc


def rising(sizes: Sequence[int], what: str = "message sizes") -> None:
    """Refuses a table whose sizes do not rise from row to row (rows lost order, doubled, or two runs are mixed)."""
    for before, after in pairwise(sizes):
        if after <= before:
            raise ParseError(f"{what} do not rise: {after} comes after {before}", hint="rows doubled or two runs mixed")


def same_host(one: str, other: str) -> bool:
    """Whether two host names are of one host: equal, or one is the other's short form."""
    a, b = one.rstrip(".").lower(), other.rstrip(".").lower()
    return a == b or (("." not in a or "." not in b) and a.split(".")[0] == b.split(".")[0])


def planned_node(context: Context, nodename: str, hostname: str) -> NodeView | None:
    """The node of the test that a process ran on: by Slurm's NodeName where the process knows it, else by hostname."""
    if nodename:
        return next((n for n in context.nodes if n.name == nodename), None)
    found = [n for n in context.nodes if same_host(hostname, n.hostname or n.name)]
    return found[0] if len(found) == 1 else None


def fnv1a(rows: Iterable[str]) -> int:
    """The check sum that our own C programs print over their rows; blanks do not count."""
    total = 2166136261
    for row in rows:
        for byte in row.replace(" ", "").encode("utf-8", "surrogateescape"):
            total = ((total ^ byte) * 16777619) & 0xFFFFFFFF
    return total


def fields_of(words: Sequence[str], what: str) -> dict[str, str]:
    """`name=value` words as a table; a name that comes twice or a word without = is refused."""
    table: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or name in table:
            raise ParseError(f"{what} has {printable(word, limit=60)!r}, which is not one name=value")
        table[name] = value
    return table
