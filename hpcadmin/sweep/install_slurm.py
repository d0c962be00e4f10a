"""The lines that make slurmd run hpcadmin-health, in an existing slurm.conf: put in, left out, taken back."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcadmin.conf.existing.parts import Value
from hpcadmin.conf.existing.read import configure
from hpcadmin.errors import UsageError

BEGIN, END = "# BEGIN hpcadmin-health", "# END hpcadmin-health"
BEFORE = "#before-hpcadmin# "
_PATH = re.compile(r"/[A-Za-z0-9_.+/-]*[A-Za-z0-9_.+-]")
_STATES = re.compile(r"[A-Z_]+(,[A-Z_]+)*")
_GENERATED = re.compile(r"# \S+ of cluster [^\n]*Written by hpcadmin conf render\.\n")
Lines = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Edited:
    """The new text. foreign: what others have set, that stands in the way, as "place: key=value"."""

    text: str
    foreign: tuple[str, ...] = ()
    generated: bool = False         # conf render writes this file


def lines(program: str, interval_s: int, states: str, *, prolog: bool, epilog: bool) -> Lines:
    if not _PATH.fullmatch(program):
        raise UsageError(f"{program!r} is no plain absolute path", where="--health-program")
    if not 0 < interval_s <= 65535:
        raise UsageError(f"{interval_s} is not between 1 and 65535", where="--interval")
    if not _STATES.fullmatch(states):
        raise UsageError(f"{states!r} names no states", where="--states", hint="as in ANY,CYCLE")
    hooks = [(key, f"{program}-{key.lower()}") for key, asked in (("Prolog", prolog), ("Epilog", epilog)) if asked]
    return (("HealthCheckProgram", program), ("HealthCheckInterval", str(interval_s)),
            ("HealthCheckNodeState", states), *hooks)


def edit(text: str, wanted: Lines, open_file: Callable[[str], str], folder: str, *, replace: bool) -> Edited:
    """wanted in our block, but for what stands there already. replace: another HealthCheckProgram becomes a comment."""
    bare = without_block(text)
    conf = configure({"slurm.conf": bare}, open_file=open_file, folder=folder)
    own = posixpath.join(folder, "slurm.conf")
    if conf.missing:
        raise UsageError(f"what else is set cannot be known: {conf.missing[0]}", where=own)
    if fatal := next((fault for fault in conf.faults if fault.fatal), None):
        raise UsageError(fatal.what, where=str(fatal.place), hint="hpcadmin conf check tells more")
    missing, foreign = [], []
    for key, value in wanted:
        found = _found(conf.settings.get(key.casefold()), conf.several.get(key.casefold(), ()))
        others = [one for one in found if one.text != value]
        if not found:
            missing.append((key, value))
        elif others:
            may = replace and key.startswith("HealthCheck") and all(one.place.file == own for one in found)
            taken = _commented(bare, key) if may else ""
            if taken:
                bare = taken
                missing.append((key, value))
            else:
                foreign += [f"{one.place}: {one.key}={one.text}" for one in others]
    generated = bool(_GENERATED.match(text)) and (bool(missing) or bool(foreign))
    return Edited(_with_block(bare, missing) if missing else bare, tuple(foreign), generated)


def taken_back(text: str) -> str:
    """As it was before: our block gone, what had become a comment in force again."""
    bare = without_block(text)
    return "".join(line.removeprefix(BEFORE) for line in bare.splitlines(keepends=True))


def without_block(text: str) -> str:
    """UsageError where the block has no end, or there are two."""
    begins, ends = (len(re.findall(rf"^{mark}$", text, re.MULTILINE)) for mark in (BEGIN, END))
    if (begins, ends) == (0, 0):
        return text
    parts = re.fullmatch(rf"(?s)(.*?^){BEGIN}\n.*?^{END}(?:\n(.*)|\Z)", text, re.MULTILINE)
    if (begins, ends) != (1, 1) or parts is None:
        raise UsageError(f"the lines {BEGIN!r} and {END!r} do not stand there once each, in this order",
                         where="slurm.conf", hint="put that right by hand")
    return parts[1] + (parts[2] or "")


def _with_block(text: str, wanted: Lines) -> str:
    if text and not text.endswith("\n"):
        text += "\n"
    if re.search(r"\\\n\Z", text):          # the last line would go on in ours
        text += "\n"
    return text + "\n".join([BEGIN, *(f"{key}={value}" for key, value in wanted), END]) + "\n"


def _found(single: Value | None, several: Sequence[Value]) -> list[Value]:
    return list(several) or ([single] if single is not None else [])


def _commented(text: str, key: str) -> str:
    """"" where one of them stands in a line with others."""
    alone = re.compile(rf"^[ \t]*{key}[ \t]*=[ \t]*[^\s\\#]+[ \t]*(?:#[^\n\\]*)?$", re.IGNORECASE | re.MULTILINE)
    found = alone.sub(lambda match: BEFORE + match[0], text)
    left = re.search(rf"^[^#\n]*\b{key}[ \t]*=", found, re.IGNORECASE | re.MULTILINE)
    return "" if left or re.search(r"\\\n" + re.escape(BEFORE), found) else found
