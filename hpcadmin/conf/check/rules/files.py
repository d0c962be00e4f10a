"""What could not be read, or is read otherwise than it looks: the reader's own findings."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.existing.parts import Place


def faults(situation: Situation) -> Iterator[Finding]:
    for fault in situation.conf.faults:
        yield Finding(Severity.FATAL if fault.fatal else Severity.WRONG, fault.what,
                      "the daemons do not start with it" if fault.fatal else "", (), fault.place)


def empty(situation: Situation) -> Iterator[Finding]:
    """A file with nothing in it is no configuration that is right."""
    for file in situation.conf.files:
        if file.name in ("slurm.conf", "gres.conf", "topology.conf") and not file.statements:
            severity = Severity.FATAL if file.name == "slurm.conf" else Severity.NOTE
            yield Finding(severity, f"{file.name} has no line", "it says nothing", (), Place(file.path, 1))


RULES: tuple[Rule, ...] = (faults, empty)
