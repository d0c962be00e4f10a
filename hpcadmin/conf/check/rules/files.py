"""What could not be read, or is read otherwise than it looks: the reader's own findings."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.existing.parts import Place


def faults(situation: Situation) -> Iterator[Finding]:
    for fault in situation.conf.faults:
        severity = Severity.FATAL if fault.fatal else Severity.NOTE if fault.harmless else Severity.WRONG
        yield Finding(severity, fault.what,
                      "the daemons do not start with it" if fault.fatal else "", (), fault.place)


def empty(situation: Situation) -> Iterator[Finding]:
    """A file with nothing in it is no configuration that is right."""
    for file in situation.conf.files:
        if file.name == "slurm.conf" and not file.statements and not situation.conf.settings:
            yield Finding(Severity.FATAL, "slurm.conf has no line that says anything", "no daemon starts", (),
                          Place(file.path, 1))
        elif not any(line.strip() for line in file.lines):
            yield Finding(Severity.NOTE, f"{file.name} is empty", "it says nothing", (), Place(file.path, 1))


RULES: tuple[Rule, ...] = (faults, empty)
