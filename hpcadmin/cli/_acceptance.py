"""What is said of the acceptance that a run belongs to, beside the run itself."""

from __future__ import annotations

from pathlib import Path


def acceptance_line(folder: Path, runs: Path | None = None) -> str:
    """"20260730-101500-aaaa with 20260731-080000-bbbb: PASSED: 11 of 11 tests passed"; "" of a run by itself. Why it
    cannot be told, where a re-test has lost the run that it repeats."""
    from hpcadmin.acceptance_read import family_of, members_in, read_acceptance
    from hpcadmin.report.summary import summarise
    family = family_of(folder, members_in(folder.parent, indexed=runs is not None and folder.parent == runs))
    if len(family.members) == 1:
        return family.problems[0] if family.lost else ""
    run = read_acceptance(folder, runs, values=False)
    first, *again = (m.name for m in family.members)
    return f"{first} with {', '.join(again)}: {summarise(run).text}"
